//! `jobmeter devices`, `nodes` and `explain` of polled devices, and their pages in a browser: a dead device and a dead poller
//! beside others that are alive.

use crate::command::poll_devices::{Exporter, last, poller, rows};
use crate::common::programs::{Server, get, output, until};
use crate::common::up::jobmeter;
use crate::repository::layers::repository;
use serde_json::Value;
use std::fs;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
/// Three periods of the devices.
const THREE_PERIODS: Duration = Duration::from_secs(12);
/// Time to look, on a busy machine.
const SLACK: Duration = Duration::from_secs(3);

/// Each device with its state and the reason.
pub(crate) fn states(url: &str) -> Vec<(String, String, String)> {
    let (status, body) = get(url, "/api/v1/devices");
    assert_eq!(status, 200, "{body}");
    assert!(!body.contains("secret") && !body.contains("ann:"), "{body}");
    let devices: Vec<Value> = serde_json::from_str(&body).unwrap();
    let text = |one: &Value, key: &str| one[key].as_str().unwrap_or_default().to_owned();
    let row = |one: &Value| (text(one, "device"), text(one, "state"), text(one, "reason"));
    devices.iter().map(row).collect()
}

fn is(url: &str, expected: [(&str, &str); 3]) -> Option<()> {
    let states = states(url);
    let found = states.iter().map(|(device, state, _)| (&**device, &**state));
    found.eq(expected).then_some(())
}

