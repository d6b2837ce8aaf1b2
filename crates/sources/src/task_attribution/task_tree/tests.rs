//! Forks, ends, lists and looks as reported by a machine, and the attribution of each end.

mod moves;
mod once;

use super::*;
use kernel::taskstats::{Counter, Counters, TaskMessage};
use proptest::prelude::*;
use std::collections::BTreeMap;

const A: JobNo = JobNo(1);
const B: JobNo = JobNo(2);
const SECOND: u64 = 1_000_000;

/// The attributed ends, with their jobs, and whether they count from their start.
#[derive(Default)]
struct Book {
    ended: Vec<(JobNo, u32, bool)>,
    forgotten: usize,
}

impl Account for Book {
    fn ended(&mut self, job: JobNo, task: &Ended<'_>) {
        self.ended.push((job, task.stats.tid, task.from_start));
    }

    fn forgotten(&mut self, _: TaskNo) {
        self.forgotten += 1;
    }

    fn keep(&mut self, is_there: impl Fn(JobNo) -> bool) {
        self.ended.retain(|(job, _, _)| is_there(*job));
    }
}

impl Book {
    fn of(&self, job: JobNo) -> Vec<u32> {
        let of_job = self.ended.iter().filter(|(of, _, _)| *of == job);
        let mut tids: Vec<_> = of_job.map(|(_, tid, _)| *tid).collect();
        tids.sort_unstable();
        tids
    }
}

/// A tree with a book, and the clock of the simulated machine.
struct Machine {
    tree: Tree,
    book: Book,
    now: u64,
    drained: u64,
}

impl Machine {
    /// Two jobs that began at 100 s, with a shell each: 10 in A, 20 in B. It is 1 000 s.
    fn new(complete: bool) -> Self {
        let (mut tree, mut book) = (Tree::default(), Book::default());
        tree.add_job(A, 100 * SECOND);
        tree.add_job(B, 100 * SECOND);
        tree.begin_round();
        tree.listed(10, A, 1000 * SECOND, &mut book);
        tree.listed(20, B, 1000 * SECOND, &mut book);
        tree.set_complete(complete);
        let now = 1000 * SECOND;
        Self { tree, book, now, drained: now }
    }

    fn fork(&mut self, parent: u32, tid: u32) {
        self.fork_as(parent, tid, tid);
    }

    fn fork_as(&mut self, parent: u32, tid: u32, tgid: u32) {
        let fork = Fork { parent_tid: parent, parent_tgid: parent, tid, tgid, at_us: self.now };
        self.tree.fork(&fork, &mut self.book);
    }

    /// A task with this lifetime ends now.
    fn exit(&mut self, tid: u32, ppid: u32, elapsed_us: u64) {
        self.exit_as(tid, None, ppid, elapsed_us);
    }

    fn exit_as(&mut self, tid: u32, tgid: Option<u32>, ppid: u32, elapsed_us: u64) {
        let mut counters = Counters::ZERO;
        counters.0[Counter::CpuRunVirtual.place()] = 7;
        let stats = TaskStats {
            tid,
            tgid,
            ppid,
            begin_s: 0,
            elapsed_us,
            last_of_group: false,
            hiwater_rss_kib: 0,
            hiwater_vm_kib: 0,
            comm: [0; 16],
            counters,
        };
        let window = Window { from_us: self.drained, to_us: self.now };
        let exit = TaskMessage { stats, with_group: false };
        self.tree.exit(&exit, self.now - elapsed_us, window, &mut self.book);
    }

    /// Time passes; all reported events have been received.
    fn pass(&mut self, us: u64) {
        self.drained = self.now;
        self.now += us;
    }

    fn look(&mut self, mut at: impl FnMut(u32) -> Looked) {
        let mut passed = 0;
        while let Some(tid) = self.tree.due(&mut passed, self.now) {
            self.tree.looked(tid, at(tid), self.now, &mut self.book);
        }
        self.tree.expire(self.now, &mut self.book);
    }
}

#[test]
fn a_shell_that_ends_before_its_children() {
    let mut m = Machine::new(true);
    m.fork(10, 11);
    m.fork(11, 12);
    m.fork(11, 13);
    m.pass(50_000);
    m.exit(11, 10, 50_000);
    m.pass(50_000);
    // Their parent is the reaper now.
    m.exit(12, 1, 100_000);
    m.exit(13, 1, 100_000);
    assert_eq!(m.book.of(A), [11, 12, 13]);
    assert_eq!(m.tree.counts().unattributed, 0);
}

#[test]
fn a_daemon_that_forks_twice_within_one_drain() {
    let mut m = Machine::new(true);
    // Forks are applied before ends, as when received.
    m.fork(10, 11);
    m.fork(11, 12);
    m.fork(12, 13);
    m.pass(1000);
    m.exit(11, 10, 1000);
    m.exit(12, 1, 1000);
    m.exit(13, 1, 1000);
    assert_eq!(m.book.of(A), [11, 12, 13]);
    assert!(m.book.ended.iter().all(|(_, _, from_start)| *from_start));
}

