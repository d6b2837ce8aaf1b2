//! The connection to the server: addresses, who listens there, HTTP.
//!
//! - `endpoints`: which server, by the settings. `resolve`: its addresses. `loopback`: who listens there. `http`: frames and acks. `connect`: token and TLS.

pub(crate) mod connect;
pub(crate) mod endpoints;
pub(crate) mod http;
pub(crate) mod loopback;
pub(crate) mod resolve;
