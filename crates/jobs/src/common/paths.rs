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

/// Defines the `class` column. Class 0 lasts up to 64 s, each further class 4 times as long. Class 10
/// is longer or still open. The table `spans` holds the same limits for queries.
macro_rules! class {
    ($open:literal, $long:literal) => {
        concat!(
            "class INTEGER GENERATED ALWAYS AS (CASE WHEN ",
            $open,
            " THEN 10 ELSE (",
            $long,
            " > 64000000) + (",
            $long,
            " > 256000000) + (",
            $long,
            " > 1024000000) + (",
            $long,
            " > 4096000000) + (",
            $long,
            " > 16384000000) + (",
            $long,
            " > 65536000000) + (",
            $long,
            " > 262144000000) + (",
            $long,
            " > 1048576000000) + (",
            $long,
            " > 4194304000000) + (",
            $long,
            " > 16777216000000) END) VIRTUAL;\n"
        )
    };
}

/// Version 4 of the schema. The columns `project` and `queue` copy the record, as `account` and `name`
/// do. `told_start` and `told_stop` are the record's times. The class of a run covers the first to the
/// last time that nodes or the scheduler report. A device without an agent counts for the run during
/// the scheduler's times.
pub(crate) const INDEXES: &str = concat!(
    "
CREATE TABLE spans (
    class INTEGER PRIMARY KEY,
    reach INTEGER NOT NULL
) STRICT;
INSERT INTO spans VALUES (0, 64000000), (1, 256000000), (2, 1024000000), (3, 4096000000),
    (4, 16384000000), (5, 65536000000), (6, 262144000000), (7, 1048576000000), (8, 4194304000000),
    (9, 16777216000000), (10, 4611686018427387904);
ALTER TABLE runs ADD COLUMN project TEXT;
ALTER TABLE runs ADD COLUMN queue TEXT;
ALTER TABLE runs ADD COLUMN told_start INTEGER;
ALTER TABLE runs ADD COLUMN told_stop INTEGER;
UPDATE runs SET project = o.project, queue = o.queue, told_start = o.start, told_stop = o.stop
    FROM records o WHERE o.record = runs.record;
ALTER TABLE runs ADD COLUMN ",
    class!(
        "stop IS NULL OR (told_start IS NOT NULL AND told_stop IS NULL)",
        "(max(stop, coalesce(told_stop, stop)) - min(start, coalesce(told_start, start)))"
    ),
    "ALTER TABLE visits ADD COLUMN ",
    class!("stop IS NULL", "(stop - start)"),
    "ALTER TABLE shares ADD COLUMN ",
    class!("start IS NULL OR stop IS NULL", "(stop - start)"),
    "
DROP INDEX runs_open;
DROP INDEX runs_uid;
DROP INDEX runs_account;
DROP INDEX runs_cluster_account;
DROP INDEX visits_device;
DROP INDEX shares_device;
CREATE INDEX runs_open ON runs (start DESC, cluster, id) WHERE stop IS NULL;
CREATE INDEX runs_failed ON runs (start DESC, cluster, id)
    WHERE coalesce(exit_code, 0) <> 0 OR told IS 'failed';
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
"
);

/// Condition for failed runs. It repeats the condition of the index `runs_failed` exactly.
pub(crate) const FAILED: &str = "(coalesce(r.exit_code, 0) <> 0 OR r.told IS 'failed')";
