//! Notifications of created and removed directories, and of changes of a `cgroup.events` (inotify(7)). Both
//! versions' file systems send these events for `mkdir` and `rmdir`; version 2's kernel signals a
//! change of `cgroup.events` as a modification of the file.

use rustix::fs::inotify::{
    CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init, remove_watch,
};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Most reads of one [`Inotify::drain`], each of up to 512 events: the kernel's queue holds 16 384
/// by default.
const READS_MAX: usize = 64;

/// A queue of events.
#[derive(Debug)]
pub struct Inotify {
    fd: OwnedFd,
}

/// A watch: the number in its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Watch(i32);

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// An entry of a watched directory was created, removed or renamed.
    Entry {
        /// The watch of the directory.
        watch: Watch,
        /// Its name; `None` if it is not UTF-8.
        name: Option<&'a str>,
        /// Whether a directory was created.
        made_dir: bool,
    },
    /// A watched file changed.
    Modified(Watch),
    /// The watch has ended: its target was removed or unmounted.
    Gone(Watch),
    /// The queue was full: any number of events are lost.
    Overflow,
}

impl Inotify {
    /// An empty queue.
    ///
    /// # Errors
    /// `EMFILE` past `fs.inotify.max_user_instances` or the limit of open files.
    pub fn new() -> Result<Self, Errno> {
        Ok(Self { fd: init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)? })
    }

    /// Watches the entries of a directory; `None` if it does not exist, or is not a directory
    /// (but perhaps a link to one).
    ///
    /// # Errors
    /// `EACCES`; `ENOSPC` past `fs.inotify.max_user_watches`.
    pub fn watch_dir(&self, path: &str) -> Result<Option<Watch>, Errno> {
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::ONLYDIR
            | WatchFlags::DONT_FOLLOW;
        self.watch(path, flags)
    }

    /// Watches a file for changes; `None` if it does not exist. A symbolic link is not followed.
    ///
    /// # Errors
    /// As [`Self::watch_dir`].
    pub fn watch_file(&self, path: &str) -> Result<Option<Watch>, Errno> {
        self.watch(path, WatchFlags::MODIFY | WatchFlags::DONT_FOLLOW)
    }

    fn watch(&self, path: &str, flags: WatchFlags) -> Result<Option<Watch>, Errno> {
        match add_watch(&self.fd, path, flags) {
            Ok(watch) => Ok(Some(Watch(watch))),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Ends a watch.
    ///
    /// # Errors
    /// `EINVAL` if it has ended already.
    pub fn unwatch(&self, watch: Watch) -> Result<(), Errno> {
        remove_watch(&self.fd, watch.0)
    }

    /// Shows the waiting events, without blocking and without allocating.
    ///
    /// # Errors
    /// The queue cannot be read.
    pub fn drain(&self, mut show: impl FnMut(Event<'_>)) -> Result<(), Errno> {
        let mut space = [MaybeUninit::<u8>::uninit(); 16 << 10];
        let mut reader = Reader::new(&self.fd, &mut space);
        let mut reads = 0;
        loop {
            if reader.is_buffer_empty() {
                if reads == READS_MAX {
                    return Ok(());
                }
                reads += 1;
            }
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name().and_then(|name| name.to_str().ok());
                    show(classify(event.events(), Watch(event.wd()), name));
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

fn classify(flags: ReadFlags, watch: Watch, name: Option<&str>) -> Event<'_> {
    if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
        return Event::Overflow;
    }
    if flags.contains(ReadFlags::IGNORED) {
        return Event::Gone(watch);
    }
    if flags.contains(ReadFlags::MODIFY) {
        return Event::Modified(watch);
    }
    let came = flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO);
    Event::Entry { watch, name, made_dir: came && flags.contains(ReadFlags::ISDIR) }
}

impl AsFd for Inotify {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(inotify: &Inotify) -> Vec<String> {
        let mut all = Vec::new();
        inotify.drain(|event| all.push(format!("{event:?}"))).unwrap();
        all
    }

    #[test]
    fn creations_removals_and_changes_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap();
        let inotify = Inotify::new().unwrap();
        let watch = inotify.watch_dir(path).unwrap().unwrap();
        assert!(events(&inotify).is_empty());
        std::fs::create_dir(dir.path().join("job_1")).unwrap();
        std::fs::write(dir.path().join("file"), "a").unwrap();
        std::fs::remove_dir(dir.path().join("job_1")).unwrap();
        let entry =
            |name, made_dir| format!("{:?}", Event::Entry { watch, name: Some(name), made_dir });
        assert_eq!(
            events(&inotify),
            [entry("job_1", true), entry("file", false), entry("job_1", false)]
        );

        let file = inotify.watch_file(dir.path().join("file").to_str().unwrap()).unwrap().unwrap();
        std::fs::write(dir.path().join("file"), "b").unwrap();
        assert!(events(&inotify).contains(&format!("{:?}", Event::Modified(file))));
        inotify.unwatch(file).unwrap();
        assert_eq!(events(&inotify), [format!("{:?}", Event::Gone(file))]);
        assert_eq!(inotify.unwatch(file), Err(Errno::INVAL));
    }

    #[test]
    fn links_and_files_are_not_directories() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/", dir.path().join("link")).unwrap();
        let inotify = Inotify::new().unwrap();
        let link = dir.path().join("link");
        assert_eq!(inotify.watch_dir(link.to_str().unwrap()), Ok(None));
        let none = dir.path().join("none");
        assert_eq!(inotify.watch_dir(none.to_str().unwrap()), Ok(None));
    }

    #[test]
    fn an_overflow_is_not_an_entry() {
        let none = Watch(-1);
        assert_eq!(classify(ReadFlags::QUEUE_OVERFLOW, none, None), Event::Overflow);
    }
}
