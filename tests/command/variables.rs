//! Environment variables that are no settings make the programs fail.

use crate::common::programs::{agent, output, program};
use std::process::Command;

#[test]
fn a_mistyped_variable_ends_agent_and_server_with_the_near_name() {
    let (code, out, reported) = output(agent().arg("--once").env("JOBMETER_PERID", "1s"));
    assert_eq!((code, &*out), (2, ""), "{reported}");
    assert!(
        reported
            .contains("JOBMETER_PERID: no setting has this name; did you mean `JOBMETER_PERIOD`?"),
        "{reported}"
    );
    let data = tempfile::tempdir().unwrap();
    let mut server = Command::new(program("jobmeter-server"));
    server.arg("--data").arg(data.path()).env("JOBMETER_LISTN", "127.0.0.1:0");
    let (code, out, reported) = output(&mut server);
    assert_eq!((code, &*out), (2, ""), "{reported}");
    assert!(reported.contains("did you mean `JOBMETER_LISTEN`?"), "{reported}");
}

#[test]
fn a_variable_that_somebody_else_made_is_reported_and_ignored() {
    let (code, _, reported) =
        output(agent().arg("--once").env("JOBMETER_SERVICE_HOST", "10.0.0.1"));
    assert_eq!(code, 0, "{reported}");
    let want =
        "jobmeter-agent: environment JOBMETER_SERVICE_HOST: no setting has this name (ignored)\n";
    assert!(reported.contains(want), "{reported}");
}
