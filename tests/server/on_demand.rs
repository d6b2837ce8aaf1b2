//! On-demand requests to running agents, with a server, an agent and the command.

use crate::common::programs::{Running, Server, get, output, program, until};
use crate::common::up::{alone, jobmeter};
use serde_json::Value;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds between two ticks of the agent.
const TICK: f64 = 2.0;

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

fn agent(server: &Server, device: &str, config: &Path, text: &str) -> Running {
    agent_each("2s", server, device, config, text)
}

fn agent_each(period: &str, server: &Server, device: &str, config: &Path, text: &str) -> Running {
    std::fs::write(config, text).unwrap();
    let mut command = Command::new(program("jobmeter-agent"));
    command.args(["--server", &server.url, "--device", device, "--period", period]);
    command.args(["--spool", "none", "--config", config.to_str().unwrap()]);
    Running::start(&mut command)
}

/// Returns the times of a metric's samples in the last minute.
fn times(server: &Server, device: &str, metric: &str) -> Vec<f64> {
    let start = now() - 60.0;
    let path = format!("/api/v1/range?device={device}&metric={metric}&start={start:.3}");
    let (status, body) = get(&server.url, &path);
    assert_eq!(status, 200, "{body}");
    let range: Value = serde_json::from_str(&body).unwrap();
    let list = |key: &str| range["series"][0][key].as_array().cloned().unwrap_or_default();
    // A point without a value marks missing samples.
    let points = list("times").into_iter().zip(list("values"));
    points.filter(|(_, value)| !value.is_null()).filter_map(|(time, _)| time.as_f64()).collect()
}

fn done(server: &Server, arguments: &[&str]) -> String {
    let (code, out, errors) = jobmeter(&server.url, arguments);
    assert_eq!(code, 0, "{arguments:?}: {errors}");
    out
}

fn list(server: &Server, command: &str) -> Value {
    serde_json::from_str(&done(server, &[command, "--list", "--json"])).unwrap()
}

#[test]
fn a_period_reaches_a_running_agent_within_a_tick_and_ends_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(&dir.path().join("data"), &[]);
    let mut agent = agent(&server, "dahu-7", &dir.path().join("agent.toml"), "");
    until("samples", Duration::from_secs(30), || {
        (times(&server, "dahu-7", "load_1m").len() >= 2).then_some(())
    });
    let period = ["set", "--nodes", "dahu-[1-32]", "--source", "load", "--period", "200ms"];
    let out = done(&server, &[&period[..], &["--for", "12s"]].concat());
    let answered = now();
    assert!(out.contains("for 1 reporting node"), "{out}");
    let first = until("samples at the new rate", Duration::from_secs(10), || {
        let times = times(&server, "dahu-7", "load_1m");
        times.windows(2).find(|pair| pair[1] - pair[0] < 0.5).map(|pair| pair[0])
    });
    let took = first - answered;
    println!("first sample at the new rate {took:.2} s after the answer; ticks of {TICK} s");
    // The acknowledgement of the next batch carries the setting. So it takes one tick, plus the time to send
    // the batch and to apply the setting.
    assert!(took < TICK + 1.0, "{took}");
    let held = &list(&server, "set")[0];
    assert_eq!(
        (
            &held["nodes_applied"],
            &held["settings"][0]["source"],
            &held["settings"][0]["period_seconds"]
        ),
        (&Value::from(1), &Value::from("load"), &Value::from(0.2))
    );
    let slow = until("the old rate again", Duration::from_secs(40), || {
        let times = times(&server, "dahu-7", "load_1m");
        let last = times.len().checked_sub(3)?;
        (times[last + 1] - times[last] > 1.0 && times[last + 2] - times[last + 1] > 1.0)
            .then(|| times[last])
    });
    assert!(slow - answered > 10.0, "{}", slow - answered);
    assert_eq!(list(&server, "set"), Value::Array(Vec::new()));
    let (_, marks) = get(&server.url, "/api/v1/marks?device=dahu-7");
    let marks: Value = serde_json::from_str(&marks).unwrap();
    assert_eq!((&marks[0]["kind"], &marks[1]["kind"]), (&"set".into(), &"expired".into()));
    assert_eq!(agent.end(), 0, "{}", agent.errors());
    assert_eq!(server.running.end(), 0, "{}", server.running.errors());
}

