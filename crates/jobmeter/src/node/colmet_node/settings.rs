//! The settings of an agent that measures what the options of `colmet-node` list.

use super::options::{IPMIPOWER_COMMAND, Options};
use crate::node::agent_file;
use anyhow::{Context, bail};
use colmet::backends::{Backend, IPMIPOWER, PERFHW, PROCSTATS};
use config::{AgentConfig, Raw};
use std::collections::BTreeSet;

/// The cluster of the jobs.
pub(crate) const CLUSTER: &str = "oar";
/// Where Colmet looks for jobs.
const ROOT: &str = "/dev/oar_cgroups_links/cpuset/oar";
/// Controllers of version 1 below `/sys/fs/cgroup`, and the mount of version 2 beside them.
const HIERARCHIES: [&str; 14] = [
    "blkio",
    "cpu",
    "cpu,cpuacct",
    "cpuacct",
    "cpuset",
    "devices",
    "freezer",
    "hugetlb",
    "memory",
    "net_cls",
    "net_cls,net_prio",
    "perf_event",
    "pids",
    "unified",
];

/// What the program of `--ipmipower-cmd` prints, and the metric of that number: options of the source `exec`.
pub(crate) const POWER_OPTIONS: [(&str, &str); 2] =
    [("pattern", r".*: (\d+) .*"), ("metric", "exec_value_watts")];

pub(super) fn agent_config(options: &Options) -> anyhow::Result<AgentConfig> {
    let mut flags = settings(options)?;
    flags.extend([one("spool", "none"), one("jobs.units", "false")]);
    let wanted = sources(options);
    let others = agent::sources().map(|spec| spec.name).filter(|name| !wanted.contains(name));
    flags.extend(others.map(|name| one(&format!("sources.{name}.enabled"), "false")));
    let mut config = agent_file::defaults(flags)?;
    // No flag names a program: here the caller's own command line does.
    if let Some(exec) = config.sources.get_mut("exec").filter(|exec| exec.enabled) {
        let command: String = options.ipmipower_cmd.iter().flat_map(|word| [word, "\0"]).collect();
        for (name, value) in [("command", &*command)].into_iter().chain(POWER_OPTIONS) {
            exec.options.insert(name.to_owned(), value.to_owned());
        }
    }
    Ok(config)
}

/// The agent's settings that these options mean, without the program of `--ipmipower-cmd`.
///
/// # Errors
/// A value has no counterpart.
pub(crate) fn settings(options: &Options) -> anyhow::Result<Vec<(String, Raw)>> {
    let seconds = options.sample_period;
    if !(0.001..=86_400.0).contains(&seconds) {
        bail!("--sample-period {seconds}: it is from 0.001 to 86400 seconds");
    }
    let period = format!("{}ms", (seconds * 1000.0).round());
    let many = |key: &str, values: Vec<String>| match values.is_empty() {
        true => one(key, ""),
        false => (key.to_owned(), Raw::Many(values)),
    };
    let mut flags = vec![one("period", &period), one("log.level", options.verbosity.level())];
    for name in sources(options) {
        flags.push(one(&format!("sources.{name}.enabled"), "true"));
        flags.push(one(&format!("sources.{name}.period"), &period));
    }
    // Living tasks are read as often as Colmet reads them.
    flags.push(one("sources.taskstats.poll_s", "0"));
    let events = options.event_names().map(str::to_owned).collect();
    flags.extend([
        many("sources.perf.events", events),
        one("sources.perf.node", "false"),
        many("sources.lustre.prefix", vec![options.lustre_prefix.clone()]),
        one("sources.lustre.targets", "false"),
    ]);
    if options.regex_job_id.is_empty() {
        flags.push(many("jobs.schedulers", vec![CLUSTER.to_owned()]));
        flags.push(many("jobs.oar_roots", options.cpuset_rootpath.clone()));
    } else {
        flags.push(many("jobs.schedulers", Vec::new()));
        flags.push(many("jobs.patterns", patterns(options)?));
    }
    Ok(flags)
}

/// The sources of the enabled backends.
pub(crate) fn sources(options: &Options) -> BTreeSet<&'static str> {
    let is_own_program = options.ipmipower_cmd != IPMIPOWER_COMMAND;
    let of = |backend| sources_of(backend, is_own_program);
    options.backends().into_iter().flat_map(of).collect()
}

/// The sources of the backend `procstats`.
pub(crate) fn procstats_sources() -> BTreeSet<&'static str> {
    sources_of(&PROCSTATS, false).into_iter().collect()
}

fn one(key: &str, value: &str) -> (String, Raw) {
    (key.to_owned(), Raw::One(value.to_owned()))
}

