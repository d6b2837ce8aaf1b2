//! A new database where TimescaleDB is installed. Its functions are stubs here.

use crate::database::site::Site;

/// TimescaleDB as the catalogue lists it. Its functions record their calls.
const STUBS: &str = "
INSERT INTO pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion)
    VALUES (99999, 'timescaledb', 10, 'public'::regnamespace, false, '{version}');
CREATE TABLE calls (place serial, call text);
CREATE SCHEMA timescaledb_information;
CREATE VIEW timescaledb_information.hypertables AS SELECT 'public'::name AS hypertable_schema, 'metrics'::name AS hypertable_name,
    EXISTS (SELECT FROM calls WHERE call = 'compression') AS compression_enabled
    WHERE EXISTS (SELECT FROM calls WHERE call LIKE 'create_hypertable%');
CREATE FUNCTION called(call text) RETURNS void LANGUAGE sql SECURITY DEFINER AS 'INSERT INTO public.calls (call) VALUES ($1)';
CREATE FUNCTION create_hypertable(relation regclass, time_column_name name, chunk_time_interval interval) RETURNS void LANGUAGE sql
    AS $$ SELECT called(format('create_hypertable %s %s %s', $1, $2, $3)) $$;
CREATE FUNCTION by_range(column_name name, partition_interval interval) RETURNS jsonb LANGUAGE sql
    AS $$ SELECT jsonb_build_array($1, $2) $$;
CREATE FUNCTION create_hypertable(relation regclass, dimension jsonb) RETURNS void LANGUAGE sql
    AS $$ SELECT called(format('create_hypertable %s by_range %s', $1, $2)) $$;
CREATE FUNCTION set_chunk_time_interval(relation regclass, chunk_time_interval interval) RETURNS void LANGUAGE sql
    AS $$ SELECT called(format('set_chunk_time_interval %s %s', $1, $2)) $$;
CREATE FUNCTION add_compression_policy(relation regclass, compress_after interval) RETURNS void LANGUAGE sql
    AS $$ SELECT called(format('add_compression_policy %s %s', $1, $2)) $$;
CREATE FUNCTION remove_compression_policy(relation regclass, if_exists boolean) RETURNS void LANGUAGE sql
    AS $$ SELECT called(format('remove_compression_policy %s', $1)) $$;
CREATE PROCEDURE add_columnstore_policy(relation regclass, after interval) LANGUAGE sql
    AS $$ SELECT called(format('add_columnstore_policy %s %s', $1, $2)) $$;
CREATE PROCEDURE remove_columnstore_policy(relation regclass, if_exists boolean) LANGUAGE sql
    AS $$ SELECT called(format('remove_columnstore_policy %s', $1)) $$;
CREATE FUNCTION add_continuous_aggregate_policy(relation regclass, start_offset interval, end_offset interval, schedule_interval interval)
    RETURNS void LANGUAGE sql AS $$ SELECT called(format('add_continuous_aggregate_policy %s %s %s %s', $1, $2, $3, $4)) $$;
CREATE FUNCTION time_bucket(width interval, at timestamptz) RETURNS timestamptz LANGUAGE sql IMMUTABLE
    AS $$ SELECT to_timestamp((floor(extract(epoch FROM $2) / extract(epoch FROM $1)) * extract(epoch FROM $1))::double precision) $$;
GRANT USAGE ON SCHEMA timescaledb_information TO PUBLIC;
GRANT SELECT ON calls, timescaledb_information.hypertables TO PUBLIC;
";

/// Rows of two windows: a total with a value that is no number, labels that are no object, and the time of a scrape.
const ROWS: &str = r#"
INSERT INTO metrics SELECT to_timestamp(1767700200 + i * 60), 'n1', 'load_1m', i, '{"_metric_scrape_time": 1, "a": 1}' FROM generate_series(0, 9) AS i;
INSERT INTO metrics SELECT to_timestamp(1767700200 + i * 60), 'n1', 'ticks_total', CASE WHEN i = 3 THEN 'NaN'::float8 ELSE i END, '[1]' FROM generate_series(0, 9) AS i;
INSERT INTO metrics SELECT to_timestamp(1767700200), 'n1', 'x', 1, NULL;
"#;

