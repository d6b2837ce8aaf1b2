//! FrUCToSA: sensors of lagent become sources of an agent, its Graphite an output of a server.

use super::colmet_nodes::server;
use super::counterparts::{Ours, Table, is, nothing};
use super::draft::{Draft, Part};
use super::ini::{self, Entry};
use colmet::equivalent::{Group, Ours as Equivalent};
use colmet::fructosa::GROUPS;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

/// Period of an agent without a setting.
const PERIOD: Duration = Duration::from_secs(5);
/// Shortest and longest period of a source.
const PERIODS: std::ops::RangeInclusive<f64> = 0.001..=86_400.0;
/// Smallest file of a log that an agent or server rotates.
const LOG_BYTES_MIN: u64 = 4 << 10;
/// Most former files of a log.
const LOG_BACKUPS_MAX: u64 = 1000;
/// The begin of a section of a sensor.
const SENSOR: &str = "sensor:";

/// Keys of lagent.conf and lmaster.conf, as `SECTION: KEY`.
pub(super) const FILES: Table = Table {
    program: "lagent.conf, lmaster.conf",
    rows: &[
        is(&["lmaster: host"], "agent: `server`, the URL of jobmeter's server"),
        nothing(
            &["lmaster: incoming data port"],
            "agents send nothing to it since FrUCToSA 0.3; jobmeter's server has `listen`",
        ),
        is(&["Graphite: host"], "server: `outputs.graphite.address`, with `tree = \"fructosa\"`"),
        is(&["Graphite: carbon receiver pickle port"], "server: `outputs.graphite.address`"),
        is(
            &["logging: filename"],
            "agent and server: `log.file`, a file of their own in this folder",
        ),
        is(&["logging: level"], "agent and server: `log.level`"),
        is(&["logging: maxBytes"], "agent and server: `log.bytes_max`"),
        is(&["logging: backupCount"], "agent and server: `log.backups`"),
        is(&["sensor: time_interval"], "agent: `period`, and `period` of the sensor's sources"),
    ],
};

/// Options that a sensor's values need.
const NEEDED: [(&str, &str, &str); 3] = [
    ("CPUPercent", "sources.cpu.cores", "true"),
    ("NetIOCounters", "sources.network.include", "*"),
    ("NetIFAddrs", "sources.interfaces.include", "*"),
];

/// Reads the files. Only lagent knows Graphite and sensors; of lmaster the log counts.
pub(super) fn import(lagent: &Path, lmaster: Option<&Path>, draft: &mut Draft) {
    let entries = known(ini::read(lagent, &mut draft.errors), draft);
    let get = |section: &str, key: &str| value(&entries, section, key);
    server(get("lmaster", "host").unwrap_or("127.0.0.1"), &mut draft.agent);
    sensors(&entries, draft);
    graphite(&entries, draft);
    log(&entries, "jobmeter-agent.log", &mut draft.agent, &mut draft.errors);
    if let Some(lmaster) = lmaster {
        let entries = known(ini::read(lmaster, &mut draft.errors), draft);
        if let Some(host) = value(&entries, "lmaster", "host") {
            draft.server.comment(format!(
                "lmaster: host {host}: beyond this machine, `listen` needs a token and TLS, see the operator's guide"
            ));
        }
        log(&entries, "jobmeter-server.log", &mut draft.server, &mut draft.errors);
    }
}

/// The known keys. Others, and those without a counterpart, are reported.
fn known(entries: Vec<Entry>, draft: &mut Draft) -> Vec<Entry> {
    let mut known = Vec::new();
    for entry in entries {
        let section = if entry.section.starts_with(SENSOR) { "sensor" } else { &entry.section };
        let name = format!("{section}: {}", entry.key);
        let is_it = |one: &&str| one.eq_ignore_ascii_case(&name) && one.starts_with(section);
        let row = FILES.rows.iter().find(|row| row.names.iter().any(is_it));
        match row.map(|row| &row.ours) {
            Some(Ours::Is(_)) => known.push(entry),
            Some(Ours::Nothing(why)) => {
                draft.agent.comment(format!("{name}: no counterpart: {why}"));
            }
            None => draft.errors.push(format!(
                "{}: unknown key `{}` in [{}]; it is left out",
                entry.place, entry.key, entry.section
            )),
        }
    }
    known
}

fn value<'a>(entries: &'a [Entry], section: &str, key: &str) -> Option<&'a str> {
    let is_it = |entry: &&Entry| entry.section == section && entry.key == key;
    entries.iter().find(is_it).map(|entry| &*entry.value).filter(|value| !value.is_empty())
}

