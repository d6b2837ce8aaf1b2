//! Colmet: the records of its Python node, and the keys of its Rust nodes.

use super::{Group, grows, is, not};

/// In the order of Colmet's messages.
pub(super) const GROUPS: &[&Group] = &[
    &TASKSTATS,
    &PROCSTATS,
    &JOBPROC,
    &PERFHW,
    &EVENTS,
    &RAPL,
    &TEMPERATURE,
    &INFINIBAND,
    &LUSTRE,
    &IPMIPOWER,
    &NVIDIA,
    &MEMORY,
    &CPU,
];

static TASKSTATS: Group = Group {
    name: "taskstats_default",
    note: "Per job. Ours include ended tasks, and count each task once.",
    rows: &[
        is("cpu_count", "taskstats_cpu_delays_total"),
        is("cpu_delay_total", "taskstats_cpu_delay_seconds_total * 1000000000"),
        is("blkio_count", "taskstats_blkio_delays_total"),
        is("blkio_delay_total", "taskstats_blkio_delay_seconds_total * 1000000000"),
        is("swapin_count", "taskstats_swapin_delays_total"),
        is("swapin_delay_total", "taskstats_swapin_delay_seconds_total * 1000000000"),
        is("cpu_run_real_total", "taskstats_cpu_run_real_seconds_total * 1000000000"),
        is("cpu_run_virtual_total", "taskstats_cpu_run_virtual_seconds_total * 1000000000"),
        is("ac_btime", "taskstats_begin_seconds"),
        is("ac_etime", "taskstats_elapsed_seconds * 1000000"),
        is("ac_utime", "taskstats_cpu_user_seconds_total * 1000000"),
        is("ac_stime", "taskstats_cpu_system_seconds_total * 1000000"),
        is("ac_minflt", "taskstats_minor_faults_total"),
        is("ac_majflt", "taskstats_major_faults_total"),
        is("coremem", "taskstats_coremem_byte_seconds_total * 1000000 / 1048576"),
        is("virtmem", "taskstats_virtmem_byte_seconds_total * 1000000 / 1048576"),
        is("read_char", "taskstats_read_char_bytes_total"),
        is("write_char", "taskstats_write_char_bytes_total"),
        is("read_syscalls", "taskstats_read_syscalls_total"),
        is("write_syscalls", "taskstats_write_syscalls_total"),
        is("read_bytes", "taskstats_read_bytes_total"),
        is("write_bytes", "taskstats_write_bytes_total"),
        is("cancelled_write_bytes", "taskstats_cancelled_write_bytes_total"),
        is("nvcsw", "taskstats_voluntary_switches_total"),
        is("nivcsw", "taskstats_involuntary_switches_total"),
        is("ac_utimescaled", "taskstats_cpu_user_scaled_seconds_total * 1000000"),
        is("ac_stimescaled", "taskstats_cpu_system_scaled_seconds_total * 1000000"),
        is("cpu_scaled_run_real_total", "taskstats_cpu_run_real_scaled_seconds_total * 1000000000"),
        is("freepages_count", "taskstats_freepages_delays_total"),
        is("freepages_delay_total", "taskstats_freepages_delay_seconds_total * 1000000000"),
    ],
};

