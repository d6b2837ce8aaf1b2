//! The parser of times for the command line and for all server parameters.
//!
//! Accepted forms:
//! - `now`, `today`, `yesterday`, `tomorrow`, each also with a time of day (`yesterday 14:49`), and `epoch`;
//! - a duration before now: `10m`, `1h30m`, `-10m`; `+10m` is after now;
//! - a time of day, today: `14:49`, `14:49:05.25`;
//! - an ISO 8601 or RFC 3339 date with or without a time: `2021-06-08`, `2021-06-08 15:00:00.25`,
//!   `20210608T150000`;
//! - seconds since 1970: `1767706500.25`. A number alone always means seconds since 1970, never a duration.
//!
//! A date or a time of day may be followed by `Z`, an offset (`+02`, `+0200`, `+02:00`) or the name of a zone. A
//! blank may replace the `+` of an offset, because a `+` in a query string that was not encoded becomes a blank.
//! PostgreSQL's other forms (`June 8 2021`, `3:00 PM`) are rejected.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use jiff::{SignedDuration, ToSpan};
use model::Timestamp;

/// Longest part of a wrong text that an error repeats, in characters.
const SHOWN_MAX: usize = 100;

/// Why a text is no time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimeError {
    /// It has no form that is read.
    Syntax(String),
    /// It has no place in the calendar.
    Range(String),
}

impl std::fmt::Display for TimeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Syntax(text) => write!(
                f,
                "`{text}` is no time; write 10m or 1h30m (before now), 14:49, yesterday, 2026-01-06 14:49, \
                 2026-01-06T13:49:00Z, or seconds since 1970"
            ),
            Self::Range(text) => write!(f, "the calendar has no time `{text}`"),
        }
    }
}

impl std::error::Error for TimeError {}

/// Reads a time. One without a zone is in `zone`. Of two instants that a clock shows alike it is the later; a time
/// that clocks skip counts from the offset before.
///
/// # Errors
/// The text is no time, or lies outside the calendar.
pub fn parse_time(text: &str, now: Timestamp, zone: &TimeZone) -> Result<Timestamp, TimeError> {
    let trimmed = text.trim();
    let shown = || trimmed.chars().take(SHOWN_MAX).collect();
    let range = || TimeError::Range(shown());
    if let Some(at) = epoch(trimmed) {
        return at.ok_or_else(range);
    }
    if let Some(at) = relative(trimmed, now) {
        return at.ok_or_else(range);
    }
    match trimmed.to_ascii_lowercase().as_str() {
        "now" => return Ok(now),
        "epoch" => return Ok(Timestamp(0)),
        _ => {}
    }
    let read = on_a_day(trimmed, now, zone).or_else(|| {
        let (fields, rest) = Fields::read(trimmed)?;
        Some((fields, OffsetOrZone::read(rest, zone)?))
    });
    let (fields, place) = read.ok_or_else(|| TimeError::Syntax(shown()))?;
    fields.at(&place).ok_or_else(range)
}

/// A time zone by its name, such as `Europe/Paris`; `None`: this machine has none of that name.
pub fn parse_zone(name: &str) -> Option<TimeZone> {
    TimeZone::get(name).ok()
}

/// Seconds since 1970, exact to the microsecond where the text has no exponent. Outer `None`: it is no
/// number; inner: one out of range.
fn epoch(text: &str) -> Option<Option<Timestamp>> {
    let number = text.strip_prefix(['-', '+']).unwrap_or(text);
    let ok = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'-' | b'+');
    let leads = number.bytes().next().is_some_and(|byte| byte.is_ascii_digit() || byte == b'.');
    if !leads || !number.bytes().all(ok) {
        return None;
    }
    let seconds: f64 = text.parse().ok()?;
    if let Ok(at) = Timestamp::parse(text)
        && !number.contains(['e', 'E', '-', '+'])
    {
        return Some(Some(at));
    }
    let micros = (seconds * 1e6).round();
    // The calendar of `jiff` ends at 9999-12-31. The lower limit is the start of year 1.
    if !(-62_135_596_800e6..253_402_300_800e6).contains(&micros) {
        return Some(None);
    }
    #[expect(clippy::cast_possible_truncation, reason = "whole, and within the years 1 to 9999")]
    Some(Some(Timestamp(micros as i64)))
}

/// A duration before now; with a plus, after it. Outer `None`: it is no duration; inner: one out of range.
fn relative(text: &str, now: Timestamp) -> Option<Option<Timestamp>> {
    let (sign, length) = match text.strip_prefix('+') {
        Some(length) => (1, length),
        None => (-1, text.strip_prefix('-').unwrap_or(text)),
    };
    if !length.ends_with(|last: char| last.is_ascii_alphabetic()) {
        return None;
    }
    let length = model::setting::parse_duration(length)?;
    let micros =
        i64::try_from(length.as_micros()).ok().and_then(|micros| now.0.checked_add(sign * micros));
    Some(micros.filter(|micros| jiff::Timestamp::from_microsecond(*micros).is_ok()).map(Timestamp))
}

