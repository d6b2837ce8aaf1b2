//! Description files mean the same as to kwollector 1.3.1: generated files, read by its own parser.
use crate::{oracle, seed};
use pollers::Secret;
use pollers::descriptions::{Description, Directory, read_file};
use pollers::protocols::{IpmiReading, Request, SnmpObject};
use serde_json::{Value, json};

/// Generated files.
const FILES: usize = 600;
/// Stands for a value that JSON lacks.
const NOT_JSON: &str = "not JSON";

#[test]
fn files_mean_what_they_mean_to_kwollector() {
    let (seed, dir) = (seed(), tempfile::tempdir().unwrap());
    let (mut rejected, mut compared) = (0, 0);
    for (number, line) in oracle("kwollector.py", &seed, FILES, dir.path()).iter().enumerate() {
        let file = dir.path().join(format!("{number:05}.conf"));
        let text = std::fs::read_to_string(&file).unwrap();
        let mut ours = Directory::default();
        read_file(&file, &mut ours);
        match serde_json::from_str::<Option<Vec<Value>>>(line).unwrap() {
            None => {
                rejected += 1;
                assert!(!ours.findings.is_empty(), "kwollector rejects this, seed {seed}:\n{text}");
            }
            Some(theirs) => {
                compared += theirs.len();
                compare(&theirs, &ours, &format!("seed {seed}, file {number}:\n{text}"));
            }
        }
    }
    println!("{FILES} files: {compared} entries are equal; kwollector rejects {rejected} files");
    assert!(compared > FILES / 2, "{compared}");
}

fn compare(theirs: &[Value], ours: &Directory, context: &str) {
    let mut rest = ours.descriptions.iter();
    let mut dropped = 0;
    for expected in theirs {
        if is_impossible(&expected["labels"]) {
            dropped += 1;
            continue;
        }
        let Some(found) = rest.next() else {
            panic!("{expected} is missing: {:?}\n{context}", ours.findings)
        };
        assert_eq!(&as_theirs(found, expected), expected, "{context}");
    }
    assert!(rest.next().is_none(), "an entry too many\n{context}");
    let errors = ours.findings.len();
    assert!(errors >= dropped, "{errors} errors for {dropped} entries\n{context}");
}

/// Whether labels contain what no series may have: other types than JSON's, and unprintable characters.
fn is_impossible(value: &Value) -> bool {
    match value {
        Value::String(text) => text == NOT_JSON || text.contains(model::is_unprintable),
        Value::Array(items) => items.iter().any(is_impossible),
        Value::Object(entries) => entries.values().any(is_impossible),
        _ => false,
    }
}

/// Our entry with kwollector's names. Where a URL has no port or user, ours are the protocol's.
fn as_theirs(ours: &Description, expected: &Value) -> Value {
    let secret = |secret: &Option<Secret>| secret.as_ref().map(|secret| secret.reveal().to_owned());
    let (scheme, path) = match &ours.request {
        Request::Snmp(request) => match &request.object {
            SnmpObject::Oid(oid) => ("snmp", oid.to_string()),
            SnmpObject::Row(row) => {
                ("snmp", format!("{}.{{{{ {} == {} }}}}", row.before, row.column, row.text))
            }
        },
        Request::Ipmi(request) => match &request.reading {
            IpmiReading::Sensor(sensor) => ("ipmisensor", sensor.clone()),
            other => panic!("{other:?}"),
        },
        Request::Prometheus(request) => ("prometheus", request.names.join("-")),
        other => panic!("{other:?}"),
    };
    let period_ms = u64::try_from(ours.period.as_millis()).unwrap();
    let factor = expected["scale_factor"]
        .as_f64()
        .filter(|factor| *factor == 0.0)
        .or(ours.rare().scale_factor);
    json!({
        "name": ours.name,
        "device": ours.device.as_str(),
        "scheme": scheme,
        "host": ours.target.host,
        "port": expected["port"].as_u64().map(|_| ours.target.port),
        "user": expected["user"].as_str().and_then(|_| secret(&ours.target.user)),
        "password": secret(&ours.target.password),
        "path": path,
        "update_every": period_ms,
        "optional": ours.is_optional,
        "labels": serde_json::from_str::<Value>(ours.labels.as_str()).unwrap(),
        "scale_factor": as_written(factor, &expected["scale_factor"]),
    })
}

/// A factor as kwollector holds it: an integer stays one.
fn as_written(factor: Option<f64>, expected: &Value) -> Value {
    match (factor, expected.as_i64()) {
        (Some(factor), Some(integer)) if factor == integer as f64 => json!(integer),
        (factor, _) => json!(factor),
    }
}
