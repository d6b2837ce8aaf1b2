//! `jobmeter outputs`: other systems that receive samples, with the state of each.

use crate::client::http_client::Client;
use crate::output::csv_rows;
use crate::output::options::ListFormat;
use crate::output::show::Table;
use crate::output::times::{Times, machine};
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

/// Path of the list.
const OUTPUTS: &str = "/api/v1/outputs";
/// Exit code if an output waits.
const WAITS: u8 = 1;

/// Lists outputs, the other systems that receive samples; exit code 1 if one waits
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: jobmeter outputs --json")]
pub(crate) struct OutputsArgs {
    #[command(flatten)]
    format: ListFormat,
}

/// `jobmeter outputs`.
pub(crate) fn outputs(client: &Client, args: &OutputsArgs) -> anyhow::Result<ExitCode> {
    let body = client.text(OUTPUTS, "application/json")?;
    let outputs: Vec<api::Output> = client.understood(OUTPUTS, &body)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let columns = api::columns::<api::Output>();
    if csv_rows::written(args.format.csv, &columns, || Ok(body.clone()), &mut out)? {
        // Without an output, the header only.
    } else if args.format.json {
        writeln!(out, "{}", machine(&body))?;
    } else if outputs.is_empty() {
        writeln!(out, "no outputs; a table [outputs.NAME] in the server's file is one")?;
    } else {
        write(&outputs, &Times::of(client)?, &mut out)?;
    }
    out.flush()?;
    let waits = outputs.iter().any(|one| one.state == api::OutputState::Waiting);
    Ok(ExitCode::from(if waits { WAITS } else { 0 }))
}

fn write(outputs: &[api::Output], times: &Times, out: &mut impl Write) -> io::Result<()> {
    let header =
        ["output", "kind", "state", "behind", "newest", "samples", "lost", "since", "reason"];
    let mut table = Table::new(&header);
    for one in outputs {
        let state = match one.state {
            api::OutputState::Working => "working",
            api::OutputState::Waiting => "waiting",
        };
        table.row(vec![
            one.output.clone(),
            one.kind.clone(),
            state.to_owned(),
            one.samples_behind.map_or_else(|| "unknown".to_owned(), |behind| behind.to_string()),
            one.newest.map_or_else(String::new, |at| times.show(at)),
            one.samples.to_string(),
            one.samples_lost.to_string(),
            one.since.map_or_else(String::new, |at| times.show(at)),
            one.reason.clone().unwrap_or_default(),
        ]);
    }
    table.write(out)?;
    for one in outputs {
        for gap in &one.gaps {
            let (from, to) = (times.show(gap.start), times.show(gap.end));
            let api::OutputGap { samples, reason, .. } = gap;
            writeln!(out, "{} lost {samples} samples from {from} to {to}: {reason}", one.output)?;
        }
    }
    Ok(())
}
