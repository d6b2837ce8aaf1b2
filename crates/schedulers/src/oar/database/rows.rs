//! The SQL statements, and the conversion of their rows.

use super::super::job::OarJob;
use super::super::requested::{Requested, of_nodes};
use super::super::states::OVER;
use super::{Listed, ListedState, error_text};
use std::collections::HashMap;
use tokio_postgres::Row;

/// Most messages about unreadable rows.
const REJECTED_MAX: usize = 100;

/// Jobs that are not over with an ID above $1, at most $2; and jobs that are over with an ID of at least $3,
/// at most $4.
/// The job $3 itself is included in any state.
pub(super) const LIST: &str = "
    (SELECT job_id::bigint, state::text, start_time::bigint, coalesce(assigned_moldable_job, 0)::bigint,
            false
     FROM jobs
     WHERE state IN ('Waiting', 'Hold', 'toLaunch', 'toError', 'toAckReservation', 'Launching', 'Running',
                     'Suspended', 'Resuming', 'Finishing') AND job_id > $1
     ORDER BY job_id LIMIT $2)
    UNION ALL
    (SELECT job_id::bigint, state::text, start_time::bigint, coalesce(assigned_moldable_job, 0)::bigint,
            true
     FROM jobs WHERE job_id >= $3 ORDER BY job_id LIMIT $4)";

/// The greatest job ID.
pub(super) const NEWEST: &str = "SELECT coalesce(max(job_id), 0)::bigint FROM jobs";

/// Jobs with an ID above $1 up to $2 that ended at $3 or later, at most $4.
pub(super) const PAST: &str = "
    SELECT job_id::bigint FROM jobs
    WHERE job_id > $1 AND job_id <= $2 AND state IN ('Terminated', 'Error') AND stop_time >= $3
    ORDER BY job_id LIMIT $4";

/// The jobs $1. The request is the assigned moldable description, or the first one that the job offered.
pub(super) const DETAILS: &str = "
    SELECT j.job_id::bigint, j.state::text, j.job_user::text, j.project::text, j.job_name::text,
           j.queue_name::text, j.exit_code::bigint, j.submission_time::bigint, j.start_time::bigint,
           j.stop_time::bigint, coalesce(j.assigned_moldable_job, 0)::bigint, j.array_id::bigint,
           j.array_index::bigint,
           CASE WHEN j.array_id = 0 THEN false ELSE EXISTS (
               SELECT FROM jobs o WHERE o.array_id = j.array_id AND o.array_index <> j.array_index) END,
           m.moldable_id::bigint, m.moldable_walltime::bigint
    FROM jobs j LEFT JOIN LATERAL (
        SELECT moldable_id, moldable_walltime FROM moldable_job_descriptions d
        WHERE d.moldable_job_id = j.job_id
        ORDER BY (d.moldable_id = j.assigned_moldable_job) DESC, d.moldable_id LIMIT 1) m ON true
    WHERE j.job_id = ANY($1) ORDER BY j.job_id";

/// The types of the jobs $1, at most $2.
pub(super) const TYPES: &str = "
    SELECT job_id::bigint, type::text FROM job_types WHERE job_id = ANY($1)
    ORDER BY job_type_id LIMIT $2";

/// The requests of the moldable descriptions $1, at most $2 levels.
pub(super) const REQUESTED: &str = "
    SELECT g.res_group_moldable_id::bigint, g.res_group_id::bigint, g.res_group_property::text,
           d.res_job_resource_type::text, d.res_job_value::bigint
    FROM job_resource_groups g
         JOIN job_resource_descriptions d ON d.res_job_group_id = g.res_group_id
    WHERE g.res_group_moldable_id = ANY($1)
    ORDER BY g.res_group_moldable_id, g.res_group_id, d.res_job_order LIMIT $2";

/// The optional columns of resources: sites differ.
pub(super) const COLUMNS: &str = "
    SELECT column_name::text FROM information_schema.columns
    WHERE table_name = 'resources' AND table_schema = ANY (current_schemas(false))
          AND column_name IN ('core', 'gpudevice', 'gpu')";

/// Which optional columns this site has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Columns {
    core: bool,
    gpudevice: bool,
    gpu: bool,
}

impl Columns {
    pub(super) fn of(rows: &[Row]) -> Self {
        let mut columns = Self::default();
        for row in rows {
            match row.try_get(0) {
                Ok("core") => columns.core = true,
                Ok("gpudevice") => columns.gpudevice = true,
                Ok("gpu") => columns.gpu = true,
                _ => {}
            }
        }
        columns
    }
}

