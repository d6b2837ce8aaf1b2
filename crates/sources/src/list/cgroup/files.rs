//! The files of a cgroup: one row per file, with a function that converts its numbers to metrics.

use super::disks::{BLKIO_FILES, Disks};
use super::metrics::{
    BURST, BURSTS, CPU, CPU_FULL, CPU_SOME, CPU_SYSTEM, CPU_USER, DISCARD_BYTES, DISCARDS, IO_FULL,
    IO_SOME, LIMIT_HITS, LINES, MEMORY, MEMORY_FULL, MEMORY_LIMIT, MEMORY_PEAK, MEMORY_SOME,
    NUMA_ANON, NUMA_FILE, OOM_KILLS, PERIODS, READ_BYTES, READS, SWAP, SWAP_LIMIT, SWAP_PEAK,
    TASKS, TASKS_LIMIT, TASKS_PEAK, THROTTLED, THROTTLED_PERIODS, UNIT_CPU, UNIT_MEMORY,
    UNIT_READ_BYTES, UNIT_WRITE_BYTES, WRITE_BYTES, WRITES,
};
use crate::source::sink::SampleWriter;
use cgroups::Hierarchy;
use kernel::Root;
use kernel::cgroup::cpu::{Bandwidth, bandwidth, cpu_stat, cpuacct_stat};
use kernel::cgroup::io::{BlkioOperation, DeviceNumber, blkio, io_stat};
use kernel::cgroup::memory::{
    MemoryStat, memory_events, memory_stat_v1, memory_stat_v2, oom_control,
};
use kernel::cgroup::numa::{NumaKind, numa_stat};
use kernel::cgroup::{limit, single};
use kernel::parse::ParseError;
use kernel::pressure::pressure;
use kernel::sockets::page_bytes;
use model::{Kind, Metric, Timestamp};

/// A memory limit of version 1 from this value on means "no limit": the kernel's largest, 2^63 less a page of
/// up to 64 KiB (include/linux/page_counter.h, `PAGE_COUNTER_MAX`).
const NO_LIMIT: u64 = (1 << 63) - (1 << 16);

/// A part of the source with a state of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Cpu,
    Throttling,
    Memory,
    OomKills,
    Io,
    Tasks,
    Pressure,
}

/// Condition for reading a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadCondition {
    /// None.
    Always,
    /// None; kills in the directories below are added.
    WithBelow,
    /// Version 1 counts transfers, in this row of [`BLKIO_FILES`].
    Blkio(usize),
}

/// How often a file is read between two readings, because its values are lost with the cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Never.
    No,
    /// Once a second: expensive, or less important.
    EachSecond,
    /// At each look.
    Each,
}

impl Look {
    const fn of(part: Part) -> Self {
        match part {
            Part::Cpu | Part::OomKills | Part::Pressure => Self::Each,
            Part::Io | Part::Throttling => Self::EachSecond,
            Part::Memory | Part::Tasks => Self::No,
        }
    }
}

/// A file of a cgroup.
#[derive(Debug)]
pub(super) struct File {
    /// The file is in the directory of the first of these hierarchies that the cgroup has.
    pub(super) of: &'static [Hierarchy],
    /// The file is not read if the cgroup has a directory in this hierarchy, as other files there have
    /// the same values.
    pub(super) unless: Option<Hierarchy>,
    /// Its name.
    pub(super) name: &'static str,
    /// The part of the source that it belongs to.
    pub(super) part: Part,
    /// Condition for reading it.
    pub(super) only: ReadCondition,
    /// How often it is read between two readings.
    pub(super) look: Look,
    /// Pushes its values.
    pub(super) push: Push,
}

/// Returns whether the file had values.
type Push = fn(&mut Output<'_, '_>, &[u8]) -> Result<bool, ParseError>;

