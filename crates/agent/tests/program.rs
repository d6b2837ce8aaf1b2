//! Tests of `jobmeter-agent` with a scripted server.

#![expect(clippy::disallowed_methods, reason = "a real program in real time")]
#![expect(clippy::unwrap_used, reason = "what cannot be prepared fails the test")]

#[path = "../../delivery/tests/server/mod.rs"]
mod server;

use model::Timestamp;
use model::setting::{
    FlushRequest, NodeSettings, Override, Rejection, RejectionCode, SettingValue, SourceStatus,
};
use rustix::process::{Pid, Signal, kill_process};
use server::{Reply, Server, answer};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wire::AckStatus;

const AGENT: &str = env!("CARGO_BIN_EXE_jobmeter-agent");

/// A recorded machine that needs nothing of the real one.
fn machine() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("proc/loadavg", "0.50 0.25 0.10 1/123 4567\n");
    write("proc/uptime", "350.10 600.20\n");
    write("proc/sys/kernel/hostname", "n1.site.example\n");
    write("proc/sys/kernel/random/boot_id", "one\n");
    write("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
    write("proc/stat", "cpu  1 2 3 4 5 6 7 8 9 10\nbtime 1767706000\n");
    dir
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(AGENT);
    command.args(arguments).env_clear().stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Help that cannot be written is an error, unless the reader closed the pipe.
#[test]
fn a_help_that_cannot_be_printed_is_an_error() {
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    for (stdout, code, why) in [
        (Stdio::from(full), 2, "jobmeter-agent: cannot write to standard output: "),
        (closed.into(), 0, ""),
    ] {
        let output = Command::new(AGENT).arg("--help").stdout(stdout).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(code) && error.starts_with(why), "{error}");
        assert_eq!(error.is_empty(), why.is_empty(), "{error}");
    }
}

struct Agent {
    child: Child,
    machine: tempfile::TempDir,
}

impl Agent {
    /// Starts an agent on a recorded machine with a period of 200 ms.
    fn start(url: &str, more: &[&str]) -> Self {
        Self::of(url, &[&["--period", "200ms"], more].concat())
    }

    /// Starts an agent on a recorded machine.
    fn of(url: &str, more: &[&str]) -> Self {
        let machine = machine();
        let root = machine.path().to_str().unwrap().to_owned();
        let spool = machine.path().join("spool");
        let mut arguments = vec!["--server", url, "--root", &root, "-v"];
        arguments.extend(["--spool", spool.to_str().unwrap()]);
        arguments.extend(more);
        let child = command(&arguments).spawn().unwrap();
        Self { child, machine }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Ends the agent. Returns its status, the duration of the shutdown, and its standard error.
    fn end(self) -> (ExitStatus, Duration, String) {
        let begin = Instant::now();
        self.signal(Signal::TERM);
        let Output { status, stderr, .. } = self.child.wait_with_output().unwrap();
        (status, begin.elapsed(), String::from_utf8(stderr).unwrap())
    }
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is() {
        assert!(begin.elapsed() < Duration::from_secs(30), "{what} did not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn segments(spool: &Path) -> usize {
    let names = fs::read_dir(spool).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().ends_with(".jmb")).count()
}

#[test]
fn it_needs_no_setting_but_reports_what_it_lacks() {
    let machine = machine();
    let root = machine.path().to_str().unwrap();
    let arguments = ["--root", root, "--once", "--print", "--now", "2026-01-06T13:35:00Z"];
    let Output { status, stdout, stderr } = command(&arguments).output().unwrap();
    let (text, errors) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert!(status.success(), "{errors}");
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("load_1")).collect();
    assert_eq!(
        lines,
        [
            "load_15m\tn1\t-\t{}\t2026-01-06T13:35:00+00:00\t-\t0.1",
            "load_1m\tn1\t-\t{}\t2026-01-06T13:35:00+00:00\t-\t0.5",
        ]
    );
    let mut sorted: Vec<&str> = text.lines().collect();
    sorted.sort_unstable();
    assert_eq!(text.lines().collect::<Vec<_>>(), sorted);
}

#[test]
fn each_further_root_is_the_next_tick() {
    let (first, second) = (machine(), machine());
    fs::write(second.path().join("proc/loadavg"), "0.75 0.25 0.10 1/123 4567\n").unwrap();
    let paths = [&first, &second].map(|machine| machine.path().to_str().unwrap().to_owned());
    let mut arguments = vec!["--once", "--print", "--now", "1767706500", "--period", "10s"];
    for path in &paths {
        arguments.extend(["--root", path]);
    }
    let Output { stdout, .. } = command(&arguments).output().unwrap();
    let text = String::from_utf8(stdout).unwrap();
    let loads: Vec<(&str, &str)> = text
        .lines()
        .filter(|line| line.starts_with("load_1m"))
        .map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            (*fields.get(4).unwrap(), *fields.last().unwrap())
        })
        .collect();
    assert_eq!(
        loads,
        [("2026-01-06T13:35:00+00:00", "0.5"), ("2026-01-06T13:35:10+00:00", "0.75")]
    );
}

