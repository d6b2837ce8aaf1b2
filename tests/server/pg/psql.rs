//! psql: its commands, its errors, its copies, and what each caller may do.

use crate::common::programs::{self, get, output, until};
use crate::server::pg::{ALICE, BOB, GUEST, PUSHER, PgServer, READER};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

const ROW: &str = "INSERT INTO metrics(device_id, metric_id, value, labels) VALUES ('d', 'watts', 98.5, '{\"port\": \"1\"}')";

/// A statement that takes hours.
const ENDLESS: &str = "SELECT count(*) FROM pg_attribute a, pg_attribute b, pg_attribute c, pg_attribute d, pg_attribute e \
                       WHERE a.attnum + b.attnum + c.attnum + d.attnum + e.attnum < 0";

#[test]
fn psql_describes_the_tables_and_nothing_of_the_machine() {
    let dir = tempfile::tempdir().unwrap();
    let server = PgServer::start(dir.path(), &[]);
    for token in [READER, GUEST, ALICE] {
        for list in ["\\dt", "\\d", "\\d+"] {
            let (code, _, errors) = server.psql(Some(token), &["-c", list]);
            assert!(code == 0 && !errors.contains("ERROR"), "{list}: {errors}");
        }
        let (code, out, errors) = server.psql(Some(token), &["-At", "-c", "\\d metrics"]);
        assert_eq!(code, 0, "{errors}");
        let columns: Vec<&str> = out.lines().collect();
        assert_eq!(columns[0], "timestamp|timestamp with time zone||not null|", "{out}");
        assert!(columns.contains(&"labels|jsonb|||"), "{out}");
        assert!(columns.contains(&"value|double precision|||"), "{out}");
    }
    // The other lists are empty, as there is nothing of their kind.
    let forms =
        "a A b c C D dp E es et eu ew f F Fd Fp Ft g i l L m n o O p P rds Rp Rs s S t T u v x y z";
    for form in forms.split_whitespace() {
        let list =
            if form == "l" || form == "z" { format!("\\{form}") } else { format!("\\d{form}") };
        let (code, _, errors) = server.psql(Some(GUEST), &["-c", &list]);
        assert!(code == 0 && !errors.contains("ERROR"), "{list}: {errors}");
    }
    for list in [
        "\\dC+",
        "\\do+",
        "\\dF+",
        "\\dL+",
        "\\des+",
        "\\dt *.*",
        "\\d metrics",
        "\\dconfig",
        "\\lo_list",
    ] {
        // psql itself fails where it finds nothing to describe.
        let (code, _, errors) = server.psql(Some(GUEST), &["-c", list]);
        let is_found = code == 0 || errors.contains("Did not find any");
        assert!(is_found && !errors.contains("ERROR"), "{list}: {errors}");
    }
    // Forms that the engine has no functions for fail with a code of PostgreSQL.
    for list in ["\\dAc", "\\dAf", "\\dAo", "\\dAp", "\\dX", "\\dd"] {
        let (_, _, errors) = server.psql(Some(GUEST), &["-c", list]);
        assert!(["42883", "42601"].iter().any(|code| errors.contains(code)), "{list}: {errors}");
    }
    let (_, tables, _) = server.psql(Some(GUEST), &["-At", "-c", "\\dt"]);
    assert!(tables.contains("public|metrics|table|jobmeter"), "{tables}");
    // No text of any catalogue table names a user, a host, an address or a path of this machine.
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    for table in
        ["pg_settings", "pg_roles", "pg_database", "pg_class", "pg_namespace", "pg_tablespace"]
    {
        let rows = server.rows(Some(GUEST), &format!("SELECT * FROM {table}"));
        assert!(!rows.contains(host.trim()) && !rows.contains('/'), "{table}: {rows}");
    }
    assert_eq!(server.rows(Some(GUEST), "SELECT inet_server_addr()"), "");
    for unknown in ["pg_shadow", "pg_authid", "pg_stat_activity", "pg_hba_file_rules"] {
        assert_eq!(server.error(Some(GUEST), &format!("SELECT * FROM {unknown}")), "42P01");
    }
    for function in
        ["pg_read_file('/etc/passwd')", "pg_ls_dir('/')", "lo_import('/etc/passwd')", "pg_sleep(9)"]
    {
        assert_eq!(server.error(Some(GUEST), &format!("SELECT {function}")), "42883");
    }
}

