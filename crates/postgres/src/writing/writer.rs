//! The thread that stores batches: one transaction for all that wait.

use crate::connection::{DatabaseError, connect};
use crate::copy::Rows;
use crate::other_rows;
use crate::records::{self, SeriesRows};
use crate::schema;
use crate::series_book::{Arrived, BookChange, SeriesBook};
use crate::shared::Shared;
use model::{Boot, Gap, Series, Timestamp};
use senders::{
    Bookkeeping, NO_START, NewGap, Noted, OriginNumber, OriginState, Request, Samples, Table,
    Verdict, Work, select,
};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use storage::{DeferReason, Outcome};
use tokio::runtime::Handle;
use tokio_postgres::Client;
use wire::Value;

/// Interval of writing the newest samples of all series.
const CHECKPOINT_US: i64 = 10 * Timestamp::SECOND;
/// Interval of checks for idle boots and series.
const EXPIRE_US: i64 = 60 * Timestamp::SECOND;
/// Longest transaction.
const TRANSACTION_MAX: Duration = Duration::from_secs(60);
/// Least time between two tries to connect.
const RETRY_US: i64 = Timestamp::SECOND;
const COPY_NODES: &str = "COPY metrics (timestamp, device_id, metric_id, value, labels) \
                          FROM STDIN (FORMAT binary)";
const COPY_JOBS: &str = "COPY jobmeter.job_metrics (timestamp, device_id, metric_id, value, labels, \
                         cluster, job_id) FROM STDIN (FORMAT binary)";

/// The writer.
pub(crate) struct Writer {
    shared: Arc<Shared>,
    runtime: Handle,
    /// Holds the lock on the database; `None` after a failure.
    client: Option<Client>,
    next_gap: i64,
    /// The version of the catalogue that the database has.
    catalogue: Option<u64>,
    tried: Timestamp,
    expired: Timestamp,
    checked: Timestamp,
}

/// A commit that is being prepared.
#[derive(Default)]
struct Commit {
    nodes: Rows,
    jobs: Rows,
    origins: BTreeMap<OriginNumber, OriginState>,
    gaps: Vec<NewGap>,
    arrived: BTreeMap<Series, Vec<Arrived>>,
    duplicates: HashSet<(OriginNumber, Boot, u64)>,
    samples: u64,
    samples_rejected: u64,
    /// Time of series with rollups to compute again.
    late: Vec<(Option<i64>, (i64, i64))>,
}

impl Writer {
    /// A writer on a connection that holds the lock.
    pub(crate) fn new(shared: Arc<Shared>, runtime: Handle, client: Client, next_gap: i64) -> Self {
        let now = shared.now();
        Self {
            shared,
            runtime,
            client: Some(client),
            next_gap,
            catalogue: None,
            tried: now,
            expired: now,
            checked: now,
        }
    }

    /// Works until the store is closed and the queue is empty.
    pub(crate) fn run(mut self) {
        loop {
            let Work { requests, closing } = self.shared.queue.take();
            if !requests.is_empty() {
                self.commit(requests);
            }
            self.maintain(closing);
            if closing {
                break;
            }
        }
        self.shared.flushed.close();
    }

    fn commit(&mut self, requests: Vec<Request>) {
        if let Err(error) = self.reconnect() {
            let why = DeferReason::Unavailable(error.to_string());
            self.failed(&error);
            return self.defer(requests, &why);
        }
        let shared = Arc::clone(&self.shared);
        let _committing = shared.committing.lock();
        let (mut dones, mut outcomes) = (Vec::new(), Vec::new());
        let mut commit = Commit::default();
        {
            let mut books = shared.books();
            for Request { batches, done, .. } in requests {
                dones.push((done, batches.len()));
                for batch in batches {
                    outcomes.push(commit.add(&mut books, batch, &shared.settings.senders));
                }
            }
        }
        let (mut change, mut draft) =
            (BookChange::default(), shared.series().draft(commit.arrived.keys()));
        for (series, arrived) in &commit.arrived {
            arrived.iter().for_each(|one| draft.add(series, one, &mut change));
        }
        commit.find_late(&draft, *shared.settling.lock());
        let rows = SeriesRows::of(&draft, change.series.iter());
        let written = self.write(&mut commit, &change, &rows);
        let outcomes = match written {
            Ok(()) => {
                self.apply(commit, draft);
                outcomes
            }
            Err(error) => {
                self.lose(&error);
                let why = DeferReason::Unavailable(error.to_string());
                // Those that were decided before the transaction stay.
                let deferred = |outcome| match outcome {
                    decided @ (Outcome::RejectedWhole { .. } | Outcome::RejectedTemporarily(_)) => {
                        decided
                    }
                    _ => Outcome::RejectedTemporarily(why.clone()),
                };
                outcomes.into_iter().map(deferred).collect()
            }
        };
        self.shared.count(&outcomes);
        let mut outcomes = outcomes.into_iter();
        for (done, batches) in dones {
            done(outcomes.by_ref().take(batches).collect());
        }
    }

