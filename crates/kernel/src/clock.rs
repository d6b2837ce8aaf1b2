//! The clocks that the kernel's own numbers are counted by (clock_gettime(2)).
//!
//! The time of a sample is never taken here: it is given by whoever calls a source. These tell how old
//! a task is, and how much processor time a reading has taken.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Microseconds of the clock that never jumps and stops while the machine sleeps: that of a task's
/// elapsed time and of a fork's instant.
pub fn monotonic_us() -> u64 {
    micros(clock_gettime(ClockId::Monotonic))
}

/// How many microseconds the machine has slept: by so much is the clock of `/proc/PID/stat` ahead.
pub fn slept_us() -> u64 {
    micros(clock_gettime(ClockId::Boottime)).saturating_sub(monotonic_us())
}

/// Microseconds of processor time that the calling thread has used.
pub fn thread_cpu_us() -> u64 {
    micros(clock_gettime(ClockId::ThreadCPUTime))
}

/// How the kernel holds the wall clock (adjtimex(2); Documentation/timers/, kernel/time/ntp.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discipline {
    /// Whether something (NTP, PTP) has told the kernel the true time and goes on doing so.
    pub synchronised: bool,
    /// How far off the clock may be at most, in microseconds, by that account.
    pub error_max_us: u64,
}

/// How the wall clock is held; `None` where the kernel does not tell.
pub fn discipline() -> Option<Discipline> {
    let mut told = std::mem::MaybeUninit::<libc::timex>::zeroed();
    #[expect(unsafe_code, reason = "adjtimex has no safe wrapper in rustix")]
    // SAFETY: `modes` is 0, so that the kernel changes nothing and writes one `struct timex` through a
    // valid pointer to one; all its fields are integers, for which zeroes are valid where the call fails.
    let (state, told) = unsafe { (libc::adjtimex(told.as_mut_ptr()), told.assume_init()) };
    (state >= 0).then(|| Discipline {
        synchronised: told.status & libc::STA_UNSYNC == 0,
        error_max_us: u64::try_from(told.maxerror).unwrap_or(0),
    })
}

fn micros(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000).saturating_add(nanos / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_how_it_holds_the_clock() {
        // NTP_PHASE_LIMIT: what the error of a clock that nobody holds grows to.
        let told = discipline().unwrap();
        assert!(told.error_max_us <= 16_000_000, "{told:?}");
        assert_eq!(Some(told.synchronised), discipline().map(|again| again.synchronised));
    }

    #[test]
    fn clocks_advance() {
        let (monotonic, cpu) = (monotonic_us(), thread_cpu_us());
        while thread_cpu_us() < cpu + 1000 {}
        assert!(monotonic_us() >= monotonic + 1000);
    }
}
