//! The text form of settings: the same in flag, environment and file.

use model::setting::{bytes_format, duration_format, parse_bytes, parse_duration, words};
use model::{DeviceId, Timestamp};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The raw value of a setting, before it is parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Raw {
    /// One text.
    One(String),
    /// A list of texts.
    Many(Vec<String>),
}

impl Raw {
    /// The texts of a list; a single text is split at commas.
    pub(crate) fn list(&self) -> Vec<String> {
        match self {
            Self::One(text) => words(text).map(str::to_owned).collect(),
            // A flag writes an empty list as one empty text.
            Self::Many(texts) => texts.iter().filter(|text| !text.is_empty()).cloned().collect(),
        }
    }

    pub(crate) fn one(&self) -> Result<&str, String> {
        match self {
            Self::One(text) => Ok(text),
            Self::Many(texts) => match &**texts {
                [text] => Ok(text),
                _ => Err("one value, not a list".to_owned()),
            },
        }
    }
}

/// A type of a setting's value.
pub(crate) trait Value: Sized {
    /// Parses a value.
    ///
    /// # Errors
    /// What is wrong, without the key: `` is `x`; it must be true or false ``.
    fn from_raw(raw: &Raw) -> Result<Self, String>;
}

/// A type with a text form.
pub(crate) trait Text: Sized {
    fn from_text(text: &str) -> Result<Self, String>;
}

/// The error of a value, as text without the key.
pub(crate) fn wrong(raw: &Raw, want: &str) -> String {
    format!("is {}; it must be {want}", shown(raw))
}

/// A raw value in a message.
fn shown(raw: &Raw) -> String {
    let text = match raw {
        Raw::One(text) => text.clone(),
        Raw::Many(texts) => format!("[{}]", texts.join(", ")),
    };
    let text = without_password(&text);
    format!("`{}`", text.chars().take(SHOWN_MAX).collect::<String>())
}

/// A URL without its user and password; any other text unchanged.
fn without_password(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let authority = rest.split('/').next().unwrap_or_default();
    match authority.rsplit_once('@') {
        Some((secret, _)) => {
            format!("{scheme}://***{}", rest.get(secret.len()..).unwrap_or_default())
        }
        None => text.to_owned(),
    }
}

/// Most characters of a value in a message.
const SHOWN_MAX: usize = 200;

/// The entries of a list.
///
/// # Errors
/// Every invalid entry.
pub(crate) fn entries<T>(
    raw: &Raw,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for text in raw.list() {
        match parse(&text) {
            Ok(entry) => good.push(entry),
            Err(want) => bad.push(format!("{}, which must be {want}", shown(&Raw::One(text)))),
        }
    }
    if bad.is_empty() { Ok(good) } else { Err(format!("has {}", bad.join("; "))) }
}

/// Implements [`Value`] for a type with a text form, for an option of it, and for a list of it.
macro_rules! values {
    ($($type:ty),*) => {$(
        impl $crate::settings::text::Value for $type {
            fn from_raw(raw: &$crate::settings::text::Raw) -> Result<Self, String> {
                let parsed = raw.one().and_then(Self::from_text);
                parsed.map_err(|want| $crate::settings::text::wrong(raw, &want))
            }
        }
        impl $crate::settings::text::Value for Option<$type> {
            fn from_raw(raw: &$crate::settings::text::Raw) -> Result<Self, String> {
                if raw.one() == Ok("") {
                    return Ok(None);
                }
                <$type as $crate::settings::text::Value>::from_raw(raw).map(Some)
            }
        }
        impl $crate::settings::text::Value for Vec<$type> {
            fn from_raw(raw: &$crate::settings::text::Raw) -> Result<Self, String> {
                $crate::settings::text::entries(raw, <$type>::from_text)
            }
        }
    )*};
}
pub(crate) use values;

values!(
    bool, u32, u64, Duration, Bytes, String, PathBuf, Address, DeviceId, Timestamp, ServerUrl,
    Spool
);

impl Text for bool {
    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err("true or false".to_owned()),
        }
    }
}

impl Text for u32 {
    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| format!("a whole number up to {}", Self::MAX))
    }
}

impl Text for u64 {
    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| "a whole number".to_owned())
    }
}

impl Text for Duration {
    fn from_text(text: &str) -> Result<Self, String> {
        parse_duration(text).ok_or_else(|| duration_format(text))
    }
}

impl Text for String {
    fn from_text(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }
}

impl Text for PathBuf {
    fn from_text(text: &str) -> Result<Self, String> {
        if text.is_empty() { Err("a path".to_owned()) } else { Ok(Self::from(text)) }
    }
}

impl Text for DeviceId {
    fn from_text(text: &str) -> Result<Self, String> {
        Self::new(text).map_err(|error| format!("a device name: {error}"))
    }
}

impl Text for Timestamp {
    fn from_text(text: &str) -> Result<Self, String> {
        Self::parse(text)
            .map_err(|_| "a time such as 2026-01-06T13:35:00Z, or seconds since 1970".to_owned())
    }
}

/// A number of bytes: `512KiB`, `64MiB`, `1GiB`, or a bare number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl Text for Bytes {
    fn from_text(text: &str) -> Result<Self, String> {
        parse_bytes(text).map(Self).ok_or_else(|| bytes_format(text))
    }
}

/// An address to listen on: `127.0.0.1:8790`, `[::1]:8790`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(pub SocketAddr);

impl Text for Address {
    fn from_text(text: &str) -> Result<Self, String> {
        let want = "an address and port such as 127.0.0.1:8790 or [::]:8790";
        text.parse().map(Self).map_err(|_| want.to_owned())
    }
}

