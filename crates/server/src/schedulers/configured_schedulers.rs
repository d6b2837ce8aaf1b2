//! The schedulers that the configuration names, ready to be polled.

use crate::schedulers::database_addresses::{
    DatabaseSettings, SettingError, authorities, database_address, secret, store_address,
};
use crate::schedulers::scheduler_poller::Plan;
use config::{
    NodetimeSettings, OarSettings, SchedulerSettings, SlurmSettings, StoreSettings, Token,
};
use model::ClusterId;
use schedulers::{
    Endpoint, Nodetime, OarDatabase, OarRest, Scheduler, Slurm, SlurmAccess, SlurmCommands,
    SlurmConfig, SlurmRest, Tls, ViewName,
};
use std::path::Path;
use std::time::Duration;

/// Longest time of a poll round, as a multiple of the longest time of one call.
const CALLS_MAX: u32 = 8;
/// Largest response to one Slurm call, in bytes: enough for 70 000 running jobs.
const SLURM_ANSWER_BYTES_MAX: u64 = 256 << 20;

/// Settings of the group of each kind of scheduler.
const OAR: &str = "schedulers.oar";
const SLURM: &str = "schedulers.slurm";
const NODETIME: &str = "schedulers.nodetime";

/// Returns the configuration error of each scheduler.
pub(crate) fn errors(settings: &SchedulerSettings, store: &StoreSettings) -> Vec<SettingError> {
    let all = [oar(&settings.oar), slurm(&settings.slurm), nodetime(&settings.nodetime, store)];
    all.into_iter().filter_map(Result::err).collect()
}

/// Returns a plan for each configured scheduler.
pub(crate) fn plans(
    settings: &SchedulerSettings,
    store: &StoreSettings,
) -> Result<Vec<Plan>, SettingError> {
    let all = [oar(&settings.oar)?, slurm(&settings.slurm)?, nodetime(&settings.nodetime, store)?];
    Ok(all.into_iter().flatten().collect())
}

fn oar(settings: &OarSettings) -> Result<Option<Plan>, SettingError> {
    let cluster = cluster(OAR, &settings.cluster)?;
    let (password_file, ca) = (settings.password_file.as_deref(), settings.ca.as_deref());
    let call_time_max = settings.call_time_max;
    let (way, scheduler): (_, Box<dyn Scheduler>) = if let Some(parameters) = &settings.database {
        let connect_time_max = call_time_max;
        let address = database_address(DatabaseSettings {
            group: OAR,
            parameters,
            password_file,
            ca,
            connect_time_max,
        })?;
        ("database", Box::new(OarDatabase::new(cluster, address, call_time_max)))
    } else if let Some(url) = &settings.rest {
        let secret = secret(OAR, password_file)?;
        let login = settings.rest_user.as_deref().zip(secret.as_ref().map(Token::secret));
        let tls = url_tls(OAR, url.as_str(), ca)?;
        let rest = OarRest::new(cluster, url.as_str(), tls, login, call_time_max);
        let what = "write an address such as http://frontend/oarapi";
        ("rest", Box::new(rest.ok_or_else(|| SettingError::new(OAR, "rest", what))?))
    } else {
        return Ok(None);
    };
    let (period, back) = (settings.period, settings.back);
    Ok(Some(plan(scheduler, "oar", way, (period, call_time_max, back))))
}

fn nodetime(
    settings: &NodetimeSettings,
    store: &StoreSettings,
) -> Result<Option<Plan>, SettingError> {
    let Some(view) = &settings.view else { return Ok(None) };
    let cluster = cluster(NODETIME, &settings.cluster)?;
    let view = ViewName::new(view).map_err(|error| SettingError::new(NODETIME, "view", error))?;
    let NodetimeSettings { period, call_time_max, back, .. } = *settings;
    let address = match &settings.database {
        Some(parameters) => database_address(DatabaseSettings {
            group: NODETIME,
            parameters,
            password_file: settings.password_file.as_deref(),
            ca: settings.ca.as_deref(),
            connect_time_max: call_time_max,
        })?,
        None => store_address(store)?,
    };
    let scheduler = Nodetime::new(cluster, address, view, call_time_max);
    Ok(Some(plan(Box::new(scheduler), "nodetime", "database", (period, call_time_max, back))))
}

fn slurm(settings: &SlurmSettings) -> Result<Option<Plan>, SettingError> {
    let cluster = cluster(SLURM, &settings.cluster)?;
    let SlurmSettings { ca, token_file, user, programs, conf, call_time_max, period, back, .. } =
        settings.clone();
    let (way, access) = if let Some(rest) = &settings.rest {
        let tls = url_tls(SLURM, rest, ca.as_deref())?;
        let what = "write an address such as https://controller:6820";
        let endpoint = Endpoint::new("slurmrestd", rest, tls)
            .ok_or_else(|| SettingError::new(SLURM, "rest", what))?;
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
    Ok(Some(plan(Box::new(scheduler), "slurm", way, (period, call_time_max, back))))
}

/// TLS for a URL that begins with `https://`.
fn url_tls(group: &'static str, url: &str, ca: Option<&Path>) -> Result<Option<Tls>, SettingError> {
    if url.starts_with("https://") { authorities(group, ca).map(Some) } else { Ok(None) }
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

fn cluster(group: &str, name: &str) -> Result<ClusterId, SettingError> {
    ClusterId::new(name).map_err(|error| SettingError::new(group, "cluster", error))
}
