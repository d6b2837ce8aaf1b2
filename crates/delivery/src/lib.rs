//! Delivery: the path from samples to the server's acknowledgement through sealing, queue, outbox, spool and
//! sender.
//!
//! A [`sources::Sink`] collects samples, and [`Sealer`] makes batches of them. The encoder encodes the batches as
//! frames. The outbox and the spool store the frames until the sender has sent them and the server has acknowledged
//! them. [`Delivery`] runs this in two threads. [`Stepped`] does the same without threads, for callers that provide
//! the time and perform the requests.

mod batches;
mod common;
mod connection;
mod disk;
mod sending;
mod stepped;

pub use batches::pending_gaps_and_job_events::PendingEvents;
pub use batches::print::Printer;
pub use batches::seal::{BatchOutput, SealCounts, Sealer, Sinks};
pub use batches::sealed::Sealed;
pub use common::backoff::Backoff;
pub use common::boot::draw_boot;
pub use common::clock::{Clock, GivenClock, MachineClock, process_cpu_us, wall};
pub use common::counters::Counters;
pub use common::error::DeliveryError;
pub use common::files::{crc32c, replace_private, write_private};
pub use common::threads::or_end;
pub use connection::connect::Settings;
pub use connection::endpoints::{environment, knock, requested_server, spool_dir, stale_record};
pub use connection::http::{Failure, Http, TlsError, retry_after, tls, unverified_tls};
pub use connection::loopback::connector;
pub use disk::folders::{Folders, check_spool};
pub use sending::delivery_threads::Delivery;
pub use sending::queue::{QueueEnded, QueueReceiver, QueueSender, queue};
pub use sending::sender::{Order, Wanted, WantedJobs};
pub use stepped::{Sent, Stepped};
