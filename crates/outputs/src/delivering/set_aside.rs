//! Data that a receiver rejected, in the output's folder, until a retry (decision 0063).
//!
//! `refused/NUMBER.BEGUN.CONFIRMED.jsonl` has the items of one write: one a line, as JSON. BEGUN and CONFIRMED are the mark of
//! the slice, so that a slice that comes again adds none of them twice.

use crate::files::{make, read_if_there, replace_durably};
use crate::spec::RejectedItem;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use storage::FollowMark;

/// The folder.
const FOLDER: &str = "refused";
const ENDING: &str = "jsonl";
/// Most bytes and files of the folder.
const BYTES_MAX: u64 = 64 << 20;
const FILES_MAX: usize = 1000;
/// Most bytes of a file, unless one item has more: what a retry sends at once.
const FILE_BYTES_MAX: usize = 4 << 20;

/// What the receiver of an output rejected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetAsideStatus {
    /// Items that are set aside.
    pub items: u64,
    /// Their bytes on the disk.
    pub bytes: u64,
    /// Items that were deleted since the server's start, because newer ones needed their space.
    pub deleted: u64,
    /// The receiver's message about the newest item.
    pub message: Option<String>,
    /// Whether a retry was requested that has not sent all of them yet.
    pub is_retrying: bool,
}

/// The folder of an output. It is made with the first item.
#[derive(Debug)]
pub(super) struct SetAside {
    dir: PathBuf,
    files: BTreeMap<u64, ItemFile>,
    deleted: u64,
    limits: (u64, usize),
}

#[derive(Debug)]
struct ItemFile {
    mark: FollowMark,
    items: u64,
    bytes: u64,
    message: String,
}

impl SetAside {
    /// Opens the folder in an output's own folder.
    ///
    /// # Errors
    /// It cannot be read, or a file in it is damaged.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        let (dir, limits) = (folder.join(FOLDER), (BYTES_MAX, FILES_MAX));
        let mut all = Self { dir, files: BTreeMap::new(), deleted: 0, limits };
        let entries = match fs::read_dir(&all.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(all),
            Err(error) => return Err(error),
        };
        for entry in entries {
            if let Some((number, mark)) = parsed(&entry?.file_name().to_string_lossy()) {
                let none = ItemFile { mark, items: 0, bytes: 0, message: String::new() };
                all.files.insert(number, none);
                let items = all.read(number)?;
                all.note(number, &items);
            }
        }
        Ok(all)
    }

    /// Stores items of the slice with this mark durably, without those that an earlier call stored of it.
    ///
    /// # Errors
    /// The system rejects it. The call can be repeated.
    pub(super) fn add(&mut self, items: &[RejectedItem], mark: FollowMark) -> io::Result<()> {
        make(&self.dir)?;
        let of_it = self.files.iter().filter(|(_, file)| file.mark == mark);
        let numbers: Vec<u64> = of_it.map(|(number, _)| *number).collect();
        let mut known = BTreeSet::new();
        for number in numbers {
            known.extend(self.read(number)?.into_iter().map(|item| item.key));
        }
        let new: Vec<&RejectedItem> =
            items.iter().filter(|item| known.insert(item.key.clone())).collect();
        let mut rest = new.as_slice();
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take_while(|item| {
                bytes += item.data.len() + item.message.len();
                bytes <= FILE_BYTES_MAX
            });
            let (file, after) = rest.split_at(fits.count().max(1));
            let number = self.files.last_key_value().map_or(0, |(number, _)| number + 1);
            self.write(number, mark, file)?;
            rest = after;
        }
        self.delete_oldest()
    }

    /// The items of a file; none if somebody has deleted it.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    pub(super) fn read(&self, number: u64) -> io::Result<Vec<RejectedItem>> {
        let Some(file) = self.files.get(&number) else { return Ok(Vec::new()) };
        let path = self.path(number, file.mark);
        let damaged = |error: &dyn std::fmt::Display| {
            io::Error::other(format!("{}: {error}; delete it", path.display()))
        };
        let text = String::from_utf8(read_if_there(&path)?.unwrap_or_default());
        let text = text.map_err(|error| damaged(&error))?;
        let items = text.lines().map(serde_json::from_str).collect::<Result<_, _>>();
        items.map_err(|error| damaged(&error))
    }

    /// Replaces the items of a file, or removes it with the last one.
    ///
    /// # Errors
    /// The system rejects it.
    pub(super) fn replace(&mut self, number: u64, items: &[RejectedItem]) -> io::Result<()> {
        let Some(mark) = self.files.get(&number).map(|file| file.mark) else { return Ok(()) };
        if items.is_empty() {
            remove(&self.path(number, mark))?;
            self.files.remove(&number);
            return Ok(());
        }
        self.write(number, mark, &items.iter().collect::<Vec<_>>())
    }

    /// The first file with a number from `next` to `last`.
    pub(super) fn next_file(&self, next: u64, last: u64) -> Option<u64> {
        let mut files = self.files.keys().skip_while(|number| **number < next);
        files.next().copied().filter(|number| *number <= last)
    }

    /// The number of the newest file; 0 without any.
    pub(super) fn last_file(&self) -> u64 {
        self.files.last_key_value().map_or(0, |(number, _)| *number)
    }

    /// Updates a status. Each deletion is added once.
    pub(super) fn show(&mut self, status: &mut SetAsideStatus) {
        status.items = self.files.values().map(|file| file.items).sum();
        status.bytes = self.bytes();
        status.deleted += std::mem::take(&mut self.deleted);
        status.message = self.files.values().next_back().map(|file| file.message.clone());
    }

    fn write(&mut self, number: u64, mark: FollowMark, items: &[&RejectedItem]) -> io::Result<()> {
        let mut text = Vec::new();
        for item in items {
            serde_json::to_writer(&mut text, item)?;
            text.push(b'\n');
        }
        replace_durably(&self.path(number, mark), &text)?;
        let none = ItemFile { mark, items: 0, bytes: 0, message: String::new() };
        self.files.insert(number, none);
        self.note(number, items);
        Ok(())
    }

    /// Counts the items of a file.
    fn note<Item: std::borrow::Borrow<RejectedItem>>(&mut self, number: u64, items: &[Item]) {
        let Some(mark) = self.files.get(&number).map(|file| file.mark) else { return };
        let bytes = fs::metadata(self.path(number, mark)).map_or(0, |about| about.len());
        let message = items.last().map(|item| item.borrow().message.clone()).unwrap_or_default();
        let items = items.len() as u64;
        self.files.insert(number, ItemFile { mark, items, bytes, message });
    }

    /// Deletes the oldest files beyond the limits.
    fn delete_oldest(&mut self) -> io::Result<()> {
        let (bytes_max, files_max) = self.limits;
        while self.files.len() > files_max || (self.files.len() > 1 && self.bytes() > bytes_max) {
            let Some((number, file)) = self.files.first_key_value() else { break };
            let (number, items) = (*number, file.items);
            remove(&self.path(number, file.mark))?;
            self.files.remove(&number);
            self.deleted += items;
            log::warn!(
                "{}: full; the {items} oldest rejected items are deleted",
                self.dir.display()
            );
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.files.values().map(|file| file.bytes).sum()
    }

    fn path(&self, number: u64, FollowMark { begun, confirmed }: FollowMark) -> PathBuf {
        self.dir.join(format!("{number:012}.{begun}.{confirmed}.{ENDING}"))
    }
}