#[test]
fn a_changed_period_makes_no_node_silent_that_reports_and_a_killed_one_is() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"), &[]);
    let mut agent = agent_each("1s", &server, "n1", &dir.path().join("agent.toml"), "");
    until("samples", Duration::from_secs(30), || times(&server, "n1", "load_1m").pop());
    let period = |seconds: f64| move |node: &Value| node["period_seconds"] == seconds;
    let set = |period| {
        done(&server, &["set", "--nodes", "n1", "--period", period, "--for", "5m"]);
    };
    reports_until(&server, "each second", 10.0, period(1.0));
    // Ticks are at multiples of 10 s, so the next sample takes longest just after one.
    until("a whole ten", Duration::from_secs(11), || (now() % 10.0 < 0.3).then_some(()));
    set("10s");
    reports_until(&server, "each ten seconds", 10.0, period(10.0));
    // No sample arrives for longer than the silence limit of the previous period.
    reports_until(&server, "nothing comes", 30.0, |node| {
        now() - node["last_seen"].as_f64().unwrap() > SILENT_AFTER + 0.2
    });
    set("1s");
    reports_until(&server, "each second again", 20.0, period(1.0));
    let back = now();
    reports_until(&server, "it goes on", 20.0, |_| now() - back > SILENT_AFTER + 1.0);

    agent.kill();
    let killed = now();
    until("the killed one is silent", Duration::from_secs(10), || {
        (!first_alive(&server).0).then_some(())
    });
    let took = now() - killed;
    println!("silent {took:.2} s after its end");
    assert!(took < SILENT_AFTER + 1.0, "{took}");
}

/// Seconds without a batch after which the node is silent: three periods of the agent. A period of 1 s counts
/// as 2 s.
const SILENT_AFTER: f64 = 6.0;

/// Returns whether the command lists the first node as alive, and the node's entry in the API.
fn first_alive(server: &Server) -> (bool, Value) {
    let (code, out, errors) = jobmeter(&server.url, &["nodes", "--json"]);
    let nodes: Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}{errors}"));
    let alive = nodes[0]["alive"].as_bool().unwrap_or_else(|| panic!("{nodes}"));
    assert_eq!(code == 0, alive, "{nodes}");
    // The command prints times as text for scripts, the API as seconds.
    let nodes: Value = serde_json::from_str(&get(&server.url, "/api/v1/nodes").1).unwrap();
    (alive, nodes[0].clone())
}

/// Polls until the first node meets the condition, and checks that the node is alive at each poll.
fn reports_until(server: &Server, what: &str, seconds: f64, wanted: impl Fn(&Value) -> bool) {
    let (began, mut looks) = (now(), 0);
    until(what, Duration::from_secs_f64(seconds), || {
        std::thread::sleep(Duration::from_millis(250));
        let (alive, node) = first_alive(server);
        assert!(alive, "{what}: {:.2} s after the change: {node}", now() - began);
        looks += 1;
        wanted(&node).then_some(())
    });
    println!("{what}: after {:.2} s, alive at each of {looks} looks", now() - began);
}

#[test]
fn a_rejection_by_a_node_is_shown_and_a_change_is_undone() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(&dir.path().join("data"), &[]);
    let config = "[remote]\nallow = [\"sources\"]\n";
    let mut agent = agent(&server, "n1", &dir.path().join("agent.toml"), config);
    until("samples", Duration::from_secs(30), || times(&server, "n1", "load_1m").pop());
    let set = ["set", "--nodes", "n*", "--for", "5m", "--source", "load"];
    let out =
        done(&server, &[&set[..], &["--period", "1s", "--enabled", "false", "--json"]].concat());
    let number = serde_json::from_str::<Value>(&out).unwrap()["id"].as_i64().unwrap();
    let why = until("a refusal", Duration::from_secs(15), || {
        let why = &list(&server, "set")[0]["rejected"][0]["reason"];
        why.as_str().map(str::to_owned)
    });
    assert!(why.contains("`remote.allow` has no `periods`"), "{why}");
    let reported = done(&server, &["set", "--list"]);
    assert!(
        reported.contains("0 of 1, rejected by 1") && reported.contains("n1 rejects: "),
        "{reported}"
    );
    // The agent applies the other part: it no longer reads the source.
    std::thread::sleep(Duration::from_secs_f64(2.0 * TICK));
    let stopped = times(&server, "n1", "load_1m").pop().unwrap();
    assert!(now() - stopped > TICK, "{stopped}");
    done(&server, &["set", "--undo", &number.to_string()]);
    until("samples again", Duration::from_secs(15), || {
        times(&server, "n1", "load_1m").pop().filter(|at| *at > stopped)
    });
    assert_eq!(agent.end(), 0, "{}", agent.errors());
    assert_eq!(server.running.end(), 0, "{}", server.running.errors());
}

