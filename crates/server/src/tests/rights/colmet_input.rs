//! The input of Colmet's messages: what its token may send, and what becomes of its hosts and jobs.

use crate::Limits;
use crate::tests::Site;
use crate::tests::ingest::{batch, frame, post, statuses};
use model::{
    Batch, ClusterId, DeviceId, JobEvent, JobId, JobKey, Labels, Metric, SeriesEntry, SeriesTable,
    Timestamp, Unit,
};
use serde_json::{Value, json};
use std::sync::Arc;
use wire::AckStatus::{RejectedTemporarily, Stored};

const TOKENS: &str = "admin token-of-admins\nagent token-of-agents\ncolmet:oar token-of-colmet\n\
                      staff token-of-staff\n";
const COLMET: &str = "Authorization: Bearer token-of-colmet\r\n";
const AGENT: &str = "Authorization: Bearer token-of-agents\r\n";
const STAFF: &str = "Authorization: Bearer token-of-staff\r\nHost: localhost\r\n";

fn site() -> Site {
    let dir = tempfile::tempdir().unwrap();
    crate::tests::secret(&dir.path().join("tokens"), TOKENS);
    Site::within(dir, Limits::default(), &[])
}

fn key(cluster: &str, id: i64) -> JobKey {
    JobKey { cluster: ClusterId::new(cluster).unwrap(), id: JobId::new(id).unwrap() }
}

/// A message of a host: the success of its receipt, and a job, as a batch of the input.
fn message(host: &str, seq: u64, job: JobKey) -> Batch {
    let device = DeviceId::new(host).unwrap();
    let labels = Labels::new([("protocol", "colmet"), ("target", "colmet")]).unwrap();
    let entry = |metric: &'static str, job: Option<&JobKey>, labels: Labels| SeriesEntry {
        metric: Arc::new(Metric::gauge(metric, Unit::Count, "")),
        device: device.clone(),
        job: job.cloned(),
        labels,
        start: None,
    };
    let entries = vec![
        entry("poll_success", None, labels),
        entry("colmet_jobproc_rchar_bytes", Some(&job), Labels::default()),
    ];
    let event = JobEvent {
        display_id: job.id.to_string().into(),
        key: job,
        device: device.clone(),
        user: None,
        uid: None,
        start: crate::now().plus(-Timestamp::SECOND),
        stop: None,
        monitor: None,
        oom_kills: Vec::new(),
    };
    let one = batch("poller-colmet-oar/group-0", seq);
    Batch {
        table: Arc::new(SeriesTable { entries }),
        ticks: vec![model::Tick { samples: 2, ..one.ticks[0] }],
        index: vec![0, 1],
        values: vec![1.0, 5.0],
        jobs: vec![event],
        ..one
    }
}

fn as_staff(site: &Site, path: &str) -> Value {
    let answer = site.send(&format!("GET {path}"), STAFF, b"");
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

#[test]
fn a_host_of_colmet_is_a_node_and_its_job_has_no_owner() {
    let site = site();
    let sent = post(&site, COLMET, &frame(&message("dahu-1", 0, key("oar", 7))));
    assert_eq!(statuses(&sent), [Stored]);
    let nodes = as_staff(&site, "/api/v1/nodes");
    let node = &nodes[0];
    assert_eq!((&node["device"], &node["reported_by"]), (&json!("dahu-1"), &json!("colmet")));
    assert_eq!((&node["alive"], &node["jobs"]), (&json!(true), &json!(["oar:7"])), "{node}");
    let jobs = as_staff(&site, "/api/v1/jobs");
    let job = &jobs[0];
    assert_eq!((&job["cluster"], &job["id"]), (&json!("oar"), &json!(7)), "{jobs}");
    assert_eq!((&job["user"], &job["uid"]), (&Value::Null, &Value::Null), "{jobs}");
}

#[test]
fn its_token_sends_jobs_of_its_cluster_for_its_own_groups_only() {
    let site = site();
    let other = |origin: &str, seq| Batch {
        origin: model::Origin::new(origin).unwrap(),
        ..message("dahu-1", seq, key("oar", 7))
    };
    for (seq, batch) in [
        message("dahu-1", 0, key("slurm", 7)),
        other("poller-colmet-slurm/group-0", 1),
        other("poller-lab/group-0", 2),
        other("dahu-1", 3),
    ]
    .iter()
    .enumerate()
    {
        let sent = post(&site, COLMET, &frame(batch));
        assert_eq!(statuses(&sent), [RejectedTemporarily], "{seq}");
    }
    // A token of agents sends no jobs of other devices as such a group.
    let sent = post(&site, AGENT, &frame(&message("dahu-1", 4, key("oar", 7))));
    assert_eq!(statuses(&sent), [RejectedTemporarily]);
    assert_eq!(as_staff(&site, "/api/v1/jobs"), json!([]));
}

#[test]
fn where_an_agent_reports_the_input_learns_it_and_its_jobs_do_not_count() {
    let site = site();
    let mut own = batch("dahu-2", 0);
    let entry =
        SeriesEntry { device: DeviceId::new("dahu-2").unwrap(), ..own.table.entries[0].clone() };
    own.table = Arc::new(SeriesTable { entries: vec![entry] });
    assert_eq!(statuses(&post(&site, AGENT, &frame(&own))), [Stored]);
    let request = json!({"poller": "colmet-oar", "names": ["dahu-1", "dahu-2"], "agents": true});
    let answer = site.send(
        "POST /v1/poller/promotions",
        &format!("Host: localhost\r\nContent-Type: application/json\r\n{COLMET}"),
        request.to_string().as_bytes(),
    );
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.json()["agents"], json!(["dahu-2"]));
    for (seq, host) in ["dahu-1", "dahu-2"].into_iter().enumerate() {
        let one = message(host, seq as u64, key("oar", 7));
        assert_eq!(statuses(&post(&site, COLMET, &frame(&one))), [Stored]);
    }
    let nodes = as_staff(&site, "/api/v1/nodes");
    let jobs_on = |host: &str| {
        let node = nodes.as_array().unwrap().iter().find(|node| node["device"] == host).unwrap();
        (node["jobs"].clone(), node["reported_by"].clone())
    };
    assert_eq!(jobs_on("dahu-1"), (json!(["oar:7"]), json!("colmet")));
    assert_eq!(jobs_on("dahu-2"), (json!([]), Value::Null));
}
