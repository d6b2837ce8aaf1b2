//! The durable positions of followers (decision 0060).
//!
//! ```text
//! jobmeter positions 1 9d3a51c2
//! {"colmet":{"position":{"point":{"place":824633720848,"row":0}},"since":…}}
//! ```
//!
//! The first line ends with the CRC-32C of the bytes after it.

use crate::files::disk::Disk;
use crate::files::errors::DiskError;
use crate::files::layout::followers_dir;
use crate::files::point::Point;
use crate::state::manifest::{read_whole, sealed, unsealed, write_whole};
use crate::state::rests::Rest;
use model::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
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
    /// A position that the file may have, because writing it failed.
    #[serde(skip)]
    pub(crate) unsure: Option<Position>,
}

impl Follower {
    /// One that begins now.
    pub(crate) const fn new(position: Position, since: i64, now: Timestamp) -> Self {
        let begun = now.0;
        Self { position, since, begun, confirmed: 0, removed: None, open: None, unsure: None }
    }

    /// Its position, as others see it.
    pub(crate) const fn mark(&self) -> FollowMark {
        FollowMark { begun: self.begun, confirmed: self.confirmed }
    }
}

/// The followers of a store, by name.
#[derive(Debug, Default)]
pub(crate) struct Positions {
    pub(crate) followers: BTreeMap<Box<str>, Follower>,
    /// The number of the last slice.
    pub(crate) slices: u64,
    /// Why they cannot be read.
    pub(crate) unreadable: Option<String>,
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
            Err(why) => Self { unreadable: Some(why), ..Self::default() },
        }
    }

    /// Replaces the positions on the disk.
    ///
    /// # Errors
    /// The disk fails: either of the two versions may be there then.
    pub(crate) fn write(
        disk: &dyn Disk,
        dir: &Path,
        followers: &BTreeMap<Box<str>, Follower>,
    ) -> Result<(), DiskError> {
        let dir = followers_dir(dir);
        let body = serde_json::to_string(followers).map_err(std::io::Error::other);
        let body = body.map_err(DiskError::of("write", &dir.join(POSITIONS)))?;
        write_whole(disk, &dir, POSITIONS, sealed(HEADER, &body).as_bytes())
    }

    /// The points that no file may span, ordered: positions, ends of open slices, and ends of files with a cursor.
    pub(crate) fn points(&self) -> Vec<Point> {
        let each = self.followers.values().flat_map(|follower| {
            let open = follower.open.map(|open| open.to);
            [Some(follower.position), open, follower.unsure].into_iter().flatten()
        });
        let mut points: Vec<Point> = each.flat_map(Position::points).collect();
        points.sort_unstable();
        points.dedup();
        if self.unreadable.is_some() {
            // Any: what is deleted now may be undelivered.
            points.push(Point::START);
        }
        points
    }

    /// Moves positions that only another version of this directory had: within a block without a rest file to the start of
    /// the block, and beyond the end of the log to the end. Returns whether one was beyond the end.
    pub(crate) fn place(
        &mut self,
        blocks: impl Iterator<Item = Range<Point>> + Clone,
        rests: &[Rest],
        end: u64,
    ) -> bool {
        let mut is_ahead = false;
        for Follower { position, .. } in self.followers.values_mut() {
            let point = position.point;
            let within = blocks.clone().find(|block| block.start < point && point < block.end);
            let is_placed = rests.iter().any(|rest| rest.start == point);
            if let Some(block) = within.filter(|_| !is_placed) {
                *position = Position::of(block.start);
            } else if point.place > end {
                *position = Position::of(Point { place: end, row: 0 });
                is_ahead = true;
            }
        }
        is_ahead
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
        std::fs::create_dir(followers_dir(dir.path())).unwrap();
        Positions::write(&RealDisk, dir.path(), &followers).unwrap();
        let again = Positions::read(&RealDisk, dir.path());
        assert_eq!((again.followers["a"].position, again.unreadable.as_deref()), (position, None));
        assert_eq!(again.points(), [Point::of_segment(7), Point::of_segment(9)]);
        let kept = |now| again.unexpired(Timestamp(now)).len();
        assert_eq!([kept(REMOVED_US + 2), kept(REMOVED_US + 3)], [1, 0]);
        let path = followers_dir(dir.path()).join(POSITIONS);
        let bytes = std::fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            std::fs::write(&path, &bad).unwrap();
            assert!(Positions::read(&RealDisk, dir.path()).unreadable.is_some(), "{at}");
        }
    }
}
