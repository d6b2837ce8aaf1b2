//! `jobmeter job`: the report of one job, and the registration of jobs in place of a scheduler.

use crate::client::http_client::{Client, escape};
use crate::client::name_suggestions::silent_node;
use crate::client::plain::{self, note};
use crate::output::options::{JsonOption, exit_code};
use crate::output::times::{Times, machine, machine_value};
use anyhow::{Context, bail};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd as _;

/// Maximum nodes in the registration of a job.
const NODES_MAX: usize = 65_536;

/// Reports the resource use of a job; `start` and `end` register a job
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: jobmeter job slurm:1234", args_conflicts_with_subcommands = true)]
pub(crate) struct JobArgs {
    /// The job, such as 123, 123_4 or slurm:123
    #[arg(value_name = "[CLUSTER:]ID")]
    id: Option<String>,
    #[command(flatten)]
    format: JsonOption,
    #[command(subcommand)]
    action: Option<JobAction>,
}

#[derive(clap::Subcommand, Debug)]
enum JobAction {
    Start(StartArgs),
    End(EndArgs),
}

/// Registers a job that starts now on this node; prints its ID
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example: jobmeter job start site:42 --user alice --nodes \"$(cat $NODEFILE)\""
)]
struct StartArgs {
    /// A scheduler's job, for its prologue; default: a job of your own
    #[arg(value_name = "CLUSTER:ID")]
    id: Option<String>,
    /// Its name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The node that it runs on
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Owner of a scheduler's job
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Its account
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    /// Its project
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
    /// Its queue
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
    /// All its nodes, separated by commas or lines, also n[1-3] [default: this one]
    #[arg(long, value_name = "NAMES", conflicts_with = "device")]
    nodes: Option<String>,
    #[command(flatten)]
    format: JsonOption,
}

impl StartArgs {
    /// The first given option that is only valid for a scheduler's job.
    fn update_option(&self) -> Option<&'static str> {
        let Self { user, account, project, queue, nodes, .. } = self;
        let options = [
            ("user", user),
            ("account", account),
            ("project", project),
            ("queue", queue),
            ("nodes", nodes),
        ];
        options.into_iter().find(|(_, value)| value.is_some()).map(|(name, _)| name)
    }
}

/// Reports the end of a registered job, or of a scheduler's job
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: jobmeter job end local:7 --exit-code 0")]
struct EndArgs {
    /// The job, such as 123, 123_4 or slurm:123
    #[arg(value_name = "[CLUSTER:]ID")]
    id: String,
    /// Its exit code
    #[arg(long, value_name = "N", value_parser = exit_code, allow_negative_numbers = true)]
    exit_code: Option<i32>,
    #[command(flatten)]
    format: JsonOption,
}

/// `jobmeter job` and its subcommands.
pub(crate) fn job(client: &Client, args: &JobArgs, device: &str) -> anyhow::Result<()> {
    match &args.action {
        Some(JobAction::Start(args)) => return start(client, args, device),
        Some(JobAction::End(args)) => return end(client, args),
        None => {}
    }
    let Some(id) = &args.id else { bail!("name a job: jobmeter job [CLUSTER:]ID") };
    let path = format!("/api/v1/jobs/{}", escape(id));
    let mut out = BufWriter::new(io::stdout().lock());
    if args.format.json {
        writeln!(out, "{}", machine(&client.text(&path, "application/json")?))?;
    } else {
        let report: api::JobReport = client.get(&path)?;
        crate::output::report::write(&report, &Times::of(client)?, &mut out)?;
    }
    Ok(out.flush()?)
}

