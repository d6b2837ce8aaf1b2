//! Kernel queues that sources drain, watched with epoll for new data.

use rustix::event::epoll::{CreateFlags, EventData, EventFlags, add, create, delete};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A set of watched queues. Closing a source removes its queue from the set.
#[derive(Debug)]
pub(crate) struct Queues {
    set: OwnedFd,
}

impl Queues {
    /// Creates an empty set.
    ///
    /// # Errors
    /// No file descriptor is available.
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self { set: create(CreateFlags::CLOEXEC)? })
    }

    /// File descriptor that is readable while a queue holds data.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }

    /// Watches a queue. Has no effect if it is already watched.
    ///
    /// # Errors
    /// The kernel rejects the queue, or its limit of watched files is reached.
    pub(crate) fn watch(&self, queue: BorrowedFd<'_>) -> Result<(), Errno> {
        match add(&self.set, queue, EventData::new_u64(0), EventFlags::IN) {
            Err(Errno::EXIST) => Ok(()),
            result => result,
        }
    }

    /// Stops watching a queue. Has no effect if it is not watched.
    pub(crate) fn unwatch(&self, queue: BorrowedFd<'_>) {
        delete(&self.set, queue).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
    use rustix::time::Timespec;

    fn is_readable(queues: &Queues) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(queues.fd(), PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    }

    #[test]
    fn the_set_is_readable_while_something_is_in_one_queue() {
        let queues = Queues::new().unwrap();
        let empty = || eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let (first, second) = (empty(), empty());
        queues.watch(first.as_fd()).unwrap();
        queues.watch(second.as_fd()).unwrap();
        queues.watch(second.as_fd()).unwrap();
        assert!(!is_readable(&queues));
        rustix::io::write(&second, &1_u64.to_ne_bytes()).unwrap();
        assert!(is_readable(&queues));
        rustix::io::read(&second, &mut [0; 8]).unwrap();
        assert!(!is_readable(&queues));
        rustix::io::write(&first, &1_u64.to_ne_bytes()).unwrap();
        drop(first);
        assert!(!is_readable(&queues), "closed");
        let again = empty();
        queues.watch(again.as_fd()).unwrap();
        rustix::io::write(&again, &1_u64.to_ne_bytes()).unwrap();
        assert!(is_readable(&queues), "another, perhaps of the same number");
        queues.unwatch(again.as_fd());
        queues.unwatch(again.as_fd());
        assert!(!is_readable(&queues), "not watched");
    }
}
