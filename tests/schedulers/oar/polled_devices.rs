//! What a job of OAR (`-t monitor=REGEX`), a promotion, a changed period, a reload and a restart change in the polls of
//! devices that feed the job's node, and that they change nothing else.

use super::{Machine, settings};
use crate::command::poll_devices::{Exporter, poller, rows};
use crate::common::programs::{Running, Server, until};
use crate::common::up::jobmeter;
use crate::schedulers::slurm::promoted;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const FEEDS_NODE: &str = "update_every: 1000, timeout: 900, labels: {_device_alias: oarnode1}";

/// The devices of a site, each with one value: the number of its requests.
struct Site {
    /// Polled at all times.
    bmc: Exporter,
    /// Optional: the job requests it.
    fan: Exporter,
    /// Optional: an administrator promotes it.
    inlet: Exporter,
    /// Optional: nobody requests it.
    spare: Exporter,
    /// Polled every second while the node has a job, else once in ten minutes.
    meter: Exporter,
}

impl Site {
    fn start() -> Self {
        let new = || Exporter::with_body(|number| format!("{{\"requests\": {number}}}"));
        Self { bmc: new(), fan: new(), inlet: new(), spare: new(), meter: new() }
    }

    fn write(&self, folder: &Path) {
        let entry = |of: &Exporter, name: &str, more: &str| {
            let url = format!("'http://127.0.0.1:{}/#requests'", of.port);
            format!("- {{name: {name}, device_id: {name}, url: {url}, {FEEDS_NODE}{more}}}\n")
        };
        let optional = ", optional: true";
        let text = entry(&self.bmc, "bmc", "")
            + &entry(&self.fan, "fan", optional)
            + &entry(&self.inlet, "inlet", optional)
            + &entry(&self.spare, "spare", optional)
            + &entry(&self.meter, "meter", ", update_every_idle: 600000");
        fs::write(folder.join("all.conf"), text).unwrap();
    }
}

#[test]
fn a_job_of_oar_and_orders_change_the_polls_that_they_name_and_no_others() {
    let name = "a_job_of_oar_and_orders_change_the_polls_that_they_name_and_no_others";
    let Some(machine) = Machine::start(name) else { return };
    let settings = settings(&machine);
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let (data, files) = (machine.folder.path().join("data"), tempfile::tempdir().unwrap());
    let spool = tempfile::tempdir().unwrap();
    let site = Site::start();
    site.write(files.path());
    let mut server = Server::start(&data, &settings);
    let mut running = poller("one", files.path(), &server.url, spool.path());
    polls(&site.bmc, 3);
    assert_eq!(requests(&[&site.fan, &site.inlet, &site.spare]), [0, 0, 0]);
    assert!(site.meter.requests() <= 1, "no job has the node: {}", site.meter.requests());

    let end = machine.dir().join("end");
    let script = format!("until [ -e {} ]; do sleep 0.2; done", end.display());
    let wanted = "-l /network_address=1/core=1,walltime=0:5:0";
    let job = machine.submit("games", &format!("-t monitor=fan {wanted} '{script}'"))[0];
    polls(&site.fan, 2);
    polls(&site.meter, 2);
    promoted(&server, &format!("oar:{job}"), "oarnode1", &["fan"]);

    // The restarted server and poller find the job's request again.
    server.running.kill();
    server.again(&data, &settings);
    assert_eq!(running.end(), 0, "{}", running.errors());
    running = poller("one", files.path(), &server.url, spool.path());
    polls(&site.fan, 2);
    polls(&site.meter, 2);

    let undo = promote(&server.url, "inlet");
    polls(&site.inlet, 2);
    reload(&site, files.path(), &running);
    polls(&site.inlet, 2);
    assert_eq!(jobmeter(&server.url, &["promote", "--undo", &undo]).0, 0);
    ends(&site.inlet);
    change_period(&server.url, &site.bmc);

    fs::write(&end, "").unwrap();
    ends(&site.fan);
    ends(&site.meter);
    promoted(&server, "", "", &[]);
    assert_eq!(requests(&[&site.spare]), [0], "nobody requested it");
    polls(&site.bmc, 2);
    assert_eq!(running.end(), 0, "{}", running.errors());
    is_whole(&server.url);
}

