//! Of each series, only the last sample in each window.
//!
//! The last sample of a window is known once the series has one of another window. Until then it waits, in memory and in a
//! file: without it, a kill would lose samples of confirmed slices.

use crate::delivering::marked_file::MarkedFile;
use crate::portion::{Row, rows, slice_of};
use crate::row::{SeriesText, read_line, write_line};
use model::{Series, Timestamp};
use rustc_hash::FxHashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use storage::{FollowMark, SeriesInfo, TimeSlice};

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
    file: MarkedFile,
    waiting: Option<FxHashMap<Series, Waiting>>,
}

impl LastOfWindow {
    /// For windows of this length. Without windows, samples that wait since an earlier configuration are delivered first.
    pub(super) fn of_config(window_us: Option<i64>, folder: &Path) -> Option<Self> {
        let file = MarkedFile::new(folder, "waiting");
        if window_us.is_none() && !file.is_there() {
            return None;
        }
        Some(Self { window_us, file, waiting: None })
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
        let Some(bytes) = self.file.read(mark)? else { return Ok(FxHashMap::default()) };
        let damaged = || io::Error::other("the file of waiting samples is damaged; delete it");
        let text = String::from_utf8(bytes).map_err(|_| damaged())?;
        let each = text.lines().map(|line| {
            let (series, at, value, start) = read_line(line)?;
            Some((series.series.clone(), Waiting { series: Arc::new(series), at, value, start }))
        });
        each.collect::<Option<_>>().ok_or_else(damaged)
    }

    /// Writes those that wait after the slice with this mark.
    fn write(&self, waiting: &FxHashMap<Series, Waiting>, mark: FollowMark) -> io::Result<()> {
        let mut text = Vec::new();
        for one in waiting.values() {
            write_line(&SeriesText::new(&one.series), (one.at, one.value, one.start), &mut text);
        }
        self.file.write(&text, mark)
    }
}
