//! Which documents an index has already.

use super::client::{Answer, Client, Content};
use super::document::{Document, FoundSamples, PARTS_MAX, id_of};
use crate::spec::WriteError;
use rustc_hash::FxHashMap;
use serde::Deserialize;
use std::collections::BTreeSet;
use ureq::http::Method;

/// Most documents and bytes of them that are looked up at once: it bounds the answer.
const DOCUMENTS_MAX: usize = 500;
const BYTES_MAX: usize = 2 << 20;
/// Most documents that a search returns: the servers' limit.
const HITS_MAX: usize = 10_000;
/// The parts of an answer that are read.
const FILTER: &str = "timed_out,_shards.failed,hits.hits._id,hits.hits._source";

#[derive(Deserialize)]
struct Searched<'a> {
    timed_out: bool,
    #[serde(rename = "_shards")]
    shards: Shards,
    #[serde(borrow, default)]
    hits: Hits<'a>,
}

#[derive(Deserialize)]
struct Shards {
    failed: u64,
}

#[derive(Default, Deserialize)]
struct Hits<'a> {
    #[serde(borrow, default)]
    hits: Vec<Hit<'a>>,
}

#[derive(Deserialize)]
struct Hit<'a> {
    #[serde(rename = "_id")]
    id: String,
    #[serde(borrow, default, rename = "_source")]
    source: FoundSamples<'a>,
}

/// Removes what the indices have. Returns the rest, and whether they had anything.
///
/// # Errors
/// The indices do not answer completely.
pub(super) fn without_stored(
    documents: Vec<Document>,
    client: &mut Client,
) -> Result<(Vec<Document>, bool), WriteError> {
    // A search finds only what was stored before a refresh.
    let targets = targets(&documents);
    let path = format!("/{targets}/_refresh?ignore_unavailable=true&filter_path=_shards.failed");
    let refreshed = client.call(Method::POST, &path, Content::None)?;
    if !is_absent(&refreshed) {
        #[derive(Deserialize)]
        struct Refreshed {
            #[serde(rename = "_shards")]
            shards: Shards,
        }
        let Refreshed { shards } = refreshed.parse("_refresh")?;
        complete(shards.failed == 0)?;
    }
    let (mut rest, mut has_found) = (Vec::new(), false);
    let mut documents = documents.into_iter().peekable();
    while documents.peek().is_some() {
        let (mut chunk, mut bytes) = (Vec::new(), 0);
        while let Some(document) =
            documents.next_if(|next| chunk.is_empty() || bytes + next.size() <= BYTES_MAX)
        {
            bytes += document.size();
            chunk.push(document);
            if chunk.len() >= DOCUMENTS_MAX {
                break;
            }
        }
        has_found |= look_up(chunk, &targets, client, &mut rest)?;
    }
    Ok((rest, has_found))
}

/// The indices of documents, for a path.
fn targets(documents: &[Document]) -> String {
    let names: BTreeSet<&str> = documents.iter().map(|document| &*document.index).collect();
    names.into_iter().collect::<Vec<_>>().join(",")
}

/// Looks up some documents. Adds what the index does not have to `rest`, and returns whether it has anything.
fn look_up(
    documents: Vec<Document>,
    targets: &str,
    client: &mut Client,
    rest: &mut Vec<Document>,
) -> Result<bool, WriteError> {
    let mut answers: Vec<Answer> = Vec::new();
    let mut wanted: BTreeSet<String> = documents.iter().flat_map(Document::ids).collect();
    // The first part of each document that is not looked up yet.
    let mut next: Vec<u32> = documents
        .iter()
        .map(|document| u32::try_from(document.ids().count()).unwrap_or(PARTS_MAX))
        .collect();
    // Further parts can only be there if the last one is.
    while !wanted.is_empty() {
        let answer = search(targets, &wanted, client)?;
        let found: BTreeSet<String> = hits(&answer)?.into_iter().map(|hit| hit.id).collect();
        answers.push(answer);
        wanted.clear();
        for (document, next) in documents.iter().zip(&mut next) {
            let is_there = found.contains(&id_of(&document.key, next.saturating_sub(1)));
            if document.is_part() && is_there && *next < PARTS_MAX {
                wanted.insert(id_of(&document.key, *next));
                *next += 1;
            }
        }
    }
    let mut found: FxHashMap<String, Vec<FoundSamples<'_>>> = FxHashMap::default();
    for answer in &answers {
        for hit in hits(answer)? {
            found.entry(hit.id).or_default().push(hit.source);
        }
    }
    for (document, next) in documents.into_iter().zip(next) {
        let ids: Vec<String> = (0..next).map(|part| id_of(&document.key, part)).collect();
        let free = ids.iter().rposition(|id| found.contains_key(id)).map_or(0, |last| last + 1);
        let of_it: Vec<&FoundSamples<'_>> =
            ids.iter().filter_map(|id| found.get(id)).flatten().collect();
        let free = u32::try_from(free).unwrap_or(PARTS_MAX);
        rest.extend(document.without(&of_it, free));
    }
    Ok(!found.is_empty())
}

fn search(
    targets: &str,
    ids: &BTreeSet<String>,
    client: &mut Client,
) -> Result<Answer, WriteError> {
    let path = format!(
        "/{targets}/_search?ignore_unavailable=true&allow_partial_search_results=false&filter_path={FILTER}"
    );
    let query = serde_json::json!({
        "query": {"ids": {"values": ids}},
        "size": HITS_MAX,
        "sort": ["_doc"],
        "_source": ["metrics", "not_finite"],
    });
    client.call(Method::POST, &path, Content::Json(&query.to_string()))
}

fn hits(answer: &Answer) -> Result<Vec<Hit<'_>>, WriteError> {
    if is_absent(answer) {
        return Ok(Vec::new());
    }
    let Searched { timed_out, shards, hits: Hits { hits } } = answer.parse("_search")?;
    complete(!timed_out && shards.failed == 0 && hits.len() < HITS_MAX)?;
    Ok(hits)
}

/// Whether the indices do not exist yet.
fn is_absent(answer: &Answer) -> bool {
    answer.status == 404
}

fn complete(is_complete: bool) -> Result<(), WriteError> {
    let why = "the index cannot be searched completely, so documents without an answer wait";
    if is_complete { Ok(()) } else { Err(WriteError::new(why)) }
}
