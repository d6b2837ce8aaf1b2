//! Which descriptions of a target are due, and at which instant (docs/decisions/0038-times-of-polls.md).

use model::Timestamp;
use std::time::Duration;

/// Largest part of a period between its start and the request: a tenth, at most 1 s.
const SPREAD: i64 = 10;
const SPREAD_MAX_US: i64 = Timestamp::SECOND;
/// A request may be late by half of that time, and by no more than this; the requests begin in the rest.
const LATE_MAX_US: i64 = 150_000;
/// An unreachable target is polled at least this often, or once per period where the period is longer.
const BACK_OFF_MAX_US: i64 = 30 * Timestamp::SECOND;
/// Failed exchanges before a target is polled less often.
const PATIENCE: u32 = 3;

/// The ticks of a target's descriptions.
#[derive(Debug)]
pub(super) struct Schedule {
    /// Spreads targets over the time.
    chance: u64,
    /// Distance of the requests from the start of their periods.
    offset_us: i64,
    /// `None` for a description that is not polled now.
    ticks: Vec<Option<Ticks>>,
    /// Exchanges in a row that returned nothing.
    failed: u32,
    /// While the target is unreachable: no request before this instant.
    not_before: Timestamp,
}

/// The ticks of one description.
#[derive(Clone, Copy, Debug)]
struct Ticks {
    period_us: i64,
    /// Start of the period that is read next.
    next: Timestamp,
}

/// What is due at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Due {
    /// Places of the descriptions, and the ticks that each missed before.
    pub(super) places: Vec<(usize, u64)>,
    /// The instant of the samples.
    pub(super) at: Timestamp,
    /// How late the request is.
    pub(super) late_us: i64,
}

impl Schedule {
    /// The schedule of a target without descriptions. `chance` spreads targets over the time.
    pub(super) const fn new(chance: u64) -> Self {
        let not_before = Timestamp(i64::MIN);
        Self { chance, offset_us: 0, ticks: Vec::new(), failed: 0, not_before }
    }

    /// Replaces the descriptions by those with these periods; `None` for one that is not polled now. Each comes with its
    /// place before, if it had one: it then keeps its ticks if its period is the same.
    pub(super) fn set(&mut self, periods: &[(Option<usize>, Option<Duration>)], now: Timestamp) {
        let micros =
            |period: Duration| i64::try_from(period.as_micros()).unwrap_or(i64::MAX).max(1);
        let polled = periods.iter().filter_map(|(_, period)| period.map(micros));
        let spread_us = (polled.min().unwrap_or(Timestamp::SECOND) / SPREAD).min(SPREAD_MAX_US);
        let slots = (spread_us - (spread_us / 2).min(LATE_MAX_US)).unsigned_abs().max(1);
        self.offset_us = i64::try_from(self.chance % slots).unwrap_or(0);
        let ticks = |(before, period): &(Option<usize>, Option<Duration>)| {
            let period_us = micros((*period)?);
            let before = before.and_then(|place| *self.ticks.get(place)?);
            Some(before.filter(|ticks| ticks.period_us == period_us).unwrap_or_else(|| {
                let next = start_at_or_after(now.plus(-self.offset_us), period_us);
                Ticks { period_us, next }
            }))
        };
        self.ticks = periods.iter().map(ticks).collect();
    }

    /// Start of the period that is read next: no earlier instant follows.
    pub(super) fn next_start(&self) -> Timestamp {
        let next = self.ticks.iter().flatten().map(|ticks| ticks.next).min();
        next.unwrap_or(Timestamp(i64::MAX))
    }

    /// Whether the latest exchange returned nothing.
    pub(super) const fn is_unanswered(&self) -> bool {
        self.failed > 0
    }

    /// The instant of the next request.
    pub(super) fn next(&self) -> Timestamp {
        self.next_start().plus(self.offset_us).max(self.not_before)
    }

