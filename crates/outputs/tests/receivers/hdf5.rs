//! The output `hdf5` beside Colmet's collector, PyTables, h5py and h5dump.

use crate::kit::Site;
use colmet::backends::{PERFHW, PROCSTATS};
use colmet::frame::Records;
use colmet::record::{Record, Value};
use conformance::{Spec, T0, spec};
use model::Timestamp;
use outputs::{Output, Portion};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use storage::{FollowMark, TimeSlice};

/// Set in the child process of the test of kills: its folder.
const CHILD: &str = "HDF5_OUTPUT_CHILD";
/// The child ends after this portion.
const LAST: &str = "HDF5_OUTPUT_LAST";

fn own() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn python(arguments: &[&str]) -> Command {
    let mut python = Command::new(own().join("../../target/python/bin/python"));
    python.arg("-B").arg(own().join("tests/receivers/hdf5.py")).args(arguments);
    python
}

/// What the script prints. It needs `colmet`, `h5py` and `tables` of tests/requirements.txt, and Debian's hdf5-tools.
fn printed(arguments: &[&str]) -> Json {
    let done = python(arguments).stderr(Stdio::inherit()).output();
    let done = done.expect("target/python is missing; `make test` installs it");
    assert!(done.status.success(), "{arguments:?}; `make test` installs what it needs");
    serde_json::from_slice(&done.stdout).unwrap()
}

/// An output with an own folder in `dir`, which writes to a path in it.
fn output(dir: &Path, path: &str, more: &str) -> Box<dyn Output> {
    let path = dir.join(path);
    let text =
        format!("[outputs.hdf5]\npath = {path:?}\ncluster = \"oar\"\nfrom = \"all\"\n{more}");
    let config = Site::new().configs(&text).remove(0);
    assert_eq!(outputs::check(&config), []);
    let folder = dir.join("own");
    fs::create_dir_all(&folder).unwrap();
    let spec = outputs::ALL.iter().find(|spec| spec.name == "hdf5").unwrap();
    (spec.open)(&config, &folder).unwrap()
}

fn portion(confirmed: u64, records: Vec<Record>) -> Portion {
    let samples =
        TimeSlice { series: vec![], places: vec![], times: vec![], values: vec![], starts: vec![] };
    let mark = FollowMark { begun: 1, confirmed };
    Portion { mark, samples, records, gaps: vec![], lost: None }
}

/// The files in a folder, in the order of their names.
fn files(dir: &Path) -> Vec<String> {
    let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let files = paths.filter(|path| path.to_string_lossy().contains(".hdf5"));
    let mut files: Vec<_> = files.map(|path| path.to_str().unwrap().to_owned()).collect();
    files.sort();
    files
}

fn rows(dir: &Path) -> BTreeMap<String, Vec<i64>> {
    let files = files(dir);
    let arguments: Vec<_> = ["rows"].into_iter().chain(files.iter().map(String::as_str)).collect();
    serde_json::from_value(printed(&arguments)).unwrap()
}

#[test]
fn each_column_equals_that_of_colmets_collector() {
    let dir = tempfile::tempdir().unwrap();
    let names = ["all10_synthetic", "magnitudes", "procstats_only_9202B"];
    let frames =
        names.map(|name| own().join(format!("../../testdata/colmet/colmet_py0610_{name}.bin")));
    let mut records = Vec::new();
    for frame in &frames {
        let frame = fs::read(frame).unwrap();
        records.extend(Records::of(&frame).map(Result::unwrap));
    }
    output(dir.path(), "ours.hdf5", "").write(&portion(0, records.clone())).unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (ours, theirs) = (path("ours.hdf5"), path("theirs.hdf5"));
    let frames = frames.each_ref().map(|path| path.to_str().unwrap());
    let collected = printed(&[&["collect", &theirs][..], &frames].concat());
    let nvidia = records.iter().filter(|record| record.backend.word == "nvidia").count();
    assert_eq!(collected, json!(records.len() - nvidia));
    let compared = printed(&["compare", &ours, &theirs]);
    assert!(compared["columns"].as_u64() > Some(180), "{compared}");
    let only: Vec<String> = serde_json::from_value(compared["only"].clone()).unwrap();
    for name in [
        "procstats_default.involved_jobs",
        "jobprocstats_default.VmRSS",
        "jobprocstats_default.RssShmem",
        "jobprocstats_default.VmSize",
        "RAPLstats_default.counter_24",
        "temperaturestats_default.timestamp",
        "temperaturestats_default.hostname",
        "nvidiastats_default.power",
    ] {
        assert!(only.iter().any(|one| one == name), "{name}: {only:?}");
    }
}

