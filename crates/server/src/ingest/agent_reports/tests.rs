//! Tests of what the server remembers of agents.

use super::*;
use model::setting::{RejectionCode, SourceState, UnreadReason};

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
        reported_by: None,
        config_generation: None,
        config_rejected: Vec::new(),
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

/// A request with this status.
fn with(status: AgentStatus) -> Reported {
    Reported { version: None, status: Some(status) }
}

fn source(source: &str, state: SourceState, reason: &str) -> SourceStatus {
    SourceStatus { source: source.to_owned(), state, reason: reason.to_owned() }
}

#[test]
fn the_latest_report_of_an_agent() {
    let (agents, n1) = (Agents::default(), Origin::new("n1").unwrap());
    let report_of = |program: Option<&str>, now: Option<i64>| {
        let mut headers = HeaderMap::new();
        if let Some(program) = program {
            headers.insert(header::USER_AGENT, program.parse().unwrap());
        }
        if let Some(now) = now {
            let status = AgentStatus { now: Timestamp(now), ..AgentStatus::default() };
            headers.insert(STATUS_HEADER, wire::encode_status(&status).parse().unwrap());
        }
        agents.met(&n1, &agents.reported(&headers), Timestamp(10_000_000));
        let mut node = node();
        agents.add_status(&mut node, Timestamp(0));
        (node.agent_version, node.clock_offset_seconds)
    };
    let version = |text: &str| Some(text.to_owned());
    let all = report_of(Some("jobmeter-agent/0.1.0"), Some(13_500_000));
    assert_eq!(all, (version("0.1.0"), Some(3.5)));
    assert_eq!(report_of(Some("curl"), None), (version("curl"), Some(-9.0)));
    let far_behind = || report_of(None, Some(i64::MIN));
    assert_eq!(far_behind().1, Some(-9.0), "a single request may have waited");
    assert_eq!(far_behind().1, Some(-9_223_372_036_854.775));
    // A request delayed by 4 s during the server's startup does not change the offset.
    assert_eq!(report_of(None, Some(10_000_000)).1, Some(0.0));
    assert_eq!(report_of(None, Some(6_000_000)).1, Some(0.0));
    let mut headers = HeaderMap::new();
    headers.insert(STATUS_HEADER, "?".parse().unwrap());
    assert!(agents.reported(&headers).status.is_none());
    assert_eq!((agents.malformed.get(), agents.cut.get()), (1, 0));
    let cut = AgentStatus { cut: 7, ..AgentStatus::default() };
    headers.insert(STATUS_HEADER, wire::encode_status(&cut).parse().unwrap());
    agents.reported(&headers);
    assert_eq!((agents.malformed.get(), agents.cut.get()), (1, 7));
}

#[test]
fn an_agent_reports_its_shutdown_and_what_its_sources_lack() {
    let (agents, n1) = (Agents::default(), Origin::new("n1").unwrap());
    let report_of = |status: AgentStatus| {
        agents.met(&n1, &with(status), Timestamp(0));
        let mut node = node();
        agents.add_status(&mut node, Timestamp(0));
        (node.alive, node.stopped, node.source_errors)
    };
    let sources = vec![
        source("perf", SourceState::Denied, "counters; grant CAP_PERFMON"),
        source("exec", SourceState::Broken, "a: b | c"),
    ];
    let (alive, stopped, errors) = report_of(AgentStatus { sources, ..AgentStatus::default() });
    assert_eq!((alive, stopped, errors.len()), (true, false, 2));
    assert_eq!((&*errors[0].source, &*errors[0].state), ("perf", "denied"));
    assert_eq!((&*errors[1].source, &*errors[1].reason), ("exec", "a: b | c"));
    let stops = AgentStatus { stops: true, ..AgentStatus::default() };
    assert_eq!(report_of(stops), (false, true, Vec::new()));
    assert_eq!(report_of(AgentStatus::default()), (true, false, Vec::new()), "it is back");
}

