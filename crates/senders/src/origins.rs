//! Every known sender, by name and by number, and their missing batches.

use crate::dedup_window::Missing;
use crate::limits::Limits;
use crate::origin::{BootState, LOG, OriginState, Received};
use crate::share::{Share, ShareCounts};
use model::{DeviceId, Gap, Origin, Timestamp};
use std::collections::{BTreeSet, HashMap};
use storage::OriginInfo;

/// A sender's index; valid as long as the process runs.
pub type OriginNumber = u32;

/// All senders.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    /// `None`: the number is free.
    list: Vec<Option<OriginState>>,
    by_name: HashMap<Origin, OriginNumber>,
    /// Number of origins among them of kinds that have a share.
    shares: ShareCounts,
    /// Damaged places of the log, newest last.
    pub damage: Vec<Received>,
}

impl Origins {
    /// Known senders, and the damaged places of the log.
    pub fn new(list: Vec<OriginState>, damage: Vec<Received>) -> Self {
        let by_name = list.iter().zip(0..).map(|(state, n)| (state.name.clone(), n)).collect();
        let mut shares = ShareCounts::default();
        list.iter().for_each(|state| shares.add(Share::of(&state.name)));
        Self { list: list.into_iter().map(Some).collect(), by_name, shares, damage }
    }

    /// The number of a sender. A new sender gets one if the limit permits.
    pub(crate) fn number(&mut self, name: &Origin, max: usize) -> Option<OriginNumber> {
        if let Some(number) = self.by_name.get(name) {
            return Some(*number);
        }
        let share = Share::of(name);
        let is_used = share.is_some_and(|share| *self.shares.of(share) >= share.max(max));
        if self.by_name.len() >= max || is_used {
            return None;
        }
        self.shares.add(share);
        // As many names as entries: none is free, so skip the search.
        let full = self.by_name.len() == self.list.len();
        let free = if full { None } else { self.list.iter().position(Option::is_none) };
        let index = free.unwrap_or(self.list.len());
        let number = u32::try_from(index).ok()?;
        self.by_name.insert(name.clone(), number);
        let new = Some(OriginState::new(name.clone()));
        match self.list.get_mut(index) {
            Some(slot) => *slot = new,
            None => self.list.push(new),
        }
        Some(number)
    }

    /// Replaces the states by those that a store has, after it could not write. Each origin keeps its number, so what refers to it
    /// remains valid. Nothing of an origin without a stored state is stored. Returns the origins with acknowledged batches
    /// that the store lacks, because its database was restored from a backup: these batches are missing from now on.
    pub fn restore(&mut self, stored: Vec<OriginState>, now: Timestamp) -> Vec<OriginNumber> {
        let mut stored: HashMap<Origin, OriginState> =
            stored.into_iter().map(|state| (state.name.clone(), state)).collect();
        let mut lacking = Vec::new();
        for (state, number) in self.list.iter_mut().zip(0..) {
            let Some(state) = state else { continue };
            let found = stored.remove(&state.name);
            let mut new = found.unwrap_or_else(|| OriginState::new(state.name.clone()));
            new.claim_as(state);
            // The store has dropped what is forgotten.
            if !state.is_forgotten(now) && new.lacks(state) {
                lacking.push(number);
            }
            *state = new;
        }
        for state in stored.into_values() {
            if let Some(number) = self.number(&state.name, usize::MAX)
                && let Some(new) = self.get_mut(number)
            {
                *new = state;
            }
        }
        lacking
    }

    /// Adds what an earlier process acknowledged. Returns the origins with batches that the store lacks, as [`Self::restore`].
    pub fn compare(&mut self, acknowledged: &[OriginState], now: Timestamp) -> Vec<OriginNumber> {
        let mut lacking = Vec::new();
        for before in acknowledged.iter().filter(|state| !state.is_forgotten(now)) {
            let Some(number) = self.number(&before.name, usize::MAX) else { continue };
            let Some(state) = self.get_mut(number) else { continue };
            if state.lacks(before) {
                state.claim_as(before);
                lacking.push(number);
            }
        }
        lacking
    }

    /// The sender with a number.
    pub fn get(&self, number: OriginNumber) -> Option<&OriginState> {
        self.list.get(number as usize)?.as_ref()
    }

