//! A block's index: the rows of each series, and facts about them that need no read of the rows.
//!
//! Series are ordered by their rows, in separately compressed parts of some hundred series. A directory lists
//! the devices and the time of each part.
//! A query reads the directory once, then the parts of its devices.

use super::checks::Checks;
use crate::files::varint::{Bytes, put, put_signed, put_text};
use model::{ClusterId, DeviceId, JobId, JobKey, Labels, Series};
use rustc_hash::FxHashMap;
use senders::NO_START;
use std::sync::Arc;

/// Series of a part: about as many as a node has, so that a query of one node reads one or two parts.
const PART_SERIES: u64 = 512;
const ZSTD_LEVEL: i32 = 3;
/// A part with this many uncompressed bytes ends early.
const PART_BYTES: usize = 1 << 20;
/// Largest decompressed part that is accepted: a series with a million starts, and those before it.
const PART_BYTES_MAX: usize = 64 << 20;

/// Facts about a series in a block, known without reading its rows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) series: Series,
    /// Its first row in the block.
    pub(crate) row: u64,
    pub(crate) rows: u64,
    /// First and last instant.
    pub(crate) from: i64,
    pub(crate) to: i64,
    pub(crate) divisor: u32,
    /// The last value, in the metric's unit.
    pub(crate) last: f64,
    /// First row (of the series' rows) of each run of one start.
    pub(crate) starts: Vec<(usize, i64)>,
}

/// Location and content of a part of the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) first_device: DeviceId,
    pub(crate) last_device: DeviceId,
    pub(crate) series: u64,
    /// The first row of its first series.
    pub(crate) row: u64,
    pub(crate) rows: u64,
    pub(crate) from: i64,
    pub(crate) to: i64,
    /// Location of its bytes in the file.
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) crc: u32,
}

/// Collects the index while rows are written.
#[derive(Debug, Default)]
pub(crate) struct IndexWriter {
    plain: Vec<u8>,
    before: Option<Series>,
    part: Option<Part>,
    parts: Vec<Part>,
    compressed: Vec<u8>,
    row: u64,
}

impl IndexWriter {
    /// Adds the next series; its `row` is the end of the previous series.
    pub(crate) fn push(&mut self, entry: &Entry) -> std::io::Result<()> {
        if self.plain.len() >= PART_BYTES
            || self.part.as_ref().is_some_and(|part| part.series >= PART_SERIES)
        {
            self.end_part()?;
        }
        self.put(entry);
        let device = entry.series.device.clone();
        let part = self.part.get_or_insert_with(|| Part {
            first_device: device.clone(),
            last_device: device.clone(),
            series: 0,
            row: self.row,
            rows: 0,
            from: entry.from,
            to: entry.to,
            offset: 0,
            length: 0,
            crc: 0,
        });
        part.last_device = device;
        part.series += 1;
        part.rows += entry.rows;
        part.from = part.from.min(entry.from);
        part.to = part.to.max(entry.to);
        self.row += entry.rows;
        self.before = Some(entry.series.clone());
        Ok(())
    }

    fn put(&mut self, entry: &Entry) {
        let Self { plain: out, before, .. } = self;
        let Series { device, metric, job, labels } = &entry.series;
        let same = |test: &dyn Fn(&Series) -> bool| before.as_ref().is_some_and(test);
        let new = [
            !same(&|before| before.device == *device),
            !same(&|before| before.metric == *metric),
            !same(&|before| before.job == *job),
            !same(&|before| before.labels == *labels),
        ];
        out.push(new.iter().zip(0..).map(|(new, bit)| u8::from(*new) << bit).sum());
        let [new_device, new_metric, new_job, new_labels] = new;
        if new_device {
            put_text(out, device.as_str());
        }
        if new_metric {
            put_text(out, metric);
        }
        if new_job {
            put(out, job.as_ref().map_or(0, |job| job.id.get().cast_unsigned()));
            job.iter().for_each(|job| put_text(out, job.cluster.as_str()));
        }
        if new_labels {
            put_text(out, labels.as_str());
        }
        put(out, entry.rows);
        put_signed(out, entry.from);
        put(out, entry.to.wrapping_sub(entry.from).cast_unsigned());
        put(out, entry.divisor.into());
        out.extend_from_slice(&entry.last.to_le_bytes());
        put(out, entry.starts.len() as u64);
        for (row, start) in &entry.starts {
            put(out, *row as u64);
            put(out, u64::from(*start != NO_START));
            if *start != NO_START {
                put_signed(out, *start);
            }
        }
    }

