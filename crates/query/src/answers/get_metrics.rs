//! Kwollect's `get_metrics`: parameters, their meaning, and the streamed answer.

use crate::answers::encode::Encoder;
use crate::common::time::SLACK;
use crate::rows::node_rows_filter::NodeRowsFilter;
use crate::rows::slices::AsRate;
use crate::rows::summary;
use crate::rows::table_rows::{Batches, GetMetricsOptions, Rows};
use crate::{QueryContext, QueryEngine, QueryError, RowQuery, View, parse_time};
use jobs::{AccessLevel, JobName, Reader};
use model::{ClusterId, DeviceId, JobKey, Timestamp};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use storage::JobSelector;

/// Length of the time range if one or both bounds are omitted: 5 min.
const DEFAULT_RANGE: i64 = 300 * Timestamp::SECOND;

/// Parameters of `get_metrics` as given, before any lookup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GetMetrics {
    /// The job.
    pub job: Option<JobName>,
    /// The cluster, if several clusters have a job with this ID.
    pub cluster: Option<ClusterId>,
    /// Devices: the union of `nodes` and `devices`; host names are cut at the first dot.
    pub devices: Vec<String>,
    /// Metrics; empty: all metrics.
    pub metrics: Vec<String>,
    /// Start of the time range.
    pub start_time: Option<String>,
    /// End of the time range.
    pub end_time: Option<String>,
    /// Returns 5 min aggregates.
    pub summary: bool,
    /// Whether values appear as rates.
    pub as_rate: AsRate,
}

/// The format of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// A JSON array of objects.
    #[default]
    Json,
    /// Comma-separated, with a header line.
    Csv,
}

impl Format {
    /// The content type in PostgREST's form.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json; charset=utf-8",
            Self::Csv => "text/csv; charset=utf-8",
        }
    }
}

const PARAMETERS: &str =
    "job_id, cluster, nodes, devices, metrics, start_time, end_time, summary and as_rate";

impl GetMetrics {
    /// Parses parameters by name, from a decoded query string or from a JSON object with values converted to
    /// text. A `null` counts as omitted. Of a duplicate parameter the last one counts.
    ///
    /// # Errors
    /// A parameter is unknown, or a value does not have its type.
    pub fn from_pairs<'a>(
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, QueryError> {
        let mut query = Self::default();
        let (mut nodes, mut devices) = (Vec::new(), Vec::new());
        for (name, value) in pairs {
            let some = || Some(value.to_owned()).filter(|text| !text.trim().is_empty());
            match name {
                "job_id" => query.job = Some(job_name(value)?),
                "cluster" => query.cluster = cluster(value)?,
                "nodes" => nodes = list(value),
                "devices" => devices = list(value),
                "metrics" => query.metrics = list(value),
                "start_time" => query.start_time = some(),
                "end_time" => query.end_time = some(),
                "summary" => query.summary = boolean(value)?,
                "as_rate" if value.trim().eq_ignore_ascii_case("auto") => {
                    query.as_rate = AsRate::Auto;
                }
                "as_rate" if boolean(value)? => query.as_rate = AsRate::All,
                "as_rate" => query.as_rate = AsRate::No,
                other => {
                    let parameter = other.chars().take(100).collect();
                    let (function, known) = ("get_metrics", PARAMETERS);
                    return Err(QueryError::Parameter { function, parameter, known });
                }
            }
        }
        devices.append(&mut nodes);
        query.devices = devices;
        Ok(query)
    }
}

fn job_name(text: &str) -> Result<JobName, QueryError> {
    let text = text.trim();
    let number = text.strip_prefix('-').unwrap_or(text);
    // A number below 1 is valid input, but no job has it.
    let none = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(name) => Ok(name),
        Err(_) if none => Err(QueryError::UnknownJob(text.to_owned())),
        Err(_) => Err(syntax("integer", text)),
    }
}

fn cluster(text: &str) -> Result<Option<ClusterId>, QueryError> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    ClusterId::new(text).map(Some).map_err(|error| QueryError::Name(error.to_string()))
}

fn list(text: &str) -> Vec<String> {
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}

/// Parses a boolean as PostgreSQL does: any unambiguous prefix of a word is valid.
fn boolean(text: &str) -> Result<bool, QueryError> {
    let word = text.trim().to_ascii_lowercase();
    let begins = |full: &str, min: usize| word.len() >= min && full.starts_with(&word);
    if begins("true", 1) || begins("yes", 1) || word == "on" || word == "1" {
        Ok(true)
    } else if begins("false", 1) || begins("no", 1) || begins("off", 2) || word == "0" {
        Ok(false)
    } else {
        Err(syntax("boolean", text))
    }
}

