//! `select=timestamp,watts:value,labels->>cpu,value::text` and `order=timestamp.desc,value.asc.nullsfirst`.

use super::column_ref::{ColumnRef, Rows, identifier, name};
use super::cursor::Cursor;
use crate::common::http_error::HttpError;

/// Types of casts, as clients write them, and as the engine does.
const TYPES: [(&str, &str); 16] = [
    ("text", "VARCHAR"),
    ("varchar", "VARCHAR"),
    ("smallint", "SMALLINT"),
    ("int2", "SMALLINT"),
    ("integer", "INTEGER"),
    ("int", "INTEGER"),
    ("int4", "INTEGER"),
    ("bigint", "BIGINT"),
    ("int8", "BIGINT"),
    ("real", "REAL"),
    ("float4", "REAL"),
    ("double precision", "DOUBLE PRECISION"),
    ("float8", "DOUBLE PRECISION"),
    ("numeric", "DOUBLE PRECISION"),
    ("timestamptz", "TIMESTAMPTZ"),
    ("date", "DATE"),
];

/// The columns of a result as SQL; all without a parameter `select`.
pub(crate) fn columns(select: Option<&str>, rows: &Rows<'_>) -> Result<String, HttpError> {
    let Some(select) = select.filter(|select| !select.trim().is_empty()) else {
        return Ok("*".to_owned());
    };
    let mut cursor = Cursor::new("select parameter", select);
    let mut columns = Vec::new();
    loop {
        columns.push(column(&mut cursor, rows)?);
        if cursor.is_done() {
            return Ok(columns.join(", "));
        }
        if !cursor.skip(",") {
            return Err(cursor.expected("\",\" or the end"));
        }
    }
}

/// `[ALIAS:]COLUMN[->>LABEL][::TYPE]`, or `*`.
fn column(cursor: &mut Cursor<'_>, rows: &Rows<'_>) -> Result<String, HttpError> {
    const ENDS: [char; 3] = [',', ':', '('];
    if cursor.skip("*") {
        return Ok("*".to_owned());
    }
    let begin = cursor.clone();
    let first = name(cursor, &ENDS)?;
    let has_alias = cursor.rest().starts_with(':') && !cursor.rest().starts_with("::");
    let alias = if has_alias {
        cursor.skip(":");
        Some(first)
    } else {
        *cursor = begin;
        None
    };
    let column = ColumnRef::read(cursor, &ENDS, rows)?;
    let mut sql = column.sql();
    if cursor.skip("::") {
        let begin = cursor.clone();
        let word = cursor.until(&[',']).trim().to_ascii_lowercase();
        let Some((_, of)) = TYPES.iter().find(|(of, _)| *of == word) else {
            return Err(begin.expected("a type, such as text, bigint, float8 or timestamptz"));
        };
        sql = format!("CAST({sql} AS {of})");
    }
    let alias = alias.as_deref().unwrap_or_else(|| column.name());
    Ok(format!("{sql} AS {}", identifier(alias)))
}

/// The order of a result as SQL.
pub(crate) fn order(order: &str, rows: &Rows<'_>) -> Result<String, HttpError> {
    let mut cursor = Cursor::new("order", order);
    let mut terms = Vec::new();
    loop {
        let mut term = ColumnRef::read(&mut cursor, &['.', ','], rows)?.sql();
        for (word, sql) in [(".asc", " ASC"), (".desc", " DESC")] {
            if cursor.skip(word) {
                term.push_str(sql);
                break;
            }
        }
        for (word, sql) in [(".nullsfirst", " NULLS FIRST"), (".nullslast", " NULLS LAST")] {
            if cursor.skip(word) {
                term.push_str(sql);
                break;
            }
        }
        terms.push(term);
        if cursor.is_done() {
            return Ok(terms.join(", "));
        }
        if !cursor.skip(",") {
            return Err(cursor.expected("asc, desc, nullsfirst, nullslast, \",\" or the end"));
        }
    }
}
