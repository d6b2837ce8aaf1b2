//! Mapping to other programs: every metric of Colmet, and every sensor of FrUCToSA by field of
//! psutil, with the formula over our metrics. The tables are data. `docs/reference/mapping.md` is generated from
//! them, and the comparison test with psutil computes its values by the formulas of that page.

mod colmet;
mod formula;
mod fructosa;

pub use formula::Formula;

use std::fmt::{self, Write as _};

/// A group of names of another program.
#[derive(Debug)]
pub struct Group {
    /// The other program's name for the group: a record, a sensor.
    pub name: &'static str,
    /// The series that count.
    pub scope: Scope,
    /// Note about the whole group.
    pub note: &'static str,
    /// Each name once, in the other program's order.
    pub rows: &'static [Row],
}

/// The series that a group's values are computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One value per job, from its own series.
    Job,
    /// One value per node.
    Node,
}

/// A name of another program.
#[derive(Debug)]
pub struct Row {
    /// The name.
    pub theirs: &'static str,
    /// Its equivalent here.
    pub ours: Ours,
}

/// The equivalent of another program's value.
#[derive(Debug)]
pub enum Ours {
    /// The formula's value.
    Is(Formula),
    /// The formula's value, with each counter replaced by its growth between two readings.
    Grows(Formula),
    /// A label of a metric's series: metric, label.
    Label(&'static str, &'static str),
    /// The row of `list` that the other program's options name at this position, from 1.
    Position {
        /// The names that may be listed.
        list: &'static Group,
        /// Position in the options.
        position: u8,
    },
    /// The jobs on the node: the server's allocations.
    JobsOfNode,
    /// No equivalent, and the reason.
    Not(&'static str),
}

const fn is(theirs: &'static str, formula: Formula) -> Row {
    Row { theirs, ours: Ours::Is(formula) }
}

const fn grows(theirs: &'static str, formula: Formula) -> Row {
    Row { theirs, ours: Ours::Grows(formula) }
}

const fn label(theirs: &'static str, metric: &'static str, label: &'static str) -> Row {
    Row { theirs, ours: Ours::Label(metric, label) }
}

const fn not(theirs: &'static str, why: &'static str) -> Row {
    Row { theirs, ours: Ours::Not(why) }
}

/// As the page shows it.
impl fmt::Display for Ours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Is(formula) => write!(f, "`{formula}`"),
            Self::Grows(formula) => write!(f, "growth: `{formula}`"),
            Self::Label(metric, label) => write!(f, "label `{label}` of `{metric}`"),
            Self::Position { list, position } => {
                write!(f, "event {position} of its `--perfhw-list`: see {}", list.name)
            }
            Self::JobsOfNode => f.write_str("jobs of the node at any time: table `allocations`"),
            Self::Not(why) => write!(f, "nothing: {why}"),
        }
    }
}

/// The programs and their groups.
pub fn programs() -> [(&'static str, &'static [&'static Group]); 2] {
    [("Colmet", colmet::GROUPS), ("FrUCToSA", fructosa::GROUPS)]
}

/// The reference page.
pub fn reference() -> String {
    let mut page = String::from(
        "# Mapping to other programs

Every metric of Colmet (0.6.10, and the keys of its Rust nodes) and every sensor of FrUCToSA with the fields of psutil,
and the formula that computes its value here. Generated from `crates/sources/src/mapping` by `make docs`.

A formula contains our metrics, numbers, `+ - * /` and parentheses. A metric means the sum of its series; `{label=\"value\"}`
selects the series with this label. For a job, only its own series count. After `growth:` each counter means its growth
between two readings. `tests/node/sensors.rs` uses the formulas of this page to compare with psutil on the same machine.
",
    );
    for (program, groups) in programs() {
        // Writing into a `String` cannot fail.
        write!(page, "\n## {program}\n").ok();
        for group in groups {
            let Group { name, scope, note, rows } = group;
            let scope = match scope {
                Scope::Job => "Per job.",
                Scope::Node => "Per node.",
            };
            write!(page, "\n### {name}\n\n{scope} {note}\n\n| theirs | ours |\n|---|---|\n").ok();
            for Row { theirs, ours } in *rows {
                writeln!(page, "| `{theirs}` | {ours} |").ok();
            }
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SOURCES;
    use std::collections::BTreeSet;

    fn rows() -> impl Iterator<Item = (&'static Group, &'static Row)> {
        let groups = programs().into_iter().flat_map(|(_, groups)| groups.iter());
        groups.flat_map(|group| group.rows.iter().map(move |row| (*group, row)))
    }

    #[test]
    fn every_named_metric_exists() {
        let known: BTreeSet<&str> =
            SOURCES.iter().flat_map(|spec| spec.metrics).map(|metric| &*metric.name).collect();
        for (group, row) in rows() {
            let metrics = match &row.ours {
                Ours::Is(formula) | Ours::Grows(formula) => formula.metrics(),
                Ours::Label(metric, _) => vec![*metric],
                Ours::Position { .. } | Ours::JobsOfNode => continue,
                Ours::Not(why) => {
                    assert!(!why.is_empty());
                    continue;
                }
            };
            assert!(!metrics.is_empty());
            for metric in metrics {
                assert!(known.contains(metric), "{} {}: {metric}", group.name, row.theirs);
            }
        }
    }

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
