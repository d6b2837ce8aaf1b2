//! A port of a meter: the mean of its second, its counts, and its gaps.

use super::line::PortValue;
use crate::sending::{CompleteUntil, Missing};
use model::{Cause, DeviceId, Labels, Timestamp};

/// The source of gaps.
const SOURCE: &str = "wattmetre";

/// A port.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) device: DeviceId,
    pub(super) labels: Labels,
    /// The place of its group.
    pub(super) group: usize,
    /// Whether each sample is stored, instead of the means of seconds.
    pub(super) is_every_sample: bool,
    /// Up to here each sample is stored, besides the means.
    pub(super) flushed: Option<Timestamp>,
    /// Samples since the start: with a value, without, with a wrong one.
    counts: [f64; 3],
    /// The samples of the current second: sum and number.
    second: (f64, f64),
    /// Up to here it has samples or gaps; `None` before its first sample.
    until: Option<Timestamp>,
    /// What its latest sample with a value found before it.
    missed: Missed,
    /// Samples without a value since then.
    lost: f64,
    /// Lines of the meter that were not used, up to then.
    faults_before: f64,
    /// Whether the log states a wrong value.
    is_bad: bool,
}

/// What may be the cause of a gap.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Missed {
    /// Samples of the port without a value.
    samples: f64,
    /// Lines of the meter that were not used.
    lines: f64,
}

