//! SQL statements: each table of `docs/reference/tables.md`, each line of `docs/reference/sql-kwollect.md`, and others.

use super::requests::Request;
use super::samples::Times;
use crate::repository::layers::repository;
use api::Operation;

/// A table.
pub(super) struct Table {
    pub(super) name: &'static str,
    /// The column that bounds the rows to those of the past.
    pub(super) time: Option<&'static str>,
    /// The compared columns, if others contain the clock of the server.
    pub(super) columns: Option<&'static str>,
}

const fn table(name: &'static str, time: &'static str) -> Table {
    Table { name, time: Some(time), columns: None }
}

const fn whole(name: &'static str, columns: Option<&'static str>) -> Table {
    Table { name, time: None, columns }
}

pub(super) const TABLES: &[Table] = &[
    table("metrics", "timestamp"),
    table("metrics_by_device", "timestamp"),
    table("metrics_by_job", "timestamp"),
    table("metrics_summary", "timestamp"),
    table("metrics_by_device_summary", "timestamp"),
    table("metrics_by_job_summary", "timestamp"),
    whole("nodetime_per_job", None),
    whole("nodetime_by_job", None),
    whole("jobs", None),
    whole("allocations", None),
    whole("gaps", None),
    table("counter_starts", "timestamp"),
    // `timestamp` is the server's clock at the request.
    whole("marks", Some("kind,id,nodes,text,actor,job_id,cluster")),
    whole("devices", None),
    // `until_time` counts from the server's clock at the request.
    whole("promoted_metrics", Some("device_id,metric_id,id,origin,actor,job_id,cluster")),
    whole("catalogue", None),
];

impl Table {
    fn statement(&self, until: &str) -> String {
        let columns = self.columns.unwrap_or("*");
        let bound = self.time.map(|time| format!(" WHERE {time} < '{until}'"));
        format!("SELECT {columns} FROM {}{}", self.name, bound.unwrap_or_default())
    }
}

