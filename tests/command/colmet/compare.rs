//! `jobmeter compare` with a real server, which has the same samples under its own names and under those for Colmet's values.

use crate::common::programs::{Server, output, program};
use serde_json::{Value, json};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

const TOKEN: &str = "token-of-scripts";
/// The value at a second.
type ValueAt = fn(f64) -> f64;

/// Metrics, Colmet's names of them, and their values at a second.
const METRICS: [(&str, &str, ValueAt); 3] = [
    ("memory_free_bytes", "colmet_procstats_meminfo_memfree_bytes", |_| 4_096_000.0),
    ("cpu_user_seconds_total", "colmet_procstats_stat_cpu_user_seconds_total", |at| 3.0 * at),
    ("load_1m", "colmet_procstats_loadavg_1min", |at| 1.0 + at / 1000.0),
];

fn insert(server: &Server, rows: &[Value], dir: &Path) {
    let body = dir.join("rows.json");
    std::fs::write(&body, serde_json::to_string(rows).unwrap()).unwrap();
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--fail-with-body", "-H"])
        .arg(format!("Authorization: Bearer {TOKEN}"))
        .args(["-H", "Content-Type: application/json", "--data-binary"])
        .arg(format!("@{}", body.display()))
        .arg(format!("{}/rpc/insert_metrics", server.url));
    let (code, answer, errors) = output(&mut curl);
    assert_eq!(code, 0, "{answer}{errors}");
}

#[test]
fn a_servers_values_of_colmet_equal_its_own_until_one_differs() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = dir.path().join("tokens");
    std::fs::write(&tokens, format!("push:scripts {TOKEN}\n")).unwrap();
    std::fs::set_permissions(&tokens, Permissions::from_mode(0o600)).unwrap();
    let data = dir.path().join("data");
    let mut server = Server::start(&data, &["--token-file", tokens.to_str().unwrap()]);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let (from, to) = (now - 240, now - 60);
    let row = |metric: &str, at: u64, value: f64| json!({"device_id": "node-1", "metric_id": metric, "timestamp": at, "value": value});
    let mut rows = Vec::new();
    for at in (from - 30..=now - 10).step_by(5) {
        for (own, of_colmet, value) in METRICS {
            let value = value((at + 30 - from) as f64);
            rows.extend([row(own, at, value), row(of_colmet, at, value)]);
        }
    }
    insert(&server, &rows, dir.path());
    let compare = |left: &str, right: &str| {
        let (from, to) = (from.to_string(), to.to_string());
        let mut command = Command::new(program("jobmeter"));
        command.env("JOBMETER_CLIENT_FILE", "/dev/null");
        command.args(["compare", left, right, "--from", &from, "--to", &to, "--json"]);
        let (code, json, errors) = output(&mut command);
        let json: Value = serde_json::from_str(&json).unwrap_or_else(|_| panic!("{code} {errors}"));
        (code, json)
    };
    let of_colmet = format!("colmet+{}", server.url);
    for (left, right) in [(&of_colmet, &server.url), (&server.url, &of_colmet)] {
        let (code, json) = compare(left, right);
        assert_eq!((code, &json["series_equal"]), (0, &3.into()), "{json}");
    }
    // One more sample within the time.
    insert(&server, &[row("load_1m", from + 62, 90.0)], dir.path());
    let (code, json) = compare(&of_colmet, &server.url);
    assert_eq!((code, &json["differences"][0]["metric"]), (1, &"load_1m".into()), "{json}");
    assert_eq!(json["differences"][0]["windows_right_larger"], 1, "{json}");
    assert_eq!(json["series_equal"], 2, "{json}");
    let (code, json) = compare(&server.url, &server.url);
    assert_eq!((code, &json["series_equal"]), (0, &6.into()), "{json}");
    assert_eq!(server.running.end(), 0);
}
