//! `jobmeter sources`: what this node can tell, and what to grant where it cannot.

use crate::probe::{Probe, Site, Told};
use crate::show::Table;
use anyhow::{Context as _, bail};
use cgroups::Jobs;
use clap::ArgMatches;
use kernel::Root;
use model::setting::OptionSpec;
use model::{Metric, Timestamp};
use serde::Serialize;
use sources::{Every, Options, SOURCES, SourceSpec};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

/// Processor time that a reading should not pass.
const BUDGET: Duration = Duration::from_secs(1);

/// One line of the table.
#[derive(Serialize)]
struct Line {
    /// Source, or `source/part`.
    source: String,
    /// `ok`, `absent`, `denied` or `broken`.
    state: &'static str,
    /// What is missing, and what to grant.
    reason: String,
    /// Metrics that gave a sample.
    metrics: usize,
    /// Samples of one tick.
    samples: usize,
    /// Processor time of the second of two ticks, in seconds: what one costs.
    cpu_seconds: Option<f64>,
}

/// `jobmeter sources [NAME]`.
pub(crate) fn sources(matches: &ArgMatches, device: &str) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    if let Some(name) = matches.get_one::<String>("name") {
        describe(find(name)?, Look::Terminal, &mut out)?;
        return Ok(out.flush()?);
    }
    if matches.get_flag("markdown") {
        markdown(&mut out)?;
        return Ok(out.flush()?);
    }
    let lines = probe(&Site::new(root_of(matches)?, device)?);
    if matches.get_flag("json") {
        writeln!(out, "{}", serde_json::to_string(&lines)?)?;
        return Ok(out.flush()?);
    }
    let mut table = Table::new(&["source", "state", "metrics", "samples", "tick", "reason"]);
    for line in lines {
        let tick = line.cpu_seconds.map_or_else(String::new, |s| format!("{:.3} ms", s * 1e3));
        let counts = [line.metrics.to_string(), line.samples.to_string()];
        let [metrics, samples] = if line.state == "ok" { counts } else { Default::default() };
        table.row(vec![line.source, line.state.to_owned(), metrics, samples, tick, line.reason]);
    }
    table.write(&mut out)?;
    Ok(out.flush()?)
}

pub(crate) fn find(name: &str) -> anyhow::Result<&'static SourceSpec> {
    if let Some(spec) = sources::list::find(name) {
        return Ok(spec);
    }
    let names: Vec<&str> = SOURCES.iter().map(|spec| spec.name).collect();
    match config::nearest(name, names.iter().copied()) {
        Some(near) => bail!("no source is called `{name}`; is `{near}` meant?"),
        None => bail!("no source is called `{name}`; there are {}", names.join(", ")),
    }
}

/// Opens and reads every source twice; the second reading is what a tick costs.
fn probe(site: &Site) -> Vec<Line> {
    let jobs = jobs_of(&site.root, crate::clock());
    SOURCES.iter().flat_map(|spec| probe_one(spec, site, &jobs)).collect()
}

/// The jobs that an agent without any configuration finds there.
pub(crate) fn jobs_of(root: &Root, now: Timestamp) -> Jobs {
    let mut jobs = Jobs::default();
    cgroups::Discovery::new(cgroups::Config::default()).update(root, now, &mut jobs);
    jobs
}

/// The machine that was named, else this one.
pub(crate) fn root_of(matches: &ArgMatches) -> anyhow::Result<Root> {
    Ok(match matches.get_one::<String>("root") {
        Some(dir) => Root::recorded(Path::new(dir))?,
        None => Root::live()?,
    })
}

fn probe_one(spec: &'static SourceSpec, site: &Site, jobs: &Jobs) -> Vec<Line> {
    let mut probe = Probe::open(spec, &Options::defaults(spec.options), site);
    let mut cost = None;
    for _ in 0..2 {
        cost = probe.read(site, jobs, BUDGET);
    }
    let (metrics, samples) = (probe.metrics(), probe.sink().len());
    let cpu_seconds = cost.map(|micros| micros as f64 / 1e6);
    let line = |(source, told): (String, Told)| {
        let (state, reason) = (told.state.word(), told.reason());
        if source == spec.name {
            return Line { source, state, reason, metrics, samples, cpu_seconds };
        }
        Line { source, state, reason, metrics: 0, samples: 0, cpu_seconds: None }
    };
    probe.told().into_iter().map(line).collect()
}

