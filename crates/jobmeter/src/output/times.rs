//! Times: parsed from options, printed for people (local time) and for scripts (RFC 3339, UTC).

use crate::client::http_client::Client;
use crate::client::plain::plain_lines;
use crate::output::options::TimeRange;
use anyhow::{Context, bail};
use jiff::tz::TimeZone;
use model::Timestamp;
use serde_json::Value;
use std::time::Duration;

/// Keys of the server's JSON whose values are seconds since 1970.
const INSTANTS: [&str; 25] = [
    "at",
    "counter_start",
    "expires",
    "from",
    "last_success",
    "last_good",
    "last_seen",
    "created",
    "done",
    "end",
    "newest",
    "now",
    "requested",
    "revoked",
    "seen",
    "sent_to",
    "since",
    "start",
    "started",
    "stop",
    "submit",
    "time",
    "to",
    "until",
    "last_used",
];
/// Minimum value of an instant under these keys, in seconds since 1970: the year 1980.
const EARLIEST: f64 = 315_532_800.0;

/// Instants that a sample can have: from 1970 to the limit of signed 64-bit nanoseconds.
const STORED: std::ops::RangeInclusive<i64> = 0..=i64::MAX / 1000;

/// Parses an option's duration.
pub(crate) fn duration(option: &str, text: &str) -> anyhow::Result<Duration> {
    if text.starts_with('-') {
        bail!("--{option} {text}: it is negative; write 30s, 5m or 1h30m");
    }
    let length = config::parse_duration(text);
    length.with_context(|| {
        format!(
            "--{option} {text}: invalid duration; write 30s, 5m or 1h30m (whole numbers with us, \
             ms, s, m, h or d, the largest unit first)"
        )
    })
}

/// The server's clock and this machine's time zone.
pub(crate) struct Times {
    now: Timestamp,
    zone: TimeZone,
}

/// A time range; `None`: no bound is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: Option<Timestamp>,
    pub(crate) to: Option<Timestamp>,
}

impl Times {
    /// Reads the server's clock.
    pub(crate) fn of(client: &Client) -> anyhow::Result<Self> {
        let health: api::Health = client.get("/api/v1/health")?;
        let now = instant(health.now).context("the server's clock is outside of the calendar")?;
        Ok(Self::at(now, TimeZone::system()))
    }

    /// A fixed clock, for tests and for local commands.
    pub(crate) const fn at(now: Timestamp, zone: TimeZone) -> Self {
        Self { now, zone }
    }

    /// Seconds since 1970 on the server's clock.
    pub(crate) fn now(&self) -> f64 {
        self.now.seconds()
    }

    /// Parses the options of a range of time.
    pub(crate) fn span_of(&self, range: &TimeRange) -> anyhow::Result<Span> {
        let TimeRange { since, until, last } = range;
        self.span(since.as_deref(), until.as_deref(), last.as_deref())
    }

    /// Parses `--since` and `--until`, or `--last`.
    pub(crate) fn span(
        &self,
        since: Option<&str>,
        until: Option<&str>,
        last: Option<&str>,
    ) -> anyhow::Result<Span> {
        if let Some(last) = last {
            if since.is_some() || until.is_some() {
                bail!("--last cannot be combined with --since or --until");
            }
            return Ok(Span { from: Some(self.before(last)?), to: Some(self.now) });
        }
        let read = |option: &str, text: Option<&str>| {
            if let Some(seconds) = text.and_then(seconds_of_finer) {
                let text = text.unwrap_or_default();
                bail!(
                    "--{option} {text}: the number has too many digits for seconds since 1970; \
                     write {seconds}"
                );
            }
            if let Some(seconds) = text.filter(|text| is_short_number(text)) {
                bail!(
                    "--{option} {seconds}: this is a time in 1970, as a number is seconds since then; \
                     write {seconds}s, {seconds}m or {seconds}h for that long ago"
                );
            }
            let at = text.map(|text| api::parse_time(text, self.now, &self.zone));
            let at = at.transpose().with_context(|| format!("--{option}"))?;
            match at {
                Some(at) if !STORED.contains(&at.0) => bail!(
                    "--{option} {}: samples have times from 1970 to 2262",
                    text.unwrap_or_default()
                ),
                at => anyhow::Ok(at),
            }
        };
        let span = Span { from: read("since", since)?, to: read("until", until)? };
        if let Span { from: Some(from), to } = span
            && from > to.map_or(self.now, |to| to.min(self.now))
        {
            let to = to.filter(|to| from > *to).map_or_else(
                || "now: nothing has been measured yet".to_owned(),
                |to| format!("--until {}", self.show(to.seconds())),
            );
            bail!("--since {} is after {to}", self.show(from.seconds()));
        }
        Ok(span)
    }

