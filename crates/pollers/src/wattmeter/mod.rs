//! Wattmeters: the lines that `wattmetre-read` prints, as samples on their way to the server
//! (docs/decisions/0044-wattmeter-lines.md).
//!
//! - `line`: a line as the values of ports
//! - `mapping`: which node a port feeds
//! - `row_order`: rows that follow each other in time, with the same ports
//! - `port`: means, counts and gaps of a port
//! - `recent_rows`: the rows of the last 60 s, for a flush
//! - `input`: standard input and signals
//! - `feed`: the ports of a meter in their groups
//! - `feed_program`: from the first line to the end of the input

mod feed;
mod feed_program;
mod input;
mod line;
mod mapping;
mod port;
mod recent_rows;
mod row_order;

pub use feed::FeedError;
pub use feed_program::{FeedOptions, run};
pub use input::Lines;
pub use line::{LineFault, LineVersion, PORTS_MAX, PortValue, parse};
pub use mapping::{Mapping, MappingError};
