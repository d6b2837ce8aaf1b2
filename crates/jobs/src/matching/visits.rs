//! Groups the visits of a job ID into runs.
//!
//! The visits are sorted by start. A visit joins an earlier run if one of these conditions holds:
//! - Another device of that run is still in use, or ended less than [`TOGETHER`] before. The nodes of a
//!   job start and end one after another. A scheduler may create the cgroup of a node only when a step
//!   needs it.
//! - The device is the same, and the visits start or follow each other within [`TOGETHER`].
//!
//! In both cases the visit and the run must have the same user, as far as the nodes report users. Of
//! two concurrent runs of two users, a visit joins the run of its own user.
//!
//! Otherwise the scheduler reused the job ID, and the visit starts a new run. One device never has two
//! cgroups of one job ID at once. A visit without a reported end therefore ends when the next visit on
//! its device begins.

use model::{DeviceId, Timestamp};
use std::cmp::Reverse;
use std::collections::HashMap;

/// Maximum distance between visits of one run, in microseconds: 1 min. Schedulers wait longer before
/// they restart a job ID (Slurm: 2 min). The nodes of one start differ by less.
pub(crate) const TOGETHER: i64 = 60 * Timestamp::SECOND;

/// A cgroup of a job on a device, as reported.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Visit {
    /// Creation time of the cgroup.
    pub(crate) start: Timestamp,
    /// The device.
    pub(crate) device: DeviceId,
    /// Reported end of the cgroup, if any.
    pub(crate) reported_end: Option<Timestamp>,
    /// The identity that the node reported.
    pub(crate) identity: ReportedIdentity,
    /// Offset of the node's clock to the server's in microseconds; positive if the node's clock is ahead.
    pub(crate) clock_us: i64,
    /// Value of the request environment variable of the job there.
    pub(crate) monitor: Option<Box<str>>,
}

/// The job's identity in a node's report. `None` means not reported.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReportedIdentity {
    /// The job ID in the scheduler's notation, if different from the ID.
    pub(crate) display_id: Option<Box<str>>,
    pub(crate) user: Option<Box<str>>,
    pub(crate) uid: Option<u32>,
}

impl ReportedIdentity {
    /// Tests whether both may have the same user. It compares user IDs if both are known, else names.
    /// Without either, it returns `true`.
    pub(crate) fn agrees(&self, other: &Self) -> bool {
        match (self.uid.zip(other.uid), self.user.as_ref().zip(other.user.as_ref())) {
            (Some((one, other)), _) => one == other,
            (None, Some((one, other))) => one == other,
            (None, None) => true,
        }
    }

    /// Tests whether both name the same user.
    fn names_as(&self, other: &Self) -> bool {
        let same_user = || self.user.is_some() && self.user == other.user;
        self.agrees(other) && (self.uid.is_some() && self.uid == other.uid || same_user())
    }

    /// Tests whether this identity has a fact that `other` lacks.
    pub(crate) fn adds_to(&self, other: &Self) -> bool {
        let more = |this: bool, other: bool| this && !other;
        more(self.display_id.is_some(), other.display_id.is_some())
            || more(self.user.is_some(), other.user.is_some())
            || more(self.uid.is_some(), other.uid.is_some())
    }

    /// Fills the facts that this identity lacks from `later`.
    pub(crate) fn or(self, later: &Self) -> Self {
        Self {
            display_id: self.display_id.or_else(|| later.display_id.clone()),
            user: self.user.or_else(|| later.user.clone()),
            uid: self.uid.or(later.uid),
        }
    }
}

/// A visit with its effective end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BoundedVisit {
    pub(crate) visit: Visit,
    /// The reported end, or the start of the next visit of the device. `None`: the cgroup still exists.
    pub(crate) stop: Option<Timestamp>,
}

/// The visits of one run, sorted by start and device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) visits_found: Vec<BoundedVisit>,
}

impl Run {
    /// Start of the first visit.
    pub(crate) fn start(&self) -> Timestamp {
        self.visits_found.first().map_or(Timestamp(0), |visit_found| visit_found.visit.start)
    }

