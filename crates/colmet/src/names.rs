//! Which metric a column is stored as, and which column a metric becomes.
//!
//! A value with the meaning of a metric of ours has that metric's name. Every column also has a metric of its own,
//! `colmet_<backend>_<column>…`, for values with another meaning, and for nodes where an agent reports, too
//! (decision 0062).

use crate::backends::{BACKENDS, Backend, Column, EVENTS};
use crate::counter_names::{Counter, CounterNames};
use crate::equivalent::Ours;
use crate::formula::{Scale, Selector};
use crate::record::Value;
use model::{Kind, Labels, Metric, Unit};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

/// How the values of a column are stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// The metric.
    pub metric: Metric,
    /// The labels of the series.
    pub labels: Labels,
    /// The factor between Colmet's unit and the metric's.
    pub scale: Scale,
    /// Each value is the growth since the previous message, and the counter is their sum.
    pub is_growth: bool,
}

impl Stored {
    /// A value in the metric's unit. `None` for texts, numbers that are not finite, and counts below 0, which are errors of
    /// the sender.
    pub fn value(&self, value: &Value) -> Option<f64> {
        let ours = self.scale.to_ours(value.number()?);
        let is_count = self.is_growth || self.metric.kind == Kind::Counter;
        Some(ours).filter(|ours| !is_count || *ours >= 0.0)
    }

    fn new(metric: Metric, scale: Scale, is_growth: bool) -> Self {
        // Steps of the metric are whole numbers of Colmet's, where its unit is a part of ours.
        let steps = u32::try_from(scale.times).ok().filter(|_| scale.over == 1).unwrap_or(1);
        Self { metric: metric.steps(steps), labels: Labels::default(), scale, is_growth }
    }

    fn with_labels(mut self, labels: &[(&str, &str)]) -> Option<Self> {
        self.labels = Labels::new(labels.iter().copied()).ok()?.printable();
        Some(self)
    }
}

/// How the values of a column are stored. `None`: they are not samples, or the host's hardware lacks the counter.
/// `has_agent`: the node's own agent reports, too, so that no value has a name of ours.
pub fn stored(
    backend: &'static Backend,
    column: &'static Column,
    names: &CounterNames,
    has_agent: bool,
) -> Option<Stored> {
    match (names.get(backend, column), &column.row.ours) {
        (Some(Counter::NotSupported | Counter::Nothing), _) => return None,
        (Some(Counter::Event(place)), _) => {
            return stored(&EVENTS, EVENTS.columns.get(*place)?, names, has_agent);
        }
        (None | Some(Counter::Range(..)), _) if column.number().is_some() => {
            return own(backend, column);
        }
        _ if has_agent || backend.differs.is_some() => return own(backend, column),
        (_, Ours::Is(_) | Ours::FirstOf(_) | Ours::Grows(_)) => {}
        _ => return own(backend, column),
    }
    let (selector, scale) = column.row.ours.formulas().first()?.inverse()?;
    let is_growth = matches!(column.row.ours, Ours::Grows(_));
    let assumed = |name| Some(Stored::new(Metric::assumed(name).ok()?, scale, is_growth));
    match names.get(backend, column) {
        Some(Counter::Energy(zone, package)) => {
            let package = package.strip_prefix("package-").unwrap_or(package);
            assumed(zone.metric())?.with_labels(&[("package", package)])
        }
        Some(Counter::Temperature(zone, kind)) => {
            let zone = zone.to_string();
            assumed(selector.metric)?.with_labels(&[("zone", &zone), ("type", kind)])
        }
        _ => {
            let labels: Vec<_> = selector.label.into_iter().collect();
            assumed(selector.metric)?.with_labels(&labels)
        }
    }
}

