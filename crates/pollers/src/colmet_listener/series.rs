//! The values of a backend, of one job or of the node: growths become counters, and counters have starts.
//!
//! `model::increase` counts the whole value of a counter that fell or that has a later start than the value before. So a
//! counter here has a new start only where its value really began again, and what was counted before is subtracted from it.

use super::plan::{BackendPlan, ColumnPlan};
use super::recent::{Order, RecentInstants};
use colmet::backends::{Backend, TASKSTATS};
use colmet::record::{Record, Value};
use model::{JobKey, Timestamp};

/// A sample for the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample<'a> {
    pub(super) at: Timestamp,
    pub(super) job: Option<&'a JobKey>,
    pub(super) column: &'a ColumnPlan,
    /// The start of a counter, if known.
    pub(super) start: Option<Timestamp>,
    pub(super) value: f64,
}

/// What a message says of its records.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// Counts the gaps of the host: growths of another number do not continue.
    pub(super) epoch: u64,
    /// The message before this one, if no gap is between them.
    pub(super) previous: Option<Timestamp>,
}

/// What is known of a job's counters before their first value here.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Before {
    /// Since when they count, if the job began after an earlier message.
    pub(super) begin: Option<Timestamp>,
    /// Whether an earlier start of the listener stored values of the job.
    pub(super) has_values: bool,
    /// Whether it subtracted something from them.
    pub(super) is_rebased: bool,
}

/// A column: in Colmet's unit.
#[derive(Clone, Copy, Debug)]
struct Column {
    /// The last value of a counter, or the sum of growths.
    value: f64,
    /// What is subtracted from it.
    offset: f64,
    start: Option<Timestamp>,
}

/// The series of a backend.
#[derive(Debug)]
pub(super) struct BackendSeries {
    backend: &'static Backend,
    plan: BackendPlan,
    recent: RecentInstants,
    /// The gaps of the host before the last record.
    epoch: u64,
    columns: Vec<Option<Column>>,
    before: Before,
    /// Taskstats only: the last record was the first one of an agent that started again. It had no values, and the next one has
    /// what was counted before, too.
    is_base_next: bool,
    /// Whether something is subtracted from counters.
    is_rebased: bool,
}

impl BackendSeries {
    pub(super) fn new(backend: &'static Backend, plan: BackendPlan, before: Before) -> Self {
        Self {
            backend,
            columns: vec![None; plan.len()],
            plan,
            recent: RecentInstants::default(),
            epoch: 0,
            before,
            is_base_next: false,
            is_rebased: false,
        }
    }

