//! The limits of SQL in a running server: error messages, counters, and that all resources are released.

use super::access_matrix::send_as;
use super::ingest::{batch, frame, post, statuses};
use super::{Answer, Site, request, until};
use crate::Limits;
use std::io::{Read, Write};
use wire::AckStatus;

const JSON: &str = "Host: localhost\r\nContent-Type: application/json\r\n";
/// Runs until it is stopped, with little memory.
const ENDLESS: &str =
    "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t";

/// A server with 50 samples.
fn site(limits: Limits, flags: &[(&str, &str)]) -> Site {
    let site = Site::with(limits, flags);
    for seq in 0..50 {
        assert_eq!(statuses(&post(&site, "", &frame(&batch("n1", seq)))), [AckStatus::Stored]);
    }
    site
}

fn sql(site: &Site, query: &str) -> Answer {
    let body = serde_json::json!({ "query": query }).to_string();
    site.send("POST /api/v1/sql", JSON, body.as_bytes())
}

/// Runs a statement that exceeds a limit, which is counted. Afterwards other statements are answered.
fn ends_at(site: &Site, query: &str, status: u16, code: &str, words: &str, limit: &str) {
    let answer = sql(site, query);
    let problem: api::Problem = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!((answer.status, &*problem.code), (status, code), "{problem:?}");
    assert!(problem.message.contains(words), "{problem:?}");
    let counted = format!("jobmeter_sql_limits_total{{limit=\"{limit}\"}}");
    assert_eq!(site.metric(&counted), 1.0, "{limit}");
    lives_on(site);
}

fn lives_on(site: &Site) {
    let held = ["jobmeter_sql_statements", "jobmeter_sql_statements_waiting"];
    let nothing = |name: &str| site.metric(name) == 0.0;
    until("all is given back", || {
        held.iter().all(|name| nothing(name)) && nothing("jobmeter_sql_memory_bytes")
    });
    assert_eq!(sql(site, "SELECT count(*) AS n FROM metrics").text(), r#"[{"n":50}]"#);
    assert_eq!(site.get("/api/v1/ready").status, 200);
}

#[test]
fn a_statement_that_needs_too_much_memory() {
    let site = site(Limits::default(), &[("query.memory_bytes_max", "1MiB")]);
    let sorted = "SELECT a.value, b.timestamp FROM metrics a, metrics b, metrics c ORDER BY 2, 1";
    ends_at(&site, sorted, 413, "53200", "more than 1 MiB of memory; choose a shorter", "memory");
}

#[test]
fn one_users_requests_under_way_are_bounded_and_others_go_on() {
    let dir = tempfile::tempdir().unwrap();
    super::secret(&dir.path().join("tokens"), "user:1000 token-of-ann\nuser:2000 token-of-bob\n");
    let limits = Limits { requests_per_user_max: 1, ..Limits::default() };
    let site = Site::within(dir, limits, &[("query.time_max", "3s")]);
    let me = |token| send_as(&site, token, "GET /api/v1/me", b"").status;
    let body = serde_json::json!({ "query": ENDLESS }).to_string();
    std::thread::scope(|scope| {
        let statement =
            scope.spawn(|| send_as(&site, "token-of-ann", "POST /api/v1/sql", body.as_bytes()));
        until("the statement runs", || site.metric("jobmeter_sql_statements") == 1.0);
        assert_eq!((me("token-of-ann"), me("token-of-bob")), (429, 200));
        assert_eq!(statement.join().unwrap().status, 413);
    });
    assert_eq!(me("token-of-ann"), 200);
}

/// A user requests large answers and does not read them. Each would stay in memory for as long as the user likes.
#[test]
fn large_answers_that_nobody_reads_count_for_their_user_until_they_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = "user:1000 token-of-ann\nuser:2000 token-of-bob\nagent token-of-agents\nadmin token-of-admins\n";
    super::secret(&dir.path().join("tokens"), tokens);
    let limits = Limits { unsent_bytes_per_user_max: 16 << 20, ..Limits::default() };
    let site = Site::within(dir, limits, &[("promotions.per_user_max", "1000")]);
    let start = crate::now().plus(-500_000_000);
    for seq in 0..5_u32 {
        let at = |n: u32| start.plus(i64::from(seq * 60_000 + n) * 1000);
        let mut many = batch("n1", u64::from(seq));
        many.ticks = (0..60_000).map(|n| model::Tick { at: at(n), samples: 1 }).collect();
        many.index = vec![0; 60_000];
        many.values = (0..60_000).map(|n| f64::from(n) / 7.0).collect();
        assert_eq!(statuses(&post(&site, "", &frame(&many))), [AckStatus::Stored]);
    }
    let range = "GET /api/v1/range?device=n1&metric=load_1m&step=0&start=20m";
    let whole = send_as(&site, "token-of-bob", range, b"");
    assert!((200, 8 << 20) < (whole.status, whole.body.len()), "{}", whole.body.len());
    // More than the sockets of both sides buffer.
    let headers = "Host: localhost\r\nAuthorization: Bearer token-of-ann\r\n";
    let ask = || {
        let mut stream = site.connect();
        stream.write_all(&request(range, headers, b"")).unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        (stream, String::from_utf8(head.to_vec()).unwrap())
    };
    let (first, head) = ask();
    assert_eq!(head, "HTTP/1.0 200");
    assert_eq!(ask().1, "HTTP/1.0 429", "the first one is not read");
    assert_eq!(send_as(&site, "token-of-ann", "GET /api/v1/me", b"").status, 200);
    assert_eq!(send_as(&site, "token-of-bob", range, b"").status, 200);
    // A large answer to a change: without it, ann would promote again.
    let nodes = serde_json::json!([{"device": "node[10001-20000]"}]);
    let start = crate::now().seconds().floor() - 10.0;
    let job = serde_json::json!({"cluster": "site", "id": 7, "uid": 1000, "start": start, "nodes": nodes});
    let job = send_as(&site, "token-of-admins", "POST /api/v1/jobs", job.to_string().as_bytes());
    assert_eq!(job.status, 200, "{job:?}");
    let promotion = br#"{"metric": "perf_.*", "job": "site:7"}"#;
    let promoted = send_as(&site, "token-of-ann", "POST /api/v1/promotions", promotion);
    assert_eq!(promoted.status, 200, "{}", promoted.text());
    assert!(promoted.body.len() > 64 << 10, "{}", promoted.body.len());
    drop(first);
    until("it is released", || ask().1 == "HTTP/1.0 200");
}

