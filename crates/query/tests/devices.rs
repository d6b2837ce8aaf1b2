//! Tests of the list of devices that are no nodes: states of polled devices, filters, pages, and access.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod lab;

use jobs::Reader;
use lab::{Lab, TestSeries, at, device, key};
use model::{Cause, Gap, NodeList, Origin, Unit};
use query::{DeviceFilter, PollSummary, QueryContext, RangeQuery, Rate, Settings};
use std::collections::BTreeSet;
use storage::{Selector, Storage as _};

/// A group of the poller `one`.
const GROUP: &str = "poller-one/group-0";
/// Period of the polls in seconds.
const PERIOD: f64 = 5.0;

fn of(reader: Reader, second: f64) -> QueryContext {
    QueryContext::new(reader, at(second))
}

/// The polls of a device at a second: whether the latest returned a value, and when the latest value was returned.
fn polls(lab: &Lab, (origin, received): (&str, f64), name: &str, at: f64, last: Option<f64>) {
    let address = format!("snmp://{name}:161");
    let labels = [("protocol", "snmp"), ("target", &*address)];
    let success = [(at, f64::from(u8::from(last.is_none())))];
    let last = last.map(|second| [(at, lab::at(second).seconds())]);
    let period = [(at, PERIOD)];
    let series = |metric, unit, samples| TestSeries {
        device: name,
        metric,
        unit,
        labels: &labels,
        samples,
        ..TestSeries::default()
    };
    let mut all = vec![
        series("poll_success", Unit::Count, &success[..]),
        series("poll_period_seconds", Unit::Seconds, &period),
    ];
    if let Some(last) = &last {
        all.push(series("poll_last_success_timestamp_seconds", Unit::Seconds, last));
    }
    lab.put_from(origin, received, &all);
}

fn value(lab: &Lab, origin: &str, name: &str, alias: Option<&str>) {
    let labels: Vec<(&str, &str)> = alias.iter().map(|node| ("_device_alias", *node)).collect();
    let samples = [(7190.0, 42.0)];
    let power = TestSeries {
        device: name,
        metric: "power_watts",
        labels: &labels,
        samples: &samples,
        ..TestSeries::default()
    };
    lab.put_from(origin, 7200.0, &[power]);
}

fn gap(name: &str, source: &str, to: f64, detail: &str) -> Gap {
    Gap {
        origin: Origin::new(GROUP).unwrap(),
        device: device(name),
        source: source.into(),
        from: at(7100.0),
        to: at(to),
        cause: Cause::SourceTimeout,
        detail: detail.into(),
    }
}

/// A node n1 with a job of alice, its BMC, a PDU that fails, a switch that is not polled any more, and a pushed meter.
/// The switch of another poller, which sent its last batch a minute ago.
fn lab() -> Lab {
    let lab = Lab::new();
    lab.put_of("n1", "n1");
    lab.job(&key("slurm", 1), "n1", 1000, 7100.0, None);
    polls(&lab, ("poller-two/group-0", 7140.0), "sw-2", 7140.0, None);
    polls(&lab, (GROUP, 7200.0), "bmc-1", 7198.0, None);
    polls(&lab, (GROUP, 7200.0), "pdu-1", 7198.0, Some(7100.0));
    polls(&lab, (GROUP, 7200.0), "sw-1", 7150.0, None);
    value(&lab, GROUP, "bmc-1", Some("n1"));
    value(&lab, "meters", "meter-1", Some("n9"));
    lab.put_gap_from(gap("pdu-1", "", 7199.0, "of the poller"));
    lab.put_gap_from(gap("pdu-1", "snmp", 7150.0, "refused"));
    lab.put_gap_from(gap("pdu-1", "snmp", 7198.0, "no answer"));
    lab
}

fn list(lab: &Lab, filter: &DeviceFilter, context: &QueryContext) -> Vec<api::Device> {
    lab.engine(Settings::default()).devices(filter, context).unwrap()
}

fn states(devices: &[api::Device]) -> Vec<(&str, &str, &str)> {
    devices
        .iter()
        .map(|one| (&*one.device, one.state.word(), one.reason.as_deref().unwrap_or_default()))
        .collect()
}

