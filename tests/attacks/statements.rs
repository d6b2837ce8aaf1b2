//! Hostile SQL statements against the server: each costs at most its own response.

use crate::attacks::hostile_corpus;
use crate::common::programs::{Running, Server, get, program, ready, until};
use serde_json::json;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;
use std::time::Duration;

/// Maximum length of a statement that the server accepts, in bytes.
const STATEMENT_BYTES_MAX: usize = 64 << 10;

/// Sends a statement, and returns the status and the body of the response.
pub(crate) fn sql(url: &str, statement: &str) -> (u16, String) {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(120)))
        .build()
        .into();
    let body = json!({ "query": statement }).to_string();
    let request = agent.post(format!("{url}/api/v1/sql")).content_type("application/json");
    let mut answer = request.send(body).unwrap_or_else(|error| {
        let begin: String = statement.chars().take(80).collect();
        panic!("no answer to {begin}: {error}")
    });
    // An aborted response has a status, but no complete body.
    let body = answer.body_mut().read_to_string().unwrap_or_default();
    (answer.status().as_u16(), body)
}

/// Returns a statement with this many nested levels.
type Nest = fn(usize) -> String;

fn around(before: &str, inner: &str, after: &str, count: usize) -> String {
    format!("{}{inner}{}", before.repeat(count), after.repeat(count))
}

fn chain(count: usize, between: &str, part: impl Fn(usize) -> String) -> String {
    (0..count.max(1)).map(part).collect::<Vec<_>>().join(between)
}

/// All kinds of nesting in SQL.
const NESTINGS: [(&str, Nest); 38] = [
    ("addition", |n| format!("SELECT {}", ["1"].repeat(n).join("+"))),
    ("subtraction", |n| format!("SELECT {}", ["value"].repeat(n).join("-") + " FROM metrics")),
    ("or", |n| format!("SELECT 1 FROM metrics WHERE {}", ["value = 1"].repeat(n).join(" OR "))),
    ("and", |n| format!("SELECT 1 FROM metrics WHERE {}", ["value > 1"].repeat(n).join(" AND "))),
    ("joined texts", |n| format!("SELECT {}", ["'a'"].repeat(n).join("||"))),
    ("bits", |n| format!("SELECT {}", ["1"].repeat(n).join(" & "))),
    ("arrows", |n| format!("SELECT labels{} FROM metrics", "->>'a'".repeat(n))),
    ("brackets", |n| format!("SELECT {}", around("(", "1", ")", n))),
    ("open brackets", |n| format!("SELECT {}", "(".repeat(n))),
    ("not", |n| format!("SELECT {} true", "NOT ".repeat(n))),
    ("minus", |n| format!("SELECT {}1", "- ".repeat(n))),
    ("tilde", |n| format!("SELECT {}1", "~ ".repeat(n))),
    ("case", |n| format!("SELECT {}", around("CASE WHEN true THEN ", "1", " END", n))),
    ("case arms", |n| format!("SELECT CASE {} END", "WHEN value = 1 THEN 2 ".repeat(n))),
    ("cast", |n| format!("SELECT {}", around("CAST(", "1", " AS bigint)", n))),
    ("double colon", |n| format!("SELECT 1{}", "::int::text".repeat(n))),
    ("functions", |n| format!("SELECT {}", around("abs(", "1", ")", n))),
    ("coalesce", |n| format!("SELECT {}", around("coalesce(NULL,", "1", ")", n))),
    ("subqueries", |n| around("SELECT * FROM (", "SELECT 1 AS a", ") t", n)),
    ("scalar subqueries", |n| format!("SELECT {}", around("(SELECT ", "1", ")", n))),
    ("exists", |n| around("SELECT 1 WHERE EXISTS (", "SELECT 1", ")", n)),
    ("in subqueries", |n| around("SELECT 1 WHERE 1 IN (", "SELECT 1", ")", n)),
    ("in lists", |n| format!("SELECT 1 WHERE {}", around("1 IN (", "1", ")", n))),
    ("a long in list", |n| format!("SELECT 1 WHERE 1 IN ({})", ["1"].repeat(n).join(","))),
    ("named queries", |n| {
        let query = |i: usize| format!("q{} AS (SELECT * FROM q{i})", i + 1);
        format!("WITH q0 AS (SELECT 1 AS a), {} SELECT * FROM q{n}", chain(n, ", ", query))
    }),
    ("named queries that double", |n| {
        let query = |i: usize| format!("q{} AS (SELECT a.x FROM q{i} a, q{i} b)", i + 1);
        format!("WITH q0 AS (SELECT 1 AS x), {} SELECT * FROM q{n}", chain(n, ", ", query))
    }),
    ("unions", |n| chain(n, " UNION ", |_| "SELECT 1".to_owned())),
    ("unions of all", |n| chain(n, " UNION ALL ", |_| "SELECT 1".to_owned())),
    ("intersections", |n| chain(n, " INTERSECT ", |_| "SELECT 1".to_owned())),
    ("bracketed unions", |n| around("(SELECT 1 UNION ", "SELECT 2", ")", n)),
    ("joins", |n| {
        let table = |i: usize| format!("(VALUES (1)) t{i}(a)");
        format!("SELECT 1 FROM {}", chain(n, " CROSS JOIN ", table))
    }),
    ("tables", |n| {
        format!("SELECT 1 FROM {}", chain(n, ", ", |i| format!("(VALUES (1)) t{i}(a)")))
    }),
    ("arrays", |n| format!("SELECT {}", around("ARRAY[", "1", "]", n))),
    ("lists", |n| format!("SELECT {}", around("[", "1", "]", n))),
    ("structs", |n| format!("SELECT {}", around("struct(", "1", ")", n))),
    ("subscripts", |n| format!("SELECT ARRAY[1]{}", "[1]".repeat(n))),
    ("between", |n| format!("SELECT {}", around("(", "1", " BETWEEN 0 AND 1)", n))),
    ("is null", |n| format!("SELECT 1{}", " IS NULL".repeat(n))),
];

