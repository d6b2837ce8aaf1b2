//! Lists the files of `ui/` for `src/web/files.rs`, which compiles them in.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Files of these kinds are pages; others (tests' manifests, notes) are not served.
const KINDS: [&str; 6] = ["html", "js", "css", "svg", "png", "ico"];

fn main() -> io::Result<()> {
    let var = |name| env::var_os(name).map(PathBuf::from).ok_or(io::ErrorKind::NotFound);
    let ui = var("CARGO_MANIFEST_DIR")?.join("../../ui").canonicalize()?;
    let mut files = Vec::new();
    find(&ui, &mut files)?;
    files.sort();
    let mut list = String::from("&[\n");
    for file in &files {
        let name = file.strip_prefix(&ui).map_err(io::Error::other)?.to_string_lossy();
        let path = file.to_string_lossy();
        writeln!(list, "    ({name:?}, include_bytes!({path:?})),").map_err(io::Error::other)?;
    }
    list.push_str("]\n");
    fs::write(var("OUT_DIR")?.join("pages.rs"), list)
}

fn find(dir: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    // A directory's time changes when a file comes or goes.
    io::Write::write_all(
        &mut io::stdout(),
        format!("cargo::rerun-if-changed={}\n", dir.display()).as_bytes(),
    )?;
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let kind = path.extension().map(|kind| kind.to_string_lossy().into_owned());
        if path.is_dir() {
            find(&path, files)?;
        } else if kind.is_some_and(|kind| KINDS.contains(&&*kind)) {
            files.push(path);
        }
    }
    Ok(())
}
