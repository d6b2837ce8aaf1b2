//! Parameters of a session: those that clients set and read. Few of them change anything.

use pg_wire::backend::Report;
use pg_wire::transaction::ISOLATIONS;
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
    /// A Boolean value.
    Bool,
    /// Must have a value that begins with this text.
    Only(&'static str),
    /// A time zone.
    Zone,
    /// An encoding.
    Encoding,
    /// A time limit.
    Time,
    /// The isolation of transactions.
    Isolation,
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
    ("default_transaction_read_only", "off", Rule::Bool, true),
    ("in_hot_standby", "off", Rule::Fixed, true),
    ("statement_timeout", "0", Rule::Time, false),
    ("lock_timeout", "0", Rule::Any, false),
    ("idle_in_transaction_session_timeout", "0", Rule::Any, false),
    ("idle_session_timeout", "0", Rule::Any, false),
    ("extra_float_digits", "1", Rule::Any, false),
    ("search_path", "\"$user\", public", Rule::Any, false),
    ("bytea_output", "hex", Rule::Any, false),
    ("client_min_messages", "notice", Rule::Any, false),
    ("transaction_isolation", "read committed", Rule::Isolation, false),
    ("default_transaction_isolation", "read committed", Rule::Isolation, false),
    ("transaction_read_only", "off", Rule::Bool, false),
    ("transaction_deferrable", "off", Rule::Bool, false),
    ("max_identifier_length", "63", Rule::Fixed, false),
    ("lc_messages", "C.UTF-8", Rule::Any, false),
    ("lc_monetary", "C.UTF-8", Rule::Any, false),
    ("lc_numeric", "C.UTF-8", Rule::Any, false),
    ("lc_time", "C.UTF-8", Rule::Any, false),
    ("row_security", "on", Rule::Bool, false),
    ("jit", "off", Rule::Bool, false),
    ("work_mem", "4MB", Rule::Any, false),
    ("synchronous_commit", "on", Rule::Any, false),
    ("geqo", "on", Rule::Bool, false),
];

/// Whether the transaction only reads, and whether the next ones do.
const READ_ONLY: &str = "transaction_read_only";
const DEFAULT_READ_ONLY: &str = "default_transaction_read_only";
/// The isolation of the transaction, and that of the next ones.
const ISOLATION: &str = "transaction_isolation";
const DEFAULT_ISOLATION: &str = "default_transaction_isolation";

/// The parameters of a session. All changes are those of a transaction, which may be a single statement.
#[derive(Clone, Debug)]
pub(super) struct SessionSettings {
    now: Values,
    defaults: Vec<String>,
    /// The values before the transaction.
    before: Vec<String>,
    /// The values at each savepoint.
    savepoints: Vec<Values>,
    /// Whether a statement of the transaction has read or written.
    has_queried: bool,
    /// What the client knows of the parameters that it receives.
    sent: Vec<String>,
}

