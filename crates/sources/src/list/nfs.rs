//! The NFS client: bytes, requests and their times of each mount.
//!
//! Reads `/proc/self/mountstats` (Linux 2.6.17; proc_pid_mountstats(5)) and `/proc/net/rpc/nfs` (any Linux with an NFS
//! client), see [`kernel::nfs`]:
//!
//! ```text
//! device nfs1:/home mounted on /home with fstype nfs4 statvers=1.1
//!         bytes:  4096 8192 0 0 4096 8192 1 2
//!         per-op statistics
//!                 READ: 9 10 0 1548 4096 12 340 371 0
//! ```
//!
//! A mount has the labels `mount` and `export`. Of several mounts of one export the source reads the first,
//! as they share their counters. The kernel keeps these in memory: no request goes to a server, so an
//! unresponsive one blocks nothing. Bytes read by programs (`nfs_read_bytes_total`) and bytes read from the
//! server differ by the page cache. The option `operations` adds each operation of each mount. The client's
//! counters over all mounts have 32 bits; their metrics count since the first reading. A mount that appears
//! later counts from the previous reading.

use crate::reading::file::{TickFile, broken};
use crate::reading::parts::{Choice, Roster, exclude, include};
use crate::reading::wrapping::Sum;
use crate::{Context, Every, Open, PartState, SampleWriter, Sink, Source, SourceError, SourceSpec};
use kernel::mounts::unescape;
use kernel::nfs::{MountStat, Operation, mountstats, rpc};
use model::setting::{Kind, OptionSpec};
use model::{Metric, Timestamp, Unit};
use std::borrow::Cow;

const PATH: &str = "proc/self/mountstats";
const RPC: &str = "proc/net/rpc/nfs";
/// Range at which the client's counters wrap.
const ROUND: u64 = 1 << 32;

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "nfs",
    help: "Bytes, requests and times of each NFS mount.",
    reads: &["/proc/self/mountstats", "/proc/net/rpc/nfs"],
    cost: "two files; grows with the mounts, by some 80 lines each",
    every: Every::Tick,
    metrics: &[
        &BYTES[0],
        &BYTES[1],
        &BYTES[2],
        &BYTES[3],
        &BYTES[4],
        &BYTES[5],
        &REQUESTS[0],
        &REQUESTS[1],
        &REQUESTS[2],
        &REQUESTS[3],
        &REQUESTS[4],
        &REQUESTS[5],
        &REQUESTS[6],
        &REQUESTS[7],
        &REQUESTS[8],
        &OPERATIONS,
        &OPERATION_TIME,
        &CLIENT[0],
        &CLIENT[1],
        &CLIENT[2],
    ],
    options: &[
        include(
            "Only these mount points: paths, or patterns with `*`; empty means all except those of `exclude`.",
        ),
        exclude(
            "",
            "Mount points to leave out if `include` is empty: paths, or patterns with `*`.",
        ),
        OptionSpec {
            name: "operations",
            kind: Kind::Switch,
            default: "false",
            help: "Also each single operation: some 140 more series per mount.",
        },
    ],
    open,
    ..SourceSpec::DEFAULT
};

/// In the order of [`kernel::nfs::Bytes`].
static BYTES: [Metric; 6] = [
    bytes("nfs_read_bytes_total", "Bytes that programs read, excluding direct reads."),
    bytes("nfs_written_bytes_total", "Bytes that programs wrote, excluding direct writes."),
    bytes(
        "nfs_direct_read_bytes_total",
        "Bytes that programs read directly, bypassing the page cache.",
    ),
    bytes(
        "nfs_direct_written_bytes_total",
        "Bytes that programs wrote directly, bypassing the page cache.",
    ),
    bytes("nfs_server_read_bytes_total", "Bytes of files read from the server."),
    bytes("nfs_server_written_bytes_total", "Bytes of files written to the server."),
];

