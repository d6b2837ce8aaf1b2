//! The statements that give a database back.

use crate::attach::{self, BEFORE};
use crate::error::SetupError;
use crate::found::{Found, Made, Shape};
use crate::run::Step;
use crate::server::enter_as_server;
use crate::sql::name;
use tokio_postgres::Client;

/// Views and functions outside of the schema jobmeter that depend on it, and that jobmeter did not make.
const DEPENDENTS: &str = "SELECT DISTINCT format('%s.%s', n.nspname, c.relname) FROM pg_depend AS d \
        JOIN pg_rewrite AS w ON w.oid = d.objid JOIN pg_class AS c ON c.oid = w.ev_class JOIN pg_namespace AS n ON n.oid = c.relnamespace \
        JOIN pg_class AS of ON of.oid = d.refobjid \
    WHERE d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass AND n.nspname <> 'jobmeter' \
        AND (of.relnamespace = to_regnamespace('jobmeter') \
            OR of.oid IN (to_regclass('public.metrics_by_job'), to_regclass('public.metrics_by_job_summary')) AND c.oid <> of.oid) \
        AND NOT EXISTS (SELECT FROM jobmeter.objects AS o WHERE o.name = format('%s.%s', n.nspname, c.relname)) ORDER BY 1";
const OBJECTS: &str = "SELECT kind, name, restore FROM jobmeter.objects ORDER BY place";
const PARTITIONS: &str = "SELECT c.relname::text FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid \
    WHERE i.inhparent = to_regclass('public.metrics') AND c.relnamespace = to_regnamespace('jobmeter') ORDER BY 1";

/// Nothing updates the promotions of the server any more.
const FORGET_PROMOTIONS: &str = "DELETE FROM public.promoted_metrics AS p USING jobmeter.promoted AS own \
    WHERE p.device_id = own.device_id AND p.metric_id = own.metric_id; DELETE FROM jobmeter.promoted";

/// What is left in the database: a table that may have rows of people, and rights that the role of the command did not give. After an
/// interrupted setup also rights and a schema. $1 is the owner's role, which can write the records: a superuser shall not execute any text.
const REMAINING_HERE: &str = "SELECT CASE kind WHEN 'rights' THEN restore ELSE format('DROP %s %s', upper(kind), name) END \
    FROM jobmeter.objects AS o CROSS JOIN (SELECT NOT EXISTS (SELECT FROM jobmeter.setup)) AS s (is_unfinished) \
    WHERE kind = 'table' AND name = 'public.promoted_metrics' OR kind = 'schema' AND name = 'api' AND is_unfinished \
        OR kind = 'rights' AND restore ~ '^(REVOKE [A-Z]+ ON SCHEMA (public|api) FROM [^;[:cntrl:]]+(; |$))+$' AND (is_unfinished \
            OR NOT pg_has_role((SELECT nspowner FROM pg_namespace WHERE o.name = 'rights of ' || nspname), 'USAGE')) \
    UNION ALL SELECT format('REVOKE CREATE ON DATABASE %I FROM %I', datname, $1::text) \
    FROM pg_database CROSS JOIN aclexplode(datacl) AS acl WHERE datname = current_database() AND grantee <> datdba \
        AND privilege_type = 'CREATE' AND pg_get_userbyid(grantee)::text = $1 ORDER BY 1";
/// Roles, settings, the tablespace and the extension, as far as they are as `setup` makes them, with the statement that removes each. $1 is the
/// owner's role.
const REMAINING: &str = "SELECT text FROM (
    SELECT 1, format('ALTER DATABASE %I RESET %I', current_database(), split_part(one, '=', 1))
    FROM pg_db_role_setting CROSS JOIN unnest(setconfig) AS one
    WHERE setrole = 0 AND setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND one IN ('idle_in_transaction_session_timeout=1 h', 'statement_timeout=1 h', 'jit=off')
    UNION ALL SELECT 2, format('ALTER ROLE %I RESET statement_timeout', rolname)
    FROM pg_db_role_setting JOIN pg_roles AS r ON r.oid = setrole CROSS JOIN unnest(setconfig) AS one
    WHERE setdatabase = 0 AND rolname = $1 AND one LIKE 'statement_timeout=% min'
    UNION ALL SELECT 3, format('DROP TABLESPACE %I', spcname) FROM pg_tablespace JOIN pg_roles AS r ON r.oid = spcowner
    WHERE spcname = 'archive' AND rolname = $1
    UNION ALL SELECT 4, format('DROP DATABASE %I', datname) FROM pg_database WHERE datname = current_database()
    UNION ALL SELECT 5, format('DROP ROLE %I', rolname) FROM pg_roles WHERE rolname = $1 || '_ro'
    UNION ALL SELECT 6, format('DROP ROLE %I', rolname) FROM pg_roles WHERE rolname = $1) AS remaining (place, text) ORDER BY place, text";
const OWNER: &str =
    "SELECT pg_get_userbyid(nspowner)::text FROM pg_namespace WHERE nspname = 'jobmeter'";

