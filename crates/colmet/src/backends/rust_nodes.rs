//! Backends of Rust nodes. The tables one after another, first memory, then cpu, then perfhw, are the numbering of
//! colmet-rs (`metrics_order.yml`, version 1).

use super::Shown::Count;
use super::{Backend, Column, NANO, grows, not, signed};
use crate::equivalent::Scope;
use crate::formula::Formula::{Metric, Scaled};
use crate::formula::Scale;
use model::{Kind, Unit};

/// A value of only one directory.
const fn own_directory(theirs: &'static str, unit: Unit, kind: Kind) -> Column {
    let why =
        "only the job's own directory; ours include the directories below, like the total_ values";
    not(theirs, unit, kind, Scale::ONE, why)
}

/// Memory of a job's cgroup, from Rust nodes.
pub static MEMORY: Backend = Backend {
    id: "memory",
    title: "memory (Rust nodes)",
    word: "memory",
    scope: Scope::Job,
    note: "From `memory.stat` of cgroup version 1.",
    columns: &[
        own_directory("cache", Unit::Bytes, Kind::Gauge),
        own_directory("rss", Unit::Bytes, Kind::Gauge),
        own_directory("rss_huge", Unit::Bytes, Kind::Gauge),
        own_directory("shmem", Unit::Bytes, Kind::Gauge),
        own_directory("mapped_file", Unit::Bytes, Kind::Gauge),
        own_directory("dirty", Unit::Bytes, Kind::Gauge),
        own_directory("writeback", Unit::Bytes, Kind::Gauge),
        own_directory("swap", Unit::Bytes, Kind::Gauge),
        own_directory("pgpgin", Unit::Count, Kind::Counter),
        own_directory("pgpgout", Unit::Count, Kind::Counter),
        own_directory("pgfault", Unit::Count, Kind::Counter),
        own_directory("pgmajfault", Unit::Count, Kind::Counter),
        own_directory("inactive_anon", Unit::Bytes, Kind::Gauge),
        own_directory("active_anon", Unit::Bytes, Kind::Gauge),
        own_directory("inactive_file", Unit::Bytes, Kind::Gauge),
        own_directory("active_file", Unit::Bytes, Kind::Gauge),
        own_directory("unevictable", Unit::Bytes, Kind::Gauge),
        signed("hierarchical_memory_limit", Count, Metric("cgroup_memory_limit_bytes")),
        not(
            "hierarchical_memsw_limit",
            Unit::Bytes,
            Kind::Gauge,
            Scale::ONE,
            "limit of memory plus swap, which version 2 lacks",
        ),
        signed("total_cache", Count, Metric("cgroup_memory_file_bytes")),
        signed("total_rss", Count, Metric("cgroup_memory_anon_bytes")),
        signed("total_rss_huge", Count, Metric("cgroup_memory_anon_huge_bytes")),
        signed("total_shmem", Count, Metric("cgroup_memory_shmem_bytes")),
        signed("total_mapped_file", Count, Metric("cgroup_memory_mapped_bytes")),
        signed("total_dirty", Count, Metric("cgroup_memory_dirty_bytes")),
        signed("total_writeback", Count, Metric("cgroup_memory_writeback_bytes")),
        signed("total_swap", Count, Metric("cgroup_memory_swap_bytes")),
        signed("total_pgpgin", Count, Metric("cgroup_memory_charges_total")),
        signed("total_pgpgout", Count, Metric("cgroup_memory_uncharges_total")),
        signed("total_pgfault", Count, Metric("cgroup_page_faults_total")),
        signed("total_pgmajfault", Count, Metric("cgroup_page_faults_major_total")),
        signed("total_inactive_anon", Count, Metric("cgroup_memory_inactive_anon_bytes")),
        signed("total_active_anon", Count, Metric("cgroup_memory_active_anon_bytes")),
        signed("total_inactive_file", Count, Metric("cgroup_memory_inactive_file_bytes")),
        signed("total_active_file", Count, Metric("cgroup_memory_active_file_bytes")),
        signed("total_unevictable", Count, Metric("cgroup_memory_unevictable_bytes")),
    ],
    ..Backend::DEFAULT
};

/// Throttling of a job's cgroup, from Rust nodes.
pub static CPU: Backend = Backend {
    id: "cpu",
    title: "cpu (Rust nodes)",
    word: "cpu",
    scope: Scope::Job,
    note: "From `cpu.stat` of cgroup version 1.",
    columns: &[
        signed("nr_periods", Count, Metric("cgroup_cpu_periods_total")),
        signed("nr_throttled", Count, Metric("cgroup_cpu_throttled_periods_total")),
        signed("throttled_time", Count, Scaled("cgroup_cpu_throttled_seconds_total", NANO, 1)),
    ],
    ..Backend::DEFAULT
};

/// The hardware counters by name: those of `--perfhw-list`, and the backend `perfhw` of Rust nodes.
pub static EVENTS: Backend = Backend {
    id: "perfhw",
    title: "perfhw events",
    word: "perfhw",
    scope: Scope::Job,
    note: "The names of `--perfhw-list`. Colmet's cache events have no operation and no result, so all are read accesses, and the last three of them equal the first, the second and the first.",
    columns: &[
        grows("cpu_cycles", Metric("perf_cpu_cycles_total")),
        grows("instructions", Metric("perf_instructions_total")),
        grows("cache_references", Metric("perf_cache_references_total")),
        grows("cache_misses", Metric("perf_cache_misses_total")),
        grows("branch_instructions", Metric("perf_branch_instructions_total")),
        grows("branch_misses", Metric("perf_branch_misses_total")),
        grows("bus_cycles", Metric("perf_bus_cycles_total")),
        grows("ref_cpu_cycles", Metric("perf_ref_cpu_cycles_total")),
        grows("cache_l1d", Metric("perf_cache_l1d_read_access_total")),
        grows("cache_ll", Metric("perf_cache_ll_read_access_total")),
        grows("cache_dtlb", Metric("perf_cache_dtlb_read_access_total")),
        grows("cache_itlb", Metric("perf_cache_itlb_read_access_total")),
        grows("cache_bpu", Metric("perf_cache_bpu_read_access_total")),
        grows("cache_node", Metric("perf_cache_node_read_access_total")),
        grows("cache_op_read", Metric("perf_cache_l1d_read_access_total")),
        grows("cache_op_prefetch", Metric("perf_cache_ll_read_access_total")),
        grows("cache_result_access", Metric("perf_cache_l1d_read_access_total")),
        grows("cpu_clock", Scaled("perf_cpu_clock_seconds_total", NANO, 1)),
        grows("task_clock", Scaled("perf_task_clock_seconds_total", NANO, 1)),
        grows("page_faults", Metric("perf_page_faults_total")),
        grows("context_switches", Metric("perf_context_switches_total")),
        grows("cpu_migrations", Metric("perf_cpu_migrations_total")),
        grows("page_faults_min", Metric("perf_page_faults_min_total")),
        grows("page_faults_maj", Metric("perf_page_faults_maj_total")),
        grows("alignment_faults", Metric("perf_alignment_faults_total")),
        grows("emulation_faults", Metric("perf_emulation_faults_total")),
        grows("dummy", Metric("perf_dummy_total")),
        grows("bpf_output", Metric("perf_bpf_output_total")),
    ],
    ..Backend::DEFAULT
};
