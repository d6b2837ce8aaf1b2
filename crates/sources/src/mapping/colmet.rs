//! Colmet: the records of its Python node, and the keys of its Rust nodes.

use super::formula::Formula::{self, Difference, Metric, Number, Product, Quotient, Selected};
use super::{Group, Ours, Row, Scope, grows, is, not};

/// Nanoseconds in a second.
const NANO: Formula = Number(1_000_000_000);
/// Microseconds in a second, microjoules in a joule.
const MICRO: Formula = Number(1_000_000);
/// Ticks in a second, percent in a whole.
const CENTI: Formula = Number(100);
/// Bytes in a kibibyte.
const KIBI: Formula = Number(1024);
/// Bytes in a mebibyte.
const MEBI: Formula = Number(1_048_576);
/// Why a value of only one directory has no equivalent.
const OWN_DIRECTORY: &str =
    "only the job's own directory; ours include the directories below, like the total_ values";
/// Why the range of a counter has no equivalent.
const ZONE_RANGE: &str = "the range of the zone; our counters do not wrap";
/// The jobs on the node, which Colmet writes into records of nodes.
const INVOLVED_JOBS: Row = Row { theirs: "involved_jobs", ours: Ours::JobsOfNode };

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
    scope: Scope::Job,
    note: "Ours include ended tasks, and count each task once.",
    rows: &[
        is("cpu_count", Metric("taskstats_cpu_delays_total")),
        is("cpu_delay_total", Product(&Metric("taskstats_cpu_delay_seconds_total"), &NANO)),
        is("blkio_count", Metric("taskstats_blkio_delays_total")),
        is("blkio_delay_total", Product(&Metric("taskstats_blkio_delay_seconds_total"), &NANO)),
        is("swapin_count", Metric("taskstats_swapin_delays_total")),
        is("swapin_delay_total", Product(&Metric("taskstats_swapin_delay_seconds_total"), &NANO)),
        is("cpu_run_real_total", Product(&Metric("taskstats_cpu_run_real_seconds_total"), &NANO)),
        is(
            "cpu_run_virtual_total",
            Product(&Metric("taskstats_cpu_run_virtual_seconds_total"), &NANO),
        ),
        is("ac_btime", Metric("taskstats_begin_seconds")),
        is("ac_etime", Product(&Metric("taskstats_elapsed_seconds"), &MICRO)),
        is("ac_utime", Product(&Metric("taskstats_cpu_user_seconds_total"), &MICRO)),
        is("ac_stime", Product(&Metric("taskstats_cpu_system_seconds_total"), &MICRO)),
        is("ac_minflt", Metric("taskstats_minor_faults_total")),
        is("ac_majflt", Metric("taskstats_major_faults_total")),
        is(
            "coremem",
            Quotient(&Product(&Metric("taskstats_coremem_byte_seconds_total"), &MICRO), &MEBI),
        ),
        is(
            "virtmem",
            Quotient(&Product(&Metric("taskstats_virtmem_byte_seconds_total"), &MICRO), &MEBI),
        ),
        is("read_char", Metric("taskstats_read_char_bytes_total")),
        is("write_char", Metric("taskstats_write_char_bytes_total")),
        is("read_syscalls", Metric("taskstats_read_syscalls_total")),
        is("write_syscalls", Metric("taskstats_write_syscalls_total")),
        is("read_bytes", Metric("taskstats_read_bytes_total")),
        is("write_bytes", Metric("taskstats_write_bytes_total")),
        is("cancelled_write_bytes", Metric("taskstats_cancelled_write_bytes_total")),
        is("nvcsw", Metric("taskstats_voluntary_switches_total")),
        is("nivcsw", Metric("taskstats_involuntary_switches_total")),
        is("ac_utimescaled", Product(&Metric("taskstats_cpu_user_scaled_seconds_total"), &MICRO)),
        is("ac_stimescaled", Product(&Metric("taskstats_cpu_system_scaled_seconds_total"), &MICRO)),
        is(
            "cpu_scaled_run_real_total",
            Product(&Metric("taskstats_cpu_run_real_scaled_seconds_total"), &NANO),
        ),
        is("freepages_count", Metric("taskstats_freepages_delays_total")),
        is(
            "freepages_delay_total",
            Product(&Metric("taskstats_freepages_delay_seconds_total"), &NANO),
        ),
    ],
};