    /// Takes what is due now. A tick that passed unread is missed: it is never read later.
    pub(super) fn take(&mut self, now: Timestamp) -> Due {
        let latest = now.plus(-self.offset_us);
        let mut due = Due { at: now, ..Due::default() };
        let (mut start, mut shortest) = (None, i64::MAX);
        let mut is_one_start = true;
        for (place, ticks) in self.ticks.iter_mut().enumerate() {
            let Some(ticks) = ticks else { continue };
            // The clock was set back by more than a period.
            if ticks.next.since(latest) > ticks.period_us {
                ticks.next = start_at_or_after(latest, ticks.period_us);
            }
            if ticks.next > latest {
                continue;
            }
            let missed = latest.since(ticks.next) / ticks.period_us;
            let read = ticks.next.plus(missed * ticks.period_us);
            ticks.next = read.plus(ticks.period_us);
            due.places.push((place, missed.unsigned_abs()));
            is_one_start &= start.is_none_or(|start| start == read);
            start = Some(read);
            shortest = shortest.min(ticks.period_us);
        }
        if let Some(start) = start {
            let most = (shortest / SPREAD).min(SPREAD_MAX_US);
            due.late_us = latest.since(start);
            if is_one_start && now.since(start) <= most {
                due.at = start;
            }
        }
        due
    }

    /// Records whether the target returned anything. An unreachable one is polled less often.
    pub(super) fn answered(&mut self, has_answered: bool, now: Timestamp) {
        if has_answered {
            (self.failed, self.not_before) = (0, Timestamp(i64::MIN));
            return;
        }
        self.failed = self.failed.saturating_add(1);
        let doublings = self.failed.saturating_sub(PATIENCE).min(16);
        let shortest = self.ticks.iter().flatten().map(|ticks| ticks.period_us).min().unwrap_or(1);
        if doublings > 0 && shortest < BACK_OFF_MAX_US {
            let wait_us = shortest.saturating_mul(1 << doublings).min(BACK_OFF_MAX_US);
            // From the tick, not from the end of the exchange: requests stay at their instant of the period.
            let latest = now.plus(-self.offset_us);
            let tick = latest.plus(-latest.0.rem_euclid(shortest));
            self.not_before = tick.plus(self.offset_us + wait_us - shortest);
        }
    }
}

