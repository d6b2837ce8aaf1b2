//! Memory by NUMA node.

use super::*;

const ANON_1: &str = r#"cgroup_numa_anon_bytes{"node": "1"}"#;
const FILE_0: &str = r#"cgroup_numa_file_bytes{"node": "0"}"#;

#[test]
fn both_versions_report_memory_by_node() {
    let mut machine = Machine::new(&[]);
    machine.write("u/job_1/memory.numa_stat", "anon N0=4096 N1=8192\nfile N0=12288 N1=0\n");
    let samples = machine.tick(&one_job(VERSION_2));
    assert_eq!((samples[ANON_1], samples[FILE_0]), (8192.0, 12288.0));
    let mut machine = Machine::new(&[]);
    let text = "anon=9 N0=9 N1=0\nhierarchical_file=3 N0=3 N1=0\nhierarchical_anon=3 N0=1 N1=2\n";
    machine.write("memory/job_1/memory.numa_stat", text);
    let samples = machine.tick(&one_job(&[Hierarchy::Memory]));
    assert_eq!((samples[ANON_1], samples[FILE_0]), (8192.0, 12288.0));
    assert_eq!(machine.state("memory"), "ok");
}

#[test]
fn a_machine_with_one_node_has_no_numa_series() {
    let mut machine = Machine::new(&[]);
    machine.write("u/job_1/memory.numa_stat", "anon N0=4096\nfile N0=12288\n");
    machine.write("u/job_1/memory.current", "16384\n");
    let samples = machine.tick(&one_job(VERSION_2));
    assert!(!samples.keys().any(|name| name.contains("numa")), "{samples:?}");
    assert_eq!(machine.state("memory"), "ok");
}
