//! Colmet's backends as tables: the columns of each record in the order of the wire, with their types, their form in
//! the text of Colmet's collector, and their equivalents here. Every format of this crate reads these tables.

mod per_job;
mod per_node;
mod rust_nodes;

pub use per_job::{JOBPROC, NVIDIA, PERFHW, TASKSTATS};
pub use per_node::{INFINIBAND, IPMIPOWER, LUSTRE, PROCSTATS, RAPL, TEMPERATURE};
pub use rust_nodes::{CPU, EVENTS, MEMORY};

use crate::equivalent::{Ours, Row, Scope};
use crate::formula::{Formula, Scale};
use model::{Kind, Unit};
use std::fmt;

/// Bytes of a header of a Python record: backend, host, job, timestamp.
pub const HEADER_BYTES: usize = 2 * NAME_FIELD_BYTES + 16;
/// Bytes of a name in that header.
pub const NAME_FIELD_BYTES: usize = 255;
/// Bytes of the text `involved_jobs`.
pub const INVOLVED_JOBS_BYTES: usize = 8192;

/// Nanoseconds in a second.
const NANO: u64 = 1_000_000_000;
/// Microseconds in a second, microjoules in a joule.
const MICRO: u64 = 1_000_000;
/// Ticks in a second, percent in a whole.
const CENTI: u64 = 100;
/// Bytes in a kibibyte.
const KIBI: u64 = 1024;
/// Bytes in a mebibyte.
const MEBI: u64 = 1_048_576;

/// Colmet's backends, in the order of its messages. [`EVENTS`], [`MEMORY`] and [`CPU`] are those of its Rust nodes.
pub static BACKENDS: [&Backend; 13] = [
    &TASKSTATS,
    &PROCSTATS,
    &JOBPROC,
    &PERFHW,
    &EVENTS,
    &RAPL,
    &TEMPERATURE,
    &INFINIBAND,
    &LUSTRE,
    &IPMIPOWER,
    &NVIDIA,
    &MEMORY,
    &CPU,
];

/// A family of values that Colmet sends in one record.
pub struct Backend {
    /// Its name in messages.
    pub id: &'static str,
    /// Its name in the reference page.
    pub title: &'static str,
    /// Its name in metrics: `jobproc` in `colmet_jobproc_rchar_bytes`.
    pub word: &'static str,
    /// Whether its records are of a job or of the node.
    pub scope: Scope,
    /// Note of the reference page.
    pub note: &'static str,
    /// The columns in the order of the wire.
    pub columns: &'static [Column],
    /// How many of the columns the records of older versions have.
    pub older: &'static [usize],
    /// Why received values are never stored under names of ours; `None`: only the columns decide.
    pub differs: Option<&'static str>,
}

impl Backend {
    const DEFAULT: Self = Self {
        id: "",
        title: "",
        word: "",
        scope: Scope::Node,
        note: "",
        columns: &[],
        older: &[],
        differs: None,
    };

    /// The backend with this name in the messages of Python nodes.
    pub fn of_python(id: &str) -> Option<&'static Self> {
        BACKENDS.into_iter().find(|backend| backend.is_of_python() && backend.id == id)
    }

    /// Whether Python nodes send it.
    pub fn is_of_python(&self) -> bool {
        self.id.ends_with("_default")
    }

    /// The position of the column with this name.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.row.theirs == name)
    }

    /// Bytes of a Python record with the first columns.
    pub fn record_bytes(&self, columns: usize) -> usize {
        let bytes = self.columns.iter().take(columns).map(|column| column.kind.bytes());
        HEADER_BYTES + bytes.sum::<usize>()
    }
}

impl PartialEq for Backend {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Backend {}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id)
    }
}

/// A value of a record.
#[derive(Debug)]
pub struct Column {
    /// Its name, and its equivalent here.
    pub row: Row,
    /// Its type in Python records.
    pub kind: ColumnType,
    /// Its form in the text of Colmet's collector.
    pub shown: Shown,
    /// What the collector's text orders lines by.
    pub line: &'static str,
    /// Unit, kind and factor, where the equivalent has none.
    pub apart: Option<(Unit, Kind, Scale)>,
}

/// The type of a column in Python records. All are little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// 8 bytes, unsigned.
    Unsigned,
    /// 4 bytes, unsigned.
    UnsignedShort,
    /// 8 bytes, signed.
    Signed,
    /// 4 bytes, floating point.
    Float,
    /// [`INVOLVED_JOBS_BYTES`] bytes of text, padded with NUL.
    Text,
}

impl ColumnType {
    /// Bytes in a record.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Unsigned | Self::Signed => 8,
            Self::UnsignedShort | Self::Float => 4,
            Self::Text => INVOLVED_JOBS_BYTES,
        }
    }
}

