//! Tests of the catalogue.

use super::*;
use model::Kind;

fn learn(catalogue: &mut Catalogue, metric: Metric, by: &str) -> Result<(), Rejection> {
    let limits = Limits { metrics_max: 5, metrics_per_origin_max: 2, ..Limits::default() };
    catalogue.learn(&Arc::new(metric), &Origin::new(by).unwrap(), &limits)
}

fn declared() -> DeclaredMetrics {
    DeclaredMetrics::new([Metric::gauge("memory_available_bytes", Unit::Bytes, "Built in.")])
}

#[test]
fn a_declared_metric_keeps_its_meaning_and_help_and_counts_in_no_limit() {
    let mut catalogue = Catalogue::new(declared(), []);
    let wrong = Metric::counter("memory_available_bytes", Unit::Joules, "Mine.");
    assert!(matches!(learn(&mut catalogue, wrong, "n1"), Err(Rejection::Meaning(_))));
    for origin in ["n1", "n2", "n3"] {
        for name in ["a", "b", "c"] {
            let name = format!("{origin}_{name}");
            let metric = Metric { name: name.into(), ..Metric::gauge("", Unit::Count, "") };
            learn(&mut catalogue, metric, origin).ok();
        }
    }
    assert_eq!(catalogue.count(), 5, "two of each origin, five of all");
    let again = Metric::gauge("memory_available_bytes", Unit::Bytes, "Mine.");
    assert_eq!(learn(&mut catalogue, again, "n9"), Ok(()));
    assert_eq!(catalogue.get("memory_available_bytes").unwrap().1.help, "Built in.");
}

#[test]
fn only_the_first_sender_changes_the_help_of_its_metric() {
    let mut catalogue = Catalogue::default();
    let metric = |help| Metric::gauge("site_power", Unit::Watts, help);
    for (help, by, now) in
        [("one", "n1", "one"), ("two", "n2", "one"), ("", "n1", "one"), ("three", "n1", "three")]
    {
        learn(&mut catalogue, metric(help), by).unwrap();
        assert_eq!(catalogue.get("site_power").unwrap().1.help, now, "{help} by {by}");
    }
}

#[test]
fn all_runs_share_one_quota_and_a_restart_keeps_it() {
    let mut catalogue = Catalogue::default();
    let metric = |name| Metric::gauge(name, Unit::Count, "");
    learn(&mut catalogue, metric("a"), "n1/run-1").unwrap();
    learn(&mut catalogue, metric("b"), "n1/run-2").unwrap();
    let stored = catalogue.json().into_iter().map(|json| json.metric().unwrap());
    let mut catalogue = Catalogue::new(DeclaredMetrics::default(), stored);
    let third = learn(&mut catalogue, metric("c"), "n2/run-3");
    assert!(matches!(third, Err(Rejection::OriginMetrics { max: 2, .. })), "{third:?}");
    assert_eq!(learn(&mut catalogue, metric("c"), "n2"), Ok(()));
}

#[test]
fn a_name_yields_to_the_first_sender_of_a_higher_rank() {
    let mut catalogue = Catalogue::new(declared(), []);
    let metric = |unit| Metric::gauge("power", unit, "");
    let unit = |catalogue: &Catalogue| catalogue.get("power").unwrap().1.unit;
    for by in ["user-1/rows", "user-2/rows"] {
        learn(&mut catalogue, metric(Unit::Count), by).unwrap();
    }
    let of_colmet = Metric::gauge("colmet_rapl_counter_7", Unit::Count, "");
    assert!(learn(&mut catalogue, of_colmet, "user-1/rows").is_err());
    learn(&mut catalogue, metric(Unit::Count), "push/rows").unwrap();
    assert_eq!((unit(&catalogue), catalogue.takeovers()), (Unit::Count, 1));
    let rejected = learn(&mut catalogue, metric(Unit::Count), "user-1/rows").unwrap_err();
    assert!(rejected.to_string().contains("belongs to push/rows"), "{rejected}");
    learn(&mut catalogue, metric(Unit::Watts), "poller-a/group-1").unwrap();
    assert_eq!((unit(&catalogue), catalogue.takeovers()), (Unit::Watts, 2));
    assert!(learn(&mut catalogue, metric(Unit::Count), "n1").is_err());
    learn(&mut catalogue, metric(Unit::Count), "push/rows").unwrap();
    assert_eq!((unit(&catalogue), catalogue.takeovers()), (Unit::Watts, 2));
    let own = Metric::gauge("memory_available_bytes", Unit::Bytes, "");
    assert!(learn(&mut catalogue, own.clone(), "user-1/rows").is_err());
    let poll = Metric::gauge("poll_success", Unit::Count, "");
    assert!(learn(&mut catalogue, poll, "user-1/rows").is_err(), "also before a poller sends it");
    assert_eq!(learn(&mut catalogue, own, "push/rows"), Ok(()));
}

