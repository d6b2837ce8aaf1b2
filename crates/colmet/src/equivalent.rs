//! Values of other programs, and their equivalents here: the parts of the tables.

use crate::formula::Formula;
use std::fmt;

/// A group of names of another program.
#[derive(Debug)]
pub struct Group {
    /// The other program's name for the group: a sensor.
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
    /// The value of the first formula with metrics of the node.
    FirstOf(&'static [Formula]),
    /// The formula's value, with each counter replaced by its growth between two readings.
    Grows(Formula),
    /// A label of a metric's series: metric, label.
    Label(&'static str, &'static str),
    /// The event that Colmet's option `--perfhw-list` names at this position, from 1.
    Event(u8),
    /// The jobs on the node: the server's allocations.
    JobsOfNode,
    /// No equivalent, and the reason.
    Not(&'static str),
}

impl Ours {
    /// The formulas of the equivalent, the preferred one first.
    pub fn formulas(&self) -> &[Formula] {
        match self {
            Self::Is(formula) | Self::Grows(formula) => std::slice::from_ref(formula),
            Self::FirstOf(all) => all,
            Self::Label(..) | Self::Event(_) | Self::JobsOfNode | Self::Not(_) => &[],
        }
    }
}

pub(crate) const fn is(theirs: &'static str, formula: Formula) -> Row {
    Row { theirs, ours: Ours::Is(formula) }
}

pub(crate) const fn grows(theirs: &'static str, formula: Formula) -> Row {
    Row { theirs, ours: Ours::Grows(formula) }
}

pub(crate) const fn label(theirs: &'static str, metric: &'static str, label: &'static str) -> Row {
    Row { theirs, ours: Ours::Label(metric, label) }
}

pub(crate) const fn not(theirs: &'static str, why: &'static str) -> Row {
    Row { theirs, ours: Ours::Not(why) }
}

/// As the reference page shows it.
impl fmt::Display for Ours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Is(formula) => write!(f, "`{formula}`"),
            Self::FirstOf(all) => {
                for (place, formula) in all.iter().enumerate() {
                    f.write_str(if place > 0 { ", else " } else { "" })?;
                    write!(f, "`{formula}`")?;
                }
                Ok(())
            }
            Self::Grows(formula) => write!(f, "growth: `{formula}`"),
            Self::Label(metric, label) => write!(f, "label `{label}` of `{metric}`"),
            Self::Event(position) => {
                write!(f, "event {position} of its `--perfhw-list`: see perfhw events")
            }
            Self::JobsOfNode => f.write_str("jobs of the node at any time: table `allocations`"),
            Self::Not(why) => write!(f, "nothing: {why}"),
        }
    }
}
