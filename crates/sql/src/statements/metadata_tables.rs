//! Small tables: jobs, their node time and allocations, gaps, counter starts, marks, promotions, devices and the
//! catalogue.

use crate::common::schema::{Column, Table};
use crate::statements::columns::Cell;
use crate::statements::scan_filter::ScanFilter;
use crate::statements::scan_request::query;
use crate::statements::worker::scan::Scope;
use jobs::{Filter, Interval, JobName, Window};
use model::{DeviceId, FactValue, JobId, JobKey, Timestamp};
use query::{AvailableFilter, DeviceFilter, QueryError, SeenMark, View, parse_time};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Maximum number of jobs that are looked up one by one.
const LOOKED_UP: usize = 1000;

/// Returns the rows of a table with all columns.
pub(crate) fn rows(
    table: Table,
    arguments: &[(String, String)],
    narrow: &ScanFilter,
    scope: &Scope,
) -> Result<Vec<Vec<Cell>>, QueryError> {
    match table {
        Table::AvailableMetrics => available_metrics(arguments, scope),
        Table::NodetimePerJob | Table::NodetimeByJob => nodetime(narrow, scope),
        Table::Jobs => jobs(narrow, scope),
        Table::Allocations => allocations(narrow, scope),
        Table::Gaps => gaps(scope),
        Table::CounterStarts => counter_starts(narrow, scope),
        Table::Marks => marks(narrow, scope),
        Table::Devices => devices(scope),
        Table::PromotedMetrics => promoted_metrics(scope),
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

/// Returns the intervals of at least the requested jobs: those of the reader's jobs with their shares of devices, or
/// those of which the reader may learn the times.
fn narrowed(narrow: &ScanFilter, scope: &Scope, shares: bool) -> Result<Vec<Interval>, QueryError> {
    let Filter { uid, ref device, from, to, .. } = narrow.jobs;
    let device = || device.clone();
    let window = |job| Window { job, uid, device: device(), from, to, shares, ..Window::default() };
    let intervals = |window: &Window| match shares {
        true => scope.engine.allocations(window, &scope.context),
        false => scope.engine.node_times(window, &scope.context),
    };
    let Some(ids) = few(narrow) else { return intervals(&window(None)) };
    let mut allocations = Vec::new();
    for id in ids {
        for key in scope.engine.registry().keys_of(*id)? {
            allocations.extend(intervals(&window(Some(key)))?);
        }
    }
    Ok(allocations)
}

/// Returns the requested job IDs, if they are few enough to look up each.
fn few(narrow: &ScanFilter) -> Option<&BTreeSet<JobId>> {
    narrow.ids.as_ref().filter(|ids| ids.len() <= LOOKED_UP)
}

fn available_metrics(
    arguments: &[(String, String)],
    scope: &Scope,
) -> Result<Vec<Vec<Cell>>, QueryError> {
    let given = |name: &str| arguments.iter().find(|(of, _)| of == name).map(|(_, text)| text);
    let (now, zone) = (scope.context.now, &scope.engine.settings().zone);
    let at = given("at").map(|text| parse_time(text, now, zone)).transpose()?;
    let params = given("params").map(|text| serde_json::from_str(text));
    let params = params.transpose().map_err(|_| QueryError::Params("params is a JSON object"))?;
    let only = AvailableFilter::parse(&params.unwrap_or_default())?;
    let found = scope.engine.available_metrics(at.unwrap_or(now), &only, &scope.context)?;
    let row = |(device, metric): (DeviceId, Arc<str>)| {
        vec![Cell::text(device.as_str()), Cell::Text(metric)]
    };
    Ok(found.into_iter().map(row).collect())
}

fn nodetime(narrow: &ScanFilter, scope: &Scope) -> Result<Vec<Vec<Cell>>, QueryError> {
    let row = |allocation: Interval| {
        let (key, stop) = (&allocation.key, Cell::maybe(allocation.stop, time));
        let node = Cell::text(allocation.device.as_str());
        vec![number(key), time(allocation.start), stop, node, cluster(key)]
    };
    Ok(narrowed(narrow, scope, false)?.into_iter().map(row).collect())
}

fn allocations(narrow: &ScanFilter, scope: &Scope) -> Result<Vec<Vec<Cell>>, QueryError> {
    let row = |allocation: Interval| {
        let (key, stop) = (&allocation.key, Cell::maybe(allocation.stop, time));
        let device = Cell::text(allocation.device.as_str());
        vec![
            number(key),
            time(allocation.run_start),
            device,
            time(allocation.start),
            stop,
            cluster(key),
            count(allocation.share.cpus),
            count(allocation.share.gpus),
            bytes(allocation.share.memory_bytes),
        ]
    };
    Ok(narrowed(narrow, scope, true)?.into_iter().map(row).collect())
}

fn jobs(narrow: &ScanFilter, scope: &Scope) -> Result<Vec<Vec<Cell>>, QueryError> {
    let registry = scope.engine.registry();
    let row = |job: model::Job| {
        let kills = registry.oom_kills_seen(scope.context.reader, &job)?;
        let end = query::how_it_ended(&job, kills.iter().flatten().copied().max());
        let (cause, detail) = end.map(|end| (end.cause, end.detail)).unzip();
        let detail = detail.filter(|detail| !detail.is_empty());
        let kills = kills.map(|kills| i64::try_from(kills.len()).unwrap_or(i64::MAX));
        let mut facts = job.facts.values().into_iter();
        let cell = |(name, ..): &(&str, Column, bool)| match *name {
            "job_id" => number(&job.key),
            "cluster" => cluster(&job.key),
            "display_id" => Cell::text(&job.display_id),
            "state" => Cell::text(job.state.word()),
            "submit_time" => Cell::maybe(job.submit, time),
            "start_time" => Cell::maybe(job.start, time),
            "stop_time" => Cell::maybe(job.stop, time),
            "end_cause" => Cell::maybe(cause.as_deref(), Cell::text),
            "end_detail" => Cell::maybe(detail.as_deref(), Cell::text),
            "oom_kills" => Cell::maybe(kills, Cell::Number),
            _ => facts.next().map_or(Cell::Missing, fact),
        };
        Ok::<_, QueryError>(Table::Jobs.columns().iter().map(cell).collect())
    };
    let runs = |filter: &Filter| scope.engine.every_run(filter, &scope.context);
    let Some(ids) = few(narrow) else {
        return runs(&narrow.jobs)?.into_iter().map(row).collect();
    };
    let mut rows = Vec::new();
    for id in ids {
        let one = Filter { id: Some(*id), ..narrow.jobs.clone() };
        for job in runs(&one)? {
            rows.push(row(job)?);
        }
    }
    Ok(rows)
}

fn count(count: Option<u32>) -> Cell {
    Cell::maybe(count, |count| Cell::Number(count.into()))
}

fn bytes(bytes: Option<u64>) -> Cell {
    Cell::maybe(bytes, |bytes| Cell::Number(i64::try_from(bytes).unwrap_or(i64::MAX)))
}

fn fact(value: FactValue<'_>) -> Cell {
    match value {
        FactValue::None => Cell::Missing,
        FactValue::Text(text) => Cell::text(&text),
        FactValue::Integer(number) => Cell::Number(number),
        FactValue::Real(number) => Cell::Value(number),
    }
}

fn gaps(scope: &Scope) -> Result<Vec<Vec<Cell>>, QueryError> {
    let ever = (Timestamp(i64::MIN), Timestamp(i64::MAX));
    let found = scope.engine.gaps(ever, None, &scope.context)?;
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

/// Maximum number of marks that a statement reads.
const MARKS_MAX: usize = 100_000;

/// Returns the marks of the statement's time range. The engine checks the other conditions.
fn marks(narrow: &ScanFilter, scope: &Scope) -> Result<Vec<Vec<Cell>>, QueryError> {
    if narrow.nothing {
        return Ok(Vec::new());
    }
    let span = (narrow.from, narrow.to);
    let found = scope.engine.marks(span, None, MARKS_MAX, &scope.context)?;
    if found.more {
        let what = format!(
            "more than {MARKS_MAX} marks, or 64 MiB of their text; limit the time range by \
             `timestamp`"
        );
        return Err(QueryError::TooMuch(what));
    }
    let row = |SeenMark { mark, nodes }: SeenMark| {
        let job = mark.job.as_deref().and_then(job_of);
        vec![
            time(mark.at),
            Cell::text(mark.kind.word()),
            Cell::Number(mark.number),
            Cell::text(&nodes),
            Cell::text(&mark.text),
            Cell::maybe(mark.by, |by| Cell::text(&by)),
            Cell::maybe(job.as_ref(), number),
            Cell::maybe(job.as_ref(), cluster),
        ]
    };
    Ok(found.marks.into_iter().map(row).collect())
}

/// Parses `CLUSTER:ID`. The file may contain other text that a person wrote.
fn job_of(text: &str) -> Option<JobKey> {
    let name: JobName = text.parse().ok()?;
    Some(JobKey { id: name.id()?, cluster: name.cluster? })
}

fn devices(scope: &Scope) -> Result<Vec<Vec<Cell>>, QueryError> {
    let text = |text: Option<String>| Cell::maybe(text.as_deref(), Cell::text);
    let mut rows = Vec::new();
    for one in scope.engine.devices(&DeviceFilter::default(), &scope.context)? {
        rows.push(vec![
            Cell::text(&one.device),
            text(one.poller),
            text(one.protocol),
            text(one.address),
            Cell::maybe(one.period_seconds, Cell::Value),
            Cell::text(one.state.word()),
            text(one.reason),
            Cell::maybe(one.last_good, instant),
            Cell::text(&one.aliases.join(",")),
        ]);
    }
    Ok(rows)
}

/// Returns the instant of a number of seconds since 1970.
#[expect(clippy::cast_possible_truncation, reason = "an instant of the store")]
fn instant(seconds: f64) -> Cell {
    Cell::Time((seconds * 1e6).round() as i64)
}

/// Returns a row for each promotion and named device; a list such as `n[1-9]` is one name.
fn promoted_metrics(scope: &Scope) -> Result<Vec<Vec<Cell>>, QueryError> {
    let mut rows = Vec::new();
    for one in scope.engine.promotions(&scope.context)? {
        let job = one.job.as_deref().and_then(job_of);
        for name in one.nodes.plain().unwrap_or_else(|| vec![one.nodes.as_str()]) {
            rows.push(vec![
                Cell::text(name),
                Cell::text(&one.metric),
                Cell::Number(one.number),
                Cell::text(one.origin.word()),
                Cell::text(&one.by),
                Cell::maybe(one.until, time),
                Cell::maybe(job.as_ref(), number),
                Cell::maybe(job.as_ref(), cluster),
            ]);
        }
    }
    Ok(rows)
}

fn catalogue(scope: &Scope) -> Vec<Vec<Cell>> {
    let row = |metric: Arc<model::Metric>| {
        let (unit, kind) = (metric.unit.word(), metric.kind.word());
        [&*metric.name, unit, kind, &*metric.help].map(Cell::text).to_vec()
    };
    scope.engine.store().catalogue().into_iter().map(row).collect()
}

fn counter_starts(narrow: &ScanFilter, scope: &Scope) -> Result<Vec<Vec<Cell>>, QueryError> {
    let Some(query) = query(View::Metrics, false, narrow, scope)? else {
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
    let starts = scope.engine.counter_starts(&query, &scope.context)?;
    Ok(starts.into_iter().map(row).collect())
}
