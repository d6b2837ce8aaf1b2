//! The metrics of the kernel's values, with their units.

use kernel::taskstats::Counter;
use model::{Metric, Unit};

/// A counter of the kernel as a metric.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) counter: Counter,
    pub(super) metric: Metric,
    /// Conversion of the kernel's number to the metric's steps.
    pub(super) factor: f64,
    /// Whether the kernel counts it only while `kernel.task_delayacct` is 1.
    pub(super) is_delay: bool,
}

impl Row {
    /// Converts a number of the kernel to the metric's unit.
    pub(super) fn value(&self, raw: u64) -> f64 {
        raw as f64 * self.factor / f64::from(self.metric.divisor)
    }
}

/// Steps per second of values in nanoseconds.
const NANOS: u32 = 1_000_000_000;
/// Steps per second of values in microseconds.
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

/// The 28 counters of the kernel.
pub(super) static ROWS: [Row; Counter::COUNT] = [
    count(
        Counter::CpuCount,
        "taskstats_cpu_delays_total",
        "Times that the job's tasks waited for a processor before they ran.",
    ),
    time(
        Counter::CpuDelay,
        NANOS,
        "taskstats_cpu_delay_seconds_total",
        "Time in which the job's tasks were ready to run but waited for a processor.",
    ),
    delay(count(
        Counter::BlkioCount,
        "taskstats_blkio_delays_total",
        "Times that the job's tasks waited for block I/O.",
    )),
    delay(time(
        Counter::BlkioDelay,
        NANOS,
        "taskstats_blkio_delay_seconds_total",
        "Time in which the job's tasks waited for their own block I/O.",
    )),
    delay(count(
        Counter::SwapinCount,
        "taskstats_swapin_delays_total",
        "Times that the job's tasks waited for a page to be read back from swap.",
    )),
    delay(time(
        Counter::SwapinDelay,
        NANOS,
        "taskstats_swapin_delay_seconds_total",
        "Time in which the job's tasks waited for pages to be read back from swap.",
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
        "Exact processor time of the job's tasks, measured by the scheduler.",
    ),
    time(
        Counter::UserTime,
        MICROS,
        "taskstats_cpu_user_seconds_total",
        "Processor time of the job's tasks in user mode: the exact run time, divided by the clock ticks of all \
         tasks.",
    ),
    time(
        Counter::SystemTime,
        MICROS,
        "taskstats_cpu_system_seconds_total",
        "Processor time of the job's tasks in the kernel: the exact run time, divided by the clock ticks of all \
         tasks.",
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
        "Resident memory of the job's tasks integrated over their processor time: divided by that time, the \
         average while running.",
    ),
    memory(
        Counter::VirtMem,
        "taskstats_virtmem_byte_seconds_total",
        "Virtual memory of the job's tasks integrated over their processor time.",
    ),
    bytes(
        Counter::ReadChar,
        "taskstats_read_char_bytes_total",
        "Bytes returned to the job's tasks by read calls; whole KiB of each task.",
    ),
    bytes(
        Counter::WriteChar,
        "taskstats_write_char_bytes_total",
        "Bytes that the job's tasks passed to write calls; whole KiB of each task.",
    ),
    count(
        Counter::ReadSyscalls,
        "taskstats_read_syscalls_total",
        "Read calls of the job's tasks; the kernel rounds the calls of each task down to multiples of 1024.",
    ),
    count(
        Counter::WriteSyscalls,
        "taskstats_write_syscalls_total",
        "Write calls of the job's tasks; the kernel rounds the calls of each task down to multiples of 1024.",
    ),
    bytes(
        Counter::ReadBytes,
        "taskstats_read_bytes_total",
        "Bytes fetched from storage for the job's tasks; whole KiB of each task.",
    ),
    bytes(
        Counter::WriteBytes,
        "taskstats_write_bytes_total",
        "Bytes that the job's tasks caused to be sent to storage, including those cancelled later; whole KiB \
         of each task.",
    ),
    bytes(
        Counter::CancelledWriteBytes,
        "taskstats_cancelled_write_bytes_total",
        "Bytes that were not sent to storage because the job's tasks deleted or truncated files; bytes sent are \
         taskstats_write_bytes_total less these.",
    ),
    count(
        Counter::VoluntarySwitches,
        "taskstats_voluntary_switches_total",
        "Voluntary context switches of the job's tasks: to wait for an event, or to end.",
    ),
    count(
        Counter::InvoluntarySwitches,
        "taskstats_involuntary_switches_total",
        "Involuntary context switches of the job's tasks.",
    ),
    time(
        Counter::UserTimeScaled,
        MICROS,
        "taskstats_cpu_user_scaled_seconds_total",
        "Time in user mode, scaled by frequency on architectures that support it.",
    ),
    time(
        Counter::SystemTimeScaled,
        MICROS,
        "taskstats_cpu_system_scaled_seconds_total",
        "Time in the kernel, scaled by frequency on architectures that support it.",
    ),
    time(
        Counter::CpuRunRealScaled,
        NANOS,
        "taskstats_cpu_run_real_scaled_seconds_total",
        "Processor time, scaled by frequency on architectures that support it.",
    ),
    delay(count(
        Counter::FreePagesCount,
        "taskstats_freepages_delays_total",
        "Times that the job's tasks had to free memory before an allocation.",
    )),
    delay(time(
        Counter::FreePagesDelay,
        NANOS,
        "taskstats_freepages_delay_seconds_total",
        "Time that the job's tasks spent freeing memory before an allocation.",
    )),
];

pub(super) static BEGIN: Metric = Metric::gauge(
    "taskstats_begin_seconds",
    Unit::Seconds,
    "Start of the first task of the job that was observed, in seconds since 1970.",
);
pub(super) static ELAPSED: Metric = Metric::gauge(
    "taskstats_elapsed_seconds",
    Unit::Seconds,
    "Longest life of any task of the job, as of its last reading.",
)
.steps(MICROS);
pub(super) static HIWATER_RSS: Metric = Metric::gauge(
    "taskstats_hiwater_rss_bytes",
    Unit::Bytes,
    "Largest resident memory that any single process of the job ever had.",
);
pub(super) static HIWATER_VM: Metric = Metric::gauge(
    "taskstats_hiwater_vm_bytes",
    Unit::Bytes,
    "Largest virtual memory that any single process of the job ever had.",
);
pub(super) static TASKS: Metric = Metric::gauge(
    "taskstats_tasks",
    Unit::Count,
    "Current tasks of the job, counting every thread.",
);
pub(super) static ENDED: Metric = Metric::counter(
    "taskstats_ended_tasks_total",
    Unit::Count,
    "Ended tasks of the job with an exit record.",
);
pub(super) static RESIDUAL: Metric = Metric::gauge(
    "taskstats_residual_cpu_seconds",
    Unit::Seconds,
    "Processor time of the job's cgroup that its tasks do not account for: use after the exit record, and \
     missed tasks.",
)
.steps(NANOS);
pub(super) static JOB_CPU: Metric = Metric::counter(
    "taskstats_job_cpu_seconds_total",
    Unit::Seconds,
    "Processor time of the job: that of its cgroup when all its tasks were last read, plus their use since as the \
     kernel accounts for ended tasks, without the exit of each (about 0.05 ms). Absent if not all tasks were read.",
)
.steps(NANOS);
pub(super) static EXITS: Metric = Metric::counter(
    "taskstats_exits_total",
    Unit::Count,
    "Exit records of tasks of the node, inside and outside of jobs.",
);
pub(super) static UNATTRIBUTED: Metric = Metric::counter(
    "taskstats_unattributed_exits_total",
    Unit::Count,
    "Ended tasks that could not be attributed to a job or to none, because their parents are unknown.",
);
pub(super) static UNATTRIBUTED_CPU: Metric = Metric::counter(
    "taskstats_unattributed_cpu_seconds_total",
    Unit::Seconds,
    "Processor time of the tasks in taskstats_unattributed_exits_total.",
)
.steps(NANOS);
pub(super) static OVERFLOWS: Metric = Metric::counter(
    "taskstats_overflows_total",
    Unit::Count,
    "Times that the kernel dropped exits or forks of tasks because a buffer was full.",
);
pub(super) static NOT_LOOKED_AT: Metric = Metric::counter(
    "taskstats_not_looked_at_total",
    Unit::Count,
    "New tasks that were not checked for joining a job, because too many started at once.",
);
pub(super) static UNANSWERED: Metric = Metric::counter(
    "taskstats_unanswered_total",
    Unit::Count,
    "Queries without an answer, and malformed answers and exit records.",
);
pub(super) static UNREAD: Metric = Metric::gauge(
    "taskstats_unread_tasks",
    Unit::Count,
    "Tasks of the current job that wait for the next tick, because the time budget was used.",
);

pub(super) static COMMAND_CPU: Metric = Metric::counter(
    "taskstats_command_cpu_seconds_total",
    Unit::Seconds,
    "Processor time of the job's tasks with this name, including ended ones; at most ten names, each counted \
     since it was first among the largest.",
)
.steps(NANOS);
pub(super) static OTHER_CPU: Metric = Metric::counter(
    "taskstats_other_commands_cpu_seconds_total",
    Unit::Seconds,
    "Processor time of the job beyond that of the named commands: of other commands, of named ones before they were \
     named, and before a move into the job was noticed.",
)
.steps(NANOS);

/// Number of metrics outside of [`ROWS`].
pub(super) const OTHERS: usize = 17;
const ALL: usize = Counter::COUNT + OTHERS;

/// Every metric of the source.
#[expect(clippy::indexing_slicing, reason = "within bounds, and evaluated at compile time")]
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
        // 1 MiB for 1 s.
        assert_eq!(value(Counter::CoreMem, 1_000_000), 1_048_576.0);
        let metric = &ROWS[Counter::CoreMem.place()].metric;
        for raw in [1, 7, 123_456_789] {
            let steps = metric.to_steps(value(Counter::CoreMem, raw));
            assert_eq!(steps, Some(i64::try_from(raw).unwrap() * 16_384));
        }
    }
}