#[test]
fn all_wrong_settings_are_reported_and_end_the_program() {
    let arguments = ["--period", "0s", "--config", "/no/such/file", "--cert", "/c"];
    let Output { status, stderr, .. } = command(&arguments).output().unwrap();
    assert_eq!(status.code(), Some(2));
    let text = String::from_utf8(stderr).unwrap();
    assert_eq!(text.lines().count(), 3, "{text}");
    let Output { status, stderr, .. } = command(&["--perid", "1s"]).output().unwrap();
    assert_eq!(status.code(), Some(2));
    assert!(String::from_utf8(stderr).unwrap().contains("'--period'"));
    let Output { status, stderr, .. } = command(&["--root", "/no/such/dir"]).output().unwrap();
    assert_eq!((status.code(), String::from_utf8(stderr).unwrap().lines().count()), (Some(1), 1));
}

/// With `--root` or `--print`, the agent sends samples only to a server on the command line. A server in a file, in
/// a variable or on this machine receives none.
#[test]
fn samples_for_reading_are_sent_only_by_the_command_line() {
    let server = Server::start(Box::new(|_, _| Reply::All(AckStatus::Stored)));
    let (machine, dir) = (machine(), tempfile::tempdir().unwrap());
    let (root, spool) = (machine.path().to_str().unwrap(), dir.path().join("spool"));
    let file = dir.path().join("agent.toml");
    let text = format!("server = \"{}\"\nspool = \"{}\"\n", server.url, spool.display());
    fs::write(&file, text).unwrap();
    fs::create_dir_all(dir.path().join("jobmeter")).unwrap();
    fs::write(dir.path().join("jobmeter/server"), &server.url).unwrap();
    let agent = |words: &[&str]| {
        let mut command = command(words);
        command.args(["--config", file.to_str().unwrap(), "--period", "200ms", "-v"]);
        command.env("JOBMETER_SERVER", &server.url).env("XDG_RUNTIME_DIR", dir.path());
        command
    };
    for words in [&["--once", "--print", "--root", root][..], &["--once", "--root", root]] {
        let Output { status, stderr, .. } = agent(words).output().unwrap();
        assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    }
    let once = ["--once", "--print", "--sources-load-enabled=true"];
    assert!(agent(&once).output().unwrap().status.success());
    // Without `--once`, the agent runs on. It has read 3 ticks when it is ended.
    let mut child = agent(&["--root", root, "--print"]).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert_eq!(lines.filter(|line| line.starts_with("load_1m")).take(3).count(), 3);
    kill_process(Pid::from_raw(child.id().try_into().unwrap()).unwrap(), Signal::TERM).unwrap();
    let Output { status, stderr, .. } = child.wait_with_output().unwrap();
    let messages = String::from_utf8_lossy(&stderr);
    assert!(status.success() && messages.contains("samples are not sent"), "{messages}");
    assert!(server.posts().is_empty(), "{} requests", server.posts().len());
    assert!(!spool.exists(), "nothing is kept for a later agent to send");
    let sends = ["--once", "--print", "--root", root, "--server", &server.url];
    assert!(agent(&sends).output().unwrap().status.success());
    assert_eq!(server.posts().len(), 1);
}

#[test]
fn it_samples_and_sends_and_ends_on_a_signal() {
    let server = Server::start(Box::new(|_, _| Reply::All(AckStatus::Stored)));
    let agent = Agent::start(&server.url, &[]);
    until("three batches", || server.seqs().len() >= 3);
    let spool = agent.machine.path().join("spool");
    let before = server.seqs().len();
    // Two ticks are not sealed yet.
    std::thread::sleep(Duration::from_millis(450));
    agent.signal(Signal::TERM);
    let Agent { mut child, machine } = agent;
    until("the end", || child.try_wait().unwrap().is_some());
    assert!(child.wait().unwrap().success());
    assert_eq!(segments(&spool), 0, "the server has all");
    let stops = |post: &server::Post| post.status.stops;
    let posts = server.posts();
    assert!(!posts.iter().take(3).any(stops) && posts.last().is_some_and(stops), "{posts:?}");
    let seqs = server.seqs();
    assert!(seqs.len() > before, "what was read last is sent");
    assert!(seqs.iter().enumerate().all(|(i, seq)| u64::try_from(i) == Ok(*seq)), "{seqs:?}");
    drop(machine);
}

