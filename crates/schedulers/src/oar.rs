//! OAR 2.5, and later versions that keep its tables or its REST API.
//! [`OarDatabase`] polls its PostgreSQL database; [`OarRest`] polls its REST API where the database is unreachable.
//!
//! A round first lists the jobs that are not over, in one call. A few more calls then fetch all jobs that the
//! list shows to be new or changed.

mod database;
mod job;
mod node_shares;
mod requested;
mod rest;
mod states;
mod track;

pub use database::OarDatabase;
pub(crate) use node_shares::NodeShares;
pub use rest::OarRest;
