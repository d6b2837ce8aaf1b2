//! What was asked of nodes, when and by whom, as far as a reader may know of it.
//!
//! A reader sees the marks of administrators' changes on the nodes that the reader sees at that time, without who
//! made them. Marks of a user's promotions and requests say what the user measures: the user and those who read
//! everything see them, nobody else. What a reader does not see is passed over before anything is counted.

use crate::asking::access_filter::NodeSight;
use crate::{Asker, QueryError, Questions};
use jobs::{DemandError, Look, Mark, Reader};
use model::{DeviceId, Timestamp};
use std::collections::BTreeSet;

/// A mark, as its reader is told of it: who and which job are `None` where they are not his to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenMark {
    /// What happened.
    pub mark: Mark,
    /// To which of its nodes that the reader sees: names with commas between, or the list that was asked.
    pub nodes: String,
}

/// The marks of an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenMarks {
    /// The newest, the oldest of them first.
    pub marks: Vec<SeenMark>,
    /// Whether there are older ones.
    pub more: bool,
}

impl Questions {
    /// What was asked of nodes from one instant to another, both inclusive: of any of these devices, or of all.
    /// The newest `most` that the asker sees.
    ///
    /// # Errors
    /// The registry or the file of what is asked of nodes fails; it was cancelled.
    pub fn marks(
        &self,
        span: (Timestamp, Timestamp),
        devices: Option<&[DeviceId]>,
        most: usize,
        asker: &Asker,
    ) -> Result<SeenMarks, QueryError> {
        asker.meets_any();
        let Some(demand) = &self.demand else { return Ok(SeenMarks::default()) };
        let (reader, sight) = (asker.reader, self.node_sight(span, asker)?);
        let look = |mark: &Mark| {
            if asker.cancel.check().is_err() {
                return Look::End;
            }
            if is_seen(mark, reader, &sight, devices) { Look::Take } else { Look::Pass }
        };
        let (marks, more) = demand.marks(span, most, look).map_err(failed)?;
        asker.cancel.check()?;
        let marks = marks.into_iter().map(|mark| told(mark, reader, &sight)).collect();
        Ok(SeenMarks { marks, more })
    }
}

/// The nodes of a mark that a reader sees then; `None`: all that it names, by right or since it is his.
fn nodes<'a>(mark: &Mark, reader: Reader, sight: &'a NodeSight) -> Option<BTreeSet<&'a DeviceId>> {
    let here = || sight.at(mark.at, |node| mark.nodes.has(node));
    if reader.knows_of(mark.uid) { None } else { here() }
}

/// Whether a reader is told of a mark when he asks for these devices.
fn is_seen(mark: &Mark, reader: Reader, sight: &NodeSight, devices: Option<&[DeviceId]>) -> bool {
    let is_of_user = mark.uid.is_some() || mark.job.is_some();
    if is_of_user && !reader.knows_of(mark.uid) {
        return false;
    }
    match (nodes(mark, reader, sight), devices) {
        (None, None) => true,
        (None, Some(devices)) => devices.iter().any(|one| mark.nodes.has(one.as_str())),
        (Some(here), None) => !here.is_empty(),
        // Not those that he does not see: else he would learn which list they stand in.
        (Some(here), Some(devices)) => devices.iter().any(|one| here.contains(one)),
    }
}

fn told(mut mark: Mark, reader: Reader, sight: &NodeSight) -> SeenMark {
    let nodes = match nodes(&mark, reader, sight) {
        None => mark.nodes.to_string(),
        Some(here) => here.into_iter().map(DeviceId::as_str).collect::<Vec<_>>().join(","),
    };
    if !reader.knows_of(mark.uid) {
        (mark.by, mark.job) = (None, None);
    }
    SeenMark { mark, nodes }
}

fn failed(error: DemandError) -> QueryError {
    match error {
        DemandError::Registry(error) => error.into(),
        error => QueryError::Demand(error),
    }
}
