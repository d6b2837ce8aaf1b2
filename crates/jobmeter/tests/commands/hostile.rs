//! Tests that no command lets a server's data control the terminal: names, helps, labels and details come from
//! users, nodes and schedulers.

use crate::serve::serve_with;
use serde_json::{Value, json};
use std::process::Command;

/// Changes the title, clears the screen, reverses the text direction, returns to the start of the line, has
/// characters without width, and ends a line.
const HOSTILE: &str =
    "HOSTILE\u{1b}]0;x\u{7}\u{9b}2J\u{202e}\u{2066}\r\n\u{7f}\u{200b}\u{200f}\u{feff}\u{2028}";

/// Commands that print nothing of a server, or have a test of their own (`top`).
const OTHERS: [&str; 21] = [
    "up",
    "top",
    "server",
    "check",
    "import",
    "poll",
    "feed",
    "kwollector",
    "kwollector-wattmetre",
    "backup",
    "verify",
    "dashboards",
    "extract",
    "db",
    "completions",
    "man",
    "doctor",
    "sources",
    "capture",
    "colmet-node",
    "colmet-collector",
];

fn gap() -> Value {
    json!({"origin": "H", "device": "H", "source": "H", "from": 1.0, "to": 2.0, "cause": "H", "detail": "H", "job": null})
}

fn job() -> Value {
    json!({"cluster": "local", "id": 7, "display_id": "7", "user": "H", "uid": 1000, "account": "H", "project": "H",
        "name": "H", "queue": "H", "state": "H", "state_word": "H", "submit": 1.0, "start": 1.0, "stop": 2.0,
        "exit_code": 0, "part_of": null, "array_index": null, "types": ["H"], "requested": {}, "used": {},
        "devices": ["H"]})
}

fn series() -> Value {
    json!({"device": "H", "metric": "H", "cluster": "local", "job": 7, "labels": {"H": "H"}, "unit": "H", "kind": "H"})
}

fn polled() -> Value {
    json!({"device": "H", "poller": "H", "protocol": "H", "address": "H", "period_seconds": 5.0, "state": "failing",
        "reason": "H", "last_good": 1.0, "aliases": ["H", "H"]})
}

fn node() -> Value {
    json!({"device": "H", "alive": false, "stopped": false, "conflict": true, "last_seen": 1.0, "period_seconds": 5.0,
        "clock_offset_seconds": 9.0, "agent_version": "H", "config_generation": "0", "config_rejected": [{"setting": "H", "code": "H", "reason": "H"}],
        "source_errors": [{"source": "H", "state": "H", "reason": "H"}], "sources_restricted": [], "series": 1, "jobs": [],
        "cpu_cores_used": null, "cpu_cores": null, "memory_used_bytes": null, "memory_bytes": null})
}

fn with(mut value: Value, more: Value) -> Value {
    value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    value
}

