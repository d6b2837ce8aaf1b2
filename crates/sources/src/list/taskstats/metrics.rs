//! What each of the kernel's values is called, and in which unit it is shown.

use kernel::taskstats::Counter;
use model::{Metric, Unit};

/// A counter of the kernel as a metric.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) counter: Counter,
    pub(super) metric: Metric,
    /// The kernel's number times this are the metric's steps.
    pub(super) factor: f64,
    /// Whether it is counted only while `kernel.task_delayacct` is 1.
    pub(super) is_delay: bool,
}

impl Row {
    /// A number of the kernel in the metric's unit.
    pub(super) fn value(&self, raw: u64) -> f64 {
        raw as f64 * self.factor / f64::from(self.metric.divisor)
    }
}

/// Steps in a second of what is counted in nanoseconds.
const NANOS: u32 = 1_000_000_000;
/// Steps in a second of what is counted in microseconds.
const MICROS: u32 = 1_000_000;
/// A MiB-microsecond has 2^20 / 10^6 = 16 384 / 15 625 byte-seconds.
const MIB_MICROS: (f64, u32) = (16_384.0, 15_625);

const fn count(counter: Counter, name: &'static str, help: &'static str) -> Row {
    let metric = Metric::counter(name, Unit::Count, help);
    Row { counter, metric, factor: 1.0, is_delay: false }
}

const fn bytes(counter: Counter, name: &'static str, help: &'static str) -> Row {
    let metric = Metric::counter(name, Unit::Bytes, help);
    Row { counter, metric, factor: 1.0, is_delay: false }
}

const fn time(counter: Counter, steps: u32, name: &'static str, help: &'static str) -> Row {
    let metric = Metric::counter(name, Unit::Seconds, help).steps(steps);
    Row { counter, metric, factor: 1.0, is_delay: false }
}

const fn memory(counter: Counter, name: &'static str, help: &'static str) -> Row {
    let metric = Metric::counter(name, Unit::ByteSeconds, help).steps(MIB_MICROS.1);
    Row { counter, metric, factor: MIB_MICROS.0, is_delay: false }
}

const fn delay(mut row: Row) -> Row {
    row.is_delay = true;
    row
}

