//! Messages of Python nodes: Colmet's own as recorded, damaged ones, older versions, and any record.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests end at the first surprise"
)]

use colmet::backends::{BACKENDS, Backend, ColumnType, INFINIBAND, JOBPROC, PROCSTATS, TASKSTATS};
use colmet::frame::{EncodeReason, FrameError, FrameReason, Records, by_message, encode};
use colmet::record::{NO_JOB, Record, Value};
use model::Timestamp;
use proptest::prelude::*;
use std::path::Path;

fn recorded(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/colmet");
    std::fs::read(folder.join(name)).unwrap()
}

fn decoded(message: &[u8]) -> Vec<Record> {
    Records::of(message).collect::<Result<_, _>>().unwrap()
}

fn encoded(records: &[Record]) -> Vec<u8> {
    let mut message = Vec::new();
    records.iter().for_each(|record| encode(record, &mut message).unwrap());
    message
}

/// The content of a recorded message equals the document beside it.
fn equals_its_document(name: &str) {
    let message = recorded(&format!("{name}.bin"));
    let document: serde_json::Value =
        serde_json::from_slice(&recorded(&format!("{name}.json"))).unwrap();
    let records = decoded(&message);
    let documents = document.as_array().unwrap();
    assert_eq!(records.len(), documents.len());
    for (record, document) in records.iter().zip(documents) {
        assert_eq!(record.backend.id, document["metric_backend"]);
        assert_eq!(record.host, document["hostname"].as_str().unwrap());
        assert_eq!(record.job, document["job_id"].as_u64().unwrap());
        let seconds = document["timestamp"].as_i64().unwrap();
        assert_eq!(record.at, Timestamp::from_seconds(seconds));
        let counters = document["counters"].as_object().unwrap();
        assert_eq!(counters.len(), record.backend.columns.len());
        for (column, value) in record.columns() {
            let name = column.row.theirs;
            let found = match value {
                None => (-1).into(),
                Some(Value::Unsigned(number)) => (*number).into(),
                Some(Value::Signed(number)) => (*number).into(),
                Some(Value::Float(number)) => f64::from(*number).into(),
                Some(Value::Text(text)) => serde_json::Value::from(&**text),
            };
            assert_eq!(found, counters[name], "{name}");
        }
    }
    assert!(encoded(&records) == message, "{name} is encoded with other bytes");
}

#[test]
fn recorded_messages_are_decoded_and_encoded_with_the_same_bytes() {
    equals_its_document("colmet_py0610_procstats_only_9202B");
    equals_its_document("colmet_py0610_all10_synthetic");
    let message = recorded("colmet_py0610_magnitudes.bin");
    assert!(encoded(&decoded(&message)) == message);
}

#[test]
fn values_of_minus_one_are_missing() {
    let records = decoded(&recorded("colmet_py0610_all10_synthetic.bin"));
    let missing: Vec<_> = records
        .iter()
        .flat_map(Record::columns)
        .filter(|(_, value)| value.is_none())
        .map(|(column, _)| column.row.theirs)
        .collect();
    let counter = "counter_2";
    assert_eq!(missing, ["portRcvData", counter, counter, counter, "wchar", "temperature"]);
}

#[test]
fn a_message_has_the_records_of_a_host_and_second_in_colmets_order() {
    let mut records = decoded(&recorded("colmet_py0610_all10_synthetic.bin"));
    let order: Vec<_> = records.iter().map(|record| record.backend.id).collect();
    for record in &mut records {
        (record.host, record.at) = ("n1".into(), Timestamp::from_seconds(5));
    }
    records.reverse();
    records[0].at = Timestamp(5_999_999);
    let mut later = records[3].clone();
    later.at = Timestamp(6_000_000);
    let mut other = later.clone();
    other.host = "n2".into();
    let all = [vec![other, later], records].concat();
    let messages = by_message(&all);
    let of = |message: usize| -> Vec<_> {
        messages[message].iter().map(|record| (&*record.host, record.backend.id)).collect()
    };
    assert_eq!(of(0), order.iter().map(|id| ("n1", *id)).collect::<Vec<_>>());
    let temperature = "temperaturestats_default";
    assert_eq!((of(1), of(2)), (vec![("n1", temperature)], vec![("n2", temperature)]));
    assert_eq!(messages.len(), 3);
}

