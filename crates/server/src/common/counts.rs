//! Counters of the server's own activity, for `/metrics`.

use crate::common::http_error::Why;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// A monotonic counter.
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

/// Number and total duration of an operation.
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

    /// Returns the number of operations and their total duration in seconds.
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

        impl $crate::common::counts::LabelValue for $type {
            fn place(self) -> usize {
                Self::ALL.iter().position(|one| *one == self).unwrap_or(0)
            }
        }
    };
}

pub(crate) use words;

/// A closed set of label values, each with an index.
pub(crate) trait LabelValue: Copy {
    fn place(self) -> usize;
}

impl LabelValue for Why {
    fn place(self) -> usize {
        Self::ALL.iter().position(|one| *one == self).unwrap_or(0)
    }
}

words! {
    /// Outcome of a frame.
    Frame {
        /// Stored on disk.
        Stored "stored",
        /// Already stored before.
        Duplicate "duplicate",
        /// Rejected permanently by the store.
        Rejected "rejected",
        /// Not readable.
        Malformed "malformed",
        /// Not permitted for its sender.
        Forbidden "forbidden",
        /// Beyond its sender's limit.
        Limited "limited",
        /// Rejected temporarily.
        Later "later",
    }
}

words! {
    /// Outcome of a job record, from a scheduler or reported in its place.
    RecordOutcome {
        /// A new submission.
        New "new",
        /// A change of a known record.
        Changed "changed",
        /// A record without news.
        Known "known",
        /// An invalid record, or one beyond the registry's capacity.
        Rejected "rejected",
        /// A record beyond a token's limit of running allocations.
        Limited "limited",
    }
}

words! {
    /// Outcome of an evaluation of value rules.
    Rule {
        /// A value was beyond its bound for long enough.
        Fired "fired",
        /// The rule would have fired, but it fired on that node a short time before.
        TooSoon "too_soon",
        /// The rule fired, and its action was rejected.
        Rejected "rejected",
        /// A reading of a series beyond the limit of watched series.
        Unwatched "unwatched",
    }
}

words! {
    /// Outcome of an accepted connection.
    Arrival {
        /// Served.
        Served "served",
        /// The limit of all connections was reached.
        Full "full",
        /// The limit of this peer's connections was reached.
        FullForPeer "full_for_peer",
        /// The TLS handshake failed or timed out, or the client's certificate was invalid.
        Handshake "handshake_failed",
        /// The peer disconnected before the server identified it.
        Gone "gone",
    }
}

words! {
    /// The limit reached in a memory budget of request bodies.
    Limit {
        /// The limit of one sender.
        Sender "sender",
        /// The limit of all senders.
        All "all",
    }
}

words! {
    /// Reason why a connection ended early.
    Break {
        /// The data was not HTTP.
        Malformed "malformed",
        /// A header was incomplete after the time limit, or the connection was idle for as long.
        HeaderTimeout "header_timeout",
        /// The client read nothing of the response for too long.
        WriteTimeout "write_timeout",
        /// The client disconnected within a request or response, or the network failed.
        Lost "lost",
    }
}

words! {
    /// Reason to reject a JSON Web Token.
    JwtRejection {
        /// Longer than the limit.
        TooLong "too_long",
        /// Not in the form of a token.
        Malformed "malformed",
        /// Not signed with HS256, or with extensions.
        Algorithm "algorithm",
        /// Not signed with the server's secret.
        Signature "signature",
        /// Expired.
        Expired "expired",
        /// Not valid yet.
        Early "not_yet_valid",
        /// A claim is missing or invalid.
        Claims "claims",
        /// No setting names its role.
        Role "role",
    }
}

words! {
    /// Routes, as `/metrics` groups them.
    Route {
        Batches "batches",
        Rpc "rpc",
        Rest "rest",
        Api "api",
        Sql "sql",
        Metrics "metrics",
        Pages "pages",
        Other "other",
    }
}

