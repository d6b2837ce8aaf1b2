//! Messages between the server and a worker.
//!
//! ```text
//! server → worker   Begin, then of each scan: Rows …, ScanEnd or ScanFailed
//! worker → server   Scan, More, Stop of each scan; Begins, Text …, then End or Failed
//! ```
//!
//! A scan has credit for [`CREDIT`] messages of rows. Each `More` adds one. A scan that the engine does not read
//! therefore blocks no other scan on the same socket.

use super::bytes::{MessageReader, MessageWriter};
use crate::SqlError;
use crate::common::schema::Table;
use crate::common::wire::{Parameter, WireStatement};
use crate::functions::job_requests::JobRequest;
use crate::statements::encoding::{Encoding, Form};
use crate::statements::scan_filter::ScanFilter;
use jobs::Filter;
use model::{ClusterId, DeviceId, JobId, JobState, Timestamp};
use query::Format;
use std::sync::Arc;

/// Number of row messages that a scan may send before the worker has read the first.
pub(crate) const CREDIT: usize = 2;
/// Maximum size of a message from a worker: a piece of text, or a scan request with the names of a whole statement.
pub(crate) const FROM_WORKER_MAX: usize = 2 << 20;
/// Maximum size of a message to a worker. The server builds these messages, and the worker's memory bounds them.
pub(crate) const TO_WORKER_MAX: usize = u32::MAX as usize;

/// Starts a statement, with all data that the worker needs except rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Begin {
    pub(crate) text: String,
    pub(crate) zone: String,
    pub(crate) now: i64,
    pub(crate) csv: bool,
    pub(crate) like_postgrest: bool,
    /// Whether EXPLAIN ANALYZE reports the amount of data read.
    pub(crate) reports_reads: bool,
    pub(crate) rows_max: u64,
    pub(crate) left_ms: u64,
    pub(crate) seconds: u64,
    pub(crate) memory_bytes: u64,
    /// The site's statements about a job.
    pub(crate) job_requests: Vec<JobRequest>,
    /// Of a statement of PostgreSQL's protocol.
    pub(crate) wire: Option<WireStatement>,
}

impl Begin {
    pub(crate) const fn format(&self) -> Format {
        if self.csv { Format::Csv } else { Format::Json }
    }

    pub(crate) fn form(&self) -> Form<'_> {
        let encoding = Encoding { format: self.format(), like_postgrest: self.like_postgrest };
        self.wire.as_ref().map_or(Form::Text(encoding), Form::Wire)
    }

    /// Memory of the statement in MiB, rounded up.
    pub(crate) fn memory_mib(&self) -> usize {
        usize::try_from(self.memory_bytes.div_ceil(1 << 20)).unwrap_or(usize::MAX)
    }
}

/// Offset of the rows in a message, after its kind and its scan.
pub(crate) const ROWS_AT: usize = 5;

/// A decoded message to a worker.
#[derive(Debug)]
pub(crate) enum ToWorker {
    Begin(Begin),
    /// Rows of a scan. They start at [`ROWS_AT`]; `rows.rs` describes the format.
    Rows(u32),
    ScanEnd(u32, ReadSoFar),
    ScanFailed(u32),
}

/// Amount that the server has read from blocks for the statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadSoFar {
    pub(crate) bytes: u64,
    pub(crate) rows: u64,
    pub(crate) row_groups: u64,
}

pub(crate) fn begin(begin: &Begin) -> Vec<u8> {
    let mut put = MessageWriter::message(0);
    put.text(&begin.text);
    put.text(&begin.zone);
    put.i64(begin.now);
    put.flag(begin.csv);
    put.flag(begin.like_postgrest);
    put.flag(begin.reports_reads);
    put.u64(begin.rows_max);
    put.u64(begin.left_ms);
    put.u64(begin.seconds);
    put.u64(begin.memory_bytes);
    put.all(begin.job_requests.iter(), |put, request| {
        put.count(request.line);
        put.all(request.keys.iter(), |put, key| put.text(key));
        put.text(&request.text);
    });
    put.maybe(begin.wire.as_ref(), put_wire);
    put.finish()
}

fn put_wire(put: &mut MessageWriter, wire: &WireStatement) {
    put.all(wire.parameters.iter(), |put, parameter| {
        put.u32(parameter.oid);
        put.maybe(parameter.value.as_deref(), MessageWriter::text);
    });
    put.all(wire.binary.iter(), |put, binary| put.flag(*binary));
    put.flag(wire.describes);
    put.text(&wire.user);
    put.u32(wire.session);
    put.all(wire.settings.iter(), |put, (name, value)| {
        put.text(name);
        put.text(value);
    });
}

