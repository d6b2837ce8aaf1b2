//! The schedulers that the configuration names, ready to be asked.

use crate::rounds::Plan;
use config::SchedulerSettings;

/// Why a scheduler that the configuration names cannot be asked at all.
#[derive(Debug, thiserror::Error)]
#[error("`{key}`: {what}")]
pub struct PlanError {
    key: &'static str,
    what: String,
}

/// A plan for each scheduler that is configured.
pub(crate) fn plans(_settings: &SchedulerSettings) -> Result<Vec<Plan>, PlanError> {
    let plans: Vec<Option<Plan>> = vec![];
    Ok(plans.into_iter().flatten().collect())
}
