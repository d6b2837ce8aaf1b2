//! A known load as a job: what `jobmeter run` reports is what the kernel tells the command itself.

use crate::line::{Up, jobmeter};
use crate::programs::root;
use serde_json::Value;

/// Two processes at once, about two seconds of processor time each; 64 MiB touched; 32 MiB written and
/// synced. At its end it writes what getrusage(2) says of itself and of the processes it waited for.
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
    file.write("%f" % sum(one.ru_utime + one.ru_stime for one in used))
"#;

#[test]
fn a_known_load_is_reported_as_the_kernel_counts_it() {
    if !root("a_known_load_is_reported_as_the_kernel_counts_it") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let up = Up::start(&dir.path().join("data"), &["--period", "1s", "--device", "truth"]);
    let files = dir.path().to_str().unwrap();
    let run = |more: &[&str]| {
        let arguments = [&["run", "--json"], more, &["--", "python3", "-c", LOAD, files]].concat();
        let (code, out, errors) = jobmeter(&up.url, &arguments);
        assert_eq!(code, 0, "{errors}");
        serde_json::from_str::<Value>(&out).unwrap()
    };
    // Beside an agent that sees the job, and without one, when `run` measures and sends all itself.
    for more in [&["--device", "truth"][..], &["--device", "elsewhere"]] {
        let report = run(more);
        let used: f64 = std::fs::read_to_string(dir.path().join("used")).unwrap().parse().unwrap();
        let number = |name: &str| {
            report[name].as_f64().unwrap_or_else(|| panic!("{name} is unknown: {report}"))
        };
        let cpu = number("cpu_seconds");
        assert!(used > 4.0, "{used}");
        assert!((cpu - used).abs() <= used * 0.01, "reported {cpu} s, used {used} s: {report}");
        let mib = f64::from(1 << 20);
        let peak = number("memory_peak_bytes") / mib;
        assert!((64.0..200.0).contains(&peak), "{peak} MiB: {report}");
        let written = number("io_write_bytes") / mib;
        assert!((32.0..34.0).contains(&written), "{written} MiB: {report}");
        let faults = number("minor_faults");
        assert!((16384.0..60000.0).contains(&faults), "{report}");
        assert!(number("voluntary_switches") > 0.0, "{report}");
    }
}
