//! Hostile clients of PostgreSQL's protocol: each costs its own connection, and other clients are answered.

use crate::common::programs::{Server, get, output, until};
use crate::server::pg::{ALICE, BOB, GUEST, PUSHER, PgServer, READER};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(30);

/// A message of a kind.
pub(crate) fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
    [&[kind][..], &length, body].concat()
}

fn startup(user: &str) -> Vec<u8> {
    let body = format!("\0\u{3}\0\0user\0{user}\0database\0x\0\0");
    [&u32::try_from(body.len() + 4).unwrap().to_be_bytes()[..], body.as_bytes()].concat()
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.set_write_timeout(Some(LIMIT)).unwrap();
    stream
}

/// Reads until the server closes the connection.
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        // The server closed it before it had read everything.
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
    bytes
}

/// Reads messages until one of this kind, and returns all.
pub(crate) fn until_kind(stream: &mut TcpStream, kind: u8) -> Vec<(u8, Vec<u8>)> {
    let mut messages = Vec::new();
    loop {
        let mut head = [0; 5];
        stream.read_exact(&mut head).unwrap_or_else(|error| panic!("{error} after {messages:?}"));
        let length = u32::from_be_bytes(head[1..].try_into().unwrap());
        let mut body = vec![0; usize::try_from(length).unwrap() - 4];
        stream.read_exact(&mut body).unwrap();
        messages.push((head[0], body));
        if head[0] == kind {
            return messages;
        }
    }
}

/// Starts a session with a token. Returns it with its ID and key.
pub(crate) fn session(port: u16, token: &str) -> (TcpStream, Vec<u8>) {
    let mut stream = connect(port);
    stream.write_all(&startup("token")).unwrap();
    assert_eq!(until_kind(&mut stream, b'R')[0].1, 3_u32.to_be_bytes(), "a password as it is");
    stream.write_all(&message(b'p', format!("{token}\0").as_bytes())).unwrap();
    let messages = until_kind(&mut stream, b'Z');
    let key = messages.into_iter().find(|(kind, _)| *kind == b'K').unwrap().1;
    (stream, key)
}

/// The code of the first error in the answers to messages.
fn code_of(stream: &mut TcpStream, messages: &[Vec<u8>]) -> Option<String> {
    stream.write_all(&messages.concat()).unwrap();
    let answers = until_kind(stream, b'Z');
    let error = answers.into_iter().find(|(kind, _)| *kind == b'E')?.1;
    let error = String::from_utf8_lossy(&error).into_owned();
    Some(error.split("\0C").nth(1)?.chars().take(5).collect())
}