/// A prologue in a loop, with a token of the token file.
#[test]
fn one_token_of_a_scheduler_takes_neither_requests_nor_audit_entries_of_another() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = "jobs:slurm token-of-slurm\njobs:slurm token-of-other\njobs token-of-oar\n\
                  admin token-of-admins\n";
    super::secret(&dir.path().join("tokens"), tokens);
    let limits = Limits { requests_per_user_max: 1, ..Limits::default() };
    let site = Site::within(dir, limits, &[]);
    let report = |token: &str, cluster: &str, id: u32| {
        let body = serde_json::json!({"cluster": cluster, "id": id, "state": "waiting"});
        send_as(&site, token, "POST /api/v1/jobs", body.to_string().as_bytes()).status
    };
    assert!((1..=205).all(|id| report("token-of-slurm", "slurm", id) == 200));
    assert_eq!(
        (report("token-of-other", "slurm", 300), report("token-of-oar", "oar", 1)),
        (200, 200)
    );
    let headers = format!("{JSON}Authorization: Bearer token-of-slurm\r\n");
    let whole = request("POST /api/v1/jobs", &headers, b"{ }");
    let mut held = site.connect();
    held.write_all(&whole[..whole.len() - 1]).unwrap();
    until("it is under way", || site.metric("jobmeter_http_requests_under_way") >= 2.0);
    assert_eq!(report("token-of-slurm", "slurm", 1), 429);
    assert_eq!(
        (report("token-of-other", "slurm", 301), report("token-of-oar", "oar", 2)),
        (200, 200)
    );
    drop(held);
    let dir = site.stop();
    let text = std::fs::read_to_string(dir.path().join("data/audit-users.log")).unwrap();
    let actors = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let actors: Vec<String> = actors.map(|line| line["actor"].to_string()).collect();
    let named: std::collections::BTreeSet<_> = actors.iter().collect();
    assert_eq!(named.len(), 3, "{named:?}");
    let of = |scope: &str| actors.iter().filter(|actor| actor.contains(scope)).count();
    assert_eq!((of("`jobs:slurm`"), of("`jobs`")), (200 + 1 + 2, 2), "{named:?}");
}

#[test]
fn a_statement_that_takes_too_long() {
    let site = site(Limits::default(), &[("query.time_max", "1s")]);
    ends_at(&site, ENDLESS, 413, "57014", "more than 1 s; choose a shorter", "time");
}

#[test]
fn an_answer_of_too_many_rows() {
    let site = site(Limits::default(), &[("query.rows_max", "1000")]);
    let many = "SELECT a.value FROM metrics a, metrics b";
    ends_at(&site, many, 413, "54000", "more than 1000 rows; add LIMIT", "rows");
    let first = sql(&site, &format!("{many} LIMIT 1000"));
    assert_eq!(first.json().as_array().unwrap().len(), 1000);
}

