//! Sensors of the mainboard, processors, disks and cards: temperatures, fans, voltages, currents, power, energy.
//!
//! Reads `/sys/class/hwmon/hwmonN/` (Linux 2.6; Documentation/hwmon/sysfs-interface.rst):
//!
//! ```text
//! hwmon3/name           coretemp
//! hwmon3/device         -> ../../../coretemp.0
//! hwmon3/temp2_input    45000          millidegrees Celsius
//! hwmon3/temp2_label    Core 0
//! hwmon5/fan1_input     8400           revolutions per minute
//! hwmon5/fan1_fault     0              1: the reading is not valid, and gives no sample
//! hwmon5/power1_average 312000000      microwatts
//! ```
//!
//! A sensor has the labels `chip` (the driver), `device` (which of its chips), `sensor` (the file) and, where
//! the board's maker named it, `label`. A fan's speed is in revolutions per second. Sensors answer late or
//! not at all while their device sleeps (`EAGAIN`, `ENODATA`); this does not affect the others. Chips behind
//! a slow bus may take milliseconds each, so the source does not read them at every tick.

use crate::reading::parts::{Choice, exclude, include};
use crate::reading::values::{Values, Walk};
use crate::reading::wrapping::Wrapping;
use crate::{Context, Every, Open, Sink, Source, SourceError, SourceSpec, ValueBounds};
use kernel::OpenFile;
use model::{Metric, Unit};
use std::time::Duration;

const DIR: &str = "sys/class/hwmon";
/// Upper bound of the power at a sensor of a node.
const WATTS_MAX: u32 = 100_000;

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "hwmon",
    help: "Temperatures, fans, voltages, currents, power and energy of the node's sensors.",
    reads: &[
        "/sys/class/hwmon/hwmon*/{name,device}",
        "/sys/class/hwmon/hwmon*/{temp,fan,in,curr,power,energy}*_{input,average,label}",
    ],
    cost: "some microseconds for a sensor of the processor, up to milliseconds for one behind a slow bus",
    every: Every::AtLeast(Duration::from_secs(5)),
    metrics: &[&TEMPERATURE, &FAN, &VOLTAGE, &CURRENT, &POWER, &POWER_MEAN, &ENERGY],
    sane: &[
        // No valid temperature is outside this range; broken sensors report 127.5, 255 and the like.
        ValueBounds::of(&TEMPERATURE).within(-60.0, 150.0).never(&[127.0, 127.5, 127.875, 128.0]),
        ValueBounds::of(&FAN).within(0.0, 2000.0),
        ValueBounds::of(&VOLTAGE).within(-60.0, 1000.0),
        ValueBounds::of(&CURRENT).within(-1000.0, 1000.0),
        // An unused port or supply reports a constant 0 W, so `stuck` does not apply.
        ValueBounds::of(&POWER).within(0.0, WATTS_MAX as f64),
        ValueBounds::of(&POWER_MEAN).within(0.0, WATTS_MAX as f64),
    ],
    options: &[
        include(
            "Only these chips, by the name of their driver, or patterns with `*`; empty means all.",
        ),
        exclude("", "Chips to leave out if `include` is empty: names, or patterns with `*`."),
    ],
    open,
    ..SourceSpec::DEFAULT
};

static TEMPERATURE: Metric =
    Metric::gauge("hwmon_temperature_celsius", Unit::Celsius, "Temperature at a sensor.")
        .steps(1000);
static FAN: Metric =
    Metric::gauge("hwmon_fan_hertz", Unit::Hertz, "Revolutions of a fan per second.");
static VOLTAGE: Metric =
    Metric::gauge("hwmon_voltage_volts", Unit::Volts, "Voltage at a sensor.").steps(1000);
static CURRENT: Metric =
    Metric::gauge("hwmon_current_amperes", Unit::Amperes, "Current at a sensor.").steps(1000);
static POWER: Metric =
    Metric::gauge("hwmon_power_watts", Unit::Watts, "Current power at a sensor.").steps(1_000_000);
static POWER_MEAN: Metric = Metric::gauge(
    "hwmon_power_mean_watts",
    Unit::Watts,
    "Power at a sensor, mean over an interval that its chip chooses.",
)
.steps(1_000_000);
static ENERGY: Metric = Metric::counter(
    "hwmon_energy_joules_total",
    Unit::Joules,
    "Energy at a sensor since the first reading.",
)
.steps(1_000_000);

