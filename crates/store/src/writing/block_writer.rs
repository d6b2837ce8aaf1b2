//! The block writer: writes the samples in memory to a block, swaps the manifest, trims the log.
//!
//! The order makes a crash at any point harmless. The block is synced under its name before the manifest
//! lists it. The manifest also states the log segments that the block contains; only then are they removed.
//! The next start removes leftovers of a crash.

use crate::blocks::{Block, BlockFacts, BlockNote, NewBlock};
use crate::files::errors::{BlockError, DiskError};
use crate::files::layout::{blocks_dir, followers_dir, log_dir, quarantine_dir};
use crate::files::point::Point;
use crate::head::samples::{Group, Head, Member};
use crate::head::series_builder::SeriesBuilder;
use crate::log::files::{segment_name, segment_number};
use crate::settings::Settings;
use crate::state::flush_queue::Job;
use crate::state::ledger::Ledger;
use crate::state::manifest::write_gaps;
use crate::state::points::Points;
use crate::state::rests::{Rest, needed, points_of, rest_file};
use crate::state::shared::Shared;
use model::Timestamp;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use storage::SeriesInfo;

/// Most segments in quarantine; beyond, the oldest is removed.
const QUARANTINE_MAX: usize = 16;
/// How often rest files are written before the positions are locked.
const UNLOCKED_MAX: usize = 3;

/// Writes blocks and manifests.
#[derive(Debug)]
pub(crate) struct Flusher {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) settings: Settings,
}

impl Flusher {
    /// Writes jobs until the store is closed.
    pub(crate) fn run(self, shared: &Shared) {
        while let Some(job) = shared.flushing.next() {
            let (mut tries, through, mut rests) = (0, job.through, Vec::new());
            let since = loop {
                match self.try_job(shared, &job, &mut rests) {
                    Ok(since) => break since,
                    Err(error) => {
                        let mut counts = shared.counts();
                        counts.stats.flush_errors += 1;
                        counts.flush_error = Some(error.to_string());
                        drop(counts);
                        if !shared.flushing.failed(&error, tries) {
                            return;
                        }
                        tries += 1;
                    }
                }
            };
            // With the samples gone from memory, their series may be dropped.
            drop(job);
            shared.books().tables.drop_unused(since);
            shared.sweep();
            self.trim(through);
            shared.log_sizes.forget(through);
            shared.flushing.done();
            shared.queue.wake();
            shared.tending.wake();
        }
    }

    /// Writes a job, and shows its block. `made`: the rest files that are written so far.
    ///
    /// # Errors
    /// The disk fails; the whole job can be tried again.
    fn try_job(
        &self,
        shared: &Shared,
        job: &Job,
        made: &mut Vec<Rest>,
    ) -> Result<Timestamp, BlockError> {
        let block = self.block_of(job)?;
        // Written before the positions are locked: followers do not wait for them. Only the files of positions that
        // moved meanwhile are written again.
        for _ in 0..UNLOCKED_MAX {
            let (points, before) = (shared.positions().points(), made.len());
            let Some(block) = &block else { break };
            if self.rests(&job.head, &block.note, &points, made).1.is_some() || made.len() == before
            {
                break;
            }
        }
        // Locked until the block is visible: its rest files begin at the positions of this moment.
        let mut positions = shared.positions();
        let (block, fault) = self.cover(job, block, &positions.points(), made)?;
        if let Some(block) = &block {
            let rests = self.ledger.manifest().rests.clone();
            positions.begin_again(&points_of(&block.note), &rests);
        }
        let mut counts = shared.counts();
        counts.stats.flush_errors += u64::from(fault.is_some());
        counts.flush_error = fault.map(|error| error.to_string());
        drop(counts);
        Ok(publish(shared, job, block))
    }

    /// Writes a job's block, if it has samples, its rest files from the points within it on, and the manifest that
    /// covers it. Without rest files because of a fault, positions within the block must begin at it again.
    ///
    /// # Errors
    /// The disk fails; the whole job can be tried again.
    pub(crate) fn write(
        &self,
        job: &Job,
        points: &Points,
    ) -> Result<(Option<Arc<Block>>, Option<BlockError>), BlockError> {
        self.cover(job, self.block_of(job)?, points, &mut Vec::new())
    }

