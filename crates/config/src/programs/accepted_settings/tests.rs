//! Tests of changes that the server requests.

use super::*;
use model::setting::OptionSpec;
use proptest::prelude::*;

const MINUTE: Option<Timestamp> = Some(Timestamp::from_seconds(60));

static OPTIONS: [OptionSpec; 1] =
    [OptionSpec { name: "enabled_too", kind: Kind::Switch, default: "true", help: "" }];

static COMMAND: [OptionSpec; 1] =
    [OptionSpec { name: "command", kind: Kind::Command("WORD"), default: "", help: "" }];

fn words_known(text: &str) -> Result<(), String> {
    if text.contains('?') { Err("`?` is no event".to_owned()) } else { Ok(()) }
}

static EVENTS: [OptionSpec; 1] = [OptionSpec {
    name: "events",
    kind: Kind::ListOf("EVENT", words_known),
    default: "",
    help: "",
}];

fn usual() -> BurstSettings {
    BurstSettings {
        sources: Vec::new(),
        period: Duration::from_millis(500),
        keep: Duration::from_secs(60),
        flush_on: FlushOn { job_start: false, job_end: true },
        bytes_max: crate::Bytes(1 << 20),
    }
}

fn source(name: &'static str) -> SourceSettings {
    SourceSettings { name, help: "", period: None, options: &OPTIONS }
}

fn bounds(allow: &[&str]) -> RemoteSettings {
    RemoteSettings {
        allow: allow.iter().map(|word| (*word).to_owned()).collect(),
        period_min: Duration::from_millis(100),
        time_max: Duration::from_secs(3600),
    }
}

fn sources() -> Vec<SourceSettings> {
    let run = SourceSettings { options: &COMMAND, ..source("run") };
    let perf = SourceSettings { options: &EVENTS, ..source("perf") };
    let more = ["cpu", "disk", "memory", "network"].map(source);
    [[source("load"), source("cgroup"), run, perf], more].concat()
}

fn accept(settings: &NodeSettings, allow: &[&str]) -> RemoteChange {
    let (now, mut received) = (Timestamp(0), FirstReceived::default());
    accept_settings(settings, now, &mut received, &bounds(allow), &usual(), &sources())
}

/// Settings, each with its section, and an end of all sections.
fn settings(entries: &[(&str, &str, SettingValue)], until: Option<Timestamp>) -> NodeSettings {
    let mut settings = NodeSettings::default();
    for (section, key, value) in entries {
        let (part, source) = section.split_once('.').unwrap();
        let part = if part == "burst" { &mut settings.bursts } else { &mut settings.sources };
        let changed = part.entry(source.into()).or_default();
        changed.until = until;
        changed.values.insert((*key).into(), value.clone());
    }
    settings
}

const fn on(is_on: bool) -> SettingValue {
    SettingValue::Switch(is_on)
}

const fn ms(ms: u64) -> SettingValue {
    SettingValue::Duration(Duration::from_millis(ms))
}

fn list(texts: &[&str]) -> SettingValue {
    SettingValue::List(texts.iter().map(|text| (*text).into()).collect())
}

fn rejected(change: &RemoteChange) -> Vec<(&str, RejectionCode)> {
    change.rejected.iter().map(|one| (&*one.setting, one.code)).collect()
}

const NOT_ALLOWED: RejectionCode = RejectionCode::NotAllowed;
const UNKNOWN: RejectionCode = RejectionCode::Unknown;
const INVALID: RejectionCode = RejectionCode::Invalid;

