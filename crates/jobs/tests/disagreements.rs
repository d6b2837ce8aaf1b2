//! Where schedulers and nodes say different things.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod told;

use model::DeviceId;
use told::{at, event, open, record, seconds};

#[test]
fn where_scheduler_and_nodes_disagree_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let check = |second: i64, reporting: &[&str]| {
        let reports = |device: &DeviceId| reporting.contains(&device.as_str());
        let found = registry.disagreements(at(second), reports).unwrap();
        let one = |d: jobs::Disagreement| {
            format!("{} {} {} {}", d.key.id, d.device, d.difference.word(), seconds(d.since))
        };
        found.into_iter().map(one).collect::<Vec<_>>()
    };
    let all = ["n1", "n2", "n3"];
    registry.apply(&[event(1, "n1", 100, None)], at(101)).unwrap();
    assert_eq!(check(1000, &all), [""; 0], "nobody tells of this cluster's jobs");

    let mut bobs = record(5, 100, None, &["n1"]);
    (bobs.user, bobs.uid) = (Some("bob".into()), Some(2000));
    let records = [
        record(2, 100, None, &["n1", "n2", "pdu-1"]),
        record(3, 100, Some(300), &["n1"]),
        record(4, 100, None, &["n2"]),
        bobs,
        record(6, 100, None, &["n1"]),
    ];
    registry.tell(&records, at(400)).unwrap();
    let events = [
        event(2, "n1", 100, None),
        event(3, "n1", 100, None),
        event(4, "n3", 100, None),
        event(5, "n1", 100, None),
        event(6, "n1", 100, Some(500)),
    ];
    registry.apply(&events, at(510)).unwrap();
    assert_eq!(
        check(600, &all),
        [
            "1 n1 not_known 100",
            "2 n2 not_seen 100",
            "3 n1 not_running 300",
            "4 n2 not_seen 100",
            "4 n3 other_node 100",
            "5 n1 other_user 100",
            "6 n1 not_seen 500",
        ]
    );
    // Where no agent tells anything, nothing is proved; and what was just now may be on its way.
    let silent = check(600, &["n1"]);
    assert!(!silent.iter().any(|line| line.contains("n2 not_seen")), "{silent:?}");
    assert_eq!(check(559, &all).len(), 6, "the end of 6 is not a minute old");
    assert_eq!(check(155, &all), [""; 0]);
    // They agree again.
    registry.tell(&[record(6, 100, Some(500), &["n1"])], at(600)).unwrap();
    registry.apply(&[event(3, "n1", 100, Some(310))], at(600)).unwrap();
    let left = check(700, &all);
    assert!(!left.iter().any(|line| line.starts_with('3') || line.starts_with('6')), "{left:?}");
}
