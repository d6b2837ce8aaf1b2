//! `jobmeter poll` on SNMP agents that snmpsim simulates: tables of a PDU and of a switch, wraps of counters, renumbered rows.

use crate::command::poll_devices::{last, poller, rows};
use crate::common::programs::{Running, Server, get, output, until};
use crate::common::udp_way::UdpWay;
use crate::repository::layers::repository;
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const UPTIME: &str = "1.3.6.1.2.1.1.3.0";
/// Names and octets of the ports of a switch (RFC 2863), and the power of the outlets of a PDU (PowerNet-MIB).
const NAMES: &str = "1.3.6.1.2.1.2.2.1.2";
const OCTETS: &str = "1.3.6.1.2.1.2.2.1.10";
const WATTS: &str = "1.3.6.1.4.1.318.1.1.12.3.3.1.1.2";
const PORTS: u32 = 8;
/// No counter wraps before twice as many seconds: a server and a poller start meanwhile.
const BEFORE: u32 = 10;

/// A simulated agent.
struct Agent {
    _running: Running,
    _dir: tempfile::TempDir,
    port: u16,
}

impl Agent {
    /// An agent with the ports in this order. The counter of port N wraps 2 N seconds after `BEFORE`, and the power of port N is 100 + N.
    fn start(ports: &[u32]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut names = String::new();
        let (mut octets, mut watts) = (String::new(), String::new());
        for (port, row) in ports.iter().zip(1..) {
            writeln!(names, "{NAMES}.{row}|4|port{port}").unwrap();
            let first = u32::MAX - 2000 * (port + BEFORE);
            let rate = "rate=1000,wrap=1,max=4294967295";
            writeln!(octets, "{OCTETS}.{row}|65:numeric|{rate},initial={first}").unwrap();
            writeln!(watts, "{WATTS}.{row}|66|{}", 100 + port).unwrap();
        }
        let uptime = format!("{UPTIME}|67:numeric|rate=100,initial=100000\n");
        let data = dir.path().join("data");
        fs::create_dir(&data).unwrap();
        fs::write(data.join("public.snmprec"), uptime + &names + &octets + &watts).unwrap();
        fs::create_dir(dir.path().join("cache")).unwrap();
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let id = |what: &str| output(Command::new("id").arg(what).arg("-n")).1.trim().to_owned();
        let mut command =
            Command::new(repository().join("target/python/bin/snmpsim-command-responder"));
        command.arg(format!("--data-dir={}", data.display()));
        command.arg(format!("--cache-dir={}", dir.path().join("cache").display()));
        command.arg(format!("--agent-udpv4-endpoint=127.0.0.1:{port}"));
        command.arg(format!("--process-user={}", id("-u")));
        command.arg(format!("--process-group={}", id("-g")));
        command.args(["--log-level=error"]).stdout(Stdio::null());
        let agent = Self { _running: Running::start(&mut command), _dir: dir, port };
        until("snmpsim", LIMIT, || {
            let mut command = Command::new("snmpget");
            command.args(["-v2c", "-c", "public", "-Oqvtn", "-r0", "-t1"]);
            command.arg(format!("127.0.0.1:{port}")).arg(UPTIME);
            output(&mut command).1.trim().parse::<u64>().ok()
        });
        agent
    }
}

fn entry(port: u16, name: &str, path: &str, more: &str) -> String {
    format!(
        "- {{name: {name}, device_id: sw, url: 'snmp://public@127.0.0.1:{port}/{path}', update_every: 1000, timeout: 5000{more}}}\n"
    )
}

/// The samples of a metric in order; `None` for NaN.
fn samples(url: &str, metric: &str) -> Vec<Option<f64>> {
    let query = format!(
        "SELECT value FROM metrics WHERE device_id = 'sw' AND metric_id = '{metric}' ORDER BY timestamp"
    );
    rows(url, &query).iter().map(|row| row["value"].as_f64()).collect()
}

