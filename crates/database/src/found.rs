//! What a database has: `shape` of its tables, `rights` on them, and `timescaledb` with the statements for its version.

mod rights;
mod shape;
mod timescaledb;

use crate::error::SetupError;
use crate::run::Step;
use std::collections::{BTreeMap, BTreeSet};
use tokio_postgres::Client;

pub(crate) use rights::{check_rights, new_api_rights};
pub use rights::{missing_rights, tables};
pub use shape::Shape;
pub(crate) use timescaledb::TimescaleDb;
pub use timescaledb::has_aggregate;

/// What jobmeter made: kind, name, and the statements that bring back what was there before.
pub(crate) type Made = (String, String, Option<String>);

/// A table or view of the schema public.
#[derive(Clone, Debug, Default)]
pub(crate) struct Relation {
    /// `r`: a table, `p`: a partitioned one, `v`: a view, `m`: a materialized one, `f`: a foreign one.
    pub(crate) kind: String,
    /// Names and types of the columns, in their order.
    pub(crate) columns: Vec<(String, String)>,
    /// The statements that make the view again, with owner and rights.
    pub(crate) definition: String,
    pub(crate) grants: String,
    /// Whether it is a view that reads no table.
    pub(crate) reads_nothing: bool,
}

/// A function of the site.
#[derive(Clone, Debug, Default)]
pub(crate) struct Function {
    /// The statements that make it again, with owner and rights.
    pub(crate) definition: String,
    /// The statements that give its rights to `{function}`.
    pub(crate) rights: String,
}

/// An index of `metrics`.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    pub(crate) name: String,
    pub(crate) definition: String,
    pub(crate) is_unique: bool,
}

/// What a database has of Kwollect and of jobmeter.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The version of PostgreSQL, such as 150018.
    pub server: i32,
    /// The version of TimescaleDB.
    pub timescaledb: Option<String>,
    /// The version of the schema jobmeter.
    pub version: Option<i32>,
    /// How `metrics` is stored, if it exists.
    pub shape: Option<Shape>,
    /// That, or what the server offers, if a new database can use it.
    pub(crate) timescale: Option<TimescaleDb>,
    /// Whether chunks of the hypertable are compressed.
    pub(crate) is_compressed: bool,
    /// Whether plpython3u is trusted: its functions then run any program of the database server's user.
    pub trusts_plpython: bool,
    pub(crate) owner: String,
    pub(crate) relations: BTreeMap<String, Relation>,
    /// Signatures of the functions of the schema api.
    pub(crate) functions: BTreeMap<String, Function>,
    pub(crate) has_schema_api: bool,
    /// What jobmeter made outside of its schema.
    pub(crate) made: BTreeSet<String>,
    pub(crate) indexes: Vec<Index>,
    /// What reads the table `metrics` or returns its rows.
    pub(crate) dependents: Vec<String>,
    /// Views of the site that call functions of the schema api, and these functions.
    pub(crate) on_functions: Vec<(String, String)>,
    /// Triggers, policies and other parts of a plain table that its partitions alone would keep.
    pub(crate) on_metrics: Vec<String>,
    /// Whether a setup was interrupted.
    pub(crate) is_unfinished: bool,
    /// What it recorded: kind, name, and the statements that bring back what was there before.
    pub(crate) unfinished: Vec<Made>,
}

const BASICS: &str = "SELECT current_setting('server_version_num')::int, current_setting('server_encoding'), \
    (SELECT extversion FROM pg_extension WHERE extname = 'timescaledb'), \
    EXISTS (SELECT FROM pg_class WHERE oid = to_regclass('jobmeter.setup') AND relkind = 'r'), \
    to_regclass('jobmeter.state') IS NOT NULL, \
    coalesce((SELECT lanpltrusted FROM pg_language WHERE lanname = 'plpython3u'), false), to_regnamespace('api') IS NOT NULL, \
    coalesce((SELECT rolsuper FROM pg_namespace JOIN pg_roles AS r ON r.oid = nspowner WHERE nspname = 'jobmeter'), false)";
