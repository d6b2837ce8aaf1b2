//! A copy of a data folder, made while its server writes, is a data folder.

use crate::line::jobmeter;
use crate::programs::{Running, Server, output, program, until};
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

const COUNTED: &str = "SELECT count(*) AS n, count(DISTINCT timestamp) AS ticks FROM metrics";

#[test]
fn a_copy_made_while_the_server_writes_holds_all_that_was_acknowledged_before() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let server = Server::start(&data, &["--block-every", "1s"]);
    let agent = |device: &str| {
        let mut command = Command::new(program("jobmeter-agent"));
        command.args(["--server", &server.url, "--device", device, "--period", "100ms"]);
        Running::start(command.args(["--spool", "none"]))
    };
    let _agents = [agent("n1"), agent("n2")];
    let counted = |url: &str, query: &str| -> (u64, u64) {
        let (code, out, errors) = jobmeter(url, &["sql", "--format", "json", query]);
        assert_eq!(code, 0, "{errors}");
        let rows: Vec<Value> = serde_json::from_str(&out).unwrap();
        (rows[0]["n"].as_u64().unwrap(), rows[0]["ticks"].as_u64().unwrap())
    };
    until("samples", Duration::from_secs(20), || {
        (counted(&server.url, COUNTED).0 > 5000).then_some(())
    });
    for round in 0..6 {
        let before = counted(&server.url, COUNTED);
        let copy = dir.path().join(format!("copy-{round}"));
        let mut backup = Command::new(program("jobmeter"));
        backup.arg("backup").arg("--data").arg(&data).arg("--to").arg(&copy);
        let (code, _, errors) = output(&mut backup);
        assert_eq!(code, 0, "{errors}");
        let after = counted(&server.url, COUNTED);
        let mut verify = Command::new(program("jobmeter"));
        let (code, out, errors) = output(verify.arg("verify").arg("--data").arg(&copy));
        assert_eq!(code, 0, "{out}{errors}");
        let mut restored = Server::start(&copy, &[]);
        let found = counted(&restored.url, COUNTED);
        assert!(before <= found && found <= after, "{before:?} <= {found:?} <= {after:?}");
        assert_eq!(restored.running.end(), 0, "{}", restored.running.errors());
        std::thread::sleep(Duration::from_millis(300));
    }
    let mut again = Command::new(program("jobmeter"));
    again.arg("backup").arg("--data").arg(&data).arg("--to").arg(dir.path().join("copy-0"));
    let (code, _, errors) = output(&mut again);
    assert_ne!(code, 0, "what is there is not written over");
    assert!(errors.contains("copy-0 is there already") && errors.contains("--to"), "{errors}");
}
