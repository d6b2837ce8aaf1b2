//! Finds the rows that the database rejects, and stores all others in the same transaction.
//!
//! The database reports that a COPY fails, and not which row: a trigger, a constraint or a type of the site rejects it. The
//! rows are halved within savepoints, first at the bounds of batches, so that a batch of many such rows costs its sender alone.

use crate::connection::DatabaseError;
use crate::copy::Rows;
use crate::writing::commit::{AcceptedBatch, Commit};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use storage::Outcome;
use tokio::time::Instant;
use tokio_postgres::Client;

const COPY_NODES: &str = "COPY metrics (timestamp, device_id, metric_id, value, labels) \
                          FROM STDIN (FORMAT binary)";
const COPY_JOBS: &str = "COPY jobmeter.job_metrics (timestamp, device_id, metric_id, value, labels, \
                         cluster, job_id) FROM STDIN (FORMAT binary)";
/// Deferred constraints of the site apply at once: an error of COMMIT names no row. A lock that is not free is an error here:
/// one at the start of a COPY costs the connection.
pub(crate) const BEGIN: &str = "BEGIN; SET CONSTRAINTS ALL IMMEDIATE; \
    LOCK TABLE ONLY metrics, ONLY jobmeter.job_metrics IN ROW EXCLUSIVE MODE";
/// Most COPYs and most time of one search; then the batches that were not reached wait for the next transaction.
const COPIES_MAX: u32 = 5000;
const TIME_MAX: Duration = Duration::from_secs(20);
/// Most parts of a batch that are set aside singly; of the rest, whole parts are.
const PARTS_MAX: u32 = 200;
/// Longest reason, in bytes.
const REASON_BYTES: usize = 200;

/// Stores rows.
pub(crate) async fn copy(client: &Client, [nodes, jobs]: [Rows; 2]) -> Result<(), DatabaseError> {
    nodes.send(client, COPY_NODES).await?;
    jobs.send(client, COPY_JOBS).await
}

/// Rows to store.
#[derive(Debug)]
enum Part {
    /// Whole batches.
    Batches(Range<usize>),
    /// Rows of one batch.
    Rows(usize, Range<usize>),
}

impl Part {
    /// Both halves.
    fn halves(self) -> [Self; 2] {
        let half = |range: &Range<usize>| range.start + range.len() / 2;
        match self {
            Self::Batches(range) => {
                let middle = half(&range);
                [Self::Batches(range.start..middle), Self::Batches(middle..range.end)]
            }
            Self::Rows(batch, range) => {
                let middle = half(&range);
                [Self::Rows(batch, range.start..middle), Self::Rows(batch, middle..range.end)]
            }
        }
    }
}

/// The search in one transaction.
struct Search<'a> {
    client: &'a Client,
    commit: &'a mut Commit,
    copies: u32,
    until: Instant,
}

/// Stores the rows of a commit, and marks those that the database rejects. An error that is not about a row ends it.
pub(crate) async fn store_others(
    client: &Client,
    commit: &mut Commit,
) -> Result<(), DatabaseError> {
    let mut parts = vec![Part::Batches(0..commit.batches.len())];
    let until = Instant::now() + TIME_MAX;
    let mut search = Search { client, commit, copies: 0, until };
    // Parts of the batch that is being divided.
    let (mut divided, mut set_aside) = (usize::MAX, 0);
    while let Some(part) = parts.pop() {
        let part = match part {
            Part::Batches(range) if range.is_empty() => continue,
            Part::Batches(range) if range.len() == 1 => {
                let rows = search.batch(range.start).map_or(0, |batch| batch.len());
                Part::Rows(range.start, 0..rows)
            }
            other => other,
        };
        let is_begun = matches!(&part, Part::Rows(batch, _) if *batch == divided);
        if search.is_exhausted() && !is_begun {
            search.defer(&part);
            continue;
        }
        let Err(why) = search.attempt(&part, true).await? else { continue };
        let (batch, range) = match part {
            Part::Rows(batch, range) => (batch, range),
            several @ Part::Batches(_) => {
                parts.extend(several.halves().into_iter().rev());
                continue;
            }
        };
        if search.batch(batch).is_some_and(|batch| batch.is_whole) {
            search.reject_whole(batch, range, &why).await?;
            continue;
        }
        if batch != divided {
            (divided, set_aside) = (batch, 0);
        }
        if range.len() <= 1 || set_aside >= PARTS_MAX || search.is_exhausted() {
            set_aside += 1;
            search.set_aside(batch, range, &why);
        } else {
            parts.extend(Part::Rows(batch, range).halves().into_iter().rev());
        }
    }
    Ok(())
}

