//! Style checks: length of files, size of folders, banned and rejected names, unfinished work, and `unsafe`.

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
fn files_begin_with_a_description() {
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

/// Words that names do not contain, because plain ones exist: the right column of the glossary. "keep",
/// "number", "share", "place", "word", "away" and "standing" have an ordinary meaning in names too.
const REJECTED_WORDS: [&str; 46] = [
    "anew", "ask", "asked", "asker", "askers", "asking", "asks", "course", "courses", "doer",
    "hear", "heard", "hears", "hole", "holes", "jobless", "proven", "refusal", "refusals",
    "refuse", "refused", "refuses", "room", "rooms", "said", "say", "says", "sight", "slowed",
    "spelled", "spelling", "stay", "stayed", "stays", "stretch", "tell", "telling", "tells",
    "told", "trouble", "troubles", "twin", "twins", "whiles", "whose", "wish",
];

/// Returns the words of a name: `is_told` and `IsTold` have the words "is" and "told".
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = '_';
    for c in name.chars() {
        if c == '_' || c.is_uppercase() && !before.is_uppercase() {
            words.push(String::new());
        }
        words.last_mut().unwrap().extend(c.to_lowercase().filter(|c| *c != '_'));
        before = c;
    }
    words
}

fn is_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Returns the name at the beginning of a text.
fn name(text: &str) -> &str {
    text.split(|c| !is_part(c)).next().unwrap_or_default()
}

/// Returns the names that a line defines: types, functions, modules, constants, fields and variants.
fn defined(line: &str) -> Vec<&str> {
    let line = line.split("//").next().unwrap_or_default().trim_end();
    let keywords = ["struct ", "enum ", "trait ", "type ", "mod ", "fn ", "const ", "static "];
    let mut names = Vec::new();
    for keyword in keywords {
        for (at, _) in line.match_indices(keyword) {
            let (before, rest) = line.split_at(at);
            if !before.ends_with(is_part) && !before.contains('"') {
                names.push(name(rest.trim_start_matches(keyword)));
            }
        }
    }
    let member = line.trim_start();
    let member = member.strip_prefix("pub").map_or(member, |rest| {
        rest.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or(rest, |(_, rest)| rest)
    });
    let member = member.trim_start();
    let first = name(member);
    let rest = member.strip_prefix(first).unwrap_or_default();
    let is_field = rest.starts_with(": ");
    let is_variant = first.starts_with(char::is_uppercase)
        && (rest == "," || rest == " {" || rest.starts_with('(') && rest.ends_with("),"));
    if is_field || is_variant {
        names.push(first);
    }
    names
}

#[test]
fn names_are_plain() {
    let is_rejected =
        |name: &str| words(name).iter().any(|word| REJECTED_WORDS.contains(&word.as_str()));
    let defines = |line: &str| defined(line).into_iter().any(is_rejected);
    for line in
        ["fn told() {", "pub(crate) told: u32,", "    Refused(String),", "const A_ROOM: u8 = 1;"]
    {
        assert!(defines(line), "{line}");
    }
    assert!(!defines("    // fn told() {") && !defines("fn reported(basket: u32) {"));
    let mut found = Vec::new();
    for file in files().iter().filter(|f| is(f, &["rs"]) && !f.ends_with("tidy.rs")) {
        let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap();
        if is_rejected(stem) {
            found.push(format!("{}: the name of the file", file.display()));
        }
        for (number, line) in (1..).zip(read(file).lines()) {
            found.extend(
                defined(line)
                    .into_iter()
                    .filter(|name| is_rejected(name))
                    .map(|name| format!("{}:{number}: {name}", file.display())),
            );
        }
    }
    assert!(found.is_empty(), "a plain word exists for each of these names:\n{}", found.join("\n"));
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
fn unsafe_is_in_kernel_alone() {
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
