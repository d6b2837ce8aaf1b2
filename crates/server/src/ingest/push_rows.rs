//! Rows that a program inserts, read from a body: JSON or CSV, with the keys and defaults of Kwollect's `insert_metrics`.
//!
//! Each row is checked. The first bad one is the error of the whole body, with its number.

use crate::common::csv::Records;
use crate::common::http_error::{HttpError, Why};
use axum::http::StatusCode;
use jiff::tz::TimeZone;
use model::{DeviceId, JsonObjects, Labels, LabelsError, Metric, Timestamp, json_text};
use query::parse_time;

/// The keys of a row, and the one that only users' rows have.
const KEYS: [&str; 5] = ["device_id", "metric_id", "timestamp", "value", "labels"];
const JOB_KEY: &str = "job_id";
/// A row further ahead of the server's clock is rejected: 24 h, as the store does; 60 s of a user.
const AHEAD_MAX_US: i64 = 24 * 3600 * Timestamp::SECOND;
const USER_AHEAD_MAX_US: i64 = 60 * Timestamp::SECOND;

/// A row, checked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PushRow {
    pub(crate) device: DeviceId,
    pub(crate) metric: Box<str>,
    pub(crate) at: Timestamp,
    pub(crate) value: f64,
    pub(crate) labels: Labels,
    /// The job of a user's row, as its text names it.
    pub(crate) job: Option<Box<str>>,
}

/// What rows are read with.
#[derive(Clone, Debug)]
pub(crate) struct RowReader {
    /// The time of a row without one.
    pub(crate) now: Timestamp,
    /// Earlier rows are final.
    pub(crate) settled: Option<Timestamp>,
    /// The zone of a time without one.
    pub(crate) zone: TimeZone,
    /// Whether a user inserts the rows.
    pub(crate) is_user: bool,
    /// The device of every row, whatever the body states: the node that the caller's address identifies.
    pub(crate) node: Option<DeviceId>,
    pub(crate) rows_max: usize,
}

/// The texts of a row by the place of their key in [`RowReader::keys`].
type Texts = [Option<String>; KEYS.len() + 1];

/// The texts of a program's row, in the order of [`KEYS`].
pub(crate) type RowTexts = [Option<String>; KEYS.len()];

/// The error of a row, which has its number.
pub(crate) fn row_error(row: usize, mut error: HttpError) -> HttpError {
    error.message = format!("row {row}: {}", error.message);
    error.details = Some("Rows count from 1. Nothing of the request is stored.".to_owned());
    error
}

/// An invalid value.
fn invalid(code: &'static str, message: impl Into<String>) -> HttpError {
    HttpError::new(StatusCode::BAD_REQUEST, code, Why::Malformed, message)
}

impl RowReader {
    /// Reads a body of JSON: an object, or a list of objects.
    pub(crate) fn json(&self, text: &str) -> Result<Vec<PushRow>, HttpError> {
        let mut rows = Vec::new();
        for (object, row) in JsonObjects::new(text).zip(1..) {
            let error = |error| row_error(row, error);
            let members = object
                .map_err(|why| error(HttpError::malformed(format!("not valid JSON: {why}"))))?;
            self.check_count(row)?;
            let mut texts = Texts::default();
            for (key, value) in members {
                let place = self.place(&key).map_err(error)?;
                if let Some(slot) = texts.get_mut(place) {
                    *slot = json_value(&key, &value).map_err(error)?;
                }
            }
            rows.push(self.row(texts).map_err(error)?);
        }
        Ok(rows)
    }

