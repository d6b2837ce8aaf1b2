//! The table of truths: what jobs used by their own account (getrusage(2)), beside what jobmeter reports of them.
//!
//! `make test` prints it. `UPDATE_DOCS=1` writes it to `docs/truth.md`; without, the test holds that every row
//! is within its bound and that the page has the same cases.

use crate::layers::repository;
use crate::line::alone;
use crate::orders::report;
use crate::programs::{Running, Server, output, program, root, until};
use serde_json::Value;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::LazyLock;
use std::time::Duration;

const MIB: f64 = (1 << 20) as f64;
const SOON: Duration = Duration::from_secs(30);
/// Jobs whose cgroup is removed at once.
const REMOVED: i64 = 100;
/// So many of them at a time, each with one task that computes: the load of the machine.
const AT_A_TIME: usize = 6;

/// The quantity that may be missing from a report, though never wrong in it: see `oom_kill`.
const MAY_BE_UNKNOWN: (&str, &str) = ("OOM kill, cgroup removed at once", "peak memory");

/// A row of the table.
struct Row {
    case: &'static str,
    quantity: &'static str,
    unit: &'static str,
    truth: f64,
    reported: Option<f64>,
    /// The largest error, as a share of the truth, and beside it in the unit.
    bound: (f64, f64),
}

impl Row {
    fn error(&self) -> Option<f64> {
        self.reported.map(|reported| reported - self.truth)
    }

    fn holds(&self) -> bool {
        if self.reported.is_none() && (self.case, self.quantity) == MAY_BE_UNKNOWN {
            return true;
        }
        let limit = self.truth * self.bound.0 + self.bound.1;
        self.error().is_some_and(|error| error.abs() <= limit)
    }

    fn line(&self) -> String {
        let Self { case, quantity, unit, truth, bound, .. } = self;
        let (reported, error) = match (self.reported, self.error()) {
            (Some(reported), Some(error)) if *truth == 0.0 => {
                (format!("{reported:.3}"), format!("{error:+.3}"))
            }
            (Some(reported), Some(error)) => {
                (format!("{reported:.3}"), format!("{:+.2} %", error / truth * 100.0))
            }
            _ => ("not known".to_owned(), "-".to_owned()),
        };
        let share = bound.0 * 100.0;
        format!(
            "| {case} | {quantity} | {truth:.3} {unit} | {reported} | {error} | {share:.0} % + {} {unit} |",
            bound.1
        )
    }
}

/// A server and an agent of the test's own.
struct Site {
    dir: tempfile::TempDir,
    server: Server,
    agent: Running,
    slurm: String,
}

impl Site {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        // Users who are not root run commands here.
        std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        let server = Server::start(&dir.path().join("data"), &[]);
        let slurm = format!("slurm_truth{}", std::process::id());
        for hierarchy in HIERARCHIES {
            std::fs::create_dir_all(format!("{hierarchy}/{slurm}/uid_0")).unwrap();
        }
        let agent = agent(&server.url, dir.path(), &slurm);
        Self { dir, server, agent, slurm }
    }

    /// Makes the cgroups of a job of Slurm in version 1, with this limit of memory.
    fn cgroups(&self, id: i64, limit: Option<u64>) -> Vec<PathBuf> {
        let cgroups = HIERARCHIES.map(|hierarchy| {
            let dir = PathBuf::from(format!("{hierarchy}/{}/uid_0/job_{id}", self.slurm));
            std::fs::create_dir_all(dir.join("step_0")).unwrap();
            if let Some(limit) = limit.filter(|_| hierarchy.ends_with("memory")) {
                std::fs::write(dir.join("memory.limit_in_bytes"), limit.to_string()).unwrap();
            }
            dir
        });
        cgroups.into()
    }

    fn load(&self, name: &str, load: [&str; 4], cgroups: &[PathBuf]) -> (Child, PathBuf) {
        let out = self.dir.path().join(name);
        let mut command = Command::new(python());
        command.arg(script()).arg(&out).args(load);
        command.args(cgroups.iter().map(|dir| dir.join("step_0")));
        (command.spawn().unwrap(), out)
    }

    /// The report of a job that is over.
    fn ended(&self, job: &str) -> Value {
        until(job, SOON, || {
            report(&self.server.url, job).filter(|report| report["job"]["stop"].is_number())
        })
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for hierarchy in HIERARCHIES {
            for dir in
                [format!("{hierarchy}/{}/uid_0", self.slurm), format!("{hierarchy}/{}", self.slurm)]
            {
                std::fs::remove_dir(dir).ok();
            }
        }
    }
}

const HIERARCHIES: [&str; 2] = ["/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup/memory"];

fn agent(url: &str, dir: &Path, slurm: &str) -> Running {
    let mut command = Command::new(program("jobmeter-agent"));
    command.args(["--server", url, "--period", "1s", "--device", "truth"]);
    command.args(["--jobs-schedulers", "slurm", "--jobs-schedulers", "local"]);
    for hierarchy in HIERARCHIES {
        command.args(["--jobs-slurm-roots", &format!("{hierarchy}/{slurm}")]);
    }
    Running::start(command.arg("--spool").arg(dir.join("spool")))
}

