//! Polls OAR through its REST API.
//!
//! A quiet round is two calls: a list of the jobs that are not over, and a list of those that ended since the
//! previous round.
//! A round with changes adds one call for the details of up to [`JOBS_MAX`] jobs.
//! OAR runs a program for each call and several statements for the details of each job. Prefer the database
//! where it is reachable.
//! The API does not report the index in an array, and it does not distinguish an array's first job from a single job.

use super::job::OarJob;
use super::states::{OPEN, OVER};
use super::track::{Listed, ListedState, Track};
use crate::http::CallLimits;
use crate::{Changes, Endpoint, Scheduler, SchedulerError, Tls};
use async_trait::async_trait;
use base64::Engine;
use bytes::Bytes;
use jobs::JobRecord;
use model::{ClusterId, Timestamp};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeSet;
use std::time::Duration;

/// Most jobs with details per round.
const JOBS_MAX: usize = 100;
/// Most jobs of a page of a list.
const PAGE: usize = 5000;
/// Most pages of a list.
const PAGES_MAX: usize = 20;
/// Overlap of successive intervals for ended jobs: clocks differ.
const OVERLAP_SECONDS: i64 = 60;
/// Longest answer, in bytes.
const ANSWER_BYTES_MAX: u64 = 32 << 20;
/// Most messages about unreadable jobs.
const REJECTED_MAX: usize = 100;

/// OAR, polled through its REST API.
pub struct OarRest {
    cluster: ClusterId,
    endpoint: Endpoint,
    /// The header `Authorization`, if any.
    headers: Vec<(&'static str, String)>,
    limits: CallLimits,
    track: Track,
    /// Start of the next interval for ended jobs, in seconds; `None` before the first round.
    since: Option<i64>,
    /// Jobs that the last round listed as ended.
    over: BTreeSet<i64>,
}

/// Hides the secret header.
impl std::fmt::Debug for OarRest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OarRest").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl OarRest {
    /// The API at `http[s]://host[:port]/path`, with a login or anonymously. `None` if the URL is malformed, or
    /// `https` without `tls`.
    pub fn new(
        cluster: ClusterId,
        url: &str,
        tls: Option<Tls>,
        login: Option<(&str, &str)>,
        call_time_max: Duration,
    ) -> Option<Self> {
        let encode = |(user, password): (&str, &str)| {
            let both =
                base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
            ("authorization", format!("Basic {both}"))
        };
        Some(Self {
            cluster,
            endpoint: Endpoint::new("OAR's REST API", url, tls)?,
            headers: login.map(encode).into_iter().collect(),
            limits: CallLimits { time_max: call_time_max, bytes_max: ANSWER_BYTES_MAX },
            track: Track::default(),
            since: None,
            over: BTreeSet::new(),
        })
    }

    async fn get(&self, path: &str) -> Result<Bytes, SchedulerError> {
        let (status, body) = self.endpoint.get(path, &self.headers, self.limits).await?;
        if status.is_success() { Ok(body) } else { Err(self.endpoint.rejected(status, &body)) }
    }

    /// Reads a list page by page, up to the limit. Also returns whether the list is complete.
    async fn list(
        &self,
        query: &str,
        calls: &mut u32,
    ) -> Result<(Vec<Summary>, bool), SchedulerError> {
        let mut all = Vec::new();
        for page in 0..PAGES_MAX {
            let offset = page * PAGE;
            *calls += 1;
            let path = format!("/jobs.json?{query}&limit={PAGE}&offset={offset}");
            let items: Vec<Summary> = self.items(&self.get(&path).await?)?;
            let is_last = items.len() < PAGE;
            all.extend(items);
            if is_last {
                return Ok((all, true));
            }
        }
        Ok((all, false))
    }

    fn items<T: DeserializeOwned>(&self, body: &Bytes) -> Result<Vec<T>, SchedulerError> {
        let page: Result<Page<T>, _> = serde_json::from_slice(body);
        Ok(page.map_err(|error| self.endpoint.malformed(error.to_string()))?.items)
    }

