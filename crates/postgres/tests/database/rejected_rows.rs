//! Rows that the database rejects: they alone become gaps.

use crate::faults::{append, stored};
use crate::rows::query;
use crate::server::{Direct, database, execute};
use conformance::{Clock, Outcome, S, Sender, Spec, T0, of_storage, spec};
use model::{Batch, Cause, Timestamp};
use postgres::{PostgresStore, Settings};
use std::sync::Arc;
use storage::{Outcome as StoreOutcome, Selector, Storage};
use tokio_postgres::Config;

const ALL: (Timestamp, Timestamp) = (Timestamp(i64::MIN), Timestamp(i64::MAX));
/// A trigger of the site.
const TRIGGER: &str = "
CREATE FUNCTION reject() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NEW.value = 13 THEN RAISE 'we do not store 13'; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER reject BEFORE INSERT ON metrics FOR EACH ROW EXECUTE FUNCTION reject();
ALTER TABLE jobmeter.job_metrics ADD CONSTRAINT small CHECK (value < 1000);";

fn open(database: &Config) -> PostgresStore {
    let settings = Settings { background_maintenance: false, ..Settings::default() };
    let clock = Clock::at(T0);
    PostgresStore::open(Arc::new(Direct(database.clone())), settings, Arc::new(move || clock.now()))
        .unwrap()
}

/// Appends batches in one transaction.
fn put(store: &PostgresStore, batches: &[&Batch]) -> Vec<Outcome> {
    let batches = batches.iter().map(|batch| (Batch::clone(batch), Timestamp(T0 + 3600 * S)));
    of_storage::append(store, batches.collect())
}

fn seconds(spec: &Spec, values: impl IntoIterator<Item = f64>) -> Vec<(Spec, i64, f64)> {
    let values = values.into_iter().zip(0..);
    values.map(|(value, second)| (spec.clone(), T0 + second * S, value)).collect()
}

fn rejected(outcome: &Outcome) -> u32 {
    let Outcome::Stored { samples_rejected, .. } = outcome else { unreachable!("{outcome:?}") };
    *samples_rejected
}

#[test]
fn rows_that_a_trigger_or_a_constraint_rejects_are_gaps_and_all_others_are_stored() {
    let database = database();
    let store = open(&database);
    execute(&database, TRIGGER);
    // The third has two such rows in a row, the fourth none.
    let bad_seconds: [(&str, &[i64]); 6] = [
        ("n0", &[3]),
        ("n1", &[0, 99]),
        ("n2", &[40, 41]),
        ("n3", &[]),
        ("n4", &[7]),
        ("n5", &[50]),
    ];
    let mut sent = Vec::new();
    for (name, bad) in bad_seconds {
        let value = |second: i64| if bad.contains(&second) { 13.0 } else { second as f64 };
        let node = (0..100).filter(|second| *second != 13).map(value);
        let mut samples = seconds(&spec(name, "load_1m"), node);
        let value = |second: i64| if (name, second) == ("n5", 60) { 2000.0 } else { second as f64 };
        let of_job = Spec { job: Some(7), ..spec(name, "cgroup_memory_bytes") };
        samples.extend(seconds(&of_job, (0..100).map(value)));
        sent.push(Sender::new(name, 1).batch(&samples));
    }
    let all: Vec<&Batch> = sent.iter().collect();
    let outcomes = put(&store, &all);
    let counts: Vec<u32> = outcomes.iter().map(rejected).collect();
    assert_eq!(counts, [1, 2, 2, 0, 1, 2]);
    let Outcome::Stored { reason, .. } = &outcomes[0] else { unreachable!() };
    assert_eq!(reason, "the database rejected a sample: we do not store 13 (P0001)");
    let kept = 6 * 199 - 8;
    assert_eq!(stored(&store).len(), kept);
    let gaps = store.gaps(ALL.0, ALL.1, None);
    let found: Vec<_> =
        gaps.iter().map(|gap| (gap.device.as_str(), &*gap.source, gap.cause)).collect();
    let mut want =
        ["n0", "n1", "n2", "n4", "n5"].map(|name| (name, "load", Cause::SeriesRejected)).to_vec();
    want.push(("n5", "cgroup", Cause::SeriesRejected));
    assert_eq!(found.len(), want.len());
    assert!(want.iter().all(|gap| found.contains(gap)), "{found:?}");
    let gap = gaps.iter().find(|gap| &*gap.source == "cgroup").unwrap();
    assert!(gap.detail.contains("small") && gap.detail.contains("23514"), "{}", gap.detail);
    let stats = store.stats();
    assert_eq!((stats.samples_stored, stats.samples_rejected), (kept as u64, 8));
    assert_eq!(put(&store, &all), vec![Outcome::Duplicate; 6]);
    drop(store);
    let store = open(&database);
    assert_eq!((stored(&store).len(), store.gaps(ALL.0, ALL.1, None)), (kept, gaps));
    let origin = &store.origins()[5];
    assert_eq!((origin.samples, origin.samples_rejected), (197, 2));
}

