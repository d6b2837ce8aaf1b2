//! Parameters of a session: those that clients set and read. Few of them change anything.

use pg_wire::backend::Report;
use sql::Zone;
use std::time::Duration;

/// Longest value of a parameter in bytes.
const VALUE_BYTES_MAX: usize = 1024;

/// Treatment of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// Cannot be changed.
    Fixed,
    /// May have any value, which changes nothing.
    Any,
    /// Must have a value that begins with this text.
    Only(&'static str),
    /// A time zone.
    Zone,
    /// An encoding.
    Encoding,
    /// A time limit.
    Time,
}

/// A parameter: name, default, treatment, and whether the server reports its changes.
type Spec = (&'static str, &'static str, Rule, bool);

const PARAMETERS: &[Spec] = &[
    ("server_version", "15.0", Rule::Fixed, true),
    ("server_version_num", "150000", Rule::Fixed, false),
    ("server_encoding", "UTF8", Rule::Fixed, true),
    ("client_encoding", "UTF8", Rule::Encoding, true),
    ("application_name", "", Rule::Any, true),
    ("DateStyle", "ISO, MDY", Rule::Only("iso"), true),
    ("IntervalStyle", "postgres", Rule::Only("postgres"), true),
    ("TimeZone", "UTC", Rule::Zone, true),
    ("integer_datetimes", "on", Rule::Fixed, true),
    ("standard_conforming_strings", "on", Rule::Only("on"), true),
    ("is_superuser", "off", Rule::Fixed, true),
    ("session_authorization", "", Rule::Fixed, true),
    ("default_transaction_read_only", "off", Rule::Any, true),
    ("in_hot_standby", "off", Rule::Fixed, true),
    ("statement_timeout", "0", Rule::Time, false),
    ("lock_timeout", "0", Rule::Any, false),
    ("idle_in_transaction_session_timeout", "0", Rule::Any, false),
    ("idle_session_timeout", "0", Rule::Any, false),
    ("extra_float_digits", "1", Rule::Any, false),
    ("search_path", "\"$user\", public", Rule::Any, false),
    ("bytea_output", "hex", Rule::Any, false),
    ("client_min_messages", "notice", Rule::Any, false),
    ("transaction_isolation", "read committed", Rule::Any, false),
    ("default_transaction_isolation", "read committed", Rule::Any, false),
    ("transaction_read_only", "off", Rule::Any, false),
    ("transaction_deferrable", "off", Rule::Any, false),
    ("max_identifier_length", "63", Rule::Fixed, false),
    ("lc_messages", "C.UTF-8", Rule::Any, false),
    ("lc_monetary", "C.UTF-8", Rule::Any, false),
    ("lc_numeric", "C.UTF-8", Rule::Any, false),
    ("lc_time", "C.UTF-8", Rule::Any, false),
    ("row_security", "on", Rule::Any, false),
    ("jit", "off", Rule::Any, false),
    ("work_mem", "4MB", Rule::Any, false),
    ("synchronous_commit", "on", Rule::Any, false),
    ("geqo", "on", Rule::Any, false),
];

/// The parameters of a session.
#[derive(Clone, Debug)]
pub(super) struct SessionSettings {
    values: Vec<String>,
    defaults: Vec<String>,
}

fn place(name: &str) -> Result<(usize, &'static Spec), Report> {
    let name = if name.eq_ignore_ascii_case("time zone") { "timezone" } else { name };
    let mut all = PARAMETERS.iter().enumerate();
    all.find(|(_, spec)| spec.0.eq_ignore_ascii_case(name)).ok_or_else(|| {
        let shown: String = name.chars().take(64).collect();
        Report::error("42704", format!("unrecognized configuration parameter \"{shown}\""))
    })
}

impl SessionSettings {
    /// The defaults for a user, in the server's time zone.
    pub(super) fn new(user: &str, zone: &str) -> Self {
        let default = |spec: &Spec| match spec.0 {
            "TimeZone" => zone.to_owned(),
            "session_authorization" => user.to_owned(),
            _ => spec.1.to_owned(),
        };
        let defaults: Vec<String> = PARAMETERS.iter().map(default).collect();
        Self { values: defaults.clone(), defaults }
    }

    /// Sets the values of the startup message, which become the defaults of the session.
    pub(super) fn begin(&mut self, parameters: &[(String, String)]) -> Result<(), Report> {
        for (name, value) in parameters {
            match &**name {
                "user" | "database" | "replication" => {}
                _ if name.starts_with("_pq_.") => {}
                "options" => {
                    let words = value.replace("-c ", "-c").replace("--", "-c");
                    for word in words.split_whitespace() {
                        let setting = word.strip_prefix("-c").and_then(|word| word.split_once('='));
                        let (name, value) = setting.ok_or_else(|| {
                            Report::error("42601", "`options` has the form -c NAME=VALUE")
                        })?;
                        self.set(name, Some(value))?;
                    }
                }
                _ => drop(self.set(name, Some(value))?),
            }
        }
        self.defaults.clone_from(&self.values);
        Ok(())
    }

