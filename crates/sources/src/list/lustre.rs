//! The Lustre client: bytes and operations of each mount, requests to each server's target, messages of its network.
//!
//! Reads `llite/MOUNT/stats`, `mdc/TARGET/stats`, `osc/TARGET/stats` and `lnet/stats`. Their directory
//! depends on the version: `/proc/fs/lustre` (to 2.11), `/sys/kernel/debug/lustre` (from 2.11, only for root)
//! or `/sys/fs/lustre`. See [`kernel::lustre`] for the formats:
//!
//! ```text
//! read_bytes                27 samples [bytes] 1 30000000 34556
//! open                      48 samples [usec] 4 20 300 2000
//! req_waittime              900 samples [usec] 10 5000 450000 900000000
//! ```
//!
//! A mount has the labels `filesystem` and `client` (the two parts of its name, `scratch-ffff9e0c4e1a3000`),
//! a target `target` (`scratch-OST0003`) and `client`. The file omits a line that has counted nothing, so it
//! gives no sample; a line that appears later starts at the previous reading. Reads and writes of programs,
//! including the page cache, are in `lustre_read_bytes_total`; network traffic is in
//! `lustre_target_read_bytes_total`. The operations depend on the version; each has the label `operation`,
//! and a time only where the version measures it.

use crate::reading::parts::Roster;
use crate::reading::values::{Value, Values, Walk};
use crate::{Context, Every, Open, SampleWriter, Sink, Source, SourceError, SourceSpec};
use kernel::ReadError;
use kernel::lustre::{Stat, lnet, stats};
use model::setting;
use model::setting::OptionSpec;
use model::{Metric, Timestamp, Unit};

// debugfs last: it needs root, which does not matter if another directory has the files.
static DIRS: [&str; 3] = ["proc/fs/lustre", "sys/fs/lustre", "sys/kernel/debug/lustre"];
static LNET: [&str; 2] = ["proc/sys/lnet/stats", "sys/kernel/debug/lnet/stats"];

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "lustre",
    help: "Bytes and operations of each Lustre mount, requests to each target, messages of LNet.",
    reads: &[
        "{/proc/fs,/sys/kernel/debug,/sys/fs}/lustre/{llite,mdc,osc}/*/stats",
        "{/sys/kernel/debug,/proc/sys}/lnet/stats",
    ],
    cost: "one file per mount, per target and for the network; a file system of 500 targets has 500 files",
    every: Every::Tick,
    metrics: &[
        &READS,
        &READ_BYTES,
        &WRITES,
        &WRITTEN_BYTES,
        &OPERATIONS,
        &OPERATION_TIME,
        &REQUESTS,
        &REQUEST_TIME,
        &TARGET_READ_BYTES,
        &TARGET_WRITTEN_BYTES,
        &MESSAGES,
        &LNET_ERRORS,
        &LNET_COUNTS[0],
        &LNET_COUNTS[1],
        &LNET_COUNTS[2],
        &LNET_COUNTS[3],
        &LNET_BYTES[0],
        &LNET_BYTES[1],
        &LNET_BYTES[2],
        &LNET_BYTES[3],
    ],
    options: &[
        OptionSpec {
            name: "prefix",
            kind: setting::Kind::List("WORD"),
            default: "",
            help: "Only file systems with these names; empty means all.",
        },
        OptionSpec {
            name: "targets",
            kind: setting::Kind::Switch,
            default: "true",
            help: "Also every target of the file systems.",
        },
    ],
    open,
    ..SourceSpec::DEFAULT
};

static READS: Metric = count("lustre_reads_total", "Reads of programs.");
static READ_BYTES: Metric = bytes("lustre_read_bytes_total", "Bytes that programs read.");
static WRITES: Metric = count("lustre_writes_total", "Writes of programs.");
static WRITTEN_BYTES: Metric = bytes("lustre_written_bytes_total", "Bytes that programs wrote.");
static OPERATIONS: Metric =
    count("lustre_operations_total", "Operations of one kind that programs requested.");
static OPERATION_TIME: Metric =
    micros("lustre_operation_seconds_total", "Time that operations of one kind took.");
static REQUESTS: Metric =
    count("lustre_requests_total", "Requests to a target that were answered.");
static REQUEST_TIME: Metric = micros(
    "lustre_request_seconds_total",
    "Time that requests to a target waited for their answers.",
);
static TARGET_READ_BYTES: Metric =
    bytes("lustre_target_read_bytes_total", "Bytes read from a target.");
static TARGET_WRITTEN_BYTES: Metric =
    bytes("lustre_target_written_bytes_total", "Bytes written to a target.");
static MESSAGES: Metric =
    Metric::gauge("lustre_lnet_messages", Unit::Count, "LNet messages in progress.");