    pub(super) const fn backend(&self) -> &'static Backend {
        self.backend
    }

    pub(super) fn is_of(&self, backend: &Backend) -> bool {
        self.backend == backend
    }

    /// Whether something is subtracted from counters.
    pub(super) const fn is_rebased(&self) -> bool {
        self.is_rebased
    }

    /// Replaces how the columns are stored. Series of other names begin anew.
    pub(super) fn set_plan(&mut self, plan: BackendPlan) {
        let is_same = |one: &Option<ColumnPlan>, other: &Option<ColumnPlan>| {
            let name = |plan: &ColumnPlan| (plan.metric.name.clone(), plan.labels.clone());
            one.as_ref().map(name) == other.as_ref().map(name)
        };
        for ((column, before), after) in self.columns.iter_mut().zip(&*self.plan).zip(&*plan) {
            if !is_same(before, after) {
                *column = None;
            }
        }
        self.plan = plan;
    }

    /// Takes a record. Returns how it follows those before.
    pub(super) fn take(
        &mut self,
        (record, moment): (&Record, Moment),
        job: Option<&JobKey>,
        out: &mut dyn FnMut(Sample<'_>),
    ) -> Order {
        let previous = self.recent.latest();
        let order = self.recent.add(record.at);
        if order == Order::Again {
            return order;
        }
        let is_first = previous.is_none();
        if order == Order::Next && self.backend == &TASKSTATS {
            self.rebase(record, is_first);
        }
        let is_after_gap = self.epoch != moment.epoch;
        if order == Order::Next {
            self.epoch = moment.epoch;
        }
        for (place, value) in record.values.iter().enumerate() {
            let Some(number) = value.as_ref().and_then(Value::number) else { continue };
            let Some(Some(plan)) = self.plan.get(place) else { continue };
            let is_other_there =
                |first: usize| record.values.get(first).is_some_and(Option::is_some);
            if plan.first.is_some_and(is_other_there) || (plan.is_counter() && number < 0.0) {
                continue;
            }
            let Some(slot) = self.columns.get_mut(place) else { continue };
            let (start, theirs) = if plan.is_growth() {
                let since = moment.previous.filter(|_| !is_after_gap || is_first);
                let column = grown(slot, number, since, record.at, is_after_gap);
                (column.start, column.value)
            } else if plan.is_counter() {
                if order == Order::Late {
                    continue;
                }
                let column = counted(slot, number, previous, self.before.begin);
                (column.start, column.value - column.offset)
            } else {
                (None, number)
            };
            // The counter has this growth at its next value.
            if order == Order::Next || !plan.is_growth() {
                let value = plan.value(theirs);
                out(Sample { at: record.at, job, column: plan, start, value });
            }
        }
        order
    }

    /// Colmet sums the tasks of a job since it found each, and reports 0 at first. After a restart of its agent, the values fall to
    /// 0 and then contain again what living tasks had before: this is subtracted.
    fn rebase(&mut self, record: &Record, is_first: bool) {
        let counters = || {
            let all = self.plan.iter().zip(&record.values).enumerate();
            all.filter_map(|(place, (plan, value))| {
                plan.as_ref().filter(|plan| plan.is_counter())?;
                Some((place, value.as_ref()?.number()?))
            })
        };
        let last = |place: usize| self.columns.get(place).copied().flatten();
        let has_fallen =
            counters().any(|(place, number)| last(place).is_some_and(|it| number < it.value));
        let is_empty = counters().all(|(_, number)| number == 0.0);
        let is_of_earlier_start = is_first && self.before.has_values;
        let is_restart = has_fallen || (is_first && self.before.is_rebased);
        if is_restart || self.is_base_next {
            let found: Vec<(usize, f64)> = counters().collect();
            for (place, number) in found {
                let start = last_start(&self.columns, place).filter(|_| !is_restart);
                let start = start.or(Some(record.at));
                if let Some(slot) = self.columns.get_mut(place) {
                    *slot = Some(Column { value: number, offset: number, start });
                }
            }
            self.is_rebased = true;
        }
        self.is_base_next = is_empty && (is_restart || self.is_base_next || is_of_earlier_start);
    }
}

fn last_start(columns: &[Option<Column>], place: usize) -> Option<Timestamp> {
    columns.get(place).copied().flatten()?.start
}

/// Adds a growth to the sum of a column. The sum begins with `since`, the message before; without it, or after a gap, the growth
/// is of an unknown time, and the sum begins with 0 now.
fn grown(
    slot: &mut Option<Column>,
    growth: f64,
    since: Option<Timestamp>,
    at: Timestamp,
    is_after_gap: bool,
) -> Column {
    let column = match (*slot, since) {
        (Some(before), _) if !is_after_gap => Column { value: before.value + growth, ..before },
        (_, Some(since)) => Column { value: growth, offset: 0.0, start: Some(since) },
        (_, None) => Column { value: 0.0, offset: 0.0, start: Some(at) },
    };
    *slot = Some(column);
    column
}

/// Takes a value of a counter. A value that fell counts since the record before.
fn counted(
    slot: &mut Option<Column>,
    number: f64,
    previous: Option<Timestamp>,
    begin: Option<Timestamp>,
) -> Column {
    let column = match *slot {
        Some(before) if number < before.value => {
            Column { value: number, offset: 0.0, start: previous.map(|at| at.plus(1)) }
        }
        Some(before) => Column { value: number, ..before },
        None => Column { value: number, offset: 0.0, start: begin },
    };
    *slot = Some(column);
    column
}

