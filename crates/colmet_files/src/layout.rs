//! The table of a backend: columns in the order of their names, and the bytes of a row.

use colmet::backends::{Backend, ColumnType, INVOLVED_JOBS_BYTES, NAME_FIELD_BYTES};
use colmet::record::{Record, Value};

/// Rows of a chunk are chosen so that it has about this size.
const CHUNK_BYTES: usize = 64 * 1024;
/// Microseconds in a second.
const MICRO: i64 = 1_000_000;
/// The value of a column that has none.
const MISSING: i64 = -1;

/// Columns of Colmet's tables that no record has: they contain no value in its files, either.
const EMPTY_COLUMNS: [(&str, &str, Kind); 2] = [
    ("jobprocstats_default", "involved_jobs", Kind::Text(INVOLVED_JOBS_BYTES)),
    ("procstats_default", "meminfo_hardwarecorrupted", Kind::Integer),
];

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// 8 bytes, signed.
    Integer,
    /// 4 bytes.
    Float,
    /// Text of that many bytes, padded with NUL.
    Text(usize),
}

impl Kind {
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Integer => 8,
            Self::Float => 4,
            Self::Text(bytes) => bytes,
        }
    }
}

/// From where a column has its value.
#[derive(Clone, Copy, Debug)]
enum Origin {
    Host,
    Job,
    Backend,
    Time,
    /// The column of the record with this place.
    Value(usize),
    Nothing,
}

/// The table of a backend.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) backend: &'static Backend,
    columns: Vec<(&'static str, Kind, Origin)>,
    pub(crate) row_bytes: usize,
    pub(crate) chunk_rows: usize,
}

impl Layout {
    pub(crate) fn new(backend: &'static Backend) -> Self {
        let name = Kind::Text(NAME_FIELD_BYTES);
        let mut columns = vec![
            ("hostname", name, Origin::Host),
            ("job_id", Kind::Integer, Origin::Job),
            ("metric_backend", name, Origin::Backend),
            ("timestamp", Kind::Integer, Origin::Time),
        ];
        let values = backend.columns.iter().enumerate();
        columns.extend(
            values.map(|(place, column)| {
                (column.row.theirs, kind(column.kind), Origin::Value(place))
            }),
        );
        let empty = EMPTY_COLUMNS.iter().filter(|(of, ..)| *of == backend.id);
        columns.extend(empty.map(|(_, name, kind)| (*name, *kind, Origin::Nothing)));
        columns.sort_by_key(|(name, ..)| *name);
        let row_bytes = columns.iter().map(|(_, kind, _)| kind.bytes()).sum();
        Self { backend, columns, row_bytes, chunk_rows: CHUNK_BYTES / row_bytes }
    }

    /// Name and type of each column.
    pub(crate) fn columns(&self) -> impl Iterator<Item = (&'static str, Kind)> {
        self.columns.iter().map(|(name, kind, _)| (*name, *kind))
    }

    pub(crate) fn chunk_bytes(&self) -> usize {
        self.row_bytes * self.chunk_rows
    }

    /// Appends the row of a record. Numbers that the type cannot hold are missing, as Colmet writes them.
    pub(crate) fn write_row(&self, record: &Record, out: &mut Vec<u8>) {
        for (_, kind, origin) in &self.columns {
            let value = match origin {
                Origin::Value(place) => record.values.get(*place).and_then(Option::as_ref),
                _ => None,
            };
            match kind {
                Kind::Integer => {
                    let number = match (origin, value) {
                        (Origin::Job, _) => i64::try_from(record.job).unwrap_or(MISSING),
                        (Origin::Time, _) => record.at.0.div_euclid(MICRO),
                        (_, Some(Value::Signed(number))) => *number,
                        (_, Some(Value::Unsigned(number))) => {
                            i64::try_from(*number).unwrap_or(MISSING)
                        }
                        _ => MISSING,
                    };
                    out.extend_from_slice(&number.to_le_bytes());
                }
                Kind::Float => {
                    let number = match value {
                        Some(Value::Float(number)) => *number,
                        _ => -1.0,
                    };
                    out.extend_from_slice(&number.to_le_bytes());
                }
                Kind::Text(bytes) => {
                    let text = match (origin, value) {
                        (Origin::Host, _) => &record.host,
                        (Origin::Backend, _) => self.backend.id,
                        (_, Some(Value::Text(text))) => text,
                        _ => "",
                    };
                    let end = out.len() + bytes;
                    out.extend(text.bytes().take(*bytes));
                    out.resize(end, 0);
                }
            }
        }
    }
}

fn kind(kind: ColumnType) -> Kind {
    match kind {
        ColumnType::Unsigned | ColumnType::UnsignedShort | ColumnType::Signed => Kind::Integer,
        ColumnType::Float => Kind::Float,
        ColumnType::Text => Kind::Text(INVOLVED_JOBS_BYTES),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colmet::backends::{BACKENDS, JOBPROC, PERFHW, TASKSTATS};

    /// Row bytes that Colmet's tables have, and those of the columns that it leaves out.
    #[test]
    fn rows_have_colmets_bytes_and_the_columns_that_it_leaves_out() {
        assert_eq!(Layout::new(&TASKSTATS).row_bytes, 766);
        assert_eq!(Layout::new(&JOBPROC).row_bytes, 8774 + 3 * 8);
        let names: Vec<_> = Layout::new(&PERFHW).columns().map(|(name, _)| name).collect();
        assert_eq!(
            names[..6],
            ["counter_1", "counter_2", "counter_3", "counter_4", "counter_5", "hostname"]
        );
        for backend in BACKENDS.into_iter().filter(|backend| backend.is_of_python()) {
            assert!(Layout::new(backend).chunk_rows >= 4, "{backend:?}");
        }
    }
}
