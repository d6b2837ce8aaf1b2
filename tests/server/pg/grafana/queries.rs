//! Every query of every dashboard on each store, with a client of PostgreSQL.

use super::interpolation::{Range, Values, Variables, expanded};
use super::{dashboards, written};
use crate::common::database::Database;
use crate::common::programs::{Running, output, until};
use crate::repository::layers::repository;
use crate::server::pg::{PUSHER, PgServer, READER, SCHEDULER};
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Rows of a statement, with tabs between their values.
pub(crate) type Client<'a> = &'a dyn Fn(&str) -> Result<Vec<Vec<String>>, String>;

/// What answers the queries.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Source {
    Server,
    /// Functions in the database. Like Kwollect's they divide the growth in a window of five minutes by 300 s, also in the last one,
    /// which has not ended.
    Database,
}

const HOUR: i64 = 3600;
/// Time ranges with samples and with windows of five minutes, in seconds before now.
const RANGES: [i64; 2] = [1200, 3 * HOUR];
/// The job of the data.
const JOB: i64 = 7;

/// Seconds since 1970.
fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(now.as_secs()).unwrap()
}

/// Values of variables that a person selects.
fn wanted(variable: &str) -> &'static [&'static str] {
    match variable {
        "device" => &["n1", "o'n"],
        "device_id" => &["n1"],
        "metric" | "metric_id" => &["node_power_watts", "uplink_receive_bytes_total"],
        "power" => &["node_power_watts"],
        "job" => &["7"],
        _ => panic!("no value for {variable}"),
    }
}

/// The values of a dashboard's variables. Each selected value must be in the answer of its query.
fn selected(dashboard: &Value, job: &str, range: Range, client: Client<'_>) -> Variables {
    let mut variables = Variables::new();
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        let name = variable["name"].as_str().unwrap();
        let is = |option: &str| variable[option] == true;
        let values = if variable["type"] == "textbox" {
            vec![job.to_owned()]
        } else {
            let query = expanded(variable["query"].as_str().unwrap(), &variables, range);
            let rows = client(&query).unwrap_or_else(|error| panic!("{name}: {query}\n{error}"));
            let wanted = wanted(name);
            for value in wanted {
                assert!(
                    rows.iter().any(|row| row[0] == *value),
                    "{name} {value}: {query}\n{rows:?}"
                );
            }
            wanted.iter().map(|&value| value.to_owned()).collect()
        };
        let values = Values { values, is_list: is("multi") || is("includeAll") };
        variables.insert(name.to_owned(), values);
    }
    variables
}

/// A query of a panel with its rows.
struct Answer {
    panel: String,
    target: String,
    metric: String,
    rows: Vec<Vec<String>>,
}

/// Runs every query of a dashboard, for each value of the variable that repeats its panel.
fn answers(
    dashboard: &Value,
    variables: &Variables,
    range: Range,
    client: Client<'_>,
) -> Vec<Answer> {
    let mut answers = Vec::new();
    let run = |text: &Value, variables: &Variables| {
        let query = expanded(text.as_str().unwrap(), variables, range);
        client(&query).unwrap_or_else(|error| panic!("{query}\n{error}"))
    };
    for panel in dashboard["panels"].as_array().unwrap() {
        let repeated = panel["repeat"].as_str().filter(|name| !name.is_empty());
        let values = repeated.map_or(vec![None], |name| {
            variables[name].values.iter().map(|value| Some((name, value.clone()))).collect()
        });
        for value in values {
            let mut variables = variables.clone();
            if let Some((name, value)) = &value {
                variables.get_mut(*name).unwrap().values = vec![value.clone()];
            }
            for target in panel["targets"].as_array().unwrap() {
                answers.push(Answer {
                    panel: panel["title"].as_str().unwrap().to_owned(),
                    target: target["refId"].as_str().unwrap().to_owned(),
                    metric: value.as_ref().map(|(_, value)| value.clone()).unwrap_or_default(),
                    rows: run(&target["rawSql"], &variables),
                });
            }
        }
    }
    for marks in dashboard["annotations"]["list"].as_array().unwrap() {
        if let Some(text) = marks["target"].get("rawSql") {
            let rows = run(text, variables);
            let (panel, target) = ("marks".to_owned(), "marks".to_owned());
            answers.push(Answer { panel, target, metric: String::new(), rows });
        }
    }
    answers
}

