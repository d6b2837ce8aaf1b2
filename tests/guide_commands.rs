//! The commands of README and the user's guide run as they are written. A block that cannot run in a test says why in its
//! info string: ```` ```sh not run: REASON ````; one that runs is ```` ```sh run ````.

use crate::layers::repository;
use crate::line::{node_alive, programs_together};
use crate::programs::{NO_SERVER, Running, output, program, ready};
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

const DOCUMENTS: [&str; 2] = ["README.md", "docs/guide/user.md"];
/// The user `nobody`, as whom root runs everything a second time.
const NOBODY: &str = "65534";

/// The lines of the blocks that run, each with its document and number; every block of shell commands says whether it
/// does.
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

/// A program as this user, or as nobody.
fn as_user(is_nobody: bool, program: &Path) -> Command {
    if !is_nobody {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--"]).arg(program);
    command
}

/// Runs every line in a folder of the user's, with a server and an agent of the user's own.
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
        .chain(lines());
    for (place, line) in lines {
        let mut shell = as_user(is_nobody, Path::new("/bin/sh"));
        shell.args(["-c", &line]);
        at_home(&mut shell, &url, &path);
        let (code, out, errors) = output(&mut shell);
        // The job of the guide has no samples, and an agent without root no metrics of cgroups. The guide names times of
        // day: at some of them the job has already begun.
        let empty = [
            "jobmeter: no sample",
            "jobmeter: no five-minute windows",
            "nothing of that is in the time",
            " is known here",
            " is optional on ",
        ];
        let is_empty = code == 1 && empty.iter().any(|text| errors.contains(text));
        assert!(code == 0 || is_empty, "{place}: {line}: {code}\n{out}\n{errors}");
    }
}

#[test]
fn the_commands_of_the_guide_run_as_written() {
    assert!(lines().len() > 8);
    run_all(false);
}

#[test]
fn the_commands_of_the_guide_run_as_an_ordinary_user() {
    if !crate::programs::root("the_commands_of_the_guide_run_as_an_ordinary_user") {
        // As an ordinary user the other test is this one.
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
