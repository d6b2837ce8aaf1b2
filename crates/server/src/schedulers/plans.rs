//! The schedulers that the configuration names, ready to be polled.

use crate::schedulers::scheduler_poller::Plan;
use config::{OarSettings, SchedulerSettings, SlurmSettings, Token, TokenError};
use model::{ClusterId, NameError};
use schedulers::{
    OarDatabase, OarRest, ParametersError, RestAddress, Scheduler, Slurm, SlurmAccess,
    SlurmCommands, SlurmConfig, SlurmRest,
};
use std::path::Path;
use std::time::Duration;

/// Longest time of a poll round, as a multiple of the longest time of one call.
const CALLS_MAX: u32 = 8;
/// Largest response to one Slurm call, in bytes: enough for 70 000 running jobs.
const SLURM_ANSWER_BYTES_MAX: u64 = 256 << 20;

/// Why a configured scheduler cannot be polled at all.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The file with the scheduler's password is unreadable or not acceptable.
    #[error(transparent)]
    Secret(#[from] TokenError),
    /// The cluster name of the scheduler's jobs is invalid.
    #[error("`schedulers.{kind}.cluster`: {error}")]
    Cluster {
        /// The kind of scheduler: `oar` or `slurm`.
        kind: &'static str,
        /// The error in the name.
        error: NameError,
    },
    /// The connection parameters of OAR's database are invalid.
    #[error("`schedulers.oar.database`: {0}")]
    Database(#[from] ParametersError),
    /// The address of OAR's REST API is invalid.
    #[error("`schedulers.oar.rest`: write an address such as http://frontend/oarapi")]
    Rest,
}

impl PlanError {
    /// The setting that the error is about.
    fn key(&self, kind: &str) -> String {
        let name = match self {
            Self::Secret(_) => "password_file",
            Self::Cluster { .. } => "cluster",
            Self::Database(_) => "database",
            Self::Rest => "rest",
        };
        format!("schedulers.{kind}.{name}")
    }
}

/// Returns the configuration error of each scheduler, with the setting that it is about.
pub(crate) fn errors(settings: &SchedulerSettings) -> Vec<(String, PlanError)> {
    let all = [("oar", oar(&settings.oar).err()), ("slurm", slurm(&settings.slurm).err())];
    all.into_iter()
        .filter_map(|(kind, error)| error.map(|error| (error.key(kind), error)))
        .collect()
}

/// Returns a plan for each configured scheduler.
pub(crate) fn plans(settings: &SchedulerSettings) -> Result<Vec<Plan>, PlanError> {
    Ok([oar(&settings.oar)?, slurm(&settings.slurm)?].into_iter().flatten().collect())
}

fn oar(settings: &OarSettings) -> Result<Option<Plan>, PlanError> {
    let kind = "oar";
    let cluster = cluster(kind, &settings.cluster)?;
    let secret = secret(settings.password_file.as_deref())?;
    let secret = secret.as_ref().map(Token::secret);
    let call_time_max = settings.call_time_max;
    let (way, scheduler): (_, Box<dyn Scheduler>) = if let Some(parameters) = &settings.database {
        let database = OarDatabase::new(cluster, parameters, secret, call_time_max)?;
        ("database", Box::new(database))
    } else if let Some(url) = &settings.rest {
        let login = settings.rest_user.as_deref().zip(secret);
        let rest = OarRest::new(cluster, url.as_str(), login, call_time_max);
        ("rest", Box::new(rest.ok_or(PlanError::Rest)?))
    } else {
        return Ok(None);
    };
    let (period, back) = (settings.period, settings.back);
    Ok(Some(plan(scheduler, kind, way, (period, call_time_max, back))))
}

fn slurm(settings: &SlurmSettings) -> Result<Option<Plan>, PlanError> {
    let kind = "slurm";
    let cluster = cluster(kind, &settings.cluster)?;
    let SlurmSettings { token_file, user, programs, conf, call_time_max, period, back, .. } =
        settings.clone();
    let (way, access) = if let Some(rest) = &settings.rest {
        let address = match rest.strip_prefix("unix:") {
            Some(socket) => RestAddress::Unix(socket.into()),
            None => RestAddress::Tcp(tcp(rest)),
        };
        ("rest", SlurmAccess::Rest(SlurmRest { address, user, token_file }))
    } else if settings.commands {
        ("commands", SlurmAccess::Commands(SlurmCommands { folder: programs, conf }))
    } else {
        return Ok(None);
    };
    let scheduler = Slurm::new(SlurmConfig {
        cluster,
        access,
        time_max: call_time_max,
        answer_bytes_max: SLURM_ANSWER_BYTES_MAX,
    });
    Ok(Some(plan(Box::new(scheduler), kind, way, (period, call_time_max, back))))
}

/// Returns `host:port` of a validated URL; the default port is 80.
fn tcp(url: &str) -> String {
    let authority = url.trim_start_matches("http://").trim_end_matches('/');
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| {
        !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
    });
    if has_port { authority.to_owned() } else { format!("{authority}:80") }
}

/// Builds a plan; `times` are the period, the longest time of a call, and the look-back of the first poll.
fn plan(
    scheduler: Box<dyn Scheduler>,
    kind: &'static str,
    way: &'static str,
    (period, call_time_max, back): (Duration, Duration, Duration),
) -> Plan {
    let round_time_max = call_time_max.saturating_mul(CALLS_MAX);
    Plan { scheduler, kind, way, period, round_time_max, back }
}

fn cluster(kind: &'static str, name: &str) -> Result<ClusterId, PlanError> {
    ClusterId::new(name).map_err(|error| PlanError::Cluster { kind, error })
}

fn secret(file: Option<&Path>) -> Result<Option<Token>, PlanError> {
    Ok(file.map(Token::read).transpose()?)
}