#[test]
fn a_promoted_metric_is_collected_while_its_job_runs() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(&dir.path().join("data"), &[]);
    let config = "[sources.load]\noptional = true\n";
    let mut agent = agent(&server, "n1", &dir.path().join("agent.toml"), config);
    until("samples", Duration::from_secs(30), || times(&server, "n1", "memory_total_bytes").pop());
    assert_eq!(times(&server, "n1", "load_1m"), [0.0; 0], "optional, and nobody wants it");
    let verb = |words: &[&str]| {
        let mut command = Command::new(program("jobmeter"));
        let (code, out, errors) =
            output(command.arg("job").args(words).args(["--server", &server.url]));
        assert_eq!(code, 0, "{words:?}: {errors}");
        out
    };
    let out = verb(&["start", "--device", "n1"]);
    let job = out.trim();
    let (code, _, errors) = jobmeter(&server.url, &["promote", "load_(1m", "--job", job]);
    assert!(code == 2 && errors.contains("at byte 6,"), "{errors}");
    done(&server, &["promote", "load_1.", "--job", job]);
    let promoted =
        until("a sample", Duration::from_secs(15), || times(&server, "n1", "load_1m").pop());
    assert_eq!(times(&server, "n1", "load_5m"), [0.0; 0], "only what was named");
    verb(&["end", job]);
    until("the promotion to end with the job", Duration::from_secs(15), || {
        list(&server, "promote").as_array()?.is_empty().then_some(())
    });
    // A batch in flight may still arrive; after that there are none.
    std::thread::sleep(Duration::from_secs_f64(3.0 * TICK));
    let last = times(&server, "n1", "load_1m").pop().unwrap();
    assert!(last >= promoted && now() - last > TICK, "{last}");
    assert_eq!(agent.end(), 0, "{}", agent.errors());
    assert_eq!(server.running.end(), 0, "{}", server.running.errors());
}

#[test]
fn a_flush_sends_what_a_burst_kept_and_nothing_before() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(&dir.path().join("data"), &[]);
    let config = "[remote]\nallow = [\"bursts\"]\n";
    let mut agent = agent(&server, "n1", &dir.path().join("agent.toml"), config);
    until("samples", Duration::from_secs(30), || times(&server, "n1", "load_1m").pop());
    let burst = ["set", "--nodes", "n1", "--for", "5m", "--source", "load", "--burst", "200ms"];
    done(&server, &[&burst[..], &["--keep", "20s"]].concat());
    until("the node to take it", Duration::from_secs(15), || {
        (list(&server, "set")[0]["nodes_applied"] == 1).then_some(())
    });
    std::thread::sleep(Duration::from_secs_f64(3.0 * TICK));
    let close = |times: &[f64]| times.windows(2).filter(|pair| pair[1] - pair[0] < 0.5).count();
    assert_eq!(close(&times(&server, "n1", "load_1m")), 0, "it is kept, not sent");
    let out = done(&server, &["flush", "--nodes", "n[1-2]", "--source", "load"]);
    assert!(out.contains("for 1 reporting node"), "{out}");
    let sent = until("what was kept", Duration::from_secs(15), || {
        let times = times(&server, "n1", "load_1m");
        (close(&times) >= 20).then(|| close(&times))
    });
    println!("{sent} distances below half a second after the flush");
    let (_, marks) = get(&server.url, "/api/v1/marks?device=n1");
    assert!(marks.contains("\"flushed\""), "{marks}");
    assert_eq!(agent.end(), 0, "{}", agent.errors());
    assert_eq!(server.running.end(), 0, "{}", server.running.errors());
}

