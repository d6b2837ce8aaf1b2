//! What the server keeps in PostgreSQL besides samples: the copy of its jobs, and promotions that an original kwollector
//! follows.

use crate::common::database::{Database, psql};
use crate::common::programs::{Running, Server, get, output, root, until};
use crate::repository::layers::repository;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(30);

/// A server on a database of its own.
struct Site {
    server: Server,
    database: Option<Database>,
    folder: PathBuf,
    jobs: PathBuf,
    _dir: tempfile::TempDir,
}

impl Site {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o711)).unwrap();
        let (folder, jobs) = (dir.path().join("database"), dir.path().join("jobs"));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(&jobs, "").unwrap();
        let database = Some(Database::start(&folder));
        let server = Server::start(&dir.path().join("data"), &arguments(&folder, &jobs));
        Self { server, database, folder, jobs, _dir: dir }
    }

    fn again(&mut self) {
        let data = self._dir.path().join("data");
        self.server.again(&data, &arguments(&self.folder, &self.jobs));
    }

    /// Waits until a statement has an answer.
    fn until(&self, statement: &str, expected: &str) {
        let deadline = Instant::now() + LIMIT;
        loop {
            let found = psql(&self.folder, statement).unwrap_or_default();
            if found.trim() == expected {
                return;
            }
            assert!(Instant::now() < deadline, "{statement}: {expected}, not {found}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn report(&self, line: &str) {
        let mut file = std::fs::OpenOptions::new().append(true).open(&self.jobs).unwrap();
        writeln!(file, "{line}").unwrap();
    }

    fn promotions(&self) -> Vec<(String, String)> {
        let (status, text) = get(&self.server.url, "/api/v1/promotions");
        assert_eq!(status, 200, "{text}");
        let all: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        let field = |one: &serde_json::Value, name: &str| one[name].as_str().unwrap().to_owned();
        all.iter().map(|one| (field(one, "nodes"), field(one, "origin"))).collect()
    }
}

fn arguments<'a>(folder: &'a Path, jobs: &'a Path) -> Vec<&'a str> {
    let parameters = format!("host={} user=postgres dbname=postgres", folder.display());
    let parameters: &'static str = Box::leak(parameters.into_boxed_str());
    let jobs = jobs.to_str().unwrap();
    vec!["--store", "postgres", "--postgres-database", parameters, "--schedulers-file", jobs]
}

fn metric(site: &Site, name: &str) -> Option<f64> {
    let (_, text) = get(&site.server.url, "/metrics");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    line.parse().ok()
}

const JOBS: &str = "SELECT string_agg(concat_ws(' ', job_id, user_name, state, node, a.stop_time IS NULL), ', ' \
    ORDER BY job_id, a.start_time, node) FROM jobmeter.jobs AS j JOIN jobmeter.allocations AS a USING (cluster, job_id) \
    WHERE a.start_time BETWEEN j.start_time AND coalesce(j.stop_time, 'infinity')";

#[test]
fn the_copy_of_the_jobs_follows_the_registry() {
    let mut site = Site::start();
    let job = |id: u32, more: &str| {
        format!(r#"{{"cluster":"site","id":{id},"user":"alice","start":1767706400,{more}}}"#)
    };
    let nodes = r#""nodes":[{"device":"n[1-2]"}]"#;
    site.report(&job(7, nodes));
    site.until(JOBS, "7 alice running n1 t, 7 alice running n2 t");
    // While the database is away, jobs change, and the server restarts.
    drop(site.database.take());
    site.report(&job(8, r#""nodes":[{"device":"n3"}]"#));
    site.report(r#"{"cluster":"site","id":7,"stop":1767706460,"exit_code":0}"#);
    until("a failed copy", LIMIT, || {
        metric(&site, r#"jobmeter_shared_tables_failed_total{table="jobs"}"#)
            .filter(|count| *count > 0.0)
    });
    let (status, _) = get(&site.server.url, "/api/v1/jobs");
    assert_eq!(status, 200, "jobs are answered without the database");
    site.server.running.kill();
    site.database = Some(Database::start(&site.folder));
    site.again();
    let all = "7 alice ended n1 f, 7 alice ended n2 f, 8 alice running n3 t";
    site.until(JOBS, all);
    // The database is that of an earlier day.
    site.server.running.kill();
    let earlier = "DELETE FROM jobmeter.jobs; UPDATE jobmeter.jobs_copy SET step = step - 1; \
                   INSERT INTO jobmeter.allocations VALUES ('site', 99, 'n9', now())";
    psql(&site.folder, earlier).unwrap();
    site.again();
    site.until(JOBS, all);
    site.until("SELECT count(*) FROM jobmeter.allocations", "3");
}

/// What an original kwollector follows.
struct Follower {
    _running: Running,
    last: Arc<Mutex<String>>,
}

impl Follower {
    fn start(folder: &Path, names: &[&str]) -> Self {
        let mut command = Command::new(repository().join("target/python/bin/python3"));
        command.arg(repository().join("tests/numbers/promoted_metrics.py")).arg(folder).args(names);
        let mut running = Running::start(command.stdout(Stdio::piped()));
        let lines = BufReader::new(running.child.stdout.take().unwrap()).lines();
        let last = Arc::new(Mutex::new("not started".to_owned()));
        let seen = Arc::clone(&last);
        std::thread::spawn(move || {
            lines.map_while(Result::ok).for_each(|line| *seen.lock().unwrap() = line);
        });
        Self { _running: running, last }
    }

    fn until(&self, expected: &str) {
        until(&format!("kwollector: {expected}"), LIMIT, || {
            (*self.last.lock().unwrap() == expected).then_some(())
        });
    }
}

#[test]
fn an_original_kwollector_follows_promotions_and_the_server_follows_rows() {
    let site = Site::start();
    let kwollector = Follower::start(&site.folder, &["prom_extra", "bmc_temp", "x"]);
    kwollector.until("");
    let promote = |nodes: &str, metric: &str| {
        let body = serde_json::json!({"nodes": nodes, "metric": metric, "for_seconds": 600});
        let url = format!("{}/api/v1/promotions", site.server.url);
        let request = ureq::post(url).content_type("application/json");
        let answer = request.send(body.to_string()).unwrap().body_mut().read_to_string();
        let made: serde_json::Value = serde_json::from_str(&answer.unwrap()).unwrap();
        made[0]["id"].as_i64().unwrap()
    };
    let number = promote("n[1-2]", "prom_e.*");
    kwollector.until("prom_extra");
    // The function of an OAR site at the start and end of each job.
    let update = "DELETE FROM promoted_metrics; INSERT INTO promoted_metrics VALUES ('n9', 'x')";
    psql(&site.folder, update).unwrap();
    let rows = "SELECT string_agg(device_id || ' ' || metric_id, ', ' ORDER BY device_id) FROM promoted_metrics";
    site.until(rows, "n1 prom_e.*, n2 prom_e.*, n9 x");
    let hand = || ("n9".to_owned(), "hand".to_owned());
    until("a promotion by a row", LIMIT, || site.promotions().contains(&hand()).then_some(()));
    // Kwollector uses one row of a device.
    promote("n1", "bmc_.*|wattmetre_.*");
    site.until(rows, "n1 (?:bmc_.*|wattmetre_.*)|(?:prom_e.*), n2 prom_e.*, n9 x");
    kwollector.until("prom_extra bmc_temp wattmetre");
    // Expressions that the original would not survive are left out, and bad rows, which it does not survive either, are skipped.
    drop(kwollector);
    promote("n1", "(?i)X");
    promote("n1", "(x+)+y");
    psql(&site.folder, "INSERT INTO promoted_metrics VALUES ('n[4-5]', 'x'), ('n6', NULL)")
        .unwrap();
    let counted = |name: &str, count: f64| {
        until(name, LIMIT, || metric(&site, name).filter(|found| *found == count));
    };
    counted("jobmeter_promoted_rows_skipped", 2.0);
    counted("jobmeter_promotions_without_row", 2.0);
    // The rows end, and the promotion with them.
    psql(&site.folder, "DELETE FROM promoted_metrics WHERE device_id NOT IN ('n1', 'n2')").unwrap();
    until("the end of a promotion", LIMIT, || (!site.promotions().contains(&hand())).then_some(()));
    counted("jobmeter_promoted_rows_skipped", 0.0);
    let kwollector = Follower::start(&site.folder, &["prom_extra", "bmc_temp", "x"]);
    let url = format!("{}/api/v1/promotions/{number}", site.server.url);
    ureq::delete(url).call().unwrap();
    site.until(rows, "n1 bmc_.*|wattmetre_.*");
    kwollector.until("bmc_temp wattmetre");
}

#[test]
fn a_view_of_the_site_is_a_scheduler_and_that_of_the_server_is_none() {
    let mut site = Site::start();
    let table = "CREATE TABLE site (job_id int, start_time timestamptz, stop_time timestamptz, node text); \
        CREATE VIEW nodetime_by_site AS SELECT * FROM site; \
        CREATE VIEW own AS SELECT job_id, start_time, stop_time, node FROM jobmeter.allocations; \
        CREATE VIEW nodetime_of_server AS SELECT * FROM own; \
        INSERT INTO site VALUES (7, now() - interval '1 hour', NULL, 'n1.site.example'), \
            (7, now() - interval '1 hour', NULL, 'n2'), (7, now() - interval '1 hour', NULL, 'n2'), \
            (8, now() - interval '2 hours', now() - interval '1 hour', 'n3'), \
            (9, to_timestamp(0), NULL, 'n4'), (10, now() + interval '1 hour', NULL, 'n4'), \
            (0, now() - interval '1 hour', NULL, 'n5'), (-3, now() - interval '1 hour', NULL, 'n5'), \
            (11, now() - interval '1 hour', NULL, NULL), (12, now() - interval '9 days', now() - interval '8 days', 'n6')";
    psql(&site.folder, table).unwrap();
    let view = |site: &mut Site, name: &str| {
        site.server.running.kill();
        let data = site._dir.path().join("data");
        let mut all = arguments(&site.folder, &site.jobs);
        all.extend(["--schedulers-nodetime-view", name, "--schedulers-nodetime-cluster", "site"]);
        all.extend(["--schedulers-nodetime-period", "1s"]);
        site.server.again(&data, &all);
    };
    view(&mut site, "nodetime_by_site");
    site.until(JOBS, "7 running n1 t, 7 running n2 t, 8 ended n3 f");
    let change = "UPDATE site SET stop_time = now() WHERE job_id = 7 AND node LIKE 'n1%'; \
                  UPDATE site SET start_time = now() - interval '1 minute' WHERE job_id = 9; \
                  INSERT INTO site VALUES (8, now() - interval '1 minute', NULL, 'n3')";
    psql(&site.folder, change).unwrap();
    site.until(
        JOBS,
        "7 running n1 t, 7 running n2 t, 8 ended n3 f, 8 running n3 t, 9 running n4 t",
    );
    psql(
        &site.folder,
        "UPDATE site SET stop_time = now() WHERE job_id = 7; DELETE FROM site WHERE job_id = 9",
    )
    .unwrap();
    site.until(JOBS, "7 ended n1 f, 7 ended n2 f, 8 ended n3 f, 8 running n3 t, 9 ended n4 f");
    let (_, text) = get(&site.server.url, "/api/v1/schedulers");
    assert!(text.contains("job 11: a row has no node"), "{text}");
    // Nobody owns these jobs.
    if root("a_view_of_the_site_is_a_scheduler_and_that_of_the_server_is_none") {
        let list = format!("{}/api/v1/jobs", site.server.url);
        let (_, everyone, _) = output(Command::new("curl").args(["-s", &list]));
        assert!(everyone.contains("\"site\""), "{everyone}");
        let mut user = Command::new("setpriv");
        user.args(["--reuid=65534", "--regid=65534", "--clear-groups", "curl", "-s", &list]);
        let (code, seen, _) = output(&mut user);
        assert!(code == 0 && !seen.contains("\"site\""), "{seen}");
    }
    for (name, expected) in [
        ("nodetime_of_server", "the server's own copy of jobs"),
        ("nodetime_by_none", "it does not exist"),
        ("site_of_others.nodetime", "it does not exist"),
    ] {
        view(&mut site, name);
        until(expected, LIMIT, || {
            let (_, text) = get(&site.server.url, "/api/v1/schedulers");
            text.contains(expected).then_some(())
        });
    }
}
