//! Rows in PostgREST's form: `/rest/NAME`, and `/rpc/*` with conditions, columns, order and a window.

use crate::Limits;
use crate::tests::access_matrix::{self, send_as};
use crate::tests::ingest::{batch, frame, post, statuses};
use crate::tests::{Answer, Site};
use model::{Batch, DeviceId, Labels, Metric, SeriesEntry, SeriesTable, Tick, Unit};
use serde_json::json;
use std::sync::Arc;
use wire::AckStatus;

const JSON: &str = "Host: localhost\r\nContent-Type: application/json\r\n";
const COUNTED: &str = "Host: localhost\r\nPrefer: count=exact\r\n";

#[test]
fn rows_are_selected_as_by_postgrest() {
    let site = Site::start();
    let loads = |number: u64| batch("n1", number);
    for number in 0..3 {
        let stored = post(&site, "User-Agent: jobmeter-agent/9.8.7\r\n", &frame(&loads(number)));
        assert_eq!(statuses(&stored), [AckStatus::Stored]);
    }
    let bytes = site.get("/rpc/get_metrics?nodes=n1&metrics=load_1m");
    let all = bytes.json();
    let count = all.as_array().unwrap().len();
    assert!(count >= 3, "{all}");
    for from in [
        "/rest/metrics_by_device?device_id=eq.n1&metric_id=eq.load_1m",
        "/rpc/get_metrics?nodes=n1&metrics=load_1m",
    ] {
        // With a condition that always holds, the answer has the same bytes.
        let rows = site.get(&format!(
            "{from}&value=gte.0&order=timestamp&select=timestamp,device_id,metric_id,value,labels"
        ));
        assert_eq!(rows.text(), bytes.text(), "{from}");
        let first = site.get(&format!(
            "{from}&select=value,at:timestamp,labels-%3E%3Enone&order=timestamp.desc&limit=1"
        ));
        assert_eq!(first.header("content-range"), Some("0-0/*"), "{from}");
        let last = &all[count - 1];
        let want =
            serde_json::json!([{"value": last["value"], "at": last["timestamp"], "none": null}]);
        assert_eq!(first.json(), want, "{from}");
        let headers = "Host: localhost\r\nRange: 1-1\r\nPrefer: count=exact\r\n";
        let part = site.send(&format!("GET {from}"), headers, b"");
        assert_eq!(part.status, 206, "{from}");
        assert_eq!(part.header("content-range"), Some(&*format!("1-1/{count}")), "{from}");
        assert_eq!(part.json()[0]["timestamp"], all[1]["timestamp"], "{from}");
        let headers = "Host: localhost\r\nAccept: application/vnd.pgrst.object+json\r\n";
        let object = site.send(&format!("GET {from}&limit=1"), headers, b"");
        assert_eq!(object.json()["value"], all[0]["value"], "{from}");
        assert_eq!(site.send(&format!("GET {from}"), headers, b"").status, 406, "{from}");
        let headers = "Host: localhost\r\nAccept: text/csv\r\n";
        let csv = site.send(&format!("GET {from}&select=metric_id&limit=1"), headers, b"");
        assert_eq!(csv.text(), "metric_id\nload_1m\n", "{from}");
        let csv = |path: &str| site.send(&format!("GET {path}"), headers, b"");
        let rows = csv(&format!(
            "{from}&value=gte.0&order=timestamp&select=timestamp,device_id,metric_id,value,labels"
        ));
        let plain = csv("/rpc/get_metrics?nodes=n1&metrics=load_1m");
        assert_eq!(rows.text(), plain.text(), "{from}");
        let headers = "Host: localhost\r\nPrefer: count=exact\r\n";
        let head = site.send(&format!("HEAD {from}"), headers, b"");
        assert_eq!((head.status, head.text()), (200, ""), "{from}");
        assert_eq!(
            head.header("content-range"),
            Some(&*format!("0-{}/{count}", count - 1)),
            "{from}"
        );
    }
    let body = br#"{"nodes": "n1", "metrics": "load_1m"}"#;
    let posted = site.send("POST /rpc/get_metrics?select=value&limit=1", JSON, body);
    assert_eq!(posted.json(), serde_json::json!([{"value": all[0]["value"]}]));
    let available = site.get("/rpc/available_metrics?metric_id=like.load*&device_id=eq.n1").json();
    assert_eq!(available, serde_json::json!([{"device_id": "n1", "metric_id": "load_1m"}]));
    for (path, status, code) in [
        ("/rpc/get_metrics?nodes=n1&value=5", 400, "PGRST100"),
        ("/rpc/get_metrics?nodes=n1&values=gt.5", 404, "PGRST202"),
        ("/rpc/get_metrics?value=gt.5", 400, "P0001"),
        ("/rest/metric", 404, "PGRST205"),
        ("/rest/get_metrics?nodes=n1", 404, "PGRST205"),
        ("/rest/metrics?values=gt.5", 400, "42703"),
        ("/rest/metrics?or=(value.gt.5", 400, "PGRST100"),
        ("/rest/metrics?metric_id=match.(", 400, "2201B"),
        ("/rest/jobs?limit=x", 400, "PGRST100"),
        ("/rest/jobs?limit=-1", 416, "PGRST103"),
        ("/rest/jobs?offset=-1", 416, "PGRST103"),
    ] {
        let answer = site.get(path);
        assert_eq!(answer.status, status, "{path} {answer:?}");
        assert_eq!(answer.json()["code"], code, "{path}");
    }
}

