//! OAR 2.5 from Debian's packages: its jobs are discovered, measured and accounted while OAR, its database,
//! the server and the agent restart. `oar/machine.sh` runs OAR in namespaces of this test.

mod orders;
mod polled_devices;

use crate::common::programs::{Running, Server, get, output, program, root, until};
use crate::repository::layers::repository;
use crate::schedulers::restart_orders::measured_again;
use crate::schedulers::slurm::promoted;
use serde_json::Value;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

/// The job's load: 64 MiB of memory, at least 31 s of processor time, and on a signal file 32 MiB of direct
/// I/O.
///
/// The writes bypass the page cache, because cgroup version 1 attributes the writeback of cached pages to no
/// job. `dd` exits after its writes, and only an agent that listens at that time receives its accounting.
const LOAD: &str = r#"
my $memory = "x" x (64 << 20);
my ($i, $written);
sub used { my $sum = 0; $sum += $_ for times; return $sum }
while (used() < 31 or not $written) {
    $i++ for 1 .. 100000;
    next if $written or not -e "$0.write";
    system("dd if=/dev/zero of=$ENV{HOME}/written bs=1M count=32 oflag=direct 2> /dev/null") == 0 or die;
    $written = 1;
}
"#;

const CPUACCT: &str = "/sys/fs/cgroup/cpuacct/oar";
const MIB: f64 = (1 << 20) as f64;

/// OAR, its database and its node. They end with the test.
struct Machine {
    holder: Running,
    folder: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Machine {
    /// Starts OAR; `None` if it cannot run here.
    fn start(test: &str) -> Option<Self> {
        if !root(test) {
            return None;
        }
        if !Path::new("/sys/fs/cgroup/cpuacct").is_dir() {
            println!("OAR 2.5 makes cgroups of version 1, which this machine does not have");
            return None;
        }
        let alone = crate::common::up::alone();
        let folder = tempfile::tempdir().unwrap();
        // PostgreSQL, OAR and the jobs' users read this folder.
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let mut unshare = Command::new("unshare");
        let holder = Running::start(unshare.args(["--net", "--mount", "sleep", "1000"]));
        let machine = Self { holder, folder, _alone: alone };
        std::fs::create_dir(machine.dir()).unwrap();
        // For the database and the REST API.
        let certificate = rcgen::generate_simple_self_signed(["oarserver".to_owned()]).unwrap();
        std::fs::write(machine.dir().join("tls.pem"), certificate.cert.pem()).unwrap();
        let key = certificate.signing_key.serialize_pem();
        std::fs::write(machine.dir().join("tls.key"), key).unwrap();
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        let other = format!("/proc/{}/ns/net", machine.holder.child.id());
        until("the namespaces", Duration::from_secs(5), || {
            std::fs::read_link(&other).ok().filter(|name| *name != own)
        });
        machine.run("setup");
        Some(machine)
    }

    /// Returns the folder of OAR's own files.
    fn dir(&self) -> PathBuf {
        self.folder.path().join("oar")
    }

    /// Returns a command that runs in OAR's namespaces.
    fn within(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        let pid = self.holder.child.id().to_string();
        command.args(["-t", &pid, "-n", "-m", "--wd=/", program]);
        command
    }

    fn run(&self, what: &str) {
        let script = repository().join("tests/schedulers/oar/machine.sh");
        let mut command = self.within(script.to_str().unwrap());
        // Use files instead of pipes: processes that the script starts remain and would keep pipes open.
        let log = std::fs::File::create(self.dir().join("script.log")).unwrap();
        command.arg(what).arg(self.dir()).stderr(log.try_clone().unwrap()).stdout(log);
        let status = command.status().unwrap();
        let log = std::fs::read_to_string(self.dir().join("script.log")).unwrap();
        assert!(status.success(), "{what}: {log}");
    }

    /// Runs a query on OAR's database, and returns its result without a header.
    fn read_text(&self, select: &str) -> String {
        let mut command = self.within("psql");
        command.args(["-h", "127.0.0.1", "-p", "15432", "-U", "oar", "oar", "-A", "-t", "-c"]);
        let (_, out, errors) = output(command.arg(select));
        out + &errors
    }

    /// Submits a job as a user, and returns the IDs of the jobs.
    fn submit(&self, user: &str, arguments: &str) -> Vec<i64> {
        let line = format!("cd && oarsub {arguments}");
        let (code, out, errors) = output(self.within("su").args([user, "-c", &line]));
        assert_eq!(code, 0, "{arguments}: {out}{errors}");
        let numbers = out.lines().filter_map(|line| line.strip_prefix("OAR_JOB_ID="));
        numbers.map(|number| number.trim().parse().unwrap()).collect()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.dir().join("log/oar.log")).unwrap_or_default();
            let from = log.len().saturating_sub(4000);
            println!("-- OAR's log\n{}", log.get(from..).unwrap_or_default());
            println!("{}", self.read_text(
                "SELECT job_id, state, exit_code, submission_time, start_time, stop_time, message FROM jobs",
            ));
        }
        let script = repository().join("tests/schedulers/oar/machine.sh");
        let mut command = self.within(script.to_str().unwrap());
        command.arg("stop").arg(self.dir()).status().ok();
    }
}

