//! `up` restarts its programs after a crash, and holds the server's port. After the server crashes, no other process can bind the port, connections
//! wait, and a new server accepts them.

use crate::common::programs::{get, until};
use crate::common::up::Up;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

/// Returns the process ID of the program that uses a data folder.
fn pid_of(program: &str, data: &Path) -> Option<String> {
    let of = |entry: std::fs::DirEntry| {
        let pid = entry.file_name().into_string().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        let is_program = words.first()?.ends_with(program);
        let has_data = words.iter().any(|word| Path::new(&**word).starts_with(data));
        (is_program && has_data).then_some(pid)
    };
    std::fs::read_dir("/proc").unwrap().filter_map(Result::ok).find_map(of)
}

fn server_of(data: &Path) -> Option<String> {
    pid_of("jobmeter-server", data)
}

fn kill(pid: &str) {
    let killed = std::process::Command::new("kill").args(["-s", "KILL", pid]).status().unwrap();
    assert!(killed.success());
}

#[test]
fn a_crash_of_the_server_does_not_free_its_port() {
    let dir = tempfile::tempdir().unwrap();
    let mut up = Up::start(dir.path(), &["--period", "1s"]);
    let first = server_of(dir.path()).expect("the server's number");
    kill(&first);
    until("the server's end", Duration::from_secs(20), || {
        (server_of(dir.path()).as_ref() != Some(&first)).then_some(())
    });
    // No other process can listen on the port, neither before nor after the new server starts.
    let address = up.url.trim_start_matches("http://").to_owned();
    assert!(TcpListener::bind(&address).is_err(), "{address} is free");
    // The next server answers a request that arrives while no server runs.
    assert_eq!(get(&up.url, "/api/v1/ready").0, 200);
    assert!(server_of(dir.path()).is_some_and(|second| second != first));
    assert!(TcpListener::bind(&address).is_err(), "{address} is free");
    // The agent continues.
    until("the node", Duration::from_secs(30), || {
        get(&up.url, "/api/v1/nodes").1.contains("\"alive\":true").then_some(())
    });
    assert!(up.running.errors().contains("is started again"), "{}", up.running.errors());
    assert_eq!(up.running.end(), 0);
}

/// An agent that the kernel kills, for example without memory, takes neither the server nor `up` with it.
#[test]
fn a_crash_of_the_agent_does_not_end_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let mut up = Up::start(dir.path(), &["--period", "1s"]);
    let server = server_of(dir.path());
    let first =
        until("the agent", Duration::from_secs(20), || pid_of("jobmeter-agent", dir.path()));
    kill(&first);
    until("another agent", Duration::from_secs(20), || {
        pid_of("jobmeter-agent", dir.path()).filter(|second| *second != first)
    });
    assert!(up.running.errors().contains("is started again"), "{}", up.running.errors());
    assert_eq!(server_of(dir.path()), server);
    until("the node", Duration::from_secs(30), || {
        get(&up.url, "/api/v1/nodes").1.contains("\"alive\":true").then_some(())
    });
    assert_eq!(up.running.end(), 0);
}
