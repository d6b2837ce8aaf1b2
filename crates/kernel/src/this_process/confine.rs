//! Confines the calling process: limits what it may allocate, compute and open from now on (setrlimit(2), prctl(2),
//! capabilities(7)).

use super::child_program::Rights;
use crate::users::login::Login;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};
use std::io;

/// What a process may use beyond its current usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Memory, in bytes. An allocation beyond it fails.
    pub memory_bytes: u64,
    /// Processor time of all threads together, in seconds. Beyond it the kernel ends the process.
    pub processor_seconds: u64,
}

/// Niceness of a confined process: other processes have priority.
const NICE: i32 = 10;
/// Address space that is reserved and unused: stacks of threads, heaps of the allocator.
const RESERVED_BYTES: u64 = 1 << 30;
/// User and group `nobody`: the kernel's overflow ID, which owns no files.
const NOBODY: u32 = 65_534;

/// Gives up what a process that only computes never needs: root's identity, capabilities, core dumps, files of its
/// own, and every descriptor but the three standard ones. Call it before threads start.
///
/// # Errors
/// The kernel rejects a call. In a user namespace this includes root without an ID for `nobody`.
pub fn give_up() -> io::Result<()> {
    drop_privileges()?;
    rustix::thread::set_no_new_privs(true)?;
    close_from(3)?;
    limit(Resource::Core, 0)?;
    limit(Resource::Fsize, 0)?;
    // A sandbox may forbid this call. The process is confined without it, but has a higher priority.
    rustix::process::setpriority_process(None, NICE).ok();
    Ok(())
}

/// Bounds memory and processor time, and lets the process open no more files.
///
/// # Errors
/// `/proc/self/statm` cannot be read, or the kernel rejects a limit.
pub fn bound(bounds: Bounds) -> io::Result<()> {
    let used = Used::now()?;
    limit(Resource::Data, used.data_bytes.saturating_add(bounds.memory_bytes))?;
    let whole = used.space_bytes.saturating_add(bounds.memory_bytes);
    limit(Resource::As, whole.saturating_add(RESERVED_BYTES))?;
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime).tv_sec;
    let spent = u64::try_from(spent).unwrap_or(0).saturating_add(1);
    limit(Resource::Cpu, spent.saturating_add(bounds.processor_seconds))?;
    limit(Resource::Nofile, 0)
}

/// Becomes `nobody` if the process runs as root, and drops all capabilities. These calls apply to one thread.
fn drop_privileges() -> io::Result<()> {
    for number in 0..u64::BITS {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number)) {
            Ok(()) => {}
            // The kernel has no capability of this number, or the process may not change the set. The set matters
            // only to programs that gain privileges, which `no_new_privs` prevents.
            Err(Errno::INVAL | Errno::PERM) => break,
            Err(errno) => return Err(errno.into()),
        }
    }
    if geteuid().is_root() {
        // Root's processes are not counted. Those of `nobody` are, also those of other programs.
        let none = Rlimit { current: None, maximum: None };
        setrlimit(Resource::Nproc, none).ok();
        Rights::of(&Login { uid: NOBODY, gid: NOBODY, groups: Vec::new() }).take()?;
    }
    // Old kernels have no ambient set.
    match clear_ambient_capability_set() {
        Ok(()) | Err(Errno::INVAL) => {}
        Err(errno) => return Err(errno.into()),
    }
    let none = CapabilitySet::empty();
    Ok(set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: none, inheritable: none },
    )?)
}

/// Lowers a limit permanently; a lower one is kept.
fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let most = getrlimit(resource).maximum.map_or(most, |maximum| maximum.min(most));
    Ok(setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?)
}

/// Memory of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Used {
    /// Its whole address space.
    space_bytes: u64,
    /// The private and writable part: heap and stacks.
    data_bytes: u64,
}

impl Used {
    fn now() -> io::Result<Self> {
        let text = std::fs::read_to_string("/proc/self/statm")?;
        let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
        let pages =
            |nth| text.split_whitespace().nth(nth).and_then(|word| word.parse::<u64>().ok());
        let broken = || io::Error::new(io::ErrorKind::InvalidData, "/proc/self/statm");
        let bytes = |nth| Ok::<_, io::Error>(pages(nth).ok_or_else(broken)?.saturating_mul(page));
        Ok(Self { space_bytes: bytes(0)?, data_bytes: bytes(5)? })
    }
}

/// Closes every descriptor from this one on.
fn close_from(first: u32) -> io::Result<()> {
    #[expect(unsafe_code, reason = "close_range has no safe wrapper")]
    // SAFETY: the call takes three integers. The caller owns no file yet: it has just started, and uses
    // standard input, output and error alone, which stay open.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0_u32) };
    if closed == 0 {
        return Ok(());
    }
    // Linux before 5.9. What this process inherits is closed at its start by its parent's flags.
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOSYS | libc::EPERM) => Ok(()),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_this_process_is_known() {
        let used = Used::now().unwrap();
        assert!(used.data_bytes > 0 && used.space_bytes >= used.data_bytes, "{used:?}");
    }
}
