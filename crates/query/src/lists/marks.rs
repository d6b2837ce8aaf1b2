//! Promotions in force, and marks of promotions, setting overrides and on-demand requests, as far as they are visible to
//! a reader.
//!
//! - A mark of an administrator's change is visible on the nodes that the reader sees at that time. It does
//!   not name the administrator.
//! - A mark of a device is one of the nodes that the device feeds, too.
//! - A mark of a user's promotion or request shows what the user measures. Only this user and readers with
//!   full access see it.
//!
//! Invisible marks are skipped before marks are counted.

use crate::common::print::ALIAS;
use crate::engine::access_filter::NodeAccess;
use crate::{QueryContext, QueryEngine, QueryError};
use control::{Decision, DemandError, Mark, Promotion};
use jobs::Reader;
use model::{DeviceId, Timestamp};
use std::collections::{BTreeSet, HashMap};
use storage::{JobSelector, LabelMatch, Selector};

/// A device feeds a node if a sample in the interval, or in this time before it, has the node as its alias.
const BEFORE_US: i64 = 3600 * Timestamp::SECOND;

/// A mark as its reader sees it. User and job are `None` if they are not visible to the reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenMark {
    /// The event.
    pub mark: Mark,
    /// The visible nodes of the mark: comma-separated names, or the requested node list.
    pub nodes: String,
}

/// The marks in an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenMarks {
    /// The newest marks, in ascending order.
    pub marks: Vec<SeenMark>,
    /// Whether there are older marks.
    pub more: bool,
}

impl QueryEngine {
    /// The newest `most` visible marks between two instants, both inclusive: of any of these devices, or of all.
    ///
    /// # Errors
    /// The registry or the file of promotions and requests fails; the query was cancelled.
    pub fn marks(
        &self,
        span: (Timestamp, Timestamp),
        devices: Option<&[DeviceId]>,
        most: usize,
        context: &QueryContext,
    ) -> Result<SeenMarks, QueryError> {
        context.meets_any();
        let Some(demand) = &self.demand else { return Ok(SeenMarks::default()) };
        let (reader, access) = (context.reader, self.node_access(span, context)?);
        let (any, _) = demand.marks(span, 1, |_| Decision::Take).map_err(failed)?;
        if any.is_empty() {
            return Ok(SeenMarks::default());
        }
        let feeders = match devices {
            None if context.reader.sees_every_node() => Feeders::default(),
            _ => self.feeders(span)?,
        };
        let look = |mark: &Mark| {
            if context.cancel.check().is_err() {
                return Decision::End;
            }
            if is_seen((mark, &feeders), reader, &access, devices) {
                Decision::Take
            } else {
                Decision::Pass
            }
        };
        let (marks, more) = demand.marks(span, most, look).map_err(failed)?;
        context.cancel.check()?;
        let marks =
            marks.into_iter().map(|mark| visible_part(mark, &feeders, reader, &access)).collect();
        Ok(SeenMarks { marks, more })
    }
}

impl QueryEngine {
    /// The promotions in force that are visible to the reader: those of the reader, or all.
    ///
    /// # Errors
    /// The file of promotions and requests fails.
    pub fn promotions(&self, context: &QueryContext) -> Result<Vec<Promotion>, QueryError> {
        context.meets_any();
        let Some(demand) = &self.demand else { return Ok(Vec::new()) };
        let (held, _) = demand.held(context.now).map_err(failed)?;
        let is_seen = |promotion: &Promotion| context.reader.knows_of(promotion.uid);
        Ok(held.promotions.into_iter().filter(is_seen).collect())
    }
}

/// The devices that feed each node.
type Feeders = HashMap<String, BTreeSet<DeviceId>>;

impl QueryEngine {
    /// The devices that fed each node in an interval.
    fn feeders(&self, (from, to): (Timestamp, Timestamp)) -> Result<Feeders, QueryError> {
        let labels = vec![LabelMatch::Present(ALIAS.to_owned())];
        let select = Selector { job: JobSelector::None, labels, ..Selector::default() };
        let mut feeders = Feeders::new();
        for info in self.store.snapshot().series(&select, from.plus(-BEFORE_US), to)? {
            if let Some(node) = info.series.labels.get(ALIAS) {
                feeders.entry(node).or_default().insert(info.series.device.clone());
            }
        }
        Ok(feeders)
    }
}

/// Whether a mark is one of a node: of its name, or of a device that feeds it.
fn is_of(mark: &Mark, node: &str, feeders: &Feeders) -> bool {
    let mut feeding = feeders.get(node).into_iter().flatten();
    mark.nodes.has(node) || feeding.any(|device| mark.nodes.has(device.as_str()))
}

/// The nodes of a mark that are visible at its time. `None`: all nodes of the mark, as the reader has full
/// access or owns the mark.
fn nodes<'a>(
    (mark, feeders): (&Mark, &Feeders),
    reader: Reader,
    access: &'a NodeAccess,
) -> Option<BTreeSet<&'a DeviceId>> {
    let here = || access.at(mark.at, |node| is_of(mark, node, feeders));
    if reader.knows_of(mark.uid) { None } else { here() }
}

/// Whether a mark is visible to a reader who requests these devices.
fn is_seen(
    (mark, feeders): (&Mark, &Feeders),
    reader: Reader,
    access: &NodeAccess,
    devices: Option<&[DeviceId]>,
) -> bool {
    let is_of_user = mark.uid.is_some() || mark.job.is_some();
    if is_of_user && !reader.knows_of(mark.uid) {
        return false;
    }
    match (nodes((mark, feeders), reader, access), devices) {
        (None, None) => true,
        (None, Some(devices)) => devices.iter().any(|one| is_of(mark, one.as_str(), feeders)),
        (Some(here), None) => !here.is_empty(),
        // Only visible devices count: otherwise readers would learn which node list contains a device.
        (Some(here), Some(devices)) => devices.iter().any(|one| {
            let feeds = |node: &&DeviceId| {
                feeders.get(node.as_str()).is_some_and(|feeding| feeding.contains(one))
            };
            here.contains(one) || mark.nodes.has(one.as_str()) && here.iter().any(feeds)
        }),
    }
}

fn visible_part(
    mut mark: Mark,
    feeders: &Feeders,
    reader: Reader,
    access: &NodeAccess,
) -> SeenMark {
    let nodes = match nodes((&mark, feeders), reader, access) {
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