/// Returns the processor time of a job's cgroup in seconds, as the kernel counts it; `None` if the cgroup
/// does not exist.
fn cgroup_seconds(name: &str) -> Option<f64> {
    let text = std::fs::read_to_string(format!("{CPUACCT}/{name}/cpuacct.usage")).ok()?;
    Some(text.trim().parse::<f64>().unwrap() / 1e9)
}

/// Starts the agent of OAR's node.
fn agent(url: &str, spool: &Path) -> Running {
    // Usage after the last reading is lost with the cgroup. At 100 ms, that is less than 1 % of 31 s.
    Running::start(agent_of(url, spool).args(["--sources-cgroup-period", "100ms"]))
}

/// Returns the agent's command with the default source periods.
fn agent_of(url: &str, spool: &Path) -> Command {
    let mut command = Command::new(program("jobmeter-agent"));
    command.args(["--server", url, "--device", "oarnode1", "--period", "1s"]);
    command.args(["--jobs-schedulers", "oar", "--spool", spool.to_str().unwrap()]);
    command
}

/// Returns the server's settings for OAR: it connects to the database's socket, which no namespace hides.
fn settings(machine: &Machine) -> [String; 6] {
    let password = machine.folder.path().join("password");
    std::fs::write(&password, "oar_ro\n").unwrap();
    std::fs::set_permissions(&password, Permissions::from_mode(0o600)).unwrap();
    let socket = machine.dir().join("pg");
    [
        "--schedulers-oar-database".to_owned(),
        format!("host={} port=15432 user=oar_ro dbname=oar", socket.display()),
        "--schedulers-oar-password-file".to_owned(),
        password.to_str().unwrap().to_owned(),
        "--schedulers-oar-period".to_owned(),
        "1s".to_owned(),
    ]
}

fn report(url: &str, id: i64) -> Option<Value> {
    crate::schedulers::restart_orders::report(url, &format!("oar:{id}"))
}

/// Returns the status of the server's OAR poller.
fn scheduler(url: &str) -> Value {
    let all: Value = serde_json::from_str(&get(url, "/api/v1/schedulers").1).unwrap();
    all[0].clone()
}

/// Waits until both the node and the scheduler report the job's end, in either order.
fn over(url: &str, id: i64) -> Value {
    until(&format!("job {id} is over"), Duration::from_secs(60), || {
        let job = report(url, id)?;
        let by_node = matches!(job["job"]["state"].as_str()?, "ended" | "failed");
        (by_node && job["job"]["state_word"] == "Terminated").then_some(job)
    })
}

