//! `schedulers.file`: a file to which a program appends job updates, one per line.
//!
//! ```text
//! {"cluster":"site","id":7,"user":"alice","start":1767706400,"nodes":[{"device":"n1"}]}
//! {"cluster":"site","id":7,"stop":1767706460,"exit_code":0}
//! ```
//!
//! The registry stores the read position together with the updates: each line is applied once, also across restarts.
//!
//! - A file that was moved away is read to its end before the new file of that name.
//! - A file that was truncated in place is read from its beginning.
//! - An invalid line is logged with its number and counted.
//!
//! The file's writer is trusted like an administrator. Hence only root and the server's user may write it.

use crate::app::App;
use crate::auth::file_trust::believed;
use crate::common::tasks::stopped;
use crate::schedulers::job_update_parser::amendment;
use api::JobUpdate;
use jobs::{Amendment, Followed, IngestStats, Registry, RegistryError, StableHash};
use model::Timestamp;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Interval between two checks of the file.
const EVERY: Duration = Duration::from_millis(500);
/// Bytes read at once, and the longest line.
const PIECE_BYTES: usize = 1 << 20;
/// Length of the file's beginning whose digest identifies the file, in bytes.
const HEAD_BYTES: u64 = 256;
/// Most files of the folder that are searched for a file that was moved away.
const NEIGHBOURS_MAX: usize = 10_000;
/// Most invalid lines of one piece that are logged. The others are counted.
const TOLD_MAX: usize = 10;

/// Why a round failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FollowError {
    /// The file cannot be read.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The updates cannot be stored.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

/// The result of a round.
#[derive(Debug, Default)]
pub(crate) struct Round {
    heard: IngestStats,
    /// Number of valid lines.
    taken: usize,
    /// Invalid lines: the number and the error of each.
    bad: Vec<(u64, String)>,
    /// The number of the last line read.
    until: u64,
    /// Whether there may be more to read at once.
    more: bool,
}

/// The file, and the read position.
#[derive(Debug)]
pub(crate) struct JobFile {
    path: PathBuf,
    held: Option<Held>,
    /// Whether the read position is inside a line that is too long.
    skipping: bool,
}

#[derive(Debug)]
struct Held {
    file: File,
    at: Followed,
}

impl JobFile {
    pub(crate) const fn new(path: PathBuf) -> Self {
        Self { path, held: None, skipping: false }
    }

    /// Reads a piece of the file, and stores its updates in the registry.
    pub(crate) fn round(
        &mut self,
        registry: &Registry,
        now: Timestamp,
    ) -> Result<Round, FollowError> {
        let path = self.path.clone();
        let failed = |error| FollowError::File { path: path.clone(), error };
        let name = path.to_string_lossy();
        let mut held = match self.held.take() {
            Some(held) => held,
            None => match self.find(registry.followed(&name)?).map_err(failed)? {
                Some(held) => held,
                None => return Ok(Round::default()),
            },
        };
        let mut round = Round::default();
        if !held.is_same().map_err(failed)? {
            log::info!("{name} was emptied, and is read from its beginning");
            held.at = Followed { bytes: 0, lines: 0, ..held.at };
            self.skipping = false;
        }
        let mut piece = vec![0; PIECE_BYTES];
        let length = read(&held.file, &mut piece, held.at.bytes).map_err(failed)?;
        piece.truncate(length);
        let (read, amendments) = self.take(&piece, &held.at, now, &mut round);
        if read.bytes == held.at.bytes {
            return self.at_the_end(held, !piece.is_empty(), round).map_err(failed);
        }
        let read = Followed { head: head(&held.file, read.bytes).map_err(failed)?, ..read };
        // If this fails, the next round reads the piece again, from the position that the registry stores.
        round.heard = registry.follow(&name, amendments, read, now)?;
        (round.more, round.until) = (true, read.lines);
        held.at = read;
        self.held = Some(held);
        Ok(round)
    }

