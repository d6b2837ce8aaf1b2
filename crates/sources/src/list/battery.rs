//! Batteries and mains: remaining energy, power flow, and whether the node is on mains power.
//!
//! Reads `/sys/class/power_supply/NAME/` (Linux 2.6.24; Documentation/ABI/testing/sysfs-class-power):
//!
//! ```text
//! BAT0/type         Battery
//! BAT0/status       Discharging
//! BAT0/capacity     87              percent of the present full charge
//! BAT0/energy_now   43210000        microwatt-hours
//! BAT0/power_now    12345000        microwatts, in either direction
//! AC/type           Mains
//! AC/online         0
//! ```
//!
//! A battery or a mains connection has the label `supply`, its directory. Batteries of a mouse or a pen
//! (`scope` `Device`) are left out. A battery that measures its charge in ampere-hours reports no energy; both
//! kinds report the charge ratio. A value that is not available now (`ENODATA`) gives no sample.

use crate::reading::values::{Values, Walk};
use crate::{Context, Every, Open, Sink, Source, SourceError, SourceSpec, ValueBounds};
use model::{Metric, Unit};
use std::time::Duration;

const DIR: &str = "sys/class/power_supply";
/// Upper bound: no battery of a node delivers or takes more.
const WATTS_MAX: f64 = 100_000.0;
/// Microwatt-hours in a joule.
const MICROWATT_HOURS: f64 = 1e6 / 3600.0;

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "battery",
    help: "Batteries: charge, energy, power, voltage; and whether the node is on mains power.",
    reads: &[
        "/sys/class/power_supply/*/{type,scope,status,online,capacity,cycle_count}",
        "/sys/class/power_supply/*/{energy_now,energy_full,energy_full_design,power_now,current_now,voltage_now}",
    ],
    cost: "some microseconds a file, up to milliseconds where the driver queries the battery's own controller",
    every: Every::AtLeast(Duration::from_secs(30)),
    metrics: &[
        &SHARE,
        &ENERGY,
        &ENERGY_FULL,
        &ENERGY_DESIGN,
        &POWER,
        &CURRENT,
        &VOLTAGE,
        &CYCLES,
        &CHARGING,
        &DISCHARGING,
        &MAINS,
    ],
    sane: &[
        ValueBounds::of(&SHARE).within(0.0, 1.0),
        ValueBounds::of(&POWER).within(-WATTS_MAX, WATTS_MAX),
        ValueBounds::of(&CURRENT).within(-10_000.0, 10_000.0),
        ValueBounds::of(&VOLTAGE).within(0.0, 1000.0),
    ],
    open,
    ..SourceSpec::DEFAULT
};

static SHARE: Metric = Metric::gauge(
    "battery_charge_ratio",
    Unit::Ratio,
    "Charge of a battery; 1 is its present full charge.",
)
.steps(100);
static ENERGY: Metric =
    Metric::gauge("battery_energy_joules", Unit::Joules, "Energy remaining in a battery.");
static ENERGY_FULL: Metric = Metric::gauge(
    "battery_energy_full_joules",
    Unit::Joules,
    "Energy of a battery at its present full charge.",
);
static ENERGY_DESIGN: Metric = Metric::gauge(
    "battery_energy_design_joules",
    Unit::Joules,
    "Energy of a full battery when it was new, by design.",
);
static POWER: Metric = Metric::gauge(
    "battery_power_watts",
    Unit::Watts,
    "Power into or out of a battery; some drivers report a negative value for power out of it.",
)
.steps(1_000_000);
static CURRENT: Metric = Metric::gauge(
    "battery_current_amperes",
    Unit::Amperes,
    "Current into or out of a battery; some drivers report a negative value for current out of it.",
)
.steps(1_000_000);
static VOLTAGE: Metric =
    Metric::gauge("battery_voltage_volts", Unit::Volts, "Voltage of a battery.").steps(1_000_000);
static CYCLES: Metric = Metric::gauge(
    "battery_cycles",
    Unit::Count,
    "Charge cycles of a battery; no sample where its driver does not count them.",
);
static CHARGING: Metric =
    Metric::gauge("battery_charging", Unit::Count, "1 while a battery charges; else 0.");
static DISCHARGING: Metric =
    Metric::gauge("battery_discharging", Unit::Count, "1 while a battery discharges; else 0.");
static MAINS: Metric = Metric::gauge(
    "battery_mains_online",
    Unit::Count,
    "1 while this mains connection supplies power; else 0.",
);

/// A battery's files: name, metric, steps per unit.
static OF_BATTERY: [(&str, &Metric, f64); 8] = [
    ("capacity", &SHARE, 100.0),
    ("energy_now", &ENERGY, MICROWATT_HOURS),
    ("energy_full", &ENERGY_FULL, MICROWATT_HOURS),
    ("energy_full_design", &ENERGY_DESIGN, MICROWATT_HOURS),
    ("power_now", &POWER, 1e6),
    ("current_now", &CURRENT, 1e6),
    ("voltage_now", &VOLTAGE, 1e6),
    ("cycle_count", &CYCLES, 1.0),
];

#[derive(Debug, Default)]
struct Battery {
    files: Values,
}

fn open(_: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    Ok(Box::new(Battery::default()))
}

impl Source for Battery {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        let absent = "/sys/class/power_supply: no battery and no mains connection of the node";
        self.files.look(cx.root, cx.now, absent, walk)?;
        let mut of = out.of_device();
        let read = self.files.each(|file, number| {
            // Drivers that do not count cycles report 0 or -1.
            let known = match number {
                ..0 => !(file.is(&CYCLES) || file.is(&CHARGING) || file.is(&DISCHARGING)),
                0 => !file.is(&CYCLES),
                _ => true,
            };
            if known {
                file.gauge(&mut of, number);
            }
        });
        read.state("supplies", out)
    }
}

fn walk(walk: &mut Walk<'_, ()>) {
    for supply in walk.names(DIR) {
        let dir = format!("{DIR}/{supply}");
        let labels = [("supply", &*supply)];
        if walk.text(&format!("{dir}/scope")).as_deref() == Some("Device") {
            continue;
        }
        match walk.text(&format!("{dir}/type")).as_deref() {
            Some("Battery") => {
                for (file, metric, per_unit) in OF_BATTERY {
                    walk.file(&format!("{dir}/{file}"), metric, &labels, per_unit, ());
                }
                let status = format!("{dir}/status");
                walk.file_as(&status, &CHARGING, &labels, 1.0, |text| is(text, b"Charging"), ());
                walk.file_as(
                    &status,
                    &DISCHARGING,
                    &labels,
                    1.0,
                    |text| is(text, b"Discharging"),
                    (),
                );
            }
            Some("Mains") => walk.file(&format!("{dir}/online"), &MAINS, &labels, 1.0, ()),
            _ => {}
        }
    }
}

/// 1 for this word, -1 where the driver reports `Unknown`, 0 for any other word.
fn is(text: &[u8], word: &[u8]) -> Option<i64> {
    match text {
        b"" => None,
        b"Unknown" => Some(-1),
        text => Some(i64::from(text == word)),
    }
}
