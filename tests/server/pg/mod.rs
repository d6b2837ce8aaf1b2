//! Clients of PostgreSQL's protocol against the server: psql, statements beside a real PostgreSQL, clients of Python, statements of drivers, dashboards for
//! Grafana. Clients of PostgREST.

mod driver_statements;
pub(crate) mod grafana;
mod like_postgresql;
mod postgrest_clients;
mod psql;
mod python_clients;

use crate::common::programs::{Server, output};
use std::fs::Permissions;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Tokens of the server: a reader of everything, one without a user, a program that inserts, one that
/// reports jobs, and two users.
pub(crate) const READER: &str = "reader-of-everything";
pub(crate) const GUEST: &str = "guest-without-a-user";
pub(crate) const PUSHER: &str = "program-that-inserts";
pub(crate) const SCHEDULER: &str = "program-that-reports-jobs";
pub(crate) const ALICE: &str = "token-of-user-54001";
pub(crate) const BOB: &str = "token-of-user-54002";

/// A server with a port for PostgreSQL's protocol.
pub(crate) struct PgServer {
    pub(crate) server: Server,
    pub(crate) port: u16,
}

impl PgServer {
    pub(crate) fn start(dir: &Path, arguments: &[&str]) -> Self {
        let tokens = dir.join("tokens");
        let lines = format!(
            "staff {READER}\nuser {GUEST}\npush:kw {PUSHER}\njobs:site {SCHEDULER}\nuser:54001 {ALICE}\nuser:54002 {BOB}\n"
        );
        std::fs::write(&tokens, lines).unwrap();
        std::fs::set_permissions(&tokens, Permissions::from_mode(0o600)).unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let listen = format!("{free},{}", dir.to_str().unwrap());
        let own = ["--token-file", tokens.to_str().unwrap(), "--pg-listen", &listen];
        let server = Server::start(&dir.join("data"), &[&own[..], arguments].concat());
        Self { server, port: free.port() }
    }

    /// Runs psql with a token, or as the kernel's user. Returns the exit code, standard output and standard error.
    pub(crate) fn psql(&self, token: Option<&str>, arguments: &[&str]) -> (i32, String, String) {
        let mut command = Command::new("psql");
        command.args([
            "-X",
            "-h",
            "127.0.0.1",
            "-p",
            &self.port.to_string(),
            "-d",
            "jobmeter",
            "-w",
        ]);
        command.args(["-v", "VERBOSITY=verbose", "-v", "ON_ERROR_STOP=1"]);
        if let Some(token) = token {
            command.args(["-U", "token"]).env("PGPASSWORD", token);
        }
        output(command.args(arguments).env("PGCONNECT_TIMEOUT", "20").env("LC_ALL", "C.UTF-8"))
    }

    /// Rows of a statement without heading.
    pub(crate) fn rows(&self, token: Option<&str>, statement: &str) -> String {
        let (code, out, errors) = self.psql(token, &["-At", "-c", statement]);
        assert_eq!(code, 0, "{statement}: {errors}");
        out.trim_end().to_owned()
    }

    /// The SQLSTATE of a statement's error.
    pub(crate) fn error(&self, token: Option<&str>, statement: &str) -> String {
        let (code, out, errors) = self.psql(token, &["-At", "-c", statement]);
        assert_ne!(code, 0, "{statement}: {out}");
        let found = errors.split_once("ERROR:  ").or(errors.split_once("FATAL:  "));
        let (_, rest) = found.unwrap_or_else(|| panic!("{statement}: {errors}"));
        rest.chars().take(5).collect()
    }
}