    /// The instant that duration before now.
    pub(crate) fn before(&self, last: &str) -> anyhow::Result<Timestamp> {
        let length = duration("last", last)?;
        if length.is_zero() {
            bail!("--last {last}: this interval is empty; write 30s, 5m or 1h30m");
        }
        let micros = i64::try_from(length.as_micros()).unwrap_or(i64::MAX);
        Ok(self.now.plus(-micros).max(Timestamp(0)))
    }

    /// The server's current time, as a bound.
    pub(crate) const fn instant_now(&self) -> Timestamp {
        self.now
    }

    /// Local time to the second: the time of day for today, otherwise with the date.
    pub(crate) fn show(&self, seconds: f64) -> String {
        let Some(at) = instant(seconds) else { return format!("{seconds:.0}") };
        let (Some(at), Some(now)) = (self.local(at), self.local(self.now)) else {
            return at.to_string();
        };
        let form = if at.date() == now.date() { "%H:%M:%S" } else { "%Y-%m-%d %H:%M:%S" };
        at.strftime(form).to_string()
    }

    /// Local time with its date, to the second.
    pub(crate) fn date_time(&self, at: Timestamp) -> String {
        let local = self.local(at);
        local.map_or_else(|| at.to_string(), |at| at.strftime("%Y-%m-%d %H:%M:%S").to_string())
    }

    /// A column's time as local time with its date, with the precision of the text. Other texts are unchanged.
    pub(crate) fn show_text(&self, text: &str) -> String {
        let local = written_time(text).and_then(|at| self.local(at));
        local.map_or_else(|| text.to_owned(), |at| at.datetime().to_string().replace('T', " "))
    }

    fn local(&self, at: Timestamp) -> Option<jiff::Zoned> {
        let at = jiff::Timestamp::from_microsecond(at.0).ok()?;
        Some(at.to_zoned(self.zone.clone()))
    }
}

/// Whether a number is most likely not seconds since 1970, but a duration.
fn is_short_number(text: &str) -> bool {
    text.len() < 8
        && text != "0"
        && text.bytes().all(|byte| byte.is_ascii_digit())
        && !text.is_empty()
}

/// The seconds in a number that is most likely milliseconds, microseconds or nanoseconds since 1970.
fn seconds_of_finer(text: &str) -> Option<&str> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && matches!(text.len(), 13 | 16 | 19)).then(|| text.get(..10))?
}

