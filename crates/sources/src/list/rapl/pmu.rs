//! The energy counters by the PMU `power` (arch/x86/events/rapl.c, Linux 3.14, AMD 5.8): one event for each
//! kind of zone, on one processor of each package. The kernel handles wraps. The platform's counter
//! is left out: every package reports the same one.
//!
//! ```text
//! power/cpumask                  0,18
//! power/events/energy-pkg        event=0x02
//! power/events/energy-pkg.scale  2.3283064365386962890625e-10
//! power/events/energy-pkg.unit   Joules
//! ```

use super::super::perf::UncoreEvent;
use super::{CORE, DRAM, PACKAGE, UNCORE, is_wanted, lacking};
use crate::reading::parts::Choice;
use crate::source::error::Errors;
use crate::{Context, Sink, Source, SourceError};
use kernel::Root;
use model::{Metric, Timestamp};

const DIR: &str = "sys/bus/event_source/devices/power/events";
/// The PMU's events and their metrics.
static EVENTS: [(&str, &Metric); 4] = [
    ("energy-pkg", &PACKAGE),
    ("energy-cores", &CORE),
    ("energy-gpu", &UNCORE),
    ("energy-ram", &DRAM),
];

/// An event, its counters, and the package of each counter.
struct Energy {
    metric: &'static Metric,
    counters: UncoreEvent,
    packages: Vec<Box<str>>,
}

struct Pmu {
    energies: Vec<Energy>,
    /// Errors of the other events.
    rejected: Option<SourceError>,
    /// Time of the first reading, at most a tick after the counters were opened.
    start: Option<Timestamp>,
}

/// Opens the PMU's events; `None` without such a PMU.
///
/// # Errors
/// The PMU exists, but all its events are denied or invalid.
pub(super) fn open(root: &Root, choice: &Choice) -> Result<Option<Box<dyn Source>>, SourceError> {
    let (mut energies, mut errors) = (Vec::new(), Errors::default());
    for (event, metric) in EVENTS.into_iter().filter(|(_, metric)| is_wanted(metric, choice)) {
        match Energy::open(root, event, metric) {
            Ok(energy) => energies.push(energy),
            // Few processors have all events.
            Err(SourceError::Absent(_)) => {}
            Err(error) => errors.push(error),
        }
    }
    if energies.is_empty() {
        return errors.into_one().map_or(Ok(None), Err);
    }
    let is_there = |metric: &Metric| energies.iter().any(|energy| *energy.metric == *metric);
    lacking(choice, is_there).for_each(|error| errors.push(error));
    Ok(Some(Box::new(Pmu { energies, rejected: errors.into_one(), start: None })))
}

impl Energy {
    fn open(root: &Root, event: &str, metric: &'static Metric) -> Result<Self, SourceError> {
        root.stat(&format!("{DIR}/{event}"))?;
        let counters = UncoreEvent::open(root, &format!("power/{event}/"))?;
        let package = |cpu: u32| -> Result<Box<str>, SourceError> {
            let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id");
            let text = root.read_text(&path);
            Ok(text.map_err(|error| SourceError::broken(error.to_string()))?.into())
        };
        let packages = counters.cpus().map(package).collect::<Result<_, _>>()?;
        Ok(Self { metric, counters, packages })
    }
}

impl Source for Pmu {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        let start = *self.start.get_or_insert(cx.now);
        let (mut errors, mut of) = (Errors::default(), out.of_device());
        let mut values = 0;
        for Energy { metric, counters, packages } in &self.energies {
            let read = counters.read(|place, joules| {
                let package = packages.get(place).map_or("", |package| package);
                of.counter(metric, &[("package", package)], joules, start);
                values += 1;
            });
            read.unwrap_or_else(|error| errors.push(error));
        }
        if errors.is_empty() {
            out.part_as("zones", self.rejected.as_ref());
            return Ok(());
        }
        self.rejected.iter().for_each(|error| errors.push(error.clone()));
        match errors.into_one() {
            Some(error) if values == 0 => return Err(error),
            error => out.part_as("zones", error.as_ref()),
        }
        Ok(())
    }
}
