//! A superuser executes nothing that the owner's role can have planted.

use crate::error::SetupError;
use tokio_postgres::Client;

/// The tables, triggers, defaults and views of the schema are the owner's. Only the catalogue is read here.
const IS_AT_RISK: &str = "SELECT r.rolsuper AND NOT o.rolsuper FROM pg_namespace \
    JOIN pg_roles AS o ON o.oid = nspowner JOIN pg_roles AS r ON r.rolname = current_user WHERE nspname = 'jobmeter'";

/// Prepares a session of an administrator. Names mean those of the catalogue, whatever other roles have made. A superuser is rejected in a
/// database that another role owns: its triggers, defaults and views would run with a superuser's rights.
///
/// # Errors
/// The database does not answer; the role is a superuser, and `as_superuser` is not set.
pub async fn enter(client: &Client, as_superuser: bool) -> Result<(), SetupError> {
    client
        .batch_execute(
            "SET search_path TO pg_catalog; SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0",
        )
        .await?;
    let row = client.query_opt(IS_AT_RISK, &[]).await?;
    let is_at_risk = row.map_or(Ok(false), |row| row.try_get(0))?;
    if is_at_risk && !as_superuser {
        let text = "this database is set up: repeat the command as its owner, --db_admin ROLE with its password. A superuser would \
                    execute what the owner's role can change; --as-superuser does it, if you trust all who can be that role";
        return Err(SetupError::Rights(text.to_owned()));
    }
    Ok(())
}
