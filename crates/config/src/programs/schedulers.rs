//! Which schedulers a server asks for their jobs, and how.

use crate::settings::load::{ConfigError, Values};
use crate::settings::setting::{Kind, Setting, settings};
use crate::settings::text::ServerUrl;
use model::ClusterId;
use std::path::PathBuf;
use std::time::Duration;

/// How often a scheduler may be asked.
const PERIOD: Kind =
    Kind::Duration { min: Duration::from_millis(500), max: Duration::from_secs(3600) };
/// How long a call may take.
const CALL: Kind = Kind::Duration { min: Duration::from_secs(1), max: Duration::from_secs(300) };
/// How far back jobs may be asked for.
const BACK: Kind =
    Kind::Duration { min: Duration::from_secs(60), max: Duration::from_secs(366 * 86_400) };

settings! {
    /// Whether OAR is asked, and how.
    OarSettings, OAR, "Scheduler OAR" {
        /// OAR's PostgreSQL database, read only: `host=… port=… user=… dbname=…` as libpq spells it;
        /// `host` is a name, an address or the folder of a socket. The connection is not encrypted.
        "schedulers.oar.database" database: Option<String> = "" or "the database is not asked",
            Kind::Text("PARAMETERS");
        /// File whose first line is the password of the database or of the REST API.
        "schedulers.oar.password_file" password_file: Option<PathBuf> = "" or "no password",
            Kind::Text("FILE");
        /// OAR's REST API, where the database is out of reach: `http://frontend/oarapi`. Not encrypted.
        "schedulers.oar.rest" rest: Option<ServerUrl> = "" or "the REST API is not asked",
            Kind::Text("URL");
        /// The user of the REST API, by HTTP's basic authentication.
        "schedulers.oar.rest_user" rest_user: Option<String> = "" or "nobody",
            Kind::Text("NAME");
        /// The name that its jobs bear; agents on OAR's nodes say `oar`.
        "schedulers.oar.cluster" cluster: String = "oar", Kind::Text("NAME");
        /// How often it is asked what changed.
        "schedulers.oar.period" period: Duration = "2s", PERIOD;
        /// Longest time of a call.
        "schedulers.oar.call_time_max" call_time_max: Duration = "10s", CALL;
        /// At a start, jobs that ended so long ago are asked for; all that are not over are.
        "schedulers.oar.back" back: Duration = "7d", BACK;
    }
}

settings! {
    /// Whether Slurm is asked, and how.
    SlurmSettings, SLURM, "Scheduler Slurm" {
        /// slurmrestd: `unix:/run/slurmrestd.sock`, or `http://host:port`, which is not encrypted.
        "schedulers.slurm.rest" rest: Option<String> = "" or "slurmrestd is not asked",
            Kind::Text("PLACE");
        /// File whose first line is the token (JWT) for slurmrestd.
        "schedulers.slurm.token_file" token_file: Option<PathBuf> = "" or "no token",
            Kind::Text("FILE");
        /// The user that the token is for.
        "schedulers.slurm.user" user: Option<String> = "" or "the user that the token names",
            Kind::Text("NAME");
        /// Whether the programs `squeue`, `sacct` and `scontrol` are run, where there is no slurmrestd.
        "schedulers.slurm.commands" commands: bool = "false", Kind::Switch;
        /// Folder of these programs.
        "schedulers.slurm.programs" programs: Option<PathBuf> = "" or "where programs usually are",
            Kind::Text("DIR");
        /// Slurm's own configuration, which these programs read.
        "schedulers.slurm.conf" conf: Option<PathBuf> = "" or "where Slurm has it",
            Kind::Text("FILE");
        /// The name that its jobs bear; agents on Slurm's nodes say `slurm`.
        "schedulers.slurm.cluster" cluster: String = "slurm", Kind::Text("NAME");
        /// How often it is asked what changed.
        "schedulers.slurm.period" period: Duration = "2s", PERIOD;
        /// Longest time of a call, or of a program's run.
        "schedulers.slurm.call_time_max" call_time_max: Duration = "10s", CALL;
        /// At a start, jobs that ended so long ago are asked for; all that are not over are.
        "schedulers.slurm.back" back: Duration = "7d", BACK;
    }
}