fn start(client: &Client, args: &StartArgs, device: &str) -> anyhow::Result<()> {
    crate::output::check_names::devices(args.device.as_deref())?;
    if plain::is_closed(io::stdout().as_fd()) {
        bail!(
            "standard output is closed: the job's ID cannot be printed, and no job was registered"
        );
    }
    let registered: api::Registered = match &args.id {
        Some(id) => client.post("/api/v1/jobs", &job_update(id, args, device)?)?,
        None => {
            if let Some(word) = args.update_option() {
                bail!(
                    "--{word} needs a scheduler's job: jobmeter job start CLUSTER:ID --{word} ..."
                );
            }
            let device = args.device.clone().unwrap_or_else(|| device.to_owned());
            if args.device.is_some()
                && let Some(message) = silent_node(client, &device)
            {
                note(&message)?;
            }
            let register = api::Register { name: args.name.clone(), device, start: None };
            client.post("/api/v1/jobs", &register)?
        }
    };
    let job = format!("{}:{}", registered.cluster, registered.id);
    if let Some(user) = args.user.as_deref().filter(|_| registered.user_unknown) {
        note(&format!(
            "the server does not know the user `{user}`; until it does, only administrators and \
             staff can see job {job}"
        ))?;
    }
    let text = match args.format.json {
        true => serde_json::to_string(&registered)?,
        false => job.clone(),
    };
    let mut out = io::stdout().lock();
    let Err(error) = writeln!(out, "{text}").and_then(|()| out.flush()) else { return Ok(()) };
    // Without the ID, the caller cannot end the job. The error is a text: a closed pipe must not count as
    // success here.
    let what = format!("cannot write the ID of job {job} to standard output: {error}");
    if args.id.is_some() {
        bail!("{what}; the job is registered");
    }
    let path = format!("/api/v1/jobs/{}/end", escape(&job));
    match client.post::<api::Job>(&path, &api::End { exit_code: None, stop: None }) {
        Ok(_) => bail!("{what}; the job was ended again"),
        Err(end) => {
            bail!("{what}; end it with `jobmeter job end {job}`; this failed now: {end:#}")
        }
    }
}

/// The job record from the options that a scheduler's prologue passes.
fn job_update(id: &str, args: &StartArgs, device: &str) -> anyhow::Result<api::JobUpdate> {
    let wrong = || format!("`{id}` is not a scheduler's job; write CLUSTER:ID, such as site:42");
    let (cluster, number) = id.split_once(':').with_context(wrong)?;
    if cluster.eq_ignore_ascii_case(model::ClusterId::LOCAL) {
        bail!(
            "`{id}`: the server assigns the IDs of local jobs; omit the ID, or write the cluster of a \
             scheduler, such as site:42"
        );
    }
    let nodes = args.nodes.as_deref().or(args.device.as_deref()).unwrap_or(device);
    let nodes = model::expand_hosts(&nodes.replace(['\n', ' '], ","), NODES_MAX);
    // A node file lists each node once per allocated core.
    let names: std::collections::BTreeSet<String> = nodes.context("--nodes")?.into_iter().collect();
    let share = |device: String| api::NodeShare { device, ..Default::default() };
    Ok(api::JobUpdate {
        cluster: cluster.to_owned(),
        id: number.parse().ok().with_context(wrong)?,
        user: args.user.clone(),
        account: args.account.clone(),
        project: args.project.clone(),
        name: args.name.clone(),
        queue: args.queue.clone(),
        start: Some(crate::clock().seconds()),
        nodes: Some(names.into_iter().map(share).collect()),
        ..api::JobUpdate::default()
    })
}

fn end(client: &Client, args: &EndArgs) -> anyhow::Result<()> {
    let path = format!("/api/v1/jobs/{}/end", escape(&args.id));
    let ended: api::Ended =
        client.post(&path, &api::End { exit_code: args.exit_code, stop: None })?;
    let mut out = io::stdout().lock();
    if args.format.json {
        writeln!(out, "{}", machine_value(serde_json::to_value(&ended)?))?;
    }
    if !ended.changed {
        let (cluster, id) = (&ended.job.cluster, ended.job.id);
        note(&format!("job {cluster}:{id} had already ended; nothing was changed"))?;
    }
    Ok(())
}