fn take_wire(take: &mut MessageReader<'_>) -> Option<WireStatement> {
    let parameter = |take: &mut MessageReader<'_>| {
        Some(Parameter { oid: take.u32()?, value: take.maybe(MessageReader::owned)? })
    };
    Some(WireStatement {
        parameters: take.all(parameter)?,
        binary: take.all(MessageReader::flag)?,
        describes: take.flag()?,
        user: take.owned()?,
        session: take.u32()?,
        settings: take.all(|take| Some((take.owned()?, take.owned()?)))?,
    })
}

/// Starts a message of rows.
pub(crate) fn rows(scan: u32) -> MessageWriter {
    let mut put = MessageWriter::message(1);
    put.u32(scan);
    put
}

pub(crate) fn scan_end(scan: u32, read: ReadSoFar) -> Vec<u8> {
    let mut put = MessageWriter::message(2);
    put.u32(scan);
    put.u64(read.bytes);
    put.u64(read.rows);
    put.u64(read.row_groups);
    put.finish()
}

pub(crate) fn scan_failed(scan: u32) -> Vec<u8> {
    let mut put = MessageWriter::message(3);
    put.u32(scan);
    put.finish()
}

impl ToWorker {
    pub(crate) fn read(message: &[u8]) -> Option<Self> {
        let (kind, rest) = message.split_first()?;
        let mut take = MessageReader::new(rest);
        Some(match kind {
            0 => Self::Begin(Begin {
                text: take.owned()?,
                zone: take.owned()?,
                now: take.i64()?,
                csv: take.flag()?,
                like_postgrest: take.flag()?,
                reports_reads: take.flag()?,
                rows_max: take.u64()?,
                left_ms: take.u64()?,
                seconds: take.u64()?,
                memory_bytes: take.u64()?,
                job_requests: take.all(|take| {
                    let (line, keys) = (take.count()?, take.all(MessageReader::owned)?);
                    Some(JobRequest { line, keys, text: take.owned()? })
                })?,
                wire: take.maybe(take_wire)?,
            }),
            1 => Self::Rows(take.u32()?),
            2 => {
                let (scan, bytes, rows) = (take.u32()?, take.u64()?, take.u64()?);
                Self::ScanEnd(scan, ReadSoFar { bytes, rows, row_groups: take.u64()? })
            }
            3 => Self::ScanFailed(take.u32()?),
            _ => return None,
        })
    }
}

/// A worker's request for the rows of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScanRequest {
    pub(crate) table: Table,
    /// Arguments of a function, by name.
    pub(crate) arguments: Vec<(String, String)>,
    /// Requested columns of the table, in this order.
    pub(crate) kept: Vec<usize>,
    pub(crate) narrow: ScanFilter,
    pub(crate) limit: Option<usize>,
}

/// The result before its first row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// Its text.
    pub(crate) text: Vec<u8>,
    /// Positions of the columns with times in the statement's time zone.
    pub(crate) times: Vec<usize>,
    /// Types of the parameters.
    pub(crate) parameters: Vec<u32>,
}

/// A decoded message from a worker.
#[derive(Debug)]
pub(crate) enum FromWorker {
    Scan(u32, Box<ScanRequest>),
    More(u32),
    Stop(u32),
    /// The statement is planned.
    Begins(Head),
    /// Number of rows, and their text.
    Text(u64, Vec<u8>),
    /// The text after the last row.
    End(Vec<u8>),
    Failed(Failure),
}

/// Reason why a worker has no result.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error of the statement.
    Statement(SqlError),
    /// A scan failed. The server knows the cause.
    Scan,
}

pub(crate) fn scan(id: u32, request: &ScanRequest) -> Vec<u8> {
    let mut put = MessageWriter::message(0);
    put.u32(id);
    let table = Table::every().position(|table| table == request.table);
    put.count(table.unwrap_or(usize::MAX));
    put.all(request.arguments.iter(), |put, (name, text)| {
        put.text(name);
        put.text(text);
    });
    put.all(request.kept.iter(), |put, place| put.count(*place));
    put.maybe(request.limit, MessageWriter::count);
    put_narrow(&mut put, &request.narrow);
    put.finish()
}

pub(crate) fn more(scan: u32) -> Vec<u8> {
    let mut put = MessageWriter::message(1);
    put.u32(scan);
    put.finish()
}

pub(crate) fn stop(scan: u32) -> Vec<u8> {
    let mut put = MessageWriter::message(2);
    put.u32(scan);
    put.finish()
}

pub(crate) fn begins(head: &Head) -> Vec<u8> {
    let mut put = MessageWriter::message(3);
    put.bytes(&head.text);
    put.all(head.times.iter(), |put, place| put.count(*place));
    put.all(head.parameters.iter(), |put, kind| put.u32(*kind));
    put.finish()
}

