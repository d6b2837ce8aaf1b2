//! The database of the store on PostgreSQL: its tables, and what people find in it.

/// The statements that create the tables. They change nothing that exists.
pub const TABLES: &str = include_str!("../sql/tables.sql");
