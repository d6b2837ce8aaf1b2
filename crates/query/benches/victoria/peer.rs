//! A VictoriaMetrics process on a free loopback port with its own directory. The bench sends HTTP/1.0 requests
//! (one connection each) and stops the process by its PID.

use crate::agents::T0;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub(crate) struct Peer {
    child: Child,
    address: String,
    dir: PathBuf,
}

impl Peer {
    /// Starts it with its defaults, except: it keeps old samples, shows the latest samples at once and caches no
    /// answers.
    pub(crate) fn start(program: &Path, dir: &Path) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let address = free.to_string();
        let child = Command::new(program)
            .arg(format!("-httpListenAddr={address}"))
            .arg(format!("-storageDataPath={}", dir.display()))
            .args(["-retentionPeriod=100y", "-search.latencyOffset=0s", "-search.disableCache"])
            .args(["-loggerLevel=ERROR"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let peer = Self { child, address, dir: dir.to_owned() };
        let answers = (0..200).any(|_| {
            let ok = peer.run_query("GET", "/health", "", &[]).is_ok();
            if !ok {
                std::thread::sleep(Duration::from_millis(50));
            }
            ok
        });
        assert!(answers, "{} does not answer", program.display());
        peer
    }

    /// Processor time of the process, in seconds.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let ticks = |place: usize| fields.get(place).unwrap().parse::<f64>().unwrap();
        (ticks(11) + ticks(12)) / 100.0
    }

    fn run_query(
        &self,
        how: &str,
        path: &str,
        headers: &str,
        body: &[u8],
    ) -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(&self.address)?;
        let length = body.len();
        let head = format!("{how} {path} HTTP/1.0\r\n{headers}Content-Length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(answer.len());
        let ok = answer.get(9..10) == Some(b"2") && end < answer.len();
        let text = || String::from_utf8_lossy(&answer).into_owned();
        assert!(ok, "{path}: {}", text());
        answer.drain(..end + 4);
        Ok(answer)
    }

    pub(crate) fn get(&self, path: &str) -> Vec<u8> {
        self.run_query("GET", path, "", &[]).unwrap()
    }

    pub(crate) fn post(&self, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
        self.run_query("POST", path, headers, body).unwrap()
    }

    /// Sends a form; percent-encodes its values.
    pub(crate) fn form(&self, path: &str, pairs: &[(&str, &str)]) -> Vec<u8> {
        let encoded = |value: &str| value.bytes().map(|b| format!("%{b:02X}")).collect::<String>();
        let pairs: Vec<String> = pairs.iter().map(|(k, v)| format!("{k}={}", encoded(v))).collect();
        let headers = "Content-Type: application/x-www-form-urlencoded\r\n";
        self.post(path, headers, pairs.join("&").as_bytes())
    }

    /// Merges all data, and waits for the end of the merge.
    pub(crate) fn merge(&self) {
        self.get("/internal/force_merge");
        // The merge begins after the response.
        std::thread::sleep(Duration::from_millis(200));
        while self.is_merging() {
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn is_merging(&self) -> bool {
        let text = String::from_utf8(self.get("/metrics")).unwrap();
        let active = |line: &&str| {
            line.starts_with("vm_active_force_merges") || line.starts_with("vm_active_merges")
        };
        let mut active = text.lines().filter(active).peekable();
        assert!(active.peek().is_some(), "it tells of merges");
        active.any(|line| !line.ends_with(" 0"))
    }

    /// Number of stored samples.
    pub(crate) fn count(&self) -> u64 {
        let end = format!("{:.1}", T0 as f64 / 1e6 + 3599.5);
        let query = "sum(count_over_time({__name__=~\"bench_metric.*\"}[3600s]))";
        let answer = self.form("/api/v1/query", &[("query", query), ("time", &end)]);
        let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
        let count = answer.pointer("/data/result/0/value/1").and_then(|value| value.as_str());
        count.unwrap().parse().unwrap()
    }

    /// Stops the process as its service does, and returns the path of its data.
    pub(crate) fn end(mut self) -> PathBuf {
        let kill = Command::new("kill").arg("-INT").arg(self.child.id().to_string()).status();
        assert!(kill.unwrap().success());
        assert!(self.child.wait().unwrap().success());
        self.dir.clone()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The process has exited, or must not disturb the next measurement.
        if self.child.try_wait().unwrap().is_none() {
            self.child.kill().unwrap();
            self.child.wait().unwrap();
        }
    }
}

/// Size in bytes of all files below a directory; files that disappear meanwhile count as 0.
pub(crate) fn files(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let bytes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(data) if data.is_dir() => files(&entry.path()),
        Ok(data) => data.len(),
        Err(_) => 0,
    });
    bytes.sum()
}
