//! A column, or a label in it, and the values that it is compared with.

use super::cursor::Cursor;
use crate::common::http_error::{HttpError, Why};
use axum::http::StatusCode;
use jiff::tz::TimeZone;
use model::Timestamp;
use query::parse_time;
use sql::Column;

/// The columns of the rows, and how a time without a zone is read.
#[derive(Debug)]
pub(crate) struct Rows<'a> {
    /// Name of the table or function.
    pub(crate) name: &'a str,
    pub(crate) columns: Vec<(&'static str, Column)>,
    pub(crate) now: Timestamp,
    pub(crate) zone: &'a TimeZone,
}

/// A column, or a label: `labels->>cpu`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ColumnRef {
    pub(crate) column: &'static str,
    pub(crate) kind: Column,
    pub(crate) label: Option<String>,
}

impl ColumnRef {
    /// Reads a column's name up to the first of these characters.
    pub(crate) fn read(
        cursor: &mut Cursor<'_>,
        ends: &[char],
        rows: &Rows<'_>,
    ) -> Result<Self, HttpError> {
        let name = name(cursor, ends)?;
        let found = rows.columns.iter().find(|(column, _)| *column == name);
        let Some((column, kind)) = found.copied() else {
            return Err(unknown(&name, rows));
        };
        let label = match (column == "labels", cursor.skip("->>"), cursor.rest()) {
            (true, true, _) => Some(label(cursor, ends)?),
            (_, false, rest) if !rest.starts_with("->") => None,
            _ => return Err(cursor.expected("\"labels->>\" and the name of a label")),
        };
        Ok(Self { column, kind, label })
    }

    /// The name that it has in the result.
    pub(crate) fn name(&self) -> &str {
        self.label.as_deref().unwrap_or(self.column)
    }

    pub(crate) fn sql(&self) -> String {
        match &self.label {
            Some(label) => format!("({}->>{})", identifier(self.column), text(label)),
            None => identifier(self.column),
        }
    }

    pub(crate) const fn is_text(&self) -> bool {
        matches!(self.kind, Column::Text)
    }

    /// A value of this column's type, from its text.
    pub(crate) fn literal(&self, given: &str, rows: &Rows<'_>) -> Result<String, HttpError> {
        let invalid = |type_name: &str| {
            let shown: String = given.chars().take(100).collect();
            let message = format!("invalid input syntax for type {type_name}: \"{shown}\"");
            HttpError::new(StatusCode::BAD_REQUEST, "22P02", Why::Malformed, message)
        };
        Ok(match self.kind {
            Column::Text => text(given),
            Column::Number => {
                given.trim().parse::<i64>().map_err(|_| invalid("bigint"))?.to_string()
            }
            Column::Value => {
                let number: f64 = given.trim().parse().map_err(|_| invalid("double precision"))?;
                format!("CAST('{number:?}' AS DOUBLE PRECISION)")
            }
            Column::Time => text(&parse_time(given, rows.now, rows.zone)?.to_string()),
        })
    }
}

/// A name as it is, or in quotes.
pub(crate) fn name(cursor: &mut Cursor<'_>, ends: &[char]) -> Result<String, HttpError> {
    if let Some(name) = cursor.quoted()? {
        return Ok(name);
    }
    match plain_name(cursor, ends) {
        "" => Err(cursor.expected("the name of a column")),
        name => Ok(name.to_owned()),
    }
}

/// A name without quotes: up to the first of these characters, or to an arrow.
fn plain_name<'a>(cursor: &mut Cursor<'a>, ends: &[char]) -> &'a str {
    let rest = cursor.rest();
    let end = rest.find(ends).unwrap_or(rest.len());
    let name = rest.get(..end.min(rest.find("->").unwrap_or(end))).unwrap_or_default();
    cursor.skip(name);
    name
}

fn label(cursor: &mut Cursor<'_>, ends: &[char]) -> Result<String, HttpError> {
    let label = match cursor.quoted()? {
        Some(label) => label,
        None => plain_name(cursor, ends).to_owned(),
    };
    if label.is_empty() {
        return Err(cursor.expected("the name of a label"));
    }
    if cursor.rest().starts_with("->") {
        return Err(cursor.expected("the end of the label: no label is an object"));
    }
    Ok(label)
}

/// PostgreSQL's error for a column that does not exist.
fn unknown(name: &str, rows: &Rows<'_>) -> HttpError {
    let shown: String = name.chars().take(100).collect();
    let message = format!("column {}.{shown} does not exist", rows.name);
    let names = rows.columns.iter().map(|(name, _)| *name);
    let meant = config::nearest(name, names.clone());
    let hint = match meant {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("the columns are {}", names.collect::<Vec<_>>().join(", ")),
    };
    HttpError::new(StatusCode::BAD_REQUEST, "42703", Why::Unknown, message).hint(Some(hint))
}

/// A text as a literal of SQL.
pub(crate) fn text(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A name as an identifier of SQL.
pub(crate) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
