//! Programs, servers and nested machines that the tests start.

pub(crate) mod database;
pub(crate) mod nested;
pub(crate) mod programs;
pub(crate) mod udp_way;
pub(crate) mod up;
