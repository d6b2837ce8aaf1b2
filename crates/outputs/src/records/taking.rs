//! Portions in, records out.
//!
//! A record is complete when a later sample of its source and device is at another instant: the order of a follower keeps the
//! samples of a batch together (decision 0060), also where it divides them between portions.

use crate::portion::{Row, rows};
use crate::records::columns::{Columns, Use, is_own};
use crate::records::held::{HeldLimit, Host, Stream};
use crate::records::layout::Layout;
use crate::records::making::{source, values};
use colmet::backends::{BACKENDS, Backend, IPMIPOWER};
use colmet::equivalent::Scope;
use colmet::record::{NO_JOB, Record, Value, involved_jobs};
use model::{Point, Timestamp, USER_LABEL};
use rustc_hash::FxBuildHasher;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::hash::BuildHasher as _;
use std::io;
use storage::{SeriesInfo, TimeSlice};

/// Most numbers that are held: 10 000 nodes with 200 each.
const HELD_MAX: usize = 2_000_000;
/// A device or job without samples for longer is forgotten.
const IDLE_US: i64 = 3600 * Timestamp::SECOND;

/// Samples that no record has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeftOut {
    /// Of jobs of other clusters.
    pub(crate) jobs: u64,
    /// Beyond the limit of what is held.
    pub(crate) limit: u64,
    /// Values that the receiver cannot take.
    pub(crate) values: u64,
}

impl LeftOut {
    pub(crate) const fn sum(self) -> u64 {
        self.jobs + self.limit + self.values
    }
}

/// Makes records of samples.
#[derive(Debug)]
pub(crate) struct Records {
    layout: Layout,
    columns: Columns,
    held_max: usize,
    kept: Kept,
}

/// What is kept between portions.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    cluster: String,
    /// The newest instant of all samples.
    newest: i64,
    hosts: BTreeMap<Box<str>, Host>,
}

impl Records {
    /// Nothing is kept yet.
    pub(crate) fn new(layout: Layout) -> Self {
        let columns = Columns::new(&layout);
        let cluster = layout.cluster.as_str().to_owned();
        let kept = Kept { cluster, newest: i64::MIN, hosts: BTreeMap::new() };
        Self { layout, columns, held_max: HELD_MAX, kept }
    }

    /// Continues with what [`Self::kept`] returned, possibly of a cluster that the configuration had earlier.
    ///
    /// # Errors
    /// The text is damaged.
    pub(crate) fn with(layout: Layout, kept: &[u8]) -> io::Result<Self> {
        let mut new = Self::new(layout);
        let mut kept: Kept = serde_json::from_slice(kept)?;
        if kept.cluster != new.kept.cluster {
            kept.cluster.clone_from(&new.kept.cluster);
            kept.hosts.values_mut().for_each(Host::forget_all_jobs);
        }
        new.kept = kept;
        Ok(new)
    }

    /// What must be kept to continue after the portions so far.
    ///
    /// # Errors
    /// None is expected: only texts and numbers are written.
    pub(crate) fn kept(&self) -> io::Result<Vec<u8>> {
        Ok(serde_json::to_vec(&self.kept)?)
    }

    /// The records that are complete after a portion, ordered by instant, and the samples that no record has. Everything
    /// before `ended` was delivered, so that no instant before it gets another sample. A sample after `now` makes nothing
    /// old: its node has a wrong clock.
    pub(crate) fn take(
        &mut self,
        samples: &TimeSlice,
        ended: Option<Timestamp>,
        now: Timestamp,
    ) -> (Vec<Record>, LeftOut) {
        let mut out = Vec::new();
        let held = self.kept.hosts.values().map(Host::size).sum();
        let mut limit = HeldLimit { left: self.held_max.saturating_sub(held), rejected: 0 };
        let mut left_out = LeftOut::default();
        if let Some(ended) = ended {
            let has_ended = |open| open < ended.0;
            for (name, host) in &mut self.kept.hosts {
                close_all(host, &has_ended, (name, &self.layout), &mut out);
            }
        }
        let newest = samples.times.last().map_or(i64::MIN, |at| now.0.min(*at));
        self.kept.newest = self.kept.newest.max(newest);
        let mut all = rows(samples).peekable();
        while let Some(row) = all.next() {
            // Of two values of one series and instant, the later one counts.
            let is_replaced = all
                .peek()
                .is_some_and(|next| next.at == row.at && SeriesInfo::same(next.series, row.series));
            if !is_replaced && row.value.is_finite() {
                self.add(&row, (&mut limit, &mut left_out), &mut out);
            }
        }
        self.forget_idle(&mut out);
        left_out.limit = limit.rejected;
        let place = |of: &Record| BACKENDS.iter().position(|backend| *backend == of.backend);
        out.sort_by(|a, b| (a.at, &a.host, place(a), a.job).cmp(&(b.at, &b.host, place(b), b.job)));
        (out, left_out)
    }