pub(crate) fn text(rows: u64, text: &[u8]) -> Vec<u8> {
    let mut put = MessageWriter::message(4);
    put.u64(rows);
    put.bytes(text);
    put.finish()
}

pub(crate) fn end(text: &[u8]) -> Vec<u8> {
    let mut put = MessageWriter::message(5);
    put.bytes(text);
    put.finish()
}

/// Maximum size of an error message in bytes.
const ERROR_BYTES_MAX: usize = 4096;

pub(crate) fn failed(error: &SqlError) -> Vec<u8> {
    let mut put = MessageWriter::message(6);
    let (kind, number, words) = match error {
        SqlError::Statement(words) => (0, 0, words.clone()),
        SqlError::NotSelect(words) => (1, 0, words.clone()),
        SqlError::TooManyRows(rows) => (2, *rows, String::new()),
        SqlError::TooSlow(seconds) => (3, *seconds, String::new()),
        SqlError::Memory(mib) => (4, u64::try_from(*mib).unwrap_or(u64::MAX), String::new()),
        SqlError::Value(words) => (5, 0, words.clone()),
        SqlError::Died(words) => (6, 0, words.clone()),
        SqlError::TooComplex(words) => (7, 0, words.clone()),
        SqlError::Pattern(words) => (10, 0, words.clone()),
        // An error of a scan. The server has the details.
        SqlError::Query(_) => (8, 0, String::new()),
        other => (9, 0, other.to_string()),
    };
    put.byte(kind);
    put.u64(number);
    let mut cut = words.len().min(ERROR_BYTES_MAX);
    while !words.is_char_boundary(cut) {
        cut -= 1;
    }
    put.text(words.get(..cut).unwrap_or_default());
    put.finish()
}

fn take_failed(take: &mut MessageReader<'_>) -> Option<Failure> {
    let (kind, number, words) = (take.byte()?, take.u64()?, take.owned()?);
    Some(Failure::Statement(match kind {
        0 => SqlError::Statement(words),
        1 => SqlError::NotSelect(words),
        2 => SqlError::TooManyRows(number),
        3 => SqlError::TooSlow(number),
        4 => SqlError::Memory(usize::try_from(number).unwrap_or(usize::MAX)),
        5 => SqlError::Value(words),
        6 => SqlError::Died(words),
        7 => SqlError::TooComplex(words),
        8 => return Some(Failure::Scan),
        10 => SqlError::Pattern(words),
        _ => SqlError::Internal(words),
    }))
}

impl FromWorker {
    pub(crate) fn read(message: &[u8]) -> Option<Self> {
        let (kind, rest) = message.split_first()?;
        let mut take = MessageReader::new(rest);
        let read = match kind {
            0 => {
                let (id, table) = (take.u32()?, take.count()?);
                let table = Table::every().nth(table)?;
                let arguments = take.all(|take| Some((take.owned()?, take.owned()?)))?;
                let kept: Vec<usize> = take.all(MessageReader::count)?;
                if kept.iter().any(|place| *place >= table.columns().len()) {
                    return None;
                }
                let limit = take.maybe(MessageReader::count)?;
                let narrow = take_narrow(&mut take)?;
                Self::Scan(id, Box::new(ScanRequest { table, arguments, kept, narrow, limit }))
            }
            1 => Self::More(take.u32()?),
            2 => Self::Stop(take.u32()?),
            3 => {
                let text = take.bytes()?.to_vec();
                let times = take.all(MessageReader::count)?;
                Self::Begins(Head { text, times, parameters: take.all(MessageReader::u32)? })
            }
            4 => Self::Text(take.u64()?, take.bytes()?.to_vec()),
            5 => Self::End(take.bytes()?.to_vec()),
            6 => Self::Failed(take_failed(&mut take)?),
            _ => return None,
        };
        take.is_done().then_some(read)
    }
}

fn put_narrow(put: &mut MessageWriter, narrow: &ScanFilter) {
    let ScanFilter { devices, metrics, ids, clusters, of_a_job, from, to, nothing, jobs } = narrow;
    put.maybe(devices.as_ref(), |put, set| put.all(set.iter(), |put, id| put.text(id.as_str())));
    put.maybe(metrics.as_ref(), |put, set| put.all(set.iter(), |put, name| put.text(name)));
    put.maybe(ids.as_ref(), |put, set| put.all(set.iter(), |put, id| put.i64(id.get())));
    put.maybe(clusters.as_ref(), |put, set| put.all(set.iter(), |put, id| put.text(id.as_str())));
    put.maybe(*of_a_job, MessageWriter::flag);
    put.i64(from.0);
    put.i64(to.0);
    put.flag(*nothing);
    put.maybe(jobs.state, |put, state| put.text(state.word()));
    put.maybe(jobs.cluster.as_ref(), |put, cluster| put.text(cluster.as_str()));
    put.maybe(jobs.uid, MessageWriter::u32);
    put.maybe(jobs.device.as_ref(), |put, device| put.text(device.as_str()));
    put.maybe(jobs.from, |put, at| put.i64(at.0));
    put.maybe(jobs.to, |put, at| put.i64(at.0));
    for text in [&jobs.user, &jobs.account, &jobs.project, &jobs.queue, &jobs.name] {
        put.maybe(text.as_deref(), MessageWriter::text);
    }
}

