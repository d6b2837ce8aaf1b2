//! Ends of tasks as the kernel reports them, attributed to jobs.
//!
//! Shared by the sources that record what ended tasks used; each has its own listener, so that one that hangs
//! does not stop another. An end arrives after its task has left its cgroup, so its job is determined by
//! descent, see [`task_tree`]. The kernel reports a fork before the new task runs. So if the forks up to the last
//! received end are read, each received end has its fork. Ends are received first, then those forks, and the
//! forks are applied first. A list contains a task only after the task's fork was reported, so the forks up
//! to a list are applied before it: what the tree contains for a task ID is then about the listed task.
//!
//! A process that joins a job's cgroup from outside is found by a look at its own cgroup, while it is young or when it
//! has a child; later by a [`scan`] once a second. It counts from then on, see the module `moves` of [`task_tree`]. A process
//! that joins and ends between two scans is not found; the job's own accounting includes it.
//! While nothing happens in any job, events of other tasks wait in the kernel for up to a second, see [`calm`].

mod calm;
pub(crate) mod comm;
pub(crate) mod look;
mod rejected;
pub(crate) mod saved;
mod scan;
pub(crate) mod source;
pub(crate) mod task_tree;

use crate::{Context, Open, PartState, Sink, SourceError};
use calm::Calm;
use cgroups::{JobCgroup, Members};
use kernel::proc_connector::Forks;
use kernel::taskstats::{Exits as Listener, TaskMessage};
use kernel::{OpenFile, clock};
use look::Looks;
use model::setting::{Kind, OptionSpec};
use model::{Cause, JobKey, Timestamp};
use rejected::{exits_error, forks_error};
use saved::Saved;
use std::sync::Arc;
use std::time::Duration;
use task_tree::{Account, JobNo, Tree, Window};

/// Interval of reading the waiting ends. Waking at each end costs ten times as much; the buffer below holds
/// twice what a machine that ends 30 000 tasks a second sends in this interval.
pub(crate) const DRAIN_EVERY: Duration = Duration::from_millis(100);
/// The same while a new job has no process yet, for so long after the creation of its cgroup. A process that joins it
/// from outside is known only if a list has it before it ends, and some jobs live for less than 0.1 s.
const DRAIN_NEW_EVERY: Duration = Duration::from_millis(20);
const NEW_US: i64 = 2 * Timestamp::SECOND;
/// Maximum time without a drain while no event arrives, so that expired entries are removed: half of the time
/// that they may wait.
const QUIET_MAX: Duration = Duration::from_secs(5);
/// Number of ends received before the forks up to them.
const CHUNK: usize = 256;
/// Maximum number of ends per call; the rest is received at the next.
const EXITS_PER_CALL_MAX: usize = 1 << 16;
/// Maximum number of looks per call.
const LOOKS_PER_CALL_MAX: usize = 64;
/// A process that began at most this long before the creation of its job's cgroup was started to run the job:
/// everything that it used counts.
const CAME_WITH_JOB_US: u64 = 2_000_000;

/// A job's cgroup that was created later by at least this much than the one that an earlier agent knew belongs to
/// another run: the observed creation time may change over a restart.
const SAME_RUN_US: i64 = Timestamp::SECOND;

/// The option for the size of the kernel's buffer.
pub(crate) const RECEIVE_MIB: OptionSpec = OptionSpec {
    name: "receive_mib",
    kind: Kind::Number { min: 1, max: 64 },
    default: "4",
    help: "Space for ends of tasks that wait in the kernel, in MiB; 4 hold about 6 500 ends.",
};

/// Kind of the lists of a job's cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListKind {
    /// Lists of tasks: every thread.
    Tasks,
    /// Lists of processes.
    Processes,
}

/// A watched job.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    pub(crate) key: JobKey,
    pub(crate) no: JobNo,
    /// When its counters were zero: the creation of its cgroup if all ends since were received, else the time
    /// at which it was first seen; earlier use then counts nowhere.
    pub(crate) start: Timestamp,
    /// Whether it is older than the listener.
    pub(crate) is_old: bool,
    /// When its cgroup was created.
    pub(crate) created: Timestamp,
    populated: bool,
    /// Whether it waits for its first list, or for the list after its first process arrived.
    is_new: bool,
    /// Whether this round has listed it.
    listed: bool,
    /// Whether it has been listed since the last loss of forks.
    known: bool,
    /// When a scan listed it last, and what its cgroup counted beyond the known tasks then.
    listed_with: Option<(u64, i64)>,
    /// The number of tasks that its cgroup counts.
    count: Option<Arc<OpenFile>>,
    /// The number of its known tasks, while the tree is not touched.
    known_tasks: Option<usize>,
}

