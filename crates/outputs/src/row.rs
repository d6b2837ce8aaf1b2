//! A sample as a line of JSON, and back.
//!
//! ```text
//! {"time":1764369000.5,"device":"n1","metric":"cpu_user_seconds_total","value":3.25,"start":1764360000,"job":"oar:7","labels":{"cpu": "0"},"unit":"seconds","kind":"counter"}
//! ```
//!
//! Times are seconds since 1970, exact to the microsecond. `start`, `job`, `labels` and `unit` are absent where there is none.
//! A value that is no number is `"NaN"`, `"Infinity"` or `"-Infinity"`.

use model::{ClusterId, DeviceId, JobId, JobKey, Kind, Labels, Series, Timestamp, Unit};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::io::Write as _;
use std::sync::Arc;
use storage::{SeriesInfo, TimeSlice};

/// The parts of a line that are the same for all samples of a series: before the value, and after it.
#[derive(Debug)]
pub(crate) struct SeriesText {
    before: String,
    after: String,
}

impl SeriesText {
    pub(crate) fn new(info: &SeriesInfo) -> Self {
        let Series { device, metric, job, labels } = &info.series;
        let before =
            format!(",\"device\":{},\"metric\":{},\"value\":", text(device.as_str()), text(metric));
        let mut after = String::new();
        if let Some(job) = job {
            after += &format!(",\"job\":{}", text(&job.to_string()));
        }
        if !labels.is_empty() {
            after += &format!(",\"labels\":{}", labels.as_str());
        }
        if !info.unit.word().is_empty() {
            after += &format!(",\"unit\":\"{}\"", info.unit.word());
        }
        after += match info.kind {
            Kind::Gauge => ",\"kind\":\"gauge\"}\n",
            Kind::Counter => ",\"kind\":\"counter\"}\n",
        };
        Self { before, after }
    }
}

/// Appends the line of a sample. `start` is [`TimeSlice::NO_START`] if it has none.
pub(crate) fn write_line(
    series: &SeriesText,
    (at, value, start): (i64, f64, i64),
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(b"{\"time\":");
    write_time(at, out);
    out.extend_from_slice(series.before.as_bytes());
    write_value(value, out);
    if start != TimeSlice::NO_START {
        out.extend_from_slice(b",\"start\":");
        write_time(start, out);
    }
    out.extend_from_slice(series.after.as_bytes());
}

/// Appends an instant: seconds with as many decimals as it needs.
pub(crate) fn write_time(micros: i64, out: &mut Vec<u8>) {
    let sign = if micros < 0 { "-" } else { "" };
    let (seconds, rest) = (micros.unsigned_abs() / 1_000_000, micros.unsigned_abs() % 1_000_000);
    let decimals = format!("{rest:06}");
    let decimals = decimals.trim_end_matches('0');
    let point = if decimals.is_empty() { "" } else { "." };
    // Writing to memory cannot fail.
    write!(out, "{sign}{seconds}{point}{decimals}").ok();
}

/// Appends a value: a number, or a text if it is none.
pub(crate) fn write_value(value: f64, out: &mut Vec<u8>) {
    let word: &[u8] = match value {
        value if value.is_nan() => b"\"NaN\"",
        f64::INFINITY => b"\"Infinity\"",
        f64::NEG_INFINITY => b"\"-Infinity\"",
        _ => {
            serde_json::to_writer(&mut *out, &value).ok();
            // `3.0` is `3`.
            if out.ends_with(b".0") {
                out.truncate(out.len() - 2);
            }
            return;
        }
    };
    out.extend_from_slice(word);
}

/// A text as JSON.
pub(crate) fn text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    time: &'a RawValue,
    device: String,
    metric: String,
    #[serde(borrow)]
    value: &'a RawValue,
    #[serde(borrow)]
    start: Option<&'a RawValue>,
    job: Option<String>,
    #[serde(borrow)]
    labels: Option<&'a RawValue>,
    #[serde(default)]
    unit: String,
    kind: String,
}

