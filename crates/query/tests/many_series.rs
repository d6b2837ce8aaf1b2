//! Tests that a node with 100 000 series is explained like any other, and that its names are suggested.
//!
//! And that a range of many nodes, which several processors compute, is that of each node.

mod lab;

use jobs::Reader;
use lab::{Lab, TestSeries, at, device};
use query::{QueryContext, RangeQuery, Rate, Settings};
use std::collections::BTreeSet;
use storage::{Reads, Selector};

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

#[test]
fn a_range_of_many_nodes_is_that_of_each_up_to_the_limits() {
    let lab = Lab::new();
    let names: Vec<String> = (10..47).map(|number| format!("n{number}")).collect();
    for (name, number) in names.iter().zip(0..) {
        let value = f64::from(number);
        let samples = [(3600.0, value), (3660.0, value + 1.0), (7000.0, value + 2.0)];
        let of = |metric| TestSeries {
            device: name,
            metric,
            samples: &samples,
            ..TestSeries::default()
        };
        lab.put(&[of("load_1m"), of("load_5m")]);
    }
    lab.store.flush().unwrap();
    let context = QueryContext::new(Reader::Everything, at(7200.0));
    let range = |names: &[String], settings: Settings| {
        let devices = Some(names.iter().map(|name| device(name)).collect());
        let select = Selector { devices, ..Selector::default() };
        let (from, to, rate) = (at(3600.0), at(7200.0), Rate::Counters);
        let query = RangeQuery { select, from, to, step_us: 60_000_000, rate };
        let reads = Reads::default();
        let range = reads.during(|| lab.engine(settings).range(&query, &context)).unwrap();
        (range, reads.counts().rows)
    };
    let each: Vec<_> = names.chunks(1).map(|one| range(one, Settings::default())).collect();
    let rows: u64 = each.iter().map(|(_, rows)| rows).sum();
    let each: Vec<_> = each.into_iter().flat_map(|(range, _)| range.series).collect();
    let whole = |series: &[api::RangeSeries]| -> Vec<Vec<u8>> {
        series.iter().map(|one| api::to_json(one).unwrap()).collect()
    };
    let (all, all_rows) = range(&names, Settings::default());
    assert_eq!((all.series.len(), all.truncated, all_rows), (74, false, rows));
    assert_eq!(whole(&all.series), whole(&each));
    for series_max in [1, 30, 73, 74] {
        let (some, _) = range(&names, Settings { series_max, ..Settings::default() });
        assert_eq!(whole(&some.series), whole(&each[..series_max]));
        assert_eq!(some.truncated, series_max < 74);
    }
}
