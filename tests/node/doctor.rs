//! Tests of `jobmeter doctor`: on this machine as root and as an ordinary user, on recorded machines, and
//! with settings that request missing devices.

use crate::common::programs::{Server, output, program, root};
use crate::repository::layers::repository;
use serde_json::Value;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

/// Runs the command, and returns its exit code and its report.
fn doctor(command: &mut Command, arguments: &[&str]) -> (i32, Value) {
    let (code, out, errors) = output(command.args(["doctor", "--json"]).args(arguments));
    let report = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{errors}"));
    (code, report)
}

fn jobmeter() -> Command {
    Command::new(program("jobmeter"))
}

/// Runs the command as UID 65534 (nobody), which every machine has.
fn as_nobody() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
    command.arg(program("jobmeter")).env("HOME", "/nonexistent");
    command
}

fn line<'a>(report: &'a Value, name: &str) -> &'a Value {
    let all = report["machine"].as_array().unwrap().iter().chain(sources(report));
    let mut found =
        all.filter(|line| line["name"] == name || line["source"] == name).collect::<Vec<_>>();
    assert_eq!(found.len(), 1, "{name}: {report}");
    found.remove(0)
}

fn sources(report: &Value) -> &Vec<Value> {
    report["sources"].as_array().unwrap()
}

/// Checks that the exit code matches the report's lines, and that every state is known. A state other than
/// `ok` must have an explanation, and `denied` also a remedy.
fn is_sound(code: i32, report: &Value) {
    let all = report["machine"].as_array().unwrap().iter().chain(sources(report));
    let mut ill = false;
    for line in all {
        let state = line["state"].as_str().unwrap();
        ill |= matches!(state, "denied" | "broken");
        assert!(["ok", "absent", "denied", "broken", "off"].contains(&state), "{line}");
        let has_text = |name: &str| !line[name].as_str().unwrap().is_empty();
        assert!(state == "ok" || has_text("what"), "{line}");
        assert!(state != "denied" || has_text("grant"), "{line}");
    }
    assert_eq!(code, i32::from(ill), "{report}");
    assert_eq!(report["good"], !ill);
}

#[test]
fn doctor_reports_what_this_machine_lacks_and_what_reading_it_costs() {
    let (code, report) = doctor(&mut jobmeter(), &["--for", "1500ms"]);
    is_sound(code, &report);
    let listed = output(jobmeter().args(["sources", "--json"])).1;
    let listed: Vec<Value> = serde_json::from_str(&listed).unwrap();
    let names = |lines: &[Value]| -> Vec<String> {
        let names = lines.iter().map(|line| line["source"].as_str().unwrap().to_owned());
        names.filter(|name| !name.contains('/')).collect()
    };
    assert_eq!(names(sources(&report)), names(&listed), "each source once, and none left out");
    let cpu = line(&report, "cpu");
    assert_eq!((&cpu["state"], &cpu["period_seconds"]), (&"ok".into(), &5.0.into()));
    let cost = |name: &str| cpu["cost"][name].as_f64().unwrap();
    assert!(cost("tick_seconds") > 0.0 && cost("tick_seconds") < 0.1, "{cpu}");
    let day = cost("tick_seconds") * 86_400.0 / 5.0;
    assert!((cost("day_seconds") - day).abs() < day * 1e-9, "{cpu}");
    assert!((cost("core_percent") - day / 864.0).abs() < day * 1e-9, "{cpu}");
    assert!(cpu["series"].as_u64().unwrap() > 10, "{cpu}");
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(line(&report, "kernel")["what"], format!("Linux {}", kernel.trim()));

    // An absent source is not read, so it has no cost.
    let costs = |line: &&Value| line["state"] != "ok" && !line["cost"].is_null();
    assert_eq!(sources(&report).iter().find(costs), None);

    let (_, text, _) = output(jobmeter().args(["doctor", "--for", "10ms"]));
    let cost = text.lines().find(|line| line.starts_with("cpu ")).unwrap();
    assert!(cost.contains(" ms ") && cost.ends_with('%'), "{text}");
}

#[test]
fn doctor_of_an_ordinary_user_names_the_capability() {
    if !root("doctor_of_an_ordinary_user_names_the_capability") {
        return;
    }
    let (code, report) = doctor(&mut as_nobody(), &["--for", "10ms"]);
    is_sound(code, &report);
    assert_eq!(code, 1);
    let taskstats = line(&report, "taskstats");
    assert_eq!(taskstats["state"], "denied");
    assert!(taskstats["grant"].as_str().unwrap().starts_with("CAP_NET_ADMIN"), "{taskstats}");
    assert_eq!(line(&report, "capabilities")["what"], "of this process (user 65534): none");
    for name in ["environments", "spool"] {
        let line = line(&report, name);
        assert_eq!(line["state"], "denied", "{line}");
    }
}

