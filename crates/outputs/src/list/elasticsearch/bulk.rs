//! Requests of many `create` operations, and what became of each.

use super::client::{Answer, ErrorText, hint};
use super::document::Document;
use crate::row::text;
use crate::spec::WriteError;
use serde::Deserialize;
use std::time::Duration;

/// Most documents of a request.
const DOCUMENTS_MAX: usize = 5000;
/// A request with at least this many documents, all of which are rejected as bad, shows that the index is wrong.
const ALL_BAD_MIN: usize = 10;
/// The parts of the answer that are read.
const FILTER: &str = "items.create.status,items.create.error.type,items.create.error.reason,\
    items.create.error.caused_by.reason";

/// The path. The server shall give up before the request's own time ends, so that it answers with a reason.
pub(super) fn path(time_max: Duration) -> String {
    format!("/_bulk?timeout={}ms&filter_path={FILTER}", time_max.as_millis() / 2)
}

/// What became of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is in the index.
    Stored,
    /// The index has its ID, or nothing certain is known.
    Unknown,
    /// It was not stored, and must be sent again.
    Again,
    /// It will never be stored; the receiver's message.
    Rejected(String),
}

/// The lines of the first of these documents that fit in this many bytes, at least one, and how many these are.
pub(super) fn body<'a>(
    documents: impl Iterator<Item = &'a Document>,
    bytes_max: usize,
) -> (Vec<u8>, usize) {
    let (mut out, mut count) = (Vec::new(), 0);
    for document in documents.take(DOCUMENTS_MAX) {
        let operation = operation(&document.index, &document.id(), &document.text());
        if count > 0 && out.len() + operation.len() > bytes_max {
            break;
        }
        out.extend_from_slice(operation.as_bytes());
        count += 1;
    }
    (out, count)
}

/// The two lines of a document, spelled as Colmet's.
fn operation(index: &str, id: &str, document: &str) -> String {
    let (index, id) = (text(index), text(id));
    format!("{{ \"create\" : {{ \"_index\" : {index}, \"_id\" : {id} }}}}\n{document}\n")
}

/// What became of the documents of a request: for each an outcome, and the reason to wait if there is one.
///
/// # Errors
/// The answer does not say it.
pub(super) fn outcomes(
    answer: &Answer,
    count: usize,
) -> Result<(Vec<Outcome>, Option<WriteError>), WriteError> {
    #[derive(Deserialize)]
    struct Items {
        #[serde(default)]
        items: Vec<Item>,
    }
    #[derive(Deserialize)]
    struct Item {
        create: Created,
    }
    let Items { items } = answer.parse("_bulk")?;
    if items.len() != count {
        let why = format!("_bulk: the answer has {} of {count} items", items.len());
        return Err(WriteError::new(why));
    }
    let mut all = Vec::with_capacity(count);
    let mut waits = None;
    for Item { create } in items {
        let outcome = create.outcome();
        if let (None, Some(why)) = (&waits, create.waits(&outcome)) {
            waits = Some(WriteError::new(why));
        }
        all.push(outcome);
    }
    let is_bad = |outcome: &Outcome| matches!(outcome, Outcome::Rejected(_));
    if let [Outcome::Rejected(first), ..] = &*all
        && count >= ALL_BAD_MIN
        && all.iter().all(is_bad)
    {
        waits = Some(WriteError::new(format!(
            "the receiver rejects every document, so its mapping is wrong; repair it; the first: {first}"
        )));
        all.fill(Outcome::Again);
    }
    Ok((all, waits))
}

#[derive(Deserialize)]
struct Created {
    status: u16,
    error: Option<ErrorText>,
}

impl Created {
    fn outcome(&self) -> Outcome {
        let is_block = self.error.as_ref().is_some_and(ErrorText::is_block);
        match self.status {
            200..=299 => Outcome::Stored,
            409 | 500.. => Outcome::Unknown,
            401 | 403 | 404 | 429 => Outcome::Again,
            _ if is_block => Outcome::Again,
            _ => Outcome::Rejected(self.reason()),
        }
    }

    /// The reason to wait, if the item is one.
    fn waits(&self, outcome: &Outcome) -> Option<String> {
        let is_temporary = *outcome == Outcome::Again || self.status >= 500;
        let reason = self.reason();
        is_temporary.then(|| {
            format!("the server responds {}: {reason}{}", self.status, hint(self.status, &reason))
        })
    }

    fn reason(&self) -> String {
        let none = || format!("status {}", self.status);
        self.error.as_ref().map_or_else(none, ErrorText::text)
    }
}
