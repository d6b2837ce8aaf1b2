//! On-demand requests to agents: who may make them, what a node receives, and what is kept.

mod polled_changes;

use super::ingest::{HEADERS, batch, frame};
use super::{Answer, Site, until};
use crate::Limits;
use model::setting::{AgentStatus, NodeSettings, Rejection, RejectionCode, SETTINGS_BYTES_MAX};
use model::{ClusterId, DeviceId, JobEvent, JobId, JobKey, Timestamp};
use serde_json::{Value, json};
use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

const ADMIN: &str = "Authorization: Bearer token-of-admins\r\n";
const USER: &str = "Authorization: Bearer token-of-1234\r\n";
const OTHER: &str = "Authorization: Bearer token-of-77\r\n";

fn send(site: &Site, token: &str, line: &str, body: &Value) -> Answer {
    let headers = format!("Host: localhost\r\nContent-Type: application/json\r\n{token}");
    let body = if body.is_null() { Vec::new() } else { serde_json::to_vec(body).unwrap() };
    site.send(line, &headers, &body)
}

fn good(site: &Site, token: &str, line: &str, body: &Value) -> Value {
    let answer = send(site, token, line, body);
    assert_eq!(answer.status, 200, "{line}: {answer:?}");
    answer.json()
}

fn rejected(site: &Site, token: &str, line: &str, body: &Value) -> (u16, String) {
    let answer = send(site, token, line, body);
    (answer.status, answer.json()["message"].as_str().unwrap_or_default().to_owned())
}

/// A node that sends batches and reads the wanted configuration, with its generation, from each response.
struct Node<'a> {
    site: &'a Site,
    name: &'a str,
    seq: Cell<u64>,
}

impl<'a> Node<'a> {
    const fn new(site: &'a Site, name: &'a str) -> Self {
        Self { site, name, seq: Cell::new(0) }
    }

    /// Sends a batch, and returns the generation and the settings of the response, one per line.
    fn sends(&self, headers: &str, jobs: Vec<JobEvent>) -> (u64, String) {
        let mut batch = batch(self.name, self.seq.replace(self.seq.get() + 1));
        batch.jobs = jobs;
        let headers = format!("{HEADERS}{ADMIN}{headers}");
        let answer = self.site.send("POST /v1/batches", &headers, &frame(&batch));
        assert_eq!(answer.status, 200, "{answer:?}");
        let answer = wire::Answer::decode(&answer.body).unwrap();
        assert!(answer.settings.len() <= SETTINGS_BYTES_MAX);
        (answer.generation, shown(&wire::decode_settings(&answer.settings).unwrap()))
    }

    fn wanted_config(&self) -> String {
        self.sends("", Vec::new()).1
    }

    fn until_reported(&self, what: &str, holds: impl Fn(&str) -> bool) {
        until(what, || holds(&self.wanted_config()));
    }
}

/// Settings, one per line.
fn shown(settings: &NodeSettings) -> String {
    let NodeSettings { promotions, flushes, .. } = settings;
    let promotions = promotions.keys().map(|metric| format!("promote {metric}"));
    let flushes = flushes.iter().map(|one| format!("flush {} {}", one.source, one.number));
    let lines: Vec<String> =
        settings.lines().into_iter().chain(promotions).chain(flushes).collect();
    lines.join("\n")
}

/// The header of an agent that applies a generation.
pub(super) fn applies(generation: u64, rejected: &[Rejection]) -> String {
    let rejected = rejected.to_vec();
    status(&AgentStatus { generation, rejected, now: crate::now(), ..AgentStatus::default() })
}

/// The header of an agent's status.
pub(super) fn status(status: &AgentStatus) -> String {
    format!("{}: {}\r\n", wire::STATUS_HEADER, wire::encode_status(status))
}

