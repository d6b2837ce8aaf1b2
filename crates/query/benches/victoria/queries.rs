//! Three queries to both in turn, with JSON answers: jobmeter in this process, VictoriaMetrics over loopback.

use crate::agents::T0;
use crate::measure::print_line;
use crate::peer::Peer;
use crate::{METRICS, NODES};
use jobs::{Reader, Registry};
use model::{DeviceId, Timestamp};
use query::{Format, GetMetrics, QueryContext, QueryEngine, RangeQuery, Rate, Settings};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use storage::Selector;
use store::Store;

const RUNS: u64 = 40;
const BEGIN: i64 = T0 / Timestamp::SECOND;
const HOUR: i64 = 3600 * Timestamp::SECOND;

/// The nodes of the job.
const JOB: u64 = 50;
const _: () = assert!(JOB <= NODES);

pub(crate) fn run_query(store: Store, peer: &Peer, dir: &Path) {
    let path = dir.join("registry.sqlite");
    let registry = Registry::open(&path, jobs::Limits::default(), jobs::Users::default).unwrap();
    let engine = QueryEngine::new(Arc::new(store), Arc::new(registry), Settings::default());
    let context = QueryContext::new(Reader::Everything, Timestamp(T0 + HOUR));
    let queries = BenchQueries { engine, context, peer };
    queries.compare();
    let (series, rows) = (METRICS * NODES, METRICS * 3600);
    print_line(&format!("asked, {RUNS} times in turn, answers as JSON; theirs over loopback"));
    let json = |range: &api::Range| api::to_json(range).unwrap().len();
    turns(
        &format!("one node, one hour, {rows} samples"),
        &[
            ("ours, row by row", &|run| queries.hour(&node(run)).len()),
            ("ours, by series", &|run| json(&queries.series(&node(run)))),
            ("theirs, by series", &|run| queries.their_hour(&node(run)).len()),
        ],
    );
    let points = METRICS * JOB * 60;
    turns(
        &format!("a job of {JOB} nodes, one hour, steps of 60 s, {points} points"),
        &[("ours", &|_| json(&queries.job())), ("theirs", &|_| queries.their_job().len())],
    );
    turns(
        &format!("last values of all nodes, {series} series"),
        &[
            ("ours", &|_| api::to_json(&queries.last()).unwrap().len()),
            ("theirs", &|_| queries.their_last().len()),
        ],
    );
    turns("nothing: loopback and HTTP alone", &[("theirs", &|_| peer.get("/health").len())]);
}

/// A name, and a function that runs the query of a run and returns the answer's size in bytes.
type Answer<'a> = (&'a str, &'a dyn Fn(u64) -> usize);

/// Runs the queries in turn and prints the times of each.
fn turns(what: &str, answers: &[Answer<'_>]) {
    print_line(&format!("  {what}"));
    let mut all = vec![(Vec::new(), 0); answers.len()];
    for run in 0..RUNS {
        for ((_, run_query), (times, bytes)) in answers.iter().zip(&mut all) {
            let begin = Instant::now();
            *bytes = run_query(run);
            times.push(begin.elapsed().as_secs_f64() * 1e3);
        }
    }
    for ((name, _), (mut times, bytes)) in answers.iter().zip(all) {
        times.sort_by(f64::total_cmp);
        let at = |place: usize| times.get(place).copied().unwrap();
        print_line(&format!(
            "    {name:17} least {:.2} ms, median {:.2} ms, most {:.2} ms; {bytes} bytes",
            at(0),
            at(times.len() / 2),
            at(times.len() - 1)
        ));
    }
}

fn node(run: u64) -> String {
    format!("node-{:04}", run * 13 % NODES)
}

struct BenchQueries<'a> {
    engine: QueryEngine,
    context: QueryContext,
    peer: &'a Peer,
}

