//! What a user's own claim about the node of their job permits, and what the node's confirmation permits.

use super::access_matrix::{send_as, shared, site};
use super::ingest::{frame, post, statuses};
use model::{ClusterId, DeviceId, JobEvent, JobId, JobKey, Tick, Timestamp};
use wire::AckStatus;

/// A user's claim that their job is on a node gives access to that node only after its agent saw the job.
///
/// Access includes promotions there.
#[test]
fn a_job_that_only_its_user_places_on_a_node_gives_no_access_to_it() {
    let site = site(&[("access.nodes", "own")]);
    let send_as = |line: &str, body: &str| send_as(&site, "token-of-ann", line, body.as_bytes());
    for device in ["*", "n[1-9]", "bobs-node,n1", "bobs node", ""] {
        let body = serde_json::json!({ "device": device }).to_string();
        assert_eq!(send_as("POST /api/v1/jobs", &body).status, 400, "{device}");
    }
    let long_ago = crate::now().plus(-3600 * Timestamp::SECOND).seconds();
    let since = format!("{{\"device\": \"bobs-node\", \"start\": {long_ago}}}");
    assert_eq!(send_as("POST /api/v1/jobs", &since).status, 400);
    let began = crate::now();
    let own = send_as("POST /api/v1/jobs", "{\"device\": \"bobs-node\"}").json();
    let id = own["id"].as_i64().unwrap();
    let sees = || send_as("GET /api/v1/range?device=bobs-node", "").text().contains("load_1m");
    let promote = |body: &str| send_as("POST /api/v1/promotions", body).status;
    let of_job = format!("{{\"job\": \"local:{id}\", \"metric\": \"x\"}}");
    let report = |seq, at: Timestamp, stop: Option<Timestamp>| {
        let mut got = shared();
        got.seq = seq;
        got.ticks = vec![Tick { at, samples: 4 }];
        got.gaps.clear();
        got.jobs = vec![JobEvent {
            key: JobKey { cluster: ClusterId::local(), id: JobId::new(id).unwrap() },
            display_id: id.to_string().into(),
            device: DeviceId::new("bobs-node").unwrap(),
            user: None,
            uid: Some(1000),
            start: began.plus(1),
            stop,
            monitor: None,
            oom_kills: Vec::new(),
        }];
        if stop.is_none() && seq == 1 {
            got.jobs.clear();
        }
        assert_eq!(statuses(&post(&site, "", &frame(&got))), [AckStatus::Stored]);
    };
    report(1, crate::now(), None);
    assert!(!sees());
    assert_eq!(promote("{\"nodes\": \"bobs-node\", \"metric\": \"x\"}"), 404);
    assert_eq!((promote(&of_job), promote("{\"metric\": \"x\"}")), (404, 200), "on n1 alone");
    let own = format!("GET /api/v1/jobs/local:{id}");
    assert_eq!(send_as(&own, "").status, 200, "his job he sees");
    report(2, crate::now(), None);
    assert!(sees());
    assert_eq!(promote(&of_job), 200);
    report(3, crate::now(), Some(crate::now()));
    assert!(sees(), "what was counted while it was there");
    assert_eq!(promote(&of_job), 404);
}