/// A day by its word, a time of day, or both.
fn on_a_day(text: &str, now: Timestamp, zone: &TimeZone) -> Option<(Fields, OffsetOrZone)> {
    let lower = text.to_ascii_lowercase();
    let words = [("today", 0), ("yesterday", -1), ("tomorrow", 1)];
    let word = words.into_iter().find(|(word, _)| lower.starts_with(word));
    let (tail, days) = match word {
        Some((word, days)) => (text.get(word.len()..)?, days),
        None => (text, 0),
    };
    let mut rest = tail.trim_start();
    let has_clock = !rest.is_empty();
    let is_joined = word.is_some() && has_clock && rest.len() == tail.len();
    if is_joined || word.is_none() && !has_clock {
        return None;
    }
    let clock = if has_clock { Clock::read(&mut rest)? } else { Clock::default() };
    let place = OffsetOrZone::read(rest, zone)?;
    let now = jiff::Timestamp::from_microsecond(now.0).ok()?;
    let date = match &place {
        OffsetOrZone::Offset(offset) => offset.to_datetime(now).date(),
        OffsetOrZone::Zone(zone) => zone.to_datetime(now).date(),
    };
    let date = date.checked_add(i64::from(days).days()).ok()?;
    Some((Fields { year: date.year(), month: date.month(), day: date.day(), clock }, place))
}

/// A time of day, its fields checked for their width only.
#[derive(Default)]
struct Clock {
    hour: i64,
    minute: i64,
    second: i64,
    micros: i64,
}

impl Clock {
    fn read(rest: &mut &str) -> Option<Self> {
        let mut clock = Self::default();
        if let Some(packed) = digits(rest, 6, 6) {
            (clock.hour, clock.minute, clock.second) =
                (packed / 10_000, packed / 100 % 100, packed % 100);
        } else {
            clock.hour = digits(rest, 1, 2)?;
            *rest = rest.strip_prefix(':')?;
            clock.minute = digits(rest, 1, 2)?;
            if let Some(tail) = rest.strip_prefix(':') {
                *rest = tail;
                clock.second = digits(rest, 1, 2)?;
            }
        }
        if let Some(tail) = rest.strip_prefix('.') {
            *rest = tail;
            clock.micros = fraction(rest)?;
        }
        Some(clock)
    }
}

/// The fields of a date and a time, checked for their width only.
struct Fields {
    year: i16,
    month: i8,
    day: i8,
    clock: Clock,
}

impl Fields {
    /// Reads date and time, and gives what follows them.
    fn read(text: &str) -> Option<(Self, &str)> {
        let mut rest = text;
        let (year, month, day) = date(&mut rest)?;
        let time = rest
            .strip_prefix(['T', 't', ' '])
            .filter(|tail| tail.bytes().next().is_some_and(|first| first.is_ascii_digit()));
        let mut clock = Clock::default();
        if let Some(tail) = time {
            rest = tail;
            clock = Clock::read(&mut rest)?;
        }
        Some((Self { year, month, day, clock }, rest))
    }

    fn at(&self, place: &OffsetOrZone) -> Option<Timestamp> {
        let Clock { hour, minute, second, micros: fraction } = self.clock;
        // Like PostgreSQL, 24:00:00 means the start of the next day, and a leap second the start of the next
        // minute.
        let whole_hour = (minute, second) == (0, 0) && fraction == 0;
        let ok = minute < 60 && second <= 60 && (hour < 24 || hour == 24 && whole_hour);
        if !ok {
            return None;
        }
        let date = Date::new(self.year, self.month, self.day).ok()?;
        let whole = (hour * 60 + minute) * 60 + second;
        let since = SignedDuration::from_secs(whole);
        let local = date.to_datetime(Time::midnight()).checked_add(since).ok()?;
        let at = match place {
            OffsetOrZone::Offset(offset) => micros(offset.to_timestamp(local).ok()?),
            OffsetOrZone::Zone(zone) => instant(zone, local)?,
        };
        Some(at.plus(fraction))
    }
}

/// Where a time's clock hangs.
enum OffsetOrZone {
    Offset(Offset),
    Zone(TimeZone),
}

