//! Backends of Python nodes with a record for each job.

use super::Shown::{Bytes, Count, Date, MebibyteMicroseconds, Microseconds, Nanoseconds};
use super::{
    Backend, CENTI, Column, ColumnType, KIBI, MEBI, MICRO, NANO, column, short, signed, unsigned,
};
use crate::equivalent::{Ours, Scope};
use crate::formula::Formula::{Difference, Metric, Number, Quotient, Scaled};

/// A counter of the event at this position of the options.
const fn event(theirs: &'static str, position: u8) -> Column {
    column(theirs, ColumnType::Signed, Count, Ours::Event(position))
}

/// The kernel's statistics of the tasks of a job.
pub static TASKSTATS: Backend = Backend {
    id: "taskstats_default",
    title: "taskstats_default",
    word: "taskstats",
    scope: Scope::Job,
    note: "Ours include ended tasks, and count each task once.",
    columns: &[
        unsigned("cpu_count", Count, Metric("taskstats_cpu_delays_total"))
            .line("Nb of cpu delay values recorded"),
        unsigned(
            "cpu_delay_total",
            Nanoseconds,
            Scaled("taskstats_cpu_delay_seconds_total", NANO, 1),
        )
        .line("Total of cumulative cpu delay"),
        unsigned("blkio_count", Count, Metric("taskstats_blkio_delays_total"))
            .line("Nb of block I/O delay values recorded"),
        unsigned(
            "blkio_delay_total",
            Nanoseconds,
            Scaled("taskstats_blkio_delay_seconds_total", NANO, 1),
        )
        .line("Total of cumulative block I/O delay"),
        unsigned("swapin_count", Count, Metric("taskstats_swapin_delays_total"))
            .line("Nb of swapin delay calues recorded"),
        unsigned(
            "swapin_delay_total",
            Nanoseconds,
            Scaled("taskstats_swapin_delay_seconds_total", NANO, 1),
        )
        .line("Total of cumulative swapin delay"),
        unsigned(
            "cpu_run_real_total",
            Nanoseconds,
            Scaled("taskstats_cpu_run_real_seconds_total", NANO, 1),
        )
        .line("Total of cumulative cpu run real"),
        unsigned(
            "cpu_run_virtual_total",
            Nanoseconds,
            Scaled("taskstats_cpu_run_virtual_seconds_total", NANO, 1),
        )
        .line("Total of cumulative cpu run virtual"),
        short("ac_btime", Date, Metric("taskstats_begin_seconds")).line("Begin time"),
        unsigned("ac_etime", Microseconds, Scaled("taskstats_elapsed_seconds", MICRO, 1))
            .line("Elasped time"),
        unsigned("ac_utime", Microseconds, Scaled("taskstats_cpu_user_seconds_total", MICRO, 1))
            .line("User CPU time"),
        unsigned("ac_stime", Microseconds, Scaled("taskstats_cpu_system_seconds_total", MICRO, 1))
            .line("System CPU time"),
        unsigned("ac_minflt", Count, Metric("taskstats_minor_faults_total"))
            .line("Minor Page Fault Count"),
        unsigned("ac_majflt", Count, Metric("taskstats_major_faults_total"))
            .line("Major Page Fault Count"),
        unsigned(
            "coremem",
            MebibyteMicroseconds,
            Scaled("taskstats_coremem_byte_seconds_total", MICRO, MEBI),
        )
        .line("Accumulated RSS usage"),
        unsigned(
            "virtmem",
            MebibyteMicroseconds,
            Scaled("taskstats_virtmem_byte_seconds_total", MICRO, MEBI),
        )
        .line("Accumulated VM usage"),
        unsigned("read_char", Bytes, Metric("taskstats_read_char_bytes_total")).line("Bytes read"),
        unsigned("write_char", Bytes, Metric("taskstats_write_char_bytes_total"))
            .line("Bytes written"),
        unsigned("read_syscalls", Count, Metric("taskstats_read_syscalls_total"))
            .line("Read syscalls"),
        unsigned("write_syscalls", Count, Metric("taskstats_write_syscalls_total"))
            .line("Write syscalls"),
        unsigned("read_bytes", Bytes, Metric("taskstats_read_bytes_total")).line("Read I/O"),
        unsigned("write_bytes", Bytes, Metric("taskstats_write_bytes_total")).line("Write I/O"),
        unsigned("cancelled_write_bytes", Bytes, Metric("taskstats_cancelled_write_bytes_total"))
            .line("Cancelled write I/O"),
        unsigned("nvcsw", Count, Metric("taskstats_voluntary_switches_total"))
            .line("Voluntary context switches"),
        unsigned("nivcsw", Count, Metric("taskstats_involuntary_switches_total"))
            .line("Non-volontary context switches"),
        unsigned(
            "ac_utimescaled",
            Microseconds,
            Scaled("taskstats_cpu_user_scaled_seconds_total", MICRO, 1),
        )
        .line("User CPU time scaled on frequency"),
        unsigned(
            "ac_stimescaled",
            Microseconds,
            Scaled("taskstats_cpu_system_scaled_seconds_total", MICRO, 1),
        )
        .line("System CPU time scaled on frequency"),
        unsigned(
            "cpu_scaled_run_real_total",
            Nanoseconds,
            Scaled("taskstats_cpu_run_real_scaled_seconds_total", NANO, 1),
        )
        .line("CPU run real total scaled on frequency"),
        unsigned("freepages_count", Count, Metric("taskstats_freepages_delays_total"))
            .line("Number of freepages delay values recorded"),
        unsigned(
            "freepages_delay_total",
            Nanoseconds,
            Scaled("taskstats_freepages_delay_seconds_total", NANO, 1),
        )
        .line("Total of cumulative freepages delay"),
    ],
    ..Backend::DEFAULT
};