    fn defer(&self, requests: Vec<Request>, why: &DeferReason) {
        for Request { batches, done, .. } in requests {
            let outcomes = vec![Outcome::RejectedTemporarily(why.clone()); batches.len()];
            self.shared.count(&outcomes);
            done(outcomes);
        }
    }

    fn write(
        &mut self,
        commit: &mut Commit,
        change: &BookChange,
        series: &SeriesRows,
    ) -> Result<(), DatabaseError> {
        let Some(client) = &self.client else {
            return Err(DatabaseError::Unreachable("not connected".to_owned()));
        };
        let (nodes, jobs) = (std::mem::take(&mut commit.nodes), std::mem::take(&mut commit.jobs));
        let (metrics, catalogue) = {
            let books = self.shared.books();
            let version = books.registry.catalogue_version();
            let metrics =
                (self.catalogue != Some(version)).then(|| books.registry.catalogue_json());
            (metrics, version)
        };
        let transaction = async {
            client.batch_execute("BEGIN").await?;
            nodes.send(client, COPY_NODES).await?;
            jobs.send(client, COPY_JOBS).await?;
            records::put_origins(client, commit.origins.values()).await?;
            records::add_gaps(client, &commit.gaps, self.next_gap).await?;
            series.put(client).await?;
            records::put_starts(client, change).await?;
            other_rows::mark_late(client, &commit.late).await?;
            if let Some(metrics) = &metrics {
                records::put_catalogue(client, metrics).await?;
            }
            client.batch_execute("COMMIT").await?;
            Ok(())
        };
        self.runtime.block_on(within(transaction))?;
        self.catalogue = Some(catalogue);
        self.next_gap += i64::try_from(commit.gaps.len()).unwrap_or(0);
        Ok(())
    }

    /// Makes a commit visible.
    fn apply(&self, commit: Commit, draft: SeriesBook) {
        let shared = Arc::clone(&self.shared);
        let mut books = shared.books();
        for (number, state) in commit.origins {
            if let Some(origin) = books.origins.get_mut(number) {
                *origin = state;
            }
        }
        commit.gaps.into_iter().for_each(|gap| books.gaps.put(gap));
        shared.series().accept(draft);
        drop(books);
        let mut stats = shared.stats();
        stats.commits += 1;
        stats.samples_stored += commit.samples;
        stats.samples_rejected += commit.samples_rejected;
        stats.last_failure = None;
    }

    /// Gives the connection up: it is unknown what the database has committed.
    fn lose(&mut self, error: &DatabaseError) {
        self.client = None;
        self.failed(error);
    }

    fn failed(&self, error: &DatabaseError) {
        log::warn!("batches wait with their senders: {error}");
        let mut stats = self.shared.stats();
        stats.log_errors += 1;
        stats.last_failure = Some(error.to_string());
    }

    /// Connects again after a failure, and reads what the database has committed.
    fn reconnect(&mut self) -> Result<(), DatabaseError> {
        if self.client.as_ref().is_some_and(|client| !client.is_closed()) {
            return Ok(());
        }
        let now = self.shared.now();
        if self.client.is_none() && now.since(self.tried) < RETRY_US {
            return Err(DatabaseError::Unreachable("it did not answer a second ago".to_owned()));
        }
        (self.client, self.tried) = (None, now);
        let shared = Arc::clone(&self.shared);
        let opened = self.runtime.block_on(within(async {
            let client = connect(&*shared.connector).await?;
            schema::prepare(&client).await?;
            let (books, next_gap) = records::load(&client, &shared.settings.senders, now).await?;
            let book = SeriesBook::open(&client, shared.settings.senders.series_max).await?;
            Ok::<_, DatabaseError>((client, books, next_gap, book))
        }));
        let (client, mut books, next_gap, book) = opened?;
        books.settled = shared.books().settled;
        *shared.books() = books;
        shared.series().replace(book);
        (self.client, self.next_gap, self.catalogue) = (Some(client), next_gap, None);
        log::info!("the database answers again");
        Ok(())
    }

    /// Work between commits.
    fn maintain(&mut self, closing: bool) {
        let now = self.shared.now();
        if now.since(self.expired) >= EXPIRE_US {
            self.expired = now;
            self.expire(now);
        }
        let wanted = self.shared.flushed.is_wanted();
        if wanted || closing || now.since(self.checked).abs() >= CHECKPOINT_US {
            self.checked = now;
            let result = self.checkpoint();
            self.shared.flushed.done(result.map_err(|error| error.to_string()));
        }
    }

    fn expire(&self, now: Timestamp) {
        let limits = &self.shared.settings.senders;
        let mut books = self.shared.books();
        // They are missing again after a restart, until this runs again.
        let given_up = books.origins.expire(now, limits);
        given_up.into_iter().for_each(|gap| books.gaps.add(gap));
        books.forget_runs(now);
        books.tables.drop_unused(now.plus(-limits.series_idle_us));
        drop(books);
        (0..senders::Registry::PARTS).for_each(|part| self.shared.books().registry.sweep(part));
    }

