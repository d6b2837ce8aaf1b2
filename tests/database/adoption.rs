//! A database that Kwollect's setup program made is adopted, answers as before, and is given back.

use crate::common::database::query;
use crate::common::programs::{Running, Server, get, output, program, until};
use crate::database::site::Site;
use crate::repository::layers::repository;
use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

/// Rows of all kinds that Kwollect accepts. The times are whole minutes before now, so rows of one setup are comparable.
const ROWS: &str = r#"
CREATE TABLE times AS SELECT date_trunc('hour', now()) - interval '3 hours' AS t0;
INSERT INTO metrics SELECT t0 + i * interval '1 second', 'node-' || d, 'load_1m', i % 7, '{"cpu": "0"}'
    FROM times, generate_series(0, 1199) AS i, generate_series(1, 3) AS d;
INSERT INTO metrics SELECT t0 + i * interval '5 seconds', 'node-1', 'cpu_seconds_total', i * 2.5, '{}'
    FROM times, generate_series(0, 239) AS i;
INSERT INTO metrics SELECT t0 + i * interval '1 second', 'pdu-port' || p, 'wattmetre_power_watt', 100 + i % 3,
    '{"_device_alias": "node-1"}' FROM times, generate_series(0, 599) AS i, generate_series(1, 2) AS p;
INSERT INTO metrics SELECT t0, 'odd', 'metric ' || i, v, l FROM times, (VALUES (1, NULL::float8, NULL::jsonb), (2, 'NaN', '{}'),
    (3, '-Infinity', '{"a": [1, {"b": null}]}'), (4, 1e300, '{"_metric_scrape_time": 1.5, "ü": "x\ny"}'), (5, 2, '["a"]'))
    AS odd (i, v, l);
INSERT INTO metrics SELECT t0, 'it''s "odd" \ ü', 'x', 1, '{}' FROM times;
"#;

/// The site's own integration of a scheduler, options and comments.
const JOBS: &str = "CREATE TABLE site_jobs (job_id int, start_time timestamptz, stop_time timestamptz, node text);
INSERT INTO site_jobs SELECT 7, t0 + interval '100 s', t0 + interval '400 s', n FROM times, unnest(ARRAY['node-1', 'node-2']) AS n;
INSERT INTO site_jobs SELECT 8, t0 + interval '600 s', NULL, 'node-3' FROM times;
CREATE OR REPLACE VIEW nodetime_by_job AS SELECT * FROM site_jobs;
GRANT SELECT ON site_jobs TO kwuser_ro;
ALTER VIEW metrics_by_device SET (security_barrier = true);
ALTER VIEW metrics_by_job SET (security_barrier = true);
COMMENT ON VIEW metrics_by_job IS 'of the ''site';
COMMENT ON COLUMN metrics_by_job.value IS 'a column';
COMMENT ON VIEW metrics_by_device IS 'of the site';
DO $$ DECLARE one regprocedure; BEGIN
    FOR one IN SELECT oid FROM pg_proc WHERE pronamespace = 'api'::regnamespace AND prokind = 'f' LOOP
        EXECUTE format('COMMENT ON FUNCTION %s IS %L', one, 'of the site');
    END LOOP;
END $$;";

/// Calls whose answers are the same with Kwollect's functions and with ours.
const CALLS: [&str; 19] = [
    "FROM api.get_metrics(nodes => 'node-1', start_time => T(0), end_time => T(1200))",
    "FROM api.get_metrics(devices => 'node-1.site.fr,node-2', metrics => 'load_1m,none', start_time => T(0), end_time => T(60))",
    "FROM api.get_metrics(nodes => 'node-1', devices => 'node-3', start_time => T(0))",
    "FROM api.get_metrics(nodes => 'node-1', end_time => T(600))",
    "FROM api.get_metrics(nodes => 'node-1', metrics => 'wattmetre_power_watt', start_time => E(0), end_time => E(1200))",
    "FROM api.get_metrics(nodes => 'node-1', start_time => T(0), end_time => T(1200), summary => true)",
    "FROM api.get_metrics(nodes => 'node-1', metrics => 'cpu_seconds_total', start_time => T(0), end_time => T(1200), as_rate => true)",
    "FROM api.get_metrics(nodes => 'node-1', metrics => 'cpu_seconds_total', start_time => T(0), end_time => T(1200), summary => true, as_rate => true)",
    "FROM api.get_metrics(devices => 'odd', start_time => T(0), end_time => T(10))",
    "FROM api.get_metrics(nodes => 'nobody', start_time => T(0), end_time => T(10))",
    "FROM api.get_metrics(nodes => 'node-1')",
    "FROM api.get_metrics(job_id => 7)",
    "FROM api.get_metrics(job_id => 7, metrics => 'load_1m', start_time => T(0))",
    "FROM api.get_metrics(job_id => 7, nodes => 'node-3', end_time => T(300))",
    "FROM api.available_metrics(at => T(100)::timestamptz)",
    "FROM api.available_metrics(T(100)::timestamptz, '{\"devices\": [\"node-1\", \"odd\"]}')",
    "FROM api.available_metrics(params => '{\"job_id\": \"7\"}')",
    "FROM metrics_by_device WHERE device_id <> 'node-9'",
    "FROM metrics_by_device_summary WHERE device_id <> 'node-9'",
];
/// The columns of Kwollect alone: ours has more.
const BY_JOB: [&str; 2] = ["metrics_by_job", "metrics_by_job_summary"];

