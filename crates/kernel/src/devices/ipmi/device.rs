//! The device file of the kernel's IPMI driver: one call sends a request, another fetches its answer.

use super::{ANSWER_BYTES_MAX, IpmiError};
use libc::{c_int, c_long, c_short, c_uchar, c_uint, c_ushort};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// Possible paths of the first BMC's device: the kernel's, and those of older udev rules.
const PATHS: [&str; 3] = ["/dev/ipmi0", "/dev/ipmi/0", "/dev/ipmidev/0"];
/// `IPMI_SYSTEM_INTERFACE_ADDR_TYPE`: the BMC itself.
const SYSTEM_INTERFACE: c_int = 0x0c;
/// `IPMI_BMC_CHANNEL`.
const BMC_CHANNEL: c_short = 0xf;
/// `IPMI_RESPONSE_RECV_TYPE`.
const RESPONSE: c_int = 1;
/// Most messages that are skipped at once because they do not answer the last request.
const OTHERS_MAX: usize = 64;

/// `struct ipmi_system_interface_addr`.
#[repr(C)]
struct Address {
    kind: c_int,
    channel: c_short,
    unit: c_uchar,
}

/// `struct ipmi_msg`.
#[repr(C)]
struct Message {
    function: c_uchar,
    command: c_uchar,
    data_len: c_ushort,
    data: *mut c_uchar,
}

/// `struct ipmi_req`.
#[repr(C)]
struct Sent {
    address: *mut Address,
    address_len: c_uint,
    id: c_long,
    message: Message,
}

/// `struct ipmi_recv`.
#[repr(C)]
struct Received {
    kind: c_int,
    address: *mut [u8; 40],
    address_len: c_uint,
    id: c_long,
    message: Message,
}

/// `IPMICTL_SEND_COMMAND` and `IPMICTL_RECEIVE_MSG_TRUNC`.
const SEND: libc::Ioctl = libc::_IOR::<Sent>(b'i' as u32, 13);
const RECEIVE: libc::Ioctl = libc::_IOWR::<Received>(b'i' as u32, 11);

/// The open device.
#[derive(Debug)]
pub(super) struct Device {
    fd: OwnedFd,
    path: &'static str,
    /// The ID of the last request; its answer carries the same ID.
    id: c_long,
}

impl Device {
    pub(super) fn open() -> Result<Self, IpmiError> {
        for path in PATHS {
            let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
            match rustix::fs::open(path, flags, Mode::empty()) {
                Ok(fd) => return Ok(Self { fd, path, id: 0 }),
                Err(errno) if crate::is_gone(errno) => {}
                Err(Errno::ACCESS | Errno::PERM) => {
                    return Err(IpmiError::Denied(format!("{path}: permission denied")));
                }
                Err(errno) => return Err(IpmiError::Failed(format!("{path}: {errno}"))),
            }
        }
        let why =
            "/dev/ipmi0: not there; there is no BMC, or ipmi_si and ipmi_devintf are not loaded";
        Err(IpmiError::Absent(why.to_owned()))
    }

    /// Sends a request as on the bus.
    pub(super) fn send(&mut self, request: &[u8]) -> Result<(), IpmiError> {
        let [first, command, data @ ..] = request else {
            return Err(IpmiError::Failed("a request is too short".to_owned()));
        };
        self.id = self.id.wrapping_add(1);
        let unit = first & 3;
        let mut address = Address { kind: SYSTEM_INTERFACE, channel: BMC_CHANNEL, unit };
        let mut copy = [0_u8; super::REQUEST_BYTES_MAX];
        let mut data_len = 0;
        for (place, byte) in copy.iter_mut().zip(data) {
            *place = *byte;
            data_len += 1;
        }
        let message =
            Message { function: first >> 2, command: *command, data_len, data: copy.as_mut_ptr() };
        let mut sent = Sent {
            address: &raw mut address,
            address_len: size::<Address>(),
            id: self.id,
            message,
        };
        #[expect(unsafe_code, reason = "rustix has no call of this driver's")]
        // SAFETY: the descriptor is open; the request is that of `struct ipmi_req`, which is the layout of `sent`.
        // The kernel only reads it, the address of `address_len` bytes and `data_len` bytes of
        // `copy`, all of which live until the call returns.
        let found = unsafe { libc::ioctl(self.fd.as_raw_fd(), SEND, &raw mut sent) };
        self.check(found, "send")
    }

    /// Receives the answer to the last request into `answer`; false if it does not arrive within `patience`.
    pub(super) fn receive(
        &mut self,
        patience: Duration,
        answer: &mut Vec<u8>,
    ) -> Result<bool, IpmiError> {
        for _ in 0..OTHERS_MAX {
            let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
            let tv_sec = i64::try_from(patience.as_secs()).unwrap_or(i64::MAX);
            let time = Timespec { tv_sec, tv_nsec: i64::from(patience.subsec_nanos()) };
            match poll(&mut fds, Some(&time)) {
                Ok(0) => return Ok(false),
                Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(errno) => return Err(IpmiError::Failed(format!("{}: {errno}", self.path))),
            }
            if self.take(answer)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes one message from the queue; returns whether it is the answer.
    fn take(&mut self, answer: &mut Vec<u8>) -> Result<bool, IpmiError> {
        answer.resize(ANSWER_BYTES_MAX, 0);
        let mut address = [0_u8; 40];
        let data_len = c_ushort::try_from(answer.len()).unwrap_or(0);
        let message = Message { function: 0, command: 0, data_len, data: answer.as_mut_ptr() };
        let address_len = size::<[u8; 40]>();
        let mut got = Received { kind: 0, address: &raw mut address, address_len, id: 0, message };
        #[expect(unsafe_code, reason = "rustix has no call of this driver's")]
        // SAFETY: the descriptor is open; the request is that of `struct ipmi_recv`, which is the layout of `got`.
        // The kernel writes it, at most `address_len` bytes to `address` and at most `data_len` bytes
        // to `answer`, which is large enough, and all of them live until the call returns.
        let found = unsafe { libc::ioctl(self.fd.as_raw_fd(), RECEIVE, &raw mut got) };
        // There is no other reader of this descriptor, but a message may have been withdrawn.
        if found < 0 && Errno::from_io_error(&std::io::Error::last_os_error()) == Some(Errno::AGAIN)
        {
            return Ok(false);
        }
        self.check(found, "receive")?;
        answer.truncate(usize::from(got.message.data_len));
        Ok(got.kind == RESPONSE && got.id == self.id)
    }

    fn check(&self, found: c_int, what: &str) -> Result<(), IpmiError> {
        if found >= 0 {
            return Ok(());
        }
        let why = std::io::Error::last_os_error();
        Err(IpmiError::Failed(format!("{}: {what}: {why}", self.path)))
    }
}

fn size<T>() -> c_uint {
    c_uint::try_from(size_of::<T>()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_structures_match_the_kernel() {
        // The layout of gcc on 64-bit machines, and the calls of ipmitool there.
        assert_eq!((size_of::<Address>(), size_of::<Message>()), (8, 16));
        assert_eq!((size_of::<Sent>(), size_of::<Received>()), (40, 48));
        assert_eq!((SEND, RECEIVE), (0x8028_690d, 0xc030_690b));
    }
}
