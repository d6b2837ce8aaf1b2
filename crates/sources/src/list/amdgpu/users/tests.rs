//! Clients that come, go, fall back and are shared.

use super::*;
use cgroups::{Hierarchy, JobCgroup, JobDir, Jobs};
use model::{ClusterId, JobId};
use proptest::prelude::*;
use std::fs;
use std::path::Path;

const PCI: &str = "0000:83:00.0";

struct Machine {
    dir: tempfile::TempDir,
    jobs: Jobs,
    users: Users,
    second: i64,
}

fn job(number: i64, created: i64) -> JobCgroup {
    let path = format!("sys/fs/cgroup/job_{number}");
    JobCgroup {
        key: JobKey { cluster: ClusterId::local(), id: JobId::new(number).unwrap() },
        display_id: number.to_string().into(),
        user: None,
        uid: None,
        dirs: vec![JobDir { hierarchy: Hierarchy::Unified, path }],
        created: Timestamp::from_seconds(created),
        populated: true,
        directories_max: cgroups::USER_DIRECTORIES_MAX,
    }
}

fn write(dir: &Path, path: &str, text: &str) {
    let path = dir.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

impl Machine {
    /// Jobs 1, there from the beginning, and 2, which is seen at the second look.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for number in [1, 2] {
            write(dir.path(), &format!("sys/fs/cgroup/job_{number}/cgroup.procs"), "");
        }
        let jobs = Jobs::new(vec![job(1, 1)], Vec::new());
        Self { dir, jobs, users: Users::default(), second: 100 }
    }

    fn processes(&self, job: u32, pids: &str) {
        write(self.dir.path(), &format!("sys/fs/cgroup/job_{job}/cgroup.procs"), pids);
    }

    fn client(&self, pid: u32, file: u32, id: u64, gfx_ns: u64) {
        let text = format!(
            "pos:\t0\ndrm-driver:\tamdgpu\ndrm-client-id:\t{id}\ndrm-pdev:\t{PCI}\n\
             drm-memory-vram:\t4 KiB\ndrm-engine-gfx:\t{gfx_ns} ns\n"
        );
        write(self.dir.path(), &format!("proc/{pid}/fdinfo/{file}"), &text);
    }

    fn look(&mut self) -> PartState {
        self.second += 31;
        let root = Root::recorded(self.dir.path()).unwrap();
        let now = Timestamp::from_seconds(self.second);
        let cards = [Card { gpu: "card1".into(), pci: PCI.into(), kfd: Some(33_536) }];
        let (boot, budget_us) = (Timestamp::from_seconds(1), 1_000_000);
        let cx = Context { root: &root, now, boot, jobs: &self.jobs, budget_us, is_between: false };
        self.users.look(&cx, &cards)
    }

    /// Engine time in ns, memory and processes of a job.
    fn used(&self, job: usize) -> (Option<u64>, Option<u64>, u32) {
        let Some(used) = self.users.users()[job].used.first() else { return (None, None, 0) };
        (used.engines.first().copied().flatten(), used.vram_bytes, used.processes)
    }
}

#[test]
fn the_use_of_a_client_remains_when_it_closes() {
    let mut machine = Machine::new();
    machine.processes(1, "10\n");
    machine.client(10, 5, 71, 1000);
    machine.look();
    // It was there before: what it used until now is not this reading's.
    assert_eq!(machine.used(0), (Some(0), Some(4096), 1));
    machine.client(10, 5, 71, 1500);
    machine.client(10, 6, 72, 40);
    machine.look();
    assert_eq!(machine.used(0), (Some(540), Some(8192), 1));
    fs::remove_file(machine.dir.path().join("proc/10/fdinfo/5")).unwrap();
    machine.client(10, 6, 72, 50);
    machine.look();
    assert_eq!(machine.used(0), (Some(550), Some(4096), 1));
    machine.processes(1, "");
    machine.look();
    assert_eq!(machine.used(0), (Some(550), None, 0));
}

#[test]
fn a_counter_never_falls_and_a_client_counts_once() {
    let mut machine = Machine::new();
    machine.look();
    machine.processes(1, "10\n11\n");
    // Inherited, and duplicated.
    for (pid, file) in [(10, 5), (10, 6), (11, 5)] {
        machine.client(pid, file, 71, 1000);
    }
    machine.look();
    assert_eq!(machine.used(0), (Some(1000), Some(4096), 2));
    for (value, want) in [(900, 1000), (950, 1000), (1100, 1100)] {
        for (pid, file) in [(10, 5), (10, 6), (11, 5)] {
            machine.client(pid, file, 71, value);
        }
        machine.look();
        assert_eq!(machine.used(0).0, Some(want));
    }
    // A reading that the driver left out is no end: it counts on, and memory is not told meanwhile.
    for (pid, file) in [(10, 5), (10, 6), (11, 5)] {
        write(machine.dir.path(), &format!("proc/{pid}/fdinfo/{file}"), "pos:\t0\n");
    }
    machine.look();
    machine.look();
    assert_eq!(machine.used(0), (Some(1100), None, 0));
    machine.client(10, 5, 71, 1200);
    machine.look();
    assert_eq!(machine.used(0).0, Some(1200));
}

