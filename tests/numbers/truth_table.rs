//! Truth table: usage of jobs by their own account (getrusage(2)) beside jobmeter's reports.
//!
//! `make test` prints the table. `UPDATE_DOCS=1` writes it to `docs/truth.md`. Without that, the test checks
//! that every row is within its bound and that the page has the same cases.

mod ends;
mod usage;

use crate::common::programs::{Running, Server, get, program, root, until};
use crate::common::up::alone;
use crate::repository::layers::repository;
use crate::schedulers::restart_orders::report;
use serde_json::Value;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const MIB: f64 = (1 << 20) as f64;
const SOON: Duration = Duration::from_secs(30);

/// A row of the table.
struct Row {
    case: &'static str,
    quantity: &'static str,
    unit: &'static str,
    truth: f64,
    reported: Option<f64>,
    /// Maximum relative error, and an absolute error in the unit that is added to it.
    bound: (f64, f64),
}

/// Builds a row from its case, quantity and unit, the truth, the reported value, and the bound.
fn row(
    [case, quantity, unit]: [&'static str; 3],
    truth: f64,
    reported: Option<f64>,
    bound: (f64, f64),
) -> Row {
    Row { case, quantity, unit, truth, reported, bound }
}

impl Row {
    fn error(&self) -> Option<f64> {
        self.reported.map(|reported| reported - self.truth)
    }

    fn holds(&self) -> bool {
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
            (bound.1 * 1000.0).round() / 1000.0
        )
    }
}

/// A server and an agent of this test.
struct Site {
    dir: tempfile::TempDir,
    server: Server,
    agent: Running,
    slurm: String,
}

impl Site {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        // Other users than root run commands in this folder.
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

    /// Creates the cgroups of a Slurm job in cgroup version 1, with one step.
    fn job(&self, id: i64) -> Job {
        let dirs = HIERARCHIES
            .map(|hierarchy| PathBuf::from(format!("{hierarchy}/{}/uid_0/job_{id}", self.slurm)));
        let job = Job { id, name: format!("slurm:{id}"), dirs };
        job.make_step(FIRST);
        job
    }

    /// Starts a load in a step of a job. `load` is the JSON that `truth_table.py` expects. The load writes
    /// its own usage to the file `out` of the result.
    fn load(&self, command: Command, load: &Value, job: &Job, step: &str) -> Load {
        let out = self.dir.path().join(format!("{}-{step}", job.id));
        let mut load = command_of(command, &out, load);
        load.args(job.steps(step)).stdin(Stdio::piped());
        Load { child: load.spawn().unwrap(), out }
    }

    /// Waits for the end of a job, and returns its report.
    fn ended(&self, job: &Job) -> Value {
        until(&job.name, SOON, || {
            report(&self.server.url, &job.name).filter(|report| report["job"]["stop"].is_number())
        })
    }

    /// Reports a job like its scheduler does.
    fn record(&self, record: &Value) {
        let request = ureq::post(format!("{}/api/v1/jobs", self.server.url));
        let request = request.header("content-type", "application/json");
        let answer = request.send(record.to_string()).unwrap();
        assert!(answer.status().is_success(), "{answer:?}");
    }

    /// Waits until the server has a reading of the job that is later than now.
    fn read_again(&self, job: &Job) {
        self.later(&format!("job_id={}", job.id), "cgroup_cpu_seconds_total");
    }

    /// Waits until the server has a reading of the node that is later than now.
    fn read_node(&self) {
        self.later("devices=truth", "cpu_user_seconds_total");
    }

    fn later(&self, of: &str, metric: &str) {
        let path = format!("/rpc/get_metrics?{of}&metrics={metric}&start_time={}", now());
        until("a later reading", SOON, || {
            let (status, rows) = get(&self.server.url, &path);
            (status == 200 && rows.contains(metric)).then_some(())
        });
    }
}

/// The cgroups of a Slurm job.
struct Job {
    id: i64,
    name: String,
    dirs: [PathBuf; HIERARCHIES.len()],
}

impl Job {
    fn steps(&self, step: &str) -> impl Iterator<Item = PathBuf> {
        self.dirs.iter().map(move |dir| dir.join(step))
    }

    fn make_step(&self, step: &str) {
        self.steps(step).for_each(|dir| std::fs::create_dir_all(dir).unwrap());
    }

    /// Returns the path of a file in the job's own cgroup, by hierarchy.
    fn file(&self, hierarchy: &str, file: &str) -> PathBuf {
        let dir = self.dirs.iter().find(|dir| dir.starts_with(hierarchy)).unwrap();
        dir.join(file)
    }

    /// Removes a step right after its last process, like slurmstepd.
    fn remove_step(&self, step: &str) {
        self.steps(step).for_each(|dir| removed(&dir));
    }

    /// Removes the job and its first step.
    fn remove(&self) {
        self.remove_step(FIRST);
        self.dirs.iter().for_each(|dir| removed(dir));
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // Clean up after a failed test.
        for dir in &self.dirs {
            let steps = std::fs::read_dir(dir).into_iter().flatten().flatten();
            steps.for_each(|step| drop(std::fs::remove_dir(step.path())));
            std::fs::remove_dir(dir).ok();
        }
    }
}

