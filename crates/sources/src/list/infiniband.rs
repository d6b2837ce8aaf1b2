//! InfiniBand, RoCE and Omni-Path: bytes, packets, errors and the state of every port.
//!
//! Reads `/sys/class/infiniband/DEVICE/ports/N/` (Linux 2.6.12, `hw_counters` 4.6;
//! Documentation/ABI/stable/sysfs-class-infiniband), without an external command:
//!
//! ```text
//! mlx5_0/ports/1/link_layer                InfiniBand
//! mlx5_0/ports/1/state                     4: ACTIVE
//! mlx5_0/ports/1/rate                      100 Gb/sec (4X EDR)
//! mlx5_0/ports/1/counters/port_xmit_data   216733987523      in units of 4 octets
//! mlx5_0/ports/1/hw_counters/out_of_buffer 12
//! ```
//!
//! By the kernel's document the data counters have units of four octets on every link layer: drivers of RoCE
//! divide by 4 (mlx5, `pma_cnt_ext_assign`). Only Omni-Path's driver passes on its flits of 8 octets
//! (drivers/infiniband/hw/hfi1/mad.c, `pma_get_opa_port_dctrs`). Old kernels have 64-bit counters under
//! `counters_ext`, and those of `counters` stop at their highest value, which the source rejects. Error
//! counters of 4, 8 or 16 bits also stop at their highest value until somebody resets them, by the same
//! document.
//!
//! A port has the labels `device` and `port`, and `link_layer` for its state and rate. Each driver chooses its
//! `hw_counters`. The source reads those that count errors and congestion, under one name for all drivers that
//! count the same event. It leaves out counters of a single driver's internals.

use crate::reading::parts::{Choice, exclude, include};
use crate::reading::values::{Values, Walk};
use crate::{Context, Every, Open, Sink, Source, SourceError, SourceSpec, ValueBounds};
use kernel::parse::number;
use model::{Metric, Unit};

const DIR: &str = "sys/class/infiniband";
/// Octets in a unit of `port_xmit_data`.
const OCTETS: f64 = 4.0;
/// Octets in a flit of Omni-Path.
const FLIT_OCTETS: f64 = 8.0;
/// Value at which a 32-bit counter stops, in octets.
const STOPPED: &[f64] = &[u32::MAX as f64 * OCTETS];
/// Upper bound of a port's octets per second: 8 times the fastest port of today.
const OCTETS_RATE_MAX: f64 = 800e9;

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "infiniband",
    help: "Bytes, packets, errors and state of each port of InfiniBand, RoCE and Omni-Path.",
    reads: &[
        "/sys/class/infiniband/*/ports/*/{link_layer,state,phys_state,rate}",
        "/sys/class/infiniband/*/ports/*/counters/*",
        "/sys/class/infiniband/*/ports/*/counters_ext/*",
        "/sys/class/infiniband/*/ports/*/hw_counters/*",
        "/sys/class/infiniband/*/device/driver",
    ],
    cost: "up to 30 files a port; each may query the adapter's firmware, which takes some tens of microseconds",
    every: Every::Tick,
    metrics: &METRICS,
    sane: &[
        ValueBounds::of(&PORT[0].1).never(STOPPED).rate(OCTETS_RATE_MAX),
        ValueBounds::of(&PORT[1].1).never(STOPPED).rate(OCTETS_RATE_MAX),
    ],
    options: &[
        include("Only these devices: names, or patterns with `*`; empty means all."),
        exclude("", "Devices to leave out if `include` is empty: names, or patterns with `*`."),
    ],
    open,
    ..SourceSpec::DEFAULT
};

static ACTIVE: Metric =
    Metric::gauge("infiniband_active", Unit::Count, "1 while a port can carry data; else 0.");
static LINK_UP: Metric = Metric::gauge(
    "infiniband_link_up",
    Unit::Count,
    "1 while the physical link of a port is up; else 0.",
);
static SPEED: Metric = Metric::gauge(
    "infiniband_bytes_per_second",
    Unit::Count,
    "Capacity of a port at its current rate, in bytes per second and direction.",
);

