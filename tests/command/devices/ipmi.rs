//! `jobmeter poll` on BMCs: OpenIPMI's simulator, compared with ipmitool, and a BMC of our own with cipher suite 17 and DCMI.

use crate::command::poll_devices::{last, poller};
use crate::command::poll_once::{key, poll};
use crate::common::programs::{Running, Server, output, until};
use crate::common::udp_way::UdpWay;
use crate::repository::layers::repository;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// A sensor of the simulator: number, name, type, unit, factor, decimal exponent, reading.
type Sensor = (u8, &'static str, u8, u8, u8, i8, u8);

const SENSORS: [Sensor; 4] = [
    (1, "CPU1 Temp", 0x01, 1, 1, 0, 45),
    (2, "Sys Power", 0x0b, 6, 4, 0, 62),
    (3, "FAN1", 0x04, 18, 50, 0, 100),
    (4, "P12V", 0x02, 4, 60, -3, 200),
];

/// A BMC that OpenIPMI simulates.
pub(super) struct Bmc {
    running: Running,
    port: u16,
    dir: tempfile::TempDir,
}

impl Bmc {
    pub(super) fn start() -> Self {
        Self::with(&SENSORS)
    }

    fn with(sensors: &[Sensor]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let place = dir.path().display();
        let (config, commands) = (dir.path().join("lan.conf"), dir.path().join("commands"));
        let auths: String = ["callback", "user", "operator", "admin"]
            .iter()
            .map(|level| format!("    allowed_auths_{level} none md2 md5 straight\n"))
            .collect();
        let text = format!(
            "name \"bmc1\"\nset_working_mc 0x20\n  startlan 1\n    addr 127.0.0.1 {port}\n    priv_limit admin\n\
             {auths}    guid a123456789abcdefa123456789abcdef\n  endlan\n\
             \x20 user 1 true \"\" \"test\" user 10 none md2 md5 straight\n\
             \x20 user 2 true \"monitor\" \"pass/7\" operator 10 none md2 md5 straight\n"
        );
        fs::write(&config, text).unwrap();
        let mut text =
            "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02\n".to_owned();
        for (number, name, kind, unit, factor, exponent, reading) in sensors.iter().copied() {
            fs::write(dir.path().join(format!("s{number}")), reading.to_string()).unwrap();
            writeln!(
                text,
                "sensor_add 0x20 0 {number} {kind} 0x01 poll 200 file \"{place}/s{number}\""
            )
            .unwrap();
            let none = "000000000000000 ".repeat(4);
            writeln!(
                text,
                "sensor_set_event_support 0x20 0 {number} enable scanning per-state {none}"
            )
            .unwrap();
            let record = record((number, name, kind, unit, factor, exponent, reading));
            let bytes: String = record.iter().map(|byte| format!(" 0x{byte:02x}")).collect();
            writeln!(text, "main_sdr_add 0x20{bytes}").unwrap();
        }
        text += "mc_enable 0x20\n";
        fs::write(&commands, text).unwrap();
        let running = simulator(dir.path());
        let bmc = Self { running, port, dir };
        bmc.wait();
        bmc
    }

    fn wait(&self) {
        until("the simulator", LIMIT, || self.ipmitool("FAN1").contains("5000").then_some(()));
    }

    pub(super) fn kill(&mut self) {
        self.running.kill();
    }

    /// Starts it again on its port, with another reading of its power.
    pub(super) fn again(&mut self, reading: u8) {
        fs::write(self.dir.path().join("s2"), reading.to_string()).unwrap();
        self.running = simulator(self.dir.path());
        self.wait();
    }

    /// What ipmitool prints about a sensor.
    fn ipmitool(&self, sensor: &str) -> String {
        let mut command = Command::new("ipmitool");
        command.args(["-I", "lanplus", "-C", "3", "-H", "127.0.0.1", "-p", &self.port.to_string()]);
        command
            .args(["-U", "monitor", "-P", "pass/7", "-L", "OPERATOR", "sensor", "reading", sensor]);
        output(&mut command).1
    }

    pub(super) fn entry(&self, user: &str, path: &str, name: &str) -> String {
        let port = self.port;
        format!(
            "- {{name: {name}, device_id: bmc1, url: 'ipmisensor://{user}@127.0.0.1:{port}/{path}'}}\n"
        )
    }
}

/// The simulator of a BMC with the files in a folder.
fn simulator(dir: &Path) -> Running {
    let mut command = Command::new("ipmi_sim");
    command.arg("-c").arg(dir.join("lan.conf")).arg("-f").arg(dir.join("commands"));
    command.arg("-s").arg(dir).arg("-n");
    Running::start(command.stdin(Stdio::piped()).stdout(Stdio::null()))
}

/// A full sensor record (IPMI 2.0, section 43.1); the simulator gives it an ID.
fn record((number, name, kind, unit, factor, exponent, _): Sensor) -> Vec<u8> {
    let exponent = exponent.cast_unsigned() << 4;
    let mut body = vec![
        0x20, 0, number, 7, 1, 0x7f, 0x68, kind, 1, 0, 0x0a, 0, 0x0a, 0x18, 0x18, 0, unit, 0, 0,
    ];
    body.extend([factor, 0, 0, 0, 0, exponent, 0, 0, 0, 0, 0xff, 0]);
    body.extend([0, 200, 190, 0, 0, 0, 1, 1, 0, 0, 0, 0xc0 | length(name.as_bytes())]);
    body.extend(name.bytes());
    [&[0, 0, 0x51, 1, length(&body)], &body[..]].concat()
}

fn length(bytes: &[u8]) -> u8 {
    u8::try_from(bytes.len()).unwrap()
}

pub(super) const USER: &str = "monitor:pass%2F7";

#[test]
fn sensors_of_a_bmc_have_the_values_that_ipmitool_reads() {
    let bmc = Bmc::start();
    let mut text = String::new();
    for (number, name, ..) in SENSORS {
        text += &bmc.entry(USER, &name.replace(' ', "%20"), &format!("by_name_{number}"));
        text += &bmc.entry(USER, &number.to_string(), &format!("by_id_{number}"));
    }
    let (code, values, errors) = poll(&text, &[]);
    assert_eq!((code, &*errors), (0, ""));
    for (number, name, ..) in SENSORS {
        let printed = bmc.ipmitool(name);
        let expected: f64 = printed.split('|').nth(1).unwrap().trim().parse().unwrap();
        for by in ["name", "id"] {
            assert_eq!(
                values[&key(&format!("by_{by}_{number}"), "bmc1", "{}")],
                expected,
                "{name}"
            );
        }
    }
    fs::write(bmc.dir.path().join("s2"), "70").unwrap();
    until("another power", LIMIT, || {
        let (_, values, _) = poll(&bmc.entry(USER, "Sys%20Power", "power"), &[]);
        (values.get(&key("power", "bmc1", "{}")) == Some(&280.0)).then_some(())
    });
}

#[test]
fn a_wrong_password_user_or_sensor_is_named_and_costs_no_other_sensor() {
    let bmc = Bmc::start();
    for (user, what) in [
        ("monitor:wrong9", "permission lost: the password is rejected"),
        ("nobody:wrong9", "permission lost: the user is rejected"),
    ] {
        let (code, values, errors) = poll(&bmc.entry(user, "FAN1", "fan"), &[]);
        assert_eq!((code, values.len()), (1, 0));
        assert!(errors.contains(what), "{errors}");
        assert!(!errors.contains("wrong9"), "{errors}");
    }
    let suite = bmc.entry(USER, "FAN1?cipher=17", "fan");
    let (_, _, errors) = poll(&suite, &[]);
    assert!(errors.contains("supports none of the cipher suites"), "{errors}");
    let text = bmc.entry(USER, "FAN1", "fan")
        + &bmc.entry(USER, "FAN9", "none")
        + &bmc.entry(USER, "dcmi/power", "dcmi");
    let (code, values, errors) = poll(&text, &[]);
    assert_eq!((code, values[&key("fan", "bmc1", "{}")]), (1, 5000.0), "{errors}");
    assert!(
        errors.contains("none: source broken: the BMC has no numeric sensor `FAN9`"),
        "{errors}"
    );
    // ipmi_sim responds to commands that it lacks with the code of a missing privilege.
    let dcmi = "dcmi: permission lost: the user's privilege does not permit the DCMI power";
    assert!(errors.contains(dcmi), "{errors}");
}

#[test]
fn sessions_of_one_bmc_read_its_records_one_after_the_other() {
    let spare = (10..60).map(|number| (number, "Spare", 0x02, 4, 60, -3, 200));
    let sensors: Vec<Sensor> = SENSORS.into_iter().chain(spare).collect();
    let bmc = Bmc::with(&sensors);
    let paths = ["FAN1", "FAN1?cipher=3", "FAN1?privilege=user", "FAN1?privilege=operator"];
    let name = |path: &str| path.replace(['?', '='], "_");
    let text: String = paths.iter().map(|path| bmc.entry(USER, path, &name(path))).collect();
    let (code, values, errors) = poll(&text, &[]);
    assert_eq!((code, &*errors), (0, ""));
    for path in paths {
        assert_eq!(values[&key(&name(path), "bmc1", "{}")], 5000.0, "{path}");
    }
}

#[test]
fn a_bmc_with_cipher_suite_17_and_dcmi() {
    let mut command = Command::new(repository().join("target/python/bin/python"));
    command.arg("-B").arg(repository().join("tests/command/devices/ipmi_bmc.py"));
    let mut running = Running::start(command.stdout(Stdio::piped()));
    let mut line = String::new();
    BufReader::new(running.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let port = line.trim();
    // The BMC of our own is one: ipmitool reads the same from it.
    let mut ipmitool = Command::new("ipmitool");
    ipmitool.args([
        "-I",
        "lanplus",
        "-C",
        "17",
        "-H",
        "127.0.0.1",
        "-p",
        port,
        "-U",
        "root",
        "-P",
        "calvin",
    ]);
    let (_, printed, errors) =
        output(ipmitool.args(["-L", "OPERATOR", "dcmi", "power", "reading"]));
    assert!(printed.contains("248 Watts"), "{printed}{errors}");
    let entry = |path: &str| {
        format!(
            "- {{name: power, device_id: b, url: 'ipmisensor://root:calvin@127.0.0.1:{port}/{path}'}}\n"
        )
    };
    for path in ["dcmi/power", "dcmi/power?cipher=17", "dell/power"] {
        let (code, values, errors) = poll(&entry(path), &[]);
        assert_eq!((code, &*errors), (0, ""), "{path}");
        assert_eq!(values[&key("power", "b", "{}")], 248.0, "{path}");
    }
    let (_, _, errors) = poll(&entry("dcmi/power").replace("calvin", "other9"), &[]);
    assert!(errors.contains("the password is rejected"), "{errors}");
}

#[test]
fn a_restarted_poller_has_the_records_of_a_bmc_on_disk() {
    let spare = (10..40).map(|number| (number, "Spare", 0x02, 4, 60, -3, 200));
    let sensors: Vec<Sensor> = SENSORS.into_iter().chain(spare).collect();
    let bmc = Bmc::with(&sensors);
    let way = UdpWay::to(bmc.port);
    let (data, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let spool = tempfile::tempdir().unwrap();
    let entry = bmc
        .entry(USER, "Sys%20Power", "power")
        .replace(&format!(":{}/", bmc.port), &format!(":{}/", way.port));
    let entry = entry.replace('}', ", update_every: 2000, timeout: 10000}");
    fs::write(files.path().join("all.conf"), entry).unwrap();
    let server = Server::start(data.path(), &[]);
    // The packets until the poller has stored a reading.
    let packets_until = |reading: u8| {
        fs::write(bmc.dir.path().join("s2"), reading.to_string()).unwrap();
        way.take_packets();
        let mut running = poller("one", files.path(), &server.url, spool.path());
        let stored = || last(&server.url, "bmc1", "power");
        until("a reading", LIMIT, || (stored() == Some(f64::from(reading) * 4.0)).then_some(()));
        assert_eq!(running.end(), 0, "{}", running.errors());
        way.take_packets()
    };
    let folder = spool.path().join("sdr");
    let file = || {
        let mut all = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
        let first = all.next().unwrap();
        assert_eq!(all.next(), None);
        first
    };
    let records = sensors.len() * 2;
    let all = packets_until(62);
    assert!(all > records, "every record is read: {all}");
    assert_eq!(fs::metadata(file()).unwrap().permissions().mode() & 0o7777, 0o600);
    let whole = fs::read_to_string(file()).unwrap();
    let few = packets_until(63);
    assert!(few < records, "no record is read again: {few}");
    assert_eq!(fs::read_to_string(file()).unwrap(), whole);
    // A damaged file is ignored, and written again.
    fs::write(file(), &whole.as_bytes()[..whole.len() - 3]).unwrap();
    let again = packets_until(64);
    assert!(again > records, "every record is read: {again}");
    assert_eq!(fs::read_to_string(file()).unwrap(), whole);
}
