//! Tests that a node with 100 000 series is explained like any other, and that its names are suggested.

mod lab;

use jobs::Reader;
use lab::{Lab, TestSeries, at, device};
use query::{QueryContext, Settings};
use std::collections::BTreeSet;
use store::Selector;

/// Number of batches, and of series per batch.
const BATCHES: usize = 20;
const SERIES: usize = 5000;

#[test]
fn a_node_with_a_hundred_thousand_series_is_explained() {
    let lab = Lab::new();
    let numbers: Vec<String> = (0..BATCHES * SERIES).map(|number| number.to_string()).collect();
    for numbers in numbers.chunks(SERIES) {
        let labels: Vec<[(&str, &str); 1]> =
            numbers.iter().map(|number| [("pid", number.as_str())]).collect();
        let series = labels.iter().map(|labels| TestSeries {
            metric: "process_threads",
            labels,
            samples: &[(7100.0, 1.0)],
            ..TestSeries::default()
        });
        lab.put(&series.collect::<Vec<_>>());
    }
    lab.put(&[TestSeries { samples: &[(7100.0, 0.5)], ..TestSeries::default() }]);
    let engine = lab.engine(Settings::default());
    let context = QueryContext::new(Reader::Everything, at(7200.0));
    let of = |metric: &str| Selector {
        devices: Some(BTreeSet::from([device("n1")])),
        metrics: Some(BTreeSet::from([metric.into()])),
        ..Selector::default()
    };

    let whole = Selector { metrics: None, ..of("load_1m") };
    assert_eq!(lab.store.snapshot().last(&whole).len(), BATCHES * SERIES + 1);
    // The queries of `get` before it suggests a name: whether the node exists, and the catalogue.
    let one = engine.first_series(&whole, (at(0.0), at(7200.0)), 1, &context).unwrap();
    assert_eq!(one.len(), 1);
    let names: Vec<String> = engine.catalogue().into_iter().map(|one| one.name).collect();
    assert_eq!(names, ["load_1m", "process_threads"]);

    let hour = (at(3600.0), at(7200.0));
    let explained = engine.explain(&of("load_1m"), hour, &context).unwrap();
    assert_eq!((explained.len(), explained[0].samples), (1, 1));
    let many = engine.explain(&of("process_threads"), hour, &context).unwrap();
    assert_eq!(many.len(), 100, "the first ones");
}
