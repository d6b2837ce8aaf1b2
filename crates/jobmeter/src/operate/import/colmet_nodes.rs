//! Nodes of Colmet: the Python node, that of the branch colmet-rust, and colmet-rs. Their options become settings of an agent.

use super::command_line::{comment_missing, parse};
use super::counterparts::{Row, Table, is, nothing};
use super::draft::{Draft, Part};
use crate::node::colmet_node::options::{IPMIPOWER_COMMAND, Options};
use crate::node::colmet_node::settings::{self, procstats_sources};
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Parser};
use colmet::backends::EVENTS;
use config::Raw;
use std::path::Path;

/// Most bytes of a file of colmet-rs with names of metrics.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Where the options of all nodes lead.
const SERVER: &str = "agent: `server`, the URL of jobmeter's server instead of Colmet's collector";
const NO_QUEUE: &str =
    "the agent has a spool on the disk with limits of its own: `spool_bytes_max`, `spool_age_max`";
const NO_LINGER: &str = "the spool keeps what is not sent at the end";
const DEAD: &str = "it has no effect in Colmet; the agent finds jobs by their cgroups";
const JOB_ROOTS: &str = "agent: `jobs.oar_roots`; without it, OAR's default places";
const JOB_REGEX: &str = "agent: `jobs.patterns`, with each directory of jobs";
const URI: Row = is(&["--zeromq-uri"], SERVER);
const HWM: Row = nothing(&["--zeromq-hwm"], NO_QUEUE);
const LINGER: Row = nothing(&["--zeromq-linger"], NO_LINGER);
const VERSION: Row = nothing(&["--version"], "`jobmeter-agent --version` prints its own");

/// The Python node.
pub(super) const PYTHON: Table = Table {
    program: "colmet-node",
    rows: &[
        VERSION,
        is(&["-v", "--verbose"], "agent: `log.level`"),
        is(&["-s", "--sample-period"], "agent: `period`, and `period` of each source below"),
        is(
            &["--disable-procstats"],
            "agent: `enabled = false` of `cpu`, `load`, `memory`, `uptime` and `vmstat`",
        ),
        is(&["--enable-infiniband"], "agent: the source `infiniband`"),
        is(&["--enable-lustre"], "agent: the source `lustre`"),
        is(&["--lustre-prefix"], "agent: `sources.lustre.prefix`"),
        is(&["--enable-perfhw"], "agent: the source `perf`"),
        is(&["--perfhw-list"], "agent: `sources.perf.events`"),
        is(&["--enable-jobproc"], "agent: the source `process`"),
        is(&["--enable-RAPL"], "agent: the source `rapl`"),
        is(&["--enable-temperature"], "agent: the source `thermal`"),
        nothing(&["--omnipath"], "the kernel states the network of each port"),
        is(&["--enable-ipmipower"], "agent: the source `ipmi`, or `exec` with another program"),
        is(&["--ipmipower-cmd"], "agent: `sources.exec.command`"),
        is(&["--enable-nvidia"], "agent: the source `nvidia`; its samples belong to GPUs"),
        nothing(&["-c", "--cgroup"], DEAD),
        nothing(&["-p", "--pid"], DEAD),
        nothing(&["-t", "--tid"], DEAD),
        is(&["--cpuset_rootpath"], JOB_ROOTS),
        is(&["--regex_job_id"], JOB_REGEX),
        URI,
        HWM,
        LINGER,
        nothing(&["LIB_RAPL_PATH"], "jobmeter reads these counters itself"),
        nothing(&["LIB_PERFHW_PATH"], "jobmeter reads these counters itself"),
    ],
};

const IGNORED: &str = "Colmet's Rust node ignores it; the agent reads what the node has";

/// The node of the branch colmet-rust.
pub(super) const BRANCH: Table = Table {
    program: "colmet-node-rust",
    rows: &[
        VERSION,
        is(&["-v"], "agent: `log.level`"),
        is(&["-s", "--sample-period"], "agent: `period`, and `period` of `perf`"),
        nothing(&["--enable-infiniband"], IGNORED),
        nothing(&["--enable-lustre"], IGNORED),
        nothing(&["--enable-perfhw"], "Colmet's Rust node ignores it: `perf` is always on there"),
        nothing(&["--enable-RAPL"], IGNORED),
        URI,
        HWM,
        LINGER,
        is(&["--cgroup-rootpath"], JOB_ROOTS),
        is(&["--regex-job-id"], JOB_REGEX),
    ],
};

/// colmet-rs.
pub(super) const RUST: Table = Table {
    program: "colmet-node of colmet-rs",
    rows: &[
        VERSION,
        is(
            &["-m", "--metrics"],
            "agent: names of events become `sources.perf.events`; the source `cgroup` has the values of cgroups without a list",
        ),
        is(&["-f", "--file_metrics"], "as `--metrics`"),
        is(&["-v"], "agent: `log.level`"),
        is(&["-s", "--sample-period"], "agent: `period`, and `period` of `perf`"),
        nothing(&["--enable-infiniband"], IGNORED),
        nothing(&["--enable-lustre"], IGNORED),
        is(&["--enable-perfhw"], "agent: the source `perf`"),
        nothing(&["--enable-RAPL"], IGNORED),
        URI,
        HWM,
        LINGER,
        is(&["--cgroup-root-path"], JOB_ROOTS),
        is(&["--cgroup-path-suffix"], JOB_ROOTS),
        nothing(&["--wait-cgroup-cpuset-path"], "the agent always waits for these directories"),
        is(&["--regex-job-id"], JOB_REGEX),
    ],
};

