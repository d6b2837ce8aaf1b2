//! The output `elasticsearch` beside a server with faults: each sample once, and what is rejected is set aside.

use crate::documents::{POSITIONS, counted, expected, samples, with_positions};
use crate::index_server::{Fault, IndexServer};
use crate::kit::Site;
use conformance::{Spec, spec};
use serde_json::Value;
use std::fs;
use std::time::{Duration, Instant};

fn text(server: &IndexServer, more: &str) -> String {
    format!(
        "[outputs.es]\nkind = \"elasticsearch\"\naddress = \"{}\"\nfrom = \"all\"\n{more}",
        server.address
    )
}

#[test]
fn documents_are_bounded_and_there_once() {
    let server = IndexServer::start();
    server.state().plugins = vec!["/_ilm/"];
    let mut site = Site::new();
    let all = samples(0..120);
    site.store(&all);
    site.apply(&text(
        &server,
        "bulk_bytes = \"4KiB\"\ndelete_after = \"30d\"\nindex = \"samples\"\n",
    ));
    site.settle();
    assert_eq!(counted(&server.documents()), expected(&all));
    // Two sources at each instant.
    assert_eq!(server.documents().len(), 240);
    let state = server.state();
    let of = |path: &'static str| state.requests.iter().filter(move |one| one.1.starts_with(path));
    assert!(of("/_bulk").count() > 10 && of("/_bulk").all(|one| one.2.len() <= 4096));
    let body = |path: &'static str| {
        let put = of(path).find(|one| one.0 == "PUT").unwrap();
        serde_json::from_str::<Value>(&put.2).unwrap()
    };
    assert_eq!(body("/_ilm/policy/samples")["policy"]["phases"]["delete"]["min_age"], "30d");
    let template = body("/_index_template/samples");
    assert_eq!(template["template"]["settings"]["index.lifecycle.name"], "samples");
    // The first portion after a start is looked up, and no later one.
    assert_eq!(of("/samples/_refresh").count(), 1);
    drop(state);
    site.store(&samples(120..121));
    site.settle();
    assert_eq!((server.documents().len(), server.count("POST", "_refresh")), (242, 1));
}

#[test]
fn the_policy_of_opensearch_names_the_stream() {
    let server = IndexServer::start();
    server.state().plugins = vec!["/_plugins/_ism/"];
    let mut site = Site::new();
    site.store(&samples(0..1));
    site.apply(&text(&server, "delete_after = \"36h\"\n"));
    site.settle();
    let state = server.state();
    let find = |path: &str| state.requests.iter().find(|one| one.0 == "PUT" && one.1 == path);
    let policy = find("/_plugins/_ism/policies/jobmeter").unwrap();
    let policy: Value = serde_json::from_str(&policy.2).unwrap();
    assert_eq!(policy["policy"]["ism_template"][0]["index_patterns"][0], "jobmeter");
    let after = &policy["policy"]["states"][0]["transitions"][0]["conditions"];
    assert_eq!(after["min_rollover_age"], "2d");
    assert!(!find("/_index_template/jobmeter").unwrap().2.contains("lifecycle"));
}

#[test]
fn faults_of_the_connection_neither_lose_nor_repeat() {
    let faults: [fn() -> Fault; 6] = [
        || Fault::CutBefore,
        || Fault::CutAfter,
        || Fault::HalfAnswer,
        || Fault::Endless,
        || Fault::BadGateway,
        || Fault::Items(503, "unavailable_shards_exception"),
    ];
    for fault in faults {
        let server = IndexServer::start();
        let mut site = Site::new();
        site.store(&samples(0..3));
        site.apply(&text(&server, ""));
        site.settle();
        // The second request of the portion fails.
        site.apply(&text(&server, "bulk_bytes = \"4KiB\"\n"));
        server.state().faults.extend([fault(), fault()]);
        site.store(&samples(3..60));
        site.waits("es");
        // A rollover before the request is repeated: the same IDs are accepted again.
        server.rollover("jobmeter");
        site.settle();
        assert_eq!(counted(&server.documents()), expected(&samples(0..60)));
        assert!(site.outputs.status()[0].failures >= 1);
    }
}