impl BenchQueries<'_> {
    fn hour(&self, node: &str) -> Vec<u8> {
        let (from, to) = (BEGIN.to_string(), (BEGIN + 3599).to_string());
        let pairs = [("nodes", node), ("start_time", &*from), ("end_time", &*to)];
        let query = GetMetrics::from_pairs(pairs).unwrap();
        let pieces = self.engine.get_metrics(&query, Format::Json, &self.context).unwrap();
        let mut answer = Vec::new();
        pieces.for_each(|piece| answer.extend_from_slice(&piece.unwrap()));
        answer
    }

    fn their_hour(&self, node: &str) -> Vec<u8> {
        let select = format!("{{node=\"{node}\"}}");
        let (from, to) = (BEGIN.to_string(), (BEGIN + 3599).to_string());
        let pairs = [("match[]", &*select), ("start", &*from), ("end", &*to)];
        self.peer.form("/api/v1/export", &pairs)
    }

    fn range(&self, nodes: impl Iterator<Item = String>, step: i64, rate: Rate) -> api::Range {
        let devices = nodes.map(|name| DeviceId::new(&name).unwrap()).collect();
        let select = Selector { devices: Some(devices), ..Selector::default() };
        let (from, to) = (Timestamp(T0), Timestamp(T0 + HOUR - 1));
        let query = RangeQuery { select, from, to, step_us: step * Timestamp::SECOND, rate };
        self.engine.range(&query, &self.context).unwrap()
    }

    fn series(&self, node: &str) -> api::Range {
        self.range([node.to_owned()].into_iter(), 0, Rate::Raw)
    }

    fn job(&self) -> api::Range {
        self.range((0..JOB).map(|number| format!("node-{number:04}")), 60, Rate::Counters)
    }

    /// Gauges as means, counters as rates, as in jobmeter's query.
    fn their_job(&self) -> Vec<u8> {
        let nodes: Vec<String> = (0..JOB).map(|number| format!("node-{number:04}")).collect();
        let nodes = nodes.join("|");
        let query = format!(
            "union(avg_over_time({{__name__=~\"bench_metric.*\",__name__!~\".*_total\",node=~\"{nodes}\"}}[60s]) \
             keep_metric_names, rate({{__name__=~\"bench_metric.*_total\",node=~\"{nodes}\"}}[60s]) \
             keep_metric_names)"
        );
        let (from, to) = ((BEGIN + 60).to_string(), (BEGIN + 3600).to_string());
        let pairs = [("query", &*query), ("start", &*from), ("end", &*to), ("step", "60")];
        self.peer.form("/api/v1/query_range", &pairs)
    }

    fn last(&self) -> Vec<api::Last> {
        self.engine.last(&Selector::default(), &self.context).unwrap()
    }

    fn their_last(&self) -> Vec<u8> {
        let query = "last_over_time({__name__=~\"bench_metric.*\"}[300s]) keep_metric_names";
        let time = (BEGIN + 3600).to_string();
        self.peer.form("/api/v1/query", &[("query", query), ("time", &time)])
    }

    /// Checks that both return all samples of one node, with the same number of points and the same values.
    /// Reports how many samples VictoriaMetrics, which stores decimals, returns with different bits.
    fn compare(&self) {
        let node = node(0);
        let rows: Vec<Value> = serde_json::from_slice(&self.hour(&node)).unwrap();
        let mut ours: BTreeMap<(String, i64), f64> = BTreeMap::new();
        let second = |text: &str| Timestamp::parse(text).unwrap().0 / Timestamp::SECOND;
        for row in &rows {
            let text = |key: &str| row.get(key).and_then(Value::as_str).unwrap();
            let value = row.get("value").and_then(Value::as_f64).unwrap();
            ours.insert((text("metric_id").to_owned(), second(text("timestamp"))), value);
        }
        let (mut same, mut other) = (0, 0);
        for line in String::from_utf8(self.their_hour(&node)).unwrap().lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let name = line.pointer("/metric/__name__").and_then(Value::as_str).unwrap();
            let list = |key: &str| line.get(key).and_then(Value::as_array).unwrap();
            for (at, value) in list("timestamps").iter().zip(list("values")) {
                let (at, value) = (at.as_i64().unwrap() / 1000, value.as_f64().unwrap());
                let own = *ours.get(&(name.to_owned(), at)).unwrap();
                assert!((own - value).abs() <= own.abs() * 1e-9, "{name} at {at}: {own}, {value}");
                let count = if own.to_bits() == value.to_bits() { &mut same } else { &mut other };
                *count += 1;
            }
        }
        let samples = usize::try_from(METRICS * 3600).unwrap();
        assert_eq!((rows.len(), ours.len(), same + other), (samples, samples, samples));
        print_line(&format!(
            "of {samples} samples of a node theirs gives back {other} in other bits"
        ));
        let points = |range: api::Range| -> usize {
            range.series.iter().map(|series| series.times.len()).sum()
        };
        assert_eq!(points(self.series(&node)), samples);
        let theirs: Value = serde_json::from_slice(&self.their_job()).unwrap();
        let series = theirs.pointer("/data/result").and_then(Value::as_array).unwrap();
        let of = |one: &Value| one.get("values").and_then(Value::as_array).unwrap().len();
        let wanted = usize::try_from(METRICS * JOB * 60).unwrap();
        assert_eq!((points(self.job()), series.iter().map(of).sum::<usize>()), (wanted, wanted));
        let theirs: Value = serde_json::from_slice(&self.their_last()).unwrap();
        let last = theirs.pointer("/data/result").and_then(Value::as_array).unwrap().len();
        let wanted = usize::try_from(METRICS * NODES).unwrap();
        assert_eq!((self.last().len(), last), (wanted, wanted));
    }
}
