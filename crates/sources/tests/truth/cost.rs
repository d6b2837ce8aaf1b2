//! Cost per living and per ended task of the sources `taskstats` and `process`, for their headers:
//! `CARGO_PROFILE_DEV_OPT_LEVEL=3 cargo test -p sources --test truth_taskstats -- --ignored --nocapture`.

use super::roles::start_storm;
use super::{Group, Observer, alone, print_line};
use cgroups::Jobs;
use kernel::clock::thread_cpu_us;
use std::fs;
use std::process::Command;
use std::time::Duration;

/// Prints the cost of an operation.
fn spent(what: &str, count: u64, began_us: u64) {
    let us = thread_cpu_us() - began_us;
    print_line(&format!("{what}: {us} us, {:.2} us each of {count}", us as f64 / count as f64));
}

/// Prints the cost of reading this number of threads or processes.
fn read_ten_times(group: &Group, count: u64, what: &str) {
    let settings = [("poll_s", "0"), ("budget_ms", "1000")];
    for (name, settings) in [("taskstats", &settings[..]), ("process", &[])] {
        let mut reading = Observer::open(name, settings).unwrap();
        reading.find(std::slice::from_ref(group));
        reading.collect();
        reading.collect();
        let began = thread_cpu_us();
        (0..10).for_each(|_| reading.collect());
        spent(&format!("ten readings of {count} {what} by {name}"), count * 10, began);
    }
}

#[test]
#[ignore = "prints measurements; asserts nothing, as a busy machine would fail it"]
fn cost_of_living_tasks() {
    let _alone = alone();
    let Some((mut observer, [group])) = Observer::beside("taskstats", 20) else { return };
    for threads in [5, 505, 5000] {
        let mut child = group.start(&format!("sleepers {threads}"));
        let tasks = || fs::read_to_string(group.path.join("tasks")).unwrap().lines().count();
        while tasks() < usize::try_from(threads).unwrap() + 2 {
            std::thread::sleep(Duration::from_millis(50));
        }
        observer.with(|source, cx, sink| source.drain(cx, sink)).unwrap();
        read_ten_times(&group, threads, "threads");
        let began = thread_cpu_us();
        (0..10).for_each(|_| observer.collect());
        spent("ten ticks without a reading", 10, began);
        child.kill().unwrap();
        child.wait().unwrap();
        let began = thread_cpu_us();
        observer.with(|source, cx, sink| source.drain(cx, sink)).unwrap();
        spent("their exits", threads + 2, began);
    }
    let began = thread_cpu_us();
    (0..100).for_each(|_| observer.with(|source, cx, sink| source.drain(cx, sink)).unwrap());
    spent("draining nothing", 100, began);
}

#[test]
#[ignore = "prints measurements; asserts nothing, as a busy machine would fail it"]
fn cost_of_forks_and_exits() {
    let _alone = alone();
    let Some((mut observer, [job, no_job])) = Observer::beside("taskstats", 21) else { return };
    for (place, group) in [("a job", &job), ("no job", &no_job)] {
        observer.jobs = Jobs::default();
        observer.collect();
        observer.find(std::slice::from_ref(&job));
        let mut shell = start_storm(group);
        let mut us = 0;
        while shell.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(100));
            let began = thread_cpu_us();
            observer.with(|source, cx, sink| source.drain(cx, sink)).unwrap();
            us += thread_cpu_us() - began;
        }
        print_line(&format!(
            "10 000 forks and exits in {place}: {:.2} us each",
            us as f64 / 10_000.0
        ));
    }
}

#[test]
#[ignore = "prints measurements; asserts nothing, as a busy machine would fail it"]
fn cost_of_processes() {
    let _alone = alone();
    let Some((_, [group])) = Observer::beside("taskstats", 23) else { return };
    let script =
        "echo $$ > \"$0\"; i=1; while [ $i -lt 505 ]; do sleep 60 & i=$((i+1)); done; wait";
    #[expect(clippy::disallowed_methods, reason = "many processes that do nothing")]
    let mut shell = Command::new("sh");
    let mut shell =
        shell.args(["-c", script]).arg(group.path.join("cgroup.procs")).spawn().unwrap();
    while group.processes() < 505 {
        std::thread::sleep(Duration::from_millis(50));
    }
    read_ten_times(&group, 505, "processes");
    drop(group);
    shell.wait().unwrap();
}
