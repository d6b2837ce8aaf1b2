//! Encodes rows as PostgREST's JSON (PostgreSQL's `json_agg` of rows) or as its CSV.

use crate::common::print::{TimeStyle, Times, double, string};
use crate::{Format, Line, RowBatch};
use jiff::tz::TimeZone;

/// Size of a piece in bytes, exceeded by at most one row.
const PIECE_BYTES: usize = 64 << 10;

/// Encodes row batches as pieces of text.
#[derive(Debug)]
pub(crate) struct Encoder {
    format: Format,
    times: Times,
    /// The last printed instant and its text: adjacent rows often share the instant.
    instant: Option<i64>,
    instant_text: Vec<u8>,
    batch: RowBatch,
    /// The next row of the batch.
    row: usize,
    /// For each line of the batch: the text before and after the value.
    lines: Vec<(Vec<u8>, Vec<u8>)>,
    out: Vec<u8>,
    rows_written: bool,
    last: bool,
}

impl Encoder {
    pub(crate) fn new(format: Format, zone: TimeZone) -> Self {
        let (style, head): (_, &[u8]) = match format {
            Format::Json => (TimeStyle::Json, b"["),
            Format::Csv => (TimeStyle::Text, b"timestamp,device_id,metric_id,value,labels\n"),
        };
        Self {
            format,
            times: Times::new(zone, style),
            instant: None,
            instant_text: Vec::new(),
            batch: RowBatch::default(),
            row: 0,
            lines: Vec::new(),
            out: head.to_vec(),
            rows_written: false,
            last: false,
        }
    }

    /// Accepts the next batch; the previous one must be written completely.
    pub(crate) fn take(&mut self, batch: RowBatch) {
        self.lines.clear();
        self.lines.extend(batch.lines.iter().map(|line| match self.format {
            Format::Json => json_line(line),
            Format::Csv => csv_line(line),
        }));
        (self.batch, self.row) = (batch, 0);
    }

    /// Closes the text after the last batch.
    pub(crate) fn finish(&mut self) {
        if self.format == Format::Json {
            self.out.push(b']');
        }
        self.last = true;
    }

    /// Discards the rest of the batch.
    pub(crate) fn stop(&mut self) {
        (self.batch, self.row) = (RowBatch::default(), 0);
        self.out.clear();
    }

    /// The next piece. `None`: the encoder needs the next batch, or the text is complete.
    pub(crate) fn piece(&mut self) -> Option<Vec<u8>> {
        while self.row < self.batch.len() && self.out.len() < PIECE_BYTES {
            self.write_row();
            self.row += 1;
        }
        let full = self.out.len() >= PIECE_BYTES || (self.last && !self.out.is_empty());
        full.then(|| std::mem::replace(&mut self.out, Vec::with_capacity(PIECE_BYTES + 1024)))
    }

    fn write_row(&mut self) {
        let row = self.row;
        let (Some(at), Some(value), Some(place)) =
            (self.batch.times.get(row), self.batch.values.get(row), self.batch.places.get(row))
        else {
            return;
        };
        let line = usize::try_from(*place).ok().and_then(|place| self.lines.get(place));
        let Some((before, after)) = line else { return };
        if self.instant != Some(*at) {
            self.instant_text.clear();
            self.times.write(*at, &mut self.instant_text);
            self.instant = Some(*at);
        }
        let valid = self.batch.is_valid(row);
        let out = &mut self.out;
        match self.format {
            Format::Json => {
                let head: &[u8] = if self.rows_written {
                    b", \n {\"timestamp\":\""
                } else {
                    b"{\"timestamp\":\""
                };
                out.extend_from_slice(head);
                out.extend_from_slice(&self.instant_text);
                out.extend_from_slice(before);
                if !valid {
                    out.extend_from_slice(b"null");
                } else if value.is_finite() {
                    double(*value, out);
                } else {
                    // JSON has no NaN or infinity; PostgreSQL writes them as strings.
                    out.push(b'"');
                    double(*value, out);
                    out.push(b'"');
                }
            }
            Format::Csv => {
                out.push(b'"');
                out.extend_from_slice(&self.instant_text);
                out.extend_from_slice(before);
                if valid {
                    double(*value, out);
                }
            }
        }
        out.extend_from_slice(after);
        self.rows_written = true;
    }
}

/// The text of rows.
pub fn encoded_rows(rows: RowBatch, format: Format, zone: TimeZone) -> Vec<u8> {
    let mut encoder = Encoder::new(format, zone);
    encoder.take(rows);
    let mut text = Vec::new();
    while let Some(piece) = encoder.piece() {
        text.extend(piece);
    }
    encoder.finish();
    text.extend(encoder.piece().unwrap_or_default());
    text
}

fn json_line(line: &Line) -> (Vec<u8>, Vec<u8>) {
    let mut before = b"\",\"device_id\":".to_vec();
    string(line.device.as_str(), &mut before);
    before.extend_from_slice(b",\"metric_id\":");
    string(&line.metric, &mut before);
    before.extend_from_slice(b",\"value\":");
    let after = [b",\"labels\":", line.labels.as_bytes(), b"}"].concat();
    (before, after)
}