#[test]
fn psql_copies_in_and_out() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = PgServer::start(dir.path(), &[]);
    let port = server.port.to_string();
    let feed = |copy: &str, rows: &[u8]| {
        let mut psql = Command::new("psql");
        psql.args(["-X", "-h", "127.0.0.1", "-p", &port, "-U", "x", "-d", "x", "-c", copy]);
        psql.env("PGPASSWORD", PUSHER).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = psql.stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(rows).unwrap();
        let done = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (text(done.stdout).trim().to_owned(), text(done.stderr))
    };
    let columns = "metrics(timestamp, device_id, metric_id, value, labels)";
    let now = server.rows(Some(READER), "SELECT now()");
    let text = format!("{now}\tt\twatts\t1.5\t{{\"a\": \"x;y\"}}\n\\N\tt\twatts\t\\N\t\\N\n");
    assert_eq!(
        feed(&format!("\\copy {columns} from stdin"), text.as_bytes()),
        ("COPY 2".to_owned(), String::new())
    );
    let csv = format!(
        "timestamp,device_id,metric_id,value,labels\n{now},c,watts,2.5,\"{{\"\"a\"\": \"\"b,c\"\"}}\"\n"
    );
    let copy = format!("\\copy {columns} from stdin with (format csv, header)");
    assert_eq!(feed(&copy, csv.as_bytes()).0, "COPY 1");
    // One bad row: nothing of the copy is stored, and the error has its number.
    let (_, errors) = feed(&copy, format!("{csv}{now},c,watts,much,\n").as_bytes());
    assert!(
        errors.contains("row 2: invalid input syntax for type double precision: \"much\""),
        "{errors}"
    );
    let (_, errors) = feed(&copy, b"a\nd\n");
    assert!(errors.contains("row 1: it has 1 fields; the columns are 5"), "{errors}");
    let count = "SELECT device_id, count(*) FROM metrics GROUP BY 1 ORDER BY 1";
    assert_eq!(server.rows(Some(READER), count), "c|1\nt|2");
    let out = |options: &str| {
        let copy = format!(
            "COPY (SELECT device_id, value, labels FROM metrics WHERE value < 10 ORDER BY 2) TO STDOUT {options}"
        );
        server.psql(Some(READER), &["-c", &copy]).1
    };
    assert_eq!(out(""), "t\t1.5\t{\"a\": \"x;y\"}\nc\t2.5\t{\"a\": \"b,c\"}\n");
    let csv = "device_id,value,labels\nt,1.5,\"{\"\"a\"\": \"\"x;y\"\"}\"\nc,2.5,\"{\"\"a\"\": \"\"b,c\"\"}\"\n";
    assert_eq!(out("WITH (FORMAT csv, HEADER)"), csv);
    let whole = "\\copy metrics to stdout with csv";
    assert_eq!(server.psql(Some(READER), &["-c", whole]).1.lines().count(), 3);
    // Success means durable.
    server.server.running.kill();
    let server = PgServer::start(dir.path(), &[]);
    assert_eq!(server.rows(Some(READER), count), "c|1\nt|2");
}

#[test]
fn each_caller_does_what_their_token_permits() {
    let dir = tempfile::tempdir().unwrap();
    let server = PgServer::start(dir.path(), &[]);
    assert_eq!(server.rows(Some(PUSHER), ROW), "INSERT 0 1");
    assert_eq!(server.error(Some(PUSHER), "SELECT 1"), "42501");
    for token in [READER, GUEST, ALICE] {
        assert_eq!(server.error(Some(token), ROW), "42501", "{token}");
        assert_eq!(server.error(Some(token), "COPY metrics FROM STDIN"), "42501");
        assert_eq!(server.rows(Some(token), "SELECT value FROM metrics"), "98.5");
    }
    for write in [
        "DELETE FROM metrics",
        "UPDATE metrics SET value = 0",
        "INSERT INTO jobs(job_id) VALUES (1)",
        "CREATE TABLE x (a int)",
        "DROP TABLE metrics",
        "TRUNCATE metrics",
        "SELECT 1 INTO x",
        "WITH x AS (DELETE FROM metrics RETURNING *) SELECT * FROM x",
        "COPY jobs FROM STDIN",
        "GRANT ALL ON metrics TO public",
    ] {
        let code = server.error(Some(READER), write);
        assert!(["25006", "42601"].contains(&&*code), "{write}: {code}");
    }
    for copy in [
        "COPY metrics FROM PROGRAM 'id'",
        "COPY metrics TO '/tmp/x'",
        "COPY metrics FROM '/etc/passwd'",
    ] {
        assert_eq!(server.error(Some(PUSHER), copy), "42501");
    }
    assert_eq!(server.error(Some("wrong-token"), "SELECT 1").len(), 5);
    let (_, metrics) = get(&server.server.url, "/metrics");
    assert!(metrics.contains("jobmeter_pg_unidentified_total 1"), "{metrics}");
    // On loopback and on the unix socket, a client with its login is the user that the kernel reports.
    if programs::root("each_caller_does_what_their_token_permits") {
        assert_eq!(server.rows(None, "SELECT current_user"), "root");
        let mut psql = Command::new("psql");
        psql.args([
            "-X",
            "-At",
            "-p",
            &server.port.to_string(),
            "-d",
            "x",
            "-c",
            "SELECT current_user",
            "-h",
        ]);
        let (code, out, errors) = output(psql.arg(dir.path()));
        assert_eq!((code, &*out), (0, "root\n"), "{errors}");
    }
}

