//! The curl lines with which scripts of Kwollect insert rows, as its README shows them.

use crate::common::programs::{Server, get, output, program};
use crate::numbers::truth::python;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
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

fn secret(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    path
}

#[test]
fn the_curl_lines_of_kwollects_readme_insert_rows() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = secret(dir.path(), "tokens", &format!("push:scripts {TOKEN}\n"));
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

/// Makes the secret as kwollect-setup-db 1.3.1, its token as PyJWT does there, and tokens of other algorithms.
const SETUP: &str = "
import base64, hashlib, hmac, json, sys
part = lambda data: base64.urlsafe_b64encode(data).rstrip(b'=')
def encode(claims, secret, algorithm, digest):
    parts = [{'alg': algorithm, 'typ': 'JWT'}, claims]
    text = b'.'.join(part(json.dumps(one, separators=(',', ':')).encode()) for one in parts)
    signature = hmac.new(secret.encode(), text, digest).digest() if digest else b''
    return (text + b'.' + part(signature)).decode()
kwollect_user, kwollect_password = 'kwuser', sys.argv[1]
jwtsecret = kwollect_password * (1+(32//len(kwollect_password)))
print(jwtsecret)
print(encode({'role': kwollect_user}, jwtsecret, 'HS256', hashlib.sha256))
print(encode({'role': kwollect_user}, jwtsecret, 'HS512', hashlib.sha512))
print(encode({'role': kwollect_user}, jwtsecret, 'none', None))
";

#[test]
fn the_token_of_kwollect_setup_db_inserts_rows() {
    let (_, printed, errors) = output(Command::new(python()).args(["-c", SETUP, "changeme"]));
    let [jwt_secret, kwuser, hs512, none] = &printed.lines().collect::<Vec<_>>()[..] else {
        panic!("{printed}{errors}")
    };
    assert_eq!(*jwt_secret, "changeme".repeat(5), "as in its README");
    let dir = tempfile::tempdir().unwrap();
    let path = secret(dir.path(), "jwt", &format!("{jwt_secret}\n"));
    let arguments = ["--access-jwt-secret-file", path.to_str().unwrap()];
    let mut server = Server::start(&dir.path().join("data"), &arguments);
    let run = |token: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", LINES[0]]).env("URL", &server.url).env("TOKEN", token);
        output(shell.env("CURL", "--silent --fail-with-body"))
    };
    let (code, rows, _) = run(kwuser);
    assert!(code == 0 && rows.contains("mymetric"), "{code} {rows}");
    for token in [hs512, none] {
        let (code, answer, _) = run(token);
        assert!(code == 22 && answer.contains("is not signed with HS256"), "{code} {answer}");
    }
    assert!(
        server.running.errors().contains("a short text repeated"),
        "{}",
        server.running.errors()
    );
    assert_eq!(server.running.end(), 0);
    let settings = dir.path().join("server.toml");
    std::fs::write(&settings, format!("[access]\njwt_secret_file = {path:?}\n")).unwrap();
    let mut check = Command::new(program("jobmeter"));
    let (code, found, errors) = output(check.arg("check").arg(&settings).args(["--for", "server"]));
    let found = found + &errors;
    assert!(code == 0 && found.contains("a short text repeated"), "{code} {found}");
}
