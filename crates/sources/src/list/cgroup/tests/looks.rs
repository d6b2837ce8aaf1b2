//! Tests of looks between two readings.

use super::*;

fn cpu(machine: &Machine, us: u64) {
    machine.write("u/job_1/cpu.stat", &format!("usage_usec {us}\nuser_usec 1\nsystem_usec 0\n"));
}

fn look(machine: &mut Machine, jobs: &Jobs) {
    let samples = machine.act(jobs, |source, cx, out| source.drain(cx, out)).unwrap();
    assert!(samples.is_empty(), "a look adds no sample");
}

fn end(machine: &mut Machine, jobs: &Jobs) -> Option<f64> {
    let samples = machine.act(jobs, |source, cx, out| source.job_ended(&key(1), cx, out)).unwrap();
    samples.get("cgroup_cpu_seconds_total").copied()
}

fn waits(machine: &Machine) -> bool {
    machine.source.as_ref().unwrap().quiet().is_some()
}

#[test]
fn the_last_reading_of_a_removed_cgroup_has_the_values_of_the_last_look() {
    let mut machine = Machine::new(&[]);
    let jobs = one_job(VERSION_2);
    // The job started and ended between two readings.
    cpu(&machine, 700_000);
    look(&mut machine, &jobs);
    cpu(&machine, 800_000);
    look(&mut machine, &jobs);
    machine.remove("u/job_1/cpu.stat");
    look(&mut machine, &jobs);
    assert_eq!(end(&mut machine, &jobs), Some(0.8));
    assert_eq!(end(&mut machine, &jobs), None, "once");
    // A reading followed the last look.
    let mut machine = Machine::new(&[]);
    cpu(&machine, 1_000_000);
    look(&mut machine, &jobs);
    cpu(&machine, 1_100_000);
    assert_eq!(machine.tick(&jobs)["cgroup_cpu_seconds_total"], 1.1);
    machine.remove("u/job_1/cpu.stat");
    assert_eq!(end(&mut machine, &jobs), None);
}

#[test]
fn a_new_directory_at_the_same_path_belongs_to_another_run() {
    let mut machine = Machine::new(&[]);
    cpu(&machine, 900_000);
    look(&mut machine, &one_job(VERSION_2));
    cpu(&machine, 5);
    let gone = Jobs::new(vec![job(1, &[]), job(2, VERSION_2)], Vec::new());
    assert_eq!(end(&mut machine, &gone), Some(0.9));
}

#[test]
fn a_reading_of_a_burst_counts_as_a_look() {
    let mut machine = Machine::new(&[]);
    let jobs = one_job(VERSION_2);
    cpu(&machine, 1_000_000);
    machine.tick(&jobs);
    cpu(&machine, 1_300_000);
    machine.is_between = true;
    machine.tick(&jobs);
    machine.is_between = false;
    machine.remove("u/job_1/cpu.stat");
    assert_eq!(end(&mut machine, &jobs), Some(1.3));
}

#[test]
fn every_job_is_looked_at_before_the_source_waits() {
    let mut machine = Machine::new(&[]);
    let many = Jobs::new((1..=40).map(|id| job(id, VERSION_2)).collect(), Vec::new());
    for us in [5, 2_000_000] {
        cpu(&machine, us);
        for wait in [false, false, true] {
            look(&mut machine, &many);
            assert_eq!(waits(&machine), wait);
        }
    }
    machine.remove("u/job_1/cpu.stat");
    assert_eq!(end(&mut machine, &many), Some(2.0));
}

#[test]
fn memory_and_kills_of_a_removed_cgroup_are_those_of_the_last_look() {
    let mut machine = Machine::new(&[]);
    let (jobs, files) = (one_job(VERSION_2), ["memory.current", "memory.peak", "memory.events"]);
    cpu(&machine, 1_000_000);
    for file in files {
        let text = if file == "memory.events" { "max 0\noom_kill 0\n" } else { "4096\n" };
        machine.write(&format!("u/job_1/{file}"), text);
    }
    assert_eq!(machine.tick(&jobs)["cgroup_oom_kills_total"], 0.0);
    cpu(&machine, 1_200_000);
    machine.write("u/job_1/memory.current", "1048576\n");
    machine.write("u/job_1/memory.peak", "8388608\n");
    machine.write("u/job_1/memory.events", "max 7\noom_kill 2\n");
    look(&mut machine, &jobs);
    machine.remove("u/job_1/cpu.stat");
    files.iter().for_each(|file| machine.remove(&format!("u/job_1/{file}")));
    let samples = machine.act(&jobs, |source, cx, out| source.job_ended(&key(1), cx, out)).unwrap();
    for (name, value) in [
        ("cgroup_memory_bytes", 1_048_576.0),
        ("cgroup_memory_peak_bytes", 8_388_608.0),
        ("cgroup_memory_limit_hits_total", 7.0),
        ("cgroup_oom_kills_total", 2.0),
    ] {
        assert_eq!(samples.get(name), Some(&value), "{name}");
    }
}

fn unread(machine: &mut Machine, jobs: &Jobs) -> Option<f64> {
    let samples = machine.act(jobs, |source, cx, out| source.job_ended(&key(1), cx, out)).unwrap();
    samples.get("cgroup_unread_seconds").copied()
}

