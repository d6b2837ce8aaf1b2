//! AMD GPUs: use and memory. Their power, temperatures and fans are those of the chip `amdgpu` in source `hwmon`.
//!
//! Reads `/sys/class/drm/cardN/device/` (driver amdgpu; Documentation/gpu/amdgpu/driver-misc.rst,
//! Documentation/gpu/amdgpu/thermal.rst; Linux 4.19 and later):
//!
//! ```text
//! vendor                0x1002
//! gpu_busy_percent      87
//! mem_busy_percent      41
//! mem_info_vram_total   68702699520
//! mem_info_vram_used    10854400
//! mem_info_gtt_total    270369538048
//! mem_info_gtt_used     14290944
//! ```
//!
//! A GPU has the labels `gpu`, its card, and `pci`, its place on the bus, by which `hwmon` names it too. GTT is memory of
//! the machine that the GPU can reach. A file that a model or a driver lacks gives no sample; reading a GPU that
//! sleeps wakes it on some models.

use crate::values::{Values, Walk};
use crate::{Context, Every, Open, Sane, Sink, Source, SourceError, SourceSpec};
use model::{Metric, Unit};
use std::time::Duration;

const DIR: &str = "sys/class/drm";
const AMD: &str = "0x1002";

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "amdgpu",
    help: "AMD GPUs: use and memory.",
    reads: &[
        "/sys/class/drm/card*/device/{vendor,gpu_busy_percent,mem_busy_percent}",
        "/sys/class/drm/card*/device/mem_info_{vram,vis_vram,gtt}_{total,used}",
    ],
    cost: "some microseconds a file",
    every: Every::AtLeast(Duration::from_secs(1)),
    metrics: &[&USE, &MEMORY_USE, &MEMORY_SIZE, &MEMORY_USED, &GTT_SIZE, &GTT_USED],
    sane: &[Sane::of(&USE).within(0.0, 1.0), Sane::of(&MEMORY_USE).within(0.0, 1.0)],
    options: &[],
    open,
};

static USE: Metric = percent(
    "amdgpu_use_ratio",
    "Share of the time in which the GPU's shaders worked, as its firmware sees it.",
);
static MEMORY_USE: Metric = percent(
    "amdgpu_memory_use_ratio",
    "Share of the time in which the GPU's memory was read or written.",
);
static MEMORY_SIZE: Metric = bytes("amdgpu_memory_size_bytes", "Memory of the GPU.");
static MEMORY_USED: Metric =
    bytes("amdgpu_memory_used_bytes", "The part of amdgpu_memory_size_bytes that is in use.");
static GTT_SIZE: Metric =
    bytes("amdgpu_gtt_size_bytes", "Memory of the machine that the GPU can reach.");
static GTT_USED: Metric =
    bytes("amdgpu_gtt_used_bytes", "The part of amdgpu_gtt_size_bytes that is in use.");

const fn percent(name: &'static str, help: &'static str) -> Metric {
    Metric::gauge(name, Unit::Ratio, help).steps(100)
}

const fn bytes(name: &'static str, help: &'static str) -> Metric {
    Metric::gauge(name, Unit::Bytes, help)
}

/// A GPU's file, its metric, and how many of its steps make a unit.
static FILES: [(&str, &Metric, f64); 6] = [
    ("gpu_busy_percent", &USE, 100.0),
    ("mem_busy_percent", &MEMORY_USE, 100.0),
    ("mem_info_vram_total", &MEMORY_SIZE, 1.0),
    ("mem_info_vram_used", &MEMORY_USED, 1.0),
    ("mem_info_gtt_total", &GTT_SIZE, 1.0),
    ("mem_info_gtt_used", &GTT_USED, 1.0),
];

#[derive(Debug, Default)]
struct Amdgpu {
    files: Values,
}

fn open(_: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    Ok(Box::new(Amdgpu::default()))
}

impl Source for Amdgpu {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        let absent = "/sys/class/drm: no GPU of AMD with the driver amdgpu";
        self.files.look(cx.root, cx.now, absent, walk)?;
        let mut of = out.of_device();
        let read = self.files.each(|file, number| file.gauge(&mut of, number));
        read.state("gpus", out)
    }
}

fn walk(walk: &mut Walk<'_, ()>) {
    for card in walk.names(DIR) {
        // `card0-DP-1` is a plug of `card0`.
        let is_card =
            |number: &str| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        if !card.strip_prefix("card").is_some_and(is_card) {
            continue;
        }
        let device = format!("{DIR}/{card}/device");
        if walk.text(&format!("{device}/vendor")).as_deref() != Some(AMD) {
            continue;
        }
        let pci = walk.link(&device).unwrap_or_default();
        let labels = [("gpu", &*card), ("pci", &*pci)];
        let labels = labels.get(..if pci.is_empty() { 1 } else { 2 }).unwrap_or_default();
        for (file, metric, per_unit) in FILES {
            walk.file(&format!("{device}/{file}"), metric, labels, per_unit, ());
        }
    }
}
