//! Dashboards of Grafana.
//!
//! `declaration` describes dashboards without a datasource: panels with a query, the quantities of its columns, and a
//! view. `list` has the dashboards. `postgresql` translates queries to statements for Grafana's PostgreSQL datasource,
//! `grafana` makes the JSON of a dashboard, `provisioning` the files that Grafana loads at startup. Another datasource
//! needs another translation of the same declaration.

mod declaration;
mod grafana;
mod list;
mod postgresql;
mod provisioning;
mod units;

pub use provisioning::{Connection, Provisioning, TLS_MODES};
