//! Which record belongs to which run.
//!
//! A run's record is the one of its number that was running at the same time; of several, one that had
//! started when the run began, and of those the one that started nearest. A record's times are the
//! scheduler's and a run's the node's, so that they may miss each other by [`TOGETHER`] when what is known of
//! the node's clock has been taken off.
//!
//! Runs that have one record are one run: a job whose steps come and go has no cgroup between them, and its nodes may start
//! far apart. Visits of two records are two runs, however close they are. A visit of a device that its record does not
//! name, or of another user than it names, is a *stray*: it belongs to no run. See `docs/decisions/0026-runs-and-records.md`.

use crate::matching::visits::{Run, Said, Stay, TOGETHER, Visit, runs, stops};
use model::{DeviceId, Timestamp};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// From when until when a run was, or a record says that its job was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: Timestamp,
    /// `None`: it goes on.
    pub(crate) stop: Option<Timestamp>,
}

impl Span {
    /// As the server's clock shows it, of a clock that was so many microseconds ahead of it.
    pub(crate) fn by_the_server(self, ahead_us: i64) -> Self {
        let at = |at: Timestamp| at.plus(ahead_us.saturating_neg());
        Self { start: at(self.start), stop: self.stop.map(at) }
    }

    fn end(self) -> i64 {
        self.stop.map_or(i64::MAX, |stop| stop.0)
    }
}

/// How far a node's clock is believed to be off where its times are compared with a record's: the node states it.
const CLOCK_OFF_MAX: i64 = 24 * 3600 * Timestamp::SECOND;

/// The time of a run: what its nodes report, cut to the time of its record. A node that the record names could
/// otherwise open to the owner what was counted under the same ID for others, before and after.
pub(crate) fn within(run: Span, record: Span, clock_us: i64) -> Span {
    let most = CLOCK_OFF_MAX.min(clock_us.saturating_abs()).saturating_add(TOGETHER);
    let start = run.start.max(record.start.plus(-most));
    let latest = record.stop.map(|stop| stop.plus(most).max(start));
    Span { start, stop: run.stop.into_iter().chain(latest).min() }
}

/// When a run is shown to have begun and ended: as its nodes report, cut to [`within`] of its record. An end beyond that,
/// or none although the record has one, is the record's. So no node moves the time of a job that others were on too.
pub(crate) fn shown(run: Span, record: Span, clock_us: i64) -> Span {
    let cut = within(run, record, clock_us);
    let stop = if cut.stop == run.stop { run.stop } else { record.stop };
    Span { start: cut.start, stop: stop.map(|stop| stop.max(cut.start)) }
}

/// The place of the record that a run has; `records` of `None` never started.
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

/// A record as far as runs depend on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordSpan {
    /// When its job ran; `None`: it never started.
    pub(crate) span: Option<Span>,
    /// The devices that it names; empty: it names none.
    pub(crate) devices: BTreeSet<DeviceId>,
    /// The user that it names.
    pub(crate) who: Said,
}

impl RecordSpan {
    /// Whether a visit may be of its job: of a device that it names, and of no other user.
    fn may_have(&self, visit: &Visit) -> bool {
        let named = self.devices.is_empty() || self.devices.contains(&visit.device);
        named && self.who.agrees(&visit.said)
    }
}

/// The runs of a number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Joined {
    /// Ordered by start.
    pub(crate) runs: Vec<JoinedRun>,
    /// Visits that the record of their time does not have, by device or user, with the place of that record.
    pub(crate) strays: Vec<(Visit, usize)>,
}

/// A run with its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JoinedRun {
    pub(crate) run: Run,
    /// When it is shown to have begun, or a microsecond after the start of the run before it: an ID and a start name
    /// one run.
    pub(crate) start: Timestamp,
    /// When it is shown to have ended.
    pub(crate) stop: Option<Timestamp>,
    /// The place of its record.
    pub(crate) place: Option<usize>,
    /// Whether the visits alone would make other runs, or other times of this one.
    pub(crate) merged: bool,
}