/// A job of a user on a node. Its start depends only on its ID.
fn job(id: i64, uid: u32, node: &str, ended: bool) -> JobEvent {
    JobEvent {
        key: JobKey { cluster: ClusterId::new("oar").unwrap(), id: JobId::new(id).unwrap() },
        display_id: id.to_string().into(),
        device: DeviceId::new(node).unwrap(),
        user: None,
        uid: Some(uid),
        start: Timestamp::from_seconds(1_767_700_000 + id),
        stop: ended.then(crate::now),
        monitor: None,
        oom_kills: Vec::new(),
    }
}

fn load(nodes: &str, period: f64, seconds: f64) -> Value {
    json!({"nodes": nodes, "for_seconds": seconds, "sources": {"load": {"period_seconds": period}}})
}

const SETTINGS: &str = "GET /api/v1/settings";
const SET: &str = "POST /api/v1/settings";
const PROMOTIONS: &str = "GET /api/v1/promotions";
const PROMOTE: &str = "POST /api/v1/promotions";

#[test]
fn a_change_is_in_the_next_ack_of_its_nodes_alone_until_it_is_undone() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("agents.toml"), "[sources.disk]\nperiod = \"9s\"\n").unwrap();
    let site = Site::within(dir, Limits::default(), &[]);
    let (n1, n9) = (Node::new(&site, "n1"), Node::new(&site, "n9"));
    let (file, _) = n1.sends("", Vec::new());
    let made = good(&site, ADMIN, SET, &load("n[1-3]", 1.0, 600.0));
    assert_eq!(made["nodes_known"], 1, "of those that sent");
    let (generation, text) = n1.sends(&applies(file, &[]), Vec::new());
    assert_ne!(generation, file);
    assert_eq!(text, "sources.disk.period = \"9s\"\nsources.load.period = \"1s\"");
    assert_eq!(n9.sends("", Vec::new()).0, file, "another node has the file alone");
    // A node that reports the generation gets no text again. Its rejection is listed.
    let reason = "shorter than `remote.period_min`".to_owned();
    let setting = "sources.load.period".to_owned();
    let too_fast = Rejection { setting, code: RejectionCode::NotAllowed, reason, until: None };
    let took = applies(generation, std::slice::from_ref(&too_fast));
    assert_eq!(n1.sends(&took, Vec::new()), (generation, String::new()));
    let listed = good(&site, ADMIN, SETTINGS, &Value::Null);
    let load = json!({"source": "load", "enabled": null, "period_seconds": 1.0, "events": null, "burst": null});
    assert_eq!(listed[0]["settings"], json!([load]));
    assert_eq!((&listed[0]["nodes_known"], &listed[0]["nodes_applied"]), (&json!(1), &json!(0)));
    let rejection = json!({"device": "n1", "source": "load", "setting": "period", "code": "not_allowed",
        "reason": "shorter than `remote.period_min`"});
    assert_eq!(listed[0]["rejected"], json!([rejection]));
    let node = &good(&site, ADMIN, "GET /api/v1/nodes", &Value::Null)[0];
    assert_eq!(node["config_rejected"][0]["code"], "not_allowed", "{node}");
    assert_eq!(listed[0]["shortened"], json!([]));
    // A node that applies the change for a shorter time applies it.
    let limit = "`remote.time_max` is 1m";
    let shorter = Rejection {
        setting: "sources.load".to_owned(),
        code: RejectionCode::Shortened,
        reason: limit.to_owned(),
        until: Some(crate::now().plus(60_000_000)),
    };
    n1.sends(&applies(generation, &[shorter]), Vec::new());
    let listed = &good(&site, ADMIN, SETTINGS, &Value::Null)[0];
    assert_eq!((&listed["nodes_applied"], &listed["rejected"]), (&json!(1), &json!([])));
    let shortened = &listed["shortened"][0];
    assert_eq!((&shortened["device"], &shortened["reason"]), (&json!("n1"), &json!(limit)));
    assert!(shortened["until"].as_f64() < listed["until"].as_f64(), "{listed}");
    // A later change that the node has not received yet takes nothing back.
    let cpu =
        json!({"nodes": "n1", "for_seconds": 600.0, "sources": {"cpu": {"period_seconds": 2.0}}});
    let later = good(&site, ADMIN, SET, &cpu);
    let listed = good(&site, ADMIN, SETTINGS, &Value::Null);
    let applied = [&listed[0]["nodes_applied"], &listed[1]["nodes_applied"]];
    assert_eq!(applied, [&json!(1), &json!(0)], "{listed}");
    n1.sends(&applies(generation, std::slice::from_ref(&too_fast)), Vec::new());
    let listed = good(&site, ADMIN, SETTINGS, &Value::Null);
    assert_eq!(listed[0]["rejected"], json!([rejection]), "{listed}");
    good(&site, ADMIN, &format!("DELETE /api/v1/settings/{}", later["id"]), &Value::Null);
    // The change survives a restart of the server.
    let seq = n1.seq.clone();
    let folder = site.stop();
    let site = Site::within(folder, Limits::default(), &[]);
    let n1 = Node { site: &site, name: "n1", seq };
    assert_eq!(n1.sends("", Vec::new()).0, generation);
    let undo = format!("DELETE /api/v1/settings/{}", made["id"]);
    good(&site, ADMIN, &undo, &Value::Null);
    assert_eq!(n1.sends("", Vec::new()).0, file);
    assert_eq!(rejected(&site, ADMIN, &undo, &Value::Null).0, 404);
    let marks = good(&site, USER, "GET /api/v1/marks?device=n2", &Value::Null);
    let kinds: Vec<_> = marks.as_array().unwrap().iter().map(|mark| &mark["kind"]).collect();
    assert_eq!(kinds, ["set", "undone"]);
    assert_eq!(good(&site, USER, "GET /api/v1/marks?device=n9", &Value::Null), json!([]));
}