static PROCSTATS: Group = Group {
    name: "procstats_default",
    scope: Scope::Node,
    note: "Ticks are hundredths of a second. Colmet writes the column steal as stat_cpu_guest and the column guest as stat_cpu_guest_nice.",
    rows: &[
        is("uptime_total", Metric("uptime_seconds")),
        is("uptime_idle", Metric("uptime_idle_seconds_total")),
        is("meminfo_memtotal", Quotient(&Metric("memory_total_bytes"), &KIBI)),
        is("meminfo_memfree", Quotient(&Metric("memory_free_bytes"), &KIBI)),
        is("meminfo_buffers", Quotient(&Metric("memory_buffers_bytes"), &KIBI)),
        is("meminfo_cached", Quotient(&Metric("memory_cached_bytes"), &KIBI)),
        is("meminfo_swapcached", Quotient(&Metric("memory_swap_cached_bytes"), &KIBI)),
        is("meminfo_active", Quotient(&Metric("memory_active_bytes"), &KIBI)),
        is("meminfo_inactive", Quotient(&Metric("memory_inactive_bytes"), &KIBI)),
        is("meminfo_unevictable", Quotient(&Metric("memory_unevictable_bytes"), &KIBI)),
        is("meminfo_mlocked", Quotient(&Metric("memory_mlocked_bytes"), &KIBI)),
        is("meminfo_swaptotal", Quotient(&Metric("memory_swap_total_bytes"), &KIBI)),
        is("meminfo_swapfree", Quotient(&Metric("memory_swap_free_bytes"), &KIBI)),
        is("meminfo_dirty", Quotient(&Metric("memory_dirty_bytes"), &KIBI)),
        is("meminfo_writeback", Quotient(&Metric("memory_writeback_bytes"), &KIBI)),
        is("meminfo_anonpages", Quotient(&Metric("memory_anon_bytes"), &KIBI)),
        is("meminfo_mapped", Quotient(&Metric("memory_mapped_bytes"), &KIBI)),
        is("meminfo_shmem", Quotient(&Metric("memory_shared_bytes"), &KIBI)),
        is("meminfo_slab", Quotient(&Metric("memory_slab_bytes"), &KIBI)),
        is("meminfo_sreclaimable", Quotient(&Metric("memory_slab_reclaimable_bytes"), &KIBI)),
        is("meminfo_sunreclaim", Quotient(&Metric("memory_slab_unreclaimable_bytes"), &KIBI)),
        is("meminfo_kernelstack", Quotient(&Metric("memory_kernel_stack_bytes"), &KIBI)),
        is("meminfo_pagetables", Quotient(&Metric("memory_page_tables_bytes"), &KIBI)),
        is("meminfo_nfs_unstable", Quotient(&Metric("memory_nfs_unstable_bytes"), &KIBI)),
        is("meminfo_bounce", Quotient(&Metric("memory_bounce_bytes"), &KIBI)),
        is("meminfo_writebacktmp", Quotient(&Metric("memory_writeback_temporary_bytes"), &KIBI)),
        is("meminfo_commitlimit", Quotient(&Metric("memory_commit_limit_bytes"), &KIBI)),
        is("meminfo_committed_as", Quotient(&Metric("memory_committed_bytes"), &KIBI)),
        is("meminfo_vmalloctotal", Quotient(&Metric("memory_vmalloc_total_bytes"), &KIBI)),
        is("meminfo_vmallocused", Quotient(&Metric("memory_vmalloc_used_bytes"), &KIBI)),
        is("meminfo_vmallocchunk", Quotient(&Metric("memory_vmalloc_chunk_bytes"), &KIBI)),
        is("meminfo_anonhugepages", Quotient(&Metric("memory_anon_huge_bytes"), &KIBI)),
        is("meminfo_hugepages_total", Metric("memory_huge_pages")),
        is("meminfo_hugepages_free", Metric("memory_huge_pages_free")),
        is("meminfo_hugepages_rsvd", Metric("memory_huge_pages_reserved")),
        is("meminfo_hugepages_surp", Metric("memory_huge_pages_surplus")),
        is("meminfo_hugepagesize", Quotient(&Metric("memory_huge_page_bytes"), &KIBI)),
        is("meminfo_directmap4k", Quotient(&Metric("memory_direct_map_4k_bytes"), &KIBI)),
        is("meminfo_directmap2m", Quotient(&Metric("memory_direct_map_2m_bytes"), &KIBI)),
        is("vmstat_pgpgin", Quotient(&Metric("vmstat_paged_in_bytes_total"), &KIBI)),
        is("vmstat_pgpgout", Quotient(&Metric("vmstat_paged_out_bytes_total"), &KIBI)),
        is("vmstat_pswpin", Metric("vmstat_swapped_in_pages_total")),
        is("vmstat_pswpout", Metric("vmstat_swapped_out_pages_total")),
        is("vmstat_pgfault", Metric("vmstat_page_faults_total")),
        is("vmstat_pgmajfault", Metric("vmstat_major_page_faults_total")),
        is("stat_cpu_user", Product(&Metric("cpu_user_seconds_total"), &CENTI)),
        is("stat_cpu_nice", Product(&Metric("cpu_nice_seconds_total"), &CENTI)),
        is("stat_cpu_system", Product(&Metric("cpu_system_seconds_total"), &CENTI)),
        is("stat_cpu_idle", Product(&Metric("cpu_idle_seconds_total"), &CENTI)),
        is("stat_cpu_iowait", Product(&Metric("cpu_iowait_seconds_total"), &CENTI)),
        is("stat_cpu_irq", Product(&Metric("cpu_irq_seconds_total"), &CENTI)),
        is("stat_cpu_softirq", Product(&Metric("cpu_softirq_seconds_total"), &CENTI)),
        is("stat_cpu_guest", Product(&Metric("cpu_steal_seconds_total"), &CENTI)),
        is("stat_cpu_guest_nice", Product(&Metric("cpu_user_guest_seconds_total"), &CENTI)),
        is("stat_intr", Metric("cpu_interrupts_total")),
        is("stat_ctxt", Metric("cpu_context_switches_total")),
        is("stat_processes", Metric("cpu_forks_total")),
        is("stat_procs_blocked", Metric("cpu_blocked_tasks")),
        is("loadavg_1min", Metric("load_1m")),
        is("loadavg_5min", Metric("load_5m")),
        is("loadavg_15min", Metric("load_15m")),
        is("loadavg_runnable", Metric("load_runnable_tasks")),
        is("loadavg_total_threads", Metric("load_tasks")),
        INVOLVED_JOBS,
    ],
};