/// Names and values that would end a literal or an identifier if they were not quoted.
const HOSTILE: [&str; 8] = [
    "n'1",
    "n' OR '1'='1",
    "n'; DROP TABLE metrics; --",
    "n\" OR \"1\"=\"1",
    "n\\' OR 1=1 --",
    "$$n$$ 'UNION' SELECT",
    "E'n\\x27'",
    "n*%_()|:;?&=+#",
];

/// A sample of each hostile device, with a hostile label.
fn hostile() -> Batch {
    let entries: Vec<SeriesEntry> = HOSTILE
        .iter()
        .map(|name| SeriesEntry {
            metric: Arc::new(Metric::gauge("load_1m", Unit::Count, "Load.")),
            device: DeviceId::new(name).unwrap(),
            job: None,
            labels: Labels::new([(*name, *name)]).unwrap(),
            start: None,
        })
        .collect();
    let samples = u32::try_from(entries.len()).unwrap();
    Batch {
        table: Arc::new(SeriesTable { entries }),
        ticks: vec![Tick { at: crate::now(), samples }],
        index: (0..samples).collect(),
        values: (0..samples).map(f64::from).collect(),
        ..batch("n1", 0)
    }
}

fn encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

#[test]
fn no_name_and_no_value_becomes_a_part_of_the_statement() {
    let site = Site::start();
    assert_eq!(statuses(&post(&site, "", &frame(&hostile()))), [AckStatus::Stored]);
    let get = |conditions: &str| site.get(&format!("/rest/metrics?select=device_id&{conditions}"));
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    for name in HOSTILE {
        let (text, tree) = (encoded(name), encoded(&format!("\"{}\"", quoted(name))));
        let found = json!([{ "device_id": name }]);
        for conditions in [
            format!("device_id=eq.{text}"),
            format!("device_id=in.({tree})"),
            format!("or=(device_id.eq.{tree},device_id.eq.other)"),
            format!("labels-%3E%3E{tree}=eq.{text}"),
            format!("labels-%3E%3E{text}=eq.{text}"),
            format!("labels-%3E%3E{tree}=not.is.null"),
            format!("device_id=like.{text}").replace("%2A", "_").replace("%5C", "%5C%5C"),
        ] {
            assert_eq!(get(&conditions).json(), found, "{conditions}");
        }
        for conditions in [format!("device_id=eq.{text}x"), format!("metric_id=eq.{text}")] {
            assert_eq!(get(&conditions).text(), "[]", "{conditions}");
        }
        // A name of a result's column is its key, whatever it is.
        let named = site.get(&format!("/rest/metrics?select={tree}:value&device_id=eq.{text}"));
        assert!(named.json()[0][name].is_number(), "{named:?}");
        // The name of a column must be known.
        for line in [
            format!("{tree}=eq.1"),
            format!("select={tree}"),
            format!("order={tree}"),
            format!("and=({tree}.eq.1)"),
        ] {
            let answer = site.get(&format!("/rest/metrics?{line}"));
            assert_eq!((answer.status, &answer.json()["code"]), (400, &json!("42703")), "{line}");
        }
        let table = site.get(&format!("/rest/{}", text.replace('+', "%20")));
        assert_eq!((table.status, &table.json()["code"]), (404, &json!("PGRST205")));
        // Arguments of functions are values, too.
        let rows = site.get(&format!("/rpc/get_metrics?nodes={text}&value=gte.0&select=device_id"));
        assert!(rows.text() == "[]" || rows.json() == found, "{rows:?}");
        for argument in ["start_time", "job_id", "summary", "as_rate"] {
            let line = format!("/rpc/get_metrics?nodes=n1&{argument}={text}&value=gte.0");
            assert_eq!(site.get(&line).status, 400, "{line}");
        }
    }
    let all = site.get("/rest/metrics?select=value").json();
    assert_eq!(all.as_array().unwrap().len(), HOSTILE.len(), "nothing is dropped");
}