#[test]
fn allowed_changes_are_accepted_for_a_time() {
    let load = [("sources.load", "enabled", on(false)), ("sources.load", "period", ms(1000))];
    let until = Timestamp::from_seconds(600);
    let change = accept(&settings(&load, Some(until)), &["sources", "periods"]);
    assert_eq!(change.rejected, []);
    let (enabled, period) = (Some(false), Some(Duration::from_secs(1)));
    assert_eq!(change.sources["load"], SourceChange { enabled, period, events: None, until });
    let far = settings(&load[..1], Some(Timestamp::from_seconds(1_893_456_000)));
    let change = accept(&far, &["sources"]);
    let hour = Timestamp::from_seconds(3600);
    assert_eq!(change.sources["load"].until, hour);
    let shortened = Rejection {
        setting: "sources.load".to_owned(),
        code: RejectionCode::Shortened,
        reason: "`remote.time_max` is 1h".to_owned(),
        until: Some(hour),
    };
    assert_eq!(change.rejected, [shortened]);
    assert_eq!(accept(&settings(&load, None), &["sources"]).sources["load"].until, hour);
}

#[test]
fn each_entry_is_rejected_by_itself() {
    let wanted = [
        ("sources.load", "period", ms(1)),
        ("sources.cgroup", "enabled", on(true)),
        ("sources.cgroup", "period", ms(1000)),
        ("sources.cgroup", "enabled_too", on(false)),
        ("sources.disk", "period", SettingValue::Text("1s".into())),
        ("sources.lod", "enabled", on(false)),
    ];
    let change = accept(&settings(&wanted, None), &["periods"]);
    assert_eq!(change.sources.len(), 1);
    assert_eq!(change.sources["cgroup"].period, Some(Duration::from_secs(1)));
    assert_eq!(change.sources["cgroup"].enabled, None);
    let mut codes = rejected(&change);
    codes.sort_unstable();
    let want = [
        ("sources.cgroup.enabled", NOT_ALLOWED),
        ("sources.cgroup.enabled_too", UNKNOWN),
        ("sources.disk.period", INVALID),
        ("sources.load.period", NOT_ALLOWED),
        ("sources.lod", UNKNOWN),
    ];
    assert_eq!(codes, want, "{change:?}");
    let why: Vec<String> = change.rejected.iter().map(ToString::to_string).collect();
    for part in ["shorter than", "did you mean `load`?", "no `sources`"] {
        assert!(why.iter().any(|why| why.contains(part)), "{part}: {why:?}");
    }
}

#[test]
fn the_server_cannot_change_a_source_that_runs_a_program() {
    let wanted = [
        ("sources.run", "enabled", on(true)),
        ("sources.run", "period", ms(1000)),
        ("sources.run", "command", list(&["/bin/sh"])),
    ];
    let change = accept(&settings(&wanted, None), &["sources", "periods"]);
    assert!(change.sources.is_empty(), "{change:?}");
    assert!(change.rejected.len() == 3 && change.rejected.iter().all(|it| it.code == NOT_ALLOWED));
}

#[test]
fn the_node_decides_whether_perf_events_may_change() {
    let events = ("sources.perf", "events", list(&["cache_ll", "faults"]));
    let wanted = settings(&[("sources.perf", "enabled", on(true)), events], None);
    let change = accept(&wanted, &["sources", "events"]);
    assert_eq!(change.rejected, []);
    assert_eq!(change.sources["perf"].events.as_deref(), Some("cache_ll,faults"));
    let change = accept(&wanted, &["sources"]);
    assert_eq!(rejected(&change), [("sources.perf.events", NOT_ALLOWED)]);
    assert_eq!(change.sources["perf"].events, None);
    let wrong =
        [("sources.perf", "events", list(&["?"])), ("sources.load", "events", list(&["a"]))];
    let change = accept(&settings(&wrong, None), &["events"]);
    assert!(change.sources.is_empty(), "{change:?}");
    let want = [("sources.load.events", UNKNOWN), ("sources.perf.events", INVALID)];
    assert_eq!(rejected(&change), want);
    assert!(change.rejected[1].reason.contains("`?` is no event"), "{change:?}");
}

