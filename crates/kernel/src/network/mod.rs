//! Interfaces, sockets, file systems over the network.

pub mod addresses;
pub mod beegfs;
pub mod lustre;
pub mod net_dev;
pub mod nfs;
pub mod sockets;
