//! The output `graphite`, carbon-cache and graphite-web: Carbon is stopped and killed under a stream of samples, and afterwards
//! graphite-web shows each value of FrUCToSA that the store has, without a gap. CPython reads our pickles.

use colmet::equivalent::Ours;
use colmet::formula::{Formula, Selector as Operand};
use colmet::fructosa::GROUPS;
use config::{ConfigFile, ConfigInputs};
use conformance::Outcome;
use conformance::of_storage::append;
use model::{
    Batch, Boot, ClusterId, DeviceId, JobId, JobKey, Kind, Labels, Metric, Origin, SeriesEntry,
    SeriesTable, Tick, Timestamp, Unit,
};
use outputs::{FillState, OutputState, Outputs};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use storage::{Selector, Storage};
use store::{Settings, Store};
use tempfile::TempDir;

const S: i64 = Timestamp::SECOND;

fn now() -> Timestamp {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Timestamp(i64::try_from(now.as_micros()).unwrap())
}

fn outputs_of(store: &Arc<dyn Storage>, dir: &Path) -> Outputs {
    Outputs::new(Arc::clone(store), dir.join("outputs"), Arc::new(now))
}

/// A store and its outputs.
struct Site {
    dir: TempDir,
    store: Arc<dyn Storage>,
    outputs: Outputs,
    seq: u64,
}

/// Metric, labels, job, instant, value.
type Sample<'a> = (&'a str, &'a [(&'a str, &'a str)], Option<i64>, i64, f64);

