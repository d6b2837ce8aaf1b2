//! Kinds of usage.

use super::{
    CPU, FIRST, Load, MIB, Row, SOON, Site, command_of, interpreter, own_account, python, row,
    total,
};
use crate::common::programs::{output, program, until};
use crate::schedulers::restart_orders::report;
use serde_json::{Value, json};
use std::io::Write as _;
use std::process::Command;

/// KiB that a job sends over the network, as datagrams of 1 KiB.
const SENT_KIB: u32 = 4096;

/// `jobmeter run` as root beside the agent, and as an ordinary user whose job no agent discovers.
pub(super) fn commands(site: &mut Site) -> Vec<Row> {
    let mut rows = Vec::new();
    let data = site.dir.path().join("user");
    std::fs::create_dir(&data).unwrap();
    std::os::unix::fs::chown(&data, Some(65_534), Some(65_534)).unwrap();
    let users = [
        ("`jobmeter run`, root", site.dir.path().join("as-root"), None),
        ("`jobmeter run`, ordinary user", data.join("as-user"), Some("65534")),
    ];
    for (case, out, user) in users {
        let program = program("jobmeter");
        let mut command = match user {
            None => Command::new(&program),
            Some(id) => {
                let mut command = Command::new("setpriv");
                command.args([
                    &format!("--reuid={id}"),
                    &format!("--regid={id}"),
                    "--clear-groups",
                ]);
                command.arg(&program).env("HOME", "/");
                command
            }
        };
        command.args(["run", "--json", "--device", "truth", "--server", &site.server.url, "--"]);
        command.arg(python());
        let load = json!({"cpu": 1, "children": 2, "memory": 64, "write": 16});
        let (code, text, errors) = output(&mut command_of(command, &out, &load));
        if user.is_some() && code == 126 {
            println!("{case}: the build's folder is closed to other users; did not run");
            continue;
        }
        assert_eq!(code, 0, "{case}: {errors}");
        let report: Value = serde_json::from_str(&text).unwrap();
        let of_report = |field: &str| report[field].as_f64();
        let mib = |field: &str| of_report(field).map(|bytes| bytes / MIB);
        let own = |field: &str| own_account(&out, field);
        // Processor time of the interpreter before the load read its base values, in seconds.
        let start = 0.1;
        // With a cgroup, the peak also includes the two children and the page cache of the written file.
        let peak_bound = if user.is_none() { (0.05, 48.0) } else { (0.05, 1.0) };
        let (peak, written) = (mib("memory_peak_bytes"), mib("io_write_bytes"));
        let cpu = of_report("cpu_seconds");
        rows.extend([
            row([case, "processor time", "s"], own("cpu"), cpu, (0.01, start)),
            row([case, "peak memory", "MiB"], own("peak") / MIB, peak, peak_bound),
            row([case, "written bytes", "MiB"], own("written") / MIB, written, (0.0, 1.0)),
        ]);
    }
    rows
}

/// A job with a limit of 20 % of a processor, compared with its cgroup's own counter.
pub(super) fn throttled(site: &mut Site) -> Vec<Row> {
    let job = site.job(3000);
    std::fs::write(job.file(CPU, "cpu.cfs_quota_us"), "20000").unwrap();
    let mut load = site.load(interpreter(), &json!({"cpu": 0.3}), &job, FIRST);
    assert!(load.wait());
    let stat = std::fs::read_to_string(job.file(CPU, "cpu.stat")).unwrap();
    let time = stat.lines().find_map(|line| line.strip_prefix("throttled_time ")).unwrap();
    let truth = time.parse::<f64>().unwrap() / 1e9;
    // Only the cgroup's counter has the throttled time.
    site.read_again(&job);
    job.remove();
    let reported = total(&site.ended(&job), "throttled_seconds");
    vec![row(["processor limit", "throttled time", "s"], truth, reported, (0.0, 0.001))]
}