/// Number and mark of a file with this name.
fn parsed(name: &str) -> Option<(u64, FollowMark)> {
    let mut parts = name.strip_suffix(ENDING)?.strip_suffix('.')?.split('.');
    let number = parts.next()?.parse().ok()?;
    let mark =
        FollowMark { begun: parts.next()?.parse().ok()?, confirmed: parts.next()?.parse().ok()? };
    parts.next().is_none().then_some((number, mark))
}

/// Removes a file that may be absent.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn item(key: &str, message: &str) -> RejectedItem {
        RejectedItem { key: key.into(), message: message.into(), data: "x\n".repeat(50) }
    }

    fn mark(confirmed: u64) -> FollowMark {
        FollowMark { begun: -7, confirmed }
    }

    fn shown(of: &mut SetAside) -> (u64, u64, Option<String>) {
        let mut status = SetAsideStatus::default();
        of.show(&mut status);
        (status.items, status.deleted, status.message)
    }

    #[test]
    fn items_are_there_once_after_a_restart_too_and_leave_when_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let mut all = SetAside::open(dir.path()).unwrap();
        assert_eq!((shown(&mut all), all.next_file(0, 9)), ((0, 0, None), None));
        all.add(&[item("a", "bad"), item("b", "worse")], mark(1)).unwrap();
        let mut all = SetAside::open(dir.path()).unwrap();
        assert_eq!(shown(&mut all), (2, 0, Some("worse".into())));
        // The slice comes again, and another one has the same key.
        all.add(&[item("a", "bad"), item("b", "worse"), item("c", "new")], mark(1)).unwrap();
        all.add(&[item("a", "bad")], mark(2)).unwrap();
        assert_eq!(shown(&mut all), (4, 0, Some("bad".into())));
        let mode = fs::metadata(all.path(0, mark(1))).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(all.read(0).unwrap(), [item("a", "bad"), item("b", "worse")]);
        all.replace(0, &[item("b", "still")]).unwrap();
        all.replace(1, &[]).unwrap();
        assert_eq!(
            (all.next_file(0, 9), all.next_file(1, 9), all.next_file(1, 1)),
            (Some(0), Some(2), None)
        );
        assert_eq!(all.last_file(), 2);
        let mut all = SetAside::open(dir.path()).unwrap();
        assert_eq!((shown(&mut all).0, all.read(0).unwrap()), (2, vec![item("b", "still")]));
        fs::write(all.path(0, mark(1)), "{").unwrap();
        assert!(SetAside::open(dir.path()).unwrap_err().to_string().contains("delete it"));
    }

    #[test]
    fn the_oldest_files_go_first_and_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let mut all = SetAside::open(dir.path()).unwrap();
        all.limits = (1200, 3);
        for confirmed in 0..5 {
            all.add(&[item("a", "bad"), item("b", "bad")], mark(confirmed)).unwrap();
        }
        let (items, deleted, _) = shown(&mut all);
        assert_eq!((items, deleted, all.next_file(0, 9)), (6, 4, Some(2)));
        all.limits = (800, 3);
        all.add(&[item("a", "bad")], mark(9)).unwrap();
        assert_eq!((shown(&mut all).1, all.bytes() <= 800), (4, true));
        let big = RejectedItem { data: "y".repeat(FILE_BYTES_MAX), ..item("big", "bad") };
        all.add(&[big, item("z", "bad")], mark(10)).unwrap();
        assert_eq!((all.files.len(), shown(&mut all).0), (1, 1));
    }
}