/// Ends of the machine's tasks, and their jobs.
#[derive(Debug)]
pub(crate) struct Exits {
    listener: Option<Listener>,
    forks: Option<Forks>,
    exits_state: PartState,
    forks_state: Option<PartState>,
    lists: ListKind,
    members: Members,
    pub(crate) tree: Tree,
    looks: Looks,
    looks_left: usize,
    jobs: Vec<Watched>,
    generation: Option<u64>,
    next_job: u32,
    chunk: Vec<TaskMessage>,
    emptied_us: u64,
    opened_at: Option<Timestamp>,
    drained_at: Timestamp,
    /// Number of ends and forks of the last drain, and of what was read since.
    found: usize,
    calm: Calm,
    /// How long no drain is needed while no event arrives.
    quiet_for: Duration,
    lost_since: Option<Timestamp>,
    /// Whether forks were lost since the last round of lists.
    wants_lists: bool,
    counts: Counts,
    path: String,
    parts_reported: bool,
    saved: Saved,
    /// When the jobs are scanned next.
    scan_us: u64,
}

/// Counts besides those of the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Number of times the kernel dropped ends or forks.
    pub(crate) overflows: u64,
    /// Ends with an unknown layout.
    pub(crate) malformed: u64,
}

impl Exits {
    /// Starts listening, if permitted. The kernel buffers [`RECEIVE_MIB`] of ends, and half as many bytes of
    /// forks, which have messages of half the length.
    pub(crate) fn open(open: &Open<'_>, lists: ListKind) -> Self {
        let root = open.root;
        let receive_mib = usize::try_from(open.options.number(RECEIVE_MIB.name)).unwrap_or(4);
        let receive_bytes = receive_mib << 20;
        let (listener, exits_state) = match Listener::open(root, receive_bytes) {
            Ok(listener) => (Some(listener), PartState::Ok),
            Err(error) => (None, PartState::Not(exits_error(root, &error))),
        };
        // Forks are useful only with exits, and are not recorded.
        let (forks, forks_state) = if listener.is_some() && root.is_live() {
            match Forks::open(receive_bytes / 2) {
                Ok(forks) => (Some(forks), Some(PartState::Ok)),
                Err(error) => (None, Some(PartState::Not(forks_error(&error)))),
            }
        } else {
            (None, None)
        };
        Self {
            listener,
            forks,
            exits_state,
            forks_state,
            lists,
            members: Members::default(),
            tree: Tree::new(),
            looks: Looks::default(),
            looks_left: 0,
            jobs: Vec::new(),
            generation: None,
            next_job: 0,
            chunk: Vec::with_capacity(CHUNK),
            emptied_us: 0,
            opened_at: None,
            drained_at: Timestamp(0),
            found: 0,
            calm: Calm::default(),
            quiet_for: Duration::ZERO,
            lost_since: None,
            wants_lists: false,
            counts: Counts::default(),
            path: String::new(),
            parts_reported: false,
            saved: Saved::default(),
            scan_us: 0,
        }
    }

    /// Interval of [`Self::drain`].
    pub(crate) fn drain_every(&self) -> Option<Duration> {
        let every = if self.awaits_tasks() { DRAIN_NEW_EVERY } else { DRAIN_EVERY };
        self.listener.is_some().then_some(every)
    }

    /// Whether a new job waits for its first process.
    fn awaits_tasks(&self) -> bool {
        self.jobs.iter().any(|job| job.is_new)
    }

    /// The jobs, ordered by key.
    pub(crate) fn jobs(&self) -> &[Watched] {
        &self.jobs
    }

    /// The job with this number.
    pub(crate) fn job(&self, no: JobNo) -> Option<&Watched> {
        self.jobs.iter().find(|job| job.no == no)
    }

    /// Start of listening: the start of the device's counters.
    pub(crate) fn opened_at(&self) -> Timestamp {
        self.opened_at.unwrap_or_default()
    }

    /// The counts.
    pub(crate) const fn counts(&self) -> Counts {
        self.counts
    }

