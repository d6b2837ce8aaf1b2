//! What each caller gets from each operation: two users share a node, and one of them has another node alone. A new
//! operation does not compile until `cases` handles it.

mod anonymous_jobs;
mod cases;

use super::ingest::{batch, frame, post, statuses};
use super::{Answer, Site};
use crate::Limits;
use api::{Method, Operation};
use cases::{case, meter};
use model::{
    Batch, Cause, ClusterId, DeviceId, Gap, JobEvent, JobId, JobKey, Labels, Metric, Origin,
    SeriesEntry, SeriesTable, Tick, Timestamp, Unit,
};
use std::sync::Arc;
use wire::AckStatus;

const TOKENS: &str = "agent token-of-agents\nuser token-of-guests\nuser:1000 token-of-ann\n\
                      read:1000 read-of-ann\nuser:2000 token-of-bob\nstaff token-of-staff\n\
                      admin token-of-admins\njobs:slurm token-of-slurm\n\
                      poller:lab token-of-poller\npush:lab token-of-push\ncolmet:oar token-of-colmet\n";

/// The tokens of the callers, in the order of the tables in `cases`.
const CALLERS: [&str; 12] = [
    "",
    "token-of-agents",
    "token-of-guests",
    "token-of-ann",
    "read-of-ann",
    "token-of-bob",
    "token-of-staff",
    "token-of-admins",
    "token-of-slurm",
    "token-of-poller",
    "token-of-push",
    "token-of-colmet",
];

pub(super) fn site(flags: &[(&str, &str)]) -> Site {
    let dir = tempfile::tempdir().unwrap();
    super::secret(&dir.path().join("tokens"), TOKENS);
    let site = Site::within(dir, Limits::default(), flags);
    let stored = post(&site, "", &frame(&shared()));
    assert_eq!(statuses(&stored), [AckStatus::Stored]);
    assert_eq!(statuses(&post(&site, "", &frame(&meter()))), [AckStatus::Stored]);
    let of = |token: &str, line: &str, body: &str| {
        let answer = send_as(&site, token, line, body.as_bytes());
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    of("token-of-bob", "POST /api/v1/jobs", "{\"device\": \"bobs-node\", \"name\": \"bobs\"}");
    of("token-of-bob", "POST /api/v1/tokens", "{\"scope\": \"read\", \"note\": \"bobs\"}");
    let managers = "{\"create\": true, \"managers\": [\"2000\"], \"members\": [\"1000\"], \"remove\": [\"1000\"]}";
    of("token-of-admins", "POST /api/v1/accounts/slurm:bobs", managers);
    let promote = "{\"job\": \"slurm:2\", \"metric\": \"load_.*\"}";
    of("token-of-bob", "POST /api/v1/promotions", promote);
    let set = "{\"nodes\": \"bobs-node\", \"for_seconds\": 600, \"sources\": {\"load\": {\"enabled\": true}}}";
    of("token-of-admins", "POST /api/v1/settings", set);
    site
}

/// Ann's job 1 and bob's job 2 on n1, bob's job also on another node, with samples of each job and node samples.
pub(super) fn shared() -> Batch {
    let (n1, bobs) = (DeviceId::new("n1").unwrap(), DeviceId::new("bobs-node").unwrap());
    let key =
        |id| JobKey { cluster: ClusterId::new("slurm").unwrap(), id: JobId::new(id).unwrap() };
    let now = crate::now();
    let entry = |device: &DeviceId, metric: &'static str, job: Option<i64>| SeriesEntry {
        metric: Arc::new(Metric::gauge(metric, Unit::Count, "Something.")),
        device: device.clone(),
        job: job.map(key),
        labels: Labels::default(),
        start: None,
    };
    let event = |id: i64, device: &DeviceId| JobEvent {
        key: key(id),
        display_id: id.to_string().into(),
        device: device.clone(),
        user: Some(if id == 1 { "ann" } else { "bob" }.into()),
        uid: Some(if id == 1 { 1000 } else { 2000 }),
        start: now.plus(-100 * Timestamp::SECOND),
        stop: None,
        monitor: None,
        oom_kills: Vec::new(),
    };
    Batch {
        table: Arc::new(SeriesTable {
            entries: vec![
                entry(&n1, "load_1m", None),
                entry(&bobs, "load_1m", None),
                entry(&n1, "anns_count", Some(1)),
                entry(&n1, "bobs_count", Some(2)),
            ],
        }),
        ticks: vec![Tick { at: now.plus(-Timestamp::SECOND), samples: 4 }],
        index: vec![0, 1, 2, 3],
        values: vec![1.0; 4],
        gaps: vec![Gap {
            origin: Origin::new("n1").unwrap(),
            device: bobs.clone(),
            source: "cpu".into(),
            from: now.plus(-50 * Timestamp::SECOND),
            to: now.plus(-40 * Timestamp::SECOND),
            cause: Cause::AgentDown,
            detail: "".into(),
        }],
        jobs: vec![event(1, &n1), event(2, &n1), event(2, &bobs)],
        ..batch("n1", 0)
    }
}

