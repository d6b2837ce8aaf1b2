//! The metrics of jobs and units, and the metric of each line in `memory.stat`.

use kernel::cgroup::memory::MemoryKey;
use model::{Metric, Unit};

const fn bytes(name: &'static str, help: &'static str) -> Metric {
    Metric::gauge(name, Unit::Bytes, help)
}

const fn bytes_total(name: &'static str, help: &'static str) -> Metric {
    Metric::counter(name, Unit::Bytes, help)
}

const fn gauge(name: &'static str, help: &'static str) -> Metric {
    Metric::gauge(name, Unit::Count, help)
}

const fn count(name: &'static str, help: &'static str) -> Metric {
    Metric::counter(name, Unit::Count, help)
}

const fn micros(name: &'static str, help: &'static str) -> Metric {
    Metric::counter(name, Unit::Seconds, help).steps(1_000_000)
}

pub(super) static JOBS: Metric = gauge("cgroup_jobs", "Jobs that have a cgroup on this node.");
pub(super) static UNKEPT: Metric = count(
    "cgroup_unkept_reads_total",
    "Readings that had to open a file because `kept_files_max` other files were open.",
);

pub(super) static UNREAD: Metric = Metric::gauge(
    "cgroup_unread_seconds",
    Unit::Seconds,
    "Time before the job's end that no reading covers, because its cgroup was removed before the last reading.",
);

pub(super) static UNREAD_PRESSURE: Metric = Metric::gauge(
    "cgroup_pressure_unread_seconds",
    Unit::Seconds,
    "The same of the job's pressure, which may have been read earlier than its processor time.",
);
pub(super) static UNREAD_IO: Metric = Metric::gauge(
    "cgroup_io_unread_seconds",
    Unit::Seconds,
    "The same of the job's transfers, which are read once a second.",
);

pub(super) static CPU: Metric =
    micros("cgroup_cpu_seconds_total", "Time on a processor, summed over processors.");
pub(super) static CPU_USER: Metric =
    micros("cgroup_cpu_user_seconds_total", "The part of cgroup_cpu_seconds_total in user mode.");
pub(super) static CPU_SYSTEM: Metric = micros(
    "cgroup_cpu_system_seconds_total",
    "The part of cgroup_cpu_seconds_total in kernel mode.",
);
pub(super) static PERIODS: Metric = count(
    "cgroup_cpu_periods_total",
    "Periods of the job's own processor limit in which it was ready to run; 0 without a limit.",
);
pub(super) static THROTTLED_PERIODS: Metric = count(
    "cgroup_cpu_throttled_periods_total",
    "The part of cgroup_cpu_periods_total in which the limit was reached.",
);
pub(super) static THROTTLED: Metric = micros(
    "cgroup_cpu_throttled_seconds_total",
    "Time throttled by the processor limit, summed over processors: it can exceed elapsed time.",
);
pub(super) static BURSTS: Metric = count(
    "cgroup_cpu_bursts_total",
    "Periods in which the job exceeded the limit by using quota saved earlier.",
);
pub(super) static BURST: Metric =
    micros("cgroup_cpu_burst_seconds_total", "Time above the limit in bursts.");

pub(super) static MEMORY: Metric =
    bytes("cgroup_memory_bytes", "Memory charged to the job, including page cache.");
pub(super) static MEMORY_PEAK: Metric = bytes(
    "cgroup_memory_peak_bytes",
    "Largest cgroup_memory_bytes since the job's cgroup was created.",
);
pub(super) static MEMORY_LIMIT: Metric = bytes(
    "cgroup_memory_limit_bytes",
    "Limit of cgroup_memory_bytes; no sample where there is none.",
);
pub(super) static LIMIT_HITS: Metric = count(
    "cgroup_memory_limit_hits_total",
    "Times that memory use reached the limit and the kernel had to reclaim memory.",
);
pub(super) static OOM_KILLS: Metric =
    count("cgroup_oom_kills_total", "Processes killed by the OOM killer.");
pub(super) static OOM_UNATTRIBUTED: Metric = count(
    "cgroup_oom_unattributed_total",
    "OOM kills in the kernel's log that no job is charged with, because their records are cut, ambiguous or contradict each other.",
);
pub(super) static OOM_CHARGED: Metric = bytes(
    "cgroup_oom_charged_bytes",
    "Memory charged to the job when the kernel killed a task at the job's own limit.",
);
pub(super) static OOM_PART: Metric = bytes(
    "cgroup_oom_part_bytes",
    "Memory of a task of the job that was killed, or of the full cgroup below the job's that caused the kill.",
);
pub(super) static SWAP: Metric = bytes("cgroup_memory_swap_bytes", "Memory swapped out.");
pub(super) static SWAP_PEAK: Metric = bytes(
    "cgroup_memory_swap_peak_bytes",
    "Largest cgroup_memory_swap_bytes since the job's cgroup was created.",
);
pub(super) static SWAP_LIMIT: Metric = bytes(
    "cgroup_memory_swap_limit_bytes",
    "Limit of cgroup_memory_swap_bytes; no sample where there is none.",
);

