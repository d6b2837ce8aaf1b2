//! Mapping to other programs: every metric of Colmet, and every sensor of FrUCToSA by field of
//! psutil, with the formula over our metrics. `docs/reference/mapping.md` is generated from it, and the
//! comparison test with psutil computes its values by the formulas of that page.

mod colmet;
mod fructosa;

use std::fmt::Write as _;

/// A group of names of another program.
#[derive(Debug)]
pub struct Group {
    /// The other program's name for the group: a record, a sensor.
    pub name: &'static str,
    /// Note about the whole group.
    pub note: &'static str,
    /// Each name once, in the other program's order.
    pub rows: &'static [Row],
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
    Is(&'static str),
    /// The formula's value, with each counter replaced by its growth between two readings.
    Grows(&'static str),
    /// A label of a metric's series: metric, label.
    Label(&'static str, &'static str),
    /// No equivalent, and the reason.
    Not(&'static str),
}

const fn is(theirs: &'static str, formula: &'static str) -> Row {
    Row { theirs, ours: Ours::Is(formula) }
}

const fn grows(theirs: &'static str, formula: &'static str) -> Row {
    Row { theirs, ours: Ours::Grows(formula) }
}

const fn label(theirs: &'static str, metric: &'static str, label: &'static str) -> Row {
    Row { theirs, ours: Ours::Label(metric, label) }
}

const fn not(theirs: &'static str, why: &'static str) -> Row {
    Row { theirs, ours: Ours::Not(why) }
}

impl Ours {
    /// The metrics in the formula.
    pub fn metrics(&self) -> Vec<&'static str> {
        match self {
            Self::Is(formula) | Self::Grows(formula) => names(formula).collect(),
            Self::Label(metric, _) => vec![*metric],
            Self::Not(_) => Vec::new(),
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::Is(formula) => format!("`{formula}`"),
            Self::Grows(formula) => format!("growth: `{formula}`"),
            Self::Label(metric, label) => format!("label `{label}` of `{metric}`"),
            Self::Not(why) => format!("nothing: {why}"),
        }
    }
}

/// The metrics in a formula: words that are neither numbers nor within braces.
fn names(formula: &'static str) -> impl Iterator<Item = &'static str> {
    let outside = formula.split(['{', '}']).step_by(2);
    let words = outside.flat_map(|part| part.split([' ', '(', ')']));
    words.filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase()))
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
            write!(
                page,
                "\n### {}\n\n{}\n\n| theirs | ours |\n|---|---|\n",
                group.name, group.note
            )
            .ok();
            for Row { theirs, ours } in group.rows {
                writeln!(page, "| `{theirs}` | {} |", ours.shown()).ok();
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
            let metrics = row.ours.metrics();
            assert!(!metrics.is_empty() || matches!(row.ours, Ours::Not(why) if !why.is_empty()));
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

    #[test]
    fn metrics_of_a_formula() {
        let of = |formula| names(formula).collect::<Vec<_>>();
        assert_eq!(of("100 * (a_b - c{cpu=\"N\"}) / d"), ["a_b", "c", "d"]);
        assert_eq!(of("7"), [""; 0]);
    }
}
