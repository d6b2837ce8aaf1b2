//! Tasks that are moved between jobs.

use super::*;

fn machine() -> Machine {
    let mut m = Machine::new(true);
    for (tid, job) in [(10, A), (20, B)] {
        m.tree.listed(tid, job, m.now, &mut m.book);
        m.tree.set_known(job, true);
    }
    m
}

impl Machine {
    fn list(&mut self, tid: u32, job: JobNo) {
        self.pass(SECOND);
        self.tree.begin_round();
        self.tree.listed(tid, job, self.now, &mut self.book);
    }

    /// Job of a reading, and whether the whole use so far counts for it.
    fn read(&mut self, tid: u32, start_us: u64) -> Option<(JobNo, bool)> {
        let reading = self.tree.reading(tid, start_us, &mut self.book)?;
        Some((reading.job, reading.from_start))
    }

    fn moved(&mut self) -> Vec<u32> {
        self.tree.take_moved(Vec::new())
    }
}

#[test]
fn a_task_without_a_fork_was_moved_into_a_known_job() {
    let mut m = machine();
    // It began after the job, and has been removed since.
    let start = 500 * SECOND;
    m.list(70, A);
    assert_eq!((m.moved(), m.read(70, start)), (vec![70], Some((A, false))));
    // If forks may have been lost, it may have been born in the job.
    m.tree.set_known(A, false);
    m.list(71, A);
    assert_eq!((m.moved(), m.read(71, start)), (vec![], Some((A, true))));
}

#[test]
fn a_task_that_was_seen_elsewhere_was_moved() {
    let mut m = machine();
    for (tid, has_moved) in [(71, true), (72, false)] {
        let start = m.now;
        m.fork(500, tid);
        m.pass(30_000);
        m.tree.looked(tid, Looked::Outside, m.now, &mut m.book);
        m.tree.set_seen(tid, 7);
        // If its cgroup is later found to be a job's, it was there from the start.
        assert_eq!(m.tree.seen_outside(tid), Some(7));
        if has_moved {
            m.tree.has_moved(tid);
        }
        m.list(tid, A);
        assert_eq!(m.read(tid, start), Some((A, !has_moved)));
        m.pass(SECOND);
        m.exit(tid, 500, m.now - start);
    }
    assert_eq!(m.book.ended, [(A, 71, false), (A, 72, true)]);
}

#[test]
fn from_one_job_to_another_and_back() {
    let mut m = machine();
    let start = m.now;
    m.fork(10, 11);
    m.list(11, A);
    assert_eq!(m.read(11, start), Some((A, true)));
    m.list(11, B);
    assert_eq!(m.moved(), [11]);
    // Its use until the move is detected belongs to the job that it left.
    assert_eq!(m.read(11, start), Some((A, true)));
    assert_eq!(m.read(11, start), Some((B, false)));
    m.list(11, A);
    assert_eq!(m.read(11, start), Some((B, false)));
    assert_eq!(m.read(11, start), Some((A, false)));
    m.pass(SECOND);
    m.exit(11, 10, m.now - start);
    assert_eq!(m.book.ended, [(A, 11, false)]);
    assert_eq!(m.book.forgotten, 0);
}

#[test]
fn a_task_that_ends_right_after_the_move_counts_for_neither() {
    let mut m = machine();
    let start = m.now;
    m.fork(10, 11);
    m.list(11, A);
    assert_eq!(m.read(11, start), Some((A, true)));
    m.list(11, B);
    m.pass(SECOND);
    m.exit(11, 10, m.now - start);
    // Its last reading is forgotten, so that its end adds nothing.
    assert_eq!((m.book.ended.as_slice(), m.book.forgotten), (&[(B, 11, false)][..], 1));
}

#[test]
fn a_child_born_between_the_move_and_its_detection_is_of_the_new_job() {
    let mut m = machine();
    let start = m.now;
    // 10 is already in B, which is not detected yet.
    m.fork(10, 11);
    m.list(11, B);
    assert_eq!((m.moved(), m.read(11, start)), (vec![], Some((B, true))));
}

#[test]
fn a_task_that_leaves_is_read_once_more_for_its_job() {
    let mut m = machine();
    let start = m.now;
    m.fork(10, 11);
    m.list(11, A);
    m.list(10, A);
    m.tree.end_round(false, |_| true, |_| true, &mut m.book);
    assert!(m.moved().contains(&11));
    assert_eq!(m.read(11, start), Some((A, true)));
    assert_eq!(m.read(11, start), None);
    m.tree.moved_read(11, &mut m.book);
    assert_eq!(m.book.forgotten, 1);
    // Back again: its use outside does not belong to the job.
    m.list(11, A);
    assert_eq!(m.read(11, start), Some((A, false)));
    // Another task that reuses the ID is not confused with it.
    m.pass(60 * SECOND);
    assert_eq!(m.read(11, m.now), None);
}
