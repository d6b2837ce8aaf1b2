//! The few queries that jobmeter sends to a Slurm, over REST or through programs.

use super::answer::{self, Answer};
use super::commands::Failure;
use super::lines::{self, Marks, SACCT_FIELDS};
use super::parsed_job::ParseErrors;
use super::rest::{Paths, Reply};
use super::{SlurmAccess, SlurmCommands, SlurmRest, details, state};
use crate::SchedulerError;
use crate::http::CallLimits;
use jobs::NodeShare;
use model::{ClusterId, Timestamp};
use std::collections::HashMap;
use std::time::Duration;

/// The connection to a Slurm, and the capabilities that it showed.
#[derive(Debug)]
pub(super) struct SlurmClient {
    cluster: ClusterId,
    way: Way,
    limits: CallLimits,
    calls: u32,
}

#[derive(Debug)]
enum Way {
    Rest {
        rest: SlurmRest,
        paths: Option<Paths>,
        /// The controller's time of its last answer.
        last_update: Option<i64>,
    },
    Commands {
        commands: SlurmCommands,
        marks: Marks,
        /// Whether squeue and sacct support `--json`; assumed until they reject it.
        squeue_json: bool,
        sacct_json: bool,
    },
}

impl SlurmClient {
    pub(super) fn new(
        cluster: ClusterId,
        access: SlurmAccess,
        time_max: Duration,
        bytes_max: u64,
    ) -> Self {
        let way = match access {
            SlurmAccess::Rest(rest) => Way::Rest { rest, paths: None, last_update: None },
            SlurmAccess::Commands(commands) => Way::Commands {
                commands,
                marks: Marks::random(),
                squeue_json: true,
                sacct_json: true,
            },
        };
        Self { cluster, way, limits: CallLimits { time_max, bytes_max }, calls: 0 }
    }

    /// Returns and resets the number of calls.
    pub(super) const fn take_calls(&mut self) -> u32 {
        std::mem::replace(&mut self.calls, 0)
    }

    /// Whether the cores of jobs can be queried.
    pub(super) const fn has_details(&self) -> bool {
        matches!(self.way, Way::Commands { .. })
    }

    /// Stores the time of an accepted answer of the controller. The next query starts from it.
    pub(super) fn keep(&mut self, time: Option<i64>) {
        if let Way::Rest { last_update, .. } = &mut self.way {
            *last_update = time;
        }
    }

    /// All jobs that the controller knows.
    pub(super) async fn controller(
        &mut self,
        parse_errors: &mut ParseErrors,
    ) -> Result<Answer, SchedulerError> {
        let (target, bytes) = match &mut self.way {
            Way::Rest { rest, paths, last_update } => {
                let found = match paths {
                    Some(found) => found,
                    None => {
                        let (found, calls) = rest.paths(self.limits).await?;
                        self.calls = self.calls.wrapping_add(calls);
                        paths.insert(found)
                    }
                };
                let path = match last_update {
                    Some(time) => format!("{}?update_time={time}", found.jobs),
                    None => found.jobs.clone(),
                };
                self.calls = self.calls.wrapping_add(1);
                let target = rest.endpoint.target();
                match rest.get(&path, self.limits).await? {
                    Reply::Body(bytes) => (target, bytes.into()),
                    Reply::Unchanged => {
                        return Ok(Answer { is_unchanged: true, ..Answer::default() });
                    }
                    Reply::NoPath => {
                        // Slurm was upgraded or replaced: the next round finds its version.
                        *paths = None;
                        let what = format!("it has no path {path}");
                        return Err(SchedulerError::Rejected { target, what });
                    }
                }
            }
            Way::Commands { .. } => match self.squeue(parse_errors).await? {
                Output::Json(bytes) => ("squeue".to_owned(), bytes),
                Output::Read(answer) => return Ok(answer),
            },
        };
        answer::of_controller(&bytes, &self.cluster, parse_errors).map_err(|wrong| wrong.of(target))
    }

    /// The jobs that ended from `start` to `end`; `None` if Slurm has no accounting.
    pub(super) async fn accounting(
        &mut self,
        start: Timestamp,
        end: Timestamp,
        parse_errors: &mut ParseErrors,
    ) -> Result<Option<Answer>, SchedulerError> {
        // Rounds the interval outwards to whole seconds.
        let start = start.0.div_euclid(Timestamp::SECOND);
        let end = end.0.div_euclid(Timestamp::SECOND).saturating_add(1);
        let (target, bytes) = match &self.way {
            Way::Rest { rest, paths, .. } => {
                let Some(paths) = paths.as_ref().filter(|paths| !paths.accounting.is_empty())
                else {
                    return Ok(None);
                };
                let states = state::OVER.replace(',', "%2C");
                // `uts` with a number avoids time zones: slurmrestd would apply its own.
                let path = format!(
                    "{}?start_time=uts{start}&end_time=uts{end}&state={states}",
                    paths.accounting
                );
                self.calls = self.calls.wrapping_add(1);
                let target = rest.endpoint.target();
                match rest.get(&path, self.limits).await? {
                    Reply::Body(bytes) => (target, Vec::from(bytes)),
                    Reply::Unchanged | Reply::NoPath => return Ok(None),
                }
            }
            Way::Commands { .. } => match self.sacct(start, end, parse_errors).await? {
                Output::Json(bytes) => ("sacct".to_owned(), bytes),
                Output::Read(answer) => return Ok(Some(answer)),
            },
        };
        answer::of_accounting(&bytes, &self.cluster, parse_errors)
            .map(Some)
            .map_err(|wrong| wrong.of(target))
    }

