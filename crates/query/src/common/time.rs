//! The common time parser of queries, with PostgreSQL's errors.

use crate::QueryError;
use api::TimeError;
use jiff::tz::TimeZone;
use model::Timestamp;

/// How far outside its allocation a sample of a job may lie: 10 s. A sample carries the instant of its tick,
/// which is a little before the reading. The last one is taken after the job has ended.
pub(crate) const SLACK: i64 = 10 * Timestamp::SECOND;

const TYPE: &str = "timestamp with time zone";

/// Parses a time like [`api::parse_time`], with PostgreSQL's errors.
///
/// # Errors
/// The text is not a valid time, or lies outside the calendar.
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
