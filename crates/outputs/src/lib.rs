//! Outputs: other systems that receive the stored samples, each sample once (decision 0061).
//!
//! An output follows the store ([`storage::Followers`]) in a thread of its own, with its own position, so a slow one delays
//! only itself. [`Outputs`] runs those of a configuration. A kind of output is one file in `list/` and one word in its list:
//! a [`Spec`], a pure encoder, and [`Output::write`].
//!
//! - `spec`: what a kind declares. `portion`: what an output writes. `row`: a sample as a line of JSON. `records`: samples as
//!   Colmet's records. `files`: an output's own files. `written_file`: those
//!   for other programs.
//! - `delivering`: from the store to the output: selection, windows, retries, status.
//! - `list`: the kinds.

mod delivering;
mod files;
mod list;
mod portion;
mod records;
mod row;
mod spec;
mod written_file;

pub use delivering::outputs::Outputs;
pub use delivering::status::{OutputState, OutputStatus};
pub use list::{ALL, check, kinds, reference};
pub use portion::Portion;
pub use records::Layout;
pub use spec::{Guarantee, OpenOutput, Output, Spec, WriteError};