    /// The cores of every running job.
    pub(super) async fn details(
        &mut self,
        parse_errors: &mut ParseErrors,
    ) -> Result<HashMap<i64, Vec<NodeShare>>, SchedulerError> {
        let Way::Commands { commands, .. } = &self.way else { return Ok(HashMap::new()) };
        let arguments = ["--details", "--oneliner", "show", "job"];
        self.calls = self.calls.wrapping_add(1);
        let run =
            commands.run("scontrol", &arguments, self.limits.time_max, self.limits.bytes_max).await;
        let bytes = run.map_err(Failure::into_error)?;
        Ok(details::read(&String::from_utf8_lossy(&bytes), parse_errors))
    }

    async fn squeue(&mut self, parse_errors: &mut ParseErrors) -> Result<Output, SchedulerError> {
        let Way::Commands { commands, marks, squeue_json, .. } = &mut self.way else {
            return Ok(Output::Read(Answer::default()));
        };
        if *squeue_json {
            self.calls = self.calls.wrapping_add(1);
            let arguments = ["--json", "--all", "--states=all"];
            match commands
                .run("squeue", &arguments, self.limits.time_max, self.limits.bytes_max)
                .await
            {
                Ok(bytes) => return Ok(Output::Json(bytes)),
                Err(Failure::Unknown(error)) => {
                    log::info!("{}: {error}; its text is read", self.cluster);
                    *squeue_json = false;
                }
                Err(Failure::Other(error)) => return Err(error),
            }
        }
        let format = format!("--format={}", marks.squeue_format());
        let arguments = ["--noheader", "--all", "--states=all", &format];
        self.calls = self.calls.wrapping_add(1);
        let run =
            commands.run("squeue", &arguments, self.limits.time_max, self.limits.bytes_max).await;
        let bytes = run.map_err(Failure::into_error)?;
        let text = String::from_utf8_lossy(&bytes);
        let jobs = lines::of_squeue(&text, marks, &self.cluster, parse_errors);
        Ok(Output::Read(Answer { jobs, ..Answer::default() }))
    }

    async fn sacct(
        &mut self,
        start: i64,
        end: i64,
        parse_errors: &mut ParseErrors,
    ) -> Result<Output, SchedulerError> {
        let Way::Commands { commands, marks, sacct_json, .. } = &mut self.way else {
            return Ok(Output::Read(Answer::default()));
        };
        let window = [format!("--starttime=uts{start}"), format!("--endtime=uts{end}")];
        let states = format!("--state={}", state::OVER);
        let selection = ["--allusers", "--duplicates", &window[0], &window[1], &states];
        if *sacct_json {
            self.calls = self.calls.wrapping_add(1);
            let arguments = [&["--json"], &selection[..]].concat();
            match commands
                .run("sacct", &arguments, self.limits.time_max, self.limits.bytes_max)
                .await
            {
                Ok(bytes) => return Ok(Output::Json(bytes)),
                Err(Failure::Unknown(error)) => {
                    log::info!("{}: {error}; its text is read", self.cluster);
                    *sacct_json = false;
                }
                Err(Failure::Other(error)) => return Err(error),
            }
        }
        let delimiter = format!("--delimiter={}", marks.delimiter());
        let format = format!("--format={SACCT_FIELDS}");
        let text = ["--parsable2", "--noheader", "--noconvert", &delimiter, &format];
        let arguments = [&text[..], &selection].concat();
        self.calls = self.calls.wrapping_add(1);
        let run =
            commands.run("sacct", &arguments, self.limits.time_max, self.limits.bytes_max).await;
        let bytes = run.map_err(Failure::into_error)?;
        let text = String::from_utf8_lossy(&bytes);
        let jobs = lines::of_sacct(&text, marks, &self.cluster, parse_errors);
        Ok(Output::Read(Answer { jobs, ..Answer::default() }))
    }
}

/// A program's output: JSON, or text already parsed.
enum Output {
    Json(Vec<u8>),
    Read(Answer),
}
