//! INSERT and COPY: rows are checked as those of `insert_metrics` are, and stored in one batch for each transaction.

use crate::api::batch_routes::stopping;
use crate::api::push_routes::{limit, of_rejected_row, push_error, row_reader, store_once};
use crate::app::App;
use crate::auth::caller::Caller;
use crate::common::http_error::HttpError;
use crate::common::pg_counts::PgLimit;
use crate::common::tasks::stopped;
use crate::http::body::{BudgetShare, Sender, Turn};
use crate::ingest::inserter::PushSender;
use crate::ingest::push_batch::PushBatch;
use crate::ingest::push_rows::row_error;
use crate::lifecycle::pg::input::{Input, SHARE_STEP};
use crate::lifecycle::pg::reports::Failure;
use crate::lifecycle::pg::session::{SENT_BYTES, Session};
use crate::lifecycle::pg::statement_rows::{Interrupt, Taken};
use model::Timestamp;
use pg_wire::backend::{COPY_DONE, Messages, Report, State};
use pg_wire::copy::{Format, Options, Row, rows};
use pg_wire::frontend::{Message, Reader};
use pg_wire::insert::{Copy, Direction, Insert};
use sql::Parameter;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// Most savepoints of a transaction.
const SAVEPOINTS_MAX: usize = 64;
/// Memory of received rows is reserved in steps of this many bytes.
const STEP_BYTES: usize = 1 << 20;
/// The texts of a row take several times the bytes that the client sends.
const WAITING_FACTOR: usize = 4;

/// Rows that a transaction has inserted, until its end.
#[derive(Debug, Default)]
pub(super) struct PendingRows {
    rows: Vec<Row>,
    bytes: usize,
    /// Names of savepoints, with the number and bytes of the rows before.
    savepoints: Vec<(String, usize, usize)>,
    /// The memory of rows that wait for the end of their transaction.
    shares: Vec<BudgetShare>,
    /// When the transaction block began: the time of its rows without one.
    since: Option<Timestamp>,
    /// The turn of the sender, if the transaction needs more memory than its part.
    turn: Option<Turn>,
}

fn bytes_of(row: &Row) -> usize {
    size_of::<Row>() + row.iter().flatten().map(String::len).sum::<usize>()
}

impl PendingRows {
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) const fn begin(&mut self, now: Timestamp) {
        self.since = Some(now);
    }

    pub(super) fn savepoint(&mut self, name: String) -> Result<(), Report> {
        if self.savepoints.len() >= SAVEPOINTS_MAX {
            let what = format!("a transaction has at most {SAVEPOINTS_MAX} savepoints");
            return Err(Report::error("54000", what));
        }
        self.savepoints.push((name, self.rows.len(), self.bytes));
        Ok(())
    }

    fn place(&self, name: &str) -> Result<usize, Report> {
        let place = self.savepoints.iter().rposition(|(known, ..)| known == name);
        place.ok_or_else(|| Report::error("3B001", format!("savepoint \"{name}\" does not exist")))
    }

    /// Drops a savepoint and the later ones. Returns its place.
    pub(super) fn release(&mut self, name: &str) -> Result<usize, Report> {
        let place = self.place(name)?;
        self.savepoints.truncate(place);
        Ok(place)
    }

    /// Returns to a savepoint. Returns its place.
    pub(super) fn rollback_to(&mut self, name: &str) -> Result<usize, Report> {
        let place = self.place(name)?;
        if let Some((_, rows, bytes)) = self.savepoints.get(place) {
            self.rows.truncate(*rows);
            self.bytes = *bytes;
            self.shares.truncate(bytes.div_ceil(STEP_BYTES));
        }
        self.savepoints.truncate(place + 1);
        Ok(place)
    }
}

impl Session {
    pub(super) async fn insert(
        &mut self,
        insert: &Insert,
        parameters: &[Parameter],
    ) -> Result<(), Failure> {
        // Before anything else: whether the caller may write.
        self.may_write("INSERT")?;
        let values: Vec<_> = parameters.iter().map(|one| one.value.clone()).collect();
        let rows = insert.rows(&values).map_err(|error| Report::error(error.code, error.what))?;
        let count = rows.len();
        self.write(rows).await?;
        self.done(&format!("INSERT 0 {count}"));
        Ok(())
    }

