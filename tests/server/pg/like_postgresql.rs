//! Statements have the rows, tags and codes that a real PostgreSQL gives.

use crate::common::database::{Database, psql};
use crate::common::programs::output;
use crate::server::pg::{PUSHER, PgServer, READER};
use std::path::Path;
use std::process::Command;

/// Kwollect's table.
const TABLE: &str = "CREATE TABLE metrics (timestamp timestamptz DEFAULT now(), device_id text, metric_id text, \
                     value double precision, labels jsonb)";

/// Whose answer it is.
enum At<'a> {
    Server(&'a PgServer, &'a str),
    PostgreSql(&'a Path),
}

/// What psql prints for commands: rows and tags, and the codes of errors.
fn answer(at: &At<'_>, commands: &[&str]) -> (String, Vec<String>) {
    let mut psql = Command::new("psql");
    psql.args(["-X", "-A", "-t", "-w", "-v", "VERBOSITY=verbose", "-v", "ON_ERROR_STOP=0"]);
    match at {
        At::Server(server, token) => {
            psql.args(["-h", "127.0.0.1", "-p", &server.port.to_string(), "-d", "x"]);
            psql.args(["-U", "token"]).env("PGPASSWORD", token);
        }
        At::PostgreSql(folder) => {
            psql.arg("-h").arg(folder).args(["-d", "postgres", "-U", "postgres"]);
        }
    }
    for command in commands {
        psql.args(["-c", command]);
    }
    psql.env("PGOPTIONS", "-c TimeZone=UTC");
    if let At::Server(..) = at {
        psql.env_remove("PGOPTIONS").env("PGTZ", "UTC");
    }
    let (_, out, errors) = output(psql.env("LC_ALL", "C.UTF-8"));
    let code = |line: &str| {
        let (_, rest) = line.split_once("ERROR:  ")?;
        Some(rest.chars().take(5).collect())
    };
    (out, errors.lines().filter_map(code).collect())
}

struct Both {
    dir: tempfile::TempDir,
    server: PgServer,
    _database: Database,
}

impl Both {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o711)).unwrap();
        let folder = dir.path().join("database");
        std::fs::create_dir(&folder).unwrap();
        let database = Database::start(&folder);
        psql(&folder, TABLE).unwrap();
        let server = PgServer::start(dir.path(), &[]);
        Self { dir, server, _database: database }
    }

    /// Fails if the answers to commands differ.
    fn compare(&self, token: &str, commands: &[&str]) -> (String, Vec<String>) {
        let ours = answer(&At::Server(&self.server, token), commands);
        let theirs = answer(&At::PostgreSql(&self.dir.path().join("database")), commands);
        assert_eq!(ours, theirs, "{commands:?}");
        ours
    }
}

