//! Which visits make one run of a job.
//!
//! Sorted by start, a visit belongs to the run before it
//! - when another device of that run is still there, or went less than [`TOGETHER`] before: a job's
//!   nodes start and end one after another, and a scheduler may make the cgroup of a node only when a
//!   step needs it;
//! - when it is the same device and the visits start or follow each other within [`TOGETHER`];
//! - and when both are of one user, as far as their nodes say whose they are: of two users' runs that go on at once it
//!   joins its own.
//!
//! Otherwise the number was given again: a new run. Two cgroups of one number are never on one device
//! at once, so a visit whose end nobody told ended when the next on its device began.

use model::{DeviceId, Timestamp};
use std::cmp::Reverse;
use std::collections::HashMap;

/// How far apart visits of one run may be, in microseconds: one minute. Schedulers wait longer before
/// they run a number again (Slurm: two minutes), and the nodes of one start differ by less.
pub(crate) const TOGETHER: i64 = 60 * Timestamp::SECOND;

/// A cgroup of a job on a device, as it was told.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Visit {
    /// When it was made.
    pub(crate) start: Timestamp,
    /// Where.
    pub(crate) device: DeviceId,
    /// When it went, where somebody said so.
    pub(crate) told: Option<Timestamp>,
    /// Who its node said it is.
    pub(crate) said: Said,
    /// By how many microseconds the node's clock was ahead of the server's.
    pub(crate) clock_us: i64,
    /// What its user asks for by its environment there.
    pub(crate) monitor: Option<Box<str>>,
}

/// Who a node says a job is: what is `None` it did not say.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Said {
    /// The number as it is spelled, where that is not the number.
    pub(crate) spelling: Option<Box<str>>,
    pub(crate) user: Option<Box<str>>,
    pub(crate) uid: Option<u32>,
}

impl Said {
    /// Whether both may be of one user: numbers tell, else names, else nothing is known.
    pub(crate) fn agrees(&self, other: &Self) -> bool {
        match (self.uid.zip(other.uid), self.user.as_ref().zip(other.user.as_ref())) {
            (Some((one, other)), _) => one == other,
            (None, Some((one, other))) => one == other,
            (None, None) => true,
        }
    }

    /// Whether both name one user.
    fn names_as(&self, other: &Self) -> bool {
        let same_user = || self.user.is_some() && self.user == other.user;
        self.agrees(other) && (self.uid.is_some() && self.uid == other.uid || same_user())
    }

    /// Whether this says something that `other` does not.
    pub(crate) fn adds_to(&self, other: &Self) -> bool {
        let more = |this: bool, other: bool| this && !other;
        more(self.spelling.is_some(), other.spelling.is_some())
            || more(self.user.is_some(), other.user.is_some())
            || more(self.uid.is_some(), other.uid.is_some())
    }

    /// This, and of what it does not say what `later` does.
    pub(crate) fn or(self, later: &Self) -> Self {
        Self {
            spelling: self.spelling.or_else(|| later.spelling.clone()),
            user: self.user.or_else(|| later.user.clone()),
            uid: self.uid.or(later.uid),
        }
    }
}

/// A visit with the end that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stay {
    pub(crate) visit: Visit,
    /// What was told, or the start of the next visit of the device; `None`: it is there.
    pub(crate) stop: Option<Timestamp>,
}

/// The visits of one run, ordered by start and device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) stays: Vec<Stay>,
}

impl Run {
    /// When the first visit began.
    pub(crate) fn start(&self) -> Timestamp {
        self.stays.first().map_or(Timestamp(0), |stay| stay.visit.start)
    }

    /// Who it is: of each thing, what the first visit says that says it.
    pub(crate) fn said(&self) -> Said {
        self.stays.iter().fold(Said::default(), |said, stay| said.or(&stay.visit.said))
    }

    /// By how many microseconds the clock that told its start was ahead of the server's.
    pub(crate) fn clock_us(&self) -> i64 {
        self.stays.first().map_or(0, |stay| stay.visit.clock_us)
    }

    /// When the last visit ended; `None` while one lasts.
    pub(crate) fn stop(&self) -> Option<Timestamp> {
        self.stays
            .iter()
            .map(|stay| stay.stop)
            .try_fold(Timestamp(i64::MIN), |latest, stop| stop.map(|stop| stop.max(latest)))
    }
}

