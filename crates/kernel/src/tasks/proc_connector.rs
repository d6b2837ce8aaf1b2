//! Fork events of the process connector (Documentation/driver-api/connector.rst,
//! include/uapi/linux/cn_proc.h and drivers/connector/cn_proc.c, Linux 6.18).
//!
//! The kernel reports a fork before the new task runs, so every task is announced before it ends. It needs
//! `CAP_NET_ADMIN` and the machine's first process, user and network namespaces. One event is a
//! datagram:
//!
//! ```text
//! nlmsghdr 16 | cn_msg 20 | what 4 | cpu 4 | timestamp_ns 8 | parent tid, tgid, child tid, tgid 4×4
//! ```
//!
//! Since Linux 6.6 a listener can request forks alone; before, executions, exits and changes of
//! identity arrive too, about four events a process, and are skipped here.

use crate::netlink::{
    DATAGRAM_BYTES_MAX, DONE, Message, messages, open, push_message, receive, send,
    set_receive_bytes, u32_at, u64_at,
};
use rustix::io::Errno;
use rustix::net::netlink::CONNECTOR;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// `CN_IDX_PROC`, which is the multicast group, and `CN_VAL_PROC`.
const PROC: u32 = 1;
/// `PROC_CN_MCAST_LISTEN`.
const LISTEN: u32 = 1;
/// `PROC_CN_MCAST_IGNORE`.
const IGNORE: u32 = 2;
/// `PROC_EVENT_NONE`: the kernel's answer to a request.
const ANSWER: u32 = 0;
/// `PROC_EVENT_FORK`.
const FORK: u32 = 1;
/// Length of `struct cn_msg`.
const CN_HEADER: usize = 20;

/// A new task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fork {
    /// The parent task. For a thread it is the parent of its process, and with `CLONE_PARENT`
    /// it is the parent of the caller.
    pub parent_tid: u32,
    /// The process of that task.
    pub parent_tgid: u32,
    /// The new task.
    pub tid: u32,
    /// Its process: for a thread it differs from its own ID.
    pub tgid: u32,
    /// Its time, by [`crate::clock::monotonic_us`].
    pub at_us: u64,
}

/// Why fork events are unavailable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectorError {
    /// The kernel was built without it.
    #[error("the kernel has no process connector (CONFIG_PROC_EVENTS)")]
    Absent,
    /// It needs `CAP_NET_ADMIN`.
    #[error("fork events: permission denied")]
    Denied,
    /// The kernel accepted the request without an answer: it answers in the first process, user and
    /// network namespaces alone.
    #[error("fork events are not available in this process, user or network namespace")]
    OtherNamespace,
    /// Any other error.
    #[error("fork events: {0}")]
    Failed(Errno),
}

impl From<Errno> for ConnectorError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::PROTONOSUPPORT | Errno::AFNOSUPPORT => Self::Absent,
            Errno::CONNREFUSED => Self::OtherNamespace,
            Errno::PERM | Errno::ACCESS => Self::Denied,
            other => Self::Failed(other),
        }
    }
}

/// Receives every fork on the machine.
#[derive(Debug)]
pub struct Forks {
    socket: OwnedFd,
    buf: Box<[u8]>,
    /// Received, and later than the requested time.
    ahead: Option<Fork>,
}

/// The result of [`Forks::take`], besides the forks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainResult {
    /// Forks shown.
    pub forks: usize,
    /// Whether the kernel dropped events since the last call.
    pub lost: bool,
}

impl Forks {
    /// Requests all forks of the machine. `receive_bytes` may wait in the kernel, which counts twice
    /// as many.
    ///
    /// # Errors
    /// The kernel has no connector, rejects the request, or answers elsewhere.
    pub fn open(receive_bytes: usize) -> Result<Self, ConnectorError> {
        let socket = open(CONNECTOR, PROC)?;
        set_receive_bytes(&socket, receive_bytes)?;
        let mut forks =
            Self { socket, buf: vec![0; DATAGRAM_BYTES_MAX].into_boxed_slice(), ahead: None };
        // Every kernel answers the short request. Old kernels skip the long, filtering one; new ones do not answer it,
        // because they drop everything except forks.
        forks.request(&LISTEN.to_ne_bytes())?;
        forks.answered()?;
        let narrowed = [LISTEN.to_ne_bytes(), FORK.to_ne_bytes()];
        forks.request(narrowed.as_flattened())?;
        Ok(forks)
    }