/// A record of the node, and some of a job that fill a chunk now and then.
fn records(second: i64) -> Vec<Record> {
    let at = Timestamp::from_seconds(second);
    let mut of_job = Record::new(&PERFHW, "n1", 7, at);
    of_job.set("counter_1", Value::Signed(second * 3));
    let mut of_node = Record::new(&PROCSTATS, "n1", 0, at);
    of_node.set("involved_jobs", Value::Text("[7]".into()));
    of_node.set("uptime_total", Value::Unsigned(second.unsigned_abs()));
    vec![of_node, of_job]
}

#[test]
fn a_live_file_opens_in_each_reader() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("live.hdf5");
    let mut output = output(dir.path(), "live.hdf5", "complevel = 5\n");
    output.write(&portion(0, records(1))).unwrap();
    let mut reader = python(&["live", path.to_str().unwrap()]);
    let mut reader = reader.spawn().expect("target/python is missing; `make test` installs it");
    let mut last = 1_i64;
    let done = loop {
        if let Some(done) = reader.try_wait().unwrap() {
            break done;
        }
        last += 1;
        let second = last;
        output.write(&portion(second.unsigned_abs(), records(second))).unwrap();
        if second % 16 == 0 {
            // Chunks of new jobs, while groups are read.
            let mut record = records(second).remove(1);
            record.job = second.unsigned_abs();
            output.write(&portion(second.unsigned_abs() + 10_000_000, vec![record])).unwrap();
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    assert!(done.success());
    let rows = rows(dir.path());
    assert_eq!(rows["job_7/perfhwstats_default"], (1..=last).collect::<Vec<_>>());
    assert_eq!(rows["job_0/procstats_default"], (1..=last).collect::<Vec<_>>());
}

/// Records of a portion: more of some, so that chunks are filled, compressed, and begun again.
fn records_of(number: u64) -> Vec<Record> {
    let first = i64::try_from(number).unwrap() * 100;
    let count = if number.is_multiple_of(3) { 70 } else { 3 };
    (first..first + count).flat_map(records).collect()
}

/// The child: writes portions, and notes each one that is written, as a follower's confirmation does.
fn write_portions(dir: &Path) {
    let position = dir.join("position");
    let read = |path: &Path| fs::read_to_string(path).unwrap().trim().parse::<u64>().unwrap();
    let path = fs::read_to_string(dir.join("path")).unwrap();
    let mut output = output(dir, &path, "complevel = 1\n");
    let last: u64 = std::env::var(LAST).unwrap().parse().unwrap();
    for number in read(&position)..=last {
        output.write(&portion(number, records_of(number))).unwrap();
        fs::write(dir.join("next"), (number + 1).to_string()).unwrap();
        fs::rename(dir.join("next"), &position).unwrap();
    }
}

#[test]
fn the_child_of_the_test_of_kills() {
    if let Some(dir) = std::env::var_os(CHILD) {
        write_portions(Path::new(&dir));
    }
}

fn child(dir: &Path, last: u64) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["hdf5::the_child_of_the_test_of_kills", "--exact"]).stdout(Stdio::null());
    child.env(CHILD, dir).env(LAST, last.to_string()).spawn().unwrap()
}

#[test]
fn kills_lose_and_repeat_no_record() {
    for (path, kills) in [("data", 25), ("data.hdf5", 25)] {
        let dir = tempfile::tempdir().unwrap();
        let position = dir.path().join("position");
        fs::write(&position, "0").unwrap();
        fs::write(dir.path().join("path"), path).unwrap();
        let mut reached = 0;
        for kill in 0..kills {
            let mut child = child(dir.path(), u64::MAX);
            // Once it works, a time that differs: during a write, or between a write and its note.
            let begin = Instant::now();
            while fs::read_to_string(&position).unwrap() == format!("{reached}") {
                assert!(begin.elapsed() < Duration::from_secs(60), "it writes nothing");
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_micros(731 * (kill % 23)));
            child.kill().unwrap();
            child.wait().unwrap();
            reached = fs::read_to_string(&position).unwrap().trim().parse().unwrap();
        }
        let last = reached + 3;
        assert!(child(dir.path(), last).wait().unwrap().success());
        let mut found = rows(dir.path());
        let expected: Vec<i64> = (0..=last)
            .flat_map(records_of)
            .filter(|it| it.job == 7)
            .map(|it| it.at.0 / 1_000_000)
            .collect();
        for table in ["job_7/perfhwstats_default", "job_0/procstats_default"] {
            let seconds = found.remove(table).unwrap();
            assert_eq!(seconds, expected, "{path} {table}");
        }
        assert_eq!(files(dir.path()).len() > 1, path == "data");
    }
}

