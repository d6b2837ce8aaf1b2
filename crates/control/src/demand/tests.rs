//! Tests of requests to agents: activation, expiry, limits and marks.

mod job_requests;

use super::*;
use jobs::{JobRecord, Limits, NodeShare, Registry, Users};
use model::setting::{NodeSettings, Override, SettingValue};
use model::{ClusterId, DeviceId, JobEvent, JobId, JobKey, JobState, NodeList, Resources};

fn open(limits: DemandLimits) -> (tempfile::TempDir, DemandStore) {
    let dir = tempfile::tempdir().unwrap();
    let demand = DemandStore::open(&dir.path().join("demand.sqlite"), limits).unwrap();
    (dir, demand)
}

const fn at(seconds: i64) -> Timestamp {
    Timestamp::from_seconds(1_767_700_000 + seconds)
}

fn nodes(text: &str) -> NodeList {
    NodeList::new(text).unwrap()
}

fn change(until: i64, period: &str) -> NewChange {
    let period = model::setting::parse_duration(period).unwrap();
    let values = [("period".into(), SettingValue::Duration(period))].into();
    let sources = [("load".into(), Override { values, until: None })].into();
    let settings = NodeSettings { sources, ..NodeSettings::default() };
    NewChange { nodes: nodes("n[1-2]"), until: at(until), by: "root".into(), settings }
}

fn promotion(metric: &str, until: i64, uid: u32, job: Option<&str>) -> NewPromotion {
    NewPromotion {
        nodes: nodes("n1"),
        metric: metric.into(),
        until: at(until),
        by: "alice".into(),
        uid: Some(uid),
        job: job.map(Into::into),
    }
}

fn plan(metric: &str, job: &str, until: Option<i64>) -> Wanted {
    Wanted {
        nodes: nodes("n1"),
        metric: metric.into(),
        until: until.map(at),
        by: "alice".into(),
        origin: PromotionOrigin::Job,
        job: Some(job.into()),
        uid: Some(1000),
        since: Some(at(0)),
    }
}

const fn moved(began: u64, ended: u64) -> FromJobs {
    FromJobs { began, ended, left_out: 0 }
}

fn metrics(demand: &DemandStore, now: Timestamp) -> Vec<String> {
    let (held, _) = demand.held(now).unwrap();
    held.promotions.iter().map(|one| one.metric.to_string()).collect()
}

fn marks(demand: &DemandStore, device: Option<&str>) -> Vec<(i64, &'static str, Option<String>)> {
    let meant = |mark: &Mark| {
        if device.is_none_or(|name| mark.nodes.has(name)) { Decision::Take } else { Decision::Pass }
    };
    let (marks, more) = demand.marks((at(0), at(1000)), 100, meant).unwrap();
    assert!(!more);
    let one = |mark: Mark| {
        let seconds = mark.at.since(at(0)) / Timestamp::SECOND;
        (seconds, mark.kind.word(), mark.by.map(Into::into))
    };
    marks.into_iter().map(one).collect()
}

#[test]
fn changes_hold_until_their_time_or_until_they_are_undone() {
    let (dir, demand) = open(DemandLimits::default());
    let first = demand.change(&change(100, "1s"), at(0)).unwrap();
    let second = demand.change(&change(50, "2s"), at(10)).unwrap();
    let held = |now| demand.held(at(now)).unwrap().0.changes;
    assert_eq!(held(20).iter().map(|one| one.number).collect::<Vec<_>>(), [first, second]);
    assert_eq!(held(20)[1].settings.lines(), ["sources.load.period = \"2s\""]);
    assert_eq!(held(50).len(), 1);
    assert_eq!(demand.expire(at(60)).unwrap(), 1);
    assert_eq!(demand.expire(at(60)).unwrap(), 0);
    assert!(!demand.undo(second, "root", at(60)).unwrap(), "it has ended");
    assert!(demand.undo(first, "bob", at(70)).unwrap());
    assert!(!demand.undo(first, "bob", at(71)).unwrap());
    assert!(held(80).is_empty());
    let root = || Some("root".to_owned());
    let all = [
        (0, "set", root()),
        (10, "set", root()),
        (50, "expired", None),
        (70, "undone", Some("bob".to_owned())),
    ];
    assert_eq!(marks(&demand, Some("n2")), all);
    assert_eq!(marks(&demand, Some("n3")), []);
    let text = demand.marks((at(0), at(0)), 1, |_| Decision::Take).unwrap().0.remove(0).text;
    assert_eq!(text, "sources.load.period = \"1s\"");
    // A reopened file has the same marks.
    drop(demand);
    let demand =
        DemandStore::open(&dir.path().join("demand.sqlite"), DemandLimits::default()).unwrap();
    assert_eq!(marks(&demand, None), all);
}

