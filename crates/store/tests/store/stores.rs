//! Directories written by earlier builds: the current store opens them, returns the same, and continues.
//!
//! `testdata/stores/NAME/data` is a directory as its writer left it; `content.txt` describes its content in the
//! writer's view.
//! `testdata/stores/README.md` describes how they were made.

use crate::kit::*;
use model::{Cause, Gap, JobEvent, Labels, Point, Rollup, RollupWindows, SeriesTable, Timestamp};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use storage::{Incoming, Outcome, Selector, Storage as _, Windows};
use store::{RealDisk, Settings, Store};

/// Between two ticks; four of them are a batch, fourteen batches are six hours.
const TICK: i64 = 400 * S;
const TICKS: i64 = 4;
const BATCHES: i64 = 14;
const HOUR: i64 = 3600 * S;

/// Blocks are merged with their neighbours; time is settled two hours after its end.
fn settings(hours: i64) -> Settings {
    let (settle_after_us, settle_step_us) = (2 * HOUR, hours * HOUR);
    Settings { settle_after_us, settle_step_us, head_age_us: i64::MAX, ..small() }
}

fn clock() -> TestClock {
    let clock = TestClock::new();
    clock.set(T0 + 8 * HOUR);
    clock
}

/// The samples of a batch: gauges, counters with starts, one of which moves, labels, jobs, values of every kind.
fn samples(batch: i64) -> Vec<(Spec, i64, f64)> {
    let odd = [-0.0, 1e300, 5e-324, f64::NAN, f64::INFINITY, 0.1 + 0.2, -273.15];
    let mut samples = Vec::new();
    for tick in batch * TICKS..(batch + 1) * TICKS {
        let at = T0 + tick * TICK;
        samples.push((spec("n1", "load_1m"), at, tick as f64 / 10.0));
        let start = Some(if batch < 11 { T0 - 5 * S } else { T0 + 11 * TICKS * TICK - S });
        let busy = Spec { job: Some(7 + batch / 8), start, ..spec("n1", "cpu_seconds_total") };
        samples.push((busy, at, (tick % (11 * TICKS)) as f64 * 0.123));
        samples.push((Spec { cpu: Some(1), ..spec("n1", "mhz") }, at, 2400.0 + tick as f64));
        let odd = odd[usize::try_from(tick).unwrap() % odd.len()];
        samples.push((spec("pdu-1", "odd"), at, odd));
        samples.push((Spec { start, ..spec("n1", "link_bytes_total") }, at, (tick * tick) as f64));
    }
    samples
}

/// The batch with its gaps and help texts.
fn batch(sender: &mut Sender, number: i64) -> Incoming {
    sender.jobs = vec![JobEvent {
        key: job(7 + number / 8),
        display_id: "7".into(),
        device: device("n1"),
        user: Some("alice".into()),
        uid: Some(1000),
        start: Timestamp(T0),
        stop: None,
        monitor: None,
        oom_kills: Vec::new(),
    }];
    let gap = |cause, from: i64, to: i64| Gap {
        origin: sender.origin.clone(),
        device: device("n1"),
        source: "disk".into(),
        from: Timestamp(T0 + from * TICK),
        to: Timestamp(T0 + to * TICK),
        cause,
        detail: "said \"why\"".into(),
    };
    let gaps = match number {
        1 => vec![gap(Cause::SpoolFull, 7, 9), gap(Cause::PermissionLost, 8, 10)],
        12 => vec![gap(Cause::SourceTimeout, 48, 49)],
        _ => Vec::new(),
    };
    let incoming = sender.batch_with(&samples(number), gaps);
    let mut batch = incoming.decoded.into_batch().unwrap();
    let mut entries = batch.table.entries.clone();
    for entry in &mut entries {
        Arc::make_mut(&mut entry.metric).help = format!("what {} is", entry.metric.name).into();
        if &*entry.metric.name == "link_bytes_total" {
            entry.labels = Labels::new([("interface", "eth0"), ("path", "/é \"x\"")]).unwrap();
        }
    }
    batch.table = Arc::new(SeriesTable { entries });
    // Only one sender explains a metric.
    Sender::new("n1", 1).incoming(&batch)
}

/// Fills a directory: two blocks and a part of the log, a late batch and a lost one, a boot that ends and
/// another that begins, a rejected sample.
fn fill(store: &Store) {
    let (mut first, mut second) = (Sender::new("n1", 1), Sender::new("n1", 2));
    let mut late = None;
    for number in 0..BATCHES {
        let sender = if number < 11 { &mut first } else { &mut second };
        let incoming = batch(sender, number);
        match number {
            2 => late = Some(incoming),
            5 => {}
            _ => assert_eq!(append(store, vec![incoming]), [STORED]),
        }
        if number == 6 {
            assert_eq!(append(store, vec![late.take().unwrap()]), [STORED]);
        }
        if number == 4 || number == 9 {
            store.flush().unwrap();
            store.maintain().unwrap();
        }
    }
    let rejected = append(store, vec![second.batch(&[(spec("n2", "load_1m"), 5 * S, 1.0)])]);
    assert!(matches!(rejected[..], [Outcome::Stored { samples_rejected: 1, .. }]), "{rejected:?}");
}