/// Reads a line: the series, the instant, the value and the start. `None`: it is no line of [`write_line`].
pub(crate) fn read_line(line: &str) -> Option<(SeriesInfo, i64, f64, i64)> {
    let line: Line<'_> = serde_json::from_str(line).ok()?;
    let at = read_time(line.time.get())?;
    let start = line.start.map_or(Some(TimeSlice::NO_START), |start| read_time(start.get()))?;
    let value = match line.value.get() {
        "\"NaN\"" => f64::NAN,
        "\"Infinity\"" => f64::INFINITY,
        "\"-Infinity\"" => f64::NEG_INFINITY,
        number => number.parse().ok()?,
    };
    let job = match line.job {
        None => None,
        Some(job) => Some(read_job(&job)?),
    };
    let labels =
        line.labels.map_or(Some(Labels::default()), |labels| Labels::foreign(labels.get()))?;
    let kind = match line.kind.as_str() {
        "gauge" => Kind::Gauge,
        "counter" => Kind::Counter,
        _ => return None,
    };
    let device = DeviceId::foreign(&line.device)?;
    let series = Series { device, metric: Arc::from(line.metric), job, labels };
    Some((
        SeriesInfo { series, unit: Unit::from_word(&line.unit)?, kind, divisor: 1 },
        at,
        value,
        start,
    ))
}

/// Reads the text of a job, `oar:7`.
pub(crate) fn read_job(text: &str) -> Option<JobKey> {
    let (cluster, id) = text.split_once(':')?;
    Some(JobKey { cluster: ClusterId::new(cluster).ok()?, id: JobId::new(id.parse().ok()?)? })
}

fn read_time(text: &str) -> Option<i64> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let (seconds, decimals) = digits.split_once('.').unwrap_or((digits, ""));
    let micros: i64 =
        if decimals.is_empty() { 0 } else { format!("{decimals:0<6}").parse().ok()? };
    let seconds: i64 = seconds.parse().ok()?;
    (decimals.len() <= 6)
        .then_some(sign * seconds.checked_mul(Timestamp::SECOND)?.checked_add(micros)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn info(job: Option<i64>, labels: &[(&str, &str)]) -> SeriesInfo {
        let job = job.map(|id| JobKey {
            cluster: ClusterId::new("oar").unwrap(),
            id: JobId::new(id).unwrap(),
        });
        let labels = Labels::new(labels.iter().copied()).unwrap();
        let device = DeviceId::new("n1").unwrap();
        let series = Series { device, metric: "cpu_user_seconds_total".into(), job, labels };
        SeriesInfo { series, unit: Unit::Seconds, kind: Kind::Counter, divisor: 1 }
    }

    fn line(info: &SeriesInfo, at: i64, value: f64, start: i64) -> String {
        let mut out = Vec::new();
        write_line(&SeriesText::new(info), (at, value, start), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_line_has_what_the_series_has() {
        assert_eq!(
            line(
                &info(Some(7), &[("cpu", "0")]),
                1_764_369_000_500_000,
                3.25,
                1_764_360_000_000_000
            ),
            "{\"time\":1764369000.5,\"device\":\"n1\",\"metric\":\"cpu_user_seconds_total\",\"value\":3.25,\
             \"start\":1764360000,\"job\":\"oar:7\",\"labels\":{\"cpu\": \"0\"},\"unit\":\"seconds\",\
             \"kind\":\"counter\"}\n"
        );
        let mut plain = info(None, &[]);
        (plain.unit, plain.kind) = (Unit::Count, Kind::Gauge);
        assert_eq!(
            line(&plain, -1, -0.0, TimeSlice::NO_START),
            "{\"time\":-0.000001,\"device\":\"n1\",\"metric\":\"cpu_user_seconds_total\",\"value\":-0,\
             \"kind\":\"gauge\"}\n"
        );
    }

    proptest! {
        #[test]
        fn a_line_is_read_as_written(
            at in -4_000_000_000_000_000_i64..9_000_000_000_000_000,
            bits: u64,
            start in proptest::option::of(0_i64..9_000_000_000_000_000),
            job in proptest::option::of(1_i64..99),
            label in "\\PC{0,8}",
        ) {
            let info = info(job, &[("part", &label)]);
            let value = f64::from_bits(bits);
            let start = start.unwrap_or(TimeSlice::NO_START);
            let (read, at_read, value_read, start_read) = read_line(&line(&info, at, value, start)).unwrap();
            prop_assert_eq!((read, at_read, start_read), (info, at, start));
            prop_assert!(value_read == value || (value.is_nan() && value_read.is_nan()));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,80}") {
            read_line(&text);
        }
    }
}
