//! Users: logins, owners of files and of connections.
//!
//! - `user_files`: `/etc/passwd` and `/etc/group`. `login`: the rights of a user in them. `utmp`: logged-in users. `trust`: the users who can change a
//!   file. `tcp_owners`: the owner of a connection.

pub mod login;
pub mod tcp_owners;
pub mod trust;
pub mod user_files;
pub mod utmp;
