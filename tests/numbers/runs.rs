//! `jobmeter run` reports the command's own usage, as root and as an ordinary user, and `jobmeter job`
//! reports the same.

use crate::common::programs::{Running, Server, output, program, root, until};
use crate::common::up::{Up, alone, jobmeter as as_root, node_alive};
use serde_json::Value;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The user who runs the command.
#[derive(Clone, Copy, Debug, PartialEq)]
enum User {
    Root,
    Nobody,
}

impl User {
    fn id(self) -> u32 {
        if self == Self::Root { 0 } else { 65534 }
    }

    /// The command `jobmeter` of the user.
    fn command(self) -> Command {
        let own = program("jobmeter");
        let mut command = match self {
            Self::Root => Command::new(own),
            Self::Nobody => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(own);
                command
            }
        };
        command.env("HOME", "/").env_remove("XDG_RUNTIME_DIR");
        command
    }
}

/// Runs `jobmeter` as a user.
fn jobmeter(user: User, words: &[&str]) -> (i32, String, String) {
    output(user.command().args(words))
}

fn run(user: User, url: &str, words: &[&str]) -> Value {
    let own = ["run", "--device", "runs", "--json", "--server", url, "--"];
    let (code, out, errors) = jobmeter(user, &[&own[..], words].concat());
    assert_eq!(code, 0, "{errors}");
    serde_json::from_str(&out).unwrap()
}