/// The 28 values that grow.
pub(super) static ROWS: [Row; Counter::COUNT] = [
    count(
        Counter::CpuCount,
        "taskstats_cpu_delays_total",
        "How often the job's tasks waited for a processor before they ran.",
    ),
    time(
        Counter::CpuDelay,
        NANOS,
        "taskstats_cpu_delay_seconds_total",
        "Time the job's tasks could run and waited for a processor.",
    ),
    delay(count(
        Counter::BlkioCount,
        "taskstats_blkio_delays_total",
        "How often the job's tasks waited for block io.",
    )),
    delay(time(
        Counter::BlkioDelay,
        NANOS,
        "taskstats_blkio_delay_seconds_total",
        "Time the job's tasks waited for block io that they had asked for.",
    )),
    delay(count(
        Counter::SwapinCount,
        "taskstats_swapin_delays_total",
        "How often the job's tasks waited for a page to come back from swap.",
    )),
    delay(time(
        Counter::SwapinDelay,
        NANOS,
        "taskstats_swapin_delay_seconds_total",
        "Time the job's tasks waited for pages to come back from swap.",
    )),
    time(
        Counter::CpuRunReal,
        NANOS,
        "taskstats_cpu_run_real_seconds_total",
        "Processor time of the job's tasks in user mode and in the kernel, sampled at clock ticks.",
    ),
    time(
        Counter::CpuRunVirtual,
        NANOS,
        "taskstats_cpu_run_virtual_seconds_total",
        "Processor time of the job's tasks as the scheduler measures it: the exact one.",
    ),
    time(
        Counter::UserTime,
        MICROS,
        "taskstats_cpu_user_seconds_total",
        "Processor time of the job's tasks in user mode: the exact run time, divided as the clock ticks of all \
         tasks are.",
    ),
    time(
        Counter::SystemTime,
        MICROS,
        "taskstats_cpu_system_seconds_total",
        "Processor time of the job's tasks in the kernel: the exact run time, divided as the clock ticks of all \
         tasks are.",
    ),
    count(
        Counter::MinorFaults,
        "taskstats_minor_faults_total",
        "Page faults of the job's tasks that needed no disk.",
    ),
    count(
        Counter::MajorFaults,
        "taskstats_major_faults_total",
        "Page faults of the job's tasks that read from a disk.",
    ),
    memory(
        Counter::CoreMem,
        "taskstats_coremem_byte_seconds_total",
        "Resident memory of the job's tasks over their processor time: divided by that, the average \
         while running.",
    ),
    memory(
        Counter::VirtMem,
        "taskstats_virtmem_byte_seconds_total",
        "Virtual memory of the job's tasks over their processor time.",
    ),
    bytes(
        Counter::ReadChar,
        "taskstats_read_char_bytes_total",
        "Bytes given to the job's tasks by read calls; whole KiB of each task.",
    ),
    bytes(
        Counter::WriteChar,
        "taskstats_write_char_bytes_total",
        "Bytes that the job's tasks gave to write calls; whole KiB of each task.",
    ),
    count(
        Counter::ReadSyscalls,
        "taskstats_read_syscalls_total",
        "Read calls of the job's tasks; the kernel tells multiples of 1024 of each task alone.",
    ),
    count(
        Counter::WriteSyscalls,
        "taskstats_write_syscalls_total",
        "Write calls of the job's tasks; the kernel tells multiples of 1024 of each task alone.",
    ),
    bytes(
        Counter::ReadBytes,
        "taskstats_read_bytes_total",
        "Bytes fetched from storage for the job's tasks; whole KiB of each task.",
    ),
    bytes(
        Counter::WriteBytes,
        "taskstats_write_bytes_total",
        "Bytes that the job's tasks caused to be sent to storage, those that were cancelled later \
         included; whole KiB of each task.",
    ),
    bytes(
        Counter::CancelledWriteBytes,
        "taskstats_cancelled_write_bytes_total",
        "Bytes that the job's tasks kept from being sent to storage by deleting or truncating files; \
         written bytes less these were sent.",
    ),
    count(
        Counter::VoluntarySwitches,
        "taskstats_voluntary_switches_total",
        "How often the job's tasks gave the processor away, to wait for something or to end.",
    ),
    count(
        Counter::InvoluntarySwitches,
        "taskstats_involuntary_switches_total",
        "How often the processor was taken from the job's tasks.",
    ),
    time(
        Counter::UserTimeScaled,
        MICROS,
        "taskstats_cpu_user_scaled_seconds_total",
        "Time in user mode, scaled by frequency where the architecture does that, else the same.",
    ),
    time(
        Counter::SystemTimeScaled,
        MICROS,
        "taskstats_cpu_system_scaled_seconds_total",
        "Time in the kernel, scaled by frequency where the architecture does that, else the same.",
    ),
    time(
        Counter::CpuRunRealScaled,
        NANOS,
        "taskstats_cpu_run_real_scaled_seconds_total",
        "Processor time, scaled by frequency where the architecture does that, else the same.",
    ),
    delay(count(
        Counter::FreePagesCount,
        "taskstats_freepages_delays_total",
        "How often the job's tasks had to free memory before they got some.",
    )),
    delay(time(
        Counter::FreePagesDelay,
        NANOS,
        "taskstats_freepages_delay_seconds_total",
        "Time the job's tasks spent freeing memory before they got some.",
    )),
];

pub(super) static BEGIN: Metric = Metric::gauge(
    "taskstats_begin_seconds",
    Unit::Seconds,
    "When the first of the job's tasks that were seen began, in seconds since 1970.",
);
pub(super) static ELAPSED: Metric = Metric::gauge(
    "taskstats_elapsed_seconds",
    Unit::Seconds,
    "How long the longest-living of the job's tasks had lived when it was last read.",
)
.steps(MICROS);
pub(super) static HIWATER_RSS: Metric = Metric::gauge(
    "taskstats_hiwater_rss_bytes",
    Unit::Bytes,
    "Most resident memory that any one process of the job ever had.",
);
pub(super) static HIWATER_VM: Metric = Metric::gauge(
    "taskstats_hiwater_vm_bytes",
    Unit::Bytes,
    "Most virtual memory that any one process of the job ever had.",
);
pub(super) static TASKS: Metric =
    Metric::gauge("taskstats_tasks", Unit::Count, "Tasks of the job now, every thread counted.");
