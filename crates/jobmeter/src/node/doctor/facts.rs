//! Facts about the machine and its agent that limit what can be measured, in addition to the sources.

use crate::client::http_client::reason;
use crate::node::probe::State;
use crate::output::show::bytes;
use cgroups::{Hierarchies, Hierarchy};
use config::{AgentConfig, SpoolSettings};
use delivery::Failure;
use kernel::{Root, clock};
use rustix::fs::{Access, AtFlags, CWD, accessat, statvfs};
use serde::Serialize;
use std::path::Path;

/// A fact in the report.
#[derive(Serialize)]
pub(super) struct Fact {
    pub(super) name: &'static str,
    pub(super) state: State,
    /// The current state.
    pub(super) what: String,
    /// How to improve it, if possible.
    pub(super) grant: String,
}

impl Fact {
    pub(super) const fn ok(name: &'static str, what: String) -> Self {
        Self { name, state: State::Ok, what, grant: String::new() }
    }

    pub(super) fn not(name: &'static str, state: State, what: String, grant: &str) -> Self {
        Self { name, state, what, grant: grant.to_owned() }
    }
}

/// Capabilities that sources may need, by number (include/uapi/linux/capability.h).
const CAPABILITIES: [(u32, &str); 9] = [
    (1, "CAP_DAC_OVERRIDE"),
    (2, "CAP_DAC_READ_SEARCH"),
    (12, "CAP_NET_ADMIN"),
    (17, "CAP_SYS_RAWIO"),
    (19, "CAP_SYS_PTRACE"),
    (21, "CAP_SYS_ADMIN"),
    (34, "CAP_SYSLOG"),
    (38, "CAP_PERFMON"),
    (39, "CAP_BPF"),
];

/// Facts of a machine, live or recorded.
pub(super) fn of_machine(root: &Root) -> Vec<Fact> {
    vec![kernel_version(root), cgroups_mounted(root), delays(root), stalls(root), perf(root)]
}

/// Facts about this process, and about the agent on a live machine. `reads`: whether the agent reads requests in
/// job environments.
pub(super) fn of_agent(root: &Root, config: &AgentConfig, reads: bool) -> Vec<Fact> {
    let (may, clock) = (capabilities(root), clock_held());
    let (runs, spool) = (agent_runs(root), spool(&config.spool));
    vec![may, environments(root, reads), clock, runs, server(config), spool]
}

fn kernel_version(root: &Root) -> Fact {
    match root.read_text("proc/sys/kernel/osrelease") {
        Ok(release) => Fact::ok("kernel", format!("Linux {release}")),
        Err(error) => {
            let grant = "mount /proc, or give a --root with it";
            Fact::not("kernel", State::Absent, error.to_string(), grant)
        }
    }
}

fn cgroups_mounted(root: &Root) -> Fact {
    let mounts = Hierarchies::read(root);
    let mounts = mounts.as_ref().map(Hierarchies::mounts).unwrap_or_default();
    if mounts.is_empty() {
        let what = "no cgroups are mounted: jobs are not found".to_owned();
        return Fact::not("cgroups", State::Absent, what, "mount -t cgroup2 none /sys/fs/cgroup");
    }
    let mut first: Vec<&str> = Vec::new();
    let mut second = None;
    for mount in mounts {
        match &mount.hierarchies[..] {
            [Hierarchy::Unified] => second = Some(&mount.path),
            several => first.extend(several.iter().map(|one| word(*one))),
        }
    }
    let mut checked = Vec::new();
    if let Some(path) = second {
        let file = format!("{path}/cgroup.controllers");
        let list = root.read_text(&file).ok().filter(|list| !list.is_empty());
        let list = list.unwrap_or_else(|| "none".to_owned());
        checked.push(format!("version 2 at /{path}, controllers: {list}"));
    }
    if !first.is_empty() {
        first.sort_unstable();
        checked.push(format!("version 1: {}", first.join(" ")));
    }
    Fact::ok("cgroups", checked.join("; "))
}

