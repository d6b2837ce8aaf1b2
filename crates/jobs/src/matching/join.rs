//! Assigns scheduler records to runs.
//!
//! The record of a run has the same job ID and overlaps the run in time. Of several such records, those
//! that had started when the run began come first. Of these, the record with the nearest start wins. A
//! record's times come from the scheduler's clock, a run's times from the node's clock. After
//! correction by the known clock offset, the two may be apart by up to [`TOGETHER`].
//!
//! Runs with the same record are one run. A job whose steps come and go has no cgroup between the
//! steps, and its nodes may start far apart. Visits of two records are two runs, however close they
//! are. A visit is a *stray* and belongs to no run if its record does not name its device, or names
//! another user. See `docs/decisions/0026-runs-and-records.md`.

use crate::matching::visits::{BoundedVisit, ReportedIdentity, Run, TOGETHER, Visit, runs, stops};
use model::{DeviceId, Timestamp};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The time range of a run, or the time range that a record states for its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: Timestamp,
    /// `None`: still open.
    pub(crate) stop: Option<Timestamp>,
}

impl Span {
    /// Converts the range to the server's clock. `ahead_us` is the offset of the source clock in
    /// microseconds.
    pub(crate) fn by_the_server(self, ahead_us: i64) -> Self {
        let at = |at: Timestamp| at.plus(ahead_us.saturating_neg());
        Self { start: at(self.start), stop: self.stop.map(at) }
    }

    fn end(self) -> i64 {
        self.stop.map_or(i64::MAX, |stop| stop.0)
    }
}

/// Maximum clock offset that a comparison with a record accepts: 24 h. The node itself states the
/// offset.
const CLOCK_OFF_MAX: i64 = 24 * 3600 * Timestamp::SECOND;

/// Cuts the time range that the nodes report to the time range of the record. Otherwise a node that the
/// record names could expose other users' samples of the same job ID, from before and after, to the
/// owner.
pub(crate) fn within(run: Span, record: Span, clock_us: i64) -> Span {
    let most = CLOCK_OFF_MAX.min(clock_us.saturating_abs()).saturating_add(TOGETHER);
    let start = run.start.max(record.start.plus(-most));
    let latest = record.stop.map(|stop| stop.plus(most).max(start));
    Span { start, stop: run.stop.into_iter().chain(latest).min() }
}

/// Returns the displayed start and end of a run: the nodes' times, cut to [`within`] of its record. The
/// record's end replaces a node's end beyond that range, and a missing one. No single node can thus
/// shift the times of a job that ran on other nodes too.
pub(crate) fn shown(run: Span, record: Span, clock_us: i64) -> Span {
    let cut = within(run, record, clock_us);
    let stop = if cut.stop == run.stop { run.stop } else { record.stop };
    Span { start: cut.start, stop: stop.map(|stop| stop.max(cut.start)) }
}

/// Returns the index of the record of a run. `None` in `records` stands for a record that never
/// started.
pub(crate) fn pick(run: Span, records: &[Option<Span>]) -> Option<usize> {
    let rank = |record: &Span| {
        let common = run.end().min(record.end()).saturating_sub(run.start.0.max(record.start.0));
        let had_started = record.start.since(run.start) <= TOGETHER;
        let apart = Reverse(run.start.0.abs_diff(record.start.0));
        (common >= -TOGETHER).then_some((common >= 0, had_started, apart))
    };
    let ranked = records.iter().enumerate().filter_map(|(place, record)| {
        let rank = rank(record.as_ref()?)?;
        Some((rank, Reverse(place)))
    });
    ranked.max().map(|(_, place)| place.0)
}

/// The facts of a record that runs depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordSpan {
    /// Time range of the job; `None`: the job never started.
    pub(crate) span: Option<Span>,
    /// The devices that the record names; empty: it names none.
    pub(crate) devices: BTreeSet<DeviceId>,
    /// The user that the record names.
    pub(crate) who: ReportedIdentity,
}

impl RecordSpan {
    /// Tests whether a visit may belong to the job: the record names its device or no device, and names no
    /// other user.
    fn may_have(&self, visit: &Visit) -> bool {
        let named = self.devices.is_empty() || self.devices.contains(&visit.device);
        named && self.who.agrees(&visit.identity)
    }
}

/// The runs of a job ID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Joined {
    /// Ordered by start.
    pub(crate) runs: Vec<JoinedRun>,
    /// Visits that the record of their time excludes by device or user, each with the index of that record.
    pub(crate) strays: Vec<(Visit, usize)>,
}

/// A run with its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JoinedRun {
    pub(crate) run: Run,
    /// Displayed start. It is at least 1 µs after the start of the previous run, since an ID and a start
    /// identify one run.
    pub(crate) start: Timestamp,
    /// Displayed end.
    pub(crate) stop: Option<Timestamp>,
    /// Index of the record.
    pub(crate) place: Option<usize>,
    /// Whether the visits alone would produce different runs or different times of this run.
    pub(crate) merged: bool,
}