/// The schema by the catalogue, where `pg_dump` is older than the server. Rights that nobody has changed are those of the owner.
const SCHEMA: &str = "SELECT format('%s %s %s %s %s %s', c.oid::regclass, relkind, relowner::regrole,
        coalesce(relacl, acldefault(CASE relkind WHEN 'S' THEN 's' ELSE 'r' END::\"char\", relowner)), reloptions,
        CASE WHEN relkind IN ('v', 'm') THEN pg_get_viewdef(c.oid) WHEN relkind IN ('i', 'I') THEN pg_get_indexdef(c.oid) END)
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace WHERE nspname !~ '^pg_|^information_schema'
    UNION ALL SELECT format('%s.%s %s %s %s %s', attrelid::regclass, attname, format_type(atttypid, atttypmod), attnotnull, attacl,
        (SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = attrelid AND adnum = attnum))
    FROM pg_attribute JOIN pg_class AS c ON c.oid = attrelid JOIN pg_namespace AS n ON n.oid = relnamespace
    WHERE nspname !~ '^pg_|^information_schema' AND attnum > 0 AND NOT attisdropped
    UNION ALL SELECT format('%s %s %s', pg_get_functiondef(p.oid), proowner::regrole, proacl)
    FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = pronamespace WHERE nspname !~ '^pg_|^information_schema' AND prokind IN ('f', 'p')
    UNION ALL SELECT format('%s %s %s', nspname, nspowner::regrole, coalesce(nspacl, acldefault('n', nspowner))) FROM pg_namespace WHERE nspname !~ '^pg_|^information_schema'
    UNION ALL SELECT format('%s %s', conname, pg_get_constraintdef(oid)) FROM pg_constraint WHERE conrelid <> 0
    UNION ALL SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
    UNION ALL SELECT format('%s %s', pg_describe_object(classoid, objoid, objsubid), description) FROM pg_description WHERE objoid >= 16384
    ORDER BY 1";

impl Site {
    /// A database as Kwollect's setup makes it, with rows.
    fn of_kwollect(shape: &str, more: &str) -> Self {
        let site = Self::new();
        let mut setup = Command::new(repository().join("target/python/bin/python"));
        setup.arg(repository().join("tests/database/kwollect_setup.py")).arg(shape);
        setup.args(["--kwollect_password", "secret", "--db_host"]).arg(&site.folder);
        let (code, out, errors) = output(&mut setup);
        assert_eq!(
            code, 0,
            "{out}{errors}; is the package postgresql-plpython3 of this PostgreSQL installed?"
        );
        site.sql(ROWS);
        site.sql(more);
        site
    }

    /// Whether Kwollect's own functions can be called. Binaries of other versions have no plpython3.
    fn has_python(&self) -> bool {
        self.sql("SELECT count(*) FROM pg_language WHERE lanname = 'plpython3u'") == "1"
    }

    /// The schema, as `pg_dump` writes it.
    fn dump(&self, database: &str) -> String {
        let mut command = Command::new("pg_dump");
        let (code, out, errors) =
            output(command.arg("-h").arg(&self.folder).args(["-U", "postgres", "-s", database]));
        if errors.contains("server version mismatch") {
            return self.as_superuser(database, SCHEMA);
        }
        assert_eq!(code, 0, "{errors}");
        // A word of chance, against a dump's own meta-commands.
        out.lines().filter(|line| !line.contains("restrict ")).collect::<Vec<_>>().join("\n")
    }

    /// The answers to all calls, as text.
    fn answers(&self) -> Vec<String> {
        let has_python = self.has_python();
        let calls = CALLS.iter().filter(|call| has_python || !call.contains("api.")).map(|call| {
            let mut text = (*call).to_owned();
            for seconds in [0, 10, 60, 100, 300, 600, 1200] {
                let at = format!("t0 + interval '{seconds} s'");
                text = text.replace(
                    &format!("T({seconds})"),
                    &format!("(SELECT ({at})::text FROM times)"),
                );
                let epoch = format!("(SELECT extract(epoch FROM {at})::text FROM times)");
                text = text.replace(&format!("E({seconds})"), &epoch);
            }
            format!("SELECT json_agg(r ORDER BY r::text) FROM (SELECT * {text}) AS r")
        });
        let by_job = BY_JOB.iter().map(|view| {
            let columns =
                "timestamp, device_id, metric_id, value, labels, start_time, stop_time, job_id";
            format!("SELECT json_agg(r ORDER BY r::text) FROM (SELECT {columns} FROM {view}) AS r")
        });
        calls
            .chain(by_job)
            .map(|text| {
                let answer = query(&self.folder, "kwdb", "kwuser_ro", &text);
                let answer = answer.unwrap_or_else(|error| panic!("{text}: {error}"));
                // Kwollect's metrics_by_job has these in any order.
                answer.replace(r#"["pdu-port2", "pdu-port1"]"#, r#"["pdu-port1", "pdu-port2"]"#)
            })
            .collect()
    }
}

/// Compares answers; the first different one is the message, from where it differs on.
fn same(found: &[String], wanted: &[String]) {
    for (place, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        let at = found
            .bytes()
            .zip(wanted.bytes())
            .take_while(|(a, b)| a == b)
            .count()
            .saturating_sub(200);
        let cut =
            |text: &str| text.get(at..).unwrap_or_default().chars().take(500).collect::<String>();
        assert!(found == wanted, "answer {place}: {}\nKwollect: {}", cut(found), cut(wanted));
    }
}

/// The script that `--dry-run` prints makes the schema that the command makes.
fn the_printed_script_does_the_same(site: &Site, before: &str) {
    query(&site.folder, "postgres", "postgres", "CREATE DATABASE copy TEMPLATE kwdb").unwrap();
    query(&site.folder, "postgres", "postgres", "GRANT ALL ON DATABASE copy TO kwuser").unwrap();
    let (code, script, errors) = site.db(&["setup", "--dry-run"]);
    assert_eq!((code, errors.as_str()), (0, ""));
    assert_eq!(site.dump("kwdb"), before, "it changed nothing");
    let (_, within) = script.split_once("-- in the database kwdb\n").unwrap();
    site.execute("copy", within);
}

fn adopts(shape: &str, jobs: &str) {
    let site = Site::of_kwollect(shape, jobs);
    let (before, answers) = (site.dump("kwdb"), site.answers());
    assert!(answers[0].len() > 1000 && answers.len() > 3, "the calls have rows");
    the_printed_script_does_the_same(&site, &before);
    let (code, out, errors) = site.db(&["setup", "--kwollect_password", "secret"]);
    assert_eq!((code, errors.as_str()), (0, ""), "{out}");
    assert!(out.contains("of Kwollect is adopted"), "{out}");
    assert_eq!(out.contains("plpython3u is trusted"), site.has_python(), "{out}");
    assert_eq!(site.dump("kwdb"), site.dump("copy"));
    same(&site.answers(), &answers);
    let rows = site.sql("SELECT count(*) FROM metrics");
    // The command may be repeated.
    let (code, _, errors) = site.db(&["setup"]);
    assert_eq!(code, 2, "a superuser would execute what the owner can change");
    assert!(errors.contains("repeat the command as its owner"), "{errors}");
    let (once, (code, out, errors)) = (site.dump("kwdb"), site.db_as_owner(&["setup"]));
    assert_eq!((code, errors.as_str()), (0, ""), "{out}");
    assert!(out.contains("is up to date"), "{out}");
    assert_eq!(site.dump("kwdb"), once);
    // Rows of today, and of another time than any partition has.
    site.sql("INSERT INTO metrics VALUES (now(), 'node-9', 'x', 1, '{}'), (now() + interval '40 days', 'node-9', 'x', 2, '{}')");
    let (code, out, errors) = site.db_as_owner(&["release"]);
    assert_eq!((code, errors.as_str()), (0, ""), "{out}");
    assert_eq!(site.dump("kwdb"), before);
    assert!(out.contains("\n  ALTER DATABASE kwdb RESET statement_timeout;\n"), "{out}");
    assert!(out.ends_with("\n  DROP ROLE kwuser_ro;\n  DROP ROLE kwuser;\n"), "{out}");
    same(&site.answers(), &answers);
    let added = |text: &str| text.trim().parse::<u64>().unwrap() + 2;
    assert_eq!(site.sql("SELECT count(*) FROM metrics").trim(), added(&rows).to_string());
    let (code, _, errors) = site.db(&["release"]);
    assert_eq!(code, 2, "{errors}");
    assert!(errors.contains("did not set up this database"), "{errors}");
    site.sql("DELETE FROM metrics WHERE device_id = 'node-9'");
    interrupted(&site, &before);
}

/// A setup that ended before its last transaction can be repeated, or undone. Its bound does not stay.
fn interrupted(site: &Site, before: &str) {
    let (code, script, errors) = site.db(&["setup", "--dry-run"]);
    assert_eq!(code, 0, "{errors}");
    let (_, within) = script.split_once("-- in the database kwdb\n").unwrap();
    let (first, _) = within.rsplit_once("BEGIN;").unwrap();
    for end in ["release", "setup"] {
        query(&site.folder, "kwdb", "postgres", first).unwrap();
        let (code, out, errors) = site.db(&[end]);
        assert_eq!((code, errors.as_str()), (0, ""), "{end}: {out}");
        if end == "setup" {
            assert_eq!(site.db_as_owner(&["release"]).0, 0);
        }
        assert_eq!(site.dump("kwdb"), before, "{end}");
    }
}

#[test]
fn a_hypertable_is_adopted_in_place_and_given_back() {
    adopts("hypertable", JOBS);
}

#[test]
fn a_plain_table_is_adopted_in_place_and_given_back() {
    adopts("plain", JOBS);
}

#[test]
fn a_table_without_the_rest_of_kwollect_is_given_back_as_it_was() {
    let site = Site::new();
    for statement in [
        "CREATE ROLE kwuser LOGIN",
        "CREATE ROLE kwuser_ro LOGIN",
        "CREATE DATABASE kwdb OWNER kwuser ENCODING 'UTF8' TEMPLATE template0",
    ] {
        site.as_superuser("postgres", statement);
    }
    site.as_superuser("kwdb", "CREATE SCHEMA api; GRANT ALL ON SCHEMA public TO kwuser");
    site.sql(
        "CREATE TABLE metrics (timestamp timestamptz NOT NULL, device_id text NOT NULL, metric_id text NOT NULL, \
         value double precision, labels jsonb); \
         CREATE INDEX of_site ON metrics (device_id, timestamp DESC); \
         CREATE VIEW metrics_by_device AS SELECT * FROM metrics; \
         INSERT INTO metrics VALUES (now(), 'n1', 'x', 1, '{}')",
    );
    let drop = "DROP TABLE public.promoted_metrics";
    let api = ["CREATE", "USAGE"].map(|right| format!("REVOKE {right} ON SCHEMA api FROM kwuser"));
    let api = format!("{}; REVOKE USAGE ON SCHEMA api FROM kwuser_ro", api.join("; "));
    for (owner, left) in [("postgres", vec![drop, &api]), ("kwuser", vec![drop])] {
        site.as_superuser("kwdb", &format!("ALTER SCHEMA api OWNER TO {owner}"));
        let before = site.dump("kwdb");
        let (code, out, errors) = site.db(&["setup"]);
        assert_eq!((code, errors.as_str()), (0, ""), "{out}");
        let (code, out, errors) = site.db_as_owner(&["release"]);
        assert_eq!((code, errors.as_str()), (0, ""), "{out}");
        let (here, _) = out.split_once("Roles, their settings").unwrap();
        let (first, here) = here.split_once('\n').unwrap();
        assert!(first.contains("except for the following"), "{first}");
        let here: Vec<_> = here.lines().map(|line| line.trim().trim_end_matches(';')).collect();
        assert_eq!(here, left);
        site.as_superuser("kwdb", &here.join("; "));
        assert_eq!(site.dump("kwdb"), before);
    }
}

#[test]
fn what_is_in_the_way_is_named_and_left() {
    let site = Site::of_kwollect("plain", "");
    let refused = |statements: &str, undo: &str, words: &str| {
        site.sql(statements);
        let before = site.dump("kwdb");
        let (code, out, errors) = site.db(&["setup"]);
        assert_eq!(code, 2, "{statements}: {out}");
        assert!(errors.contains(words), "{statements}: {errors}");
        assert_eq!(site.dump("kwdb"), before, "{statements}");
        site.sql(undo);
    };
    refused(
        "CREATE VIEW of_site AS SELECT * FROM metrics",
        "DROP VIEW of_site",
        "public.of_site depends on `metrics`",
    );
    refused(
        "CREATE VIEW of_site AS SELECT * FROM api.available_metrics()",
        "DROP VIEW of_site",
        "public.of_site depends on api.available_metrics",
    );
    refused(
        "ALTER TABLE metrics ADD CONSTRAINT small CHECK (value IS DISTINCT FROM 1e307)",
        "ALTER TABLE metrics DROP CONSTRAINT small",
        "the constraint small of `metrics`",
    );
    refused(
        "CREATE POLICY few ON metrics USING (true)",
        "DROP POLICY few ON metrics",
        "the policy few of `metrics`",
    );
    refused(
        "DROP VIEW metrics_by_job; CREATE VIEW metrics_by_job AS SELECT 1 AS x",
        "DROP VIEW metrics_by_job",
        "public.metrics_by_job has other columns than Kwollect's: x",
    );
    refused(
        "CREATE TABLE metrics_by_job (x int)",
        "DROP TABLE metrics_by_job",
        "public.metrics_by_job is not a view",
    );
    refused(
        "ALTER TABLE metrics ADD COLUMN more text",
        "ALTER TABLE metrics DROP COLUMN more CASCADE",
        "`metrics` has other columns than Kwollect's",
    );
    refused(
        "CREATE UNIQUE INDEX one ON metrics (device_id, metric_id, timestamp, labels)",
        "DROP INDEX one",
        "the unique index one",
    );
    refused(
        "ALTER TABLE metrics ALTER timestamp DROP NOT NULL; INSERT INTO metrics VALUES (NULL, 'n', 'm', 1, '{}')",
        "DELETE FROM metrics WHERE timestamp IS NULL",
        "1 rows of `metrics` have no timestamp",
    );
    refused(
        "INSERT INTO metrics VALUES ('infinity', 'n', 'm', 1, '{}')",
        "DELETE FROM metrics WHERE timestamp = 'infinity'",
        "more than a day ahead",
    );
    let mut command = Command::new(program("jobmeter"));
    let (code, _, errors) = output(
        command.args(["db", "setup", "--db_admin", "kwuser_ro", "--db_host"]).arg(&site.folder),
    );
    assert_eq!(code, 2);
    assert!(errors.contains("kwuser_ro is no superuser"), "{errors}");
}

#[test]
fn a_lock_of_another_session_is_awaited_without_a_line_behind_it() {
    let site = Site::of_kwollect("plain", "");
    let mut holder = Command::new("psql");
    holder.arg("-h").arg(&site.folder).args(["-U", "kwuser", "-d", "kwdb", "-c"]);
    let mut holder = holder
        .arg("BEGIN; SELECT count(*) FROM metrics; SELECT pg_sleep(4); COMMIT")
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let setup = std::thread::scope(|scope| {
        let setup = scope.spawn(|| site.db(&["setup"]));
        // Another reader waits only for what a transaction of the setup takes, not for the holder.
        std::thread::sleep(Duration::from_millis(700));
        let limit = "SET statement_timeout = '1500ms'; SELECT count(*) > 0 FROM metrics";
        assert_eq!(query(&site.folder, "kwdb", "kwuser_ro", limit).unwrap().trim(), "t");
        setup.join().unwrap()
    });
    assert!(holder.wait().unwrap().success());
    assert_eq!(setup.0, 0, "{}", setup.2);
    assert!(!setup.1.contains("Waits for locks: 0"), "{}", setup.1);
}

/// Kwollect's kwollector, which polls an exporter each second.
fn kwollector(site: &Site) -> (Running, Running) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut exporter = Command::new("prometheus-node-exporter");
    exporter.arg(format!("--web.listen-address=127.0.0.1:{port}"));
    exporter.args([
        "--collector.disable-defaults",
        "--collector.loadavg",
        "--web.disable-exporter-metrics",
    ]);
    let exporter = Running::start(&mut exporter);
    let descriptions = site.folder.join("metrics.d");
    std::fs::create_dir(&descriptions).unwrap();
    let entry = format!(
        "{{name: prom_all, device_id: kw-1, url: 'prometheus://127.0.0.1:{port}/', update_every: 1000}}\n"
    );
    std::fs::write(descriptions.join("kw-1.conf"), entry).unwrap();
    let mut kwollector = Command::new(repository().join("target/python/bin/python"));
    kwollector.args(["-c", "from kwollect.kwollector import main; main()", "--metrics_dir"]);
    kwollector.arg(format!("{}/", descriptions.display())).arg("--db_host").arg(&site.folder);
    (exporter, Running::start(&mut kwollector))
}

#[test]
fn a_server_and_kwollector_fill_one_database_and_both_interfaces_show_the_same() {
    let site = Site::of_kwollect("hypertable", "");
    let (code, out, errors) = site.db(&["setup"]);
    assert_eq!((code, errors.as_str()), (0, ""), "{out}");
    let parameters = format!("host={} user=kwuser dbname=kwdb", site.folder.display());
    let data = site.folder.parent().unwrap().join("data");
    let arguments = ["--store", "postgres", "--postgres-database", &parameters];
    let mut server = Server::start(&data, &arguments);
    let mut agent = Running::agent(&server.url, "n1", &site.folder.parent().unwrap().join("spool"));
    let (mut exporter, mut kwollector) = kwollector(&site);
    let rows = |nodes: &str, more: &str| {
        let (status, text) = get(&server.url, &format!("/rpc/get_metrics?nodes={nodes}{more}"));
        let rows: Vec<serde_json::Value> =
            serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
        assert_eq!(status, 200, "{text}");
        rows
    };
    let limit = Duration::from_secs(60);
    until("rows of both", limit, || {
        let enough = |nodes: &str, metrics: &str| rows(nodes, metrics).len() > 5;
        (enough("kw-1", "&metrics=prom_node_load1") && enough("n1", "&metrics=load_1m"))
            .then_some(())
    });
    kwollector.kill();
    exporter.kill();
    assert_eq!(agent.end(), 0);
    // Nothing writes any more: the server and the function in the database have the same rows.
    let range = "&start_time=2020-01-01&end_time=now";
    for nodes in ["kw-1", "n1", "kw-1,n1"] {
        let text = |row: &serde_json::Value| row.to_string();
        // Jobs of this machine are not for the reading role.
        let of_node = |row: &&serde_json::Value| row["labels"]["_job_id"].is_null();
        let rows = rows(nodes, range);
        let mut by_server: Vec<String> = rows.iter().filter(of_node).map(text).collect();
        let call = format!(
            "SELECT row_to_json(r) FROM api.get_metrics(nodes => '{nodes}', start_time => '2020-01-01', end_time => 'now') AS r"
        );
        let by_database = query(&site.folder, "kwdb", "kwuser_ro", &call).unwrap();
        let mut by_database: Vec<String> =
            by_database.lines().map(|line| text(&serde_json::from_str(line).unwrap())).collect();
        by_server.sort();
        by_database.sort();
        same(&by_server, &by_database);
        assert_eq!(by_server.len(), by_database.len(), "{nodes}");
        assert!(by_server.len() > 5, "{nodes}");
    }
    let (code, _, errors) = site.db_as_owner(&["release"]);
    assert_eq!(code, 2);
    assert!(errors.contains("a server of jobmeter uses this database"), "{errors}");
    server.running.kill();
    until("the end of the server's session", limit, || {
        (site.db_as_owner(&["release"]).0 == 0).then_some(())
    });
    if !site.has_python() {
        return;
    }
    let count = "SELECT count(*) > 5 FROM api.get_metrics(nodes => 'kw-1', start_time => '2020-01-01', end_time => 'now')";
    assert_eq!(query(&site.folder, "kwdb", "kwuser_ro", count).unwrap().trim(), "t");
}
