//! Tests `get_metrics`: compatibility with Kwollect, and separate results for two jobs on one node.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod lab;

use jobs::Reader;
use lab::{Lab, TestSeries, at, key};
use model::Kind;
use query::{Format, GetMetrics, QueryContext, QueryEngine, QueryError, Settings};
use serde_json::{Value, json};

/// Queries at 2 h after the start of the day.
fn run_query_as(
    engine: &QueryEngine,
    reader: Reader,
    pairs: &[(&str, &str)],
) -> Result<Vec<Value>, QueryError> {
    let query = GetMetrics::from_pairs(pairs.iter().copied())?;
    let context = QueryContext::new(reader, at(7200.0));
    let answer = engine.get_metrics(&query, Format::Json, &context)?;
    let pieces: Result<Vec<Vec<u8>>, QueryError> = answer.collect();
    Ok(serde_json::from_slice(&pieces?.concat()).unwrap())
}

fn run_query(lab: &Lab, pairs: &[(&str, &str)]) -> Vec<Value> {
    run_query_as(&lab.engine(Settings::default()), Reader::Everything, pairs).unwrap()
}

fn error(lab: &Lab, pairs: &[(&str, &str)]) -> (u16, &'static str, String) {
    let engine = lab.engine(Settings::default());
    let error = run_query_as(&engine, Reader::Everything, pairs).unwrap_err();
    (error.status(), error.code(), error.to_string())
}

/// Minutes and seconds, device, value and labels of each row.
fn brief(rows: &[Value]) -> Vec<(String, String, Value, Value)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let time = |value: &Value| text(value).split_off(14).trim_end_matches("+00:00").to_owned();
    let row = |row: &Value| {
        let (device, value) = (text(&row["device_id"]), row["value"].clone());
        (time(&row["timestamp"]), device, value, row["labels"].clone())
    };
    rows.iter().map(row).collect()
}

const ALL: [(&str, &str); 2] = [("start_time", "2026-01-06"), ("end_time", "2026-01-07")];

fn with<'a>(pairs: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    pairs.iter().copied().chain(ALL).collect()
}

#[test]
fn five_keys_in_order_ascending_by_time() {
    let lab = Lab::new();
    let later = [(20.0, 98.0), (30.5, f64::NAN)];
    lab.put(&[
        TestSeries {
            metric: "b",
            samples: &later,
            labels: &[("interface", "eth0")],
            ..TestSeries::default()
        },
        TestSeries { metric: "a", samples: &[(10.0, 0.25), (20.0, 1e16)], ..TestSeries::default() },
        TestSeries { device: "n2", samples: &[(15.0, 1.0)], ..TestSeries::default() },
    ]);
    let engine = lab.engine(Settings::default());
    let query = GetMetrics::from_pairs(with(&[("nodes", "n1.site.example")])).unwrap();
    let context = QueryContext::new(Reader::Everything, at(7200.0));
    let answer = engine.get_metrics(&query, Format::Json, &context).unwrap();
    let text = answer.map(Result::unwrap).collect::<Vec<_>>().concat();
    let expected = concat!(
        r#"[{"timestamp":"2026-01-06T00:00:10+00:00","device_id":"n1","metric_id":"a","value":0.25,"labels":{}}, "#,
        "\n ",
        r#"{"timestamp":"2026-01-06T00:00:20+00:00","device_id":"n1","metric_id":"a","value":1e+16,"labels":{}}, "#,
        "\n ",
        r#"{"timestamp":"2026-01-06T00:00:20+00:00","device_id":"n1","metric_id":"b","value":98,"labels":{"interface": "eth0"}}, "#,
        "\n ",
        r#"{"timestamp":"2026-01-06T00:00:30.5+00:00","device_id":"n1","metric_id":"b","value":"NaN","labels":{"interface": "eth0"}}]"#
    );
    assert_eq!(String::from_utf8(text).unwrap(), expected);
}

