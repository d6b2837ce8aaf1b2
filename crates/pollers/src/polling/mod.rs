//! Requests to devices, and the readings that they return.
//!
//! - `reading`: readings and failures
//! - `poller`: what every protocol does
//! - `values`: numbers and texts of devices
//! - `tls`: how certificates are verified
//! - `presented_certificates`: the certificates that targets present
//! - `bounded_stream`: a connection with a limit
//! - `http`: requests with limits
//! - `exporter`: expositions of exporters
//! - `document`: values in JSON documents
//! - `ipmi`: sensors of BMCs
//! - `modbus`: registers over Modbus TCP
//! - `snmp`: values of SNMP agents
//! - `once`: every target once, printed
//! - `pin`: pins certificates

mod bounded_stream;
mod document;
mod exporter;
mod http;
mod ipmi;
mod modbus;
mod once;
mod pin;
mod poller;
mod presented_certificates;
mod reading;
mod snmp;
mod tls;
mod values;

pub(crate) use ipmi::SdrCache;
pub use once::poll_once;
pub(crate) use pin::pin;
pub(crate) use poller::{Common, Exchange, Poller, open, run};
pub use reading::{Failure, Reading};
pub(crate) use values::{TEXT_LABEL, instant, python_float};

/// The parsers of what devices send, each for any bytes.
pub mod any_bytes {
    pub use super::document::parse_any as json;
    pub use super::http::parse_any as http;
    pub use super::ipmi::parse_any as ipmi;
    pub use super::modbus::parse_any as modbus;
    pub use super::snmp::parse_any as snmp;
}
