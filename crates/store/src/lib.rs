//! The embedded store: samples go into a log, into memory, into Parquet blocks; queries read them by series or by time.
//! It uses threads and files only: no async runtime, no SQL.
//!
//! ```text
//! append ─► queue ─► log (one fdatasync for all that waits) ─► ack
//!                      └─► head (memory, can be queried) ─► block (Parquet) ─► log trimmed
//! ```
//!
//! [`Store::append`] accepts batches; [`Store::snapshot`] returns a consistent view of the store for
//! [`Snapshot::scan`] and other queries.
//! `docs/format.md` describes the files byte by byte.

mod blocks;
mod data_dir;
mod files;
mod following;
mod head;
mod log;
mod maintenance;
mod scan;
mod settings;
mod snapshot;
mod state;
mod store;
mod writing;

pub use data_dir::backup::{Copied, backup, copy_file, open_plain};
pub use data_dir::recovery::{Cut, Damage, Recovery};
pub use data_dir::verify::{Finding, Verified, check, verify};
pub use files::disk::{Disk, ReadFile, RealDisk, WriteFile};
pub use files::errors::{BlockError, DiskError, FlushError, OpenError};
pub use maintenance::archive::check_archive;
pub use scan::by_series::Scan;
pub use scan::rollup_scan::WindowScan;
pub use settings::{ArchiveSettings, Settings};
pub use snapshot::Snapshot;
pub use store::Store;
