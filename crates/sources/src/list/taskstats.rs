//! Taskstats: the kernel's accounting of every task (thread) of a job, living and ended.
//!
//! Netlink family TASKSTATS, see [`kernel::taskstats`]: 560 bytes a task on Linux 6.18, read since Linux
//! 2.6.30. A job's sum has two inputs. The source queries living tasks every `poll_s` seconds. For every task
//! that ends, the kernel sends an exit record with its final values, however short the task was. A task's
//! values count once and from its start: a reading adds the growth since the previous reading, and the exit
//! record adds the rest.
//!
//! A job's counters start with its cgroup. If the cgroup is older than this source (the agent was restarted),
//! the use by tasks that ended before is unknown. Then the counters start at the first reading of the job's
//! tasks, and earlier use by these does not count. Exit records are attributed by descent, see
//! [`crate::task_attribution`]; `taskstats_unattributed_exits_total` counts those that cannot be. A job is published
//! right after the reading of its living tasks, so that its values are correct for that time.
//!
//! The kernel sends the exit record before the task frees its memory. So about 0.07 ms of processor time per
//! process is missing here but contained in the cgroup's own account. `taskstats_residual_cpu_seconds` is
//! that account less the sum here: a larger value means that tasks were missed. For the same reason the final
//! values lack the last context switch of the task; each task makes exactly one, which the source adds. User
//! and system times are sampled at clock ticks (`CONFIG_TICK_CPU_ACCOUNTING`; exact only with
//! `CONFIG_VIRT_CPU_ACCOUNTING_GEN` and `nohz_full`): their split is wrong for short tasks.
//!
//! A task counts for a job from the moment it joins. A task that started the job has used some time before
//! that, which the cgroup's account lacks. The exact processor time is reduced to that account, so the
//! residual is never negative.
//!
//! Cost on 2 virtual processors of an EPYC, Linux 6.18, optimised: a reading takes 2 µs per living task,
//! including its list (0.9 ms for 505, 10 ms for 5 000). Each task that starts or ends on the node takes 1
//! µs, whether of a job or not. A tick without a reading takes 3 to 20 µs. Forks cost no more than exits,
//! and without them a task with a parent that ended first could not be attributed: so the source always
//! listens to them.

mod cgroup_comparison;
mod commands;
mod metrics;
mod sums;

use crate::reading::file::broken;
use crate::task_attribution::source::{Listening, TaskReader};
use crate::task_attribution::task_tree::JobNo;
use crate::task_attribution::{Exits, ListKind, RECEIVE_MIB};
use crate::{Context, Every, Open, PartState, RunSamples, Sink, Source, SourceError, SourceSpec};
use cgroups::{Hierarchy, JobCgroup};
use commands::Commands;
use kernel::taskstats::{Counter, Query, QueryErrors, TaskstatsError};
use kernel::{Root, cgroup, clock, process};
use metrics::{
    BEGIN, COMMAND_CPU, ELAPSED, ENDED, EXITS, HIWATER_RSS, HIWATER_VM, JOB_CPU, METRICS,
    NOT_LOOKED_AT, OTHER_CPU, OVERFLOWS, RESIDUAL, ROWS, TASKS, UNANSWERED, UNATTRIBUTED,
    UNATTRIBUTED_CPU, UNREAD,
};
use model::Timestamp;
use model::setting::{Kind, OptionSpec};
use std::collections::VecDeque;
use std::fmt::Write as _;
use sums::{Sum, Sums};

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "taskstats",
    help: "The kernel's accounting of every task of a job, living and ended.",
    reads: &[
        "netlink TASKSTATS",
        "netlink process connector",
        "tasks or cgroup.threads of each job",
        "/proc/TID/cgroup of new tasks",
        "cpuacct.usage or cpu.stat of each job",
    ],
    cost: "2 µs per task of a job every `poll_s` seconds, 2 µs per task that starts and ends on the node",
    every: Every::Tick,
    metrics: &METRICS,
    options: &[
        OptionSpec {
            name: "poll_s",
            kind: Kind::Number { min: 0, max: 3600 },
            default: "30",
            help: "Seconds between two readings of the living tasks; 0 reads them at every tick.",
        },
        OptionSpec {
            name: "budget_ms",
            kind: Kind::Number { min: 1, max: 10_000 },
            default: "20",
            help: "Processor time for reading living tasks at one tick, in milliseconds; the next tick reads the \
                   rest.",
        },
        RECEIVE_MIB,
    ],
    open,
    may_burst: false,
    run: RunSamples::WithoutAgent,
    ..SourceSpec::DEFAULT
};

