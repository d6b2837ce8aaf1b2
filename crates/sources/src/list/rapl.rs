//! Energy of processors and memory, from the counters of the processor.
//!
//! Reads `/sys/class/powercap/*/{name,energy_uj,max_energy_range_uj}` (Linux 3.13, AMD 5.8;
//! Documentation/power/powercap/powercap.rst, ABI/testing/sysfs-class-powercap):
//!
//! ```text
//! intel-rapl:0/name                 package-0
//! intel-rapl:0/energy_uj            216733987523
//! intel-rapl:0/max_energy_range_uj  262143328850
//! intel-rapl:0:0/name               core
//! ```
//!
//! A package's energy includes its cores and its uncore (graphics), but not its memory; psys is the platform
//! including all packages. Each has a metric of its own, so that no sum counts twice. Some machines have one
//! zone in two interfaces: the processor's registers (`intel-rapl`) and memory (`intel-rapl-mmio`). The
//! source reads it once, from the registers if they have it.
//!
//! The counters start at any value and wrap after some minutes; the metrics count since the first reading.
//! Counting restarts after a sleep of the machine that is longer than one wrap. Since Linux 5.10 only root
//! may read them, because their steps reveal what other programs compute (CVE-2020-8694).
//!
//! If powercap has no zone, the source reads the same counters through the kernel's PMU `power`, see
//! `rapl/pmu.rs`.

mod pmu;

use crate::reading::file::broken;
use crate::reading::parts::{Choice, exclude, include};
use crate::reading::values::{Values, Walk};
use crate::reading::wrapping::Wrapping;
use crate::{Context, Every, Open, Sink, Source, SourceError, SourceSpec};
use model::{Metric, Timestamp, Unit};
use std::time::Duration;

const DIR: &str = "sys/class/powercap";
/// Interval at which every counter is read, independent of the source's period: the smallest wraps in 65 s at
/// [`Zone::watts_max`].
const FOLLOW_EVERY: Duration = Duration::from_secs(20);

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "rapl",
    help: "Energy of processors and memory, from the counters of the processor.",
    reads: &[
        "/sys/class/powercap/*/{name,energy_uj,max_energy_range_uj}",
        "perf_event_open(2) of the PMU power if there are none",
    ],
    cost: "about 2 µs a zone, more if the kernel queries another socket",
    every: Every::Tick,
    metrics: &[&PACKAGE, &CORE, &UNCORE, &DRAM, &PSYS],
    options: &[
        include("Only these kinds of zones: package, core, uncore, dram, psys; empty means all."),
        exclude("", "Kinds of zones to leave out."),
    ],
    open,
    ..SourceSpec::DEFAULT
};

static PACKAGE: Metric = energy(
    "rapl_package_joules_total",
    "Energy of a processor package, including its cores and graphics, excluding memory.",
);
static CORE: Metric =
    energy("rapl_core_joules_total", "The part of rapl_package_joules_total of its cores.");
static UNCORE: Metric = energy(
    "rapl_uncore_joules_total",
    "The part of rapl_package_joules_total outside of its cores, on most models its graphics.",
);
static DRAM: Metric =
    energy("rapl_dram_joules_total", "Energy of the memory of a processor package.");
static PSYS: Metric = energy(
    "rapl_psys_joules_total",
    "Energy of the platform, including all packages, if its maker connected the sensor.",
);

const fn energy(name: &'static str, help: &'static str) -> Metric {
    Metric::counter(name, Unit::Joules, help).steps(1_000_000)
}

/// State of a zone.
#[derive(Debug)]
struct Zone {
    /// Upper bound of a zone's power.
    watts_max: u32,
    /// Range of the counter in microjoules.
    range: u64,
    counted: Option<Wrapping>,
}

#[derive(Debug)]
struct Rapl {
    zones: Values<Zone>,
    choice: Choice,
}

/// Zones of this interface are read only if the registers lack them.
const BY_MEMORY: &str = "intel-rapl-mmio";
/// The mode of the files alone decides who may read them.
const GRANT: &str = "root or CAP_DAC_READ_SEARCH, or make energy_uj readable with a udev rule";
const ABSENT: &str = "/sys/class/powercap: no zone with an energy counter, and no PMU power; needs CONFIG_INTEL_RAPL and a processor with RAPL";

fn open(open: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    let choice = Choice::of(open.options);
    let mut zones = Values::granted_by(GRANT);
    let found = zones.look(open.root, open.boot, ABSENT, |walk| self::walk(walk, &choice));
    if let Err(SourceError::Absent(_)) = found
        && let Some(source) = pmu::open(open.root, &choice)?
    {
        return Ok(source);
    }
    Ok(Box::new(Rapl { zones: Values::granted_by(GRANT), choice }))
}

