//! Network interfaces themselves: whether they are up, how fast, how large their packets may be.
//!
//! Reads `/sys/class/net/NAME/` (Linux 2.6.33; Documentation/ABI/testing/sysfs-class-net):
//!
//! ```text
//! eth0/operstate        up              lo has `unknown`, and is up
//! eth0/speed            25000           millions of bits in a second; -1 where the driver does not know
//! eth0/duplex           full
//! eth0/mtu              1500
//! eth0/carrier_changes  2
//! eth0/address          02:00:00:00:00:01
//! ```
//!
//! A link that came up slower than its card, or that comes and goes, slows a whole job. Speed and duplex of an
//! interface that is down are no sample. Shown are interfaces with hardware of their own, as under `network`, in the
//! agent's own network namespace; what they carried is told there.

use crate::parts::{Choice, exclude, include};
use crate::values::{Values, Walk};
use crate::{Context, Every, Open, Sink, Source, SourceError, SourceSpec};
use model::setting::{Kind, OptionSpec};
use model::{Metric, Unit};
use std::time::Duration;

const DIR: &str = "sys/class/net";
/// Bytes in a second for each million of bits.
const BYTES_OF_MEGABIT: f64 = 125_000.0;
/// `SPEED_UNKNOWN` as drivers print it that take it for a number without sign.
const UNKNOWN: i64 = u32::MAX as i64;

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "interfaces",
    help: "Whether network interfaces are up, how fast, and how large their packets may be.",
    reads: &[
        "/sys/class/net/*/{operstate,speed,duplex,mtu,carrier_changes,address}",
        "/sys/class/net/*/device/{uevent,driver}",
    ],
    cost: "about 4 µs an interface on 2 virtual cores, Linux 6.18",
    every: Every::AtLeast(Duration::from_secs(10)),
    metrics: &[&UP, &SPEED, &FULL_DUPLEX, &MTU, &CARRIER_CHANGES, &HARDWARE],
    sane: &[],
    options: &[
        include(
            "Only these interfaces: names, or patterns with `*`; none means every one with hardware but those of `exclude`.",
        ),
        exclude(
            "lo",
            "Interfaces to leave out if `include` names none: names, or patterns with `*`.",
        ),
        OptionSpec {
            name: "virtual",
            kind: Kind::Switch,
            default: "false",
            help: "Also interfaces without hardware of their own.",
        },
    ],
    open,
};

static UP: Metric =
    Metric::gauge("interfaces_up", Unit::Count, "1 while an interface can carry packets; else 0.");
static SPEED: Metric = Metric::gauge(
    "interfaces_bytes_per_second",
    Unit::Count,
    "Bytes that an interface could carry in a second in either direction.",
);
static FULL_DUPLEX: Metric = Metric::gauge(
    "interfaces_full_duplex",
    Unit::Count,
    "1 where an interface carries both directions at a time, 0 where one.",
);
static MTU: Metric =
    Metric::gauge("interfaces_mtu_bytes", Unit::Bytes, "Largest packet of an interface.");
static CARRIER_CHANGES: Metric = Metric::counter(
    "interfaces_carrier_changes_total",
    Unit::Count,
    "Times that the link of an interface came or went.",
);
static HARDWARE: Metric = Metric::gauge(
    "interfaces_hardware",
    Unit::Count,
    "1 for each interface, with its hardware address and driver in its labels.",
);

struct Interfaces {
    files: Values,
    choice: Choice,
    virtual_too: bool,
}

fn open(open: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    Ok(Box::new(Interfaces {
        files: Values::default(),
        choice: Choice::of(open.options),
        virtual_too: open.options.switch("virtual"),
    }))
}

impl Source for Interfaces {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        let absent = "/sys/class/net: no interface that the options choose";
        let Self { files, choice, virtual_too } = self;
        files.look(cx.root, cx.now, absent, |found| walk(found, choice, *virtual_too))?;
        let mut of = out.of_device();
        let read = files.each(|file, number| match u64::try_from(number) {
            Ok(changes) if file.is(&CARRIER_CHANGES) => file.counter(&mut of, changes, cx.boot),
            Ok(0) if file.is(&SPEED) => {}
            Ok(_) if !file.is(&SPEED) || number < UNKNOWN => file.gauge(&mut of, number),
            // Of a driver that does not know.
            _ => {}
        });
        read.state("interfaces", out)
    }
}

fn walk(walk: &mut Walk<'_, ()>, choice: &Choice, virtual_too: bool) {
    for name in walk.names(DIR) {
        let at = |file: &str| format!("{DIR}/{name}/{file}");
        let has_hardware = || walk.text(&at("device/uevent")).is_some();
        if !choice.says(&name).unwrap_or_else(|| virtual_too || has_hardware()) {
            continue;
        }
        let labels = [("interface", &*name)];
        walk.file_as(&at("operstate"), &UP, &labels, 1.0, up, ());
        walk.file(&at("speed"), &SPEED, &labels, 1.0 / BYTES_OF_MEGABIT, ());
        walk.file_as(&at("duplex"), &FULL_DUPLEX, &labels, 1.0, full_duplex, ());
        walk.file(&at("mtu"), &MTU, &labels, 1.0, ());
        walk.file(&at("carrier_changes"), &CARRIER_CHANGES, &labels, 1.0, ());
        let address = walk.text(&at("address")).unwrap_or_default();
        let driver = walk.link(&at("device/driver")).unwrap_or_default();
        let labels = [("interface", &*name), ("address", &address), ("driver", &driver)];
        walk.file_as(&at("ifindex"), &HARDWARE, &labels, 1.0, |_| Some(1), ());
    }
}

/// Of an interface that does not tell its state, such as `lo`, it is known that it was not taken down.
fn up(text: &[u8]) -> Option<i64> {
    (!text.is_empty()).then(|| i64::from(matches!(text, b"up" | b"unknown")))
}

/// -1 where the driver does not know.
fn full_duplex(text: &[u8]) -> Option<i64> {
    match text {
        b"full" => Some(1),
        b"half" => Some(0),
        b"unknown" => Some(-1),
        _ => None,
    }
}
