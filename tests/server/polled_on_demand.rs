//! On-demand requests that reach pollers and feeds: changed periods of polls, rules about polled values, and flushes.

use crate::command::poll_devices::{Exporter, POWER, Snmpd, last, poller, rows};
use crate::common::programs::{Running, Server, get, program, until};
use crate::common::up::jobmeter;
use serde_json::Value;
use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const LIMIT: Duration = Duration::from_secs(60);

fn json(url: &str, path: &str) -> Value {
    serde_json::from_str(&get(url, path).1).unwrap()
}

/// The kinds and texts of the marks of a device.
fn marks(url: &str, device: &str) -> Vec<String> {
    let marks = json(url, &format!("/api/v1/marks?device={device}"));
    let mark = |mark: &Value| {
        format!("{} {}", mark["kind"].as_str().unwrap(), mark["text"].as_str().unwrap())
    };
    marks.as_array().unwrap().iter().map(mark).collect()
}

#[test]
fn a_changed_period_reaches_the_poller_within_its_limits_and_ends_by_itself() {
    let (snmpd, exporter) = (Snmpd::start(), Exporter::start());
    let (data, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let spool = tempfile::tempdir().unwrap();
    let every = ", update_every: 5000, labels: {_device_alias: node-1}}";
    let text = snmpd.entry("public", "snmp", POWER, "power").replace('}', every)
        + &exporter.entry("psu-1", "update_every: 5000");
    fs::write(files.path().join("all.conf"), text).unwrap();
    let server = Server::start(data.path(), &[]);
    let url = &*server.url;
    let mut running = poller("one", files.path(), url, spool.path());
    let period = |device: &str| last(url, device, "poll_period_seconds");
    until("polls", LIMIT, || period("sw").zip(period("psu-1")));

    // The requester reads for how many devices it is, and which names no poller reads.
    let nodes = ["set", "--nodes", "sw,psu-1,nosuch-[1-2]", "--source", "snmp"];
    let change = [&nodes[..], &["--period", "1s", "--for", "25s"]].concat();
    let (code, out, errors) = jobmeter(url, &change);
    assert_eq!((code, &*out), (1, "change 1 is active, for 1 polled device\n"), "{errors}");
    assert!(errors.contains("no poller reads psu-1, nosuch-1, nosuch-2 by snmp"), "{errors}");
    until("the period of 1 s", LIMIT, || period("sw").filter(|period| *period == 1.0));
    let polls = || {
        let power = "SELECT value FROM metrics WHERE device_id = 'sw' AND metric_id = 'power'";
        rows(url, power).len()
    };
    let before = polls();
    std::thread::sleep(Duration::from_secs(4));
    assert!(polls() >= before + 3, "{before} {}", polls());
    assert_eq!(period("psu-1"), Some(5.0), "another protocol");
    let settings = json(url, "/api/v1/settings");
    let shown = &settings[0];
    assert_eq!((&shown["nodes_known"], &shown["nodes_applied"]), (&1.into(), &1.into()), "{shown}");

    // The file of the poller rejects a shorter period.
    let (code, _, errors) = jobmeter(
        url,
        &["set", "--nodes", "sw", "--source", "snmp", "--period", "100ms", "--for", "1h"],
    );
    assert_eq!(code, 0, "{errors}");
    let rejects = "2: sw rejects: --period of snmp: shorter than `remote.period_min`, which is 1s";
    until("the rejection", LIMIT, || {
        jobmeter(url, &["set", "--list"]).1.contains(rejects).then_some(())
    });
    let applied = json(url, "/api/v1/settings");
    let applied = [0, 1].map(|place| applied[place]["nodes_applied"].clone());
    assert_eq!(applied, [1, 0], "the accepted change remains in force");
    assert_eq!(period("sw"), Some(1.0));
    let (code, out, errors) = jobmeter(url, &["set", "--undo", "2"]);
    assert_eq!((code, &*out), (0, "change 2 is undone, for 1 polled device\n"), "{errors}");

    // It is a mark of the device, and of the node that this feeds.
    let set = "set sources.snmp.period = \"1s\"";
    for device in ["sw", "node-1"] {
        assert!(marks(url, device).iter().any(|mark| mark == set), "{:?}", marks(url, device));
    }
    assert_eq!(marks(url, "node-2"), [""; 0]);

    until("the end of the change", LIMIT, || period("sw").filter(|period| *period == 5.0));
    assert_eq!(json(url, "/api/v1/settings"), Value::Array(Vec::new()));
    until("the mark of the end", LIMIT, || {
        marks(url, "node-1").iter().any(|mark| mark.starts_with("expired ")).then_some(())
    });
    assert_eq!(running.end(), 0, "{}", running.errors());
}

#[test]
fn a_rule_about_a_polled_value_promotes_on_the_node_that_the_device_feeds() {
    let exporter = Exporter::start();
    let (data, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let spool = tempfile::tempdir().unwrap();
    let text = exporter.entry("psu-1", "update_every: 1000, labels: {_device_alias: node-1}");
    fs::write(files.path().join("all.conf"), text).unwrap();
    let rules = spool.path().join("rules.toml");
    let rule = "[[when]]\nname = \"hungry\"\nmetric = \"prom_power_watt\"\nnodes = \"psu-*\"\nabove = 90\n\
                promote = \"memory_.*\"\npromote_for = \"1h\"\n";
    fs::write(&rules, rule).unwrap();
    let server = Server::start(data.path(), &[&format!("--promotions-rules={}", rules.display())]);
    let mut running = poller("one", files.path(), &server.url, &spool.path().join("spool"));
    let promoted = until("the promotion", LIMIT, || {
        json(&server.url, "/api/v1/promotions").as_array()?.first().cloned()
    });
    let text = |key: &str| promoted[key].as_str().unwrap();
    assert_eq!((text("nodes"), text("metric")), ("node-1", "memory_.*"));
    assert_eq!((text("origin"), text("created_by")), ("rule", "rule hungry"));
    assert_eq!(marks(&server.url, "node-1"), ["promoted memory_.*"]);
    assert_eq!(running.end(), 0, "{}", running.errors());
}

#[test]
fn a_flush_stores_the_samples_that_a_feed_keeps() {
    let (data, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mapping = files.path().join("mapping.yaml");
    fs::write(&mapping, "node-7: [w-port0]\n").unwrap();
    let server = Server::start(data.path(), &[]);
    let url = &*server.url;
    let mut command = Command::new(program("jobmeter"));
    command.env("JOBMETER_POLLER_FILE", "/dev/null").env("JOBMETER_SPOOL", files.path().join("s"));
    command.args(["feed", "wattmetre", "--id", "w", "--server", url, "--mapping"]);
    command.arg(&mapping).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut feed = Running::start(&mut command);
    let mut input = feed.child.stdin.take().unwrap();
    // 10 lines per second, whose power is their number.
    let begin = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let mut lines = (0_u64..).map(|number| {
        let (second, part) = (begin + number / 10, number % 10);
        format!("0,0,{second}.{part}05,OK,{number},{number}\n")
    });
    let mut write = |count: usize| {
        for line in lines.by_ref().take(count) {
            input.write_all(line.as_bytes()).unwrap();
        }
    };
    let stored = |port: &str| {
        let powers = format!(
            "SELECT value FROM metrics WHERE device_id = '{port}' AND metric_id = 'wattmetre_power_watt'"
        );
        rows(url, &powers).len()
    };
    write(40);
    until("means of seconds", LIMIT, || (stored("w-port1") == 3).then_some(()));
    let flush = ["flush", "--nodes", "node-7", "--source", "wattmetre"];
    let (code, out, errors) = jobmeter(url, &flush);
    assert_eq!((code, &*out), (0, "flush 1 is requested, for 1 port\n"), "{errors}");
    until("each sample", LIMIT, || (stored("w-port0") == 3 + 40).then_some(()));
    // Another flush stores only later samples.
    write(10);
    assert_eq!(jobmeter(url, &flush).0, 0);
    until("the later samples", LIMIT, || (stored("w-port0") == 4 + 50).then_some(()));
    assert_eq!(stored("w-port1"), 4);
    assert!(marks(url, "node-7").iter().any(|mark| mark == "flushed wattmetre"));
    let (code, _, errors) = jobmeter(url, &["flush", "--nodes", "nosuch", "--source", "wattmetre"]);
    assert_eq!(code, 1, "{errors}");
    drop(input);
    assert!(feed.child.wait().unwrap().success(), "{}", feed.errors());
}