/// Sends a request with a token; without a token, as an unauthenticated client behind a proxy.
pub(super) fn send_as(site: &Site, token: &str, line: &str, body: &[u8]) -> Answer {
    let who = match token {
        "" => "X-Forwarded-For: 192.0.2.1\r\n".to_owned(),
        token => format!("Authorization: Bearer {token}\r\n"),
    };
    let kind = if line.ends_with("/v1/batches") { "x-jobmeter-batches" } else { "json" };
    let headers = format!("Host: localhost\r\n{who}Content-Type: application/{kind}\r\n");
    site.send(line, &headers, body)
}

fn answered(site: &Site, operation: Operation, token: &str) -> String {
    let (more, body, _) = case(operation);
    let body = match operation {
        Operation::Batches => frame(&batch("n9", 0)),
        _ => body.as_bytes().to_vec(),
    };
    let path = operation.path();
    let path = match path.split_once('{') {
        Some((before, after)) => format!("{before}{more}{}", after.split_once('}').unwrap().1),
        None => format!("{path}{more}"),
    };
    let method = match operation.method() {
        Method::Get => "GET",
        Method::Post => "POST",
        Method::Delete => "DELETE",
    };
    let answer = send_as(site, token, &format!("{method} {path}"), &body);
    let names_user = answer.status == 200 && answer.text_or_empty().contains("bob");
    format!("{}{}", answer.status, if names_user { "+" } else { "" })
}

impl Answer {
    /// Returns the body if it is text, otherwise an empty text.
    fn text_or_empty(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap_or_default()
    }
}

#[test]
fn every_operation_shows_each_caller_their_own_data() {
    let site = site(&[("access.nodes", "own")]);
    for operation in Operation::ALL.iter().copied() {
        let got = CALLERS.map(|token| answered(&site, operation, token));
        assert_eq!(got, case(operation).2, "{operation:?}");
    }
    // A node token shows no job, by any operation.
    for operation in Operation::ALL.iter().filter(|operation| **operation != Operation::Catalogue) {
        let (more, body, _) = case(*operation);
        let line = format!("GET {}{more}", operation.path());
        let answer = send_as(&site, "token-of-guests", &line, body.as_bytes());
        assert!(!answer.text_or_empty().contains("bobs_count"), "{operation:?}");
    }
}

#[test]
fn users_see_nodes_always_unless_a_setting_limits_it() {
    let site = site(&[]);
    for operation in Operation::ALL.iter().copied() {
        let expected = case(operation).2;
        // What guests see of nodes is visible to users, too.
        let ann = if expected[2] == "200+" { "200+" } else { expected[3] };
        assert_eq!(answered(&site, operation, "token-of-ann"), ann, "{operation:?}");
        let got = send_as(&site, "token-of-ann", &format!("GET {}", operation.path()), b"");
        let named = operation == Operation::Catalogue;
        assert_eq!(got.text_or_empty().contains("bobs_count"), named, "{operation:?}");
    }
}

#[test]
fn counts_of_all_nodes_and_jobs_are_shown_to_readers_of_all_of_them() {
    let site = site(&[("access.nodes", "own")]);
    for (token, nodes, jobs) in [
        ("token-of-ann", false, false),
        ("token-of-guests", true, false),
        ("token-of-staff", true, true),
        ("token-of-admins", true, true),
    ] {
        let page = send_as(&site, token, "GET /metrics", b"");
        let has = |name: &str| page.text().contains(&format!("\n{name} "));
        assert!(has("jobmeter_uptime_seconds"), "{token}");
        assert_eq!(has("jobmeter_store_series"), nodes, "{token}");
        assert_eq!(has("jobmeter_ingest_samples_total"), nodes, "{token}");
        assert_eq!(has("jobmeter_ingest_job_events_total"), jobs, "{token}");
        assert_eq!(has("jobmeter_demand_promotions"), jobs, "{token}");
    }
}

