//! Queries bind their values; no value becomes part of an SQL statement.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod fixtures;

use fixtures::{at, open, record, with};
use jobs::Filter;
use model::{DeviceId, JobFacts};

/// Texts that would change a statement if inserted into it.
const HOSTILE: [&str; 5] = [
    "' OR '1'='1",
    "'; DROP TABLE runs; --",
    "\" OR 1=1 --",
    "x' UNION SELECT run FROM runs --",
    "%' OR 1 --\0",
];

#[test]
fn values_of_a_question_are_bound_and_no_part_of_its_statement() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    // A job with a hostile text in every field, and a job of another user.
    let text = HOSTILE[1];
    let hostile = with(
        record(7, 100, None, &["n1"]),
        JobFacts {
            user: Some(text.into()),
            account: Some(text.into()),
            project: Some(text.into()),
            name: Some(text.into()),
            queue: Some(text.into()),
            ..JobFacts::default()
        },
    );
    registry.ingest(&[hostile, record(8, 100, None, &["n1"])], at(101)).unwrap();
    let ids = |filter: Filter| -> Vec<i64> {
        registry.list(&filter).unwrap().iter().map(|listed| listed.job.key.id.get()).collect()
    };
    for text in HOSTILE {
        let own: &[i64] = if text == HOSTILE[1] { &[7] } else { &[] };
        let some = || Some(text.to_owned());
        for filter in [
            Filter { user: some(), ..Filter::default() },
            Filter { account: some(), ..Filter::default() },
            Filter { project: some(), ..Filter::default() },
            Filter { name: some(), ..Filter::default() },
            Filter { queue: some(), ..Filter::default() },
        ] {
            assert_eq!(ids(filter.clone()), own, "{filter:?}");
            let from = Filter { from: Some(at(50)), to: Some(at(500)), ..filter };
            assert_eq!(ids(from.clone()), own, "{from:?}");
        }
        let device = DeviceId::new(text).ok();
        if let Some(device) = device {
            let there = Filter { device: Some(device), ..Filter::default() };
            assert_eq!(ids(there), [] as [i64; 0]);
        }
        let named = jobs::JobName { cluster: None, display_id: text.into() };
        assert!(registry.resolve(&named).is_err(), "{text}");
    }
    assert_eq!(ids(Filter::default()), [7, 8]);
}
