//! Requests to devices, and the readings that they return.
//!
//! - `reading`: readings and failures
//! - `values`: numbers and texts of devices
//! - `tls`: how certificates are verified
//! - `http`: GET with limits
//! - `exporter`: expositions of exporters
//! - `document`: values in JSON documents
//! - `once`: every target once, printed

mod document;
mod exporter;
mod http;
mod once;
mod reading;
mod tls;
mod values;

pub use once::poll_once;
pub use reading::{Failure, Reading};
