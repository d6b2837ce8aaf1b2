//! Colmet's indices in Elasticsearch or OpenSearch: one for each backend, a document for each record.

use super::Request;
use super::remote::Remote;
use crate::client::http_client::escape;
use crate::compare::columns::{Mapped, colmet};
use crate::compare::rows::{Job, Row, Sink};
use anyhow::{Context as _, bail};
use config::ServerUrl;
use model::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Documents of an answer.
const PAGE: usize = 2000;
/// Most answers of one index: a server that repeats itself must not be read for ever.
const PAGES_MAX: usize = 50_000;
/// How long the server keeps a list of results between two pages.
const KEPT: &str = "2m";
/// What Colmet writes for a value that is missing.
const MISSING: f64 = -1.0;

/// Reads the indices with a prefix.
pub(super) fn read(
    url: &ServerUrl,
    prefix: &str,
    request: &Request<'_>,
    sink: &mut Sink<'_>,
) -> anyhow::Result<()> {
    let remote = Remote::new(url, request)?;
    let wanted = sink.metrics();
    let is_wanted = |it: &&Mapped| wanted.as_ref().is_none_or(|all| all.contains(it.metric));
    let families: BTreeSet<&str> =
        colmet().all().iter().filter(is_wanted).map(|it| it.family).collect();
    for family in families {
        read_index(&remote, prefix, family, request, sink)
            .with_context(|| format!("index {prefix}{}", family.to_lowercase()))?;
    }
    Ok(())
}

fn read_index(
    remote: &Remote,
    prefix: &str,
    family: &str,
    request: &Request<'_>,
    sink: &mut Sink<'_>,
) -> anyhow::Result<()> {
    let seconds = |at: i64| at.div_euclid(Timestamp::SECOND);
    let range =
        json!({"gte": seconds(request.from), "lte": seconds(request.to), "format": "epoch_second"});
    let mut filter = vec![json!({"range": {"timestamp": range}})];
    if let Some((_, id)) = request.job_parts() {
        filter.push(json!({"term": {"job_id": id}}));
    }
    let index = escape(&format!("{prefix}{}", family.to_lowercase()));
    let path =
        format!("/{index}/_search?scroll={KEPT}&ignore_unavailable=true&allow_no_indices=true");
    let query = json!({"size": PAGE, "sort": ["_doc"], "query": {"bool": {"filter": filter}}});
    let mut answer = remote.post(&path, &query)?;
    for _ in 0..PAGES_MAX {
        let hits = answer.pointer("/hits/hits").and_then(Value::as_array);
        let hits = hits.context("the answer has no hits")?;
        for hit in hits {
            take(hit.get("_source").unwrap_or(&Value::Null), family, request, sink)?;
        }
        // The server forgets the list by itself.
        let id = answer.get("_scroll_id").and_then(Value::as_str);
        let Some(id) = id.filter(|_| !hits.is_empty()) else {
            return Ok(());
        };
        answer = remote.post("/_search/scroll", &json!({"scroll": KEPT, "scroll_id": id}))?;
    }
    bail!("more than {PAGES_MAX} answers; compare a shorter time, or select with --job")
}

fn take(
    document: &Value,
    family: &str,
    request: &Request<'_>,
    sink: &mut Sink<'_>,
) -> anyhow::Result<()> {
    let (Some(device), Some(second), Some(fields)) =
        (document["hostname"].as_str(), document["timestamp"].as_i64(), document.as_object())
    else {
        return Ok(());
    };
    let at = second.saturating_mul(Timestamp::SECOND);
    if !(request.from..request.to).contains(&at) {
        return Ok(());
    }
    let id = document["job_id"].as_i64().unwrap_or(0).to_string();
    let job = (id != "0").then_some(Job { cluster: None, id: &id });
    for (name, value) in fields {
        let (Some(mapped), Some(theirs)) = (colmet().named(family, name), value.as_f64()) else {
            continue;
        };
        if theirs == MISSING {
            continue;
        }
        let (metric, grows) = (mapped.metric, mapped.grows);
        let (value, labels): (f64, BTreeMap<_, _>) =
            (mapped.scale.to_ours(theirs), mapped.labels());
        sink.add(&Row { device, metric, job, labels: &labels, at, value, grows })?;
    }
    Ok(())
}
