//! Tests of access control: rows of each table for a user who may see a node only during their job. Each new table
//! must be added here.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../../query/tests/lab/mod.rs"]
mod lab;
mod run_sql;

use control::NewPromotion;
use jobs::Reader;
use lab::{Lab, TestSeries, at, device, key};
use model::{Cause, Gap, JobEvent, Kind, NodeList, OomKill, Origin, Unit};
use run_sql::{engine, run_sql_as};
use sql::Limits;

/// Alice's job is on n1 from second 100 to 400, Bob's from 300 to 900. Values that other users may not see are in
/// the millions, and their names contain `secret`.
fn shared() -> Lab {
    let lab = Lab::new();
    let tick = |tick: i32| {
        (f64::from(tick) * 10.0 + 5.0, if (10..40).contains(&tick) { 1.0 } else { 7e6 })
    };
    let node: Vec<(f64, f64)> = (0..120).map(tick).collect();
    let of_bob = [(500.0, 7e6)];
    lab.put(&[
        TestSeries { samples: &node, ..TestSeries::default() },
        TestSeries { device: "secret-node", samples: &node, ..TestSeries::default() },
        TestSeries { metric: "secret", samples: &[(450.0, 7e6)], ..TestSeries::default() },
        TestSeries {
            metric: "secret_total",
            kind: Kind::Counter,
            unit: Unit::Seconds,
            job: Some(key("slurm", 2)),
            start: Some(310.0),
            samples: &of_bob,
            ..TestSeries::default()
        },
    ]);
    lab.job(&key("slurm", 1), "n1", 1000, 100.0, Some(400.0));
    lab.job(&key("slurm", 2), "n1", 2000, 300.0, Some(900.0));
    for (second, nodes, by) in [
        (200.0, "n1,secret-node", "secret-person"),
        (500.0, "n1", "secret"),
        (200.0, "secret-node", "secret"),
    ] {
        lab.demand.flush(&NodeList::new(nodes).unwrap(), "cpu", by, at(second)).unwrap();
    }
    let own = NewPromotion {
        nodes: NodeList::new("n7").unwrap(),
        metric: "perf_.*".into(),
        until: at(9000.0),
        by: "alice".into(),
        uid: Some(1000),
        job: Some("slurm:1".into()),
    };
    let other = NewPromotion {
        nodes: NodeList::new("secret-node").unwrap(),
        by: "bob".into(),
        uid: Some(2000),
        job: Some("slurm:2".into()),
        ..own.clone()
    };
    lab.demand.promote(&[own, other], None, at(600.0)).unwrap();
    for (from, to, source) in [(150.0, 160.0, "cpu"), (500.0, 510.0, "secret")] {
        lab.put_gap(Gap {
            origin: Origin::new("lab").unwrap(),
            device: device("n1"),
            source: source.into(),
            from: at(from),
            to: at(to),
            cause: Cause::AgentDown,
            detail: "".into(),
        });
    }
    lab
}

#[tokio::test]
async fn every_table_shows_a_tenant_the_time_of_their_jobs_alone() {
    let lab = shared();
    let sql = engine(&lab, Limits::default());
    for table in sql::tables() {
        let text = format!("SELECT * FROM {table}");
        let all = run_sql_as(&sql, Reader::Everything, &text).await.unwrap();
        let alice = run_sql_as(&sql, Reader::Tenant(1000), &text).await.unwrap();
        let other_tenant = run_sql_as(&sql, Reader::Tenant(9), &text).await.unwrap();
        let (rows, of_all) = match table {
            "metrics" | "metrics_by_device" | "metrics_by_job" => (30, false),
            // Samples from 105 to 295, and from 305 to 395.
            "metrics_summary" | "metrics_by_device_summary" => (2, false),
            // The summary that begins during the job.
            "metrics_by_job_summary" => (1, false),
            "nodetime_per_job" | "nodetime_by_job" | "jobs" | "allocations" | "gaps" => (1, false),
            "counter_starts" => (0, false),
            // Marks of her node during her job, and of her job at any time.
            "marks" => (2, false),
            "promoted_metrics" => (1, false),
            // Her job has ended, and a node is no device of this list.
            "devices" => (0, false),
            // The catalogue lists metrics that can be measured, not data.
            "catalogue" => (3, true),
            _ => panic!("say what a tenant sees of {table}"),
        };
        assert_eq!(alice.len(), rows, "{table}: {alice:?}");
        assert!(all.len() > rows || of_all, "{table} has more: {all:?}");
        assert_eq!(other_tenant.len(), if of_all { rows } else { 0 }, "{table}: {other_tenant:?}");
        let leaks = |row: &String| row.contains("secret") || row.contains("000000.0");
        assert!(of_all || !alice.iter().any(leaks), "{table}: {alice:?}");
        assert!(of_all || all.iter().any(|row| leaks(row) || row.contains('2')), "{table}");
    }
    let counted = "SELECT count(*), max(value) FROM metrics WHERE device_id = 'n1'";
    let result = run_sql_as(&sql, Reader::Tenant(1000), counted).await.unwrap();
    assert_eq!(result, ["30 1.0"], "also when only a sum is returned");
}

