//! Network: bytes, packets and errors of each interface.
//!
//! Reads `/proc/net/dev` (any Linux; proc_pid_net(5), Documentation/networking/statistics.rst), see
//! [`kernel::net_dev`]:
//!
//! ```text
//!   eth0: 208452484   11191    0    0    0     0          0         0   716302    6404    0    0    0     0       0          0
//! ```
//!
//! By default the source reads interfaces with hardware of their own, with the label `interface`: bridges,
//! bonds, VLANs and the ends of containers would count the same bytes again. An interface with hardware has a
//! `device` under `/sys/class/net/NAME`; if `/sys/class/net` is not readable, the source reads all except
//! `lo`. It reads the agent's own network namespace. A driver with 32-bit counters wraps after 4 GiB; bytes
//! between the last reading and the wrap are lost. An interface that appears after the first reading counts
//! from the previous reading. InfiniBand traffic bypasses these counters.
//!
//! Jobs with a network namespace of their own also have byte counts: see `network/jobs.rs`.

mod jobs;

use crate::reading::file::{TickFile, broken};
use crate::reading::parts::{InterfaceChoice, Roster};
use crate::source::sink::SampleWriter;
use crate::task_attribution::DRAIN_EVERY;
use crate::{Context, Every, IdleQueues, Open, Sink, Source, SourceError, SourceSpec};
use jobs::OfJobs;
use kernel::net_dev::{Interface, net_dev};
use model::{JobKey, Metric, Timestamp, Unit};
use std::time::Duration;

const PATH: &str = "proc/net/dev";
const NOTHING: &str = "/proc/net/dev: no interface has a name that the option `include` chooses";
/// Maximum time without a drain while no job arrives.
const NO_DRAIN: Duration = Duration::from_hours(1);
/// Exists in every network namespace in which `/sys/class/net` is readable.
const LOOPBACK: &str = "sys/class/net/lo/uevent";

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "network",
    help: "Bytes, packets and errors of each network interface.",
    reads: &[
        "/proc/net/dev",
        "/sys/class/net/*/device/uevent",
        "/proc/PID/ns/net and /proc/PID/net/dev of jobs",
    ],
    cost: "about 4 µs on 2 virtual cores, Linux 6.18, with 1 interface and 3 virtual ones; grows with them",
    every: Every::Tick,
    metrics: &[
        &RECEIVED[0],
        &RECEIVED[1],
        &RECEIVED[2],
        &RECEIVED[3],
        &RECEIVED[4],
        &RECEIVED[5],
        &RECEIVED[6],
        &RECEIVED[7],
        &TRANSMITTED[0],
        &TRANSMITTED[1],
        &TRANSMITTED[2],
        &TRANSMITTED[3],
        &TRANSMITTED[4],
        &TRANSMITTED[5],
        &TRANSMITTED[6],
        &TRANSMITTED[7],
        &jobs::RECEIVED,
        &jobs::TRANSMITTED,
    ],
    options: &[InterfaceChoice::INCLUDE, InterfaceChoice::EXCLUDE, InterfaceChoice::VIRTUAL],
    open,
    ..SourceSpec::DEFAULT
};

/// In the order of the columns.
static RECEIVED: [Metric; 8] = [
    bytes("network_received_bytes_total", "Bytes received."),
    count("network_received_packets_total", "Packets received."),
    count("network_received_errors_total", "Bad packets received."),
    count(
        "network_received_dropped_total",
        "Packets received and dropped for lack of memory or of a receiver.",
    ),
    count(
        "network_received_fifo_errors_total",
        "Packets lost because the receive queue of the hardware was full.",
    ),
    count(
        "network_received_frame_errors_total",
        "The part of network_received_errors_total of wrong length, checksum or alignment.",
    ),
    count("network_received_compressed_total", "Compressed packets received."),
    count("network_received_multicast_total", "Multicast packets received."),
];

/// In the order of the columns.
static TRANSMITTED: [Metric; 8] = [
    bytes("network_transmitted_bytes_total", "Bytes sent."),
    count("network_transmitted_packets_total", "Packets sent."),
    count("network_transmitted_errors_total", "Packets that could not be sent."),
    count("network_transmitted_dropped_total", "Packets dropped before sending."),
    count(
        "network_transmitted_fifo_errors_total",
        "Packets not sent because the send queue of the hardware ran dry.",
    ),
    count("network_transmitted_collisions_total", "Collisions on the wire."),
    count(
        "network_transmitted_carrier_errors_total",
        "Packets not sent because of a lost carrier, a late collision, a failed heartbeat or an abort.",
    ),
    count("network_transmitted_compressed_total", "Compressed packets sent."),
];

const fn count(name: &'static str, help: &'static str) -> Metric {
    Metric::counter(name, Unit::Count, help)
}

const fn bytes(name: &'static str, help: &'static str) -> Metric {
    Metric::counter(name, Unit::Bytes, help)
}

struct Network {
    file: TickFile,
    choice: InterfaceChoice,
    roster: Roster,
    jobs: OfJobs,
}

fn open(open: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    Ok(Box::new(Network {
        file: TickFile::open(open.root, PATH)?,
        choice: InterfaceChoice::of(open.options, open.root.stat(LOOPBACK).is_err()),
        roster: Roster::default(),
        jobs: OfJobs::default(),
    }))
}

impl Source for Network {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        self.jobs.collect(cx, out);
        let mut of = out.of_device();
        self.roster.begin(cx.boot);
        for interface in net_dev(self.file.read()?).map_err(|e| broken(PATH, e))? {
            let interface = interface.map_err(|e| broken(PATH, e))?;
            let shown = |name: &str| self.choice.shows(cx.root, name);
            if let Some((label, start)) = self.roster.see(interface.name, cx.boot, shown) {
                push(&interface, label, start, &mut of);
            }
        }
        self.roster.end(cx.now);
        out.part("include", self.choice.state(self.roster.is_any_shown(), NOTHING));
        Ok(())
    }

    fn drain(&mut self, cx: &Context<'_>, _: &mut Sink) -> Result<(), SourceError> {
        self.jobs.discover(cx);
        Ok(())
    }

    fn drain_every(&self) -> Option<Duration> {
        Some(DRAIN_EVERY)
    }

    fn quiet(&self) -> Option<IdleQueues<'_>> {
        // The agent wakes every waiting source when a job arrives.
        Some(IdleQueues { at_most: NO_DRAIN, ..IdleQueues::default() })
    }

    fn has_last_reading(&self) -> bool {
        true
    }

    fn job_ended(
        &mut self,
        job: &JobKey,
        cx: &Context<'_>,
        out: &mut Sink,
    ) -> Result<(), SourceError> {
        self.jobs.ended(job, cx, out);
        Ok(())
    }
}

fn push(interface: &Interface<'_>, label: &str, start: Timestamp, out: &mut SampleWriter<'_>) {
    let (received, sent) = (&interface.received, &interface.transmitted);
    let received = [
        received.bytes,
        received.packets,
        received.errors,
        received.dropped,
        received.fifo_errors,
        received.frame_errors,
        received.compressed,
        received.multicast,
    ];
    let sent = [
        sent.bytes,
        sent.packets,
        sent.errors,
        sent.dropped,
        sent.fifo_errors,
        sent.collisions,
        sent.carrier_errors,
        sent.compressed,
    ];
    let columns = RECEIVED.iter().zip(received).chain(TRANSMITTED.iter().zip(sent));
    for (metric, value) in columns {
        out.counter(metric, &[("interface", label)], value as f64, start);
    }
}
