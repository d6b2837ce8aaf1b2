//! Failures of a target as gaps: one gap from the last to the next good value, which grows while the failure lasts.

use crate::descriptions::Description;
use crate::polling::{Exchange, Failure};
use crate::sending::Missing;
use model::{Cause, DeviceId, Timestamp};
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
    open: HashMap<Part, Outage>,
}

impl Outages {
    pub(super) fn new() -> Self {
        Self { good: Vec::new(), open: HashMap::new() }
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

    /// Replaces the descriptions. Each of `after` comes with its place among those before, if it is polled now and was
    /// polled. The gaps of all others end now. A new one of a device has values or gaps up to `begin`.
    pub(super) fn set(
        &mut self,
        before: &[Arc<Description>],
        after: &[(&Description, Option<usize>)],
        now: Timestamp,
        begin: impl Fn(&DeviceId) -> Timestamp,
    ) -> Vec<Missing> {
        let good = |(one, place): &(&Description, Option<usize>)| {
            let good = place.and_then(|place| self.good.get(place).copied());
            good.unwrap_or_else(|| begin(&one.device))
        };
        let good = after.iter().map(good).collect();
        let mut open = HashMap::new();
        for (part, outage) in std::mem::take(&mut self.open) {
            let part_now = match &part {
                Part::Device(device) => {
                    let is_same = |(one, place): &(&Description, Option<usize>)| {
                        place.is_some() && one.device == *device
                    };
                    after.iter().any(is_same).then(|| part.clone())
                }
                Part::Description(old) => {
                    let now = after.iter().position(|(_, place)| *place == Some(*old));
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
            let whole = whole_failure(&all, &failed);
            let part = Part::Device(device.clone());
            let last = all.iter().filter_map(|nth| self.good.get(due.get(*nth)?.0)).max();
            let last = last.copied().unwrap_or(exchange.at);
            let of_device = |span, failure: &Failure| Missing {
                device: device.clone(),
                source: protocol(descriptions),
                span,
                cause: failure.cause,
                detail: failure.what.to_string(),
            };
            if let Some(failure) = whole {
                self.grow(part, last, exchange.at, failure, &mut missing, of_device);
                continue;
            }
            let has_recovered = self.close(&part, exchange.at, &mut missing, of_device);
            let missed = all.iter().filter_map(|nth| Some(due.get(*nth)?.1)).max().unwrap_or(0);
            // An unreachable device is polled less often: the ticks until now are in the gap that ended.
            if missed > 0 && !has_recovered {
                let what = format!("{missed} ticks: the exchange before took too long");
                let failure =
                    Failure { cause: Cause::MissedTicks, what: what.into(), is_account: false };
                missing.push(of_device((last, exchange.at), &failure));
            }
            for nth in all {
                let Some((place, _)) = due.get(nth) else { continue };
                self.one(
                    descriptions,
                    *place,
                    failed.get(&nth).copied(),
                    exchange.at,
                    &mut missing,
                );
            }
        }
        missing
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
        let of_one = |span, failure: &Failure| Missing {
            device: description.device.clone(),
            source: source_of(description),
            span,
            cause: failure.cause,
            detail: failure.what.to_string(),
        };
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

fn source_of(description: &Description) -> String {
    format!("{}/{}", description.target.protocol, description.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptions::{Directory, read_text};
    use std::path::Path;

    fn descriptions(names: &[&str]) -> Vec<Arc<Description>> {
        let entry = |name: &&str| {
            format!("- {{name: {name}, device_id: bmc, url: 'http://bmc/a#{name}'}}\n")
        };
        let mut directory = Directory::default();
        let text: String = names.iter().map(entry).collect();
        read_text(&Path::new("file").into(), &text, &mut directory);
        directory.descriptions.into_iter().map(Arc::new).collect()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp(seconds * Timestamp::SECOND)
    }

    fn outages(all: &[Arc<Description>]) -> Outages {
        let mut outages = Outages::new();
        let new: Vec<_> = all.iter().map(|one| (&**one, None)).collect();
        assert_eq!(outages.set(&[], &new, at(0), |_| at(0)), []);
        outages
    }

    fn exchange(seconds: i64, failures: &[(usize, &Failure)]) -> Exchange {
        let mut exchange = Exchange::new(at(seconds), 2);
        for (place, failure) in failures {
            exchange.fail(*place, (*failure).clone());
        }
        exchange
    }

    fn spans(missing: &[Missing]) -> Vec<(&str, i64, i64, Cause)> {
        let second = |at: Timestamp| at.0 / Timestamp::SECOND;
        missing
            .iter()
            .map(|one| (&*one.source, second(one.span.0), second(one.span.1), one.cause))
            .collect()
    }

    #[test]
    fn a_dead_device_is_one_gap_that_grows() {
        let all = descriptions(&["a", "b"]);
        let due = [(0, 0), (1, 0)];
        let silent =
            Failure { cause: Cause::SourceTimeout, what: "no answer".into(), is_account: false };
        let mut outages = outages(&all);
        assert_eq!(outages.update(&all, &due, &exchange(5, &[])), []);
        let mut missing = Vec::new();
        assert_eq!(outages.reported(&all, &all[0].device), None);
        for second in (10..200).step_by(5) {
            let failed = exchange(second, &[(0, &silent), (1, &silent)]);
            missing.extend(outages.update(&all, &due, &failed));
            let reported = missing.last().map(|one| one.span.1);
            assert_eq!(outages.reported(&all, &all[0].device), reported);
        }
        missing.extend(outages.update(&all, &due, &exchange(200, &[])));
        let timeout = Cause::SourceTimeout;
        let expected = [(5, 10), (5, 70), (5, 130), (5, 190), (5, 200)]
            .map(|(from, to)| ("json", from, to, timeout));
        assert_eq!(spans(&missing), expected);
        assert_eq!(outages.end(&all, at(205)), []);
    }

    #[test]
    fn one_bad_value_is_a_gap_of_its_metric() {
        let all = descriptions(&["a", "b"]);
        let due = [(0, 0), (1, 0)];
        let broken =
            Failure { cause: Cause::SourceBroken, what: "no match".into(), is_account: false };
        let denied = Failure { cause: Cause::PermissionLost, what: "no".into(), is_account: false };
        let mut outages = outages(&all);
        let mut missing = outages.update(&all, &due, &exchange(5, &[(1, &broken)]));
        missing.extend(outages.update(&all, &due, &exchange(10, &[(1, &denied)])));
        missing.extend(outages.end(&all, at(15)));
        let (broken, denied) = (Cause::SourceBroken, Cause::PermissionLost);
        assert_eq!(
            spans(&missing),
            [("json/b", 0, 5, broken), ("json/b", 0, 10, broken), ("json/b", 10, 15, denied)]
        );
    }

    #[test]
    fn missed_ticks_are_a_gap() {
        let all = descriptions(&["a", "b"]);
        let mut outages = outages(&all);
        outages.update(&all, &[(0, 0), (1, 0)], &exchange(5, &[]));
        let missing = outages.update(&all, &[(0, 3), (1, 3)], &exchange(25, &[]));
        assert_eq!(spans(&missing), [("json", 5, 25, Cause::MissedTicks)]);
    }

    #[test]
    fn a_gap_lasts_over_a_change_of_the_files_and_ends_with_its_entry() {
        let all = descriptions(&["a", "b", "c"]);
        let due = [(0, 0), (1, 0), (2, 0)];
        let broken =
            Failure { cause: Cause::SourceBroken, what: "no match".into(), is_account: false };
        let mut outages = outages(&all);
        let mut failed = exchange(5, &[(0, &broken), (1, &broken)]);
        failed.settle(2);
        assert_eq!(outages.update(&all, &due, &failed).len(), 2);
        // `a` is removed, and `b` is the first now.
        let after = [(&*all[1], Some(1)), (&*all[2], Some(2))];
        let ended = outages.set(&all, &after, at(8), |_| at(8));
        assert_eq!(spans(&ended), [("json/a", 0, 8, Cause::SourceBroken)]);
        let rest = all[1..].to_vec();
        let closed = outages.update(&rest, &[(0, 0), (1, 0)], &exchange(10, &[]));
        assert_eq!(spans(&closed), [("json/b", 0, 10, Cause::SourceBroken)]);
    }
}
