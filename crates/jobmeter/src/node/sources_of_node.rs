//! `jobmeter sources`: lists what this node can measure, and the permissions that are missing.

use crate::node::agent_file::{AgentFile, why_off};
use crate::node::describe::{self, ManualFormat};
use crate::node::probe::{Probe, ProbedMachine, SourceState, State};
use crate::output::csv_rows;
use crate::output::options::{JsonOption, ListFormat};
use crate::output::show::Table;
use agent::SourcePlan;
use anyhow::{Context as _, bail};
use cgroups::Jobs;
use kernel::Root;
use model::Timestamp;
use serde::Serialize;
use sources::SourceSpec;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Processor time limit of a reading.
const BUDGET: Duration = Duration::from_secs(1);

/// The fields of [`Line`] in CSV.
const COLUMNS: [&str; 6] = ["source", "state", "cpu_seconds", "metrics", "reason", "samples"];

/// A line of the table.
#[derive(Serialize)]
struct Line {
    /// Source, or `source/part`.
    source: String,
    /// `ok`, `absent`, `denied`, `broken` or `off`.
    state: &'static str,
    /// What is missing, and how to enable it.
    reason: String,
    /// Number of metrics with a sample.
    metrics: usize,
    /// Number of samples per tick.
    samples: usize,
    /// Processor time of the second of two readings, in seconds: the cost of one tick.
    cpu_seconds: Option<f64>,
}

/// Lists every source on this node: state, missing permissions, cost
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: jobmeter sources cgroup")]
pub(crate) struct SourcesArgs {
    /// Show the manual of this source and its state on this node, or the manual of a protocol of pollers; with --json only
    /// the state
    #[arg(value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    agent: AgentFile,
    /// A recorded machine instead of this one
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Print the reference of all sources as Markdown
    #[arg(long, conflicts_with_all = ["name", "root", "json", "csv"])]
    markdown: bool,
    #[command(flatten)]
    format: ListFormat,
}

/// Records the files that this node's agent reads, names scrubbed, for a bug report or a test
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: jobmeter capture --out report; tar czf report.tar.gz report")]
pub(crate) struct CaptureArgs {
    /// The source [default: all that the agent's settings do not switch off]
    #[arg(value_name = "SOURCE")]
    source: Option<String>,
    /// Folder to write; it must not exist
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    agent: AgentFile,
    /// A recorded machine instead of this one
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    #[command(flatten)]
    format: JsonOption,
}

/// The root of the given recorded machine, otherwise of this machine.
pub(crate) fn root_of(recorded: Option<&Path>) -> anyhow::Result<Root> {
    Ok(match recorded {
        Some(dir) => agent::recorded(dir)?,
        None => Root::live()?,
    })
}

/// `jobmeter sources [NAME]`. Returns the protocol of pollers, if its manual follows.
pub(crate) fn sources<'a>(args: &'a SourcesArgs, device: &str) -> anyhow::Result<Option<&'a str>> {
    let mut out = BufWriter::new(io::stdout().lock());
    if args.markdown {
        describe::reference(&mut out)?;
        out.flush()?;
        return Ok(None);
    }
    let ListFormat { json, csv } = args.format;
    let protocol = args.name.as_deref().filter(|name| api::POLLED_PROTOCOLS.contains(name));
    if let Some(name) = protocol
        && !describe::all().any(|spec| spec.name == name)
    {
        if json || csv {
            bail!("`{name}` is a protocol of pollers: `jobmeter devices` shows the states");
        }
        return Ok(Some(name));
    }
    let probed_machine = ProbedMachine::new(root_of(args.root.as_deref())?, device)?;
    let config = args.agent.read_or_defaults()?;
    let mut sources = agent::plan(&config, None).map_err(anyhow::Error::msg)?.sources;
    if let Some(name) = &args.name {
        let spec = find(name)?;
        sources.retain(|one| one.spec.name == spec.name);
        if !json && !csv {
            describe::describe(spec, ManualFormat::Terminal, &mut out)?;
            // The agent's own metrics, and those of `jobmeter run`, cannot be read here.
            if !sources.is_empty() {
                let root = args.root.as_deref().unwrap_or(Path::new("here"));
                writeln!(out, "\n{}:", root.display())?;
            }
            // Prints the manual first, because reading a source may hang.
            out.flush()?;
        }
    }
    let find = agent::discovery(&config).map_err(anyhow::Error::msg)?;
    let lines = probe(&sources, find, &probed_machine);
    if csv_rows::written(
        csv,
        &COLUMNS.map(str::to_owned),
        || Ok(serde_json::to_string(&lines)?),
        &mut out,
    )? {
        return Ok(None);
    }
    if json {
        writeln!(out, "{}", serde_json::to_string(&lines)?)?;
    } else if !lines.is_empty() {
        write_table(lines, &mut out)?;
    }
    let protocol = protocol.filter(|_| !json);
    if protocol.is_some() {
        writeln!(out, "\nA protocol of pollers has this name, too.\n")?;
    }
    out.flush()?;
    Ok(protocol)
}