    /// Fetches the details of these jobs.
    async fn details(&self, ids: &[i64], changes: &mut Changes) -> Result<(), SchedulerError> {
        let list: Vec<String> = ids.iter().map(ToString::to_string).collect();
        let path =
            format!("/jobs/details.json?ids={}&limit={}&offset=0", list.join(":"), ids.len());
        changes.calls += 1;
        let body = self.get(&path).await?;
        // An unreadable job does not affect others.
        for item in self.items::<serde_json::Value>(&body)? {
            let id = item.get("id").map(ToString::to_string).unwrap_or_default();
            let record = serde_json::from_value::<Details>(item)
                .map_err(|error| format!("job {id}: {error}"))
                .and_then(|details| details.job().record(&self.cluster));
            match record {
                Ok(record) => changes.records.push(record),
                Err(what) if changes.rejected.len() < REJECTED_MAX => changes.rejected.push(what),
                Err(_) => {}
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Scheduler for OarRest {
    fn cluster(&self) -> &ClusterId {
        &self.cluster
    }

    async fn changes(
        &mut self,
        from: Timestamp,
        now: Timestamp,
    ) -> Result<Changes, SchedulerError> {
        let mut changes = Changes::default();
        let query = format!("state={}", OPEN.join(","));
        let (open, is_whole) = self.list(&query, &mut changes.calls).await?;
        let since = self.since.unwrap_or(from.0.div_euclid(Timestamp::SECOND));
        let until = now.0.div_euclid(Timestamp::SECOND);
        let (earliest, latest) = (since - OVERLAP_SECONDS, until + OVERLAP_SECONDS);
        let query = format!("state={}&from={earliest}&to={latest}", OVER.join(","));
        let (over, over_is_whole) = self.list(&query, &mut changes.calls).await?;
        for (name, is_whole) in [("are not over", is_whole), ("ended", over_is_whole)] {
            if !is_whole {
                let most = PAGE * PAGES_MAX;
                changes.rejected.push(format!("more than {most} jobs {name}; the rest is skipped"));
            }
        }
        let cut_after = open.last().map(|job| job.id).filter(|_| !is_whole);
        let open = open
            .into_iter()
            .map(|job| (job.id, ListedState { state: job.state.into(), ..ListedState::default() }));
        let listed = Listed { open: open.collect(), cut_after };
        let over: BTreeSet<i64> = over.into_iter().map(|job| job.id).collect();
        self.track.queue(over.difference(&self.over).copied());
        (self.over, self.since) = (over, Some(until));
        let (wanted, more) = self.track.wanted(&listed, now, JOBS_MAX);
        if !wanted.is_empty() {
            self.details(&wanted, &mut changes).await?;
        }
        let ended = |record: &&JobRecord| record.stop.is_some();
        let ended: Vec<i64> =
            changes.records.iter().filter(ended).map(|record| record.key.id.get()).collect();
        self.track.record_queried(&wanted, &listed, &ended, now);
        changes.has_more = more;
        Ok(changes)
    }
}

#[derive(Deserialize)]
struct Page<T> {
    items: Vec<T>,
}

/// A job in a list.
#[derive(Deserialize)]
struct Summary {
    #[serde(deserialize_with = "number")]
    id: i64,
    state: String,
}

/// A job's details; missing fields are empty.
#[derive(Deserialize)]
struct Details {
    #[serde(deserialize_with = "number")]
    id: i64,
    state: String,
    #[serde(default)]
    owner: Option<String>,
    #[serde(default)]
    project: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    queue: Option<String>,
    #[serde(default, deserialize_with = "number")]
    array_id: i64,
    #[serde(default, deserialize_with = "maybe")]
    array_index: Option<i64>,
    #[serde(default, deserialize_with = "maybe")]
    exit_code: Option<i64>,
    #[serde(default, deserialize_with = "number")]
    submission_time: i64,
    #[serde(default, deserialize_with = "number")]
    start_time: i64,
    #[serde(default, deserialize_with = "number")]
    stop_time: i64,
    #[serde(default, deserialize_with = "number")]
    walltime: i64,
    #[serde(default)]
    wanted_resources: Option<String>,
    #[serde(default)]
    types: Vec<Box<str>>,
    #[serde(default)]
    resources: Vec<Resource>,
}

/// A row of OAR's resources; columns differ by site.
#[derive(Deserialize)]
struct Resource {
    #[serde(default)]
    network_address: Option<String>,
    #[serde(default, rename = "type")]
    kind: Option<String>,
    /// `assigned`, or `scheduled` for a planned start.
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    cpuset: TextOrNumber,
    #[serde(default)]
    core: TextOrNumber,
    #[serde(default)]
    gpudevice: TextOrNumber,
    #[serde(default)]
    gpu: TextOrNumber,
}

/// A text, or a number as text; empty if null.
#[derive(Default)]
struct TextOrNumber(String);

impl<'de> Deserialize<'de> for TextOrNumber {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self(match Any::deserialize(from)? {
            Any::Number(number) => number.to_string(),
            Any::Text(text) => text,
            Any::Other(_) => String::new(),
        }))
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Any {
    Number(i64),
    Text(String),
    Other(IgnoredAny),
}

/// A number, or a number in quotes: some versions of Perl's JSON write it so.
fn maybe<'de, D: Deserializer<'de>>(from: D) -> Result<Option<i64>, D::Error> {
    Ok(match Any::deserialize(from)? {
        Any::Number(number) => Some(number),
        Any::Text(text) => text.parse().ok(),
        Any::Other(_) => None,
    })
}

fn number<'de, D: Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
    Ok(maybe(from)?.unwrap_or(0))
}

impl Details {
    fn job(self) -> OarJob {
        let given = |resource: &&Resource| {
            resource.status.as_deref() == Some("assigned")
                && resource.kind.as_deref().is_none_or(|kind| kind == "default")
        };
        let mut job = OarJob {
            id: self.id,
            array_id: self.array_id,
            array_index: self.array_index,
            in_array: self.array_id != self.id,
            user: self.owner.unwrap_or_default(),
            project: self.project.unwrap_or_default(),
            name: self.name.unwrap_or_default(),
            queue: self.queue.unwrap_or_default(),
            state: self.state,
            exit_code: self.exit_code,
            submission: self.submission_time,
            start: self.start_time,
            stop: self.stop_time,
            assigned: self.resources.iter().any(|resource| given(&resource)),
            walltime: self.walltime,
            types: self.types,
            ..OarJob::default()
        };
        job.requested.add_text(self.wanted_resources.as_deref().unwrap_or_default());
        for resource in self.resources.iter().filter(given) {
            let gpu = match resource.gpudevice.0.is_empty() {
                true => &resource.gpu.0,
                false => &resource.gpudevice.0,
            };
            let address = resource.network_address.as_deref().unwrap_or_default();
            job.nodes.add(address, &resource.cpuset.0, &resource.core.0, gpu);
        }
        job
    }
}

#[cfg(test)]
mod tests;
