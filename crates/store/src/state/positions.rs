//! The durable positions of followers (decision 0060).
//!
//! ```text
//! jobmeter positions 1 9d3a51c2
//! {"colmet":{"position":{"point":{"place":824633720848,"row":0}},"since":…}}
//! ```
//!
//! The first line ends with the CRC-32C of the bytes after it.

use crate::blocks::Block;
use crate::files::disk::Disk;
use crate::files::errors::DiskError;
use crate::files::layout::followers_dir;
use crate::files::point::Point;
use crate::state::manifest::{read_whole, sealed, unsealed, write_whole};
use crate::state::points::Points;
use crate::state::rests::{Rest, points_of};
use model::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use storage::FollowMark;

/// The file's name.
pub(crate) const POSITIONS: &str = "POSITIONS";
const HEADER: &str = "jobmeter positions 1 ";
/// How long the position of a removed follower is kept.
const REMOVED_US: i64 = 7 * 86_400 * Timestamp::SECOND;

/// The delivered part of a block or a rest file: its earliest instants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cursor {
    /// The end of the file's samples.
    pub(crate) end: Point,
    /// The first instant with an undelivered sample.
    pub(crate) at: i64,
    /// Delivered samples of this instant.
    pub(crate) skip: u64,
    /// Delivered samples of the file.
    pub(crate) rows: u64,
}

/// A follower's progress in the order of storing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Position {
    /// Everything before it is delivered.
    pub(crate) point: Point,
    /// Progress in the file that begins at the point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cursor: Option<Cursor>,
}

impl Position {
    /// Without a cursor.
    pub(crate) const fn of(point: Point) -> Self {
        Self { point, cursor: None }
    }

    fn points(self) -> impl Iterator<Item = Point> {
        [Some(self.point), self.cursor.map(|cursor| cursor.end)].into_iter().flatten()
    }
}

/// The slice that a follower received last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenSlice {
    pub(crate) number: u64,
    /// The position after its confirmation.
    pub(crate) to: Position,
}

/// A follower.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Follower {
    pub(crate) position: Position,
    /// It receives no earlier sample.
    pub(crate) since: i64,
    /// When it began.
    #[serde(default)]
    pub(crate) begun: i64,
    /// Its confirmations.
    #[serde(default)]
    pub(crate) confirmed: u64,
    /// Since when it is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) removed: Option<i64>,
    #[serde(skip)]
    pub(crate) open: Option<OpenSlice>,
    /// How often it began at a block again, because a rest file could not be written or read.
    #[serde(skip)]
    pub(crate) repeats: u64,
}

impl Follower {
    /// One that begins now.
    pub(crate) const fn new(position: Position, since: i64, now: Timestamp) -> Self {
        let begun = now.0;
        Self { position, since, begun, confirmed: 0, removed: None, open: None, repeats: 0 }
    }

    /// Its position, as others see it.
    pub(crate) const fn mark(&self) -> FollowMark {
        FollowMark { begun: self.begun, confirmed: self.confirmed }
    }

    /// Begins at a block again; an open slice is void.
    pub(crate) const fn begin_again(&mut self, block: Point) {
        self.position = Position::of(block);
        self.open = None;
        self.repeats += 1;
    }
}

/// The followers of a store, by name.
#[derive(Debug, Default)]
pub(crate) struct Positions {
    pub(crate) followers: BTreeMap<Box<str>, Follower>,
    /// Another version that the file may have, because writing it failed.
    unsure: Option<BTreeMap<Box<str>, Follower>>,
    /// The number of the last slice.
    pub(crate) slices: u64,
    /// Why they cannot be read, and the end of the log at the start: no position is beyond it.
    unreadable: Option<(String, Point)>,
}

impl Positions {
    /// Reads the positions of a data directory. An error is kept: only followers need them.
    pub(crate) fn read(disk: &dyn Disk, dir: &Path) -> Self {
        let path = followers_dir(dir).join(POSITIONS);
        let read = read_whole(disk, &path).map_err(|error| error.to_string());
        let parsed = read.and_then(|bytes| match bytes {
            Some(bytes) => {
                let body = unsealed(HEADER, &bytes);
                let parsed = body.and_then(|body| {
                    serde_json::from_slice(body).map_err(|error| error.to_string())
                });
                let help = "restore it from a backup, or delete it: then outputs begin as new ones";
                parsed.map_err(|why| format!("{}: {why}; {help}", path.display()))
            }
            None => Ok(BTreeMap::new()),
        });
        match parsed {
            Ok(followers) => Self { followers, ..Self::default() },
            Err(why) => {
                let until = Point { place: u64::MAX, row: 0 };
                Self { unreadable: Some((why, until)), ..Self::default() }
            }
        }
    }

    /// Why the positions cannot be read.
    pub(crate) fn unreadable(&self) -> Option<&str> {
        self.unreadable.as_ref().map(|(why, _)| why.as_str())
    }

    /// Reads the positions that could not be read before. Nothing that they need was deleted or merged meanwhile.
    pub(crate) fn read_again(
        &mut self,
        disk: &dyn Disk,
        dir: &Path,
        blocks: &[Arc<Block>],
        rests: &[Rest],
    ) {
        let Some((why, until)) = &mut self.unreadable else { return };
        let mut again = Self::read(disk, dir);
        if let Some((still, _)) = again.unreadable {
            *why = still;
            return;
        }
        // Beyond it is what was stored since.
        let ahead = again.followers.values_mut().filter(|one| one.position.point > *until);
        ahead.for_each(|follower| follower.position = Position::of(*until));
        again.place(blocks, rests);
        *self = Self { slices: self.slices, ..again };
    }