    /// Sets a parameter, or resets it. Returns its name and value if clients receive changes of it.
    pub(super) fn set(
        &mut self,
        name: &str,
        value: Option<&str>,
    ) -> Result<Option<(&'static str, String)>, Report> {
        let (place, (name, _, rule, is_reported)) = place(name)?;
        let invalid = |value: &str| {
            let shown: String = value.chars().take(64).collect();
            Report::error("22023", format!("invalid value for parameter \"{name}\": \"{shown}\""))
        };
        let default = self.defaults.get(place).cloned().unwrap_or_default();
        let value = value.map_or(default, str::to_owned);
        let is_valid = match rule {
            _ if value.len() > VALUE_BYTES_MAX || value.contains('\0') => false,
            Rule::Fixed => {
                let what = format!("parameter \"{name}\" cannot be changed");
                return Err(Report::error("55P02", what));
            }
            Rule::Any => true,
            Rule::Only(begin) => value.to_lowercase().starts_with(begin),
            Rule::Zone => Zone::parse(&value).is_ok(),
            Rule::Encoding => {
                let known = ["utf8", "utf-8", "unicode", "sql_ascii"];
                known.contains(&&*value.to_lowercase().replace('\'', ""))
            }
            Rule::Time => time(&value).is_some(),
        };
        if !is_valid {
            return Err(invalid(&value));
        }
        // Clients compare the name that PostgreSQL reports.
        let value = if *rule == Rule::Encoding { "UTF8".to_owned() } else { value };
        if let Some(slot) = self.values.get_mut(place) {
            slot.clone_from(&value);
        }
        Ok(is_reported.then_some((*name, value)))
    }

    /// Sets all parameters to their defaults. Returns those that clients receive.
    pub(super) fn reset(&mut self) -> Vec<(&'static str, String)> {
        self.values.clone_from(&self.defaults);
        self.reported()
    }

    /// Parameters that clients receive, with their values.
    pub(super) fn reported(&self) -> Vec<(&'static str, String)> {
        let all = PARAMETERS.iter().zip(&self.values).filter(|(spec, _)| spec.3);
        all.map(|(spec, value)| (spec.0, value.clone())).collect()
    }

    /// Name and value of a parameter.
    pub(super) fn show(&self, name: &str) -> Result<(&'static str, &str), Report> {
        let (place, spec) = place(name)?;
        Ok((spec.0, self.values.get(place).map_or("", String::as_str)))
    }

    /// All parameters, with lower-case names.
    pub(super) fn all(&self) -> Vec<(String, String)> {
        let all = PARAMETERS.iter().zip(&self.values);
        all.map(|(spec, value)| (spec.0.to_lowercase(), value.clone())).collect()
    }

    /// The time zone of statements.
    pub(super) fn zone(&self) -> &str {
        self.show("timezone").map_or("UTC", |(_, zone)| zone)
    }

    /// Sets whether the transaction that begins only reads; `None`: as the session's default states.
    pub(super) fn begin_transaction(&mut self, is_read_only: Option<bool>) {
        let is_read_only =
            is_read_only.unwrap_or_else(|| self.is_on("default_transaction_read_only"));
        let value = if is_read_only { "on" } else { "off" };
        // The parameter exists, and takes any value.
        self.set("transaction_read_only", Some(value)).unwrap_or_default();
    }

    /// Whether a write is an error: in the transaction, or in a statement outside of one.
    pub(super) fn is_read_only(&self, in_transaction: bool) -> bool {
        let default = "default_transaction_read_only";
        self.is_on(if in_transaction { "transaction_read_only" } else { default })
    }

    fn is_on(&self, name: &str) -> bool {
        let value = self.show(name).map_or("", |(_, value)| value).to_lowercase();
        matches!(&*value, "on" | "true" | "yes" | "1" | "t" | "y")
    }

    /// The client's own time limit of a statement.
    pub(super) fn time_max(&self) -> Option<Duration> {
        let (_, value) = self.show("statement_timeout").ok()?;
        time(value).filter(|time| !time.is_zero())
    }
}

/// Reads a time such as `5s`; without a unit in milliseconds.
fn time(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text.get(..digits)?.parse().ok()?;
    let unit_ms = match text.get(digits..)?.trim() {
        "" | "ms" => 1,
        "s" => 1000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.checked_mul(unit_ms).map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_clients() {
        let mut settings = SessionSettings::new("alice", "Europe/Paris");
        let startup = [("user", "alice"), ("options", "-c statement_timeout=5s --datestyle=ISO")];
        let startup = startup.map(|(name, value)| (name.to_owned(), value.to_owned()));
        settings.begin(&startup).unwrap();
        assert_eq!(settings.time_max(), Some(Duration::from_secs(5)));
        assert_eq!(settings.zone(), "Europe/Paris");
        let code = |result: Result<Option<(&str, String)>, Report>| result.unwrap_err().code;
        assert_eq!(code(settings.set("datestyle", Some("German"))), "22023");
        assert_eq!(code(settings.set("timezone", Some("Mars/Base"))), "22023");
        assert_eq!(code(settings.set("client_encoding", Some("LATIN1"))), "22023");
        assert_eq!(code(settings.set("session_authorization", Some("root"))), "55P02");
        assert_eq!(code(settings.set("shared_buffers", Some("1"))), "42704");
        assert_eq!(settings.set("work_mem", Some("1GB")), Ok(None));
        let zone = settings.set("TIMEZONE", Some("UTC")).unwrap();
        assert_eq!(zone, Some(("TimeZone", "UTC".to_owned())));
        settings.reset();
        assert_eq!(settings.zone(), "Europe/Paris");
    }
}
