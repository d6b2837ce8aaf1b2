//! The few questions that a Slurm is asked, by either way.

use super::answer::{self, Answer};
use super::commands::Failure;
use super::lines::{self, Marks, SACCT_FIELDS};
use super::rest::{Paths, Reply};
use super::told::Refusals;
use super::{SlurmAccess, SlurmCommands, SlurmRest, details, state};
use crate::SchedulerError;
use jobs::NodeShare;
use model::{ClusterId, Timestamp};
use std::collections::HashMap;
use std::time::Duration;

/// The way to a Slurm, and what was found of it.
#[derive(Debug)]
pub(super) struct Ask {
    cluster: ClusterId,
    way: Way,
    time_max: Duration,
    bytes_max: u64,
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
        /// Whether squeue and sacct know `--json`; they are believed to until they say otherwise.
        squeue_json: bool,
        sacct_json: bool,
    },
}

impl Ask {
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
        Self { cluster, way, time_max, bytes_max, calls: 0 }
    }

    /// How many calls were made since this was last asked.
    pub(super) const fn take_calls(&mut self) -> u32 {
        std::mem::replace(&mut self.calls, 0)
    }

    /// Whether the cores of jobs can be asked for.
    pub(super) const fn has_details(&self) -> bool {
        matches!(self.way, Way::Commands { .. })
    }

    /// The controller's answer was taken; what comes next is asked for from its time on.
    pub(super) fn keep(&mut self, time: Option<i64>) {
        if let Way::Rest { last_update, .. } = &mut self.way {
            *last_update = time;
        }
    }

    /// Every job that the controller knows.
    pub(super) async fn controller(
        &mut self,
        refusals: &mut Refusals,
    ) -> Result<Answer, SchedulerError> {
        let (whom, bytes) = match &mut self.way {
            Way::Rest { rest, paths, last_update } => {
                let found = match paths {
                    Some(found) => found,
                    None => {
                        let (found, calls) = rest.paths(self.time_max, self.bytes_max).await?;
                        self.calls = self.calls.wrapping_add(calls);
                        paths.insert(found)
                    }
                };
                let path = match last_update {
                    Some(time) => format!("{}?update_time={time}", found.jobs),
                    None => found.jobs.clone(),
                };
                self.calls = self.calls.wrapping_add(1);
                let whom = rest.whom();
                match rest.get(&path, self.time_max, self.bytes_max).await? {
                    Reply::Body(bytes) => (whom, bytes.into()),
                    Reply::Unchanged => {
                        return Ok(Answer { is_unchanged: true, ..Answer::default() });
                    }
                    Reply::NoPath => {
                        // Another version runs now: the next round finds which.
                        *paths = None;
                        let what = format!("no path {path}");
                        return Err(SchedulerError::Refused { whom, what });
                    }
                }
            }
            Way::Commands { .. } => match self.squeue(refusals).await? {
                Output::Json(bytes) => ("squeue".to_owned(), bytes),
                Output::Read(answer) => return Ok(answer),
            },
        };
        answer::of_controller(&bytes, &self.cluster, refusals).map_err(|wrong| wrong.of(whom))
    }

    /// The jobs that ended from `start` to `end`; `None`: there is no accounting to ask.
    pub(super) async fn accounting(
        &mut self,
        start: Timestamp,
        end: Timestamp,
        refusals: &mut Refusals,
    ) -> Result<Option<Answer>, SchedulerError> {
        // Whole seconds, outwards.
        let start = start.0.div_euclid(Timestamp::SECOND);
        let end = end.0.div_euclid(Timestamp::SECOND).saturating_add(1);
        let (whom, bytes) = match &self.way {
            Way::Rest { rest, paths, .. } => {
                let Some(paths) = paths.as_ref().filter(|paths| !paths.accounting.is_empty())
                else {
                    return Ok(None);
                };
                let states = state::OVER.replace(',', "%2C");
                // `uts` and a number needs no zone, which is slurmrestd's own.
                let path = format!(
                    "{}?start_time=uts{start}&end_time=uts{end}&state={states}",
                    paths.accounting
                );
                self.calls = self.calls.wrapping_add(1);
                let whom = rest.whom();
                match rest.get(&path, self.time_max, self.bytes_max).await? {
                    Reply::Body(bytes) => (whom, Vec::from(bytes)),
                    Reply::Unchanged | Reply::NoPath => return Ok(None),
                }
            }
            Way::Commands { .. } => match self.sacct(start, end, refusals).await? {
                Output::Json(bytes) => ("sacct".to_owned(), bytes),
                Output::Read(answer) => return Ok(Some(answer)),
            },
        };
        answer::of_accounting(&bytes, &self.cluster, refusals)
            .map(Some)
            .map_err(|wrong| wrong.of(whom))
    }

    /// The cores of every job that runs.
    pub(super) async fn details(
        &mut self,
        refusals: &mut Refusals,
    ) -> Result<HashMap<i64, Vec<NodeShare>>, SchedulerError> {
        let Way::Commands { commands, .. } = &self.way else { return Ok(HashMap::new()) };
        let arguments = ["--details", "--oneliner", "show", "job"];
        self.calls = self.calls.wrapping_add(1);
        let run = commands.run("scontrol", &arguments, self.time_max, self.bytes_max).await;
        let bytes = run.map_err(Failure::into_error)?;
        Ok(details::read(&String::from_utf8_lossy(&bytes), refusals))
    }

    async fn squeue(&mut self, refusals: &mut Refusals) -> Result<Output, SchedulerError> {
        let Way::Commands { commands, marks, squeue_json, .. } = &mut self.way else {
            return Ok(Output::Read(Answer::default()));
        };
        if *squeue_json {
            self.calls = self.calls.wrapping_add(1);
            let arguments = ["--json", "--all", "--states=all"];
            match commands.run("squeue", &arguments, self.time_max, self.bytes_max).await {
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
        let run = commands.run("squeue", &arguments, self.time_max, self.bytes_max).await;
        let bytes = run.map_err(Failure::into_error)?;
        let text = String::from_utf8_lossy(&bytes);
        let jobs = lines::of_squeue(&text, marks, &self.cluster, refusals);
        Ok(Output::Read(Answer { jobs, ..Answer::default() }))
    }

    async fn sacct(
        &mut self,
        start: i64,
        end: i64,
        refusals: &mut Refusals,
    ) -> Result<Output, SchedulerError> {
        let Way::Commands { commands, marks, sacct_json, .. } = &mut self.way else {
            return Ok(Output::Read(Answer::default()));
        };
        let window = [format!("--starttime=uts{start}"), format!("--endtime=uts{end}")];
        let states = format!("--state={}", state::OVER);
        let asked = ["--allusers", "--duplicates", &window[0], &window[1], &states];
        if *sacct_json {
            self.calls = self.calls.wrapping_add(1);
            let arguments = [&["--json"], &asked[..]].concat();
            match commands.run("sacct", &arguments, self.time_max, self.bytes_max).await {
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
        let arguments = [&text[..], &asked].concat();
        self.calls = self.calls.wrapping_add(1);
        let run = commands.run("sacct", &arguments, self.time_max, self.bytes_max).await;
        let bytes = run.map_err(Failure::into_error)?;
        let text = String::from_utf8_lossy(&bytes);
        let jobs = lines::of_sacct(&text, marks, &self.cluster, refusals);
        Ok(Output::Read(Answer { jobs, ..Answer::default() }))
    }
}

/// What a program wrote, and where it is text, what that says.
enum Output {
    Json(Vec<u8>),
    Read(Answer),
}