fn write_table(lines: Vec<Line>, out: &mut impl Write) -> io::Result<()> {
    let mut table =
        Table::with_instructions(&["source", "state", "metrics", "samples", "tick", "reason"]);
    for line in lines {
        let tick = line.cpu_seconds.map_or_else(String::new, |s| format!("{:.3} ms", s * 1e3));
        let counts = [line.metrics.to_string(), line.samples.to_string()];
        let [metrics, samples] = if line.state == "ok" { counts } else { Default::default() };
        table.row(vec![line.source, line.state.to_owned(), metrics, samples, tick, line.reason]);
    }
    table.write(out)
}

pub(crate) fn find(name: &str) -> anyhow::Result<&'static SourceSpec> {
    if let Some(spec) = describe::all().find(|spec| spec.name == name) {
        return Ok(spec);
    }
    let names: Vec<&str> = describe::all().map(|spec| spec.name).collect();
    let protocols = api::POLLED_PROTOCOLS;
    if protocols.contains(&name) {
        bail!("`{name}` is a protocol of pollers, and no source of a node");
    }
    match config::nearest(name, names.iter().copied().chain(protocols)) {
        Some(near) => bail!("unknown source `{name}`; did you mean `{near}`?"),
        None => bail!(
            "unknown source `{name}`; the sources are {}; the protocols of pollers are {}",
            names.join(", "),
            protocols.join(", ")
        ),
    }
}

/// Opens and reads enabled sources twice; the second reading gives the cost of a tick.
fn probe(
    sources: &[SourcePlan],
    find: cgroups::Config,
    probed_machine: &ProbedMachine,
) -> Vec<Line> {
    let jobs = jobs_of(&probed_machine.root, find, crate::clock());
    sources.iter().flat_map(|source| probe_one(source, probed_machine, &jobs)).collect()
}

/// The jobs that an agent with these discovery settings finds on the machine.
pub(crate) fn jobs_of(root: &Root, find: cgroups::Config, now: Timestamp) -> Jobs {
    let mut jobs = Jobs::default();
    cgroups::Discovery::new(find).update(root, now, &mut jobs);
    jobs
}

fn probe_one(source: &SourcePlan, probed_machine: &ProbedMachine, jobs: &Jobs) -> Vec<Line> {
    let spec = source.spec;
    if !source.enabled {
        let (state, reason) = (State::Off.word(), why_off(source));
        let source = spec.name.to_owned();
        return vec![Line { source, state, reason, metrics: 0, samples: 0, cpu_seconds: None }];
    }
    let mut probe = Probe::open(spec, &source.options, probed_machine);
    let mut cost = None;
    for _ in 0..2 {
        cost = probe.read(probed_machine, jobs, BUDGET);
    }
    let (metrics, samples) = (probe.metrics(), probe.sink().len());
    let cpu_seconds = cost.map(|micros| micros as f64 / 1e6);
    let line = |(source, checked): (String, SourceState)| {
        let (state, reason) = (checked.state.word(), checked.reason());
        if source == spec.name {
            return Line { source, state, reason, metrics, samples, cpu_seconds };
        }
        Line { source, state, reason, metrics: 0, samples: 0, cpu_seconds: None }
    };
    probe.checked().into_iter().map(line).collect()
}

/// `jobmeter capture [SOURCE] --out DIR`.
pub(crate) fn capture(args: &CaptureArgs, device: &str) -> anyhow::Result<()> {
    let (shown, loaded) = args.agent.read(Vec::new());
    let config = loaded.with_context(|| {
        let shown = shown.display();
        format!(
            "the agent's settings, {shown}; `--agent /dev/null` records as an agent with \
                 default settings"
        )
    })?;
    let mut sources = agent::plan(&config, None).map_err(anyhow::Error::msg)?.sources;
    if let Some(name) = &args.source {
        let spec = find(name)?;
        sources.retain(|source| source.spec.name == spec.name);
        if sources.is_empty() {
            bail!("the agent reads no files for `{name}`: there is nothing to capture");
        }
    }
    let find = agent::discovery(&config).map_err(anyhow::Error::msg)?;
    let probed_machine = ProbedMachine::new(root_of(args.root.as_deref())?.recording(), device)?;
    let _progress = crate::client::progress::Progress::start("recording");
    crate::node::capture::capture(&sources, find, &probed_machine, &args.out, args.format.json)
}
