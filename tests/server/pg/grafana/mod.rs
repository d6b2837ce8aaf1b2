//! Dashboards for Grafana: their queries on each store, their types, and the dashboards of Kwollect.
//!
//! No Grafana is used: [`interpolation`] replaces variables and macros as its PostgreSQL datasource does.

mod database;
mod interpolation;
pub(crate) mod queries;
mod types;

use crate::common::programs::{output, program};
use crate::repository::layers::repository;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Writes the dashboards to a folder.
fn written(dir: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(program("jobmeter"));
    let (code, out, errors) = output(command.arg("dashboards").arg(dir).args(arguments));
    assert_eq!(code, 0, "{errors}");
    out
}

/// The JSON files of a folder, by name.
fn dashboards(dir: &Path) -> Vec<Value> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|it| it == "json")).collect();
    files.sort();
    let read = |path| serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    files.into_iter().map(read).collect()
}

/// A file of YAML, as another program reads it.
fn yaml(path: &Path) -> Value {
    let script = "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))";
    let mut python = Command::new(repository().join("target/python/bin/python"));
    let (code, out, errors) = output(python.args(["-c", script]).arg(path));
    assert_eq!(code, 0, "{errors}");
    serde_json::from_str(&out).unwrap()
}

#[test]
fn the_command_writes_what_grafana_loads() {
    let dir = tempfile::tempdir().unwrap();
    let address = ["--address", "metrics.example:5432", "--user", "u", "--database", "kwdb"];
    let out = written(dir.path(), &address);
    assert!(out.contains("write a token to"), "{out}");
    let folder = dir.path().canonicalize().unwrap();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let file = folder.join("provisioning/datasources/jobmeter.yaml");
    let datasource = &yaml(&file)["datasources"][0];
    assert_eq!(datasource["url"], "metrics.example:5432");
    assert_eq!(datasource["user"], "u");
    assert_eq!(datasource["jsonData"]["database"], "kwdb");
    assert_eq!(datasource["jsonData"]["sslmode"], "verify-full");
    let password = format!("$__file{{{}}}", path("jobmeter-token"));
    assert_eq!(datasource["secureJsonData"]["password"], password);
    let provider = &yaml(&folder.join("provisioning/dashboards/jobmeter.yaml"))["providers"][0];
    assert_eq!(provider["options"]["path"], path("jobmeter"));
    let written_dashboards = dashboards(&folder.join("jobmeter"));
    assert_eq!(written_dashboards.len(), 3);
    for dashboard in &written_dashboards {
        assert_eq!(dashboard["annotations"]["list"][0]["datasource"]["uid"], datasource["uid"]);
    }

    // A second call replaces dashboards, and keeps what the administrator changed.
    std::fs::write(&file, "changed").unwrap();
    std::fs::write(folder.join("jobmeter/jobmeter-job.json"), "old").unwrap();
    let out = written(dir.path(), &["--period", "1m"]);
    assert!(out.contains(&format!("kept {}", file.display())), "{out}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "changed");
    let job = &dashboards(&folder.join("jobmeter"))[1];
    let lines = &job["panels"].as_array().unwrap().iter().find(|it| it["type"] == "timeseries");
    assert_eq!(lines.unwrap()["fieldConfig"]["defaults"]["custom"]["insertNulls"], 180_000);
}
