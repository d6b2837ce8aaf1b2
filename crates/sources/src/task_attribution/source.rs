//! Common parts of the sources that record what ended tasks used.

use super::Exits;
use super::task_tree::{Account, JobNo};
use crate::{Context, IdleQueues, Sink, Source, SourceError};
use model::{JobKey, Timestamp};
use std::time::Duration;

/// The part of such a source besides receiving ends.
pub(crate) trait TaskReader: Send {
    /// The source's name.
    const NAME: &'static str;

    /// The account of the use of the jobs' tasks.
    type Account: Account;

    /// The ends.
    fn exits(&self) -> &Exits;

    /// The ends, and the account that receives them.
    fn exits_and_account(&mut self) -> (&mut Exits, &mut Self::Account);

    /// Reads living tasks, and publishes the use of all tasks.
    ///
    /// # Errors
    /// As [`Source::collect`].
    fn read(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError>;

    /// Called after a drain.
    fn drained(&mut self, _cx: &Context<'_>) {}

    /// Reads tasks that were just moved.
    fn read_moved(&mut self, tids: &[u32], cx: &Context<'_>);

    /// Makes the next reading a complete one.
    fn want_all(&mut self);

    /// Publishes a job for the last time; its ends have been received.
    fn publish_last(&mut self, no: JobNo, cx: &Context<'_>, out: &mut Sink);
}

/// A source of a reader.
pub(crate) struct Listening<R>(pub(crate) R);

impl<R: TaskReader> Listening<R> {
    fn read_moved(&mut self, cx: &Context<'_>) {
        let mut moved = self.0.exits_and_account().0.tree.take_moved(Vec::new());
        if moved.is_empty() {
            return;
        }
        self.0.read_moved(&moved, cx);
        let (exits, account) = self.0.exits_and_account();
        moved.drain(..).for_each(|tid| exits.tree.moved_read(tid, account));
    }
}

impl<R: TaskReader> Source for Listening<R> {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        let drained = self.drain(cx, out);
        let (exits, account) = self.0.exits_and_account();
        account.keep(|no| exits.job(no).is_some());
        let read = self.0.read(cx, out);
        self.0.exits_and_account().0.report(R::NAME, cx, out);
        drained.and(read)
    }

    fn finish(
        &mut self,
        cx: &Context<'_>,
        out: &mut Sink,
        state: &mut Vec<u8>,
    ) -> Result<(), SourceError> {
        self.0.want_all();
        let collected = self.collect(&Context { budget_us: u64::MAX, ..*cx }, out);
        let (exits, account) = self.0.exits_and_account();
        exits.save(cx, account, state);
        collected
    }

    fn resume(&mut self, state: &[u8], until: Option<Timestamp>) -> Result<(), SourceError> {
        self.0.exits_and_account().0.resume(state, until)
    }

    fn drain(&mut self, cx: &Context<'_>, _: &mut Sink) -> Result<(), SourceError> {
        let (exits, account) = self.0.exits_and_account();
        let drained = exits.drain(cx, account);
        self.read_moved(cx);
        self.0.drained(cx);
        drained
    }

    fn drain_every(&self) -> Option<Duration> {
        self.0.exits().drain_every()
    }

    fn quiet(&self) -> Option<IdleQueues<'_>> {
        self.0.exits().quiet()
    }

    fn has_last_reading(&self) -> bool {
        true
    }

    fn job_ended(
        &mut self,
        job: &JobKey,
        cx: &Context<'_>,
        out: &mut Sink,
    ) -> Result<(), SourceError> {
        let drained = self.drain(cx, out);
        let known = self.0.exits().jobs().iter().find(|known| known.key == *job);
        if let Some(no) = known.map(|known| known.no) {
            self.0.publish_last(no, cx, out);
        }
        drained
    }
}
