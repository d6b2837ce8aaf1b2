//! Tests of the error messages for wrong statements.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../../query/tests/lab/mod.rs"]
mod lab;
mod run_sql;

use jobs::Reader;
use lab::Lab;
use run_sql::{engine, run_sql_as};
use sql::Limits;

#[tokio::test]
async fn errors_of_the_engine_are_reported_in_our_words() {
    let lab = Lab::new();
    let sql = engine(&lab, Limits::default());
    for (text, want) in [
        (
            "SELECT * FROM metric",
            "there is no table `metric` (did you mean `metrics`?); the tables are metrics, ",
        ),
        ("SELECT * FROM nope.nope", "there is no table `nope.nope`; the tables are metrics, "),
        ("SELECT * FROM nope(1)", "there is no table function `nope`"),
        ("SELEC 1", "invalid SQL: expected an SQL statement, found SELEC in line 1, column 1"),
        ("SELECT 'a", "invalid SQL: "),
        (
            "SELECT valeu FROM metrics",
            "there is no column `valeu` here (did you mean `value`?); the columns are cluster, ",
        ),
        ("SELECT m.x FROM metrics m", "there is no column `m.x` here; the columns are cluster, "),
        (
            "SELECT job_id FROM metrics a, metrics b",
            "several tables have a column `job_id`; write TABLE.COLUMN",
        ),
    ] {
        let error = run_sql_as(&sql, Reader::Everything, text).await.unwrap_err();
        let message = error.to_string();
        assert_eq!(error.status(), 400, "{text}: {message}");
        assert!(message.starts_with(want), "{text}: {message}");
        for leak in LEAKS {
            assert!(!message.contains(leak), "{text}: {message}");
        }
    }
}

/// Words of the engine that no author of a statement knows.
const LEAKS: [&str; 17] = [
    "datafusion",
    "public.",
    "ParserError",
    "Parser error",
    "Schema error",
    "Cast error",
    "Internal error",
    "during planning",
    "Line:",
    "coerce",
    "Utf8",
    "Int64",
    "Float64",
    "Timestamp(",
    "predicate",
    "wildcard",
    "signature",
];

#[tokio::test]
async fn common_mistakes_are_named_without_words_of_the_engine() {
    let lab = Lab::new();
    let sql = engine(&lab, Limits::default());
    for (text, want) in [
        ("SELECT * FROM metrics WHERE timestamp > 'yesterday'", "'yesterday' is no time; write "),
        ("SELECT * FROM metrics WHERE value = 'abc'", "the text 'abc' is no number; "),
        ("SELECT cast('x' AS int)", "the text 'x' is no whole number; "),
        ("SELECT sums(value) FROM metrics", "there is no function `sums` (did you mean `sum`?)"),
        ("SELECT value + device_id FROM metrics", "`+` does not work on a number and a text"),
        (
            "SELECT timestamp - 5 FROM metrics",
            "`-` does not work on a time and a whole number; write times in quotes, ",
        ),
        (
            "SELECT * FROM metrics WHERE timestamp > 5",
            "`>` does not compare a time with a whole number",
        ),
        ("SELECT avg(device_id) FROM metrics", "the function `avg` does not accept a text"),
        ("SELECT upper(value) FROM metrics", "the function `upper` does not accept a number"),
        ("SELECT sum(value, 2) FROM metrics", "the function `sum` takes 1 arguments, not 2"),
        (
            "SELECT device_id, avg(value) FROM metrics",
            "`metrics.device_id` must be in GROUP BY, or within an aggregate",
        ),
        ("SELECT * FROM metrics WHERE value", "WHERE needs a condition, such as metrics.value > 0"),
        ("SELECT * FROM metrics HAVING value > 1", "`metrics.value > 1` must be in GROUP BY"),
        (
            "SELECT * FROM metrics WHERE device_id LIKE 5",
            "LIKE compares texts, not a text with a whole",
        ),
        (
            "SELECT * FROM metrics WHERE device_id ~ '('",
            "invalid regular expression: unclosed group",
        ),
        (
            "SELECT * FROM (VALUES ('a', '*')) AS t(a, b) WHERE a ~ b",
            "invalid regular expression: repetition operator missing expression",
        ),
        (
            "SELECT * FROM (VALUES ('a', '((a{1000}){1000}){1000}')) AS t(a, b) WHERE a ~ b",
            "invalid regular expression: it is too large",
        ),
        (
            "SELECT interval '5 foo'",
            "'5 foo' is no interval; write one such as interval '5 minutes'",
        ),
    ] {
        let error = run_sql_as(&sql, Reader::Everything, text).await.unwrap_err();
        let message = error.to_string();
        assert_eq!(error.status(), 400, "{text}: {message}");
        assert!(message.starts_with(want), "{text}: {message}");
        for leak in LEAKS {
            assert!(!message.contains(leak), "{text}: {message}");
        }
    }
}
