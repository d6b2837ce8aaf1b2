//! Time ranges that are sent again: each sample once in a file of its own, beside the follower, over restarts and errors.

use crate::kit::{Site, counted, lines, once};
use conformance::{S, Spec, T0, job, spec};
use model::Timestamp;
use outputs::{FILLS_MAX, FillError, FillState, FillStatus, Outputs};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

const FILE: &str = "[outputs.file]\npath = \"a.json\"\n";

const fn second(second: i64) -> Timestamp {
    Timestamp(T0 + second * S)
}

fn fill(outputs: &Outputs, from: i64, to: i64) -> Result<FillStatus, FillError> {
    outputs.fill("file", (second(from), second(to)), None)
}

/// The present or last range of the only output.
fn status(site: &Site) -> FillStatus {
    site.outputs.status()[0].fills.last().unwrap().clone()
}

/// Waits until all ranges of the only output are done. Its clock goes on.
fn finish(site: &Site) -> FillStatus {
    for _ in 0..4000 {
        let fills = &site.outputs.status()[0].fills;
        if let [FillStatus { state: FillState::Done(_), .. }] = &fills[..] {
            return fills[0].clone();
        }
        site.clock.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{:?}", site.outputs.status());
}

/// The file of a range that was requested at a second after [`T0`].
fn file(site: &Site, range: &str, requested: i64) -> PathBuf {
    site.path(&format!(
        "a.json.fill-{range}.20260101T00{:02}{:02}Z",
        requested / 60,
        requested % 60
    ))
}

#[test]
fn a_range_is_written_to_a_file_of_its_own() {
    let mut site = Site::new();
    let of_job = |id| Spec { job: Some(id), ..spec("n2", "m") };
    site.store(&[(spec("n1", "m"), 1, 1.0), (spec("n1", "m"), 2, 1.0), (spec("n1", "no"), 2, 1.0)]);
    site.store(&[(of_job(7), 3, 1.0), (of_job(8), 3, 1.0), (spec("n1", "m"), 4, 1.0)]);
    // The output begins now, so its own file has none of these.
    site.apply(&format!("{FILE}metrics = \"m\"\n"));
    site.settle();
    let queued = fill(&site.outputs, 2, 3).unwrap();
    assert_eq!((queued.state, queued.requested), (FillState::Queued, second(400)));
    // At once: a later time is given, so that no two files have one name.
    site.outputs.fill("file", (second(0), second(99)), Some(&job(7))).unwrap();
    site.store(&[(spec("n1", "m"), 5, 1.0)]);
    let done = finish(&site);
    assert_eq!((done.samples, done.job, done.sent_to), (1, Some(job(7)), Some(second(99))));
    let first = file(&site, "20260101T000002Z-20260101T000003Z", 400);
    assert_eq!(counted(&[first]), [("n1/m@2".to_owned(), 1), ("n2/m@3".to_owned(), 2)].into());
    let of_seven = file(&site, "20260101T000000Z-20260101T000139Z", 401);
    assert_eq!(counted(&[of_seven]), once(["n2/m@3"]));
    site.settle();
    assert_eq!(counted(&[site.path("a.json")]), once(["n1/m@5"]));
    assert!(!site.path("outputs/file/fill").exists());
}

#[test]
fn a_range_is_continued_by_a_restart() {
    let mut site = Site::new();
    let mut keys = Vec::new();
    for at in 1..=11 {
        let of = |cpu| (Spec { cpu: Some(cpu), ..spec("n1", "m") }, at, 1.0);
        site.store(&(0..10_000).map(of).collect::<Vec<_>>());
        keys.push((format!("n1/m@{at}"), 10_000));
    }
    site.apply(FILE);
    site.settle();
    // A restart may come too late on a busy machine.
    for _ in 0..5 {
        let requested = fill(&site.outputs, 0, 99).unwrap().requested;
        while status(&site).samples == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let was_running = matches!(status(&site).state, FillState::Running);
        site = site.restart();
        site.apply(FILE);
        assert_eq!(finish(&site).samples, 110_000);
        let requested = (requested.0 - T0) / S;
        let path = file(&site, "20260101T000000Z-20260101T000139Z", requested);
        assert_eq!(counted(&[path]), keys.iter().cloned().collect());
        if was_running {
            return;
        }
    }
    panic!("no restart came while a range was sent");
}

#[test]
fn an_error_of_a_range_delays_nothing_else() {
    let mut site = Site::new();
    site.store(&[(spec("n1", "m"), 1, 1.0)]);
    site.apply(FILE);
    site.settle();
    let path = file(&site, "20260101T000000Z-20260101T000009Z", 400);
    fs::create_dir(&path).unwrap();
    fill(&site.outputs, 0, 9).unwrap();
    for _ in 0..2000 {
        if matches!(status(&site).state, FillState::Waiting(_)) {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let FillState::Waiting(why) = status(&site).state else { panic!("{:?}", status(&site)) };
    assert!(why.contains("directory"), "{why}");
    site.store(&[(spec("n1", "m"), 20, 1.0)]);
    site.settle();
    assert_eq!(counted(&[site.path("a.json")]), once(["n1/m@20"]));
    fs::remove_dir(&path).unwrap();
    assert_eq!(finish(&site).samples, 1);
    assert_eq!(counted(&[path]), once(["n1/m@1"]));
}

#[test]
fn a_range_has_one_sample_of_each_window() {
    let mut site = Site::new();
    site.store(&(0..35).map(|at| (spec("n1", "m"), at, at as f64)).collect::<Vec<_>>());
    site.apply(&format!("{FILE}every = \"10s\"\n"));
    site.settle();
    fill(&site.outputs, 5, 24).unwrap();
    finish(&site);
    let path = file(&site, "20260101T000005Z-20260101T000024Z", 400);
    // The last window ends with the range.
    assert_eq!(counted(&[path]), once(["n1/m@9", "n1/m@19", "n1/m@24"]));
}

#[test]
fn ranges_that_are_not_sent() {
    let site = Site::new();
    let colmet =
        "[outputs.colmet]\nkind = \"file\"\npath = \"b\"\nformat = \"colmet\"\ncluster = \"oar\"\n";
    site.apply(&format!("{FILE}{colmet}[outputs.out]\nkind = \"file\"\npath = \"-\"\n"));
    let error = |name: &str, from, to| {
        let range = (second(from), second(to));
        site.outputs.fill(name, range, None).unwrap_err().to_string()
    };
    for (name, from, to, why) in [
        ("none", 0, 1, "there is no output `none`; `jobmeter outputs` lists them"),
        (
            "colmet",
            0,
            1,
            "output `colmet` cannot send a time range again: Colmet's records need every earlier sample; use `format = \"json\"`",
        ),
        (
            "out",
            0,
            1,
            "output `out` cannot send a time range again: it writes to standard output; write to a file",
        ),
        (
            "file",
            2,
            1,
            "the time range is empty: it must end after it begins, and begin before now",
        ),
        (
            "file",
            401,
            500,
            "the time range is empty: it must end after it begins, and begin before now",
        ),
    ] {
        assert_eq!(error(name, from, to), why);
    }
    // Requests come faster than ranges are sent.
    let mut queued = 0;
    let why = loop {
        match fill(&site.outputs, 0, 1) {
            Ok(_) => queued += 1,
            Err(error) => break error,
        }
        assert!(queued < 100_000, "the queue has no limit");
    };
    assert!(matches!(why, FillError::TooMany) && queued >= FILLS_MAX, "{queued}: {why}");
}

#[test]
fn a_range_of_a_job_that_an_output_does_not_send_is_rejected() {
    let site = Site::new();
    let graphite = |name: &str, tree: &str| {
        format!(
            "[outputs.{name}]\nkind = \"graphite\"\naddress = \"127.0.0.1:1\"\ntree = \"{tree}\"\n"
        )
    };
    let some = "[outputs.some]\nkind = \"file\"\npath = \"b\"\njobs = \"oar:8\"\n";
    site.apply(
        &[graphite("own", "jobmeter"), graphite("theirs", "fructosa"), some.into()].concat(),
    );
    let fill = |name: &str| {
        let range = (second(0), second(1));
        site.outputs.fill(name, range, Some(&job(7))).map_err(|error| error.to_string())
    };
    assert!(fill("own").is_ok());
    let why = |name: &str| fill(name).unwrap_err();
    assert!(why("theirs").ends_with("it sends no samples of jobs"), "{}", why("theirs"));
    assert!(why("some").ends_with("its `jobs` does not select this job"), "{}", why("some"));
}

#[test]
fn a_range_has_the_gaps_of_its_time() {
    let mut site = Site::new();
    let gap = |from: i64| model::Gap {
        origin: model::Origin::new("n1").unwrap(),
        device: conformance::device("n1"),
        source: "cpu".into(),
        from: second(from),
        to: second(from + 1),
        cause: model::Cause::MissedTicks,
        detail: "".into(),
    };
    let batch = site.sender.batch_with(&[], vec![gap(10), gap(300)]);
    conformance::of_storage::append(&*site.store, vec![(batch, second(0))]);
    site.apply(FILE);
    site.settle();
    fill(&site.outputs, 5, 24).unwrap();
    finish(&site);
    let lines = lines(&file(&site, "20260101T000005Z-20260101T000024Z", 400));
    let from: Vec<_> =
        lines.iter().map(|line| line["gap"]["from"].as_i64().unwrap() - T0 / S).collect();
    assert_eq!(from, [10]);
}