#[test]
fn flushes_are_listed_for_ten_minutes_and_have_numbers_of_their_own() {
    let (_dir, demand) = open(DemandLimits { flushes_max: 2, ..DemandLimits::default() });
    let flush = |now| demand.flush(&nodes("n*"), "cpu", "root", at(now));
    let (one, two) = (flush(0).unwrap(), flush(1).unwrap());
    assert!(two > one);
    assert!(matches!(flush(2), Err(DemandError::Full { most: 2, .. })));
    assert_eq!(demand.held(at(300)).unwrap().0.flushes.len(), 2);
    assert_eq!(demand.held(at(601)).unwrap().0.flushes.len(), 0);
    assert!(flush(601).unwrap() > two);
}

#[test]
fn users_have_a_quota_and_all_have_a_limit() {
    let (_dir, demand) = open(DemandLimits { promotions_max: 3, ..DemandLimits::default() });
    let quota = |uid| Some(Quota { uid, most: 2 });
    let two = [promotion("a", 10, 7, None), promotion("b", 100, 7, None)];
    demand.promote(&two, quota(7), at(0)).unwrap();
    let one = [promotion("c", 100, 7, None)];
    assert!(matches!(
        demand.promote(&one, quota(7), at(1)),
        Err(DemandError::Full { most: 2, .. })
    ));
    let other = [promotion("d", 100, 8, None)];
    demand.promote(&other, quota(8), at(1)).unwrap();
    assert!(matches!(demand.promote(&other, None, at(1)), Err(DemandError::Full { most: 3, .. })));
    // Ended promotions do not count.
    demand.promote(&one, quota(7), at(10)).unwrap();
    assert_eq!(metrics(&demand, at(10)), ["b", "d", "c"]);
}

#[test]
fn promotions_of_jobs_follow_the_jobs_and_touch_no_other() {
    let (dir, demand) = open(DemandLimits::default());
    let by_hand = Connection::open(dir.path().join("demand.sqlite")).unwrap();
    let before = demand.version().unwrap();
    by_hand.execute("INSERT INTO promotions (device, metric) VALUES ('n1', 'hand')", []).unwrap();
    by_hand.execute("INSERT INTO promotions (device) VALUES ('n[')", []).unwrap();
    assert_ne!(demand.version().unwrap(), before, "rows of others are noticed");
    let requested = [promotion("api", 900, 7, None), promotion("own", 900, 7, Some("oar:1"))];
    demand.promote(&requested, None, at(0)).unwrap();

    let runs = |_: &str| true;
    let jobs = [plan("x", "oar:1", Some(50)), plan("y", "oar:2", None)];
    assert_eq!(demand.follow(&jobs, runs, at(1)).unwrap(), moved(2, 0));
    assert_eq!(metrics(&demand, at(2)), ["hand", "api", "own", "x", "y"]);
    assert_eq!(demand.follow(&jobs, runs, at(2)).unwrap(), moved(0, 0), "nothing is new");
    // The scheduler extended the job.
    let jobs = [plan("x", "oar:1", Some(80)), plan("y", "oar:2", None)];
    assert_eq!(demand.follow(&jobs, runs, at(3)).unwrap(), moved(0, 0));
    assert_eq!(metrics(&demand, at(60)), ["hand", "api", "own", "x", "y"]);
    assert_eq!(demand.follow(&jobs[1..], |job| job != "oar:1", at(61)).unwrap(), moved(0, 2));
    let over_its_limit = [plan("x", "oar:1", Some(61)), plan("y", "oar:2", None)];
    assert_eq!(demand.follow(&over_its_limit, runs, at(61)).unwrap(), moved(0, 0));
    assert_eq!(metrics(&demand, at(62)), ["hand", "api", "y"]);
    assert_eq!(demand.follow(&[], runs, at(63)).unwrap(), moved(0, 1));
    assert_eq!(metrics(&demand, at(64)), ["hand", "api"]);

    let (held, passed_over) = demand.held(at(64)).unwrap();
    assert_eq!(
        (held.promotions[0].origin, held.promotions[0].until),
        (PromotionOrigin::Hand, None)
    );
    assert!(passed_over.len() == 1 && passed_over[0].contains("`n[`"), "{passed_over:?}");
    assert!(demand.demote(held.promotions[1].number, "root", at(65)).unwrap());
    assert_eq!(metrics(&demand, at(66)), ["hand"]);
    let of_jobs = marks(&demand, Some("n1"));
    assert_eq!(of_jobs.iter().filter(|mark| mark.1 == "promoted").count(), 4);
    assert_eq!(of_jobs.iter().filter(|mark| mark.1 == "demoted").count(), 4);
}

