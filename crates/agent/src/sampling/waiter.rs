//! Waiting for an instant of the wall clock, a readable file descriptor, or the bell.

use model::Timestamp;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Wakes a waiting thread.
#[derive(Debug)]
pub(crate) struct Bell {
    fd: OwnedFd,
}

impl Bell {
    /// Creates a bell that does not ring.
    ///
    /// # Errors
    /// No file descriptor is available.
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self { fd: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    /// Wakes the thread that waits now or next.
    pub(crate) fn ring(&self) {
        // A full counter already rings.
        rustix::io::write(&self.fd, &1_u64.to_ne_bytes()).ok();
    }

    fn quiet(&self) {
        let mut count = [0; 8];
        // An empty counter is already quiet.
        rustix::io::read(&self.fd, &mut count).ok();
    }
}

/// Waits. Its timer follows the wall clock: setting the clock ends the wait.
#[derive(Debug)]
pub(crate) struct Waiter {
    timer: OwnedFd,
}

impl Waiter {
    /// Creates a waiter for one thread.
    ///
    /// # Errors
    /// No file descriptor is available.
    pub(crate) fn new() -> Result<Self, Errno> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self { timer: timerfd_create(TimerfdClockId::Realtime, flags)? })
    }

    /// Waits until the instant, the bell, or until one of `others` is readable. Returns the cause.
    ///
    /// # Errors
    /// The kernel rejects the wait.
    pub(crate) fn wait(
        &self,
        until: Timestamp,
        bell: &Bell,
        others: [Option<BorrowedFd<'_>>; 2],
    ) -> Result<[bool; 2], Errno> {
        // Zero would stop the timer.
        let until = until.max(Timestamp(1));
        let it_value = Timespec {
            tv_sec: until.0.div_euclid(1_000_000),
            tv_nsec: until.0.rem_euclid(1_000_000) * 1000,
        };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
        timerfd_settime(&self.timer, flags, &Itimerspec { it_interval, it_value })?;
        let timer = PollFd::new(&self.timer, PollFlags::IN);
        let ring = PollFd::new(&bell.fd, PollFlags::IN);
        let other =
            |fd: Option<_>| PollFd::from_borrowed_fd(fd.unwrap_or(bell.fd.as_fd()), PollFlags::IN);
        let mut fds = [timer, ring, other(others[0]), other(others[1])];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let [_, ring, first, second] = fds;
        let rings = !ring.revents().is_empty();
        if rings {
            bell.quiet();
        }
        let is_readable =
            |given: Option<_>, fd: PollFd<'_>| given.is_some() && !fd.revents().is_empty();
        Ok([is_readable(others[0], first), is_readable(others[1], second)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use delivery::{Clock, MachineClock};

    #[test]
    fn until_the_instant() {
        let (waiter, bell) = (Waiter::new().unwrap(), Bell::new().unwrap());
        let until = MachineClock.wall().plus(20_000);
        assert_eq!(waiter.wait(until, &bell, [None; 2]).unwrap(), [false; 2]);
        assert!(MachineClock.wall() >= until);
        waiter.wait(Timestamp(0), &bell, [None; 2]).unwrap();
    }

    #[test]
    fn until_the_bell_and_only_once() {
        let (waiter, bell) = (Waiter::new().unwrap(), Bell::new().unwrap());
        bell.ring();
        bell.ring();
        let begin = MachineClock.steady_us();
        waiter.wait(MachineClock.wall().plus(60_000_000), &bell, [None; 2]).unwrap();
        assert!(MachineClock.steady_us() - begin < 10_000_000);
        let until = MachineClock.wall().plus(20_000);
        waiter.wait(until, &bell, [None; 2]).unwrap();
        assert!(MachineClock.wall() >= until);
    }

    #[test]
    fn until_something_is_noted() {
        let (waiter, bell, other) =
            (Waiter::new().unwrap(), Bell::new().unwrap(), Bell::new().unwrap());
        other.ring();
        let until = MachineClock.wall().plus(60_000_000);
        assert_eq!(
            waiter.wait(until, &bell, [None, Some(other.fd.as_fd())]).unwrap(),
            [false, true]
        );
    }
}
