//! Rows that programs and users insert, and who may send as a poller.

mod node_callers;

use super::access_matrix::{send_as, shared};
use super::ingest::{batch, frame, post, statuses};
use super::{Answer, Site};
use crate::Limits;
use model::{JobEvent, Labels, Metric, SeriesEntry, SeriesTable, Timestamp, Unit};
use serde_json::{Value, json};
use std::sync::Arc;
use wire::AckStatus::{RejectedTemporarily, Stored};

const TOKENS: &str = "push:lab token-of-lab\npush token-of-push\npoller:lab token-of-poller\n\
                      agent:poller-lab/group-0 token-of-group\nagent:push/rows token-of-rows\n\
                      agent token-of-agents\nuser:1000 token-of-ann\nuser:2000 token-of-bob\n\
                      admin token-of-admins\n";

const INSERT: &str = "/rpc/insert_metrics";
const OF_USER: &str = "/rpc/insert_user_metrics";

/// A server with ann's job on n1, and bob's on n1 and bobs-node.
fn site(flags: &[(&str, &str)]) -> Site {
    let dir = tempfile::tempdir().unwrap();
    super::secret(&dir.path().join("tokens"), TOKENS);
    let site = Site::within(dir, Limits::default(), flags);
    assert_eq!(statuses(&post(&site, "", &frame(&shared()))), [Stored]);
    site
}

fn insert(site: &Site, token: &str, path: &str, body: &Value) -> Answer {
    send_as(site, token, &format!("POST {path}"), body.to_string().as_bytes())
}

/// Inserts with more headers.
fn insert_with(site: &Site, token: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
    let headers = format!("Host: localhost\r\nAuthorization: Bearer {token}\r\n{headers}");
    site.send(&format!("POST {path}"), &headers, body)
}

/// Stored rows of a device, with time, metric, value and labels of each.
fn rows(site: &Site, device: &str) -> Vec<Value> {
    let path = format!("/rpc/get_metrics?devices={device}&start_time=1d&end_time=now");
    let rows = site.get(&path).json();
    let mut rows = rows.as_array().unwrap().clone();
    rows.retain(|row| row["metric_id"] != "load_1m");
    rows
}

fn rejected(answer: &Answer, status: u16, why: &str) {
    let problem = answer.json();
    let message = problem["message"].as_str().unwrap();
    assert_eq!(answer.status, status, "{message}");
    assert!(message.contains(why), "{message}");
    assert!(problem["code"].is_string() && problem.get("hint").is_some());
}

#[test]
fn rows_are_answered_as_they_are_stored_and_outlive_a_restart() {
    let site = site(&[]);
    let row = json!({"device_id": "pdu", "metric_id": "outlet_watt", "timestamp": "10m", "value": 1.5,
        "labels": {"outlet": 7, "of": {"rack": [1, 2]}}});
    let more = json!([
        {"device_id": "pdu", "metric_id": "outlet_watt"},
        {"device_id": "pdu", "metric_id": "energy_joules_total", "value": "Infinity",
            "timestamp": crate::now().seconds() - 60.0},
    ]);
    // A mistyped name.
    let mistyped = insert(&site, "token-of-lab", "/rpc/insert_metric", &row);
    assert_eq!(mistyped.status, 404, "{mistyped:?}");
    let mut answers = Vec::new();
    for (token, body) in [("token-of-lab", &row), ("token-of-push", &more)] {
        let answer = insert(&site, token, INSERT, body);
        assert_eq!(answer.status, 200, "{answer:?}");
        answers.extend(answer.json().as_array().unwrap().clone());
    }
    assert_eq!(answers[0]["labels"], json!({"outlet": 7, "of": {"rack": [1, 2]}}));
    assert_eq!((&answers[1]["value"], &answers[2]["value"]), (&json!("NaN"), &json!("Infinity")));
    let csv =
        "device_id,metric_id,value,labels\npdu,\"outlet_watt\",3,\"{\"\"a\"\": \"\"=1\"\"}\"\n";
    let headers =
        "Content-Type: text/csv\r\nAccept: text/csv\r\nPrefer: params=multiple-objects\r\n";
    let answer = insert_with(&site, "token-of-lab", INSERT, headers, csv.as_bytes());
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.text().starts_with("timestamp,device_id,metric_id,value,labels\n\""));
    assert!(answer.text().contains(",pdu,outlet_watt,3,"), "{}", answer.text());
    let dir = site.stop();
    let site = Site::within(dir, Limits::default(), &[]);
    let stored = rows(&site, "pdu");
    assert_eq!(stored.len(), 4);
    assert!(answers.iter().all(|row| stored.contains(row)), "{stored:?} {answers:?}");
    let metrics = site.get("/api/v1/catalogue").json();
    let of = |name: &str| {
        let metrics = metrics.as_array().unwrap();
        let metric = metrics.iter().find(|metric| metric["name"] == name).unwrap();
        format!("{} {}", metric["kind"], metric["unit"])
    };
    assert_eq!(of("outlet_watt"), "\"gauge\" \"watts\"");
    assert_eq!(of("energy_joules_total"), "\"counter\" \"joules\"");
    // A device with inserted rows is no node.
    let nodes = site.get("/api/v1/nodes");
    assert!(!nodes.text().contains("pdu"), "{}", nodes.text());
    assert_eq!(insert(&site, "token-of-lab", INSERT, &json!([])).text(), "[]");
}

