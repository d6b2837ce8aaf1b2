//! Outputs: other systems that receive the stored samples, each sample once (decision 0061).
//!
//! An output follows the store ([`storage::Followers`]) in a thread of its own, with its own position, so a slow one delays
//! only itself. [`Outputs`] runs those of a configuration. A kind of output is one file in `list/` and one word in its list:
//! a [`Spec`], a pure encoder, and [`Output::write`].
//!
//! - `spec`: what a kind declares. `portion`: what an output writes. `row`: a sample as a line of JSON. `records`: samples as
//!   Colmet's records. `fructosa`: samples as the values of FrUCToSA's sensors. `graphite_path`: a series as a path.
//!   `files`: an output's own files. `written_file`: those for other programs.
//! - `delivering`: from the store to the output: selection, windows, retries, rejected data, status.
//! - `list`: the kinds.

mod delivering;
mod files;
mod fructosa;
mod graphite_path;
mod list;
mod portion;
mod records;
mod row;
mod spec;
mod written_file;

pub use delivering::fills::{FILLS_MAX, FillError, FillState, FillStatus};
pub use delivering::outputs::Outputs;
pub use delivering::set_aside::SetAsideStatus;
pub use delivering::status::{OutputState, OutputStatus};
pub use graphite_path::path_of as graphite_path;
pub use list::{ALL, check, check_paths, kinds, reference};
pub use portion::Portion;
pub use records::{Layout, NodeRecords};
pub use spec::{
    FillTimes, Guarantee, OpenFill, OpenOutput, Output, RejectedItem, Spec, WriteError,
};
