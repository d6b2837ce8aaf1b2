//! Style checks: length of files, size of folders, banned names, unfinished work, and `unsafe`.

use crate::repository::layers::repository;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the files that git tracks or would track, without ignored and generated ones.
pub(crate) fn files() -> Vec<PathBuf> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(repository())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut files: Vec<_> = text.lines().map(PathBuf::from).collect();
    files.retain(|file| repository().join(file).is_file());
    assert!(files.len() > 50, "git lists the files");
    files
}

fn is(file: &Path, endings: &[&str]) -> bool {
    file.extension().and_then(|e| e.to_str()).is_some_and(|e| endings.contains(&e))
}

fn read(file: &Path) -> String {
    std::fs::read_to_string(repository().join(file)).unwrap()
}

#[test]
fn files_are_short() {
    let mut long = Vec::new();
    for file in files().iter().filter(|f| is(f, &["rs", "js", "mjs", "css", "html"])) {
        let vendored = file.components().any(|part| part.as_os_str() == "vendor");
        let lines = read(file).lines().count();
        if lines > 500 && !vendored {
            long.push(format!("{} has {lines} lines; 500 at most", file.display()));
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

/// Folders with one file for each source.
const LARGE_FOLDERS: [&str; 1] = ["crates/sources/src/list"];

#[test]
fn folders_of_source_code_have_at_most_15_entries() {
    let mut entries: BTreeMap<PathBuf, BTreeSet<PathBuf>> = BTreeMap::new();
    for file in files() {
        for path in file.ancestors() {
            let Some(folder) = path.parent() else { continue };
            let holds = |name: &str| folder.components().any(|it| it.as_os_str() == name);
            let crates = folder.starts_with("crates") && (holds("src") || holds("tests"));
            if crates || folder.starts_with("tests") || folder.starts_with("ui") {
                entries.entry(folder.to_owned()).or_default().insert(path.to_owned());
            }
        }
    }
    let large = entries.iter().filter(|(_, entries)| entries.len() > 15);
    let large: Vec<&str> = large.map(|(folder, _)| folder.to_str().unwrap()).collect();
    assert_eq!(large, LARGE_FOLDERS);
}

#[test]
fn paths_in_documents_lead_to_files() {
    for file in files().iter().filter(|file| is(file, &["md"]) && !file.ends_with("CHANGELOG.md")) {
        let text = read(file);
        for path in text.split(|c: char| !(c.is_ascii_alphanumeric() || "_/.-".contains(c))) {
            let named = path.starts_with("crates/")
                && path.ends_with(".rs")
                && !path.contains(char::is_uppercase);
            assert!(!named || repository().join(path).exists(), "{} names {path}", file.display());
        }
    }
}

#[test]
fn files_say_what_they_are() {
    for file in files().iter().filter(|f| is(f, &["rs"]) && !f.ends_with("build.rs")) {
        let text = read(file);
        assert!(
            text.starts_with("//!") || text.starts_with("#!["),
            "{} has no header",
            file.display()
        );
    }
}

#[test]
fn no_unfinished_work_and_no_banned_names() {
    // Concatenated, so that this file does not match itself.
    let unfinished = [["TO", "DO"].concat(), ["FIX", "ME"].concat(), ["XX", "X"].concat()];
    // Keywords before a definition's name; uses of foreign names are no match.
    let given = ["struct ", "enum ", "trait ", "type ", "mod ", "class ", "fn ", "function "];
    let names = ["Manager", "Helper", "Util", "util"];
    let mut found = Vec::new();
    let source = |f: &&PathBuf| is(f, &["rs", "js", "mjs", "py", "sh"]) && !f.ends_with("tidy.rs");
    for file in files().iter().filter(source) {
        if file.components().any(|part| part.as_os_str() == "vendor") {
            continue;
        }
        for (number, line) in (1..).zip(read(file).lines()) {
            let words = || line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let bad = unfinished.iter().any(|word| words().any(|w| w == word))
                || given.iter().filter_map(|word| line.split_once(word)).any(|(_, rest)| {
                    let name = rest.split(|c: char| !c.is_ascii_alphanumeric()).next();
                    names.iter().any(|bad| name.is_some_and(|name| name.ends_with(bad)))
                });
            if bad {
                found.push(format!("{}:{number}: {line}", file.display()));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn nothing_names_a_machine_of_ours() {
    let banned =
        [["/work", "/main"].concat(), ["../sha", "red/"].concat(), ["/ro", "ot/"].concat()];
    let mut found = Vec::new();
    for file in files().iter().filter(|f| !f.ends_with("Cargo.lock")) {
        let Ok(text) = std::fs::read_to_string(repository().join(file)) else { continue };
        for (number, line) in (1..).zip(text.lines()) {
            if banned.iter().any(|path| line.contains(path.as_str())) {
                found.push(format!("{}:{number}: {line}", file.display()));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Only one crate contains `unsafe`, and each block states why it is sound.
#[test]
fn unsafe_stays_in_kernel() {
    for file in files().iter().filter(|f| is(f, &["rs"])) {
        let text = read(file);
        let lines: Vec<_> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            let opens = [["unsafe", " {"].concat(), ["unsafe", " impl"].concat()];
            if opens.iter().any(|open| code.contains(open.as_str())) {
                assert!(file.starts_with("crates/kernel"), "{}:{}", file.display(), at + 1);
                let before = lines[at.saturating_sub(6)..=at].join("\n");
                assert!(before.contains("SAFETY"), "{}:{} says no SAFETY", file.display(), at + 1);
            }
        }
    }
}
