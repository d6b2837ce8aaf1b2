//! The rows of a job, and the records that follow from them.

use crate::oar::NodeShares;
use jobs::JobRecord;
use model::{ClusterId, JobId, JobKey, JobState, Timestamp};

/// A row, with times in seconds since 1970.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct JobRow {
    pub(super) start: Option<f64>,
    pub(super) stop: Option<f64>,
    pub(super) node: Option<String>,
}

/// One execution of a job: rows whose times overlap.
struct Execution {
    start: Timestamp,
    /// `None`: it is not over.
    stop: Option<Timestamp>,
    nodes: NodeShares,
}

/// The records of a job, one for each of its executions. `before` is the last record of the one that was not over.
///
/// A row begins a job that has not started if its start is missing, before 2000 or in the future: it is not a record yet.
/// The end of a job in the future is planned. Other unusable rows are reported in `rejected`.
pub(super) fn records(
    (cluster, id): (&ClusterId, i64),
    rows: Vec<JobRow>,
    (before, now): (Option<&JobRecord>, Timestamp),
    rejected: &mut Vec<String>,
) -> Vec<JobRecord> {
    let Some(number) = JobId::new(id) else { return Vec::new() };
    let key = JobKey { cluster: cluster.clone(), id: number };
    let mut executions: Vec<Execution> = Vec::new();
    let mut timed: Vec<_> = rows.iter().filter_map(|row| times(row, id, now, rejected)).collect();
    timed.sort_by_key(|(start, _, _)| *start);
    for (start, stop, node) in timed {
        let joins = |last: &&mut Execution| last.stop.is_none_or(|stop| start <= stop);
        let execution = match executions.last_mut().filter(joins) {
            Some(last) => {
                last.stop = last.stop.zip(stop).map(|(one, other)| one.max(other));
                last
            }
            None => {
                executions.push(Execution { start, stop, nodes: NodeShares::default() });
                match executions.last_mut() {
                    Some(last) => last,
                    None => continue,
                }
            }
        };
        if !execution.nodes.add(node, "", "", "") {
            let shown: String = node.chars().take(100).collect();
            rejected.push(format!("job {id}: `{shown}` is not a valid node name"));
        }
    }
    let record = |execution: Execution| {
        let Execution { start, stop, nodes } = execution;
        let state = if stop.is_some() { JobState::Ended } else { JobState::Running };
        // An earlier row of the same execution may appear later.
        let is_same = |before: &&JobRecord| {
            let began = before.start.unwrap_or(before.submit);
            start <= began && stop.is_none_or(|stop| began <= stop)
        };
        let submit = before.filter(is_same).map_or(start, |before| before.submit);
        JobRecord {
            display_id: id.to_string().into(),
            start: Some(start),
            stop,
            nodes: nodes.shares(),
            ..JobRecord::new(key.clone(), submit, state)
        }
    };
    executions.into_iter().map(record).collect()
}

/// Start, end and node of a row; `None`: the job has not started, or the row is unusable.
fn times<'a>(
    row: &'a JobRow,
    id: i64,
    now: Timestamp,
    rejected: &mut Vec<String>,
) -> Option<(Timestamp, Option<Timestamp>, &'a str)> {
    let start = row.start.and_then(instant).filter(|start| *start <= now)?;
    let stop = row.stop.and_then(instant).filter(|stop| *stop <= now);
    if row.stop.is_some_and(|stop| stop < start.seconds()) {
        rejected.push(format!("job {id}: a row ends before it starts"));
        return None;
    }
    let Some(node) = row.node.as_deref().filter(|node| !node.is_empty()) else {
        rejected.push(format!("job {id}: a row has no node"));
        return None;
    };
    Some((start, stop, node))
}