/// `counters/`: the kernel's name and the metric. The first two count data.
static PORT: [(&str, Metric); 19] = [
    ("port_xmit_data", bytes("infiniband_transmitted_bytes_total", "Bytes sent.")),
    ("port_rcv_data", bytes("infiniband_received_bytes_total", "Bytes received.")),
    (
        "port_xmit_packets",
        count("infiniband_transmitted_packets_total", "Packets sent, including bad ones."),
    ),
    (
        "port_rcv_packets",
        count("infiniband_received_packets_total", "Packets received, including bad ones."),
    ),
    (
        "multicast_xmit_packets",
        count(
            "infiniband_transmitted_multicast_total",
            "The part of infiniband_transmitted_packets_total that were multicast.",
        ),
    ),
    (
        "multicast_rcv_packets",
        count(
            "infiniband_received_multicast_total",
            "The part of infiniband_received_packets_total that were multicast.",
        ),
    ),
    (
        "port_xmit_wait",
        count(
            "infiniband_transmit_waits_total",
            "Ticks of the port's clock with data to send but no credit to send it.",
        ),
    ),
    (
        "port_xmit_discards",
        count(
            "infiniband_transmitted_dropped_total",
            "Packets not sent because the port was down or congested.",
        ),
    ),
    (
        "port_rcv_errors",
        count("infiniband_received_errors_total", "Packets received with an error."),
    ),
    (
        "port_rcv_remote_physical_errors",
        count(
            "infiniband_received_remote_errors_total",
            "Packets received that were marked bad on the way.",
        ),
    ),
    (
        "port_rcv_switch_relay_errors",
        count(
            "infiniband_received_relay_errors_total",
            "Packets received that could not be forwarded.",
        ),
    ),
    (
        "port_xmit_constraint_errors",
        count(
            "infiniband_transmitted_constraint_errors_total",
            "Packets not sent because of a partition or filter rule.",
        ),
    ),
    (
        "port_rcv_constraint_errors",
        count(
            "infiniband_received_constraint_errors_total",
            "Packets received and dropped because of a partition or filter rule.",
        ),
    ),
    (
        "symbol_error",
        count("infiniband_symbol_errors_total", "Minor errors on the lanes of the link."),
    ),
    (
        "link_error_recovery",
        count("infiniband_link_recoveries_total", "Times that the link recovered by itself."),
    ),
    ("link_downed", count("infiniband_link_downs_total", "Times that the link went down.")),
    (
        "local_link_integrity_errors",
        count(
            "infiniband_integrity_errors_total",
            "Times that errors of the link exceeded their threshold.",
        ),
    ),
    (
        "excessive_buffer_overrun_errors",
        count(
            "infiniband_buffer_overruns_total",
            "Times that the port's buffers overran repeatedly.",
        ),
    ),
    (
        "VL15_dropped",
        count(
            "infiniband_management_dropped_total",
            "Subnet management packets dropped for lack of buffers.",
        ),
    ),
];