fn csv_line(line: &Line) -> (Vec<u8>, Vec<u8>) {
    let (device, metric) = (record_field(line.device.as_str()), record_field(&line.metric));
    // Absent labels, in rows of other programs.
    let labels = if &*line.labels == "null" { String::new() } else { record_field(&line.labels) };
    let after = format!(",{labels}\n");
    (format!("\",{device},{metric},").into(), after.into())
}

/// A text as a field of CSV, with PostgreSQL's quoting of a `record`; quotes in the text are doubled.
pub fn record_field(text: &str) -> String {
    let text = api::csv_cell(text);
    let special = |c: char| matches!(c, '"' | '\\' | '(' | ')' | ',') || c.is_whitespace();
    if !text.is_empty() && !text.contains(special) {
        return text.into_owned();
    }
    format!("\"{}\"", text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{DeviceId, Kind};
    use std::sync::Arc;

    fn line(device: &str, labels: &str) -> Arc<Line> {
        Arc::new(Line {
            device: DeviceId::new(device).unwrap(),
            metric: Arc::from("load_1m"),
            kind: Kind::Gauge,
            labels: Arc::from(labels),
            job: None,
            allocation: None,
        })
    }

    fn batch() -> RowBatch {
        let lines =
            vec![line("n1", "{}"), line("n \"2\"", r#"{"a": "b\"c", "interface": "eth0"}"#)];
        let mut batch = RowBatch { lines, ..RowBatch::default() };
        batch.push(0, 1_744_995_333_754_307, 98.0, true);
        batch.push(1, 1_744_995_333_754_307, f64::NAN, true);
        batch.push(1, 1_744_995_334_000_000, 0.0, false);
        batch
    }

    fn text(format: Format, batches: Vec<RowBatch>) -> String {
        let mut encoder = Encoder::new(format, TimeZone::get("Europe/Paris").unwrap());
        let mut text = Vec::new();
        for batch in batches {
            encoder.take(batch);
            while let Some(piece) = encoder.piece() {
                text.extend(piece);
            }
        }
        encoder.finish();
        text.extend(encoder.piece().unwrap());
        assert_eq!(encoder.piece(), None);
        String::from_utf8(text).unwrap()
    }

    /// Output of PostgreSQL 15.20's `json_agg` for a table of these rows.
    const JSON: &str = concat!(
        r#"[{"timestamp":"2025-04-18T18:55:33.754307+02:00","device_id":"n1","metric_id":"load_1m","value":98,"labels":{}}, "#,
        "\n ",
        r#"{"timestamp":"2025-04-18T18:55:33.754307+02:00","device_id":"n \"2\"","metric_id":"load_1m","value":"NaN","labels":{"a": "b\"c", "interface": "eth0"}}, "#,
        "\n ",
        r#"{"timestamp":"2025-04-18T18:55:34+02:00","device_id":"n \"2\"","metric_id":"load_1m","value":null,"labels":{"a": "b\"c", "interface": "eth0"}}]"#
    );

    #[test]
    fn json_as_postgresql_aggregates_it() {
        assert_eq!(text(Format::Json, vec![batch()]), JSON);
        assert_eq!(text(Format::Json, vec![]), "[]");
        let parsed: serde_json::Value = serde_json::from_str(JSON).unwrap();
        assert_eq!(parsed[1]["labels"]["a"], "b\"c");
    }

    #[test]
    fn csv_with_doubled_quotes() {
        let expected = "timestamp,device_id,metric_id,value,labels\n\
            \"2025-04-18 18:55:33.754307+02\",n1,load_1m,98,{}\n\
            \"2025-04-18 18:55:33.754307+02\",\"n \"\"2\"\"\",load_1m,NaN,\"{\"\"a\"\": \"\"b\\\"\"c\"\", \"\"interface\"\": \"\"eth0\"\"}\"\n\
            \"2025-04-18 18:55:34+02\",\"n \"\"2\"\"\",load_1m,,\"{\"\"a\"\": \"\"b\\\"\"c\"\", \"\"interface\"\": \"\"eth0\"\"}\"\n";
        assert_eq!(text(Format::Csv, vec![batch()]), expected);
        assert_eq!(text(Format::Csv, vec![]), "timestamp,device_id,metric_id,value,labels\n");
    }

    #[test]
    fn no_text_begins_a_formula() {
        let mut batch = RowBatch { lines: vec![line("=1+1", "{}")], ..RowBatch::default() };
        batch.push(0, 0, -1.0, true);
        let text = text(Format::Csv, vec![batch]);
        assert!(text.ends_with(",'=1+1,load_1m,-1,{}\n"), "{text}");
    }

    #[test]
    fn many_rows_are_cut_into_pieces() {
        let mut large = RowBatch { lines: vec![line("n1", "{}")], ..RowBatch::default() };
        (0..3000).for_each(|i| large.push(0, i * 1_000_000, 1.0, true));
        let whole = text(Format::Json, vec![large.clone(), large]);
        let parsed: Vec<serde_json::Value> = serde_json::from_str(&whole).unwrap();
        assert_eq!(parsed.len(), 6000);
    }
}
