//! `access.anonymous = "jobs"`: every reader may query by job ID, and learns when and on which nodes a job ran.

use super::{answered, case, send_as, site};
use crate::tests::Site;
use api::{Method, Operation};
use serde_json::Value;

/// What names bob, his job's samples, or his job's facts.
const OF_BOB: [&str; 4] = ["bobs_count", "\"bob\"", "bobs\"", "2000"];

fn rows(site: &Site, token: &str, line: &str, body: &str) -> Vec<Value> {
    let answer = send_as(site, token, line, body.as_bytes());
    assert_eq!(answer.status, 200, "{line} {body}: {answer:?}");
    answer.json().as_array().unwrap().clone()
}

fn sql(site: &Site, token: &str, query: &str) -> Vec<Value> {
    rows(site, token, "POST /api/v1/sql", &serde_json::json!({ "query": query }).to_string())
}

fn metrics(rows: &[Value]) -> Vec<String> {
    let name = |row: &Value| format!("{} {}", row["device_id"], row["metric_id"]).replace('"', "");
    let mut names: Vec<String> = rows.iter().map(name).collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn a_job_id_selects_nodes_and_no_samples_of_the_job() {
    let site = site(&[("access.anonymous", "jobs")]);
    // Ann's and bob's jobs share n1. Neither ann nor a caller without a token reads a sample of bob's job.
    let of_nodes = ["bobs-meter load_1m", "bobs-node load_1m", "n1 load_1m"];
    let seen = |rows: &[Value]| {
        let names = metrics(rows);
        assert!(names.iter().all(|name| of_nodes.contains(&&**name)), "{names:?}");
        names.contains(&"n1 load_1m".to_owned()) && names.contains(&"bobs-node load_1m".to_owned())
    };
    for token in ["", "token-of-guests", "token-of-ann", "read-of-ann"] {
        for path in
            ["/rpc/get_metrics?job_id=2", "/rpc/available_metrics?params=%7B%22job_id%22:2%7D"]
        {
            assert!(seen(&rows(&site, token, &format!("GET {path}"), "")), "{path}");
        }
        let body = "{\"job_id\": 2, \"cluster\": \"slurm\"}";
        assert!(seen(&rows(&site, token, "POST /rpc/get_metrics", body)));
        assert!(seen(&rows(
            &site,
            token,
            "GET /rest/metrics_by_job?job_id=eq.2&cluster=eq.slurm",
            ""
        )));
        for query in [
            "SELECT * FROM get_metrics(job_id => 2)",
            "SELECT * FROM api.get_metrics('slurm:2')",
            "SELECT * FROM api.available_metrics(params => '{\"job_id\": 2}')",
            "SELECT * FROM metrics_by_job WHERE job_id = 2 AND cluster = 'slurm'",
        ] {
            assert!(seen(&sql(&site, token, query)), "{query}");
        }
        let times = "SELECT node, start_time, stop_time FROM nodetime_per_job \
                     WHERE cluster = 'slurm' AND job_id = 2 ORDER BY node";
        let found = sql(&site, token, times);
        let nodes: Vec<&Value> = found.iter().map(|row| &row["node"]).collect();
        assert_eq!(nodes, ["bobs-node", "n1"]);
        assert!(
            found.iter().all(|row| row["start_time"].is_string() && row["stop_time"].is_null())
        );
        let by_rest =
            rows(&site, token, "GET /rest/nodetime_by_job?job_id=eq.2&cluster=eq.slurm", "");
        assert_eq!(by_rest.len(), 2);
    }
    // Bob reads the samples of his job as before.
    let bobs = rows(&site, "token-of-bob", "GET /rpc/get_metrics?job_id=2", "");
    assert!(metrics(&bobs).contains(&"n1 bobs_count".to_owned()), "{bobs:?}");
    let anns = rows(&site, "token-of-ann", "GET /rpc/get_metrics?job_id=1", "");
    assert_eq!(metrics(&anns), ["n1 anns_count", "n1 load_1m"]);
    let unknown = send_as(&site, "", "GET /rpc/get_metrics?job_id=77", b"");
    assert_eq!((unknown.status, &unknown.json()["code"]), (404, &"P0002".into()));
}

/// Every other route shows of jobs what it shows with "nodes".
#[test]
fn nothing_else_of_a_job_is_shown() {
    let site = site(&[("access.anonymous", "jobs")]);
    for operation in Operation::ALL.iter().copied() {
        let expected = match operation {
            // Queries by the ID of bob's job.
            Operation::PostGetMetrics | Operation::PostAvailableMetrics => "200+",
            // Figures of the job's nodes while it ran.
            Operation::GetJobMetrics | Operation::PostGetJobMetrics => "200",
            _ => case(operation).2[2],
        };
        let got = answered(&site, operation, "");
        if operation.method() == Method::Get || expected == "200+" {
            assert_eq!(got, expected, "{operation:?}");
        } else {
            assert!(!got.starts_with("200") || expected.starts_with("200"), "{operation:?}");
        }
    }
    for path in [
        "/api/v1/jobs",
        "/api/v1/nodes",
        "/api/v1/series",
        "/api/v1/range?job=none",
        "/api/v1/last",
        "/api/v1/promotions",
        "/rest/jobs",
        "/rest/allocations",
        "/rest/metrics_by_job",
        "/rest/metrics_by_job_summary",
        "/rest/nodetime_per_job",
        "/rest/metrics",
    ] {
        let answer = send_as(&site, "", &format!("GET {path}"), b"");
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        for text in OF_BOB {
            assert!(!answer.text().contains(text), "{path} shows {text}: {}", answer.text());
        }
    }
    for path in ["/api/v1/jobs/slurm:2", "/api/v1/range?job=slurm:2", "/api/v1/last?job=slurm:2"] {
        assert_eq!(send_as(&site, "", &format!("GET {path}"), b"").status, 404, "{path}");
    }
    for table in ["jobs", "allocations", "promoted_metrics"] {
        assert_eq!(sql(&site, "", &format!("SELECT * FROM {table}")), [Value::Null; 0], "{table}");
    }
    let joined = "SELECT * FROM nodetime_per_job t JOIN jobs j ON j.job_id = t.job_id";
    assert_eq!(sql(&site, "", joined), [Value::Null; 0]);
    // Shares are of the reader's own jobs only.
    let own = sql(
        &site,
        "token-of-ann",
        "SELECT DISTINCT job_id FROM allocations WHERE cluster = 'slurm'",
    );
    assert_eq!(own, [serde_json::json!({"job_id": 1})]);
}

#[test]
fn without_the_setting_a_job_of_somebody_else_is_unknown() {
    for anonymous in ["none", "nodes"] {
        let site = site(&[("access.anonymous", anonymous)]);
        for token in ["token-of-guests", "token-of-ann"] {
            let answer = send_as(&site, token, "GET /rpc/get_metrics?job_id=2", b"");
            assert_eq!(answer.status, 404, "{anonymous}");
            let times = sql(&site, token, "SELECT * FROM nodetime_per_job WHERE job_id = 2");
            assert_eq!(times, [Value::Null; 0], "{anonymous}");
        }
    }
}