#[test]
fn anonymous_readers_read_what_a_guest_reads_where_they_may() {
    let site = site(&[("access.anonymous", "nodes")]);
    for operation in Operation::ALL.iter().copied() {
        let expected = case(operation).2;
        let got = answered(&site, operation, "");
        if operation.method() == Method::Get {
            assert_eq!(got, expected[2], "{operation:?}");
        } else {
            assert!(!got.starts_with("200") || expected[2].starts_with("200"), "{operation:?}");
        }
    }
    assert_eq!(answered(&site, Operation::Batches, ""), "401");
    assert_eq!(send_as(&site, "", "GET /api/v1/me", b"").json()["role"], "nobody");
    assert_eq!(send_as(&site, "wrong-token", "GET /api/v1/nodes", b"").status, 401);
}

#[test]
fn made_tokens_are_good_until_they_end_are_revoked_or_the_server_forgets_none() {
    let site = site(&[("access.nodes", "own")]);
    let make =
        |token: &str, body: &str| send_as(&site, token, "POST /api/v1/tokens", body.as_bytes());
    let made = make("token-of-ann", "{\"scope\": \"read\", \"note\": \"laptop\"}").json();
    let (secret, id) = (made["token"].as_str().unwrap().to_owned(), made["info"]["id"].clone());
    assert!(secret.starts_with("jobmeter_") && secret.len() > 50, "{secret}");
    assert_eq!(made["info"]["scope"], "read:1000");
    let me = send_as(&site, &secret, "GET /api/v1/me", b"").json();
    assert_eq!(
        (&me["role"], &me["uid"], &me["sees_nodes"]),
        (&"read".into(), &1000.into(), &"own".into())
    );
    assert_eq!(send_as(&site, &secret, "POST /api/v1/jobs", b"{\"device\": \"n1\"}").status, 403);
    let list = send_as(&site, "token-of-ann", "GET /api/v1/tokens", b"");
    assert!(list.text().contains("laptop") && !list.text().contains(&secret));
    // The token survives a restart. Only its hash is stored.
    let dir = site.stop();
    let text = std::fs::read(dir.path().join("data/jobs.sqlite")).unwrap();
    assert!(!text.windows(secret.len()).any(|window| window == secret.as_bytes()));
    let site = Site::within(dir, Limits::default(), &[("access.nodes", "own")]);
    let make =
        |token: &str, body: &str| send_as(&site, token, "POST /api/v1/tokens", body.as_bytes());
    let status = |token: &str| send_as(&site, token, "GET /api/v1/nodes", b"").status;
    assert_eq!(status(&secret), 200);
    let revoke = format!("POST /api/v1/tokens/{id}/revoke");
    assert_eq!(send_as(&site, "token-of-bob", &revoke, b"").status, 404);
    assert_eq!(send_as(&site, "token-of-ann", &revoke, b"").status, 200);
    assert_eq!(status(&secret), 401);
    // Users grant no more than their own rights, and for no longer than permitted.
    for (token, body, want) in [
        ("token-of-ann", "{\"scope\": \"read:2000\"}", 403),
        ("token-of-ann", "{\"scope\": \"user:1000\"}", 403),
        ("token-of-ann", "{\"scope\": \"admin\"}", 403),
        ("token-of-ann", "{\"scope\": \"read\", \"expires_in_seconds\": 31536000}", 400),
        ("token-of-ann", "{\"scope\": \"read\", \"expires_in_seconds\": 0}", 400),
        ("token-of-admins", "{\"scope\": \"reed:1\"}", 400),
        ("token-of-admins", "{\"scope\": \"user:nobody-of-that-name\"}", 400),
        ("token-of-admins", "{\"scope\": \"agent:n7\", \"expires_in_seconds\": 31536000}", 200),
    ] {
        assert_eq!(make(token, body).status, want, "{token} {body}");
    }
    let user = make("token-of-admins", "{\"scope\": \"user:1000\"}").json();
    let user = user["token"].as_str().unwrap();
    assert_eq!(
        make(user, "{\"scope\": \"read\"}").status,
        403,
        "a created token cannot create another token"
    );
    let short = make("token-of-ann", "{\"scope\": \"read\", \"expires_in_seconds\": 1}").json();
    let short = short["token"].as_str().unwrap().to_owned();
    super::until("the token ends", || status(&short) == 401);
}