fn promotions(list: &[(&str, i64)]) -> NodeSettings {
    let one = |(metric, until): &(&str, i64)| ((*metric).into(), Timestamp::from_seconds(*until));
    NodeSettings { promotions: list.iter().map(one).collect(), ..NodeSettings::default() }
}

#[test]
fn each_promotion_ends_at_its_own_time() {
    let wanted = promotions(&[("perf_.*", 600), ("load_1m", 20), ("(", 20), ("z", 1_893_456_000)]);
    let mut change = accept(&wanted, &["promotions"]);
    let held = |change: &RemoteChange| {
        let all = change.promotions.iter();
        all.map(|one| (one.metric.as_str().to_owned(), one.until.0 / 1_000_000)).collect::<Vec<_>>()
    };
    let of = |name: &str, until| (name.to_owned(), until);
    assert_eq!(held(&change), [of("load_1m", 20), of("perf_.*", 600), of("z", 3600)]);
    let want = [("promote.(", INVALID), ("promote.z", RejectionCode::Shortened)];
    assert_eq!(rejected(&change), want);
    assert_eq!(change.next_end(), Some(Timestamp::from_seconds(20)));
    assert!(!change.expire(Timestamp::from_seconds(19)));
    assert!(change.expire(Timestamp::from_seconds(20)));
    assert_eq!(held(&change), [of("perf_.*", 600), of("z", 3600)]);
    let none = accept(&wanted, &["sources"]);
    assert!(none.promotions.is_empty() && none.rejected.len() == 4, "{none:?}");
}

#[test]
fn bursts_and_flushes() {
    let mut wanted = settings(
        &[
            ("burst.cpu", "period", ms(100)),
            ("burst.cpu", "flush_on", list(&["job_start"])),
            ("burst.disk", "period", ms(1)),
            ("burst.memory", "keep", ms(7_200_000)),
        ],
        MINUTE,
    );
    let far = Some(Timestamp::from_seconds(1_893_456_000));
    wanted.bursts.extend(settings(&[("burst.load", "keep", ms(10_000))], far).bursts);
    wanted.bursts.extend(settings(&[("burst.network", "period", ms(1000))], None).bursts);
    wanted.bursts.extend(settings(&[("burst.cgroup", "x", on(true))], MINUTE).bursts);
    let flush = |source: &str, number| FlushRequest { source: source.into(), number };
    wanted.flushes = vec![flush("cpu", 17), flush("no", 18)];
    let change = accept(&wanted, &["bursts"]);
    let (job_start, job_end) = (true, false);
    let cpu = Burst {
        period: Duration::from_millis(100),
        keep: Duration::from_secs(60),
        flush_on: FlushOn { job_start, job_end },
        until: Timestamp::from_seconds(60),
    };
    let load = Burst {
        period: Duration::from_millis(500),
        keep: Duration::from_secs(10),
        flush_on: FlushOn { job_start: false, job_end: true },
        until: Timestamp::from_seconds(3600),
    };
    let want = BTreeMap::from([("cpu".to_owned(), cpu), ("load".to_owned(), load)]);
    assert_eq!(change.bursts, want);
    assert_eq!(change.flushes, [("cpu".to_owned(), 17)]);
    let want = [
        ("burst.cgroup.x", INVALID),
        ("burst.disk.period", NOT_ALLOWED),
        ("burst.load", RejectionCode::Shortened),
        ("burst.memory.keep", INVALID),
        ("burst.network.until", INVALID),
        ("flush.no", UNKNOWN),
    ];
    assert_eq!(rejected(&change), want);
    assert!(accept(&wanted, &["sources"]).bursts.is_empty());
    let own = accept(&wanted, &["sources"]);
    assert_eq!(own.flushes.len(), 1, "the node's own burst can be flushed");
}