#[test]
fn a_change_ends_by_itself_and_the_one_before_it_counts_again() {
    let site = Site::start();
    let n1 = Node::new(&site, "n1");
    good(&site, ADMIN, SET, &load("n*", 5.0, 600.0));
    good(&site, ADMIN, SET, &load("n1", 1.0, 1.5));
    assert!(n1.wanted_config().contains("period = \"1s\""));
    n1.until_reported("the second change ends", |text| text.contains("period = \"5s\""));
    until("its end is written down", || {
        let marks = good(&site, ADMIN, "GET /api/v1/marks", &Value::Null);
        marks.as_array().unwrap().iter().any(|mark| mark["kind"] == "expired")
    });
}

#[test]
fn only_administrators_change_settings_and_flush() {
    let site = Site::start();
    let flush = json!({"nodes": "n1", "source": "cpu"});
    for token in [USER, "Authorization: Bearer token-of-guests\r\n"] {
        for (line, body) in [
            (SETTINGS, Value::Null),
            (SET, load("n1", 1.0, 60.0)),
            ("DELETE /api/v1/settings/1", Value::Null),
            ("POST /api/v1/flushes", flush.clone()),
            ("POST /rpc/update_promoted_metrics", json!({})),
        ] {
            assert_eq!(rejected(&site, token, line, &body).0, 403, "{line}");
        }
    }
    for body in [
        load("n[", 1.0, 60.0),
        load("n1", 0.0001, 60.0),
        load("n1", 1.0, 1e9),
        json!({"nodes": "n1", "for_seconds": 60}),
        json!({"nodes": "n1", "for_seconds": 60, "sources": {"x\ny": {"enabled": true}}}),
        json!({"nodes": "n1", "for_seconds": 60, "path": "/etc/passwd"}),
        json!({"nodes": "n1", "for_seconds": 60, "sources": {"exec": {"enabled": true}}}),
        json!({"nodes": "n1", "for_seconds": 60, "sources": {"nosuch": {"enabled": true}}}),
        json!({"nodes": "n1", "for_seconds": 60, "sources": {"load": {"events": ["cpu_cycles"]}}}),
        json!({"nodes": "n1", "for_seconds": 60, "sources": {"perf": {"events": ["nosuch"]}}}),
        json!({"nodes": "n1", "for_seconds": 60, "bursts": {"exec": {"period_seconds": 1, "keep_seconds": 9}}}),
    ] {
        assert_eq!(rejected(&site, ADMIN, SET, &body).0, 400, "{body}");
    }
    for source in ["exec", "nosuch"] {
        let flush = json!({"nodes": "n1", "source": source});
        assert_eq!(rejected(&site, ADMIN, "POST /api/v1/flushes", &flush).0, 400, "{source}");
    }
    let n1 = Node::new(&site, "n1");
    let burst = json!({"nodes": "n1", "for_seconds": 60, "bursts":
        {"cpu": {"period_seconds": 0.1, "keep_seconds": 60, "flush_on": ["job_start"]}}});
    good(&site, ADMIN, SET, &burst);
    let number = good(&site, ADMIN, "POST /api/v1/flushes", &flush)["id"].clone();
    let text = n1.wanted_config();
    assert!(
        text.contains("burst.cpu.flush_on = [\"job_start\"]\nburst.cpu.keep = \"1m\"\n"),
        "{text}"
    );
    let flushed = format!("flush cpu {number}");
    assert!(text.ends_with(&flushed), "{text}");
}

