//! Every sample that an agent printed is stored or covered by a gap, even if processes are killed at any
//! time.

use crate::common::programs::{Running, Server, get, program, until};
use crate::common::up::jobmeter;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Fields that identify a sample: metric, device, job, labels and instant.
type Key = (String, String, String, String, String);

/// A small random generator; it prints its seed, so that `SEED` reproduces a failure.
struct Random(u64);

impl Random {
    fn seeded() -> Self {
        let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos();
        let seed = seed.unwrap_or_else(|| u64::from(now) | 1);
        println!("SEED={seed}");
        Self(seed)
    }

    /// Marsaglia, "Xorshift RNGs", 2003.
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn agent(url: &str, dir: &Path, printed: &Path) -> Running {
    let file = File::options().create(true).append(true).open(printed).unwrap();
    let mut command = Command::new(program("jobmeter-agent"));
    command.args(["--server", url, "--period", "1s", "--device", "n1", "--print"]);
    command.arg("--spool").arg(dir).stdout(file);
    Running::start(&mut command)
}

pub(crate) fn printed(file: &Path) -> BTreeMap<Key, String> {
    let text = std::fs::read_to_string(file).unwrap();
    // A kill may cut the last line, which is not a printed sample.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let mut samples = BTreeMap::new();
    for line in whole.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [metric, device, job, labels, at, _, value] = fields[..] else { continue };
        let key = [metric, device, job, labels, at].map(str::to_owned);
        samples.insert(key.into(), value.to_owned());
    }
    samples
}

fn stored(url: &str) -> BTreeMap<Key, Vec<f64>> {
    let query =
        "SELECT metric_id, device_id, cluster, job_id, labels, timestamp, value FROM metrics";
    let (code, out, errors) = jobmeter(url, &["sql", "--format", "json", query]);
    assert_eq!(code, 0, "{errors}");
    let rows: Vec<Value> = serde_json::from_str(&out).unwrap();
    let mut samples: BTreeMap<Key, Vec<f64>> = BTreeMap::new();
    for row in rows {
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        let job = match row["job_id"].as_i64() {
            Some(id) => format!("{}:{id}", text("cluster")),
            None => "-".to_owned(),
        };
        let labels = own_labels(&row["labels"]);
        // The agent prints the offset of UTC in digits.
        let at = text("timestamp").replace('Z', "+00:00");
        let key = (text("metric_id"), text("device_id"), job, labels, at);
        samples.entry(key).or_default().push(row["value"].as_f64().unwrap_or(f64::NAN));
    }
    samples
}

/// Returns the labels that the agent sent, without the job's labels, which the server adds to a job's row.
fn own_labels(labels: &Value) -> String {
    let text = labels.as_str().map_or_else(|| labels.to_string(), str::to_owned);
    let pairs: serde_json::Map<String, Value> = serde_json::from_str(&text).unwrap();
    let mut pairs: Vec<_> =
        pairs.into_iter().filter(|(k, _)| k != "_job_id" && k != "_cluster").collect();
    pairs.sort_by(|a, b| (a.0.len(), &a.0).cmp(&(b.0.len(), &b.0)));
    let shown: Vec<_> =
        pairs.iter().map(|(k, v)| format!("{}: {v}", Value::from(k.as_str()))).collect();
    format!("{{{}}}", shown.join(", "))
}

#[derive(Debug)]
pub(crate) struct Gap {
    pub(crate) device: String,
    pub(crate) from: f64,
    pub(crate) to: f64,
    /// Cause, source and detail.
    pub(crate) why: String,
}

pub(crate) fn gaps(url: &str) -> Vec<Gap> {
    let (status, body) = get(url, "/api/v1/gaps?start=0&end=now");
    assert_eq!(status, 200, "{body}");
    let rows: Vec<Value> = serde_json::from_str(&body).unwrap();
    let number = |row: &Value, key: &str| row[key].as_f64().unwrap();
    let gap = |row: &Value| Gap {
        device: row["device"].as_str().unwrap().to_owned(),
        from: number(row, "from"),
        to: number(row, "to"),
        why: format!("{} {} {}", row["cause"], row["source"], row["detail"]),
    };
    rows.iter().map(gap).collect()
}

/// Converts a printed time to seconds since 1970 with `date`.
pub(crate) fn seconds(at: &str) -> f64 {
    let (status, out, _) =
        crate::common::programs::output(Command::new("date").args(["-u", "-d", at, "+%s.%N"]));
    assert_eq!(status, 0);
    out.trim().parse().unwrap()
}