/// The sources of a backend's columns.
fn sources_of(backend: &Backend, is_own_program: bool) -> Vec<&'static str> {
    if *backend == IPMIPOWER {
        return vec![if is_own_program { "exec" } else { "ipmi" }];
    }
    if *backend == PERFHW {
        return vec!["perf"];
    }
    let formulas = backend.columns.iter().flat_map(|column| column.row.ours.formulas());
    let metrics = formulas.flat_map(colmet::formula::Formula::metrics);
    metrics.filter_map(|metric| metric.split('_').next()).collect()
}

/// A pattern of the agent for each directory and each expression.
fn patterns(options: &Options) -> anyhow::Result<Vec<String>> {
    let default = [ROOT.to_owned()];
    let roots = match &*options.cpuset_rootpath {
        [] => &default[..],
        roots => roots,
    };
    let mut patterns = Vec::new();
    for root in roots {
        let path = in_hierarchy(root)
            .with_context(|| format!("--cpuset_rootpath {root}: no directory of cgroups"))?;
        for regex in &options.regex_job_id {
            let job = with_job_group(regex)
                .with_context(|| format!("--regex_job_id: `{regex}` has more than one group"))?;
            patterns.push(format!("{CLUSTER}:{}/.*?(?:{job}).*", escaped(path)));
        }
    }
    Ok(patterns)
}

/// The path from the root of the hierarchy.
fn in_hierarchy(root: &str) -> Option<&str> {
    let root = root.trim_end_matches('/');
    let below = |prefix: &str| root.strip_prefix(prefix);
    let path = if let Some(path) = below("/sys/fs/cgroup/") {
        match path.split_once('/') {
            Some((first, rest)) if HIERARCHIES.contains(&first) => rest,
            _ => path,
        }
    } else if let Some(path) = below("/dev/oar_cgroups_links/") {
        path.split_once('/')?.1
    } else {
        below("/dev/cpuset/")?
    };
    Some(path).filter(|path| !path.is_empty())
}

/// The expression with its group, or else all of it, as the group `job`. `None`: it has several groups.
fn with_job_group(regex: &str) -> Option<String> {
    let (mut out, mut groups, mut is_class, mut rest) = (String::new(), 0, false, regex.chars());
    while let Some(c) = rest.next() {
        out.push(c);
        match c {
            '\\' => out.extend(rest.next()),
            '[' => is_class = true,
            ']' => is_class = false,
            '(' if !is_class => {
                let inner = rest.as_str();
                let name = |begin: &&str| inner.strip_prefix(begin)?.split_once('>');
                match ["?P<", "?<"].iter().find_map(name) {
                    Some((_, behind)) => rest = behind.chars(),
                    None if inner.starts_with('?') => continue,
                    None => {}
                }
                groups += 1;
                out.push_str("?<job>");
            }
            _ => {}
        }
    }
    match groups {
        0 => Some(format!("(?<job>{regex})")),
        1 => Some(out),
        _ => None,
    }
}

