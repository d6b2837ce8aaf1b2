//! A plain table `metrics` becomes the first partition, in place: no row is copied.

use crate::error::SetupError;
use crate::found::Found;
use crate::objects::{DEFAULT_PARTITION, record};
use crate::run::Step;
use crate::sql::{literal, name};
use tokio_postgres::Client;

/// The table of before, while jobmeter uses the database.
pub(crate) const BEFORE: &str = "metrics_before_jobmeter";
/// The end of the names of its indexes.
const BEFORE_END: &str = "_before_jobmeter";
const BOUND: &str = "jobmeter_bound";
/// The indexes that queries need, by name, with what follows `ON table`.
const INDEXES: [(&str, &str, &str); 3] = [
    ("metrics_device_idx", "(device_id, \"timestamp\" DESC)", ""),
    ("metrics_timestamp_idx", "(\"timestamp\" DESC)", ""),
    (
        "metrics_alias_idx",
        "(((labels ->> '_device_alias'::text)), \"timestamp\" DESC)",
        " WHERE (labels ? '_device_alias'::text)",
    ),
];

/// Rows that no partition can have, and the bound of the first one: the first multiple of the interval that is at least
/// an interval ahead, and after all rows.
const ROWS: &str = "SELECT (SELECT count(*) FROM (SELECT FROM public.metrics WHERE timestamp IS NULL LIMIT 1000) AS n), \
    (SELECT count(*) FROM (SELECT FROM public.metrics WHERE timestamp > now() + interval '1 day' LIMIT 1000) AS n), \
    (('epoch'::timestamptz + (floor(extract(epoch FROM greatest(now(), coalesce((SELECT max(timestamp) FROM public.metrics \
        WHERE timestamp <= now() + interval '1 day'), now()))) / $1::double precision) + 2) * $1::double precision * interval '1 second') AT TIME ZONE 'UTC')::text";

/// The steps before the transaction that replaces the table, and its statements.
pub(crate) async fn attach(
    client: &Client,
    found: &Found,
    hours: u32,
) -> Result<(Vec<Step>, Vec<String>), SetupError> {
    let bound = first_bound(client, found, hours).await?;
    let mut first = vec![
        Step::Alone(drop_bound()),
        Step::Alone(format!(
            "ALTER TABLE public.metrics ADD CONSTRAINT {BOUND} CHECK (timestamp IS NOT NULL AND timestamp < {bound}) NOT VALID"
        )),
        Step::Alone(format!("ALTER TABLE public.metrics VALIDATE CONSTRAINT {BOUND}")),
    ];
    let mut last = vec![format!("ALTER TABLE public.metrics RENAME TO {BEFORE}")];
    // An interrupted setup leaves those that it built.
    let of_site = || found.indexes.iter().filter(|one| !one.name.ends_with(BEFORE_END));
    for index in of_site() {
        last.push(format!(
            "ALTER INDEX public.{} RENAME TO {}",
            name(&index.name),
            name(&before(&index.name))
        ));
    }
    last.push(format!(
        "CREATE TABLE public.metrics (LIKE public.{BEFORE} INCLUDING DEFAULTS) PARTITION BY RANGE (timestamp)"
    ));
    let grants = found.relation("metrics").map(|one| one.grants.clone()).unwrap_or_default();
    last.push(grants);
    for (bare, on, partial) in INDEXES {
        let is_same = |one: &&crate::found::Index| {
            one.definition.contains(&format!("{on}{partial}"))
                && one.definition.ends_with(if partial.is_empty() { on } else { partial })
        };
        if !of_site().any(|one| is_same(&one)) {
            // An interrupted build leaves an invalid index.
            let index = before(bare);
            first.push(Step::Alone(format!(
                "DROP INDEX CONCURRENTLY IF EXISTS public.{}",
                name(&index)
            )));
            first.push(Step::Alone(format!(
                "CREATE INDEX CONCURRENTLY {} ON public.metrics USING btree {on}{partial}",
                name(&index)
            )));
            // Its name once the table of before is `metrics` again.
            last.push(record("index", bare, None));
        }
        last.push(format!(
            "CREATE INDEX {} ON public.metrics USING btree {on}{partial}",
            name(bare)
        ));
    }
    last.push(format!("ALTER TABLE public.metrics ATTACH PARTITION public.{BEFORE} FOR VALUES FROM (MINVALUE) TO ({bound})"));
    last.push(format!("ALTER TABLE public.{BEFORE} DROP CONSTRAINT {BOUND}"));
    last.push(DEFAULT_PARTITION.to_owned());
    Ok((first, last))
}

