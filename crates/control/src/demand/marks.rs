//! History of requests to agents: what started or ended, when, and by whom.

use super::changes::settings;
use super::{DemandError, DemandStore};
use model::{NodeList, Timestamp};
use rusqlite::{Row, params};

/// Maximum size of the text of all marks in a response: 64 MiB.
const TEXT_BYTES_MAX: usize = 64 << 20;

/// The kind of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MarkKind {
    /// Settings were overridden.
    Set,
    /// A person ended a setting override.
    Undone,
    /// A setting override expired.
    Expired,
    /// Metrics were promoted.
    Promoted,
    /// A promotion ended.
    Demoted,
    /// A burst buffer was requested from nodes.
    Flushed,
}

impl MarkKind {
    /// All kinds.
    pub const ALL: [Self; 6] =
        [Self::Set, Self::Undone, Self::Expired, Self::Promoted, Self::Demoted, Self::Flushed];

    /// Returns the kind's name in responses.
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

/// A start or an end of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The time.
    pub at: Timestamp,
    /// The kind.
    pub kind: MarkKind,
    /// The ID of the override, promotion or flush.
    pub number: i64,
    /// The nodes.
    pub nodes: NodeList,
    /// The content: settings, an expression, or a source.
    pub text: String,
    /// The requester; `None` if the request expired.
    pub by: Option<Box<str>>,
    /// The job, `CLUSTER:ID`.
    pub job: Option<Box<str>>,
    /// The user ID of the job's owner or of the requester.
    pub uid: Option<u32>,
}

/// The caller's decision about a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Include the mark.
    Take,
    /// Skip the mark.
    Pass,
    /// Stop the search.
    End,
}

/// Selects all marks from `?1` to `?2`. The indexes return each part in order of time, so that SQLite
/// merges the parts without a sort. `ended_by` distinguishes rows that a person ended from expired
/// ones.
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

impl DemandStore {
    /// Returns the latest marks between two instants, both inclusive, oldest first. `look` decides about
    /// each mark, latest first, before its settings are read. The response has at most `most` marks and 64
    /// MiB of text. The `bool` tells whether more may exist.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn marks(
        &self,
        (from, to): (Timestamp, Timestamp),
        most: usize,
        mut look: impl FnMut(&Mark) -> Decision,
    ) -> Result<(Vec<Mark>, bool), DemandError> {
        let reader = self.marks_reader.lock();
        let mut find = reader.prepare_cached(HAPPENED)?;
        let mut rows = find.query(params![from.0, to.0])?;
        let (mut marks, mut bytes, mut more) = (Vec::new(), 0_usize, false);
        while let Some(row) = rows.next()? {
            let Some(mut mark) = mark(row)? else { continue };
            match look(&mark) {
                Decision::Take => {}
                Decision::Pass => continue,
                Decision::End => break,
            }
            if matches!(mark.kind, MarkKind::Set | MarkKind::Undone | MarkKind::Expired) {
                mark.text = settings(&reader, mark.number)?.lines().join("; ");
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

/// Parses a row of [`HAPPENED`]; `None` if a person wrote an invalid node list, which reached no node.
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
