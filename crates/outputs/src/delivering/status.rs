//! What is shown of an output.

use crate::delivering::fills::FillStatus;
use crate::delivering::set_aside::SetAsideStatus;
use crate::records::LeftOut;
use crate::spec::Guarantee;
use model::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use storage::OutputGap;

/// A write that lasts longer counts as waiting.
const WRITE_US: i64 = 10 * Timestamp::SECOND;
/// Most output gaps that are shown.
const GAPS_MAX: usize = 100;

/// Whether an output works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputState {
    /// It delivers, or has delivered everything.
    Working,
    /// It waits.
    Waiting {
        /// Since when.
        since: Timestamp,
        /// The reason, and what to do.
        why: String,
    },
}

/// The status of an output.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputStatus {
    /// Its name.
    pub name: Box<str>,
    /// Its kind.
    pub kind: &'static str,
    /// What a success means.
    pub guarantee: Guarantee,
    /// Whether it works.
    pub state: OutputState,
    /// Stored samples after its position; `None`: the store does not know now.
    pub behind: Option<u64>,
    /// The newest sample that it delivered since the server's start.
    pub newest: Option<Timestamp>,
    /// Samples that it delivered since the server's start.
    pub samples: u64,
    /// Samples that its format leaves out, since the server's start: of jobs of other clusters, beyond a limit, and values
    /// that the receiver cannot take.
    pub left_out: u64,
    /// Failed writes since the server's start.
    pub failures: u64,
    /// Samples that it lost, since it began.
    pub samples_lost: u64,
    /// The latest output gaps, oldest first.
    pub gaps: Vec<OutputGap>,
    /// Samples that were sent again after broken connections, since the server's start.
    pub resent: u64,
    /// The time range of [`super::outputs::Outputs::fill`] that ended last, then those that run or wait.
    pub fills: Vec<FillStatus>,
    /// What the receiver rejected, and what is set aside for a retry.
    pub set_aside: SetAsideStatus,
}

/// What the thread of an output reports.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) state: OutputState,
    /// When the write began that has not ended.
    pub(super) writing: Option<Timestamp>,
    pub(super) newest: Option<Timestamp>,
    pub(super) samples: u64,
    pub(super) left_out: LeftOut,
    pub(super) failures: u64,
    pub(super) lost: Lost,
    pub(super) resent: u64,
    pub(super) set_aside: SetAsideStatus,
}

impl Default for Progress {
    fn default() -> Self {
        let (state, lost) = (OutputState::Working, Lost::default());
        let (newest, writing, left_out) = (None, None, LeftOut::default());
        let set_aside = SetAsideStatus::default();
        let (samples, failures, resent) = (0, 0, 0);
        Self { state, writing, newest, samples, left_out, failures, lost, resent, set_aside }
    }
}

impl Progress {
    /// The state at a time. A receiver that hangs is one that is waited for.
    pub(super) fn state_at(&self, now: Timestamp) -> OutputState {
        match self.writing.filter(|since| now.since(*since) > WRITE_US) {
            Some(since) if self.state == OutputState::Working => {
                let why = "a write has not ended since then: its receiver hangs".to_owned();
                OutputState::Waiting { since, why }
            }
            _ => self.state.clone(),
        }
    }

    /// Notes that the output waits. Returns whether it begins to, or for another reason.
    pub(super) fn wait(&mut self, why: &str, now: Timestamp) -> bool {
        let since = match &self.state {
            OutputState::Waiting { why: before, .. } if before == why => return false,
            OutputState::Waiting { since, .. } => *since,
            OutputState::Working => now,
        };
        self.state = OutputState::Waiting { since, why: why.to_owned() };
        true
    }

    /// Notes that the output works. Returns since when it waited.
    pub(super) fn work(&mut self) -> Option<Timestamp> {
        match std::mem::replace(&mut self.state, OutputState::Working) {
            OutputState::Waiting { since, .. } => Some(since),
            OutputState::Working => None,
        }
    }
}

/// Lost samples, as the output's folder keeps them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Lost {
    pub(super) samples: u64,
    gaps: VecDeque<StoredGap>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct StoredGap {
    from: i64,
    to: i64,
    samples: u64,
    why: String,
}

impl Lost {
    pub(super) fn add(&mut self, gap: &OutputGap) {
        self.samples = self.samples.saturating_add(gap.samples);
        if self.gaps.len() >= GAPS_MAX {
            self.gaps.pop_front();
        }
        let (from, to, samples, why) = (gap.from.0, gap.to.0, gap.samples, gap.why.clone());
        self.gaps.push_back(StoredGap { from, to, samples, why });
    }

    pub(super) fn gaps(&self) -> Vec<OutputGap> {
        let each = self.gaps.iter().map(|StoredGap { from, to, samples, why }| OutputGap {
            from: Timestamp(*from),
            to: Timestamp(*to),
            samples: *samples,
            why: why.clone(),
        });
        each.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_write_is_a_wait() {
        let at = |second| Timestamp(second * Timestamp::SECOND);
        let mut progress = Progress { writing: Some(at(100)), ..Progress::default() };
        assert_eq!(progress.state_at(at(110)), OutputState::Working);
        let OutputState::Waiting { since, why } = progress.state_at(at(111)) else { panic!() };
        assert_eq!((since, why.contains("hangs")), (at(100), true));
        progress.wait("full", at(105));
        let OutputState::Waiting { since, why } = progress.state_at(at(200)) else { panic!() };
        assert_eq!((since, &*why), (at(105), "full"));
    }
}
