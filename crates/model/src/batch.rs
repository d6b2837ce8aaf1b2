//! The unit of spool, transfer, log and acknowledgement.

use crate::{DeviceId, Gap, JobEvent, JobKey, Labels, Metric, Origin, Series, Timestamp};
use std::{fmt, sync::Arc};

/// Most samples in a batch.
pub const SAMPLES_PER_BATCH_MAX: usize = 64 * 1024;

/// Who drew the numbers of a batch: 128 random bits drawn at each start of an agent, so that
/// (origin, boot, seq) names a batch for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Boot(pub [u8; 16]);

/// 32 hexadecimal digits.
impl fmt::Display for Boot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A series as a batch names it, with what its samples need to be understood.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SeriesEntry {
    /// What is measured.
    pub metric: Arc<Metric>,
    /// Of which device.
    pub device: DeviceId,
    /// For which job it was counted, if for one.
    pub job: Option<JobKey>,
    /// Which part of the device.
    pub labels: Labels,
    /// When the counter was zero; `None` for gauges, and for counters that do not tell.
    pub start: Option<Timestamp>,
}

impl SeriesEntry {
    /// The identity alone.
    pub fn series(&self) -> Series {
        Series {
            device: self.device.clone(),
            metric: Arc::from(&*self.metric.name),
            job: self.job.clone(),
            labels: self.labels.clone(),
        }
    }
}

/// The series of a batch, named once. Agents share one table between batches while it stays the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeriesTable {
    /// A series may stand here twice when its start changed within the batch.
    pub entries: Vec<SeriesEntry>,
}

/// One instant of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// The instant.
    pub at: Timestamp,
    /// How many of the batch's samples are of this instant.
    pub samples: u32,
}

/// Samples that one origin sealed together.
///
/// `index` and `values` have one entry a sample; `ticks` cuts them into instants, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Who sends it.
    pub origin: Origin,
    /// Which start of the sender.
    pub boot: Boot,
    /// Counts from 0 within the boot, without holes.
    pub seq: u64,
    /// What the samples are of.
    pub table: Arc<SeriesTable>,
    /// The instants.
    pub ticks: Vec<Tick>,
    /// Each sample's place in the table.
    pub index: Vec<u32>,
    /// Each sample's value, in the metric's unit.
    pub values: Vec<f64>,
    /// What the sender knows to be missing.
    pub gaps: Vec<Gap>,
    /// Jobs that came or went.
    pub jobs: Vec<JobEvent>,
}

/// Why a batch contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// More samples than a batch may have.
    #[error("the batch has {0} samples; {SAMPLES_PER_BATCH_MAX} at most")]
    TooManySamples(usize),
    /// `index`, `values` and `ticks` disagree.
    #[error(
        "the batch has {index} places, {values} values and ticks of {ticks} samples; they must agree"
    )]
    Counts {
        /// Entries of `index`.
        index: usize,
        /// Entries of `values`.
        values: usize,
        /// Sum over `ticks`.
        ticks: u64,
    },
    /// A sample of a series that the table does not name.
    #[error("the batch has a sample of series {place}, and names {named}")]
    Place {
        /// The place asked for.
        place: u32,
        /// Entries of the table.
        named: usize,
    },
}

impl Batch {
    /// Checks that the parts agree: every later step relies on it.
    ///
    /// # Errors
    /// They do not.
    pub fn check(&self) -> Result<(), BatchError> {
        if self.values.len() > SAMPLES_PER_BATCH_MAX {
            return Err(BatchError::TooManySamples(self.values.len()));
        }
        let ticks = self.ticks.iter().map(|tick| u64::from(tick.samples)).sum();
        let (index, values) = (self.index.len(), self.values.len());
        if index != values || u64::try_from(values) != Ok(ticks) {
            return Err(BatchError::Counts { index, values, ticks });
        }
        let named = self.table.entries.len();
        let outside = |place: &u32| usize::try_from(*place).map_or(true, |place| place >= named);
        match self.index.iter().copied().find(outside) {
            Some(place) => Err(BatchError::Place { place, named }),
            None => Ok(()),
        }
    }

    /// Every sample with its series and instant, in order. Samples outside the table, which
    /// [`Self::check`] refuses, are passed over.
    pub fn samples(&self) -> impl Iterator<Item = (&SeriesEntry, Timestamp, f64)> {
        let instants = self.ticks.iter().flat_map(|tick| {
            std::iter::repeat_n(tick.at, usize::try_from(tick.samples).unwrap_or(usize::MAX))
        });
        let places = self.index.iter().map(|place| usize::try_from(*place).unwrap_or(usize::MAX));
        places
            .zip(instants)
            .zip(&self.values)
            .filter_map(|((place, at), value)| Some((self.table.entries.get(place)?, at, *value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unit;

    fn batch() -> Batch {
        let metric = Arc::new(Metric::gauge("load_1m", Unit::Count, ""));
        let device = DeviceId::new("n1").unwrap();
        let (job, labels, start) = (None, Labels::default(), None);
        let entry = SeriesEntry { metric, device, job, labels, start };
        Batch {
            origin: Origin::new("n1").unwrap(),
            boot: Boot([7; 16]),
            seq: 0,
            table: Arc::new(SeriesTable { entries: vec![entry] }),
            ticks: vec![
                Tick { at: Timestamp(1), samples: 1 },
                Tick { at: Timestamp(2), samples: 1 },
            ],
            index: vec![0, 0],
            values: vec![0.5, 0.75],
            gaps: Vec::new(),
            jobs: Vec::new(),
        }
    }

    #[test]
    fn samples_come_with_their_instants() {
        let batch = batch();
        assert_eq!(batch.check(), Ok(()));
        let samples: Vec<_> = batch.samples().map(|(_, at, value)| (at.0, value)).collect();
        assert_eq!(samples, [(1, 0.5), (2, 0.75)]);
    }

    #[test]
    fn parts_that_disagree_are_refused() {
        let mut short = batch();
        short.values.pop();
        assert!(matches!(short.check(), Err(BatchError::Counts { .. })));
        let mut outside = batch();
        outside.index[1] = 1;
        assert!(matches!(outside.check(), Err(BatchError::Place { place: 1, named: 1 })));
        let mut ticks = batch();
        ticks.ticks[0].samples = 2;
        assert!(matches!(ticks.check(), Err(BatchError::Counts { ticks: 3, .. })));
    }

    #[test]
    fn boot_prints_as_hex() {
        assert_eq!(Boot([0xa5; 16]).to_string(), "a5".repeat(16));
    }
}
