//! The log's writer: takes all waiting batches, appends them, syncs once, then makes them visible and calls back.

use crate::files::errors::DiskError;
use crate::files::point::Point;
use crate::head::intake::Intake;
use crate::head::samples::Head;
use crate::log::files::Log;
use crate::log::record::{RecordKind, put_record};
use crate::state::flush_queue::{Covered, Job};
use crate::state::shared::Shared;
use model::{Boot, Gap, Timestamp};
use senders::json::GapJson;
use senders::{Gaps, OriginNumber, RejectedSeries, Request, Table, Verdict, Work};
use std::collections::HashSet;
use std::sync::Arc;
use storage::{DeferReason, Outcome};
use wire::Decoded;

/// Interval of checks for idle boots.
const EXPIRE_US: i64 = 60 * Timestamp::SECOND;

/// The log's writer.
#[derive(Debug)]
pub(crate) struct LogWriter {
    shared: Arc<Shared>,
    log: Log,
    intake: Intake,
    records: Vec<u8>,
    duplicates: HashSet<(OriginNumber, Boot, u64)>,
    /// Time of receipt of the oldest record that no block covers.
    oldest: Option<Timestamp>,
    expired: Timestamp,
}

/// The step for a batch once the log contains the commit.
enum CommitStep {
    /// The last number is the offset of the record in the commit, as for [`Self::Gap`].
    Store(OriginNumber, Arc<Table>, Box<Decoded>, Timestamp, u64),
    Gap(Gap, String, u64),
    /// The same batch precedes it in this commit.
    Duplicate,
    Done(Outcome),
}

impl LogWriter {
    pub(crate) fn new(
        shared: Arc<Shared>,
        log: Log,
        intake: Intake,
        oldest: Option<Timestamp>,
    ) -> Self {
        let (records, duplicates) = (Vec::new(), HashSet::new());
        let expired = shared.now();
        Self { shared, log, intake, records, duplicates, oldest, expired }
    }

    /// Works until the store is closed and the queue is empty.
    pub(crate) fn run(mut self) {
        loop {
            let Work { requests, closing } = self.shared.queue.take();
            if !requests.is_empty() {
                self.commit(requests);
            }
            self.maintain();
            if closing {
                break;
            }
        }
        self.shared.flushing.close();
    }

    fn commit(&mut self, requests: Vec<Request>) {
        let mut dones = Vec::with_capacity(requests.len());
        let mut steps = Vec::new();
        {
            let shared = Arc::clone(&self.shared);
            let mut books = shared.books();
            for Request { batches, done, .. } in requests {
                dones.push((done, batches.len()));
                for batch in batches {
                    let received = batch.received;
                    let senders = &shared.settings.senders;
                    let verdict = books.judge_new(&batch.decoded, received, senders);
                    steps.push(self.step(verdict, batch.decoded, &batch.frame, received));
                }
            }
        }
        self.duplicates.clear();
        let written = self.write();
        let outcomes = self.outcomes(steps, written);
        let mut outcomes = outcomes.into_iter();
        for (done, batches) in dones {
            done(outcomes.by_ref().take(batches).collect());
        }
        self.records.clear();
    }

    fn step(
        &mut self,
        verdict: Verdict,
        decoded: Decoded,
        frame: &[u8],
        received: Timestamp,
    ) -> CommitStep {
        match verdict {
            Verdict::Store(number, table) => {
                if !self.duplicates.insert((number, decoded.boot, decoded.seq)) {
                    return CommitStep::Duplicate;
                }
                if let Some(withheld) = RejectedSeries::record(&table, frame) {
                    put_record(&mut self.records, RecordKind::RejectedSeries, received, &withheld);
                }
                let at = self.records.len() as u64;
                put_record(&mut self.records, RecordKind::Frame, received, frame);
                CommitStep::Store(number, table, Box::new(decoded), received, at)
            }
            Verdict::TooLate(gap, why) => {
                let at = self.records.len() as u64;
                match serde_json::to_vec(&GapJson::from(&gap)) {
                    Ok(json) => put_record(&mut self.records, RecordKind::Gap, received, &json),
                    Err(error) => {
                        return CommitStep::Done(Outcome::RejectedPermanently(error.to_string()));
                    }
                }
                CommitStep::Gap(gap, why, at)
            }
            Verdict::Done(outcome) => CommitStep::Done(outcome),
        }
    }

