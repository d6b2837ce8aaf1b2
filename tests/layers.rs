//! The table of crates in ARCHITECTURE.md is what cargo says.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

/// The repository.
pub(crate) fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

struct Row {
    level: u32,
    uses: BTreeSet<String>,
}

fn table() -> BTreeMap<String, Row> {
    let text = std::fs::read_to_string(repository().join("ARCHITECTURE.md")).unwrap();
    let rows = text.lines().filter_map(|line| {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, level, _, uses] = cells[..] else { return None };
        let uses = uses.split_whitespace().map(str::to_owned).collect();
        Some((name.to_owned(), Row { level: level.parse().ok()?, uses }))
    });
    rows.collect()
}

pub(crate) fn metadata(arguments: &[&str]) -> Value {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .args(arguments)
        .current_dir(repository())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Whether a package is a station of the line, and not a way to test it.
fn is_station(name: &&str) -> bool {
    !["fuzz", "memdisk", "sim", "whole"].contains(name)
}

#[test]
fn crates_use_what_the_table_says() {
    let table = table();
    let metadata = metadata(&["--no-deps"]);
    let packages = metadata["packages"].as_array().unwrap();
    let names: BTreeSet<&str> = packages.iter().map(|p| p["name"].as_str().unwrap()).collect();
    let listed: BTreeSet<&str> = table.keys().map(String::as_str).collect();
    let crates: BTreeSet<&str> = names.iter().copied().filter(is_station).collect();
    assert_eq!(crates, listed, "ARCHITECTURE.md lists the crates");
    for package in packages.iter().filter(|p| is_station(&p["name"].as_str().unwrap())) {
        let name = package["name"].as_str().unwrap();
        let dependencies = package["dependencies"].as_array().unwrap();
        let uses: BTreeSet<String> = dependencies
            .iter()
            .filter(|d| d["kind"].is_null())
            .map(|d| d["name"].as_str().unwrap().to_owned())
            .filter(|d| names.contains(d.as_str()))
            .collect();
        assert_eq!(uses, table[name].uses, "what {name} uses");
        for used in &uses {
            assert!(table[used].level < table[name].level, "{name} may not use {used}");
        }
    }
}

#[test]
fn datafusion_stays_in_one_crate() {
    let metadata = metadata(&["--no-deps"]);
    for package in metadata["packages"].as_array().unwrap() {
        let dependencies = package["dependencies"].as_array().unwrap();
        let has = |name: &str| dependencies.iter().any(|d| d["name"] == name);
        assert_eq!(has("datafusion"), package["name"] == "sql", "{}", package["name"]);
    }
}

/// No GPL or LGPL in what is linked; one TLS provider; one HTTP stack for each side.
#[test]
fn licences_and_bans() {
    let metadata = metadata(&[]);
    let packages = metadata["packages"].as_array().unwrap();
    for package in packages {
        let (name, licence) = (package["name"].as_str().unwrap(), &package["license"]);
        let licence = licence.as_str().unwrap_or_else(|| panic!("{name} names no licence"));
        let choices = licence.split(" OR ").flat_map(|part| part.split('/'));
        let free = choices.filter(|choice| !choice.contains("GPL")).count();
        assert!(free > 0, "{name}: {licence}");
    }
    let names: BTreeSet<&str> = packages.iter().map(|p| p["name"].as_str().unwrap()).collect();
    for banned in ["openssl", "openssl-sys", "aws-lc-rs", "native-tls", "reqwest"] {
        assert!(!names.contains(banned), "{banned} is linked");
    }
}

/// The agent has a budget: no async runtime, no engine.
#[test]
fn the_agent_stays_small() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["tree", "--locked", "--offline", "-p", "agent", "-e", "normal", "--prefix", "none"])
        .current_dir(repository())
        .output()
        .unwrap();
    let tree = String::from_utf8(output.stdout).unwrap();
    let crates: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(crates.contains("kernel"), "{tree}");
    for banned in ["tokio", "hyper", "arrow", "parquet", "datafusion", "rusqlite", "axum"] {
        assert!(!crates.contains(banned), "the agent uses {banned}");
    }
    println!("the agent's dependency tree has {} crates", crates.len());
    assert!(crates.len() <= 90, "the agent's budget is 90 crates:\n{tree}");
}