#[test]
fn one_bad_row_rejects_the_whole_request() {
    let site = site(&[("metrics_max", "64"), ("push.rows_per_request_max", "70")]);
    let good = json!({"device_id": "d", "metric_id": "m", "value": 1});
    for (row, status, why) in [
        (json!({"device_id": "d", "metric_id": "m", "value": "x"}), 400, "row 2: invalid input"),
        (json!({"device_id": "d", "metric_id": "m", "timestamp": 5}), 400, "row 2: the time"),
        (json!({"device_id": "d", "metric_id": "m", "timestamp": "+25h"}), 400, "row 2: the time"),
        (json!({"device_id": "d", "metric_id": "m", "valeu": 1}), 404, "row 2: unknown key"),
        (json!({"device_id": "d", "metric_id": "m", "job_id": 1}), 404, "row 2: unknown key"),
        // The store itself rejects these.
        (
            json!({"device_id": "d", "metric_id": "m", "labels": {"_job_id": "1"}}),
            400,
            "row 2: label `_job_id`",
        ),
        (
            json!({"device_id": "d", "metric_id": "m", "labels": {"_user": "1000"}}),
            400,
            "row 2: label `_user`",
        ),
    ] {
        rejected(&insert(&site, "token-of-lab", INSERT, &json!([good, row])), status, why);
    }
    let row = |n: usize| json!({"device_id": "d", "metric_id": format!("m{n}"), "value": n});
    let many = |count: usize| (0..count).map(row).collect::<Vec<_>>();
    rejected(&insert(&site, "token-of-lab", INSERT, &json!(many(71))), 413, "more than 70 rows");
    let full = insert(&site, "token-of-lab", INSERT, &json!(many(70)));
    rejected(&full, 400, "metrics that no source declares");
    assert!(full.json()["message"].as_str().unwrap().starts_with("row 6"), "{full:?}");
    assert_eq!(rows(&site, "d"), [] as [Value; 0]);
    let headers = "Content-Type: application/xml\r\n";
    assert_eq!(insert_with(&site, "token-of-lab", INSERT, headers, b"<a/>").status, 415);
    let long = vec![b' '; (8 << 20) + 1];
    assert_eq!(insert_with(&site, "token-of-lab", INSERT, "", &long).status, 413);
    let deep = format!("{{\"device_id\": \"d\", \"labels\": {}", "[".repeat(100_000));
    rejected(&insert_with(&site, "token-of-lab", INSERT, "", deep.as_bytes()), 400, "64 nested");
}

#[test]
fn a_repeated_request_is_stored_once() {
    let site = site(&[]);
    let body = json!([{"device_id": "n1", "metric_id": "mine", "value": 1}]).to_string();
    let key = |word: &str| format!("Content-Type: application/json\r\nIdempotency-Key: {word}\r\n");
    let send = |site: &Site, token: &str, path: &str, word: &str, body: &str| {
        insert_with(site, token, path, &key(word), body.as_bytes())
    };
    let first = send(&site, "token-of-ann", OF_USER, "a", &body);
    assert_eq!(first.status, 200, "{first:?}");
    // The default time is that of the first request.
    assert_eq!(send(&site, "token-of-ann", OF_USER, "a", &body).text(), first.text());
    let other = body.replace(":1}", ":2}");
    rejected(&send(&site, "token-of-ann", OF_USER, "a", &other), 422, "another body");
    // Another user's key is another key, as is that of another token or function.
    let of_bob = send(&site, "token-of-bob", OF_USER, "a", &other);
    assert_eq!((of_bob.status, rows(&site, "n1").len()), (200, 2 + 2), "{of_bob:?}");
    let of_push = body.replace("mine", "theirs");
    assert_eq!(send(&site, "token-of-push", INSERT, "a", &of_push).status, 200);
    assert_eq!(send(&site, "token-of-lab", INSERT, "a", &of_push).status, 200);
    assert_eq!(send(&site, "token-of-push", INSERT, "a", &of_push).status, 200);
    // A rejected request does not use up its key.
    let bad = body.replace("n1", "foreign");
    rejected(&send(&site, "token-of-ann", OF_USER, "b", &bad), 403, "no running job");
    assert_eq!(send(&site, "token-of-ann", OF_USER, "b", &body).status, 200);
    let count = rows(&site, "n1").len();
    let dir = site.stop();
    let site = Site::within(dir, Limits::default(), &[]);
    assert_eq!(send(&site, "token-of-ann", OF_USER, "a", &body).text(), first.text());
    assert_eq!(rows(&site, "n1").len(), count);
    assert_eq!(send(&site, "token-of-ann", OF_USER, "c", &body).status, 200);
    assert_eq!(rows(&site, "n1").len(), count + 1);
    let two = format!("{}Idempotency-Key: b\r\n", key("a"));
    assert_eq!(insert_with(&site, "token-of-lab", INSERT, &two, body.as_bytes()).status, 400);
    let long = "x".repeat(256);
    assert_eq!(send(&site, "token-of-lab", INSERT, &long, &body).status, 400);
}

