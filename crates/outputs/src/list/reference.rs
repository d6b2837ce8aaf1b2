//! The reference of outputs, from what the kinds declare.

use crate::list::{ALL, kinds};
use config::{Setting, settings_of_output};
use std::fmt::Write as _;

const HEAD: &str = "\
# Outputs

An output delivers stored samples to another system, each sample once. A table `[outputs.NAME]` in the server's file is one; at most 16. `jobmeter check FILE --for server` finds
its errors, and `jobmeter outputs` shows its state. These settings have no flags and no variables. On SIGHUP the server applies changes. The guide for
administrators says [how to use outputs](../guide/operator.md#outputs). Generated from the declarations by `make docs`.
";

/// The reference, in Markdown.
pub fn reference() -> String {
    let mut out = HEAD.to_owned();
    let common = settings_of_output("NAME", &[]);
    // Writing to a string cannot fail, here and below.
    writeln!(out, "\n## Every output\n").ok();
    table(&common, &mut out);
    for (spec, kind) in ALL.iter().zip(kinds()) {
        writeln!(
            out,
            "\n## `{}`\n\n{} Guarantee: {}.\n",
            spec.name, spec.help, spec.guarantee_help
        )
        .ok();
        let settings = settings_of_output("NAME", &[kind]);
        table(settings.get(common.len()..).unwrap_or_default(), &mut out);
    }
    out
}

fn table(settings: &[Setting], out: &mut String) {
    writeln!(out, "| key | value | default | meaning |\n|---|---|---|---|").ok();
    for setting in settings {
        let key = setting.key.rsplit('.').next().unwrap_or_default();
        let cells = [
            format!("`{key}`"),
            setting.kind.wants(),
            setting.default_in_words(),
            setting.help.trim().to_owned(),
        ];
        let cells = cells.map(|cell| cell.replace('|', "\\|"));
        writeln!(out, "| {} |", cells.join(" | ")).ok();
    }
}
