//! Memory errors that the memory controllers found: corrected ones, which announce a failing module, and
//! uncorrected ones.
//!
//! Reads `/sys/devices/system/edac/mc/mcN/` (Linux 2.6.16, `dimmM` 3.6; Documentation/driver-api/edac.rst,
//! Documentation/admin-guide/RAS/main.rst):
//!
//! ```text
//! mc0/ce_count                17           all corrected errors
//! mc0/ue_count                0            uncorrected errors
//! mc0/ce_noinfo_count         2            the part of ce_count without a known module
//! mc0/dimm3/dimm_label        CPU_SrcID#0_MC#0_Chan#1_DIMM#0
//! mc0/dimm3/dimm_ce_count     15
//! ```
//!
//! A controller has the label `controller`. A module also has `dimm` (its directory) and `label` (the board's
//! name of its slot). Kernels and drivers without `dimmM` count by `csrowM`, a row of chips, under the same
//! metrics. Writing to `reset_counters` or reloading the driver resets the counters to 0.

use crate::reading::values::{Values, Walk};
use crate::{Context, Every, Open, Sink, Source, SourceError, SourceSpec};
use model::{Metric, Unit};

const DIR: &str = "sys/devices/system/edac/mc";

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "edac",
    help: "Memory errors, corrected and uncorrected, by controller and module.",
    reads: &[
        "/sys/devices/system/edac/mc/mc*/{ce,ue,ce_noinfo,ue_noinfo}_count",
        "/sys/devices/system/edac/mc/mc*/{dimm,rank}*/dimm_{label,ce_count,ue_count}",
        "/sys/devices/system/edac/mc/mc*/csrow*/{ce_count,ue_count}",
    ],
    cost: "about 2 µs a file: 4 a controller and 2 a module",
    every: Every::Tick,
    metrics: &[
        &CORRECTED,
        &UNCORRECTED,
        &CORRECTED_UNPLACED,
        &UNCORRECTED_UNPLACED,
        &DIMM_CORRECTED,
        &DIMM_UNCORRECTED,
    ],
    open,
    ..SourceSpec::DEFAULT
};

static CORRECTED: Metric =
    count("edac_corrected_errors_total", "Memory errors of a controller that were corrected.");
static UNCORRECTED: Metric = count(
    "edac_uncorrected_errors_total",
    "Memory errors of a controller that could not be corrected.",
);
static CORRECTED_UNPLACED: Metric = count(
    "edac_corrected_errors_unplaced_total",
    "The part of edac_corrected_errors_total without a known module.",
);
static UNCORRECTED_UNPLACED: Metric = count(
    "edac_uncorrected_errors_unplaced_total",
    "The part of edac_uncorrected_errors_total without a known module.",
);
static DIMM_CORRECTED: Metric = count(
    "edac_dimm_corrected_errors_total",
    "The part of edac_corrected_errors_total of one module, or row of chips.",
);
static DIMM_UNCORRECTED: Metric = count(
    "edac_dimm_uncorrected_errors_total",
    "The part of edac_uncorrected_errors_total of one module, or row of chips.",
);

const fn count(name: &'static str, help: &'static str) -> Metric {
    Metric::counter(name, Unit::Count, help)
}

static OF_CONTROLLER: [(&str, &Metric); 4] = [
    ("ce_count", &CORRECTED),
    ("ue_count", &UNCORRECTED),
    ("ce_noinfo_count", &CORRECTED_UNPLACED),
    ("ue_noinfo_count", &UNCORRECTED_UNPLACED),
];

#[derive(Debug, Default)]
struct Edac {
    counts: Values,
}

fn open(_: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    Ok(Box::new(Edac::default()))
}

impl Source for Edac {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        let absent = "/sys/devices/system/edac/mc: no memory controller; needs ECC memory and the driver of its controller";
        self.counts.look(cx.root, cx.now, absent, walk)?;
        let mut of = out.of_device();
        let read = self.counts.each(|file, number| {
            if let Ok(errors) = u64::try_from(number) {
                file.counter(&mut of, errors, cx.boot);
            }
        });
        read.state("counts", out)
    }
}

fn walk(walk: &mut Walk<'_, ()>) {
    for controller in walk.names(DIR) {
        // `power` and `subsystem` are in the same directory.
        if !controller.starts_with("mc") {
            continue;
        }
        let dir = format!("{DIR}/{controller}");
        for (file, metric) in OF_CONTROLLER {
            walk.file(&format!("{dir}/{file}"), metric, &[("controller", &controller)], 1.0, ());
        }
        let parts = walk.names(&dir);
        let modules = |part: &String| part.starts_with("dimm") || part.starts_with("rank");
        for part in parts.iter().filter(|part| modules(part)) {
            let label = walk.text(&format!("{dir}/{part}/dimm_label")).unwrap_or_default();
            let labels = [("controller", &*controller), ("dimm", part), ("label", &label)];
            let labels = labels.get(..if label.is_empty() { 2 } else { 3 }).unwrap_or_default();
            walk.file(&format!("{dir}/{part}/dimm_ce_count"), &DIMM_CORRECTED, labels, 1.0, ());
            walk.file(&format!("{dir}/{part}/dimm_ue_count"), &DIMM_UNCORRECTED, labels, 1.0, ());
        }
        if parts.iter().any(modules) {
            continue;
        }
        for row in parts.iter().filter(|part| part.starts_with("csrow")) {
            let labels = [("controller", &*controller), ("dimm", row)];
            walk.file(&format!("{dir}/{row}/ce_count"), &DIMM_CORRECTED, &labels, 1.0, ());
            walk.file(&format!("{dir}/{row}/ue_count"), &DIMM_UNCORRECTED, &labels, 1.0, ());
        }
    }
}
