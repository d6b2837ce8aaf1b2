//! Golden documents of both layouts.

use super::*;
use colmet::backends::{Backend, PROCSTATS, TASKSTATS};
use config::{JobChoice, OutputConfig, OutputStart};
use model::{Cause, ClusterId, DeviceId, JobId, JobKey, Kind, Labels, Origin, Unit};
use std::collections::BTreeMap;
use storage::{FollowMark, TimeSlice};

const AT: i64 = 1_764_369_000_500_000;

fn settings(options: &[(&'static str, &str)]) -> Settings {
    let given = [("address", "http://es:9200")].into_iter().chain(options.iter().copied());
    let config = OutputConfig {
        name: "es".into(),
        kind: "elasticsearch",
        metrics: Vec::new(),
        devices: None,
        jobs: JobChoice::All,
        every: None,
        from: OutputStart::Now,
        options: given.map(|(name, value)| (name, value.to_owned())).collect::<BTreeMap<_, _>>(),
    };
    Settings::of(&config).unwrap()
}

fn series(metric: &str, job: Option<i64>, labels: &[(&str, &str)]) -> Arc<SeriesInfo> {
    let job = job
        .map(|id| JobKey { cluster: ClusterId::new("oar").unwrap(), id: JobId::new(id).unwrap() });
    let labels = Labels::new(labels.iter().copied()).unwrap();
    let device = DeviceId::new("n1").unwrap();
    let series = Series { device, metric: metric.into(), job, labels };
    Arc::new(SeriesInfo { series, unit: Unit::Count, kind: Kind::Gauge, divisor: 1 })
}

/// A portion of these samples: series, instant, value, start.
fn portion(samples: &[(&Arc<SeriesInfo>, i64, f64, i64)]) -> Portion {
    let rows = samples.iter().map(|(series, at, value, start)| crate::portion::Row {
        series,
        at: *at,
        value: *value,
        start: *start,
    });
    Portion {
        mark: FollowMark { begun: 1, confirmed: 2 },
        samples: crate::portion::slice_of(rows),
        records: Vec::new(),
        gaps: Vec::new(),
        lost: None,
    }
}

fn texts(portion: &Portion) -> Vec<String> {
    encode(portion, &settings(&[])).iter().map(Document::text).collect()
}

const NONE: i64 = TimeSlice::NO_START;

#[test]
fn what_a_source_read_at_an_instant_is_one_document() {
    let (user, idle) = (series("cpu_user", None, &[]), series("cpu_idle", None, &[]));
    let of_cpu = series("cpu_idle", None, &[("cpu", "0")]);
    let of_job = series("cpu_user", Some(7), &[]);
    let load = series("load_1m", None, &[]);
    let mut all = portion(&[
        (&user, AT, 3.25, AT - 9_000_000),
        (&idle, AT, f64::NAN, AT - 10_000_000),
        (&of_cpu, AT, -0.0, NONE),
        (&of_job, AT, 1e300, NONE),
        (&load, AT + 1, 0.1, NONE),
    ]);
    let gap = Gap {
        origin: Origin::new("n1").unwrap(),
        device: DeviceId::new("n1").unwrap(),
        source: "cpu".into(),
        from: Timestamp(AT),
        to: Timestamp(AT + 1),
        cause: Cause::MissedTicks,
        detail: "a \"b\"".into(),
    };
    let lost =
        OutputGap { from: Timestamp(0), to: Timestamp(1), samples: 3, why: "deleted".into() };
    (all.gaps, all.lost) = (vec![gap], Some(lost));
    let head = r#"{"@timestamp":"2025-11-28T22:30:00.5Z","device":"n1","source":"cpu""#;
    assert_eq!(
        texts(&all),
        [
            format!(r#"{head},"labels":{{"cpu": "0"}},"metrics":{{"cpu_idle":-0}}}}"#),
            format!(r#"{head},"start":"2025-11-28T22:29:51.5Z","metrics":{{"cpu_user":3.25}},"not_finite":{{"cpu_idle":"NaN"}}}}"#),
            format!(r#"{head},"job":"oar:7","cluster":"oar","job_id":7,"metrics":{{"cpu_user":1e+300}}}}"#),
            r#"{"@timestamp":"2025-11-28T22:30:00.500001Z","device":"n1","source":"load","metrics":{"load_1m":0.1}}"#.into(),
            r#"{"@timestamp":"2025-11-28T22:30:00.5Z","device":"n1","gap":{"origin":"n1","source":"cpu","from":"2025-11-28T22:30:00.5Z","to":"2025-11-28T22:30:00.500001Z","cause":"missed ticks","detail":"a \"b\""}}"#.into(),
            r#"{"@timestamp":"1970-01-01T00:00:00Z","output_gap":{"from":"1970-01-01T00:00:00Z","to":"1970-01-01T00:00:00.000001Z","samples":3,"why":"deleted"}}"#.into(),
        ]
    );
    for text in texts(&all) {
        serde_json::from_str::<serde_json::Value>(&text).unwrap();
    }
}

#[test]
fn ids_depend_on_the_identity_alone_and_a_second_value_has_its_own() {
    let (user, idle) = (series("cpu_user", None, &[]), series("cpu_idle", None, &[]));
    let ids = |portion: &Portion| {
        encode(portion, &settings(&[])).iter().map(Document::id).collect::<Vec<_>>()
    };
    let both = ids(&portion(&[(&idle, AT, 1.0, NONE), (&user, AT, 2.0, NONE)]));
    let mut one = portion(&[(&user, AT, 5.0, NONE)]);
    one.mark.confirmed = 9;
    assert_eq!((both.len(), ids(&one)), (1, both.clone()));
    let twice = ids(&portion(&[(&user, AT, 1.0, NONE), (&user, AT, 2.0, NONE)]));
    assert_eq!(twice, [both[0].clone(), format!("{}.1", both[0])]);
    let others = [
        portion(&[(&user, AT + 1, 1.0, NONE)]),
        portion(&[(&series("load_1m", None, &[]), AT, 1.0, NONE)]),
        portion(&[(&series("cpu_user", Some(7), &[]), AT, 1.0, NONE)]),
        portion(&[(&series("cpu_user", None, &[("a", "b")]), AT, 1.0, NONE)]),
    ];
    for other in &others {
        assert_ne!(ids(other), both);
    }
}

/// The documents of Colmet's collector, as a server received them.
const CAPTURE: &str =
    include_str!("../../../../../../testdata/colmet/colmet_py_elasticsearch_http_capture.txt");

/// The record of a captured document.
fn record(backend: &'static Backend, document: &str) -> Record {
    let object: BTreeMap<String, serde_json::Value> = serde_json::from_str(document).unwrap();
    let number = |name: &str| object[name].as_i64().unwrap();
    let at = Timestamp(number("timestamp") * Timestamp::SECOND + 999_999);
    let job = number("job_id").try_into().unwrap();
    let mut record = Record::new(backend, object["hostname"].as_str().unwrap(), job, at);
    for column in backend.columns {
        let value = match &object[column.row.theirs] {
            serde_json::Value::Number(number) => Value::of(column.kind, number.as_f64().unwrap()),
            other => Some(Value::Text(other.to_string().into())),
        };
        record.set(column.row.theirs, value.unwrap());
    }
    record
}

#[test]
fn documents_of_colmet_are_those_of_its_collector() {
    let settings = settings(&[("layout", "colmet"), ("cluster", "oar")]);
    let mut lines = CAPTURE.lines();
    let mut compared = 0;
    while let Some(line) = lines.next() {
        let Some((_, rest)) = line.split_once("{ \"create\" : { \"_index\" : \"") else { continue };
        let (index, _) = rest.split_once('"').unwrap();
        let backend = Backend::of_python(index.strip_prefix("colmet_").unwrap()).unwrap();
        let document = lines.next().unwrap();
        let mut all = portion(&[]);
        all.records = vec![record(backend, document)];
        let encoded = encode(&all, &settings);
        assert_eq!(encoded[0].text(), document);
        let (body, _) = super::super::bulk::body(encoded.iter(), 1 << 20);
        let id = format!(", \"_id\" : \"{}\"", encoded[0].id());
        let body = String::from_utf8(body).unwrap();
        assert_eq!(body.replace(&id, ""), format!("{line}\n{document}\n"));
        compared += 1;
    }
    assert_eq!(compared, 5);
}

#[test]
fn missing_values_of_colmet_are_absent() {
    let mut records = [
        Record::new(&TASKSTATS, "n1", 7, Timestamp(AT)),
        Record::new(&PROCSTATS, "n1", 0, Timestamp(AT)),
    ];
    records[0].set("cpu_count", Value::Unsigned(3));
    records[1].set("involved_jobs", Value::Text("[7,8]".into()));
    let of = |record: &Record, cluster| colmet_document(record, "colmet_", cluster);
    assert_eq!(
        of(&records[0], "oar").text(),
        r#"{"hostname": "n1", "job_id": 7, "timestamp": 1764369000, "cpu_count": 3}"#
    );
    assert_eq!(
        of(&records[1], "oar").text(),
        r#"{"hostname": "n1", "job_id": 0, "timestamp": 1764369000, "involved_jobs": [7, 8]}"#
    );
    let id = of(&records[0], "oar").id();
    assert_ne!(id, of(&records[0], "slurm").id());
    records[0].at = Timestamp(AT + 1);
    assert_ne!(id, of(&records[0], "oar").id());
}