/// A job with its own network namespace sends over a veth pair to another one. The interface at the other end
/// counts the truth.
pub(super) fn network(site: &mut Site) -> Vec<Row> {
    let own = |end: &str| format!("jobmeter-{}-{end}", std::process::id());
    let (near, far) = (Namespace::make(own("near")), Namespace::make(own("far")));
    near.ip(&["link", "add", "veth", "type", "veth", "peer", "name", "veth", "netns", &far.0]);
    for (end, address) in [(&near, "192.0.2.1/24"), (&far, "192.0.2.2/24")] {
        end.ip(&["address", "add", address, "dev", "veth"]);
        end.ip(&["link", "set", "veth", "up"]);
    }
    let job = site.job(3100);
    // `ip netns exec` would hide the cgroups.
    let mut command = Command::new("nsenter");
    command.args([&format!("--net=/run/netns/{}", near.0), python()]);
    let mut load = site.load(command, &json!({"send": SENT_KIB}), &job, FIRST);
    // The agent counts bytes from its first reading of the namespace to the last reading in which a process
    // of it is left.
    site.read_again(&job);
    let before = far.received();
    let sent = || {
        let report = report(&site.server.url, &job.name)?;
        let mut lines = report["metrics"].as_array()?.iter();
        let line = lines.find(|line| line["metric"] == "network_job_transmitted_bytes_total");
        line?["increase"].as_f64()
    };
    let sent_before = until("a reading of the namespace", SOON, sent);
    load.go_on();
    until("what the job sends", SOON, || {
        (far.received() - before >= f64::from(SENT_KIB << 10)).then_some(())
    });
    site.read_again(&job);
    let (truth, reported) = (far.received() - before, sent());
    load.go_on();
    assert!(load.wait());
    job.remove();
    site.ended(&job);
    let reported = reported.map(|bytes| (bytes - sent_before) / MIB);
    let names = ["network namespace of its own", "sent bytes", "MiB"];
    vec![row(names, truth / MIB, reported, (0.001, 0.0))]
}

/// A network namespace that is removed on drop.
struct Namespace(String);

impl Namespace {
    fn make(name: String) -> Self {
        let (code, _, errors) = output(Command::new("ip").args(["netns", "add", &name]));
        assert_eq!(code, 0, "{errors}");
        Self(name)
    }

    fn ip(&self, arguments: &[&str]) {
        let (code, _, errors) = output(Command::new("ip").args(["-n", &self.0]).args(arguments));
        assert_eq!(code, 0, "ip {arguments:?}: {errors}");
    }

    /// Returns the bytes that the interface has received.
    fn received(&self) -> f64 {
        let file = "/proc/net/dev";
        let mut command = Command::new("ip");
        let (code, text, errors) = output(command.args(["netns", "exec", &self.0, "cat", file]));
        assert_eq!(code, 0, "{errors}");
        let line = text.lines().find_map(|line| line.trim().strip_prefix("veth:"));
        line.and_then(|line| line.split_whitespace().next()).unwrap().parse().unwrap()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        output(Command::new("ip").args(["netns", "delete", &self.0]));
    }
}

impl Load {
    /// Lets a waiting load continue.
    fn go_on(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }
}

/// A process works, then moves into a running job, as with `pam_slurm_adopt`, and starts others there. The
/// kernel reports no moves, so its own writes before the agent observes the move are not counted.
pub(super) fn moved(site: &mut Site) -> Vec<Row> {
    const CASE: &str = "process moved into a running job";
    let job = site.job(3200);
    let mut first = site.load(interpreter(), &json!({"cpu": 0.2}), &job, FIRST);
    job.make_step("step_extern");
    assert!(first.wait());
    let load = json!({
        "before_cpu": 0.5, "before_write": 32, "cpu": 0.5, "children": 1, "tasks": 4, "task_write": 2048
    });
    let mut adopted = site.load(interpreter(), &load, &job, "step_extern");
    assert!(adopted.wait());
    job.remove_step("step_extern");
    job.remove();
    let report = site.ended(&job);
    let cpu = first.own("cpu") + adopted.own("cpu");
    let written = total(&report, "io_write_bytes").map(|bytes| bytes / MIB);
    vec![
        row([CASE, "processor time", "s"], cpu, total(&report, "cpu_seconds"), (0.01, 0.02)),
        row([CASE, "written bytes", "MiB"], adopted.own("written") / MIB, written, (0.0, 0.1)),
    ]
}

/// Many tasks that exit between two readings.
pub(super) fn short_tasks(site: &mut Site) -> Vec<Row> {
    let job = site.job(3250);
    let load = json!({"tasks": 200, "task_write": 64});
    let mut load = site.load(interpreter(), &load, &job, FIRST);
    assert!(load.wait());
    job.remove();
    let written = total(&site.ended(&job), "io_write_bytes").map(|bytes| bytes / MIB);
    let names = ["200 short tasks", "written bytes", "MiB"];
    // Blocks of the growing directory are writes of the tasks too.
    vec![row(names, load.own("written") / MIB, written, (0.0, 0.25))]
}
