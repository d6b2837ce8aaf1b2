//! Failures of a target as gaps: one gap from the last to the next good value, which grows while the failure lasts.

use crate::descriptions::Description;
use crate::polling::{Exchange, Failure};
use crate::sending::Missing;
use model::{DeviceId, Timestamp};
use std::collections::HashMap;
use std::sync::Arc;

/// Interval between reports of a gap that lasts.
const REPORT_US: i64 = 60 * Timestamp::SECOND;

/// What fails: a device with all its metrics, or one description.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Part {
    Device(DeviceId),
    Description(usize),
}

#[derive(Debug)]
struct Outage {
    /// The last good value, or the beginning of this failure after another one.
    from: Timestamp,
    reported: Timestamp,
    failure: Failure,
}

/// The failures of one target.
#[derive(Debug)]
pub(super) struct Outages {
    /// Instant of the last value of each description; at first the instant up to which it has earlier values or gaps.
    good: Vec<Timestamp>,
    /// Whether each description is polled now.
    is_polled: Vec<bool>,
    open: HashMap<Part, Outage>,
}

/// A description, its place among those before if it is polled now and was polled, and whether it is polled now.
pub(super) type Polled<'a> = (&'a Description, Option<usize>, bool);

impl Outages {
    pub(super) fn new() -> Self {
        Self { good: Vec::new(), is_polled: Vec::new(), open: HashMap::new() }
    }

    /// Whether nothing fails.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Until when the gaps of a device that grow are reported; `None` if nothing of it fails.
    pub(super) fn reported(
        &self,
        descriptions: &[Arc<Description>],
        device: &DeviceId,
    ) -> Option<Timestamp> {
        let is_of = |part: &Part| match part {
            Part::Device(of) => of == device,
            Part::Description(place) => {
                descriptions.get(*place).is_some_and(|one| one.device == *device)
            }
        };
        let open = self.open.iter().filter(|(part, _)| is_of(part));
        open.map(|(_, outage)| outage.reported.max(outage.from)).min()
    }

    /// Replaces the descriptions by `after`. The gaps of those that have no place before end now. A new one of a device has
    /// values or gaps up to `begin`.
    pub(super) fn set(
        &mut self,
        before: &[Arc<Description>],
        after: &[Polled<'_>],
        now: Timestamp,
        begin: impl Fn(&DeviceId) -> Timestamp,
    ) -> Vec<Missing> {
        let good = |(one, place, _): &Polled<'_>| {
            let good = place.and_then(|place| self.good.get(place).copied());
            good.unwrap_or_else(|| begin(&one.device))
        };
        let good = after.iter().map(good).collect();
        let mut open = HashMap::new();
        for (part, outage) in std::mem::take(&mut self.open) {
            let part_now = match &part {
                Part::Device(device) => {
                    let is_same =
                        |(one, place, _): &Polled<'_>| place.is_some() && one.device == *device;
                    after.iter().any(is_same).then(|| part.clone())
                }
                Part::Description(old) => {
                    let now = after.iter().position(|(_, place, _)| *place == Some(*old));
                    now.map(Part::Description)
                }
            };
            match part_now {
                Some(part) => open.insert(part, outage),
                None => self.open.insert(part, outage),
            };
        }
        let missing = self.end(before, now);
        (self.good, self.open) = (good, open);
        self.is_polled = after.iter().map(|(.., is_polled)| *is_polled).collect();
        missing
    }

