//! `SELECT` of columns of `get_metrics` with constants: the server answers it itself. The engine would pass the rows on
//! unchanged, from the same scan to the same encoder; its process, its plan and the socket take longer than the rows.

use crate::SqlError;
use crate::common::schema::Table;
use crate::common::wire::{Parameter, WireStatement};
use crate::functions::parameters;
use crate::statements::run::{ENCODED_ROWS, PIECE_BYTES, time_columns};
use crate::statements::worker::bytes::MessageWriter;
use crate::statements::worker::child::{Encode, NewEncoder};
use crate::statements::worker::messages::{Begin, Head};
use crate::statements::worker::rows::{batch, put_samples};
use crate::statements::worker::scan::Scope;
use crate::statements::worker::session::Message;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::record_batch::RecordBatch;
use pg_wire::call::{Call, Constant, call};
use pg_wire::oid;
use query::{GetMetrics, QueryError, RowBatch};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::time::Instant;

const TABLE: Table = Table::GetMetrics;

/// A statement that the server answers itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Direct {
    arguments: Vec<(String, String)>,
    kept: Vec<usize>,
    rows_max: usize,
    /// Types of the parameters, if only these and the columns are requested.
    types: Vec<u32>,
    describes: bool,
}

/// A statement that begins.
pub(crate) struct Answer {
    direct: Direct,
    scope: Arc<Scope>,
    schema: SchemaRef,
    encoder: Box<dyn Encode>,
    rows_max: u64,
    deadline: Instant,
    seconds: u64,
}

impl Direct {
    /// Reads a statement; `None`: the engine answers it.
    pub(crate) fn of(text: &str, wire: Option<&WireStatement>) -> Option<Self> {
        let Call { columns, schema, function, arguments, order, limit } = call(text)?;
        let is_ours = schema.is_none_or(|schema| schema == "api") && function == TABLE.name();
        let is_ordered = order.is_none_or(|column| column == "timestamp");
        if !is_ours || !is_ordered {
            return None;
        }
        let kept = match columns {
            None => (0..TABLE.columns().len()).collect(),
            Some(names) => places(&names)?,
        };
        let describes = wire.is_some_and(|wire| wire.describes);
        let given = wire.map_or(&[][..], |wire| &wire.parameters);
        let types = if describes { types(&arguments, given) } else { Vec::new() };
        let arguments = texts(arguments, given, describes)?;
        Some(Self { arguments, kept, rows_max: limit.unwrap_or(usize::MAX), types, describes })
    }

    /// Starts the statement. Returns what precedes its rows.
    pub(crate) fn start(
        self,
        begin: &Begin,
        encoder: NewEncoder,
        scope: Arc<Scope>,
        deadline: Instant,
    ) -> Result<(Head, Answer), SqlError> {
        let schema = TABLE.schema(&Arc::from(&*begin.zone)).project(&self.kept);
        let schema = Arc::new(schema.map_err(|error| internal(&error))?);
        let (encoder, text) = encoder(begin.form(), &schema);
        let (times, parameters) = (time_columns(&schema, &begin.zone), self.types.clone());
        let (rows_max, seconds) = (begin.rows_max, begin.seconds);
        let answer = Answer { direct: self, scope, schema, encoder, rows_max, deadline, seconds };
        Ok((Head { text, times, parameters }, answer))
    }
}

impl Answer {
    /// Reads and sends the rows. Returns the last message. Runs on a thread that may block.
    pub(crate) fn run(mut self, to: &mpsc::Sender<Message>) -> Message {
        let scope = Arc::clone(&self.scope);
        let done = match self.direct.describes {
            true => Ok(()),
            false => scope.reads.during(|| self.send_rows(&scope, to)),
        };
        match done {
            Ok(()) => Message::End(self.encoder.end().to_vec()),
            Err(error) => Message::Failed(error),
        }
    }

