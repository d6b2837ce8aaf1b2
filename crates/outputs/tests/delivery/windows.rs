//! `every`: of each series, only the last sample in each window.

use crate::kit::{Site, counted, once};
use conformance::spec;
use std::sync::atomic::Ordering;

const EVERY: &str = "[outputs.file]\npath = \"a.json\"\nfrom = \"all\"\nevery = \"10s\"\n";

#[test]
fn the_last_sample_of_each_window_is_sent_over_slices_and_restarts() {
    let mut site = Site::new();
    site.apply(EVERY);
    for second in 0..35 {
        site.clock.store(second, Ordering::Relaxed);
        site.store(&[(spec("n1", "a"), second, 1.0)]);
        if second % 4 == 0 {
            site.settle();
        }
        if second % 7 == 0 {
            site = site.restart();
            site.apply(EVERY);
        }
    }
    site.settle();
    assert_eq!(counted(&[site.path("a.json")]), once(["n1/a@9", "n1/a@19", "n1/a@29"]));
    // Without windows, what waits is sent too.
    site.apply(EVERY.replace("every = \"10s\"\n", "").as_str());
    site.store(&[(spec("n1", "a"), 35, 1.0)]);
    site.settle();
    let all = ["n1/a@9", "n1/a@19", "n1/a@29", "n1/a@34", "n1/a@35"];
    assert_eq!(counted(&[site.path("a.json")]), once(all));
}

#[test]
fn late_samples_do_not_divide_the_present_window() {
    let mut site = Site::new();
    site.clock.store(40, Ordering::Relaxed);
    site.apply(EVERY);
    // The windows of seconds 0 to 9 and 10 to 19 arrive while that of 30 to 39 does.
    for seconds in [&[31][..], &[2, 3], &[33], &[8], &[12, 32], &[39], &[41]] {
        let samples: Vec<_> = seconds.iter().map(|at| (spec("n1", "a"), *at, 1.0)).collect();
        site.store(&samples);
        site.settle();
        site = site.restart();
        site.apply(EVERY);
    }
    site.settle();
    let sent = counted(&[site.path("a.json")]);
    assert_eq!(sent, once(["n1/a@8", "n1/a@39"]));
}

#[test]
fn windows_of_the_past_end_with_their_last_sample() {
    let mut site = Site::new();
    site.clock.store(400, Ordering::Relaxed);
    site.apply(EVERY);
    // Another series is present, and everything is delivered again and again.
    for second in [0, 6, 9, 12, 19, 24] {
        site.store(&[(spec("n1", "past"), second, 1.0)]);
        site.settle();
        site.store(&[(spec("n2", "present"), 399, 1.0)]);
        site.settle();
    }
    assert_eq!(counted(&[site.path("a.json")]), once(["n1/past@9", "n1/past@19"]));
}

#[test]
fn a_series_that_ends_is_sent_when_its_window_has_ended() {
    let mut site = Site::new();
    site.clock.store(3, Ordering::Relaxed);
    site.apply(EVERY);
    site.store(&[
        (spec("n1", "ends"), 1, 1.0),
        (spec("n1", "ends"), 2, 1.0),
        (spec("n1", "a"), 3, 1.0),
    ]);
    site.settle();
    // Everything is delivered at second 100, and a later slice shows it.
    site.clock.store(100, Ordering::Relaxed);
    for second in 99..129 {
        site.store(&[(spec("n1", "a"), second, 1.0)]);
        site.settle();
        if counted(&[site.path("a.json")]).contains_key("n1/ends@2") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    let found = counted(&[site.path("a.json")]);
    assert_eq!((found["n1/ends@2"], found["n1/a@3"]), (1, 1), "{found:?}");
    assert!(found.values().all(|count| *count == 1) && !found.contains_key("n1/ends@1"));
}