/// More kinds of nesting, with keywords that only some statements have.
const MORE_NESTINGS: [(&str, Nest); 10] = [
    ("explain", |n| format!("{}SELECT 1", "EXPLAIN ".repeat(n))),
    ("interval", |n| format!("SELECT {}'1 day'", "INTERVAL ".repeat(n))),
    ("intervals", |n| format!("SELECT now() {}", "+ interval '1 day' ".repeat(n))),
    ("time zones", |n| format!("SELECT now(){}", " AT TIME ZONE 'UTC'".repeat(n))),
    ("like", |n| format!("SELECT 'a'{}", " LIKE 'a'".repeat(n))),
    ("dots", |n| format!("SELECT a{} FROM metrics", ".a".repeat(n))),
    ("columns", |n| format!("SELECT {}", chain(n, ",", |i| format!("1 AS a{i}")))),
    ("values", |n| format!("VALUES {}", ["(1)"].repeat(n).join(","))),
    ("grouping sets", |n| {
        let columns = ["device_id"].repeat(n).join(",");
        format!("SELECT 1 FROM metrics GROUP BY CUBE({columns})")
    }),
    ("windows", |n| format!("SELECT {}", around("sum(", "1", ") OVER ()", n))),
];

/// Returns the maximum number of levels within the length limit of a statement.
fn longest(nest: Nest) -> usize {
    let (mut low, mut high) = (1, STATEMENT_BYTES_MAX);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if nest(middle).len() <= STATEMENT_BYTES_MAX {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

#[test]
fn no_nesting_ends_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let flags = ["--query-time-max", "2s"];
    let mut server = Server::start(dir.path(), &flags);
    let mut counts = [0_usize; 2];
    for (kind, nest) in NESTINGS.iter().chain(&MORE_NESTINGS) {
        for levels in [20, 200, longest(*nest)] {
            let (status, body) = sql(&server.url, &nest(levels));
            assert!(
                status == 200 || (400..500).contains(&status),
                "{kind} {levels}: {status} {body}"
            );
            counts[usize::from(status == 200)] += 1;
            let ended = server.running.child.try_wait().unwrap();
            assert!(ended.is_none(), "{kind} of {levels} levels ended the server: {ended:?}");
        }
        assert_eq!(get(&server.url, "/api/v1/ready").0, 200, "{kind}");
    }
    // Both outcomes occurred, so the test covers both.
    assert!(counts.iter().all(|count| *count > 10), "{counts:?}");
    assert_eq!(sql(&server.url, "SELECT 1 AS a"), (200, "[{\"a\":1}]".to_owned()));
}

pub(crate) fn metric(url: &str, name: &str) -> f64 {
    let (_, page) = get(url, "/metrics");
    let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {name} in {page}")).parse().unwrap()
}

/// Returns the peak memory of a process, in MiB.
pub(crate) fn resident_mib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    kib.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

/// Two clients send every hostile statement. Meanwhile the server answers `ready` before any statement
/// reaches its limit. Afterwards the server's memory has not grown, and no statement remains.
#[test]
fn hostile_statements_cost_their_own_answers() {
    let dir = tempfile::tempdir().unwrap();
    let flags = ["--query-time-max", "3s", "--query-memory-bytes-max", "64MiB"];
    let server = Server::start(dir.path(), &flags);
    let url = &server.url;
    assert_eq!(sql(url, "SELECT 1 AS a").0, 200);
    let statements = hostile_corpus::statements();
    let (waiting, answers) = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..2)
            .map(|_| {
                let request = |(kind, text): &(&'static str, String)| (*kind, sql(url, text));
                let statements = &statements;
                scope.spawn(move || statements.iter().map(request).collect::<Vec<_>>())
            })
            .collect();
        let mut waiting = 0;
        while clients.iter().any(|client| !client.is_finished()) {
            assert_eq!(get(url, "/api/v1/ready").0, 200);
            waiting += 1;
        }
        let answers = clients.into_iter().flat_map(|client| client.join().unwrap());
        (waiting, answers.collect::<Vec<_>>())
    });
    // If statements blocked `ready`, it would be answered about as often as statements are.
    assert!(waiting > 2 * answers.len(), "{waiting} answers of `ready`");
    for (kind, (status, body)) in &answers {
        let begin: String = body.chars().take(200).collect();
        assert!([200, 400, 413].contains(status), "{kind}: {status} {begin}");
    }
    let ended = answers.iter().filter(|(_, (status, _))| *status == 413).count();
    assert!(ended >= 8, "{ended} ended at a limit: {answers:.200?}");
    until("all is given back", Duration::from_secs(20), || {
        let held = ["jobmeter_sql_statements", "jobmeter_sql_memory_bytes"];
        held.iter().all(|name| metric(url, name) == 0.0).then_some(())
    });
    let mib = resident_mib(server.running.child.id());
    assert!(mib < 400, "the server itself has had {mib} MiB");
    assert_eq!(sql(url, "SELECT 1 AS a"), (200, "[{\"a\":1}]".to_owned()));
}

