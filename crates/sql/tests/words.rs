//! Tests of the error messages for wrong statements.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod asked;
#[path = "../../query/tests/lab/mod.rs"]
mod lab;

use asked::{ask_as, engine};
use jobs::Reader;
use lab::Lab;
use sql::Limits;

#[tokio::test]
async fn what_is_wrong_is_told_in_words_of_ours() {
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
        ("SELECT valeu FROM metrics", "there is no column `valeu` here; the columns are cluster, "),
        ("SELECT m.x FROM metrics m", "there is no column `m.x` here; the columns are cluster, "),
        (
            "SELECT job_id FROM metrics a, metrics b",
            "several tables have a column `job_id`; write TABLE.COLUMN",
        ),
    ] {
        let error = ask_as(&sql, Reader::Everything, text).await.unwrap_err();
        let message = error.to_string();
        assert_eq!(error.status(), 400, "{text}: {message}");
        assert!(message.starts_with(want), "{text}: {message}");
        for leak in ["datafusion", "public.", "ParserError", "Schema error", "Line:"] {
            assert!(!message.contains(leak), "{text}: {message}");
        }
    }
}
