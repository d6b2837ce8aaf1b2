//! A cluster in one thread: a hundred agents and a server, whose clocks, network, disks and deaths are all
//! drawn from one seed, so that a failure can be had again by its number.
//!
//! The parts are those of the programs: sealing, keeping, spool and sending
//! ([`delivery::Stepped`]), the wire, and the store on a disk in memory ([`memdisk::MemDisk`]). The spools lie in
//! a real folder. What is simulated: time, the network, the disk under the store, and when anybody dies.
//!
//! The store has two threads of its own. Each call of it is waited for before anything else happens and it
//! writes blocks only when told to, so that the calls of its disk come in one order, which the seed decides.
#![expect(clippy::unwrap_used, reason = "a simulation that cannot go on fails")]
#![expect(clippy::indexing_slicing, reason = "small and known")]

mod chance;
mod check;
mod node;
mod server;
mod world;

pub use check::Told;
pub use world::run;
