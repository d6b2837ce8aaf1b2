//! Whether a server could use a database, without its lock and without a change.

use crate::connection::{Connector, DatabaseError, connect};
use crate::schema;
use std::time::Duration;
use tokio_postgres::Client;

/// Longest time of a check.
const TIME_MAX: Duration = Duration::from_secs(15);

/// What makes new transactions read-only, and what to do.
const READ_ONLY: &str = "SELECT CASE WHEN pg_is_in_recovery() \
        THEN 'it is a standby; let `postgres.database` name its primary server' \
    WHEN source = 'database' THEN format('execute in another database: ALTER DATABASE %I RESET %I', current_database(), name) \
    WHEN source = 'user' THEN format('execute as a superuser: ALTER ROLE %I RESET %I', current_user, name) \
    WHEN source = 'database user' \
        THEN format('execute as a superuser: ALTER ROLE %I IN DATABASE %I RESET %I', current_user, current_database(), name) \
    ELSE format('remove the setting %s (%s)', name, source) END \
    FROM pg_settings WHERE name = 'default_transaction_read_only' AND (setting = 'on' OR pg_is_in_recovery())";
/// A right on the schema jobmeter that the user does not have: its tables cannot even be looked up without it.
const SCHEMA: &str = "SELECT format('GRANT ALL ON SCHEMA %I TO %I', nspname, current_user) FROM pg_namespace \
    WHERE nspname = 'jobmeter' AND NOT (has_schema_privilege(oid, 'USAGE') AND has_schema_privilege(oid, 'CREATE'))";
/// Rights that the creation of the tables needs and the user does not have.
const NEW: &str = "SELECT CASE WHEN NOT has_database_privilege(current_database(), 'CREATE') \
        THEN format('GRANT CREATE ON DATABASE %I TO %I', current_database(), current_user) \
    WHEN current_schema() IS NULL OR NOT has_schema_privilege(current_schema(), 'CREATE') \
        THEN format('GRANT ALL ON SCHEMA %I TO %I', coalesce(current_schema(), 'public'), current_user) END";
/// Tables `$1` that are missing.
const MISSING: &str = "SELECT string_agg(name, ', ') FROM unnest($1::text[]) AS name \
    WHERE to_regclass(name) IS NULL";

/// Everything that prevents a server from using a database. Changes nothing. Waits for the database for a bounded time.
pub fn check(connector: &dyn Connector) -> Vec<DatabaseError> {
    let builder = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match builder {
        Ok(runtime) => runtime,
        Err(error) => return vec![DatabaseError::Unreachable(error.to_string())],
    };
    let checked = runtime.block_on(async {
        let check = async {
            let client = connect(connector).await?;
            let mut found: Vec<_> = first_text(&client, READ_ONLY)
                .await?
                .map(DatabaseError::ReadOnly)
                .into_iter()
                .collect();
            if let Some(missing) = first_text(&client, SCHEMA).await? {
                found.push(DatabaseError::Rights(missing));
            } else if schema::is_ours(&client).await? {
                found.extend(tables(&client).await?);
            } else {
                found.extend(first_text(&client, NEW).await?.map(DatabaseError::Rights));
            }
            Ok(found)
        };
        tokio::time::timeout(TIME_MAX, check).await
    });
    match checked {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => vec![error],
        Err(_) => vec![DatabaseError::Unreachable(format!("no answer within {TIME_MAX:?}"))],
    }
}

/// What is wrong with the tables of a database.
async fn tables(client: &Client) -> Result<Vec<DatabaseError>, DatabaseError> {
    let missing = client.query_one(MISSING, &[&database::tables()]).await?;
    let missing: Option<String> = missing.try_get(0)?;
    let closed = database::missing_rights(client, None).await?;
    let (missing, closed) =
        (missing.map(DatabaseError::Missing), closed.map(DatabaseError::Rights));
    Ok(missing.into_iter().chain(closed).collect())
}

/// The text of a query's first row, if there is one.
async fn first_text(client: &Client, query: &str) -> Result<Option<String>, DatabaseError> {
    let row = client.query_opt(query, &[]).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?.flatten())
}
