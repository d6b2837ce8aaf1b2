//! Decodes a frame into a batch.

use crate::batch_header::{Head, Opened};
use crate::bounds::{self, FieldLengths};
use crate::encode::unzigzag;
use crate::frame::{Frame, FrameError};
use crate::limits::{self, LimitError};
use crate::message;
use model::{
    Batch, Boot, Cause, ClusterId, DeviceId, Gap, JobEvent, JobId, JobKey, Kind, Labels,
    LabelsError, Metric, NAME_BYTES_MAX, OomKill, Origin, SAMPLES_PER_BATCH_MAX, SeriesEntry,
    SeriesTable, Tick, Timestamp, Unit, printable,
};
use prost::Message;
use std::sync::Arc;
use zstd::zstd_safe::{self, DCtx, InBuffer, OutBuffer, ResetDirective};

/// Why bytes are not a batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// They are not a frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The payload cannot be decompressed, or contains no size or one beyond the limit.
    #[error("the payload cannot be decompressed: {0}")]
    Compressed(String),
    /// The payload is not a protobuf message.
    #[error("the payload is no message: {0}")]
    Message(#[from] prost::DecodeError),
    /// A field exceeds its limit or is invalid.
    #[error(transparent)]
    Limit(#[from] LimitError),
}

/// An encoded value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A whole number of the metric's steps.
    Steps(i64),
    /// Any other value, in the metric's unit.
    Real(f64),
}

/// A batch with an undecoded table. Its other parts are consistent.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The sender.
    pub origin: Origin,
    /// The boot of the sender.
    pub boot: Boot,
    /// Its number within the boot.
    pub seq: u64,
    /// XXH3 of the table's bytes: the same bytes mean the same series.
    pub table_hash: u64,
    table: Vec<u8>,
    /// The ticks.
    pub ticks: Vec<Tick>,
    /// Each sample's index in the table; [`Self::table`] checks that it is within the table.
    pub index: Vec<u32>,
    /// Each sample's value.
    pub values: Vec<Value>,
    /// Gaps that the sender reports.
    pub gaps: Vec<Gap>,
    /// Jobs that started or ended.
    pub jobs: Vec<JobEvent>,
}

/// Number of bytes of a longer payload that are decompressed to read its head.
const HEAD_BYTES: usize = 1024;
/// Maximum length of a zstd block, the least that is decompressed. A payload of at most this length is decompressed
/// at once.
const BLOCK_BYTES: usize = 128 << 10;

/// Decodes frames with reused memory.
#[derive(Default)]
pub struct Decoder {
    decompressor: Option<DCtx<'static>>,
    payload: Vec<u8>,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").finish_non_exhaustive()
    }
}

impl Decoder {
    /// Decodes a frame except for its table.
    ///
    /// # Errors
    /// The payload is not a batch, or exceeds a limit.
    pub fn decode(&mut self, frame: &Frame<'_>) -> Result<Decoded, DecodeError> {
        self.open(frame, limits::PAYLOAD_BYTES_MAX)?.decode()
    }

