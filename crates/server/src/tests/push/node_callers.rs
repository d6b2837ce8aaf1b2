//! Rows of callers without a token, whom the address of their node identifies. The test is the proxy.

use super::super::ingest::{batch, frame, post, statuses};
use super::super::{Answer, Site, secret};
use super::{OF_USER, insert, rejected, rows, shared};
use crate::Limits;
use crate::reloadable_config::ReloadableConfig;
use model::{Batch, DeviceId, JobEvent, SeriesEntry, SeriesTable, Timestamp};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use wire::AckStatus::Stored;

const TOKENS: &str = "agent:n1 token-of-n1\nagent:n3 token-of-n3\nagent token-of-agents\n\
                      user:2000 token-of-bob\nadmin token-of-admins\n";

/// A server with jobs on n1 that trusts the test as a proxy.
fn site(limits: Limits, flags: &[(&str, &str)]) -> Site {
    let dir = tempfile::tempdir().unwrap();
    secret(&dir.path().join("tokens"), TOKENS);
    let nodes = dir.path().join("nodes");
    secret(&nodes, "10.0.0.1 n1\n10.0.0.3 n3\n");
    let nodes = nodes.to_str().unwrap().to_owned();
    let own = [
        ("push.user_metrics", "nodes"),
        ("push.node_addresses", &nodes),
        ("push.proxies", "127.0.0.1"),
    ];
    let site = Site::within(dir, limits, &[&own, flags].concat());
    assert_eq!(statuses(&post(&site, "", &frame(&shared()))), [Stored]);
    site
}

/// Inserts without a token, from an address behind the proxy.
fn from(site: &Site, address: &str, more: &str, body: &Value) -> Answer {
    let headers = format!(
        "Host: localhost\r\nX-Forwarded-For: {address}\r\nContent-Type: application/json\r\n{more}"
    );
    site.send(&format!("POST {OF_USER}"), &headers, body.to_string().as_bytes())
}

/// A batch of one sample of a node's agent.
fn of_agent(node: &str, seq: u64) -> Batch {
    let mut batch = batch(node, seq);
    let entry = batch.table.entries[0].clone();
    let entry = SeriesEntry { device: DeviceId::new(node).unwrap(), ..entry };
    batch.table = Arc::new(SeriesTable { entries: vec![entry] });
    batch.ticks[0].at = crate::now().plus(-i64::try_from(seq).unwrap() * Timestamp::SECOND);
    batch
}

/// Sends it from an address behind the proxy.
fn agent_sends(site: &Site, token: &str, address: &str, batch: &Batch) {
    let headers = format!("Authorization: Bearer {token}\r\nX-Forwarded-For: {address}\r\n");
    assert_eq!(statuses(&post(site, &headers, &frame(batch))), [Stored]);
}

fn row() -> Value {
    json!({"metric_id": "app_phase", "value": 1})
}

#[test]
fn an_assigned_address_inserts_for_its_node_only() {
    let site = site(Limits::default(), &[]);
    let with = |more: Value| {
        let mut row = row();
        row.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        row
    };
    // The device is the node, whatever the body states.
    for device in ["bobs-node", "pdu", "a/b"] {
        let answer = from(&site, "10.0.0.1", "", &with(json!({"device_id": device})));
        assert_eq!(answer.status, 200, "{answer:?}");
        let stored = answer.json()[0].clone();
        assert_eq!(
            (&stored["device_id"], &stored["labels"]),
            (&json!("n1"), &json!({"_user": "unknown"}))
        );
    }
    assert_eq!(rows(&site, "bobs-node"), [] as [Value; 0]);
    let of_node = |more| from(&site, "10.0.0.1", "", &with(more));
    for (more, status, why) in [
        (json!({"job_id": 1}), 403, "has no job"),
        (json!({"job_id": "slurm:2"}), 403, "has no job"),
        (json!({"labels": {"_user": "1000"}}), 403, "labels of users begin with"),
        (json!({"labels": {"_device_alias": "n1"}}), 403, "labels of users begin with"),
        (json!({"timestamp": "5m"}), 400, "before your job's start"),
        (json!({"timestamp": "+2m"}), 400, "60 s after"),
        (json!({"metric_id": "load_1m"}), 400, "belongs to the program"),
        (json!({"metric_id": "anns_count"}), 400, "belongs to n1"),
    ] {
        rejected(&of_node(more), status, why);
    }
    let key = "Idempotency-Key: a\r\n";
    rejected(&from(&site, "10.0.0.1", key, &row()), 403, "no Idempotency-Key");
    rejected(&from(&site, "10.0.0.3", "", &row()), 403, "no job runs on n3");
    // A user's token counts, not the address; their series is another one.
    let token = "Authorization: Bearer token-of-bob\r\n";
    let of_bob = from(&site, "10.0.0.3", token, &with(json!({"device_id": "n1"})));
    assert_eq!((of_bob.status, &of_bob.json()[0]["labels"]), (200, &json!({"_user": "2000"})));
    rejected(&from(&site, "10.0.0.1", token, &with(json!({"device_id": "n7"}))), 403, "on n7");
    let wrong = "Authorization: Bearer token-of-nobody\r\n";
    rejected(&from(&site, "10.0.0.1", wrong, &row()), 401, "token");
    // After the end of the last job the address inserts nothing.
    let mut end = shared();
    let stop = Some(crate::now());
    end.seq = 1;
    end.jobs = end.jobs.into_iter().map(|event| JobEvent { stop, ..event }).collect();
    assert_eq!(statuses(&post(&site, "", &frame(&end))), [Stored]);
    rejected(&of_node(json!({})), 403, "no job runs on n1");
}