impl Source for Rapl {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        let choice = &self.choice;
        let walk = |found: &mut Walk<'_, Zone>| walk(found, choice);
        self.zones.look(cx.root, cx.now, ABSENT, walk)?;
        let mut of = out.of_device();
        let read = self.zones.each(|zone, energy_uj| {
            if let Some((total, start)) = zone.kept.count(cx.now, energy_uj) {
                let lost = zone.kept.counted.as_mut().and_then(Wrapping::lost);
                zone.lost(&mut of, lost);
                zone.counter(&mut of, total, start);
            }
        });
        read.state("zones", out)
    }

    fn drain(&mut self, cx: &Context<'_>, _: &mut Sink) -> Result<(), SourceError> {
        // The next tick reports errors.
        self.zones.each(|zone, energy_uj| {
            zone.kept.count(cx.now, energy_uj);
        });
        Ok(())
    }

    fn drain_every(&self) -> Option<Duration> {
        Some(FOLLOW_EVERY)
    }
}

impl Zone {
    /// The energy counted so far, in microjoules, and its start.
    fn count(&mut self, now: Timestamp, energy_uj: i64) -> Option<(u64, Timestamp)> {
        let energy_uj = u64::try_from(energy_uj).ok()?;
        let counted = self.counted.get_or_insert(Wrapping::new(now, energy_uj));
        Some(counted.add(now, energy_uj, self.range, u64::from(self.watts_max) * 1_000_000))
    }
}

/// Metric and upper bound of power of a zone, by its name.
fn metric_of(name: &str) -> Option<(&'static Metric, u32)> {
    Some(match name {
        "core" => (&CORE, 2000),
        "uncore" => (&UNCORE, 2000),
        "dram" => (&DRAM, 1000),
        // One per socket, such as `psys-1`, if the platform has several.
        name if name.starts_with("psys") => (&PSYS, 10_000),
        name if name.starts_with("package-") => (&PACKAGE, 2000),
        _ => return None,
    })
}

/// Finds zones; the name of a zone and of its parent determine its metric and label.
fn walk(walk: &mut Walk<'_, Zone>, choice: &Choice) {
    let mut seen: Vec<String> = Vec::new();
    let mut entries = walk.names(DIR);
    entries.sort_by_key(|entry| entry.starts_with(BY_MEMORY));
    for entry in entries {
        let at = |file: &str| format!("{DIR}/{entry}/{file}");
        let Some(name) = walk.text(&at("name")) else { continue };
        // `intel-rapl-mmio:0:1` is a part of `intel-rapl-mmio:0`.
        let above = entry.rsplit_once(':').map_or("", |(above, _)| above);
        let of = match above.contains(':') {
            true => walk.text(&format!("{DIR}/{above}/name")).unwrap_or_default(),
            false => name.clone(),
        };
        let Some((metric, watts_max)) = metric_of(&name) else { continue };
        if !is_wanted(metric, choice) {
            continue;
        }
        let label = match of.strip_prefix("package-") {
            Some(package) => ("package", package),
            None => ("zone", &*of),
        };
        let whole = format!("{} {}", metric.name, label.1);
        if seen.contains(&whole) {
            continue;
        }
        let Some(range) = walk.text(&at("max_energy_range_uj")) else { continue };
        let Ok(range) = range.parse() else {
            walk.note(broken(&at("max_energy_range_uj"), "it is not a number"));
            continue;
        };
        // A denied zone is reported; the other interface must not bypass the denial.
        if walk.root().stat(&at("energy_uj")).is_ok() {
            let kept = Zone { watts_max, range, counted: None };
            walk.file(&at("energy_uj"), metric, &[label], 1e6, kept);
            seen.push(whole);
        }
    }
    if !seen.is_empty() {
        let is_there = |metric: &Metric| seen.iter().any(|seen| seen.starts_with(&*metric.name));
        lacking(choice, is_there).for_each(|error| walk.note(error));
    }
}

/// Errors for the kinds of zones that the options name but this machine lacks.
fn lacking(
    choice: &Choice,
    is_there: impl Fn(&Metric) -> bool,
) -> impl Iterator<Item = SourceError> {
    let lacks = move |metric: &&&'static Metric| {
        choice.includes(kind(metric)) == Some(true) && !is_there(metric)
    };
    let error = |metric: &&'static Metric| {
        SourceError::absent(format!(
            "this machine has no energy counter of the kind `{}`",
            kind(metric)
        ))
    };
    SPEC.metrics.iter().filter(lacks).map(error)
}

/// The kind of zone of a metric, as named in the options.
fn kind(metric: &'static Metric) -> &'static str {
    metric.name.split('_').nth(1).unwrap_or_default()
}

/// Whether the options select the kind of zone of a metric.
fn is_wanted(metric: &'static Metric, choice: &Choice) -> bool {
    choice.includes(kind(metric)).unwrap_or(true)
}

#[cfg(test)]
mod tests;
