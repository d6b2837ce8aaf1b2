//! Nodes and pollers: removal by administrators, and nodes that several agents claim.

use super::Site;
use super::demand::status;
use super::ingest::{batch, frame, post, statuses};
use crate::Limits;
use model::setting::AgentStatus;
use model::{Boot, DeviceId, Labels, Metric, SeriesTable, Tick, Timestamp, Unit};
use std::sync::Arc;
use wire::AckStatus::Stored;

fn forget(site: &Site, node: &str) -> super::Answer {
    let headers = "Host: localhost\r\nAuthorization: Bearer token-of-admins\r\n";
    site.send(&format!("DELETE /api/v1/nodes/{node}"), headers, b"")
}

#[test]
fn a_forgotten_node_is_no_node_until_it_sends_again() {
    let site = Site::start();
    assert_eq!(statuses(&post(&site, "", &frame(&batch("n1", 0)))), [Stored]);
    let alive = forget(&site, "n1");
    assert_eq!(alive.status, 409, "{alive:?}");
    assert!(alive.text().contains("stop its agent first"), "{alive:?}");
    let unknown = forget(&site, "n11");
    assert_eq!((unknown.status, &unknown.json()["hint"]), (404, &"did you mean `n1`?".into()));

    let stop = status(&AgentStatus { stops: true, ..AgentStatus::default() });
    let stops = post(&site, &stop, &frame(&batch("n1", 1)));
    assert_eq!(statuses(&stops), [Stored]);
    let forgotten = forget(&site, "n1");
    assert_eq!((forgotten.status, &forgotten.json()["device"]), (200, &"n1".into()));
    assert_eq!(forget(&site, "n1").status, 404, "it is forgotten already");
    let site = Site::within(site.stop(), Limits::default(), &[]);
    assert_eq!(site.get("/api/v1/nodes").text(), "[]");
    assert_eq!(site.get("/api/v1/health").json()["nodes"], 0);
    let samples = site.get("/rpc/get_metrics?nodes=n1").json();
    assert_eq!(samples.as_array().map(Vec::len), Some(2), "{samples}");
    let audit = site.get("/api/v1/audit?action=DELETE").json();
    assert_eq!(
        audit.as_array().map(Vec::len),
        Some(1),
        "rejected requests are no changes: {audit}"
    );
    assert_eq!(audit[0]["action"], "DELETE /api/v1/nodes/n1", "{audit}");

    assert_eq!(statuses(&post(&site, "", &frame(&batch("n1", 2)))), [Stored]);
    let node = &site.get("/api/v1/nodes").json()[0];
    assert_eq!((&node["device"], &node["alive"]), (&"n1".into(), &true.into()));
}

#[test]
fn metrics_count_polled_devices_for_callers_who_see_every_node() {
    let site = Site::start();
    let admins = "Host: localhost\r\nAuthorization: Bearer token-of-admins\r\n";
    let page = |headers: &str| site.send("GET /metrics", headers, b"").text().to_owned();
    assert!(!page(admins).contains("jobmeter_poll_"), "there is no poller");
    let labels = [("protocol", "snmp"), ("target", "snmp://pdu-1:161")];
    let entry = model::SeriesEntry {
        metric: Arc::new(Metric::gauge("poll_success", Unit::Count, "")),
        device: DeviceId::new("pdu-1").unwrap(),
        labels: Labels::new(labels).unwrap(),
        job: None,
        start: None,
    };
    let polled = model::Batch {
        table: Arc::new(SeriesTable { entries: vec![entry] }),
        values: vec![0.0],
        ..batch("poller-lab/group-0", 0)
    };
    assert_eq!(statuses(&post(&site, "", &frame(&polled))), [Stored]);
    // The summary of the first request is used for 10 s.
    let site = Site::within(site.stop(), Limits::default(), &[("access.nodes", "own")]);
    let page = |headers: &str| site.send("GET /metrics", headers, b"").text().to_owned();
    let lines = page(admins);
    for line in [
        "jobmeter_poll_devices{protocol=\"snmp\",state=\"failing\"} 1",
        "jobmeter_poll_failing{cause=\"unknown\"} 1",
        "jobmeter_poll_pollers{state=\"alive\"} 1",
        "jobmeter_poll_pollers{state=\"silent\"} 0",
        "jobmeter_poll_last_batch_age_seconds{poller=\"lab\"} ",
    ] {
        assert!(lines.contains(line), "{line}\n{lines}");
    }
    let users = page("Host: localhost\r\nAuthorization: Bearer token-of-77\r\n");
    assert!(users.contains("jobmeter_") && !users.contains("jobmeter_poll_"), "{users}");
}

/// Sends two samples of one boot of n1's agent, with these ages in seconds.
fn sends(site: &Site, boot: u8, seq: u64, ago: [i64; 2]) {
    let tick = |ago: i64| Tick { at: crate::now().plus(-ago * Timestamp::SECOND), samples: 1 };
    let batch = model::Batch {
        boot: Boot([boot; 16]),
        ticks: ago.map(tick).to_vec(),
        index: vec![0, 0],
        values: vec![0.5, 0.5],
        ..batch("n1", seq)
    };
    assert_eq!(statuses(&post(site, "", &frame(&batch))), [Stored]);
}

