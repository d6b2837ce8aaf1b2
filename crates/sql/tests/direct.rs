//! Statements that the server answers itself have the results that a worker gives.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../../query/tests/lab/mod.rs"]
mod lab;
mod run_sql;

use futures::StreamExt;
use jobs::Reader;
use lab::{Lab, TestSeries, at, key};
use model::{Kind, Unit};
use query::{QueryContext, Settings};
use run_sql::lines;
use sql::{Launch, Limits, NewEncoder, Parameter, Sql, SqlError, WireStatement};

const INT8: u32 = 20;
const TEXT: u32 = 25;
const TIMESTAMPTZ: u32 = 1184;

/// Two nodes with a gauge and a counter with labels, by itself and of a job.
fn filled() -> Lab {
    let lab = Lab::new();
    let samples: Vec<(f64, f64)> =
        (0..300).map(|tick| (f64::from(tick) * 5.0 + 0.25, f64::from(tick % 7) * 1.5)).collect();
    let odd = [(5.0, f64::NAN), (10.0, f64::INFINITY), (15.0, -0.0), (20.0, 1e-7)];
    let counter = TestSeries {
        metric: "energy_joules_total",
        kind: Kind::Counter,
        unit: Unit::Joules,
        start: Some(1.0),
        labels: &[("package", "0"), ("é \"x\"", "y")],
        samples: &samples,
        ..TestSeries::default()
    };
    lab.put(&[
        TestSeries { samples: &samples, ..TestSeries::default() },
        TestSeries { device: "n2", samples: &samples, ..TestSeries::default() },
        TestSeries { device: "odd", samples: &odd, ..TestSeries::default() },
        TestSeries { job: Some(key("local", 7)), metric: "of_job_total", ..counter },
        TestSeries { samples: &samples, ..counter },
    ]);
    lab.job(&key("local", 7), "n1", 1000, 100.0, Some(700.0));
    lab
}

/// An engine that answers by itself, and by workers unless they cannot start.
fn engine(lab: &Lab, launch: Launch, encoder: Option<NewEncoder>, rows_max: u64) -> Sql {
    let zone = query::parse_zone("Europe/Paris").unwrap();
    let limits = Limits { rows_max, ..Limits::default() };
    Sql::new(lab.engine(Settings { zone, ..Settings::default() }), limits, launch, encoder).unwrap()
}

/// Positions of times, types of parameters, and the rows; or the error.
type Answer = Result<(Vec<usize>, Vec<u32>, String), (u16, String, String)>;

async fn answer(
    sql: &Sql,
    reader: Reader,
    (text, zone, wire): (&str, Option<&str>, Option<WireStatement>),
) -> Answer {
    let context = QueryContext::new(reader, at(7200.0));
    let all = async {
        let mut rows = match wire {
            None => sql.query(text, zone, context, sql::Encoding::default()).await?,
            Some(wire) => sql.wire_query(text, wire, zone, context).await?,
        };
        let (times, parameters) = (rows.times().to_vec(), rows.parameters().to_vec());
        let mut all = Vec::new();
        while let Some(piece) = rows.next().await {
            all.extend(piece?.text);
        }
        Ok((times, parameters, String::from_utf8(all).unwrap()))
    };
    all.await
        .map_err(|error: SqlError| (error.status(), error.code().to_owned(), error.to_string()))
}

/// Both ways of a statement. The first one cannot start workers.
struct Both {
    direct: Sql,
    workers: Sql,
    _lab: Lab,
}

impl Both {
    fn start(rows_max: u64) -> Self {
        let lab = filled();
        let nowhere = Launch::Program("/nonexistent/worker".into(), Vec::new());
        let direct = engine(&lab, nowhere, Some(lines), rows_max);
        let workers = engine(&lab, Launch::Threads(lines), None, rows_max);
        Self { direct, workers, _lab: lab }
    }

