//! Which jobs are worth asking for: those of which a list tells something new.

use model::Timestamp;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How long after its end a job is asked for once more: OAR may still write of it.
const ONCE_MORE_AFTER: i64 = 30 * Timestamp::SECOND;
/// Most jobs that wait for that.
const ONCE_MORE_MAX: usize = 10_000;
/// How often some of those that are not over are asked for again, each in its turn: what the list does not
/// tell, such as a time limit that was moved, is seen so.
const AGAIN_EVERY: i64 = 30 * Timestamp::SECOND;

/// What a list tells of a job: when it changes, the job is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sign {
    pub(crate) state: Box<str>,
    pub(crate) start: i64,
    pub(crate) moldable: i64,
}

/// What is not over, as a list tells it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listed {
    pub(crate) open: BTreeMap<i64, Sign>,
    /// The list ends here and jobs with greater numbers are not in it; `None`: it is whole.
    pub(crate) cut_after: Option<i64>,
}

/// What was asked for so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Track {
    /// What is not over, as it was when it was asked for.
    told: BTreeMap<i64, Sign>,
    /// Jobs to ask for when those that changed have been.
    later: BTreeSet<i64>,
    /// Jobs that ended, and when they are asked for once more.
    once_more: VecDeque<(Timestamp, i64)>,
    /// The last one that was asked for again, and when the next are.
    again: (i64, Timestamp),
}

impl Track {
    /// Puts jobs that are over on the list of what to ask for.
    pub(crate) fn ask_later(&mut self, ids: impl IntoIterator<Item = i64>) {
        self.later.extend(ids);
    }

    /// How many wait to be asked for that did not change.
    pub(crate) fn waiting(&self) -> usize {
        self.later.len()
    }

    /// What to ask for in this round, at most so many, and whether more waits.
    pub(crate) fn wanted(
        &mut self,
        listed: &Listed,
        now: Timestamp,
        most: usize,
    ) -> (Vec<i64>, bool) {
        while let Some((at, id)) = self.once_more.front().copied()
            && at <= now
        {
            self.once_more.pop_front();
            self.later.insert(id);
        }
        let changed = listed.open.iter().filter(|(id, sign)| self.told.get(id) != Some(sign));
        let in_list = |id: &i64| listed.cut_after.is_none_or(|last| *id <= last);
        let gone = self.told.keys().filter(|id| in_list(id) && !listed.open.contains_key(id));
        let urgent = changed.map(|(id, _)| *id).chain(gone.copied());
        let mut wanted: Vec<i64> = urgent.take(most.saturating_add(1)).collect();
        let room = most.saturating_add(1).saturating_sub(wanted.len());
        wanted.extend(self.later.iter().take(room));
        if wanted.len() > most {
            wanted.truncate(most);
            return (wanted, true);
        }
        let (last, at) = self.again;
        // A clock that was set back asks at once.
        if wanted.len() <= most / 2 && (at <= now || at > now.plus(AGAIN_EVERY)) {
            let some = self.told.range(last.saturating_add(1)..).map(|(id, _)| *id);
            let some: Vec<i64> = some.take(most / 2).collect();
            let last = some.last().copied().filter(|_| some.len() == most / 2).unwrap_or(0);
            self.again = (last, now.plus(AGAIN_EVERY));
            wanted.extend(some);
        }
        wanted.sort_unstable();
        wanted.dedup();
        (wanted, false)
    }

    /// Notes that these were asked for; `over` are those of them that are over.
    pub(crate) fn asked(&mut self, ids: &[i64], listed: &Listed, over: &[i64], now: Timestamp) {
        for id in ids {
            self.later.remove(id);
            let was_open = match listed.open.get(id) {
                Some(sign) => self.told.insert(*id, sign.clone()).is_some(),
                None => self.told.remove(id).is_some(),
            };
            if was_open && over.contains(id) && self.once_more.len() < ONCE_MORE_MAX {
                self.once_more.push_back((now.plus(ONCE_MORE_AFTER), *id));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_700_000_000_000_000);

    fn listed(jobs: &[(i64, &str)]) -> Listed {
        let sign = |state: &str| Sign { state: state.into(), ..Sign::default() };
        let open = jobs.iter().map(|(id, state)| (*id, sign(state))).collect();
        Listed { open, cut_after: None }
    }

    /// Asks for what is wanted, and says what that was.
    fn round(track: &mut Track, listed: &Listed, now: Timestamp, over: &[i64]) -> Vec<i64> {
        let (wanted, _) = track.wanted(listed, now, 4);
        track.asked(&wanted, listed, over, now);
        wanted
    }

    #[test]
    fn what_changes_is_asked_for() {
        let mut track = Track::default();
        assert_eq!(round(&mut track, &listed(&[(1, "Waiting")]), NOW, &[]), [1]);
        assert_eq!(round(&mut track, &listed(&[(1, "Waiting")]), NOW, &[]), [0; 0]);
        let now = listed(&[(1, "Waiting"), (2, "Running"), (3, "Waiting"), (4, "Waiting")]);
        assert_eq!(track.wanted(&now, NOW, 2), (vec![2, 3], true));
        assert_eq!(round(&mut track, &now, NOW, &[]), [2, 3, 4]);
        let now = listed(&[(1, "Running"), (2, "Running"), (3, "Waiting"), (4, "Waiting")]);
        assert_eq!(track.wanted(&now, NOW, 4), (vec![1], false));
    }

    #[test]
    fn what_did_not_change_is_asked_for_again_in_turn() {
        let mut track = Track::default();
        let all = listed(&[(1, "Running"), (2, "Running"), (3, "Running")]);
        assert_eq!(round(&mut track, &all, NOW, &[]), [1, 2, 3]);
        let mut turns = Vec::new();
        for turn in 1..=60 {
            let at = NOW.plus(turn * Timestamp::SECOND);
            turns.extend(round(&mut track, &all, at, &[]));
        }
        assert_eq!(turns, [1, 2, 3]);
    }

    #[test]
    fn what_is_over_is_asked_for_at_once_and_once_more() {
        let mut track = Track::default();
        round(&mut track, &listed(&[(5, "Running")]), NOW, &[]);
        assert_eq!(round(&mut track, &listed(&[]), NOW, &[5]), [5]);
        assert_eq!(round(&mut track, &listed(&[]), NOW, &[]), [0; 0]);
        let later = NOW.plus(ONCE_MORE_AFTER);
        assert_eq!(round(&mut track, &listed(&[]), later, &[5]), [5]);
        assert_eq!(round(&mut track, &listed(&[]), later.plus(ONCE_MORE_AFTER), &[5]), [0; 0]);
    }

    #[test]
    fn a_list_that_is_cut_says_nothing_of_what_follows() {
        let mut track = Track::default();
        round(&mut track, &listed(&[(1, "Waiting"), (9, "Running")]), NOW, &[]);
        let cut = Listed { cut_after: Some(1), ..listed(&[(1, "Hold")]) };
        assert_eq!(track.wanted(&cut, NOW, 4).0, [1]);
    }

    #[test]
    fn a_job_whose_asking_failed_is_asked_for_again() {
        let mut track = Track::default();
        track.ask_later([3, 4]);
        let now = listed(&[(8, "Running")]);
        let first = track.wanted(&now, NOW, 2);
        assert_eq!(first, (vec![8, 3], true));
        assert_eq!(track.wanted(&now, NOW, 2), first);
        track.asked(&[3, 8], &now, &[3], NOW);
        // There is room to look at the other again.
        assert_eq!((track.wanted(&now, NOW, 2), track.waiting()), ((vec![4, 8], false), 1));
    }
}