    fn end_part(&mut self) -> std::io::Result<()> {
        let Some(mut part) = self.part.take() else { return Ok(()) };
        let compressed = zstd::bulk::compress(&self.plain, ZSTD_LEVEL)?;
        part.offset = self.compressed.len() as u64;
        part.length = compressed.len() as u64;
        part.crc = crc32c::crc32c(&compressed);
        self.compressed.extend_from_slice(&compressed);
        self.parts.push(part);
        self.plain.clear();
        self.before = None;
        Ok(())
    }

    /// The parts, to be written at `offset` of the file, and the directory, to be written after them.
    pub(crate) fn finish(mut self, offset: u64) -> std::io::Result<(Vec<u8>, Vec<u8>)> {
        self.end_part()?;
        let mut directory = Vec::new();
        put(&mut directory, self.parts.len() as u64);
        for part in &self.parts {
            put_text(&mut directory, part.first_device.as_str());
            put_text(&mut directory, part.last_device.as_str());
            for number in [part.series, part.row, part.rows, part.offset + offset, part.length] {
                put(&mut directory, number);
            }
            put_signed(&mut directory, part.from);
            put_signed(&mut directory, part.to);
            directory.extend_from_slice(&part.crc.to_le_bytes());
        }
        Ok((self.compressed, directory))
    }
}

/// Reads a directory and the checksums after it; `None` if malformed.
pub(crate) fn directory(bytes: &[u8]) -> Option<(Vec<Part>, Checks)> {
    let mut bytes = Bytes(bytes);
    let parts = bytes.count()?;
    let mut directory = Vec::with_capacity(parts.min(1 << 16));
    for _ in 0..parts {
        let first_device = DeviceId::new(bytes.text()?).ok()?;
        let last_device = DeviceId::new(bytes.text()?).ok()?;
        let (series, row, rows) = (bytes.number()?, bytes.number()?, bytes.number()?);
        let (offset, length) = (bytes.number()?, bytes.number()?);
        let (from, to) = (bytes.signed()?, bytes.signed()?);
        let crc = u32::from_le_bytes(bytes.fixed()?);
        directory.push(Part {
            first_device,
            last_device,
            series,
            row,
            rows,
            from,
            to,
            offset,
            length,
            crc,
        });
    }
    let checks = Checks::take(&mut bytes)?;
    bytes.0.is_empty().then_some((directory, checks))
}

/// Reads a part; `None` if the bytes do not match this part.
pub(crate) fn entries(part: &Part, compressed: &[u8]) -> Option<Vec<Entry>> {
    if crc32c::crc32c(compressed) != part.crc {
        return None;
    }
    let plain = zstd::bulk::decompress(compressed, plain_size(compressed)?).ok()?;
    let mut bytes = Bytes(&plain);
    let mut entries: Vec<Entry> =
        Vec::with_capacity(usize::try_from(part.series.min(PART_SERIES)).ok()?);
    let mut names = Names::default();
    let mut row = part.row;
    for _ in 0..part.series {
        let entry = entry(&mut bytes, &mut names, entries.last(), row)?;
        row = row.checked_add(entry.rows)?;
        entries.push(entry);
    }
    (bytes.0.is_empty() && row == part.row.checked_add(part.rows)?).then_some(entries)
}

fn plain_size(compressed: &[u8]) -> Option<usize> {
    let size = zstd::zstd_safe::get_frame_content_size(compressed).ok()??;
    usize::try_from(size).ok().filter(|size| *size <= PART_BYTES_MAX)
}

/// The names of a part, each once in memory: its devices have the same metrics with the same labels.
#[derive(Default)]
struct Names<'a> {
    metrics: FxHashMap<&'a str, Arc<str>>,
    labels: FxHashMap<&'a str, Labels>,
}

impl<'a> Names<'a> {
    fn metric(&mut self, name: &'a str) -> Arc<str> {
        Arc::clone(self.metrics.entry(name).or_insert_with(|| Arc::from(name)))
    }

