//! The parts of a URL, split as Python's `urlparse` does, which Kwollect uses.
//!
//! No error shows a part of the URL: where a delimiter is missing or not encoded, any part may hold a piece of a
//! password.

mod secret;

pub use secret::Secret;

use percent_encoding::percent_decode_str;
use std::net::Ipv6Addr;

/// Why a URL with a delimiter in its password, or with an `@` elsewhere, is rejected.
const PASSWORD_IN_PATH: &str = "an `@` follows the host; write `/`, `?` and `#` of a user or password as %2F, %3F and %23, \
                                and `@` elsewhere as %40";

/// The parts of a URL, percent-decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UrlParts {
    /// In small letters.
    pub(crate) scheme: String,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    /// In small letters, as Python's `hostname`; an IPv6 address without its brackets.
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
    /// Without the leading `/`.
    pub(crate) path: String,
    /// `?a=b&c=d`: names and values in their order.
    pub(crate) query: Vec<(String, String)>,
    /// The text after `#`.
    pub(crate) fragment: Option<String>,
}

impl UrlParts {
    /// Splits a URL. Within `{{ … }}` the characters `?` and `#` belong to the path, because texts of devices
    /// contain them (`Port #3`).
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err("it has no scheme; write `snmp://…`, `prometheus://…`".into());
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at_checked(end).unwrap_or((rest, ""));
        let (credentials, place) = match authority.rsplit_once('@') {
            Some((credentials, place)) => (Some(credentials), place),
            None => (None, authority),
        };
        let (user, password) = match credentials.map(|both| both.split_once(':').ok_or(both)) {
            None => (None, None),
            Some(Ok((user, password))) => (Some(decode(user)?), Some(decode(password)?)),
            Some(Err(user)) => (Some(decode(user)?), None),
        };
        let (host, port) = host_and_port(place)?;
        let (path, query, fragment) = split_path(rest);
        if has_end_of_password([Some(path), query, fragment]) {
            return Err(PASSWORD_IN_PATH.into());
        }
        Ok(Self {
            scheme: scheme.to_ascii_lowercase(),
            user: user.filter(|text| !text.is_empty()),
            password: password.filter(|text| !text.is_empty()),
            host,
            port,
            path: decode(path.strip_prefix('/').unwrap_or(path))?,
            query: query.map_or_else(|| Ok(Vec::new()), pairs)?,
            fragment: fragment.map(decode).transpose()?,
        })
    }
}

/// Whether these parts of a URL have an `@` as if the password had a delimiter, and perhaps an `@` before it. A JSONPath and a
/// template may have one.
fn has_end_of_password([path, query, fragment]: [Option<&str>; 3]) -> bool {
    let has = |text: Option<&str>| text.is_some_and(|text| text.contains('@'));
    let before_template = path.and_then(|path| path.split("{{").next());
    let before_other = fragment.and_then(|text| text.rsplit_once('#')).map(|(before, _)| before);
    has(before_template) || has(query) || has(before_other)
}

fn host_and_port(place: &str) -> Result<(String, Option<u16>), String> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or("`[` of the IPv6 address has no `]`")?;
            let address = host.split('%').next().unwrap_or(host);
            if address.parse::<Ipv6Addr>().is_err() {
                return Err("the text in `[…]` is not an IPv6 address".into());
            }
            match rest.strip_prefix(':') {
                None if !rest.is_empty() => return Err("a text follows the IPv6 address".into()),
                port => (host, port),
            }
        }
        None => match place.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err("write an IPv6 address in brackets, as `[fe80::1]`".into());
            }
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
    };
    let port = port.filter(|port| !port.is_empty()).map(|port| {
        let number = port.parse::<u16>().ok().filter(|port| *port > 0);
        number.ok_or("the port is not a number of 1 to 65535")
    });
    let host = decode(host)?.to_ascii_lowercase();
    if host.is_empty() {
        return Err("it has no host".into());
    }
    let bad =
        |letter: char| letter.is_whitespace() || letter.is_control() || "/\\@<>\"".contains(letter);
    if host.contains(bad) {
        return Err("the host contains a character that no host name has".into());
    }
    Ok((host, port.transpose()?))
}

/// Path, query and fragment as written.
fn split_path(rest: &str) -> (&str, Option<&str>, Option<&str>) {
    let begin = rest.find("{{").unwrap_or(rest.len());
    let has_template = rest.find(['?', '#']).is_none_or(|delimiter| begin < delimiter);
    // Delimiters inside of a template belong to the path.
    let path_begin = match rest.rfind("}}") {
        Some(end) if has_template => end,
        _ => 0,
    };
    let (before, fragment) = split_at_letter(rest, '#', path_begin);
    let (path, query) = split_at_letter(before, '?', path_begin);
    (path, query, fragment)
}

