//! Processes: what the processes of a job are, and their io.
//!
//! Reads `/proc/PID/io`, `stat` and `status` once for each process, see [`kernel::process`], and never
//! those of its threads: all three tell of the whole process, so that adding up the threads' would count
//! everything as often as there are threads. What stands there and is the first thread's alone (context
//! switches, waiting for a processor) comes from the source `taskstats`.
//!
//! `io` vanishes with its process. What a process did since it was last read is then told by the ends of
//! its tasks, see [`crate::exits`]: so the io counters of a job never fall, and have the processes in
//! them that no reading saw. Of a task that ended the kernel tells its io cut to multiples of 1024, calls
//! too. A job's counters begin as those of `taskstats` do.
//!
//! A reading stops when the time for a tick is over and goes on at the next one where it stopped, new
//! processes first; a job's memory is shown once each of its processes has been read.
//!
//! Cost on 2 virtual processors of an EPYC, Linux 6.18, optimised: 16 µs a process (8 ms for 505) and 0.4 µs
//! a thread (0.15 ms for 505 in one process); 1 µs a task that ends and 1 µs one that is made, of jobs and
//! of none alike, beside what `taskstats` uses.

mod book;
mod files;
mod metrics;

use crate::exits::source::{Listening, Reader};
use crate::exits::tree::JobNo;
use crate::exits::{Exits, Lists, RECEIVE_MIB, Watched};
use crate::{Context, Every, Open, PartState, Sink, Source, SourceError, SourceSpec};
use book::Book;
use files::Files;
use kernel::clock;
use kernel::process::State;
use metrics::{
    COUNT, HIWATER_RSS, IO_METRICS, METRICS, RSS, RSS_ANON, RSS_FILE, RSS_SHMEM, STALE, STATES,
    SWAP, THREADS, TOP_CPU, TOP_RSS, VM,
};
use model::setting::{Kind, OptionSpec};
use model::{JobKey, Timestamp};
use std::cmp::Reverse;
use std::fmt::Write as _;
use std::time::Duration;

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "process",
    help: "What the processes of a job are, and their io, living and ended.",
    reads: &[
        "/proc/PID/io",
        "/proc/PID/stat",
        "/proc/PID/status",
        "cgroup.procs of each job",
        "netlink TASKSTATS",
        "netlink process connector",
    ],
    cost: "16 µs a process of a job every 30 s, 2 µs a task made and ended on the node",
    every: Every::AtLeast(Duration::from_secs(30)),
    metrics: &METRICS,
    sane: &[],
    options: &[
        OptionSpec {
            name: "top",
            kind: Kind::Number { min: 0, max: 100 },
            default: "5",
            help: "So many processes of each job, those that use most processor time, are shown one by \
                   one; 0 shows none.",
        },
        RECEIVE_MIB,
    ],
    open,
};

/// Processes read before the time is looked at.
const BATCH: usize = 16;

fn open(open: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    open.root.stat("proc")?;
    Ok(Box::new(Listening(Processes {
        exits: Exits::open(open, Lists::Processes),
        book: Book::default(),
        pids: Vec::new(),
        last_read: 0,
        files: Files::default(),
        hz: kernel::stat::user_hz(open.root),
        top: usize::try_from(open.options.number("top")).unwrap_or(0),
        ranks: Vec::new(),
        pid_text: String::new(),
        zombies_at: Timestamp(0),
        io_denied: false,
        io_told: None,
    })))
}

struct Processes {
    exits: Exits,
    book: Book,
    /// The processes listed in this round, ordered.
    pids: Vec<u32>,
    /// The last process read of those that had been read before.
    last_read: u32,
    files: Files,
    hz: u64,
    top: usize,
    ranks: Vec<Rank>,
    pid_text: String,
    /// When zombies were told from others because too many processes ended.
    zombies_at: Timestamp,
    /// Whether the io of a process was closed to us in this round.
    io_denied: bool,
    /// What was told of that last.
    io_told: Option<bool>,
}

