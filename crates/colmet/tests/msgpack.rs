//! Messages of Rust nodes: the three layouts, damaged messages, and changes of settings.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests end at the first surprise"
)]

use colmet::backends::{CPU, EVENTS, MEMORY};
use colmet::msgpack::{MetricRequest, Reconfiguration, Records};
use colmet::record::{Record, Value};
use model::Timestamp;
use proptest::prelude::*;
use std::path::Path;
use std::time::Duration;

const LAYOUTS: [&str; 3] = [
    "colmet_rust_branch_synthetic.bin",
    "colmet_collector_v1_expected_synthetic.bin",
    "colmet_rs_msgpack_v1_99B.bin",
];

fn recorded(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/colmet");
    std::fs::read(folder.join(name)).unwrap()
}

/// Backend, host, job, milliseconds, and the values by name.
type Content = (&'static str, String, u64, i64, Vec<(&'static str, i64)>);

fn content(message: &[u8]) -> Vec<Content> {
    let of = |record: Record| {
        let values = record.columns().filter_map(|(column, value)| match value? {
            Value::Signed(number) => Some((column.row.theirs, *number)),
            other => panic!("{other:?}"),
        });
        let values = values.collect();
        (record.backend.id, record.host, record.job, record.at.0 / 1000, values)
    };
    Records::of(message).map(|record| of(record.unwrap())).collect()
}

fn node_1(backend: &'static str, values: &[(&'static str, i64)]) -> Content {
    (backend, "node1".to_owned(), 1234, 1_700_000_000_123, values.to_vec())
}

#[test]
fn the_three_layouts_are_recognised() {
    assert_eq!(
        content(&recorded(LAYOUTS[0])),
        [
            node_1("memory", &[("cache", 4096), ("rss", 8192), ("pgfault", 7)]),
            node_1("cpu", &[("nr_periods", 0), ("nr_throttled", 0), ("throttled_time", 0)]),
            node_1("perfhw", &[("instructions", 1000), ("cache_misses", 20), ("page_faults", 3)]),
        ]
    );
    assert_eq!(
        content(&recorded(LAYOUTS[1])),
        [
            node_1("memory", &[("cache", 4096), ("rss", 8192), ("pgfault", 7)]),
            node_1("cpu", &[("nr_periods", 0)]),
        ]
    );
    let vm =
        |job, backend, name| (backend, "vm".to_owned(), job, 1_795_211_937_835, vec![(name, 0)]);
    assert_eq!(
        content(&recorded(LAYOUTS[2])),
        [
            vm(1234, "memory", "pgfault"),
            vm(1234, "cpu", "nr_periods"),
            vm(5678, "memory", "pgfault"),
            vm(5678, "cpu", "nr_periods"),
        ]
    );
}

/// A message with one number, in the layout of the branch or of colmet-collector.
fn with_number(is_of_branch: bool, backend: &str, number: u8) -> Vec<u8> {
    let mut message = vec![0x81, 1, if is_of_branch { 0x93 } else { 0x94 }, 0xa1, b'n', 5];
    message.extend((!is_of_branch).then_some(1));
    message.extend([0x91, 0x93, 0xa0 | u8::try_from(backend.len()).unwrap()]);
    message.extend(backend.bytes());
    message.extend([0x91, number, 0x91, 9]);
    message
}

/// The numbers of the branch, and of `metrics_order.yml`, at the ends of each group.
#[test]
fn numbers_mean_the_metrics_of_their_layout() {
    for (is_of_branch, backend, number, name) in [
        (true, "Memory", 7, "writeback"),
        (true, "Memory", 8, "pgpgin"),
        (true, "Memory", 17, "hierarchical_memory_limit"),
        (true, "Memory", 18, "total_cache"),
        (true, "Memory", 33, "total_unevictable"),
        (true, "Cpu", 34, "nr_periods"),
        (true, "Cpu", 36, "throttled_time"),
        (true, "Perfhw", 37, "cpu_cycles"),
        (true, "Perfhw", 64, "bpf_output"),
        (false, "memory", 0, "cache"),
        (false, "memory", 7, "swap"),
        (false, "memory", 18, "hierarchical_memsw_limit"),
        (false, "memory", 26, "total_swap"),
        (false, "memory", 35, "total_unevictable"),
        (false, "cpu", 38, "throttled_time"),
        (false, "perfhw", 39, "cpu_cycles"),
        (false, "perfhw", 66, "bpf_output"),
    ] {
        let content = content(&with_number(is_of_branch, backend, number));
        assert_eq!(content[0].4, [(name, 9)], "{backend} {number}");
    }
    for (is_of_branch, backend, number) in
        [(true, "Memory", 0), (true, "Perfhw", 65), (false, "perfhw", 67), (false, "cpu", 0)]
    {
        let message = with_number(is_of_branch, backend, number);
        let error = Records::of(&message).next().unwrap().unwrap_err();
        let expected = format!("`{number}` is no metric of {}", backend.to_ascii_lowercase());
        assert_eq!(error.reason.to_string(), expected);
    }
}

