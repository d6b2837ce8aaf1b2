//! The BeeGFS client: connections to its servers, states of their targets, length of its own queues.
//!
//! Reads `/proc/fs/beegfs/SESSION/{mgmt_nodes,meta_nodes,storage_nodes,meta_target_state,storage_target_state,.status}`
//! (BeeGFS 7 and 8), see [`kernel::beegfs`]:
//!
//! ```text
//! storage-01 [ID: 1]
//!    Connections: TCP: 1 (192.0.2.7:8003 [fallback route]);
//! [Target ID: 101] @ beegfs-storage storage-01 [ID: 1]: Online / Good
//! numDelayedClose: 0
//! ```
//!
//! A mount has the label `config`, its configuration file, because the name of its session changes with every
//! mount. One slow connection slows a whole job: a server reached by TCP where others use RDMA, a fallback
//! route, or a target that is not online. The client exposes no counters of bytes read and written; only its
//! servers have them.

use crate::reading::values::{Value, Values, Walk};
use crate::{Context, Every, Open, SampleWriter, Sink, Source, SourceError, SourceSpec};
use kernel::beegfs::{CONSISTENCY, REACH, WAYS, servers, status, targets};
use model::setting::{Kind, OptionSpec};
use model::{Metric, Unit};

const DIR: &str = "proc/fs/beegfs";

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "beegfs",
    help: "The BeeGFS client: connections to servers, states of targets, length of its queues.",
    reads: &[
        "/proc/fs/beegfs/*/{config,.status}",
        "/proc/fs/beegfs/*/{mgmt,meta,storage}_nodes",
        "/proc/fs/beegfs/*/{meta,storage}_target_state",
    ],
    cost: "six files a mount; grows with servers and targets, by one or two lines each",
    every: Every::Tick,
    metrics: &[
        &SERVERS,
        &FALLBACKS,
        &CONNECTIONS,
        &SERVER_CONNECTIONS,
        &REACHED,
        &CONSISTENCY_STATES,
        &QUEUES[0].1,
        &QUEUES[1].1,
        &QUEUES[2].1,
        &QUEUES[3].1,
        &QUEUES[4].1,
        &QUEUES[5].1,
        &QUEUES[6].1,
    ],
    options: &[OptionSpec {
        name: "servers",
        kind: Kind::Switch,
        default: "false",
        help: "Also the connections to each server: one to three more series per server.",
    }],
    open,
    ..SourceSpec::DEFAULT
};

static SERVERS: Metric = gauge("beegfs_servers", "Servers of a role in the client's list.");
static FALLBACKS: Metric = gauge(
    "beegfs_fallback_servers",
    "The part of beegfs_servers with a fallback route: some first connection does not go to the preferred address.",
);
static CONNECTIONS: Metric = gauge("beegfs_connections", "Open connections to servers of a role.");
static SERVER_CONNECTIONS: Metric =
    gauge("beegfs_server_connections", "The part of beegfs_connections to one server.");
static REACHED: Metric = gauge(
    "beegfs_targets_reached",
    "Targets by reachability, as reported by the management server.",
);
static CONSISTENCY_STATES: Metric = gauge(
    "beegfs_targets_standing",
    "Targets by consistency of their data, as reported by the management server.",
);

/// Names in `.status`, and their metrics.
static QUEUES: [(&[u8], Metric); 7] = [
    (b"numAvailableMsgBufs", gauge("beegfs_free_message_buffers", "Free message buffers.")),
    (b"numAvailableIOBufs", gauge("beegfs_free_io_buffers", "Free buffers of the file cache.")),
    (
        b"numDelayedClose",
        gauge("beegfs_delayed_closes", "Closes of files that a server has not accepted yet."),
    ),
    (
        b"numDelayedEntryUnlock",
        gauge(
            "beegfs_delayed_entry_unlocks",
            "Unlocks of files that a server has not accepted yet.",
        ),
    ),
    (
        b"numDelayedRangeUnlock",
        gauge(
            "beegfs_delayed_range_unlocks",
            "Unlocks of byte ranges that a server has not accepted yet.",
        ),
    ),
    (b"numEnqueuedAcks", gauge("beegfs_queued_acks", "Acknowledgements waiting to be sent.")),
    (
        b"numFlushRefs",
        gauge("beegfs_unflushed_files", "Files with cached data that is not written yet."),
    ),
];

const fn gauge(name: &'static str, help: &'static str) -> Metric {
    Metric::gauge(name, Unit::Count, help)
}