#[test]
fn threads_are_of_the_job_of_their_process() {
    let mut m = Machine::new(true);
    // The parent of a thread is that of its process.
    m.fork_as(1, 14, 10);
    m.pass(1000);
    m.exit(14, 1, 1000);
    // A thread from before the first list: only its process is known.
    m.exit_as(15, Some(10), 1, 900 * SECOND);
    m.exit_as(25, Some(20), 1, 900 * SECOND);
    assert_eq!((m.book.of(A), m.book.of(B)), (vec![14, 15], vec![25]));
}

#[test]
fn ends_of_no_job_are_counted_as_such() {
    let mut m = Machine::new(true);
    m.fork(500, 501);
    m.pass(1000);
    m.exit(501, 500, 1000);
    m.exit(400, 1, 5 * SECOND);
    m.look(|_| Looked::Outside);
    assert!(m.book.ended.is_empty());
    assert_eq!(m.tree.counts(), TreeCounts { exits: 2, ..TreeCounts::default() });
}

#[test]
fn many_forks_in_another_job_change_nothing() {
    let mut m = Machine::new(true);
    m.fork(10, 11);
    for n in 0..10_000 {
        m.fork(20, 1000 + n % 500);
        m.pass(200);
        m.exit(1000 + n % 500, 20, 200);
    }
    m.exit(11, 10, 2 * SECOND);
    assert_eq!(m.book.of(A), [11]);
    assert_eq!(m.book.of(B).len(), 10_000);
    assert_eq!(m.book.forgotten, 0);
    assert_eq!(m.tree.tasks.len(), 2);
}

#[test]
fn an_id_reused_within_one_drain() {
    let mut m = Machine::new(true);
    m.fork(10, 11);
    m.now += 3 * SECOND;
    // 11 of A ended, and its ID was reused by a task of B and then by one of no job: forks first.
    m.fork(20, 11);
    m.now += 3 * SECOND;
    m.fork(500, 11);
    m.now += SECOND;
    m.exit(11, 10, 3 * SECOND);
    m.exit(11, 20, 3 * SECOND);
    m.exit(11, 500, SECOND);
    assert_eq!((m.book.of(A), m.book.of(B)), (vec![11], vec![11]));
    assert_eq!(m.book.forgotten, 0);
}

#[test]
fn an_id_reused_after_a_lost_end() {
    let mut m = Machine::new(true);
    m.fork(10, 11);
    m.pass(60 * SECOND);
    // Lost: the end of 11, and the fork of another 11, of no job.
    m.pass(10 * SECOND);
    m.exit(11, 1, 5 * SECOND);
    assert!(m.book.ended.is_empty(), "{:?}", m.book.ended);
    assert_eq!(m.book.forgotten, 1);
    // Lost: the end of 12 of A; another 12 of B ends.
    m.fork(10, 12);
    m.pass(60 * SECOND);
    m.fork(20, 12);
    m.pass(5 * SECOND);
    m.exit(12, 20, 5 * SECOND);
    assert_eq!((m.book.of(A), m.book.of(B)), (vec![], vec![12]));
}

#[test]
fn an_end_from_before_the_reuse_of_its_id() {
    let mut m = Machine::new(true);
    // 11 was of no job and had no entry; its end is received after the fork of its successor in A.
    m.now += 10 * SECOND;
    m.fork(10, 11);
    m.exit(11, 1, 500 * SECOND);
    assert!(m.book.ended.is_empty());
    m.pass(5 * SECOND);
    m.exit(11, 10, 5 * SECOND);
    assert_eq!(m.book.of(A), [11]);
}

#[test]
fn a_shell_that_joined_is_found_by_its_first_child() {
    let mut m = Machine::new(true);
    // 70 joined A without a reported fork; its children end before any look.
    m.fork(70, 71);
    m.fork(71, 72);
    m.fork(70, 73);
    m.pass(30_000);
    m.exit(71, 70, 30_000);
    m.exit(72, 1, 30_000);
    assert!(m.book.ended.is_empty());
    let mut looked = Vec::new();
    m.look(|tid| {
        looked.push(tid);
        Looked::In(A)
    });
    assert_eq!(looked, [70], "73 is of its job by descent");
    assert_eq!(m.book.of(A), [71, 72]);
    m.exit(73, 70, 30_000);
    assert_eq!(m.book.of(A), [71, 72, 73]);
}

