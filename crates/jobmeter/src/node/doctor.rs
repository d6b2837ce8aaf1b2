//! `jobmeter doctor`: lists what a node cannot measure, how to enable it, and the cost of reading.
//!
//! It reads each source as an agent with the node's settings would, in a separate thread. So a hanging source is
//! reported as such and delays no other source. The cost of a reading is the processor time of its thread.

mod facts;
mod measure;

use crate::node::agent_file::{self, AgentFile};
use crate::node::probe::{ProbedMachine, SourceState, State};
use crate::node::sources_of_node::root_of;
use crate::output::options::JsonOption;
use crate::output::show::Table;
use config::{AgentConfig, Raw};
use facts::Fact;
use measure::Measured;
use serde::Serialize;
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Exit code of a node with an enabled source that is denied or broken.
const ILL: u8 = 1;
/// Default duration of the cost measurement.
const MEASURE: Duration = Duration::from_secs(60);
/// The shorter duration that the progress line of a long measurement suggests.
const SHORT: Duration = Duration::from_secs(5);
const DAY_SECONDS: f64 = 86_400.0;

/// The report.
#[derive(Serialize)]
struct Report {
    good: bool,
    machine: Vec<Fact>,
    sources: Vec<Line>,
}

/// A source, or a part of one.
#[derive(Serialize)]
struct Line {
    /// Source, or `source/part`.
    source: String,
    state: State,
    /// The missing file, feature or permission.
    what: String,
    /// How to enable it.
    grant: String,
    metrics: usize,
    series: usize,
    period_seconds: f64,
    /// `None` for a source that is not read, and on a recorded machine.
    cost: Option<Cost>,
}

/// Processor time of a source.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Cost {
    /// Mean per reading.
    tick_seconds: f64,
    /// Number of measured readings.
    ticks: u64,
    /// Per day at the source's period, including work between readings.
    day_seconds: f64,
    /// The part of it between readings.
    between_day_seconds: f64,
    /// As a part of one core, in percent.
    core_percent: f64,
}

impl Cost {
    /// Computes the cost from measured readings; `None` if there was none.
    fn of(measured: &Measured, period: Duration) -> Option<Self> {
        let ticks = measured.ticks;
        if ticks == 0 || measured.seconds <= 0.0 {
            return None;
        }
        let tick_seconds = measured.read_us as f64 / 1e6 / ticks as f64;
        let between = measured.drain_us as f64 / 1e6 / measured.seconds;
        let core = tick_seconds / period.as_secs_f64() + between;
        Some(Self {
            tick_seconds,
            ticks,
            day_seconds: core * DAY_SECONDS,
            between_day_seconds: between * DAY_SECONDS,
            core_percent: core * 100.0,
        })
    }
}

/// Finds what this node cannot measure and why: sources, missing permissions, costs, and the machine
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: jobmeter doctor --for 10s")]
pub(crate) struct DoctorArgs {
    /// Time to measure the cost of each source [default: 1m]
    #[arg(long = "for", value_name = "TIME")]
    time: Option<String>,
    #[command(flatten)]
    agent: AgentFile,
    /// A recorded machine instead of this one; no cost is measured
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    #[command(flatten)]
    format: JsonOption,
}

/// `jobmeter doctor`. `connection`: flags that name the server to check, and the files for it.
pub(crate) fn doctor(
    args: &DoctorArgs,
    connection: &[(String, Raw)],
    device: &str,
) -> anyhow::Result<ExitCode> {
    let time = match args.time.as_deref() {
        Some(text) => crate::output::times::duration("for", text)?,
        None => MEASURE,
    };
    if time.is_zero() {
        anyhow::bail!("--for: nothing can be measured in no time; write 5s or 1m");
    }
    let probed_machine = ProbedMachine::new(root_of(args.root.as_deref())?, device)?;
    let (config, settings) = settings(&args.agent, connection)?;
    let plan = agent::plan(&config, None).map_err(anyhow::Error::msg)?;
    let mut machine = facts::of_machine(&probed_machine.root);
    if probed_machine.root.is_live() {
        machine.push(settings);
        machine.extend(facts::of_agent(&probed_machine.root, &config, plan.environments));
    }
    let find = agent::discovery(&config).map_err(anyhow::Error::msg)?;
    if probed_machine.root.is_live() && io::stderr().is_terminal() {
        writeln!(io::stderr(), "{}", measuring(time))?;
    }
    let measured = measure::measure(&plan, find, &probed_machine, time)?;
    let lines = plan.sources.iter().zip(measured).flat_map(|(source, measured)| {
        lines(source.spec.name, source.period, &measured, probed_machine.root.is_live())
    });
    let sources: Vec<Line> = lines.collect();
    let ill = |state: State| matches!(state, State::Denied | State::Broken);
    let good = !machine.iter().any(|it| ill(it.state)) && !sources.iter().any(|it| ill(it.state));
    let report = Report { good, machine, sources };
    let mut out = BufWriter::new(io::stdout().lock());
    if args.format.json {
        writeln!(out, "{}", serde_json::to_string(&report)?)?;
    } else {
        text(&report, &mut out)?;
    }
    out.flush()?;
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::from(ILL) })
}

/// The progress line while the cost is measured.
fn measuring(time: Duration) -> String {
    let shorter = if time > SHORT { "; --for 5s is shorter" } else { "" };
    let shown = model::setting::show_duration(time);
    format!("measuring the cost of each source for {shown}{shorter}")
}