    fn add(
        &mut self,
        row: &Row<'_>,
        (limit, left_out): (&mut HeldLimit, &mut LeftOut),
        out: &mut Vec<Record>,
    ) {
        let series = &row.series.series;
        // A user inserted it, under a name of the user's choice: it is no measurement of the node.
        if series.labels.has(USER_LABEL) {
            return;
        }
        let job = match &series.job {
            None => NO_JOB,
            Some(key) if key.cluster == self.layout.cluster => {
                u64::try_from(key.id.get()).unwrap_or(NO_JOB)
            }
            Some(_) => {
                left_out.jobs += 1;
                return;
            }
        };
        let uses = self.columns.uses(&series.metric);
        if job == NO_JOB && uses.is_empty() {
            return;
        }
        let Kept { hosts, newest, .. } = &mut self.kept;
        let name = series.device.as_str();
        if !hosts.contains_key(name) && !limit.take() {
            return;
        }
        let host = hosts.entry(name.into()).or_default();
        host.touched = *newest;
        if job != NO_JOB {
            host.see_job(job, row.at, limit);
        }
        let scope = if job == NO_JOB { Scope::Node } else { Scope::Job };
        for one in uses.iter().filter(|one| one.backend.scope == scope) {
            add_to(host, one, (row, job, *newest), limit, &self.layout, out);
        }
    }

    /// Forgets devices and jobs that are silent for long, after their last records.
    fn forget_idle(&mut self, out: &mut Vec<Record>) {
        let since = self.kept.newest.saturating_sub(IDLE_US);
        let layout = &self.layout;
        self.kept.hosts.retain(|name, host| {
            let is_present = host.touched >= since;
            if is_present {
                host.forget_jobs(since);
            } else {
                close_all(host, &|_| true, (name, layout), out);
            }
            is_present
        });
    }
}

/// Adds a sample to the records of one backend.
fn add_to(
    host: &mut Host,
    one: &Use,
    (row, job, newest): (&Row<'_>, u64, i64),
    limit: &mut HeldLimit,
    layout: &Layout,
    out: &mut Vec<Record>,
) {
    let series = &row.series.series;
    let keys = one.keys(&series.labels);
    if keys.is_empty() {
        return;
    }
    let id = one.backend.id;
    let open = host.streams.get(id).and_then(|stream| stream.open);
    let jobs = (one.opens && open != Some(row.at)).then(|| host.jobs_at(row.at));
    let stream = host.streams.entry(id.into()).or_default();
    if let Some(jobs) = jobs {
        close(one.backend, stream, (series.device.as_str(), layout), out);
        (stream.open, stream.jobs) = (Some(row.at), jobs);
    }
    if !is_own(&series.metric) {
        stream.see(source(&series.metric), row.at);
    }
    let Some(entity) = stream.entity(job, newest, limit) else { return };
    let mut value = Some(row.value);
    if one.is_growth {
        let start = Some(row.start).filter(|start| *start != TimeSlice::NO_START).map(Timestamp);
        let point = Point { at: Timestamp(row.at), value: row.value, start };
        value =
            entity.growth(&format!("{}{}", series.metric, series.labels.as_str()), point, limit);
    }
    let hash = FxBuildHasher.hash_one((&series.metric, series.labels.as_str()));
    for key in keys {
        if let Some(value) = value {
            entity.add(key, row.at, (hash, value), limit);
        }
    }
}

/// Adds the records of the open instants for which this returns true.
fn close_all(
    host: &mut Host,
    has_ended: &dyn Fn(i64) -> bool,
    of: (&str, &Layout),
    out: &mut Vec<Record>,
) {
    for (id, stream) in &mut host.streams {
        if let Some(backend) = Backend::of_python(id)
            && stream.open.is_some_and(has_ended)
        {
            close(backend, stream, of, out);
        }
    }
}

/// Adds the records of the open instant of a backend: of the node, or of each job.
fn close(
    backend: &'static Backend,
    stream: &mut Stream,
    (device, layout): (&str, &Layout),
    out: &mut Vec<Record>,
) {
    let Some(at) = stream.open.take() else { return };
    let jobs = involved_jobs(std::mem::take(&mut stream.jobs));
    for (job, entity) in &stream.of {
        if let Some(values) = values(backend, (stream, entity), at, layout) {
            let (host, job) = (layout.host(device), *job);
            let mut record = Record { backend, host, job, at: Timestamp(at), values };
            record.set("involved_jobs", Value::Text(jobs.as_str().into()));
            out.push(record);
        }
    }
    if *backend != IPMIPOWER {
        stream.of.values_mut().for_each(|entity| entity.end(backend, at));
    }
}

#[cfg(test)]
impl Records {
    /// The same with another limit of what is held.
    pub(super) fn holding(mut self, held_max: usize) -> Self {
        self.held_max = held_max;
        self
    }
}
