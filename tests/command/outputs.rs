//! No program panics on a closed or full standard output or standard error. Even then `jobmeter run` exits
//! with the code of its command.

use crate::common::programs::{self, Server, output, program};
use crate::repository::layers::repository;
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::process::{Command, Stdio};

/// Exit code of a panic.
const PANIC: i32 = 101;

/// State of an output.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stream {
    Good,
    /// `/dev/full`: every write fails.
    Full,
    /// A pipe without a reader.
    Closed,
}

impl Stream {
    fn stdio(self) -> Stdio {
        match self {
            Self::Good => Stdio::null(),
            Self::Full => OpenOptions::new().write(true).open("/dev/full").unwrap().into(),
            Self::Closed => std::io::pipe().unwrap().1.into(),
        }
    }
}

/// Pairs of standard output and standard error, at least one of them bad.
const STREAMS: [(Stream, Stream); 6] = [
    (Stream::Full, Stream::Good),
    (Stream::Closed, Stream::Good),
    (Stream::Good, Stream::Full),
    (Stream::Good, Stream::Closed),
    (Stream::Full, Stream::Full),
    (Stream::Closed, Stream::Closed),
];

/// Returns the exit code of a program with these outputs.
fn code(command: &mut Command, (out, errors): (Stream, Stream)) -> i32 {
    let status = command.stdin(Stdio::null()).stdout(out.stdio()).stderr(errors.stdio()).status();
    status.unwrap().code().unwrap_or_else(|| panic!("{command:?} {out:?} {errors:?}: a signal"))
}

fn jobmeter(server: &Server, words: &[&str]) -> Command {
    let mut command = Command::new(program("jobmeter"));
    command
        .env("JOBMETER_AGENT_FILE", "/dev/null")
        .env("JOBMETER_SPOOL", "none")
        .args(words)
        .args(["--server", &server.url]);
    command
}

/// Returns the subcommands that `jobmeter --help` lists.
fn listed() -> BTreeSet<String> {
    let (_, help, _) = output(Command::new(program("jobmeter")).arg("--help"));
    let (commands, _) = help.split_once("\nOptions:").unwrap();
    // A wrapped description has a larger indentation, and a group's heading has none.
    let names = commands.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
}

/// Makes a folder with one description.
fn descriptions(folder: &str) {
    std::fs::create_dir(folder).unwrap();
    let entry = "{name: a, device_id: b, url: 'prometheus://127.0.0.1:9/', unknown: 1}";
    std::fs::write(format!("{folder}/all"), entry).unwrap();
}

/// Commands that need no file and no identifier.
const WITHOUT_FILES: &[&[&str]] = &[
    &["jobs"],
    &["jobs", "--json"],
    &["jobs", "--check"],
    &["job", "start", "--name", "y"],
    &["nodes"],
    &["devices"],
    &["get", "--metric", "load_1m"],
    &["explain", "load_1m"],
    &["gaps"],
    &["outputs"],
    &["fill", "nothing", "--last", "1h"],
    &["colmet-node", "--no-such-option"],
    &["set", "--list"],
    &["flush", "--nodes", "n1", "--source", "cpu"],
    &["promote", "--list"],
    &["token", "list"],
    &["account", "list"],
    &["audit"],
    &["top"],
    &["sources", "--markdown"],
    &["import", "colmet", "colmet-node"],
    &["extract", "/nowhere/data", "1", "0", "1", "a"],
    &["feed", "wattmetre"],
    &["kwollector-wattmetre"],
    &["kwollector", "-m", "/nowhere"],
    &["db", "status", "--db_host", "/nowhere"],
    &["completions", "bash"],
    &["man"],
    &["help"],
    &["--help"],
    &["--version"],
    &["jobs", "--no-such-option"],
];

