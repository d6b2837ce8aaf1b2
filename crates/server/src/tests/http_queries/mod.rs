//! Queries over HTTP: parameters, formats, errors.

mod clients;
mod job_metrics;
mod rows;

use super::Site;
use super::ingest::{batch, frame, post, statuses};
use std::io::Read;
use wire::AckStatus;

const JSON: &str = "Host: localhost\r\nContent-Type: application/json\r\n";

#[test]
fn the_same_rows_by_every_way() {
    let site = Site::start();
    let stored = post(&site, "User-Agent: jobmeter-agent/9.8.7\r\n", &frame(&batch("n1", 0)));
    assert_eq!(statuses(&stored), [AckStatus::Stored]);
    let rows = site.get("/rpc/get_metrics?nodes=n1&metrics=load_1m");
    assert_eq!(
        (rows.status, rows.header("content-type")),
        (200, Some("application/json; charset=utf-8"))
    );
    let row = &rows.json()[0];
    assert_eq!((&row["device_id"], &row["value"]), (&"n1".into(), &0.5.into()));
    let body = br#"{"nodes": "n1", "metrics": "load_1m"}"#;
    let posted = site.send("POST /rpc/get_metrics", JSON, body);
    assert_eq!(posted.text(), rows.text());
    let csv =
        site.send("GET /rpc/get_metrics?nodes=n1", "Host: localhost\r\nAccept: text/csv\r\n", b"");
    assert!(csv.text().starts_with("timestamp,device_id,metric_id,value,labels\n"), "{csv:?}");
    assert!(csv.text().contains(",n1,load_1m,0.5,"), "{csv:?}");

    let last = site.get("/api/v1/last?device=n1").json();
    assert_eq!(last[0]["value"], 0.5);
    let range = site.get("/api/v1/range?device=n1&metric=load_1m").json();
    assert_eq!(range["series"][0]["values"][0], 0.5);
    assert_eq!(site.get("/api/v1/series?device=n1").json()[0]["metric"], "load_1m");
    assert_eq!(
        site.get("/api/v1/catalogue").json()[0]["help"],
        "Tasks running, waiting for a processor or in uninterruptible sleep, averaged over 1 minute."
    );
    let node = &site.get("/api/v1/nodes").json()[0];
    assert_eq!((&node["device"], &node["agent_version"]), (&"n1".into(), &"9.8.7".into()));
    let why = &site.get("/api/v1/explain?metric=load_1m").json()[0];
    assert_eq!((&why["help"], &why["samples"]), (&"Tasks running, waiting for a processor or in uninterruptible sleep, averaged over 1 minute.".into(), &1.into()), "{why}");
    assert_eq!((&why["senders"][0]["origin"], &why["source"]), (&"n1".into(), &().into()));
    let hour_ago = site.get("/api/v1/explain?metric=load_1m&start=2h&end=1h");
    assert_eq!(hour_ago.text(), "[]");
    let health = site.get("/api/v1/health").json();
    assert_eq!((&health["ready"], &health["nodes_alive"]), (&true.into(), &1.into()));
    let sql = br#"{"query": "SELECT device_id, value FROM metrics"}"#;
    let rows = site.send("POST /api/v1/sql", JSON, sql);
    assert_eq!(rows.json(), serde_json::json!([{"device_id": "n1", "value": 0.5}]));
    let available = site.get("/rpc/available_metrics").json();
    assert_eq!(available, serde_json::json!([{"device_id": "n1", "metric_id": "load_1m"}]));
}

#[test]
fn long_answers_are_compressed_for_clients_that_accept_it() {
    let site = Site::start();
    let plain = site.get("/metrics");
    assert_eq!(plain.header("content-encoding"), None);
    let headers = "Host: localhost\r\nAccept-Encoding: gzip\r\n";
    let answer = site.send("GET /metrics", headers, b"");
    assert_eq!(answer.header("content-encoding"), Some("gzip"), "{}", answer.head);
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(&answer.body[..]).read_to_string(&mut text).unwrap();
    let names = |text: &str| text.lines().filter(|line| line.starts_with('#')).count();
    assert_eq!(names(&text), names(plain.text()));
    assert!(answer.body.len() * 3 < text.len(), "{} of {}", answer.body.len(), text.len());
    let short = site.send("GET /api/v1/ready", headers, b"");
    assert_eq!(short.header("content-encoding"), None);
}

