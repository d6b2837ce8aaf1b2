//! Kwollect's description files: which metric is requested from which target, and how often.
//!
//! - `description`: an entry of a file, checked
//! - `expressions`: the expressions of promotions
//! - `credentials`: named secrets
//! - `key_list`: the keys of an entry, with their meanings. `keys`: their values
//! - `manual`: the manual of a protocol, and the reference of the files
//! - `pins`: pinned certificates
//! - `directory`: all files of a folder, with their errors
//! - `catalogue_conflicts`: entries that contradict the metrics of agents
//! - `summary`: what `jobmeter check DIR` prints
//!
//! Each protocol reads its own URLs ([`crate::protocols`]). The grammar is Kwollect 1.3.1's, with further keys and
//! schemes (docs/decisions/0036-description-files.md).

mod catalogue_conflicts;
mod credentials;
mod description;
mod directory;
mod expressions;
mod key_list;
mod keys;
mod manual;
mod pins;
mod summary;

pub use catalogue_conflicts::catalogue_conflicts;
pub(crate) use description::ALIAS;
pub use description::{DeclaredMeaning, Description, Rare, Target, TlsVerification};
#[cfg(test)]
pub(crate) use directory::entries_of;
pub use directory::{
    Directory, EntryNames, FILE_BYTES_MAX, Finding, Severity, read_directory, read_file, read_text,
};
pub(crate) use directory::{duplicates, list_directory, read_files};
pub use expressions::{Expression, Expressions};
pub use key_list::{KEYS, KeySpec};
pub use manual::{manual, reference};
pub use pins::{Pins, PinsError, hexadecimal, pins_file};
pub use summary::{Load, summary};