/// An instant from 2000 on that a time can have.
fn instant(seconds: f64) -> Option<Timestamp> {
    let year_3000 = 32_503_680_000.0;
    #[expect(clippy::cast_possible_truncation, reason = "bounded by this condition")]
    (Timestamp::YEAR_2000.seconds()..year_3000)
        .contains(&seconds)
        .then(|| Timestamp((seconds * 1e6).round() as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: f64 = 1_767_706_500.0;

    fn row(start: f64, stop: Option<f64>, node: &str) -> JobRow {
        let at = |seconds: f64| if seconds == 0.0 { 0.0 } else { T + seconds };
        JobRow { start: Some(at(start)), stop: stop.map(at), node: Some(node.to_owned()) }
    }

    fn read(rows: Vec<JobRow>, before: Option<&JobRecord>) -> (Vec<JobRecord>, Vec<String>) {
        let (cluster, mut rejected) = (ClusterId::new("site").unwrap(), Vec::new());
        let now = Timestamp::from_seconds(1_767_706_500 + 1000);
        let found = records((&cluster, 7), rows, (before, now), &mut rejected);
        (found, rejected)
    }

    /// State, seconds of submission, start and end, and nodes.
    fn shown(record: &JobRecord) -> String {
        let second = |at: Timestamp| at.0 / Timestamp::SECOND - 1_767_706_500;
        let nodes: Vec<&str> = record.nodes.iter().map(|share| share.device.as_str()).collect();
        let stop = record.stop.map_or("-".to_owned(), |stop| second(stop).to_string());
        let start = record.start.map_or(0, second);
        let (state, submit) = (record.state.word(), second(record.submit));
        format!("{state} {submit} {start} {stop} {}", nodes.join(","))
    }

    fn all(rows: Vec<JobRow>) -> Vec<String> {
        let (found, rejected) = read(rows, None);
        assert_eq!(rejected, [""; 0]);
        found.iter().map(shown).collect()
    }

    #[test]
    fn rows_of_one_execution_are_one_record() {
        let rows = vec![
            row(10.0, None, "n2.site.example"),
            row(5.0, Some(20.0), "n1"),
            row(10.0, None, "n2"),
        ];
        assert_eq!(all(rows), ["running 5 5 - n1,n2"]);
        let rows = vec![row(5.0, Some(20.0), "n1"), row(5.0, Some(30.0), "n2")];
        assert_eq!(all(rows), ["ended 5 5 30 n1,n2"]);
    }

    #[test]
    fn a_reused_id_has_several_records() {
        let rows = vec![row(100.0, None, "n1"), row(5.0, Some(20.0), "n1")];
        assert_eq!(all(rows), ["ended 5 5 20 n1", "running 100 100 - n1"]);
    }

    #[test]
    fn jobs_that_have_not_started_are_no_records_and_planned_ends_are_none() {
        let waiting = JobRow { start: None, ..row(1.0, None, "n1") };
        let planned = row(2000.0, Some(3000.0), "n1");
        assert_eq!(all(vec![row(0.0, None, "n1"), waiting, planned]), [""; 0]);
        assert_eq!(all(vec![row(5.0, Some(2000.0), "n1")]), ["running 5 5 - n1"]);
        let infinite = JobRow { stop: Some(f64::INFINITY), ..row(5.0, None, "n1") };
        assert_eq!(all(vec![infinite]), ["running 5 5 - n1"]);
    }

    #[test]
    fn unusable_rows_are_reported() {
        let without = JobRow { node: None, ..row(5.0, None, "") };
        let rows =
            vec![row(5.0, Some(-20.0), "n1"), without, row(5.0, None, "."), row(5.0, None, "n1")];
        let (found, rejected) = read(rows, None);
        assert_eq!(found.iter().map(shown).collect::<Vec<_>>(), ["running 5 5 - n1"]);
        let expected = [
            "job 7: a row ends before it starts",
            "job 7: a row has no node",
            "job 7: `.` is not a valid node name",
        ];
        assert_eq!(rejected, expected);
    }

    #[test]
    fn an_earlier_row_that_appears_later_makes_no_second_record() {
        let (first, _) = read(vec![row(10.0, None, "n1")], None);
        let rows = || vec![row(10.0, None, "n1"), row(5.0, None, "n2")];
        let (second, _) = read(rows(), first.first());
        assert_eq!(second.iter().map(shown).collect::<Vec<_>>(), ["running 10 5 - n1,n2"]);
        let reused = vec![row(5.0, Some(20.0), "n1"), row(100.0, None, "n1")];
        let (third, _) = read(reused, first.first());
        let expected = ["ended 10 5 20 n1", "running 100 100 - n1"];
        assert_eq!(third.iter().map(shown).collect::<Vec<_>>(), expected);
    }
}
