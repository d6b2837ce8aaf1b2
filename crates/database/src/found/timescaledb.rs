//! Statements for TimescaleDB, with the names of the version found (decision 0059).

use tokio_postgres::{Client, Error};

/// Earlier versions cannot change rows of compressed chunks, so they reject late samples.
const OLDEST: (u32, u32) = (2, 11);
/// From here on, a hypertable is created with the dimension `by_range`.
const BY_RANGE: (u32, u32) = (2, 13);
/// From here on, compression is called columnstore.
const COLUMNSTORE: (u32, u32) = (2, 18);
/// Hours until a chunk is compressed, if nothing else is given.
const COMPRESS_HOURS: u32 = 24;
/// Samples of a series lie together. The server reads series by all of these columns.
const SEGMENTS: &str = "'device_id, metric_id, labels'";
const AGGREGATE: &str = include_str!("../../sql/aggregate.sql");

/// The version that a database has, or that its server offers. Libraries of the server are visible to superusers alone, who create extensions.
const VERSION: &str = "SELECT coalesce(e.extversion, a.default_version), e.extversion IS NOT NULL, \
    coalesce(current_setting('timescaledb.license', true) <> 'apache', true) \
    FROM (SELECT) AS one LEFT JOIN pg_extension AS e ON e.extname = 'timescaledb' \
    LEFT JOIN pg_available_extensions AS a ON a.name = 'timescaledb' \
        AND (SELECT setting FROM pg_settings WHERE name = 'shared_preload_libraries') ~ '\\ytimescaledb\\y' \
    WHERE e.extversion IS NOT NULL OR a.default_version IS NOT NULL";
/// Whether there is a view of continuous aggregates, of TimescaleDB itself.
const HAS_AGGREGATES: &str = "SELECT EXISTS (SELECT FROM pg_class AS v JOIN pg_roles AS r ON r.oid = v.relowner \
    WHERE v.oid = to_regclass('timescaledb_information.continuous_aggregates') AND r.rolsuper)";
const IS_AGGREGATE: &str = "SELECT EXISTS (SELECT FROM timescaledb_information.continuous_aggregates \
    WHERE view_schema = 'public' AND view_name = 'metrics_summary')";

/// TimescaleDB as a database can use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimescaleDb {
    version: (u32, u32),
    /// Whether the database has the extension.
    is_created: bool,
    /// Whether it has compression and continuous aggregates: under the Apache licence it has neither.
    is_complete: bool,
}

impl TimescaleDb {
    /// What a database has, or its server offers. Versions that a new database cannot use are none.
    pub(crate) async fn read(client: &Client) -> Result<Option<Self>, Error> {
        let Some(row) = client.query_opt(VERSION, &[]).await? else { return Ok(None) };
        let text: String = row.try_get(0)?;
        let mut numbers = text.split(['.', '-']).map_while(|number| number.parse().ok());
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let found = Self { version, is_created: row.try_get(1)?, is_complete: row.try_get(2)? };
        Ok((version >= OLDEST).then_some(found))
    }

    /// The same in another database of the server.
    pub(crate) const fn not_created(self) -> Self {
        Self { is_created: false, ..self }
    }

    /// The statement that creates the extension, as a superuser.
    pub(crate) fn extension(self) -> Option<String> {
        (!self.is_created)
            .then(|| "CREATE EXTENSION IF NOT EXISTS timescaledb SCHEMA public".to_owned())
    }

    /// Whether a new database gets the summary as a continuous aggregate.
    pub(crate) const fn has_aggregate(self) -> bool {
        self.is_complete
    }

