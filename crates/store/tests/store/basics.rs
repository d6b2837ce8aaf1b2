//! Append, ask, flush, open again.

use crate::kit::*;
use model::{Cause, Gap, JobEvent, Timestamp};
use store::{JobSelector, LastValue, OpenError, Outcome, Selector, Store, TimeSlice};

fn samples(n: i64) -> Vec<(Spec, i64, f64)> {
    let mut samples = Vec::new();
    for tick in 0..n {
        let at = T0 + tick * S;
        for device in ["n1", "n2"] {
            samples.push((spec(device, "load_1m"), at, tick as f64 / 10.0));
            let start = Some(T0 - 5 * S);
            let busy = Spec { job: Some(7), start, ..spec(device, "cpu_seconds_total") };
            samples.push((busy, at, tick as f64 * 0.123));
            for cpu in 0..2 {
                samples.push((Spec { cpu: Some(cpu), ..spec(device, "mhz") }, at, 0.1 + 0.2));
            }
        }
    }
    samples
}

fn sorted(samples: &[(Spec, i64, f64)]) -> Vec<Row> {
    let mut keyed: Vec<_> =
        samples.iter().map(|sample| ((sample.0.entry().series(), sample.1), row(sample))).collect();
    keyed.sort_by(|a, b| a.0.cmp(&b.0));
    keyed.into_iter().map(|(_, row)| row).collect()
}

#[test]
fn what_is_stored_is_there_from_memory_from_a_block_and_after_opening_again() {
    let dir = tempfile::tempdir().unwrap();
    let want = sorted(&samples(50));
    {
        let (store, recovery) = open(dir.path(), small());
        assert_eq!((recovery.batches, recovery.samples), (0, 0));
        let mut sender = Sender::new("n1", 1);
        let batches = samples(50).chunks(24).map(|part| sender.batch(part)).collect();
        assert!(append(&store, batches).iter().all(|outcome| *outcome == STORED));
        assert_eq!(all(&store), want, "from memory");
    }
    {
        let (store, recovery) = open(dir.path(), small());
        assert_eq!((recovery.batches, recovery.samples), (17, 400));
        assert!(recovery.cut.is_empty() && recovery.damaged.is_empty());
        assert_eq!(all(&store), want, "from the log");
        store.flush().unwrap();
        assert_eq!(all(&store), want, "from a block");
        let stats = store.stats();
        assert_eq!((stats.blocks, stats.block_samples, stats.head_samples), (1, 400, 0));
        assert_eq!((stats.log_segments, stats.log_bytes), (0, 0));
    }
    let (store, recovery) = open(dir.path(), small());
    assert_eq!(recovery.batches, 0);
    assert_eq!(all(&store), want, "from a block, opened again");
    assert_eq!(store.catalogue().len(), 3);
    assert_eq!(store.catalogue()[0].help, "what cpu_seconds_total counts");
}

#[test]
fn a_batch_is_kept_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut sender = Sender::new("n1", 1);
    let batch = sender.batch(&samples(3));
    for round in 0..3 {
        let (store, _) = open(dir.path(), small());
        let again = append(&store, vec![batch.clone(), batch.clone()]);
        let first = if round == 0 { STORED } else { Outcome::Duplicate };
        assert_eq!(again, [first, Outcome::Duplicate]);
        if round == 1 {
            store.flush().unwrap();
        }
        assert_eq!(append(&store, vec![batch.clone()]), [Outcome::Duplicate]);
        assert_eq!(all(&store).len(), 24);
    }
}

