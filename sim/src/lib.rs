//! A cluster in one thread: a hundred agents and a server. One seed determines their clocks, network, disks
//! and deaths, so that a failure can be reproduced by its number.
//!
//! The parts are those of the programs: sealing, queue, spool and sending
//! ([`delivery::Stepped`]), the wire, and the store on a disk in memory ([`memdisk::MemDisk`]). The spools are in
//! a real folder. Time, the network, the disk under the store, and all deaths are simulated.
//!
//! The store has two threads of its own. The simulation waits for each call, and the store
//! writes blocks only on request. So the calls of its disk come in one order, which the seed determines.
#![expect(clippy::unwrap_used, reason = "a simulation that cannot go on fails")]
#![expect(clippy::indexing_slicing, reason = "small and known")]

mod chance;
mod check;
mod node;
mod output;
mod server;
mod world;

pub use check::Report;
pub use world::run;
