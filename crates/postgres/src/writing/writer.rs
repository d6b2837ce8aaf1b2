//! The thread that stores batches: one transaction for all that wait.

use crate::connection::{DatabaseError, connect};
use crate::other_rows;
use crate::records::{self, Records, SeriesRows, SpanChanges};
use crate::schema::{self, DatabaseSession};
use crate::series_book::{BookChange, SeriesBook};
use crate::shared::Shared;
use crate::writing::acknowledged::{self, Lacking, Record};
use crate::writing::commit::Commit;
use crate::writing::partitions::create_ahead;
use crate::writing::rejected_rows;
use model::{Gap, Timestamp};
use senders::{NewGap, OriginState, Request, Work};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use storage::{DeferReason, Outcome};
use tokio::runtime::Handle;
use tokio_postgres::Client;

/// Interval of writing the newest samples of all series.
const CHECKPOINT_US: i64 = 10 * Timestamp::SECOND;
/// Interval of checks for idle boots and series.
const EXPIRE_US: i64 = 60 * Timestamp::SECOND;
/// Interval of deleting forgotten origins.
const CLEAN_US: i64 = 3600 * Timestamp::SECOND;
/// Rows of evicted gaps that remain.
const GAP_ROWS_EXTRA: usize = 1000;
/// Interval of recording which batches are acknowledged. A copy of the data folder lacks those of this time.
const RECORD_US: i64 = 5 * Timestamp::SECOND;
/// Longest transaction.
const TRANSACTION_MAX: Duration = Duration::from_secs(60);
/// How long a commit waits for maintenance, which locks the tables for moments.
const MAINTENANCE_WAIT: Duration = Duration::from_secs(10);
/// Least time between two tries to connect.
const RETRY_US: i64 = Timestamp::SECOND;

/// The rows of gaps in the database.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GapRows {
    pub(crate) count: usize,
    /// The number of the next one.
    pub(crate) next: i64,
}

/// The writer.
pub(crate) struct Writer {
    shared: Arc<Shared>,
    runtime: Handle,
    /// The session of the server in the database, or the last failure.
    client: Result<Client, DatabaseError>,
    /// The session of the current or of the last connection.
    session: DatabaseSession,
    gap_rows: GapRows,
    /// What a restored database lacks.
    lacking: Lacking,
    /// Where acknowledged batches are recorded.
    record: Option<Record>,
    /// The commits of the last record, and its time.
    recorded: (Option<u64>, Timestamp),
    /// The version of the catalogue that the database has.
    catalogue: Option<u64>,
    tried: Timestamp,
    expired: Timestamp,
    cleaned: Timestamp,
    checked: Timestamp,
}

impl Writer {
    /// A writer on a connection that is the session of the server.
    pub(crate) fn new(
        shared: Arc<Shared>,
        (client, session): (Client, DatabaseSession),
        (gap_rows, lacking): (GapRows, Lacking),
        record: Option<Record>,
    ) -> Self {
        let now = shared.now();
        Self {
            runtime: shared.runtime.clone(),
            shared,
            client: Ok(client),
            session,
            gap_rows,
            lacking,
            record,
            recorded: (None, now),
            catalogue: None,
            tried: now,
            expired: now,
            // Origins may be forgotten since the last time.
            cleaned: Timestamp(i64::MIN),
            checked: now,
        }
    }

    /// Works until the store is closed and the queue is empty.
    pub(crate) fn run(mut self) {
        // The file also marks the data folder of a server with its samples in a database.
        self.record(self.shared.now());
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
            self.lose(&error);
            return self.defer(requests, &why);
        }
        let shared = Arc::clone(&self.shared);
        let Some(_committing) = shared.committing.try_lock_for(MAINTENANCE_WAIT) else {
            let why = "maintenance of the database waits for a lock or for the database";
            return self.defer(requests, &DeferReason::Unavailable(why.to_owned()));
        };
        let mut dones = Vec::new();
        let mut commit = Commit::default();
        {
            let mut books = shared.books();
            for Request { batches, done, .. } in requests {
                dones.push((done, batches.len()));
                for batch in batches {
                    commit.add(&mut books, batch, &shared.settings.senders);
                }
            }
        }
        let written = self.write(&mut commit);
        let mut outcomes = std::mem::take(&mut commit.outcomes);
        match written {
            Ok(draft) => self.apply(commit, draft),
            Err(error) => {
                self.undo(&error);
                let why = DeferReason::Unavailable(error.to_string());
                // Those that were decided before the transaction stay.
                for outcome in &mut outcomes {
                    let is_decided = matches!(
                        outcome,
                        Outcome::RejectedWhole { .. } | Outcome::RejectedTemporarily(_)
                    );
                    if !is_decided {
                        *outcome = Outcome::RejectedTemporarily(why.clone());
                    }
                }
            }
        }
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

