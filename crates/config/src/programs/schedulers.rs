//! The schedulers that a server polls, and how.

use crate::programs::postgres::StoreSettings;
use crate::settings::load::{ConfigError, Values};
use crate::settings::setting::{Kind, Setting, settings};
use crate::settings::text::ServerUrl;
use model::ClusterId;
use std::path::PathBuf;
use std::time::Duration;

/// Limits of the poll period.
const PERIOD: Kind =
    Kind::Duration { min: Duration::from_millis(500), max: Duration::from_secs(3600) };
/// Limits of the call time.
const CALL: Kind = Kind::Duration { min: Duration::from_secs(1), max: Duration::from_secs(300) };
/// Limits of the look-back at startup.
const BACK: Kind =
    Kind::Duration { min: Duration::from_secs(60), max: Duration::from_secs(366 * 86_400) };

settings! {
    /// Whether and how the server polls OAR.
    OarSettings, OAR, "Scheduler OAR" {
        /// OAR's PostgreSQL database, read only: `host=… port=… user=… dbname=…` in libpq's syntax;
        /// `host` is a name, an address or the folder of a socket. With `sslmode=require` the connection is
        /// encrypted, and the certificate of the database is verified; otherwise it is not encrypted.
        "schedulers.oar.database" database: Option<String> = "" or "the database is not polled",
            Kind::Text("PARAMETERS");
        /// File with the password of the database or of the REST API in its first line.
        "schedulers.oar.password_file" password_file: Option<PathBuf> = "" or "no password",
            Kind::Text("FILE");
        /// OAR's REST API, if the database is unreachable: `https://frontend/oarapi`, or `http://…`, which is
        /// not encrypted.
        "schedulers.oar.rest" rest: Option<ServerUrl> = "" or "the REST API is not polled",
            Kind::Text("URL");
        /// The user of the REST API, for HTTP basic authentication.
        "schedulers.oar.rest_user" rest_user: Option<String> = "" or "no authentication",
            Kind::Text("NAME");
        /// File with the certificates of the authorities that may sign the certificate of the database or of
        /// the REST API, in PEM.
        "schedulers.oar.ca" ca: Option<PathBuf> = "" or "the system's", Kind::Text("FILE");
        /// The cluster name of its jobs; agents on OAR's nodes use `oar`.
        "schedulers.oar.cluster" cluster: String = "oar", Kind::Text("NAME");
        /// How often the server polls it for changes.
        "schedulers.oar.period" period: Duration = "2s", PERIOD;
        /// Longest time of a call.
        "schedulers.oar.call_time_max" call_time_max: Duration = "10s", CALL;
        /// At startup, the server reads jobs that ended within this time, and all jobs that are not over.
        "schedulers.oar.back" back: Duration = "7d", BACK;
    }
}

settings! {
    /// Whether and how the server polls Slurm.
    SlurmSettings, SLURM, "Scheduler Slurm" {
        /// slurmrestd: `unix:/run/slurmrestd.sock`, `https://host:port` behind a proxy with TLS, or
        /// `http://host:port`, which is not encrypted.
        "schedulers.slurm.rest" rest: Option<String> = "" or "slurmrestd is not polled",
            Kind::Text("PLACE");
        /// File with the certificates of the authorities that may sign slurmrestd's certificate, in PEM.
        "schedulers.slurm.ca" ca: Option<PathBuf> = "" or "the system's", Kind::Text("FILE");
        /// File with the token (JWT) for slurmrestd in its first line.
        "schedulers.slurm.token_file" token_file: Option<PathBuf> = "" or "no token",
            Kind::Text("FILE");
        /// The user of the token.
        "schedulers.slurm.user" user: Option<String> = "" or "the user in the token",
            Kind::Text("NAME");
        /// Whether to run the programs `squeue`, `sacct` and `scontrol`, if there is no slurmrestd.
        "schedulers.slurm.commands" commands: bool = "false", Kind::Switch;
        /// Folder of these programs.
        "schedulers.slurm.programs" programs: Option<PathBuf> = "" or "the usual folders of programs",
            Kind::Text("DIR");
        /// Slurm's own configuration, which these programs read.
        "schedulers.slurm.conf" conf: Option<PathBuf> = "" or "Slurm's default",
            Kind::Text("FILE");
        /// The cluster name of its jobs; agents on Slurm's nodes use `slurm`.
        "schedulers.slurm.cluster" cluster: String = "slurm", Kind::Text("NAME");
        /// How often the server polls it for changes.
        "schedulers.slurm.period" period: Duration = "2s", PERIOD;
        /// Longest time of a call, or of a program's run.
        "schedulers.slurm.call_time_max" call_time_max: Duration = "10s", CALL;
        /// At startup, the server reads jobs that ended within this time, and all jobs that are not over.
        "schedulers.slurm.back" back: Duration = "7d", BACK;
    }
}