#[test]
fn pollers_leave_half_of_the_names_to_agents() {
    let mut catalogue = Catalogue::default();
    let metric =
        |name: &str| Metric { name: name.to_owned().into(), ..Metric::gauge("", Unit::Count, "") };
    for (name, by, is_ok) in [
        ("a", "poller-a/group-0", true),
        ("b", "poller-a/group-1", true),
        ("c", "poller-b/group-0", true),
        ("d", "poller-c/group-0", false),
        ("d", "n1", true),
        ("e", "n2", true),
    ] {
        assert_eq!(learn(&mut catalogue, metric(name), by).is_ok(), is_ok, "{name} by {by}");
    }
}

#[test]
fn an_assumed_meaning_yields_to_a_declared_one_and_costs_no_sample() {
    let mut catalogue = Catalogue::new(declared(), []);
    let metric = |unit, assumed| Metric { assumed, ..Metric::gauge("power", unit, "") };
    let kept = |catalogue: &Catalogue| catalogue.get("power").unwrap().1.unit;
    for unit in [Unit::Volts, Unit::Amperes] {
        learn(&mut catalogue, metric(unit, true), "poller-a/group-1").unwrap();
        learn(&mut catalogue, metric(unit, true), "poller-b/group-1").unwrap();
        assert_eq!(kept(&catalogue), Unit::Volts, "the first of two assumed ones");
    }
    // Another device of the same group changes the help only.
    let other = Metric { help: "other".into(), ..metric(Unit::Joules, true) };
    learn(&mut catalogue, other, "poller-a/group-1").unwrap();
    assert_eq!(
        (kept(&catalogue), &*catalogue.get("power").unwrap().1.help),
        (Unit::Volts, "other")
    );
    // A restart of the server keeps that it is assumed.
    let stored = catalogue.json().into_iter().map(|json| json.metric().unwrap());
    let mut catalogue = Catalogue::new(declared(), stored);
    learn(&mut catalogue, metric(Unit::Watts, false), "poller-b/group-2").unwrap();
    assert_eq!((kept(&catalogue), catalogue.takeovers()), (Unit::Watts, 1));
    learn(&mut catalogue, metric(Unit::Volts, true), "poller-a/group-1").unwrap();
    assert_eq!((kept(&catalogue), catalogue.takeovers()), (Unit::Watts, 1));
    assert!(learn(&mut catalogue, metric(Unit::Volts, false), "poller-a/group-1").is_err());
    let wrong =
        Metric { assumed: true, ..Metric::gauge("memory_available_bytes", Unit::Count, "") };
    assert_eq!(learn(&mut catalogue, wrong, "poller-a/group-1"), Ok(()));
}

#[test]
fn an_agent_changes_no_meaning_for_other_kinds_of_senders() {
    let metric = |unit, assumed| Metric { assumed, ..Metric::counter("power", unit, "") };
    let kept = |catalogue: &Catalogue| catalogue.get("power").unwrap().1.unit;
    // A guess that was first stays, and the samples of both are stored.
    for (by, assumed) in [("poller-a/group-1", true), ("push/rows", false)] {
        let mut catalogue = Catalogue::new(declared(), []);
        learn(&mut catalogue, metric(Unit::Watts, assumed), by).unwrap();
        for _ in 0..2 {
            learn(&mut catalogue, metric(Unit::Bytes, false), "n1").unwrap();
            learn(&mut catalogue, metric(Unit::Watts, assumed), by).unwrap();
        }
        assert_eq!((kept(&catalogue), catalogue.takeovers()), (Unit::Watts, 0), "{by}");
        // An agent that was first yields.
        let mut catalogue = Catalogue::new(declared(), []);
        learn(&mut catalogue, metric(Unit::Bytes, false), "n1").unwrap();
        learn(&mut catalogue, metric(Unit::Watts, assumed), by).unwrap();
        learn(&mut catalogue, metric(Unit::Bytes, false), "n1").unwrap();
        assert_eq!((kept(&catalogue), catalogue.takeovers()), (Unit::Watts, 1), "{by}");
    }
    // It yields to a description, too. Its own samples have another meaning, then.
    let mut catalogue = Catalogue::new(declared(), []);
    learn(&mut catalogue, metric(Unit::Bytes, false), "n1").unwrap();
    learn(&mut catalogue, metric(Unit::Watts, false), "poller-a/group-1").unwrap();
    assert_eq!((kept(&catalogue), catalogue.takeovers()), (Unit::Watts, 1));
    assert!(learn(&mut catalogue, metric(Unit::Bytes, false), "n1").is_err());
}

