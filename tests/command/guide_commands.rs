//! The commands of README and of the user guide run as written.
//!
//! The info string of a shell block is ```` ```sh run ````, or ```` ```sh not run: REASON ```` if a test
//! cannot run the block.

use crate::common::programs::{NO_SERVER, Running, output, program, ready};
use crate::common::up::{node_alive, programs_together};
use crate::repository::layers::repository;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

const DOCUMENTS: [&str; 2] = ["README.md", "docs/guide/user.md"];
/// UID of `nobody`. Root runs all commands a second time as this user.
const NOBODY: &str = "65534";

/// Returns the lines of the blocks that run, each with its document and line number. Fails if a shell block's
/// info string does not say whether it runs.
fn lines() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for document in DOCUMENTS {
        let text = std::fs::read_to_string(repository().join(document)).unwrap();
        let mut info = None;
        for (number, line) in text.lines().enumerate() {
            let place = format!("{document}:{}", number + 1);
            match (line.strip_prefix("```"), info) {
                (Some(_), Some(_)) => info = None,
                (Some(begun), None) => {
                    let reason = begun.strip_prefix("sh not run: ");
                    let is_known = begun == "sh run" || reason.is_some_and(|it| it.len() > 10);
                    assert!(is_known || !begun.starts_with("sh"), "{place}: ```{begun}");
                    info = Some(begun);
                }
                (None, Some("sh run")) => found.push((place, line.to_owned())),
                (None, Some(_)) => {}
                (None, None) => {
                    let is_command = line.starts_with("    ") && line.contains("jobmeter ");
                    assert!(
                        !is_command,
                        "{place}: a command outside a block that says whether it runs"
                    );
                }
            }
        }
    }
    found
}

/// Returns each complete SQL statement of all guides as a command.
fn statements() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for guide in std::fs::read_dir(repository().join("docs/guide")).unwrap() {
        let guide = guide.unwrap().path();
        for (number, line) in std::fs::read_to_string(&guide).unwrap().lines().enumerate() {
            let command = line.find("jobmeter sql \"").and_then(|start| line.get(start..));
            let Some((start, rest)) = command.and_then(|text| text.split_once('"')) else {
                continue;
            };
            let (statement, _) = rest.split_once('"').unwrap();
            if !statement.contains('…') {
                let place = format!("{}:{}", guide.display(), number + 1);
                found.push((place, format!("{start}\"{statement}\"")));
            }
        }
    }
    found
}

/// Returns a program's command that runs as the current user, or as nobody.
fn as_user(is_nobody: bool, program: &Path) -> Command {
    if !is_nobody {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--"]).arg(program);
    command
}

/// Runs every line in a folder that the user owns, with a server and an agent that run as this user.
fn run_all(is_nobody: bool) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("Makefile"), "all:\n\ttrue\n").unwrap();
    if is_nobody {
        let owner = format!("{NOBODY}:{NOBODY}");
        assert_eq!(output(Command::new("chown").args(["-R", &owner]).arg(dir.path())).0, 0);
    }
    let programs = programs_together();
    let path = std::env::join_paths(
        [programs.clone()]
            .into_iter()
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    )
    .unwrap();
    let at_home = |command: &mut Command, url: &str, path: &OsString| {
        command.current_dir(dir.path()).env("HOME", dir.path()).env("PATH", path);
        command.env("JOBMETER_SERVER", url).env("JOBMETER_DEVICE", "node-1");
    };
    let mut server = as_user(is_nobody, &programs.join("jobmeter-server"));
    server.args(["--listen", "127.0.0.1:0", "--data"]).arg(dir.path().join("data"));
    let mut server = Running::start(server.stdout(Stdio::piped()));
    let url = ready(&mut server);
    let mut agent = as_user(is_nobody, &program("jobmeter-agent"));
    agent.args([NO_SERVER[0], &url, "--device", "node-1", "--period", "1s", "--spool", "none"]);
    let _agent = Running::start(agent.env("JOBMETER_AGENT_FILE", "/dev/null"));
    node_alive(&url);
    let job = "jobmeter job start slurm:1234 --user nobody --nodes node-1".to_owned();
    let now = "jobmeter get --job 1234 --since -10m --summary".to_owned();
    let lines = [("the job of the guide", job), ("its windows now", now)]
        .map(|(place, line)| (place.to_owned(), line))
        .into_iter()
        .chain(lines())
        .chain(statements());
    for (place, line) in lines {
        let mut shell = as_user(is_nobody, Path::new("/bin/sh"));
        shell.args(["-c", &line]);
        at_home(&mut shell, &url, &path);
        let (code, out, errors) = output(&mut shell);
        // Accepted errors: the guide's job has no samples, and an agent without root has no cgroup metrics.
        // The guide names times of day, and the job may start after them.
        let empty = [
            "jobmeter: no sample",
            "jobmeter: no five-minute windows",
            "not in the selected time range",
            " the server knows no ",
            " is optional on ",
        ];
        let is_empty = code == 1 && empty.iter().any(|text| errors.contains(text));
        assert!(code == 0 || is_empty, "{place}: {line}: {code}\n{out}\n{errors}");
    }
}

#[test]
fn the_commands_of_the_guide_run_as_written() {
    assert!(lines().len() > 8 && statements().len() > 1);
    run_all(false);
}

#[test]
fn the_commands_of_the_guide_run_as_an_ordinary_user() {
    if !crate::common::programs::root("the_commands_of_the_guide_run_as_an_ordinary_user") {
        // For an ordinary user the other test does the same.
        return;
    }
    let programs = programs_together();
    let mut test = as_user(true, Path::new("test"));
    if output(test.arg("-x").arg(programs.join("jobmeter"))).0 != 0 {
        println!("other users cannot read {}: the commands did not run as one", programs.display());
        return;
    }
    run_all(true);
}