static PROCSTATS: Group = Group {
    name: "procstats_default",
    note: "Per node. Ticks are hundredths of a second. Colmet writes the column steal as stat_cpu_guest and the column guest as stat_cpu_guest_nice.",
    rows: &[
        is("uptime_total", "uptime_seconds"),
        is("uptime_idle", "uptime_idle_seconds_total"),
        is("meminfo_memtotal", "memory_total_bytes / 1024"),
        is("meminfo_memfree", "memory_free_bytes / 1024"),
        is("meminfo_buffers", "memory_buffers_bytes / 1024"),
        is("meminfo_cached", "memory_cached_bytes / 1024"),
        is("meminfo_swapcached", "memory_swap_cached_bytes / 1024"),
        is("meminfo_active", "memory_active_bytes / 1024"),
        is("meminfo_inactive", "memory_inactive_bytes / 1024"),
        is("meminfo_unevictable", "memory_unevictable_bytes / 1024"),
        is("meminfo_mlocked", "memory_mlocked_bytes / 1024"),
        is("meminfo_swaptotal", "memory_swap_total_bytes / 1024"),
        is("meminfo_swapfree", "memory_swap_free_bytes / 1024"),
        is("meminfo_dirty", "memory_dirty_bytes / 1024"),
        is("meminfo_writeback", "memory_writeback_bytes / 1024"),
        is("meminfo_anonpages", "memory_anon_bytes / 1024"),
        is("meminfo_mapped", "memory_mapped_bytes / 1024"),
        is("meminfo_shmem", "memory_shared_bytes / 1024"),
        is("meminfo_slab", "memory_slab_bytes / 1024"),
        is("meminfo_sreclaimable", "memory_slab_reclaimable_bytes / 1024"),
        is("meminfo_sunreclaim", "memory_slab_unreclaimable_bytes / 1024"),
        is("meminfo_kernelstack", "memory_kernel_stack_bytes / 1024"),
        is("meminfo_pagetables", "memory_page_tables_bytes / 1024"),
        is("meminfo_nfs_unstable", "memory_nfs_unstable_bytes / 1024"),
        is("meminfo_bounce", "memory_bounce_bytes / 1024"),
        is("meminfo_writebacktmp", "memory_writeback_temporary_bytes / 1024"),
        is("meminfo_commitlimit", "memory_commit_limit_bytes / 1024"),
        is("meminfo_committed_as", "memory_committed_bytes / 1024"),
        is("meminfo_vmalloctotal", "memory_vmalloc_total_bytes / 1024"),
        is("meminfo_vmallocused", "memory_vmalloc_used_bytes / 1024"),
        is("meminfo_vmallocchunk", "memory_vmalloc_chunk_bytes / 1024"),
        is("meminfo_anonhugepages", "memory_anon_huge_bytes / 1024"),
        is("meminfo_hugepages_total", "memory_huge_pages"),
        is("meminfo_hugepages_free", "memory_huge_pages_free"),
        is("meminfo_hugepages_rsvd", "memory_huge_pages_reserved"),
        is("meminfo_hugepages_surp", "memory_huge_pages_surplus"),
        is("meminfo_hugepagesize", "memory_huge_page_bytes / 1024"),
        is("meminfo_directmap4k", "memory_direct_map_4k_bytes / 1024"),
        is("meminfo_directmap2m", "memory_direct_map_2m_bytes / 1024"),
        is("vmstat_pgpgin", "vmstat_paged_in_bytes_total / 1024"),
        is("vmstat_pgpgout", "vmstat_paged_out_bytes_total / 1024"),
        is("vmstat_pswpin", "vmstat_swapped_in_pages_total"),
        is("vmstat_pswpout", "vmstat_swapped_out_pages_total"),
        is("vmstat_pgfault", "vmstat_page_faults_total"),
        is("vmstat_pgmajfault", "vmstat_major_page_faults_total"),
        is("stat_cpu_user", "cpu_user_seconds_total * 100"),
        is("stat_cpu_nice", "cpu_nice_seconds_total * 100"),
        is("stat_cpu_system", "cpu_system_seconds_total * 100"),
        is("stat_cpu_idle", "cpu_idle_seconds_total * 100"),
        is("stat_cpu_iowait", "cpu_iowait_seconds_total * 100"),
        is("stat_cpu_irq", "cpu_irq_seconds_total * 100"),
        is("stat_cpu_softirq", "cpu_softirq_seconds_total * 100"),
        is("stat_cpu_guest", "cpu_steal_seconds_total * 100"),
        is("stat_cpu_guest_nice", "cpu_user_guest_seconds_total * 100"),
        is("stat_intr", "cpu_interrupts_total"),
        is("stat_ctxt", "cpu_context_switches_total"),
        is("stat_processes", "cpu_forks_total"),
        is("stat_procs_blocked", "cpu_blocked_tasks"),
        is("loadavg_1min", "load_1m"),
        is("loadavg_5min", "load_5m"),
        is("loadavg_15min", "load_15m"),
        is("loadavg_runnable", "load_runnable_tasks"),
        is("loadavg_total_threads", "load_tasks"),
        not(
            "involved_jobs",
            "the server stores which jobs a node had at any time: table `allocations`",
        ),
    ],
};

static JOBPROC: Group = Group {
    name: "jobprocstats_default",
    note: "Per job. Colmet counts a process once for each of its threads, and drops ended ones; ours count each process once, including ended ones.",
    rows: &[
        is("rchar", "process_read_char_bytes_total"),
        is("wchar", "process_write_char_bytes_total"),
        is("syscr", "process_read_calls_total"),
        is("syscw", "process_write_calls_total"),
        is("read_bytes", "process_read_bytes_total"),
        is("write_bytes", "process_write_bytes_total"),
        is("cancelled_write_bytes", "process_cancelled_write_bytes_total"),
        is("VmRSS", "process_rss_bytes / 1024"),
        is("RssShmem", "process_rss_shmem_bytes / 1024"),
        is("VmSize", "process_vm_bytes / 1024"),
    ],
};