    /// Returns the identity of the run. Each fact comes from the first visit that reports it.
    pub(crate) fn identity(&self) -> ReportedIdentity {
        self.visits_found.iter().fold(ReportedIdentity::default(), |identity, visit_found| {
            identity.or(&visit_found.visit.identity)
        })
    }

    /// Returns the offset of the clock that measured the start, in microseconds ahead of the server's.
    pub(crate) fn clock_us(&self) -> i64 {
        self.visits_found.first().map_or(0, |visit_found| visit_found.visit.clock_us)
    }

    /// Returns the end of the last visit; `None` while one is open.
    pub(crate) fn stop(&self) -> Option<Timestamp> {
        self.visits_found
            .iter()
            .map(|visit_found| visit_found.stop)
            .try_fold(Timestamp(i64::MIN), |latest, stop| stop.map(|stop| stop.max(latest)))
    }
}

/// A run that a later visit may join.
struct OpenRun {
    /// Index of the run.
    place: usize,
    /// Latest known end of its visits; `None`: a visit is open.
    reach: Option<Timestamp>,
    /// The latest start on each of its devices.
    latest: HashMap<DeviceId, Timestamp>,
    identity: ReportedIdentity,
}

impl OpenRun {
    /// Ranks how well a visit fits; `None`: it does not fit. A run that names the visit's user ranks before
    /// a run of an unknown user. Next, the run with more devices ranks first. One node's report thus cannot
    /// pull a visit away from a run of several nodes.
    fn fits(&self, visit: &Visit) -> Option<(bool, usize, Reverse<usize>)> {
        let near = |other: Timestamp| visit.start.since(other) <= TOGETHER;
        let again = self.latest.get(&visit.device).is_some_and(|start| near(*start));
        let joins = (again || self.reach.is_none_or(near)) && self.identity.agrees(&visit.identity);
        let named = self.identity.names_as(&visit.identity);
        joins.then_some((named, self.latest.len(), Reverse(self.place)))
    }

    /// Tests whether a visit that begins at `start` or later may still join.
    fn lasts(&self, start: Timestamp) -> bool {
        let near = |other: Timestamp| start.since(other) <= TOGETHER;
        self.reach.is_none_or(near) || self.latest.values().any(|latest| near(*latest))
    }
}

/// Groups a set of visits into runs, sorted by start. The order of `visits` does not matter. Visits of
/// two users form two runs, and neither ends the other. Otherwise a node that names another user could
/// split the run of the others.
pub(crate) fn runs(mut visits: Vec<Visit>) -> Vec<Run> {
    visits.sort_unstable();
    let stops = stops(&visits);
    let mut runs: Vec<Run> = Vec::new();
    let mut growing: Vec<OpenRun> = Vec::new();
    for (visit, stop) in visits.into_iter().zip(stops) {
        let fits = growing.iter().enumerate().filter_map(|(at, run)| Some((run.fits(&visit)?, at)));
        let at = fits.max().map_or(growing.len(), |(_, at)| at);
        if at == growing.len() {
            growing.retain(|run| run.lasts(visit.start));
            let reach = Some(Timestamp(i64::MIN));
            let (latest, identity) = (HashMap::new(), ReportedIdentity::default());
            growing.push(OpenRun { place: runs.len(), reach, latest, identity });
            runs.push(Run { visits_found: Vec::new() });
        }
        let at = at.min(growing.len().saturating_sub(1));
        let Some(run) = growing.get_mut(at) else { continue };
        run.identity = std::mem::take(&mut run.identity).or(&visit.identity);
        // An unreported end does not prove how long the run lasted.
        let seen =
            if visit.reported_end.is_some() || stop.is_none() { stop } else { Some(visit.start) };
        run.reach = run.reach.zip(seen).map(|(reach, seen)| reach.max(seen));
        run.latest.insert(visit.device.clone(), visit.start);
        if let Some(run) = runs.get_mut(run.place) {
            run.visits_found.push(BoundedVisit { visit, stop });
        }
    }
    runs
}

