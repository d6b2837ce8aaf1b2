//! A task counts once, in any order of its fork, its lists, its readings and its end.

use super::*;

/// The use of each job's tasks, recorded as in the sources.
#[derive(Default)]
struct Sums {
    jobs: BTreeMap<JobNo, u64>,
    living: BTreeMap<u64, u64>,
    ended: usize,
}

impl Sums {
    fn of(&self, job: JobNo) -> u64 {
        self.jobs.get(&job).copied().unwrap_or(0)
    }

    fn add(&mut self, job: JobNo, no: TaskNo, used: u64) {
        let last = self.living.insert(no.0.get(), used).unwrap_or(0);
        *self.jobs.entry(job).or_default() += used.saturating_sub(last);
    }
}

impl Account for Sums {
    fn ended(&mut self, job: JobNo, task: &Ended<'_>) {
        assert!(task.from_start);
        self.add(job, task.no, task.stats.counters.get(Counter::CpuRunVirtual));
        self.forgotten(task.no);
        self.ended += 1;
    }

    fn forgotten(&mut self, task: TaskNo) {
        self.living.remove(&task.0.get());
    }

    fn keep(&mut self, is_there: impl Fn(JobNo) -> bool) {
        self.jobs.retain(|job, _| is_there(*job));
    }
}

/// A task of the machine; the time is in microseconds.
#[derive(Clone, Copy, Debug)]
struct Living {
    tid: u32,
    parent: u32,
    job: Option<JobNo>,
    start: u64,
    used: u64,
    has_forked: bool,
}

/// The events that the kernel has sent and nobody has received, and the results of the others.
struct Machine {
    tree: Tree,
    sums: Sums,
    now: u64,
    emptied: u64,
    forks: Vec<Fork>,
    ends: Vec<(Living, u64)>,
    living: Vec<Living>,
    listed: Vec<u32>,
    next: u32,
    expected: BTreeMap<JobNo, u64>,
}

impl Machine {
    /// Two jobs from 100 s on, with a shell each: 10 in A and 20 in B. 5 is of no job. It is 1 000 s.
    fn new() -> Self {
        let now = 1000 * SECOND;
        let start = 200 * SECOND;
        let shell = |tid, job| Living { tid, parent: 1, job, start, used: 0, has_forked: true };
        let mut machine = Self {
            tree: Tree::default(),
            sums: Sums::default(),
            now,
            emptied: now,
            forks: Vec::new(),
            ends: Vec::new(),
            living: vec![shell(5, None), shell(10, Some(A)), shell(20, Some(B))],
            listed: Vec::new(),
            next: 30,
            expected: BTreeMap::new(),
        };
        for job in [A, B] {
            machine.tree.add_job(job, 100 * SECOND);
            machine.list(job);
        }
        machine.tree.set_complete(true);
        machine
    }

    fn find(&mut self, tid: u32) -> &mut Living {
        self.living.iter_mut().find(|task| task.tid == tid).unwrap()
    }

    fn fork(&mut self, parent: u32, tid: u32) {
        let job = self.find(parent).job;
        self.find(parent).has_forked = true;
        let start = self.now;
        self.living.push(Living { tid, parent, job, start, used: 0, has_forked: false });
        // The event is created shortly after the task.
        let at_us = start + 300;
        self.forks.push(Fork { parent_tid: parent, parent_tgid: parent, tid, tgid: tid, at_us });
        self.now += 1000;
    }

    fn end(&mut self, tid: u32) {
        let place = self.living.iter().position(|task| task.tid == tid).unwrap();
        let task = self.living.swap_remove(place);
        if let Some(job) = task.job {
            *self.expected.entry(job).or_default() += task.used;
        }
        self.ends.push((task, self.now));
        self.living.iter_mut().filter(|it| it.parent == tid).for_each(|it| it.parent = 1);
        self.now += 1000;
    }

