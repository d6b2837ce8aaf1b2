//! The envelope of a JSON answer: its errors, and the time for which it is valid.

use super::json::{List, Number, Object, Text};
use super::parsed_job::{ParseErrors, ParsedJob};
use super::{accounting, job};
use crate::SchedulerError;
use model::ClusterId;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// `SLURM_NO_CHANGE_IN_DATA` and `ESLURM_REST_EMPTY_RESULT` of `slurm_errno.h`.
const NO_CHANGE: i64 = 1900;
const EMPTY_RESULT: i64 = 9003;

/// The content of an answer.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) jobs: Vec<ParsedJob>,
    /// The controller's own time of the answer, in seconds since 1970, if present.
    pub(super) last_update: Option<i64>,
    /// Nothing changed since the time in the request.
    pub(super) is_unchanged: bool,
}

#[derive(Deserialize)]
#[serde(default, bound = "T: Deserialize<'de> + Default")]
struct Whole<T> {
    jobs: Option<Vec<Object<T>>>,
    errors: List<Fault>,
    warnings: List<Fault>,
    last_update: Number,
}

impl<T> Default for Whole<T> {
    fn default() -> Self {
        Self {
            jobs: None,
            errors: List::default(),
            warnings: List::default(),
            last_update: Number::default(),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Fault {
    description: Text,
    error_number: Number,
    error: Text,
}

impl Fault {
    fn matches(&self, number: i64, text: &str) -> bool {
        self.error_number.0 == Some(number)
            || [&self.error, &self.description].iter().any(|field| field.0.contains(text))
    }

    fn sentence(&self) -> String {
        let words = [&*self.error.0, &*self.description.0];
        let words: Vec<&str> = words.into_iter().filter(|words| !words.is_empty()).collect();
        let number = self.error_number.0.unwrap_or(0);
        format!("{} ({number})", words.join(": ")).chars().take(300).collect()
    }
}

/// Why an answer has no jobs.
#[derive(Debug, PartialEq)]
pub(super) enum AnswerError {
    /// Slurm reported an error: its message.
    Rejected(String),
    /// The format is unknown.
    Shape(String),
}

impl AnswerError {
    /// The error for this target.
    pub(super) fn of(self, target: String) -> SchedulerError {
        match self {
            Self::Rejected(what) => SchedulerError::Rejected { target, what },
            Self::Shape(what) => SchedulerError::Answer { target, what },
        }
    }
}

/// Reads the controller's answer.
///
/// # Errors
/// The format is unknown, or the answer only reports an error.
pub(super) fn of_controller(
    bytes: &[u8],
    cluster: &ClusterId,
    parse_errors: &mut ParseErrors,
) -> Result<Answer, AnswerError> {
    answer(bytes, parse_errors, |job: job::Job, parse_errors| job.parse(cluster, parse_errors))
}

/// Reads the accounting's answer.
///
/// # Errors
/// As [`of_controller`].
pub(super) fn of_accounting(
    bytes: &[u8],
    cluster: &ClusterId,
    parse_errors: &mut ParseErrors,
) -> Result<Answer, AnswerError> {
    answer(bytes, parse_errors, |job: accounting::Job, parse_errors| {
        job.parse(cluster, parse_errors)
    })
}

fn answer<T: DeserializeOwned + Default>(
    bytes: &[u8],
    parse_errors: &mut ParseErrors,
    parse: impl Fn(T, &mut ParseErrors) -> Option<ParsedJob>,
) -> Result<Answer, AnswerError> {
    let whole: Whole<T> =
        serde_json::from_slice(bytes).map_err(|error| AnswerError::Shape(error.to_string()))?;
    let faults = || whole.errors.0.iter().chain(&whole.warnings.0);
    let is_unchanged = faults().any(|fault| fault.matches(NO_CHANGE, "No change in data"));
    let is_empty = faults().any(|fault| fault.matches(EMPTY_RESULT, "Nothing found"));
    let last_update = whole.last_update.positive();
    let mut answer = Answer { jobs: Vec::new(), last_update, is_unchanged };
    if is_unchanged || is_empty {
        return Ok(answer);
    }
    let fault = whole.errors.0.first().map(Fault::sentence);
    let jobs = match (whole.jobs, fault) {
        (Some(jobs), None) => jobs,
        (Some(jobs), Some(fault)) if !jobs.is_empty() => {
            parse_errors.add(fault);
            jobs
        }
        (_, Some(fault)) => return Err(AnswerError::Rejected(fault)),
        (None, None) => return Err(AnswerError::Shape("it has no `jobs`".to_owned())),
    };
    answer.jobs = jobs.into_iter().filter_map(|job| parse(job.0, parse_errors)).collect();
    Ok(answer)
}
