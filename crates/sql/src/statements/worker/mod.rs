//! SQL in separate worker processes. See decision 0020.

pub(crate) mod bytes;
pub(crate) mod child;
pub(crate) mod link;
pub(crate) mod messages;
pub(crate) mod pool;
pub(crate) mod rows;
pub(crate) mod scan;
pub(crate) mod session;
