//! Followers: readers that receive each stored sample once (decision 0060).
//!
//! - `plan`: the range that a follower reads next. `read`: its samples. `ahead`: those of later slices.

mod ahead;
mod plan;
mod read;

use crate::files::errors::DiskError;
use crate::files::point::Point;
use crate::state::ledger::Ledger;
use crate::state::positions::{Follower, OpenSlice, Position, Positions};
use crate::state::shared::Shared;
use ahead::{AHEAD_ROWS, Ahead};
use model::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use plan::{Plan, behind, block_of};
use read::{Contents, read};
use std::collections::BTreeMap;
use std::sync::Arc;
use storage::{
    FOLLOWER_NAME_BYTES_MAX, FOLLOWERS_MAX, FollowError, FollowFrom, FollowMark, FollowSlice,
    FollowerInfo, Followers, StorageError,
};

/// The followers of a store.
#[derive(Debug)]
pub(crate) struct Following {
    shared: Arc<Shared>,
    ledger: Arc<Ledger>,
    /// Of each follower that reads a file in small slices.
    ahead: Mutex<BTreeMap<Box<str>, Arc<Ahead>>>,
}

/// A range that a follower reads.
struct Reserved {
    plan: Plan,
    number: u64,
    since: i64,
    at: FollowMark,
}

impl Following {
    pub(crate) const fn new(shared: Arc<Shared>, ledger: Arc<Ledger>) -> Self {
        Self { shared, ledger, ahead: Mutex::new(BTreeMap::new()) }
    }

    /// The positions. Those that could not be read are read again: the file may be restored by now.
    fn positions(&self) -> Result<MutexGuard<'_, Positions>, FollowError> {
        let mut positions = self.shared.positions();
        if positions.unreadable().is_some() {
            let Ledger { disk, dir, .. } = &*self.ledger;
            let rests = self.ledger.manifest().rests.clone();
            positions.read_again(&**disk, dir, &self.shared.view().0.blocks, &rests);
        }
        match positions.unreadable() {
            Some(why) => Err(StorageError::Failed(why.into()).into()),
            None => Ok(positions),
        }
    }

    /// Changes the followers on the disk, then in memory.
    fn change(
        &self,
        positions: &mut Positions,
        change: impl FnOnce(&mut BTreeMap<Box<str>, Follower>),
    ) -> Result<(), FollowError> {
        let mut new = positions.followers.clone();
        change(&mut new);
        let Ledger { disk, dir, .. } = &*self.ledger;
        positions.replace(&**disk, dir, new).map_err(failed)
    }

    /// Plans the next range of a follower and reserves it under a number: that of a slice that is still open, or a new one.
    fn reserve(
        &self,
        name: &str,
        (from, number): (Option<Position>, Option<u64>),
        rows_max: u32,
    ) -> Result<Option<Reserved>, FollowError> {
        let mut positions = self.positions()?;
        let (rests, covered) = {
            let manifest = self.ledger.manifest();
            (manifest.rests.clone(), manifest.covered)
        };
        let new = positions.slices + 1;
        positions.slices = new;
        let follower = known(&mut positions, name)?;
        if let Some(number) = number {
            still_open(follower, number)?;
        }
        let number = number.unwrap_or(new);
        let from = from.unwrap_or(follower.position);
        let plan = Plan::after(&self.shared, (&rests, covered), from, rows_max);
        follower.open = plan.as_ref().map(|plan| OpenSlice { number, to: plan.reserved() });
        let (since, at) = (follower.since, follower.mark());
        Ok(plan.map(|plan| Reserved { plan, number, since, at }))
    }

    /// Reads at most `rows_max` samples of a planned range.
    fn contents(
        &self,
        name: &str,
        (plan, since): (&Plan, i64),
        rows_max: u32,
    ) -> Result<Contents, StorageError> {
        let disk = &*self.ledger.disk;
        if !plan.is_of_file() || rows_max >= AHEAD_ROWS {
            self.ahead.lock().remove(name);
            return read(&self.shared, disk, plan, since, rows_max);
        }
        let kept = self.ahead.lock().get(name).filter(|ahead| ahead.has(plan, since)).cloned();
        if let Some(ahead) = kept {
            return Ok(ahead.slice(plan, rows_max));
        }
        let contents = read(&self.shared, disk, plan, since, AHEAD_ROWS)?;
        if contents.samples.times.len() <= rows_max as usize {
            return Ok(contents);
        }
        let ahead = Arc::new(Ahead::new(plan, since, contents));
        self.ahead.lock().insert(name.into(), Arc::clone(&ahead));
        Ok(ahead.slice(plan, rows_max))
    }

    /// Checks that a replay after a crash has every batch before a point there, too.
    fn check_place(&self, point: Point) -> Result<(), FollowError> {
        let covered = self.ledger.manifest().covered;
        self.shared.log_sizes.may_change_before(point, covered).map_or(Ok(()), |segment| {
            let why = format!("a failed append to log segment {segment} waits for the next block");
            Err(StorageError::Unavailable(why).into())
        })
    }
}

fn failed(error: DiskError) -> FollowError {
    StorageError::Failed(Box::new(error)).into()
}

