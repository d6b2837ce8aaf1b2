//! The block writer: writes the samples in memory to a block, swaps the manifest, trims the log.
//!
//! The order makes a crash at any point harmless. The block is synced under its name before the manifest
//! lists it. The manifest also states the log segments that the block contains; only then are they removed.
//! The next start removes leftovers of a crash.

use crate::blocks::{Block, BlockFacts, NewBlock};
use crate::files::errors::BlockError;
use crate::files::layout::{blocks_dir, log_dir, quarantine_dir};
use crate::head::samples::{Head, Member};
use crate::head::series_builder::SeriesBuilder;
use crate::log::files::{segment_name, segment_number};
use crate::settings::Settings;
use crate::state::flush_queue::Job;
use crate::state::ledger::Ledger;
use crate::state::manifest::write_gaps;
use crate::state::shared::Shared;
use model::Timestamp;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use storage::SeriesInfo;

/// Most segments in quarantine; beyond, the oldest is removed.
const QUARANTINE_MAX: usize = 16;

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
            let mut tries = 0;
            let block = loop {
                match self.write(&job) {
                    Ok(block) => break block,
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
            shared.counts().flush_error = None;
            let through = job.through;
            publish(shared, job, block);
            self.trim(through);
            shared.log_sizes.forget(through);
            shared.flushing.done();
            shared.queue.wake();
            shared.tending.wake();
        }
    }

    /// Writes a job's block, if it has samples, and the manifest that covers it.
    ///
    /// # Errors
    /// The disk fails; the whole job can be tried again.
    pub(crate) fn write(&self, job: &Job) -> Result<Option<Arc<Block>>, BlockError> {
        let Job { head, covered, through } = job;
        let block = match head.received().filter(|_| head.samples() > 0) {
            Some((_, received)) => Some(self.block(head, received, *through)?),
            None => None,
        };
        let Ledger { disk, dir, .. } = &*self.ledger;
        self.ledger.swap(|manifest| {
            if let Some(gaps) = &covered.gaps {
                manifest.gaps = Some(write_gaps(&**disk, dir, manifest.generation, gaps)?);
            }
            manifest.blocks.extend(block.iter().map(|block| block.note.clone()));
            manifest.covered = *through;
            manifest.metrics.clone_from(&covered.metrics);
            manifest.origins.clone_from(&covered.origins);
            manifest.damage.clone_from(&covered.damage);
            manifest.gaps_forgotten = covered.gaps_forgotten;
            Ok::<(), BlockError>(())
        })?;
        Ok(block)
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
        self.rows(head, &mut new)?;
        Ok(Arc::new(new.finish(received)?))
    }

    /// Writes the rows of a head: adjacent series together, about a row group at a time.
    fn rows(&self, head: &Head, new: &mut NewBlock<'_>) -> Result<(), BlockError> {
        let mut slab = SeriesBuilder::default();
        let mut write = |members: &[Member]| {
            slab.read(members, u64::MAX, (i64::MIN, i64::MAX), |rows| new.series(rows))
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
fn publish(shared: &Shared, job: Job, block: Option<Arc<Block>>) {
    let received = job.head.received().map_or(Timestamp(0), |(_, newest)| newest);
    let since = shared.now().plus(-shared.settings.senders.series_idle_us);
    let lasts = Arc::new(shared.view().0.lasts.with(&job.head, received, since));
    shared.turn(|view| {
        view.blocks.extend(block);
        view.frozen = None;
        view.lasts = lasts;
    });
    // With the samples gone from memory, their series may be dropped.
    drop(job);
    shared.books().tables.drop_unused(since);
    shared.sweep();
}
