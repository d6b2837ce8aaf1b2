//! Tests of expositions.

use super::*;
use crate::descriptions::entries_of;
use crate::polling::poller::run;
use model::{Cause, Kind};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

fn scraped(descriptions: &[Description], text: &str) -> Scrape {
    let expositions = expositions(descriptions.iter().enumerate());
    let requests = &expositions[0].1;
    read(text, Format::Text, requests, &vec![Timestamp(7_000_000); requests.len()]).unwrap()
}

#[test]
fn lists_are_united_and_labels_of_the_device_win() {
    let two = entries_of(
        "- {name: x, device_id: n1, url: 'prometheus://n1:9100/a-b', labels: {cpu: 7, room: 1}}\n\
         - {name: y, device_id: n2, url: 'prometheus://n1:9100/c', scale_factor: 0.5}\n",
    );
    let text = "# TYPE b counter\na{cpu=\"0\"} 1\nb 2 3000\nc 8\nd 1\nbad\n";
    let scrape = scraped(&two, text);
    let found: Vec<_> = scrape
        .readings
        .iter()
        .map(|one| (&*one.metric, one.device.as_str(), one.labels.as_str(), one.at.0, one.value))
        .collect();
    assert_eq!(
        found,
        [
            ("prom_a", "n1", r#"{"cpu": "0", "room": 1}"#, 7_000_000, 1.0),
            ("prom_b", "n1", r#"{"cpu": 7, "room": 1}"#, 3_000_000, 2.0),
            ("prom_c", "n2", "{}", 7_000_000, 4.0),
        ]
    );
    assert_eq!(scrape.readings[1].meaning.kind, Kind::Counter);
    assert_eq!(
        (scrape.bad_lines, scrape.first_bad.as_deref()),
        (1, Some("line 6: the value is not a number"))
    );
}

#[test]
fn each_device_of_an_exporter_has_its_own_samples() {
    let all = entries_of(
        "- {name: x, device_id: n1, url: 'prometheus://n1:9100/a-b', labels: {room: 1}}\n\
         - {name: y, device_id: n2, url: 'prometheus://n1:9100/a', scale_factor: 0.5}\n\
         - {name: z, device_id: n1, url: 'prometheus://n1:9100/a-c', scale_factor: 2}\n",
    );
    let scrape = scraped(&all, "a 8\nb 4\nc 2\n");
    let found: Vec<_> = scrape
        .readings
        .iter()
        .map(|one| (one.device.as_str(), &*one.metric, one.labels.as_str(), one.value))
        .collect();
    let room = r#"{"room": 1}"#;
    assert_eq!(
        found,
        [
            ("n1", "prom_a", room, 8.0),
            ("n1", "prom_a", "{}", 16.0),
            ("n1", "prom_b", room, 4.0),
            ("n1", "prom_c", "{}", 4.0),
            ("n2", "prom_a", "{}", 4.0),
        ]
    );
    // The exporter's own label replaces those in which the entries differ: one series has one sample.
    let scrape = scraped(&all[..1], "a{room=\"2\"} 8\n");
    let mut two = all[..1].to_vec();
    two.extend(entries_of(
        "- {name: x, device_id: n1, url: 'prometheus://n1:9100/a', labels: {room: 3}}\n",
    ));
    let both = scraped(&two, "a{room=\"2\"} 8\n");
    assert_eq!(both.readings, scrape.readings, "{:?}", both.readings);
}

#[test]
fn every_stored_name_is_one_of_the_frame() {
    let all = entries_of("- {name: x, device_id: n1, url: 'prometheus://n1:9100/'}\n");
    let text = "{\"my metric ü\"} 2\nkwollect_custom{_metric_id=\"a, b\"} 3\n\
                kwollect_custom{_metric_id=\"outlet power\"} 4\n{\"a\\\"b\"} 5\n";
    let scrape = scraped(&all, text);
    let names: Vec<_> = scrape.readings.iter().map(|one| &*one.metric).collect();
    assert_eq!(names, ["prom_my metric ü", "outlet power"]);
    assert!(scrape.readings.iter().all(|one| one.definition().check().is_ok()));
    assert_eq!(scrape.bad_lines, 2);
    assert!(scrape.first_bad.unwrap().contains("`a, b` is no metric name"));
    // Those lines are counted, once for each device, and no value fails.
    let mut exchange = Exchange::new(Timestamp(0), 1);
    exchange.count_errors(&[0], &[&all[0]], scrape.bad_lines);
    assert_eq!(exchange.other_errors, [(0, 2)]);
}

#[test]
fn meanings_come_from_the_exposition() {
    let all = entries_of("- {name: x, device_id: n1, url: 'prometheus://n1:9100/'}\n");
    let text = "# HELP a_seconds Times.\n# TYPE a_seconds histogram\na_seconds_bucket{le=\"1\"} 3\n\
                a_seconds_sum 2\n# TYPE up gauge\nup 1\nb_bytes_total 5\n";
    let scrape = scraped(&all, text);
    let found: Vec<_> = scrape
        .readings
        .iter()
        .map(|one| (&*one.metric, one.meaning.kind, one.meaning.unit, &*one.help))
        .collect();
    assert_eq!(
        found,
        [
            ("prom_a_seconds_bucket", Kind::Counter, Unit::Count, "Times."),
            ("prom_a_seconds_sum", Kind::Counter, Unit::Seconds, "Times."),
            ("prom_up", Kind::Gauge, Unit::Count, ""),
            ("prom_b_bytes_total", Kind::Counter, Unit::Bytes, ""),
        ]
    );
}

#[test]
fn custom_metrics_have_names_and_instants_of_their_own() {
    let all = entries_of("- {name: x, device_id: n1, url: 'prometheus://n1:9100/'}\n");
    let text = "# TYPE kwollect_custom counter\n# HELP kwollect_custom Not this one.\n\
                kwollect_custom{_metric_id=\"power\",_timestamp=\"86407.0\",a=\"b\"} 42\n\
                kwollect_custom{a=\"b\"} 1\nkwollect_custom{_metric_id=\"x\",_timestamp=\"soon\"} 1\n\
                kwollect_custom{_metric_id=\"x\",_timestamp=\"86407.1\"} 1\n";
    let scrape = scraped(&all, text);
    let found: Vec<_> =
        scrape.readings.iter().map(|one| (&*one.metric, one.labels.as_str(), one.at.0)).collect();
    let origin = r#"{"a": "b", "_metric_origin": "prom_kwollect_custom"}"#;
    assert_eq!(
        found,
        [("power", origin, 86_407_000_000), ("prom_kwollect_custom", r#"{"a": "b"}"#, 7_000_000)]
    );
    assert_eq!(scrape.bad_lines, 2, "one is no time, and one a day ahead");
    let meanings = scrape.readings.iter().map(|one| (one.meaning.kind, &*one.help));
    let meanings: Vec<_> = meanings.collect();
    assert_eq!(meanings, [(Kind::Gauge, ""), (Kind::Counter, "Not this one.")]);
}

#[test]
fn a_page_that_is_no_exposition_and_missing_metrics_are_failures() {
    let all = entries_of(
        "- {name: a, device_id: n, url: 'prometheus://n:9100/none-other'}\n\
         - {name: b, device_id: n, url: 'prometheus://n:9100/none-here'}\n\
         - {name: c, device_id: n, url: 'prometheus://n:9100/kwollect_custom'}\n",
    );
    let due: Vec<&Description> = all.iter().collect();
    let requests = expositions(due.iter().copied().enumerate()).remove(0).1;
    let read = |text| read(text, Format::Text, &requests, &[Timestamp(0)]);
    let page = read("<html>not metrics</html>\n").unwrap_err();
    assert!(page.what.starts_with("the response is no exposition"), "{page}");
    let scrape = read("here 1\nelsewhere 2\n").unwrap();
    let missing = |(one, request)| missing(one, request, &scrape.names).map_err(|e| e.to_string());
    let found: Vec<_> = requests.iter().copied().map(missing).collect();
    let absent = Err("the exporter has no metric none, other".to_owned());
    assert_eq!(found, [absent, Ok(vec!["none"]), Ok(vec![])]);
    assert_eq!(read("").unwrap().readings.len(), 0, "an empty exposition");
}

#[test]
fn an_exporter_chooses_neither_the_node_nor_the_pollers_own_names() {
    let all = entries_of(
        "- {name: a, device_id: n, url: 'prometheus://n:9100', labels: {_device_alias: n1}}\n",
    );
    let text = "a{_device_alias=\"n2\",b=\"c\"} 1\n\
                kwollect_custom{_metric_id=\"poll_success\"} 0\n";
    let scrape = scraped(&all, text);
    assert_eq!((scrape.readings.len(), scrape.bad_lines), (1, 1));
    let labels = &scrape.readings[0].labels;
    assert_eq!(labels.get("_device_alias").as_deref(), Some("n1"));
    assert_eq!(labels.get("b").as_deref(), Some("c"));
}

#[tokio::test]
async fn a_wrong_password_is_sent_once_per_exchange_and_last() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let requests: Arc<Mutex<Vec<String>>> = Arc::default();
    let received = Arc::clone(&requests);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut bytes = [0; 4096];
            let length = stream.read(&mut bytes).await.unwrap();
            let request = String::from_utf8_lossy(&bytes[..length]).into_owned();
            let path = request.split(' ').nth(1).unwrap().to_owned();
            let status = if path == "/c" { "200 OK" } else { "401 Unauthorized" };
            received.lock().unwrap().push(path);
            let text = format!("HTTP/1.1 {status}\r\ncontent-length: 4\r\n\r\na 1\n");
            stream.write_all(text.as_bytes()).await.unwrap();
        }
    });
    let entry = |path: &str| {
        format!(
            "- {{name: {path}, device_id: d, url: 'prometheus://ann:wrong@127.0.0.1:{port}/?path=/{path}'}}\n"
        )
    };
    let all = entries_of(&["a", "b", "c"].map(entry).concat());
    let due: Vec<&Description> = all.iter().collect();
    let mut exporter = Exporter::new(&all[0].target);
    let mut poll = async || {
        let mut exchange = Exchange::new(Timestamp(0), due.len());
        run(&mut exporter, &due, &mut exchange).await;
        let all = exchange.failures.iter();
        let denied = all.filter(|(_, failure)| failure.cause == Cause::PermissionLost);
        (denied.count(), std::mem::take(&mut *requests.lock().unwrap()).concat())
    };
    assert_eq!(poll().await, (3, "/a".to_owned()));
    assert_eq!(poll().await, (3, "/b".to_owned()));
    assert_eq!(poll().await, (2, "/c/a".to_owned()));
    assert_eq!(poll().await, (2, "/c/b".to_owned()), "in turn");
}