/// Decodes conditions. Names are validated again, because the server does not trust workers.
fn take_narrow(take: &mut MessageReader<'_>) -> Option<ScanFilter> {
    let device = |take: &mut MessageReader<'_>| DeviceId::foreign(take.text()?);
    let cluster = |take: &mut MessageReader<'_>| ClusterId::new(take.text()?).ok();
    let devices = take.maybe(|take| take.all(device))?;
    let metrics = take.maybe(|take| take.all(|take| take.text().map(Arc::from)))?;
    let ids = take.maybe(|take| take.all(|take| JobId::new(take.i64()?)))?;
    let clusters = take.maybe(|take| take.all(cluster))?;
    let of_a_job = take.maybe(MessageReader::flag)?;
    let (from, to) = (Timestamp(take.i64()?), Timestamp(take.i64()?));
    let nothing = take.flag()?;
    let jobs = Filter {
        state: take.maybe(|take| JobState::from_word(take.text()?))?,
        cluster: take.maybe(cluster)?,
        uid: take.maybe(MessageReader::u32)?,
        device: take.maybe(device)?,
        from: take.maybe(MessageReader::i64)?.map(Timestamp),
        to: take.maybe(MessageReader::i64)?.map(Timestamp),
        user: take.maybe(MessageReader::owned)?,
        account: take.maybe(MessageReader::owned)?,
        project: take.maybe(MessageReader::owned)?,
        queue: take.maybe(MessageReader::owned)?,
        name: take.maybe(MessageReader::owned)?,
        ..Filter::default()
    };
    Some(ScanFilter { devices, metrics, ids, clusters, of_a_job, from, to, nothing, jobs })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn read(message: &[u8]) -> Option<FromWorker> {
        FromWorker::read(&message[4..])
    }

    #[test]
    fn a_scan_comes_as_it_was_sent() {
        let narrow = ScanFilter {
            devices: Some(BTreeSet::from([DeviceId::new("n1").unwrap()])),
            metrics: Some(BTreeSet::from([Arc::from("load_1m")])),
            ids: Some(BTreeSet::from([JobId::new(7).unwrap()])),
            clusters: Some(BTreeSet::new()),
            of_a_job: Some(true),
            from: Timestamp(-1),
            nothing: true,
            jobs: Filter {
                state: Some(JobState::Failed),
                uid: Some(1000),
                to: Some(Timestamp(5)),
                account: Some("physics".to_owned()),
                ..Filter::default()
            },
            ..ScanFilter::default()
        };
        let arguments = vec![("nodes".to_owned(), "n1".to_owned())];
        let (table, kept) = (Table::GetMetrics, vec![3, 0]);
        let request = ScanRequest { table, arguments, kept, narrow, limit: Some(9) };
        let message = scan(4, &request);
        let Some(FromWorker::Scan(4, back)) = read(&message) else { panic!("{message:?}") };
        assert_eq!(*back, request);
        for cut in 4..message.len() {
            assert!(read(&message[..cut]).is_none(), "{cut}");
        }
        let beyond = ScanRequest { kept: vec![99], ..request };
        assert!(read(&scan(4, &beyond)).is_none(), "no such column");
    }

    #[test]
    fn errors_come_as_they_were_sent() {
        for error in [
            SqlError::Statement("é".repeat(4096)),
            SqlError::NotSelect("DROP".to_owned()),
            SqlError::TooManyRows(5),
            SqlError::TooSlow(6),
            SqlError::Memory(7),
            SqlError::Value("x".to_owned()),
            SqlError::Pattern("x".to_owned()),
            SqlError::Internal("y".to_owned()),
        ] {
            let Some(FromWorker::Failed(Failure::Statement(back))) = read(&failed(&error)) else {
                panic!("{error}")
            };
            assert_eq!((back.status(), back.code()), (error.status(), error.code()));
        }
        let scan = SqlError::Query(query::QueryError::Cancelled);
        assert!(matches!(read(&failed(&scan)), Some(FromWorker::Failed(Failure::Scan))));
    }
}