fn syntax(type_name: &'static str, text: &str) -> QueryError {
    QueryError::Syntax { type_name, text: text.chars().take(100).collect() }
}

/// An answer in pieces of about 64 KiB. It ends after an error: the pieces before are incomplete, so the server
/// must abort the connection. Errors that are known in advance are returned before the first piece.
pub struct AnswerPieces {
    rows: Option<Batches>,
    encoder: Encoder,
    rows_left: u64,
    rows_max: u64,
}

impl fmt::Debug for AnswerPieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerPieces").field("rows_left", &self.rows_left).finish_non_exhaustive()
    }
}

impl AnswerPieces {
    /// Number of rows read for the pieces so far.
    pub const fn rows(&self) -> u64 {
        self.rows_max.saturating_sub(self.rows_left)
    }

    fn read(&mut self) -> Result<Option<Vec<u8>>, QueryError> {
        loop {
            if let Some(piece) = self.encoder.piece() {
                return Ok(Some(piece));
            }
            let Some(rows) = &mut self.rows else { return Ok(None) };
            match rows.next() {
                Some(batch) => {
                    let batch = batch?;
                    let count = u64::try_from(batch.len()).unwrap_or(u64::MAX);
                    let left = self.rows_left.checked_sub(count);
                    self.rows_left = left.ok_or(QueryError::TooManyRows(self.rows_max))?;
                    self.encoder.take(batch);
                }
                None => {
                    self.encoder.finish();
                    self.rows = None;
                }
            }
        }
    }
}

impl Iterator for AnswerPieces {
    type Item = Result<Vec<u8>, QueryError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.read().transpose();
        if let Some(Err(_)) = &next {
            self.rows = None;
            self.encoder.stop();
        }
        next
    }
}

/// A query with resolved job, devices and times.
#[derive(Debug)]
struct Resolved {
    devices: BTreeSet<DeviceId>,
    job: JobSelector,
    from: Timestamp,
    to: Timestamp,
    /// When node samples (not attributed to a job) are included.
    node_rows: NodeRowsFilter,
}

impl QueryEngine {
    /// Kwollect's `get_metrics`: rows of `metrics_by_device`, ascending by time.
    ///
    /// A job sets the devices, unless some are given, and each omitted time bound. The answer then contains the
    /// rows attributed to the job and the node samples of its devices.
    ///
    /// # Errors
    /// A parameter is invalid. The job is unknown, ambiguous or owned by another user. The answer would be too
    /// large. A block cannot be read.
    pub fn get_metrics(
        &self,
        query: &GetMetrics,
        format: Format,
        context: &QueryContext,
    ) -> Result<AnswerPieces, QueryError> {
        let batches = self.metric_batches(query, context)?;
        let encoder = Encoder::new(format, self.settings.zone.clone());
        let rows_max = self.settings.rows_max;
        Ok(AnswerPieces { rows: Some(batches), encoder, rows_left: rows_max, rows_max })
    }

    /// The rows of [`QueryEngine::get_metrics`], ascending by time.
    ///
    /// # Errors
    /// The same.
    pub fn get_metrics_rows(
        &self,
        query: &GetMetrics,
        context: &QueryContext,
    ) -> Result<Rows, QueryError> {
        Ok(Rows::new(self.metric_batches(query, context)?))
    }

    fn metric_batches(
        &self,
        query: &GetMetrics,
        context: &QueryContext,
    ) -> Result<Batches, QueryError> {
        let resolved = self.resolve(query, context)?;
        let metrics = (!query.metrics.is_empty())
            .then(|| query.metrics.iter().map(|name| Arc::from(name.as_str())).collect());
        let (from, to) = (resolved.from, resolved.to);
        let treatment = GetMetricsOptions { as_rate: query.as_rate, node_rows: resolved.node_rows };
        let rows = RowQuery {
            view: View::ByDevice,
            devices: Some(resolved.devices),
            metrics,
            job: resolved.job,
            from,
            to,
            summary: query.summary,
        };
        let rows_max = self.settings.rows_max;
        let empty = rows.devices.as_ref().is_some_and(BTreeSet::is_empty) || from > to;
        if empty {
            return Ok(Box::new(std::iter::empty()));
        }
        let reads = self.reads(&rows, context)?;
        // The estimate may be half of the real number; a possibly too large answer is counted before it
        // starts. The count includes rows that the reader may not see. So for restricted readers a too large
        // answer is aborted instead.
        let all = context.reader.sees_every_job() && context.reader.sees_every_node();
        let counts = all && !query.summary;
        let near = counts && reads.estimate()?.saturating_mul(2) > rows_max;
        if near && reads.more_than(rows_max, context)? {
            return Err(QueryError::TooManyRows(rows_max));
        }
        Ok(self.by_time(&reads, treatment, context))
    }

