//! A setting: its declaration, its text, the layers that give it, and the file it stands in.
//!
//! - `setting`: declarations. `text`: values. `load`: default, file, environment, flag. `file`, `flags`: two of them. `show`: printed back.
//! - `place`: default paths. `log`: where the log goes. `pattern`, `token`: values of their own. `whose`: which program a file is for.

pub(crate) mod file;
pub(crate) mod flags;
pub(crate) mod load;
pub mod log;
pub(crate) mod pattern;
pub mod place;
pub(crate) mod setting;
pub(crate) mod show;
pub(crate) mod text;
pub(crate) mod token;
pub(crate) mod whose;