#[test]
fn words_of_jobs_are_bounded_by_user_and_count_for_no_quota() {
    let limits =
        DemandLimits { promotions_max: 8, words_per_user_max: 2, ..DemandLimits::default() };
    let (_dir, demand) = open(limits);
    let greedy = ["a", "b", "c", "d"].map(|metric| plan(metric, "oar:1", None));
    let other = |job, uid| Wanted { uid: Some(uid), ..plan("e", job, None) };
    let follow = |wanted: &[Wanted], now| demand.follow(wanted, |_| true, at(now)).unwrap();
    let (two, all) = ([&greedy[..], &[other("oar:2", 7)]].concat(), DemandLimits::default());
    assert_eq!(follow(&two, 1), FromJobs { began: 3, ended: 0, left_out: 2 });
    assert_eq!(follow(&two, 2), FromJobs { began: 0, ended: 0, left_out: 2 });
    assert_eq!(metrics(&demand, at(3)), ["a", "b", "e"]);
    // Half of the total is reserved for requests.
    let many = [two, vec![other("oar:3", 8), other("oar:4", 9)]].concat();
    assert_eq!(follow(&many, 4), FromJobs { began: 1, ended: 0, left_out: 3 });
    let quota = Some(Quota { uid: 1000, most: 2 });
    demand.promote(&[promotion("x", 900, 1000, None)], quota, at(5)).unwrap();
    // Ended promotions free capacity.
    assert_eq!(follow(&many[2..], 6), FromJobs { began: 2, ended: 2, left_out: 1 });
    assert!(all.words_per_user_max < all.promotions_max / 2);
}

#[test]
fn a_user_has_so_many_on_one_node() {
    let (_dir, demand) = open(DemandLimits::default());
    let quota = Some(Quota { uid: 7, most: 100 });
    let one = |on: &str, n: u64| {
        let new = NewPromotion { nodes: nodes(on), ..promotion(&format!("m{n}"), 900, 7, None) };
        demand.promote(&[new], quota, at(0))
    };
    for n in 0..PROMOTIONS_ON_NODE_MAX {
        one("n1,n2", n).unwrap();
    }
    let rejected = one("n3,n2", 99).unwrap_err();
    assert!(rejected.to_string().contains("on one node: the limit of 16 is reached"), "{rejected}");
    one("n3", 99).unwrap();
}