/// Who inserts rows for a job is as hidden as the job.
#[test]
fn the_sender_of_a_users_rows_is_shown_to_that_user_and_administrators() {
    let site = site(&[]);
    let row = json!({"device_id": "n1", "metric_id": "m", "value": 1, "job_id": 2});
    let inserted = insert(&site, "token-of-bob", OF_USER, &row);
    assert_eq!(inserted.status, 200, "{inserted:?}");
    let shows_rows = |token: &str| {
        let explained = send_as(&site, token, "GET /api/v1/explain?device=n1&metric=load_1m", b"");
        let text = explained.text();
        assert!(text.contains("\"origin\":\"n1\""), "{text}");
        text.contains("/rows")
    };
    let seen = ["token-of-bob", "token-of-ann", "token-of-admins"].map(shows_rows);
    assert_eq!(seen, [true, false, true]);
}

#[test]
fn too_many_rows_per_second_are_rejected_with_the_time_to_wait() {
    let limits = [
        ("push.rows_per_second_max", "1"),
        ("push.user_rows_per_second_max", "1"),
        ("push.node_rows_per_second_max", "2"),
    ];
    let site = site(&limits);
    let rows = |device: &str, metric: &str, count: usize| {
        let row = |n| json!({"device_id": device, "metric_id": metric, "labels": {"n": n}});
        json!((0..count).map(row).collect::<Vec<_>>())
    };
    let send = |token, path, device, count| {
        let metric = if path == INSERT { "pushed" } else { "mine" };
        insert(&site, token, path, &rows(device, metric, count))
    };
    // A minute's worth, and no more.
    assert_eq!(send("token-of-lab", INSERT, "n1", 60).status, 200);
    let slow = send("token-of-lab", INSERT, "n1", 30);
    rejected(&slow, 429, "push.rows_per_second_max");
    let wait: u64 = slow.header("retry-after").unwrap().parse().unwrap();
    assert!((20..=30).contains(&wait), "{wait}");
    assert_eq!(send("token-of-push", INSERT, "n1", 60).status, 200, "another token");
    assert_eq!(send("token-of-ann", OF_USER, "n1", 60).status, 200);
    rejected(&send("token-of-ann", OF_USER, "n1", 30), 429, "user 1000 inserts");
    assert_eq!(send("token-of-bob", OF_USER, "n1", 60).status, 200, "another user");
    // A key costs a write of the registry: it counts as at least 50 rows of a user.
    let key = "Content-Type: application/json\r\nIdempotency-Key: a\r\n";
    let keyed = insert_with(&site, "token-of-ann", OF_USER, key, b"[]");
    rejected(&keyed, 429, "user 1000 inserts");
    assert_eq!(site.metric("jobmeter_refusals_total{reason=\"busy\"}"), 3.0);
}