    /// Fails if the answers differ.
    async fn compare(
        &self,
        reader: Reader,
        zone: Option<&str>,
        text: &str,
        wire: Option<WireStatement>,
    ) -> Answer {
        let direct = answer(&self.direct, reader, (text, zone, wire.clone())).await;
        let worker = answer(&self.workers, reader, (text, zone, wire)).await;
        assert_eq!(direct, worker, "{text}");
        direct
    }
}

const ARGUMENTS: &[&str] = &[
    "job_id => 7",
    "7",
    "'7'",
    "007, null, null, 'of_job_total'",
    "job_id := 7, as_rate => true",
    "job_id => 7, as_rate => 'auto', summary => true",
    "nodes => 'n1', start_time => '2026-01-06T00:00:00', end_time => '2026-01-06T00:25:00'",
    "NULL, 'n1,n2', NULL, 'load_1m', '2026-01-06 00:00:00+00', '2026-01-06 00:30:00+00'",
    "NULL, 'n1', NULL, 'energy_joules_total', '2026-01-06', '2026-01-06T01:30', false, true",
    "devices => 'n1', METRICS => 'load_1m,energy_joules_total', start_time => '2026-01-06', end_time => 'now'",
    "devices => 'odd', start_time => '2026-01-06', end_time => 'now'",
    "devices => 'it''s none', start_time => '2026-01-06', end_time => 'now'",
    "devices => 'n1', summary => true, start_time => '2026-01-06', end_time => 'now'",
    "cluster => 'local', job_id => 7, metrics => 'load_1m'",
    "start_time => '2026-01-06', end_time => 'now', devices => ''",
    "",
    // Errors.
    "job_id => 8",
    "job_id => 'seven'",
    "job_id => 7, cluster => 'a:b'",
    "devices => 'n1', start_time => 'nix'",
    "devices => 'n1', as_rate => 'perhaps'",
    "devices => 'n1', start_time => '2026-02-30'",
];

#[tokio::test]
async fn results_are_those_of_a_worker() {
    let both = Both::start(1_000_000);
    let columns =
        ["*", "timestamp, value", "value", "labels, \"device_id\", metric_id, timestamp", "LABELS"];
    let rests = ["", " ORDER BY timestamp", " LIMIT 3", " ORDER BY \"timestamp\" ASC LIMIT 100000"];
    let readers = [Reader::Everything, Reader::User(1000), Reader::Tenant(2000), Reader::Nodes];
    let zones = [None, Some("UTC"), Some("+05:30")];
    let (mut rows, mut errors) = (0, 0);
    for (nth, arguments) in ARGUMENTS.iter().enumerate() {
        for step in 0..4 {
            let (column, rest) = (columns[(nth + step) % 5], rests[(nth + step) % 4]);
            let schema = ["api.", ""][nth % 2];
            let text = format!("SELECT {column} FROM {schema}get_metrics({arguments}){rest}");
            let (reader, zone) = (readers[(nth + step) % 4], zones[(nth + step / 2) % 3]);
            match both.compare(reader, zone, &text, None).await {
                Ok((_, _, text)) => rows += text.lines().count(),
                Err(_) => errors += 1,
            }
        }
    }
    assert!(rows > 1000 && errors > 20, "{rows} {errors}");
}

#[tokio::test]
async fn other_statements_need_a_worker() {
    let both = Both::start(1_000_000);
    for text in [
        "SELECT * FROM get_metrics(job_id => 7) WHERE value > 1",
        "SELECT value, value FROM get_metrics(job_id => 7)",
        "SELECT nix FROM get_metrics(job_id => 7)",
        "SELECT * FROM get_metrics(nix => 7)",
        "SELECT * FROM get_metrics(job_id => 7, job_id => 7)",
        "SELECT * FROM get_metrics(1,2,3,4,5,6,7,8,9,10)",
        "SELECT * FROM public.get_metrics(7)",
        "SELECT * FROM get_metrics(job_id => 7) ORDER BY value",
        "SELECT * FROM get_metrics(job_id => $1)",
        "SELECT * FROM available_metrics()",
        "SELECT * FROM get_job_metrics(7)",
    ] {
        let direct = answer(&both.direct, Reader::Everything, (text, None, None)).await;
        assert!(direct.unwrap_err().2.contains("cannot start a process"), "{text}");
    }
    // The limits of a text precede it.
    let long = format!("SELECT * FROM get_metrics('{}')", "x".repeat(70_000));
    both.compare(Reader::Everything, None, &long, None).await.unwrap_err();
    both.compare(Reader::Everything, Some("Nowhere"), "SELECT * FROM get_metrics(7)", None)
        .await
        .unwrap_err();
}

