//! Backends of Python nodes with a record for the node.

use super::Shown::{Bytes, Celsius, Count, Kibibytes, Plain, Seconds};
use super::{
    Backend, CENTI, Column, ColumnType, INVOLVED_JOBS, KIBI, column, float, grows, not, signed,
    unsigned,
};
use crate::equivalent::Ours;
use crate::formula::Formula::{self, Metric, Number, Product, Scaled, Selected};
use crate::formula::Scale;
use model::{Kind, Unit};

/// Microjoules in a joule.
const MICRO: Formula = Number(super::MICRO);

/// The range of a zone's counter.
const fn range(theirs: &'static str) -> Column {
    let scale = Scale { times: super::MICRO, over: 1 };
    not(theirs, Unit::Joules, Kind::Gauge, scale, "the range of the zone; our counters do not wrap")
}

/// The node's power: the program that the site chose, else the BMC's.
const POWER: Ours = Ours::FirstOf(&[
    Metric("exec_value_watts"),
    Metric("ipmi_dcmi_power_mean_watts"),
    Metric("ipmi_dell_power_watts"),
]);

/// Memory, processors and load of the node.
pub static PROCSTATS: Backend = Backend {
    id: "procstats_default",
    title: "procstats_default",
    word: "procstats",
    note: "Ticks are hundredths of a second. Colmet writes the column steal as stat_cpu_guest and the column guest as stat_cpu_guest_nice.",
    columns: &[
        unsigned("uptime_total", Seconds, Metric("uptime_seconds")).line("uptime.total"),
        unsigned("uptime_idle", Seconds, Metric("uptime_idle_seconds_total")).line("uptime.idle"),
        unsigned("meminfo_memtotal", Kibibytes, Scaled("memory_total_bytes", 1, KIBI)),
        unsigned("meminfo_memfree", Kibibytes, Scaled("memory_free_bytes", 1, KIBI)),
        unsigned("meminfo_buffers", Kibibytes, Scaled("memory_buffers_bytes", 1, KIBI)),
        unsigned("meminfo_cached", Kibibytes, Scaled("memory_cached_bytes", 1, KIBI)),
        unsigned("meminfo_swapcached", Kibibytes, Scaled("memory_swap_cached_bytes", 1, KIBI)),
        unsigned("meminfo_active", Kibibytes, Scaled("memory_active_bytes", 1, KIBI)),
        unsigned("meminfo_inactive", Kibibytes, Scaled("memory_inactive_bytes", 1, KIBI)),
        unsigned("meminfo_unevictable", Kibibytes, Scaled("memory_unevictable_bytes", 1, KIBI)),
        unsigned("meminfo_mlocked", Kibibytes, Scaled("memory_mlocked_bytes", 1, KIBI)),
        unsigned("meminfo_swaptotal", Kibibytes, Scaled("memory_swap_total_bytes", 1, KIBI)),
        unsigned("meminfo_swapfree", Kibibytes, Scaled("memory_swap_free_bytes", 1, KIBI)),
        unsigned("meminfo_dirty", Kibibytes, Scaled("memory_dirty_bytes", 1, KIBI)),
        unsigned("meminfo_writeback", Kibibytes, Scaled("memory_writeback_bytes", 1, KIBI)),
        unsigned("meminfo_anonpages", Kibibytes, Scaled("memory_anon_bytes", 1, KIBI)),
        unsigned("meminfo_mapped", Kibibytes, Scaled("memory_mapped_bytes", 1, KIBI)),
        unsigned("meminfo_shmem", Kibibytes, Scaled("memory_shared_bytes", 1, KIBI)),
        unsigned("meminfo_slab", Kibibytes, Scaled("memory_slab_bytes", 1, KIBI)),
        unsigned(
            "meminfo_sreclaimable",
            Kibibytes,
            Scaled("memory_slab_reclaimable_bytes", 1, KIBI),
        ),
        unsigned(
            "meminfo_sunreclaim",
            Kibibytes,
            Scaled("memory_slab_unreclaimable_bytes", 1, KIBI),
        ),
        unsigned("meminfo_kernelstack", Kibibytes, Scaled("memory_kernel_stack_bytes", 1, KIBI)),
        unsigned("meminfo_pagetables", Kibibytes, Scaled("memory_page_tables_bytes", 1, KIBI)),
        unsigned("meminfo_nfs_unstable", Kibibytes, Scaled("memory_nfs_unstable_bytes", 1, KIBI)),
        unsigned("meminfo_bounce", Kibibytes, Scaled("memory_bounce_bytes", 1, KIBI)),
        unsigned(
            "meminfo_writebacktmp",
            Kibibytes,
            Scaled("memory_writeback_temporary_bytes", 1, KIBI),
        ),
        unsigned("meminfo_commitlimit", Kibibytes, Scaled("memory_commit_limit_bytes", 1, KIBI)),
        unsigned("meminfo_committed_as", Kibibytes, Scaled("memory_committed_bytes", 1, KIBI)),
        unsigned("meminfo_vmalloctotal", Kibibytes, Scaled("memory_vmalloc_total_bytes", 1, KIBI)),
        unsigned("meminfo_vmallocused", Kibibytes, Scaled("memory_vmalloc_used_bytes", 1, KIBI)),
        unsigned("meminfo_vmallocchunk", Kibibytes, Scaled("memory_vmalloc_chunk_bytes", 1, KIBI)),
        unsigned("meminfo_anonhugepages", Kibibytes, Scaled("memory_anon_huge_bytes", 1, KIBI)),
        unsigned("meminfo_hugepages_total", Count, Metric("memory_huge_pages")),
        unsigned("meminfo_hugepages_free", Count, Metric("memory_huge_pages_free")),
        unsigned("meminfo_hugepages_rsvd", Count, Metric("memory_huge_pages_reserved")),
        unsigned("meminfo_hugepages_surp", Count, Metric("memory_huge_pages_surplus")),
        unsigned("meminfo_hugepagesize", Count, Scaled("memory_huge_page_bytes", 1, KIBI)),
        unsigned("meminfo_directmap4k", Kibibytes, Scaled("memory_direct_map_4k_bytes", 1, KIBI)),
        unsigned("meminfo_directmap2m", Kibibytes, Scaled("memory_direct_map_2m_bytes", 1, KIBI)),
        unsigned("vmstat_pgpgin", Count, Scaled("vmstat_paged_in_bytes_total", 1, KIBI)),
        unsigned("vmstat_pgpgout", Count, Scaled("vmstat_paged_out_bytes_total", 1, KIBI)),
        unsigned("vmstat_pswpin", Count, Metric("vmstat_swapped_in_pages_total")),
        unsigned("vmstat_pswpout", Count, Metric("vmstat_swapped_out_pages_total")),
        unsigned("vmstat_pgfault", Count, Metric("vmstat_page_faults_total")),
        unsigned("vmstat_pgmajfault", Count, Metric("vmstat_major_page_faults_total")),
        unsigned("stat_cpu_user", Plain, Scaled("cpu_user_seconds_total", CENTI, 1)),
        unsigned("stat_cpu_nice", Plain, Scaled("cpu_nice_seconds_total", CENTI, 1)),
        unsigned("stat_cpu_system", Plain, Scaled("cpu_system_seconds_total", CENTI, 1))
            .line("stat_cpu_nice"),
        unsigned("stat_cpu_idle", Plain, Scaled("cpu_idle_seconds_total", CENTI, 1))
            .line("stat_cpu_nice"),
        unsigned("stat_cpu_iowait", Plain, Scaled("cpu_iowait_seconds_total", CENTI, 1))
            .line("stat_cpu_nice"),
        unsigned("stat_cpu_irq", Plain, Scaled("cpu_irq_seconds_total", CENTI, 1))
            .line("stat_cpu_nice"),
        unsigned("stat_cpu_softirq", Plain, Scaled("cpu_softirq_seconds_total", CENTI, 1))
            .line("stat_cpu_nice"),
        unsigned("stat_cpu_guest", Plain, Scaled("cpu_steal_seconds_total", CENTI, 1))
            .line("stat_cpu_nice"),
        unsigned("stat_cpu_guest_nice", Plain, Scaled("cpu_user_guest_seconds_total", CENTI, 1))
            .line("stat_cpu_nice"),
        unsigned("stat_intr", Plain, Metric("cpu_interrupts_total")),
        unsigned("stat_ctxt", Plain, Metric("cpu_context_switches_total")),
        unsigned("stat_processes", Plain, Metric("cpu_forks_total")),
        unsigned("stat_procs_blocked", Plain, Metric("cpu_blocked_tasks")),
        float("loadavg_1min", Metric("load_1m")),
        float("loadavg_5min", Metric("load_5m")),
        float("loadavg_15min", Metric("load_15m")),
        float("loadavg_runnable", Metric("load_runnable_tasks")),
        float("loadavg_total_threads", Metric("load_tasks")),
        INVOLVED_JOBS,
    ],
    older: &[63],
    ..Backend::DEFAULT
};

