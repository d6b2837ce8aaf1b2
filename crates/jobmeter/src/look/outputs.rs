//! `jobmeter outputs`: other systems that receive samples, with the state of each. `jobmeter fill`: sends a time range again.

use crate::client::http_client::{Client, escape, path};
use crate::output::csv_rows;
use crate::output::options::{ListFormat, TimeRange};
use crate::output::show::Table;
use crate::output::times::{Times, machine, machine_value, parameter};
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

/// Path of the list.
const OUTPUTS: &str = "/api/v1/outputs";
/// Exit code if an output waits.
const WAITS: u8 = 1;

/// Lists outputs, the other systems that receive samples; exit code 1 if one waits
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: jobmeter outputs search --retry")]
pub(crate) struct OutputsArgs {
    /// Only this output
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Send again what the output's receiver rejected and the output has set aside
    #[arg(long, requires = "name", conflicts_with = "csv")]
    retry: bool,
    #[command(flatten)]
    format: ListFormat,
}

/// Makes an output send a time range again, from what the server has
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: jobmeter fill graphite --since 2026-11-01 --until 2026-11-02")]
#[command(
    mut_arg("since", |arg| arg.help("From this time on").visible_alias("from")),
    mut_arg("until", |arg| arg.help("Up to this time [default: now]").visible_alias("to")),
    mut_arg("last", |arg| arg.help("This time before now"))
)]
#[command(group = clap::ArgGroup::new("begin").args(["since", "last"]).required(true))]
pub(crate) struct FillArgs {
    /// The output
    #[arg(value_name = "NAME")]
    name: String,
    /// Only samples of this job
    #[arg(long, value_name = "[CLUSTER:]ID")]
    job: Option<String>,
    #[command(flatten)]
    range: TimeRange,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// `jobmeter fill`.
pub(crate) fn fill(client: &Client, args: &FillArgs) -> anyhow::Result<()> {
    let times = Times::of(client)?;
    let span = times.span_of(&args.range)?;
    let parameters = [
        ("start", span.from.map(parameter)),
        ("end", span.to.map(parameter)),
        ("job", args.job.clone()),
    ];
    let path = path(&format!("{OUTPUTS}/{}/fill", escape(&args.name)), &parameters);
    let fill: api::OutputFill = client.post(&path, &serde_json::json!({}))?;
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{}", machine_value(serde_json::to_value(&fill)?))?;
    } else {
        let (from, to) = (times.show(fill.start), times.show(fill.end));
        let name = &args.name;
        let job = args.job.as_ref().map_or_else(String::new, |job| format!(" of {job}"));
        writeln!(
            out,
            "{name} sends {from} to {to}{job} again; `jobmeter outputs {name}` shows how far it is"
        )?;
    }
    Ok(())
}

/// `jobmeter outputs --retry`.
fn retry(client: &Client, name: &str, json: bool) -> anyhow::Result<ExitCode> {
    let path = format!("{OUTPUTS}/{}/retry", escape(name));
    let set_aside: api::OutputSetAside = client.post(&path, &serde_json::json!({}))?;
    let mut out = io::stdout().lock();
    if json {
        writeln!(out, "{}", machine_value(serde_json::to_value(&set_aside)?))?;
    } else {
        let items = set_aside.items;
        writeln!(
            out,
            "{name} sends {items} items again; `jobmeter outputs {name}` shows what is left"
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Only the output with this name, of the list.
fn only(body: &str, name: &str) -> anyhow::Result<String> {
    let all: Vec<serde_json::Value> = serde_json::from_str(body)?;
    let names = || all.iter().filter_map(|one| one["output"].as_str());
    if !names().any(|known| known == name) {
        let near = model::nearest(name, names());
        let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        anyhow::bail!("there is no output `{name}`{near}");
    }
    let one: Vec<_> = all.into_iter().filter(|one| one["output"] == name).collect();
    Ok(serde_json::to_string(&one)?)
}

/// `jobmeter outputs`.
pub(crate) fn outputs(client: &Client, args: &OutputsArgs) -> anyhow::Result<ExitCode> {
    if let (Some(name), true) = (&args.name, args.retry) {
        return retry(client, name, args.format.json);
    }
    let mut body = client.text(OUTPUTS, "application/json")?;
    if let Some(name) = &args.name {
        body = only(&body, name)?;
    }
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
        for fill in &one.fills {
            write_fill(&one.output, fill, times, out)?;
        }
        let api::OutputSetAside { items, bytes, deleted, message, retrying } = &one.set_aside;
        if *items + *deleted > 0 {
            let message = message.as_deref().unwrap_or_default();
            let word = if *retrying { "sends again" } else { "has set aside" };
            let lost = if *deleted > 0 { format!(", {deleted} deleted") } else { String::new() };
            writeln!(out, "{} {word} {items} items ({bytes} bytes{lost}): {message}", one.output)?;
        }
    }
    Ok(())
}

fn write_fill(
    output: &str,
    fill: &api::OutputFill,
    times: &Times,
    out: &mut impl Write,
) -> io::Result<()> {
    use api::OutputFillState as State;
    let state = match fill.state {
        State::Queued => "queued",
        State::Running => "running",
        State::Waiting => "waiting",
        State::Done => "done",
        State::Failed => "failed",
    };
    let (from, to) = (times.show(fill.start), times.show(fill.end));
    let job = fill.job.as_ref().map_or_else(String::new, |job| format!(" of {job}"));
    let reason = fill.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
    let samples = fill.samples;
    writeln!(out, "{output} sends {from} to {to}{job} again: {state}, {samples} samples{reason}")
}