/// Returns the end of each visit of a sorted set.
pub(crate) fn stops(visits: &[Visit]) -> Vec<Option<Timestamp>> {
    let mut next = HashMap::new();
    let mut stops: Vec<Option<Timestamp>> = Vec::with_capacity(visits.len());
    for visit in visits.iter().rev() {
        let following = next.insert(&visit.device, visit.start);
        stops.push(match (visit.reported_end, following) {
            (Some(reported_end), Some(next)) => Some(reported_end.min(next)),
            (reported_end, next) => reported_end.or(next),
        });
    }
    stops.reverse();
    stops
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn visit(device: &str, start: i64, reported_end: Option<i64>) -> Visit {
        let at = Timestamp::from_seconds;
        let (device, reported_end) = (DeviceId::new(device).unwrap(), reported_end.map(at));
        let identity = ReportedIdentity::default();
        Visit { device, start: at(start), reported_end, identity, clock_us: 0, monitor: None }
    }

    fn shape(visits: Vec<Visit>) -> Vec<(i64, Option<i64>, usize)> {
        let seconds = |at: Timestamp| at.0 / Timestamp::SECOND;
        let one =
            |run: &Run| (seconds(run.start()), run.stop().map(seconds), run.visits_found.len());
        runs(visits).iter().map(one).collect()
    }

    #[test]
    fn nodes_of_one_start_are_one_run() {
        let visits = vec![visit("n2", 1003, Some(5000)), visit("n1", 1000, None)];
        assert_eq!(shape(visits), [(1000, None, 2)]);
        let later = vec![visit("n1", 1000, Some(9000)), visit("n2", 4000, Some(5000))];
        assert_eq!(shape(later), [(1000, Some(9000), 2)], "a step that came to its node later");
    }

    #[test]
    fn a_number_given_again_is_another_run() {
        let visits = vec![visit("n1", 1000, Some(2000)), visit("n1", 2120, None)];
        assert_eq!(shape(visits), [(1000, Some(2000), 1), (2120, None, 1)]);
        let elsewhere = vec![visit("n1", 1000, Some(2000)), visit("n2", 2120, None)];
        assert_eq!(shape(elsewhere).len(), 2);
    }

    #[test]
    fn an_end_that_was_lost_is_the_next_start() {
        let visits = vec![visit("n1", 1000, None), visit("n1", 3000, None)];
        assert_eq!(shape(visits), [(1000, Some(3000), 1), (3000, None, 1)]);
    }

    #[test]
    fn steps_that_follow_each_other_are_one_run() {
        let visits = vec![visit("n1", 1000, Some(1010)), visit("n1", 1012, Some(1020))];
        assert_eq!(shape(visits), [(1000, Some(1020), 2)]);
    }

    proptest! {
        #[test]
        fn the_order_of_reports_does_not_matter(
            facts in proptest::collection::vec((0_usize..3, 0_i64..900, 0_i64..500, proptest::bool::ANY), 0..14),
            seed: u64,
        ) {
            let names = ["a", "b", "c"];
            let visits: Vec<Visit> = facts
                .iter()
                .map(|(d, start, long, ended)| visit(names[*d], *start, ended.then_some(start + long)))
                .collect();
            let mut other = visits.clone();
            let places = u64::try_from(other.len()).unwrap().max(1);
            for i in 0..other.len() {
                let j = usize::try_from(seed.rotate_left(u32::try_from(i).unwrap()) % places).unwrap();
                other.swap(i, j);
            }
            let all = runs(visits.clone());
            prop_assert_eq!(&all, &runs(other));
            prop_assert_eq!(all.iter().map(|run| run.visits_found.len()).sum::<usize>(), visits.len());
            // Runs are sorted by start, and no run ends before it begins.
            for pair in all.windows(2) {
                prop_assert!(pair[0].start() <= pair[1].start());
            }
            for visit_found in all.iter().flat_map(|run| &run.visits_found) {
                prop_assert!(visit_found.stop.is_none_or(|stop| stop >= visit_found.visit.start));
            }
        }
    }
}