/// Destination and parameters of a file's values.
pub(super) struct Output<'a, 's> {
    pub(super) out: &'a mut SampleWriter<'s>,
    pub(super) labels: &'a [(&'a str, &'a str)],
    /// Creation of the cgroup: the start of its counters.
    pub(super) created: Timestamp,
    pub(super) root: &'a Root,
    pub(super) now: Timestamp,
    pub(super) disks: &'a mut Disks,
    pub(super) user_hz: u64,
    /// Version 1: kills in the directories below the cgroup's, and the start of their count.
    pub(super) kills_below: (u64, Timestamp),
}

const V2: &[Hierarchy] = &[Hierarchy::Unified];
const CPU_V1: &[Hierarchy] = &[Hierarchy::Cpu];
const CPUACCT: &[Hierarchy] = &[Hierarchy::Cpuacct];
const MEMORY_V1: &[Hierarchy] = &[Hierarchy::Memory];
const BLKIO: &[Hierarchy] = &[Hierarchy::Blkio];
/// Both versions have the same files.
const PIDS: &[Hierarchy] = &[Hierarchy::Pids, Hierarchy::Unified];

const fn file(of: &'static [Hierarchy], name: &'static str, part: Part, push: Push) -> File {
    File { of, unless: None, name, part, only: ReadCondition::Always, look: Look::of(part), push }
}

/// A file of version 2 with the values of a version 1 hierarchy's files.
const fn else_v2(v1: Hierarchy, name: &'static str, part: Part, push: Push) -> File {
    File {
        of: V2,
        unless: Some(v1),
        name,
        part,
        only: ReadCondition::Always,
        look: Look::of(part),
        push,
    }
}

const fn only(only: ReadCondition, name: &'static str, part: Part, push: Push) -> File {
    let of = if matches!(only, ReadCondition::Blkio(_)) { BLKIO } else { MEMORY_V1 };
    File { of, unless: None, name, part, only, look: Look::of(part), push }
}

/// The same file, also read at each look.
const fn looked(file: File) -> File {
    File { look: Look::Each, ..file }
}

