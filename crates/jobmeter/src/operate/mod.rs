//! Commands that operate: up, check, backup, verify.

pub(crate) mod backup;
pub(crate) mod check;
pub(crate) mod up;
pub(crate) mod verify;
