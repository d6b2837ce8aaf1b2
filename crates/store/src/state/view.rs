//! A consistent view of the store: its blocks, samples in memory, and last values.

use crate::blocks::{Block, BlockNote};
use crate::head::samples::{Head, Member};
use model::{DeviceId, Timestamp};
use senders::NO_START;
use std::collections::BTreeSet;
use std::sync::Arc;
use storage::{LastValue, Selector, SeriesInfo};

/// A consistent view of the store. Blocks, frozen head and active head never contain the same batch.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// Ordered by their log segments.
    pub(crate) blocks: Vec<Arc<Block>>,
    /// Files of rollups, unordered.
    pub(crate) rollups: Vec<Arc<Block>>,
    /// Earlier windows come from final files.
    pub(crate) settled: Timestamp,
    /// Deleted samples since the directory was created.
    pub(crate) samples_removed: u64,
    /// The samples being written to a block.
    pub(crate) frozen: Option<Arc<Head>>,
    /// The samples that receive batches.
    pub(crate) active: Arc<Head>,
    /// The newest samples in blocks of the live series.
    pub(crate) lasts: Arc<LatestSamples>,
}

impl Default for View {
    fn default() -> Self {
        Self {
            blocks: Vec::new(),
            rollups: Vec::new(),
            settled: Timestamp(i64::MIN),
            samples_removed: 0,
            frozen: None,
            active: Arc::default(),
            lasts: Arc::default(),
        }
    }
}

impl View {
    /// The samples in memory, older ones first.
    pub(crate) fn heads(&self) -> impl Iterator<Item = &Arc<Head>> + Clone {
        self.frozen.iter().chain([&self.active])
    }

    /// The blocks in the archive.
    pub(crate) fn archived(&self) -> impl Iterator<Item = &Arc<Block>> + Clone {
        self.blocks.iter().filter(|block| block.note.archived)
    }

    /// The final rollup files of a length.
    pub(crate) fn settled_files(
        &self,
        window_us: i64,
    ) -> impl Iterator<Item = &Arc<Block>> + Clone {
        let of = move |file: &BlockNote| file.settled.is_some() && file.window_us == window_us;
        self.rollups.iter().filter(move |file| of(&file.note))
    }

    /// Whether all samples of a block have rollups.
    pub(crate) fn is_rolled(&self, block: &BlockNote, window_us: i64) -> bool {
        let holds = |file: &BlockNote| {
            file.window_us == window_us
                && file.settled.is_none()
                && file.log_first <= block.log_first
                && block.log_last <= file.log_last
        };
        self.rollups.iter().any(|file| holds(&file.note))
    }

    /// The newest sample of each live series of a selection, ordered by series.
    pub(crate) fn last(&self, selector: &Selector) -> Vec<LastValue> {
        let mut found = self.lasts.select(selector);
        for head in self.heads() {
            for device in devices_of(head, selector) {
                let members = head.members(&device, |info| selector.matches(&info.series));
                found.extend(members.iter().filter_map(last_of));
            }
        }
        // For one series, memory comes after blocks, and wins at the same instant.
        found.sort_by(|a, b| SeriesInfo::order(&a.series, &b.series));
        newest(found)
    }
}

fn newest(sorted: Vec<LastValue>) -> Vec<LastValue> {
    let mut newest: Vec<LastValue> = Vec::with_capacity(sorted.len());
    for last in sorted {
        match newest.last_mut() {
            Some(before) if SeriesInfo::same(&before.series, &last.series) => {
                if last.at >= before.at {
                    *before = last;
                }
            }
            _ => newest.push(last),
        }
    }
    newest
}

/// The devices of a head that a selection includes, in order.
pub(crate) fn devices_of(head: &Head, selector: &Selector) -> Vec<DeviceId> {
    let mut devices = head.devices();
    if let Some(wanted) = &selector.devices {
        devices.retain(|device| wanted.contains(device));
    }
    devices
}

fn last_of(member: &Member) -> Option<LastValue> {
    let (at, raw) = member.group.rows().last(member.place)?;
    let start = member.start();
    Some(LastValue {
        series: Arc::clone(&member.series),
        at: Timestamp(at),
        value: raw.value(member.divisor()),
        start: (start != NO_START).then_some(Timestamp(start)),
    })
}

/// A series' newest sample in a block.
#[derive(Clone, Debug)]
pub(crate) struct LastInBlock {
    pub(crate) last: LastValue,
    /// Time of receipt of the newest batch of its block.
    pub(crate) received: Timestamp,
}

/// The newest samples in blocks, ordered by series.
#[derive(Debug, Default)]
pub(crate) struct LatestSamples(Vec<LastInBlock>);

impl LatestSamples {
    /// These and the newest samples of a head that is in a block by now, without those received before an instant.
    ///
    /// There may be a million of each, so they are merged as they come.
    pub(crate) fn with(&self, head: &Head, received: Timestamp, since: Timestamp) -> Self {
        let is_kept = |one: &&LastInBlock| one.received >= since;
        let mut kept = Self(Vec::with_capacity(self.0.len()));
        let mut older = self.0.iter().filter(is_kept).peekable();
        let devices = devices_of(head, &Selector::default());
        for member in devices.iter().flat_map(|device| head.members(device, |_| true)) {
            let Some(last) = last_of(&member) else { continue };
            let is_before = |before: &&LastInBlock| {
                SeriesInfo::order(&before.last.series, &last.series).is_le()
            };
            while let Some(before) = older.next_if(is_before) {
                kept.add(before.clone());
            }
            kept.add(LastInBlock { last, received });
        }
        older.for_each(|one| kept.add(one.clone()));
        kept.0.retain(|one| one.received >= since);
        kept.0.shrink_to_fit();
        kept
    }

    /// Adds the next one, ordered by series. The newest sample of a series is kept; at one instant, the one added last.
    pub(crate) fn add(&mut self, one: LastInBlock) {
        match self.0.last_mut() {
            Some(before) if SeriesInfo::same(&before.last.series, &one.last.series) => {
                before.received = before.received.max(one.received);
                if one.last.at >= before.last.at {
                    before.last = one.last;
                }
            }
            _ => self.0.push(one),
        }
    }

    fn select(&self, selector: &Selector) -> Vec<LastValue> {
        let matching = |part: &[LastInBlock]| -> Vec<LastValue> {
            let of = |one: &LastInBlock| selector.matches(&one.last.series.series);
            part.iter().filter(|one| of(one)).map(|one| one.last.clone()).collect()
        };
        let Some(devices): Option<&BTreeSet<DeviceId>> = selector.devices.as_ref() else {
            return matching(&self.0);
        };
        let mut found = Vec::new();
        for wanted in devices {
            let start = self.0.partition_point(|one| one.last.series.series.device < *wanted);
            let end = self.0.partition_point(|one| one.last.series.series.device <= *wanted);
            found.extend(matching(self.0.get(start..end).unwrap_or_default()));
        }
        found
    }
}
