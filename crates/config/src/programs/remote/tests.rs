//! Tests of changes that the server requests.

use super::*;
use model::setting::OptionSpec;

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

fn read(text: &str, allow: &[&str]) -> RemoteChange {
    let run = SourceSettings { options: &COMMAND, ..source("run") };
    let perf = SourceSettings { options: &EVENTS, ..source("perf") };
    let more = ["cpu", "disk", "memory", "network"].map(source);
    let sources = [[source("load"), source("cgroup"), run, perf], more].concat();
    read_remote(
        text.as_bytes(),
        Timestamp(0),
        &mut FirstReceived::default(),
        &bounds(allow),
        &usual(),
        &sources,
    )
}

#[test]
fn allowed_changes_are_accepted_for_a_time() {
    let text = "until = 1970-01-01T00:10:00Z\n[sources.load]\nenabled = false\nperiod = \"1s\"\n";
    let change = read(text, &["sources", "periods"]);
    assert_eq!(change.rejected, [""; 0]);
    let (enabled, period) = (Some(false), Some(Duration::from_secs(1)));
    let until = Timestamp::from_seconds(600);
    assert_eq!(change.sources["load"], SourceChange { enabled, period, events: None, until });
    let text = "until = \"2030-01-01\"\n[sources.load]\nenabled = false\n";
    let change = read(text, &["sources"]);
    assert_eq!(change.sources["load"].until, Timestamp::from_seconds(3600));
    assert_eq!(
        change.rejected,
        ["server:3:11: shortened to 1970-01-01T01:00:00+00:00: `remote.time_max` is 1h"]
    );
}

#[test]
fn each_entry_is_rejected_by_itself() {
    let text = "server = \"http://evil\"\n[sources.load]\nperiod = \"1ms\"\n[sources.cgroup]\n\
                enabled = true\nperiod = \"1s\"\nenabled_too = false\n[sources.lod]\nenabled = false\n";
    let change = read(text, &["periods"]);
    assert_eq!(change.sources.len(), 1);
    assert_eq!(change.sources["cgroup"].period, Some(Duration::from_secs(1)));
    assert_eq!(change.sources["cgroup"].enabled, None);
    assert_eq!(
        change.rejected,
        [
            "server:1:1: unknown key `server`",
            "server:7:1: unknown key `sources.cgroup.enabled_too`; did you mean \
             `sources.cgroup.enabled`?",
            "server:8:10: unknown key `sources.lod`; did you mean `sources.load`?",
            "server:3:10: shorter than `remote.period_min`",
            "server:5:11: `remote.allow` has no `sources`",
        ]
    );
}

#[test]
fn the_server_cannot_change_a_source_that_runs_a_program() {
    let text = "[sources.run]\nenabled = true\nperiod = \"1s\"\ncommand = [\"/bin/sh\"]\n";
    let change = read(text, &["sources", "periods"]);
    assert!(change.sources.is_empty(), "{change:?}");
    assert_eq!(change.rejected.len(), 3, "{change:?}");
    assert!(change.rejected[1].contains("only the node's own file"), "{change:?}");
}

#[test]
fn garbage_changes_nothing() {
    for text in [&b"\xff\xfe"[..], b"[[[", &[b'#'; TEXT_BYTES_MAX + 1]] {
        let change = read_remote(
            text,
            Timestamp(0),
            &mut FirstReceived::default(),
            &bounds(&["sources"]),
            &usual(),
            &[source("load")],
        );
        assert!(change.sources.is_empty() && !change.rejected.is_empty(), "{change:?}");
    }
}

#[test]
fn the_node_decides_whether_perf_events_may_change() {
    let text = "[sources.perf]\nenabled = true\nevents = [\"cache_ll\", \"faults\"]\n";
    let change = read(text, &["sources", "events"]);
    assert_eq!(change.rejected, [""; 0]);
    assert_eq!(change.sources["perf"].events.as_deref(), Some("cache_ll,faults"));
    let change = read(text, &["sources"]);
    assert_eq!(change.rejected, ["server:3:10: `remote.allow` has no `events`"]);
    assert_eq!(change.sources["perf"].events, None);
    let wrong = "[sources.perf]\nevents = [\"?\"]\n[sources.load]\nevents = [\"a\"]\n";
    let change = read(wrong, &["events"]);
    assert!(change.sources.is_empty(), "{change:?}");
    assert_eq!(change.rejected.len(), 2, "{change:?}");
    assert!(change.rejected.iter().any(|why| why.contains("`?` is no event")), "{change:?}");
}