/// The growth that samples state: a value that falls counts from zero, and none is computed from or to a NaN.
fn growth(samples: &[Option<f64>]) -> f64 {
    let of = |two: &[Option<f64>]| match two {
        [Some(before), Some(now)] if now < before => *now,
        [Some(before), Some(now)] => now - before,
        _ => 0.0,
    };
    samples.windows(2).map(of).sum()
}

#[test]
fn wraps_of_counters_that_getbulk_reads_are_exact() {
    let agent = Agent::start(&(1..=PORTS).collect::<Vec<_>>());
    let (data, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let spool = tempfile::tempdir().unwrap();
    let mut text = entry(agent.port, "uptime", UPTIME, ", kind: counter");
    for port in 1..=PORTS {
        let name = format!("octets_{port}_total");
        text += &entry(agent.port, &name, &format!("{OCTETS}.{port}"), "");
    }
    fs::write(files.path().join("all.conf"), text).unwrap();
    let server = Server::start(data.path(), &[]);
    let mut running = poller("one", files.path(), &server.url, spool.path());
    let name = |port: u32| format!("octets_{port}_total");
    // The last one of them wraps.
    until("all wraps", LIMIT, || {
        let latest = last(&server.url, "sw", &name(PORTS));
        latest.filter(|octets| (1000.0..1e9).contains(octets))
    });
    assert_eq!(running.end(), 0, "{}", running.errors());
    until("the last samples", LIMIT, || {
        let all = (1..=PORTS).map(|port| samples(&server.url, &name(port)));
        all.into_iter().all(|all| all.contains(&None)).then_some(())
    });
    // Hundredths of a second, and 1000 octets per second: 10 octets each.
    let expected = growth(&samples(&server.url, "uptime")) * 10.0;
    assert!(expected > 2000.0, "{expected}");
    for port in 1..=PORTS {
        let all = samples(&server.url, &name(port));
        let grown = growth(&all);
        // The agent computes each value at an instant of its own.
        assert!((grown - expected).abs() < 500.0, "port {port}: {grown} of {expected}: {all:?}");
    }
}

#[test]
fn a_renumbered_port_never_has_the_value_of_another() {
    let before = Agent::start(&[1, 2, 3, 4, 5, 6, 7, 8]);
    let after = Agent::start(&[8, 7, 6, 5, 4, 3, 1]);
    let way = UdpWay::to(before.port);
    let (data, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let spool = tempfile::tempdir().unwrap();
    let of_port = |port: u32| {
        let path = format!("{WATTS}.{{{{ {NAMES} == port{port} }}}}");
        entry(way.port, &format!("watts_{port}"), &path, "")
    };
    fs::write(files.path().join("all.conf"), (1..=PORTS).map(of_port).collect::<String>()).unwrap();
    let server = Server::start(data.path(), &[]);
    let mut running = poller("one", files.path(), &server.url, spool.path());
    let count = |port: u32| samples(&server.url, &format!("watts_{port}")).len();
    until("values", LIMIT, || (count(1) >= 2).then_some(()));
    way.lead_to(after.port);
    // Port 2 is not there any more.
    let gaps = until("a gap of port 2", LIMIT, || {
        let (_, body) = get(&server.url, "/api/v1/gaps?start=0&end=now&device=sw");
        body.contains("snmp/watts_2").then_some(body)
    });
    let counts: Vec<usize> = (1..=PORTS).map(count).collect();
    until("values after the change", LIMIT, || {
        let mut others = (1..=PORTS).filter(|port| *port != 2);
        others.all(|port| count(port) > counts[port as usize - 1] + 1).then_some(())
    });
    assert_eq!(running.end(), 0, "{}", running.errors());
    let gaps: Value = serde_json::from_str(&gaps).unwrap();
    assert!(gaps.to_string().contains("source broken"), "{gaps}");
    for port in 1..=PORTS {
        let all = samples(&server.url, &format!("watts_{port}"));
        assert!(all.iter().all(|watts| *watts == Some(f64::from(100 + port))), "{port}: {all:?}");
    }
}