#[test]
fn values_and_codes_are_those_of_postgresql() {
    let both = Both::start();
    for statement in [
        "SELECT 0.1 + 0.2, 1.50, 3.0 * 2, -1.5, 2.50 - 1, 1.5::numeric(10,2)",
        "SELECT (interval '1 day 2 hours')::text, interval '1 day' || '', interval '14 months'",
        "SELECT '2026-01-06 13:35:00.25+00'::timestamptz::text, '2026-01-06 13:35:00'::timestamp::text",
        "SELECT ARRAY[1,2]::text, ARRAY['a','b c'], '{\"a b\",c,NULL,\"\"}'::text[], '{1,2}'::int[]",
        "SELECT NULL::float8 / 0, chr(65)",
        "SELECT x / y FROM (VALUES (1.0::float8, 0.0::float8), (1, 2)) t(x, y) WHERE y <> 0 AND x / y > 0",
        "SELECT CASE WHEN y <> 0 THEN x / y END FROM (VALUES (1.0::float8, 0.0::float8), (1, 2)) t(x, y)",
        "SELECT 1/0",
        "SELECT 1.0/0",
        "SELECT 1::float8/0",
        "SELECT 1%0",
        "SELECT 'x'::int",
        "SELECT 'x'::float8",
        "SELECT 'x'::numeric",
        "SELECT 'x'::bool",
        "SELECT 'x'::timestamptz",
        "SELECT 'x'::date",
        "SELECT 'x'::interval",
        "SELECT chr(0)",
        "SELECT 'a' || chr(0)",
        "SELECT chr(-1)",
        "SELECT chr(1114112)",
        "SELECT '{1,2'::int[]",
        "SELECT '{a}'::int[]",
        "SELECT '{\"a'::text[]",
        "SELECT 99999999999::int",
        "SELECT sqrt(-1)",
        "SELECT power(0,-1)",
        "SELECT '{\"a\":'::jsonb",
        "SELECT decode('zz','hex')",
        "SELECT make_date(2026,13,1)",
        "SELECT date_trunc('nix', now())",
        "SELECT 'a' ~ '('",
        "SELECT 1 LIMIT -1",
        "SELECT nosuch(1)",
        "SELECT nosuch",
        "SELECT * FROM nosuch",
        "SAVEPOINT a",
        "ROLLBACK TO a",
        "RELEASE a",
        "EXECUTE nosuch",
        "DEALLOCATE nosuch",
    ] {
        both.compare(READER, &[statement]);
    }
    // PostgreSQL reads bytes here, and the server reports that it has none.
    assert_eq!(both.server.error(Some(READER), "SELECT '\\x'::bytea"), "0A000");
    // In a transaction that only reads, PostgreSQL gives these codes.
    let read_only = "SET default_transaction_read_only = on";
    for write in [
        "WITH x AS (DELETE FROM metrics RETURNING *) SELECT * FROM x",
        "WITH x AS (SELECT 1) DELETE FROM metrics",
        "DELETE FROM metrics",
        "SELECT 1 AS a INTO x",
        "SELECT value FROM metrics FOR UPDATE",
    ] {
        let (out, codes) = both.compare(READER, &[read_only, write]);
        assert_eq!((&*out, &*codes), ("SET\n", &["25006".to_owned()][..]), "{write}");
    }
}

#[test]
fn a_message_of_several_statements_is_one_transaction() {
    let both = Both::start();
    let insert = |value: &str| {
        format!("INSERT INTO metrics(device_id, metric_id, value) VALUES ('d', 'm', {value})")
    };
    for message in [
        format!("{}; SELEC 1", insert("1")),
        format!("{}; SELECT 'x", insert("1")),
        format!("{}; SELECT 1 +", insert("1")),
        format!("{}; {}", insert("1"), insert("'much'")),
        format!("{}; COPY (SELEC) TO STDOUT", insert("1")),
        format!("{}; DECLARE c CURSOR WITH HOLD FOR SELEC", insert("1")),
        format!("BEGIN; {}; ROLLBACK", insert("1")),
        format!("{}; ROLLBACK", insert("1")),
    ] {
        both.compare(PUSHER, &[&message]);
    }
    let stored = |want: &str| {
        let rows = "SELECT value FROM metrics ORDER BY 1";
        assert_eq!(both.compare(READER, &[rows]).0.replace('\n', " ").trim(), want);
    };
    stored("");
    both.compare(PUSHER, &[&format!("{}; {}", insert("2"), insert("3"))]);
    both.compare(
        PUSHER,
        &[&format!("{}; BEGIN; {}; COMMIT; {}", insert("4"), insert("5"), insert("6"))],
    );
    stored("2 3 4 5 6");
}

