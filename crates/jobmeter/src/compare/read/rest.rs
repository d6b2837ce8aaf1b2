//! Rows of jobmeter's server, and those of Kwollect, which have the same form.

use super::Request;
use super::remote::Remote;
use crate::client::http_client::{Client, path};
use crate::client::streamed::Streamed;
use crate::compare::columns;
use crate::compare::rows::{Job, Row, Sink};
use crate::output::times::{parameter, utc};
use anyhow::{Context as _, ensure};
use config::{ServerUrl, Token};
use model::Timestamp;
use serde::Deserialize;
use serde::de::{Deserializer as _, SeqAccess, Visitor};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufReader, Read};

/// The columns of rows.
const COLUMNS: &str = "timestamp,device_id,metric_id,value,labels";
/// Labels that state the job of a row.
const JOB: &str = "_job_id";
const CLUSTER: &str = "_cluster";

/// A row of the answer.
#[derive(Deserialize)]
struct RestRow {
    timestamp: String,
    device_id: String,
    metric_id: String,
    value: Value,
    labels: Option<BTreeMap<String, Value>>,
}

/// Reads a server of jobmeter: what it names itself, or only what Colmet's nodes sent.
pub(super) fn read(
    url: &ServerUrl,
    is_colmet: bool,
    request: &Request<'_>,
    sink: &mut Sink<'_>,
) -> anyhow::Result<()> {
    let settings = request.settings;
    let of_settings = || settings.token_file.as_deref().filter(|_| url.as_str() == request.server);
    let token = request.auth.or_else(of_settings).map(Token::read).transpose()?;
    let client = Client::new(url.as_str(), token, settings)?;
    let metrics = if is_colmet {
        Some("like.colmet_*".to_owned())
    } else {
        sink.metrics().map(|names| in_list(names.iter().map(String::as_str)))
    };
    for (from, to) in request.times() {
        let at = |at| Timestamp(at);
        let query = match request.job_parts() {
            // Kwollect's form also has the devices of the job while it runs.
            Some((cluster, id)) => path(
                "/rpc/get_metrics",
                &[
                    ("job_id", Some(id.to_owned())),
                    ("cluster", cluster.map(str::to_owned)),
                    ("start_time", Some(parameter(at(from)))),
                    ("end_time", Some(parameter(at(to - 1)))),
                    ("devices", request.devices.map(|names| names.join(","))),
                    ("metric_id", metrics.clone()),
                ],
            ),
            None => path(
                "/rest/metrics",
                &[
                    ("select", Some(COLUMNS.to_owned())),
                    ("timestamp", Some(format!("gte.{}", utc(at(from))))),
                    ("timestamp", Some(format!("lt.{}", utc(at(to))))),
                    ("device_id", request.devices.map(devices)),
                    ("metric_id", metrics.clone()),
                ],
            ),
        };
        let body = Streamed::new(client.stream(&query, "application/json")?);
        each(body, &mut |row| take(row, is_colmet, sink))
            .with_context(|| url.as_str().to_owned())?;
    }
    Ok(())
}

/// Reads a server of Kwollect. It only answers about devices or a job.
pub(super) fn read_kwollect(
    url: &ServerUrl,
    request: &Request<'_>,
    sink: &mut Sink<'_>,
) -> anyhow::Result<()> {
    ensure!(
        request.devices.is_some() || request.job.is_some(),
        "{}: Kwollect only answers about devices or a job: add --device or --job",
        url.as_str()
    );
    let remote = Remote::new(url, request)?;
    // Sites also have the function at a path that ends in `metrics`.
    let function = if url.as_str().ends_with("/metrics") { "" } else { "/rpc/get_metrics" };
    let metrics = sink.metrics().map(|names| names.into_iter().collect::<Vec<_>>().join(","));
    for (from, to) in request.times() {
        let query = path(
            function,
            &[
                ("job_id", request.job_parts().map(|(_, id)| id.to_owned())),
                ("devices", request.devices.map(|names| names.join(","))),
                ("metrics", metrics.clone()),
                ("start_time", Some(parameter(Timestamp(from)))),
                ("end_time", Some(parameter(Timestamp(to - 1)))),
            ],
        );
        each(remote.get(&query)?, &mut |row| take(row, false, sink))
            .with_context(|| url.as_str().to_owned())?;
    }
    Ok(())
}

