//! Tests of the demand routes.

use super::*;

#[test]
fn a_change_in_the_words_of_the_agents_files() {
    let set = r#"{"nodes": "n1", "for_seconds": 60, "sources": {
            "perf": {"enabled": true, "period_seconds": 0.1, "events": ["cache_ll", "a/b=\"c\"/"]},
            "load": {"period_seconds": 90}
        }, "bursts": {"cpu": {"period_seconds": 0.25, "keep_seconds": 60, "flush_on": ["job_end"]}}}"#;
    let settings = settings_of(&serde_json::from_str(set).unwrap()).unwrap();
    assert_eq!(
        settings.lines(),
        [
            "burst.cpu.flush_on = [\"job_end\"]",
            "burst.cpu.keep = \"1m\"",
            "burst.cpu.period = \"250ms\"",
            "sources.load.period = \"90s\"",
            "sources.perf.enabled = true",
            "sources.perf.events = [\"cache_ll\", \"a/b=\\\"c\\\"/\"]",
            "sources.perf.period = \"100ms\"",
        ]
    );
    let shown = serde_json::to_value(changed_sources(&settings)).unwrap();
    let burst =
        serde_json::json!({"period_seconds": 0.25, "keep_seconds": 60.0, "flush_on": ["job_end"]});
    assert_eq!((&shown[0]["source"], &shown[0]["burst"]), (&"cpu".into(), &burst));
    assert_eq!((&shown[1]["source"], &shown[1]["period_seconds"]), (&"load".into(), &90.0.into()));
    let perf = &shown[2];
    assert_eq!((&perf["enabled"], &perf["period_seconds"]), (&true.into(), &0.1.into()));
    assert_eq!(
        (&perf["events"][0], &perf["burst"]),
        (&"cache_ll".into(), &serde_json::Value::Null)
    );
}

#[test]
fn a_rejection_is_shown_for_its_own_change_alone() {
    let change = |set: &str| {
        let text = format!("{{\"nodes\": \"n1\", \"for_seconds\": 60, {set}}}");
        let settings = settings_of(&serde_json::from_str(&text).unwrap()).unwrap();
        let nodes = NodeList::new("n1").unwrap();
        let (made, until) = (Timestamp(0), Timestamp(1));
        Change { number: 1, nodes, settings, made, until, by: "root".into() }
    };
    let of = |set: &str| {
        let change = change(set);
        let all = [
            "",
            "sources.load",
            "sources.load.period",
            "sources.loading.period",
            "burst.cpu",
            "burst.cpu.until",
            "burst.disk",
            "promote.x",
        ];
        let rejection = |setting: &str| Rejection {
            setting: setting.to_owned(),
            code: RejectionCode::NotAllowed,
            reason: String::new(),
            until: None,
        };
        all.into_iter().filter(|one| concerns(&change, &rejection(one))).collect::<Vec<_>>()
    };
    let load = |value: &str| format!("\"sources\": {{\"load\": {{{value}}}}}");
    let want = ["", "sources.load", "sources.load.period"];
    assert_eq!(of(&load("\"period_seconds\": 1")), want);
    assert_eq!(of(&load("\"enabled\": true")), ["", "sources.load"]);
    let burst = |source: &str| {
        format!("\"bursts\": {{\"{source}\": {{\"period_seconds\": 1, \"keep_seconds\": 9}}}}")
    };
    assert_eq!(of(&burst("cpu")), ["", "burst.cpu", "burst.cpu.until"]);
    assert_eq!(of(&burst("load")), [""]);
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
        assert_eq!(settings_of(&set).unwrap_err().status, 400, "{text}");
    }
    let now = Timestamp(0);
    assert_eq!(ends("x", 1.5, SECONDS_MAX, now).unwrap(), Timestamp(1_500_000));
    for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e12] {
        assert!(ends("x", seconds, SECONDS_MAX, now).is_err(), "{seconds}");
    }
}