#[test]
fn a_user_promotes_on_the_nodes_of_his_running_jobs_and_for_their_time() {
    let site = Site::with(Limits::default(), &[("promotions.per_user_max", "2")]);
    let (n1, n2) = (Node::new(&site, "n1"), Node::new(&site, "n2"));
    let perf = json!({"metric": "perf_.*", "for_seconds": 600});
    assert_eq!(rejected(&site, USER, PROMOTE, &perf).0, 404, "no job, no promotion");
    n1.sends("", vec![job(7, 1234, "n1", false)]);
    n2.sends("", vec![job(8, 77, "n2", false)]);
    let (status, why) = rejected(&site, USER, PROMOTE, &json!({"metric": "a(b"}));
    assert!(status == 400 && why.contains("at byte 2,"), "{why}");
    let elsewhere = json!({"metric": "x", "nodes": "n2"});
    assert_eq!(rejected(&site, USER, PROMOTE, &elsewhere).0, 404);
    let of_another = json!({"metric": "x", "job": "oar:8"});
    assert_eq!(rejected(&site, USER, PROMOTE, &of_another).0, 404);

    let made = good(&site, USER, PROMOTE, &perf);
    assert_eq!((&made[0]["nodes"], &made[0]["job"]), (&json!("n1"), &json!("oar:7")));
    assert!(n1.wanted_config().contains("promote perf_.*"));
    assert_eq!(n2.wanted_config(), "");
    good(&site, USER, PROMOTE, &json!({"metric": "y", "job": "7"}));
    let (status, why) = rejected(&site, USER, PROMOTE, &json!({"metric": "z"}));
    assert!(status == 507 && why.contains("the limit of 2 is reached"), "{why}");
    let seen = |token| good(&site, token, PROMOTIONS, &Value::Null).as_array().unwrap().len();
    assert_eq!((seen(USER), seen(OTHER), seen(ADMIN)), (2, 0, 2));
    let end = format!("DELETE /api/v1/promotions/{}", made[0]["id"]);
    assert_eq!(rejected(&site, OTHER, &end, &Value::Null).0, 404);
    good(&site, USER, &end, &Value::Null);
    assert!(!n1.wanted_config().contains("perf_") && n1.wanted_config().contains("promote y"));
    // Marks are visible to their user and to administrators only: their texts show what the user measures.
    let marks = |token| good(&site, token, "GET /api/v1/marks?device=n1", &Value::Null);
    assert_eq!(
        (&marks(USER)[0]["actor"], &marks(USER)[0]["job"]),
        (&json!("1234"), &json!("oar:7"))
    );
    assert_eq!(marks(OTHER), json!([]));
    assert_eq!(marks(ADMIN).as_array().unwrap().len(), marks(USER).as_array().unwrap().len());

    n1.sends("", vec![job(7, 1234, "n1", true)]);
    n1.until_reported("promotions end with the job", str::is_empty);
}