    /// Writes the newest samples of all series that changed, and registers rows of other programs.
    fn checkpoint(&mut self) -> Result<(), DatabaseError> {
        let Some(client) = &self.client else {
            return Err(DatabaseError::Unreachable("not connected".to_owned()));
        };
        let shared = &self.shared;
        let checkpoint = async {
            for recorded in other_rows::recorded(client).await? {
                shared.series().register_recorded(recorded);
            }
            let (rows, recorded, late) = {
                let mut book = shared.series();
                let dirty = book.take_dirty();
                (SeriesRows::of(&book, dirty.iter()), book.recorded(), book.late())
            };
            client.batch_execute("BEGIN").await?;
            rows.put(client).await?;
            other_rows::mark_late(client, &late).await?;
            other_rows::remove(client, &recorded).await?;
            client.batch_execute("COMMIT").await?;
            shared.series().forget_recorded(&recorded);
            Ok(())
        };
        let written = self.runtime.block_on(within(checkpoint));
        if let Err(error) = &written {
            self.lose(error);
        }
        written
    }
}

impl Commit {
    /// Decides about a batch, and adds what is stored. Returns its outcome after a successful transaction.
    fn add(
        &mut self,
        books: &mut Bookkeeping,
        batch: storage::Incoming,
        limits: &senders::Limits,
    ) -> Outcome {
        let storage::Incoming { decoded, received, .. } = batch;
        let (number, table) = match books.judge_new(&decoded, received, limits) {
            Verdict::Store(number, table) => (number, table),
            Verdict::TooLate(gap, why) => {
                self.gap(gap);
                return Outcome::RejectedPermanently(why);
            }
            Verdict::Done(outcome) => return outcome,
        };
        if !self.duplicates.insert((number, decoded.boot, decoded.seq)) {
            return Outcome::Duplicate;
        }
        let settled = books.settled;
        let state = match self.origins.entry(number) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(new) => {
                match books.origins.get_mut(number) {
                    Some(origin) => new.insert(origin.clone()),
                    None => {
                        return Outcome::RejectedPermanently(
                            "an origin without a number".to_owned(),
                        );
                    }
                }
            }
        };
        let (samples, noted) = select(&state.name, (&table, None), decoded, received, settled);
        let (outcome, gaps) = Noted::note(noted, state, limits);
        self.gaps.extend(gaps);
        self.samples += samples.values.len() as u64;
        if let Outcome::Stored { samples_rejected, .. } = &outcome {
            self.samples_rejected += u64::from(*samples_rejected);
        }
        self.rows(&samples, &table, received);
        outcome
    }

    /// Finds samples of settled time.
    fn find_late(&mut self, draft: &SeriesBook, settling: i64) {
        for (series, arrived) in &self.arrived {
            let late = arrived.iter().filter(|one| one.span.0 < settling);
            let id = draft.get(series).map(|stored| stored.id);
            self.late.extend(late.map(|one| (id, one.span)));
        }
    }

    fn gap(&mut self, gap: Gap) {
        self.gaps.push(NewGap { gap, late: false });
    }

    /// Adds the rows of a batch, and a note for each run of one series.
    fn rows(&mut self, samples: &Samples, table: &Table, received: Timestamp) {
        let mut runs: BTreeMap<u32, Arrived> = BTreeMap::new();
        let mut rest = samples.index.iter().zip(&samples.values);
        for tick in &samples.ticks {
            for (place, value) in rest.by_ref().take(tick.samples as usize) {
                let Some(slot) = table.places.get(*place as usize) else { continue };
                let Some(info) = &slot.series else { continue };
                let (at, value) = (tick.at.0, in_unit(*value, slot.divisor));
                let rows = if info.series.job.is_some() { &mut self.jobs } else { &mut self.nodes };
                rows.push(&info.series, at, value);
                let start = (slot.start != NO_START).then_some(slot.start);
                let run = runs.entry(*place).or_insert(Arrived {
                    divisor: slot.divisor,
                    start,
                    received,
                    span: (at, at),
                    last_value: value,
                    samples: 0,
                });
                run.add(at, value);
            }
        }
        for (place, run) in runs {
            let info = table.places.get(place as usize).and_then(|slot| slot.series.as_ref());
            if let Some(info) = info {
                self.arrived.entry(info.series.clone()).or_default().push(run);
            }
        }
    }
}

impl Arrived {
    fn add(&mut self, at: i64, value: f64) {
        self.samples += 1;
        self.span.0 = self.span.0.min(at);
        if at >= self.span.1 {
            (self.span.1, self.last_value) = (at, value);
        }
    }
}

/// Ends a transaction that a lock or the network holds.
async fn within<T>(
    work: impl Future<Output = Result<T, DatabaseError>>,
) -> Result<T, DatabaseError> {
    let silent = |_| DatabaseError::Unreachable(format!("no answer within {TRANSACTION_MAX:?}"));
    tokio::time::timeout(TRANSACTION_MAX, work).await.map_err(silent)?
}

/// A value in the metric's unit.
fn in_unit(value: Value, divisor: u32) -> f64 {
    match value {
        Value::Steps(steps) => steps as f64 / f64::from(divisor),
        Value::Real(real) => real,
    }
}
