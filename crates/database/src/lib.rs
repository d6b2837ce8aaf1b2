//! The PostgreSQL database of a site: its tables, the views and functions that people use, and the statements that set it up,
//! adopt that of Kwollect, and give it back.
//!
//! - `sql`: quoted texts of statements. `error`: why a database cannot be set up.
//! - `guard`: what a superuser does not execute.
//! - `objects`: views and functions. `found`: what a database has. `attach`: a plain table becomes the first partition.
//! - `recording`: the trigger that records rows of other programs.
//! - `setup`: the statements that a database needs. `release`: those that undo them. `status`: what an administrator wants to know.
//! - `server`: the session of the server; it computes rollups again.
//! - `run`: executes statements with short waits for locks. `postgrest`: the configuration and token that Kwollect prints.

mod attach;
mod error;
mod found;
mod guard;
mod objects;
mod postgrest;
mod recording;
mod release;
mod run;
mod server;
mod setup;
mod sql;
mod status;

pub use attach::drop_bound;
pub use error::SetupError;
pub use found::{Found, Shape, has_aggregate, missing_rights, tables};
pub use guard::enter;
pub use objects::TABLES;
pub use postgrest::{postgrest_configuration, token};
pub use recording::{IS_RECORDING, IS_SERVER, recording};
pub use release::{Remaining, release, remaining};
pub use run::{Executed, Step, execute};
pub use server::{SERVER, ServerSession, enter_as_server, has_server, rollup};
pub use setup::{Reader, SetupOptions, extension, job_requests, prepare_server, setup};
pub use status::{Status, status};

/// The version of the schema that this program makes.
pub const VERSION: i32 = 2;

/// The statements about a job of a site without a file of its own (decision 0051).
pub const DEFAULT_JOB_REQUESTS: &str = include_str!("../sql/job_requests.sql");

/// The statements that create everything in an empty database, with the rights of its owner.
pub fn everything() -> String {
    let nothing = Found::default();
    let mut parts = vec![
        TABLES.to_owned(),
        objects::metrics(true),
        objects::HELPERS.to_owned(),
        objects::WINDOWS.to_owned(),
        "INSERT INTO jobmeter.objects (kind, name) SELECT 'schema', 'api' WHERE to_regnamespace('api') IS NULL".to_owned(),
        "CREATE SCHEMA IF NOT EXISTS api".to_owned(),
    ];
    for object in objects::objects(&nothing) {
        parts.push(objects::record(object.kind.word(), object.name, None));
        parts.push(object.create());
    }
    parts.push(objects::recorded_version());
    parts.join(";\n")
}