#[test]
fn every_error_has_the_form_of_postgrest() {
    let site = Site::start();
    assert_eq!(statuses(&post(&site, "", &frame(&batch("n1", 0)))), [AckStatus::Stored]);
    let long = format!("/rest/metrics?device_id=in.({}x)", "x,".repeat(20_000));
    let deep = format!("/rest/metrics?and=({}value.gt.1{})", "and(".repeat(500), ")".repeat(500));
    for (path, headers, status, code) in [
        ("/rest/metrics?valu=gt.5", "", 400, "42703"),
        ("/rest/metrics?value=5", "", 400, "PGRST100"),
        ("/rest/metrics?value=gt", "", 400, "PGRST100"),
        ("/rest/metrics?value=above.5", "", 400, "PGRST100"),
        ("/rest/metrics?value=gt.five", "", 400, "22P02"),
        ("/rest/metrics?value=in.1,2", "", 400, "PGRST100"),
        ("/rest/metrics?value=in.(1,x)", "", 400, "22P02"),
        ("/rest/metrics?value=is.true", "", 400, "PGRST100"),
        ("/rest/metrics?value=like.1", "", 400, "PGRST100"),
        ("/rest/metrics?job_id=eq.99999999999999999999", "", 400, "22P02"),
        ("/rest/metrics?timestamp=gt.yesterdays", "", 400, "22007"),
        ("/rest/metrics?or=(value.gt.5", "", 400, "PGRST100"),
        ("/rest/metrics?or=()", "", 400, "PGRST100"),
        ("/rest/metrics?not.value=eq.5", "", 400, "42703"),
        ("/rest/metrics?select=labels-%3Ea-%3E%3Eb", "", 400, "PGRST100"),
        ("/rest/metrics?select=labels-%3E%3Ea-%3E%3Eb", "", 400, "PGRST100"),
        ("/rest/metrics?select=value::money", "", 400, "PGRST100"),
        ("/rest/metrics?select=device_id::int", "", 400, "22P02"),
        ("/rest/metrics?select=count()", "", 400, "42703"),
        ("/rest/metrics?select=jobs(user_name)", "", 400, "42703"),
        ("/rest/metrics?select=value&select=labels", "", 400, "PGRST102"),
        ("/rest/metrics?order=value.down", "", 400, "PGRST100"),
        ("/rest/metrics?order=", "", 400, "PGRST100"),
        ("/rest/metrics?limit=1&limit=2", "", 400, "PGRST102"),
        ("/rest/metrics?limit=x", "", 400, "PGRST100"),
        ("/rest/metrics?limit=-1", "", 416, "PGRST103"),
        ("/rest/metrics?offset=-1", "", 416, "PGRST103"),
        ("/rest/metrics", "Range: 5-2\r\n", 416, "PGRST103"),
        ("/rest/metrics", "Range: a-b\r\n", 416, "PGRST103"),
        ("/rest/metrics?offset=9", "Prefer: count=exact\r\n", 416, "PGRST103"),
        ("/rest/metrics", "Accept: application/xml\r\n", 406, "PGRST107"),
        (
            "/rest/metrics?value=gt.9",
            "Accept: application/vnd.pgrst.object+json\r\n",
            406,
            "PGRST116",
        ),
        ("/rest/metrics", "Prefer: handling=strict, x=y\r\n", 400, "PGRST122"),
        ("/rest/metrics?metric_id=match.(", "", 400, "2201B"),
        ("/rest/Metrics", "", 404, "PGRST205"),
        ("/rest/information_schema.tables", "", 404, "PGRST205"),
        ("/rest/metrics?device_id=eq.%FF", "", 400, "22021"),
        ("/rest/metrics?device_id=eq.%00", "", 400, "22021"),
        ("/rpc/get_metrics?nodes=n1&valu=gt.5", "", 404, "PGRST202"),
        ("/rpc/get_metrics?nodes=n1&nodes=n2&limit=1", "", 400, "PGRST102"),
        ("/rpc/get_metrics?nodes=n1&summary=maybe&limit=1", "", 400, "22P02"),
        ("/rpc/get_metrics?job_id=99&limit=1", "", 404, "P0002"),
        (&*deep, "", 400, "PGRST100"),
        (&*long, "", 413, "54000"),
    ] {
        let answer =
            site.send(&format!("GET {path}"), &format!("Host: localhost\r\n{headers}"), b"");
        let shown: String = path.chars().take(100).collect();
        let body = answer.json();
        assert_eq!((answer.status, &body["code"]), (status, &json!(code)), "{shown} {body}");
        let keys: Vec<&String> = body.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["code", "details", "hint", "message"], "{shown}");
        assert!(body["message"].as_str().is_some_and(|message| !message.is_empty()), "{shown}");
        let kind = answer.header("content-type").unwrap();
        assert!(kind.starts_with("application/json"), "{shown} {kind}");
    }
    assert_eq!(site.metric("jobmeter_refusals_total{reason=\"fault\"}"), 0.0);
}

