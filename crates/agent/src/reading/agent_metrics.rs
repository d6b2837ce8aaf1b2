//! The agent's own metrics: the cost of each source, and the data waiting to be sent. For readers of the metrics
//! they are a source like any other. They read nothing of the machine, so the tick takes them directly.

use crate::common::schedule::Schedule;
use crate::reading::plan::Plan;
use crate::reading::source_state::{Entry, State};
use delivery::{Counters, SealCounts, process_cpu_us};
use model::{DeviceId, Metric, Timestamp, Unit};
use sources::{Every, Open, Sink, Source, SourceError, SourceSpec};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The agent's own metrics as a source, for the manual, the checks of names and the configuration.
pub(crate) static SPEC: SourceSpec = SourceSpec {
    name: "agent",
    help: "Cost of the agent, per source, and its unsent data.",
    reads: &["its own counters"],
    cost: "13 samples per source, 3 more with a burst, and 15 for the whole agent, from memory",
    every: Every::AtLeast(Duration::from_secs(10)),
    metrics: &[
        &CPU,
        &SOURCE_CPU,
        &SOURCE_WALL,
        &LATENESS,
        &READS,
        &SAMPLES,
        &ERRORS,
        &PANICS,
        &TIMEOUTS,
        &MISSED,
        &WORKING,
        &PARKED,
        &PERIOD,
        &SERIES,
        &BURST_BYTES,
        &BURST_FLUSHES,
        &BURST_CUT,
        &REJECTED_SAMPLES,
        &BATCHES,
        &DROPPED,
        &GAPS,
        &CLOCK_STEPS,
        &CUT_WALKS,
        &ENVIRONMENTS,
        &UNSENT_BYTES,
        &SPOOL_BYTES,
        &SPOOL_SEGMENTS,
        &ACK_AGE,
        &SENT,
        &REJECTED,
        &REJECTED_BY_SERVER,
        &STATES_REJECTED,
    ],
    open,
    // The tick takes the metrics directly.
    may_burst: false,
    ..SourceSpec::DEFAULT
};

const STEPS_US: u32 = 1_000_000;

static CPU: Metric =
    Metric::counter("agent_cpu_seconds_total", Unit::Seconds, "Processor time of the whole agent.")
        .steps(STEPS_US);
static SOURCE_CPU: Metric = Metric::counter(
    "agent_source_cpu_seconds_total",
    Unit::Seconds,
    "Processor time of the source's readings.",
)
.steps(STEPS_US);
static SOURCE_WALL: Metric = Metric::counter(
    "agent_source_wall_seconds_total",
    Unit::Seconds,
    "Elapsed time of the source's readings.",
)
.steps(STEPS_US);
static LATENESS: Metric = Metric::gauge(
    "agent_source_lateness_seconds",
    Unit::Seconds,
    "Delay between the scheduled time and the start of the source's last reading.",
)
.steps(STEPS_US);
static READS: Metric =
    Metric::counter("agent_source_reads_total", Unit::Count, "Readings of the source.");
static SAMPLES: Metric =
    Metric::counter("agent_source_samples_total", Unit::Count, "Samples of the source.");
static ERRORS: Metric =
    Metric::counter("agent_source_errors_total", Unit::Count, "Failed readings of the source.");
static PANICS: Metric = Metric::counter(
    "agent_source_panics_total",
    Unit::Count,
    "Readings of the source that failed because of a bug in the program.",
);
static TIMEOUTS: Metric = Metric::counter(
    "agent_source_timeouts_total",
    Unit::Count,
    "Readings of the source that exceeded their time limit.",
);
static MISSED: Metric = Metric::counter(
    "agent_source_missed_ticks_total",
    Unit::Count,
    "Ticks of the source that were skipped because they came too late.",
);
static WORKING: Metric =
    Metric::gauge("agent_source_working", Unit::Count, "1 if the source provides samples, else 0.");
static PARKED: Metric = Metric::gauge(
    "agent_source_parked",
    Unit::Count,
    "1 while a reading of the source exceeds its time limit, else 0.",
);
static PERIOD: Metric = Metric::gauge(
    "agent_source_period_seconds",
    Unit::Seconds,
    "Interval between readings of the source; longer than configured while the source uses too \
     much processor time.",
)
.steps(STEPS_US);
static SERIES: Metric =
    Metric::gauge("agent_source_series", Unit::Count, "Active series of the source.");
