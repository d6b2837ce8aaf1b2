//! Faults of the database under load: agents send, clients query, and afterwards each printed sample is stored once or in a gap.

mod full;
mod locks;
mod outages;
mod restored;

use crate::common::database::{Database, query};
use crate::common::programs::{Running, Server, program, until};
use crate::numbers::conservation::{self, printed, seconds};
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Everything that waits with the agents is stored this long after the end of a fault (operator's guide).
const ARRIVAL_MAX: Duration = Duration::from_secs(30);
/// The longest time of a query during a fault.
const QUERY_MAX: Duration = Duration::from_secs(20);
const AGENTS: usize = 3;
const SETTLE: Duration = Duration::from_secs(2);

/// A number of rounds or seconds that `make soak` sets.
fn longer(variable: &str, short: u64) -> u64 {
    std::env::var(variable).ok().and_then(|number| number.parse().ok()).unwrap_or(short)
}

/// A server on a database, agents, and clients that query.
struct Site {
    dir: tempfile::TempDir,
    /// The folder of the database.
    folder: PathBuf,
    database: Option<Database>,
    /// The name of the database.
    name: &'static str,
    server: Server,
    agents: Vec<Running>,
    clients: Option<Clients>,
}

impl Site {
    /// Starts all on a database that exists, with a folder below that of the site.
    fn start(dir: tempfile::TempDir, database: Database, name: &'static str) -> Self {
        let folder = dir.path().join("database");
        let server = Server::start(
            &dir.path().join("data"),
            &arguments(&folder, name).each_ref().map(String::as_str),
        );
        let clients = Some(Clients::start(&server.url));
        let mut site = Self {
            dir,
            folder,
            database: Some(database),
            name,
            server,
            agents: Vec::new(),
            clients,
        };
        (1..=AGENTS).for_each(|number| site.start_agent(number));
        std::thread::sleep(Duration::from_secs(3));
        site
    }

    /// The same with a new database.
    fn new() -> Self {
        let dir = folder();
        let database = Database::start(&dir.path().join("database"));
        Self::start(dir, database, "postgres")
    }

    fn start_agent(&mut self, number: usize) {
        let file = File::options().create(true).append(true).open(self.printed()).unwrap();
        let mut command = Command::new(program("jobmeter-agent"));
        command.env("JOBMETER_AGENT_FILE", "/dev/null").env("JOBMETER_JOBS_SCHEDULERS", "local");
        command.env("JOBMETER_JOBS_UNITS", "false");
        command.args(["--server", &self.server.url, "--period", "500ms", "--print", "--device"]);
        command
            .arg(format!("n{number}"))
            .arg("--spool")
            .arg(self.dir.path().join(format!("spool{number}")));
        self.agents.push(Running::start(command.stdout(file)));
    }

    fn printed(&self) -> PathBuf {
        self.dir.path().join("printed")
    }

    /// Starts the server again after it ended.
    fn again(&mut self) {
        let arguments = arguments(&self.folder, self.name);
        self.server.again(&self.dir.path().join("data"), &arguments.each_ref().map(String::as_str));
    }

    /// The answer of a statement in the database.
    fn sql(&self, statement: &str) -> Result<String, String> {
        query(&self.folder, self.name, "postgres", statement).map(|text| text.trim().to_owned())
    }

    /// Waits until the samples since an instant are stored. Returns how long it took.
    fn arrived_since(&self, since: u64) -> Duration {
        let began = Instant::now();
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
        // Agents print a sample before they send it.
        std::thread::sleep(Duration::from_secs(1));
        let wanted = count_between(&self.printed(), since..now);
        let count = format!(
            "WITH span AS (SELECT to_timestamp({since}) AS since, to_timestamp({now}) AS now) \
             SELECT (SELECT count(*) FROM metrics, span WHERE timestamp >= since AND timestamp < now) \
             + (SELECT count(*) FROM jobmeter.job_metrics, span WHERE timestamp >= since AND timestamp < now)"
        );
        until("the samples that wait with the agents", ARRIVAL_MAX, || {
            let stored: usize = self.sql(&count).ok()?.parse().ok()?;
            (stored >= wanted).then_some(())
        });
        println!("{wanted} samples are stored {:?} after the fault", began.elapsed());
        began.elapsed()
    }

    /// Waits until all samples of up to now are stored.
    fn arrived(&self) -> Duration {
        self.arrived_since(0)
    }

    /// Whether agents saw that the server does not accept batches now.
    fn agents_waited(&self) -> bool {
        self.agents.iter().any(|agent| agent.errors().contains("the server responds 503"))
    }

    /// Ends the agents and the clients. Each printed sample is stored once or in a gap. Returns the number of those in gaps, and what the
    /// clients saw.
    fn end(mut self) -> (u64, Vec<Answer>) {
        for mut agent in self.agents.drain(..) {
            assert_eq!(agent.end(), 0, "{}", agent.errors());
        }
        std::thread::sleep(SETTLE);
        let answers = self.clients.take().unwrap().end();
        let missing = conservation::check(&self.server.url, &self.printed(), 0);
        let counts = "SELECT count(*), count(DISTINCT (timestamp, device_id, metric_id, labels)) FROM metrics";
        let counts = self.sql(counts).unwrap();
        let (all, different) = counts.split_once('|').unwrap();
        assert_eq!(all, different, "each sample is stored once");
        for answer in &answers {
            assert!(answer.took < QUERY_MAX, "{answer:?}");
            let is_clear = answer.status == 503 && answer.text.contains("57P03");
            assert!(answer.status == 200 || answer.status == 0 || is_clear, "{answer:?}");
        }
        (missing, answers)
    }
}

/// A new folder that another user may enter, with one for the database.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o711)).unwrap();
    std::fs::create_dir(dir.path().join("database")).unwrap();
    dir
}

