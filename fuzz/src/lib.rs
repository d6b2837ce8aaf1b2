//! Fuzz targets: each parser and decoder as a function that must return for any bytes.
//!
//! `make fuzz` runs the targets under libFuzzer. `corpus/TARGET/` keeps the inputs that it finds, and `make
//! test` replays every input through its target.

use kernel::parse::Fields;
use pg_wire::command::Command;
use pg_wire::copy;
use pollers::descriptions::{Directory, read_text, summary};
use pollers::exposition::{Format, Line, Lines};
use pollers::polling::any_bytes;
use pollers::wattmeter::{self, LineVersion};
use std::convert::Infallible;
use std::path::Path;
use wire::{Decoder, Frames};

/// A function that must return for any bytes.
pub type Target = fn(&[u8]);

/// Every target with its name, which is also the directory of its corpus.
pub static TARGETS: &[(&str, Target)] = &[
    ("answer", answer),
    ("bmc", any_bytes::ipmi),
    ("cgroup", cgroup),
    ("colmet", colmet),
    ("descriptions", descriptions),
    ("exposition", exposition),
    ("filesystems", filesystems),
    ("frames", frames),
    ("http", any_bytes::http),
    ("ipmi", ipmi),
    ("json", any_bytes::json),
    ("labels", labels),
    ("modbus", any_bytes::modbus),
    ("node", node),
    ("pg_messages", pg_messages),
    ("pg_statements", pg_statements),
    ("process", process),
    ("settings", settings),
    ("snmp", any_bytes::snmp),
    ("sockets", sockets),
    ("status", status),
    ("time", time),
    ("users", users),
    ("wattmeter", wattmeter),
    ("zmtp", zmtp),
];

/// Returns the target with a name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().find(|(known, _)| *known == name).map(|(_, target)| *target)
}

fn frames(bytes: &[u8]) {
    let mut decoder = Decoder::default();
    for frame in Frames::of(bytes).flatten() {
        if let Ok(decoded) = decoder.decode(&frame) {
            decoded.into_batch().ok();
        }
    }
}

fn answer(bytes: &[u8]) {
    wire::Answer::decode(bytes).ok();
}

fn settings(bytes: &[u8]) {
    wire::decode_settings(bytes).ok();
}

fn status(bytes: &[u8]) {
    wire::decode_status(bytes).ok();
}

/// Each error lies in the message. Decoded records are encoded, and these bytes are decoded as the same records.
fn colmet(bytes: &[u8]) {
    use colmet::frame::{Records, encode};
    for record in Records::of(bytes) {
        match record {
            Ok(record) => {
                colmet::text::write(&record, &|_| 3600, &mut String::new());
                let (mut message, mut again) = (Vec::new(), Vec::new());
                assert!(encode(&record, &mut message).is_ok());
                // Compared as bytes, because NaN differs from itself.
                for record in Records::of(&message).flatten() {
                    assert!(encode(&record, &mut again).is_ok());
                }
                assert_eq!(again, message);
            }
            Err(error) => assert!(error.offset < bytes.len()),
        }
    }
    for error in colmet::msgpack::Records::of(bytes).filter_map(Result::err) {
        assert!(error.offset <= bytes.len());
    }
    colmet::msgpack::Reconfiguration::decode(bytes).ok();
    text(bytes, |text| {
        for backend in colmet::backends::BACKENDS {
            if let Ok(names) = colmet::counter_names::CounterNames::read(backend, text) {
                let written = names.text();
                let again = colmet::counter_names::CounterNames::read(backend, &written);
                assert_eq!(again.map(|names| names.text()), Ok(written));
            }
        }
    });
}

fn text(bytes: &[u8], call: impl FnOnce(&str)) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        call(text);
    }
}

/// Accepted labels keep their text unchanged, and those of any JSON object are accepted as they are printed.
fn labels(bytes: &[u8]) {
    text(bytes, |text| {
        if let Ok(labels) = model::Labels::from_json(text) {
            assert_eq!(model::Labels::from_canonical(labels.as_str()).as_ref(), Ok(&labels));
            assert!(labels.clone().printable().must_be_printable().is_ok());
            labels.pairs().iter().for_each(|(key, _)| assert!(labels.has(key)));
        }
        if let Ok(labels) = model::Labels::from_canonical(text) {
            assert_eq!(labels.as_str(), text);
        }
    });
}