/// Content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum File {
    Servers,
    Targets,
    Status,
}

struct Beegfs {
    files: Values<File>,
    each_server: bool,
    name: String,
}

fn open(open: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    let each_server = open.options.switch("servers");
    Ok(Box::new(Beegfs { files: Values::default(), each_server, name: String::new() }))
}

impl Source for Beegfs {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        let Self { files, each_server, name } = self;
        files.look(cx.root, cx.now, "/proc/fs/beegfs: no mount of BeeGFS", walk)?;
        let mut of = out.of_device();
        let read = files.each_text(|file, text| match file.kept {
            File::Servers => push_servers(file, text, *each_server, name, &mut of),
            File::Targets => push_targets(file, text, &mut of),
            File::Status => push_status(file, text, &mut of),
        });
        read.state("mounts", out)
    }
}

fn push_servers(
    file: &Value<File>,
    text: &[u8],
    each_server: bool,
    name: &mut String,
    of: &mut SampleWriter<'_>,
) -> Result<(), SourceError> {
    let (mut count, mut fallbacks, mut sums) = (0_u64, 0_u64, [0_u64; WAYS.len()]);
    let parsed = servers(text, |server| {
        count += 1;
        fallbacks += u64::from(server.is_fallback);
        for ((sum, way), connections) in sums.iter_mut().zip(WAYS).zip(server.connections) {
            *sum = sum.saturating_add(connections);
            if each_server && connections > 0 {
                name.clear();
                server.name.utf8_chunks().for_each(|part| name.push_str(part.valid()));
                let more = [("server", name.as_str()), ("way", way)];
                file.labelled_and(&more, |labels| {
                    of.gauge(&SERVER_CONNECTIONS, labels, connections as f64);
                });
            }
        }
    });
    parsed.map_err(|e| file.broken(e))?;
    file.labelled(|labels| {
        of.gauge(&SERVERS, labels, count as f64);
        of.gauge(&FALLBACKS, labels, fallbacks as f64);
    });
    for (way, sum) in WAYS.iter().zip(sums) {
        file.labelled_and(&[("way", way)], |labels| of.gauge(&CONNECTIONS, labels, sum as f64));
    }
    Ok(())
}

fn push_targets(
    file: &Value<File>,
    text: &[u8],
    of: &mut SampleWriter<'_>,
) -> Result<(), SourceError> {
    let counts = targets(text).map_err(|e| file.broken(e))?;
    for ((_, state), count) in REACH.iter().zip(counts.reach) {
        file.labelled_and(&[("state", state)], |labels| of.gauge(&REACHED, labels, count as f64));
    }
    for ((_, state), count) in CONSISTENCY.iter().zip(counts.consistency) {
        file.labelled_and(&[("state", state)], |labels| {
            of.gauge(&CONSISTENCY_STATES, labels, count as f64)
        });
    }
    Ok(())
}

fn push_status(
    file: &Value<File>,
    text: &[u8],
    of: &mut SampleWriter<'_>,
) -> Result<(), SourceError> {
    let parsed = status(text, |name, value| {
        let known = QUEUES.iter().find(|(known, _)| *known == name);
        if let Some((_, metric)) = known {
            file.labelled(|labels| of.gauge(metric, labels, value as f64));
        }
    });
    parsed.map_err(|e| file.broken(e))
}

fn walk(walk: &mut Walk<'_, File>) {
    let mut configs: Vec<String> = Vec::new();
    for session in walk.names(DIR) {
        let at = |file: &str| format!("{DIR}/{session}/{file}");
        let settings = walk.text(&at("config")).unwrap_or_default();
        let file = settings.lines().find_map(|line| line.strip_prefix("cfgFile = "));
        let file = file.unwrap_or_default().trim();
        // Number the mounts that share one configuration file.
        let same = configs.iter().filter(|known| *known == file).count();
        let config = if same == 0 { file.to_owned() } else { format!("{file} {}", same + 1) };
        configs.push(file.to_owned());
        for (role, servers, targets) in [
            ("management", "mgmt_nodes", None),
            ("meta", "meta_nodes", Some("meta_target_state")),
            ("storage", "storage_nodes", Some("storage_target_state")),
        ] {
            let labels = [("config", &*config), ("role", role)];
            walk.table(&at(servers), &labels, File::Servers);
            if let Some(targets) = targets {
                walk.table(&at(targets), &labels, File::Targets);
            }
        }
        walk.table(&at(".status"), &[("config", &config)], File::Status);
    }
}