/// Values of all parameters.
#[derive(Clone, Debug)]
struct Values {
    /// Those that hold now.
    current: Vec<String>,
    /// Those that remain after the transaction: all but the ones of SET LOCAL.
    lasting: Vec<String>,
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
        let now = Values { current: defaults.clone(), lasting: defaults.clone() };
        let (before, sent) = (defaults.clone(), defaults.clone());
        Self { now, defaults, before, savepoints: Vec::new(), has_queried: false, sent }
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
                        self.set(name, Some(value), false)?;
                    }
                }
                _ => self.set(name, Some(value), false)?,
            }
        }
        self.commit();
        self.defaults.clone_from(&self.before);
        Ok(())
    }

    /// Sets a parameter, or resets it. `local`: until the end of the transaction.
    pub(super) fn set(
        &mut self,
        name: &str,
        value: Option<&str>,
        local: bool,
    ) -> Result<(), Report> {
        let (place, (name, _, rule, _)) = place(name)?;
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
            Rule::Bool => boolean(&value).is_some(),
            Rule::Only(begin) => value.to_lowercase().starts_with(begin),
            Rule::Zone => Zone::parse(&value).is_ok(),
            Rule::Encoding => {
                let known = ["utf8", "utf-8", "unicode", "sql_ascii"];
                known.contains(&&*value.to_lowercase().replace('\'', ""))
            }
            Rule::Time => time(&value).is_some(),
            Rule::Isolation => ISOLATIONS.contains(&&*value.to_lowercase()),
        };
        if !is_valid {
            return Err(invalid(&value));
        }
        let value = match (rule, boolean(&value)) {
            // Clients compare the names that PostgreSQL reports.
            (Rule::Encoding, _) => "UTF8".to_owned(),
            (Rule::Isolation, _) => value.to_lowercase(),
            (Rule::Bool, Some(is_on)) => if is_on { "on" } else { "off" }.to_owned(),
            _ => value,
        };
        if *name == READ_ONLY && value == "off" {
            self.must_be_able_to_write()?;
        }
        if *name == ISOLATION && self.has_queried && self.show(ISOLATION)?.1 != value {
            let what = "SET TRANSACTION ISOLATION LEVEL must be called before any query";
            return Err(Report::error("25001", what));
        }
        let is_of_transaction = local || matches!(*name, READ_ONLY | ISOLATION);
        let all =
            [Some(&mut self.now.current), (!is_of_transaction).then_some(&mut self.now.lasting)];
        for values in all.into_iter().flatten() {
            if let Some(slot) = values.get_mut(place) {
                slot.clone_from(&value);
            }
        }
        Ok(())
    }

    /// A transaction that only reads may write only if it has read nothing yet.
    fn must_be_able_to_write(&self) -> Result<(), Report> {
        if !self.is_read_only() {
            return Ok(());
        }
        if self.savepoints.last().is_some_and(|values| is_on(&values.current, READ_ONLY)) {
            let what = "cannot set transaction read-write mode inside a read-only transaction";
            return Err(Report::error("25001", what));
        }
        if self.has_queried {
            let what = "transaction read-write mode must be set before any query";
            return Err(Report::error("25001", what));
        }
        Ok(())
    }

    /// Sets all parameters to their defaults, except that of the transaction.
    pub(super) fn reset(&mut self) {
        let modes = [READ_ONLY, ISOLATION].map(|name| (name, value(&self.now.current, name)));
        self.now.current.clone_from(&self.defaults);
        self.now.lasting.clone_from(&self.defaults);
        modes.into_iter().for_each(|(name, mode)| self.put(name, mode));
    }

    fn put(&mut self, name: &str, value: String) {
        if let Ok((place, _)) = place(name)
            && let Some(slot) = self.now.current.get_mut(place)
        {
            *slot = value;
        }
    }

    /// Parameters that clients receive, with their values.
    pub(super) fn reported(&self) -> Vec<(&'static str, String)> {
        let all = PARAMETERS.iter().zip(&self.now.current).filter(|(spec, _)| spec.3);
        all.map(|(spec, value)| (spec.0, value.clone())).collect()
    }

    /// The changed parameters since the last call, as far as the client receives them.
    pub(super) fn changed(&mut self) -> Vec<(&'static str, String)> {
        let mut changed = self.reported();
        changed.retain(|(name, value)| {
            place(name).is_ok_and(|(place, _)| self.sent.get(place) != Some(value))
        });
        self.sent.clone_from(&self.now.current);
        changed
    }

    /// Name and value of a parameter.
    pub(super) fn show(&self, name: &str) -> Result<(&'static str, &str), Report> {
        let (place, spec) = place(name)?;
        Ok((spec.0, self.now.current.get(place).map_or("", String::as_str)))
    }

    /// All parameters, with lower-case names.
    pub(super) fn all(&self) -> Vec<(String, String)> {
        let all = PARAMETERS.iter().zip(&self.now.current);
        all.map(|(spec, value)| (spec.0.to_lowercase(), value.clone())).collect()
    }

    /// The time zone of statements.
    pub(super) fn zone(&self) -> &str {
        self.show("timezone").map_or("UTC", |(_, zone)| zone)
    }

    /// Notes whether a statement of the transaction reads or writes.
    pub(super) const fn note_query(&mut self, reads_or_writes: bool) {
        self.has_queried |= reads_or_writes;
    }

    /// Keeps the values for a savepoint.
    pub(super) fn savepoint(&mut self) {
        self.savepoints.push(self.now.clone());
    }

    /// Drops the savepoints from this place on. Only whether the transaction reads returns to what it was.
    pub(super) fn release(&mut self, place: usize) {
        if let Some(values) = self.savepoints.get(place) {
            self.put(READ_ONLY, value(&values.current, READ_ONLY));
        }
        self.savepoints.truncate(place);
    }

    /// Returns to the values at the savepoint of this place.
    pub(super) fn rollback_to(&mut self, place: usize) {
        if let Some(values) = self.savepoints.get(place) {
            self.now.clone_from(values);
        }
        self.savepoints.truncate(place.saturating_add(1));
    }

    /// Ends the transaction: what SET LOCAL has set ends.
    pub(super) fn commit(&mut self) {
        self.before.clone_from(&self.now.lasting);
        self.rollback();
    }

    /// Ends the transaction: what it has set ends.
    pub(super) fn rollback(&mut self) {
        self.now = Values { current: self.before.clone(), lasting: self.before.clone() };
        self.savepoints.clear();
        self.has_queried = false;
        self.put(READ_ONLY, value(&self.before, DEFAULT_READ_ONLY));
        self.put(ISOLATION, value(&self.before, DEFAULT_ISOLATION));
    }

    /// Whether a write is an error.
    pub(super) fn is_read_only(&self) -> bool {
        is_on(&self.now.current, READ_ONLY)
    }

    /// The client's own time limit of a statement.
    pub(super) fn time_max(&self) -> Option<Duration> {
        let (_, value) = self.show("statement_timeout").ok()?;
        time(value).filter(|time| !time.is_zero())
    }
}