    /// Reads a body of CSV: a line of keys, and a line for each row.
    pub(crate) fn csv(&self, text: &str) -> Result<Vec<PushRow>, HttpError> {
        let bad = |why| HttpError::malformed(format!("not valid CSV: {why}"));
        let mut records = Records::new(text.strip_prefix('\u{feff}').unwrap_or(text));
        let head = records.next().ok_or_else(|| bad("the line of keys is missing"))?;
        let mut places = Vec::new();
        for key in head.map_err(bad)? {
            let place = self.place(&key.unwrap_or_default())?;
            if places.contains(&place) {
                return Err(bad("a key occurs twice in its first line"));
            }
            places.push(place);
        }
        let mut rows = Vec::new();
        for (record, row) in records.zip(1..) {
            let error = |error| row_error(row, error);
            let fields = record.map_err(|why| error(bad(why)))?;
            self.check_count(row)?;
            if fields.len() != places.len() {
                let (has, want) = (fields.len(), places.len());
                return Err(error(HttpError::malformed(format!(
                    "{has} fields, but the first line has {want} keys"
                ))));
            }
            let mut texts = Texts::default();
            for (place, field) in places.iter().zip(fields) {
                if let Some(slot) = texts.get_mut(*place) {
                    *slot = field;
                }
            }
            rows.push(self.row(texts).map_err(error)?);
        }
        Ok(rows)
    }

    /// Reads rows of texts.
    pub(crate) fn texts(&self, rows: Vec<RowTexts>) -> Result<Vec<PushRow>, HttpError> {
        let row = |([device, metric, at, value, labels], number): (RowTexts, usize)| {
            self.check_count(number)?;
            let row = self.row([device, metric, at, value, labels, None]);
            row.map_err(|error| row_error(number, error))
        };
        rows.into_iter().zip(1..).map(row).collect()
    }

    fn keys(&self) -> impl Iterator<Item = &'static str> {
        KEYS.into_iter().chain(self.is_user.then_some(JOB_KEY))
    }

    fn place(&self, key: &str) -> Result<usize, HttpError> {
        let unknown = || {
            let known: Vec<&str> = self.keys().collect();
            let shown: String = model::printable(key).chars().take(100).collect();
            let message = format!("unknown key `{shown}`; the keys are {}", known.join(", "));
            let near = config::nearest(key, known).map(|near| format!("did you mean `{near}`?"));
            let error = HttpError::new(StatusCode::NOT_FOUND, "PGRST202", Why::Unknown, message);
            error.hint(near)
        };
        self.keys().position(|known| known == key).ok_or_else(unknown)
    }

    fn check_count(&self, rows: usize) -> Result<(), HttpError> {
        if rows <= self.rows_max {
            return Ok(());
        }
        let max = self.rows_max;
        Err(HttpError::too_large(format!(
            "the request has more than {max} rows, `push.rows_per_request_max` of the server; send \
             fewer at once"
        )))
    }

    fn row(&self, texts: Texts) -> Result<PushRow, HttpError> {
        let [device, metric, at, value, labels, job] = texts;
        let missing = |key: &str| invalid("23502", format!("`{key}` is missing"));
        let device = match &self.node {
            Some(node) => node.clone(),
            None => {
                let device = device.ok_or_else(|| missing("device_id"))?;
                DeviceId::new(&device).map_err(|error| invalid("22023", error.to_string()))?
            }
        };
        if self.node.is_some() && job.is_some() {
            return Err(HttpError::forbidden(
                "a caller whom only the address identifies has no job; send a token of scope `user:NAME` with `job_id`",
            ));
        }
        let metric = metric.ok_or_else(|| missing("metric_id"))?;
        Metric::check_name(&metric).map_err(|error| invalid("22023", error.to_string()))?;
        let at = match at {
            Some(text) => parse_time(&text, self.now, &self.zone).map_err(HttpError::from)?,
            None => self.now,
        };
        self.check_time(at)?;
        let value = value.map_or(Ok(f64::NAN), |text| double(&text))?;
        let labels = labels.as_deref().map_or_else(|| Ok(Labels::default()), Labels::from_json);
        let labels = labels.and_then(Labels::must_be_printable);
        let labels = labels.map_err(|error| {
            let is_syntax = matches!(error, LabelsError::Json(_));
            invalid(if is_syntax { "22P02" } else { "22023" }, error.to_string())
        })?;
        // A blank, or another sign that looks like `_`, must not hide it.
        let own = |(key, _): &(String, &str)| !key.starts_with(char::is_alphanumeric);
        if self.is_user
            && let Some((key, _)) = labels.members().iter().find(|member| own(member))
        {
            return Err(HttpError::forbidden(format!(
                "labels of users begin with a letter or a digit, not as `{key}`"
            )));
        }
        Ok(PushRow {
            device,
            metric: metric.into(),
            at,
            value,
            labels,
            job: job.map(String::into_boxed_str),
        })
    }

    /// Checks that a row of this time may be stored.
    fn check_time(&self, at: Timestamp) -> Result<(), HttpError> {
        let ahead_us = if self.is_user { USER_AHEAD_MAX_US } else { AHEAD_MAX_US };
        if at < Timestamp::YEAR_2000 {
            return Err(invalid("22008", format!("the time {at} is before 2000")));
        }
        if at.since(self.now) > ahead_us {
            let seconds = ahead_us / Timestamp::SECOND;
            let now = self.now;
            return Err(invalid(
                "22008",
                format!("the time {at} is more than {seconds} s after the server's time {now}"),
            ));
        }
        match self.settled.filter(|settled| at < *settled) {
            None => Ok(()),
            Some(settled) => Err(invalid(
                "22008",
                format!(
                    "the time {at} is too old: data before {settled} is final; \
                     `retention.late_max` of the server allows older rows"
                ),
            )),
        }
    }
}

