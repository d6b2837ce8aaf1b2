//! Pollers: devices outside of the nodes, read over the network.
//!
//! - [`yaml`]: YAML as PyYAML's safe loader reads it
//! - [`exposition`]: the text formats of exporters
//! - [`meaning`]: kind and unit of a metric from outside
//! - `url`: the parts of a URL, and texts that no message shows
//! - [`protocols`]: what a URL of each protocol means
//! - [`descriptions`]: Kwollect's description files
//! - [`polling`]: requests to devices, and their readings
//! - `sending`: devices in groups, each with a delivery of its own
//! - [`running`]: polls without end, and samples on their way to the server
//! - [`wattmeter`]: lines of `wattmetre-read`, and their samples on their way to the server
//! - [`colmet_listener`]: messages of Colmet's nodes, and their samples and jobs on their way to the server
//! - `kwollect_config`: the configuration files of kwollector and kwollector-wattmetre
//! - [`program`]: the command line of `jobmeter-poller`

pub mod colmet_listener;
pub mod descriptions;
pub mod exposition;
pub mod meaning;
pub mod polling;
pub mod program;
pub mod protocols;
pub mod running;
pub mod wattmeter;
pub mod yaml;

/// The name of the program.
pub(crate) const PROGRAM: &str = "jobmeter-poller";

mod kwollect_config;
mod sending;
mod url;

pub use kwollect_config::{KwollectConfig, KwollectErrors, level as log_level};
pub use sending::GroupsError;
pub use url::Secret;
