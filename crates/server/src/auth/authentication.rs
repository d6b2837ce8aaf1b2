//! Authentication of a request: checks the Host header and the Origin header, and identifies the caller.

use crate::auth::access_settings::Access;
use crate::auth::audit::Actor;
use crate::auth::caller::{Caller, Rights};
use crate::auth::connection::Connection;
use crate::auth::peer::host_of_ip;
use crate::auth::tokens::json_web_tokens::{JwtError, JwtVerifier, VerifiedToken};
use crate::auth::tokens::{Tokens, fingerprint};
use crate::auth::user_tokens::FoundToken;
use crate::common::counts::JwtRejections;
use crate::common::http_error::{HttpError, Why};
use axum::extract::Request;
use axum::http::header;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use base64::Engine;
use model::{Origin, Timestamp};
use std::net::IpAddr;
use std::sync::Arc;

/// Headers that proxies add. With one of them the kernel's user of the connection is not the caller.
const OF_PROXIES: [&str; 20] = [
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-originating-ip",
    "x-remote-ip",
    "cf-connecting-ip",
    "true-client-ip",
    "fastly-client-ip",
    "client-ip",
    "x-azure-clientip",
    "x-envoy-external-address",
    "x-forwarded-port",
    "x-forwarded-server",
    "x-original-forwarded-for",
    "x-proxyuser-ip",
];

/// Characters of a path that the audit log records.
const PATH_CHARS_MAX: usize = 200;

/// Settings that requests are checked against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AuthContext<'a> {
    /// Names of this server, in lower case, without ports.
    pub(crate) names: &'a [String],
    /// Tokens of the token file.
    pub(crate) tokens: &'a Tokens,
    /// Verifies JSON Web Tokens; `None`: the server accepts none.
    pub(crate) jwt: Option<&'a JwtVerifier>,
    /// Counts rejected JSON Web Tokens.
    pub(crate) jwt_rejected: &'a JwtRejections,
    /// The time of the request.
    pub(crate) now: Timestamp,
    /// Permissions of this machine's users.
    pub(crate) access: &'a Access,
}

/// Refuses a caller who cannot be identified.
pub(crate) fn no_credentials() -> HttpError {
    HttpError::unidentified(
        "not authenticated: send a token (Authorization: Bearer TOKEN), or connect from this \
         machine without a proxy",
    )
}

/// Identifies the caller of a request, or refuses it: checks host, origin, token, certificate and kernel
/// user. `page`: whether a page of an origin of the setting sends it, and it only reads.
pub(crate) fn authenticate(
    known: &AuthContext<'_>,
    made: &FindToken<'_>,
    request: &Request,
    page: bool,
) -> Result<Caller, HttpError> {
    let connection = request.extensions().get::<Connection>();
    let connection =
        connection.ok_or_else(|| HttpError::fault(&"a request without a connection"))?;
    let host = host(request)?;
    if !serves(known.names, connection.ends.ours.ip(), host) {
        let message = format!(
            "`{}` is no name of this server; add it to `names` in the server's configuration",
            host.chars().take(100).collect::<String>()
        );
        let status = StatusCode::MISDIRECTED_REQUEST;
        return Err(HttpError::new(status, "08004", Why::Host, message));
    }
    let own_page = same_origin(request.headers(), host);
    let other_page = page && own_page.is_err();
    if !other_page && !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS) {
        own_page?;
    }
    // A page of another origin gets no rights from the machine on which its browser runs.
    let unidentified = Connection { owner: None, ..connection.clone() };
    let connection = if other_page { &unidentified } else { connection };
    let path: String = request.uri().path().chars().take(PATH_CHARS_MAX).collect();
    let what = format!("{} {path}", request.method());
    caller(known, made, connection, (request.headers(), &what))
}

