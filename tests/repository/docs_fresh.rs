//! The documents have no broken links, and name tests that exist.
//!
//! `crates/jobmeter/tests/docs.rs` checks that generated documents match the programs.

use crate::repository::layers::repository;

/// Links within the documents lead to existing files.
#[test]
fn links_lead_somewhere() {
    let mut broken = Vec::new();
    let documents = crate::repository::tidy::files()
        .into_iter()
        .filter(|f| f.extension().is_some_and(|e| e == "md"));
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

/// A promise of SECURITY.md whose test was renamed or removed looks proven, and is not.
#[test]
fn security_names_tests_that_exist() {
    let read = |path: &std::path::Path| std::fs::read_to_string(repository().join(path)).unwrap();
    let code: String = crate::repository::tidy::files()
        .iter()
        .filter(|f| f.extension().is_some_and(|e| e == "rs"))
        .map(|f| read(f))
        .collect();
    let words: std::collections::BTreeSet<&str> =
        code.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).collect();
    let text = read("SECURITY.md".as_ref());
    let quoted = text.split('`').skip(1).step_by(2).filter_map(|name| name.split("::").last());
    let is_name = |name: &&str| {
        name.matches('_').count() > 1 && name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric())
    };
    let names: Vec<&str> = quoted.filter(is_name).collect();
    assert!(names.len() > 80, "{names:?}");
    let missing: Vec<&str> = names.into_iter().filter(|name| !words.contains(name)).collect();
    assert!(missing.is_empty(), "SECURITY.md names no test or setting: {}", missing.join(", "));
}
