//! `jobmeter poll`: SNMP agents and Modbus services, compared with other clients, and the way of the samples to the server.

use crate::command::poll_once::{key, poll};
use crate::common::programs::{Running, Server, get, output, program, ready, until};
use crate::common::up::jobmeter;
use crate::repository::layers::repository;
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// net-snmp's agent with users of version 3.
pub(crate) struct Snmpd {
    _running: Running,
    port: u16,
    _dir: tempfile::TempDir,
}

/// Users: name, authentication and encryption as net-snmp and as our URLs write them.
const USERS: [(&str, &str, &str, &str, &str); 3] = [
    ("sha256aes", "SHA-256", "sha256", "AES", "aes128"),
    ("md5des", "MD5", "md5", "DES", "des"),
    ("sha512only", "SHA-512", "sha512", "", ""),
];
const AUTH_PASSWORD: &str = "authpass123";
const PRIVACY_PASSWORD: &str = "privpass123";

impl Snmpd {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut text = format!(
            "agentAddress udp:127.0.0.1:{port}\nrocommunity public 127.0.0.1\nsysLocation rack\u{e9}\n\
             extend-sh power echo 245\nextend-sh text echo '42 W'\nextend-sh ports seq 1 64\n"
        );
        for (name, auth, _, privacy, _) in USERS {
            text += &format!("createUser {name} {auth} {AUTH_PASSWORD} {privacy}");
            text += if privacy.is_empty() { "\n" } else { " privpass123\n" };
            let level = if privacy.is_empty() { "auth" } else { "priv" };
            text += &format!("rouser {name} {level}\n");
        }
        let config = dir.path().join("snmpd.conf");
        fs::write(&config, text).unwrap();
        let mut command = Command::new("/usr/sbin/snmpd");
        command.args(["-f", "-Le", "-C", "-c"]).arg(&config);
        command.env("SNMP_PERSISTENT_FILE", dir.path().join("persist.conf"));
        command.arg("-p").arg(dir.path().join("pid")).stdout(Stdio::null());
        let snmpd = Self { _running: Running::start(&mut command), port, _dir: dir };
        until("snmpd", LIMIT, || snmpd.get("1.3.6.1.2.1.1.3.0").parse::<u64>().ok());
        snmpd
    }

    /// The value as net-snmp's client prints it.
    fn get(&self, oid: &str) -> String {
        self.get_all(&[oid.to_owned()]).trim().to_owned()
    }

    /// A value in each line.
    fn get_all(&self, oids: &[String]) -> String {
        let address = format!("127.0.0.1:{}", self.port);
        let mut command = Command::new("snmpget");
        command.args(["-v2c", "-c", "public", "-Oqvtn", "-r0", "-t5", &address]).args(oids);
        output(&mut command).1
    }

    /// The messages that the agent received, without this one.
    fn messages(&self) -> u64 {
        self.get("1.3.6.1.2.1.11.1.0").parse::<u64>().unwrap() - 1
    }

    pub(crate) fn entry(&self, user: &str, scheme: &str, path: &str, name: &str) -> String {
        let port = self.port;
        format!(
            "- {{name: {name}, device_id: sw, url: '{scheme}://{user}@127.0.0.1:{port}/{path}'}}\n"
        )
    }
}

/// OIDs of values that stay the same for a while.
pub(crate) const POWER: &str = "1.3.6.1.4.1.8072.1.3.2.3.1.1.5.112.111.119.101.114";
const TEXT: &str = "1.3.6.1.4.1.8072.1.3.2.3.1.1.4.116.101.120.116";
const MTU_OF_LO: &str = "1.3.6.1.2.1.2.2.1.4.{{ 1.3.6.1.2.1.2.2.1.2 == lo }}";
const MEMORY_TOTAL: &str = "1.3.6.1.4.1.2021.4.5.0";
const LOAD_FLOAT: &str = "1.3.6.1.4.1.2021.10.1.6.3";

