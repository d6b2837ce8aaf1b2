//! Encodes a batch into a frame.

use crate::frame::{FRAME_HEADER_BYTES, FrameError, seal};
use crate::limits::{self, LimitError};
use crate::splice::{blocks_of, splice};
use crate::{answer::cut, message};
use model::{
    Batch, Cause, Gap, JobEvent, Kind, Labels, Metric, OomKill, SeriesEntry, SeriesTable, Unit,
};
use prost::Message;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

/// Compression level: 1 takes a third of the time of level 3 and gives 5 % more bytes on our tables.
const ZSTD_LEVEL: i32 = 1;
/// The table is compressed once if the rest of a batch is at most one part in so many of it: the rest is then sent
/// without compression.
const REST_SHARE: usize = 4;
/// Maximum length of such a payload. A reader of a longer one needs as much memory, otherwise this much
/// (the window of [`ZSTD_LEVEL`]).
const SPLICED_BYTES_MAX: usize = 512 << 10;

/// Why a batch cannot be encoded.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// A field exceeds its limit.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The frame is too long.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The compressor failed.
    #[error("compressing the batch: {0}")]
    Compress(#[from] std::io::Error),
}

/// Encodes frames, and remembers which metrics of this boot it has sent with their help.
#[derive(Default)]
pub struct Encoder {
    payload: Vec<u8>,
    /// The hash of each metric's help.
    explained: HashMap<String, u64>,
    table: Option<KnownTable>,
}

/// The table of the last batch.
struct KnownTable {
    table: Arc<SeriesTable>,
    /// The table, encoded, without the help of metrics that were explained before.
    bytes: Vec<u8>,
    /// The field of the table as blocks of zstd, and its length; from the second batch on.
    blocks: Option<(Vec<u8>, usize)>,
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder").field("explained", &self.explained.len()).finish_non_exhaustive()
    }
}

impl Encoder {
    /// Appends the batch to `out` as one frame.
    ///
    /// # Errors
    /// The parts of the batch disagree or exceed a limit; `out` is then unchanged.
    pub fn encode(&mut self, batch: &Batch, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        batch.check().map_err(LimitError::from)?;
        limits::count("series", batch.table.entries.len(), limits::SERIES_MAX)?;
        limits::count("ticks", batch.ticks.len(), limits::TICKS_MAX)?;
        limits::count("gaps", batch.gaps.len(), limits::GAPS_MAX)?;
        limits::count("job events", batch.jobs.len(), limits::JOBS_MAX)?;
        let start = out.len();
        out.resize(start + FRAME_HEADER_BYTES, 0);
        let appended = self.append(&batch.table, columns(batch), out);
        appended.and_then(|()| Ok(seal(out, start)?)).inspect_err(|_| out.truncate(start))
    }

    /// Appends the payload of a batch.
    fn append(
        &mut self,
        table: &Arc<SeriesTable>,
        mut message: message::Batch,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        // Agents share a table between batches.
        let is_known = self.table.as_ref().is_some_and(|known| Arc::ptr_eq(&known.table, table));
        if is_known && self.splice(&message, out)? {
            return Ok(());
        }
        message.table = self.table_bytes(table);
        limits::bytes("table", message.table.len(), limits::TABLE_BYTES_MAX)?;
        limits::bytes("payload", message.encoded_len(), limits::PAYLOAD_BYTES_MAX)?;
        self.payload.clear();
        message.encode_raw(&mut self.payload);
        let compressed = compress(&self.payload)?;
        out.extend_from_slice(&compressed);
        Ok(())
    }

    /// Appends the payload of a batch with the known table as compressed for an earlier batch; false if the batch is
    /// not suited for it.
    fn splice(&mut self, message: &message::Batch, out: &mut Vec<u8>) -> Result<bool, EncodeError> {
        let Some(known) = &mut self.table else { return Ok(false) };
        let (table, rest) = (known.bytes.len(), message.encoded_len());
        if rest > table / REST_SHARE || table + rest > SPLICED_BYTES_MAX {
            return Ok(false);
        }
        let (blocks, size) = match &mut known.blocks {
            Some(blocks) => blocks,
            None => {
                let table = message::Batch { table: known.bytes.clone(), ..Default::default() };
                let field = table.encode_to_vec();
                let compressed = compress(&field)?;
                let Some(blocks) = blocks_of(&compressed) else { return Ok(false) };
                known.blocks.insert((blocks, field.len()))
            }
        };
        let message::Batch { origin, boot, seq, .. } = message;
        let (origin, boot) = (origin.clone(), boot.clone());
        let head = message::Batch { origin, boot, seq: *seq, ..Default::default() }.encoded_len();
        self.payload.clear();
        message.encode_raw(&mut self.payload);
        let (head, rest) = self.payload.split_at_checked(head).unwrap_or_default();
        splice(out, head, (blocks, *size), rest);
        Ok(true)
    }