pub(super) static NUMA_ANON: Metric = bytes(
    "cgroup_numa_anon_bytes",
    "The part of cgroup_memory_anon_bytes that lies on this NUMA node.",
);
pub(super) static NUMA_FILE: Metric = bytes(
    "cgroup_numa_file_bytes",
    "The part of cgroup_memory_file_bytes that lies on this NUMA node.",
);

pub(super) static READ_BYTES: Metric =
    bytes_total("cgroup_io_read_bytes_total", "Bytes read from the disk.");
pub(super) static WRITE_BYTES: Metric = bytes_total(
    "cgroup_io_write_bytes_total",
    "Bytes written to the disk; version 1 excludes data that the kernel writes later from the page cache.",
);
pub(super) static DISCARD_BYTES: Metric =
    bytes_total("cgroup_io_discard_bytes_total", "Bytes returned to the disk.");
pub(super) static READS: Metric = count("cgroup_io_reads_total", "Read operations on the disk.");
pub(super) static WRITES: Metric = count("cgroup_io_writes_total", "Write operations on the disk.");
pub(super) static DISCARDS: Metric =
    count("cgroup_io_discards_total", "Discard operations on the disk.");

pub(super) static TASKS: Metric = gauge("cgroup_tasks", "Tasks of the job, counting every thread.");
pub(super) static TASKS_PEAK: Metric =
    gauge("cgroup_tasks_peak", "Largest cgroup_tasks since the job's cgroup was created.");
pub(super) static TASKS_LIMIT: Metric =
    gauge("cgroup_tasks_limit", "Limit of cgroup_tasks; no sample where there is none.");

pub(super) static CPU_SOME: Metric = micros(
    "cgroup_pressure_cpu_some_seconds_total",
    "Time in which at least one task of the job waited for a processor.",
);
pub(super) static CPU_FULL: Metric = micros(
    "cgroup_pressure_cpu_full_seconds_total",
    "The part of cgroup_pressure_cpu_some_seconds_total in which no task of the job ran.",
);
pub(super) static MEMORY_SOME: Metric = micros(
    "cgroup_pressure_memory_some_seconds_total",
    "Time in which at least one task of the job waited for memory.",
);
pub(super) static MEMORY_FULL: Metric = micros(
    "cgroup_pressure_memory_full_seconds_total",
    "The part of cgroup_pressure_memory_some_seconds_total in which no task of the job could continue.",
);
pub(super) static IO_SOME: Metric = micros(
    "cgroup_pressure_io_some_seconds_total",
    "Time in which at least one task of the job waited for a disk.",
);
pub(super) static IO_FULL: Metric = micros(
    "cgroup_pressure_io_full_seconds_total",
    "The part of cgroup_pressure_io_some_seconds_total in which no task of the job could continue.",
);

pub(super) static UNIT_CPU: Metric = micros(
    "cgroup_unit_cpu_seconds_total",
    "Time on a processor of a service or session, summed over processors.",
);
pub(super) static UNIT_MEMORY: Metric = bytes(
    "cgroup_unit_memory_bytes",
    "Memory charged to a service or session, including page cache.",
);
pub(super) static UNIT_READ_BYTES: Metric = bytes_total(
    "cgroup_unit_io_read_bytes_total",
    "Bytes that a service or session read from all disks.",
);
pub(super) static UNIT_WRITE_BYTES: Metric = bytes_total(
    "cgroup_unit_io_write_bytes_total",
    "Bytes that a service or session wrote to all disks.",
);

macro_rules! lines {
    (beside $($beside:ident)*; $($name:ident = $key:ident, $metric:expr;)*) => {
        $(static $name: Metric = $metric;)*

                /// The reported lines of `memory.stat`, in its order, with their metrics.
        pub(super) static LINES: &[(MemoryKey, &Metric)] = &[
            $((MemoryKey::$key, &$name),)*
                        // Version 2 has a separate file for it.
            (MemoryKey::Swap, &SWAP),
        ];

        /// Every metric.
        pub(super) static METRICS: &[&Metric] = &[$(&$beside,)* $(&$name),*];
    };
}