/// The metric of a column's own; `None` for texts.
pub fn own(backend: &Backend, column: &Column) -> Option<Stored> {
    let ours = &column.row.ours;
    let (unit, kind, scale) = match (&column.apart, ours.formulas().first()) {
        (Some(apart), _) => *apart,
        (None, Some(formula)) => {
            let metric = *formula.metrics().first()?;
            (Unit::of_name(metric), Kind::of_name(metric), formula.scale()?)
        }
        (None, None) if matches!(ours, Ours::Event(_)) => (Unit::Count, Kind::Counter, Scale::ONE),
        (None, None) => return None,
    };
    let is_growth = matches!(ours, Ours::Grows(_) | Ours::Event(_));
    // Values of other meanings may fall.
    let kind = if backend.differs.is_some() { Kind::Gauge } else { kind };
    let metric = Metric {
        name: Cow::Owned(own_name(backend, column, unit, kind)),
        unit,
        kind,
        help: Cow::Owned(help(backend, column)),
        divisor: 1,
        assumed: false,
    };
    Some(Stored::new(metric, scale, is_growth))
}

fn own_name(backend: &Backend, column: &Column, unit: Unit, kind: Kind) -> String {
    let name = column.row.theirs.to_lowercase().replace('-', "_");
    let name = name.strip_suffix("_total").unwrap_or(&name);
    let word = match unit.word() {
        "" => String::new(),
        word => format!("_{word}"),
    };
    let name = name.strip_suffix(&word).unwrap_or(name);
    let total = if kind == Kind::Counter { "_total" } else { "" };
    format!("colmet_{}_{name}{word}{total}", backend.word)
}

/// One sentence that states why the value has no name of ours.
fn help(backend: &Backend, column: &Column) -> String {
    let theirs = format!("`{}` of Colmet's {}", column.row.theirs, backend.id);
    match (backend.differs, &column.row.ours) {
        (Some(why), _) => format!("{theirs}; not the same as ours: {why}."),
        (None, Ours::Not(why)) => format!("{theirs}; ours do not include it: {why}."),
        (None, _) if column.number().is_some() => {
            format!("{theirs}; its meaning is known only with the host's mapping file.")
        }
        (None, _) => format!("{theirs}; stored apart, because the node's own agent reports, too."),
    }
}

/// The column with this metric of its own.
pub fn column_of(metric: &str) -> Option<(&'static Backend, &'static Column)> {
    type Columns = HashMap<String, (&'static Backend, &'static Column)>;
    static COLUMNS: LazyLock<Columns> = LazyLock::new(|| {
        let all = BACKENDS.iter().flat_map(|backend| {
            backend.columns.iter().filter_map(move |column| {
                Some((own(backend, column)?.metric.name.into_owned(), (*backend, column)))
            })
        });
        all.collect()
    });
    COLUMNS.get(metric).copied()
}

/// Samples at the instant of a record.
#[derive(Clone, Copy)]
pub struct Samples<'a> {
    /// The sum of a metric's latest values.
    pub value: &'a dyn Fn(Selector<'_>) -> Option<f64>,
    /// The sum of a counter's growths since the previous record.
    pub growth: &'a dyn Fn(Selector<'_>) -> Option<f64>,
}

impl std::fmt::Debug for Samples<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Samples")
    }
}

/// The value of a column, from samples of our metrics. `events` are the columns of [`EVENTS`] that the options list. `None`
/// without samples, and where the column has no equivalent.
pub fn computed(column: &Column, events: &[&Column], samples: Samples<'_>) -> Option<Value> {
    let (formulas, value) = match &column.row.ours {
        Ours::Event(position) => {
            let event = events.get(usize::from(*position).checked_sub(1)?)?;
            return computed(event, &[], samples);
        }
        Ours::Grows(_) => (column.row.ours.formulas(), samples.growth),
        _ => (column.row.ours.formulas(), samples.value),
    };
    let mut found = formulas.iter().filter_map(|one| one.compute(column.row.theirs, value));
    Value::of(column.kind, found.next()?)
}

/// The value of a column, from one of its own metric; of a growth, from the counter's growth. So data that arrived through
/// Colmet leaves as it arrived.
pub fn returned(backend: &Backend, column: &Column, ours: f64) -> Option<Value> {
    Value::of(column.kind, own(backend, column)?.scale.to_theirs(ours))
}
