//! A store with outputs, carbon-cache and graphite-web.

use config::{ConfigFile, ConfigInputs};
use conformance::Outcome;
use conformance::of_storage::append;
use model::{
    Batch, Boot, ClusterId, DeviceId, JobId, JobKey, Kind, Labels, Metric, Origin, SeriesEntry,
    SeriesTable, Tick, Timestamp, Unit,
};
use outputs::Outputs;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use storage::Storage;
use store::{Settings, Store};
use tempfile::TempDir;

pub(super) const S: i64 = Timestamp::SECOND;

pub(super) fn now() -> Timestamp {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Timestamp(i64::try_from(now.as_micros()).unwrap())
}

fn outputs_of(store: &Arc<dyn Storage>, dir: &Path) -> Outputs {
    Outputs::new(Arc::clone(store), dir.join("outputs"), Arc::new(now))
}

/// A store and its outputs.
pub(super) struct Site {
    pub(super) dir: TempDir,
    pub(super) store: Arc<dyn Storage>,
    pub(super) outputs: Outputs,
    seq: u64,
}

/// Metric, labels, job, instant, value.
pub(super) type Sample<'a> = (&'a str, &'a [(&'a str, &'a str)], Option<i64>, i64, f64);

impl Site {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("samples");
        let (store, _) = Store::open(&path, Settings::default(), Arc::new(now)).unwrap();
        let store: Arc<dyn Storage> = Arc::new(store);
        let outputs = outputs_of(&store, dir.path());
        Self { dir, store, outputs, seq: 0 }
    }

    /// Ends the outputs, and begins them again.
    pub(super) fn restart_outputs(&mut self, text: &str) {
        self.outputs.stop(Duration::from_secs(30));
        self.outputs = outputs_of(&self.store, self.dir.path());
        self.apply(text);
    }

    pub(super) fn apply(&self, text: &str) {
        let file = self.dir.path().join("server.toml");
        fs::write(&file, text).unwrap();
        let given = ConfigInputs {
            file: ConfigFile::Given(file),
            environment: &|_| None,
            flags: Vec::new(),
        };
        self.outputs.apply(&config::load_server(&given, &outputs::kinds()).unwrap().config.outputs);
    }

    /// Stores samples of one node, ordered by time.
    pub(super) fn store(&mut self, device: &str, samples: &[Sample<'_>]) {
        let entries = samples.iter().map(|(metric, labels, job, ..)| {
            let kind = if metric.ends_with("_total") { Kind::Counter } else { Kind::Gauge };
            let (unit, help) = (Unit::Count, "what is counted".into());
            let name = (*metric).to_owned().into();
            SeriesEntry {
                metric: Arc::new(Metric { name, unit, kind, help, divisor: 1, assumed: false }),
                device: DeviceId::new(device).unwrap(),
                job: job.map(|id| JobKey {
                    cluster: ClusterId::new("oar").unwrap(),
                    id: JobId::new(id).unwrap(),
                }),
                labels: Labels::new(labels.iter().copied()).unwrap(),
                start: None,
            }
        });
        let mut ticks: Vec<Tick> = Vec::new();
        for (.., at, _) in samples {
            match ticks.last_mut() {
                Some(tick) if tick.at.0 == *at => tick.samples += 1,
                _ => ticks.push(Tick { at: Timestamp(*at), samples: 1 }),
            }
        }
        let batch = Batch {
            origin: Origin::new(device).unwrap(),
            boot: Boot([1; 16]),
            seq: self.seq,
            table: Arc::new(SeriesTable { entries: entries.collect() }),
            ticks,
            index: (0..).take(samples.len()).collect(),
            values: samples.iter().map(|(.., value)| *value).collect(),
            gaps: Vec::new(),
            jobs: Vec::new(),
        };
        self.seq += 1;
        assert_eq!(append(&*self.store, vec![(batch, now())]), [Outcome::STORED]);
    }
}

/// Waits until something is true, at most a minute.
pub(super) fn wait_for<T>(what: &str, mut is: impl FnMut() -> Result<T, String>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        match is() {
            Ok(found) => return found,
            Err(why) if Instant::now() > end => panic!("{what}: {why}"),
            Err(_) => std::thread::sleep(Duration::from_millis(200)),
        }
    }
}

fn free_ports<const N: usize>() -> [u16; N] {
    let open = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    open.map(|listener| listener.local_addr().unwrap().port())
}

/// A program that ends with the test.
pub(super) struct Running(Child);

impl Running {
    fn start(command: &mut Command, package: &str, log: PathBuf) -> Self {
        let log = fs::File::options().create(true).append(true).open(log).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let child = command.spawn();
        Self(child.unwrap_or_else(|error| {
            panic!("{command:?}: {error}; `apt-get install {package}`, as `make test` does")
        }))
    }

