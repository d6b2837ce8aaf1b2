//! Sockets: their number, their memory, and the states of TCP sockets.
//!
//! Reads `/proc/net/{sockstat,sockstat6}` (any Linux; proc_pid_net(5)) and `/proc/net/{tcp,tcp6}`
//! (Documentation/networking/proc_net_tcp.rst), see [`kernel::sockets`]:
//!
//! ```text
//! sockets: used 46
//! TCP: inuse 7 orphan 0 tw 30 alloc 7 mem 251
//! ```
//!
//! The kernel walks its whole table of TCP sockets for the states, so the source does not read them at every tick,
//! and not at all beyond `states_max` sockets (`sockstat` has their number at no such cost); it reports how often
//! this happened. On a live machine it asks by `sock_diag`, which walks the table once: 0.5 ms for a table of 262 144
//! entries with 270 sockets, for which the two files take 10 ms. Without `sock_diag`, and on a recorded machine, it reads the files.
//! All sockets are those of the agent's own network namespace.

use crate::reading::file::{TickFile, broken};
use crate::{Context, Every, Open, PartState, SampleWriter, Sink, Source, SourceError, SourceSpec};
use kernel::OpenFile;
use kernel::sockets::{STATES, TcpStates, TcpStatesQuery, page_bytes, sockstat};
use model::setting::{Kind, OptionSpec};
use model::{Metric, Timestamp, Unit};
use std::time::Duration;

const V4: &str = "proc/net/sockstat";
const V6: &str = "proc/net/sockstat6";
const TCP: [&str; 2] = ["proc/net/tcp", "proc/net/tcp6"];
/// Bytes of such a file read at a time: some dozen lines.
const PART_BYTES: usize = 8 << 10;

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "sockets",
    help: "Number and memory of sockets, and the states of TCP sockets.",
    reads: &["/proc/net/{sockstat,sockstat6}", "netlink SOCK_DIAG or /proc/net/{tcp,tcp6}"],
    cost: "about 0.5 ms on 2 virtual cores, Linux 6.18, every 30 s, all but 5 µs of it for `states`; more with thousands of sockets",
    every: Every::AtLeast(Duration::from_secs(30)),
    metrics: &[
        &USED,
        &ROWS[0].metric,
        &ROWS[1].metric,
        &ROWS[2].metric,
        &ROWS[3].metric,
        &ROWS[4].metric,
        &ROWS[5].metric,
        &ROWS[6].metric,
        &ROWS[7].metric,
        &ROWS[8].metric,
        &ROWS[9].metric,
        &ROWS[10].metric,
        &ROWS[11].metric,
        &STATE,
        &UNCOUNTED,
    ],
    options: &[
        OptionSpec {
            name: "states",
            kind: Kind::Switch,
            default: "true",
            help: "Also the states of TCP sockets.",
        },
        OptionSpec {
            name: "states_max",
            kind: Kind::Number { min: 0, max: 10_000_000 },
            default: "20000",
            help: "Maximum number of TCP sockets; beyond it, states are not counted.",
        },
    ],
    open,
    ..SourceSpec::DEFAULT
};

static USED: Metric = Metric::gauge("sockets_used", Unit::Count, "Sockets of every kind.");
static STATE: Metric = Metric::gauge(
    "sockets_tcp_in_state",
    Unit::Count,
    "TCP sockets in a state, over IPv4 and IPv6.",
);

static UNCOUNTED: Metric = Metric::counter(
    "sockets_tcp_uncounted_states_total",
    Unit::Count,
    "Readings that did not count the states of TCP sockets, because there were more than `states_max`.",
);

