//! Shared ways of reading: files, tables, walks, parts that come and go, counters that wrap.
//!
//! - `file`: a file kept open. `values`, `table`: files of numbers. `parts`: disks, interfaces. `wrapping`:
//!   counters that wrap.

pub(crate) mod file;
pub(crate) mod parts;
pub(crate) mod table;
pub(crate) mod values;
pub(crate) mod wrapping;
