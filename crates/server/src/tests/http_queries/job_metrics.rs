//! `get_job_metrics` over HTTP and in SQL.

use crate::tests::access_matrix::{self, send_as};
use crate::tests::{Answer, Site, until};
use serde_json::json;

/// Line 3 is no statement about the job; line 7 fails when it runs, line 8 has two rows.
const REQUESTS: &str = "# of the site
SELECT max(value) AS load FROM jobmetrics WHERE metric_id = 'load_1m'
SELECT count(*) AS jobs FROM jobs
SELECT string_agg(DISTINCT metric_id, ' ' ORDER BY metric_id) AS \"the metrics\", count(DISTINCT device_id) AS nodes FROM jobmetrics
SELECT value AS none FROM jobmetrics WHERE metric_id = 'nothing'

SELECT sum(metric_id::int) AS broken FROM jobmetrics
SELECT metric_id AS several FROM jobmetrics
SELECT labels - '_cluster' AS labels FROM jobmetrics WHERE labels ? '_job_id' LIMIT 1
";

fn site() -> (Site, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("requests");
    std::fs::write(&file, REQUESTS).unwrap();
    let flags = [("access.nodes", "own"), ("jobmetrics_requests", file.to_str().unwrap())];
    (access_matrix::site(&flags), dir)
}

fn get(site: &Site, token: &str, path: &str) -> Answer {
    send_as(site, token, &format!("GET /rpc/get_job_metrics{path}"), b"")
}

fn sql(site: &Site, token: &str, text: &str) -> Answer {
    let body = json!({"query": text}).to_string();
    send_as(site, token, "POST /api/v1/sql", body.as_bytes())
}

