//! Periods that the server changes for a time, within the limits of the poller's own file
//! (docs/decisions/0047-settings-of-pollers.md).

use crate::descriptions::Description;
use crate::polling::instant;
use crate::protocols::Protocol;
use api::{PollerPeriod, PollerRejection, PollerRequest};
use config::PollerRemoteSettings;
use model::Timestamp;
use model::setting::{RejectionCode, show_duration};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// The accepted periods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PeriodChanges(HashMap<String, Vec<PeriodChange>>);

/// The period of the polls of a device by one protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PeriodChange {
    number: i64,
    protocol: Protocol,
    period: Duration,
    until: Timestamp,
}

impl PeriodChanges {
    /// The period of a description while a change holds.
    pub(super) fn of(&self, description: &Description, now: Timestamp) -> Option<Duration> {
        let of_device = self.0.get(description.device.as_str()).into_iter().flatten();
        let protocol = description.target.protocol;
        let held = of_device.filter(|one| one.protocol == protocol && one.until > now);
        held.max_by_key(|one| one.number).map(|one| one.period)
    }

    /// The ends of the changes.
    pub(super) fn ends(&self) -> impl Iterator<Item = Timestamp> {
        self.0.values().flatten().map(|one| one.until)
    }
}

/// Accepts changes of periods, as far as the poller's own file allows them.
#[derive(Debug)]
pub(super) struct PeriodLimits {
    settings: PollerRemoteSettings,
    /// When the poller first received each change: its longest duration counts from then.
    received: BTreeMap<i64, Timestamp>,
    /// What the latest answer's changes violate.
    pub(super) rejected: Vec<PollerRejection>,
}

impl PeriodLimits {
    pub(super) const fn new(settings: PollerRemoteSettings) -> Self {
        Self { settings, received: BTreeMap::new(), rejected: Vec::new() }
    }

    /// Replaces the changes by those of an answer. Each is independent of the others.
    pub(super) fn accept(&mut self, sent: Vec<PollerPeriod>, now: Timestamp) -> PeriodChanges {
        let before = std::mem::take(&mut self.rejected);
        self.received.retain(|number, _| sent.iter().any(|one| one.change == *number));
        let mut accepted = PeriodChanges::default();
        for PollerPeriod { change, source, period_seconds, until, end, names } in sent {
            let first = *self.received.entry(change).or_insert(now);
            match self.accepted(change, &source, period_seconds, (until, end, first)) {
                Ok(one) => {
                    for name in names {
                        accepted.0.entry(name).or_default().push(one);
                    }
                }
                Err((code, reason)) => self.reject(change, source, (code, reason), None),
            }
        }
        for one in self.rejected.iter().filter(|one| !before.contains(one)) {
            let PollerRejection { change, source, code, reason, .. } = one;
            log::warn!("change {change} of {source}: {code}: {reason}");
        }
        accepted
    }

    fn accepted(
        &mut self,
        number: i64,
        source: &str,
        seconds: f64,
        (until, end, first): (f64, Option<f64>, Timestamp),
    ) -> Result<PeriodChange, (RejectionCode, String)> {
        let invalid = |what: &str| (RejectionCode::Invalid, what.to_owned());
        let protocol = Protocol::of_name(source).ok_or_else(|| invalid("no such protocol"))?;
        let period =
            Duration::try_from_secs_f64(seconds).ok().filter(|one| *one <= config::PERIOD_MAX);
        let period = period.ok_or_else(|| invalid("no period"))?;
        let until = instant(until).ok_or_else(|| invalid("no end"))?;
        let PollerRemoteSettings { allow, period_min, time_max, .. } = &self.settings;
        if !allow.iter().any(|word| word == "periods") {
            return Err((RejectionCode::NotAllowed, "`remote.allow` has no `periods`".to_owned()));
        }
        if period < *period_min {
            let least = show_duration(*period_min);
            let what = format!("shorter than `remote.period_min`, which is {least}");
            return Err((RejectionCode::NotAllowed, what));
        }
        let latest = first.plus(i64::try_from(time_max.as_micros()).unwrap_or(i64::MAX));
        // The server states an end of at most 12 h ahead, and the change's own.
        if end.and_then(instant).unwrap_or(until) > latest {
            let what = format!("`remote.time_max` is {}", show_duration(*time_max));
            let shortened = (RejectionCode::Shortened, what);
            self.reject(number, source.to_owned(), shortened, Some(latest));
        }
        Ok(PeriodChange { number, protocol, period, until: until.min(latest) })
    }

