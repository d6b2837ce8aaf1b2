//! Graphite: the render API of graphite-web, with the paths of the output `graphite`.

use super::Request;
use super::remote::Remote;
use crate::client::http_client::escape;
use crate::compare::columns::{Mapped, fructosa};
use crate::compare::rows::{Job, Row, Sink, parts_of_path};
use anyhow::Context as _;
use config::ServerUrl;
use model::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;

/// A series with more labels is not found by its path.
const LABELS_MAX: usize = 4;
/// The key of a sensor of FrUCToSA that is one number: its path ends with the sensor.
const ONE_NUMBER: &str = "value";

/// Reads the paths of jobmeter, or those of FrUCToSA.
pub(super) fn read(
    url: &ServerUrl,
    prefix: &str,
    is_fructosa: bool,
    request: &Request<'_>,
    sink: &mut Sink<'_>,
) -> anyhow::Result<()> {
    let remote = Remote::new(url, request)?;
    let devices = match request.devices {
        Some(names) => choice(names.iter().map(|name| sink.device(name))),
        None => "*".to_owned(),
    };
    let targets = match is_fructosa {
        true => fructosa_targets(prefix, &devices, sink),
        false => targets(prefix, &devices, request, sink),
    };
    let targets: Vec<String> =
        targets.iter().map(|target| format!("target={}", escape(target))).collect();
    for (from, to) in request.times() {
        let seconds = |at: i64| at.div_euclid(Timestamp::SECOND);
        // Graphite leaves out the start.
        let (from, until) = (seconds(from) - 1, seconds(to));
        let path = format!("/render?format=json&from={from}&until={until}&{}", targets.join("&"));
        let answer = remote.document(&path)?;
        let all = answer.as_array().context("the answer is no list of Graphite's render API")?;
        for one in all {
            let path = one["target"].as_str().and_then(|path| path.strip_prefix(prefix));
            let (Some(path), Some(points)) = (path, one["datapoints"].as_array()) else { continue };
            match is_fructosa {
                true => take_fructosa(path, points, request, sink)?,
                false => take(path, points, request, sink)?,
            }
        }
    }
    Ok(())
}

/// A pattern for one of several names.
fn choice(names: impl Iterator<Item = String>) -> String {
    let names: Vec<String> = names.collect();
    match &names[..] {
        [one] => one.clone(),
        all => format!("{{{}}}", all.join(",")),
    }
}

/// Patterns of jobmeter's paths. A `*` does not match a dot, so each number of parts has one.
fn targets(prefix: &str, devices: &str, request: &Request<'_>, sink: &Sink<'_>) -> Vec<String> {
    let metrics = sink.metrics().map_or_else(|| "*".to_owned(), |all| choice(all.into_iter()));
    let id = request.job_parts().map_or("*", |(_, id)| id);
    let jobs = [String::new(), format!(".job.*.{id}")];
    let of = |job: &String| {
        let head = format!("{prefix}{devices}.{metrics}{job}");
        (0..=LABELS_MAX).map(move |labels| format!("{head}{}", ".*.*".repeat(labels)))
    };
    jobs.iter().flat_map(of).collect()
}

/// Patterns of FrUCToSA's paths, one for each value.
fn fructosa_targets(prefix: &str, devices: &str, sink: &Sink<'_>) -> Vec<String> {
    let wanted = sink.metrics();
    let is_wanted = |it: &&Mapped| wanted.as_ref().is_none_or(|all| all.contains(it.metric));
    let path = |it: &Mapped| match it.name {
        ONE_NUMBER => format!("{prefix}{devices}.{}", it.family),
        key => format!("{prefix}{devices}.{}.{key}", it.family),
    };
    fructosa().all().iter().filter(is_wanted).map(path).collect()
}

/// Passes the values of a path.
fn each(
    points: &[Value],
    request: &Request<'_>,
    take: &mut dyn FnMut(i64, f64) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for point in points {
        let (Some(value), Some(second)) = (point[0].as_f64(), point[1].as_i64()) else { continue };
        let at = second.saturating_mul(Timestamp::SECOND);
        if (request.from..request.to).contains(&at) {
            take(at, value)?;
        }
    }
    Ok(())
}

fn take(
    path: &str,
    points: &[Value],
    request: &Request<'_>,
    sink: &mut Sink<'_>,
) -> anyhow::Result<()> {
    let Some((device, metric, job, labels)) = parts_of_path(path) else { return Ok(()) };
    let job = job.as_deref().map(|id| Job { cluster: None, id });
    let (device, metric, labels) = (&*device, &*metric, &labels);
    each(points, request, &mut |at, value| {
        sink.add(&Row { device, metric, job, labels, at, value, grows: false })
    })
}

fn take_fructosa(
    path: &str,
    points: &[Value],
    request: &Request<'_>,
    sink: &mut Sink<'_>,
) -> anyhow::Result<()> {
    let mut parts = path.split('.');
    let (Some(device), Some(sensor)) = (parts.next(), parts.next()) else { return Ok(()) };
    let key = parts.next().unwrap_or(ONE_NUMBER);
    let Some(mapped) = fructosa().named(sensor, key) else { return Ok(()) };
    let labels: BTreeMap<String, String> = mapped.labels();
    let (metric, labels) = (mapped.metric, &labels);
    each(points, request, &mut |at, value| {
        let value = mapped.scale.to_ours(value);
        sink.add(&Row { device, metric, job: None, labels, at, value, grows: false })
    })
}
