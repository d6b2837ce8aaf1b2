//! OAR, versions 2.5 and what keeps its tables or its REST API: asked by its PostgreSQL database
//! ([`OarDatabase`]) or, where that is out of reach, by the REST API ([`OarRest`]).
//!
//! Either way a round first lists what is not over, in one call, and then asks, in a few more, for those of
//! which the list tells something new, however many they are.

mod database;
mod http;
mod job;
mod places;
mod requested;
mod rest;
mod states;
mod track;

pub use database::{OarDatabase, ParametersError};
pub use rest::OarRest;
