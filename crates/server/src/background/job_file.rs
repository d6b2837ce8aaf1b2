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
use crate::auth::file_trust::check_trust;
use crate::common::json_error;
use crate::common::tasks::stopped;
use crate::schedulers::job_update_parser::{latest, record_update};
use api::JobUpdate;
use jobs::{IngestStats, ReadPosition, RecordUpdate, Registry, RegistryError, StableHash};
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
const LOGGED_MAX: usize = 10;

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
pub(crate) struct RoundResult {
    stats: IngestStats,
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
    held: Option<OpenFile>,
    /// Whether the read position is inside a line that is too long.
    skipping: bool,
    /// Whether the log states that the file does not exist.
    is_absence_logged: bool,
}

#[derive(Debug)]
struct OpenFile {
    file: File,
    at: ReadPosition,
}

impl JobFile {
    pub(crate) const fn new(path: PathBuf) -> Self {
        Self { path, held: None, skipping: false, is_absence_logged: false }
    }

    /// Reads a piece of the file, and stores its updates in the registry.
    pub(crate) fn round(
        &mut self,
        registry: &Registry,
        now: Timestamp,
    ) -> Result<RoundResult, FollowError> {
        let path = self.path.clone();
        let failed = |error| FollowError::File { path: path.clone(), error };
        let name = path.to_string_lossy();
        let mut held = match self.held.take() {
            Some(held) => held,
            None => match self.find(registry.followed(&name)?).map_err(failed)? {
                Some(held) => held,
                None => {
                    if !std::mem::replace(&mut self.is_absence_logged, true) {
                        log::warn!("{name} does not exist; the server reads it when it exists");
                    }
                    return Ok(RoundResult::default());
                }
            },
        };
        let mut round = RoundResult::default();
        if !held.is_same().map_err(failed)? {
            log::info!("{name} was emptied, and is read from its beginning");
            held.at = ReadPosition { bytes: 0, lines: 0, ..held.at };
            self.skipping = false;
        }
        let mut piece = vec![0; PIECE_BYTES];
        let length = read(&held.file, &mut piece, held.at.bytes).map_err(failed)?;
        piece.truncate(length);
        let (read, amendments) = self.take(&piece, &held.at, now, &mut round);
        if read.bytes == held.at.bytes {
            return self.at_the_end(held, !piece.is_empty(), round).map_err(failed);
        }
        let read = ReadPosition { head: head(&held.file, read.bytes).map_err(failed)?, ..read };
        // If this fails, the next round reads the piece again, from the position that the registry stores.
        round.stats = registry.follow(&name, amendments, read, now)?;
        (round.more, round.until) = (true, read.lines);
        held.at = read;
        self.held = Some(held);
        Ok(round)
    }

    /// Parses the complete lines of a piece.
    fn take(
        &mut self,
        piece: &[u8],
        at: &ReadPosition,
        now: Timestamp,
        round: &mut RoundResult,
    ) -> (ReadPosition, Vec<RecordUpdate>) {
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
            match parse_line(line, now) {
                Ok(record_update) => amendments.push(record_update),
                Err(what) => round.bad.push((read.lines, what)),
            }
        }
        round.taken = amendments.len();
        (read, amendments)
    }

    /// At the end of the open file, checks whether another file has its name now.
    fn at_the_end(
        &mut self,
        held: OpenFile,
        rest: bool,
        mut round: RoundResult,
    ) -> io::Result<RoundResult> {
        let new = match File::open(&self.path) {
            Ok(file) => OpenFile::new(file)?,
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
    fn find(&self, saved: Option<ReadPosition>) -> io::Result<Option<OpenFile>> {
        let opened = match File::open(&self.path) {
            Ok(file) => Some(OpenFile::new(file)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let Some(saved) = saved else { return Ok(opened) };
        if let Some(held) = opened.as_ref().and_then(|held| held.again(saved)) {
            return held.map(Some);
        }
        for neighbour in neighbours(&self.path)? {
            // A file that has disappeared or is not readable is not the one.
            let Ok(Ok(file)) = File::open(&neighbour).map(OpenFile::new) else { continue };
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

impl OpenFile {
    /// Opens a file at its beginning. Its writer must be trusted, because its lines set the owners of jobs.
    fn new(file: File) -> io::Result<Self> {
        let about = file.metadata()?;
        check_trust(&about)?;
        let (disk, inode) = (about.dev(), about.ino());
        let at = ReadPosition { disk, inode, head: head(&file, 0)?, bytes: 0, lines: 0 };
        Ok(Self { file, at })
    }

    /// Returns this file at the saved position, if it is the saved file.
    fn again(&self, saved: ReadPosition) -> Option<io::Result<Self>> {
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

fn parse_line(line: &[u8], now: Timestamp) -> Result<RecordUpdate, String> {
    let update: JobUpdate =
        serde_json::from_slice(line).map_err(|error| json_error::describe(line, &error))?;
    record_update(update, latest(true, now))
}

/// Follows the file until the server stops.
pub(crate) async fn follow(app: Arc<App>, path: PathBuf) {
    let mut stopping = app.stopping.clone();
    let (mut file, mut is_failing) = (JobFile::new(path), false);
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
                log_round(&app, &file.path, round);
                is_failing = false;
            }
            Err(error) if !std::mem::replace(&mut is_failing, true) => {
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

fn log_round(app: &App, path: &Path, round: RoundResult) {
    app.count_records(round.stats);
    app.counts.file_lines.add(round.taken);
    app.counts.file_lines_bad.add(round.bad.len());
    for (line, what) in round.bad.iter().take(LOGGED_MAX) {
        log::warn!("{}:{line}: {what}", path.display());
    }
    if round.stats.backwards > 0 {
        log::warn!(
            "{}: {} lines up to {} end a job more than 60 s before its start; the server rejected \
             them",
            path.display(),
            round.stats.backwards,
            round.until
        );
    }
    if let Some(left) = round.bad.len().checked_sub(LOGGED_MAX).filter(|left| *left > 0) {
        log::warn!("{}: {left} more bad lines", path.display());
    }
}

#[cfg(test)]
mod tests;
