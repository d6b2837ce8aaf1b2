//! The log of slow queries.

use crate::*;

/// Returns the log lines of slow queries without the times: the kind, and the text after the seconds.
fn slow(messages: &str) -> Vec<(String, String)> {
    let lines = messages
        .lines()
        .filter_map(|line| line.split_once(" warn server::queries::slow_query_log: "));
    let line = |text: &str| {
        let (kind, rest) = text.strip_prefix("slow query: ").unwrap().split_once(": ").unwrap();
        let (seconds, rest) = rest.split_once(" s, ").unwrap();
        assert!(seconds.parse::<f64>().unwrap() < 60.0, "{text}");
        (kind.to_owned(), rest.to_owned())
    };
    lines.map(|(_, text)| line(text)).collect()
}

#[test]
fn slow_queries_are_logged_with_their_cost() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = dir.path().join("tokens");
    std::fs::write(&tokens, "admin a-token-of-admins\n").unwrap();
    std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o600)).unwrap();
    let tokens = ["--token-file", tokens.to_str().unwrap()];
    let program =
        Program::start(&dir.path().join("data"), &[&["--query-slow", "1us"], &tokens[..]].concat());
    // All in one second, so that they are one step.
    let from = now().0.div_euclid(Timestamp::SECOND) - 1;
    for seq in 0..3 {
        let at = Timestamp::from_seconds(from).plus(i64::try_from(seq).unwrap() * 1000);
        assert_eq!(program.send("POST /v1/batches", BATCHES, &frame(seq, at)).0, 200);
    }
    let sql = |query: &str, headers: &str| {
        let body = serde_json::json!({ "query": query }).to_string();
        program.send("POST /api/v1/sql", &format!("{JSON}{headers}"), body.as_bytes()).0
    };
    let token = "Authorization: Bearer a-token-of-admins\r\n";
    assert_eq!(sql("SELECT\n* FROM metrics -- \u{1b}[31m", token), 200);
    // Lines that differ only in digits are logged once and counted.
    for device in ["n1", "n2", "n3"] {
        let question =
            format!("/rpc/get_metrics?nodes={device}&start_time=2026-01-06&end_time=now");
        assert_eq!(program.send(&format!("GET {question}"), "", b"").0, 200);
    }
    assert_eq!(program.send("GET /api/v1/range?device=n1&step=1", "", b"").0, 200);
    let (_, begun) = program.send("POST /api/v1/jobs", JSON, br#"{"device": "n1"}"#);
    let begun: serde_json::Value = serde_json::from_slice(&begun).unwrap();
    assert_eq!(program.send(&format!("GET /api/v1/jobs/local:{}", begun["id"]), "", b"").0, 200);
    assert_eq!(sql("SELECT 1 / 0", ""), 400);
    // A malformed query does not count as slow.
    assert_eq!(program.send("GET /api/v1/range?divice=n1", "", b"").0, 400);
    let (_, page) = program.send("GET /metrics", "", b"");
    assert!(page.escape_ascii().to_string().contains("\\njobmeter_slow_queries_total 7\\n"));
    let (code, messages) = program.end();
    assert_eq!(code, Some(0), "{messages}");
    let slow = slow(&messages);
    let root = format!("uid {}", rustix::process::geteuid().as_raw());
    let want = [
        (
            "sql of a token of `admin` (sha256:8bbe86e0)".to_owned(),
            "done, rows returned 3, rows read 0, bytes read 0: SELECT\\n* FROM metrics -- \
             \\u{1b}[31m",
        ),
        (
            format!("get_metrics of {root}"),
            "done, rows returned 3, rows read 0, bytes read 0: nodes=n1 start_time=2026-01-06 \
             end_time=now",
        ),
        (
            format!("range of {root}"),
            "done, rows returned 1, rows read 0, bytes read 0: device=n1&step=1",
        ),
        (
            format!("job report of {root}"),
            "done, rows returned 1, rows read 0, bytes read 0: local:1",
        ),
        (
            format!("sql of {root}"),
            "rejected, rows returned 0, rows read 0, bytes read 0: SELECT 1 / 0",
        ),
    ];
    let want: Vec<_> = want.into_iter().map(|(who, rest)| (who, rest.to_owned())).collect();
    assert_eq!(slow, want, "{messages}");
    assert!(!messages.contains("a-token-of-admins"), "{messages}");
}

#[test]
fn how_a_slow_question_ended_and_what_was_read() {
    let dir = tempfile::tempdir().unwrap();
    let limits = ["--query-slow", "200ms", "--query-time-max", "1s", "--block-every", "1s"];
    let program = Program::start(dir.path(), &limits);
    let from = now().plus(-3600 * 1_000_000);
    for seq in 0..4 {
        let at = from.plus(i64::try_from(seq).unwrap() * 1_000_000);
        assert_eq!(program.send("POST /v1/batches", BATCHES, &noise(seq, at)).0, 200);
    }
    let blocks = |program: &Program| {
        let (_, page) = program.send("GET /metrics", "", b"");
        let page = String::from_utf8(page).unwrap();
        page.lines().any(|line| line.starts_with("jobmeter_store_block_samples 4000"))
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while !blocks(&program) {
        assert!(Instant::now() < deadline, "no block in a minute");
        std::thread::sleep(Duration::from_millis(100));
    }
    let join = br#"{"query": "SELECT count(*) FROM metrics a, metrics b, metrics c"}"#;
    let (status, _) = program.send("POST /api/v1/sql", JSON, join);
    assert!(status == 408 || status == 413, "{status}");
    // A client disconnects during its query.
    let mut stream = TcpStream::connect(&program.address).unwrap();
    let other = br#"{"query": "SELECT count(*) AS gone FROM metrics a, metrics b, metrics c"}"#;
    stream.write_all(&request("POST /api/v1/sql", JSON, other)).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    drop(stream);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(program.json("/api/v1/ready")["ready"], true);
    let (code, messages) = program.end();
    assert_eq!(code, Some(0), "{messages}");
    let slow = slow(&messages);
    let [(_, limit), (_, gone)] = &slow[..] else { panic!("{messages}") };
    assert!(
        limit.starts_with("limit, rows returned 0, rows read ") && limit.ends_with("metrics c"),
        "{messages}"
    );
    assert!(gone.starts_with("client disconnected, rows returned 0, rows read "), "{messages}");
    let read = |line: &str| -> u64 {
        let (_, rest) = line.split_once("rows read ").unwrap();
        rest.split_once(',').unwrap().0.parse().unwrap()
    };
    assert!(read(limit) >= 4000, "{messages}");
}
