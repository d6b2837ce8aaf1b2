//! The embedded store: samples as they come, into a log, into memory, into Parquet blocks; and out again
//! by series or by time. Threads and files only: no async runtime, no SQL.
//!
//! ```text
//! append ─► queue ─► log (one fdatasync for all that waits) ─► ack
//!                      └─► head (memory, can be queried) ─► block (Parquet) ─► log trimmed
//! ```
//!
//! [`Store::append`] takes batches; [`Store::snapshot`] gives a moment of the store, of which
//! [`Snapshot::scan`] and the others ask. The files are described byte by byte in `docs/format.md`.

mod answer;
mod append;
mod archive;
mod ask;
mod backup;
mod block;
mod by_time;
mod catalogue;
mod commit;
mod disk;
mod error;
mod feed;
mod flush;
mod gaps;
mod head;
mod intake;
mod json;
mod ledger;
mod log;
mod manifest;
mod merge;
mod open;
mod origin;
mod origins;
mod reads;
mod record;
mod recovery;
mod registry;
mod retain;
mod roll;
mod scan;
mod segment;
mod select;
mod settings;
mod shared;
mod slab;
mod source;
mod store;
mod table;
mod tend;
mod varint;
mod verify;
mod view;
mod window;
mod windows;
mod withheld;

pub use answer::{
    BootInfo, Chunk, Claim, CounterStart, LastValue, OriginInfo, ReadCounts, SeriesInfo, Stats,
    TimeSlice,
};
pub use append::{Incoming, NotNow, Outcome};
pub use backup::{Copied, backup};
pub use block::is_total;
pub use by_time::ByTime;
pub use disk::{Disk, ReadFile, RealDisk, WriteFile};
pub use error::{BlockError, DiskError, FlushError, OpenError};
pub use reads::Reads;
pub use recovery::{Cut, Damage, Recovery};
pub use scan::Scan;
pub use select::{JobSelector, LabelMatch, Selector};
pub use settings::{ArchiveSettings, Clock, DeclaredMetrics, Keep, Settings};
pub use store::{Snapshot, Store};
pub use verify::{Finding, Verified, verify};
pub use windows::{WindowScan, Windows};
