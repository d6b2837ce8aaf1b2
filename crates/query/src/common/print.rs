//! Prints values, times and labels as PostgreSQL does in JSON, because PostgREST's clients compare with them.

use jiff::tz::TimeZone;
use model::{DeviceId, JobKey, Labels, Timestamp};

/// Smaller values are printed with an exponent, like PostgreSQL's shortest doubles.
const FIXED_MIN: f64 = 1e-4;
/// This value and larger ones are printed with an exponent, too.
const FIXED_END: f64 = 1e15;

/// Appends a double in the format of PostgreSQL's `float8out` (`extra_float_digits` 1): the shortest digits that
/// parse to the same double. Examples: `98`, `0.1`, `1e+15`, `1e-05`; `NaN` and `Infinity` without quotes.
pub fn double(value: f64, out: &mut Vec<u8>) {
    if value.is_nan() {
        return out.extend_from_slice(b"NaN");
    }
    if value.is_sign_negative() {
        out.push(b'-');
    }
    let size = value.abs();
    if size == f64::INFINITY {
        out.extend_from_slice(b"Infinity");
    } else if size == 0.0 {
        out.push(b'0');
    } else if !((FIXED_MIN..FIXED_END).contains(&size) && short(size, out)) {
        shortest(size, out);
    }
}

/// Appends a value that is a whole number of millionths with at most 15 digits. These are its shortest digits,
/// because two different decimals of 15 digits are never the same double. `false`: the value does not qualify.
fn short(size: f64, out: &mut Vec<u8>) -> bool {
    for (scale, places) in [(1.0, 0), (10.0, 1), (1e3, 3), (1e6, 6)] {
        let scaled = (size * scale).round();
        if scaled >= FIXED_END {
            return false;
        }
        #[expect(clippy::float_cmp, reason = "only the very same double may be written so")]
        if scaled / scale == size {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "whole and within 0 to 1e15"
            )]
            decimal(scaled as u64, places, out);
            return true;
        }
    }
    false
}

/// Appends `digits` with a dot before the last `places`, without trailing zeros.
fn decimal(mut digits: u64, mut places: usize, out: &mut Vec<u8>) {
    while places > 0 && digits.is_multiple_of(10) {
        (digits, places) = (digits / 10, places - 1);
    }
    let mut text = [0; 24];
    let mut at = text.len();
    let mut written = 0;
    loop {
        let (digit, rest) = (digits % 10, digits / 10);
        if written == places && places > 0 {
            put(&mut text, &mut at, b'.');
        }
        put(&mut text, &mut at, b'0' + u8::try_from(digit).unwrap_or(0));
        (digits, written) = (rest, written + 1);
        if digits == 0 && written > places {
            break;
        }
    }
    out.extend_from_slice(text.get(at..).unwrap_or_default());
}

fn put(text: &mut [u8], at: &mut usize, byte: u8) {
    *at = at.saturating_sub(1);
    if let Some(slot) = text.get_mut(*at) {
        *slot = byte;
    }
}

/// Appends the shortest digits of any positive double.
fn shortest(size: f64, out: &mut Vec<u8>) {
    let text = format!("{size:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..15).contains(&exponent) {
        out.extend_from_slice(digits.as_bytes());
        let sign = if exponent < 0 { '-' } else { '+' };
        out.extend_from_slice(format!("e{sign}{:02}", exponent.unsigned_abs()).as_bytes());
        return;
    }
    // Rust's `Display` is never exponential and prints the same digits.
    out.extend_from_slice(size.to_string().as_bytes());
}

/// Appends a JSON string with PostgreSQL's escapes.
pub(crate) fn string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0..0x20 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            byte => out.push(byte),
        }
    }
    out.push(b'"');
}

/// Labels that a query adds to those of a row, or removes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Added<'a> {
    /// Adds `_job_id`, and `_cluster` if it is not the default cluster.
    pub(crate) job: Option<&'a JobKey>,
    /// Whether to add `_cluster`.
    pub(crate) cluster: bool,
    /// Removes `_device_alias`.
    pub(crate) without_alias: bool,
    /// Adds `_device_orig`, sorted.
    pub(crate) origins: &'a [DeviceId],
}

/// The label that adds a device's samples to another device, the alias.
pub(crate) const ALIAS: &str = "_device_alias";
/// The label of samples that are read again at every scrape; a summary omits them.
pub(crate) const SCRAPE_TIME: &str = "_metric_scrape_time";