static LNET_ERRORS: Metric = count("lustre_lnet_errors_total", "Errors of LNet.");
static LNET_COUNTS: [Metric; 4] = [
    count("lustre_lnet_sent_total", "Messages that LNet sent."),
    count("lustre_lnet_received_total", "Messages that LNet received."),
    count("lustre_lnet_routed_total", "Messages that LNet forwarded."),
    count("lustre_lnet_dropped_total", "Messages that LNet dropped."),
];
static LNET_BYTES: [Metric; 4] = [
    bytes("lustre_lnet_sent_bytes_total", "Bytes that LNet sent."),
    bytes("lustre_lnet_received_bytes_total", "Bytes that LNet received."),
    bytes("lustre_lnet_routed_bytes_total", "Bytes that LNet forwarded."),
    bytes("lustre_lnet_dropped_bytes_total", "Bytes that LNet dropped."),
];

const fn count(name: &'static str, help: &'static str) -> Metric {
    Metric::counter(name, Unit::Count, help)
}

const fn bytes(name: &'static str, help: &'static str) -> Metric {
    Metric::counter(name, Unit::Bytes, help)
}

const fn micros(name: &'static str, help: &'static str) -> Metric {
    Metric::counter(name, Unit::Seconds, help).steps(1_000_000)
}

/// State of a file.
#[derive(Debug)]
struct File {
    kind: Kind,
    /// Its lines: a line appears with its first event.
    lines: Roster,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Llite,
    Target,
    Lnet,
}

impl From<Kind> for File {
    fn from(kind: Kind) -> Self {
        Self { kind, lines: Roster::default() }
    }
}

struct Lustre {
    files: Values<File>,
    prefix: Vec<Box<str>>,
    targets: bool,
    absent: &'static str,
}

const NOTHING: [&str; 2] = [
    "/proc/fs/lustre, /sys/fs/lustre, /sys/kernel/debug/lustre: no mount of Lustre",
    "/proc/fs/lustre, /sys/fs/lustre, /sys/kernel/debug/lustre: no mount that the options choose",
];

fn open(open: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    let prefix = open.options.words("prefix").into_iter().map(Box::from).collect();
    let targets = open.options.switch("targets");
    let absent = open.options.nothing(&SPEC, &["prefix"], NOTHING);
    Ok(Box::new(Lustre { files: Values::default(), prefix, targets, absent }))
}

impl Source for Lustre {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        let Self { files, prefix, targets, absent } = self;
        files.look(cx.root, cx.now, absent, |found| walk(found, prefix, *targets))?;
        let mut of = out.of_device();
        let read = files.each_text(|file, text| match file.kept.kind {
            Kind::Lnet => push_lnet(file, text, cx.boot, &mut of),
            kind => {
                // Taken out, because `file` is borrowed for its labels.
                let mut lines = std::mem::take(&mut file.kept.lines);
                lines.begin(cx.boot);
                let result = push_stats(file, kind, text, &mut lines, cx.boot, &mut of);
                if result.is_ok() {
                    lines.end(cx.now);
                }
                file.kept.lines = lines;
                result
            }
        });
        read.state("stats", out)
    }
}

fn push_stats(
    file: &Value<File>,
    kind: Kind,
    text: &[u8],
    lines: &mut Roster,
    boot: Timestamp,
    of: &mut SampleWriter<'_>,
) -> Result<(), SourceError> {
    for stat in stats(text).map_err(|e| file.broken(e))? {
        let stat = stat.map_err(|e| file.broken(e))?;
        let Some((name, start)) = lines.see(stat.name, boot, |_| true) else { continue };
        match kind {
            Kind::Llite => push_operation(file, name, &stat, start, of),
            _ => push_target(file, &stat, start, of),
        }
    }
    Ok(())
}

fn push_operation(
    file: &Value<File>,
    name: &str,
    stat: &Stat<'_>,
    start: Timestamp,
    of: &mut SampleWriter<'_>,
) {
    let (count, sum) = (stat.count as f64, stat.sum.map(|sum| sum as f64));
    let of_bytes = match stat.name {
        b"read_bytes" => Some((&READS, &READ_BYTES)),
        b"write_bytes" => Some((&WRITES, &WRITTEN_BYTES)),
        _ => None,
    };
    if let Some((times, bytes)) = of_bytes {
        file.labelled(|labels| {
            of.counter(times, labels, count, start);
            if let Some(sum) = sum {
                of.counter(bytes, labels, sum, start);
            }
        });
    } else if stat.unit != b"bytes" && stat.unit != b"pages" {
        file.labelled_and(&[("operation", name)], |labels| {
            of.counter(&OPERATIONS, labels, count, start);
            if let (Some(sum), b"usec") = (sum, stat.unit) {
                of.counter(&OPERATION_TIME, labels, sum / 1e6, start);
            }
        });
    }
}