impl JoinedRun {
    /// Sets the displayed start and end of the run.
    fn set_times(&mut self, records: &[RecordSpan]) {
        let run = Span { start: self.run.start(), stop: self.run.stop() };
        let record = self.place.and_then(|place| records.get(place)?.span);
        let times = record.map_or(run, |record| shown(run, record, self.run.clock_us()));
        self.merged |= times != run;
        (self.start, self.stop) = (times.start, times.stop);
    }
}

/// The record of one visit.
enum VisitRecord {
    /// Index of the record that was running.
    Of(usize),
    /// No record was running.
    None,
    /// Index of the record that was running and excludes the visit.
    Stray(usize),
}

/// Builds the runs from a set of visits and records. The order of `visits` does not matter.
pub(crate) fn join(mut visits: Vec<Visit>, records: &[RecordSpan]) -> Joined {
    visits.sort_unstable();
    let stops = stops(&visits);
    let (mut own, mut strays, mut named) = (BTreeMap::new(), Vec::new(), Vec::new());
    for (visit, stop) in visits.into_iter().zip(stops) {
        match own_record(&visit, stop, records) {
            VisitRecord::Stray(place) => {
                strays.push((visit, place));
                continue;
            }
            VisitRecord::Of(place) => {
                own.insert((visit.device.clone(), visit.start), place);
            }
            VisitRecord::None => {}
        }
        named.push(visit);
    }
    let mut joined: Vec<JoinedRun> = Vec::new();
    for run in runs(named) {
        let parts = split(run, &own, records);
        let several = parts.len() > 1;
        for (place, visits_found) in parts {
            let same = joined.iter_mut().find(|other| place.is_some() && other.place == place);
            match same {
                Some(first) => {
                    first.run.visits_found.extend(visits_found);
                    first.merged = true;
                }
                None => {
                    let (run, start, stop) = (Run { visits_found }, Timestamp(0), None);
                    joined.push(JoinedRun { run, start, stop, place, merged: several });
                }
            }
        }
    }
    for one in &mut joined {
        one.run.visits_found.sort_unstable_by(|a, b| a.visit.cmp(&b.visit));
        one.set_times(records);
    }
    joined.sort_by(|a, b| {
        (a.start, &a.run.visits_found.first().map(|visit_found| &visit_found.visit))
            .cmp(&(b.start, &b.run.visits_found.first().map(|visit_found| &visit_found.visit)))
    });
    let mut before = Timestamp(i64::MIN);
    for one in &mut joined {
        one.start = one.start.max(before.plus(1));
        before = one.start;
    }
    Joined { runs: joined, strays }
}

fn own_record(visit: &Visit, stop: Option<Timestamp>, records: &[RecordSpan]) -> VisitRecord {
    let span = Span { start: visit.start, stop }.by_the_server(visit.clock_us);
    let of = |named: bool| {
        let may = |record: &&RecordSpan| !named || record.may_have(visit);
        let spans: Vec<_> =
            records.iter().map(|record| record.span.filter(|_| may(&record))).collect();
        pick(span, &spans)
    };
    of(true)
        .map_or_else(|| of(false).map_or(VisitRecord::None, VisitRecord::Stray), VisitRecord::Of)
}

