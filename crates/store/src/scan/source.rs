//! The sources of a scan: blocks and the heads in memory, each with its series in order.

use crate::blocks::{Block, Entry, Lane, Opened, RolledCursor, RowCursor, Window};
use crate::files::errors::BlockError;
use crate::files::point::Point;
use crate::head::samples::{Head, Member};
use crate::head::series_builder::SeriesBuilder;
use crate::state::shared::Shared;
use crate::state::view::devices_of;
use model::{DeviceId, Series, Timestamp};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::ops::Range;
use std::sync::Arc;
use storage::{Meter, Selector, SeriesFilter, SeriesInfo};

/// Rows of a head that are converted into series together.
const SLAB_ROWS: usize = 128 << 10;

/// A selection and its interval.
#[derive(Clone, Debug)]
pub(crate) struct ScanQuery {
    pub(crate) selector: Selector,
    /// Excludes series before their samples are read.
    pub(crate) filter: Option<SeriesFilter>,
    /// First and last instant, both inclusive.
    pub(crate) from: i64,
    pub(crate) to: i64,
}

impl ScanQuery {
    /// Whether the query reads the series.
    pub(crate) fn matches(&self, series: &Series) -> bool {
        let interval = (Timestamp(self.from), Timestamp(self.to));
        let passes = |filter: &SeriesFilter| (filter.0)(series, interval);
        self.selector.matches(series) && self.filter.as_ref().is_none_or(passes)
    }
}

/// Samples of one series from one source.
#[derive(Debug)]
pub(crate) enum Piece {
    /// Rows of a block, not read yet.
    Rows(Box<Entry>),
    /// Rows from memory.
    Columns { times: Vec<i64>, values: Vec<f64>, starts: Vec<(usize, i64)> },
}

/// A source of samples, series by series.
#[derive(Debug)]
pub(crate) enum Source {
    Block(Box<BlockSource>),
    Head(Box<HeadSource>),
}

impl Source {
    /// The next series of the source, in order.
    ///
    /// # Errors
    /// A block cannot be read.
    pub(crate) fn next(
        &mut self,
        shared: &Shared,
        query: &ScanQuery,
    ) -> Result<Option<(Arc<SeriesInfo>, Piece)>, BlockError> {
        match self {
            Self::Block(block) => block.next(shared, query),
            Self::Head(head) => Ok(head.next(query)),
        }
    }

    /// Appends rows of a piece of this source.
    ///
    /// # Errors
    /// The block cannot be read.
    pub(crate) fn read(
        &mut self,
        rows: Range<u64>,
        divisor: u32,
        times: &mut Vec<i64>,
        values: &mut impl Lane,
    ) -> Result<(), BlockError> {
        match self {
            Self::Block(block) => block.cursor()?.read(rows, divisor, times, values),
            Self::Head(_) => Ok(()),
        }
    }

    /// The rows of a piece without pages wholly outside the interval.
    pub(crate) fn narrow(&self, entry: &Entry, query: &ScanQuery) -> Range<u64> {
        let rows = entry.row..entry.row + entry.rows;
        match self {
            Self::Block(block) => match &block.opened {
                Some(opened) if entry.from < query.from || entry.to > query.to => {
                    opened.narrow(rows, query.from, query.to)
                }
                _ => rows,
            },
            Self::Head(_) => rows,
        }
    }
}

/// A block; its index is read part by part.
#[derive(Debug)]
pub(crate) struct BlockSource {
    block: Arc<Block>,
    meter: Arc<Meter>,
    opened: Option<Arc<Opened>>,
    next_part: usize,
    entries: VecDeque<(Arc<SeriesInfo>, Entry)>,
    cursor: Option<RowCursor>,
    windows: Option<RolledCursor>,
}

impl BlockSource {
    pub(crate) fn new(block: &Arc<Block>, meter: &Arc<Meter>) -> Self {
        Self {
            block: Arc::clone(block),
            meter: Arc::clone(meter),
            opened: None,
            next_part: 0,
            entries: VecDeque::new(),
            cursor: None,
            windows: None,
        }
    }

    fn next(
        &mut self,
        shared: &Shared,
        query: &ScanQuery,
    ) -> Result<Option<(Arc<SeriesInfo>, Piece)>, BlockError> {
        loop {
            if let Some((info, entry)) = self.entries.pop_front() {
                return Ok(Some((info, Piece::Rows(Box::new(entry)))));
            }
            if !self.part(shared, query)? {
                return Ok(None);
            }
        }
    }