#[test]
fn a_new_process_that_joins_later() {
    let mut m = Machine::new(true);
    m.fork(70, 71);
    m.pass(30_000);
    m.look(|_| Looked::Outside);
    m.pass(100_000);
    m.look(|tid| if tid == 71 { Looked::In(B) } else { Looked::Outside });
    m.fork(71, 72);
    m.pass(SECOND);
    m.exit(72, 71, SECOND);
    m.exit(71, 70, SECOND + 130_000);
    assert_eq!(m.book.of(B), [71, 72]);
}

#[test]
fn a_task_that_never_joins_is_removed() {
    let mut m = Machine::new(true);
    let mut looks = 0;
    m.fork(70, 71);
    for _ in 0..100 {
        m.pass(100_000);
        m.look(|_| {
            looks += 1;
            Looked::Outside
        });
    }
    // A look at the age of 100 ms replaces that of 20 ms.
    assert_eq!(looks, 1 + LOOK_AGES_US.len() - 1);
    assert_eq!((m.tree.tasks.len(), m.tree.doubts.len()), (2, 0));
}

#[test]
fn a_listed_task_settles_what_waits_for_it() {
    let mut m = Machine::new(true);
    m.fork(70, 71);
    m.fork(71, 72);
    m.pass(1000);
    m.exit(72, 71, 1000);
    m.tree.listed(71, A, m.now, &mut m.book);
    assert_eq!(m.book.of(A), [72]);
}

#[test]
fn without_forks_the_parent_determines_the_job() {
    let mut m = Machine::new(false);
    m.exit(11, 10, 1000);
    // A chain that ends from the youngest to the oldest; looks at the parents find nothing.
    m.exit(33, 32, 1000);
    m.exit(32, 31, 1000);
    m.look(|_| Looked::Gone);
    m.exit(31, 10, 1000);
    assert_eq!(m.book.of(A), [11, 31, 32, 33]);
    // The parent's end is reported before that of its child, which still contains its ID.
    m.exit(41, 31, 1000);
    assert_eq!(m.book.of(A), [11, 31, 32, 33, 41]);
    // The parent lives, and is of a job by its cgroup.
    m.exit(51, 50, 1000);
    m.look(|tid| if tid == 50 { Looked::In(B) } else { Looked::Gone });
    assert_eq!(m.book.of(B), [51]);
}

#[test]
fn without_forks_an_orphan_cannot_be_attributed() {
    let mut m = Machine::new(false);
    m.exit(11, 1, 1000);
    m.exit(12, 2, 1000);
    m.exit(14, 13, 1000);
    m.look(|_| Looked::Gone);
    m.pass(WAIT_US + SECOND);
    m.look(|_| Looked::Gone);
    let expected =
        TreeCounts { exits: 3, unattributed: 1, unattributed_cpu_ns: 7, not_looked_at: 0 };
    // 12 was a thread of the kernel; the parent of 14 is known to be of no job.
    assert_eq!(m.tree.counts(), expected);
    assert!(m.book.ended.is_empty());
}

#[test]
fn tasks_from_before_the_start_do_not_count_completely() {
    let mut m = Machine::new(true);
    m.tree.add_job(A, m.now);
    m.exit(10, 1, 500 * SECOND);
    m.fork(20, 21);
    m.pass(1000);
    m.exit(21, 20, 1000);
    assert_eq!(m.book.ended, [(A, 10, false), (B, 21, true)]);
}

#[test]
fn a_task_that_leaves_and_returns_counts_once() {
    let mut m = Machine::new(true);
    let reading = m.tree.reading(10, 500 * SECOND, &mut m.book).unwrap();
    assert!(reading.from_start && reading.may_be_ending);
    m.tree.begin_round();
    m.tree.listed(20, B, m.now, &mut m.book);
    m.tree.end_round(false, |_| true, |_| true, &mut m.book);
    // Once more for the job that it left.
    assert_eq!(m.tree.reading(10, 500 * SECOND, &mut m.book).unwrap().job, A);
    m.tree.moved_read(10, &mut m.book);
    assert_eq!(m.book.forgotten, 1);
    assert!(m.tree.reading(10, 500 * SECOND, &mut m.book).is_none());
    m.tree.begin_round();
    m.tree.listed(10, B, m.now, &mut m.book);
    m.tree.listed(20, B, m.now, &mut m.book);
    m.tree.end_round(false, |_| true, |_| false, &mut m.book);
    let reading = m.tree.reading(10, 500 * SECOND, &mut m.book).unwrap();
    assert_eq!((reading.job, reading.from_start), (B, false));
}