#[test]
fn a_row_without_a_partition_or_beside_a_unique_one_is_rejected_alone() {
    let database = database();
    let store = open(&database);
    execute(
        &database,
        "DROP TABLE jobmeter.metrics_default; \
         CREATE UNIQUE INDEX ON metrics (device_id, metric_id, timestamp)",
    );
    let load = spec("n1", "load_1m");
    let batch = Sender::new("n1", 1).batch(&[
        (load.clone(), T0 - 1000 * 3600 * S, 1.0),
        (load.clone(), T0, 2.0),
        (load.clone(), T0, 3.0),
        (spec("n1", "uptime_seconds"), T0, 4.0),
    ]);
    assert_eq!(rejected(&put(&store, &[&batch])[0]), 2);
    assert_eq!(query(&database, "SELECT value FROM metrics ORDER BY value"), ["2", "4"]);
    let last = store.snapshot().last(&Selector::default());
    let last: Vec<f64> = last.iter().map(|one| one.value).collect();
    assert_eq!(last, [2.0, 4.0]);
}

#[test]
fn a_deferred_constraint_names_its_row() {
    let database = database();
    let store = open(&database);
    execute(
        &database,
        "CREATE FUNCTION reject() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             IF NEW.value = 13 THEN RAISE 'late'; END IF; RETURN NULL; END $$; \
         CREATE CONSTRAINT TRIGGER reject AFTER INSERT ON jobmeter.job_metrics \
             DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION reject()",
    );
    let of_job = Spec { job: Some(7), ..spec("n1", "load_1m") };
    let batch = Sender::new("n1", 1).batch(&seconds(&of_job, (0..20).map(f64::from)));
    assert_eq!(rejected(&put(&store, &[&batch])[0]), 1);
    assert_eq!(stored(&store).len(), 19);
}

/// The database sends its error while the rows of several megabytes are still being sent.
#[test]
fn many_rejected_rows_cost_their_sender_alone() {
    let database = database();
    let store = open(&database);
    execute(&database, TRIGGER);
    let bad = Sender::new("n1", 1).batch(&seconds(&spec("n1", "load_1m"), (0..2000).map(|_| 13.0)));
    let load = spec("n2", "load_1m");
    let mixed = (0..30_000).map(|second| if second % 10_000 == 5 { 13.0 } else { 1.0 });
    let mixed = Sender::new("n2", 1).batch(&seconds(&load, mixed));
    let good = Sender::new("n3", 1).batch(&seconds(&spec("n3", "load_1m"), (0..100).map(|_| 1.0)));
    let outcomes = put(&store, &[&bad, &mixed, &good]);
    let counts: Vec<u32> = outcomes.iter().map(rejected).collect();
    assert_eq!(counts, [2000, 3, 0]);
    assert_eq!(stored(&store).len(), 29_997 + 100);
    let gaps = store.gaps(ALL.0, ALL.1, None);
    let devices: Vec<&str> = gaps.iter().map(|gap| gap.device.as_str()).collect();
    assert_eq!(devices, ["n1", "n2"]);
}

#[test]
fn inserted_rows_are_rejected_as_a_whole_with_the_first_bad_one() {
    let database = database();
    let store = open(&database);
    execute(&database, TRIGGER);
    let places = ["a", "b", "c", "d"].map(|metric| spec("n1", metric));
    let value = |place: usize| if place == 2 { 13.0 } else { 1.0 };
    let rows: Vec<_> =
        places.iter().zip(0..).map(|(one, place)| (one.clone(), T0, value(place))).collect();
    let inserted = Sender::new("user-1000/rows", 1).batch(&rows);
    let StoreOutcome::RejectedWhole { place, why } = append(&store, &inserted) else {
        unreachable!()
    };
    assert_eq!(place, 2);
    assert!(why.contains("we do not store 13"), "{why}");
    let good = Sender::new("n1", 1).batch(&seconds(&spec("n1", "load_1m"), [1.0, 2.0]));
    // The copy of a rejected batch is not a duplicate.
    let outcomes = put(&store, &[&inserted, &good, &inserted]);
    assert!(matches!(outcomes[0], Outcome::RejectedPermanently(_)));
    assert_eq!((&outcomes[1], &outcomes[2]), (&Outcome::STORED, &outcomes[0]));
    assert_eq!((stored(&store).len(), store.gaps(ALL.0, ALL.1, None)), (2, Vec::new()));
}

#[test]
fn an_error_that_is_not_about_a_row_sets_none_aside() {
    let database = database();
    let mut sender = Sender::new("n1", 1);
    let of_job = Spec { job: Some(7), ..spec("n1", "load_1m") };
    for code in ["53100", "53200", "25006", "42501", "55P03", "40001", "58030", "57014", "XX000"] {
        let batch = sender.batch(&[(of_job.clone(), T0, 1.0)]);
        let store = open(&database);
        execute(
            &database,
            &format!(
                "CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                 RAISE 'the database cannot write' USING ERRCODE = '{code}'; END $$; \
                 CREATE TRIGGER fail BEFORE INSERT ON jobmeter.job_metrics FOR EACH ROW \
                 EXECUTE FUNCTION fail()"
            ),
        );
        let outcome = put(&store, &[&batch]).remove(0);
        assert!(matches!(outcome, Outcome::RejectedTemporarily(_)), "{code}: {outcome:?}");
        execute(&database, "DROP TRIGGER fail ON jobmeter.job_metrics");
        drop(store);
        let store = open(&database);
        assert_eq!(put(&store, &[&batch]), [Outcome::STORED], "{code}");
        assert_eq!(store.gaps(ALL.0, ALL.1, None), []);
    }
    assert_eq!(query(&database, "SELECT count(*) FROM jobmeter.job_metrics"), ["9"]);
}