#[test]
fn an_undone_request_of_a_job_remains_undone_until_it_ends() {
    let (_dir, demand) = open(DemandLimits::default());
    let word = || plan("x", "oar:1", None);
    let rule = || Wanted {
        origin: PromotionOrigin::Rule,
        by: "rule r".into(),
        ..plan("y", "oar:1", None)
    };
    let follow = |wanted: &[Wanted], now| demand.follow(wanted, |_| true, at(now)).unwrap();
    assert_eq!(follow(&[word(), rule()], 1), moved(2, 0));
    for promotion in demand.held(at(2)).unwrap().0.promotions {
        assert!(demand.demote(promotion.number, "alice", at(3)).unwrap());
    }
    assert_eq!(follow(&[word(), rule()], 4), moved(0, 0));
    assert_eq!(follow(&[word(), rule(), plan("z", "oar:1", None)], 5), moved(1, 0), "another word");
    assert_eq!(follow(&[plan("x", "oar:2", None)], 6), moved(1, 1), "another job");
    // The scheduler reuses the job ID.
    let again = Wanted { since: Some(at(10)), ..word() };
    assert_eq!(follow(&[again], 11), moved(1, 1));
    // A promotion that a rule ended, not a person, comes back.
    assert_eq!(follow(&[], 12), moved(0, 1));
    assert_eq!(follow(&[Wanted { since: Some(at(10)), ..word() }], 13), moved(1, 0));
}

#[test]
fn what_is_past_is_bounded() {
    let (_dir, demand) = open(DemandLimits { past_max: 3, ..DemandLimits::default() });
    for n in 0..10 {
        demand.change(&change(n + 1, "1s"), at(n)).unwrap();
        demand.expire(at(n + 1)).unwrap();
    }
    let count_made = |most| demand.marks((at(0), at(100)), most, |_| Decision::Take).unwrap();
    let (marks, more) = count_made(100);
    assert_eq!((marks.iter().map(|mark| mark.number).min(), more), (Some(8), false));
    let (marks, more) = count_made(2);
    assert_eq!((marks.len(), more), (2, true));
    // Ended promotions of one user displace only their own.
    for (n, uid) in (20..).zip([7, 8, 8, 8, 8, 8, 8]) {
        demand.promote(&[promotion("x", n + 1, uid, None)], None, at(n)).unwrap();
        demand.expire(at(n + 1)).unwrap();
    }
    assert_eq!(count_made(100).0.iter().filter(|mark| mark.uid == Some(7)).count(), 2);
}

/// A reader of few marks gets as many as allowed: marks that are not visible to them do not count.
#[test]
fn marks_are_counted_after_they_were_looked_at() {
    let (_dir, demand) = open(DemandLimits::default());
    for n in 0..20 {
        let list = if n % 5 == 0 { "seen" } else { "other" };
        demand.flush(&nodes(list), "cpu", "root", at(n)).unwrap();
    }
    let mut looked = 0;
    let mut only = |most, end| {
        looked = 0;
        let look = |mark: &Mark| {
            looked += 1;
            match mark.nodes.has("seen") {
                _ if looked > end => Decision::End,
                true => Decision::Take,
                false => Decision::Pass,
            }
        };
        let (marks, more) = demand.marks((at(0), at(100)), most, look).unwrap();
        (
            marks.iter().map(|mark| mark.at.since(at(0)) / Timestamp::SECOND).collect::<Vec<_>>(),
            more,
        )
    };
    assert_eq!(only(100, 100), (vec![0, 5, 10, 15], false));
    assert_eq!(only(3, 100), (vec![5, 10, 15], true));
    assert_eq!(only(100, 6), (vec![15], false), "who looks ends it");
}

#[test]
fn entries_beyond_the_retention_are_deleted_and_active_ones_remain() {
    let limits = DemandLimits { past_age_us: Some(3600 * Timestamp::SECOND), ..Default::default() };
    let (_dir, demand) = open(limits);
    demand.change(&change(100, "1s"), at(0)).unwrap();
    demand.change(&change(100_000, "2s"), at(0)).unwrap();
    demand.flush(&nodes("n1"), "cpu", "root", at(50)).unwrap();
    demand.promote(&[promotion("x", 60, 7, None)], None, at(0)).unwrap();
    demand.expire(at(100)).unwrap();
    let left = |now| {
        demand.forget_old(at(now)).unwrap();
        let (marks, _) = demand.marks((at(0), at(1000)), 100, |_| Decision::Take).unwrap();
        marks.iter().map(|mark| mark.kind.word()).collect::<Vec<_>>()
    };
    assert_eq!(left(3600), ["set", "set", "promoted", "flushed", "demoted", "expired"]);
    assert_eq!(left(3660), ["set", "set", "promoted", "demoted", "expired"]);
    assert_eq!(left(3701), ["set"]);
    assert_eq!(demand.held(at(3701)).unwrap().0.changes.len(), 1);
}