fn script() -> PathBuf {
    repository().join("tests/truth_table.py")
}

/// The interpreter itself, which is looked for once.
fn python() -> &'static str {
    static PYTHON: LazyLock<String> = LazyLock::new(crate::truth::python);
    &PYTHON
}

/// Removes a job's cgroups as slurmstepd does, right after the last process.
fn remove(cgroups: &[PathBuf]) {
    for dir in cgroups {
        for dir in [dir.join("step_0"), dir.clone()] {
            // A task that just ended may still be counted for an instant.
            until("an empty cgroup", SOON, || std::fs::remove_dir(&dir).ok());
        }
    }
}

fn own_account(out: &Path, field: &str) -> f64 {
    let text = std::fs::read_to_string(out).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()[field].as_f64().unwrap()
}

fn total(report: &Value, field: &str) -> Option<f64> {
    report["totals"][field].as_f64()
}

#[test]
fn every_row_of_the_table_of_truths_is_within_its_bound() {
    if !root("every_row_of_the_table_of_truths_is_within_its_bound") {
        return;
    }
    if HIERARCHIES.iter().any(|hierarchy| !Path::new(hierarchy).is_dir()) {
        println!("the table of truths needs cgroup version 1 and was not made");
        return;
    }
    let _alone = alone();
    let mut site = Site::start();
    let mut rows = Vec::new();
    let cases: [fn(&mut Site) -> Vec<Row>; 4] = [commands, removed_at_once, oom_kill, restarts];
    for case in cases {
        let of_case = case(&mut site);
        of_case.iter().for_each(|row| println!("{}", row.line()));
        rows.extend(of_case);
    }
    assert_eq!(site.agent.end(), 0, "{}", site.agent.errors());
    let table = page(&rows);
    println!("{table}");
    let wrong: Vec<String> = rows.iter().filter(|row| !row.holds()).map(Row::line).collect();
    assert!(wrong.is_empty(), "beyond their bounds:\n{}", wrong.join("\n"));
    published(&rows, &table);
}

/// `jobmeter run`, as root beside the agent, and as an ordinary user whom no agent sees.
fn commands(site: &mut Site) -> Vec<Row> {
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
        command.arg(python()).arg(script()).arg(&out).args(["1", "2", "64", "16"]);
        let (code, text, errors) = output(&mut command);
        if user.is_some() && code == 126 {
            println!("{case}: the build's folder is closed to other users; did not run");
            continue;
        }
        assert_eq!(code, 0, "{case}: {errors}");
        let report: Value = serde_json::from_str(&text).unwrap();
        // What the interpreter itself used before the load took its base.
        let start = 0.1;
        rows.push(Row {
            case,
            quantity: "processor time",
            unit: "s",
            truth: own_account(&out, "cpu"),
            reported: report["cpu_seconds"].as_f64(),
            bound: (0.01, start),
        });
        rows.push(Row {
            case,
            quantity: "peak memory",
            unit: "MiB",
            truth: own_account(&out, "peak") / MIB,
            reported: report["memory_peak_bytes"].as_f64().map(|bytes| bytes / MIB),
            // With a cgroup: the two children and the pages of the written file beside the largest task.
            bound: if user.is_none() { (0.05, 48.0) } else { (0.05, 1.0) },
        });
        rows.push(Row {
            case,
            quantity: "written bytes",
            unit: "MiB",
            truth: own_account(&out, "written") / MIB,
            reported: report["io_write_bytes"].as_f64().map(|bytes| bytes / MIB),
            bound: (0.0, 1.0),
        });
    }
    rows
}

/// Waits for a job's last process and removes its cgroups.
fn gone_at_once(
    (id, cgroups, mut child, out): (i64, Vec<PathBuf>, Child, PathBuf),
) -> (i64, PathBuf) {
    assert!(child.wait().unwrap().success());
    remove(&cgroups);
    (id, out)
}

/// Jobs whose cgroup goes with their last process: the worst of them by each quantity.
fn removed_at_once(site: &mut Site) -> Vec<Row> {
    let case = "cgroup removed with the last process";
    let mut jobs = Vec::new();
    let mut running = VecDeque::new();
    for id in 1000..1000 + REMOVED {
        if running.len() == AT_A_TIME {
            jobs.extend(running.pop_front().map(gone_at_once));
        }
        let cgroups = site.cgroups(id, None);
        let (child, out) = site.load(&id.to_string(), ["0.3", "0", "64", "0"], &cgroups);
        running.push_back((id, cgroups, child, out));
    }
    jobs.extend(running.into_iter().map(gone_at_once));
    let rows = jobs.iter().map(|(id, out)| {
        let report = site.ended(&format!("slurm:{id}"));
        let cpu = own_account(out, "cpu");
        let row = |quantity, unit, truth, reported, bound| Row {
            case,
            quantity,
            unit,
            truth,
            reported,
            bound,
        };
        [
            row(
                "processor time, worst of 100 jobs",
                "s",
                cpu,
                total(&report, "cpu_seconds"),
                // A task frees its memory after the kernel sent its accounting (kernel/exit.c, `do_exit`, Linux
                // 6.18), and the cgroup that counts that time is gone.
                (0.01, 0.02),
            ),
            row(
                "peak memory, worst of 100 jobs",
                "MiB",
                own_account(out, "peak") / MIB,
                total(&report, "memory_peak_bytes").map(|bytes| bytes / MIB),
                // The interpreter's pages from before it joined are counted where they were touched.
                (0.05, 8.0),
            ),
        ]
    });
    let rows: Vec<[Row; 2]> = rows.collect();
    let worst = |place: usize| {
        let error = |row: &Row| row.error().map_or(f64::INFINITY, f64::abs);
        rows.iter()
            .map(|pair| &pair[place])
            .max_by(|a, b| error(a).total_cmp(&error(b)))
            .map(|row| Row { ..*row })
    };
    [0, 1].into_iter().filter_map(worst).collect()
}