    /// Takes the result of an exchange: `due` are the places of its descriptions and the ticks that each missed
    /// before. Returns what is missing.
    pub(super) fn update(
        &mut self,
        descriptions: &[Arc<Description>],
        due: &[(usize, u64)],
        exchange: &Exchange,
    ) -> Vec<Missing> {
        let failed: HashMap<usize, &Failure> =
            exchange.failures.iter().map(|(place, failure)| (*place, failure)).collect();
        let mut missing = Vec::new();
        let mut devices: Vec<(&DeviceId, Vec<usize>)> = Vec::new();
        for (nth, (place, _)) in due.iter().enumerate() {
            let Some(description) = descriptions.get(*place) else { continue };
            match devices.iter_mut().find(|(device, _)| **device == description.device) {
                Some((_, all)) => all.push(nth),
                None => devices.push((&description.device, vec![nth])),
            }
        }
        for (device, all) in devices {
            let of_due: Vec<(usize, u64)> =
                all.iter().filter_map(|nth| due.get(*nth).copied()).collect();
            let part = Part::Device(device.clone());
            let of_device = |span, failure: &Failure| Missing {
                device: device.clone(),
                source: protocol(descriptions),
                span,
                cause: failure.cause,
                detail: failure.what.to_string(),
            };
            let whole = whole_failure(&all, &failed)
                .filter(|_| self.is_rest_failing(descriptions, device, &of_due));
            if let Some(failure) = whole {
                let last = self.last_good(descriptions, device).unwrap_or(exchange.at);
                self.end_values(descriptions, device, last, &mut missing);
                self.grow(part, last, exchange.at, failure, &mut missing, of_device);
                continue;
            }
            // An unreachable device is polled less often: the ticks until now are in the gap that ended.
            let good = all.iter().filter(|nth| !failed.contains_key(*nth));
            let first = good.map(|nth| exchange.instant(*nth)).min().unwrap_or(exchange.at);
            if !self.close(&part, first, &mut missing, of_device) {
                self.miss_ticks(descriptions, &of_due, first, &mut missing, of_device);
            }
            for (nth, (place, _)) in all.iter().zip(of_due) {
                let failure = failed.get(nth).copied();
                let at = failure.map_or_else(|| exchange.instant(*nth), |_| exchange.at);
                self.one(descriptions, place, failure, at, &mut missing);
            }
        }
        missing
    }