#[test]
fn states_are_those_of_targets_and_not_of_senders() {
    let lab = lab();
    let context = of(Reader::Everything, 7200.0);
    let devices = list(&lab, &DeviceFilter::default(), &context);
    let (silent, not_polled) =
        ("the poller is silent", "its poller polls other devices, but not this one");
    assert_eq!(
        states(&devices),
        [
            ("bmc-1", "alive", ""),
            ("meter-1", "unpolled", "no poller reads it; meters sends its values"),
            ("pdu-1", "failing", "source timed out: no answer"),
            ("sw-1", "unknown", not_polled),
            ("sw-2", "unknown", silent),
        ]
    );
    let bmc = &devices[0];
    assert_eq!((bmc.poller.as_deref(), bmc.protocol.as_deref()), (Some("one"), Some("snmp")));
    assert_eq!(bmc.address.as_deref(), Some("snmp://bmc-1:161"));
    assert_eq!((bmc.period_seconds, &*bmc.aliases), (Some(PERIOD), &["n1".to_owned()][..]));
    let good: Vec<Option<f64>> = devices.iter().map(|one| one.last_good).collect();
    let seconds = [7198.0, 7190.0, 7100.0, 7150.0, 7140.0].map(|second| Some(at(second).seconds()));
    assert_eq!(good, seconds);

    // Three periods after its last batch the poller is silent. A device that fails is polled every 30 s at least.
    let states_at = |second: f64| {
        let devices = list(&lab, &DeviceFilter::default(), &of(Reader::Everything, second));
        [0, 2].map(|place: usize| devices[place].state.word())
    };
    assert_eq!(states_at(7214.0), ["alive", "failing"]);
    assert_eq!(states_at(7216.0), ["unknown", "failing"]);
    assert_eq!(states_at(7241.0), ["unknown", "unknown"]);
}

#[test]
fn times_that_an_exporter_reports_change_no_state() {
    let lab = lab();
    let of_group = |lab: &Lab| {
        let context = of(Reader::Everything, 7200.0);
        let devices = list(lab, &DeviceFilter::default(), &context);
        let states = devices.iter().map(|one| (one.device.clone(), one.state.word()));
        states.collect::<Vec<_>>()
    };
    let before = of_group(&lab);
    let power = |samples| TestSeries {
        device: "exporter-1",
        metric: "power_watts",
        samples,
        ..TestSeries::default()
    };
    let polled = TestSeries {
        metric: "poll_success",
        unit: Unit::Count,
        samples: &[(7198.0, 1.0)],
        labels: &[("protocol", "prometheus"), ("target", "prometheus://exporter-1")],
        ..power(&[])
    };
    // 20 h ahead: with its poll, and alone in a batch.
    lab.put_from(GROUP, 7200.0, &[power(&[(79_200.0, 1.0)]), polled]);
    let sealed = |lab: &Lab| {
        let origins = lab.store.origins();
        origins.iter().find(|one| one.origin.as_str() == GROUP).unwrap().sealed
    };
    assert_eq!(sealed(&lab), at(7198.0));
    lab.put_from(GROUP, 7200.0, &[power(&[(79_201.0, 1.0)])]);
    let mut after = of_group(&lab);
    after.retain(|(device, _)| device != "exporter-1");
    assert_eq!(after, before);
}

#[test]
fn a_device_that_a_scheduler_gives_to_jobs_is_a_node() {
    let lab = lab();
    let context = of(Reader::Everything, 7200.0);
    let nodes = |lab: &Lab| {
        let nodes = lab.engine(Settings::default()).nodes(&context).unwrap();
        nodes.into_iter().map(|node| (node.device, node.alive)).collect::<Vec<_>>()
    };
    assert_eq!(nodes(&lab), [("n1".to_owned(), true)]);
    // The user of a job of `jobmeter run` may name any device.
    lab.job(&key("local", 7), "bmc-1", 1000, 5.0, None);
    assert_eq!(nodes(&lab).len(), 1);
    lab.job(&key("slurm", 7), "bmc-1", 1000, 5.0, Some(9.0));
    lab.job(&key("slurm", 8), "pdu-1", 1000, 5.0, Some(9.0));
    let found = [("bmc-1", true), ("n1", true), ("pdu-1", false)];
    assert_eq!(nodes(&lab), found.map(|(name, alive)| (name.to_owned(), alive)));
    let devices = list(&lab, &DeviceFilter::default(), &context);
    let names: Vec<&str> = devices.iter().map(|one| &*one.device).collect();
    assert_eq!(names, ["meter-1", "pdu-1", "sw-1", "sw-2"], "also a node whose polls fail");
}