/// A full description of a store, one fact per line.
fn describe(store: &Store) -> String {
    let mut text = String::new();
    for (series, at, bits, start) in all(store) {
        let (at, start) =
            (Timestamp(at), start.map_or("-".to_owned(), |s| Timestamp(s).to_string()));
        writeln!(text, "sample {at} {bits:016x} {start} {series}").unwrap();
    }
    for gap in store.gaps(Timestamp(i64::MIN), Timestamp(i64::MAX), None) {
        let Gap { origin, device, source, from, to, cause, detail } = gap;
        writeln!(text, "gap {from} {to} {origin} {device} {source:?} {cause:?} {detail}").unwrap();
    }
    for origin in store.origins() {
        let (name, batches, samples) = (origin.origin, origin.batches, origin.samples);
        writeln!(text, "origin {name} {batches} batches {samples} samples").unwrap();
        for boot in origin.boots {
            writeln!(text, "boot {} {} missing {}", boot.boot, boot.last_seq, boot.missing)
                .unwrap();
        }
    }
    for metric in store.catalogue() {
        // The content of earlier versions lacks this field: all meanings were declared.
        assert!(!metric.assumed);
        let metric = format!("{metric:?}").replace(", assumed: false }", " }");
        writeln!(text, "metric {metric}").unwrap();
    }
    text
}

/// A new directory has the same description as the stored ones. With `WRITE_STORE` it is written there, so
/// that it can be stored too.
#[test]
fn a_new_directory_has_the_content_of_earlier_ones() {
    let temporary = tempfile::tempdir().unwrap();
    let wanted = std::env::var_os("WRITE_STORE").map(PathBuf::from);
    let place = wanted.as_deref().unwrap_or(temporary.path());
    let data = place.join("data");
    std::fs::create_dir_all(&data).unwrap();
    let (store, _) = Store::open(&data, settings(3), clock().clock()).unwrap();
    fill(&store);
    let text = describe(&store);
    std::fs::write(place.join("content.txt"), &text).unwrap();
    for place in kept() {
        similar(&text, &std::fs::read_to_string(place.join("content.txt")).unwrap(), &place);
    }
}

#[test]
fn a_lost_manifest_is_damage_and_deletes_nothing() {
    for place in kept() {
        let dir = copy(&place);
        std::fs::remove_file(dir.path().join("MANIFEST")).unwrap();
        let blocks = || std::fs::read_dir(dir.path().join("blocks")).unwrap().count();
        let before = blocks();
        assert!(before > 0, "{}", place.display());
        let verified = store::verify(&RealDisk, dir.path()).unwrap();
        assert!(!verified.is_good(), "{verified:?}");
        let error = Store::open(dir.path(), settings(3), clock().clock()).unwrap_err().to_string();
        assert!(error.contains("MANIFEST: it is missing") && error.contains("backup"), "{error}");
        let to = tempfile::tempdir().unwrap();
        assert!(store::backup(dir.path(), &to.path().join("copy")).is_err());
        assert_eq!(blocks(), before);
    }
    // A new store has one before its first block.
    let dir = tempfile::tempdir().unwrap();
    drop(Store::open(dir.path(), settings(3), clock().clock()).unwrap());
    assert!(dir.path().join("MANIFEST").is_file());
}

/// The stored directories.
fn kept() -> Vec<PathBuf> {
    let stores = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/stores");
    let entries = std::fs::read_dir(&stores).unwrap().map(|entry| entry.unwrap().path());
    // Other folders beside them contain job registries.
    let is_store = |path: &PathBuf| path.is_dir() && path.join("content.txt").is_file();
    let mut places: Vec<PathBuf> = entries.filter(is_store).collect();
    assert!(places.len() >= 2, "{places:?}");
    places.sort();
    places
}

/// A copy that may be changed.
fn copy(place: &Path) -> tempfile::TempDir {
    fn below(from: &Path, to: &Path) {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let to = to.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                below(&entry.path(), &to);
            } else {
                std::fs::copy(entry.path(), to).unwrap();
            }
        }
    }
    let dir = tempfile::tempdir().unwrap();
    below(&place.join("data"), dir.path());
    dir
}

fn assert_good(dir: &Path, what: &str) {
    let verified = store::verify(&RealDisk, dir).unwrap();
    assert_eq!(verified.findings, [], "{what}");
}

/// Every window of the store.
fn windows(store: &Store, window_us: i64) -> BTreeMap<(String, Timestamp), Rollup> {
    let all = (Timestamp(i64::MIN), Timestamp(i64::MAX));
    let mut all_windows = BTreeMap::new();
    for found in store.snapshot().windows(&Selector::default(), all.0, all.1, window_us) {
        let Windows { series, windows } = found.unwrap();
        let name = name(&series.series);
        all_windows.extend(windows.into_iter().map(|(start, one)| ((name.clone(), start), one)));
    }
    all_windows
}

