//! Starts and stops the programs for the tests. Each has its own ports and folders, and is stopped by PID.

use crate::repository::layers::repository;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Returns the path of a program of the build. `make test` builds the agent in release mode, and sets a
/// variable to its path.
pub(crate) fn program(name: &str) -> PathBuf {
    let variable = format!("{}_PROGRAM", name.replace('-', "_").to_uppercase());
    if let Some(path) = std::env::var_os(variable) {
        return repository().join(path);
    }
    // This binary is in target/PROFILE/deps.
    let own = std::env::current_exe().unwrap();
    let path = own.parent().unwrap().parent().unwrap().join(name);
    assert!(path.is_file(), "{} is not built; `make test` builds it", path.display());
    path
}

/// Returns the command of an agent that ignores this machine's settings and any server that runs here by
/// chance.
pub(crate) fn agent() -> Command {
    let mut command = Command::new(program("jobmeter-agent"));
    command.env("JOBMETER_AGENT_FILE", "/dev/null").env_remove("JOBMETER_SERVER");
    command
}

/// Flags with the address of no server. Without them, an agent that keeps running sends to a server on this
/// machine.
pub(crate) const NO_SERVER: [&str; 2] = ["--server", "http://127.0.0.1:9"];

/// A program that ends with the test.
pub(crate) struct Running {
    name: String,
    pub(crate) child: Child,
    errors: Arc<Mutex<String>>,
    readers: Vec<std::thread::JoinHandle<()>>,
}

impl Running {
    /// Starts an agent that reads no settings file, with a period of 1 s.
    pub(crate) fn agent(url: &str, device: &str, spool: &Path) -> Self {
        let mut command = Command::new(program("jobmeter-agent"));
        command.env("JOBMETER_AGENT_FILE", "/dev/null");
        command.args(["--server", url, "--period", "1s", "--device", device]);
        Self::start(command.arg("--spool").arg(spool).stdout(Stdio::null()))
    }

    pub(crate) fn start(command: &mut Command) -> Self {
        let name = format!("{command:?}");
        let child = command.stderr(Stdio::piped()).spawn().expect(&name);
        let errors = Arc::new(Mutex::new(String::new()));
        let mut running = Self { name, errors: Arc::clone(&errors), readers: Vec::new(), child };
        let stderr = running.child.stderr.take().unwrap();
        running.readers.push(std::thread::spawn(move || collect(stderr, &errors)));
        running
    }

    /// Returns the program's standard error so far.
    pub(crate) fn errors(&self) -> String {
        self.errors.lock().unwrap().clone()
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args(["-s", signal, &pid]).status().unwrap();
        assert!(status.success(), "kill -s {signal} {pid}");
    }

    /// Kills the program, like a power cut of the process.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends SIGTERM, and waits for the exit code.
    pub(crate) fn end(&mut self) -> i32 {
        self.signal("TERM");
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            assert!(Instant::now() < deadline, "{} does not end:\n{}", self.name, self.errors());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.child.kill().ok();
            self.child.wait().ok();
        }
        for reader in self.readers.drain(..) {
            reader.join().ok();
        }
        if std::thread::panicking() {
            println!("-- {}\n{}", self.name, self.errors());
        }
    }
}

fn collect(stream: impl Read, into: &Mutex<String>) {
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let mut text = into.lock().unwrap();
        // 1 MiB is enough to diagnose a failure, however much a program writes.
        if text.len() < 1 << 20 {
            text.push_str(&line);
            text.push('\n');
        }
    }
}

/// A server on a free port.
pub(crate) struct Server {
    pub(crate) running: Running,
    pub(crate) url: String,
}

impl Server {
    pub(crate) fn start(data: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(program("jobmeter-server"));
        command.args(["--data", data.to_str().unwrap()]).args(arguments);
        if !arguments.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        let mut running = Running::start(command.stdout(Stdio::piped()));
        let url = ready(&mut running);
        Self { running, url }
    }

    /// Starts the server again on the same address, after it ended.
    pub(crate) fn again(&mut self, data: &Path, arguments: &[&str]) {
        let address = self.url.trim_start_matches("http://").to_owned();
        let arguments: Vec<&str> =
            ["--listen", &address].iter().chain(arguments).copied().collect();
        *self = Self::start(data, &arguments);
    }
}

/// Waits for the line `ready: URL`, and returns the URL.
pub(crate) fn ready(running: &mut Running) -> String {
    let mut lines = BufReader::new(running.child.stdout.take().unwrap()).lines();
    let mut seen = String::new();
    while let Some(Ok(line)) = lines.next() {
        if let Some(url) = line.strip_prefix("ready: ") {
            let url = url.to_owned();
            // Drain further output, so that the pipe does not fill up.
            running.readers.push(std::thread::spawn(move || lines.for_each(drop)));
            return url;
        }
        seen.push_str(&line);
    }
    panic!("it ended before it was ready: {seen}\n{}", running.errors());
}

/// Requests a path, and returns the status and the body.
pub(crate) fn get(url: &str, path: &str) -> (u16, String) {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(30)))
        .build()
        .into();
    let mut answer = agent.get(format!("{url}{path}")).call().unwrap();
    (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
}

/// Runs a program to its end, and returns its exit code, standard output and standard error.
pub(crate) fn output(command: &mut Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

/// Polls until the closure returns a value, and panics after `limit`.
pub(crate) fn until<T>(what: &str, limit: Duration, mut request: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(answer) = request() {
            return answer;
        }
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns whether the tests run as root. A test that needs root prints that it did not run, and
/// docs/testing.md lists it.
pub(crate) fn root(test: &str) -> bool {
    let root = std::fs::metadata("/proc/self").is_ok_and(|m| {
        use std::os::unix::fs::MetadataExt;
        m.uid() == 0
    });
    if !root {
        println!("{test} needs root and did not run");
    }
    root
}