/// Identifies the caller of a session of another protocol, by a token or by the kernel.
pub(crate) fn authenticate_session(
    known: &AuthContext<'_>,
    made: &FindToken<'_>,
    connection: &Connection,
    (token, what): (Option<&str>, &str),
) -> Result<Caller, HttpError> {
    let mut headers = HeaderMap::new();
    if let Some(token) = token {
        let value = HeaderValue::try_from(format!("Bearer {token}"));
        let value = value.map_err(|_| HttpError::unidentified("the password is no token"))?;
        headers.insert(header::AUTHORIZATION, value);
    }
    caller(known, made, connection, (&headers, what))
}

/// The caller of a connection, by the headers of a request: what they request.
fn caller(
    known: &AuthContext<'_>,
    made: &FindToken<'_>,
    connection: &Connection,
    (headers, what): (&HeaderMap, &str),
) -> Result<Caller, HttpError> {
    let (rights, who, by_user_token) = who(known, made, connection, headers)?;
    let actor = Actor {
        who,
        uid: rights.uid(),
        from: connection.ends.theirs.ip().to_canonical().to_string().into(),
        what: what.into(),
    };
    let is_here = uid_by_kernel(connection, headers).is_some();
    Ok(Caller { rights, actor, own_nodes: known.access.own_nodes, by_user_token, is_here })
}

/// Returns the single host that a request names.
fn host(request: &Request) -> Result<&str, HttpError> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let header = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().ok(),
        (None, _) => return Err(HttpError::malformed("the request has no Host header")),
        _ => None,
    };
    let header = header.ok_or_else(|| HttpError::malformed("the Host header is no name"))?;
    match request.uri().authority() {
        // Two different hosts may be an attempt to confuse a proxy in between.
        Some(authority) if !authority.as_str().eq_ignore_ascii_case(header) => {
            Err(HttpError::malformed("the request names two hosts"))
        }
        _ => Ok(header),
    }
}