#[test]
fn errors_are_reported_as_by_postgrest() {
    let site = Site::start();
    for (path, status, code, hint) in [
        ("/rpc/get_metrics", 400, "P0001", None),
        ("/rpc/get_metrics?node=n1", 404, "PGRST202", Some("nodes")),
        ("/rpc/get_metric?nodes=n1", 404, "PGRST202", Some("get_metrics")),
        ("/rpc/get_metrics?nodes=n1&start_time=x", 400, "22007", None),
        ("/rpc/get_metrics?job_id=x", 400, "22P02", None),
        ("/rpc/get_metrics?nodes=a&nodes=b", 400, "PGRST102", None),
        ("/rpc/available_metrics?params=%7B%22devices%22:%22a%22%7D", 400, "P0001", None),
        ("/api/v1/node", 404, "PGRST125", Some("/api/v1/nodes")),
        ("/api/v1/jobs?sate=running", 400, "PGRST202", Some("state")),
        ("/api/v1/jobs?after=7", 400, "PGRST102", None),
        ("/api/v1/jobs?state=runing", 400, "PGRST102", Some("running")),
        ("/api/v1/jobs/99", 404, "P0002", None),
        ("/api/v1/jobs/x%2Fy", 400, "PGRST102", None),
        ("/api/v1/jobs/%ff", 400, "PGRST102", None),
        ("/api/v1/range?step=x", 400, "PGRST102", None),
        ("/api/v1/openapi.json?x=1", 400, "PGRST202", None),
        ("/api/v1/last?metric=load*", 400, "PGRST102", None),
        ("/api/v1/series?metric=load_1m,a%22b", 400, "PGRST102", None),
        ("/ui/indx.html", 404, "PGRST125", Some("/ui/index.html")),
    ] {
        let answer = site.get(path);
        assert_eq!(answer.status, status, "{path} {answer:?}");
        let problem: api::Problem = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(problem.code, code, "{path} {problem:?}");
        let got = problem.hint.clone().unwrap_or_default();
        assert!(hint.is_none_or(|hint| got.contains(hint)), "{path} {problem:?}");
    }
    assert_eq!(site.get("/rpc/get_metrics?devices=nobody").text(), "[]");
    assert_eq!(site.send("DELETE /api/v1/jobs", "Host: localhost\r\n", b"").status, 405);
}