/// Checks that every printed sample is stored once or lies in a gap, and that no other sample is stored. Returns the number of
/// samples in gaps.
pub(crate) fn check(url: &str, file: &Path, rounds: u64) -> u64 {
    let printed = printed(file);
    let want = printed.len();
    let stored = stored(url);
    let mut lost: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for (key, value) in &printed {
        match stored.get(key) {
            Some(values) => {
                assert_eq!(values.len(), 1, "{key:?} is stored {} times", values.len());
                assert!((values[0] - value.parse::<f64>().unwrap()).abs() < 1e-9, "{key:?}");
            }
            None => *lost.entry((&key.1, &key.4)).or_default() += 1,
        }
    }
    let lost_at: Vec<(&str, f64)> =
        lost.keys().map(|(device, at)| (*device, seconds(at))).collect();
    let unreported = || {
        let gaps = gaps(url);
        let is_in =
            |gap: &Gap, device: &str, at: f64| gap.device == device && gap.from < at && at < gap.to;
        let is_unreported =
            |(device, at): &&(&str, f64)| !gaps.iter().any(|gap| is_in(gap, device, *at));
        let first = lost_at.iter().find(is_unreported)?;
        let near: Vec<_> = gaps.iter().map(|gap| (gap.from - first.1, gap.to - first.1)).collect();
        Some(format!("{first:?} is lost and no gap tells of it: {near:?}"))
    };
    // Lost batches that no record has count as missing a minute after the one behind them.
    let deadline = Instant::now() + Duration::from_secs(90);
    while let Some(what) = unreported() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_secs(2));
    }
    let invented = stored.keys().filter(|key| !printed.contains_key(*key)).count();
    assert_eq!(invented, 0, "stored and never printed");
    let missing: u64 = lost.values().sum();
    println!(
        "{rounds} rounds: {want} samples printed, {missing} of {} instants in gaps",
        lost.len()
    );
    assert!(want > 1000 && missing < u64::try_from(want).unwrap() / 2, "most samples arrive");
    missing
}

#[test]
fn killed_at_any_moment_nothing_is_lost_unseen() {
    let rounds: u64 = std::env::var("ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(50);
    let dir = tempfile::tempdir().unwrap();
    let (data, spool, file) =
        (dir.path().join("data"), dir.path().join("spool"), dir.path().join("printed"));
    let mut random = Random::seeded();
    let mut server = Server::start(&data, &[]);
    let mut running = agent(&server.url, &spool, &file);
    for _ in 0..rounds {
        std::thread::sleep(Duration::from_millis(200 + random.below(1800)));
        if random.below(2) == 0 {
            running.kill();
            running = agent(&server.url, &spool, &file);
        } else {
            server.running.kill();
            std::thread::sleep(Duration::from_millis(random.below(800)));
            server.again(&data, &[]);
        }
    }
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(running.end(), 0, "{}", running.errors());
    // The next agent sends the samples that this one spooled when it stopped.
    let mut last = agent(&server.url, &spool, &file);
    std::thread::sleep(Duration::from_secs(8));
    assert_eq!(last.end(), 0);
    check(&server.url, &file, rounds);
}

#[test]
fn a_server_away_for_a_minute_costs_nothing() {
    let down_seconds: u64 =
        std::env::var("AWAY_SECONDS").ok().and_then(|n| n.parse().ok()).unwrap_or(60);
    let dir = tempfile::tempdir().unwrap();
    let (data, spool, file) =
        (dir.path().join("data"), dir.path().join("spool"), dir.path().join("printed"));
    let mut server = Server::start(&data, &[]);
    let mut running = agent(&server.url, &spool, &file);
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(server.running.end(), 0);
    std::thread::sleep(Duration::from_secs(down_seconds));
    server.again(&data, &[]);
    let now = || std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    let back = now();
    until("the samples of the time away", Duration::from_secs(60), || {
        let query = format!(
            "SELECT count(DISTINCT timestamp) AS n FROM metrics WHERE metric_id = 'load_1m' AND timestamp < to_timestamp({})",
            back - 2.0
        );
        let (_, out, _) = jobmeter(&server.url, &["sql", "--format", "json", &query]);
        let n = serde_json::from_str::<Value>(&out).ok()?[0]["n"].as_u64()?;
        (n >= down_seconds).then_some(n)
    });
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(running.end(), 0, "{}", running.errors());
    let mut last = agent(&server.url, &spool, &file);
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(last.end(), 0);
    check(&server.url, &file, 0);
    let lost: Vec<_> = gaps(&server.url).into_iter().filter(|gap| gap.to < back).collect();
    assert!(lost.is_empty(), "gaps from the time away: {lost:#?}");
}
