//! Messages of Colmet's Rust nodes, in MessagePack. There are three layouts:
//!
//! ```text
//! branch colmet-rust   {job: [host, ms,          [[backend, [1, 2, …], [value, …]], …]]}
//! colmet-collector     {job: [host, ms, version, [[backend, [0, 1, …], [value, …]], …]]}
//! colmet-rs            {job: [host, ms, version, [[job, backend, ["0", "1", …], [value, …]], …]]}
//! ```
//!
//! The metrics have numbers: from 0 those of `metrics_order.yml`, version 1, and from 1 those of the branch, which lacks
//! three of them.

mod reader;
mod reconfiguration;

pub use reconfiguration::{MetricRequest, Reconfiguration};

use crate::backends::{Backend, CPU, EVENTS, MEMORY};
use crate::record::{Record, Value};
use model::{Timestamp, printable};
use reader::Reader;

/// A message that cannot be decoded from `offset` on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset}: {reason}")]
pub struct MsgpackError {
    /// Where the value begins in the message.
    pub offset: usize,
    /// Why it cannot be decoded.
    pub reason: MsgpackReason,
}

/// Why a value cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MsgpackReason {
    /// The message ends within the value.
    #[error("the message is cut off")]
    Truncated,
    /// A value of another type.
    #[error("it is not {0}")]
    Type(&'static str),
    /// More elements than the rest of the message can contain.
    #[error("{announced} elements are announced, and {left} bytes are left")]
    Length {
        /// Announced elements.
        announced: u64,
        /// Bytes left.
        left: usize,
    },
    /// A text that is not UTF-8.
    #[error("the text is not UTF-8")]
    Text,
    /// A number beyond 63 bits.
    #[error("{0} is out of range")]
    Number(u64),
    /// A number that is no job's, instant's or version's.
    #[error("{number} is not {what}")]
    Meaning {
        /// The number.
        number: i64,
        /// What it should be.
        what: &'static str,
    },
    /// An array of another length than the layouts have.
    #[error("an array has {found} elements instead of {expected}")]
    Layout {
        /// Its elements.
        found: usize,
        /// Those of the layouts.
        expected: &'static str,
    },
    /// Neither `memory`, `cpu` nor `perfhw`, whatever the case.
    #[error("unknown backend `{0}`")]
    Backend(String),
    /// Not the number of a metric of the backend.
    #[error("`{number}` is no metric of {backend}")]
    Metric {
        /// The number as sent.
        number: String,
        /// The backend.
        backend: &'static str,
    },
    /// A key that a message of settings does not have, or has twice.
    #[error("unexpected key `{0}`")]
    Key(String),
    /// A message of settings without this key.
    #[error("the key `{0}` is missing")]
    MissingKey(&'static str),
    /// A text that is not a period in seconds, or not a metric with its period and job.
    #[error("`{text}` is not {what}")]
    Setting {
        /// The text.
        text: String,
        /// What it should be.
        what: &'static str,
    },
    /// More bytes after the end.
    #[error("bytes follow the end of the message")]
    Trailing,
}

/// The start of a foreign text, for messages.
fn start_of(text: &str) -> String {
    printable(&text.chars().take(80).collect::<String>()).into_owned()
}

/// The names of `metrics_order.yml` that the branch `colmet-rust` does not have.
const NOT_IN_BRANCH: [&str; 3] = ["swap", "hierarchical_memsw_limit", "total_swap"];

/// How a layout numbers metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Numbers {
    /// From 1, without [`NOT_IN_BRANCH`].
    OfBranch,
    /// From 0.
    Whole,
    /// From 0, as decimal texts.
    Texts,
}

impl Numbers {
    /// The backend and the column of a metric's number.
    fn metric(self, number: usize) -> Option<(&'static Backend, usize)> {
        let mut all = [&MEMORY, &CPU, &EVENTS].into_iter().flat_map(|backend| {
            backend.columns.iter().enumerate().map(move |(place, it)| (backend, place, it))
        });
        let is_in_branch = |name: &str| !NOT_IN_BRANCH.contains(&name);
        let (backend, place, _) = match self {
            Self::OfBranch => all
                .filter(|(_, _, column)| is_in_branch(column.row.theirs))
                .nth(number.checked_sub(1)?)?,
            Self::Whole | Self::Texts => all.nth(number)?,
        };
        Some((backend, place))
    }
}

/// A job of a message, of which some backends remain to be read.
#[derive(Clone, Debug)]
struct Job<'a> {
    number: u64,
    host: &'a str,
    at: Timestamp,
    is_of_branch: bool,
    backends_left: usize,
}

/// The records of a message: one for each job and backend. After an error the rest cannot be decoded.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    reader: Reader<'a>,
    jobs_left: Option<usize>,
    job: Option<Job<'a>>,
    has_failed: bool,
}

impl<'a> Records<'a> {
    /// The records of these bytes.
    pub fn of(message: &'a [u8]) -> Self {
        let reader = Reader::of(message);
        Self { reader, jobs_left: None, job: None, has_failed: false }
    }

    fn error<T>(&self, offset: usize, reason: MsgpackReason) -> Result<T, MsgpackError> {
        Err(MsgpackError { offset, reason })
    }

