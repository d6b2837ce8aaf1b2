//! The output `file`: each sample once, over restarts, failures, changes and rotation.

use crate::kit::{Site, counted, lines, once};
use conformance::{S, Spec, T0, spec};
use model::{Cause, Gap, Origin, Timestamp};
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

const ALL: &str = "[outputs.file]\npath = \"a.json\"\nfrom = \"all\"\n";

#[test]
fn a_file_has_each_sample_and_gap_once() {
    let mut site = Site::new();
    let counter =
        Spec { job: Some(7), cpu: Some(1), start: Some(T0), ..spec("n1", "cpu_seconds_total") };
    site.store(&[(counter, 1, 2.5), (spec("n1", "load_1m"), 1, 0.5)]);
    let gap = Gap {
        origin: Origin::new("n1").unwrap(),
        device: conformance::device("n1"),
        source: "cpu".into(),
        from: Timestamp(T0),
        to: Timestamp(T0 + S / 2),
        cause: Cause::MissedTicks,
        detail: "late \"one\"".into(),
    };
    let batch = site.sender.batch_with(&[], vec![gap]);
    conformance::of_storage::append(&*site.store, vec![(batch, Timestamp(T0))]);
    site.apply(ALL);
    site.settle();
    let second = T0 / S;
    let lines = lines(&site.path("a.json"));
    assert_eq!(
        lines,
        [
            json!({"time": second + 1, "device": "n1", "metric": "cpu_seconds_total", "value": 2.5,
                "start": second, "job": "oar:7", "labels": {"cpu": "1"}, "kind": "counter"}),
            json!({"time": second + 1, "device": "n1", "metric": "load_1m", "value": 0.5, "kind": "gauge"}),
            json!({"gap": {"from": second, "to": second as f64 + 0.5, "device": "n1", "origin": "n1",
                "source": "cpu", "cause": Cause::MissedTicks.words(), "detail": "late \"one\""}}),
        ]
    );
    let mode = fs::metadata(site.path("a.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    let status = &site.outputs.status()[0];
    assert_eq!((status.samples, status.newest), (2, Some(Timestamp(T0 + S))));
}

#[test]
fn a_restart_continues_and_a_new_output_begins_now() {
    let mut site = Site::new();
    site.store(&[(spec("n1", "a"), 1, 1.0)]);
    site.apply("[outputs.file]\npath = \"a.json\"\n");
    site.settle();
    site.store(&[(spec("n1", "a"), 2, 1.0)]);
    site.settle();
    site = site.restart();
    site.store(&[(spec("n1", "a"), 3, 1.0)]);
    site.apply("[outputs.file]\npath = \"a.json\"\n");
    site.settle();
    assert_eq!(counted(&[site.path("a.json")]), once(["n1/a@2", "n1/a@3"]));
}

#[test]
fn a_portion_that_was_written_and_not_confirmed_is_there_once() {
    // What a kill between the write and the confirmation leaves: the note of the portion, and its lines, whole or in part.
    for cut in [None, Some(3)] {
        let mut site = Site::new();
        site.store(&[(spec("n1", "a"), 1, 1.0)]);
        site.apply(ALL);
        site.settle();
        site = site.restart();
        let followers = site.path("samples/followers/POSITIONS");
        let positions = fs::read(&followers).unwrap();
        site.store(&[(spec("n1", "a"), 2, 1.0), (spec("n1", "b"), 2, 1.0)]);
        site.apply(ALL);
        site.settle();
        let Site { dir, store, outputs, sender, clock } = site;
        outputs.stop(std::time::Duration::from_secs(5));
        drop((store, outputs));
        fs::write(&followers, positions).unwrap();
        if let Some(cut) = cut {
            let file = fs::File::options().write(true).open(dir.path().join("a.json")).unwrap();
            file.set_len(file.metadata().unwrap().len() - cut).unwrap();
        }
        let (store, outputs) = crate::kit::open(dir.path(), &clock);
        let site = Site { dir, store, outputs, sender, clock };
        site.apply(ALL);
        site.settle();
        assert_eq!(
            counted(&[site.path("a.json")]),
            once(["n1/a@1", "n1/a@2", "n1/b@2"]),
            "{cut:?}"
        );
    }
}

#[test]
fn an_unavailable_folder_is_waited_for() {
    let mut site = Site::new();
    site.store(&[(spec("n1", "a"), 1, 1.0)]);
    site.apply("[outputs.file]\npath = \"there/a.json\"\nfrom = \"all\"\n[outputs.other]\nkind = \"file\"\npath = \"b.json\"\nfrom = \"all\"\n");
    let why = site.waits("file");
    assert!(why.contains("there/a.json: No such file"), "{why}");
    fs::create_dir(site.path("there")).unwrap();
    site.settle();
    for path in ["there/a.json", "b.json"] {
        assert_eq!(counted(&[site.path(path)]), once(["n1/a@1"]), "{path}");
    }
}

#[test]
fn a_change_continues_at_the_position_and_a_removed_output_does_too() {
    let mut site = Site::new();
    site.apply(ALL);
    site.store(&[(spec("n1", "a"), 1, 1.0)]);
    site.settle();
    site.apply("[outputs.file]\npath = \"b.json\"\nmetrics = \"b\"\n");
    site.store(&[(spec("n1", "a"), 2, 1.0), (spec("n1", "b"), 2, 1.0), (spec("n1", "bb"), 2, 1.0)]);
    site.settle();
    // The counts are those since the start, and a change is no failure.
    let status = &site.outputs.status()[0];
    assert_eq!((status.samples, status.failures), (2, 0));
    site.apply("");
    assert_eq!(site.outputs.status(), []);
    site.store(&[(spec("n1", "b"), 3, 1.0)]);
    site.apply("[outputs.file]\npath = \"b.json\"\nmetrics = \"b\"\n");
    site.settle();
    assert_eq!(counted(&[site.path("a.json")]), once(["n1/a@1"]));
    assert_eq!(counted(&[site.path("b.json")]), once(["n1/b@2", "n1/b@3"]));
}

#[test]
fn metrics_devices_and_jobs_are_selected() {
    let mut site = Site::new();
    let of_job = |id| Spec { job: Some(id), ..spec("n2", "m") };
    site.store(&[
        (spec("n1", "m"), 1, 1.0),
        (spec("n2", "m"), 1, 1.0),
        (of_job(7), 2, 1.0),
        (of_job(8), 3, 1.0),
    ]);
    let one = |name: &str, key: &str| {
        format!("[outputs.{name}]\nkind = \"file\"\npath = \"{name}\"\nfrom = \"all\"\n{key}\n")
    };
    site.apply(
        &[
            one("nodes", "jobs = \"none\""),
            one("any", "jobs = \"any\""),
            one("seven", "jobs = \"oar:1-7\""),
            one("devices", "devices = \"n[2-9]\""),
            one("later", "from_ = 1")
                .replace("from = \"all\"\nfrom_ = 1", "from = \"2026-01-01T00:00:02Z\""),
        ]
        .concat(),
    );
    site.settle();
    let found = |name: &str| counted(&[site.path(name)]);
    assert_eq!(found("nodes"), once(["n1/m@1", "n2/m@1"]));
    assert_eq!(found("any"), once(["n2/m@2", "n2/m@3"]));
    assert_eq!(found("seven"), once(["n2/m@2"]));
    assert_eq!(found("devices"), once(["n2/m@1", "n2/m@2", "n2/m@3"]));
    assert_eq!(found("later"), once(["n2/m@2", "n2/m@3"]));
}

#[test]
fn files_rotate_and_a_moved_file_is_begun_again() {
    let mut site = Site::new();
    site.apply(&format!("{ALL}rotate_bytes = \"4KiB\"\n"));
    let mut keys = Vec::new();
    for second in 1..=300 {
        site.store(&[(spec("n1", "a"), second, 1.0)]);
        keys.push(format!("n1/a@{second}"));
        if second % 25 == 0 {
            site.settle();
        }
        if second == 40 {
            fs::rename(site.path("a.json"), site.path("a.json.moved")).unwrap();
        }
    }
    site.settle();
    let names = fs::read_dir(site.dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<PathBuf> =
        names.filter(|path| path.to_string_lossy().contains("/a.json")).collect();
    assert!(files.len() >= 4, "{files:?}");
    assert_eq!(counted(&files), once(keys.iter().map(String::as_str)));
}

#[test]
fn no_link_no_foreign_folder_and_no_second_writer() {
    let mut site = Site::new();
    site.store(&[(spec("n1", "a"), 1, 1.0)]);
    fs::write(site.path("target"), "untouched").unwrap();
    std::os::unix::fs::symlink(site.path("target"), site.path("link")).unwrap();
    let both = "[outputs.one]\nkind = \"file\"\npath = \"same\"\nfrom = \"all\"\n[outputs.two]\nkind = \"file\"\npath = \"same\"\nfrom = \"all\"\n";
    site.apply(&format!("[outputs.file]\npath = \"link\"\nfrom = \"all\"\n{both}"));
    let why = site.waits("file");
    assert!(why.contains("symbolic link"), "{why}");
    assert_eq!(fs::read_to_string(site.path("target")).unwrap(), "untouched");
    for _ in 0..2000 {
        let status = site.outputs.status();
        let waits = |one: &&outputs::OutputStatus| matches!(&one.state, outputs::OutputState::Waiting { why, .. } if why.contains("another output writes it"));
        if status.iter().filter(waits).count() == 1 && !lines(&site.path("same")).is_empty() {
            assert_eq!(counted(&[site.path("same")]), once(["n1/a@1"]));
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("{:?}", site.outputs.status());
}

#[test]
fn a_check_finds_what_would_not_work_and_changes_nothing() {
    let site = Site::new();
    let check = |text: &str| {
        let found = outputs::check(&site.configs(text)[0]);
        found.into_iter().map(|(key, what)| format!("{key}: {what}")).collect::<Vec<_>>()
    };
    assert_eq!(check(ALL), [""; 0]);
    assert!(!site.path("a.json").exists());
    let none = check("[outputs.file]\ngroup = \"nobody-has-this\"\n");
    assert!(
        none[0].starts_with("outputs.file.group: there is no group")
            && none[1].starts_with("outputs.file.path: it needs"),
        "{none:?}"
    );
    assert!(check("[outputs.file]\npath = \"no/a\"\n")[0].contains("there is no folder"));
    for (path, what) in
        [(".", "is a folder"), ("new/", "is a folder"), ("/dev/null", "is no regular file")]
    {
        let found = check(&format!("[outputs.file]\npath = \"{path}\"\n"));
        assert!(found[0].contains(what), "{path}: {found:?}");
    }
    let largest = check("[outputs.file]\npath = \"a\"\ngroup = \"4294967295\"\n");
    assert!(largest[0].contains("there is no group"), "{largest:?}");
}

#[test]
fn a_check_finds_two_outputs_of_one_file_and_files_of_the_server() {
    let site = Site::new();
    let one = |name: &str, path: &str| {
        site.configs(&format!("[outputs.{name}]\nkind = \"file\"\npath = \"{path}\"\n")).remove(0)
    };
    let link = site.path("link");
    fs::create_dir(site.path("data")).unwrap();
    std::os::unix::fs::symlink(site.path("."), &link).unwrap();
    let configs = [
        one("a", "x"),
        one("b", "y"),
        one("c", "link/x"),
        one("d", "-"),
        one("e", "-"),
        one("f", "data/../data/z"),
    ];
    let found = outputs::check_paths(&configs, Some(&site.path("data")));
    let keys: Vec<_> = found.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, ["outputs.c.path", "outputs.f.path"], "{found:?}");
    assert!(found[0].1.contains("the output `a` writes this file"), "{found:?}");
}

/// Stops outputs and store, changes files of the data folder, and opens them again.
fn with_files(site: Site, change: impl FnOnce(&std::path::Path)) -> Site {
    let Site { dir, store, outputs, sender, clock } = site;
    outputs.stop(std::time::Duration::from_secs(5));
    drop((store, outputs));
    change(dir.path());
    let (store, outputs) = crate::kit::open(dir.path(), &clock);
    Site { dir, store, outputs, sender, clock }
}

const POSITIONS: &str = "samples/followers/POSITIONS";

#[test]
fn a_restored_data_folder_removes_nothing_from_a_file() {
    let mut site = Site::new();
    let note = "outputs/file/file.json";
    site.apply(ALL);
    site.store(&[(spec("n1", "a"), 1, 1.0)]);
    site.settle();
    site = site.restart();
    let positions = fs::read(site.path(POSITIONS)).unwrap();
    site.apply(ALL);
    site.store(&[(spec("n1", "a"), 2, 1.0)]);
    site.settle();
    // The state of an output that noted this portion and did not confirm it.
    let noted = fs::read(site.path(note)).unwrap();
    site.store(&[(spec("n1", "a"), 3, 1.0)]);
    site.settle();
    site = with_files(site, |dir| {
        fs::write(dir.join(POSITIONS), &positions).unwrap();
        fs::write(dir.join(note), &noted).unwrap();
    });
    site.apply(ALL);
    site.settle();
    let found = counted(&[site.path("a.json")]);
    // What the position is before comes again; nothing that the file had was cut.
    let expected = [("n1/a@1", 1), ("n1/a@2", 2), ("n1/a@3", 2)];
    assert_eq!(found, expected.map(|(key, count)| (key.to_owned(), count)).into());
}

#[test]
fn a_deleted_folder_of_an_output_is_made_again() {
    let mut site = Site::new();
    site.apply(ALL);
    site.store(&[(spec("n1", "a"), 1, 1.0)]);
    site.settle();
    fs::remove_dir_all(site.path("outputs/file")).unwrap();
    site.store(&[(spec("n1", "a"), 2, 1.0)]);
    site.settle();
    assert_eq!(counted(&[site.path("a.json")]), once(["n1/a@1", "n1/a@2"]));
}
