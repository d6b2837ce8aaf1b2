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
    /// The latest instant of a sample: those of later exchanges follow it.
    sampled: Timestamp,
    /// Exchanges in a row to which the target did not reply.
    failed: u32,
    /// Instant of the latest reply.
    replied: Timestamp,
    /// While the target is unreachable: no request before this instant, except for descriptions that were answered before.
    not_before: Timestamp,
}

/// The ticks of one description.
#[derive(Clone, Copy, Debug)]
struct Ticks {
    period_us: i64,
    /// Start of the period that is read next.
    next: Timestamp,
    /// Ticks that passed since the latest one that was read.
    missed: u64,
    /// Whether the latest attempt failed. The others wait for no unreachable target: a part of it may be silent only.
    has_failed: bool,
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
        let never = Timestamp(i64::MIN);
        Self {
            chance,
            offset_us: 0,
            ticks: Vec::new(),
            sampled: never,
            failed: 0,
            replied: never,
            not_before: never,
        }
    }

    /// Replaces the descriptions by those with these periods; `None` for one that is not polled now. Each comes with its
    /// place before, if it had one: it then keeps its ticks if its period is the same.
    pub(super) fn set(&mut self, periods: &[(Option<usize>, Option<Duration>)], now: Timestamp) {
        let micros =
            |period: Duration| i64::try_from(period.as_micros()).unwrap_or(i64::MAX).max(1);
        let polled = periods.iter().filter_map(|(_, period)| period.map(micros));
        let spread_us = on_time_us(polled.min().unwrap_or(Timestamp::SECOND));
        let slots = (spread_us - (spread_us / 2).min(LATE_MAX_US)).unsigned_abs().max(1);
        self.offset_us = i64::try_from(self.chance % slots).unwrap_or(0);
        let ticks = |(before, period): &(Option<usize>, Option<Duration>)| {
            let period_us = micros((*period)?);
            let before = before.and_then(|place| *self.ticks.get(place)?);
            Some(before.filter(|ticks| ticks.period_us == period_us).unwrap_or_else(|| {
                let next = start_at_or_after(now.plus(-self.offset_us), period_us);
                Ticks { period_us, next, missed: 0, has_failed: false }
            }))
        };
        self.ticks = periods.iter().map(ticks).collect();
    }

    /// Start of the period that is read next: no earlier instant follows.
    pub(super) fn next_start(&self) -> Timestamp {
        let next = self.ticks.iter().flatten().map(|ticks| ticks.next).min();
        next.unwrap_or(Timestamp(i64::MAX))
    }

    /// Whether the target did not reply to the latest exchange, and nothing is due that was answered before.
    pub(super) fn is_unanswered(&self, now: Timestamp) -> bool {
        let mut ticks = self.ticks.iter().flatten();
        self.failed > 0
            && ticks.all(|ticks| ticks.has_failed || ticks.next.plus(self.offset_us) > now)
    }

    /// The instant of the next request.
    pub(super) fn next(&self) -> Timestamp {
        let at = |ticks: &Ticks| {
            let tick = ticks.next.plus(self.offset_us);
            if ticks.has_failed { tick.max(self.not_before) } else { tick }
        };
        self.ticks.iter().flatten().map(at).min().unwrap_or(Timestamp(i64::MAX))
    }

    /// The instant of the next tick, whatever the target answered.
    pub(super) fn next_tick(&self) -> Timestamp {
        self.next_start().plus(self.offset_us)
    }

    /// Takes what is due now. A tick that passed unread is missed. It is not read with a later one of another description,
    /// whose sample has the instant of its tick.
    pub(super) fn take(&mut self, now: Timestamp) -> Due {
        let latest = now.plus(-self.offset_us);
        let mut due = Due { at: now, ..Due::default() };
        let mut starts = Vec::new();
        for (place, ticks) in self.ticks.iter_mut().enumerate() {
            let Some(ticks) = ticks else { continue };
            // The clock was set back by more than a period.
            if ticks.next.since(latest) > ticks.period_us {
                ticks.next = start_at_or_after(latest, ticks.period_us);
            }
            if ticks.next > latest || ticks.has_failed && now < self.not_before {
                continue;
            }
            let missed = latest.since(ticks.next) / ticks.period_us;
            let read = ticks.next.plus(missed * ticks.period_us);
            ticks.next = read.plus(ticks.period_us);
            due.places.push((place, missed.unsigned_abs() + std::mem::take(&mut ticks.missed)));
            starts.push((read, ticks.period_us));
        }
        let Some(start) = starts.iter().map(|(read, _)| *read).max() else { return due };
        let periods = starts.iter().filter(|(read, _)| *read == start).map(|(_, period)| *period);
        due.late_us = latest.since(start);
        let is_after_samples = start > self.sampled || self.sampled > now;
        if now.since(start) <= on_time_us(periods.max().unwrap_or_default()) && is_after_samples {
            due.at = start;
            let mut reads = starts.iter().map(|(read, _)| *read == start);
            let ticks = &mut self.ticks;
            due.places.retain(|(place, missed)| {
                let is_on_time = reads.next().unwrap_or_default();
                if let Some(Some(ticks)) = ticks.get_mut(*place).filter(|_| !is_on_time) {
                    ticks.missed = missed.saturating_add(1);
                }
                is_on_time
            });
        }
        due
    }

    /// Records the latest instant of a sample.
    pub(super) const fn sampled(&mut self, at: Timestamp) {
        self.sampled = at;
    }

    /// Records the descriptions that an exchange tried, with whether each failed, and whether the target replied. An
    /// unreachable one is polled less often. It is unreachable if everything failed, or if it did not reply for a while.
    pub(super) fn answered(
        &mut self,
        tried: impl Iterator<Item = (usize, bool)>,
        has_replied: bool,
        now: Timestamp,
    ) {
        for (place, has_failed) in tried {
            if let Some(Some(ticks)) = self.ticks.get_mut(place) {
                ticks.has_failed = has_failed;
            }
        }
        if has_replied {
            (self.failed, self.replied) = (0, now);
            self.not_before = Timestamp(i64::MIN);
            return;
        }
        self.failed = self.failed.saturating_add(1);
        let is_recent = (0..BACK_OFF_MAX_US).contains(&now.since(self.replied));
        if is_recent && self.ticks.iter().flatten().any(|ticks| !ticks.has_failed) {
            return;
        }
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

/// Longest time from the start of a period to a request whose sample has the instant of the start.
pub(super) fn on_time_us(period_us: i64) -> i64 {
    (period_us / SPREAD).min(SPREAD_MAX_US)
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
        assert_eq!((due.places, due.at), (vec![(0, 0)], at(8 * SECOND)), "that of 5 s is missed");
        assert_eq!(schedule.take(at(10 * SECOND)).places, [(0, 1), (2, 1)]);
        // Another period restarts the ticks.
        schedule
            .set(&[(Some(0), None), (Some(1), Some(one)), (Some(2), Some(one))], at(11 * SECOND));
        assert_eq!(schedule.take(at(11 * SECOND)).places, [(1, 0), (2, 0)]);
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
        let failed = || std::iter::once((0, true));
        let mut schedule = of_periods(&[Duration::from_secs(1)], 0, at(0));
        let (mut now, mut waits) = (at(0), Vec::new());
        for _ in 0..12 {
            schedule.take(now);
            schedule.answered(failed(), false, now);
            waits.push(schedule.next().since(now) / SECOND);
            now = schedule.next();
        }
        assert_eq!(waits[..6], [1, 1, 1, 1, 3, 7]);
        assert!(waits.iter().all(|wait| *wait <= 30), "{waits:?}");
        schedule.take(now);
        schedule.answered(failed(), true, now);
        assert_eq!(schedule.next().since(now), SECOND);
        // However long the exchanges take, the requests stay at their instant of the period.
        let mut schedule = of_periods(&[Duration::from_secs(1)], 42_000, at(SECOND));
        for _ in 0..40 {
            let now = schedule.next();
            assert_eq!(now.0 % SECOND, 42_000);
            assert_eq!(schedule.take(now.plus(2000)).at.0 % SECOND, 0);
            schedule.answered(failed(), false, now.plus(300_000));
        }
        // A long period is kept.
        let mut schedule = of_periods(&[Duration::from_secs(300)], 0, at(0));
        for _ in 0..9 {
            schedule.take(schedule.next());
            schedule.answered(failed(), false, at(0));
        }
        assert_eq!(schedule.next(), at(9 * 300 * SECOND));
    }

    #[test]
    fn a_request_on_time_for_a_longer_period_has_its_start() {
        let periods = [1000, 500].map(Duration::from_millis);
        let mut schedule = of_periods(&periods, 0, at(SECOND));
        let due = schedule.take(at(SECOND + 94_000));
        assert_eq!((due.places, due.at), (vec![(0, 0), (1, 0)], at(SECOND)));
        // A sample of a request that left later has its own instant, and the next one follows it.
        schedule.sampled(at(SECOND + 500_010));
        assert_eq!(schedule.take(at(SECOND + 500_020)).at, at(SECOND + 500_020));
        assert_eq!(schedule.take(at(2 * SECOND)).at, at(2 * SECOND));
    }

    #[test]
    fn a_silent_part_costs_no_tick_of_one_that_is_answered() {
        let periods = [10, 1].map(Duration::from_secs);
        let mut schedule = of_periods(&periods, 42_000, at(9 * SECOND));
        let (mut good, mut silent) = (Vec::new(), Vec::new());
        while good.last() < Some(&(40 * SECOND)) {
            let now = schedule.next();
            let (is_unanswered, due) = (schedule.is_unanswered(now), schedule.take(now));
            let places: Vec<_> = due.places.iter().map(|(place, _)| *place).collect();
            let is_answered = places.contains(&0);
            if is_answered {
                assert_eq!(due.places.first(), Some(&(0, 0)), "no tick is missed");
                assert!(!is_unanswered);
                good.push(due.at.0);
            }
            silent.push(due.at.0);
            let tried = places.into_iter().map(|place| (place, place == 1));
            schedule.answered(tried, is_answered, now);
        }
        assert_eq!(good, [10, 20, 30, 40].map(|second| second * SECOND));
        assert_eq!(silent, (9..=40).map(|second| second * SECOND).collect::<Vec<_>>());

        // A target that is dead is polled less often after 30 s, and the description that was answered before at its tick.
        let periods = [300, 1].map(Duration::from_secs);
        let mut schedule = of_periods(&periods, 0, at(300 * SECOND));
        schedule.take(at(300 * SECOND));
        schedule.answered([(0, false), (1, false)].into_iter(), true, at(300 * SECOND));
        let mut requests = Vec::new();
        while requests.last() < Some(&600) {
            let now = schedule.next();
            let places = schedule.take(now).places;
            requests.push(now.0 / SECOND);
            schedule.answered(places.iter().map(|(place, _)| (*place, true)), false, now);
        }
        assert_eq!(requests[..32], [(301..=330).collect(), vec![359, 388]].concat());
        assert_eq!(requests.last(), Some(&600));
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
