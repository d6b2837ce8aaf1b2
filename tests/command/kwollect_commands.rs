//! `jobmeter feed`, `kwollector` and `kwollector-wattmetre`, with Kwollect's files and a real server.

use crate::command::poll_devices::{Exporter, last, rows};
use crate::common::programs::{NO_SERVER, Running, Server, output, program, root, until};
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The command with a spool of its own and no settings.
fn jobmeter(spool: &Path) -> Command {
    let mut command = Command::new(program("jobmeter"));
    command.env("JOBMETER_POLLER_FILE", "/dev/null").env("JOBMETER_CLIENT_FILE", "/dev/null");
    command.env("JOBMETER_SPOOL", spool);
    command
}

/// The values of a device, by their time.
fn values(url: &str, device: &str) -> Vec<f64> {
    let query = format!(
        "SELECT value FROM metrics_by_device WHERE device_id = '{device}' AND metric_id = 'wattmetre_power_watt' ORDER BY timestamp"
    );
    rows(url, &query).iter().map(|row| row["value"].as_f64().unwrap()).collect()
}

#[test]
fn a_wattmeter_is_stored_with_the_files_of_kwollector_wattmetre() {
    let (data, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = Server::start(data.path(), &[]);
    let file = |name: &str, text: &str| {
        let file = dir.path().join(name);
        fs::write(&file, text).unwrap();
        file
    };
    let mapping = file("mapping.yaml", "node-1: [w1-port0, w1-port2]\nnode-2:\n- w1-port1\n");
    let mapping = mapping.display();
    let text = format!("mapping_file_path: {mapping}\ndb_password: secret\nwattmetre_id: w0\n");
    let conf = file("wattmetre.conf", &text);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let lines: String = (0..150)
        .map(|number| {
            let (second, micros) = (now - 60 + number / 50, number % 50 * 20_000);
            format!("0,0,{second}.{micros:06}000,OK,{number},50,{}\n", 1000 - number)
        })
        .collect();
    let lines = file("lines.csv", &lines);
    let run = |command: &mut Command| output(command.stdin(fs::File::open(&lines).unwrap()));
    let mut command = jobmeter(&dir.path().join("spool"));
    command.args(["--server", &server.url, "kwollector-wattmetre"]).arg(&conf);
    let (code, _, errors) = run(command.args(["--wattmetre_id", "w1"]));
    assert_eq!(code, 0, "{errors}");
    assert!(errors.contains("not used: db_password") && !errors.contains("secret"), "{errors}");
    assert_eq!(values(&server.url, "w1-port0"), [24.5, 74.5, 124.5]);
    assert_eq!(values(&server.url, "node-1"), [1000.0; 3], "two power supplies are summed");
    assert_eq!(values(&server.url, "node-2"), [50.0; 3]);

    let mut command = jobmeter(&dir.path().join("spool"));
    command.args(["feed", "wattmetre", "--id", "w2", "--every-sample", "--server", &server.url]);
    let (code, _, errors) = run(&mut command);
    assert_eq!(code, 0, "{errors}");
    let expected: Vec<f64> = (0..150).map(f64::from).collect();
    assert_eq!(values(&server.url, "w2-port0"), expected);

    let wrong = file("wrong.conf", "wattmetre_id: [a]\nwattmetre_version: 4\n");
    let mut command = jobmeter(&dir.path().join("spool"));
    let (code, _, errors) = run(command.arg("kwollector-wattmetre").arg(&wrong));
    assert_eq!(code, 2, "{errors}");
    assert!(errors.contains("wrong.conf:1: wattmetre_id: a text is expected"), "{errors}");
    assert!(errors.contains("wrong.conf:2: wattmetre_version: `4`"), "{errors}");
}

#[test]
fn devices_are_polled_with_the_files_of_kwollector() {
    let (data, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = Server::start(data.path(), &[]);
    let files = dir.path().join("metrics.d");
    fs::create_dir(&files).unwrap();
    fs::write(
        files.join("psu-1.conf"),
        Exporter::start().entry("psu-1", "update_every: 1000, timeout: 10000"),
    )
    .unwrap();
    let conf = dir.path().join("kwollector.conf");
    fs::write(&conf, "metrics_dir: /nowhere\nworker: 4\nlog_level: info\n").unwrap();
    let mut command = jobmeter(&dir.path().join("spool"));
    command.env("JOBMETER_NAME", "one").arg("kwollector").arg(&conf);
    command.arg("-m").arg(&files).args(["--server", &server.url]);
    let mut running = Running::start(command.stdout(Stdio::null()));
    until("a value", Duration::from_secs(60), || last(&server.url, "psu-1", "prom_power_watt"));
    assert_eq!(running.end(), 0, "{}", running.errors());
    let errors = running.errors();
    assert!(errors.contains("not used: worker") && errors.contains("polls 1 targets"), "{errors}");

    let mut command = jobmeter(&dir.path().join("spool"));
    let (code, _, errors) = output(command.arg("kwollector").arg(&conf).args(NO_SERVER));
    assert_eq!(code, 2, "{errors}");
    assert!(errors.contains("/nowhere"), "{errors}");
}

#[test]
fn without_a_server_the_commands_print_how_to_run_one_on_their_database() {
    if !root("without_a_server_the_commands_print_how_to_run_one_on_their_database") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let conf = dir.path().join("kwollector.conf");
    fs::write(&conf, "db_host: db.example\ndb_password: secret\n").unwrap();
    for (original, option) in
        [("kwollector", "--worker=4"), ("kwollector-wattmetre", "--wattmetre_id=w")]
    {
        // No server of this machine is found where /run is empty.
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", "mount -t tmpfs none /run && exec \"$@\"", "sh"]);
        command.arg(program("jobmeter")).arg(original).arg(&conf).arg(option);
        command.env("JOBMETER_POLLER_FILE", "/dev/null").env("JOBMETER_CLIENT_FILE", "/dev/null");
        let (code, _, errors) = output(command.args(["--db_name", "site"]).stdin(Stdio::null()));
        let expected = "jobmeter server --store postgres --postgres-database 'host=db.example user=kwuser dbname=site' \
                        --postgres-password-file FILE";
        assert!(code == 2 && errors.contains(expected), "{errors}");
        assert!(!errors.contains("secret"), "{errors}");
    }
}