    /// Decodes the head of a frame, with a smaller limit for the decompressed payload. Decompresses one block of zstd.
    ///
    /// # Errors
    /// The payload does not begin with a head, or is longer.
    pub fn open<'a>(
        &'a mut self,
        frame: &Frame<'a>,
        payload_bytes_max: usize,
    ) -> Result<Opened<'a>, DecodeError> {
        let payload = frame.payload;
        let size = zstd_safe::get_frame_content_size(payload)
            .map_err(|_| DecodeError::Compressed("not zstd".to_owned()))?
            .ok_or_else(|| DecodeError::Compressed("its size is missing".to_owned()))?;
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        limits::bytes("payload", size, payload_bytes_max.min(limits::PAYLOAD_BYTES_MAX))?;
        self.payload.clear();
        self.payload.resize(if size <= BLOCK_BYTES { size } else { HEAD_BYTES }, 0);
        let written = decompress_start(payload, &mut self.decompressor, &mut self.payload)?;
        self.payload.truncate(written);
        let head = Head::read(&self.payload)?;
        Ok(Opened { decoder: self, payload, size, head })
    }

    /// Decodes the rest of an opened frame.
    pub(crate) fn decode_rest(
        &mut self,
        payload: &[u8],
        size: usize,
    ) -> Result<Decoded, DecodeError> {
        // A short payload is already decompressed.
        if self.payload.len() != size {
            self.decompress(payload, size)?;
        }
        bounds::check(&self.payload, bounds::BATCH)?;
        let message = message::Batch::decode(&*self.payload)?;
        decoded(message).map_err(DecodeError::from)
    }

    /// Decompresses a payload piece by piece. Stops at a field that is longer than its limit.
    fn decompress(&mut self, payload: &[u8], size: usize) -> Result<(), DecodeError> {
        let context = context(&mut self.decompressor)?;
        context.reset(ResetDirective::SessionOnly).map_err(compressed)?;
        self.payload.clear();
        let (mut input, mut written) = (InBuffer::around(payload), 0);
        let mut lengths = FieldLengths::default();
        loop {
            self.payload.resize(size.min((2 * written).max(BLOCK_BYTES)), 0);
            let before = (input.pos(), written);
            let mut output = OutBuffer::around_pos(&mut *self.payload, written);
            let left = context.decompress_stream(&mut output, &mut input).map_err(compressed)?;
            written = output.pos();
            lengths.check(self.payload.get(..written).unwrap_or_default())?;
            if left == 0 && written == size && input.pos() == payload.len() {
                return Ok(());
            }
            if left == 0 || before == (input.pos(), written) {
                let text = "it is cut short, or another size is stated";
                return Err(DecodeError::Compressed(text.to_owned()));
            }
        }
    }

    /// Number of decompressed bytes of the last payload.
    #[cfg(test)]
    pub(crate) const fn decompressed(&self) -> usize {
        self.payload.len()
    }
}

fn context<'a>(kept: &'a mut Option<DCtx<'static>>) -> Result<&'a mut DCtx<'static>, DecodeError> {
    match kept {
        Some(context) => Ok(context),
        None => {
            let new = DCtx::try_create();
            let new = new.ok_or_else(|| DecodeError::Compressed("no memory".to_owned()))?;
            Ok(kept.insert(new))
        }
    }
}

fn compressed(code: zstd_safe::ErrorCode) -> DecodeError {
    DecodeError::Compressed(zstd_safe::get_error_name(code).to_owned())
}

/// Decompresses the beginning of a payload until `place` is full; returns the number of bytes.
fn decompress_start(
    payload: &[u8],
    kept: &mut Option<DCtx<'static>>,
    place: &mut [u8],
) -> Result<usize, DecodeError> {
    let context = context(kept)?;
    context.reset(ResetDirective::SessionOnly).map_err(compressed)?;
    let (mut input, mut output) = (InBuffer::around(payload), OutBuffer::around(place));
    loop {
        let before = (input.pos(), output.pos());
        let left = context.decompress_stream(&mut output, &mut input).map_err(compressed)?;
        let is_full = output.pos() == output.capacity();
        if left == 0 && input.pos() < payload.len() {
            return Err(DecodeError::Compressed("bytes follow its end".to_owned()));
        }
        if left == 0 || is_full || before == (input.pos(), output.pos()) {
            return Ok(output.pos());
        }
    }
}

impl Decoded {
    /// Decodes the table, and checks that it contains every sample's series.
    ///
    /// # Errors
    /// The table is not a message, is inconsistent, exceeds a limit, or is too short for the samples.
    pub fn table(&self) -> Result<SeriesTable, DecodeError> {
        self.table_with(|labels| Ok(labels.printable()))
    }

    /// As [`Self::table`], but rejects labels with unprintable characters instead of replacing these.
    ///
    /// # Errors
    /// As [`Self::table`], or labels have an unprintable character.
    pub fn table_of_printable(&self) -> Result<SeriesTable, DecodeError> {
        self.table_with(Labels::must_be_printable)
    }

    fn table_with(&self, checked: CheckLabels) -> Result<SeriesTable, DecodeError> {
        bounds::check(&self.table, bounds::TABLE)?;
        let table = message::Table::decode(&*self.table)?;
        let table = series_table(table, checked)?;
        self.check_places(table.entries.len())?;
        Ok(table)
    }