/// An instant as an API parameter, exact to the microsecond.
pub(crate) fn parameter(at: Timestamp) -> String {
    let sign = if at.0 < 0 { "-" } else { "" };
    let micros = at.0.unsigned_abs();
    format!("{sign}{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

/// An instant in machine formats: RFC 3339 in UTC, `2026-01-06T13:35:00.25Z`.
pub(crate) fn utc(at: Timestamp) -> String {
    at.to_string().replace("+00:00", "Z")
}

/// A column's time as RFC 3339 in UTC: the server's CSV has PostgreSQL's format. Other texts are unchanged.
pub(crate) fn rfc_3339(text: &str) -> String {
    written_time(text).map_or_else(|| text.to_owned(), utc)
}

/// Parses a time in a table, in the format of a server in any time zone: `2026-01-06T13:35:00.25+01:00`, or with
/// a blank and `+01`. A time without an offset is rejected, because its zone is unknown.
pub(crate) fn written_time(text: &str) -> Option<Timestamp> {
    let byte = |place: usize| text.as_bytes().get(place).copied();
    let is_date = byte(4) == Some(b'-') && byte(7) == Some(b'-');
    let is_time = matches!(byte(10), Some(b'T' | b' ')) && byte(13) == Some(b':');
    let fraction = |c: char| c.is_ascii_digit() || matches!(c, ':' | '.');
    let offset = text.get(16..).map(|rest| rest.trim_start_matches(fraction));
    let has_offset = offset.is_some_and(|offset| offset.starts_with(['+', '-', 'Z']));
    (is_date && is_time && has_offset).then(|| Timestamp::parse(text).ok())?
}

/// All times in a text of the server's rows.
pub(crate) fn written_times(text: &str) -> Vec<Timestamp> {
    let is_end = |c: char| !(c.is_ascii_digit() || matches!(c, ':' | '.' | '+' | '-' | 'Z'));
    let mut times = Vec::new();
    for (place, _) in text.match_indices("20") {
        let Some((date, rest)) = text.get(place..).and_then(|text| text.split_at_checked(11))
        else {
            continue;
        };
        let end = rest.find(is_end).unwrap_or(rest.len());
        times.extend(written_time(&format!("{date}{}", rest.get(..end).unwrap_or_default())));
    }
    times
}

/// The seconds since 1970 in a field of the server's JSON, if the field is an instant.
pub(crate) fn is_instant(key: &str, value: &Value) -> Option<f64> {
    value.as_f64().filter(|seconds| *seconds >= EARLIEST && INSTANTS.contains(&key))
}

/// Converts the server's JSON: instants become RFC 3339 in UTC. Text that is not JSON is unchanged.
pub(crate) fn machine(json: &str) -> String {
    match serde_json::from_str::<Value>(json) {
        Ok(value) => plain_lines(&machine_value(value).to_string()).into_owned(),
        Err(_) => plain_lines(json).into_owned(),
    }
}

/// Converts the instants in a JSON value to RFC 3339 in UTC.
pub(crate) fn machine_value(mut value: Value) -> Value {
    dated(&mut value);
    value
}

fn dated(value: &mut Value) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(dated),
        Value::Object(fields) => {
            for (key, value) in fields.iter_mut() {
                match is_instant(key, value).and_then(instant) {
                    Some(at) => *value = Value::String(utc(at)),
                    None => dated(value),
                }
            }
        }
        _ => {}
    }
}

