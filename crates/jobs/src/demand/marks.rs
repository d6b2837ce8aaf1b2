//! What was changed, when and by whom: the beginnings and ends of everything that was asked of agents.

use super::changes::entries;
use super::{Demand, DemandError};
use crate::common::registry::lock;
use model::{NodeList, Timestamp};
use rusqlite::{Row, params};

/// Most bytes of text of the marks of one question.
const TEXT_BYTES_MAX: usize = 64 << 20;

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

/// What becomes of a mark that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// It is one of the answer's.
    Take,
    /// It is not.
    Pass,
    /// No further one is looked for.
    End,
}

/// `?1`, `?2`: from, to. The indexes give each part in the order of time, so that they are merged and none is
/// sorted. `ended_by` tells who undid from what ended by its time.
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
    ORDER BY at DESC, kind DESC, number DESC";

impl Demand {
    /// What happened from one instant to another, both inclusive, the oldest first: the newest of what `look`
    /// takes, which is asked of each, the newest first, before its settings are read. As many as `most`, and as
    /// many as have 64 MiB of text; whether there may be more.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn marks(
        &self,
        (from, to): (Timestamp, Timestamp),
        most: usize,
        mut look: impl FnMut(&Mark) -> Look,
    ) -> Result<(Vec<Mark>, bool), DemandError> {
        let reader = lock(&self.marks_reader);
        let mut find = reader.prepare_cached(HAPPENED)?;
        let mut rows = find.query(params![from.0, to.0])?;
        let (mut marks, mut bytes, mut more) = (Vec::new(), 0_usize, false);
        while let Some(row) = rows.next()? {
            let Some(mut mark) = mark(row)? else { continue };
            match look(&mark) {
                Look::Take => {}
                Look::Pass => continue,
                Look::End => break,
            }
            if matches!(mark.kind, MarkKind::Set | MarkKind::Undone | MarkKind::Expired) {
                let entries = entries(&reader, mark.number)?;
                mark.text = entries.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            }
            bytes = bytes.saturating_add(mark.text.len() + mark.nodes.as_str().len());
            more = marks.len() >= most || bytes > TEXT_BYTES_MAX;
            if more {
                break;
            }
            marks.push(mark);
        }
        marks.reverse();
        Ok((marks, more))
    }
}

/// A row of [`HAPPENED`]; `None` where a person wrote what is no list of nodes, and reached none.
fn mark(row: &Row<'_>) -> rusqlite::Result<Option<Mark>> {
    let kind = MarkKind::ALL.get(usize::from(row.get::<_, u8>(1)?)).copied();
    let nodes = NodeList::new(&row.get::<_, String>(3)?).ok();
    let Some((kind, nodes)) = kind.zip(nodes) else { return Ok(None) };
    Ok(Some(Mark {
        at: Timestamp(row.get(0)?),
        kind,
        number: row.get(2)?,
        nodes,
        text: row.get(4)?,
        by: row.get(5)?,
        job: row.get(6)?,
        uid: row.get::<_, Option<i64>>(7)?.and_then(|uid| u32::try_from(uid).ok()),
    }))
}