#[test]
fn an_snmp_agent_has_the_values_that_net_snmp_reads() {
    let snmpd = Snmpd::start();
    let mut text = String::new();
    for (scheme, version) in [("snmp", "v2"), ("snmpv1", "v1")] {
        for (oid, name) in [
            (POWER, "power"),
            (TEXT, "text"),
            (MTU_OF_LO, "mtu"),
            (MEMORY_TOTAL, "memory"),
            (LOAD_FLOAT, "load"),
            ("1.3.6.1.2.1.1.6.0", "location"),
        ] {
            text += &snmpd.entry("public", scheme, oid, &format!("{name}_{version}"));
        }
    }
    let (code, values, errors) = poll(&text, &[]);
    assert_eq!((code, &*errors), (0, ""));
    let memory: f64 = snmpd.get(MEMORY_TOTAL).trim_end_matches(" kB").parse().unwrap();
    for version in ["v2", "v1"] {
        let value =
            |name: &str| values.get(&key(&format!("{name}_{version}"), "sw", "{}")).copied();
        assert_eq!(value("power"), Some(245.0), "{values:?}");
        assert_eq!(value("mtu"), Some(65_536.0), "{values:?}");
        assert_eq!(value("memory"), Some(memory));
        // The load changes, but it is a small number, which the bytes as a text are not.
        assert!(value("load").is_some_and(|load| (0.0..1000.0).contains(&load)), "{values:?}");
        for (name, shown) in [("text", "42 W"), ("location", "racké")] {
            let labels = format!(r#"{{"value_str": "{shown}"}}"#);
            let found = values.get(&key(&format!("{name}_{version}"), "sw", &labels));
            assert!(found.is_some_and(|value| value.is_nan()), "{name}: {values:?}");
        }
    }
}

#[test]
fn users_of_snmp_version_3_and_wrong_passwords() {
    let snmpd = Snmpd::start();
    let security = |place: usize, auth_password: &str, privacy_password: &str| {
        let (name, _, auth, _, privacy) = USERS[place];
        let mut parameters = format!("?auth={auth}&authkey={auth_password}");
        if !privacy.is_empty() {
            parameters += &format!("&priv={privacy}&privkey={privacy_password}");
        }
        snmpd.entry(name, "snmpv3", &format!("{POWER}{parameters}"), "power")
    };
    for (place, user) in USERS.iter().enumerate() {
        let (code, values, errors) = poll(&security(place, AUTH_PASSWORD, PRIVACY_PASSWORD), &[]);
        assert_eq!((code, &*errors), (0, ""), "{user:?}");
        assert_eq!(values[&key("power", "sw", "{}")], 245.0);
    }
    let no_user = snmpd.entry("nobody", "snmpv3", POWER, "power");
    for text in [security(0, "wrongpass123", PRIVACY_PASSWORD), no_user] {
        let (code, values, errors) = poll(&text, &[]);
        assert_eq!((code, values.len()), (1, 0));
        assert!(errors.contains("permission lost: the agent rejects the user"), "{errors}");
        assert!(!errors.contains("pass123"), "{errors}");
    }
    // An agent is silent about a message that it cannot decrypt, or reports it.
    for timeout in [500, 1000, 2000, 2000] {
        let entry = security(0, AUTH_PASSWORD, "wrongpriv123");
        let (code, _, errors) = poll(&entry.replace('}', &format!(", timeout: {timeout}}}")), &[]);
        assert_eq!(code, 1, "{errors}");
        assert!(errors.contains("permission lost: the agent "), "{timeout} ms: {errors}");
    }
}

#[test]
fn a_missing_snmp_value_costs_no_other() {
    let snmpd = Snmpd::start();
    for scheme in ["snmp", "snmpv1"] {
        let text = [
            snmpd.entry("public", scheme, POWER, "power"),
            snmpd.entry("public", scheme, "1.3.6.1.4.1.99999.1.0", "missing"),
            snmpd.entry(
                "public",
                scheme,
                "1.3.6.1.2.1.2.2.1.4.{{ 1.3.6.1.2.1.2.2.1.2 == eth99 }}",
                "row",
            ),
            snmpd.entry("public", scheme, "1.3.6.1.2.1.1.3.0", "uptime"),
        ];
        let (code, values, errors) = poll(&text.concat(), &[]);
        assert_eq!(code, 1);
        let names: Vec<&str> = values.keys().map(|[name, ..]| &**name).collect();
        assert_eq!(names, ["power", "uptime"], "{errors}");
        assert!(errors.contains("missing: source broken: the agent "), "{errors}");
        assert!(errors.contains("row: source broken: no row has the text `eth99`"), "{errors}");
    }
    let silent = snmpd.entry("other", "snmp", POWER, "power").replace('}', ", timeout: 500}");
    let (code, _, errors) = poll(&silent, &[]);
    assert_eq!(code, 1);
    assert!(errors.contains("no complete answer within 500 ms"), "{errors}");
}

/// 64 neighbouring values.
const PORTS: &str = "1.3.6.1.4.1.8072.1.3.2.4.1.2.5.112.111.114.116.115";

#[test]
fn neighbouring_snmp_values_are_read_by_few_requests() {
    let snmpd = Snmpd::start();
    let oids: Vec<String> = (1..=64).map(|port| format!("{PORTS}.{port}")).collect();
    let printed = snmpd.get_all(&oids).replace('"', "");
    let expected: Vec<f64> = printed.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(expected.len(), 64);
    let v3 = format!("?auth=sha256&authkey={AUTH_PASSWORD}&priv=aes128&privkey={PRIVACY_PASSWORD}");
    for (user, scheme, parameters, most) in [
        ("public", "snmp", "", 3),
        ("public", "snmpv1", "", 3),
        // The identity of the agent, its time, and the check of the key need up to 6 messages.
        ("sha256aes", "snmpv3", &*v3, 9),
    ] {
        // The row after the last one does not exist.
        let oids = oids.iter().cloned().chain([format!("{PORTS}.65")]);
        let entries = oids.zip(1..).map(|(oid, port)| {
            snmpd.entry(user, scheme, &(oid + parameters), &format!("port_{port:02}"))
        });
        let before = snmpd.messages();
        let (code, values, errors) = poll(&entries.collect::<String>(), &[]);
        // Two readings of the counter are messages, too.
        let messages = snmpd.messages() - before - 1;
        assert_eq!(code, 1, "{errors}");
        assert!(errors.contains("port_65: source broken: the agent "), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
        assert_eq!(values.values().copied().collect::<Vec<_>>(), expected, "{scheme}");
        assert!(messages <= most, "{scheme}: {messages}");
    }
    // Rows by their texts: each has the value beside its own text.
    let entries = (11..=18).map(|port| {
        let path = format!("{PORTS}.{{{{ {PORTS} == {port} }}}}");
        snmpd.entry("public", "snmp", &path, &format!("port_{port}"))
    });
    let (code, values, errors) = poll(&entries.collect::<String>(), &[]);
    assert_eq!((code, &*errors), (0, ""));
    assert_eq!(values.into_values().collect::<Vec<_>>(), expected[10..18]);
}

#[test]
fn modbus_registers_have_the_values_that_the_service_holds() {
    let mut command = Command::new(repository().join("target/python/bin/python"));
    command.arg("-B").arg(repository().join("tests/command/poll_modbus.py"));
    let mut running = Running::start(command.stdout(Stdio::piped()));
    let mut line = String::new();
    BufReader::new(running.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let port: u16 = line.trim().parse().unwrap();
    let entry = |path: &str, name: &str| {
        format!("- {{name: {name}, device_id: meter, url: 'modbus://127.0.0.1:{port}/1/{path}'}}\n")
    };
    let wanted = [
        ("0/be_be_u16", "u16", 245.0),
        ("1/be_be_i16", "i16", -2.0),
        ("2/be_be_u32", "u32", 65_538.0),
        ("4/be_le_u32", "u32_words", 65_538.0),
        ("6/be_be_f32", "f32", 42.5),
        ("8/be_be_f64", "f64", -0.125),
        ("12/be_be_i64", "i64", -16.0),
        ("3/be_be_u16?table=input", "input", 1003.0),
    ];
    let text: String = wanted.iter().map(|(path, name, _)| entry(path, name)).collect();
    let (code, values, errors) = poll(&text, &[]);
    assert_eq!((code, &*errors), (0, ""));
    for (_, name, value) in wanted {
        assert_eq!(values[&key(name, "meter", "{}")], value, "{name}");
    }
    // The table ends at register 99. The register beside it has its value.
    let (code, values, errors) =
        poll(&(entry("99/be_be_u16", "last") + &entry("100/be_be_u16", "none")), &[]);
    assert_eq!((code, values.len()), (1, 1), "{errors}");
    assert!(
        errors
            .contains("none: source broken: the device reports the exception illegal data address"),
        "{errors}"
    );
}

/// An exporter of one counter that grows by 1 with each request, and its number of requests.
pub(crate) struct Exporter {
    pub(crate) port: u16,
    pub(crate) requests: Arc<AtomicU32>,
    pub(crate) is_broken: Arc<AtomicBool>,
}

impl Exporter {
    pub(crate) fn start() -> Self {
        Self::of_type("counter")
    }

    /// One whose counter has another type by its exposition.
    pub(crate) fn of_type(kind: &'static str) -> Self {
        Self::with_body(move |number| {
            format!("# TYPE requests_total {kind}\nrequests_total {number}\npower_watt 100\n")
        })
    }

    /// One that responds with a text of its own, given the number of the request.
    pub(crate) fn with_body(body: impl Fn(u32) -> String + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (requests, is_broken) = (Arc::<AtomicU32>::default(), Arc::<AtomicBool>::default());
        let (count, broken) = (Arc::clone(&requests), Arc::clone(&is_broken));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                // The head of the request is one packet.
                let is_empty = stream.read(&mut [0; 4096]).unwrap_or(0) == 0;
                if is_empty || broken.load(Ordering::SeqCst) {
                    continue;
                }
                let number = count.fetch_add(1, Ordering::SeqCst) + 1;
                let body = body(number);
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
                stream.write_all((head + &body).as_bytes()).unwrap();
            }
        });
        Self { port, requests, is_broken }
    }

    pub(crate) fn entry(&self, device: &str, more: &str) -> String {
        let port = self.port;
        format!(
            "- {{name: all, device_id: {device}, url: 'prometheus://ann:secret@127.0.0.1:{port}/', {more}}}\n"
        )
    }
}