    /// The statements that make a new table `metrics` a hypertable with compression and a continuous aggregate.
    pub(crate) fn hypertable(self, chunk_hours: u32, compress_hours: Option<u32>) -> Vec<String> {
        let interval = interval(chunk_hours);
        let mut all = vec![match self.version >= BY_RANGE {
            true => {
                format!("SELECT create_hypertable('metrics', by_range('timestamp', {interval}))")
            }
            false => format!(
                "SELECT create_hypertable('metrics', 'timestamp', chunk_time_interval => {interval})"
            ),
        }];
        if self.is_complete {
            all.push(self.compression());
            all.push(self.compress_after("metrics", compress_hours.unwrap_or(COMPRESS_HOURS)));
            all.push(AGGREGATE.to_owned());
            all.push(
                "SELECT add_continuous_aggregate_policy('metrics_summary', start_offset => INTERVAL '12 hours', \
                 end_offset => INTERVAL '10 minutes', schedule_interval => INTERVAL '5 minutes')"
                    .to_owned(),
            );
            all.push(match self.version >= COLUMNSTORE {
                true => {
                    "ALTER MATERIALIZED VIEW metrics_summary SET (timescaledb.enable_columnstore)"
                        .to_owned()
                }
                false => {
                    "ALTER MATERIALIZED VIEW metrics_summary SET (timescaledb.compress)".to_owned()
                }
            });
            all.push(self.compress_after("metrics_summary", 2 * COMPRESS_HOURS));
        }
        all
    }

    /// The statements that change the policies of a hypertable, as far as they are given.
    pub(crate) fn change(
        self,
        is_compressed: bool,
        chunk_hours: Option<u32>,
        compress_hours: Option<u32>,
    ) -> Vec<String> {
        let set = |hours| format!("SELECT set_chunk_time_interval('metrics', {})", interval(hours));
        let mut all: Vec<String> = chunk_hours.map(set).into_iter().collect();
        if let Some(hours) = compress_hours.filter(|_| self.is_complete) {
            if !is_compressed {
                all.push(self.compression());
            }
            all.push(match self.version >= COLUMNSTORE {
                true => "CALL remove_columnstore_policy('metrics', if_exists => true)".to_owned(),
                false => {
                    "SELECT remove_compression_policy('metrics', if_exists => true)".to_owned()
                }
            });
            all.push(self.compress_after("metrics", hours));
        }
        all
    }

    fn compression(self) -> String {
        match self.version >= COLUMNSTORE {
            true => format!(
                "ALTER TABLE metrics SET (timescaledb.enable_columnstore, timescaledb.segmentby = {SEGMENTS}, \
                 timescaledb.orderby = 'timestamp DESC')"
            ),
            false => format!(
                "ALTER TABLE metrics SET (timescaledb.compress, timescaledb.compress_segmentby = {SEGMENTS}, \
                 timescaledb.compress_orderby = 'timestamp DESC')"
            ),
        }
    }

    fn compress_after(self, table: &str, hours: u32) -> String {
        let interval = interval(hours);
        match self.version >= COLUMNSTORE {
            true => format!("CALL add_columnstore_policy('{table}', after => {interval})"),
            false => format!("SELECT add_compression_policy('{table}', {interval})"),
        }
    }
}

fn interval(hours: u32) -> String {
    format!("INTERVAL '{hours} hours'")
}

/// Whether `metrics_summary` is a continuous aggregate.
///
/// # Errors
/// The database does not answer.
pub async fn has_aggregate(client: &Client) -> Result<bool, Error> {
    let has_aggregates: bool = client.query_one(HAS_AGGREGATES, &[]).await?.try_get(0)?;
    Ok(has_aggregates && client.query_one(IS_AGGREGATE, &[]).await?.try_get(0)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All statements for a version, as they are sent.
    fn statements(version: (u32, u32)) -> String {
        let found = TimescaleDb { version, is_created: true, is_complete: true };
        let all = [found.hypertable(12, None), found.change(false, Some(6), Some(48))].concat();
        format!("{};\n", all.join(";\n"))
    }

    #[test]
    fn each_version_gets_its_own_names() {
        assert_eq!(statements((2, 11)), include_str!("../../tests/timescaledb-2.11.golden"));
        assert_eq!(statements((2, 13)), include_str!("../../tests/timescaledb-2.13.golden"));
        assert_eq!(statements((2, 18)), include_str!("../../tests/timescaledb-2.18.golden"));
    }

    #[test]
    fn under_the_apache_licence_there_is_a_hypertable_alone() {
        let found = TimescaleDb { version: (2, 20), is_created: false, is_complete: false };
        assert_eq!(found.hypertable(6, Some(24)).len(), 1);
        assert!(found.change(true, None, Some(24)).is_empty());
        assert!(!found.has_aggregate() && found.extension().is_some());
    }
}