impl Port {
    /// The states of a sample, in the order of the counts.
    pub(super) const STATES: [&'static str; 3] = ["ok", "missing", "bad"];

    pub(super) const fn new(
        device: DeviceId,
        labels: Labels,
        group: usize,
        is_every_sample: bool,
    ) -> Self {
        Self {
            device,
            labels,
            group,
            is_every_sample,
            flushed: None,
            counts: [0.0; 3],
            second: (0.0, 0.0),
            until: None,
            missed: Missed { samples: 0.0, lines: 0.0 },
            lost: 0.0,
            faults_before: 0.0,
            is_bad: false,
        }
    }

    /// Counts a sample. Returns its power if it is to be stored now; otherwise it is part of the mean of its second.
    /// `faults` counts the lines of the meter that were not used.
    pub(super) fn take(&mut self, value: PortValue, faults: f64) -> Option<f64> {
        let [ok, missing, bad] = &mut self.counts;
        match value {
            PortValue::Watts(watts) => {
                *ok += 1.0;
                self.log_bad(false);
                if self.second.1 == 0.0 {
                    self.missed = self.missed_until_now(faults);
                }
                (self.lost, self.faults_before) = (0.0, faults);
                if self.is_every_sample {
                    return Some(watts);
                }
                self.second.0 += watts;
                self.second.1 += 1.0;
            }
            PortValue::Missing => {
                *missing += 1.0;
                self.lost += 1.0;
            }
            PortValue::Bad => {
                *bad += 1.0;
                self.lost += 1.0;
                self.log_bad(true);
            }
        }
        None
    }

    /// Logs when wrong values begin and end.
    fn log_bad(&mut self, is_bad: bool) {
        if self.is_bad == is_bad {
            return;
        }
        self.is_bad = is_bad;
        match is_bad {
            true => log::warn!("{}: the meter returns a value that is no power", self.device),
            false => log::info!("{}: the meter returns a power again", self.device),
        }
    }

    /// The mean of the second that ends.
    pub(super) fn end_second(&mut self) -> Option<f64> {
        let (sum, samples) = std::mem::take(&mut self.second);
        (samples > 0.0).then(|| sum / samples)
    }

    /// The gap before a sample that is stored: `None` if each second has a sample.
    pub(super) fn gap_before(&self, at: Timestamp) -> Option<Missing> {
        self.gap(at, self.missed)
    }

    /// The gap that lasts until now.
    pub(super) fn gap_until_now(&self, now: Timestamp, faults: f64) -> Option<Missing> {
        self.gap(now, self.missed_until_now(faults))
    }

    const fn missed_until_now(&self, faults: f64) -> Missed {
        Missed { samples: self.lost, lines: faults - self.faults_before }
    }

    fn gap(&self, to: Timestamp, missed: Missed) -> Option<Missing> {
        let from = self.until?;
        if second(to) - second(from) < 2 {
            return None;
        }
        let (cause, detail) = if missed.samples > 0.0 {
            (Cause::SourceBroken, format!("samples without a value: {}", missed.samples))
        } else if missed.lines > 0.0 {
            (Cause::SourceBroken, format!("lines that are not used: {}", missed.lines))
        } else {
            (Cause::SourceTimeout, "no line from the meter".into())
        };
        let (device, source) = (self.device.clone(), SOURCE.into());
        Some(Missing { device, source, span: (from, to), cause, detail })
    }

    /// Records that it has samples or gaps up to an instant.
    pub(super) const fn covered(&mut self, until: Timestamp) {
        self.until = Some(until);
    }

    /// Until when its samples and gaps are complete; a port without a sample for two seconds has a gap that grows.
    pub(super) fn complete_until(&self, now: Timestamp) -> Option<CompleteUntil> {
        let at = self.until?;
        Some(CompleteUntil { at, is_failing: second(now) - second(at) >= 2 })
    }

    /// The counts that are not 0, with the place of their state.
    pub(super) fn counts(&self) -> impl Iterator<Item = (usize, f64)> {
        self.counts.into_iter().enumerate().filter(|(_, count)| *count > 0.0)
    }
}

const fn second(at: Timestamp) -> i64 {
    at.0.div_euclid(Timestamp::SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port() -> Port {
        Port::new(DeviceId::new("w-port0").unwrap(), Labels::default(), 0, false)
    }

    fn at(ms: i64) -> Timestamp {
        Timestamp(ms * 1000)
    }

    #[test]
    fn the_mean_is_that_of_the_samples_with_a_value() {
        let mut port = port();
        for value in [PortValue::Watts(10.0), PortValue::Missing, PortValue::Watts(30.0)] {
            assert_eq!(port.take(value, 0.0), None);
        }
        assert_eq!((port.end_second(), port.end_second()), (Some(20.0), None));
        port.take(PortValue::Bad, 0.0);
        assert_eq!(port.end_second(), None, "never 0");
        assert_eq!(port.counts().collect::<Vec<_>>(), [(0, 2.0), (1, 1.0), (2, 1.0)]);
        port.is_every_sample = true;
        assert_eq!(port.take(PortValue::Watts(5.0), 0.0), Some(5.0));
    }

    #[test]
    fn a_second_without_a_sample_is_a_gap_with_its_cause() {
        let good = PortValue::Watts(1.0);
        let mut port = port();
        port.take(good, 7.0);
        assert_eq!(port.gap_before(at(9000)), None, "nothing is missing before the first sample");
        port.covered(at(9500));
        port.end_second();
        assert_eq!(port.gap_until_now(at(10_990), 7.0), None);
        let of = |missing: Option<Missing>| {
            let missing = missing.unwrap();
            assert_eq!((&*missing.source, missing.span), ("wattmetre", (at(9500), at(11_000))));
            (missing.cause, missing.detail)
        };
        let silent = (Cause::SourceTimeout, "no line from the meter".to_owned());
        assert_eq!(of(port.gap_until_now(at(11_000), 7.0)), silent);
        let lines = (Cause::SourceBroken, "lines that are not used: 3".to_owned());
        assert_eq!(of(port.gap_until_now(at(11_000), 10.0)), lines);
        port.take(PortValue::Missing, 10.0);
        let samples = (Cause::SourceBroken, "samples without a value: 1".to_owned());
        assert_eq!(of(port.gap_until_now(at(11_000), 10.0)), samples);
        // The samples of the second that follows do not change what was missed before it.
        port.take(good, 10.0);
        port.take(good, 12.0);
        assert_eq!(of(port.gap_before(at(11_000))), samples);
        port.covered(at(11_000));
        assert_eq!(port.gap_before(at(12_000)), None);
    }
}