/// A task takes more memory than its job's limit, and its cgroup goes with it.
fn oom_kill(site: &mut Site) -> Vec<Row> {
    let cgroups = site.cgroups(2000, Some(32 << 20));
    let (mut child, out) = site.load("oom", ["0", "0", "64", "0"], &cgroups);
    assert!(!child.wait().unwrap().success(), "the kernel kills the load at its limit");
    remove(&cgroups);
    let kills = |report: &Value| report["oom_kills"].as_array().map_or(0, Vec::len);
    let report = until("the job's OOM kill", SOON, || {
        Some(site.ended("slurm:2000")).filter(|report| kills(report) > 0)
    });
    let row = |quantity, unit, truth, reported, bound| Row {
        case: "OOM kill, cgroup removed at once",
        quantity,
        unit,
        truth,
        reported,
        bound,
    };
    let limit = report["oom_kills"][0]["limit_bytes"].as_f64().map(|limit| limit / MIB);
    let charged = !report["origins"].to_string().contains("largest task");
    let mut rows = vec![
        row("killed tasks", "tasks", 1.0, Some(kills(&report) as f64), (0.0, 0.0)),
        row("limit", "MiB", 32.0, limit, (0.0, 0.0)),
    ];
    // What is charged ends at the limit. Where its last reading was missed, the largest task's own peak stands for it,
    // which has shared pages of files, too. Known defect: sometimes both are missed, and the peak is not known.
    let peak = total(&report, "memory_peak_bytes").map(|peak| peak / MIB);
    let truth = if charged { 32.0 } else { own_account(&out, "peak") / MIB };
    rows.push(row("peak memory", "MiB", truth, peak, (0.05, 8.0)));
    rows
}

/// The agent is killed, then the server ends and comes back, while a job runs.
fn restarts(site: &mut Site) -> Vec<Row> {
    let cgroups = site.cgroups(200, None);
    let (mut child, out) = site.load("restarts", ["5", "1", "16", "0"], &cgroups);
    until("the job's first samples", SOON, || report(&site.server.url, "slurm:200"));
    site.agent.kill();
    site.agent = agent(&site.server.url, site.dir.path(), &site.slurm);
    assert_eq!(site.server.running.end(), 0);
    let data = site.dir.path().join("data");
    site.server.again(&data, &[]);
    assert!(child.wait().unwrap().success());
    // An agent that was killed knows of exit accounting since its start alone. A cgroup that goes at once would cost what
    // was used after the last look, up to a second, which the report states as `unread_seconds`.
    std::thread::sleep(Duration::from_secs(3));
    remove(&cgroups);
    let report = site.ended("slurm:200");
    vec![Row {
        case: "agent killed and server restarted during the job",
        quantity: "processor time",
        unit: "s",
        truth: own_account(&out, "cpu"),
        reported: total(&report, "cpu_seconds"),
        bound: (0.01, 0.01),
    }]
}

fn page(rows: &[Row]) -> String {
    let mut text = String::from(
        "# Truth\n\nWhat jobs used by their own account, beside what jobmeter reports of them. \
         `tests/truth_table.rs` runs these cases in `make test`, prints this table, and fails when an error is \
         beyond its bound. The figures are of one run on a virtual machine with 2 processors, Linux 6.18, cgroup \
         version 1; `UPDATE_DOCS=1` writes them.\n\n| case | quantity | truth | reported | error | bound |\n\
         |---|---|---|---|---|---|\n",
    );
    rows.iter().for_each(|row| writeln!(text, "{}", row.line()).unwrap());
    text
}

/// The published page has these cases, no more and no fewer.
fn published(rows: &[Row], table: &str) {
    let file = repository().join("docs/truth.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, table).unwrap();
    }
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let named = |line: &str| line.split('|').take(3).collect::<Vec<_>>().join("|");
    let published: Vec<String> =
        text.lines().filter(|line| line.starts_with("| ")).skip(1).map(named).collect();
    let cases: Vec<String> = rows.iter().map(|row| named(&row.line())).collect();
    assert_eq!(published, cases, "docs/truth.md has other cases; write it with UPDATE_DOCS=1");
}