fn escaped(path: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_/-".contains(c);
    path.chars().flat_map(|c| [(!is_plain(c)).then_some('\\'), Some(c)]).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    fn config(words: &[&str]) -> AgentConfig {
        let options = Options::try_parse_from(["colmet-node"].iter().chain(words)).unwrap();
        agent_config(&options).unwrap()
    }

    fn enabled(words: &[&str]) -> Vec<String> {
        let sources = config(words).sources;
        let enabled = sources.into_iter().filter(|(_, source)| source.enabled);
        enabled.map(|(name, _)| name.to_string()).collect()
    }

    /// Every option of colmet-node 0.6.10, and what it changes.
    #[test]
    fn every_option_has_its_meaning() {
        use std::time::Duration;
        let procstats = ["cpu", "load", "memory", "taskstats", "uptime", "vmstat"];
        assert_eq!(enabled(&[]), procstats);
        let off = "--disable-procstats";
        assert_eq!(enabled(&[off]), ["taskstats"]);
        for (words, source) in [
            (&["--enable-infiniband"][..], "infiniband"),
            (&["--enable-infiniband", "true"], "infiniband"),
            (&["--enable-infiniband", "--omnipath"], "infiniband"),
            (&["--enable-lustre"], "lustre"),
            (&["--enable-perfhw"], "perf"),
            (&["--enable-jobproc"], "process"),
            (&["--enable-RAPL"], "rapl"),
            (&["--enable-temperature"], "thermal"),
            (&["--enable-ipmipower"], "ipmi"),
            (&["--enable-ipmipower", "--ipmipower-cmd", "/bin/power", "5"], "exec"),
        ] {
            let words = [&[off], words].concat();
            let mut sources = enabled(&words);
            sources.retain(|name| name != "taskstats");
            assert_eq!(sources, [source], "{words:?}");
        }
        assert_eq!(
            enabled(&[off, "--enable-infiniband", "false", "--enable-nvidia"]),
            ["taskstats"]
        );
        let fast = config(&["-s", "0.5", "--enable-ipmipower"]);
        let half = Duration::from_millis(500);
        assert_eq!((fast.sampling.period, fast.sources["ipmi"].period), (half, Some(half)));
        assert_eq!(config(&["--sample-period", "2"]).sampling.period, Duration::from_secs(2));
        for (words, level) in [
            (&[][..], "warn"),
            (&["-v"], "info"),
            (&["-vv"], "debug"),
            (&["--verbose"; 3], "debug"),
        ] {
            assert_eq!(config(words).log.level, level);
        }
        let option = |words: &[&str], source: &str, name: &str| {
            config(words).sources[source].options[name].clone()
        };
        assert_eq!(option(&["--lustre-prefix", "home"], "lustre", "prefix"), "home");
        assert_eq!(option(&[], "perf", "events"), "instructions,cache_misses,page_faults");
        let list = [
            "--perfhw-list",
            "cpu_cycles",
            "cache_l1d",
            "cpu_clock",
            "dummy",
            "task_clock",
            "page_faults",
        ];
        assert_eq!(
            option(&list, "perf", "events"),
            "cpu_cycles,cache_l1d,cpu_clock,dummy,task_clock"
        );
        let power = ["--enable-ipmipower", "--ipmipower-cmd", "/bin/power", "5"];
        assert_eq!(option(&power, "exec", "command"), "/bin/power\x005\0");
        assert_eq!(option(&power, "exec", "metric"), "exec_value_watts");
        assert_eq!(option(&["-s", "0.5"], "taskstats", "poll_s"), "0");
    }

    #[test]
    fn jobs_are_found_in_every_directory_with_every_expression() {
        let jobs =
            config(&["--cpuset_rootpath", "/dev/cpuset/a", "--cpuset_rootpath", "/dev/cpuset/b"])
                .jobs;
        assert_eq!(
            (jobs.schedulers, jobs.oar_roots),
            (vec!["oar".to_owned()], vec!["/dev/cpuset/a".to_owned(), "/dev/cpuset/b".to_owned()])
        );
        let roots = [
            "--cpuset_rootpath",
            "/sys/fs/cgroup/cpuset/oar.x/",
            "--cpuset_rootpath",
            "/sys/fs/cgroup/oar.slice",
        ];
        let regexes = ["--regex_job_id", r"job-(\d+)$", "--regex_job_id", r"\d[(]+(?:x)(?P<id>1)"];
        let jobs = config(&[&roots[..], &regexes].concat()).jobs;
        assert_eq!(jobs.schedulers, [""; 0]);
        assert_eq!(
            jobs.patterns,
            [
                r"oar:oar\.x/.*?(?:job-(?<job>\d+)$).*",
                r"oar:oar\.x/.*?(?:\d[(]+(?:x)(?<job>1)).*",
                r"oar:oar\.slice/.*?(?:job-(?<job>\d+)$).*",
                r"oar:oar\.slice/.*?(?:\d[(]+(?:x)(?<job>1)).*",
            ]
        );
        assert_eq!(config(&["--regex_job_id", "x"]).jobs.patterns, ["oar:oar/.*?(?:(?<job>x)).*"]);
        // The names of the node in Rust.
        let jobs = config(&["--cgroup-rootpath", "/dev/cpuset/a", "--regex-job-id", "x"]).jobs;
        assert_eq!(jobs.patterns, ["oar:a/.*?(?:(?<job>x)).*"]);
        for words in [["--regex_job_id", "(a)(b)"], ["--regex_job_id", "a/b"], ["-s", "0"]] {
            let options = Options::try_parse_from(["colmet-node"].iter().chain(&words)).unwrap();
            assert!(agent_config(&options).is_err(), "{words:?}");
        }
    }

    #[test]
    fn other_options_are_read_and_dead_ones_are_found() {
        use std::time::Duration;
        let options =
            |words: &[&str]| Options::try_parse_from(["colmet-node"].iter().chain(words)).unwrap();
        let given =
            options(&["--zeromq-uri", "tcp://a:1", "--zeromq-hwm", "0", "--zeromq-linger", "250"]);
        assert_eq!((&*given.zeromq_uri, given.zeromq_hwm), ("tcp://a:1", 0));
        assert_eq!(given.linger(), Duration::from_millis(250));
        assert!(options(&["--zeromq-linger", "-1"]).linger() > Duration::from_hours(24));
        assert_eq!((options(&[]).zeromq_hwm, options(&[]).linger()), (1000, Duration::ZERO));
        assert!(!options(&[]).has_dead_option());
        for words in [
            ["-c", "a"],
            ["--cgroup", "a"],
            ["-p", "1"],
            ["--pid", "1"],
            ["-t", "1"],
            ["--tid", "1"],
        ] {
            assert!(options(&words).has_dead_option(), "{words:?}");
        }
        assert!(options(&["--perfhw-list", "nonsense"]).events().is_err());
    }
}