fn every(spec: &SourceSpec) -> String {
    match spec.every {
        Every::Tick => "at every tick".to_owned(),
        Every::AtLeast(time) => format!("every {} s at most", time.as_secs_f64()),
    }
}

const fn unit(metric: &Metric) -> &'static str {
    if metric.unit.word().is_empty() { "count" } else { metric.unit.word() }
}

/// What the manual of a source is written for.
#[derive(Clone, Copy)]
enum Look {
    /// A terminal.
    Terminal,
    /// The reference of all sources.
    Markdown,
}

/// The manual of a source: everything that it declares.
fn describe(spec: &SourceSpec, look: Look, out: &mut impl Write) -> io::Result<()> {
    let SourceSpec { name, help, reads, cost, options, metrics, .. } = spec;
    match look {
        Look::Terminal => {
            writeln!(out, "{name}: {help}\n\n  reads    {}", reads.join(", "))?;
            writeln!(out, "  read     {}\n  cost     {cost}", every(spec))?;
        }
        Look::Markdown => {
            writeln!(out, "\n## {name}\n\n{help}\n\n- reads: `{}`", reads.join("`, `"))?;
            writeln!(out, "- cost: {cost}")?;
        }
    }
    if !options.is_empty() {
        match look {
            Look::Terminal => writeln!(out, "\noptions, in [sources.{name}] of the agent's file:")?,
            Look::Markdown => writeln!(out, "\n| option | default | meaning |\n|---|---|---|")?,
        }
    }
    for OptionSpec { name, default, help, .. } in *options {
        match look {
            Look::Terminal => writeln!(out, "  {name} = {default:?}\n      {help}")?,
            Look::Markdown => writeln!(out, "| `{name}` | `{default}` | {help} |")?,
        }
    }
    match look {
        Look::Terminal => writeln!(out, "\nmetrics:")?,
        Look::Markdown => {
            writeln!(out, "\n| metric | kind | unit | meaning |\n|---|---|---|---|")?;
        }
    }
    for metric in *metrics {
        let (Metric { name, help, .. }, kind, unit) = (metric, metric.kind.word(), unit(metric));
        match look {
            Look::Terminal => writeln!(out, "  {name}  ({kind}, {unit})\n      {help}")?,
            Look::Markdown => writeln!(out, "| `{name}` | {kind} | {unit} | {help} |")?,
        }
    }
    Ok(())
}

/// The generated reference of every source: the same words as the manual.
fn markdown(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "# Sources\n")?;
    writeln!(out, "What a node can tell. Generated from the sources themselves by `make docs`.\n")?;
    writeln!(out, "| source | measures | read |\n|---|---|---|")?;
    let all = || SOURCES.iter().copied().chain([&crate::run::tree::SPEC]);
    for spec in all() {
        writeln!(out, "| [{0}](#{0}) | {1} | {2} |", spec.name, spec.help, every(spec))?;
    }
    all().try_for_each(|spec| describe(spec, Look::Markdown, out))
}

/// `jobmeter capture [SOURCE] --out DIR`.
pub(crate) fn capture(matches: &ArgMatches, device: &str) -> anyhow::Result<()> {
    let specs = match matches.get_one::<String>("source") {
        Some(name) => vec![find(name)?],
        None => SOURCES.to_vec(),
    };
    let out =
        matches.get_one::<String>("out").map(Path::new).context("--out DIR says where to write")?;
    if out.try_exists()? {
        bail!("{} is there already; name a folder that is not", out.display());
    }
    let site = Site::new(root_of(matches)?.recording(), device)?;
    crate::capture::capture(&specs, &site, out)
}
