//! Traffic between the caches and memory, and cache occupancy, from the processor's monitoring
//! (Intel RDT, AMD QoS).
//!
//! Reads `/sys/fs/resctrl/[GROUP/]mon_data/mon_L3_NN/` (Linux 4.14; Documentation/arch/x86/resctrl.rst):
//!
//! ```text
//! mon_data/mon_L3_00/llc_occupancy       16234000       bytes
//! mon_data/mon_L3_00/mbm_total_bytes     121330765824   bytes since the group was created
//! mon_data/mon_L3_00/mbm_local_bytes     118223044608   the part from and to memory of the same socket
//! batch/mon_data/mon_L3_00/…             another group
//! ```
//!
//! Needs a processor with monitoring, and the mounted file system: `mount -t resctrl resctrl
//! /sys/fs/resctrl`. The administrator decides about the mount. Without further groups, all tasks are in the
//! group `default`; each task is in one group only, so groups can be added up. The metrics count since the
//! first reading. The kernel handles wraps; a counter that falls restarts.

use crate::reading::values::{Values, Walk};
use crate::reading::wrapping::Wrapping;
use crate::{Context, Every, Open, Sink, Source, SourceError, SourceSpec};
use kernel::parse::signed;
use model::{Metric, Unit};

const DIR: &str = "sys/fs/resctrl";
/// Upper bound of a socket's bytes per second: 100 times the fastest memory.
const BYTES_MAX: u64 = 100_000_000_000_000;

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "resctrl",
    help: "Traffic between caches and memory, and cache occupancy, from the processor's monitoring.",
    reads: &["/sys/fs/resctrl/*/mon_data/mon_L3_*/{llc_occupancy,mbm_total_bytes,mbm_local_bytes}"],
    cost: "some microseconds a file, because the kernel queries a processor of that cache",
    every: Every::Tick,
    metrics: &[&TOTAL, &LOCAL, &CACHE],
    open,
    ..SourceSpec::DEFAULT
};

static TOTAL: Metric = Metric::counter(
    "resctrl_memory_bytes_total",
    Unit::Bytes,
    "Bytes moved between a last-level cache and memory of any socket.",
);
static LOCAL: Metric = Metric::counter(
    "resctrl_memory_local_bytes_total",
    Unit::Bytes,
    "The part of resctrl_memory_bytes_total from and to memory of the same socket.",
);
static CACHE: Metric = Metric::gauge(
    "resctrl_cache_bytes",
    Unit::Bytes,
    "Bytes of a last-level cache occupied by a group.",
);

static FILES: [(&str, &Metric); 3] =
    [("mbm_total_bytes", &TOTAL), ("mbm_local_bytes", &LOCAL), ("llc_occupancy", &CACHE)];

#[derive(Debug, Default)]
struct Resctrl {
    files: Values<Option<Wrapping>>,
}

fn open(_: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    Ok(Box::new(Resctrl::default()))
}

impl Source for Resctrl {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        let absent = "/sys/fs/resctrl: no monitoring; needs a processor with RDT or QoS monitoring, and the mounted file system";
        self.files.look(cx.root, cx.now, absent, walk)?;
        let mut of = out.of_device();
        let read = self.files.each_text(|file, text| {
            let text = text.trim_ascii();
            // The hardware has no value now, or no counter for the group: resctrl.rst.
            if matches!(text, b"Unavailable" | b"Unassigned") {
                return Ok(());
            }
            let number = signed(text).ok_or_else(|| file.broken("it is not a number"))?;
            if file.is(&CACHE) {
                file.gauge(&mut of, number);
                return Ok(());
            }
            let Ok(bytes) = u64::try_from(number) else { return Ok(()) };
            let counted = file.kept.get_or_insert(Wrapping::new(cx.now, bytes));
            let (total, start) = counted.add(cx.now, bytes, u64::MAX, BYTES_MAX);
            let lost = counted.lost();
            file.lost(&mut of, lost);
            file.counter(&mut of, total, start);
            Ok(())
        });
        read.state("groups", out)
    }
}

/// The files of the default group and of every other control group; monitoring groups are parts of these.
fn walk(walk: &mut Walk<'_, Option<Wrapping>>) {
    for entry in [String::new()].into_iter().chain(walk.names(DIR)) {
        // Files, and the folders of the default group itself, have no `mon_data`.
        let dir = match &*entry {
            "" => format!("{DIR}/mon_data"),
            group => format!("{DIR}/{group}/mon_data"),
        };
        let group = if entry.is_empty() { "default" } else { &*entry };
        for domain in walk.names(&dir) {
            let Some(cache) = domain.strip_prefix("mon_L3_") else { continue };
            for (file, metric) in FILES {
                let labels = [("group", group), ("cache", cache)];
                walk.file(&format!("{dir}/{domain}/{file}"), metric, &labels, 1.0, None);
            }
        }
    }
}