static PERFHW: Group = Group {
    name: "perfhwstats_default",
    note: "Per job. A separate file assigns events to Colmet's counters; ours have names.",
    rows: &[
        not("counter_1", "the event below that its `--perfhw-list` names at this position"),
        not("counter_2", "the event below that its `--perfhw-list` names at this position"),
        not("counter_3", "the event below that its `--perfhw-list` names at this position"),
        not("counter_4", "the event below that its `--perfhw-list` names at this position"),
        not("counter_5", "the event below that its `--perfhw-list` names at this position"),
    ],
};

static EVENTS: Group = Group {
    name: "perfhw events",
    note: "The names of `--perfhw-list`. Colmet's cache events have no operation and no result, so all are read accesses, and the last three of them equal the first, the second and the first.",
    rows: &[
        grows("cpu_cycles", "perf_cpu_cycles_total"),
        grows("instructions", "perf_instructions_total"),
        grows("cache_references", "perf_cache_references_total"),
        grows("cache_misses", "perf_cache_misses_total"),
        grows("branch_instructions", "perf_branch_instructions_total"),
        grows("branch_misses", "perf_branch_misses_total"),
        grows("bus_cycles", "perf_bus_cycles_total"),
        grows("ref_cpu_cycles", "perf_ref_cpu_cycles_total"),
        grows("cache_l1d", "perf_cache_l1d_read_access_total"),
        grows("cache_ll", "perf_cache_ll_read_access_total"),
        grows("cache_dtlb", "perf_cache_dtlb_read_access_total"),
        grows("cache_itlb", "perf_cache_itlb_read_access_total"),
        grows("cache_bpu", "perf_cache_bpu_read_access_total"),
        grows("cache_node", "perf_cache_node_read_access_total"),
        grows("cache_op_read", "perf_cache_l1d_read_access_total"),
        grows("cache_op_prefetch", "perf_cache_ll_read_access_total"),
        grows("cache_result_access", "perf_cache_l1d_read_access_total"),
        grows("cpu_clock", "perf_cpu_clock_seconds_total * 1000000000"),
        grows("task_clock", "perf_task_clock_seconds_total * 1000000000"),
        grows("page_faults", "perf_page_faults_total"),
        grows("context_switches", "perf_context_switches_total"),
        grows("cpu_migrations", "perf_cpu_migrations_total"),
        grows("page_faults_min", "perf_page_faults_min_total"),
        grows("page_faults_maj", "perf_page_faults_maj_total"),
        grows("alignment_faults", "perf_alignment_faults_total"),
        grows("emulation_faults", "perf_emulation_faults_total"),
        grows("dummy", "perf_dummy_total"),
        grows("bpf_output", "perf_bpf_output_total"),
    ],
};

static RAPL: Group = Group {
    name: "RAPLstats_default",
    note: "Per node. Colmet reports the growth of each zone since the previous sample, for three zones per package and at most four packages.",
    rows: &[
        grows("counter_1", "rapl_package_joules_total{package=\"0\"} * 1000000"),
        not("counter_2", "the range of the zone; our counters do not wrap"),
        grows("counter_3", "rapl_core_joules_total{package=\"0\"} * 1000000"),
        not("counter_4", "the range of the zone; our counters do not wrap"),
        grows("counter_5", "rapl_dram_joules_total{package=\"0\"} * 1000000"),
        not("counter_6", "the range of the zone; our counters do not wrap"),
        grows("counter_7", "rapl_package_joules_total{package=\"1\"} * 1000000"),
        not("counter_8", "the range of the zone; our counters do not wrap"),
        grows("counter_9", "rapl_core_joules_total{package=\"1\"} * 1000000"),
        not("counter_10", "the range of the zone; our counters do not wrap"),
        grows("counter_11", "rapl_dram_joules_total{package=\"1\"} * 1000000"),
        not("counter_12", "the range of the zone; our counters do not wrap"),
        grows("counter_13", "rapl_package_joules_total{package=\"2\"} * 1000000"),
        not("counter_14", "the range of the zone; our counters do not wrap"),
        grows("counter_15", "rapl_core_joules_total{package=\"2\"} * 1000000"),
        not("counter_16", "the range of the zone; our counters do not wrap"),
        grows("counter_17", "rapl_dram_joules_total{package=\"2\"} * 1000000"),
        not("counter_18", "the range of the zone; our counters do not wrap"),
        grows("counter_19", "rapl_package_joules_total{package=\"3\"} * 1000000"),
        not("counter_20", "the range of the zone; our counters do not wrap"),
        grows("counter_21", "rapl_core_joules_total{package=\"3\"} * 1000000"),
        not("counter_22", "the range of the zone; our counters do not wrap"),
        grows("counter_23", "rapl_dram_joules_total{package=\"3\"} * 1000000"),
        not("counter_24", "the range of the zone; our counters do not wrap"),
        not(
            "involved_jobs",
            "the server stores which jobs a node had at any time: table `allocations`",
        ),
    ],
};

