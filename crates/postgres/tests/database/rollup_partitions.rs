//! Partitions of the rollups, and the table of the first version of the schema.

use crate::partitions::{DAY, HOUR, open, put, settings};
use crate::rows::query;
use crate::server::{database, execute};
use conformance::{Clock, Query, Sender, T0, of_storage};
use postgres::Settings;
use storage::WINDOWS_US;
use tokio_postgres::Config;

/// The tables with rollups, the lengths of their windows in seconds, and their number.
fn used(database: &Config) -> Vec<String> {
    query(
        database,
        "SELECT tableoid::regclass || ' ' || window_us / 1000000 || ' ' || count(*) FROM jobmeter.rollups \
         GROUP BY tableoid, window_us ORDER BY 1",
    )
}

/// Minutes of windows are kept for a day, hours forever.
fn rules() -> Settings {
    Settings { keep_samples_us: i64::MAX, keep_rollups_us: [DAY, i64::MAX], ..settings() }
}

#[test]
fn rollups_have_partitions_that_retention_drops() {
    let (database, clock) = (database(), Clock::at(T0));
    let store = open(&database, &rules(), &clock);
    let mut sender = Sender::new("n1", 1);
    for hour in [0, 3, 26, 30, 60] {
        clock.set(T0 + hour * HOUR);
        put(&store, &mut sender, [T0 + hour * HOUR]);
        store.maintain().unwrap();
        if hour == 30 {
            let found = used(&database);
            let wanted = [
                "jobmeter.rollups_300s_20260101_00 300 2",
                "jobmeter.rollups_300s_20260102_00 300 1",
                "jobmeter.rollups_3600s_20251226_00 3600 3",
            ];
            assert_eq!(found, wanted, "aligned to multiples of the interval");
        }
    }
    // The first partition ended more than a day ago.
    let wanted =
        ["jobmeter.rollups_300s_20260102_00 300 2", "jobmeter.rollups_3600s_20251226_00 3600 4"];
    assert_eq!(used(&database), wanted);
    let tables = "SELECT relname FROM pg_class WHERE relname = 'rollups_300s_20260101_00'";
    assert!(query(&database, tables).is_empty());
}

/// The table of the first version.
const FIRST: &str = "CREATE TABLE jobmeter.old (LIKE jobmeter.rollups INCLUDING ALL); DROP TABLE jobmeter.rollups CASCADE; \
                     ALTER TABLE jobmeter.old RENAME TO rollups; ALTER INDEX jobmeter.old_pkey RENAME TO rollups_pkey";
const UPGRADE: &str = include_str!("../../../database/sql/partition_rollups.sql");

#[test]
fn the_table_of_the_first_version_becomes_the_default_partition() {
    let (database, clock) = (database(), Clock::at(T0));
    drop(open(&database, &rules(), &clock));
    execute(&database, FIRST);
    let store = open(&database, &rules(), &clock);
    let mut sender = Sender::new("n1", 1);
    let mut at = |hours: &[i64]| {
        for hour in hours {
            clock.set(T0 + hour * HOUR);
            put(&store, &mut sender, [T0 + hour * HOUR]);
            store.maintain().unwrap();
        }
    };
    at(&[0, 1, 3]);
    assert_eq!(used(&database), ["jobmeter.rollups 300 2", "jobmeter.rollups 3600 2"]);
    // Twice, while the server runs.
    execute(&database, UPGRADE);
    execute(&database, UPGRADE);
    at(&[5, 8]);
    let wanted = [
        "jobmeter.rollups_300s_20260101_010500 300 2",
        "jobmeter.rollups_3600s_20260101_02 3600 2",
        "jobmeter.rollups_default 300 2",
        "jobmeter.rollups_default 3600 2",
    ];
    assert_eq!(used(&database), wanted);
    let windows = |window_us| of_storage::windows(&store, &Query::default(), window_us).len();
    assert_eq!(WINDOWS_US.map(windows), [5, 5]);
    at(&[30, 50]);
    let young: Vec<String> =
        used(&database).into_iter().filter(|one| one.contains(" 300 ")).collect();
    assert_eq!(young, ["jobmeter.rollups_300s_20260102_00 300 1"]);
}