#[test]
fn members_of_an_account_see_what_its_manager_allows() {
    let site = site(&[("access.nodes", "own")]);
    // A scheduler would report this account.
    let db = rusqlite::Connection::open(site.dir.path().join("data/jobs.sqlite")).unwrap();
    db.execute("UPDATE runs SET account = 'physics', record_uid = uid WHERE cluster = 'slurm'", [])
        .unwrap();
    let account = "POST /api/v1/accounts/slurm:physics";
    let manager =
        send_as(&site, "token-of-admins", account, b"{\"create\": true, \"managers\": [\"2000\"]}");
    assert_eq!(manager.status, 200, "{manager:?}");
    let again = send_as(&site, "token-of-admins", account, b"{\"members\": [\"2000\"]}").json();
    let users = again["users"].as_array().unwrap();
    let bob = users.iter().find(|user| user["uid"] == 2000).unwrap();
    assert_eq!(bob["role"], "manager", "a member's entry demotes no manager");
    let got = |operation| answered(&site, operation, "token-of-ann");
    assert_eq!([got(Operation::Jobs), got(Operation::Report)], ["200", "404"]);
    for (sees, list, report, nodes) in [
        ("jobs", "200+", "403", "200"),
        ("all", "200+", "200+", "200+"),
        ("nothing", "200", "404", "200"),
    ] {
        let change = format!("{{\"members_see\": \"{sees}\"}}");
        assert_eq!(send_as(&site, "token-of-ann", account, change.as_bytes()).status, 403);
        assert_eq!(send_as(&site, "token-of-bob", account, change.as_bytes()).status, 200);
        let [jobs, of_bob, range, sql] =
            [Operation::Jobs, Operation::Report, Operation::Range, Operation::Sql].map(got);
        assert_eq!([&*jobs, &*of_bob, &*range, &*sql], [list, report, nodes, nodes], "{sees}");
    }
    let ann = send_as(&site, "token-of-ann", "GET /api/v1/accounts", b"").json();
    assert_eq!((&ann[0]["name"], &ann[0]["role"]), (&"physics".into(), &"scheduler".into()));
    assert!(ann[0]["users"].is_null() && ann.as_array().unwrap().len() == 1);
}