/// What an interrupted setup made outside of the schema jobmeter, if no role put something else in the place of the table.
const UNFINISHED: &str = "SELECT kind, name, restore FROM jobmeter.objects WHERE kind IN ('schema', 'rights', 'table') ORDER BY place";
const HAS_OBJECTS: &str = "SELECT EXISTS (SELECT FROM pg_class WHERE oid = to_regclass('jobmeter.objects') AND relkind = 'r')";
const RELATIONS: &str = "SELECT c.relname::text, c.relkind::text, \
    ARRAY(SELECT a.attname::text FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY attnum), \
    ARRAY(SELECT format_type(a.atttypid, a.atttypmod) FROM pg_attribute AS a \
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY attnum), \
    CASE WHEN c.relkind = 'v' THEN format('CREATE OR REPLACE VIEW %I.%I%s AS %s ALTER VIEW %1$I.%2$I OWNER TO %5$I;', n.nspname, c.relname, \
        ' WITH (' || array_to_string(c.reloptions, ', ') || ')', pg_get_viewdef(c.oid), pg_get_userbyid(c.relowner)) \
        || coalesce((SELECT string_agg(format(' COMMENT ON %s IS %L;', CASE objsubid WHEN 0 THEN format('VIEW %I.%I', n.nspname, c.relname) \
            ELSE format('COLUMN %I.%I.%I', n.nspname, c.relname, (SELECT attname FROM pg_attribute WHERE attrelid = c.oid AND attnum = objsubid)) \
            END, description), '') FROM pg_description WHERE classoid = 'pg_class'::regclass AND objoid = c.oid), '') ELSE '' END, \
    coalesce((SELECT string_agg(format('GRANT %s ON %I.%I TO %s;', privilege_type, n.nspname, c.relname, \
            CASE WHEN grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END), ' ') \
        FROM aclexplode(c.relacl) WHERE grantee <> c.relowner), ''), \
    c.relkind = 'v' AND NOT EXISTS (SELECT FROM pg_rewrite AS w JOIN pg_depend AS d ON d.classid = 'pg_rewrite'::regclass \
        AND d.objid = w.oid AND d.refclassid = 'pg_class'::regclass AND d.refobjid <> c.oid WHERE w.ev_class = c.oid), \
    pg_get_userbyid(c.relowner)::text \
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace \
    WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relname = ANY ($1)";
const FUNCTIONS: &str = "SELECT format('%I.%I(%s)', n.nspname, p.proname, \
        oidvectortypes(p.proargtypes)), \
    format(E'%s;\\nALTER FUNCTION %I.%I(%s) OWNER TO %I;', pg_get_functiondef(p.oid), n.nspname, p.proname, \
        pg_get_function_identity_arguments(p.oid), pg_get_userbyid(p.proowner)) \
        || coalesce(format(' COMMENT ON FUNCTION %I.%I(%s) IS %L;', n.nspname, p.proname, \
            pg_get_function_identity_arguments(p.oid), obj_description(p.oid, 'pg_proc')), ''), \
    CASE WHEN p.proacl IS NULL THEN '' ELSE 'REVOKE ALL ON FUNCTION {function} FROM PUBLIC;' || coalesce((SELECT string_agg( \
        format(' GRANT EXECUTE ON FUNCTION {function} TO %s;', CASE WHEN grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END), '') \
        FROM aclexplode(p.proacl) WHERE grantee <> p.proowner), '') END \
    FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace WHERE n.nspname = 'api' AND p.prokind = 'f'";
const INDEXES: &str = "SELECT c.relname::text, pg_get_indexdef(i.indexrelid), i.indisunique \
    FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid WHERE i.indrelid = to_regclass('public.metrics') ORDER BY 1";
/// Views that read the table, and functions that return or take its rows.
const DEPENDENTS: &str = "SELECT DISTINCT format('%s.%s', n.nspname, c.relname) FROM pg_depend AS d \
        JOIN pg_rewrite AS w ON w.oid = d.objid JOIN pg_class AS c ON c.oid = w.ev_class JOIN pg_namespace AS n ON n.oid = c.relnamespace \
    WHERE d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = to_regclass('public.metrics') \
        AND c.oid <> d.refobjid \
    UNION SELECT DISTINCT format('%I.%I(%s)', n.nspname, p.proname, \
        oidvectortypes(p.proargtypes)) \
    FROM pg_depend AS d JOIN pg_proc AS p ON p.oid = d.objid JOIN pg_namespace AS n ON n.oid = p.pronamespace \
    WHERE d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_type'::regclass \
        AND d.refobjid IN (SELECT t.oid FROM pg_type AS t WHERE t.typrelid = to_regclass('public.metrics') \
            UNION SELECT t.typarray FROM pg_type AS t WHERE t.typrelid = to_regclass('public.metrics')) ORDER BY 1";