    /// The encoded table as received.
    pub fn table_bytes(&self) -> &[u8] {
        &self.table
    }

    /// Checks every sample's index against a table with `named` series, for callers that cache tables by
    /// their hash.
    ///
    /// # Errors
    /// An index is outside of the table.
    pub fn check_places(&self, named: usize) -> Result<(), LimitError> {
        let outside = |place: &u32| usize::try_from(*place).map_or(true, |place| place >= named);
        match self.index.iter().copied().find(outside) {
            Some(place) => Err(model::BatchError::Place { place, named }.into()),
            None => Ok(()),
        }
    }

    /// The complete batch, including the table.
    ///
    /// # Errors
    /// As [`Self::table`].
    pub fn into_batch(self) -> Result<Batch, DecodeError> {
        let table = Arc::new(self.table()?);
        let place = |place: &u32| usize::try_from(*place).unwrap_or(usize::MAX);
        let value = |(at, value): (&u32, &Value)| match value {
            Value::Steps(steps) => {
                table.entries.get(place(at)).map_or(0.0, |entry| entry.metric.from_steps(*steps))
            }
            Value::Real(real) => *real,
        };
        let values = self.index.iter().zip(&self.values).map(value).collect();
        let Self { origin, boot, seq, ticks, index, gaps, jobs, .. } = self;
        let batch = Batch { origin, boot, seq, table, ticks, index, values, gaps, jobs };
        batch.check().map_err(LimitError::from)?;
        Ok(batch)
    }
}

fn decoded(message: message::Batch) -> Result<Decoded, LimitError> {
    let origin = Origin::new(&message.origin)?;
    let length = message.boot.len();
    let boot = Boot(message.boot.try_into().map_err(|_| LimitError::Boot(length))?);
    limits::bytes("table", message.table.len(), limits::TABLE_BYTES_MAX)?;
    limits::count("samples", message.refs.len(), SAMPLES_PER_BATCH_MAX)?;
    limits::count("ticks", message.tick_delta.len(), limits::TICKS_MAX)?;
    limits::count("gaps", message.gap.len(), limits::GAPS_MAX)?;
    limits::count("job events", message.job.len(), limits::JOBS_MAX)?;
    let ticks = ticks(&message.tick_delta, &message.tick_samples, message.refs.len())?;
    let (index, values) = samples(&message.refs, &message.step, &message.real)?;
    let gaps = message.gap.into_iter().map(|g| gap(&origin, g)).collect::<Result<_, _>>()?;
    let jobs = message.job.into_iter().map(job_event).collect::<Result<_, _>>()?;
    let table_hash = xxhash_rust::xxh3::xxh3_64(&message.table);
    let (seq, table) = (message.seq, message.table);
    Ok(Decoded { origin, boot, seq, table_hash, table, ticks, index, values, gaps, jobs })
}

fn ticks(deltas: &[i64], samples: &[u32], want: usize) -> Result<Vec<Tick>, LimitError> {
    if deltas.len() != samples.len() {
        let (length, want) = (samples.len(), deltas.len());
        return Err(LimitError::Column { column: "tick_samples", length, want });
    }
    let mut at = 0_i64;
    let mut ticks = Vec::with_capacity(deltas.len());
    for (i, (delta, samples)) in deltas.iter().zip(samples).enumerate() {
        at = at.checked_add(*delta).ok_or(LimitError::Instant(i))?;
        ticks.push(Tick { at: Timestamp(at), samples: *samples });
    }
    let sum: u64 = samples.iter().map(|samples| u64::from(*samples)).sum();
    if u64::try_from(want) != Ok(sum) {
        let (index, values, ticks) = (want, want, sum);
        return Err(model::BatchError::Counts { index, values, ticks }.into());
    }
    Ok(ticks)
}

