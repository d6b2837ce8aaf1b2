//! Followers: readers that receive each stored sample once (decision 0060).
//!
//! - `plan`: the range that a follower reads next. `read`: its samples.

mod plan;
mod read;

use crate::files::errors::DiskError;
use crate::files::layout::followers_dir;
use crate::files::point::Point;
use crate::state::ledger::Ledger;
use crate::state::positions::{Follower, OpenSlice, Position, Positions};
use crate::state::shared::Shared;
use model::Timestamp;
use parking_lot::MutexGuard;
use plan::{Plan, behind};
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
        Self { shared, ledger }
    }

    fn positions(&self) -> Result<MutexGuard<'_, Positions>, FollowError> {
        let positions = self.shared.positions();
        match &positions.unreadable {
            Some(why) => Err(StorageError::Failed(why.clone().into()).into()),
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
        if let Err(error) = Positions::write(&**disk, dir, &new) {
            for (name, old) in &mut positions.followers {
                let other = new.get(name).map(|new| new.position);
                old.unsure = other.filter(|other| *other != old.position).or(old.unsure);
            }
            return Err(failed(error));
        }
        new.values_mut().for_each(|follower| follower.unsure = None);
        positions.followers = new;
        Ok(())
    }

    /// Plans the next range of a follower and reserves it under a number.
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
        let number = number.unwrap_or_else(|| {
            positions.slices += 1;
            positions.slices
        });
        let follower = known(&mut positions, name)?;
        let from = from.unwrap_or(follower.position);
        let plan = Plan::after(&self.shared, (&rests, covered), from, rows_max);
        follower.open = plan.as_ref().map(|plan| OpenSlice { number, to: plan.reserved() });
        let (since, at) = (follower.since, follower.mark());
        Ok(plan.map(|plan| Reserved { plan, number, since, at }))
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
        let dir = followers_dir(&self.ledger.dir);
        let created = self.ledger.disk.create_dir(&dir);
        created.map_err(DiskError::of("make the directory", &dir)).map_err(failed)?;
        let (point, since) = match from {
            FollowFrom::Now => (Point { place: self.shared.view().1, row: 0 }, i64::MIN),
            FollowFrom::All => (Point::START, i64::MIN),
            FollowFrom::Time(at) => (Point::START, at.0),
        };
        self.change(&mut positions, |followers| {
            *followers = kept;
            let position = Position::of(point);
            let new = Follower::new(position, since, now);
            followers.entry(name.into()).or_insert(new).removed = None;
        })
    }

    fn next(&self, name: &str, rows_max: usize) -> Result<Option<FollowSlice>, FollowError> {
        let rows_max = u32::try_from(rows_max).unwrap_or(u32::MAX).max(1);
        let mut from = (None, None);
        loop {
            let reserved = self.reserve(name, from, rows_max)?;
            let Some(Reserved { plan, number, since, at }) = reserved else { return Ok(None) };
            let disk = &*self.ledger.disk;
            let Contents { samples, lost, to } =
                read(&self.shared, disk, &plan, since, rows_max).map_err(FollowError::Store)?;
            let mut positions = self.positions()?;
            let open = known(&mut positions, name)?.open.as_mut();
            let open = open.filter(|open| open.number == number);
            open.ok_or(FollowError::Void(number))?.to = to;
            if samples.times.is_empty() && lost.is_none() && plan.gaps.is_empty() {
                from = (Some(to), Some(number));
                continue;
            }
            return Ok(Some(FollowSlice { number, at, samples, gaps: plan.gaps, lost }));
        }
    }

    fn confirm(&self, name: &str, number: u64) -> Result<(), FollowError> {
        let mut positions = self.positions()?;
        let open = known(&mut positions, name)?.open.filter(|open| open.number == number);
        let to = open.ok_or(FollowError::Void(number))?.to;
        let uncut = self.shared.log_sizes.uncut();
        if uncut > self.ledger.manifest().covered && to.point.segment() > uncut {
            let why = format!("a failed append to log segment {uncut} waits for the next block");
            return Err(StorageError::Unavailable(why).into());
        }
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
        });
        Ok(each.collect())
    }
}
