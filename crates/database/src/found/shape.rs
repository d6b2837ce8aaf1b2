//! How a table stores its samples, by the catalogue.

use tokio_postgres::{Client, Error};

/// How a table stores its samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One table.
    Plain,
    /// Partitions by ranges of time.
    Partitioned,
    /// A hypertable of TimescaleDB.
    Hypertable,
}

/// Whether it is a table, whether it has partitions by ranges of time, and whether TimescaleDB's own view lists hypertables: a view of
/// another role is not executed.
const KIND: &str = "SELECT c.relkind = 'r', \
    coalesce(p.partstrat = 'r' AND p.partnatts = 1 AND a.attname = 'timestamp', false), \
    EXISTS (SELECT FROM pg_class AS v JOIN pg_roles AS r ON r.oid = v.relowner \
        WHERE v.oid = to_regclass('timescaledb_information.hypertables') AND r.rolsuper) \
    FROM pg_class AS c LEFT JOIN pg_partitioned_table AS p ON p.partrelid = c.oid \
    LEFT JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = p.partattrs[0] WHERE c.oid = to_regclass($1)";
/// TimescaleDB 2.
const IS_HYPERTABLE: &str = "SELECT EXISTS (SELECT FROM timescaledb_information.hypertables AS h \
    JOIN pg_namespace AS n ON n.nspname = h.hypertable_schema \
    JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = h.hypertable_name \
    WHERE c.oid = to_regclass($1))";

impl Shape {
    /// Reads the shape of a table. `None`: there is no such table, or it has partitions by something else.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn of(client: &Client, table: &str) -> Result<Option<Self>, Error> {
        let Some(row) = client.query_opt(KIND, &[&table]).await? else { return Ok(None) };
        let (is_table, is_partitioned, has_hypertables): (bool, bool, bool) =
            (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        Ok(match (is_table, is_partitioned) {
            (_, true) => Some(Self::Partitioned),
            (true, _) if has_hypertables => {
                let is_hypertable = client.query_one(IS_HYPERTABLE, &[&table]).await?.try_get(0)?;
                Some(if is_hypertable { Self::Hypertable } else { Self::Plain })
            }
            (true, _) => Some(Self::Plain),
            (false, false) => None,
        })
    }
}