    pub(super) async fn copy(&mut self, copy: Copy) -> Result<(), Failure> {
        match copy.direction {
            Direction::In(columns) => {
                self.may_write("COPY FROM")?;
                let is_binary = copy.options.format == Format::Binary;
                self.out.copy(b'G', is_binary, columns.len());
                self.flush().await?;
                let (bytes, _shares) = self.copied().await?;
                let rows_max = self.rows_max();
                let read = rows(&bytes, &copy.options, &columns, rows_max);
                let read = read.map_err(|error| Report::error("22P04", error.to_string()))?;
                let count = read.len();
                self.write(read).await?;
                self.done(&format!("COPY {count}"));
                Ok(())
            }
            Direction::Out(query) => self.copy_out(&query, &copy.options).await,
        }
    }

    fn may_write(&self, word: &str) -> Result<(), Failure> {
        PushSender::of_program(&self.caller)?;
        if self.settings.is_read_only() {
            let what = format!("cannot execute {word} in a read-only transaction");
            return Err(Report::error("25006", what).into());
        }
        Ok(())
    }

    fn rows_max(&self) -> usize {
        usize::try_from(self.app.push.settings.rows_per_request_max).unwrap_or(usize::MAX)
    }

    /// Receives the rows of a COPY.
    async fn copied(&mut self) -> Result<(Vec<u8>, Vec<BudgetShare>), Failure> {
        let max = self.app.limits.push_body_bytes_max;
        let (mut bytes, mut shares, mut failed): (Vec<u8>, Vec<BudgetShare>, Option<Report>) =
            (Vec::new(), Vec::new(), None);
        // What a client sent before it disconnected is read, and the input then tells that it has gone.
        let (_stays, gone) = watch::channel(false);
        let mut interrupt = Interrupt { gone, ..self.interrupt() };
        let mut stopping = self.app.stopping.clone();
        loop {
            let input = tokio::select! {
                biased;
                () = stopped(&mut stopping) => return Err(is_stopping()),
                why = interrupt.wait() => return Err(why),
                input = self.input.recv() => input.unwrap_or(Input::Gone),
            };
            match input {
                Input::Message(Message::CopyData(piece), _) if failed.is_none() => {
                    let length = bytes.len().saturating_add(piece.len());
                    while failed.is_none() && length > shares.len().saturating_mul(STEP_BYTES) {
                        match self.share(max, &mut interrupt).await? {
                            _ if length > max => failed = Some(self.too_many_bytes()),
                            Some(share) => shares.push(share),
                            None => failed = Some(self.too_much_memory()),
                        }
                    }
                    match failed {
                        None => bytes.extend(piece),
                        Some(_) => (bytes, shares) = (Vec::new(), Vec::new()),
                    }
                }
                Input::Message(Message::CopyDone, _) => {
                    // Meanwhile the token may have been revoked.
                    self.identify()?;
                    return failed.map_or(Ok((bytes, shares)), |report| Err(report.into()));
                }
                Input::Message(Message::CopyFail(why), _) => {
                    let why: String = why.chars().take(200).collect();
                    let what = format!("COPY from stdin failed: {why}");
                    return Err(Report::error("57014", what).into());
                }
                // Some clients send these before they know of COPY.
                Input::Message(Message::CopyData(_) | Message::Flush | Message::Sync, _) => {}
                Input::Message(..) => {
                    let what = "another message than COPY data".to_owned();
                    return Err(self.broken(&Input::Malformed(what)));
                }
                other => return Err(self.broken(&other)),
            }
        }
    }

    fn too_much_memory(&self) -> Report {
        self.app.pg.counts.limits.add(PgLimit::Memory, 1);
        Report::error("53200", "too many requests are under way; retry in a moment")
    }

    fn too_many_bytes(&self) -> Report {
        self.app.pg.counts.limits.add(PgLimit::Rows, 1);
        let max = self.app.limits.push_body_bytes_max;
        let what =
            format!("the rows of a transaction have at most {max} bytes; write fewer at once");
        Report::error("54000", what)
    }