#[test]
fn a_promotion_lists_the_nodes_that_reject_or_shorten_it() {
    let site = Site::start();
    let (n1, n2) = (Node::new(&site, "n1"), Node::new(&site, "n2"));
    let perf = json!({"metric": "perf_.*", "nodes": "n[1-2]", "for_seconds": 600});
    good(&site, ADMIN, PROMOTE, &perf);
    let (generation, _) = n1.sends("", Vec::new());
    let rejection = |code, until| {
        let setting = "promote.perf_.*".to_owned();
        Rejection { setting, code, reason: "a limit".to_owned(), until }
    };
    let not_allowed = rejection(RejectionCode::NotAllowed, None);
    n1.sends(&applies(generation, std::slice::from_ref(&not_allowed)), Vec::new());
    let soon = Some(crate::now().plus(60_000_000));
    n2.sends(&applies(generation, &[rejection(RejectionCode::Shortened, soon)]), Vec::new());
    let listed = || good(&site, ADMIN, PROMOTIONS, &Value::Null)[0].clone();
    let rejected = json!({"device": "n1", "source": null, "setting": null, "code": "not_allowed",
        "reason": "a limit"});
    assert_eq!(listed()["rejected"], json!([rejected]));
    let shortened = &listed()["shortened"];
    assert_eq!(shortened.as_array().unwrap().len(), 1, "{shortened}");
    assert_eq!(
        (&shortened[0]["device"], &shortened[0]["reason"]),
        (&json!("n2"), &json!("a limit"))
    );
    // A report of other settings states nothing of these.
    n1.sends(&applies(generation + 1, &[not_allowed]), Vec::new());
    assert_eq!(listed()["rejected"], json!([]));
}

#[test]
fn a_node_receives_what_fits_and_the_rest_is_reported_to_the_caller() {
    let site = Site::start();
    let (n1, n2) = (Node::new(&site, "n1"), Node::new(&site, "n2"));
    n1.wanted_config();
    n2.wanted_config();
    let burst = |nodes: &str, sources: &[&str]| {
        let one = |source: &&str| {
            ((*source).to_owned(), json!({"period_seconds": 0.1, "keep_seconds": 60}))
        };
        let bursts: serde_json::Map<_, _> = sources.iter().map(one).collect();
        let body = json!({"nodes": nodes, "for_seconds": 600, "bursts": bursts});
        good(&site, ADMIN, SET, &body)
    };
    let first = burst("n[1-2]", &["cpu", "disk", "load"]);
    assert_eq!((&first["nodes_known"], &first["nodes_full"]), (&json!(2), &json!(0)));
    assert_eq!(burst("n1", &["memory"])["nodes_full"], 0);
    let more = burst("n[1-2]", &["numa"]);
    assert_eq!(more["nodes_full"], 1, "n1 has four");
    let (on_n1, on_n2) = (n1.wanted_config(), n2.wanted_config());
    assert!(on_n1.contains("burst.memory.") && !on_n1.contains("burst.numa."), "{on_n1}");
    assert!(!on_n2.contains("burst.memory.") && on_n2.contains("burst.numa."), "{on_n2}");
    let listed = good(&site, ADMIN, SETTINGS, &Value::Null);
    let why = "the node's limits are reached; it does not receive this";
    let rejection = json!({"device": "n1", "source": "numa", "setting": "burst", "code": "limit", "reason": why});
    assert_eq!(listed[2]["rejected"], json!([rejection]));
    assert_eq!((&listed[0]["rejected"], &listed[1]["rejected"]), (&json!([]), &json!([])));
    assert!(site.metric("jobmeter_settings_cut_total") > 0.0);
    // The end of one change frees space.
    good(&site, ADMIN, &format!("DELETE /api/v1/settings/{}", first["id"]), &Value::Null);
    assert!(n1.wanted_config().contains("burst.numa."));
}