#[cfg(test)]
mod tests {
    use super::super::host::counter_files::HostCounters;
    use super::super::plan::Plans;
    use super::*;
    use colmet::backends::{INFINIBAND, PERFHW, PROCSTATS, RAPL};
    use model::{Point, increases};

    const CPU: &str = "taskstats_cpu_run_real_seconds_total";

    struct Tested {
        series: BackendSeries,
        samples: Vec<(String, Point)>,
    }

    impl Tested {
        fn new(backend: &'static Backend, before: Before) -> Self {
            let plan = Plans::default().of(backend, &HostCounters::default(), false);
            Self { series: BackendSeries::new(backend, plan, before), samples: Vec::new() }
        }

        /// Takes a record with one value at a second; `previous` is the second of the message before.
        fn take(
            &mut self,
            at: i64,
            (epoch, previous): (u64, Option<i64>),
            value: (&str, Value),
        ) -> Order {
            let at = Timestamp::from_seconds(at);
            let mut record = Record::new(self.series.backend, "n", 7, at);
            record.set(value.0, value.1);
            let moment = Moment { epoch, previous: previous.map(Timestamp::from_seconds) };
            let samples = &mut self.samples;
            self.series.take((&record, moment), None, &mut |sample| {
                let point = Point { at: sample.at, value: sample.value, start: sample.start };
                samples.push((sample.column.metric.name.to_string(), point));
            })
        }

        fn points(&self, metric: &str) -> Vec<Point> {
            let of = self.samples.iter().filter(|(name, _)| name == metric);
            of.map(|(_, point)| *point).collect()
        }

        /// The growth after the first value.
        fn growth(&self, metric: &str) -> f64 {
            increases(None, Timestamp::from_seconds(1_000_000), self.points(metric))
        }
    }

    fn cpu(seconds: u64) -> (&'static str, Value) {
        ("cpu_run_real_total", Value::Unsigned(seconds * 1_000_000_000))
    }

    #[test]
    fn growths_are_summed_and_begin_again_after_a_gap() {
        let mut rapl = Tested::new(&RAPL, Before::default());
        let joules = |joules: i64| ("counter_1", Value::Signed(joules * 1_000_000));
        let metric = "colmet_rapl_counter_1_joules_total";
        rapl.take(10, (1, None), joules(500));
        rapl.take(15, (1, Some(10)), joules(7));
        rapl.take(20, (1, Some(15)), joules(8));
        rapl.take(20, (1, Some(15)), joules(8));
        // A message that was overtaken: its growth counts with the next one.
        rapl.take(19, (1, Some(20)), joules(2));
        rapl.take(25, (1, Some(20)), ("counter_1", Value::Signed(-5)));
        rapl.take(30, (1, Some(25)), joules(1));
        rapl.take(90, (2, None), joules(600));
        rapl.take(95, (2, Some(90)), joules(3));
        let found: Vec<_> = rapl
            .points(metric)
            .iter()
            .map(|one| (one.at.0 / 1_000_000, one.value, one.start.unwrap().0 / 1_000_000))
            .collect();
        let first = [(10, 0.0, 10), (15, 7.0, 10), (20, 15.0, 10), (30, 18.0, 10)];
        assert_eq!(found, [&first[..], &[(90, 0.0, 90), (95, 3.0, 90)]].concat());
        let mut begun = Tested::new(&PERFHW, Before::default());
        begun.take(15, (1, Some(10)), ("counter_1", Value::Signed(9)));
        let point = begun.points("colmet_perfhw_counter_1_total")[0];
        assert_eq!((point.value, point.start), (9.0, Some(Timestamp::from_seconds(10))));
    }