#[test]
fn two_agents_of_one_name_are_a_conflict_and_a_restart_with_a_spool_is_none() {
    let site = Site::start();
    let conflict = || site.get("/api/v1/nodes").json()[0]["conflict"].clone();
    sends(&site, 1, 0, [100, 90]);
    sends(&site, 2, 0, [60, 50]);
    // The first boot's spool arrives later.
    sends(&site, 1, 1, [80, 70]);
    sends(&site, 2, 1, [40, 30]);
    assert_eq!(conflict(), false);
    sends(&site, 1, 2, [45, 20]);
    assert_eq!(conflict(), true);
}

/// A batch of a group of a poller, with a sample of each series now: metric, device and value. A port feeds node-7.
fn polled(group: &str, seq: u64, series: &[(&'static str, &str, f64)]) -> model::Batch {
    let labels = |metric: &str, device: &str| match metric.starts_with("wattmetre_") {
        true => Labels::new([("_device_alias", "node-7")]).unwrap(),
        false => {
            let target = format!("snmp://{device}:161");
            Labels::new([("protocol", "snmp"), ("target", &target)]).unwrap()
        }
    };
    let entry = |(metric, device, _): &(&'static str, &str, f64)| model::SeriesEntry {
        metric: Arc::new(Metric::gauge(metric, Unit::Count, "")),
        device: DeviceId::new(device).unwrap(),
        labels: labels(metric, device),
        job: None,
        start: None,
    };
    let samples = u32::try_from(series.len()).unwrap();
    model::Batch {
        table: Arc::new(SeriesTable { entries: series.iter().map(entry).collect() }),
        ticks: vec![Tick { at: crate::now(), samples }],
        index: (0..samples).collect(),
        values: series.iter().map(|(_, _, value)| *value).collect(),
        ..batch(group, seq)
    }
}

#[test]
fn an_ended_poller_is_not_silent_and_its_devices_can_be_forgotten() {
    let site = Site::start();
    let forget = |site: &Site, poller: &str| {
        let headers = "Host: localhost\r\nAuthorization: Bearer token-of-admins\r\n";
        site.send(&format!("DELETE /api/v1/pollers/{poller}"), headers, b"")
    };
    let states = |site: &Site| {
        let devices = site.get("/api/v1/devices").json();
        let of = |one: &serde_json::Value, key: &str| one[key].as_str().unwrap_or("-").to_owned();
        let row = |one| ["device", "poller", "protocol", "state", "reason"].map(|key| of(one, key));
        devices.as_array().unwrap().iter().map(|one| row(one).join(" ")).collect::<Vec<_>>()
    };
    let meter =
        |seq| polled("poller-w1/group-0", seq, &[("wattmetre_power_watt", "w1-port0", 42.0)]);
    let pdu = polled("poller-lab/group-0", 0, &[("poll_success", "pdu-1", 1.0)]);
    assert_eq!(statuses(&post(&site, "", &frame(&pdu))), [Stored]);
    assert_eq!(statuses(&post(&site, "", &frame(&meter(0)))), [Stored]);
    let alive = ["pdu-1 lab snmp alive -", "w1-port0 w1 wattmetre alive -"];
    assert_eq!(states(&site), alive);
    assert_eq!(site.get("/api/v1/devices").json()[1]["aliases"], serde_json::json!(["node-7"]));
    let sending = forget(&site, "w1");
    assert!(sending.status == 409 && sending.text().contains("stop it first"), "{sending:?}");
    let unknown = forget(&site, "w11");
    assert_eq!((unknown.status, &unknown.json()["hint"]), (404, &"did you mean `w1`?".into()));

    let stop = status(&AgentStatus { stops: true, ..AgentStatus::default() });
    let goodbye = model::Batch {
        table: Arc::default(),
        ticks: Vec::new(),
        index: Vec::new(),
        values: Vec::new(),
        ..batch("poller-w1/group-0", 1)
    };
    assert_eq!(statuses(&post(&site, &stop, &frame(&goodbye))), [Stored]);
    let ended = [alive[0], "w1-port0 w1 wattmetre ended the feed has ended"];
    assert_eq!(states(&site), ended);
    assert_eq!(site.get("/api/v1/devices?failing=true").text(), "[]");
    // Also after a restart of the server.
    let site = Site::within(site.stop(), Limits::default(), &[]);
    assert_eq!(states(&site), ended);
    let forgotten = forget(&site, "w1");
    assert_eq!((forgotten.status, &forgotten.json()["ended"]), (200, &true.into()));
    assert_eq!(states(&site), alive[..1]);
    assert_eq!(forget(&site, "w1").status, 404, "it is forgotten already");
    assert_eq!(statuses(&post(&site, "", &frame(&meter(2)))), [Stored]);
    assert_eq!(states(&site), alive);
}