impl OffsetOrZone {
    /// Reads what follows a time; `None` where that is nothing known.
    fn read(text: &str, zone: &TimeZone) -> Option<Self> {
        let name = text.trim_start();
        if name.is_empty() {
            return Some(Self::Zone(zone.clone()));
        }
        if ["z", "utc", "gmt"].contains(&name.to_ascii_lowercase().as_str()) {
            return Some(Self::Offset(Offset::UTC));
        }
        let blank = text.starts_with(' ') && name.bytes().all(|b| b.is_ascii_digit() || b == b':');
        let (sign, mut rest) = match (name.strip_prefix('+'), name.strip_prefix('-')) {
            (Some(rest), _) => (1, rest),
            (_, Some(rest)) => (-1, rest),
            _ if blank => (1, name),
            _ => return TimeZone::get(name).ok().map(Self::Zone),
        };
        let mut hours = digits(&mut rest, 1, 4)?;
        let mut minutes = 0;
        if hours > 99 {
            (hours, minutes) = (hours / 100, hours % 100);
        } else if let Some(tail) = rest.strip_prefix(':') {
            rest = tail;
            minutes = digits(&mut rest, 2, 2)?;
        }
        let seconds = sign * (hours * 60 + minutes) * 60;
        let ok = rest.is_empty() && minutes < 60 && hours < 16;
        ok.then(|| Offset::from_seconds(i32::try_from(seconds).ok()?).ok().map(Self::Offset))?
    }
}

fn date(rest: &mut &str) -> Option<(i16, i8, i8)> {
    let mut tail = *rest;
    let (year, month, day) = match digits(&mut tail, 8, 8) {
        Some(packed) => (packed / 10_000, packed / 100 % 100, packed % 100),
        None => {
            let year = digits(&mut tail, 4, 5)?;
            tail = tail.strip_prefix('-')?;
            let month = digits(&mut tail, 1, 2)?;
            tail = tail.strip_prefix('-')?;
            (year, month, digits(&mut tail, 1, 2)?)
        }
    };
    *rest = tail;
    Some((i16::try_from(year).ok()?, i8::try_from(month).ok()?, i8::try_from(day).ok()?))
}

/// Takes all digits that follow, if there are so many.
fn digits(rest: &mut &str, min: usize, max: usize) -> Option<i64> {
    let count = rest.bytes().take_while(u8::is_ascii_digit).count();
    if !(min..=max).contains(&count) {
        return None;
    }
    let (number, tail) = rest.split_at_checked(count)?;
    *rest = tail;
    number.parse().ok()
}

/// Takes a fraction of a second and rounds it to a microsecond, as PostgreSQL does.
fn fraction(rest: &mut &str) -> Option<i64> {
    let count = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (number, tail) = rest.split_at_checked(count).filter(|_| count > 0)?;
    *rest = tail;
    let kept: i64 = format!("{:0<7}", number.get(..count.min(7))?).parse().ok()?;
    Some((kept + 5) / 10)
}

/// The instant at which the zone's clocks show a time.
fn instant(zone: &TimeZone, local: DateTime) -> Option<Timestamp> {
    let ambiguous = zone.to_ambiguous_timestamp(local);
    let at = match ambiguous.offset() {
        AmbiguousOffset::Fold { .. } => ambiguous.later(),
        _ => ambiguous.compatible(),
    };
    at.ok().map(micros)
}