/// Splits a run by record. A visit without its own record takes the record of the visit before it, or
/// the first record.
fn split(
    run: Run,
    own: &BTreeMap<(DeviceId, Timestamp), usize>,
    records: &[RecordSpan],
) -> Vec<(Option<usize>, Vec<BoundedVisit>)> {
    let place_of = |visit_found: &BoundedVisit| {
        own.get(&(visit_found.visit.device.clone(), visit_found.visit.start)).copied()
    };
    let mut last = run.visits_found.iter().find_map(place_of);
    let mut parts: Vec<(Option<usize>, Vec<BoundedVisit>)> = Vec::new();
    for visit_found in run.visits_found {
        let place = place_of(&visit_found);
        last = place.or(last);
        let near = last.filter(|place| {
            records.get(*place).is_some_and(|record| record.may_have(&visit_found.visit))
        });
        let place = place.or(near);
        match parts.iter_mut().find(|(other, _)| *other == place) {
            Some((_, visits_found)) => visits_found.push(visit_found),
            None => parts.push((place, vec![visit_found])),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start: i64, stop: Option<i64>) -> Span {
        let at = |second: i64| Timestamp(second * Timestamp::SECOND);
        Span { start: at(start), stop: stop.map(at) }
    }

    #[test]
    fn the_record_of_the_same_time_is_the_runs() {
        let records = [None, Some(span(100, Some(200))), Some(span(400, None))];
        let run = |start, stop| pick(span(start, stop), &records);
        assert_eq!(run(101, Some(199)), Some(1));
        assert_eq!(run(105, None), Some(1), "its end was lost");
        assert_eq!(run(180, Some(190)), Some(1));
        assert_eq!(run(401, None), Some(2));
        assert_eq!(run(240, Some(250)), Some(1), "late by less than a minute");
        assert_eq!(run(270, Some(300)), None);
        assert_eq!(run(30, Some(35)), None);
        assert_eq!(run(345, Some(350)), Some(2));
    }

    #[test]
    fn of_two_that_overlap_alike_the_nearer_is_meant() {
        let records = [Some(span(100, None)), Some(span(300, None))];
        assert_eq!(pick(span(310, None), &records), Some(1));
        assert_eq!(pick(span(110, None), &records), Some(0));
        assert_eq!(pick(span(310, Some(320)), &records), Some(1));
        assert_eq!(pick(span(110, Some(120)), &[]), None);
    }

    fn visit(device: &str, start: i64, stop: Option<i64>) -> Visit {
        let Span { start, stop } = span(start, stop);
        let device = DeviceId::new(device).unwrap();
        let identity = ReportedIdentity::default();
        Visit { device, start, reported_end: stop, identity, clock_us: 0, monitor: None }
    }

    fn reported_end(start: i64, stop: Option<i64>, devices: &[&str]) -> RecordSpan {
        let devices = devices.iter().map(|name| DeviceId::new(name).unwrap()).collect();
        RecordSpan { span: Some(span(start, stop)), devices, who: ReportedIdentity::default() }
    }

    /// The devices of each run with the index of its record, and the strays.
    type Shape = (Vec<(Option<usize>, Vec<String>)>, Vec<String>);

    fn shape(visits: Vec<Visit>, records: &[RecordSpan]) -> Shape {
        let joined = join(visits, records);
        let devices =
            |run: &Run| run.visits_found.iter().map(|s| s.visit.device.to_string()).collect();
        let runs = joined.runs.iter().map(|joined| (joined.place, devices(&joined.run)));
        let strays = joined.strays.iter().map(|(visit, _)| visit.device.to_string());
        (runs.collect(), strays.collect())
    }

    #[test]
    fn nodes_that_start_far_apart_are_one_run_of_one_record() {
        let visits =
            || vec![visit("n1", 100, Some(110)), visit("n2", 400, None), visit("n3", 900, None)];
        let all = ["n1", "n2", "n3"].map(str::to_owned).to_vec();
        let record = [reported_end(100, None, &["n1", "n2", "n3"])];
        assert_eq!(shape(visits(), &record), (vec![(Some(0), all)], Vec::new()));
        assert_eq!(shape(visits(), &[]).0.len(), 2, "without a record the time decides");
    }

    #[test]
    fn two_records_are_two_runs_however_close() {
        let records = [reported_end(100, Some(200), &["n1"]), reported_end(210, None, &["n2"])];
        let visits = vec![visit("n1", 101, Some(199)), visit("n2", 211, None)];
        let one = |place, device: &str| (Some(place), vec![device.to_owned()]);
        assert_eq!(shape(visits, &records).0, [one(0, "n1"), one(1, "n2")]);
        // The end of the first visit was lost, on a device that also has the second visit.
        let records =
            [reported_end(100, Some(200), &["n1"]), reported_end(210, None, &["n1", "n2"])];
        let visits = vec![visit("n1", 101, None), visit("n1", 211, None), visit("n2", 212, None)];
        let both = (Some(1), vec!["n1".to_owned(), "n2".to_owned()]);
        assert_eq!(shape(visits, &records).0, [one(0, "n1"), both]);
    }

    #[test]
    fn a_device_that_the_record_does_not_name_is_in_no_run() {
        let records = [reported_end(100, Some(200), &["n1"])];
        let visits = || vec![visit("n1", 101, Some(199)), visit("bad", 150, None)];
        let n1 = (Some(0), vec!["n1".to_owned()]);
        assert_eq!(shape(visits(), &records), (vec![n1], vec!["bad".to_owned()]));
        let ends: Vec<_> = join(visits(), &records).runs.iter().map(|j| j.run.stop()).collect();
        assert_eq!(ends, [span(0, Some(199)).stop], "it does not keep the run open");
        // A record without devices excludes no device.
        let (runs, strays) = shape(visits(), &[reported_end(100, Some(200), &[])]);
        assert_eq!((runs.len(), strays.len()), (1, 0));
        // Two runs with the same start differ by 1 µs, since an ID and a start identify a run.
        let mut other = visit("n2", 101, None);
        other.identity.uid = Some(2);
        let mut one = visit("n1", 101, None);
        one.identity.uid = Some(1);
        let starts: Vec<_> = join(vec![other, one], &[]).runs.iter().map(|j| j.start).collect();
        assert_eq!(starts, [span(101, None).start, span(101, None).start.plus(1)]);
        // A visit at another time is a run without a scheduler record.
        let late = vec![visit("n1", 101, Some(199)), visit("bad", 900, None)];
        let (runs, strays) = shape(late, &records);
        assert_eq!((runs.len(), strays.len()), (2, 0));
    }
}
