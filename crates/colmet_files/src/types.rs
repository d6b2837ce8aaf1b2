//! The columns of a table, from the datatype in its file.

use crate::error::{FileError, Result};
use crate::header::{number, size};

/// Most columns of a table.
const COLUMNS_MAX: usize = 4096;

/// A column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
    pub(crate) kind: CellKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CellKind {
    Signed,
    Unsigned,
    Float,
    Text,
    /// Arrays, references and such: not read.
    Unknown,
}

/// A value of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A whole number.
    Integer(i64),
    /// Another number.
    Float(f64),
    /// Text without its padding.
    Text(String),
}

/// The columns of rows, and the bytes of a row.
///
/// # Errors
/// It is no compound type, or damaged.
pub(crate) fn columns(datatype: &[u8]) -> Result<(Vec<Column>, usize)> {
    let head = number(datatype, 0, 1)?;
    let (version, class) = (head >> 4, head & 15);
    let row_bytes = size(number(datatype, 4, 4)?);
    if class != 6 || !(1..=3).contains(&version) {
        return Err(FileError::Unknown("rows that are no compounds".to_owned()));
    }
    let count = size(number(datatype, 1, 2)?).min(COLUMNS_MAX);
    let mut place = 8;
    let mut out = Vec::new();
    for _ in 0..count {
        let (column, end) = member(datatype, place, version, row_bytes)?;
        out.push(column);
        place = end;
    }
    let is_inside = |column: &Column| column.offset.saturating_add(column.bytes) <= row_bytes;
    if row_bytes == 0 || !out.iter().all(is_inside) {
        return Err(FileError::Damaged("a column is outside of its row"));
    }
    Ok((out, row_bytes))
}

fn member(bytes: &[u8], start: usize, version: u64, row_bytes: usize) -> Result<(Column, usize)> {
    let damaged = || FileError::Damaged("a datatype");
    let rest = bytes.get(start..).ok_or_else(damaged)?;
    let length = rest.iter().position(|byte| *byte == 0).ok_or_else(damaged)?;
    let name = String::from_utf8_lossy(rest.get(..length).unwrap_or_default()).into_owned();
    let mut place =
        start + if version == 3 { length + 1 } else { (length + 1).next_multiple_of(8) };
    let offset_bytes = match (version, row_bytes) {
        (3, ..=0xff) => 1,
        (3, ..=0xffff) => 2,
        (3, ..=0xff_ffff) => 3,
        _ => 4,
    };
    let offset = size(number(bytes, place, offset_bytes)?);
    place += offset_bytes;
    let mut is_array = false;
    if version == 1 {
        is_array = number(bytes, place, 1)? > 0;
        place += 28;
    }
    let (kind, size, end) = scalar(bytes, place)?;
    let kind = if is_array { CellKind::Unknown } else { kind };
    Ok((Column { name, offset, bytes: size, kind }, end))
}

/// The type at a place, its bytes, and where its description ends.
fn scalar(bytes: &[u8], place: usize) -> Result<(CellKind, usize, usize)> {
    let [class, flags, size_of] =
        [number(bytes, place, 1)? & 15, number(bytes, place + 1, 1)?, number(bytes, place + 4, 4)?];
    let (is_little, size_of) = (flags & 1 == 0, size(size_of));
    let (kind, more) = match class {
        0 if is_little && matches!(size_of, 1 | 2 | 4 | 8) => {
            (if flags & 8 == 0 { CellKind::Unsigned } else { CellKind::Signed }, 4)
        }
        0 => (CellKind::Unknown, 4),
        1 if is_little && matches!(size_of, 4 | 8) => (CellKind::Float, 12),
        1 => (CellKind::Unknown, 12),
        3 => (CellKind::Text, 0),
        4 => (CellKind::Unknown, 4),
        // The lengths of others depend on what they contain.
        _ => return Err(FileError::Unknown(format!("a column with a type of class {class}"))),
    };
    Ok((kind, size_of, place + 8 + more))
}

impl Column {
    /// The value of this column in a row; `None`: its type is not known, or its number does not fit.
    pub fn cell(&self, row: &[u8]) -> Option<Cell> {
        let bytes = row.get(self.offset..self.offset + self.bytes)?;
        match (self.kind, bytes) {
            (CellKind::Signed, bytes) => {
                // Sign extension: the highest byte is repeated.
                let fill = if bytes.last()? & 0x80 == 0 { 0 } else { 0xff };
                let mut all = [fill; 8];
                all.get_mut(..bytes.len())?.copy_from_slice(bytes);
                Some(Cell::Integer(i64::from_le_bytes(all)))
            }
            (CellKind::Unsigned, bytes) => {
                i64::try_from(crate::io::u64_of(bytes)).ok().map(Cell::Integer)
            }
            (CellKind::Float, [a, b, c, d]) => {
                Some(Cell::Float(f64::from(f32::from_le_bytes([*a, *b, *c, *d]))))
            }
            (CellKind::Float, bytes) => {
                Some(Cell::Float(f64::from_le_bytes(bytes.try_into().ok()?)))
            }
            (CellKind::Text, bytes) => {
                let text = bytes.split(|byte| *byte == 0).next()?;
                Some(Cell::Text(String::from_utf8_lossy(text).into_owned()))
            }
            (CellKind::Unknown, _) => None,
        }
    }
}
