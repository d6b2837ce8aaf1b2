//! A new database: what each role sees, and what the functions answer.

use crate::database::site::Site;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Samples of a node and of two jobs on it, a counter that restarts, and their records as a server writes them.
const ROWS: &str = r#"
INSERT INTO metrics SELECT to_timestamp(1767700000 + i), 'n1', 'load_1m', i % 5, '{}' FROM generate_series(0, 599) AS i;
INSERT INTO metrics SELECT to_timestamp(1767700000 + i), 'n1', 'ticks_total', CASE WHEN i < 100 THEN 1000 + i ELSE 2 * (i - 100) END, '{}'
    FROM generate_series(0, 599) AS i;
INSERT INTO jobmeter.job_metrics SELECT to_timestamp(1767700000 + i), 'n1', 'cpu_seconds_total', i * job / 10.0, '{}', 'oar', job
    FROM generate_series(50, 149) AS i, unnest(ARRAY[7, 8]) AS job;
INSERT INTO jobmeter.series VALUES (1, 'n1', 'ticks_total', '{}', NULL, NULL, 1, 0, 0, 0, 0, 600);
INSERT INTO jobmeter.starts VALUES (1, 1767700000000000, 1700000000000000), (1, 1767700100000000, 1767700099500000);
INSERT INTO jobmeter.allocations VALUES ('oar', 7, 'n1', to_timestamp(1767700050), to_timestamp(1767700149)),
    ('oar', 8, 'n1', to_timestamp(1767700050), NULL), ('slurm', 9, 'n1', to_timestamp(1767700000), NULL), ('oar', 9, 'n1', to_timestamp(1767700000), NULL);
"#;

impl Site {
    /// Sets it up; the first time as a superuser, then as the owner.
    fn set_up(&self, arguments: &[&str]) -> String {
        let exists = "SELECT count(*) FROM pg_database WHERE datname = 'kwdb'";
        let is_first = self.as_superuser("postgres", exists) == "0";
        let role = if is_first { "postgres" } else { "kwuser" };
        let (code, out, errors) = self.db(&[&["setup", "--db_admin", role], arguments].concat());
        assert_eq!((code, errors.as_str()), (0, ""), "{out}");
        out
    }
}

fn secret(dir: &Path) -> String {
    let file = dir.join("secret");
    std::fs::write(&file, "pass'w\"ord\n").unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    file.display().to_string()
}