/// Rows that were sent cannot be withdrawn: the response is aborted, and the limit is counted all the same.
#[test]
fn an_answer_that_meets_its_limit_late() {
    let site = site(Limits::default(), &[("query.rows_max", "20000")]);
    let wide = "SELECT a.timestamp, b.timestamp AS t, c.value FROM metrics a, metrics b, metrics c";
    let answer = sql(&site, wide);
    assert_eq!(answer.status, 200);
    assert!(serde_json::from_slice::<serde_json::Value>(&answer.body).is_err(), "it looks whole");
    assert!(
        answer
            .text()
            .ends_with("\nerror: the result has more than 20000 rows; add LIMIT, or select less\n")
    );
    let body = serde_json::json!({ "query": wide }).to_string();
    let csv =
        site.send("POST /api/v1/sql", &format!("{JSON}Accept: text/csv\r\n"), body.as_bytes());
    assert!(
        csv.text()
            .ends_with("\nerror: the result has more than 20000 rows; add LIMIT, or select less\n")
    );
    until("it is counted", || site.metric("jobmeter_sql_limits_total{limit=\"rows\"}") == 2.0);
    lives_on(&site);
}

#[test]
fn a_statement_that_is_too_long() {
    let site = site(Limits::default(), &[]);
    let long = format!("SELECT 1 -- {}", "x".repeat(70_000));
    ends_at(&site, &long, 413, "54000", "65536 at most", "length");
}

#[test]
fn more_statements_than_may_run_wait_and_more_than_may_wait_are_rejected() {
    let limits = Limits { waiting_questions_max: 1, ..Limits::default() };
    let site = site(limits, &[("query.concurrency_max", "1")]);
    let mut first = site.connect();
    let body = serde_json::json!({ "query": ENDLESS }).to_string();
    first.write_all(&request("POST /api/v1/sql", JSON, body.as_bytes())).unwrap();
    until("the first runs", || site.metric("jobmeter_sql_statements") == 1.0);
    std::thread::scope(|scope| {
        let second = scope.spawn(|| sql(&site, "SELECT 2 AS n"));
        until("the second waits", || site.metric("jobmeter_sql_statements_waiting") == 1.0);
        let third = sql(&site, "SELECT 3 AS n");
        assert_eq!((third.status, third.header("retry-after")), (429, Some("2")));
        let problem: api::Problem = serde_json::from_slice(&third.body).unwrap();
        assert!(problem.message.contains("too many statements: 1 are running"), "{problem:?}");
        // A client that disconnects ends its statement, and the waiting statement runs.
        drop(first);
        assert_eq!(second.join().unwrap().text(), r#"[{"n":2}]"#);
    });
    assert_eq!(site.metric("jobmeter_sql_limits_total{limit=\"statements\"}"), 1.0);
    assert_eq!(site.metric("jobmeter_refusals_total{reason=\"busy\"}"), 1.0);
    lives_on(&site);
}

/// Queries of running jobs fail beyond 100 000 allocations.
#[test]
fn one_tokens_running_jobs_are_bounded_and_ended_ones_are_not_counted() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = "jobs:slurm token-of-slurm\njobs:oar token-of-oar\nadmin token-of-admins\n";
    super::secret(&dir.path().join("tokens"), tokens);
    let site = Site::within(dir, Limits::default(), &[]);
    let start = crate::now().seconds().floor() - 10.0;
    let report = |token: &str, cluster: &str, id: u32, nodes: &str| {
        let body = serde_json::json!({"cluster": cluster, "id": id, "start": start,
                                      "nodes": [{"device": nodes}]});
        send_as(&site, token, "POST /api/v1/jobs", body.to_string().as_bytes())
    };
    assert_eq!(report("token-of-slurm", "slurm", 1, "n[1-24999]").status, 200);
    assert_eq!(report("token-of-slurm", "slurm", 2, "n1").status, 200);
    for (id, nodes) in [(3, "n2"), (2, "n[1-2]"), (4, "n[1-65536]")] {
        let over = report("token-of-slurm", "slurm", id, nodes);
        assert_eq!(over.status, 429, "{over:?}");
        assert!(over.text().contains("25000 running allocations"), "{over:?}");
    }
    // Times ahead of the clock, which administrators may report.
    let ahead =
        serde_json::json!({"cluster": "slurm", "id": 9, "submit": start + 3600.0}).to_string();
    for (token, status) in [("token-of-slurm", 400), ("token-of-admins", 200)] {
        let answer = send_as(&site, token, "POST /api/v1/jobs", ahead.as_bytes());
        assert_eq!(answer.status, status, "{answer:?}");
    }
    // A change that adds none, other clusters, and an administrator.
    assert_eq!(report("token-of-slurm", "slurm", 2, "n3").status, 200);
    assert_eq!(report("token-of-oar", "oar", 1, "n1").status, 200);
    assert_eq!(report("token-of-admins", "slurm", 5, "n1").status, 200);
    let end = send_as(&site, "token-of-slurm", "POST /api/v1/jobs/slurm:1/end", b"{}");
    assert_eq!(end.status, 200, "{end:?}");
    assert_eq!(report("token-of-slurm", "slurm", 3, "n2").status, 200);
    let limited = send_as(&site, "token-of-admins", "GET /metrics", b"");
    let line = "jobmeter_job_records_total{outcome=\"limited\"} 3\n";
    assert!(limited.text().contains(line), "{}", limited.text());
}