/// Options of the branch colmet-rust.
#[derive(Parser, Debug)]
#[command(version)]
pub(super) struct BranchOptions {
    #[arg(short, action = ArgAction::Count)]
    verbose: u8,
    #[arg(short, long = "sample-period", default_value = "5")]
    sample_period: String,
    #[arg(long)]
    enable_infiniband: Option<String>,
    #[arg(long)]
    enable_lustre: Option<String>,
    #[arg(long)]
    enable_perfhw: Option<String>,
    #[arg(long = "enable-RAPL")]
    enable_rapl: Option<String>,
    #[arg(long, default_value = "tcp://127.0.0.1:5556")]
    zeromq_uri: String,
    #[arg(long)]
    zeromq_hwm: Option<String>,
    #[arg(long, allow_hyphen_values = true)]
    zeromq_linger: Option<String>,
    #[arg(long)]
    cgroup_rootpath: Option<String>,
    #[arg(long)]
    regex_job_id: Option<String>,
}

/// Options of colmet-rs.
#[derive(Parser, Debug)]
#[command(version)]
pub(super) struct RustOptions {
    #[arg(short, long, default_value = "")]
    metrics: String,
    #[arg(short, long = "file_metrics")]
    file_metrics: Option<String>,
    #[arg(short, default_value_t = 0)]
    verbose: u8,
    #[arg(short, long = "sample-period", default_value = "5")]
    sample_period: String,
    #[arg(long)]
    enable_infiniband: Option<String>,
    #[arg(long)]
    enable_lustre: Option<String>,
    #[arg(long, action = ArgAction::Set, default_value_t = false)]
    enable_perfhw: bool,
    #[arg(long = "enable-RAPL")]
    enable_rapl: Option<String>,
    #[arg(long, default_value = "tcp://127.0.0.1:5556")]
    zeromq_uri: String,
    #[arg(long)]
    zeromq_hwm: Option<String>,
    #[arg(long, allow_hyphen_values = true)]
    zeromq_linger: Option<String>,
    #[arg(long, default_value = "/sys/fs/cgroup")]
    cgroup_root_path: String,
    #[arg(long, default_value = "/oar")]
    cgroup_path_suffix: String,
    #[arg(long)]
    wait_cgroup_cpuset_path: Option<String>,
    #[arg(long)]
    regex_job_id: Option<String>,
}

/// Reads the options of a node. Two programs have the name `colmet-node`: their options differ.
pub(super) fn import(program: &str, words: &[String], draft: &mut Draft) -> anyhow::Result<()> {
    if program == BRANCH.program {
        return branch(words, draft);
    }
    let mut errors = Vec::new();
    let python = parse::<Options>(program, words, &mut errors);
    let mut rust_errors = Vec::new();
    if !errors.is_empty() || python.is_err() {
        let rust = parse::<RustOptions>(program, words, &mut rust_errors);
        if let Ok((options, matches)) = rust
            && (rust_errors.len() < errors.len() || python.is_err())
        {
            draft.errors.append(&mut rust_errors);
            return rust_node(&options, &matches, draft);
        }
    }
    draft.errors.append(&mut errors);
    let (options, matches) = python?;
    comment_missing::<Options>(&PYTHON, &matches, &mut draft.agent);
    add(&options, Some(&matches), None, draft);
    Ok(())
}

fn branch(words: &[String], draft: &mut Draft) -> anyhow::Result<()> {
    let (options, matches) = parse::<BranchOptions>(BRANCH.program, words, &mut draft.errors)?;
    comment_missing::<BranchOptions>(&BRANCH, &matches, &mut draft.agent);
    let mut same = vec!["-s".to_owned(), options.sample_period, "--enable-perfhw".to_owned()];
    same.extend(["--zeromq-uri".to_owned(), options.zeromq_uri]);
    same.extend(
        options.cgroup_rootpath.into_iter().flat_map(|it| ["--cpuset_rootpath".into(), it]),
    );
    same.extend(options.regex_job_id.into_iter().flat_map(|it| ["--regex_job_id".into(), it]));
    let (same, _) = parse::<Options>(BRANCH.program, &same, &mut draft.errors)?;
    add(&same, None, Some(level(options.verbose)), draft);
    Ok(())
}