impl Site {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("samples");
        let (store, _) = Store::open(&path, Settings::default(), Arc::new(now)).unwrap();
        let store: Arc<dyn Storage> = Arc::new(store);
        let outputs = outputs_of(&store, dir.path());
        Self { dir, store, outputs, seq: 0 }
    }

    /// Ends the outputs, and begins them again.
    fn restart_outputs(&mut self, text: &str) {
        self.outputs.stop(Duration::from_secs(30));
        self.outputs = outputs_of(&self.store, self.dir.path());
        self.apply(text);
    }

    fn apply(&self, text: &str) {
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
    fn store(&mut self, device: &str, samples: &[Sample<'_>]) {
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
fn wait_for<T>(what: &str, mut is: impl FnMut() -> Result<T, String>) -> T {
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
struct Running(Child);

impl Running {
    fn start(command: &mut Command, package: &str, log: PathBuf) -> Self {
        let log = fs::File::options().create(true).append(true).open(log).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let child = command.spawn();
        Self(child.unwrap_or_else(|error| {
            panic!("{command:?}: {error}; `apt-get install {package}`, as `make test` does")
        }))
    }

    fn end(mut self, signal: &str) {
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
struct Graphite {
    dir: PathBuf,
    ports: [u16; 4],
}

impl Graphite {
    fn new(dir: PathBuf) -> Self {
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

    fn carbon(&self) -> Running {
        fs::remove_file(self.dir.join("carbon-cache-a.pid")).ok();
        let mut command = Command::new("/usr/bin/carbon-cache");
        command.arg(format!("--config={}", self.dir.join("carbon.conf").display()));
        command.args(["--nodaemon", "start"]);
        Running::start(&mut command, "graphite-carbon", self.dir.join("carbon.log"))
    }

    fn web(&self) -> Running {
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
    fn render(
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

/// Every metric of FrUCToSA's sensors, with the labels of a node; not those of jobs.
fn metrics() -> Vec<(&'static str, Vec<(&'static str, &'static str)>)> {
    let mut all = BTreeMap::new();
    for group in GROUPS.iter().filter(|group| group.name != "Users") {
        for metric in
            group.rows.iter().flat_map(|row| row.ours.formulas()).flat_map(Formula::metrics)
        {
            let labels = match group.name {
                "CPUPercent" => vec![("cpu", "0")],
                "DiskUsage" => vec![("mount", "/")],
                "NetIFStats" => vec![("interface", "eth0.100")],
                "SensorsTemperatures" => vec![("chip", "k10 temp"), ("sensor", "temp1")],
                "SensorsFans" => vec![("chip", "nct"), ("device", "nct.1"), ("sensor", "fan1")],
                _ => Vec::new(),
            };
            all.insert(metric, labels);
        }
    }
    all.into_iter().collect()
}

/// FrUCToSA's own paths, by its manual: A sensor and its keys.
const PATHS: &[(&str, &str)] = &[
    ("CPUPercent", "0"),
    (
        "VirtualMemory",
        "total available percent used free active inactive buffers cached shared slab",
    ),
    ("CPUTimes", "user nice system idle iowait irq softirq steal guest guest_nice"),
    ("CPUTimesPercent", "user nice system idle iowait irq softirq steal guest guest_nice"),
    ("CPUCount", ""),
    // psutil always returns 0 as `syscalls`: there is no such metric.
    ("CPUStats", "ctx_switches interrupts soft_interrupts"),
    ("CPUFreq", "current min max"),
    ("SwapMemory", "total used free percent sin sout"),
    ("DiskUsage", "total used free percent"),
    (
        "DiskIOCounters",
        "read_count write_count read_bytes write_bytes read_time write_time read_merged_count write_merged_count busy_time",
    ),
    (
        "NetIOCounters",
        "bytes_sent bytes_recv packets_sent packets_recv errin errout dropin dropout",
    ),
    ("SensorsBattery", "percent secsleft power_plugged"),
    ("BootTime", ""),
    // Numbers that FrUCToSA sends in lists, which Carbon rejects.
    ("NetIFStats", "eth0_100.isup eth0_100.duplex eth0_100.speed eth0_100.mtu"),
    ("SensorsTemperatures", "k10_temp.temp1.current"),
    ("SensorsFans", "nct.nct_1.fan1.current"),
];

fn paths() -> Vec<String> {
    let each = PATHS.iter().flat_map(|(sensor, keys)| {
        let path = move |key: &str| {
            format!("site.n1.{sensor}{}{key}", if key.is_empty() { "" } else { "." })
        };
        keys.split(' ').map(path)
    });
    each.collect()
}

/// What the store's samples are as values of FrUCToSA: of each path, its values by second.
fn expected(store: &dyn Storage) -> BTreeMap<String, BTreeMap<i64, f64>> {
    let mut samples: BTreeMap<(String, i64), f64> = BTreeMap::new();
    let all = (Timestamp(0), Timestamp(i64::MAX));
    for chunk in store.snapshot().scan(&Selector::default(), all.0, all.1) {
        let chunk = chunk.unwrap();
        for (at, value, _) in chunk.rows().filter(|_| chunk.series.series.job.is_none()) {
            samples.insert((chunk.series.series.metric.to_string(), at.0 / S), value);
        }
    }
    let seconds: BTreeSet<i64> = samples.keys().map(|(_, second)| *second).collect();
    let mut values: BTreeMap<String, BTreeMap<i64, f64>> = BTreeMap::new();
    let known: BTreeMap<&str, Vec<String>> = PATHS
        .iter()
        .map(|(sensor, _)| {
            let prefix = format!("site.n1.{sensor}");
            let is_of = |path: &String| *path == prefix || path.starts_with(&format!("{prefix}."));
            (*sensor, paths().into_iter().filter(is_of).collect())
        })
        .collect();
    for group in GROUPS.iter().filter(|group| known.contains_key(group.name)) {
        for row in group.rows.iter().filter(|row| !row.ours.formulas().is_empty()) {
            let key = if row.theirs == "N" { "0" } else { row.theirs };
            let ends = |path: &&String| path.ends_with(&format!(".{key}")) || key == "value";
            let path = known[group.name].iter().find(ends).unwrap();
            for second in &seconds {
                let of = |operand: Operand<'_>, at| {
                    samples.get(&(operand.metric.to_owned(), at)).copied()
                };
                let value = |operand: Operand<'_>| match row.ours {
                    Ours::Grows(_) => Some(of(operand, *second)? - of(operand, second - 1)?),
                    _ => of(operand, *second),
                };
                if let Some(value) = row.ours.formulas()[0].compute("0", &value) {
                    values.entry(path.clone()).or_default().insert(*second, value);
                }
            }
        }
    }
    values
}

/// Compares the values of each path; the first difference is an error.
fn compare(
    found: &BTreeMap<String, BTreeMap<i64, f64>>,
    expected: &BTreeMap<String, BTreeMap<i64, f64>>,
) -> Result<(), String> {
    for (path, values) in expected {
        let found = found.get(path).ok_or_else(|| format!("{path} is missing"))?;
        let wrong = values.iter().find(|(second, value)| {
            let found = found.get(second).copied().unwrap_or(f64::INFINITY);
            (found - **value).abs() > 1e-9 * value.abs()
        });
        if let Some((second, value)) = wrong {
            let missing = values.keys().filter(|second| !found.contains_key(second)).count();
            let is = found.get(second);
            return Err(format!(
                "{path} at {second} is {is:?}, not {value}; {missing} are missing"
            ));
        }
    }
    Ok(())
}

#[test]
fn carbon_is_stopped_and_killed_and_no_path_has_a_gap() {
    const TICKS: i64 = 5;
    let mut site = Site::new();
    let graphite = Graphite::new(site.dir.path().join("graphite"));
    let _web = graphite.web();
    let config = format!(
        "[outputs.graphite]\naddress = \"127.0.0.1:{}\"\ntree = \"fructosa\"\nprefix = \"site\"\nresend = \"10m\"\n",
        graphite.ports[1]
    );
    site.apply(&config);
    let metrics = metrics();
    let begin = now().0 / S - 2000;
    let mut second = begin;
    let mut stream = |site: &mut Site, times: i64| {
        for _ in 0..times {
            let mut samples: Vec<Sample<'_>> = Vec::new();
            for at in second..second + TICKS {
                for (place, (metric, labels)) in (1..).zip(&metrics) {
                    // Counters grow by another amount each second, gauges change.
                    let value =
                        f64::from(place) * 1000.0 + (at - begin) as f64 * f64::from(place % 7 + 1);
                    samples.push((metric, labels, None, at * S, value));
                }
                samples.push(("cpu_user_seconds_total", &[], Some(7), at * S, 1e9));
            }
            site.store("n1.example.org", &samples);
            second += TICKS;
            std::thread::sleep(Duration::from_millis(200));
        }
    };
    let mut carbon = graphite.carbon();
    stream(&mut site, 10);
    for signal in ["TERM", "KILL", "KILL", "TERM", "KILL"] {
        // It receives points, and has not written all of them.
        wait_for("Carbon receives", || {
            let status = &site.outputs.status()[0];
            let is_sending = status.state == OutputState::Working && status.behind == Some(0);
            if is_sending { Ok(()) } else { Err(format!("{status:?}")) }
        });
        stream(&mut site, 5);
        carbon.end(signal);
        stream(&mut site, 5);
        carbon = graphite.carbon();
        if signal == "TERM" {
            stream(&mut site, 3);
            site.restart_outputs(&config);
        }
    }
    stream(&mut site, 5);
    let expected = expected(&*site.store);
    let mut names: Vec<&String> = expected.keys().collect();
    let mut all = paths();
    all.sort();
    names.sort();
    assert_eq!(names, all.iter().collect::<Vec<_>>());
    let targets: [String; 5] =
        std::array::from_fn(|deep| format!("site.n1{}", ".*".repeat(deep + 1)));
    let targets = targets.each_ref().map(String::as_str);
    wait_for("graphite-web", || {
        let found = graphite.render(&targets, (begin, second - 1))?;
        compare(&found, &expected)
    });
    let status = &site.outputs.status()[0];
    assert!(status.resent > 0, "{status:?}");
    // Some of them without our formulas: the whole, its parts, and units.
    let found = graphite.render(&["site.n1.*.*"], (begin, second - 1)).unwrap();
    let at = |path: &str| found[&format!("site.n1.{path}")][&(second - 1)];
    let memory = ["total", "available", "used"].map(|key| at(&format!("VirtualMemory.{key}")));
    assert!((memory[0] - memory[1] - memory[2]).abs() < 1e-6, "{memory:?}");
    let times = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"];
    let percent: f64 = times.iter().map(|key| at(&format!("CPUTimesPercent.{key}"))).sum();
    assert!((percent - 100.0).abs() < 1e-9, "{percent}");
    drop(carbon);
}

/// Receives bytes until the other side closes.
fn sink() -> (u16, std::thread::JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let receive = move || {
        let mut bytes = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut bytes).unwrap();
        bytes
    };
    (port, std::thread::spawn(receive))
}

/// Reads frames as Carbon does, and prints the points as JSON.
const UNPICKLE: &str = "
import json, pickle, struct, sys
data, points = sys.stdin.buffer.read(), []
while data:
    length, = struct.unpack('!L', data[:4])
    points += [[path, repr(value), at] for path, (at, value) in pickle.loads(data[4:4 + length])]
    data = data[4 + length:]
json.dump(points, sys.stdout)
";

#[test]
fn cpython_reads_the_points_that_plaintext_has() {
    let mut site = Site::new();
    let begin = (now().0 / S - 5000) * S;
    let texts = ["/", "../n2", "a b", "a_b", "a;b=c", "é", "\"'{}*", "..", "x".repeat(400).leak()];
    let mut bits: u64 = 88_172_645_463_325_252;
    for at in 0..200 {
        let mut samples: Vec<Sample<'_>> = Vec::new();
        let labels: Vec<[(&str, &str); 1]> = texts.iter().map(|text| [("part", *text)]).collect();
        for labels in &labels {
            // Xorshift: any bits, so NaN, infinities and denormal numbers too.
            bits ^= bits << 13;
            bits ^= bits >> 7;
            bits ^= bits << 17;
            samples.push(("load_1m", labels, Some(7), begin + at * S / 2, f64::from_bits(bits)));
        }
        site.store("n1", &samples);
    }
    let ((pickle, pickled), (plain, lines)) = (sink(), sink());
    let one = |name: &str, port: u16| {
        format!(
            "[outputs.{name}]\nkind = \"graphite\"\naddress = \"127.0.0.1:{port}\"\nprotocol = \"{name}\"\n"
        )
    };
    site.apply(&(one("pickle", pickle) + &one("plaintext", plain)));
    for name in ["pickle", "plaintext"] {
        site.outputs.fill(name, (Timestamp(0), now()), None).unwrap();
    }
    wait_for("both ranges", || {
        let status = site.outputs.status();
        let is_done = |one: &outputs::OutputStatus| {
            one.fills.iter().all(|fill| matches!(fill.state, FillState::Done(_)))
        };
        if status.iter().all(is_done) { Ok(()) } else { Err(format!("{status:?}")) }
    });
    let lines = String::from_utf8(lines.join().unwrap()).unwrap();
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/python/bin/python");
    let mut python = Command::new(python);
    python.args(["-c", UNPICKLE]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = python.spawn().expect("target/python is missing; `make test` installs it");
    python.stdin.take().unwrap().write_all(&pickled.join().unwrap()).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success());
    let points: Vec<(String, String, i64)> = serde_json::from_slice(&output.stdout).unwrap();
    let lines: Vec<_> = lines.lines().map(|line| line.split(' ').collect::<Vec<_>>()).collect();
    assert!(points.len() > 1500 && points.len() == lines.len(), "{}", points.len());
    for ((path, value, at), line) in points.iter().zip(&lines) {
        let [path_of_line, value_of_line, at_of_line] = line[..] else { panic!("{line:?}") };
        assert_eq!((&**path, &*at.to_string()), (path_of_line, at_of_line));
        let values = [value, value_of_line].map(|value| value.parse::<f64>().unwrap().to_bits());
        assert_eq!(values[0], values[1], "{line:?}");
        let parts: Vec<&str> = path.split('.').collect();
        assert!(path.starts_with("n1.load_1m.job.oar.7.part.") && parts.len() == 7, "{path}");
    }
    let mut paths: Vec<&str> = points.iter().map(|(path, ..)| &**path).collect();
    paths.sort_unstable();
    paths.dedup();
    assert_eq!(paths.len(), texts.len());
}