#[test]
fn a_forwarded_address_counts_only_from_a_named_proxy() {
    let site = site(Limits::default(), &[]);
    let answer = |address: &str| from(&site, address, "", &row()).status;
    // The client writes all but the last address.
    assert_eq!((answer("10.0.0.3, 10.0.0.1"), answer("10.0.0.1, 10.0.0.3")), (200, 403));
    assert_eq!(answer("10.0.0.1, 127.0.0.1"), 200);
    for unknown in ["10.0.0.9", "10.0.0.1, x", "127.0.0.1", "::1", ""] {
        assert_eq!(answer(unknown), 401, "{unknown}");
    }
    let other = [("push.proxies", "10.0.0.2"), ("access.loopback", "none")];
    let site = Site::within(
        site.stop(),
        Limits::default(),
        &[&other[..], &[("push.user_metrics", "nodes")]].concat(),
    );
    rejected(
        &from(&site, "10.0.0.1", "", &row()),
        401,
        "a proxy that `push.proxies` does not name",
    );
    let direct =
        site.send(&format!("POST {OF_USER}"), "Host: localhost\r\n", row().to_string().as_bytes());
    rejected(&direct, 401, "the server's own machine");
    // By default no address identifies a node.
    let site = Site::within(site.stop(), Limits::default(), &[("push.proxies", "127.0.0.1")]);
    rejected(&from(&site, "10.0.0.1", "", &row()), 401, "send a token");
}

#[test]
fn an_agent_with_its_own_token_identifies_its_address() {
    let limits = Limits { address_new_time: Duration::ZERO, ..Limits::default() };
    let site = site(limits, &[]);
    let status = |address: &str| from(&site, address, "", &row()).status;
    assert_eq!(status("10.0.1.1"), 401);
    agent_sends(&site, "token-of-n1", "10.0.1.1", &of_agent("n1", 11));
    assert_eq!(status("10.0.1.1"), 200);
    // The file comes before agents, and a shared token identifies nobody.
    agent_sends(&site, "token-of-n1", "10.0.0.3", &of_agent("n1", 12));
    rejected(&from(&site, "10.0.0.3", "", &row()), 403, "no job runs on n3");
    agent_sends(&site, "token-of-agents", "10.0.1.2", &of_agent("n1", 13));
    rejected(&from(&site, "10.0.1.2", "", &row()), 401, "no agent with a token of its own");
    // Two nodes behind one address are none.
    for (token, node, address) in
        [("token-of-n3", "n3", "10.0.1.1"), ("token-of-agents", "n4", "10.0.1.3")]
    {
        agent_sends(
            &site,
            "token-of-n1",
            address,
            &of_agent("n1", if node == "n3" { 14 } else { 15 }),
        );
        assert_eq!(status(address), 200);
        agent_sends(&site, token, address, &of_agent(node, 0));
        rejected(&from(&site, address, "", &row()), 401, "several agents");
    }
    // After a start the server first waits for other agents of an address.
    let flags = [("push.user_metrics", "nodes"), ("push.proxies", "127.0.0.1")];
    let site = Site::within(site.stop(), Limits::default(), &flags);
    agent_sends(&site, "token-of-n1", "10.0.1.1", &of_agent("n1", 20));
    let new = from(&site, "10.0.1.1", "", &row());
    rejected(&new, 429, "for a short time only");
    assert!(new.header("retry-after").is_some_and(|time| time.parse::<u32>().unwrap() > 100));
}

#[test]
fn limits_are_those_of_the_node() {
    let limits = [("push.user_rows_per_second_max", "1"), ("push.node_rows_per_second_max", "1")];
    let site = site(Limits::default(), &limits);
    let many = |count: usize| {
        let row = |n| json!({"device_id": "n1", "metric_id": "app_phase", "labels": {"n": n}});
        json!((0..count).map(row).collect::<Vec<_>>())
    };
    assert_eq!(from(&site, "10.0.0.1", "", &many(30)).status, 200);
    rejected(&from(&site, "10.0.0.1", "", &many(31)), 429, "unknown users of n1 inserts");
    // They leave a known user's share alone, within that of the node.
    assert_eq!(insert(&site, "token-of-bob", OF_USER, &many(25)).status, 200);
    rejected(&insert(&site, "token-of-bob", OF_USER, &many(20)), 429, "node n1 inserts");
}

#[test]
fn a_wrong_file_of_addresses_is_an_error_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("nodes");
    secret(&file, "10.0.0.1 n1\n127.0.0.1 n2\n");
    let flags = [("push.user_metrics", "nodes"), ("push.node_addresses", file.to_str().unwrap())];
    secret(&dir.path().join("tokens"), TOKENS);
    let config = Site::config(&dir, &flags);
    let errors = || {
        let (listen, root) = (["127.0.0.1:1".parse().unwrap()], kernel::Root::live().unwrap());
        let loaded = ReloadableConfig::load(&config, None, &listen, &root);
        loaded.map_or_else(|errors| errors.to_string(), |_| String::new())
    };
    assert!(errors().contains("nodes:2: `127.0.0.1` identifies no other machine"), "{}", errors());
    secret(&file, "10.0.0.1 n1\n");
    assert_eq!(errors(), "");
}
