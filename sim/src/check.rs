//! The one assertion: every produced sample is stored once, or reported as a gap; and nothing else is stored.

use crate::node::{Node, SERIES, series_number, value};
use model::{Gap, Timestamp};
use std::collections::HashMap;
use storage::{Selector, Storage as _};
use store::Store;

/// Statistics of a world that ended well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Samples that the agents produced.
    pub produced: u64,
    /// Stored samples.
    pub stored: u64,
    /// Instants of nodes with missing samples, including those without a running agent.
    pub missing: u64,
    /// Reported gaps.
    pub gaps: u64,
    /// Duplicate batches.
    pub duplicates: u64,
    /// Batches that the server rejected temporarily.
    pub deferred: u64,
    /// Merges of blocks.
    pub merges: u64,
    /// Slices that the output confirmed.
    pub slices: u64,
    /// Deaths of the server.
    pub deaths: u64,
    /// Faults of its disk that were planned, or met during maintenance.
    pub faults: u64,
    /// Starts of agents.
    pub starts: u64,
    /// Calls of the server's disk since its last start.
    pub disk_calls: u64,
    /// A digest of every request and its answer, in order: the same for the same seed.
    pub trace: u64,
}

/// Values by node, series and instant; duplicates are representable, so that the check can find them.
type Stored = HashMap<(usize, usize, Timestamp), Vec<(f64, Option<Timestamp>)>>;

pub(crate) fn check(nodes: &[Node], store: &Store, period: i64) -> Result<Report, String> {
    let mut stored = read(nodes, store)?;
    let mut report = Report {
        stored: stored.values().map(|values| number(values.len())).sum(),
        ..Report::default()
    };
    for node in nodes {
        let gaps = store.gaps(Timestamp(i64::MIN), Timestamp(i64::MAX), Some(&node.device));
        let gaps: Vec<Gap> =
            gaps.into_iter().filter(|gap| gap.origin.as_str() == node.device.as_str()).collect();
        report.gaps += number(gaps.len());
        check_node(node, &gaps, &mut stored, period, &mut report)
            .map_err(|e| format!("{}: {e}\n{}{}", node.device, node.history(), gap_text(&gaps)))?;
    }
    match stored.iter().next() {
        None => Ok(report),
        Some(((node, series, at), _)) => {
            Err(format!("n{node}, series {series}: a sample of {at} is stored that no agent made"))
        }
    }
}

fn gap_text(gaps: &[Gap]) -> String {
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
    report: &mut Report,
) -> Result<(), String> {
    let reported_gaps =
        gaps.iter().filter(|gap| gap.source.is_empty()).map(|gap| (gap.from, gap.to));
    let gaps_found: Vec<_> = reported_gaps.chain(node.unreportable.iter().copied()).collect();
    let is_reported = |at| gaps_found.iter().any(|(from, to)| *from < at && at < *to);
    let mut expected = node.made.first().map(|made| made.at);
    for made in &node.made {
        // Instants without a running agent.
        while let Some(at) = expected.filter(|at| *at < made.at) {
            report.missing += 1;
            if !is_reported(at) {
                return Err(format!("no agent made {at}, without a gap"));
            }
            expected = Some(at.plus(period));
        }
        expected = Some(made.at.plus(period));
        let mut missing = 0;
        for series in 0..SERIES {
            report.produced += 1;
            let want = (
                value(node.number, made.lifetime, made.at, series),
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
        report.missing += 1;
        if !is_reported(made.at) {
            return Err(format!(
                "{missing} samples of {} (start {}) are lost, without a gap",
                made.at, made.lifetime
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
        let Some((node, number)) = place else { return Err(format!("no agent made {series:?}")) };
        for (at, value, start) in chunk.rows() {
            stored.entry((node, number, at)).or_default().push((value, start));
        }
    }
    Ok(stored)
}