/// `hw_counters/`: the drivers' names and the metric (mlx5, bnxt_re, irdma, hfi1).
static DRIVER: [(&[&str], Metric); 12] = [
    (
        &["out_of_buffer"],
        count(
            "infiniband_no_buffer_total",
            "Packets dropped because no receive request was posted.",
        ),
    ),
    (
        &["out_of_sequence", "oos_drop_count"],
        count("infiniband_out_of_sequence_total", "Packets received out of order."),
    ),
    (
        &["packet_seq_err", "seq_err_naks_rcvd", "SeqNak"],
        count(
            "infiniband_sequence_naks_total",
            "Negative acknowledgements received because of a missing packet.",
        ),
    ),
    (
        &["local_ack_timeout_err", "to_retransmits", "RcTimeOut"],
        count(
            "infiniband_timeouts_total",
            "Acknowledgement timeouts that caused a retransmission.",
        ),
    ),
    (
        &["rnr_nak_retry_err", "rnr_naks_rcvd", "RnrNak"],
        count(
            "infiniband_not_ready_total",
            "Negative acknowledgements received because the other side had no receive request.",
        ),
    ),
    (
        &["duplicate_request", "dup_req", "RcDupRew"],
        count("infiniband_duplicate_requests_total", "Duplicate requests received."),
    ),
    (
        &["implied_nak_seq_err"],
        count(
            "infiniband_implied_naks_total",
            "Responses out of order, which imply that earlier ones were lost.",
        ),
    ),
    (
        &["np_cnp_sent", "tx_cnp_pkts", "cnpSent"],
        count("infiniband_congestion_notices_sent_total", "Congestion notification packets sent."),
    ),
    (
        &["rp_cnp_handled", "rx_cnp_pkts", "cnpHandled"],
        count(
            "infiniband_congestion_notices_total",
            "Congestion notification packets received and handled.",
        ),
    ),
    (
        &["np_ecn_marked_roce_packets", "rx_ecn_marked_pkts", "RxECNMrkd"],
        count("infiniband_congestion_marks_total", "Packets received with a congestion mark."),
    ),
    (
        &["rx_icrc_encapsulated"],
        count("infiniband_checksum_errors_total", "RoCE packets received with a wrong checksum."),
    ),
    (
        &["roce_adp_retrans"],
        count(
            "infiniband_adaptive_retransmits_total",
            "RoCE packets retransmitted by the adaptive algorithm.",
        ),
    ),
];

const fn count(name: &'static str, help: &'static str) -> Metric {
    Metric::counter(name, Unit::Count, help)
}

const fn bytes(name: &'static str, help: &'static str) -> Metric {
    Metric::counter(name, Unit::Bytes, help)
}

static METRICS: [&Metric; 3 + PORT.len() + DRIVER.len()] = metrics();

#[expect(clippy::indexing_slicing, reason = "below the lengths, and evaluated at compile time")]
const fn metrics() -> [&'static Metric; 3 + PORT.len() + DRIVER.len()] {
    let mut metrics = [&ACTIVE; 3 + PORT.len() + DRIVER.len()];
    (metrics[1], metrics[2]) = (&LINK_UP, &SPEED);
    let mut place = 0;
    while place < PORT.len() {
        metrics[3 + place] = &PORT[place].1;
        place += 1;
    }
    place = 0;
    while place < DRIVER.len() {
        metrics[3 + PORT.len() + place] = &DRIVER[place].1;
        place += 1;
    }
    metrics
}

struct Infiniband {
    files: Values,
    choice: Choice,
    absent: &'static str,
}

const NOTHING: [&str; 2] = [
    "/sys/class/infiniband: no adapter",
    "/sys/class/infiniband: no adapter that the options choose",
];

fn open(open: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    let absent = open.options.nothing(&SPEC, &["include", "exclude"], NOTHING);
    let choice = Choice::of(open.options);
    Ok(Box::new(Infiniband { files: Values::default(), choice, absent }))
}

impl Source for Infiniband {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        let choice = &self.choice;
        self.files.look(cx.root, cx.now, self.absent, |found| walk(found, choice))?;
        let mut of = out.of_device();
        let read = self.files.each(|file, number| {
            if file.is(&ACTIVE) || file.is(&LINK_UP) || file.is(&SPEED) {
                file.gauge(&mut of, number);
            } else if let Ok(counted) = u64::try_from(number) {
                file.counter(&mut of, counted, cx.boot);
            }
        });
        read.state("ports", out)
    }
}