/// Every entry is a description or has a finding.
fn descriptions(bytes: &[u8]) {
    text(bytes, |text| {
        let mut directory = Directory::default();
        read_text(&Path::new("file").into(), text, &mut directory);
        summary(&directory);
    });
}

/// Each line is read or an error of its own: an added good line is always read.
fn exposition(bytes: &[u8]) {
    text(bytes, |text| {
        Lines::new(text, Format::OpenMetrics).for_each(drop);
        let text = format!("{text}\nlast 1");
        let last = Lines::new(&text, Format::Text).last();
        assert!(matches!(last, Some(Ok(Line::Sample(sample))) if sample.name == "last"));
    });
}

/// The lines do not depend on where the input is split, and a line that is used has ports and an instant.
fn wattmeter(bytes: &[u8]) {
    let read = |parts: [&[u8]; 2]| {
        let (mut lines, mut found) = (wattmeter::Lines::default(), Vec::new());
        for part in parts {
            let each = |line: Option<&[u8]>| -> Result<(), Infallible> {
                found.push(line.map(<[u8]>::to_vec));
                Ok(())
            };
            let Ok(()) = lines.split(part, each);
        }
        found.extend(lines.end());
        found
    };
    let at = bytes.first().map_or(0, |at| usize::from(*at) % bytes.len());
    let (first, rest) = bytes.split_at(at);
    let all = read([bytes, b""]);
    assert_eq!(all, read([first, rest]));
    for line in all.iter().flatten() {
        for version in [LineVersion::V2, LineVersion::V3] {
            let mut values = Vec::new();
            if let Ok(at) = wattmeter::parse(version, line, &mut values) {
                assert!(at.0 >= 0 && (1..=wattmeter::PORTS_MAX).contains(&values.len()));
            }
        }
    }
}

fn time(bytes: &[u8]) {
    text(bytes, |text| {
        if let Ok(at) = model::Timestamp::parse(text) {
            model::Timestamp::parse(&at.to_string()).ok();
        }
    });
}

fn node(bytes: &[u8]) {
    let mut fields = Fields::of(bytes);
    while fields.word().is_ok() {}
    kernel::loadavg::loadavg(bytes).ok();
    kernel::uptime::uptime(bytes).ok();
    kernel::pressure::pressure(bytes).ok();
    kernel::statfs::StatFs::parse(bytes).ok();
    kernel::stat::stat(bytes, |_, _| ()).ok();
    if let Ok(kinds) = kernel::softirqs::softirqs(bytes) {
        kinds.flatten().for_each(|kind| kind.for_each(drop));
    }
    each(kernel::schedstat::schedstat(bytes));
    each(kernel::meminfo::node_meminfo(bytes));
    each(kernel::cpuinfo::frequencies_khz(bytes));
    kernel::cpulist::cpus_in(bytes).ok();
    kernel::addresses::parse(bytes).ok();
    drop(kernel::mounts::unescape(bytes));
    drop(kernel::cgroup::cgroup_mounts(bytes));
}

/// Decodes a sensor's record and a reading of it; every returned number is finite.
fn ipmi(bytes: &[u8]) {
    use kernel::ipmi::{DcmiPower, DellPower, Identity, SensorRecord, find};
    find(bytes, &[0x18, 0x01]).ok();
    DcmiPower::parse(bytes);
    DellPower::parse(bytes);
    DellPower::watt_hours(bytes);
    Identity::parse(bytes);
    if let (Some(SensorRecord::Analog(sensor)), Some(raw)) =
        (SensorRecord::parse(bytes), bytes.last())
    {
        assert!(sensor.value(&[0, *raw, 0xc0]).is_none_or(f64::is_finite));
    }
}

