//! `jobmeter audit`: lists changes, and reads of other users' jobs.

use crate::client::http_client::{Client, path};
use crate::client::plain::note;
use crate::output::csv_rows;
use crate::output::options::{ListFormat, TimeRange};
use crate::output::show::Table;
use crate::output::times::{Times, is_instant, machine, parameter};
use std::io::{self, BufWriter, Write};

/// Maximum length of a changed value in a row, in characters; `--json` prints the whole value.
const CHARS_MAX: usize = 100;
/// Default number of entries of the server.
const LISTED: usize = 1000;

/// Lists changes by users, and staff's reads of others' jobs; for administrators and staff
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: jobmeter audit --actor ann --since 7d")]
#[command(
    mut_arg("since", |arg| arg.help("Only entries from this time on [default: 1d]")),
    mut_arg("until", |arg| arg.help("Only entries until this time [default: now]")),
    mut_arg("last", |arg| arg.help("Only entries within this time before now"))
)]
pub(crate) struct AuditArgs {
    /// Only entries of this user, by login name or user ID, or of `token 7`
    #[arg(long, value_name = "ACTOR")]
    actor: Option<String>,
    /// Only actions that contain this text, such as tokens or POST
    #[arg(long, value_name = "TEXT")]
    action: Option<String>,
    /// Only entries of this job; `*`: only entries of no single job
    #[arg(long, value_name = "CLUSTER:ID")]
    job: Option<String>,
    #[command(flatten)]
    range: TimeRange,
    /// Most entries: the newest ones, in the order of time; up to 10000 [default: 1000]
    #[arg(long, value_name = "N")]
    limit: Option<String>,
    #[command(flatten)]
    format: ListFormat,
}

/// `jobmeter audit`.
pub(crate) fn audit(client: &Client, args: &AuditArgs) -> anyhow::Result<()> {
    let times = Times::of(client)?;
    let span = times.span_of(&args.range)?;
    let path = path(
        "/api/v1/audit",
        &[
            ("actor", args.actor.clone()),
            ("action", args.action.clone()),
            ("job", args.job.clone()),
            ("start", span.from.map(parameter)),
            ("end", span.to.map(parameter)),
            ("limit", args.limit.clone()),
        ],
    );
    let mut out = BufWriter::new(io::stdout().lock());
    let body = client.text(&path, "application/json")?;
    let lines: Vec<api::AuditEntry> = client.understood(&path, &body)?;
    let columns = api::columns::<api::AuditEntry>();
    if csv_rows::written(args.format.csv, &columns, || Ok(body.clone()), &mut out)? {
        // The note on missing entries follows.
    } else if args.format.json {
        writeln!(out, "{}", machine(&body))?;
    } else if let Some(actor) = args.actor.as_deref().filter(|_| lines.is_empty()) {
        writeln!(out, "{}", nothing_by(actor))?;
    } else {
        write(&lines, &times, &mut out)?;
    }
    out.flush()?;
    let limit = args.limit.as_deref().map_or(Ok(LISTED), str::parse);
    if limit.is_ok_and(|limit| lines.len() >= limit) {
        let count = lines.len();
        note(&format!(
            "these are the newest {count} entries; there may be older ones: raise --limit, or restrict the time with \
             --until"
        ))?;
    }
    Ok(())
}

fn nothing_by(actor: &str) -> String {
    format!(
        "no entry of this time range and kind has the actor `{actor}`; write a login name, a user \
         ID (uid 1000), or text of the column `actor`, such as token 7"
    )
}

fn write(lines: &[api::AuditEntry], times: &Times, out: &mut impl Write) -> io::Result<()> {
    if lines.is_empty() {
        return writeln!(out, "no entries of this kind in this time range");
    }
    let mut table = Table::new(&["time", "actor", "address", "action", "job", "owner", "changes"]);
    for line in lines {
        table.row(vec![
            times.show(line.time),
            line.actor.clone(),
            line.address.clone(),
            line.action.clone(),
            line.job.clone().unwrap_or_default(),
            line.owner.map(|owner| owner.to_string()).unwrap_or_default(),
            line.more
                .iter()
                .map(|(key, value)| match is_instant(key, value) {
                    Some(seconds) => format!("{key}={}", times.show(seconds)),
                    None => format!("{key}={}", short(value)),
                })
                .collect::<Vec<_>>()
                .join(" "),
        ]);
    }
    table.write(out)
}

fn short(value: &serde_json::Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match text.char_indices().nth(CHARS_MAX) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Timestamp;

    #[test]
    fn a_line_has_time_actor_and_action() {
        let line = "{\"time\": 1767657600.25, \"actor\": \"uid 0\", \"address\": \"::1\", \"action\": \"POST /api/v1/flushes\",
            \"nodes\": \"n1\", \"number\": 7, \"expires\": 1767744000.5}";
        let read = "{\"time\": 1767657601, \"actor\": \"uid 0\", \"address\": \"::1\", \"action\": \"GET /api/v1/jobs/oar:7\",
            \"job\": \"oar:7\", \"owner\": 1000}";
        let lines = [line, read].map(|line| serde_json::from_str(line).unwrap());
        let mut out = Vec::new();
        let now = Timestamp::from_seconds(1_767_661_200);
        write(&lines, &Times::at(now, jiff::tz::TimeZone::UTC), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let words: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[0], ["time", "actor", "address", "action", "job", "owner", "changes"]);
        let first = ["00:00:00", "uid", "0", "::1", "POST", "/api/v1/flushes"];
        assert_eq!(
            words[1],
            [&first[..], &["expires=2026-01-07", "00:00:00", "nodes=n1", "number=7"]].concat()
        );
        assert_eq!(words[2][6..], ["oar:7", "1000"]);
    }

    #[test]
    fn a_user_without_an_entry_is_named() {
        assert!(
            nothing_by("alcie")
                .starts_with("no entry of this time range and kind has the actor `alcie`; ")
        );
    }

    #[test]
    fn long_values_are_cut() {
        assert_eq!(short(&"x".repeat(CHARS_MAX + 1).into()).chars().count(), CHARS_MAX + 1);
    }
}