#[test]
fn limits_of_a_node() {
    let names: Vec<String> = (0..=PROMOTIONS_MAX).map(|n| format!("m{n:03}")).collect();
    let mut wanted = promotions(&names.iter().map(|name| (&**name, 60)).collect::<Vec<_>>());
    for name in ["load", "cgroup", "cpu", "disk", "memory"] {
        wanted.bursts.insert(name.into(), Override { until: MINUTE, ..Override::default() });
    }
    let flush = |number| FlushRequest { source: "cpu".into(), number };
    wanted.flushes = (0..=16).map(flush).collect();
    let change = accept(&wanted, &["promotions", "bursts"]);
    assert_eq!((change.promotions.len(), change.bursts.len()), (PROMOTIONS_MAX, BURSTS_MAX));
    assert_eq!(change.flushes.len(), FLUSHES_MAX);
    let limit = RejectionCode::Limit;
    let want = [("burst.memory", limit), ("promote.m064", limit), ("flush.cpu", limit)];
    assert_eq!(rejected(&change), want);
}

#[test]
fn expired_changes_are_not_applied() {
    let at = Timestamp::from_seconds(50);
    let mut wanted = settings(&[("sources.load", "enabled", on(false))], Some(at));
    wanted.promotions = promotions(&[("a", 50)]).promotions;
    let (bounds, mut received) = (bounds(&["sources", "promotions"]), FirstReceived::default());
    let change = accept_settings(&wanted, at, &mut received, &bounds, &usual(), &sources());
    assert!(change.sources.is_empty() && change.promotions.is_empty(), "{change:?}");
    assert_eq!((change.next_end(), change.rejected.len()), (None, 0));
}

fn any_value() -> impl Strategy<Value = SettingValue> {
    prop_oneof![
        any::<bool>().prop_map(on),
        any::<u64>().prop_map(SettingValue::Number),
        any::<u64>().prop_map(|us| SettingValue::Duration(Duration::from_micros(us))),
        ".{0,6}".prop_map(|text| SettingValue::Text(text.into())),
        proptest::collection::vec(".{0,6}".prop_map(Into::into), 0..3).prop_map(SettingValue::List),
    ]
}

proptest! {
    #[test]
    fn no_settings_panic(
        values in proptest::collection::vec(
            ("(sources|burst)\\.(cpu|perf|run|x)", "(enabled|period|events|keep|flush_on)", any_value()),
            0..20,
        ),
        until in proptest::option::of(any::<i64>().prop_map(Timestamp)),
        metric in "[a-z(*]{0,4}",
    ) {
        let entries: Vec<_> =
            values.iter().map(|(section, key, value)| (&**section, &**key, value.clone())).collect();
        let mut wanted = settings(&entries, until);
        wanted.promotions.insert(metric.into(), until.unwrap_or_default());
        accept(&wanted, &["promotions", "bursts", "events", "periods"]);
    }
}

/// The server sends every change again with each new generation, with a later end.
#[test]
fn a_change_that_the_server_sends_again_ends_as_at_first() {
    let day = Some(Timestamp::from_seconds(86_400));
    let load = ("sources.load", "period", ms(2000));
    let both = settings(&[load.clone(), ("burst.cpu", "keep", ms(60_000))], day);
    let (allowed, mut received) = (bounds(&["periods", "bursts"]), FirstReceived::default());
    let mut accept = |wanted: &NodeSettings, now: i64| {
        let now = Timestamp::from_seconds(now);
        accept_settings(wanted, now, &mut received, &allowed, &usual(), &sources())
    };
    let hour = Timestamp::from_seconds(3600);
    for now in [0, 1800, 3599] {
        let change = accept(&both, now);
        assert_eq!((change.sources["load"].until, change.bursts["cpu"].until), (hour, hour));
    }
    let ended = accept(&both, 3600);
    assert!(ended.sources.is_empty() && ended.bursts.is_empty(), "{ended:?}");
    // Withdrawn and requested again, or changed: a new change.
    accept(&NodeSettings::default(), 3700);
    let again = accept(&settings(&[load], day), 3800);
    assert_eq!(again.sources["load"].until, Timestamp::from_seconds(7400));
}