static BURST_BYTES: Metric = Metric::gauge(
    "agent_source_burst_bytes",
    Unit::Bytes,
    "Memory of the source's burst readings; only if the source has a burst.",
);
static BURST_FLUSHES: Metric = Metric::counter(
    "agent_source_burst_flushes_total",
    Unit::Count,
    "Flushes of the source's burst; only if the source has a burst.",
);
static BURST_CUT: Metric = Metric::counter(
    "agent_source_burst_cut_samples_total",
    Unit::Count,
    "Burst samples of the source that were evicted early because of the memory limit; only if the \
     source has a burst.",
);
static REJECTED_SAMPLES: Metric = Metric::counter(
    "agent_source_rejected_samples_total",
    Unit::Count,
    "Rejected samples of the source: not a number, with invalid labels, or beyond the limit of \
     series.",
);
static BATCHES: Metric = Metric::counter("agent_batches_total", Unit::Count, "Sealed batches.");
static DROPPED: Metric = Metric::counter(
    "agent_dropped_samples_total",
    Unit::Count,
    "Samples dropped because of a limit: of memory, of the spool or of age.",
);
static GAPS: Metric = Metric::counter("agent_gaps_total", Unit::Count, "Reported gaps.");
static CLOCK_STEPS: Metric =
    Metric::counter("agent_clock_steps_total", Unit::Count, "Steps of the clock by 0.1 s or more.");
static CUT_WALKS: Metric = Metric::counter(
    "agent_cut_walks_total",
    Unit::Count,
    "Searches of a job's cgroups that skipped some, because its user has too many directories.",
);
static ENVIRONMENTS: Metric = Metric::counter(
    "agent_environments_given_up_total",
    Unit::Count,
    "Readings of a process's environment that were given up after 1 s.",
);
static UNSENT_BYTES: Metric = Metric::gauge(
    "agent_unsent_bytes",
    Unit::Bytes,
    "Batches in memory that the server has not acknowledged.",
);
static SPOOL_BYTES: Metric =
    Metric::gauge("agent_spool_bytes", Unit::Bytes, "Batches in the spool.");
static SPOOL_SEGMENTS: Metric =
    Metric::gauge("agent_spool_segments", Unit::Count, "Files of the spool.");
static ACK_AGE: Metric = Metric::gauge(
    "agent_ack_age_seconds",
    Unit::Seconds,
    "Age of the oldest sample that the server has not acknowledged; 0 if it has all.",
)
.steps(STEPS_US);
static SENT: Metric = Metric::counter(
    "agent_sent_batches_total",
    Unit::Count,
    "Batches that the server acknowledged.",
);
static REJECTED: Metric = Metric::counter(
    "agent_rejected_batches_total",
    Unit::Count,
    "Batches that the server rejected permanently.",
);
static REJECTED_BY_SERVER: Metric = Metric::counter(
    "agent_rejected_samples_total",
    Unit::Count,
    "Rejected samples of batches that the server accepted.",
);

static STATES_REJECTED: Metric = Metric::counter(
    "agent_rejected_states_total",
    Unit::Count,
    "Rejected accounting states of an earlier run: damaged, or older than the last boot.",
);

fn open(_: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    Err(SourceError::absent("no agent is running here; only a running agent has these metrics"))
}

/// The agent's own metrics.
#[derive(Debug)]
pub(crate) struct AgentMetrics {
    sink: Sink,
    schedule: Option<Schedule>,
    counters: Arc<Counters>,
    start: Timestamp,
    pub(crate) clock_steps: u64,
    /// Accounting states of an earlier start that were rejected.
    pub(crate) states_rejected: u64,
}

impl AgentMetrics {
    /// Creates the metrics of a device, for an agent that started at `start`.
    pub(crate) fn new(device: DeviceId, counters: Arc<Counters>, start: Timestamp) -> Self {
        let sink = Sink::new(device);
        Self { sink, schedule: None, counters, start, clock_steps: 0, states_rejected: 0 }
    }

    pub(crate) fn planned(mut self, plan: &Plan, now: Timestamp) -> Self {
        self.apply(plan, now);
        self
    }

    pub(crate) fn apply(&mut self, plan: &Plan, now: Timestamp) {
        self.schedule = plan.agent_metrics.map(|period| Schedule::new(period, now));
        self.sink.set_off(&plan.own_off);
    }

    pub(crate) fn align(&mut self, now: Timestamp) {
        if let Some(schedule) = &mut self.schedule {
            schedule.align(now);
        }
    }

    /// Period of the metrics, if they are enabled.
    pub(crate) fn period_us(&self) -> Option<i64> {
        self.schedule.map(Schedule::period_us)
    }

    /// Longest time until the next batch, as reported to the server.
    pub(crate) fn wait_us(&self) -> i64 {
        self.counters.wait_us.load(Ordering::Relaxed)
    }

