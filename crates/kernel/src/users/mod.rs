//! Users: logins, owners of files and of connections.

pub mod login;
pub mod tcp_owners;
pub mod trust;
pub mod utmp;
