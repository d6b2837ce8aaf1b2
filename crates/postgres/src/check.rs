//! Whether a server could use a database, without its lock and without a change.

use crate::connection::{Connector, DatabaseError, connect};
use crate::schema;
use std::time::Duration;
use tokio_postgres::Client;

/// Longest time of a check.
const TIME_MAX: Duration = Duration::from_secs(15);

/// Rights that the creation of the tables needs and the user does not have.
const NEW: &str = "SELECT CASE WHEN NOT has_database_privilege(current_database(), 'CREATE') \
        THEN format('GRANT CREATE ON DATABASE %I TO %I', current_database(), current_user) \
    WHEN current_schema() IS NULL OR NOT has_schema_privilege(current_schema(), 'CREATE') \
        THEN format('GRANT ALL ON SCHEMA %I TO %I', coalesce(current_schema(), 'public'), current_user) END";
/// Tables `$1` that are missing.
const MISSING: &str = "SELECT string_agg(name, ', ') FROM unnest($1::text[]) AS name \
    WHERE to_regclass(name) IS NULL";
/// Tables `$1` that the user may not read and write.
const CLOSED: &str = "SELECT string_agg(name, ', ') FROM unnest($1::text[]) AS name \
    WHERE NOT (SELECT bool_and(has_table_privilege(to_regclass(name), right_)) \
        FROM unnest('{SELECT,INSERT,UPDATE,DELETE}'::text[]) AS right_)";

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
            if schema::is_ours(&client).await? {
                tables(&client).await
            } else {
                rights(&client).await
            }
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
    let created = database::TABLES.split("CREATE TABLE IF NOT EXISTS ").skip(1);
    let names: Vec<&str> = created.filter_map(|rest| rest.split([' ', '(']).next()).collect();
    let missing: Option<String> = client.query_one(MISSING, &[&names]).await?.try_get(0)?;
    let closed: Option<String> = client.query_one(CLOSED, &[&names]).await?.try_get(0)?;
    let missing = missing.map(DatabaseError::Missing);
    let closed = closed.map(|tables| {
        DatabaseError::Rights(format!("ALTER TABLE … OWNER TO the server's role ({tables})"))
    });
    Ok(missing.into_iter().chain(closed).collect())
}

/// The missing rights to create the tables.
async fn rights(client: &Client) -> Result<Vec<DatabaseError>, DatabaseError> {
    let missing: Option<String> = client.query_one(NEW, &[]).await?.try_get(0)?;
    Ok(missing.map(DatabaseError::Rights).into_iter().collect())
}