/// Runs every query of our dashboards. Each panel has rows in each time range, and each query in one of them.
fn every_query_has_rows(dashboards: &[Value], to: i64, source: Source, client: Client<'_>) {
    for dashboard in dashboards {
        let title = &dashboard["title"];
        let mut of_query = BTreeMap::<(String, String, String), usize>::new();
        for seconds in RANGES {
            let range = Range { from: to - seconds, to };
            let variables = selected(dashboard, "", range, client);
            let mut of_panel = BTreeMap::<(String, String), usize>::new();
            for answer in answers(dashboard, &variables, range, client) {
                let Answer { panel, target, metric, rows } = &answer;
                *of_query.entry((panel.clone(), target.clone(), metric.clone())).or_default() +=
                    rows.len();
                if target != "unit" {
                    *of_panel.entry((panel.clone(), metric.clone())).or_default() += rows.len();
                }
                has_the_values(&answer, source);
            }
            let empty: Vec<_> = of_panel.iter().filter(|(_, rows)| **rows == 0).collect();
            assert!(empty.is_empty(), "{title}, {seconds} s: {empty:?}");
        }
        let empty: Vec<_> = of_query.iter().filter(|(_, rows)| **rows == 0).collect();
        assert!(empty.is_empty(), "{title}: {empty:?}");
        assert!(of_query.len() >= 6, "{title}: {of_query:?}");
    }
}

/// Compares an answer with the samples that [`fill`] inserted: 100 W, and 5000 B/s.
fn has_the_values(answer: &Answer, source: Source) {
    let Answer { panel, target, metric, rows } = answer;
    let near = |text: &str, want: f64| {
        let value: f64 = text.parse().unwrap_or(f64::NAN);
        assert!((value - want).abs() <= want * 1e-6, "{panel} {target}: {value}, not {want}");
    };
    match (&**target, &**metric) {
        ("unit", "node_power_watts") => assert_eq!(rows, &[["watt"]]),
        ("unit", "uplink_receive_bytes_total") => assert_eq!(rows, &[["binBps"]]),
        // The first row of a counter has no rate.
        ("samples" | "summary", "uplink_receive_bytes_total") => {
            let unfinished = usize::from(target == "summary" && source == Source::Database);
            let rows = &rows[..rows.len().saturating_sub(unfinished)];
            rows.iter().skip(1).for_each(|row| near(&row[2], 5000.0));
        }
        ("samples" | "summary", "node_power_watts") => {
            rows.iter().for_each(|row| near(&row[2], 100.0));
        }
        _ if panel == "Energy by device" => {
            assert_eq!(rows.len(), 2, "{rows:?}");
            for row in rows {
                near(&row[3], 100.0);
                let covered: f64 = row[4].parse().unwrap();
                near(&row[1], covered * 100.0 / 3.6e6);
                near(&row[2], covered * 100.0);
            }
        }
        _ => {}
    }
}

/// Inserts samples of the last 3.5 hours, every 30 s: power, also of a device with a quote in its name, and bytes of a
/// network port. Returns the time of the latest.
fn fill(server: &PgServer) -> i64 {
    let to = now();
    let mut rows = String::new();
    for step in 0..420 {
        let seconds = to - step * 30;
        let at = jiff::Timestamp::from_second(seconds).unwrap();
        let bytes = (1_000_000 - step * 30) * 5000;
        for device in ["n1", "o'n"] {
            rows.push_str(&format!("{at}\t{device}\tnode_power_watts\t100\t{{}}\n"));
        }
        rows.push_str(&format!(
            "{at}\tn1\tuplink_receive_bytes_total\t{bytes}\t{{\"port\": \"1\"}}\n"
        ));
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), rows).unwrap();
    let copy = format!(
        "\\copy metrics(timestamp, device_id, metric_id, value, labels) from '{}'",
        file.path().display()
    );
    let (code, _, errors) = server.psql(Some(PUSHER), &["-c", &copy]);
    assert_eq!(code, 0, "{errors}");
    let job = serde_json::json!({
        "cluster": "site", "id": JOB, "start": to - 3 * HOUR, "uid": 54001, "user": "u", "nodes": [{"device": "n1"}]
    });
    let (code, out, errors) = output(Command::new("curl").args([
        "-sS",
        "--fail-with-body",
        "-H",
        "Content-Type: application/json",
        "-H",
        &format!("Authorization: Bearer {SCHEDULER}"),
        "-d",
        &job.to_string(),
        &format!("{}/api/v1/jobs", server.server.url),
    ]));
    assert_eq!(code, 0, "{out}{errors}");
    to
}

