//! Ingest: frames are sent, acks are returned.

use super::demand::applies;
use super::{Answer, Site};
use crate::Limits;
use model::{
    Batch, Boot, Cause, ClusterId, DeviceId, Gap, JobEvent, JobId, JobKey, Labels, Metric, Origin,
    SeriesEntry, SeriesTable, Tick, Timestamp, Unit,
};
use std::sync::Arc;
use wire::{AckStatus, Encoder};

pub(super) const HEADERS: &str =
    "Host: localhost\r\nContent-Type: application/x-jobmeter-batches\r\n";

/// A batch of one sample.
pub(crate) fn batch(origin: &str, seq: u64) -> Batch {
    let entry = SeriesEntry {
        metric: Arc::new(Metric::gauge("load_1m", Unit::Count, "Load.")),
        device: DeviceId::new("n1").unwrap(),
        job: None,
        labels: Labels::default(),
        start: None,
    };
    Batch {
        origin: Origin::new(origin).unwrap(),
        boot: Boot([7; 16]),
        seq,
        table: Arc::new(SeriesTable { entries: vec![entry] }),
        ticks: vec![Tick { at: crate::now(), samples: 1 }],
        index: vec![0],
        values: vec![0.5],
        gaps: Vec::new(),
        jobs: Vec::new(),
    }
}

pub(crate) fn frame(batch: &Batch) -> Vec<u8> {
    let mut bytes = Vec::new();
    Encoder::default().encode(batch, &mut bytes).unwrap();
    bytes
}

pub(super) fn post(site: &Site, headers: &str, body: &[u8]) -> Answer {
    site.send("POST /v1/batches", &format!("{HEADERS}{headers}"), body)
}

pub(super) fn statuses(answer: &Answer) -> Vec<AckStatus> {
    assert_eq!(answer.status, 200, "{answer:?}");
    let acks = wire::Answer::decode(&answer.body).unwrap().acks;
    acks.iter().map(|ack| ack.status).collect()
}

use AckStatus::{Duplicate, RejectedPermanently, RejectedTemporarily, Stored};

#[test]
fn batches_are_stored_once_and_a_bad_frame_rejects_itself_alone() {
    let site = Site::start();
    let mut damaged = frame(&batch("n1", 1));
    *damaged.last_mut().unwrap() ^= 1;
    let body =
        [frame(&batch("n1", 0)), damaged, frame(&batch("n1", 2)), b"JMB2newer".to_vec()].concat();
    let answer = post(&site, "", &body);
    assert_eq!(statuses(&answer), [Stored, RejectedPermanently, Stored, RejectedTemporarily]);
    let answer = post(&site, "", &frame(&batch("n1", 2)));
    assert_eq!(statuses(&answer), [Duplicate]);
    assert_eq!(site.metric("jobmeter_ingest_samples_total"), 2.0);
    assert_eq!(site.metric("jobmeter_ingest_frames_total{outcome=\"malformed\"}"), 2.0);
    assert_eq!(site.metric("jobmeter_ingest_frames_total{outcome=\"duplicate\"}"), 1.0);
    // After a restart, acknowledged batches are stored and recognized as duplicates.
    let dir = site.stop();
    let site = Site::within(dir, Limits::default(), &[]);
    let answer = post(&site, "", &[frame(&batch("n1", 0)), frame(&batch("n1", 3))].concat());
    assert_eq!(statuses(&answer), [Duplicate, Stored]);
}

#[test]
fn a_request_without_frames_is_rejected_by_its_status() {
    let site = Site::with(Limits::default(), &[("body_bytes_max", "1MiB")]);
    let good = frame(&batch("n1", 0));
    let host = "Host: localhost\r\n";
    for (headers, body, want) in [
        (format!("{host}Content-Type: application/json\r\n"), &good[..], 415),
        (host.to_owned(), &good[..], 415),
        (format!("{HEADERS}Content-Encoding: gzip\r\n"), &good[..], 415),
        (HEADERS.to_owned(), b"", 400),
        (HEADERS.to_owned(), b"GET / HTTP/1.1", 400),
        (HEADERS.to_owned(), &vec![b'J'; (1 << 20) + 1][..], 413),
        (format!("{HEADERS}Authorization: Bearer wrong\r\n"), &good[..], 401),
        (format!("{HEADERS}Authorization: Bearer token-of-guests\r\n"), &good[..], 403),
    ] {
        let answer = site.send("POST /v1/batches", &headers, body);
        assert_eq!(answer.status, want, "{headers} {answer:?}");
        let problem: api::Problem = serde_json::from_slice(&answer.body).unwrap();
        assert!(!problem.code.is_empty() && !problem.message.is_empty());
    }
    assert_eq!(site.metric("jobmeter_ingest_samples_total"), 0.0);
    assert_eq!(site.send("GET /v1/batches", HEADERS, b"").status, 405);
}

