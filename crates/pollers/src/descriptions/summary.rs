//! What `jobmeter check DIR` prints: the targets, their requests and the rows per second.

use super::description::{Description, Target};
use super::directory::Directory;
use crate::protocols::Request;
use model::printable;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// Rows per second of descriptions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Of those that are always requested.
    pub always: f64,
    /// Further ones while everything is promoted.
    pub promoted: f64,
    /// Exporters whose number of rows only they know.
    pub exporters: usize,
}

impl Load {
    /// The rows of these descriptions. A list of names of an exporter counts as a row per name.
    pub fn of(descriptions: &[Description]) -> Self {
        let mut load = Self::default();
        for description in descriptions {
            let rows = match &description.request {
                Request::Prometheus(request) if request.names.is_empty() => {
                    load.exporters += 1;
                    continue;
                }
                Request::Prometheus(request) => {
                    f64::from(u32::try_from(request.names.len()).unwrap_or(u32::MAX))
                }
                _ => 1.0,
            };
            let (sum, period) = match description.is_optional {
                true => (
                    &mut load.promoted,
                    description.rare().period_promoted.unwrap_or(description.period),
                ),
                false => (&mut load.always, description.period),
            };
            *sum += rows / period.as_secs_f64();
        }
        load
    }
}

/// The table of a folder's requests, the sums, and the files that the original would reject.
pub fn summary(directory: &Directory) -> String {
    let mut rows: BTreeMap<(&Target, &str, Duration, bool), Vec<&str>> = BTreeMap::new();
    for description in &directory.descriptions {
        let key = (
            &*description.target,
            description.device.as_str(),
            description.period,
            description.is_optional,
        );
        rows.entry(key).or_default().push(&description.name);
    }
    let lines = rows.into_iter().map(|((target, device, period, is_optional), mut names)| {
        names.sort_unstable();
        names.dedup();
        let optional = if is_optional { ", if promoted" } else { "" };
        let every = format!("{}{optional}", duration(period));
        [target.to_string(), device.to_owned(), every, printable(&names.join(" ")).into_owned()]
    });
    let mut text = table(lines);
    let optional = directory.descriptions.iter().filter(|one| one.is_optional).count();
    let load = Load::of(&directory.descriptions);
    let targets = directory.descriptions.iter().map(|one| &one.target);
    let targets: std::collections::BTreeSet<_> = targets.collect();
    writeln!(
        text,
        "{}, {} ({optional} only if promoted), {}: {} rows/s, {} with everything promoted",
        count(directory.files, "file", "files"),
        count(directory.descriptions.len(), "entry", "entries"),
        count(targets.len(), "target", "targets"),
        rate(load.always),
        rate(load.always + load.promoted),
    )
    .unwrap_or_default();
    if load.exporters > 0 {
        let what =
            "rows of exporters are not counted, because everything that they expose is stored:";
        let entries = count(load.exporters, "entry", "entries");
        writeln!(text, "{what} {entries}").unwrap_or_default();
    }
    for file in &directory.rejected_by_kwollect {
        let what = "the original kwollector rejects this file because of its keys";
        writeln!(text, "{}: {what}", file.display()).unwrap_or_default();
    }
    text
}

fn table(lines: impl Iterator<Item = [String; 4]>) -> String {
    let header = ["TARGET", "DEVICE", "EVERY", "METRICS"].map(str::to_owned);
    let lines: Vec<_> = std::iter::once(header).chain(lines).collect();
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let (target, device, every) = (width(0), width(1), width(2));
    let mut text = String::new();
    for [a, b, c, d] in &lines {
        writeln!(text, "{a:target$}  {b:device$}  {c:every$}  {d}").unwrap_or_default();
    }
    text
}

fn count(number: usize, one: &str, more: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { more })
}

fn duration(period: Duration) -> String {
    match period.as_millis() {
        ms if ms % 1000 == 0 => format!("{} s", ms / 1000),
        ms => format!("{ms} ms"),
    }
}

fn rate(rows: f64) -> String {
    if rows >= 10.0 || rows == 0.0 { format!("{rows:.0}") } else { format!("{rows:.2}") }
}