static TEMPERATURE: Group = Group {
    name: "temperaturestats_default",
    note: "Per node. Whole degrees of the first six zones.",
    rows: &[
        is("counter_1", "thermal_temperature_celsius{zone=\"0\"}"),
        is("counter_2", "thermal_temperature_celsius{zone=\"1\"}"),
        is("counter_3", "thermal_temperature_celsius{zone=\"2\"}"),
        is("counter_4", "thermal_temperature_celsius{zone=\"3\"}"),
        is("counter_5", "thermal_temperature_celsius{zone=\"4\"}"),
        is("counter_6", "thermal_temperature_celsius{zone=\"5\"}"),
    ],
};

static INFINIBAND: Group = Group {
    name: "infinibandstats_default",
    note: "Per node. One port, with the multiplier that its user chose.",
    rows: &[
        is("portXmitData", "infiniband_transmitted_bytes_total"),
        is("portRcvData", "infiniband_received_bytes_total"),
        is("portXmitPkts", "infiniband_transmitted_packets_total"),
        is("portRcvPkts", "infiniband_received_packets_total"),
        not(
            "involved_jobs",
            "the server stores which jobs a node had at any time: table `allocations`",
        ),
    ],
};

static LUSTRE: Group = Group {
    name: "lustrestats_default",
    note: "Per node, the sum over all mounts of the prefix.",
    rows: &[
        is("lustre_nb_read", "lustre_reads_total"),
        is("lustre_bytes_read", "lustre_read_bytes_total"),
        is("lustre_nb_write", "lustre_writes_total"),
        is("lustre_bytes_write", "lustre_written_bytes_total"),
        not(
            "involved_jobs",
            "the server stores which jobs a node had at any time: table `allocations`",
        ),
    ],
};

static IPMIPOWER: Group = Group {
    name: "ipmipowerstats_default",
    note: "Per node. The number printed by a program.",
    rows: &[
        is("average_power_consumption", "exec_value_watts"),
        not(
            "involved_jobs",
            "the server stores which jobs a node had at any time: table `allocations`",
        ),
    ],
};

static NVIDIA: Group = Group {
    name: "nvidiastats_default",
    note: "Per job, over its GPUs. Ours are per GPU, with its number; `nvidia_job_share_ratio` is a job's share of it, so that two jobs on one GPU do not count it twice.",
    rows: &[
        is("power", "nvidia_power_watts"),
        is("temperature", "nvidia_temperature_celsius"),
        is("utilization-gpu", "nvidia_use_ratio * 100"),
        is("utilization-memory", "nvidia_memory_use_ratio * 100"),
        is("memory-total", "nvidia_memory_size_bytes / 1048576"),
        is(
            "memory-free",
            "(nvidia_memory_size_bytes - nvidia_memory_reserved_bytes - nvidia_memory_used_bytes) / 1048576",
        ),
        is("memory-used", "nvidia_memory_used_bytes / 1048576"),
    ],
};