    fn reject(
        &mut self,
        change: i64,
        source: String,
        (code, reason): (RejectionCode, String),
        until: Option<Timestamp>,
    ) {
        if self.rejected.len() < PollerRequest::REJECTED_MAX {
            let (code, until) = (code.word().to_owned(), until.map(Timestamp::seconds));
            self.rejected.push(PollerRejection { change, source, code, reason, until });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptions::entries_of;
    use config::{ConfigFile, ConfigInputs, Raw, load_poller};

    const SECOND: i64 = Timestamp::SECOND;

    fn limits(flags: &[(&str, &str)]) -> PeriodLimits {
        let flag = |(key, value): &(&str, &str)| ((*key).to_owned(), Raw::One((*value).to_owned()));
        let flags = flags.iter().map(flag).collect();
        let given = ConfigInputs { file: ConfigFile::None, environment: &|_| None, flags };
        PeriodLimits::new(load_poller(&given).unwrap().config.remote)
    }

    fn sent(change: i64, source: &str, period_seconds: f64, until: f64) -> PollerPeriod {
        let names = vec!["pdu-1".to_owned()];
        PollerPeriod { change, source: source.to_owned(), period_seconds, until, end: None, names }
    }

    #[test]
    fn the_latest_change_of_the_protocol_holds_until_its_end() {
        let all = entries_of(
            "- {name: a, device_id: pdu-1, url: 'snmp://p/1.3', labels: {_device_alias: n-1}}\n\
             - {name: a, device_id: pdu-1, url: 'http://p/#a'}\n\
             - {name: a, device_id: pdu-2, url: 'snmp://p/1.3'}\n",
        );
        let mut limits = limits(&[]);
        let changes = vec![sent(7, "snmp", 2.0, 9.0), sent(8, "snmp", 1.0, 5.0)];
        let changes = limits.accept(changes, Timestamp(0));
        assert_eq!(limits.rejected, []);
        let of = |second: i64| -> Vec<_> {
            let now = Timestamp(second * SECOND);
            all.iter().map(|one| changes.of(one, now).map(|period| period.as_secs())).collect()
        };
        assert_eq!(of(4), [Some(1), None, None]);
        assert_eq!(of(5), [Some(2), None, None]);
        assert_eq!(of(9), [None; 3]);
        assert_eq!(changes.ends().max(), Some(Timestamp(9 * SECOND)));
    }

    #[test]
    fn the_file_of_the_poller_limits_changes() {
        let reasons = |limits: &PeriodLimits| -> Vec<_> {
            let words = limits.rejected.iter();
            words
                .map(|one| (one.change, &*one.code, &*one.reason))
                .map(|(a, b, c)| (a, b.to_owned(), c.to_owned()))
                .collect()
        };
        let too_short = "shorter than `remote.period_min`, which is 5s";
        let mut five = limits(&[("remote.period_min", "5s"), ("remote.time_max", "10s")]);
        let changes = vec![
            sent(1, "snmp", 4.9, 5.0),
            sent(2, "nosuch", 6.0, 5.0),
            sent(3, "json", 6.0, 20.0),
        ];
        let accepted = five.accept(changes.clone(), Timestamp(0));
        assert_eq!(accepted.ends().collect::<Vec<_>>(), [Timestamp(10 * SECOND)]);
        let want = [
            (1, "not_allowed", too_short),
            (2, "invalid", "no such protocol"),
            (3, "shortened", "`remote.time_max` is 10s"),
        ];
        let want = want.map(|(change, code, why)| (change, code.to_owned(), why.to_owned()));
        assert_eq!(reasons(&five), want);
        assert_eq!(five.rejected[2].until, Some(10.0));
        // A change of which the server sends the first hours only.
        let long = PollerPeriod { end: Some(99.0), ..sent(3, "json", 6.0, 5.0) };
        let accepted = five.accept(vec![long], Timestamp(0));
        assert_eq!(accepted.ends().collect::<Vec<_>>(), [Timestamp(5 * SECOND)]);
        assert_eq!(reasons(&five), want[2..]);
        assert_eq!(five.rejected[0].until, Some(10.0));
        // Its time counts from the first receipt.
        five.accept(changes.clone(), Timestamp(0));
        let again = five.accept(changes, Timestamp(3 * SECOND));
        assert_eq!(again.ends().collect::<Vec<_>>(), [Timestamp(10 * SECOND)]);
        let mut none = limits(&[("remote.allow", "")]);
        assert_eq!(none.accept(vec![sent(4, "snmp", 60.0, 5.0)], Timestamp(0)).ends().count(), 0);
        assert_eq!(reasons(&none)[0].2, "`remote.allow` has no `periods`");
        assert_eq!(none.accept(Vec::new(), Timestamp(0)), PeriodChanges::default());
        assert_eq!(none.rejected, []);
    }
}