#[test]
fn too_many_requests_are_repeated_after_the_requested_time() {
    let server = IndexServer::start();
    let mut site = Site::new();
    site.store(&samples(0..3));
    let busy =
        Fault::Status(429, "Retry-After: 2", r#"{"error":{"type":"busy","reason":"later"}}"#);
    server.state().faults.extend([busy, Fault::Items(429, "es_rejected_execution_exception")]);
    let begun = Instant::now();
    site.apply(&text(&server, ""));
    let why = site.waits("es");
    assert!(why.contains("429: busy: later"), "{why}");
    site.settle();
    assert!(begun.elapsed() >= Duration::from_secs(2));
    assert_eq!(counted(&server.documents()), expected(&samples(0..3)));
    // Nothing was stored, so nothing is looked up again.
    assert_eq!(server.count("POST", "_refresh"), 1);
}

#[test]
fn a_receiver_that_rejects_everything_is_waited_for() {
    let block = r#"{"error":{"type":"cluster_block_exception","reason":"index [x] blocked by: read-only"}}"#;
    for (fault, what) in [
        (
            Fault::Status(401, "", r#"{"error":{"type":"security_exception","reason":"missing"}}"#),
            "check `auth`",
        ),
        (Fault::Status(403, "", block), "the index is read-only"),
        (Fault::Items(403, "cluster_block_exception"), "read-only"),
        (Fault::Items(404, "index_not_found_exception"), "create the index"),
        (Fault::Items(429, "cluster_block_exception"), "cluster_block_exception"),
        (Fault::Items(400, "mapper_parsing_exception"), "rejects every document"),
    ] {
        let server = IndexServer::start();
        let mut site = Site::new();
        site.store(&samples(0..10));
        server.state().faults.push_back(fault);
        site.apply(&text(&server, ""));
        let why = site.waits("es");
        assert!(why.contains(what), "{why}");
        site.settle();
        assert_eq!(counted(&server.documents()), expected(&samples(0..10)));
        assert_eq!(site.outputs.status()[0].set_aside.items, 0);
    }
}

#[test]
fn a_bad_document_is_set_aside_shown_and_retried() {
    let server = IndexServer::start();
    let is_bad = |document: &Value| document["source"] == "bad";
    server.state().is_bad = Some(Box::new(is_bad));
    let mut site = Site::new();
    let bad = (spec("n1", "bad_1"), 1, 7.0);
    site.store(&[samples(0..3), vec![bad.clone()]].concat());
    site.apply(&text(&server, ""));
    site.settle();
    assert_eq!(counted(&server.documents()), expected(&samples(0..3)));
    let shown = |site: &Site| site.outputs.status()[0].set_aside.clone();
    let aside = shown(&site);
    assert_eq!((aside.items, aside.deleted, aside.is_retrying), (1, 0, false));
    assert!(aside.bytes > 100);
    assert_eq!(aside.message.unwrap(), "document_parsing_exception: by the test");
    // After a restart, and a retry that is rejected again.
    site = site.restart();
    site.apply(&text(&server, ""));
    let is_read = (0..2000).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        shown(&site).items == 1
    });
    assert!(is_read);
    assert_eq!(site.outputs.retry("other"), None);
    let retried = |site: &Site| {
        assert!(site.outputs.retry("es").unwrap().is_retrying);
        let ended = (0..2000).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            !shown(site).is_retrying
        });
        assert!(ended);
        shown(site).items
    };
    assert_eq!(retried(&site), 1);
    server.state().is_bad = None;
    assert_eq!(retried(&site), 0);
    let all = [samples(0..3), vec![bad]].concat();
    assert_eq!(counted(&server.documents()), expected(&all));
    // Without anything set aside, a retry ends at once.
    assert_eq!(retried(&site), 0);
    assert_eq!(fs::read_dir(site.path("outputs/es/refused")).unwrap().count(), 0);
}