    /// The encoded table, rebuilt only for a new table.
    fn table_bytes(&mut self, table: &Arc<SeriesTable>) -> Vec<u8> {
        if let Some(known) = self.table.as_ref().filter(|known| Arc::ptr_eq(&known.table, table)) {
            return known.bytes.clone();
        }
        let with_help = table_message(table, &mut self.explained).encode_to_vec();
        // The first table with a metric contains its help; the cached one does not.
        let bytes = table_message(table, &mut self.explained).encode_to_vec();
        self.table = Some(KnownTable { table: Arc::clone(table), bytes, blocks: None });
        with_help
    }
}

/// Compresses with a context of half a megabyte, which the encoders of a program share: a poller has hundreds of encoders.
fn compress(bytes: &[u8]) -> Result<Vec<u8>, EncodeError> {
    static SPARE: Mutex<Option<zstd::bulk::Compressor<'static>>> = Mutex::new(None);
    let spare = || SPARE.lock().unwrap_or_else(PoisonError::into_inner);
    let compressor = spare().take();
    let mut compressor = match compressor {
        Some(compressor) => compressor,
        None => zstd::bulk::Compressor::new(ZSTD_LEVEL)?,
    };
    let compressed = compressor.compress(bytes)?;
    *spare() = Some(compressor);
    Ok(compressed)
}

/// The batch without its table.
fn columns(batch: &Batch) -> message::Batch {
    let mut message = message::Batch {
        origin: batch.origin.as_str().to_owned(),
        boot: batch.boot.0.to_vec(),
        seq: batch.seq,
        gap: batch.gaps.iter().map(gap).collect(),
        job: batch.jobs.iter().map(job).collect(),
        ..message::Batch::default()
    };
    let mut before = 0_i64;
    for tick in &batch.ticks {
        message.tick_delta.push(tick.at.0.wrapping_sub(before));
        message.tick_samples.push(tick.samples);
        before = tick.at.0;
    }
    message.refs.reserve(batch.index.len());
    let mut expected = 0_i64;
    for (place, value) in batch.index.iter().zip(&batch.values) {
        let entry = usize::try_from(*place).ok().and_then(|place| batch.table.entries.get(place));
        let steps = entry.and_then(|entry| entry.metric.to_steps(*value));
        let column = match steps {
            Some(steps) => {
                message.step.push(steps);
                0
            }
            None => {
                message.real.push(*value);
                1
            }
        };
        message.refs.push(zigzag(i64::from(*place) - expected) << 1 | column);
        expected = i64::from(*place) + 1;
    }
    message
}

/// Maps small numbers of either sign to small numbers: 0, -1, 1, -2 … to 0, 1, 2, 3 …
pub(crate) const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

/// The inverse of [`zigzag`].
pub(crate) const fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}

/// Indexes of the distinct items of a list.
struct ItemIndexes<T> {
    places: HashMap<T, u32>,
}

impl<T: Hash + Eq> ItemIndexes<T> {
    fn new() -> Self {
        Self { places: HashMap::new() }
    }

    /// The index of an item; calls `add` if it is new.
    fn of(&mut self, thing: T, add: impl FnOnce()) -> u32 {
        let next = u32::try_from(self.places.len()).unwrap_or(u32::MAX);
        *self.places.entry(thing).or_insert_with(|| {
            add();
            next
        })
    }
}

fn table_message(table: &SeriesTable, explained: &mut HashMap<String, u64>) -> message::Table {
    let mut message = message::Table::default();
    let (mut metrics, mut devices) = (ItemIndexes::new(), ItemIndexes::new());
    let (mut clusters, mut labels) = (ItemIndexes::new(), ItemIndexes::new());
    for entry in &table.entries {
        let add = || message.metric.push(metric(&entry.metric, explained));
        let place = metrics.of(&*entry.metric, add);
        message.series_metric.push(place);
        let device = entry.device.as_str();
        let place = devices.of(device, || message.device.push(device.to_owned()));
        message.series_device.push(place);
        message.series_labels.push(labels_place(&entry.labels, &mut labels, &mut message.labels));
        let job = entry.job.as_ref();
        let cluster = job
            .map(|job| job.cluster.as_str())
            .map_or(0, |name| clusters.of(name, || message.cluster.push(name.to_owned())) + 1);
        message.series_cluster.push(cluster);
        message.series_job.push(job.map_or(0, |job| job.id.get().unsigned_abs()));
        message.series_start.push(start(entry));
    }
    message
}

fn labels_place<'a>(
    labels: &'a Labels,
    places: &mut ItemIndexes<&'a str>,
    list: &mut Vec<String>,
) -> u32 {
    if labels.is_empty() {
        return 0;
    }
    places.of(labels.as_str(), || list.push(labels.as_str().to_owned())) + 1
}

fn start(entry: &SeriesEntry) -> i64 {
    entry.start.map_or(0, |start| start.0.saturating_add(1))
}