/// A process of a job by how much it uses.
type Rank = (JobNo, Reverse<u64>, Reverse<u64>, u32);

/// What the processes of a job are, added up; memory in KiB.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    count: u64,
    unread: u64,
    stale: u64,
    threads: u64,
    rss: u64,
    /// `None` once a process lacks it: kernels before 4.5 do not tell the parts.
    parts: Option<[u64; 3]>,
    vm: u64,
    swap: u64,
    hwm: u64,
    states: [u64; STATES.len()],
}

impl Reader for Processes {
    const NAME: &'static str = SPEC.name;

    type Account = Book;

    fn exits(&self) -> &Exits {
        &self.exits
    }

    fn told(&mut self) -> (&mut Exits, &mut Book) {
        (&mut self.exits, &mut self.book)
    }

    fn read(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        let listed = self.list(cx);
        let drained = self.exits.drain(cx, &mut self.book);
        self.exits.end_round(cx, &mut self.book);
        let exits = &self.exits;
        self.book.end_round(|no| exits.is_listed(no));
        let read = self.read_listed(cx);
        self.find_zombies(cx);
        self.rank();
        for place in 0..self.exits.jobs().len() {
            self.publish(place, cx, out);
        }
        self.tell_io(out);
        drained.and(listed).and(read)
    }

    fn drained(&mut self, cx: &Context<'_>) {
        let since_us = cx.now.since(self.zombies_at);
        if self.book.is_crowded() && since_us.saturating_abs() >= Timestamp::SECOND {
            self.zombies_at = cx.now;
            self.find_zombies(cx);
        }
    }

    fn read_moved(&mut self, tids: &[u32], cx: &Context<'_>) {
        for pid in tids {
            // Threads of processes are not watched one by one.
            let job = self.exits.tree.job_of(*pid);
            if let (None, Some(job)) = (self.book.get(*pid), job) {
                self.book.listed(*pid, job);
            }
            // What cannot be read now is found and reported by the next reading.
            self.read_one(*pid, cx).ok();
            if let Some(job) = job {
                self.book.listed(*pid, job);
            }
        }
    }

    fn want_all(&mut self) {
        // Each reading is one.
    }

    fn publish_last(&mut self, no: JobNo, _: &Context<'_>, out: &mut Sink) {
        if let Some(watched) = self.exits.job(no) {
            self.publish_io(no, &watched.key, watched.start, out);
        }
    }
}

impl Processes {
    /// Lists the processes of all jobs.
    fn list(&mut self, cx: &Context<'_>) -> Result<(), SourceError> {
        self.exits.begin_round();
        self.book.round = self.book.round.wrapping_add(1);
        self.pids.clear();
        let mut result = Ok(());
        for place in 0..self.exits.jobs().len() {
            let Some(&Watched { no, is_old, .. }) = self.exits.jobs().get(place) else { break };
            if self.book.begin(no, is_old) {
                self.exits.count_from_now(no, cx);
            }
            match self.exits.list(no, cx, &mut self.book) {
                Ok(pids) => {
                    pids.iter().for_each(|pid| self.book.listed(*pid, no));
                    self.pids.extend_from_slice(pids);
                }
                Err(error) => result = result.and(Err(error)),
            }
        }
        self.pids.sort_unstable();
        self.pids.dedup();
        result
    }

    /// Reads processes until the time for a tick is over: first those that were never read, then the
    /// others from where the last reading stopped.
    fn read_listed(&mut self, cx: &Context<'_>) -> Result<(), SourceError> {
        let began_us = clock::thread_cpu_us();
        self.io_denied = false;
        let start = self.pids.partition_point(|pid| *pid <= self.last_read);
        let mut result = Ok(());
        let mut read = 0;
        for is_new in [true, false] {
            for step in 0..self.pids.len() {
                let place = if is_new { step } else { (start + step) % self.pids.len() };
                let Some(&pid) = self.pids.get(place) else { break };
                let Some(process) = self.book.get(pid) else { continue };
                if process.read_in == self.book.round || process.view.is_none() != is_new {
                    continue;
                }
                let spent_us = || clock::thread_cpu_us().saturating_sub(began_us);
                if read > 0 && read % BATCH == 0 && spent_us() >= cx.budget_us {
                    return result;
                }
                result = result.and(self.read_one(pid, cx));
                if !is_new {
                    self.last_read = pid;
                }
                read += 1;
            }
        }
        result
    }