#[tokio::test]
async fn parameters_and_descriptions_are_those_of_a_worker() {
    let both = Both::start(1_000_000);
    let parameter = |oid, value: Option<&str>| Parameter { oid, value: value.map(str::to_owned) };
    let text = "SELECT timestamp, value FROM api.get_metrics(job_id => $2, metrics => $1)";
    for (oids, values) in [
        ([0, 0], ["load_1m", "7"]),
        ([TEXT, INT8], ["load_1m", " 7 "]),
        ([TEXT, TEXT], ["it's", "seven"]),
        ([0, 0], ["", ""]),
    ] {
        for describes in [false, true] {
            let value = |value| if describes { None } else { Some(value) };
            let parameters = [0, 1].map(|nth| parameter(oids[nth], value(values[nth])));
            let parameters = parameters.to_vec();
            let wire = WireStatement { parameters, describes, ..WireStatement::default() };
            let answer = both.compare(Reader::Everything, None, text, Some(wire)).await;
            if let (true, Ok((times, types, rows))) = (describes, answer) {
                let want = oids.map(|oid| if oid == 0 { TEXT } else { oid });
                assert_eq!((times, types, rows), (vec![0], want.to_vec(), String::new()));
            }
        }
    }
    // Without any parameter given, a description names those of the text.
    let wire = WireStatement { describes: true, ..WireStatement::default() };
    let (_, types, _) = both.compare(Reader::Everything, None, text, Some(wire)).await.unwrap();
    assert_eq!(types, [TEXT, TEXT]);
    // Values of other types, null and missing ones need a worker.
    for given in [
        vec![parameter(TEXT, None), parameter(INT8, Some("7"))],
        vec![parameter(TEXT, Some("x")), parameter(TIMESTAMPTZ, Some("2026-01-06"))],
        vec![parameter(TEXT, Some("x")), parameter(INT8, Some("-7"))],
        vec![parameter(TEXT, Some("x")), parameter(INT8, Some("x"))],
        vec![parameter(TEXT, Some("x"))],
    ] {
        let wire = WireStatement { parameters: given, ..WireStatement::default() };
        let direct = answer(&both.direct, Reader::Everything, (text, None, Some(wire))).await;
        assert!(direct.unwrap_err().2.contains("cannot start a process"));
    }
}

#[tokio::test]
async fn limits_of_rows_are_those_of_a_worker() {
    let both = Both::start(100);
    let rows = "get_metrics(devices => 'n2', start_time => '2026-01-06', end_time => 'now')";
    for (rest, has_rows) in [("", false), (" LIMIT 100", true), (" LIMIT 101", false)] {
        let text = format!("SELECT * FROM {rows}{rest}");
        let answer = both.compare(Reader::Everything, None, &text, None).await;
        assert_eq!(answer.is_ok(), has_rows, "{rest}: {answer:?}");
    }
    assert_eq!(both.direct.load().ended, both.workers.load().ended);
    assert_eq!(both.direct.load().running, 0);
}

#[tokio::test]
async fn a_dropped_result_frees_its_turn() {
    let both = Both::start(1_000_000);
    let text = "SELECT * FROM get_metrics(devices => 'n1,n2', start_time => '2026-01-06', end_time => 'now')";
    for _ in 0..20 {
        let context = QueryContext::new(Reader::Everything, at(7200.0));
        let rows = both.direct.query(text, None, context, sql::Encoding::default()).await.unwrap();
        drop(rows);
    }
    for _ in 0..100 {
        if both.direct.load().running == 0 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(both.direct.load().running, 0);
}
