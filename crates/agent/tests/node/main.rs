//! Tests of `jobmeter-agent` on nodes that are larger, busier or read more often than usual.

#![expect(clippy::disallowed_methods, reason = "a real program in real time")]
#![expect(clippy::unwrap_used, reason = "what cannot be prepared fails the test")]
#![expect(clippy::print_stdout, reason = "what was measured is printed beside what is asserted")]

mod jobs;
mod large;
mod rates;
#[path = "../../../delivery/tests/server/mod.rs"]
mod server;

use server::{Reply, Server};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use wire::AckStatus;

/// An agent and its test server, which accepts everything.
struct Agent {
    child: Child,
    server: Server,
    dir: tempfile::TempDir,
}

impl Agent {
    /// Starts the agent. `command` may wrap the program; the program's arguments follow.
    fn start(mut command: Command, arguments: &[&str]) -> Self {
        let server = Server::start(Box::new(|_, _| Reply::All(AckStatus::Stored)));
        let dir = tempfile::tempdir().unwrap();
        let log = File::create(dir.path().join("log")).unwrap();
        command.args(["--server", &server.url, "--device", "n1"]).args(arguments);
        command.arg("--spool").arg(dir.path().join("spool"));
        let child = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        Self { child, server, dir }
    }

    /// Value in KiB of a line in `/proc/PID/status`.
    fn kib(&self, name: &str) -> u64 {
        let status = fs::read_to_string(self.proc("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim_matches([':', ' ', '\t', 'k', 'B']).parse().unwrap()
    }

    /// Targets of the agent's file descriptors.
    fn descriptors(&self) -> Vec<String> {
        let links = fs::read_dir(self.proc("fd")).unwrap().flatten();
        // A descriptor may close meanwhile.
        links
            .filter_map(|link| Some(fs::read_link(link.path()).ok()?.display().to_string()))
            .collect()
    }

    fn proc(&self, name: &str) -> std::path::PathBuf {
        Path::new("/proc").join(self.child.id().to_string()).join(name)
    }

    fn messages(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        if std::thread::panicking() {
            println!("-- the agent said\n{}", self.messages());
        }
    }
}

/// Command that runs the program.
fn program() -> Command {
    // The figures in docs/performance.md are those of a release build.
    let given = std::env::var_os("JOBMETER_AGENT_PROGRAM");
    let built = || env!("CARGO_BIN_EXE_jobmeter-agent").into();
    Command::new(given.map_or_else(built, |path| repository().join(path)))
}

fn repository() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn until(what: &str, limit: Duration, mut is: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is() {
        assert!(begin.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Lock that runs these tests one at a time. Each keeps a processor busy, and late ticks would be missed.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the tests run as root. Tests that need root report that they did not run; docs/testing.md lists them.
fn root(test: &str) -> bool {
    use std::os::unix::fs::MetadataExt;
    let root = fs::metadata("/proc/self").is_ok_and(|of| of.uid() == 0);
    if !root {
        println!("{test} needs root and did not run");
    }
    root
}
