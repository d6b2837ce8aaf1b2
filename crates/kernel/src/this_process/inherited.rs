//! Listening sockets that the service manager opened and passes on: sd_listen_fds(3).
//!
//! The variables `LISTEN_PID` and `LISTEN_FDS` contain the process ID, and the number of descriptors from 3 on. Such a
//! socket outlives a crash of the server: no other process gets its port meanwhile, and connections wait in it.

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::sockopt;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// The first descriptor that is passed on.
const FIRST: RawFd = 3;

static TAKEN: AtomicBool = AtomicBool::new(false);

/// Most sockets that are passed.
const SOCKETS_MAX: RawFd = 64;

/// The sockets passed to this process, at the first call only. They do not block.
///
/// # Errors
/// More descriptors than 64 are passed, or one that is not a listening TCP socket.
pub fn listeners() -> io::Result<Vec<TcpListener>> {
    let variable = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let own = variable("LISTEN_PID") == Some(std::process::id());
    let count: Option<u32> = variable("LISTEN_FDS").filter(|count| own && *count > 0);
    let Some(count) = count.filter(|_| !TAKEN.swap(true, Ordering::SeqCst)) else {
        return Ok(Vec::new());
    };
    let count = RawFd::try_from(count).unwrap_or(RawFd::MAX);
    if count > SOCKETS_MAX {
        let what = format!(
            "LISTEN_FDS passes {count} sockets; set at most {SOCKETS_MAX} addresses in the socket unit"
        );
        return Err(io::Error::other(what));
    }
    (FIRST..FIRST + count).map(listener).collect()
}

/// The socket of a descriptor that is passed, which the caller takes once.
#[expect(unsafe_code, reason = "the descriptor is known by its number alone")]
fn listener(number: RawFd) -> io::Result<TcpListener> {
    // SAFETY: the descriptor is only inspected, before this function ends; a number that is not an open
    // descriptor makes the first of these calls fail.
    let passed = unsafe { BorrowedFd::borrow_raw(number) };
    let listens = sockopt::socket_acceptconn(passed)?;
    let domain = sockopt::socket_domain(passed)?;
    let of_internet =
        domain == rustix::net::AddressFamily::INET || domain == rustix::net::AddressFamily::INET6;
    if !listens || !of_internet {
        let what =
            format!("LISTEN_FDS passes descriptor {number}, which is not a listening TCP socket");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    // SAFETY: the descriptor is open, is a socket that the service manager passed to this process alone, and
    // `TAKEN` lets this line run once for each, so it has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(number) };
    fcntl_setfd(socket.as_fd(), FdFlags::CLOEXEC)?;
    let listener = TcpListener::from(socket);
    listener.set_nonblocking(true)?;
    Ok(listener)
}
