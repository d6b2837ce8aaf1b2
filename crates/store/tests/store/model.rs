//! The store against a map in memory, under random actions.

use crate::kit::*;
use conformance::{Received, Sample};
use memdisk::MemDisk;
use model::{Point, Rollup, RollupWindows, Timestamp};
use proptest::prelude::*;
use std::sync::Arc;
use storage::{
    FollowFrom, Followers, Incoming, JobSelector, LabelMatch, Outcome, Selector, Storage as _,
    TimeSlice, Windows,
};
use store::{Disk, Settings, Store};

/// Between two ticks: some are in one window of five minutes, all in an hour.
const TICK: i64 = 37 * S;

/// Possible actions.
#[derive(Clone, Debug)]
enum Action {
    /// Sends samples: of which series, at which tick, how many ticks, and whether the batch is kept back.
    Send {
        who: usize,
        series: u8,
        tick: i64,
        ticks: i64,
        late: bool,
    },
    /// Sends a batch again, or one that was kept back.
    Again(usize),
    /// A follower receives a slice of some rows, and confirms it or not.
    Read {
        who: usize,
        rows: usize,
        confirms: bool,
    },
    Flush,
    Maintain,
    Restart,
    Kill,
    PowerCut,
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let send = (0..2_usize, any::<u8>(), 0..60_i64, 1..12_i64, prop::bool::weighted(0.1)).prop_map(
        |(who, series, tick, ticks, late)| Action::Send { who, series, tick, ticks, late },
    );
    let read = (0..2_usize, 1..60_usize, prop::bool::weighted(0.8))
        .prop_map(|(who, rows, confirms)| Action::Read { who, rows, confirms });
    let action = prop_oneof![
        8 => send,
        6 => read,
        2 => (0..100_usize).prop_map(Action::Again),
        3 => Just(Action::Flush),
        2 => Just(Action::Maintain),
        1 => Just(Action::Restart),
        1 => Just(Action::Kill),
        1 => Just(Action::PowerCut),
    ];
    prop::collection::vec(action, 1..40)
}

/// The series of a byte: its bits select among eight of an origin.
fn specs(who: usize, bits: u8) -> Vec<Spec> {
    let device = ["n1", "n2"][who];
    let all = [
        spec(device, "a_total"),
        Spec { start: Some(T0 + i64::from(bits % 3)), ..spec(device, "b_total") },
        Spec { job: Some(3), ..spec(device, "a_total") },
        Spec { job: Some(4), ..spec(device, "c") },
        Spec { cpu: Some(0), ..spec(device, "d") },
        Spec { cpu: Some(1), ..spec(device, "d") },
        spec("pdu", ["e", "f"][who]),
        // The same series from both origins.
        spec("shared", "g"),
    ];
    all.into_iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1).map(|(_, s)| s).collect()
}

/// A value that is steps for some and a double for others, and identifies its sample.
fn value(seq: u64, place: usize, tick: i64) -> f64 {
    let number = (seq * 1000 + place as u64 * 100) as f64 + tick as f64;
    if seq.is_multiple_of(3) { number + 0.123_456_789 } else { number / 10.0 }
}

struct Model {
    disk: Arc<MemDisk>,
    store: Option<Store>,
    senders: [Sender; 2],
    sent: Vec<(Incoming, Vec<Row>)>,
    /// In order of arrival.
    rows: Vec<Row>,
    stored: Vec<bool>,
    received: [Received; 2],
}

const FOLLOWERS: [&str; 2] = ["a", "b"];

impl Model {
    fn new() -> Self {
        let mut model = Self {
            disk: Arc::default(),
            store: None,
            senders: [Sender::new("n1", 1), Sender::new("n2", 2)],
            sent: Vec::new(),
            rows: Vec::new(),
            stored: Vec::new(),
            received: Default::default(),
        };
        model.open();
        model
    }