/// The messages of a connection: the first one, and then those of a session.
fn pg_messages(bytes: &[u8]) {
    use pg_wire::frontend;
    frontend::startup(bytes).ok();
    let mut rest = bytes;
    while let Some(length) = pg_wire::backend::first_message(rest) {
        let (one, after) = rest.split_at(length);
        rest = after;
        if let (Some(kind), Some(body)) = (one.first(), one.get(5..)) {
            frontend::message(*kind, body).ok();
        }
    }
    for (kind, ..) in pg_wire::oid::TYPES {
        if let Ok(text) = pg_wire::parameters::text(*kind, true, bytes) {
            pg_wire::parameters::elements(&text).ok();
        }
    }
    for format in [copy::Format::Text, copy::Format::Csv, copy::Format::Binary] {
        copy::rows(bytes, &copy::Options::of(format), &[0, 1, 2, 3, 4], 100).ok();
    }
}

/// Each statement of a text lies in it, and is read or an error within it.
fn pg_statements(bytes: &[u8]) {
    text(bytes, |text| {
        for (at, one) in pg_wire::scanner::statements(text).unwrap_or_default() {
            assert_eq!(text.get(at..at + one.len()), Some(one));
            pg_wire::call::call(one);
            match pg_wire::command::command(one) {
                Ok(Command::Declare { query, .. }) => assert!(one.get(query..).is_some()),
                Ok(Command::Insert(insert)) => drop(insert.rows(&[])),
                Ok(_) => {}
                Err(error) => assert!(error.at <= one.len()),
            }
        }
    });
}

fn process(bytes: &[u8]) {
    drop(kernel::login::parse(bytes, bytes, "nobody"));
    kernel::process::process_stat(bytes).ok();
    kernel::process::process_status(bytes).ok();
    kernel::process::process_io(bytes).ok();
}

fn cgroup(bytes: &[u8]) {
    drop(kernel::cgroup::cgroup_mounts(bytes));
}

fn each<T, E>(parsed: Result<impl Iterator<Item = T>, E>) {
    if let Ok(items) = parsed {
        items.for_each(drop);
    }
}

fn filesystems(bytes: &[u8]) {
    each(kernel::lustre::stats(bytes));
    kernel::lustre::lnet(bytes).ok();
    kernel::nfs::mountstats(bytes, |_| {}).ok();
    kernel::nfs::rpc(bytes).ok();
    each(kernel::mounts::mounts(bytes));
}

/// The result does not depend on where the file is split into parts.
fn sockets(bytes: &[u8]) {
    kernel::sockets::sockstat(bytes, |_, _, _| {}).ok();
    let (mut whole, mut parts) = (kernel::sockets::TcpStates::default(), Default::default());
    whole.add(bytes);
    let (first, rest) =
        bytes.split_at(bytes.first().map_or(0, |at| usize::from(*at) % bytes.len()));
    kernel::sockets::TcpStates::add(&mut parts, first);
    parts.add(rest);
    assert_eq!(whole, parts);
}

fn users(bytes: &[u8]) {
    kernel::utmp::utmp(bytes).for_each(drop);
    kernel::utmp::logind(bytes);
}

/// The result does not depend on where the bytes are split, and memory grows with received bytes only.
fn zmtp(bytes: &[u8]) {
    use zmtp::{Role, Session};
    let receive = |role, parts: [&[u8]; 2]| {
        let (mut session, mut messages) = (Session::new(role, 1 << 20), Vec::new());
        let mut each = |message| messages.push(message);
        let end = parts.iter().try_for_each(|part| session.receive(part, &mut each));
        assert!(session.unfinished() <= bytes.len() && session.pending().len() < 1 << 14);
        (messages, end)
    };
    let at = bytes.first().map_or(0, |at| usize::from(*at) % bytes.len());
    let (first, rest) = bytes.split_at(at);
    for role in [Role::Pull, Role::Push] {
        let whole = receive(role, [bytes, b""]);
        assert!(whole.0.iter().map(Vec::len).sum::<usize>() <= bytes.len());
        assert_eq!(whole, receive(role, [first, rest]));
    }
}