lines! {
    beside JOBS UNKEPT UNREAD UNREAD_PRESSURE UNREAD_IO OOM_UNATTRIBUTED CPU CPU_USER CPU_SYSTEM PERIODS THROTTLED_PERIODS THROTTLED BURSTS
        BURST MEMORY MEMORY_PEAK MEMORY_LIMIT LIMIT_HITS OOM_KILLS OOM_CHARGED OOM_PART SWAP
        SWAP_PEAK SWAP_LIMIT NUMA_ANON NUMA_FILE
        READ_BYTES WRITE_BYTES DISCARD_BYTES READS WRITES DISCARDS TASKS TASKS_PEAK TASKS_LIMIT
        CPU_SOME CPU_FULL MEMORY_SOME MEMORY_FULL IO_SOME IO_FULL UNIT_CPU UNIT_MEMORY UNIT_READ_BYTES
        UNIT_WRITE_BYTES;
    ANON = Anon, bytes(
        "cgroup_memory_anon_bytes",
        "Anonymous memory: heaps, stacks, private mappings.",
    );
    FILE = File, bytes("cgroup_memory_file_bytes", "Page cache, including shared memory.");
    KERNEL = Kernel, bytes("cgroup_memory_kernel_bytes", "Memory of the kernel for the job.");
    SOCKET = Socket, bytes("cgroup_memory_socket_bytes", "Buffers of the job's sockets.");
    SHMEM = Shmem, bytes(
        "cgroup_memory_shmem_bytes",
        "The part of cgroup_memory_file_bytes that is shared memory and tmpfs.",
    );
    MAPPED = Mapped, bytes(
        "cgroup_memory_mapped_bytes",
        "The part of cgroup_memory_file_bytes that is mapped.",
    );
    DIRTY = Dirty, bytes("cgroup_memory_dirty_bytes", "Page cache that differs from the disk.");
    WRITEBACK = Writeback, bytes(
        "cgroup_memory_writeback_bytes",
        "Page cache being written to the disk.",
    );
    SWAP_CACHED = SwapCached, bytes(
        "cgroup_memory_swap_cached_bytes",
        "Memory that is both swapped out and still in memory.",
    );
    ANON_HUGE = AnonHuge, bytes(
        "cgroup_memory_anon_huge_bytes",
        "The part of cgroup_memory_anon_bytes in huge pages.",
    );
    INACTIVE_ANON = InactiveAnon, bytes(
        "cgroup_memory_inactive_anon_bytes",
        "Anonymous memory and tmpfs not used recently.",
    );
    ACTIVE_ANON = ActiveAnon, bytes(
        "cgroup_memory_active_anon_bytes",
        "Anonymous memory and tmpfs used recently.",
    );
    INACTIVE_FILE = InactiveFile, bytes(
        "cgroup_memory_inactive_file_bytes",
        "Page cache of files not used recently.",
    );
    ACTIVE_FILE = ActiveFile, bytes(
        "cgroup_memory_active_file_bytes",
        "Page cache of files used recently.",
    );
    UNEVICTABLE = Unevictable, bytes("cgroup_memory_unevictable_bytes", "Locked memory.");
    REFAULT_ANON = RefaultAnon, count(
        "cgroup_refaults_anon_total",
        "Anonymous pages needed again soon after their eviction.",
    );
    REFAULT_FILE = RefaultFile, count(
        "cgroup_refaults_file_total",
        "Pages of files needed again soon after their eviction.",
    );
    SWAPPED_IN = SwappedIn, count("cgroup_pages_swapped_in_total", "Pages read back from swap.");
    SWAPPED_OUT = SwappedOut, count("cgroup_pages_swapped_out_total", "Pages written to swap.");
    CHARGED = Charged, count(
        "cgroup_memory_charges_total",
        "Charges of a page, or of a folio of several pages, to the job: version 1's pgpgin, although nothing is read.",
    );
    UNCHARGED = Uncharged, count(
        "cgroup_memory_uncharges_total",
        "Releases of a page, or of a folio of several pages, by the job: version 1's pgpgout.",
    );
    FAULTS = Faults, count(
        "cgroup_page_faults_total",
        "Page faults, both minor and major.",
    );
    MAJOR_FAULTS = MajorFaults, count(
        "cgroup_page_faults_major_total",
        "The part of cgroup_page_faults_total that had to read from a disk or swap.",
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Kind;

    /// The table of docs/reference/cgroup-memory.md.
    fn table() -> String {
        let mut table =
            String::from("| metric | kind | version 2 | version 1 |\n|---|---|---|---|\n");
        let word = |word: Option<&str>| word.map_or("–".to_owned(), |word| format!("`{word}`"));
        for (key, metric) in LINES {
            let kind = metric.kind.word();
            let v2 = if *key == MemoryKey::Swap {
                "–, but `memory.swap.current`".to_owned()
            } else {
                word(key.v2())
            };
            table.push_str(&format!(
                "| `{}` | {kind} | {v2} | {} |\n",
                metric.name,
                word(key.v1())
            ));
        }
        table
    }

    #[test]
    fn the_documented_table_is_this_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/cgroup-memory.md");
        let page = std::fs::read_to_string(path).unwrap();
        assert!(page.contains(&table()), "the table in {path} should be:\n{}", table());
    }

    #[test]
    fn every_line_is_reported_once_and_events_are_counters() {
        for key in MemoryKey::ALL {
            assert_eq!(LINES.iter().filter(|(known, _)| known == key).count(), 1, "{key:?}");
        }
        for (key, metric) in LINES {
            assert_eq!(metric.kind == Kind::Gauge, metric.unit == Unit::Bytes, "{key:?}");
        }
    }
}
