//! The command line of `jobmeter-poller`.

use crate::descriptions::{Directory, Load, Severity, read_directory, summary};
use clap::Parser as _;
use model::printable;
use serde_json::{Value, json};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Exit code of a folder with errors.
const WRONG: u8 = 1;
/// Exit code of a command that failed.
const FAILED: u8 = 2;

/// Reads devices outside of the nodes: PDUs, BMCs, switches, exporters, meters
#[derive(clap::Parser, Debug)]
#[command(name = "jobmeter-poller", version)]
enum Command {
    /// Checks description files: lists all errors, then the requests and the rows per second
    Check {
        /// The folder of description files
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
}

/// Runs the program.
pub fn main() -> ExitCode {
    let command = match Command::try_parse() {
        Ok(command) => command,
        Err(error) => {
            let code = if error.use_stderr() { ExitCode::from(FAILED) } else { ExitCode::SUCCESS };
            return if error.print().is_ok() { code } else { ExitCode::from(FAILED) };
        }
    };
    let Command::Check { dir, json } = command;
    match check(&dir, json) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(WRONG),
        Err(error) => {
            let shown = printable(&error.to_string()).into_owned();
            writeln!(io::stderr(), "jobmeter-poller: {shown}").unwrap_or_default();
            ExitCode::from(FAILED)
        }
    }
}

/// Prints the errors of a folder, and its requests. Returns whether there are no errors.
fn check(dir: &Path, json: bool) -> io::Result<bool> {
    let read = read_directory(dir);
    let directory = read.map_err(|error| {
        io::Error::new(error.kind(), format!("cannot read {}: {error}", dir.display()))
    })?;
    let is_good = !directory.has_errors();
    if json {
        writeln!(io::stdout().lock(), "{}", as_json(&directory))?;
        return Ok(is_good);
    }
    let mut stderr = io::stderr().lock();
    for finding in &directory.findings {
        writeln!(stderr, "{}", printable(&finding.to_string()))?;
    }
    let mut stdout = io::stdout().lock();
    for line in summary(&directory).lines() {
        writeln!(stdout, "{}", printable(line))?;
    }
    Ok(is_good)
}

fn as_json(directory: &Directory) -> Value {
    let findings = directory.findings.iter().map(|finding| {
        json!({
            "file": &*finding.file,
            "line": (finding.line > 0).then_some(finding.line),
            "severity": if finding.severity == Severity::Error { "error" } else { "warning" },
            "what": finding.what,
        })
    });
    let requests = directory.descriptions.iter().map(|one| {
        let meaning = one.meaning();
        json!({
            "file": &*one.file,
            "line": one.line,
            "metric": one.name,
            "device": one.device.as_str(),
            "target": one.target.to_string(),
            "period_seconds": one.period.as_secs_f64(),
            "optional": one.is_optional,
            "kind": meaning.map(|meaning| meaning.kind.word()),
            "unit": meaning.map(|meaning| meaning.unit.word()),
            "meaning": meaning.map(|m| if m.is_declared { "declared" } else { "assumed" }),
            "labels": serde_json::from_str::<Value>(one.labels.as_str()).unwrap_or_default(),
        })
    });
    let load = Load::of(&directory.descriptions);
    json!({
        "good": !directory.has_errors(),
        "files": directory.files,
        "findings": findings.collect::<Vec<_>>(),
        "requests": requests.collect::<Vec<_>>(),
        "rows_per_second": load.always,
        "rows_per_second_promoted": load.always + load.promoted,
        "entries_of_unknown_rows": load.exporters,
        "rejected_by_kwollect": directory.rejected_by_kwollect,
    })
}