#[test]
fn a_dead_device_and_a_dead_poller_are_shown_within_three_periods_and_others_as_alive() {
    let exporters = [Exporter::start(), Exporter::start(), Exporter::start()];
    let (data, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let other_files = tempfile::tempdir().unwrap();
    let every = "update_every: 4000, labels: {_device_alias: n1}";
    let text = exporters[0].entry("psu-1", every) + &exporters[1].entry("psu-2", every);
    fs::write(files.path().join("all.conf"), text).unwrap();
    fs::write(other_files.path().join("all.conf"), exporters[2].entry("psu-3", every)).unwrap();
    let server = Server::start(data.path(), &[]);
    let url = &server.url;
    let spools = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut one = poller("one", files.path(), url, spools[0].path());
    let mut two = poller("two", other_files.path(), url, spools[1].path());
    let alive = [("psu-1", "alive"), ("psu-2", "alive"), ("psu-3", "alive")];
    until("all devices alive", LIMIT, || is(url, alive));

    // Devices are no nodes.
    let (_, nodes, _) = jobmeter(url, &["nodes"]);
    assert!(!nodes.contains("psu-"), "{nodes}");
    let line = "3 devices besides the nodes, all of them well: jobmeter devices";
    assert_eq!(nodes.lines().last(), Some(line), "{nodes}");
    until("the requested period", LIMIT, || {
        let arguments = ["explain", "prom_power_watt", "--device", "psu-2"];
        let (code, explained, _) = jobmeter(url, &arguments);
        assert_eq!(code, 0, "{explained}");
        assert!(explained.contains("state    alive"), "{explained}");
        // From the second sample on.
        explained.contains("read by the poller one, requested every 4.000 s").then_some(())
    });
    let (_, csv, _) = jobmeter(url, &["devices", "--csv", "--node", "n1", "--search", "PSU-3"]);
    let rows: Vec<&str> = csv.lines().collect();
    assert!(rows.len() == 2 && rows[1].starts_with("psu-3,") && rows[1].contains(",n1,"), "{csv}");

    // A device dies.
    exporters[1].is_broken.store(true, Ordering::SeqCst);
    let died = Instant::now();
    let failing = [("psu-1", "alive"), ("psu-2", "failing"), ("psu-3", "alive")];
    until("a failing device", LIMIT, || is(url, failing));
    assert!(died.elapsed() < THREE_PERIODS, "{:?}", died.elapsed());
    until("the reason", LIMIT, || states(url)[1].2.starts_with("source broken: ").then_some(()));
    let (code, table, _) = jobmeter(url, &["devices", "--failing"]);
    assert_eq!((code, table.lines().count()), (1, 2), "{table}");
    assert!(table.contains("psu-2 ") && table.contains(" ago "), "{table}");
    let (code, explained, _) = jobmeter(url, &["explain", "prom_power_watt", "--device", "psu-2"]);
    assert_eq!(code, 0, "{explained}");
    let lines = ["state    failing: source broken: ", "; last good value ", "gap      "];
    assert!(lines.iter().all(|line| explained.contains(line)), "{explained}");
    let (code, _, why) = jobmeter(url, &["explain", "no_such", "--device", "psu-2"]);
    assert!(code == 1 && why.contains("psu-2: failing: source broken"), "{why}");
    let (code, _, why) = jobmeter(url, &["explain", "no_such", "--device", "psu-1"]);
    assert!(code == 1 && why.contains("does not request no_such"), "{why}");

    let (_, metrics) = get(url, "/metrics");
    let has = |line: &str| assert!(metrics.lines().any(|one| one == line), "{line}\n{metrics}");
    has("jobmeter_poll_devices{protocol=\"prometheus\",state=\"alive\"} 2");
    has("jobmeter_poll_devices{protocol=\"prometheus\",state=\"failing\"} 1");
    has("jobmeter_poll_failing{cause=\"source broken\"} 1");
    has("jobmeter_poll_pollers{state=\"alive\"} 2");

    // The pages show it.
    let mut page = Command::new("node");
    page.arg("tests/browser/devices.mjs").arg(format!("{url}/")).args(["psu-1", "psu-2"]);
    let (code, out, errors) = output(page.current_dir(repository()));
    assert_eq!(code, 0, "{out}\n{errors}");

    // A poller dies: its other device is not alive any more.
    one.kill();
    let died = Instant::now();
    let silent = |url: &str| {
        let states = states(url);
        let is_silent = states[0].1 == "unknown" && states[0].2 == "the poller is silent";
        (is_silent && states[2].1 == "alive").then_some(())
    };
    until("a silent poller", LIMIT, || silent(url));
    assert!(died.elapsed() < THREE_PERIODS + SLACK, "{:?}", died.elapsed());
    let (code, _, _) = jobmeter(url, &["devices", "--device", "psu-3"]);
    assert_eq!(code, 0);
    assert_eq!(two.end(), 0, "{}", two.errors());
}

#[test]
fn entries_with_errors_are_shown_with_their_lines_until_they_are_repaired() {
    let exporter = Exporter::start();
    let (data, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let spool = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(files.path().join(name), text).unwrap();
    let line = |name: &str, line: usize| format!("{}:{line}: ", files.path().join(name).display());
    write("good", &exporter.entry("psu-1", "update_every: 500"));
    let no_url = "- {name: amps, device_id: psu-1}\n- {name: volts, device_id: psu-2, url: 'gopher://a/b'}\n";
    write("bad", no_url);
    write("broken", "- {name: amps\n- 1: [\n");
    let server = Server::start(data.path(), &[]);
    let url = &server.url;
    let mut running = poller("one", files.path(), url, spool.path());
    let with_errors = [("psu-1", "alive"), ("psu-1", "failing"), ("psu-2", "failing")];
    until("the errors", LIMIT, || is(url, with_errors));

    let (code, table, notes) = jobmeter(url, &["devices", "--failing"]);
    assert!(code == 1 && table.contains(&line("bad", 1)), "{table}");
    assert!(table.contains(&line("bad", 2)) && !table.contains("alive"), "{table}");
    assert!(notes.contains("poller one: ") && notes.contains(&line("broken", 2)), "{notes}");
    let explained = |metric: &str, device: &str| {
        let (code, _, why) = jobmeter(url, &["explain", metric, "--device", device]);
        assert_eq!(code, 1, "{why}");
        why
    };
    let why = explained("amps", "psu-1");
    let expected = format!("psu-1: amps is not polled: {}the key `url` is missing", line("bad", 1));
    assert!(why.contains(&expected) && why.contains(&line("broken", 2)), "{why}");
    assert!(!why.contains("does not request"), "{why}");
    let why = explained("volts", "psu-2");
    assert!(why.contains(&format!("psu-2: volts is not polled: {}", line("bad", 2))), "{why}");
    assert!(!why.contains("knows no device"), "{why}");
    let why = explained("watts", "psu-1");
    assert!(why.contains("does not request watts") && !why.contains(&line("bad", 1)), "{why}");
    let has = |text: &str| {
        let (_, metrics) = get(url, "/metrics");
        metrics.lines().any(|one| one == text).then_some(())
    };
    until("the count", LIMIT, || has("jobmeter_poll_entry_errors{poller=\"one\"} 3"));

    // Repaired, they are gone at once.
    write("bad", "");
    write("broken", "");
    let good = || states(url).iter().all(|one| one.1 == "alive").then_some(());
    until("no errors", LIMIT, good);
    assert_eq!(running.end(), 0, "{}", running.errors());
}

#[test]
fn a_poller_without_a_valid_entry_reports_the_errors() {
    let (data, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let spool = tempfile::tempdir().unwrap();
    fs::write(files.path().join("all"), "- {name: amps, device_id: psu-1}\n").unwrap();
    let server = Server::start(data.path(), &[]);
    let mut running = poller("one", files.path(), &server.url, spool.path());
    let is_listed = || (states(&server.url).first()?.1 == "failing").then_some(());
    until("the device", LIMIT, is_listed);
    let (_, body) = get(&server.url, "/api/v1/pollers");
    let pollers: Value = serde_json::from_str(&body).unwrap();
    let one = &pollers[0];
    assert!(one["poller"] == "one" && one["state"] == "alive", "{body}");
    assert_eq!((one["entry_errors"]["count"].as_u64(), pollers.get(1)), (Some(1), None), "{body}");
    assert_eq!(running.end(), 0, "{}", running.errors());
}

#[test]
fn exporters_that_disagree_about_a_metric_both_keep_their_samples_and_a_description_decides() {
    let exporters = [Exporter::of_type("counter"), Exporter::of_type("gauge")];
    let (data, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let spool = tempfile::tempdir().unwrap();
    let every = "update_every: 500";
    for (exporter, device) in exporters.iter().zip(["psu-1", "psu-2"]) {
        fs::write(files.path().join(device), exporter.entry(device, every)).unwrap();
    }
    let server = Server::start(data.path(), &[]);
    let mut running = poller("one", files.path(), &server.url, spool.path());
    let values = || {
        let value = |device| last(&server.url, device, "prom_requests_total");
        Some((value("psu-1")?, value("psu-2")?))
    };
    let grow = |what: &str| {
        let before = until(what, LIMIT, values);
        until(what, LIMIT, || values().filter(|now| now.0 > before.0 && now.1 > before.1));
    };
    grow("values of both types");
    let declared = exporters[1].entry("psu-2", "update_every: 500, unit: joules, kind: gauge");
    fs::write(files.path().join("psu-2"), declared).unwrap();
    let meaning = || {
        let meaning = "SELECT kind, unit FROM catalogue WHERE name = 'prom_requests_total'";
        rows(&server.url, meaning).remove(0)
    };
    let declared = serde_json::json!({"kind": "gauge", "unit": "joules"});
    until("the declared meaning", LIMIT, || (meaning() == declared).then_some(()));
    grow("values of both meanings");
    assert_eq!(meaning(), declared);
    let rejected = "SELECT count(*) AS n FROM gaps WHERE cause = 'series rejected'";
    assert_eq!(rows(&server.url, rejected)[0]["n"], 0);
    assert_eq!(running.end(), 0, "{}", running.errors());
}