#[test]
fn a_wrong_row_fails_at_its_statement_and_a_savepoint_saves_the_others() {
    let both = Both::start();
    let insert = |value: &str| {
        format!(
            "INSERT INTO metrics(device_id, metric_id, value, labels) VALUES ('d', 'm', {value})"
        )
    };
    let (good, bad) = (insert("1, NULL"), insert("'much', NULL"));
    let (json, second, third) = (insert("1, '{'"), insert("2, '{}'"), insert("3, '{}'"));
    let (_, codes) = both.compare(
        PUSHER,
        &[
            "BEGIN",
            &good,
            "SAVEPOINT a",
            &bad,
            &second,
            "ROLLBACK TO a",
            &second,
            "SAVEPOINT b",
            &json,
            "ROLLBACK TO SAVEPOINT b",
            "RELEASE a",
            &third,
            "COMMIT",
        ],
    );
    assert_eq!(codes, ["22P02", "25P02", "22P02"]);
    both.compare(PUSHER, &["BEGIN", &good, &bad, "COMMIT"]);
    both.compare(PUSHER, &["BEGIN", &good, "ROLLBACK"]);
    let rows = "SELECT value FROM metrics ORDER BY 1";
    assert_eq!(both.compare(READER, &[rows]).0, "1\n2\n3\n");
}

#[test]
fn transactions_that_only_read_write_nothing() {
    let both = Both::start();
    let insert = "INSERT INTO metrics(device_id, metric_id, value) VALUES ('d', 'm', 1)";
    for commands in [
        &["BEGIN READ ONLY", insert, "COMMIT"][..],
        &["BEGIN", "SET TRANSACTION READ ONLY", insert, "COMMIT"],
        &["SET default_transaction_read_only = on", insert, "BEGIN", insert, "ROLLBACK"],
        &["SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", insert],
        &["BEGIN", "BEGIN READ ONLY", insert, "COMMIT"],
        &[&format!("SET TRANSACTION READ ONLY; {insert}")],
        &[&format!("SET transaction_read_only = 'TRU'; {insert}")],
    ] {
        let (_, codes) = both.compare(PUSHER, commands);
        assert!(codes.iter().all(|code| code == "25006") && !codes.is_empty(), "{codes:?}");
    }
    let off = "SET transaction_read_only = of";
    for commands in [
        &["BEGIN READ ONLY", "SELECT 1", "SET TRANSACTION READ WRITE", "ROLLBACK"][..],
        &["BEGIN READ ONLY", "SELECT 1", "BEGIN READ WRITE", "ROLLBACK"],
        &["BEGIN READ ONLY", "SAVEPOINT a", off, "ROLLBACK TO a", "SHOW transaction_read_only"],
        &["SET default_transaction_read_only = o", "SHOW default_transaction_read_only"],
        &["COMMIT READ ONLY"],
    ] {
        assert_ne!(both.compare(READER, commands).1, [""; 0], "{commands:?}");
    }
    both.compare(PUSHER, &["BEGIN READ ONLY", off, "SHOW transaction_read_only", "ROLLBACK"]);
    both.compare(PUSHER, &["BEGIN READ WRITE", insert, "COMMIT AND NO CHAIN"]);
    let chained = answer(
        &At::Server(&both.server, PUSHER),
        &["BEGIN", insert, "COMMIT AND CHAIN", insert, "ROLLBACK"],
    );
    assert_eq!(chained.1, ["0A000", "25P02"], "nothing is stored that the client rolls back");
    assert_eq!(both.compare(READER, &["SELECT count(*) FROM metrics"]).0, "1\n");
}

#[test]
fn settings_end_with_their_transaction() {
    let both = Both::start();
    let (paris, show) = ("SET timezone = 'Europe/Paris'", "SHOW timezone");
    let local = "SET LOCAL timezone = 'Europe/Oslo'";
    for (commands, want) in [
        (&["BEGIN", paris, "ROLLBACK", show][..], "UTC"),
        (&["BEGIN", paris, "SELEC", "COMMIT", show], "UTC"),
        (&["BEGIN", paris, local, show, "COMMIT", show], "Europe/Paris"),
        (&["BEGIN", paris, "SAVEPOINT a", local, "ROLLBACK TO a", show, "COMMIT"], "Europe/Paris"),
        (
            &[
                "BEGIN",
                paris,
                "SAVEPOINT a",
                "SET timezone TO DEFAULT",
                "RELEASE a",
                "COMMIT",
                show,
            ],
            "UTC",
        ),
        (&[&format!("{local}; {show}"), show], "UTC"),
        (&[&format!("{paris}; SELECT 1/0"), show], "UTC"),
        (&[local, show], "UTC"),
    ] {
        let (out, _) = both.compare(READER, commands);
        let zone = out.lines().rfind(|line| line.contains('U') || line.contains('/'));
        assert_eq!(zone, Some(want), "{commands:?}");
    }
}