#[test]
fn no_command_panics_on_a_closed_or_full_output() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let server = Server::start(&dir.path().join("data"), &[]);
    let host = &repository().join("testdata/hosts/slurm-v2/1").display().to_string();
    let colmet = "testdata/colmet/collector_0610.1764369000.hdf5";
    let colmet = &repository().join(colmet).display().to_string();
    let (data, empty, metrics) = (path("data"), path("agent.toml"), path("metrics.d"));
    std::fs::write(&empty, "").unwrap();
    descriptions(&metrics);
    let (code_of_job, job, errors) =
        output(&mut jobmeter(&server, &["job", "start", "--name", "x"]));
    assert_eq!(code_of_job, 0, "{errors}");
    let (select, grafana) = ("SELECT * FROM jobs", path("grafana"));
    let mut commands: Vec<Vec<&str>> = WITHOUT_FILES.iter().map(|words| words.to_vec()).collect();
    commands.extend([
        vec!["job", job.trim()],
        vec!["job", "end", job.trim()],
        vec!["extract", colmet, "0", "1764369000", "1764369020", "uptime_total"],
        vec!["compare", colmet, colmet, "--from", "1764369000", "--to", "1764369020"],
        vec!["sql", select],
        vec!["sql", "--format", "csv", select],
        vec!["sources", "--root", host],
        vec!["sources", "cpu", "--root", host],
        vec!["doctor", "--root", host],
        vec!["check", &empty],
        vec!["check", &metrics],
        vec!["poll", &metrics, "--once", "--print"],
        vec!["verify", "--data", &data],
        vec!["dashboards", &grafana],
    ]);
    // These commands run on or write a folder; separate cases below test them.
    let own = ["run", "up", "server", "backup", "capture", "colmet-collector"];
    let tested: BTreeSet<String> =
        commands.iter().map(|words| words[0]).chain(own).map(str::to_owned).collect();
    assert_eq!(listed().difference(&tested).next(), None, "no line here tries it");
    let folders: Vec<String> = (0..STREAMS.len()).map(|n| path(&format!("out-{n}"))).collect();
    for (streams, folder) in STREAMS.iter().zip(&folders) {
        let (copy, capture) = (format!("{folder}-copy"), format!("{folder}-capture"));
        let some = [
            vec!["backup", "--data", &data, "--to", &copy],
            vec!["capture", "load", "--root", host, "--out", &capture],
        ];
        for words in commands.iter().chain(&some) {
            let is = code(&mut jobmeter(&server, words), *streams);
            assert!(matches!(is, 0..=2), "{words:?} {streams:?}: {is}");
        }
    }
}

/// A server, also below `up`, exits without a panic if it cannot print its address.
#[test]
fn a_server_without_an_output_ends() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    for (n, bad) in [Stream::Full, Stream::Closed].into_iter().enumerate() {
        for words in [["up"], ["server"]] {
            let data = path(&format!("{}-{n}", words[0]));
            let mut command = Command::new(program("jobmeter"));
            command.args(words).args(["--data", &data, "--listen", "127.0.0.1:0"]);
            command.env("XDG_RUNTIME_DIR", dir.path());
            let is = code(&mut command, (bad, Stream::Good));
            assert!(matches!(is, 0..=2), "{words:?} {bad:?}: {is}");
        }
    }
}

#[test]
fn run_ends_with_the_exit_code_of_its_command_whatever_becomes_of_its_output() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    for streams in STREAMS {
        for (script, want) in [("exit 3", 3), ("exit 0", 0), ("kill -9 $$", 137)] {
            for more in [&["--json"][..], &[]] {
                let words = [&["run"], more, &["--server", &server.url, "--", "sh", "-c", script]];
                let mut command = Command::new(program("jobmeter"));
                assert_eq!(
                    code(command.args(words.concat()), streams),
                    want,
                    "{script} {more:?} {streams:?}"
                );
            }
        }
    }
    // Messages about processes that the command left behind go to the same outputs.
    let mut command = Command::new(program("jobmeter"));
    command.args(["run", "--server", &server.url, "--", "sh", "-c", "sleep 0.3 & exit 3"]);
    assert_eq!(code(&mut command, (Stream::Full, Stream::Full)), 3);
}

#[test]
fn neither_agent_nor_server_panics_on_a_closed_or_full_output() {
    let host = repository().join("testdata/hosts/slurm-v2/1");
    for streams in STREAMS {
        let agent = |words: &[&str]| code(programs::agent().args(words), streams);
        let once =
            ["--once", "--print", "-vvv", "--device", "n1", "--root", host.to_str().unwrap()];
        for words in
            [&once[..], &["--help"], &["--version"], &["--no-such-option"], &["--period", "x"]]
        {
            let is = agent(words);
            assert!(is != PANIC && (0..=2).contains(&is), "agent {words:?} {streams:?}: {is}");
        }
        for words in [&["--help"][..], &["--version"], &["--no-such-option"], &["--listen", "x"]] {
            let is = code(Command::new(program("jobmeter-server")).args(words), streams);
            assert!((0..=2).contains(&is), "server {words:?} {streams:?}: {is}");
        }
    }
}