fn samples(
    refs: &[u64],
    steps: &[i64],
    reals: &[f64],
) -> Result<(Vec<u32>, Vec<Value>), LimitError> {
    let wrong = LimitError::Values { samples: refs.len(), values: steps.len() + reals.len() };
    let (mut steps, mut reals) = (steps.iter(), reals.iter());
    let (mut index, mut values) = (Vec::with_capacity(refs.len()), Vec::with_capacity(refs.len()));
    let mut expected = 0_i64;
    for reference in refs {
        let place = expected.checked_add(unzigzag(reference >> 1));
        let place = place.and_then(|place| u32::try_from(place).ok());
        let place =
            place.ok_or(LimitError::Place { what: "series", place: *reference, length: 0 })?;
        expected = i64::from(place) + 1;
        let value = match reference & 1 {
            0 => steps.next().map(|steps| Value::Steps(*steps)),
            _ => reals.next().map(|real| Value::Real(*real)),
        };
        let Some(value) = value else { return Err(wrong) };
        index.push(place);
        values.push(value);
    }
    if steps.len() + reals.len() > 0 { Err(wrong) } else { Ok((index, values)) }
}

fn gap(origin: &Origin, gap: message::Gap) -> Result<Gap, LimitError> {
    limits::bytes("gap's source", gap.source.len(), limits::GAP_SOURCE_BYTES_MAX)?;
    limits::bytes("gap's detail", gap.detail.len(), limits::TEXT_BYTES_MAX)?;
    Ok(Gap {
        origin: origin.clone(),
        device: DeviceId::new(&gap.device)?,
        source: printable(&gap.source).into(),
        from: Timestamp(gap.from),
        to: Timestamp(gap.to),
        cause: *word("cause", gap.cause, &Cause::ALL)?,
        detail: printable(&gap.detail).into(),
    })
}

fn job_event(event: message::JobEvent) -> Result<JobEvent, LimitError> {
    limits::bytes("job's display ID", event.display_id.len(), limits::DISPLAY_ID_BYTES_MAX)?;
    limits::bytes("user's name", event.user.len(), NAME_BYTES_MAX)?;
    limits::count("OOM kills", event.oom_kill.len(), limits::OOM_KILLS_MAX)?;
    let monitor = event.monitor;
    let length = monitor.as_ref().map_or(0, String::len);
    limits::bytes("job's JOBMETER_MONITOR", length, limits::MONITOR_BYTES_MAX)?;
    let id = job_id(event.id)?;
    // A display ID in digits must be the job's ID; otherwise the job would be found under another job's ID.
    let is_number = event.display_id.bytes().all(|b| b.is_ascii_digit());
    let is_other = is_number && event.display_id.parse() != Ok(id.get());
    let display_id = if is_other { id.to_string() } else { event.display_id };
    Ok(JobEvent {
        key: JobKey { cluster: ClusterId::new(&event.cluster)?, id },
        display_id: printable(&display_id).into(),
        device: DeviceId::new(&event.device)?,
        user: (!event.user.is_empty()).then(|| printable(&event.user).into()),
        uid: event.uid.checked_sub(1),
        start: Timestamp(event.start),
        stop: (event.stop != 0).then(|| Timestamp(event.stop.saturating_sub(1))),
        monitor: monitor.map(Into::into),
        oom_kills: event.oom_kill.into_iter().map(oom_kill).collect::<Result<_, _>>()?,
    })
}

fn oom_kill(kill: message::OomKill) -> Result<OomKill, LimitError> {
    limits::bytes("killed task's name", kill.task.len(), limits::TASK_BYTES_MAX)?;
    Ok(OomKill {
        at: Timestamp(kill.at),
        pid: kill.pid,
        uid: kill.uid.checked_sub(1),
        task: printable(&kill.task).into(),
        task_bytes: kill.task_bytes.checked_sub(1),
        limit_bytes: kill.limit_bytes.checked_sub(1),
    })
}

pub(crate) fn job_id(number: u64) -> Result<JobId, LimitError> {
    i64::try_from(number).ok().and_then(JobId::new).ok_or(LimitError::Job(number))
}

/// Handles labels that may have unprintable characters.
type CheckLabels = fn(Labels) -> Result<Labels, LabelsError>;