#[test]
fn values_of_inserts_are_those_of_postgresql() {
    let both = Both::start();
    let insert = |device: &str, value: &str| {
        format!("INSERT INTO metrics(device_id, metric_id, value) VALUES ({device}, 'm', {value})")
    };
    for value in [
        "-+7",
        "-+-4",
        "- -5",
        "2.7::integer",
        "-2.5::int",
        "2.5::float8::int",
        "16777217::real",
        "1.55::numeric(3,1)",
        "int '7'",
        "'2.5'::int",
        "'x'::nope",
        "'1'::text",
        "3e9::int",
        "1e39::real",
        "true",
        "now()",
        "0x10",
    ] {
        both.compare(PUSHER, &[&insert("'d'", value)]);
    }
    for value in ["1e-400", "2e-324", "-1e999", "'1e-400'", "5e-324"] {
        both.compare(PUSHER, &[&insert("'range'", value)]);
    }
    for device in
        ["'ab'::varchar(1)", "2.7::int", "007::text", "'ab'::nope", "1e3", "0005", "'t'::bool"]
    {
        both.compare(PUSHER, &[&insert(device, "1")]);
    }
    // A row has the defaults of the columns without a value.
    for rows in [
        "VALUES (now(), 'few', 'm', 4)",
        "VALUES ('2026-01-06', 'few', 'm', 2), ('2026-01-06', 'few', 'm', 3)",
        "VALUES (now(), 'few'), (now(), 'few', 'm')",
        "VALUES (now(), 'few', 'm', 1, NULL, 1)",
        "(device_id, value) VALUES ('few')",
    ] {
        both.compare(PUSHER, &[&format!("INSERT INTO metrics {rows}")]);
    }
    let rows = "SELECT device_id, value FROM metrics ORDER BY 1, 2";
    let stored = both.compare(READER, &[rows]).0;
    assert_eq!(stored.lines().count(), 19, "{stored}");
    assert_eq!(both.server.error(Some(PUSHER), &insert("now()::date", "1")), "0A000");
}

#[test]
fn tags_modes_and_tables_are_those_of_postgresql() {
    let both = Both::start();
    let insert = "INSERT INTO metrics(timestamp, device_id, metric_id, value) VALUES ('2026-01-06', 'd', 'm', 1), \
                  ('2026-01-07', 'c', 'n', 3)";
    both.compare(PUSHER, &[insert]);
    let (show, default) = ("SHOW transaction_isolation", "SHOW default_transaction_isolation");
    for commands in [
        &["START TRANSACTION", "COMMIT", "RESET timezone", "RESET ALL"][..],
        &["START TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY", show, "COMMIT", show],
        &["BEGIN ISOLATION LEVEL REPEATABLE READ", show, "ROLLBACK", show],
        &["BEGIN", "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED", show, "ROLLBACK"],
        &["BEGIN", "SELECT 1", "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", "ROLLBACK"],
        &["SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE", show, default],
        &["SET default_transaction_isolation TO 'repeatable read'", show],
        &["SET default_transaction_isolation TO 'strong'"],
        &["BEGIN ISOLATION LEVEL STRONG"],
        &["START"],
        &["SELECT device_id FROM metrics ORDER BY value::text, timestamp"],
        &[
            "SELECT value::text, metric_id::text, value::text FROM metrics ORDER BY value, metric_id",
        ],
        &["SELECT timestamp::text, value::text FROM metrics ORDER BY timestamp"],
        &["SELECT value::text AS text, device_id::text AS text FROM metrics ORDER BY timestamp"],
        &["SELECT (value * -1)::int::text AS timestamp, value FROM metrics ORDER BY timestamp"],
        &["SELECT value::int::text, value FROM metrics m ORDER BY m.timestamp DESC"],
        &["SELECT device_id::text, count(*) FROM metrics GROUP BY device_id ORDER BY device_id"],
    ] {
        both.compare(READER, commands);
    }
    let columns = "SELECT timestamp, device_id, metric_id, value, labels";
    let table = both.server.rows(Some(READER), "TABLE metrics ORDER BY 1 LIMIT 1");
    let want =
        both.server.rows(Some(READER), &format!("{columns} FROM metrics ORDER BY 1 LIMIT 1"));
    assert!(table.starts_with(&want) && !want.is_empty(), "{table}");
    both.server.rows(Some(READER), "PREPARE p AS TABLE metrics; EXECUTE p");
    assert_eq!(both.server.error(Some(READER), "TABLE nosuch"), "42P01");
}

