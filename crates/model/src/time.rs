//! An instant, and its text.

use std::fmt;
use std::ops::Range;

/// An instant, in microseconds since 1970-01-01 00:00 UTC: the resolution of PostgreSQL and Parquet.
///
/// The time of a sample is the scheduled time of its tick, the same for all sources of the tick, so that
/// sums across devices align. The lateness of the reading is a metric of the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

/// Why a text is not a time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a time; write 2026-01-06T13:35:00Z, an offset such as +02:00, or seconds since \
     1970"
)]
pub struct TimeError(pub String);

impl Timestamp {
    /// Microseconds in a second.
    pub const SECOND: i64 = 1_000_000;
    /// 2000-01-01, before which no sample is accepted.
    pub const YEAR_2000: Self = Self(946_684_800 * Self::SECOND);

    /// The time this number of whole seconds after 1970.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(Self::SECOND))
    }

    /// Seconds since 1970, exact to a microsecond until the year 2255.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// This time moved by this number of microseconds, saturating.
    #[must_use]
    pub const fn plus(self, micros: i64) -> Self {
        Self(self.0.saturating_add(micros))
    }

    /// Microseconds from `earlier` to this time; negative if `earlier` is later.
    pub const fn since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Reads seconds since 1970 (`1767706500.25`) or an RFC 3339 time (`2026-01-06T13:35:00+02:00`,
    /// a blank for the `T`, the offset `Z` or left out, which is UTC).
    ///
    /// # Errors
    /// The text is neither, or outside of the years 1 to 9999.
    pub fn parse(text: &str) -> Result<Self, TimeError> {
        parse(text.trim()).ok_or_else(|| TimeError(text.to_owned()))
    }
}

/// `2026-01-06T13:35:00.25+00:00`: as PostgreSQL prints JSON, up to six digits of a second, never `Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days = self.0.div_euclid(86_400 * Self::SECOND);
        let micros = self.0.rem_euclid(86_400 * Self::SECOND);
        let (year, month, day) = date_from_days(days);
        let second = micros / Self::SECOND;
        let (h, m, s) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}")?;
        let (mut fraction, mut width) = (micros % Self::SECOND, 6);
        if fraction > 0 {
            while fraction % 10 == 0 {
                (fraction, width) = (fraction / 10, width - 1);
            }
            write!(f, ".{fraction:0width$}")?;
        }
        f.write_str("+00:00")
    }
}