/// The rows of a query in SQL, each an object.
pub(crate) fn rows(url: &str, query: &str) -> Vec<Value> {
    let (code, out, errors) = jobmeter(url, &["sql", "--format", "json", query]);
    assert_eq!(code, 0, "{errors}");
    serde_json::from_str(&out).unwrap()
}

/// The latest value of a metric.
pub(crate) fn last(url: &str, device: &str, metric: &str) -> Option<f64> {
    let (_, body) = get(url, &format!("/api/v1/last?device={device}&metric={metric}"));
    serde_json::from_str::<Value>(&body).unwrap()[0]["value"].as_f64()
}

pub(crate) fn poller(name: &str, dir: &Path, url: &str, spool: &Path) -> Running {
    let mut command = Command::new(program("jobmeter"));
    command.env("JOBMETER_POLLER_FILE", "/dev/null").env("JOBMETER_CLIENT_FILE", "/dev/null");
    command.arg("poll").arg(dir).args(["--server", url, "--name", name]);
    command.arg("--spool").arg(spool);
    Running::start(command.stdout(Stdio::null()))
}

#[test]
fn samples_of_a_running_poller_line_up_survive_deaths_and_every_lack_is_a_gap() {
    let (first, second) = (Exporter::start(), Exporter::start());
    let (data, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let spool = tempfile::tempdir().unwrap();
    let every = "update_every: 1000, timeout: 10000";
    let text = first.entry("psu-1", every) + &second.entry("psu-2", every);
    fs::write(files.path().join("all.conf"), text).unwrap();
    let mut server = Server::start(data.path(), &[]);
    let mut running = poller("one", files.path(), &server.url, spool.path());
    let stored = |url: &str, device: &str| last(url, device, "prom_requests_total").unwrap_or(0.0);
    until("5 polls", LIMIT, || (stored(&server.url, "psu-2") >= 5.0).then_some(()));

    // The server is away, then the poller dies: nothing that was polled is lost.
    server.running.kill();
    let before = first.requests.load(Ordering::SeqCst);
    until("3 polls without a server", LIMIT, || {
        (first.requests.load(Ordering::SeqCst) >= before + 3).then_some(())
    });
    assert_eq!(running.end(), 0, "{}", running.errors());
    let polled = f64::from(first.requests.load(Ordering::SeqCst));
    server.again(data.path(), &[]);
    let mut running = poller("one", files.path(), &server.url, spool.path());
    until("polls after the restart", LIMIT, || {
        (stored(&server.url, "psu-1") > polled + 2.0).then_some(())
    });
    let all = rows(
        &server.url,
        "SELECT value FROM metrics WHERE device_id = 'psu-1' AND metric_id = 'prom_requests_total'",
    );
    let mut values: Vec<f64> = all.iter().map(|row| row["value"].as_f64().unwrap()).collect();
    values.sort_by(f64::total_cmp);
    let expected: Vec<f64> = (1..).map(f64::from).take(values.len()).collect();
    assert_eq!(values, expected, "every poll is stored once");

    // A device that fails is a gap, and the other one goes on.
    second.is_broken.store(true, Ordering::SeqCst);
    let gap = until("a gap", LIMIT, || {
        let (_, body) = get(&server.url, "/api/v1/gaps?start=0&end=now&device=psu-2");
        body.contains("source broken").then_some(body)
    });
    assert!(gap.contains("prometheus"), "{gap}");
    let success = |device: &str| last(&server.url, device, "poll_success");
    until("psu-2 fails", LIMIT, || (success("psu-2") == Some(0.0)).then_some(()));
    assert_eq!(success("psu-1"), Some(1.0));

    // Devices are no nodes.
    let (_, nodes) = get(&server.url, "/api/v1/nodes");
    assert!(!nodes.contains("psu-"), "{nodes}");

    assert_eq!(running.end(), 0, "{}", running.errors());
}

#[test]
fn optional_metrics_are_polled_while_they_are_promoted() {
    let (power, node) = (Exporter::start(), Exporter::start());
    let (data, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let spool = tempfile::tempdir().unwrap();
    let optional = |exporter: &Exporter, name: &str, device: &str| {
        let more =
            "update_every: 1000, timeout: 10000, optional: true, labels: {_device_alias: node-1}";
        exporter.entry(device, more).replace("name: all", &format!("name: {name}"))
    };
    let text = optional(&power, "pdu_power", "pdu-1") + &optional(&node, "exporter", "node-1");
    fs::write(files.path().join("all.conf"), text).unwrap();
    let server = Server::start(data.path(), &[]);
    let mut running = poller("one", files.path(), &server.url, spool.path());
    let promote = |metric: &str, node: &str| {
        let arguments = ["promote", metric, "--nodes", node, "--for", "1h", "--json"];
        // No metric has been stored, so the command warns.
        let (_, out, _) = jobmeter(&server.url, &arguments);
        serde_json::from_str::<Value>(&out).unwrap()[0]["id"].to_string()
    };
    let count = |of: &Exporter| of.requests.load(Ordering::SeqCst);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!((count(&power), count(&node)), (0, 0), "nothing is promoted");

    // By the node that the device feeds; the name of the entry matches from its start.
    let id = promote("pdu", "node-1");
    until("polls", LIMIT, || (count(&power) >= 2).then_some(()));
    let stored = |device: &str| last(&server.url, device, "prom_requests_total");
    until("samples", LIMIT, || stored("pdu-1"));
    assert_eq!(jobmeter(&server.url, &["promote", "--undo", &id]).0, 0);
    let mut before = count(&power);
    until("no more polls", LIMIT, || {
        std::thread::sleep(Duration::from_millis(2500));
        (std::mem::replace(&mut before, count(&power)) == count(&power)).then_some(())
    });

    // An expression that matches no entry selects metrics of the exporter.
    promote("prom_power_watt", "node-1");
    until("a metric", LIMIT, || last(&server.url, "node-1", "prom_power_watt"));
    assert_eq!(stored("node-1"), None, "no other metric of the exporter");
    assert_eq!(running.end(), 0, "{}", running.errors());
}

#[test]
fn a_server_restarts_its_poller_and_both_end_together() {
    let exporter = Exporter::start();
    let (data, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let spool = tempfile::tempdir().unwrap();
    let text = exporter.entry("psu-1", "update_every: 1000, timeout: 10000");
    fs::write(files.path().join("all.conf"), text).unwrap();
    let mut command = Command::new(program("jobmeter-server"));
    command.env("JOBMETER_POLLER_FILE", "/dev/null").env("JOBMETER_NAME", "one");
    command.env("JOBMETER_SPOOL", spool.path()).arg("--data").arg(data.path());
    command.args(["--listen", "127.0.0.1:0", "--poll-metrics-dir"]).arg(files.path());
    let mut server = Running::start(command.stdout(Stdio::piped()));
    let url = ready(&mut server);
    let stored = || last(&url, "psu-1", "prom_requests_total");
    let pid = server.child.id().to_string();
    let poller = || {
        let (_, pids, _) = output(Command::new("pgrep").args(["-P", &pid, "jobmeter-poller"]));
        pids.lines().next().map(str::to_owned)
    };
    until("a value", LIMIT, stored);
    let first = until("the poller", LIMIT, poller);
    assert!(Command::new("kill").args(["-s", "KILL", &first]).status().unwrap().success());
    let second = until("another poller", LIMIT, || poller().filter(|pid| *pid != first));
    let before = stored();
    until("further values", LIMIT, || stored().filter(|value| Some(*value) > before));
    let is_gone = |pid: &str| {
        let (code, ..) = output(Command::new("kill").args(["-s", "0", pid]));
        (code != 0).then_some(())
    };
    // A killed server takes its poller with it.
    server.kill();
    until("the end of the poller", LIMIT, || is_gone(&second));
}
