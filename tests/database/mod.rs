//! `jobmeter db` beside Kwollect's own programs.

pub(crate) mod adoption;
mod both_stores;
pub(crate) mod faults;
pub(crate) mod new_hypertable;
pub(crate) mod own_database;
pub(crate) mod site;