/// A kind of sensor: prefix and suffix of its files, metric, and steps per unit.
struct Kind {
    begins: &'static str,
    ends: &'static str,
    metric: &'static Metric,
    per_unit: f64,
}

static KINDS: [Kind; 7] = [
    Kind { begins: "temp", ends: "_input", metric: &TEMPERATURE, per_unit: 1e3 },
    Kind { begins: "fan", ends: "_input", metric: &FAN, per_unit: 60.0 },
    Kind { begins: "in", ends: "_input", metric: &VOLTAGE, per_unit: 1e3 },
    Kind { begins: "curr", ends: "_input", metric: &CURRENT, per_unit: 1e3 },
    Kind { begins: "power", ends: "_input", metric: &POWER, per_unit: 1e6 },
    Kind { begins: "power", ends: "_average", metric: &POWER_MEAN, per_unit: 1e6 },
    Kind { begins: "energy", ends: "_input", metric: &ENERGY, per_unit: 1e6 },
];

struct Hwmon {
    sensors: Values<SensorState>,
    choice: Choice,
    absent: &'static str,
}

const NOTHING: [&str; 2] = [
    "/sys/class/hwmon: no chip with a sensor",
    "/sys/class/hwmon: no chip with a sensor that the options choose",
];

/// State of a sensor.
#[derive(Debug, Default)]
struct SensorState {
    energy: Option<Wrapping>,
    /// `temp1_fault` and the like, where the driver has one: while it is 1, the reading is not valid.
    fault: Option<OpenFile>,
    buf: Vec<u8>,
}

impl SensorState {
    fn is_faulty(&mut self) -> bool {
        let Self { fault: Some(file), buf, .. } = self else { return false };
        file.read(buf).is_ok() && buf.trim_ascii() == b"1"
    }
}

fn open(open: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    let absent = open.options.nothing(&SPEC, &["include", "exclude"], NOTHING);
    let choice = Choice::of(open.options);
    Ok(Box::new(Hwmon { sensors: Values::default(), choice, absent }))
}

impl Source for Hwmon {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        let choice = &self.choice;
        self.sensors.look(cx.root, cx.now, self.absent, |found| walk(found, choice))?;
        let mut of = out.of_device();
        let read = self.sensors.each(|sensor, number| match u64::try_from(number) {
            _ if sensor.kept.is_faulty() => {}
            Ok(energy_uj) if sensor.is(&ENERGY) => {
                let kept = &mut sensor.kept.energy;
                let counted = kept.get_or_insert(Wrapping::new(cx.now, energy_uj));
                let rate_max = u64::from(WATTS_MAX) * 1_000_000;
                let (total, start) = counted.add(cx.now, energy_uj, u64::MAX, rate_max);
                let lost = counted.lost();
                sensor.lost(&mut of, lost);
                sensor.counter(&mut of, total, start);
            }
            _ if sensor.is(&ENERGY) => {}
            _ => sensor.gauge(&mut of, number),
        });
        read.state("sensors", out)
    }
}

fn walk(walk: &mut Walk<'_, SensorState>, choice: &Choice) {
    for chip_dir in walk.names(DIR) {
        let at = |file: &str| format!("{DIR}/{chip_dir}/{file}");
        let Some(chip) = walk.text(&at("name")) else { continue };
        if !choice.includes(&chip).unwrap_or(true) {
            continue;
        }
        let device = walk.link(&at("device")).unwrap_or_else(|| chip_dir.clone());
        for file in walk.names(&format!("{DIR}/{chip_dir}")) {
            let of = |kind: &&Kind| sensor(&file, kind).is_some();
            let Some(kind) = KINDS.iter().find(of) else { continue };
            let Some(name) = sensor(&file, kind) else { continue };
            let label = walk.text(&at(&format!("{name}_label"))).unwrap_or_default();
            let labels =
                [("chip", &*chip), ("device", &device), ("sensor", name), ("label", &label)];
            let labels = labels.get(..if label.is_empty() { 3 } else { 4 }).unwrap_or_default();
            let fault = walk.root().open(&at(&format!("{name}_fault"))).ok();
            let kept = SensorState { fault, ..SensorState::default() };
            walk.file(&at(&file), kind.metric, labels, kind.per_unit, kept);
        }
    }
}

/// `temp2` of `temp2_input`, if the file is of this kind.
fn sensor<'a>(file: &'a str, kind: &Kind) -> Option<&'a str> {
    let name = file.strip_suffix(kind.ends)?;
    let number = name.strip_prefix(kind.begins)?;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(name)
}