#[test]
fn an_agents_token_appends_for_its_own_origin_only_and_reads_nothing() {
    let site = Site::start();
    let own = "Authorization: Bearer token-of-n1\r\n";
    let body = [frame(&batch("n1", 0)), frame(&batch("n2", 0))].concat();
    assert_eq!(statuses(&post(&site, own, &body)), [Stored, RejectedTemporarily]);
    let all = "Authorization: Bearer token-of-agents\r\n";
    assert_eq!(statuses(&post(&site, all, &body)), [Duplicate, Stored]);
    for path in ["/api/v1/nodes", "/rpc/get_metrics?nodes=n1", "/metrics"] {
        let headers = format!("Host: localhost\r\n{own}");
        assert_eq!(site.send(&format!("GET {path}"), &headers, b"").status, 403, "{path}");
    }
}

/// A node's event about a job on a device.
fn job_on(device: &str) -> JobEvent {
    let key = JobKey { cluster: ClusterId::new("slurm").unwrap(), id: JobId::new(42).unwrap() };
    JobEvent {
        key,
        display_id: "42".into(),
        device: DeviceId::new(device).unwrap(),
        user: None,
        uid: Some(1234),
        start: crate::now().plus(-10 * Timestamp::SECOND),
        stop: None,
        monitor: None,
        oom_kills: Vec::new(),
    }
}

#[test]
fn an_agents_token_reports_its_own_node_only() {
    let site = Site::start();
    let own = "Authorization: Bearer token-of-n1\r\n";
    let all = "Authorization: Bearer token-of-agents\r\n";
    let mut event = batch("n1", 0);
    event.jobs.push(job_on("n7"));
    let mut gap = batch("n1", 0);
    gap.gaps.push(Gap {
        origin: gap.origin.clone(),
        device: DeviceId::new("n7").unwrap(),
        source: "".into(),
        from: crate::now().plus(-Timestamp::SECOND),
        to: crate::now(),
        cause: Cause::AgentDown,
        detail: "".into(),
    });
    for (batch, of_all) in [(event, RejectedTemporarily), (gap, Stored)] {
        let body = frame(&batch);
        assert_eq!(statuses(&post(&site, own, &body)), [RejectedTemporarily]);
        assert_eq!(statuses(&post(&site, all, &body)), [of_all], "one that may be a poller's");
    }
    assert_eq!(site.get("/api/v1/jobs").json(), serde_json::json!([]));
}

/// Node n1 claims that job 42 runs there and belongs to UID 77. On n2 it runs for UID 1234.
#[test]
fn a_node_that_lies_about_an_owner_opens_no_other_node() {
    let site = Site::start();
    let of_job = |node: &str, uid| {
        let mut batch = batch(node, 0);
        let mut entry = batch.table.entries[0].clone();
        (entry.job, entry.device) = (Some(job_on(node).key), DeviceId::new(node).unwrap());
        batch.table = Arc::new(SeriesTable { entries: vec![entry] });
        batch.jobs.push(JobEvent { uid, ..job_on(node) });
        frame(&batch)
    };
    let agents = "Authorization: Bearer token-of-agents\r\n";
    assert_eq!(statuses(&post(&site, agents, &of_job("n2", None))), [Stored]);
    let own = "Authorization: Bearer token-of-n1\r\n";
    assert_eq!(statuses(&post(&site, own, &of_job("n1", Some(77)))), [Stored]);
    for path in [
        "/rpc/get_metrics?job_id=42",
        "/api/v1/range?job=42",
        "/api/v1/last?job=42",
        "/api/v1/series?job=42",
        "/api/v1/jobs/42",
        "/api/v1/jobs",
        "/api/v1/explain?job=42",
    ] {
        let headers = "Host: localhost\r\nAuthorization: Bearer token-of-77\r\n";
        let answer = site.send(&format!("GET {path}"), headers, b"");
        assert!(answer.status == 200 && answer.text().contains("n1"), "{path} {answer:?}");
        assert!(!answer.text().contains("n2"), "{path} {}", answer.text());
    }
    for table in ["metrics", "metrics_by_device", "metrics_by_job", "allocations"] {
        let body = serde_json::json!({"query": format!("SELECT * FROM {table}")}).to_string();
        let headers = "Host: localhost\r\nContent-Type: application/json\r\n\
                       Authorization: Bearer token-of-77\r\n";
        let answer = site.send("POST /api/v1/sql", headers, body.as_bytes());
        assert!(answer.status == 200 && answer.text().contains("n1"), "{table} {answer:?}");
        assert!(!answer.text().contains("n2"), "{table} {}", answer.text());
    }
}