/// Every window, computed from the samples in the description beside the directory.
fn wanted(description: &str, window_us: i64) -> BTreeMap<(String, Timestamp), Rollup> {
    let (mut wanted, mut of) = (BTreeMap::new(), BTreeMap::<String, RollupWindows>::new());
    let mut keep = |name: &str, (start, one)| wanted.insert((name.to_owned(), start), one);
    for line in description.lines().filter_map(|line| line.strip_prefix("sample ")) {
        let [at, bits, start, name] = line.splitn(4, ' ').collect::<Vec<_>>()[..] else { panic!() };
        let value = f64::from_bits(u64::from_str_radix(bits, 16).unwrap());
        let (at, start) = (Timestamp::parse(at).unwrap(), Timestamp::parse(start).ok());
        let point = Point { at, value, start };
        let windows = of.entry(name.to_owned()).or_insert(RollupWindows::new(window_us));
        windows.push(point).map(|ended| keep(name, ended));
    }
    for (name, mut windows) in of {
        windows.finish().map(|ended| keep(&name, ended));
    }
    wanted
}

/// A window as text, without fields that totals (`_total`) do not store; rounded, since the order of addition
/// may differ.
fn window_text(name: &str, one: &Rollup) -> String {
    let Rollup { count, min, max, first, last, seconds, resets, .. } = one;
    let ends = (first.at, first.value, first.start, last.at, last.value, last.start);
    let rest = if name.contains("_total/") {
        format!("{resets} resets {:.9e}", one.increase())
    } else {
        format!("{:.9e} {:.9e}", one.sum + 0.0, one.integral + 0.0)
    };
    format!("{count} {min} {max} {ends:?} {seconds} {rest}")
}

fn assert_windows(store: &Store, text: &str, what: &str) {
    for window_us in storage::WINDOWS_US {
        let (have, want) = (windows(store, window_us), wanted(text, window_us));
        assert!(have.keys().eq(want.keys()), "{what}");
        for ((key, have), want) in have.iter().zip(want.values()) {
            assert_eq!(window_text(&key.0, have), window_text(&key.0, want), "{what}: {key:?}");
        }
    }
}

#[test]
fn earlier_directories_open_with_the_same_content() {
    let places = kept();
    assert!(places.len() >= 2, "{places:?}");
    for place in places {
        let dir = copy(&place);
        let text = std::fs::read_to_string(place.join("content.txt")).unwrap();
        assert_good(dir.path(), "as it was found");
        let (store, recovery) = Store::open(dir.path(), settings(1), clock().clock()).unwrap();
        assert!(recovery.cut.is_empty() && recovery.damaged.is_empty(), "{recovery:?}");
        assert_eq!(recovery.removed, Vec::<PathBuf>::new());
        assert!(recovery.batches >= 4 && recovery.jobs.len() >= 4, "{recovery:?}");
        similar(&describe(&store), &text, &place);
        assert_windows(&store, &text, "as it was found");
    }
}

#[test]
fn earlier_directories_are_merged_settled_and_opened_again() {
    for place in kept() {
        let dir = copy(&place);
        let text = std::fs::read_to_string(place.join("content.txt")).unwrap();
        let (store, _) = Store::open(dir.path(), settings(1), clock().clock()).unwrap();
        store.maintain().unwrap();
        store.flush().unwrap();
        store.maintain().unwrap();
        assert_eq!(store.stats().settled, Some(Timestamp(T0 + 5 * HOUR)));
        similar(&describe(&store), &text, &place);
        assert_windows(&store, &text, "settled");
        drop(store);
        assert_good(dir.path(), "settled");
        let (store, recovery) = Store::open(dir.path(), settings(1), clock().clock()).unwrap();
        assert_eq!(recovery.removed, Vec::<PathBuf>::new());
        similar(&describe(&store), &text, &place);
        assert_windows(&store, &text, "opened again");
        send_again(&store);
        let rows = all(&store);
        store.flush().unwrap();
        store.maintain().unwrap();
        assert_eq!((store.stats().blocks, all(&store)), (1, rows));
        drop(store);
        assert_good(dir.path(), "opened again");
    }
}

/// Sends batches again that the earlier build stored, then the lost one and a new one.
fn send_again(store: &Store) {
    let (mut first, mut second) = (Sender::new("n1", 1), Sender::new("n1", 2));
    let rows = all(store).len();
    for number in 0..BATCHES {
        let sender = if number < 11 { &mut first } else { &mut second };
        let incoming = batch(sender, number);
        let Outcome::Stored { samples_rejected, .. } = append(store, vec![incoming])[0].clone()
        else {
            continue;
        };
        assert_eq!((number, samples_rejected), (5, 20), "it is settled");
    }
    second.seq += 1;
    assert_eq!(append(store, vec![batch(&mut second, BATCHES)]), [STORED]);
    assert_eq!(all(store).len(), rows + 20);
}

/// Line by line, so that a difference is readable.
fn similar(have: &str, want: &str, place: &Path) {
    for (have, want) in have.lines().zip(want.lines()) {
        assert_eq!(have, want, "{}", place.display());
    }
    assert_eq!(have.lines().count(), want.lines().count(), "{}", place.display());
}