    /// Stores a commit in one transaction. Returns what is known of its series afterwards.
    fn write(&mut self, commit: &mut Commit) -> Result<SeriesBook, DatabaseError> {
        let client = self.client.as_ref().map_err(Clone::clone)?;
        self.runtime.block_on(within(store_rows(client, commit)))?;
        let mut spans = SpanChanges::default();
        let (metrics, catalogue) = {
            let mut books = self.shared.books();
            commit.record(&mut books, &self.shared.settings.senders);
            for (number, state) in &commit.origins {
                spans.add(books.origins.get(*number), state);
            }
            let version = books.registry.catalogue_version();
            let metrics =
                (self.catalogue != Some(version)).then(|| books.registry.catalogue_json());
            (metrics, version)
        };
        let (mut change, mut draft) =
            (BookChange::default(), self.shared.series().draft(commit.arrived.keys()));
        for (series, arrived) in &commit.arrived {
            arrived.iter().for_each(|one| draft.add(series, one, &mut change));
        }
        let late = commit.late(&draft, *self.shared.settling.lock());
        let series = SeriesRows::of(&draft, change.series.iter());
        let records = async {
            records::put_origins(client, commit.origins.values()).await?;
            spans.put(client).await?;
            records::add_gaps(client, &commit.gaps, self.gap_rows.next).await?;
            series.put(client).await?;
            records::put_starts(client, &change).await?;
            other_rows::mark_late(client, &late).await?;
            if let Some(metrics) = &metrics {
                records::put_catalogue(client, metrics).await?;
            }
            client.batch_execute("COMMIT").await?;
            Ok(())
        };
        self.runtime.block_on(within(records))?;
        self.catalogue = Some(catalogue);
        self.gap_rows.count += commit.gaps.len();
        self.gap_rows.next += i64::try_from(commit.gaps.len()).unwrap_or(0);
        Ok(draft)
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

    /// Ends the transaction after an error. The database reported that it stored nothing, or it is unknown.
    fn undo(&mut self, error: &DatabaseError) {
        let is_reported = matches!(error, DatabaseError::Busy(_) | DatabaseError::Rejected(_));
        let client = self.client.as_ref().ok().filter(|client| is_reported && !client.is_closed());
        let ended = client.map(|client| {
            let rolled_back = async { Ok(client.batch_execute("ROLLBACK").await?) };
            self.runtime.block_on(within(rolled_back))
        });
        match ended {
            Some(Ok(())) => self.failed(error),
            _ => self.lose(error),
        }
    }

    /// Gives the connection up: it is unknown what the database has committed.
    fn lose(&mut self, error: &DatabaseError) {
        self.client = Err(error.clone());
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
        if self.client.as_ref().is_ok_and(|client| !client.is_closed()) {
            return Ok(());
        }
        let now = self.shared.now();
        if let Err(last) = &self.client
            && now.since(self.tried) < RETRY_US
        {
            return Err(last.clone());
        }
        // A connection that ended is given up before the next one takes the lock.
        let ended = DatabaseError::Unreachable("its connection ended".to_owned());
        (self.client, self.tried) = (Err(ended), now);
        let (shared, lost) = (Arc::clone(&self.shared), self.session.clone());
        let opened = self.runtime.block_on(within(async {
            let client = connect(&*shared.connector).await?;
            schema::end_session(&client, &lost).await?;
            schema::prepare_again(&client).await?;
            let session = schema::own_session(&client).await?;
            create_ahead(&client, now).await?;
            let records = records::load(&client, &shared.settings.senders, now).await?;
            let book = SeriesBook::open(&client, shared.settings.senders.series_max).await?;
            Ok::<_, DatabaseError>((client, session, records, book))
        }));
        let (client, session, Records { origins, gaps, .. }, book) = opened?;
        self.session = session;
        {
            // Live series and metrics remain: they do not depend on what is stored.
            let mut books = shared.books();
            self.lacking.replace(&mut books, (origins, gaps.gaps), now);
        }
        shared.series().replace(book);
        self.gap_rows = GapRows { count: gaps.rows, next: gaps.next };
        (self.client, self.catalogue) = (Ok(client), None);
        log::info!("the database answers again");
        Ok(())
    }

    /// Work between commits.
    fn maintain(&mut self, closing: bool) {
        let now = self.shared.now();
        if now.since(self.expired) >= EXPIRE_US {
            self.expired = now;
            self.expire(now);
            if let Err(error) = self.clean(now) {
                self.lose(&error);
            }
        }
        let wanted = self.shared.flushed.is_wanted();
        if wanted || closing || now.since(self.checked).abs() >= CHECKPOINT_US {
            self.checked = now;
            let result = self.checkpoint();
            self.shared.flushed.done(result.map_err(|error| error.to_string()));
        }
        if closing || now.since(self.recorded.1).abs() >= RECORD_US {
            self.record(now);
        }
    }

    /// Records which batches are acknowledged, if there are new ones.
    fn record(&mut self, now: Timestamp) {
        let commits = self.shared.stats().commits;
        let is_new = std::mem::replace(&mut self.recorded, (Some(commits), now)).0 != Some(commits);
        let Some((path, database)) = self.record.as_ref().filter(|_| is_new) else { return };
        let written = acknowledged::write(path, database, self.shared.books().origins.all());
        if let Err(error) = written {
            log::warn!("cannot write {}: {error}", path.display());
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

    /// Deletes rows of evicted gaps and of forgotten origins.
    fn clean(&mut self, now: Timestamp) -> Result<(), DatabaseError> {
        let Ok(client) = &self.client else { return Ok(()) };
        let (gaps, origins) = {
            let books = self.shared.books();
            let kept = books.gaps.all().count();
            let is_due = self.gap_rows.count > 2 * kept + GAP_ROWS_EXTRA;
            let gap = |gap: &Gap| NewGap { gap: gap.clone(), late: false };
            let gaps: Option<Vec<_>> = is_due.then(|| books.gaps.all().map(gap).collect());
            let known = |origin: &OriginState| {
                let boots = origin.spans().map(|(boot, _)| boot.to_string()).collect();
                (origin.name.to_string(), boots)
            };
            let is_due = now.since(self.cleaned) >= CLEAN_US;
            let origins: Option<HashMap<String, BTreeSet<String>>> =
                is_due.then(|| books.origins.all().map(known).collect());
            (gaps, origins)
        };
        if let Some(gaps) = gaps {
            let replaced = records::replace_gaps(client, &gaps, self.gap_rows.next);
            let next = self.runtime.block_on(within(replaced))?;
            self.gap_rows = GapRows { count: gaps.len(), next };
        }
        if let Some(origins) = origins {
            let removed = records::remove_origins(client, &origins);
            self.runtime.block_on(within(removed))?;
            self.cleaned = now;
        }
        Ok(())
    }

    /// Writes the newest samples of all series that changed, and registers rows of other programs.
    fn checkpoint(&mut self) -> Result<(), DatabaseError> {
        let client = self.client.as_ref().map_err(Clone::clone)?;
        let shared = &self.shared;
        let (lacking, next_gap) = (&self.lacking, self.gap_rows.next);
        let states = lacking.states(&shared.books());
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
            let gaps = lacking.put(client, &states, next_gap).await?;
            client.batch_execute("COMMIT").await?;
            shared.series().forget_recorded(&recorded);
            Ok(gaps)
        };
        match self.runtime.block_on(within(checkpoint)) {
            Ok(gaps) => {
                self.lacking = Lacking::default();
                self.gap_rows.count += gaps;
                self.gap_rows.next += i64::try_from(gaps).unwrap_or(0);
                Ok(())
            }
            Err(error) => {
                self.lose(&error);
                Err(error)
            }
        }
    }
}

/// Begins a transaction, and stores the rows of a commit that the database accepts.
async fn store_rows(client: &Client, commit: &mut Commit) -> Result<(), DatabaseError> {
    client.batch_execute(rejected_rows::BEGIN).await?;
    match rejected_rows::copy(client, commit.rows()).await {
        Err(DatabaseError::RejectedRow(_)) => {
            client.batch_execute("ROLLBACK").await?;
            client.batch_execute(rejected_rows::BEGIN).await?;
            rejected_rows::store_others(client, commit).await
        }
        other => other,
    }
}

/// Ends a transaction that a lock or the network holds.
async fn within<T>(
    work: impl Future<Output = Result<T, DatabaseError>>,
) -> Result<T, DatabaseError> {
    let silent = |_| DatabaseError::Unreachable(format!("no answer within {TRANSACTION_MAX:?}"));
    tokio::time::timeout(TRANSACTION_MAX, work).await.map_err(silent)?
}