impl Route {
    /// Returns the route of a path.
    pub(crate) fn of(path: &str) -> Self {
        match path {
            "/v1/batches" => Self::Batches,
            "/v1/poller/promotions" => Self::Api,
            "/api/v1/sql" => Self::Sql,
            "/metrics" => Self::Metrics,
            "/" | "/ui" => Self::Pages,
            _ if path.starts_with("/api/v1/") => Self::Api,
            _ if path.starts_with("/rpc/") => Self::Rpc,
            _ if path.starts_with("/rest/") => Self::Rest,
            _ if path.starts_with("/ui/") => Self::Pages,
            _ => Self::Other,
        }
    }
}

/// One counter per label value.
#[derive(Debug)]
pub(crate) struct Counters<const N: usize>([Counter; N]);

impl<const N: usize> Default for Counters<N> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Counter::default()))
    }
}

impl<const N: usize> Counters<N> {
    pub(crate) fn add(&self, word: impl LabelValue, amount: usize) {
        if let Some(counter) = self.0.get(word.place()) {
            counter.add(amount);
        }
    }

    pub(crate) fn get(&self, word: impl LabelValue) -> u64 {
        self.0.get(word.place()).map_or(0, Counter::get)
    }
}

words! {
    /// A table that the server shares in the database of the store.
    SharedTable {
        /// The copy of the registry.
        Jobs "jobs",
        /// Kwollect's promotions.
        PromotedMetrics "promoted_metrics",
    }
}

/// Exchanges with the database of the store.
#[derive(Debug, Default)]
pub(crate) struct SharedTableCounts {
    pub(crate) runs_copied: Counter,
    pub(crate) failed: Counters<{ SharedTable::ALL.len() }>,
    /// Promotions without a row, at present.
    pub(crate) promotions_left_out: AtomicU64,
    /// Rows of others that are not promotions, at present.
    pub(crate) rows_skipped: AtomicU64,
}

/// Requests of one route.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// Counts by the first digit of the status, 1 to 5.
    pub(crate) statuses: [Counter; 5],
    /// Time from the request's header to the response's header.
    pub(crate) timing: Timing,
}

/// Rejected JSON Web Tokens.
pub(crate) type JwtRejections = Counters<{ JwtRejection::ALL.len() }>;

/// All counters.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) frames: Counters<{ Frame::ALL.len() }>,
    pub(crate) samples: Counter,
    pub(crate) samples_rejected: Counter,
    pub(crate) bytes: Counter,
    /// Time from the last byte of a request to its response.
    pub(crate) ingest: Timing,
    pub(crate) job_events: Counter,
    pub(crate) job_events_rejected: Counter,
    pub(crate) records: Counters<{ RecordOutcome::ALL.len() }>,
    pub(crate) records_cut: Counter,
    pub(crate) shared_tables: SharedTableCounts,
    pub(crate) rules: Counters<{ Rule::ALL.len() }>,
    pub(crate) file_lines: Counter,
    pub(crate) file_lines_bad: Counter,
    pub(crate) arrivals: Counters<{ Arrival::ALL.len() }>,
    pub(crate) breaks: Counters<{ Break::ALL.len() }>,
    pub(crate) http_errors: Counters<{ Why::ALL.len() }>,
    pub(crate) jwt_rejected: JwtRejections,
    pub(crate) requests: [Requests; Route::ALL.len()],
    /// Requests without a response header yet.
    pub(crate) under_way: AtomicUsize,
    /// Queries slower than the configured limit.
    pub(crate) slow_queries: Counter,
    pub(crate) reloads: Counter,
    pub(crate) reloads_failed: Counter,
    /// Starts of the programs that the server runs.
    pub(crate) poller_starts: Arc<AtomicU64>,
}

/// Guard of a request in progress.
#[derive(Debug)]
pub(crate) struct RequestInProgress<'a>(&'a AtomicUsize);

impl Drop for RequestInProgress<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Counts {
    /// Counts a request as in progress until the returned guard is dropped.
    pub(crate) fn begins(&self) -> RequestInProgress<'_> {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        RequestInProgress(&self.under_way)
    }

    /// Counts a response.
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
        let counts_read: Vec<u64> =
            Frame::ALL.into_iter().map(|frame| counts.frames.get(frame)).collect();
        assert_eq!(counts_read, [0, 1, 2, 3, 4, 5, 6]);
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