    /// The descriptor that becomes readable when an event waits. An event in `ahead` is not signalled.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn request(&self, payload: &[u8]) -> Result<(), Errno> {
        let mut header = Vec::with_capacity(CN_HEADER);
        for word in [PROC, PROC, 0, 0] {
            header.extend(word.to_ne_bytes());
        }
        header.extend(u16::try_from(payload.len()).unwrap_or(u16::MAX).to_ne_bytes());
        header.extend(0_u16.to_ne_bytes());
        let mut datagram = Vec::new();
        push_message(&mut datagram, DONE, 0, false, &[&header, payload]);
        send(&self.socket, &datagram)
    }

    /// The kernel's answer, which arrives before the request returns.
    fn answered(&mut self) -> Result<(), ConnectorError> {
        loop {
            let datagram = match receive(&self.socket, &mut self.buf) {
                Ok(Some(datagram)) => datagram,
                Ok(None) => return Err(ConnectorError::OtherNamespace),
                // Events arrived faster than this began: they are from before the request.
                Err(Errno::NOBUFS) => continue,
                Err(errno) => return Err(errno.into()),
            };
            for message in messages(datagram) {
                if let Some(Event::Answer(code)) = event(&message) {
                    return match i32::try_from(code) {
                        Ok(0) => Ok(()),
                        Ok(code) => Err(Errno::from_raw_os_error(code).into()),
                        Err(_) => Err(ConnectorError::Failed(Errno::INVAL)),
                    };
                }
            }
        }
    }

    /// Takes the waiting forks, up to an instant of [`crate::clock::monotonic_us`], in the order in
    /// which each processor sent them. Later forks may be included.
    ///
    /// # Errors
    /// The socket broke.
    pub fn take(
        &mut self,
        until_us: u64,
        mut show: impl FnMut(&Fork),
    ) -> Result<DrainResult, Errno> {
        let mut taken = DrainResult::default();
        if let Some(fork) = self.ahead.take() {
            taken.forks += 1;
            show(&fork);
        }
        loop {
            let datagram = match receive(&self.socket, &mut self.buf) {
                Ok(Some(datagram)) => datagram,
                Ok(None) => return Ok(taken),
                Err(Errno::NOBUFS) => {
                    taken.lost = true;
                    continue;
                }
                Err(errno) => return Err(errno),
            };
            for message in messages(datagram) {
                let Some(Event::Fork(fork)) = event(&message) else { continue };
                if fork.at_us > until_us {
                    // A machine that forks faster than this reads would keep it here for ever.
                    self.ahead = Some(fork);
                    return Ok(taken);
                }
                taken.forks += 1;
                show(&fork);
            }
        }
    }
}

impl Drop for Forks {
    /// Unregisters: before Linux 6.6 the kernel would continue to create events without a listener.
    fn drop(&mut self) {
        self.request(&IGNORE.to_ne_bytes()).ok();
    }
}

/// The content of a connector message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Answer(u32),
    Fork(Fork),
}

fn event(message: &Message<'_>) -> Option<Event> {
    let payload = message.payload;
    if message.kind != DONE || [u32_at(payload, 0)?, u32_at(payload, 4)?] != [PROC, PROC] {
        return None;
    }
    let body = payload.get(CN_HEADER..)?;
    match u32_at(body, 0)? {
        ANSWER => u32_at(body, 16).map(Event::Answer),
        FORK => Some(Event::Fork(Fork {
            parent_tid: u32_at(body, 16)?,
            parent_tgid: u32_at(body, 20)?,
            tid: u32_at(body, 24)?,
            tgid: u32_at(body, 28)?,
            at_us: u64_at(body, 8)? / 1000,
        })),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn datagram(what: u32, numbers: [u32; 4]) -> Vec<u8> {
        let mut payload = Vec::new();
        for word in [PROC, PROC, 0, 0, 40, what, 0] {
            payload.extend(word.to_ne_bytes());
        }
        payload.extend(5_000_999_u64.to_ne_bytes());
        numbers.iter().for_each(|number| payload.extend(number.to_ne_bytes()));
        payload.extend([0; 8]);
        let mut datagram = Vec::new();
        push_message(&mut datagram, DONE, 0, false, &[&payload]);
        datagram
    }

    fn read(datagram: &[u8]) -> Option<Event> {
        messages(datagram).find_map(|message| event(&message))
    }

    #[test]
    fn forks_and_answers() {
        let fork = Fork { parent_tid: 11, parent_tgid: 10, tid: 21, tgid: 20, at_us: 5000 };
        let datagram_of_fork = datagram(FORK, [11, 10, 21, 20]);
        assert_eq!(read(&datagram_of_fork), Some(Event::Fork(fork)));
        assert_eq!(read(&datagram(ANSWER, [1, 0, 0, 0])), Some(Event::Answer(1)));
        assert_eq!(read(&datagram(0x8000_0000, [11, 10, 0, 17])), None);
        for cut in 0..datagram_of_fork.len() {
            assert_eq!(read(&datagram_of_fork[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn the_kernel_reports_a_new_thread() {
        let mut forks = match Forks::open(1 << 20) {
            Ok(forks) => forks,
            Err(error) => return std::eprintln!("not run: {error}"),
        };
        let tid = || rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        let before = crate::clock::monotonic_us();
        let child = std::thread::spawn(tid).join().unwrap();
        let mut seen = None;
        let taken = forks.take(u64::MAX, |fork| {
            if fork.tid == child {
                seen = Some(*fork);
            }
        });
        assert!(!taken.unwrap().lost);
        let seen = seen.unwrap();
        assert_eq!(seen.tgid, std::process::id());
        assert!((before..crate::clock::monotonic_us()).contains(&seen.at_us));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            read(&bytes);
        }
    }
}
