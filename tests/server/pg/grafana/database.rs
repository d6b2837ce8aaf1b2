//! The same queries directly in the database of the store, as its reading role: Grafana beside the server, as at a Kwollect site.

use super::queries::{Filled, Source, queries_have_rows};
use crate::common::database::{Database, query};
use crate::common::programs::{output, program, until};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

#[test]
fn every_query_of_the_dashboards_has_rows_in_the_database() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o711)).unwrap();
    let folder = dir.path().join("database");
    std::fs::create_dir(&folder).unwrap();
    let _database = Database::start(&folder);
    let mut setup = Command::new(program("jobmeter"));
    setup.args(["db", "setup", "--kwollect_password", "secret", "--db_host"]).arg(&folder);
    let (code, out, errors) = output(&mut setup);
    assert_eq!((code, &*errors), (0, ""), "{out}");
    let parameters = format!("host={} user=kwuser dbname=kwdb", folder.display());
    let filled =
        Filled::start(dir.path(), &["--store", "postgres", "--postgres-database", &parameters]);
    let client = |statement: &str| {
        // psql separates columns by `|` here, which no value contains.
        let text = query(&folder, "kwdb", "kwuser_ro", statement)?;
        Ok(text.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect())
    };
    until("the copy of the job", Duration::from_secs(60), || {
        let rows: Result<Vec<Vec<String>>, String> = client("SELECT job_id FROM nodetime_by_job");
        (!rows.unwrap().is_empty()).then_some(())
    });
    queries_have_rows(filled.to, Source::Database, &client);
}
