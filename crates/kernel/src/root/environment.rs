//! Reading of `/proc/PID/environ` and `/proc/PID/cmdline`, which a user can block: the kernel reads them from the
//! memory of the process, and waits as long as another reader of that memory does, for example for a FUSE file system
//! without an answer.

use super::{ReadError, Root};
use crate::clock::monotonic_us;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Time limit of one reading.
const READ_MAX: Duration = Duration::from_secs(1);
/// A reading that waits longer is slow. A usual one takes less than 1 ms, and does not wait.
const SLOW: Duration = Duration::from_millis(100);
/// Pause before the next reading for an owner, after the first slow one. Each further slow one doubles it.
const PAUSE_MIN: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(3600);
/// Time without a reading after which a slow one is forgotten: a busy node may have some.
const FORGET: Duration = Duration::from_secs(600);
/// Most owners of processes with a reading under way; each has a thread.
const READINGS_MAX: usize = 256;
/// Most owners of processes with a reading under way or with slow ones before.
const OWNERS_MAX: usize = 4096;
/// Stack of a reading thread.
const STACK_BYTES: usize = 128 * 1024;

/// Readings that exceeded their time limit.
static GIVEN_UP: AtomicU64 = AtomicU64::new(0);

/// Number of readings of an environment that exceeded their time limit since the start of this program.
pub fn environments_given_up() -> u64 {
    GIVEN_UP.load(Ordering::Relaxed)
}

/// Owners of processes: a thread reads their memory, or their last reading was slow.
#[derive(Debug, Default)]
pub(super) struct Owners(Mutex<BTreeMap<u32, Owner>>);

#[derive(Clone, Copy, Debug)]
struct Owner {
    is_read: bool,
    slow_readings: u32,
    /// No reading begins before, by the monotonic clock.
    pause_until: Duration,
}

impl Owners {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Owner>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a reading, unless another one for the same owner is under way, the owner has a pause, or too many
    /// others are under way.
    fn begin(&self, owner: u32, now: Duration) -> bool {
        let mut owners = self.lock();
        owners.retain(|_, one| one.is_read || now < one.pause_until + FORGET * one.slow_readings);
        if owners.values().filter(|one| one.is_read).count() >= READINGS_MAX {
            return false;
        }
        if owners.len() >= OWNERS_MAX && !owners.contains_key(&owner) {
            let idle = owners.iter().filter(|(_, one)| !one.is_read);
            let earliest = idle.min_by_key(|(_, one)| one.pause_until).map(|(uid, _)| *uid);
            earliest.map(|uid| owners.remove(&uid));
        }
        let new = Owner { is_read: false, slow_readings: 0, pause_until: now };
        let one = owners.entry(owner).or_insert(new);
        let begins = !one.is_read && one.pause_until <= now;
        one.is_read |= begins;
        begins
    }

    /// Ends a reading. After a slow one the owner has a pause, so that slow owners leave time to the others.
    fn end(&self, owner: u32, waited: Duration, now: Duration) {
        let mut owners = self.lock();
        let Some(one) = owners.get_mut(&owner) else { return };
        one.is_read = false;
        if waited >= SLOW {
            let forgotten = now.saturating_sub(one.pause_until).as_secs() / FORGET.as_secs();
            let forgotten = u32::try_from(forgotten).unwrap_or(u32::MAX);
            let slow_before = one.slow_readings.saturating_sub(forgotten);
            let pause = PAUSE_MIN.saturating_mul(1 << slow_before.min(20)).min(PAUSE_MAX);
            (one.slow_readings, one.pause_until) = (slow_before.saturating_add(1), now + pause);
        } else if one.slow_readings == 0 {
            owners.remove(&owner);
        }
    }
}

fn now() -> Duration {
    Duration::from_micros(monotonic_us())
}

/// A clock that advances while this thread waits for anything but a processor (`/proc/PID/schedstat`: time on a
/// processor and time until it got one, in nanoseconds; Documentation/scheduler/sched-stats.rst).
fn waiting_clock() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let numbers = text.split(' ').take(2).filter_map(|word| word.parse::<u64>().ok());
    now().saturating_sub(Duration::from_nanos(numbers.sum()))
}