/// A restarted agent continues the counters of a job only if it knows when the job's cgroup was created.
#[test]
fn a_clean_end_keeps_the_creation_times_of_all_cgroups_of_jobs() {
    let agent = Agent::of("http://127.0.0.1:9", &["--period", "60s"]);
    let write = |path: &str, text: &str| {
        let path = agent.machine.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let spool = agent.machine.path().join("spool");
    until("the start", || spool.is_dir());
    write("sys/fs/cgroup/system.slice/slurmstepd.scope/job_8/cgroup.events", "populated 1\n");
    let Agent { mut child, machine } = agent;
    let pid = Pid::from_raw(child.id().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    let known = fs::read_to_string(machine.path().join("spool/known")).unwrap_or_default();
    assert!(known.ends_with("/job_8\n"), "{known}");
}

#[test]
fn without_a_server_it_ends_as_fast_and_keeps_all() {
    let agent = Agent::start("http://127.0.0.1:9", &[]);
    let spool = agent.machine.path().join("spool");
    until("a segment", || spool.is_dir() && segments(&spool) > 0);
    let second = Command::new(AGENT)
        .args([
            "--spool",
            spool.to_str().unwrap(),
            "--root",
            agent.machine.path().to_str().unwrap(),
        ])
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(1));
    let error = String::from_utf8(second.stderr).unwrap();
    assert!(error.contains("another program writes there"), "{error}");
    let Agent { mut child, machine } = agent;
    let pid = Pid::from_raw(child.id().try_into().unwrap()).unwrap();
    let begin = Instant::now();
    kill_process(pid, Signal::INT).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    assert!(segments(&machine.path().join("spool")) > 0);
}

#[test]
fn sighup_takes_a_good_configuration_and_keeps_the_old_one_for_a_bad_one() {
    let server = Server::start(Box::new(|_, _| Reply::All(AckStatus::Stored)));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("agent.toml");
    let log = dir.path().join("log");
    let text = format!("[log]\nlevel = \"info\"\nfile = \"{}\"\n", log.display());
    fs::write(&file, &text).unwrap();
    let agent = Agent::start(&server.url, &["--config", file.to_str().unwrap()]);
    until("a batch", || !server.seqs().is_empty());
    fs::write(&file, format!("{text}[sources.load]\nperiodd = \"1s\"\n")).unwrap();
    agent.signal(Signal::HUP);
    let messages = |words: &str| fs::read_to_string(&log).is_ok_and(|text| text.contains(words));
    until("the error", || messages("agent.toml:5:1: unknown key `sources.load.periodd`"));
    fs::write(&file, format!("{text}[sources.load]\nperiod = \"1s\"\n")).unwrap();
    agent.signal(Signal::HUP);
    until("the new one", || messages("reloaded the configuration"));
    let before = server.seqs().len();
    until("more batches", || server.seqs().len() > before + 1);
    let (status, _, _) = agent.end();
    assert!(status.success());
    let seqs = server.seqs();
    assert!(seqs.iter().enumerate().all(|(i, seq)| u64::try_from(i) == Ok(*seq)), "{seqs:?}");
}

#[test]
fn what_the_server_wants_is_done_as_far_as_the_node_allows() {
    let generation = Arc::new(AtomicU64::new(0));
    let wanted = Arc::clone(&generation);
    let server = Server::start(Box::new(move |_, post| {
        let mut answer = answer(post, AckStatus::Stored);
        answer.generation = wanted.load(Ordering::Relaxed);
        if answer.generation == 3 && post.status.generation != 3 {
            let of =
                |key: &str, value| Override { values: [(key.into(), value)].into(), until: None };
            let uptime = of("enabled", SettingValue::Switch(false));
            let load = of("period", SettingValue::Duration(Duration::from_millis(1)));
            let sources = [("uptime".into(), uptime), ("load".into(), load)].into();
            let settings = NodeSettings { sources, ..NodeSettings::default() };
            answer.settings = wire::encode_settings(&settings);
        }
        Reply::Answer(answer)
    }));
    let agent = Agent::start(&server.url, &[]);
    until("a batch", || !server.seqs().is_empty());
    generation.store(3, Ordering::Relaxed);
    let rejected = Rejection {
        setting: "sources.load.period".to_owned(),
        code: RejectionCode::NotAllowed,
        reason: "shorter than `remote.period_min`".to_owned(),
        until: None,
    };
    until("the report", || {
        server.posts().iter().any(|post| post.status.rejected == [rejected.clone()])
    });
    let (status, _, messages) = agent.end();
    assert!(status.success());
    assert!(
        messages.contains("the server's settings 3 change sources: 1; the first until "),
        "{messages}"
    );
}

#[test]
fn it_reports_sources_without_samples_and_why_until_they_give_some() {
    let server = Server::start(Box::new(|_, _| Reply::All(AckStatus::Stored)));
    let agent = Agent::start(&server.url, &[]);
    let messages = |posts: &[server::Post]| -> Option<String> {
        let SourceStatus { source, state, reason } = posts.last()?.status.sources.first()?;
        Some(format!("{source} {}: {reason}", state.word()))
    };
    until("a batch", || !server.seqs().is_empty());
    assert_eq!(messages(&server.posts()), None, "what the machine lacks is no trouble");
    let load = agent.machine.path().join("proc/loadavg");
    fs::write(&load, "nonsense").unwrap();
    until("the trouble", || {
        messages(&server.posts()).is_some_and(|text| text.starts_with("load broken: "))
    });
    fs::write(&load, "0.50 0.25 0.10 1/123 4567\n").unwrap();
    agent.signal(Signal::HUP);
    until("the end of it", || messages(&server.posts()).is_none());
    // One part of the source is broken; another one still gives samples.
    for (zone, temperature) in [("thermal_zone0", "42000"), ("thermal_zone1", "warm")] {
        let zone = agent.machine.path().join("sys/class/thermal").join(zone);
        fs::create_dir_all(&zone).unwrap();
        fs::write(zone.join("type"), "acpitz\n").unwrap();
        fs::write(zone.join("temp"), temperature).unwrap();
    }
    agent.signal(Signal::HUP);
    let expected =
        "thermal/zones broken: /sys/class/thermal/thermal_zone1/temp: it is not a number";
    until("the trouble of a part", || {
        messages(&server.posts()).is_some_and(|text| text == expected)
    });
    agent.end();
}

/// Remote changes while jobs run: optional metrics and bursts. Each expires by itself.
#[test]
fn on_demand_samples_come_at_once_and_end_by_themselves() {
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let requested = Arc::new(Mutex::new((0, NodeSettings::default())));
    let reported = Arc::clone(&requested);
    let server = Server::start(Box::new(move |_, post| {
        let mut answer = answer(post, AckStatus::Stored);
        let (generation, settings) = &*reported.lock().unwrap();
        answer.generation = *generation;
        if post.status.generation != *generation {
            answer.settings = wire::encode_settings(settings);
        }
        Reply::Answer(answer)
    }));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("agent.toml");
    let text = "period = \"1s\"\n[sources.load]\noptional = true\n[remote]\n\
                allow = [\"promotions\", \"bursts\"]\n";
    fs::write(&file, text).unwrap();
    let agent = Agent::of(&server.url, &["--config", file.to_str().unwrap()]);
    until("samples", || server.times("uptime_seconds").len() >= 2);
    assert_eq!(server.times("load_1m"), [0; 0], "nobody asked for it");

    let end = now().as_secs() + 4;
    let end_us = i64::try_from(end * 1_000_000).unwrap();
    let time = |ms| SettingValue::Duration(Duration::from_millis(ms));
    let burst = Override {
        values: [("period".into(), time(100)), ("keep".into(), time(30_000))].into(),
        until: Some(Timestamp(end_us + 60_000_000)),
    };
    let mut settings = NodeSettings {
        promotions: [("load_(1|5)m".into(), Timestamp(end_us))].into(),
        bursts: [("uptime".into(), burst)].into(),
        ..NodeSettings::default()
    };
    *requested.lock().unwrap() = (7, settings.clone());
    until("what was asked for", || server.times("load_5m").len() >= 2);
    until("its end", || now().as_secs() > end + 2);
    let (load, others) = (server.times("load_1m"), server.times("load_15m"));
    let last = load.last().copied().unwrap();
    // The tick at that instant may be the last.
    assert!(last <= end_us && end_us - last <= 1_100_000, "{last} but {end_us}");
    assert_eq!(others, [0; 0], "it was not named");
    assert!(server.gaps().iter().all(|gap| gap != "load"), "an end is no gap");
    let between = |times: &[i64]| times.iter().filter(|at| *at % 1_000_000 > 50_000).count();
    assert_eq!(between(&server.times("uptime_seconds")), 0, "it is kept");

    settings.flushes.push(FlushRequest { source: "uptime".into(), number: 17 });
    *requested.lock().unwrap() = (8, settings.clone());
    until("what was kept", || between(&server.times("uptime_seconds")) >= 20);
    std::thread::sleep(Duration::from_millis(2500));
    let once = server.times("uptime_seconds");
    let mut each = once.clone();
    each.sort_unstable();
    each.dedup();
    assert_eq!(each.len(), once.len(), "nothing comes twice");
    // The same request number in another generation has no effect.
    *requested.lock().unwrap() = (9, settings);
    let count = between(&once);
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(between(&server.times("uptime_seconds")), count);
    let (status, _, messages) = agent.end();
    assert!(status.success() && messages.contains("promotions: 1, bursts: 1"), "{messages}");
}
