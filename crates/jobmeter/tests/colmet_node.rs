//! `jobmeter colmet-node` as a program: messages, a collector that is away, signals, files, rejected options.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]
#![expect(clippy::disallowed_methods, reason = "tests start programs and bound their time")]

use colmet::frame::Records;
use colmet::record::{Record, Value};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use zmtp::{Event, Limits, Pull};

/// The bound of every wait: long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn node(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_jobmeter"));
    command.arg("colmet-node").args(arguments).stderr(Stdio::piped()).stdout(Stdio::null());
    command.env_remove("LIB_RAPL_PATH").env_remove("LIB_PERFHW_PATH");
    command
}

/// A node that ends with the test.
struct Node(Option<Child>);

impl Node {
    fn start(dir: &Path, arguments: &[&str]) -> Self {
        Self(Some(node(arguments).current_dir(dir).spawn().unwrap()))
    }

    /// Ends it by this signal.
    fn end(mut self, signal: &str) -> Output {
        let mut child = self.0.take().unwrap();
        let pid = child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
        let begin = Instant::now();
        while child.try_wait().unwrap().is_none() {
            assert!(begin.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        child.wait_with_output().unwrap()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

fn collector(address: &str) -> (Pull, SocketAddr) {
    let any = Box::new(|_| true);
    let pull = Pull::bind(&[address.parse().unwrap()], Limits::default(), any).unwrap();
    let address = pull.addresses().unwrap().remove(0);
    (pull, address)
}

fn message(pull: &mut Pull) -> Vec<Record> {
    match pull.receive(PATIENCE).unwrap() {
        Some(Event::Message { bytes, .. }) => Records::of(&bytes).map(Result::unwrap).collect(),
        other => panic!("{other:?}"),
    }
}

/// The only instant of a message, in seconds.
fn second(records: &[Record]) -> i64 {
    let at = records.first().unwrap().at;
    assert!(records.iter().all(|record| record.at == at), "one message has one instant");
    at.0 / 1_000_000
}

fn number(record: &Record, column: &str) -> u64 {
    match record.get(column) {
        Some(Value::Unsigned(number)) => *number,
        other => panic!("{column}: {other:?}"),
    }
}

#[test]
fn each_instant_of_the_node_is_a_message_and_sigterm_ends_with_success() {
    let (mut pull, address) = collector("127.0.0.1:0");
    let dir = tempfile::tempdir().unwrap();
    let uri = format!("tcp://{address}");
    let words = [
        "-s",
        "1",
        "--enable-temperature",
        "--enable-perfhw",
        "--enable-RAPL",
        "--zeromq-uri",
        &uri,
    ];
    let node = Node::start(dir.path(), &words);
    let messages: Vec<_> = (0..4).map(|_| message(&mut pull)).collect();
    for (before, after) in messages.iter().zip(messages.iter().skip(1)) {
        assert!(second(before) < second(after));
    }
    // The values are those of the kernel.
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let total = text.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    for records in &messages {
        let of_node = records.iter().find(|record| record.backend.id == "procstats_default");
        let of_node = of_node.unwrap();
        assert_eq!((number(of_node, "meminfo_memtotal"), &*of_node.host), (total, host.trim()));
        assert!(number(of_node, "stat_cpu_idle") > 0);
    }
    let output = node.end("TERM");
    assert!(output.status.success(), "{output:?}");
    let mut files: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .map(|name| name.split('.').next().unwrap().to_owned())
        .collect();
    files.sort();
    assert_eq!(files, ["RAPL_mapping", "perfhw_mapping", "temperature_mapping"]);
}

#[test]
fn a_collector_that_is_away_delays_nothing_and_the_oldest_messages_are_dropped() {
    let (pull, address) = collector("127.0.0.1:0");
    drop(pull);
    let dir = tempfile::tempdir().unwrap();
    let uri = format!("tcp://{address}");
    let words = ["-s", "1", "--zeromq-hwm", "3", "--zeromq-uri", &uri];
    let node = Node::start(dir.path(), &words);
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(8) {
        std::thread::sleep(Duration::from_millis(100));
    }
    let (mut pull, _) = collector(&address.to_string());
    let seconds: Vec<i64> = (0..5).map(|_| second(&message(&mut pull))).collect();
    // Every second was measured, and the newest three were kept.
    assert!(
        seconds.iter().zip(seconds.iter().skip(1)).all(|(one, next)| next - one == 1),
        "{seconds:?}"
    );
    let output = node.end("INT");
    assert!(output.status.success());
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(log.contains("the oldest messages are dropped") && log.contains("refused"), "{log}");
}

/// A cgroup of version 1 that ends with the test.
struct Cgroup(Vec<PathBuf>);

impl Cgroup {
    /// A job's directory in a directory of its own; `None` where this machine has none or for other users than root.
    fn new(job: &str) -> Option<Self> {
        let root = Path::new("/sys/fs/cgroup/cpuset");
        let parent = root.join(format!("jobmeter-test-{}", std::process::id()));
        let dir = parent.join(job);
        for (from, to) in [(root, &parent), (&*parent, &dir)] {
            std::fs::create_dir(to).ok()?;
            for name in ["cpuset.cpus", "cpuset.mems"] {
                std::fs::write(to.join(name), std::fs::read(from.join(name)).ok()?).ok()?;
            }
        }
        Some(Self(vec![dir, parent]))
    }

    fn root(&self) -> String {
        self.0.get(1).unwrap().to_str().unwrap().to_owned()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        self.0.iter().for_each(|dir| drop(std::fs::remove_dir(dir)));
    }
}

#[test]
fn jobs_are_found_in_the_directory_by_the_expression() {
    let Some(cgroup) = Cgroup::new("alice-job-42") else {
        return eprintln!("not run: it needs root and cgroups of version 1");
    };
    let mut busy = Command::new("sh");
    let mut busy = busy.args(["-c", "while :; do :; done"]).spawn().unwrap();
    let tasks = cgroup.0.first().unwrap().join("tasks");
    std::fs::write(&tasks, busy.id().to_string()).unwrap();
    let (mut pull, address) = collector("127.0.0.1:0");
    let (dir, uri) = (tempfile::tempdir().unwrap(), format!("tcp://{address}"));
    let root = cgroup.root();
    let words = [
        "-s",
        "1",
        "--enable-jobproc",
        "--cpuset_rootpath",
        &root,
        "--regex_job_id",
        r"job-(\d+)",
        "--zeromq-uri",
        &uri,
    ];
    let node = Node::start(dir.path(), &words);
    let begin = Instant::now();
    let found = loop {
        let records = message(&mut pull);
        assert!(begin.elapsed() < PATIENCE, "{records:?}");
        let of_job =
            |record: &&Record| record.job == 42 && record.backend.id == "taskstats_default";
        if let Some(job) = records.iter().find(of_job)
            && number(job, "ac_utime") > 0
        {
            let jobproc = records
                .iter()
                .any(|record| record.job == 42 && record.backend.id == "jobprocstats_default");
            let node = records.iter().find(|record| record.backend.id == "procstats_default");
            break (jobproc, node.unwrap().get("involved_jobs").cloned());
        }
    };
    busy.kill().unwrap();
    busy.wait().unwrap();
    assert_eq!(found, (true, Some(Value::Text("[42]".into()))));
    assert!(node.end("TERM").status.success());
}

#[test]
fn options_without_effect_are_rejected_and_libraries_are_not_needed() {
    for words in [["-c", "a"], ["-p", "1"], ["-t", "1"]] {
        let output = node(&words).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(
            text.contains("-c, -p and -t have no effect in Colmet") && text.lines().count() == 1,
            "{text}"
        );
    }
    let output =
        node(&["--zeromq-uri", "ipc:///a"]).env("LIB_RAPL_PATH", "/l.so").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains("LIB_RAPL_PATH is not needed") && text.contains("is no address of TCP"),
        "{text}"
    );
    assert_eq!(node(&["--nonsense"]).output().unwrap().status.code(), Some(2));
    assert!(node(&["--version"]).output().unwrap().status.success());
}
