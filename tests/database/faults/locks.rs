//! Other sessions lock the table of samples.

use super::{Site, answers_with};
use std::time::Duration;

#[test]
fn locks_of_other_sessions_hold_ingest_and_queries_for_a_bounded_time() {
    let site = Site::new();
    for (mode, seconds) in [("ACCESS EXCLUSIVE", 10), ("SHARE ROW EXCLUSIVE", 7)] {
        let lock =
            format!("BEGIN; LOCK TABLE metrics IN {mode} MODE; SELECT pg_sleep({seconds}); COMMIT");
        site.sql(&lock).unwrap();
        assert!(site.agents_waited(), "{mode}: {}", site.agents[0].errors());
        site.arrived();
    }
    let (missing, answers) = site.end();
    assert_eq!(missing, 0);
    assert!(answers_with(&answers, 503) > 0, "a query does not wait for long");
    assert_eq!(answers_with(&answers, 0), 0, "{answers:?}");
    // A statement waits for a lock for 5 s, and a query may have two of them.
    let longest = answers.iter().map(|answer| answer.took).max().unwrap();
    assert!(longest < Duration::from_secs(12), "{longest:?}");
}