/// PostgreSQL itself has no options of the name space `timescaledb`.
fn without_options(script: &str) -> String {
    let (compression, view) =
        ("ALTER TABLE metrics SET (timescaledb.", "CREATE MATERIALIZED VIEW metrics_summary WITH");
    let lines = script.lines().map(|line| match line {
        _ if line.starts_with(compression) => "SELECT called('compression');",
        _ if line.starts_with("ALTER MATERIALIZED VIEW metrics_summary SET (timescaledb.") => "",
        _ if line.starts_with(view) => "CREATE VIEW metrics_summary AS",
        "WITH NO DATA;" => ";",
        other => other,
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A database that the printed statements set up, and the calls.
fn set_up(version: &str) -> (Site, String) {
    let site = Site::new();
    site.as_superuser("postgres", "CREATE DATABASE kwdb");
    site.execute("kwdb", &STUBS.replace("{version}", version));
    let (code, script, errors) = site.db(&[
        "setup",
        "--dry-run",
        "--kwollect_password",
        "secret",
        "--chunk_interval_hour",
        "12",
        "--chunk_compress_hour",
        "36",
    ]);
    assert_eq!((code, errors.as_str()), (0, ""));
    let (roles, within) = script.split_once("-- in the database kwdb\n").unwrap();
    site.execute("postgres", roles);
    site.execute("kwdb", &without_options(within));
    let calls = calls(&site);
    (site, calls)
}

fn calls(site: &Site) -> String {
    site.as_superuser("kwdb", "SELECT call FROM calls ORDER BY place")
}

#[test]
fn a_new_database_has_a_hypertable_with_compression_and_a_continuous_aggregate() {
    let (_, by_later_names) = set_up("2.18.1");
    let policies = "add_continuous_aggregate_policy metrics_summary 12:00:00 00:10:00 00:05:00";
    assert_eq!(
        by_later_names,
        format!(
            "create_hypertable metrics by_range [\"timestamp\", \"12:00:00\"]\ncompression\nadd_columnstore_policy metrics 36:00:00\n\
             {policies}\nadd_columnstore_policy metrics_summary 48:00:00"
        )
    );
    let (site, first) = set_up("2.11.2");
    assert_eq!(
        first,
        format!(
            "create_hypertable metrics timestamp 12:00:00\ncompression\nadd_compression_policy metrics 36:00:00\n{policies}\n\
             add_compression_policy metrics_summary 48:00:00"
        )
    );
    let (code, out, errors) = site.db_as_owner(&["setup"]);
    assert_eq!((code, errors.as_str()), (0, ""), "{out}");
    assert!(out.contains("is up to date"), "{out}");
    assert_eq!(calls(&site), first, "options that are not given change nothing");
    let (_, out, _) = site.db_as_owner(&["status"]);
    for line in ["TimescaleDB             2.11.2\n", "metrics                 hypertable\n"] {
        assert!(out.contains(line), "{out}");
    }
    site.sql(ROWS);
    let summary = "SELECT json_agg(json_build_array(metric_id, value, labels) ORDER BY timestamp, metric_id) FROM metrics_summary";
    let wanted = r#"[["load_1m", 2, {"a": 1}], ["ticks_total", 4, [1]], ["x", 1, null], ["load_1m", 7, {"a": 1}], ["ticks_total", 9, [1]]]"#;
    assert_eq!(site.read(summary).unwrap(), wanted);
    let call = "SELECT count(*) FROM api.get_metrics(nodes => 'n1', start_time => '1767700200', end_time => '1767700800', summary => true)";
    assert_eq!(site.read(call).unwrap(), "5");
    let later = ["setup", "--chunk_interval_hour", "24", "--chunk_compress_hour", "72"];
    let (code, out, errors) = site.db_as_owner(&later);
    assert_eq!((code, errors.as_str()), (0, ""), "{out}");
    let added = "set_chunk_time_interval metrics 24:00:00\nremove_compression_policy metrics\nadd_compression_policy metrics 72:00:00";
    assert_eq!(calls(&site), format!("{first}\n{added}"));
    let (code, out, errors) = site.db_as_owner(&["release"]);
    assert_eq!((code, errors.as_str()), (0, ""), "{out}");
    assert_eq!(site.read(summary).unwrap(), wanted);
}

#[test]
fn a_version_that_cannot_change_compressed_rows_is_not_used() {
    let (site, calls) = set_up("2.10.3");
    assert_eq!(calls, "");
    let (_, out, _) = site.db_as_owner(&["status"]);
    assert!(out.contains("metrics                 partitions\n"), "{out}");
}
