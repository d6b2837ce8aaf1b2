//! The ways to what is asked for: indexes, so that a question costs what its answer does and not what is past.
//!
//! What is listed is ordered by start, the newest first, so each index that a list begins with has that order
//! behind its key, and a list ends as soon as it is full. No such order tells what *was there* at a time:
//! what began before it may be over, or go on. Therefore everything with a start and an end has a *class* by
//! how long it was, and what was there at an instant began no longer before it than the longest of its class.
//! A question about a time looks at each of the eleven classes for so long a time; at most, and about, three
//! of four rows that it meets were over. What goes on, and what lasted for half a year, is a class by itself,
//! which is looked at from its beginning.
//!
//! A class is worked out from its row, so that no writer can forget it.

/// The column of how long a row lasts: 64 seconds at most, four times that, and so on; 10: longer, or not over.
/// `spans` says the same, for questions.
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

/// Version 4. `project` and `queue` are the record's, as `account` and `name` are; `told_start` and `told_stop`
/// its times. The class of a run is that of the time from the first to the last of what nodes and scheduler
/// say, since a device that no agent is on is the run's for the scheduler's time.
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

/// What failed, in the words of the index of that.
pub(crate) const FAILED: &str = "(coalesce(r.exit_code, 0) <> 0 OR r.told IS 'failed')";
