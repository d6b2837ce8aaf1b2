//! Requests as the clients of Kwollect send them: by scripts, enoslib, e2clab, Alumet and curl.

use crate::Limits;
use crate::tests::Site;
use crate::tests::ingest::{batch, frame, post, statuses};
use jiff::tz::TimeZone;
use model::{DeviceId, Labels, Metric, SeriesEntry, SeriesTable, Tick, Timestamp, Unit};
use serde_json::json;
use std::sync::Arc;
use wire::AckStatus;

const TOKEN: &str = "Host: localhost\r\nAuthorization: Bearer token-of-admins\r\n";

/// A server with a sample of a node's load at the beginning of a minute, and half a second later one of its wattmeter.
/// Returns also that minute, in seconds since 1970.
fn site() -> (Site, i64) {
    let site = Site::with(Limits::default(), &[("site", "lyon")]);
    let minute = (crate::now().0 / Timestamp::SECOND / 60 - 10) * 60;
    let entry = |metric: &'static str, device: &str, labels| SeriesEntry {
        metric: Arc::new(Metric::gauge(metric, Unit::Count, "Something.")),
        device: DeviceId::new(device).unwrap(),
        job: None,
        labels,
        start: None,
    };
    let fed = Labels::new([("_device_alias", "nova-1")]).unwrap();
    let series = [
        ("n1", entry("prom_node_load1", "nova-1", Labels::default()), 0, 1.5),
        (
            "poller-lab/group-1",
            entry("wattmetre_power_watt", "wattmetre1-port3", fed),
            500_000,
            130.25,
        ),
    ];
    for (origin, entry, micros, value) in series {
        let at = Timestamp(minute * Timestamp::SECOND + micros);
        let samples = model::Batch {
            table: Arc::new(SeriesTable { entries: vec![entry] }),
            ticks: vec![Tick { at, samples: 1 }],
            values: vec![value],
            ..batch(origin, 0)
        };
        assert_eq!(statuses(&post(&site, "", &frame(&samples))), [AckStatus::Stored]);
    }
    (site, minute)
}

#[test]
fn query_forms_of_clients() {
    let (site, minute) = site();
    let zoned = |zone| jiff::Timestamp::from_second(minute).unwrap().to_zoned(zone);
    let text = |zone, format: &str| zoned(zone).strftime(format).to_string();
    // A time without a zone is in that of the server.
    let local = |format: &str| text(TimeZone::system(), format);
    let (utc, paris) = (TimeZone::UTC, TimeZone::fixed(jiff::tz::offset(1)));
    let (from, to) = (minute - 10, minute + 10);
    let range = format!("start_time={from}&end_time={to}");
    let seconds = local("start_time=%Y-%m-%dT%H:%M:%S");
    let plus = text(paris.clone(), "start_time=%Y-%m-%dT%H:%M:%S%%2B01:00");
    let blank = text(paris, "start_time=%Y-%m-%dT%H:%M:%S+01:00");
    for paths in [
        "/rpc/get_metrics",
        "/sites/lyon/metrics",
        "/stable/sites/lyon/metrics",
        "/sid/sites/lyon/metrics",
    ] {
        for (query, rows) in [
            (format!("nodes=nova-1&{range}"), 2),
            (
                format!(
                    "nodes=nova-1.lyon.grid5000.fr&start_time={from}.123456&end_time={minute}.499999"
                ),
                1,
            ),
            (format!("nodes=nova-1&metrics=wattmetre_power_watt&{seconds}"), 1),
            (format!("nodes=nova-1&{seconds}.250000"), 1),
            (
                format!("nodes=nova-1,nova-2&summary=False&{}", local("start_time=%Y-%m-%dT%H:%M")),
                2,
            ),
            (
                format!(
                    "devices=wattmetre1-port3&{}",
                    text(utc.clone(), "start_time=%Y-%m-%dT%H:%M:%SZ")
                ),
                1,
            ),
            (format!("nodes=nova-1&{plus}"), 2),
            (format!("nodes=nova-1&{blank}"), 2),
            (format!("nodes=nova-1&metrics=prom_node_load1,wattmetre_power_watt&end_time={to}"), 2),
            (format!("nodes=nova&{range}"), 0),
            (format!("nodes=nova-1&summary=True&{range}"), 2),
            (format!("nodes=nova-1&as_rate=auto&{range}"), 2),
        ] {
            let found = site.get(&format!("{paths}?{query}")).json();
            assert_eq!(found.as_array().map(Vec::len), Some(rows), "{paths} {query} {found}");
        }
    }
    let answer = site.get(&format!("/rpc/get_metrics?nodes=nova-1&{range}"));
    let time = local("%Y-%m-%dT%H:%M:%S");
    let zone = local("%:z");
    let want = format!(
        "[{{\"timestamp\":\"{time}{zone}\",\"device_id\":\"nova-1\",\"metric_id\":\"prom_node_load1\",\
         \"value\":1.5,\"labels\":{{}}}}, \n {{\"timestamp\":\"{time}.5{zone}\",\"device_id\":\"nova-1\",\
         \"metric_id\":\"wattmetre_power_watt\",\"value\":130.25,\
         \"labels\":{{\"_device_orig\": [\"wattmetre1-port3\"]}}}}]"
    );
    assert_eq!(answer.text(), want);
    for path in ["/sites/nancy/metrics?nodes=nova-1", "/beta/sites/lyon/metrics?nodes=nova-1"] {
        assert_eq!(site.get(path).status, 404, "{path}");
    }
    let without = Site::start();
    let answer = without.get("/sites/lyon/metrics?nodes=nova-1");
    assert_eq!((answer.status, &answer.json()["code"]), (404, &json!("PGRST125")));
}

#[test]
fn rows_of_alumet_are_inserted_at_the_site() {
    let (site, _) = site();
    let now = crate::now().seconds();
    let row = json!({"timestamp": now, "metric_id": "energy", "device_id": "nova-1", "value": 7.5,
                     "labels": {"domain": "package"}});
    let body = json!([row, row]).to_string();
    let headers = format!("{TOKEN}Content-Type: application/json\r\n");
    let send = |path: &str, headers: &str| {
        site.send(&format!("POST {path}"), headers, body.as_bytes()).status
    };
    assert_eq!(send("/stable/sites/lyon/metrics", &headers), 200);
    assert_eq!(send("/sites/nancy/metrics", &headers), 404);
    let guest = headers.replace("token-of-admins", "token-of-guests");
    assert_eq!(send("/sites/lyon/metrics", &guest), 403);
    let stored = site.get("/sites/lyon/metrics?nodes=nova-1&metrics=energy").json();
    assert!(stored.as_array().is_some_and(|rows| !rows.is_empty()), "{stored}");
    assert_eq!(stored[0]["labels"]["domain"], "package");
}

#[test]
fn programs_find_the_document_where_postgrest_has_it() {
    let site = Site::start();
    let get =
        |accept: &str| site.send("GET /", &format!("Host: localhost\r\nAccept: {accept}\r\n"), b"");
    let document = get("application/openapi+json, application/json").json();
    assert_eq!(document, site.get("/api/v1/openapi.json").json());
    for path in ["/rpc/get_metrics", "/rest/{table}"] {
        assert!(document["paths"][path]["get"].is_object(), "{path}");
    }
    assert!(get("text/html, */*").text().starts_with("<!"));
}
