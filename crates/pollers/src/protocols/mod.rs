//! The protocols of pollers: one file and one entry in [`PROTOCOLS`] each.
//!
//! - `snmp`: SNMP versions 1, 2c and 3
//! - `ipmi`: sensors of BMCs over IPMI 2.0
//! - `prometheus`: exporters
//! - `json`: Redfish and any other JSON over HTTP
//! - `modbus`: registers over Modbus TCP

mod ipmi;
mod json;
mod modbus;
mod prometheus;
mod snmp;

pub use ipmi::{IpmiCipher, IpmiPrivilege, IpmiReading, IpmiRequest};
pub use json::JsonRequest;
pub use modbus::{ByteOrder, ModbusFormat, ModbusRequest, NumberType, RegisterTable};
pub use prometheus::PrometheusRequest;
pub use snmp::{
    Auth, Oid, OidTemplate, Privacy, SnmpObject, SnmpRequest, SnmpSecurity, SnmpVersion,
};

use crate::url::Secret;
use crate::url::UrlParts;
use model::{Cause, nearest};
use std::fmt;

/// A protocol by which pollers read devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// SNMP.
    Snmp,
    /// IPMI over LAN.
    Ipmi,
    /// The text formats of Prometheus and OpenMetrics.
    Prometheus,
    /// A JSON document over HTTP.
    Json,
    /// Modbus TCP.
    Modbus,
}

/// Facts about a protocol.
#[derive(Debug)]
pub struct ProtocolSpec {
    /// The protocol.
    pub protocol: Protocol,
    /// Its name as a source: `snmp`.
    pub name: &'static str,
    /// Its schemes in URLs.
    pub schemes: &'static [&'static str],
    /// What it reads.
    pub help: &'static str,
    /// The forms of its URLs, each with its meaning.
    pub urls: &'static [(&'static str, &'static str)],
    /// The parts of its URLs: name, default and meaning.
    pub parts: &'static [(&'static str, &'static str, &'static str)],
    /// What is stored, and in which unit.
    pub values: &'static str,
    /// Failures by the cause of their gap.
    pub failures: &'static [(Cause, &'static str)],
    /// Entries of a description file.
    pub examples: &'static [&'static str],
    parse: fn(&UrlParts) -> Result<Parsed, String>,
}

/// Causes of gaps that have the same reasons for every protocol.
const NO_ANSWER: (Cause, &str) =
    (Cause::SourceTimeout, "No complete answer within the `timeout` of the entry.");
const LATE: (Cause, &str) = (
    Cause::MissedTicks,
    "The exchange before it lasted until the next period began, or the limit of exchanges was reached.",
);
/// The values of protocols that read one number by entry.
const MEANING: &str = "The metric has the name of the entry. Its kind and unit come from the keys `kind` and `unit`, then from the \
    name: `_total` at its end is a counter, and its last unit word is the unit. A text that is no number is NaN with the label `value_str`.";

/// Every protocol.
pub const PROTOCOLS: [&ProtocolSpec; 5] =
    [&snmp::SPEC, &ipmi::SPEC, &prometheus::SPEC, &json::SPEC, &modbus::SPEC];

impl Protocol {
    /// The protocol with this name as a source.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        PROTOCOLS.iter().find(|spec| spec.name == name).map(|spec| spec.protocol)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spec = PROTOCOLS.iter().find(|spec| spec.protocol == *self);
        f.write_str(spec.map_or("", |spec| spec.name))
    }
}

/// What a target is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// By SNMP.
    Snmp(SnmpRequest),
    /// By IPMI.
    Ipmi(IpmiRequest),
    /// Of an exporter.
    Prometheus(PrometheusRequest),
    /// In a JSON document.
    Json(JsonRequest),
    /// By Modbus.
    Modbus(ModbusRequest),
}

impl Request {
    /// The parameters of a session by which targets of one user differ; `None` for the usual ones.
    pub(crate) fn session(&self) -> Option<Secret> {
        match self {
            Self::Snmp(SnmpRequest { version, .. }) => version.session(),
            Self::Ipmi(request) => request.session(),
            _ => None,
        }
    }
}

/// What a URL means.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) protocol: Protocol,
    pub(crate) is_tls: bool,
    /// The port of a URL without one.
    pub(crate) port: u16,
    pub(crate) user: Option<String>,
    pub(crate) request: Request,
}

