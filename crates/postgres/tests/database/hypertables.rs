//! The store on a hypertable of TimescaleDB. Its functions are stubs here.

use crate::faults::stored;
use crate::partitions::{DAY, HOUR, PLAIN, create_tablespace, open, put, settings};
use crate::rows::query;
use crate::server::{database, execute};
use conformance::{Clock, Query, S, Sender, T0, of_storage};
use postgres::{ArchiveSettings, Settings};
use storage::Storage;
use tokio_postgres::Config;

/// A chunk of a day as a child of the table, and a record of the statements that call the functions.
const STUBS: &str = "
CREATE SCHEMA timescaledb_information;
GRANT USAGE ON SCHEMA timescaledb_information TO PUBLIC;
CREATE VIEW timescaledb_information.hypertables AS
    SELECT 'public'::name AS hypertable_schema, 'metrics'::name AS hypertable_name;
CREATE VIEW timescaledb_information.continuous_aggregates AS
    SELECT 'public'::name AS view_schema, 'metrics_summary'::name AS view_name;
GRANT SELECT ON ALL TABLES IN SCHEMA timescaledb_information TO PUBLIC;
CREATE TABLE statements (number serial, statement text);
GRANT ALL ON statements, statements_number_seq TO PUBLIC;
CREATE FUNCTION show_chunks(relation regclass, older_than timestamptz DEFAULT NULL) RETURNS SETOF regclass
LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO statements(statement) VALUES (current_query());
    IF relation = 'metrics'::regclass AND older_than >= '2026-01-02 00:00Z' AND to_regclass('chunk_old') IS NOT NULL THEN
        RETURN NEXT 'chunk_old'::regclass;
    END IF;
END $$;
CREATE FUNCTION drop_chunks(relation regclass, older_than timestamptz DEFAULT NULL) RETURNS SETOF text
LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO statements(statement) VALUES (current_query());
    IF relation = 'metrics'::regclass AND older_than >= '2026-01-02 00:00Z' AND to_regclass('chunk_old') IS NOT NULL THEN
        DROP TABLE chunk_old;
        RETURN NEXT 'public.chunk_old';
    END IF;
END $$;
CREATE FUNCTION move_chunk(chunk regclass, destination_tablespace name, index_destination_tablespace name,
    reorder_index regclass DEFAULT NULL, verbose boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO statements(statement) VALUES (current_query());
    EXECUTE format('ALTER TABLE %s SET TABLESPACE %I', chunk, destination_tablespace);
END $$;
CREATE PROCEDURE refresh_continuous_aggregate(aggregate regclass, window_start timestamptz, window_end timestamptz)
LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO statements(statement) VALUES (current_query());
    COMMIT;
END $$;
";
/// A chunk with rows.
const CHUNK: &str = "
CREATE TABLE chunk_old () INHERITS (metrics);
INSERT INTO chunk_old SELECT '2026-01-01 00:00Z'::timestamptz + g * interval '1 s', 'n1', 'load_1m', g, '{}' FROM generate_series(1, 5) AS g;
CREATE TABLE metrics_summary (LIKE metrics);
";

/// An empty hypertable of a role that is no superuser.
fn hypertable(role: &str) -> (Config, Config) {
    let admin = database();
    let name = admin.get_dbname().unwrap();
    execute(&admin, &format!("CREATE ROLE {role} LOGIN; ALTER DATABASE {name} OWNER TO {role}"));
    let mut owner = admin.clone();
    owner.user(role);
    drop(open(&owner, &settings(), &Clock::at(T0)));
    execute(&owner, PLAIN);
    execute(&admin, STUBS);
    execute(&owner, CHUNK);
    (admin, owner)
}

/// The calls of functions so far, each once.
fn statements(database: &Config) -> String {
    let text = "SELECT statement FROM statements GROUP BY statement ORDER BY min(number)";
    query(database, text).join("\n") + "\n"
}

#[test]
fn samples_are_read_and_whole_chunks_deleted() {
    let (admin, owner) = hypertable("deletes");
    let clock = Clock::at(T0 + 48 * HOUR);
    let keeps = Settings { keep_samples_us: i64::MAX, ..settings() };
    let store = open(&owner, &keeps, &clock);
    let mut sender = Sender::new("n1", 1);
    put(&store, &mut sender, [T0 + 48 * HOUR]);
    store.maintain().unwrap();
    let all: Vec<i64> = (1..=5).map(|second| T0 + second * S).chain([T0 + 48 * HOUR]).collect();
    assert_eq!(stored(&store), all);
    assert_eq!(of_storage::last(&store, &Query::default()).len(), 1);
    drop(store);
    let rules = Settings { keep_rollups_us: [3 * DAY, i64::MAX], ..settings() };
    let store = open(&owner, &rules, &clock);
    store.maintain().unwrap();
    assert_eq!(store.stats().samples_removed, 5);
    assert_eq!(stored(&store), [T0 + 48 * HOUR]);
    // A range that an administrator names is refreshed, too.
    execute(
        &owner,
        &format!("INSERT INTO jobmeter.late (first_us, last_us) VALUES ({0}, {0})", T0 + 47 * HOUR),
    );
    clock.set(T0 + 50 * HOUR);
    put(&store, &mut sender, [T0 + 50 * HOUR]);
    store.maintain().unwrap();
    assert_eq!(statements(&admin), include_str!("hypertable.golden"));
}

#[test]
fn old_chunks_move_into_the_tablespace_of_the_archive() {
    let (admin, owner) = hypertable("moves");
    create_tablespace(&admin, "archive_of_chunks");
    execute(&admin, "GRANT CREATE ON TABLESPACE archive_of_chunks TO moves");
    let clock = Clock::at(T0 + 48 * HOUR);
    let archive = ArchiveSettings { tablespace: "archive_of_chunks".to_owned(), keep_us: 4 * DAY };
    let store = open(&owner, &Settings { archive: Some(archive), ..settings() }, &clock);
    let mut sender = Sender::new("n1", 1);
    put(&store, &mut sender, [T0 + 48 * HOUR]);
    let place = "SELECT spcname FROM pg_class JOIN pg_tablespace AS t ON t.oid = reltablespace WHERE relname = 'chunk_old'";
    let mut rounds = 0;
    while query(&admin, place).is_empty() {
        store.maintain().unwrap();
        rounds += 1;
        assert!(rounds < 20, "{}", statements(&admin));
    }
    assert_eq!(query(&admin, place), ["archive_of_chunks"]);
    assert_eq!(stored(&store).len(), 6);
    store.maintain().unwrap();
    assert_eq!(statements(&admin), include_str!("archived_chunks.golden"));
}