#[test]
fn a_damaged_or_foreign_file_is_set_aside() {
    for (content, name) in [(&b"no HDF5"[..], "a.hdf5"), (&b"\x89HDF\r\n\x1a\n"[..], "b.hdf5")] {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(name), content).unwrap();
        let mut output = output(dir.path(), name, "");
        output.write(&portion(0, records(5))).unwrap();
        let files = files(dir.path());
        assert_eq!(files.len(), 2, "{files:?}");
        assert_eq!(fs::read(&files[1]).unwrap(), content);
        let ours = printed(&["rows", &files[0]]);
        assert_eq!(ours["job_7/perfhwstats_default"], json!([5]));
    }
}

#[test]
fn full_files_are_followed_by_new_ones() {
    let dir = tempfile::tempdir().unwrap();
    let mut output = output(dir.path(), "data", "rotate_bytes = \"200KiB\"\ncomplevel = 0\n");
    for second in 0..60_i64 {
        output.write(&portion(second.unsigned_abs(), records(second))).unwrap();
    }
    let files = files(dir.path());
    assert!(files.len() > 2, "{files:?}");
    // The name has the second of the first record.
    assert!(files[0].ends_with("data.0000000000.hdf5"), "{files:?}");
    let found = rows(dir.path());
    assert_eq!(found["job_0/procstats_default"], (0..60).collect::<Vec<_>>());
}

#[test]
fn the_store_reaches_a_file_with_the_recorded_header() {
    let mut site = Site::new();
    let config = "[outputs.hdf5]\npath = \"data.hdf5\"\ncluster = \"oar\"\nfrom = \"all\"\ndomain = \"site.org\"\n";
    let of_job = |metric| Spec { job: Some(7), start: Some(T0 - 1), ..spec("n1", metric) };
    for second in 0..3 {
        site.store(&[
            (spec("n1", "load_1m"), second, 0.5),
            (spec("n1", "cpu_forks_total"), second, 9.0),
        ]);
        site.store(&[(of_job("perf_instructions_total"), second, 10.0 * second as f64 + 1.0)]);
    }
    site.apply(config);
    site.settle();
    let path = site.path("data.hdf5");
    let path = path.to_str().unwrap();
    // The last instant may still get samples.
    let second = T0 / 1_000_000;
    let rows = printed(&["rows", path]);
    assert_eq!(
        rows,
        json!({
            "job_0/procstats_default": [second, second + 1],
            "job_7/perfhwstats_default": [second, second + 1],
        })
    );
    let dumped = Command::new("h5dump").args(["-p", "-A", path]).output();
    let dumped = dumped.expect("h5dump is missing; `make test` installs hdf5-tools");
    let dumped = String::from_utf8(dumped.stdout).unwrap();
    // Without the name of the file, and without addresses and sizes, which depend on compression.
    let varies = ["OFFSET ", "SIZE ", "RATIO "];
    let is_kept = |line: &&str| {
        !line.contains(path) && !varies.iter().any(|word| line.trim_start().starts_with(word))
    };
    let dumped: String = dumped.lines().filter(is_kept).flat_map(|line| [line, "\n"]).collect();
    let golden: PathBuf = own().join("../../testdata/colmet/hdf5_h5dump.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&golden, &dumped).unwrap();
    }
    assert_eq!(dumped, fs::read_to_string(&golden).unwrap());
}

#[test]
fn a_configuration_that_cannot_work_is_rejected() {
    let site = Site::new();
    let check = |text: &str| outputs::check(&site.configs(&format!("[outputs.hdf5]\n{text}"))[0]);
    let keys = |text: &str| check(text).into_iter().map(|(key, _)| key).collect::<Vec<_>>();
    assert_eq!(keys("cluster = \"oar\"\n"), ["outputs.hdf5.path"]);
    assert_eq!(keys("path = \"data\"\n"), ["outputs.hdf5.cluster"]);
    assert_eq!(keys("path = \"no/data\"\ncluster = \"oar\"\n"), ["outputs.hdf5.path"]);
    assert_eq!(keys("path = \"data\"\ncluster = \"oar\"\ncomplib = \"zlib\"\n"), [""; 0]);
    let kinds = outputs::kinds();
    let options = kinds.iter().find(|kind| kind.name == "hdf5").unwrap().options;
    let complib = options.iter().find(|option| option.name == "complib").unwrap();
    assert!(complib.kind.check("lzo").unwrap_err().contains("use `zlib`"));
}
