//! One record from the samples of an instant.

use crate::records::columns::{is_own, key, opens};
use crate::records::held::{Entity, Stream};
use crate::records::layout::Layout;
use colmet::backends::{Backend, Column};
use colmet::equivalent::Ours;
use colmet::formula::Selector;
use colmet::names::{self, Samples};
use colmet::record::Value;

/// The values of a record of the node or of a job at an instant, by columns. `None`: it has none there.
pub(super) fn values(
    backend: &'static Backend,
    (stream, entity): (&Stream, &Entity),
    at: i64,
    layout: &Layout,
) -> Option<Vec<Option<Value>>> {
    let at_instant = |key: &str| {
        let sum = entity.sums.get(key)?;
        (sum.at == at).then(|| sum.value())
    };
    let has_ours =
        entity.sums.iter().any(|(key, sum)| sum.at == at && !is_own(key) && opens(backend, key));
    let ours = |column| has_ours.then(|| computed(backend, column, (stream, entity), at, layout));
    let ours: Vec<_> = backend.columns.iter().map(|column| ours(column).flatten()).collect();
    let own = |column| {
        let metric = names::own(backend, column)?.metric.name;
        names::returned(backend, column, at_instant(&metric)?)
    };
    let mut own: Vec<_> = backend.columns.iter().map(own).collect();
    let has_both = ours.iter().zip(&own).any(|(ours, own)| ours.is_some() && own.is_some());
    // Where the node's own agent reports, Colmet's values of the backend are not sent.
    if has_both || (!has_ours && stream.has_agent(at)) {
        own.fill(None);
    }
    let values: Vec<_> = ours.into_iter().zip(own).map(|(ours, own)| ours.or(own)).collect();
    values.iter().any(Option::is_some).then_some(values)
}

/// The value of a column from metrics of ours.
fn computed(
    backend: &Backend,
    column: &Column,
    (stream, entity): (&Stream, &Entity),
    at: i64,
    layout: &Layout,
) -> Option<Value> {
    let recent = |selector: Selector<'_>| {
        let sum = entity.sums.get(&*key(selector))?;
        stream.is_recent(source(selector.metric), sum.at, at).then(|| sum.value())
    };
    let exact = |selector: Selector<'_>| {
        let sum = entity.sums.get(&*key(selector))?;
        (sum.at == at).then(|| sum.value())
    };
    if let Ours::FirstOf(all) = &column.row.ours {
        // The records follow the instants of the first that the node has, so its last value counts although it has a record.
        let theirs = column.row.theirs;
        let first = all.iter().find(|formula| formula.compute(theirs, &recent).is_some())?;
        return Value::of(column.kind, first.compute(theirs, &exact)?);
    }
    let value = |selector: Selector<'_>| {
        if opens(backend, selector.metric) { exact(selector) } else { recent(selector) }
    };
    // Of a counter that records have as growth, the growth is held.
    names::computed(column, &layout.events, Samples { value: &value, growth: &value })
}

/// The source of a metric: the first word of its name.
pub(crate) fn source(metric: &str) -> &str {
    metric.split('_').next().unwrap_or_default()
}