fn walk(walk: &mut Walk<'_, ()>, choice: &Choice) {
    for device in walk.names(DIR) {
        if !choice.includes(&device).unwrap_or(true) {
            continue;
        }
        let driver = walk.link(&format!("{DIR}/{device}/device/driver"));
        let flits = driver.as_deref().unwrap_or(&device).starts_with("hfi1");
        for port in walk.names(&format!("{DIR}/{device}/ports")) {
            let dir = format!("{DIR}/{device}/ports/{port}");
            let layer = walk.text(&format!("{dir}/link_layer")).unwrap_or_default();
            let labels = [("device", &*device), ("port", &port), ("link_layer", &layer)];
            walk.file_as(&format!("{dir}/state"), &ACTIVE, &labels, 1.0, |t| is_state(t, 4), ());
            walk.file_as(
                &format!("{dir}/phys_state"),
                &LINK_UP,
                &labels,
                1.0,
                |t| is_state(t, 5),
                (),
            );
            // A hundredth of a gigabit per second is 1 250 000 bytes per second.
            let rate = format!("{dir}/rate");
            walk.file_as(&rate, &SPEED, &labels, 1.0 / 1_250_000.0, hundredths_of_gigabits, ());
            counters(walk, &dir, &[("device", &*device), ("port", &port)], flits);
        }
    }
}

/// Adds the counters of a port that its driver has.
fn counters(walk: &mut Walk<'_, ()>, dir: &str, labels: &[(&'static str, &str)], flits: bool) {
    let here = walk.names(&format!("{dir}/counters"));
    let old = walk.names(&format!("{dir}/counters_ext"));
    for (place, (name, metric)) in PORT.iter().enumerate() {
        let of_data = place < 2;
        let per_unit = match of_data {
            true => 1.0 / if flits { FLIT_OCTETS } else { OCTETS },
            false => 1.0,
        };
        let wide = format!("{name}_64");
        let path = match () {
            () if old.contains(&wide) => format!("{dir}/counters_ext/{wide}"),
            () if here.iter().any(|file| file == name) => format!("{dir}/counters/{name}"),
            () => continue,
        };
        // An adapter without this counter reports `N/A (no PMA)`.
        if walk.text(&path).is_some_and(|text| number(text.as_bytes()).is_some()) {
            walk.file(&path, metric, labels, per_unit, ());
        }
    }
    let here = walk.names(&format!("{dir}/hw_counters"));
    for (names, metric) in &DRIVER {
        if let Some(name) = names.iter().find(|name| here.iter().any(|file| file == *name)) {
            walk.file(&format!("{dir}/hw_counters/{name}"), metric, labels, 1.0, ());
        }
    }
}

/// Whether a text such as `4: ACTIVE` has the wanted state number.
fn is_state(text: &[u8], wanted: u64) -> Option<i64> {
    let digits = text.split(|byte| *byte == b':').next()?;
    Some(i64::from(number(digits)? == wanted))
}

/// 250 of `2.5 Gb/sec (1X SDR)`.
fn hundredths_of_gigabits(text: &[u8]) -> Option<i64> {
    let mut words = text.split(u8::is_ascii_whitespace);
    let (rate, unit) = (words.next()?, words.next()?);
    if unit != b"Gb/sec" {
        return None;
    }
    let mut parts = rate.splitn(2, |byte| *byte == b'.');
    let whole = number(parts.next()?)?.checked_mul(100)?;
    let part = match parts.next() {
        None => 0,
        Some(digits @ [_]) => number(digits)? * 10,
        Some(digits @ [_, _]) => number(digits)?,
        Some(_) => return None,
    };
    i64::try_from(whole.checked_add(part)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn states_and_rates() {
        assert_eq!(is_state(b"4: ACTIVE", 4), Some(1));
        assert_eq!(is_state(b"1: DOWN", 4), Some(0));
        assert_eq!(is_state(b"ACTIVE", 4), None);
        for (text, rate) in [
            ("100 Gb/sec (4X EDR)", Some(10_000)),
            ("2.5 Gb/sec (1X SDR)", Some(250)),
            ("53.12 Gb/sec (4X)", Some(5312)),
            ("100 Mb/sec", None),
            ("100", None),
            ("-1 Gb/sec", None),
            ("1.234 Gb/sec", None),
            ("99999999999999999999 Gb/sec", None),
        ] {
            assert_eq!(hundredths_of_gigabits(text.as_bytes()), rate, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            is_state(&bytes, 4);
            hundredths_of_gigabits(&bytes);
        }
    }
}