    fn resolve(&self, query: &GetMetrics, context: &QueryContext) -> Result<Resolved, QueryError> {
        let mut resolved = self.resolve_exact(query, context)?;
        // An empty range has no window, not the one around it.
        if query.summary && resolved.from <= resolved.to {
            // A window carries its start time: a window that contains the start bound is returned whole.
            resolved.from = summary::window_of(resolved.from);
        }
        Ok(resolved)
    }

    fn resolve_exact(
        &self,
        query: &GetMetrics,
        context: &QueryContext,
    ) -> Result<Resolved, QueryError> {
        let time = |text: &Option<String>| {
            let read = |text: &String| parse_time(text, context.now, &self.settings.zone);
            text.as_ref().map(read).transpose()
        };
        let (start, end) = (time(&query.start_time)?, time(&query.end_time)?);
        let given: BTreeSet<DeviceId> = query.devices.iter().flat_map(|d| devices(d)).collect();
        let Some(name) = &query.job else {
            if query.devices.is_empty() {
                return Err(QueryError::NoDevice);
            }
            let (from, to) = match (start, end) {
                (Some(start), Some(end)) => (start, end),
                (Some(start), None) => (start, start.plus(DEFAULT_RANGE)),
                (None, Some(end)) => (end.plus(-DEFAULT_RANGE), end),
                (None, None) => (context.now.plus(-DEFAULT_RANGE), context.now),
            };
            let (devices, job) = (given, JobSelector::Any);
            return Ok(Resolved { devices, job, from, to, node_rows: NodeRowsFilter::always() });
        };
        let cluster = name.cluster.clone().or_else(|| query.cluster.clone());
        let name = JobName { cluster, display_id: name.display_id.clone() };
        let key = self.job_on_nodes(&name, context)?;
        let mut extent = self.job_extent(&key, context)?;
        if query.summary {
            extent.shrink_to_windows_within();
        }
        let node_rows = match (start, end) {
            (Some(_), Some(_)) => NodeRowsFilter::always(),
            // A given bound also holds outside the job's allocation.
            (start, end) => NodeRowsFilter::new(extent.runs, extent.spans, (start, end)),
        };
        // Samples attributed to the job count up to 10 s before its start and after its end.
        let first = extent.from.plus(-SLACK);
        let from = start.unwrap_or(first);
        let to = end.unwrap_or(extent.to.plus(SLACK));
        let devices = if query.devices.is_empty() { extent.devices } else { given };
        Ok(Resolved { devices, job: JobSelector::NoneOrIs(key), from, to, node_rows })
    }

    /// Devices and time range of a job over all visible runs. If none is visible, and the reader may learn the nodes of
    /// any job, over all runs. A running job ends now.
    pub(crate) fn job_extent(
        &self,
        key: &JobKey,
        context: &QueryContext,
    ) -> Result<JobExtent, QueryError> {
        let (now, mut reader) = (context.now, context.reader);
        let (mut runs, all) = (Vec::new(), self.registry.runs(key)?);
        for run in &all {
            if self.registry.sees_run(reader, run)? == AccessLevel::All {
                runs.push(run.clone());
            }
        }
        if runs.is_empty() && context.job_nodes {
            (runs, reader) = (all, Reader::Everything);
        }
        let (runs_of, to) = (runs, Timestamp(i64::MIN));
        let (devices, runs, spans) = (BTreeSet::new(), Vec::new(), HashMap::new());
        let mut extent = JobExtent { devices, from: now, to, runs, spans };
        for run in runs_of {
            // A job that has not started has no devices.
            let Some(start) = run.start else { continue };
            let stop = run.stop.unwrap_or(now);
            extent.from = extent.from.min(start);
            extent.to = extent.to.max(stop);
            extent.runs.push((start.0, stop.0));
            let granted = self.registry.granted(reader, &run)?;
            for allocation in self.registry.allocations(key, start)? {
                if !granted.has(&allocation.device) {
                    continue;
                }
                let span = (allocation.start.0, allocation.stop.unwrap_or(now).0);
                extent.spans.entry(allocation.device.clone()).or_default().push(span);
                extent.devices.insert(allocation.device);
            }
        }
        Ok(extent)
    }
}