/// A list of names as a condition.
fn in_list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let is_plain = |name: &str| name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_');
    let quoted = |name: &str| match is_plain(name) {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\"")),
    };
    format!("in.({})", names.map(quoted).collect::<Vec<_>>().join(","))
}

/// Devices as they are written, and as agents name them.
fn devices(names: &[String]) -> String {
    let short = |name: &str| name.split('.').next().map(str::to_owned);
    let mut all: Vec<String> = names.iter().filter_map(|name| short(name)).collect();
    all.extend(names.iter().cloned());
    all.sort();
    all.dedup();
    in_list(all.iter().map(String::as_str))
}

fn take(row: RestRow, is_colmet: bool, sink: &mut Sink<'_>) -> anyhow::Result<()> {
    let Some(value) = row.value.as_f64() else { return Ok(()) };
    let at = Timestamp::parse(&row.timestamp)?.0;
    let mut labels = BTreeMap::new();
    let (mut job, mut cluster) = (None, None);
    for (name, value) in row.labels.unwrap_or_default() {
        let value = match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        match &*name {
            JOB => job = Some(value),
            CLUSTER => cluster = Some(value),
            // The others describe the row, not the series.
            _ if name.starts_with('_') => {}
            _ => {
                labels.insert(name, value);
            }
        }
    }
    let job = job.as_deref().map(|id| Job { cluster: cluster.as_deref(), id });
    let (mut metric, mut value) = (&*row.metric_id, value);
    if is_colmet {
        let Some((mapped, ours)) = columns::stored(metric, value) else { return Ok(()) };
        (metric, value) = (mapped.metric, ours);
        labels = mapped.labels();
    }
    let device = &row.device_id;
    sink.add(&Row { device, metric, job, labels: &labels, at, value, grows: false })
}

/// Passes the rows of a JSON array while it arrives.
fn each(
    body: impl Read,
    take: &mut dyn FnMut(RestRow) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    struct Rows<'a> {
        take: &'a mut dyn FnMut(RestRow) -> anyhow::Result<()>,
        failed: &'a mut Option<anyhow::Error>,
    }
    impl<'de> Visitor<'de> for Rows<'_> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array of rows")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut rows: A) -> Result<(), A::Error> {
            while let Some(row) = rows.next_element()? {
                if let Err(error) = (self.take)(row) {
                    *self.failed = Some(error);
                    return Err(serde::de::Error::custom("a row"));
                }
            }
            Ok(())
        }
    }
    let mut failed = None;
    let mut json = serde_json::Deserializer::from_reader(BufReader::new(body));
    let read = json.deserialize_seq(Rows { take, failed: &mut failed });
    match failed {
        Some(error) => Err(error),
        None => read.context("the answer has no rows as jobmeter and Kwollect send them"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_quote_what_is_no_word() {
        assert_eq!(in_list(["a_1", "b\"c", "n-1"].into_iter()), r#"in.(a_1,"b\"c","n-1")"#);
        assert_eq!(devices(&["n1.site".to_owned(), "n1".to_owned()]), r#"in.(n1,"n1.site")"#);
    }

    #[test]
    fn an_answer_that_is_cut_is_an_error() {
        let row = r#"{"timestamp":"2026-01-06T13:35:00+00:00","device_id":"n","metric_id":"m","value":1,"labels":{}}"#;
        let count = |text: String| {
            let mut rows = 0;
            let mut take = |_| {
                rows += 1;
                Ok(())
            };
            let is_whole = each(text.as_bytes(), &mut take).is_ok();
            (rows, is_whole)
        };
        assert_eq!(count(format!("[{row},{row}]")), (2, true));
        assert_eq!(count(format!("[{row},")), (1, false));
        assert_eq!(count("[]".to_owned()), (0, true));
        assert_eq!(count(r#"{"code":"x"}"#.to_owned()), (0, false));
        let failed = each(format!("[{row}]").as_bytes(), &mut |_| anyhow::bail!("too many"));
        assert_eq!(failed.unwrap_err().to_string(), "too many");
    }
}