/// Cuts the columns that an older version lacks.
fn older(record: &Record) -> Vec<u8> {
    let mut bytes = encoded(std::slice::from_ref(record));
    bytes.truncate(record.backend.record_bytes(record.backend.older[0]));
    bytes
}

#[test]
fn records_of_older_versions_are_recognised_by_what_follows() {
    let all = decoded(&recorded("colmet_py0610_all10_synthetic.bin"));
    let of = |backend: &Backend| all.iter().find(|record| record.backend == backend).unwrap();
    let newest = |record: &Record| encoded(std::slice::from_ref(record));
    for backend in [&PROCSTATS, &JOBPROC, &INFINIBAND] {
        let expected = |record: &Record, place: usize| {
            let columns = backend.older[0];
            if record.backend != backend {
                assert_eq!(record, of(&TASKSTATS));
            } else if place == 0 {
                assert_eq!(record.values[..columns], of(backend).values[..columns]);
                assert!(record.values[columns..].iter().all(Option::is_none));
            } else {
                assert_eq!(record, of(backend));
            }
        };
        let (short, long) = (older(of(backend)), newest(of(backend)));
        for (message, places) in [
            (short.clone(), vec![0]),
            ([&*short, &newest(of(&TASKSTATS))].concat(), vec![0, 1]),
            ([&*short, &short, &short].concat(), vec![0, 0, 0]),
            ([&*long, &short].concat(), vec![1, 0]),
            ([&*long, &newest(of(&TASKSTATS)), &long].concat(), vec![1, 1, 1]),
        ] {
            let records = decoded(&message);
            assert_eq!(records.len(), places.len(), "{backend:?}");
            records.iter().zip(places).for_each(|(record, place)| expected(record, place));
        }
    }
}

fn errors(message: &[u8]) -> Vec<(usize, String)> {
    let error = |error: FrameError| (error.offset, error.reason.to_string());
    Records::of(message).filter_map(Result::err).map(error).collect()
}

#[test]
fn damaged_messages_are_errors_with_their_place() {
    let message = recorded("colmet_py0610_all10_synthetic.bin");
    let cut = |length: usize| errors(&message[..length]);
    let text = |text: &str| text.to_owned();
    assert_eq!(cut(0), []);
    assert_eq!(cut(254), [(0, text("it is cut off: 254 bytes of 526"))]);
    assert_eq!(cut(761), [(0, text("it is cut off: 761 bytes of 762"))]);
    // The shortest record of procstats is that of older versions.
    assert_eq!(cut(762 + 1009), [(762, text("it is cut off: 1009 bytes of 1010"))]);
    let changed = |at: usize, bytes: &[u8]| {
        let mut message = message.clone();
        message[at..at + bytes.len()].copy_from_slice(bytes);
        message
    };
    let foreign = changed(762, b"\x1b[2J");
    assert_eq!(errors(&foreign), [(762, text("unknown backend ` [2Jstats_default`"))]);
    assert_eq!(Records::of(&foreign).count(), 2);
    // The length is known, so the other nine records follow.
    let host = changed(255, b"\xff");
    assert_eq!(errors(&host), [(0, text("the host name is not UTF-8"))]);
    assert_eq!(Records::of(&host).count(), 10);
    let jobs = changed(762 + 1010, b"\xff");
    assert_eq!(errors(&jobs), [(762, text("involved_jobs is not UTF-8"))]);
    let time = changed(518, &u64::MAX.to_le_bytes());
    let expected = FrameReason::Time(u64::MAX);
    assert_eq!(Records::of(&time).next(), Some(Err(FrameError { offset: 0, reason: expected })));
    assert_eq!(Records::of(&time).count(), 10);
}