/// The period of the agent is the shortest interval; each source has the shortest of its sensors.
fn sensors(entries: &[Entry], draft: &mut Draft) {
    let mut periods: BTreeMap<&str, Duration> = BTreeMap::new();
    let mut needed = BTreeSet::new();
    for entry in entries {
        let Some(name) = entry.section.strip_prefix(SENSOR).map(str::trim) else { continue };
        let Some(group) = GROUPS.iter().find(|group| group.name == name) else {
            draft.errors.push(format!("{}: FrUCToSA has no sensor `{name}`", entry.place));
            continue;
        };
        let seconds = entry.value.parse::<f64>().ok().filter(|it| PERIODS.contains(it));
        let Some(seconds) = seconds else {
            draft.errors.push(format!(
                "{}: time_interval `{}`: a number of seconds from 0.001 to 86400 is expected",
                entry.place, entry.value
            ));
            continue;
        };
        let period = Duration::from_secs_f64((seconds * 1000.0).round() / 1000.0);
        for source in sources(group) {
            let shortest = periods.entry(source).or_insert(period);
            *shortest = period.min(*shortest);
        }
        needed.extend(NEEDED.into_iter().filter(|(sensor, ..)| *sensor == name));
    }
    let text = |period: Duration| format!("{}ms", period.as_millis());
    let agent = &mut draft.agent;
    if let Some(shortest) = periods.values().min().filter(|shortest| **shortest < PERIOD) {
        agent.set("period", &text(*shortest));
    }
    for (source, period) in periods {
        agent.set(&format!("sources.{source}.period"), &text(period));
    }
    for (_, key, value) in needed {
        agent.set(key, value);
    }
}

/// The sources of a sensor's values.
pub(super) fn sources(group: &Group) -> BTreeSet<&'static str> {
    let metrics = group.rows.iter().flat_map(|row| match &row.ours {
        Equivalent::Label(metric, _) => vec![*metric],
        ours => ours.formulas().iter().flat_map(colmet::formula::Formula::metrics).collect(),
    });
    metrics.filter_map(|metric| metric.split('_').next()).collect()
}

fn graphite(entries: &[Entry], draft: &mut Draft) {
    let host = value(entries, "Graphite", "host").unwrap_or("localhost");
    let port = value(entries, "Graphite", "carbon receiver pickle port").unwrap_or("2004");
    if port.parse::<u16>().is_ok_and(|port| port > 0) {
        draft.server.set("outputs.graphite.address", &format!("{host}:{port}"));
        draft.server.set("outputs.graphite.tree", "fructosa");
    } else {
        let is_it = |entry: &&Entry| entry.section == "Graphite" && entry.value == port;
        let place = entries.iter().find(is_it).map_or("", |entry| &entry.place);
        draft.errors.push(format!("{place}: `{port}` is no port"));
    }
}

/// The log of a program. It has a file of its own: two programs would rotate one file twice.
fn log(entries: &[Entry], name: &str, part: &mut Part, errors: &mut Vec<String>) {
    for entry in entries.iter().filter(|entry| entry.section == "logging") {
        let number = entry.value.parse::<u64>().ok();
        let wrong = match &*entry.key {
            "filename" => {
                let file = Path::new(&entry.value).with_file_name(name);
                part.set("log.file", &file.display().to_string());
                None
            }
            "level" => match level(&entry.value) {
                Some(level) => {
                    part.set("log.level", level);
                    None
                }
                None => Some("a level of Python's logging is expected".to_owned()),
            },
            "maxbytes" => match number {
                Some(0) => {
                    part.comment("logging: maxBytes 0: no counterpart: the log is always rotated");
                    None
                }
                Some(bytes) if bytes >= LOG_BYTES_MIN => {
                    part.set("log.bytes_max", &bytes.to_string());
                    None
                }
                _ => Some(format!("a number of bytes is expected, at least {LOG_BYTES_MIN}")),
            },
            _ => match number.filter(|number| *number <= LOG_BACKUPS_MAX) {
                Some(number) => {
                    part.set("log.backups", &number.to_string());
                    None
                }
                None => Some(format!("a number of files is expected, at most {LOG_BACKUPS_MAX}")),
            },
        };
        errors.extend(
            wrong.map(|what| format!("{}: {} `{}`: {what}", entry.place, entry.key, entry.value)),
        );
    }
}

/// Our word for a level of Python's logging: a name or a number.
fn level(text: &str) -> Option<&'static str> {
    match text.parse::<u32>() {
        Ok(0..=10) => Some("debug"),
        Ok(11..=20) => Some("info"),
        Ok(21..=30) => Some("warn"),
        Ok(_) => Some("error"),
        Err(_) => pollers::log_level(text),
    }
}