#[tokio::test]
async fn functions_show_a_tenant_the_time_of_their_jobs_alone() {
    let lab = shared();
    let sql = engine(&lab, Limits::default());
    let text = "SELECT * FROM get_metrics(nodes => 'n1,secret-node', start_time => '2026-01-06T00:00:00Z', \
                end_time => '2026-01-06T01:00:00Z')";
    let all = run_sql_as(&sql, Reader::Everything, text).await.unwrap();
    let alice = run_sql_as(&sql, Reader::Tenant(1000), text).await.unwrap();
    assert!(alice.len() == 30 && all.len() > 240, "{} {}", alice.len(), all.len());
    assert!(!alice.iter().any(|row| row.contains("secret") || row.contains("000000.0")));
    assert_eq!(run_sql_as(&sql, Reader::Tenant(9), text).await.unwrap(), [""; 0]);
    let of_bob = "SELECT * FROM get_metrics('2', cluster => 'slurm')";
    let error = run_sql_as(&sql, Reader::Tenant(1000), of_bob).await.unwrap_err();
    assert!(matches!(error.status(), 403 | 404), "{error}");
    let available = "SELECT * FROM available_metrics('2026-01-06T00:07:40Z')";
    let all = run_sql_as(&sql, Reader::Everything, available).await.unwrap();
    assert!(all.iter().any(|row| row.contains("secret")), "{all:?}");
    assert_eq!(run_sql_as(&sql, Reader::Tenant(1000), available).await.unwrap(), [""; 0]);
}

#[tokio::test]
async fn marks_are_shown_as_far_as_visible_and_narrowed_by_time() {
    let lab = shared();
    let sql = engine(&lab, Limits::default());
    let all = "SELECT kind, nodes, text, actor, job_id, cluster FROM marks";
    let alice = run_sql_as(&sql, Reader::Tenant(1000), all).await.unwrap();
    assert_eq!(alice, ["flushed n1 cpu - - -", "promoted n7 perf_.* alice 1 slurm"]);
    let narrowed = |time: &str| format!("SELECT id FROM marks WHERE timestamp {time}");
    for (time, want) in [
        ("> '1970-01-01'", 5),
        ("< '1970-01-01'", 0),
        ("IS NULL", 0),
        ("IS NOT NULL AND job_id = 1", 1),
        ("IS NOT NULL AND job_id = 2", 1),
        ("IS NOT NULL AND cluster IS NULL", 3),
    ] {
        let result = run_sql_as(&sql, Reader::Everything, &narrowed(time)).await.unwrap();
        assert_eq!(result.len(), want, "{time}: {result:?}");
    }
}

#[tokio::test]
async fn kills_are_of_the_nodes_that_the_reader_reads() {
    let lab = Lab::new();
    let event = |node: &str, uid: Option<u32>, pid: u32| JobEvent {
        key: key("slurm", 1),
        display_id: "1".into(),
        device: device(node),
        user: None,
        uid,
        start: at(100.0),
        stop: Some(at(400.0)),
        monitor: None,
        oom_kills: vec![OomKill {
            at: at(399.0),
            pid,
            uid,
            task: "secret".into(),
            task_bytes: None,
            limit_bytes: None,
        }],
    };
    // Neither a scheduler's record nor an agent's event states on n2 that its job is Alice's.
    let result = [event("n1", Some(1000), 1), event("n2", None, 2)];
    lab.registry.apply(&result, at(7200.0)).unwrap();
    let sql = engine(&lab, Limits::default());
    let kills = "SELECT oom_kills, end_cause FROM jobs";
    for (reader, want) in [(Reader::Everything, "2 oom kill"), (Reader::Tenant(1000), "1 oom kill")]
    {
        assert_eq!(run_sql_as(&sql, reader, kills).await.unwrap(), [want], "{reader:?}");
    }
}
