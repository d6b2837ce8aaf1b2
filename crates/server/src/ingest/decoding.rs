//! Decodes frames into batches on a limited number of threads. Idle decoders keep their memory for reuse.

use crate::ingest::senders::{Access, Senders};
use model::Origin;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wire::{DecodeError, Decoded, Decoder, Frame, FrameError, Frames, Head, LimitError};

/// Decompressed bytes after which the batches go to the store. It limits the memory of one request,
/// whatever the size of its decompressed body.
const SLICE_BYTES_MAX: usize = 8 << 20;
/// Decompressed bytes after which a request yields its turn, including rejected frames.
const TURN_BYTES_MAX: usize = 8 << 20;
/// Size of a decoded sample: its index and its value.
const SAMPLE_BYTES: usize = 20;

/// Maximum decompressed size of a user's frame.
const USER_FRAME_BYTES_MAX: usize = 1 << 20;
/// Maximum decompressed size of all frames of a user's request; a larger request is rejected as a whole.
pub(crate) const USER_REQUEST_BYTES_MAX: usize = 4 << 20;

/// A user who sends a request, and the decompressed bytes left for this request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendingUser {
    pub(crate) uid: u32,
    pub(crate) bytes_left: usize,
}

/// The decoders, and the memory budget of decoded batches.
#[derive(Debug)]
pub(crate) struct Decoding {
    idle: Arc<Mutex<Vec<Decoder>>>,
    turns: Arc<Semaphore>,
    /// Turns of users, separate from those of agents and administrators.
    user_turns: Arc<Semaphore>,
    /// Limits each user to one slice at a time.
    by_user: Mutex<HashMap<u32, Weak<Semaphore>>>,
    memory: Arc<Semaphore>,
    memory_max: u32,
}

/// The result of reading a frame.
#[derive(Debug)]
pub(crate) enum FrameRead {
    /// A batch, and its encoded bytes.
    Batch(Box<Decoded>, Vec<u8>),
    /// The head of a batch that the caller may not send, and the reason. The rest is not read.
    Forbidden(Head, String),
    /// An invalid frame. `later`: a newer server may be able to read it.
    Bad { why: String, later: bool },
}

/// Frames of a body that are processed together.
#[derive(Debug)]
pub(crate) struct Slice<T> {
    /// Result of `make` for the frames.
    pub(crate) made: Option<T>,
    /// Offset of the next frame; `None` at the end of the body.
    pub(crate) next: Option<usize>,
    /// Origin of the next frame, if the registry must decide whether the caller may send for it.
    pub(crate) undecided: Option<Origin>,
    /// Memory of the batches, released with the slice.
    _share: OwnedSemaphorePermit,
    /// Decompressed bytes left for a user's request; `None` if the next frame exceeds them.
    pub(crate) bytes_left: Option<usize>,
    /// Blocks the user's next slice until this one is stored.
    _of_user: Option<OwnedSemaphorePermit>,
}

/// Frames read from a body in one turn.
#[derive(Default)]
struct FramesRead {
    frames: Vec<FrameRead>,
    next: Option<usize>,
    undecided: Option<Origin>,
    /// Memory of the frames, in bytes.
    bytes: usize,
    bytes_left: Option<usize>,
}

impl Decoding {
    pub(crate) fn new(threads: usize, bytes_max: usize) -> Self {
        let memory_max = u32::try_from(bytes_max).unwrap_or(u32::MAX);
        Self {
            idle: Arc::default(),
            turns: Arc::new(Semaphore::new(threads)),
            user_turns: Arc::new(Semaphore::new((threads / 2).max(1))),
            by_user: Mutex::default(),
            memory: Arc::new(Semaphore::new(usize::try_from(memory_max).unwrap_or(usize::MAX))),
            memory_max,
        }
    }