#[test]
fn users_insert_for_the_nodes_of_their_running_jobs_only() {
    let site = site(&[]);
    let row = |more: Value| {
        let mut row = json!({"device_id": "n1", "metric_id": "app_phase", "value": 1});
        row.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        row
    };
    let send = |token, more| insert(&site, token, OF_USER, &row(more));
    let own = send("token-of-ann", json!({}));
    assert_eq!((own.status, &own.json()[0]["labels"]), (200, &json!({"_user": "1000"})));
    let of_job = send("token-of-ann", json!({"job_id": 1}));
    assert_eq!((of_job.status, &of_job.json()[0]["labels"]), (200, &json!({})), "{of_job:?}");
    for (more, status, why) in [
        (json!({"device_id": "bobs-node"}), 403, "no running job on bobs-node"),
        (json!({"device_id": "pdu"}), 403, "no running job on pdu"),
        (json!({"job_id": 2}), 404, "job"),
        (json!({"job_id": "slurm:1", "device_id": "bobs-node"}), 403, "no running job slurm:1"),
        (json!({"job_id": "slurm:77"}), 404, "job"),
        (json!({"labels": {"_device_alias": "n1"}}), 403, "labels of users begin with"),
        (json!({"labels": {"_user": "2000"}}), 403, "labels of users begin with"),
        (json!({"labels": {" _user": "2000"}}), 403, "labels of users begin with"),
        (json!({"labels": {"_job_id": "2"}}), 403, "labels of users begin with"),
        (json!({"timestamp": "+2m"}), 400, "60 s after"),
        (json!({"timestamp": "5m"}), 400, "before your job's start"),
        // Metrics of the program, of an agent.
        (json!({"metric_id": "memory_available_bytes"}), 400, "belongs to the program"),
        (json!({"metric_id": "anns_count"}), 400, "belongs to n1"),
        (json!({"metric_id": "load_1m"}), 400, "belongs to the program"),
    ] {
        rejected(&send("token-of-ann", more), status, why);
    }
    // Nobody else's rights suffice, and a registration alone makes no node one's own.
    for token in ["token-of-lab", "token-of-poller", "token-of-agents", "token-of-admins"] {
        assert_eq!(send(token, json!({})).status, 403, "{token}");
    }
    let claim = send_as(&site, "token-of-ann", "POST /api/v1/jobs", b"{\"device\": \"n7\"}");
    assert_eq!(claim.status, 200);
    rejected(&send("token-of-ann", json!({"device_id": "n7"})), 403, "no running job on n7");
    // After the job's end its nodes are no longer the user's.
    let mut end = shared();
    let stop = Some(crate::now());
    end.seq = 1;
    end.jobs = end.jobs.into_iter().map(|event| JobEvent { stop, ..event }).collect();
    assert_eq!(statuses(&post(&site, "", &frame(&end))), [Stored]);
    rejected(&send("token-of-ann", json!({})), 403, "no running job on n1");
    rejected(
        &send("token-of-ann", json!({"job_id": "slurm:1"})),
        403,
        "no running job slurm:1 on n1",
    );
}

/// A batch of one sample of a metric in watts.
fn watts(origin: &str, metric: &'static str) -> model::Batch {
    let mut batch = batch(origin, 0);
    let metric = Arc::new(Metric::gauge(metric, Unit::Watts, "Declared."));
    let entry = SeriesEntry { metric, ..batch.table.entries[0].clone() };
    batch.table = Arc::new(SeriesTable { entries: vec![entry] });
    batch
}

#[test]
fn a_user_takes_no_name_and_no_series_from_others() {
    let site = site(&[]);
    let send = |token, metric: &str, value: f64| {
        let row =
            json!({"device_id": "n1", "metric_id": metric, "timestamp": "1s", "value": value});
        let path = if token == "token-of-lab" { INSERT } else { OF_USER };
        insert(&site, token, path, &row)
    };
    // Two users of one name on one node have two series.
    for (token, value) in [("token-of-ann", 1.0), ("token-of-bob", 2.0)] {
        assert_eq!(send(token, "site_power", value).status, 200);
    }
    let values = |metric: &str| -> Vec<f64> {
        let rows = rows(&site, "n1").into_iter().filter(|row| row["metric_id"] == metric);
        rows.map(|row| row["value"].as_f64().unwrap()).collect()
    };
    assert_eq!(values("site_power").len(), 2);
    // A name that a user had first yields to a poller, with its meaning, and without a lost sample.
    let poller = "Authorization: Bearer token-of-poller\r\n";
    let sent = post(&site, poller, &frame(&watts("poller-lab/group-0", "site_power")));
    let acks = wire::Answer::decode(&sent.body).unwrap().acks;
    assert_eq!((acks[0].status, acks[0].samples_rejected), (Stored, 0), "{acks:?}");
    rejected(&send("token-of-ann", "site_power", 9.0), 400, "belongs to poller-lab/group-0");
    assert_eq!(values("site_power").len(), 3);
    let metrics = site.get("/api/v1/catalogue").json();
    let metrics = metrics.as_array().unwrap();
    let power = metrics.iter().find(|metric| metric["name"] == "site_power").unwrap();
    assert_eq!((&power["unit"], &power["help"]), (&json!("watts"), &json!("Declared.")));
    let series = site.get("/api/v1/series?metric=site_power").json();
    let units: Vec<_> = series.as_array().unwrap().iter().map(|one| one["unit"].clone()).collect();
    assert_eq!(units.len(), 3, "{series}");
    // A name that a user had first yields to a token as well, and a token adds to those of others.
    assert_eq!(send("token-of-ann", "other_power", 1.0).status, 200);
    assert_eq!(send("token-of-lab", "other_power", 2.0).status, 200);
    rejected(&send("token-of-bob", "other_power", 3.0), 400, "belongs to push-lab/rows");
    assert_eq!(send("token-of-lab", "site_power", 4.0).status, 200);
    assert_eq!(values("other_power"), [1.0, 2.0]);
    // Sums by alias have no part of a user's.
    let row = json!([{"device_id": "psu1", "metric_id": "power", "timestamp": "1s", "value": 5,
        "labels": {"_device_alias": "n1"}}]);
    assert_eq!(insert(&site, "token-of-lab", INSERT, &row).status, 200);
    rejected(&send("token-of-ann", "power", 1000.0), 400, "belongs to push-lab/rows");
    assert_eq!(values("power"), [5.0]);
}