#[test]
fn the_reading_role_sees_samples_of_nodes_and_those_of_jobs_if_it_may() {
    let site = Site::new();
    let (code, _, errors) = site.db(&["setup"]);
    assert_eq!(code, 2);
    assert!(errors.contains("the role kwuser does not exist; give its password"), "{errors}");
    let (code, _, errors) = site.db(&["status"]);
    assert_eq!(code, 2, "{errors}");
    assert!(errors.contains("database \"kwdb\" does not exist"), "{errors}");
    let file = secret(&site.folder);
    let (code, script, _) = site.db(&["setup", "--dry-run", "--kwollect_password_file", &file]);
    assert_eq!(code, 0);
    assert!(
        !script.contains("pass'w") && !script.contains("SCRAM") && script.contains("PASSWORD '…'"),
        "{script}"
    );
    let out = site.set_up(&["--kwollect_password_file", &file]);
    assert!(out.contains("The database kwdb is set up."), "{out}");
    assert!(out.contains("postgres://kwuser:pass%27w%22ord@localhost:5432/kwdb"), "{out}");
    site.sql(ROWS);
    site.sql("INSERT INTO metrics VALUES ('infinity', 'n2', 'x', 1, '{}'), ('-infinity', 'n2', 'x', 1, '{}')");
    let (code, out, errors) = site.db(&["status", "--db_admin", "kwuser"]);
    assert_eq!((code, errors.as_str()), (0, ""), "{out}");
    site.sql("DELETE FROM metrics WHERE device_id = 'n2'");
    let counts = [
        ("SELECT count(*) FROM metrics", "1200"),
        ("SELECT count(*) FROM metrics_by_device", "1200"),
        ("SELECT count(*) FROM metrics_by_job WHERE job_id = 7", "196"),
        (
            "SELECT count(*) FROM metrics_by_job WHERE job_number = 7 AND cluster = 'oar' AND labels ? '_job_id'",
            "0",
        ),
        ("SELECT count(*) FROM nodetime_per_job", "4"),
        ("SELECT count(*) FROM api.get_metrics(job_id => 7)", "200"),
        ("SELECT count(*) FROM metrics_by_device_summary", "6"),
    ];
    for (statement, wanted) in counts {
        assert_eq!(site.read(statement).unwrap(), wanted, "{statement}");
    }
    let denied = [
        "SELECT * FROM jobmeter.job_metrics",
        "SELECT * FROM jobmeter.visible_job_metrics",
        "SELECT * FROM jobmeter.visible_job_metrics_summary",
        "SELECT * FROM jobmeter.series",
        "SELECT * FROM jobmeter.rollups",
        "SELECT * FROM jobmeter.allocations",
        "SELECT * FROM jobmeter.origins",
        "INSERT INTO metrics VALUES (now(), 'n1', 'x', 1, '{}')",
        "SELECT * FROM api.insert_metrics('n1', 'x')",
        "DELETE FROM promoted_metrics",
        "CREATE TABLE public.x (x int)",
        "CREATE FUNCTION jobmeter.x() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    ];
    for statement in denied {
        let error = site.read(statement).unwrap_err();
        assert!(error.contains("permission denied"), "{statement}: {error}");
    }
    nothing_of_jobs_leaks(&site);

    site.set_up(&["--ro-sees", "jobs"]);
    assert_eq!(site.read("SELECT count(*) FROM api.get_metrics(job_id => 7)").unwrap(), "300");
    let samples = "SELECT count(*), min(labels::text) FROM metrics_by_job WHERE job_number = 7 AND labels ? '_job_id'";
    assert_eq!(site.read(samples).unwrap(), r#"100|{"_job_id": "7", "_cluster": "oar"}"#);
    assert!(site.read("SELECT * FROM jobmeter.origins").is_err());
    site.set_up(&["--ro-sees", "nodes"]);
    assert_eq!(site.read("SELECT count(*) FROM api.get_metrics(job_id => 7)").unwrap(), "200");
}

/// Functions, operators and conditions of the reading role see no sample of a job.
fn nothing_of_jobs_leaks(site: &Site) {
    // A function with the owner's rights belongs to the trigger on `metrics` alone.
    let trigger = "CREATE TEMP TABLE mine (x int); CREATE TRIGGER t AFTER INSERT ON mine REFERENCING NEW TABLE AS added \
                   FOR EACH STATEMENT EXECUTE FUNCTION jobmeter.record_rows()";
    let error = site.read(trigger).unwrap_err();
    assert!(error.contains("permission denied for function jobmeter.record_rows"), "{error}");
    // Nor does an operator of the caller see statistics of the rows.
    site.sql("ANALYZE jobmeter.job_metrics");
    let operator = "CREATE FUNCTION pg_temp.leak(float8, float8) RETURNS boolean LANGUAGE plpgsql COST 0.00001 AS \
                    $$ BEGIN RAISE EXCEPTION 'seen %', $1; END $$; \
                    CREATE OPERATOR pg_temp.=== (LEFTARG = float8, RIGHTARG = float8, FUNCTION = pg_temp.leak, RESTRICT = eqsel); \
                    EXPLAIN SELECT * FROM jobmeter.windows_by_device WHERE value OPERATOR(pg_temp.===) 1::float8";
    let plan = site.read(operator);
    assert!(plan.as_ref().is_ok_and(|plan| !plan.is_empty()), "{plan:?}");
    // A condition of the caller does not see the rows that the view leaves out.
    let spy = "CREATE FUNCTION pg_temp.spy(labels jsonb) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS \
               $$ BEGIN IF labels ? '_job_id' THEN RAISE EXCEPTION 'seen %', labels; END IF; RETURN true; END $$; \
               SELECT count(*) FROM metrics_by_device WHERE pg_temp.spy(labels)";
    assert_eq!(site.read(spy).unwrap(), "1200");
    let spy = spy.replace("metrics_by_device WHERE", "metrics_by_job WHERE job_id = 7 AND");
    assert_eq!(site.read(&spy).unwrap(), "196");
}

#[test]
fn functions_answer_as_the_server_and_reject_what_is_wrong() {
    let site = Site::new();
    site.set_up(&["--kwollect_password", "secret", "--ro-sees", "jobs"]);
    site.sql(ROWS);
    let range = "start_time => '1767700000', end_time => '1767700599'";
    let rates = format!(
        "SELECT json_agg(value ORDER BY timestamp) FROM (SELECT * FROM api.get_metrics(nodes => 'n1', metrics => 'ticks_total', \
                         {range}, as_rate => 'auto') WHERE timestamp BETWEEN to_timestamp(1767700098) AND to_timestamp(1767700102)) AS r"
    );
    // The counter restarts before its reading of 0.
    assert_eq!(site.read(&rates).unwrap(), "[1, 1, 0, 2, 2]");
    for text in ["true", "'True'", "'1'", "'on'", "'AUTO'"] {
        let rates = rates.replace("'auto'", text);
        assert_eq!(site.read(&rates).unwrap(), "[1, 1, 0, 2, 2]", "{text}");
    }
    let first = format!(
        "SELECT value FROM api.get_metrics(nodes => 'n1', metrics => 'ticks_total', {range}, as_rate => true) LIMIT 1"
    );
    assert_eq!(site.read(&first).unwrap(), "", "it counts since long before the range");
    // A window has the rate since the window before, as in Kwollect: where its counter started does not count.
    site.sql(
        "INSERT INTO metrics SELECT to_timestamp(1767700200 + i), 'n1', 'new_total', i + 100.5, '{}' FROM generate_series(0, 299) AS i; \
         INSERT INTO jobmeter.series VALUES (2, 'n1', 'new_total', '{}', NULL, NULL, 1, 0, 0, 0, 0, 300); \
         INSERT INTO jobmeter.starts VALUES (2, 1767700200000000, 1767700099500000)",
    );
    for (metric, wanted) in [("ticks_total", "[null, 2.6600, 0.6667]"), ("new_total", "[null]")] {
        let windows = format!(
            "SELECT json_agg(round(value::numeric, 4) ORDER BY timestamp) FROM api.get_metrics(nodes => 'n1', metrics => '{metric}', \
             {range}, summary => true, as_rate => true)"
        );
        assert_eq!(site.read(&windows).unwrap(), wanted, "{metric}");
    }
    let errors = [
        ("SELECT * FROM api.get_metrics()", "Missing 'devices', 'nodes' or 'job_id' argument"),
        ("SELECT * FROM api.get_metrics(job_id => 99)", "unknown job 99"),
        ("SELECT * FROM api.get_metrics(job_id => 9)", "job 9 is in several clusters"),
        (
            "SELECT * FROM api.get_metrics(nodes => 'n1', start_time => 'noon?')",
            "invalid input syntax for type timestamp with time zone",
        ),
        (
            "SELECT * FROM api.get_metrics(nodes => 'n1', as_rate => 'often')",
            "invalid input value for enum",
        ),
        (
            "SELECT * FROM api.available_metrics(params => '{\"devices\": 1}')",
            "Cannot parse params->devices, should be JSON array",
        ),
    ];
    for (statement, wanted) in errors {
        let error = site.read(statement).unwrap_err();
        assert!(error.contains(wanted), "{statement}: {error}");
    }
    for attack in ["n1'; SELECT 1 --", "n1') OR ('1'='1", "$1", "n1\\' OR 1=1"] {
        let quoted = attack.replace('\'', "''");
        for call in [
            format!("nodes => '{quoted}', {range}"),
            format!("nodes => 'n2', metrics => '{quoted}', {range}"),
        ] {
            let statement = format!("SELECT count(*) FROM api.get_metrics({call})");
            assert_eq!(site.read(&statement).unwrap(), "0", "{call}");
        }
        let statement = format!(
            "SELECT count(*) FROM api.get_metrics(nodes => 'n1', start_time => '{quoted}')"
        );
        assert!(site.read(&statement).unwrap_err().contains("invalid input syntax"), "{attack}");
    }
}

#[test]
fn a_job_has_its_last_samples_and_no_window_of_the_next_one() {
    let site = Site::new();
    site.set_up(&["--kwollect_password", "secret", "--ro-sees", "jobs"]);
    site.sql(ROWS);
    // A last reading, one that is too late, and a job that ends with a window.
    site.sql(
        "INSERT INTO jobmeter.job_metrics VALUES (to_timestamp(1767700154), 'n1', 'cpu_seconds_total', 999, '{}', 'oar', 7), \
         (to_timestamp(1767700160), 'n1', 'cpu_seconds_total', 1000, '{}', 'oar', 7); \
         INSERT INTO jobmeter.allocations VALUES ('oar', 10, 'n1', to_timestamp(1767699900), to_timestamp(1767700200))",
    );
    for (call, wanted) in [
        ("job_id => 7", "301|999"),
        ("job_id => 7, as_rate => 'auto'", "301|"),
        ("job_id => 7, end_time => '1767700140'", "273|98"),
        ("job_id => 7, summary => true", "1|1000"),
        ("job_id => 10, summary => true", "0|"),
        ("job_id => 10, summary => true, end_time => '1767700201'", "2|"),
        ("job_id => 10, summary => true, start_time => '1767699901'", "2|"),
    ] {
        let of_job = "max(value) FILTER (WHERE metric_id = 'cpu_seconds_total')";
        let statement = format!("SELECT count(*), {of_job} FROM api.get_metrics({call})");
        let found = site.read(&statement).unwrap();
        let is_rate = call.contains("as_rate");
        assert!(found == wanted || is_rate && found.starts_with(wanted), "{call}: {found}");
    }
}

#[test]
fn a_role_of_the_site_with_one_view_reads_it() {
    let site = Site::new();
    site.set_up(&["--kwollect_password", "secret"]);
    site.sql(ROWS);
    site.as_superuser(
        "kwdb",
        "CREATE ROLE dashboards LOGIN; GRANT SELECT ON metrics_by_device TO dashboards",
    );
    let statement = "SET ROLE dashboards; SELECT count(*) FROM metrics_by_device";
    assert!(site.as_superuser("kwdb", statement).ends_with("1200"));
}

#[test]
fn the_statements_of_a_site_about_a_job_and_a_release_that_keeps_the_samples() {
    let site = Site::new();
    site.set_up(&["--kwollect_password", "secret", "--ro-sees", "jobs"]);
    site.sql(ROWS);
    let file = site.folder.join("requests.sql");
    std::fs::write(&file, "# one per line\nSELECT max(value) AS largest FROM jobmetrics WHERE metric_id = 'load_1m';\n\n\
        SELECT 1 / (count(*) - count(*)) AS broken FROM jobmetrics\n\
        SELECT value AS none, labels AS more FROM jobmetrics WHERE false -- nothing\n").unwrap();
    let path = file.display().to_string();
    site.set_up(&["--jobmetrics_requests_path", &path, "--ro-sees", "jobs"]);
    assert_eq!(
        site.read("SELECT api.get_job_metrics(8)").unwrap().replace(' ', ""),
        r#"{"largest":4,"broken":null,"none":null,"more":null}"#
    );
    std::fs::write(&file, "SELECT 1 AS one\nDELETE FROM metrics\n").unwrap();
    let (code, _, errors) =
        site.db(&["setup", "--db_admin", "kwuser", "--jobmetrics_requests_path", &path]);
    assert_eq!(code, 2);
    assert!(errors.contains("line 2: syntax error"), "{errors}");
    // A released database keeps the samples of nodes.
    let (code, _, errors) = site.db(&["release", "--db_admin", "kwuser"]);
    assert_eq!((code, errors.as_str()), (0, ""));
    assert_eq!(site.sql("SELECT count(*) FROM metrics"), "1200");
    assert_eq!(
        site.sql("SELECT count(*) FROM pg_namespace WHERE nspname IN ('jobmeter', 'api')"),
        "0"
    );
    let out = site.set_up(&[]);
    assert!(out.contains("is set up: its table `metrics` keeps its partitions."), "{out}");
    assert_eq!(site.sql("SELECT count(*) FROM metrics_by_device"), "1200");
    site.sql("INSERT INTO metrics VALUES (now() + interval '1 hour', 'n1', 'x', 1, '{}')");
    let (code, out, errors) = site.db(&["status", "--db_admin", "kwuser"]);
    assert_eq!((code, errors.as_str()), (0, ""), "{out}");
    let newest = out.lines().find(|line| line.starts_with("newest sample")).unwrap();
    assert!(newest.contains(" 3") && newest.ends_with(" s in the future"), "{newest}");
}

#[test]
fn a_superuser_executes_nothing_that_the_owner_planted() {
    let site = Site::new();
    site.set_up(&["--kwollect_password", "secret"]);
    site.sql(
        "CREATE FUNCTION public.planted() RETURNS int LANGUAGE plpgsql AS $$ BEGIN \
         IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN ALTER ROLE kwuser_ro CONNECTION LIMIT 77; END IF; \
         RETURN 1; END $$; \
         ALTER TABLE jobmeter.setup RENAME TO other; CREATE VIEW jobmeter.setup AS SELECT true AS is_one, public.planted() AS version; \
         ALTER TABLE jobmeter.state RENAME TO state_of; CREATE VIEW jobmeter.state AS SELECT public.planted()::bigint AS settled_us, 6 AS chunk_interval_hour",
    );
    for words in [
        &["status"][..],
        &["setup"],
        &["setup", "--dry-run"],
        &["release"],
        &["release", "--dry-run"],
        &["rollup", "--start", "2h", "--end", "1h"],
    ] {
        let (code, out, errors) = site.db(words);
        assert_eq!(code, 2, "{words:?}: {out}");
        assert!(errors.contains("repeat the command as its owner"), "{words:?}: {errors}");
    }
    let limit = "SELECT rolconnlimit FROM pg_roles WHERE rolname = 'kwuser_ro'";
    assert_eq!(site.sql(limit), "-1");
}