    fn next_record(&mut self) -> Result<Option<Record>, MsgpackError> {
        loop {
            if let Some(mut job) = self.job.take()
                && job.backends_left > 0
            {
                job.backends_left -= 1;
                let record = self.record(&job)?;
                self.job = Some(job);
                return Ok(Some(record));
            }
            let jobs_left = match self.jobs_left {
                Some(left) => left,
                None => self.reader.map()?,
            };
            let Some(left) = jobs_left.checked_sub(1) else {
                self.jobs_left = Some(0);
                return match self.reader.is_at_end() {
                    true => Ok(None),
                    false => self.error(self.reader.offset(), MsgpackReason::Trailing),
                };
            };
            self.jobs_left = Some(left);
            self.job = Some(self.next_job()?);
        }
    }

    /// A number, with its offset: what is wrong with it is known later.
    fn number(&mut self) -> Result<(usize, i64), MsgpackError> {
        Ok((self.reader.offset(), self.reader.integer()?))
    }

    /// The length of an array, if the layouts have this one.
    fn layout(&mut self, known: &[usize], expected: &'static str) -> Result<usize, MsgpackError> {
        let offset = self.reader.offset();
        let found = self.reader.array()?;
        if known.contains(&found) {
            return Ok(found);
        }
        self.error(offset, MsgpackReason::Layout { found, expected })
    }

    fn next_job(&mut self) -> Result<Job<'a>, MsgpackError> {
        let number = self.job_number()?;
        let is_of_branch = self.layout(&[3, 4], "3 or 4")? == 3;
        let host = self.reader.text()?;
        let (offset, millis) = self.number()?;
        let meaning = |number, what| MsgpackReason::Meaning { number, what };
        let Some(micros) = millis.checked_mul(1000).filter(|micros| *micros >= 0) else {
            return self.error(offset, meaning(millis, "an instant"));
        };
        if !is_of_branch {
            let (offset, version) = self.number()?;
            if version != 1 {
                return self.error(offset, meaning(version, "version 1 of the metrics' numbers"));
            }
        }
        let backends_left = self.reader.array()?;
        Ok(Job { number, host, at: Timestamp(micros), is_of_branch, backends_left })
    }

    fn job_number(&mut self) -> Result<u64, MsgpackError> {
        let (offset, number) = self.number()?;
        u64::try_from(number).or_else(|_| {
            self.error(offset, MsgpackReason::Meaning { number, what: "the number of a job" })
        })
    }

    fn record(&mut self, job: &Job<'_>) -> Result<Record, MsgpackError> {
        let known: &[usize] = if job.is_of_branch { &[3] } else { &[3, 4] };
        let has_job = self.layout(known, "3, or 4 in colmet-rs")? == 4;
        let numbers = match (job.is_of_branch, has_job) {
            (true, _) => Numbers::OfBranch,
            (false, false) => Numbers::Whole,
            (false, true) => Numbers::Texts,
        };
        if has_job {
            let (offset, number) = self.number()?;
            if u64::try_from(number) != Ok(job.number) {
                let what = "the job of its record";
                return self.error(offset, MsgpackReason::Meaning { number, what });
            }
        }
        let offset = self.reader.offset();
        let name = self.reader.text()?;
        let named = [&MEMORY, &CPU, &EVENTS].into_iter();
        let Some(backend) = named.into_iter().find(|it| name.eq_ignore_ascii_case(it.id)) else {
            return self.error(offset, MsgpackReason::Backend(start_of(name)));
        };
        let mut record = Record::new(backend, job.host, job.number, job.at);
        let columns = self.columns(backend, numbers)?;
        let offset = self.reader.offset();
        let values = self.reader.array()?;
        if values != columns.len() {
            let expected = "as many as the metrics";
            return self.error(offset, MsgpackReason::Layout { found: values, expected });
        }
        for place in columns {
            let value = Some(Value::Signed(self.reader.integer()?));
            if let Some(slot) = record.values.get_mut(place) {
                *slot = value.filter(|value| !value.is_missing());
            }
        }
        Ok(record)
    }

    /// The columns that a record lists. The message has at least a byte for each.
    fn columns(
        &mut self,
        backend: &'static Backend,
        numbers: Numbers,
    ) -> Result<Vec<usize>, MsgpackError> {
        let listed = self.reader.array()?;
        let mut columns = Vec::new();
        for _ in 0..listed {
            let offset = self.reader.offset();
            let (number, text) = match numbers {
                Numbers::Texts => {
                    let text = self.reader.text()?;
                    (text.parse().ok(), start_of(text))
                }
                Numbers::OfBranch | Numbers::Whole => {
                    let number = self.reader.integer()?;
                    (usize::try_from(number).ok(), number.to_string())
                }
            };
            match number.and_then(|number| numbers.metric(number)) {
                Some((found, place)) if found == backend => columns.push(place),
                _ => {
                    let (number, backend) = (text, backend.id);
                    return self.error(offset, MsgpackReason::Metric { number, backend });
                }
            }
        }
        Ok(columns)
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Record, MsgpackError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        let next = self.next_record();
        self.has_failed = next.is_err();
        next.transpose()
    }
}
