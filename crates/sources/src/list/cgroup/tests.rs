//! Tests of the source on trees of files.

mod looks;
mod numa;

use super::SPEC;
use crate::{Context, Open, Options, PartState, Sink, Source, SourceError};
use cgroups::{Hierarchy, JobCgroup, JobDir, Jobs, UnitCgroup};
use kernel::Root;
use model::{ClusterId, DeviceId, JobId, JobKey, Timestamp};
use std::collections::BTreeMap;

const MADE: Timestamp = Timestamp(1_700_000_000_000_000);
const NOW: Timestamp = Timestamp(1_700_000_100_000_000);
const VERSION_2: &[Hierarchy] = &[Hierarchy::Unified];

struct Machine {
    dir: tempfile::TempDir,
    root: Root,
    options: Options,
    sink: Sink,
    source: Option<Box<dyn Source>>,
    now: Timestamp,
    /// Whether the next reading belongs to a burst.
    is_between: bool,
}

impl Machine {
    fn new(settings: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::recorded(dir.path()).unwrap();
        let options = Options::of(&SPEC, settings.iter().copied()).unwrap();
        let sink = Sink::new(DeviceId::new("n1").unwrap());
        let machine = Self { dir, root, options, sink, source: None, now: NOW, is_between: false };
        machine.write(
            "proc/self/mounts",
            "cgroup2 /u cgroup2 rw 0 0\ncgroup /blkio cgroup rw,blkio 0 0\n",
        );
        machine.write(
            "proc/diskstats",
            " 8 0 sda 10 0 1000 0 10 0 1000 0 0 0 0\n 253 0 dm-0 1 0 1000 0 1 0 1000 0 0 0 0\n",
        );
        machine
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn remove(&self, path: &str) {
        std::fs::remove_file(self.dir.path().join(path)).unwrap();
    }

    fn act(
        &mut self,
        jobs: &Jobs,
        act: impl FnOnce(&mut dyn Source, &Context<'_>, &mut Sink) -> Result<(), SourceError>,
    ) -> Result<BTreeMap<String, f64>, SourceError> {
        let open = Open { root: &self.root, options: &self.options, boot: Timestamp(0) };
        let source = self.source.get_or_insert_with(|| (SPEC.open)(&open).unwrap());
        self.sink.sealed();
        self.sink.begin(self.now);
        let is_between = self.is_between;
        let cx = Context {
            root: &self.root,
            now: self.now,
            boot: Timestamp(0),
            jobs,
            budget_us: 1,
            is_between,
        };
        act(&mut **source, &cx, &mut self.sink)?;
        self.now = self.now.plus(Timestamp::SECOND);
        let samples = self.sink.samples().map(|(entry, _, value)| {
            assert!(
                SPEC.metrics.iter().any(|metric| **metric == *entry.metric),
                "{}",
                entry.metric.name
            );
            assert!(entry.start.is_none_or(|start| start == MADE || entry.job.is_none()));
            let labels = entry.labels.as_str().replace("{}", "");
            (format!("{}{labels}", entry.metric.name), value)
        });
        Ok(samples.collect())
    }

    fn tick(&mut self, jobs: &Jobs) -> BTreeMap<String, f64> {
        self.act(jobs, |source, cx, out| source.collect(cx, out)).unwrap()
    }

    /// OOM kills of a job at the first reading of a restarted agent, and their start.
    fn restarted(
        &mut self,
        jobs: &Jobs,
        act: impl FnOnce(&mut dyn Source, &Context<'_>, &mut Sink) -> Result<(), SourceError>,
    ) -> Option<(f64, Option<Timestamp>)> {
        let open = Open { root: &self.root, options: &self.options, boot: Timestamp(0) };
        let mut source = (SPEC.open)(&open).unwrap();
        let (root, now, boot) = (&self.root, self.now, Timestamp(0));
        self.sink.begin(now);
        let cx = Context { root, now, boot, jobs, budget_us: 1, is_between: false };
        act(&mut *source, &cx, &mut self.sink).unwrap();
        let mut samples = self.sink.samples();
        let kills = samples.find(|(entry, ..)| entry.metric.name == "cgroup_oom_kills_total");
        kills.map(|(entry, _, value)| (value, entry.start))
    }

    fn state(&self, part: &str) -> &'static str {
        match self.sink.parts().iter().find(|(name, _)| *name == part) {
            Some((_, PartState::Ok)) => "ok",
            Some((_, PartState::Not(error))) => error.state(),
            None => "unknown",
        }
    }
}

fn key(id: i64) -> JobKey {
    JobKey { cluster: ClusterId::local(), id: JobId::new(id).unwrap() }
}

fn dirs(hierarchies: &[Hierarchy], name: &str) -> Vec<JobDir> {
    let path = |hierarchy: &Hierarchy| match hierarchy {
        Hierarchy::Unified => format!("u/{name}"),
        other => format!("{}/{name}", format!("{other:?}").to_lowercase()),
    };
    hierarchies.iter().map(|h| JobDir { hierarchy: *h, path: path(h) }).collect()
}

fn job(id: i64, hierarchies: &[Hierarchy]) -> JobCgroup {
    JobCgroup {
        key: key(id),
        display_id: id.to_string().into(),
        user: None,
        uid: None,
        dirs: dirs(hierarchies, &format!("job_{id}")),
        created: MADE,
        populated: true,
        directories_max: cgroups::USER_DIRECTORIES_MAX,
    }
}

fn one_job(hierarchies: &[Hierarchy]) -> Jobs {
    Jobs::new(vec![job(1, hierarchies)], Vec::new())
}

#[test]
fn version_2() {
    let mut machine = Machine::new(&[]);
    for (file, text) in [
        (
            "cpu.stat",
            "usage_usec 1500000\nuser_usec 1000000\nsystem_usec 500000\nnr_periods 4\nnr_throttled 2\nthrottled_usec 250000\nnr_bursts 1\nburst_usec 5\n",
        ),
        ("memory.current", "8192\n"),
        ("memory.peak", "16384\n"),
        ("memory.max", "max\n"),
        (
            "memory.stat",
            "anon 4096\nfile 2048\npgfault 9\npgmajfault 2\nworkingset_refault_file 3\n",
        ),
        ("memory.swap.current", "0\n"),
        ("memory.swap.max", "1024\n"),
        ("memory.events", "low 0\nhigh 0\nmax 7\noom 1\noom_kill 1\n"),
        (
            "io.stat",
            "8:0 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=0 dios=0\n253:0 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=0 dios=0\n",
        ),
        ("pids.current", "3\n"),
        ("pids.max", "100\n"),
        (
            "cpu.pressure",
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n",
        ),
    ] {
        machine.write(&format!("u/job_1/{file}"), text);
    }
    let samples = machine.tick(&one_job(VERSION_2));
    for (name, value) in [
        ("cgroup_cpu_seconds_total", 1.5),
        ("cgroup_cpu_user_seconds_total", 1.0),
        ("cgroup_cpu_system_seconds_total", 0.5),
        ("cgroup_cpu_throttled_seconds_total", 0.25),
        ("cgroup_cpu_burst_seconds_total", 0.000_005),
        ("cgroup_memory_bytes", 8192.0),
        ("cgroup_memory_peak_bytes", 16384.0),
        ("cgroup_memory_anon_bytes", 4096.0),
        ("cgroup_memory_swap_bytes", 0.0),
        ("cgroup_memory_swap_limit_bytes", 1024.0),
        ("cgroup_memory_limit_hits_total", 7.0),
        ("cgroup_oom_kills_total", 1.0),
        ("cgroup_page_faults_total", 9.0),
        ("cgroup_page_faults_major_total", 2.0),
        ("cgroup_refaults_file_total", 3.0),
        (r#"cgroup_io_read_bytes_total{"disk": "sda"}"#, 10.0),
        (r#"cgroup_io_writes_total{"disk": "sda"}"#, 2.0),
        ("cgroup_tasks", 3.0),
        ("cgroup_tasks_limit", 100.0),
        ("cgroup_pressure_cpu_some_seconds_total", 2.5),
        ("cgroup_pressure_cpu_full_seconds_total", 0.000_001),
        ("cgroup_jobs", 1.0),
    ] {
        assert_eq!(samples.get(name), Some(&value), "{name}");
    }
    assert!(!samples.contains_key("cgroup_memory_limit_bytes"), "`max` means no limit");
    assert!(!samples.keys().any(|name| name.contains("dm-0")), "it would count the bytes twice");
    for part in ["cpu", "throttling", "memory", "oom_kills", "io", "tasks", "pressure"] {
        assert_eq!(machine.state(part), "ok", "{part}");
    }
}

#[test]
fn version_1() {
    use Hierarchy::{Blkio, Cpu, Cpuacct, Memory, Pids};
    let mut machine = Machine::new(&[]);
    for (file, text) in [
        ("cpuacct/job_1/cpuacct.usage", "1500000999\n"),
        ("cpuacct/job_1/cpuacct.stat", "user 100\nsystem 50\n"),
        ("cpu/job_1/cpu.stat", "nr_periods 4\nnr_throttled 2\nthrottled_time 250000000\n"),
        ("memory/job_1/memory.usage_in_bytes", "8192\n"),
        ("memory/job_1/memory.max_usage_in_bytes", "16384\n"),
        ("memory/job_1/memory.limit_in_bytes", "9223372036854771712\n"),
        ("memory/job_1/memory.failcnt", "7\n"),
        ("memory/job_1/memory.stat", "rss 1\ntotal_rss 4096\ntotal_pgpgin 5\ntotal_swap 12\n"),
        ("memory/job_1/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"),
        (
            "blkio/blkio.throttle.io_service_bytes_recursive",
            "8:0 Read 512000\n8:0 Write 512000\nTotal 1024000\n",
        ),
        (
            "blkio/job_1/blkio.throttle.io_service_bytes_recursive",
            "8:0 Read 10\n8:0 Write 20\n8:0 Sync 30\nTotal 30\n",
        ),
        ("blkio/job_1/blkio.throttle.io_serviced_recursive", "8:0 Read 1\n8:0 Write 2\nTotal 3\n"),
        ("pids/job_1/pids.current", "3\n"),
        ("pids/job_1/pids.max", "max\n"),
    ] {
        machine.write(file, text);
    }
    let samples = machine.tick(&one_job(&[Blkio, Cpu, Cpuacct, Memory, Pids]));
    for (name, value) in [
        ("cgroup_cpu_seconds_total", 1.5),
        ("cgroup_cpu_user_seconds_total", 1.0),
        ("cgroup_cpu_system_seconds_total", 0.5),
        ("cgroup_cpu_throttled_seconds_total", 0.25),
        ("cgroup_memory_bytes", 8192.0),
        ("cgroup_memory_peak_bytes", 16384.0),
        ("cgroup_memory_anon_bytes", 4096.0),
        ("cgroup_memory_swap_bytes", 12.0),
        ("cgroup_memory_limit_hits_total", 7.0),
        ("cgroup_memory_charges_total", 5.0),
        ("cgroup_oom_kills_total", 1.0),
        (r#"cgroup_io_read_bytes_total{"disk": "sda"}"#, 10.0),
        (r#"cgroup_io_reads_total{"disk": "sda"}"#, 1.0),
        ("cgroup_tasks", 3.0),
    ] {
        assert_eq!(samples.get(name), Some(&value), "{name}");
    }
    for name in [
        "cgroup_memory_limit_bytes",
        "cgroup_tasks_limit",
        "cgroup_cpu_bursts_total",
        "cgroup_memory_file_bytes",
    ] {
        assert!(!samples.contains_key(name), "{name}");
    }
    assert_eq!((machine.state("io"), machine.state("pressure")), ("ok", "absent"));
}

#[test]
fn a_hybrid_machine_reports_each_value_once() {
    use Hierarchy::{Cpuacct, Memory, Unified};
    let mut machine = Machine::new(&[]);
    machine.write("cpuacct/job_1/cpuacct.usage", "2000000000\n");
    machine.write("memory/job_1/memory.usage_in_bytes", "1\n");
    machine.write("u/job_1/cpu.stat", "usage_usec 7\nuser_usec 7\nsystem_usec 0\n");
    machine.write("u/job_1/io.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n");
    let samples = machine.tick(&one_job(&[Unified, Cpuacct, Memory]));
    assert_eq!(samples["cgroup_cpu_seconds_total"], 2.0);
    assert_eq!(samples["cgroup_pressure_io_some_seconds_total"], 0.000_005);
    assert!(!samples.contains_key("cgroup_cpu_user_seconds_total"));
    assert_eq!((machine.state("cpu"), machine.state("pressure")), ("ok", "ok"));
    assert_eq!((machine.state("throttling"), machine.state("io")), ("absent", "absent"));
}

#[test]
fn transfers_that_version_1_does_not_count_are_absent_not_0() {
    let mut machine = Machine::new(&[]);
    machine.write("blkio/blkio.throttle.io_service_bytes_recursive", "Total 0\n");
    machine.write(
        "blkio/job_1/blkio.throttle.io_service_bytes_recursive",
        "8:0 Read 0\n8:0 Write 0\nTotal 0\n",
    );
    machine.write("blkio/job_1/blkio.throttle.io_serviced_recursive", "Total 0\n");
    machine.write("cpuacct/job_1/cpuacct.usage", "1\n");
    let samples = machine.tick(&one_job(&[Hierarchy::Blkio, Hierarchy::Cpuacct]));
    assert!(!samples.keys().any(|name| name.contains("_io_")), "{samples:?}");
    assert_eq!(machine.state("io"), "absent");
}

#[test]
fn version_1_kills_below_the_job_are_attributed_to_the_job() {
    let mut machine = Machine::new(&[]);
    let jobs = one_job(&[Hierarchy::Memory]);
    let kills = |machine: &Machine, dir: &str, kills: u64| {
        let text = format!("oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n");
        machine.write(&format!("memory/job_1{dir}/memory.oom_control"), &text);
    };
    kills(&machine, "", 0);
    assert_eq!(machine.tick(&jobs)["cgroup_oom_kills_total"], 0.0);
    kills(&machine, "/step_0", 1);
    kills(&machine, "/step_0/task_0", 2);
    assert_eq!(machine.tick(&jobs)["cgroup_oom_kills_total"], 3.0);
    // The directory's count disappears with the directory.
    std::fs::remove_dir_all(machine.dir.path().join("memory/job_1/step_0")).unwrap();
    kills(&machine, "/step_1", 0);
    assert_eq!(machine.tick(&jobs)["cgroup_oom_kills_total"], 3.0);
    kills(&machine, "/step_1", 4);
    machine.act(&jobs, |source, cx, out| source.drain(cx, out)).unwrap();
    std::fs::remove_dir_all(machine.dir.path().join("memory/job_1")).unwrap();
    let last = machine.act(&jobs, |source, cx, out| source.job_ended(&key(1), cx, out)).unwrap();
    assert_eq!(last["cgroup_oom_kills_total"], 7.0, "the kills of the last look");
}

#[test]
fn kills_before_the_first_reading_of_a_job_with_steps_are_not_counted_twice() {
    let mut machine = Machine::new(&[]);
    let jobs = one_job(&[Hierarchy::Memory]);
    machine.write("memory/job_1/memory.oom_control", "oom_kill 0\n");
    machine.write("memory/job_1/step_0/memory.oom_control", "oom_kill 5\n");
    let start = machine.now;
    let samples = machine.restarted(&jobs, |source, cx, out| source.collect(cx, out));
    assert_eq!(samples, Some((0.0, Some(start))), "the agent sent five before its restart");
}

#[test]
fn a_job_without_a_process_gives_no_sample_and_its_first_sample_is_complete() {
    let mut machine = Machine::new(&[]);
    machine.write("u/job_1/cpu.stat", "usage_usec 0\nuser_usec 0\nsystem_usec 0\n");
    let mut waiting = job(1, VERSION_2);
    waiting.populated = false;
    let samples = machine.tick(&Jobs::new(vec![waiting], Vec::new()));
    assert_eq!(samples.keys().collect::<Vec<_>>(), ["cgroup_jobs"]);
    assert_eq!(machine.state("cpu"), "unknown");
    machine.write("u/job_1/cpu.stat", "usage_usec 300000\nuser_usec 300000\nsystem_usec 0\n");
    let samples = machine.tick(&one_job(VERSION_2));
    assert_eq!(samples["cgroup_cpu_seconds_total"], 0.3);
    // A job created after the tick's time gives its first sample with the next tick.
    let mut new = job(2, VERSION_2);
    new.created = machine.now.plus(1);
    machine.write("u/job_2/cpu.stat", "usage_usec 1\nuser_usec 1\nsystem_usec 0\n");
    assert_eq!(machine.tick(&Jobs::new(vec![new], Vec::new())).len(), 1);
}

#[test]
fn after_the_last_reading_a_removed_cgroup_gives_no_sample() {
    let mut machine = Machine::new(&[]);
    let jobs = one_job(VERSION_2);
    machine.write("u/job_1/cpu.stat", "usage_usec 1000000\nuser_usec 1\nsystem_usec 0\n");
    machine.tick(&jobs);
    machine.write("u/job_1/cpu.stat", "usage_usec 1700000\nuser_usec 1\nsystem_usec 0\n");
    let last = machine.act(&jobs, |source, cx, out| source.job_ended(&key(1), cx, out)).unwrap();
    assert_eq!(last["cgroup_cpu_seconds_total"], 1.7);
    assert!(!last.contains_key("cgroup_jobs"));
    machine.remove("u/job_1/cpu.stat");
    let gone = machine.act(&jobs, |source, cx, out| source.job_ended(&key(1), cx, out)).unwrap();
    assert!(gone.is_empty(), "the cgroup is gone: neither 0 nor old totals");
    assert!(
        machine
            .act(&jobs, |source, cx, out| source.job_ended(&key(9), cx, out))
            .unwrap()
            .is_empty()
    );
    machine.write("u/job_1/cpu.stat", "usage_usec 5\nuser_usec 5\nsystem_usec 0\n");
    let samples = machine.tick(&jobs);
    assert!(
        !samples.contains_key("cgroup_cpu_seconds_total"),
        "the path now belongs to another run"
    );
    let samples = machine.tick(&Jobs::default());
    assert_eq!(samples["cgroup_jobs"], 0.0);
}

#[test]
fn a_counter_of_one_hierarchy_is_not_continued_by_another() {
    use Hierarchy::{Cpuacct, Memory, Unified};
    let mut machine = Machine::new(&[]);
    machine.write("cpuacct/job_1/cpuacct.stat", "user 663\nsystem 20\n");
    machine.write("memory/job_1/memory.usage_in_bytes", "1\n");
    machine
        .write("u/job_1/cpu.stat", "usage_usec 6800000\nuser_usec 6627321\nsystem_usec 172679\n");
    let samples = machine.tick(&one_job(&[Unified, Cpuacct, Memory]));
    assert_eq!(samples["cgroup_cpu_user_seconds_total"], 6.63);
    // The job's directories disappear one hierarchy after the other.
    machine.remove("cpuacct/job_1/cpuacct.stat");
    let samples = machine.tick(&one_job(&[Unified, Memory]));
    assert!(!samples.contains_key("cgroup_cpu_user_seconds_total"), "{samples:?}");
    assert_eq!(samples["cgroup_memory_bytes"], 1.0);
}

#[test]
fn a_controller_that_is_enabled_later_is_found() {
    let mut machine = Machine::new(&[]);
    let mut young = job(1, VERSION_2);
    young.created = MADE;
    machine.now = MADE.plus(Timestamp::SECOND);
    let jobs = Jobs::new(vec![young], Vec::new());
    machine.write("u/job_1/cpu.stat", "usage_usec 1\nuser_usec 1\nsystem_usec 0\n");
    assert!(!machine.tick(&jobs).contains_key("cgroup_memory_bytes"));
    machine.write("u/job_1/memory.current", "5\n");
    assert_eq!(machine.tick(&jobs)["cgroup_memory_bytes"], 5.0, "the job is new");
    machine.now = NOW;
    assert!(!machine.tick(&jobs).contains_key("cgroup_tasks"));
    machine.write("u/job_1/pids.current", "5\n");
    assert!(
        !machine.tick(&jobs).contains_key("cgroup_tasks"),
        "the job is old, and nothing changed"
    );
    let two = Jobs::new(vec![job(1, VERSION_2), job(2, VERSION_2)], Vec::new());
    assert_eq!(machine.tick(&two)["cgroup_tasks"], 5.0);
}

#[test]
fn an_invalid_file_is_reported_and_hides_no_other() {
    let mut machine = Machine::new(&[]);
    machine.write("u/job_1/cpu.stat", "usage_usec x\n");
    machine.write("u/job_1/memory.current", "5\n");
    let samples = machine.tick(&one_job(VERSION_2));
    assert_eq!(samples["cgroup_memory_bytes"], 5.0);
    assert_eq!(machine.state("cpu"), "broken");
    machine.remove("u/job_1/memory.current");
    let error =
        machine.act(&one_job(VERSION_2), |source, cx, out| source.collect(cx, out)).unwrap_err();
    assert!(error.to_string().contains("/u/job_1/cpu.stat: unexpected text at `x`"), "{error}");
}

#[test]
fn files_past_the_limit_are_opened_for_each_reading_and_counted() {
    let mut machine = Machine::new(&[("kept_files_max", "3")]);
    for id in 1..=2 {
        machine
            .write(&format!("u/job_{id}/cpu.stat"), "usage_usec 1\nuser_usec 1\nsystem_usec 0\n");
        machine.write(&format!("u/job_{id}/pids.current"), "1\n");
        machine.write(&format!("u/job_{id}/memory.current"), "1\n");
    }
    let jobs = Jobs::new(vec![job(1, VERSION_2), job(2, VERSION_2)], Vec::new());
    // `cpu.stat` is read twice: for processor time, and for throttling, which is absent here.
    let first = machine.tick(&jobs)["cgroup_unkept_reads_total"];
    let second = machine.tick(&jobs)["cgroup_unkept_reads_total"];
    assert_eq!((first, second), (5.0, 10.0));
    let one = one_job(VERSION_2);
    let third = machine.tick(&one)["cgroup_unkept_reads_total"];
    assert_eq!(
        third, 11.0,
        "the files of the removed job are closed, those of the other kept open"
    );
    let mut generous = Machine::new(&[]);
    generous.write("u/job_1/pids.current", "1\n");
    assert!(!generous.tick(&one).contains_key("cgroup_unkept_reads_total"));
}

#[test]
fn units_are_reported_as_parts_of_the_device() {
    let mut machine = Machine::new(&[]);
    let unit =
        |name: &str| UnitCgroup { name: name.into(), dirs: dirs(VERSION_2, name), created: MADE };
    machine.write("u/ssh.service/cpu.stat", "usage_usec 1500000\nuser_usec 1\nsystem_usec 0\n");
    machine.write("u/ssh.service/memory.current", "7\n");
    machine.write("u/ssh.service/io.stat", "8:0 rbytes=10 wbytes=20 rios=1 wios=2\n253:0 rbytes=10 wbytes=20 rios=1 wios=2\n8:16 rbytes=1 wbytes=2 rios=1 wios=2\n");
    machine.write("u/x.service/cpu.stat", "usage_usec 5\nuser_usec 5\nsystem_usec 0\n");
    let jobs = Jobs::new(Vec::new(), vec![unit("ssh.service"), unit("x.service")]);
    let samples = machine.tick(&jobs);
    for (name, value) in [
        (r#"cgroup_unit_cpu_seconds_total{"unit": "ssh.service"}"#, 1.5),
        (r#"cgroup_unit_memory_bytes{"unit": "ssh.service"}"#, 7.0),
        (r#"cgroup_unit_io_read_bytes_total{"unit": "ssh.service"}"#, 11.0),
        (r#"cgroup_unit_io_write_bytes_total{"unit": "ssh.service"}"#, 22.0),
        (r#"cgroup_unit_cpu_seconds_total{"unit": "x.service"}"#, 0.000_005),
    ] {
        assert_eq!(samples.get(name), Some(&value), "{name}");
    }
    assert_eq!(samples.len(), 6);
}

#[test]
fn without_cgroups_the_source_is_absent() {
    let machine = Machine::new(&[]);
    machine.write("proc/self/mounts", "proc /proc proc rw 0 0\n");
    let open = Open { root: &machine.root, options: &machine.options, boot: Timestamp(0) };
    let error = (SPEC.open)(&open).map(|_| ()).unwrap_err();
    assert_eq!(
        error,
        SourceError::absent(
            "no cgroup hierarchy is mounted; run `mount -t cgroup2 none /sys/fs/cgroup`"
        )
    );
}