static MEMORY: Group = Group {
    name: "memory (Rust nodes)",
    note: "Per job, by version 1's `memory.stat`.",
    rows: &[
        not(
            "cache",
            "only the job's own directory; ours include the directories below, like the total_ values",
        ),
        not(
            "rss",
            "only the job's own directory; ours include the directories below, like the total_ values",
        ),
        not(
            "rss_huge",
            "only the job's own directory; ours include the directories below, like the total_ values",
        ),
        not(
            "shmem",
            "only the job's own directory; ours include the directories below, like the total_ values",
        ),
        not(
            "mapped_file",
            "only the job's own directory; ours include the directories below, like the total_ values",
        ),
        not(
            "dirty",
            "only the job's own directory; ours include the directories below, like the total_ values",
        ),
        not(
            "writeback",
            "only the job's own directory; ours include the directories below, like the total_ values",
        ),
        not(
            "swap",
            "only the job's own directory; ours include the directories below, like the total_ values",
        ),
        not(
            "pgpgin",
            "only the job's own directory; ours include the directories below, like the total_ values",
        ),
        not(
            "pgpgout",
            "only the job's own directory; ours include the directories below, like the total_ values",
        ),
        not(
            "pgfault",
            "only the job's own directory; ours include the directories below, like the total_ values",
        ),
        not(
            "pgmajfault",
            "only the job's own directory; ours include the directories below, like the total_ values",
        ),
        not(
            "inactive_anon",
            "only the job's own directory; ours include the directories below, like the total_ values",
        ),
        not(
            "active_anon",
            "only the job's own directory; ours include the directories below, like the total_ values",
        ),
        not(
            "inactive_file",
            "only the job's own directory; ours include the directories below, like the total_ values",
        ),
        not(
            "active_file",
            "only the job's own directory; ours include the directories below, like the total_ values",
        ),
        not(
            "unevictable",
            "only the job's own directory; ours include the directories below, like the total_ values",
        ),
        is("hierarchical_memory_limit", "cgroup_memory_limit_bytes"),
        not("hierarchical_memsw_limit", "limit of memory plus swap, which version 2 lacks"),
        is("total_cache", "cgroup_memory_file_bytes"),
        is("total_rss", "cgroup_memory_anon_bytes"),
        is("total_rss_huge", "cgroup_memory_anon_huge_bytes"),
        is("total_shmem", "cgroup_memory_shmem_bytes"),
        is("total_mapped_file", "cgroup_memory_mapped_bytes"),
        is("total_dirty", "cgroup_memory_dirty_bytes"),
        is("total_writeback", "cgroup_memory_writeback_bytes"),
        is("total_swap", "cgroup_memory_swap_bytes"),
        is("total_pgpgin", "cgroup_memory_charges_total"),
        is("total_pgpgout", "cgroup_memory_uncharges_total"),
        is("total_pgfault", "cgroup_page_faults_total"),
        is("total_pgmajfault", "cgroup_page_faults_major_total"),
        is("total_inactive_anon", "cgroup_memory_inactive_anon_bytes"),
        is("total_active_anon", "cgroup_memory_active_anon_bytes"),
        is("total_inactive_file", "cgroup_memory_inactive_file_bytes"),
        is("total_active_file", "cgroup_memory_active_file_bytes"),
        is("total_unevictable", "cgroup_memory_unevictable_bytes"),
    ],
};

static CPU: Group = Group {
    name: "cpu (Rust nodes)",
    note: "Per job, by version 1's `cpu.stat`.",
    rows: &[
        is("nr_periods", "cgroup_cpu_periods_total"),
        is("nr_throttled", "cgroup_cpu_throttled_periods_total"),
        is("throttled_time", "cgroup_cpu_throttled_seconds_total * 1000000000"),
    ],
};
#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Row;

    /// Bytes of a value in Colmet's message: 8, except for the start of the first task and the load,
    /// which have 4.
    fn bytes(row: &Row) -> usize {
        match row.theirs {
            "involved_jobs" => 8192,
            name if name == "ac_btime" || name.starts_with("loadavg_") => 4,
            _ => 8,
        }
    }

    /// Colmet's records have a header of 526 bytes, then every value: a missing value changes their length.
    #[test]
    fn the_records_have_colmets_lengths() {
        for (group, length) in [
            (&TASKSTATS, 762),
            (&PROCSTATS, 9202),
            (&JOBPROC, 606),
            (&PERFHW, 566),
            (&NVIDIA, 582),
            (&TEMPERATURE, 574),
            (&RAPL, 8910),
            (&INFINIBAND, 8750),
            (&LUSTRE, 8750),
            (&IPMIPOWER, 8726),
        ] {
            let values: usize = group.rows.iter().map(bytes).sum();
            assert_eq!(526 + values, length, "{}", group.name);
        }
    }

    /// Its Rust nodes number their metrics: memory and cpu below 39, perf events from 39 on.
    #[test]
    fn the_numbers_of_keys_equal_colmets() {
        assert_eq!(MEMORY.rows.len() + CPU.rows.len(), 39);
        assert_eq!(EVENTS.rows.len(), 28);
    }
}