/// The nodes of the moldable descriptions $1, at most $2, with their assigned resources.
pub(super) fn resources_sql(columns: Columns) -> String {
    let list = |name: &str| format!("string_agg(DISTINCT r.{name}::text, ',')");
    let none = || "NULL::text".to_owned();
    let core = if columns.core { list("core") } else { none() };
    let gpu = match columns {
        Columns { gpudevice: true, .. } => list("gpudevice"),
        Columns { gpu: true, .. } => list("gpu"),
        _ => none(),
    };
    format!(
        "SELECT a.moldable_job_id::bigint, r.network_address::text, {}, {core}, {gpu}
         FROM assigned_resources a JOIN resources r ON r.resource_id = a.resource_id
         WHERE a.moldable_job_id = ANY($1) AND r.type = 'default' AND r.network_address <> ''
         GROUP BY a.moldable_job_id, r.network_address
         ORDER BY a.moldable_job_id, r.network_address LIMIT $2",
        list("cpuset")
    )
}

/// Jobs submitted since the previous round.
#[derive(Clone, Debug, Default)]
pub(super) struct NewJobs {
    /// IDs of jobs that are over already.
    pub(super) over: Vec<i64>,
    /// The greatest ID.
    pub(super) newest: i64,
    /// Whether the newest job of the previous round still exists.
    pub(super) has_newest: bool,
}

/// Adds the rows of a list. Returns the number of rows of jobs that are not over.
pub(super) fn list(
    rows: &[Row],
    since: i64,
    listed: &mut Listed,
    news: &mut NewJobs,
) -> Result<usize, String> {
    let mut open = 0;
    for row in rows {
        let get = |at: usize| row.try_get::<_, i64>(at).map_err(|error| error_text(&error));
        let (id, is_new) = (get(0)?, row.try_get(4).map_err(|error| error_text(&error))?);
        let state: &str = row.try_get(1).map_err(|error| error_text(&error))?;
        if is_new {
            news.newest = news.newest.max(id);
            news.has_newest |= id == since;
            if OVER.contains(&state) && id != since {
                news.over.push(id);
            }
            continue;
        }
        open += 1;
        let sign = ListedState { state: state.into(), start: get(2)?, moldable: get(3)? };
        listed.open.insert(id, sign);
    }
    Ok(open)
}

/// A job with the ID of its moldable description.
#[derive(Debug)]
pub(super) struct JobRow {
    pub(super) job: OarJob,
    pub(super) moldable: i64,
}

/// The jobs of the readable rows.
pub(super) fn jobs(rows: &[Row], rejected: &mut Vec<String>) -> Vec<JobRow> {
    let mut jobs = Vec::with_capacity(rows.len());
    for row in rows {
        match job(row) {
            Ok(job) => jobs.push(job),
            Err(error) => {
                let id = row.try_get::<_, i64>(0).unwrap_or_default();
                reject(rejected, format!("job {id}: {}", error_text(&error)));
            }
        }
    }
    jobs
}

fn job(row: &Row) -> Result<JobRow, tokio_postgres::Error> {
    let text = |at: usize| row.try_get::<_, Option<String>>(at).map(Option::unwrap_or_default);
    let number = |at: usize| row.try_get::<_, Option<i64>>(at).map(Option::unwrap_or_default);
    let job = OarJob {
        id: number(0)?,
        state: text(1)?,
        user: text(2)?,
        project: text(3)?,
        name: text(4)?,
        queue: text(5)?,
        exit_code: row.try_get(6)?,
        submission: number(7)?,
        start: number(8)?,
        stop: number(9)?,
        assigned: number(10)? > 0,
        array_id: number(11)?,
        array_index: row.try_get(12)?,
        in_array: row.try_get(13)?,
        walltime: number(15)?,
        ..OarJob::default()
    };
    Ok(JobRow { job, moldable: number(14)? })
}

/// The position of each job in a list, by an ID of it.
fn positions(jobs: &[JobRow], id: impl Fn(&JobRow) -> i64) -> HashMap<i64, usize> {
    jobs.iter().enumerate().map(|(position, job)| (id(job), position)).collect()
}