static JOBPROC: Group = Group {
    name: "jobprocstats_default",
    scope: Scope::Job,
    note: "Colmet counts a process once for each of its threads, and drops ended ones; ours count each process once, including ended ones.",
    rows: &[
        is("rchar", Metric("process_read_char_bytes_total")),
        is("wchar", Metric("process_write_char_bytes_total")),
        is("syscr", Metric("process_read_calls_total")),
        is("syscw", Metric("process_write_calls_total")),
        is("read_bytes", Metric("process_read_bytes_total")),
        is("write_bytes", Metric("process_write_bytes_total")),
        is("cancelled_write_bytes", Metric("process_cancelled_write_bytes_total")),
        is("VmRSS", Quotient(&Metric("process_rss_bytes"), &KIBI)),
        is("RssShmem", Quotient(&Metric("process_rss_shmem_bytes"), &KIBI)),
        is("VmSize", Quotient(&Metric("process_vm_bytes"), &KIBI)),
    ],
};

static PERFHW: Group = Group {
    name: "perfhwstats_default",
    scope: Scope::Job,
    note: "A separate file assigns events to Colmet's counters; ours have names.",
    rows: &[
        Row { theirs: "counter_1", ours: Ours::Position { list: &EVENTS, position: 1 } },
        Row { theirs: "counter_2", ours: Ours::Position { list: &EVENTS, position: 2 } },
        Row { theirs: "counter_3", ours: Ours::Position { list: &EVENTS, position: 3 } },
        Row { theirs: "counter_4", ours: Ours::Position { list: &EVENTS, position: 4 } },
        Row { theirs: "counter_5", ours: Ours::Position { list: &EVENTS, position: 5 } },
    ],
};