#[test]
fn a_late_last_reading_reports_unread_seconds_once() {
    let mut machine = Machine::new(&[]);
    let jobs = one_job(VERSION_2);
    cpu(&machine, 1_000_000);
    machine.tick(&jobs);
    machine.tick(&jobs);
    machine.remove("u/job_1/cpu.stat");
    assert_eq!(unread(&mut machine, &jobs), Some(1.0), "a second since the last reading");
    assert_eq!(unread(&mut machine, &jobs), None, "once");
    // A job without any reading, removed completely.
    let mut machine = Machine::new(&[]);
    let gone = Jobs::new(vec![job(1, &[])], Vec::new());
    assert_eq!(unread(&mut machine, &gone), Some(100.0), "since its cgroup was created");
}

#[test]
fn a_job_without_an_observed_process_is_unread_from_its_start() {
    let mut machine = Machine::new(&[]);
    // Its processes came and went between two looks, and its cgroup with them.
    let short = JobCgroup { populated: false, ..job(1, VERSION_2) };
    let jobs = Jobs::new(vec![short], Vec::new());
    assert!(machine.tick(&jobs).keys().all(|metric| metric == "cgroup_jobs"));
    let age = machine.now.since(jobs.iter().next().unwrap().created) as f64 / 1e6;
    assert_eq!(unread(&mut machine, &jobs).map(f64::round), Some(age.round()));
    assert_eq!(unread(&mut machine, &jobs), None, "once");
}

#[test]
fn a_reading_after_the_last_process_leaves_no_unread_seconds() {
    let mut machine = Machine::new(&[]);
    let jobs = one_job(VERSION_2);
    cpu(&machine, 1_000_000);
    assert_eq!(unread(&mut machine, &jobs), None, "its last process ended");
    machine.tick(&jobs);
    machine.remove("u/job_1/cpu.stat");
    assert_eq!(unread(&mut machine, &jobs), None, "nothing ran since");
    // The job started another process afterwards.
    let mut machine = Machine::new(&[]);
    cpu(&machine, 1_000_000);
    assert_eq!(unread(&mut machine, &jobs), None);
    cpu(&machine, 1_000_001);
    machine.tick(&jobs);
    machine.remove("u/job_1/cpu.stat");
    assert_eq!(unread(&mut machine, &jobs), Some(1.0));
}

fn pressure(machine: &Machine, some_us: u64) {
    let line =
        |word: &str, us: u64| format!("{word} avg10=0.00 avg60=0.00 avg300=0.00 total={us}\n");
    let text = line("some", some_us) + &line("full", 0);
    machine.write("u/job_1/cpu.pressure", &text);
}

#[test]
fn what_is_not_read_is_stated_of_pressure_and_transfers_too() {
    let mut machine = Machine::new(&[]);
    let jobs = one_job(VERSION_2);
    let ends = |machine: &mut Machine, jobs: &Jobs| {
        machine.act(jobs, |source, cx, out| source.job_ended(&key(1), cx, out)).unwrap()
    };
    cpu(&machine, 1_000_000);
    pressure(&machine, 100_000);
    machine.write("u/job_1/io.stat", "8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0\n");
    machine.tick(&jobs);
    // Pressure is looked at as often as processor time.
    cpu(&machine, 1_900_000);
    pressure(&machine, 900_000);
    look(&mut machine, &jobs);
    ["cpu.stat", "cpu.pressure", "io.stat"]
        .iter()
        .for_each(|file| machine.remove(&format!("u/job_1/{file}")));
    let samples = ends(&mut machine, &jobs);
    assert_eq!(samples.get("cgroup_pressure_cpu_some_seconds_total"), Some(&0.9));
    let unread = |name: &str| samples.get(name).copied();
    assert_eq!(unread("cgroup_pressure_unread_seconds"), unread("cgroup_unread_seconds"));
    // Processor time can be read when another file cannot.
    let mut machine = Machine::new(&[]);
    cpu(&machine, 1_000_000);
    pressure(&machine, 100_000);
    machine.tick(&jobs);
    machine.remove("u/job_1/cpu.pressure");
    look(&mut machine, &jobs);
    machine.remove("u/job_1/cpu.stat");
    let samples = ends(&mut machine, &jobs);
    let unread = |name: &str| samples.get(name).copied();
    assert!(unread("cgroup_pressure_unread_seconds") > unread("cgroup_unread_seconds"));
    assert_eq!(unread("cgroup_io_unread_seconds"), None, "the job has no such file");
}

#[test]
fn the_other_files_of_a_job_that_used_no_processor_time_are_not_read() {
    for (used_us, peak) in [(1_000_000, None), (1_000_001, Some(&8192.0))] {
        let mut machine = Machine::new(&[]);
        let jobs = one_job(VERSION_2);
        cpu(&machine, 1_000_000);
        machine.write("u/job_1/memory.peak", "4096\n");
        machine.tick(&jobs);
        machine.write("u/job_1/memory.peak", "8192\n");
        cpu(&machine, used_us);
        look(&mut machine, &jobs);
        machine.remove("u/job_1/memory.peak");
        assert_eq!(machine.tick(&jobs).get("cgroup_memory_peak_bytes"), peak);
    }
}
