//! The threads that write: the log writer, then the block writer.
//!
//! - `log_writer`: one fdatasync for all waiting batches, then the acknowledgements.
//! - `block_writer`: samples in memory become a Parquet block; then the log is trimmed.

pub(crate) mod block_writer;
pub(crate) mod log_writer;