/// Rows of a statement by psql and the server's port.
fn client(server: &PgServer) -> impl Fn(&str) -> Result<Vec<Vec<String>>, String> {
    |statement| {
        let (code, out, errors) = server.psql(Some(READER), &["-At", "-F", "\t", "-c", statement]);
        let row = |line: &str| line.split('\t').map(str::to_owned).collect();
        if code == 0 { Ok(out.lines().map(row).collect()) } else { Err(errors) }
    }
}

/// A server with samples, a job, and a gap of an agent that was killed. The agent runs until this ends.
pub(crate) struct Filled {
    pub(crate) server: PgServer,
    /// The time of the latest samples. Queries have time ranges until then, however long they take.
    pub(crate) to: i64,
    _agent: Running,
}

impl Filled {
    pub(crate) fn start(dir: &Path, arguments: &[&str]) -> Self {
        let server = PgServer::start(dir, arguments);
        let client = client(&server);
        let start = || Running::agent(&server.server.url, "n1", &dir.join("spool"));
        let has = |statement: &str| {
            until(statement, Duration::from_secs(60), || {
                client(statement).unwrap().first().filter(|row| row[0] != "0").map(drop)
            });
        };
        let mut agent = start();
        has("SELECT count(*) FROM metrics WHERE device_id = 'n1' AND metric_id = 'load_1m'");
        agent.kill();
        std::thread::sleep(Duration::from_secs(3));
        let agent = start();
        has("SELECT count(*) FROM gaps WHERE device_id = 'n1'");
        drop(client);
        let to = fill(&server);
        Self { server, to, _agent: agent }
    }
}

/// Runs every query of our dashboards and of Kwollect's by a client of the data of [`Filled`].
pub(crate) fn queries_have_rows(to: i64, source: Source, client: Client<'_>) {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path(), &[]);
    every_query_has_rows(&dashboards(&dir.path().join("jobmeter")), to, source, client);
    kwollects_queries_have_rows(to, client);
}

/// The folder of the dashboards of Kwollect.
fn kwollects_folder() -> PathBuf {
    let lib = repository().join("target/python/lib");
    let entries = std::fs::read_dir(lib).unwrap().map(|entry| entry.unwrap().path());
    let folders = entries.map(|path| path.join("site-packages/kwollect/grafana"));
    folders.into_iter().find(|path| path.is_dir()).expect("target/python has kwollect")
}

/// Runs the queries of Kwollect's dashboards, unchanged, with a job and without.
fn kwollects_queries_have_rows(to: i64, client: Client<'_>) {
    let originals = dashboards(&kwollects_folder());
    assert_eq!(originals.len(), 2);
    for (dashboard, seconds, job) in originals
        .iter()
        .flat_map(|one| RANGES.map(|seconds| (one, seconds)))
        .flat_map(|(one, seconds)| ["", "7"].map(|job| (one, seconds, job)))
    {
        let range = Range { from: to - seconds, to };
        let variables = selected(dashboard, job, range, client);
        for Answer { panel, rows, metric, .. } in answers(dashboard, &variables, range, client) {
            assert!(!rows.is_empty(), "{panel} {metric}, {seconds} s, job {job:?}");
        }
    }
}

#[test]
fn every_query_of_the_dashboards_has_rows_on_the_embedded_store() {
    let dir = tempfile::tempdir().unwrap();
    let filled = Filled::start(dir.path(), &[]);
    queries_have_rows(filled.to, Source::Server, &client(&filled.server));
}

#[test]
fn every_query_of_the_dashboards_has_rows_on_the_store_in_postgresql() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o711)).unwrap();
    let folder = dir.path().join("database");
    std::fs::create_dir(&folder).unwrap();
    let _database = Database::start(&folder);
    let parameters = format!("host={} user=postgres dbname=postgres", folder.display());
    let arguments = ["--store", "postgres", "--postgres-database", &parameters];
    let filled = Filled::start(dir.path(), &arguments);
    queries_have_rows(filled.to, Source::Server, &client(&filled.server));
}

#[test]
fn a_query_without_rows_or_with_an_error_fails_the_check() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path(), &[]);
    let all = dashboards(&dir.path().join("jobmeter"));
    let fails = |client: Client<'_>| {
        let check = std::panic::AssertUnwindSafe(|| {
            every_query_has_rows(&all, now(), Source::Server, client)
        });
        std::panic::catch_unwind(check).is_err()
    };
    assert!(fails(&|_| Ok(Vec::new())));
    assert!(fails(&|_| Err("ERROR:  42P01".to_owned())));
}
