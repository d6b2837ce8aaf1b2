//! Clients of PostgREST by other authors, in Python and JavaScript, insert rows and read them again.

use crate::common::programs::output;
use crate::repository::layers::repository;
use crate::server::pg::{PUSHER, PgServer, READER};
use std::path::Path;
use std::process::Command;

/// Runs a program with the server's URL and two tokens.
fn reads_what_it_wrote(server: &PgServer, program: &Path, arguments: &[&Path]) {
    let mut command = Command::new(program);
    let (code, out, errors) =
        output(command.args(arguments).args([&*server.server.url, READER, PUSHER]));
    assert_eq!(code, 0, "{errors}");
    assert!(out.ends_with(" read what it wrote\n"), "{out}");
}

#[test]
fn clients_of_postgrest_read_what_they_wrote() {
    let dir = tempfile::tempdir().unwrap();
    let server = PgServer::start(dir.path(), &[]);
    let here = repository().join("tests/server/pg");
    let python = repository().join("target/python/bin/python");
    reads_what_it_wrote(&server, &python, &[Path::new("-B"), &here.join("postgrest_clients.py")]);
    let packages = repository().join("target/npm");
    let script = here.join("postgrest_clients.mjs");
    reads_what_it_wrote(&server, Path::new("node"), &[&script, &packages]);
}
