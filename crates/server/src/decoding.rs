//! Frames as batches, on threads that may be busy: so many at a time, with decoders that keep their
//! memory.

use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wire::{DecodeError, Decoded, Decoder, Frame, FrameError, Frames, LimitError};

/// Decompressed bytes that are decoded before the batches are handed to the store: bounds what one
/// request holds, whatever its body expands to.
const SLICE_BYTES_MAX: usize = 8 << 20;
/// What a decoded sample takes: its place and its value.
const SAMPLE_BYTES: usize = 20;

/// The decoders, and memory for what they make.
#[derive(Debug)]
pub(crate) struct Decoding {
    idle: Arc<Mutex<Vec<Decoder>>>,
    turns: Arc<Semaphore>,
    memory: Arc<Semaphore>,
    memory_max: u32,
}

/// A frame, as far as it could be read.
#[derive(Debug)]
pub(crate) enum Read {
    /// A batch, and the bytes it came as.
    Batch(Box<Decoded>, Vec<u8>),
    /// No batch. `later`: a newer server would read it.
    Bad { why: String, later: bool },
}

/// Some frames of a body that were read together.
#[derive(Debug)]
pub(crate) struct Slice {
    pub(crate) frames: Vec<Read>,
    /// Where the body goes on; `None`: it was read to its end.
    pub(crate) next: Option<usize>,
    /// Memory for the batches, given back with it.
    pub(crate) share: OwnedSemaphorePermit,
}

impl Decoding {
    pub(crate) fn new(threads: usize, bytes_max: usize) -> Self {
        let memory_max = u32::try_from(bytes_max).unwrap_or(u32::MAX);
        Self {
            idle: Arc::default(),
            turns: Arc::new(Semaphore::new(threads)),
            memory: Arc::new(Semaphore::new(usize::try_from(memory_max).unwrap_or(usize::MAX))),
            memory_max,
        }
    }

    /// Reads the frames of a body from `at` on, `most` at most, until they make a slice. Waits for its turn, and for
    /// memory until the batches of others are stored.
    pub(crate) async fn slice(&self, body: &Arc<Vec<u8>>, at: usize, most: usize) -> Option<Slice> {
        let turn = Arc::clone(&self.turns).acquire_owned().await.ok()?;
        let (body, idle) = (Arc::clone(body), Arc::clone(&self.idle));
        let read = tokio::task::spawn_blocking(move || {
            let pop = || idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let mut decoder = pop().unwrap_or_default();
            let read = slice(&mut decoder, &body, at, most);
            idle.lock().unwrap_or_else(PoisonError::into_inner).push(decoder);
            read
        });
        let (frames, next, bytes) = read.await.ok()?;
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.memory_max);
        // The turn is held meanwhile: while the store is behind, nobody decodes more.
        let share = Arc::clone(&self.memory).acquire_many_owned(bytes).await.ok()?;
        drop(turn);
        Some(Slice { frames, next, share })
    }
}

fn slice(
    decoder: &mut Decoder,
    body: &[u8],
    at: usize,
    most: usize,
) -> (Vec<Read>, Option<usize>, usize) {
    let rest = body.get(at..).unwrap_or_default();
    let (mut frames, mut bytes) = (Vec::new(), 0_usize);
    for frame in Frames::of(rest) {
        if bytes >= SLICE_BYTES_MAX || frames.len() >= most {
            return (frames, Some(at.saturating_add(place(&frame))), bytes);
        }
        let read = frame.map_err(DecodeError::from).and_then(|frame| {
            let batch = decoder.decode(&frame)?;
            let samples = batch.index.len().saturating_mul(SAMPLE_BYTES);
            bytes = bytes.saturating_add(decompressed(&frame)).saturating_add(samples);
            Ok(Read::Batch(Box::new(batch), frame.bytes.to_vec()))
        });
        frames.push(read.unwrap_or_else(|error| bad(&error)));
    }
    (frames, None, bytes)
}

fn place(frame: &Result<Frame<'_>, FrameError>) -> usize {
    match frame {
        Ok(frame) => frame.at,
        Err(
            FrameError::Cut { at, .. }
            | FrameError::Magic { at, .. }
            | FrameError::TooLong { at, .. }
            | FrameError::Checksum { at, .. },
        ) => *at,
    }
}