/// Input, output and memory of a job's processes.
pub static JOBPROC: Backend = Backend {
    id: "jobprocstats_default",
    title: "jobprocstats_default",
    word: "jobproc",
    scope: Scope::Job,
    note: "Colmet counts a process once for each of its threads, and drops ended ones; ours count each process once, including ended ones.",
    columns: &[
        signed("rchar", Count, Metric("process_read_char_bytes_total")),
        signed("wchar", Count, Metric("process_write_char_bytes_total")),
        signed("syscr", Count, Metric("process_read_calls_total")),
        signed("syscw", Count, Metric("process_write_calls_total")),
        signed("read_bytes", Count, Metric("process_read_bytes_total")),
        signed("write_bytes", Count, Metric("process_write_bytes_total")),
        signed("cancelled_write_bytes", Count, Metric("process_cancelled_write_bytes_total")),
        signed("VmRSS", Count, Scaled("process_rss_bytes", 1, KIBI)),
        signed("RssShmem", Count, Scaled("process_rss_shmem_bytes", 1, KIBI)),
        signed("VmSize", Count, Scaled("process_vm_bytes", 1, KIBI)),
    ],
    older: &[7],
    differs: Some(
        "Colmet counts a process once for each of its threads, and the value falls when a process ends",
    ),
};

/// Five hardware counters of a job, by their positions in `--perfhw-list`.
pub static PERFHW: Backend = Backend {
    id: "perfhwstats_default",
    title: "perfhwstats_default",
    word: "perfhw",
    scope: Scope::Job,
    note: "A separate file assigns events to Colmet's counters; ours have names.",
    columns: &[
        event("counter_1", 1),
        event("counter_2", 2),
        event("counter_3", 3),
        event("counter_4", 4),
        event("counter_5", 5),
    ],
    ..Backend::DEFAULT
};

/// GPUs of a job.
pub static NVIDIA: Backend = Backend {
    id: "nvidiastats_default",
    title: "nvidiastats_default",
    word: "nvidia",
    scope: Scope::Job,
    note: "Over its GPUs. Ours are per GPU, with its number; `nvidia_job_share_ratio` is a job's share of it, so that two jobs on one GPU do not count it twice.",
    columns: &[
        signed("power", Count, Metric("nvidia_power_watts")),
        signed("temperature", Count, Metric("nvidia_temperature_celsius")),
        signed("utilization-gpu", Count, Scaled("nvidia_use_ratio", CENTI, 1)),
        signed("utilization-memory", Count, Scaled("nvidia_memory_use_ratio", CENTI, 1)),
        signed("memory-total", Count, Scaled("nvidia_memory_size_bytes", 1, MEBI)),
        signed(
            "memory-free",
            Count,
            Quotient(
                &Difference(
                    &Difference(
                        &Metric("nvidia_memory_size_bytes"),
                        &Metric("nvidia_memory_reserved_bytes"),
                    ),
                    &Metric("nvidia_memory_used_bytes"),
                ),
                &Number(MEBI),
            ),
        ),
        signed("memory-used", Count, Scaled("nvidia_memory_used_bytes", 1, MEBI)),
    ],
    differs: Some(
        "Colmet adds the shares of a job's GPUs, counts a GPU once for each of its jobs, and reports one temperature of them",
    ),
    ..Backend::DEFAULT
};