impl JoinedRun {
    /// Works out when the run is shown to have begun and ended.
    fn set_times(&mut self, records: &[RecordSpan]) {
        let run = Span { start: self.run.start(), stop: self.run.stop() };
        let record = self.place.and_then(|place| records.get(place)?.span);
        let times = record.map_or(run, |record| shown(run, record, self.run.clock_us()));
        self.merged |= times != run;
        (self.start, self.stop) = (times.start, times.stop);
    }
}

/// The record of one visit.
enum Own {
    /// The place of the record that was running.
    Of(usize),
    /// None was.
    None,
    /// The place of the one that was running and does not have the visit.
    Stray(usize),
}

/// Makes the runs of a set of visits and records. The order of `visits` does not matter.
pub(crate) fn join(mut visits: Vec<Visit>, records: &[RecordSpan]) -> Joined {
    visits.sort_unstable();
    let stops = stops(&visits);
    let (mut own, mut strays, mut named) = (BTreeMap::new(), Vec::new(), Vec::new());
    for (visit, stop) in visits.into_iter().zip(stops) {
        match own_record(&visit, stop, records) {
            Own::Stray(place) => {
                strays.push((visit, place));
                continue;
            }
            Own::Of(place) => {
                own.insert((visit.device.clone(), visit.start), place);
            }
            Own::None => {}
        }
        named.push(visit);
    }
    let mut joined: Vec<JoinedRun> = Vec::new();
    for run in runs(named) {
        let parts = split(run, &own, records);
        let several = parts.len() > 1;
        for (place, stays) in parts {
            let same = joined.iter_mut().find(|other| place.is_some() && other.place == place);
            match same {
                Some(first) => {
                    first.run.stays.extend(stays);
                    first.merged = true;
                }
                None => {
                    let (run, start, stop) = (Run { stays }, Timestamp(0), None);
                    joined.push(JoinedRun { run, start, stop, place, merged: several });
                }
            }
        }
    }
    for one in &mut joined {
        one.run.stays.sort_unstable_by(|a, b| a.visit.cmp(&b.visit));
        one.set_times(records);
    }
    joined.sort_by(|a, b| {
        (a.start, &a.run.stays.first().map(|stay| &stay.visit))
            .cmp(&(b.start, &b.run.stays.first().map(|stay| &stay.visit)))
    });
    let mut before = Timestamp(i64::MIN);
    for one in &mut joined {
        one.start = one.start.max(before.plus(1));
        before = one.start;
    }
    Joined { runs: joined, strays }
}

fn own_record(visit: &Visit, stop: Option<Timestamp>, records: &[RecordSpan]) -> Own {
    let span = Span { start: visit.start, stop }.by_the_server(visit.clock_us);
    let of = |named: bool| {
        let may = |record: &&RecordSpan| !named || record.may_have(visit);
        let spans: Vec<_> =
            records.iter().map(|record| record.span.filter(|_| may(&record))).collect();
        pick(span, &spans)
    };
    of(true).map_or_else(|| of(false).map_or(Own::None, Own::Stray), Own::Of)
}