/// A process that executes SQL has no store, no environment and no privilege, and its death costs one
/// response.
#[test]
fn a_worker_is_confined_and_its_death_is_one_answer() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    let url = server.url.clone();
    let endless =
        "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t";
    let client = std::thread::spawn(move || sql(&url, endless));
    let worker =
        until("a worker", Duration::from_secs(20), || busy_worker(server.running.child.id()));
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{worker}/{file}")).unwrap();
    let (status, limits) = (read("status"), read("limits"));
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert!(status.contains(&format!("{set}:\t{:016}\n", 0)), "{set}: {status}");
    }
    if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
        assert!(status.contains("Uid:\t65534\t65534\t65534\t65534\n"), "{status}");
        assert!(status.contains("Gid:\t65534\t65534\t65534\t65534\n"), "{status}");
        let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap();
        assert_eq!(groups.trim(), "", "{status}");
    }
    assert_eq!(read("environ").trim_end_matches('\0'), "MALLOC_ARENA_MAX=2");
    for name in ["Max open files", "Max file size", "Max core file size"] {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
        assert_eq!(line.split_whitespace().rev().nth(1), Some("0"), "{line}");
    }
    for name in ["Max cpu time", "Max data size", "Max address space"] {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(!line.contains("unlimited"), "{line}");
    }
    let files: Vec<_> = std::fs::read_dir(format!("/proc/{worker}/fd"))
        .unwrap()
        .filter_map(|file| std::fs::read_link(file.unwrap().path()).ok())
        .filter(|target| target.starts_with("/") && target.as_os_str() != "/dev/null")
        .collect();
    assert!(files.is_empty(), "{files:?}");
    assert!(std::process::Command::new("kill").args(["-9", &worker]).status().unwrap().success());
    let (status, body) = client.join().unwrap();
    assert_eq!(status, 400, "{body}");
    assert!(body.contains("its process was killed"), "{body}");
    assert_eq!(metric(&server.url, "jobmeter_sql_worker_deaths_total"), 1.0);
    assert_eq!(sql(&server.url, "SELECT 1 AS a").0, 200);
}

/// Returns the PID of the worker process that executes a statement. An idle worker does not have its limits
/// yet.
fn busy_worker(server: u32) -> Option<String> {
    let children = std::fs::read_to_string(format!("/proc/{server}/task/{server}/children"));
    let tasks = std::fs::read_dir(format!("/proc/{server}/task")).unwrap();
    let of_task = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("children")).ok()
    };
    let all: Vec<String> = tasks.filter_map(of_task).chain(children.ok()).collect();
    all.iter().flat_map(|pids| pids.split_whitespace()).find_map(|pid| {
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
        let line = limits.lines().find(|line| line.starts_with("Max open files"))?;
        (line.split_whitespace().rev().nth(1) == Some("0")).then(|| pid.to_owned())
    })
}

/// A worker writes times in the server's time zone, although it cannot open time zone files.
#[test]
fn a_worker_knows_the_zone_of_its_server() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new(program("jobmeter-server"));
    command.args(["--data", dir.path().to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    let mut running = Running::start(command.env("TZ", "Europe/Paris").stdout(Stdio::piped()));
    let url = ready(&mut running);
    let text = "SELECT '2026-03-29 02:30'::timestamptz AS a, now() > '2026-01-06 14:49' AS b, \
                '2026-01-06 14:49'::timestamptz AT TIME ZONE 'America/New_York' AS c";
    let want = r#"[{"a":"2026-03-29T03:30:00+02:00","b":true,"c":"2026-01-06T08:49:00-05:00"}]"#;
    assert_eq!(sql(&url, text), (200, want.to_owned()));
}