static EVENTS: Group = Group {
    name: "perfhw events",
    scope: Scope::Job,
    note: "The names of `--perfhw-list`. Colmet's cache events have no operation and no result, so all are read accesses, and the last three of them equal the first, the second and the first.",
    rows: &[
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
        grows("cpu_clock", Product(&Metric("perf_cpu_clock_seconds_total"), &NANO)),
        grows("task_clock", Product(&Metric("perf_task_clock_seconds_total"), &NANO)),
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
};

static RAPL: Group = Group {
    name: "RAPLstats_default",
    scope: Scope::Node,
    note: "Colmet reports the growth of each zone since the previous sample, for three zones per package and at most four packages.",
    rows: &[
        grows("counter_1", Product(&Selected("rapl_package_joules_total", "package", "0"), &MICRO)),
        not("counter_2", ZONE_RANGE),
        grows("counter_3", Product(&Selected("rapl_core_joules_total", "package", "0"), &MICRO)),
        not("counter_4", ZONE_RANGE),
        grows("counter_5", Product(&Selected("rapl_dram_joules_total", "package", "0"), &MICRO)),
        not("counter_6", ZONE_RANGE),
        grows("counter_7", Product(&Selected("rapl_package_joules_total", "package", "1"), &MICRO)),
        not("counter_8", ZONE_RANGE),
        grows("counter_9", Product(&Selected("rapl_core_joules_total", "package", "1"), &MICRO)),
        not("counter_10", ZONE_RANGE),
        grows("counter_11", Product(&Selected("rapl_dram_joules_total", "package", "1"), &MICRO)),
        not("counter_12", ZONE_RANGE),
        grows(
            "counter_13",
            Product(&Selected("rapl_package_joules_total", "package", "2"), &MICRO),
        ),
        not("counter_14", ZONE_RANGE),
        grows("counter_15", Product(&Selected("rapl_core_joules_total", "package", "2"), &MICRO)),
        not("counter_16", ZONE_RANGE),
        grows("counter_17", Product(&Selected("rapl_dram_joules_total", "package", "2"), &MICRO)),
        not("counter_18", ZONE_RANGE),
        grows(
            "counter_19",
            Product(&Selected("rapl_package_joules_total", "package", "3"), &MICRO),
        ),
        not("counter_20", ZONE_RANGE),
        grows("counter_21", Product(&Selected("rapl_core_joules_total", "package", "3"), &MICRO)),
        not("counter_22", ZONE_RANGE),
        grows("counter_23", Product(&Selected("rapl_dram_joules_total", "package", "3"), &MICRO)),
        not("counter_24", ZONE_RANGE),
        INVOLVED_JOBS,
    ],
};

static TEMPERATURE: Group = Group {
    name: "temperaturestats_default",
    scope: Scope::Node,
    note: "Whole degrees of the first six zones.",
    rows: &[
        is("counter_1", Selected("thermal_temperature_celsius", "zone", "0")),
        is("counter_2", Selected("thermal_temperature_celsius", "zone", "1")),
        is("counter_3", Selected("thermal_temperature_celsius", "zone", "2")),
        is("counter_4", Selected("thermal_temperature_celsius", "zone", "3")),
        is("counter_5", Selected("thermal_temperature_celsius", "zone", "4")),
        is("counter_6", Selected("thermal_temperature_celsius", "zone", "5")),
    ],
};

static INFINIBAND: Group = Group {
    name: "infinibandstats_default",
    scope: Scope::Node,
    note: "One port, with the multiplier that its user chose.",
    rows: &[
        is("portXmitData", Metric("infiniband_transmitted_bytes_total")),
        is("portRcvData", Metric("infiniband_received_bytes_total")),
        is("portXmitPkts", Metric("infiniband_transmitted_packets_total")),
        is("portRcvPkts", Metric("infiniband_received_packets_total")),
        INVOLVED_JOBS,
    ],
};

static LUSTRE: Group = Group {
    name: "lustrestats_default",
    scope: Scope::Node,
    note: "The sum over all mounts of the prefix.",
    rows: &[
        is("lustre_nb_read", Metric("lustre_reads_total")),
        is("lustre_bytes_read", Metric("lustre_read_bytes_total")),
        is("lustre_nb_write", Metric("lustre_writes_total")),
        is("lustre_bytes_write", Metric("lustre_written_bytes_total")),
        INVOLVED_JOBS,
    ],
};

static IPMIPOWER: Group = Group {
    name: "ipmipowerstats_default",
    scope: Scope::Node,
    note: "The number printed by a program.",
    rows: &[is("average_power_consumption", Metric("exec_value_watts")), INVOLVED_JOBS],
};

static NVIDIA: Group = Group {
    name: "nvidiastats_default",
    scope: Scope::Job,
    note: "Over its GPUs. Ours are per GPU, with its number; `nvidia_job_share_ratio` is a job's share of it, so that two jobs on one GPU do not count it twice.",
    rows: &[
        is("power", Metric("nvidia_power_watts")),
        is("temperature", Metric("nvidia_temperature_celsius")),
        is("utilization-gpu", Product(&Metric("nvidia_use_ratio"), &CENTI)),
        is("utilization-memory", Product(&Metric("nvidia_memory_use_ratio"), &CENTI)),
        is("memory-total", Quotient(&Metric("nvidia_memory_size_bytes"), &MEBI)),
        is(
            "memory-free",
            Quotient(
                &Difference(
                    &Difference(
                        &Metric("nvidia_memory_size_bytes"),
                        &Metric("nvidia_memory_reserved_bytes"),
                    ),
                    &Metric("nvidia_memory_used_bytes"),
                ),
                &MEBI,
            ),
        ),
        is("memory-used", Quotient(&Metric("nvidia_memory_used_bytes"), &MEBI)),
    ],
};

static MEMORY: Group = Group {
    name: "memory (Rust nodes)",
    scope: Scope::Job,
    note: "From `memory.stat` of cgroup version 1.",
    rows: &[
        not("cache", OWN_DIRECTORY),
        not("rss", OWN_DIRECTORY),
        not("rss_huge", OWN_DIRECTORY),
        not("shmem", OWN_DIRECTORY),
        not("mapped_file", OWN_DIRECTORY),
        not("dirty", OWN_DIRECTORY),
        not("writeback", OWN_DIRECTORY),
        not("swap", OWN_DIRECTORY),
        not("pgpgin", OWN_DIRECTORY),
        not("pgpgout", OWN_DIRECTORY),
        not("pgfault", OWN_DIRECTORY),
        not("pgmajfault", OWN_DIRECTORY),
        not("inactive_anon", OWN_DIRECTORY),
        not("active_anon", OWN_DIRECTORY),
        not("inactive_file", OWN_DIRECTORY),
        not("active_file", OWN_DIRECTORY),
        not("unevictable", OWN_DIRECTORY),
        is("hierarchical_memory_limit", Metric("cgroup_memory_limit_bytes")),
        not("hierarchical_memsw_limit", "limit of memory plus swap, which version 2 lacks"),
        is("total_cache", Metric("cgroup_memory_file_bytes")),
        is("total_rss", Metric("cgroup_memory_anon_bytes")),
        is("total_rss_huge", Metric("cgroup_memory_anon_huge_bytes")),
        is("total_shmem", Metric("cgroup_memory_shmem_bytes")),
        is("total_mapped_file", Metric("cgroup_memory_mapped_bytes")),
        is("total_dirty", Metric("cgroup_memory_dirty_bytes")),
        is("total_writeback", Metric("cgroup_memory_writeback_bytes")),
        is("total_swap", Metric("cgroup_memory_swap_bytes")),
        is("total_pgpgin", Metric("cgroup_memory_charges_total")),
        is("total_pgpgout", Metric("cgroup_memory_uncharges_total")),
        is("total_pgfault", Metric("cgroup_page_faults_total")),
        is("total_pgmajfault", Metric("cgroup_page_faults_major_total")),
        is("total_inactive_anon", Metric("cgroup_memory_inactive_anon_bytes")),
        is("total_active_anon", Metric("cgroup_memory_active_anon_bytes")),
        is("total_inactive_file", Metric("cgroup_memory_inactive_file_bytes")),
        is("total_active_file", Metric("cgroup_memory_active_file_bytes")),
        is("total_unevictable", Metric("cgroup_memory_unevictable_bytes")),
    ],
};

static CPU: Group = Group {
    name: "cpu (Rust nodes)",
    scope: Scope::Job,
    note: "From `cpu.stat` of cgroup version 1.",
    rows: &[
        is("nr_periods", Metric("cgroup_cpu_periods_total")),
        is("nr_throttled", Metric("cgroup_cpu_throttled_periods_total")),
        is("throttled_time", Product(&Metric("cgroup_cpu_throttled_seconds_total"), &NANO)),
    ],
};

#[cfg(test)]
mod tests {
    use super::*;

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
