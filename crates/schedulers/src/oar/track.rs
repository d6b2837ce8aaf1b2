//! Selects the jobs to fetch: those that a list shows to be new or changed.

use model::Timestamp;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Delay before a completed job is fetched once more: OAR may still update it.
const RECHECK_DELAY: i64 = 30 * Timestamp::SECOND;
/// Most jobs that wait for that.
const RECHECKS_MAX: usize = 10_000;
/// Interval between refreshes of some open jobs, in turn. Refreshes find changes that the list does not show,
/// such as a new time limit.
const REFRESH_INTERVAL: i64 = 30 * Timestamp::SECOND;

/// The listed state of a job. Its change triggers a fetch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListedState {
    pub(crate) state: Box<str>,
    pub(crate) start: i64,
    pub(crate) moldable: i64,
}

/// The listed jobs that are not over.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listed {
    pub(crate) open: BTreeMap<i64, ListedState>,
    /// The list ends at this ID and lacks greater ones; `None`: it is complete.
    pub(crate) cut_after: Option<i64>,
}

/// The jobs fetched so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Track {
    /// Open jobs, as they were when last fetched.
    reported: BTreeMap<i64, ListedState>,
    /// Jobs to fetch after the changed ones.
    queued: BTreeSet<i64>,
    /// Completed jobs, and the time of their last fetch.
    rechecks: VecDeque<(Timestamp, i64)>,
    /// The last refreshed job, and the time of the next refresh.
    refresh: (i64, Timestamp),
}

impl Track {
    /// Queues completed jobs for fetching.
    pub(crate) fn queue(&mut self, ids: impl IntoIterator<Item = i64>) {
        self.queued.extend(ids);
    }

    /// Number of queued jobs.
    pub(crate) fn waiting(&self) -> usize {
        self.queued.len()
    }

    /// The jobs to fetch in this round, at most `most`, and whether more wait.
    pub(crate) fn wanted(
        &mut self,
        listed: &Listed,
        now: Timestamp,
        most: usize,
    ) -> (Vec<i64>, bool) {
        while let Some((at, id)) = self.rechecks.front().copied()
            && at <= now
        {
            self.rechecks.pop_front();
            self.queued.insert(id);
        }
        let changed = listed.open.iter().filter(|(id, sign)| self.reported.get(id) != Some(sign));
        let in_list = |id: &i64| listed.cut_after.is_none_or(|last| *id <= last);
        let gone = self.reported.keys().filter(|id| in_list(id) && !listed.open.contains_key(id));
        let urgent = changed.map(|(id, _)| *id).chain(gone.copied());
        let mut wanted: Vec<i64> = urgent.take(most.saturating_add(1)).collect();
        let free = most.saturating_add(1).saturating_sub(wanted.len());
        wanted.extend(self.queued.iter().take(free));
        if wanted.len() > most {
            wanted.truncate(most);
            return (wanted, true);
        }
        let (last, at) = self.refresh;
        // A clock that was set back refreshes at once.
        if wanted.len() <= most / 2 && (at <= now || at > now.plus(REFRESH_INTERVAL)) {
            let some = self.reported.range(last.saturating_add(1)..).map(|(id, _)| *id);
            let some: Vec<i64> = some.take(most / 2).collect();
            let last = some.last().copied().filter(|_| some.len() == most / 2).unwrap_or(0);
            self.refresh = (last, now.plus(REFRESH_INTERVAL));
            wanted.extend(some);
        }
        wanted.sort_unstable();
        wanted.dedup();
        (wanted, false)
    }

    /// Records that these jobs were fetched; `over` lists the completed ones.
    pub(crate) fn record_queried(
        &mut self,
        ids: &[i64],
        listed: &Listed,
        over: &[i64],
        now: Timestamp,
    ) {
        for id in ids {
            self.queued.remove(id);
            let was_open = match listed.open.get(id) {
                Some(sign) => self.reported.insert(*id, sign.clone()).is_some(),
                None => self.reported.remove(id).is_some(),
            };
            if was_open && over.contains(id) && self.rechecks.len() < RECHECKS_MAX {
                self.rechecks.push_back((now.plus(RECHECK_DELAY), *id));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_700_000_000_000_000);

    fn listed(jobs: &[(i64, &str)]) -> Listed {
        let sign = |state: &str| ListedState { state: state.into(), ..ListedState::default() };
        let open = jobs.iter().map(|(id, state)| (*id, sign(state))).collect();
        Listed { open, cut_after: None }
    }

    /// Fetches the wanted jobs and returns their IDs.
    fn round(track: &mut Track, listed: &Listed, now: Timestamp, over: &[i64]) -> Vec<i64> {
        let (wanted, _) = track.wanted(listed, now, 4);
        track.record_queried(&wanted, listed, over, now);
        wanted
    }

    #[test]
    fn changed_jobs_are_fetched() {
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
    fn unchanged_jobs_are_refreshed_in_turn() {
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
    fn completed_jobs_are_fetched_at_once_and_once_more() {
        let mut track = Track::default();
        round(&mut track, &listed(&[(5, "Running")]), NOW, &[]);
        assert_eq!(round(&mut track, &listed(&[]), NOW, &[5]), [5]);
        assert_eq!(round(&mut track, &listed(&[]), NOW, &[]), [0; 0]);
        let later = NOW.plus(RECHECK_DELAY);
        assert_eq!(round(&mut track, &listed(&[]), later, &[5]), [5]);
        assert_eq!(round(&mut track, &listed(&[]), later.plus(RECHECK_DELAY), &[5]), [0; 0]);
    }

    #[test]
    fn a_truncated_list_implies_nothing_about_later_jobs() {
        let mut track = Track::default();
        round(&mut track, &listed(&[(1, "Waiting"), (9, "Running")]), NOW, &[]);
        let cut = Listed { cut_after: Some(1), ..listed(&[(1, "Hold")]) };
        assert_eq!(track.wanted(&cut, NOW, 4).0, [1]);
    }

    #[test]
    fn a_failed_fetch_is_repeated() {
        let mut track = Track::default();
        track.queue([3, 4]);
        let now = listed(&[(8, "Running")]);
        let first = track.wanted(&now, NOW, 2);
        assert_eq!(first, (vec![8, 3], true));
        assert_eq!(track.wanted(&now, NOW, 2), first);
        track.record_queried(&[3, 8], &now, &[3], NOW);
        // The limit leaves space to refresh the other job.
        assert_eq!((track.wanted(&now, NOW, 2), track.waiting()), ((vec![4, 8], false), 1));
    }
}