/// In the order of [`Totals::columns`].
static REQUESTS: [Metric; 9] = [
    count("nfs_requests_total", "Requests to the server that were answered."),
    count("nfs_retransmits_total", "Retransmissions of requests."),
    count("nfs_timeouts_total", "Requests that timed out."),
    bytes("nfs_sent_bytes_total", "Bytes sent to the server, including protocol headers."),
    bytes(
        "nfs_received_bytes_total",
        "Bytes received from the server, including protocol headers.",
    ),
    millis("nfs_queue_seconds_total", "Time that requests waited to be sent."),
    millis("nfs_response_seconds_total", "Time that requests waited for their answers."),
    millis("nfs_request_seconds_total", "Total time of requests."),
    count("nfs_errors_total", "Requests that failed."),
];

static OPERATIONS: Metric =
    count("nfs_operation_requests_total", "The part of nfs_requests_total of one operation.");
static OPERATION_TIME: Metric = millis(
    "nfs_operation_seconds_total",
    "The part of nfs_request_seconds_total of one operation.",
);

static CLIENT: [Metric; 3] = [
    count("nfs_client_requests_total", "Requests of all mounts, since the first reading."),
    count(
        "nfs_client_retransmits_total",
        "Retransmissions of all mounts, since the first reading.",
    ),
    count(
        "nfs_client_refreshes_total",
        "Credential refreshes of all mounts, since the first reading.",
    ),
];

const fn bytes(name: &'static str, help: &'static str) -> Metric {
    Metric::counter(name, Unit::Bytes, help)
}

const fn count(name: &'static str, help: &'static str) -> Metric {
    Metric::counter(name, Unit::Count, help)
}

const fn millis(name: &'static str, help: &'static str) -> Metric {
    Metric::counter(name, Unit::Seconds, help).steps(1000)
}

struct Nfs {
    file: TickFile,
    rpc: Result<TickFile, SourceError>,
    choice: Choice,
    one_by_one: bool,
    roster: Roster,
    /// The exports seen in this reading, each followed by a line feed, which no export contains.
    exports: Vec<u8>,
    client: [(Sum, Option<u64>); 3],
}

fn open(open: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    let rpc = TickFile::open(open.root, RPC);
    if let Err(SourceError::Absent(_)) = rpc {
        return Err(SourceError::absent("/proc/net/rpc/nfs: no NFS client is loaded"));
    }
    Ok(Box::new(Nfs {
        file: TickFile::open(open.root, PATH)?,
        rpc,
        choice: Choice::of(open.options),
        one_by_one: open.options.switch("operations"),
        roster: Roster::default(),
        exports: Vec::new(),
        client: Default::default(),
    }))
}

impl Source for Nfs {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        let state = match self.push_client(cx.now, &mut out.of_device()) {
            Ok(()) => PartState::Ok,
            Err(error) => PartState::Not(error),
        };
        out.part("client", state);
        let Self { file, choice, one_by_one, roster, exports, .. } = self;
        exports.clear();
        roster.begin(cx.boot);
        let mut of = out.of_device();
        let mut output = Output { roster, choice, boot: cx.boot, of: &mut of };
        let mut mount = Mount::default();
        mountstats(file.read()?, |stat| match stat {
            MountStat::Mount { export, path } => {
                mount.push(&mut output);
                let known = exports.split(|byte| *byte == b'\n').any(|known| known == export);
                exports.extend_from_slice(export);
                exports.push(b'\n');
                mount = if known { Mount::default() } else { Mount::new(export, path) };
            }
            MountStat::Bytes(bytes) => mount.bytes = Some(bytes),
            MountStat::Operation { name, numbers } => {
                mount.totals.get_or_insert_default().add(&numbers);
                if *one_by_one {
                    mount.push_operation(name, &numbers, &mut output);
                }
            }
        })
        .map_err(|e| broken(PATH, e))?;
        mount.push(&mut output);
        roster.end(cx.now);
        Ok(())
    }
}

impl Nfs {
    fn push_client(
        &mut self,
        now: Timestamp,
        of: &mut SampleWriter<'_>,
    ) -> Result<(), SourceError> {
        let file = self.rpc.as_mut().map_err(|error| error.clone())?;
        let client = rpc(file.read()?).map_err(|e| broken(RPC, e))?;
        let values = [client.calls, client.retransmits, client.refreshes];
        for ((metric, (sum, last)), value) in CLIENT.iter().zip(&mut self.client).zip(values) {
            sum.add(last, value, Some(ROUND));
            let (total, start) = sum.total(now);
            of.counter(metric, &[], total as f64, start);
        }
        Ok(())
    }
}

