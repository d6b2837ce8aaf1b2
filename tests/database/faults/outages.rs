//! The database or the server ends, and connections are killed within a COPY.

use super::{Site, answers_with, longer};
use crate::common::database::{Database, kill};
use std::time::{Duration, Instant};

#[test]
fn a_database_that_is_stopped_under_load_loses_nothing_and_the_backlog_arrives_soon() {
    // `make soak` stops it for 60 s.
    let seconds = longer("OUTAGE_SECONDS", 10);
    let mut site = Site::new();
    site.arrived();
    drop(site.database.take());
    std::thread::sleep(Duration::from_secs(seconds));
    assert!(site.agents_waited(), "{}", site.agents[0].errors());
    site.database = Some(Database::start(&site.folder));
    site.arrived();
    let (missing, answers) = site.end();
    assert_eq!(missing, 0);
    assert!(answers_with(&answers, 503) > 5, "queries fail clearly while it is down");
    assert_eq!(answers_with(&answers, 0), 0, "{answers:?}");
}

#[test]
fn connections_that_are_killed_within_a_copy_lose_and_duplicate_nothing() {
    let seconds = longer("OUTAGE_SECONDS", 6);
    let site = Site::new();
    // Each COPY takes long enough to be killed.
    let slow = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.1); RETURN NULL; END $$; \
                CREATE TRIGGER slow AFTER INSERT ON metrics FOR EACH STATEMENT EXECUTE FUNCTION slow()";
    site.sql(slow).unwrap();
    let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'COPY metrics%'";
    let (began, mut killed) = (Instant::now(), 0);
    while began.elapsed() < Duration::from_secs(seconds) {
        killed += site.sql(kill).unwrap().parse::<u64>().unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(killed > 2, "{killed} were killed");
    site.sql("DROP FUNCTION slow CASCADE").unwrap();
    site.arrived();
    let (missing, answers) = site.end();
    assert_eq!(missing, 0);
    assert_eq!(answers.len(), answers_with(&answers, 200), "no query notices: {answers:?}");
}

#[test]
fn kills_of_the_server_and_of_the_database_in_turn_lose_and_duplicate_nothing() {
    // `make soak` kills 30 times.
    let rounds = longer("DATABASE_KILLS", 4);
    let mut site = Site::new();
    for round in 0..rounds {
        std::thread::sleep(Duration::from_millis(1000 + round % 7 * 230));
        if round % 2 == 0 {
            site.server.running.kill();
            site.again();
        } else {
            kill(&site.folder);
            drop(site.database.take());
            site.database = Some(Database::start(&site.folder));
        }
    }
    site.arrived();
    let (missing, _) = site.end();
    assert_eq!(missing, 0);
}