#[test]
fn a_request_in_the_environment_lasts_until_the_job_ends_and_a_bad_expression_is_reported() {
    let site = Site::start();
    let (n1, n2) = (Node::new(&site, "n1"), Node::new(&site, "n2"));
    let requesting_event = |node: &str, monitor: &str| JobEvent {
        monitor: Some(monitor.into()),
        oom_kills: Vec::new(),
        ..job(7, 1234, node, false)
    };
    n1.sends("", vec![job(7, 1234, "n1", false)]);
    n2.sends("", vec![job(7, 1234, "n2", false)]);
    let list = || good(&site, USER, PROMOTIONS, &Value::Null);
    assert_eq!((n1.wanted_config().as_str(), list()), ("", json!([])));
    n1.sends("", vec![requesting_event("n1", "perf_.* bad(")]);
    n2.until_reported("on each of its nodes", |text| text.contains("promote perf_.*"));
    n2.sends("", vec![requesting_event("n2", "perf_.* bad(")]);
    until("the error is shown", || {
        let listed = list();
        let listed = listed.as_array().unwrap();
        let bad = listed.iter().find(|one| one["metric"] == "bad(");
        let wanted_config =
            bad.is_some_and(|bad| bad["error"].as_str().unwrap().contains("at byte 4"));
        wanted_config && listed.len() == 2 && listed.iter().all(|one| one["nodes"] == "n1,n2")
    });
    // What the agent rejected is shown to the owner, with the reason, and to no other user.
    n2.sends("", vec![JobEvent { monitor: None, ..job(8, 1234, "n2", false) }]);
    let rejected = Some("!JOBMETER_MONITOR: it is not UTF-8".into());
    n2.sends("", vec![JobEvent { monitor: rejected, ..job(8, 1234, "n2", false) }]);
    until("the reason is shown", || {
        let listed = list();
        listed
            .as_array()
            .unwrap()
            .iter()
            .any(|one| one["error"] == "JOBMETER_MONITOR: it is not UTF-8" && one["job"] == "oar:8")
    });
    assert_eq!(good(&site, OTHER, PROMOTIONS, &Value::Null), json!([]));
    n2.sends("", vec![job(8, 1234, "n2", true)]);
    until("it ends with the job", || list().as_array().unwrap().len() == 2);
    let good_one = |one: &&Value| one["metric"] == "perf_.*";
    let listed = list();
    let one = listed.as_array().unwrap().iter().find(good_one).unwrap();
    assert_eq!((&one["origin"], &one["job"]), (&json!("job"), &json!("oar:7")));
    assert!(!n1.wanted_config().contains("bad("));
    for node in [&n1, &n2] {
        node.sends("", vec![job(7, 1234, node.name, true)]);
    }
    n1.until_reported("it ends with the job", str::is_empty);
    assert_eq!(list(), json!([]));
}