#[test]
fn selections_and_bounds() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path(), small());
    let mut sender = Sender::new("n1", 1);
    append(&store, vec![sender.batch(&samples(20))]);
    for _ in 0..2 {
        assert_eq!(rows(&store, &of_device("n2"), T0 + S, T0 + 3 * S).len(), 3 * 4);
        assert_eq!(rows(&store, &of_device("n3"), i64::MIN, i64::MAX), []);
        assert_eq!(rows(&store, &of_job(JobSelector::Is(job(7))), T0, T0).len(), 2);
        assert_eq!(rows(&store, &of_job(JobSelector::None), T0, T0).len(), 6);
        let series = store.snapshot().series(&of_device("n1"), Timestamp(T0), Timestamp(T0));
        let names: Vec<String> = series.unwrap().iter().map(|info| name(&info.series)).collect();
        let load = "n1/load_1m//{}".to_owned();
        assert_eq!((names.len(), names[1].clone()), (4, load));
        let estimate = |to| {
            store.snapshot().estimate_rows(&of_device("n1"), Timestamp(T0), Timestamp(to)).unwrap()
        };
        assert_eq!(estimate(T0 + 100 * S), 80);
        assert!((36..=44).contains(&estimate(T0 + 10 * S)), "{}", estimate(T0 + 10 * S));
        store.flush().unwrap();
    }
}

#[test]
fn samples_come_in_the_order_of_time_in_bounded_slices() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path(), small());
    let mut sender = Sender::new("n1", 1);
    append(&store, vec![sender.batch(&samples(40))]);
    store.flush().unwrap();
    let later: Vec<_> = samples(60).split_off(320);
    append(&store, vec![sender.batch(&later)]);
    for rows_max in [1, 8, 50, 1000] {
        let mut told = Vec::new();
        let (from, to) = (Timestamp(T0 + 2 * S), Timestamp(T0 + 55 * S));
        for slice in store.snapshot().scan_by_time(&Selector::default(), from, to, rows_max) {
            let TimeSlice { series, places, times, values, starts } = slice.unwrap();
            assert!(times.len() <= rows_max.max(8), "{} rows", times.len());
            for (((place, at), value), start) in places.iter().zip(&times).zip(&values).zip(&starts)
            {
                let start = (*start != TimeSlice::NO_START).then_some(*start);
                let series = &series[*place as usize].series;
                told.push((*at, series.clone(), value.to_bits(), start));
            }
        }
        assert_eq!(told.len(), 54 * 8);
        assert!(told.is_sorted_by(|a, b| (a.0, &a.1) <= (b.0, &b.1)));
        let mut want = rows(&store, &Selector::default(), from.0, to.0);
        let mut have: Vec<Row> = told
            .into_iter()
            .map(|(at, series, bits, start)| (name(&series), at, bits, start))
            .collect();
        want.sort();
        have.sort();
        assert_eq!(have, want);
    }
}

#[test]
fn the_last_values_come_from_memory_and_outlive_a_flush_and_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut sender = Sender::new("n1", 1);
    let check = |store: &Store| {
        let last = store.snapshot().last(&of_device("n2"));
        let told: Vec<(String, i64, f64)> = last
            .iter()
            .map(|LastValue { series, at, value, .. }| (name(&series.series), at.0, *value))
            .collect();
        assert_eq!(told.len(), 4);
        assert_eq!(told[1], ("n2/load_1m//{}".to_owned(), T0 + 9 * S, 0.9));
        assert_eq!(last[0].start, Some(Timestamp(T0 - 5 * S)));
    };
    {
        let (store, _) = open(dir.path(), small());
        append(&store, vec![sender.batch(&samples(10))]);
        // An older value that comes late is not the last.
        append(&store, vec![sender.batch(&samples(5))]);
        check(&store);
        store.flush().unwrap();
        check(&store);
    }
    let (store, _) = open(dir.path(), small());
    check(&store);
    append(&store, vec![sender.batch(&[(spec("n2", "load_1m"), T0 + 10 * S, 7.0)])]);
    assert_eq!(store.snapshot().last(&of_device("n2"))[1].value, 7.0);
}