/// Whether a Host header names this server: by a configured name or by the connection's local address. The
/// port is ignored, because a tunnel may use another one.
fn serves(names: &[String], ours: IpAddr, host: &str) -> bool {
    let name = without_port(host).trim_end_matches('.');
    let called = host_of_ip(ours);
    names.iter().chain([&called]).any(|known| known.eq_ignore_ascii_case(name))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Refuses a write that a page of another origin makes a browser send. The Origin header must equal the
/// requested host. Programs other than browsers send no Origin.
fn same_origin(headers: &HeaderMap, host: &str) -> Result<(), HttpError> {
    let rejected_with = |what: &str| {
        let message = format!("pages of another origin may not send this request ({what})");
        Err(HttpError::new(StatusCode::FORBIDDEN, "42501", Why::Origin, message))
    };
    if headers.get_all(header::ORIGIN).iter().nth(1).is_some() {
        return rejected_with("two Origin headers");
    }
    if let Some(origin) = headers.get(header::ORIGIN) {
        let own = origin.to_str().ok().and_then(|origin| {
            origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"))
        });
        if !own.is_some_and(|own| own.eq_ignore_ascii_case(host)) {
            return rejected_with("Origin");
        }
    }
    let mut sites = headers.get_all("sec-fetch-site").iter();
    match sites.all(|site| matches!(site.as_bytes(), b"same-origin" | b"none")) {
        true => Ok(()),
        false => rejected_with("Sec-Fetch-Site"),
    }
}

/// Finds a token that a user created.
pub(crate) type FindToken<'a> = dyn Fn(&str) -> Option<FoundToken> + 'a;

/// Returns the caller's rights, their name, and whether they came with a user-created token. A token takes
/// precedence over a certificate, and a certificate over the kernel.
fn who(
    known: &AuthContext<'_>,
    made: &FindToken<'_>,
    connection: &Connection,
    headers: &HeaderMap,
) -> Result<(Rights, Arc<str>, bool), HttpError> {
    let mut authorizations = headers.get_all(header::AUTHORIZATION).iter();
    if let Some(authorization) = authorizations.next() {
        if authorizations.next().is_some() {
            // A proxy in between may have checked the other one.
            return Err(HttpError::unidentified("the request has two Authorization headers"));
        }
        let token = authorization.to_str().ok().and_then(token).ok_or_else(unknown_token)?;
        return of_token(known, made, &token, connection.ends.theirs.ip());
    }
    if let Some(name) = &connection.certificate {
        let origin =
            Origin::new(name).map_err(|error| HttpError::unidentified(error.to_string()))?;
        let who = format!("the certificate of {origin}");
        return Ok((Rights::Agent(Some(origin)), who.into(), false));
    }
    let own = rustix::process::geteuid().as_raw();
    let uid = uid_by_kernel(connection, headers);
    let rights = match uid {
        None if known.access.anonymous => Rights::Anonymous,
        None => Rights::Nobody,
        Some(uid) if uid == 0 || uid == own => Rights::Admin(Some(uid)),
        Some(uid) if known.access.staff.contains(&uid) => Rights::StaffUser(uid),
        Some(uid) => Rights::User(uid),
    };
    let who = uid.map_or_else(|| "nobody".to_owned(), |uid| format!("uid {uid}"));
    Ok((rights, who.into(), false))
}

fn unknown_token() -> HttpError {
    HttpError::unidentified("the token is unknown, expired or revoked")
}

/// Returns the rights that a token gives, the caller's name, and whether the token is one that a user created or a
/// JSON Web Token: neither may create another.
///
/// The server's own tokens have precedence: they are compared as a whole, so no other token is taken for one.
pub(crate) fn of_token(
    known: &AuthContext<'_>,
    made: &FindToken<'_>,
    token: &str,
    from: IpAddr,
) -> Result<(Rights, Arc<str>, bool), HttpError> {
    let scope = |rights: &Rights| {
        let name = rights.scope_name().map(|name| format!(":{name}")).unwrap_or_default();
        format!("{}{name}", rights.scope())
    };
    if let Some(rights) = known.tokens.rights(token) {
        // Two tokens of one scope are two callers: neither uses up the limits of the other.
        let who = format!("a token of `{}` (sha256:{})", scope(&rights), fingerprint(token));
        return Ok((rights, who.into(), false));
    }
    if let Some(FoundToken { id, rights }) = made(token) {
        let who = format!("token {id} of `{}`", rights.scope());
        return Ok((rights, who.into(), true));
    }
    if !JwtVerifier::is_like(token) {
        return Err(unknown_token());
    }
    let Some(jwt) = known.jwt else {
        let hint = "JSON Web Tokens need the setting `access.jwt_secret_file`";
        return Err(unknown_token().hint(Some(hint.to_owned())));
    };
    match jwt.verify(token, known.now) {
        Ok(VerifiedToken { role, rights }) => {
            // All tokens of a role are one caller: a renewed token keeps its limits.
            let who = format!("a JSON Web Token of role `{role}` (`{}`)", scope(&rights));
            Ok((rights, who.into(), true))
        }
        Err(JwtError { why, message }) => {
            known.jwt_rejected.add(why, 1);
            log::warn!("{message}; it came from {}", from.to_canonical());
            Err(HttpError::unidentified(message))
        }
    }
}

/// The caller's user ID on this machine, if only the kernel identifies them.
fn uid_by_kernel(connection: &Connection, headers: &HeaderMap) -> Option<u32> {
    let otherwise = headers.contains_key(header::AUTHORIZATION) || connection.certificate.is_some();
    connection.owner.filter(|_| !is_proxied(headers) && !otherwise)
}

/// Whether a request has a header that proxies add.
pub(crate) fn is_proxied(headers: &HeaderMap) -> bool {
    OF_PROXIES.iter().any(|name| headers.contains_key(*name))
}

/// Returns the token of an Authorization header. It is `Bearer TOKEN`, or `Basic` with the token as the
/// password, which browsers can prompt for.
fn token(authorization: &str) -> Option<String> {
    let (scheme, rest) = authorization.split_once(' ')?;
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(rest.to_owned());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = base64::engine::general_purpose::STANDARD.decode(rest).ok()?;
    let pair = String::from_utf8(pair).ok()?;
    pair.split_once(':').map(|(_, password)| password.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::peer::Ends;
    use crate::auth::tokens::Tokens;
    use proptest::prelude::*;

    fn names() -> Vec<String> {
        ["localhost", "127.0.0.1", "[::1]", "metrics.example"].map(str::to_owned).into()
    }

    fn with_known<T>(work: impl FnOnce(&AuthContext<'_>) -> T) -> T {
        let tokens = Tokens::parse("admin aaaaaaaaaaaa\nagent:n1 bbbbbbbbbbbb", b"").unwrap();
        let access = Access { staff: [555].into(), ..Default::default() };
        work(&AuthContext {
            names: &names(),
            tokens: &tokens,
            jwt: None,
            jwt_rejected: &JwtRejections::default(),
            now: Timestamp::from_seconds(0),
            access: &access,
        })
    }

    fn connection(uid: Option<u32>) -> Connection {
        let ends = Ends {
            theirs: "127.0.0.1:45988".parse().unwrap(),
            ours: "192.0.2.9:8790".parse().unwrap(),
        };
        Connection { ends, owner: uid, socket_owner: uid, certificate: None }
    }

    fn request(method: &str, headers: &[(&str, &str)]) -> Request {
        let mut request = axum::http::Request::builder().method(method).uri("/api/v1/jobs");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(axum::body::Body::empty()).unwrap();
        request.extensions_mut().insert(connection(Some(12345)));
        request
    }

    fn status(request: &Request) -> u16 {
        with_known(|known| authenticate(known, &|_| None, request, false))
            .map_or_else(|http_error| http_error.status.as_u16(), |_| 200)
    }

    #[test]
    fn only_names_of_this_server() {
        for (host, want) in [
            ("localhost:8790", 200),
            ("LOCALHOST", 200),
            ("127.0.0.1:9", 200),
            ("[::1]:8790", 200),
            ("metrics.example.:1", 200),
            ("192.0.2.9", 200),
            ("192.0.2.10", 421),
            ("evil.example", 421),
            ("localhost.evil.example", 421),
            ("evil.example:8790:localhost", 421),
            ("", 421),
        ] {
            assert_eq!(status(&request("GET", &[("host", host)])), want, "{host}");
        }
        assert_eq!(status(&request("GET", &[])), 400);
        let two = [("host", "localhost"), ("host", "localhost")];
        assert_eq!(status(&request("GET", &two)), 400);
    }

    #[test]
    fn a_request_that_names_two_hosts_is_rejected() {
        let mut request = request("GET", &[("host", "localhost")]);
        *request.uri_mut() = "http://evil.example/api/v1/jobs".parse().unwrap();
        assert_eq!(status(&request), 400);
        *request.uri_mut() = "http://localhost/api/v1/jobs".parse().unwrap();
        assert_eq!(status(&request), 200);
    }

    #[test]
    fn pages_of_other_origins_write_nothing() {
        let host = ("host", "localhost:8790");
        for (name, value, want) in [
            ("origin", "http://localhost:8790", 200),
            ("origin", "https://localhost:8790", 200),
            ("origin", "http://localhost:3000", 403),
            ("origin", "http://evil.example", 403),
            ("origin", "null", 403),
            ("origin", "http://localhost:8790.evil.example", 403),
            ("sec-fetch-site", "same-origin", 200),
            ("sec-fetch-site", "same-site", 403),
            ("sec-fetch-site", "cross-site", 403),
        ] {
            assert_eq!(status(&request("POST", &[host, (name, value)])), want, "{value}");
            assert_eq!(status(&request("DELETE", &[host, (name, value)])), want, "{value}");
            assert_eq!(status(&request("GET", &[host, (name, value)])), 200, "{value}");
        }
    }

    #[test]
    fn a_second_origin_is_rejected() {
        let own = ("origin", "http://localhost:8790");
        for other in ["http://localhost:8790", "http://evil.example", "null"] {
            for two in [[own, ("origin", other)], [("origin", other), own]] {
                let headers = [&[("host", "localhost:8790")], &two[..]].concat();
                assert_eq!(status(&request("POST", &headers)), 403, "{two:?}");
            }
        }
        let sites = [("sec-fetch-site", "none"), ("sec-fetch-site", "cross-site")];
        let headers = [&[("host", "localhost:8790")], &sites[..]].concat();
        assert_eq!(status(&request("POST", &headers)), 403);
    }

    #[test]
    fn callers_of_a_request() {
        let is = |headers: &[(&str, &str)], connection: &Connection| {
            let made = |token: &str| {
                (token == "made-token").then_some(FoundToken { id: 7, rights: Rights::Reading(12) })
            };
            let request = request("GET", headers);
            let found = with_known(|known| who(known, &made, connection, request.headers()));
            found.ok().map(|(rights, ..)| rights)
        };
        let who = is;
        let own = rustix::process::geteuid().as_raw();
        assert_eq!(who(&[], &connection(Some(0))), Some(Rights::Admin(Some(0))));
        assert_eq!(who(&[], &connection(Some(own))), Some(Rights::Admin(Some(own))));
        assert_eq!(who(&[], &connection(Some(12345))), Some(Rights::User(12345)));
        assert_eq!(who(&[], &connection(None)), Some(Rights::Nobody));
        for header in OF_PROXIES {
            assert_eq!(who(&[(header, "1.2.3.4")], &connection(Some(0))), Some(Rights::Nobody));
        }
        let bearer = ("authorization", "Bearer aaaaaaaaaaaa");
        assert_eq!(who(&[bearer], &connection(None)), Some(Rights::Admin(None)));
        // `x:aaaaaaaaaaaa`
        let basic = ("authorization", "Basic eDphYWFhYWFhYWFhYWE=");
        assert_eq!(who(&[basic], &connection(None)), Some(Rights::Admin(None)));
        for wrong in ["Bearer x", "Bearer", "Basic !", "Digest aaaaaaaaaaaa", ""] {
            // A trusted origin does not make up for a wrong token.
            assert_eq!(who(&[("authorization", wrong)], &connection(Some(0))), None, "{wrong}");
        }
        assert_eq!(who(&[bearer, bearer], &connection(Some(0))), None);
        assert_eq!(who(&[bearer, ("authorization", "Bearer x")], &connection(Some(0))), None);
        assert_eq!(who(&[], &connection(Some(555))), Some(Rights::StaffUser(555)));
        let made = ("authorization", "Bearer made-token");
        assert_eq!(who(&[made], &connection(Some(0))), Some(Rights::Reading(12)));
        let certified = Connection { certificate: Some("n7".into()), ..connection(None) };
        let agent = Rights::Agent(Some(Origin::new("n7").unwrap()));
        assert_eq!(who(&[], &certified), Some(agent));
        assert_eq!(who(&[bearer], &certified), Some(Rights::Admin(None)));
    }

    proptest! {
        #[test]
        fn no_header_panics(text in "[ -~]{0,60}") {
            serves(&names(), "127.0.0.1".parse().unwrap(), &text);
            token(&text);
            if let Ok(value) = HeaderValue::from_str(&text) {
                let headers = HeaderMap::from_iter([(header::ORIGIN, value)]);
                prop_assert!(same_origin(&headers, "localhost:8790").is_err()
                    || text.ends_with("//localhost:8790"));
            }
        }
    }
}