/// The answer to a path, with `H` in place of the hostile text.
fn answer(path: &str) -> Value {
    let token = json!({"id": 1, "scope": "H", "uid": 1, "note": "H", "created_by": "H", "created": 1.0, "expires": 2.0,
        "revoked": null, "used": null});
    let report = json!({"job": job(), "runs": [], "allocations": [], "nodes": [{"device": "H"}],
        "steps": [{"id": "H", "name": "H", "state_word": "H", "start": 1.0, "stop": 2.0, "exit_code": 0}],
        "totals": {"wall_seconds": 1.0}, "metrics": [], "series": [], "gaps": [gap()],
        "origins": [{"total": "cpu_seconds", "origins": ["H"], "note": "H", "nodes": 1}]});
    let explanation = json!({"help": "H", "source": "H", "source_errors": 1.0,
        "last_error": {"time": 1.0, "state": "H", "reason": "H"}, "senders": [{"origin": "H", "last_seen": 1.0}],
        "period_seconds": 5.0, "samples": 1, "time": 1.0, "value": 1.0, "counter_start": null, "gaps": [gap()],
        "gaps_count": 1, "polls": [polled()]});
    let known = [
        (
            "/api/v1/health",
            json!({"version": "", "build": "", "ready": true, "uptime_seconds": 1.0, "now": 3.0,
            "nodes_alive": 0, "nodes": 1, "jobs_running": 0}),
        ),
        (
            "/api/v1/jobs/check",
            json!([{"cluster": "H", "id": 7, "device": "H", "difference": "H", "since": 1.0,
            "scheduler": "H", "node": "H"}]),
        ),
        ("/api/v1/jobs/refused", Value::Null),
        ("/api/v1/jobs/", report),
        ("/api/v1/jobs", json!([job()])),
        ("/api/v1/nodes", json!([node()])),
        ("/api/v1/devices", json!([polled()])),
        ("/api/v1/explain", json!([with(series(), explanation)])),
        (
            "/api/v1/settings",
            json!([{"id": 1, "nodes": "H", "settings": [{"source": "H", "events": ["H"], "burst": {"flush_on": ["H"]}}],
            "created": 1.0, "created_by": "H", "until": 2.0, "nodes_known": 1, "nodes_applied": 0,
            "rejected": [{"device": "H", "source": "H", "setting": "H", "code": "H", "reason": "H"}]}]),
        ),
        (
            "/api/v1/promotions",
            json!([{"id": 1, "metric": "H", "nodes": "H", "job": "H", "created": 1.0,
            "created_by": "H", "until": 2.0, "origin": "H", "error": "H"}]),
        ),
        ("/api/v1/tokens/", token.clone()),
        ("/api/v1/tokens", json!([token])),
        (
            "/api/v1/accounts",
            json!([{"cluster": "H", "name": "H", "members_see": "H", "role": "H",
            "users": [{"uid": 1, "user": "H", "role": "H"}]}]),
        ),
        (
            "/api/v1/audit",
            json!([{"time": 1.0, "actor": "H", "address": "H", "action": "H", "job": "H", "note": "H"}]),
        ),
        ("/api/v1/catalogue", json!([{"name": "H", "unit": "H", "kind": "H", "help": "H"}])),
        ("/api/v1/series", json!([series()])),
        ("/api/v1/gaps", json!([gap()])),
        (
            "/api/v1/outputs",
            json!([{"output": "H", "kind": "H", "guarantee": "H", "state": "waiting", "since": 1.0,
            "reason": "H", "samples_behind": 1, "newest": 1.0, "samples": 1, "failures": 1,
            "samples_left_out": 1, "samples_lost": 1, "samples_resent": 1,
            "fills": [{"start": 1.0, "end": 2.0, "job": "H", "requested": 1.0, "state": "waiting", "done": null,
            "reason": "H", "samples": 1, "sent_to": 1.0}],
            "set_aside": {"items": 1, "bytes": 1, "deleted": 1, "message": "H", "retrying": true},
            "gaps": [{"start": 1.0, "end": 2.0, "samples": 1, "reason": "H"}]}]),
        ),
        ("/api/v1/last", json!([])),
    ];
    known
        .into_iter()
        .find(|(known, _)| path.starts_with(known))
        .map_or(Value::Null, |(_, value)| value)
}

/// Replaces each `H` by the hostile text.
fn fill(value: &mut Value) {
    match value {
        Value::String(text) if text == "H" => *text = HOSTILE.to_owned(),
        Value::Array(all) => all.iter_mut().for_each(fill),
        Value::Object(fields) => {
            fields.iter_mut().for_each(|(_, value)| fill(value));
            if let Some(value) = fields.remove("H") {
                fields.insert(HOSTILE.to_owned(), value);
            }
        }
        _ => {}
    }
}

/// Status and body for a path; rows for paths that answer with a table.
fn body(path: &str, accept: &str) -> (&'static str, String) {
    if path.starts_with("/rpc/get_metrics?job_id=7") {
        let row = json!({"timestamp": "1970-01-01T00:00:01Z", "device_id": HOSTILE, "metric_id": HOSTILE, "value": 1,
            "labels": {HOSTILE: HOSTILE}});
        return ("200 OK", json!([row]).to_string());
    }
    if path.starts_with("/metrics?job_id=7") {
        return ("200 OK", "[]".to_owned());
    }
    if path.starts_with("/rpc/get_metrics") || path.starts_with("/api/v1/sql") {
        return match accept {
            "text/csv" => ("200 OK", format!("{0},b\n\"{1}\",1\n", "a\u{9b}", HOSTILE)),
            _ => ("200 OK", json!([{ "a": HOSTILE }]).to_string().replace("\\u009b", "\u{9b}")),
        };
    }
    let mut value = answer(path);
    fill(&mut value);
    match value {
        Value::Null => {
            let connection_error =
                json!({"code": "X", "message": HOSTILE, "details": HOSTILE, "hint": HOSTILE});
            ("404 Not Found", connection_error.to_string())
        }
        value => ("200 OK", value.to_string()),
    }
}

