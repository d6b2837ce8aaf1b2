//! Tests of SQL: the tables, and rejected statements.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../../query/tests/lab/mod.rs"]
mod lab;
mod run_sql;

use jobs::{JobRecord, NodeShare, Reader};
use lab::{Lab, TestSeries, at, key};
use model::{Cause, DeviceId, Gap, JobState, Kind, Origin, Unit};
use query::Settings;
use run_sql::{engine, engine_with, rejected, request_in, run_sql, run_sql_as};
use sql::Limits;

/// Jobs 7 and 8 on n1 at the same time, the node itself, and a port that an alias assigns to n1.
fn filled() -> Lab {
    let lab = Lab::new();
    let counted = |job, samples| TestSeries {
        metric: "cpu_seconds_total",
        kind: Kind::Counter,
        unit: Unit::Seconds,
        job: Some(job),
        start: Some(5.0),
        samples,
        ..TestSeries::default()
    };
    lab.put(&[
        counted(key("local", 7), &[(10.0, 7.0), (20.0, 27.0)]),
        counted(key("slurm", 8), &[(10.0, 1.0), (20.0, 2.0)]),
        TestSeries {
            labels: &[("cpu", "0")],
            samples: &[(10.0, 0.5), (30.0, 0.75)],
            ..TestSeries::default()
        },
        TestSeries {
            device: "pdu-port1",
            metric: "power_watts",
            labels: &[("_device_alias", "n1")],
            samples: &[(12.0, 90.0)],
            ..TestSeries::default()
        },
    ]);
    lab.job(&key("local", 7), "n1", 1000, 5.0, Some(25.0));
    lab.job(&key("slurm", 8), "n1", 1001, 8.0, None);
    lab
}

#[tokio::test]
async fn metrics_show_what_was_stored() {
    let lab = filled();
    let sql = engine(&lab, Limits::default());
    let text = "SELECT * FROM metrics ORDER BY timestamp, device_id, metric_id, job_id";
    assert_eq!(
        run_sql(&sql, text).await,
        [
            r#"2026-01-06T00:00:10Z n1 cpu_seconds_total 7.0 {"_job_id": "7"} 7 local"#,
            r#"2026-01-06T00:00:10Z n1 cpu_seconds_total 1.0 {"_job_id": "8", "_cluster": "slurm"} 8 slurm"#,
            r#"2026-01-06T00:00:10Z n1 load_1m 0.5 {"cpu": "0"} - -"#,
            r#"2026-01-06T00:00:12Z pdu-port1 power_watts 90.0 {"_device_alias": "n1"} - -"#,
            r#"2026-01-06T00:00:20Z n1 cpu_seconds_total 27.0 {"_job_id": "7"} 7 local"#,
            r#"2026-01-06T00:00:20Z n1 cpu_seconds_total 2.0 {"_job_id": "8", "_cluster": "slurm"} 8 slurm"#,
            r#"2026-01-06T00:00:30Z n1 load_1m 0.75 {"cpu": "0"} - -"#,
        ]
    );
    assert_eq!(run_sql(&sql, "SELECT count(*) FROM metrics").await, ["7"]);
}

