//! `jobmeter extract` on a file of Colmet's collector, and on one of the output `hdf5`.

use colmet::backends::{JOBPROC, TASKSTATS};
use colmet::record::{Record, Value as ColmetValue};
use colmet_files::writer::Writer;
use flate2::read::GzDecoder;
use model::Timestamp;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

const METRICS: &str = "ac_etime,cpu_run_real_total,coremem,read_bytes,write_bytes";

fn testdata(name: &str) -> String {
    format!("{}/../../testdata/colmet/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn run(program: &Path, words: &[&str]) -> Output {
    #[expect(clippy::disallowed_methods, reason = "the program itself is tested")]
    Command::new(program).args(words).output().unwrap()
}

fn jobmeter(words: &[&str]) -> Output {
    run(Path::new(env!("CARGO_BIN_EXE_jobmeter")), &[&["extract"], words].concat())
}

fn lists(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    let mut text = String::new();
    GzDecoder::new(&*output.stdout).read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn colmets_own_file_has_what_colmet_extract_prints() {
    let expected = fs::read_to_string(testdata("collector_0610_extract.json")).unwrap();
    let expected: Value = serde_json::from_str(&expected).unwrap();
    let prefix = testdata("collector_0610");
    let words = [&*prefix, "4242", "1764369000", "1764369020", METRICS];
    assert_eq!(lists(&jobmeter(&words)), expected);
    // By its other name, also in a folder with a dot.
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("a.b");
    fs::create_dir(&folder).unwrap();
    fs::copy(format!("{prefix}.1764369000.hdf5"), folder.join("data.1764369000.hdf5")).unwrap();
    let link = dir.path().join("colmet_extract.py");
    symlink(env!("CARGO_BIN_EXE_jobmeter"), &link).unwrap();
    let prefix = folder.join("data");
    let words = [prefix.to_str().unwrap(), "4242", "1764369000", "1764369020", METRICS];
    assert_eq!(lists(&run(&link, &words)), expected);
}

#[test]
fn rows_are_filtered_by_time_and_lists_remain_aligned() {
    let prefix = testdata("collector_0610");
    let of_node = lists(&jobmeter(&[
        &*prefix,
        "0",
        "1764369010",
        "1764369010",
        "uptime_total,portXmitData,average_power_consumption,counter_1",
    ]));
    // Three tables have one of the metrics, and RAPL counter_1; temperatures have no instants.
    let at = 1_764_369_010;
    assert_eq!(of_node["timestamp"], json!([at, at, at, at]));
    assert_eq!(of_node["hostname"][0], "node-2.cluster");
    let numbers = |name: &str| {
        let list = of_node[name].as_array().unwrap();
        list.iter().filter(|value| value.is_number()).count()
    };
    for name in ["uptime_total", "portXmitData", "average_power_consumption", "counter_1"] {
        assert_eq!((of_node[name].as_array().unwrap().len(), numbers(name)), (4, 1), "{of_node}");
    }
    let csv = jobmeter(&["--csv", &prefix, "4242", "1764369010", "1764369099", "ac_etime"]);
    let csv = String::from_utf8(csv.stdout).unwrap();
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("ac_etime,timestamp,hostname"));
    assert!(lines.next().unwrap().ends_with(",1764369010,node-2.cluster"), "{csv}");
    assert_eq!(lines.count(), 1);
}

#[test]
fn our_files_are_read_with_the_tables_that_colmets_program_ignores() {
    let dir = tempfile::tempdir().unwrap();
    for (file, first) in [("data.0000000100.hdf5", 100), ("data.0000000200.hdf5", 200)] {
        let file =
            File::options().read(true).write(true).create_new(true).open(dir.path().join(file));
        let mut writer = Writer::create(file.unwrap(), 5).unwrap();
        for second in first..first + 3 {
            let record = |backend, name: &str| {
                let mut record = Record::new(backend, "n1", 7, Timestamp::from_seconds(second));
                record.set(name, ColmetValue::Unsigned(second.unsigned_abs()));
                record.set("VmRSS", ColmetValue::Signed(second * 2));
                record
            };
            let records = [record(&TASKSTATS, "read_bytes"), record(&JOBPROC, "read_bytes")];
            writer.append(&records, Duration::ZERO).unwrap();
        }
    }
    let prefix = dir.path().join("data");
    let prefix = prefix.to_str().unwrap();
    let found = lists(&jobmeter(&[prefix, "7", "101", "200", "read_bytes,nothing"]));
    assert_eq!(found["read_bytes"], json!([101, 102, 200]));
    assert_eq!(found["nothing"], json!([null, null, null]));
    let found = lists(&jobmeter(&[prefix, "7", "202", "999", "VmRSS"]));
    assert_eq!(found, json!({"VmRSS": [404], "timestamp": [202], "hostname": ["n1"]}));
    let shorter = prefix.strip_suffix('a').unwrap();
    // A name that only begins like a prefix, a job and a time without records.
    for (words, code) in [
        ([shorter, "7", "0", "999", "VmRSS"], 2),
        ([prefix, "8", "0", "999", "VmRSS"], 4),
        ([prefix, "7", "103", "199", "VmRSS"], 4),
        ([prefix, "7", "x", "199", "VmRSS"], 2),
    ] {
        let output = jobmeter(&words);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(code), 0), "{words:?}");
        assert!(!output.stderr.is_empty());
    }
    fs::write(dir.path().join("data.0000000300.hdf5"), "no HDF5").unwrap();
    // A damaged file costs no record of the others.
    let output = jobmeter(&[prefix, "7", "202", "999", "VmRSS,vmrss"]);
    let error = String::from_utf8(output.stderr.clone()).unwrap();
    assert!(error.contains("data.0000000300.hdf5: it is no HDF5 file"), "{error}");
    assert!(error.contains("the job's tables have no column vmrss"), "{error}");
    assert_eq!(lists(&output)["VmRSS"], json!([404]));
    for (job, start, what) in
        [("oar:7", "0", "it is a number without a cluster"), ("7", "1000", "is before START")]
    {
        let output = jobmeter(&[prefix, job, start, "999", "VmRSS"]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && error.contains(what), "{error}");
    }
    let only = dir.path().join("data.0000000300.hdf5");
    let output = jobmeter(&[only.to_str().unwrap(), "7", "0", "999", "VmRSS"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && error.contains("it is no HDF5 file"), "{error}");
}