    /// Writes a job's block, if it has samples.
    fn block_of(&self, job: &Job) -> Result<Option<Arc<Block>>, BlockError> {
        let Job { head, through, .. } = job;
        let received = head.received().filter(|_| head.samples() > 0);
        received.map(|(_, received)| self.block(head, received, *through)).transpose()
    }

    /// Writes the rest files of a job's block, and the manifest that covers the job. Returns a fault of the rest files, too.
    fn cover(
        &self,
        job: &Job,
        block: Option<Arc<Block>>,
        points: &Points,
        made: &mut Vec<Rest>,
    ) -> Result<(Option<Arc<Block>>, Option<BlockError>), BlockError> {
        let Job { head, covered, through } = job;
        let (rests, fault) = match &block {
            Some(block) => self.rests(head, &block.note, points, made),
            None => (Vec::new(), None),
        };
        let old = self.ledger.manifest().rests.clone();
        let Ledger { disk, dir, .. } = &*self.ledger;
        self.ledger.swap(|manifest| {
            if let Some(gaps) = &covered.gaps {
                manifest.gaps = Some(write_gaps(&**disk, dir, manifest.generation, gaps)?);
            }
            manifest.blocks.extend(block.iter().map(|block| block.note.clone()));
            manifest.rests = needed(&manifest.rests, points);
            manifest.rests.extend(rests);
            manifest.covered = *through;
            manifest.metrics.clone_from(&covered.metrics);
            manifest.origins.clone_from(&covered.origins);
            manifest.damage.clone_from(&covered.damage);
            manifest.gaps_forgotten = covered.gaps_forgotten;
            Ok::<(), BlockError>(())
        })?;
        self.ledger.remove_rests(&old);
        // Those of earlier tries, and of positions that moved.
        self.ledger.remove_rests(made);
        Ok((block, fault))
    }

    fn block(
        &self,
        head: &Head,
        received: Timestamp,
        through: u64,
    ) -> Result<Arc<Block>, BlockError> {
        let dir = blocks_dir(&self.ledger.dir);
        let of = BlockFacts {
            log: (self.ledger.manifest().covered + 1, through),
            level: 0,
            window_us: 0,
            settled: None,
        };
        let mut new = NewBlock::create(&*self.ledger.disk, &dir, &self.settings, of)?;
        self.rows(head, &Point::of_segments(of.log.0, through), &mut new)?;
        Ok(Arc::new(new.finish(received)?))
    }

    /// Writes the samples between the points within a block, and after the last of them, to files, unless they are among those
    /// made. A fault ends it: then the last ranges are returned that no missing one follows.
    fn rests(
        &self,
        head: &Head,
        block: &BlockNote,
        points: &Points,
        made: &mut Vec<Rest>,
    ) -> (Vec<Rest>, Option<BlockError>) {
        let all = points_of(block);
        let starts = points.within(&all);
        let ends = starts.iter().skip(1).copied().chain([all.end]);
        let (mut rests, mut fault) = (Vec::new(), None);
        let ranges: Vec<Range<Point>> =
            starts.iter().copied().zip(ends).map(|(a, b)| a..b).collect();
        for range in ranges.into_iter().rev() {
            if let Some(rest) = made.iter().find(|rest| rest.is_of(&range)) {
                rests.push(rest.clone());
                continue;
            }
            match self.rest(head, block, &range) {
                Ok(rest) => {
                    made.push(rest.clone());
                    rests.push(rest);
                }
                Err(error) => {
                    fault = Some(error);
                    break;
                }
            }
        }
        rests.reverse();
        (rests, fault)
    }

