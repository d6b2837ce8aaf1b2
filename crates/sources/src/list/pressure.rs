//! Pressure: time in which tasks waited for a processor, memory, a disk or interrupts.
//!
//! Reads `/proc/pressure/{cpu,memory,irq,io}` (Linux 4.20, irq 6.1; Documentation/accounting/psi.rst), see
//! [`kernel::pressure`]:
//!
//! ```text
//! some avg10=0.06 avg60=0.21 avg300=0.99 total=8537362
//! full avg10=0.00 avg60=0.13 avg300=0.96 total=8183134
//! ```
//!
//! `some` is the time in which at least one task waited. `full` is the part of it in which no task could
//! continue. The source does not read `full` of the machine's processors: it is undefined, and the kernel
//! writes 0 (same document). Interrupts have only `full`. A kernel with pressure support that was booted with
//! `psi=0` may show the files and reject reading them; that also counts as absent. Each file is a part of the
//! source with a state of its own.

use crate::reading::file::broken;
use crate::{Context, Every, Open, PartState, Sink, Source, SourceError, SourceSpec};
use kernel::pressure::{Pressure as Stalls, pressure, read_pressure};
use kernel::{OpenFile, ReadError};
use model::{Metric, Timestamp, Unit};

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "pressure",
    help: "Time in which tasks waited for a processor, memory, a disk or interrupts.",
    reads: &[
        "/proc/pressure/cpu",
        "/proc/pressure/memory",
        "/proc/pressure/irq",
        "/proc/pressure/io",
    ],
    cost: "about 3 µs on 2 virtual cores, Linux 6.18, with 3 files",
    every: Every::Tick,
    metrics: &[&CPU_SOME, &MEMORY_SOME, &MEMORY_FULL, &IRQ_FULL, &IO_SOME, &IO_FULL],
    open,
    ..SourceSpec::DEFAULT
};

static CPU_SOME: Metric = micros(
    "pressure_cpu_some_seconds_total",
    "Time in which at least one task waited for a processor.",
);
static MEMORY_SOME: Metric = micros(
    "pressure_memory_some_seconds_total",
    "Time in which at least one task waited for memory.",
);
static MEMORY_FULL: Metric = micros(
    "pressure_memory_full_seconds_total",
    "The part of pressure_memory_some_seconds_total in which no task could continue.",
);
static IRQ_FULL: Metric = micros(
    "pressure_irq_full_seconds_total",
    "Time in which interrupts stalled every task of a processor.",
);
static IO_SOME: Metric =
    micros("pressure_io_some_seconds_total", "Time in which at least one task waited for a disk.");
static IO_FULL: Metric = micros(
    "pressure_io_full_seconds_total",
    "The part of pressure_io_some_seconds_total in which no task could continue.",
);

const fn micros(name: &'static str, help: &'static str) -> Metric {
    Metric::counter(name, Unit::Seconds, help).steps(1_000_000)
}

struct Resource {
    name: &'static str,
    path: &'static str,
    some: Option<&'static Metric>,
    full: Option<&'static Metric>,
    needs: &'static str,
}

static RESOURCES: [Resource; 4] = [
    Resource {
        name: "cpu",
        path: "proc/pressure/cpu",
        some: Some(&CPU_SOME),
        full: None,
        needs: "/proc/pressure/cpu: needs Linux 4.20 with CONFIG_PSI, booted with psi=1",
    },
    Resource {
        name: "memory",
        path: "proc/pressure/memory",
        some: Some(&MEMORY_SOME),
        full: Some(&MEMORY_FULL),
        needs: "/proc/pressure/memory: needs Linux 4.20 with CONFIG_PSI, booted with psi=1",
    },
    Resource {
        name: "irq",
        path: "proc/pressure/irq",
        some: None,
        full: Some(&IRQ_FULL),
        needs: "/proc/pressure/irq: needs Linux 6.1 with CONFIG_PSI and CONFIG_IRQ_TIME_ACCOUNTING",
    },
    Resource {
        name: "io",
        path: "proc/pressure/io",
        some: Some(&IO_SOME),
        full: Some(&IO_FULL),
        needs: "/proc/pressure/io: needs Linux 4.20 with CONFIG_PSI, booted with psi=1",
    },
];

struct Pressure {
    files: Vec<(&'static Resource, Result<OpenFile, SourceError>)>,
    buf: Vec<u8>,
}

fn open(open: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    let file = |resource: &Resource| {
        open.root.open(resource.path).map_err(|error| worded(resource, error))
    };
    let files: Vec<_> = RESOURCES.iter().map(|resource| (resource, file(resource))).collect();
    match files.first() {
        Some((_, Err(error))) if files.iter().all(|(_, file)| file.is_err()) => Err(error.clone()),
        _ => Ok(Box::new(Pressure { files, buf: Vec::new() })),
    }
}

/// Converts an error of a file; an absent one states its requirements.
fn worded(resource: &Resource, error: ReadError) -> SourceError {
    match SourceError::from(error) {
        SourceError::Absent(_) => SourceError::absent(resource.needs),
        other => other,
    }
}

impl Source for Pressure {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        let mut is_any_read = false;
        let mut first_error = None;
        for (resource, file) in &self.files {
            let read = match file {
                Ok(file) => read(resource, file, &mut self.buf),
                Err(error) => Err(error.clone()),
            };
            let state = match read {
                Ok(pressure) => {
                    push(resource, &pressure, cx.boot, out);
                    is_any_read = true;
                    PartState::Ok
                }
                Err(error) => {
                    first_error.get_or_insert_with(|| error.clone());
                    PartState::Not(error)
                }
            };
            out.part(resource.name, state);
        }
        match first_error {
            Some(error) if !is_any_read => Err(error),
            _ => Ok(()),
        }
    }
}

fn read(resource: &Resource, file: &OpenFile, buf: &mut Vec<u8>) -> Result<Stalls, SourceError> {
    read_pressure(file, resource.path, buf).map_err(|error| worded(resource, error))?;
    pressure(buf).map_err(|error| broken(resource.path, error))
}

fn push(resource: &Resource, stalls: &Stalls, boot: Timestamp, out: &mut Sink) {
    for (metric, total_us) in [(resource.some, stalls.some_us), (resource.full, stalls.full_us)] {
        if let (Some(metric), Some(total_us)) = (metric, total_us) {
            out.of_device().counter(metric, &[], total_us as f64 / 1e6, boot);
        }
    }
}
