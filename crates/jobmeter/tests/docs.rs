//! Tests that the generated references match the programs. `make docs` rewrites them.
#![expect(clippy::unwrap_used, reason = "tests end at the first surprise")]

use sources::RunSamples;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Checks that a file of `docs/reference` has this text.
fn fresh(name: &str, text: &str) {
    fresh_at(&format!("docs/reference/{name}"), text);
}

/// Checks that a file of the repository has this text.
fn fresh_at(name: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&file, text).unwrap();
    }
    let old = fs::read_to_string(&file).unwrap_or_default();
    let differs = old.lines().zip(text.lines()).find(|(old, new)| old != new);
    assert!(old == text, "{name} is stale; `make docs` rewrites it: {differs:#?}");
}

fn settings(program: &str, settings: &[config::Setting]) {
    let variable = program.to_uppercase();
    let head = format!(
        "# Settings of the {program}

Every setting is a key of `/etc/jobmeter/{program}.toml` (another file with `--config` or
`JOBMETER_{variable}_FILE`), an environment variable and a flag. A flag comes before a variable, a variable
before the file, the file before the default. All settings are optional. Write durations as
`500ms`, `30s`, `2m` or `7d`, and sizes as `64MiB`. On SIGHUP the {program} reloads the file.

At startup the {program} reports variables that begin with `JOBMETER_` and are not a setting of any program. It rejects
one that resembles a setting of this program, and suggests that setting. It ignores any other.

`jobmeter check FILE --for {program}` lists the errors of a file, or prints the resulting settings with the origin
of each value. Generated from the settings by `make docs`.
"
    );
    let text = head + &config::reference(settings);
    fresh(&format!("config-{program}.md"), &text);
}

#[test]
fn the_reference_of_the_agent() {
    settings("agent", &config::agent_settings(&agent::source_settings()));
}

#[test]
fn the_reference_of_the_server() {
    settings("server", &config::server_settings());
}

#[test]
fn the_openapi_document() {
    let text = serde_json::to_string_pretty(&api::openapi()).unwrap();
    fresh("openapi.json", &format!("{text}\n"));
}

#[test]
fn the_reference_of_what_others_call_it() {
    fresh("mapping.md", &sources::mapping::reference());
}

#[test]
fn the_reference_of_sources() {
    #[expect(clippy::disallowed_methods, reason = "the program itself prints it")]
    let mut jobmeter = Command::new(env!("CARGO_BIN_EXE_jobmeter"));
    let output = jobmeter.args(["sources", "--markdown"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    fresh("sources.md", &text);
    fresh_at("crates/server/src/ingest/declared_metrics.tsv", &declared_metrics(&text));
}

/// The metrics of the reference, one per line: the server may not depend on the crate that declares them.
fn declared_metrics(reference: &str) -> String {
    let mut text = String::from(
        "# Metrics that sources declare: name, kind, unit, `run` if `jobmeter run` measures it, \
         help. Generated from the sources by `make docs`.\n",
    );
    let mut source = "";
    for line in reference.lines() {
        source = line.strip_prefix("## ").unwrap_or(source);
        let cells: Vec<String> = line
            .replace("\\|", "\0")
            .split('|')
            .map(|cell| cell.trim().replace('\0', "|"))
            .collect();
        let [_, name, kind, unit, help, _] = &*cells else { continue };
        if matches!(&**kind, "counter" | "gauge") {
            let name = name.trim_matches('`');
            let spec = sources::list::find(source);
            let of_run = spec.map_or(source == "run", |spec| spec.run != RunSamples::Never);
            let of_run = if of_run { "run" } else { "-" };
            text.push_str(&format!("{name}\t{kind}\t{unit}\t{of_run}\t{help}\n"));
        }
    }
    text
}