const fn word(hierarchy: Hierarchy) -> &'static str {
    match hierarchy {
        Hierarchy::Unified => "unified",
        Hierarchy::Cpu => "cpu",
        Hierarchy::Cpuacct => "cpuacct",
        Hierarchy::Cpuset => "cpuset",
        Hierarchy::Memory => "memory",
        Hierarchy::Blkio => "blkio",
        Hierarchy::Pids => "pids",
        Hierarchy::Freezer => "freezer",
        Hierarchy::Devices => "devices",
        Hierarchy::PerfEvent => "perf_event",
        Hierarchy::Named => "systemd",
    }
}

fn delays(root: &Root) -> Fact {
    let name = "task delays";
    match root.read_text("proc/sys/kernel/task_delayacct").as_deref() {
        Ok("0") => {
            let what = "not counted: the time that tasks wait for disks and memory is \
                        unknown"
                .to_owned();
            Fact::not(
                name,
                State::Absent,
                what,
                "sysctl kernel.task_delayacct=1, or boot with delayacct",
            )
        }
        Ok(_) => Fact::ok(name, "counted".to_owned()),
        Err(error) if error.is_absent() => {
            let what = "not counted by this kernel".to_owned();
            Fact::not(name, State::Absent, what, "Linux 5.14 with CONFIG_TASK_DELAY_ACCT")
        }
        Err(error) => Fact::not(name, State::Denied, error.to_string(), "root"),
    }
}

fn stalls(root: &Root) -> Fact {
    let name = "psi";
    if root.stat("proc/pressure/cpu").is_ok() {
        return Fact::ok(name, "pressure stalls are counted".to_owned());
    }
    let words = root.read_text("proc/cmdline").unwrap_or_default();
    let word = words.split_whitespace().rfind(|word| word.starts_with("psi="));
    let what = match word {
        Some(word) => format!("/proc/pressure does not exist; booted with {word}"),
        None => "/proc/pressure does not exist".to_owned(),
    };
    let grant = "Linux 4.20 with CONFIG_PSI, booted with psi=1";
    Fact::not(name, State::Absent, what, grant)
}

/// Levels from Documentation/admin-guide/sysctl/kernel.rst, perf_event_paranoid; Debian adds level 3.
fn perf(root: &Root) -> Fact {
    let name = "perf_event_paranoid";
    let level = root.read_text("proc/sys/kernel/perf_event_paranoid");
    let level = level.ok().and_then(|text| text.parse::<i32>().ok());
    let closed = match level {
        None => {
            let what = "the kernel has no performance events".to_owned();
            return Fact::not(name, State::Absent, what, "Linux with CONFIG_PERF_EVENTS");
        }
        Some(..=0) => "every user may count events of the whole machine and of jobs",
        Some(1) => "counting events of the whole machine and of jobs needs CAP_PERFMON",
        Some(2) => {
            "counting events of the whole machine, of jobs and of the kernel needs \
                    CAP_PERFMON"
        }
        Some(3..) => "counting events needs CAP_PERFMON",
    };
    Fact::ok(name, format!("level {}: {closed}", level.unwrap_or_default()))
}

