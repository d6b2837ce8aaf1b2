//! `jobmeter db` beside Kwollect's own programs.

pub(crate) mod adoption;
mod both_stores;
pub(crate) mod own_database;