fn value(values: &[String], name: &str) -> String {
    place(name).ok().and_then(|(place, _)| values.get(place)).cloned().unwrap_or_default()
}

fn is_on(values: &[String], name: &str) -> bool {
    value(values, name) == "on"
}

/// Reads a Boolean value: the beginning of a word, if it is the beginning of no other.
fn boolean(text: &str) -> Option<bool> {
    let text = text.to_lowercase();
    let begins = |word: &str| !text.is_empty() && word.starts_with(&text);
    match &*text {
        "1" => Some(true),
        "0" => Some(false),
        "o" => None,
        _ if begins("true") || begins("yes") || begins("on") => Some(true),
        _ if begins("false") || begins("no") || begins("off") => Some(false),
        _ => None,
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
        let code = |result: Result<(), Report>| result.unwrap_err().code;
        assert_eq!(code(settings.set("datestyle", Some("German"), false)), "22023");
        assert_eq!(code(settings.set("timezone", Some("Mars/Base"), false)), "22023");
        assert_eq!(code(settings.set("client_encoding", Some("LATIN1"), false)), "22023");
        assert_eq!(code(settings.set("session_authorization", Some("root"), false)), "55P02");
        assert_eq!(code(settings.set("shared_buffers", Some("1"), false)), "42704");
        settings.changed();
        settings.set("work_mem", Some("1GB"), false).unwrap();
        assert_eq!(settings.changed(), []);
        settings.set("TIMEZONE", Some("UTC"), false).unwrap();
        assert_eq!(settings.changed(), [("TimeZone", "UTC".to_owned())]);
        assert_eq!(settings.changed(), []);
        settings.reset();
        assert_eq!(settings.zone(), "Europe/Paris");
    }

    #[test]
    fn booleans_are_those_of_postgresql() {
        for (text, want) in [
            ("of", Some(false)),
            ("N", Some(false)),
            ("0", Some(false)),
            ("TRU", Some(true)),
            ("on", Some(true)),
            ("ye", Some(true)),
            ("o", None),
            ("", None),
            (" yes ", None),
            ("onn", None),
            ("01", None),
        ] {
            assert_eq!(boolean(text), want, "{text:?}");
        }
    }

    #[test]
    fn values_end_with_their_transaction() {
        let mut settings = SessionSettings::new("alice", "UTC");
        let zone = |settings: &mut SessionSettings, zone, local| {
            settings.set("timezone", Some(zone), local).unwrap();
        };
        zone(&mut settings, "Europe/Paris", true);
        settings.commit();
        assert_eq!(settings.zone(), "UTC", "SET LOCAL");
        zone(&mut settings, "Europe/Paris", false);
        settings.savepoint();
        zone(&mut settings, "Europe/Rome", false);
        zone(&mut settings, "Europe/Oslo", true);
        settings.savepoint();
        settings.rollback_to(1);
        assert_eq!(settings.zone(), "Europe/Oslo");
        settings.rollback_to(0);
        assert_eq!(settings.zone(), "Europe/Paris");
        zone(&mut settings, "Europe/Oslo", true);
        settings.commit();
        assert_eq!(settings.zone(), "Europe/Paris");
        settings.reset();
        settings.rollback();
        assert_eq!(settings.zone(), "Europe/Paris");
    }

    #[test]
    fn transactions_that_only_read_remain_so() {
        let mut settings = SessionSettings::new("alice", "UTC");
        let set = |settings: &mut SessionSettings, value| {
            settings.set(READ_ONLY, Some(value), false).map_err(|report| report.message)
        };
        set(&mut settings, "on").unwrap();
        set(&mut settings, "off").unwrap();
        set(&mut settings, "on").unwrap();
        settings.savepoint();
        assert!(set(&mut settings, "of").unwrap_err().contains("inside a read-only transaction"));
        settings.release(0);
        settings.note_query(true);
        assert!(set(&mut settings, "0").unwrap_err().contains("before any query"));
        settings.reset();
        assert!(settings.is_read_only());
        settings.commit();
        assert!(!settings.is_read_only());
        settings.set(DEFAULT_READ_ONLY, Some("t"), false).unwrap();
        assert!(!settings.is_read_only(), "it concerns the next transaction");
        settings.commit();
        assert!(settings.is_read_only());
        settings.savepoint();
        set(&mut settings, "on").unwrap();
        settings.note_query(true);
        settings.rollback();
        assert!(settings.is_read_only());
        set(&mut settings, "off").unwrap();
        settings.savepoint();
        set(&mut settings, "on").unwrap();
        settings.release(0);
        assert!(!settings.is_read_only());
    }

    #[test]
    fn an_isolation_is_that_of_its_transaction() {
        let mut settings = SessionSettings::new("alice", "UTC");
        let code = |result: Result<(), Report>| result.map_err(|report| report.code);
        let set = |settings: &mut SessionSettings, name, value| {
            code(settings.set(name, Some(value), false))
        };
        assert_eq!(set(&mut settings, ISOLATION, "Serializable"), Ok(()));
        assert_eq!(settings.show(ISOLATION).unwrap().1, "serializable");
        assert_eq!(set(&mut settings, ISOLATION, "strong"), Err("22023"));
        settings.note_query(true);
        assert_eq!(set(&mut settings, ISOLATION, "read committed"), Err("25001"));
        settings.reset();
        assert_eq!(settings.show(ISOLATION).unwrap().1, "serializable");
        settings.commit();
        assert_eq!(settings.show(ISOLATION).unwrap().1, "read committed");
        assert_eq!(set(&mut settings, DEFAULT_ISOLATION, "repeatable read"), Ok(()));
        assert_eq!(settings.show(ISOLATION).unwrap().1, "read committed");
        settings.commit();
        assert_eq!(settings.show(ISOLATION).unwrap().1, "repeatable read");
    }
}