    /// Writes and syncs the records. Returns the place of the first one.
    fn write(&mut self) -> Result<u64, DeferReason> {
        if self.records.is_empty() {
            return Ok(self.intake.place);
        }
        let settings = &self.shared.settings;
        let bytes = self.shared.log_sizes.bytes();
        if bytes + self.records.len() as u64 > settings.log_bytes_max {
            return Err(DeferReason::LogFull { bytes });
        }
        let (view, _) = self.shared.view();
        let bytes = view.heads().map(|head| head.bytes()).sum();
        if bytes >= settings.head_bytes_max as u64 {
            return Err(DeferReason::HeadFull { bytes });
        }
        let before = self.shared.now();
        let appended = self.log.append(&self.records);
        let took = self.shared.now().since(before).max(0);
        let mut counts = self.shared.counts();
        counts.log_error = appended.as_ref().err().map(DiskError::to_string);
        counts.stats.commits += 1;
        counts.stats.log_errors += u64::from(appended.is_err());
        let seconds = Timestamp(took).seconds();
        counts.stats.fsync_seconds += seconds;
        counts.stats.fsync_seconds_max = counts.stats.fsync_seconds_max.max(seconds);
        appended.map_err(|error| match error.is_full() {
            true => DeferReason::DiskFull(error.to_string()),
            false => DeferReason::Failed(error.to_string()),
        })
    }

    /// Makes the logged batches visible, and returns the outcome of each.
    fn outcomes(
        &mut self,
        steps: Vec<CommitStep>,
        written: Result<u64, DeferReason>,
    ) -> Vec<Outcome> {
        let shared = Arc::clone(&self.shared);
        let mut outcomes = Vec::with_capacity(steps.len());
        let (mut stored, mut rejected) = (0, 0);
        let mut books = shared.books();
        for step in steps {
            outcomes.push(match (step, &written) {
                (CommitStep::Done(outcome), _) => outcome,
                (_, Err(not_now)) => Outcome::RejectedTemporarily(not_now.clone()),
                (CommitStep::Duplicate, Ok(_)) => Outcome::Duplicate,
                (CommitStep::Gap(gap, why, at), Ok(first)) => {
                    books.gaps.set_place(first + at);
                    books.gaps.add(gap);
                    books.gaps.set_place(Gaps::OWN);
                    Outcome::RejectedPermanently(why)
                }
                (CommitStep::Store(number, table, decoded, received, at), Ok(first)) => {
                    self.intake.place = first + at;
                    self.oldest.get_or_insert(received);
                    let samples = decoded.values.len() as u64;
                    let of = (number, &table, None);
                    let settings = &shared.settings;
                    let outcome =
                        self.intake.store(&mut books, of, *decoded, received, &settings.senders);
                    if let Outcome::Stored { samples_rejected, .. } = &outcome {
                        rejected += u64::from(*samples_rejected);
                        stored += samples.saturating_sub(u64::from(*samples_rejected));
                    }
                    outcome
                }
            });
        }
        if let Ok(first) = written {
            self.intake.place = first + self.records.len() as u64;
        }
        // Before the records are unlocked: a thread that locks them later sees these batches.
        shared.show(self.intake.place);
        drop(books);
        let mut counts = shared.counts();
        counts.stats.samples_stored += stored;
        counts.stats.samples_rejected += rejected;
        outcomes.iter().for_each(|outcome| counts.stats.count(outcome));
        outcomes
    }

    /// Work between commits: idle boots leave the window, a block is begun.
    fn maintain(&mut self) {
        let shared = Arc::clone(&self.shared);
        let now = shared.now();
        if now.since(self.expired) >= EXPIRE_US {
            self.expired = now;
            let mut books = shared.books();
            let given_up = books.origins.expire(now, &shared.settings.senders);
            given_up.into_iter().for_each(|gap| books.gaps.add(gap));
            books.forget_runs(now);
        }
        if self.is_due(now) || shared.flushing.is_wanted() {
            self.freeze();
        }
    }

    fn is_due(&self, now: Timestamp) -> bool {
        let settings = &self.shared.settings;
        let head = &self.intake.head;
        head.samples() >= settings.head_samples_max
            || head.bytes() >= settings.head_bytes_max as u64 / 2
            || self.shared.log_sizes.bytes() >= settings.log_bytes_max / 2
            || self.oldest.is_some_and(|oldest| now.since(oldest) >= settings.head_age_us)
    }

    /// Hands the samples in memory to the block writer, with the store's records, unless it still has the
    /// previous ones.
    fn freeze(&mut self) {
        let shared = Arc::clone(&self.shared);
        if !shared.flushing.is_free() {
            return;
        }
        let through = self.log.rotate();
        let covered = Arc::new(Covered::of(&mut shared.books(), through));
        let head = Arc::new(Head::default());
        let full = shared.turn(|view| {
            let full = std::mem::replace(&mut view.active, Arc::clone(&head));
            view.frozen = Some(Arc::clone(&full));
            full
        });
        self.intake.turn_to(head);
        self.intake.place = Point::of_segment(through + 1).place;
        shared.show(self.intake.place);
        self.oldest = None;
        shared.flushing.hand(Job { head: full, covered, through });
    }
}
