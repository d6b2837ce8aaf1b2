//! The tables that are small: jobs and where they were, gaps, starts of counters, the catalogue.

use crate::columns::Cell;
use crate::meant::question;
use crate::narrow::Narrow;
use crate::provider::Scope;
use crate::schema::Table;
use jobs::{Filter, Interval, Window};
use model::{JobKey, Timestamp};
use query::{QueryError, View};
use std::sync::Arc;

/// The rows of a table, all columns of each.
pub(crate) fn rows(
    table: Table,
    narrow: &Narrow,
    scope: &Scope,
) -> Result<Vec<Vec<Cell>>, QueryError> {
    match table {
        Table::NodetimePerJob | Table::NodetimeByJob => nodetime(scope),
        Table::Jobs => jobs(scope),
        Table::Allocations => allocations(scope),
        Table::Gaps => gaps(scope),
        Table::CounterStarts => counter_starts(narrow, scope),
        _ => Ok(catalogue(scope)),
    }
}

fn number(job: &JobKey) -> Cell {
    Cell::Number(job.id.get())
}

fn cluster(job: &JobKey) -> Cell {
    Cell::text(job.cluster.as_str())
}

fn time(at: Timestamp) -> Cell {
    Cell::Time(at.0)
}

fn stays(scope: &Scope) -> Result<Vec<Interval>, QueryError> {
    scope.questions.stays(&Window::default(), &scope.asker)
}

fn nodetime(scope: &Scope) -> Result<Vec<Vec<Cell>>, QueryError> {
    let row = |stay: Interval| {
        let (key, stop) = (&stay.key, Cell::maybe(stay.stop, time));
        let node = Cell::text(stay.device.as_str());
        vec![number(key), time(stay.start), stop, node, cluster(key)]
    };
    Ok(stays(scope)?.into_iter().map(row).collect())
}

fn allocations(scope: &Scope) -> Result<Vec<Vec<Cell>>, QueryError> {
    let row = |stay: Interval| {
        let (key, stop) = (&stay.key, Cell::maybe(stay.stop, time));
        let device = Cell::text(stay.device.as_str());
        vec![number(key), time(stay.run_start), device, time(stay.start), stop, cluster(key)]
    };
    Ok(stays(scope)?.into_iter().map(row).collect())
}

fn jobs(scope: &Scope) -> Result<Vec<Vec<Cell>>, QueryError> {
    let text = |text: Option<Box<str>>| Cell::maybe(text, |text| Cell::text(&text));
    let row = |job: model::Job| {
        let types = (!job.types.is_empty()).then(|| job.types.join("\n").into());
        let mut row = vec![
            number(&job.key),
            cluster(&job.key),
            Cell::text(&job.spelling),
            text(job.user),
            Cell::maybe(job.uid, |uid| Cell::Number(uid.into())),
            text(job.account),
            text(job.name),
            Cell::text(job.state.word()),
            Cell::maybe(job.start, time),
            Cell::maybe(job.stop, time),
            Cell::maybe(job.exit_code, |code| Cell::Number(code.into())),
            text(job.project),
            text(job.queue),
            text(job.state_word),
            Cell::maybe(job.submit, time),
            Cell::maybe(job.part_of, Cell::Number),
            Cell::maybe(job.array_index, Cell::Number),
            text(types),
        ];
        row.extend(resources(&job.requested));
        row.extend(resources(&job.used));
        row
    };
    let runs = scope.questions.every_run(&Filter::default(), &scope.asker)?;
    Ok(runs.into_iter().map(row).collect())
}

fn resources(of: &model::Resources) -> [Cell; 6] {
    let count = |count: Option<u32>| Cell::maybe(count, |count| Cell::Number(count.into()));
    let bytes = of.memory_bytes.map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX));
    [
        count(of.nodes),
        count(of.cpus),
        count(of.gpus),
        Cell::maybe(bytes, Cell::Number),
        Cell::maybe(of.wall_seconds, Cell::Value),
        Cell::maybe(of.cpu_seconds, Cell::Value),
    ]
}

fn gaps(scope: &Scope) -> Result<Vec<Vec<Cell>>, QueryError> {
    let ever = (Timestamp(i64::MIN), Timestamp(i64::MAX));
    let found = scope.questions.gaps(ever, None, &scope.asker)?;
    let row = |gap: model::Gap| {
        vec![
            Cell::text(gap.origin.as_str()),
            Cell::text(gap.device.as_str()),
            Cell::text(&gap.source),
            time(gap.from),
            time(gap.to),
            Cell::text(gap.cause.words()),
            Cell::text(&gap.detail),
        ]
    };
    Ok(found.into_iter().map(row).collect())
}

fn catalogue(scope: &Scope) -> Vec<Vec<Cell>> {
    let row = |metric: Arc<model::Metric>| {
        let (unit, kind) = (metric.unit.word(), metric.kind.word());
        [&*metric.name, unit, kind, &*metric.help].map(Cell::text).to_vec()
    };
    scope.questions.store().catalogue().into_iter().map(row).collect()
}

fn counter_starts(narrow: &Narrow, scope: &Scope) -> Result<Vec<Vec<Cell>>, QueryError> {
    let Some(question) = question(View::Metrics, false, narrow, scope)? else {
        return Ok(Vec::new());
    };
    let row = |row: query::StartRow| {
        let (line, job) = (&row.line, row.line.job.as_ref());
        vec![
            time(row.at),
            Cell::text(line.device.as_str()),
            Cell::Text(Arc::clone(&line.metric)),
            Cell::Text(Arc::clone(&line.labels)),
            time(row.start),
            Cell::maybe(job, number),
            Cell::maybe(job, cluster),
        ]
    };
    let starts = scope.questions.counter_starts(&question, &scope.asker)?;
    Ok(starts.into_iter().map(row).collect())
}