pub(super) fn add_types(rows: &[Row], jobs: &mut [JobRow], rejected: &mut Vec<String>) {
    let by_id = positions(jobs, |job| job.job.id);
    for row in rows {
        match (row.try_get(0), row.try_get::<_, &str>(1)) {
            (Ok(id), Ok(word)) => {
                if let Some(job) = by_id.get(&id).and_then(|position| jobs.get_mut(*position)) {
                    job.job.types.push(word.into());
                }
            }
            (Err(error), _) | (_, Err(error)) => {
                reject(rejected, format!("a type of a job: {}", error_text(&error)));
            }
        }
    }
}

pub(super) fn add_requested(rows: &[Row], jobs: &mut [JobRow], rejected: &mut Vec<String>) {
    let by_moldable = positions(jobs, |job| job.moldable);
    // Rows of a group are adjacent.
    let (mut group, mut levels) = ((0, 0), Vec::new());
    let mut close = |(moldable, _): (i64, i64), levels: &mut Vec<(&str, i64)>| {
        if let Some(job) = by_moldable.get(&moldable).and_then(|position| jobs.get_mut(*position)) {
            Requested::add(&mut job.job.requested, levels.drain(..));
        }
        levels.clear();
    };
    for row in rows {
        let read = || {
            let property: Option<&str> = row.try_get(2)?;
            let level: (&str, i64) = (row.try_get(3)?, row.try_get(4)?);
            Ok::<_, tokio_postgres::Error>(((row.try_get(0)?, row.try_get(1)?), property, level))
        };
        match read() {
            Ok((of, property, level)) => {
                if of != group {
                    close(group, &mut levels);
                    group = of;
                }
                if of_nodes(property.unwrap_or_default()) {
                    levels.push(level);
                }
            }
            Err(error) => reject(rejected, format!("request of a job: {}", error_text(&error))),
        }
    }
    close(group, &mut levels);
}

/// Adds nodes. If the row limit cut the rows, returns the first description with incomplete nodes.
/// If one description alone exceeds the limit, its rows are accepted as they are.
pub(super) fn add_nodes(
    rows: &[Row],
    jobs: &mut [JobRow],
    rows_max: usize,
    rejected: &mut Vec<String>,
) -> Option<i64> {
    let by_moldable = positions(jobs, |job| job.moldable);
    let moldable = |row: Option<&Row>| row.and_then(|row| row.try_get::<_, i64>(0).ok());
    let (first, last) = (moldable(rows.first()), moldable(rows.last()));
    let cut = last.filter(|_| rows.len() >= rows_max);
    if cut.is_some() && first == last {
        reject(rejected, format!("a job has more than {rows_max} nodes; the rest is skipped"));
    }
    for row in rows {
        let text = |at: usize| row.try_get::<_, Option<&str>>(at).map(Option::unwrap_or_default);
        let (Ok(id), Ok(address), Ok(cpusets), Ok(cores), Ok(gpus)) =
            (row.try_get::<_, i64>(0), text(1), text(2), text(3), text(4))
        else {
            reject(rejected, "a resource of a job cannot be read".to_owned());
            continue;
        };
        if let Some(job) = by_moldable.get(&id).and_then(|position| jobs.get_mut(*position))
            && job.job.assigned
            && !job.job.nodes.add(address, cpusets, cores, gpus)
        {
            let address: String = address.chars().take(100).collect();
            reject(rejected, format!("job {}: `{address}` is not a valid node name", job.job.id));
        }
    }
    cut.filter(|_| first != last)
}

/// Records an unreadable row, up to a limit.
pub(super) fn reject(rejected: &mut Vec<String>, what: String) {
    if rejected.len() < REJECTED_MAX {
        rejected.push(what);
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::states::OPEN;
    use super::*;

    #[test]
    fn the_list_statement_contains_every_open_state() {
        for word in OPEN {
            assert_eq!(LIST.matches(&format!("'{word}'")).count(), 1, "{word}");
        }
        for word in OVER {
            let quoted = format!("'{word}'");
            assert!(PAST.contains(&quoted) && !LIST.contains(&quoted), "{word}");
        }
    }

    #[test]
    fn the_statement_reads_only_existing_columns() {
        let none = resources_sql(Columns::default());
        assert!(!none.contains("r.core") && !none.contains("r.gpu"), "{none}");
        let all = resources_sql(Columns { core: true, gpudevice: true, gpu: true });
        assert!(all.contains("r.core::text") && all.contains("r.gpudevice::text"), "{all}");
        assert!(!all.contains("r.gpu::text"), "{all}");
    }
}