    fn open(&mut self) {
        let disk: Arc<dyn Disk> = Arc::clone(&self.disk) as Arc<dyn Disk>;
        let settings = Settings { head_samples_max: 150, ..small() };
        self.store = Some(open_on(&disk, settings).unwrap().0);
        for name in FOLLOWERS {
            self.followers().follow(name, FollowFrom::All).unwrap();
        }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn followers(&self) -> &dyn Followers {
        self.store().followers().unwrap()
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::Read { who, rows, confirms } => {
                let Some(slice) = self.followers().next(FOLLOWERS[*who], *rows).unwrap() else {
                    return;
                };
                if *confirms {
                    self.followers().confirm(FOLLOWERS[*who], slice.number).unwrap();
                    self.received[*who].add(&slice, *rows);
                }
            }
            Action::Send { who, series, tick, ticks, late } => {
                let sender = &mut self.senders[*who];
                let mut samples = Vec::new();
                for tick in *tick..tick + ticks {
                    for (place, spec) in specs(*who, *series).into_iter().enumerate() {
                        samples.push((spec, T0 + tick * TICK, value(sender.seq, place, tick)));
                    }
                }
                let rows = samples.iter().map(row).collect();
                self.sent.push((sender.batch(&samples), rows));
                self.stored.push(false);
                if !late {
                    self.send(self.sent.len() - 1);
                }
            }
            Action::Again(which) if !self.sent.is_empty() => self.send(which % self.sent.len()),
            Action::Again(_) => {}
            Action::Flush => self.store().flush().unwrap(),
            Action::Maintain => self.maintain(),
            Action::Restart => {
                self.store = None;
                self.open();
            }
            Action::Kill => {
                self.disk = Arc::new(self.disk.after_kill());
                self.store = None;
                self.open();
            }
            Action::PowerCut => {
                self.disk = Arc::new(self.disk.after_power_cut(1));
                self.store = None;
                self.open();
            }
        }
    }

    /// Merges neighbours: few blocks are left, and an earlier view does not change.
    fn maintain(&self) {
        let found = |snapshot: &store::Snapshot| -> Vec<storage::Chunk> {
            let all = (Timestamp(i64::MIN), Timestamp(i64::MAX));
            snapshot.scan(&Selector::default(), all.0, all.1).map(Result::unwrap).collect()
        };
        let before = self.store().snapshot();
        let rows = found(&before);
        self.store().maintain().unwrap();
        assert_eq!(found(&before), rows);
        assert_eq!(found(&self.store().snapshot()), rows);
        // Two of a level make one of the next: at most one of each is left in each section between two positions.
        let sections =
            if self.followers().list().unwrap().iter().all(|one| one.behind == 0) { 1 } else { 5 };
        assert!(self.store().stats().blocks <= 8 * sections);
    }

    fn send(&mut self, which: usize) {
        let outcome = append(self.store(), vec![self.sent[which].0.clone()]);
        let want = if self.stored[which] { Outcome::Duplicate } else { STORED };
        assert_eq!(outcome, [want]);
        if !self.stored[which] {
            self.rows.extend(self.sent[which].1.iter().cloned());
        }
        self.stored[which] = true;
    }

    /// The expected rows of a selection, ordered by series and time; values of one instant by bits, since the
    /// store's order is its own.
    fn want(&self, from: i64, to: i64, keep: impl Fn(&Row) -> bool) -> Vec<Row> {
        let inside = |row: &&Row| (from..=to).contains(&row.1) && keep(row);
        let mut rows: Vec<Row> = self.rows.iter().filter(inside).cloned().collect();
        rows.sort();
        rows
    }

    fn check(&self, from: i64, to: i64) {
        let have = |selector: &Selector| {
            let mut rows = rows(self.store(), selector, from, to);
            rows.sort();
            rows
        };
        let text = |part: &'static str| move |row: &Row| row.0.contains(part);
        assert_eq!(have(&Selector::default()), self.want(from, to, |_| true));
        assert_eq!(have(&of_device("pdu")), self.want(from, to, |row| row.0.starts_with("pdu/")));
        let jobs = of_job(JobSelector::NoneOrIs(job(3)));
        assert_eq!(have(&jobs), self.want(from, to, |row| !row.0.contains("oar:4")));
        let label = LabelMatch::Is { key: "cpu".to_owned(), value: "1".to_owned() };
        let cpu = Selector { labels: vec![label], ..Selector::default() };
        assert_eq!(have(&cpu), self.want(from, to, text("\"cpu\": \"1\"")));
        let mut by_time = Vec::new();
        let snapshot = self.store().snapshot();
        for slice in snapshot.scan_by_time(&Selector::default(), Timestamp(from), Timestamp(to), 40)
        {
            let slice = slice.unwrap();
            assert!(slice.times.is_sorted() && slice.series.is_sorted());
            for (row, place) in slice.places.iter().enumerate() {
                let series = name(&slice.series[*place as usize].series);
                let start = Some(slice.starts[row]).filter(|start| *start != TimeSlice::NO_START);
                by_time.push((series, slice.times[row], slice.values[row].to_bits(), start));
            }
        }
        assert!(by_time.is_sorted_by_key(|row| row.1));
        by_time.sort();
        assert_eq!(by_time, self.want(from, to, |_| true));
    }

