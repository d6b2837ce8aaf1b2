//! Network interfaces: state, speed, MTU and addresses.
//!
//! Reads `/sys/class/net/NAME/` (Linux 2.6.33; Documentation/ABI/testing/sysfs-class-net), and requests
//! addresses by netlink, see [`kernel::addresses`], at most every 10 s. New interfaces are found within a
//! minute:
//!
//! ```text
//! eth0/operstate        up              lo has `unknown` although it is up
//! eth0/speed            25000           megabits per second; -1 where the driver does not know
//! eth0/duplex           full
//! eth0/mtu              1500
//! eth0/carrier_changes  2
//! eth0/address          02:00:00:00:00:01
//! ```
//!
//! A link that is slower than its card, or that goes down repeatedly, slows a whole job. Speed and duplex of
//! an interface that is down give no sample. By default the source reads interfaces with hardware of their
//! own, in the agent's own network namespace. Their traffic is in source `network`.

use crate::reading::parts::InterfaceChoice;
use crate::reading::values::{Values, Walk};
use crate::{Context, Every, Open, PartState, Sink, Source, SourceError, SourceSpec};
use kernel::Root;
use kernel::addresses::Address;
use model::setting::{Kind, OptionSpec};
use model::{Metric, Timestamp, Unit};
use std::time::Duration;

const DIR: &str = "sys/class/net";
/// Bytes per second in a megabit per second.
const BYTES_OF_MEGABIT: f64 = 125_000.0;
/// Minimum interval between requests for addresses.
const ADDRESSES_EVERY_US: i64 = 10 * Timestamp::SECOND;
/// Maximum number of addresses reported.
const ADDRESSES_MAX: usize = 1000;
/// `SPEED_UNKNOWN`, as printed by drivers that treat it as an unsigned number.
const UNKNOWN: i64 = u32::MAX as i64;

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "interfaces",
    help: "State, speed, MTU and addresses of network interfaces.",
    reads: &[
        "/sys/class/net/*/{operstate,speed,duplex,mtu,carrier_changes,address,ifindex}",
        "/sys/class/net/*/device/{uevent,driver}",
        "rtnetlink RTM_GETADDR",
    ],
    cost: "about 4 µs an interface on 2 virtual cores, Linux 6.18",
    every: Every::AtLeast(Duration::from_secs(10)),
    metrics: &[&UP, &SPEED, &FULL_DUPLEX, &MTU, &CARRIER_CHANGES, &HARDWARE, &ADDRESS],
    options: &[
        InterfaceChoice::INCLUDE,
        InterfaceChoice::EXCLUDE,
        InterfaceChoice::VIRTUAL,
        OptionSpec {
            name: "addresses",
            kind: Kind::Switch,
            default: "true",
            help: "Also the IPv4 and IPv6 addresses, at most 1000.",
        },
    ],
    open,
    ..SourceSpec::DEFAULT
};

static UP: Metric =
    Metric::gauge("interfaces_up", Unit::Count, "1 while an interface can carry packets; else 0.");
static SPEED: Metric = Metric::gauge(
    "interfaces_bytes_per_second",
    Unit::Count,
    "Capacity of an interface, in bytes per second and direction.",
);
static FULL_DUPLEX: Metric = Metric::gauge(
    "interfaces_full_duplex",
    Unit::Count,
    "1 if an interface is full duplex, 0 if it is half duplex.",
);
static MTU: Metric =
    Metric::gauge("interfaces_mtu_bytes", Unit::Bytes, "Largest packet of an interface (MTU).");
static CARRIER_CHANGES: Metric = Metric::counter(
    "interfaces_carrier_changes_total",
    Unit::Count,
    "Times that the link of an interface went up or down.",
);
static HARDWARE: Metric = Metric::gauge(
    "interfaces_hardware",
    Unit::Count,
    "1 for each interface; the labels have its hardware address and driver.",
);

static ADDRESS: Metric = Metric::gauge(
    "interfaces_address",
    Unit::Count,
    "1 for each IPv4 or IPv6 address of an interface; the labels have the address.",
);

struct Interfaces {
    files: Values,
    choice: InterfaceChoice,
    absent: &'static str,
    addresses_wanted: bool,
    /// Indexes and names of the selected interfaces.
    selected: Vec<(u32, String)>,
    /// Time of the last request for addresses.
    requested: Option<Timestamp>,
    /// Result of that request: the interface, the address, its prefix.
    addresses: Vec<[Box<str>; 3]>,
    /// State of that request.
    state: PartState,
}

const NOTHING: [&str; 2] = [
    "/sys/class/net: no interface with hardware of its own; the option `virtual` adds the others",
    "/sys/class/net: no interface that the options choose",
];

fn open(open: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    Ok(Box::new(Interfaces {
        files: Values::default(),
        choice: InterfaceChoice::of(open.options, false),
        absent: open.options.nothing(&SPEC, &["include", "exclude", "virtual"], NOTHING),
        addresses_wanted: open.options.switch("addresses"),
        selected: Vec::new(),
        requested: None,
        addresses: Vec::new(),
        state: PartState::Ok,
    }))
}

impl Source for Interfaces {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        let Self { files, choice, absent, addresses_wanted, selected, requested, addresses, state } =
            self;
        files.look(cx.root, cx.now, absent, |found| {
            *selected = walk(found, choice);
            *requested = None;
        })?;
        let is_due = |at: Timestamp| cx.now.since(at).saturating_abs() >= ADDRESSES_EVERY_US;
        if *addresses_wanted && requested.is_none_or(is_due) {
            *requested = Some(cx.now);
            *state = addresses_of(cx.root, selected, addresses);
        }
        let mut of = out.of_device();
        let read = files.each(|file, number| match u64::try_from(number) {
            Ok(changes) if file.is(&CARRIER_CHANGES) => file.counter(&mut of, changes, cx.boot),
            Ok(0) if file.is(&SPEED) => {}
            Ok(_) if !file.is(&SPEED) || number < UNKNOWN => file.gauge(&mut of, number),
            // The driver does not know the speed.
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

/// Adds the files of the selected interfaces; returns their indexes and names.
fn walk(walk: &mut Walk<'_, ()>, choice: &InterfaceChoice) -> Vec<(u32, String)> {
    let mut selected = Vec::new();
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
        selected.extend(index.map(|index| (index, name)));
    }
    selected
}

/// Requests the addresses of these interfaces.
fn addresses_of(
    root: &Root,
    selected: &[(u32, String)],
    addresses: &mut Vec<[Box<str>; 3]>,
) -> PartState {
    addresses.clear();
    let all = match kernel::addresses::addresses(root) {
        Ok(all) => all,
        Err(error) => return PartState::Not(error.into()),
    };
    for Address { index, ip, prefix } in all {
        let Some((_, name)) = selected.iter().find(|(known, _)| *known == index) else { continue };
        if addresses.len() >= ADDRESSES_MAX {
            let why = format!("more addresses than {ADDRESSES_MAX}; the rest is left out");
            return PartState::Not(SourceError::broken(why));
        }
        addresses.push([name.as_str().into(), ip.to_string().into(), prefix.to_string().into()]);
    }
    PartState::Ok
}

/// An interface without a state, such as `lo`, reports `unknown` and counts as up.
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
    fn a_new_address_is_reported_after_at_most_10_seconds() {
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
        let mut addresses_at = |second| {
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
        assert_eq!(addresses_at(100), 1);
        write(".jobmeter/addresses", "2 192.0.2.7/24\n2 2001:db8::7/64\n");
        assert_eq!(addresses_at(101), 1);
        assert_eq!(addresses_at(110), 2);
    }
}