#[test]
fn an_unknown_key_of_a_body_is_rejected_with_the_near_one() {
    let site = Site::start();
    let headers = format!("{JSON}Authorization: Bearer token-of-admins\r\n");
    for (line, body, key, near) in [
        ("jobs", r#"{"device": "n1", "nmae": "x"}"#, "nmae", "name"),
        ("jobs", r#"{"cluster": "site", "id": 7, "acount": "x"}"#, "acount", "account"),
        ("jobs", r#"{"cluster": "site", "id": 7, "requested": {"cpu": 1}}"#, "cpu", "cpus"),
        (
            "jobs",
            r#"{"cluster": "site", "id": 7, "nodes": [{"device": "n1", "cpu": 1}]}"#,
            "cpu",
            "cpus",
        ),
        ("jobs/site:7/end", r#"{"exitcode": 1}"#, "exitcode", "exit_code"),
        ("sql", r#"{"qery": "SELECT 1"}"#, "qery", "query"),
        ("settings", r#"{"node": "n1", "for_seconds": 60}"#, "node", "nodes"),
        (
            "settings",
            r#"{"nodes": "n1", "for_seconds": 60, "sources": {"cpu": {"enable": true}}}"#,
            "enable",
            "enabled",
        ),
        ("flushes", r#"{"node": "n1", "source": "cpu"}"#, "node", "nodes"),
        ("promotions", r#"{"metrics": "perf_.*"}"#, "metrics", "metric"),
        ("tokens", r#"{"scop": "read"}"#, "scop", "scope"),
        ("accounts/site:physics", r#"{"member": ["ann"]}"#, "member", "members"),
    ] {
        let answer = site.send(&format!("POST /api/v1/{line}"), &headers, body.as_bytes());
        assert_eq!(answer.status, 400, "{line} {body}: {answer:?}");
        let problem: api::Problem = serde_json::from_slice(&answer.body).unwrap();
        assert!(problem.message.contains(&format!("unknown field `{key}`")), "{problem:?}");
        assert_eq!(problem.hint.unwrap_or_default(), format!("did you mean `{near}`?"), "{body}");
    }
}

#[test]
fn a_statement_reads_and_does_nothing_else() {
    let site = Site::start();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("f.csv");
    std::fs::write(&file, "a\n1\n").unwrap();
    let path = file.display();
    for statement in [
        format!("COPY metrics TO '{path}'"),
        format!("CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '{path}'"),
        format!("SELECT * FROM '{path}'"),
        "SET datafusion.execution.batch_size = 1".to_owned(),
        "CREATE TABLE t AS SELECT 1".to_owned(),
        "DROP TABLE metrics".to_owned(),
        "INSERT INTO metrics VALUES (1)".to_owned(),
        "SELECT 1; SELECT 2".to_owned(),
        "EXPLAIN DROP TABLE metrics".to_owned(),
        format!("EXPLAIN ANALYZE COPY metrics TO '{path}'"),
        "nonsense".to_owned(),
    ] {
        let body = serde_json::json!({ "query": statement }).to_string();
        let answer = site.send("POST /api/v1/sql", JSON, body.as_bytes());
        assert!((400..500).contains(&answer.status), "{statement} {answer:?}");
        assert!(answer.json()["message"].is_string(), "{statement}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "a\n1\n");
}

#[test]
fn time_columns_are_named_and_in_the_zone_of_the_question() {
    let site = Site::start();
    let send = |zone: &str| {
        let query = "SELECT '2026-01-06T13:35:00+01:00' AS name, \
                     '2026-01-06 13:35'::timestamptz AS t, TIMESTAMP '2026-01-06' AS local";
        let body = serde_json::json!({"query": query, "time_zone": zone}).to_string();
        site.send("POST /api/v1/sql", JSON, body.as_bytes())
    };
    let answer = send("Asia/Tokyo");
    assert_eq!(answer.header("x-jobmeter-time-columns"), Some("1"), "{answer:?}");
    let want = serde_json::json!([{"name": "2026-01-06T13:35:00+01:00", "t": "2026-01-06T13:35:00+09:00",
        "local": "2026-01-06T00:00:00"}]);
    assert_eq!(answer.json(), want);
    let unknown = send("Mars/Olympus");
    assert_eq!((unknown.status, unknown.json()["code"].as_str()), (400, Some("22023")));
    let none = site.send("POST /api/v1/sql", JSON, br#"{"query": "SELECT 1"}"#);
    assert_eq!((none.status, none.header("x-jobmeter-time-columns")), (200, None));
}

#[test]
fn columns_have_short_names_each_once() {
    let site = Site::start();
    let query = "SELECT count(*), max(m.value), max(m.timestamp), 1 + 1, value_of.x AS y, sum(count(*)) OVER () \
                 FROM metrics m, (VALUES (1)) value_of(x) GROUP BY value_of.x ORDER BY 2";
    let body = serde_json::json!({ "query": query }).to_string();
    let headers = format!("{JSON}Accept: text/csv\r\n");
    let answer = site.send("POST /api/v1/sql", &headers, body.as_bytes());
    assert_eq!(answer.text(), "count,max,max_2,?column?,y,sum\n", "{answer:?}");
    let repeated = "SELECT max(value), max(value), NULL, NULL, max(timestamp)::date, max(timestamp)::time FROM metrics";
    let body = serde_json::json!({ "query": repeated }).to_string();
    let answer = site.send("POST /api/v1/sql", &headers, body.as_bytes());
    let columns = "max,max_2,?column?,?column?_2,max_3,max_4\n";
    assert!(answer.text().starts_with(columns), "{answer:?}");
    let body = serde_json::json!({ "query": "SELECT *, value, value FROM metrics" }).to_string();
    let answer = site.send("POST /api/v1/sql", &headers, body.as_bytes());
    assert!(answer.text().ends_with("cluster,value_2,value_3\n"), "{answer:?}");
    let zones = "SELECT timestamp, timestamp AT TIME ZONE 'Europe/Paris' FROM metrics";
    let body = serde_json::json!({ "query": zones }).to_string();
    let answer = site.send("POST /api/v1/sql", &headers, body.as_bytes());
    assert_eq!(answer.text(), "timestamp,timestamp_2\n");
    let nulls =
        serde_json::json!({ "query": "SELECT NULL AS a UNION ALL SELECT NULL" }).to_string();
    let answer = site.send("POST /api/v1/sql", &headers, nulls.as_bytes());
    assert_eq!(answer.text(), "a\n\n\n");
}

#[test]
fn a_cross_join_ends_at_a_limit() {
    let flags = [("query.time_max", "3s"), ("query.rows_max", "1000")];
    let site = Site::with(crate::Limits::default(), &flags);
    for seq in 0..200 {
        assert_eq!(statuses(&post(&site, "", &frame(&batch("n1", seq)))), [AckStatus::Stored]);
    }
    let join =
        "SELECT count(*) FROM metrics a, metrics b, metrics c, metrics d, metrics e, metrics f";
    let rows = "SELECT a.value FROM metrics a, metrics b, metrics c";
    for query in [join, rows] {
        let body = serde_json::json!({ "query": query }).to_string();
        let answer = site.send("POST /api/v1/sql", JSON, body.as_bytes());
        assert!((400..500).contains(&answer.status), "{query} {answer:?}");
    }
    assert_eq!(site.get("/api/v1/ready").status, 200);
}