/// Statements with their own order. `PAST` is the start of the past samples, `UNTIL` their end.
const STATEMENTS: &[&str] = &[
    "SELECT device_id, metric_id, job_id, cluster, count(*), min(value), max(value), min(timestamp), max(timestamp)
     FROM metrics WHERE timestamp < UNTIL GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4",
    "SELECT date_trunc('minute', timestamp) AS minute, count(*), max(value) FROM metrics
     WHERE device_id = 'n1' AND metric_id = 'load_1m' AND timestamp < UNTIL GROUP BY 1 ORDER BY 1",
    "SELECT date_bin(interval '10 minutes', timestamp, '2000-01-01') AS bin, device_id, avg(value) FROM metrics_by_device
     WHERE metric_id = 'wattmetre_power_watt' AND timestamp < UNTIL GROUP BY 1, 2 ORDER BY 1, 2",
    "SELECT timestamp, value, value - lag(value) OVER (ORDER BY timestamp) FROM metrics
     WHERE device_id = 'n1' AND labels->>'interface' = 'eth0' AND timestamp < UNTIL ORDER BY 1",
    "SELECT j.job_id, j.cluster, m.metric_id, count(*) FROM jobs j JOIN metrics m ON j.job_id = m.job_id AND j.cluster = m.cluster
     WHERE m.timestamp < UNTIL GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
    "SELECT a.job_id, a.device_id, count(m.value) FROM allocations a LEFT JOIN metrics_by_device m ON a.device_id = m.device_id
     AND m.timestamp BETWEEN a.start_time AND coalesce(a.stop_time, UNTIL) WHERE m.metric_id = 'load_1m' GROUP BY 1, 2 ORDER BY 1, 2",
    "SELECT timestamp, value, labels FROM metrics WHERE labels @> '{\"interface\": \"eth1\"}' AND timestamp < UNTIL ORDER BY 1",
    "SELECT timestamp, device_id, labels - '_device_alias' FROM metrics WHERE labels ? 'outlet' AND timestamp < UNTIL ORDER BY 1, 2",
    "SELECT * FROM metrics WHERE metric_id = 'odd' ORDER BY timestamp",
    "SELECT timestamp, value FROM metrics WHERE value = 'NaN' OR value > 1e200 ORDER BY timestamp",
    "SELECT timestamp, device_id, value, labels FROM metrics_by_device WHERE device_id = 'n1' AND metric_id = 'wattmetre_power_watt'
     AND timestamp < UNTIL ORDER BY 1, 4",
    "SELECT timestamp, value, job_id FROM metrics_by_job WHERE job_id = 2 AND metric_id = 'load_1m' AND timestamp < UNTIL ORDER BY 1",
    "SELECT job_id, count(*), max(timestamp) FROM metrics_by_job WHERE timestamp < UNTIL GROUP BY 1 ORDER BY 1",
    "SELECT count(*) FROM metrics WHERE job_id IS NULL AND timestamp < UNTIL",
    "SELECT count(*) FROM metrics WHERE job_id IN (1, 7) AND cluster = 'slurm'",
    "SELECT count(DISTINCT device_id), count(DISTINCT metric_id) FROM metrics WHERE timestamp < UNTIL",
    "SELECT * FROM api.get_metrics(job_id => 1) ORDER BY timestamp, metric_id, device_id, labels",
    "SELECT * FROM get_metrics(nodes => 'n1', metrics => 'load_1m', start_time => PAST, end_time => UNTIL, summary => true)",
    "SELECT * FROM api.get_metrics(devices => 'n1,n2', start_time => PAST, end_time => UNTIL, as_rate => 'auto')
     ORDER BY timestamp, metric_id, device_id, labels",
    "SELECT * FROM api.get_metrics(job_id => 7)",
    "SELECT * FROM api.get_metrics('2', cluster => 'slurm', start_time => PAST, end_time => UNTIL) WHERE value > 1e6",
    "SELECT DISTINCT metric_id FROM api.available_metrics(at => PAST, params => '{\"job_id\": 2}') ORDER BY 1",
    "SELECT * FROM api.get_job_metrics(job_id => 1)",
    "SELECT * FROM api.get_job_metrics(job_id => 99)",
    "EXPLAIN SELECT value FROM metrics WHERE device_id = 'n1' AND timestamp > PAST",
    "SELECT table_name, column_name, data_type FROM information_schema.columns ORDER BY 1, 2",
    "WITH power AS (SELECT * FROM metrics WHERE metric_id LIKE '%watt' AND timestamp < UNTIL)
     SELECT device_id, labels->>'_device_alias', sum(value) FROM power GROUP BY 1, 2 ORDER BY 1, 2",
    "SELECT value FROM metrics WHERE device_id IN (SELECT node FROM nodetime_by_job WHERE job_id = 1) AND metric_id = 'load_1m'
     AND timestamp < UNTIL ORDER BY timestamp LIMIT 50",
    "SELECT device_id FROM metrics WHERE timestamp < UNTIL UNION SELECT device_id FROM allocations ORDER BY 1",
    "SELECT job_id, age(stop_time, start_time), EXTRACT(EPOCH FROM age(stop_time, start_time)) FROM nodetime_by_job ORDER BY 1, start_time",
    "SELECT to_char(timestamp, 'YYYY-MM-DD HH24:MI TZ'), substring(metric_id FROM '^[a-z]+') FROM counter_starts ORDER BY timestamp, 2",
    "SELECT cause, count(*), min(from_time), max(to_time) FROM gaps WHERE cause <> 'poller down' GROUP BY 1 ORDER BY 1",
    "SELECT string_agg(DISTINCT metric_id, ' ' ORDER BY metric_id) FROM metrics_summary WHERE timestamp < UNTIL",
    "SELECT timestamp, value FROM metrics_summary WHERE device_id = 'n2' AND metric_id = 'load_1m' AND timestamp < UNTIL ORDER BY 1",
    "SELECT name, unit, kind FROM catalogue WHERE name LIKE 'cgroup_%' ORDER BY 1",
    "SELECT job_id, state, end_cause, oom_kills, requested_cpus, used_cpu_seconds FROM jobs ORDER BY cluster, job_id, start_time",
    "SELECT device_id, state, reason, aliases FROM devices ORDER BY 1",
    "SELECT value FROM metrics WHERE timestamp > PAST ORDER BY value DESC, timestamp, device_id LIMIT 5",
    "SELECT 1 +",
    "SELECT * FROM nothing",
    "SELECT nothing FROM metrics",
    "SELECT 'x'::int, value / 0 FROM metrics",
    "DELETE FROM metrics",
    "INSERT INTO jobs(job_id) VALUES (1)",
    "SELECT pg_read_file('/etc/passwd')",
];