/// Number of tasks queried between two checks of the time budget.
const BATCH: usize = 64;

fn open(open: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    let query = Query::open(open.root).map_err(|error| match error {
        TaskstatsError::Absent if !open.root.is_live() => {
            SourceError::absent("no taskstats were recorded")
        }
        TaskstatsError::Absent => SourceError::absent(error.to_string()),
        TaskstatsError::Denied => SourceError::denied(
            "the kernel's accounting of tasks (netlink TASKSTATS)",
            "CAP_NET_ADMIN, or root",
        ),
        other => SourceError::broken(other.to_string()),
    })?;
    let poll_s = i64::try_from(open.options.number("poll_s")).unwrap_or(30);
    // Reading recorded files is cheap: a recorded machine is read at every tick.
    let poll_s = if open.root.is_live() { poll_s } else { 0 };
    Ok(Box::new(Listening(Taskstats {
        query,
        exits: Exits::open(open, ListKind::Tasks),
        sums: Sums::default(),
        poll_us: poll_s.saturating_mul(Timestamp::SECOND),
        budget_us: open.options.number("budget_ms").saturating_mul(1000),
        round: Round::default(),
        delays_counted: None,
        query_errors: QueryErrors::default(),
        text: Text::default(),
        inexact: VecDeque::new(),
    })))
}

struct Taskstats {
    query: Query,
    exits: Exits,
    sums: Sums,
    poll_us: i64,
    budget_us: u64,
    round: Round,
    /// Whether the kernel counts the delays that are off by default.
    delays_counted: Option<bool>,
    query_errors: QueryErrors,
    text: Text,
    /// Jobs to be measured again, and how often.
    inexact: VecDeque<(JobNo, u8)>,
}

/// Reused memory for reading small files.
#[derive(Debug, Default)]
struct Text {
    path: String,
    buf: Vec<u8>,
}

/// A round of readings: one job after the other is listed and its tasks are read, over as many ticks as
/// necessary.
#[derive(Debug, Default)]
struct Round {
    began_at: Option<Timestamp>,
    /// Whether the round covers all jobs, and not only new ones.
    is_full: bool,
    turns: VecDeque<JobNo>,
    turn: Option<JobNo>,
    tids: Vec<u32>,
    /// Number of tasks already read.
    place: usize,
}

impl TaskReader for Taskstats {
    const NAME: &'static str = SPEC.name;

    type Account = Sums;

    fn exits(&self) -> &Exits {
        &self.exits
    }

    fn exits_and_account(&mut self) -> (&mut Exits, &mut Sums) {
        (&mut self.exits, &mut self.sums)
    }

    fn read(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        self.begin_turns(cx, out);
        let read = self.read_turns(cx, out);
        self.publish_device(out);
        read
    }

    fn read_moved(&mut self, tids: &[u32], cx: &Context<'_>) {
        let before = std::mem::take(&mut self.round.tids);
        let place = std::mem::take(&mut self.round.place);
        self.round.tids.extend_from_slice(tids);
        while self.round.place < tids.len() {
            // The next reading handles tasks that have ended or that the kernel does not report.
            if self.read_batch(cx).is_err() {
                break;
            }
        }
        (self.round.tids, self.round.place) = (before, place);
        self.measure_joined(tids, cx);
    }

    fn drained(&mut self, cx: &Context<'_>) {
        self.measure_again(cx);
    }

    fn want_all(&mut self) {
        self.round.turns.clear();
        (self.round.turn, self.round.began_at) = (None, None);
        self.budget_us = u64::MAX;
    }

    fn publish_last(&mut self, no: JobNo, cx: &Context<'_>, out: &mut Sink) {
        self.measure_last(no, cx);
        self.publish(no, 0, cx, out);
    }
}

impl Taskstats {
    /// Queues all jobs when a round is due, and new jobs at once.
    fn begin_turns(&mut self, cx: &Context<'_>, out: &mut Sink) {
        let round = &mut self.round;
        let is_over = round.turn.is_none() && round.turns.is_empty();
        // After a clock was set back, a round is due.
        let is_time =
            round.began_at.is_none_or(|at| cx.now.since(at).saturating_abs() >= self.poll_us);
        if is_over && (is_time || self.exits.wants_lists()) {
            round.began_at = Some(cx.now);
            round.is_full = true;
            self.exits.begin_round();
            round.turns.extend(self.exits.jobs().iter().map(|job| job.no));
            self.look_at_delays(cx.root, out);
            return;
        }
        for job in self.exits.jobs() {
            let waits = round.turn == Some(job.no) || round.turns.contains(&job.no);
            if !waits && !self.sums.of(job.no).is_read {
                round.turns.push_front(job.no);
            }
        }
    }

