//! The metrics of processes.

use kernel::process::State;
use model::{Metric, Unit};

/// Number of I/O counters of a process.
pub(super) const IO: usize = 7;

const fn bytes(name: &'static str, help: &'static str) -> Metric {
    Metric::counter(name, Unit::Bytes, help)
}

const fn calls(name: &'static str, help: &'static str) -> Metric {
    Metric::counter(name, Unit::Count, help)
}

const fn memory(name: &'static str, help: &'static str) -> Metric {
    Metric::gauge(name, Unit::Bytes, help)
}

const fn count(name: &'static str, help: &'static str) -> Metric {
    Metric::gauge(name, Unit::Count, help)
}

/// Bytes returned by read calls.
pub(super) static READ_CHAR: Metric = bytes(
    "process_read_char_bytes_total",
    "Bytes returned to the job's processes by read calls, from files, pipes, terminals or memory.",
);
/// Bytes passed to write calls.
pub(super) static WRITE_CHAR: Metric = bytes(
    "process_write_char_bytes_total",
    "Bytes that the job's processes passed to write calls.",
);
/// Read calls.
pub(super) static READ_CALLS: Metric = calls(
    "process_read_calls_total",
    "Read calls of the job's processes; for a process that ended between two readings, the kernel reports each \
     task's calls rounded down to multiples of 1024.",
);
/// Write calls.
pub(super) static WRITE_CALLS: Metric = calls(
    "process_write_calls_total",
    "Write calls of the job's processes; for a process that ended between two readings, the kernel reports each \
     task's calls rounded down to multiples of 1024.",
);
/// Bytes from storage.
pub(super) static READ_BYTES: Metric =
    bytes("process_read_bytes_total", "Bytes fetched from storage for the job's processes.");
/// Bytes to storage.
pub(super) static WRITE_BYTES: Metric = bytes(
    "process_write_bytes_total",
    "Bytes that the job's processes caused to be sent to storage, including those cancelled later.",
);
/// Bytes not sent after all.
pub(super) static CANCELLED_WRITE_BYTES: Metric = bytes(
    "process_cancelled_write_bytes_total",
    "Bytes that were not sent to storage because the job's processes deleted or truncated files; bytes sent are \
     process_write_bytes_total less these.",
);

/// The I/O counters, in the order of [`super::process_table::Io`].
pub(super) static IO_METRICS: [&Metric; IO] = [
    &READ_CHAR,
    &WRITE_CHAR,
    &READ_CALLS,
    &WRITE_CALLS,
    &READ_BYTES,
    &WRITE_BYTES,
    &CANCELLED_WRITE_BYTES,
];

pub(super) static COUNT: Metric = count("process_count", "Processes of the job.");
pub(super) static THREADS: Metric = count("process_threads", "Threads of the job's processes.");
pub(super) static RSS: Metric = memory(
    "process_rss_bytes",
    "Resident memory of the job's processes, summed; shared memory counts for each.",
);
pub(super) static RSS_ANON: Metric = memory(
    "process_rss_anon_bytes",
    "Resident memory of the job's processes that belongs to no file: heap, stacks.",
);
pub(super) static RSS_FILE: Metric = memory(
    "process_rss_file_bytes",
    "Resident memory of the job's processes that belongs to files: programs, libraries, mapped data.",
);
pub(super) static RSS_SHMEM: Metric = memory(
    "process_rss_shmem_bytes",
    "Resident memory of the job's processes that is shared memory, counted for each process that maps it.",
);
pub(super) static VM: Metric =
    memory("process_vm_bytes", "Virtual memory of the job's processes, summed.");
pub(super) static SWAP: Metric = memory(
    "process_swap_bytes",
    "Memory of the job's processes that was swapped out, excluding shared memory.",
);
pub(super) static HIWATER_RSS: Metric = memory(
    "process_hiwater_rss_bytes",
    "Largest resident memory observed of any single process of the job.",
);
pub(super) static STALE: Metric = count(
    "process_stale",
    "Processes of the job with values of an earlier reading, because the time budget was used.",
);

/// The states, each with its metric.
pub(super) static STATES: [(State, Metric); 8] = [
    (
        State::Running,
        count(
            "process_running",
            "Processes of the job with a first thread that runs or is ready to run.",
        ),
    ),
    (
        State::Sleeping,
        count(
            "process_sleeping",
            "Processes of the job with a first thread that waits for an event.",
        ),
    ),
    (
        State::DiskSleep,
        count(
            "process_disk_sleeping",
            "Processes of the job with a first thread in uninterruptible sleep, mostly waiting for a disk.",
        ),
    ),
    (State::Stopped, count("process_stopped", "Processes of the job that a signal stopped.")),
    (State::Traced, count("process_traced", "Processes of the job that a debugger stopped.")),
    (
        State::Zombie,
        count(
            "process_zombies",
            "Processes of the job that have ended and wait for their parents, or with a first thread that has \
             ended; at most 1024 of a node are found.",
        ),
    ),
    (State::Dead, count("process_dying", "Processes of the job that are being removed.")),
    (State::Other, count("process_other", "Processes of the job in any other state.")),
];

pub(super) static TOP_CPU: Metric = Metric::counter(
    "process_top_cpu_seconds_total",
    Unit::Seconds,
    "Processor time of the job's processes with the most processor time since the previous reading.",
)
.steps(100);
pub(super) static TOP_RSS: Metric = memory(
    "process_top_rss_bytes",
    "Resident memory of the job's processes with the most processor time since the previous reading.",
);

/// Number of metrics that are neither I/O nor states.
const OTHERS: usize = 12;
const ALL: usize = IO + 8 + OTHERS;

/// Every metric of the source.
#[expect(clippy::indexing_slicing, reason = "within bounds, and evaluated at compile time")]
pub(super) static METRICS: [&Metric; ALL] = {
    let others: [&Metric; OTHERS] = [
        &COUNT,
        &THREADS,
        &RSS,
        &RSS_ANON,
        &RSS_FILE,
        &RSS_SHMEM,
        &VM,
        &SWAP,
        &HIWATER_RSS,
        &STALE,
        &TOP_CPU,
        &TOP_RSS,
    ];
    let mut all = [&COUNT; ALL];
    let mut place = 0;
    while place < ALL {
        all[place] = if place < IO {
            IO_METRICS[place]
        } else if place < IO + STATES.len() {
            &STATES[place - IO].1
        } else {
            others[place - IO - STATES.len()]
        };
        place += 1;
    }
    all
};
