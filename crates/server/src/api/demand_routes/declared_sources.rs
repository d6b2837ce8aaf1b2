//! The sources that agents and pollers of this version have, and what a server may change of each.
//!
//! The server must not depend on the crate `sources`, which runs on nodes. A test of the command therefore
//! generates the table beside this file from the sources, and fails if the two differ.

use crate::common::http_error::HttpError;
use config::nearest;

const TABLE: &str = include_str!("declared_sources.tsv");

/// A source of the table.
pub(super) struct DeclaredSource {
    pub(super) name: &'static str,
    /// Only the node's own file may change a source that runs a program.
    runs_program: bool,
    may_burst: bool,
    /// Names of events; empty: the source has no option `events`.
    events: &'static str,
    /// Only pollers have it. Its only setting is the period.
    is_only_polled: bool,
}

fn all() -> impl Iterator<Item = DeclaredSource> {
    TABLE.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut cells = line.split('\t');
        let (name, kind) = (cells.next()?, cells.next()?);
        let (burst, events) = (cells.next()?, cells.next().unwrap_or_default());
        let (runs_program, may_burst) = (kind == "program", burst == "burst");
        Some(DeclaredSource { name, runs_program, may_burst, events, is_only_polled: false })
    })
}

/// The sources that only pollers have.
fn only_polled() -> impl Iterator<Item = DeclaredSource> {
    let names = config::POLLED_SOURCES.into_iter().filter(|name| config::is_only_polled(name));
    names.map(|name| DeclaredSource {
        name,
        runs_program: false,
        may_burst: false,
        events: "",
        is_only_polled: true,
    })
}

impl DeclaredSource {
    /// Finds a source whose settings a server may change.
    pub(super) fn changeable(name: &str) -> Result<Self, HttpError> {
        let source = Self::find(name)?;
        if source.runs_program {
            return Err(HttpError::malformed(format!(
                "the source `{name}` runs a program; only the node's own file may change it"
            )));
        }
        Ok(source)
    }

    /// Finds a source that may have a burst.
    pub(super) fn with_burst(name: &str) -> Result<Self, HttpError> {
        let source = Self::find(name)?;
        if !source.may_burst {
            return Err(HttpError::malformed(format!(
                "the source `{name}` cannot have a burst: it reports some things once only, or another program or \
                 computer reads it"
            )));
        }
        Ok(source)
    }

    fn find(name: &str) -> Result<Self, HttpError> {
        let known = || all().chain(only_polled());
        known().find(|source| source.name == name).ok_or_else(|| {
            let shown: String = name.chars().take(64).collect();
            let near = nearest(&shown, known().map(|source| source.name));
            let hint = near.map(|near| format!("did you mean `{near}`?"));
            let shown = model::printable(&shown);
            HttpError::malformed(format!(
                "there is no source `{shown}` in agents and pollers of this version"
            ))
            .hint(hint)
        })
    }

    /// Checks that the source may be switched on and off.
    pub(super) fn check_switch(&self) -> Result<(), HttpError> {
        if self.is_only_polled {
            let message = format!(
                "the source `{}` of pollers has the setting `period_seconds` only",
                self.name
            );
            return Err(HttpError::malformed(message));
        }
        Ok(())
    }

    /// Checks the names of events. A node checks events of its own PMUs, `PMU/TERMS/`.
    pub(super) fn check_events(&self, events: &[String]) -> Result<(), HttpError> {
        if self.events.is_empty() {
            let message = format!("the source `{}` has no setting `events`", self.name);
            return Err(HttpError::malformed(message));
        }
        let known = || self.events.split(',');
        let text = events.join(",");
        // Commas separate events, and terms between slashes.
        for event in text.split('/').step_by(2).flat_map(|part| part.split(',')) {
            let name = event.trim_matches(['{', '}']);
            let is_raw = name.strip_prefix('r').is_some_and(|digits| {
                !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
            });
            let is_pmu = text.contains(&format!("{name}/"));
            if name.is_empty() || is_raw || is_pmu || known().any(|known| known == name) {
                continue;
            }
            let hint = nearest(name, known()).map(|near| format!("did you mean `{near}`?"));
            let message = format!("there is no event `{name}`; write a name, rHEX or PMU/TERMS/");
            return Err(HttpError::malformed(message).hint(hint));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_known_with_what_a_server_may_change_of_it() {
        let message = |error: HttpError| (error.message, error.hint.unwrap_or_default());
        assert!(DeclaredSource::changeable("cpu").is_ok());
        assert!(DeclaredSource::changeable("agent").is_ok());
        assert!(DeclaredSource::with_burst("cpu").is_ok());
        let polled = DeclaredSource::changeable("snmp").unwrap();
        assert!(polled.check_switch().is_err() && DeclaredSource::with_burst("snmp").is_err());
        assert!(DeclaredSource::changeable("ipmi").unwrap().check_switch().is_ok());
        let (program, _) = message(DeclaredSource::changeable("exec").err().unwrap());
        assert!(program.contains("runs a program"), "{program}");
        let (burst, _) = message(DeclaredSource::with_burst("taskstats").err().unwrap());
        assert!(burst.contains("cannot have a burst"), "{burst}");
        let (_, hint) = message(DeclaredSource::changeable("cpuu").err().unwrap());
        assert_eq!(hint, "did you mean `cpu`?");
    }

    #[test]
    fn events_have_the_names_of_the_source() {
        let events = |source: &str, list: &[&str]| {
            let list: Vec<String> = list.iter().map(|&event| event.to_owned()).collect();
            let checked =
                DeclaredSource::changeable(source).and_then(|one| one.check_events(&list));
            checked
                .map_err(|error| format!("{}; {}", error.message, error.hint.unwrap_or_default()))
        };
        assert_eq!(events("perf", &["cache_ll", "r01c2", "cpu/event=0x3c", "umask=0x0/"]), Ok(()));
        assert_eq!(
            events("perf", &["{cpu_cycles", "instructions}", "uncore_imc/cas_count_read/"]),
            Ok(())
        );
        let wrong = events("perf", &["cpu_cycles", "cpu_cycle"]).unwrap_err();
        assert!(
            wrong.contains("`cpu_cycle`") && wrong.contains("did you mean `cpu_cycles`?"),
            "{wrong}"
        );
        let none = events("load", &["cpu_cycles"]).unwrap_err();
        assert!(none.contains("has no setting `events`"), "{none}");
    }
}
