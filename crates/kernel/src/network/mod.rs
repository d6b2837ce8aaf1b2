//! Interfaces, sockets, file systems over the network.
//!
//! - `net_dev`, `addresses`, `sockets`: interfaces and sockets. `nfs`, `lustre`, `beegfs`: file systems of other machines.

pub mod addresses;
pub mod beegfs;
pub mod lustre;
pub mod net_dev;
pub mod nfs;
pub mod sockets;
