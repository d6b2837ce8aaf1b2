//! Batches that a user may send: samples of their own jobs, as `jobmeter run` measures them without an agent.

use crate::app::App;
use crate::common::http_error::HttpError;
use crate::ingest::decoding::may_be_newer;
use jobs::Window;
use model::{Cause, ClusterId, DeviceId, JobKey, Origin, SeriesTable, Timestamp};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use storage::{JobSelector, Selector};
use wire::{Decoded, Value};

/// Metrics of the processor time of a command.
const PROCESSOR_TIME: [&str; 3] =
    ["run_cpu_seconds_total", "run_cpu_user_seconds_total", "run_cpu_system_seconds_total"];
/// The processor time of a node by state. The sum since boot is the uptime times the number of processors.
const STATES: [&str; 8] = [
    "cpu_user_seconds_total",
    "cpu_nice_seconds_total",
    "cpu_system_seconds_total",
    "cpu_idle_seconds_total",
    "cpu_iowait_seconds_total",
    "cpu_irq_seconds_total",
    "cpu_softirq_seconds_total",
    "cpu_steal_seconds_total",
];
/// Most processors that Linux supports: the limit for a node without an agent's report.
const PROCESSORS_MAX: f64 = 8192.0;
/// Tolerance for differences between clocks and between readings.
const SLACK_SECONDS: f64 = 60.0;

/// Returns the start of the job that a user's origin names, or why the user may not send for it.
///
/// The origin must be `DEVICE/run-ID` of a local job that the server registered for the user on that device.
pub(crate) async fn job_start(
    app: &Arc<App>,
    uid: u32,
    origin: &Origin,
) -> Result<Result<Timestamp, String>, HttpError> {
    let Some((device, id)) = origin.as_run() else {
        return Ok(Err(format!(
            "users may send only samples of their own jobs, and {origin} is not an origin of \
             `jobmeter run`"
        )));
    };
    let key = JobKey { cluster: ClusterId::local(), id };
    let window = Window { job: Some(key.clone()), uid: Some(uid), ..Window::default() };
    let allocations = app.read_registry(move |app| app.registry.intervals(&window)).await?;
    let allocations = allocations.map_err(|error| HttpError::fault(&error))?;
    if !allocations.iter().any(|allocation| allocation.device.as_str() == device) {
        return Ok(Err(format!("user {uid} has no job {key} on {device}")));
    }
    Ok(Ok(allocations.iter().map(|allocation| allocation.start).min().unwrap_or(app.now())))
}

/// Checks that a user's batch of a job that began at `start` contains only permitted entries.
///
/// Permitted are samples of that job on its device, and gaps of that device that `jobmeter run` notes. The error has
/// the reason, and whether the batch may be sent again.
pub(crate) fn check(
    app: &App,
    batch: &Decoded,
    start: Timestamp,
    known: &NodeProcessors,
) -> Result<(), (String, bool)> {
    let again = |why: String| Err((why, true));
    let Some((device, id)) = batch.origin.as_run() else {
        return again(format!("{} is not an origin of `jobmeter run`", batch.origin));
    };
    let key = JobKey { cluster: ClusterId::local(), id };
    let table =
        batch.table_of_printable().map_err(|error| (error.to_string(), may_be_newer(&error)))?;
    let own = |entry: &model::SeriesEntry| {
        entry.device.as_str() == device && entry.job.as_ref() == Some(&key)
    };
    if let Some(other) = table.entries.iter().find(|entry| !own(entry)) {
        let name = &other.metric.name;
        return again(format!("{name} of {} is not attributed to job {key}", other.device));
    }
    if let Some(why) = absurd(&table, batch, start, known.of(app, device)) {
        return Err((why, false));
    }
    if !batch.jobs.is_empty() || batch.gaps.iter().any(|gap| gap.device.as_str() != device) {
        return again(
            "users may not send job events, and gaps only of the job's device".to_owned(),
        );
    }
    if let Some(gap) = batch.gaps.iter().find(|gap| !Cause::OF_RUNS.contains(&gap.cause)) {
        let why = format!("`jobmeter run` does not report a gap `{}`", gap.cause.words());
        return Err((why, false));
    }
    Ok(())
}