impl Root {
    /// Reads the start of a process's environment, `most` bytes at most. Returns whether it ends there.
    ///
    /// Another thread reads it. If that takes longer than 1 s, the thread is left behind until the kernel releases
    /// it. Until then there is no other reading for the same owner, so the number of threads is bounded. After a slow
    /// reading the owner has a pause, which doubles with each further one.
    ///
    /// # Errors
    /// As [`Self::open`]; `ETIMEDOUT` after the time limit, `EBUSY` during a pause of the owner and while a reading for
    /// the same owner or for too many others is under way, `EAGAIN` if no thread can be started.
    pub fn environment(&self, pid: u32, most: usize) -> Result<(Vec<u8>, bool), ReadError> {
        self.memory_file(pid, "environ", most)
    }

    /// Reads the start of a process's command line, as [`Self::environment`] does.
    ///
    /// # Errors
    /// As [`Self::environment`].
    pub fn command_line(&self, pid: u32, most: usize) -> Result<(Vec<u8>, bool), ReadError> {
        self.memory_file(pid, "cmdline", most)
    }

    fn memory_file(&self, pid: u32, name: &str, most: usize) -> Result<(Vec<u8>, bool), ReadError> {
        let path = format!("proc/{pid}/{name}");
        let owner = self.stat(&format!("proc/{pid}"))?.uid;
        if !self.environments.begin(owner, now()) {
            return Err(ReadError::new(&path, Errno::BUSY));
        }
        let (root, own_path) = (self.clone(), path.clone());
        let (sender, receiver) = sync_channel(1);
        let read = move || {
            let (began, mut bytes) = (waiting_clock(), Vec::new());
            let is_whole = root.open(&own_path).and_then(|file| {
                let is_whole = file.read_start(&mut bytes, most);
                is_whole.map_err(|errno| ReadError::new(&own_path, errno))
            });
            let waited = waiting_clock().saturating_sub(began);
            root.environments.end(owner, waited, now());
            // The receiver may have given up.
            sender.send(is_whole.map(|is_whole| (bytes, is_whole))).ok();
        };
        let thread = std::thread::Builder::new().name("environ".to_owned());
        if thread.stack_size(STACK_BYTES).spawn(read).is_err() {
            self.environments.end(owner, Duration::ZERO, now());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_with_hung_readings_leave_readings_to_others() {
        let (owners, now) = (Owners::default(), now());
        assert!((0..255).all(|owner| owners.begin(owner, now)));
        assert!(!owners.begin(0, now), "one thread for each owner");
        assert!(owners.begin(1000, now), "others go on");
        assert!(!owners.begin(1001, now), "the number of threads is bounded");
        owners.end(1000, Duration::ZERO, now);
        assert!(owners.begin(1001, now));
    }

    #[test]
    fn a_slow_owner_has_a_pause_that_grows() {
        let (owners, mut now) = (Owners::default(), now());
        let mut pauses = Vec::new();
        for _ in 0..13 {
            assert!(owners.begin(7, now));
            now += READ_MAX;
            owners.end(7, READ_MAX, now);
            assert!(!owners.begin(7, now) && owners.begin(8, now));
            owners.end(8, Duration::ZERO, now);
            let ended = now;
            while !owners.begin(7, now) {
                now += Duration::from_secs(1);
            }
            pauses.push((now - ended).as_secs());
            // A quick one keeps the count.
            owners.end(7, Duration::ZERO, now);
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3600, 3600]);
        assert_eq!(owners.lock().len(), 1);
        // Of 13 slow ones, 10 are forgotten.
        now += 10 * FORGET;
        assert!(owners.begin(7, now));
        owners.end(7, READ_MAX, now);
        assert_eq!(owners.lock().get(&7).map(|one| one.slow_readings), Some(4));
        now += Duration::from_secs(16) + 4 * FORGET;
        assert!(owners.begin(8, now));
        assert_eq!(owners.lock().keys().collect::<Vec<_>>(), [&8]);
    }

    #[test]
    fn a_busy_node_makes_no_reading_slow() {
        let waited = |work: fn()| {
            let one = move || {
                let began = waiting_clock();
                work();
                waiting_clock().saturating_sub(began)
            };
            std::thread::spawn(one).join().unwrap()
        };
        let busy = || {
            let began = now();
            while now() - began < 3 * SLOW {}
        };
        assert!(waited(busy) < waited(|| std::thread::sleep(3 * SLOW)));
    }

    #[test]
    fn remembered_owners_are_bounded() {
        let (owners, now) = (Owners::default(), now());
        for owner in 0..4200 {
            assert!(owners.begin(owner, now));
            owners.end(owner, SLOW, now);
        }
        assert_eq!(owners.lock().len(), OWNERS_MAX);
    }
}