/// A mount during a reading; the path is empty before the first mount and for an export read before.
#[derive(Default)]
struct Mount<'a> {
    export: Cow<'a, str>,
    path: &'a [u8],
    bytes: Option<kernel::nfs::Bytes>,
    totals: Option<Totals>,
}

/// Destination and selection of a mount's values.
struct Output<'a, 'b> {
    roster: &'a mut Roster,
    choice: &'a Choice,
    boot: Timestamp,
    of: &'a mut SampleWriter<'b>,
}

impl Output<'_, '_> {
    /// Calls `push` with the labels of a mount and its start, if the mount is selected.
    fn with(
        &mut self,
        mount: &Mount<'_>,
        push: impl FnOnce(&mut SampleWriter<'_>, [(&str, &str); 2], Timestamp),
    ) {
        if mount.path.is_empty() {
            return;
        }
        let shown = |path: &str| self.choice.includes(path).unwrap_or(true);
        let label = |path: &[u8]| String::from_utf8_lossy(&unescape(path)).into_owned();
        let seen = self.roster.see_as(mount.path, self.boot, shown, label);
        if let Some((path, start)) = seen {
            push(self.of, [("mount", path), ("export", &mount.export)], start);
        }
    }
}

#[derive(Default)]
struct Totals {
    sum: Operation,
    retransmits: u64,
}

impl Totals {
    fn add(&mut self, one: &Operation) {
        let sum = &mut self.sum;
        for (total, part) in [
            (&mut sum.requests, one.requests),
            // The kernel counts both when the answer arrives.
            (&mut self.retransmits, one.sent.saturating_sub(one.requests)),
            (&mut sum.timeouts, one.timeouts),
            (&mut sum.sent_bytes, one.sent_bytes),
            (&mut sum.received_bytes, one.received_bytes),
            (&mut sum.queue_ms, one.queue_ms),
            (&mut sum.response_ms, one.response_ms),
            (&mut sum.total_ms, one.total_ms),
        ] {
            *total = total.saturating_add(part);
        }
        if let Some(errors) = one.errors {
            sum.errors = Some(sum.errors.unwrap_or(0).saturating_add(errors));
        }
    }

    fn columns(&self) -> [Option<u64>; 9] {
        let Operation { requests, timeouts, sent_bytes, received_bytes, .. } = self.sum;
        let Operation { queue_ms, response_ms, total_ms, errors, .. } = self.sum;
        [
            Some(requests),
            Some(self.retransmits),
            Some(timeouts),
            Some(sent_bytes),
            Some(received_bytes),
            Some(queue_ms),
            Some(response_ms),
            Some(total_ms),
            errors,
        ]
    }
}

impl<'a> Mount<'a> {
    fn new(export: &'a [u8], path: &'a [u8]) -> Self {
        Self { export: String::from_utf8_lossy(export), path, bytes: None, totals: None }
    }

    fn push(&self, output: &mut Output<'_, '_>) {
        output.with(self, |of, labels, start| {
            if let Some(bytes) = &self.bytes {
                let columns = [
                    bytes.read,
                    bytes.written,
                    bytes.direct_read,
                    bytes.direct_written,
                    bytes.server_read,
                    bytes.server_written,
                ];
                for (metric, value) in BYTES.iter().zip(columns) {
                    of.counter(metric, &labels, value as f64, start);
                }
            }
            let Some(totals) = &self.totals else { return };
            for (metric, value) in REQUESTS.iter().zip(totals.columns()) {
                if let Some(value) = value {
                    of.counter(metric, &labels, value as f64 / f64::from(metric.divisor), start);
                }
            }
        });
    }

    fn push_operation(&self, name: &[u8], numbers: &Operation, output: &mut Output<'_, '_>) {
        output.with(self, |of, [mount, export], start| {
            let name = String::from_utf8_lossy(name);
            let labels = [mount, export, ("operation", &*name)];
            of.counter(&OPERATIONS, &labels, numbers.requests as f64, start);
            of.counter(&OPERATION_TIME, &labels, numbers.total_ms as f64 / 1e3, start);
        });
    }
}
