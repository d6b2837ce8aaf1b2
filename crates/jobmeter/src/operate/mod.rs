//! Commands of operation: up, check, import, db, poll, feed, colmet-collector, backup, verify, dashboards.
//!
//! - `up`: server and agent
//! - `check`: a configuration
//! - `import`: configurations of other programs
//! - `db`: the database of a server on PostgreSQL
//! - `poll`: devices outside of the nodes, also by `feed` and Kwollect's commands
//! - `colmet_collector`: a server in place of a collector of Colmet
//! - `backup`, `verify`: the data folder
//! - `dashboards`: files for Grafana

pub(crate) mod backup;
pub(crate) mod check;
pub(crate) mod colmet_collector;
pub(crate) mod dashboards;
pub(crate) mod db;
pub(crate) mod import;
pub(crate) mod poll;
pub(crate) mod up;
pub(crate) mod verify;
