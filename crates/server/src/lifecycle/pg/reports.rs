//! Errors as clients receive them: code, position and text.

use crate::common::http_error::HttpError;
use pg_wire::backend::{Report, characters};
use pg_wire::scanner::{Scanner, SyntaxError, Token};
use sql::SqlError;

/// Why a message has no result.
#[derive(Debug)]
pub(super) enum Failure {
    /// An error that the client receives; the session continues.
    Report(Box<Report>),
    /// An error that ends the session.
    Fatal(Box<Report>),
    /// The connection has ended.
    Gone,
}

impl Failure {
    /// The error of a statement that begins at this byte of a text, with its position in the text.
    pub(super) fn within(self, text: &str, start: usize) -> Self {
        match self {
            Self::Report(mut report) => {
                let before = characters(text, start);
                report.position = report.position.map(|position| position + before);
                Self::Report(report)
            }
            other => other,
        }
    }
}

impl From<Report> for Failure {
    fn from(report: Report) -> Self {
        Self::Report(Box::new(report))
    }
}

impl From<std::io::Error> for Failure {
    fn from(_: std::io::Error) -> Self {
        Self::Gone
    }
}

impl From<HttpError> for Failure {
    fn from(error: HttpError) -> Self {
        let HttpError { status, code, message, details, hint, .. } = error;
        // PostgREST's codes have no place in this protocol.
        let code = match code.len() {
            5 => code,
            _ if status == 400 => "22P02",
            _ => "22023",
        };
        Report { detail: details, hint, ..Report::error(code, message) }.into()
    }
}

/// The error of a statement that cannot be read.
pub(super) fn of_syntax(error: &SyntaxError, text: &str) -> Report {
    Report::error(error.code, error.what.clone()).at(text, error.at)
}

/// The error of the engine for a statement.
pub(super) fn of_sql(error: &SqlError, text: &str) -> Report {
    if let SqlError::Query(error) = error {
        let problem = error.problem();
        let code = if error.code().len() == 5 { error.code() } else { "22023" };
        let report = Report::error(code, problem.message);
        return Report { detail: problem.details, hint: problem.hint, ..report };
    }
    let message = error.to_string();
    let unknown = [
        ("there is no table function `", "42883"),
        ("there is no table `", "42P01"),
        ("there is no function `", "42883"),
        ("there is no column `", "42703"),
        ("there is no parameter ", "42P02"),
    ];
    let of_name = unknown.into_iter().find(|(begin, _)| message.starts_with(begin));
    let code = match (error, of_name) {
        (SqlError::NotSelect(_), _) => "25006",
        (SqlError::Statement(_), Some((_, code))) => code,
        (SqlError::Busy(_), _) => "53300",
        _ => error.code(),
    };
    let message = match error {
        SqlError::NotSelect(what) => format!("cannot execute {what}: tables are read only here"),
        _ => message,
    };
    let byte = of_name
        .and_then(|(begin, _)| message.strip_prefix(begin)?.split('`').next())
        .and_then(|name| byte_of_name(text, name))
        .or_else(|| byte_of_line(text, &message));
    let report = Report::error(code, message);
    match byte {
        Some(byte) => report.at(text, byte),
        None => report,
    }
}

/// The first byte of a name in a statement.
fn byte_of_name(text: &str, name: &str) -> Option<usize> {
    let last = name.rsplit('.').next()?;
    let mut scanner = Scanner::new(text);
    while let Ok(Some((at, token))) = scanner.token() {
        if matches!(&token, Token::Word(word) | Token::Quoted(word) if word == last) {
            return Some(at);
        }
    }
    None
}

/// The byte that an error names: `… in line 1, column 8`.
fn byte_of_line(text: &str, message: &str) -> Option<usize> {
    let (_, place) = message.rsplit_once(" in line ")?;
    let (line, column) = place.split_once(", column ")?;
    let column = column.split(|c: char| !c.is_ascii_digit()).next()?;
    let (line, column): (usize, usize) = (line.parse().ok()?, column.parse().ok()?);
    let (line, column) = (line.checked_sub(1)?, column.checked_sub(1)?);
    let before: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
    let rest = text.split_inclusive('\n').nth(line).unwrap_or_default();
    let within = rest.char_indices().nth(column).map_or(rest.trim_end().len(), |(at, _)| at);
    Some(before + within)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_their_position() {
        let position = |error: SqlError, text: &str| {
            let report = of_sql(&error, text);
            (report.code, report.position)
        };
        let statement = |text: &str| SqlError::Statement(text.to_owned());
        let text = "SELECT é,\n valeu FROM metrics";
        let unknown = statement("there is no column `valeu` here; the columns are value");
        assert_eq!(position(unknown, text), ("42703", Some(12)));
        let line = statement("invalid SQL: expected x, found y in line 2, column 2");
        assert_eq!(position(line, text), ("42601", Some(12)));
        let table = statement("there is no table `nix`; the tables are metrics");
        assert_eq!(position(table, "SELECT 1 FROM nix"), ("42P01", Some(15)));
        assert_eq!(position(SqlError::TooSlow(1), text), ("57014", None));
        assert_eq!(position(SqlError::NotSelect("INTO".into()), text).0, "25006");
        assert_eq!(position(statement("in line 9, column 9"), text), ("42601", None));
    }
}
