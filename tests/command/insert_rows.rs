//! The curl lines with which scripts of Kwollect insert rows, as its README shows them.

use crate::common::programs::{Server, get, output};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

const TOKEN: &str = "token-of-scripts";

/// The lines: an object, a list with and without `Prefer`, CSV, and defaults alone.
const LINES: [&str; 5] = [
    r#"curl $CURL -X POST "$URL/rpc/insert_metrics" -H "Authorization: Bearer $TOKEN" \
        -H "Content-Type: application/json" \
        -d "{\"timestamp\": \"$(date '+%F %T')\", \"device_id\": \"mydevice\", \"metric_id\": \"mymetric\", \"value\": 42, \"labels\": {\"cpu\": 0}}""#,
    r#"curl $CURL "$URL/rpc/insert_metrics" -H "Authorization: Bearer $TOKEN" -H "Content-Type: application/json" \
        -d '[{"device_id": "mydevice", "metric_id": "mymetric", "value": 43}, {"device_id": "other", "metric_id": "mymetric", "value": "NaN"}]'"#,
    r#"curl $CURL "$URL/rpc/insert_metrics" -H "Authorization: Bearer $TOKEN" -H "Content-Type: application/json" \
        -H "Prefer: params=multiple-objects" \
        -d "[{\"timestamp\": $(date +%s.%N), \"device_id\": \"mydevice\", \"metric_id\": \"mymetric\", \"value\": 44}]""#,
    r#"printf 'device_id,metric_id,value\nmydevice,mymetric,45\n' | \
        curl $CURL "$URL/rpc/insert_metrics" -H "Authorization: Bearer $TOKEN" -H "Content-Type: text/csv" --data-binary @-"#,
    r#"curl $CURL "$URL/rpc/insert_metrics" -H "Authorization: Bearer $TOKEN" -H "Content-Type: application/json" \
        -d '{"device_id": "mydevice", "metric_id": "mymetric"}'"#,
];

#[test]
fn the_curl_lines_of_kwollects_readme_insert_rows() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = dir.path().join("tokens");
    std::fs::write(&tokens, format!("push:scripts {TOKEN}\n")).unwrap();
    std::fs::set_permissions(&tokens, Permissions::from_mode(0o600)).unwrap();
    let data = dir.path().join("data");
    let mut server = Server::start(&data, &["--token-file", tokens.to_str().unwrap()]);
    let run = |line: &str, token: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).env("URL", &server.url).env("TOKEN", token);
        let (code, answer, errors) =
            output(shell.env("CURL", "--silent --show-error --fail-with-body"));
        (code, format!("{answer}{errors}"))
    };
    let mut values = Vec::new();
    for line in LINES {
        let (code, answer) = run(line, TOKEN);
        assert_eq!(code, 0, "{line}: {answer}");
        let rows: serde_json::Value = serde_json::from_str(&answer).unwrap();
        let rows = rows.as_array().unwrap();
        assert!(rows.iter().all(|row| row["metric_id"] == "mymetric"), "{answer}");
        values.extend(rows.iter().map(|row| row["value"].to_string()));
    }
    assert_eq!(values, ["42", "43", "\"NaN\"", "44", "45", "\"NaN\""]);
    // As Kwollect's own queries find them.
    let (_, stored) = get(&server.url, "/rpc/get_metrics?devices=mydevice&metrics=mymetric");
    let stored: serde_json::Value = serde_json::from_str(&stored).unwrap();
    assert_eq!(stored.as_array().unwrap().len(), 5, "{stored}");
    assert_eq!(stored[0]["labels"], serde_json::json!({"cpu": 0}));
    let (code, answer) = run(LINES[0], "wrong-token");
    assert!(code == 22 && answer.contains("401"), "{code} {answer}");
    assert_eq!(server.running.end(), 0);
}