#[test]
fn a_job_that_comes_later_counts_from_its_beginning() {
    let mut machine = Machine::new();
    machine.look();
    machine.jobs = Jobs::new(vec![job(1, 1), job(2, 110)], Vec::new());
    // Jobs put together by hand have the same number each time.
    machine.users.generation = Some(u64::MAX);
    machine.processes(2, "20\n");
    machine.client(20, 3, 80, 7000);
    machine.look();
    assert_eq!(machine.users.users()[0].start, Timestamp::from_seconds(131));
    assert_eq!(machine.users.users()[1].start, Timestamp::from_seconds(110));
    assert_eq!(machine.used(1), (Some(7000), Some(4096), 1));
    // Other drivers' GPUs are none of ours.
    let other =
        "drm-driver:\ti915\ndrm-client-id:\t1\ndrm-pdev:\t0000:83:00.0\ndrm-engine-gfx:\t9 ns\n";
    write(machine.dir.path(), "proc/20/fdinfo/4", other);
    machine.look();
    assert_eq!(machine.used(1), (Some(7000), Some(4096), 1));
}

#[test]
fn values_of_the_compute_driver() {
    let mut machine = Machine::new();
    let kfd = |pid: u32, file: &str, value: &str| format!("{KFD}/{pid}/{file}|{value}");
    let put = |machine: &Machine, line: String| {
        let (path, value) = line.split_once('|').unwrap();
        write(machine.dir.path(), path, value);
    };
    machine.look();
    machine.processes(1, "10\n11\n12\n");
    for (pid, bytes, sdma_us) in
        [(10, "4096\n", "70\n"), (11, "8192\n", "30\n"), (12, "0\n", "0\n")]
    {
        put(&machine, kfd(pid, "vram_33536", bytes));
        put(&machine, kfd(pid, "sdma_33536", sdma_us));
        put(&machine, kfd(pid, "stats_33536/cu_occupancy", if pid == 12 { "0\n" } else { "6\n" }));
    }
    machine.look();
    let used = machine.users.users()[0].used[0].clone();
    assert_eq!((used.kfd_bytes, used.compute_units), (Some(12_288), Some(12)));
    assert_eq!(
        (used.sdma_us, used.processes),
        (Some(100), 2),
        "12 has the GPU and leaves it alone"
    );
    put(&machine, kfd(10, "sdma_33536", "60\n"));
    machine.processes(1, "10\n");
    machine.look();
    assert_eq!(machine.users.users()[0].used[0].sdma_us, Some(100));
    put(&machine, kfd(10, "sdma_33536", "75\n"));
    machine.look();
    assert_eq!(machine.users.users()[0].used[0].sdma_us, Some(105));
}

#[test]
fn clients_beyond_the_limit_are_reported() {
    let mut machine = Machine::new();
    machine.processes(1, "10\n11\n");
    for file in 0..u32::try_from(CLIENTS_MAX).unwrap() {
        machine.client(10, file, u64::from(file), 1);
    }
    assert_eq!(machine.look(), PartState::Ok);
    machine.client(11, 3, 1 << 40, 1);
    let PartState::Not(SourceError::Broken(why)) = machine.look() else { panic!("it is told") };
    assert!(why.starts_with("1 open files or clients are more than"), "{why}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever clients do, the counter grows by what they grew.
    #[test]
    fn the_sum_is_that_of_all_that_ever_were(steps in prop::collection::vec((0_u64..4, 0_u64..50), 1..20)) {
        let mut machine = Machine::new();
        machine.look();
        machine.processes(1, "10\n");
        let mut values = [0_u64; 4];
        for (which, grown) in steps {
            let place = usize::try_from(which).unwrap();
            values[place] += grown;
            // One at a time is open.
            fs::remove_dir_all(machine.dir.path().join("proc")).ok();
            machine.client(10, 5, which, values[place]);
            machine.second -= 30;
            machine.users.processes.values_mut().for_each(|process| process.changed = true);
            machine.look();
            prop_assert_eq!(machine.used(0).0, Some(values.iter().sum()));
        }
    }
}