#[test]
fn tables_are_read_only() {
    let site = Site::start();
    for method in ["POST", "PATCH", "DELETE", "PUT"] {
        let answer = site.send(&format!("{method} /rest/metrics"), JSON, b"{}");
        assert_eq!((answer.status, &answer.json()["code"]), (405, &json!("PGRST117")), "{method}");
    }
}

#[test]
fn values_are_compared_as_by_postgresql() {
    let site = Site::start();
    let values = [1.0, -2.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e-7, 1e16];
    let mut all = batch("n1", 0);
    let now = crate::now();
    let at = |n: usize| now.plus(i64::try_from(n).unwrap() * 1000 - 100_000);
    all.ticks = (0..values.len()).map(|n| Tick { at: at(n), samples: 1 }).collect();
    all.index = vec![0; values.len()];
    all.values = values.to_vec();
    assert_eq!(statuses(&post(&site, "", &frame(&all))), [AckStatus::Stored]);
    for (conditions, want) in [
        ("value=eq.NaN", "NaN"),
        ("value=neq.NaN&value=gt.1", "1e+16 Infinity"),
        ("value=gt.1", "1e+16 Infinity NaN"),
        ("value=gte.Infinity", "Infinity NaN"),
        ("value=lt.0", "-Infinity -2.5"),
        ("value=eq.-Infinity", "-Infinity"),
        ("value=in.(1,1e16)", "1 1e+16"),
        ("value=not.in.(1,1e16,NaN)", "-Infinity -2.5 1e-07 Infinity"),
        ("value=is.null", ""),
        ("value=not.is.null&value=lte.1e-7", "-Infinity -2.5 1e-07"),
        ("job_id=gt.-9223372036854775808", ""),
        ("job_id=is.null&value=eq.1", "1"),
        ("or=(value.eq.1,value.is.null,and(value.gt.1,value.not.gt.1e300))", "1 1e+16"),
        ("not.or=(value.lt.1,value.gt.1)", "1"),
        ("not.and=(value.gte.-3,value.lte.1)", "-Infinity 1e+16 Infinity NaN"),
        ("value=isdistinct.1&value=lt.1e-6", "-Infinity -2.5 1e-07"),
    ] {
        let rows = site.get(&format!("/rest/metrics?select=value&order=value&{conditions}"));
        let rows = rows.json();
        let shown = |row: &serde_json::Value| match &row["value"] {
            serde_json::Value::String(text) => text.clone(),
            number if number.as_f64() == Some(1e16) => "1e+16".to_owned(),
            number if number.as_f64() == Some(1e-7) => "1e-07".to_owned(),
            number => number.to_string(),
        };
        let found: Vec<String> =
            rows.as_array().unwrap_or_else(|| panic!("{rows}")).iter().map(shown).collect();
        assert_eq!(found.join(" "), want, "{conditions}");
    }
    // A blank in place of `+` is a time zone's sign, as in the functions.
    for time in ["2020-01-01T00:00:00%2B01:00", "2020-01-01T00:00:00+01:00", "1577836800.5", "1h"] {
        let rows = site.get(&format!("/rest/metrics?timestamp=gte.{time}&select=value"));
        assert_eq!(rows.json().as_array().unwrap().len(), values.len(), "{time}");
    }
    let csv = site.send(
        "GET /rest/metrics?select=value&order=value.desc",
        "Host: localhost\r\nAccept: text/csv\r\n",
        b"",
    );
    assert_eq!(csv.text(), "value\nNaN\nInfinity\n1e+16\n1\n1e-07\n-2.5\n-Infinity\n");
}