#[test]
fn each_promotion_ends_at_its_own_time() {
    let text = "[[promote]]\nmetric = \"perf_.*\"\nuntil = \"1970-01-01T00:10:00Z\"\n\
                [[promote]]\nmetric = \"load_1m\"\nuntil = 20\n\
                [[promote]]\nmetric = \"(\"\nuntil = 20\n\
                [[promote]]\nmetric = \"x\"\n\
                [[promote]]\nuntil = 20\n\
                [[promote]]\nmetric = \"y\"\nuntil = \"soon\"\n\
                [[promote]]\nmetric = \"z\"\nuntil = \"2030-01-01\"\nwhy = \"so\"\n";
    let mut change = read(text, &["promotions"]);
    let held = |change: &RemoteChange| {
        let all = change.promotions.iter();
        all.map(|one| (one.metric.as_str().to_owned(), one.until.0 / 1_000_000)).collect::<Vec<_>>()
    };
    let of = |name: &str, until| (name.to_owned(), until);
    assert_eq!(held(&change), [of("perf_.*", 600), of("load_1m", 20), of("z", 3600)]);
    assert_eq!(change.rejected.len(), 6, "{:#?}", change.rejected);
    for part in [
        "shortened to 1970-01-01T01:00:00+00:00",
        "not a regular",
        "has no `until`",
        "without `metric`",
        "`soon`",
        "promote.6.why",
    ] {
        assert!(change.rejected.iter().any(|why| why.contains(part)), "{part}: {change:#?}");
    }
    assert_eq!(change.next_end(), Some(Timestamp::from_seconds(20)));
    assert!(!change.expire(Timestamp::from_seconds(19)));
    assert!(change.expire(Timestamp::from_seconds(20)));
    assert_eq!(held(&change), [of("perf_.*", 600), of("z", 3600)]);
    let none = read(text, &["sources"]);
    assert!(none.promotions.is_empty() && none.rejected.len() > 5, "{none:?}");
}

#[test]
fn bursts_and_flushes() {
    let text = "[burst.cpu]\nperiod = \"100ms\"\nflush_on = [\"job_start\"]\nuntil = 60\n\
                [burst.load]\nkeep = \"10s\"\nuntil = \"2030-01-01\"\n\
                [burst.disk]\nperiod = \"1ms\"\nuntil = 60\n\
                [burst.memory]\nkeep = \"2h\"\nuntil = 60\n\
                [burst.network]\nperiod = \"1s\"\n\
                [[flush]]\nsource = \"cpu\"\nnumber = 17\n\
                [[flush]]\nsource = \"no\"\nnumber = 18\n\
                [[flush]]\nnumber = 18\n";
    let change = read(text, &["bursts"]);
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
    assert_eq!(change.rejected.len(), 6, "{:#?}", change.rejected);
    assert!(read(text, &["sources"]).bursts.is_empty());
    assert_eq!(read(text, &["sources"]).flushes.len(), 1, "the node's own burst can be flushed");
}

#[test]
fn limits_of_a_node() {
    let mut text = String::new();
    for number in 0..=PROMOTIONS_MAX {
        text.push_str(&format!("[[promote]]\nmetric = \"m{number}\"\nuntil = 60\n"));
    }
    for name in ["load", "cgroup", "cpu", "disk", "memory"] {
        text.push_str(&format!("[burst.{name}]\nuntil = 60\n"));
    }
    let change = read(&text, &["promotions", "bursts"]);
    assert_eq!((change.promotions.len(), change.bursts.len()), (PROMOTIONS_MAX, BURSTS_MAX));
    assert_eq!(change.rejected.len(), 2, "{:?}", change.rejected);
    assert!(change.rejected[0].ends_with("`promote` has more than 64 entries"), "{change:?}");
}

#[test]
fn expired_changes_are_not_applied() {
    let perf = [source("load")];
    let text =
        b"until = 50\n[sources.load]\nenabled = false\n[[promote]]\nmetric = \"a\"\nuntil = 50\n";
    let bounds = bounds(&["sources", "promotions"]);
    let change = read_remote(
        text,
        Timestamp::from_seconds(50),
        &mut FirstReceived::default(),
        &bounds,
        &usual(),
        &perf,
    );
    assert!(change.sources.is_empty() && change.promotions.is_empty(), "{change:?}");
    assert_eq!((change.next_end(), change.rejected.len()), (None, 0));
}

proptest::proptest! {
    #[test]
    fn no_text_panics(
        lines in proptest::collection::vec(
            "(\\[\\[(promote|flush)\\]\\]|\\[burst.(cpu|x)\\]|\\[sources.perf\\]|(metric|until|source|number|period|keep|flush_on|events) = (\"[a-z(*]{0,4}\"|\\[\\]|-?[0-9]{1,20}|\\{\\}))",
            0..30,
        ),
    ) {
        read(&lines.join("\n"), &["promotions", "bursts", "events", "periods"]);
    }
}

/// The server sends every change again with each new text, with a later end.
#[test]
fn a_change_that_the_server_sends_again_ends_as_at_first() {
    let load = "[sources.load]\nperiod = \"2s\"\n";
    let burst = "[burst.cpu]\nuntil = 1970-01-02T00:00:00Z\n";
    let until = "until = 1970-01-02T00:00:00Z\n";
    let (allowed, mut received) = (bounds(&["periods", "bursts"]), FirstReceived::default());
    let sources = [source("load"), source("cpu")];
    let mut read = |text: &str, now: i64| {
        let now = Timestamp::from_seconds(now);
        read_remote(text.as_bytes(), now, &mut received, &allowed, &usual(), &sources)
    };
    let hour = Timestamp::from_seconds(3600);
    for now in [0, 1800, 3599] {
        let change = read(&[until, load, burst].concat(), now);
        assert_eq!((change.sources["load"].until, change.bursts["cpu"].until), (hour, hour));
    }
    let ended = read(&[until, load, burst].concat(), 3600);
    assert!(ended.sources.is_empty() && ended.bursts.is_empty(), "{ended:?}");
    // Withdrawn and requested again, or changed: a new change.
    read(until, 3700);
    let again = read(&[until, load].concat(), 3800);
    assert_eq!(again.sources["load"].until, Timestamp::from_seconds(7400));
}
