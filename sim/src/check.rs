//! The one assertion: what was produced is stored, once, or told as a gap; and nothing else is there.

use crate::node::{Node, SERIES, series_number, value};
use model::{Gap, Timestamp};
use std::collections::HashMap;
use store::{Selector, Store};

/// What happened in a world that ended well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Samples that the agents made.
    pub produced: u64,
    /// Those that are stored.
    pub stored: u64,
    /// Instants of nodes whose samples lie in a gap, those included that no agent was there to make.
    pub missing: u64,
    /// Gaps that are told.
    pub gaps: u64,
    /// Batches that came again and were known.
    pub duplicates: u64,
    /// Batches that the server did not take for now.
    pub deferred: u64,
    /// Merges of blocks.
    pub merges: u64,
    /// Deaths of the server.
    pub deaths: u64,
    /// Faults of its disk that were planned, or met while blocks were tended.
    pub faults: u64,
    /// Starts of agents.
    pub starts: u64,
    /// Calls of the server's disk since it began for the last time.
    pub disk_calls: u64,
    /// A digest of every request and its answer, in their order: the same for the same seed.
    pub trace: u64,
}

/// Values by node, series and instant; the store may, but must not, have several.
type Stored = HashMap<(usize, usize, Timestamp), Vec<(f64, Option<Timestamp>)>>;

pub(crate) fn check(nodes: &[Node], store: &Store, period: i64) -> Result<Told, String> {
    let mut stored = read(nodes, store)?;
    let mut told = Told {
        stored: stored.values().map(|values| number(values.len())).sum(),
        ..Told::default()
    };
    for node in nodes {
        let gaps = store.gaps(Timestamp(i64::MIN), Timestamp(i64::MAX), Some(&node.device));
        let gaps: Vec<Gap> =
            gaps.into_iter().filter(|gap| gap.origin.as_str() == node.device.as_str()).collect();
        told.gaps += number(gaps.len());
        check_node(node, &gaps, &mut stored, period, &mut told)
            .map_err(|e| format!("{}: {e}\n{}{}", node.device, node.tell(), words(&gaps)))?;
    }
    match stored.iter().next() {
        None => Ok(told),
        Some(((node, series, at), _)) => {
            Err(format!("n{node}, series {series}: a sample of {at} is stored that nobody made"))
        }
    }
}

fn words(gaps: &[Gap]) -> String {
    let word = |gap: &Gap| {
        format!("\n{} from {} to {}: {}", gap.cause.words(), gap.from, gap.to, gap.detail)
    };
    gaps.iter().map(word).collect()
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap()
}

fn check_node(
    node: &Node,
    gaps: &[Gap],
    stored: &mut Stored,
    period: i64,
    told: &mut Told,
) -> Result<(), String> {
    let told_gaps = gaps.iter().filter(|gap| gap.source.is_empty()).map(|gap| (gap.from, gap.to));
    let holes: Vec<_> = told_gaps.chain(node.untellable.iter().copied()).collect();
    let is_told = |at| holes.iter().any(|(from, to)| *from < at && at < *to);
    let mut expected = node.made.first().map(|made| made.at);
    for made in &node.made {
        // What no agent was there to make.
        while let Some(at) = expected.filter(|at| *at < made.at) {
            told.missing += 1;
            if !is_told(at) {
                return Err(format!("nobody made {at}, and no gap says so"));
            }
            expected = Some(at.plus(period));
        }
        expected = Some(made.at.plus(period));
        let mut missing = 0;
        for series in 0..SERIES {
            told.produced += 1;
            let want = (
                value(node.number, made.life, made.at, series),
                (series == 2).then_some(made.start),
            );
            match stored.remove(&(node.number, series, made.at)).as_deref() {
                None => missing += 1,
                Some([one]) if *one == want => {}
                Some(other) => {
                    return Err(format!(
                        "series {series} of {}: stored {other:?}, made {want:?}",
                        made.at
                    ));
                }
            }
        }
        if missing == 0 {
            continue;
        }
        told.missing += 1;
        if !is_told(made.at) {
            return Err(format!(
                "{missing} samples of {} (start {}) are lost, and no gap says so",
                made.at, made.life
            ));
        }
        if !node.harmed {
            return Err(format!("samples of {} are lost, and nothing had happened", made.at));
        }
    }
    Ok(())
}

fn read(nodes: &[Node], store: &Store) -> Result<Stored, String> {
    let numbers: HashMap<&str, usize> =
        nodes.iter().map(|node| (node.device.as_str(), node.number)).collect();
    let mut stored = Stored::new();
    for chunk in store.scan(&Selector::default(), Timestamp(i64::MIN), Timestamp(i64::MAX)) {
        let chunk = chunk.map_err(|e| format!("a scan: {e}"))?;
        let series = &chunk.series.series;
        let place = numbers.get(series.device.as_str()).copied().zip(series_number(series));
        let Some((node, number)) = place else { return Err(format!("nobody made {series:?}")) };
        for (at, value, start) in chunk.rows() {
            stored.entry((node, number, at)).or_default().push((value, start));
        }
    }
    Ok(stored)
}