    /// Reads the next relevant part; false if there is none.
    fn part(&mut self, shared: &Shared, query: &ScanQuery) -> Result<bool, BlockError> {
        let opened = self.opened()?;
        let parts = opened.parts.get(self.next_part..).unwrap_or_default();
        let wanted = parts.iter().position(|part| {
            part.from <= query.to
                && part.to >= query.from
                && has_device(&query.selector, &part.first_device, &part.last_device)
        });
        let Some(part) = wanted.and_then(|at| parts.get(at)) else {
            self.next_part = opened.parts.len();
            return Ok(false);
        };
        self.next_part += wanted.unwrap_or(0) + 1;
        let mut entries = self.block.entries(part, &self.meter)?;
        entries.retain(|entry| {
            entry.from <= query.to && entry.to >= query.from && query.matches(&entry.series)
        });
        let books = shared.books();
        let known =
            |entry: Entry| (books.registry.series_info(entry.series.clone(), entry.divisor), entry);
        self.entries.extend(entries.into_iter().map(known));
        Ok(true)
    }

    fn opened(&mut self) -> Result<Arc<Opened>, BlockError> {
        if let Some(opened) = &self.opened {
            return Ok(Arc::clone(opened));
        }
        let opened = self.block.opened(&self.meter)?;
        self.opened = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// Whether it has windows instead of samples.
    pub(crate) fn has_windows(&self) -> bool {
        self.block.note.window_us > 0
    }

    /// Whether they are final.
    pub(crate) fn is_settled(&self) -> bool {
        self.block.note.settled.is_some()
    }

    /// Appends the windows of an entry of this source, without pages outside the interval.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn windows(
        &mut self,
        entry: &Entry,
        query: &ScanQuery,
        windows: &mut Vec<Window>,
    ) -> Result<(), BlockError> {
        let opened = self.opened()?;
        let rows = opened.narrow(entry.row..entry.row + entry.rows, query.from, query.to);
        let new = || RolledCursor::new(&self.block, &opened, &self.meter);
        self.windows.get_or_insert_with(new).read(entry, rows, windows)
    }

    fn cursor(&mut self) -> Result<&mut RowCursor, BlockError> {
        let opened = self.opened()?;
        let new = || RowCursor::new(&self.block, &opened, &self.meter);
        Ok(self.cursor.get_or_insert_with(new))
    }
}

/// Whether a selection includes a device between two.
fn has_device(selector: &Selector, first: &DeviceId, last: &DeviceId) -> bool {
    let Some(devices) = &selector.devices else { return true };
    devices.range(first..=last).next().is_some()
}

/// A head, device by device.
#[derive(Debug)]
pub(crate) struct HeadSource {
    head: Arc<Head>,
    visible: u64,
    devices: VecDeque<DeviceId>,
    /// Series of the current device, in order; the front ones are the next.
    members: VecDeque<Member>,
    ready: VecDeque<(Arc<SeriesInfo>, Piece)>,
    slab: SeriesBuilder,
}

impl HeadSource {
    pub(crate) fn new(head: &Arc<Head>, visible: u64, selector: &Selector) -> Self {
        Self {
            devices: devices_of(head, selector).into(),
            head: Arc::clone(head),
            visible,
            members: VecDeque::new(),
            ready: VecDeque::new(),
            slab: SeriesBuilder::default(),
        }
    }

    fn next(&mut self, query: &ScanQuery) -> Option<(Arc<SeriesInfo>, Piece)> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Some(ready);
            }
            if self.members.is_empty() {
                let device = self.devices.pop_front()?;
                let keep = |info: &SeriesInfo| query.matches(&info.series);
                self.members = self.head.members(&device, keep).into();
            }
            self.fill(query);
        }
    }

    /// Builds the samples of the next few series.
    fn fill(&mut self, query: &ScanQuery) {
        let (mut rows, mut batch): (usize, Vec<Member>) = (0, Vec::new());
        while let Some(member) = self.members.front() {
            let same =
                batch.last().is_some_and(|last| SeriesInfo::same(&last.series, &member.series));
            if rows >= SLAB_ROWS && !same {
                break;
            }
            let (samples, (from, to)) = {
                let group = member.group.rows();
                (group.samples(member.place), group.span())
            };
            let touched = samples > 0 && from <= query.to && to >= query.from;
            let Some(member) = self.members.pop_front() else { break };
            if touched {
                rows += samples;
                batch.push(member);
            }
        }
        let ready = &mut self.ready;
        let span = (query.from, query.to);
        let shown = self.slab.read(&batch, &Point::before(self.visible), span, |rows| {
            let raws = rows.bits.iter().zip(rows.reals);
            let values = raws.map(|(bits, real)| {
                crate::head::samples::RawValue { bits: *bits, real: *real }.value(rows.divisor)
            });
            let values = values.collect();
            let (times, starts) = (rows.times.to_vec(), rows.starts.to_vec());
            ready.push_back((Arc::clone(rows.series), Piece::Columns { times, values, starts }));
            Ok::<(), Infallible>(())
        });
        match shown {
            Ok(()) => {}
            Err(never) => match never {},
        }
    }
}