    /// Writes the samples of a block in a range to a file, if there are any.
    fn rest(
        &self,
        head: &Head,
        block: &BlockNote,
        range: &Range<Point>,
    ) -> Result<Rest, BlockError> {
        let (start, end) = (range.start, range.end);
        let has_rows = |group: &Arc<Group>| group.rows().sizes(range).any(|(_, rows)| rows > 0);
        if !head.groups().iter().any(has_rows) {
            // A position here is not one of another version of this directory.
            let note = BlockNote { rows: 0, ..block.clone() };
            return Ok(Rest { start, end, note, deleted: true });
        }
        let dir = followers_dir(&self.ledger.dir);
        let of = BlockFacts {
            log: (block.log_first, block.log_last),
            level: 0,
            window_us: 0,
            settled: None,
        };
        let write = || {
            let new = NewBlock::create(&*self.ledger.disk, &dir, &self.settings, of)?;
            let mut new = new.named(rest_file(range));
            self.rows(head, range, &mut new)?;
            Ok(new.finish(block.received)?.note)
        };
        let note = write().or_else(|_: BlockError| {
            // The folder may be gone.
            let made = self.ledger.disk.create_dir(&dir);
            made.map_err(DiskError::of("make the directory", &dir))?;
            write()
        })?;
        Ok(Rest { start, end, note, deleted: false })
    }

    /// Writes the rows of a head between two points: adjacent series together, about a row group at a time.
    fn rows(
        &self,
        head: &Head,
        points: &Range<Point>,
        new: &mut NewBlock<'_>,
    ) -> Result<(), BlockError> {
        let mut slab = SeriesBuilder::default();
        let mut write = |members: &[Member]| {
            slab.read(members, points, (i64::MIN, i64::MAX), |rows| new.series(rows))
        };
        let (mut waiting, mut rows) = (Vec::new(), 0);
        for device in head.devices() {
            let members = head.members(&device, |_| true);
            for same in members.chunk_by(|a, b| SeriesInfo::same(&a.series, &b.series)) {
                rows += same.iter().map(|one| one.group.rows().samples(one.place)).sum::<usize>();
                waiting.extend_from_slice(same);
                if rows >= self.settings.row_group_rows {
                    write(&waiting)?;
                    waiting.clear();
                    rows = 0;
                }
            }
        }
        write(&waiting)
    }

    /// Removes the log segments that a block contains, and other files that no manifest lists. If this fails,
    /// the next start removes them.
    pub(crate) fn trim(&self, through: u64) {
        let Ledger { disk, dir, .. } = &*self.ledger;
        let log = log_dir(dir);
        for name in disk.list(&log).unwrap_or_default() {
            if segment_number(&name).is_some_and(|number| number <= through) {
                self.drop_segment(&log, &name);
            }
        }
        let kept = self.ledger.manifest().gaps.as_ref().map(|gaps| gaps.file.clone());
        for name in disk.list(dir).unwrap_or_default() {
            if name.starts_with("gaps-") && Some(&name) != kept.as_ref() {
                disk.remove(&dir.join(name)).unwrap_or_default();
            }
        }
    }

    fn drop_segment(&self, log: &Path, name: &str) {
        let path = log.join(name);
        let Ledger { disk, dir, .. } = &*self.ledger;
        let quarantined = self.ledger.manifest().quarantine.clone();
        if !segment_number(name).is_some_and(|number| quarantined.contains(&number)) {
            return disk.remove(&path).unwrap_or_default();
        }
        let quarantine = quarantine_dir(dir);
        disk.create_dir(&quarantine).unwrap_or_default();
        disk.rename(&path, &quarantine.join(name)).unwrap_or_default();
        let mut aside = disk.list(&quarantine).unwrap_or_default();
        aside.sort_unstable();
        for oldest in aside.iter().take(aside.len().saturating_sub(QUARANTINE_MAX)) {
            disk.remove(&quarantine.join(oldest)).unwrap_or_default();
        }
    }

    /// Location of a damaged segment in quarantine.
    pub(crate) fn set_aside(&self, number: u64) -> PathBuf {
        quarantine_dir(&self.ledger.dir).join(segment_name(number))
    }
}

/// Replaces the samples in memory by the block, atomically for readers.
/// Returns the instant before which unused series are dropped.
fn publish(shared: &Shared, job: &Job, block: Option<Arc<Block>>) -> Timestamp {
    let received = job.head.received().map_or(Timestamp(0), |(_, newest)| newest);
    let since = shared.now().plus(-shared.settings.senders.series_idle_us);
    let lasts = Arc::new(shared.view().0.lasts.with(&job.head, received, since));
    shared.turn(|view| {
        view.blocks.extend(block);
        view.frozen = None;
        view.lasts = lasts;
    });
    since
}