#[test]
fn devices_are_found_by_name_address_node_and_state() {
    let lab = lab();
    let found = |filter: DeviceFilter| {
        let devices = list(&lab, &filter, &of(Reader::Everything, 7200.0));
        devices.into_iter().map(|one| one.device).collect::<Vec<_>>()
    };
    let all = DeviceFilter::default;
    let search = |text: &str| DeviceFilter { search: Some(text.to_owned()), ..all() };
    assert_eq!(found(search("SW-")), ["sw-1", "sw-2"]);
    assert_eq!(found(search("pdu-1:161")), ["pdu-1"]);
    assert_eq!(found(search("n9")), ["meter-1"]);
    assert_eq!(found(search("nothing")), [""; 0]);
    assert_eq!(found(DeviceFilter { node: Some(device("n1")), ..all() }), ["bmc-1"]);
    assert_eq!(found(DeviceFilter { only_failing: true, ..all() }), ["pdu-1", "sw-1", "sw-2"]);
    let devices = Some(BTreeSet::from([device("sw-1"), device("n1"), device("none")]));
    assert_eq!(found(DeviceFilter { devices, ..all() }), ["sw-1"]);
    let page = |after| DeviceFilter { limit: Some(2), after, ..all() };
    assert_eq!(found(page(None)), ["bmc-1", "meter-1"]);
    assert_eq!(found(page(Some(device("meter-1")))), ["pdu-1", "sw-1"]);
    assert_eq!(found(page(Some(device("sw-1")))), ["sw-2"]);
}

