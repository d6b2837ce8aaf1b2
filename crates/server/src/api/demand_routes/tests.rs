//! Tests of the demand routes.

use super::*;

#[test]
fn a_change_in_the_words_of_the_agents_files() {
    let set = r#"{"nodes": "n1", "for_seconds": 60, "sources": {
            "perf": {"enabled": true, "period_seconds": 0.1, "events": ["cache_ll", "a/b=\"c\"/"]},
            "load": {"period_seconds": 90}
        }, "bursts": {"cpu": {"period_seconds": 0.25, "keep_seconds": 60, "flush_on": ["job_end"]}}}"#;
    let entries = entries(&serde_json::from_str(set).unwrap()).unwrap();
    let lines: Vec<String> = entries.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "sources.load.period = \"90s\"",
            "sources.perf.enabled = true",
            "sources.perf.period = \"100ms\"",
            "sources.perf.events = [\"cache_ll\", \"a/b=\\\"c\\\"/\"]",
            "burst.cpu.period = \"250ms\"",
            "burst.cpu.keep = \"60s\"",
            "burst.cpu.flush_on = [\"job_end\"]",
        ]
    );
}

#[test]
fn a_rejection_is_shown_for_its_own_change_alone() {
    let text = "until = \"2026-01-06T14:00:00Z\"\n[sources.load]\nperiod = \"1s\"\nenabled = true\n\
                [burst.cpu]\nperiod = \"1s\"\nuntil = 5\n[[promote]]\nmetric = \"x\"\n";
    let why = "server:1:9: shortened to 1970-01-01T01:00:00Z: `remote.time_max` is 1h; server:3:10: `remote.allow` has no \
               `periods`; server: `burst.exec`: `exec` has no burst; server:7:9: it ends: a; b; \
               server:9:10: `remote.allow` has no `promotions`";
    let found = http_errors(why, text);
    let keys: Vec<&str> = found.iter().map(|(key, _)| &**key).collect();
    let expected =
        ["until", "sources.load.period", "burst.exec", "burst.cpu.until", "promote.metric"];
    assert_eq!(keys, expected);
    assert_eq!(found[1].1, "`remote.allow` has no `periods`");
    assert_eq!(found[3].1, "it ends: a; b");
    assert!(shortened(&found[0].1).is_some() && shortened(&found[1].1).is_none());
    let change = |section: &str, key: &str| {
        let entry = Entry { section: section.into(), key: key.into(), value: "1".into() };
        let nodes = NodeList::new("n1").unwrap();
        let (made, until) = (Timestamp(0), Timestamp(1));
        Change { number: 1, nodes, entries: vec![entry], made, until, by: "root".into() }
    };
    let of = |change: Change| {
        found.iter().filter(|one| concerns(&change, &one.0)).map(|one| &*one.0).collect::<Vec<_>>()
    };
    assert_eq!(of(change("sources.load", "period")), ["until", "sources.load.period"]);
    assert_eq!(of(change("sources.memory", "period")), ["until"]);
    assert_eq!(of(change("burst.cpu", "keep")), ["burst.cpu.until"]);
    assert_eq!(of(change("burst.exec", "keep")), ["burst.exec"]);
}

#[test]
fn what_cannot_be_a_setting_is_rejected() {
    for more in [
        "",
        r#", "sources": {"load": {}}"#,
        r#", "sources": {"a.b": {"enabled": true}}"#,
        r#", "sources": {"load": {"period_seconds": 0}}"#,
        r#", "sources": {"load": {"events": ["a b"]}}"#,
        r#", "bursts": {"cpu": {"period_seconds": 0.1, "keep_seconds": 1e9}}"#,
    ] {
        let text = format!("{{\"nodes\": \"n1\", \"for_seconds\": 60{more}}}");
        let set: Set = serde_json::from_str(&text).unwrap();
        assert_eq!(entries(&set).unwrap_err().status, 400, "{text}");
    }
    let now = Timestamp(0);
    assert_eq!(ends("x", 1.5, SECONDS_MAX, now).unwrap(), Timestamp(1_500_000));
    for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e12] {
        assert!(ends("x", seconds, SECONDS_MAX, now).is_err(), "{seconds}");
    }
}