#[test]
fn an_account_is_created_on_purpose_only_and_can_be_deleted() {
    let site = site(&[]);
    let send_as =
        |token: &str, line: &str, body: &str| send_as(&site, token, line, body.as_bytes());
    let accounts = || {
        let all = send_as("token-of-admins", "GET /api/v1/accounts", "").json();
        let all: Vec<_> = all.as_array().unwrap().iter().map(|one| one["name"].clone()).collect();
        all.iter().map(|name| name.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let add = "{\"members\": [\"1000\"]}";
    let rejected = send_as("token-of-admins", "POST /api/v1/accounts/slurm:bob", add);
    assert_eq!((rejected.status, accounts()), (404, vec!["bobs".to_owned()]));
    assert_eq!(rejected.json()["hint"], "did you mean `slurm:bobs`?");
    let create = "{\"create\": true}";
    assert_eq!(send_as("token-of-bob", "POST /api/v1/accounts/slurm:new", create).status, 403);
    assert_eq!(send_as("token-of-admins", "POST /api/v1/accounts/slurm:new", create).status, 200);
    assert_eq!(accounts(), ["bobs", "new"]);
    assert_eq!(send_as("token-of-bob", "DELETE /api/v1/accounts/slurm:bobs", "").status, 403);
    assert_eq!(send_as("token-of-admins", "DELETE /api/v1/accounts/slurm:bobs", "").status, 200);
    assert_eq!(accounts(), ["new"]);
    assert_eq!(send_as("token-of-admins", "DELETE /api/v1/accounts/slurm:bobs", "").status, 404);
    // A list of jobs accepts the same name.
    let report = "{\"cluster\": \"slurm\", \"id\": 9, \"uid\": 2000, \"account\": \"new\", \"state\": \"waiting\"}";
    assert_eq!(send_as("token-of-admins", "POST /api/v1/jobs", report).status, 200);
    for (name, jobs) in [("new", 1), ("slurm:new", 1), ("oar:new", 0), ("slurm:ne", 0)] {
        let listed =
            send_as("token-of-admins", &format!("GET /api/v1/jobs?account={name}"), "").json();
        assert_eq!(listed.as_array().unwrap().len(), jobs, "{name}");
    }
    let two = "GET /api/v1/jobs?account=slurm:new&cluster=oar";
    assert_eq!(send_as("token-of-admins", two, "").status, 400);
}

#[test]
fn a_page_of_jobs_is_full_of_what_its_reader_sees() {
    let site = site(&[]);
    let begun = crate::now().plus(-5000 * Timestamp::SECOND).seconds().floor();
    for id in 11..=16 {
        let (uid, start) = (if id % 2 == 1 { 1000 } else { 2000 }, begun + f64::from(id) + 0.25);
        let report = serde_json::json!({
            "cluster": "slurm", "id": id, "uid": uid, "account": "geology", "project": "cores",
            "queue": "long", "name": format!("drill-{}", id % 3), "state": "running", "start": start,
        });
        let got =
            send_as(&site, "token-of-admins", "POST /api/v1/jobs", report.to_string().as_bytes());
        assert_eq!(got.status, 200, "{got:?}");
    }
    let ids = |token: &str, requested: &str| {
        let jobs = send_as(&site, token, &format!("GET /api/v1/jobs?{requested}"), b"").json();
        let jobs: Vec<_> = jobs.as_array().unwrap().iter().map(|job| job["id"].clone()).collect();
        jobs.iter().map(|id| id.as_i64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(ids("token-of-ann", "account=geology&queue=long&limit=2"), [15, 13]);
    let after = format!("account=geology&limit=2&after=slurm:13@{}", begun + 13.25);
    assert_eq!(ids("token-of-ann", &after), [11]);
    assert_eq!(ids("token-of-staff", &after), [12, 11]);
    assert_eq!(ids("token-of-staff", "project=cores&name=drill-0"), [15, 12]);
    assert_eq!(ids("token-of-staff", "project=cores&user=2000&state=running&limit=1"), [16]);
    assert_eq!(ids("token-of-staff", "account=geolog"), [0; 0], "write full names");
}

/// To see a job as a member of its account or as staff gives no right to change what agents measure for it.
#[test]
fn who_sees_a_job_promotes_nothing_for_it() {
    let site = site(&[("access.nodes", "own")]);
    let send_as =
        |token: &str, line: &str, body: &str| send_as(&site, token, line, body.as_bytes());
    let change = "{\"members_see\": \"all\", \"members\": [\"1000\"]}";
    let report = serde_json::json!({
        "cluster": "slurm", "id": 2, "uid": 2000, "account": "physics", "state": "running",
        "start": crate::now().plus(-100 * Timestamp::SECOND).seconds(),
    });
    let report = &*report.to_string();
    for token in ["", "token-of-agents", "token-of-guests", "token-of-bob", "token-of-staff"] {
        let got = send_as(token, "POST /api/v1/jobs", report);
        assert!(matches!(got.status, 401 | 403), "{token}: {got:?}");
    }
    let marks = |token: &str| send_as(token, "GET /api/v1/marks", "").json();
    assert_eq!(marks("token-of-ann"), serde_json::json!([]));
    assert_eq!(send_as("token-of-admins", "POST /api/v1/jobs", report).status, 200);
    let account = "POST /api/v1/accounts/slurm:physics";
    let change = change.replacen('{', "{\"create\": true, ", 1);
    assert_eq!(send_as("token-of-admins", account, &change).status, 200);
    assert_eq!(send_as("token-of-ann", "GET /api/v1/jobs/slurm:2", "").status, 200);
    for body in [
        "{\"job\": \"slurm:2\", \"metric\": \"x_.*\"}",
        "{\"nodes\": \"bobs-node\", \"metric\": \"x_.*\"}",
    ] {
        let got = send_as("token-of-ann", "POST /api/v1/promotions", body);
        assert!(matches!(got.status, 403 | 404), "{body}: {got:?}");
    }
    assert_eq!(send_as("token-of-ann", "DELETE /api/v1/promotions/1", "").status, 404);
    // Bob's requests show what bob measures: ann sees only administrators' requests for the node.
    let kinds = |token: &str| {
        let marks = marks(token);
        let kinds = marks.as_array().unwrap().iter().map(|mark| mark["kind"].to_string());
        kinds.collect::<Vec<_>>()
    };
    assert_eq!(kinds("token-of-ann"), ["\"set\""]);
    assert!(kinds("token-of-bob").contains(&"\"promoted\"".to_owned()));
}

/// Explanations count only samples within the caller's own allocations, and list only visible senders.
#[test]
fn explanations_are_made_of_what_is_seen() {
    let site = site(&[("access.nodes", "own")]);
    let mut later = shared();
    later.ticks = vec![Tick { at: crate::now().plus(-150 * Timestamp::SECOND), samples: 4 }];
    later.gaps[0].to = crate::now().plus(-130 * Timestamp::SECOND);
    later.gaps[0].from = crate::now().plus(-170 * Timestamp::SECOND);
    later.gaps[0].device = DeviceId::new("n1").unwrap();
    later.jobs.clear();
    later.seq = 1;
    assert_eq!(statuses(&post(&site, "", &frame(&later))), [AckStatus::Stored]);
    let explained = |token: &str| {
        let line = "GET /api/v1/explain?device=n1&metric=load_1m";
        send_as(&site, token, line, b"").json()[0].clone()
    };
    let (ann, staff) = (explained("token-of-ann"), explained("token-of-staff"));
    assert_eq!((&ann["samples"], &staff["samples"]), (&1.into(), &2.into()));
    assert_eq!((&ann["gaps_count"], &staff["gaps_count"]), (&0.into(), &1.into()));
    assert_eq!((&ann["value"], &ann["senders"][0]["origin"]), (&1.0.into(), &"n1".into()));
}

#[test]
fn writes_and_staff_reads_of_others_are_in_the_audit() {
    let site = site(&[]);
    for _ in 0..3 {
        send_as(&site, "token-of-staff", "GET /api/v1/jobs/slurm:2", b"");
        send_as(&site, "token-of-bob", "GET /api/v1/jobs/slurm:2", b"");
        send_as(&site, "token-of-staff", "GET /api/v1/range", b"");
        send_as(&site, "token-of-staff", "GET /api/v1/range?job=none", b"");
        send_as(&site, "token-of-ann", "POST /api/v1/jobs/slurm:2/end", b"{}");
        send_as(&site, "token-of-staff", "GET /api/v1/marks", b"");
        send_as(&site, "token-of-ann", "DELETE /api/v1/promotions/1", b"");
        send_as(&site, "token-of-staff", "DELETE /api/v1/settings/1", b"");
    }
    let flush = "{\"nodes\": \"n1\", \"source\": \"load\"}";
    for (token, line, body) in [
        ("token-of-bob", "DELETE /api/v1/promotions/1", ""),
        ("token-of-admins", "POST /rpc/update_promoted_metrics", "{}"),
        ("token-of-admins", "POST /api/v1/flushes", flush),
        ("token-of-admins", "DELETE /api/v1/settings/1", ""),
        ("token-of-admins", "POST /api/v1/jobs", "{\"cluster\": \"slurm\", \"id\": 9}"),
    ] {
        assert_eq!(send_as(&site, token, line, body.as_bytes()).status, 200, "{line}");
    }
    let dir = site.stop();
    let of_file = |name: &str| -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(dir.path().join("data").join(name)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let users = of_file("audit-users.log");
    let count = users.len();
    let lines = [users, of_file("audit.log")].concat();
    assert_eq!(count, 4, "those of users are in a file of their own");
    let brief: Vec<String> = lines
        .iter()
        .map(|line| {
            let of = |key: &str| line[key].to_string().replace('"', "");
            let actor = of("actor");
            // The token's fingerprint follows.
            let actor = actor.split(" (").next().unwrap_or_default();
            format!("{actor} {} {} {}", of("action"), of("job"), of("owner"))
        })
        .collect();
    assert_eq!(
        brief,
        [
            "a token of `user` POST /api/v1/jobs local:1 null",
            "a token of `user` POST /api/v1/tokens null null",
            "a token of `user` POST /api/v1/promotions null null",
            "a token of `user` DELETE /api/v1/promotions/1 null null",
            "a token of `admin` POST /api/v1/accounts/slurm:bobs null null",
            "a token of `admin` POST /api/v1/settings null null",
            "a token of `staff` GET /api/v1/jobs/slurm:2 slurm:2 2000",
            "a token of `staff` GET /api/v1/range * null",
            "a token of `staff` GET /api/v1/marks * null",
            "a token of `admin` POST /rpc/update_promoted_metrics null null",
            "a token of `admin` POST /api/v1/flushes null null",
            "a token of `admin` DELETE /api/v1/settings/1 null null",
            "a token of `admin` POST /api/v1/jobs slurm:9 null",
        ]
    );
    assert_eq!((&lines[1]["token"], &lines[1]["scope"]), (&1.into(), &"read:2000".into()));
    assert_eq!(lines[4]["change"]["managers"][0], "2000");
    assert_eq!(
        (&lines[2]["promotions"][0]["job"], &lines[5]["nodes"]),
        (&"slurm:2".into(), &"bobs-node".into())
    );
    assert!(lines.iter().all(|line| line["address"] == "127.0.0.1" && line["time"].is_f64()));
}