/// The effective capabilities, in hexadecimal in `/proc/PID/status`.
fn effective(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// The effective capabilities among those that sources may need.
fn listed(effective: u64) -> String {
    let has = |number: u32| effective >> number & 1 == 1;
    let (there, missing): (Vec<_>, Vec<_>) =
        CAPABILITIES.iter().partition(|(number, _)| has(*number));
    let words =
        |list: Vec<&(u32, &str)>| list.iter().map(|(_, word)| *word).collect::<Vec<_>>().join(" ");
    match (there.is_empty(), missing.is_empty()) {
        (_, true) => "all that sources may need".to_owned(),
        (true, _) => "none".to_owned(),
        _ => format!("{}; not {}", words(there), words(missing)),
    }
}

fn capabilities(root: &Root) -> Fact {
    let uid = rustix::process::geteuid();
    let status = root.read_text("proc/self/status").unwrap_or_default();
    let list = effective(&status).map_or_else(|| "unknown".to_owned(), listed);
    let name = "capabilities";
    Fact::ok(name, format!("of this process (user {}): {list}", uid.as_raw()))
}

/// Whether request environment variables of jobs are readable. Other users' environments need two capabilities:
/// the file is its owner's, and process memory needs permission to trace (fs/proc/base.c).
fn environments(root: &Root, reads: bool) -> Fact {
    let name = "environments";
    if !reads {
        let what = "not read: `remote.allow` of the node permits no promotions".to_owned();
        let grant =
            "`promotions` in `remote.allow` of the agent's settings, if jobs may request metrics";
        return Fact::not(name, State::Absent, what, grant);
    }
    let status = root.read_text("proc/self/status").unwrap_or_default();
    let has = |number: u32| effective(&status).is_some_and(|may| may >> number & 1 == 1);
    if has(19) && (has(1) || has(2)) {
        return Fact::ok(name, "the agent reads requests of jobs in JOBMETER_MONITOR".to_owned());
    }
    let what = "not readable for other users' processes: jobs can request metrics only through \
                their scheduler";
    let grant = "CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH, or root";
    Fact::not(name, State::Denied, what.to_owned(), grant)
}

fn clock_held() -> Fact {
    let name = "clock";
    match clock::discipline() {
        Some(held) if held.synchronised => {
            let error = held.error_max_us as f64 / 1e3;
            Fact::ok(name, format!("synchronised, {error:.1} ms off at most"))
        }
        Some(_) => {
            let what = "not synchronised: times of different nodes do not match".to_owned();
            Fact::not(
                name,
                State::Absent,
                what,
                "run chrony, systemd-timesyncd or another client of NTP",
            )
        }
        None => {
            let what = "the kernel does not report whether it is synchronised".to_owned();
            let grant = "run `timedatectl` or `chronyc tracking`";
            Fact::not(name, State::Absent, what, grant)
        }
    }
}

fn agent_runs(root: &Root) -> Fact {
    let mut found = Vec::new();
    let listed_all = root.list("proc", |entry| {
        if entry.name.bytes().all(|b| b.is_ascii_digit()) {
            found.push(entry.name.to_owned());
        }
    });
    let is_agent = |pid: &String| {
        root.read_text(&format!("proc/{pid}/comm")).is_ok_and(|comm| comm == agent::PROGRAM)
    };
    found.retain(is_agent);
    let words = found.iter().map(|pid| {
        let status = root.read_text(&format!("proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        let user = line.and_then(|line| line.split_whitespace().nth(1)).unwrap_or("?");
        let may = effective(&status).map_or_else(|| "unknown".to_owned(), listed);
        format!("process {pid} of user {user}, capabilities: {may}")
    });
    let words: Vec<String> = words.collect();
    match (listed_all, words.is_empty()) {
        (Err(error), _) => Fact::not("agent", State::Denied, error.to_string(), "root"),
        (_, true) => {
            let what = "none is running here, or none visible to this user".to_owned();
            Fact::not("agent", State::Absent, what, "start jobmeter-agent")
        }
        _ => Fact::ok("agent", words.join("; ")),
    }
}

fn server(config: &AgentConfig) -> Fact {
    let name = "server";
    let Some(url) = delivery::requested_server(&config.server) else {
        let what = "not set, and no server is running here".to_owned();
        return Fact::not(name, State::Absent, what, "set `server` in the agent's settings");
    };
    let shown = url.as_str();
    match delivery::knock(&url, &config.server) {
        Ok(()) => Fact::ok(name, format!("{shown} accepts batches from this node")),
        Err(failure @ Failure::Later { status: status @ (401 | 403), .. }) => {
            let what = format!("{shown} {}", reason(&failure));
            Fact::not(
                name,
                State::Denied,
                what,
                rejected(status, config.server.token_file.is_some()),
            )
        }
        Err(failure) => {
            // A record left by a killed server is not an error of the node.
            if let Some(record) = delivery::stale_record(&config.server) {
                let what = format!(
                    "not set; {} records {shown}, which is no longer running",
                    record.display()
                );
                let grant = "start a server here, or set `server` in the agent's settings";
                return Fact::not(name, State::Absent, what, grant);
            }
            let what = format!("{shown}: {}", reason(&failure));
            let grant = "start it, or set another `server` in the agent's settings";
            Fact::not(name, State::Broken, what, grant)
        }
    }
}

/// Advice for an agent that a server rejects.
const fn rejected(status: u16, has_token: bool) -> &'static str {
    match (status, has_token) {
        (401, false) => {
            "the agent is not authenticated: set `token_file`, or `cert` and `key`, in the agent's \
             settings; `jobmeter token create --scope agent:NODE` on the server creates a token"
        }
        (401, true) => {
            "the token is unknown, expired or revoked: check it with `jobmeter token list` on the \
             server, or create another one for `token_file` with `jobmeter token create --scope \
             agent:NODE`"
        }
        (_, false) => {
            "the server accepts no batches of agents from this user: run the agent as root or as \
             the server's user, or set `token_file` to a token of scope `agent`"
        }
        (_, true) => {
            "the token does not permit sending batches: it needs the scope `agent`, or \
             `agent:NODE` with this node's name; `jobmeter token list` on the server shows its scope"
        }
    }
}

fn spool(settings: &SpoolSettings) -> Fact {
    let name = "spool";
    let Some(dir) = delivery::spool_dir(settings) else {
        let what = "none: samples are lost while the server is unavailable".to_owned();
        return Fact::not(name, State::Absent, what, "set `spool` in the agent's settings");
    };
    let shown = dir.display();
    // The agent creates the spool with all parent folders: the nearest existing folder counts.
    let mut there = &*dir;
    while !there.try_exists().unwrap_or(false) {
        let Some(above) = there.parent().filter(|above| *above != Path::new("")) else { break };
        there = above;
    }
    let made = if there == &*dir { "" } else { "does not exist yet; " };
    if let Err(errno) = accessat(CWD, there, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS) {
        let what = format!("{shown}: {made}{} cannot be written: {errno}", there.display());
        let grant = "make the agent's user the owner of the folder, or set another `spool` in the \
                     agent's settings";
        return Fact::not(name, State::Denied, what, grant);
    }
    let most = settings.spool_bytes_max.0;
    match statvfs(there) {
        Ok(checked) => {
            let free_space = checked.f_bavail.saturating_mul(checked.f_frsize);
            let (space_shown, most_shown) = (bytes(free_space as f64), bytes(most as f64));
            let what = format!("{shown}: {made}{space_shown} free, {most_shown} needed at most");
            let used = if there == &*dir { used(there) } else { 0 };
            if free_space.saturating_add(used) < most {
                let grant = "free space, or set a smaller `spool_bytes_max`";
                return Fact::not(
                    name,
                    State::Broken,
                    format!("{what}; this is too little"),
                    grant,
                );
            }
            Fact::ok(name, what)
        }
        Err(errno) => {
            let grant = "check the file system, or set another `spool` in the agent's settings";
            Fact::not(name, State::Broken, format!("{shown}: {errno}"), grant)
        }
    }
}

/// Total size of the files in a folder, in bytes.
fn used(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|about| about.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finding_has_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        // A machine without any of these files.
        let root = Root::recorded(dir.path()).unwrap();
        let mut all = of_machine(&root);
        all.push(environments(&root, false));
        all.push(environments(&root, true));
        let found: Vec<&Fact> = all.iter().filter(|fact| fact.state != State::Ok).collect();
        assert!(found.len() >= 6, "{}", found.len());
        for fact in found {
            assert!(!fact.grant.is_empty(), "{}: {}", fact.name, fact.what);
        }
        let checked =
            [(401, false), (401, true), (403, true)].map(|(status, has)| rejected(status, has));
        assert!(checked[0].contains("not authenticated") && checked[1].contains("expired"));
        assert!(checked[2].contains("scope `agent`"));
        assert!(rejected(403, false).contains("run the agent as root"));
    }

    #[test]
    fn capabilities_by_their_numbers() {
        let status = "Name:\tx\nCapPrm:\t0000000000000000\nCapEff:\t0000000000081004\n";
        let may = effective(status).unwrap();
        let words = listed(may);
        assert!(
            words.starts_with("CAP_DAC_READ_SEARCH CAP_NET_ADMIN CAP_SYS_PTRACE; not "),
            "{words}"
        );
        assert_eq!(listed(u64::MAX), "all that sources may need");
        assert_eq!(listed(0), "none");
        assert_eq!(effective("CapEff:\tx\n"), None);
        assert_eq!(effective(""), None);
    }
}