fn quoted(second: i64) -> String {
    format!("'{}'", jiff::Timestamp::from_second(second).unwrap())
}

/// The statements of Kwollect's README and dashboards, at the times of the data.
fn kwollects(times: Times) -> Vec<String> {
    let page = repository().join("docs/reference/sql-kwollect.md");
    let page = std::fs::read_to_string(page).unwrap();
    let lines = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let (from, to) = ((times.past + 600).to_string(), (times.past + 1200).to_string());
    let moved = |text: &str| text.replace("1767657600", &from).replace("1767657640", &to);
    let bounded = |text: String| match text.contains("FROM metrics") && !text.contains("WITH ") {
        true if text.contains("now()") => text.replace("now()", &quoted(times.past + 600)),
        _ => text,
    };
    // The statement of the table `promoted_metrics` leaves out its end.
    let lines = lines.filter(|(statement, _)| *statement != "SELECT * FROM promoted_metrics");
    lines.map(|(statement, _)| bounded(moved(statement))).collect()
}

/// A statement on each table.
pub(super) fn of_tables(times: Times) -> Vec<String> {
    let until = jiff::Timestamp::from_second(times.past + 7200).unwrap().to_string();
    TABLES.iter().map(|table| table.statement(&until)).collect()
}

/// The other statements.
pub(super) fn others(times: Times) -> Vec<String> {
    let at = |text: &&str| {
        text.replace("UNTIL", &quoted(times.past + 7200)).replace("PAST", &quoted(times.past + 600))
    };
    STATEMENTS.iter().map(at).chain(kwollects(times)).collect()
}

/// Whether a statement ends with an order of its rows.
pub(super) fn is_ordered(statement: &str) -> bool {
    statement.rsplit_once("ORDER BY").is_some_and(|(_, rest)| !rest.contains("SELECT"))
}

/// Statements over HTTP.
pub(super) fn posted(statements: &[String]) -> Vec<Request> {
    let body = |text: &String| serde_json::json!({"query": text}).to_string();
    let one = |text| Request::of(Operation::Sql, "").json(&body(text));
    statements.iter().map(|text| Request { is_ordered: is_ordered(text), ..one(text) }).collect()
}

/// A statement on each table, as JSON and some as CSV, in time zones, and bodies without a statement.
pub(super) fn requests(times: Times) -> Vec<Request> {
    let mut requests = posted(&of_tables(times));
    let as_csv = |request: &Request| request.clone().header("Accept", "text/csv");
    requests.extend(requests.iter().take(2).map(as_csv).collect::<Vec<_>>());
    let one = |body: &str| Request::of(Operation::Sql, "").json(body);
    let in_zone = |zone: &str| {
        let text =
            "SELECT start_time, to_char(start_time, 'HH24:MI TZ') FROM jobs ORDER BY job_id, 1";
        one(&serde_json::json!({"query": text, "time_zone": zone}).to_string())
    };
    requests.extend(["Europe/Paris", "Mars/Olympus"].map(in_zone));
    requests.extend(["", "{}", r#"{"query": "SELECT 1", "more": 1}"#].map(one));
    requests
}