#[tokio::test]
async fn functions_of_kwollect_are_tables() {
    let lab = filled();
    let sql = engine(&lab, Limits::default());
    let within = "start_time => '2026-01-06T00:00:00Z', end_time => '2026-01-06T00:01:00Z'";
    let all =
        run_sql(&sql, &format!("SELECT * FROM api.get_metrics(nodes => 'n1', {within})")).await;
    assert_eq!(
        all,
        [
            r#"2026-01-06T00:00:10Z n1 cpu_seconds_total 7.0 {"_job_id": "7"}"#,
            r#"2026-01-06T00:00:10Z n1 cpu_seconds_total 1.0 {"_job_id": "8", "_cluster": "slurm"}"#,
            r#"2026-01-06T00:00:10Z n1 load_1m 0.5 {"cpu": "0"}"#,
            r#"2026-01-06T00:00:12Z n1 power_watts 90.0 {"_device_orig": ["pdu-port1"]}"#,
            r#"2026-01-06T00:00:20Z n1 cpu_seconds_total 27.0 {"_job_id": "7"}"#,
            r#"2026-01-06T00:00:20Z n1 cpu_seconds_total 2.0 {"_job_id": "8", "_cluster": "slurm"}"#,
            r#"2026-01-06T00:00:30Z n1 load_1m 0.75 {"cpu": "0"}"#,
        ]
    );
    for (text, want) in [
        // By position, by PostgreSQL's older operator, with null, and as rates of which the first has no value.
        ("value FROM get_metrics(7, NULL, NULL, 'load_1m')", &["0.5"][..]),
        (
            "value FROM get_metrics(job_id := 7, cluster := 'local', metrics := 'cpu_seconds_total', as_rate := true) ORDER BY timestamp",
            &["1.4", "2.0"],
        ),
        (
            "value FROM get_metrics(nodes := 'n1', metrics := 'load_1m', as_rate := true, \
             start_time := '2026-01-06T00:00:00Z') ORDER BY timestamp",
            &["-", "0.0125"],
        ),
        (
            "count(*) FROM get_metrics(nodes => 'n' || '1', start_time => '2026-01-06T00:00:15Z') AS m WHERE m.value > 1",
            &["2"],
        ),
        (
            "a.metric_id FROM available_metrics('2026-01-06T00:00:25Z') AS a WHERE a.device_id = 'pdu-port1'",
            &["power_watts"],
        ),
        ("count(*) FROM available_metrics(params => '{\"job_id\": 7}')", &["3"]),
    ] {
        assert_eq!(run_sql(&sql, &format!("SELECT {text}")).await, want, "{text}");
    }
    for (text, status, message) in [
        ("get_metrics(node => 'n1')", 400, "get_metrics has no parameter `node`"),
        ("get_metrics('7', job_id => 7)", 400, "`job_id` is given twice"),
        ("get_metrics(nodes => device_id)", 400, "the argument nodes must be a constant"),
        ("get_metrics()", 400, "Missing 'devices', 'nodes' or 'job_id' argument"),
        ("get_metrics(nodes => 'n1', start_time => 'x')", 400, "timestamp with time zone"),
        ("get_metrics(99)", 404, "99"),
        ("available_metrics(params => '7')", 400, "params is a JSON object"),
        ("get_job('x')", 400, "there is no table function `get_job`"),
    ] {
        let (found, text_of) = rejected(&sql, &format!("SELECT * FROM {text}")).await;
        assert!(found == status && text_of.contains(message), "{text}: {found} {text_of}");
    }
}