/// Views that call functions of the schema api.
const ON_FUNCTIONS: &str = "SELECT DISTINCT format('%s.%s', n.nspname, c.relname), format('%I.%I(%s)', f.nspname, p.proname, \
        oidvectortypes(p.proargtypes)) \
    FROM pg_depend AS d JOIN pg_rewrite AS w ON w.oid = d.objid JOIN pg_class AS c ON c.oid = w.ev_class \
        JOIN pg_namespace AS n ON n.oid = c.relnamespace JOIN pg_proc AS p ON p.oid = d.refobjid JOIN pg_namespace AS f ON f.oid = p.pronamespace \
    WHERE d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_proc'::regclass AND f.nspname = 'api' ORDER BY 1";
/// What a table has beside columns, defaults and indexes.
const ON_METRICS: &str = "SELECT format('the trigger %s', tgname) FROM pg_trigger WHERE tgrelid = to_regclass('public.metrics') \
        AND NOT tgisinternal AND tgname NOT LIKE 'jobmeter\\_record\\_%' \
    UNION ALL SELECT format('the constraint %s', conname) FROM pg_constraint WHERE conrelid = to_regclass('public.metrics') \
        AND contype IN ('c', 'f', 'x') AND conname <> 'jobmeter_bound' \
    UNION ALL SELECT format('the policy %s', polname) FROM pg_policy WHERE polrelid = to_regclass('public.metrics') \
    UNION ALL SELECT 'the row security' FROM pg_class WHERE oid = to_regclass('public.metrics') AND relrowsecurity \
    UNION ALL SELECT format('the rule %s', rulename) FROM pg_rewrite WHERE ev_class = to_regclass('public.metrics') AND ev_type <> '1' \
    UNION ALL SELECT format('the publication %s', pubname) FROM pg_publication_rel JOIN pg_publication AS p ON p.oid = prpubid \
        WHERE prrelid = to_regclass('public.metrics') \
    UNION ALL SELECT format('the child %s', inhrelid::regclass) FROM pg_inherits WHERE inhparent = to_regclass('public.metrics')";

const IS_COMPRESSED: &str = "SELECT coalesce(bool_or(compression_enabled), false) FROM timescaledb_information.hypertables \
    WHERE hypertable_schema = 'public' AND hypertable_name = 'metrics'";

/// The relations that Kwollect and jobmeter have in the schema public.
const NAMES: [&str; 11] = [
    "catalogue",
    "gaps",
    "metrics",
    "promoted_metrics",
    "nodetime_by_job",
    "nodetime_per_job",
    "metrics_summary",
    "metrics_by_device",
    "metrics_by_device_summary",
    "metrics_by_job",
    "metrics_by_job_summary",
];