fn series_table(table: message::Table, checked: CheckLabels) -> Result<SeriesTable, LimitError> {
    let want = table.series_metric.len();
    limits::count("series", want, limits::SERIES_MAX)?;
    for (what, list) in [
        ("metrics", table.metric.len()),
        ("devices", table.device.len()),
        ("clusters", table.cluster.len()),
        ("label sets", table.labels.len()),
    ] {
        let max = if what == "metrics" { limits::METRICS_MAX } else { limits::SERIES_MAX };
        limits::count(what, list, max)?;
    }
    for (column, length) in [
        ("series_device", table.series_device.len()),
        ("series_labels", table.series_labels.len()),
        ("series_cluster", table.series_cluster.len()),
        ("series_job", table.series_job.len()),
        ("series_start", table.series_start.len()),
    ] {
        if length != want {
            return Err(LimitError::Column { column, length, want });
        }
    }
    let metrics = table.metric.into_iter().map(metric).collect::<Result<Vec<_>, _>>()?;
    let devices =
        table.device.iter().map(|name| DeviceId::new(name)).collect::<Result<Vec<_>, _>>()?;
    let clusters =
        table.cluster.iter().map(|name| ClusterId::new(name)).collect::<Result<Vec<_>, _>>()?;
    let mut labels = vec![Labels::default()];
    for text in &table.labels {
        labels.push(checked(Labels::from_canonical(text)?)?);
    }
    let mut entries = Vec::with_capacity(want);
    let columns = table.series_metric.iter().zip(&table.series_device).zip(&table.series_labels);
    let columns = columns.zip(table.series_cluster.iter().zip(&table.series_job));
    for (i, ((((m, d), l), (c, j)), start)) in columns.zip(&table.series_start).enumerate() {
        entries.push(SeriesEntry {
            metric: Arc::clone(nth("metric", *m, &metrics)?),
            device: nth("device", *d, &devices)?.clone(),
            job: job(i, *c, *j, &clusters)?,
            labels: nth("label set", *l, &labels)?.clone(),
            start: (*start != 0).then(|| Timestamp(start.saturating_sub(1))),
        });
    }
    Ok(SeriesTable { entries })
}

fn job(
    series: usize,
    cluster: u32,
    job: u64,
    clusters: &[ClusterId],
) -> Result<Option<JobKey>, LimitError> {
    match (cluster.checked_sub(1), job) {
        (None, 0) => Ok(None),
        (Some(place), 1..) => {
            let cluster = nth("cluster", place, clusters)?.clone();
            Ok(Some(JobKey { cluster, id: job_id(job)? }))
        }
        _ => Err(LimitError::HalfJob(series)),
    }
}

fn metric(metric: message::Metric) -> Result<Arc<Metric>, LimitError> {
    limits::bytes("metric's help", metric.help.len(), limits::TEXT_BYTES_MAX)?;
    let metric = Metric {
        name: metric.name.into(),
        unit: *word("unit", metric.unit, &Unit::ALL)?,
        kind: *word("kind", metric.kind, &[Kind::Gauge, Kind::Counter])?,
        help: printable(&metric.help).into_owned().into(),
        divisor: metric.divisor,
        assumed: metric.assumed,
    };
    metric.check()?;
    Ok(Arc::new(metric))
}

fn nth<'a, T>(what: &'static str, place: u32, list: &'a [T]) -> Result<&'a T, LimitError> {
    let found = usize::try_from(place).ok().and_then(|place| list.get(place));
    found.ok_or(LimitError::Place { what, place: place.into(), length: list.len() })
}

fn word<'a, T>(what: &'static str, number: u32, list: &'a [T]) -> Result<&'a T, LimitError> {
    let found = usize::try_from(number).ok().and_then(|number| list.get(number));
    found.ok_or(LimitError::Word { what, number })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(display_id: &str) -> JobEvent {
        let event = message::JobEvent {
            cluster: "slurm".to_owned(),
            id: 7,
            display_id: display_id.to_owned(),
            device: "n1".to_owned(),
            ..message::JobEvent::default()
        };
        job_event(event).unwrap()
    }

    #[test]
    fn a_display_id_is_not_the_id_of_another_job() {
        for (display_id, taken) in
            [("7", "7"), ("", "7"), ("8", "7"), ("99999999999999999999", "7"), ("6_1", "6_1")]
        {
            assert_eq!(&*event(display_id).display_id, taken, "{display_id}");
        }
    }
}
