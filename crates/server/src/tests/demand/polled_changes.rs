//! Changes of the periods of polled devices: which one is in force, by the reports of all pollers of a device.

use super::{ADMIN, good};
use crate::tests::Site;
use crate::tests::ingest::{HEADERS, batch, frame};
use model::{DeviceId, Labels, Metric, SeriesEntry, SeriesTable, Unit};
use serde_json::{Value, json};
use std::sync::Arc;

/// Sends a poll of pdu-1 by a poller.
fn polls(site: &Site, poller: &str, seq: u64) {
    let entry = SeriesEntry {
        metric: Arc::new(Metric::gauge("poll_success", Unit::Count, "")),
        device: DeviceId::new("pdu-1").unwrap(),
        labels: Labels::new([("protocol", "snmp"), ("target", "snmp://pdu-1:161")]).unwrap(),
        job: None,
        start: None,
    };
    let polled = model::Batch {
        table: Arc::new(SeriesTable { entries: vec![entry] }),
        values: vec![1.0],
        ..batch(&format!("poller-{poller}/group-0"), seq)
    };
    let answer = site.send("POST /v1/batches", &format!("{HEADERS}{ADMIN}"), &frame(&polled));
    assert_eq!(answer.status, 200, "{answer:?}");
}

/// Requests the changes of pdu-1 as a poller that rejects these, and returns the IDs that it receives.
fn receives(site: &Site, poller: &str, applied: i64, rejects: &[i64]) -> Vec<i64> {
    let rejection = |change: &i64| json!({"change": change, "source": "snmp", "code": "not_allowed", "reason": "too short"});
    let rejected: Vec<Value> = rejects.iter().map(rejection).collect();
    let request =
        json!({"poller": poller, "names": ["pdu-1"], "applied": applied, "rejected": rejected});
    let answer = good(site, ADMIN, "POST /v1/poller/promotions", &request);
    let periods = answer["periods"].as_array().unwrap();
    periods.iter().map(|one| one["change"].as_i64().unwrap()).collect()
}

fn set(site: &Site, seconds: f64) -> i64 {
    let sources = json!({"snmp": {"period_seconds": seconds}});
    let change = json!({"nodes": "pdu-1", "for_seconds": 600, "sources": sources});
    good(site, ADMIN, "POST /api/v1/settings", &change)["id"].as_i64().unwrap()
}

/// Of each change: number of devices that apply it, those with a later one, and the reasons of rejections.
fn listed(site: &Site) -> Vec<(u64, Value, Vec<String>)> {
    let changes = good(site, ADMIN, "GET /api/v1/settings", &Value::Null);
    let reason = |one: &Value| one["reason"].as_str().unwrap().to_owned();
    let row = |one: &Value| {
        let reasons = one["rejected"].as_array().unwrap().iter().map(reason).collect();
        (one["nodes_applied"].as_u64().unwrap(), one["superseded"].clone(), reasons)
    };
    changes.as_array().unwrap().iter().map(row).collect()
}

#[test]
fn a_rejected_change_leaves_the_accepted_one_in_force() {
    let site = Site::start();
    polls(&site, "one", 0);
    let (first, second) = (set(&site, 5.0), set(&site, 1.0));
    assert_eq!(receives(&site, "one", 0, &[]), [first, second], "it decides about both");
    receives(&site, "one", second, &[second]);
    let none = json!([]);
    let rejected = (0, none.clone(), vec!["too short".to_owned()]);
    assert_eq!(listed(&site), [(1, none.clone(), vec![]), rejected]);
    receives(&site, "one", second, &[]);
    let by = json!([{"device": "pdu-1", "source": "snmp", "by": second, "poller": null}]);
    assert_eq!(listed(&site), [(0, by, vec![]), (1, none.clone(), vec![])]);
}

#[test]
fn a_change_counts_as_applied_if_every_poller_of_the_device_applies_it() {
    let site = Site::start();
    polls(&site, "one", 0);
    polls(&site, "two", 0);
    let change = set(&site, 1.0);
    let none = json!([]);
    receives(&site, "two", change, &[]);
    assert_eq!(listed(&site), [(1, none.clone(), vec![])], "the other one does not report");
    receives(&site, "one", change, &[change]);
    let reason = vec!["the poller one: too short".to_owned()];
    assert_eq!(listed(&site), [(0, none.clone(), reason)]);
    let later = set(&site, 2.0);
    receives(&site, "one", later, &[later]);
    receives(&site, "two", later, &[]);
    let by = json!([{"device": "pdu-1", "source": "snmp", "by": later, "poller": "two"}]);
    let reason = vec!["the poller one: too short".to_owned()];
    assert_eq!(listed(&site), [(0, by, vec![]), (0, none, reason)]);
}

#[test]
fn a_token_of_agents_changes_no_errors_of_description_files() {
    const AGENTS: &str = "Authorization: Bearer token-of-agents\r\n";
    let site = Site::start();
    polls(&site, "one", 0);
    let count_after = |token: &str, count: u32| {
        let errors = json!({"count": count, "listed": []});
        let request = json!({"poller": "one", "names": ["pdu-1"], "applied": 0, "rejected": [], "entry_errors": errors});
        good(&site, token, "POST /v1/poller/promotions", &request);
        let pollers = good(&site, ADMIN, "GET /api/v1/pollers", &Value::Null);
        pollers[0]["entry_errors"]["count"].as_u64().unwrap()
    };
    assert_eq!(
        [(AGENTS, 3), (ADMIN, 2), (AGENTS, 0)].map(|(token, n)| count_after(token, n)),
        [0, 2, 2]
    );
}
