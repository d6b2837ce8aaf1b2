//! Receives exits: every ended task of the machine, with its usage.

use super::message::{TaskMessage, TaskReply, replies};
use super::query::{GET, TaskstatsError, family};
use crate::netlink::{
    DATAGRAM_BYTES_MAX, ERROR, error_of, messages, open, push_generic, receive, send,
    set_receive_bytes,
};
use crate::{Root, clock};
use rustix::io::Errno;
use rustix::net::netlink::GENERIC;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// `TASKSTATS_CMD_ATTR_REGISTER_CPUMASK`.
const REGISTER: u16 = 3;
/// `TASKSTATS_CMD_ATTR_DEREGISTER_CPUMASK`.
const DEREGISTER: u16 = 4;
/// Path of the exits in a recorded root: messages, each after its length in four bytes, the lowest
/// first.
const RECORDED: &str = ".jobmeter/taskstats/exits.bin";

/// Receives every ended task of the machine.
///
/// The kernel keeps an exit in the socket's buffer until it is taken, at about 1 280 bytes each. When
/// the buffer is full, exits are lost, and the next call reports that.
#[derive(Debug)]
pub struct Exits {
    channel: Channel,
}

#[derive(Debug)]
enum Channel {
    Kernel {
        socket: OwnedFd,
        family: u16,
        cpus: Vec<u8>,
        buf: Box<[u8]>,
    },
    /// The exits of a file, and the number of bytes taken.
    Recorded {
        bytes: Vec<u8>,
        place: usize,
        read: Vec<u8>,
    },
}

/// The result of [`Exits::take`], besides the exits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainResult {
    /// Exits shown.
    pub exits: usize,
    /// Whether the kernel dropped exits since the last call.
    pub lost: bool,
    /// Whether none was waiting after the last one.
    pub emptied: bool,
    /// Exits of an unknown layout.
    pub malformed: u32,
    /// When the call ended, by [`clock::monotonic_us`].
    pub at_us: u64,
}

impl Exits {
    /// Requests all exits of the machine, and checks that they arrive. `receive_bytes` may wait in the
    /// kernel, which counts twice as many.
    ///
    /// # Errors
    /// The kernel has no taskstats, rejects the request, or sends its exits elsewhere.
    pub fn open(root: &Root, receive_bytes: usize) -> Result<Self, TaskstatsError> {
        if !root.is_live() {
            let (bytes, read) = (Vec::new(), Vec::new());
            let channel = Channel::Recorded { bytes, place: 0, read };
            return Ok(Self { channel });
        }
        let possible = root.read_text("sys/devices/system/cpu/possible");
        let mut cpus = possible.map_err(|e| TaskstatsError::Failed(e.to_string()))?.into_bytes();
        cpus.push(0);
        // A separate socket, so that no other exit is taken from the permanent one.
        let mut check = Self::register(cpus.clone(), receive_bytes.min(1 << 20))?;
        if !check.receives_own(root)? {
            return Err(TaskstatsError::Unheard);
        }
        drop(check);
        Self::register(cpus, receive_bytes)
    }

    fn register(cpus: Vec<u8>, receive_bytes: usize) -> Result<Self, TaskstatsError> {
        let socket = open(GENERIC, 0)?;
        let family = family(&socket)?;
        set_receive_bytes(&socket, receive_bytes)?;
        let mut request = Vec::new();
        push_generic(&mut request, family, (2, true), GET, (REGISTER, &cpus));
        send(&socket, &request)?;
        let mut buf = vec![0; DATAGRAM_BYTES_MAX].into_boxed_slice();
        // An exit may arrive before the acknowledgement; it is from before the request.
        while let Some(datagram) = receive(&socket, &mut buf)? {
            let Some(answer) = messages(datagram).find(|it| it.kind == ERROR && it.seq == 2) else {
                continue;
            };
            return match error_of(&answer) {
                None => Ok(Self { channel: Channel::Kernel { socket, family, cpus, buf } }),
                Some(Errno::INVAL) => Err(TaskstatsError::OtherNamespace),
                Some(errno) => Err(errno.into()),
            };
        }
        Err(TaskstatsError::Failed("no response to the registration for exit records".to_owned()))
    }

    /// Ends a thread and returns whether its exit arrives. The kernel sends an exit before the end of the thread
    /// is visible, so there is nothing to wait for.
    fn receives_own(&mut self, root: &Root) -> Result<bool, TaskstatsError> {
        let own_tid = || rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        let thread = std::thread::Builder::new().name("exit-check".to_owned()).spawn(own_tid);
        let thread = thread.map_err(|error| TaskstatsError::Failed(error.to_string()))?;
        let tid = thread.join();
        let tid = tid.map_err(|_| TaskstatsError::Failed("the check panicked".to_owned()))?;
        let mut received = false;
        let taken = self.take(root, usize::MAX, |exit| received |= exit.stats.tid == tid)?;
        // In a flood of exits ours may be among the lost ones: exits do arrive then.
        Ok(received || taken.lost)
    }

