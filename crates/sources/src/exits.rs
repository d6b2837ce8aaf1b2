//! Who ended, and of which job: the ends of tasks as the kernel tells them, attributed to jobs.
//!
//! Shared by the sources that keep what ended tasks used; each has a listener of its own, so that one that
//! hangs does not stop another. An end arrives when its task has left its cgroup, so the job is told by
//! descent, see [`tree`]. The kernel announces a task before it runs, so that with the forks up to the
//! instant at which the last end was taken, every end taken has its fork: ends are taken first, then those
//! forks, and the forks are applied first. A list shows a task only after its fork was announced, so that
//! the forks up to a list are applied before it: what is known of a number is then of whoever was listed.
//!
//! A process that joins a job's cgroup from outside is found by its own cgroup, at which it is looked at
//! while it is young, or as soon as it has a child; later by a scan of the jobs' lists once a second. It counts
//! from then on, see the module `moves` of [`tree`]. One that joins and ends between two scans is not found; the
//! job's own account has it.

pub(crate) mod comm;
pub(crate) mod look;
mod refused;
pub(crate) mod saved;
mod scan;
pub(crate) mod source;
pub(crate) mod tree;

use crate::{Context, Open, PartState, Quiet, Sink, SourceError};
use cgroups::{JobCgroup, Members};
use kernel::clock;
use kernel::proc_connector::Forks;
use kernel::taskstats::{Exits as Listener, TaskMessage};
use look::Looks;
use model::setting::{Kind, OptionSpec};
use model::{Cause, JobKey, Timestamp};
use refused::{exits_error, forks_error};
use saved::Saved;
use std::fmt::Write as _;
use std::time::Duration;
use tree::{Account, JobNo, Tree, Window};

/// How often waiting ends are taken: at this period it costs a tenth of waking at each, and the buffer
/// below holds twice what a machine that ends 30 000 tasks a second sends.
pub(crate) const DRAIN_EVERY: Duration = Duration::from_millis(100);
/// How long nothing is forgotten that waits in vain, where nothing comes: half of what it may wait.
const QUIET_MAX: Duration = Duration::from_secs(5);
/// Ends taken before the forks up to them.
const CHUNK: usize = 256;
/// Ends taken at one call; what waits beyond is taken at the next.
const EXITS_PER_CALL_MAX: usize = 1 << 16;
/// Tasks looked at in one call.
const LOOKS_PER_CALL_MAX: usize = 64;
/// A process that began no longer than this before its job's cgroup was made came to it to run it: all
/// that it used counts.
const CAME_WITH_JOB_US: u64 = 2_000_000;

/// A job's cgroup made this much later than the one that an earlier agent knew is that of another run: the age of a
/// directory may be another one after a restart.
const SAME_RUN_US: i64 = Timestamp::SECOND;

/// The option that says how much may wait in the kernel.
pub(crate) const RECEIVE_MIB: OptionSpec = OptionSpec {
    name: "receive_mib",
    kind: Kind::Number { min: 1, max: 64 },
    default: "4",
    help: "Space for ends of tasks that wait in the kernel, in MiB; 4 hold about 6 500 ends.",
};

/// Which lists of a job's cgroup are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lists {
    /// Of tasks: every thread.
    Tasks,
    /// Of processes.
    Processes,
}

/// A job as it is watched here.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    pub(crate) key: JobKey,
    pub(crate) no: JobNo,
    /// When its counters were zero: the making of its cgroup, if the listener heard every end since,
    /// else the instant at which it was first seen; then what was used before counts nowhere.
    pub(crate) start: Timestamp,
    /// Whether it is older than the listener.
    pub(crate) is_old: bool,
    /// When its cgroup was made.
    pub(crate) created: Timestamp,
    populated: bool,
    /// Whether it waits for its first list, or for that after its first process came.
    is_new: bool,
    /// Whether it has been listed in this round.
    listed: bool,
    /// Whether it has been listed since forks were last lost.
    known: bool,
}

