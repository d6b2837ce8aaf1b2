//! Replays every input of the corpus through its target.
#![expect(clippy::print_stdout, reason = "a test tells what it did")]

use std::path::Path;

#[test]
fn every_kept_input_returns() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut inputs = 0;
    for folder in std::fs::read_dir(&corpus).unwrap() {
        let folder = folder.unwrap().path();
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let target = fuzz::target(&name).unwrap_or_else(|| panic!("no target is called {name}"));
        for input in std::fs::read_dir(&folder).unwrap() {
            target(&std::fs::read(input.unwrap().path()).unwrap());
            inputs += 1;
        }
    }
    println!("{inputs} inputs");
    assert!(inputs >= fuzz::TARGETS.len(), "each target has an input");
}