#[tokio::test]
async fn devices_have_what_was_measured_for_them() {
    let lab = filled();
    let sql = engine(&lab, Limits::default());
    let text = "SELECT value, labels FROM metrics_by_device WHERE device_id = 'n1' AND metric_id = 'power_watts'";
    assert_eq!(run_sql(&sql, text).await, [r#"90.0 {"_device_orig": ["pdu-port1"]}"#]);
    let port = "SELECT value, labels FROM metrics_by_device WHERE device_id = 'pdu-port1'";
    assert_eq!(run_sql(&sql, port).await, ["90.0 {}"]);
    assert_eq!(run_sql(&sql, "SELECT count(*) FROM metrics_by_device").await, ["8"]);
}

#[tokio::test]
async fn summaries_are_five_minutes_of_the_same_rows() {
    let lab = filled();
    let sql = engine(&lab, Limits::default());
    for table in ["metrics", "metrics_by_device"] {
        let summary = format!(
            "SELECT timestamp, device_id, metric_id, value, labels, job_id FROM {table}_summary
             ORDER BY 1, 2, 3, 5"
        );
        let same = format!(
            "SELECT date_bin(INTERVAL '5 minutes', timestamp), device_id, metric_id,
               CASE WHEN metric_id LIKE '%_total' THEN max(value) ELSE avg(value) END, labels, job_id
             FROM {table} GROUP BY 1, 2, 3, 5, 6 ORDER BY 1, 2, 3, 5"
        );
        let rows = run_sql(&sql, &summary).await;
        assert!(rows.len() > 3, "{rows:?}");
        assert_eq!(rows, run_sql(&sql, &same).await);
    }
    // A condition does not split a 5-minute summary. Summaries that begin in the range are returned whole.
    let cut = "SELECT count(*) FROM metrics_summary WHERE timestamp > '2026-01-06T00:00:00Z'";
    assert_eq!(run_sql(&sql, cut).await, ["0"]);
    let by_job = "SELECT DISTINCT job_id FROM metrics_by_job_summary WHERE job_id = 7";
    assert_eq!(run_sql(&sql, by_job).await, ["7"]);
}

#[tokio::test]
async fn jobs_have_theirs_and_their_nodes_but_never_another_jobs() {
    let lab = filled();
    let sql = engine(&lab, Limits::default());
    let text = "SELECT timestamp, metric_id, value, start_time, stop_time, job_id, cluster
        FROM metrics_by_job WHERE job_id = 7 ORDER BY timestamp, metric_id";
    let interval_text = "2026-01-06T00:00:05Z 2026-01-06T00:00:25Z 7 local";
    assert_eq!(
        run_sql(&sql, text).await,
        [
            format!("2026-01-06T00:00:10Z cpu_seconds_total 7.0 {interval_text}"),
            format!("2026-01-06T00:00:10Z load_1m 0.5 {interval_text}"),
            format!("2026-01-06T00:00:12Z power_watts 90.0 {interval_text}"),
            format!("2026-01-06T00:00:20Z cpu_seconds_total 27.0 {interval_text}"),
        ]
    );
    // Both jobs run at the same time: rows of the node are attributed to both, rows of a job to that job alone.
    let both = "SELECT job_id, metric_id, count(*), sum(value) FROM metrics_by_job GROUP BY 1, 2 ORDER BY 1, 2";
    assert_eq!(
        run_sql(&sql, both).await,
        [
            "7 cpu_seconds_total 2 34.0",
            "7 load_1m 1 0.5",
            "7 power_watts 1 90.0",
            "8 cpu_seconds_total 2 3.0",
            "8 load_1m 2 1.25",
            "8 power_watts 1 90.0",
        ]
    );
    let none = "SELECT count(*) FROM metrics_by_job WHERE job_id = 8 AND cluster = 'local'";
    assert_eq!(run_sql(&sql, none).await, ["0"]);
}

#[tokio::test]
async fn small_tables() {
    let lab = filled();
    let name = |text: &str| DeviceId::new(text).unwrap();
    lab.put_gap(Gap {
        origin: Origin::new("lab").unwrap(),
        device: name("n1"),
        source: "".into(),
        from: at(100.0),
        to: at(110.0),
        cause: Cause::AgentDown,
        detail: "was away".into(),
    });
    let sql = engine(&lab, Limits::default());
    let node = [
        "7 2026-01-06T00:00:05Z 2026-01-06T00:00:25Z n1 local",
        "8 2026-01-06T00:00:08Z - n1 slurm",
    ];
    for table in ["nodetime_per_job", "nodetime_by_job"] {
        assert_eq!(run_sql(&sql, &format!("SELECT * FROM {table} ORDER BY job_id")).await, node);
    }
    let jobs = "SELECT job_id, cluster, display_id, user_name, user_id, state, stop_time IS NULL, exit_code FROM jobs ORDER BY 1";
    assert_eq!(
        run_sql(&sql, jobs).await,
        ["7 local 7 alice 1000 ended false -", "8 slurm 8 1001 1001 running true -"]
    );
    let allocations =
        "SELECT job_id, device_id, start_time = job_start_time FROM allocations ORDER BY 1";
    assert_eq!(run_sql(&sql, allocations).await, ["7 n1 true", "8 n1 true"]);
    let gaps = "SELECT origin, device_id, source, to_time - from_time, cause, detail FROM gaps";
    assert_eq!(run_sql(&sql, gaps).await, ["lab n1  PT10S agent down was away"]);
    let starts = "SELECT device_id, metric_id, start_time, job_id FROM counter_starts WHERE metric_id = 'cpu_seconds_total' AND cluster = 'slurm'";
    assert_eq!(run_sql(&sql, starts).await, ["n1 cpu_seconds_total 2026-01-06T00:00:05Z 8"]);
    let catalogue = "SELECT name, unit, kind FROM catalogue ORDER BY name";
    assert_eq!(
        run_sql(&sql, catalogue).await,
        ["cpu_seconds_total seconds counter", "load_1m  gauge", "power_watts  gauge"]
    );
}

#[tokio::test]
async fn an_allocation_shows_the_jobs_share_of_the_device() {
    let lab = filled();
    let share = |node, cpus, gpus, memory_bytes| NodeShare {
        device: DeviceId::new(node).unwrap(),
        cpus,
        cpu_list: Box::default(),
        gpus,
        gpu_list: Box::default(),
        memory_bytes,
    };
    let record = JobRecord {
        start: Some(at(7.0)),
        nodes: vec![
            share("n1", Some(16), Some(2), Some(1 << 36)),
            share("n2", Some(8), None, Some(u64::MAX)),
        ],
        ..JobRecord::new(key("slurm", 8), at(6.0), JobState::Running)
    };
    lab.registry.ingest(&[record], at(30.0)).unwrap();
    let sql = engine(&lab, Limits::default());
    let text = "SELECT job_id, device_id, cpus, gpus, memory_bytes FROM allocations ORDER BY 1, 2";
    // No scheduler reports anything about job 7. A value above 8 EiB is capped.
    assert_eq!(
        run_sql(&sql, text).await,
        ["7 n1 - - -", "8 n1 16 2 68719476736", "8 n2 8 - 9223372036854775807"]
    );
    let sum = "SELECT sum(cpus), count(gpus) FROM allocations WHERE job_id = 8";
    assert_eq!(run_sql(&sql, sum).await, ["24 1"]);
    assert_eq!(run_sql(&sql, "SELECT device_id FROM allocations WHERE cpus = 8").await, ["n2"]);
}

#[tokio::test]
async fn labels_are_read_by_key() {
    let lab = filled();
    let sql = engine(&lab, Limits::default());
    let text = "SELECT DISTINCT metric_id, label(labels, 'cpu'), labels->>'_job_id' FROM metrics ORDER BY 1, 3";
    let expected =
        ["cpu_seconds_total - 7", "cpu_seconds_total - 8", "load_1m 0 -", "power_watts - -"];
    assert_eq!(run_sql(&sql, text).await, expected);
    let filter = "SELECT count(*) FROM metrics WHERE labels->>'cpu' = '0'";
    assert_eq!(run_sql(&sql, filter).await, ["2"]);
}

#[tokio::test]
async fn conditions_give_what_the_engine_would() {
    let lab = filled();
    let sql = engine(&lab, Limits::default());
    for (condition, rows) in [
        ("job_id = 7", "2"),
        ("job_id IN (7, 8, 9)", "4"),
        ("job_id IS NULL", "3"),
        ("cluster IS NOT NULL", "4"),
        ("cluster = 'slurm'", "2"),
        ("cluster = 'slurm' AND job_id = 7", "0"),
        ("job_id <> 7", "2"),
        ("device_id IN ('n1', 'nowhere')", "6"),
        ("device_id LIKE 'pdu%'", "1"),
        ("metric_id = 'load_1m' OR metric_id = 'power_watts'", "3"),
        ("timestamp >= '2026-01-06T00:00:20'", "3"),
        ("timestamp > '2026-01-06T00:00:20Z'", "1"),
        ("timestamp BETWEEN '2026-01-06 00:00:10' AND '2026-01-06 00:00:12'", "4"),
        ("timestamp < '2026-01-06T02:00:12+02:00'", "3"),
        ("timestamp > now() - interval '1 hour 59 minutes 45 seconds'", "3"),
        ("timestamp = '2026-01-06T00:00:12'", "1"),
        ("value > 10", "2"),
        ("device_id = 'n1' AND device_id = 'n2'", "0"),
    ] {
        let text = format!("SELECT count(*) FROM metrics WHERE {condition}");
        assert_eq!(run_sql(&sql, &text).await, [rows], "{condition}");
    }
    assert_eq!(run_sql(&sql, "SELECT value FROM metrics LIMIT 3").await.len(), 3);
}

#[tokio::test]
async fn times_without_a_zone_are_the_servers() {
    let lab = filled();
    let zone = query::parse_zone("Europe/Paris").unwrap();
    let settings = Settings { zone, ..Settings::default() };
    let sql = engine_with(&lab, settings, Limits::default());
    let text = "SELECT timestamp FROM metrics WHERE timestamp > '2026-01-06T01:00:25'";
    assert_eq!(run_sql(&sql, text).await, ["2026-01-06T01:00:30+01:00"]);
}

#[tokio::test]
async fn a_time_zone_of_the_client_is_that_of_the_whole_statement() {
    let lab = filled();
    let sql = engine(&lab, Limits::default());
    let all = Reader::Everything;
    let text = "SELECT device_id, timestamp, date_trunc('day', timestamp), extract(hour FROM timestamp), \
                to_char(timestamp, 'HH24'), timestamp AT TIME ZONE 'Asia/Tokyo' AS tokyo, timestamp::text AS written \
                FROM metrics WHERE timestamp > '2026-01-06 01:00:25'";
    for zone in ["Europe/Paris", "+01:00"] {
        let (rows, times) = request_in(&sql, all, Some(zone), text).await.unwrap();
        let cells: Vec<&str> = rows[0].split(' ').collect();
        let want = ["2026-01-06T01:00:30+01:00", "2026-01-06T00:00:00+01:00", "1"];
        assert_eq!((rows.len(), &cells[1..4]), (1, &want[..]), "{zone}: {rows:?}");
        assert_eq!(cells[4], "01", "{zone}");
        assert!(rows[0].contains("2026-01-06T09:00:30+09:00"), "{zone}: {rows:?}");
        assert_eq!(times, [1, 2], "{zone}: only times in the statement's zone are shown");
    }
    for zone in ["Mars/Olympus", "", "+99:00", "a\u{1b}[2J"] {
        let error = request_in(&sql, all, Some(zone), "SELECT 1").await.unwrap_err();
        assert_eq!((error.status(), error.code()), (400, "22023"), "{zone}");
        assert!(!error.to_string().contains('\u{1b}'), "{error}");
    }
}

#[tokio::test]
async fn only_select_is_answered() {
    let lab = filled();
    let sql = engine(&lab, Limits::default());
    let file = lab.path().join("out.csv");
    let file = file.to_str().unwrap();
    for text in [
        format!("COPY (SELECT 1) TO '{file}'"),
        format!("COPY metrics TO '{file}'"),
        format!("CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '{file}'"),
        "CREATE TABLE x AS SELECT 1".to_owned(),
        "SELECT 1 INTO x".to_owned(),
        "CREATE VIEW x AS SELECT 1".to_owned(),
        "INSERT INTO metrics VALUES (now(), 'a', 'b', 1, '{}', NULL, NULL)".to_owned(),
        "DELETE FROM metrics".to_owned(),
        "UPDATE metrics SET value = 0".to_owned(),
        "TRUNCATE metrics".to_owned(),
        "DROP TABLE metrics".to_owned(),
        "SET datafusion.execution.batch_size = 1".to_owned(),
        "SET search_path = x".to_owned(),
        "RESET ALL".to_owned(),
        "SHOW ALL".to_owned(),
        "EXPLAIN DROP TABLE metrics".to_owned(),
        format!("EXPLAIN ANALYZE COPY (SELECT 1) TO '{file}'"),
        "PREPARE p AS SELECT 1".to_owned(),
        "BEGIN".to_owned(),
        "WITH x AS (INSERT INTO metrics VALUES (now(), 'a', 'b', 1, '{}', NULL, NULL)) SELECT 1"
            .to_owned(),
    ] {
        let (status, message) = rejected(&sql, &text).await;
        assert!(status == 403 || status == 400, "{text}: {status} {message}");
    }
    assert!(!lab.path().join("out.csv").exists_or_fails());
    for text in ["SELECT 1; SELECT 2", "SELECT 1; DROP TABLE metrics", "", ";", "SELEC 1"] {
        assert_eq!(rejected(&sql, text).await.0, 400, "{text}");
    }
}

#[tokio::test]
async fn no_statement_reaches_a_file() {
    let lab = filled();
    let sql = engine(&lab, Limits::default());
    let file = lab.path().join("registry.sqlite");
    let file = file.to_str().unwrap();
    for text in [
        format!("SELECT * FROM '{file}'"),
        format!("SELECT * FROM \"{file}\""),
        "SELECT * FROM '/etc/passwd'".to_owned(),
        "SELECT * FROM read_csv('/etc/passwd')".to_owned(),
        "SELECT * FROM information_schema.df_settings".to_owned(),
        "SELECT * FROM parquet_metadata('/etc/passwd')".to_owned(),
    ] {
        let (status, message) = rejected(&sql, &text).await;
        assert_eq!(status, 400, "{text}: {message}");
    }
}

#[tokio::test]
async fn nothing_large_is_made_of_something_small() {
    let lab = filled();
    let sql = engine(&lab, Limits::default());
    for call in [
        "repeat('x', 2000000000)",
        "lpad('x', 2000000000)",
        "rpad('x', 2000000000)",
        "replace('xxxx', 'x', 'xxxx')",
        "regexp_replace('xxxx', 'x', 'xxxx', 'g')",
        "array_repeat(1, 2000000000)",
        "list_repeat(1, 2000000000)",
        "array_resize([1], 2000000000)",
        "list_resize([1], 2000000000)",
        "range(2000000000)",
        "generate_series(1, 2000000000)",
    ] {
        let (status, message) = rejected(&sql, &format!("SELECT {call}")).await;
        assert_eq!(
            (status, message.contains("there is no function")),
            (400, true),
            "{call}: {message}"
        );
    }
    assert_eq!(rejected(&sql, "SELECT * FROM generate_series(1, 1000000000000)").await.0, 400);
    assert_eq!(run_sql(&sql, "SELECT upper('x') || lower('Y')").await, ["Xy"]);
}

#[tokio::test]
async fn what_is_looked_up_of_jobs_is_what_a_scan_finds() {
    let lab = filled();
    let sql = engine(&lab, Limits::default());
    for (looked_up, scanned) in [
        ("jobs WHERE job_id = 7", "jobs WHERE job_id + 0 = 7"),
        ("jobs WHERE job_id IN (7, 8, 99)", "jobs WHERE job_id + 0 IN (7, 8, 99)"),
        ("jobs WHERE user_id = 1000", "jobs WHERE user_id + 0 = 1000"),
        ("jobs WHERE cluster = 'local'", "jobs WHERE cluster || '' = 'local'"),
        ("jobs WHERE state = 'running'", "jobs WHERE state || '' = 'running'"),
        ("allocations WHERE job_id = 8", "allocations WHERE job_id + 0 = 8"),
        ("allocations WHERE device_id = 'n1'", "allocations WHERE device_id || '' = 'n1'"),
        ("nodetime_by_job WHERE node = 'n2'", "nodetime_by_job WHERE node || '' = 'n2'"),
        (
            "jobs WHERE start_time > '2020-01-01' AND stop_time <= '2040-01-01'",
            "jobs WHERE stop_time IS NOT NULL",
        ),
    ] {
        let rows = |from: &str| format!("SELECT job_id FROM {from} ORDER BY 1");
        assert_eq!(
            run_sql(&sql, &rows(looked_up)).await,
            run_sql(&sql, &rows(scanned)).await,
            "{looked_up}"
        );
    }
}

#[tokio::test]
async fn a_reader_sees_no_job_of_somebody_else() {
    let lab = filled();
    let sql = engine(&lab, Limits::default());
    let alice = Reader::User(1000);
    for (text, expected) in [
        ("SELECT DISTINCT job_id FROM metrics ORDER BY 1", vec!["7", "-"]),
        ("SELECT DISTINCT job_id FROM metrics_by_job", vec!["7"]),
        ("SELECT job_id FROM jobs", vec!["7"]),
        ("SELECT job_id FROM nodetime_by_job", vec!["7"]),
        ("SELECT job_id FROM allocations", vec!["7"]),
        ("SELECT DISTINCT job_id FROM counter_starts", vec!["7"]),
        ("SELECT count(*) FROM metrics WHERE job_id = 8", vec!["0"]),
    ] {
        assert_eq!(run_sql_as(&sql, alice, text).await.unwrap(), expected, "{text}");
    }
}

/// [`std::path::Path::try_exists`] with a failure of the test for an error.
trait Exists {
    fn exists_or_fails(&self) -> bool;
}

impl Exists for std::path::PathBuf {
    fn exists_or_fails(&self) -> bool {
        self.try_exists().unwrap()
    }
}
