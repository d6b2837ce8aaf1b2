//! The rights that a role lacks, as statements.

use crate::error::SetupError;
use tokio_postgres::{Client, Error};

/// For the tables `$1` and the role `$2`, or that of the session: the statements that give what is missing. The server needs the owner's rights in
/// the schema jobmeter, because it makes and drops partitions. A role is no member of a superuser, so it gets the tables of one.
const MISSING: &str = "WITH closed AS (
    SELECT c.oid, c.relowner, me.rolname AS role, pg_has_role(me.oid, c.relowner, 'USAGE') AS is_own, own.rolname AS owner, own.rolsuper
    FROM unnest($1::text[]) AS name JOIN pg_class AS c ON c.oid = coalesce(to_regclass(name), CASE WHEN strpos(name, '.') = 0 THEN to_regclass('public.' || name) END)
        JOIN pg_roles AS own ON own.oid = c.relowner JOIN pg_roles AS me ON me.rolname = coalesce($2::text, current_user::text)
    WHERE NOT (SELECT bool_and(has_table_privilege(me.oid, c.oid, right_))
            FROM unnest('{SELECT,INSERT,UPDATE,DELETE}'::text[]) AS right_)
        OR c.relnamespace = to_regnamespace('jobmeter') AND NOT pg_has_role(me.oid, c.relowner, 'USAGE'))
SELECT string_agg(text, '; ' ORDER BY text) FROM (
    SELECT format('GRANT ALL ON %s TO %I', string_agg(oid::regclass::text, ', ' ORDER BY oid::regclass::text), role) AS text
    FROM closed WHERE is_own GROUP BY role
    UNION ALL SELECT DISTINCT format('GRANT %I TO %I', owner, role) FROM closed WHERE NOT is_own AND NOT rolsuper
    UNION ALL SELECT format('ALTER TABLE %s OWNER TO %I', oid::regclass, role) FROM closed WHERE NOT is_own AND rolsuper) AS missing";

/// The statements that withdraw the rights on a schema api of the site which its roles do not have yet. $1 is the owner's role, $2 the reading one.
const NEW_API_RIGHTS: &str = "SELECT string_agg(format('REVOKE %s ON SCHEMA api FROM %I', right_, role_), '; ' ORDER BY role_, right_) \
    FROM (VALUES ($1::text, 'CREATE'), ($1, 'USAGE'), ($2, 'USAGE')) AS wanted (role_, right_) \
    WHERE NOT EXISTS (SELECT FROM pg_namespace CROSS JOIN aclexplode(coalesce(nspacl, acldefault('n', nspowner))) AS acl \
        WHERE nspname = 'api' AND privilege_type = right_ AND pg_get_userbyid(grantee)::text = role_)";

/// The names of the tables that `jobmeter db setup` and the server make.
pub fn tables() -> Vec<&'static str> {
    let created = crate::TABLES.split("CREATE TABLE IF NOT EXISTS ").skip(1);
    created.filter_map(|rest| rest.split([' ', '(']).next()).chain(["metrics"]).collect()
}

/// The statements for a superuser that give a role all rights on existing tables that the server needs; `None`: it has them. Without a role: that of
/// the session.
///
/// # Errors
/// The database does not answer.
pub async fn missing_rights(client: &Client, role: Option<&str>) -> Result<Option<String>, Error> {
    client.query_one(MISSING, &[&tables(), &role]).await?.try_get(0)
}

/// Whether a role can change the tables of a database that is set up.
pub(crate) async fn check_rights(client: &Client, role: &str) -> Result<(), SetupError> {
    let missing = missing_rights(client, Some(role)).await?;
    missing.map_or(Ok(()), |missing| {
        let text = format!(
            "the role {role} has not all rights on the tables; execute as a superuser: {missing}"
        );
        Err(SetupError::Rights(text))
    })
}

/// The statements that withdraw the rights on the schema api which the owner's and the reading role are about to get.
pub(crate) async fn new_api_rights(
    client: &Client,
    user: &str,
    reader: &str,
) -> Result<Option<String>, Error> {
    client.query_one(NEW_API_RIGHTS, &[&user, &reader]).await?.try_get(0)
}
