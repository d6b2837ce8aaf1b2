//! Tests of the agent with a site's program (`[sources.exec]`): permissions to configure it, its rights, and
//! that a hanging program delays no other source.

use crate::common::programs::{self, NO_SERVER, Running, output, program};
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Writes a settings file that names a program, in a folder that everybody may read. Returns none without
/// root, because only root's file may name programs.
fn file(dir: &Path, command: &str, more: &str) -> Option<PathBuf> {
    std::fs::set_permissions(dir, Permissions::from_mode(0o755)).unwrap();
    let file = dir.join("agent.toml");
    std::fs::write(&file, format!("[sources.exec]\ncommand = {command}\n{more}")).unwrap();
    std::fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    if std::fs::metadata(&file).unwrap().uid() == 0 {
        return Some(file);
    }
    println!("not run: only root's file may name a program");
    None
}

fn agent(file: &Path) -> Command {
    let mut command = programs::agent();
    command.arg("--config").arg(file).args(["--device", "n1", "--spool", "none", "--print"]);
    command
}

/// Runs one tick, and returns the program's samples and the log.
fn once(command: &mut Command) -> (Vec<String>, String) {
    let (code, out, errors) = output(command.args(["--once", "-v"]));
    assert_eq!(code, 0, "{errors}");
    let lines = out.lines().filter(|line| line.starts_with("exec_"));
    let line = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        [fields[0], fields[3], fields[fields.len() - 1]].join(" ")
    };
    (lines.map(line).collect(), errors)
}

const IDS: &str = r#"["/bin/sh", "-c", "echo uid: $(id -u) of $PWD; echo env: $(env | wc -l), x"]"#;
const MATCH: &str = "pattern = '(?<name>\\w+): (\\d+)'\n";

#[test]
fn a_sites_program_is_run_with_an_ordinary_users_rights() {
    let dir = tempfile::tempdir().unwrap();
    let Some(file) = file(dir.path(), IDS, MATCH) else { return };
    let (samples, errors) = once(&mut agent(&file));
    // The shell itself sets only PWD.
    let reported = |uid| {
        [
            "exec_value {\"name\": \"uid\"} UID".replace("UID", uid),
            "exec_value {\"name\": \"env\"} 1".to_owned(),
        ]
    };
    let sorted = |mut lines: Vec<String>| {
        lines.sort();
        lines
    };
    assert_eq!(sorted(samples), sorted(reported("65534").to_vec()), "{errors}");
    // An agent without root runs the program with its own rights if the file says so, and with no others.
    let as_user = |id: &str| {
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={id}"), &format!("--regid={id}"), "--clear-groups"]);
        let agent = agent(&file);
        command.arg(agent.get_program()).args(agent.get_args()).env("HOME", "/");
        once(&mut command)
    };
    if others_can_run_the_agent() {
        let (samples, errors) = as_user("65534");
        assert_eq!(sorted(samples), sorted(reported("65534").to_vec()), "{errors}");
        let (samples, errors) = as_user("1");
        assert!(samples.is_empty() && errors.contains("cannot be run as user 65534"), "{errors}");
    }
}

/// Returns false if the agent's executable is in a folder that other users cannot enter.
fn others_can_run_the_agent() -> bool {
    let mut other = Command::new("setpriv");
    other.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    output(other.arg(program("jobmeter-agent")).arg("--version")).0 == 0
}

#[test]
fn a_program_is_taken_from_no_file_that_others_can_write_and_from_nowhere_else() {
    let dir = tempfile::tempdir().unwrap();
    let Some(file) = file(dir.path(), IDS, MATCH) else { return };
    std::fs::set_permissions(&file, Permissions::from_mode(0o664)).unwrap();
    let (samples, errors) = once(&mut agent(&file));
    assert!(samples.is_empty(), "{samples:?}");
    assert!(errors.contains("denied") && errors.contains("chmod go-w"), "{errors}");
    std::fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    chown(&file, Some(65_534), None).unwrap();
    let (samples, errors) = once(&mut agent(&file));
    assert!(samples.is_empty() && errors.contains("belongs to user 65534"), "{errors}");
    chown(&file, Some(0), None).unwrap();
    // A user who can write to the folder could replace the file.
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o775)).unwrap();
    let (samples, errors) = once(&mut agent(&file));
    assert!(samples.is_empty() && errors.contains("chmod go-w"), "{errors}");
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let variable = ("JOBMETER_SOURCES_EXEC_COMMAND", "/bin/true");
    let (code, _, errors) = output(agent(&file).arg("--once").env(variable.0, variable.1));
    assert!(code != 0 && errors.contains("is allowed only in the agent's own file"), "{errors}");
    let (code, _, errors) =
        output(agent(&file).args(["--once", "--sources-exec-command", "/bin/true"]));
    assert!(code != 0 && errors.contains("--sources-exec-command"), "{errors}");
}

