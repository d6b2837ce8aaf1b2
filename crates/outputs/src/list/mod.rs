//! The kinds of outputs: one file and one word here each.

mod colmet;
mod elasticsearch;
mod file;
mod graphite;
mod hdf5;
mod reference;

use crate::spec::Spec;
use config::{OutputConfig, OutputKind};
pub use reference::reference;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Every kind, in the order of the manual.
pub const ALL: &[&Spec] =
    &[&file::SPEC, &hdf5::SPEC, &colmet::SPEC, &elasticsearch::SPEC, &graphite::SPEC];

/// The kinds as the configuration sees them.
pub fn kinds() -> Vec<OutputKind> {
    let each = ALL.iter().map(|spec| OutputKind {
        name: spec.name,
        help: spec.help,
        options: spec.options,
    });
    each.collect()
}

/// The kind of an output.
pub(crate) fn spec_of(config: &OutputConfig) -> Option<&'static Spec> {
    ALL.iter().find(|spec| spec.name == config.kind).copied()
}

/// The errors of paths of files that two outputs write, or that are in the data folder, each with the key.
pub fn check_paths(configs: &[OutputConfig], data: Option<&Path>) -> Vec<(String, String)> {
    let data = data.and_then(|data| data.canonicalize().ok());
    let mut known: BTreeMap<PathBuf, &str> = BTreeMap::new();
    let mut wrong = Vec::new();
    for config in configs {
        let path = config.options.get("path").map_or("", String::as_str);
        let Some(path) = real_path(path) else { continue };
        let what = match known.get(&path) {
            Some(other) => format!("the output `{other}` writes this file, too; choose another"),
            None if data.as_ref().is_some_and(|data| path.starts_with(data)) => {
                "it is in the server's data folder; choose another folder".to_owned()
            }
            None => {
                known.insert(path, &config.name);
                continue;
            }
        };
        wrong.push((format!("outputs.{}.path", config.name), what));
    }
    wrong
}

/// The path of a file in a folder that exists, without links and points.
fn real_path(path: &str) -> Option<PathBuf> {
    let path = Path::new(path);
    let name = path.file_name().filter(|name| *name != "-")?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    Some(folder.unwrap_or(Path::new(".")).canonicalize().ok()?.join(name))
}

/// The errors of an output's configuration on this machine, each with the key. Changes nothing.
pub fn check(config: &OutputConfig) -> Vec<(String, String)> {
    let wrong = spec_of(config).map(|spec| (spec.check)(config)).unwrap_or_default();
    let key = |option: &str| format!("outputs.{}.{option}", config.name);
    wrong.into_iter().map(|(option, what)| (key(option), what)).collect()
}