    /// Reads a process; one that is gone is no error.
    fn read_one(&mut self, pid: u32, cx: &Context<'_>) -> Result<(), SourceError> {
        let Some(told) = self.files.read(pid, cx.root)? else {
            self.book.gone(pid);
            return Ok(());
        };
        self.io_denied |= told.io.is_none();
        let start_us = self.start_us(told.start_ticks, cx);
        match self.exits.tree.reading(pid, start_us, &mut self.book) {
            // Its end counts, or was counted already.
            Some(reading) if reading.from_start && reading.may_be_ending && told.is_ending => {
                self.book.gone(pid);
            }
            Some(reading) => self.book.read(pid, reading, &told),
            // It has left its job since it was listed.
            None => self.book.gone(pid),
        }
        Ok(())
    }

    /// When a process began, by the clock by which tasks are dated.
    fn start_us(&self, start_ticks: u64, cx: &Context<'_>) -> u64 {
        let after_boot_us = ticks_us(start_ticks, self.hz);
        if cx.root.is_live() {
            after_boot_us.saturating_sub(clock::slept_us())
        } else {
            u64::try_from(cx.boot.0).unwrap_or(0).saturating_add(after_boot_us)
        }
    }

    fn find_zombies(&mut self, cx: &Context<'_>) {
        let files = &mut self.files;
        self.book.keep_zombies(|pid| files.is_zombie(pid, cx.root));
    }

    /// Orders the processes of each job, those that use most first.
    fn rank(&mut self) {
        self.ranks.clear();
        if self.top == 0 {
            return;
        }
        for (pid, process) in self.book.processes() {
            if let Some(view) = process.view {
                let rss = view.status.vm_rss.unwrap_or(0);
                self.ranks.push((process.job, Reverse(view.new_cpu_ticks), Reverse(rss), pid));
            }
        }
        self.ranks.sort_unstable();
    }

    fn publish(&mut self, place: usize, cx: &Context<'_>, out: &mut Sink) {
        let Some(Watched { no, key, start, .. }) = self.exits.jobs().get(place) else { return };
        let (no, start) = (*no, *start);
        let mut totals = self.totals(no);
        let zombies = self.book.zombies(no);
        if let Some(place) = STATES.iter().position(|(state, _)| *state == State::Zombie)
            && let Some(count) = totals.states.get_mut(place)
        {
            *count += u64::try_from(zombies).unwrap_or(0);
        }
        // A job that never had a process gives no sample.
        let had_one = self.book.io_of(no).is_some_and(|io| io.iter().any(|it| *it > 0));
        let populated = cx.jobs.get(key).is_some_and(|job| job.populated);
        if totals.count == 0 && zombies == 0 && !had_one && !populated {
            return;
        }
        self.publish_io(no, key, start, out);
        let hiwater = self.book.hiwater_kib(no, totals.hwm);
        let mut of_job = out.of_job(key);
        let mut gauge = |metric, value: u64| of_job.gauge(metric, &[], value as f64);
        gauge(&COUNT, totals.count);
        gauge(&STALE, totals.stale);
        if totals.unread > 0 {
            return;
        }
        gauge(&THREADS, totals.threads);
        gauge(&RSS, totals.rss << 10);
        if let Some([anon, file, shmem]) = totals.parts {
            gauge(&RSS_ANON, anon << 10);
            gauge(&RSS_FILE, file << 10);
            gauge(&RSS_SHMEM, shmem << 10);
        }
        gauge(&VM, totals.vm << 10);
        gauge(&SWAP, totals.swap << 10);
        gauge(&HIWATER_RSS, hiwater << 10);
        for ((_, metric), count) in STATES.iter().zip(totals.states) {
            gauge(metric, count);
        }
        self.publish_top(place, cx, out);
    }

