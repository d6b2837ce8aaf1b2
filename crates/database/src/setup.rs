//! The statements that set up a database, or adopt that of Kwollect.

use crate::attach;
use crate::error::SetupError;
use crate::found::{
    Found, Function, Made, Relation, Shape, TimescaleDb, check_rights, new_api_rights,
};
use crate::objects::{self, HELPERS, Kind, Object, TABLES, add_made, objects, record, restored};
use crate::run::Step;
use crate::sql::{literal, name};
use tokio_postgres::Client;

/// Time of a partition, if nothing else is given.
const CHUNK_HOURS: u32 = 6;
/// From this version on, the owner of a database alone may create objects in its schema public.
const OWNED_PUBLIC: i32 = 150_000;
/// What the reading role always reads, besides the views.
const FOR_READERS: &str = "jobmeter.nodetime, jobmeter.counter_starts, jobmeter.counters, jobmeter.job_requests, jobmeter.metric_catalogue, jobmeter.windows_by_device";
/// What it reads with `Reader::Jobs`.
const OF_JOBS: &str = "jobmeter.job_metrics, jobmeter.series, jobmeter.allocations, jobmeter.jobs";

/// What the reading role sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reader {
    /// Samples of nodes, and which node a job had and when.
    #[default]
    Nodes,
    /// Also the samples of jobs, and the copy of the jobs.
    Jobs,
}

/// Checked options of `jobmeter db setup`.
#[derive(Clone, Debug)]
pub struct SetupOptions {
    /// The database.
    pub database: String,
    /// The role that owns everything, and of the server. The reading role has `_ro` behind it.
    pub user: String,
    /// Its password, if it is set or changed.
    pub password: Option<String>,
    /// That of the reading role, if it is set or changed.
    pub reader_password: Option<String>,
    /// That of a new reading role otherwise.
    pub new_reader_password: String,
    /// Time of a new partition, if it is changed.
    pub chunk_hours: Option<u32>,
    /// Time until TimescaleDB compresses a chunk, if it is changed.
    pub compress_hours: Option<u32>,
    /// Time limit of a statement of the owner's role.
    pub request_timeout_min: u32,
    /// The folder of the tablespace `archive`.
    pub archive_path: Option<String>,
    /// The statements of `get_job_metrics`, with their line numbers; `None` leaves them.
    pub job_requests: Option<Vec<(usize, String)>>,
    /// What the reading role sees.
    pub reader: Reader,
    /// Withdraws the trust in plpython3u.
    pub distrust_plpython: bool,
}

impl SetupOptions {
    fn reader_role(&self) -> String {
        format!("{}_ro", self.user)
    }
}

/// The steps that make roles and the database; they are executed in another database. The owner of a database that exists needs
/// none. `is_shown` leaves the passwords out.
///
/// # Errors
/// The connection's role lacks rights; a role is missing and no password is given.
pub async fn prepare_server(
    client: &Client,
    options: &SetupOptions,
    is_shown: bool,
) -> Result<Vec<Step>, SetupError> {
    let text = "SELECT rolsuper, current_user::text, EXISTS (SELECT FROM pg_database WHERE datname = $1), \
                EXISTS (SELECT FROM pg_roles WHERE rolname = $2), EXISTS (SELECT FROM pg_roles WHERE rolname = $3), \
                EXISTS (SELECT FROM pg_tablespace WHERE spcname = 'archive') \
                FROM pg_roles WHERE rolname = current_user";
    let (user, reader) = (&options.user, options.reader_role());
    let row = client.query_one(text, &[&options.database, user, &reader]).await?;
    let (is_super, admin): (bool, String) = (row.try_get(0)?, row.try_get(1)?);
    if !is_super {
        let is_there =
            [2, 3, 4].iter().all(|column| row.try_get::<_, bool>(*column).unwrap_or(false));
        if admin == *user && is_there && !options.distrust_plpython {
            return Ok(Vec::new());
        }
        let text = format!("the role {admin} is no superuser; name one with --db_admin");
        return Err(SetupError::Rights(text));
    }
    let (has_database, has_user, has_reader, has_archive): (bool, bool, bool, bool) =
        (row.try_get(2)?, row.try_get(3)?, row.try_get(4)?, row.try_get(5)?);
    let mut together = roles(options, [has_user, has_reader], is_shown)?;
    together.push(format!("GRANT {} TO {}", name(&reader), name(user)));
    let limit = options.request_timeout_min;
    together.push(format!("ALTER ROLE {} SET statement_timeout TO '{limit} min'", name(user)));
    let mut steps = vec![Step::Together(together)];
    let database = name(&options.database);
    if !has_database {
        steps.push(Step::Alone(format!(
            "CREATE DATABASE {database} OWNER {} ENCODING 'UTF8' TEMPLATE template0",
            name(user)
        )));
    }
    steps.push(Step::Together(vec![
        format!("ALTER DATABASE {database} SET idle_in_transaction_session_timeout TO '1 h'"),
        format!("ALTER DATABASE {database} SET statement_timeout TO '1 h'"),
        // The planner overestimates the windows of views, and would compile each query for seconds.
        format!("ALTER DATABASE {database} SET jit TO off"),
    ]));
    if let Some(path) = options.archive_path.as_ref().filter(|_| !has_archive) {
        let text =
            format!("CREATE TABLESPACE archive OWNER {} LOCATION {}", name(user), literal(path));
        steps.push(Step::Alone(text));
    }
    Ok(steps)
}