    /// Receives the waiting ends, and updates the jobs.
    ///
    /// # Errors
    /// A socket failed.
    pub(crate) fn drain(
        &mut self,
        cx: &Context<'_>,
        account: &mut impl Account,
    ) -> Result<(), SourceError> {
        self.found = 0;
        self.follow(cx, account);
        for place in 0..self.jobs.len() {
            let new = self.jobs.get(place).filter(|job| job.is_new).map(|job| job.no);
            // Failed lists are detected and reported at the next round.
            new.map(|no| self.list(no, cx, account).ok());
        }
        self.looks_left = LOOKS_PER_CALL_MAX;
        let scans = self.scan(cx, account);
        let result = self.take(cx, account);
        if scans && result.is_ok() {
            self.end_round(cx, account);
        }
        self.look(cx, account);
        self.tree.expire(now_us(cx), account);
        let look_us = if self.jobs.is_empty() { None } else { self.tree.next_look_us(now_us(cx)) };
        let wait_us = look_us.into_iter().chain(self.scan_in_us(cx)).min();
        self.quiet_for = wait_us.map_or(QUIET_MAX, |us| Duration::from_micros(us).min(QUIET_MAX));
        self.see_whether_calm(cx);
        self.drained_at = cx.now;
        result
    }

    /// Looks at tasks that may have joined a job.
    fn look(&mut self, cx: &Context<'_>, account: &mut impl Account) {
        if !self.jobs.is_empty() {
            let jobs = (self.jobs.as_slice(), now_us(cx));
            self.looks.run(cx, jobs, &mut self.tree, &mut self.looks_left, account);
        }
    }

    fn take(&mut self, cx: &Context<'_>, account: &mut impl Account) -> Result<(), SourceError> {
        let live = cx.root.is_live();
        let mut exits = 0;
        while exits < EXITS_PER_CALL_MAX {
            let Some(listener) = &mut self.listener else { break };
            self.chunk.clear();
            let chunk = &mut self.chunk;
            let taken = listener
                .take(cx.root, CHUNK, |exit| chunk.push(*exit))
                .map_err(|error| SourceError::broken(error.to_string()))?;
            let forks_lost = self.take_forks(taken.at_us, account)?;
            if taken.lost || forks_lost {
                self.note_loss();
            }
            self.counts.malformed += u64::from(taken.malformed);
            self.found += taken.exits;
            self.skip_ended();
            // Before the ends of their children: ends with a parent outside of all jobs then need not wait.
            self.look(cx, account);
            let window = if live {
                Window { from_us: self.emptied_us, to_us: taken.at_us }
            } else {
                Window { from_us: 0, to_us: u64::MAX }
            };
            for exit in &self.chunk {
                let start_us = if live {
                    taken.at_us.saturating_sub(exit.stats.elapsed_us)
                } else {
                    exit.stats.begin_s.saturating_mul(1_000_000)
                };
                self.tree.exit(exit, start_us, window, account);
            }
            exits += taken.exits;
            if taken.emptied {
                self.emptied_us = taken.at_us;
                break;
            }
        }
        Ok(())
    }

    /// Applies the forks up to a time. True if the kernel dropped some; tasks of jobs may then be unknown
    /// until all jobs are listed.
    fn take_forks(
        &mut self,
        until_us: u64,
        account: &mut impl Account,
    ) -> Result<bool, SourceError> {
        let Some(forks) = &mut self.forks else { return Ok(false) };
        let tree = &mut self.tree;
        let taken = forks
            .take(until_us, |fork| tree.fork(fork, account))
            .map_err(|errno| SourceError::broken(format!("fork events: {errno}")))?;
        self.found += taken.forks;
        if taken.lost {
            self.wants_lists = true;
            for job in &mut self.jobs {
                job.known = false;
                self.tree.set_known(job.no, false);
            }
            self.tree.set_complete(false);
        }
        Ok(taken.lost)
    }

    fn note_loss(&mut self) {
        self.counts.overflows += 1;
        self.calm.end();
        self.lost_since.get_or_insert(self.drained_at);
    }

    /// Adds new jobs and removes ended ones.
    fn follow(&mut self, cx: &Context<'_>, account: &mut impl Account) {
        if self.opened_at.is_none() {
            (self.opened_at, self.drained_at) = (Some(cx.now), cx.now);
        }
        if self.generation == Some(cx.jobs.generation()) {
            return;
        }
        self.generation = Some(cx.jobs.generation());
        self.calm.end();
        let tree = &mut self.tree;
        self.jobs.retain(|known| {
            // A run has one start, which changes only if an earlier directory is found later. A later start is that of
            // another run, however soon it follows.
            let is_same = |job: &&JobCgroup| job.created <= known.created;
            let job = cx.jobs.get(&known.key).filter(is_same);
            if job.is_none() {
                tree.remove_job(known.no, account);
            }
            job.is_some()
        });
        for job in cx.jobs.iter() {
            match self.jobs.binary_search_by(|known| known.key.cmp(&job.key)) {
                Ok(place) => {
                    if let Some(known) = self.jobs.get_mut(place) {
                        known.is_new |= job.populated && !known.populated;
                        known.populated = job.populated;
                    }
                }
                Err(place) => self.add(place, job, cx, account),
            }
        }
        self.looks.refresh(cx.root);
        self.see_whether_complete();
    }