    /// Replaces the followers on the disk, then in memory.
    ///
    /// # Errors
    /// The disk fails: either of the two versions may be there then.
    pub(crate) fn replace(
        &mut self,
        disk: &dyn Disk,
        dir: &Path,
        new: BTreeMap<Box<str>, Follower>,
    ) -> Result<(), DiskError> {
        if self.unsure.is_some() {
            // One of two versions is there. It must not become one of three.
            Self::write(disk, dir, &self.followers)?;
            self.unsure = None;
        }
        if let Err(error) = Self::write(disk, dir, &new) {
            self.unsure = Some(new);
            return Err(error);
        }
        self.followers = new;
        Ok(())
    }

    fn write(
        disk: &dyn Disk,
        dir: &Path,
        followers: &BTreeMap<Box<str>, Follower>,
    ) -> Result<(), DiskError> {
        let dir = followers_dir(dir);
        disk.create_dir(&dir).map_err(DiskError::of("make the directory", &dir))?;
        let body = serde_json::to_string(followers).map_err(std::io::Error::other);
        let body = body.map_err(DiskError::of("write", &dir.join(POSITIONS)))?;
        write_whole(disk, &dir, POSITIONS, sealed(HEADER, &body).as_bytes())
    }

    /// The points that no file may span: positions, ends of open slices, and ends of files with a cursor.
    pub(crate) fn points(&self) -> Points {
        let each = self.followers.values().flat_map(|follower| {
            let open = follower.open.map(|open| open.to);
            [Some(follower.position), open].into_iter().flatten()
        });
        let unsure = self.unsure.iter().flat_map(BTreeMap::values).map(|one| one.position);
        let known = each.chain(unsure).flat_map(Position::points).collect();
        Points::new(known, self.unreadable.as_ref().map(|(_, until)| *until))
    }

    /// Places the positions in the files of this directory at the start. Returns the last segment of the log at least: no
    /// later record has a place before a position.
    pub(crate) fn begin(
        &mut self,
        (blocks, rests): (&[Arc<Block>], &[Rest]),
        last_segment: u64,
    ) -> u64 {
        self.place(blocks, rests);
        let places = self.followers.values().map(|follower| follower.position.point);
        let end = Point::of_segment(last_segment.saturating_add(1));
        let ahead = places.filter(|point| *point > end).map(Point::segment).max();
        let last_segment = ahead.unwrap_or(last_segment).max(last_segment);
        if let Some((_, until)) = &mut self.unreadable {
            *until = Point::of_segment(last_segment.saturating_add(1));
        }
        last_segment
    }

    /// Moves positions within a block without a rest file, and within deleted samples, to the start: those that only another
    /// version of this directory had, and those of which the rest file could not be written.
    fn place(&mut self, blocks: &[Arc<Block>], rests: &[Rest]) {
        let deleted = rests.iter().filter(|rest| rest.deleted && !rest.is_part());
        let deleted = deleted.map(|rest| rest.start..rest.end);
        let blocks = blocks.iter().map(|block| points_of(&block.note));
        blocks.chain(deleted).for_each(|file| self.begin_again(&file, rests));
    }

    /// Lets the followers with a position within a block begin at it, unless a rest file begins at their position.
    pub(crate) fn begin_again(&mut self, block: &Range<Point>, rests: &[Rest]) {
        let is_gone = |position: Position| {
            let point = position.point;
            let is_within = block.start < point && point < block.end;
            is_within && !rests.iter().any(|rest| rest.start == point)
        };
        for follower in self.followers.values_mut() {
            if is_gone(follower.position) {
                follower.begin_again(block.start);
            } else if follower.open.is_some_and(|open| is_gone(open.to)) {
                // Its end is no position any more: the slice is void, and is delivered again.
                (follower.open, follower.repeats) = (None, follower.repeats + 1);
            }
        }
    }

    /// The followers without those that were removed too long ago.
    pub(crate) fn unexpired(&self, now: Timestamp) -> BTreeMap<Box<str>, Follower> {
        let is_kept = |follower: &Follower| {
            follower.removed.is_none_or(|removed| now.since(Timestamp(removed)) < REMOVED_US)
        };
        let kept = self.followers.iter().filter(|(_, follower)| is_kept(follower));
        kept.map(|(name, follower)| (name.clone(), follower.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::disk::RealDisk;

    #[test]
    fn positions_are_read_as_written_and_damage_is_never_an_empty_list() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Positions::read(&RealDisk, dir.path()).followers.is_empty());
        let cursor = Cursor { end: Point::of_segment(9), at: -5, skip: 2, rows: 70 };
        let position = Position { point: Point::of_segment(7), cursor: Some(cursor) };
        let follower =
            Follower { removed: Some(3), ..Follower::new(position, i64::MIN, Timestamp(1)) };
        let followers = BTreeMap::from([("a".into(), follower)]);
        Positions::default().replace(&RealDisk, dir.path(), followers).unwrap();
        let again = Positions::read(&RealDisk, dir.path());
        assert_eq!((again.followers["a"].position, again.unreadable()), (position, None));
        assert_eq!(
            again.points(),
            Points::new(vec![Point::of_segment(7), Point::of_segment(9)], None)
        );
        let kept = |now| again.unexpired(Timestamp(now)).len();
        assert_eq!([kept(REMOVED_US + 2), kept(REMOVED_US + 3)], [1, 0]);
        let path = followers_dir(dir.path()).join(POSITIONS);
        let bytes = std::fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            std::fs::write(&path, &bad).unwrap();
            assert!(Positions::read(&RealDisk, dir.path()).unreadable().is_some(), "{at}");
        }
    }
}