    /// Parses the complete lines of a piece.
    fn take(
        &mut self,
        piece: &[u8],
        at: &Followed,
        now: Timestamp,
        round: &mut Round,
    ) -> (Followed, Vec<Amendment>) {
        let (mut read, mut amendments) = (*at, Vec::new());
        let Some(end) = piece.iter().rposition(|byte| *byte == b'\n') else {
            if piece.len() == PIECE_BYTES {
                self.skipping = true;
                read.bytes += PIECE_BYTES as u64;
            }
            return (read, amendments);
        };
        read.bytes += end as u64 + 1;
        for line in piece.get(..end).unwrap_or_default().split(|byte| *byte == b'\n') {
            read.lines += 1;
            if std::mem::take(&mut self.skipping) {
                round.bad.push((read.lines, format!("longer than {PIECE_BYTES} bytes")));
                continue;
            }
            if line.trim_ascii().is_empty() {
                continue;
            }
            match said(line, now) {
                Ok(amendment) => amendments.push(amendment),
                Err(what) => round.bad.push((read.lines, what)),
            }
        }
        round.taken = amendments.len();
        (read, amendments)
    }

    /// At the end of the open file, checks whether another file has its name now.
    fn at_the_end(&mut self, held: Held, rest: bool, mut round: Round) -> io::Result<Round> {
        let new = match File::open(&self.path) {
            Ok(file) => Held::new(file)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.held = Some(held);
                return Ok(round);
            }
            Err(error) => return Err(error),
        };
        let same = (new.at.disk, new.at.inode) == (held.at.disk, held.at.inode);
        if same || new.file.metadata()?.len() == 0 {
            self.held = Some(held);
            return Ok(round);
        }
        if rest {
            let what = "the file was renamed in the middle of this line".to_owned();
            round.bad.push((held.at.lines + 1, what));
        }
        log::info!(
            "{} was replaced; the server reads the new file from its beginning",
            self.path.display()
        );
        (self.held, self.skipping, round.more) = (Some(new), false, true);
        Ok(round)
    }

    /// Finds the file that was read last, also under another name; otherwise returns the file at the path.
    fn find(&self, saved: Option<Followed>) -> io::Result<Option<Held>> {
        let opened = match File::open(&self.path) {
            Ok(file) => Some(Held::new(file)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let Some(saved) = saved else { return Ok(opened) };
        if let Some(held) = opened.as_ref().and_then(|held| held.again(saved)) {
            return held.map(Some);
        }
        for neighbour in neighbours(&self.path)? {
            // A file that has disappeared or is not readable is not the one.
            let Ok(Ok(file)) = File::open(&neighbour).map(Held::new) else { continue };
            if let Some(held) = file.again(saved) {
                return held.map(Some);
            }
        }
        if opened.is_some() {
            log::warn!(
                "{} is not the file that was read until line {}, and is read from its beginning",
                self.path.display(),
                saved.lines
            );
        }
        Ok(opened)
    }
}

impl Held {
    /// Opens a file at its beginning. Its writer must be trusted, because its lines set the owners of jobs.
    fn new(file: File) -> io::Result<Self> {
        let about = file.metadata()?;
        believed(&about)?;
        let (disk, inode) = (about.dev(), about.ino());
        let at = Followed { disk, inode, head: head(&file, 0)?, bytes: 0, lines: 0 };
        Ok(Self { file, at })
    }

    /// Returns this file at the saved position, if it is the saved file.
    fn again(&self, saved: Followed) -> Option<io::Result<Self>> {
        if (self.at.disk, self.at.inode) != (saved.disk, saved.inode) {
            return None;
        }
        let held = self.file.try_clone().map(|file| Self { file, at: saved });
        match held.as_ref().map(Self::is_same) {
            Ok(Ok(false)) => None,
            _ => Some(held),
        }
    }

    /// Whether the part that was read is unchanged. It is not if the file was truncated and refilled.
    fn is_same(&self) -> io::Result<bool> {
        let long = self.file.metadata()?.len() >= self.at.bytes;
        Ok(long && head(&self.file, self.at.bytes)? == self.at.head)
    }
}

/// Lists the files of the folder whose names begin with this name: the file may have been renamed to one of them.
fn neighbours(path: &Path) -> io::Result<Vec<PathBuf>> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(Vec::new());
    };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let name = name.as_encoded_bytes();
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)?.take(NEIGHBOURS_MAX) {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().starts_with(name) && entry.file_type()?.is_file() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Returns a digest of the file's beginning, of at most `bytes` bytes.
fn head(file: &File, bytes: u64) -> io::Result<u64> {
    let mut head = vec![0; usize::try_from(bytes.min(HEAD_BYTES)).unwrap_or(0)];
    let length = read(file, &mut head, 0)?;
    Ok(StableHash::default().bytes(head.get(..length).unwrap_or_default()).finish())
}

/// Reads until the buffer is full or the file ends.
fn read(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut length = 0;
    while let Some(rest) = buffer.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, at + length as u64) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

fn said(line: &[u8], now: Timestamp) -> Result<Amendment, String> {
    let told: JobUpdate = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    amendment(told, now)
}

/// Follows the file until the server stops.
pub(crate) async fn follow(app: Arc<App>, path: PathBuf) {
    let mut stopping = app.stopping.clone();
    let (mut file, mut trouble) = (JobFile::new(path), false);
    loop {
        let done = app.with_registry(move |app| {
            let round = file.round(&app.registry, app.now());
            (file, round)
        });
        let round;
        match done.await {
            Ok(done) => (file, round) = done,
            Err(_) => {
                log::error!("following `schedulers.file` failed, and has ended");
                return;
            }
        }
        let mut more = false;
        match round {
            Ok(round) => {
                more = round.more;
                tell(&app, &file.path, round);
                trouble = false;
            }
            Err(error) if !std::mem::replace(&mut trouble, true) => {
                log::error!(
                    "cannot apply the job updates of `schedulers.file`; the server tries again: \
                     {error}"
                );
            }
            Err(_) => {}
        }
        let pause = if more { Duration::ZERO } else { EVERY };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stopped(&mut stopping) => return,
        }
    }
}

