//! Tests in a nested machine for kernel features that this machine may lack: the agent on full cgroup version
//! 2, and the store on a failing disk.

use crate::common::programs::{output, program};
use crate::repository::layers::repository;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a script in the nested machine with programs, and returns its output. `change` adjusts the command
/// first.
pub(crate) fn nested(
    script: &str,
    programs: &[PathBuf],
    change: impl FnOnce(&mut Command),
) -> String {
    let here = ["qemu-system-x86_64", "busybox", "cpio", "flock"];
    let there = |name: &str| output(Command::new("sh").args(["-c", &format!("command -v {name}")]));
    let mut missing: Vec<_> =
        here.iter().filter(|name| there(name).0 != 0).map(Path::new).collect();
    missing.extend(programs.iter().map(PathBuf::as_path).filter(|program| !program.is_file()));
    assert!(missing.is_empty(), "{missing:?} are missing; `make test` installs and builds them");
    let mut command = Command::new(repository().join("tests/common/nested/machine.sh"));
    command.arg(repository().join("tests/common/nested").join(script)).args(programs);
    change(&mut command);
    let (_, out, errors) = output(command.current_dir(repository()));
    assert!(out.contains("NESTED EXIT 0"), "{out}\n{errors}");
    out
}

/// Returns the values of printed samples, by metric, job and labels.
pub(crate) fn samples(out: &str) -> BTreeMap<(String, String, String), f64> {
    let mut samples = BTreeMap::new();
    for line in out.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [metric, _, job, labels, _, _, value] = fields[..] else { continue };
        let key = (metric.to_owned(), job.to_owned(), labels.to_owned());
        samples.insert(key, value.parse().unwrap());
    }
    samples
}

/// Returns a number from the script's output, mostly from the kernel itself.
fn kernel(out: &str, name: &str) -> f64 {
    let line = out.lines().find_map(|line| line.strip_prefix(&format!("KERNEL {name} ")));
    line.unwrap_or_else(|| panic!("the script tells no {name}:\n{out}")).trim().parse().unwrap()
}

#[test]
fn jobs_of_cgroup_version_2_are_counted_as_the_kernel_counts_them() {
    let out = nested("cgroup2.sh", &[program("jobmeter-agent")], |_| ());
    let samples = samples(&out);
    let of = |metric: &str, job: &str| {
        let key = (metric.to_owned(), job.to_owned(), "{}".to_owned());
        *samples.get(&key).unwrap_or_else(|| panic!("no {metric} of {job}:\n{out}"))
    };
    // The load has ended before the agent reads, so the values equal the kernel's.
    assert_eq!(of("cgroup_cpu_seconds_total", "slurm:7"), kernel(&out, "usage_usec") / 1e6);
    assert_eq!(of("cgroup_memory_peak_bytes", "slurm:7"), kernel(&out, "memory.peak"));
    assert_eq!(
        of("cgroup_cpu_throttled_seconds_total", "slurm:7"),
        kernel(&out, "throttled_usec") / 1e6
    );
    assert!(of("cgroup_pressure_cpu_some_seconds_total", "slurm:7") > 0.0);
    assert!(of("cgroup_memory_limit_bytes", "slurm:7") > 0.0);
    // A cgroup below an unprivileged user's scope is no job of the scheduler.
    assert!(!samples.keys().any(|(_, job, _)| job == "slurm:8"), "{out}");
}

/// The store's writer on ext4 on dm-flakey, with dropped writes, as in a power cut, and with failing writes.
#[test]
fn a_disk_that_loses_power_or_fails_costs_nothing_acknowledged() {
    let rounds: u64 = std::env::var("POWER_CUTS").map_or(2, |rounds| rounds.parse().unwrap());
    // The store's tests build this example.
    let own = std::env::current_exe().unwrap();
    let numbered = own.parent().unwrap().parent().unwrap().join("examples/numbered");
    let programs = [numbered, "/usr/sbin/dmsetup".into(), "/usr/sbin/mkfs.ext4".into()];
    let out = nested("flakey.sh", &programs, |command| {
        let modules = "crc16 crc32c_generic mbcache jbd2 ext4 brd dm-mod dm-flakey";
        command.env("NESTED_MODULES", modules).env("NESTED_ARGUMENTS", rounds.to_string());
        command.env("NESTED_SECONDS", (120 + 90 * rounds).to_string());
    });
    let lines = |start: &str| out.lines().filter(|line| line.starts_with(start)).count() as u64;
    assert_eq!(lines("ROUND "), 2 * rounds, "{out}");
    // The errors reached the store.
    assert!(kernel(&out, "refused") > 0.0, "{out}");
}
