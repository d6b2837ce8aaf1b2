//! The accounting state: what a restarted agent needs to continue the counters of living jobs.
//!
//! Format, see `docs/decisions/0022-accounting-state.md`: numbers are unsigned LEB128. The version, the instant
//! of the last reading, then one block per job with its length in front: key, creation of the cgroup, counter
//! start, the instant from which tasks count whole, the job's sums, and each living task with its last values.
//! The agent checks the bytes (checksum, boot ID) before it passes them on; here nothing is trusted either.

use super::task_tree::{Account, JobNo, TOLERANCE_US, TaskIdentity};
use super::{Exits, SAME_RUN_US, now_us};
use crate::{Context, Sink, SourceError};
use cgroups::JobCgroup;
use kernel::{clock, process, stat};
use model::{Cause, Timestamp};
use std::fmt::Write as _;
use std::ops::Range;

/// Version of the format.
const VERSION: u64 = 2;
/// Largest state of one source. A task takes about 90 bytes, so that 20 000 tasks fit.
const BYTES_MAX: usize = 2 << 20;

/// Appends a number.
pub(crate) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

/// Reads numbers from untrusted bytes.
#[derive(Debug)]
pub(crate) struct Numbers<'a>(pub(crate) &'a [u8]);

impl<'a> Numbers<'a> {
    /// The next number; `None` at the end, or if it exceeds 64 bits.
    pub(crate) fn take(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (first, rest) = self.0.split_first()?;
            self.0 = rest;
            let bits = u64::from(first & 0x7f);
            number |= bits.checked_shl(shift).filter(|it| it >> shift == bits)?;
            if first & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    /// The next number, if it fits into 32 bits.
    pub(crate) fn take_u32(&mut self) -> Option<u32> {
        self.take()?.try_into().ok()
    }

    fn take_time(&mut self) -> Option<Timestamp> {
        self.take()?.try_into().ok().map(Timestamp)
    }

    /// Fills an array of counters.
    pub(crate) fn fill(&mut self, counters: &mut [u64]) -> Option<()> {
        counters.iter_mut().try_for_each(|counter| self.take().map(|it| *counter = it))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.take()?.try_into().ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }
}

/// The state of an earlier agent, until its jobs are found again.
#[derive(Debug, Default)]
pub(super) struct Saved {
    bytes: Box<[u8]>,
    /// The blocks of the jobs that were not found yet.
    jobs: Vec<Range<usize>>,
    /// When the earlier agent read for the last time: the start of the gap if no sample of it is known.
    at: Timestamp,
    /// Until when samples of an earlier agent exist; `None` if none is known.
    until: Option<Timestamp>,
    /// Since when tasks may have ended unobserved; reported as a gap.
    unobserved: Option<Timestamp>,
    restored: u32,
    began_again: u32,
}

/// A job's block without its sums and tasks.
struct Head {
    start: Timestamp,
    counts_from_us: u64,
}

fn time(at: Timestamp) -> u64 {
    u64::try_from(at.0).unwrap_or(0)
}

impl Exits {
    /// Writes the state of the jobs that fit.
    pub(super) fn save(&self, cx: &Context<'_>, account: &impl Account, out: &mut Vec<u8>) {
        let mut tasks: Vec<_> = self.tree.tasks_of_jobs().collect();
        tasks.sort_unstable_by_key(|(job, tid, _)| (*job, *tid));
        put(out, VERSION);
        put(out, time(cx.now));
        let mut block = Vec::new();
        for job in &self.jobs {
            block.clear();
            let key = job.key.to_string();
            put(&mut block, key.len().try_into().unwrap_or(0));
            block.extend_from_slice(key.as_bytes());
            put(&mut block, time(job.created));
            put(&mut block, time(job.start));
            put(&mut block, self.tree.counts_from_us(job.no));
            account.save_job(job.no, &mut block);
            let first = tasks.partition_point(|(no, ..)| *no < job.no);
            let of_job = tasks.get(first..).unwrap_or_default().iter();
            for (_, tid, task) in of_job.take_while(|(no, ..)| *no == job.no) {
                let before = block.len();
                put(&mut block, u64::from(*tid));
                put(&mut block, u64::from(task.tgid));
                put(&mut block, task.start_us);
                if task.start_us == 0 || !account.save_task(*tid, task.no, &mut block) {
                    block.truncate(before);
                }
            }
            if out.len() + block.len() <= BYTES_MAX {
                put(out, block.len().try_into().unwrap_or(0));
                out.extend_from_slice(&block);
            }
        }
    }

    /// Takes the state of an earlier agent, of which samples exist until then.
    ///
    /// # Errors
    /// It is damaged or of another version: jobs begin new counters, and a gap says so.
    pub(super) fn resume(
        &mut self,
        state: &[u8],
        until: Option<Timestamp>,
    ) -> Result<(), SourceError> {
        self.saved.until = until;
        if state.is_empty() {
            return Ok(());
        }
        let damaged =
            || SourceError::broken("the accounting state is damaged or of another version");
        let mut numbers = Numbers(state);
        if state.len() > BYTES_MAX || numbers.take() != Some(VERSION) {
            return Err(damaged());
        }
        let at = numbers.take_time().ok_or_else(damaged)?;
        let mut jobs = Vec::new();
        while !numbers.0.is_empty() {
            let block = numbers.bytes().ok_or_else(damaged)?;
            let end = state.len() - numbers.0.len();
            jobs.push(end - block.len()..end);
        }
        self.saved = Saved { bytes: state.into(), jobs, at, until, ..Saved::default() };
        Ok(())
    }

