//! Writes portions: looks up what has no answer, sends the rest, and reads what became of it.

use super::bulk::{self, Outcome};
use super::client::{Client, Content};
use super::document::{self, Document, PARTS_MAX, key};
use super::encoding::encode;
use super::look_up::without_stored;
use super::settings::Settings;
use super::setup::prepare;
use crate::portion::Portion;
use crate::spec::{Output, RejectedItem, WriteError};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeSet;
use std::mem::take;
use std::sync::Arc;
use storage::FollowMark;
use ureq::http::Method;

/// Look-ups and requests for a portion before it counts as failed. One of each suffices unless documents have common keys.
const ROUNDS_MAX: usize = 8;

/// An output to one server.
pub(super) struct Writer {
    settings: Settings,
    client: Client,
    /// Indices that exist.
    prepared: BTreeSet<Arc<str>>,
    /// The last portion.
    mark: Option<FollowMark>,
    /// What of it is not in the index.
    pending: Pending,
    /// Whether documents of the next portion may be in the index: the program was killed, or a backup was restored.
    may_be_stored: bool,
    rejected: Vec<RejectedItem>,
    bulk_bytes: usize,
}

/// Documents that are not in the index yet.
#[derive(Default)]
struct Pending {
    /// They may be there.
    unknown: Vec<Document>,
    /// They are not.
    absent: Vec<Document>,
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.unknown.is_empty() && self.absent.is_empty()
    }
}

/// A rejected document, as the folder of the output has it.
#[derive(Serialize, Deserialize)]
struct SetAside {
    index: String,
    document: Box<RawValue>,
}

impl Writer {
    pub(super) fn new(settings: Settings, client: Client) -> Self {
        let bulk_bytes = settings.bulk_bytes;
        Self {
            settings,
            client,
            prepared: BTreeSet::new(),
            mark: None,
            pending: Pending::default(),
            may_be_stored: true,
            rejected: Vec::new(),
            bulk_bytes,
        }
    }

    /// Stores all documents that are pending, or sets them aside. Returns whether the index had any of them.
    fn deliver(&mut self) -> Result<bool, WriteError> {
        let mut had_any = false;
        for _ in 0..ROUNDS_MAX {
            if self.pending.is_empty() {
                return Ok(had_any);
            }
            self.prepare()?;
            if !self.pending.unknown.is_empty() {
                let unknown = self.pending.unknown.clone();
                let (absent, has_some) = without_stored(unknown, &mut self.client)?;
                self.pending.unknown.clear();
                had_any |= has_some;
                self.pending.absent.extend(absent);
            }
            self.send()?;
        }
        if self.pending.is_empty() {
            return Ok(had_any);
        }
        Err(WriteError::new(
            "the server has documents with the same IDs, which its search does not find",
        ))
    }

    fn prepare(&mut self) -> Result<(), WriteError> {
        let pending = self.pending.unknown.iter().chain(&self.pending.absent);
        let new: BTreeSet<Arc<str>> = pending
            .filter(|document| !self.prepared.contains(&document.index))
            .map(|document| Arc::clone(&document.index))
            .collect();
        for index in new {
            prepare(&index, &self.settings, &mut self.client)?;
            self.prepared.insert(index);
        }
        Ok(())
    }

    /// Sends the documents that the index does not have. Those without an answer are unknown then.
    fn send(&mut self) -> Result<(), WriteError> {
        let mut absent: Vec<Document> = take(&mut self.pending.absent);
        while !absent.is_empty() {
            let sent = self.send_some(&mut absent);
            if sent.is_err() {
                self.pending.absent.append(&mut absent);
                return sent;
            }
        }
        Ok(())
    }

