//! The server program on its own port, and clients of several users.

use model::{
    Batch, Boot, DeviceId, JobEvent, Labels, Metric, Origin, SeriesEntry, SeriesTable, Tick,
    Timestamp, Unit,
};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use wire::Encoder;

/// The user `nobody` of every Debian system, without files of its own.
pub(crate) const NOBODY: u32 = 65534;
pub(crate) const BATCHES: &str = "Content-Type: application/x-jobmeter-batches\r\n";
pub(crate) const JSON: &str = "Content-Type: application/json\r\n";

/// A running server, killed when dropped.
pub(crate) struct Program {
    pub(crate) child: Child,
    pub(crate) address: String,
}

pub(crate) fn command(data: &Path, arguments: &[&str]) -> Command {
    command_by(&["env"], data, arguments)
}

/// Returns the command of the program, started by another program.
fn command_by(starter: &[&str], data: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(starter[0]);
    command.args(&starter[1..]).arg(env!("CARGO_BIN_EXE_jobmeter-server"));
    command.arg("--data").arg(data).args(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl Program {
    pub(crate) fn start(data: &Path, arguments: &[&str]) -> Self {
        Self::start_by(&["env"], data, arguments)
    }

    /// Starts the program by another program, which executes it in its place.
    pub(crate) fn start_by(starter: &[&str], data: &Path, arguments: &[&str]) -> Self {
        let mut all = arguments.to_vec();
        if !arguments.contains(&"--listen") {
            all.extend(["--listen", "127.0.0.1:0"]);
        }
        let mut child = command_by(starter, data, &all).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let Some(url) = line.trim().strip_prefix("ready: http://") else {
            panic!("{line}{}", errors(child));
        };
        Self { child, address: url.to_owned() }
    }

    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
    }

    /// Stops the server by SIGTERM. Returns its exit code and its standard error.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        self.signal("TERM");
        let code = self.child.wait().unwrap().code();
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        (code, text)
    }

    pub(crate) fn send(&self, line: &str, headers: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(&request(line, headers, body)).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        parts(&bytes).unwrap_or_else(|| panic!("{}", bytes.escape_ascii()))
    }

    pub(crate) fn json(&self, path: &str) -> serde_json::Value {
        let (status, body) = self.send(&format!("GET {path}"), "", b"");
        assert_eq!(status, 200, "{path}: {}", body.escape_ascii());
        serde_json::from_slice(&body).unwrap()
    }

    /// Sends a request as another user of this machine, and returns the response.
    pub(crate) fn send_as(
        &self,
        uid: u32,
        line: &str,
        headers: &str,
        body: &str,
    ) -> (u16, Vec<u8>) {
        let output = self.shell_as(uid, &request(line, headers, body.as_bytes()), "cat <&3");
        parts(&output).unwrap_or_else(|| panic!("{line}: {}", output.escape_ascii()))
    }

    /// Sends bytes as another user, and then runs a shell command with the connection as descriptor 3.
    pub(crate) fn shell_as(&self, uid: u32, bytes: &[u8], then: &str) -> Vec<u8> {
        let (host, port) = self.address.split_once(':').unwrap();
        let script = format!("exec 3<>/dev/tcp/{host}/{port}; cat >&3; {then}");
        let mut child = Command::new("bash")
            .args(["-c", &script])
            .uid(uid)
            .gid(uid)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(bytes).unwrap();
        child.wait_with_output().unwrap().stdout
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

pub(crate) fn errors(child: Child) -> String {
    String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap()
}

/// Builds a request after which the server closes the connection: HTTP/1.0, so that the body is not chunked.
pub(crate) fn request(line: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head =
        format!("{line} HTTP/1.0\r\nHost: localhost\r\n{headers}Content-Length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// Splits a response into status and body.
pub(crate) fn parts(bytes: &[u8]) -> Option<(u16, Vec<u8>)> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    Some((head.split(' ').nth(1)?.parse().ok()?, bytes[end + 4..].to_vec()))
}

pub(crate) fn now() -> Timestamp {
    let micros = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
    Timestamp(i64::try_from(micros).unwrap())
}

/// A batch of one sample of node n1.
pub(crate) fn frame(seq: u64, at: Timestamp) -> Vec<u8> {
    frame_of(seq, at, vec![1.0], Vec::new())
}

/// Like `frame`, with the node's job events.
pub(crate) fn frame_reporting(seq: u64, at: Timestamp, jobs: Vec<JobEvent>) -> Vec<u8> {
    frame_of(seq, at, vec![1.0], jobs)
}

/// A batch of 1000 samples of one instant that cannot be compressed.
pub(crate) fn noise(seq: u64, at: Timestamp) -> Vec<u8> {
    let mut state = seq + 1;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from_bits(state >> 12 | 0x3ff0_0000_0000_0000)
    };
    frame_of(seq, at, (0..1000).map(|_| next()).collect(), Vec::new())
}

fn frame_of(seq: u64, at: Timestamp, values: Vec<f64>, jobs: Vec<JobEvent>) -> Vec<u8> {
    let entry = SeriesEntry {
        metric: Arc::new(Metric::gauge("load_1m", Unit::Count, "Load.")),
        device: DeviceId::new("n1").unwrap(),
        job: None,
        labels: Labels::default(),
        start: None,
    };
    let batch = Batch {
        origin: Origin::new("n1").unwrap(),
        boot: Boot([7; 16]),
        seq,
        table: Arc::new(SeriesTable { entries: vec![entry] }),
        ticks: vec![Tick { at, samples: u32::try_from(values.len()).unwrap() }],
        index: vec![0; values.len()],
        values,
        gaps: Vec::new(),
        jobs,
    };
    let mut bytes = Vec::new();
    Encoder::default().encode(&batch, &mut bytes).unwrap();
    bytes
}

/// Whether this process is root. Without root, a test of several users is impossible.
pub(crate) fn root(test: &str) -> bool {
    let uid = Command::new("id").arg("-u").output().unwrap().stdout;
    let is = uid.trim_ascii() == b"0";
    if !is {
        println!("{test}: left out, as only root becomes another user");
    }
    is
}
