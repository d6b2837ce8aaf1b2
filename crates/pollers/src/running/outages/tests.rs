//! Tests of gaps.

use super::*;
use crate::descriptions::{Directory, read_text};
use model::Cause;
use std::path::Path;

fn descriptions(names: &[&str]) -> Vec<Arc<Description>> {
    let entry =
        |name: &&str| format!("- {{name: {name}, device_id: bmc, url: 'http://bmc/a#{name}'}}\n");
    let mut directory = Directory::default();
    let text: String = names.iter().map(entry).collect();
    read_text(&Path::new("file").into(), &text, &mut directory);
    directory.descriptions.into_iter().map(Arc::new).collect()
}

fn at(seconds: i64) -> Timestamp {
    Timestamp(seconds * Timestamp::SECOND)
}

fn outages(all: &[Arc<Description>]) -> Outages {
    let mut outages = Outages::new();
    let new: Vec<_> = all.iter().map(|one| (&**one, None, true)).collect();
    assert_eq!(outages.set(&[], &new, at(0), |_| at(0)), []);
    outages
}

fn exchange(seconds: i64, failures: &[(usize, &Failure)]) -> Exchange {
    let mut exchange = Exchange::new(at(seconds), 2);
    for (place, failure) in failures {
        exchange.fail(*place, (*failure).clone());
    }
    exchange
}

fn spans(missing: &[Missing]) -> Vec<(&str, i64, i64, Cause)> {
    let second = |at: Timestamp| at.0 / Timestamp::SECOND;
    missing
        .iter()
        .map(|one| (&*one.source, second(one.span.0), second(one.span.1), one.cause))
        .collect()
}

#[test]
fn a_dead_device_is_one_gap_that_grows() {
    let all = descriptions(&["a", "b"]);
    let due = [(0, 0), (1, 0)];
    let silent = Failure::timeout("no answer");
    let mut outages = outages(&all);
    assert_eq!(outages.update(&all, &due, &exchange(5, &[])), []);
    let mut missing = Vec::new();
    assert_eq!(outages.reported(&all, &all[0].device), None);
    for second in (10..200).step_by(5) {
        let failed = exchange(second, &[(0, &silent), (1, &silent)]);
        missing.extend(outages.update(&all, &due, &failed));
        let reported = missing.last().map(|one| one.span.1);
        assert_eq!(outages.reported(&all, &all[0].device), reported);
    }
    missing.extend(outages.update(&all, &due, &exchange(200, &[])));
    let timeout = Cause::SourceTimeout;
    let expected = [(5, 10), (5, 70), (5, 130), (5, 190), (5, 200)]
        .map(|(from, to)| ("json", from, to, timeout));
    assert_eq!(spans(&missing), expected);
    assert_eq!(outages.end(&all, at(205)), []);
}

#[test]
fn one_bad_value_is_a_gap_of_its_metric() {
    let all = descriptions(&["a", "b"]);
    let due = [(0, 0), (1, 0)];
    let broken = Failure::broken("no match");
    let denied = Failure::denied("no");
    let mut outages = outages(&all);
    let mut missing = outages.update(&all, &due, &exchange(5, &[(1, &broken)]));
    missing.extend(outages.update(&all, &due, &exchange(10, &[(1, &denied)])));
    missing.extend(outages.end(&all, at(15)));
    let (broken, denied) = (Cause::SourceBroken, Cause::PermissionLost);
    assert_eq!(
        spans(&missing),
        [("json/b", 0, 5, broken), ("json/b", 0, 10, broken), ("json/b", 10, 15, denied)]
    );
}

#[test]
fn missed_ticks_are_a_gap() {
    let all = descriptions(&["a", "b"]);
    let mut outages = outages(&all);
    outages.update(&all, &[(0, 0), (1, 0)], &exchange(5, &[]));
    let missing = outages.update(&all, &[(0, 3), (1, 3)], &exchange(25, &[]));
    assert_eq!(spans(&missing), [("json", 5, 25, Cause::MissedTicks)]);
}