/// Year, month and day of a day counted from 1970-01-01, in the proleptic Gregorian calendar.
/// Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", 2013.
const fn date_from_days(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

/// The inverse of [`date_from_days`].
const fn days_from_date(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

fn parse(text: &str) -> Option<Timestamp> {
    if !text.get(1..)?.contains(['-', ':']) {
        return parse_epoch(text);
    }
    let mut rest = text.as_bytes();
    let year = number(&mut rest, 4)?;
    let month = sep(&mut rest, b"-").and_then(|()| number(&mut rest, 2))?;
    let day = sep(&mut rest, b"-").and_then(|()| number(&mut rest, 2))?;
    if !(1..=12).contains(&month) || year < 1 {
        return None;
    }
    let days = days_from_date(year, month, day);
    if day < 1 || date_from_days(days) != (year, month, day) {
        return None;
    }
    let (mut second, mut micros, mut offset) = (0, 0, 0);
    if !rest.is_empty() {
        sep(&mut rest, b"Tt ")?;
        second = number(&mut rest, 2).filter(|h| *h < 24)? * 3600;
        second +=
            sep(&mut rest, b":").and_then(|()| number(&mut rest, 2)).filter(|m| *m < 60)? * 60;
        if sep(&mut rest, b":").is_some() {
            second += number(&mut rest, 2).filter(|s| *s <= 60)?;
        }
        if sep(&mut rest, b".,").is_some() {
            micros = fraction(&mut rest)?;
        }
        offset = parse_offset(&mut rest)?;
    }
    let total = days * 86_400 + second - offset;
    rest.is_empty().then_some(Timestamp(total * Timestamp::SECOND + micros))
}

/// The years 1 to 9999, in microseconds since 1970.
const YEARS: Range<i64> = -62_135_596_800_000_000..253_402_300_800_000_000;

/// Parses seconds since 1970 with a fraction, without floating point: exact to the microsecond.
fn parse_epoch(text: &str) -> Option<Timestamp> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
    if whole.is_empty() || whole.len() > 12 || !whole.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let mut rest = part.as_bytes();
    let micros = fraction(&mut rest)?;
    let total = whole.parse::<i64>().ok()? * Timestamp::SECOND + micros;
    let total = if negative { -total } else { total };
    // Twelve digits reach beyond the calendar.
    (rest.is_empty() && YEARS.contains(&total)).then_some(Timestamp(total))
}

fn parse_offset(rest: &mut &[u8]) -> Option<i64> {
    let sign = match rest.split_first() {
        None => return Some(0),
        Some((b'Z' | b'z', tail)) => {
            *rest = tail;
            return Some(0);
        }
        Some((b'+', tail)) => (1, tail),
        Some((b'-', tail)) => (-1, tail),
        Some(_) => return None,
    };
    *rest = sign.1;
    let hours = number(rest, 2).filter(|h| *h < 24)?;
    let colon = sep(rest, b":").is_some();
    let minutes = if colon || !rest.is_empty() { number(rest, 2).filter(|m| *m < 60)? } else { 0 };
    Some(sign.0 * (hours * 3600 + minutes * 60))
}

/// Parses exactly `width` digits.
fn number(rest: &mut &[u8], width: usize) -> Option<i64> {
    let (digits, tail) = rest.split_at_checked(width)?;
    let mut value = 0;
    for digit in digits {
        value = value * 10 + i64::from(digit.checked_sub(b'0').filter(|d| *d < 10)?);
    }
    *rest = tail;
    Some(value)
}

/// Parses the digits of a fraction; digits after the sixth are ignored, because PostgreSQL's resolution is
/// 1 µs.
fn fraction(rest: &mut &[u8]) -> Option<i64> {
    let (mut micros, mut width) = (0, 0);
    while let Some((digit @ b'0'..=b'9', tail)) = rest.split_first() {
        if width < 6 {
            micros = micros * 10 + i64::from(digit - b'0');
        }
        (*rest, width) = (tail, width + 1);
    }
    (width > 0).then(|| micros * 10_i64.pow(6_u32.saturating_sub(width)))
}

fn sep(rest: &mut &[u8], any_of: &[u8]) -> Option<()> {
    let (first, tail) = rest.split_first()?;
    any_of.contains(first).then(|| *rest = tail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_and_instants() {
        for (text, micros) in [
            ("2026-01-06T13:35:00Z", 1_767_706_500_000_000),
            ("2026-01-06 13:35:00", 1_767_706_500_000_000),
            ("2026-01-06T13:35", 1_767_706_500_000_000),
            ("2026-01-06T15:35:00.25+02:00", 1_767_706_500_250_000),
            ("2026-01-06T15:35:00.2500009+0200", 1_767_706_500_250_000),
            ("2026-01-06T11:05:00-02:30", 1_767_706_500_000_000),
            ("2026-01-06", 1_767_657_600_000_000),
            ("1767706500.25", 1_767_706_500_250_000),
            ("1767706500", 1_767_706_500_000_000),
            ("-1.5", -1_500_000),
            ("2000-02-29T00:00:00Z", 951_782_400_000_000),
        ] {
            assert_eq!(Timestamp::parse(text), Ok(Timestamp(micros)), "{text}");
        }
    }

    #[test]
    fn invalid_times_are_rejected() {
        for text in [
            "",
            "x",
            "nan",
            "1e9",
            "2026",
            "2026-13-01",
            "2026-02-29",
            "2026-01-06T25:00:00Z",
            "2026-01-06T13:35:00Zx",
            "2026-01-06T13:35:00 00:00",
            "2026-01-06T",
            "1767706500.",
            "0000-01-01",
            "2026-1-6",
            "20260106T000000Z",
            "--1",
            "253402300800",
            "-62135596801",
            "999999999999.5",
        ] {
            let year_alone = text == "2026";
            assert_eq!(Timestamp::parse(text).is_ok(), year_alone, "{text}");
        }
    }

    #[test]
    fn printed_as_postgresql_prints_json() {
        assert_eq!(
            Timestamp(1_744_995_333_754_307).to_string(),
            "2025-04-18T16:55:33.754307+00:00"
        );
        assert_eq!(Timestamp(1_744_995_333_750_000).to_string(), "2025-04-18T16:55:33.75+00:00");
        assert_eq!(Timestamp(0).to_string(), "1970-01-01T00:00:00+00:00");
        assert_eq!(Timestamp(-1).to_string(), "1969-12-31T23:59:59.999999+00:00");
    }

    proptest! {
        #[test]
        fn round_trip(micros in -62_135_596_800_000_000_i64..253_402_300_800_000_000) {
            let at = Timestamp(micros);
            prop_assert_eq!(Timestamp::parse(&at.to_string()), Ok(at));
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            Timestamp::parse(&text).ok();
        }
    }
}
