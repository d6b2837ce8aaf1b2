//! Environment variables with jobmeter's prefix that are not settings. Without this check, mistyped ones
//! would be ignored silently.

use crate::settings::load::{ConfigError, ConfigErrors, ValueOrigin};
use crate::settings::setting::Setting;
use crate::{agent_settings, client_settings, poller_settings, server_settings};
use model::nearest;
use std::collections::BTreeSet;
use std::ffi::OsString;

const PREFIX: &str = "JOBMETER_";
/// Prefix of a source's settings, which only the agent knows.
const OF_SOURCES: &str = "SOURCES_";
/// Known variables that are not settings: the files of programs, the requests of jobs, and the programs that
/// tests and benches run.
const OTHERS: [&str; 9] = [
    "AGENT_FILE",
    "POLLER_FILE",
    "SERVER_FILE",
    "CLIENT_FILE",
    "MONITOR",
    "PROGRAM",
    "AGENT_PROGRAM",
    "SERVER_PROGRAM",
    "BENCH_SHORT",
];
/// Most variables that messages list by name.
const NAMED_MAX: usize = 16;

/// Variables with the prefix that are unknown to every program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnknownVariables {
    /// Close to one of the program's own settings: surely mistyped.
    pub mistyped: Vec<ConfigError>,
    /// The other ones, one message each. They are ignored: other software may set them, as Kubernetes does
    /// for each of its services.
    pub ignored: Vec<String>,
}

/// Searches the names of the environment, for the program with these settings.
pub fn unknown_variables(
    own: &[Setting],
    names: impl IntoIterator<Item = OsString>,
) -> UnknownVariables {
    let others = [agent_settings(&[]), poller_settings(), server_settings(), client_settings()];
    let all = [own.to_vec(), others.concat()].concat();
    let all: Vec<String> = all.iter().map(Setting::variable).collect();
    let knows_sources = own.iter().any(|setting| setting.key.starts_with("sources."));
    let is_known = |name: &str, rest: &str| {
        all.iter().any(|known| known == name)
            || OTHERS.contains(&rest)
            || (!knows_sources && rest.starts_with(OF_SOURCES))
    };
    let names = names.into_iter().filter_map(|name| name.into_string().ok());
    let names: BTreeSet<String> = names.collect();
    let mut unknown = UnknownVariables::default();
    let mut more = 0_usize;
    for name in names {
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        if is_known(&name, rest) {
            continue;
        }
        let known = all.iter().filter_map(|known| known.strip_prefix(PREFIX));
        let meant = nearest(rest, known).map(|near| format!("{PREFIX}{near}"));
        let is_own = |near: &String| {
            own.iter().any(|setting| setting.variable() == *near && !setting.in_file_only)
        };
        let hint =
            meant.as_ref().map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        let what = format!("no setting has this name{hint}");
        let error = ConfigError { place: ValueOrigin::Environment(name), what };
        if meant.as_ref().is_some_and(is_own) {
            unknown.mistyped.push(error);
        } else if unknown.ignored.len() < NAMED_MAX {
            unknown.ignored.push(format!("{error} (ignored)"));
        } else {
            more += 1;
        }
    }
    if more > 0 {
        unknown
            .ignored
            .push(format!("environment: {more} more variables that no setting has (ignored)"));
    }
    unknown
}

impl UnknownVariables {
    /// The configuration, if no variable is mistyped; else all errors.
    ///
    /// # Errors
    /// Those of the configuration, and the mistyped variables.
    pub fn beside<T>(&self, loaded: Result<T, ConfigErrors>) -> Result<T, ConfigErrors> {
        match loaded {
            loaded if self.mistyped.is_empty() => loaded,
            Ok(_) => Err(ConfigErrors(self.mistyped.clone())),
            Err(ConfigErrors(errors)) => {
                Err(ConfigErrors([errors, self.mistyped.clone()].concat()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SourceSettings;

    fn unknown(own: &[Setting], names: &[&str]) -> (String, Vec<String>) {
        let found = unknown_variables(own, names.iter().map(OsString::from));
        let loaded = found.beside(Ok(()));
        (loaded.map_or_else(|errors| errors.to_string(), |()| String::new()), found.ignored)
    }

    fn of_agent() -> Vec<Setting> {
        let load = SourceSettings { name: "load", help: "", period: None, options: &[] };
        agent_settings(&[load])
    }

    #[test]
    fn a_mistyped_variable_is_an_error_of_the_program_with_the_nearest_setting() {
        let names = ["JOBMETER_PERID", "JOBMETER_SOURCES_LOAD_ENABLD", "JOBMETER_PERIOD", "PATH"];
        let (wrong, ignored) = unknown(&of_agent(), &names);
        assert_eq!(
            wrong,
            "environment JOBMETER_PERID: no setting has this name; did you mean `JOBMETER_PERIOD`?\n\
             environment JOBMETER_SOURCES_LOAD_ENABLD: no setting has this name; did you mean \
             `JOBMETER_SOURCES_LOAD_ENABLED`?"
        );
        assert_eq!(ignored, [""; 0]);
        // Other programs ignore it and run.
        let (wrong, ignored) = unknown(&client_settings(), &names);
        assert_eq!(wrong, "");
        assert_eq!(
            ignored,
            [
                "environment JOBMETER_PERID: no setting has this name; did you mean `JOBMETER_PERIOD`? (ignored)"
            ]
        );
    }

    #[test]
    fn foreign_variables_are_reported_and_own_ones_known() {
        let made = ["JOBMETER_PORT", "JOBMETER_PORT_8790_TCP", "JOBMETER_SERVICE_HOST"];
        let ours = [
            "JOBMETER_LISTEN",
            "JOBMETER_AGENT_FILE",
            "JOBMETER_AGENT_PROGRAM",
            "JOBMETER_MONITOR",
        ];
        for own in [of_agent(), server_settings(), client_settings()] {
            let (wrong, ignored) = unknown(&own, &[&made[..], &ours].concat());
            assert_eq!((&*wrong, ignored.len()), ("", 3), "{ignored:?}");
            assert!(ignored.iter().all(|line| line.ends_with("(ignored)")), "{ignored:?}");
        }
    }

    #[test]
    fn messages_name_a_limited_number() {
        let names: Vec<String> = (0..100).map(|n| format!("JOBMETER_{n}_OF_ANOTHER")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (_, ignored) = unknown(&of_agent(), &names);
        assert_eq!(ignored.len(), NAMED_MAX + 1);
        assert!(ignored.last().unwrap().contains("84 more"), "{ignored:?}");
    }

    #[test]
    fn all_errors_are_reported_at_once() {
        let found = unknown_variables(&of_agent(), [OsString::from("JOBMETER_PERID")]);
        let wrong = ConfigError { place: ValueOrigin::Default, what: "another".to_owned() };
        let all = found.beside::<()>(Err(ConfigErrors(vec![wrong]))).unwrap_err();
        assert_eq!(all.0.len(), 2);
    }
}
