//! Processes moved into a job, as by `pam_slurm_adopt`, and from one job to another.

use super::{Group, Observer, alone, print_line};
use crate::truth::roles::{PHASE_MS, WRITTEN, command};
use kernel::Root;
use kernel::clock::monotonic_us;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::Timespec;
use std::fs;
use std::process::Child;
use std::time::Duration;

const CPU: &str = "taskstats_cpu_run_virtual_seconds_total";
const JOB_CPU: &str = "taskstats_job_cpu_seconds_total";
const RESIDUAL: &str = "taskstats_residual_cpu_seconds";

/// Waits until the process has finished its phase and stopped itself.
fn wait_stopped(child: &Child) {
    let path = format!("/proc/{}/stat", child.id());
    while !fs::read_to_string(&path).unwrap().contains(") T ") {
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn resume(child: &Child) {
    let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
    kill_process(pid, Signal::CONT).unwrap();
}

/// Moves a process, and gives the source time to notice it.
fn move_to(observer: &mut Observer, child: &Child, group: &Group) {
    group.take(child.id());
    observer.watch_for(13);
}

/// Three phases of equal work: in no job for `tenths` tenths of a second, in the first job, in the second. Then
/// checks each job at its end.
fn phases(
    source: &str,
    (id, tenths, new): (i64, u32, fn(i64) -> Option<Group>),
    bytes: &str,
    check: impl Fn(&Observer, &Group),
) {
    let Some((mut observer, groups)) = Observer::beside_each::<2>(source, id, new) else { return };
    observer.collect();
    let mut child = command("phases 3").spawn().unwrap();
    wait_stopped(&child);
    observer.watch_for(tenths);
    for group in &groups {
        move_to(&mut observer, &child, group);
        observer.collect();
        let before = observer.value(bytes, Some(group)).unwrap_or(0.0);
        assert!(before == 0.0, "earlier use does not belong to the job");
        resume(&child);
        wait_stopped(&child);
    }
    resume(&child);
    observer.watch_while(|| child.try_wait().unwrap().is_none());
    for group in &groups {
        observer.end(group);
        let value = observer.value(bytes, Some(group)).unwrap();
        print_line(&format!("{bytes}: {value} of {WRITTEN}"));
        // Its exit record includes the test's own output, in whole KiB.
        let written = WRITTEN as f64;
        assert!((written - 1024.0..=written + 4096.0).contains(&value), "{value}");
        check(&observer, group);
    }
}

#[test]
fn a_process_counts_for_a_job_from_the_move_on() {
    let _alone = alone();
    // After 4 s the process is not checked any more: only the job's list shows it.
    phases(
        "taskstats",
        (71, 50, Group::new),
        "taskstats_write_char_bytes_total",
        |observer, group| {
            let value = |metric| observer.value(metric, Some(group)).unwrap();
            let (cpu, truth) = (value(CPU), group.cpu_seconds());
            print_line(&format!("{cpu:.6} s, kernel's account {truth:.6} s"));
            let phase = PHASE_MS as f64 / 1000.0;
            assert!(cpu <= truth && cpu >= 0.9 * phase, "{cpu} of {truth}");
            assert!(value(RESIDUAL) >= 0.0, "{}", value(RESIDUAL));
        },
    );
}

#[test]
fn the_io_of_a_process_counts_for_a_job_from_the_move_on() {
    let _alone = alone();
    // A check saw the process outside while it was young.
    phases("process", (73, 5, Group::new), "process_write_char_bytes_total", |_, _| {});
}

#[test]
fn a_move_is_noticed_by_the_number_of_tasks() {
    let _alone = alone();
    let bytes = "taskstats_write_char_bytes_total";
    phases("taskstats", (76, 50, Group::counted), bytes, |_, _| {});
    phases("process", (78, 50, Group::counted), "process_write_char_bytes_total", |_, _| {});
}

#[test]
fn a_job_is_listed_only_if_its_number_of_tasks_does_not_follow_from_forks_and_ends() {
    let _alone = alone();
    let group = Observer::beside_each::<1>("taskstats", 80, Group::counted);
    let Some((mut observer, [group])) = group else { return };
    observer.collect();
    let mut child = command("parent 1").spawn().unwrap();
    move_to(&mut observer, &child, &group);
    let is_listed = |observer: &mut Observer, tenths| {
        observer.root = Root::live().unwrap().recording();
        observer.watch_for(tenths);
        let paths = observer.root.paths_read();
        paths.iter().any(|path| path.ends_with("/tasks"))
    };
    // An ended child whose parent does not wait for it is counted as long as the parent lives.
    is_listed(&mut observer, 13);
    assert!(!is_listed(&mut observer, 25), "nothing moved");
    for directory in ["cpuacct", "pids"] {
        fs::write(format!("/sys/fs/cgroup/{directory}/cgroup.procs"), child.id().to_string())
            .unwrap();
    }
    assert!(is_listed(&mut observer, 13), "a process left");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn what_a_process_used_before_its_move_was_noticed_counts() {
    let _alone = alone();
    let Some((mut observer, [group])) = Observer::beside::<1>("taskstats", 75) else { return };
    observer.collect();
    let mut child = command("phases 3").spawn().unwrap();
    wait_stopped(&child);
    // A look finds it outside; then it is moved and uses a phase before the next one.
    observer.watch_for(5);
    group.take(child.id());
    resume(&child);
    wait_stopped(&child);
    observer.watch_for(13);
    resume(&child);
    wait_stopped(&child);
    resume(&child);
    while child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let truth = group.cpu_seconds();
    fs::remove_dir(&group.path).unwrap();
    observer.end(&group);
    let [job, tasks] = [JOB_CPU, CPU].map(|metric| observer.value(metric, Some(&group)).unwrap());
    print_line(&format!("{job:.6} s, by tasks alone {tasks:.6} s, kernel's account {truth:.6} s"));
    let phase = PHASE_MS as f64 / 1000.0;
    assert!(tasks <= truth - 0.9 * phase, "a phase was not observed: {tasks} of {truth}");
    // It gives its memory back after the kernel reported its end.
    assert!((0.99 * truth - 0.02..=truth).contains(&job), "{job} of {truth}");
}

#[test]
fn in_calm_events_of_other_tasks_wait_until_a_process_is_moved_into_a_job() {
    let _alone = alone();
    let group = Observer::beside_each::<1>("taskstats", 82, Group::unified);
    let Some((mut observer, [group])) = group else { return };
    let mut inside = command("parent 1").spawn().unwrap();
    let mut child = command("parent 1").spawn().unwrap();
    group.take(inside.id());
    // The first seconds are not calm.
    observer.watch_for(15);
    assert!(!observer.source.quiet().is_some_and(|quiet| quiet.is_calm));
    let begin = monotonic_us();
    let is_calm = |observer: &Observer| observer.source.quiet().is_some_and(|quiet| quiet.is_calm);
    observer.watch_while(|| monotonic_us() - begin < 3_300_000);
    for _ in 0..3 {
        // A task of no job ends between two drains.
        assert!(command("burn 1").status().unwrap().success());
        observer.watch_for(1);
        assert!(is_calm(&observer));
    }
    let has_event = |observer: &Observer| {
        let moves = observer.source.quiet().and_then(|quiet| quiet.moves).unwrap();
        let mut fds = [PollFd::from_borrowed_fd(moves, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    };
    assert!(!has_event(&observer));
    group.take(child.id());
    assert!(has_event(&observer));
    observer.collect();
    assert!(observer.source.quiet().is_none(), "the other sources are drained, too");
    observer.watch_for(1);
    assert!(!is_calm(&observer));
    for child in [&mut inside, &mut child] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