    fn take_forks(&mut self) {
        self.forks.drain(..).for_each(|fork| self.tree.fork(&fork, &mut self.sums));
    }

    /// Receives the forks, and at most `ends_max` ends.
    fn take(&mut self, ends_max: usize) {
        self.take_forks();
        self.look();
        let window = Window { from_us: self.emptied, to_us: self.now };
        for (task, at) in self.ends.drain(..ends_max.min(self.ends.len())) {
            let mut counters = Counters::ZERO;
            counters.0[Counter::CpuRunVirtual.place()] = task.used;
            let stats = TaskStats {
                tid: task.tid,
                tgid: Some(task.tid),
                ppid: task.parent,
                begin_s: 0,
                elapsed_us: at - task.start,
                last_of_group: true,
                hiwater_rss_kib: 0,
                hiwater_vm_kib: 0,
                comm: [0; 16],
                counters,
            };
            let start_us = self.now - stats.elapsed_us;
            let exit = TaskMessage { stats, with_group: false };
            self.tree.exit(&exit, start_us, window, &mut self.sums);
        }
        if self.ends.is_empty() {
            self.emptied = self.now;
        }
        self.look();
        self.tree.expire(self.now, &mut self.sums);
    }

    fn look(&mut self) {
        let mut passed = 0;
        while let Some(tid) = self.tree.due(&mut passed, self.now) {
            let found = match self.living.iter().find(|task| task.tid == tid) {
                Some(Living { job: Some(job), .. }) => Looked::In(*job),
                Some(_) => Looked::Outside,
                None => Looked::Gone,
            };
            self.tree.looked(tid, found, self.now, &mut self.sums);
        }
    }

    /// Lists a job, without receiving the waiting forks.
    fn list(&mut self, job: JobNo) {
        self.listed.clear();
        self.listed.extend(self.living.iter().filter(|it| it.job == Some(job)).map(|it| it.tid));
        for tid in &self.listed {
            self.tree.listed(*tid, job, self.now, &mut self.sums);
        }
    }

    /// Reads the living tasks of the last list, or the tasks that have their IDs now.
    fn read(&mut self) {
        for task in self.living.iter().filter(|task| self.listed.contains(&task.tid)) {
            // Its time is that of the answer.
            let start_us = task.start + 2000;
            let Some(reading) = self.tree.reading(task.tid, start_us, &mut self.sums) else {
                continue;
            };
            assert!(reading.from_start);
            self.sums.add(reading.job, reading.no, task.used);
        }
    }

    fn assert_true(&self) {
        for job in [A, B] {
            let expected = self.expected.get(&job).copied().unwrap_or(0);
            let living = self.living.iter().filter(|task| task.job == Some(job));
            let bound = expected + living.map(|task| task.used).sum::<u64>();
            assert!(self.sums.of(job) <= bound, "{job:?}: {} of {bound}", self.sums.of(job));
        }
    }
}

/// 30, a child of 5 of no job, joins A, uses 7 until it is read and 11 until it ends.
fn joins_is_read_and_ends(reported: fn(&mut Machine)) {
    let mut m = Machine::new();
    m.fork(5, 30);
    m.find(30).job = Some(A);
    reported(&mut m);
    for _ in 0..20 {
        m.now += SECOND / 10;
        m.take(usize::MAX);
    }
    m.list(A);
    m.find(30).used = 7;
    m.read();
    assert_eq!(m.sums.of(A), 7);
    m.now += SECOND;
    m.find(30).used = 11;
    m.end(30);
    m.take(usize::MAX);
    assert_eq!((m.sums.of(A), m.sums.ended, m.sums.living.len()), (11, 1, 1), "10 lives");
}

#[test]
fn listed_before_its_fork_is_received() {
    joins_is_read_and_ends(|m| m.list(A));
}

#[test]
fn read_before_its_fork_is_received() {
    joins_is_read_and_ends(|m| {
        m.list(A);
        m.read();
    });
}

