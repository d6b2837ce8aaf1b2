//! The unit of spool, transfer, log and acknowledgement.

use crate::{DeviceId, Gap, JobEvent, JobKey, Labels, Metric, Origin, Series, Timestamp};
use std::{fmt, sync::Arc};

/// Maximum number of samples in a batch.
pub const SAMPLES_PER_BATCH_MAX: usize = 64 * 1024;

/// One start of an agent: 128 random bits generated at each start, so that (origin, boot, seq) identifies a
/// batch for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Boot(pub [u8; 16]);

/// 32 hexadecimal digits.
impl fmt::Display for Boot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A series in a batch, with everything needed to interpret its samples.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SeriesEntry {
    /// The metric.
    pub metric: Arc<Metric>,
    /// The device.
    pub device: DeviceId,
    /// The job, if the samples are attributed to one.
    pub job: Option<JobKey>,
    /// The part of the device.
    pub labels: Labels,
    /// When the counter was zero; `None` for gauges, and for counters without a known start.
    pub start: Option<Timestamp>,
}

impl SeriesEntry {
    /// Only the identity.
    pub fn series(&self) -> Series {
        Series {
            device: self.device.clone(),
            metric: Arc::from(&*self.metric.name),
            job: self.job.clone(),
            labels: self.labels.clone(),
        }
    }
}

/// The series of a batch, each listed once. Agents share one table between batches while it is unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeriesTable {
    /// A series occurs twice if its start changed within the batch.
    pub entries: Vec<SeriesEntry>,
}

/// One time of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// The time.
    pub at: Timestamp,
    /// Number of the batch's samples with this time.
    pub samples: u32,
}

/// Samples that one origin sealed together.
///
/// `index` and `values` have one entry per sample; `ticks` divides them by time, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// The sender.
    pub origin: Origin,
    /// The boot of the sender.
    pub boot: Boot,
    /// Counts from 0 within the boot, without gaps.
    pub seq: u64,
    /// The series of the samples.
    pub table: Arc<SeriesTable>,
    /// The ticks.
    pub ticks: Vec<Tick>,
    /// Each sample's index in the table.
    pub index: Vec<u32>,
    /// Each sample's value, in the metric's unit.
    pub values: Vec<f64>,
    /// Gaps that the sender reports.
    pub gaps: Vec<Gap>,
    /// Jobs that started or ended.
    pub jobs: Vec<JobEvent>,
}

/// The instants of the samples of polls in a batch of a poller ([`Metric::is_of_polls`]): those of its own clock. Devices may
/// report other samples with any instant.
pub fn poll_instants<'a>(
    ticks: &'a [Tick],
    index: &'a [u32],
    is_of_polls: impl Fn(u32) -> bool + 'a,
) -> impl Iterator<Item = Timestamp> + 'a {
    let mut rest = index.iter();
    ticks.iter().filter_map(move |tick| {
        let places: Vec<u32> = rest.by_ref().take(tick.samples as usize).copied().collect();
        places.into_iter().any(&is_of_polls).then_some(tick.at)
    })
}

/// Why a batch is inconsistent.
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
    /// A sample of a series that is not in the table.
    #[error("the batch has a sample of series {place}, but its table has only {named} series")]
    Place {
        /// The index.
        place: u32,
        /// Entries of the table.
        named: usize,
    },
}

impl Batch {
    /// Checks that the parts are consistent: every later step relies on it.
    ///
    /// # Errors
    /// They are not consistent.
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

    /// Every sample with its series and time, in order. Skips samples outside of the table, which
    /// [`Self::check`] rejects.
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
    fn samples_have_their_times() {
        let batch = batch();
        assert_eq!(batch.check(), Ok(()));
        let samples: Vec<_> = batch.samples().map(|(_, at, value)| (at.0, value)).collect();
        assert_eq!(samples, [(1, 0.5), (2, 0.75)]);
    }

    #[test]
    fn inconsistent_parts_are_rejected() {
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
