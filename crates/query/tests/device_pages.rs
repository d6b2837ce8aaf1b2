//! Tests of pages of many devices.

mod lab;

use jobs::Reader;
use lab::{Lab, TestSeries, at};
use query::{DeviceFilter, QueryContext, Settings};
use std::time::Instant;

#[test]
fn a_page_of_five_thousand_devices_is_quick() {
    let lab = Lab::new();
    let names: Vec<String> = (0..5000).map(|n| format!("pdu-{n:04}")).collect();
    let samples = [(7198.0, 1.0)];
    for (place, names) in names.chunks(32).enumerate() {
        let labels = [("protocol", "snmp"), ("target", "snmp://rack:161")];
        let mut series = Vec::new();
        for name in names {
            let success = TestSeries {
                device: name,
                metric: "poll_success",
                labels: &labels,
                samples: &samples,
                ..TestSeries::default()
            };
            series.push(success);
            for metric in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"] {
                let labels = &[("_device_alias", "n1")][..];
                let value = TestSeries {
                    device: name,
                    metric,
                    labels,
                    samples: &samples,
                    ..TestSeries::default()
                };
                series.push(value);
            }
        }
        lab.put_from(&format!("poller-one/group-{place}"), 7200.0, &series);
    }
    let filter = DeviceFilter { limit: Some(1000), ..DeviceFilter::default() };
    #[expect(clippy::disallowed_methods, reason = "the duration is tested")]
    let begun = Instant::now();
    let context = QueryContext::new(Reader::Everything, at(7200.0));
    let devices = lab.engine(Settings::default()).devices(&filter, &context).unwrap();
    let took = begun.elapsed();
    assert_eq!((devices.len(), devices[999].device.as_str()), (1000, "pdu-0999"));
    assert_eq!(devices[0].aliases, ["n1"]);
    // Without optimisation, on a busy machine.
    assert!(took.as_secs_f64() < 5.0, "{took:?}");
}