#[test]
fn a_job_has_the_values_of_the_sites_statements() {
    let (site, _dir) = site();
    let answer = get(&site, "token-of-bob", "?job_id=2");
    let object = r#"{"load":1,"the metrics":"bobs_count load_1m","nodes":2,"none":null,"broken":null,"several":null,"labels":{"_job_id": "2"}}"#;
    assert_eq!((answer.status, answer.text()), (200, object));
    let warning = answer.header("x-jobmeter-warning").unwrap();
    assert!(
        warning.contains("line 7 (`broken`)") && warning.contains("line 8 (`several`)"),
        "{warning}"
    );
    assert!(!warning.contains("line 2"), "{warning}");
    for path in ["?job_id=slurm:2", "?job_id=2&cluster=slurm"] {
        assert_eq!(get(&site, "token-of-bob", path).text(), object, "{path}");
    }
    let posted = send_as(&site, "token-of-bob", "POST /rpc/get_job_metrics", br#"{"job_id": 2}"#);
    assert_eq!(posted.text(), object);
    let headers = "Host: localhost\r\nAuthorization: Bearer token-of-bob\r\nAccept: text/csv\r\n";
    let csv = site.send("GET /rpc/get_job_metrics?job_id=2", headers, b"");
    let want = "load,the metrics,nodes,none,broken,several,labels\n1,bobs_count load_1m,2,,,,\"{\"\"_job_id\"\": \"\"2\"\"}\"\n";
    assert_eq!((csv.header("content-type"), csv.text()), (Some("text/csv; charset=utf-8"), want));
    let rows = sql(&site, "token-of-bob", "SELECT * FROM api.get_job_metrics(job_id => 2)").json();
    assert_eq!(rows[0]["get_job_metrics"], object, "{rows}");
    assert!(rows[0]["warnings"].as_str().unwrap().starts_with("[\"line 7"), "{rows}");
    let text = "SELECT (get_job_metrics->>'load')::float8 * 2 AS twice FROM get_job_metrics(2, cluster => 'slurm')";
    assert_eq!(sql(&site, "token-of-bob", text).json(), json!([{"twice": 2}]));
}

#[test]
fn two_users_of_a_node_read_what_is_theirs() {
    let (site, _dir) = site();
    let metrics =
        |token, job| get(&site, token, &format!("?job_id={job}")).json()["the metrics"].clone();
    assert_eq!(metrics("token-of-ann", 1), "anns_count load_1m");
    assert_eq!(metrics("token-of-bob", 2), "bobs_count load_1m");
    for (token, path, status, code) in [
        ("token-of-ann", "?job_id=2", 404, "P0002"),
        ("token-of-bob", "?job_id=slurm:1", 404, "P0002"),
        ("token-of-ann", "?job_id=99", 404, "P0002"),
        ("token-of-ann", "?job_id=x", 400, "22P02"),
        ("token-of-ann", "?job_id=1'); DROP TABLE jobs", 400, "22P02"),
        ("token-of-ann", "?job_id=", 400, "22P02"),
        ("token-of-ann", "", 404, "PGRST202"),
        ("token-of-ann", "?job=1", 404, "PGRST202"),
        ("token-of-ann", "?job_id=1&cluster=oar", 404, "P0002"),
        ("", "?job_id=1", 401, "PGRST301"),
    ] {
        let path = path.replace(' ', "%20").replace('\'', "%27");
        let answer = get(&site, token, &path);
        assert_eq!(answer.status, status, "{token} {path}: {answer:?}");
        assert!(token.is_empty() || answer.json()["code"] == code, "{token} {path}: {answer:?}");
    }
    for text in [
        "SELECT * FROM get_job_metrics(job_id => 2)",
        "SELECT 1 FROM get_job_metrics(job_id => 1) AS a, get_job_metrics(job_id => 2) AS b",
        "SELECT 1 FROM jobs WHERE EXISTS (SELECT 1 FROM get_job_metrics(2))",
    ] {
        assert_eq!(sql(&site, "token-of-ann", text).status, 404, "{text}");
    }
    for text in ["SELECT * FROM jobmetrics", "SELECT * FROM get_job_metrics()"] {
        assert_eq!(sql(&site, "token-of-ann", text).status, 400, "{text}");
    }
    let one = |nth: usize| format!("get_job_metrics(job_id => 1) AS j{nth}");
    let three = (0..3).map(one).collect::<Vec<_>>().join(", ");
    let answer = sql(&site, "token-of-ann", &format!("SELECT 1 FROM {three}"));
    assert_eq!((answer.status, answer.text().contains("16 at most")), (400, true), "{answer:?}");
}

#[test]
fn without_a_file_and_with_an_empty_one() {
    let flags = [("access.nodes", "own")];
    let site = access_matrix::site(&flags);
    let answer = get(&site, "token-of-ann", "?job_id=1");
    let names: Vec<String> = answer.json().as_object().unwrap().keys().cloned().collect();
    assert_eq!((names.len(), answer.header("x-jobmeter-warning")), (6, None), "{answer:?}");
    assert!(answer.text().starts_with(r#"{"job_energy_watthour":null,"#), "{answer:?}");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("requests");
    std::fs::write(&file, "# nothing\n").unwrap();
    let path = file.to_str().unwrap();
    let flags = [flags[0], ("jobmetrics_requests", path)];
    let site = access_matrix::site(&flags);
    assert_eq!(get(&site, "token-of-ann", "?job_id=1").text(), "{}");
    assert_eq!(get(&site, "token-of-ann", "?job_id=2").status, 404);
    // A reload reads the file again; without it, the server keeps its statements.
    std::fs::write(&file, "SELECT 1 AS one\nSELECT 2 AS two FROM jobs\n").unwrap();
    let config = Site::config(&site.dir, &flags);
    let server = site.server.as_ref().unwrap();
    site.runtime.block_on(server.reload(&config)).unwrap();
    assert_eq!(get(&site, "token-of-ann", "?job_id=1").text(), r#"{"one":1}"#);
    assert_eq!(get(&site, "token-of-ann", "?job_id=2").status, 404, "also without its rows");
    std::fs::remove_file(&file).unwrap();
    let error = site.runtime.block_on(server.reload(&config)).unwrap_err();
    assert!(error.to_string().contains(path), "{error}");
    assert_eq!(get(&site, "token-of-ann", "?job_id=1").text(), r#"{"one":1}"#);
}

/// Lines that are slow, large, or have values of other kinds.
const HEAVY: &str = "SELECT max(value) AS load FROM jobmetrics WHERE metric_id = 'load_1m'
SELECT count(*) AS endless FROM jobmetrics a, jobmetrics b, (SELECT unnest(string_to_array(concat_ws(',', a, a, a, a, a, a, a, a), ',')) AS x FROM (SELECT '1,2,3,4,5,6,7,8,9' AS a) AS t) c, (SELECT unnest(string_to_array('1,2,3', ',')) AS x) d
SELECT value / (value - value) AS zero FROM jobmetrics WHERE metric_id = 'load_1m' LIMIT 1
SELECT regexp_match('a', '(') AS pattern
SELECT max(valeu) AS typo FROM jobmetrics
SELECT nothing(value) AS unknown FROM jobmetrics LIMIT 1
SELECT repeat('x', 2000000000) AS \"long\"
SELECT 'NaN'::float8 AS nan, true AS truth, NULL AS nothing, 'a\"b' AS text
SELECT interval '1 day 2 hours' AS day, ARRAY[1, 2] AS list, 0.1 + 0.2 AS sum
SELECT labels::text AS labels, (max(timestamp) - max(timestamp))::text AS none FROM jobmetrics GROUP BY labels LIMIT 1
SELECT count(*) FILTER (WHERE metric_id = 'load_1m') AS \"last \\ é\" FROM jobmetrics
";

#[test]
fn lines_that_fail_leave_the_others_their_values() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("requests");
    std::fs::write(&file, HEAVY).unwrap();
    let flags = [("query.time_max", "5s"), ("jobmetrics_requests", file.to_str().unwrap())];
    let site = access_matrix::site(&flags);
    let answer = get(&site, "token-of-ann", "?job_id=1");
    let found = answer.json();
    assert_eq!(answer.status, 200, "{answer:?}");
    for null in ["zero", "pattern", "typo", "unknown", "long", "nothing"] {
        assert!(found[null].is_null() && found.get(null).is_some(), "{null}: {found}");
    }
    assert_eq!((&found["load"], &found["last \\ é"]), (&json!(1), &json!(1)), "{found}");
    assert_eq!(
        (&found["nan"], &found["truth"], &found["text"]),
        (&json!("NaN"), &json!(true), &json!("a\"b"))
    );
    // The texts are those of PostgreSQL: `to_json` of an interval, and of labels as a text.
    assert_eq!((&found["day"], &found["none"]), (&json!("1 day 02:00:00"), &json!("00:00:00")));
    assert!(found["labels"].as_str().is_some_and(|text| text.starts_with('{')), "{found}");
    let warning = answer.header("x-jobmeter-warning").unwrap();
    assert!(warning.contains("division by zero"), "{warning}");
    for line in ["line 3 ", "line 4 ", "line 5 ", "line 6 ", "line 7 "] {
        assert!(warning.contains(line), "{line}: {warning}");
    }
    assert!(warning.is_ascii() && !warning.contains("line 8 "), "{warning}");
    until("nothing runs any more", || site.metric("jobmeter_sql_statements") <= 0.0);
}
