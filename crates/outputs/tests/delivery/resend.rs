//! The output `graphite` and a receiver that loses what it received: what was sent before a break comes again.

use crate::kit::Site;
use conformance::{Spec, T0, spec};
use outputs::OutputState;
use parking_lot::Mutex;
use std::io::{BufRead, BufReader};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A receiver of lines.
struct Receiver {
    address: String,
    lines: Arc<Mutex<Vec<String>>>,
    connections: Arc<Mutex<Vec<TcpStream>>>,
}

impl Receiver {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (lines, connections) = (Arc::<Mutex<Vec<String>>>::default(), Arc::default());
        let (received, open): (_, Arc<Mutex<Vec<TcpStream>>>) =
            (Arc::clone(&lines), Arc::clone(&connections));
        std::thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                open.lock().push(connection.try_clone().unwrap());
                let received = Arc::clone(&received);
                std::thread::spawn(move || {
                    for line in BufReader::new(connection).lines().map_while(Result::ok) {
                        received.lock().push(line);
                    }
                });
            }
        });
        Self { address, lines, connections }
    }

    /// Forgets everything and closes its connections, as a kill does.
    fn kill(&self) {
        for connection in self.connections.lock().drain(..) {
            connection.shutdown(Shutdown::Both).ok();
        }
        self.lines.lock().clear();
    }

    /// Waits until it has exactly these lines, in any order.
    fn wait_for(&self, expected: &[String]) {
        self.wait_for_some("", expected);
    }

    /// The same for its lines with a text.
    fn wait_for_some(&self, text: &str, expected: &[String]) {
        let mut found = Vec::new();
        for _ in 0..2000 {
            found = self.lines.lock().clone();
            found.retain(|line| line.contains(text));
            found.sort();
            if found == expected {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("{found:#?} is not {expected:#?}");
    }

    fn config(&self, more: &str) -> String {
        let address = &self.address;
        format!("[outputs.graphite]\naddress = \"{address}\"\nprotocol = \"plaintext\"\n{more}")
    }
}

fn line(metric: &str, second: i64) -> String {
    format!("n1.{metric} 1.0 {}", T0 / 1_000_000 + second)
}

#[test]
fn a_break_without_a_later_sample_is_noticed() {
    let mut site = Site::new();
    let receiver = Receiver::new();
    site.apply(&receiver.config(""));
    site.settle();
    site.store(&[(spec("n1", "a"), 1, 1.0), (spec("n1", "b"), 70, 1.0)]);
    let both = [line("a", 1), line("b", 70)];
    receiver.wait_for(&both);
    receiver.kill();
    receiver.wait_for(&both);
    assert_eq!(site.outputs.status()[0].resent, 2);
    // What was sent too long ago is not sent again; the other minute is.
    site.clock.fetch_add(301, Ordering::Relaxed);
    site.store(&[(spec("n1", "c"), 400, 1.0)]);
    receiver.wait_for(&[&both[..], &[line("c", 400)]].concat());
    site.settle();
    receiver.kill();
    receiver.wait_for(&[line("c", 400)]);
    // Nobody observed the connection while the server was down.
    receiver.lines.lock().clear();
    site = site.restart();
    site.apply(&receiver.config(""));
    receiver.wait_for(&[line("c", 400)]);
}

#[test]
fn a_late_sample_is_sent_again_and_windows_remain_whole() {
    let mut site = Site::new();
    let receiver = Receiver::new();
    site.apply(&receiver.config("every = \"10s\"\n"));
    site.settle();
    let at = |second| (spec("n1", "a"), second, 1.0);
    site.store(&[at(391), at(399), at(400), at(405)]);
    receiver.wait_for(&[line("a", 399)]);
    // Late: of an hour before.
    site.store(&[(spec("n1", "b"), -3600, 1.0), (spec("n1", "b"), -3590, 1.0)]);
    let sent = [line("a", 399), line("b", -3600)];
    receiver.wait_for(&sent);
    site.settle();
    receiver.kill();
    // A sample that waits for the end of its window is not sent.
    receiver.wait_for(&sent);
}

#[test]
fn nothing_is_sent_again_without_the_option() {
    let mut site = Site::new();
    let receiver = Receiver::new();
    site.apply(&receiver.config("resend = \"0s\"\n"));
    site.settle();
    site.store(&[(spec("n1", "a"), 1, 1.0)]);
    receiver.wait_for(&[line("a", 1)]);
    receiver.kill();
    // The break is noticed before the next write, so this sample is not lost.
    std::thread::sleep(Duration::from_millis(1500));
    site.store(&[(spec("n1", "a"), 2, 1.0)]);
    receiver.wait_for(&[line("a", 2)]);
    assert_eq!(site.outputs.status()[0].resent, 0);
}

#[test]
fn a_range_is_sent_beside_the_follower() {
    let mut site = Site::new();
    let receiver = Receiver::new();
    site.store(&[(spec("n1", "a"), 1, 1.0), (spec("n1", "a"), 2, 1.0)]);
    site.apply(&receiver.config(""));
    site.settle();
    let range = (model::Timestamp(T0), model::Timestamp(T0 + 1_500_000));
    // The connection of the range ends with it; this one remains.
    site.store(&[(spec("n1", "b"), 3, 1.0)]);
    receiver.wait_for(&[line("b", 3)]);
    site.outputs.fill("graphite", range, None).unwrap();
    receiver.wait_for(&[line("a", 1), line("b", 3)]);
    site.settle();
    // It may be lost as everything else.
    receiver.kill();
    receiver.wait_for(&[line("a", 1), line("a", 2), line("b", 3)]);
}

#[test]
fn percentages_continue_after_a_restart_and_begin_with_a_range() {
    const OTHERS: [&str; 6] = [
        "cpu_nice_seconds_total",
        "cpu_system_seconds_total",
        "cpu_iowait_seconds_total",
        "cpu_irq_seconds_total",
        "cpu_softirq_seconds_total",
        "cpu_steal_seconds_total",
    ];
    let times = |second: i64, user: f64, idle: f64| -> Vec<(Spec, i64, f64)> {
        let own = [("cpu_user_seconds_total", user), ("cpu_idle_seconds_total", idle)];
        let all = OTHERS.map(|metric| (metric, 0.0)).into_iter().chain(own);
        all.map(|(metric, value)| (spec("n1", metric), second, value)).collect()
    };
    let mut site = Site::new();
    let receiver = Receiver::new();
    let config = receiver.config("tree = \"fructosa\"\nresend = \"0s\"\n");
    site.apply(&config);
    site.settle();
    site.store(&times(1, 1.0, 9.0));
    site.store(&times(11, 2.0, 18.0));
    site.settle();
    site = site.restart();
    site.apply(&config);
    site.store(&times(21, 6.0, 24.0));
    let line = |second: i64, percent: &str| {
        format!("n1.CPUTimesPercent.user {percent} {}", T0 / 1_000_000 + second)
    };
    receiver.wait_for_some("CPUTimesPercent.user", &[line(11, "10.0"), line(21, "40.0")]);
    let range = [20, 30].map(|second| model::Timestamp(T0 + second * 1_000_000));
    site.outputs.fill("graphite", range.into(), None).unwrap();
    receiver.wait_for_some(
        "CPUTimesPercent.user",
        &[line(11, "10.0"), line(21, "40.0"), line(21, "40.0")],
    );
}

#[test]
fn a_receiver_that_is_down_is_named() {
    let mut site = Site::new();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    site.store(&[(spec("n1", "a"), 1, 1.0)]);
    site.apply(&format!("[outputs.graphite]\naddress = \"{free}\"\nfrom = \"all\"\n"));
    let why = site.waits("graphite");
    assert_eq!(
        why,
        format!(
            "cannot connect to Carbon at {free}: Connection refused (os error 111); start Carbon, or correct `address`"
        )
    );
    let none = site.configs("[outputs.graphite]\n");
    assert_eq!(outputs::check(&none[0]).len(), 1);
}

/// A port of another protocol: it closes each connection after the first data.
#[test]
fn a_receiver_that_closes_each_connection_is_named_and_gets_everything_later() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let is_right = Arc::new(AtomicBool::new(false));
    let lines = Arc::<Mutex<Vec<String>>>::default();
    let (accepts, received) = (Arc::clone(&is_right), Arc::clone(&lines));
    std::thread::spawn(move || {
        for connection in listener.incoming().map_while(Result::ok) {
            let mut reader = BufReader::new(connection);
            let mut line = String::new();
            while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 0)
                && accepts.load(Ordering::SeqCst)
            {
                received.lock().push(std::mem::take(&mut line));
            }
        }
    });
    let mut site = Site::new();
    site.apply(&format!(
        "[outputs.graphite]\naddress = \"{address}\"\nprotocol = \"plaintext\"\nfrom = \"all\"\n"
    ));
    let mut second = 0;
    let why = loop {
        second += 1;
        site.store(&[(spec("n1", "a"), second, 1.0)]);
        std::thread::sleep(Duration::from_millis(300));
        if let Some(why) = waiting(&site) {
            break why;
        }
        assert!(second < 100, "{:?}", site.outputs.status());
    };
    assert!(why.contains("is `protocol` that of this port?"), "{why}");
    is_right.store(true, Ordering::SeqCst);
    for _ in 0..2000 {
        let last = format!(" {}\n", T0 / 1_000_000 + second);
        if lines.lock().iter().any(|line| line.ends_with(&last)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{:?}", lines.lock());
}

fn waiting(site: &Site) -> Option<String> {
    match &site.outputs.status()[0].state {
        OutputState::Waiting { why, .. } => Some(why.to_string()),
        OutputState::Working => None,
    }
}