/// Reads a URL by its scheme.
///
/// # Errors
///
/// An unknown scheme, or a part that the protocol does not allow.
pub(crate) fn parse(parts: &UrlParts) -> Result<Parsed, String> {
    let of_scheme = |spec: &&&ProtocolSpec| spec.schemes.contains(&&*parts.scheme);
    if let Some(spec) = PROTOCOLS.iter().find(of_scheme) {
        return (spec.parse)(parts).map_err(|what| {
            let forms: Vec<&str> = spec.urls.iter().map(|(form, _)| *form).collect();
            format!("{what}; the form is {}", forms.join(" or "))
        });
    }
    let schemes: Vec<_> = PROTOCOLS.iter().flat_map(|spec| spec.schemes).copied().collect();
    let near = nearest(&parts.scheme, schemes.iter().copied());
    let near = near.map(|near| format!(", near to `{near}`")).unwrap_or_default();
    let schemes = schemes.join(", ");
    // Where the user stands before `://`, this text holds a password.
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "+-.".contains(letter);
    match parts.scheme.chars().all(is_name) {
        true => Err(format!("unknown scheme `{}`{near}; schemes are {schemes}", parts.scheme)),
        false => Err(format!("the text before `://` is no scheme; schemes are {schemes}")),
    }
}

impl UrlParts {
    /// The value of a parameter after `?`. The caller checks all names by [`UrlParts::only_parameters`].
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().rev().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// Rejects parameters other than these.
    pub(crate) fn only_parameters(&self, known: &[&str]) -> Result<(), String> {
        if self.query.iter().all(|(name, _)| known.contains(&&**name)) {
            return Ok(());
        }
        Err(match known {
            [] => "it has no parameters; write `%3F` for a `?`".into(),
            _ => format!("a parameter is unknown; known are {}", known.join(", ")),
        })
    }

    /// Rejects a `#`.
    pub(crate) fn no_fragment(&self) -> Result<(), String> {
        match &self.fragment {
            Some(_) => Err("`#` has no meaning here; write `%23` for the character".into()),
            None => Ok(()),
        }
    }
}

/// Finds the word of a parameter in a list of words and values. The error does not show the word, which may be a
/// password in the wrong place.
pub(crate) fn one_of<T: Copy>(what: &str, word: &str, known: &[(&str, T)]) -> Result<T, String> {
    let found = known.iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<_> = known.iter().map(|(name, _)| *name).collect();
        format!("{what} is none of {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_example_is_an_entry_of_its_protocol() {
        for spec in PROTOCOLS {
            assert!(!spec.examples.is_empty() && !spec.failures.is_empty(), "{}", spec.name);
            for example in spec.examples {
                let entries = crate::descriptions::entries_of(example);
                let protocols = entries.iter().map(|one| one.target.protocol);
                assert!(protocols.eq([spec.protocol]), "{example}");
            }
            // The optional part of a scheme stands in brackets.
            let schemes = spec.urls.iter().flat_map(|(form, _)| {
                let scheme = form.split("://").next().unwrap_or_default();
                let with = scheme.replace(['[', ']'], "");
                [scheme.split('[').next().unwrap_or_default().to_owned(), with]
            });
            let schemes: BTreeSet<String> = schemes.collect();
            let known = spec.schemes.iter().map(|scheme| (*scheme).to_owned()).collect();
            assert_eq!(schemes, known);
        }
        let names = PROTOCOLS.map(|spec| spec.name);
        assert_eq!(names, api::POLLED_PROTOCOLS, "the command knows their names");
    }

    #[test]
    fn settings_name_the_protocols() {
        assert_eq!(PROTOCOLS.map(|spec| spec.name), config::POLLED_SOURCES);
    }

    #[test]
    fn an_unknown_scheme_is_shown_and_a_misplaced_password_is_not() {
        let error = |url: &str| parse(&UrlParts::parse(url).unwrap()).unwrap_err();
        assert!(error("snpm://sw/1.3").starts_with("unknown scheme `snpm`, near to `snmp`"));
        for url in ["admin:canary@https://bmc/p#a", "snmp:canary@://sw/1.3"] {
            let error = error(url);
            assert!(error.contains("no scheme") && !error.contains("canary"), "{error}");
        }
    }
}