#[test]
fn metrics_of_pollers_and_feeds_come_from_them() {
    for name in ["poll_success", "poll_errors_total", "wattmetre_power_watt"] {
        let mut catalogue = Catalogue::default();
        let metric = |kind| Metric { kind, ..Metric::gauge(name, Unit::Count, "") };
        for by in ["n1", "n1/run-1", "user-1/rows"] {
            let rejected = learn(&mut catalogue, metric(Kind::Counter), by).unwrap_err();
            assert!(rejected.to_string().contains("one of pollers"), "{rejected}");
        }
        let of_feeds = name.starts_with("wattmetre_");
        let pushed = learn(&mut catalogue, metric(Kind::Counter), "push/rows");
        assert_eq!(pushed.is_ok(), of_feeds, "history of feeds may be inserted: {name}");
        learn(&mut catalogue, metric(Kind::Gauge), "poller-a/group-0").unwrap();
        assert_eq!(catalogue.get(name).unwrap().1.kind, Kind::Gauge);
    }
}

#[test]
fn names_of_users_leave_those_of_others() {
    let limits = Limits { metrics_max: 256, ..Limits::default() };
    let mut catalogue = Catalogue::default();
    let learn = |catalogue: &mut Catalogue, name: String, by: &str| {
        let metric = Metric { name: name.into(), ..Metric::gauge("", Unit::Count, "") };
        catalogue.learn(&Arc::new(metric), &Origin::new(by).unwrap(), &limits)
    };
    let of_user = |catalogue: &mut Catalogue, uid: u32| {
        let by = format!("user-{uid}/rows");
        (0..10).filter(|n| learn(catalogue, format!("{uid}_{n}"), &by).is_ok()).count()
    };
    let counts: Vec<usize> = (0..18).map(|uid| of_user(&mut catalogue, uid)).collect();
    assert_eq!(counts, [&[4; 16][..], &[0, 0]].concat(), "a sixteenth of a quarter each");
    // Stored counts are those of a new start, and a name that is taken over frees its place.
    let stored = catalogue.json().into_iter().map(|json| json.metric().unwrap());
    let mut catalogue = Catalogue::new(DeclaredMetrics::default(), stored);
    assert_eq!(of_user(&mut catalogue, 17), 0);
    learn(&mut catalogue, "0_0".to_owned(), "n1").unwrap();
    assert_eq!(of_user(&mut catalogue, 17), 1);
    assert_eq!(of_user(&mut catalogue, 0), 3, "the three names that are still theirs");
    catalogue.mark();
    learn(&mut catalogue, "rejected".to_owned(), "n1").unwrap();
    catalogue.undo();
    assert!(catalogue.get("rejected").is_none());
    assert_eq!(
        (0..180).filter(|n| learn(&mut catalogue, n.to_string(), "n1").is_ok()).count(),
        180
    );
}

#[test]
fn names_of_nodes_leave_those_of_users() {
    let limits = Limits { metrics_max: 1024, ..Limits::default() };
    let mut catalogue = Catalogue::default();
    let mut count = |by: &str| {
        let learn = |n: &usize| {
            let name = format!("{by}_{n}").into();
            let metric = Metric { name, ..Metric::gauge("", Unit::Count, "") };
            catalogue.learn(&Arc::new(metric), &Origin::new(by).unwrap(), &limits).is_ok()
        };
        (0..20).filter(learn).count()
    };
    let counts: Vec<usize> = (0..6).map(|n| count(&format!("node-n{n}/rows"))).collect();
    assert_eq!(counts, [16, 16, 16, 16, 0, 0], "a quarter of the users' part together");
    assert_eq!(count("user-1/rows"), 16);
}

#[test]
fn a_stored_metric_that_took_a_declared_name_is_the_declared_one() {
    let wrong = Metric::gauge("memory_available_bytes", Unit::Joules, "Mine.");
    let catalogue = Catalogue::new(declared(), [(wrong, "n1/run-7".to_owned())]);
    let (_, metric) = catalogue.get("memory_available_bytes").unwrap();
    assert_eq!((metric.unit, &*metric.help), (Unit::Bytes, "Built in."));
}