    fn send_rows(&mut self, scope: &Scope, to: &mpsc::Sender<Message>) -> Result<(), SqlError> {
        let arguments = self.direct.arguments.iter().map(|(name, text)| (&**name, &**text));
        let query = GetMetrics::from_pairs(arguments).map_err(SqlError::Query)?;
        let (mut left, mut sent) = (self.direct.rows_max, 0_u64);
        let rows = scope.engine.get_metrics_rows(&query, &scope.context);
        for rows in rows.map_err(SqlError::Query)? {
            let rows = self.batch(&rows.map_err(SqlError::Query)?)?;
            let (count, mut first) = (rows.num_rows().min(left), 0);
            left -= count;
            while first < count {
                if Instant::now() >= self.deadline {
                    return Err(SqlError::TooSlow(self.seconds));
                }
                let length = (count - first).min(ENCODED_ROWS);
                sent = sent.saturating_add(u64::try_from(length).unwrap_or(u64::MAX));
                if sent > self.rows_max {
                    return Err(SqlError::TooManyRows(self.rows_max));
                }
                self.send(&rows.slice(first, length), to)?;
                first += length;
            }
            if left == 0 {
                break;
            }
        }
        Ok(())
    }

    fn send(&mut self, rows: &RecordBatch, to: &mpsc::Sender<Message>) -> Result<(), SqlError> {
        let text = self.encoder.rows(rows).map_err(|error| SqlError::Value(error.to_string()))?;
        let mut begin = u64::try_from(rows.num_rows()).unwrap_or(u64::MAX);
        for piece in text.chunks(PIECE_BYTES) {
            let message = Message::Text(std::mem::take(&mut begin), piece.to_vec());
            // Without a receiver, nobody waits for the rows any more.
            let sent = to.blocking_send(message);
            sent.map_err(|_| SqlError::Query(QueryError::Cancelled))?;
        }
        Ok(())
    }

    /// The rows as a worker receives them.
    fn batch(&self, rows: &RowBatch) -> Result<RecordBatch, SqlError> {
        let mut put = MessageWriter::default();
        put_samples(&mut put, TABLE, &self.direct.kept, rows);
        let read = batch(&put.into_bytes(), TABLE, &self.direct.kept, &self.schema);
        read.map_err(|error| internal(&error))
    }
}

fn internal(error: &ArrowError) -> SqlError {
    SqlError::Internal(error.to_string())
}

/// The places of columns; `None`: one is unknown, or occurs twice and needs another name.
fn places(names: &[String]) -> Option<Vec<usize>> {
    let mut kept = Vec::with_capacity(names.len());
    for name in names {
        let place = TABLE.columns().iter().position(|column| column.0 == name)?;
        if kept.contains(&place) {
            return None;
        }
        kept.push(place);
    }
    Some(kept)
}

/// The types of all parameters: as given, or texts.
fn types(arguments: &[(Option<String>, Constant)], given: &[Parameter]) -> Vec<u32> {
    let number = |constant: &Constant| match constant {
        Constant::Parameter(number) => usize::from(*number),
        _ => 0,
    };
    let count = arguments.iter().map(|(_, constant)| number(constant)).max().unwrap_or(0);
    let of = |place: usize| given.get(place).map(|one| one.oid).filter(|oid| *oid != 0);
    (0..count.max(given.len())).map(|place| of(place).unwrap_or(oid::TEXT)).collect()
}

/// Names and texts of the arguments that are not null, in the order of the parameters. `None`: the engine reports an
/// error, or finds the text of a value.
fn texts(
    arguments: Vec<(Option<String>, Constant)>,
    given: &[Parameter],
    describes: bool,
) -> Option<Vec<(String, String)>> {
    let names = TABLE.parameters();
    let mut constants: Vec<Option<Constant>> = vec![None; names.len()];
    for ((name, constant), nth) in arguments.into_iter().zip(0_usize..) {
        let place = match name {
            None => nth,
            Some(name) => names.iter().position(|known| *known == name)?,
        };
        let slot = constants.get_mut(place)?;
        if slot.replace(constant).is_some() {
            return None;
        }
    }
    let mut texts = Vec::new();
    for (name, constant) in names.iter().zip(constants) {
        let text = match constant {
            None | Some(Constant::Null) => continue,
            Some(Constant::Text(text)) => text,
            Some(Constant::Number(number)) => number.to_string(),
            Some(Constant::Bool(value)) => value.to_string(),
            Some(Constant::Parameter(_)) if describes => continue,
            Some(Constant::Parameter(number)) => {
                let parameter = given.get(usize::from(number).checked_sub(1)?)?;
                parameters::plain_text(parameter)?
            }
        };
        texts.push(((*name).to_owned(), text));
    }
    Some(texts)
}