#[test]
fn jobs_of_a_real_oar_are_known_measured_and_accounted() {
    let name = "jobs_of_a_real_oar_are_known_measured_and_accounted";
    let Some(machine) = Machine::start(name) else { return };
    let settings = settings(&machine);
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let (data, spool) = (machine.folder.path().join("data"), machine.folder.path().join("spool"));
    let mut server = Server::start(&data, &settings);
    let mut agent_of_node = agent(&server.url, &spool);
    until("OAR answers", Duration::from_secs(10), || {
        (scheduler(&server.url)["state"] == "ok").then_some(())
    });

    let load = machine.dir().join("load.pl");
    std::fs::write(&load, LOAD).unwrap();
    let wanted = "-l /network_address=1/core=1,walltime=0:5:0";
    let line = format!(
        "-n heavy --project climate -t monitor='perf_.*' {wanted} \
         'env JOBMETER_MONITOR=net_.* perl {}'",
        load.display()
    );
    let heavy = machine.submit("games", &line)[0];
    let cgroup = format!("games_{heavy}");
    until("the cgroup", Duration::from_secs(30), || cgroup_seconds(&cgroup));
    seen(&server.url, heavy, Instant::now());
    let job = format!("oar:{heavy}");
    promoted(&server, &job, "oarnode1", &["net_.*", "perf_.*"]);
    let array = machine.submit("news", &format!("--array 2 {wanted} 'sleep 2; exit 3'"));
    assert_eq!(array.len(), 2);

    let watch = std::thread::spawn(move || last_seconds(&cgroup));

    // Restarts the parts one after another while the job runs.
    machine.run("database_stop");
    until("the server says that OAR fails", Duration::from_secs(10), || {
        (scheduler(&server.url)["state"] == "failing").then_some(())
    });
    machine.run("database_start");
    machine.run("server_stop");
    machine.run("server_start");
    until("OAR answers again", Duration::from_secs(40), || {
        (scheduler(&server.url)["state"] == "ok").then_some(())
    });
    running(&server.url, heavy);
    server.running.kill();
    server.again(&data, &settings);
    running(&server.url, heavy);
    agent_of_node.kill();
    agent_of_node = agent(&server.url, &spool);
    // The source of exit accounting has a longer period. It must have read the job before `dd` writes.
    let both = ["cgroup_cpu_seconds_total", "taskstats_cpu_run_virtual_seconds_total"];
    measured_again(&server.url, &job, &both);
    promoted(&server, &job, "oarnode1", &["net_.*", "perf_.*"]);
    std::fs::write(load.with_extension("pl.write"), "").unwrap();
    running(&server.url, heavy);

    let used = watch.join().unwrap();
    over(&server.url, heavy);
    promoted(&server, "", "", &[]);
    // OAR may report the end before the agent sends the exit records of the job's tasks.
    let job = until("the job's exit records", Duration::from_secs(30), || {
        let job = report(&server.url, heavy)?;
        (job["totals"]["io_write_bytes"].as_f64()? > 0.0).then_some(job)
    });
    check_heavy(&job, used);
    check_array(&server.url, &array);
    let arguments = scheduler(&server.url);
    assert_eq!(
        (&arguments["state"], &arguments["records_rejected"]),
        (&"ok".into(), &0.into()),
        "{arguments}"
    );
    by_tls(&machine, &server.url, settings[3]);
    assert_eq!(agent_of_node.end(), 0);
}

/// Checks that the agent reports the job within two seconds of its cgroup's creation, and measures it.
fn seen(url: &str, id: i64, made: Instant) {
    let mut known = None;
    let job = until("the job is measured", Duration::from_secs(4), || {
        let job = report(url, id)?;
        if known.is_none() && !job["allocations"].as_array()?.is_empty() {
            known = Some(made.elapsed());
        }
        let measured = |series: &&Value| series["metric"] == "cgroup_cpu_seconds_total";
        job["series"].as_array()?.iter().find(measured)?;
        Some(job)
    });
    println!("known {known:?} and measured {:?} after its cgroup was made", made.elapsed());
    assert!(known.unwrap() < Duration::from_secs(2), "{known:?}");
    let allocation = &job["allocations"][0];
    assert_eq!((&allocation["device"], &allocation["stop"]), (&"oarnode1".into(), &Value::Null));
    running(url, id);
}

/// Checks that the scheduler and the node both report the job as running, each with its own data.
fn running(url: &str, id: i64) {
    until("the job runs, and its records say whose it is", Duration::from_secs(30), || {
        let (code, out, errors) =
            crate::common::up::jobmeter(url, &["jobs", "--json", "--state", "running"]);
        assert_eq!(code, 0, "{errors}");
        let jobs: Value = serde_json::from_str(&out).unwrap();
        let job = jobs.as_array()?.iter().find(|job| job["id"] == id && job["cluster"] == "oar")?;
        let known = job["user"] == "games"
            && job["uid"] == 5
            && job["name"] == "heavy"
            && job["project"] == "climate"
            && job["queue"] == "default"
            && job["state_word"] == "Running"
            && job["types"] == serde_json::json!(["monitor=perf_.*"])
            && job["devices"] == serde_json::json!(["oarnode1"])
            && job["requested"]["wall_seconds"] == 300.0;
        known.then_some(())
    });
}

/// Returns the last processor time in seconds that a cgroup had before it disappeared.
fn last_seconds(cgroup: &str) -> f64 {
    let mut last = 0.0;
    while let Some(seconds) = cgroup_seconds(cgroup) {
        last = seconds;
        std::thread::sleep(Duration::from_millis(20));
    }
    last
}

fn check_array(url: &str, array: &[i64]) {
    for (index, id) in array.iter().enumerate() {
        let job = over(url, *id)["job"].clone();
        assert_eq!((&job["part_of"], &job["array_index"]), (&array[0].into(), &(index + 1).into()));
        assert_eq!((&job["state"], &job["exit_code"]), (&"failed".into(), &3.into()), "{job}");
    }
}

