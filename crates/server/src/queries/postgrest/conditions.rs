//! Conditions of rows: `value=gt.5`, `labels->>cpu=in.(0,1)`, `or=(a.eq.1,not.and(b.lt.2,c.is.null))`.

use super::column_ref::{ColumnRef, Rows};
use super::cursor::Cursor;
use crate::common::http_error::HttpError;

/// Largest depth of `and` and `or` in each other.
const DEPTH_MAX: usize = 8;
/// Ends of a value in a logic tree.
const VALUE_ENDS: [char; 2] = [',', ')'];

/// Operators that compare with one value: their words, and those of SQL.
const COMPARISONS: [(&str, &str); 7] = [
    ("eq", "="),
    ("neq", "<>"),
    ("gte", ">="),
    ("gt", ">"),
    ("lte", "<="),
    ("lt", "<"),
    ("isdistinct", "IS DISTINCT FROM"),
];
/// Operators on texts. The patterns of the first two have `*` in the place of `%`.
const PATTERNS: [(&str, &str); 4] =
    [("like", "LIKE"), ("ilike", "ILIKE"), ("match", "~"), ("imatch", "~*")];

/// The condition of a column by a parameter `COLUMN=OPERATOR.VALUE`.
pub(crate) fn of_column(name: &str, filter: &str, rows: &Rows<'_>) -> Result<String, HttpError> {
    let mut key = Cursor::new("filter", name);
    let column = ColumnRef::read(&mut key, &[], rows)?;
    let mut cursor = Cursor::new("filter", filter);
    let condition = comparison(&column, &mut cursor, &[], rows)?;
    match cursor.is_done() {
        true => Ok(condition),
        false => Err(cursor.expected("the end")),
    }
}

/// The condition of a parameter `and=(…)`, `or=(…)`, `not.and=(…)` or `not.or=(…)`; none for another name.
pub(crate) fn of_tree(
    name: &str,
    tree: &str,
    rows: &Rows<'_>,
) -> Option<Result<String, HttpError>> {
    let (is_negated, word) = match name.strip_prefix("not.") {
        Some(word) => (true, word),
        None => (false, name),
    };
    if !matches!(word, "and" | "or") {
        return None;
    }
    let mut cursor = Cursor::new("logic tree", tree);
    let condition = list(word, &mut cursor, rows, 1).and_then(|condition| match cursor.is_done() {
        true => Ok(negated(is_negated, condition)),
        false => Err(cursor.expected("the end")),
    });
    Some(condition)
}

fn negated(is_negated: bool, condition: String) -> String {
    if is_negated { format!("(NOT {condition})") } else { condition }
}

/// `(CONDITION,CONDITION…)`, joined by `and` or `or`.
fn list(
    word: &str,
    cursor: &mut Cursor<'_>,
    rows: &Rows<'_>,
    depth: usize,
) -> Result<String, HttpError> {
    if depth > DEPTH_MAX {
        return Err(cursor.expected("at most 8 of `and` and `or` in each other"));
    }
    if !cursor.skip("(") {
        return Err(cursor.expected("\"(\""));
    }
    let mut conditions = Vec::new();
    loop {
        conditions.push(entry(cursor, rows, depth)?);
        if cursor.skip(")") {
            let joint = if word == "and" { " AND " } else { " OR " };
            return Ok(format!("({})", conditions.join(joint)));
        }
        if !cursor.skip(",") {
            return Err(cursor.expected("\",\" or \")\""));
        }
    }
}

/// An entry of a logic tree: another tree, or `COLUMN.OPERATOR.VALUE`.
fn entry(cursor: &mut Cursor<'_>, rows: &Rows<'_>, depth: usize) -> Result<String, HttpError> {
    for (begin, word, is_negated) in [
        ("and(", "and", false),
        ("or(", "or", false),
        ("not.and(", "and", true),
        ("not.or(", "or", true),
    ] {
        if cursor.rest().starts_with(begin) {
            cursor.skip(begin.trim_end_matches('('));
            return Ok(negated(is_negated, list(word, cursor, rows, depth + 1)?));
        }
    }
    let column = ColumnRef::read(cursor, &['.', ',', ')'], rows)?;
    if !cursor.skip(".") {
        return Err(cursor.expected("\".\" and an operator"));
    }
    comparison(&column, cursor, &VALUE_ENDS, rows)
}

/// `[not.]OPERATOR.VALUE`. The value ends at the first of these characters.
fn comparison(
    column: &ColumnRef,
    cursor: &mut Cursor<'_>,
    ends: &[char],
    rows: &Rows<'_>,
) -> Result<String, HttpError> {
    let is_negated = cursor.skip("not.");
    let begin = cursor.clone();
    let word = cursor.until(&['.', ',', ')', '(']);
    if !cursor.skip(".") {
        return Err(begin.expected(OPERATORS));
    }
    let sql = column.sql();
    if let Some((_, operator)) = COMPARISONS.iter().find(|(of, _)| *of == word) {
        let value = column.literal(&value(cursor, ends)?, rows)?;
        return Ok(negated(is_negated, format!("({sql} {operator} {value})")));
    }
    if let Some((_, operator)) = PATTERNS.iter().find(|(of, _)| *of == word) {
        if !column.is_text() {
            return Err(begin.expected("an operator of numbers and times"));
        }
        let pattern = value(cursor, ends)?;
        let is_like = word.ends_with("like");
        let pattern = if is_like { pattern.replace('*', "%") } else { pattern };
        let pattern = column.literal(&pattern, rows)?;
        return Ok(negated(is_negated, format!("({sql} {operator} {pattern})")));
    }
    let condition = match word {
        "in" => one_of(column, cursor, rows)?,
        "is" => {
            let begin = cursor.clone();
            match &*cursor.until(ends).to_ascii_lowercase() {
                "null" => format!("({sql} IS NULL)"),
                "not_null" => format!("({sql} IS NOT NULL)"),
                _ => return Err(begin.expected("null or not_null: no column is true or false")),
            }
        }
        _ => return Err(begin.expected(OPERATORS)),
    };
    Ok(negated(is_negated, condition))
}

const OPERATORS: &str =
    "an operator: eq, neq, gt, gte, lt, lte, isdistinct, like, ilike, match, imatch, in, is";

/// A value up to its end; in quotes where it contains the end.
fn value(cursor: &mut Cursor<'_>, ends: &[char]) -> Result<String, HttpError> {
    if ends.is_empty() {
        return Ok(cursor.until(ends).to_owned());
    }
    match cursor.quoted()? {
        Some(value) => Ok(value),
        None => Ok(cursor.until(ends).to_owned()),
    }
}

/// `(VALUE,VALUE…)`.
fn one_of(
    column: &ColumnRef,
    cursor: &mut Cursor<'_>,
    rows: &Rows<'_>,
) -> Result<String, HttpError> {
    if !cursor.skip("(") {
        return Err(cursor.expected("\"(\""));
    }
    if cursor.skip(")") {
        return Ok("(1 = 0)".to_owned());
    }
    let mut values = Vec::new();
    loop {
        values.push(column.literal(&value(cursor, &VALUE_ENDS)?, rows)?);
        if cursor.skip(")") {
            return Ok(format!("({} IN ({}))", column.sql(), values.join(", ")));
        }
        if !cursor.skip(",") {
            return Err(cursor.expected("\",\" or \")\""));
        }
    }
}
