//! `jobmeter set --list`: the active changes.

use crate::client::http_client::Client;
use crate::output::csv_rows;
use crate::output::options::ListFormat;
use crate::output::show::{self, Table};
use crate::output::times::{Times, machine};
use api::{ChangedSource, SetChange, SetRejection, SetShortened};
use model::setting::show_duration;
use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

/// Lists the active changes, and the settings that nodes rejected or shortened.
pub(super) fn list(
    client: &Client,
    format: ListFormat,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    const PATH: &str = "/api/v1/settings";
    if csv_rows::written(
        format.csv,
        &api::columns::<SetChange>(),
        || client.text(PATH, "application/json"),
        out,
    )? {
        return Ok(());
    }
    if format.json {
        writeln!(out, "{}", machine(&client.text(PATH, "application/json")?))?;
        return Ok(());
    }
    let health: api::Health = client.get("/api/v1/health")?;
    let times = Times::of(client)?;
    let changes: Vec<SetChange> = client.get(PATH)?;
    if changes.is_empty() {
        writeln!(out, "no active change: every node uses its own file and the server's")?;
        return Ok(());
    }
    let mut table = Table::new(&["ID", "nodes", "taken by", "ends in", "by", "what"]);
    for change in &changes {
        table.row(vec![
            change.id.to_string(),
            change.nodes.clone(),
            taken_by(change),
            show::seconds((change.until - health.now).max(0.0)),
            change.created_by.clone(),
            settings(&change.settings),
        ]);
    }
    table.write(out)?;
    for change in &changes {
        for rejected in &change.rejected {
            writeln!(out, "{}: {} rejects: {}", change.id, rejected.device, in_flags(rejected))?;
        }
        for shorter in &change.shortened {
            writeln!(out, "{}: {}", change.id, shortened(shorter, &times))?;
        }
        for api::SetSuperseded { device, source, by, poller } in &change.superseded {
            let of =
                poller.as_ref().map_or_else(String::new, |one| format!(" at the poller {one}"));
            writeln!(
                out,
                "{}: change {by} of {source} applies to {device} instead{of}",
                change.id
            )?;
        }
    }
    Ok(())
}

pub(super) fn shortened(shorter: &SetShortened, times: &Times) -> String {
    let SetShortened { device, until, reason } = shorter;
    format!("{device} shortens it: --for ends at {}: {reason}", times.show(*until))
}

/// Number of nodes that accepted a change, and number of nodes that rejected or shortened a part of it.
fn taken_by(change: &SetChange) -> String {
    let rejected: BTreeSet<&str> = change.rejected.iter().map(|one| &*one.device).collect();
    let shortened: BTreeSet<&str> = change.shortened.iter().map(|one| &*one.device).collect();
    let mut taken = format!("{} of {}", change.nodes_applied, change.nodes_known);
    let superseded: BTreeSet<&str> = change.superseded.iter().map(|one| &*one.device).collect();
    for (what, nodes) in [
        ("rejected", rejected.len()),
        ("shortened", shortened.len()),
        ("superseded", superseded.len()),
    ] {
        if nodes > 0 {
            taken += &format!(", {what} by {nodes}");
        }
    }
    taken
}

/// The changed settings, with the names of the options of `jobmeter set`.
fn settings(changed: &[ChangedSource]) -> String {
    let all: Vec<String> = changed.iter().map(source_settings).collect();
    all.join("; ")
}

