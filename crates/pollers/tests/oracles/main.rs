//! Our parsers read what the original programs read: generated files, read by both.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "tests end at the first surprise, start the original parsers, and print what they compared"
)]

mod exposition;
mod kwollector;
mod wattmeter;

use std::path::Path;
use std::process::Command;

/// Runs a Python program that writes files to a folder. Returns its lines, one per file.
fn oracle(program: &str, seed: &str, files: usize, dir: &Path) -> Vec<String> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut python = Command::new(own.join("../../target/python/bin/python"));
    python.arg("-B").arg(own.join("tests/oracles").join(program));
    let output = python.args([seed, &files.to_string()]).arg(dir).output();
    let output = output.expect("target/python is missing; `make test` installs it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<String> = lines.lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), files, "a line for each file");
    lines
}

/// The variable `SEED` repeats a run.
fn seed() -> String {
    std::env::var("SEED").unwrap_or_else(|_| "1".into())
}