/// Energy of the node.
pub static RAPL: Backend = Backend {
    id: "RAPLstats_default",
    title: "RAPLstats_default",
    word: "rapl",
    note: "Colmet reports the growth of each zone since the previous sample, for three zones per package and at most four packages.",
    columns: &[
        grows("counter_1", Product(&Selected("rapl_package_joules_total", "package", "0"), &MICRO)),
        range("counter_2"),
        grows("counter_3", Product(&Selected("rapl_core_joules_total", "package", "0"), &MICRO)),
        range("counter_4"),
        grows("counter_5", Product(&Selected("rapl_dram_joules_total", "package", "0"), &MICRO)),
        range("counter_6"),
        grows("counter_7", Product(&Selected("rapl_package_joules_total", "package", "1"), &MICRO)),
        range("counter_8"),
        grows("counter_9", Product(&Selected("rapl_core_joules_total", "package", "1"), &MICRO)),
        range("counter_10"),
        grows("counter_11", Product(&Selected("rapl_dram_joules_total", "package", "1"), &MICRO)),
        range("counter_12"),
        grows(
            "counter_13",
            Product(&Selected("rapl_package_joules_total", "package", "2"), &MICRO),
        ),
        range("counter_14"),
        grows("counter_15", Product(&Selected("rapl_core_joules_total", "package", "2"), &MICRO)),
        range("counter_16"),
        grows("counter_17", Product(&Selected("rapl_dram_joules_total", "package", "2"), &MICRO)),
        range("counter_18"),
        grows(
            "counter_19",
            Product(&Selected("rapl_package_joules_total", "package", "3"), &MICRO),
        ),
        range("counter_20"),
        grows("counter_21", Product(&Selected("rapl_core_joules_total", "package", "3"), &MICRO)),
        range("counter_22"),
        grows("counter_23", Product(&Selected("rapl_dram_joules_total", "package", "3"), &MICRO)),
        range("counter_24"),
        INVOLVED_JOBS,
    ],
    ..Backend::DEFAULT
};