#[test]
fn rows_of_others_are_neither_returned_nor_counted() {
    let site = access_matrix::site(&[("access.nodes", "own")]);
    let get = |token: &str, path: &str| -> Answer {
        let who = format!("{COUNTED}Authorization: Bearer {token}\r\n");
        site.send(&format!("GET {path}"), &who, b"")
    };
    let rows = |answer: &Answer| answer.json().as_array().map(Vec::len).unwrap();
    for table in sql::tables() {
        let path = format!("/rest/{table}");
        for token in
            ["token-of-ann", "read-of-ann", "token-of-bob", "token-of-guests", "token-of-staff"]
        {
            let answer = get(token, &path);
            assert_eq!(answer.status, 200, "{table} {token} {answer:?}");
            let found = rows(&answer);
            let total = answer.header("content-range").unwrap().rsplit_once('/').unwrap().1;
            assert_eq!(total, found.to_string(), "{table} {token}");
            let statement = json!({"query": format!("SELECT * FROM {table}")}).to_string();
            let by_sql = send_as(&site, token, "POST /api/v1/sql", statement.as_bytes());
            assert_eq!(found, rows(&by_sql), "{table} {token}");
            let is_foreign = token.ends_with("of-ann") && table != "catalogue";
            assert!(!(is_foreign && answer.text().contains("bob")), "{table} {answer:?}");
        }
    }
    // Bob's rows exist, and no condition, count or error shows ann that they do.
    let of_bob = "/rest/metrics?device_id=eq.bobs-node";
    assert_eq!(rows(&get("token-of-bob", "/rest/metrics?metric_id=eq.bobs_count")), 1);
    for path in [
        of_bob,
        "/rest/metrics?metric_id=eq.bobs_count",
        "/rest/metrics?job_id=eq.2",
        "/rest/metrics_by_job?job_id=eq.2",
        "/rest/jobs?or=(user_name.eq.bob,job_id.eq.2)",
        "/rest/allocations?device_id=like.bob*",
        "/rest/jobs?user_name=match.^b&select=job_id::text",
        "/rest/metrics?not.and=(device_id.eq.n1,metric_id.not.eq.bobs_count)",
        "/rpc/get_metrics?nodes=bobs-node&value=gte.0",
    ] {
        let answer = get("token-of-ann", path);
        assert_eq!((answer.status, answer.text()), (200, "[]"), "{path}");
        assert_eq!(answer.header("content-range"), Some("*/0"), "{path}");
        let beyond = get("token-of-ann", &format!("{path}&offset=1"));
        assert_eq!(
            beyond.json()["details"],
            "An offset of 1 was requested, but there are only 0 rows.",
            "{path}"
        );
    }
    let job = get("token-of-ann", "/rpc/get_metrics?job_id=2&cluster=slurm&value=gte.0");
    let plain = get("token-of-ann", "/rpc/get_metrics?job_id=2&cluster=slurm");
    assert_eq!((job.status, job.text()), (plain.status, plain.text()));
    assert_eq!(get("token-of-agents", of_bob).status, 403);
    assert_eq!(send_as(&site, "", &format!("GET {of_bob}"), b"").status, 401);
}