fn check_heavy(job: &Value, used: f64) {
    assert_eq!((&job["job"]["state"], &job["job"]["exit_code"]), (&"ended".into(), &0.into()));
    assert_eq!(job["allocations"].as_array().unwrap().len(), 1, "{}", job["allocations"]);
    let share = &job["nodes"][0];
    assert_eq!((&share["device"], &share["cpus"]), (&"oarnode1".into(), &1.into()), "{share}");
    // Each core of the node has an accelerator with the same number.
    assert_eq!((&share["gpus"], &share["gpu_list"]), (&1.into(), &share["cpu_list"]), "{share}");
    assert!(share["cpu_list"] == "0" || share["cpu_list"] == "1", "{share}");
    let requested = &job["job"]["requested"];
    assert_eq!((&requested["nodes"], &requested["cpus"]), (&1.into(), &1.into()), "{requested}");
    assert!(job["job"]["used"]["wall_seconds"].as_f64().is_some_and(|wall| wall > 10.0), "{job}");
    let number =
        |name: &str| job["totals"][name].as_f64().unwrap_or_else(|| panic!("no {name}: {job}"));
    let cpu = number("cpu_seconds");
    println!("accounted {cpu} s, {used} s by the cgroup");
    assert!(used > 31.0 && (cpu - used).abs() <= used * 0.01, "{cpu} s of {used} s");
    assert!((64.0..300.0).contains(&(number("memory_peak_bytes") / MIB)), "{job}");
    assert!((32.0..40.0).contains(&(number("io_write_bytes") / MIB)), "{job}");
}

/// Servers that use OAR's REST API, or its database by TCP, both with TLS, have the same data of every job.
fn by_tls(machine: &Machine, url: &str, password: &str) {
    machine.run("rest_start");
    let database = "host=oarserver port=15432 user=oar_ro dbname=oar sslmode=require";
    let ca = machine.dir().join("tls.pem");
    let ca = ["--schedulers-oar-ca", ca.to_str().unwrap()];
    let rest = ["--schedulers-oar-rest", "https://oarserver:18888/oarapi"];
    has_the_same_jobs(machine, url, &[&rest[..], &ca].concat());
    let database =
        ["--schedulers-oar-database", database, "--schedulers-oar-password-file", password];
    has_the_same_jobs(machine, url, &[&database[..], &ca].concat());
    // The system's authorities did not sign the certificate.
    let mut server = server_within(machine, &database);
    let own = crate::common::programs::ready(&mut server);
    let error = until("a failed poll", Duration::from_secs(30), || {
        let mut ask = machine.within("curl");
        let (_, out, _) = output(ask.args(["-s", &format!("{own}/api/v1/schedulers")]));
        out.contains("invalid peer certificate").then_some(out)
    });
    assert!(error.contains("UnknownIssuer"), "{error}");
    assert_eq!(server.end(), 0);
}

fn server_within(machine: &Machine, settings: &[&str]) -> Running {
    let mut command = machine.within(program("jobmeter-server").to_str().unwrap());
    let data = tempfile::tempdir_in(machine.folder.path()).unwrap().keep();
    command.args(["--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0"]).args(settings);
    Running::start(command.stdout(std::process::Stdio::piped()))
}

fn has_the_same_jobs(machine: &Machine, url: &str, settings: &[&str]) {
    let mut server = server_within(machine, settings);
    let own = crate::common::programs::ready(&mut server);
    let jobs = |command: &mut Command, url: &str| {
        let (_, out, _) = output(command.args(["jobs", "--json", "--server", url]));
        let jobs: Vec<Value> = serde_json::from_str(&out).unwrap_or_default();
        let facts = |job: Value| {
            let keys = ["id", "user", "project", "name", "queue", "state", "submit", "types"];
            let more = ["exit_code", "requested", "devices"];
            keys.iter().chain(&more).map(|key| job[key].clone()).collect::<Vec<_>>()
        };
        let mut read_text: Vec<_> =
            jobs.into_iter().filter(|job| job["cluster"] == "oar").map(facts).collect();
        read_text.sort_by_key(|job| job[0].as_i64());
        read_text
    };
    let want = jobs(&mut Command::new(program("jobmeter")), url);
    assert_eq!(want.len(), 3);
    let read_text = until("every job", Duration::from_secs(20), || {
        let read_text = jobs(&mut machine.within(program("jobmeter").to_str().unwrap()), &own);
        (read_text.len() == want.len()).then_some(read_text)
    });
    assert_eq!(read_text, want, "{settings:?}");
    assert_eq!(server.end(), 0);
}