#[test]
fn a_user_sees_only_their_own_jobs_in_every_table() {
    let dir = tempfile::tempdir().unwrap();
    let server = PgServer::start(dir.path(), &[]);
    if !programs::root("a_user_sees_only_their_own_jobs_in_every_table") {
        return;
    }
    for (id, uid) in [(7001, 54001), (7002, 54002)] {
        let start = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let job = serde_json::json!({
            "cluster": "site", "id": id, "start": start.as_secs() - 60, "uid": uid, "user": format!("u{uid}"),
            "nodes": [{"device": "n1"}], "name": format!("secret-{id}")
        });
        let (code, out, errors) = output(Command::new("curl").args([
            "-sS",
            "--fail-with-body",
            "-H",
            "Content-Type: application/json",
            "-d",
            &job.to_string(),
            &format!("{}/api/v1/jobs", server.server.url),
        ]));
        assert_eq!(code, 0, "{out}{errors}");
    }
    assert_eq!(server.rows(None, "SELECT job_id FROM jobs ORDER BY 1"), "7001\n7002");
    for (token, own, other) in [(ALICE, "7001", "7002"), (BOB, "7002", "7001")] {
        assert_eq!(server.rows(Some(token), "SELECT job_id FROM jobs"), own);
        let tables = server.rows(Some(token), "SELECT tablename FROM pg_tables");
        for table in tables.lines() {
            let rows = server.rows(Some(token), &format!("SELECT * FROM {table}"));
            assert!(!rows.contains(other), "{table}: {rows}");
        }
        let report = format!("SELECT count(*) FROM allocations WHERE job_id = {other}");
        assert_eq!(server.rows(Some(token), &report), "0");
    }
    assert_eq!(server.rows(Some(GUEST), "SELECT count(*) FROM jobs"), "0");
}

#[test]
fn a_statement_at_a_limit_has_its_code_and_the_session_continues() {
    let dir = tempfile::tempdir().unwrap();
    let flags =
        ["--query-time-max", "6s", "--query-rows-max", "1000", "--query-memory-bytes-max", "16MiB"];
    let server = PgServer::start(dir.path(), &flags);
    let rows = "SELECT 1 FROM pg_attribute a, pg_attribute b";
    let memory = "SELECT array_agg(a.attname || b.attname) FROM pg_attribute a, pg_attribute b, \
                  (VALUES (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12), (13), (14), (15), (16)) c, \
                  (VALUES (1), (2), (3), (4)) d";
    for (statement, code) in
        [(ENDLESS, "57014"), (rows, "54000"), (memory, "53200"), ("SELECT 1 +", "42601")]
    {
        let (_, out, errors) = server.psql(
            Some(READER),
            &["-At", "-v", "ON_ERROR_STOP=0", "-c", statement, "-c", "SELECT 'continues'"],
        );
        assert!(errors.contains(&format!("ERROR:  {code}: ")), "{statement}: {errors}");
        assert!(out.ends_with("continues\n"), "{statement}: {out}");
    }
}

#[test]
fn psql_cancels_its_statement_at_sigint() {
    let dir = tempfile::tempdir().unwrap();
    let server = PgServer::start(dir.path(), &[]);
    let mut psql = Command::new("psql");
    psql.args([
        "-X",
        "-At",
        "-h",
        "127.0.0.1",
        "-p",
        &server.port.to_string(),
        "-U",
        "t",
        "-d",
        "x",
    ]);
    psql.args(["-c", "SET statement_timeout = '50s'", "-c", ENDLESS]).env("PGPASSWORD", READER);
    let mut running = programs::Running::start(psql.stdout(Stdio::null()));
    until("a running statement", Duration::from_secs(10), || {
        let (_, metrics) = get(&server.server.url, "/metrics");
        metrics.contains("jobmeter_sql_statements 1").then_some(())
    });
    running.signal("INT");
    running.child.wait().unwrap();
    until("the reason", Duration::from_secs(5), || {
        running.errors().contains("canceling statement due to user request").then_some(())
    });
    until("no statement", Duration::from_secs(5), || {
        let (_, metrics) = get(&server.server.url, "/metrics");
        metrics.contains("jobmeter_sql_statements 0").then_some(())
    });
}