#[test]
fn a_newer_file_and_one_that_is_none_are_rejected() {
    let (dir, demand) = open(DemandLimits::default());
    demand.writer.lock().pragma_update(None, "user_version", 3).unwrap();
    let again = DemandStore::open(&dir.path().join("demand.sqlite"), DemandLimits::default());
    assert!(matches!(again, Err(DemandError::Registry(RegistryError::Newer { found: 3, .. }))));
    demand.writer.lock().pragma_update(None, "user_version", 1).unwrap();
    let again = DemandStore::open(&dir.path().join("demand.sqlite"), DemandLimits::default());
    assert!(matches!(again, Err(DemandError::Registry(RegistryError::Older { found: 1, .. }))));
}

#[test]
fn rules_about_values_have_a_quota_and_what_they_promote_follows_no_job() {
    let (_dir, demand) = open(DemandLimits::default());
    let by = "rule hot";
    let flush = |now| demand.flush_by_rule(&nodes("n1"), "cpu", by, at(now));
    for n in 0..BY_RULE_MAX {
        flush(i64::try_from(n).unwrap() / 10).unwrap();
    }
    assert!(matches!(flush(30), Err(DemandError::Full { most: BY_RULE_MAX, .. })));
    demand.flush_by_rule(&nodes("n1"), "cpu", "rule other", at(30)).unwrap();
    demand.flush(&nodes("n1"), "cpu", "root", at(30)).unwrap();
    flush(660).unwrap();

    let new = NewPromotion { by: by.into(), uid: None, ..promotion("x", 100, 0, None) };
    let number = demand.promote_by_rule(&new, at(0)).unwrap();
    let followed = demand.follow(&[], |_| false, at(1)).unwrap();
    assert_eq!((followed.began, followed.ended), (0, 0), "it stays until its end");
    let held = demand.held(at(1)).unwrap().0.promotions;
    assert_eq!(
        (held[0].number, held[0].origin, held[0].until),
        (number, PromotionOrigin::Rule, Some(at(100)))
    );
    for _ in 1..BY_RULE_MAX {
        demand.promote_by_rule(&new, at(1)).unwrap();
    }
    let full = demand.promote_by_rule(&new, at(1));
    assert!(matches!(full, Err(DemandError::Full { most: BY_RULE_MAX, .. })));
    demand.promote_by_rule(&new, at(100)).unwrap();
}

#[test]
fn promotions_follow_rows_of_a_database_and_have_a_limit() {
    let (_dir, demand) = open(DemandLimits { promotions_max: 20, ..DemandLimits::default() });
    let rows = |names: &[&str]| -> std::collections::BTreeSet<PromotedKey> {
        names.iter().map(|name| ((*name).into(), "x".into())).collect()
    };
    demand.promote(&[promotion("a", 100, 1000, None)], None, at(0)).unwrap();
    let two = demand.follow_rows(&rows(&["n1", "n2", "n3"]), at(1)).unwrap();
    assert_eq!((two.held, two.left_out, two.changes), (rows(&["n1", "n2"]), 1, 2));
    let same = demand.follow_rows(&rows(&["n1", "n2"]), at(2)).unwrap();
    assert_eq!((same.held, same.left_out, same.changes), (rows(&["n1", "n2"]), 0, 0));
    let moved = demand.follow_rows(&rows(&["n2", "n4"]), at(3)).unwrap();
    assert_eq!((moved.held, moved.changes), (rows(&["n2", "n4"]), 2));
    let (held, _) = demand.held(at(4)).unwrap();
    let shown = |one: &Promotion| (one.nodes.to_string(), one.origin.word(), one.by.to_string());
    let by_row = |node: &str| (node.to_owned(), "hand", PROMOTED_METRICS.to_owned());
    let expected = vec![("n1".to_owned(), "api", "alice".to_owned()), by_row("n2"), by_row("n4")];
    assert_eq!(held.promotions.iter().map(shown).collect::<Vec<_>>(), expected);
    demand.follow_rows(&rows(&[]), at(5)).unwrap();
    assert_eq!(metrics(&demand, at(6)), ["a"]);
}