/// The statements that make the roles, or set their passwords.
fn roles(
    options: &SetupOptions,
    [has_user, has_reader]: [bool; 2],
    is_shown: bool,
) -> Result<Vec<String>, SetupError> {
    let (user, reader) = (&options.user, options.reader_role());
    let verifier = |password: &str| {
        let text = postgres_protocol::password::scram_sha_256(password.as_bytes());
        literal(if is_shown { "…" } else { &text })
    };
    let of_reader = match (&options.reader_password, has_reader) {
        (None, false) => Some(&options.new_reader_password),
        (given, _) => given.as_ref(),
    };
    let mut together = Vec::new();
    for (role, exists, password) in
        [(user, has_user, options.password.as_ref()), (&reader, has_reader, of_reader)]
    {
        match (exists, password) {
            (false, None) => return Err(SetupError::Password(role.clone())),
            (false, Some(password)) => {
                together.push(format!(
                    "CREATE ROLE {} LOGIN PASSWORD {}",
                    name(role),
                    verifier(password)
                ));
            }
            (true, Some(password)) => {
                together.push(format!(
                    "ALTER ROLE {} LOGIN PASSWORD {}",
                    name(role),
                    verifier(password)
                ));
            }
            (true, None) => {}
        }
    }
    Ok(together)
}

/// The step that creates the extension TimescaleDB in a new database, where its server offers it.
///
/// # Errors
/// The database does not answer.
pub async fn extension(client: &Client) -> Result<Option<Step>, SetupError> {
    Ok(Found::read(client).await?.extension())
}

/// The steps within the database. Without a client the database does not exist yet; `server` is another one of its server.
///
/// # Errors
/// The database cannot be used, or something of the site is in the way. Nothing is changed.
pub async fn setup(
    client: Option<&Client>,
    server: &Client,
    options: &SetupOptions,
) -> Result<(Found, Vec<Step>), SetupError> {
    let found = match client {
        Some(client) => Found::read(client).await?,
        None => Found::of_new(server).await?,
    };
    check(&found, options)?;
    if let Some(client) = client.filter(|_| found.version.is_some()) {
        check_rights(client, &options.user).await?;
    }
    let as_owner = [
        "SET LOCAL search_path TO public".to_owned(),
        format!("SET LOCAL ROLE {}", name(&options.user)),
    ];
    let mut beside = rights(client, &found, options).await?;
    beside.extend(as_owner.clone());
    beside.push(HELPERS.to_owned());
    requests(client, &found, options, &mut beside).await?;
    let mut steps: Vec<Step> = attach::undo_unfinished(&found).into_iter().collect();
    steps.extend(found.extension());
    steps.push(Step::Beside(beside));
    let mut all = as_owner.to_vec();
    drop_functions(&found, &mut all);
    let chunk_hours = options.chunk_hours.unwrap_or(CHUNK_HOURS);
    match (found.shape, client) {
        (None, _) => {
            let timescale = found.new_hypertable();
            all.push(objects::metrics(timescale.is_none()));
            all.extend(
                timescale
                    .into_iter()
                    .flat_map(|found| found.hypertable(chunk_hours, options.compress_hours)),
            );
        }
        (Some(Shape::Hypertable), _) => {
            let (chunk, compress) = (options.chunk_hours, options.compress_hours);
            let change = |one: TimescaleDb| one.change(found.is_compressed, chunk, compress);
            all.extend(found.timescale.map(change).unwrap_or_default());
        }
        (Some(Shape::Plain), Some(client)) => {
            let (before, attached) = attach::attach(client, &found, chunk_hours).await?;
            steps.extend(before);
            all.extend(attached);
        }
        _ => {}
    }
    views_and_functions(&found, options, &mut all);
    if found.version.is_none() {
        all.push("RESET ROLE".to_owned());
        all.push(format!("ALTER SCHEMA jobmeter OWNER TO {}", name(&options.user)));
        all.push(format!("GRANT USAGE ON SCHEMA jobmeter TO {}", name(&options.reader_role())));
    }
    steps.push(Step::Together(all));
    Ok((found, steps))
}

