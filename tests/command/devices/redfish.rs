//! `jobmeter poll` on Redfish services: one with sessions, and sushy-static, which has none.

use crate::command::poll_once::{key, poll};
use crate::common::programs::{Running, until};
use crate::repository::layers::repository;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// A service with sessions, and the requests that it received.
struct Service {
    _running: Running,
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Service {
    /// Its sessions are lost after some requests.
    fn start(requests_max: u32) -> Self {
        let mut command = Command::new(repository().join("target/python/bin/python"));
        command.arg("-B").arg(repository().join("tests/command/devices/redfish_bmc.py"));
        command.arg(requests_max.to_string());
        let mut running = Running::start(command.stdout(Stdio::piped()));
        let mut lines = BufReader::new(running.child.stdout.take().unwrap()).lines();
        let port = lines.next().unwrap().unwrap().parse().unwrap();
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let list = Arc::clone(&requests);
        std::thread::spawn(move || {
            lines.map_while(Result::ok).for_each(|line| list.lock().unwrap().push(line));
        });
        Self { _running: running, port, requests }
    }

    fn entries(&self, password: &str) -> String {
        let entry = |name: &str, path: &str| {
            format!(
                "- {{name: {name}, device_id: b, url: 'http://root:{password}@127.0.0.1:{}/redfish/v1/Chassis/1/{path}'}}\n",
                self.port
            )
        };
        entry("power", "Power#PowerControl[0].PowerConsumedWatts")
            + &entry("celsius", "Thermal#Temperatures[0].ReadingCelsius")
    }

    /// The requests, once there are this many.
    fn requests(&self, count: usize) -> Vec<String> {
        until("requests", LIMIT, || (self.requests.lock().unwrap().len() >= count).then_some(()));
        std::mem::take(&mut *self.requests.lock().unwrap())
    }
}

const ROOT: &str = "GET /redfish/v1/ nobody";
const OPEN: &str = "POST /redfish/v1/SessionService/Sessions nobody";
const POWER: &str = "GET /redfish/v1/Chassis/1/Power";
const THERMAL: &str = "GET /redfish/v1/Chassis/1/Thermal";

#[test]
fn a_redfish_session_takes_the_place_of_the_password() {
    let service = Service::start(100);
    let (code, values, errors) = poll(&service.entries("calvin"), &[]);
    assert_eq!((code, &*errors), (0, ""));
    assert_eq!(values[&key("power", "b", "{}")], 245.0);
    assert_eq!(values[&key("celsius", "b", "{}")], 41.0);
    let (power, thermal) = (format!("{POWER} token1"), format!("{THERMAL} token1"));
    let close = "DELETE /redfish/v1/SessionService/Sessions/1 token1";
    assert_eq!(service.requests(5), [ROOT, OPEN, &*power, &*thermal, close]);

    // A wrong password is sent once.
    let (code, values, errors) = poll(&service.entries("wrong9"), &[]);
    assert_eq!((code, values.len()), (1, 0));
    assert!(errors.contains("permission lost: user or password is rejected: 401"), "{errors}");
    assert!(!errors.contains("wrong9") && errors.lines().count() == 1, "{errors}");
    assert_eq!(service.requests(2), [ROOT, OPEN]);
}

#[test]
fn a_lost_redfish_session_is_opened_again() {
    let service = Service::start(1);
    let (code, values, errors) = poll(&service.entries("calvin"), &[]);
    assert_eq!((code, values.len(), &*errors), (0, 2, ""));
    let [first, lost, again] =
        [format!("{POWER} token1"), format!("{THERMAL} token1"), format!("{THERMAL} token2")];
    let closes = [1, 2].map(|n| format!("DELETE /redfish/v1/SessionService/Sessions/{n} token{n}"));
    let all = [ROOT, OPEN, &*first, &*lost, &*closes[0], ROOT, OPEN, &*again, &*closes[1]];
    assert_eq!(service.requests(all.len()), all);
}

#[test]
fn sushy_has_no_sessions_and_receives_the_password() {
    let dir = tempfile::tempdir().unwrap();
    let write = |path: &str, document: &str| {
        let folder = dir.path().join(path);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("index.json"), document).unwrap();
    };
    // Its root names sessions, but it opens none.
    write("", r#"{"Links": {"Sessions": {"@odata.id": "/redfish/v1/Sessions"}}}"#);
    write("Chassis/1/Power", r#"{"PowerControl": [{"PowerConsumedWatts": 344}]}"#);
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, private) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    fs::write(&certificate, own.cert.pem()).unwrap();
    fs::write(&private, own.signing_key.serialize_pem()).unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = Command::new(repository().join("target/python/bin/sushy-static"));
    command.args(["--interface", "127.0.0.1", "--port", &port.to_string()]);
    command.arg("--mockup-files").arg(dir.path()).env("PYTHONUNBUFFERED", "1");
    command.arg("--ssl-certificate").arg(&certificate).arg("--ssl-key").arg(&private);
    let printed = fs::File::create(dir.path().join("printed")).unwrap();
    let sushy = Running::start(command.stdout(printed));
    let entry = format!(
        "- {{name: power, device_id: b, tls: {{ca: '{}'}},\n   url: 'https://root:calvin@localhost:{port}/redfish/v1/Chassis/1/Power#PowerControl[0].PowerConsumedWatts'}}\n",
        certificate.display()
    );
    let values = until("sushy-static", LIMIT, || {
        let (code, values, _) = poll(&entry, &[]);
        (code == 0).then_some(values)
    });
    assert_eq!(values[&key("power", "b", "{}")], 344.0, "{}", sushy.errors());
    // It prints the requests' headers, and the lines of the requests as errors.
    let printed = fs::read_to_string(dir.path().join("printed")).unwrap();
    assert_eq!(printed.to_lowercase().matches("authorization: basic ").count(), 1, "{printed}");
    for request in
        ["GET /redfish/v1/ ", "POST /redfish/v1/Sessions ", "GET /redfish/v1/Chassis/1/Power "]
    {
        assert_eq!(sushy.errors().matches(request).count(), 1, "{}", sushy.errors());
    }
}
