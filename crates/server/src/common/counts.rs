//! What the server counts about itself.

use crate::common::problem::Why;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// A number that grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, amount: usize) {
        self.0.fetch_add(u64::try_from(amount).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How often something was done, and how long it took altogether.
#[derive(Debug, Default)]
pub(crate) struct Timing {
    count: AtomicU64,
    nanos: AtomicU64,
}

impl Timing {
    pub(crate) fn took(&self, time: Duration) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// How often, and how many seconds.
    pub(crate) fn get(&self) -> (u64, f64) {
        let nanos = self.nanos.load(Ordering::Relaxed);
        (self.count.load(Ordering::Relaxed), nanos as f64 / 1e9)
    }
}

macro_rules! words {
    ($(#[$doc:meta])* $type:ident { $($(#[$each:meta])* $name:ident $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $type { $($(#[$each])* $name,)* }

        impl $type {
            pub(crate) const ALL: [Self; [$($word),*].len()] = [$(Self::$name),*];

            pub(crate) const fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }
        }

        impl Word for $type {
            fn place(self) -> usize {
                Self::ALL.iter().position(|one| *one == self).unwrap_or(0)
            }
        }
    };
}

/// A closed set of words, each with a place.
pub(crate) trait Word: Copy {
    fn place(self) -> usize;
}

impl Word for Why {
    fn place(self) -> usize {
        Self::ALL.iter().position(|one| *one == self).unwrap_or(0)
    }
}

words! {
    /// What became of a frame.
    Frame {
        /// On disk.
        Stored "stored",
        /// It already was.
        Duplicate "duplicate",
        /// The store never takes it.
        Refused "refused",
        /// It cannot be read.
        Malformed "malformed",
        /// Its sender may not send it.
        Forbidden "forbidden",
        /// Its sender sends more than its limit.
        Limited "limited",
        /// Not now.
        Later "later",
    }
}

words! {
    /// What became of what was said of a job in a scheduler's place, and of what schedulers say.
    Fate {
        /// A submission that was not known.
        New "new",
        /// It took the place of what was said before.
        Changed "changed",
        /// It said nothing new.
        Known "known",
        /// It cannot be, or the registry is full.
        Refused "refused",
    }
}

words! {
    /// What became of rules about values.
    Rule {
        /// A value was beyond its bound for long enough.
        Fired "fired",
        /// The same, a short time after it fired on that node.
        TooSoon "too_soon",
        /// It fired, and what it brings about was refused.
        Refused "refused",
        /// A reading that had no room among those that are watched.
        Unwatched "unwatched",
    }
}

words! {
    /// What became of a connection.
    Arrival {
        /// Served.
        Served "served",
        /// All seats were taken.
        Full "full",
        /// All seats of this peer were taken.
        FullForPeer "full_for_peer",
        /// It spoke no TLS, or not in time, or showed a bad certificate.
        Handshake "handshake_failed",
        /// Its peer was gone before the server knew who it was.
        Gone "gone",
    }
}

words! {
    /// Which limit of the memory for bodies of requests was reached.
    Limit {
        /// That of one sender.
        Sender "sender",
        /// That of all of them.
        All "all",
    }
}

words! {
    /// Why a connection ended before its time.
    Break {
        /// No HTTP.
        Malformed "malformed",
        /// A header that did not come to its end in time, or nothing for as long.
        HeaderTimeout "header_timeout",
        /// A client that took nothing of its answer for too long.
        WriteTimeout "write_timeout",
        /// It went away within a request or answer, or the network failed.
        Lost "lost",
    }
}

words! {
    /// The routes, as they are counted.
    Route {
        Batches "batches",
        Rpc "rpc",
        Api "api",
        Sql "sql",
        Metrics "metrics",
        Pages "pages",
        Other "other",
    }
}

impl Route {
    /// The route of a path.
    pub(crate) fn of(path: &str) -> Self {
        match path {
            "/v1/batches" => Self::Batches,
            "/api/v1/sql" => Self::Sql,
            "/metrics" => Self::Metrics,
            "/" | "/ui" => Self::Pages,
            _ if path.starts_with("/api/v1/") => Self::Api,
            _ if path.starts_with("/rpc/") => Self::Rpc,
            _ if path.starts_with("/ui/") => Self::Pages,
            _ => Self::Other,
        }
    }
}

/// One counter for each word.
#[derive(Debug)]
pub(crate) struct Counters<const N: usize>([Counter; N]);

impl<const N: usize> Default for Counters<N> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Counter::default()))
    }
}

