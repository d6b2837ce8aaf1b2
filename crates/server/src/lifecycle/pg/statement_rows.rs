//! Rows of a running statement. A task reads them ahead, so that a portal with more rows than a client has fetched
//! soon frees the statement's process.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::http::connection_limits::Slot;
use crate::lifecycle::pg::reports::{Failure, of_sql};
use crate::queries::slow_query_log::RunningQuery;
use futures::StreamExt;
use jobs::Reader;
use pg_wire::backend::{Messages, Report, first_message};
use query::QueryContext;
use sql::{SqlError, SqlRows, WireStatement};
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

/// Pieces that are read ahead, of at most 256 KiB each.
const PIECES_AHEAD: usize = 8;
/// Memory that counts as a user's for each open statement, in bytes.
const AHEAD_BYTES: usize = PIECES_AHEAD * (256 << 10);

/// What ends a statement before its result does.
#[derive(Clone, Debug)]
pub(super) struct Interrupt {
    pub(super) cancels: watch::Receiver<u64>,
    pub(super) gone: watch::Receiver<bool>,
    pub(super) deadline: Option<Instant>,
}

impl Interrupt {
    /// Waits until the statement must end.
    pub(super) async fn wait(&mut self) -> Failure {
        let deadline = self.deadline;
        let late = async {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = self.cancels.changed() => match changed {
                Ok(()) => Report::error("57014", "canceling statement due to user request").into(),
                Err(_) => Failure::Gone,
            },
            _ = self.gone.wait_for(|gone| *gone) => Failure::Gone,
            () = late => Report::error("57014", "canceling statement due to statement timeout").into(),
        }
    }
}

/// A running statement.
#[derive(Debug)]
pub(super) struct StatementRows {
    text: String,
    /// The message of the columns.
    pub(super) columns: Vec<u8>,
    /// Types of the parameters, if they were requested.
    pub(super) parameters: Vec<u32>,
    pieces: mpsc::Receiver<Result<Vec<u8>, SqlError>>,
    /// Messages that were not sent.
    rest: Vec<u8>,
    at: usize,
    has_ended: bool,
    query: Option<RunningQuery>,
    task: AbortHandle,
    _memory: Slot<Arc<str>>,
}

impl Drop for StatementRows {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Starts a statement, and waits for its columns.
pub(super) async fn start(
    (app, caller): (&Arc<App>, &Caller),
    text: &str,
    statement: WireStatement,
    zone: &str,
    mut interrupt: Interrupt,
) -> Result<StatementRows, Failure> {
    let context = match app.context(caller) {
        // The columns of our tables are no secret; a program that inserts rows reads them first.
        Err(_) if statement.describes => QueryContext::new(Reader::Nodes, app.now()),
        context => context?,
    };
    let memory = app.unsent_answers.take_several(Arc::clone(&context.user_key), AHEAD_BYTES);
    let memory = memory.ok_or_else(|| {
        Report::error(
            "53200",
            "results of the same user wait to be fetched; fetch or close these first",
        )
    })?;
    let mut query = RunningQuery::new(app, "pg", caller, text);
    let describes = statement.describes;
    let answer = tokio::select! {
        answer = app.sql.wire_query(text, statement, Some(zone), context) => answer,
        why = interrupt.wait() => return Err(why),
    };
    let mut rows = match answer {
        Ok(rows) => rows,
        Err(error) => {
            let report = of_sql(&error, text);
            query.finished(Some(&error));
            return Err(report.into());
        }
    };
    query.taken.reads = rows.reads().clone();
    let parameters = rows.parameters().to_vec();
    let columns = match rows.next().await {
        Some(Ok(piece)) => piece.text,
        Some(Err(error)) => return Err(of_sql(&error, text).into()),
        None => Vec::new(),
    };
    let taken = query.taken.clone();
    let (to, pieces) = mpsc::channel(PIECES_AHEAD);
    let within = if describes { app.limits.body_time } else { app.query_time_max };
    let task = tokio::spawn(read_ahead(rows, to, Instant::now() + within, move |count| {
        taken.count_rows(count);
    }));
    Ok(StatementRows {
        text: text.to_owned(),
        columns,
        parameters,
        pieces,
        rest: Vec::new(),
        at: 0,
        has_ended: false,
        query: Some(query),
        task: task.abort_handle(),
        _memory: memory,
    })
}

/// Reads pieces until the statement ends, or until the client has fetched none within the time limit.
async fn read_ahead(
    mut rows: SqlRows,
    to: mpsc::Sender<Result<Vec<u8>, SqlError>>,
    deadline: Instant,
    count: impl Fn(usize),
) {
    while let Some(piece) = rows.next().await {
        let is_error = piece.is_err();
        let piece = piece.map(|piece| {
            count(usize::try_from(piece.rows).unwrap_or(usize::MAX));
            piece.text
        });
        match timeout_at(deadline, to.send(piece)).await {
            Ok(Ok(())) if !is_error => {}
            Ok(_) => return,
            Err(_) => {
                // The process of the statement ends; the client receives the reason after the pieces before.
                drop(rows);
                to.send(Err(SqlError::TooSlow(0))).await.ok();
                return;
            }
        }
    }
}

/// Rows of a statement that were appended to the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The statement has ended.
    All(u64),
    /// The limit is reached; more rows may follow.
    Some(u64),
    /// The messages are long enough to send.
    Full(u64),
}

