//! psycopg 3 and 2, SQLAlchemy, pandas and asyncpg insert rows and read them again.

use crate::common::programs::output;
use crate::repository::layers::repository;
use crate::server::pg::{PUSHER, PgServer, READER};
use std::process::Command;

#[test]
fn clients_of_python_read_what_they_wrote() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = PgServer::start(dir.path(), &[]);
    let mut python = Command::new(repository().join("target/python/bin/python"));
    python.arg("-B").arg(repository().join("tests/server/pg/clients.py"));
    python.args([&server.port.to_string(), READER, PUSHER]);
    let (code, out, errors) = output(&mut python);
    assert_eq!(code, 0, "{errors}");
    assert_eq!(out, "every client read what it wrote\n");
    assert_eq!(server.server.running.end(), 0, "{}", server.server.running.errors());
}