#[test]
fn a_start_that_moves_is_told_run_by_run() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path(), small());
    let mut sender = Sender::new("n1", 1);
    let counter = |tick: i64, start: i64| {
        let spec = Spec { start: Some(start), ..spec("n1", "a_total") };
        (spec, T0 + tick * S, tick as f64)
    };
    let batch = [counter(0, 1), counter(1, 1), counter(2, 2), counter(3, 2)];
    append(&store, vec![sender.batch(&batch)]);
    for _ in 0..2 {
        let starts: Vec<Option<i64>> = all(&store).iter().map(|row| row.3).collect();
        assert_eq!(starts, [Some(1), Some(1), Some(2), Some(2)]);
        let told = |from, to| {
            let (from, to) = (Timestamp(T0 + from * S), Timestamp(T0 + to * S));
            let starts = store.snapshot().counter_starts(&Selector::default(), from, to).unwrap();
            starts.iter().map(|s| ((s.at.0 - T0) / S, s.start.0)).collect::<Vec<_>>()
        };
        assert_eq!(told(0, 9), [(0, 1), (2, 2)]);
        assert_eq!(told(2, 9), [(2, 2)]);
        assert_eq!(told(0, 1), [(0, 1)]);
        store.flush().unwrap();
    }
}

#[test]
fn impossible_times_cost_themselves_and_become_a_gap() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path(), small());
    let mut sender = Sender::new("n1", 1);
    let load = || spec("n1", "load_1m");
    let day = 86_400 * S;
    let batch = sender.batch(&[(load(), 5 * S, 1.0), (load(), T0, 2.0)]);
    let ahead = sender.batch(&[(load(), T0 + S, 1.0), (load(), T0 + 2 * day, 2.0)]);
    let ahead = store::Incoming { received: Timestamp(T0 + S), ..ahead };
    let outcomes = append(&store, vec![batch, ahead]);
    for (outcome, word) in outcomes.iter().zip(["before 2000", "a day ahead"]) {
        let Outcome::Stored { samples_refused: 1, reason } = outcome else { panic!("{outcome:?}") };
        assert!(reason.contains(word), "{reason}");
    }
    assert_eq!(all(&store).len(), 2);
    let gaps = store.gaps(Timestamp(T0 - S), Timestamp(T0 + S), Some(&device("n1")));
    assert_eq!(gaps.len(), 1, "one gap, made longer: {gaps:?}");
    assert_eq!((gaps[0].cause, &*gaps[0].source), (Cause::SeriesRefused, "load"));
    assert_eq!(store.stats().samples_refused, 2);
}

#[test]
fn gaps_are_kept_through_the_log_and_the_manifest() {
    let dir = tempfile::tempdir().unwrap();
    let mut sender = Sender::new("n1", 1);
    let gap = |from: i64, to: i64, cause| Gap {
        origin: sender.origin.clone(),
        device: device("n1"),
        source: "".into(),
        from: Timestamp(from),
        to: Timestamp(to),
        cause,
        detail: "why".into(),
    };
    let told = vec![gap(T0 - 9 * S, T0 - S, Cause::SpoolFull), gap(0, T0 + S, Cause::AgentDown)];
    // The first start of an agent, and one within a period of its last sample, leave no hole.
    let first = gap(S, T0, Cause::AgentDown);
    let soon = gap(S, T0 + 2 * S, Cause::AgentDown);
    let load = spec("n1", "load_1m");
    {
        let (store, _) = open(dir.path(), small());
        append(&store, vec![sender.batch_with(&[(load.clone(), T0, 1.0)], vec![first])]);
        append(&store, vec![sender.batch_with(&[(load.clone(), T0 + S, 1.0)], told)]);
        append(&store, vec![sender.batch_with(&[(load, T0 + 2 * S, 1.0)], vec![soon])]);
    }
    for round in 0..3 {
        let (store, _) = open(dir.path(), small());
        let gaps = store.gaps(Timestamp(T0 - 5 * S), Timestamp(T0 + S), None);
        let told: Vec<_> = gaps.iter().map(|gap| (gap.from.0, gap.to.0, gap.cause)).collect();
        let down = (T0, T0 + S, Cause::AgentDown);
        assert_eq!(told, [(T0 - 9 * S, T0 - S, Cause::SpoolFull), down], "round {round}");
        assert_eq!(store.gaps(Timestamp(T0 + S + 1), Timestamp(T0 + 3 * S), None), []);
        store.flush().unwrap();
    }
}