impl Found {
    /// Reads the catalogue of a database.
    ///
    /// # Errors
    /// The database does not answer, is too old, or has another encoding.
    pub async fn read(client: &Client) -> Result<Self, SetupError> {
        let row = client.query_one(BASICS, &[]).await?;
        let mut found =
            Self { server: row.try_get(0)?, timescaledb: row.try_get(2)?, ..Self::default() };
        if found.server < 130_000 {
            return Err(SetupError::Version(found.server_text()));
        }
        let encoding: String = row.try_get(1)?;
        if encoding != "UTF8" {
            return Err(SetupError::Encoding(encoding));
        }
        let (has_setup, has_state): (bool, bool) = (row.try_get(3)?, row.try_get(4)?);
        (found.trusts_plpython, found.has_schema_api) = (row.try_get(5)?, row.try_get(6)?);
        let row_is_super: bool = row.try_get(7)?;
        // The first servers with this store recorded no version.
        found.version = has_state.then_some(0);
        if has_setup {
            let row = client.query_opt("SELECT version FROM jobmeter.setup", &[]).await?;
            found.is_unfinished = row.is_none() && row_is_super;
            found.version = match row {
                Some(row) => Some(row.try_get(0)?),
                None => (!found.is_unfinished).then_some(0),
            };
        }
        if found.version.is_some_and(|version| version > 0) {
            for row in client
                .query("SELECT name FROM jobmeter.objects WHERE kind IN ('view', 'function')", &[])
                .await?
            {
                found.made.insert(row.try_get(0)?);
            }
        }
        if found.is_unfinished && client.query_one(HAS_OBJECTS, &[]).await?.try_get(0)? {
            for row in client.query(UNFINISHED, &[]).await? {
                found.unfinished.push((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
            }
        }
        found.read_relations(client).await?;
        for row in client.query(FUNCTIONS, &[]).await? {
            let signature: String = row.try_get(0)?;
            let rights: String = row.try_get(2)?;
            let definition: String = row.try_get(1)?;
            let definition = format!("{definition} {}", rights.replace("{function}", &signature));
            found.functions.insert(signature, Function { definition, rights });
        }
        for row in client.query(ON_FUNCTIONS, &[]).await? {
            found.on_functions.push((row.try_get(0)?, row.try_get(1)?));
        }
        found.shape = Shape::of(client, "public.metrics").await?;
        found.timescale = TimescaleDb::read(client).await?;
        if found.shape == Some(Shape::Hypertable) {
            found.is_compressed = client.query_one(IS_COMPRESSED, &[]).await?.try_get(0)?;
        }
        if found.shape == Some(Shape::Plain) {
            for row in client.query(ON_METRICS, &[]).await? {
                found.on_metrics.push(row.try_get(0)?);
            }
        }
        Ok(found)
    }

    /// What a database that does not exist yet will have: `server` is another one of its server.
    pub(crate) async fn of_new(server: &Client) -> Result<Self, SetupError> {
        let offered = TimescaleDb::read(server).await?;
        let timescale = offered.map(TimescaleDb::not_created);
        let text = "SELECT current_setting('server_version_num')::int";
        let version = server.query_one(text, &[]).await?.try_get(0)?;
        Ok(Self { server: version, timescale, ..Self::default() })
    }

    async fn read_relations(&mut self, client: &Client) -> Result<(), SetupError> {
        for row in client.query(RELATIONS, &[&NAMES.as_slice()]).await? {
            let (names, types): (Vec<String>, Vec<String>) = (row.try_get(2)?, row.try_get(3)?);
            let relation = Relation {
                kind: row.try_get(1)?,
                columns: names.into_iter().zip(types).collect(),
                definition: row.try_get(4)?,
                grants: row.try_get(5)?,
                reads_nothing: row.try_get(6)?,
            };
            let name: String = row.try_get(0)?;
            if name == "metrics" {
                self.owner = row.try_get(7)?;
            }
            self.relations.insert(name, relation);
        }
        for row in client.query(INDEXES, &[]).await? {
            let (name, definition, is_unique) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            self.indexes.push(Index { name, definition, is_unique });
        }
        for row in client.query(DEPENDENTS, &[]).await? {
            self.dependents.push(row.try_get(0)?);
        }
        Ok(())
    }

    /// The version of PostgreSQL as people write it.
    pub fn server_text(&self) -> String {
        format!("{}.{}", self.server / 10_000, self.server % 10_000)
    }

    pub(crate) fn relation(&self, name: &str) -> Option<&Relation> {
        self.relations.get(name)
    }

    pub(crate) fn is_made(&self, name: &str) -> bool {
        self.made.contains(name)
    }

    pub(crate) fn has_function(&self, signature: &str) -> bool {
        self.functions.contains_key(signature)
    }

    /// Whether the site has a relation of its own with this name, which says which node a job had. The empty view that Kwollect makes
    /// is none.
    pub(crate) fn is_of_site(&self, name: &str) -> bool {
        self.relation(name)
            .is_some_and(|one| !one.reads_nothing && !self.is_made(&format!("public.{name}")))
    }

    /// The step that creates the extension of a new hypertable.
    pub(crate) fn extension(&self) -> Option<Step> {
        self.new_hypertable().and_then(TimescaleDb::extension).map(Step::Alone)
    }

    /// TimescaleDB, if a new table `metrics` will be its hypertable.
    pub(crate) fn new_hypertable(&self) -> Option<TimescaleDb> {
        self.timescale.filter(|_| self.shape.is_none())
    }

    /// Whether a continuous aggregate has the summary, now or after the setup.
    pub(crate) fn has_aggregate(&self) -> bool {
        let is_found = self.shape == Some(Shape::Hypertable)
            && self.relation("metrics_summary").is_some()
            && !self.is_made("public.metrics_summary");
        is_found || self.new_hypertable().is_some_and(TimescaleDb::has_aggregate)
    }

    /// Whether the site itself has a view or table that says which node a job had.
    pub fn has_own_nodetime(&self) -> bool {
        self.is_of_site("nodetime_by_job") || self.is_of_site("nodetime_per_job")
    }
}
