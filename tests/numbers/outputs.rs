//! Outputs of a real server: while it is killed and its file system is full, the output `file` has each stored sample once.

use crate::common::programs::{Running, Server, agent, get, output, program, until};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Kills of the server in `make test`; `KILLS` sets more.
const KILLS: u64 = 8;
/// The metric of which every sample is counted.
const METRIC: &str = "load_1m";

fn write(path: &Path, text: &str) -> String {
    fs::write(path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The lines of all files of an output.
fn lines(dir: &Path, name: &str) -> Vec<Value> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let is_of = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(name);
    let mut lines = Vec::new();
    for path in entries.filter(is_of) {
        let text = fs::read_to_string(&path).unwrap();
        // The last line may be cut: the server may be writing.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        lines.extend(whole.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
    }
    lines
}

/// How often each instant of the metric is in lines.
fn instants(lines: &[Value]) -> BTreeMap<i64, usize> {
    let mut counts = BTreeMap::new();
    for line in lines.iter().filter(|line| line["metric"] == METRIC) {
        #[expect(clippy::cast_possible_truncation, reason = "microseconds since 1970")]
        let micros = (line["time"].as_f64().unwrap() * 1e6).round() as i64;
        *counts.entry(micros).or_insert(0) += 1;
    }
    counts
}

/// The instants of the metric that the server has.
fn stored(url: &str) -> Vec<i64> {
    let (status, text) = get(url, &format!("/api/v1/range?metric={METRIC}&start=0&step=0"));
    assert_eq!(status, 200, "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    let times = answer["series"][0]["times"].as_array().unwrap_or_else(|| panic!("{text}"));
    #[expect(clippy::cast_possible_truncation, reason = "microseconds since 1970")]
    let micros = times.iter().map(|at| (at.as_f64().unwrap() * 1e6).round() as i64);
    micros.collect()
}

/// Runs `jobmeter outputs`.
fn outputs(url: &str) -> (i32, String) {
    let (code, out, errors) =
        output(Command::new(program("jobmeter")).args(["outputs", "--server", url]));
    (code, out + &errors)
}

fn is_settled(url: &str) -> Option<()> {
    let (_, text) = get(url, "/api/v1/outputs");
    let all: Value = serde_json::from_str(&text).ok()?;
    let all = all.as_array()?;
    let settled = |one: &Value| one["samples_behind"] == 0 && one["state"] == "working";
    (!all.is_empty() && all.iter().all(settled)).then_some(())
}

#[test]
fn a_file_has_each_sample_once_after_kills() {
    let dir = tempfile::tempdir().unwrap();
    let (data, out) = (dir.path().join("data"), dir.path().join("out"));
    fs::create_dir(&out).unwrap();
    let file = write(
        &dir.path().join("server.toml"),
        &format!(
            "block_every = \"1s\"\n[outputs.file]\npath = \"{0}/all.json\"\nrotate_bytes = \"64KiB\"\nfrom = \"all\"\n\
             [outputs.load]\nkind = \"file\"\npath = \"{0}/load.json\"\nmetrics = \"load_.*\"\n",
            out.display()
        ),
    );
    let more = ["--config", file.as_str()];
    let mut server = Server::start(&data, &more);
    let mut command = agent();
    command.args(["--server", &server.url, "--period", "100ms", "--device", "n1"]);
    command.args(["--sources-load-period", "100ms"]).arg("--spool").arg(dir.path().join("spool"));
    let mut agent = Running::start(&mut command);
    let kills = std::env::var("KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    for round in 0..kills {
        until("lines of this start", Duration::from_secs(60), || {
            let (_, text) = get(&server.url, "/api/v1/outputs");
            let all: Value = serde_json::from_str(&text).ok()?;
            (all[0]["samples"].as_u64()? > 0).then_some(())
        });
        std::thread::sleep(Duration::from_millis(round * 173 % 700));
        server.running.kill();
        server.again(&data, &more);
    }
    assert_eq!(agent.end(), 0);
    until("the end of the outputs", Duration::from_secs(60), || is_settled(&server.url));
    let stored = stored(&server.url);
    assert!(stored.len() > 10, "{stored:?}");
    let once: BTreeMap<i64, usize> = stored.iter().map(|at| (*at, 1)).collect();
    let (all, load) = (lines(&out, "all.json"), lines(&out, "load.json"));
    assert_eq!(instants(&all), once);
    let loads = instants(&load);
    assert!(loads.values().all(|count| *count == 1) && loads.len() + 50 > once.len(), "{loads:?}");
    assert!(
        load.iter().all(|line| line.get("gap").is_some()
            || line["metric"].as_str().unwrap().starts_with("load_"))
    );
    assert!(fs::read_dir(&out).unwrap().count() > 3, "files rotate");
    let (code, shown) = outputs(&server.url);
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("file") && shown.contains("working"), "{shown}");
    let (_, metrics) = get(&server.url, "/metrics");
    assert!(metrics.contains("jobmeter_output_waiting{output=\"load\"} 0"), "{metrics}");
}

#[test]
fn a_reload_changes_outputs_and_an_invalid_file_leaves_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("server.toml");
    let table = |name: &str| {
        format!(
            "[outputs.{name}]\nkind = \"file\"\npath = \"{}/{name}.json\"\n",
            dir.path().display()
        )
    };
    let file = write(&path, "");
    let mut server = Server::start(&dir.path().join("data"), &["--config", &file]);
    assert!(outputs(&server.url).1.contains("no outputs"));
    let names = |url: &str| {
        let (_, text) = get(url, "/api/v1/outputs");
        let all: Value = serde_json::from_str(&text).unwrap();
        let names =
            all.as_array().unwrap().iter().map(|one| one["output"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    let reloaded = |text: &str, expected: &[&str]| {
        fs::write(&path, text).unwrap();
        server.running.signal("HUP");
        until("the outputs of the file", Duration::from_secs(20), || {
            (names(&server.url) == expected).then_some(())
        });
    };
    reloaded(&(table("a") + &table("b")), &["a", "b"]);
    fs::write(&path, table("c").replace("kind", "kidn")).unwrap();
    server.running.signal("HUP");
    until("the error", Duration::from_secs(20), || {
        server.running.errors().contains("unknown key `outputs.c.kidn`").then_some(())
    });
    assert_eq!(names(&server.url), ["a", "b"]);
    // A folder that is not there: the output waits, and says why.
    let absent = table("c").replace("/c.json", "/absent/c.json");
    reloaded(&absent, &["c"]);
    let mut agent = Running::agent(&server.url, "n1", &dir.path().join("spool"));
    let (code, shown) = until("the reason", Duration::from_secs(30), || {
        Some(outputs(&server.url)).filter(|(code, _)| *code == 1)
    });
    assert_eq!(code, 1);
    assert!(shown.contains("waiting") && shown.contains("absent/c.json: No such file"), "{shown}");
    fs::create_dir(dir.path().join("absent")).unwrap();
    until("the end of the wait", Duration::from_secs(30), || {
        (outputs(&server.url).0 == 0).then_some(())
    });
    assert_eq!(agent.end(), 0);
    assert_eq!(server.running.end(), 0);
}

#[test]
fn a_check_names_what_would_not_work() {
    let dir = tempfile::tempdir().unwrap();
    let check = |text: &str| {
        let file = write(&dir.path().join("server.toml"), text);
        let (code, out, errors) =
            output(Command::new(program("jobmeter")).args(["check", &file, "--for", "server"]));
        (code, out + &errors)
    };
    let (code, shown) = check(
        "[outputs.file]\npath = \"no/such/folder\"\nmetrics = \"(\"\n[outputs.other]\nkind = \"files\"\n",
    );
    assert_eq!(code, 1, "{shown}");
    for part in ["`outputs.file.metrics`: `(` is not", "did you mean `file`?"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let (code, shown) = check("[outputs.file]\npath = \"no/such/folder\"\n");
    assert!(code == 1 && shown.contains("there is no folder"), "{shown}");
}