/// The bound of the first partition, if all rows fit into it.
async fn first_bound(client: &Client, found: &Found, hours: u32) -> Result<String, SetupError> {
    let seconds = f64::from(hours) * 3600.0;
    let row = client.query_one(ROWS, &[&seconds]).await?;
    let (without, ahead, bound): (i64, i64, String) =
        (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let count = |rows: i64| if rows < 1000 { rows.to_string() } else { "1000 or more".to_owned() };
    if without > 0 {
        let text = format!(
            "{} rows of `metrics` have no timestamp; delete them: DELETE FROM metrics WHERE timestamp IS NULL",
            count(without)
        );
        return Err(SetupError::Rows(text));
    }
    if ahead > 0 {
        let text = format!(
            "{} rows of `metrics` are more than a day ahead of now; correct or delete them",
            count(ahead)
        );
        return Err(SetupError::Rows(text));
    }
    if let Some(unique) = found.indexes.iter().find(|index| index.is_unique) {
        return Err(SetupError::InTheWay(vec![format!(
            "the unique index {} of `metrics`",
            unique.name
        )]));
    }
    Ok(literal(&format!("{bound}+00")))
}

/// The statement that removes the bound of an adoption that did not end. It would reject rows of later times.
pub fn drop_bound() -> String {
    format!("ALTER TABLE IF EXISTS public.metrics DROP CONSTRAINT IF EXISTS {BOUND}")
}

/// The step that removes what an interrupted setup left: tables without rows, and perhaps a bound and indexes.
pub(crate) fn undo_unfinished(found: &Found) -> Option<Step> {
    let indexes = INDEXES
        .iter()
        .map(|(index, ..)| format!("DROP INDEX IF EXISTS public.{}", name(&before(index))));
    let undo = ["DROP SCHEMA jobmeter CASCADE".to_owned(), drop_bound()];
    found.is_unfinished.then(|| Step::Together(undo.into_iter().chain(indexes).collect()))
}

/// The name of an index of the table of before.
fn before(index: &str) -> String {
    format!("{index}{BEFORE_END}")
}

/// The statements that make the table of before `metrics` again, with the rows that were added since.
pub(crate) async fn detach(client: &Client) -> Result<Vec<String>, SetupError> {
    let mut all = vec![
        "LOCK TABLE public.metrics IN ACCESS EXCLUSIVE MODE".to_owned(),
        format!("ALTER TABLE public.metrics DETACH PARTITION public.{BEFORE}"),
        "ALTER TABLE public.metrics RENAME TO metrics_of_jobmeter".to_owned(),
    ];
    let text = "SELECT c.relname::text FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid \
                WHERE i.indrelid = to_regclass($1) ORDER BY 1";
    for row in client.query(text, &[&"public.metrics"]).await? {
        let index: String = row.try_get(0)?;
        all.push(format!(
            "ALTER INDEX public.{} RENAME TO {}",
            name(&index),
            name(&format!("{index}_of_jobmeter"))
        ));
    }
    all.push(format!("ALTER TABLE public.{BEFORE} RENAME TO metrics"));
    for row in client.query(text, &[&format!("public.{BEFORE}")]).await? {
        let index: String = row.try_get(0)?;
        if let Some(old) = index.strip_suffix(BEFORE_END) {
            all.push(format!("ALTER INDEX public.{} RENAME TO {}", name(&index), name(old)));
        }
    }
    all.push(
        "INSERT INTO public.metrics (timestamp, device_id, metric_id, value, labels) \
         SELECT timestamp, device_id, metric_id, value, labels FROM public.metrics_of_jobmeter ORDER BY timestamp"
            .to_owned(),
    );
    Ok(all)
}