/// Alice sees nodes only while her jobs run there.
#[test]
fn a_device_is_visible_as_the_nodes_that_it_feeds() {
    let lab = lab();
    value(&lab, GROUP, "bmc-1", Some("n2"));
    let devices = list(&lab, &DeviceFilter::default(), &of(Reader::Tenant(1000), 7200.0));
    assert_eq!(states(&devices), [("bmc-1", "alive", "")]);
    assert_eq!(devices[0].aliases, ["n1"], "only her own node");
    let other = list(&lab, &DeviceFilter::default(), &of(Reader::Tenant(2000), 7200.0));
    assert!(other.is_empty(), "{other:?}");
    let guest = list(&lab, &DeviceFilter::default(), &of(Reader::Nodes, 7200.0));
    assert_eq!(guest.len(), 5);
    let engine = lab.engine(Settings::default());
    let last = |reader| {
        let values = engine.last(&Selector::default(), &of(reader, 7200.0)).unwrap();
        let power = values.into_iter().filter(|one| one.series.metric == "power_watts");
        power.map(|one| one.series.labels["_device_alias"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(last(Reader::Tenant(1000)), ["n1"]);
    assert_eq!(last(Reader::Tenant(2000)), [""; 0]);
}

#[test]
fn an_explanation_has_the_polls_of_its_device_and_the_gaps_of_its_value() {
    let lab = lab();
    value(&lab, GROUP, "pdu-1", None);
    lab.put_gap_from(gap("pdu-1", "snmp/mtu", 7190.0, "no such row"));
    lab.put_gap_from(gap("pdu-1", "snmp/power_watts", 7190.0, "no such value"));
    let engine = lab.engine(Settings::default());
    let devices = Some(BTreeSet::from([device("pdu-1")]));
    let select = Selector { devices, ..Selector::default() };
    let day = (at(0.0), at(7200.0));
    let explained = engine.explain(&select, day, &of(Reader::Everything, 7200.0)).unwrap();
    let power = explained.iter().find(|one| one.series.metric == "power_watts").unwrap();
    assert_eq!(states(&power.polls), [("pdu-1", "failing", "source timed out: no answer")]);
    let sources: BTreeSet<&str> = power.gaps.iter().map(|gap| &*gap.source).collect();
    // Its value of 7190 s is in the gap of the protocol.
    assert_eq!(sources, BTreeSet::from(["", "snmp/power_watts"]));
    let agent = engine.explain(&Selector::default(), day, &of(Reader::Everything, 7200.0)).unwrap();
    let load = agent.iter().find(|one| one.series.device == "n1").unwrap();
    assert!(load.polls.is_empty());
}

#[test]
fn each_target_of_a_device_has_its_own_reason() {
    let lab = lab();
    let targets = ["snmp://pdu-1:161", "snmp://pdu-1:1161"];
    let failing = |target: &'static str| {
        let labels: &'static [(&str, &str)] = match target {
            "snmp://pdu-1:161" => &[("protocol", "snmp"), ("target", "snmp://pdu-1:161")],
            _ => &[("protocol", "snmp"), ("target", "snmp://pdu-1:1161")],
        };
        TestSeries {
            device: "pdu-1",
            metric: "poll_success",
            unit: Unit::Count,
            samples: &[(7199.0, 0.0)],
            labels,
            ..TestSeries::default()
        }
    };
    lab.put_from(GROUP, 7200.0, &targets.map(failing));
    let denied = gap("pdu-1", "snmp", 7198.5, "snmp://pdu-1:1161: no such user");
    lab.put_gap_from(Gap { cause: Cause::PermissionLost, ..denied });
    lab.put_gap_from(gap("pdu-1", "snmp", 7199.0, "snmp://pdu-1:161: no answer"));
    let devices = list(&lab, &DeviceFilter::default(), &of(Reader::Everything, 7200.0));
    let of_device = devices.iter().filter(|one| one.device == "pdu-1");
    let reasons: Vec<&str> = of_device.map(|one| one.reason.as_deref().unwrap()).collect();
    // The targets are ordered by their addresses.
    let [first, second] = ["1161: no such user", "161: no answer"];
    assert!(reasons[0].ends_with(first) && reasons[1].ends_with(second), "{reasons:?}");
}

#[test]
fn a_series_with_samples_in_a_gap_of_a_protocol_is_of_another_target() {
    let lab = lab();
    // The SNMP target is dead from 7100 s to 7198 s. The exporter of the same device lives, and so does another SNMP target.
    let alive: Vec<(f64, f64)> = (0..20).map(|n| (7100.0 + 5.0 * f64::from(n), 1.0)).collect();
    let dead = [(7090.0, 1.0), (7100.0, 1.0), (7198.0, 1.0)];
    let series =
        |metric, samples| TestSeries { device: "pdu-1", metric, samples, ..TestSeries::default() };
    lab.put_from(GROUP, 7200.0, &[series("exported", &alive[..]), series("octets", &dead)]);
    let engine = lab.engine(Settings::default());
    let gaps_of = |metric: &str| {
        let select = Selector {
            devices: Some(BTreeSet::from([device("pdu-1")])),
            metrics: Some([metric.into()].into()),
            ..Selector::default()
        };
        let context = of(Reader::Everything, 7200.0);
        let explained = engine.explain(&select, (at(0.0), at(7200.0)), &context).unwrap();
        let sources = explained[0].gaps.iter().map(|gap| gap.source.clone());
        sources.collect::<BTreeSet<String>>()
    };
    assert_eq!(gaps_of("exported"), BTreeSet::from([String::new()]));
    assert_eq!(gaps_of("octets"), ["", "snmp"].map(str::to_owned).into());
}

#[test]
fn a_device_that_its_poller_does_not_poll_any_more_has_ended() {
    let lab = lab();
    let (metric, unit) = ("poll_period_seconds", Unit::Seconds);
    let labels = [("protocol", "snmp"), ("target", "snmp://sw-1:161")];
    let (labels, samples) = (&labels[..], &[(7151.0, 0.0)][..]);
    let ended = TestSeries { device: "sw-1", metric, unit, labels, samples, ..Default::default() };
    lab.put_from(GROUP, 7200.0, &[ended]);
    let list = |second| list(&lab, &DeviceFilter::default(), &of(Reader::Everything, second));
    assert_eq!(states(&list(7200.0))[3].1, "ended");
    let summary = lab.engine(Settings::default()).poll_summary(at(7210.0)).unwrap();
    assert!(summary.pollers.iter().any(|one| one.name == "one" && !one.is_silent), "15 s");
    polls(&lab, (GROUP, 7201.0), "sw-1", 7201.0, None);
    assert_eq!(states(&list(7202.0))[3], ("sw-1", "alive", ""));
}

#[test]
fn a_poller_that_is_down_hides_nothing_of_a_nodes_agent() {
    let lab = lab();
    value(&lab, GROUP, "n1", None);
    lab.put_gap_from(gap("n1", "", 7199.0, "of the poller"));
    let context = of(Reader::Everything, 7200.0);
    let engine = lab.engine(Settings::default());
    let gaps = |metric: &str| {
        let select = Selector {
            devices: Some(BTreeSet::from([device("n1")])),
            metrics: Some([metric.into()].into()),
            ..Selector::default()
        };
        let (from, to, step_us) = (at(7000.0), at(7200.0), 10_000_000);
        let explained = engine.explain(&select, (from, to), &context).unwrap();
        let query = RangeQuery { select, from, to, step_us, rate: Rate::Raw };
        (engine.range(&query, &context).unwrap().gaps.len(), explained[0].gaps.len())
    };
    assert_eq!((gaps("load_1m"), gaps("power_watts")), ((0, 0), (1, 1)));
    let report = engine.job_report(&"slurm:1".parse().unwrap(), None, &context).unwrap();
    assert_eq!(report.gaps.len(), 0);
}

#[test]
fn a_summary_counts_devices_pollers_and_gaps() {
    let lab = lab();
    polls(&lab, (GROUP, 7200.0), "n1", 7198.0, None);
    value(&lab, "poller-meter/group-0", "meter-port0", None);
    let summary = |second: f64| lab.engine(Settings::default()).poll_summary(at(second)).unwrap();
    let now = summary(7200.0);
    let of = |state: &'static str| now.devices.get(&("snmp".to_owned(), state)).copied();
    assert_eq!(["alive", "failing", "unknown"].map(of), [Some(2), Some(1), Some(2)], "{now:?}");
    assert_eq!(now.failing, [("source timed out", 1)].into());
    assert_eq!(now.gaps, [("source timed out", 2)].into());
    let pollers = |summary: &PollSummary| -> Vec<(String, f64, bool)> {
        let ages = summary.pollers.iter();
        ages.map(|one| (one.name.clone(), one.age_seconds, one.is_silent)).collect()
    };
    let row = |name: &str, age_seconds, is_silent| (name.to_owned(), age_seconds, is_silent);
    let expected = [row("two", 60.0, true), row("meter", 0.0, false), row("one", 0.0, false)];
    assert_eq!(pollers(&now), expected);
    // A feed is silent after 3 min. Gaps and pollers are forgotten.
    let later = summary(7200.0 + 181.0);
    assert!(pollers(&later).iter().all(|(_, _, is_silent)| *is_silent), "{later:?}");
    let much_later = summary(7200.0 + 8.0 * 86_400.0);
    assert_eq!((much_later.pollers.len(), much_later.gaps.len()), (0, 0), "{much_later:?}");
    let none = Lab::new().engine(Settings::default()).poll_summary(at(7200.0)).unwrap();
    assert_eq!(none, PollSummary::default());
}

/// Sends values of a meter's ports at a second: means, and the counters of samples and lines.
fn meter(lab: &Lab, (at, received): (f64, f64), means: &[&str], counted: &[&str]) {
    let (watts, count) = ([(at, 42.0)], [(at, 60.0)]);
    let series = |device, metric, labels, samples| TestSeries {
        device,
        metric,
        labels,
        samples,
        ..TestSeries::default()
    };
    let ok = &[("state", "ok")][..];
    let mut all = vec![series("w1", "wattmetre_lines_total", ok, &count[..])];
    let alias = &[("_device_alias", "n1")][..];
    all.extend(means.iter().map(|port| series(port, "wattmetre_power_watt", alias, &watts[..])));
    let missing = &[("state", "missing")][..];
    all.extend(
        counted.iter().map(|port| series(port, "wattmetre_samples_total", missing, &count[..])),
    );
    lab.put_from("poller-w1/group-0", received, &all);
}

#[test]
fn ports_of_a_wattmeter_are_devices_of_their_feed() {
    let lab = Lab::new();
    meter(&lab, (7100.0, 7101.0), &["w1-port1"], &[]);
    meter(&lab, (7199.0, 7200.0), &["w1-port0"], &["w1-port0", "w1-port1", "w1-port2"]);
    let timed_out = Gap {
        origin: Origin::new("poller-w1/group-0").unwrap(),
        ..gap("w1-port1", "wattmetre", 7199.0, "the meter sends no value")
    };
    lab.put_gap_from(timed_out);
    // A poller may store a metric of that name.
    polls(&lab, (GROUP, 7200.0), "pdu-1", 7198.0, None);
    let named = TestSeries {
        device: "pdu-1",
        metric: "wattmetre_power_watt",
        samples: &[(7198.0, 1.0)],
        ..TestSeries::default()
    };
    lab.put_from(GROUP, 7200.0, &[named]);
    let states_at = |second| {
        let devices = list(&lab, &DeviceFilter::default(), &of(Reader::Everything, second));
        devices
            .iter()
            .map(|one| {
                let protocol = one.protocol.as_deref().unwrap();
                let reason = one.reason.as_deref().unwrap_or("-");
                format!("{} {protocol} {} {reason}", one.device, one.state.word())
            })
            .collect::<Vec<_>>()
    };
    let failing = "w1-port1 wattmetre failing source timed out: the meter sends no value";
    assert_eq!(
        states_at(7200.0),
        [
            "pdu-1 snmp alive -",
            "w1 wattmetre alive -",
            "w1-port0 wattmetre alive -",
            failing,
            "w1-port2 wattmetre failing -",
        ]
    );
    let ports =
        |list: &str| lab.engine(Settings::default()).meter_ports(&NodeList::new(list).unwrap());
    assert_eq!(
        ["w1-port2", "n1", "w1-port9"].map(ports),
        [1, 2, 0],
        "also with missing samples only"
    );
    let devices = list(&lab, &DeviceFilter::default(), &of(Reader::Everything, 7200.0));
    let port = &devices[2];
    assert_eq!((port.poller.as_deref(), port.address.as_deref()), (Some("w1"), None));
    assert_eq!(
        (&*port.aliases, port.last_good),
        (&["n1".to_owned()][..], Some(at(7199.0).seconds()))
    );
    assert_eq!(devices[4].last_good, None);
    let silent = "w1-port0 wattmetre unknown the feed is silent";
    assert!(states_at(7381.0).contains(&silent.to_owned()), "{:?}", states_at(7381.0));
    // More than an hour later its samples are in blocks only.
    assert!(states_at(90_000.0).contains(&silent.to_owned()), "{:?}", states_at(90_000.0));
    lab.registry
        .note_stops(&[(Origin::new("poller-w1/group-0").unwrap(), true)], at(7201.0))
        .unwrap();
    let ended = "w1-port0 wattmetre ended the feed has ended";
    assert!(states_at(7381.0).contains(&ended.to_owned()), "{:?}", states_at(7381.0));
    let summary = lab.engine(Settings::default()).poll_summary(at(7381.0)).unwrap();
    let feed = summary.pollers.iter().find(|one| one.name == "w1").unwrap();
    assert!(feed.is_ended && !feed.is_silent, "{feed:?}");
    assert_eq!(summary.devices.get(&("wattmetre".to_owned(), "ended")), Some(&4));
    lab.registry.forget_poller(&device("w1"), at(7382.0)).unwrap();
    assert_eq!(states_at(7383.0).len(), 1, "{:?}", states_at(7383.0));
    meter(&lab, (7400.0, 7401.0), &["w1-port0"], &[]);
    assert_eq!(states_at(7402.0).len(), 5, "it is back");
}

#[test]
fn marks_of_a_device_are_those_of_the_nodes_that_it_feeds() {
    let lab = lab();
    for nodes in ["bmc-*", "pdu-1", "n2"] {
        let nodes = NodeList::new(nodes).unwrap();
        lab.demand.flush(&nodes, "cpu", "root", at(7195.0)).unwrap();
    }
    let engine = lab.engine(Settings::default());
    let marks = |reader: Reader, devices: Option<&str>| {
        let devices = devices.map(|name| vec![device(name)]);
        let span = (at(7194.0), at(7200.0));
        let found = engine.marks(span, devices.as_deref(), 10, &of(reader, 7200.0)).unwrap();
        found.marks.into_iter().map(|one| one.nodes).collect::<Vec<_>>()
    };
    let (all, alice) = (Reader::Everything, Reader::Tenant(1000));
    assert_eq!(marks(all, None), ["bmc-*", "pdu-1", "n2"]);
    for node in ["n1", "bmc-1"] {
        assert_eq!(marks(all, Some(node)), ["bmc-*"]);
        // She sees her node, and the device by its node.
        assert_eq!(marks(alice, Some(node)), ["n1"]);
    }
    assert_eq!(marks(alice, None), ["n1"]);
    assert_eq!((marks(alice, Some("pdu-1")), marks(Reader::Tenant(9), None)), (vec![], vec![]));
}