fn metric(server: &Server, line: &str) -> u64 {
    let (_, text) = get(&server.url, "/metrics");
    let value = text.lines().find_map(|one| one.strip_prefix(line)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {line} in {text}")).parse().unwrap()
}

fn works(server: &PgServer) {
    let began = Instant::now();
    assert_eq!(server.rows(Some(READER), "SELECT 'works'"), "works");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn garbage_and_half_messages_are_closed_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = PgServer::start(dir.path(), &[]);
    let huge = [0x7f, 0xff, 0xff, 0xff];
    for garbage in [
        &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
        &[0; 64],
        &[0xff; 64],
        &huge,
        b"\0\0\0\x08\0\x02\0\0",
        b"\0\0\0\x0c\0\x03\0\0user",
    ] {
        let mut stream = connect(server.port);
        stream.write_all(garbage).unwrap();
        let answer = rest(&mut stream);
        assert!(answer.first().is_none_or(|kind| *kind == b'E'), "{garbage:?}: {answer:?}");
    }
    assert!(metric(&server.server, "jobmeter_pg_malformed_total") >= 6);
    // After the authentication: unknown kinds, lengths beyond the limit or below 4, and counts beyond the message.
    for bad in [
        message(b'?', b""),
        [&b"Q"[..], &huge].concat(),
        b"Q\0\0\0\x03".to_vec(),
        b"Q\0\0\0\0".to_vec(),
        message(b'Q', b"no end"),
        message(b'B', b"\0\0\0\0\xff\xff"),
        message(b'P', b"\0SELECT 1\0\xff\xff"),
        message(b'D', b"X\0"),
        message(b'p', b"again\0"),
    ] {
        let (mut stream, _) = session(server.port, READER);
        stream.write_all(&bad).unwrap();
        let answer = rest(&mut stream);
        assert_eq!(answer.first(), Some(&b'E'), "{bad:?}");
    }
    assert!(metric(&server.server, "jobmeter_pg_limits_total{limit=\"message_bytes\"}") >= 1);
    // Half a message, and nothing more: the server waits for a time, without memory for what was announced.
    let (mut half, _) = session(server.port, READER);
    half.write_all(b"Q\0\x03\0\0SELECT").unwrap();
    let slow: Vec<_> = (0..20).map(|_| connect(server.port)).collect();
    works(&server);
    until("slow starts are closed", LIMIT, || {
        let closed = metric(&server.server, "jobmeter_pg_limits_total{limit=\"slow\"}");
        (closed >= 20).then_some(())
    });
    drop((half, slow));
    works(&server);
    assert_eq!(server.server.running.end(), 0, "{}", server.server.running.errors());
}

#[test]
fn many_connections_leave_others_theirs() {
    let dir = tempfile::tempdir().unwrap();
    let limits = ["--pg-connections-max", "40", "--pg-connections-per-user-max", "20"];
    let mut server = PgServer::start(dir.path(), &limits);
    let total = 10_000;
    for round in 0..total / 100 {
        let flood: Vec<_> =
            (0..100).map(|_| TcpStream::connect(("127.0.0.1", server.port))).collect();
        if round % 25 == 0 {
            let (code, _) = get(&server.server.url, "/api/v1/nodes");
            assert_eq!(code, 200, "HTTP is answered");
        }
        drop(flood);
    }
    until("every connection ended", LIMIT, || {
        (metric(&server.server, "jobmeter_pg_connections") == 0).then_some(())
    });
    let outcome = |outcome: &str| {
        metric(&server.server, &format!("jobmeter_pg_connections_total{{outcome=\"{outcome}\"}}"))
    };
    let counted = outcome("full") + outcome("full_for_peer") + outcome("gone");
    assert!(counted > 0, "the limits were reached");
    // The sessions of one token leave some to others.
    let mut sessions: Vec<_> = (0..19).map(|_| session(server.port, ALICE)).collect();
    let mut waiting = connect(server.port);
    waiting.write_all(&startup("token")).unwrap();
    assert_eq!(until_kind(&mut waiting, b'R')[0].1, 3_u32.to_be_bytes());
    sessions.clear();
    drop(waiting);
    works(&server);
    assert_eq!(server.server.running.end(), 0, "{}", server.server.running.errors());
}

#[test]
fn only_the_key_of_a_session_cancels_its_statement() {
    let dir = tempfile::tempdir().unwrap();
    let server = PgServer::start(dir.path(), &["--query-time-max", "20s"]);
    let endless = "SELECT count(*) FROM pg_attribute a, pg_attribute b, pg_attribute c, pg_attribute d, pg_attribute e \
                   WHERE a.attnum + b.attnum + c.attnum + d.attnum + e.attnum < 0\0";
    let (mut alice, key) = session(server.port, ALICE);
    let (_bob, own) = session(server.port, BOB);
    alice.write_all(&message(b'Q', endless.as_bytes())).unwrap();
    until("a running statement", Duration::from_secs(10), || {
        (metric(&server.server, "jobmeter_sql_statements") == 1).then_some(())
    });
    let cancel = |key: &[u8]| {
        let mut stream = connect(server.port);
        let request = [&16_u32.to_be_bytes()[..], &80_877_102_u32.to_be_bytes(), key].concat();
        stream.write_all(&request).unwrap();
        assert_eq!(rest(&mut stream), b"");
    };
    let guessed = [&key[..4], &own[4..]].concat();
    cancel(&guessed);
    cancel(&own);
    assert_eq!(metric(&server.server, "jobmeter_pg_wrong_keys_total"), 1);
    assert_eq!(metric(&server.server, "jobmeter_sql_statements"), 1, "it still runs");
    cancel(&key);
    let messages = until_kind(&mut alice, b'Z');
    let error = messages.into_iter().find(|(kind, _)| *kind == b'E').unwrap().1;
    let error = String::from_utf8_lossy(&error).into_owned();
    assert!(error.contains("C57014\0"), "{error}");
    alice.write_all(&message(b'Q', b"SELECT 1\0")).unwrap();
    assert!(until_kind(&mut alice, b'Z').iter().any(|(kind, _)| *kind == b'D'), "it continues");
    // A client that goes away leaves no statement behind.
    alice.write_all(&message(b'Q', endless.as_bytes())).unwrap();
    until("a running statement", Duration::from_secs(10), || {
        (metric(&server.server, "jobmeter_sql_statements") == 1).then_some(())
    });
    drop(alice);
    until("no statement", Duration::from_secs(10), || {
        (metric(&server.server, "jobmeter_sql_statements") == 0).then_some(())
    });
}

#[test]
fn a_session_has_a_limit_of_everything() {
    let dir = tempfile::tempdir().unwrap();
    let server = PgServer::start(dir.path(), &["--pg-idle-max", "3s"]);
    let (mut stream, _) = session(server.port, GUEST);
    let mut code =
        |messages: &[Vec<u8>]| code_of(&mut stream, &[messages, &[message(b'S', b"")]].concat());
    let parse = |name: usize| message(b'P', format!("s{name}\0SELECT 1\0\0\0").as_bytes());
    let bind = |name: usize| message(b'B', format!("p{name}\0s1\0\0\0\0\0\0\0").as_bytes());
    assert_eq!(code(&(0..256).map(parse).collect::<Vec<_>>()), None);
    assert_eq!(code(&[parse(256)]).as_deref(), Some("54000"));
    assert_eq!(code(&(0..64).map(bind).collect::<Vec<_>>()), None);
    assert_eq!(code(&(0..65).map(bind).collect::<Vec<_>>()).as_deref(), Some("54000"));
    assert_eq!(code(&[message(b'B', b"\0nix\0\0\0\0\0\0\0")]).as_deref(), Some("26000"));
    assert_eq!(code(&[message(b'E', b"nix\0\0\0\0\0")]).as_deref(), Some("34000"));
    // More than 16 384 tokens, and more than 64 KiB.
    let long = format!("\0SELECT 1 WHERE 1 IN ({})\0\0\0", vec!["1"; 9000].join(","));
    let unnamed = [message(b'P', long.as_bytes()), message(b'D', b"S\0")];
    assert_eq!(code(&unnamed).as_deref(), Some("54001"));
    let long = format!("\0SELECT '{}'\0\0\0", "x".repeat(70_000));
    let unnamed = [message(b'P', long.as_bytes()), message(b'D', b"S\0")];
    assert_eq!(code(&unnamed).as_deref(), Some("54000"));
    for (limit, count) in [("prepared_statements", 1), ("portals", 1)] {
        let name = format!("jobmeter_pg_limits_total{{limit=\"{limit}\"}}");
        assert_eq!(metric(&server.server, &name), count);
    }
    let end = String::from_utf8_lossy(&rest(&mut stream)).into_owned();
    assert!(end.contains("C57P05\0"), "the idle session ends: {end}");
}

#[test]
fn statements_that_contain_statements_end_with_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let server = PgServer::start(dir.path(), &[]);
    let (mut stream, _) = session(server.port, GUEST);
    let mut code = |messages: &[Vec<u8>]| code_of(&mut stream, messages);
    let parse = |name: &str, text: &str| message(b'P', format!("{name}\0{text}\0\0\0").as_bytes());
    let query = |text: &str| message(b'Q', format!("{text}\0").as_bytes());
    let sync = || message(b'S', b"");
    assert_eq!(code(&[parse("x", "EXECUTE x"), sync()]), None);
    assert_eq!(code(&[query("EXECUTE x")]).as_deref(), Some("0A000"));
    assert_eq!(code(&[parse("y", "EXECUTE z"), parse("z", "EXECUTE y"), sync()]), None);
    assert_eq!(code(&[query("EXECUTE y")]).as_deref(), Some("0A000"));
    for (nested, levels) in [("PREPARE a AS ", 4000), ("DECLARE c CURSOR FOR ", 3000)] {
        let statement = format!("{}SELECT 1", nested.repeat(levels));
        assert_eq!(code(&[query(&format!("SELECT 1; {statement}"))]).as_deref(), Some("42601"));
        assert!(code(&[query(&statement)]).is_some());
    }
    for long in ["PREPARE", "SAVEPOINT", "DECLARE"] {
        let name = "n".repeat(1000);
        let rest = if long == "SAVEPOINT" { "" } else { " AS SELECT 1" };
        assert_eq!(code(&[query(&format!("{long} {name}{rest}"))]).as_deref(), Some("42622"));
    }
    works(&server);
}