impl<const N: usize> Counters<N> {
    pub(crate) fn add(&self, word: impl Word, amount: usize) {
        if let Some(counter) = self.0.get(word.place()) {
            counter.add(amount);
        }
    }

    pub(crate) fn get(&self, word: impl Word) -> u64 {
        self.0.get(word.place()).map_or(0, Counter::get)
    }
}

/// Requests of one route.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// By the first digit of the status, 1 to 5.
    pub(crate) statuses: [Counter; 5],
    /// From the request's header to the answer's.
    pub(crate) timing: Timing,
}

/// Everything that is counted.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) frames: Counters<{ Frame::ALL.len() }>,
    pub(crate) samples: Counter,
    pub(crate) samples_refused: Counter,
    pub(crate) bytes: Counter,
    /// From the last byte of a request to its answer.
    pub(crate) ingest: Timing,
    pub(crate) job_events: Counter,
    pub(crate) job_events_refused: Counter,
    pub(crate) records: Counters<{ Fate::ALL.len() }>,
    pub(crate) records_cut: Counter,
    pub(crate) rules: Counters<{ Rule::ALL.len() }>,
    pub(crate) file_lines: Counter,
    pub(crate) file_lines_bad: Counter,
    pub(crate) arrivals: Counters<{ Arrival::ALL.len() }>,
    pub(crate) breaks: Counters<{ Break::ALL.len() }>,
    pub(crate) refusals: Counters<{ Why::ALL.len() }>,
    pub(crate) requests: [Requests; Route::ALL.len()],
    /// Requests whose answer's header is not sent yet.
    pub(crate) under_way: AtomicUsize,
    /// Questions that took long.
    pub(crate) slow_queries: Counter,
    pub(crate) reloads: Counter,
    pub(crate) reloads_failed: Counter,
}

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct UnderWay<'a>(&'a AtomicUsize);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Counts {
    /// A request begins; it ends with what this gives.
    pub(crate) fn begins(&self) -> UnderWay<'_> {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(&self.under_way)
    }

    /// A request was answered.
    pub(crate) fn answered(&self, route: Route, status: u16, took: Duration) {
        let Some(requests) = self.requests.get(route.place()) else { return };
        let class = usize::from(status / 100).saturating_sub(1);
        if let Some(counter) = requests.statuses.get(class) {
            counter.add(1);
        }
        requests.timing.took(took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_has_its_own_counter() {
        let counts = Counts::default();
        for (n, frame) in Frame::ALL.into_iter().enumerate() {
            counts.frames.add(frame, n);
        }
        let told: Vec<u64> = Frame::ALL.into_iter().map(|frame| counts.frames.get(frame)).collect();
        assert_eq!(told, [0, 1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn requests_by_route_and_status() {
        let counts = Counts::default();
        counts.answered(Route::of("/api/v1/nodes"), 204, Duration::from_millis(500));
        counts.answered(Route::of("/api/v1/jobs/x"), 404, Duration::from_millis(250));
        let api = &counts.requests[Route::Api.place()];
        let statuses: Vec<u64> = api.statuses.iter().map(Counter::get).collect();
        assert_eq!(statuses, [0, 1, 0, 1, 0]);
        assert_eq!(api.timing.get(), (2, 0.75));
    }
}
