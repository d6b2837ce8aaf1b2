//! What was changed, when and by whom: the beginnings and ends of everything that was asked of agents.

use super::changes::entries;
use super::{Demand, DemandError};
use crate::registry::lock;
use model::{DeviceId, NodeList, Timestamp};
use rusqlite::params;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MarkKind {
    /// Settings were changed.
    Set,
    /// A change of settings was undone.
    Undone,
    /// A change of settings ended by its time.
    Expired,
    /// Metrics were promoted.
    Promoted,
    /// A promotion ended.
    Demoted,
    /// Nodes were asked for what a burst kept.
    Flushed,
}

impl MarkKind {
    /// Every kind.
    pub const ALL: [Self; 6] =
        [Self::Set, Self::Undone, Self::Expired, Self::Promoted, Self::Demoted, Self::Flushed];

    /// Its word in answers.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Undone => "undone",
            Self::Expired => "expired",
            Self::Promoted => "promoted",
            Self::Demoted => "demoted",
            Self::Flushed => "flushed",
        }
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// When.
    pub at: Timestamp,
    /// What.
    pub kind: MarkKind,
    /// The number of the change, promotion or flush.
    pub number: i64,
    /// To which nodes.
    pub nodes: NodeList,
    /// What it says: settings, an expression, a source.
    pub text: String,
    /// By whom; `None` where it ended by itself.
    pub by: Option<Box<str>>,
    /// The job it is for, `CLUSTER:ID`.
    pub job: Option<Box<str>>,
    /// The number of the job's user, or of who asked.
    pub uid: Option<u32>,
}

/// `?1`, `?2`: from, to. `ended_by` tells who undid from what ended by its time.
const HAPPENED: &str = "
    SELECT made AS at, 0 AS kind, number, nodes, '' AS text, made_by AS by, NULL AS job, NULL AS uid
        FROM changes WHERE made BETWEEN ?1 AND ?2
    UNION ALL SELECT ended, iif(ended_by IS NULL, 2, 1), number, nodes, '', ended_by, NULL, NULL
        FROM changes WHERE ended BETWEEN ?1 AND ?2
    UNION ALL SELECT made, 3, number, device, metric, made_by, job, uid
        FROM promotions WHERE made BETWEEN ?1 AND ?2
    UNION ALL SELECT ended, 4, number, device, metric, ended_by, job, uid
        FROM promotions WHERE ended BETWEEN ?1 AND ?2
    UNION ALL SELECT made, 5, number, nodes, source, made_by, NULL, NULL
        FROM flushes WHERE made BETWEEN ?1 AND ?2
    ORDER BY at DESC, kind, number";

impl Demand {
    /// What happened from one instant to another, both inclusive, to these devices or to any: the newest `most`,
    /// the oldest of them first.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn marks(
        &self,
        (from, to): (Timestamp, Timestamp),
        devices: Option<&[DeviceId]>,
        most: usize,
    ) -> Result<Vec<Mark>, DemandError> {
        let reader = lock(&self.reader);
        let mut find = reader.prepare_cached(HAPPENED)?;
        let mut rows = find.query(params![from.0, to.0])?;
        let mut marks = Vec::new();
        while let Some(row) = rows.next()? {
            // What is no list was written by hand, and reached no node.
            let Ok(nodes) = NodeList::new(&row.get::<_, String>(3)?) else { continue };
            let meant = |devices: &[DeviceId]| devices.iter().any(|one| nodes.has(one.as_str()));
            if devices.is_some_and(|devices| !meant(devices)) {
                continue;
            }
            let kind = usize::from(row.get::<_, u8>(1)?);
            let Some(kind) = MarkKind::ALL.get(kind).copied() else { continue };
            let number = row.get(2)?;
            let text = match kind {
                MarkKind::Set | MarkKind::Undone | MarkKind::Expired => {
                    let entries = entries(&reader, number)?;
                    let all: Vec<String> = entries.iter().map(ToString::to_string).collect();
                    all.join("; ")
                }
                _ => row.get(4)?,
            };
            marks.push(Mark {
                at: Timestamp(row.get(0)?),
                kind,
                number,
                nodes,
                text,
                by: row.get(5)?,
                job: row.get(6)?,
                uid: row.get::<_, Option<i64>>(7)?.and_then(|uid| u32::try_from(uid).ok()),
            });
            if marks.len() >= most {
                break;
            }
        }
        marks.reverse();
        Ok(marks)
    }
}
