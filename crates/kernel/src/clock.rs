//! The clocks behind the kernel's own counters (clock_gettime(2)).
//!
//! The time of a sample never comes from here: the caller of a source passes it. These clocks measure the age
//! of a task and the processor time of a reading.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Microseconds of the clock that never jumps and stops while the machine sleeps. It measures a task's
/// elapsed time and a fork's instant.
pub fn monotonic_us() -> u64 {
    micros(clock_gettime(ClockId::Monotonic))
}

/// Microseconds that the machine has slept: the clock of `/proc/PID/stat` is ahead by this much.
pub fn slept_us() -> u64 {
    micros(clock_gettime(ClockId::Boottime)).saturating_sub(monotonic_us())
}

/// Microseconds of processor time that the calling thread has used.
pub fn thread_cpu_us() -> u64 {
    micros(clock_gettime(ClockId::ThreadCPUTime))
}

/// The state of the wall clock (adjtimex(2); Documentation/timers/, kernel/time/ntp.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discipline {
    /// Whether a service (NTP, PTP) keeps the clock synchronised.
    pub synchronised: bool,
    /// Estimated maximum error of the clock, in microseconds.
    pub error_max_us: u64,
}

/// The state of the wall clock; `None` if the kernel does not report it.
pub fn discipline() -> Option<Discipline> {
    let mut found = std::mem::MaybeUninit::<libc::timex>::zeroed();
    #[expect(unsafe_code, reason = "adjtimex has no safe wrapper in rustix")]
    // SAFETY: with `modes` 0 the kernel changes nothing and writes one `struct timex` through a valid pointer.
    // All its fields are integers, so zeroes are valid if the call fails.
    let (state, found) = unsafe { (libc::adjtimex(found.as_mut_ptr()), found.assume_init()) };
    (state >= 0).then(|| Discipline {
        synchronised: found.status & libc::STA_UNSYNC == 0,
        error_max_us: u64::try_from(found.maxerror).unwrap_or(0),
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
    fn the_kernel_reports_the_state_of_the_clock() {
        // NTP_PHASE_LIMIT: the largest error of an unsynchronised clock.
        let found = discipline().unwrap();
        assert!(found.error_max_us <= 16_000_000, "{found:?}");
        assert_eq!(Some(found.synchronised), discipline().map(|again| again.synchronised));
    }

    #[test]
    fn clocks_advance() {
        let (monotonic, cpu) = (monotonic_us(), thread_cpu_us());
        while thread_cpu_us() < cpu + 1000 {}
        assert!(monotonic_us() >= monotonic + 1000);
    }
}
