//! Times of questions: the parser that all share, with the errors of PostgreSQL.

use crate::QueryError;
use api::TimeError;
use jiff::tz::TimeZone;
use model::Timestamp;

/// How far outside its stay a reading may lie that was counted for a job: a sample carries the instant
/// of its tick, which is a little before the reading; and the last one is taken when the job has ended.
pub(crate) const SLACK: i64 = 10 * Timestamp::SECOND;

const TYPE: &str = "timestamp with time zone";

/// Reads a time as [`api::parse_time`] does; the error is PostgreSQL's.
///
/// # Errors
/// The text is no time, or lies outside the calendar.
pub fn parse_time(text: &str, now: Timestamp, zone: &TimeZone) -> Result<Timestamp, QueryError> {
    api::parse_time(text, now, zone).map_err(|error| match error {
        TimeError::Syntax(text) => QueryError::Syntax { type_name: TYPE, text },
        TimeError::Range(text) => QueryError::TimeRange(text),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_those_of_postgresql() {
        let code = |text| parse_time(text, Timestamp(0), &TimeZone::UTC).map_err(|e| e.code());
        assert_eq!(code("1970-01-01T00:00:00Z"), Ok(Timestamp(0)));
        assert_eq!(code("x"), Err("22007"));
        assert_eq!(code("2021-02-30"), Err("22008"));
    }
}