pub(crate) fn instant(seconds: f64) -> Option<Timestamp> {
    let micros = (seconds * 1e6).round();
    if !(-62_135_596_800e6..253_402_300_800e6).contains(&micros) {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "whole, and within the years 1 to 9999")]
    Some(Timestamp(micros as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-01-06T13:35:00.25Z, which is 14:35 in Paris.
    fn times() -> Times {
        Times::at(Timestamp(1_767_706_500_250_000), TimeZone::get("Europe/Paris").unwrap())
    }

    #[test]
    fn intervals_are_read_in_local_time() {
        let read = |since, until, last| {
            times().span(since, until, last).map(|span| {
                let show = |at: Option<Timestamp>| at.map(|at| at.to_string());
                (show(span.from), show(span.to))
            })
        };
        let some = |text: &str| Some(text.to_owned());
        let now = some("2026-01-06T13:35:00.25+00:00");
        assert_eq!(read(None, None, None).unwrap(), (None, None));
        assert_eq!(
            read(None, None, Some("1h30m")).unwrap(),
            (some("2026-01-06T12:05:00.25+00:00"), now)
        );
        let day = read(Some("yesterday"), Some("14:00"), None).unwrap();
        assert_eq!(day, (some("2026-01-04T23:00:00+00:00"), some("2026-01-06T13:00:00+00:00")));
        let error = |since, until, last| format!("{:#}", read(since, until, last).unwrap_err());
        assert_eq!(
            error(Some("1h"), None, Some("5m")),
            "--last cannot be combined with --since or --until"
        );
        assert_eq!(
            error(Some("10m"), Some("20m"), None),
            "--since 14:25:00 is after --until 14:15:00"
        );
        assert_eq!(
            error(Some("tomorrow"), None, None),
            "--since 2026-01-07 00:00:00 is after now: nothing has been measured yet"
        );
        assert_eq!(
            error(Some("2030-01-01"), Some("2031-01-01"), None),
            "--since 2030-01-01 00:00:00 is after now: nothing has been measured yet"
        );
        assert!(error(None, None, Some("0s")).starts_with("--last 0s: this interval is empty; "));
        for text in ["1795445220000", "1795445220000000"] {
            let why = error(Some(text), None, None);
            assert!(why.ends_with("seconds since 1970; write 1795445220"), "{why}");
        }
        let why = error(Some("10"), None, None);
        assert!(why.ends_with("write 10s, 10m or 10h for that long ago"), "{why}");
        assert_eq!(read(Some("0"), None, None).unwrap().0, some("1970-01-01T00:00:00+00:00"));
        assert!(
            error(None, Some("noon"), None).starts_with("--until: `noon` is no time; write 10m")
        );
        assert!(
            error(None, None, Some("14:00")).starts_with("--last 14:00: invalid duration; write")
        );
        assert!(error(None, None, Some("-5m")).starts_with("--last -5m: it is negative; write"));
        for text in ["1969-12-31", "2262-04-13", "-1", "99999999999"] {
            let why = error(Some(text), Some(text), None);
            assert!(why.ends_with("samples have times from 1970 to 2262"), "{text}: {why}");
        }
    }

    #[test]
    fn people_read_local_time() {
        let times = times();
        assert_eq!(times.show(1_767_700_000.0), "12:46:40");
        assert_eq!(times.show(1_767_600_000.0), "2026-01-05 09:00:00");
        assert_eq!(times.date_time(Timestamp(1_767_706_500_250_000)), "2026-01-06 14:35:00");
        assert_eq!(times.show_text("2026-01-06T13:35:00.25+00:00"), "2026-01-06 14:35:00.25");
        for text in
            ["2026-01-06 13:35:00+00", "2026-01-06T08:35:00-05:00", "2026-01-06 19:05:00+05:30"]
        {
            assert_eq!(times.show_text(text), "2026-01-06 14:35:00", "{text}");
        }
        for text in ["load_1m", "2026-01-06", "11.99", "", "é-é-é", "2026-01-06 13:35:00"] {
            assert_eq!(times.show_text(text), text);
        }
    }

    #[test]
    fn scripts_read_rfc_3339() {
        let json = r#"[{"id":7,"start":1767706500.25,"stop":null,"used":{"cpus":4},"wall_seconds":1767706500.25,
            "runs":[{"start":1767706500}],"from":"::1","series":[{"value":2000000000}]}]"#;
        let value: Value = serde_json::from_str(&machine(json)).unwrap();
        let one = &value[0];
        assert_eq!(one["start"], "2026-01-06T13:35:00.25Z");
        assert_eq!(one["runs"][0]["start"], "2026-01-06T13:35:00Z");
        assert_eq!((one["id"].as_i64(), one["used"]["cpus"].as_i64()), (Some(7), Some(4)));
        assert_eq!(one["wall_seconds"], 1_767_706_500.25);
        assert_eq!((&one["stop"], &one["from"]), (&Value::Null, &Value::from("::1")));
        assert_eq!(machine("no json"), "no json");
        for text in [
            "2026-01-06 13:35:00.25+00",
            "2026-01-06 14:35:00.25+01",
            "2026-01-06T19:05:00.25+05:30",
            "2026-01-06T08:35:00.25-05:00",
            "2026-01-06T13:35:00.25Z",
        ] {
            assert_eq!(rfc_3339(text), "2026-01-06T13:35:00.25Z", "{text}");
        }
        assert_eq!(rfc_3339("2.5"), "2.5");
    }

    #[test]
    fn parameters_are_exact() {
        assert_eq!(parameter(Timestamp(1_767_706_500_250_001)), "1767706500.250001");
        assert_eq!(parameter(Timestamp(-1)), "-0.000001");
    }
}
