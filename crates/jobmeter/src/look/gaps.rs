//! `jobmeter gaps`: lists gaps, with their nodes and causes.

use crate::client::http_client::{Client, path};
use crate::client::name_suggestions;
use crate::client::plain::note;
use crate::output::csv_rows;
use crate::output::options::{ListFormat, TimeRange};
use crate::output::show::{self, Table};
use crate::output::times::{Times, machine, parameter};
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

/// Exit code for an unknown device, as in `jobmeter get`.
const UNKNOWN: u8 = 1;

/// Lists missing samples: nodes, times and causes
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: jobmeter gaps --device node-1 --since yesterday")]
#[command(
    mut_arg("since", |arg| arg.help("Only gaps at or after this time [default: 1d]")),
    mut_arg("until", |arg| arg.help("Only gaps at or before this time [default: now]")),
    mut_arg("last", |arg| arg.help("Only gaps within this time before now"))
)]
pub(crate) struct GapsArgs {
    /// Only of this node
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    #[command(flatten)]
    range: TimeRange,
    #[command(flatten)]
    format: ListFormat,
}

/// `jobmeter gaps`.
pub(crate) fn gaps(client: &Client, args: &GapsArgs) -> anyhow::Result<ExitCode> {
    let times = Times::of(client)?;
    let span = times.span_of(&args.range)?;
    let device = crate::output::check_names::devices(args.device.as_deref())?;
    let parameters = [
        ("device", device.clone()),
        ("start", span.from.map(parameter)),
        ("end", span.to.map(parameter)),
    ];
    let path = path("/api/v1/gaps", &parameters);
    let mut out = BufWriter::new(io::stdout().lock());
    let text = client.text(&path, "application/json")?;
    let gaps: Vec<api::Gap> = client.understood(&path, &text)?;
    // An empty list may come from a mistyped device.
    let unknown = match gaps.is_empty() {
        true => name_suggestions::names(client, device, None)?,
        false => Vec::new(),
    };
    let code = ExitCode::from(if unknown.is_empty() { 0 } else { UNKNOWN });
    let columns = api::columns::<api::Gap>();
    if csv_rows::written(args.format.csv, &columns, || Ok(text.clone()), &mut out)? {
        // Without a gap, the output is the header only.
    } else if args.format.json {
        writeln!(out, "{}", machine(&text))?;
    } else if unknown.is_empty() {
        write(&gaps, &times, &mut out)?;
    }
    out.flush()?;
    unknown.iter().try_for_each(|line| note(line))?;
    Ok(code)
}

fn write(gaps: &[api::Gap], times: &Times, out: &mut impl Write) -> io::Result<()> {
    if gaps.is_empty() {
        return writeln!(out, "no gaps in this time range");
    }
    let mut table = Table::new(&["node", "source", "from", "to", "length", "cause", "detail"]);
    for gap in gaps {
        table.row(vec![
            gap.device.clone(),
            source(gap),
            times.show(gap.from),
            times.show(gap.to),
            show::seconds(gap.to - gap.from),
            gap.cause.clone(),
            gap.detail.clone(),
        ]);
    }
    table.write(out)
}

/// The missing source. A poller that is down lacks its own polls only.
fn source(gap: &api::Gap) -> String {
    let origin = model::Origin::new(&gap.origin).ok();
    let poller = origin.as_ref().and_then(model::Origin::as_poller_group);
    match (&*gap.source, poller) {
        ("", Some(poller)) => format!("polls of {poller}"),
        ("", None) => "all".to_owned(),
        (source, _) => source.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_a_row() {
        let gap = api::Gap {
            origin: "n1".to_owned(),
            device: "n1".to_owned(),
            source: String::new(),
            from: 100.0,
            to: 160.0,
            cause: "agent_down".to_owned(),
            detail: "stopped".to_owned(),
        };
        let times = Times::at(model::Timestamp::from_seconds(300), jiff::tz::TimeZone::UTC);
        let mut out = Vec::new();
        let origin = "poller-lab/group-0".to_owned();
        assert_eq!(source(&api::Gap { origin, ..gap.clone() }), "polls of lab");
        write(&[gap], &times, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let row: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(
            row,
            ["n1", "all", "00:01:40", "00:02:40", "1", "min", "0", "s", "agent_down", "stopped"]
        );
        let mut out = Vec::new();
        write(&[], &times, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "no gaps in this time range\n");
    }
}