#[test]
fn no_user_takes_the_capacity_of_an_administrator() {
    let site = Site::start();
    let n1 = Node::new(&site, "n1");
    n1.sends("", vec![job(7, 1234, "n1", false)]);
    let control = json!({"metric": "\u{1}".repeat(200)});
    let (status, why) = rejected(&site, USER, PROMOTE, &control);
    assert!(status == 400 && why.contains("printable characters"), "{why}");
    // Names that sort first, of the greatest length, and longer when quoted.
    let long = |n: usize| json!({"metric": format!("a{n:03}{}", "\\".repeat(196))});
    for n in 0..16 {
        good(&site, USER, PROMOTE, &long(n));
    }
    let (status, why) = rejected(&site, USER, PROMOTE, &long(16));
    assert!(status == 507 && why.contains("on one node: the limit of 16 is reached"), "{why}");
    for id in 1..=6 {
        let words: Vec<_> = (0..20).map(|n| format!("monitor=b{id}_{n}")).collect();
        let wanted_config = json!({"cluster": "site", "id": id, "uid": 2000 + id, "state": "running",
            "start": crate::now().seconds(), "types": words, "nodes": [{"device": "n[1-2]"}]});
        good(&site, ADMIN, "POST /api/v1/jobs", &wanted_config);
    }
    good(&site, ADMIN, SET, &load("n1", 1.0, 600.0));
    good(&site, ADMIN, PROMOTE, &json!({"nodes": "n1", "metric": "zzz", "for_seconds": 60}));
    let promotes = |text: &str| text.matches("promote ").count();
    n1.until_reported("the words of jobs", |text| promotes(text) == 64);
    let text = n1.wanted_config();
    assert!(
        text.contains("sources.load.period = \"1s\"") && text.contains("promote zzz"),
        "{text}"
    );
    for user in ["a000", "b1_0", "b6_0"] {
        assert!(text.contains(user), "{user} has a share of {text}");
    }
    assert!(site.metric("jobmeter_promotions_cut_total") > 0.0);
    // A promotion that was ended does not return with its job. A user cannot end what they did not request.
    let held = good(&site, ADMIN, PROMOTIONS, &Value::Null);
    let number = |metric: &str| {
        let found = held.as_array().unwrap().iter().find(|one| one["metric"] == metric);
        found.unwrap()["id"].clone()
    };
    let end = |metric: &str| format!("DELETE /api/v1/promotions/{}", number(metric));
    assert_eq!(rejected(&site, USER, &end("zzz"), &Value::Null).0, 404);
    good(&site, ADMIN, &end("b1_0"), &Value::Null);
    good(&site, ADMIN, "POST /rpc/update_promoted_metrics", &json!({}));
    let held = good(&site, ADMIN, PROMOTIONS, &Value::Null);
    assert!(held.as_array().unwrap().iter().all(|one| one["metric"] != "b1_0"), "{held}");
}

#[test]
fn rows_written_by_hand_count_and_survive_what_comes_from_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let rules = dir.path().join("rules.toml");
    let rule = "[[rule]]\nname = \"gpus\"\nmetric = \"nvml_.*\"\nclusters = [\"oar\"]\n";
    std::fs::write(&rules, rule).unwrap();
    let flags = [("promotions.rules", rules.to_str().unwrap())];
    let site = Site::within(dir, Limits::default(), &flags);
    let n1 = Node::new(&site, "n1");
    by_hand(site.dir.path(), "INSERT INTO promotions (device, metric) VALUES ('n*', 'ipmi_.*')");
    by_hand(site.dir.path(), "INSERT INTO promotions (device, metric) VALUES ('n1', 'bad(')");
    n1.until_reported("the row", |text| text.contains("ipmi_") && !text.contains("bad("));
    n1.sends("", vec![job(7, 1234, "n1", false)]);
    n1.until_reported("the rule", |text| text.contains("nvml_") && text.contains("ipmi_"));
    let rows = good(&site, ADMIN, "POST /rpc/update_promoted_metrics", &json!({}));
    assert!(rows.as_array().unwrap().contains(&json!({"device_id": "n1", "metric_id": "nvml_.*"})));
    let listed = good(&site, ADMIN, PROMOTIONS, &Value::Null);
    let bad = listed.as_array().unwrap().iter().find(|one| one["metric"] == "bad(").unwrap();
    assert_eq!(bad["origin"], "hand");
    assert!(bad["error"].as_str().unwrap().contains("at byte 4,"), "{bad}");
    n1.sends("", vec![job(7, 1234, "n1", true)]);
    n1.until_reported("the end", |text| !text.contains("nvml_") && text.contains("ipmi_"));
    by_hand(site.dir.path(), "DELETE FROM promotions WHERE metric = 'ipmi_.*'");
    n1.until_reported("the row is gone", str::is_empty);
}

/// Edits the database, as a person does with `sqlite3` beside the server.
fn by_hand(dir: &Path, statement: &str) {
    let db = rusqlite::Connection::open(dir.join("data/demand.sqlite")).unwrap();
    db.busy_timeout(Duration::from_secs(10)).unwrap();
    db.execute(statement, []).unwrap();
}
