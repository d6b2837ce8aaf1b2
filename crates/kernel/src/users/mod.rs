//! Users: logins, owners of files and of connections.
//!
//! - `login`: `/etc/passwd` and `/etc/group`. `utmp`: who is logged in. `trust`: who can change a file. `tcp_owners`: who owns a connection.

pub mod login;
pub mod tcp_owners;
pub mod trust;
pub mod utmp;