#[test]
fn jobs_reported_by_nodes_are_known_before_the_ack() {
    let site = Site::start();
    let mut got = batch("n1", 0);
    got.jobs.push(job_on("n1"));
    // The second batch is a duplicate. The server applies its job events all the same.
    for want in [Stored, Duplicate] {
        assert_eq!(statuses(&post(&site, "", &frame(&got))), [want]);
        let jobs = site.get("/api/v1/jobs?state=running").json();
        assert_eq!(jobs[0]["cluster"], "slurm");
        assert_eq!(jobs[0]["devices"][0], "n1");
    }
}

#[test]
fn agents_receive_the_configuration_that_they_lack() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("agents.toml"), "[sources.load]\nperiod = \"1s\"\n").unwrap();
    let site = Site::within(dir, Limits::default(), &[]);
    let got = |headers: &str, seq| {
        let answer = post(&site, headers, &frame(&batch("n1", seq)));
        let answer = wire::Answer::decode(&answer.body).unwrap();
        (answer.generation, wire::decode_settings(&answer.settings).unwrap().lines())
    };
    let (generation, lines) = got("", 0);
    assert!(generation != 0 && lines == ["sources.load.period = \"1s\""]);
    assert_eq!(got(&applies(1, &[]), 1), (generation, lines.clone()));
    assert_eq!(got(&applies(generation, &[]), 2), (generation, Vec::new()));
    // A status that cannot be decoded is counted, and the batch is accepted.
    let malformed = format!("{}: ?\r\n", wire::STATUS_HEADER);
    assert_eq!(got(&malformed, 3), (generation, lines));
    assert_eq!(site.metric("jobmeter_agent_status_malformed_total"), 1.0);
    let run = post(&site, "", &frame(&batch("n1/run-7", 0)));
    let run = wire::Answer::decode(&run.body).unwrap();
    assert_eq!((run.generation, run.settings.len()), (0, 0), "a run of a user is no agent");
}

#[test]
fn more_frames_than_a_request_may_have_wait_for_the_next() {
    let limits = Limits { frames_per_request_max: 3, ..Limits::default() };
    let site = Site::with(limits, &[]);
    let body: Vec<u8> = (0..5).flat_map(|seq| frame(&batch("n1", seq))).collect();
    assert_eq!(statuses(&post(&site, "", &body)), [Stored, Stored, Stored]);
    let rest: Vec<u8> = (3..5).flat_map(|seq| frame(&batch("n1", seq))).collect();
    assert_eq!(statuses(&post(&site, "", &rest)), [Stored, Stored]);
}

#[test]
fn a_user_sends_what_was_counted_for_his_own_jobs_alone() {
    let site = Site::start();
    let user = "Authorization: Bearer token-of-1234\r\n";
    let headers = format!("Host: localhost\r\nContent-Type: application/json\r\n{user}");
    let answer = site.send("POST /api/v1/jobs", &headers, br#"{"device": "n1", "name": "x"}"#);
    assert_eq!(answer.status, 200, "{answer:?}");
    let id = answer.json()["id"].as_i64().unwrap();
    let own = JobKey { cluster: ClusterId::local(), id: JobId::new(id).unwrap() };
    let of = |origin: &str, job: Option<&JobKey>, device: &str| {
        let mut batch = batch(origin, 0);
        let mut entry = batch.table.entries[0].clone();
        entry.metric = Arc::new(Metric::gauge("run_threads", Unit::Count, ""));
        (entry.job, entry.device) = (job.cloned(), DeviceId::new(device).unwrap());
        batch.table = Arc::new(SeriesTable { entries: vec![entry] });
        frame(&batch)
    };
    let origin = format!("n1/run-{id}");
    let other = JobKey { id: JobId::new(id + 1).unwrap(), ..own.clone() };
    for (origin, job, device) in [
        (&*origin, None, "n1"),
        (&origin, Some(&other), "n1"),
        (&origin, Some(&own), "n2"),
        ("n1", Some(&own), "n1"),
        ("n2/run-1", Some(&own), "n2"),
    ] {
        let body = of(origin, job, device);
        assert_eq!(statuses(&post(&site, user, &body)), [RejectedTemporarily], "{origin} {device}");
    }
    let body = of(&origin, Some(&own), "n1");
    let somebody = "Authorization: Bearer token-of-77\r\n";
    assert_eq!(statuses(&post(&site, somebody, &body)), [RejectedTemporarily]);
    assert_eq!(statuses(&post(&site, user, &body)), [Stored]);
    let mut gap = batch(&origin, 1);
    gap.table = Arc::default();
    (gap.ticks, gap.index, gap.values) = (Vec::new(), Vec::new(), Vec::new());
    gap.jobs.push(JobEvent {
        key: other,
        display_id: "1".into(),
        device: DeviceId::new("n1").unwrap(),
        user: None,
        uid: Some(1234),
        start: crate::now(),
        stop: None,
        monitor: None,
        oom_kills: Vec::new(),
    });
    assert_eq!(statuses(&post(&site, user, &frame(&gap))), [RejectedTemporarily]);
}