fn tell(app: &App, path: &Path, round: Round) {
    app.count_records(round.heard);
    app.counts.file_lines.add(round.taken);
    app.counts.file_lines_bad.add(round.bad.len());
    for (line, what) in round.bad.iter().take(TOLD_MAX) {
        log::warn!("{}:{line}: {what}", path.display());
    }
    if round.heard.backwards > 0 {
        log::warn!(
            "{}: {} lines up to {} end a job more than 60 s before its start; the server rejected \
             them",
            path.display(),
            round.heard.backwards,
            round.until
        );
    }
    if let Some(left) = round.bad.len().checked_sub(TOLD_MAX).filter(|left| *left > 0) {
        log::warn!("{}: {left} more bad lines", path.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jobs::{Filter, Limits, Users};
    use std::fs::Permissions;
    use std::io::Write;
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};

    const NOW: Timestamp = Timestamp(1_767_706_500_000_000);

    struct Lab {
        dir: tempfile::TempDir,
        registry: Registry,
        file: JobFile,
    }

    impl Lab {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("registry");
            let registry = Registry::open(&path, Limits::default(), Users::default).unwrap();
            let file = JobFile::new(dir.path().join("jobs.jsonl"));
            Self { dir, registry, file }
        }

        fn append(&self, name: &str, text: &str) {
            let mut options = File::options();
            let options = options.mode(0o644);
            let file = options.create(true).append(true).open(self.dir.path().join(name));
            file.unwrap().write_all(text.as_bytes()).unwrap();
        }

        /// Reads to the end of the file, and returns the numbers of the invalid lines.
        fn read(&mut self) -> Vec<u64> {
            let mut bad = Vec::new();
            loop {
                let round = self.file.round(&self.registry, NOW).unwrap();
                bad.extend(round.bad.into_iter().map(|(line, _)| line));
                if !round.more {
                    return bad;
                }
            }
        }

        fn restart(&mut self) {
            self.file = JobFile::new(self.file.path.clone());
        }

        fn ids(&self) -> Vec<i64> {
            let listed = self.registry.list(&Filter::default()).unwrap();
            let mut ids: Vec<_> = listed.iter().map(|listed| listed.job.key.id.get()).collect();
            ids.sort_unstable();
            ids
        }

        fn moved(&self, from: &str, to: &str) {
            std::fs::rename(self.dir.path().join(from), self.dir.path().join(to)).unwrap();
        }
    }

    fn line(id: i64) -> String {
        format!("{{\"cluster\":\"site\",\"id\":{id},\"start\":{}}}\n", 1_767_706_000 + id)
    }

    #[test]
    fn lines_are_taken_once_and_bad_ones_told_by_number() {
        let mut lab = Lab::new();
        assert_eq!(lab.read(), [0; 0], "there is no file yet");
        lab.append("jobs.jsonl", &format!("{}no JSON\n\n{}{{\"clus", line(1), line(2)));
        assert_eq!((lab.read(), lab.ids()), (vec![2], vec![1, 2]));
        assert_eq!(lab.read(), [0; 0]);
        lab.restart();
        lab.append("jobs.jsonl", &format!("ter\":1}}\n{}", line(3)));
        assert_eq!((lab.read(), lab.ids()), (vec![5], vec![1, 2, 3]));
    }

    #[test]
    fn a_file_that_was_moved_away_is_read_to_its_end() {
        for restarts in [false, true] {
            let mut lab = Lab::new();
            lab.append("jobs.jsonl", &line(1));
            assert_eq!(lab.read(), [0; 0]);
            lab.append("jobs.jsonl", &line(2));
            lab.moved("jobs.jsonl", "jobs.jsonl.1");
            if restarts {
                lab.restart();
            }
            assert_eq!((lab.read(), lab.ids()), (vec![], vec![1, 2]));
            lab.append("jobs.jsonl.1", &format!("{}{{", line(3)));
            lab.append("jobs.jsonl", &line(4));
            assert_eq!((lab.read(), lab.ids()), (vec![4], vec![1, 2, 3, 4]));
            // Moved again, and read on after a restart of the server.
            lab.moved("jobs.jsonl", "jobs.jsonl.2");
            lab.append("jobs.jsonl", &line(5));
            lab.restart();
            assert_eq!((lab.read(), lab.ids()), (vec![], vec![1, 2, 3, 4, 5]));
        }
    }

    #[test]
    fn a_file_that_was_emptied_is_read_anew() {
        let mut lab = Lab::new();
        lab.append("jobs.jsonl", &(line(1) + &line(2)));
        assert_eq!(lab.read(), [0; 0]);
        let path = lab.dir.path().join("jobs.jsonl");
        std::fs::write(&path, line(3)).unwrap();
        assert_eq!((lab.read(), lab.ids()), (vec![], vec![1, 2, 3]));
        // Truncated, and grown past the previous read position before the next check.
        std::fs::write(&path, (4..9).map(line).collect::<String>()).unwrap();
        lab.restart();
        assert_eq!((lab.read(), lab.ids()), (vec![], (1..9).collect()));
    }

    #[test]
    fn the_first_line_of_a_file_that_was_emptied_within_a_long_one_is_taken() {
        let mut lab = Lab::new();
        lab.append("jobs.jsonl", &line(1));
        lab.append("jobs.jsonl", &"x".repeat(PIECE_BYTES + 5));
        assert_eq!(lab.read(), [0; 0]);
        std::fs::write(lab.dir.path().join("jobs.jsonl"), line(2)).unwrap();
        assert_eq!((lab.read(), lab.ids()), (vec![], vec![1, 2]));
    }

    #[test]
    fn a_file_that_others_can_write_is_not_taken() {
        let mut lab = Lab::new();
        lab.append("jobs.jsonl", &line(1));
        let path = lab.dir.path().join("jobs.jsonl");
        let mode = |mode| std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        mode(0o646);
        let refused = lab.file.round(&lab.registry, NOW).unwrap_err().to_string();
        assert!(refused.contains("jobs.jsonl: other users can write it"), "{refused}");
        mode(0o644);
        assert_eq!((lab.read(), lab.ids()), (vec![], vec![1]));
    }

    #[test]
    fn a_line_without_end_does_not_stop_the_next() {
        let mut lab = Lab::new();
        lab.append("jobs.jsonl", &line(1));
        lab.append("jobs.jsonl", &"x".repeat(2 * PIECE_BYTES + 5));
        lab.append("jobs.jsonl", "\n");
        lab.append("jobs.jsonl", &line(2));
        assert_eq!((lab.read(), lab.ids()), (vec![2], vec![1, 2]));
    }
}