/// The schedulers that a server asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulerSettings {
    /// OAR.
    pub oar: OarSettings,
    /// Slurm.
    pub slurm: SlurmSettings,
}

/// Their settings, in the order of the manual.
pub(crate) fn scheduler_settings() -> Vec<Setting> {
    [OAR, SLURM].concat()
}

impl SchedulerSettings {
    pub(crate) fn from_values(values: &Values, errors: &mut Vec<ConfigError>) -> Option<Self> {
        let oar = OarSettings::from_values(values, errors);
        let slurm = SlurmSettings::from_values(values, errors);
        let settings = Self { oar: oar?, slurm: slurm? };
        settings.check_oar(values, errors);
        settings.check_slurm(values, errors);
        for (key, cluster) in [
            ("schedulers.oar.cluster", &settings.oar.cluster),
            ("schedulers.slurm.cluster", &settings.slurm.cluster),
        ] {
            if let Err(error) = ClusterId::new(cluster) {
                errors.push(values.error(key, &error.to_string()));
            } else if cluster == ClusterId::LOCAL {
                let what = "`local` is the name of the jobs that `jobmeter run` starts";
                errors.push(values.error(key, what));
            }
        }
        if settings.oar.cluster == settings.slurm.cluster {
            let what = "two schedulers whose jobs bear one name cannot be told apart";
            errors.push(values.error("schedulers.slurm.cluster", what));
        }
        Some(settings)
    }

    fn check_oar(&self, values: &Values, errors: &mut Vec<ConfigError>) {
        let oar = &self.oar;
        let mut wrong = |key, what| errors.push(values.error(key, what));
        if oar.database.is_some() && oar.rest.is_some() {
            wrong("schedulers.oar.rest", "either the database is asked or the REST API");
        }
        if oar.database.as_ref().is_some_and(|text| text.contains("password")) {
            let what = "the password stands in a file that `schedulers.oar.password_file` names, \
                        not here where everyone sees it";
            wrong("schedulers.oar.database", what);
        }
        if oar.rest.as_ref().is_some_and(|url| !url.is_plain()) {
            let what = "TLS is not spoken to OAR's REST API; ask it by http:// through a proxy or \
                        tunnel of this machine";
            wrong("schedulers.oar.rest", what);
        }
        if oar.rest_user.is_some() && (oar.rest.is_none() || oar.password_file.is_none()) {
            let what = "it needs `schedulers.oar.rest` and `schedulers.oar.password_file`";
            wrong("schedulers.oar.rest_user", what);
        }
    }

    fn check_slurm(&self, values: &Values, errors: &mut Vec<ConfigError>) {
        let slurm = &self.slurm;
        let mut wrong = |key, what| errors.push(values.error(key, what));
        if slurm.rest.is_some() && slurm.commands {
            wrong("schedulers.slurm.commands", "either slurmrestd is asked or programs are run");
        }
        if let Some(rest) = &slurm.rest
            && !rest.starts_with("unix:/")
            && !ServerUrl::new(rest).is_ok_and(|url| url.is_plain())
        {
            let what = "`unix:` with the path of a socket, or an address such as \
                        http://controller:6820";
            wrong("schedulers.slurm.rest", what);
        }
        for (key, path) in
            [("schedulers.slurm.programs", &slurm.programs), ("schedulers.slurm.conf", &slurm.conf)]
        {
            if path.is_some() && !slurm.commands {
                wrong(key, "it needs `schedulers.slurm.commands`");
            }
        }
        if slurm.token_file.is_some() && slurm.rest.is_none() {
            wrong("schedulers.slurm.token_file", "it needs `schedulers.slurm.rest`");
        }
        if slurm.user.is_some() && slurm.token_file.is_none() {
            wrong("schedulers.slurm.user", "it needs `schedulers.slurm.token_file`");
        }
    }
}
