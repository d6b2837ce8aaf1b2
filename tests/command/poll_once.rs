//! `jobmeter poll DIR --once --print`: a real node exporter, and a service over TLS as a BMC has it.

use crate::common::programs::{Running, output, program};
use crate::repository::layers::repository;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Polls a folder with one file. Returns the exit code, the values by metric, device and labels, and the errors.
pub(crate) fn poll(text: &str, options: &[&str]) -> (i32, BTreeMap<[String; 3], f64>, String) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("all.conf"), text).unwrap();
    let mut command = Command::new(program("jobmeter"));
    command.arg("poll").arg(dir.path()).args(["--once", "--print"]).args(options);
    let (code, out, errors) = output(&mut command);
    let row = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        let key = [fields[0], fields[1], fields[3]].map(str::to_owned);
        (key, fields[6].parse().unwrap())
    };
    (code, out.lines().map(row).collect(), errors)
}

#[test]
fn a_file_in_place_of_the_folder_is_an_error_that_states_it() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for options in [&["--once", "--print"][..], &["--spool", "none"]] {
        let mut command = Command::new(program("jobmeter"));
        let (code, _, errors) = output(command.arg("poll").arg(file.path()).args(options));
        assert_eq!(code, 2, "{errors}");
        assert!(errors.contains(": it is a file; name the folder"), "{errors}");
    }
}

#[test]
fn a_protocol_has_a_manual() {
    for (name, of_source) in [("snmp", false), ("modbus", false), ("ipmi", true)] {
        let mut command = Command::new(program("jobmeter"));
        let (code, out, errors) = output(command.args(["sources", name]));
        assert_eq!(code, 0, "{errors}");
        for part in
            ["\nURLs:\n", "\nvalues:\n", "\n  source timed out\n", "\n  update_every ", "- name: "]
        {
            assert!(out.contains(part), "{part}\n{out}");
        }
        assert_eq!(out.contains("[sources.ipmi]"), of_source, "{out}");
    }
    let mut command = Command::new(program("jobmeter"));
    let (code, _, errors) = output(command.args(["sources", "snmp", "--json"]));
    assert!(code == 2 && errors.contains("`jobmeter devices` shows the states"), "{errors}");
    let mut command = Command::new(program("jobmeter"));
    let (_, _, errors) = output(command.args(["sources", "snmpp"]));
    assert!(errors.contains("did you mean `snmp`?"), "{errors}");
}

pub(crate) fn key(metric: &str, device: &str, labels: &str) -> [String; 3] {
    [metric, device, labels].map(str::to_owned)
}