/// The text of a JSON value; none of null.
fn json_value(key: &str, value: &str) -> Result<Option<String>, HttpError> {
    let is_text = value.starts_with('"');
    let is_number = value.starts_with(|first: char| first == '-' || first.is_ascii_digit());
    let want = match key {
        _ if value == "null" => return Ok(None),
        // A list or object stays as its JSON.
        "labels" if value.starts_with('{') => return Ok(Some(value.to_owned())),
        "labels" => "an object such as {\"cpu\": 0}",
        "timestamp" if is_text || is_number => return Ok(json_text(value)),
        "timestamp" => "a text such as \"2026-01-06 14:00:00\", or seconds since 1970",
        "value" if is_text || is_number => return Ok(json_text(value)),
        "value" => "a number, or \"NaN\"",
        JOB_KEY if is_text || is_number => return Ok(json_text(value)),
        JOB_KEY => "a job such as 1234 or \"slurm:1234\"",
        _ if is_text => return Ok(json_text(value)),
        _ => "a text",
    };
    Err(invalid("22P02", format!("`{key}` must be {want}")))
}

/// Reads a number as PostgreSQL's `float8` does.
fn double(text: &str) -> Result<f64, HttpError> {
    let trimmed = text.trim();
    let shown = || trimmed.chars().take(100).collect::<String>();
    let value: f64 = trimmed.parse().map_err(|_| {
        let message = format!("invalid input syntax for type double precision: \"{}\"", shown());
        invalid("22P02", message)
    })?;
    if value.is_infinite() && !trimmed.contains(['i', 'I']) {
        let message = format!("\"{}\" is out of range for type double precision", shown());
        return Err(invalid("22003", message));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Timestamp = Timestamp(1_767_706_500_000_000);

    fn reader(is_user: bool) -> RowReader {
        let settled = Some(NOW.plus(-3600 * Timestamp::SECOND));
        RowReader { now: NOW, settled, zone: TimeZone::UTC, is_user, node: None, rows_max: 3 }
    }

    fn error(text: &str) -> HttpError {
        reader(true).json(text).unwrap_err()
    }

    #[test]
    fn rows_with_their_defaults() {
        let row = &reader(false).json(r#"{"device_id": "d", "metric_id": "m"}"#).unwrap()[0];
        assert!(row.value.is_nan() && row.labels.is_empty());
        assert_eq!((row.device.as_str(), &*row.metric, row.at), ("d", "m", NOW));
        let text = r#"[{"device_id": "d", "metric_id": "m", "timestamp": "2026-01-06 13:34:00", "value": 7.5,
            "labels": {"b": [1, 1.50], "a": {"x": null}}},
            {"device_id": "d", "metric_id": "m", "timestamp": 1767706500.25, "value": "-Infinity", "labels": null}]"#;
        let rows = reader(false).json(text).unwrap();
        assert_eq!((rows[0].at.seconds(), rows[0].value), (1_767_706_440.0, 7.5));
        assert_eq!(rows[0].labels.as_str(), r#"{"a": {"x": null}, "b": [1, 1.50]}"#);
        assert_eq!((rows[1].at.seconds(), rows[1].value), (1_767_706_500.25, f64::NEG_INFINITY));
        assert_eq!(reader(false).json("[]").unwrap(), []);
        let csv = "metric_id,device_id,value,labels\nm,d,1e3,\"{\"\"a\"\": 1}\"\nm,d,NULL,\n";
        let rows = reader(false).csv(csv).unwrap();
        assert_eq!((rows[0].value, rows[0].labels.as_str()), (1000.0, r#"{"a": 1}"#));
        assert!(rows[1].value.is_nan() && rows[1].at == NOW);
        let job =
            reader(true).json(r#"{"device_id": "d", "metric_id": "m", "job_id": 7}"#).unwrap();
        assert_eq!(job[0].job.as_deref(), Some("7"));
    }

    #[test]
    fn rows_of_a_node_have_its_device_and_no_job() {
        let reader = RowReader { node: DeviceId::new("n7").ok(), ..reader(true) };
        for device in
            ["", r#""device_id": "n1", "#, r#""device_id": "a/b", "#, r#""device_id": null, "#]
        {
            let rows = reader.json(&format!("{{{device}\"metric_id\": \"m\"}}")).unwrap();
            assert_eq!(rows[0].device.as_str(), "n7", "{device}");
        }
        let rows = reader.csv("metric_id,device_id\nm,n1\n").unwrap();
        assert_eq!(rows[0].device.as_str(), "n7");
        let error = reader.json(r#"{"metric_id": "m", "job_id": 7}"#).unwrap_err();
        assert!(error.status == StatusCode::FORBIDDEN && error.message.contains("has no job"));
        assert!(reader.json(r#"{"metric_id": "m", "job_id": null}"#).is_ok());
    }

    /// Rows with the status, the code and a part of the message of their error.
    const BAD_ROWS: &[(&str, u16, &str, &str)] = &[
        (r#"{"metric_id": "m"}"#, 400, "23502", "`device_id` is missing"),
        (r#"{"device_id": "d"}"#, 400, "23502", "`metric_id` is missing"),
        (r#"{"device_id": 7, "metric_id": "m"}"#, 400, "22P02", "must be a text"),
        (r#"{"device_id": "a,b", "metric_id": "m"}"#, 400, "22023", "the character ','"),
        (r#"{"device_id": "../d", "metric_id": "m"}"#, 400, "22023", "begins with"),
        (r#"{"device_id": "d\u0000", "metric_id": "m"}"#, 400, "22023", "character"),
        (r#"{"device_id": "d\u202e", "metric_id": "m"}"#, 400, "22023", "character"),
        (r#"{"device_id": "d", "metric_id": "m,m"}"#, 400, "22023", "no metric name"),
        (r#"{"device_id": "d", "metric_id": "m", "valeu": 1}"#, 404, "PGRST202", "`valeu`"),
        (r#"{"device_id": "d", "metric_id": "m", "value": true}"#, 400, "22P02", "a number"),
        (r#"{"device_id": "d", "metric_id": "m", "value": "1 W"}"#, 400, "22P02", "1 W"),
        (r#"{"device_id": "d", "metric_id": "m", "value": 1e400}"#, 400, "22003", "range"),
        (r#"{"device_id": "d", "metric_id": "m", "labels": []}"#, 400, "22P02", "an object"),
        (r#"{"device_id": "d", "metric_id": "m", "labels": "{}"}"#, 400, "22P02", "an object"),
        (r#"{"device_id": "d", "metric_id": "m", "labels": {"": 1}}"#, 400, "22023", "empty key"),
        (
            r#"{"device_id": "d", "metric_id": "m", "labels": {"a": "\u0007"}}"#,
            400,
            "22023",
            "control",
        ),
        (
            r#"{"device_id": "d", "metric_id": "m", "labels": {"_device_alias": "n2"}}"#,
            403,
            "42501",
            "labels of users begin with",
        ),
        (
            r#"{"device_id": "d", "metric_id": "m", "timestamp": "yesterdy"}"#,
            400,
            "22007",
            "yesterdy",
        ),
        (r#"{"device_id": "d", "metric_id": "m", "timestamp": 7}"#, 400, "22008", "before 2000"),
        (
            r#"{"device_id": "d", "metric_id": "m", "timestamp": -1e300}"#,
            400,
            "22008",
            "out of range",
        ),
        (
            r#"{"device_id": "d", "metric_id": "m", "timestamp": "infinity"}"#,
            400,
            "22007",
            "infinity",
        ),
        (
            r#"{"device_id": "d", "metric_id": "m", "timestamp": "+61s"}"#,
            400,
            "22008",
            "60 s after",
        ),
        (
            r#"{"device_id": "d", "metric_id": "m", "timestamp": "2h"}"#,
            400,
            "22008",
            "retention.late_max",
        ),
        ("7", 400, "PGRST102", "no JSON object"),
    ];

    #[test]
    fn a_bad_row_is_the_error_with_its_number() {
        let good = r#"{"device_id": "d", "metric_id": "m"}"#;
        for (row, status, code, why) in BAD_ROWS {
            let error = error(&format!("[{good}, {row}]"));
            let got = (error.status.as_u16(), error.code);
            assert_eq!(got, (*status, *code), "{row}: {}", error.message);
            assert!(error.message.starts_with("row 2: "), "{}", error.message);
            assert!(error.message.contains(why), "{row}: {}", error.message);
        }
        let many = error(&format!("[{}]", [good; 4].join(",")));
        assert_eq!(many.status.as_u16(), 413);
        let ahead = r#"{"device_id": "d", "metric_id": "m", "timestamp": "+23h"}"#;
        assert!(reader(false).json(ahead).is_ok(), "not of a user");
        assert_eq!(
            reader(false)
                .json(r#"{"device_id": "d", "metric_id": "m", "job_id": 1}"#)
                .unwrap_err()
                .code,
            "PGRST202"
        );
    }

    #[test]
    fn bad_csv_is_rejected() {
        for (text, why) in [
            ("", "line of keys"),
            ("device_id,device_id\n", "twice"),
            ("device_id,x\n", "unknown key `x`"),
            ("device_id,metric_id\nd\n", "row 1: 1 fields"),
            ("device_id,metric_id\nd,m\n\"d,m\n", "row 2: not valid CSV"),
        ] {
            let error = reader(false).csv(text).unwrap_err();
            assert!(error.message.contains(why), "{text}: {}", error.message);
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[\\[\\]{}\",:a1 \n]{0,60}", value in ".{0,20}") {
            reader(true).json(&text).ok();
            reader(true).csv(&format!("device_id,metric_id,value,timestamp\n{text}")).ok();
            double(&value).ok();
            let row = serde_json::json!({"device_id": value, "metric_id": value, "labels": {"a": value}});
            reader(false).json(&row.to_string()).ok();
        }
    }
}
