//! Which columns a metric is part of.

use crate::records::layout::Layout;
use colmet::backends::{BACKENDS, Backend, Column, PROCSTATS};
use colmet::equivalent::Ours;
use colmet::formula::Selector;
use colmet::names;
use model::Labels;
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// The metrics of Python nodes' backends: the formats of the collector have their records.
#[derive(Debug)]
pub(super) struct Columns {
    uses: FxHashMap<Box<str>, Vec<Use>>,
}

/// What a metric is in the records of one backend.
#[derive(Debug)]
pub(super) struct Use {
    pub(super) backend: &'static Backend,
    /// Whether its samples have records at their instants. Others only complete those.
    pub(super) opens: bool,
    /// Whether the record has the growth since the previous sample.
    pub(super) is_growth: bool,
    operands: Vec<Operand>,
}

/// The series of a metric that a column sums.
#[derive(Debug)]
struct Operand {
    label: Option<(&'static str, Box<str>)>,
    key: Box<str>,
}

impl Columns {
    pub(super) fn new(layout: &Layout) -> Self {
        let mut uses: BTreeMap<(String, &str), Use> = BTreeMap::new();
        let mut add = |backend, metric: &str, is_growth, operand: Operand| {
            let opens = opens(backend, metric);
            let new = || Use { backend, opens, is_growth, operands: Vec::new() };
            let one = uses.entry((metric.to_owned(), backend.id)).or_insert_with(new);
            if one.operands.iter().all(|known| known.key != operand.key) {
                one.operands.push(operand);
            }
        };
        for backend in BACKENDS.into_iter().filter(|backend| backend.is_of_python()) {
            for column in backend.columns {
                for (metric, is_growth, operand) in operands(column, layout) {
                    add(backend, metric, is_growth, operand);
                }
                if let Some(own) = names::own(backend, column) {
                    let name = &*own.metric.name;
                    add(backend, name, own.is_growth, Operand { label: None, key: name.into() });
                }
            }
        }
        let mut by_metric: FxHashMap<Box<str>, Vec<Use>> = FxHashMap::default();
        for ((metric, _), one) in uses {
            by_metric.entry(metric.into()).or_default().push(one);
        }
        Self { uses: by_metric }
    }

    pub(super) fn uses(&self, metric: &str) -> &[Use] {
        self.uses.get(metric).map_or(&[], Vec::as_slice)
    }
}

impl Use {
    /// The sums that a series with these labels is part of.
    pub(super) fn keys(&self, labels: &Labels) -> Vec<&str> {
        let is_part = |operand: &&Operand| match &operand.label {
            None => true,
            Some((name, value)) => labels.get(name).as_deref() == Some(value),
        };
        self.operands.iter().filter(is_part).map(|operand| &*operand.key).collect()
    }
}

/// Whether the records of a backend follow the instants of a metric: all but procstats follow each of theirs, procstats those
/// of `cpu`.
pub(super) fn opens(backend: &Backend, metric: &str) -> bool {
    *backend != PROCSTATS || metric.starts_with("cpu_") || is_own(metric)
}

/// Whether it is the metric of a column's own: its samples came through Colmet.
pub(super) fn is_own(metric: &str) -> bool {
    metric.starts_with("colmet_")
}

/// The name of a sum; it begins with the metric's.
pub(super) fn key(selector: Selector<'_>) -> String {
    match selector.label {
        None => selector.metric.to_owned(),
        Some((label, value)) => format!("{}{{{label}={value}}}", selector.metric),
    }
}

/// What a column is computed from, with its metric, and whether that is a growth.
fn operands(column: &Column, layout: &Layout) -> Vec<(&'static str, bool, Operand)> {
    let column = match &column.row.ours {
        Ours::Event(position) => {
            let event = usize::from(*position).checked_sub(1);
            match event.and_then(|event| layout.events.get(event)) {
                Some(event) => event,
                None => return Vec::new(),
            }
        }
        _ => column,
    };
    let is_growth = matches!(column.row.ours, Ours::Grows(_));
    let found = RefCell::new(Vec::new());
    for formula in column.row.ours.formulas() {
        // A formula asks for all its operands.
        formula.compute(column.row.theirs, &|selector| {
            let label = selector.label.map(|(name, value)| (name, value.into()));
            let operand = Operand { label, key: key(selector).into() };
            found.borrow_mut().push((selector.metric, is_growth, operand));
            Some(1.0)
        });
    }
    found.into_inner()
}
