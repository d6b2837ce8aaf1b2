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
use super::{CORE, DRAM, PACKAGE, UNCORE, is_wanted};
use crate::parts::Choice;
use crate::{Context, Sink, Source, SourceError};
use kernel::Root;
use model::{Metric, Timestamp};

/// Its events, and what each is.
static EVENTS: [(&str, &Metric); 4] = [
    ("power/energy-pkg/", &PACKAGE),
    ("power/energy-cores/", &CORE),
    ("power/energy-gpu/", &UNCORE),
    ("power/energy-ram/", &DRAM),
];

/// An event, its counters, and the packages that they stand for.
struct Energy {
    metric: &'static Metric,
    counters: Beside,
    packages: Vec<Box<str>>,
}

struct Pmu {
    energies: Vec<Energy>,
    /// When they were read first, at most a tick after they were opened.
    start: Option<Timestamp>,
}

/// Opens what the PMU has; none where there is no such PMU.
///
/// # Errors
/// There is one, and it is closed to us or makes no sense.
pub(super) fn open(root: &Root, choice: &Choice) -> Result<Option<Box<dyn Source>>, SourceError> {
    let mut energies = Vec::new();
    for (event, metric) in EVENTS.into_iter().filter(|(_, metric)| is_wanted(metric, choice)) {
        let counters = match Beside::open(root, event) {
            Ok(counters) => counters,
            Err(SourceError::Absent(_)) => continue,
            Err(error) => return Err(error),
        };
        let package = |cpu: u32| -> Result<Box<str>, SourceError> {
            let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id");
            Ok(root.read_text(&path)?.into())
        };
        let packages = counters.cpus().map(package).collect::<Result<_, _>>()?;
        energies.push(Energy { metric, counters, packages });
    }
    let found = !energies.is_empty();
    Ok(found.then(|| -> Box<dyn Source> { Box::new(Pmu { energies, start: None }) }))
}

impl Source for Pmu {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        let start = *self.start.get_or_insert(cx.now);
        let mut out = out.of_device();
        for Energy { metric, counters, packages } in &self.energies {
            counters.read(|place, joules| {
                let package = packages.get(place).map_or("", |package| package);
                out.counter(metric, &[("package", package)], joules, start);
            })?;
        }
        Ok(())
    }
}