/// In memory, from a block, and with the labels that a query adds.
#[test]
fn labels_of_any_json_value_are_returned_as_stored() {
    let lab = Lab::new();
    let json = |json| TestSeries {
        json_labels: Some(json),
        samples: &[(10.0, 1.0)],
        ..TestSeries::default()
    };
    let text = r#"{"cpu": 0, "psu": {"b": [true, null], "a": "x"}}"#;
    lab.put(&[json(text), TestSeries { job: Some(key("oar", 7)), ..json(r#"{"cpu": 1.50}"#) }]);
    for _ in 0..2 {
        let rows = run_query(&lab, &with(&[("devices", "n1")]));
        let mut found: Vec<_> = rows.iter().map(|row| row["labels"].to_string()).collect();
        found.sort();
        let of_job = r#"{"_cluster":"oar","_job_id":"7","cpu":1.5}"#;
        assert_eq!(found, [of_job, r#"{"cpu":0,"psu":{"a":"x","b":[true,null]}}"#]);
        lab.store.flush().unwrap();
    }
}

#[test]
fn ranges_are_five_minutes_where_a_bound_is_left_out() {
    let lab = Lab::new();
    let samples: Vec<(f64, f64)> = (0..=120).map(|m| (f64::from(m) * 60.0, f64::from(m))).collect();
    lab.put(&[TestSeries { samples: &samples, ..TestSeries::default() }]);
    let values = |pairs: &[(&str, &str)]| {
        let rows = run_query(&lab, &[&[("devices", "n1")], pairs].concat());
        rows.iter().map(|row| row["value"].as_i64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(values(&[]), [115, 116, 117, 118, 119, 120], "bounds inclusive");
    assert_eq!(values(&[("start_time", "2026-01-06T01:00")]), [60, 61, 62, 63, 64, 65]);
    assert_eq!(values(&[("end_time", "2026-01-06T01:00Z")]), [55, 56, 57, 58, 59, 60]);
    let half = [("start_time", "1767657630"), ("end_time", "1767657720.0")];
    assert_eq!(values(&half), [1, 2]);
    assert_eq!(values(&[("start_time", "now"), ("end_time", "epoch")]), [0_i64; 0]);
}

#[test]
fn metrics_are_exact_names_and_unknown_devices_are_empty() {
    let lab = Lab::new();
    let found = |metric| TestSeries { metric, samples: &[(1.0, 1.0)], ..TestSeries::default() };
    lab.put(&[found("load_1m"), found("load_1m_x"), found("other")]);
    let names = |metrics| {
        let rows = run_query(&lab, &with(&[("devices", "n1"), ("metrics", metrics)]));
        rows.iter().map(|row| row["metric_id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names("load_1m,other,none"), ["load_1m", "other"]);
    assert_eq!(names("load.*"), [""; 0]);
    assert_eq!(run_query(&lab, &with(&[("devices", "nowhere")])), [json!(null); 0]);
    assert_eq!(run_query(&lab, &with(&[("devices", "a\u{1}b")])), [json!(null); 0]);
}

#[test]
fn errors_are_reported_as_by_postgrest() {
    let lab = Lab::new();
    let missing = (400, "P0001", "Missing 'devices', 'nodes' or 'job_id' argument".to_owned());
    assert_eq!(error(&lab, &ALL), missing);
    let time = error(&lab, &[("devices", "n1"), ("start_time", "yesterdayish")]);
    let message = "invalid input syntax for type timestamp with time zone: \"yesterdayish\"";
    assert_eq!(time, (400, "22007", message.to_owned()));
    assert_eq!(error(&lab, &[("job_id", "77")]).0, 404);
    lab.job(&key("slurm", 5), "n1", 1000, 10.0, None);
    lab.job(&key("oar", 5), "n1", 1000, 10.0, None);
    let (status, code, text) = error(&lab, &[("job_id", "5")]);
    assert_eq!((status, code), (400, "P0003"));
    assert!(text.contains("oar:5 and slurm:5"), "{text}");
    assert!(run_query(&lab, &[("job_id", "5"), ("cluster", "oar")]).is_empty());
}

#[test]
fn aliases_are_summed_where_the_instants_are_the_same() {
    let lab = Lab::new();
    let port = |device, samples| TestSeries {
        device,
        metric: "power_watts",
        labels: &[("_device_alias", "n1")],
        samples,
        ..TestSeries::default()
    };
    lab.put(&[
        port("pdu-1-port2", &[(1.0, 10.0), (2.0, 11.0)]),
        port("pdu-1-port1", &[(1.0, 5.0), (2.5, 6.0)]),
        TestSeries { device: "n1", samples: &[(1.0, 0.5)], ..TestSeries::default() },
        TestSeries {
            device: "pdu-1-port9",
            labels: &[("_device_alias", "n2")],
            samples: &[(1.0, 7.0)],
            ..TestSeries::default()
        },
    ]);
    let row = |time: &str, device: &str, value: Value, labels: Value| {
        (format!("00:0{time}"), device.to_owned(), value, labels)
    };
    let node = brief(&run_query(&lab, &with(&[("nodes", "n1")])));
    let from = |ports: &[&str]| json!({ "_device_orig": ports });
    let expected = [
        row("1", "n1", json!(0.5), json!({})),
        row("1", "n1", json!(15), from(&["pdu-1-port1", "pdu-1-port2"])),
        row("2", "n1", json!(11), from(&["pdu-1-port2"])),
        row("2.5", "n1", json!(6), from(&["pdu-1-port1"])),
    ];
    assert_eq!(node, expected);
    let port = brief(&run_query(&lab, &with(&[("devices", "pdu-1-port1")])));
    let own = |time, value| row(time, "pdu-1-port1", value, json!({}));
    assert_eq!(port, [own("1", json!(5)), own("2.5", json!(6))]);
}

/// Jobs 7 and 8 on one node at the same time, and node samples.
fn two_jobs(lab: &Lab) {
    let counted = |job, value| TestSeries {
        metric: "cpu_seconds_total",
        kind: Kind::Counter,
        job,
        start: Some(0.0),
        samples: if value > 5.0 {
            &[(10.0, 7.0), (20.0, 27.0)]
        } else {
            &[(10.0, 1.0), (20.0, 2.0)]
        },
        ..TestSeries::default()
    };
    lab.put(&[
        counted(Some(key("local", 7)), 9.0),
        counted(Some(key("slurm", 8)), 1.0),
        TestSeries {
            metric: "load_1m",
            samples: &[(2.0, 0.1), (10.0, 0.2), (20.0, 0.3), (99.0, 0.4)],
            ..TestSeries::default()
        },
    ]);
    lab.job(&key("local", 7), "n1", 1000, 5.0, Some(25.0));
    lab.job(&key("slurm", 8), "n1", 1001, 5.0, None);
}

#[test]
fn two_jobs_on_a_node_never_merge() {
    let lab = Lab::new();
    two_jobs(&lab);
    let (seven, eight) = (json!({"_job_id": "7"}), json!({"_job_id": "8", "_cluster": "slurm"}));
    let node = run_query(&lab, &with(&[("nodes", "n1"), ("metrics", "cpu_seconds_total")]));
    let labels: Vec<&Value> = node.iter().map(|row| &row["labels"]).collect();
    assert_eq!(labels, [&seven, &eight, &seven, &eight]);
    assert_eq!(node[1]["labels"].to_string(), r#"{"_cluster":"slurm","_job_id":"8"}"#);

    let rates = run_query(
        &lab,
        &with(&[("nodes", "n1"), ("metrics", "cpu_seconds_total"), ("as_rate", "true")]),
    );
    let rates: Vec<&Value> = rates.iter().map(|row| &row["value"]).collect();
    assert_eq!(rates, [&json!(0.7), &json!(0.1), &json!(2), &json!(0.1)], "each job by itself");

    let job = run_query(&lab, &[("job_id", "7")]);
    let shown = brief(&job);
    let values: Vec<(&str, &Value)> = shown.iter().map(|row| (row.0.as_str(), &row.2)).collect();
    let expected =
        [("00:10", json!(7)), ("00:10", json!(0.2)), ("00:20", json!(27)), ("00:20", json!(0.3))];
    assert_eq!(
        values,
        expected.iter().map(|(t, v)| (*t, v)).collect::<Vec<_>>(),
        "job 7 and the node, within its stay"
    );
    assert!(job.iter().all(|row| row["labels"]["_job_id"] != json!("8")));

    let late = run_query(
        &lab,
        &[
            ("job_id", "7"),
            ("start_time", "2026-01-06T00:01:00"),
            ("end_time", "2026-01-06T00:02:00"),
        ],
    );
    assert_eq!(late.len(), 1, "a range that is given counts for the node, too");
    let elsewhere = run_query(&lab, &[("job_id", "7"), ("devices", "n2")]);
    assert!(elsewhere.is_empty());
}

#[test]
fn a_reader_sees_no_job_of_somebody_else() {
    let lab = Lab::new();
    two_jobs(&lab);
    let engine = lab.engine(Settings::default());
    let alice = Reader::User(1000);
    let rows = run_query_as(&engine, alice, &with(&[("nodes", "n1")])).unwrap();
    let jobs = |rows: &[Value]| {
        rows.iter().map(|row| row["labels"]["_job_id"].clone()).collect::<Vec<_>>()
    };
    assert!(jobs(&rows).contains(&json!("7")) && !jobs(&rows).contains(&json!("8")));
    assert!(jobs(&rows).contains(&json!(null)));
    let denied = run_query_as(&engine, alice, &[("job_id", "8")]).unwrap_err();
    assert_eq!((denied.status(), denied.code()), (404, "P0002"));
}

#[test]
fn the_last_reading_of_a_job_is_its_own() {
    let lab = Lab::new();
    let job = Some(key("local", 1));
    let samples = [(9.9, 0.0), (20.0, 5.0), (20.4, 6.0)];
    lab.put(&[
        TestSeries {
            job,
            metric: "c_total",
            kind: Kind::Counter,
            samples: &samples,
            ..TestSeries::default()
        },
        TestSeries { samples: &samples, ..TestSeries::default() },
    ]);
    lab.job(&key("local", 1), "n1", 1000, 10.0, Some(20.1));
    let rows = run_query(&lab, &[("job_id", "1")]);
    let of = |metric: &str| rows.iter().filter(|row| row["metric_id"] == metric).count();
    assert_eq!((of("c_total"), of("load_1m")), (3, 1));
}

#[test]
fn summaries_hold_five_minutes() {
    let lab = Lab::new();
    let gauge: Vec<(f64, f64)> = (0..600).map(|s| (f64::from(s), f64::from(s / 300))).collect();
    let counter: Vec<(f64, f64)> = (0..600).map(|s| (f64::from(s), f64::from(s))).collect();
    let port = |device| TestSeries {
        device,
        labels: &[("_device_alias", "n9")],
        samples: &gauge,
        ..TestSeries::default()
    };
    lab.put(&[
        TestSeries { samples: &gauge, ..TestSeries::default() },
        TestSeries {
            metric: "x_total",
            kind: Kind::Counter,
            samples: &counter,
            ..TestSeries::default()
        },
        port("p1"),
        port("p2"),
    ]);
    let summary =
        [("summary", "True"), ("start_time", "2026-01-06T00:00"), ("end_time", "2026-01-06T00:05")];
    let rows = brief(&run_query(&lab, &[&[("nodes", "n1")], &summary[..]].concat()));
    let short: Vec<(&str, i64)> =
        rows.iter().map(|r| (r.0.as_str(), r.2.as_i64().unwrap())).collect();
    assert_eq!(short, [("00:00", 0), ("00:00", 299), ("05:00", 1), ("05:00", 599)]);
    let empty =
        [("summary", "True"), ("start_time", "2026-01-06T00:04"), ("end_time", "2026-01-06T00:03")];
    assert!(
        run_query(&lab, &[&[("nodes", "n1")], &empty[..]].concat()).is_empty(),
        "no window around it"
    );
    let alias = brief(&run_query(&lab, &[&[("nodes", "n9")], &summary[..]].concat()));
    assert_eq!(alias.iter().map(|r| r.2.as_f64().unwrap()).collect::<Vec<_>>(), [0.0, 2.0]);
    let rate = run_query(
        &lab,
        &[&[("nodes", "n1"), ("metrics", "x_total"), ("as_rate", "auto")], &summary[..]].concat(),
    );
    assert_eq!((&rate[0]["value"], &rate[1]["value"]), (&json!(1), &json!(1)));
}

#[test]
fn rates_of_five_minutes_are_over_the_seconds_that_samples_cover() {
    let lab = Lab::new();
    // 2 per second, from 07:30 to 10:40: the first and the last window are partial.
    let counter: Vec<(f64, f64)> =
        (45..=64).map(|i| (f64::from(i) * 10.0, 20.0 * f64::from(i))).collect();
    // One reading, 20 s after the counter's start.
    let once = TestSeries {
        device: "n2",
        start: Some(400.0),
        samples: &[(420.0, 60.0)],
        ..TestSeries::default()
    };
    let counters = TestSeries {
        metric: "x_total",
        kind: Kind::Counter,
        samples: &counter,
        ..TestSeries::default()
    };
    lab.put(&[counters, TestSeries { metric: "x_total", kind: Kind::Counter, ..once }]);
    let rates = |node, start| {
        let rows = brief(&run_query(
            &lab,
            &[
                ("nodes", node),
                ("summary", "true"),
                ("as_rate", "auto"),
                ("start_time", start),
                ("end_time", "2026-01-06T00:15"),
            ],
        ));
        rows.into_iter().map(|row| (row.0, row.2.as_f64())).collect::<Vec<_>>()
    };
    let both = [("05:00".to_owned(), Some(2.0)), ("10:00".to_owned(), Some(2.0))];
    assert_eq!(rates("n1", "2026-01-06T00:00"), both);
    assert_eq!(rates("n1", "2026-01-06T00:09"), both, "the window that the start cuts is whole");
    assert_eq!(rates("n2", "2026-01-06T00:00"), [("05:00".to_owned(), Some(3.0))]);
}

#[test]
fn a_window_has_one_rate_wherever_the_query_begins() {
    let lab = Lab::new();
    let samples = [(450.0, 0.0), (595.0, 100.0), (605.0, 110.0), (895.0, 700.0), (905.0, 900.0)];
    lab.put(&[TestSeries {
        metric: "x_total",
        kind: Kind::Counter,
        samples: &samples,
        ..TestSeries::default()
    }]);
    let rates = |start| {
        let rows = run_query(
            &lab,
            &[
                ("nodes", "n1"),
                ("summary", "true"),
                ("as_rate", "auto"),
                ("start_time", start),
                ("end_time", "2026-01-06T00:14"),
            ],
        );
        brief(&rows).into_iter().map(|row| (row.0, row.2.as_f64())).collect::<Vec<_>>()
    };
    // Since the last sample of the window before, 300 s earlier.
    let own = ("10:00".to_owned(), Some(2.0));
    assert_eq!(rates("2026-01-06T00:00").last(), Some(&own));
    assert_eq!(rates("2026-01-06T00:10"), [own]);
}

#[test]
fn a_limit_is_reported_before_the_first_byte() {
    let lab = Lab::new();
    let samples: Vec<(f64, f64)> = (0..2000).map(|s| (f64::from(s), 1.0)).collect();
    lab.put(&[TestSeries { samples: &samples, ..TestSeries::default() }]);
    let pairs = with(&[("nodes", "n1")]);
    let limited = |rows_max| lab.engine(Settings { rows_max, ..Settings::default() });
    assert_eq!(run_query_as(&limited(2000), Reader::Everything, &pairs).unwrap().len(), 2000);
    let query = GetMetrics::from_pairs(pairs.iter().copied()).unwrap();
    let context = QueryContext::new(Reader::Everything, at(7200.0));
    let error = limited(1999).get_metrics(&query, Format::Json, &context).unwrap_err();
    assert_eq!((error.status(), error.code()), (413, "54000"));
    assert!(error.to_string().contains("1999 rows"), "{error}");
}

#[test]
fn what_is_not_seen_counts_for_no_limit() {
    let lab = Lab::new();
    let samples: Vec<(f64, f64)> = (0..2000).map(|s| (f64::from(s), 1.0)).collect();
    let job = Some(key("slurm", 7));
    lab.put(&[TestSeries { job, samples: &samples, ..TestSeries::default() }]);
    lab.put(&[TestSeries {
        metric: "cpu_online",
        samples: &[(5.0, 1.0)],
        ..TestSeries::default()
    }]);
    lab.job(&key("slurm", 7), "n1", 2000, 1.0, Some(1990.0));
    let engine = lab.engine(Settings { rows_max: 100, ..Settings::default() });
    let requested = |reader| run_query_as(&engine, reader, &with(&[("nodes", "n1")]));
    assert_eq!(requested(Reader::Tenant(1000)).unwrap(), [json!(null); 0]);
    assert_eq!(requested(Reader::User(1000)).unwrap().len(), 1);
    // The visible rows may be fewer, but the answer ends at the limit for both readers.
    for reader in [Reader::User(2000), Reader::Everything] {
        assert_eq!(requested(reader).unwrap_err().code(), "54000", "{reader:?}");
    }
}

#[test]
fn a_cancelled_question_ends() {
    let lab = Lab::new();
    let samples: Vec<(f64, f64)> = (0..5000).map(|s| (f64::from(s), 1.0)).collect();
    lab.put(&[TestSeries { samples: &samples, ..TestSeries::default() }]);
    let engine = lab.engine(Settings { slice_rows: 1000, ..Settings::default() });
    let query = GetMetrics::from_pairs(with(&[("nodes", "n1")])).unwrap();
    let context = QueryContext::new(Reader::Everything, at(7200.0));
    let mut answer = engine.get_metrics(&query, Format::Json, &context).unwrap();
    assert!(answer.next().unwrap().is_ok());
    context.cancel.cancel();
    assert!(answer.any(|piece| matches!(piece, Err(QueryError::Cancelled))));
    assert!(answer.next().is_none());
}

#[test]
fn csv_has_a_header() {
    let lab = Lab::new();
    lab.put(&[TestSeries { samples: &[(1.5, 2.0)], ..TestSeries::default() }]);
    let query = GetMetrics::from_pairs(with(&[("nodes", "n1")])).unwrap();
    let context = QueryContext::new(Reader::Everything, at(7200.0));
    let engine = lab.engine(Settings::default());
    let answer = engine.get_metrics(&query, Format::Csv, &context).unwrap();
    let text = answer.map(Result::unwrap).collect::<Vec<_>>().concat();
    let expected = "timestamp,device_id,metric_id,value,labels\n\"2026-01-06 00:00:01.5+00\",n1,load_1m,2,{}\n";
    assert_eq!(String::from_utf8(text).unwrap(), expected);
}

#[test]
fn between_two_runs_of_a_number_the_node_is_anothers() {
    let lab = Lab::new();
    let job = key("slurm", 9);
    lab.job(&job, "n1", 1000, 100.0, Some(200.0));
    lab.job(&job, "n2", 1000, 150.0, Some(200.0));
    lab.job(&job, "n1", 1000, 3000.0, Some(3100.0));
    let every: Vec<(f64, f64)> =
        (0..70).map(|place| (f64::from(place) * 50.0 + 5.0, 1.0)).collect();
    let of = |device| TestSeries { device, samples: &every, ..TestSeries::default() };
    lab.put(&[of("n1"), of("n2"), of("n3")]);
    let rows = |pairs: &[(&str, &str)]| {
        let rows = run_query(&lab, pairs);
        brief(&rows).into_iter().map(|row| format!("{} {}", row.1, row.0)).collect::<Vec<_>>()
    };
    let own = ["n1 01:45", "n1 02:35", "n2 02:35", "n1 50:05", "n1 50:55"];
    assert_eq!(rows(&[("job_id", "9")]), own, "each device while the job was there");
    let others = rows(&[("job_id", "9"), ("nodes", "n3")]);
    assert_eq!(others, ["n3 01:45", "n3 02:35", "n3 50:05", "n3 50:55"], "while it ran");
    // A given bound also holds before the job's allocation.
    let before = rows(&[("job_id", "9"), ("start_time", "2026-01-06 00:00:50")]);
    assert_eq!(before[..2], ["n1 00:55", "n2 00:55"]);
    assert_eq!(before.len(), 8, "{before:?}");
    let both = [("start_time", "2026-01-06 00:03:00"), ("end_time", "2026-01-06 00:06:00")];
    assert_eq!(rows(&[("job_id", "9"), ("nodes", "n3"), both[0], both[1]]).len(), 4);
}
