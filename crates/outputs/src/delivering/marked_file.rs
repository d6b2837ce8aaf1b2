//! What an output keeps between slices, in a file that belongs to the mark of its slice: a kill neither loses nor repeats it.

use crate::files::{read_if_there, replace_durably};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use storage::FollowMark;

/// A text after all confirmed slices, and one after the slice that is not confirmed.
#[derive(Debug)]
pub(super) struct MarkedFile {
    confirmed: PathBuf,
    next: PathBuf,
}

/// The first line of a file.
#[derive(Serialize, Deserialize)]
struct Head {
    begun: i64,
    confirmed: u64,
    bytes: usize,
}

impl Head {
    fn mark(&self) -> FollowMark {
        FollowMark { begun: self.begun, confirmed: self.confirmed }
    }
}

impl MarkedFile {
    /// The file with this name in an output's folder.
    pub(super) fn new(folder: &Path, name: &str) -> Self {
        let path = |end: &str| folder.join(format!("{name}{end}"));
        Self { confirmed: path(".json"), next: path(".next.json") }
    }

    /// Whether something is kept. A file that cannot be looked at is an error where it is read.
    pub(super) fn is_there(&self) -> bool {
        [&self.confirmed, &self.next].into_iter().any(|path| path.try_exists().unwrap_or(true))
    }

    /// The text before the slice with this mark; `None` if there is none.
    ///
    /// After a restored backup the position may be older than both texts. Then it is the older one of them: samples that
    /// it has seen come again, and none is lost.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    pub(super) fn read(&self, mark: FollowMark) -> io::Result<Option<Vec<u8>>> {
        let is_before = |of: FollowMark| of < mark && of.begun == mark.begun;
        // A later confirmation made that of the unconfirmed slice valid.
        if read_file(&self.next)?.is_some_and(|(of, _)| is_before(of)) {
            fs::rename(&self.next, &self.confirmed)?;
        }
        let all = [read_file(&self.confirmed)?, read_file(&self.next)?];
        let mut of_it = all.into_iter().flatten().filter(|(of, _)| of.begun == mark.begun);
        let read = of_it.next().filter(|(of, _)| is_before(*of) || mark.confirmed > 0);
        Ok(read.map(|(_, text)| text))
    }

    /// Writes the text after the slice with this mark.
    ///
    /// # Errors
    /// The system rejects it.
    pub(super) fn write(&self, text: &[u8], mark: FollowMark) -> io::Result<()> {
        if mark_of(&self.next)?.is_some_and(|of| of < mark) {
            fs::rename(&self.next, &self.confirmed)?;
        }
        let FollowMark { begun, confirmed } = mark;
        let mut bytes = serde_json::to_vec(&Head { begun, confirmed, bytes: text.len() })?;
        bytes.push(b'\n');
        bytes.extend_from_slice(text);
        replace_durably(&self.next, &bytes)
    }
}

fn mark_of(path: &Path) -> io::Result<Option<FollowMark>> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut line = String::new();
    BufReader::new(file.take(4096)).read_line(&mut line)?;
    let head: Option<Head> = serde_json::from_str(&line).ok();
    Ok(head.map(|head| head.mark()))
}

fn read_file(path: &Path) -> io::Result<Option<(FollowMark, Vec<u8>)>> {
    let Some(mut bytes) = read_if_there(path)? else { return Ok(None) };
    let damaged = || io::Error::other(format!("{} is damaged; delete it", path.display()));
    let end = bytes.iter().position(|byte| *byte == b'\n').ok_or_else(damaged)?;
    let text = bytes.split_off(end + 1);
    let head: Head = serde_json::from_slice(&bytes).map_err(|_| damaged())?;
    if head.bytes != text.len() {
        return Err(damaged());
    }
    Ok(Some((head.mark(), text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_before_a_slice_or_after_a_restored_backup_the_older_one() {
        let dir = tempfile::tempdir().unwrap();
        let file = MarkedFile::new(dir.path(), "state");
        let mark = |confirmed| FollowMark { begun: 7, confirmed };
        let read = |mark| {
            let text = file.read(mark).unwrap();
            text.map(|text| String::from_utf8(text).unwrap()).unwrap_or_default()
        };
        assert_eq!(read(mark(0)), "");
        for (text, confirmed) in [("a", 0), ("b", 1), ("c", 2), ("c again", 2)] {
            file.write(text.as_bytes(), mark(confirmed)).unwrap();
        }
        // The slice with mark 2 was not confirmed.
        assert_eq!([read(mark(2)), read(mark(1)), read(mark(0))], ["b", "b", ""]);
        assert_eq!(read(FollowMark { begun: 8, confirmed: 2 }), "", "another follower");
        // It was.
        assert_eq!([read(mark(3)), read(mark(1))], ["c again", "c again"]);
        fs::write(dir.path().join("state.json"), "{").unwrap();
        assert!(file.read(mark(3)).is_err());
    }
}