    fn look_at_delays(&mut self, root: &Root, out: &mut Sink) {
        let counted = match root.read("proc/sys/kernel/task_delayacct", &mut self.text.buf) {
            Ok(()) => self.text.buf != b"0\n",
            // Before Linux 5.14 they are counted unless the machine was booted with `nodelayacct`.
            Err(_) => true,
        };
        if self.delays_counted.replace(counted) != Some(counted) {
            let absent = SourceError::absent(
                "delays of block io, of swapping and of freeing memory: the kernel counts them only with sysctl \
                 kernel.task_delayacct=1",
            );
            out.part("delays", if counted { PartState::Ok } else { PartState::Not(absent) });
        }
    }

    /// Reads living tasks until the time budget is used; at least one batch.
    fn read_turns(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        let budget_us = self.budget_us.min(cx.budget_us);
        let began_us = clock::thread_cpu_us();
        let mut result = Ok(());
        while self.take_turn(cx, &mut result) {
            result = result.and(self.read_batch(cx));
            let Some(no) = self.round.turn else { continue };
            if self.round.place >= self.round.tids.len() {
                self.round.turn = None;
                self.sums.of(no).is_read = true;
                self.measure_once(no, cx);
                self.publish(no, self.round.tids.len(), cx, out);
            }
            let is_last = self.round.turn.is_none() && self.round.turns.is_empty();
            if !is_last && clock::thread_cpu_us().saturating_sub(began_us) >= budget_us {
                break;
            }
        }
        if self.round.is_full && self.round.turn.is_none() && self.round.turns.is_empty() {
            self.round.is_full = false;
            result = result.and(self.exits.drain(cx, &mut self.sums));
            self.exits.end_round(cx, &mut self.sums);
        }
        result
    }

    /// Lists the tasks of the next job, unless a job is in progress; false if no job is left.
    fn take_turn(&mut self, cx: &Context<'_>, result: &mut Result<(), SourceError>) -> bool {
        if self.round.turn.is_some() {
            return true;
        }
        let Some(no) = self.round.turns.pop_front() else { return false };
        if !self.sums.of(no).is_read {
            self.begin_count(no, cx);
        }
        self.round.turn = Some(no);
        self.round.place = 0;
        self.round.tids.clear();
        match self.exits.list(no, cx, &mut self.sums) {
            Ok(tids) => self.round.tids.extend_from_slice(tids),
            Err(error) => {
                if result.is_ok() {
                    *result = Err(error);
                }
            }
        }
        true
    }

    /// First reading of a job: a job older than this source counts from here.
    fn begin_count(&mut self, no: JobNo, cx: &Context<'_>) {
        self.exits.count_from_now(no, cx);
        let Some(known) = self.exits.job(no) else { return };
        if !known.is_old {
            return;
        }
        let group = cx.jobs.get(&known.key).and_then(|job| self.text.group_cpu_ns(job, cx.root));
        // Use by tasks that ended between the discovery and now was before the start.
        *self.sums.of(no) = Sum { group_base_ns: group.unwrap_or(0), ..Sum::default() };
        *self.sums.commands_of(no) = Commands::default();
    }

    fn read_batch(&mut self, cx: &Context<'_>) -> Result<(), SourceError> {
        let tids = std::mem::take(&mut self.round.tids);
        let begin = self.round.place;
        self.round.place = tids.len().min(begin + BATCH);
        let batch = tids.get(begin..self.round.place).unwrap_or_default();
        let query_errors = self.query_tasks(batch, cx, |_| {});
        self.round.tids = tids;
        query_errors
    }

