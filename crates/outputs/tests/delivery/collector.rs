//! The output `colmet`: each message once, while the collector is away, does not read, or ends.

use crate::kit::Site;
use colmet::frame::Records;
use conformance::{Spec, T0, spec};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;
use zmtp::{Event, Limits, Pull};

fn output(address: SocketAddr) -> String {
    format!(
        "[outputs.colmet]\naddress = \"tcp://{address}\"\nfrom = \"all\"\ncluster = \"oar\"\ndomain = \"site\"\n"
    )
}

fn collector(address: &str) -> (Pull, SocketAddr) {
    let pull = Pull::bind(&[address.parse().unwrap()], Limits::default(), Box::new(|_| true));
    let pull = pull.unwrap();
    let address = pull.addresses().unwrap()[0];
    (pull, address)
}

/// The records of the next message: second, host, job, backend.
fn message(pull: &mut Pull) -> Vec<String> {
    let event = pull.receive(Duration::from_secs(30)).unwrap();
    let Some(Event::Message { bytes, .. }) = event else { panic!("{event:?}") };
    let records = Records::of(&bytes).map(|record| {
        let record = record.unwrap();
        let second = (record.at.0 - T0) / 1_000_000;
        format!("{second} {} {} {}", record.host, record.job, record.backend.id)
    });
    records.collect()
}

/// A node, a job of it, and another node.
fn samples(second: i64) -> Vec<(Spec, i64, f64)> {
    let job = |metric| Spec { job: Some(7), start: Some(T0 - 1), ..spec("n1", metric) };
    vec![
        (spec("n1", "cpu_forks_total"), second, second as f64),
        (job("perf_instructions_total"), second, 10.0 * second as f64 + 1.0),
        (spec("n2", "cpu_forks_total"), second, 0.5),
    ]
}

fn expected(second: i64) -> [Vec<String>; 2] {
    [
        vec![
            format!("{second} n1.site 0 procstats_default"),
            format!("{second} n1.site 7 perfhwstats_default"),
        ],
        vec![format!("{second} n2.site 0 procstats_default")],
    ]
}

/// Stores an instant; that completes the records of the one before it.
fn store(site: &mut Site, second: i64) {
    site.clock.store(second, Ordering::Relaxed);
    site.store(&samples(second));
}

#[test]
fn each_node_and_instant_is_one_message() {
    let (mut pull, address) = collector("127.0.0.1:0");
    let mut site = Site::new();
    site.apply(&output(address));
    for second in 0..5 {
        store(&mut site, second);
    }
    for second in 0..4 {
        for records in expected(second) {
            assert_eq!(message(&mut pull), records);
        }
    }
}

#[test]
fn the_output_waits_for_a_collector_that_is_away_and_sends_each_message_once() {
    let (pull, address) = collector("127.0.0.1:0");
    drop(pull);
    let mut site = Site::new();
    site.apply(&output(address));
    for second in 0..3 {
        store(&mut site, second);
    }
    assert!(site.waits("colmet").starts_with(&format!("tcp://{address}: Connection refused")));
    let (mut pull, _) = collector(&address.to_string());
    for records in [0, 1].into_iter().flat_map(expected) {
        assert_eq!(message(&mut pull), records);
    }
    // It ends and comes back: nothing is given to the closed connection.
    drop(pull);
    store(&mut site, 3);
    assert!(site.waits("colmet").starts_with(&format!("tcp://{address}: ")));
    let (mut pull, _) = collector(&address.to_string());
    site = site.restart();
    site.apply(&output(address));
    store(&mut site, 4);
    for records in [2, 3].into_iter().flat_map(expected) {
        assert_eq!(message(&mut pull), records);
    }
}

#[test]
fn a_collector_that_does_not_read_delays_the_output_and_loses_nothing() {
    let (mut pull, address) = collector("127.0.0.1:0");
    let mut site = Site::new();
    site.apply(&output(address));
    store(&mut site, 0);
    store(&mut site, 1);
    for records in expected(0) {
        assert_eq!(message(&mut pull), records);
    }
    // 9 kB for each record of a node: more than the buffers of the kernel hold.
    const SECONDS: i64 = 600;
    // The clock stands still: after 10 s the status would call this a write that hangs.
    for second in 2..SECONDS {
        site.store(&samples(second));
    }
    assert_eq!(site.waits("colmet"), format!("tcp://{address}: the collector does not read"));
    for records in (1..SECONDS - 1).flat_map(expected) {
        assert_eq!(message(&mut pull), records);
    }
    site.settle();
    assert_eq!(pull.receive(Duration::from_millis(300)).unwrap(), None);
}

#[test]
fn a_configuration_needs_an_address_and_a_cluster() {
    let site = Site::new();
    let wrong = |text: &str| -> Vec<String> {
        let wrong = outputs::check(&site.configs(text)[0]);
        wrong.into_iter().map(|(key, _)| key).collect()
    };
    assert_eq!(wrong(&output("127.0.0.1:1".parse().unwrap())), [""; 0]);
    assert_eq!(wrong("[outputs.colmet]\n"), ["outputs.colmet.address", "outputs.colmet.cluster"]);
}
