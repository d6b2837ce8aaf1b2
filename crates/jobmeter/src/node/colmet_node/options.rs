//! The options of Colmet's `colmet-node` 0.6.10.

use super::verbosity::Verbosity;
use anyhow::bail;
use clap::ArgAction;
use colmet::backends::{
    Backend, Column, EVENTS, INFINIBAND, IPMIPOWER, JOBPROC, LUSTRE, PERFHW, PROCSTATS, RAPL,
    TASKSTATS, TEMPERATURE,
};
use std::time::Duration;

/// The default of `--ipmipower-cmd`: the source `ipmi` reads the same value from the BMC.
pub(crate) const IPMIPOWER_COMMAND: [&str; 5] =
    ["/usr/sbin/ipmi-oem", "dell", "power-monitoring-over-interval", "5", "systempower"];

/// Sends this node's measurements to a collector of Colmet, with the options of its colmet-node
#[derive(clap::Parser, Debug)]
#[command(
    version,
    after_help = "The statistics of tasks (taskstats) are always sent. The cluster of the jobs is `oar`."
)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) verbosity: Verbosity,
    /// Period of measuring in seconds
    #[arg(short, long = "sample-period", value_name = "SECONDS", default_value_t = 5.0)]
    pub(crate) sample_period: f64,
    /// Omit the values of the node from /proc
    #[arg(long)]
    pub(crate) disable_procstats: bool,
    /// Add the traffic of InfiniBand or Omni-Path
    #[arg(long, num_args = 0..=1, value_name = "BOOL", default_value = "false", default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) enable_infiniband: bool,
    /// Add reads and writes of Lustre
    #[arg(long, num_args = 0..=1, value_name = "BOOL", default_value = "false", default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) enable_lustre: bool,
    /// Name of the Lustre file system
    #[arg(long, value_name = "NAME", default_value = "lustre")]
    pub(crate) lustre_prefix: String,
    /// Add hardware counters of jobs
    #[arg(long, num_args = 0..=1, value_name = "BOOL", default_value = "false", default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) enable_perfhw: bool,
    /// Add input, output and memory of jobs' processes
    #[arg(long)]
    pub(crate) enable_jobproc: bool,
    /// Hardware counters, at most five
    #[arg(long, num_args = 1.., value_name = "COUNTER", default_values = ["instructions", "cache_misses", "page_faults"])]
    perfhw_list: Vec<String>,
    /// Add the energy of processors and memory
    #[arg(long = "enable-RAPL", num_args = 0..=1, value_name = "BOOL", default_value = "false", default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) enable_rapl: bool,
    /// Add temperatures of the thermal zones
    #[arg(long)]
    pub(crate) enable_temperature: bool,
    /// Not needed: the driver states which network it is
    #[arg(long)]
    omnipath: bool,
    /// Add the power of the node
    #[arg(long)]
    pub(crate) enable_ipmipower: bool,
    /// Program that prints the power after a colon; it runs as the user `nobody`. Without it, the BMC's value is read
    #[arg(long, num_args = 1.., value_name = "WORD", default_values = IPMIPOWER_COMMAND)]
    pub(crate) ipmipower_cmd: Vec<String>,
    /// Accepted, without records: jobmeter's samples of GPUs belong to no job
    #[arg(long)]
    pub(crate) enable_nvidia: bool,
    #[arg(short, long, hide = true)]
    cgroup: Vec<String>,
    #[arg(short, long, hide = true)]
    pid: Vec<String>,
    #[arg(short, long, hide = true)]
    tid: Vec<String>,
    /// Directory of the jobs' cgroups [default: OAR's default places]
    #[arg(long = "cpuset_rootpath", alias = "cgroup-rootpath", value_name = "DIR")]
    pub(crate) cpuset_rootpath: Vec<String>,
    /// Finds the job's number in the name of a job's directory [default: `_(\d+)$`]
    #[arg(long = "regex_job_id", alias = "regex-job-id", value_name = "REGEX")]
    pub(crate) regex_job_id: Vec<String>,
    /// Address of the collector
    #[arg(long, value_name = "URI", default_value = "tcp://127.0.0.1:5556")]
    pub(crate) zeromq_uri: String,
    /// Most messages that wait for the collector; then the oldest are dropped. 0: at most 256 MiB
    #[arg(long, value_name = "MESSAGES", default_value_t = 1000)]
    pub(crate) zeromq_hwm: usize,
    /// Longest wait for the collector at the end, in milliseconds; -1: no limit
    #[arg(long, value_name = "MS", default_value_t = 0, allow_hyphen_values = true)]
    zeromq_linger: i64,
}

impl Options {
    /// Whether an option is given that has no effect in Colmet.
    pub(crate) fn has_dead_option(&self) -> bool {
        [&self.cgroup, &self.pid, &self.tid].into_iter().any(|values| !values.is_empty())
    }

    /// The enabled backends.
    pub(crate) fn backends(&self) -> Vec<&'static Backend> {
        let all: [(bool, &'static Backend); 9] = [
            (true, &TASKSTATS),
            (!self.disable_procstats, &PROCSTATS),
            (self.enable_infiniband, &INFINIBAND),
            (self.enable_lustre, &LUSTRE),
            (self.enable_perfhw, &PERFHW),
            (self.enable_rapl, &RAPL),
            (self.enable_temperature, &TEMPERATURE),
            (self.enable_jobproc, &JOBPROC),
            (self.enable_ipmipower, &IPMIPOWER),
        ];
        all.into_iter().filter(|(is_enabled, _)| *is_enabled).map(|(_, backend)| backend).collect()
    }

    /// The columns of the events of perfhw.
    pub(crate) fn events(&self) -> anyhow::Result<Vec<&'static Column>> {
        let mut events = Vec::new();
        for name in &self.perfhw_list {
            let place = EVENTS.position(name);
            let Some(event) = place.and_then(|place| EVENTS.columns.get(place)) else {
                let known: Vec<_> = EVENTS.columns.iter().map(|event| event.row.theirs).collect();
                bail!("--perfhw-list: `{name}` is none of {}", known.join(", "));
            };
            events.push(event);
        }
        let counters = PERFHW.columns.len();
        if events.len() > counters {
            log::warn!("--perfhw-list: only the first {counters} counters are used");
            events.truncate(counters);
        }
        Ok(events)
    }

    /// The names of the events of perfhw.
    pub(crate) fn event_names(&self) -> impl Iterator<Item = &str> {
        self.perfhw_list.iter().map(String::as_str).take(PERFHW.columns.len())
    }

    pub(crate) fn linger(&self) -> Duration {
        /// Stands for no limit.
        const LONG: Duration = Duration::from_hours(24 * 365);
        u64::try_from(self.zeromq_linger).map_or(LONG, Duration::from_millis).min(LONG)
    }
}