    /// The sender with a number.
    pub fn get_mut(&mut self, number: OriginNumber) -> Option<&mut OriginState> {
        self.list.get_mut(number as usize)?.as_mut()
    }

    /// All of them, by number.
    pub fn all(&self) -> impl Iterator<Item = &OriginState> {
        self.list.iter().flatten()
    }

    /// Number of senders.
    pub(crate) fn count(&self) -> usize {
        self.by_name.len()
    }

    /// Removes idle boots from the window; returns gaps for their missing batches.
    pub fn expire(&mut self, now: Timestamp, limits: &Limits) -> Vec<Gap> {
        self.list.iter_mut().flatten().flat_map(|state| state.expire(now, limits)).collect()
    }

    /// Removes idle origins of users; returns their numbers, which are free, and gaps for their missing batches.
    pub(crate) fn forget_runs(&mut self, now: Timestamp) -> (BTreeSet<OriginNumber>, Vec<Gap>) {
        let (mut free, mut given_up) = (BTreeSet::new(), Vec::new());
        for (slot, number) in self.list.iter_mut().zip(0..) {
            let ended =
                |state: &mut OriginState| state.name.is_of_user() && state.is_forgotten(now);
            let Some(mut state) = slot.take_if(ended) else { continue };
            let missing: Vec<Missing> =
                state.boots.iter_mut().flat_map(BootState::give_up).collect();
            given_up.extend(state.lost(missing, &self.damage));
            self.by_name.remove(&state.name);
            self.shares.subtract(Some(Share::Users), 1);
            free.insert(number);
        }
        (free, given_up)
    }

    /// Information about each, ordered by name.
    pub fn infos(&self) -> Vec<OriginInfo> {
        let mut infos: Vec<_> = self.all().map(OriginState::info).collect();
        infos.sort_by(|a, b| a.origin.cmp(&b.origin));
        infos
    }