/// The first multiple of a period at or after an instant.
fn start_at_or_after(at: Timestamp, period_us: i64) -> Timestamp {
    let before = at.0.rem_euclid(period_us);
    Timestamp(if before == 0 { at.0 } else { at.0 - before + period_us })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = Timestamp::SECOND;

    fn at(micros: i64) -> Timestamp {
        Timestamp(micros)
    }

    fn of_periods(periods: &[Duration], chance: u64, now: Timestamp) -> Schedule {
        let mut schedule = Schedule::new(chance);
        let periods: Vec<_> = periods.iter().map(|period| (None, Some(*period))).collect();
        schedule.set(&periods, now);
        schedule
    }

    #[test]
    fn a_change_of_the_files_costs_the_other_descriptions_no_tick() {
        let (one, five) = (Duration::from_secs(1), Duration::from_secs(5));
        let mut schedule = of_periods(&[one, five], 0, at(SECOND));
        schedule.take(at(SECOND));
        // The first is removed, the second moves, and one is new. One is not polled.
        let now = at(7 * SECOND + 1);
        schedule.set(&[(None, Some(one)), (None, None), (Some(1), Some(five))], now);
        let due = schedule.take(at(8 * SECOND));
        assert_eq!(due.places, [(0, 0), (2, 0)], "the tick of 5 s is read, late");
        // Another period restarts the ticks.
        schedule
            .set(&[(Some(0), None), (Some(1), Some(one)), (Some(2), Some(one))], at(9 * SECOND));
        assert_eq!(schedule.take(at(9 * SECOND)).places, [(1, 0), (2, 0)]);
    }

    #[test]
    fn descriptions_keep_their_periods_and_share_the_instants() {
        let periods = [Duration::from_secs(1), Duration::from_secs(5)];
        let mut schedule = of_periods(&periods, 42_000, at(3 * SECOND + 42_001));
        assert_eq!(schedule.next(), at(4 * SECOND + 42_000));
        let due = schedule.take(at(4 * SECOND + 43_000));
        assert_eq!((due.places, due.at, due.late_us), (vec![(0, 0)], at(4 * SECOND), 1000));
        let due = schedule.take(at(5 * SECOND + 42_000));
        assert_eq!((due.places, due.at), (vec![(0, 0), (1, 0)], at(5 * SECOND)));
        assert_eq!(schedule.take(at(5 * SECOND + 43_000)).places, []);
    }

    #[test]
    fn a_late_request_has_its_own_instant_and_missed_ticks_are_counted() {
        let mut schedule = of_periods(&[Duration::from_secs(1)], 0, at(0));
        let due = schedule.take(at(100_001));
        assert_eq!((due.places, due.at), (vec![(0, 0)], at(100_001)));
        let due = schedule.take(at(4 * SECOND + 50_000));
        assert_eq!((due.places, due.at), (vec![(0, 3)], at(4 * SECOND)));
        assert_eq!(schedule.next(), at(5 * SECOND));
    }

    #[test]
    fn a_clock_that_is_set_back_delays_nothing() {
        let mut schedule = of_periods(&[Duration::from_secs(10)], 0, at(1000 * SECOND));
        schedule.take(at(1000 * SECOND));
        schedule.take(at(500 * SECOND + 1));
        assert_eq!(schedule.next(), at(510 * SECOND));
    }

    #[test]
    fn an_unreachable_target_is_polled_every_30_s_at_least() {
        let mut schedule = of_periods(&[Duration::from_secs(1)], 0, at(0));
        let (mut now, mut waits) = (at(0), Vec::new());
        for _ in 0..12 {
            schedule.take(now);
            schedule.answered(false, now);
            waits.push(schedule.next().since(now) / SECOND);
            now = schedule.next();
        }
        assert_eq!(waits[..6], [1, 1, 1, 1, 3, 7]);
        assert!(waits.iter().all(|wait| *wait <= 30), "{waits:?}");
        schedule.take(now);
        schedule.answered(true, now);
        assert_eq!(schedule.next().since(now), SECOND);
        // However long the exchanges take, the requests stay at their instant of the period.
        let mut schedule = of_periods(&[Duration::from_secs(1)], 42_000, at(SECOND));
        for _ in 0..40 {
            let now = schedule.next();
            assert_eq!(now.0 % SECOND, 42_000);
            assert_eq!(schedule.take(now.plus(2000)).at.0 % SECOND, 0);
            schedule.answered(false, now.plus(300_000));
        }
        // A long period is kept.
        let mut schedule = of_periods(&[Duration::from_secs(300)], 0, at(0));
        for _ in 0..9 {
            schedule.take(schedule.next());
            schedule.answered(false, at(0));
        }
        assert_eq!(schedule.next(), at(9 * 300 * SECOND));
    }

    #[test]
    fn a_request_of_the_last_slot_may_be_late_by_half_of_the_tenth() {
        for chance in 0..100_000 {
            let mut schedule = of_periods(&[Duration::from_secs(1)], chance, at(SECOND));
            let planned = schedule.next();
            assert_eq!(schedule.take(planned.plus(50_000)).at, at(planned.0 / SECOND * SECOND));
        }
    }

    #[test]
    fn requests_of_long_periods_have_more_time_to_begin() {
        for chance in [0, 7, 849_999, u64::MAX] {
            let mut schedule = of_periods(&[Duration::from_secs(5)], chance, at(SECOND));
            let planned = schedule.next();
            assert!((5 * SECOND..5 * SECOND + 350_000).contains(&planned.0), "{schedule:?}");
            assert_eq!(schedule.take(planned.plus(150_000)).at, at(5 * SECOND));
            let schedule = of_periods(&[Duration::from_secs(10)], chance, at(SECOND));
            assert!((10 * SECOND..10 * SECOND + 850_000).contains(&schedule.next().0));
        }
    }

    #[test]
    fn requests_of_short_periods_are_spread_over_a_tenth() {
        for chance in [0, 7, u64::MAX] {
            let schedule = of_periods(&[Duration::from_millis(10)], chance, at(1000));
            assert!((10_000..11_000).contains(&schedule.next().0), "{schedule:?}");
            let schedule = of_periods(&[Duration::from_secs(60)], chance, at(SECOND));
            assert!((60 * SECOND..61 * SECOND).contains(&schedule.next().0), "{schedule:?}");
        }
    }
}