fn arguments(folder: &Path, name: &str) -> [String; 4] {
    let parameters = format!("host={} user=postgres dbname={name}", folder.display());
    ["--store", "postgres", "--postgres-database", &parameters].map(str::to_owned)
}

/// The number of printed samples of some seconds.
fn count_between(file: &Path, span: std::ops::Range<u64>) -> usize {
    let samples = printed(file);
    let mut instants: std::collections::BTreeMap<&str, usize> = std::collections::BTreeMap::new();
    samples.keys().for_each(|key| *instants.entry(&key.4).or_default() += 1);
    let is_within = |at: &str| {
        let at: jiff::Timestamp = at.parse().unwrap();
        span.contains(&u64::try_from(at.as_second()).unwrap())
    };
    instants.iter().filter(|(at, _)| is_within(at)).map(|(_, count)| count).sum()
}

/// An answer to a client.
#[derive(Debug)]
struct Answer {
    /// 0: the server did not answer, or the answer broke off.
    status: u16,
    text: String,
    took: Duration,
}

/// Clients that query all the time.
struct Clients {
    ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<Answer>>>,
}

impl Clients {
    fn start(url: &str) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let paths = [
            "/rpc/get_metrics?nodes=n1&metrics=load_1m&start_time=2020-01-01&end_time=now",
            "/api/v1/range?device=n2&metric=load_1m&start=0&end=now",
            "/api/v1/health",
        ];
        let client = |path: &str| {
            let (url, ended) = (format!("{url}{path}"), Arc::clone(&ended));
            std::thread::spawn(move || {
                let mut answers = Vec::new();
                while !ended.load(Ordering::Relaxed) {
                    answers.push(request(&url));
                    std::thread::sleep(Duration::from_millis(100));
                }
                answers
            })
        };
        Self { threads: paths.map(client).into(), ended }
    }

    fn end(self) -> Vec<Answer> {
        self.ended.store(true, Ordering::Relaxed);
        self.threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    }
}

/// Requests a URL of a server that may be down.
fn request(url: &str) -> Answer {
    let began = Instant::now();
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(2 * QUERY_MAX))
        .build()
        .into();
    let read = |mut answer: ureq::http::Response<ureq::Body>| {
        let text = answer.body_mut().read_to_string()?;
        Ok((answer.status().as_u16(), text))
    };
    let (status, text) =
        agent.get(url).call().and_then(read).unwrap_or_else(|error| (0, error.to_string()));
    let text = if status == 200 { String::new() } else { text };
    Answer { status, text, took: began.elapsed() }
}

/// The number of answers with a status.
fn answers_with(answers: &[Answer], status: u16) -> usize {
    answers.iter().filter(|answer| answer.status == status).count()
}

/// The gaps of acknowledged batches that a restored database lacks.
fn lost_batches(url: &str) -> Vec<conservation::Gap> {
    let lost = |gap: &conservation::Gap| gap.why.contains("batches lost");
    conservation::gaps(url).into_iter().filter(lost).collect()
}

/// The printed instants of a device, in seconds since 1970.
fn instants_of(file: &Path, device: &str) -> Vec<f64> {
    let mut instants: Vec<String> =
        printed(file).into_keys().filter(|key| key.1 == device).map(|key| key.4).collect();
    instants.dedup();
    instants.sort();
    instants.dedup();
    instants.iter().map(|at| seconds(at)).collect()
}
