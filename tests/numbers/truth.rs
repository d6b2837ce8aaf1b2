//! A known load as a job: the report of `jobmeter run` and the agent's stored samples match the kernel's own
//! counts of the command.

use crate::common::programs::{output, root, until};
use crate::common::up::{Up, jobmeter};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Two parallel processes with about 2 s of processor time each, 64 MiB of touched memory, and 32 MiB written
/// and synced.
///
/// At its end the load writes getrusage(2) of itself and of its reaped children. It exits without freeing its
/// memory, because that would cause more page faults.
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

/// Returns the load's own processor time in seconds, and its minor page faults.
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
    // Once beside an agent that discovers the job, and once without, when `run` itself measures and sends
    // everything.
    for more in [&["--device", "truth"][..], &["--device", "elsewhere"]] {
        let report = run(more);
        let (used, faults) = used(dir.path());
        let number = |name: &str| {
            report[name].as_f64().unwrap_or_else(|| panic!("{name} is unknown: {report}"))
        };
        let cpu = number("cpu_seconds");
        assert!(used > 4.0, "{used}");
        // The load continues after its own report: for at most two ticks of 10 ms.
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
        // The exit of the program causes page faults too.
        assert!(
            (reported - faults).abs() <= faults * 0.05 + 100.0,
            "{reported} of {faults}: {report}"
        );
        assert!(number("voluntary_switches") > 0.0, "{report}");
    }
    // Repeat the run: a job's first process may fork before or after the agent lists it. Agents of other
    // tests run on this machine too, and their first jobs have the same IDs.
    for _ in 0..3 {
        stored_once(&up, dir.path(), run);
    }
}

/// The agent reads the load's tasks while they live, and receives their exits. Each counts once.
fn stored_once(up: &Up, dir: &Path, run: impl Fn(&[&str]) -> Value) {
    let report = run(&["--device", "truth"]);
    let (used, faults) = used(dir);
    let query = format!(
        "SELECT metric_id, max(value) AS value FROM metrics WHERE job_id = {} GROUP BY metric_id",
        report["id"]
    );
    // The job's last samples include the exits of the load and of its two processes.
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
    // The kernel reports whole KiB of a task, and the load's other writes are less than 1 KiB.
    assert_eq!(value("taskstats_write_char_bytes_total"), f64::from(32 << 20));
}

/// Returns the path of the interpreter itself. A wrapper would start processes that nothing reaps, so
/// getrusage(2) would not include them.
pub(crate) fn python() -> String {
    let name = ["-c", "import sys; print(sys.executable)"];
    let (code, out, errors) = output(Command::new("python3").args(name));
    assert_eq!(code, 0, "{errors}");
    out.trim().to_owned()
}

fn stored(rows: &Value, metric: &str) -> Option<f64> {
    rows.as_array()?.iter().find(|row| row["metric_id"] == metric)?["value"].as_f64()
}