/// What people use, and the trigger on `metrics`.
fn views_and_functions(found: &Found, options: &SetupOptions, all: &mut Vec<String>) {
    all.push(objects::PARTITION_ROLLUPS.to_owned());
    all.push(objects::WINDOWS.to_owned());
    for object in objects(found) {
        let before = match object.kind {
            Kind::View => {
                found.relation(object.bare_name()).filter(|_| !found.is_made(object.name))
            }
            Kind::Function => None,
        };
        let before = before.map(|one| restored(&object, one, &options.reader_role()));
        all.push(record(object.kind.word(), object.name, before.as_deref()));
        all.push(object.create());
        let replaced = found.functions.iter().find(|(signature, _)| object.replaces(signature));
        if let Some((_, function)) = replaced.filter(|(signature, _)| !found.is_made(signature)) {
            all.push(function.rights.replace("{function}", object.name));
        }
    }
    grants(found, options, all);
    all.push(crate::recording::recording());
    if let Some(hours) = options.chunk_hours {
        all.push(format!("UPDATE jobmeter.state SET chunk_interval_hour = {hours}"));
    }
    if found.shape.is_none() {
        // Nothing is stored yet, so no row has an unregistered series.
        all.push("UPDATE jobmeter.state SET looked_us = -9223372036854775808".to_owned());
    }
    all.push(objects::recorded_version());
    if options.distrust_plpython && found.trusts_plpython {
        all.push("RESET ROLE".to_owned());
        all.push(
            "UPDATE pg_language SET lanpltrusted = false WHERE lanname = 'plpython3u'".to_owned(),
        );
    }
}

/// What makes a database unusable.
fn check(found: &Found, options: &SetupOptions) -> Result<(), SetupError> {
    if found.version.is_some_and(|version| version > crate::VERSION) {
        let text = "a later version of jobmeter set up this database; use its program".to_owned();
        return Err(SetupError::Rows(text));
    }
    let mut in_the_way = Vec::new();
    if let Some(metrics) = found.relation("metrics") {
        let expected = [
            ("timestamp", "timestamp with time zone"),
            ("device_id", "text"),
            ("metric_id", "text"),
            ("value", "double precision"),
            ("labels", "jsonb"),
        ];
        let is_same =
            metrics.columns.iter().map(|(name, of)| (name.as_str(), of.as_str())).eq(expected);
        if !is_same || found.shape.is_none() {
            let shown: Vec<_> =
                metrics.columns.iter().map(|(name, of)| format!("{name} {of}")).collect();
            in_the_way
                .push(format!("`metrics` has other columns than Kwollect's: {}", shown.join(", ")));
        } else if found.owner != options.user {
            in_the_way
                .push(format!("`metrics` belongs to {}; give --kwollect_user {0}", found.owner));
        }
    }
    let objects = objects(found);
    for object in
        objects.iter().filter(|object| object.kind == Kind::View && !found.is_made(object.name))
    {
        if let Some(relation) = found.relation(object.bare_name()) {
            in_the_way.extend(other_shape(object, relation));
        }
    }
    if found.shape == Some(Shape::Plain) {
        let of_kwollect = |dependent: &&String| {
            dependent.starts_with("jobmeter.") || objects.iter().any(|one| one.is_named(dependent))
        };
        for dependent in found.dependents.iter().filter(|one| !of_kwollect(one)) {
            in_the_way.push(format!("{dependent} depends on `metrics`, which becomes a partition; drop it, and make it again afterwards"));
        }
        in_the_way.extend(found.on_metrics.iter().map(|what| {
            format!("{what} of `metrics` would hold for its first partition alone; drop it, and make it again afterwards")
        }));
    }
    let is_replaced =
        |(_, function): &&(String, String)| objects.iter().any(|one| one.replaces(function));
    for (dependent, function) in found.on_functions.iter().filter(is_replaced) {
        in_the_way.push(format!("{dependent} depends on {function}, which is replaced; drop it, and make it again afterwards"));
    }
    if in_the_way.is_empty() { Ok(()) } else { Err(SetupError::InTheWay(in_the_way)) }
}