/// Devices and times of a job.
#[derive(Debug)]
pub(crate) struct JobExtent {
    pub(crate) devices: BTreeSet<DeviceId>,
    from: Timestamp,
    pub(crate) to: Timestamp,
    /// Start and end of each run, in microseconds.
    runs: Vec<(i64, i64)>,
    /// Start and end of each allocation per device, in microseconds.
    spans: HashMap<DeviceId, Vec<(i64, i64)>>,
}

impl JobExtent {
    /// Excludes both bounds of every time range, as `metrics_by_job_summary` does. A node's window belongs to a
    /// job that started before the window and stopped after the start of the window.
    fn shrink_to_windows_within(&mut self) {
        for (start, stop) in self.runs.iter_mut().chain(self.spans.values_mut().flatten()) {
            (*start, *stop) = (start.saturating_add(1), stop.saturating_sub(1));
        }
    }
}

/// The device of a host name (cut at the first dot), and the device with exactly that name, if it has a dot. It may be a
/// device of another program; a name beyond the limit yields none.
fn devices(name: &str) -> impl Iterator<Item = DeviceId> {
    let cut = name.split_once('.').map(|(host, _)| host);
    [cut, Some(name)].into_iter().flatten().filter_map(DeviceId::foreign)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(pairs: &[(&str, &str)]) -> (u16, &'static str) {
        let error = GetMetrics::from_pairs(pairs.iter().copied()).unwrap_err();
        (error.status(), error.code())
    }

    #[test]
    fn parameters_are_read() {
        let query = GetMetrics::from_pairs([
            ("nodes", "a-1.site.example,a-2"),
            ("devices", "pdu-1"),
            ("metrics", "x, y"),
            ("summary", "True"),
            ("as_rate", "auto"),
            ("start_time", "now"),
            ("end_time", ""),
            ("job_id", " 42 "),
            ("cluster", "oar"),
        ])
        .unwrap();
        assert_eq!(query.devices, ["pdu-1", "a-1.site.example", "a-2"]);
        assert_eq!(query.metrics, ["x", "y"]);
        assert!(query.summary && query.as_rate == AsRate::Auto);
        assert_eq!((query.start_time.as_deref(), query.end_time), (Some("now"), None));
        assert_eq!(query.job.unwrap().to_string(), "42");
        assert_eq!(query.cluster.unwrap().as_str(), "oar");
    }

    #[test]
    fn truth_values_are_postgresqls() {
        for text in ["true", "T", "tr", "yes", "y", "on", "1", " TRUE "] {
            assert!(boolean(text).unwrap(), "{text}");
        }
        for text in ["false", "f", "no", "n", "off", "of", "0", "False"] {
            assert!(!boolean(text).unwrap(), "{text}");
        }
        for text in ["", "o", "2", "truee", "nein"] {
            assert!(boolean(text).is_err(), "{text}");
        }
    }

    #[test]
    fn wrong_parameters_have_postgresqls_codes() {
        assert_eq!(code(&[("job_id", "abc")]), (400, "22P02"));
        assert_eq!(code(&[("job_id", "")]), (400, "22P02"));
        assert_eq!(code(&[("job_id", "-1")]), (404, "P0002"));
        assert_eq!(code(&[("job_id", "0 7")]), (400, "22P02"));
        assert_eq!(code(&[("summary", "perhaps")]), (400, "22P02"));
        assert_eq!(code(&[("as_rate", "x")]), (400, "22P02"));
        assert_eq!(code(&[("cluster", "a:b")]), (400, "22P02"));
        assert_eq!(code(&[("device", "n1")]), (404, "PGRST202"));
    }

    #[test]
    fn host_names_are_cut_at_the_first_dot() {
        let names = |name| devices(name).map(|d| d.to_string()).collect::<Vec<_>>();
        assert_eq!(names("n1.site.example"), ["n1", "n1.site.example"]);
        assert_eq!(names("n1"), ["n1"]);
        // Other programs may write any name into a database.
        assert_eq!(names("a\nb"), ["a\nb"]);
        assert_eq!(names(&"x".repeat(20_000)), [""; 0]);
    }
}
