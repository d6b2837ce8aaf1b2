//! Users: logins, owners of files and of connections.
//!
//! - `login`: `/etc/passwd` and `/etc/group`. `utmp`: logged-in users. `trust`: the users who can change a
//!   file. `tcp_owners`: the owner of a connection.

pub mod login;
pub mod tcp_owners;
pub mod trust;
pub mod utmp;
