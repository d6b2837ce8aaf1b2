//! The server conforms to its OpenAPI document, and rejects requests that violate it. schemathesis generates
//! the requests from the document.

use crate::common::programs::{Running, Server, get, output, program, until};
use crate::repository::layers::repository;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

/// Runs schemathesis, and returns its output; fails if it finds an error.
fn run_checker(server: &Server, token: &str, arguments: &[&str]) -> String {
    let tests = repository().join("tests/server");
    // schemathesis stores data for later runs beside its configuration. A temporary copy keeps runs
    // independent.
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("schemathesis.toml");
    std::fs::copy(tests.join("schemathesis.toml"), &config).unwrap();
    let mut command = Command::new(repository().join("target/python/bin/schemathesis"));
    command.arg("--config-file").arg(&config).args(["run", "--no-color"]);
    command.arg(format!("{}/api/v1/openapi.json", server.url)).args(arguments);
    command.env("JOBMETER_TOKEN", token).env("PYTHONPATH", &tests);
    command.env("PYTHONDONTWRITEBYTECODE", "1").current_dir(dir.path());
    let (code, out, errors) = output(&mut command);
    assert_eq!(code, 0, "{out}\n{errors}");
    out
}

/// Returns the number of generated cases.
fn cases(out: &str) -> u32 {
    let line = out.lines().find_map(|line| line.split_once(" generated,"));
    line.unwrap_or_else(|| panic!("{out}")).0.trim().parse().unwrap()
}

#[test]
fn the_server_answers_as_its_openapi_document_describes() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = dir.path().join("tokens");
    std::fs::write(&tokens, "admin token-of-admins\nuser:nobody token-of-nobody\n").unwrap();
    std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o600)).unwrap();
    let data = dir.path().join("data");
    let flags = ["--token-file", tokens.to_str().unwrap(), "--query-time-max", "10s"];
    let mut server = Server::start(&data, &flags);
    let (status, served) = get(&server.url, "/api/v1/openapi.json");
    let golden = repository().join("docs/reference/openapi.json");
    let golden = std::fs::read_to_string(golden).unwrap();
    let parsed = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!((status, parsed(&served)), (200, parsed(&golden)));

    let mut command = Command::new(program("jobmeter-agent"));
    command.args(["--server", &server.url, "--device", "n1", "--period", "1s", "--spool", "none"]);
    // schemathesis takes values from answers, so jobs of this machine would change the requests.
    command.args(["--jobs-schedulers", "local"]);
    let mut agent = Running::start(&mut command);
    let run = ["run", "--server", &server.url, "--device", "n1", "--", "sleep", "1"];
    let (code, out, errors) = output(Command::new(program("jobmeter")).args(run));
    assert_eq!(code, 0, "{out}\n{errors}");
    until("samples", Duration::from_secs(20), || {
        get(&server.url, "/api/v1/last?device=n1").1.contains("load_1m").then_some(())
    });
    assert_eq!(agent.end(), 0, "{}", agent.errors());

    let everything = run_checker(&server, "token-of-admins", &[]);
    assert!(cases(&everything) > 1000, "{everything}");
    // An administrator's token names no user, but only a user may start a job.
    let own = run_checker(&server, "token-of-nobody", &["--include-path-regex", "^/api/v1/jobs"]);
    assert!(cases(&own) > 200, "{own}");
    let (_, metrics) = get(&server.url, "/metrics");
    let faults = metrics.lines().find(|line| line.contains("{reason=\"fault\"}"));
    assert_eq!(faults, Some("jobmeter_refusals_total{reason=\"fault\"} 0"));
    assert_eq!(server.running.end(), 0, "{}", server.running.errors());
}
