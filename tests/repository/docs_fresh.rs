//! The documents have no broken links.
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