#[test]
fn a_promoted_port_has_every_sample() {
    let (data, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = Server::start(data.path(), &[]);
    let mapping = dir.path().join("mapping.yaml");
    fs::write(&mapping, "node-1: [w1-port0]\n").unwrap();
    let mut command = jobmeter(&dir.path().join("spool"));
    command.args(["feed", "wattmetre", "--id", "w1", "--server", &server.url, "--mapping"]);
    let mut feed =
        Running::start(command.arg(&mapping).stdin(Stdio::piped()).stdout(Stdio::null()));
    let mut input = feed.child.stdin.take().unwrap();
    let lines = std::thread::spawn(move || {
        for number in 0..u32::MAX {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            let (second, nanos) = (now.as_secs(), now.subsec_nanos());
            let line = format!("0,0,{second}.{nanos:09},OK,{number},50\n");
            // The feed has ended.
            if input.write_all(line.as_bytes()).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let count = |port: &str| values(&server.url, port).len();
    let limit = Duration::from_secs(60);
    until("means", limit, || (count("w1-port0") >= 2).then_some(()));
    assert!(count("w1-port0") <= count("w1-port1"), "both have means");
    let mut promote = jobmeter(dir.path());
    promote.args(["promote", "wattmetre_power", "--nodes", "node-1", "--server", &server.url]);
    let (_, out, errors) = output(&mut promote);
    assert!(out.contains("node-1"), "{out}{errors}");
    until("samples", limit, || (count("w1-port0") >= count("w1-port1") + 10).then_some(()));
    assert_eq!(feed.end(), 0, "{}", feed.errors());
    lines.join().unwrap();
}