#[test]
fn cursors_go_forward_as_in_postgresql() {
    let both = Both::start();
    let declare =
        "DECLARE c NO SCROLL CURSOR FOR SELECT x FROM (VALUES (1), (2), (3), (4), (5), (6)) t(x)";
    for fetches in [
        &["FETCH 0 c", "FETCH 2 c", "FETCH FORWARD 2 IN c", "FETCH ALL c", "FETCH c", "FETCH 0 c"]
            [..],
        &["FETCH FORWARD ALL FROM c", "MOVE 0 c"],
        &["MOVE 2 IN c", "MOVE 0 c", "FETCH NEXT FROM c", "MOVE ALL c", "FETCH RELATIVE 1 c"],
        &["FETCH FIRST c", "FETCH FIRST c"],
        &["FETCH 2 c", "FETCH 0 c"],
        &["FETCH ABSOLUTE 0 c", "FETCH ABSOLUTE 3 c", "FETCH ABSOLUTE 4 c", "FETCH ABSOLUTE 9 c"],
        &["FETCH 4 c", "FETCH ABSOLUTE 3 c"],
        &["FETCH 2 c", "FETCH ABSOLUTE 0 c"],
        &["FETCH RELATIVE 2 c", "FETCH RELATIVE 2 c", "FETCH RELATIVE 0 c"],
        &["FETCH 6 c", "FETCH ABSOLUTE 7 c", "FETCH ABSOLUTE 8 c"],
        &["FETCH PRIOR c"],
        &["FETCH BACKWARD 1 c"],
        &["FETCH BACKWARD -2 c", "FETCH BACKWARD ALL c"],
        &["FETCH -1 c"],
        &["FETCH FORWARD -1 c"],
        &["FETCH LAST c"],
        &["FETCH ABSOLUTE -1 c"],
        &["FETCH RELATIVE -1 c"],
        &["MOVE BACKWARD c"],
        &["FETCH 99999999999 c"],
        &["FETCH nosuch"],
    ] {
        both.compare(READER, &[&["BEGIN", declare], fetches, &["COMMIT"]].concat());
    }
    let hold = "DECLARE h CURSOR WITH HOLD FOR SELECT x FROM (VALUES (1), (2)) t(x)";
    let fetch = "FETCH h";
    for commands in [
        &["BEGIN", hold, "COMMIT", fetch, "BEGIN", fetch, "ROLLBACK", "FETCH ALL h"][..],
        &["BEGIN", hold, fetch, "ROLLBACK", fetch],
        &["BEGIN", hold, "SELECT 1/0", "COMMIT", fetch],
        &[hold, fetch, "CLOSE h", fetch],
        &[&format!("{hold}; SELECT 1/0"), fetch],
    ] {
        both.compare(READER, commands);
    }
}

