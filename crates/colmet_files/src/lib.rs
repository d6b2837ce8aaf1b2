//! HDF5 files of Colmet's collector (decision 0065): a group for each job, a table in it for each backend.
//!
//! The crate knows the part of the format that PyTables writes by default: superblock 0, object headers 1, B-trees 1.
//! Numbers are little-endian, addresses have 8 bytes.
//!
//! - [`error`]: why a file is not read or written. `layout`: the columns and rows of a backend's table. `filters`: shuffle
//!   and deflate. `objects`: the bytes of headers and messages. `io`: a file in which pointers change after the data.
//! - `header`: reads object headers. `index`, `groups` and `chunks`: the parts that grow. `types` and [`reader`]: read files,
//!   Colmet's own too. [`writer`]: appends records.

mod chunks;
pub mod error;
mod filters;
mod groups;
mod header;
mod index;
mod io;
mod layout;
mod objects;
pub mod reader;
mod types;
pub mod writer;
