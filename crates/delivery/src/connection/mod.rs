//! The connection to the server: addresses, owner check and HTTP.
//!
//! - `endpoints`: server and spool that the settings select.
//! - `resolve`: addresses of the server.
//! - `loopback`: check of the server's owner on loopback.
//! - `http`: frames and acknowledgements.
//! - `connect`: server and credentials.

pub(crate) mod connect;
pub(crate) mod endpoints;
pub(crate) mod http;
pub(crate) mod loopback;
pub(crate) mod resolve;