#[test]
fn a_task_that_is_no_longer_listed_is_removed() {
    let mut m = Machine::new(true);
    m.fork(10, 11);
    m.fork_as(10, 12, 11);
    m.tree.begin_round();
    m.tree.listed(10, A, m.now, &mut m.book);
    m.tree.listed(11, A, m.now, &mut m.book);
    m.fork(10, 13);
    // Lists of processes do not contain the thread 12; B could not be listed; 13 is newer than the list.
    m.tree.end_round(true, |job| job == A, |_| false, &mut m.book);
    assert_eq!(m.tree.tasks.len(), 5);
    m.tree.end_round(false, |_| true, |_| false, &mut m.book);
    assert_eq!((m.tree.tasks.len(), m.book.forgotten), (3, 2));
    m.tree.remove_job(A, &mut m.book);
    assert_eq!((m.tree.tasks.len(), m.book.forgotten), (0, 5));
}

#[test]
fn a_reading_of_another_task_with_the_same_id() {
    let mut m = Machine::new(false);
    let first = m.tree.reading(10, 500 * SECOND, &mut m.book).unwrap();
    let same = m.tree.reading(10, 500 * SECOND + 1000, &mut m.book).unwrap();
    assert_eq!(first, same);
    let other = m.tree.reading(10, 700 * SECOND, &mut m.book).unwrap();
    assert_ne!(first.no, other.no);
    // The end of the first may still be reported.
    assert_eq!((m.book.forgotten, m.tree.displaced.len()), (0, 1));
    // If forks are reported, that of the other is on its way, and determines its job.
    m.tree.set_complete(true);
    assert_eq!(m.tree.reading(10, 900 * SECOND, &mut m.book), None);
    assert_eq!(m.tree.reading(10, 900 * SECOND, &mut m.book), None);
}

#[test]
fn everything_is_bounded() {
    let mut m = Machine::new(false);
    for n in 0..20_000 {
        m.fork(100_000 + n, 200_000 + n);
        m.exit(300_000 + n, 400_000 + n, 1000);
    }
    assert!(m.tree.doubts.len() <= DOUBTS_MAX);
    assert!(m.tree.waiting.is_full());
    let counts = m.tree.counts();
    assert_eq!(counts.exits, 20_000);
    assert!(counts.not_looked_at > 20_000 && counts.unattributed > 18_000);
    for n in 0..1000 {
        m.fork(10, 500 + n);
        m.fork(20, 500 + n);
    }
    assert!(m.tree.displaced.len() <= DISPLACED_MAX);
}

/// Next step of a simulated machine.
#[derive(Clone, Debug)]
enum Step {
    Fork(usize),
    Exit(usize),
    Take,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => any::<usize>().prop_map(Step::Fork),
        3 => any::<usize>().prop_map(Step::Exit),
        1 => Just(Step::Take),
    ];
    proptest::collection::vec(step, 1..300)
}

proptest! {
    /// A machine that reuses IDs quickly: every task of a job ends in its job, exactly once.
    #[test]
    fn every_end_comes_to_its_job_once(steps in steps()) {
        let mut m = Machine::new(true);
        // Living tasks, with job, parent and start. 1 is the reaper, of no job.
        let mut living = vec![(1, None, 0, 0), (10, Some(A), 1, 0), (20, Some(B), 1, 0)];
        let (mut next, mut forks, mut exits) = (30_u32, Vec::new(), Vec::new());
        let mut expected: BTreeMap<JobNo, usize> = BTreeMap::new();
        for step in steps.into_iter().chain([Step::Take]) {
            m.now += 100_000;
            match step {
                Step::Fork(who) => {
                    let (parent, job, ..) = living[who % living.len()];
                    while living.iter().any(|(tid, ..)| *tid == next) {
                        next = if next == 99 { 30 } else { next + 1 };
                    }
                    if living.len() < 50 {
                        living.push((next, job, parent, m.now));
                        forks.push((m.now, parent, next));
                        next = if next == 99 { 30 } else { next + 1 };
                    }
                }
                Step::Exit(who) if living.len() > 3 => {
                    let (tid, job, parent, start) = living.swap_remove(3 + who % (living.len() - 3));
                    exits.push((m.now, tid, parent, start));
                    if let Some(job) = job {
                        *expected.entry(job).or_default() += 1;
                    }
                    living.iter_mut().filter(|it| it.2 == tid).for_each(|it| it.2 = 1);
                }
                Step::Exit(_) => {}
                Step::Take => {
                    let now = m.now;
                    for (at, parent, tid) in forks.drain(..) {
                        m.now = at;
                        m.fork(parent, tid);
                    }
                    for (at, tid, parent, start) in exits.drain(..) {
                        m.now = at;
                        m.exit(tid, parent, at - start);
                    }
                    m.now = now;
                    m.look(|_| Looked::Outside);
                    m.drained = now;
                }
            }
        }
        let mut found: BTreeMap<JobNo, usize> = BTreeMap::new();
        for (job, _, from_start) in &m.book.ended {
            prop_assert!(from_start);
            *found.entry(*job).or_default() += 1;
        }
        prop_assert_eq!(found, expected);
        prop_assert_eq!(m.tree.counts().unattributed, 0);
    }
}
