//! A known load as a job: what `jobmeter run` reports, and what the agent beside it has stored, is what the
//! kernel tells the command itself.

use crate::line::{Up, jobmeter};
use crate::programs::{output, root, until};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Two processes at once, about two seconds of processor time each; 64 MiB touched; 32 MiB written and
/// synced. At its end it writes what getrusage(2) says of itself and of the processes it waited for, and leaves
/// without tidying its memory up, which would take page faults more.
const LOAD: &str = r#"
import os, resource, sys, time
def work(seconds):
    while time.process_time() < seconds:
        sum(range(10000))
pids = []
for _ in range(2):
    pid = os.fork()
    if pid == 0:
        work(2)
        os._exit(0)
    pids.append(pid)
memory = bytearray(64 << 20)
memory[::4096] = bytes([1]) * len(memory[::4096])
with open(sys.argv[1] + "/written", "wb") as file:
    file.write(memory[:32 << 20])
    file.flush()
    os.fsync(file.fileno())
for pid in pids:
    os.waitpid(pid, 0)
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
with open(sys.argv[1] + "/used", "w") as file:
    file.write("%f %d" % (sum(one.ru_utime + one.ru_stime for one in used), sum(one.ru_minflt for one in used)))
os._exit(0)
"#;

/// Seconds of processor time, and page faults that needed no disk, by the load's own account.
fn used(dir: &Path) -> (f64, f64) {
    let text = std::fs::read_to_string(dir.join("used")).unwrap();
    let (cpu, faults) = text.split_once(' ').unwrap();
    (cpu.parse().unwrap(), faults.parse().unwrap())
}

#[test]
fn a_known_load_is_reported_as_the_kernel_counts_it() {
    if !root("a_known_load_is_reported_as_the_kernel_counts_it") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let up = Up::start(&dir.path().join("data"), &["--period", "1s", "--device", "truth"]);
    let files = dir.path().to_str().unwrap();
    let python = python();
    let run = |more: &[&str]| {
        let arguments = [&["run", "--json"], more, &["--", &python, "-c", LOAD, files]].concat();
        let (code, out, errors) = jobmeter(&up.url, &arguments);
        assert_eq!(code, 0, "{errors}");
        serde_json::from_str::<Value>(&out).unwrap()
    };
    // Beside an agent that sees the job, and without one, when `run` measures and sends all itself.
    for more in [&["--device", "truth"][..], &["--device", "elsewhere"]] {
        let report = run(more);
        let (used, faults) = used(dir.path());
        let number = |name: &str| {
            report[name].as_f64().unwrap_or_else(|| panic!("{name} is unknown: {report}"))
        };
        let cpu = number("cpu_seconds");
        assert!(used > 4.0, "{used}");
        // The load works on after its own account: two ticks of 10 ms at most.
        assert!(
            (cpu - used).abs() <= used * 0.01 + 0.02,
            "reported {cpu} s, used {used} s: {report}"
        );
        let mib = f64::from(1 << 20);
        let peak = number("memory_peak_bytes") / mib;
        assert!((64.0..200.0).contains(&peak), "{peak} MiB: {report}");
        let written = number("io_write_bytes") / mib;
        assert!((32.0..34.0).contains(&written), "{written} MiB: {report}");
        assert!(faults > 16384.0, "{faults}");
        let reported = number("minor_faults");
        // And takes page faults: those of a program's end.
        assert!(
            (reported - faults).abs() <= faults * 0.05 + 100.0,
            "{reported} of {faults}: {report}"
        );
        assert!(number("voluntary_switches") > 0.0, "{report}");
    }
    // Several, as it is by chance whether a job's first process is listed before its fork is heard of. Other
    // tests' agents run on this machine at the same time, and their first jobs have the numbers of the first
    // ones here.
    for _ in 0..3 {
        stored_once(&up, dir.path(), run);
    }
}

/// The agent reads the load's tasks while they live and hears of their ends: each counts once.
fn stored_once(up: &Up, dir: &Path, run: impl Fn(&[&str]) -> Value) {
    let report = run(&["--device", "truth"]);
    let (used, faults) = used(dir);
    let query = format!(
        "SELECT metric_id, max(value) AS value FROM metrics WHERE job_id = {} GROUP BY metric_id",
        report["id"]
    );
    // Of the job's end: the load and its two processes.
    let rows = until("the job's last samples", Duration::from_secs(20), || {
        let (_, out, _) = jobmeter(&up.url, &["sql", "--format", "json", &query]);
        let rows: Value = serde_json::from_str(&out).ok()?;
        let is_last = stored(&rows, "cgroup_cpu_seconds_total")? >= used * 0.99
            && stored(&rows, "taskstats_ended_tasks_total")? >= 3.0;
        is_last.then_some(rows)
    });
    let value = |metric| stored(&rows, metric).unwrap_or_else(|| panic!("{metric}: {rows}"));
    assert_eq!(value("taskstats_ended_tasks_total"), 3.0);
    for metric in ["taskstats_cpu_run_virtual_seconds_total", "cgroup_cpu_seconds_total"] {
        let cpu = value(metric);
        assert!((cpu - used).abs() <= used * 0.005 + 0.01, "{metric}: {cpu} s, used {used} s");
    }
    let found = value("taskstats_minor_faults_total");
    println!("stored {found} faults, {faults} by getrusage");
    assert!((found - faults).abs() <= faults * 0.01 + 50.0, "{found} faults of {faults}");
    // The kernel tells whole KiB of a task; what else the load writes is less than one.
    assert_eq!(value("taskstats_write_char_bytes_total"), f64::from(32 << 20));
}

/// The interpreter itself: a wrapper around it would start processes that nobody waits for, so that
/// getrusage(2) does not have them.
pub(crate) fn python() -> String {
    let name = ["-c", "import sys; print(sys.executable)"];
    let (code, out, errors) = output(Command::new("python3").args(name));
    assert_eq!(code, 0, "{errors}");
    out.trim().to_owned()
}

fn stored(rows: &Value, metric: &str) -> Option<f64> {
    rows.as_array()?.iter().find(|row| row["metric_id"] == metric)?["value"].as_f64()
}
