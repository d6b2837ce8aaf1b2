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

fn micros(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000).saturating_add(nanos / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_advance() {
        let (monotonic, cpu) = (monotonic_us(), thread_cpu_us());
        while thread_cpu_us() < cpu + 1000 {}
        assert!(monotonic_us() >= monotonic + 1000);
    }
}