/// A node exporter on a free port, with a folder of text files.
fn node_exporter(textfiles: &Path) -> (Running, u16) {
    let mut command = Command::new("prometheus-node-exporter");
    command.arg("--web.listen-address=127.0.0.1:0");
    command.arg(format!("--collector.textfile.directory={}", textfiles.display()));
    let running = Running::start(command.stdout(Stdio::null()));
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let errors = running.errors();
        let port = errors.lines().find_map(|line| {
            let (_, address) = line.split_once("address=127.0.0.1:")?;
            address.trim().parse().ok()
        });
        if let Some(port) = port {
            return (running, port);
        }
        assert!(Instant::now() < deadline, "{errors}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_node_exporter_has_the_values_that_another_client_reads() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(
        dir.path().join("own.prom"),
        "kwollect_custom{_metric_id=\"room_power_watt\",_timestamp=\"1606389005.5\",rack=\"a\\\"b\"} 42.5\n\
         own_value{text=\"é\"} 7\n",
    )
    .unwrap();
    let (_exporter, port) = node_exporter(dir.path());
    let entry = |name: &str, list: &str| {
        format!("- {{name: {name}, device_id: n1, url: 'prometheus://127.0.0.1:{port}/{list}'}}\n")
    };
    let (code, values, errors) = poll(&entry("all", ""), &[]);
    assert_eq!((code, &*errors), (0, ""));
    let mut response = ureq::get(format!("http://127.0.0.1:{port}/metrics")).call().unwrap();
    let exposed = response.body_mut().read_to_string().unwrap();
    let samples = exposed.lines().filter(|line| !line.starts_with('#')).count();
    // The exporter counts requests by their status from the second one on.
    assert!(values.len() <= samples && samples <= values.len() + 20, "{samples} {}", values.len());
    let total = exposed.lines().find(|line| line.starts_with("node_memory_MemTotal_bytes "));
    let total: f64 = total.unwrap().split_once(' ').unwrap().1.parse().unwrap();
    assert_eq!(values[&key("prom_node_memory_MemTotal_bytes", "n1", "{}")], total);
    assert_eq!(values[&key("prom_own_value", "n1", r#"{"text": "é"}"#)], 7.0);
    let custom = r#"{"rack": "a\"b", "_metric_origin": "prom_kwollect_custom"}"#;
    assert_eq!(values[&key("room_power_watt", "n1", custom)], 42.5);
    let two =
        entry("load", "node_load1-node_load5") + &entry("memory", "node_memory_MemTotal_bytes");
    let (code, values, _) = poll(&two, &["--devices", "n[1-1]"]);
    assert_eq!((code, values.len()), (0, 3), "{values:?}");
    let (code, _, errors) = poll(&two, &["--devices", "n2"]);
    assert_eq!(code, 2, "{errors}");
}

/// A service as a BMC has it, with its certificate.
struct Bmc {
    _running: Running,
    port: u16,
    dir: tempfile::TempDir,
    fingerprint: String,
}

impl Bmc {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificate, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
        fs::write(&certificate, own.cert.pem()).unwrap();
        fs::write(&key, own.signing_key.serialize_pem()).unwrap();
        let mut openssl = Command::new("openssl");
        openssl.args(["x509", "-noout", "-fingerprint", "-sha256", "-in"]).arg(&certificate);
        let (_, printed, _) = output(&mut openssl);
        let fingerprint = printed.trim().split_once('=').unwrap().1.to_owned();
        let mut command = Command::new(repository().join("target/python/bin/python"));
        command.arg("-B").arg(repository().join("tests/command/poll_once.py"));
        let mut running = Running::start(command.args([&certificate, &key]).stdout(Stdio::piped()));
        let mut line = String::new();
        BufReader::new(running.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { _running: running, port: line.trim().parse().unwrap(), dir, fingerprint }
    }

    /// An entry of a value.
    fn entry(&self, path: &str, more: &str) -> String {
        let url = format!("https://root:calvin%2F7@localhost:{}/redfish/v1/{path}", self.port);
        format!("- {{name: bmc_power_watt, device_id: n1-bmc, url: \"{url}\"{more}}}\n")
    }
}

#[test]
fn values_of_a_document_need_a_verified_certificate_and_the_password() {
    let bmc = Bmc::start();
    let pinned = format!(", tls: {{fingerprint: '{}'}}", bmc.fingerprint);
    let power = "Power?$expand=*#PowerControl[0].PowerConsumedWatts";
    let ca = format!(", tls: {{ca: '{}'}}", bmc.dir.path().join("cert.pem").display());
    for tls in [&*pinned, &ca, ", tls: {insecure: true}"] {
        let labels = format!(", scale_factor: 2, labels: {{psu: 1}}{tls}");
        let (code, values, errors) = poll(&bmc.entry(power, &labels), &[]);
        assert_eq!((code, &*errors), (0, ""), "{tls}");
        assert_eq!(values[&key("bmc_power_watt", "n1-bmc", r#"{"psu": 1}"#)], 422.0, "{tls}");
    }
    let other = ", tls: {fingerprint: '".to_owned() + &"00".repeat(32) + "'}";
    let wrong_password = bmc.entry(power, &pinned).replace("calvin", "secret9");
    for (text, what) in [
        (bmc.entry(power, ""), "permission lost: the certificate is not accepted"),
        (bmc.entry(power, &other), "permission lost: the certificate is not accepted"),
        (wrong_password, "permission lost: user or password is rejected: 401"),
        (bmc.entry("elsewhere#a", &pinned), "it redirects to another host"),
        (bmc.entry("bomb#a", &pinned), "more than 4 MiB"),
        (bmc.entry("nothing#a", &pinned), "the response is 404"),
        (
            bmc.entry("slow#a", &format!(", timeout: 1500{pinned}")),
            "no complete answer within 1500 ms",
        ),
    ] {
        let (code, values, errors) = poll(&text, &[]);
        assert_eq!((code, values.len()), (1, 0), "{errors}");
        assert!(errors.contains(what), "{what}: {errors}");
        assert!(!errors.contains("calvin") && !errors.contains("secret9"), "{errors}");
    }
}

#[test]
fn one_request_serves_all_paths_of_a_document_and_a_wrong_one_costs_no_other() {
    let bmc = Bmc::start();
    let pinned = |number: u8| {
        format!(", labels: {{n: {number}}}, tls: {{fingerprint: '{}'}}", bmc.fingerprint)
    };
    let text = [
        "old#PowerControl[0].PowerConsumedWatts",
        "old#$.PowerSupplies[0].LineInputVoltage",
        "old#PowerSupplies[-1].Status.Health",
        "old#PowerControl[1].PowerConsumedWatts",
        "old#PowerControl[7].PowerConsumedWatts",
        "old#PowerSupplies[1].Status",
        "old#Hostile",
    ];
    let entries = text.iter().zip(1..).map(|(path, number)| bmc.entry(path, &pinned(number)));
    let (code, values, errors) = poll(&entries.collect::<String>(), &[]);
    assert_eq!(code, 1);
    let value = |labels: &str| values.get(&key("bmc_power_watt", "n1-bmc", labels)).copied();
    assert_eq!(value(r#"{"n": 1}"#), Some(211.0));
    assert_eq!(value(r#"{"n": 2}"#), Some(230.5));
    assert!(value(r#"{"n": 3, "value_str": "OK"}"#).unwrap().is_nan());
    let cleaned = r#"{"n": 7, "value_str": " [31mred "}"#;
    assert!(value(cleaned).unwrap().is_nan(), "no device acts on the terminal: {values:?}");
    assert_eq!(values.len(), 4, "null is no row: {values:?}");
    let lines: Vec<&str> = errors.lines().collect();
    assert_eq!(lines.len(), 3, "{errors}");
    assert!(lines[0].contains("the device has no reading: the value is null"), "{errors}");
    assert!(lines[1].contains("the JSONPath matches nothing"), "{errors}");
    assert!(lines[2].contains("leads to a list or an object"), "{errors}");
}

#[test]
fn a_pinned_certificate_verifies_its_target_until_it_has_another() {
    let (bmc, dir) = (Bmc::start(), tempfile::tempdir().unwrap());
    let (files, pins) = (dir.path().join("files"), dir.path().join("pins"));
    fs::create_dir(&files).unwrap();
    let entry = bmc.entry("Power?$expand=*#PowerControl[0].PowerConsumedWatts", "");
    fs::write(files.join("all.conf"), entry).unwrap();
    let run = |options: &[&str]| {
        let mut command = Command::new(program("jobmeter"));
        command.env("JOBMETER_PINS", &pins).env("JOBMETER_POLLER_FILE", "/dev/null");
        output(command.arg("poll").arg(&files).args(options))
    };
    let once = ["--once", "--print"];
    assert_eq!(run(&once).0, 1, "nothing is pinned");
    let digits = bmc.fingerprint.replace(':', "").to_lowercase();
    for _ in 0..2 {
        let (code, out, errors) = run(&["--pin"]);
        assert_eq!((code, &*errors), (0, ""));
        assert!(out.contains(&format!("https://localhost:{}: pinned {digits}", bmc.port)), "{out}");
    }
    let (code, out, errors) = run(&once);
    assert_eq!((code, &*errors), (0, ""));
    assert!(out.contains("bmc_power_watt"), "{out}");

    // Another certificate is neither accepted nor pinned.
    let text = fs::read_to_string(&pins).unwrap().replace(&digits, &"0".repeat(64));
    fs::write(&pins, text).unwrap();
    let (code, _, errors) = run(&once);
    assert_eq!(code, 1);
    assert!(errors.contains("the certificate is not accepted"), "{errors}");
    let (code, _, errors) = run(&["--pin"]);
    assert_eq!(code, 1);
    assert!(errors.contains(&digits) && errors.contains("remove its line from"), "{errors}");
    assert!(!fs::read_to_string(&pins).unwrap().contains(&digits));
}
