//! Generated documents say what the programs say. `make docs` rewrites them.

use crate::layers::repository;
use crate::programs::{output, program};
use std::process::Command;

fn fresh(path: &str, text: &str) {
    let file = repository().join(path);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, text).unwrap();
    }
    let old = std::fs::read_to_string(&file).unwrap_or_default();
    let differs = old.lines().zip(text.lines()).find(|(a, b)| a != b);
    assert!(old == text, "{path} is stale; `make docs` rewrites it: {differs:#?}");
}

#[test]
fn the_reference_of_sources() {
    let (code, text, errors) =
        output(Command::new(program("jobmeter")).args(["sources", "--markdown"]));
    assert_eq!(code, 0, "{errors}");
    fresh("docs/reference/sources.md", &text);
}

/// Links within the documents lead to files that are there.
#[test]
fn links_lead_somewhere() {
    let mut broken = Vec::new();
    let documents =
        crate::tidy::files().into_iter().filter(|f| f.extension().is_some_and(|e| e == "md"));
    for document in documents {
        let text = std::fs::read_to_string(repository().join(&document)).unwrap();
        for rest in text.split("](").skip(1) {
            let target = rest.split([')', '#', ' ']).next().unwrap_or_default();
            let outside =
                target.is_empty() || target.contains("://") || target.starts_with("mailto:");
            let path = repository().join(&document).parent().unwrap().join(target);
            if !outside && !path.try_exists().unwrap() {
                broken.push(format!("{}: {target}", document.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
