//! The options of outputs that carry Colmet's records.

use crate::written_file::option;
use colmet::backends::{Column, EVENTS, PERFHW};
use config::OutputConfig;
use model::setting::{Kind, OptionSpec};
use model::{ClusterId, DeviceId};

/// The cluster of the jobs.
pub(crate) const CLUSTER: OptionSpec = OptionSpec {
    name: "cluster",
    kind: Kind::TextOf("CLUSTER", is_cluster),
    default: "",
    help: "Colmet's records: the cluster of their jobs. They have only a job's number, so jobs of other clusters are left out and counted.",
};
/// Why a configuration without it is rejected.
pub(crate) const NEEDS_CLUSTER: &str =
    "Colmet's records have only a job's number: it needs `cluster`, the cluster of the jobs";
/// The domain of host names.
pub(crate) const DOMAIN: OptionSpec = OptionSpec {
    name: "domain",
    kind: Kind::TextOf("DOMAIN", is_domain),
    default: "",
    help: "Colmet's records: appended to host names, such as `cluster.example.org`.",
};
/// The events of perfhw.
pub(crate) const PERF_COUNTERS: OptionSpec = OptionSpec {
    name: "perf_counters",
    kind: Kind::ListOf("EVENT", are_events),
    default: "instructions,cache_misses,page_faults",
    help: "Colmet's records: the events of counter_1 to counter_5 of perfhw, as its `--perfhw-list` names them.",
};

/// What the options mean.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The cluster of the jobs.
    pub(crate) cluster: ClusterId,
    /// Empty, or appended to host names after a dot.
    domain: String,
    /// The columns of [`EVENTS`] that are the counters of perfhw.
    pub(super) events: Vec<&'static Column>,
    /// Events for which perfhw has no counter.
    pub(crate) events_left_out: usize,
}

impl Layout {
    /// The layout of an output with the options of this file; `None`: it names no cluster.
    pub(crate) fn of(config: &OutputConfig) -> Option<Self> {
        let option = |name| option(config, name);
        let events = words(option(PERF_COUNTERS.name)).filter_map(event).collect();
        let cluster = ClusterId::new(option(CLUSTER.name)).ok()?;
        Some(Self::new(cluster, option(DOMAIN.name), events))
    }

    /// Records of the jobs of a cluster, with this domain of host names (possibly empty) and these columns of [`EVENTS`] as the
    /// counters of perfhw. Events beyond its counters are left out.
    pub fn new(cluster: ClusterId, domain: &str, mut events: Vec<&'static Column>) -> Self {
        let events_left_out = events.len().saturating_sub(PERFHW.columns.len());
        events.truncate(PERFHW.columns.len());
        let domain = domain.trim_start_matches('.').to_owned();
        Self { cluster, domain, events, events_left_out }
    }

    /// The name of a device's host: cut at the first dot, then the domain.
    pub(super) fn host(&self, device: &str) -> String {
        let name = device.split('.').next().unwrap_or_default();
        if self.domain.is_empty() { name.to_owned() } else { format!("{name}.{}", self.domain) }
    }
}

fn words(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|word| !word.is_empty())
}

fn event(name: &str) -> Option<&'static Column> {
    EVENTS.columns.get(EVENTS.position(name)?)
}

fn is_cluster(text: &str) -> Result<(), String> {
    match text {
        "" => Ok(()),
        text => ClusterId::new(text).map(drop).map_err(|error| error.to_string()),
    }
}

fn is_domain(text: &str) -> Result<(), String> {
    match text.trim_start_matches('.') {
        "" => Ok(()),
        domain => DeviceId::new(domain).map(drop).map_err(|error| error.to_string()),
    }
}

fn are_events(list: &str) -> Result<(), String> {
    match words(list).find(|word| event(word).is_none()) {
        None => Ok(()),
        Some(word) => {
            let all = EVENTS.columns.iter().map(|column| column.row.theirs);
            Err(format!("`{word}` is none of {}", all.collect::<Vec<_>>().join(", ")))
        }
    }
}