/// Returns the users who can run the program. Other users cannot if the build folder is closed to them.
fn users() -> Vec<User> {
    let can = |user: &User| jobmeter(*user, &["--version"]).0 == 0;
    [User::Root, User::Nobody].into_iter().filter(can).collect()
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

/// Converts an RFC 3339 time to seconds since 1970.
fn seconds(time: &Value) -> f64 {
    let text = time.as_str().unwrap_or_else(|| panic!("{time} is no text"));
    assert!(text.ends_with('Z'), "{text} is not in UTC");
    let mut date = Command::new("date");
    let (code, out, errors) = output(date.args(["-d", text, "+%s.%N"]));
    assert_eq!(code, 0, "{errors}");
    out.trim().parse().unwrap()
}

/// Processor time, 40 MiB of memory, and a file of 4 MiB, in a child.
const LOAD: &str = "head -c 40M /dev/zero | tail -c 40M > /dev/null; \
    f=$(mktemp); head -c 4M /dev/zero > $f; sync $f; rm $f; \
    i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done";

#[test]
fn a_command_and_its_job_have_the_same_numbers_and_its_own() {
    if !root("a_command_and_its_job_have_the_same_numbers_and_its_own") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let up = Up::start(&dir.path().join("data"), &["--period", "1s", "--device", "runs"]);
    for user in users() {
        // The memory and page faults of `jobmeter run` itself do not count for the command.
        let small = run(user, &up.url, &["true"]);
        let number = |name: &str| small[name].as_f64().unwrap_or_else(|| panic!("{name}: {small}"));
        assert!(number("memory_peak_bytes") < f64::from(8 << 20), "{user:?}: {small}");
        assert!(number("minor_faults") < 350.0, "{user:?}: {small}");
        let report = run(user, &up.url, &["sh", "-c", LOAD]);
        let peak = report["memory_peak_bytes"].as_f64().unwrap();
        assert!((40.0..60.0).contains(&(peak / f64::from(1 << 20))), "{user:?}: {report}");
        // Compare at once, and again after the agent has read and sent its samples.
        for wait in [0, 2] {
            std::thread::sleep(Duration::from_secs(wait));
            for report in [&small, &report] {
                let id = format!("local:{}", report["id"]);
                let (code, out, errors) =
                    jobmeter(user, &["job", &id, "--json", "--server", &up.url]);
                assert_eq!(code, 0, "{errors}");
                let job: Value = serde_json::from_str(&out).unwrap();
                let totals = job["totals"].as_object().unwrap();
                let known: Vec<_> =
                    totals.iter().filter(|(name, _)| !report[*name].is_null()).collect();
                assert!(known.len() >= 9, "{user:?}: {report}");
                for (name, value) in known {
                    assert_eq!(*value, report[name], "{user:?} {name}: {report} {totals:?}");
                }
            }
        }
    }
}

#[test]
fn the_wall_time_is_the_commands_and_run_returns_when_it_ended() {
    if !root("the_wall_time_is_the_commands_and_run_returns_when_it_ended") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let up = Up::start(&dir.path().join("data"), &["--period", "1s", "--device", "runs"]);
    for user in users() {
        let (mut shortest, mut soonest) = (f64::MAX, f64::MAX);
        for _ in 0..10 {
            let report = run(user, &up.url, &["true"]);
            let returned = now();
            let wall = report["wall_seconds"].as_f64().unwrap();
            // One task: the processor time of its process before the command does not count.
            let cpu = report["cpu_seconds"].as_f64().unwrap();
            assert!(cpu <= wall, "{user:?}: {report}");
            (shortest, soonest) =
                (shortest.min(wall), soonest.min(returned - seconds(&report["stop"])));
        }
        // At least one of ten attempts runs on an idle machine. With polling every 50 ms the shortest time
        // was 46 ms. Waiting for the agent took 300 ms.
        assert!(shortest < 0.04, "{user:?}: {shortest} s");
        assert!(soonest < 0.25, "{user:?}: returned {soonest} s after the end");
        // The command's actions are between its start and its end, including those of processes that it left
        // behind.
        let script = "date +%s.%N; (sleep 0.2; date +%s.%N) &";
        let begun = now();
        let own =
            ["run", "--device", "runs", "--json", "--server", &up.url, "--", "sh", "-c", script];
        let (code, out, errors) = jobmeter(user, &own);
        let ended = now();
        assert_eq!(code, 0, "{errors}");
        let lines: Vec<&str> = out.lines().collect();
        let report: Value = serde_json::from_str(lines[2]).unwrap();
        let time = |name: &str| seconds(&report[name]);
        let [first, last] = [lines[0], lines[1]].map(|line| line.parse::<f64>().unwrap());
        let order = [begun, time("start"), first, last, time("stop"), ended];
        assert!(order.is_sorted(), "{user:?}: {order:?}");
    }
}

/// Starts an agent for the device `runs`.
fn start_agent(url: &str, spool: &std::path::Path) -> Running {
    let mut command = Command::new(program("jobmeter-agent"));
    command.env("JOBMETER_AGENT_FILE", "/dev/null");
    command.args(["--server", url, "--period", "1s", "--device", "runs", "--spool"]).arg(spool);
    Running::start(command.stdout(Stdio::null()))
}

/// A run that ends while its server is down is kept, and the user's next run sends it: samples, report and end.
#[test]
fn a_run_that_ends_while_the_server_is_down_is_sent_by_the_next_one() {
    if !root("a_run_that_ends_while_the_server_is_down_is_sent_by_the_next_one") {
        return;
    }
    let _alone = alone();
    for user in users() {
        let dir = tempfile::tempdir().unwrap();
        let mut server = Server::start(&dir.path().join("data"), &[]);
        let state = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(state.path(), Some(user.id()), Some(user.id())).unwrap();
        let [begun, stop] = ["begun", "stop"].map(|name| state.path().join(name));
        let script = format!(
            "touch {}; while [ ! -e {} ]; do :; done; exit 3",
            begun.display(),
            stop.display()
        );
        let words = ["run", "--server", &server.url, "--device", "runs", "--json", "--"];
        let mut command = user.command();
        command.env("XDG_STATE_HOME", state.path()).args(words).args(["sh", "-c", &script]);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        until("the command", Duration::from_secs(60), || begun.exists().then_some(()));
        server.running.kill();
        // At least one reading without a server.
        std::thread::sleep(Duration::from_millis(1500));
        std::fs::write(&stop, "").unwrap();
        let out = command.wait_with_output().unwrap();
        let report: Value = serde_json::from_slice(&out.stdout).unwrap();
        assert!(out.status.code() == Some(3), "{user:?}: {report}");
        let notes = report["left_out"].to_string();
        assert!(
            notes.contains("your next `jobmeter run` that reaches this server sends it"),
            "{user:?}: {report}"
        );

        server.again(&dir.path().join("data"), &[]);
        let words = ["run", "--server", &server.url, "--device", "runs", "--json", "--", "true"];
        let next = output(user.command().env("XDG_STATE_HOME", state.path()).args(words));
        assert!(next.0 == 0 && next.2.contains("local:1"), "{user:?}: {next:?}");
        let (_, job, _) = as_root(&server.url, &["job", "local:1", "--json"]);
        let job: Value = serde_json::from_str(&job).unwrap();
        assert_eq!(job["job"]["exit_code"], 3, "{job}");
        assert!((seconds(&job["job"]["stop"]) - seconds(&report["stop"])).abs() < 0.01, "{job}");
        let totals = job["totals"].as_object().unwrap();
        for (name, value) in totals.iter().filter(|(name, _)| !report[*name].is_null()) {
            assert_eq!(*value, report[name], "{user:?} {name}: {report}");
        }
        assert_eq!(sql(&server.url, "SELECT count(*) AS n FROM gaps")[0]["n"], 0);
        let again = output(user.command().env("XDG_STATE_HOME", state.path()).args(words));
        assert!(!again.2.contains("local:1"), "it is sent once: {again:?}");
    }
}

/// Returns the rows of an SQL query.
fn sql(url: &str, query: &str) -> Vec<Value> {
    let (code, out, errors) = as_root(url, &["sql", "--format", "json", query]);
    assert_eq!(code, 0, "{errors}");
    serde_json::from_str(&out).unwrap()
}

#[test]
fn an_agent_that_starts_during_a_run_does_not_report_it_again() {
    if !root("an_agent_that_starts_during_a_run_does_not_report_it_again") {
        return;
    }
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"), &[]);
    let stop = dir.path().join("stop");
    let script = format!("while [ ! -e {} ]; do :; done", stop.display());
    let mut command = Command::new(program("jobmeter"));
    command.args(["run", "--server", &server.url, "--device", "runs", "--json", "--"]);
    let command = command.args(["sh", "-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
    let own = "SELECT count(*) AS n FROM metrics WHERE job_id = 1 AND metric_id LIKE 'cgroup_cpu%'";
    let stored = || sql(&server.url, own)[0]["n"].as_i64().filter(|count| *count > 0);
    until("samples of the run", Duration::from_secs(60), stored);
    let mut agent = start_agent(&server.url, &dir.path().join("spool"));
    node_alive(&server.url);
    // Three readings of an agent that searches for jobs every second.
    let readings = "SELECT count(*) AS n FROM metrics WHERE metric_id = 'load_1m'";
    until("readings of the agent", Duration::from_secs(60), || {
        sql(&server.url, readings)[0]["n"].as_i64().filter(|count| *count >= 3)
    });
    std::fs::write(&stop, "").unwrap();
    let out = command.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(agent.end(), 0, "{}", agent.errors());
    // An agent reads at whole seconds. `run` reads at seconds since its own start.
    let query = "SELECT count(*) AS n FROM metrics WHERE job_id = 1 AND timestamp = date_trunc('second', timestamp)";
    assert_eq!(sql(&server.url, query)[0]["n"], 0, "{report}");
    assert!(!agent.errors().contains("found job local:1"), "{}", agent.errors());
}

/// Uses memory in MiB and processor time in seconds, then writes its processor time to a file.
const USE: &str = r#"
import sys, time
seconds, data = float(sys.argv[2]), b"x" * (int(sys.argv[1]) << 20)
while time.process_time() < seconds:
    sum(range(10000))
open(sys.argv[3], "w").write(str(time.process_time()))
"#;

/// A run within a run that uses less processor time than the outer one, and more memory. With a cgroup of its own it is
/// in no number of the outer run, which says so; without one it is in each.
#[test]
fn the_report_of_an_outer_run_is_true_for_every_nesting() {
    if !root("the_report_of_an_outer_run_is_true_for_every_nesting") {
        return;
    }
    let jobmeter = program("jobmeter").display().to_string();
    let own_python = crate::numbers::truth::python();
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    // The interpreter may be in a folder that is closed to other users, as may be the build folder.
    let can_run = |python: &str| {
        let mut command = Command::new(nobody[0]);
        // `setpriv` itself still has root's capabilities when it starts a program.
        let script = format!("{python} -c ''");
        output(command.args(&nobody[1..]).args(["sh", "-c", &script])).0 == 0
    };
    let mut cases = vec![(User::Root, String::new(), own_python.clone())];
    let python = [&*own_python, "/usr/bin/python3"].into_iter().find(|python| can_run(python));
    if let Some(python) = python.filter(|_| users().contains(&User::Nobody)) {
        cases.push((User::Root, nobody.join(" "), python.to_owned()));
        cases.push((User::Nobody, String::new(), python.to_owned()));
    }
    for (outer, change, python) in cases {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(dir.path(), Some(65534), Some(65534)).unwrap();
        let [script, own, nested, report] =
            ["use.py", "own", "nested", "report"].map(|name| dir.path().join(name));
        std::fs::write(&script, USE).unwrap();
        let (script, shown) =
            (script.display(), |path: &std::path::PathBuf| path.display().to_string());
        let run = "run --server http://127.0.0.1:9 --json --";
        let inner = format!(
            "{python} {script} 24 0.5 {}; {change} {jobmeter} {run} {python} {script} 96 0.1 {} > {}",
            shown(&own),
            shown(&nested),
            shown(&report)
        );
        let mut command = outer.command();
        command.args(run.split(' ')).args(["sh", "-c", &inner]);
        let (code, out, errors) = output(&mut command);
        assert_eq!(code, 0, "{errors}");
        let whole: Value = serde_json::from_str(&out).unwrap();
        let inner: Value =
            serde_json::from_str(&std::fs::read_to_string(&report).unwrap()).unwrap();
        let used = |path| -> f64 { std::fs::read_to_string(path).unwrap().parse().unwrap() };
        let (own, nested) = (used(&own), used(&nested));
        let number = |report: &Value, name: &str| report[name].as_f64().unwrap();
        let case = format!("{outer:?} {change}: {whole} {inner}");
        // Its end comes after it states its time: on a busy machine it takes long to give memory back.
        let of_inner = number(&inner, "cpu_seconds");
        assert!((nested - 0.005..nested + 0.3).contains(&of_inner), "{nested} {case}");
        let is_apart = outer == User::Root && change.is_empty();
        let notes = whole["left_out"].to_string();
        assert_eq!(notes.contains("moved to another cgroup"), is_apart, "{case}");
        let least = if is_apart { own } else { own + nested };
        assert!((least..least + 0.3).contains(&number(&whole, "cpu_seconds")), "{least} {case}");
        let peak_mib = number(&whole, "memory_peak_bytes") / f64::from(1 << 20);
        assert_eq!(peak_mib > 96.0, !is_apart, "{case}");
        assert!(peak_mib > 24.0 && peak_mib < 200.0, "{case}");
    }
}
