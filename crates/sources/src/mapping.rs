//! What others call what is measured here: every metric of Colmet and every sensor of FrUCToSA, by field of
//! psutil, with the conversion from our metrics. `docs/reference/mapping.md` is generated from it, and the
//! test beside psutil computes what it compares by the formulas of that page.

mod colmet;
mod fructosa;

use std::fmt::Write as _;

/// Names of another program that belong together.
#[derive(Debug)]
pub struct Group {
    /// What the others call them together: a record, a sensor.
    pub name: &'static str,
    /// What is to be said of all of them.
    pub note: &'static str,
    /// Each name once, in the others' order.
    pub rows: &'static [Row],
}

/// A name of another program.
#[derive(Debug)]
pub struct Row {
    /// The name.
    pub theirs: &'static str,
    /// What it is here.
    pub ours: Ours,
}

/// What another program's value is here.
#[derive(Debug)]
pub enum Ours {
    /// The formula's value.
    Is(&'static str),
    /// The formula's value with the growth of each counter between two readings in its place.
    Grows(&'static str),
    /// A label of a metric's series: metric, label.
    Label(&'static str, &'static str),
    /// Nothing, and why.
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
    /// The metrics that it names.
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

/// The words of a formula that are metrics: neither numbers nor within braces.
fn names(formula: &'static str) -> impl Iterator<Item = &'static str> {
    let outside = formula.split(['{', '}']).step_by(2);
    let words = outside.flat_map(|part| part.split([' ', '(', ')']));
    words.filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase()))
}

/// All groups of a program, by its name.
pub fn programs() -> [(&'static str, &'static [&'static Group]); 2] {
    [("Colmet", colmet::GROUPS), ("FrUCToSA", fructosa::GROUPS)]
}

/// The page of all of it.
pub fn reference() -> String {
    let mut page = String::from(
        "# What others call it

Every metric of Colmet (0.6.10, and the keys of its Rust nodes) and every sensor of FrUCToSA with the fields of psutil,
and how its value is computed here. Generated from `crates/sources/src/mapping` by `make docs`.

A formula has our metrics, numbers, `+ - * /` and parentheses. A metric stands for the sum of its series, `{label=\"value\"}`
behind it for those that have this label; of a job, its series of that job. After `growth:` a counter stands for what it grew by
between two readings. `tests/sensors.rs` computes by the formulas of this page what it compares with psutil on the same machine.
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
    fn every_metric_that_is_named_is_there() {
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
    fn words_of_a_formula() {
        let of = |formula| names(formula).collect::<Vec<_>>();
        assert_eq!(of("100 * (a_b - c{cpu=\"N\"}) / d"), ["a_b", "c", "d"]);
        assert_eq!(of("7"), [""; 0]);
    }
}
