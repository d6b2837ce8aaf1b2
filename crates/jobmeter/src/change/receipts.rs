//! Receipts of changes, flushes and promotions: for how many nodes, devices or ports each is.

use crate::client::plain::note;
use crate::output::show;
use api::ChangeReceipt;
use std::io::Write;
use std::process::ExitCode;

/// Exit code of a change that names an unknown node or metric.
pub(super) const NOTHING: u8 = 1;

/// Writes the receipt of a change of the periods of polls: for how many devices it is, and which names no poller reads.
pub(super) fn polled_receipt(
    json: bool,
    out: &mut impl Write,
    one: &ChangeReceipt,
    (state, sources): (&str, &str),
) -> anyhow::Result<ExitCode> {
    let ChangeReceipt { id, nodes_known, nodes_reporting, not_polled, .. } = one;
    if json {
        writeln!(out, "{}", serde_json::to_string(one)?)?;
    } else {
        let silent = match nodes_known.saturating_sub(*nodes_reporting) {
            0 => String::new(),
            silent => {
                format!(" and {} of a silent or ended poller", show::counted(silent, "device"))
            }
        };
        let reporting = show::counted(*nodes_reporting, "polled device");
        writeln!(out, "change {id} {state}, for {reporting}{silent}")?;
    }
    if !not_polled.is_empty() {
        note(&format!("no poller reads {} by {sources}", not_polled.join(", ")))?;
    } else if *nodes_known == 0 {
        note(&format!("no poller reads a device of that name by {sources}"))?;
    }
    let is_whole = not_polled.is_empty() && *nodes_known > 0;
    Ok(ExitCode::from(if is_whole { 0 } else { NOTHING }))
}

/// Writes the receipt of a flush of wattmeters.
pub(super) fn feed_receipt(
    json: bool,
    out: &mut impl Write,
    one: &ChangeReceipt,
) -> anyhow::Result<ExitCode> {
    if json {
        writeln!(out, "{}", serde_json::to_string(one)?)?;
    } else {
        let ports = show::counted(one.nodes_known, "port");
        writeln!(out, "flush {} is requested, for {ports}", one.id)?;
    }
    if one.nodes_known == 0 {
        note("no wattmeter has a port of that name, or one that feeds a node of that name")?;
        return Ok(ExitCode::from(NOTHING));
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the receipt of a change: for how many nodes it is.
pub(super) fn receipt(
    json: bool,
    out: &mut impl Write,
    one: &ChangeReceipt,
    (kind, state): (&str, &str),
) -> anyhow::Result<ExitCode> {
    let ChangeReceipt { id, nodes_known, nodes_reporting, nodes_full, .. } = one;
    let code = ExitCode::from(if *nodes_known == 0 { NOTHING } else { 0 });
    if json {
        writeln!(out, "{}", serde_json::to_string(one)?)?;
        return Ok(code);
    }
    let silent = match nodes_known.saturating_sub(*nodes_reporting) {
        0 => String::new(),
        silent => format!(" and {}", show::counted(silent, "silent node")),
    };
    let reporting = show::counted(*nodes_reporting, "reporting node");
    writeln!(out, "{kind} {id} {state}, for {reporting}{silent}")?;
    if *nodes_full > 0 {
        note(&format!(
            "{} at their limits do not receive all of it: `jobmeter set --list` shows the nodes \
             and settings, and `jobmeter set --undo` ends a change",
            show::counted(*nodes_full, "node")
        ))?;
    }
    if *nodes_known == 0 {
        note("no node of that name has reported since the server started")?;
    }
    Ok(code)
}