pub(super) static ENDED: Metric = Metric::counter(
    "taskstats_ended_tasks_total",
    Unit::Count,
    "Tasks of the job whose end was told.",
);
pub(super) static RESIDUAL: Metric = Metric::gauge(
    "taskstats_residual_cpu_seconds",
    Unit::Seconds,
    "Processor time of the job's cgroup that its tasks do not account for: the ends of their endings, \
     and tasks that were missed.",
)
.steps(NANOS);
pub(super) static JOB_CPU: Metric = Metric::counter(
    "taskstats_job_cpu_seconds_total",
    Unit::Seconds,
    "Processor time of the job: what its cgroup had counted when all its tasks were read, and what they used since. \
     Absent where the tasks were not all read.",
)
.steps(NANOS);
pub(super) static EXITS: Metric = Metric::counter(
    "taskstats_exits_total",
    Unit::Count,
    "Tasks of the node whose end was told, of jobs and of none.",
);
pub(super) static UNATTRIBUTED: Metric = Metric::counter(
    "taskstats_unattributed_exits_total",
    Unit::Count,
    "Ended tasks of which it could not be told whether they were of a job, as their parents are unknown.",
);
pub(super) static UNATTRIBUTED_CPU: Metric = Metric::counter(
    "taskstats_unattributed_cpu_seconds_total",
    Unit::Seconds,
    "Processor time of the ended tasks of which it could not be told whether they were of a job.",
)
.steps(NANOS);
pub(super) static OVERFLOWS: Metric = Metric::counter(
    "taskstats_overflows_total",
    Unit::Count,
    "How often the kernel dropped ends or forks of tasks because its buffer was full.",
);
pub(super) static NOT_LOOKED_AT: Metric = Metric::counter(
    "taskstats_not_looked_at_total",
    Unit::Count,
    "New tasks that were not watched for joining a job, because too many were new at once.",
);
pub(super) static UNANSWERED: Metric = Metric::counter(
    "taskstats_unanswered_total",
    Unit::Count,
    "Requests and ends that the kernel did not answer, or answered in a way that is not known.",
);
pub(super) static UNREAD: Metric = Metric::gauge(
    "taskstats_unread_tasks",
    Unit::Count,
    "Tasks of the job in turn that wait for the next tick, as the time for this one was over.",
);

pub(super) static COMMAND_CPU: Metric = Metric::counter(
    "taskstats_command_cpu_seconds_total",
    Unit::Seconds,
    "Processor time of the job's tasks of this name, ended ones included; ten names at most, each from the \
     moment on at which it used much.",
)
.steps(NANOS);
pub(super) static OTHER_CPU: Metric = Metric::counter(
    "taskstats_other_commands_cpu_seconds_total",
    Unit::Seconds,
    "Processor time of the job's tasks whose names are not shown, and of others before their names were.",
)
.steps(NANOS);

/// The metrics that are not in [`ROWS`].
pub(super) const OTHERS: usize = 17;
const ALL: usize = Counter::COUNT + OTHERS;

/// Every metric of the source.
#[expect(
    clippy::indexing_slicing,
    reason = "within bounds, and evaluated when the program is built"
)]
pub(super) static METRICS: [&Metric; ALL] = {
    let mut all = [&BEGIN; ALL];
    let others: [&Metric; OTHERS] = [
        &BEGIN,
        &ELAPSED,
        &HIWATER_RSS,
        &HIWATER_VM,
        &TASKS,
        &ENDED,
        &RESIDUAL,
        &JOB_CPU,
        &COMMAND_CPU,
        &OTHER_CPU,
        &EXITS,
        &UNATTRIBUTED,
        &UNATTRIBUTED_CPU,
        &OVERFLOWS,
        &NOT_LOOKED_AT,
        &UNANSWERED,
        &UNREAD,
    ];
    let mut place = 0;
    while place < ALL {
        all[place] = if place < Counter::COUNT {
            &ROWS[place].metric
        } else {
            others[place - Counter::COUNT]
        };
        place += 1;
    }
    all
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_the_kernels_order() {
        for (place, row) in ROWS.iter().enumerate() {
            assert_eq!(row.counter.place(), place, "{}", row.metric.name);
        }
    }

    #[test]
    fn units() {
        let value = |counter: Counter, raw| ROWS[counter.place()].value(raw);
        assert_eq!(value(Counter::CpuRunVirtual, 7_500_414_000), 7.500414);
        assert_eq!(value(Counter::UserTime, 4_000), 0.004);
        assert_eq!(value(Counter::MinorFaults, 99), 99.0);
        // One MiB for one second.
        assert_eq!(value(Counter::CoreMem, 1_000_000), 1_048_576.0);
        let metric = &ROWS[Counter::CoreMem.place()].metric;
        for raw in [1, 7, 123_456_789] {
            let steps = metric.to_steps(value(Counter::CoreMem, raw));
            assert_eq!(steps, Some(i64::try_from(raw).unwrap() * 16_384));
        }
    }
}