    /// Sends the first documents, and removes them.
    fn send_some(&mut self, documents: &mut Vec<Document>) -> Result<(), WriteError> {
        let (body, count) = bulk::body(documents.iter(), self.bulk_bytes);
        let path = bulk::path(self.settings.timeout);
        let answer = self.client.call(Method::POST, &path, Content::Lines(&body));
        let rest = documents.split_off(count);
        let sent = std::mem::replace(documents, rest);
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                self.pending.unknown.extend(sent);
                return Err(error);
            }
        };
        match answer.status {
            200..=299 => {}
            413 if count > 1 => {
                log::info!(
                    "output `{}`: the server accepts no request of {} bytes; sending smaller ones",
                    self.settings.name,
                    body.len()
                );
                self.bulk_bytes = body.len() / 2;
                self.pending.absent.extend(sent);
                documents.append(&mut self.pending.absent);
                return Ok(());
            }
            413 => {
                let why = answer.error("a document is too large").why;
                sent.iter().for_each(|document| self.reject(document, &why));
                return Ok(());
            }
            300..=499 => {
                self.pending.absent.extend(sent);
                return Err(answer.error("_bulk"));
            }
            _ => {
                self.pending.unknown.extend(sent);
                return Err(answer.error("_bulk"));
            }
        }
        let (outcomes, waits) = match bulk::outcomes(&answer, count) {
            Ok(outcomes) => outcomes,
            Err(error) => {
                self.pending.unknown.extend(sent);
                return Err(error);
            }
        };
        for (document, outcome) in sent.into_iter().zip(outcomes) {
            match outcome {
                Outcome::Stored => {}
                Outcome::Unknown if document.part() >= PARTS_MAX => {
                    let why = format!("more than {PARTS_MAX} documents of one instant");
                    self.reject(&document, &why);
                }
                Outcome::Unknown => self.pending.unknown.push(document),
                Outcome::Again => self.pending.absent.push(document),
                Outcome::Rejected(why) => self.reject(&document, &why),
            }
        }
        waits.map_or(Ok(()), Err)
    }

    fn reject(&mut self, document: &Document, message: &str) {
        let text = document.text();
        let Ok(raw) = RawValue::from_string(text.clone()) else { return };
        let aside = SetAside { index: document.index.to_string(), document: raw };
        let key = match document.content {
            document::Content::Whole(_) => document.id(),
            // Another document may have its ID when it is sent again.
            document::Content::Samples { .. } => key(&[b"rejected", text.as_bytes()]),
        };
        let data = serde_json::to_string(&aside).unwrap_or_default();
        self.rejected.push(RejectedItem { key, message: message.to_owned(), data });
    }
}

impl Output for Writer {
    fn write(&mut self, portion: &Portion) -> Result<(), WriteError> {
        let is_same = self.mark == Some(portion.mark);
        if !is_same || self.pending.is_empty() {
            // A portion that was written and comes again was not confirmed.
            let documents = encode(portion, &self.settings);
            self.pending = if self.may_be_stored || is_same {
                Pending { unknown: documents, absent: Vec::new() }
            } else {
                Pending { unknown: Vec::new(), absent: documents }
            };
            self.mark = Some(portion.mark);
        }
        if self.pending.is_empty() {
            return Ok(());
        }
        match self.deliver() {
            Ok(had_any) => {
                self.may_be_stored &= had_any;
                Ok(())
            }
            Err(error) => {
                // What exists may have been deleted meanwhile.
                self.prepared.clear();
                Err(error)
            }
        }
    }

    fn take_rejected(&mut self) -> Vec<RejectedItem> {
        take(&mut self.rejected)
    }

    fn retry(&mut self, items: Vec<RejectedItem>) -> Result<Vec<RejectedItem>, WriteError> {
        let documents = items.iter().filter_map(|item| {
            let SetAside { index, document } = serde_json::from_str(&item.data).ok()?;
            let content = document::Content::Whole(document.get().to_owned());
            Some(Document { index: index.into(), key: item.key.clone(), content })
        });
        let unknown = documents.collect();
        // What remains of a portion waits.
        let waiting = std::mem::replace(&mut self.pending, Pending { unknown, absent: Vec::new() });
        let delivered = self.deliver();
        self.pending = waiting;
        let rejected = self.take_rejected();
        delivered.map(|_| rejected)
    }
}
