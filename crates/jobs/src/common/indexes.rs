//! Indexes that keep the cost of a query proportional to its answer, not to the history.
//!
//! Lists are ordered by start, latest first. Every index that a list scans has that order after its
//! key. A list query therefore stops as soon as its page is full.
//!
//! This order does not answer which rows *covered* a given time. A row that started earlier may be over
//! or still open. Every table with a start and an end therefore has a `class` column that grows with
//! the row's duration. A row that covers an instant started at most the maximum duration of its class
//! before that instant. A time query scans each of the 11 classes over that duration only. At most
//! about 3 of 4 scanned rows had already ended. Open rows, and rows longer than half a year, form the
//! last class. That class is scanned from its beginning.
//!
//! The class is a generated column, so no writer can omit it.

/// The last class: longer than all others, or still open.
const LAST: i64 = 10;

/// Maximum duration of each class but the last, in microseconds: 64 s, and each further class 4 times as
/// long.
fn reaches() -> impl Iterator<Item = (i64, i64)> {
    (0..LAST).map(|class| (class, 64_000_000 << (2 * class)))
}

/// The `class` column of a table: which rows have no end, and the duration of the others.
pub(crate) fn class(open: &str, long: &str) -> String {
    let steps: Vec<_> = reaches().map(|(_, reach)| format!("({long} > {reach})")).collect();
    let steps = steps.join(" + ");
    format!(
        "class INTEGER GENERATED ALWAYS AS (CASE WHEN {open} THEN {LAST} ELSE {steps} END) VIRTUAL"
    )
}

/// The table `spans`, which holds the maximum duration of each class for queries, and the indexes.
pub(crate) fn tables() -> String {
    let spans: Vec<_> = reaches().map(|(class, reach)| format!("({class}, {reach})")).collect();
    format!(
        "CREATE TABLE spans (
            class INTEGER PRIMARY KEY,
            reach INTEGER NOT NULL
        ) STRICT;
        INSERT INTO spans VALUES {}, ({LAST}, {});
        {INDEXES}",
        spans.join(", "),
        1_i64 << 62
    )
}

const INDEXES: &str = "
CREATE INDEX runs_open ON runs (start DESC, cluster, id) WHERE stop IS NULL;
CREATE INDEX runs_newest ON runs (start DESC, cluster, id);
CREATE INDEX runs_failed ON runs (start DESC, cluster, id)
    WHERE coalesce(exit_code, 0) <> 0 OR record_state IS 'failed';
CREATE INDEX runs_cluster ON runs (cluster, start DESC, id);
CREATE INDEX runs_uid ON runs (uid, start DESC, cluster, id) WHERE uid IS NOT NULL;
CREATE INDEX runs_user ON runs (user, start DESC, cluster, id) WHERE user IS NOT NULL;
CREATE INDEX runs_account ON runs (account, start DESC, cluster, id) WHERE account IS NOT NULL;
CREATE INDEX runs_project ON runs (project, start DESC, cluster, id) WHERE project IS NOT NULL;
CREATE INDEX runs_queue ON runs (queue, start DESC, cluster, id) WHERE queue IS NOT NULL;
CREATE INDEX runs_name ON runs (name, start DESC, cluster, id) WHERE name IS NOT NULL;
CREATE INDEX runs_time ON runs (class, start, stop);
CREATE INDEX runs_uid_time ON runs (uid, class, start) WHERE uid IS NOT NULL;
CREATE INDEX runs_account_time ON runs (account, class, start, cluster) WHERE account IS NOT NULL;
CREATE INDEX visits_device ON visits (device, class, start, stop);
CREATE INDEX visits_time ON visits (class, start, stop);
CREATE INDEX shares_device ON shares (device, class, start, stop);
CREATE INDEX shares_time ON shares (class, start, stop);
";

/// Condition for failed runs. It repeats the condition of the index `runs_failed` exactly.
pub(crate) const FAILED: &str = "(coalesce(r.exit_code, 0) <> 0 OR r.record_state IS 'failed')";