/// A server rule about a value that the test writes. Both programs restart in between.
#[test]
fn a_rule_about_a_value_flushes_and_promotes_once_until_the_value_was_back() {
    let dir = tempfile::tempdir().unwrap();
    if std::fs::metadata(dir.path()).unwrap().uid() != 0 {
        println!("not run: only root's file may name a program");
        return;
    }
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let (value, file) = (dir.path().join("value"), dir.path().join("agent.toml"));
    let shows = |number: u32| std::fs::write(&value, format!("{number}\n")).unwrap();
    shows(1);
    let (data, rules) = (dir.path().join("data"), hot_rule(dir.path()));
    let mut server = Server::start(&data, &[&rules]);
    let config = reads_a_number(&value);
    let mut node = agent(&server, "n1", &file, &config);
    until("the value", Duration::from_secs(40), || last(&server).filter(|value| *value == 1.0));
    let none = fired(&server);
    assert_eq!(none.lines().count(), 1, "{none}");
    assert_eq!(times(&server, "n1", "memory_total_bytes"), [0.0; 0], "optional");

    shows(95);
    until("what was kept", Duration::from_secs(20), || {
        let times = times(&server, "n1", "load_1m");
        (times.windows(2).filter(|pair| pair[1] - pair[0] < 0.5).count() >= 10).then_some(())
    });
    until("what is promoted", Duration::from_secs(20), || {
        times(&server, "n1", "memory_total_bytes").pop()
    });
    let once = fired(&server);
    let want = ["flushed,load,rule hot", "promoted,memory_.*,rule hot"];
    assert_eq!(once.lines().skip(1).collect::<Vec<_>>(), want);
    // While the value stays high, drops slightly and rises again, and while another server starts, the rule
    // does not fire again.
    until("the promotion's end", Duration::from_secs(20), || {
        list(&server, "promote").as_array()?.is_empty().then_some(())
    });
    shows(85);
    until("the lower value", Duration::from_secs(10), || last(&server).filter(|v| *v == 85.0));
    shows(96);
    until("the higher value", Duration::from_secs(10), || last(&server).filter(|v| *v == 96.0));
    assert_eq!(fired(&server), once);
    shows(70);
    until("it is back", Duration::from_secs(10), || last(&server).filter(|v| *v == 70.0));
    shows(97);
    until("it fired again", Duration::from_secs(20), || {
        (fired(&server).lines().count() == 5).then_some(())
    });
    let twice = fired(&server);
    let audit = done(&server, &["audit", "--actor", "rule hot", "--json"]);
    let audit: Value = serde_json::from_str(&audit).unwrap();
    let did: Vec<_> = audit.as_array().unwrap().iter().map(|line| &line["action"]).collect();
    assert_eq!(did, ["flush", "promote", "flush", "promote"]);
    assert_eq!((&audit[0]["source"], &audit[0]["address"]), (&"load".into(), &"server".into()));

    // The server distinguishes a stopped node from a silent one, also after its own restart.
    assert_eq!(node.end(), 0, "{}", node.errors());
    assert_eq!(server.running.end(), 0, "{}", server.running.errors());
    server.again(&data, &[&rules]);
    assert_eq!(fired(&server), twice, "what was asked of nodes survives");
    assert_eq!(first_node(&server), (true, false));
    let mut node = agent(&server, "n1", &file, &config);
    until("it is back", Duration::from_secs(30), || {
        (first_node(&server) == (false, true)).then_some(())
    });
    // The value is the same as before the server stopped. The rule fires again only after the value was back.
    let seen = || times(&server, "n1", "exec_value").len();
    let before = seen();
    until("the same value", Duration::from_secs(20), || (seen() > before + 3).then_some(()));
    assert_eq!((last(&server), fired(&server)), (Some(97.0), twice));
    shows(70);
    until("it is back", Duration::from_secs(10), || last(&server).filter(|v| *v == 70.0));
    shows(98);
    until("it fired a third time", Duration::from_secs(20), || {
        (fired(&server).lines().count() == 7).then_some(())
    });
    assert_eq!(node.end(), 0, "{}", node.errors());
    assert_eq!(server.running.end(), 0, "{}", server.running.errors());
}

/// Returns the first node's last value.
fn last(server: &Server) -> Option<f64> {
    let (_, body) = get(&server.url, "/api/v1/last?device=n1&metric=exec_value");
    let reported: Value = serde_json::from_str(&body).unwrap();
    reported[0]["value"].as_f64()
}

/// Returns the flushes and promotions as CSV.
fn fired(server: &Server) -> String {
    let select = "SELECT kind, text, actor FROM marks WHERE kind IN ('flushed', 'promoted') ORDER BY timestamp, kind";
    done(server, &["sql", "--format", "csv", select])
}

/// Returns the flag for a server with a rule that flushes and promotes if a value exceeds 90.
fn hot_rule(dir: &Path) -> String {
    let rules = dir.join("rules.toml");
    let rule = "[[when]]\nname = \"hot\"\nmetric = \"exec_value\"\nnodes = \"n*\"\nabove = 90\nback = 80\n\
                flush = \"load\"\npromote = \"memory_.*\"\npromote_for = \"8s\"\nagain_after = \"1s\"\n";
    std::fs::write(&rules, rule).unwrap();
    format!("--promotions-rules={}", rules.display())
}

/// Returns an agent's settings with a value from a file, a burst, and an optional source.
fn reads_a_number(value: &Path) -> String {
    format!(
        "[remote]\nallow = [\"bursts\", \"promotions\"]\n[burst]\nsources = [\"load\"]\nperiod = \"200ms\"\nkeep = \"20s\"\n\
         [sources.memory]\noptional = true\n[sources.exec]\nperiod = \"1s\"\ncommand = [\"/bin/cat\", \"{}\"]\n\
         pattern = '(\\d+)'\n",
        value.display()
    )
}

/// Returns whether the first node was stopped, and whether it is alive.
fn first_node(server: &Server) -> (bool, bool) {
    let (_, nodes) = get(&server.url, "/api/v1/nodes");
    let nodes: Value = serde_json::from_str(&nodes).unwrap();
    let is = |what: &str| nodes[0][what].as_bool().unwrap_or_else(|| panic!("{what}: {nodes}"));
    (is("stopped"), is("alive"))
}