/// Splits a text at the first such letter at or after a position.
fn split_at_letter(text: &str, letter: char, from: usize) -> (&str, Option<&str>) {
    let Some((head, tail)) = text.split_at_checked(from) else { return (text, None) };
    match tail.split_once(letter) {
        Some((before, after)) => {
            (text.get(..head.len() + before.len()).unwrap_or(text), Some(after))
        }
        None => (text, None),
    }
}

fn pairs(query: &str) -> Result<Vec<(String, String)>, String> {
    let parts = query.split('&').filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            Ok((decode(name)?, decode(value)?))
        })
        .collect()
}

/// Decodes `%41` as `A`, as Python's `unquote` does: `%` without two digits remains.
fn decode(text: &str) -> Result<String, String> {
    let decoded = percent_decode_str(text).decode_utf8();
    Ok(decoded.map_err(|_| "a percent-encoded part is not UTF-8")?.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_split_and_decoded() {
        let parts = UrlParts::parse("https://op%40site:p%3Aw@bmc-1:8443/a/b%20c?x=1&y=%26#P[-1].W")
            .unwrap();
        assert_eq!(parts.user.as_deref(), Some("op@site"));
        assert_eq!(parts.password.as_deref(), Some("p:w"));
        assert_eq!((&*parts.host, parts.port), ("bmc-1", Some(8443)));
        assert_eq!(parts.path, "a/b c");
        assert_eq!(parts.query, [("x".into(), "1".into()), ("y".into(), "&".into())]);
        assert_eq!(parts.fragment.as_deref(), Some("P[-1].W"));
        let six = UrlParts::parse("snmp://public@[FE80::1%eth0]:1161/1.3.6").unwrap();
        assert_eq!((&*six.host, six.port, &*six.path), ("fe80::1%eth0", Some(1161), "1.3.6"));
    }

    #[test]
    fn a_template_may_contain_delimiters() {
        let parts = UrlParts::parse("snmp://c@h/1.2.{{ 1.3 == Port #3? }}?a=b").unwrap();
        assert_eq!(parts.path, "1.2.{{ 1.3 == Port #3? }}");
        assert_eq!(parts.query, [("a".into(), "b".into())]);
        let later = UrlParts::parse("http://h/p?q={{ x }}#$.a").unwrap();
        assert_eq!((&*later.path, later.fragment.as_deref()), ("p", Some("$.a")));
    }

    #[test]
    fn a_json_path_and_a_template_may_have_an_at_sign() {
        for url in [
            "http://h:80/x#['Members@odata.count']",
            "http://u:p@h:80/x#['Members@odata.count']",
            "snmp://h/1.{{ 1.3 == a@b }}",
            "snmp://public@h/1.{{ 1.3 == a@b }}",
        ] {
            assert!(UrlParts::parse(url).is_ok(), "{url}");
        }
    }

    #[test]
    fn errors_name_the_part() {
        for (url, what) in [
            ("pdu/1.3", "no scheme"),
            ("snmp:///1.3", "no host"),
            ("snmp://c@h:0/1", "the port is not"),
            ("snmp://c@h:70000/1", "the port is not"),
            ("snmp://c@fe80::1/1", "in brackets"),
            ("snmp://c@[fe80/1", "has no `]`"),
            ("snmp://c@[pdu]/1", "not an IPv6 address"),
            ("snmp://c@a b/1", "no host name has"),
            ("snmp://%ff@h/1", "not UTF-8"),
            ("ipmisensor://u:5/SECRET@h/dcmi/power", "an `@` follows the host"),
            ("http://u:12?SECRET@h/x#a", "an `@` follows the host"),
            ("http://u:12#SECRET@h/x#a", "an `@` follows the host"),
            ("http://u:pa@SECRET/word@h:80/v#x", "an `@` follows the host"),
            ("http://u:pa@SECRET?x@h/v#x", "an `@` follows the host"),
            ("http://u:pa@SECRET#x@h/v#x", "an `@` follows the host"),
            ("ipmisensor://u:pa@SECRET/word@h/FAN1", "an `@` follows the host"),
            ("prometheus://u:pa@SECRET/word@h:9100/", "an `@` follows the host"),
            ("snmp://pa@SECRET/word@h/1.{{ 1.3 == a }}", "an `@` follows the host"),
        ] {
            let error = UrlParts::parse(url).unwrap_err();
            assert!(error.contains(what) && !error.contains("SECRET"), "{url}: {error}");
        }
    }
}
