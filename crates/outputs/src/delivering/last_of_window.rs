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

/// The samples of a series that wait.
#[derive(Debug)]
struct OfSeries {
    newest: Waiting,
    /// Of an earlier window: the series sends late samples beside present ones.
    late: Option<Waiting>,
    /// When its last sample was received.
    received: Timestamp,
}

/// The samples that wait for the end of their window.
#[derive(Debug)]
pub(super) struct LastOfWindow {
    /// `None`: nothing waits any more.
    window_us: Option<i64>,
    file: MarkedFile,
    waiting: Option<FxHashMap<Series, OfSeries>>,
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

    /// The samples of a slice that is received `now`, and of earlier ones, that are the last of their window. Those of series
    /// that are silent since `silent` are, too, if their window ended before it.
    ///
    /// # Errors
    /// A file cannot be read or written. The same slice must follow.
    pub(super) fn take(
        &mut self,
        slice: &TimeSlice,
        mark: FollowMark,
        (silent, now): (Option<Timestamp>, Timestamp),
    ) -> io::Result<TimeSlice> {
        let mut waiting = match self.waiting.take() {
            Some(waiting) => waiting,
            None => self.read(mark, now)?,
        };
        let mut out = Vec::new();
        for row in rows(slice) {
            let Row { series, at, value, start } = row;
            let new = Waiting { series: Arc::clone(series), at, value, start };
            out.extend(self.add(&mut waiting, new, now));
        }
        let silent = if self.window_us.is_none() { Some(Timestamp(i64::MAX)) } else { silent };
        if let Some(silent) = silent {
            let window = self.window(silent.0);
            waiting.retain(|_, of| {
                if of.received > silent {
                    return true;
                }
                out.extend(of.late.take_if(|late| self.window(late.at) < window));
                let waits = of.late.is_some() || self.window(of.newest.at) >= window;
                if !waits {
                    out.push(of.newest.clone());
                }
                waits
            });
        }
        // After an error, the file has the samples before the slice.
        self.write(&waiting, mark)?;
        self.waiting = Some(waiting);
        Ok(slice_of(out.iter().map(|one| Row {
            series: &one.series,
            at: one.at,
            value: one.value,
            start: one.start,
        })))
    }

    /// Adds a sample to those that wait. Returns the one that waits no longer: the last of its window.
    fn add(
        &self,
        waiting: &mut FxHashMap<Series, OfSeries>,
        new: Waiting,
        received: Timestamp,
    ) -> Option<Waiting> {
        let Some(of) = waiting.get_mut(&new.series.series) else {
            let series = new.series.series.clone();
            waiting.insert(series, OfSeries { newest: new, late: None, received });
            return None;
        };
        of.received = received;
        let window = self.window(new.at);
        let place = match &mut of.late {
            _ if window > self.window(of.newest.at) => {
                return Some(std::mem::replace(&mut of.newest, new));
            }
            _ if window == self.window(of.newest.at) => &mut of.newest,
            Some(late) if window == self.window(late.at) => late,
            late => return late.replace(new),
        };
        if place.at <= new.at {
            *place = new;
        }
        None
    }

    /// Forgets what is in memory: the last slice comes again.
    pub(super) fn forget(&mut self) {
        self.waiting = None;
    }

    fn window(&self, at: i64) -> i64 {
        at.div_euclid(self.window_us.unwrap_or(1).max(1))
    }

    /// Reads the samples that waited before the slice with this mark.
    fn read(&self, mark: FollowMark, now: Timestamp) -> io::Result<FxHashMap<Series, OfSeries>> {
        let Some(bytes) = self.file.read(mark)? else { return Ok(FxHashMap::default()) };
        let damaged = || io::Error::other("the file of waiting samples is damaged; delete it");
        let text = String::from_utf8(bytes).map_err(|_| damaged())?;
        let mut waiting = FxHashMap::default();
        for line in text.lines() {
            let (series, at, value, start) = read_line(line).ok_or_else(damaged)?;
            // The newest sample of a series comes first, so none is replaced.
            self.add(&mut waiting, Waiting { series: Arc::new(series), at, value, start }, now);
        }
        Ok(waiting)
    }

    /// Writes those that wait after the slice with this mark.
    fn write(&self, waiting: &FxHashMap<Series, OfSeries>, mark: FollowMark) -> io::Result<()> {
        let mut text = Vec::new();
        for one in waiting.values().flat_map(|of| std::iter::once(&of.newest).chain(&of.late)) {
            write_line(&SeriesText::new(&one.series), (one.at, one.value, one.start), &mut text);
        }
        self.file.write(&text, mark)
    }
}