/// The stays of a run by record. One without a record of its own belongs to the record before it, or to the first.
fn split(
    run: Run,
    own: &BTreeMap<(DeviceId, Timestamp), usize>,
    records: &[RecordSpan],
) -> Vec<(Option<usize>, Vec<Stay>)> {
    let place_of = |stay: &Stay| own.get(&(stay.visit.device.clone(), stay.visit.start)).copied();
    let mut last = run.stays.iter().find_map(place_of);
    let mut parts: Vec<(Option<usize>, Vec<Stay>)> = Vec::new();
    for stay in run.stays {
        let place = place_of(&stay);
        last = place.or(last);
        let near = last
            .filter(|place| records.get(*place).is_some_and(|record| record.may_have(&stay.visit)));
        let place = place.or(near);
        match parts.iter_mut().find(|(other, _)| *other == place) {
            Some((_, stays)) => stays.push(stay),
            None => parts.push((place, vec![stay])),
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
        let said = Said::default();
        Visit { device, start, told: stop, said, clock_us: 0, monitor: None }
    }

    fn told(start: i64, stop: Option<i64>, devices: &[&str]) -> RecordSpan {
        let devices = devices.iter().map(|name| DeviceId::new(name).unwrap()).collect();
        RecordSpan { span: Some(span(start, stop)), devices, who: Said::default() }
    }

    /// The devices of each run with the place of its record; the strays.
    type Shape = (Vec<(Option<usize>, Vec<String>)>, Vec<String>);

    fn shape(visits: Vec<Visit>, records: &[RecordSpan]) -> Shape {
        let joined = join(visits, records);
        let devices = |run: &Run| run.stays.iter().map(|s| s.visit.device.to_string()).collect();
        let runs = joined.runs.iter().map(|joined| (joined.place, devices(&joined.run)));
        let strays = joined.strays.iter().map(|(visit, _)| visit.device.to_string());
        (runs.collect(), strays.collect())
    }

    #[test]
    fn nodes_that_start_far_apart_are_one_run_of_one_record() {
        let visits =
            || vec![visit("n1", 100, Some(110)), visit("n2", 400, None), visit("n3", 900, None)];
        let all = ["n1", "n2", "n3"].map(str::to_owned).to_vec();
        let record = [told(100, None, &["n1", "n2", "n3"])];
        assert_eq!(shape(visits(), &record), (vec![(Some(0), all)], Vec::new()));
        assert_eq!(shape(visits(), &[]).0.len(), 2, "without a record the time decides");
    }

    #[test]
    fn two_records_are_two_runs_however_close() {
        let records = [told(100, Some(200), &["n1"]), told(210, None, &["n2"])];
        let visits = vec![visit("n1", 101, Some(199)), visit("n2", 211, None)];
        let one = |place, device: &str| (Some(place), vec![device.to_owned()]);
        assert_eq!(shape(visits, &records).0, [one(0, "n1"), one(1, "n2")]);
        // The end of the first was lost, on a device that has the second, too.
        let records = [told(100, Some(200), &["n1"]), told(210, None, &["n1", "n2"])];
        let visits = vec![visit("n1", 101, None), visit("n1", 211, None), visit("n2", 212, None)];
        let both = (Some(1), vec!["n1".to_owned(), "n2".to_owned()]);
        assert_eq!(shape(visits, &records).0, [one(0, "n1"), both]);
    }

    #[test]
    fn a_device_that_the_record_does_not_name_is_in_no_run() {
        let records = [told(100, Some(200), &["n1"])];
        let visits = || vec![visit("n1", 101, Some(199)), visit("bad", 150, None)];
        let n1 = (Some(0), vec!["n1".to_owned()]);
        assert_eq!(shape(visits(), &records), (vec![n1], vec!["bad".to_owned()]));
        let ends: Vec<_> = join(visits(), &records).runs.iter().map(|j| j.run.stop()).collect();
        assert_eq!(ends, [span(0, Some(199)).stop], "it does not keep the run open");
        // A record without devices names nobody, and rejects nobody.
        let (runs, strays) = shape(visits(), &[told(100, Some(200), &[])]);
        assert_eq!((runs.len(), strays.len()), (1, 0));
        // Two runs of one start differ by a microsecond, since an ID and a start name a run.
        let mut other = visit("n2", 101, None);
        other.said.uid = Some(2);
        let mut one = visit("n1", 101, None);
        one.said.uid = Some(1);
        let starts: Vec<_> = join(vec![other, one], &[]).runs.iter().map(|j| j.start).collect();
        assert_eq!(starts, [span(101, None).start, span(101, None).start.plus(1)]);
        // Of another time it is a run that no scheduler knows of.
        let late = vec![visit("n1", 101, Some(199)), visit("bad", 900, None)];
        let (runs, strays) = shape(late, &records);
        assert_eq!((runs.len(), strays.len()), (2, 0));
    }
}
