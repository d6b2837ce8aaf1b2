//! Everything between samples and the server's acknowledgement: sealing, queue, outbox, spool, sending.
//!
//! The way of a sample: a [`sources::Sink`] has it; [`Sealer`] makes batches; the keeper makes frames; the outbox and
//! the spool hold them; the sender sends them, and the server's answer forgets them. [`Delivery`] runs this in two
//! threads. [`Stepped`] is the same without threads, for callers that give the time and carry the requests.

mod batches;
mod common;
mod connection;
mod disk;
mod sending;
mod stepped;

pub use batches::notes::Notes;
pub use batches::print::Printer;
pub use batches::seal::{Outlet, SealCounts, Sealer, Sinks};
pub use batches::sealed::Sealed;
pub use common::boot::draw_boot;
pub use common::clock::{Clock, GivenClock, MachineClock, process_cpu_us, wall};
pub use common::counters::Counters;
pub use common::error::DeliveryError;
pub use common::files::{crc32c, write_private};
pub use common::threads::or_end;
pub use connection::connect::Settings;
pub use connection::endpoints::{environment, knock, server_asked, spool_dir, stale_record};
pub use connection::http::{Failure, Http, StatusHeaders, TlsError, tls};
pub use connection::loopback::connector;
pub use disk::folders::Folders;
pub use sending::delivery_threads::Delivery;
pub use sending::queue::{Inlet, QueueEnded, Queued, queue};
pub use sending::sender::{Order, Wanted, WantedJobs};
pub use stepped::{Sent, Stepped};