/// Standard output and standard error of a command.
fn output_of(url: &str, words: &[&str]) -> String {
    #[expect(clippy::disallowed_methods, reason = "the program itself is tested")]
    let mut command = Command::new(env!("CARGO_BIN_EXE_jobmeter"));
    let output = command.args(["--server", url]).args(words).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8(text).unwrap()
}

/// The path of a request; that of an error for what changes something.
fn path_of(line: &str) -> &str {
    let changes = ["POST /api/v1/jobs ", "POST /api/v1/outputs/"];
    if changes.iter().any(|start| line.starts_with(start)) {
        return "/refused";
    }
    line.split(' ').nth(1).unwrap_or_default()
}

#[test]
fn nothing_that_a_server_sends_acts_on_the_terminal() {
    let url = serve_with(|request| body(path_of(&request.line), &request.accept));
    let select = ["sql", "SELECT 1"];
    // Its sides are servers of their own.
    let kwollect = format!("kwollect+{url}/metrics");
    let compare = ["compare", &url, &kwollect, "--from", "0", "--to", "1970-01-02", "--job", "7"];
    let compare_json = [&compare[..], &["--json"]].concat();
    let commands: &[&[&str]] = &[
        &["jobs"],
        &["jobs", "--check"],
        &["jobs", "--json"],
        &["job", "7"],
        &["job", "7", "--json"],
        &["job", "refused"],
        &["nodes"],
        &["nodes", "--json"],
        &["devices"],
        &["devices", "--json"],
        &["devices", "--csv"],
        &["explain", "load_1m"],
        &["explain", "load_1m", "--json"],
        &["gaps"],
        &["outputs"],
        &["outputs", "--csv"],
        &["outputs", "refused", "--retry"],
        &["fill", "refused", "--last", "1h"],
        &compare,
        &compare_json,
        &["gaps", "--json"],
        &["gaps", "--csv"],
        &["set", "--list"],
        &["set", "--list", "--json"],
        &["promote", "--list"],
        &["promote", "--list", "--json"],
        &["token", "list"],
        &["token", "list", "--json"],
        &["token", "revoke", "7"],
        &["account", "list"],
        &["account", "list", "--json"],
        &["audit"],
        &["audit", "--json"],
        &["get", "--metric", "load_1m"],
        &["get", "--metric", "load_1m", "--json"],
        &select,
        &["sql", "SELECT 1", "--json"],
        &["flush", "--nodes", "n1", "--source", "cpu"],
        &["run", "--", "true"],
    ];
    let help = output_of(&url, &["--help"]);
    let all = help.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let all = all.filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase()));
    let listed =
        |word: &&str| commands.iter().any(|words| words[0] == *word) || OTHERS.contains(word);
    let missing: Vec<&str> = all.filter(|word| !listed(word)).collect();
    assert_eq!(missing, [""; 0], "commands without a hostile value");
    for words in commands {
        let text = output_of(&url, words);
        assert!(text.contains("HOSTILE"), "{words:?} prints none of it: {text}");
        let acts = |c: char| {
            c != '\n'
                && (c.is_control()
                    || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}'))
        };
        assert!(!text.contains(acts), "{words:?}: {text:?}");
        // Hostile text does not begin a new line.
        assert!(!text.contains("HOSTILE\n"), "{words:?}: {text:?}");
        if words.contains(&"--json") {
            let line = text.lines().next().unwrap();
            let value: Value = serde_json::from_str(line).unwrap();
            assert!(value.to_string().contains("HOSTILE\\"), "{words:?}: {value}");
        }
    }
}
