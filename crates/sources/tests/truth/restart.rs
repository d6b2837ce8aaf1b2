//! A restart of the agent: the next start continues the counters, or reports a gap because they start again.

use super::roles::{WRITTEN, report_path};
use super::{Observer, alone, print_line};
use model::{Cause, Timestamp};
use std::fs;
use std::time::Duration;

const CPU: &str = "taskstats_cpu_run_virtual_seconds_total";
const SWITCHES: &str = "taskstats_voluntary_switches_total";

impl Observer {
    /// Ends this source like a clean stop of the agent, and starts it again after a pause.
    fn restart(self, name: &str, state: impl FnOnce(Vec<u8>) -> Vec<u8>) -> Self {
        let Self { jobs, .. } = &self;
        let jobs = jobs.clone();
        let mut old = self;
        let mut saved = Vec::new();
        old.with(|source, cx, sink| source.finish(cx, sink, &mut saved)).unwrap();
        drop(old);
        std::thread::sleep(Duration::from_millis(150));
        let mut new = Self::open(name, &[]).unwrap();
        new.jobs = jobs;
        if let Err(error) = new.source.resume(&state(saved), Some(Timestamp(1))) {
            print_line(&format!("rejected: {error}"));
        }
        new
    }

    fn start_of(&self, metric: &str) -> Option<Timestamp> {
        let samples = self.sink.samples();
        samples.filter(|(entry, ..)| entry.metric.name == metric).last().and_then(|it| it.0.start)
    }
}

#[test]
fn restarts_lose_nothing_of_living_tasks() {
    let _alone = alone();
    let Some((mut observer, [group])) = Observer::beside("taskstats", 61) else { return };
    let mut child = group.start("known 1200");
    let pid = child.id();
    let (mut last, mut start, mut restarts) = (0.0, None, 0);
    while child.try_wait().unwrap().is_none() {
        observer.watch_while({
            let mut rounds = 2;
            move || {
                rounds -= 1;
                rounds >= 0
            }
        });
        observer = observer.restart("taskstats", |state| state);
        restarts += 1;
        observer.collect();
        let gaps = observer.sink.take_gaps();
        assert_eq!(gaps.iter().map(|gap| gap.cause).collect::<Vec<_>>(), [Cause::AgentDown]);
        let Some(cpu) = observer.value(CPU, Some(&group)) else { continue };
        assert!(cpu >= last, "{cpu} after {last}");
        assert!(start.is_none() || start == observer.start_of(CPU), "the counter started again");
        (last, start) = (cpu, observer.start_of(CPU));
    }
    let report = fs::read_to_string(report_path(pid)).unwrap();
    fs::remove_file(report_path(pid)).unwrap();
    let before = report.split_once('\n').unwrap().0.parse::<f64>().unwrap() / 1e9;
    observer.end(&group);
    let value = |metric| observer.value(metric, Some(&group)).unwrap();
    let (cpu, truth) = (value(CPU), group.cpu_seconds() + before);
    print_line(&format!(
        "{restarts} restarts: {cpu:.6} s of {truth:.6} s, {} switches",
        value(SWITCHES)
    ));
    assert!(restarts >= 2);
    // The process may end while no source listens: then use since the last reading is in the gap.
    assert!(cpu <= truth + 0.005 && cpu >= truth - 0.35, "{cpu} of {truth}");
    assert_eq!(value("taskstats_write_char_bytes_total"), WRITTEN as f64);
}

#[test]
fn a_restart_loses_no_io() {
    let _alone = alone();
    let Some((mut observer, [group])) = Observer::beside("process", 62) else { return };
    let mut child = group.start("known 1500");
    let pid = child.id();
    let written = |observer: &Observer| {
        observer.value("process_write_char_bytes_total", Some(&group)).unwrap_or(0.0)
    };
    observer.watch_while(|| fs::metadata(format!("/proc/{pid}")).is_err());
    while written(&observer) < WRITTEN as f64 {
        std::thread::sleep(Duration::from_millis(50));
        observer.collect();
    }
    let before = written(&observer);
    observer = observer.restart("process", |state| state);
    observer.collect();
    assert_eq!(observer.sink.take_gaps().len(), 1);
    assert!(written(&observer) >= before, "{} after {before}", written(&observer));
    // Without its state a source starts new counters and reports a gap.
    for damage in [
        (|_| Vec::new()) as fn(Vec<u8>) -> Vec<u8>,
        |mut state| {
            state.truncate(state.len() / 2);
            state
        },
        |mut state| {
            state[0] ^= 2;
            state
        },
    ] {
        observer = observer.restart("process", damage);
        observer.collect();
        let gaps = observer.sink.take_gaps();
        assert_eq!(gaps.iter().map(|gap| gap.cause).collect::<Vec<_>>(), [Cause::AgentDown]);
        assert!(gaps[0].detail.contains("those of 1 restart"), "{}", gaps[0].detail);
        assert!(written(&observer) < before);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    fs::remove_file(report_path(pid)).ok();
}

/// Every cut and flipped bit of a state: no panic.
#[test]
fn damaged_states_never_panic() {
    let _alone = alone();
    let Some((mut observer, [group])) = Observer::beside("taskstats", 63) else { return };
    let mut child = group.start("sleepers 2");
    while group.processes() == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    observer.collect();
    let mut state = Vec::new();
    observer.with(|source, cx, sink| source.finish(cx, sink, &mut state)).unwrap();
    assert!(state.len() > 50, "{}", state.len());
    let jobs = observer.jobs.clone();
    for place in (0..state.len()).step_by(7) {
        let mut flipped = state.clone();
        flipped[place] ^= 0x81;
        for damaged in [&state[..place], &flipped] {
            let mut other = Observer::open("taskstats", &[]).unwrap();
            other.jobs = jobs.clone();
            other.source.resume(damaged, Some(Timestamp(1))).ok();
            other.collect();
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
}
