//! Tables that the server shares: the copy of the jobs, and promotions.

use crate::faults::{append, open};
use crate::server::{database, execute, rows};
use model::{
    Allocation, ClusterId, DeviceId, Job, JobFacts, JobId, JobKey, JobState, Resources, Timestamp,
};
use postgres::PostgresStore;
use std::collections::BTreeSet;
use storage::{JobsPart, JobsScope, PromotedRow, RunRow, SharedTables, StorageError};
use tokio_postgres::Config;

fn key(id: i64) -> JobKey {
    JobKey { cluster: ClusterId::new("oar").unwrap(), id: JobId::new(id).unwrap() }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_seconds(1_767_706_500 + second)
}

fn run(id: i64, stop: Option<i64>) -> RunRow {
    let job = Job {
        key: key(id),
        display_id: "7\0".into(),
        state: if stop.is_some() { JobState::Ended } else { JobState::Running },
        submit: Some(at(-5)),
        start: Some(at(0).plus(250_000)),
        stop: stop.map(at),
        facts: JobFacts {
            user: Some("alice".into()),
            uid: Some(1000),
            name: Some("a \"job\" of é\0".into()),
            types: Some(vec!["a".into(), "b".into()]),
            requested: Resources {
                cpus: Some(8),
                memory_bytes: Some(u64::MAX),
                wall_seconds: Some(0.5),
                ..Resources::default()
            },
            ..JobFacts::default()
        },
    };
    RunRow { job, end: Some(("completed".to_owned(), String::new())), oom_kills: 0 }
}

fn part(step: i64, scope: JobsScope, ids: &[(i64, Option<i64>)]) -> JobsPart {
    let allocation = |(id, stop): &(i64, Option<i64>)| Allocation {
        job: key(*id),
        device: DeviceId::new("n1").unwrap(),
        start: at(0),
        stop: stop.map(at),
    };
    JobsPart {
        registry: "abc".into(),
        step,
        is_first: step == 1,
        scope,
        runs: ids.iter().map(|(id, stop)| run(*id, *stop)).collect(),
        allocations: ids.iter().map(allocation).collect(),
    }
}

fn keys(ids: &[i64]) -> JobsScope {
    JobsScope::Keys(ids.iter().map(|id| key(*id)).collect())
}

const LIST: &str = "SELECT string_agg(concat_ws(' ', j.job_id, j.state, a.node, a.stop_time - a.start_time), ', ' \
    ORDER BY j.job_id) FROM jobmeter.jobs AS j LEFT JOIN jobmeter.allocations AS a USING (cluster, job_id)";

fn list(database: &Config) -> String {
    rows(database, LIST).concat()
}

#[test]
fn jobs_are_replaced_by_key_and_by_range() {
    let database = database();
    let store = open(&database).unwrap();
    let all = JobsScope::Range(None, None);
    let open_jobs = [(1, None), (2, None), (3, None), (4, None)];
    assert!(store.copy_jobs(&part(1, all.clone(), &open_jobs)).unwrap());
    let ended = part(2, keys(&[2, 3]), &[(2, Some(60))]);
    assert!(store.copy_jobs(&ended).unwrap());
    assert!(store.copy_jobs(&ended).unwrap(), "a step whose answer was lost is repeated");
    assert_eq!(list(&database), "1 running n1, 2 ended n1 00:01:00, 4 running n1");
    let range = JobsScope::Range(Some(key(1)), Some(key(2)));
    assert!(store.copy_jobs(&part(3, range, &[])).unwrap());
    assert_eq!(list(&database), "1 running n1, 4 running n1");
    assert!(store.copy_jobs(&part(4, JobsScope::Range(Some(key(1)), None), &[])).unwrap());
    assert_eq!(list(&database), "1 running n1");
    // An earlier state of the database, or another registry.
    assert!(!store.copy_jobs(&part(9, keys(&[1]), &[])).unwrap());
    let other = JobsPart { registry: "other".into(), ..part(5, keys(&[1]), &[]) };
    assert!(!store.copy_jobs(&other).unwrap());
    assert_eq!(list(&database), "1 running n1");
    assert!(store.copy_jobs(&JobsPart { is_first: true, scope: all, ..other }).unwrap());
    assert_eq!(list(&database), "");
}