    fn labels(&mut self, text: &'a str) -> Option<Labels> {
        if let Some(known) = self.labels.get(text) {
            return Some(known.clone());
        }
        let labels = Labels::from_canonical(text).ok()?;
        self.labels.insert(text, labels.clone());
        Some(labels)
    }
}

fn entry<'a>(
    bytes: &mut Bytes<'a>,
    names: &mut Names<'a>,
    before: Option<&Entry>,
    row: u64,
) -> Option<Entry> {
    let [new] = bytes.fixed()?;
    let before = before.map(|before| &before.series);
    let device =
        if new & 1 != 0 { DeviceId::new(bytes.text()?).ok()? } else { before?.device.clone() };
    let metric =
        if new & 2 != 0 { names.metric(bytes.text()?) } else { Arc::clone(&before?.metric) };
    let job = if new & 4 != 0 {
        match bytes.number()? {
            0 => None,
            id => {
                let id = i64::try_from(id).ok().and_then(JobId::new)?;
                Some(JobKey { cluster: ClusterId::new(bytes.text()?).ok()?, id })
            }
        }
    } else {
        before?.job.clone()
    };
    let labels = if new & 8 != 0 { names.labels(bytes.text()?)? } else { before?.labels.clone() };
    let rows = bytes.number()?;
    let from = bytes.signed()?;
    let to = from.wrapping_add(bytes.number()?.cast_signed());
    let divisor = bytes.small().filter(|divisor| *divisor > 0)?;
    let last = f64::from_le_bytes(bytes.fixed()?);
    let runs = bytes.count()?;
    let mut starts = Vec::with_capacity(runs.min(64));
    for _ in 0..runs {
        let first = bytes.count()?;
        let start = if bytes.number()? == 0 { NO_START } else { bytes.signed()? };
        starts.push((first, start));
    }
    let series = Series { device, metric, job, labels };
    Some(Entry { series, row, rows, from, to, divisor, last, starts })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(n: u64) -> Entry {
        let job = (n % 3 == 1)
            .then(|| JobKey { cluster: ClusterId::local(), id: JobId::new(7).unwrap() });
        Entry {
            series: Series {
                device: DeviceId::new(&format!("n{:05}", n / 10)).unwrap(),
                metric: Arc::from(format!("m{}", n % 10)),
                job,
                labels: Labels::new([("cpu", &*n.to_string())]).unwrap(),
            },
            row: n * 5,
            rows: 5,
            from: 100 - n.cast_signed(),
            to: 200 + n.cast_signed(),
            divisor: 1_000_000,
            last: 0.5,
            starts: vec![(0, NO_START), (2, -7)],
        }
    }

    #[test]
    fn round_trip_over_several_parts() {
        let mut writer = IndexWriter::default();
        let all: Vec<Entry> = (0..1200).map(sample).collect();
        all.iter().for_each(|entry| writer.push(entry).unwrap());
        let (parts, mut bytes) = writer.finish(1000).unwrap();
        Checks::default().put(&mut bytes);
        let (directory, _) = directory(&bytes).unwrap();
        assert_eq!(directory.len(), 3);
        assert_eq!((directory[0].from, directory[0].to), (100 - 511, 200 + 511));
        assert_eq!(directory[1].first_device.as_str(), "n00051");
        let mut again = Vec::new();
        for part in &directory {
            let start = usize::try_from(part.offset).unwrap() - 1000;
            let bytes = &parts[start..start + usize::try_from(part.length).unwrap()];
            again.extend(entries(part, bytes).unwrap());
            let mut bad = bytes.to_vec();
            bad[3] ^= 1;
            assert_eq!(entries(part, &bad), None);
        }
        assert_eq!(again, all);
    }

    #[test]
    fn an_empty_index() {
        let (parts, mut bytes) = IndexWriter::default().finish(0).unwrap();
        assert!(parts.is_empty());
        Checks::default().put(&mut bytes);
        assert_eq!(directory(&bytes), Some((Vec::new(), Checks::default())));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            directory(&bytes);
            let device = DeviceId::new("n").unwrap();
            let crc = crc32c::crc32c(&bytes);
            let mut plain = Bytes(&bytes);
            entry(&mut plain, &mut Names::default(), None, 0);
            let part = Part {
                first_device: device.clone(), last_device: device, series: 3, row: 0, rows: 9,
                from: 0, to: 0, offset: 0, length: 0, crc,
            };
            entries(&part, &bytes);
        }
    }
}