/// The errors in the answers to a query.
fn errors(stream: &mut TcpStream, text: &str) -> String {
    stream.write_all(&message(b'Q', format!("{text}\0").as_bytes())).unwrap();
    let errors = until_kind(stream, b'Z').into_iter().filter(|(kind, _)| *kind == b'E');
    errors.map(|(_, body)| String::from_utf8_lossy(&body).into_owned()).collect()
}

#[test]
fn no_depth_and_no_number_of_statements_in_a_message_costs_others() {
    let dir = tempfile::tempdir().unwrap();
    let server = PgServer::start(dir.path(), &[]);
    let (mut stream, _) = session(server.port, GUEST);
    for deep in [
        format!("{}SELECT 1", "EXPLAIN ".repeat(900)),
        format!("{}SELECT 1", "EXPLAIN VERBOSE ".repeat(900)),
        format!("{}x", "DESCRIBE ".repeat(1900)),
        format!("SELECT {}'1 day'", "INTERVAL ".repeat(1900)),
        format!("SELECT 1::{}int", "ARRAY<".repeat(900)),
        format!("{}SELECT 1", "WHILE true ".repeat(900)),
        format!("COPY ({}SELECT 1) TO STDOUT", "EXPLAIN ".repeat(900)),
        format!("PREPARE a AS {}SELECT 1", "EXPLAIN ".repeat(900)),
        format!("DECLARE c CURSOR FOR {}SELECT 1", "EXPLAIN ".repeat(900)),
    ] {
        let first = errors(&mut stream, &format!("SELECT 1/0; {deep}"));
        assert!(!first.is_empty(), "{deep}");
        errors(&mut stream, &deep);
    }
    works(&server);
    // Many statements are parsed beside the work for others.
    let many = format!("SELECT 1/0;{}", "SELECT 1;".repeat(28_000));
    stream.write_all(&message(b'Q', format!("{many}\0").as_bytes())).unwrap();
    let slowest = (0..20).map(|_| {
        let began = Instant::now();
        assert_eq!(get(&server.server.url, "/api/v1/ready").0, 200);
        began.elapsed()
    });
    let slowest = slowest.max().unwrap();
    until_kind(&mut stream, b'Z');
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
}