/// What is wrong with a relation of the site that has the name of a view.
fn other_shape(object: &Object, relation: &Relation) -> Option<String> {
    if relation.kind != "v" {
        return Some(format!("{} is not a view", object.name));
    }
    let names: Vec<&str> = relation.columns.iter().map(|(name, _)| name.as_str()).collect();
    (names != object.columns)
        .then(|| format!("{} has other columns than Kwollect's: {}", object.name, names.join(", ")))
}

/// Drops the functions of these names, and records those of the site.
fn drop_functions(found: &Found, all: &mut Vec<String>) {
    let objects = objects(found);
    for (signature, Function { definition, .. }) in &found.functions {
        if !objects.iter().any(|object| object.replaces(signature)) {
            continue;
        }
        if !found.is_made(signature) {
            all.push(record("replaced function", signature, Some(definition)));
        }
        all.push(format!("DROP FUNCTION {signature}"));
    }
}

/// Schemas and rights that the owner's role needs; as the administrator.
async fn rights(
    client: Option<&Client>,
    found: &Found,
    options: &SetupOptions,
) -> Result<Vec<String>, SetupError> {
    let (user, reader) = (name(&options.user), name(&options.reader_role()));
    let mut all = vec!["SET LOCAL search_path TO public".to_owned()];
    // The database has what an interrupted setup made; that was recorded in the schema that is dropped.
    let mut made: Vec<Made> = found.unfinished.clone();
    let mut add =
        |kind: &str, what: &str, undo: Option<String>| add_made(&mut made, kind, what, undo);
    // The owner of a database has both rights; a role that will be created has neither.
    let (mut has_public, mut has_database) = (true, true);
    if let Some(client) = client {
        let text = "SELECT has_schema_privilege($1, 'public', 'CREATE'), has_database_privilege($1, current_database(), 'CREATE') \
                    FROM pg_roles WHERE rolname = $1";
        let row = client.query_opt(text, &[&options.user]).await?;
        let has = |column| row.as_ref().map_or(Ok(false), |row| row.try_get(column));
        (has_public, has_database) = (has(0)?, has(1)?);
    }
    // Before PostgreSQL 15, every role may make functions there that the owner's statements then find.
    if found.server < OWNED_PUBLIC && is_empty(client).await? {
        all.push("REVOKE CREATE ON SCHEMA public FROM PUBLIC".to_owned());
        has_public = false;
    }
    if !has_public {
        all.push(format!("GRANT ALL ON SCHEMA public TO {user}"));
        let undo = format!("REVOKE ALL ON SCHEMA public FROM {user}");
        add("rights", "rights of public", Some(undo));
    }
    if let Some(client) = client.filter(|_| found.has_schema_api && found.version.is_none())
        && let Some(revoke) = new_api_rights(client, &options.user, &options.reader_role()).await?
    {
        add("rights", "rights of api", Some(revoke));
    }
    if !has_database {
        all.push(format!("GRANT CREATE ON DATABASE {} TO {user}", name(&options.database)));
    }
    if !found.has_schema_api {
        all.push(format!("CREATE SCHEMA api AUTHORIZATION {user}"));
        add("schema", "api", None);
    }
    all.push(format!("GRANT ALL ON SCHEMA api TO {user}"));
    all.push(format!("GRANT USAGE ON SCHEMA api TO {reader}"));
    if found.version.is_none() {
        // It belongs to the administrator until all is done, so an interrupted setup is known.
        all.push("CREATE SCHEMA jobmeter".to_owned());
        all.push(format!("GRANT ALL ON SCHEMA jobmeter TO {user}"));
    }
    // The table of records comes first.
    all.push(format!("SET LOCAL ROLE {user}"));
    all.push(TABLES.to_owned());
    all.push("RESET ROLE".to_owned());
    if found.shape.is_some() && found.relation("promoted_metrics").is_none() {
        // People may have written rows into it by then.
        add("table", "public.promoted_metrics", None);
    }
    all.extend(made.iter().map(|(kind, what, undo)| record(kind, what, undo.as_deref())));
    if found.shape.is_none() {
        all.push(format!("ALTER DEFAULT PRIVILEGES FOR ROLE {user} IN SCHEMA public GRANT SELECT ON TABLES TO {reader}"));
    }
    Ok(all)
}

