//! The feed of a wattmeter: what it sends at the end of its input, after broken lines, and while it is killed.

use crate::server::{Reply, Server};
use crate::{gaps, kills, until, values};
use model::Cause;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use wire::AckStatus;

/// The second of the first line.
const BEGIN: i64 = 1_767_706_500;
/// Lines of a second.
const RATE: i64 = 50;

const POWER: &str = "wattmetre_power_watt";

struct Feed(Child);

impl Feed {
    fn start(server: &Server, spool: &Path, options: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_jobmeter-poller"));
        command.env("JOBMETER_POLLER_FILE", "/dev/null");
        command.args(["feed", "wattmetre", "--id", "w", "--server", &server.url, "--spool"]);
        command.arg(spool).args(options).stdin(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// Ends the input, and returns the exit code.
    fn end(mut self) -> Option<i32> {
        drop(self.0.stdin.take());
        self.0.wait().unwrap().code()
    }

    fn signal(mut self, name: &str) -> Option<i32> {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
        self.0.wait().unwrap().code()
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.0.kill().unwrap_or_default();
        self.0.wait().ok();
    }
}

/// The instant of a line in microseconds.
fn instant(number: i64) -> i64 {
    BEGIN * 1_000_000 + number * (1_000_000 / RATE)
}

/// A line whose port N has `power` + N.
fn line(number: i64, power: i64, ports: i64) -> String {
    let (second, micros) = (instant(number) / 1_000_000, instant(number) % 1_000_000);
    let values: String = (0..ports).map(|port| format!(",{}", power + port)).collect();
    format!("0,0,{second}.{micros:06}000,OK{values}\n")
}

fn storing() -> Server {
    Server::start(Box::new(|_, _| Reply::All(AckStatus::Stored)))
}

/// The latest value of a counter by its state.
fn states(server: &Server, device: &str, metric: &str) -> BTreeMap<String, f64> {
    let posts = server.posts();
    let mut found = BTreeMap::new();
    for batch in posts.iter().flat_map(|post| &post.batches) {
        for (entry, _, value) in batch.samples() {
            if entry.device.as_str() == device && *entry.metric.name == *metric {
                found.insert(entry.labels.get("state").unwrap(), value);
            }
        }
    }
    found
}

fn counts(all: &[(&str, f64)]) -> BTreeMap<String, f64> {
    all.iter().map(|(state, count)| ((*state).to_owned(), *count)).collect()
}

#[test]
fn the_end_of_the_input_loses_nothing() {
    let (server, spool) = (storing(), tempfile::tempdir().unwrap());
    let mapping = spool.path().join("mapping.yaml");
    std::fs::write(&mapping, "node-7: [w-port0, w-port69]\n").unwrap();
    let mut feed = Feed::start(&server, spool.path(), &["--mapping", mapping.to_str().unwrap()]);
    // Two seconds and a half, of more ports than a group has.
    let lines = RATE * 5 / 2;
    (0..lines).for_each(|number| feed.write(line(number, number, 70).as_bytes()));
    assert_eq!(feed.end(), Some(0));
    for port in [0, 41, 69] {
        let mean = |first: i64, last: i64| (first + last) as f64 / 2.0 + f64::from(port);
        let expected = [mean(0, 49), mean(50, 99), mean(100, lines - 1)];
        let expected: Vec<(i64, f64)> =
            (0_i64..).zip(expected).map(|(n, value)| (instant(n * RATE), value)).collect();
        let device = format!("w-port{port}");
        assert_eq!(values(&server, &device, POWER), expected, "{device}");
        let samples = states(&server, &device, "wattmetre_samples_total");
        assert_eq!(samples, counts(&[("ok", lines as f64)]));
    }
    let posts = server.posts();
    for group in ["poller-w/group-0", "poller-w/group-1"] {
        let has = |batch: &Arc<model::Batch>| batch.origin.as_str() == group;
        let last = posts.iter().rfind(|post| post.batches.iter().any(has)).unwrap();
        assert!(last.status.stops, "{group} does not report its end");
    }
    let entries =
        posts.iter().flat_map(|post| &post.batches).flat_map(|batch| &batch.table.entries);
    let alias: BTreeMap<&str, Option<String>> = entries
        .filter(|entry| *entry.metric.name == *POWER)
        .map(|entry| (entry.device.as_str(), entry.labels.get("_device_alias")))
        .collect();
    assert_eq!(alias.get("w-port69"), Some(&Some("node-7".to_owned())));
    assert_eq!((alias.len(), alias.get("w-port1")), (70, Some(&None)));
}

#[test]
fn a_broken_line_costs_only_itself_and_a_second_without_lines_is_a_gap() {
    let (server, spool) = (storing(), tempfile::tempdir().unwrap());
    let mut feed = Feed::start(&server, spool.path(), &[]);
    let good = |number: i64| line(number, 100, 2);
    let mut text = Vec::new();
    (0..RATE).for_each(|number| text.extend_from_slice(good(number).as_bytes()));
    text.extend_from_slice(b"0,0,\xff\xfe,OK,1,1\n\n");
    text.extend(std::iter::repeat_n(b'9', 200_000));
    text.push(b'\n');
    text.extend_from_slice(b"0,0,1767706501,ERR,0,0\n0,0,7,OK,0,0\n0,0,9999999999,OK,0,0\n");
    // One value is negative, one is none, one is missing.
    text.extend_from_slice(b"0,0,1767706501.0,OK,-5,101\n0,0,1767706501.1,OK,x,101\n");
    text.extend_from_slice(b"0,0,1767706501.2,OK,nan,101\n");
    // A line is cut, and one goes back in time.
    text.extend_from_slice(b"0,0,1767706501.3,OK,1\n");
    text.extend_from_slice(good(RATE * 3 / 2).as_bytes());
    text.extend_from_slice(good(3).as_bytes());
    // Seconds 2 to 4 have no line, and the last line has no end.
    (RATE * 5..RATE * 6).for_each(|number| text.extend_from_slice(good(number).as_bytes()));
    text.extend_from_slice(b"0,0,1767706506.0,OK,100,10");
    feed.write(&text);
    assert_eq!(feed.end(), Some(0));
    let expected = |port: i64, seconds: &[i64]| -> Vec<(i64, f64)> {
        let of = |second: &i64| (instant(second * RATE), (100 + port) as f64);
        seconds.iter().map(of).collect()
    };
    assert_eq!(values(&server, "w-port0", POWER), expected(0, &[0, 1, 5, 6]));
    assert_eq!(values(&server, "w-port1", POWER), expected(1, &[0, 1, 5]));
    let ok = (2 * RATE + 2) as f64;
    let lines = [("ok", ok + 3.0), ("broken", 3.0), ("not_ok", 1.0), ("wrong_time", 2.0)];
    let lines = counts(&[&lines[..], &[("out_of_order", 2.0)]].concat());
    assert_eq!(states(&server, "w", "wattmetre_lines_total"), lines);
    let first = counts(&[("ok", ok), ("missing", 1.0), ("bad", 2.0)]);
    assert_eq!(states(&server, "w-port0", "wattmetre_samples_total"), first);
    let second = counts(&[("ok", ok + 2.0), ("missing", 1.0)]);
    assert_eq!(states(&server, "w-port1", "wattmetre_samples_total"), second);
    let broken = (Cause::SourceBroken, "wattmetre".to_owned());
    assert!(gaps(&server, "w-port1").contains(&broken), "{:?}", gaps(&server, "w-port1"));
}

#[test]
fn what_the_server_did_not_accept_is_sent_by_the_next_start() {
    let is_away = Arc::new(AtomicBool::new(true));
    let away = Arc::clone(&is_away);
    let server = Server::start(Box::new(move |_, _| match away.load(Ordering::SeqCst) {
        true => Reply::Close,
        false => Reply::All(AckStatus::Stored),
    }));
    let spool = tempfile::tempdir().unwrap();
    let mut feed = Feed::start(&server, spool.path(), &["--every-sample"]);
    let first = 3 * RATE;
    (0..first).for_each(|number| feed.write(line(number, number, 3).as_bytes()));
    let arrived = |server: &Server| values(server, "w-port2", POWER).len();
    until("samples without an answer", || arrived(&server) > 0);
    assert_eq!(feed.signal("-TERM"), Some(0));
    let before = server.posts().len();
    is_away.store(false, Ordering::SeqCst);
    let mut feed = Feed::start(&server, spool.path(), &["--every-sample"]);
    let last = first + 5 * RATE;
    (first + 4 * RATE..last).for_each(|number| feed.write(line(number, number, 3).as_bytes()));
    assert_eq!(feed.end(), Some(0));
    let posts = server.posts();
    let batches = posts.get(before..).unwrap().iter().flat_map(|post| &post.batches);
    let stored: BTreeSet<i64> = batches
        .flat_map(|batch| {
            batch.samples().map(|(entry, at, _)| (entry.clone(), at.0)).collect::<Vec<_>>()
        })
        .filter(|(entry, _)| entry.device.as_str() == "w-port2" && *entry.metric.name == *POWER)
        .map(|(_, at)| at)
        .collect();
    let expected: BTreeSet<i64> = (0..first).chain(first + 4 * RATE..last).map(instant).collect();
    assert_eq!(stored, expected);
    assert!(gaps(&server, "w-port2").contains(&(Cause::PollerDown, String::new())));
}

#[test]
fn after_each_kill_every_printed_sample_is_stored_or_in_a_gap() {
    let (server, spool) = (storing(), tempfile::tempdir().unwrap());
    let (mut number, mut printed) = (0, Vec::new());
    let rounds = kills(5);
    for round in 0..=rounds {
        let mut feed = Feed::start(&server, spool.path(), &["--every-sample"]);
        for _ in 0..20 + 7 * (round % 10) {
            for _ in 0..10 {
                feed.write(line(number, number, 2).as_bytes());
                printed.push(instant(number));
                number += 1;
            }
            std::thread::sleep(Duration::from_millis(40));
        }
        match round == rounds {
            true => assert_eq!(feed.end(), Some(0)),
            false => assert_eq!(feed.signal("-KILL"), None),
        }
    }
    let stored: BTreeSet<i64> =
        values(&server, "w-port1", POWER).iter().map(|(at, _)| *at).collect();
    let posts = server.posts();
    let gaps = posts.iter().flat_map(|post| &post.batches).flat_map(|batch| &batch.gaps);
    let of_port: Vec<(i64, i64)> = gaps
        .filter(|gap| gap.device.as_str() == "w-port1")
        .map(|gap| (gap.from.0, gap.to.0))
        .collect();
    let is_in_gap = |at: i64| of_port.iter().any(|(from, to)| (*from..=*to).contains(&at));
    let lost: Vec<&i64> =
        printed.iter().filter(|at| !stored.contains(at) && !is_in_gap(**at)).collect();
    assert_eq!(lost, [&0; 0], "{of_port:?}");
    assert!(stored.len() > printed.len() / 8, "{} of {}", stored.len(), printed.len());
}