    /// The descriptor that becomes readable when an exit waits; a recorded machine has none.
    #[must_use]
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.channel {
            Channel::Kernel { socket, .. } => Some(socket.as_fd()),
            Channel::Recorded { .. } => None,
        }
    }

    /// Takes at most `exits_max` waiting exits, in order of arrival. On a recorded machine
    /// they come from the given root, each once until its file changes.
    ///
    /// # Errors
    /// The socket broke.
    pub fn take(
        &mut self,
        root: &Root,
        exits_max: usize,
        mut show: impl FnMut(&TaskMessage),
    ) -> Result<DrainResult, TaskstatsError> {
        let mut taken = DrainResult::default();
        while taken.exits < exits_max {
            let datagram = match self.channel.next(root)? {
                Next::Datagram(datagram) => datagram,
                Next::Lost => {
                    taken.lost = true;
                    continue;
                }
                Next::None => {
                    taken.emptied = true;
                    break;
                }
            };
            for (_, reply) in replies(datagram) {
                match reply {
                    TaskReply::Task(exit) => {
                        taken.exits += 1;
                        show(&exit);
                    }
                    TaskReply::Malformed(_) => taken.malformed += 1,
                    TaskReply::Rejected(..) | TaskReply::Nothing => {}
                }
            }
        }
        taken.at_us = clock::monotonic_us();
        Ok(taken)
    }
}

enum Next<'a> {
    Datagram(&'a [u8]),
    Lost,
    None,
}

impl Channel {
    fn next(&mut self, root: &Root) -> Result<Next<'_>, TaskstatsError> {
        match self {
            Self::Kernel { socket, buf, .. } => match receive(&*socket, buf) {
                Ok(Some(datagram)) => Ok(Next::Datagram(datagram)),
                Ok(None) => Ok(Next::None),
                Err(Errno::NOBUFS) => Ok(Next::Lost),
                Err(errno) => Err(errno.into()),
            },
            Self::Recorded { bytes, place, read } => {
                match root.read(RECORDED, read) {
                    Err(error) if error.is_absent() => read.clear(),
                    result => result.map_err(|e| TaskstatsError::Failed(e.to_string()))?,
                }
                if read != bytes {
                    std::mem::swap(read, bytes);
                    *place = 0;
                }
                let rest = bytes.get(*place..).unwrap_or_default();
                let Some((length, rest)) = rest.split_first_chunk() else { return Ok(Next::None) };
                let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
                let datagram = rest.get(..length).ok_or_else(|| {
                    TaskstatsError::Failed(format!("/{RECORDED}: it ends within a message"))
                })?;
                *place = place.saturating_add(4).saturating_add(length);
                Ok(Next::Datagram(datagram))
            }
        }
    }
}

impl Drop for Exits {
    /// Unregisters; otherwise the kernel would notice at the next exit of each processor.
    fn drop(&mut self) {
        if let Channel::Kernel { socket, family, cpus, .. } = &self.channel {
            let mut request = Vec::new();
            push_generic(&mut request, *family, (3, false), GET, (DEREGISTER, cpus));
            send(socket, &request).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::tests::datagram;
    use super::super::stats::tests::sample;
    use super::*;

    #[test]
    fn recorded_exits_come_one_after_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::recorded(dir.path()).unwrap();
        let mut none = Exits::open(&root, 0).unwrap();
        assert!(none.take(&root, 9, |_| {}).unwrap().emptied);
        std::fs::create_dir_all(dir.path().join(".jobmeter/taskstats")).unwrap();
        let mut bytes = Vec::new();
        for with_group in [false, true] {
            let one = datagram(0, &sample(16, 560), with_group);
            bytes.extend(u32::try_from(one.len()).unwrap().to_le_bytes());
            bytes.extend(one);
        }
        bytes.extend([1, 0, 0, 0]);
        std::fs::write(dir.path().join(RECORDED), &bytes).unwrap();
        let mut exits = Exits::open(&root, 0).unwrap();
        let mut groups = Vec::new();
        let taken = exits.take(&root, 1, |exit| groups.push(exit.with_group)).unwrap();
        assert_eq!((taken.exits, taken.emptied), (1, false));
        let error = exits.take(&root, 9, |exit| groups.push(exit.with_group)).unwrap_err();
        assert_eq!(groups, [false, true]);
        assert!(error.to_string().contains("ends within a message"), "{error}");
    }

    #[test]
    fn the_kernel_reports_an_ended_thread() {
        let root = Root::live().unwrap();
        let mut exits = match Exits::open(&root, 1 << 20) {
            Ok(exits) => exits,
            Err(TaskstatsError::Failed(error)) => panic!("{error}"),
            Err(error) => return std::eprintln!("not run: {error}"),
        };
        assert!(exits.receives_own(&root).unwrap());
        let taken = exits.take(&root, usize::MAX, |_| {}).unwrap();
        assert!(taken.emptied);
    }
}
