//! Energy of processors and memory, as the processor itself counts it.
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
//! A package's energy has that of its cores and uncore (its graphics) in it, not that of the memory beside it; psys is
//! the platform with all packages in it. Each has a metric of its own, so that no sum counts twice. Some
//! machines show a zone by two interfaces: the processor's registers (`intel-rapl`) and memory (`intel-rapl-mmio`). It
//! is told once, by the registers where they have it.
//!
//! The counters begin anywhere and go round after some minutes; told is what was counted since the first
//! reading. After a sleep of the machine longer than a round they count anew. Only root may read them
//! since Linux 5.10: their steps tell what other programs compute (CVE-2020-8694).
//!
//! Where powercap has no zone the same counters are read through the kernel's PMU `power`, see `rapl/pmu.rs`.

mod pmu;

use crate::reading::file::broken;
use crate::reading::parts::{Choice, exclude, include};
use crate::reading::values::{Values, Walk};
use crate::reading::wrapping::Wrapping;
use crate::{Context, Every, Open, Sink, Source, SourceError, SourceSpec};
use model::{Metric, Timestamp, Unit};
use std::time::Duration;

const DIR: &str = "sys/class/powercap";
/// So often every counter is read, however long the period is: the smallest goes round in 65 s at
/// [`Zone::watts_max`].
const FOLLOW_EVERY: Duration = Duration::from_secs(20);

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "rapl",
    help: "Energy of processors and memory, as the processor counts it.",
    reads: &[
        "/sys/class/powercap/*/{name,energy_uj,max_energy_range_uj}",
        "perf_event_open(2) of the PMU power where that has none",
    ],
    cost: "about 2 µs a zone, and more where the kernel asks another socket",
    every: Every::Tick,
    metrics: &[&PACKAGE, &CORE, &UNCORE, &DRAM, &PSYS],
    sane: &[],
    options: &[
        include("Only these kinds of zones: package, core, uncore, dram, psys; none means all."),
        exclude("", "Not these kinds of zones."),
    ],
    open,
};

static PACKAGE: Metric = energy(
    "rapl_package_joules_total",
    "Energy of a processor package, its cores and graphics included, memory not.",
);
static CORE: Metric =
    energy("rapl_core_joules_total", "The part of rapl_package_joules_total of its cores.");
static UNCORE: Metric = energy(
    "rapl_uncore_joules_total",
    "The part of rapl_package_joules_total of what is no core, on most models its graphics.",
);
static DRAM: Metric =
    energy("rapl_dram_joules_total", "Energy of the memory of a processor package.");
static PSYS: Metric = energy(
    "rapl_psys_joules_total",
    "Energy of the platform, all packages included, where its maker connected the sensor.",
);

const fn energy(name: &'static str, help: &'static str) -> Metric {
    Metric::counter(name, Unit::Joules, help).steps(1_000_000)
}

/// What is kept of a zone.
#[derive(Debug)]
struct Zone {
    /// No such zone uses more power.
    watts_max: u32,
    /// After so many microjoules it begins at 0 again.
    range: u64,
    counted: Option<Wrapping>,
}

#[derive(Debug)]
struct Rapl {
    zones: Values<Zone>,
    choice: Choice,
}

/// Zones of this interface are taken only where the registers have none such.
const BY_MEMORY: &str = "intel-rapl-mmio";
/// Who may read is a matter of the files' mode alone.
const GRANT: &str = "root or CAP_DAC_READ_SEARCH, or make energy_uj readable by a rule of udev";
const ABSENT: &str = "/sys/class/powercap: no zone counts energy, and no PMU power; needs CONFIG_INTEL_RAPL and a processor with RAPL";

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
        // What cannot be read is told at the next tick.
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
    /// What was counted by now, in microjoules, and since when.
    fn count(&mut self, now: Timestamp, energy_uj: i64) -> Option<(u64, Timestamp)> {
        let energy_uj = u64::try_from(energy_uj).ok()?;
        let counted = self.counted.get_or_insert(Wrapping::new(now, energy_uj));
        Some(counted.add(now, energy_uj, self.range, u64::from(self.watts_max) * 1_000_000))
    }
}

/// What a zone is, by its name.
fn metric_of(name: &str) -> Option<(&'static Metric, u32)> {
    Some(match name {
        "core" => (&CORE, 2000),
        "uncore" => (&UNCORE, 2000),
        "dram" => (&DRAM, 1000),
        // One a socket, `psys-1`, where the platform has several.
        name if name.starts_with("psys") => (&PSYS, 10_000),
        name if name.starts_with("package-") => (&PACKAGE, 2000),
        _ => return None,
    })
}

/// Zones with what each is, found by its name and that of the zone it is a part of.
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
            walk.note(broken(&at("max_energy_range_uj"), "it is no number"));
            continue;
        };
        // One that is there and closed is told so; the other interface is no way around it.
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

/// The kinds of zones that the options ask for by name, and that this machine does not have.
fn lacking(
    choice: &Choice,
    is_there: impl Fn(&Metric) -> bool,
) -> impl Iterator<Item = SourceError> {
    let lacks = move |metric: &&&'static Metric| {
        choice.says(kind(metric)) == Some(true) && !is_there(metric)
    };
    let told = |metric: &&'static Metric| {
        SourceError::absent(format!("this machine counts no energy of the kind `{}`", kind(metric)))
    };
    SPEC.metrics.iter().filter(lacks).map(told)
}

/// The kind of zone that a metric is of, as the options name it.
fn kind(metric: &'static Metric) -> &'static str {
    metric.name.split('_').nth(1).unwrap_or_default()
}

/// Whether the options ask for the kind of zone that a metric is of.
fn is_wanted(metric: &'static Metric, choice: &Choice) -> bool {
    choice.says(kind(metric)).unwrap_or(true)
}

#[cfg(test)]
mod tests;