fn push_target(file: &Value<File>, stat: &Stat<'_>, start: Timestamp, of: &mut SampleWriter<'_>) {
    let sum = stat.sum.map(|sum| sum as f64);
    file.labelled(|labels| match (stat.name, sum) {
        (b"req_waittime", Some(sum)) => {
            of.counter(&REQUESTS, labels, stat.count as f64, start);
            of.counter(&REQUEST_TIME, labels, sum / 1e6, start);
        }
        (b"read_bytes", Some(sum)) => of.counter(&TARGET_READ_BYTES, labels, sum, start),
        (b"write_bytes", Some(sum)) => of.counter(&TARGET_WRITTEN_BYTES, labels, sum, start),
        _ => {}
    });
}

fn push_lnet(
    file: &Value<File>,
    text: &[u8],
    boot: Timestamp,
    of: &mut SampleWriter<'_>,
) -> Result<(), SourceError> {
    let stats = lnet(text).map_err(|e| file.broken(e))?;
    of.gauge(&MESSAGES, &[], stats.messages as f64);
    of.counter(&LNET_ERRORS, &[], stats.errors as f64, boot);
    for (metric, count) in LNET_COUNTS.iter().zip(stats.counts) {
        of.counter(metric, &[], count as f64, boot);
    }
    for (metric, bytes) in LNET_BYTES.iter().zip(stats.bytes) {
        of.counter(metric, &[], bytes as f64, boot);
    }
    Ok(())
}

fn walk(walk: &mut Walk<'_, File>, prefix: &[Box<str>], targets: bool) {
    // debugfs hides its contents from users other than root; these directories show whether the modules
    // are loaded.
    let is_there =
        ["proc/fs/lustre", "sys/fs/lustre"].iter().any(|dir| !walk.names(dir).is_empty());
    let dirs = DIRS.iter().filter(|dir| is_there || !dir.contains("debug"));
    let mut found = false;
    // A mount's own directory covers the whole mount; targets are read only with the option.
    let kinds = if targets { &["llite", "mdc", "osc"][..] } else { &["llite"] };
    for kind in kinds {
        let mut known = Vec::new();
        for dir in dirs.clone() {
            let is_closed = || matches!(walk.root().stat(dir), Err(ReadError::Denied { .. }));
            if !known.is_empty() && is_closed() {
                continue;
            }
            for name in walk.names(&format!("{dir}/{kind}")) {
                let Some((filesystem, part, client)) = parts(&name) else { continue };
                let wanted =
                    prefix.is_empty() || prefix.iter().any(|prefix| **prefix == *filesystem);
                if !wanted || known.contains(&name) {
                    continue;
                }
                let path = format!("{dir}/{kind}/{name}/stats");
                let there = match part {
                    "" => {
                        let labels = [("filesystem", filesystem), ("client", client)];
                        walk.table(&path, &labels, Kind::Llite.into())
                    }
                    target if targets => {
                        let labels = [("target", target), ("client", client)];
                        walk.table(&path, &labels, Kind::Target.into())
                    }
                    _ => false,
                };
                found |= there;
                if there {
                    known.push(name);
                }
            }
        }
    }
    // Without a mount, the LNet network of loaded modules is unused.
    for path in LNET.iter().take(if found { LNET.len() } else { 0 }) {
        if walk.table(path, &[], Kind::Lnet.into()) {
            break;
        }
    }
}

/// The file system, the target (empty for a mount) and the client in the name of a directory:
/// `scratch-ffff9e0c4e1a3000`, `scratch-OST0003-osc-ffff9e0c4e1a3000`.
fn parts(name: &str) -> Option<(&str, &str, &str)> {
    let (rest, client) = name.rsplit_once('-')?;
    if client.is_empty() || !client.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let target = rest.strip_suffix("-osc").or_else(|| rest.strip_suffix("-mdc"));
    match target {
        Some(target) => Some((target.rsplit_once('-')?.0, target, client)),
        None => Some((rest, "", client)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_names() {
        for (name, expected) in [
            ("scratch-ffff9e0c4e1a3000", Some(("scratch", "", "ffff9e0c4e1a3000"))),
            ("my-fs-ffff9e0c", Some(("my-fs", "", "ffff9e0c"))),
            ("scratch-OST0003-osc-ffff9e0c", Some(("scratch", "scratch-OST0003", "ffff9e0c"))),
            ("my-fs-MDT0000-mdc-ffff9e0c", Some(("my-fs", "my-fs-MDT0000", "ffff9e0c"))),
            // A server's own connection, not a client's.
            ("scratch-OST0003-osc-MDT0000", None),
            ("num_refs", None),
            ("scratch-", None),
        ] {
            assert_eq!(parts(name), expected, "{name}");
        }
    }
}
