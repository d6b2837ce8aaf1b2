//! The server with an agent: ingest, queries, control, files.

pub(crate) mod backup;
pub(crate) mod held_port;
pub(crate) mod on_demand;
pub(crate) mod openapi;
pub(crate) mod page;
pub(crate) mod pg;
pub(crate) mod pipeline;
pub(crate) mod polled_on_demand;
pub(crate) mod readers;
pub(crate) mod stops;
pub(crate) mod systemd_unit;