/// A number of `sockstat`: its position, and its metric.
struct Row {
    /// In one of the two files, or in both, which are then summed.
    protocols: [&'static [u8]; 2],
    name: &'static [u8],
    amount: Amount,
    metric: Metric,
}

/// Unit of a number.
#[derive(Clone, Copy, PartialEq)]
enum Amount {
    Count,
    Pages,
    Bytes,
}

static ROWS: [Row; 12] = [
    count(
        [b"TCP", b"TCP6"],
        b"inuse",
        "sockets_tcp",
        "TCP sockets in use, excluding those in TIME_WAIT.",
    ),
    count([b"TCP", b""], b"orphan", "sockets_tcp_orphans", "TCP sockets without a process."),
    count([b"TCP", b""], b"tw", "sockets_tcp_time_wait", "TCP sockets in TIME_WAIT."),
    count(
        [b"TCP", b""],
        b"alloc",
        "sockets_tcp_allocated",
        "TCP sockets with allocated memory, in use or not.",
    ),
    memory(b"TCP", "sockets_tcp_memory_bytes", "Memory of TCP's queues."),
    count([b"UDP", b"UDP6"], b"inuse", "sockets_udp", "UDP sockets in use."),
    memory(b"UDP", "sockets_udp_memory_bytes", "Memory of UDP's queues."),
    count([b"UDPLITE", b"UDPLITE6"], b"inuse", "sockets_udplite", "UDP-Lite sockets in use."),
    count([b"RAW", b"RAW6"], b"inuse", "sockets_raw", "Raw sockets in use."),
    count(
        [b"FRAG", b""],
        b"inuse",
        "sockets_fragments",
        "Incomplete IPv4 packets, waiting for fragments.",
    ),
    count(
        [b"FRAG6", b""],
        b"inuse",
        "sockets_fragments6",
        "Incomplete IPv6 packets, waiting for fragments.",
    ),
    Row {
        protocols: [b"FRAG", b"FRAG6"],
        name: b"memory",
        amount: Amount::Bytes,
        metric: Metric::gauge(
            "sockets_fragments_memory_bytes",
            Unit::Bytes,
            "Memory of incomplete packets, waiting for fragments.",
        ),
    },
];

const fn count(
    protocols: [&'static [u8]; 2],
    name: &'static [u8],
    metric: &'static str,
    help: &'static str,
) -> Row {
    Row { protocols, name, amount: Amount::Count, metric: Metric::gauge(metric, Unit::Count, help) }
}

const fn memory(protocol: &'static [u8], metric: &'static str, help: &'static str) -> Row {
    let metric = Metric::gauge(metric, Unit::Bytes, help);
    Row { protocols: [protocol, b""], name: b"mem", amount: Amount::Pages, metric }
}

struct Sockets {
    files: Vec<TickFile>,
    page_bytes: u64,
    states: Result<Vec<OpenFile>, SourceError>,
    states_max: u64,
    /// `None` on a recorded machine.
    query: Option<TcpStatesQuery>,
    /// Readings without states because of the limit, and the start of this count.
    uncounted: (u64, Option<Timestamp>),
}

fn open(open: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    let mut files = vec![TickFile::open(open.root, V4)?];
    // A kernel without IPv6 lacks this file.
    files.extend(TickFile::open(open.root, V6).ok());
    let states = match open.options.switch("states") {
        true => states_of(open),
        false => Ok(Vec::new()),
    };
    Ok(Box::new(Sockets {
        files,
        page_bytes: page_bytes(open.root),
        states,
        states_max: open.options.number("states_max"),
        query: open.root.is_live().then(TcpStatesQuery::default),
        uncounted: (0, None),
    }))
}

fn states_of(open: &Open<'_>) -> Result<Vec<OpenFile>, SourceError> {
    let mut files = Vec::new();
    for path in TCP {
        match open.root.open(path) {
            Ok(file) => files.push(file),
            Err(error) if error.is_absent() && !files.is_empty() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(files)
}

fn states_in(files: &[OpenFile]) -> Result<TcpStates, SourceError> {
    let (mut states, mut part) = (TcpStates::default(), [0; PART_BYTES]);
    for (file, path) in files.iter().zip(TCP) {
        file.read_in_parts(&mut part, |part| states.add(part)).map_err(|e| broken(path, e))?;
    }
    Ok(states)
}

impl Source for Sockets {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        let mut totals = [None; ROWS.len()];
        let mut of = out.of_device();
        for (file, path) in self.files.iter_mut().zip([V4, V6]) {
            let take = |protocol: &[u8], name: &[u8], number: u64| {
                take(protocol, name, number, &mut totals, &mut of);
            };
            sockstat(file.read_single()?, take).map_err(|e| broken(path, e))?;
        }
        for (row, total) in ROWS.iter().zip(totals) {
            let Some(total) = total else { continue };
            let unit = if row.amount == Amount::Pages { self.page_bytes } else { 1 };
            of.gauge(&row.metric, &[], total.saturating_mul(unit) as f64);
        }
        let tcp = |name: &[u8]| {
            let place = ROWS.iter().position(|row| row.name == name);
            place.and_then(|place| totals.get(place).copied().flatten()).unwrap_or(0)
        };
        let sockets = tcp(b"inuse").saturating_add(tcp(b"tw"));
        let state = match self.push_states(sockets, cx.now, &mut of) {
            Ok(()) => PartState::Ok,
            Err(error) => PartState::Not(error),
        };
        out.part("states", state);
        Ok(())
    }
}

/// Adds a number of `sockstat` to its row.
fn take(
    protocol: &[u8],
    name: &[u8],
    number: u64,
    totals: &mut [Option<u64>; ROWS.len()],
    of: &mut SampleWriter<'_>,
) {
    if protocol == b"sockets" && name == b"used" {
        of.gauge(&USED, &[], number as f64);
    }
    let is_it = |row: &Row| row.name == name && row.protocols.contains(&protocol);
    let total = ROWS.iter().position(is_it).and_then(|place| totals.get_mut(place));
    if let Some(total) = total {
        *total = Some(total.unwrap_or(0).saturating_add(number));
    }
}

impl Sockets {
    fn push_states(
        &mut self,
        sockets: u64,
        now: Timestamp,
        of: &mut SampleWriter<'_>,
    ) -> Result<(), SourceError> {
        let files = self.states.as_ref().map_err(Clone::clone)?;
        if files.is_empty() {
            return Ok(());
        }
        let is_too_much = sockets > self.states_max;
        let (count, start) = &mut self.uncounted;
        *count += u64::from(is_too_much);
        of.counter(&UNCOUNTED, &[], *count as f64, *start.get_or_insert(now));
        if is_too_much {
            return Ok(());
        }
        let states = match self.query.as_mut().map(TcpStatesQuery::states) {
            Some(Ok(states)) => states,
            // A kernel without the module `tcp_diag`, or a recorded machine.
            Some(Err(_)) | None => states_in(files)?,
        };
        for (state, count) in STATES.iter().zip(states.counts) {
            of.gauge(&STATE, &[("state", state)], count as f64);
        }
        match states.others {
            0 => Ok(()),
            _ => Err(broken("proc/net/tcp", "unknown state")),
        }
    }
}
