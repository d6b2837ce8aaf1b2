//! Devices that a running poller reads die and return, and it dies meanwhile: values, gaps, the list of devices and `explain`.

use crate::command::device_states::states;
use crate::command::devices::ipmi::{Bmc, USER};
use crate::command::poll_devices::{Exporter, last, poller, rows};
use crate::common::programs::{Running, Server, until};
use crate::common::up::jobmeter;
use crate::repository::layers::repository;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const LIMIT: Duration = Duration::from_secs(90);

/// A device in Python, and its port.
fn device(program: &str, port: Option<&str>) -> (Running, String) {
    let mut command = Command::new(repository().join("target/python/bin/python"));
    command.arg("-B").arg(repository().join("tests/command").join(program)).args(port);
    let mut running = Running::start(command.stdout(Stdio::piped()));
    let mut line = String::new();
    BufReader::new(running.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (running, line.trim().to_owned())
}

const PERIOD_US: i64 = 1_000_000;
const MODBUS: &str = "poll_modbus.py";
const CIPHER_17: &str = "devices/ipmi_bmc.py";
const DEVICES: [&str; 3] = ["b", "bmc1", "meter"];

/// Whether each device has this state, and a reason that begins so.
fn are(url: &str, state: &str, reason: &str) -> Option<()> {
    let states = states(url);
    let is = |(device, (name, found, why)): (&&str, &(String, String, String))| {
        name == device && found == state && why.starts_with(reason)
    };
    (states.len() == DEVICES.len() && DEVICES.iter().zip(&states).all(is)).then_some(())
}

/// From the last value before a death to the next one: microseconds that no gap covers, of a device.
fn uncovered(url: &str, device: &str, died: i64) -> i64 {
    let micros = |query: &str| -> Vec<(i64, i64)> {
        let pair =
            |row: &serde_json::Value| (row["a"].as_i64().unwrap(), row["b"].as_i64().unwrap());
        rows(url, query).iter().map(pair).collect()
    };
    let values = micros(&format!(
        "SELECT CAST(timestamp AS BIGINT) AS a, 0 AS b FROM metrics \
         WHERE device_id = '{device}' AND metric_id = 'power'"
    ));
    let last_good = values.iter().filter(|(at, _)| *at <= died).map(|(at, _)| *at).max().unwrap();
    let next_good = values.iter().filter(|(at, _)| *at > died).map(|(at, _)| *at).min().unwrap();
    let gaps = micros(&format!(
        "SELECT CAST(from_time AS BIGINT) AS a, CAST(to_time AS BIGINT) AS b FROM gaps \
         WHERE device_id = '{device}' ORDER BY 1"
    ));
    let covered = gaps.iter().fold(last_good, |covered, (from, to)| match *from <= covered {
        true => covered.max(*to),
        false => covered,
    });
    (next_good - covered).max(0)
}

#[test]
fn devices_that_die_and_return_have_their_values_gaps_and_states() {
    let mut bmc = Bmc::start();
    let (mut meter, meter_port) = device(MODBUS, None);
    let (mut second, second_port) = device(CIPHER_17, None);
    let (data, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let spool = tempfile::tempdir().unwrap();
    let text = bmc.entry(USER, "Sys%20Power", "power")
        + &format!(
            "- {{name: power, device_id: meter, url: 'modbus://127.0.0.1:{meter_port}/1/0/be_be_u16'}}\n\
             - {{name: power, device_id: b, url: 'ipmisensor://root:calvin@127.0.0.1:{second_port}/dcmi/power'}}\n"
        );
    let text = text.replace('}', ", update_every: 1000, timeout: 3000}");
    fs::write(files.path().join("all.conf"), text).unwrap();
    let server = Server::start(data.path(), &[]);
    let url = &server.url;
    let mut running = poller("one", files.path(), url, spool.path());
    let values = || DEVICES.map(|device| last(url, device, "power"));
    let first = [Some(248.0), Some(248.0), Some(245.0)];
    until("values of all devices", LIMIT, || (values() == first).then_some(()));
    until("devices that are alive", LIMIT, || are(url, "alive", ""));

    bmc.kill();
    meter.kill();
    second.kill();
    let died = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
    let died = i64::try_from(died).unwrap();
    until("devices that fail", LIMIT, || are(url, "failing", "source "));
    for device in DEVICES {
        let (code, explained, errors) = jobmeter(url, &["explain", "power", "--device", device]);
        assert_eq!(code, 0, "{errors}");
        let words = ["state    failing: source ", "; last good value ", "gap      "];
        assert!(words.iter().all(|word| explained.contains(word)), "{explained}");
    }

    // The poller dies, too, before it reports more of these gaps.
    std::thread::sleep(Duration::from_secs(3));
    running.kill();
    let mut running = poller("one", files.path(), url, spool.path());
    bmc.again(70);
    let (mut meter, _) = device(MODBUS, Some(&meter_port));
    let (mut second, _) = device(CIPHER_17, Some(&second_port));
    until("devices that are alive again", LIMIT, || are(url, "alive", ""));
    until("a value after the restart", LIMIT, || {
        (last(url, "bmc1", "power") == Some(280.0)).then_some(())
    });
    for device in DEVICES {
        // Less than a period: the first poll of the new start may be good.
        let is_covered = || (uncovered(url, device, died) < PERIOD_US).then_some(());
        until("gaps up to the next value", LIMIT, is_covered);
        let (_, explained, _) = jobmeter(url, &["explain", "power", "--device", device]);
        assert!(explained.contains("state    alive"), "{explained}");
    }
    assert_eq!(running.end(), 0, "{}", running.errors());
    meter.kill();
    second.kill();
}

#[test]
fn a_device_that_is_described_while_the_poller_is_down_has_no_gap_of_that_time() {
    let exporters = [Exporter::start(), Exporter::start()];
    let (data, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let spool = tempfile::tempdir().unwrap();
    let write = |exporter: &Exporter, device: &str| {
        let entry = exporter.entry(device, "update_every: 500");
        fs::write(files.path().join(device), entry).unwrap();
    };
    write(&exporters[0], "psu-1");
    let server = Server::start(data.path(), &[]);
    let url = &server.url;
    let mut running = poller("one", files.path(), url, spool.path());
    let has = |device: &str| last(url, device, "prom_power_watt").map(drop);
    until("values of the first", LIMIT, || has("psu-1"));
    assert_eq!(running.end(), 0, "{}", running.errors());

    write(&exporters[1], "psu-2");
    std::thread::sleep(Duration::from_secs(2));
    let mut running = poller("one", files.path(), url, spool.path());
    until("values of both", LIMIT, || has("psu-2"));
    let gaps = |device: &str| {
        let down = "SELECT count(*) AS gaps FROM gaps WHERE cause = 'poller down' AND device_id";
        rows(url, &format!("{down} = '{device}'"))[0]["gaps"].as_i64().unwrap()
    };
    until("the gap of the first", LIMIT, || (gaps("psu-1") == 1).then_some(()));
    assert_eq!(gaps("psu-2"), 0);
    assert_eq!(running.end(), 0, "{}", running.errors());
}