settings! {
    /// Whether and how the server polls a site's own view of nodes and times.
    NodetimeSettings, NODETIME, "Scheduler by a view" {
        /// A view or table of jobs as Kwollect has it, read only: `nodetime_by_job`, or `schema.nodetime_by_job`, with the
        /// columns `job_id`, `start_time`, `stop_time` and `node`. It may read a foreign table. Its jobs have no user, so
        /// only administrators and staff see them.
        "schedulers.nodetime.view" view: Option<String> = "" or "no view is polled", Kind::Text("NAME");
        /// The database of the view: `host=… port=… user=… dbname=…`, as in `schedulers.oar.database`.
        "schedulers.nodetime.database" database: Option<String> =
            "" or "the database of `store = \"postgres\"`", Kind::Text("PARAMETERS");
        /// File with the password of this database in its first line.
        "schedulers.nodetime.password_file" password_file: Option<PathBuf> = "" or "no password",
            Kind::Text("FILE");
        /// File with the certificates of the authorities that may sign the certificate of this database, in PEM.
        "schedulers.nodetime.ca" ca: Option<PathBuf> = "" or "the system's", Kind::Text("FILE");
        /// The cluster name of its jobs. If agents on its nodes find the same jobs, it is the cluster that they use, such
        /// as `oar` or `slurm`.
        "schedulers.nodetime.cluster" cluster: String = "nodetime", Kind::Text("NAME");
        /// How often the server polls it for changes.
        "schedulers.nodetime.period" period: Duration = "10s", PERIOD;
        /// Longest time of a call.
        "schedulers.nodetime.call_time_max" call_time_max: Duration = "30s", CALL;
        /// At startup, the server reads jobs that ended within this time, and all jobs that are not over.
        "schedulers.nodetime.back" back: Duration = "7d", BACK;
    }
}

/// The schedulers that a server polls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulerSettings {
    /// OAR.
    pub oar: OarSettings,
    /// Slurm.
    pub slurm: SlurmSettings,
    /// A site's own view of nodes and times.
    pub nodetime: NodetimeSettings,
}

/// Their settings, in the order of the manual.
pub(crate) fn scheduler_settings() -> Vec<Setting> {
    [OAR, SLURM, NODETIME].concat()
}

impl SchedulerSettings {
    pub(crate) fn from_values(values: &Values, errors: &mut Vec<ConfigError>) -> Option<Self> {
        let oar = OarSettings::from_values(values, errors);
        let slurm = SlurmSettings::from_values(values, errors);
        let nodetime = NodetimeSettings::from_values(values, errors);
        let settings = Self { oar: oar?, slurm: slurm?, nodetime: nodetime? };
        settings.check_oar(values, errors);
        settings.check_slurm(values, errors);
        settings.check_nodetime(values, errors);
        let clusters = [
            ("schedulers.oar.cluster", &settings.oar.cluster),
            ("schedulers.slurm.cluster", &settings.slurm.cluster),
            ("schedulers.nodetime.cluster", &settings.nodetime.cluster),
        ];
        for (place, (key, cluster)) in clusters.into_iter().enumerate() {
            if let Err(error) = ClusterId::new(cluster) {
                errors.push(values.error(key, &error.to_string()));
            } else if cluster.eq_ignore_ascii_case(ClusterId::LOCAL) {
                let what = "`local` is reserved for jobs of `jobmeter run`";
                errors.push(values.error(key, what));
            }
            if clusters.iter().take(place).any(|(_, other)| *other == cluster) {
                let what = "two schedulers need different cluster names";
                errors.push(values.error(key, what));
            }
        }
        Some(settings)
    }

    /// Checks that a view without a database of its own has that of the store.
    pub(crate) fn check_store(
        &self,
        store: &StoreSettings,
        values: &Values,
        errors: &mut Vec<ConfigError>,
    ) {
        let NodetimeSettings { view, database, .. } = &self.nodetime;
        if view.is_some() && database.is_none() && store.database.is_none() {
            let what = "it needs `schedulers.nodetime.database`, or `store = \"postgres\"`";
            errors.push(values.error("schedulers.nodetime.view", what));
        }
    }

    fn check_oar(&self, values: &Values, errors: &mut Vec<ConfigError>) {
        let oar = &self.oar;
        let mut wrong = |key, what| errors.push(values.error(key, what));
        if oar.database.is_some() && oar.rest.is_some() {
            wrong("schedulers.oar.rest", "set either the database or the REST API");
        }
        if oar.database.as_ref().is_some_and(|text| text.contains("password")) {
            let what = "write the password to a file and set `schedulers.oar.password_file`, \
                        not here, where it is visible to everyone";
            wrong("schedulers.oar.database", what);
        }
        if oar.rest_user.is_some() && (oar.rest.is_none() || oar.password_file.is_none()) {
            let what = "it needs `schedulers.oar.rest` and `schedulers.oar.password_file`";
            wrong("schedulers.oar.rest_user", what);
        }
    }

    fn check_nodetime(&self, values: &Values, errors: &mut Vec<ConfigError>) {
        let NodetimeSettings { view, database, password_file, ca, .. } = &self.nodetime;
        let mut wrong = |key, what| errors.push(values.error(key, what));
        if database.as_ref().is_some_and(|text| text.contains("password")) {
            let what = "write the password to a file and set `schedulers.nodetime.password_file`, \
                        not here, where it is visible to everyone";
            wrong("schedulers.nodetime.database", what);
        }
        if database.is_some() && view.is_none() {
            wrong("schedulers.nodetime.database", "it needs `schedulers.nodetime.view`");
        }
        let needs_database = "it needs `schedulers.nodetime.database`";
        for (key, file) in
            [("schedulers.nodetime.password_file", password_file), ("schedulers.nodetime.ca", ca)]
        {
            if file.is_some() && database.is_none() {
                wrong(key, needs_database);
            }
        }
    }

    fn check_slurm(&self, values: &Values, errors: &mut Vec<ConfigError>) {
        let slurm = &self.slurm;
        let mut wrong = |key, what| errors.push(values.error(key, what));
        if slurm.rest.is_some() && slurm.commands {
            wrong("schedulers.slurm.commands", "set either slurmrestd or the programs");
        }
        if let Some(rest) = &slurm.rest
            && !rest.starts_with("unix:/")
            && ServerUrl::new(rest).is_err()
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