impl Exporter {
    fn requests(&self) -> u32 {
        self.requests.load(Ordering::SeqCst)
    }
}

fn requests(exporters: &[&Exporter]) -> Vec<u32> {
    exporters.iter().map(|exporter| exporter.requests()).collect()
}

/// Waits until an exporter has been polled this often from now on.
fn polls(exporter: &Exporter, number: u32) {
    let before = exporter.requests();
    until("polls", LIMIT, || (exporter.requests() >= before + number).then_some(()));
}

/// Waits until an exporter is polled no more.
fn ends(exporter: &Exporter) {
    let mut before = exporter.requests();
    until("no more polls", LIMIT, || {
        std::thread::sleep(Duration::from_millis(2500));
        (std::mem::replace(&mut before, exporter.requests()) == exporter.requests()).then_some(())
    });
}

/// Promotes a metric on the job's node, and returns the promotion's ID.
fn promote(url: &str, metric: &str) -> String {
    let arguments = ["promote", metric, "--nodes", "oarnode1", "--for", "1h", "--json"];
    // No metric of this name has been stored, so the command warns.
    let (_, out, _) = jobmeter(url, &arguments);
    serde_json::from_str::<Value>(&out).unwrap()[0]["id"].to_string()
}

/// The files change in a comment alone, and the poller reads them again by the signal and by itself.
fn reload(site: &Site, folder: &Path, running: &Running) {
    site.write(folder);
    let text = fs::read_to_string(folder.join("all.conf")).unwrap();
    fs::write(folder.join("all.conf"), format!("# the same\n{text}")).unwrap();
    let pid = running.child.id().to_string();
    let mut kill = std::process::Command::new("kill");
    assert!(kill.args(["-s", "HUP", &pid]).status().unwrap().success());
}

/// A shorter period than the poller allows changes nothing. A longer one applies until it is undone.
fn change_period(url: &str, bmc: &Exporter) {
    let set = |period: &str| {
        let change = ["set", "--nodes", "bmc", "--source", "json", "--period", period];
        let (_, out, errors) = jobmeter(url, &[&change[..], &["--for", "1m", "--json"]].concat());
        let change: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{errors}"));
        change["id"].to_string()
    };
    let short = set("100ms");
    let before = bmc.requests();
    std::thread::sleep(Duration::from_secs(3));
    assert!(bmc.requests() <= before + 4, "rejected by the poller");
    assert_eq!(jobmeter(url, &["set", "--undo", &short]).0, 0);
    let long = set("30s");
    ends(bmc);
    assert_eq!(jobmeter(url, &["set", "--undo", &long]).0, 0);
    polls(bmc, 2);
}

/// Each request of `bmc` is stored once, and nearly all follow the one before by its period.
fn is_whole(url: &str) {
    let all = rows(
        url,
        "SELECT value, CAST(timestamp AS BIGINT) / 1000000 AS second FROM metrics \
         WHERE device_id = 'bmc' AND metric_id = 'bmc' ORDER BY timestamp",
    );
    let values: Vec<f64> = all.iter().map(|row| row["value"].as_f64().unwrap()).collect();
    let expected: Vec<f64> = (1..).map(f64::from).take(values.len()).collect();
    assert_eq!(values, expected);
    let seconds: Vec<i64> = all.iter().map(|row| row["second"].as_i64().unwrap()).collect();
    let in_step = seconds.windows(2).filter(|pair| pair[1] - pair[0] == 1).count();
    assert!(in_step * 10 >= seconds.len() * 7, "{seconds:?}");
}