fn error_of(message: &[u8]) -> String {
    Records::of(message).find_map(Result::err).unwrap().to_string()
}

/// `before` becomes `after`, which may have another length.
fn replaced(message: &[u8], before: &[u8], after: &[u8]) -> Vec<u8> {
    let at = message.windows(before.len()).position(|part| part == before).unwrap();
    [&message[..at], after, &message[at + before.len()..]].concat()
}

#[test]
fn damaged_messages_are_errors_with_their_place() {
    let rs = recorded(LAYOUTS[2]);
    for (before, after, error) in [
        (&b"\x82"[..], &b"\x93"[..], "byte 0: it is not a map"),
        (
            b"\x82",
            b"\xdf\xff\xff\xff\xff",
            "byte 0: 4294967295 elements are announced, and 98 bytes are left",
        ),
        (b"\xcd\x04\xd2", b"\xff", "byte 1: -1 is not the number of a job"),
        (b"\x94\xa2vm", b"\x95\xa2vm", "byte 4: an array has 5 elements instead of 3 or 4"),
        (b"\xa2vm", b"\xa2\xff\xff", "byte 5: the text is not UTF-8"),
        (b"\xa2vm", b"\xdb\xff\xff\xff\xff", "byte 5: the message is cut off"),
        (b"\xcf\x00", b"\xcf\xff", "byte 8: 18374688274883561515 is out of range"),
        (b"\xcf\x00", b"\xcf\x7f", "byte 8: 9151316238028785707 is not an instant"),
        (b"\x01\x92", b"\x02\x92", "byte 17: 2 is not version 1 of the metrics' numbers"),
        (
            b"\x94\xcd\x04\xd2\xa6",
            b"\x94\xcd\x04\xd3\xa6",
            "byte 20: 1235 is not the job of its record",
        ),
        (b"\xa6memory", b"\xa4null", "byte 23: unknown backend `null`"),
        (b"\xa210", b"\xa236", "byte 31: `36` is no metric of memory"),
        (b"\xa210", b"\xa2x0", "byte 31: `x0` is no metric of memory"),
        (
            b"\x91\x00",
            b"\x90",
            "byte 34: an array has 0 elements instead of as many as the metrics",
        ),
    ] {
        assert_eq!(error_of(&replaced(&rs, before, after)), error);
    }
    assert_eq!(error_of(&[&*rs, b"\x00"].concat()), "byte 99: bytes follow the end of the message");
    let mut records = Records::of(b"\x81\x01\xc0");
    assert!(records.next().unwrap().is_err() && records.next().is_none());
    for name in LAYOUTS {
        let message = recorded(name);
        for end in 0..message.len() {
            assert!(Records::of(&message[..end]).any(|record| record.is_err()), "{name} {end}");
        }
    }
}

#[test]
fn integers_have_any_width() {
    for (bytes, number) in [
        (&b"\x7f"[..], Some(127)),
        (b"\xff", None),
        (b"\xe0", Some(-32)),
        (b"\xcc\xff", Some(255)),
        (b"\xcd\x01\x00", Some(256)),
        (b"\xce\xff\xff\xff\xff", Some(4_294_967_295)),
        (b"\xcf\x7f\xff\xff\xff\xff\xff\xff\xff", Some(i64::MAX)),
        (b"\xd0\x80", Some(-128)),
        (b"\xd1\xff\xff", None),
        (b"\xd2\x80\x00\x00\x00", Some(-2_147_483_648)),
        (b"\xd3\x80\x00\x00\x00\x00\x00\x00\x00", Some(i64::MIN)),
    ] {
        let mut message = with_number(false, "cpu", 36);
        message.pop();
        message.extend(bytes);
        let record = Records::of(&message).next().unwrap().unwrap();
        assert_eq!(record.get("nr_periods"), number.map(Value::Signed).as_ref(), "{bytes:?}");
    }
}