/// The form of a value in the text of Colmet's collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// In steps of 1000.
    Count,
    /// Bytes in steps of 1024.
    Bytes,
    /// Kibibytes in steps of 1024.
    Kibibytes,
    /// Whole seconds.
    Seconds,
    /// Microseconds in steps of 1000, up to seconds.
    Microseconds,
    /// Nanoseconds in steps of 1000, up to seconds.
    Nanoseconds,
    /// Mebibytes times microseconds, as byte-seconds in steps of 1024.
    MebibyteMicroseconds,
    /// Degrees.
    Celsius,
    /// Seconds since 1970, as local date and time.
    Date,
    /// As it is.
    Plain,
}

const fn column(theirs: &'static str, kind: ColumnType, shown: Shown, ours: Ours) -> Column {
    Column { row: Row { theirs, ours }, kind, shown, line: theirs, apart: None }
}

const fn unsigned(theirs: &'static str, shown: Shown, formula: Formula) -> Column {
    column(theirs, ColumnType::Unsigned, shown, Ours::Is(formula))
}

const fn short(theirs: &'static str, shown: Shown, formula: Formula) -> Column {
    column(theirs, ColumnType::UnsignedShort, shown, Ours::Is(formula))
}

const fn signed(theirs: &'static str, shown: Shown, formula: Formula) -> Column {
    column(theirs, ColumnType::Signed, shown, Ours::Is(formula))
}

const fn float(theirs: &'static str, formula: Formula) -> Column {
    column(theirs, ColumnType::Float, Shown::Plain, Ours::Is(formula))
}

const fn grows(theirs: &'static str, formula: Formula) -> Column {
    column(theirs, ColumnType::Signed, Shown::Count, Ours::Grows(formula))
}

/// A column without an equivalent: its own unit, kind and factor, and why it has none.
const fn not(
    theirs: &'static str,
    unit: Unit,
    kind: Kind,
    scale: Scale,
    why: &'static str,
) -> Column {
    let mut column = column(theirs, ColumnType::Signed, Shown::Count, Ours::Not(why));
    column.apart = Some((unit, kind, scale));
    column
}

impl Column {
    /// The same column, with another key of the order of lines.
    const fn line(mut self, line: &'static str) -> Self {
        self.line = line;
        self
    }

    /// The number N of a column `counter_N`.
    pub fn number(&self) -> Option<usize> {
        self.row.theirs.strip_prefix("counter_")?.parse().ok()
    }
}

/// The jobs on the node, which Colmet writes into records of nodes.
const INVOLVED_JOBS: Column =
    column("involved_jobs", ColumnType::Text, Shown::Plain, Ours::JobsOfNode);

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Lengths of 0.6.10, and of the versions before 0.6.6 and up to 0.5.4.
    #[test]
    fn the_records_have_colmets_lengths() {
        for (backend, length, older) in [
            (&TASKSTATS, 762, &[][..]),
            (&PROCSTATS, 9202, &[1010]),
            (&JOBPROC, 606, &[582]),
            (&PERFHW, 566, &[]),
            (&NVIDIA, 582, &[]),
            (&TEMPERATURE, 574, &[]),
            (&RAPL, 8910, &[]),
            (&INFINIBAND, 8750, &[558]),
            (&LUSTRE, 8750, &[]),
            (&IPMIPOWER, 8726, &[]),
        ] {
            assert_eq!(backend.record_bytes(backend.columns.len()), length, "{backend:?}");
            let lengths = backend.older.iter().map(|columns| backend.record_bytes(*columns));
            assert_eq!(lengths.collect::<Vec<_>>(), older, "{backend:?}");
            assert_eq!(Backend::of_python(backend.id), Some(backend));
        }
        assert_eq!(BACKENDS.iter().filter(|backend| backend.is_of_python()).count(), 10);
    }

    /// Its Rust nodes number their metrics: memory and cpu below 39, perf events from 39 on.
    #[test]
    fn the_numbers_of_keys_equal_colmets() {
        assert_eq!(MEMORY.columns.len() + CPU.columns.len(), 39);
        assert_eq!(EVENTS.columns.len(), 28);
    }

    #[test]
    fn no_name_is_listed_twice() {
        let ids: BTreeSet<_> = BACKENDS.iter().map(|backend| backend.id).collect();
        assert_eq!(ids.len(), BACKENDS.len());
        for backend in BACKENDS {
            let names: BTreeSet<_> = backend.columns.iter().map(|it| it.row.theirs).collect();
            assert_eq!(names.len(), backend.columns.len(), "{backend:?}");
        }
    }

    /// A column that is stored has a unit and a factor: those of its formula, or its own.
    #[test]
    fn a_column_without_an_equivalent_has_a_unit_of_its_own() {
        for column in BACKENDS.iter().flat_map(|backend| backend.columns) {
            let is_not = matches!(column.row.ours, Ours::Not(_));
            assert_eq!(is_not, column.apart.is_some(), "{column:?}");
            assert!(!matches!(column.row.ours, Ours::Label(..)), "{column:?}");
        }
    }
}