/// The files of a job.
pub(super) static OF_JOBS: &[File] = &[
    file(CPUACCT, "cpuacct.usage", Part::Cpu, |t, text| t.time_in_ns(&CPU, text)),
    file(CPUACCT, "cpuacct.stat", Part::Cpu, cpu_modes),
    else_v2(Hierarchy::Cpuacct, "cpu.stat", Part::Cpu, cpu),
    file(CPU_V1, "cpu.stat", Part::Throttling, throttling),
    else_v2(Hierarchy::Cpu, "cpu.stat", Part::Throttling, throttling),
    looked(file(MEMORY_V1, "memory.usage_in_bytes", Part::Memory, |t, text| t.one(&MEMORY, text))),
    looked(file(MEMORY_V1, "memory.max_usage_in_bytes", Part::Memory, |t, text| {
        t.one(&MEMORY_PEAK, text)
    })),
    file(MEMORY_V1, "memory.limit_in_bytes", Part::Memory, |t, text| t.limit(&MEMORY_LIMIT, text)),
    file(MEMORY_V1, "memory.failcnt", Part::Memory, |t, text| t.one(&LIMIT_HITS, text)),
    file(MEMORY_V1, "memory.stat", Part::Memory, |t, text| Ok(t.lines(&memory_stat_v1(text)?))),
    file(MEMORY_V1, "memory.numa_stat", Part::Memory, numa),
    only(ReadCondition::WithBelow, "memory.oom_control", Part::OomKills, kills),
    looked(else_v2(Hierarchy::Memory, "memory.current", Part::Memory, |t, text| {
        t.one(&MEMORY, text)
    })),
    looked(else_v2(Hierarchy::Memory, "memory.peak", Part::Memory, |t, text| {
        t.one(&MEMORY_PEAK, text)
    })),
    else_v2(Hierarchy::Memory, "memory.max", Part::Memory, |t, text| t.limit(&MEMORY_LIMIT, text)),
    else_v2(Hierarchy::Memory, "memory.stat", Part::Memory, |t, text| {
        Ok(t.lines(&memory_stat_v2(text)?))
    }),
    else_v2(Hierarchy::Memory, "memory.swap.current", Part::Memory, |t, text| t.one(&SWAP, text)),
    looked(else_v2(Hierarchy::Memory, "memory.swap.peak", Part::Memory, |t, text| {
        t.one(&SWAP_PEAK, text)
    })),
    else_v2(Hierarchy::Memory, "memory.swap.max", Part::Memory, |t, text| {
        t.limit(&SWAP_LIMIT, text)
    }),
    else_v2(Hierarchy::Memory, "memory.events", Part::OomKills, events),
    else_v2(Hierarchy::Memory, "memory.numa_stat", Part::Memory, numa),
    only(ReadCondition::Blkio(0), BLKIO_FILES[0].0, Part::Io, bytes),
    only(ReadCondition::Blkio(0), BLKIO_FILES[0].1, Part::Io, operations),
    only(ReadCondition::Blkio(1), BLKIO_FILES[1].0, Part::Io, bytes),
    only(ReadCondition::Blkio(1), BLKIO_FILES[1].1, Part::Io, operations),
    only(ReadCondition::Blkio(2), BLKIO_FILES[2].0, Part::Io, bytes),
    only(ReadCondition::Blkio(2), BLKIO_FILES[2].1, Part::Io, operations),
    only(ReadCondition::Blkio(3), BLKIO_FILES[3].0, Part::Io, bytes),
    only(ReadCondition::Blkio(3), BLKIO_FILES[3].1, Part::Io, operations),
    else_v2(Hierarchy::Blkio, "io.stat", Part::Io, transfers),
    file(PIDS, "pids.current", Part::Tasks, |t, text| t.one(&TASKS, text)),
    file(PIDS, "pids.peak", Part::Tasks, |t, text| t.one(&TASKS_PEAK, text)),
    file(PIDS, "pids.max", Part::Tasks, |t, text| t.limit(&TASKS_LIMIT, text)),
    file(V2, "cpu.pressure", Part::Pressure, |t, text| t.stalls([&CPU_SOME, &CPU_FULL], text)),
    file(V2, "memory.pressure", Part::Pressure, |t, text| {
        t.stalls([&MEMORY_SOME, &MEMORY_FULL], text)
    }),
    file(V2, "io.pressure", Part::Pressure, |t, text| t.stalls([&IO_SOME, &IO_FULL], text)),
];

/// The files of a unit.
pub(super) static OF_UNITS: &[File] = &[
    file(CPUACCT, "cpuacct.usage", Part::Cpu, |t, text| t.time_in_ns(&UNIT_CPU, text)),
    else_v2(Hierarchy::Cpuacct, "cpu.stat", Part::Cpu, unit_cpu),
    file(MEMORY_V1, "memory.usage_in_bytes", Part::Memory, |t, text| t.one(&UNIT_MEMORY, text)),
    else_v2(Hierarchy::Memory, "memory.current", Part::Memory, |t, text| t.one(&UNIT_MEMORY, text)),
    only(ReadCondition::Blkio(0), BLKIO_FILES[0].0, Part::Io, unit_bytes),
    only(ReadCondition::Blkio(1), BLKIO_FILES[1].0, Part::Io, unit_bytes),
    only(ReadCondition::Blkio(2), BLKIO_FILES[2].0, Part::Io, unit_bytes),
    only(ReadCondition::Blkio(3), BLKIO_FILES[3].0, Part::Io, unit_bytes),
    else_v2(Hierarchy::Blkio, "io.stat", Part::Io, unit_transfers),
];

impl Output<'_, '_> {
    fn push(&mut self, metric: &'static Metric, value: f64) {
        match metric.kind {
            Kind::Gauge => self.out.gauge(metric, self.labels, value),
            Kind::Counter => self.out.counter(metric, self.labels, value, self.created),
        }
    }

    fn micros(&mut self, metric: &'static Metric, micros: u64) {
        self.push(metric, micros as f64 / 1e6);
    }

