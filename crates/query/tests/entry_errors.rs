//! Tests of errors in the description files of pollers: which devices fail because of them, and who sees them.

mod lab;

use jobs::Reader;
use lab::{Lab, TestSeries, at, device, key};
use model::Unit;
use query::{DeviceFilter, QueryContext, Settings};

fn of(reader: Reader, second: f64) -> QueryContext {
    QueryContext::new(reader, at(second))
}

#[test]
fn an_entry_with_an_error_is_a_failing_device_and_hidden_from_those_who_do_not_see_it() {
    let lab = Lab::new();
    lab.put_of("n1", "n1");
    lab.job(&key("slurm", 1), "n1", 1000, 7100.0, None);
    let success = TestSeries {
        device: "pdu-1",
        metric: "poll_success",
        unit: Unit::Count,
        labels: &[("protocol", "snmp"), ("target", "snmp://pdu-1:161")],
        samples: &[(7198.0, 1.0)],
        ..TestSeries::default()
    };
    lab.put_from("poller-two/group-0", 7200.0, &[success]);
    let error = |device: Option<&str>, alias: Option<&str>, line| api::EntryError {
        file: "metrics.d/rack".to_owned(),
        line,
        device: device.map(str::to_owned),
        alias: alias.map(str::to_owned),
        metric: Some("power".to_owned()),
        reason: "the key `url` is missing".to_owned(),
    };
    let listed = vec![
        error(None, None, 1),
        error(Some("bmc-1"), Some("n1"), 2),
        error(Some("pdu-9"), None, 3),
        error(Some("pdu-9"), None, 4),
    ];
    let engine = lab.engine(Settings::default());
    let errors = api::EntryErrors { count: 4, listed };
    engine.entry_errors().report(&device("one"), Some(errors), at(7200.0));
    let failing = |reader, second| {
        let filter = DeviceFilter { only_failing: true, ..DeviceFilter::default() };
        let devices = engine.devices(&filter, &of(reader, second)).unwrap();
        let of_errors = devices.into_iter().filter(|one| one.address.is_none());
        of_errors.map(|one| (one.device, one.reason.unwrap())).collect::<Vec<_>>()
    };
    let row = |device: &str, reason: &str| (device.to_owned(), reason.to_owned());
    let of_bmc = row("bmc-1", "an entry has an error: metrics.d/rack:2: the key `url` is missing");
    let of_pdu = row(
        "pdu-9",
        "entries have errors: metrics.d/rack:3: the key `url` is missing; metrics.d/rack:4: the key `url` is missing",
    );
    assert_eq!(failing(Reader::Everything, 7200.0), [of_bmc.clone(), of_pdu]);
    // Alice has a job on n1, which the BMC feeds.
    assert_eq!(failing(Reader::Tenant(1000), 7200.0), [of_bmc]);
    assert_eq!(failing(Reader::Tenant(1001), 7200.0), []);
    assert_eq!(failing(Reader::Everything, 7260.0), [], "the poller reports nothing any more");

    let errors_of = |reader| {
        let pollers = engine.pollers(&of(reader, 7200.0)).unwrap();
        let one = |one: api::Poller| (one.poller, one.entry_errors.count);
        pollers.into_iter().map(one).collect::<Vec<_>>()
    };
    let counts = |one| vec![("one".to_owned(), one), ("two".to_owned(), 0)];
    assert_eq!(errors_of(Reader::Everything), counts(4));
    assert_eq!(errors_of(Reader::Nodes), counts(3), "not that of an unknown device");
    assert_eq!(errors_of(Reader::Tenant(1000)), counts(1));
    assert_eq!(engine.poll_summary(at(7200.0)).unwrap().entry_errors, [("one".to_owned(), 4)]);
}
