//! The reference page of the equivalents: every value of Colmet, and every sensor of FrUCToSA by field of psutil, with
//! the formula over our metrics. The comparison test with psutil computes its values by the formulas of that page.

use crate::backends::BACKENDS;
use crate::equivalent::{Row, Scope};
use crate::fructosa;
use std::fmt::Write as _;

/// A group of names of another program, as the page shows it.
#[derive(Debug)]
pub struct Section {
    /// The other program's name for the group.
    pub name: &'static str,
    /// The series that count.
    pub scope: Scope,
    /// Note about the whole group.
    pub note: &'static str,
    /// Each name once, in the other program's order.
    pub rows: Vec<&'static Row>,
}

/// The programs and their groups.
pub fn programs() -> [(&'static str, Vec<Section>); 2] {
    let colmet = BACKENDS.iter().map(|backend| Section {
        name: backend.title,
        scope: backend.scope,
        note: backend.note,
        rows: backend.columns.iter().map(|column| &column.row).collect(),
    });
    let fructosa = fructosa::GROUPS.iter().map(|group| Section {
        name: group.name,
        scope: group.scope,
        note: group.note,
        rows: group.rows.iter().collect(),
    });
    [("Colmet", colmet.collect()), ("FrUCToSA", fructosa.collect())]
}

/// The reference page.
pub fn reference() -> String {
    let mut page = String::from(
        "# Mapping to other programs

Every metric of Colmet (0.6.10, and the keys of its Rust nodes) and every sensor of FrUCToSA with the fields of psutil,
and the formula that computes its value here. Generated from `crates/colmet` by `make docs`.

A formula contains our metrics, numbers, `+ - * /` and parentheses. A metric means the sum of its series; `{label=\"value\"}`
selects the series with this label. For a job, only its own series count. After `growth:` each counter means its growth
between two readings. `tests/node/sensors.rs` uses the formulas of this page to compare with psutil on the same machine.
",
    );
    for (program, groups) in programs() {
        // Writing into a `String` cannot fail.
        write!(page, "\n## {program}\n").ok();
        for group in groups {
            let Section { name, scope, note, rows } = group;
            let scope = match scope {
                Scope::Job => "Per job.",
                Scope::Node => "Per node.",
            };
            write!(page, "\n### {name}\n\n{scope} {note}\n\n| theirs | ours |\n|---|---|\n").ok();
            for Row { theirs, ours } in rows {
                writeln!(page, "| `{theirs}` | {ours} |").ok();
            }
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_name_is_listed_twice() {
        for (program, groups) in programs() {
            let names: Vec<&str> = groups.iter().map(|group| group.name).collect();
            assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{program}");
            for group in groups {
                let names: BTreeSet<&str> = group.rows.iter().map(|row| row.theirs).collect();
                assert_eq!(names.len(), group.rows.len(), "{}", group.name);
            }
        }
    }
}
