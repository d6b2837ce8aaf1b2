//! Thermal zones: the temperatures that the kernel uses for throttling and cooling.
//!
//! Reads `/sys/class/thermal/thermal_zoneN/{type,temp}` (Linux 2.6.25;
//! Documentation/driver-api/thermal/sysfs-api.rst):
//!
//! ```text
//! thermal_zone1/type  x86_pkg_temp
//! thermal_zone1/temp  48000          millidegrees Celsius
//! ```
//!
//! A zone has two labels: `zone`, its number, and `type`, its sensor. Many of these sensors also appear under
//! `hwmon`. A board's own zone (`acpitz`) may be a constant chosen by its maker.

use crate::reading::parts::{Choice, exclude, include};
use crate::reading::values::{Values, Walk};
use crate::{Context, Every, Open, Sink, Source, SourceError, SourceSpec, ValueBounds};
use model::{Metric, Unit};
use std::time::Duration;

const DIR: &str = "sys/class/thermal";

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "thermal",
    help: "Temperatures of the kernel's thermal zones.",
    reads: &["/sys/class/thermal/thermal_zone*/{type,temp}"],
    cost: "some microseconds a zone; a zone of the firmware may take 1 ms",
    every: Every::AtLeast(Duration::from_secs(5)),
    metrics: &[&TEMPERATURE],
    // No valid temperature is outside this range; sensors that are off report -274 °C or 0 K.
    sane: &[ValueBounds::of(&TEMPERATURE).within(-60.0, 150.0).never(&[127.0, 128.0])],
    options: &[
        include("Only these zones, by their type: names, or patterns with `*`; empty means all."),
        exclude(
            "",
            "Types of zones to leave out if `include` is empty: names, or patterns with `*`.",
        ),
    ],
    open,
    ..SourceSpec::DEFAULT
};

static TEMPERATURE: Metric =
    Metric::gauge("thermal_temperature_celsius", Unit::Celsius, "Temperature of a thermal zone.")
        .steps(1000);

struct Thermal {
    zones: Values,
    choice: Choice,
    absent: &'static str,
}

const NOTHING: [&str; 2] = [
    "/sys/class/thermal: no thermal zone",
    "/sys/class/thermal: no thermal zone that the options choose",
];

fn open(open: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    let absent = open.options.nothing(&SPEC, &["include", "exclude"], NOTHING);
    let choice = Choice::of(open.options);
    Ok(Box::new(Thermal { zones: Values::default(), choice, absent }))
}

impl Source for Thermal {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        let choice = &self.choice;
        self.zones.look(cx.root, cx.now, self.absent, |found| walk(found, choice))?;
        let mut of = out.of_device();
        let read = self.zones.each(|zone, number| zone.gauge(&mut of, number));
        read.state("zones", out)
    }
}

fn walk(walk: &mut Walk<'_, ()>, choice: &Choice) {
    for entry in walk.names(DIR) {
        let Some(zone) = entry.strip_prefix("thermal_zone") else { continue };
        let kind = walk.text(&format!("{DIR}/{entry}/type")).unwrap_or_default();
        if choice.includes(&kind).unwrap_or(true) {
            let labels = [("zone", zone), ("type", &*kind)];
            walk.file(&format!("{DIR}/{entry}/temp"), &TEMPERATURE, &labels, 1e3, ());
        }
    }
}