    #[test]
    fn a_restart_of_colmets_agent_counts_nothing_twice() {
        // Each case: the values of the records, the growth that is true or known.
        for (values, growth) in [
            (&[0, 100, 104, 0, 104, 109][..], 104.0 + 5.0),
            (&[0, 100, 104, 0, 0, 60, 65], 104.0 + 5.0),
            (&[0, 100, 60, 65], 100.0 + 5.0),
            (&[0, 0, 3, 3], 3.0),
        ] {
            let mut tested = Tested::new(&TASKSTATS, Before::default());
            for (place, value) in (0_i64..).zip(values) {
                let previous = (place > 0).then_some(5 * place - 5);
                tested.take(5 * place, (1, previous), cpu(*value));
            }
            assert_eq!(tested.growth(CPU), growth, "{values:?}");
            assert_eq!(tested.points(CPU).len(), values.len());
        }
    }

    #[test]
    fn a_job_of_an_earlier_start_continues_unless_colmets_agent_started_again() {
        let earlier = Before { has_values: true, ..Before::default() };
        let (t, v) = (|s| Timestamp::from_seconds(s), |at, value| Point { at, value, start: None });
        let mut tested = Tested::new(&TASKSTATS, earlier);
        [120, 125].into_iter().zip([50, 55]).for_each(|(value, at)| {
            tested.take(at, (1, None), cpu(value));
        });
        let growth = |points: Vec<Point>| increases(Some(v(t(0), 100.0)), t(0), points);
        assert_eq!(growth(tested.points(CPU)), 25.0, "the growth while it did not run counts");
        let mut tested = Tested::new(&TASKSTATS, earlier);
        [0, 120, 125].into_iter().zip([50, 55, 60]).for_each(|(value, at)| {
            tested.take(at, (1, None), cpu(value));
        });
        assert_eq!(growth(tested.points(CPU)), 5.0);
        let mut tested = Tested::new(&TASKSTATS, Before { is_rebased: true, ..earlier });
        [320, 325].into_iter().zip([50, 55]).for_each(|(value, at)| {
            tested.take(at, (1, None), cpu(value));
        });
        assert_eq!(growth(tested.points(CPU)), 5.0);
        assert!(tested.series.is_rebased());
    }

    #[test]
    fn other_counters_that_fall_began_again() {
        let mut tested = Tested::new(&INFINIBAND, Before::default());
        for (at, value) in [(10, 50), (15, 60), (20, 4), (25, 6)] {
            let value = ("portRcvPkts", Value::Signed(value));
            assert_eq!(tested.take(at, (1, None), value), Order::Next);
        }
        // One that is late has nothing that the next one lacks.
        assert_eq!(tested.take(22, (1, None), ("portRcvPkts", Value::Signed(5))), Order::Late);
        let points = tested.points("infiniband_received_packets_total");
        let starts: Vec<_> = points.iter().map(|one| one.start).collect();
        let fallen = Some(Timestamp::from_seconds(15).plus(1));
        assert_eq!(starts, [None, None, fallen, fallen]);
        assert_eq!(increases(None, Timestamp(0), points), 16.0);
    }

    #[test]
    fn gauges_that_are_late_are_stored_and_missing_values_are_none() {
        let mut tested = Tested::new(&PROCSTATS, Before::default());
        for at in [10, 20, 15, 15] {
            tested.take(at, (1, None), ("meminfo_memtotal", Value::Unsigned(2)));
        }
        let points = tested.points("memory_total_bytes");
        let found: Vec<_> = points.iter().map(|one| (one.at.0 / 1_000_000, one.value)).collect();
        assert_eq!(found, [(10, 2048.0), (20, 2048.0), (15, 2048.0)]);
        assert_eq!(tested.samples.len(), 3, "columns without a value have no sample");
    }

    #[test]
    fn counters_of_a_job_begin_with_it() {
        let begin = Some(Timestamp::from_seconds(7));
        let mut tested = Tested::new(&TASKSTATS, Before { begin, ..Before::default() });
        tested.take(10, (1, Some(5)), cpu(3));
        assert_eq!(tested.points(CPU)[0].start, begin);
    }
}
