//! Tests of what the server remembers of agents.

use super::*;
use axum::http::HeaderName;

fn node() -> Node {
    Node {
        device: "n1".to_owned(),
        alive: true,
        stopped: false,
        conflict: false,
        last_seen: None,
        period_seconds: None,
        clock_offset_seconds: Some(-9.0),
        agent_version: None,
        config_generation: None,
        config_rejected: None,
        source_errors: Vec::new(),
        sources_restricted: Vec::new(),
        series: 0,
        jobs: Vec::new(),
        cpu_cores_used: None,
        cpu_cores: None,
        memory_used_bytes: None,
        memory_bytes: None,
    }
}

#[test]
fn the_latest_report_of_an_agent() {
    let (agents, n1) = (Agents::default(), Origin::new("n1").unwrap());
    let report_of = |headers: &[(&'static str, &str)]| {
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
        agents.met(&n1, &headers.collect(), Timestamp(10_000_000));
        let mut node = node();
        agents.add_status(&mut node, Timestamp(0));
        (node.agent_version, node.clock_offset_seconds)
    };
    let version = |text: &str| Some(text.to_owned());
    let all = [("user-agent", "jobmeter-agent/0.1.0"), (NOW, "13500000")];
    assert_eq!(report_of(&all), (version("0.1.0"), Some(3.5)));
    assert_eq!(report_of(&[("user-agent", "curl")]), (version("curl"), Some(-9.0)));
    assert_eq!(report_of(&[(NOW, "x")]), (None, Some(-9.0)));
    let far_behind = [(NOW, "-9223372036854775808")];
    assert_eq!(report_of(&far_behind).1, Some(-9.0), "a single request may have waited");
    assert_eq!(report_of(&far_behind).1, Some(-9_223_372_036_854.775));
    // A request delayed by 4 s during the server's startup does not change the offset.
    assert_eq!(report_of(&[(NOW, "10000000")]).1, Some(0.0));
    assert_eq!(report_of(&[(NOW, "6000000")]).1, Some(0.0));
}

#[test]
fn an_agent_reports_its_shutdown_and_what_its_sources_lack() {
    let (agents, n1) = (Agents::default(), Origin::new("n1").unwrap());
    let report_of = |name: &'static str, value: &'static str| {
        let headers = [(HeaderName::from_static(name), value.parse().unwrap())];
        agents.met(&n1, &headers.into_iter().collect(), Timestamp(0));
        let mut node = node();
        agents.add_status(&mut node, Timestamp(0));
        (node.alive, node.stopped, node.source_errors)
    };
    let (alive, stopped, source_errors) =
        report_of(SOURCES, "perf denied: counters; grant CAP_PERFMON | exec broken: a: b | x");
    assert_eq!((alive, stopped, source_errors.len()), (true, false, 2));
    assert_eq!((&*source_errors[0].source, &*source_errors[0].state), ("perf", "denied"));
    assert_eq!((&*source_errors[1].source, &*source_errors[1].reason), ("exec", "a: b"));
    assert_eq!(report_of(STOP, "1"), (false, true, Vec::new()));
    assert_eq!(report_of(NOW, "1"), (true, false, Vec::new()), "it is back");
}

#[test]
fn what_an_agent_does_not_read_and_why() {
    let (agents, n1) = (Agents::default(), Origin::new("n1").unwrap());
    let report_of = |value: &'static str| {
        let headers = [(HeaderName::from_static(UNREAD), value.parse().unwrap())];
        agents.met(&n1, &headers.into_iter().collect(), Timestamp(0));
        let mut node = node();
        agents.add_status(&mut node, Timestamp(0));
        let one = |it: RestrictedSource| format!("{} {} {:?}", it.source, it.reason, it.optional);
        node.sources_restricted.into_iter().map(one).collect::<Vec<_>>()
    };
    let text =
        "load file | ipmi server | process optional process_io_(a|b).* x{1,3} | x | y later | ";
    assert_eq!(
        report_of(text),
        ["load file []", "ipmi server []", r#"process optional ["process_io_(a|b).*", "x{1,3}"]"#]
    );
    assert_eq!(report_of(""), [""; 0], "all is read again");
}

#[test]
fn that_an_agent_ends_is_news_once_and_known_from_before() {
    let origin = |name: &str| Origin::new(name).unwrap();
    let agents = Agents::stopped_before(vec![origin("n1")]);
    let mut before = node();
    agents.add_status(&mut before, Timestamp(0));
    assert_eq!((before.alive, before.stopped), (false, true));
    let ends: HeaderMap =
        [(HeaderName::from_static(STOP), "1".parse().unwrap())].into_iter().collect();
    let runs = HeaderMap::new();
    let met = |name: &str, headers| agents.met(&origin(name), headers, Timestamp(0));
    assert_eq!((met("n1", &ends), met("n1", &runs)), (None, Some(false)));
    assert_eq!((met("n1", &runs), met("n2", &ends)), (None, Some(true)));
    assert_eq!((met("n2", &ends), met("n3", &runs)), (None, None));
}

#[test]
fn a_node_is_silent_after_three_of_the_last_reported_periods() {
    let (agents, n1) = (Agents::default(), Origin::new("n1").unwrap());
    let alive = |wait: &'static str, seconds: i64| {
        let headers = [(HeaderName::from_static(WAIT), wait.parse().unwrap())];
        agents.met(&n1, &headers.into_iter().collect(), Timestamp(0));
        // Its batches came once a second until now.
        let mut node = Node { last_seen: Some(0.0), period_seconds: Some(1.0), ..node() };
        query::judge(&mut node, Timestamp::from_seconds(seconds));
        agents.add_status(&mut node, Timestamp::from_seconds(seconds));
        (node.alive, node.period_seconds)
    };
    assert_eq!(alive("20000000", 60), (true, Some(20.0)));
    assert_eq!(alive("20000000", 61), (false, Some(20.0)));
    assert_eq!(alive("300000000", 900), (true, Some(300.0)));
    let counted = |second| {
        let all = NodeList::new("n[1-9]").unwrap();
        let AgentCounts { known, reporting } =
            agents.counted(&all, Timestamp::from_seconds(second));
        (known, reporting)
    };
    assert_eq!((counted(900), counted(901)), ((1, 1), (1, 0)));
    for none in ["0", "-5", "x", "90000000000"] {
        assert_eq!(alive(none, 6), (true, Some(1.0)), "{none}");
        assert_eq!(alive(none, 7), (false, Some(1.0)), "{none}");
    }
}