/// A follower that is not removed.
fn known<'a>(positions: &'a mut Positions, name: &str) -> Result<&'a mut Follower, FollowError> {
    let follower = positions.followers.get_mut(name).filter(|one| one.removed.is_none());
    follower.ok_or_else(|| FollowError::Unknown(name.to_owned()))
}

/// The slice of a follower that is open under a number.
fn still_open(follower: &mut Follower, number: u64) -> Result<&mut OpenSlice, FollowError> {
    let open = follower.open.as_mut().filter(|open| open.number == number);
    open.ok_or(FollowError::Void(number))
}

impl Followers for Following {
    fn follow(&self, name: &str, from: FollowFrom) -> Result<(), FollowError> {
        if !(1..=FOLLOWER_NAME_BYTES_MAX).contains(&name.len()) || name.contains(char::is_control) {
            return Err(FollowError::Name(name.to_owned()));
        }
        let mut positions = self.positions()?;
        let now = self.shared.now();
        let kept = positions.unexpired(now);
        if let Some(follower) = positions.followers.get_mut(name)
            && kept.contains_key(name)
        {
            follower.open = None;
            if follower.removed.is_none() {
                return Ok(());
            }
        } else if kept.len() >= FOLLOWERS_MAX {
            return Err(FollowError::TooMany);
        }
        let (point, since) = match from {
            FollowFrom::Now => (Point { place: self.shared.view().1, row: 0 }, i64::MIN),
            FollowFrom::All => (Point::START, i64::MIN),
            FollowFrom::Time(at) => (Point::START, at.0),
        };
        if !kept.contains_key(name) {
            self.check_place(point)?;
        }
        self.change(&mut positions, |followers| {
            *followers = kept;
            let new = Follower::new(Position::of(point), since, now);
            followers.entry(name.into()).or_insert(new).removed = None;
        })
    }

    fn next(&self, name: &str, rows_max: usize) -> Result<Option<FollowSlice>, FollowError> {
        let rows_max = u32::try_from(rows_max).unwrap_or(u32::MAX).max(1);
        let mut from = (None, None);
        loop {
            let reserved = self.reserve(name, from, rows_max)?;
            let Some(Reserved { plan, number, since, at }) = reserved else { return Ok(None) };
            let Contents { samples, lost, to, is_rest_damaged } =
                self.contents(name, (&plan, since), rows_max)?;
            let mut positions = self.positions()?;
            let follower = known(&mut positions, name)?;
            still_open(follower, number)?.to = to;
            if is_rest_damaged
                && let Some(block) = block_of(&self.shared.view().0, plan.points.start)
            {
                // The block still has the samples, among those that were delivered before.
                follower.begin_again(block);
                follower.open = Some(OpenSlice { number, to: follower.position });
                from = (None, Some(number));
                continue;
            }
            if samples.times.is_empty() && lost.is_none() && plan.gaps.is_empty() {
                from = (Some(to), Some(number));
                continue;
            }
            return Ok(Some(FollowSlice { number, at, samples, gaps: plan.gaps, lost }));
        }
    }

    fn confirm(&self, name: &str, number: u64) -> Result<(), FollowError> {
        let mut positions = self.positions()?;
        let to = still_open(known(&mut positions, name)?, number)?.to;
        self.check_place(to.point)?;
        self.change(&mut positions, |followers| {
            if let Some(follower) = followers.get_mut(name) {
                (follower.position, follower.open) = (to, None);
                follower.confirmed += 1;
            }
        })
    }

    fn remove(&self, name: &str) -> Result<(), FollowError> {
        let mut positions = self.positions()?;
        known(&mut positions, name)?;
        self.ahead.lock().remove(name);
        let now = self.shared.now();
        self.change(&mut positions, |followers| {
            if let Some(follower) = followers.get_mut(name) {
                (follower.removed, follower.open) = (Some(now.0), None);
            }
        })
    }

    fn list(&self) -> Result<Vec<FollowerInfo>, FollowError> {
        let positions = self.positions()?;
        let rests = self.ledger.manifest().rests.clone();
        let each = positions.followers.iter().map(|(name, follower)| FollowerInfo {
            name: name.clone(),
            removed: follower.removed.map(Timestamp),
            behind: behind(&self.shared, &rests, follower.position),
            repeats: follower.repeats,
        });
        Ok(each.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_dir::open::open;
    use crate::files::disk::RealDisk;
    use crate::settings::Settings;

    #[test]
    fn a_call_that_still_runs_is_void_after_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let clock: storage::Clock = Arc::new(|| Timestamp(0));
        let opened = open(Arc::new(RealDisk), dir.path(), Settings::default(), clock);
        let (opened, _) = opened.unwrap();
        let following = Following::new(Arc::clone(&opened.shared), opened.ledger);
        following.follow("a", FollowFrom::All).unwrap();
        // It skipped a range, and continues with the next one.
        let next = || following.reserve("a", (Some(Position::of(Point::START)), Some(7)), 1);
        following.positions().unwrap().followers.get_mut("a").unwrap().open =
            Some(OpenSlice { number: 7, to: Position::of(Point::START) });
        following.follow("a", FollowFrom::Now).unwrap();
        assert!(matches!(next(), Err(FollowError::Void(7))));
        opened.shared.close();
        opened.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
