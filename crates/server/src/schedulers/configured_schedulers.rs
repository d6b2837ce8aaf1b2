//! The schedulers that the configuration names, ready to be polled.

use crate::schedulers::scheduler_poller::Plan;
use config::{OarSettings, SchedulerSettings, SlurmSettings, Token, TokenError};
use model::{ClusterId, NameError};
use schedulers::{
    Endpoint, OarDatabase, OarRest, ParametersError, Scheduler, Slurm, SlurmAccess, SlurmCommands,
    SlurmConfig, SlurmRest, Tls, TlsError,
};
use std::path::{Path, PathBuf};
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
    /// The address of slurmrestd is invalid.
    #[error("`schedulers.slurm.rest`: write an address such as https://controller:6820")]
    Slurmrestd,
    /// No file with the certificates of authorities is known.
    #[error("{0}")]
    NoAuthorities(String),
    /// The file with the certificates of authorities is unreadable.
    #[error("cannot read {}: {error}", path.display())]
    AuthoritiesFile {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// The file with the certificates of authorities is invalid.
    #[error("{}: {error}", path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
        /// Its error.
        error: TlsError,
    },
}

impl PlanError {
    /// The setting that the error is about.
    fn key(&self, kind: &str) -> String {
        let name = match self {
            Self::Secret(_) => "password_file",
            Self::Cluster { .. } => "cluster",
            Self::Database(_) => "database",
            Self::Rest | Self::Slurmrestd => "rest",
            Self::NoAuthorities(_) | Self::AuthoritiesFile { .. } | Self::Authorities { .. } => {
                "ca"
            }
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
        let open = |tls| OarDatabase::new(cluster.clone(), parameters, tls, secret, call_time_max);
        // Only a database that requires TLS needs the authorities, which may be absent on this machine.
        let database = match open(None) {
            Err(ParametersError::NoAuthorities) => open(Some(authorities(settings.ca.as_deref())?)),
            opened => opened,
        }?;
        ("database", Box::new(database))
    } else if let Some(url) = &settings.rest {
        let login = settings.rest_user.as_deref().zip(secret);
        let tls = url_tls(url.as_str(), settings.ca.as_deref())?;
        let rest = OarRest::new(cluster, url.as_str(), tls, login, call_time_max);
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
    let SlurmSettings { ca, token_file, user, programs, conf, call_time_max, period, back, .. } =
        settings.clone();
    let (way, access) = if let Some(rest) = &settings.rest {
        let tls = url_tls(rest, ca.as_deref())?;
        let endpoint = Endpoint::new("slurmrestd", rest, tls).ok_or(PlanError::Slurmrestd)?;
        ("rest", SlurmAccess::Rest(SlurmRest { endpoint, user, token_file }))
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

/// TLS for a URL that begins with `https://`.
fn url_tls(url: &str, ca: Option<&Path>) -> Result<Option<Tls>, PlanError> {
    if url.starts_with("https://") { authorities(ca).map(Some) } else { Ok(None) }
}

/// Reads the certificates of authorities.
pub(crate) fn authorities(ca: Option<&Path>) -> Result<Tls, PlanError> {
    let path = config::paths::authorities(ca).map_err(PlanError::NoAuthorities)?;
    match config::read_small(&path, config::CERTIFICATES_BYTES_MAX) {
        Ok(pem) => Tls::new(&pem).map_err(|error| PlanError::Authorities { path, error }),
        Err(error) => Err(PlanError::AuthoritiesFile { path, error }),
    }
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
