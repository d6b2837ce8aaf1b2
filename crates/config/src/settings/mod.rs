//! A setting: its declaration, its value, the layers that set it, and its file.
//!
//! - `setting`: declarations. `text`: values. `load`: default, file, environment, flag. `file`, `flags`: two
//!   of them. `show`: printed back.
//! - `paths`: default paths. `log`: the log and its destination. `pattern`, `token`: special values.
//!   `small_file`: reads a named file, up to a limit. `secret_file`: one that others cannot read.
//!   `program_detection`: the program of a file.

pub(crate) mod file;
pub(crate) mod flags;
pub(crate) mod load;
pub mod log;
pub mod paths;
pub(crate) mod pattern;
pub(crate) mod program_detection;
pub(crate) mod secret_file;
pub(crate) mod setting;
pub(crate) mod show;
pub(crate) mod small_file;
pub(crate) mod text;
pub(crate) mod token;
