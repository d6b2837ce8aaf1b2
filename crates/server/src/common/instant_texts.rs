//! Texts of instants that follow each other.

use crate::common::sql_row_encoder::{TimeFormats, instant};
use sql::Zone;

const SECOND_US: i64 = 1_000_000;
const MINUTE_US: i64 = 60 * SECOND_US;
/// Where the seconds are in a text such as `2026-01-06 13:35:00+01`.
const SECONDS_AT: usize = 17;

/// Prints the instants of a column. Those of one minute differ in their seconds alone: what precedes and follows these is
/// computed once.
#[derive(Clone, Debug)]
pub(crate) struct InstantTexts {
    formats: TimeFormats,
    /// Minute since 1970 of the last instant.
    minute: Option<i64>,
    /// The texts before and after the seconds; `None`: each instant of the minute is printed by itself.
    parts: Option<(Vec<u8>, Vec<u8>)>,
}

impl InstantTexts {
    pub(crate) const fn new(formats: TimeFormats) -> Self {
        Self { formats, minute: None, parts: None }
    }

    /// Appends an instant in microseconds since 1970. The zone is the same for all.
    pub(crate) fn put(&mut self, micros: i64, zone: Option<&Zone>, to: &mut Vec<u8>) {
        let minute = micros.div_euclid(MINUTE_US);
        if self.minute != Some(minute) {
            (self.minute, self.parts) = (Some(minute), parts(minute, zone, self.formats));
        }
        let Some((before, after)) = &self.parts else {
            return to.extend(instant(micros, zone, self.formats).into_bytes());
        };
        let within = micros.rem_euclid(MINUTE_US);
        let (second, fraction) = (within / SECOND_US, within % SECOND_US);
        to.extend_from_slice(before);
        to.extend([digit(second / 10), digit(second)]);
        if fraction > 0 {
            let mut scale = SECOND_US / 10;
            let mut digits = [b'0'; 6];
            for place in &mut digits {
                *place = digit(fraction / scale);
                scale = (scale / 10).max(1);
            }
            let kept = digits.iter().rposition(|digit| *digit != b'0').map_or(0, |last| last + 1);
            to.push(b'.');
            to.extend_from_slice(digits.get(..kept).unwrap_or_default());
        }
        to.extend_from_slice(after);
    }
}

/// The last digit of a number that is not negative.
fn digit(number: i64) -> u8 {
    b'0' + u8::try_from(number % 10).unwrap_or(0)
}

/// The texts before and after the seconds of a minute. `None` if the offset changes within it or has seconds, and outside of
/// the years with four digits.
fn parts(minute: i64, zone: Option<&Zone>, formats: TimeFormats) -> Option<(Vec<u8>, Vec<u8>)> {
    let first = minute.checked_mul(MINUTE_US)?;
    let last = first.checked_add(MINUTE_US - 1)?;
    if let Some(zone) = zone
        && zone.offset_seconds(first) != zone.offset_seconds(last)
    {
        return None;
    }
    let text = instant(first, zone, formats);
    let (before, rest) = text.split_at_checked(SECONDS_AT)?;
    let after = rest.strip_prefix("00")?;
    let is_usual = before.ends_with(':') && before.as_bytes().get(4) == Some(&b'-');
    is_usual.then(|| (before.into(), after.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::sql_row_encoder::TEXT_TIMES;
    use proptest::prelude::*;

    /// Prints instants one after another, and compares each with the text that it has alone.
    fn compare(zone: Option<&Zone>, instants: &[i64]) {
        let mut texts = InstantTexts::new(TEXT_TIMES);
        for micros in instants {
            let mut text = Vec::new();
            texts.put(*micros, zone, &mut text);
            let alone = instant(*micros, zone, TEXT_TIMES);
            assert_eq!(String::from_utf8(text).unwrap(), alone, "{micros} {zone:?}");
        }
    }

    #[test]
    fn instants_at_the_ends_of_minutes_offsets_and_years() {
        let second = |second: i64| second * SECOND_US;
        // The end of summer time in 2026, the changes from local mean time of Amsterdam, Paris and Monrovia, and the ends of the
        // years with four digits.
        let ends = [
            second(1_792_890_000),
            second(-1_025_741_972),
            second(-1_855_958_961),
            second(63_593_070),
            second(253_402_300_800),
            second(-62_167_219_200),
            second(-62_135_596_800),
            0,
            i64::MAX - second(200),
            i64::MIN + second(200),
        ];
        let steps = [0, 1, 10, 100_000, 250_000, 999_999, 1_000_000, 29_000_000, 60_000_000];
        for name in ["UTC", "Europe/Paris", "Europe/Amsterdam", "Africa/Monrovia", "-02:30"] {
            let zone = Zone::parse(name).unwrap();
            for end in ends {
                let around = steps.iter().flat_map(|step| [end - step, end + step]);
                let around: Vec<i64> = around.collect();
                compare(Some(&zone), &around);
                compare(None, &around);
            }
        }
    }

    proptest! {
        #[test]
        fn any_instant(micros: i64, near in -90_000_000_i64..90_000_000) {
            for zone in ["Europe/Paris", "Asia/Kathmandu"] {
                let zone = Zone::parse(zone).unwrap();
                compare(Some(&zone), &[micros, micros.saturating_add(near), near]);
            }
        }
    }
}