#[test]
fn a_description_of_a_statement_reads_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let server = PgServer::start(dir.path(), &[]);
    let (mut stream, _) = session(server.port, PUSHER);
    let row =
        "INSERT INTO metrics(device_id, metric_id, value) VALUES ('secret-device', 'm', 98.5)";
    assert_eq!(errors(&mut stream, row), "");
    let read = "SELECT string_agg(device_id, ';') FROM metrics";
    let mut texts = Vec::new();
    let calls = [
        format!("api.get_metrics(devices => 'n1', start_time => ({read})::timestamptz::text)"),
        format!("api.get_metrics(devices => ({read})::int::text)"),
        format!("api.get_metrics(job_id => ({read})::int)"),
    ];
    for (call, number) in calls.iter().zip(1..) {
        texts.push(errors(&mut stream, &format!("PREPARE p{number} AS SELECT * FROM {call}")));
        let parse = format!("s{number}\0SELECT * FROM {call}\0\0\0");
        let describe = format!("Ss{number}\0");
        let messages = [
            message(b'P', parse.as_bytes()),
            message(b'D', describe.as_bytes()),
            message(b'S', b""),
        ];
        stream.write_all(&messages.concat()).unwrap();
        let answers = until_kind(&mut stream, b'Z').into_iter();
        texts.extend(answers.map(|(_, body)| String::from_utf8_lossy(&body).into_owned()));
    }
    assert!(texts.iter().all(|text| !text.contains("secret-device")), "{texts:?}");
    assert!(errors(&mut stream, "EXECUTE p1").contains("C42501\0"));
}