fn metric(metric: &Metric, explained: &mut HashMap<String, u64>) -> message::Metric {
    let hash = xxhash_rust::xxh3::xxh3_64(metric.help.as_bytes());
    let is_new = explained.insert(metric.name.to_string(), hash) != Some(hash);
    let help = if is_new { cut(&metric.help) } else { String::new() };
    message::Metric {
        name: metric.name.to_string(),
        unit: Unit::ALL.iter().zip(0..).find(|(u, _)| **u == metric.unit).map_or(0, |(_, n)| n),
        kind: u32::from(metric.kind == Kind::Counter),
        divisor: metric.divisor,
        help,
        assumed: metric.assumed,
    }
}

fn job(event: &JobEvent) -> message::JobEvent {
    message::JobEvent {
        cluster: event.key.cluster.as_str().to_owned(),
        id: event.key.id.get().unsigned_abs(),
        display_id: event.display_id.to_string(),
        device: event.device.as_str().to_owned(),
        user: event.user.as_deref().unwrap_or_default().to_owned(),
        uid: event.uid.map_or(0, |uid| uid.saturating_add(1)),
        start: event.start.0,
        stop: event.stop.map_or(0, |stop| stop.0.saturating_add(1)),
        monitor: event.monitor.as_deref().map(str::to_owned),
        oom_kill: event.oom_kills.iter().map(oom_kill).collect(),
    }
}

fn oom_kill(kill: &OomKill) -> message::OomKill {
    message::OomKill {
        at: kill.at.0,
        pid: kill.pid,
        uid: kill.uid.map_or(0, |uid| uid.saturating_add(1)),
        task: kill.task.to_string(),
        task_bytes: kill.task_bytes.map_or(0, |bytes| bytes.saturating_add(1)),
        limit_bytes: kill.limit_bytes.map_or(0, |bytes| bytes.saturating_add(1)),
    }
}

fn gap(gap: &Gap) -> message::Gap {
    message::Gap {
        device: gap.device.as_str().to_owned(),
        source: gap.source.to_string(),
        from: gap.from.0,
        to: gap.to.0,
        cause: Cause::ALL.iter().zip(0..).find(|(c, _)| **c == gap.cause).map_or(0, |(_, n)| n),
        detail: cut(&gap.detail),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Decoder, Frames};
    use model::{Boot, DeviceId, Origin, Tick, Timestamp};

    /// A batch of one tick, or of so many, of a table.
    fn batch(seq: u64, table: &Arc<SeriesTable>, ticks: u32) -> Batch {
        let series = u32::try_from(table.entries.len()).unwrap();
        let tick = |at| Tick { at: Timestamp(i64::from(at) * 1_000_000), samples: series };
        Batch {
            origin: Origin::new("node-1").unwrap(),
            boot: Boot([7; 16]),
            seq,
            table: Arc::clone(table),
            ticks: (1..=ticks).map(tick).collect(),
            index: (0..ticks).flat_map(|_| 0..series).collect(),
            values: (0..ticks * series).map(|n| f64::from(n * n % 1009)).collect(),
            gaps: Vec::new(),
            jobs: Vec::new(),
        }
    }

    fn table(series: usize) -> Arc<SeriesTable> {
        let entry = |n: usize| SeriesEntry {
            metric: Arc::new(Metric::counter("cgroup_cpu_seconds_total", Unit::Seconds, "")),
            device: DeviceId::new("node-1").unwrap(),
            job: None,
            labels: Labels::new([("cpu", n.to_string().as_str()), ("mode", "user")]).unwrap(),
            start: None,
        };
        Arc::new(SeriesTable { entries: (0..series).map(entry).collect() })
    }

    #[test]
    fn a_table_is_compressed_once() {
        let (mut encoder, first, second) = (Encoder::default(), table(400), table(300));
        let mut check = |batch: Batch, is_spliced| {
            let mut bytes = Vec::new();
            encoder.encode(&batch, &mut bytes).unwrap();
            let frame = Frames::of(&bytes).next().unwrap().unwrap();
            assert_eq!(Decoder::default().decode(&frame).unwrap().into_batch().unwrap(), batch);
            let has_blocks = encoder.table.as_ref().is_some_and(|known| known.blocks.is_some());
            assert_eq!(has_blocks, is_spliced);
            bytes.len()
        };
        let whole = check(batch(0, &first, 1), false);
        let spliced = check(batch(1, &first, 1), true);
        assert!(spliced < whole * 11 / 10, "{spliced} bytes instead of {whole}");
        assert_eq!(check(batch(2, &first, 1), true), spliced);
        check(batch(3, &second, 1), false);
        check(batch(4, &second, 1), true);
        // The samples of many ticks are worth compression.
        let third = table(200);
        check(batch(5, &third, 9), false);
        check(batch(6, &third, 9), false);
    }
}