fn removed(dir: &Path) {
    // A cgroup may count a task for an instant after its exit.
    until("an empty cgroup", SOON, || std::fs::remove_dir(dir).ok());
}

/// A running load.
struct Load {
    child: Child,
    out: PathBuf,
}

impl Drop for Load {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Load {
    /// Waits for the load's end, and returns whether it exited successfully.
    fn wait(&mut self) -> bool {
        self.child.wait().unwrap().success()
    }

    /// Returns the load's usage by its own account.
    fn own(&self, field: &str) -> f64 {
        own_account(&self.out, field)
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

const CPU: &str = "/sys/fs/cgroup/cpu";
const MEMORY: &str = "/sys/fs/cgroup/memory";
const HIERARCHIES: [&str; 3] = ["/sys/fs/cgroup/cpuacct", CPU, MEMORY];
/// The only step of a job, or its first.
const FIRST: &str = "step_0";

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
    repository().join("tests/numbers/truth_table.py")
}

/// Returns the path of the interpreter itself, which is determined once.
fn python() -> &'static str {
    static PYTHON: LazyLock<String> = LazyLock::new(crate::numbers::truth::python);
    &PYTHON
}

/// Appends the load's arguments to the interpreter's command, which may start with a wrapper.
fn command_of(mut command: Command, out: &Path, load: &Value) -> Command {
    command.arg(script()).arg(out).arg(load.to_string());
    command
}

/// Returns the seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

fn interpreter() -> Command {
    Command::new(python())
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
    let cases: [fn(&mut Site) -> Vec<Row>; 11] = [
        usage::commands,
        usage::throttled,
        usage::network,
        usage::moved,
        usage::short_tasks,
        ends::removed_at_once,
        ends::oom_kill,
        ends::oom_kill_in_step,
        ends::steps,
        ends::reused_id,
        ends::restarts,
    ];
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

fn page(rows: &[Row]) -> String {
    let mut text = String::from(
        "# Truth\n\nWhat jobs used by their own account, beside what jobmeter reports of them. \
         `tests/numbers/truth_table.rs` runs these cases in `make test`, prints this table, and fails when an error is \
         beyond its bound. The figures are of one run on a virtual machine with 2 processors, Linux 6.18, cgroup \
         version 1; `UPDATE_DOCS=1` writes them.\n\n| case | quantity | truth | reported | error | bound |\n\
         |---|---|---|---|---|---|\n",
    );
    rows.iter().for_each(|row| writeln!(text, "{}", row.line()).unwrap());
    text + LIMITS
}

/// Limitations that the table's rows do not show.
const LIMITS: &str = "
## Limits

- A task frees its memory after the kernel stated its accounting. Where the cgroup is removed at once, that time is missing:
  1 to 8 ms of a process of 64 MiB, more on a busy virtual machine.
- A process that joins a job after a look at it and ends before the next one, at an age of 0.02, 0.1, 0.3, 1 and 3 s and then once a
  second, counts up to the last reading of its job's cgroup. The report states the seconds after that as `unread_seconds`.
- Where a job's cgroup counts its tasks (`pids.current`), a process that joins the job in the second in which another one is moved out
  of it may be found up to 30 s later.
- A process that is moved to another job counts for the job that it left until the agent notices the move, with its transfers. Processor time
  is that of the cgroup, if the cgroup was read to its end.
  If it ends before that, it never counts for the other job.
- A process that began less than 2 s before the cgroup of the job that it joins counts with all that it used: it was started to run the
  job. Processor time is cut to what the job's cgroup counted; transfers and page faults are not.
- The processor time of a job with more than 1024 tasks at once, or 128 when another one joins it, is the larger of two accounts: that of
  its cgroup up to the last reading, and that of its tasks. What a moved task used before the move was noticed is in the first one only.
- The cgroups of an ID distinguish its runs, at any distance in time. Without a record of a scheduler, two cgroups of one ID
  within 60 s on a node are one run, which has what both used.
- Counters of a run begin with its cgroup. A gauge belongs to the run in which it was read. Where two runs of one ID begin less than 2 s
  apart, the records of their scheduler and the node's clock must agree within half of that time.
- Peak memory of a step that lasts less than a second may be missed when a later step is killed. The report then states
  `at least, by an OOM kill`.
- The kernel accounts for a task before it closes the task's files. Bytes of a deleted file that is still open when the process
  ends count as written, though they never reach a disk.
- The kernel states the transfers of ended processes once, to the parent that waits for them. Without a cgroup, those of
  children whose parent ignores SIGCHLD are lost; the report says `at least`.
- If no agent runs at the end of a job, its numbers are those of the last reading. The report says `at least: no agent ran for 54 s`.
- A job of many short tasks whose cgroup is removed at once lacks the time that the kernel charges after it accounts for a task: up to 41 %
  of 0.06 s in a job of 200 tasks. The report says `at least: last reading missed`.
- Processes that join a job and end within 0.1 s may be missing in its transfers, page faults and context switches. The report says
  `at least: tasks of 0.08 s processor time were missed` if that is more than 20 ms, 1 % of the job, and 0.5 ms per ended task.
";

/// Checks that the published page has exactly these cases.
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
