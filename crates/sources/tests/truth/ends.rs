//! Values that only exit records have: zombies, and the last context switch of each task.

use super::roles::{command, report_path};
use super::{Observer, alone, print_line};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::time::Duration;

#[test]
fn zombies_are_found_and_forgotten() {
    let _alone = alone();
    let Some((mut observer, [group])) = Observer::beside("process", 81) else { return };
    let mut parent = group.start("parent 3");
    // It creates the file when its children have ended.
    while fs::metadata(report_path(parent.id())).is_err() {
        std::thread::sleep(Duration::from_millis(20));
        observer.with(|source, cx, sink| source.drain(cx, sink)).unwrap();
    }
    fs::remove_file(report_path(parent.id())).unwrap();
    observer.collect();
    let value = |observer: &Observer, metric| observer.value(metric, Some(&group)).unwrap();
    assert_eq!(value(&observer, "process_zombies"), 3.0);
    assert_eq!(value(&observer, "process_count"), 1.0);
    // They disappear with their parent.
    kill_process(Pid::from_raw(parent.id().cast_signed()).unwrap(), Signal::KILL).unwrap();
    parent.wait().unwrap();
    for _ in 0..100 {
        observer.collect();
        if value(&observer, "process_zombies") == 0.0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{} zombies", value(&observer, "process_zombies"));
}

#[test]
fn the_last_switch_of_each_task_counts() {
    let _alone = alone();
    let Some((mut observer, [group])) = Observer::beside("taskstats", 82) else { return };
    let child = group.start("report-switches 40");
    let pid = child.id();
    observer.watch_child(child);
    observer.end(&group);
    let reported: f64 = fs::read_to_string(report_path(pid)).unwrap().parse().unwrap();
    fs::remove_file(report_path(pid)).unwrap();
    let found = observer.value("taskstats_voluntary_switches_total", Some(&group)).unwrap();
    print_line(&format!("{found} voluntary switches, {reported} by getrusage before the end"));
    // The rest is the end of the reporting process, and of the thread of its test.
    assert!(found >= reported - 2.0 && found <= reported + 40.0, "{found} of {reported}");
}

#[test]
fn the_job_has_what_its_cgroup_counted_for_the_exits_of_short_tasks() {
    let _alone = alone();
    let Some((mut observer, [group])) = Observer::beside("taskstats", 84) else { return };
    let child = group.start("report-switches 400");
    let pid = child.id();
    observer.watch_child(child);
    observer.end(&group);
    fs::remove_file(report_path(pid)).unwrap();
    let value = |metric| observer.value(metric, Some(&group)).unwrap();
    let (job, truth) = (value("taskstats_job_cpu_seconds_total"), group.cpu_seconds());
    let tasks = value("taskstats_cpu_run_virtual_seconds_total");
    print_line(&format!("{job:.6} s, by tasks alone {tasks:.6} s, kernel's account {truth:.6} s"));
    assert!((job - truth).abs() < 1e-6 && tasks < truth, "{job} of {truth}");
}

#[test]
fn processor_time_by_command_adds_up_to_the_total() {
    let _alone = alone();
    let Some((mut observer, [group])) = Observer::beside("taskstats", 83) else { return };
    observer.watch_child(group.start("sequence 3"));
    observer.end(&group);
    let value = |metric| observer.value(metric, Some(&group)).unwrap();
    let samples = observer.sink.samples();
    let named: Vec<_> = samples
        .filter(|(entry, ..)| entry.metric.name == "taskstats_command_cpu_seconds_total")
        .map(|(entry, _, value)| (entry.labels.as_str().to_owned(), value))
        .collect();
    print_line(&format!("{named:?}"));
    assert!(!named.is_empty() && named.len() <= 10);
    let sum: f64 = named.iter().map(|(_, value)| value).sum();
    let sum = sum + value("taskstats_other_commands_cpu_seconds_total");
    let all = value("taskstats_cpu_run_virtual_seconds_total");
    // The exact total is reduced by use before the tasks joined, by the cgroup's account.
    assert!(all > 0.8 && sum >= all - 1e-6 && sum <= all + 0.05, "{sum} of {all}");
}

#[test]
fn two_runs_of_one_id_are_two_however_soon() {
    let _alone = alone();
    let Some((mut observer, [group])) = Observer::beside("taskstats", 79) else { return };
    observer.watch_child(group.start("sequence 1"));
    observer.end(&group);
    let ended = "taskstats_ended_tasks_total";
    assert!(observer.value(ended, Some(&group)).is_some_and(|tasks| tasks > 0.0));
    let mut again = group.job.clone();
    again.created = again.created.plus(1);
    observer.jobs = cgroups::Jobs::new(vec![again], Vec::new()).after(&observer.jobs);
    observer.end(&group);
    assert_eq!(observer.value(ended, Some(&group)), None, "the second run had no task yet");
}

/// A scheduler makes the cgroup first. The only process of the job joins it later, and ends before the usual drain.
#[test]
fn the_first_process_of_a_new_job_is_found_before_it_ends() {
    let _alone = alone();
    let Some((mut observer, [group])) = Observer::beside("taskstats", 71) else { return };
    let drain = |observer: &mut Observer| {
        observer.with(|source, cx, sink| source.drain(cx, sink)).unwrap();
        observer.source.drain_every()
    };
    assert_eq!(drain(&mut observer), Some(Duration::from_millis(20)), "it waits for a process");
    let mut child = command("phases 1").spawn().unwrap();
    group.take(child.id());
    assert_eq!(drain(&mut observer), Some(Duration::from_millis(100)));
    child.kill().unwrap();
    child.wait().unwrap();
    observer.end(&group);
    let ended = observer.value("taskstats_ended_tasks_total", Some(&group));
    assert!(ended.is_some_and(|tasks| tasks >= 1.0), "{ended:?}");
}
