//! Values of the settings of access control: origins of pages, and roles of JSON Web Tokens.

use crate::settings::text::{Text, values};
use std::net::Ipv6Addr;

/// Most bytes of a role: PostgreSQL's limit of a name.
const ROLE_BYTES_MAX: usize = 63;

values!(PageOrigin, JwtRole);

/// The origin of pages, exactly as browsers write it in the header Origin: `https://grafana.example`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageOrigin(String);

impl PageOrigin {
    /// The text that the header Origin has.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Text for PageOrigin {
    fn from_text(text: &str) -> Result<Self, String> {
        let want = |lacking: &str| format!("an origin such as https://grafana.example, {lacking}");
        if text == "*" || text.contains('*') {
            return Err(want("without `*`: name each origin"));
        }
        let lower = text.to_ascii_lowercase();
        let Some((scheme @ ("http" | "https"), rest)) = lower.split_once("://") else {
            return Err(want("starting with http:// or https://"));
        };
        if rest.contains(['/', '?', '#']) {
            return Err(want("without a path, also without `/` at the end"));
        }
        if rest.contains('@') {
            return Err(want("without a user and a password"));
        }
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, Some(port)),
            _ => (rest, None),
        };
        let host = canonical_host(host).ok_or_else(|| {
            want("with the name or the address of a host, in ASCII (`xn--…`) as browsers send it")
        })?;
        let default = if scheme == "http" { 80 } else { 443 };
        let port = match port {
            None => default,
            Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => port
                .parse::<u16>()
                .ok()
                .filter(|port| *port > 0)
                .ok_or_else(|| want("with a port from 1 to 65535"))?,
            Some(_) => return Err(want("with a port from 1 to 65535")),
        };
        // Browsers omit the scheme's own port.
        let port = if port == default { String::new() } else { format!(":{port}") };
        Ok(Self(format!("{scheme}://{host}{port}")))
    }
}

/// A host as browsers write it.
fn canonical_host(host: &str) -> Option<String> {
    if let Some(address) = host.strip_prefix('[') {
        let address: Ipv6Addr = address.strip_suffix(']')?.parse().ok()?;
        return Some(format!("[{address}]"));
    }
    let in_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let is_name =
        host.starts_with(|c: char| c.is_ascii_alphanumeric()) && host.chars().all(in_name);
    is_name.then(|| host.to_owned())
}

/// The scope of JSON Web Tokens with a role: `kwuser=push`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtRole {
    /// The claim `role`.
    pub role: String,
    /// The scope, as in the token file: `push`, `read:ann`.
    pub scope: String,
}

impl Text for JwtRole {
    fn from_text(text: &str) -> Result<Self, String> {
        let want = |lacking: &str| format!("ROLE=SCOPE such as kwuser=push, {lacking}");
        let (role, scope) = text.split_once('=').ok_or_else(|| want("with `=`"))?;
        let (role, scope) = (role.trim(), scope.trim());
        if !(1..=ROLE_BYTES_MAX).contains(&role.len())
            || !role.bytes().all(|b| b.is_ascii_graphic())
        {
            return Err(want("with a role of 1 to 63 printable ASCII characters without blanks"));
        }
        match scope {
            "" => Err(want("with a scope")),
            // No one can revoke a JSON Web Token alone, and the original's never expire.
            "admin" => {
                Err(want("with another scope: an administrator needs a token of the token file"))
            }
            _ => Ok(Self { role: role.to_owned(), scope: scope.to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_exact() {
        let parse = |text: &str| PageOrigin::from_text(text).map(|origin| origin.0);
        for (text, want) in [
            ("https://grafana.example", "https://grafana.example"),
            ("HTTPS://Grafana.Example:443", "https://grafana.example"),
            ("http://grafana.example:80", "http://grafana.example"),
            ("http://grafana.example:443", "http://grafana.example:443"),
            ("https://a.example.", "https://a.example."),
            ("http://[0:0::1]:3000", "http://[::1]:3000"),
            ("http://10.0.0.7:3000", "http://10.0.0.7:3000"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(want), "{text}");
        }
        for (text, lacking) in [
            ("*", "without `*`"),
            ("https://*.example", "without `*`"),
            ("null", "starting with"),
            ("grafana.example", "starting with"),
            ("file://x", "starting with"),
            ("", "starting with"),
            ("https://a.example/", "without a path"),
            ("https://a.example/x", "without a path"),
            ("https://a.example?x", "without a path"),
            ("https://u:p@a.example", "without a user"),
            ("https://", "of a host"),
            ("https://a b", "of a host"),
            ("https://bücher.example", "of a host"),
            ("https://[::1", "of a host"),
            ("https://a.example:0", "a port"),
            ("https://a.example:65536", "a port"),
            ("https://a.example:", "a port"),
            ("https://a.example:+1", "a port"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(lacking), "{text}: {error}");
        }
    }

    #[test]
    fn roles_have_a_scope() {
        let parse = |text: &str| JwtRole::from_text(text).map(|one| (one.role, one.scope));
        assert_eq!(parse(" kwuser = push:lab"), Ok(("kwuser".to_owned(), "push:lab".to_owned())));
        for (text, lacking) in [
            ("kwuser", "with `=`"),
            ("=push", "a role"),
            ("a b=push", "a role"),
            ("kwuser=", "with a scope"),
            ("kwuser=admin", "another scope"),
        ] {
            assert!(parse(text).unwrap_err().contains(lacking), "{text}");
        }
        assert!(parse(&format!("{}=push", "x".repeat(64))).is_err());
    }
}
