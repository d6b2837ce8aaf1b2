//! Messages of Colmet's Python nodes, versions 0.5 to 0.6.10: records one after another, without length or version.
//!
//! ```text
//! backend   255 bytes, padded with NUL     "taskstats_default"
//! hostname  255 bytes, padded with NUL     "node-1"
//! job_id    8 bytes                        1234, or 0 for the node
//! timestamp 8 bytes                        seconds since 1970
//! columns   as the backend's table lists   1000 1001 …
//! ```
//!
//! Numbers are little-endian. The backend gives the length. Some backends had fewer columns in older versions, which
//! only shows by what follows the record: the next one, or the end of the message.

use crate::backends::{
    Backend, Column, ColumnType, HEADER_BYTES, INFINIBAND, IPMIPOWER, JOBPROC, LUSTRE,
    NAME_FIELD_BYTES, NVIDIA, PERFHW, PROCSTATS, RAPL, TASKSTATS, TEMPERATURE,
};
use crate::record::{Record, Value};
use model::{Timestamp, printable};
use std::collections::BTreeMap;

/// A record that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record at byte {offset}: {reason}")]
pub struct FrameError {
    /// Where it begins in the message.
    pub offset: usize,
    /// Why it cannot be decoded.
    pub reason: FrameReason,
}

/// Why a record cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameReason {
    /// Fewer bytes than a header, or than the backend's columns.
    #[error("it is cut off: {left} bytes of {needed}")]
    Truncated {
        /// Bytes of the shortest record.
        needed: usize,
        /// Bytes of the message from its begin on.
        left: usize,
    },
    /// Not a backend of Colmet. The rest of the message cannot be decoded, because its length is unknown.
    #[error("unknown backend `{0}`")]
    Backend(String),
    /// A text that is not UTF-8: the host name or a column.
    #[error("{0} is not UTF-8")]
    Text(&'static str),
    /// More seconds than an instant can have.
    #[error("the timestamp {0} is out of range")]
    Time(u64),
}

/// The records of a message. After a record of which the length is known, the next one follows, even after an error.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    message: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Records<'a> {
    /// The records of these bytes.
    pub fn of(message: &'a [u8]) -> Self {
        Self { message, rest: message }
    }

    /// The record, and what follows it; `None` instead of that if its length is unknown.
    fn first(bytes: &'a [u8]) -> (Result<Record, FrameReason>, Option<&'a [u8]>) {
        let truncated = |needed| FrameReason::Truncated { needed, left: bytes.len() };
        let Some((name, _)) = bytes.split_at_checked(NAME_FIELD_BYTES) else {
            return (Err(truncated(HEADER_BYTES)), None);
        };
        let Some(backend) = backend(name) else {
            let name: Vec<u8> = unpadded(name).iter().copied().take(80).collect();
            let name = printable(&String::from_utf8_lossy(&name)).into_owned();
            return (Err(FrameReason::Backend(name)), None);
        };
        let columns = columns_sent(backend, bytes);
        let Some((record, rest)) = bytes.split_at_checked(backend.record_bytes(columns)) else {
            let shortest = backend.older.first().copied().unwrap_or(columns);
            return (Err(truncated(backend.record_bytes(shortest))), None);
        };
        (decode(backend, columns, record), Some(rest))
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Record, FrameError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let offset = self.message.len() - self.rest.len();
        let (record, rest) = Self::first(self.rest);
        self.rest = rest.unwrap_or_default();
        Some(record.map_err(|reason| FrameError { offset, reason }))
    }
}

/// The bytes before the padding.
fn unpadded(field: &[u8]) -> &[u8] {
    // Most bytes of a message are padding, so it is skipped in blocks.
    let (_, blocks) = field.as_rchunks::<64>();
    let padding = blocks.iter().rev().take_while(|block| **block == [0; 64]).count() * 64;
    let field = field.get(..field.len() - padding).unwrap_or_default();
    let end = field.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    field.get(..end).unwrap_or_default()
}

/// The backend that a header names.
fn backend(name: &[u8]) -> Option<&'static Backend> {
    Backend::of_python(std::str::from_utf8(unpadded(name)).ok()?)
}

/// How many columns the first record has: all, or as many as in an older version if the next record or the end of the
/// message stands where that version's record ends. No newer record has a backend's name there, so the fewest are tried
/// first.
fn columns_sent(backend: &Backend, bytes: &[u8]) -> usize {
    let ends_after = |columns: usize| {
        let rest = bytes.get(backend.record_bytes(columns)..);
        rest.is_some_and(|rest| {
            rest.is_empty()
                || rest.get(..NAME_FIELD_BYTES).is_some_and(|name| self::backend(name).is_some())
        })
    };
    let older = backend.older.iter().copied().find(|columns| ends_after(*columns));
    older.unwrap_or(backend.columns.len())
}

fn decode(backend: &'static Backend, columns: usize, bytes: &[u8]) -> Result<Record, FrameReason> {
    let mut rest = bytes.get(NAME_FIELD_BYTES..).unwrap_or_default();
    let host = text(field(&mut rest, NAME_FIELD_BYTES), "the host name")?;
    let job = u64::from_le_bytes(array(&mut rest));
    let seconds = u64::from_le_bytes(array(&mut rest));
    let micros = i64::try_from(seconds).ok().and_then(|it| it.checked_mul(Timestamp::SECOND));
    let at = Timestamp(micros.ok_or(FrameReason::Time(seconds))?);
    let mut record = Record::new(backend, host, job, at);
    for (slot, column) in record.values.iter_mut().zip(backend.columns).take(columns) {
        *slot = Some(value(column, &mut rest)?).filter(|value| !value.is_missing());
    }
    Ok(record)
}

