//! Starts the server program, reads its metrics, and stops it.

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Path of the server program.
pub(crate) fn program() -> Result<PathBuf, String> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let given = std::env::var_os("JOBMETER_SERVER_PROGRAM");
    let path = given.unwrap_or_else(|| "target/release/jobmeter-server".into());
    let path = repository.join(path);
    if path.is_file() {
        return Ok(path);
    }
    Err(format!("{} is not there: `cargo build --release -p server` builds it", path.display()))
}

/// Raises this process's limit of open files to its maximum.
pub(crate) fn raise_open_files() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}

/// Processor time of a process, as the kernel's scheduler counts it, to the nanosecond.
pub(crate) struct Cpu {
    pid: u32,
    /// Of each thread when it was last seen: those that ended since are in it. A thread of tokio's ends
    /// after ten idle seconds, so looking once a second misses nothing.
    threads: HashMap<String, u64>,
}

impl Cpu {
    pub(crate) fn of(pid: u32) -> Self {
        Self { pid, threads: HashMap::new() }
    }

    /// Seconds so far.
    pub(crate) fn seconds(&mut self) -> f64 {
        // A process that has just ended has no threads any more.
        for task in std::fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten() {
            let Ok(task) = task else { continue };
            let Ok(text) = std::fs::read_to_string(task.path().join("schedstat")) else { continue };
            let ran: u64 = text.split(' ').next().unwrap().parse().unwrap();
            let thread = task.file_name().to_string_lossy().into_owned();
            let known = self.threads.entry(thread).or_default();
            *known = ran.max(*known);
        }
        self.threads.values().sum::<u64>() as f64 / 1e9
    }
}

/// A running server.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    /// From its start to the line that reports readiness.
    pub(crate) ready: Duration,
    pub(crate) cpu: Cpu,
}

impl Server {
    /// Starts a server on a port of its own.
    pub(crate) fn start(program: &Path, data: &Path) -> Self {
        let mut command = Command::new(program);
        command.args(["--listen", "127.0.0.1:0", "--data"]).arg(data);
        // All agents of a bench come from one user.
        command.args(["--connections-per-peer-max", "16384"]);
        let began = Instant::now();
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.next().map_or_else(String::new, Result::unwrap);
        let ready = began.elapsed();
        let address = line.strip_prefix("ready: http://");
        let address = address.unwrap_or_else(|| panic!("no server, but `{line}`"));
        let cpu = Cpu::of(child.id());
        Self { address: address.parse().unwrap(), child, ready, cpu }
    }

    /// Its metrics: names, with labels if any, and values.
    pub(crate) fn counts(&self) -> BTreeMap<String, f64> {
        let mut stream = TcpStream::connect(self.address).unwrap();
        write!(stream, "GET /metrics HTTP/1.0\r\nhost: {}\r\n\r\n", self.address).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.0 200"), "{text}");
        let pairs = body.lines().filter(|line| !line.starts_with('#'));
        let pairs = pairs.filter_map(|line| line.rsplit_once(' '));
        pairs.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
    }

    /// Whether its figures are meaningless.
    pub(crate) fn is_development_build(&self) -> bool {
        self.counts().keys().any(|name| {
            name.starts_with("jobmeter_build_info{") && name.contains("build=\"development\"")
        })
    }

    /// Memory of its own and of its files in memory, in bytes.
    pub(crate) fn resident(&self) -> f64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let kib: f64 = line.trim().trim_end_matches(" kB").parse().unwrap();
        kib * 1024.0
    }

    /// Kills it, like a power cut.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Stops it, which writes the samples in memory to a block. Returns its processor time from start to end.
    pub(crate) fn end(mut self) -> f64 {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        while self.child.try_wait().unwrap().is_none() {
            self.cpu.seconds();
            std::thread::sleep(Duration::from_millis(10));
        }
        self.cpu.seconds()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // If the bench fails; otherwise it has ended before.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
