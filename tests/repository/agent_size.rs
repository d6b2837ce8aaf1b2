//! Size limits of the agent: its executable, and its memory during startup.

use crate::common::programs::{NO_SERVER, Running, agent, program, until};
use std::process::Stdio;
use std::time::Duration;

/// Maximum size of the release build's executable, in bytes.
const FILE_MAX: u64 = 5_000_000;
/// Maximum memory of the release build until its first ticks are over, in bytes. Shared pages of its
/// executable count.
const START_MAX: u64 = 8_000_000;
/// Maximum memory at startup that no other program shares, in bytes, of any build.
const START_ANONYMOUS_MAX: u64 = 6_000_000;

#[test]
fn the_agent_and_its_start_are_within_their_budget() {
    let is_release = program("jobmeter-agent").to_string_lossy().contains("/release/");
    let size = std::fs::metadata(program("jobmeter-agent")).unwrap().len();
    let dir = tempfile::tempdir().unwrap();
    let mut command = agent();
    command.args(NO_SERVER).args(["--period", "1s", "--device", "size"]);
    let running = Running::start(command.arg("--spool").arg(dir.path()).stdout(Stdio::null()));
    let bytes = |name: &str| {
        let status = std::fs::read_to_string(format!("/proc/{}/status", running.child.id()));
        let status = status.unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim_matches([':', ' ', '\t', 'k', 'B']).parse::<u64>().unwrap() * 1024
    };
    until("batches in the spool", Duration::from_secs(30), || {
        let files = std::fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap());
        let spooled = files.filter(|file| file.file_name().to_string_lossy().ends_with(".jmb"));
        (spooled.map(|file| file.metadata().unwrap().len()).sum::<u64>() > 0).then_some(())
    });
    let (most, anonymous) = (bytes("VmHWM"), bytes("RssAnon"));
    println!("agent: {size} bytes, at most {most} at its start, {anonymous} of its own");
    assert!(anonymous <= START_ANONYMOUS_MAX, "{anonymous} bytes of its own");
    if is_release {
        assert!(
            size <= FILE_MAX,
            "the agent's file has {size} bytes, at most {FILE_MAX} are allowed"
        );
        assert!(most <= START_MAX, "its start took {most} bytes, at most {START_MAX} are allowed");
    }
}