/// The size that a frame's payload tells; it was decompressed to just that.
fn decompressed(frame: &Frame<'_>) -> usize {
    let told = zstd::zstd_safe::get_frame_content_size(frame.payload).ok().flatten();
    told.and_then(|size| usize::try_from(size).ok()).unwrap_or(0).saturating_add(frame.bytes.len())
}

/// A newer agent before this server: another version's magic, or a number of a list that has grown. It
/// keeps its batches until the server is newer too.
fn bad(error: &DecodeError) -> Read {
    let later = match error {
        DecodeError::Frame(FrameError::Magic { found, .. }) => found.starts_with(b"JMB"),
        DecodeError::Limit(LimitError::Word { .. }) => true,
        _ => false,
    };
    Read::Bad { why: error.to_string(), later }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{
        Batch, Boot, DeviceId, Labels, Metric, Origin, SeriesEntry, SeriesTable, Tick, Timestamp,
        Unit,
    };

    fn frame(seq: u64, samples: usize) -> Vec<u8> {
        let entry = SeriesEntry {
            metric: Arc::new(Metric::gauge("load_1m", Unit::Count, "")),
            device: DeviceId::new("n1").unwrap(),
            job: None,
            labels: Labels::default(),
            start: None,
        };
        let at = Timestamp::from_seconds(1_767_706_500);
        let batch = Batch {
            origin: Origin::new("n1").unwrap(),
            boot: Boot([7; 16]),
            seq,
            table: Arc::new(SeriesTable { entries: vec![entry] }),
            ticks: vec![Tick { at, samples: u32::try_from(samples).unwrap() }],
            index: vec![0; samples],
            values: vec![0.5; samples],
            gaps: Vec::new(),
            jobs: Vec::new(),
        };
        let mut bytes = Vec::new();
        wire::Encoder::default().encode(&batch, &mut bytes).unwrap();
        bytes
    }

    fn run<F: Future>(work: F) -> F::Output {
        tokio::runtime::Builder::new_multi_thread().enable_time().build().unwrap().block_on(work)
    }

    #[test]
    fn a_bad_frame_refuses_itself_alone() {
        let mut damaged = frame(1, 1);
        *damaged.last_mut().unwrap() ^= 1;
        let body = [frame(0, 1), damaged, frame(2, 1), b"JMB2....".to_vec()].concat();
        let decoding = Decoding::new(1, 1 << 20);
        let slice = run(decoding.slice(&Arc::new(body), 0, 9)).unwrap();
        let told: Vec<_> = slice
            .frames
            .iter()
            .map(|read| match read {
                Read::Batch(batch, _) => Ok(batch.seq),
                Read::Bad { later, .. } => Err(*later),
            })
            .collect();
        assert_eq!(told, [Ok(0), Err(false), Ok(2), Err(true)]);
        assert_eq!(slice.next, None);
    }

    #[test]
    fn a_large_body_is_read_in_slices_and_memory_waits() {
        // 64 Ki samples take 20 bytes each when decoded, whatever they compress to.
        let frames: Vec<Vec<u8>> = (0..12).map(|seq| frame(seq, 64 << 10)).collect();
        let body = Arc::new(frames.concat());
        assert!(body.len() < 100_000, "{}", body.len());
        let decoding = Decoding::new(2, 12 << 20);
        run(async {
            let first = decoding.slice(&body, 0, 99).await.unwrap();
            let next = first.next.unwrap();
            assert!((2..12).contains(&first.frames.len()), "{}", first.frames.len());
            let second = tokio::time::timeout(
                std::time::Duration::from_millis(100),
                decoding.slice(&body, next, 99),
            );
            assert!(second.await.is_err(), "memory for both is not there");
            let mut all = first.frames.len();
            drop(first);
            let mut at = Some(next);
            while let Some(from) = at {
                let slice = decoding.slice(&body, from, 3).await.unwrap();
                all += slice.frames.len();
                at = slice.next;
            }
            assert_eq!(all, 12);
        });
    }
}
