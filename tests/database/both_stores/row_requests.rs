//! Requests of rows that change nothing: Kwollect's functions and tables in PostgREST's form.

use super::requests::{Request, query};
use super::samples::Times;
use super::statements;
use api::Operation;

/// An instant of the past samples in the forms that clients send: seconds, a fraction, and texts without a zone, in UTC, with an
/// offset, and with an offset whose plus sign is not encoded.
fn written(second: i64) -> [String; 7] {
    let at = jiff::Timestamp::from_second(second).unwrap();
    let text = |format: &str| at.strftime(format).to_string();
    [
        second.to_string(),
        format!("{second}.250000"),
        text("%Y-%m-%dT%H:%M:%S"),
        text("%Y-%m-%dT%H:%M:%S.500000"),
        text("%Y-%m-%dT%H:%M"),
        text("%Y-%m-%dT%H:%M:%SZ"),
        text("%Y-%m-%d %H:%M:%S+00:00"),
    ]
}

/// Parameters of `get_metrics` beside the time range: the forms that Kwollect's clients send and its README has, and errors.
const SELECTED: &[&[(&str, &str)]] = &[
    &[("nodes", "n1")],
    &[("nodes", "n1,n2"), ("metrics", "load_1m,wattmetre_power_watt")],
    &[("nodes", "n1.site.example"), ("metrics", "wattmetre_power_watt")],
    &[("nodes", "n1"), ("devices", "pdu-1,bmc-1"), ("as_rate", "false")],
    &[("nodes", "n1"), ("summary", "True")],
    &[("nodes", "n1,n2"), ("summary", "False"), ("as_rate", "true")],
    &[("nodes", "n1"), ("summary", "t"), ("as_rate", "auto")],
    &[("devices", "n1"), ("as_rate", "auto")],
    &[("job_id", "1")],
    &[("job_id", "slurm:2"), ("as_rate", "auto")],
    &[("job_id", "2"), ("summary", "yes")],
    &[("job_id", "7")],
    &[("job_id", "7"), ("cluster", "oar")],
    &[("job_id", "1"), ("nodes", "n2")],
    &[("nodes", "nothing")],
    &[("nodes", "n1"), ("metrics", "odd")],
    &[("nodes", "n1"), ("as_rate", "perhaps")],
    &[("nodes", "n1"), ("node", "n1")],
    &[("metrics", "load_1m")],
    &[("nodes", "n1"), ("value", "gt.10"), ("order", "value.desc"), ("limit", "7")],
    &[("nodes", "n1"), ("labels->>interface", "eq.eth0"), ("select", "timestamp,value")],
    &[
        ("nodes", "n1"),
        ("or", "(value.lt.1,metric_id.like.net*)"),
        ("order", "metric_id,timestamp"),
    ],
    &[
        ("nodes", "n1"),
        ("select", "v:value::text,labels->>interface"),
        ("limit", "20"),
        ("offset", "90"),
    ],
    &[("nodes", "n1"), ("value", "5")],
    &[("nodes", "n1"), ("order", "valu.desc")],
    &[("nodes", "n1"), ("limit", "-1")],
];

pub(super) fn get_metrics(times: Times) -> Vec<Request> {
    let one = |more: &str| Request::of(Operation::GetMetrics, more);
    let (start, end) = ((times.past + 60).to_string(), (times.past + 1500).to_string());
    let span = |more: &[(&str, &str)]| {
        let range = [("start_time", &*start), ("end_time", &*end)];
        one(&query(&[more, &range].concat()))
    };
    let mut requests: Vec<Request> = written(times.past + 300)
        .iter()
        .map(|start| one(&query(&[("nodes", "n1"), ("metrics", "load_1m"), ("start_time", start)])))
        .collect();
    requests.extend(SELECTED.iter().map(|more| span(more)));
    for more in [
        "?job_id=1",
        "?job_id=2",
        "?job_id=7",
        "?job_id=oar:7",
        "?job_id=99",
        "?job_id=x",
        "?job_id=1&cluster=oar",
        "?nodes=n1&start_time=yesterdays",
        "?nodes=n1&start_time=2020-01-01&end_time=2019-01-01",
    ] {
        requests.push(one(more));
    }
    requests.push(one(&format!("?nodes=n1&end_time={end}")));
    requests.push(one("?nodes=n2").now());
    requests.push(one("?job_id=2&metrics=load_1m&start_time=-300").now());
    let rows = || span(&[("nodes", "n1"), ("metrics", "load_1m,odd,wattmetre_power_watt")]);
    requests.extend([
        rows().header("Accept", "text/csv"),
        rows().head(),
        rows().header("Range", "0-9"),
        rows().header("Range", "10-12").header("Prefer", "count=exact"),
        rows().header("Range", "9-1"),
        rows().header("Prefer", "count=planned"),
        rows().header("Prefer", "handling=strict, magic"),
        rows().header("Accept", "application/vnd.pgrst.object+json"),
        rows().header("Accept", "text/csv").header("Range", "5-"),
        rows().header("Accept", "image/png"),
        rows().header("Accept-Encoding", "gzip"),
    ]);
    for prefix in ["", "/stable", "/sid"] {
        let path =
            format!("{prefix}/sites/lab/metrics?nodes=n1&metrics=load_1m&start_time={start}");
        requests.push(Request { path, ..one("") });
    }
    requests
}