    /// Continues a job's counters where the state has them. Returns their start; `None` if they begin anew.
    pub(super) fn restore(
        &mut self,
        no: JobNo,
        job: &JobCgroup,
        cx: &Context<'_>,
        account: &mut impl Account,
    ) -> Option<Timestamp> {
        let saved = &mut self.saved;
        let is_it = |range: &Range<usize>| head(saved.bytes.get(range.clone())?, job);
        let found = saved.jobs.iter().position(|range| is_it(range).is_some());
        let head = found.and_then(|place| {
            let range = saved.jobs.swap_remove(place);
            head(saved.bytes.get(range)?, job)
        });
        let Some((Head { start, counts_from_us }, mut numbers)) = head else {
            if job.created < self.opened_at.unwrap_or_default()
                && let Some(until) = saved.until
            {
                // One downtime is one interval: that of the gap of all sources.
                saved.unobserved = Some(until);
                saved.began_again += 1;
            }
            return None;
        };
        let from = saved.until.unwrap_or(saved.at);
        let bytes = std::mem::take(&mut numbers.0).to_vec();
        self.tree.add_job(no, counts_from_us);
        if self.restore_tasks(no, &mut Numbers(&bytes), cx, account).is_none() {
            self.tree.remove_job(no, account);
            account.keep(|it| it != no);
            return None;
        }
        let saved = &mut self.saved;
        saved.restored += 1;
        saved.unobserved = Some(from);
        if saved.jobs.is_empty() {
            saved.bytes = Box::default();
        }
        Some(start)
    }

    /// Restores a job's sums, and the tasks that still live.
    fn restore_tasks(
        &mut self,
        no: JobNo,
        numbers: &mut Numbers<'_>,
        cx: &Context<'_>,
        account: &mut impl Account,
    ) -> Option<()> {
        account.restore_job(no, numbers)?;
        let (hz, mut text) = (stat::user_hz(cx.root), Vec::new());
        while !numbers.0.is_empty() {
            let (tid, tgid, start_us) = (numbers.take_u32()?, numbers.take_u32()?, numbers.take()?);
            self.path.clear();
            // Writing into a `String` cannot fail.
            write!(self.path, "proc/{tid}/stat").ok();
            let read = cx.root.read(&self.path, &mut text).is_ok();
            let ticks = process::process_stat(&text).ok().filter(|_| read).map(|it| it.start_ticks);
            // The ID may belong to another task by now: then this one has ended.
            let lives = ticks.is_some_and(|ticks| {
                let now_us = ticks.saturating_mul(1_000_000) / hz.max(1);
                now_us.saturating_sub(clock::slept_us()).abs_diff(start_us) <= TOLERANCE_US
            });
            let origin = TaskIdentity { tid, tgid, start_us };
            let task = self.tree.restored(no, &origin, now_us(cx), lives);
            account.restore_task(no, tid, task, numbers)?;
            if !lives {
                account.lost(tid, task);
            }
        }
        Some(())
    }

    /// Reports the time in which tasks may have ended unobserved.
    pub(super) fn report_restart(&mut self, source: &str, now: Timestamp, out: &mut Sink) {
        let saved = &mut self.saved;
        let Some(from) = saved.unobserved.take() else { return };
        let (restored, began_again) =
            (std::mem::take(&mut saved.restored), std::mem::take(&mut saved.began_again));
        let detail = format!(
            "restart: counters of {restored} jobs continue, those of {began_again} restart without use since \
             their last reading; tasks that ended meanwhile are missing"
        );
        out.gap(source, from, now, Cause::AgentDown, &detail);
    }
}

/// Reads the beginning of a block; `None` if it is of another job or another run.
fn head<'a>(block: &'a [u8], job: &JobCgroup) -> Option<(Head, Numbers<'a>)> {
    let mut numbers = Numbers(block);
    let key = numbers.bytes()?;
    let created = numbers.take_time()?;
    let (start, counts_from_us) = (numbers.take_time()?, numbers.take()?);
    let is_it = key == job.key.to_string().as_bytes()
        && job.created.since(created).saturating_abs() < SAME_RUN_US;
    is_it.then_some((Head { start, counts_from_us }, numbers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_are_read_as_written(numbers: Vec<u64>) {
            let mut bytes = Vec::new();
            numbers.iter().for_each(|number| put(&mut bytes, *number));
            let mut read = Numbers(&bytes);
            for number in numbers {
                prop_assert_eq!(read.take(), Some(number));
            }
            prop_assert_eq!(read.take(), None);
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let mut numbers = Numbers(&bytes);
            while numbers.bytes().is_some() {}
            let mut numbers = Numbers(&bytes);
            while numbers.take().is_some() {}
        }
    }

    #[test]
    fn a_number_beyond_64_bits_is_rejected() {
        assert_eq!(Numbers(&[0xff; 11]).take(), None);
        assert_eq!(
            Numbers(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).take(),
            None
        );
        assert_eq!(Numbers(&[0x80]).take(), None);
    }
}