/// A run that a later visit may join.
struct Growing {
    /// Its place among the runs.
    place: usize,
    /// How long it reaches; `None`: it goes on.
    reach: Option<Timestamp>,
    /// The latest start on each of its devices.
    latest: HashMap<DeviceId, Timestamp>,
    said: Said,
}

impl Growing {
    /// How well a visit fits; `None`: not at all. A run that names the visit's user comes before one that might be of the
    /// user, then the one that more devices saw: one node's word draws no visit away from a run of several.
    fn fits(&self, visit: &Visit) -> Option<(bool, usize, Reverse<usize>)> {
        let near = |other: Timestamp| visit.start.since(other) <= TOGETHER;
        let again = self.latest.get(&visit.device).is_some_and(|start| near(*start));
        let joins = (again || self.reach.is_none_or(near)) && self.said.agrees(&visit.said);
        let named = self.said.names_as(&visit.said);
        joins.then_some((named, self.latest.len(), Reverse(self.place)))
    }

    /// Whether a visit that begins then, or later, may still join.
    fn lasts(&self, start: Timestamp) -> bool {
        let near = |other: Timestamp| start.since(other) <= TOGETHER;
        self.reach.is_none_or(near) || self.latest.values().any(|latest| near(*latest))
    }
}

/// The runs that a set of visits makes, ordered by start. The order of `visits` does not matter. Visits of two users are
/// two runs, and neither ends the other: a node that names another user would split the run of the others.
pub(crate) fn runs(mut visits: Vec<Visit>) -> Vec<Run> {
    visits.sort_unstable();
    let stops = stops(&visits);
    let mut runs: Vec<Run> = Vec::new();
    let mut growing: Vec<Growing> = Vec::new();
    for (visit, stop) in visits.into_iter().zip(stops) {
        let fits = growing.iter().enumerate().filter_map(|(at, run)| Some((run.fits(&visit)?, at)));
        let at = fits.max().map_or(growing.len(), |(_, at)| at);
        if at == growing.len() {
            growing.retain(|run| run.lasts(visit.start));
            let reach = Some(Timestamp(i64::MIN));
            let (latest, said) = (HashMap::new(), Said::default());
            growing.push(Growing { place: runs.len(), reach, latest, said });
            runs.push(Run { stays: Vec::new() });
        }
        let at = at.min(growing.len().saturating_sub(1));
        let Some(run) = growing.get_mut(at) else { continue };
        run.said = std::mem::take(&mut run.said).or(&visit.said);
        // An end that nobody told says nothing about how long the run went on.
        let seen = if visit.told.is_some() || stop.is_none() { stop } else { Some(visit.start) };
        run.reach = run.reach.zip(seen).map(|(reach, seen)| reach.max(seen));
        run.latest.insert(visit.device.clone(), visit.start);
        if let Some(run) = runs.get_mut(run.place) {
            run.stays.push(Stay { visit, stop });
        }
    }
    runs
}

/// The end of each visit of a sorted set.
pub(crate) fn stops(visits: &[Visit]) -> Vec<Option<Timestamp>> {
    let mut next = HashMap::new();
    let mut stops: Vec<Option<Timestamp>> = Vec::with_capacity(visits.len());
    for visit in visits.iter().rev() {
        let following = next.insert(&visit.device, visit.start);
        stops.push(match (visit.told, following) {
            (Some(told), Some(next)) => Some(told.min(next)),
            (told, next) => told.or(next),
        });
    }
    stops.reverse();
    stops
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn visit(device: &str, start: i64, told: Option<i64>) -> Visit {
        let at = Timestamp::from_seconds;
        let (device, told) = (DeviceId::new(device).unwrap(), told.map(at));
        let said = Said::default();
        Visit { device, start: at(start), told, said, clock_us: 0, monitor: None }
    }

    fn shape(visits: Vec<Visit>) -> Vec<(i64, Option<i64>, usize)> {
        let seconds = |at: Timestamp| at.0 / Timestamp::SECOND;
        let one = |run: &Run| (seconds(run.start()), run.stop().map(seconds), run.stays.len());
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
        fn the_order_of_telling_does_not_matter(
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
            prop_assert_eq!(all.iter().map(|run| run.stays.len()).sum::<usize>(), visits.len());
            // Runs follow each other, and what ended ended after it began.
            for pair in all.windows(2) {
                prop_assert!(pair[0].start() <= pair[1].start());
            }
            for stay in all.iter().flat_map(|run| &run.stays) {
                prop_assert!(stay.stop.is_none_or(|stop| stop >= stay.visit.start));
            }
        }
    }
}