fn micros(at: jiff::Timestamp) -> Timestamp {
    Timestamp(at.as_microsecond())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Timestamp = Timestamp(1_767_706_500_250_000); // 2026-01-06T13:35:00.25Z

    fn paris() -> TimeZone {
        TimeZone::get("Europe/Paris").unwrap()
    }

    fn read(text: &str) -> String {
        match parse_time(text, NOW, &paris()) {
            Ok(at) => at.to_string(),
            Err(TimeError::Syntax(_)) => "syntax".to_owned(),
            Err(TimeError::Range(_)) => "range".to_owned(),
        }
    }

    /// The instants are PostgreSQL 15.20's for the same texts with `timezone = Europe/Paris`.
    #[test]
    fn what_kwollect_takes() {
        for (text, expected) in [
            ("now", "2026-01-06T13:35:00.25+00:00"),
            ("NOW", "2026-01-06T13:35:00.25+00:00"),
            ("today", "2026-01-05T23:00:00+00:00"),
            ("tomorrow", "2026-01-06T23:00:00+00:00"),
            ("epoch", "1970-01-01T00:00:00+00:00"),
            ("2021-06-08T15:00", "2021-06-08T13:00:00+00:00"),
            ("2021-06-08", "2021-06-07T22:00:00+00:00"),
            ("2021-6-8", "2021-06-07T22:00:00+00:00"),
            ("2021-06-08 15:00:00", "2021-06-08T13:00:00+00:00"),
            ("2021-06-08T15:00Z", "2021-06-08T15:00:00+00:00"),
            ("2021-06-08 15:00 UTC", "2021-06-08T15:00:00+00:00"),
            ("2021-06-08T15:00:00+02:00", "2021-06-08T13:00:00+00:00"),
            ("2021-06-08T15:00:00+0200", "2021-06-08T13:00:00+00:00"),
            ("2021-06-08 15:00:00+2", "2021-06-08T13:00:00+00:00"),
            ("2021-06-08 15:00:00 +02", "2021-06-08T13:00:00+00:00"),
            ("2021-06-08 15:00:00-02:30", "2021-06-08T17:30:00+00:00"),
            ("2021-06-08T15:00:00.1234567+02:00", "2021-06-08T13:00:00.123457+00:00"),
            ("2021-06-08 15:00 Asia/Kolkata", "2021-06-08T09:30:00+00:00"),
            ("20210608T150000", "2021-06-08T13:00:00+00:00"),
            ("2021-06-08 24:00:00", "2021-06-08T22:00:00+00:00"),
            ("2021-06-08T15:00:60", "2021-06-08T13:01:00+00:00"),
            // At these changes the clocks skip from 02:00 to 03:00, and repeat from 03:00 back to 02:00.
            ("2021-03-28 02:30", "2021-03-28T01:30:00+00:00"),
            ("2021-10-31 02:30", "2021-10-31T01:30:00+00:00"),
            // A `+` that was not encoded in the query string.
            ("2021-06-08T15:00:00 02:00", "2021-06-08T13:00:00+00:00"),
            ("1606389005.1234", "2020-11-26T11:10:05.1234+00:00"),
            ("1606389005", "2020-11-26T11:10:05+00:00"),
            (" 1606389005 ", "2020-11-26T11:10:05+00:00"),
            ("1.606389005e9", "2020-11-26T11:10:05+00:00"),
            ("20210608", "1970-08-22T22:03:28+00:00"),
            ("-1.5", "1969-12-31T23:59:58.5+00:00"),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    /// The forms that people type, in the zone of the reader.
    #[test]
    fn what_people_type() {
        for (text, expected) in [
            ("10m", "2026-01-06T13:25:00.25+00:00"),
            ("-10m", "2026-01-06T13:25:00.25+00:00"),
            ("+10m", "2026-01-06T13:45:00.25+00:00"),
            ("1h30m", "2026-01-06T12:05:00.25+00:00"),
            ("-1d2h", "2026-01-05T11:35:00.25+00:00"),
            ("250ms", "2026-01-06T13:35:00+00:00"),
            ("14:49", "2026-01-06T13:49:00+00:00"),
            ("00:10:05.5", "2026-01-05T23:10:05.5+00:00"),
            ("14:49Z", "2026-01-06T14:49:00+00:00"),
            ("14:49+05:30", "2026-01-06T09:19:00+00:00"),
            ("yesterday", "2026-01-04T23:00:00+00:00"),
            ("yesterday 14:49", "2026-01-05T13:49:00+00:00"),
            ("Today 08:00", "2026-01-06T07:00:00+00:00"),
            ("2026-01-06T13:49:00Z", "2026-01-06T13:49:00+00:00"),
            ("1767706500.25", "2026-01-06T13:35:00.25+00:00"),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_time() {
        for text in [
            "",
            "x",
            "nan",
            "inf",
            "2021-06-08 15",
            "2021-06-08T",
            "14:49x",
            "yesterday14:49",
            "today x",
            "1h30",
            "99999999999999999999d",
            "-",
            "m",
            "2021-06",
            "--",
            "2021-06-08T15:00 Nowhere/Land",
            "2021-06-08T15:00:00+99",
            "June 8 2021",
            "2021-06-08T15:00Zx",
        ] {
            assert_eq!(read(text), "syntax", "{text}");
        }
        for text in [
            "2021-02-30",
            "2021-13-01",
            "2021-06-08 15:60",
            "2021-06-08 25:00",
            "1e300",
            "253402300800",
            "-62135596801",
            "253402300800.5",
            "25:00",
            "14:60",
            "-99999999d",
        ] {
            assert_eq!(read(text), "range", "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read(micros in -62_000_000_000_000_000_i64..253_000_000_000_000_000) {
            let at = Timestamp(micros);
            prop_assert_eq!(parse_time(&at.to_string(), NOW, &paris()).unwrap(), at);
        }

        #[test]
        fn no_text_panics(text in ".{0,40}", near in "[0-9T:. +eE-]{0,30}") {
            parse_time(&text, NOW, &paris()).ok();
            parse_time(&near, NOW, &paris()).ok();
        }
    }
}