#[test]
fn the_last_error_of_a_source_is_remembered_when_it_is_over() {
    let (agents, n1) = (Agents::default(), Origin::new("n1").unwrap());
    let report = |second: i64, text: Option<&str>| {
        let header = |text: &str| (HeaderName::from_static(SOURCES), text.parse().unwrap());
        let at = Timestamp::from_seconds(second);
        agents.met(&n1, &text.map(header).into_iter().collect(), at);
    };
    let last = |source: &str| {
        let last = agents.last_error("n1", source)?;
        Some((last.error.state, last.error.reason, last.at.seconds()))
    };
    let report_of = |why: &str, at: f64| Some(("broken".to_owned(), why.to_owned(), at));
    report(1, Some("exec broken: a"));
    report(2, Some("exec broken: a"));
    assert_eq!(last("exec"), report_of("a", 2.0), "it lasts");
    report(3, Some("exec broken: b | perf broken: c"));
    assert_eq!((last("exec"), last("perf")), (report_of("b", 3.0), report_of("c", 3.0)));
    report(4, None);
    report(5, None);
    assert_eq!(
        (last("exec"), last("perf"), last("cpu")),
        (report_of("b", 3.0), report_of("c", 3.0), None)
    );
    for round in 0..100 {
        report(round, Some(&format!("s{round} off: x")));
    }
    assert_eq!(agents.known.lock().unwrap()[&n1].ended.len(), SOURCES_MAX);
}

#[test]
fn what_an_agent_took_of_its_settings() {
    let (agents, n1) = (Agents::default(), Origin::new("n1").unwrap());
    let report_of = |generation: &'static str, rejected: Option<&str>| {
        let mut headers = HeaderMap::new();
        headers.insert(GENERATION, generation.parse().unwrap());
        if let Some(rejected) = rejected {
            headers.insert(REJECTED, rejected.parse().unwrap());
        }
        agents.met(&n1, &headers, Timestamp(0));
        let mut node = node();
        agents.add_status(&mut node, Timestamp(0));
        (node.config_generation, node.config_rejected)
    };
    let why = "sources.disk.period_ms: 10ms is below 1s".to_owned();
    assert_eq!(report_of("3", Some(&why)), (Some(3), Some(why)));
    let long = "x".repeat(REJECTED_CHARS_MAX + 1);
    assert_eq!(report_of("3", Some(&long)).1, Some("x".repeat(REJECTED_CHARS_MAX)));
    assert_eq!(report_of("4", None), (Some(4), None));
    assert_eq!(report_of("-1", None), (None, None));
}

#[test]
fn silent_agents_are_evicted_for_others_and_reporting_ones_never() {
    let (agents, mut known) = (Agents::default(), HashMap::new());
    let at = Timestamp::from_seconds;
    let origin = |n: i64| Origin::new(&format!("n{n:03}")).unwrap();
    // Twenty agents that reported one second after the other, each with a batch every 10 s.
    for n in 0..20 {
        known.insert(
            origin(n),
            Agent { seen: at(n), wait_us: Some(10_000_000), ..Agent::default() },
        );
    }
    let counts = |agents: &Agents| (agents.evicted.get(), agents.not_remembered.get());
    assert!(agents.make_space(&mut known, 21, at(20)), "there is room");
    assert!(!agents.make_space(&mut known, 20, at(20)), "all report");
    // n000 and n001 are silent since 30 s after their latest request.
    assert!(!agents.make_space(&mut known, 20, at(29)), "searched a moment ago");
    assert!(agents.make_space(&mut known, 20, at(32)));
    assert_eq!((known.len(), counts(&agents)), (19, (1, 0)));
    assert!(!known.contains_key(&origin(0)), "the longest silent");
    // An agent that stopped gives way, too.
    known.insert(origin(0), Agent { stopped: true, seen: at(32), ..Agent::default() });
    assert!(agents.make_space(&mut known, 20, at(32)) && !known.contains_key(&origin(1)));
    assert!(agents.make_space(&mut known, 19, at(32)) && !known.contains_key(&origin(0)));
    // The table itself: whoever finds no room is counted.
    *agents.known.lock().unwrap() =
        (0..100_000).map(|n| (origin(n), Agent { seen: at(60), ..Agent::default() })).collect();
    assert_eq!(agents.met(&origin(100_000), &HeaderMap::new(), at(60)), None);
    assert_eq!(counts(&agents), (3, 1));
    agents.met(&origin(100_000), &HeaderMap::new(), at(90_000));
    assert_eq!(counts(&agents), (3 + 1563, 1));
}
