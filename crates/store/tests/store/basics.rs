//! Append, query, flush, reopen: what the suite of every store (`conforming.rs`) cannot check in this one.

use crate::kit::*;
use model::{JobEvent, Timestamp};
use storage::{Selector, Storage as _, TimeSlice};
use store::{OpenError, Store};

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
fn stored_samples_come_from_memory_from_a_block_and_after_reopening() {
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
fn series_and_numbers_of_rows_come_from_indexes() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path(), small());
    let mut sender = Sender::new("n1", 1);
    append(&store, vec![sender.batch(&samples(20))]);
    for _ in 0..2 {
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
fn samples_come_ordered_by_time_in_bounded_slices() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path(), small());
    let mut sender = Sender::new("n1", 1);
    append(&store, vec![sender.batch(&samples(40))]);
    store.flush().unwrap();
    let later: Vec<_> = samples(60).split_off(320);
    append(&store, vec![sender.batch(&later)]);
    for rows_max in [1, 8, 50, 1000] {
        let mut found = Vec::new();
        let (from, to) = (Timestamp(T0 + 2 * S), Timestamp(T0 + 55 * S));
        for slice in store.snapshot().scan_by_time(&Selector::default(), from, to, rows_max) {
            let TimeSlice { series, places, times, values, starts } = slice.unwrap();
            assert!(times.len() <= rows_max.max(8), "{} rows", times.len());
            for (((place, at), value), start) in places.iter().zip(&times).zip(&values).zip(&starts)
            {
                let start = (*start != TimeSlice::NO_START).then_some(*start);
                let series = &series[*place as usize].series;
                found.push((*at, series.clone(), value.to_bits(), start));
            }
        }
        assert_eq!(found.len(), 54 * 8);
        assert!(found.is_sorted_by(|a, b| (a.0, &a.1) <= (b.0, &b.1)));
        let mut want = rows(&store, &Selector::default(), from.0, to.0);
        let mut have: Vec<Row> = found
            .into_iter()
            .map(|(at, series, bits, start)| (name(&series), at, bits, start))
            .collect();
        want.sort();
        have.sort();
        assert_eq!(have, want);
    }
}

#[test]
fn job_events_of_the_log_are_handed_on_until_blocks_cover_them() {
    let dir = tempfile::tempdir().unwrap();
    let mut sender = Sender::new("n1", 1);
    let event = |id: i64| JobEvent {
        key: job(id),
        display_id: id.to_string().into(),
        device: device("n1"),
        user: Some("alice".into()),
        uid: None,
        start: Timestamp(T0),
        stop: None,
        monitor: None,
        oom_kills: Vec::new(),
    };
    let load = |tick: i64| vec![(spec("n1", "load_1m"), T0 + tick * S, 1.0)];
    {
        let (store, recovery) = open(dir.path(), small());
        assert!(recovery.jobs.is_empty());
        for id in [7, 8] {
            sender.jobs = vec![event(id)];
            let found = sender.batch(&load(id));
            append(&store, vec![found.clone(), found]);
        }
    }
    for _ in 0..2 {
        let (_, recovery) = open(dir.path(), small());
        let found: Vec<_> = recovery.jobs.iter().flat_map(|(_, events)| events.clone()).collect();
        assert_eq!(found, [event(7), event(8)]);
    }
    open(dir.path(), small()).0.flush().unwrap();
    assert!(open(dir.path(), small()).1.jobs.is_empty());
}

#[test]
fn one_server_per_directory_and_no_newer_format() {
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
fn origins_list_times_and_devices() {
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
