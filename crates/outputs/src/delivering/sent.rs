//! The minutes of which samples were sent lately. After a broken connection they are sent again.
//!
//! Minutes of the samples and not of the clock: late samples, too, may be lost at the receiver.

use crate::files::{read_if_there, replace_durably};
use model::Timestamp;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

const MINUTE_US: i64 = 60 * Timestamp::SECOND;
/// Most minutes: a week. Of more, those that were sent first are forgotten.
const MINUTES_MAX: usize = 7 * 24 * 60;
/// Minutes with at most this distance are one range.
const APART_US: i64 = 2 * MINUTE_US;

/// The minutes, and whether they must be sent again.
#[derive(Debug)]
pub(super) struct Sent {
    keep_us: i64,
    /// By minute since 1970, when samples of it were last sent.
    minutes: BTreeMap<i64, i64>,
    /// What a restart reads; times are not needed then.
    file: PathBuf,
    /// Counts breaks. The minutes must be sent again until those up to the last one are repaired.
    breaks: u64,
    repaired: u64,
}

impl Sent {
    /// Continues after a restart, which counts as a break: nobody observed the connection meanwhile.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn open(keep: Duration, folder: &Path, now: Timestamp) -> io::Result<Self> {
        let file = folder.join("sent.json");
        let read = read_if_there(&file)?;
        let minutes: Vec<i64> =
            read.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        let breaks = u64::from(!minutes.is_empty());
        let minutes = minutes.into_iter().map(|minute| (minute, now.0)).collect();
        let keep_us = i64::try_from(keep.as_micros()).unwrap_or(i64::MAX);
        Ok(Self { keep_us, minutes, file, breaks, repaired: 0 })
    }

    /// Notes that samples of these instants were sent, ordered by time.
    ///
    /// # Errors
    /// The file cannot be written: a restart knows less.
    pub(super) fn note(&mut self, times: &[i64], now: Timestamp) -> io::Result<()> {
        let before: Vec<i64> = self.minutes.keys().copied().collect();
        let mut last = None;
        for at in times {
            let minute = at.div_euclid(MINUTE_US);
            if last != Some(minute) {
                self.minutes.insert(minute, now.0);
                last = Some(minute);
            }
        }
        if self.pending().is_none() {
            let since = now.0.saturating_sub(self.keep_us);
            self.minutes.retain(|_, sent| *sent >= since);
        }
        while self.minutes.len() > MINUTES_MAX {
            let first =
                self.minutes.iter().min_by_key(|(_, sent)| **sent).map(|(minute, _)| *minute);
            first.and_then(|minute| self.minutes.remove(&minute));
        }
        let after: Vec<i64> = self.minutes.keys().copied().collect();
        if before == after {
            Ok(())
        } else {
            replace_durably(&self.file, &serde_json::to_vec(&after)?)
        }
    }

    /// Notes that a connection broke.
    pub(super) fn note_break(&mut self) {
        if !self.minutes.is_empty() {
            self.breaks += 1;
        }
    }

    /// The number of the last break that is not repaired.
    pub(super) fn pending(&self) -> Option<u64> {
        (self.breaks > self.repaired).then_some(self.breaks)
    }

    /// Notes that everything was sent again that was sent before this break.
    pub(super) fn repair(&mut self, number: u64) {
        self.repaired = self.repaired.max(number);
    }

    /// The minutes as ranges of instants, both inclusive, in their order.
    pub(super) fn ranges(&self) -> Vec<(i64, i64)> {
        let mut ranges: Vec<(i64, i64)> = Vec::new();
        for minute in self.minutes.keys() {
            let from = minute.saturating_mul(MINUTE_US);
            let to = from.saturating_add(MINUTE_US - 1);
            match ranges.last_mut() {
                Some((_, end)) if from.saturating_sub(*end) <= APART_US => *end = to,
                _ => ranges.push((from, to)),
            }
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_are_kept_for_a_time_and_until_they_are_repaired() {
        let dir = tempfile::tempdir().unwrap();
        let keep = Duration::from_secs(300);
        let open = || Sent::open(keep, dir.path(), Timestamp(0)).unwrap();
        let minute = |number: i64| number * MINUTE_US;
        let mut sent = open();
        assert_eq!((sent.pending(), sent.ranges()), (None, vec![]));
        sent.note_break();
        assert_eq!(sent.pending(), None, "nothing was sent that could be lost");
        // A late sample beside present ones.
        sent.note(&[minute(2), minute(1000)], Timestamp(minute(1000))).unwrap();
        sent.note(&[minute(1001)], Timestamp(minute(1001))).unwrap();
        let ranges = [(minute(2), minute(3) - 1), (minute(1000), minute(1002) - 1)];
        assert_eq!(sent.ranges(), ranges);
        // They were sent too long ago.
        sent.note(&[minute(1006)], Timestamp(minute(1006))).unwrap();
        assert_eq!(
            sent.ranges(),
            [(minute(1001), minute(1002) - 1), (minute(1006), minute(1007) - 1)]
        );
        sent.note_break();
        let number = sent.pending().unwrap();
        sent.note(&[minute(1100)], Timestamp(minute(1100))).unwrap();
        assert_eq!(sent.ranges().len(), 3, "kept until they are sent again");
        // A break during the repair.
        sent.note_break();
        sent.repair(number);
        assert!(sent.pending().is_some());
        let mut again = open();
        assert_eq!((again.pending(), again.ranges()), (Some(1), sent.ranges()));
        again.repair(1);
        again.note(&[minute(1101)], Timestamp(minute(1200))).unwrap();
        assert_eq!(again.ranges(), [(minute(1101), minute(1102) - 1)]);
    }
}