#[test]
fn doctor_of_a_recorded_machine_reports_that_machine() {
    let host = repository().join("testdata/hosts/bare-4.18/1");
    let (code, report) = doctor(&mut jobmeter(), &["--root", host.to_str().unwrap()]);
    is_sound(code, &report);
    let psi = line(&report, "psi");
    assert_eq!(psi["state"], "absent");
    assert!(psi["grant"].as_str().unwrap().contains("psi=1"), "{psi}");
    assert_eq!(line(&report, "pressure")["state"], "absent");
    // The report of a recording has no costs, and no lines about this machine's agent and server.
    assert!(sources(&report).iter().all(|line| line["cost"].is_null()), "{report}");
    let reported =
        |name: &str| report["machine"].as_array().unwrap().iter().any(|it| it["name"] == name);
    assert!(reported("kernel") && !reported("server") && !reported("spool"), "{report}");

    let host = repository().join("testdata/hosts/hostile-v2/1");
    let (code, report) = doctor(&mut jobmeter(), &["--root", host.to_str().unwrap()]);
    is_sound(code, &report);
    assert_eq!((code, &line(&report, "cgroup/cpu")["state"]), (1, &"broken".into()), "{report}");
}

#[test]
fn doctor_checks_the_configuration_of_the_agent() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("agent.toml");
    let file = file.to_str().unwrap();
    let spool = dir.path().join("below/spool");
    let write = |text: &str| fs::write(file, text).unwrap();
    let request = || doctor(&mut jobmeter(), &["--agent", file, "--for", "10ms"]);

    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    write(&format!(
        "server = \"{}\"\nspool = \"{}\"\nspool_bytes_max = \"1MiB\"\n\
         [sources.taskstats]\nenabled = false\n[sources.load]\nperiod = \"30s\"\n",
        server.url,
        spool.display()
    ));
    let (code, report) = request();
    is_sound(code, &report);
    assert_eq!(line(&report, "server")["state"], "ok", "{report}");
    assert_eq!(line(&report, "spool")["state"], "ok", "{report}");
    assert!(!spool.parent().unwrap().try_exists().unwrap(), "it makes nothing");
    assert_eq!(line(&report, "taskstats")["state"], "off");
    assert_eq!(line(&report, "load")["period_seconds"], 30.0);
    // The server does not count doctor's request as a frame, neither valid nor malformed.
    let (_, metrics) = crate::common::programs::get(&server.url, "/metrics");
    let malformed = metrics.lines().find(|line| {
        line.starts_with("jobmeter_ingest_frames_total") && line.contains("malformed")
    });
    assert!(malformed.is_none_or(|line| line.ends_with(" 0")), "{malformed:?}");

    write("server = \"http://127.0.0.1:9\"\nspool = \"none\"\n");
    let (code, report) = request();
    is_sound(code, &report);
    assert_eq!((code, &line(&report, "server")["state"]), (1, &"broken".into()), "{report}");
    assert_eq!(line(&report, "spool")["state"], "absent");

    write("servr = \"http://127.0.0.1:9\"\n");
    let (code, report) = request();
    is_sound(code, &report);
    let settings = line(&report, "settings");
    assert_eq!((code, &settings["state"]), (1, &"broken".into()), "{report}");
    assert!(settings["what"].as_str().unwrap().contains("servr"), "{settings}");
}

#[test]
fn the_record_of_a_server_that_was_killed_is_no_fault_of_the_node() {
    if !root("the_record_of_a_server_that_was_killed_is_no_fault_of_the_node") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("jobmeter");
    fs::create_dir(&folder).unwrap();
    for path in [dir.path(), &folder] {
        fs::set_permissions(path, Permissions::from_mode(0o700)).unwrap();
        chown(path, Some(65534), None).unwrap();
    }
    let record = folder.join("server");
    fs::write(&record, "http://127.0.0.1:9\n").unwrap();
    let request = || {
        let mut command = as_nobody();
        command.env("XDG_RUNTIME_DIR", dir.path()).env_remove("JOBMETER_SERVER");
        let (code, report) = doctor(&mut command, &["--for", "10ms"]);
        is_sound(code, &report);
        line(&report, "server").clone()
    };
    let stale = request();
    assert_eq!(stale["state"], "absent", "{stale}");
    let what = stale["what"].as_str().unwrap();
    assert!(
        what.contains(record.to_str().unwrap()) && what.contains("no longer running"),
        "{stale}"
    );
    assert!(record.try_exists().unwrap(), "doctor changes nothing");

    // A running server holds a lock on its record, so a server without a response is an error.
    let held = File::open(&record).unwrap();
    held.lock().unwrap();
    let silent = request();
    assert_eq!(silent["state"], "broken", "{silent}");
}