impl StatementRows {
    /// Appends rows to the messages: at most `rows_max`, until the messages have `bytes_max` bytes.
    pub(super) async fn take(
        &mut self,
        to: &mut Messages,
        (rows_max, bytes_max): (u64, usize),
        interrupt: &mut Interrupt,
    ) -> Result<Taken, Failure> {
        let mut count = 0;
        loop {
            let (rows, bytes) =
                self.whole_rows(rows_max - count, bytes_max.saturating_sub(to.0.len()));
            let waiting = self.rest.get(self.at..).unwrap_or_default();
            to.0.extend_from_slice(waiting.get(..bytes).unwrap_or_default());
            (count, self.at) = (count + rows, self.at + bytes);
            match first_message(waiting.get(bytes..).unwrap_or_default()) {
                _ if rows > 0 && to.0.len() >= bytes_max => return Ok(Taken::Full(count)),
                Some(_) => return Ok(Taken::Some(count)),
                None if self.has_ended => return Ok(Taken::All(count)),
                None => {
                    self.rest.drain(..self.at);
                    self.at = 0;
                    self.next_piece(interrupt).await?;
                }
            }
        }
    }

    /// Number and bytes of the next rows: at most `rows_max`, until they have `bytes_max` bytes.
    fn whole_rows(&self, rows_max: u64, bytes_max: usize) -> (u64, usize) {
        let waiting = self.rest.get(self.at..).unwrap_or_default();
        let (mut rows, mut bytes) = (0, 0);
        while rows < rows_max
            && (rows == 0 || bytes < bytes_max)
            && let Some(length) = first_message(waiting.get(bytes..).unwrap_or_default())
        {
            (rows, bytes) = (rows + 1, bytes + length);
        }
        (rows, bytes)
    }

    async fn next_piece(&mut self, interrupt: &mut Interrupt) -> Result<(), Failure> {
        let piece = tokio::select! {
            piece = self.pieces.recv() => piece,
            why = interrupt.wait() => return Err(why),
        };
        match piece {
            Some(Ok(piece)) => self.rest.extend(piece),
            Some(Err(error)) => {
                self.has_ended = true;
                if let Some(query) = self.query.take() {
                    query.finished(Some(&error));
                }
                let error = match error {
                    SqlError::TooSlow(0) => {
                        return Err(Report::error(
                            "57014",
                            "the statement took too long, or its rows were not fetched in time",
                        )
                        .into());
                    }
                    error => error,
                };
                return Err(of_sql(&error, &self.text).into());
            }
            None => {
                self.has_ended = true;
                if let Some(query) = self.query.take() {
                    query.finished(None);
                }
            }
        }
        Ok(())
    }

    /// Whether the statement has ended and all rows were taken.
    pub(super) fn is_done(&self) -> bool {
        self.has_ended && self.at >= self.rest.len()
    }
}