/// The steps that remove what jobmeter made, and bring back what it replaced. `keep` leaves the schema jobmeter.
///
/// # Errors
/// jobmeter did not set up the database; something of the site depends on the schema jobmeter.
pub async fn release(client: &Client, keep: bool) -> Result<Vec<Step>, SetupError> {
    let found = Found::read(client).await?;
    if let Some(undo) = attach::undo_unfinished(&found) {
        return Ok(vec![undo]);
    }
    if found.version.is_none_or(|version| version < 1) {
        return Err(SetupError::NotSetUp);
    }
    // No server starts meanwhile.
    if enter_as_server(client).await?.is_some() {
        return Err(SetupError::InUse);
    }
    let text = format!("SELECT to_regclass('public.{BEFORE}') IS NOT NULL");
    let is_attached: bool = client.query_one(&text, &[]).await?.try_get(0)?;
    check(client, &found, is_attached, keep).await?;
    let mut objects: Vec<Made> = Vec::new();
    for row in client.query(OBJECTS, &[]).await? {
        objects.push((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
    }
    let mut all = vec!["SET LOCAL search_path TO public".to_owned()];
    all.extend(
        crate::recording::TRIGGERS
            .map(|name| format!("DROP TRIGGER IF EXISTS {name} ON public.metrics")),
    );
    let functions = objects.iter().filter(|(kind, ..)| kind == "function").rev();
    all.extend(functions.map(|(_, signature, _)| format!("DROP FUNCTION IF EXISTS {signature}")));
    if is_attached {
        all.extend(attach::detach(client).await?);
    } else if found.shape == Some(Shape::Partitioned) && !keep {
        for row in client.query(PARTITIONS, &[]).await? {
            let partition: String = row.try_get(0)?;
            all.push(format!("ALTER TABLE jobmeter.{} SET SCHEMA public", name(&partition)));
        }
    }
    views(&objects, &mut all);
    let of_kind = |wanted: &'static str| objects.iter().filter(move |(kind, ..)| kind == wanted);
    all.extend(of_kind("replaced function").filter_map(|(.., restore)| restore.clone()));
    // Their table is `metrics` again.
    all.extend(of_kind("index").map(|(_, index, _)| format!("DROP INDEX public.{}", name(index))));
    all.extend(of_kind("rights").filter_map(|(.., restore)| restore.clone()));
    all.extend(of_kind("schema").map(|(_, schema, _)| format!("DROP SCHEMA {}", name(schema))));
    all.push(FORGET_PROMOTIONS.to_owned());
    all.push(match keep {
        true => "DELETE FROM jobmeter.objects; DELETE FROM jobmeter.setup".to_owned(),
        false => "DROP SCHEMA jobmeter CASCADE".to_owned(),
    });
    if is_attached {
        // What is left of the dependents are views of a schema that is kept.
        all.push("DROP TABLE public.metrics_of_jobmeter CASCADE".to_owned());
    }
    Ok(vec![Step::Together(all)])
}

/// The statements that remove what `release` leaves, because jobmeter cannot tell whether others made or use it, or must not: for a superuser.
#[derive(Clone, Debug, Default)]
pub struct Remaining {
    /// In the database.
    pub here: Vec<String>,
    /// In another database, one by one.
    pub elsewhere: Vec<String>,
}

/// What `release` will leave.
///
/// # Errors
/// The database does not answer.
pub async fn remaining(client: &Client) -> Result<Remaining, SetupError> {
    let Some(owner) = client.query_opt(OWNER, &[]).await? else { return Ok(Remaining::default()) };
    let owner: String = owner.try_get(0)?;
    let mut found = [REMAINING_HERE, REMAINING].map(|query| (query, Vec::new()));
    for (query, statements) in &mut found {
        for row in client.query(*query, &[&owner]).await? {
            statements.push(row.try_get(0)?);
        }
    }
    let [(_, here), (_, elsewhere)] = found;
    Ok(Remaining { here, elsewhere })
}

/// What of the site depends on jobmeter.
async fn check(
    client: &Client,
    found: &Found,
    is_attached: bool,
    keep: bool,
) -> Result<(), SetupError> {
    let mut in_the_way = Vec::new();
    if is_attached {
        let is_ours = |one: &&String| found.is_made(one) || one.starts_with("jobmeter.");
        let others = found.dependents.iter().filter(|one| !is_ours(one));
        in_the_way.extend(others.map(|one| format!("{one} depends on `metrics`, which becomes a table again; drop it, and make it again afterwards")));
    }
    let dependents = if keep { Vec::new() } else { client.query(DEPENDENTS, &[]).await? };
    for row in dependents {
        let dependent: String = row.try_get(0)?;
        in_the_way.push(format!("{dependent} depends on the schema jobmeter or its columns of metrics_by_job; drop it, and make it again afterwards"));
    }
    if in_the_way.is_empty() { Ok(()) } else { Err(SetupError::InTheWay(in_the_way)) }
}

/// Brings views back, and drops the others in the reverse order of their making. Those that had another text read the restored table
/// from then on.
fn views(objects: &[Made], all: &mut Vec<String>) {
    let (restored, dropped): (Vec<_>, Vec<_>) = objects
        .iter()
        .filter(|(kind, ..)| kind == "view")
        .partition(|(.., restore)| restore.is_some());
    all.extend(restored.iter().rev().filter_map(|(_, name, restore)| {
        // A view with more columns than before cannot be replaced; what is above it comes first.
        restore
            .as_deref()
            .filter(|text| text.starts_with("DROP VIEW"))
            .map(|_| format!("DROP VIEW {name}"))
    }));
    for (_, name, restore) in &restored {
        let text = restore.as_deref().unwrap_or_default();
        let drop = format!("DROP VIEW {name}; ");
        all.push(text.strip_prefix(&drop).unwrap_or(text).to_owned());
    }
    all.extend(dropped.iter().rev().map(|(_, name, _)| format!("DROP VIEW IF EXISTS {name}")));
}