#[test]
fn the_numbers_of_local_jobs_with_samples_or_in_the_copy_are_known() {
    let database = database();
    let store = open(&database).unwrap();
    assert_eq!(store.last_local_job(1000).unwrap(), None);
    assert!(store.copy_jobs(&part(1, JobsScope::Range(None, None), &[(9, None)])).unwrap());
    assert_eq!(store.last_local_job(1000).unwrap(), None, "jobs of a scheduler");
    execute(&database, "UPDATE jobmeter.jobs SET cluster = 'local'");
    assert_eq!(store.last_local_job(1000).unwrap(), JobId::new(9));
    let of_job = |id| {
        let series =
            conformance::Spec { job: Some(id), ..conformance::spec("n1", "cpu_seconds_total") };
        let at = conformance::T0 + id * conformance::S;
        append(&store, &conformance::Sender::new("n1", 1).batch(&[(series, at, 1.0)]));
    };
    of_job(12);
    execute(&database, "UPDATE jobmeter.series SET cluster = 'local'");
    assert_eq!(store.last_local_job(1000).unwrap(), JobId::new(12));
    // A node reported any number.
    execute(&database, "UPDATE jobmeter.series SET job_id = 9223372036854775807");
    assert_eq!(store.last_local_job(1000).unwrap(), JobId::new(9));
}

#[test]
fn unchanged_allocations_are_not_written_again() {
    let database = database();
    let store = open(&database).unwrap();
    let written =
        || rows(&database, "SELECT string_agg(xmin::text, ' ') FROM jobmeter.allocations");
    store.copy_jobs(&part(1, keys(&[1, 2]), &[(1, None), (2, None)])).unwrap();
    let before = written();
    store.copy_jobs(&part(2, keys(&[1, 2]), &[(1, None), (2, None)])).unwrap();
    assert_eq!(written(), before);
}

#[test]
fn the_columns_of_a_job() {
    let database = database();
    let store = open(&database).unwrap();
    store.copy_jobs(&part(1, keys(&[1]), &[(1, Some(60))])).unwrap();
    let select = "SELECT concat_ws('|', display_id, user_name, user_id, name, types, requested_cpus, \
        requested_memory_bytes, requested_wall_seconds, extract(epoch FROM start_time)::numeric(20, 2), \
        stop_time - submit_time, end_cause, end_detail IS NULL, oom_kills, exit_code IS NULL) FROM jobmeter.jobs";
    let expected = "7|alice|1000|a \"job\" of é|a\nb|8|9223372036854775807|0.5|1767706500.25|00:01:05|completed|t|0|t";
    assert_eq!(rows(&database, select), [expected]);
    // The table has the columns of `jobs` in SQL of the server, whose order the documentation lists.
    let documented = include_str!("../../../../docs/reference/tables.md");
    let (_, documented) = documented.split_once("## `jobs`").unwrap();
    let (documented, _) = documented.split_once("\n## ").unwrap();
    let documented: Vec<(&str, &str)> = documented
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
        .map(|(name, rest)| (name, rest.split_once(" |").unwrap().0))
        .collect();
    let select = "SELECT column_name || ' ' || data_type FROM information_schema.columns \
                  WHERE table_schema = 'jobmeter' AND table_name = 'jobs' ORDER BY ordinal_position";
    let columns = documented.into_iter().map(|(name, kind)| {
        let kind = match kind {
            "number" => "bigint",
            "value" => "double precision",
            "time" => "timestamp with time zone",
            text => text,
        };
        format!("{name} {kind}")
    });
    assert_eq!(rows(&database, select), columns.collect::<Vec<_>>());
}

#[test]
fn the_catalogue_has_columns() {
    let database = database();
    let store = open(&database).unwrap();
    let mut sender = conformance::Sender::new("n1", 1);
    let batch = sender.batch(&[(conformance::spec("n1", "load_1m"), 1_767_706_500_000_000, 1.0)]);
    append(&store, &batch);
    let select =
        "SELECT concat_ws('|', name, unit, kind, help IS NOT NULL) FROM jobmeter.metric_catalogue";
    let found = rows(&database, select);
    assert!(
        found.iter().any(|row| row.starts_with("load_1m|") && row.ends_with("|gauge|t")),
        "{found:?}"
    );
}