pub(super) fn post_get_metrics(times: Times) -> Vec<Request> {
    let one = |more: &str| Request::of(Operation::PostGetMetrics, more);
    let (start, end) = (times.past + 60, times.past + 900);
    let range = format!(r#""start_time": {start}, "end_time": "{end}""#);
    let json = |more: &str| one("").json(&format!("{{{more}, {range}}}"));
    let form = format!("nodes=n1&metrics=load_1m&start_time={start}&summary=true").into_bytes();
    vec![
        json(r#""nodes": "n1""#),
        json(r#""nodes": "n1", "as_rate": true, "summary": true"#),
        json(r#""job_id": 1, "as_rate": "auto""#),
        json(r#""job_id": 7"#),
        json(r#""nodes": ["n1"]"#),
        json(r#""nodes": null"#),
        json(r#""nodes": "n1", "nodes": "n2""#),
        one("").json("{"),
        one("").typed("application/x-www-form-urlencoded", form),
        one("").typed("text/plain", b"nodes=n1".to_vec()),
        one("?select=value&limit=3").json(&format!(r#"{{"nodes": "n1", {range}}}"#)),
        json(r#""nodes": "n1""#).header("Accept", "text/csv"),
    ]
}

pub(super) fn available_metrics(times: Times) -> Vec<Request> {
    let one = |pairs: &[(&str, &str)]| Request::of(Operation::AvailableMetrics, &query(pairs));
    let at = &*(times.past + 1200).to_string();
    vec![
        one(&[("at", at)]),
        one(&[("at", at), ("params", r#"{"devices": ["n1", "pdu-1"]}"#)]),
        one(&[("at", at), ("params", r#"{"job_id": "2"}"#)]),
        one(&[("params", r#"{"job_id": 1}"#)]),
        one(&[("params", r#"{"job_id": 7}"#)]),
        one(&[("params", r#"{"job_id": "x"}"#)]).now(),
        one(&[("params", r#"{"devices": 5}"#)]),
        one(&[("at", "never")]),
        one(&[("at", at), ("metric_id", "like.*load*"), ("order", "device_id.desc")]),
        one(&[("at", at)]).header("Accept", "text/csv"),
        one(&[("at", at)]).header("Range", "1-2").header("Prefer", "count=exact"),
        one(&[]).now(),
    ]
}

pub(super) fn rest(times: Times) -> Vec<Request> {
    let one = |more: &str| Request::of(Operation::RestTable, more);
    let at = |second: i64| jiff::Timestamp::from_second(times.past + second).unwrap().to_string();
    let until = at(7200);
    let mut requests = Vec::new();
    for table in statements::TABLES {
        let bound = table.time.map(|time| (time, format!("lt.{until}")));
        let bound = bound.iter().map(|(time, bound)| (*time, &**bound));
        let columns = table.columns.map(|columns| ("select", columns));
        let more = query(&bound.chain(columns).chain([("limit", "300")]).collect::<Vec<_>>());
        requests.push(one(&format!("{}{more}", table.name)));
    }
    let metrics = |pairs: &[(&str, &str)]| {
        let until = [("timestamp", &*format!("lt.{until}"))];
        one(&format!("metrics_by_device{}", query(&[pairs, &until].concat())))
    };
    requests.extend([
        metrics(&[
            ("device_id", "eq.n1"),
            ("metric_id", "in.(load_1m,odd)"),
            ("order", "value.desc"),
        ]),
        metrics(&[("labels->>outlet", "eq.3"), ("select", "at:timestamp,value,labels->>outlet")]),
        metrics(&[("value", "is.null")]),
        metrics(&[("not.and", "(value.gt.1,value.lt.100)"), ("limit", "9")]),
        metrics(&[("limit", "3")]).header("Prefer", "count=exact"),
        metrics(&[("limit", "3")]).header("Accept", "text/csv"),
        metrics(&[("limit", "3")]).head(),
        metrics(&[("limit", "1")]).header("Accept", "application/vnd.pgrst.object+json"),
        metrics(&[("job_id", "eq.2"), ("limit", "30")]),
        one("metric"),
        one("metrics?valu=gt.5"),
        one("metrics?value=gt"),
        one("metrics?metric_id=match.("),
        one("jobs?select=job_id,cluster&order=job_id,cluster"),
    ]);
    requests
}

pub(super) fn post_available_metrics(times: Times) -> Vec<Request> {
    let one = |body: &str| Request::of(Operation::PostAvailableMetrics, "").json(body);
    let at = times.past + 600;
    [
        &*format!(r#"{{"at": {at}}}"#),
        &format!(r#"{{"at": "{at}", "params": {{"devices": ["n1"]}}}}"#),
        &format!(r#"{{"at": {at}, "params": {{"job_id": 2}}}}"#),
        r#"{"params": {"devices": "n1"}}"#,
        r#"{"params": {"job_id": 7}}"#,
        r#"{"device": 1}"#,
        "{",
    ]
    .map(one)
    .into()
}