#[test]
fn what_an_agent_does_not_read_and_why() {
    let (agents, n1) = (Agents::default(), Origin::new("n1").unwrap());
    let report_of = |unread: Vec<UnreadSource>| {
        agents.met(&n1, &with(AgentStatus { unread, ..AgentStatus::default() }), Timestamp(0));
        let mut node = node();
        agents.add_status(&mut node, Timestamp(0));
        let one = |it: RestrictedSource| format!("{} {} {:?}", it.source, it.reason, it.optional);
        node.sources_restricted.into_iter().map(one).collect::<Vec<_>>()
    };
    let unread = |source: &str, reason, optional: &[&str]| UnreadSource {
        source: source.to_owned(),
        reason,
        optional: optional.iter().map(|text| (*text).to_owned()).collect(),
    };
    let all = vec![
        unread("load", UnreadReason::File, &[]),
        unread("ipmi", UnreadReason::Server, &[]),
        unread("process", UnreadReason::Optional, &["process_io_(a|b).*", "x{1,3}"]),
    ];
    assert_eq!(
        report_of(all),
        ["load file []", "ipmi server []", r#"process optional ["process_io_(a|b).*", "x{1,3}"]"#]
    );
    assert_eq!(report_of(Vec::new()), [""; 0], "all is read again");
}

#[test]
fn that_an_agent_ends_is_news_once_and_known_from_before() {
    let origin = |name: &str| Origin::new(name).unwrap();
    let agents = Agents::stopped_before(vec![origin("n1")]);
    let mut before = node();
    agents.add_status(&mut before, Timestamp(0));
    assert_eq!((before.alive, before.stopped), (false, true));
    let ends = with(AgentStatus { stops: true, ..AgentStatus::default() });
    let runs = Reported::default();
    let met = |name: &str, reported| agents.met(&origin(name), reported, Timestamp(0));
    assert_eq!((met("n1", &ends), met("n1", &runs)), (None, Some(false)));
    assert_eq!((met("n1", &runs), met("n2", &ends)), (None, Some(true)));
    assert_eq!((met("n2", &ends), met("n3", &runs)), (None, None));
}

#[test]
fn a_node_is_silent_after_three_of_the_last_reported_periods() {
    let (agents, n1) = (Agents::default(), Origin::new("n1").unwrap());
    let alive = |wait_us: u64, seconds: i64| {
        agents.met(&n1, &with(AgentStatus { wait_us, ..AgentStatus::default() }), Timestamp(0));
        // Its batches came once a second until now.
        let mut node = Node { last_seen: Some(0.0), period_seconds: Some(1.0), ..node() };
        query::judge(&mut node, Timestamp::from_seconds(seconds));
        agents.add_status(&mut node, Timestamp::from_seconds(seconds));
        (node.alive, node.period_seconds)
    };
    assert_eq!(alive(20_000_000, 60), (true, Some(20.0)));
    assert_eq!(alive(20_000_000, 61), (false, Some(20.0)));
    assert_eq!(alive(300_000_000, 900), (true, Some(300.0)));
    let counted = |second| {
        let all = NodeList::new("n[1-9]").unwrap();
        let AgentCounts { known, reporting } =
            agents.counted(&all, Timestamp::from_seconds(second));
        (known, reporting)
    };
    assert_eq!((counted(900), counted(901)), ((1, 1), (1, 0)));
    for none in [0, 90_000_000_000, u64::MAX] {
        assert_eq!(alive(none, 6), (true, Some(1.0)), "{none}");
        assert_eq!(alive(none, 7), (false, Some(1.0)), "{none}");
    }
}

#[test]
fn the_last_error_of_a_source_is_remembered_when_it_is_over() {
    let (agents, n1) = (Agents::default(), Origin::new("n1").unwrap());
    let report = |second: i64, sources: &[SourceStatus]| {
        let status = AgentStatus { sources: sources.to_vec(), ..AgentStatus::default() };
        agents.met(&n1, &with(status), Timestamp::from_seconds(second));
    };
    let broken = |name: &str, why: &str| source(name, SourceState::Broken, why);
    let last = |source: &str| {
        let last = agents.last_error("n1", source)?;
        Some((last.error.state, last.error.reason, last.at.seconds()))
    };
    let report_of = |why: &str, at: f64| Some((SourceState::Broken, why.to_owned(), at));
    report(1, &[broken("exec", "a")]);
    report(2, &[broken("exec", "a")]);
    assert_eq!(last("exec"), report_of("a", 2.0), "it lasts");
    report(3, &[broken("exec", "b"), broken("perf", "c")]);
    assert_eq!((last("exec"), last("perf")), (report_of("b", 3.0), report_of("c", 3.0)));
    report(4, &[]);
    report(5, &[]);
    assert_eq!(
        (last("exec"), last("perf"), last("cpu")),
        (report_of("b", 3.0), report_of("c", 3.0), None)
    );
    for round in 0..100 {
        report(round, &[source(&format!("s{round}"), SourceState::Off, "x")]);
    }
    assert_eq!(agents.known.lock()[&n1].ended.len(), SOURCES_MAX);
}

#[test]
fn what_an_agent_took_of_its_settings() {
    let (agents, n1) = (Agents::default(), Origin::new("n1").unwrap());
    let report_of = |reported: Reported| {
        agents.met(&n1, &reported, Timestamp(0));
        let mut node = node();
        agents.add_status(&mut node, Timestamp(0));
        (node.config_generation, node.config_rejected)
    };
    let applies =
        |generation, rejected| with(AgentStatus { generation, rejected, ..AgentStatus::default() });
    let (setting, reason) = ("sources.disk.period".to_owned(), "10ms is below 1s".to_owned());
    let (code, until) = (RejectionCode::NotAllowed, None);
    let rejection = Rejection { setting: setting.clone(), code, reason: reason.clone(), until };
    let shown = SettingRejection { setting, code: "not_allowed".to_owned(), reason };
    assert_eq!(report_of(applies(3, vec![rejection])), (Some(3), vec![shown]));
    assert_eq!(report_of(applies(4, Vec::new())), (Some(4), Vec::new()));
    assert_eq!(report_of(Reported::default()), (None, Vec::new()));
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
    *agents.known.lock() =
        (0..100_000).map(|n| (origin(n), Agent { seen: at(60), ..Agent::default() })).collect();
    assert_eq!(agents.met(&origin(100_000), &Reported::default(), at(60)), None);
    assert_eq!(counts(&agents), (3, 1));
    agents.met(&origin(100_000), &Reported::default(), at(90_000));
    assert_eq!(counts(&agents), (3 + 1563, 1));
}