    /// Rollups are those of the samples, from any source.
    fn check_windows(&self, from: i64, to: i64) {
        let snapshot = self.store().snapshot();
        for window_us in storage::WINDOWS_US {
            let mut want = Vec::new();
            for chunk in
                snapshot.scan(&Selector::default(), Timestamp(i64::MIN), Timestamp(i64::MAX))
            {
                let chunk = chunk.unwrap();
                let mut windows = RollupWindows::new(window_us);
                let mut ended = Vec::new();
                for (at, value, start) in chunk.rows() {
                    ended.extend(windows.push(Point { at, value, start }));
                }
                ended.extend(windows.finish());
                ended.retain(|(start, _)| (from..=to).contains(&start.0));
                want.extend(ended.into_iter().map(|one| (name(&chunk.series.series), one)));
            }
            let mut have = Vec::new();
            let (from, to) = (Timestamp(from), Timestamp(to));
            for windows in snapshot.windows(&Selector::default(), from, to, window_us) {
                let Windows { series, windows } = windows.unwrap();
                have.extend(windows.into_iter().map(|one| (name(&series.series), one)));
            }
            let names = |all: &[(String, (Timestamp, Rollup))]| -> Vec<(String, Timestamp)> {
                all.iter().map(|(series, (start, _))| (series.clone(), *start)).collect()
            };
            assert_eq!(names(&have), names(&want));
            for ((series, (_, have)), (_, (_, want))) in have.iter().zip(&want) {
                assert!(same_rollup(series, have, want), "{series}: {have:?} for {want:?}");
            }
        }
    }

    /// Each follower receives what a scan returns, each sample once.
    fn check_followers(&mut self) {
        for (who, name) in FOLLOWERS.into_iter().enumerate() {
            let mut received = std::mem::take(&mut self.received[who]);
            received.take_all(self.followers(), name, 25);
            let row = |sample: &Sample| {
                let (start, bits) = (sample.start.map(|start| start.0), sample.value.to_bits());
                (crate::kit::name(&sample.series), sample.at.0, bits, start)
            };
            let mut rows: Vec<Row> = received.samples.iter().map(row).collect();
            rows.sort();
            assert_eq!(rows, self.want(i64::MIN, i64::MAX, |_| true), "{name}");
            assert_eq!((&received.gaps, &received.lost), (&vec![], &vec![]), "{name}");
            self.received[who] = received;
        }
    }

    fn check_last(&self) {
        for last in self.store().snapshot().last(&Selector::default()) {
            let series = name(&last.series.series);
            let newest = self.rows.iter().filter(|row| row.0 == series).map(|row| row.1).max();
            assert_eq!(Some(last.at.0), newest, "{series}");
            let same = |row: &&Row| row.0 == series && row.1 == last.at.0;
            let values: Vec<u64> = self.rows.iter().filter(same).map(|row| row.2).collect();
            assert!(values.contains(&last.value.to_bits()), "{series}");
        }
    }
}

fn same_rollup(series: &str, have: &Rollup, want: &Rollup) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0);
    let total = series.contains("_total/");
    (have.count, have.first, have.last, have.min, have.max)
        == (want.count, want.first, want.last, want.min, want.max)
        && near(have.seconds, want.seconds)
        && (total && have.sum.is_nan() || near(have.sum, want.sum))
        && (total && have.integral.is_nan() || near(have.integral, want.integral))
        && (!total || have.resets == want.resets && near(have.increase(), want.increase()))
}

/// 32, or as configured.
fn cases() -> u32 {
    let wanted = std::env::var("PROPTEST_CASES").ok();
    wanted.map_or(32, |cases| cases.parse().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn a_scan_returns_the_stored_samples(actions in actions(), from in 0..60_i64, span in 0..40_i64) {
        let mut model = Model::new();
        for action in &actions {
            model.act(action);
        }
        model.check(i64::MIN, i64::MAX);
        model.check(T0 + from * TICK, T0 + (from + span) * TICK);
        model.check_last();
        model.check_windows(T0 + from * TICK, T0 + (from + span) * TICK);
        model.check_windows(i64::MIN, i64::MAX);
        model.act(&Action::Flush);
        model.act(&Action::Maintain);
        model.act(&Action::PowerCut);
        model.check_followers();
        model.act(&Action::Maintain);
        model.check(i64::MIN, i64::MAX);
        model.check(T0 + from * TICK, T0 + (from + span) * TICK);
        model.check_last();
        model.check_windows(T0 + from * TICK, T0 + (from + span) * TICK);
        model.check_windows(i64::MIN, i64::MAX);
    }
}