#[test]
fn what_the_format_cannot_hold_changes_no_message() {
    let full = |change: &dyn Fn(&mut Record)| {
        let mut record = Record::new(&TASKSTATS, "node-1", 7, Timestamp::YEAR_2000);
        change(&mut record);
        let mut message = vec![1, 2, 3];
        let error = encode(&record, &mut message).unwrap_err();
        assert_eq!((error.backend, message), (record.backend.id, vec![1, 2, 3]));
        error.reason
    };
    let long = full(&|record| record.host = "ä".repeat(128));
    assert_eq!(long, EncodeReason::TooLong { what: "the host name", bytes: 256 });
    assert_eq!(full(&|record| record.at = Timestamp(-1)), EncodeReason::Time);
    assert_eq!(full(&|record| drop(record.values.pop())), EncodeReason::Values(29));
    let rust = &colmet::backends::MEMORY;
    assert_eq!(
        full(&|record| *record = Record::new(rust, "node-1", 7, Timestamp(0))),
        EncodeReason::Backend
    );
    for value in [Value::Unsigned(1 << 32), Value::Signed(1), Value::Text("1".into())] {
        let reason = full(&|record| record.set("ac_btime", value.clone()));
        assert_eq!(reason, EncodeReason::Value("ac_btime"));
    }
}

/// A missing value is -1, or 0 where the type has no -1.
#[test]
fn missing_values_have_the_form_of_their_type() {
    let mut record = Record::new(&PROCSTATS, "node-1", NO_JOB, Timestamp::YEAR_2000);
    let message = encoded(std::slice::from_ref(&record));
    assert_eq!(message[526..534], [0; 8]);
    assert_eq!(message[990..994], (-1_f32).to_le_bytes());
    for (column, value) in record.backend.columns.iter().zip(&mut record.values) {
        let is_float = column.kind == ColumnType::Float;
        *value = (!is_float).then(|| Value::missing(column.kind));
    }
    assert_eq!(decoded(&message), [record]);
}

fn value(kind: ColumnType) -> BoxedStrategy<Option<Value>> {
    match kind {
        ColumnType::Unsigned => any::<u64>().prop_map(|it| Some(Value::Unsigned(it))).boxed(),
        ColumnType::UnsignedShort => {
            any::<u32>().prop_map(|it| Some(Value::Unsigned(it.into()))).boxed()
        }
        ColumnType::Signed => {
            any::<i64>().prop_map(|it| Some(Value::Signed(it)).filter(|_| it != -1)).boxed()
        }
        ColumnType::Float => {
            any::<f32>().prop_map(|it| Some(Value::Float(it)).filter(|_| it != -1.0)).boxed()
        }
        ColumnType::Text => prop::collection::vec(any::<u64>(), 0..40)
            .prop_map(|jobs| Some(Value::Text(colmet::record::involved_jobs(jobs).into())))
            .boxed(),
    }
}

fn record() -> impl Strategy<Value = Record> {
    let python = BACKENDS.into_iter().filter(|backend| backend.is_of_python());
    let backend = prop::sample::select(python.collect::<Vec<_>>());
    backend.prop_flat_map(|backend| {
        let values: Vec<_> = backend.columns.iter().map(|column| value(column.kind)).collect();
        (values, "[a-zä.-]{0,100}", any::<u64>(), 0..9_000_000_000_000_i64).prop_map(
            move |(values, host, job, seconds)| Record {
                values,
                ..Record::new(backend, &host, job, Timestamp::from_seconds(seconds))
            },
        )
    })
}

proptest! {
    #[test]
    fn any_records_are_decoded_as_encoded(records in prop::collection::vec(record(), 0..6)) {
        let message = encoded(&records);
        prop_assert_eq!(decoded(&message), records);
    }

    /// Any bytes, and messages with a changed part.
    #[test]
    fn any_bytes_are_records_or_errors(
        bytes in prop::collection::vec(any::<u8>(), 0..2000),
        records in prop::collection::vec(record(), 1..4),
        at in any::<prop::sample::Index>(),
        end in any::<prop::sample::Index>(),
    ) {
        let mut message = encoded(&records);
        Records::of(&bytes).for_each(drop);
        let at = at.index(message.len());
        for (slot, byte) in message[at..].iter_mut().zip(&bytes) {
            *slot = *byte;
        }
        let end = end.index(message.len());
        for record in Records::of(&message[..end]) {
            match record {
                Ok(record) => prop_assert!(record.values.len() == record.backend.columns.len()),
                Err(error) => prop_assert!(error.offset < end),
            }
        }
    }
}
