//! Disks: requests, bytes and times of each block device.
//!
//! Reads `/proc/diskstats` (any Linux; Documentation/admin-guide/iostats.rst), see [`kernel::diskstats`]:
//!
//! ```text
//! 254       0 vda 98531 22473 9735962 107756 10268 32637 4485304 11541 0 11144 120003 5716 19 399384 671 362 33
//! ```
//!
//! By default the source reads whole disks, with the label `disk`. It leaves out what would count twice or
//! moves only memory: partitions, device mapper, software RAID, loop and RAM disks. The option `include` adds
//! them by name. The times of all requests can exceed elapsed time; `disk_busy_seconds_total` cannot. Times
//! are 32-bit milliseconds and wrap after 50 days of their own time; the part between the last reading and
//! the wrap is lost. A disk that appears after the first reading counts from the previous reading.

use crate::reading::file::{TickFile, broken};
use crate::reading::parts::{Choice, LESSER_DISKS, Roster, exclude, include};
use crate::source::sink::SampleWriter;
use crate::{Context, Every, Open, Sink, Source, SourceError, SourceSpec};
use kernel::diskstats::{Disk, Requests, SECTOR_BYTES, diskstats, is_partition};
use model::{Metric, Timestamp, Unit};

const PATH: &str = "proc/diskstats";
const NOTHING: &str =
    "/proc/diskstats: no block device has a name that the option `include` chooses";

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "disk",
    help: "Requests, bytes and times of each disk.",
    reads: &["/proc/diskstats"],
    cost: "about 6 µs on 2 virtual cores, Linux 6.18, with 1 disk and 9 other block devices; grows with them",
    every: Every::Tick,
    metrics: &[
        &READS.done,
        &READS.merged,
        &READS.bytes,
        &READS.time,
        &WRITES.done,
        &WRITES.merged,
        &WRITES.bytes,
        &WRITES.time,
        &DISCARDS.done,
        &DISCARDS.merged,
        &DISCARDS.bytes,
        &DISCARDS.time,
        &FLUSHES,
        &FLUSH_TIME,
        &IN_FLIGHT,
        &BUSY,
        &WEIGHTED,
    ],
    options: &[
        include(
            "Only these block devices, including partitions: names, or patterns with `*`; empty means every whole disk except those of `exclude`.",
        ),
        exclude(
            LESSER_DISKS,
            "Block devices to leave out if `include` is empty: names, or patterns with `*`.",
        ),
    ],
    open,
    ..SourceSpec::DEFAULT
};

/// The metrics of requests of one kind.
struct Kind {
    done: Metric,
    merged: Metric,
    bytes: Metric,
    time: Metric,
}

static READS: Kind = Kind {
    done: count("disk_reads_total", "Read requests done."),
    merged: count(
        "disk_reads_merged_total",
        "Read requests that were merged into another one and are not in disk_reads_total.",
    ),
    bytes: bytes("disk_read_bytes_total", "Bytes read."),
    time: millis(
        "disk_read_seconds_total",
        "Time that all read requests took, including queueing.",
    ),
};
static WRITES: Kind = Kind {
    done: count("disk_writes_total", "Write requests done."),
    merged: count(
        "disk_writes_merged_total",
        "Write requests that were merged into another one and are not in disk_writes_total.",
    ),
    bytes: bytes("disk_write_bytes_total", "Bytes written."),
    time: millis(
        "disk_write_seconds_total",
        "Time that all write requests took, including queueing.",
    ),
};
static DISCARDS: Kind = Kind {
    done: count("disk_discards_total", "Discard requests done; they return space to the disk."),
    merged: count(
        "disk_discards_merged_total",
        "Discard requests that were merged into another one and are not in disk_discards_total.",
    ),
    bytes: bytes("disk_discard_bytes_total", "Bytes returned to the disk."),
    time: millis(
        "disk_discard_seconds_total",
        "Time that all discard requests took, including queueing.",
    ),
};
static FLUSHES: Metric =
    count("disk_flushes_total", "Requests done that flush the disk's own write cache.");
static FLUSH_TIME: Metric =
    millis("disk_flush_seconds_total", "Time that all flush requests took, including queueing.");
static IN_FLIGHT: Metric =
    Metric::gauge("disk_requests_in_flight", Unit::Count, "Requests in progress.");
static BUSY: Metric =
    millis("disk_busy_seconds_total", "Time with at least one request in flight.");
static WEIGHTED: Metric = millis(
    "disk_queue_seconds_total",
    "Time weighted with the number of requests in flight: its rate is the mean length of the queue.",
);

const fn count(name: &'static str, help: &'static str) -> Metric {
    Metric::counter(name, Unit::Count, help)
}

const fn bytes(name: &'static str, help: &'static str) -> Metric {
    Metric::counter(name, Unit::Bytes, help)
}

const fn millis(name: &'static str, help: &'static str) -> Metric {
    Metric::counter(name, Unit::Seconds, help).steps(1000)
}

struct Disks {
    file: TickFile,
    choice: Choice,
    roster: Roster,
}

fn open(open: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    let file = TickFile::open(open.root, PATH)?;
    Ok(Box::new(Disks { file, choice: Choice::of(open.options), roster: Roster::default() }))
}

impl Source for Disks {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        let mut of = out.of_device();
        let mut whole: &[u8] = b"";
        self.roster.begin(cx.boot);
        for disk in diskstats(self.file.read()?).map_err(|e| broken(PATH, e))? {
            let disk = disk.map_err(|e| broken(PATH, e))?;
            let partition = is_partition(disk.name, whole);
            if !partition {
                whole = disk.name;
            }
            let shown = |name: &str| self.choice.includes(name).unwrap_or(!partition);
            if let Some((label, start)) = self.roster.see(disk.name, cx.boot, shown) {
                push(&disk, label, start, &mut of);
            }
        }
        self.roster.end(cx.now);
        out.part("include", self.choice.state(self.roster.is_any_shown(), NOTHING));
        Ok(())
    }
}

fn push(disk: &Disk<'_>, label: &str, start: Timestamp, out: &mut SampleWriter<'_>) {
    let labels = [("disk", label)];
    let kinds =
        [(&READS, Some(disk.reads)), (&WRITES, Some(disk.writes)), (&DISCARDS, disk.discards)];
    for (kind, requests) in kinds {
        let Some(Requests { done, merged, sectors, ms }) = requests else { continue };
        let bytes = sectors.saturating_mul(SECTOR_BYTES);
        out.counter(&kind.done, &labels, done as f64, start);
        out.counter(&kind.merged, &labels, merged as f64, start);
        out.counter(&kind.bytes, &labels, bytes as f64, start);
        out.counter(&kind.time, &labels, ms as f64 / 1000.0, start);
    }
    if let Some(flushes) = disk.flushes {
        out.counter(&FLUSHES, &labels, flushes.done as f64, start);
        out.counter(&FLUSH_TIME, &labels, flushes.ms as f64 / 1000.0, start);
    }
    out.gauge(&IN_FLIGHT, &labels, disk.in_flight as f64);
    out.counter(&BUSY, &labels, disk.busy_ms as f64 / 1000.0, start);
    out.counter(&WEIGHTED, &labels, disk.weighted_ms as f64 / 1000.0, start);
}