/// Location of the spool, if any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spool {
    /// None: a node without a disk.
    None,
    /// In a folder.
    Folder(PathBuf),
}

impl Text for Spool {
    fn from_text(text: &str) -> Result<Self, String> {
        Ok(if text == "none" { Self::None } else { Self::Folder(PathBuf::from_text(text)?) })
    }
}

/// The URL of a server: `http://node:8790` or `https://metrics.example`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUrl(String);

impl ServerUrl {
    /// Checks the URL of a server, and removes a trailing `/`.
    ///
    /// # Errors
    /// What a valid URL is.
    pub fn new(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        let rest = rest.ok_or_else(|| want("starting with http:// or https://"))?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if authority.contains('@') {
            return Err(want("without a user and a password; `token_file` authenticates"));
        }
        let (host, port) = host_and_port(authority);
        if !is_host(host) {
            return Err(want("with the name or the IP address of a host"));
        }
        // An invalid port would be read as 80, and the token would be sent there.
        let is_port = |text: &str| {
            text.bytes().all(|byte| byte.is_ascii_digit())
                && text.parse::<u16>().is_ok_and(|port| port > 0)
        };
        if !port.is_none_or(is_port) {
            return Err(want("with a port from 1 to 65535"));
        }
        let in_path = |c: char| c.is_ascii_alphanumeric() || "-._~".contains(c);
        let is_step = |step: &str| !matches!(step, "" | "." | "..") && step.chars().all(in_path);
        let path = path.trim_end_matches('/');
        if !path.is_empty() && !path.split('/').all(is_step) {
            return Err(want("with nothing after it but the path of a proxy"));
        }
        Ok(Self(text.trim_end_matches('/').to_owned()))
    }

    /// The URL without a trailing `/`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the connection is unencrypted.
    pub fn is_plain(&self) -> bool {
        self.0.starts_with("http://")
    }
}

impl ServerUrl {
    /// The host, without the port; an IPv6 address is in brackets.
    pub fn host(&self) -> &str {
        let authority = self.0.split("://").nth(1).unwrap_or_default();
        host_and_port(authority.split('/').next().unwrap_or_default()).0
    }

    /// Whether its host name means this machine.
    pub fn is_local(&self) -> bool {
        let name = self.host();
        let address = name.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
        name == "localhost" || address.is_ok_and(|address| address.is_loopback())
    }
}

/// The form of a server's URL, and what this one lacks.
fn want(lacking: &str) -> String {
    format!("an address such as http://127.0.0.1:8790 or https://metrics.example, {lacking}")
}

/// The two parts of `host:port`; an IPv6 address in brackets contains colons.
fn host_and_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    }
}

fn is_host(text: &str) -> bool {
    if let Some(address) = text.strip_prefix('[') {
        let address = address.strip_suffix(']').map(str::parse::<std::net::Ipv6Addr>);
        return address.is_some_and(|address| address.is_ok());
    }
    let in_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(in_name)
}

impl Text for ServerUrl {
    fn from_text(text: &str) -> Result<Self, String> {
        Self::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn servers() {
        assert_eq!(ServerUrl::new("http://h:1/").unwrap().as_str(), "http://h:1");
        assert!(ServerUrl::new("https://[::1]:8790/jobmeter").is_ok());
        for (url, local) in [
            ("http://localhost:8790", true),
            ("http://127.0.0.2", true),
            ("http://[::1]:8790/x", true),
            ("http://127.0.0.1.example:8790", false),
            ("https://node", false),
        ] {
            assert_eq!(ServerUrl::new(url).unwrap().is_local(), local, "{url}");
        }
        for (lacking, texts) in [
            ("starting with http://", &["", "h:1", "ftp://h", "HTTP://h", "http:/h"][..]),
            (
                "a port from 1 to 65535",
                &["http://h:99999", "http://h:0", "http://h:", "http://h:+1"],
            ),
            ("a port from 1 to 65535", &["http://[::1]:x", "https://h:65536/x"]),
            ("without a user", &["http://u:p@h", "http://u@h:1"]),
            ("of a host", &["http://", "http:///x", "http://:80", "http://a b"]),
            (
                "of a host",
                &["http://[::1", "http://[h]", "http://::1", "http://-h", "http://h:1:2"],
            ),
            ("after it", &["http://h/?x", "http://h/a b", "http://h/../x", "http://h//x"]),
        ] {
            for text in texts {
                let error = ServerUrl::new(text).unwrap_err();
                assert!(error.contains(lacking), "{text}: {error}");
            }
        }
        let error = ServerUrl::from_raw(&Raw::One("http://u:p@h/x".to_owned())).unwrap_err();
        assert!(error.starts_with("is `http://***@h/x`; "), "{error}");
    }

    #[test]
    fn lists() {
        let list = |raw: &Raw| Vec::<String>::from_raw(raw).unwrap();
        assert_eq!(list(&Raw::One("a, b,".to_owned())), ["a", "b"]);
        assert_eq!(list(&Raw::Many(vec!["a,b".to_owned()])), ["a,b"]);
        assert_eq!(list(&Raw::Many(vec![String::new()])), [""; 0]);
        assert!(bool::from_raw(&Raw::Many(vec!["true".to_owned(), "true".to_owned()])).is_err());
        assert_eq!(Option::<PathBuf>::from_raw(&Raw::One(String::new())), Ok(None));
        let error = Vec::<u32>::from_raw(&Raw::One("x,7,y".to_owned())).unwrap_err();
        let want = "which must be a whole number up to 4294967295";
        assert_eq!(error, format!("has `x`, {want}; `y`, {want}"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,20}") {
            ServerUrl::new(&text).ok();
        }
    }
}
