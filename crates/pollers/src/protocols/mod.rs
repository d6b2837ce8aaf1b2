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

use crate::url::UrlParts;
use model::nearest;
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
    /// The form of its URLs.
    pub form: &'static str,
    parse: fn(&UrlParts) -> Result<Parsed, String>,
}

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
        return (spec.parse)(parts).map_err(|what| format!("{what}; the form is {}", spec.form));
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