/// Temperatures of the node.
pub static TEMPERATURE: Backend = Backend {
    id: "temperaturestats_default",
    title: "temperaturestats_default",
    word: "temperature",
    note: "Whole degrees of the first six zones.",
    columns: &[
        signed("counter_1", Celsius, Selected("thermal_temperature_celsius", "zone", "0")),
        signed("counter_2", Celsius, Selected("thermal_temperature_celsius", "zone", "1")),
        signed("counter_3", Celsius, Selected("thermal_temperature_celsius", "zone", "2")),
        signed("counter_4", Celsius, Selected("thermal_temperature_celsius", "zone", "3")),
        signed("counter_5", Celsius, Selected("thermal_temperature_celsius", "zone", "4")),
        signed("counter_6", Celsius, Selected("thermal_temperature_celsius", "zone", "5")),
    ],
    ..Backend::DEFAULT
};

/// Traffic of an InfiniBand or Omni-Path port.
pub static INFINIBAND: Backend = Backend {
    id: "infinibandstats_default",
    title: "infinibandstats_default",
    word: "infiniband",
    note: "One port, with the multiplier that its user chose.",
    columns: &[
        signed("portXmitData", Bytes, Metric("infiniband_transmitted_bytes_total")),
        signed("portRcvData", Bytes, Metric("infiniband_received_bytes_total")),
        signed("portXmitPkts", Count, Metric("infiniband_transmitted_packets_total")),
        signed("portRcvPkts", Count, Metric("infiniband_received_packets_total")),
        INVOLVED_JOBS,
    ],
    older: &[4],
    ..Backend::DEFAULT
};

/// Reads and writes of Lustre.
pub static LUSTRE: Backend = Backend {
    id: "lustrestats_default",
    title: "lustrestats_default",
    word: "lustre",
    note: "The sum over all mounts of the prefix.",
    columns: &[
        unsigned("lustre_nb_read", Count, Metric("lustre_reads_total")),
        unsigned("lustre_bytes_read", Bytes, Metric("lustre_read_bytes_total")),
        unsigned("lustre_nb_write", Count, Metric("lustre_writes_total")),
        unsigned("lustre_bytes_write", Bytes, Metric("lustre_written_bytes_total")),
        INVOLVED_JOBS,
    ],
    ..Backend::DEFAULT
};

/// Power of the node.
pub static IPMIPOWER: Backend = Backend {
    id: "ipmipowerstats_default",
    title: "ipmipowerstats_default",
    word: "ipmipower",
    note: "The number printed by a program.",
    columns: &[
        column("average_power_consumption", ColumnType::Signed, Count, POWER),
        INVOLVED_JOBS,
    ],
    ..Backend::DEFAULT
};