/// The labels of a row in jsonb's format, with added and removed labels. An added label replaces a stored label
/// of the same name: stored labels cannot forge the attribution to a job.
pub(crate) fn labels(stored: &Labels, added: &Added<'_>) -> String {
    let is_unchanged = added.job.is_none() && !added.without_alias && added.origins.is_empty();
    // Other programs may write any JSON value into a database; it has no labels to add to.
    if is_unchanged || !stored.is_object() {
        return stored.as_str().to_owned();
    }
    let mut members: Vec<(String, Vec<u8>)> = Vec::new();
    let mut set = |key: &str, json: Vec<u8>| {
        members.retain(|(k, _)| k != key);
        members.push((key.to_owned(), json));
    };
    for (key, value) in stored.members() {
        if !(added.without_alias && key == ALIAS) {
            set(&key, value.as_bytes().to_owned());
        }
    }
    if let Some(job) = added.job {
        set("_job_id", json_of(&job.id.to_string()));
        if added.cluster {
            set("_cluster", json_of(job.cluster.as_str()));
        }
    }
    if !added.origins.is_empty() {
        let mut array = Vec::new();
        for (i, device) in added.origins.iter().enumerate() {
            array.extend_from_slice(if i == 0 { b"[" } else { b", " });
            string(device.as_str(), &mut array);
        }
        array.push(b']');
        set("_device_orig", array);
    }
    members.sort_unstable_by(|(a, _), (b, _)| (a.len(), a).cmp(&(b.len(), b)));
    let mut text = vec![b'{'];
    for (i, (key, json)) in members.iter().enumerate() {
        text.extend_from_slice(if i == 0 { b"" } else { b", " });
        string(key, &mut text);
        text.extend_from_slice(b": ");
        text.extend_from_slice(json);
    }
    text.push(b'}');
    String::from_utf8_lossy(&text).into_owned()
}

fn json_of(text: &str) -> Vec<u8> {
    let mut json = Vec::with_capacity(text.len() + 2);
    string(text, &mut json);
    json
}

/// Format of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeStyle {
    /// `2025-04-18T18:55:33.75+02:00`.
    Json,
    /// `2025-04-18 18:55:33.75+02`.
    Text,
}

/// Prints times of a zone. The prefix and the offset are computed once per minute, because no zone of this
/// century changes its offset within a minute.
#[derive(Clone, Debug)]
pub(crate) struct Times {
    zone: TimeZone,
    style: TimeStyle,
    minute: Option<i64>,
    prefix: Vec<u8>,
    offset: Vec<u8>,
}

const MINUTE: i64 = 60 * Timestamp::SECOND;

impl Times {
    pub(crate) fn new(zone: TimeZone, style: TimeStyle) -> Self {
        Self { zone, style, minute: None, prefix: Vec::new(), offset: Vec::new() }
    }

    /// Appends an instant, in microseconds since 1970.
    pub(crate) fn write(&mut self, micros: i64, out: &mut Vec<u8>) {
        let minute = micros.div_euclid(MINUTE);
        if self.minute != Some(minute) {
            self.turn(minute);
        }
        out.extend_from_slice(&self.prefix);
        let within = u32::try_from(micros.rem_euclid(MINUTE)).unwrap_or(0);
        let (second, mut fraction) = (within / 1_000_000, within % 1_000_000);
        out.extend_from_slice(&two(second));
        if fraction > 0 {
            let mut digits = [b'0'; 6];
            for digit in digits.iter_mut().rev() {
                *digit = b'0' + u8::try_from(fraction % 10).unwrap_or(0);
                fraction /= 10;
            }
            let kept = digits.iter().rposition(|digit| *digit != b'0').map_or(0, |last| last + 1);
            out.push(b'.');
            out.extend_from_slice(digits.get(..kept).unwrap_or_default());
        }
        out.extend_from_slice(&self.offset);
    }

    /// Computes the text before the seconds, and the offset, for a minute since 1970.
    fn turn(&mut self, minute: i64) {
        let at = jiff::Timestamp::from_second(minute.saturating_mul(60)).unwrap_or_default();
        let offset = self.zone.to_offset(at);
        let local = offset.to_datetime(at);
        let between = match self.style {
            TimeStyle::Json => 'T',
            TimeStyle::Text => ' ',
        };
        let (year, month, day) = (local.year(), local.month(), local.day());
        let (hour, minute_of_hour) = (local.hour(), local.minute());
        self.prefix =
            format!("{year:04}-{month:02}-{day:02}{between}{hour:02}:{minute_of_hour:02}:").into();
        let seconds = offset.seconds();
        let (sign, size) = (if seconds < 0 { '-' } else { '+' }, seconds.unsigned_abs());
        let (hours, minutes) = (size / 3600, size / 60 % 60);
        let whole = minutes == 0 && self.style == TimeStyle::Text;
        self.offset = if whole {
            format!("{sign}{hours:02}").into()
        } else {
            format!("{sign}{hours:02}:{minutes:02}").into()
        };
        self.minute = Some(minute);
    }
}

