//! The connection to the server: addresses, who listens there, HTTP.

pub(crate) mod connect;
pub(crate) mod endpoints;
pub(crate) mod http;
pub(crate) mod loopback;
pub(crate) mod resolve;
