//! The tables of crates and folders in ARCHITECTURE.md match cargo's metadata and the code.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the repository's root.
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

/// Returns whether a package belongs to the product; the others only test it.
fn is_station(name: &&str) -> bool {
    !["fuzz", "memdisk", "sim", "whole"].contains(name)
}

#[test]
fn crates_use_what_the_table_lists() {
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

/// Returns the order of the folders and files in each crate's `src`, lowest first, from ARCHITECTURE.md's
/// second table.
fn folder_orders() -> Vec<(String, Vec<String>)> {
    let text = std::fs::read_to_string(repository().join("ARCHITECTURE.md")).unwrap();
    let (_, text) =
        text.split_once("| crate | folders and files, lowest first |\n|---|---|\n").unwrap();
    let row = |line: &str| {
        let (name, order) = line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | ")?;
        Some((name.to_owned(), order.split_whitespace().map(str::to_owned).collect()))
    };
    text.lines().map_while(row).collect()
}

/// Returns the production code of a file, or of every file below a folder.
fn sources(path: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    if path.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            found.extend(sources(&entry.unwrap().path()));
        }
    } else if path.extension().is_some_and(|it| it == "rs") && !path.ends_with("tests.rs") {
        let text = std::fs::read_to_string(path).unwrap();
        let code = text.split("\n#[cfg(test)]").next().unwrap();
        let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        found.push((path.to_owned(), code.collect::<Vec<_>>().join("\n")));
    }
    found
}

#[test]
fn folders_use_only_those_before_them() {
    let orders = folder_orders();
    assert!(!orders.is_empty(), "ARCHITECTURE.md declares no order");
    for (name, order) in orders {
        let src = repository().join("crates").join(&name).join("src");
        let entries = std::fs::read_dir(&src).unwrap().map(|entry| entry.unwrap().path());
        let stem = |path: &PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
        let found: BTreeSet<String> = entries.map(|path| stem(&path)).collect();
        let roots = ["lib", "main", "tests"].map(str::to_owned);
        let listed: BTreeSet<String> = order.iter().cloned().collect();
        let parts: BTreeSet<String> =
            found.iter().filter(|it| !roots.contains(it)).cloned().collect();
        assert_eq!(parts, listed, "ARCHITECTURE.md lists what crates/{name}/src has");
        for (rank, part) in order.iter().enumerate() {
            let files = [src.join(part), src.join(format!("{part}.rs"))];
            for (path, code) in files.iter().filter(|path| path.exists()).flat_map(|it| sources(it))
            {
                for used in code.split("crate::").skip(1) {
                    let used: String =
                        used.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                    let place = order.iter().position(|it| *it == used);
                    assert!(
                        place.is_none_or(|place| place <= rank),
                        "{}: {part} may not use {used}, which comes after it",
                        path.display()
                    );
                }
            }
        }
    }
}

#[test]
fn datafusion_remains_in_one_crate() {
    let metadata = metadata(&["--no-deps"]);
    for package in metadata["packages"].as_array().unwrap() {
        let dependencies = package["dependencies"].as_array().unwrap();
        let has = |name: &str| dependencies.iter().any(|d| d["name"] == name);
        assert_eq!(has("datafusion"), package["name"] == "sql", "{}", package["name"]);
    }
}

/// The tests of `control` build in seconds.
#[test]
fn control_has_neither_http_nor_an_sql_engine() {
    for package in ["control", "jobs"] {
        let crates = tree(package);
        for banned in ["hyper", "axum", "arrow", "parquet", "datafusion", "api", "store"] {
            assert!(!crates.contains(banned), "{package} uses {banned}");
        }
    }
}

/// No linked crate is under the GPL or LGPL; there is one TLS provider, and one HTTP stack on each side.
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

/// Returns the names of the crates that a package links.
fn tree(package: &str) -> BTreeSet<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["tree", "--locked", "--offline", "-p", package, "-e", "normal", "--prefix", "none"])
        .current_dir(repository())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).unwrap();
    tree.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// The agent depends neither on an async runtime nor on an SQL engine.
#[test]
fn the_agent_has_few_dependencies() {
    let crates = tree("agent");
    assert!(crates.contains("kernel"), "{crates:?}");
    for banned in ["tokio", "hyper", "arrow", "parquet", "datafusion", "rusqlite", "axum"] {
        assert!(!crates.contains(banned), "the agent uses {banned}");
    }
    println!("the agent's dependency tree has {} crates", crates.len());
    assert!(crates.len() <= 90, "the agent's budget is 90 crates: {crates:?}");
}