fn two(number: u32) -> [u8; 2] {
    let digit = |n: u32| b'0' + u8::try_from(n % 10).unwrap_or(0);
    [digit(number / 10), digit(number)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{ClusterId, JobId};
    use proptest::prelude::*;

    fn text(value: f64) -> String {
        let mut out = Vec::new();
        double(value, &mut out);
        String::from_utf8(out).unwrap()
    }

    /// Output of PostgreSQL 15.20 for these doubles.
    #[test]
    fn doubles_as_postgresql_prints_them() {
        for (value, expected) in [
            (98.0, "98"),
            (1e14, "100000000000000"),
            (123_456_789_012_345.0, "123456789012345"),
            (1e15, "1e+15"),
            (1_234_567_890_123_456.0, "1.234567890123456e+15"),
            (1e16, "1e+16"),
            (1e-4, "0.0001"),
            (0.000_123_45, "0.00012345"),
            (1e-5, "1e-05"),
            (1.5e-5, "1.5e-05"),
            (1e100, "1e+100"),
            (1e-100, "1e-100"),
            (0.1, "0.1"),
            (1.0 / 3.0, "0.3333333333333333"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (999_999_999_999_999.0, "999999999999999"),
            (9_999_999_999_999_998.0, "9.999999999999998e+15"),
            (-12.5, "-12.5"),
            (-0.0, "-0"),
            (0.0, "0"),
            (8.537362, "8.537362"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(text(value), expected);
        }
    }

    #[test]
    fn times_as_postgresql_prints_them() {
        let zone = |name| TimeZone::get(name).unwrap();
        for (name, micros, json, plain) in [
            (
                "Europe/Paris",
                1_744_995_333_754_307,
                "2025-04-18T18:55:33.754307+02:00",
                "2025-04-18 18:55:33.754307+02",
            ),
            (
                "Europe/Paris",
                1_737_219_393_750_000,
                "2025-01-18T17:56:33.75+01:00",
                "2025-01-18 17:56:33.75+01",
            ),
            (
                "Asia/Kolkata",
                1_744_995_333_000_000,
                "2025-04-18T22:25:33+05:30",
                "2025-04-18 22:25:33+05:30",
            ),
            (
                "America/St_Johns",
                1_744_995_333_000_000,
                "2025-04-18T14:25:33-02:30",
                "2025-04-18 14:25:33-02:30",
            ),
        ] {
            for (style, expected) in [(TimeStyle::Json, json), (TimeStyle::Text, plain)] {
                let mut out = Vec::new();
                Times::new(zone(name), style).write(micros, &mut out);
                assert_eq!(String::from_utf8(out).unwrap(), expected);
            }
        }
    }

    #[test]
    fn the_offset_follows_the_zone_within_one_answer() {
        let mut times = Times::new(TimeZone::get("Europe/Paris").unwrap(), TimeStyle::Json);
        let mut out = Vec::new();
        for second in [1_743_296_399, 1_743_296_400] {
            times.write(second * 1_000_000, &mut out);
            out.push(b' ');
        }
        let expected = "2025-03-30T01:59:59+01:00 2025-03-30T03:00:00+02:00 ";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn labels_with_what_reading_adds() {
        let stored =
            Labels::new([("cpu", "0"), ("_device_alias", "n1"), ("_job_id", "9")]).unwrap();
        let job = JobKey { cluster: ClusterId::new("oar").unwrap(), id: JobId::new(5).unwrap() };
        let origins = ["a", "b\"c"].map(|name| DeviceId::new(name).unwrap());
        let all = Added { job: Some(&job), cluster: true, without_alias: true, origins: &origins };
        assert_eq!(
            labels(&stored, &all),
            r#"{"cpu": "0", "_job_id": "5", "_cluster": "oar", "_device_orig": ["a", "b\"c"]}"#
        );
        let plain = Added::default();
        assert_eq!(labels(&stored, &plain), stored.as_str());
        let raw = Added { without_alias: true, ..plain };
        assert_eq!(labels(&stored, &raw), r#"{"cpu": "0", "_job_id": "9"}"#);
        assert_eq!(labels(&Labels::default(), &raw), "{}");
    }

    proptest! {
        #[test]
        fn doubles_come_back(bits: u64) {
            let value = f64::from_bits(bits);
            let printed = text(value);
            let back: f64 = printed.parse().unwrap();
            prop_assert!(back.to_bits() == bits || value.is_nan(), "{printed}");
            // The general algorithm gives the same digits as the short one.
            if value.is_finite() && value != 0.0 {
                let mut out = if value < 0.0 { vec![b'-'] } else { Vec::new() };
                shortest(value.abs(), &mut out);
                prop_assert_eq!(printed.as_bytes(), &out[..]);
            }
        }

        #[test]
        fn short_decimals_are_their_shortest_digits(steps in 1_u64..1_000_000_000_000_000, power in 0..7) {
            let value = steps as f64 / 10_f64.powi(power);
            let mut out = Vec::new();
            shortest(value, &mut out);
            prop_assert_eq!(text(value).into_bytes(), out);
        }

        #[test]
        fn strings_are_json(value in ".{0,30}") {
            let mut out = Vec::new();
            string(&value, &mut out);
            prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), value);
        }

        #[test]
        fn times_agree_with_the_model(micros in 0_i64..4_102_444_800_000_000) {
            let mut out = Vec::new();
            Times::new(TimeZone::UTC, TimeStyle::Json).write(micros, &mut out);
            prop_assert_eq!(String::from_utf8(out).unwrap(), Timestamp(micros).to_string());
        }
    }
}
