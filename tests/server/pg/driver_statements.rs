//! Statements that drivers send about types, keys and settings, and arrays as they write them.
//!
//! The drivers themselves need large packages; `make clients` runs them.

use crate::server::pg::{PUSHER, PgServer, READER};

#[test]
fn statements_of_drivers_have_their_answers() {
    let dir = tempfile::tempdir().unwrap();
    let server = PgServer::start(dir.path(), &[]);
    let rows = "INSERT INTO metrics(device_id, metric_id, value) VALUES ('a b', 'watts', 1), ('c', 'watts', 2)";
    server.rows(Some(PUSHER), rows);
    let devices = "SELECT count(*) FROM metrics WHERE device_id = ANY";
    for (statement, want) in [
        // Arrays as text: by themselves, in brackets, with a type.
        (format!("{devices}('{{\"a b\",none}}')"), "1"),
        (format!("{devices}(('{{\"a b\",c}}'))"), "2"),
        (format!("{devices}('{{\"a b\",c}}'::text[])"), "2"),
        (format!("{devices}(CAST('{{c}}' AS text[]))"), "1"),
        ("SELECT count(*) FROM metrics WHERE value = ANY('{1,2,3}'::float8[])".to_owned(), "2"),
        ("SELECT word FROM (VALUES ('a'), ('x')) w(word) WHERE word <> ALL ('{a,b}'::text[])".to_owned(), "x"),
        // The type of a column, with the place of its schema in the search path.
        (
            "SELECT typname FROM pg_type LEFT JOIN (SELECT ns.oid AS id, r.r FROM pg_namespace AS ns JOIN \
               (SELECT s.r, (current_schemas(false))[s.r] AS nspname \
                FROM generate_series(1, array_upper(current_schemas(false), 1)) AS s(r)) AS r USING (nspname)) AS path \
             ON path.id = typnamespace WHERE pg_type.oid = 3802 ORDER BY path.r"
                .to_owned(),
            "jsonb",
        ),
        // Keys and indexes: there are none.
        (
            "SELECT k.n FROM (SELECT (information_schema._pg_expandarray(i.indkey)).n AS n, \
               information_schema._pg_expandarray(i.indkey) AS keys, a.attnum FROM pg_catalog.pg_attribute a \
               JOIN pg_catalog.pg_index i ON a.attrelid = i.indrelid) k WHERE k.attnum = (k.keys).x"
                .to_owned(),
            "",
        ),
        ("SELECT count(*) FROM pg_catalog.generate_series(1, 32) pos(n)".to_owned(), "32"),
        ("SELECT setting FROM pg_catalog.pg_settings WHERE name = 'max_index_keys'".to_owned(), "32"),
        ("SELECT proargmodes, proallargtypes FROM pg_proc".to_owned(), ""),
        ("SELECT count(*) > 5 FROM pg_catalog.pg_get_keywords() WHERE word <> 'limit'".to_owned(), "t"),
        (
            "SELECT count(*) FROM pg_namespace WHERE nspname = \
             replace((pg_catalog.current_schemas(true))[1], 'pg_temp_', 'pg_toast_temp_')"
                .to_owned(),
            "1",
        ),
    ] {
        assert_eq!(server.rows(Some(READER), &statement), want, "{statement}");
    }
    // Functions that make large values remain unavailable.
    for (statement, code) in [
        ("SELECT * FROM generate_series(1, 1000000)", "42883"),
        ("SELECT replace('aaaa', 'a', 'aaaaaaaaaaaaaaaa')", "42883"),
    ] {
        assert_eq!(server.error(Some(READER), statement), code, "{statement}");
    }
}
