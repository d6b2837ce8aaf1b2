//! The output `file` with Colmet's text: each record once, over restarts and kills.

use crate::kit::{Site, open};
use conformance::{Spec, T0, spec};
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

const COLMET: &str =
    "[outputs.file]\npath = \"a.txt\"\nfrom = \"all\"\nformat = \"colmet\"\ncluster = \"oar\"\n";

/// Of each record: second, job, backend, and the lines with these names.
fn found(path: &Path, names: &[&str]) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let records = text.split_terminator("\n}\n").map(|record| {
        let (head, lines) = record.split_once(" -> Host(").unwrap();
        let (seconds, head) = head.split_once("  ").unwrap();
        let second = seconds.parse::<i64>().unwrap() - T0 / 1_000_000;
        let lines = lines.lines().filter_map(|line| line.trim().split_once(" : "));
        let values = lines.filter(|(name, _)| names.contains(name)).map(|(_, value)| value);
        [vec![format!("{second} {head}")], values.map(str::to_owned).collect()].concat().join(" ")
    });
    records.collect()
}

/// A node and a job of it, with a counter of which the growth counts.
fn samples(second: i64) -> Vec<(Spec, i64, f64)> {
    let of_job = |metric| Spec { job: Some(7), start: Some(T0 - 1), ..spec("n1", metric) };
    vec![
        (spec("n1", "cpu_forks_total"), second, second as f64),
        (of_job("perf_instructions_total"), second, 10.0 * second as f64 + 1.0),
        (spec("n1", "load_1m"), second, 0.5),
    ]
}

fn expected(seconds: std::ops::Range<i64>) -> Vec<String> {
    let each = seconds.flat_map(|second| {
        let growth = if second == 0 { 1 } else { 10 };
        [
            format!("{second} Job(0)/ procstats_default 0.5 {second}"),
            format!("{second} Job(7)/ perfhwstats_default {growth} (count)"),
        ]
    });
    each.collect()
}

const NAMES: [&str; 3] = ["stat_processes", "loadavg_1min", "counter_1"];

#[test]
fn each_record_is_there_once_over_slices_and_restarts() {
    let mut site = Site::new();
    site.apply(COLMET);
    for second in 0..12 {
        site.clock.store(second, Ordering::Relaxed);
        // The samples of an instant arrive in several slices.
        for sample in samples(second) {
            site.store(&[sample]);
            if second % 3 == 0 {
                site.settle();
            }
        }
        if second % 5 == 0 {
            site = site.restart();
            site.apply(COLMET);
        }
    }
    site.settle();
    // The last instant may still get samples.
    assert_eq!(found(&site.path("a.txt"), &NAMES), expected(0..11));
}

#[test]
fn a_kill_between_write_and_confirmation_repeats_no_record() {
    let mut site = Site::new();
    for second in 0..3 {
        site.store(&samples(second));
    }
    site.apply(COLMET);
    site.settle();
    site = site.restart();
    let followers = site.path("samples/followers/POSITIONS");
    let positions = fs::read(&followers).unwrap();
    for second in 3..6 {
        site.store(&samples(second));
    }
    site.apply(COLMET);
    site.settle();
    let Site { dir, store, outputs, sender, clock } = site;
    outputs.stop(Duration::from_secs(5));
    drop((store, outputs));
    fs::write(&followers, positions).unwrap();
    let (store, outputs) = open(dir.path(), &clock);
    let mut site = Site { dir, store, outputs, sender, clock };
    site.store(&samples(6));
    site.apply(COLMET);
    site.settle();
    assert_eq!(found(&site.path("a.txt"), &NAMES), expected(0..6));
}

#[test]
fn the_format_needs_a_cluster_and_counts_what_it_leaves_out() {
    let mut site = Site::new();
    let check = |text: &str| outputs::check(&site.configs(text)[0]);
    assert_eq!(check(COLMET), []);
    let wrong = check("[outputs.file]\npath = \"a.txt\"\nformat = \"colmet\"\n");
    assert_eq!(wrong.len(), 1);
    assert_eq!(wrong[0].0, "outputs.file.cluster");
    for second in 0..2 {
        site.store(&samples(second));
    }
    site.apply(&COLMET.replace("\"oar\"", "\"slurm\""));
    site.settle();
    assert_eq!(site.outputs.status()[0].left_out, 2);
    assert_eq!(found(&site.path("a.txt"), &NAMES), ["0 Job(0)/ procstats_default 0.5 0"]);
}
