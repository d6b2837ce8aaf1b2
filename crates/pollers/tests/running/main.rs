//! The running poller: the instants of its samples, and what it sends while devices, the server and itself fail.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests end at the first surprise, and start the program"
)]

mod colmet;
mod feed;
#[path = "../../../delivery/tests/server/mod.rs"]
mod server;

use model::Cause;
use server::{Reply, Server};
use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wire::AckStatus;

/// Period of devices whose samples line up. A tenth of it is the time that a busy machine has to begin a request.
const PERIOD_US: i64 = 2_000_000;
const LIMIT: Duration = Duration::from_secs(120);

/// An exporter of a counter of its requests.
struct Exporter {
    port: u16,
    requests: Arc<AtomicU32>,
    is_broken: Arc<AtomicBool>,
    /// When each request was answered, in microseconds.
    answered: Arc<Mutex<Vec<i64>>>,
}

impl Exporter {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (requests, is_broken) = (Arc::<AtomicU32>::default(), Arc::<AtomicBool>::default());
        let (count, broken) = (Arc::clone(&requests), Arc::clone(&is_broken));
        let answered: Arc<Mutex<Vec<i64>>> = Arc::default();
        let times = Arc::clone(&answered);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                // The head of the request is one packet.
                if broken.load(Ordering::SeqCst) || stream.read(&mut [0; 4096]).is_err() {
                    continue;
                }
                let number = count.fetch_add(1, Ordering::SeqCst) + 1;
                let body =
                    format!("# TYPE polls_total counter\npolls_total {number}\npower_watt NaN\n");
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
                times.lock().unwrap().push(delivery::wall().0);
                // A poller that ended does not read.
                stream.write_all((head + &body).as_bytes()).unwrap_or_default();
            }
        });
        Self { port, requests, is_broken, answered }
    }

    fn requests(&self) -> u32 {
        self.requests.load(Ordering::SeqCst)
    }

    fn entry(&self, device: &str, period_us: i64, labels: &str) -> String {
        let period_ms = period_us / 1000;
        let port = self.port;
        format!(
            "- {{name: all, device_id: {device}, url: 'prometheus://127.0.0.1:{port}/', update_every: {period_ms}, timeout: 10000{labels}}}\n"
        )
    }
}

struct Poller(Child);

impl Poller {
    fn start(dir: &Path, url: &str, spool: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_jobmeter-poller"));
        command.env("JOBMETER_POLLER_FILE", "/dev/null");
        command.arg("poll").arg(dir).args(["--server", url, "--name", "one", "--spool"]).arg(spool);
        Self(command.stderr(Stdio::inherit()).spawn().unwrap())
    }

    fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// Ends the program as systemd does. Returns whether it ended well.
    fn end(mut self) -> bool {
        self.signal("TERM");
        self.0.wait().unwrap().success()
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.0.kill().unwrap_or_default();
        self.0.wait().ok();
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {LIMIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Values of a metric of a device, with their instants in microseconds.
fn values(server: &Server, device: &str, metric: &str) -> Vec<(i64, f64)> {
    let mut found = Vec::new();
    for batch in server.posts().iter().flat_map(|post| &post.batches) {
        for (entry, at, value) in batch.samples() {
            if entry.device.as_str() == device && *entry.metric.name == *metric {
                found.push((at.0, value));
            }
        }
    }
    found
}

/// Causes and sources of the gaps of a device.
fn gaps(server: &Server, device: &str) -> BTreeSet<(Cause, String)> {
    let posts = server.posts();
    let gaps = posts.iter().flat_map(|post| &post.batches).flat_map(|batch| &batch.gaps);
    let of_device = gaps.filter(|gap| gap.device.as_str() == device);
    of_device.map(|gap| (gap.cause, gap.source.to_string())).collect()
}

#[test]
fn every_poll_is_sent_once_while_the_server_and_the_poller_fail() {
    let exporter = Exporter::start();
    let (files, spool) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(files.path().join("all.conf"), exporter.entry("psu-1", 500_000, "")).unwrap();
    let is_away = Arc::new(AtomicBool::new(false));
    let away = Arc::clone(&is_away);
    let server = Server::start(Box::new(move |_, _| match away.load(Ordering::SeqCst) {
        true => Reply::Close,
        false => Reply::All(AckStatus::Stored),
    }));
    let stored = |server: &Server| values(server, "psu-1", "prom_polls_total");
    let poller = Poller::start(files.path(), &server.url, spool.path());
    until("polls", || stored(&server).len() >= 3);
    is_away.store(true, Ordering::SeqCst);
    let before = exporter.requests();
    until("polls without a server", || exporter.requests() >= before + 5);
    assert!(poller.end());
    is_away.store(false, Ordering::SeqCst);
    let polled = exporter.requests();
    // Longer than a period.
    std::thread::sleep(Duration::from_millis(1500));
    let poller = Poller::start(files.path(), &server.url, spool.path());
    until("polls after the restart", || {
        stored(&server).iter().any(|(_, value)| *value > f64::from(polled + 2))
    });
    assert!(poller.end());
    // What the server did not acknowledge comes again: it counts once.
    let mut numbers: Vec<f64> = stored(&server).iter().map(|(_, value)| *value).collect();
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    let expected: Vec<f64> = (1..).map(f64::from).take(numbers.len()).collect();
    assert_eq!(numbers, expected, "no poll is lost");
    let posts = server.posts();
    let mut gaps = posts.iter().flat_map(|post| &post.batches).flat_map(|batch| &batch.gaps);
    // The gap of the first start begins at an unknown time.
    let is_between = |from: i64| from > 1_000_000_000_000;
    assert!(
        gaps.any(|gap| gap.cause == Cause::PollerDown && is_between(gap.from.0)),
        "the time between the two starts is a gap"
    );
}

/// Kills of a poller and of a feed in a row: `KILLS`.
fn kills(default: usize) -> usize {
    std::env::var("KILLS").map_or(default, |kills| kills.parse().unwrap())
}

#[test]
fn after_each_kill_every_poll_is_stored_or_in_a_gap() {
    let exporter = Exporter::start();
    let (files, spool) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(files.path().join("all.conf"), exporter.entry("psu-1", 100_000, "")).unwrap();
    let is_away = Arc::new(AtomicBool::new(false));
    let away = Arc::clone(&is_away);
    let server = Server::start(Box::new(move |_, _| match away.load(Ordering::SeqCst) {
        true => Reply::Close,
        false => Reply::All(AckStatus::Stored),
    }));
    let rounds = kills(4);
    for round in 0..rounds {
        is_away.store(round % 3 == 1, Ordering::SeqCst);
        let poller = Poller::start(files.path(), &server.url, spool.path());
        let before = exporter.requests();
        // Longer than the interval between batches.
        until("polls", || exporter.requests() >= before + 12);
        std::thread::sleep(Duration::from_millis((37 * round as u64) % 400));
        poller.signal("KILL");
    }
    is_away.store(false, Ordering::SeqCst);
    let poller = Poller::start(files.path(), &server.url, spool.path());
    let before = exporter.requests();
    until("polls after the kills", || {
        values(&server, "psu-1", "prom_polls_total").iter().any(|(_, n)| *n > f64::from(before))
    });
    assert!(poller.end());

    let stored: Vec<f64> = values(&server, "psu-1", "prom_polls_total")
        .into_iter()
        .map(|(_, number)| number)
        .collect();
    let posts = server.posts();
    let gaps = posts.iter().flat_map(|post| &post.batches).flat_map(|batch| &batch.gaps);
    let gaps: Vec<(i64, i64)> = gaps.map(|gap| (gap.from.0, gap.to.0)).collect();
    let answered = exporter.answered.lock().unwrap();
    let lost = answered.iter().zip(1_u32..).filter(|(at, number)| {
        let is_in_gap = gaps.iter().any(|(from, to)| (from..=to).contains(at));
        !stored.contains(&f64::from(*number)) && !is_in_gap
    });
    assert_eq!(lost.count(), 0, "{gaps:?}");
    assert!(stored.len() > answered.len() / 4, "{} of {}", stored.len(), answered.len());
    assert!(gaps.len() >= rounds, "{gaps:?}");
}

/// The gaps of a device in microseconds, by their beginnings.
fn spans(server: &Server, device: &str, cause: Option<Cause>) -> Vec<(i64, i64)> {
    let posts = server.posts();
    let gaps = posts.iter().flat_map(|post| &post.batches).flat_map(|batch| &batch.gaps);
    let of_device = gaps.filter(|gap| {
        gap.device.as_str() == device && cause.is_none_or(|cause| gap.cause == cause)
    });
    let mut spans: Vec<_> = of_device.map(|gap| (gap.from.0, gap.to.0)).collect();
    spans.sort_unstable();
    spans
}

#[test]
fn after_a_kill_gaps_cover_a_failing_device_and_no_more_of_others() {
    const FAILING_US: i64 = 4_000_000;
    let (first, second) = (Exporter::start(), Exporter::start());
    let (files, spool) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let text = first.entry("psu-1", 200_000, "") + &second.entry("psu-2", 200_000, "");
    std::fs::write(files.path().join("all.conf"), text).unwrap();
    let server = Server::start(Box::new(|_, _| Reply::All(AckStatus::Stored)));
    let instants = |device: &str| -> Vec<i64> {
        values(&server, device, "prom_polls_total").iter().map(|(at, _)| *at).collect()
    };
    let poller = Poller::start(files.path(), &server.url, spool.path());
    until("polls", || instants("psu-2").len() >= 3);
    second.is_broken.store(true, Ordering::SeqCst);
    let broken = Some(Cause::SourceBroken);
    until("a gap", || !spans(&server, "psu-2", broken).is_empty());
    let last_good = instants("psu-2").last().copied().unwrap();
    until("polls of the other", || instants("psu-1").last() >= Some(&(last_good + FAILING_US)));
    let killed = instants("psu-1").last().copied().unwrap();
    poller.signal("KILL");
    drop(poller);
    let poller = Poller::start(files.path(), &server.url, spool.path());
    let failed = |server: &Server| spans(server, "psu-2", broken).len();
    let before = failed(&server);
    until("a gap of the second start", || failed(&server) > before);
    second.is_broken.store(false, Ordering::SeqCst);
    until("a good value", || instants("psu-2").last() > Some(&last_good));
    let next_good = instants("psu-2").into_iter().find(|at| *at > last_good).unwrap();
    assert!(poller.end());

    let gaps = spans(&server, "psu-2", None);
    let covered = gaps.iter().fold(last_good, |covered, (from, to)| match *from <= covered {
        true => covered.max(*to),
        false => covered,
    });
    assert!(covered >= next_good, "{last_good} to {next_good}: {gaps:?}");
    let down = spans(&server, "psu-1", Some(Cause::PollerDown));
    let from = down.last().unwrap().0;
    assert!(from > last_good + FAILING_US / 2 && from <= killed + FAILING_US, "{down:?}");
}

#[test]
fn samples_of_two_devices_line_up_and_a_failing_one_costs_the_other_nothing() {
    let (first, second) = (Exporter::start(), Exporter::start());
    let (files, spool) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let text = first.entry("psu-1", PERIOD_US, ", labels: {outlet: 7}")
        + &second.entry("psu-2", PERIOD_US, "");
    std::fs::write(files.path().join("all.conf"), text).unwrap();
    let server = Server::start(Box::new(|_, _| Reply::All(AckStatus::Stored)));
    let poller = Poller::start(files.path(), &server.url, spool.path());
    let instants = |device: &str| -> BTreeSet<i64> {
        values(&server, device, "prom_power_watt").iter().map(|(at, _)| *at).collect()
    };
    // On a busy machine some requests leave too late for the start of their period.
    until("instants of both devices", || {
        let (first, second) = (instants("psu-1"), instants("psu-2"));
        first.intersection(&second).filter(|at| *at % PERIOD_US == 0).count() >= 2
    });
    for at in instants("psu-1").union(&instants("psu-2")) {
        let after_start = at % PERIOD_US;
        assert!(after_start == 0 || after_start > PERIOD_US / 10, "{at}");
    }
    assert!(values(&server, "psu-1", "prom_power_watt").iter().all(|(_, value)| value.is_nan()));
    let posts = server.posts();
    let mut batches = posts.iter().flat_map(|post| &post.batches);
    let labels = batches.find_map(|batch| {
        let mut entries = batch.table.entries.iter();
        let of_first = entries
            .find(|one| *one.metric.name == *"prom_polls_total" && one.device.as_str() == "psu-1");
        of_first.map(|one| one.labels.to_string())
    });
    assert_eq!(labels.as_deref(), Some(r#"{"outlet": 7}"#));

    second.is_broken.store(true, Ordering::SeqCst);
    let broken = (Cause::SourceBroken, "prometheus".to_owned());
    until("a gap", || gaps(&server, "psu-2").contains(&broken));
    let success =
        |device: &str| values(&server, device, "poll_success").last().map(|(_, value)| *value);
    until("psu-2 fails", || success("psu-2") == Some(0.0));
    let before = values(&server, "psu-1", "prom_polls_total").len();
    until("samples of the other", || {
        values(&server, "psu-1", "prom_polls_total").len() >= before + 2
    });
    assert_eq!(success("psu-1"), Some(1.0));
    assert!(!gaps(&server, "psu-1").contains(&broken));
    let errors = values(&server, "psu-2", "poll_errors_total");
    assert!(errors.last().is_some_and(|(_, count)| *count >= 1.0), "{errors:?}");
    assert!(poller.end());
}

#[test]
fn changed_files_change_the_polls_and_nothing_else() {
    let (first, second, third) = (Exporter::start(), Exporter::start(), Exporter::start());
    let (files, spool) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let write = |name: &str, text: &str| std::fs::write(files.path().join(name), text).unwrap();
    write("a.conf", &first.entry("psu-1", 500_000, ""));
    let server = Server::start(Box::new(|_, _| Reply::All(AckStatus::Stored)));
    let poller = Poller::start(files.path(), &server.url, spool.path());
    let polled = |device: &str| values(&server, device, "prom_polls_total");
    until("polls", || polled("psu-1").len() >= 3);
    // A new file, and a broken one.
    write("b.conf", &second.entry("psu-2", 500_000, ""));
    until("polls of a new file", || polled("psu-2").len() >= 2);
    write("a.conf", "- {name: all, device_id");
    write("b.conf", &(second.entry("psu-2", 500_000, "") + &third.entry("psu-3", 500_000, "")));
    until("polls of a new entry", || polled("psu-3").len() >= 2);
    let count = polled("psu-1").len();
    until("polls of a file that cannot be parsed", || polled("psu-1").len() >= count + 2);
    // SIGHUP reads the files at once.
    std::fs::remove_file(files.path().join("b.conf")).unwrap();
    poller.signal("HUP");
    let mut requests = third.requests();
    until("no polls of a removed file", || {
        std::thread::sleep(Duration::from_millis(1500));
        third.requests() == std::mem::replace(&mut requests, third.requests())
    });
    until("polls of the other file", || polled("psu-1").len() >= count + 8);
    assert!(poller.end());
    for (device, exporter) in [("psu-1", first), ("psu-2", second), ("psu-3", third)] {
        let numbers: Vec<f64> = polled(device).iter().map(|(_, number)| *number).collect();
        let expected: Vec<f64> = (1..=exporter.requests()).map(f64::from).collect();
        assert_eq!(numbers, expected, "every poll of {device} is stored once");
        let down = (Cause::PollerDown, String::new());
        assert_eq!(gaps(&server, device).contains(&down), device == "psu-1", "of the start only");
    }
}

#[test]
fn a_new_device_has_no_gap_before_its_description_and_a_removed_one_has_ended() {
    let (first, second) = (Exporter::start(), Exporter::start());
    let (files, spool) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let write = |name: &str, text: &str| std::fs::write(files.path().join(name), text).unwrap();
    write("a.conf", &first.entry("psu-1", 500_000, ""));
    let server = Server::start(Box::new(|_, _| Reply::All(AckStatus::Stored)));
    let polled = |device: &str| values(&server, device, "prom_polls_total").len();
    let poller = Poller::start(files.path(), &server.url, spool.path());
    until("polls", || polled("psu-1") >= 3);
    assert!(poller.end());
    // Longer than a period.
    std::thread::sleep(Duration::from_millis(1500));
    write("b.conf", &second.entry("psu-2", 500_000, ""));
    let poller = Poller::start(files.path(), &server.url, spool.path());
    until("polls of both", || polled("psu-2") >= 3 && polled("psu-1") >= 6);
    let down = |device: &str| spans(&server, device, Some(Cause::PollerDown));
    until("the gap between the starts", || down("psu-1").last().is_some_and(|gap| gap.0 > 1 << 50));
    assert_eq!(down("psu-2"), []);

    let periods = |device: &str| values(&server, device, "poll_period_seconds");
    std::fs::remove_file(files.path().join("b.conf")).unwrap();
    until("the end of its polls", || periods("psu-2").last().is_some_and(|(_, last)| *last == 0.0));
    assert!(poller.end());
    assert!(periods("psu-1").iter().all(|(_, period)| *period == 0.5), "the poller ended");
}