#[test]
fn limits_hold_for_rows_and_time() {
    let site = Site::with(Limits::default(), &[("query.rows_max", "20")]);
    for seq in 0..30 {
        assert_eq!(statuses(&post(&site, "", &frame(&batch("n1", seq)))), [AckStatus::Stored]);
    }
    let rejected = |path: &str, headers: &str| {
        let answer = site.send(&format!("GET {path}"), headers, b"");
        assert_eq!((answer.status, &answer.json()["code"]), (413, &json!("54000")), "{path}");
    };
    rejected("/rest/metrics", "Host: localhost\r\n");
    rejected("/rest/metrics", COUNTED);
    rejected("/rest/metrics?limit=21", "Host: localhost\r\n");
    rejected("/rpc/get_metrics?nodes=n1&value=gt.0", "Host: localhost\r\n");
    let part = site.send("GET /rest/metrics?limit=20&offset=5", COUNTED, b"");
    assert_eq!((part.status, part.header("content-range")), (206, Some("5-24/30")));
    assert_eq!(part.json().as_array().unwrap().len(), 20);
    drop(site);
    let site = Site::with(
        Limits::default(),
        &[("query.time_max", "1s"), ("query.memory_bytes_max", "1MiB")],
    );
    for seq in 0..3 {
        assert_eq!(statuses(&post(&site, "", &frame(&batch("n1", seq)))), [AckStatus::Stored]);
    }
    // What patterns and trees may cost is bounded.
    let terms: Vec<String> = (0..3000).map(|n| format!("value.gt.{n}")).collect();
    let wide = site.get(&format!("/rest/metrics?or=({})", terms.join(",")));
    assert_eq!(wide.status, 413, "{wide:?}");
    let slow = format!("/rest/metrics?metric_id=match.{}", encoded(&"(a*)*".repeat(2000)));
    let answer = site.get(&slow);
    assert!(matches!(answer.status, 200 | 400 | 413), "{answer:?}");
    assert_eq!(site.get("/rest/metrics?select=value").json().as_array().unwrap().len(), 3);
    assert_eq!(site.metric("jobmeter_refusals_total{reason=\"fault\"}"), 0.0);
}
