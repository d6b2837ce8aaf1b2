//! The listener for Colmet's nodes as a program: what it sends after signals, and while it is killed.

use crate::server::{Reply, Server};
use crate::{kills, until, values};
use colmet::backends::{PERFHW, PROCSTATS, TASKSTATS};
use colmet::frame::encode;
use colmet::record::{NO_JOB, Record, Value};
use model::Timestamp;
use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use wire::AckStatus;
use zmtp::PushQueue;

/// Longest wait for the end of messages that wait.
const LINGER: Duration = Duration::from_secs(60);
const MEMORY: &str = "memory_total_bytes";

struct Listener(Child);

impl Listener {
    fn start(server: &Server, spool: &Path, port: u16, options: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_jobmeter-poller"));
        command.env("JOBMETER_POLLER_FILE", "/dev/null");
        command.args(["colmet", "--server", &server.url, "--colmet-listen"]);
        command.arg(format!("tcp://127.0.0.1:{port}")).arg("--spool").arg(spool);
        Self(command.args(options).spawn().unwrap())
    }

    fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// Sends a signal that ends it, and returns the exit code.
    fn end(mut self, name: &str) -> Option<i32> {
        self.signal(name);
        self.0.wait().unwrap().code()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.kill().unwrap_or_default();
        self.0.wait().ok();
    }
}

fn storing() -> Server {
    let server = Server::start(Box::new(|_, _| Reply::All(AckStatus::Stored)));
    *server.demand.lock().unwrap() = Some(r#"{"version": "1", "agents": []}"#.to_owned());
    server
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A node of Colmet: its messages wait while the listener does not run.
fn node(port: u16) -> PushQueue {
    PushQueue::start(&format!("127.0.0.1:{port}"), 100_000, 64 << 20).unwrap()
}

/// The n-th message of a node, with a job: one each second.
fn message(begin: Timestamp, number: i64) -> Vec<u8> {
    let at = begin.plus(number * Timestamp::SECOND);
    let mut of_node = Record::new(&PROCSTATS, "n1.cluster", NO_JOB, at);
    of_node.set("meminfo_memtotal", Value::Unsigned(1));
    let mut of_job = Record::new(&TASKSTATS, "n1.cluster", 7, at);
    of_job.set("cpu_run_real_total", Value::Unsigned(1));
    let mut events = Record::new(&PERFHW, "n1.cluster", 7, at);
    events.set("counter_1", Value::Signed(5));
    let mut bytes = Vec::new();
    for record in [of_job, of_node, events] {
        encode(&record, &mut bytes).unwrap();
    }
    bytes
}

/// Now, in whole seconds.
fn now() -> Timestamp {
    Timestamp::from_seconds(delivery::wall().0 / Timestamp::SECOND)
}

#[test]
fn messages_that_wait_arrive_and_sigterm_ends_with_0() {
    let (server, spool) = (storing(), tempfile::tempdir().unwrap());
    let (port, begin) = (free_port(), now());
    let node = node(port);
    (0..50).for_each(|number| node.put(message(begin, number)));
    let names = tempfile::tempdir().unwrap();
    let folder = names.path().join("n1");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("perfhw_mapping.1.5.csv"), "counter1,instructoins\n").unwrap();
    let dir = names.path().to_str().unwrap();
    let listener = Listener::start(&server, spool.path(), port, &["--colmet-mapping-dir", dir]);
    until("the messages that waited", || values(&server, "n1", MEMORY).len() == 50);
    assert_eq!(values(&server, "n1", "perf_instructions_total"), []);
    assert_eq!(values(&server, "n1", "colmet_perfhw_counter_1_total").len(), 50);
    // The files are read again.
    std::fs::write(folder.join("perfhw_mapping.2.csv"), "counter1,instructions\n").unwrap();
    listener.signal("HUP");
    let mut number = 50;
    until("counters with the new name", || {
        node.put(message(begin, number));
        number += 1;
        std::thread::sleep(Duration::from_millis(50));
        values(&server, "n1", "perf_instructions_total").len() > 2
    });
    let sent = node.end(LINGER);
    assert_eq!((sent.dropped, sent.waiting), (0, 0));
    assert_eq!(listener.end("TERM"), Some(0));
    let expected: Vec<(i64, f64)> =
        (0..number).map(|number| (begin.0 + number * Timestamp::SECOND, 1024.0)).collect();
    until("every message", || values(&server, "n1", MEMORY) == expected);
    let jobs: BTreeSet<_> = server
        .posts()
        .iter()
        .flat_map(|post| post.batches.clone())
        .flat_map(|batch| batch.jobs.clone())
        .map(|event| (event.key.to_string(), event.start, event.stop, event.user, event.uid))
        .collect();
    assert_eq!(jobs, [("oar:7".to_owned(), begin, None, None, None)].into());
}

#[test]
fn an_address_beyond_loopback_is_rejected_without_hosts_and_networks() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_jobmeter-poller"));
    command.env("JOBMETER_POLLER_FILE", "/dev/null");
    command.args(["colmet", "--colmet-listen", "tcp://0.0.0.0:5556", "--colmet-hosts", "n1"]);
    let output = command.stderr(Stdio::piped()).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("`colmet.networks` is not set"), "{text}");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn after_each_kill_every_message_is_stored_or_in_a_gap() {
    let (server, spool) = (storing(), tempfile::tempdir().unwrap());
    let (port, begin) = (free_port(), now());
    let node = node(port);
    let (mut number, rounds) = (0, kills(4));
    for round in 0..=rounds {
        let listener = Listener::start(&server, spool.path(), port, &[]);
        for _ in 0..60 + 13 * (round % 5) {
            node.put(message(begin, number));
            number += 1;
            std::thread::sleep(Duration::from_millis(40));
        }
        if round == rounds {
            let sent = node.counts();
            until("the last messages", || node.counts().waiting == 0);
            assert_eq!(sent.dropped, 0);
            assert_eq!(listener.end("TERM"), Some(0));
        } else {
            assert_eq!(listener.end("KILL"), None);
        }
    }
    drop(node);
    let stored: BTreeSet<i64> = values(&server, "n1", MEMORY).iter().map(|(at, _)| *at).collect();
    let posts = server.posts();
    let batches: Vec<_> = posts.iter().flat_map(|post| post.batches.clone()).collect();
    let gaps: Vec<(i64, i64)> = batches
        .iter()
        .flat_map(|batch| &batch.gaps)
        .filter(|gap| gap.device.as_str() == "n1" && gap.from.0 > 0)
        .map(|gap| (gap.from.0, gap.to.0))
        .collect();
    let sent: Vec<i64> = (0..number).map(|number| begin.0 + number * Timestamp::SECOND).collect();
    let is_in_gap = |at: i64| gaps.iter().any(|(from, to)| (*from..=*to).contains(&at));
    let lost: Vec<&i64> =
        sent.iter().filter(|at| !stored.contains(at) && !is_in_gap(**at)).collect();
    assert_eq!(lost, [&0; 0], "{gaps:?}");
    assert!(stored.len() > sent.len() / 4, "{} of {}", stored.len(), sent.len());
    // The job is one visit: every report has the same start, and none an end.
    let starts: BTreeSet<_> = batches
        .iter()
        .flat_map(|batch| &batch.jobs)
        .map(|event| (event.start, event.stop))
        .collect();
    assert_eq!(starts.len(), 1, "{starts:?}");
}