    /// Adds up what the processes of a job are.
    fn totals(&self, no: JobNo) -> Totals {
        let mut totals = Totals { parts: Some([0; 3]), ..Totals::default() };
        for (_, process) in self.book.processes().filter(|(_, process)| process.job == no) {
            let is_read = process.read_in == self.book.round;
            let Some(view) = process.view else {
                // One that was gone before it could be read is not counted.
                totals.unread += u64::from(!is_read);
                totals.count += u64::from(!is_read);
                continue;
            };
            let status = &view.status;
            totals.count += 1;
            totals.stale += u64::from(!is_read);
            totals.threads += status.threads;
            totals.rss += status.vm_rss.unwrap_or(0);
            totals.vm += status.vm_size.unwrap_or(0);
            totals.swap += status.vm_swap.unwrap_or(0);
            totals.hwm = totals.hwm.max(status.vm_hwm.unwrap_or(0));
            let parts = [status.rss_anon, status.rss_file, status.rss_shmem];
            if status.vm_rss.is_some() {
                totals.parts = totals.parts.and_then(|sums| {
                    let [anon, file, shmem] = parts;
                    Some([sums[0] + anon?, sums[1] + file?, sums[2] + shmem?])
                });
            }
            let state = STATES.iter().position(|(state, _)| *state == status.state);
            if let Some(count) = state.and_then(|place| totals.states.get_mut(place)) {
                *count += 1;
            }
        }
        totals
    }

    fn publish_io(&self, no: JobNo, key: &JobKey, start: Timestamp, out: &mut Sink) {
        if self.io_denied {
            return;
        }
        let Some(io) = self.book.io_of(no) else { return };
        let mut out = out.of_job(key);
        for (metric, value) in IO_METRICS.iter().zip(io) {
            out.counter(metric, &[], *value as f64, start);
        }
    }

    fn publish_top(&mut self, place: usize, cx: &Context<'_>, out: &mut Sink) {
        let Some(Watched { no, key, .. }) = self.exits.jobs().get(place) else { return };
        let first = self.ranks.partition_point(|(job, ..)| job < no);
        let of_job = self.ranks.get(first..).unwrap_or_default();
        for (job, _, _, pid) in of_job.iter().take(self.top) {
            let view = self.book.get(*pid).and_then(|process| process.view);
            let Some(view) = view.filter(|_| job == no) else { break };
            self.pid_text.clear();
            // Writing into a `String` cannot fail.
            write!(self.pid_text, "{pid}").ok();
            let labels = [("pid", self.pid_text.as_str()), ("comm", view.comm.as_str())];
            let began_us = ticks_us(view.start_ticks, self.hz);
            let start = cx.boot.plus(i64::try_from(began_us).unwrap_or(i64::MAX));
            let mut out = out.of_job(key);
            out.counter(&TOP_CPU, &labels, view.cpu_ticks as f64 / self.hz as f64, start);
            let rss = view.status.vm_rss.unwrap_or(0) << 10;
            out.gauge(&TOP_RSS, &labels, rss as f64);
        }
    }

    /// Tells whether the io of processes may be read.
    fn tell_io(&mut self, out: &mut Sink) {
        if self.pids.is_empty() || self.io_told == Some(self.io_denied) {
            return;
        }
        self.io_told = Some(self.io_denied);
        let denied = SourceError::denied("/proc/PID/io of other users", "root, or CAP_SYS_PTRACE");
        out.part("io", if self.io_denied { PartState::Not(denied) } else { PartState::Ok });
    }
}

fn ticks_us(ticks: u64, hz: u64) -> u64 {
    ticks.saturating_mul(1_000_000) / hz.max(1)
}