#[test]
fn a_session_ends_with_its_token() {
    let dir = tempfile::tempdir().unwrap();
    let server = PgServer::start(dir.path(), &[]);
    let post = |path: &str, body: &str| -> serde_json::Value {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--fail-with-body", "-H", "Content-Type: application/json", "-d", body]);
        curl.args(["-H", &format!("Authorization: Bearer {ALICE}")]);
        let (code, out, errors) = output(curl.arg(format!("{}{path}", server.server.url)));
        assert_eq!(code, 0, "{out}{errors}");
        serde_json::from_str(&out).unwrap_or_default()
    };
    let made = post("/api/v1/tokens", r#"{"scope": "read"}"#);
    let token = made["token"].as_str().unwrap();
    let (mut open, _) = session(server.port, token);
    let (mut in_transaction, _) = session(server.port, token);
    assert_eq!(errors(&mut open, "SELECT count(*) FROM metrics"), "");
    assert_eq!(errors(&mut in_transaction, "BEGIN"), "");
    post(&format!("/api/v1/tokens/{}/revoke", made["info"]["id"]), "");
    for stream in [&mut open, &mut in_transaction] {
        stream.write_all(&message(b'Q', b"SELECT count(*) FROM metrics\0")).unwrap();
        let end = String::from_utf8_lossy(&rest(stream)).into_owned();
        assert!(end.contains("FATAL") && end.contains("C28000\0"), "{end}");
    }
    works(&server);
}

#[test]
fn rows_of_messages_that_fail_are_not_stored() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = PgServer::start(dir.path(), &[]);
    let (mut stream, _) = session(server.port, PUSHER);
    let mut code = |messages: &[Vec<u8>]| code_of(&mut stream, messages);
    let parse = |text: &str| message(b'P', format!("\0{text}\0\0\0").as_bytes());
    let bind = |statement: &str| message(b'B', format!("\0{statement}\0\0\0\0\0\0\0").as_bytes());
    let query = |text: &str| message(b'Q', format!("{text}\0").as_bytes());
    let (execute, sync) = (|| message(b'E', b"\0\0\0\0\0"), || message(b'S', b""));
    let insert = "INSERT INTO metrics(device_id, metric_id, value) VALUES ('d', 'm', 1)";
    let twice = [parse(insert), bind(""), execute(), execute(), sync()];
    assert_eq!(code(&twice).as_deref(), Some("55000"), "a portal runs once");
    assert_eq!(code(&[query("BEGIN")]), None);
    assert_eq!(code(&twice).as_deref(), Some("55000"));
    assert_eq!(code(&[query("COMMIT")]), None);
    let skipped = [bind("nix"), query(insert), sync()];
    assert_eq!(code(&skipped).as_deref(), Some("26000"), "messages are skipped until Sync");
    assert_eq!(code(&[parse("SELECT $1::text"), bind(""), sync()]).as_deref(), Some("08P01"));
    let mode = parse("SET TRANSACTION READ ONLY");
    let only_reads = [mode, bind(""), execute(), parse(insert), bind(""), execute(), sync()];
    assert_eq!(code(&only_reads).as_deref(), Some("25006"));
    assert_eq!(code(&[query("SET statement_timeout = '300ms'")]), None);
    let copy = || query("COPY metrics (device_id, metric_id, value) FROM STDIN");
    let row = || message(b'd', b"d\tm\t1\n");
    assert_eq!(code(&[copy(), row()]).as_deref(), Some("57014"), "COPY ends at its limit");
    assert_eq!(code(&[message(b'c', b""), query("RESET statement_timeout")]), None);
    assert_eq!(server.rows(Some(READER), "SELECT count(*) FROM metrics"), "0");
    stream.write_all(&[copy(), row()].concat()).unwrap();
    until_kind(&mut stream, b'G');
    assert_eq!(server.server.running.end(), 0, "a COPY under way delays no stop");
    let end = String::from_utf8_lossy(&rest(&mut stream)).into_owned();
    assert!(end.contains("C57P01\0"), "{end}");
}