    /// Publishes a job that has had a process, right after the reading of its tasks.
    fn publish(&mut self, no: JobNo, tasks: usize, cx: &Context<'_>, out: &mut Sink) {
        let Some(known) = self.exits.job(no) else { return };
        let Some(job) = cx.jobs.get(&known.key) else { return };
        let group = self.text.group_cpu_ns(job, cx.root);
        let sum = self.sums.of(no);
        let whole_ns = sum.whole_ns(group);
        let residual_ns = group.and_then(|group_ns| sum.residual_ns(group_ns));
        let counters = sum.shared();
        // Exit records lack the costs of each exit, so the job's value falls behind with many tasks.
        sum.is_measured &= !group.is_some_and(|group_ns| sum.is_behind(group_ns));
        let sum = *sum;
        // A tick that is late may lie before a job that is here already.
        let whole_ns = whole_ns.filter(|_| known.created <= cx.now);
        let of_commands_ns = match whole_ns {
            Some(whole_ns) => whole_ns.saturating_sub(sum.group_base_ns),
            None => counters.get(Counter::CpuRunVirtual),
        };
        let Some(begin_s) = sum.begin_s else { return };
        let delays_counted = self.delays_counted.unwrap_or(true);
        let mut out = out.of_job(&known.key);
        for row in ROWS.iter().filter(|row| delays_counted || !row.is_delay) {
            let value = row.value(counters.get(row.counter));
            out.counter(&row.metric, &[], value, known.start);
        }
        if let Some(whole_ns) = whole_ns {
            out.counter(&JOB_CPU, &[], whole_ns as f64 / 1e9, known.created);
        }
        out.gauge(&BEGIN, &[], begin_s as f64);
        out.gauge(&ELAPSED, &[], sum.elapsed_us as f64 / 1e6);
        out.gauge(&HIWATER_RSS, &[], (sum.hiwater_rss_kib << 10) as f64);
        out.gauge(&HIWATER_VM, &[], (sum.hiwater_vm_kib << 10) as f64);
        out.gauge(&TASKS, &[], tasks as f64);
        if self.exits.drain_every().is_some() {
            out.counter(&ENDED, &[], sum.ended as f64, known.start);
        }
        let (commands, rest_ns) = self.sums.commands_of(no).report(cx.now, of_commands_ns);
        for command in commands {
            let (start, labels) =
                (command.start.unwrap_or(known.start), [("comm", command.comm.as_str())]);
            out.counter(&COMMAND_CPU, &labels, command.ns as f64 / 1e9, start);
        }
        out.counter(&OTHER_CPU, &[], rest_ns as f64 / 1e9, known.start);
        if let Some(residual_ns) = residual_ns {
            out.gauge(&RESIDUAL, &[], residual_ns as f64 / 1e9);
        }
    }

    fn publish_device(&self, out: &mut Sink) {
        let (tree, counts, start) =
            (self.exits.tree.counts(), self.exits.counts(), self.exits.opened_at());
        let unanswered =
            u64::from(self.query_errors.unanswered) + u64::from(self.query_errors.malformed);
        let unread = self.round.tids.len().saturating_sub(self.round.place);
        let mut out = out.of_device();
        if self.exits.drain_every().is_some() {
            out.counter(&EXITS, &[], tree.exits as f64, start);
            out.counter(&UNATTRIBUTED, &[], tree.unattributed as f64, start);
            let cpu_s = tree.unattributed_cpu_ns as f64 / 1e9;
            out.counter(&UNATTRIBUTED_CPU, &[], cpu_s, start);
            out.counter(&OVERFLOWS, &[], counts.overflows as f64, start);
            out.counter(&NOT_LOOKED_AT, &[], tree.not_looked_at as f64, start);
        }
        out.counter(&UNANSWERED, &[], (unanswered + counts.malformed) as f64, start);
        out.gauge(&UNREAD, &[], unread as f64);
    }
}

impl Text {
    /// Whether a task is ending or has ended since its reading: then its exit record counts it separately.
    /// On a recorded machine no task ends between two files.
    fn is_ending(&mut self, tid: u32, root: &Root) -> bool {
        if !root.is_live() {
            return false;
        }
        self.path.clear();
        // The file of the thread, because the file of the process sums all its threads. Writing into a
        // `String` cannot fail.
        write!(self.path, "proc/{tid}/task/{tid}/stat").ok();
        match root.read_single(&self.path, &mut self.buf) {
            Ok(()) => process::process_stat(&self.buf)
                .is_ok_and(|stat| stat.flags & process::EXITING != 0),
            Err(error) => error.is_absent(),
        }
    }

    /// Processor time of a job's cgroup in nanoseconds by the kernel's own account, if it exists.
    fn group_cpu_ns(&mut self, job: &JobCgroup, root: &Root) -> Option<u64> {
        let v1 = job.dir(Hierarchy::Cpuacct).map(|dir| (dir, "cpuacct.usage"));
        let (dir, file) =
            v1.or_else(|| job.dir(Hierarchy::Unified).map(|dir| (dir, "cpu.stat")))?;
        self.path.clear();
        write!(self.path, "{dir}/{file}").ok();
        root.read_single(&self.path, &mut self.buf).ok()?;
        let ns = if v1.is_some() {
            cgroup::single(&self.buf)
        } else {
            cgroup::cpu::cpu_stat(&self.buf).map(|stat| stat.usage_us.saturating_mul(1000))
        };
        // The source `cgroup` reports invalid files.
        ns.map_err(|error| broken(&self.path, error)).ok()
    }
}
