//! Notes on totals: the origin of peak memory, and why a value is a lower bound.

use super::{
    CGROUP, CHARGED, CPU_SYSTEM, CPU_USER, EXITS, JobBounds, KILL, KILLED, MEMORY_PEAK, NOT_READ,
    Node, NodeTotal, OF_PROCESSES, Origins,
};
use crate::reports::job_gaps::Missed;
use api::AT_LEAST;
use std::collections::BTreeSet;

/// The final report of `jobmeter run`.
const REPORT: &str = "report";

/// Why a local job without a sign of life has lower bounds.
const LAST_SIGN: &str = "up to the last sign of life";

/// The note on the peak memory that `jobmeter run` reported, by its own rule. A short command has no reading of
/// its resident memory, but always one of its processor time.
fn reported_peak(nodes: &[&Node], peak: Option<f64>) -> String {
    let charged = nodes.iter().filter_map(|node| node.some(CHARGED)).reduce(f64::max);
    let note = if nodes.iter().any(|node| node.metrics.contains_key(OF_PROCESSES)) {
        api::PEAK_OF_PROCESSES
    } else if charged.is_some() && charged >= peak {
        api::PEAK_CHARGED
    } else {
        api::PEAK_OF_TASK
    };
    note.to_owned()
}

/// The note on the peak memory of an origin.
fn peak_note(origin: &str) -> Option<&'static str> {
    match origin {
        CGROUP => Some(api::PEAK_CHARGED),
        KILL => Some(api::PEAK_AT_LIMIT),
        KILLED => Some(api::PEAK_AT_LEAST),
        EXITS => Some(api::PEAK_OF_TASK),
        _ => None,
    }
}

pub(super) fn note(origins: Origins, values: &[NodeTotal], job: &JobBounds) -> Option<String> {
    let by_exits = values.iter().any(|node_total| node_total.origin == EXITS);
    let is = |other: Origins| std::ptr::eq(origins, other);
    let mut notes = Vec::new();
    if is(MEMORY_PEAK) {
        notes.extend(
            values.iter().filter_map(|node_total| peak_note(node_total.origin)).map(str::to_owned),
        );
    }
    if by_exits && (is(CPU_USER) || is(CPU_SYSTEM)) {
        notes.push("counted in timer ticks".to_owned());
    }
    let cancelled: BTreeSet<&str> =
        values.iter().filter_map(|node_total| node_total.cancelled).collect();
    notes.extend(cancelled.into_iter().map(str::to_owned));
    let of_missed = || values.iter().filter(|node_total| node_total.missed);
    let missed = of_missed().count();
    if missed > 0 && !is(NOT_READ) {
        let of = if values.len() > 1 { format!(" on {missed} nodes") } else { String::new() };
        let seconds =
            of_missed().filter_map(|node_total| node_total.unread_seconds).reduce(f64::max);
        notes.push(match seconds {
            Some(seconds) => format!("{AT_LEAST}: last {seconds:.2} s not read{of}"),
            None => format!("{AT_LEAST}: last reading missed{of}"),
        });
    }
    let unseen = values.iter().filter_map(|node_total| node_total.unseen_seconds);
    if let Some(seconds) = unseen.reduce(|a, b| a + b) {
        notes.push(format!("{AT_LEAST}: tasks of {seconds:.2} s processor time were missed"));
    }
    if !is(NOT_READ) {
        notes.extend(bound(values, job));
    }
    (!notes.is_empty()).then(|| notes.join("; "))
}

/// The note on values that lack a time of the job: no agent ran, a node is silent, or the end is only the last sign
/// of life.
fn bound(values: &[NodeTotal], job: &JobBounds) -> Option<String> {
    let gaps = || values.iter().filter_map(|node_total| node_total.gap);
    if let Some(gap) = gaps().map(Some).fold(None, Missed::longer) {
        let of =
            if values.len() > 1 { format!(" on {} nodes", gaps().count()) } else { String::new() };
        return Some(format!("{}{of}", gap.note()));
    }
    if let Some(silent) = &job.silent
        && values.iter().any(|node_total| node_total.is_silent)
    {
        return Some(format!("{AT_LEAST}: {silent}"));
    }
    let is_open = values.iter().any(|node_total| node_total.is_open);
    (job.is_last_sign && is_open).then(|| format!("{AT_LEAST}: {LAST_SIGN}"))
}

/// Whether a total is a lower bound.
pub(crate) fn is_at_least(origin: &api::TotalOrigin) -> bool {
    origin.note.as_deref().is_some_and(|note| note.contains(AT_LEAST))
}

/// The note on the wall time, if the end of the job was not observed.
pub(super) fn wall_origin(nodes: &[&Node], job: &JobBounds) -> Option<api::TotalOrigin> {
    let unknown = || nodes.iter().filter(|node| node.missed.is_stop_unknown);
    let missed = unknown().map(|node| node.missed.end).fold(None, Missed::longer);
    let last_sign = || job.is_last_sign.then(|| format!("{AT_LEAST}: {LAST_SIGN}"));
    Some(api::TotalOrigin {
        total: "wall_seconds".to_owned(),
        origins: Vec::new(),
        note: Some(missed.map(Missed::note).or_else(last_sign)?),
        nodes: u32::try_from(unknown().count()).unwrap_or(u32::MAX),
    })
}

/// The note on the cores used, the quotient of processor time and wall time. Of two lower bounds it is neither bound.
pub(super) fn cores_origin(origins: &[api::TotalOrigin]) -> Option<api::TotalOrigin> {
    let of = |total| origins.iter().find(|origin| origin.total == total && is_at_least(origin));
    let (cpu, wall) = (of("cpu_seconds"), of("wall_seconds"));
    let by = wall.or(cpu)?;
    let note = by.note.as_deref()?;
    let why = note.split_once(AT_LEAST).map_or(note, |(_, why)| why.trim_start_matches([':', ' ']));
    let note = if wall.is_some() { why } else { note };
    Some(api::TotalOrigin {
        total: "cores_used".to_owned(),
        note: Some(note.to_owned()),
        ..by.clone()
    })
}

/// The notes on totals that `jobmeter run` reported.
pub(super) fn reported_origins(
    nodes: &[&Node],
    reported: Vec<&'static str>,
    peak: Option<f64>,
) -> impl Iterator<Item = api::TotalOrigin> {
    // Without a cgroup, `jobmeter run` reads block I/O, whose cancelled writes the kernel does not report.
    let is_blocks = nodes.iter().any(|node| node.grew(OF_PROCESSES).is_some());
    let peak_note = reported_peak(nodes, peak);
    let applies =
        |one: &&api::Reservation| nodes.iter().any(|node| node.some(one.metric).is_some());
    let reservations: Vec<_> = api::RESERVATIONS.into_iter().filter(applies).collect();
    reported.into_iter().map(move |total| {
        let mut notes = Vec::new();
        match total {
            "io_write_bytes" if is_blocks => notes.push("cancelled writes not known"),
            "memory_peak_bytes" => notes.push(&*peak_note),
            _ => {}
        }
        let reserved = reservations.iter().filter(|one| one.totals.contains(&total));
        notes.extend(reserved.map(|one| one.note));
        api::TotalOrigin {
            total: total.to_owned(),
            origins: vec![REPORT.to_owned()],
            note: (!notes.is_empty()).then(|| notes.join("; ")),
            nodes: 1,
        }
    })
}