/// Whether nothing uses the schema public yet.
async fn is_empty(client: Option<&Client>) -> Result<bool, SetupError> {
    let Some(client) = client else { return Ok(true) };
    let text =
        "SELECT NOT EXISTS (SELECT FROM pg_class WHERE relnamespace = to_regnamespace('public'))";
    Ok(client.query_one(text, &[]).await?.try_get(0)?)
}

/// The statements of a file: one per line, without comments and empty lines.
pub fn job_requests(text: &str) -> Vec<(usize, String)> {
    let lines = (1..).zip(text.lines().map(str::trim));
    let lines = lines.filter(|(_, text)| !text.is_empty() && !text.starts_with('#'));
    lines.map(|(line, text)| (line, text.to_owned())).collect()
}

/// The statements of `get_job_metrics`. PostgreSQL itself names their columns, and rejects what is no SELECT.
async fn requests(
    client: Option<&Client>,
    found: &Found,
    options: &SetupOptions,
    all: &mut Vec<String>,
) -> Result<(), SetupError> {
    let default = || job_requests(crate::DEFAULT_JOB_REQUESTS);
    let lines = match &options.job_requests {
        Some(lines) => lines.clone(),
        None if !has_requests(client, found).await? => default(),
        None => return Ok(()),
    };
    all.push("DELETE FROM jobmeter.job_requests".to_owned());
    for (line, text) in lines {
        let text = text.trim().trim_end_matches(';');
        let mut keys = Vec::new();
        if let Some(client) = client {
            let rows = "SELECT NULL::timestamptz AS timestamp, NULL::text AS device_id, NULL::text AS metric_id, \
                        NULL::double precision AS value, NULL::jsonb AS labels";
            let whole = format!("WITH jobmetrics AS ({rows}) SELECT * FROM ({text}\n) AS found");
            let rejected = |error: tokio_postgres::Error| {
                SetupError::Requests(format!("line {line}: {}", SetupError::from(error)))
            };
            let prepared = client.prepare(&whole).await.map_err(rejected)?;
            keys.extend(prepared.columns().iter().map(|column| literal(column.name())));
        }
        all.push(format!(
            "INSERT INTO jobmeter.job_requests (line, keys, statement) VALUES ({line}, ARRAY[{}]::text[], {})",
            keys.join(", "),
            literal(text)
        ));
    }
    Ok(())
}

async fn has_requests(client: Option<&Client>, found: &Found) -> Result<bool, SetupError> {
    let Some(client) = client.filter(|_| found.version.is_some_and(|version| version > 0)) else {
        return Ok(false);
    };
    Ok(client
        .query_one("SELECT EXISTS (SELECT FROM jobmeter.job_requests)", &[])
        .await?
        .try_get(0)?)
}

/// What the reading role reads.
fn grants(found: &Found, options: &SetupOptions, all: &mut Vec<String>) {
    let reader = name(&options.reader_role());
    let views = objects(found).into_iter().filter(|object| object.kind == Kind::View);
    let mut names: Vec<&str> = views.map(|view| view.name).collect();
    if found.shape.is_none() {
        names.push("public.metrics");
    }
    if found.relation("metrics_summary").is_none() && found.has_aggregate() {
        names.push("public.metrics_summary");
    }
    if found.relation("promoted_metrics").is_none() {
        names.push("public.promoted_metrics");
    }
    all.push(format!("GRANT SELECT ON {} TO {reader}", names.join(", ")));
    if found.version.is_some() {
        all.push(format!("GRANT USAGE ON SCHEMA jobmeter TO {reader}"));
    }
    all.push(format!("GRANT SELECT ON {FOR_READERS} TO {reader}"));
    all.push(match options.reader {
        Reader::Jobs => format!("GRANT SELECT ON {OF_JOBS} TO {reader}"),
        Reader::Nodes => format!("REVOKE SELECT ON {OF_JOBS} FROM {reader}"),
    });
}