#[test]
fn lines_of_copies_end_as_in_postgresql() {
    let both = Both::start();
    let file = both.dir.path().join("rows");
    for (nth, (text, options)) in [
        // Each row ends with the separator of columns and a metric.
        ("a|\nb|\n", ""),
        ("a|\r\nb|\r\n", ""),
        ("a|\rb|\r", ""),
        ("a|\r\nb|", "csv"),
        ("a|\rb|", "csv"),
        ("a|\nb|\r\n", ""),
        ("a|\r\nb|\n", "csv"),
        ("a|\nb|\rc|\n", "csv"),
        ("a|\n\\.\nb|\n", "csv"),
        ("\"a\\\"b\"|\n", "csv escape '\\'"),
    ]
    .into_iter()
    .enumerate()
    {
        let end = if options.starts_with("csv") { ",m" } else { "\tm" };
        std::fs::write(&file, text.replace('|', end)).unwrap();
        let copy =
            format!("\\copy metrics (device_id, metric_id) from '{}' {options}", file.display());
        let (_, codes) = both.compare(PUSHER, &[&copy]);
        assert_eq!(codes.is_empty(), !(5..8).contains(&nth), "{text:?}: {codes:?}");
    }
    both.compare(READER, &["SELECT device_id FROM metrics ORDER BY 1"]);
}

#[test]
fn statements_are_prepared_and_executed_by_name() {
    let both = Both::start();
    let (_, codes) = both.compare(
        READER,
        &[
            "PREPARE p (int) AS SELECT $1 + 1 AS sum",
            "EXECUTE p(41)",
            "EXECUTE p(1, 2)",
            "EXECUTE p",
            "PREPARE p AS SELECT 1",
            "PREPARE q AS SELECT nosuch FROM metrics",
            "PREPARE q AS SELEC",
            "EXECUTE q",
            "PREPARE t (text, double precision, text[]) AS SELECT $1 || 'x', $2 * 2, $3",
            "EXECUTE t('it''s', 1.5, '{a,b}'); EXECUTE t(NULL, -1, NULL)",
            "DEALLOCATE p",
            "EXECUTE p(1)",
            "DEALLOCATE PREPARE t",
            "DEALLOCATE ALL",
        ],
    );
    assert_eq!(codes, ["42601", "42601", "42P05", "42703", "42601", "26000", "26000"]);
    let insert = "PREPARE i (text, double precision) AS \
                  INSERT INTO metrics(device_id, metric_id, value) VALUES ($1, 'm', $2)";
    both.compare(
        PUSHER,
        &[insert, "EXECUTE i('d', 1.5)", "EXECUTE i('e', 2)", "EXECUTE i('f', 'much')"],
    );
    assert_eq!(
        both.compare(READER, &["SELECT device_id, value FROM metrics ORDER BY 1"]).0,
        "d|1.5\ne|2\n"
    );
}

#[test]
fn copies_of_the_table_are_copied_back() {
    let dir = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| {
        let dir = dir.path().join(name);
        std::fs::create_dir(&dir).unwrap();
        PgServer::start(&dir, &[])
    });
    let rows = "INSERT INTO metrics(device_id, metric_id, value, labels) VALUES ('d', 'm', 1.5, '{\"a\": \"b;\\\\ c\"}'), \
                ('e', 'm', NULL, NULL), ('f', 'm', 'NaN', '{}')";
    assert_eq!(first.rows(Some(PUSHER), rows), "INSERT 0 3");
    for (options, name) in [("", "text"), ("with csv header", "csv"), ("with binary", "binary")] {
        let file = dir.path().join(name);
        let copy =
            |direction: &str| format!("\\copy metrics {direction} '{}' {options}", file.display());
        assert_eq!(first.rows(Some(READER), &copy("to")), "COPY 3");
        assert_eq!(second.rows(Some(PUSHER), &copy("from")), "COPY 3", "{name}");
        // Like PostgreSQL, the server stores a row each time that a client copies it.
        let all = "SELECT DISTINCT timestamp, device_id, metric_id, value, labels FROM metrics ORDER BY 2";
        assert_eq!(second.rows(Some(READER), all), first.rows(Some(READER), all), "{name}");
    }
}