fn rust_node(options: &RustOptions, matches: &ArgMatches, draft: &mut Draft) -> anyhow::Result<()> {
    comment_missing::<RustOptions>(&RUST, matches, &mut draft.agent);
    let is_given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    let mut same = vec!["-s".to_owned(), options.sample_period.clone()];
    same.extend(["--zeromq-uri".to_owned(), options.zeromq_uri.clone()]);
    if is_given("cgroup_root_path") || is_given("cgroup_path_suffix") {
        let root = options.cgroup_root_path.trim_end_matches('/');
        let root = format!("{root}/cpuset{}", options.cgroup_path_suffix);
        same.extend(["--cpuset_rootpath".to_owned(), root]);
    }
    same.extend(options.regex_job_id.iter().flat_map(|it| ["--regex_job_id".into(), it.clone()]));
    if options.enable_perfhw {
        same.push("--enable-perfhw".to_owned());
        let events = events(options, draft);
        if !events.is_empty() {
            same.push("--perfhw-list".to_owned());
            same.extend(events);
        }
    }
    let (same, _) = parse::<Options>(PYTHON.program, &same, &mut draft.errors)?;
    add(&same, None, Some(level(options.verbose)), draft);
    Ok(())
}

/// The events of perfhw in a list `NAME[:PERIOD:JOB],…`.
fn events(options: &RustOptions, draft: &mut Draft) -> Vec<String> {
    let file = options.file_metrics.as_ref().map(|file| {
        let text = config::read_small(Path::new(file), FILE_BYTES_MAX).and_then(config::as_text);
        text.unwrap_or_else(|error| {
            draft.errors.push(format!("--file_metrics {file}: {error}"));
            String::new()
        })
    });
    let list = file.unwrap_or_else(|| options.metrics.clone()).replace(['\n', '\r'], "");
    let mut events = Vec::new();
    for entry in list.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let (name, period) = entry.split_once(':').unwrap_or((entry, ""));
        if !period.is_empty() {
            draft.agent.comment(format!(
                "{entry}: no counterpart: periods belong to sources, not to a metric or a job"
            ));
        }
        if EVENTS.position(name).is_some() {
            events.push(name.to_owned());
        }
    }
    events
}

/// The level of a log of a Rust node.
const fn level(verbose: u8) -> &'static str {
    match verbose {
        0 => "error",
        1 => "warn",
        2 => "info",
        3 => "debug",
        _ => "trace",
    }
}

/// Adds the settings of an agent. `level` is that of the log, if the options have another meaning of `-v`.
fn add(options: &Options, matches: Option<&ArgMatches>, level: Option<&str>, draft: &mut Draft) {
    if let Err(error) = options.events() {
        draft.errors.push(error.to_string());
    }
    let flags = settings::settings(options).unwrap_or_else(|error| {
        draft.errors.push(format!("{error:#}"));
        Vec::new()
    });
    let agent = &mut draft.agent;
    server(&options.zeromq_uri, agent);
    let has_directories = !options.cpuset_rootpath.is_empty() || !options.regex_job_id.is_empty();
    let wanted = settings::sources(options);
    // The agent reads these at each tick, without a setting.
    let is_default = |name: &str| name == "taskstats" || procstats_sources().contains(name);
    for (key, value) in flags {
        let source = key.strip_prefix("sources.").and_then(|key| key.split('.').next());
        let is_left_out = match source {
            Some(name) => !wanted.contains(name) || is_default(name),
            None => key.starts_with("jobs.") && !has_directories,
        };
        let is_bad_event = key == "sources.perf.events" && options.events().is_err();
        match (&*key, value) {
            _ if is_left_out || is_bad_event => {}
            (_, Raw::One(text)) if text.is_empty() && key != "jobs.schedulers" => {}
            ("log.level", Raw::One(own)) => agent.set("log.level", level.unwrap_or(&own)),
            ("jobs.schedulers", value) => {
                let mut all = match value {
                    Raw::Many(all) => all,
                    Raw::One(_) => Vec::new(),
                };
                // Jobs of `jobmeter run`.
                all.push("local".to_owned());
                agent.set_list(&key, all);
            }
            (_, value) => agent.set_raw(&key, value),
        }
    }
    if wanted.contains("exec") {
        agent.set_list("sources.exec.command", options.ipmipower_cmd.clone());
        for (name, value) in settings::POWER_OPTIONS {
            agent.set(&format!("sources.exec.{name}"), value);
        }
    } else if options.ipmipower_cmd != IPMIPOWER_COMMAND {
        agent.comment(
            "--ipmipower-cmd: no counterpart: it has no effect without --enable-ipmipower",
        );
    }
    if options.disable_procstats {
        for name in procstats_sources() {
            agent.set(&format!("sources.{name}.enabled"), "false");
        }
    }
    if options.enable_nvidia && matches.is_some() {
        agent.set("sources.nvidia.enabled", "true");
    }
}

/// The URL of the server: on the machine of Colmet's collector.
pub(super) fn server(address: &str, agent: &mut Part) {
    let host = address.strip_prefix("tcp://").unwrap_or(address);
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    let is_here = host == "localhost" || host == "[::1]" || host.starts_with("127.");
    if is_here {
        agent.set("server", "http://127.0.0.1:8790");
    } else {
        agent.comment(format!("The server is assumed on {host}. It needs a token of the server:"));
        agent.comment("token_file = \"/etc/jobmeter/token\"");
        agent.set("server", &format!("https://{host}:8790"));
    }
}