    /// Reads one slice of a body: at most `most` frames from offset `at`. Reads only the head of a frame
    /// that the caller may not send. Waits for a turn, and for memory until other batches are stored.
    /// `make` runs in the same turn, on the decoding thread.
    pub(crate) async fn slice<T: Send + 'static>(
        &self,
        body: &Arc<Vec<u8>>,
        (at, most): (usize, usize),
        user: Option<SendingUser>,
        senders: &Arc<Senders>,
        make: impl FnOnce(Vec<FrameRead>) -> T + Send + 'static,
    ) -> Option<Slice<T>> {
        let of_user = match user {
            Some(user) => Some(self.of_user(user.uid).acquire_owned().await.ok()?),
            None => None,
        };
        let turns = if user.is_some() { &self.user_turns } else { &self.turns };
        let turn = Arc::clone(turns).acquire_owned().await.ok()?;
        let (body, idle, senders) = (Arc::clone(body), Arc::clone(&self.idle), Arc::clone(senders));
        let read = tokio::task::spawn_blocking(move || {
            let pop = || idle.lock().pop();
            let mut decoder = pop().unwrap_or_default();
            let bytes_left = user.map(|user| user.bytes_left);
            let mut read = slice(&mut decoder, &body, (at, most), bytes_left, &senders);
            idle.lock().push(decoder);
            let made = make(std::mem::take(&mut read.frames));
            (made, read)
        });
        let (made, FramesRead { next, undecided, bytes, bytes_left, .. }) = read.await.ok()?;
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.memory_max);
        // Keep the turn while waiting: if the store is behind, no other request may decode more.
        let share = Arc::clone(&self.memory).acquire_many_owned(bytes).await.ok()?;
        drop(turn);
        Some(Slice {
            made: Some(made),
            next,
            undecided,
            _share: share,
            bytes_left,
            _of_user: of_user,
        })
    }

    /// Runs other work of a request in a turn, on the threads that decode. A user has one turn at a time.
    pub(crate) async fn turn<T: Send + 'static>(
        &self,
        uid: Option<u32>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let of_user = match uid {
            Some(uid) => Some(self.of_user(uid).acquire_owned().await.ok()?),
            None => None,
        };
        let turns = if uid.is_some() { &self.user_turns } else { &self.turns };
        let turn = Arc::clone(turns).acquire_owned().await.ok()?;
        let done = tokio::task::spawn_blocking(work).await.ok();
        drop((turn, of_user));
        done
    }

    fn of_user(&self, uid: u32) -> Arc<Semaphore> {
        let mut by_user = self.by_user.lock();
        if let Some(known) = by_user.get(&uid).and_then(Weak::upgrade) {
            return known;
        }
        // Evict users without a request.
        by_user.retain(|_, turn| turn.strong_count() > 0);
        let new = Arc::new(Semaphore::new(1));
        by_user.insert(uid, Arc::downgrade(&new));
        new
    }
}

/// Reads frames; for a user, until their decompressed size reaches `bytes_left`. Rejected frames count,
/// because decompressing them takes time as well. Stops before a frame with an undecided origin.
fn slice(
    decoder: &mut Decoder,
    body: &[u8],
    (at, most): (usize, usize),
    bytes_left: Option<usize>,
    senders: &Senders,
) -> FramesRead {
    let rest = body.get(at..).unwrap_or_default();
    let payload_max = bytes_left.map_or(wire::PAYLOAD_BYTES_MAX, |_| USER_FRAME_BYTES_MAX);
    let mut taken =
        FramesRead { bytes_left: bytes_left.or(Some(usize::MAX)), ..FramesRead::default() };
    let mut decompressed = 0_usize;
    for frame in Frames::of(rest) {
        let payload = frame.as_ref().map_or(0, payload_bytes);
        let next = at.saturating_add(place(&frame));
        let is_long = taken.bytes >= SLICE_BYTES_MAX || decompressed >= TURN_BYTES_MAX;
        if is_long || taken.frames.len() >= most {
            taken.next = Some(next);
            return taken;
        }
        // A larger frame is not decompressed.
        let mut left = taken.bytes_left;
        if payload <= payload_max && bytes_left.is_some() {
            left = left.and_then(|left| left.checked_sub(payload));
            if left.is_none() {
                taken.bytes_left = None;
                return taken;
            }
        }
        if payload <= payload_max {
            decompressed = decompressed.saturating_add(payload);
        }
        let read = frame.map_err(DecodeError::from);
        let read = read.and_then(|frame| one(decoder, &frame, payload_max, senders));
        match read.unwrap_or_else(|error| FrameResult::FrameRead(bad(&error), 0)) {
            FrameResult::FrameRead(read, bytes) => {
                taken.bytes = taken.bytes.saturating_add(bytes);
                taken.frames.push(read);
            }
            FrameResult::Undecided(origin) => {
                (taken.next, taken.undecided) = (Some(next), Some(origin));
                return taken;
            }
        }
        taken.bytes_left = left;
    }
    taken
}