    /// Gaps for batches that are missing now, in holes older than `grace_us`, except those covered by gaps
    /// among `reported`: their sender reported the cause.
    pub(crate) fn missing<'a>(
        &self,
        now: Timestamp,
        grace_us: i64,
        reported: impl Iterator<Item = &'a Gap>,
    ) -> Vec<Gap> {
        let mut by_origin: HashMap<&Origin, Vec<&Gap>> = HashMap::new();
        for gap in reported.filter(|gap| gap.source.is_empty()) {
            by_origin.entry(&gap.origin).or_default().push(gap);
        }
        let mut gaps = Vec::new();
        let mut unexplained: Vec<&Received> = self.damage.iter().collect();
        for state in self.all() {
            let reported = by_origin.get(&state.name).map(Vec::as_slice).unwrap_or_default();
            let is_reported = |missing: &Missing| {
                reported.iter().any(|gap| gap.from <= missing.from && gap.to >= missing.to)
            };
            let first = state.boots.iter().filter_map(|boot| {
                let missing = boot.spans.missing_before(boot.base)?;
                let explained =
                    self.damage.iter().any(|lost| missing.is_first_and_explained_by(lost));
                let since = state.missing_first(boot);
                if !explained {
                    return Some((boot, since?));
                }
                let from = since.map_or(missing.from, |since| since.from);
                Some((boot, Missing { from, ..missing }))
            });
            let first: Vec<Missing> =
                first.flat_map(|(boot, missing)| boot.parts(missing)).collect();
            unexplained.retain(|lost| !first.iter().any(|one| one.is_first_and_explained_by(lost)));
            let open = state.boots.iter().flat_map(BootState::missing);
            let open: Vec<Missing> = open.chain(first).collect();
            unexplained.retain(|lost| !open.iter().any(|one| one.is_explained_by(lost)));
            let due =
                |missing: &Missing| now.since(missing.after) >= grace_us && !is_reported(missing);
            gaps.extend(state.lost(open.into_iter().filter(due).collect(), &self.damage));
        }
        gaps.extend(unexplained.into_iter().filter_map(Received::gap));
        gaps
    }

    /// The gap with this device, if it concerns it.
    pub(crate) fn concerning(&self, mut gap: Gap, device: &DeviceId) -> Option<Gap> {
        let state = self.by_name.get(&gap.origin).and_then(|number| self.get(*number));
        if gap.origin.as_str() == LOG {
            return Some(Gap { device: device.clone(), ..gap });
        }
        let concerned = match state {
            Some(state) => state.concerns(&gap.device, device),
            None => gap.device == *device,
        };
        concerned.then(|| {
            gap.device = device.clone();
            gap
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dedup_window::BatchMark;
    use crate::origin::{Seen, Stored};
    use model::{Boot, Cause};

    fn stored(boot: u8, seq: u64, at: i64) -> Stored {
        let instants = Some((Timestamp(at), Timestamp(at)));
        let mark = BatchMark { seq, instants, received: Timestamp(at + 5) };
        Stored { boot: Boot([boot; 16]), mark, samples: 2, samples_rejected: 1 }
    }

    fn stored_batch(seq: u64) -> Stored {
        stored(1, seq, 600)
    }

    fn origins() -> Origins {
        let mut origins = Origins::default();
        let number = origins.number(&Origin::new("n1").unwrap(), 10).unwrap();
        let state = origins.get_mut(number).unwrap();
        state.claim(&DeviceId::new("n1").unwrap());
        for (seq, at) in [(0, 100), (1, 200), (4, 500)] {
            assert_eq!(state.note(&stored(1, seq, at), &Limits::default()), []);
        }
        origins
    }

    #[test]
    fn duplicate_batches_are_detected() {
        let origins = origins();
        let state = origins.get(0).unwrap();
        assert_eq!(state.seen(Boot([1; 16]), 1), Seen::Before);
        assert_eq!(state.seen(Boot([1; 16]), 2), Seen::New);
        assert_eq!(state.seen(Boot([2; 16]), 1), Seen::New);
        let info = &origins.infos()[0];
        assert_eq!((info.batches, info.samples, info.samples_rejected), (3, 6, 3));
        assert_eq!((info.sealed, info.clock_offset_us), (Timestamp(500), -5));
        assert_eq!((info.boots[0].last_seq, info.boots[0].missing), (4, 2));
    }

    #[test]
    fn an_older_batch_does_not_move_the_clock() {
        let mut origins = origins();
        origins.get_mut(0).unwrap().note(&stored(1, 2, 300), &Limits::default());
        assert_eq!(origins.infos()[0].sealed, Timestamp(500));
    }

    #[test]
    fn lasting_missing_batches_are_a_gap_unless_their_sender_reported_it() {
        let origins = origins();
        assert_eq!(origins.missing(Timestamp(506), 10, [].iter()), []);
        let gaps = origins.missing(Timestamp(515), 10, [].iter());
        assert_eq!(gaps.len(), 1);
        assert_eq!((gaps[0].from, gaps[0].to), (Timestamp(200), Timestamp(500)));
        assert_eq!(gaps[0].cause, Cause::BatchesLost);
        let reported = Gap { cause: Cause::SpoolFull, ..gaps[0].clone() };
        assert_eq!(origins.missing(Timestamp(515), 10, [reported].iter()), []);
    }

    #[test]
    fn batches_lost_by_the_log_have_that_cause() {
        let mut origins = origins();
        origins.damage.push(Received { from: Timestamp(205), to: Timestamp(505) });
        let gaps = origins.missing(Timestamp(515), 10, [].iter());
        assert_eq!(gaps[0].cause, Cause::LogDamaged);
    }

    #[test]
    fn batches_of_a_boot_outside_the_window_are_too_late_and_its_missing_ones_are_a_gap() {
        let mut origins = origins();
        let limits = Limits { window_us: 1000, ..Limits::default() };
        assert_eq!(origins.expire(Timestamp(1505), &limits), []);
        let gaps = origins.expire(Timestamp(1506), &limits);
        assert_eq!((gaps.len(), gaps[0].from), (1, Timestamp(200)));
        let state = origins.get(0).unwrap();
        assert_eq!(state.seen(Boot([1; 16]), 3), Seen::TooLate);
        assert_eq!(state.seen(Boot([1; 16]), 7), Seen::New);
        assert_eq!(state.seen(Boot([3; 16]), 7), Seen::New);
    }

    #[test]
    fn boots_are_bounded() {
        let mut origins = origins();
        let limits = Limits { boots_max: 2, ..Limits::default() };
        let state = origins.get_mut(0).unwrap();
        assert_eq!(state.note(&stored(2, 0, 600), &limits), []);
        assert_eq!(state.note(&stored(3, 0, 700), &limits).len(), 1);
        assert_eq!(state.seen(Boot([1; 16]), 0), Seen::TooLate);
    }

    #[test]
    fn origins_round_trip_through_json() {
        let origins = origins();
        let text = serde_json::to_string(&origins.all().collect::<Vec<_>>()).unwrap();
        let again = Origins::new(serde_json::from_str(&text).unwrap(), Vec::new());
        assert_eq!(again.infos(), origins.infos());
    }

    #[test]
    fn restored_states_keep_the_numbers_and_devices_of_their_origins() {
        let mut origins = origins();
        let stored: Vec<_> = origins.all().cloned().collect();
        let new = origins.number(&Origin::new("n2").unwrap(), 10).unwrap();
        origins.get_mut(new).unwrap().note(&stored_batch(0), &Limits::default());
        let n1 = origins.get_mut(0).unwrap();
        n1.claim(&DeviceId::new("bmc1").unwrap());
        n1.note(&stored_batch(5), &Limits::default());
        let mut other = stored[0].clone();
        other.name = Origin::new("n3").unwrap();
        origins.restore([stored, vec![other]].concat(), Timestamp(5000));
        let seen = |number: u32, seq| origins.get(number).unwrap().seen(Boot([1; 16]), seq);
        assert_eq!([seen(0, 4), seen(0, 5), seen(new, 0)], [Seen::Before, Seen::New, Seen::New]);
        let infos = origins.infos();
        let names: Vec<&str> = infos.iter().map(|info| info.origin.as_str()).collect();
        assert_eq!((names, infos[0].devices.len()), (vec!["n1", "n2", "n3"], 2));
    }

    #[test]
    fn acknowledged_batches_that_a_restored_database_lacks_are_gaps() {
        let mut origins = origins();
        let backup: Vec<_> = origins.all().cloned().collect();
        let (limits, now) = (Limits::default(), Timestamp(5000));
        for (seq, at) in [(5, 600), (6, 700)] {
            origins.get_mut(0).unwrap().note(&stored(1, seq, at), &limits);
        }
        origins.get_mut(0).unwrap().note(&stored(2, 0, 800), &limits);
        let new = origins.number(&Origin::new("n2").unwrap(), 10).unwrap();
        origins.get_mut(new).unwrap().claim(&DeviceId::new("n2").unwrap());
        origins.get_mut(new).unwrap().note(&stored(7, 0, 900), &limits);
        let acknowledged: Vec<_> = origins.all().cloned().collect();
        assert!(origins.restore(acknowledged.clone(), now).is_empty());
        let gaps = |origins: &Origins| {
            let gaps = origins.missing(Timestamp(5000), 10, [].iter());
            let all = gaps.iter().map(|gap| (gap.device.to_string(), gap.from.0, gap.to.0));
            all.collect::<Vec<_>>()
        };
        let mut later = Origins::new(backup.clone(), Vec::new());
        let mut forgotten = origins.clone();
        assert!(forgotten.restore(backup.clone(), Timestamp(i64::MAX)).is_empty());
        assert_eq!(origins.restore(backup.clone(), now), [0, new]);
        assert!(later.compare(&acknowledged, Timestamp(i64::MAX)).is_empty());
        assert_eq!(later.compare(&acknowledged, now).len(), 2);
        for origins in [&mut origins, &mut later] {
            let n1 = |from, to| ("n1".to_owned(), from, to);
            let missing = [n1(200, 500), n1(500, 701), n1(799, 801), ("n2".to_owned(), 899, 901)];
            assert_eq!(gaps(origins), missing);
            assert_eq!(origins.missing(Timestamp(600), 1000, [].iter()).len(), 3, "without delay");
            // Senders go on after the last acknowledged batch.
            origins.get_mut(0).unwrap().note(&stored(1, 7, 1000), &limits);
            origins.get_mut(1).unwrap().note(&stored(7, 1, 1100), &limits);
            let missing = [n1(200, 500), n1(500, 1000), n1(799, 801), ("n2".to_owned(), 899, 1100)];
            assert_eq!(gaps(origins), missing);
            // The states survive their text form, and a second comparison adds nothing.
            let text = serde_json::to_string(&origins.all().collect::<Vec<_>>()).unwrap();
            let mut again = Origins::new(serde_json::from_str(&text).unwrap(), Vec::new());
            assert_eq!(
                (gaps(&again), again.compare(&acknowledged, now).len()),
                (missing.to_vec(), 0)
            );
        }
    }

    #[test]
    fn acknowledged_rows_of_any_time_are_gaps_at_their_time() {
        let second = |at: i64| Timestamp(at * Timestamp::SECOND);
        let state = |batches: &[(u64, i64, i64)]| {
            let mut state = OriginState::new(Origin::new("push/rows").unwrap());
            state.claim(&DeviceId::new("hist").unwrap());
            for (seq, from, to) in batches {
                let (from, to) = (second(*from), second(*to));
                let mark = BatchMark { seq: *seq, instants: Some((from, to)), received: to };
                let boot = Boot([1; 16]);
                let stored = Stored { boot, mark, samples: 1, samples_rejected: 0 };
                assert_eq!(state.note(&stored, &Limits::default()), []);
            }
            state
        };
        let day = 86_400;
        let (now, backup) = (5 * day, vec![(0, 5 * day, 5 * day), (1, 5 * day + 8, 5 * day + 8)]);
        let since = [
            (2, day, day + 9),
            (3, now + 20, now + 30),
            (4, now + 2, now + 31),
            (5, 2 * day, 2 * day),
        ];
        let known = state(&[backup.clone(), since.to_vec()].concat());
        let mut origins = Origins::new(vec![state(&backup)], Vec::new());
        let at = second(now + 100);
        assert_eq!(origins.compare(&[known], at), [0]);
        let gaps = |origins: &Origins| {
            let gaps = origins.missing(at, 0, [].iter());
            let all = gaps.iter().map(|gap| (gap.from, gap.to, gap.detail.to_string()));
            all.collect::<Vec<_>>()
        };
        let gap = |from, to, batches: u32| {
            (second(from).plus(-1), second(to).plus(1), format!("{batches} batches"))
        };
        let lost = [gap(day, day + 9, 1), gap(now + 2, now + 31, 2), gap(2 * day, 2 * day, 1)];
        assert_eq!(gaps(&origins), lost);
        // Later rows change nothing, and the states survive their text form.
        let next = Stored {
            boot: Boot([1; 16]),
            mark: BatchMark { seq: 6, instants: Some((at, at)), received: at },
            samples: 1,
            samples_rejected: 0,
        };
        origins.get_mut(0).unwrap().note(&next, &Limits::default());
        let text = serde_json::to_string(&origins.all().collect::<Vec<_>>()).unwrap();
        let again = Origins::new(serde_json::from_str(&text).unwrap(), Vec::new());
        assert_eq!((gaps(&origins), gaps(&again)), (lost.to_vec(), lost.to_vec()));
    }

    #[test]
    fn commands_of_users_have_a_quarter_of_the_origins_and_pollers_a_half() {
        let mut origins = Origins::default();
        let mut number = |name: String| origins.number(&Origin::new(&name).unwrap(), 8);
        let runs = (1..9).filter_map(|run| number(format!("n1/run-{run}"))).count();
        let groups = (0..9).filter_map(|group| number(format!("poller-a/group-{group}"))).count();
        let agents = (0..9).filter_map(|node| number(format!("n{node}"))).count();
        assert_eq!((runs, groups, agents), (2, 4, 2));
        origins.forget_runs(Timestamp(i64::MAX));
        assert_eq!(*origins.shares.of(Share::Users), 0);
    }

    #[test]
    fn origins_are_bounded() {
        let mut origins = origins();
        assert_eq!(origins.number(&Origin::new("n2").unwrap(), 1), None);
        assert_eq!(origins.number(&Origin::new("n1").unwrap(), 1), Some(0));
    }
}