    /// Places of the descriptions of a device that are polled.
    fn polled_of<'a>(
        &'a self,
        descriptions: &'a [Arc<Description>],
        device: &'a DeviceId,
    ) -> impl Iterator<Item = usize> + 'a {
        let all = descriptions.iter().zip(&self.is_polled).enumerate();
        let of_device = all.filter(|(_, (one, is_polled))| **is_polled && one.device == *device);
        of_device.map(|(place, _)| place)
    }

    /// Whether all of a device that is not due failed at its latest poll.
    fn is_rest_failing(
        &self,
        descriptions: &[Arc<Description>],
        device: &DeviceId,
        due: &[(usize, u64)],
    ) -> bool {
        let is_failing = |place: usize| {
            self.open.contains_key(&Part::Description(place))
                || due.iter().any(|(due, _)| *due == place)
        };
        self.open.contains_key(&Part::Device(device.clone()))
            || self.polled_of(descriptions, device).all(is_failing)
    }

    /// Instant of the last value of a device.
    fn last_good(&self, descriptions: &[Arc<Description>], device: &DeviceId) -> Option<Timestamp> {
        let polled = self.polled_of(descriptions, device);
        polled.filter_map(|place| self.good.get(place).copied()).max()
    }

    /// Ends the gaps of values of a device whose own gap begins at `last`.
    fn end_values(
        &mut self,
        descriptions: &[Arc<Description>],
        device: &DeviceId,
        last: Timestamp,
        missing: &mut Vec<Missing>,
    ) {
        let is_of = |part: &Part| match part {
            Part::Description(place) => {
                descriptions.get(*place).filter(|one| one.device == *device).cloned()
            }
            Part::Device(_) => None,
        };
        self.open.retain(|part, outage| {
            let Some(description) = is_of(part) else { return true };
            if outage.from < last {
                missing.push(of_value(&description, (outage.from, last), &outage.failure));
            }
            false
        });
    }

    /// Adds the ticks that were missed, except those in the gaps of values that fail: since the last value of the device as
    /// a gap of all that it returns, and before as gaps of the values.
    fn miss_ticks(
        &self,
        descriptions: &[Arc<Description>],
        due: &[(usize, u64)],
        at: Timestamp,
        missing: &mut Vec<Missing>,
        of_device: impl Fn((Timestamp, Timestamp), &Failure) -> Missing,
    ) {
        let failure = |missed: u64| {
            Failure::missed_ticks(format!("{missed} ticks: the exchange before took too long"))
        };
        let is_late = |(place, missed): &&(usize, u64)| {
            *missed > 0 && !self.open.contains_key(&Part::Description(*place))
        };
        let late = || due.iter().filter(is_late);
        let first = late().next().and_then(|(place, _)| descriptions.get(*place));
        let last = first.and_then(|first| self.last_good(descriptions, &first.device));
        let Some(last) = last else { return };
        let mut of_all = None;
        for (place, missed) in late() {
            let (Some(one), Some(good)) = (descriptions.get(*place), self.good.get(*place)) else {
                continue;
            };
            if *good == last {
                of_all = of_all.max(Some(*missed));
            } else {
                missing.push(of_value(one, (*good, at), &failure(*missed)));
            }
        }
        missing.extend(of_all.map(|missed| of_device((last, at), &failure(missed))));
    }

    /// Reports the open gaps up to now, because polling ends.
    pub(super) fn end(
        &mut self,
        descriptions: &[Arc<Description>],
        now: Timestamp,
    ) -> Vec<Missing> {
        let open = std::mem::take(&mut self.open);
        let close = |(part, outage): (Part, Outage)| {
            let (device, source) = match part {
                Part::Device(device) => (device, protocol(descriptions)),
                Part::Description(place) => {
                    let description = descriptions.get(place)?;
                    (description.device.clone(), source_of(description))
                }
            };
            let (span, cause) = ((outage.from, now), outage.failure.cause);
            let detail = outage.failure.what.to_string();
            Some(Missing { device, source, span, cause, detail })
        };
        open.into_iter().filter_map(close).filter(|one| one.span.0 < one.span.1).collect()
    }

    fn one(
        &mut self,
        descriptions: &[Arc<Description>],
        place: usize,
        failure: Option<&Failure>,
        at: Timestamp,
        missing: &mut Vec<Missing>,
    ) {
        let Some(description) = descriptions.get(place) else { return };
        let last = self.good.get(place).copied().unwrap_or(at);
        let of_one = |span, failure: &Failure| of_value(description, span, failure);
        match failure {
            Some(failure) => {
                self.grow(Part::Description(place), last, at, failure, missing, of_one);
            }
            None => {
                self.close(&Part::Description(place), at, missing, of_one);
                if let Some(good) = self.good.get_mut(place) {
                    *good = at;
                }
            }
        }
    }

    /// Opens a gap, or lets it grow: each report begins where the gap begins, so that the store keeps one gap. Another
    /// cause begins another gap.
    fn grow(
        &mut self,
        part: Part,
        last: Timestamp,
        at: Timestamp,
        failure: &Failure,
        missing: &mut Vec<Missing>,
        report: impl Fn((Timestamp, Timestamp), &Failure) -> Missing,
    ) {
        let outage = self.open.entry(part).or_insert_with(|| Outage {
            from: last,
            reported: Timestamp(i64::MIN),
            failure: failure.clone(),
        });
        if outage.failure.cause != failure.cause {
            missing.push(report((outage.from, at), &outage.failure));
            (outage.from, outage.reported) = (at, at);
        } else if at.0.saturating_sub(outage.reported.0) >= REPORT_US && outage.from < at {
            missing.push(report((outage.from, at), failure));
            outage.reported = at;
        }
        outage.failure = failure.clone();
    }

    /// Ends a gap. Returns whether there was one.
    fn close(
        &mut self,
        part: &Part,
        at: Timestamp,
        missing: &mut Vec<Missing>,
        report: impl Fn((Timestamp, Timestamp), &Failure) -> Missing,
    ) -> bool {
        let Some(outage) = self.open.remove(part) else { return false };
        if outage.from < at {
            missing.push(report((outage.from, at), &outage.failure));
        }
        true
    }
}

/// The failure of all these descriptions, if it is the same.
fn whole_failure<'a>(all: &[usize], failed: &HashMap<usize, &'a Failure>) -> Option<&'a Failure> {
    let first = failed.get(all.first()?)?;
    all.iter().all(|nth| failed.get(nth) == Some(first)).then_some(*first)
}

fn protocol(descriptions: &[Arc<Description>]) -> String {
    descriptions.first().map_or_else(String::new, |one| one.target.protocol.to_string())
}

/// A gap of one value.
fn of_value(description: &Description, span: (Timestamp, Timestamp), failure: &Failure) -> Missing {
    Missing {
        device: description.device.clone(),
        source: source_of(description),
        span,
        cause: failure.cause,
        detail: failure.what.to_string(),
    }
}

fn source_of(description: &Description) -> String {
    format!("{}/{}", description.target.protocol, description.name)
}

#[cfg(test)]
mod tests;
