//! The energy counters by the PMU `power` (arch/x86/events/rapl.c, Linux 3.14, AMD 5.8): one event for each
//! kind of zone, on one processor of each package. The kernel follows them as they go round. That of the
//! platform is left out: each package would tell it, and it is one.
//!
//! ```text
//! power/cpumask                  0,18
//! power/events/energy-pkg        event=0x02
//! power/events/energy-pkg.scale  2.3283064365386962890625e-10
//! power/events/energy-pkg.unit   Joules
//! ```

use super::super::perf::Beside;
use super::{CORE, DRAM, PACKAGE, UNCORE, is_wanted, lacking};
use crate::reading::parts::Choice;
use crate::source::error::Errors;
use crate::{Context, Sink, Source, SourceError};
use kernel::Root;
use model::{Metric, Timestamp};

const DIR: &str = "sys/bus/event_source/devices/power/events";
/// Its events, and what each is.
static EVENTS: [(&str, &Metric); 4] = [
    ("energy-pkg", &PACKAGE),
    ("energy-cores", &CORE),
    ("energy-gpu", &UNCORE),
    ("energy-ram", &DRAM),
];

/// An event, its counters, and the packages that they stand for.
struct Energy {
    metric: &'static Metric,
    counters: Beside,
    packages: Vec<Box<str>>,
}

struct Pmu {
    energies: Vec<Energy>,
    /// Why the others are not counted.
    refused: Option<SourceError>,
    /// When they were read first, at most a tick after they were opened.
    start: Option<Timestamp>,
}

/// Opens what the PMU has; none where there is no such PMU.
///
/// # Errors
/// There is one, and all of it is closed to us or makes no sense.
pub(super) fn open(root: &Root, choice: &Choice) -> Result<Option<Box<dyn Source>>, SourceError> {
    let (mut energies, mut errors) = (Vec::new(), Errors::default());
    for (event, metric) in EVENTS.into_iter().filter(|(_, metric)| is_wanted(metric, choice)) {
        match Energy::open(root, event, metric) {
            Ok(energy) => energies.push(energy),
            // Few processors have all of them.
            Err(SourceError::Absent(_)) => {}
            Err(error) => errors.push(error),
        }
    }
    if energies.is_empty() {
        return errors.into_one().map_or(Ok(None), Err);
    }
    let is_there = |metric: &Metric| energies.iter().any(|energy| *energy.metric == *metric);
    lacking(choice, is_there).for_each(|error| errors.push(error));
    Ok(Some(Box::new(Pmu { energies, refused: errors.into_one(), start: None })))
}

impl Energy {
    fn open(root: &Root, event: &str, metric: &'static Metric) -> Result<Self, SourceError> {
        root.stat(&format!("{DIR}/{event}"))?;
        let counters = Beside::open(root, &format!("power/{event}/"))?;
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
        let mut told = 0;
        for Energy { metric, counters, packages } in &self.energies {
            let read = counters.read(|place, joules| {
                let package = packages.get(place).map_or("", |package| package);
                of.counter(metric, &[("package", package)], joules, start);
                told += 1;
            });
            read.unwrap_or_else(|error| errors.push(error));
        }
        if errors.is_empty() {
            out.part_as("zones", self.refused.as_ref());
            return Ok(());
        }
        self.refused.iter().for_each(|error| errors.push(error.clone()));
        match errors.into_one() {
            Some(error) if told == 0 => return Err(error),
            error => out.part_as("zones", error.as_ref()),
        }
        Ok(())
    }
}
