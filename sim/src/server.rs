//! The simulated server: the store on a failing disk, and the replies of the route for batches.

use crate::chance::Chance;
use crate::output::follow;
use memdisk::{Fault, MemDisk};
use model::Timestamp;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::sync_channel;
use storage::{DeferReason, Incoming, Outcome, Storage as _};
use store::{Disk, Settings, Store};
use wire::{Ack, AckStatus, Answer, Decoder, Frames};

/// Directory of the store on the disk.
pub(crate) const DIR: &str = "/data";

/// Small sizes, so that a minute has segments, blocks and merges. Automatic flushes are off, so that the
/// order of the disk's calls is deterministic.
fn settings() -> Settings {
    Settings {
        segment_bytes: 24 << 10,
        head_age_us: i64::MAX,
        merge_blocks: 2,
        block_bytes_max: 64 << 10,
        row_group_rows: 1 << 10,
        page_rows: 128,
        background_maintenance: false,
        ..Settings::default()
    }
}

/// The reply to a request.
#[derive(Clone, Debug, Hash)]
pub(crate) enum Reply {
    /// Status 200 and the bytes of an acknowledgement.
    Answer(Vec<u8>),
    /// Status 503 or 507: a temporary rejection.
    Later(u16, String),
    /// The connection breaks: there is no server, or it died during the request.
    Broken,
}

/// Statistics of the server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    pub(crate) duplicates: u64,
    pub(crate) later: u64,
    pub(crate) flushes: u64,
    pub(crate) merges: u64,
    pub(crate) deaths: u64,
    pub(crate) faults: u64,
}

#[derive(Debug)]
pub(crate) struct Server {
    disk: Arc<MemDisk>,
    store: Option<Store>,
    clock: Arc<AtomicI64>,
    decoder: Decoder,
    /// The disk's call during which the process dies.
    dies_at: Option<u64>,
    pub(crate) done: Done,
}

impl Server {
    pub(crate) fn new(clock: Arc<AtomicI64>) -> Self {
        let (disk, decoder, done) = (Arc::default(), Decoder::default(), Done::default());
        let mut server = Self { disk, store: None, clock, decoder, dies_at: None, done };
        assert!(server.begin(), "an empty disk is opened");
        server
    }

    pub(crate) const fn is_up(&self) -> bool {
        self.store.is_some()
    }

    pub(crate) fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    pub(crate) const fn disk(&self) -> &Arc<MemDisk> {
        &self.disk
    }

    /// Starts; false if the disk fails.
    pub(crate) fn begin(&mut self) -> bool {
        let disk: Arc<dyn Disk> = Arc::clone(&self.disk) as Arc<_>;
        let clock = Arc::clone(&self.clock);
        let now: storage::Clock = Arc::new(move || Timestamp(clock.load(Ordering::Relaxed)));
        self.store =
            Store::open_on(disk, Path::new(DIR), settings(), now).ok().map(|(store, _)| store);
        // On the first start the disk works; later the follower is known.
        if self.store.as_ref().is_some_and(|store| !follow(store)) {
            self.store = None;
        }
        self.is_up()
    }

    /// Plans a fault for a later call of the disk.
    pub(crate) fn harm(&mut self, n: u64, fault: Fault) {
        self.done.faults += 1;
        self.disk.plan().set(n, fault);
        self.dies_at = (fault == Fault::Dead).then(|| self.disk.plan().calls() + n);
    }

    /// Repairs the disk.
    pub(crate) fn mend(&mut self) {
        self.disk.plan().clear();
        self.dies_at = None;
    }

    /// True if the process died during a call of the disk.
    pub(crate) fn has_died(&self) -> bool {
        self.dies_at.is_some_and(|call| self.disk.plan().calls() >= call)
    }

    /// Kills the process, and the machine if `power` is cut.
    pub(crate) fn kill(&mut self, power: bool, chance: &mut Chance) {
        let disk = match (power, chance.below(3)) {
            (false, _) => self.disk.after_kill(),
            (true, 0) => self.disk.after_power_cut(chance.below(5)),
            (true, _) => self.disk.after_reordered_power_cut(&mut |n| chance.below(n)),
        };
        if let Some(store) = &self.store {
            self.done.merges += store.stats().merges;
        }
        self.store = None;
        self.disk = Arc::new(disk);
        self.dies_at = None;
        self.done.deaths += 1;
    }

    /// Writes a block. If the disk fails, repairs it and repeats the write at once, because the store alone
    /// would retry at a time of its own choice.
    pub(crate) fn flush(&mut self) {
        self.done.flushes += 1;
        while self.store().flush().is_err() && !self.has_died() {
            self.mend();
        }
    }

    pub(crate) fn maintain(&mut self) {
        if self.store().maintain().is_err() && !self.has_died() {
            self.done.faults += 1;
        }
    }

    /// Handles a request, like `POST /v1/batches`.
    pub(crate) fn take(&mut self, body: &[u8]) -> Reply {
        let Some(store) = &self.store else { return Reply::Broken };
        let received = Timestamp(self.clock.load(Ordering::Relaxed));
        let mut heads = Vec::new();
        let mut batches = Vec::new();
        for frame in Frames::of(body) {
            let frame = frame.unwrap();
            let decoded = self.decoder.decode(&frame).unwrap();
            heads.push((decoded.boot, decoded.seq));
            batches.push(Incoming { frame: frame.bytes.to_vec(), decoded, received });
        }
        let (to, from) = sync_channel(1);
        store.append(batches, move |outcomes| to.send(outcomes).unwrap());
        let outcomes = from.recv().unwrap();
        if self.has_died() {
            return Reply::Broken;
        }
        let later = outcomes.iter().find_map(|outcome| match outcome {
            Outcome::RejectedTemporarily(why) => Some(why.clone()),
            _ => None,
        });
        let settled =
            outcomes.iter().any(|outcome| !matches!(outcome, Outcome::RejectedTemporarily(_)));
        self.count(&outcomes);
        if let (Some(why), false) = (later, settled) {
            return later_all(&why);
        }
        let acks = heads.into_iter().zip(outcomes).map(|((boot, seq), outcome)| {
            let (status, reason, samples_rejected, samples_reason) = match outcome {
                Outcome::Stored { samples_rejected, reason } => {
                    (AckStatus::Stored, String::new(), samples_rejected, reason)
                }
                Outcome::Duplicate => (AckStatus::Duplicate, String::new(), 0, String::new()),
                Outcome::RejectedPermanently(why) | Outcome::RejectedWhole { why, .. } => {
                    (AckStatus::RejectedPermanently, why, 0, String::new())
                }
                Outcome::RejectedTemporarily(why) => {
                    (AckStatus::RejectedTemporarily, why.to_string(), 0, String::new())
                }
            };
            Ack { boot, seq, status, reason, samples_rejected, samples_reason }
        });
        Reply::Answer(Answer { acks: acks.collect(), ..Answer::default() }.encode())
    }

    fn count(&mut self, outcomes: &[Outcome]) {
        for outcome in outcomes {
            match outcome {
                Outcome::Duplicate => self.done.duplicates += 1,
                Outcome::RejectedTemporarily(_) => self.done.later += 1,
                Outcome::Stored { .. }
                | Outcome::RejectedPermanently(_)
                | Outcome::RejectedWhole { .. } => {}
            }
        }
    }
}

fn later_all(why: &DeferReason) -> Reply {
    Reply::Later(if why.is_full() { 507 } else { 503 }, why.to_string())
}
