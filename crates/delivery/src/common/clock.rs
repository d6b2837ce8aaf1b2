//! Clocks. Only this module reads them; all other code receives the time.

use model::Timestamp;
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::fmt::Debug;
use std::sync::atomic::{AtomicI64, Ordering};

/// Source of the time.
pub trait Clock: Send + Sync + Debug {
    /// Wall clock, which gives samples their timestamps.
    fn wall(&self) -> Timestamp;

    /// Microseconds of a monotonic clock that also runs during suspend.
    fn steady_us(&self) -> i64;

    /// Processor time of the calling thread in microseconds.
    fn thread_cpu_us(&self) -> i64;
}

/// The machine's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct MachineClock;

impl Clock for MachineClock {
    fn wall(&self) -> Timestamp {
        Timestamp(micros(clock_gettime(ClockId::Realtime)))
    }

    fn steady_us(&self) -> i64 {
        micros(clock_gettime(ClockId::Boottime))
    }

    fn thread_cpu_us(&self) -> i64 {
        micros(clock_gettime(ClockId::ThreadCPUTime))
    }
}

/// Processor time of this process in microseconds.
pub fn process_cpu_us() -> i64 {
    micros(clock_gettime(ClockId::ProcessCPUTime))
}

/// Time of the machine's wall clock.
pub fn wall() -> Timestamp {
    MachineClock.wall()
}

fn micros(time: Timespec) -> i64 {
    time.tv_sec.saturating_mul(1_000_000).saturating_add(time.tv_nsec / 1000)
}

/// A clock that advances only on request, for recorded machines and tests. Its monotonic clock and its wall clock
/// may diverge, as after a change of the system time.
#[derive(Debug)]
pub struct GivenClock {
    wall_us: AtomicI64,
    steady_us: AtomicI64,
}

impl GivenClock {
    /// Creates a clock that shows this instant.
    pub const fn new(now: Timestamp) -> Self {
        Self { wall_us: AtomicI64::new(now.0), steady_us: AtomicI64::new(0) }
    }

    /// Advances both clocks.
    pub fn pass(&self, micros: i64) {
        self.wall_us.fetch_add(micros, Ordering::Relaxed);
        self.steady_us.fetch_add(micros, Ordering::Relaxed);
    }

    /// Sets both clocks.
    pub fn show(&self, now: Timestamp, steady_us: i64) {
        self.set(now);
        self.steady_us.store(steady_us, Ordering::Relaxed);
    }

    /// Sets only the wall clock.
    pub fn set(&self, now: Timestamp) {
        self.wall_us.store(now.0, Ordering::Relaxed);
    }
}

impl Clock for GivenClock {
    fn wall(&self) -> Timestamp {
        Timestamp(self.wall_us.load(Ordering::Relaxed))
    }

    fn steady_us(&self) -> i64 {
        self.steady_us.load(Ordering::Relaxed)
    }

    fn thread_cpu_us(&self) -> i64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_three_clocks() {
        let clock = MachineClock;
        let (steady, cpu) = (clock.steady_us(), clock.thread_cpu_us());
        while clock.thread_cpu_us() < cpu + 500 {}
        assert!(clock.steady_us() >= steady + 500);
        assert!(clock.wall() > Timestamp::YEAR_2000);
    }

    #[test]
    fn a_given_clock_advances_on_request() {
        let clock = GivenClock::new(Timestamp(10));
        clock.pass(5);
        clock.set(Timestamp(100));
        assert_eq!((clock.wall(), clock.steady_us()), (Timestamp(100), 5));
    }
}