    /// A file with one number.
    fn one(&mut self, metric: &'static Metric, text: &[u8]) -> Result<bool, ParseError> {
        self.push(metric, single(text)? as f64);
        Ok(true)
    }

    /// A file with a limit; "no limit" gives no sample.
    fn limit(&mut self, metric: &'static Metric, text: &[u8]) -> Result<bool, ParseError> {
        if let Some(value) = limit(text)?.filter(|value| *value < NO_LIMIT) {
            self.push(metric, value as f64);
        }
        Ok(true)
    }

    /// A file with nanoseconds. The value is rounded to whole microseconds, so that days of all
    /// processors stay exact.
    fn time_in_ns(&mut self, metric: &'static Metric, text: &[u8]) -> Result<bool, ParseError> {
        self.micros(metric, single(text)? / 1000);
        Ok(true)
    }

    fn lines(&mut self, stat: &MemoryStat) -> bool {
        for (key, metric) in LINES {
            if let Some(value) = stat.get(*key) {
                self.push(metric, value as f64);
            }
        }
        true
    }

    fn stalls(&mut self, metrics: [&'static Metric; 2], text: &[u8]) -> Result<bool, ParseError> {
        let stall = pressure(text)?;
        for (metric, micros) in metrics.into_iter().zip([stall.some_us, stall.full_us]) {
            if let Some(micros) = micros {
                self.micros(metric, micros);
            }
        }
        Ok(true)
    }

    fn of_disk(&mut self, device: DeviceNumber, metric: &'static Metric, value: Option<u64>) {
        if let Some(value) = value
            && let Some(disk) = self.disks.label(self.root, self.now, device)
        {
            self.out.counter(metric, &[("disk", disk)], value as f64, self.created);
        }
    }
}

fn cpu(output: &mut Output<'_, '_>, text: &[u8]) -> Result<bool, ParseError> {
    let stat = cpu_stat(text)?;
    output.micros(&CPU, stat.usage_us);
    output.micros(&CPU_USER, stat.user_us);
    output.micros(&CPU_SYSTEM, stat.system_us);
    Ok(true)
}

fn unit_cpu(output: &mut Output<'_, '_>, text: &[u8]) -> Result<bool, ParseError> {
    output.micros(&UNIT_CPU, cpu_stat(text)?.usage_us);
    Ok(true)
}

/// Version 1's user and system time. `cpuacct.usage_user` and `_sys` have finer steps, but the kernel
/// samples them, so their sum can exceed the total; the times in `cpuacct.stat` are scaled to the total
/// (kernel/sched/cpuacct.c, Linux 5.19).
fn cpu_modes(output: &mut Output<'_, '_>, text: &[u8]) -> Result<bool, ParseError> {
    let stat = cpuacct_stat(text)?;
    let hz = output.user_hz as f64;
    output.push(&CPU_USER, stat.user as f64 / hz);
    output.push(&CPU_SYSTEM, stat.system as f64 / hz);
    Ok(true)
}

fn throttling(output: &mut Output<'_, '_>, text: &[u8]) -> Result<bool, ParseError> {
    let Some(bandwidth) = bandwidth(text)? else { return Ok(false) };
    let Bandwidth { periods, throttled_periods, throttled_ns, bursts, burst_ns } = bandwidth;
    output.push(&PERIODS, periods as f64);
    output.push(&THROTTLED_PERIODS, throttled_periods as f64);
    output.micros(&THROTTLED, throttled_ns / 1000);
    if let (Some(bursts), Some(burst_ns)) = (bursts, burst_ns) {
        output.push(&BURSTS, bursts as f64);
        output.micros(&BURST, burst_ns / 1000);
    }
    Ok(true)
}

fn events(output: &mut Output<'_, '_>, text: &[u8]) -> Result<bool, ParseError> {
    let events = memory_events(text)?;
    output.push(&LIMIT_HITS, events.max as f64);
    if let Some(kills) = events.oom_kill {
        output.push(&OOM_KILLS, kills as f64);
    }
    Ok(true)
}

fn kills(output: &mut Output<'_, '_>, text: &[u8]) -> Result<bool, ParseError> {
    let Some(kills) = oom_control(text)? else { return Ok(false) };
    let (below, start) = output.kills_below;
    let kills = kills.saturating_add(below) as f64;
    output.out.counter(&OOM_KILLS, output.labels, kills, start);
    Ok(true)
}

/// Memory by NUMA node. Left out on a machine with one node, where `memory.stat` has the same values.
fn numa(output: &mut Output<'_, '_>, text: &[u8]) -> Result<bool, ParseError> {
    let mut nodes = 0;
    let page_bytes = page_bytes(output.root);
    numa_stat(text, page_bytes, |kind, _, _| nodes += usize::from(kind == NumaKind::Anon))?;
    if nodes > 1 {
        numa_stat(text, page_bytes, |kind, node, bytes| {
            let metric = if kind == NumaKind::Anon { &NUMA_ANON } else { &NUMA_FILE };
            output.out.gauge(metric, &[("node", node)], bytes as f64);
        })?;
    }
    Ok(nodes > 1)
}

fn transfers(output: &mut Output<'_, '_>, text: &[u8]) -> Result<bool, ParseError> {
    for line in io_stat(text)? {
        let line = line?;
        for (metric, value) in [
            (&READ_BYTES, line.read.bytes),
            (&READS, line.read.operations),
            (&WRITE_BYTES, line.written.bytes),
            (&WRITES, line.written.operations),
            (&DISCARD_BYTES, line.discarded.bytes),
            (&DISCARDS, line.discarded.operations),
        ] {
            output.of_disk(line.device, metric, value);
        }
    }
    Ok(true)
}

fn bytes(output: &mut Output<'_, '_>, text: &[u8]) -> Result<bool, ParseError> {
    by_operation(output, text, [&READ_BYTES, &WRITE_BYTES, &DISCARD_BYTES])
}

fn operations(output: &mut Output<'_, '_>, text: &[u8]) -> Result<bool, ParseError> {
    by_operation(output, text, [&READS, &WRITES, &DISCARDS])
}

fn by_operation(
    output: &mut Output<'_, '_>,
    text: &[u8],
    [read, write, discard]: [&'static Metric; 3],
) -> Result<bool, ParseError> {
    for line in blkio(text)? {
        let line = line?;
        let metric = match line.operation {
            BlkioOperation::Read => read,
            BlkioOperation::Write => write,
            BlkioOperation::Discard => discard,
        };
        output.of_disk(line.device, metric, Some(line.value));
    }
    Ok(true)
}

/// Bytes of all reported disks; 0 for a unit that used none.
fn unit_transfers(output: &mut Output<'_, '_>, text: &[u8]) -> Result<bool, ParseError> {
    let (mut read, mut written) = (0_u64, 0_u64);
    for line in io_stat(text)? {
        let line = line?;
        if output.disks.label(output.root, output.now, line.device).is_some() {
            read = read.saturating_add(line.read.bytes.unwrap_or(0));
            written = written.saturating_add(line.written.bytes.unwrap_or(0));
        }
    }
    output.push(&UNIT_READ_BYTES, read as f64);
    output.push(&UNIT_WRITE_BYTES, written as f64);
    Ok(true)
}

fn unit_bytes(output: &mut Output<'_, '_>, text: &[u8]) -> Result<bool, ParseError> {
    let (mut read, mut written) = (0_u64, 0_u64);
    for line in blkio(text)? {
        let line = line?;
        let sum = match line.operation {
            BlkioOperation::Read => &mut read,
            BlkioOperation::Write => &mut written,
            BlkioOperation::Discard => continue,
        };
        if output.disks.label(output.root, output.now, line.device).is_some() {
            *sum = sum.saturating_add(line.value);
        }
    }
    output.push(&UNIT_READ_BYTES, read as f64);
    output.push(&UNIT_WRITE_BYTES, written as f64);
    Ok(true)
}
