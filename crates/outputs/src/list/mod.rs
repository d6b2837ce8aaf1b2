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

/// The errors of an output's configuration on this machine, each with the key. Changes nothing.
pub fn check(config: &OutputConfig) -> Vec<(String, String)> {
    let wrong = spec_of(config).map(|spec| (spec.check)(config)).unwrap_or_default();
    let key = |option: &str| format!("outputs.{}.{option}", config.name);
    wrong.into_iter().map(|(option, what)| (key(option), what)).collect()
}