#[test]
fn listed_after_its_fork_is_received() {
    joins_is_read_and_ends(|m| {
        m.take(usize::MAX);
        m.list(A);
    });
}

#[test]
fn a_thread_listed_before_its_fork_is_received() {
    let mut m = Machine::new();
    // Thread 31 of the unknown process 30.
    m.tree.listed(31, A, m.now + 50_000, &mut m.sums);
    let fork = Fork { parent_tid: 5, parent_tgid: 5, tid: 31, tgid: 30, at_us: m.now };
    let first = m.tree.reading(31, m.now, &mut m.sums).unwrap();
    m.tree.fork(&fork, &mut m.sums);
    m.tree.listed(31, A, m.now + 100_000, &mut m.sums);
    assert_eq!(m.tree.reading(31, m.now, &mut m.sums).unwrap().no, first.no);
    assert_eq!(m.tree.displaced.len(), 0);
}

#[test]
fn a_reused_id_with_a_late_first_end() {
    let mut m = Machine::new();
    m.fork(10, 30);
    m.now += 3 * SECOND;
    m.take(usize::MAX);
    m.list(A);
    m.find(30).used = 7;
    m.read();
    // It ends, and a task of B has its ID and is read before the end is reported.
    m.find(30).used = 9;
    m.end(30);
    m.now += 2 * SECOND;
    m.fork(20, 30);
    m.take_forks();
    m.list(B);
    m.find(30).used = 100;
    m.read();
    assert_eq!((m.sums.of(A), m.sums.of(B)), (7, 100));
    m.take(usize::MAX);
    assert_eq!((m.sums.of(A), m.sums.of(B)), (9, 100));
    m.now += SECOND;
    m.find(30).used = 110;
    m.end(30);
    m.take(usize::MAX);
    assert_eq!((m.sums.of(A), m.sums.of(B)), (9, 110));
}

/// A task is listed while it ends, after its end was reported, so that no end removes it; then its ID is
/// reused by another, which is read.
#[test]
fn an_end_is_that_of_the_living_task_rather_than_of_one_without_a_known_start() {
    let mut m = Machine::new();
    m.tree.listed(30, A, m.now, &mut m.sums);
    m.now += 3 * SECOND;
    m.fork(20, 30);
    m.take_forks();
    assert_eq!(m.tree.displaced.len(), 1);
    m.list(B);
    m.find(30).used = 7;
    m.read();
    m.now += SECOND;
    m.end(30);
    m.take(usize::MAX);
    assert_eq!((m.sums.of(A), m.sums.of(B)), (0, 7));
}

#[test]
fn an_end_too_late_for_the_previous_task_of_its_id() {
    let mut m = Machine::new();
    m.fork(10, 30);
    m.end(30);
    // Its end is lost.
    m.ends.clear();
    m.now += 3 * SECOND;
    m.fork(20, 30);
    m.now += 7 * SECOND / 2;
    m.find(30).used = 7;
    m.end(30);
    m.take(usize::MAX);
    assert_eq!((m.sums.of(A), m.sums.of(B)), (0, 7));
}

#[test]
fn a_fork_reported_after_that_of_the_next_task_of_its_id() {
    let mut m = Machine::new();
    m.fork(10, 30);
    m.find(30).used = 7;
    m.end(30);
    m.now += 3 * SECOND;
    m.fork(20, 30);
    m.find(30).used = 11;
    m.forks.reverse();
    m.take(usize::MAX);
    m.now += SECOND;
    m.end(30);
    m.take(usize::MAX);
    assert_eq!((m.sums.of(A), m.sums.of(B)), (7, 11));
}

#[test]
fn a_list_older_than_the_current_task_of_an_id() {
    let mut m = Machine::new();
    let listed_at = m.now;
    m.now += SECOND;
    m.fork(20, 30);
    m.take(usize::MAX);
    m.tree.listed(30, A, listed_at, &mut m.sums);
    assert_eq!(m.tree.reading(30, m.now, &mut m.sums).unwrap().job, B);
}