#[test]
fn copies_of_one_token_take_turns() {
    let dir = tempfile::tempdir().unwrap();
    let server = PgServer::start(dir.path(), &["--push-rows-per-request-max", "65536"]);
    let row = format!("d\tm\t1\t{{\"text\": \"{}\"}}\n", "x".repeat(200));
    let piece = message(b'd', row.repeat((1 << 20) / row.len()).as_bytes());
    let writers: u8 = 4;
    let begun = std::sync::Barrier::new(writers.into());
    // Together they need more than the token's part of the memory, and each has begun before the first one ends.
    let copy = || {
        let (mut stream, _) = session(server.port, PUSHER);
        assert_eq!(errors(&mut stream, "BEGIN"), "");
        let copy = b"COPY metrics (device_id, metric_id, value, labels) FROM STDIN\0";
        stream.write_all(&message(b'Q', copy)).unwrap();
        until_kind(&mut stream, b'G');
        (0..4).for_each(|_| stream.write_all(&piece).unwrap());
        begun.wait();
        (0..2).for_each(|_| stream.write_all(&piece).unwrap());
        stream.write_all(&message(b'c', b"")).unwrap();
        let answers = until_kind(&mut stream, b'Z');
        let error = answers.iter().find(|(kind, _)| *kind == b'E');
        let error = error.map(|(_, body)| String::from_utf8_lossy(body).into_owned());
        assert_eq!(error, None);
        assert_eq!(errors(&mut stream, "ROLLBACK"), "");
    };
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..writers).map(|_| scope.spawn(copy)).collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
    works(&server);
}

#[test]
fn a_client_that_goes_away_leaves_no_statement_behind_its_messages() {
    let dir = tempfile::tempdir().unwrap();
    let server = PgServer::start(dir.path(), &["--query-time-max", "60s"]);
    let (mut stream, _) = session(server.port, READER);
    let endless = "SELECT count(*) FROM pg_attribute a, pg_attribute b, pg_attribute c, pg_attribute d, pg_attribute e \
                   WHERE a.attnum + b.attnum + c.attnum + d.attnum + e.attnum < 0\0";
    stream.write_all(&message(b'Q', endless.as_bytes())).unwrap();
    (0..1000).for_each(|_| stream.write_all(&message(b'S', b"")).unwrap());
    let running = |count| {
        until("a number of running statements", Duration::from_secs(10), || {
            (metric(&server.server, "jobmeter_sql_statements") == count).then_some(())
        });
    };
    running(1);
    drop(stream);
    running(0);
    works(&server);
}

#[test]
fn a_revoked_token_stores_nothing_more() {
    let dir = tempfile::tempdir().unwrap();
    let server = PgServer::start(dir.path(), &[]);
    let post = |path: &str, body: &str| -> serde_json::Value {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--fail-with-body", "-H", "Content-Type: application/json", "-d", body]);
        let (code, out, errors) = output(curl.arg(format!("{}{path}", server.server.url)));
        assert_eq!(code, 0, "{out}{errors}");
        serde_json::from_str(&out).unwrap_or_default()
    };
    let insert = "\0INSERT INTO metrics(device_id, metric_id, value) VALUES ('d', 'm', 1)\0\0\0";
    let copy = b"COPY metrics (device_id, metric_id, value) FROM STDIN\0";
    for (before, after) in [
        (
            [message(b'Q', copy), message(b'd', b"d\tm\t1\n")].concat(),
            [message(b'd', b"d\tm\t2\n"), message(b'c', b"")].concat(),
        ),
        (
            [
                message(b'P', insert.as_bytes()),
                message(b'B', b"\0\0\0\0\0\0\0\0"),
                message(b'E', b"\0\0\0\0\0"),
                message(b'H', b""),
            ]
            .concat(),
            message(b'S', b""),
        ),
    ] {
        let made = post("/api/v1/tokens", r#"{"scope": "push", "note": "temporary"}"#);
        let (mut stream, _) = session(server.port, made["token"].as_str().unwrap());
        stream.write_all(&before).unwrap();
        let begun = if before.first() == Some(&b'Q') { b'G' } else { b'C' };
        until_kind(&mut stream, begun);
        post(&format!("/api/v1/tokens/{}/revoke", made["info"]["id"]), "");
        stream.write_all(&after).unwrap();
        let end = String::from_utf8_lossy(&rest(&mut stream)).into_owned();
        assert!(end.contains("FATAL") && end.contains("C28000\0"), "{end}");
    }
    assert_eq!(server.rows(Some(READER), "SELECT count(*) FROM metrics"), "0");
}