    /// If no fork was lost and every job was listed, every task of a job is known.
    fn see_whether_complete(&mut self) {
        self.tree.set_complete(self.forks.is_some() && self.jobs.iter().all(|job| job.known));
    }

    fn add(&mut self, place: usize, job: &JobCgroup, cx: &Context<'_>, account: &mut impl Account) {
        let no = JobNo::new(self.next_job);
        self.next_job += 1;
        let restored = self.restore(no, job, cx, account);
        let is_old = restored.is_none() && job.created < self.opened_at();
        // The tick's time may be shortly before the creation of the job.
        let start = restored.unwrap_or(if is_old { cx.now } else { job.created.min(cx.now) });
        if restored.is_none() {
            let age_us = u64::try_from(cx.now.since(start)).unwrap_or(0);
            let before_us = if is_old { 0 } else { age_us + CAME_WITH_JOB_US };
            self.tree.add_job(no, now_us(cx).saturating_sub(before_us));
        }
        let watched = Watched {
            key: job.key.clone(),
            no,
            start,
            is_old,
            created: job.created,
            populated: job.populated,
            is_new: true,
            listed: false,
            known: false,
            listed_with: None,
            count: None,
            known_tasks: None,
        };
        self.jobs.insert(place, watched);
    }

    /// Starts the counters of a job that is older than the listener now, because its living tasks are about
    /// to be read for the first time.
    pub(crate) fn count_from_now(&mut self, no: JobNo, cx: &Context<'_>) {
        if let Some(job) = self.jobs.iter_mut().find(|job| job.no == no && job.is_old) {
            job.start = cx.now;
            self.tree.add_job(no, now_us(cx));
        }
    }

    /// Lists a job's tasks or processes.
    ///
    /// # Errors
    /// A list cannot be read; those of other cgroups are used.
    pub(crate) fn list(
        &mut self,
        no: JobNo,
        cx: &Context<'_>,
        account: &mut impl Account,
    ) -> Result<&[u32], SourceError> {
        let Some(place) = self.jobs.iter().position(|job| job.no == no) else { return Ok(&[]) };
        let Some(known) = self.jobs.get_mut(place) else { return Ok(&[]) };
        known.is_new = false;
        let Some(job) = cx.jobs.get(&known.key) else { return Ok(&[]) };
        let result = match self.lists {
            ListKind::Tasks => cgroups::tasks(cx.root, job, &mut self.members),
            ListKind::Processes => cgroups::processes(cx.root, job, &mut self.members),
        };
        let now_us = now_us(cx);
        let forks = self.take_forks(now_us, account);
        for id in self.members.ids() {
            if let Some(seen) = self.tree.seen_outside(*id)
                && self.looks.seen(*id, cx.root) != Some(seen)
            {
                self.tree.has_moved(*id);
            }
            self.tree.listed(*id, no, now_us, account);
        }
        let forks_lost = matches!(forks, Ok(true));
        if forks_lost {
            self.note_loss();
        }
        if let Some(known) = self.jobs.get_mut(place) {
            let age_us = cx.now.since(known.created).saturating_abs();
            known.is_new = self.members.ids().is_empty() && age_us < NEW_US && cx.root.is_live();
            known.listed = result.is_ok() && !self.members.is_cut();
            // The loss may have happened after the list.
            known.known |= known.listed && !forks_lost;
            self.tree.set_known(no, known.known && self.forks.is_some());
        }
        self.see_whether_complete();
        result?;
        forks?;
        Ok(self.members.ids())
    }

    /// Reports losses since the last report, and the states of the parts.
    pub(crate) fn report(&mut self, source: &str, cx: &Context<'_>, out: &mut Sink) {
        // They do not change while the source is open.
        if !std::mem::replace(&mut self.parts_reported, true) {
            out.part("exits", self.exits_state.clone());
            if let Some(state) = &self.forks_state {
                out.part("forks", state.clone());
            }
        }
        self.report_restart(source, cx.now, out);
        if let Some(since) = self.lost_since.take() {
            let detail = "the kernel's buffer for exits or forks was full";
            out.gap(source, since, cx.now, Cause::EventsLost, detail);
        }
    }
}

/// The current time for tasks; on a recorded machine, it counts from 1970.
pub(crate) fn now_us(cx: &Context<'_>) -> u64 {
    if cx.root.is_live() { clock::monotonic_us() } else { u64::try_from(cx.now.0).unwrap_or(0) }
}