/// The agent's settings and a fact about them; the defaults if the settings are invalid. The flags win.
fn settings(
    agent: &AgentFile,
    connection: &[(String, Raw)],
) -> anyhow::Result<(AgentConfig, Fact)> {
    let (shown, loaded) = agent.read(connection.to_vec());
    let errors = match loaded {
        Ok(config) => {
            let there = shown.try_exists().unwrap_or(true);
            let what = if there {
                "all values are valid"
            } else {
                "file not found; all values are defaults"
            };
            return Ok((config, Fact::ok("settings", format!("{}: {what}", shown.display()))));
        }
        Err(errors) => errors,
    };
    let list: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
    let what = format!("{}; the following results use the defaults", list.join("; "));
    let grant = format!("`jobmeter check {} --for agent` shows all", shown.display());
    Ok((
        agent_file::defaults(connection.to_vec())?,
        Fact::not("settings", State::Broken, what, &grant),
    ))
}

/// How to enable a source; for an error without advice, where to look.
fn grant(checked: &SourceState, name: &str) -> String {
    if matches!(checked.state, State::Denied | State::Broken) && checked.grant.is_empty() {
        return format!("`jobmeter sources {name}` shows what it reads");
    }
    checked.grant.clone()
}

/// A line for the source, and one for each of its parts without samples.
fn lines(name: &str, period: Duration, measured: &Measured, live: bool) -> Vec<Line> {
    let cost = if live { Cost::of(measured, period) } else { None };
    let line = |(source, checked): &(String, SourceState)| {
        let whole = source == name;
        Line {
            source: source.clone(),
            state: checked.state,
            what: checked.what.clone(),
            grant: grant(checked, name),
            metrics: if whole { measured.metrics } else { 0 },
            series: if whole { measured.series } else { 0 },
            period_seconds: period.as_secs_f64(),
            cost: cost.filter(|_| whole),
        }
    };
    measured.checked.iter().map(line).collect()
}

fn text(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let mut machine = Table::with_instructions(&["machine", "state", ""]);
    for Fact { name, state, what, grant } in &report.machine {
        let checked = SourceState { state: *state, what: what.clone(), grant: String::new() };
        let more = if grant.is_empty() { String::new() } else { format!("; {grant}") };
        machine.row(vec![(*name).to_owned(), state.word().to_owned(), checked.reason() + &more]);
    }
    machine.write(out)?;
    writeln!(out)?;
    let head =
        ["source", "state", "series", "every", "tick", "a day", "of a core", "what is missing"];
    let mut table = Table::with_instructions(&head);
    let (mut day, mut core, mut series) = (0.0, 0.0, 0);
    for line in &report.sources {
        let checked =
            SourceState { state: line.state, what: line.what.clone(), grant: line.grant.clone() };
        let of_cost = |show: fn(Cost) -> String| line.cost.map_or_else(String::new, show);
        let is_read = line.state == State::Ok;
        let shown = |text: String| if is_read { text } else { String::new() };
        day += line.cost.map_or(0.0, |cost| cost.day_seconds);
        core += line.cost.map_or(0.0, |cost| cost.core_percent);
        series += line.series;
        table.row(vec![
            line.source.clone(),
            line.state.word().to_owned(),
            shown(line.series.to_string()),
            shown(format!("{} s", line.period_seconds)),
            of_cost(|cost| format!("{:.3} ms", cost.tick_seconds * 1e3)),
            of_cost(|cost| format!("{:.2} s", cost.day_seconds)),
            of_cost(|cost| format!("{:.4} %", cost.core_percent)),
            checked.reason(),
        ]);
    }
    table.write(out)?;
    let good = if report.good { "nothing requested is" } else { "something is" };
    writeln!(out)?;
    if report.sources.iter().any(|line| line.cost.is_some()) {
        writeln!(
            out,
            "{series} series for {day:.2} s of processor time a day, {core:.4} % of a core; this \
             includes what sources read between their ticks"
        )?;
        if cfg!(debug_assertions) {
            writeln!(out, "this is a development build: a release build costs less")?;
        }
    }
    writeln!(out, "{good} denied or broken")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_log() {
        let checked = |state, grant: &str| SourceState {
            state,
            what: "x".to_owned(),
            grant: grant.to_owned(),
        };
        assert_eq!(
            grant(&checked(State::Broken, ""), "cpu"),
            "`jobmeter sources cpu` shows what it reads"
        );
        assert_eq!(grant(&checked(State::Denied, "root"), "cpu"), "root");
        assert_eq!(grant(&checked(State::Ok, ""), "cpu"), "");
    }

    #[test]
    fn only_a_long_measurement_suggests_a_shorter_one() {
        let line = |seconds| measuring(Duration::from_secs(seconds));
        assert_eq!(line(60), "measuring the cost of each source for 1m; --for 5s is shorter");
        assert_eq!(line(4), "measuring the cost of each source for 4s");
    }

    #[test]
    fn a_day_costs_the_readings_and_what_is_done_between_them() {
        let measured = Measured {
            read_us: 3_000,
            ticks: 3,
            drain_us: 5_000,
            seconds: 10.0,
            ..Measured::default()
        };
        let cost = Cost::of(&measured, Duration::from_secs(5)).unwrap();
        assert_eq!(cost.tick_seconds, 0.001);
        // 1 ms every 5 s, and 0.5 ms every second.
        assert!((cost.core_percent - 0.07).abs() < 1e-12, "{cost:?}");
        assert!((cost.day_seconds - 60.48).abs() < 1e-9, "{cost:?}");
        assert_eq!(Cost::of(&Measured::default(), Duration::from_secs(5)), None);
    }
}