#[test]
fn a_gap_of_a_device_has_no_instant_of_its_values() {
    let all = descriptions(&["good", "nosuch"]);
    let (broken, silent) = (Failure::broken("no match"), Failure::timeout("no answer"));
    let mut outages = outages(&all);
    let mut missing = Vec::new();
    for second in 0..=20 {
        let (both, one) = ([(0, 0), (1, 0)], [(1, 0)]);
        let (due, nth) = if second % 10 == 0 { (&both[..], 1) } else { (&one[..], 0) };
        missing.extend(outages.update(&all, due, &exchange(second, &[(nth, &broken)])));
    }
    let of_value = ("json/nosuch", 0, 1, Cause::SourceBroken);
    assert_eq!(spans(&missing), [of_value], "the other value is read");
    assert!(outages.reported(&all, &all[0].device).is_some());
    // The device dies: its gap begins at its last value, when nothing of it is read any more.
    let dead = |outages: &mut Outages, second| {
        let silent = exchange(second, &[(0, &silent), (1, &silent)]);
        outages.update(&all, &[(0, 0), (1, 0)], &silent)
    };
    let expected =
        [("json/nosuch", 0, 20, Cause::SourceBroken), ("json", 20, 30, Cause::SourceTimeout)];
    assert_eq!(spans(&dead(&mut outages, 30)), expected);
    // It recovers, but not the value.
    let closed = outages.update(&all, &[(0, 3), (1, 9)], &exchange(70, &[(1, &broken)]));
    let expected =
        [("json", 20, 70, Cause::SourceTimeout), ("json/nosuch", 0, 70, Cause::SourceBroken)];
    assert_eq!(spans(&closed), expected);
}

#[test]
fn missed_ticks_are_of_the_values_that_missed_them() {
    let all = descriptions(&["a", "b"]);
    let mut outages = outages(&all);
    outages.update(&all, &[(0, 0), (1, 0)], &exchange(10, &[]));
    assert_eq!(outages.update(&all, &[(1, 0)], &exchange(16, &[])), []);
    let missing = outages.update(&all, &[(1, 2)], &exchange(19, &[]));
    assert_eq!(spans(&missing), [("json", 16, 19, Cause::MissedTicks)]);
    let missing = outages.update(&all, &[(0, 1), (1, 0)], &exchange(30, &[]));
    assert_eq!(spans(&missing), [("json/a", 10, 30, Cause::MissedTicks)]);
    // Ticks of a value that fails are in its gap.
    let broken = Failure::broken("no match");
    outages.update(&all, &[(0, 0), (1, 0)], &exchange(40, &[(1, &broken)]));
    let missing = outages.update(&all, &[(0, 0), (1, 4)], &exchange(50, &[(1, &broken)]));
    assert_eq!(missing, []);
}

#[test]
fn a_gap_lasts_over_a_change_of_the_files_and_ends_with_its_entry() {
    let all = descriptions(&["a", "b", "c"]);
    let due = [(0, 0), (1, 0), (2, 0)];
    let broken = Failure::broken("no match");
    let mut outages = outages(&all);
    let mut failed = exchange(5, &[(0, &broken), (1, &broken)]);
    failed.settle(2);
    assert_eq!(outages.update(&all, &due, &failed).len(), 2);
    // `a` is removed, and `b` is the first now.
    let after = [(&*all[1], Some(1), true), (&*all[2], Some(2), true)];
    let ended = outages.set(&all, &after, at(8), |_| at(8));
    assert_eq!(spans(&ended), [("json/a", 0, 8, Cause::SourceBroken)]);
    let rest = all[1..].to_vec();
    let closed = outages.update(&rest, &[(0, 0), (1, 0)], &exchange(10, &[]));
    assert_eq!(spans(&closed), [("json/b", 0, 10, Cause::SourceBroken)]);
}
