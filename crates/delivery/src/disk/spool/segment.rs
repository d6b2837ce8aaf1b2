//! A segment: one file of the spool.

use crate::batches::frames::{Span, inside};
use model::Timestamp;
use std::fs::{DirEntry, File};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::UNIX_EPOCH;
use wire::Frames;

/// A segment: a sequence of frames.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) number: u64,
    /// Time of its oldest sample, from the file name.
    pub(super) first: Timestamp,
    pub(super) bytes: u64,
    /// Bytes that need not be sent any more.
    pub(super) sent: u64,
    last: Timestamp,
    /// Time of the last valid sample read so far. Initially it is 1 µs before the first sample.
    before: Timestamp,
}

/// Consecutive frames of a segment, read for sending.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) segment: u64,
    /// Frames to send: the range of each in `bytes`, and its end in the segment.
    pub(crate) frames: Vec<(Range<usize>, u64)>,
    /// End of the piece in the segment.
    pub(crate) end: u64,
    bytes: Vec<u8>,
}

impl Piece {
    /// The frames' bytes.
    pub(crate) fn frames(&self) -> impl Iterator<Item = &[u8]> {
        self.frames.iter().filter_map(|(range, _)| self.bytes.get(range.clone()))
    }

    /// Keeps only the first `count` frames.
    pub(crate) fn cut(&mut self, count: usize) {
        self.frames.truncate(count);
        self.end = self.frames.last().map_or(self.end, |(_, end)| *end);
    }
}

/// A damaged part: the last valid sample before it, and the first one after it if known.
pub(super) type Damage = (Timestamp, Option<Timestamp>);

impl Segment {
    pub(super) const fn new(number: u64, first: Timestamp) -> Self {
        Self { number, first, bytes: 0, sent: 0, last: first, before: first.plus(-1) }
    }

    /// Returns the segment for a folder entry. Returns `None` for other files.
    pub(super) fn found(entry: &DirEntry) -> io::Result<Option<Self>> {
        let name = entry.file_name();
        let stem = name.to_str().and_then(|name| name.strip_suffix(".jmb"));
        let parts = stem.and_then(|stem| stem.split_once('-'));
        let Some((Ok(number), Ok(first))) =
            parts.map(|(number, first)| (number.parse(), first.parse()))
        else {
            return Ok(None);
        };
        let data = entry.metadata()?;
        let written = data.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        let written = Timestamp(i64::try_from(written.as_micros()).unwrap_or(i64::MAX));
        let first = Timestamp(first);
        let last = written.max(first);
        let before = first.plus(-1);
        Ok(Some(Self { number, first, bytes: data.len(), sent: 0, last, before }))
    }

    pub(super) fn name(&self) -> String {
        format!("{:012}-{}.jmb", self.number, self.first.0)
    }

    /// Time of its last sample. For a segment of an earlier start, it is the time of its last write.
    pub(super) const fn last(&self) -> Timestamp {
        self.last
    }

    /// Whether everything has been sent.
    pub(super) const fn is_read(&self) -> bool {
        self.sent >= self.bytes
    }

    /// The unread rest as a damaged part, because the file cannot be read.
    pub(super) const fn rest(&self) -> Damage {
        (self.before, None)
    }

    /// Appends a frame. Truncates the file again if the write fails.
    pub(super) fn append(
        &mut self,
        mut file: &File,
        frame: &[u8],
        span: Span,
        sync: bool,
    ) -> io::Result<()> {
        let written =
            file.write_all(frame).and_then(|()| if sync { file.sync_data() } else { Ok(()) });
        if let Err(e) = written {
            file.set_len(self.bytes)?;
            return Err(e);
        }
        self.bytes += u64::try_from(frame.len()).unwrap_or(u64::MAX);
        self.last = self.last.max(span.last);
        Ok(())
    }

    /// Reads unsent frames: at least one, about `want` bytes. `is_done` skips frames by their start offset. Skips
    /// damaged parts and reports each once. Returns `None` at the end.
    pub(super) fn read(
        &mut self,
        dir: &Path,
        want: usize,
        is_done: impl Fn(u64) -> bool,
    ) -> io::Result<(Option<Piece>, Option<Damage>)> {
        if self.is_read() {
            return Ok((None, None));
        }
        let file = File::open(dir.join(self.name()))?;
        let left = usize::try_from(self.bytes.saturating_sub(self.sent)).unwrap_or(usize::MAX);
        let mut bytes = read_at(&file, self.sent, left.min(want))?;
        let mut walk = walk(&bytes);
        if walk.good.is_empty() && want < left {
            bytes = read_at(&file, self.sent, left)?;
            walk = self::walk(&bytes);
        }
        let from = self.sent;
        let in_segment = |at: usize| from.saturating_add(u64::try_from(at).unwrap_or(u64::MAX));
        let mut damage = None;
        if walk.begins_damaged {
            let first = walk.good.first().cloned();
            let next = first.and_then(|frame| span(&bytes, frame)).map(|span| span.first);
            damage = Some((self.before, next));
            self.sent = walk.good.first().map_or(self.bytes, |frame| in_segment(frame.start));
        }
        let end = walk.good.last().map_or(self.sent, |frame| in_segment(frame.end));
        if let Some(last) = walk.good.last().and_then(|frame| span(&bytes, frame.clone())) {
            self.before = last.last;
        }
        let frames = walk.good.into_iter().filter(|frame| !is_done(in_segment(frame.start)));
        let frames = frames.map(|frame| (frame.clone(), in_segment(frame.end))).collect();
        Ok((Some(Piece { segment: self.number, frames, end, bytes }), damage))
    }
}

fn read_at(file: &File, offset: u64, count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; count];
    let mut have = 0;
    while let Some(space) = bytes.get_mut(have..).filter(|space| !space.is_empty()) {
        let at = offset.saturating_add(u64::try_from(have).unwrap_or(u64::MAX));
        match file.read_at(space, at) {
            Ok(0) => break,
            Ok(count) => have += count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    bytes.truncate(have);
    Ok(bytes)
}

/// Valid frames at the start of the bytes, or after the damaged part at their start.
struct FrameWalk {
    good: Vec<Range<usize>>,
    begins_damaged: bool,
}

fn walk(bytes: &[u8]) -> FrameWalk {
    let good = |at: usize| {
        let frame = Frames::of(bytes.get(at..)?).next()?.ok()?;
        Some(at..at + frame.bytes.len())
    };
    let first = good(0);
    let begins_damaged = first.is_none() && !bytes.is_empty();
    let mut next = first.or_else(|| (1..bytes.len()).find_map(good));
    let mut found = Vec::new();
    while let Some(frame) = next {
        next = good(frame.end);
        found.push(frame);
    }
    FrameWalk { good: found, begins_damaged }
}

fn span(bytes: &[u8], frame: Range<usize>) -> Option<Span> {
    inside(bytes.get(frame)?)?.span
}