/// Result for one frame.
enum FrameResult {
    /// The result, and its memory in bytes.
    FrameRead(FrameRead, usize),
    /// The access check for this origin is undecided.
    Undecided(Origin),
}

/// Reads the head of a frame, and the rest if the caller may send for its origin.
fn one(
    decoder: &mut Decoder,
    frame: &Frame<'_>,
    payload_max: usize,
    senders: &Senders,
) -> Result<FrameResult, DecodeError> {
    let opened = decoder.open(frame, payload_max)?;
    match senders.access(&opened.head().origin) {
        Access::Allowed => {}
        Access::Forbidden(why) => {
            return Ok(FrameResult::FrameRead(FrameRead::Forbidden(opened.head().clone(), why), 0));
        }
        Access::Undecided => return Ok(FrameResult::Undecided(opened.head().origin.clone())),
    }
    let batch = opened.decode()?;
    let samples = batch.index.len().saturating_mul(SAMPLE_BYTES);
    let bytes = payload_bytes(frame).saturating_add(frame.bytes.len()).saturating_add(samples);
    Ok(FrameResult::FrameRead(FrameRead::Batch(Box::new(batch), frame.bytes.to_vec()), bytes))
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

/// Returns the decompressed size stated in a frame's header. Decompression fails if the actual size
/// differs.
fn payload_bytes(frame: &Frame<'_>) -> usize {
    let stated = zstd::zstd_safe::get_frame_content_size(frame.payload).ok().flatten();
    stated.and_then(|size| usize::try_from(size).ok()).unwrap_or(0)
}

fn bad(error: &DecodeError) -> FrameRead {
    FrameRead::Bad { why: error.to_string(), later: may_be_newer(error) }
}

/// Whether a newer agent may have sent this frame: with another version's magic, or an unknown enumeration
/// value. The agent keeps such batches until the server is upgraded.
pub(crate) fn may_be_newer(error: &DecodeError) -> bool {
    match error {
        DecodeError::Frame(FrameError::Magic { found, .. }) => found.starts_with(b"JMB"),
        DecodeError::Limit(LimitError::Word { .. }) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::caller::Rights;
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

    fn agents() -> Arc<Senders> {
        Arc::new(Senders::of(Rights::Agent(None)))
    }

    fn all(frames: Vec<FrameRead>) -> Vec<FrameRead> {
        frames
    }

    fn run<F: Future>(work: F) -> F::Output {
        tokio::runtime::Builder::new_multi_thread().enable_time().build().unwrap().block_on(work)
    }

    #[test]
    fn a_bad_frame_rejects_itself_alone() {
        let mut damaged = frame(1, 1);
        *damaged.last_mut().unwrap() ^= 1;
        let body = [frame(0, 1), damaged, frame(2, 1), b"JMB2....".to_vec()].concat();
        let decoding = Decoding::new(1, 1 << 20);
        let slice = run(decoding.slice(&Arc::new(body), (0, 9), None, &agents(), all)).unwrap();
        let frames = slice.made.unwrap();
        let results: Vec<_> = frames
            .iter()
            .map(|read| match read {
                FrameRead::Batch(batch, _) => Ok(batch.seq),
                FrameRead::Bad { later, .. } => Err(*later),
                FrameRead::Forbidden(_, why) => panic!("{why}"),
            })
            .collect();
        assert_eq!(results, [Ok(0), Err(false), Ok(2), Err(true)]);
        assert_eq!(slice.next, None);
    }

    #[test]
    fn a_large_body_is_read_in_slices_and_memory_waits() {
        // 64 Ki samples take 20 bytes each when decoded, whatever their compressed size.
        let frames: Vec<Vec<u8>> = (0..12).map(|seq| frame(seq, 64 << 10)).collect();
        let body = Arc::new(frames.concat());
        assert!(body.len() < 100_000, "{}", body.len());
        let decoding = Decoding::new(2, 12 << 20);
        run(async {
            let first = decoding.slice(&body, (0, 99), None, &agents(), all).await.unwrap();
            let next = first.next.unwrap();
            assert!(
                (2..12).contains(&first.made.as_ref().unwrap().len()),
                "{}",
                first.made.as_ref().unwrap().len()
            );
            let senders = agents();
            let second = tokio::time::timeout(
                std::time::Duration::from_millis(100),
                decoding.slice(&body, (next, 99), None, &senders, all),
            );
            assert!(second.await.is_err(), "memory for both is not there");
            let mut total = first.made.as_ref().unwrap().len();
            drop(first);
            let mut at = Some(next);
            while let Some(from) = at {
                let slice = decoding.slice(&body, (from, 3), None, &agents(), all).await.unwrap();
                total += slice.made.as_ref().unwrap().len();
                at = slice.next;
            }
            assert_eq!(total, 12);
        });
    }

    /// A frame that decompresses to zeros, which is not a batch.
    fn bomb(zeros: usize) -> Vec<u8> {
        let payload = zstd::bulk::compress(&vec![0; zeros], 1).unwrap();
        let mut frame = b"JMB1".to_vec();
        frame.extend(u32::try_from(payload.len()).unwrap().to_le_bytes());
        frame.extend(crc32c::crc32c(&payload).to_le_bytes());
        frame.extend(payload);
        frame
    }

    #[test]
    fn a_users_request_is_decompressed_to_so_much() {
        let read = |body: Vec<u8>, user| {
            let taken = slice(&mut Decoder::default(), &body, (0, 99), user, &agents());
            (taken.frames.len(), taken.next, taken.bytes_left)
        };
        let user = Some(USER_REQUEST_BYTES_MAX);
        let full = [vec![bomb(USER_FRAME_BYTES_MAX); 9].concat(), frame(0, 1)].concat();
        assert_eq!(read(full, user), (4, None, None), "the rest is not read");
        let longer = vec![bomb(USER_FRAME_BYTES_MAX + 1); 9].concat();
        assert_eq!(read(longer.clone(), user), (9, None, user), "none is");
        let (read, next, _) = read(longer, None);
        assert!(read == 8 && next.is_some(), "the next turn reads the rest");
    }

    #[test]
    fn frames_that_are_no_batches_leave_the_turn_to_others_too() {
        let body = vec![bomb(6 << 20); 5].concat();
        let (mut at, mut slices) = (Some(0), Vec::new());
        while let Some(from) = at {
            let taken = slice(&mut Decoder::default(), &body, (from, 99), None, &agents());
            assert!(taken.frames.iter().all(|read| matches!(read, FrameRead::Bad { .. })));
            slices.push(taken.frames.len());
            at = taken.next;
        }
        assert_eq!(slices, [2, 2, 1]);
    }

    #[test]
    fn a_user_has_one_turn_and_none_of_the_agents() {
        let decoding = Decoding::new(1, 1 << 20);
        let body = Arc::new(frame(0, 1));
        let of = |uid| Some(SendingUser { uid, bytes_left: USER_REQUEST_BYTES_MAX });
        run(async {
            let first = decoding.slice(&body, (0, 9), of(1), &agents(), all).await.unwrap();
            let senders = agents();
            let second = decoding.slice(&body, (0, 9), of(1), &senders, all);
            tokio::pin!(second);
            let soon = std::time::Duration::from_millis(100);
            assert!(
                tokio::time::timeout(soon, &mut second).await.is_err(),
                "the first is not stored"
            );
            decoding.slice(&body, (0, 9), of(2), &agents(), all).await.unwrap();
            let turn = Arc::clone(&decoding.user_turns).acquire_owned().await.unwrap();
            decoding.slice(&body, (0, 9), None, &agents(), all).await.unwrap();
            drop((turn, first));
            assert_eq!(second.await.unwrap().made.unwrap().len(), 1);
        });
    }
}