#[test]
fn a_message_changes_settings() {
    let decoded = Reconfiguration::decode(&recorded("colmet_rs_reconfig_msg.bin")).unwrap();
    let request = |name: &str| MetricRequest { name: name.to_owned(), period: None, job: None };
    let metrics = vec![request("rss"), request("pgpgin")];
    assert_eq!(decoded, Reconfiguration { metrics, period: Duration::from_secs(1), token: None });
    let with = |pairs: &[(&str, &str)]| {
        let mut message = vec![0x80 | u8::try_from(pairs.len()).unwrap()];
        for text in pairs.iter().flat_map(|(key, value)| [key, value]) {
            message.extend([0xd9, u8::try_from(text.len()).unwrap()]);
            message.extend(text.bytes());
        }
        Reconfiguration::decode(&message)
    };
    let branch = [
        ("perfhw_metrics", "cache_ll:2.5, emulation_faults:1:77,"),
        ("sample_period", "1.5"),
        ("token", "t"),
    ];
    let decoded = with(&branch).unwrap();
    let period = Some(Duration::from_millis(2500));
    let ll = MetricRequest { period, ..request("cache_ll") };
    let period = Some(Duration::from_secs(1));
    let faults = MetricRequest { period, job: Some(77), ..request("emulation_faults") };
    assert_eq!(decoded.metrics, [ll, faults]);
    assert_eq!(
        (decoded.period, decoded.token.as_deref()),
        (Duration::from_millis(1500), Some("t"))
    );
    let period = ("sample_period", "1");
    for (pairs, error) in [
        (vec![period], "byte 19: the key `metrics` is missing"),
        (vec![("metrics", "")], "byte 12: the key `sample_period` is missing"),
        (vec![period, period], "byte 19: unexpected key `sample_period`"),
        (vec![("user", "")], "byte 1: unexpected key `user`"),
        (
            vec![("metrics", "rss:0"), period],
            "byte 10: `rss:0` is not a metric, its period and its job",
        ),
        (
            vec![("metrics", "rss:1:2:3"), period],
            "byte 10: `rss:1:2:3` is not a metric, its period and its job",
        ),
        (vec![("metrics", ":1"), period], "byte 10: `:1` is not a metric, its period and its job"),
        (vec![("metrics", ""), ("sample_period", "nan")], "byte 27: `nan` is not a period"),
    ] {
        assert_eq!(with(&pairs).unwrap_err().to_string(), error);
    }
}

/// A message as colmet-rs sends it.
fn message(host: &str, job: u64, at: i64, values: &[i64]) -> Vec<u8> {
    let integer = |number: i64| [vec![0xd3], number.to_be_bytes().to_vec()].concat();
    let text = |text: &str| [&[0xd9, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let count = |count: usize| vec![0xdc, 0, u8::try_from(count).unwrap()];
    let job = integer(job.cast_signed());
    let mut message = [vec![0x81], job.clone(), vec![0x94], text(host), integer(at)].concat();
    message.extend([1, 0x93]);
    let mut first = 0;
    for backend in [&MEMORY, &CPU, &EVENTS] {
        let numbers = first..first + backend.columns.len();
        let values = &values[numbers.clone()];
        first = numbers.end;
        message.extend([vec![0x94], job.clone(), text(backend.id), count(values.len())].concat());
        numbers.for_each(|number| message.extend(text(&number.to_string())));
        message.extend(count(values.len()));
        values.iter().for_each(|value| message.extend(integer(*value)));
    }
    message
}

proptest! {
    #[test]
    fn any_values_are_decoded_as_sent(
        host in "[a-zä.-]{1,60}",
        job in 0..=i64::MAX.cast_unsigned(),
        at in 0..9_000_000_000_000_000_i64,
        values in prop::collection::vec(any::<i64>(), 67),
        damage in any::<(prop::sample::Index, u8)>(),
    ) {
        let mut message = message(&host, job, at, &values);
        let mut expected = values.iter();
        for record in Records::of(&message) {
            let record = record.unwrap();
            prop_assert_eq!((&record.host, record.job), (&host, job));
            prop_assert_eq!(record.at, Timestamp(at * 1000));
            for (column, value) in record.columns() {
                let sent = Some(*expected.next().unwrap()).filter(|number| *number != -1);
                prop_assert_eq!(value.cloned(), sent.map(Value::Signed), "{}", column.row.theirs);
            }
        }
        prop_assert!(expected.next().is_none());
        let (at, byte) = damage;
        let at = at.index(message.len());
        message[at] = byte;
        Records::of(&message).for_each(drop);
    }

    #[test]
    fn any_bytes_are_records_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        Records::of(&bytes).for_each(drop);
        Reconfiguration::decode(&bytes).ok();
    }
}
