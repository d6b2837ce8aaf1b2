//! The agent on a kernel with all of cgroup version 2: a nested machine, as this one may lack it.

use crate::layers::repository;
use crate::programs::{output, program};
use std::collections::BTreeMap;
use std::process::Command;

/// Runs the script in the nested machine; what it prints.
fn nested(script: &str) -> String {
    let missing = ["qemu-system-x86_64", "busybox", "cpio"].into_iter().filter(|name| {
        output(Command::new("sh").args(["-c", &format!("command -v {name}")])).0 != 0
    });
    let missing: Vec<_> = missing.collect();
    assert!(missing.is_empty(), "{missing:?} are missing; `make test` installs them");
    let mut command = Command::new(repository().join("tests/nested/machine.sh"));
    command.arg(repository().join("tests/nested").join(script)).arg(program("jobmeter-agent"));
    let (_, out, errors) = output(command.current_dir(repository()));
    assert!(out.contains("NESTED EXIT 0"), "{out}\n{errors}");
    out
}

/// The value of a printed sample: metric, job, labels.
fn samples(out: &str) -> BTreeMap<(String, String, String), f64> {
    let mut samples = BTreeMap::new();
    for line in out.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [metric, _, job, labels, _, _, value] = fields[..] else { continue };
        let key = (metric.to_owned(), job.to_owned(), labels.to_owned());
        samples.insert(key, value.parse().unwrap());
    }
    samples
}

/// A number that the script read from the kernel itself.
fn kernel(out: &str, name: &str) -> f64 {
    let line = out.lines().find_map(|line| line.strip_prefix(&format!("KERNEL {name} ")));
    line.unwrap_or_else(|| panic!("the script tells no {name}:\n{out}")).trim().parse().unwrap()
}

#[test]
fn jobs_of_cgroup_version_2_are_counted_as_the_kernel_counts_them() {
    let out = nested("cgroup2.sh");
    let samples = samples(&out);
    let of = |metric: &str, job: &str| {
        let key = (metric.to_owned(), job.to_owned(), "{}".to_owned());
        *samples.get(&key).unwrap_or_else(|| panic!("no {metric} of {job}:\n{out}"))
    };
    // The load had ended when the agent read: the numbers are the kernel's own.
    assert_eq!(of("cgroup_cpu_seconds_total", "slurm:7"), kernel(&out, "usage_usec") / 1e6);
    assert_eq!(of("cgroup_memory_peak_bytes", "slurm:7"), kernel(&out, "memory.peak"));
    assert_eq!(
        of("cgroup_cpu_throttled_seconds_total", "slurm:7"),
        kernel(&out, "throttled_usec") / 1e6
    );
    assert!(of("cgroup_pressure_cpu_some_seconds_total", "slurm:7") > 0.0);
    assert!(of("cgroup_memory_limit_bytes", "slurm:7") > 0.0);
    // The scope of a user that is not root is no scheduler's job.
    assert!(!samples.keys().any(|(_, job, _)| job == "slurm:8"), "{out}");
}