/// Next step of the simulated machine and of its listener.
#[derive(Clone, Debug)]
enum Step {
    Fork(usize),
    /// A task of no job without a child joins a job, and is listed at once.
    Join(usize, bool, bool),
    Work(usize, u64),
    End(usize),
    List(bool),
    Read,
    Take(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let who = any::<usize>;
    let step = prop_oneof![
        4 => who().prop_map(Step::Fork),
        3 => (who(), any::<bool>(), any::<bool>()).prop_map(|(w, j, f)| Step::Join(w, j, f)),
        6 => (who(), 1..100_u64).prop_map(|(who, used)| Step::Work(who, used)),
        3 => who().prop_map(Step::End),
        2 => any::<bool>().prop_map(Step::List),
        3 => Just(Step::Read),
        2 => prop_oneof![Just(usize::MAX), 0..4_usize].prop_map(Step::Take),
    ];
    proptest::collection::vec(step, 1..600)
}

impl Machine {
    /// Lists as [`crate::task_attribution::Exits::list`] does: after the forks that were reported before the list.
    fn list_in_order(&mut self, job: JobNo) {
        self.take_forks();
        self.list(job);
    }

    /// A joining task is also listed before its fork is received, if its ID identifies it.
    fn join(&mut self, place: usize, job: JobNo, in_order: bool) {
        let Some(task) = self.living.get_mut(place) else { return };
        if task.tid < 30 || task.job.is_some() || task.has_forked {
            return;
        }
        task.job = Some(job);
        let of_job: Vec<_> = self.living.iter().filter(|it| it.job == Some(job)).collect();
        let is_used_again = of_job.iter().any(|it| self.ends.iter().any(|end| end.0.tid == it.tid));
        if in_order || is_used_again { self.list_in_order(job) } else { self.list(job) }
    }

    fn step(&mut self, step: Step) {
        self.now += 100_000;
        let living = self.living.len();
        match step {
            // So that no ID is reused within the tolerance.
            Step::Fork(who) if living < 15 => {
                while self.living.iter().any(|task| task.tid == self.next) {
                    self.next = if self.next == 59 { 30 } else { self.next + 1 };
                }
                self.fork(self.living[who % living].tid, self.next);
                self.next = if self.next == 59 { 30 } else { self.next + 1 };
            }
            Step::Join(who, is_a, in_order) => {
                self.join(who % living, if is_a { A } else { B }, in_order);
            }
            Step::Work(who, used) => self.living[who % living].used += used,
            Step::End(who) => match self.living[who % living].tid {
                5 | 10 | 20 => {}
                tid => self.end(tid),
            },
            Step::List(is_a) => self.list_in_order(if is_a { A } else { B }),
            Step::Read => self.read(),
            Step::Take(ends) => self.take(ends),
            Step::Fork(_) => {}
        }
        // A window of seconds would contain the ends of several tasks with one ID.
        if self.now - self.emptied > SECOND {
            self.take(usize::MAX);
        }
    }
}

proptest! {
    /// In any order of reports, a job's sum never exceeds the use of its tasks, and equals it in the end.
    #[test]
    fn every_task_counts_once(steps in steps()) {
        let mut m = Machine::new();
        for step in steps {
            m.step(step);
            m.assert_true();
        }
        m.now += SECOND;
        while let Some(task) = m.living.last().copied() {
            m.end(task.tid);
        }
        m.take(usize::MAX);
        prop_assert_eq!((m.sums.of(A), m.sums.of(B)),
            (m.expected.get(&A).copied().unwrap_or(0), m.expected.get(&B).copied().unwrap_or(0)));
        prop_assert_eq!(m.tree.counts().unattributed, 0);
    }
}