/// The ends of the machine's tasks, and the jobs they are of.
#[derive(Debug)]
pub(crate) struct Exits {
    listener: Option<Listener>,
    forks: Option<Forks>,
    exits_state: PartState,
    forks_state: Option<PartState>,
    lists: Lists,
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
    /// Ends and forks that the last drain took, and what was read since.
    found: usize,
    /// How long no drain is needed while none comes.
    quiet_for: Duration,
    lost_since: Option<Timestamp>,
    /// Whether forks were lost since the last round of lists.
    wants_lists: bool,
    counts: Counts,
    path: String,
    parts_told: bool,
    saved: Saved,
    /// When the jobs are scanned next.
    scan_us: u64,
}

/// What is counted here besides the tree's counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// How often the kernel had to drop ends or forks.
    pub(crate) overflows: u64,
    /// Ends of a layout that is not known.
    pub(crate) malformed: u64,
}

impl Exits {
    /// Begins to listen, if it may. As many bytes of ends may wait in the kernel as [`RECEIVE_MIB`] says,
    /// and half as many of forks, whose messages are half as long.
    pub(crate) fn open(open: &Open<'_>, lists: Lists) -> Self {
        let root = open.root;
        let receive_mib = usize::try_from(open.options.number(RECEIVE_MIB.name)).unwrap_or(4);
        let receive_bytes = receive_mib << 20;
        let (listener, exits_state) = match Listener::open(root, receive_bytes) {
            Ok(listener) => (Some(listener), PartState::Ok),
            Err(error) => (None, PartState::Not(exits_error(root, &error))),
        };
        // They are of use with exits alone, and are not recorded.
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
            quiet_for: Duration::ZERO,
            lost_since: None,
            wants_lists: false,
            counts: Counts::default(),
            path: String::new(),
            parts_told: false,
            saved: Saved::default(),
            scan_us: 0,
        }
    }

    /// How often [`Self::drain`] wants to be called.
    pub(crate) const fn drain_every(&self) -> Option<Duration> {
        if self.listener.is_some() { Some(DRAIN_EVERY) } else { None }
    }

    /// What the next drain may wait for, when the last one found nothing. After one that found something the next is
    /// at its usual instant: where events are many, waking for the first of them costs more than it spares.
    pub(crate) fn quiet(&self) -> Option<Quiet<'_>> {
        let (listener, forks) = (self.listener.as_ref()?.fd()?, self.forks.as_ref()?.fd());
        let quiet = Quiet { queues: [Some(listener), Some(forks)], at_most: self.quiet_for };
        (self.found == 0).then_some(quiet)
    }

    /// The jobs, ordered by key.
    pub(crate) fn jobs(&self) -> &[Watched] {
        &self.jobs
    }

    /// The job of a number.
    pub(crate) fn job(&self, no: JobNo) -> Option<&Watched> {
        self.jobs.iter().find(|job| job.no == no)
    }

    /// When listening began: the start of what is counted for the device.
    pub(crate) fn opened_at(&self) -> Timestamp {
        self.opened_at.unwrap_or_default()
    }

    /// What was counted.
    pub(crate) const fn counts(&self) -> Counts {
        self.counts
    }

    /// Takes the ends that wait, and follows the jobs that come and go.
    ///
    /// # Errors
    /// A socket broke.
    pub(crate) fn drain(
        &mut self,
        cx: &Context<'_>,
        account: &mut impl Account,
    ) -> Result<(), SourceError> {
        self.found = 0;
        self.follow(cx, account);
        while let Some(no) = self.jobs.iter().find(|job| job.is_new).map(|job| job.no) {
            // What a list that cannot be read hides is found at the next round, and told then.
            self.list(no, cx, account).ok();
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
        self.drained_at = cx.now;
        result
    }

    /// Looks at the tasks that may have joined a job.
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
            // Before their children's ends: those of a parent of no job need not wait then.
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

    /// Applies the forks up to an instant; true if the kernel had to drop some, so that tasks of jobs may
    /// be unknown until all jobs are listed.
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
        self.lost_since.get_or_insert(self.drained_at);
    }

    /// Follows the jobs that come and go.
    fn follow(&mut self, cx: &Context<'_>, account: &mut impl Account) {
        if self.opened_at.is_none() {
            (self.opened_at, self.drained_at) = (Some(cx.now), cx.now);
        }
        if self.generation == Some(cx.jobs.generation()) {
            return;
        }
        self.generation = Some(cx.jobs.generation());
        let tree = &mut self.tree;
        self.jobs.retain(|known| {
            // A run has one start, which only a directory that is found later and was made earlier changes. A later
            // start is that of another run, however soon it follows.
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

    /// Without a fork that was missed, and with every job listed, each task of a job is known.
    fn see_whether_complete(&mut self) {
        self.tree.set_complete(self.forks.is_some() && self.jobs.iter().all(|job| job.known));
    }

    fn add(&mut self, place: usize, job: &JobCgroup, cx: &Context<'_>, account: &mut impl Account) {
        let no = JobNo::new(self.next_job);
        self.next_job += 1;
        let restored = self.restore(no, job, cx, account);
        let is_old = restored.is_none() && job.created < self.opened_at();
        // The tick may be dated a moment before the job was made.
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
        };
        self.jobs.insert(place, watched);
    }

    /// Counts a job that is older than the listener from now on: its living tasks are about to be read
    /// for the first time.
    pub(crate) fn count_from_now(&mut self, no: JobNo, cx: &Context<'_>) {
        if let Some(job) = self.jobs.iter_mut().find(|job| job.no == no && job.is_old) {
            job.start = cx.now;
            self.tree.add_job(no, now_us(cx));
        }
    }

    /// Takes a list of a job's tasks, or of its processes.
    ///
    /// # Errors
    /// A list cannot be read; what the others have is used.
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
            Lists::Tasks => cgroups::tasks(cx.root, job, &mut self.members),
            Lists::Processes => cgroups::processes(cx.root, job, &mut self.members),
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
            known.listed = result.is_ok() && !self.members.is_cut();
            // What was lost may be from after the list.
            known.known |= known.listed && !forks_lost;
            self.tree.set_known(no, known.known && self.forks.is_some());
        }
        self.see_whether_complete();
        result?;
        forks?;
        Ok(self.members.ids())
    }

    /// Whether a job was listed whole in this round.
    pub(crate) fn is_listed(&self, no: JobNo) -> bool {
        self.job(no).is_some_and(|job| job.listed)
    }

    /// Begins a round of lists of all jobs.
    pub(crate) fn begin_round(&mut self) {
        self.wants_lists = false;
        self.jobs.iter_mut().for_each(|job| job.listed = false);
        self.tree.begin_round();
    }

    /// Ends a round of lists: tasks that no list had are watched no more. The ends that waited must have
    /// been taken since the last list.
    pub(crate) fn end_round(&mut self, cx: &Context<'_>, account: &mut impl Account) {
        let (jobs, path) = (&self.jobs, &mut self.path);
        let listed = |no| jobs.iter().any(|job| job.no == no && job.listed);
        let lives = |tid: u32| {
            path.clear();
            // Writing into a `String` cannot fail.
            write!(path, "proc/{tid}").ok();
            cx.root.stat(path).is_ok()
        };
        self.tree.end_round(self.lists == Lists::Processes, listed, lives, account);
    }

    /// Whether forks were lost, so that all jobs are to be listed soon.
    pub(crate) const fn wants_lists(&self) -> bool {
        self.wants_lists
    }

    /// Tells what was lost since the last report, and the states of the parts.
    pub(crate) fn report(&mut self, source: &str, cx: &Context<'_>, out: &mut Sink) {
        // They do not change while the source is open.
        if !std::mem::replace(&mut self.parts_told, true) {
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

/// The instant by which tasks are dated: a recorded machine's are dated from 1970.
pub(crate) fn now_us(cx: &Context<'_>) -> u64 {
    if cx.root.is_live() { clock::monotonic_us() } else { u64::try_from(cx.now.0).unwrap_or(0) }
}