fn value(column: &Column, rest: &mut &[u8]) -> Result<Value, FrameReason> {
    Ok(match column.kind {
        ColumnType::Unsigned => Value::Unsigned(u64::from_le_bytes(array(rest))),
        ColumnType::UnsignedShort => Value::Unsigned(u32::from_le_bytes(array(rest)).into()),
        ColumnType::Signed => Value::Signed(i64::from_le_bytes(array(rest))),
        ColumnType::Float => Value::Float(f32::from_le_bytes(array(rest))),
        ColumnType::Text => {
            let field = field(rest, column.kind.bytes());
            Value::Text(text(field, column.row.theirs)?.into())
        }
    })
}

/// The next bytes; fewer at the end. The record's length was checked before.
fn field<'a>(rest: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (first, after) = rest.split_at_checked(length).unwrap_or((rest, &[]));
    *rest = after;
    first
}

fn array<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    field(rest, N).try_into().unwrap_or([0; N])
}

fn text<'a>(field: &'a [u8], what: &'static str) -> Result<&'a str, FrameReason> {
    std::str::from_utf8(unpadded(field)).map_err(|_| FrameReason::Text(what))
}

/// The order of backends in a message of a Python node.
const ORDER: [&Backend; 10] = [
    &TASKSTATS,
    &PROCSTATS,
    &INFINIBAND,
    &LUSTRE,
    &PERFHW,
    &RAPL,
    &TEMPERATURE,
    &JOBPROC,
    &IPMIPOWER,
    &NVIDIA,
];

/// The records of each message: those of one host and second, in the order of Python nodes. Messages are ordered by time.
pub fn by_message(records: &[Record]) -> Vec<Vec<&Record>> {
    let mut messages: BTreeMap<(i64, &str), Vec<&Record>> = BTreeMap::new();
    for record in records {
        let second = record.at.0.div_euclid(Timestamp::SECOND);
        messages.entry((second, &record.host)).or_default().push(record);
    }
    let place = |record: &&Record| ORDER.iter().position(|backend| *backend == record.backend);
    let mut messages: Vec<_> = messages.into_values().collect();
    messages.iter_mut().for_each(|message| message.sort_by_key(place));
    messages
}

/// A record that Python's format cannot hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a record of {backend}: {reason}")]
pub struct EncodeError {
    /// Its backend.
    pub backend: &'static str,
    /// Why.
    pub reason: EncodeReason,
}

/// Why Python's format cannot hold a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeReason {
    /// Only Rust nodes send this backend.
    #[error("Python nodes do not send it")]
    Backend,
    /// The instant is before 1970.
    #[error("it is before 1970")]
    Time,
    /// The host name or a text exceeds its field.
    #[error("{what} has {bytes} bytes, more than its field")]
    TooLong {
        /// The host name, or the column.
        what: &'static str,
        /// Its bytes.
        bytes: usize,
    },
    /// A value of another type than its column.
    #[error("the value of {0} is not of the column's type")]
    Value(&'static str),
    /// Not one value for each column.
    #[error("it has {0} values")]
    Values(usize),
}

/// Appends a record to a message, as version 0.6.10 does. Missing values are -1, and 0 where the type has no -1. Fractions
/// of a second are cut.
///
/// # Errors
/// The format cannot hold the record; the message remains unchanged.
pub fn encode(record: &Record, message: &mut Vec<u8>) -> Result<(), EncodeError> {
    let start = message.len();
    append(record, message).map_err(|reason| {
        message.truncate(start);
        EncodeError { backend: record.backend.id, reason }
    })
}

fn append(record: &Record, message: &mut Vec<u8>) -> Result<(), EncodeReason> {
    let backend = record.backend;
    if !backend.is_of_python() {
        return Err(EncodeReason::Backend);
    }
    if record.values.len() != backend.columns.len() {
        return Err(EncodeReason::Values(record.values.len()));
    }
    let seconds = record.at.0.div_euclid(Timestamp::SECOND);
    let seconds = u64::try_from(seconds).map_err(|_| EncodeReason::Time)?;
    padded(backend.id, NAME_FIELD_BYTES, "the backend", message)?;
    padded(&record.host, NAME_FIELD_BYTES, "the host name", message)?;
    message.extend(record.job.to_le_bytes());
    message.extend(seconds.to_le_bytes());
    for (column, value) in record.columns() {
        let missing = || Value::missing(column.kind);
        match (column.kind, &value.cloned().unwrap_or_else(missing)) {
            (ColumnType::Unsigned, Value::Unsigned(value)) => message.extend(value.to_le_bytes()),
            (ColumnType::UnsignedShort, Value::Unsigned(value)) => {
                let short = u32::try_from(*value);
                let short = short.map_err(|_| EncodeReason::Value(column.row.theirs))?;
                message.extend(short.to_le_bytes());
            }
            (ColumnType::Signed, Value::Signed(value)) => message.extend(value.to_le_bytes()),
            (ColumnType::Float, Value::Float(value)) => message.extend(value.to_le_bytes()),
            (ColumnType::Text, Value::Text(text)) => {
                padded(text, column.kind.bytes(), column.row.theirs, message)?;
            }
            _ => return Err(EncodeReason::Value(column.row.theirs)),
        }
    }
    Ok(())
}

fn padded(
    text: &str,
    length: usize,
    what: &'static str,
    message: &mut Vec<u8>,
) -> Result<(), EncodeReason> {
    let bytes = text.len();
    let padding = length.checked_sub(bytes).ok_or(EncodeReason::TooLong { what, bytes })?;
    message.extend(text.as_bytes());
    message.extend(std::iter::repeat_n(0, padding));
    Ok(())
}