impl Search<'_> {
    fn batch(&mut self, batch: usize) -> Option<&mut AcceptedBatch> {
        self.commit.batches.get_mut(batch)
    }

    fn is_exhausted(&self) -> bool {
        self.copies >= COPIES_MAX || Instant::now() >= self.until
    }

    /// Stores rows, or nothing and returns why a row is rejected. `keep`: rows that can be stored remain.
    async fn attempt(
        &mut self,
        part: &Part,
        keep: bool,
    ) -> Result<Result<(), String>, DatabaseError> {
        self.copies += 1;
        let (batches, rows) = match part {
            Part::Batches(range) => (range.clone(), 0..usize::MAX),
            Part::Rows(batch, rows) => (*batch..batch + 1, rows.clone()),
        };
        let mut encoded = <[Rows; 2]>::default();
        for batch in self.commit.batches.get(batches).unwrap_or_default() {
            batch.encode(rows.clone(), &mut encoded);
        }
        self.client.batch_execute("SAVEPOINT rows").await?;
        let copied = copy(self.client, encoded).await;
        let end = match (&copied, keep) {
            (Ok(()), true) => "RELEASE rows",
            (Ok(()), false) | (Err(DatabaseError::RejectedRow(_)), _) => {
                "ROLLBACK TO rows; RELEASE rows"
            }
            (Err(_), _) => return copied.map(Ok),
        };
        self.client.batch_execute(end).await?;
        match copied {
            Err(DatabaseError::RejectedRow(why)) => {
                Ok(Err(why.get(..why.floor_char_boundary(REASON_BYTES)).unwrap_or_default().into()))
            }
            other => other.map(Ok),
        }
    }

    /// Sets rows aside: they become gaps.
    fn set_aside(&mut self, batch: usize, range: Range<usize>, why: &str) {
        let why: Arc<str> = format!("the database rejected a sample: {why}").into();
        if let Some(batch) = self.batch(batch) {
            batch.rejected.extend(range.map(|row| (row, Arc::clone(&why))));
        }
    }

    /// Rejects a batch of inserted rows for its first row that the database rejects.
    async fn reject_whole(
        &mut self,
        batch: usize,
        mut range: Range<usize>,
        why: &str,
    ) -> Result<(), DatabaseError> {
        let mut why = why.to_owned();
        while range.len() > 1 {
            let middle = range.start + range.len() / 2;
            match self.attempt(&Part::Rows(batch, range.start..middle), false).await? {
                Ok(()) => range.start = middle,
                Err(reason) => (range.end, why) = (middle, reason),
            }
        }
        if let Some(batch) = self.batch(batch) {
            let place = batch.place(range.start);
            batch.failed = Some(Outcome::RejectedWhole { place, why });
        }
        Ok(())
    }

    /// Leaves batches for the next transaction.
    fn defer(&mut self, part: &Part) {
        let batches = match part {
            Part::Batches(range) => range.clone(),
            Part::Rows(batch, _) => *batch..batch + 1,
        };
        let waiting = self.commit.batches.get_mut(batches).unwrap_or_default();
        waiting.iter_mut().for_each(|batch| {
            batch.defer("the database rejects too many rows of other batches; retry in a second");
        });
    }
}