    /// Stores rows at once, or at the end of the transaction.
    async fn write(&mut self, mut rows: Vec<Row>) -> Result<(), Failure> {
        if let Some(since) = self.pending.since {
            for at in rows.iter_mut().filter_map(|row| row.first_mut()) {
                at.get_or_insert_with(|| since.to_string());
            }
        }
        let bytes: usize = rows.iter().map(bytes_of).sum();
        let all = self.pending.bytes.saturating_add(bytes);
        let (count, rows_max) = (self.pending.rows.len() + rows.len(), self.rows_max());
        if all > self.app.limits.push_body_bytes_max.saturating_mul(WAITING_FACTOR) {
            return Err(self.too_many_bytes().into());
        }
        if count > rows_max {
            self.app.pg.counts.limits.add(PgLimit::Rows, 1);
            let what = format!(
                "the transaction writes more than {rows_max} rows, `push.rows_per_request_max` of \
                 the server; write fewer at once"
            );
            return Err(Report::error("54000", what).into());
        }
        let is_waiting = self.state == State::Open || !self.is_last;
        if is_waiting {
            // The statement with a wrong row fails, not the end of its transaction.
            let (app, caller) = (&self.app, &self.caller);
            read_rows(app, &PushSender::of_program(caller)?, app.now(), rows.clone()).await?;
            self.reserve(all).await?;
        }
        self.pending.rows.extend(rows);
        self.pending.bytes = all;
        if is_waiting { Ok(()) } else { self.store_pending().await }
    }

    /// Reserves the memory of rows that wait.
    async fn reserve(&mut self, bytes: usize) -> Result<(), Failure> {
        let max = self.app.limits.push_body_bytes_max.saturating_mul(WAITING_FACTOR);
        let mut interrupt = self.interrupt();
        while self.pending.shares.len().saturating_mul(STEP_BYTES) < bytes {
            match self.share(max, &mut interrupt).await? {
                Some(share) => self.pending.shares.push(share),
                None => return Err(self.too_much_memory().into()),
            }
        }
        Ok(())
    }

    /// Reserves a step of memory for rows; `None`: there was none in time. If the sender's part of the memory is in use, the
    /// transactions of the sender take turns: the one whose turn it is may use more, until it ends.
    async fn share(
        &mut self,
        max: usize,
        interrupt: &mut Interrupt,
    ) -> Result<Option<BudgetShare>, Failure> {
        let (budget, sender) = (&self.app.bodies.batches, Sender::of(&self.caller));
        if let Ok(share) = budget.share(&sender, STEP_BYTES, max) {
            return Ok(Some(share));
        }
        let most = self.app.limits.push_body_bytes_max.saturating_mul(WAITING_FACTOR);
        let turn = &mut self.pending.turn;
        let reserved = async {
            if turn.is_none() {
                *turn = Some(budget.turn(&sender).await);
            }
            loop {
                match budget.share_beyond(&sender, STEP_BYTES, most) {
                    Ok(share) => return share,
                    Err(_) => sleep(SHARE_STEP).await,
                }
            }
        };
        let mut stopping = self.app.stopping.clone();
        tokio::select! {
            () = stopped(&mut stopping) => Err(is_stopping()),
            why = interrupt.wait() => Err(why),
            reserved = timeout(self.app.limits.body_time, reserved) => Ok(reserved.ok()),
        }
    }

    /// Stores the rows of the transaction.
    pub(super) async fn store_pending(&mut self) -> Result<(), Failure> {
        let rows = std::mem::take(&mut self.pending).rows;
        if rows.is_empty() {
            return Ok(());
        }
        let (app, caller) = (Arc::clone(&self.app), self.caller.clone());
        // A client that disconnects does not stop it: a number that is taken, but not stored, would be a gap.
        let stored = tokio::spawn(async move { store_rows(&app, &caller, rows).await });
        stored.await.map_err(|error| HttpError::fault(&error))??;
        Ok(())
    }

