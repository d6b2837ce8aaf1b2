//! Reading of `/proc/PID/environ`, which a user can block: the kernel reads it from the memory of the process, and
//! waits as long as another reader of that memory does, for example for a FUSE file system without an answer.

use super::{ReadError, Root};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Time limit of one reading.
const READ_MAX: Duration = Duration::from_secs(1);
/// Most owners of processes with a reading under way.
const OWNERS_MAX: usize = 16;
/// Stack of a reading thread.
const STACK_BYTES: usize = 128 * 1024;

/// Readings that exceeded their time limit.
static GIVEN_UP: AtomicU64 = AtomicU64::new(0);

/// Number of readings of an environment that exceeded their time limit since the start of this program.
pub fn environments_given_up() -> u64 {
    GIVEN_UP.load(Ordering::Relaxed)
}

/// Owners of processes with an environment that a thread reads.
#[derive(Debug, Default)]
pub(super) struct Owners(Mutex<BTreeSet<u32>>);

impl Owners {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, owner: u32) -> bool {
        let mut owners = self.lock();
        owners.len() < OWNERS_MAX && owners.insert(owner)
    }
}

impl Root {
    /// Reads the start of a process's environment, `most` bytes at most. Returns whether it ends there.
    ///
    /// Another thread reads it. If that takes longer than 1 s, the thread is left behind until the kernel releases
    /// it. Until then there is no other reading for the same owner, so the number of threads is bounded.
    ///
    /// # Errors
    /// As [`Self::open`]; `ETIMEDOUT` after the time limit, `EBUSY` while a reading for the same owner or for too
    /// many others is under way, `EAGAIN` if no thread can be started.
    pub fn environment(&self, pid: u32, most: usize) -> Result<(Vec<u8>, bool), ReadError> {
        let path = format!("proc/{pid}/environ");
        let owner = self.stat(&format!("proc/{pid}"))?.uid;
        if !self.environments.begin(owner) {
            return Err(ReadError::new(&path, Errno::BUSY));
        }
        let (root, own_path) = (self.clone(), path.clone());
        let (sender, receiver) = sync_channel(1);
        let read = move || {
            let mut bytes = Vec::new();
            let is_whole = root.open(&own_path).and_then(|file| {
                let is_whole = file.read_start(&mut bytes, most);
                is_whole.map_err(|errno| ReadError::new(&own_path, errno))
            });
            root.environments.lock().remove(&owner);
            // The receiver may have given up.
            sender.send(is_whole.map(|is_whole| (bytes, is_whole))).ok();
        };
        let thread = std::thread::Builder::new().name("environ".to_owned());
        if thread.stack_size(STACK_BYTES).spawn(read).is_err() {
            self.environments.lock().remove(&owner);
            return Err(ReadError::new(&path, Errno::AGAIN));
        }
        match receiver.recv_timeout(READ_MAX) {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout) => {
                GIVEN_UP.fetch_add(1, Ordering::Relaxed);
                Err(ReadError::new(&path, Errno::TIMEDOUT))
            }
            Err(RecvTimeoutError::Disconnected) => Err(ReadError::new(&path, Errno::IO)),
        }
    }
}