#[test]
fn what_the_log_tells_of_jobs_is_handed_on_until_blocks_cover_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut sender = Sender::new("n1", 1);
    let event = |id: i64| JobEvent {
        key: job(id),
        spelling: id.to_string().into(),
        device: device("n1"),
        user: Some("alice".into()),
        uid: None,
        start: Timestamp(T0),
        stop: None,
    };
    let load = |tick: i64| vec![(spec("n1", "load_1m"), T0 + tick * S, 1.0)];
    {
        let (store, recovery) = open(dir.path(), small());
        assert!(recovery.jobs.is_empty());
        for id in [7, 8] {
            sender.jobs = vec![event(id)];
            let told = sender.batch(&load(id));
            append(&store, vec![told.clone(), told]);
        }
    }
    for _ in 0..2 {
        let (_, recovery) = open(dir.path(), small());
        let told: Vec<_> = recovery.jobs.iter().flat_map(|(_, events)| events.clone()).collect();
        assert_eq!(told, [event(7), event(8)]);
    }
    open(dir.path(), small()).0.flush().unwrap();
    assert!(open(dir.path(), small()).1.jobs.is_empty());
}

#[test]
fn a_missing_batch_is_a_gap_until_it_comes() {
    let dir = tempfile::tempdir().unwrap();
    let mut sender = Sender::new("n1", 1);
    let load = |tick: i64| vec![(spec("n1", "load_1m"), T0 + tick * S, 1.0)];
    let batches: Vec<_> = (0..4).map(|tick| sender.batch(&load(tick))).collect();
    {
        let (store, _) = open(dir.path(), small());
        append(&store, vec![batches[0].clone(), batches[3].clone()]);
    }
    for _ in 0..2 {
        let (store, _) = open(dir.path(), small());
        let clock_is_behind = store.gaps(Timestamp(i64::MIN), Timestamp(i64::MAX), None);
        assert_eq!(clock_is_behind, [], "the hole is younger than the clock");
        store.flush().unwrap();
    }
    let clock = TestClock::new();
    clock.set(T0 + 100 * S);
    let (store, _) = Store::open(dir.path(), small(), clock.clock()).unwrap();
    let gaps = || store.gaps(Timestamp(i64::MIN), Timestamp(i64::MAX), Some(&device("n1")));
    assert_eq!(gaps().len(), 1);
    let gap = &gaps()[0];
    assert_eq!((gap.from.0, gap.to.0, gap.cause), (T0, T0 + 3 * S, Cause::BatchesLost));
    append(&store, vec![batches[1].clone(), batches[2].clone()]);
    assert_eq!(gaps(), []);
    assert_eq!(all(&store).len(), 4);
}

#[test]
fn one_server_a_directory_and_no_newer_format() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path(), small());
    let clock = TestClock::new();
    let again = Store::open(dir.path(), small(), clock.clock());
    assert!(matches!(again, Err(OpenError::Locked { .. })), "{again:?}");
    drop(store);
    std::fs::write(dir.path().join("FORMAT"), "jobmeter store 2\n").unwrap();
    let newer = Store::open(dir.path(), small(), clock.clock());
    assert!(matches!(newer, Err(OpenError::Newer { found: 2, known: 1, .. })), "{newer:?}");
    std::fs::write(dir.path().join("FORMAT"), "something else").unwrap();
    let other = Store::open(dir.path(), small(), clock.clock());
    assert!(matches!(other, Err(OpenError::NotOurs { .. })), "{other:?}");
}

#[test]
fn origins_tell_when_and_what_they_sent() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path(), small());
    let mut agents = [Sender::new("n1", 1), Sender::new("n1.other", 2)];
    for agent in &mut agents {
        let mut batch = agent.batch(&[(spec("n1", "load_1m"), T0 + 3 * S, 1.0)]);
        batch.received = Timestamp(T0 + S);
        append(&store, vec![batch]);
    }
    let origins = store.origins();
    assert_eq!(origins.len(), 2);
    assert_eq!(origins[0].clock_offset_us, 2 * S);
    assert_eq!(
        (origins[0].received, origins[0].sealed),
        (Timestamp(T0 + S), Timestamp(T0 + 3 * S))
    );
    assert_eq!(origins[0].devices, [device("n1")]);
    assert_eq!(origins[0].boots[0].last_seq, 0);
    let claims = store.claims();
    assert_eq!((claims.len(), claims[0].origins.len()), (1, 2));
}