/// Returns an error if a batch states more processor time than was possible since the start of its job.
fn absurd(
    table: &SeriesTable,
    batch: &Decoded,
    start: Timestamp,
    processors: f64,
) -> Option<String> {
    let instants = batch.ticks.iter().flat_map(|tick| {
        std::iter::repeat_n(tick.at, usize::try_from(tick.samples).unwrap_or(usize::MAX))
    });
    let samples = batch.index.iter().zip(instants).zip(&batch.values);
    samples.into_iter().find_map(|((place, at), value)| {
        let metric = &table.entries.get(usize::try_from(*place).ok()?)?.metric;
        if !PROCESSOR_TIME.contains(&&*metric.name) {
            return None;
        }
        let seconds = match value {
            Value::Steps(steps) => *steps as f64 / f64::from(metric.divisor.max(1)),
            Value::Real(seconds) => *seconds,
        };
        let most = (Timestamp(at.since(start).max(0)).seconds() + SLACK_SECONDS) * processors;
        // NaN is not below the limit either.
        let possible = seconds >= 0.0 && seconds <= most;
        (!possible).then(|| {
            format!(
                "{} of {seconds} s is not possible: the job started at {start}, and its node has {processors} \
                 processors",
                metric.name
            )
        })
    })
}

/// The numbers of processors that were read for a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeProcessors(Arc<Mutex<BTreeMap<String, f64>>>);

impl NodeProcessors {
    fn of(&self, app: &App, device: &str) -> f64 {
        let mut known = self.0.lock();
        if let Some(processors) = known.get(device) {
            return *processors;
        }
        let processors = processors(app, device);
        known.insert(device.to_owned(), processors);
        processors
    }
}

/// Number of processors of a node, from its agent's counters; [`PROCESSORS_MAX`] without an agent's report.
fn processors(app: &App, device: &str) -> f64 {
    let Ok(device) = DeviceId::new(device) else { return PROCESSORS_MAX };
    let last = app.store.snapshot().last(&Selector {
        devices: Some(BTreeSet::from([device])),
        metrics: Some(STATES.into_iter().map(Arc::from).collect()),
        job: JobSelector::None,
        labels: Vec::new(),
    });
    let uptime = last.iter().filter_map(|last| Some(last.at.since(last.start?))).max();
    let uptime = uptime.map_or(0.0, |uptime| Timestamp(uptime).seconds());
    let sum: f64 = last.iter().map(|last| last.value).sum();
    // A counter that began later, or a node that has just booted, yields too few processors.
    if last.len() < STATES.len() || uptime < SLACK_SECONDS {
        return PROCESSORS_MAX;
    }
    (sum / uptime).ceil().clamp(1.0, PROCESSORS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::ingest::{batch, frame};
    use model::{Metric, SeriesEntry, Tick, Unit};
    use wire::{Decoder, Frames};

    #[test]
    fn no_command_has_more_processor_time_than_its_node() {
        let start = crate::now();
        let judged = |seconds: f64, after: i64| {
            let mut batch = batch("n1/run-7", 0);
            let metric = Metric::counter("run_cpu_seconds_total", Unit::Seconds, "");
            let entry = SeriesEntry { metric: Arc::new(metric), ..batch.table.entries[0].clone() };
            batch.table = Arc::new(SeriesTable { entries: vec![entry] });
            batch.ticks = vec![Tick { at: start.plus(after * Timestamp::SECOND), samples: 1 }];
            (batch.index, batch.values) = (vec![0], vec![seconds]);
            let bytes = frame(&batch);
            let frame = Frames::of(&bytes).next().unwrap().unwrap();
            let decoded = Decoder::default().decode(&frame).unwrap();
            absurd(&decoded.table().unwrap(), &decoded, start, 4.0)
        };
        assert_eq!(judged(4.0 * 100.0, 100), None);
        assert_eq!(judged(4.0 * 160.0, 100), None, "clocks differ");
        for seconds in [4.0 * 160.0 + 1.0, 1e300, -1.0, f64::NAN, f64::INFINITY] {
            assert!(judged(seconds, 100).unwrap().contains("not possible"), "{seconds}");
        }
    }
}