fn promoted(rows: &[(&str, &str)]) -> BTreeSet<PromotedRow> {
    rows.iter().map(|(device, metric)| ((*device).into(), (*metric).into())).collect()
}

/// Writes the server's rows, and returns those of others.
fn exchange(
    store: &PostgresStore,
    own: &[(&str, &str)],
    ended: &[(&str, &str)],
) -> BTreeSet<PromotedRow> {
    store.exchange_promotions(&promoted(own), &promoted(ended)).unwrap().rows
}

const PROMOTED: &str = "SELECT device_id || ' ' || metric_id FROM promoted_metrics ORDER BY 1";

#[test]
fn promotions_of_the_server_and_of_others() {
    let database = database();
    let store = open(&database).unwrap();
    execute(&database, "INSERT INTO promoted_metrics VALUES ('n1', 'x'), ('n2', 'y')");
    let others = promoted(&[("n1", "x"), ("n2", "y")]);
    for _ in 0..2 {
        assert_eq!(exchange(&store, &[("n1", "x"), ("n3", "z")], &[]), others);
        assert_eq!(rows(&database, PROMOTED), ["n1 x", "n1 x", "n2 y", "n3 z"]);
    }
    // `api.update_promoted_metrics` deletes all rows, and writes its own.
    execute(
        &database,
        "DELETE FROM promoted_metrics; INSERT INTO promoted_metrics VALUES ('n4', 'w')",
    );
    assert_eq!(exchange(&store, &[("n1", "x"), ("n3", "z")], &[]), promoted(&[("n4", "w")]));
    assert_eq!(rows(&database, PROMOTED), ["n1 x", "n3 z", "n4 w"]);
    // A row of the server ends; an equal row of another program stays.
    execute(&database, "INSERT INTO promoted_metrics VALUES ('n1', 'x')");
    assert_eq!(exchange(&store, &[("n3", "z")], &[]), promoted(&[("n1", "x"), ("n4", "w")]));
    assert_eq!(rows(&database, PROMOTED), ["n1 x", "n3 z", "n4 w"]);
    // A person ended the promotion of a row.
    assert_eq!(exchange(&store, &[("n3", "z")], &[("n4", "w")]), promoted(&[("n1", "x")]));
    assert_eq!(rows(&database, PROMOTED), ["n1 x", "n3 z"]);
    drop(store);
    let store = open(&database).unwrap();
    assert_eq!(exchange(&store, &[], &[]), promoted(&[("n1", "x")]));
    assert_eq!(rows(&database, PROMOTED), ["n1 x"]);
}

#[test]
fn rows_without_an_expression_and_too_many_rows_are_skipped() {
    let database = database();
    let store = open(&database).unwrap();
    let fill = "INSERT INTO promoted_metrics SELECT 'n' || n, 'x' FROM generate_series(1, 10005) AS n; \
                INSERT INTO promoted_metrics VALUES ('n1', NULL), ('n1', repeat('x', 20000))";
    execute(&database, fill);
    let others = store.exchange_promotions(&promoted(&[("zz", "y")]), &promoted(&[])).unwrap();
    assert_eq!((others.rows.len(), others.skipped), (10_000, 7));
    let others = store.exchange_promotions(&promoted(&[("zz", "y")]), &promoted(&[])).unwrap();
    assert_eq!((others.rows.len(), others.skipped), (10_000, 7));
    assert_eq!(rows(&database, PROMOTED).iter().filter(|row| *row == "zz y").count(), 1);
}

#[test]
fn an_unusable_table_is_an_error_and_harms_nothing_else() {
    let database = database();
    let store = open(&database).unwrap();
    execute(&database, "ALTER TABLE promoted_metrics RENAME TO other");
    let none = promoted(&[]);
    let failed = store.exchange_promotions(&none, &none);
    assert!(
        matches!(failed, Err(StorageError::Unavailable(why)) if why.contains("promoted_metrics"))
    );
    assert!(store.copy_jobs(&part(1, keys(&[1]), &[(1, None)])).unwrap());
    execute(&database, "ALTER TABLE other RENAME TO promoted_metrics");
    assert_eq!(exchange(&store, &[("n1", "x")], &[]), none);
    assert_eq!(rows(&database, PROMOTED), ["n1 x"]);
}