#[test]
fn requested_and_unavailable_series_are_reported_unprompted() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let Some(file) = file(dir.path(), &format!("[\"{}\"]", missing.display()), "") else { return };
    let (code, _, errors) = output(agent(&file).arg("--once"));
    assert_eq!(code, 0, "{errors}");
    assert!(
        errors.contains("source exec is ") && errors.contains("missing: not there"),
        "{errors}"
    );
    let pmu = ["--once", "--sources-perf-events", "nosuch/event=0x1/,task_clock"];
    let (code, _, errors) = output(programs::agent().args(["--spool", "none"]).args(pmu));
    assert_eq!(code, 0, "{errors}");
    assert!(errors.contains("this machine has no PMU `nosuch`"), "{errors}");
    // A missing device matters only if a setting requests it.
    let (_, _, errors) = output(programs::agent().args(["--spool", "none", "--once"]));
    assert!(!errors.contains("absent"), "{errors}");
}

#[test]
fn a_check_reports_errors_of_the_file_and_names_unknown_to_this_machine() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("agent.toml");
    let check = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let (code, _, errors) = output(Command::new(program("jobmeter")).arg("check").arg(&file));
        (code, errors)
    };
    let exec = "[sources.exec]\ncommand = [\"/bin/true\"]\n";
    assert_eq!(check(exec), (0, String::new()));
    for (more, place, reported) in [
        ("pattern = \"(\"", "agent.toml:3:11: ", "not a regular expression"),
        ("metric = \"exec_value_wats\"", "agent.toml:3:10: ", "did you mean `exec_value_watts`?"),
        ("nam = \"x\"", "agent.toml:3:1: ", "did you mean `sources.exec.name`?"),
        ("user = \"nobdy\"", "agent.toml:3:8: ", "did you mean `nobody`?"),
        ("user = \"root\"", "agent.toml:3:8: ", "programs do not run as root"),
        ("[sources.perf]\nevents = [\"nosuch/x/\"]", "agent.toml:4:10: ", "has no PMU `nosuch`"),
    ] {
        let (code, errors) = check(&format!("{exec}{more}\n"));
        assert!(code == 1 && errors.contains(place) && errors.contains(reported), "{errors}");
    }
    let tool = dir.path().join("tool");
    std::fs::write(&tool, "").unwrap();
    std::fs::set_permissions(&tool, Permissions::from_mode(0o777)).unwrap();
    let (code, errors) = check(&format!("[sources.exec]\ncommand = [\"{}\"]\n", tool.display()));
    assert!(code == 1 && errors.contains("`sources.exec.command`: "), "{errors}");
    // A device that only this machine lacks is no error of the file.
    let events = "[sources.perf]\nevents = [\"amd_df/event=0x1/\", \"task_clock\"]\n";
    assert_eq!(check(events).0, 0);
}

/// A running program ends with the agent, whether the agent waits for it (first reading) or only polls it
/// (later readings).
#[test]
fn a_program_that_runs_ends_with_the_agent() {
    for (script, is_first) in
        [("sleep 1019", true), ("[ -e DIR/f ] && exec sleep 1019; echo 7", false)]
    {
        let dir = tempfile::tempdir().unwrap();
        let script = script.replace("DIR", &dir.path().display().to_string());
        let command = format!("[\"/bin/sh\", \"-c\", \"{script}\"]");
        let Some(file) = file(dir.path(), &command, "period = \"1s\"\n") else { return };
        let out = dir.path().join("out");
        let mut agent = agent(&file);
        agent.args(NO_SERVER).stdout(std::fs::File::create(&out).unwrap());
        let mut running = Running::start(&mut agent);
        if !is_first {
            until("its first number", || {
                std::fs::read_to_string(&out).unwrap().contains("exec_value")
            });
            std::fs::write(dir.path().join("f"), "").unwrap();
        }
        let sleeps =
            || output(Command::new("pgrep").args(["-fx", "sleep 1019", "-u", "nobody"])).0 == 0;
        until("the program", sleeps);
        assert_eq!(running.end(), 0, "{}", running.errors());
        until("its end", || !sleeps());
    }
}

fn until(what: &str, has_come: impl Fn() -> bool) {
    let begun = Instant::now();
    while !has_come() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what} does not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Reads another source every 20 ms beside a program that hangs until the agent kills it.
#[test]
fn a_program_that_hangs_holds_up_no_other_source() {
    let dir = tempfile::tempdir().unwrap();
    let hangs = r#"["/bin/sh", "-c", "echo 7; sleep 1013"]"#;
    let more = "period = \"1s\"\ntime_max = \"400ms\"\n[sources.load]\nperiod = \"20ms\"\n";
    let Some(file) = file(dir.path(), hangs, more) else { return };
    let out = dir.path().join("out");
    let mut agent = agent(&file);
    agent.args(NO_SERVER).stdout(std::fs::File::create(&out).unwrap());
    let mut running = Running::start(&mut agent);
    let begun = Instant::now();
    while !running.errors().contains("timed out: it ran longer than 400ms") {
        assert!(begun.elapsed() < Duration::from_secs(20), "{}", running.errors());
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(running.end(), 0, "{}", running.errors());
    let out = std::fs::read_to_string(out).unwrap();
    assert!(!out.contains("exec_value"), "{out}");
    let loads = out.lines().filter(|line| line.starts_with("load_1m\t")).count();
    // Four seconds have 200 readings. While a reading restarts, the other sources wait 50 ms.
    assert!(loads >= 100, "{loads} readings of load");
    let left = output(Command::new("pgrep").args(["-fx", "sleep 1013", "-u", "nobody"]));
    assert_eq!(left.1, "", "a program that was killed is alive");
}