    /// Sets the longest time until the next batch.
    pub(crate) fn set_wait_us(&self, wait_us: i64) {
        self.counters.wait_us.store(wait_us, Ordering::Relaxed);
    }

    pub(crate) const fn device(&self) -> &DeviceId {
        self.sink.device()
    }

    pub(crate) const fn sink(&mut self) -> &mut Sink {
        &mut self.sink
    }

    pub(crate) fn due(&self) -> Timestamp {
        self.schedule.map_or(Timestamp(i64::MAX), Schedule::due)
    }

    pub(crate) fn collect_if_due(
        &mut self,
        now: Timestamp,
        entries: &[Entry],
        sealed: &SealCounts,
    ) {
        let Some(due) = self.schedule.as_mut().and_then(|schedule| schedule.take(now)) else {
            return;
        };
        self.sink.begin(due.at);
        for entry in entries.iter().filter(|entry| entry.enabled) {
            self.source(entry);
        }
        let rejected = entries.iter().map(|entry| entry.stats.states_rejected).sum::<u64>();
        self.agent(now, sealed, rejected);
    }

    fn source(&mut self, entry: &Entry) {
        let labels = &[("source", entry.spec.name)][..];
        let (stats, start) = (&entry.stats, self.start);
        let mut out = self.sink.of_device();
        let one = |is: bool| f64::from(u8::from(is));
        out.gauge(&WORKING, labels, one(entry.state == State::Working));
        // A source that this machine lacks has no further metrics.
        if matches!(entry.state, State::Failing(SourceError::Absent(_))) && stats.samples == 0 {
            return;
        }
        for (metric, count) in [
            (&READS, stats.reads),
            (&SAMPLES, stats.samples),
            (&ERRORS, stats.errors),
            (&PANICS, stats.panics),
            (&TIMEOUTS, stats.timeouts),
            (&MISSED, stats.missed),
            (&REJECTED_SAMPLES, stats.rejected),
        ] {
            out.counter(metric, labels, count as f64, start);
        }
        out.counter(&SOURCE_CPU, labels, stats.cpu_us as f64 / 1e6, start);
        out.counter(&SOURCE_WALL, labels, stats.wall_us as f64 / 1e6, start);
        out.gauge(&LATENESS, labels, stats.late_us as f64 / 1e6);
        out.gauge(&PERIOD, labels, entry.schedule.period_us() as f64 / 1e6);
        out.gauge(&PARKED, labels, one(entry.state == State::Parked));
        out.gauge(&SERIES, labels, entry.series as f64);
        if let Some(burst) = &entry.burst {
            out.gauge(&BURST_BYTES, labels, stats.kept_bytes as f64);
            out.counter(&BURST_FLUSHES, labels, burst.flushes as f64, burst.since);
            out.counter(&BURST_CUT, labels, stats.kept_cut as f64, start);
        }
    }

    fn agent(&mut self, now: Timestamp, sealed: &SealCounts, rejected: u64) {
        let (counters, start) = (&*self.counters, self.start);
        let mut out = self.sink.of_device();
        out.counter(&CPU, &[], process_cpu_us() as f64 / 1e6, start);
        let dropped = sealed.dropped as f64 + count(&counters.dropped_samples);
        for (metric, value) in [
            (&BATCHES, sealed.batches as f64),
            (&DROPPED, dropped),
            (&GAPS, sealed.gaps as f64),
            (&CLOCK_STEPS, self.clock_steps as f64),
            (&CUT_WALKS, cgroups::cut_walks() as f64),
            (&ENVIRONMENTS, kernel::environments_given_up() as f64),
            (&SENT, count(&counters.sent_batches)),
            (&REJECTED, count(&counters.rejected_batches)),
            (&REJECTED_BY_SERVER, count(&counters.rejected_samples)),
            (&STATES_REJECTED, (rejected + self.states_rejected) as f64),
        ] {
            out.counter(metric, &[], value, start);
        }
        out.gauge(&UNSENT_BYTES, &[], count(&counters.unsent_bytes));
        out.gauge(&SPOOL_BYTES, &[], count(&counters.spool_bytes));
        out.gauge(&SPOOL_SEGMENTS, &[], count(&counters.spool_segments));
        let age = match counters.oldest_unacked_us.load(Ordering::Relaxed) {
            0 => 0,
            oldest => now.since(Timestamp(oldest)).max(0),
        };
        out.gauge(&ACK_AGE, &[], age as f64 / 1e6);
    }
}

fn count(value: &AtomicU64) -> f64 {
    value.load(Ordering::Relaxed) as f64
}