    async fn copy_out(&mut self, query: &str, options: &Options) -> Result<(), Failure> {
        let is_binary = options.format == Format::Binary;
        let mut rows = self.start_rows(query, Vec::new(), vec![is_binary], false).await?;
        let columns = column_names(&rows.columns);
        self.out.copy(b'H', is_binary, columns.len());
        if is_binary {
            self.out.put(b'd', |to| to.extend(b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0"));
        }
        if options.header && !is_binary {
            let names: Vec<_> = columns.iter().map(|name| Some(name.as_bytes().to_vec())).collect();
            self.out.put(b'd', |to| line(&names, options, to));
        }
        let (mut interrupt, mut count) = (self.interrupt(), 0_u64);
        loop {
            let mut taken = Messages::default();
            let bounds = (u64::MAX, SENT_BYTES);
            let result = rows.take(&mut taken, bounds, &mut interrupt).await?;
            let mut rest = &taken.0[..];
            while let Some(length) = pg_wire::backend::first_message(rest) {
                let (row, after) = rest.split_at(length);
                rest = after;
                self.out.put(b'd', |to| match is_binary {
                    true => to.extend_from_slice(row.get(5..).unwrap_or_default()),
                    false => line(&fields(row), options, to),
                });
                count += 1;
            }
            self.flush().await?;
            if let Taken::All(_) = result {
                break;
            }
        }
        if is_binary {
            self.out.put(b'd', |to| to.extend([0xff, 0xff]));
        }
        self.out.empty(COPY_DONE);
        self.done(&format!("COPY {count}"));
        Ok(())
    }
}

fn is_stopping() -> Failure {
    Failure::Fatal(Box::new(Report::fatal("57P01", "the server is stopping")))
}

/// Stores a program's rows, and returns their number.
async fn store_rows(app: &Arc<App>, caller: &Caller, rows: Vec<Row>) -> Result<usize, HttpError> {
    if !app.ready() {
        return Err(stopping());
    }
    let (sender, now) = (PushSender::of_program(caller)?, app.now());
    let batch = Arc::new(read_rows(app, &sender, now, rows).await?);
    limit(app, &sender, &batch, false)?;
    store_once(app, &sender, &batch, now).await.map(|()| batch.len())
}

/// Reads rows, with the checks of `insert_metrics`.
async fn read_rows(
    app: &Arc<App>,
    sender: &PushSender,
    now: Timestamp,
    rows: Vec<Row>,
) -> Result<PushBatch, HttpError> {
    let reader = row_reader(app, sender, (now, false));
    let keyed = |[at, device, metric, value, labels]: Row| [device, metric, at, value, labels];
    let rows = app.decoding.turn(None, move || reader.texts(rows.into_iter().map(keyed).collect()));
    let rows = rows.await.ok_or_else(|| HttpError::fault(&"reading rows ended early"))??;
    let batch =
        PushBatch::new(sender.origin.clone(), rows, &HashMap::new(), sender.inserter.clone());
    let batch = batch.map_err(|error| push_error(&error))?;
    // The store rejects them, too, but only at the end of the transaction.
    match batch.reserved_label() {
        Some((row, why)) => Err(row_error(row, of_rejected_row(why))),
        None => Ok(batch),
    }
}

/// The fields of a row's message.
fn fields(row: &[u8]) -> Vec<Option<Vec<u8>>> {
    let mut take = Reader(row.get(7..).unwrap_or_default());
    let mut fields = Vec::new();
    while let Ok(value) = take.value() {
        fields.push(value);
    }
    fields
}

/// The names in the message of columns.
fn column_names(message: &[u8]) -> Vec<String> {
    let mut rest = message.get(7..).unwrap_or_default();
    let mut names = Vec::new();
    while let Some(end) = rest.iter().position(|byte| *byte == 0) {
        names.push(String::from_utf8_lossy(rest.get(..end).unwrap_or_default()).into_owned());
        rest = rest.get(end + 19..).unwrap_or_default();
    }
    names
}

/// Appends a line of COPY.
fn line(fields: &[Option<Vec<u8>>], options: &Options, to: &mut Vec<u8>) {
    let mut text = String::new();
    for (place, field) in fields.iter().enumerate() {
        if place > 0 {
            text.push(options.delimiter);
        }
        match field {
            None => text.push_str(&options.null),
            Some(field) => {
                let field = String::from_utf8_lossy(field);
                match options.format {
                    Format::Csv => csv_field(&field, options, &mut text),
                    _ => text_field(&field, options.delimiter, &mut text),
                }
            }
        }
    }
    text.push('\n');
    to.extend(text.into_bytes());
}

fn text_field(field: &str, delimiter: char, to: &mut String) {
    for c in field.chars() {
        match c {
            '\\' => to.push_str("\\\\"),
            '\n' => to.push_str("\\n"),
            '\r' => to.push_str("\\r"),
            '\t' => to.push_str("\\t"),
            c if c == delimiter => to.extend(['\\', c]),
            c => to.push(c),
        }
    }
}

fn csv_field(field: &str, options: &Options, to: &mut String) {
    let Options { delimiter, quote, escape, ref null, .. } = *options;
    let is_plain =
        field != null && field != "\\." && !field.contains([delimiter, quote, '\n', '\r']);
    if is_plain {
        return to.push_str(field);
    }
    to.push(quote);
    for c in field.chars() {
        if c == quote || c == escape {
            to.push(escape);
        }
        to.push(c);
    }
    to.push(quote);
}