#[test]
fn names_of_users_leave_space_for_others() {
    let site = site(&[("metrics_max", "128")]);
    let send = |token: &str, n: usize| {
        let row = json!({"device_id": "n1", "metric_id": format!("{token}_{n}"), "value": n});
        insert(&site, token, if token == "token-of-lab" { INSERT } else { OF_USER }, &row).status
    };
    let named = |token: &str, count| (0..count).filter(|n| send(token, *n) == 200).count();
    // A sixteenth of a quarter for each user.
    assert_eq!((named("token-of-ann", 5), named("token-of-bob", 5)), (2, 2));
    assert_eq!(named("token-of-lab", 20), 20);
}

#[test]
fn only_a_pollers_token_sends_as_its_groups() {
    let site = site(&[]);
    let send = |token: &str, origin: &str| {
        let header = format!("Authorization: Bearer {token}\r\n");
        statuses(&post(&site, &header, &frame(&watts(origin, "site_power"))))
    };
    assert_eq!(send("token-of-poller", "poller-lab/group-0"), [Stored]);
    assert_eq!(send("token-of-agents", "poller-lab/group-1"), [Stored]);
    for (token, origin) in [
        ("token-of-poller", "poller-other/group-0"),
        ("token-of-poller", "n1"),
        ("token-of-poller", "poller-lab"),
        ("token-of-group", "poller-lab/group-0"),
        ("token-of-rows", "push/rows"),
        ("token-of-agents", "push/rows"),
        ("token-of-admins", "push-lab/rows"),
        ("token-of-agents", "user-1000/rows"),
        ("token-of-ann", "user-1000/rows"),
        ("token-of-ann", "poller-lab/group-0"),
    ] {
        assert_eq!(send(token, origin), [RejectedTemporarily], "{token} {origin}");
    }
    // No job, and no label that answers add.
    let header = "Authorization: Bearer token-of-poller\r\n";
    let mut of_job = watts("poller-lab/group-0", "site_power");
    let mut entry = of_job.table.entries[0].clone();
    entry.job = Some(shared().jobs[0].key.clone());
    of_job.table = Arc::new(SeriesTable { entries: vec![entry] });
    of_job.seq = 1;
    assert_eq!(statuses(&post(&site, header, &frame(&of_job))), [RejectedTemporarily]);
    let mut alias = watts("poller-lab/group-0", "site_power");
    let mut entry = alias.table.entries[0].clone();
    entry.labels = Labels::new([("_device_alias", "n1")]).unwrap();
    alias.table = Arc::new(SeriesTable { entries: vec![entry] });
    (alias.seq, alias.ticks[0].at) = (2, crate::now().plus(-Timestamp::SECOND));
    assert_eq!(statuses(&post(&site, header, &frame(&alias))), [Stored]);
    for path in ["/api/v1/nodes", "/rpc/get_metrics?nodes=n1", "/metrics", "/api/v1/promotions"] {
        for token in ["token-of-poller", "token-of-lab"] {
            let answer = send_as(&site, token, &format!("GET {path}"), b"");
            assert_eq!(answer.status, 403, "{token} {path}");
        }
    }
    assert_eq!(
        send_as(&site, "token-of-lab", "POST /rpc/update_promoted_metrics", b"{}").status,
        200
    );
    assert_eq!(
        send_as(&site, "token-of-poller", "POST /rpc/update_promoted_metrics", b"{}").status,
        403
    );
}
