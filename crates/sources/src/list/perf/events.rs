//! Events with metrics of their own, and the metrics of all other events.

use kernel::perf::{HARDWARE, HW_CACHE, SOFTWARE};
use model::{Metric, Unit};

/// An event with a metric of its own.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) name: &'static str,
    pub(super) kind: u32,
    pub(super) config: u64,
    pub(super) metric: Metric,
}

/// Aliases: Colmet's cache events, which lack operation and result.
pub(super) const ALIASES: [(&str, &str); 9] = [
    ("cache_l1d", "cache_l1d_read_access"),
    ("cache_ll", "cache_ll_read_access"),
    ("cache_dtlb", "cache_dtlb_read_access"),
    ("cache_itlb", "cache_itlb_read_access"),
    ("cache_bpu", "cache_bpu_read_access"),
    ("cache_node", "cache_node_read_access"),
    ("cache_op_read", "cache_l1d_read_access"),
    ("cache_op_prefetch", "cache_l1d_prefetch_access"),
    ("cache_result_access", "cache_l1d_read_access"),
];

/// The event with this name or alias.
pub(super) fn find(name: &str) -> Option<&'static Named> {
    let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
    let name = alias.map_or(name, |(_, name)| name);
    EVENTS.iter().chain(&CACHE).find(|event| event.name == name)
}

/// All names and aliases.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let named = EVENTS.iter().chain(&CACHE).map(|event| event.name);
    named.chain(ALIASES.iter().map(|(alias, _)| *alias))
}

pub(super) static EVENT: Metric =
    Metric::counter("perf_event_total", Unit::Count, "Count of the event, in the PMU's own steps.");
pub(super) static EVENT_SECONDS: Metric =
    Metric::counter("perf_event_seconds_total", Unit::Seconds, "Time counted by the event.");
pub(super) static EVENT_BYTES: Metric =
    Metric::counter("perf_event_bytes_total", Unit::Bytes, "Bytes counted by the event.");
pub(super) static EVENT_JOULES: Metric =
    Metric::counter("perf_event_joules_total", Unit::Joules, "Energy counted by the event.");
pub(super) static RUNNING: Metric = Metric::gauge(
    "perf_running_ratio",
    Unit::Ratio,
    "Share of the time since the previous tick in which the event was counted; below 1 if there are more events than PMU counters. Counts are scaled by it.",
);
pub(super) static DESCRIPTORS: Metric =
    Metric::gauge("perf_descriptors", Unit::Count, "Descriptors open for counters.");
pub(super) static UNCOUNTED: Metric = Metric::gauge(
    "perf_uncounted_jobs",
    Unit::Count,
    "Jobs that are not counted completely, because of `descriptors_max` or a rejection by the kernel.",
);
const OTHERS: usize = 7;

const fn event(name: &'static str, kind: u32, config: u64, metric: Metric) -> Named {
    Named { name, kind, config, metric }
}

macro_rules! events {
    (
        counts { $($kind:ident $config:literal $name:literal $help:literal,)* }
        clocks { $($clock_config:literal $clock:literal $clock_help:literal,)* }
    ) => {
        [
            $(event(
                $name,
                $kind,
                $config,
                Metric::counter(concat!("perf_", $name, "_total"), Unit::Count, $help),
            ),)*
            $(event(
                $clock,
                SOFTWARE,
                $clock_config,
                Metric::counter(
                    concat!("perf_", $clock, "_seconds_total"),
                    Unit::Seconds,
                    $clock_help,
                ).steps(1_000_000_000),
            ),)*
        ]
    };
}

/// The clocks count nanoseconds.
static EVENTS: [Named; 22] = events! {
    counts {
    HARDWARE 0 "cpu_cycles" "Cycles of the processors while they worked, at their actual frequency.",
    HARDWARE 1 "instructions" "Instructions completed.",
    HARDWARE 2 "cache_references" "Accesses of the last-level cache, as defined by the processor's maker.",
    HARDWARE 3 "cache_misses" "Accesses that missed the last-level cache.",
    HARDWARE 4 "branch_instructions" "Branches completed.",
    HARDWARE 5 "branch_misses" "Mispredicted branches.",
    HARDWARE 6 "bus_cycles" "Cycles of the bus, which is slower than the processor.",
    HARDWARE 7 "stalled_cycles_frontend" "Cycles in which no instruction could be fetched or decoded.",
    HARDWARE 8 "stalled_cycles_backend" "Cycles in which instructions waited for data or units.",
    HARDWARE 9 "ref_cpu_cycles" "Cycles while the processors worked, counted at a fixed frequency.",
    SOFTWARE 2 "page_faults" "Page faults.",
    SOFTWARE 3 "context_switches" "Switches from one task to another.",
    SOFTWARE 4 "cpu_migrations" "Moves of a task to another processor.",
    SOFTWARE 5 "page_faults_min" "Page faults that needed no disk.",
    SOFTWARE 6 "page_faults_maj" "Page faults that needed a disk.",
    SOFTWARE 7 "alignment_faults" "Unaligned accesses that the kernel corrected; none on x86.",
    SOFTWARE 8 "emulation_faults" "Instructions that the kernel had to emulate.",
    SOFTWARE 9 "dummy" "Always 0; tests whether counters can be opened.",
    SOFTWARE 10 "bpf_output" "Events generated by BPF programs.",
    SOFTWARE 11 "cgroup_switches" "Switches to a task of another cgroup (Linux 5.13).",
    }
    clocks {
    0 "cpu_clock" "Time by the processors' clocks: for a node all time of all processors, for a job its run time.",
    1 "task_clock" "Time by the tasks' clocks: for a node all time of all processors, for a job its run time.",
    }
};