    pub(super) fn end(mut self, signal: &str) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
        self.0.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// The folder and the ports of carbon-cache and graphite-web.
pub(super) struct Graphite {
    dir: PathBuf,
    pub(super) ports: [u16; 4],
}

impl Graphite {
    pub(super) fn new(dir: PathBuf) -> Self {
        let ports = free_ports();
        let [line, pickle, query, _] = ports;
        for folder in ["", "storage", "storage/log", "storage/whisper"] {
            fs::create_dir_all(dir.join(folder)).unwrap();
        }
        let path = dir.display();
        // Writes so slowly that a kill always loses points.
        let conf = format!(
            "[cache]\nSTORAGE_DIR = {path}/storage\nCONF_DIR = {path}\nLOG_DIR = {path}/storage/log\n\
             PID_DIR = {path}\nLOCAL_DATA_DIR = {path}/storage/whisper\nUSER =\nMAX_CACHE_SIZE = inf\n\
             MAX_UPDATES_PER_SECOND = 30\nMAX_UPDATES_PER_SECOND_ON_SHUTDOWN = 10000\n\
             MAX_CREATES_PER_MINUTE = inf\nLINE_RECEIVER_INTERFACE = 127.0.0.1\nLINE_RECEIVER_PORT = {line}\n\
             PICKLE_RECEIVER_INTERFACE = 127.0.0.1\nPICKLE_RECEIVER_PORT = {pickle}\n\
             CACHE_QUERY_INTERFACE = 127.0.0.1\nCACHE_QUERY_PORT = {query}\nLOG_UPDATES = False\n\
             LOG_CREATES = False\nENABLE_TAGS = False\n"
        );
        fs::write(dir.join("carbon.conf"), conf).unwrap();
        fs::write(dir.join("storage-schemas.conf"), "[all]\npattern = .*\nretentions = 1s:1h\n")
            .unwrap();
        let settings = format!(
            "SECRET_KEY = 'x' * 50\nSTORAGE_DIR = '{path}/storage'\nWHISPER_DIR = '{path}/storage/whisper'\n\
             CONF_DIR = '{path}'\nLOG_DIR = '{path}/storage/log'\nINDEX_FILE = '{path}/storage/index'\n\
             CARBONLINK_HOSTS = ['127.0.0.1:{query}']\nALLOWED_HOSTS = ['*']\nTIME_ZONE = 'UTC'\n\
             DATABASES = {{'default': {{'NAME': '{path}/graphite.db', 'ENGINE': 'django.db.backends.sqlite3'}}}}\n"
        );
        fs::write(dir.join("local_settings.py"), settings).unwrap();
        Self { dir, ports }
    }

    pub(super) fn carbon(&self) -> Running {
        fs::remove_file(self.dir.join("carbon-cache-a.pid")).ok();
        let mut command = Command::new("/usr/bin/carbon-cache");
        command.arg(format!("--config={}", self.dir.join("carbon.conf").display()));
        command.args(["--nodaemon", "start"]);
        Running::start(&mut command, "graphite-carbon", self.dir.join("carbon.log"))
    }

    pub(super) fn web(&self) -> Running {
        let set = |command: &mut Command| {
            command.env("PYTHONPATH", &self.dir).env("GRAPHITE_SETTINGS_MODULE", "local_settings");
            command.env("DJANGO_SETTINGS_MODULE", "graphite.settings");
        };
        let log = self.dir.join("web.log");
        let mut migrate = Command::new("/usr/bin/django-admin");
        set(migrate.args(["migrate", "--run-syncdb"]));
        let mut migrated = Running::start(&mut migrate, "graphite-web", log.clone());
        assert!(migrated.0.wait().unwrap().success(), "{}", fs::read_to_string(&log).unwrap());
        let mut command = Command::new("/usr/bin/gunicorn");
        command.args(["-b", &format!("127.0.0.1:{}", self.ports[3]), "--timeout", "120"]);
        command.arg("--pythonpath").arg(&self.dir).arg("graphite.wsgi:application");
        set(&mut command);
        Running::start(&mut command, "gunicorn", log)
    }

    /// The series of some targets in a span of seconds: of each path, its values by second.
    pub(super) fn render(
        &self,
        targets: &[&str],
        (first, last): (i64, i64),
    ) -> Result<BTreeMap<String, BTreeMap<i64, f64>>, String> {
        let targets: String = targets.iter().map(|target| format!("&target={target}")).collect();
        let get = format!(
            "GET /render?format=json&from={}&until={last}&noCache=1{targets} HTTP/1.0\r\n\r\n",
            first - 1
        );
        let mut answer = Vec::new();
        let mut connection =
            TcpStream::connect(("127.0.0.1", self.ports[3])).map_err(|error| error.to_string())?;
        connection.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        connection.write_all(get.as_bytes()).map_err(|error| error.to_string())?;
        connection.read_to_end(&mut answer).map_err(|error| error.to_string())?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        let series: Vec<Value> = serde_json::from_str(body).map_err(|_| answer.clone())?;
        let values = |one: &Value| {
            let points = one["datapoints"].as_array().unwrap().iter();
            points.filter_map(|point| Some((point[1].as_i64()?, point[0].as_f64()?))).collect()
        };
        Ok(series
            .iter()
            .map(|one| (one["target"].as_str().unwrap().to_owned(), values(one)))
            .collect())
    }
}
