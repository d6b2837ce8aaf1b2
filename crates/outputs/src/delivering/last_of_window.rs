//! Of each series, only the last sample in each window.
//!
//! The last sample of a window is known once the series has one of another window. Until then it waits, in memory and in a
//! file: without it, a kill would lose samples of confirmed slices.

use crate::files::replace_durably;
use crate::portion::{Row, rows, slice_of};
use crate::row::{SeriesText, read_line, write_line};
use model::{Series, Timestamp};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use storage::{FollowMark, SeriesInfo, TimeSlice};

/// The waiting samples after all confirmed slices, and after the slice that is not confirmed.
const FILES: [&str; 2] = ["waiting.json", "waiting.next.json"];

/// A sample that waits.
#[derive(Clone, Debug)]
struct Waiting {
    series: Arc<SeriesInfo>,
    at: i64,
    value: f64,
    start: i64,
}

/// The samples that wait for the end of their window.
#[derive(Debug)]
pub(super) struct LastOfWindow {
    /// `None`: nothing waits any more.
    window_us: Option<i64>,
    folder: PathBuf,
    waiting: Option<FxHashMap<Series, Waiting>>,
}

/// The first line of a file.
#[derive(Serialize, Deserialize)]
struct Head {
    begun: i64,
    confirmed: u64,
    samples: usize,
}

impl LastOfWindow {
    /// For windows of this length. Without windows, samples that wait since an earlier configuration are delivered first.
    pub(super) fn of_config(window_us: Option<i64>, folder: &Path) -> Option<Self> {
        // A file that cannot be looked at is an error where it is read.
        let is_there = || FILES.iter().any(|name| folder.join(name).try_exists().unwrap_or(true));
        if window_us.is_none() && !is_there() {
            return None;
        }
        Some(Self { window_us, folder: folder.to_owned(), waiting: None })
    }

    /// The samples of a slice and of earlier ones that are the last of their window. Samples of windows that ended before
    /// `ended` are, too.
    ///
    /// # Errors
    /// A file cannot be read or written. The same slice must follow.
    pub(super) fn take(
        &mut self,
        slice: &TimeSlice,
        mark: FollowMark,
        ended: Option<Timestamp>,
    ) -> io::Result<TimeSlice> {
        let before = match self.waiting.take() {
            Some(waiting) => waiting,
            None => self.read(mark)?,
        };
        let mut waiting = before.clone();
        let mut out = Vec::new();
        for row in rows(slice) {
            let Row { series, at, value, start } = row;
            let new = Waiting { series: Arc::clone(series), at, value, start };
            match waiting.get_mut(&series.series) {
                None => drop(waiting.insert(series.series.clone(), new)),
                Some(old) if self.window(old.at) == self.window(at) => {
                    if old.at <= at {
                        *old = new;
                    }
                }
                Some(old) => out.push(std::mem::replace(old, new)),
            }
        }
        let ended = if self.window_us.is_none() { Some(Timestamp(i64::MAX)) } else { ended };
        if let Some(ended) = ended {
            let window = self.window(ended.0);
            waiting.retain(|_, one| {
                let stays = self.window(one.at) >= window;
                if !stays {
                    out.push(one.clone());
                }
                stays
            });
        }
        // Until the slice is confirmed, the samples before it count.
        self.waiting = Some(before);
        self.write(&waiting, mark)?;
        self.waiting = Some(waiting);
        Ok(slice_of(out.iter().map(|one| Row {
            series: &one.series,
            at: one.at,
            value: one.value,
            start: one.start,
        })))
    }

    /// Forgets what is in memory: the last slice comes again.
    pub(super) fn forget(&mut self) {
        self.waiting = None;
    }

    fn window(&self, at: i64) -> i64 {
        at.div_euclid(self.window_us.unwrap_or(1).max(1))
    }

    /// Reads the samples that waited before the slice with this mark.
    fn read(&self, mark: FollowMark) -> io::Result<FxHashMap<Series, Waiting>> {
        let [confirmed, next] = FILES.map(|name| self.folder.join(name));
        // A later confirmation made those of the unconfirmed slice valid.
        if read_file(&next)?.is_some_and(|(of, _)| of < mark && of.begun == mark.begun) {
            fs::rename(&next, &confirmed)?;
        }
        let read = read_file(&confirmed)?.filter(|(of, _)| of.begun == mark.begun && *of < mark);
        Ok(read.map(|(_, waiting)| waiting).unwrap_or_default())
    }

    /// Writes those that wait after the slice with this mark.
    fn write(&self, waiting: &FxHashMap<Series, Waiting>, mark: FollowMark) -> io::Result<()> {
        let [confirmed, next] = FILES.map(|name| self.folder.join(name));
        let is_older = |head: Option<FollowMark>| head.is_some_and(|of| of < mark);
        if is_older(head_of(&next)?) {
            fs::rename(&next, &confirmed)?;
        }
        let head = Head { begun: mark.begun, confirmed: mark.confirmed, samples: waiting.len() };
        let mut bytes = serde_json::to_vec(&head)?;
        bytes.push(b'\n');
        for one in waiting.values() {
            write_line(&SeriesText::new(&one.series), (one.at, one.value, one.start), &mut bytes);
        }
        replace_durably(&next, &bytes)
    }
}

fn head_of(path: &Path) -> io::Result<Option<FollowMark>> {
    use io::{BufRead, BufReader, Read};
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut line = String::new();
    BufReader::new(file.take(4096)).read_line(&mut line)?;
    let head: Option<Head> = serde_json::from_str(&line).ok();
    Ok(head.map(|Head { begun, confirmed, .. }| FollowMark { begun, confirmed }))
}

type Read = (FollowMark, FxHashMap<Series, Waiting>);

/// Reads a file; `None` if there is none.
///
/// # Errors
/// It cannot be read, or is damaged.
fn read_file(path: &Path) -> io::Result<Option<Read>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let damaged = || io::Error::other(format!("{} is damaged; delete it", path.display()));
    let mut lines = text.lines();
    let head = lines.next().and_then(|line| serde_json::from_str::<Head>(line).ok());
    let Head { begun, confirmed, samples } = head.ok_or_else(damaged)?;
    let each = lines.map(|line| {
        let (series, at, value, start) = read_line(line)?;
        Some((series.series.clone(), Waiting { series: Arc::new(series), at, value, start }))
    });
    let waiting: Option<FxHashMap<_, _>> = each.collect();
    let waiting = waiting.filter(|waiting| waiting.len() == samples).ok_or_else(damaged)?;
    Ok(Some((FollowMark { begun, confirmed }, waiting)))
}