#[test]
fn a_kill_before_the_confirmation_repeats_nothing_over_a_rollover() {
    let server = IndexServer::start();
    server.state().is_bad = Some(Box::new(|document| document["source"] == "bad"));
    let mut site = Site::new();
    site.apply(&text(&server, ""));
    site.store(&samples(0..2));
    site.settle();
    site = site.restart();
    let positions = fs::read(site.path(POSITIONS)).unwrap();
    site.store(&[samples(2..4), vec![(spec("n1", "bad_1"), 2, 1.0)]].concat());
    site.apply(&text(&server, ""));
    site.settle();
    site = with_positions(site, &positions);
    server.rollover("jobmeter");
    site.store(&samples(4..6));
    site.apply(&text(&server, ""));
    site.settle();
    assert_eq!(counted(&server.documents()), expected(&samples(0..6)));
    assert_eq!(site.outputs.status()[0].set_aside.items, 1);
}

#[test]
fn parts_of_an_instant_that_come_apart_are_there_once() {
    let server = IndexServer::start();
    let mut site = Site::new();
    let user = "metrics = [\"cpu_user\"]\n";
    site.store(&samples(0..2));
    site.apply(&text(&server, user));
    site.settle();
    // An earlier position, and now all metrics: a part of each document is there.
    let positions = {
        site = site.restart();
        let now = fs::read(site.path(POSITIONS)).unwrap();
        String::from_utf8(now).unwrap()
    };
    assert!(positions.contains("es"));
    let of_output = format!(
        "{}\n[outputs.all]\nkind = \"elasticsearch\"\naddress = \"{}\"\nfrom = \"all\"\n",
        text(&server, user),
        server.address
    );
    server.rollover("jobmeter");
    site.apply(&of_output);
    site.settle();
    assert_eq!(counted(&server.documents()), expected(&samples(0..2)));
    // Another value of a series at an instant that it has, and one that it has already.
    site.store(&[(spec("n1", "cpu_user"), 1, 0.75), (spec("n1", "cpu_idle"), 1, 0.5)]);
    site.settle();
    let all = [samples(0..2), vec![(spec("n1", "cpu_user"), 1, 0.75)]].concat();
    assert_eq!(counted(&server.documents()), expected(&all));
}

#[test]
fn requests_that_are_too_large_are_divided() {
    let server = IndexServer::start();
    server.state().bytes_max = Some(1000);
    let mut site = Site::new();
    let wide: Vec<(Spec, i64, f64)> = (0..40)
        .map(|number| {
            (spec("n1", Box::leak(format!("wide_{number:030}").into_boxed_str())), 1, 1.0)
        })
        .collect();
    site.store(&[samples(0..40), wide].concat());
    site.apply(&text(&server, ""));
    site.settle();
    assert_eq!(counted(&server.documents()), expected(&samples(0..40)));
    let aside = &site.outputs.status()[0].set_aside;
    assert!(aside.items == 1 && aside.message.as_ref().unwrap().contains("413"), "{aside:?}");
}

#[test]
fn a_check_finds_what_contradicts_itself() {
    let site = Site::new();
    let check = |text: &str| {
        let found = outputs::check(&site.configs(text)[0]);
        found.into_iter().map(|(key, what)| format!("{key}: {what}")).collect::<Vec<_>>().join("\n")
    };
    let base = "[outputs.elasticsearch]\naddress = \"https://es:9200\"\n";
    assert_eq!(check(base), "");
    for (more, what) in [
        ("layout = \"colmet\"\n", "elasticsearch.cluster: "),
        ("auth = \"basic\"\n", "auth_file: `auth = \"basic\"` needs `auth_file`"),
        ("auth_file = \"a\"\n", "auth: `auth_file` needs `auth`"),
        ("auth = \"basic\"\nauth_file = \"/nothing\"\n", "auth_file: /nothing: No such file"),
        ("cert = \"a\"\n", "need each other"),
        ("ca = \"/nothing\"\n", "ca: /nothing: "),
    ] {
        let found = check(&format!("{base}{more}"));
        assert!(found.contains(what), "{more}: {found}");
    }
    assert!(check("[outputs.elasticsearch]\n").contains("it needs `address`"));
}
