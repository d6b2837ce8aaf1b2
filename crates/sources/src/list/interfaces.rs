//! Network interfaces themselves: whether they are up, how fast, how large their packets may be, their addresses.
//!
//! Reads `/sys/class/net/NAME/` (Linux 2.6.33; Documentation/ABI/testing/sysfs-class-net), and asks for addresses by
//! netlink, see [`kernel::addresses`], every 10 s at most; interfaces that come are found within a minute:
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

use crate::reading::parts::InterfaceChoice;
use crate::reading::values::{Values, Walk};
use crate::{Context, Every, Open, PartState, Sink, Source, SourceError, SourceSpec};
use kernel::Root;
use kernel::addresses::Address;
use model::setting::{Kind, OptionSpec};
use model::{Metric, Timestamp, Unit};
use std::time::Duration;

const DIR: &str = "sys/class/net";
/// Bytes in a second for each million of bits.
const BYTES_OF_MEGABIT: f64 = 125_000.0;
/// How often addresses are asked for, at most.
const ADDRESSES_EVERY_US: i64 = 10 * Timestamp::SECOND;
/// Most addresses told.
const ADDRESSES_MAX: usize = 1000;
/// `SPEED_UNKNOWN` as drivers print it that take it for a number without sign.
const UNKNOWN: i64 = u32::MAX as i64;

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "interfaces",
    help: "Whether network interfaces are up, how fast, how large their packets may be, and their addresses.",
    reads: &[
        "/sys/class/net/*/{operstate,speed,duplex,mtu,carrier_changes,address,ifindex}",
        "/sys/class/net/*/device/{uevent,driver}",
        "rtnetlink RTM_GETADDR",
    ],
    cost: "about 4 µs an interface on 2 virtual cores, Linux 6.18",
    every: Every::AtLeast(Duration::from_secs(10)),
    metrics: &[&UP, &SPEED, &FULL_DUPLEX, &MTU, &CARRIER_CHANGES, &HARDWARE, &ADDRESS],
    sane: &[],
    options: &[
        InterfaceChoice::INCLUDE,
        InterfaceChoice::EXCLUDE,
        InterfaceChoice::VIRTUAL,
        OptionSpec {
            name: "addresses",
            kind: Kind::Switch,
            default: "true",
            help: "Also the addresses of IPv4 and IPv6, 1000 at most.",
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

static ADDRESS: Metric = Metric::gauge(
    "interfaces_address",
    Unit::Count,
    "1 for each address of IPv4 or IPv6 that an interface has, with it in its labels.",
);

struct Interfaces {
    files: Values,
    choice: InterfaceChoice,
    absent: &'static str,
    addresses_wanted: bool,
    /// The numbers and names of those that are shown.
    shown: Vec<(u32, String)>,
    /// When addresses were asked for.
    asked: Option<Timestamp>,
    /// As they were told last: the interface, the address, its prefix.
    addresses: Vec<[Box<str>; 3]>,
    /// How that went.
    state: PartState,
}

const NOTHING: [&str; 2] = [
    "/sys/class/net: no interface with hardware of its own; the option `virtual` shows the others",
    "/sys/class/net: no interface that the options choose",
];

fn open(open: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    Ok(Box::new(Interfaces {
        files: Values::default(),
        choice: InterfaceChoice::of(open.options, false),
        absent: open.options.nothing(&SPEC, &["include", "exclude", "virtual"], NOTHING),
        addresses_wanted: open.options.switch("addresses"),
        shown: Vec::new(),
        asked: None,
        addresses: Vec::new(),
        state: PartState::Ok,
    }))
}

impl Source for Interfaces {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        let Self { files, choice, absent, addresses_wanted, shown, asked, addresses, state } = self;
        files.look(cx.root, cx.now, absent, |found| {
            *shown = walk(found, choice);
            *asked = None;
        })?;
        let is_due = |at: Timestamp| cx.now.since(at).saturating_abs() >= ADDRESSES_EVERY_US;
        if *addresses_wanted && asked.is_none_or(is_due) {
            *asked = Some(cx.now);
            *state = addresses_of(cx.root, shown, addresses);
        }
        let mut of = out.of_device();
        let read = files.each(|file, number| match u64::try_from(number) {
            Ok(changes) if file.is(&CARRIER_CHANGES) => file.counter(&mut of, changes, cx.boot),
            Ok(0) if file.is(&SPEED) => {}
            Ok(_) if !file.is(&SPEED) || number < UNKNOWN => file.gauge(&mut of, number),
            // Of a driver that does not know.
            _ => {}
        });
        for [interface, address, prefix] in &*addresses {
            let labels = [("interface", &**interface), ("address", address), ("prefix", prefix)];
            of.gauge(&ADDRESS, &labels, 1.0);
        }
        if *addresses_wanted {
            out.part("addresses", state.clone());
        }
        read.state("interfaces", out)
    }
}

/// Finds the files; which interfaces are shown: their numbers and names.
fn walk(walk: &mut Walk<'_, ()>, choice: &InterfaceChoice) -> Vec<(u32, String)> {
    let mut shown = Vec::new();
    for name in walk.names(DIR) {
        let at = |file: &str| format!("{DIR}/{name}/{file}");
        if !choice.shows(walk.root(), &name) {
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
        let index = walk.text(&at("ifindex")).and_then(|text| text.parse().ok());
        shown.extend(index.map(|index| (index, name)));
    }
    shown
}

/// Asks for the addresses of these interfaces.
fn addresses_of(
    root: &Root,
    shown: &[(u32, String)],
    addresses: &mut Vec<[Box<str>; 3]>,
) -> PartState {
    addresses.clear();
    let all = match kernel::addresses::addresses(root) {
        Ok(all) => all,
        Err(error) => return PartState::Not(error.into()),
    };
    for Address { index, ip, prefix } in all {
        let Some((_, name)) = shown.iter().find(|(known, _)| *known == index) else { continue };
        if addresses.len() >= ADDRESSES_MAX {
            let why = format!("more addresses than {ADDRESSES_MAX}; the rest is left out");
            return PartState::Not(SourceError::broken(why));
        }
        addresses.push([name.as_str().into(), ip.to_string().into(), prefix.to_string().into()]);
    }
    PartState::Ok
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use cgroups::Jobs;
    use model::DeviceId;
    use std::fs;

    #[test]
    fn an_address_that_comes_is_told_at_the_next_reading() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("sys/class/net/eth0/operstate", "up\n");
        write("sys/class/net/eth0/ifindex", "2\n");
        write("sys/class/net/eth0/device/uevent", "\n");
        write(".jobmeter/addresses", "2 192.0.2.7/24\n");
        let (root, boot) = (Root::recorded(dir.path()).unwrap(), Timestamp(0));
        let options = Options::defaults(SPEC.options);
        let mut source = open(&Open { root: &root, options: &options, boot }).unwrap();
        let jobs = Jobs::default();
        let mut out = Sink::of_source(&SPEC, DeviceId::new("n").unwrap());
        let mut told = |second| {
            let now = Timestamp::from_seconds(second);
            let cx = Context {
                root: &root,
                now,
                boot,
                jobs: &jobs,
                budget_us: 1_000_000,
                is_between: false,
            };
            out.begin(now);
            source.collect(&cx, &mut out).unwrap();
            let of = |entry: &model::SeriesEntry| *entry.metric.name == *ADDRESS.name;
            let count = out.samples().filter(|(entry, ..)| of(entry)).count();
            out.sealed();
            count
        };
        assert_eq!(told(100), 1);
        write(".jobmeter/addresses", "2 192.0.2.7/24\n2 2001:db8::7/64\n");
        assert_eq!(told(101), 1);
        assert_eq!(told(110), 2);
    }
}