macro_rules! cache {
    ($($level:literal $number:literal $words:literal,)*) => {
        [$(
            cache!(@ $level $number $words, "read" 0 "Loads from "),
            cache!(@ $level $number $words, "read" 0 "Loads from " miss),
            cache!(@ $level $number $words, "write" 1 "Stores to "),
            cache!(@ $level $number $words, "write" 1 "Stores to " miss),
            cache!(@ $level $number $words, "prefetch" 2 "Prefetches into "),
            cache!(@ $level $number $words, "prefetch" 2 "Prefetches into " miss),
        )*]
    };
    (@ $level:literal $number:literal $words:literal, $op:literal $op_number:literal $does:literal) => {
        event(
            concat!("cache_", $level, "_", $op, "_access"),
            HW_CACHE,
            $number | $op_number << 8,
            Metric::counter(
                concat!("perf_cache_", $level, "_", $op, "_access_total"),
                Unit::Count,
                concat!($does, $words, "."),
            ),
        )
    };
    (@ $level:literal $number:literal $words:literal, $op:literal $op_number:literal $does:literal miss) => {
        event(
            concat!("cache_", $level, "_", $op, "_miss"),
            HW_CACHE,
            $number | $op_number << 8 | 1 << 16,
            Metric::counter(
                concat!("perf_cache_", $level, "_", $op, "_miss_total"),
                Unit::Count,
                concat!($does, $words, " that missed."),
            ),
        )
    };
}

static CACHE: [Named; 42] = cache! {
    "l1d" 0 "the first-level data cache",
    "l1i" 1 "the first-level instruction cache",
    "ll" 2 "the last-level cache",
    "dtlb" 3 "the data TLB",
    "itlb" 4 "the instruction TLB",
    "bpu" 5 "the branch prediction unit",
    "node" 6 "the memory of the local NUMA node",
};

/// All metrics, for the declaration.
#[expect(clippy::indexing_slicing, reason = "below the lengths, and evaluated at compile time")]
pub(super) static METRICS: [&Metric; EVENTS.len() + CACHE.len() + OTHERS] = {
    let mut metrics = [&EVENT; EVENTS.len() + CACHE.len() + OTHERS];
    let others =
        [&EVENT, &EVENT_SECONDS, &EVENT_BYTES, &EVENT_JOULES, &RUNNING, &DESCRIPTORS, &UNCOUNTED];
    let mut place = 0;
    while place < metrics.len() {
        metrics[place] = if place < EVENTS.len() {
            &EVENTS[place].metric
        } else if place < EVENTS.len() + CACHE.len() {
            &CACHE[place - EVENTS.len()].metric
        } else {
            others[place - EVENTS.len() - CACHE.len()]
        };
        place += 1;
    }
    metrics
};

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of Colmet's library, with type and config of the kernel's header.
    const OF_COLMET: [(&str, u32, u64); 28] = [
        ("cpu_cycles", 0, 0),
        ("instructions", 0, 1),
        ("cache_references", 0, 2),
        ("cache_misses", 0, 3),
        ("branch_instructions", 0, 4),
        ("branch_misses", 0, 5),
        ("bus_cycles", 0, 6),
        ("ref_cpu_cycles", 0, 9),
        ("cache_l1d", 3, 0),
        ("cache_ll", 3, 2),
        ("cache_dtlb", 3, 3),
        ("cache_itlb", 3, 4),
        ("cache_bpu", 3, 5),
        ("cache_node", 3, 6),
        ("cache_op_read", 3, 0),
        ("cache_op_prefetch", 3, 0x200),
        ("cache_result_access", 3, 0),
        ("cpu_clock", 1, 0),
        ("task_clock", 1, 1),
        ("page_faults", 1, 2),
        ("context_switches", 1, 3),
        ("cpu_migrations", 1, 4),
        ("page_faults_min", 1, 5),
        ("page_faults_maj", 1, 6),
        ("alignment_faults", 1, 7),
        ("emulation_faults", 1, 8),
        ("dummy", 1, 9),
        ("bpf_output", 1, 10),
    ];

    #[test]
    fn every_name_of_colmet_maps_to_its_event() {
        for (name, kind, config) in OF_COLMET {
            let event = find(name).unwrap();
            assert_eq!((event.kind, event.config), (kind, config), "{name}");
        }
    }

    #[test]
    fn cache_events_carry_operation_and_result() {
        for (name, config) in [
            ("cache_l1d_read_miss", 0x1_0000),
            ("cache_ll_write_access", 0x102),
            ("cache_node_prefetch_miss", 0x1_0206),
        ] {
            assert_eq!(find(name).unwrap().config, config, "{name}");
        }
    }

    #[test]
    fn each_event_has_one_name() {
        let mut events: Vec<_> = EVENTS.iter().chain(&CACHE).map(|e| (e.kind, e.config)).collect();
        events.sort_unstable();
        events.dedup();
        assert_eq!(events.len(), EVENTS.len() + CACHE.len());
        let mut names: Vec<_> = names().collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), EVENTS.len() + CACHE.len() + ALIASES.len());
    }
}