fn source_settings(changed: &ChangedSource) -> String {
    let ChangedSource { source, enabled, period_seconds, events, burst } = changed;
    let burst = burst.as_ref();
    let time = |option: &str, seconds: Option<f64>| {
        seconds.map(|seconds| format!("{option} {}", show_duration(duration(seconds))))
    };
    let words = |option: &str, words: Option<&Vec<String>>| {
        words.filter(|words| !words.is_empty()).map(|words| format!("{option} {}", words.join(",")))
    };
    let parts = [
        enabled.map(|enabled| format!("enabled {enabled}")),
        time("period", *period_seconds),
        words("perf", events.as_ref()),
        burst.and_then(|burst| time("burst", burst.period_seconds)),
        burst.and_then(|burst| time("keep", burst.keep_seconds)),
        burst.and_then(|burst| words("flush-on", burst.flush_on.as_ref())),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    format!("{source}: {}", parts.join(", "))
}

/// A duration that another server reports, rounded to microseconds; 0 if it is none.
fn duration(seconds: f64) -> Duration {
    let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    Duration::from_micros(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

/// Describes why a setting is rejected, with the option of `jobmeter set` for the setting.
pub(crate) fn in_flags(rejected: &SetRejection) -> String {
    let SetRejection { source, setting, reason, .. } = rejected;
    let Some(source) = source else { return reason.clone() };
    match setting.as_deref() {
        Some("burst_until") => format!("--for: {reason}"),
        Some("period") => format!("--period of {source}: {reason}"),
        Some("enabled") => format!("--enabled of {source}: {reason}"),
        Some("events") => format!("--perf: {reason}"),
        Some("burst_keep") => format!("--keep of {source}: {reason}"),
        Some("burst_flush_on") => format!("--flush-on of {source}: {reason}"),
        Some("burst" | "burst_period") => format!("--burst of {source}: {reason}"),
        Some(other) => format!("{other} of {source}: {reason}"),
        None => format!("source {source}: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_superseded_change_is_not_applied() {
        let change = serde_json::json!({"id": 7, "nodes": "pdu-1", "settings": [], "created": 1.0,
            "created_by": "root", "until": 9000.0, "nodes_known": 1, "nodes_applied": 0, "rejected": [],
            "shortened": [], "superseded": [{"device": "pdu-1", "source": "snmp", "by": 8, "poller": null}]});
        let change: SetChange = serde_json::from_value(change).unwrap();
        assert_eq!(taken_by(&change), "0 of 1, superseded by 1");
    }

    #[test]
    fn a_shortened_change_names_its_end_and_is_not_rejected() {
        let change = serde_json::json!({"id": 7, "nodes": "n1", "settings": [], "created": 1.0,
            "created_by": "root", "until": 9000.0, "nodes_known": 2, "nodes_applied": 2, "rejected": [],
            "shortened": [{"device": "n1", "until": 3600.0, "reason": "`remote.time_max` is 1h"}]});
        let change: SetChange = serde_json::from_value(change).unwrap();
        assert_eq!(taken_by(&change), "2 of 2, shortened by 1");
        let times = Times::at(model::Timestamp(0), jiff::tz::TimeZone::UTC);
        assert_eq!(
            shortened(&change.shortened[0], &times),
            "n1 shortens it: --for ends at 01:00:00: `remote.time_max` is 1h"
        );
    }

    #[test]
    fn settings_and_rejections_name_options() {
        let changed = serde_json::json!([
            {"source": "cpu", "burst": {"period_seconds": 0.1, "keep_seconds": 60.0, "flush_on": ["job_end"]}},
            {"source": "load", "enabled": true, "period_seconds": 1.5, "from_a_newer_server": 1},
            {"source": "perf", "events": ["cache_ll", "page_faults"], "burst": {"flush_on": []}},
        ]);
        let changed: Vec<ChangedSource> = serde_json::from_value(changed).unwrap();
        assert_eq!(
            settings(&changed),
            "cpu: burst 100ms, keep 1m, flush-on job_end; load: enabled true, period 1500ms; \
             perf: perf cache_ll,page_faults"
        );
        let of = |source: Option<&str>, setting: Option<&str>| {
            let one = serde_json::json!({"device": "n1", "source": source, "setting": setting, "code": "x", "reason": "no"});
            in_flags(&serde_json::from_value(one).unwrap())
        };
        assert_eq!(of(Some("load"), Some("period")), "--period of load: no");
        assert_eq!(of(Some("cpu"), Some("burst_until")), "--for: no");
        assert_eq!(of(Some("exec"), Some("burst")), "--burst of exec: no");
        assert_eq!(of(Some("load"), None), "source load: no");
        assert_eq!(of(None, None), "no");
    }
}
