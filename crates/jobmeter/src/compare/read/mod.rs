//! Reads a side.
//!
//! - `rest`: rows of jobmeter's and Kwollect's servers. `files`: HDF5. `elasticsearch`, `graphite`: those.
//! - `remote`: requests to other servers than jobmeter's.

mod elasticsearch;
mod files;
mod graphite;
mod remote;
mod rest;

use super::rows::Sink;
use super::side::{Kind, Side};
use config::ClientSettings;
use model::Timestamp;
use std::path::Path;

/// Longest time of one request.
const REQUEST_US: i64 = 3600 * Timestamp::SECOND;

/// What is read of a side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    /// The first instant, in microseconds since 1970.
    pub(super) from: i64,
    /// The end, exclusive.
    pub(super) to: i64,
    /// Only these devices.
    pub(super) devices: Option<&'a [String]>,
    /// Only this job, as the user wrote it: `[CLUSTER:]ID`.
    pub(super) job: Option<&'a str>,
    /// The file with the secret for the side's server.
    pub(super) auth: Option<&'a Path>,
    /// The option that names it.
    pub(super) auth_option: &'static str,
    pub(super) settings: &'a ClientSettings,
    /// The server that other commands query: only that one receives the token of the settings.
    pub(super) server: &'a str,
}

impl<'a> Request<'a> {
    /// The parts of the time, each for one request.
    fn times(&self) -> impl Iterator<Item = (i64, i64)> {
        let mut at = self.from;
        let to = self.to;
        std::iter::from_fn(move || {
            let from = at;
            at = at.saturating_add(REQUEST_US).min(to);
            (from < at).then_some((from, at))
        })
    }

    /// The cluster and the number of the job.
    fn job_parts(&self) -> Option<(Option<&'a str>, &'a str)> {
        let job = self.job?;
        Some(job.split_once(':').map_or((None, job), |(cluster, id)| (Some(cluster), id)))
    }
}

/// Reads a side into a sink.
pub(super) fn read(side: &Side, request: &Request<'_>, sink: &mut Sink<'_>) -> anyhow::Result<()> {
    match side {
        Side::Files(prefix) => files::read(prefix, request, sink),
        Side::Remote { kind, url, prefix } => match kind {
            Kind::Server => rest::read(url, false, request, sink),
            Kind::ColmetOfServer => rest::read(url, true, request, sink),
            Kind::Kwollect => rest::read_kwollect(url, request, sink),
            Kind::Elasticsearch => elasticsearch::read(url, prefix, request, sink),
            Kind::Graphite => graphite::read(url, prefix, false, request, sink),
            Kind::Fructosa => graphite::read(url, prefix, true, request, sink),
        },
    }
}
