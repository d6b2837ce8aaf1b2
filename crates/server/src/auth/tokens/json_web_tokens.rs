//! JSON Web Tokens (RFC 7519), signed with HS256, as Kwollect's `kwollect-setup-db` prints them. The claim `role`
//! selects the scope. `docs/decisions/0050-web-access.md`.
//!
//! Nothing of a token counts before its signature is verified: the server reads the header only to reject another
//! algorithm, and the claims only afterwards.

use crate::auth::caller::Rights;
use crate::auth::tokens::{SecretError, rights};
use crate::common::counts::JwtRejection;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use config::{JwtRole, read_secret_file};
use model::Timestamp;
use ring::hmac;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Longest token, in bytes; the original's has about 100.
const TOKEN_BYTES_MAX: usize = 4096;
/// Shortest secret, in bytes: RFC 7518, section 3.2.
const SECRET_BYTES_MIN: usize = 32;
/// Permitted difference between the clocks of the issuer and the server, as PostgREST permits it.
const LEEWAY_SECONDS: f64 = 30.0;

/// Warning about a secret that the password of the database gives away, and the other way round.
pub(crate) const WEAK_SECRET: &str = "the secret is a short text repeated, as kwollect-setup-db derives it from the \
    password of the database: whoever has one of them has the other, and can make tokens; make a secret with `openssl \
    rand -base64 48`, and new tokens with it";

/// A reason to reject a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JwtError {
    pub(crate) why: JwtRejection,
    /// The problem, and what to do.
    pub(crate) message: String,
}

/// The role of a valid token, and its rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VerifiedToken<'a> {
    pub(crate) role: &'a str,
    pub(crate) rights: Rights,
}

/// Verifies tokens. Its debug text does not contain the secret.
#[derive(Clone, Debug)]
pub(crate) struct JwtVerifier {
    key: hmac::Key,
    roles: Arc<BTreeMap<String, Rights>>,
    is_weak: bool,
}

type Claims = BTreeMap<String, Value>;

impl JwtVerifier {
    /// A verifier of tokens with these roles.
    pub(crate) fn new(secret: &str, roles: BTreeMap<String, Rights>) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        Self { key, roles: Arc::new(roles), is_weak: is_repeated(secret.as_bytes()) }
    }

    /// Reads the secret: the only line of a file.
    ///
    /// # Errors
    /// The file cannot be read, others could read or change it, or it is no line of at least 32 bytes.
    pub(crate) fn secret(path: &Path) -> Result<String, SecretError> {
        let text = read_secret_file(path)?;
        let wrong = |line, what| Err(SecretError::Line { path: path.to_owned(), line, what });
        let secret = text.strip_suffix('\n').unwrap_or(&text);
        let secret = secret.strip_suffix('\r').unwrap_or(secret);
        if secret.contains(['\n', '\r']) {
            return wrong(2, "a second line; the file has the secret alone".to_owned());
        }
        if secret.len() < SECRET_BYTES_MIN {
            let what = format!(
                "the secret has {} bytes; HS256 needs at least {SECRET_BYTES_MIN}, such as `openssl rand -base64 48` \
                 prints",
                secret.len()
            );
            return wrong(1, what);
        }
        Ok(secret.to_owned())
    }

    /// The rights of each role; `passwd` is the text of `/etc/passwd`.
    ///
    /// # Errors
    /// Every scope that the token file would not accept.
    pub(crate) fn roles(
        roles: &[JwtRole],
        passwd: &[u8],
    ) -> Result<BTreeMap<String, Rights>, Vec<String>> {
        let (mut found, mut errors) = (BTreeMap::new(), Vec::new());
        for JwtRole { role, scope } in roles {
            match rights(scope, passwd) {
                Ok(rights) => {
                    found.insert(role.clone(), rights);
                }
                Err(what) => errors.push(format!("`{role}={scope}`: {what}")),
            }
        }
        if errors.is_empty() { Ok(found) } else { Err(errors) }
    }

    /// Whether the secret is a text repeated, as the original derives it from a password.
    pub(crate) const fn is_weak(&self) -> bool {
        self.is_weak
    }

    /// Whether a text has the form of a token: three parts.
    pub(crate) fn is_like(token: &str) -> bool {
        token.bytes().filter(|byte| *byte == b'.').count() == 2
    }

    /// Verifies a token at a time.
    ///
    /// # Errors
    /// The reason to reject it.
    pub(crate) fn verify(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Result<VerifiedToken<'_>, JwtError> {
        if token.len() > TOKEN_BYTES_MAX {
            let message = format!("the JSON Web Token has more than {TOKEN_BYTES_MAX} bytes");
            return Err(JwtError { why: JwtRejection::TooLong, message });
        }
        let malformed = |what| error(JwtRejection::Malformed, what);
        let parts = || {
            let (signed, signature) = token.rsplit_once('.')?;
            let (header, claims) = signed.split_once('.')?;
            Some((signed, header, claims, signature)).filter(|_| !claims.contains('.'))
        };
        let (signed, header, claims, signature) =
            parts().ok_or_else(|| malformed("has not three parts"))?;
        check_header(&object(header).ok_or_else(|| malformed("has no valid header"))?)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap_or_default();
        // `ring` compares in constant time.
        hmac::verify(&self.key, signed.as_bytes(), &signature)
            .map_err(|_| error(JwtRejection::Signature, "has another signature"))?;
        let claims = object(claims).ok_or_else(|| {
            malformed("has no valid claims: a JSON object that names each claim once")
        })?;
        check_times(&claims, now)?;
        self.of_role(&claims)
    }

    fn of_role(&self, claims: &Claims) -> Result<VerifiedToken<'_>, JwtError> {
        if claims.contains_key("aud") {
            return Err(error(JwtRejection::Claims, "is for another audience (claim `aud`)"));
        }
        let role = match claims.get("role") {
            Some(Value::String(role)) => role,
            Some(_) => return Err(error(JwtRejection::Claims, "has a `role` that is no text")),
            None => return Err(error(JwtRejection::Claims, "has no claim `role`")),
        };
        let known = self.roles.get_key_value(role).ok_or_else(|| {
            error(JwtRejection::Role, "has a `role` that `access.jwt_roles` does not name")
        })?;
        Ok(VerifiedToken { role: known.0, rights: known.1.clone() })
    }
}

fn error(why: JwtRejection, what: &str) -> JwtError {
    JwtError { why, message: format!("the JSON Web Token {what}") }
}

/// The JSON object of a part of a token. A repeated key makes it invalid: other programs might read the other value.
fn object(part: &str) -> Option<Claims> {
    let text = URL_SAFE_NO_PAD.decode(part).ok()?;
    let mut json = serde_json::Deserializer::from_slice(&text);
    let object = api::unique_keys(&mut json).ok()?;
    json.end().ok().map(|()| object)
}

fn check_header(header: &Claims) -> Result<(), JwtError> {
    if header.get("alg").and_then(Value::as_str) != Some("HS256") {
        return Err(error(JwtRejection::Algorithm, "is not signed with HS256"));
    }
    if header.contains_key("crit") {
        let what = "has extensions that the server does not support (`crit`)";
        return Err(error(JwtRejection::Algorithm, what));
    }
    let is_jwt = |kind: &Value| kind.as_str().is_some_and(|kind| kind.eq_ignore_ascii_case("JWT"));
    match header.get("typ") {
        Some(kind) if !is_jwt(kind) => {
            Err(error(JwtRejection::Malformed, "has another type than JWT (`typ`)"))
        }
        _ => Ok(()),
    }
}

/// Checks that a token is valid now, by its claims `exp` and `nbf`.
fn check_times(claims: &Claims, now: Timestamp) -> Result<(), JwtError> {
    let now = now.seconds();
    let seconds = |name: &str| {
        let seconds = claims.get(name).map(|value| value.as_f64().filter(|at| at.is_finite()));
        let what = || error(JwtRejection::Claims, &format!("has no number of seconds as `{name}`"));
        seconds.map(|found| found.ok_or_else(what)).transpose()
    };
    if seconds("exp")?.is_some_and(|end| now >= end + LEEWAY_SECONDS) {
        return Err(error(JwtRejection::Expired, "has expired (claim `exp`)"));
    }
    if seconds("nbf")?.is_some_and(|start| now + LEEWAY_SECONDS < start) {
        return Err(error(JwtRejection::Early, "is not valid yet (claim `nbf`)"));
    }
    Ok(())
}

/// Whether a text consists of several copies of a shorter one.
fn is_repeated(text: &[u8]) -> bool {
    let lengths = (1..=text.len() / 2).filter(|length| text.len().is_multiple_of(*length));
    let mut copies = lengths.filter_map(|length| text.get(..length));
    copies.any(|copy| text.chunks(copy.len()).all(|chunk| chunk == copy))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use model::DeviceId;
    use proptest::prelude::*;

    const SECRET: &str = "a-secret-of-a-test-with-48-characters-and-no-end";
    const NOW: i64 = 1_800_000_000;
    /// The header and claims of the token that kwollect-setup-db 1.3.1 prints.
    const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;
    const CLAIMS: &str = r#"{"role":"kwuser"}"#;

    /// A token with this header and these claims.
    pub(crate) fn token(secret: &str, header: &str, claims: &str) -> String {
        let signed = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part)).join(".");
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let signature = URL_SAFE_NO_PAD.encode(hmac::sign(&key, signed.as_bytes()));
        format!("{signed}.{signature}")
    }

    fn verifier() -> JwtVerifier {
        let role = |text: &str| {
            let (role, scope) = text.split_once('=').unwrap();
            JwtRole { role: role.to_owned(), scope: scope.to_owned() }
        };
        let roles = ["kwuser=push", "lab=push:lab", "kwuser_ro=user"].map(role);
        JwtVerifier::new(SECRET, JwtVerifier::roles(&roles, b"").unwrap())
    }

    fn verified(token: &str) -> Result<Rights, JwtRejection> {
        let verifier = verifier();
        let found = verifier.verify(token, Timestamp::from_seconds(NOW));
        found.map(|found| found.rights).map_err(|error| error.why)
    }

    fn of_claims(claims: &str) -> Result<Rights, JwtRejection> {
        verified(&token(SECRET, HEADER, claims))
    }

    /// The token of a site with the password `changeme`, made by PyJWT 2 as kwollect-setup-db does.
    #[test]
    fn the_originals_token_inserts() {
        let secret = "changeme".repeat(1 + 32 / 8);
        let verifier = JwtVerifier::new(&secret, verifier().roles.as_ref().clone());
        assert!(verifier.is_weak());
        let original = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJyb2xlIjoia3d1c2VyIn0.\
                        uOuFGIdR9UlBw3G9cI8saPu9X-ys_IfkvqgihhGomYU";
        let found = verifier.verify(original, Timestamp::from_seconds(NOW)).unwrap();
        assert_eq!(found, VerifiedToken { role: "kwuser", rights: Rights::Push(None) });
        assert_eq!(token(&secret, HEADER, CLAIMS), original);
        // The last character has 2 bits that no byte uses.
        let twin = original.replace("GomYU", "GomYV");
        let error = verifier.verify(&twin, Timestamp::from_seconds(NOW)).unwrap_err();
        assert_eq!(error.why, JwtRejection::Signature);
    }

    #[test]
    fn roles_select_scopes() {
        let lab = DeviceId::new("lab").unwrap();
        assert_eq!(of_claims(CLAIMS), Ok(Rights::Push(None)));
        assert_eq!(of_claims(r#"{"role":"lab"}"#), Ok(Rights::Push(Some(lab))));
        assert_eq!(of_claims(r#"{"role":"kwuser_ro"}"#), Ok(Rights::Guest));
        for claims in [r#"{"role":"admin"}"#, r#"{"role":"KWUSER"}"#, r#"{"role":""}"#] {
            assert_eq!(of_claims(claims), Err(JwtRejection::Role), "{claims}");
        }
        for claims in [
            "{}",
            r#"{"role":["kwuser"]}"#,
            r#"{"role":null}"#,
            r#"{"role":7}"#,
            r#"{"Role":"kwuser"}"#,
        ] {
            assert_eq!(of_claims(claims), Err(JwtRejection::Claims), "{claims}");
        }
        let aud = r#"{"role":"kwuser","aud":"other"}"#;
        assert_eq!(of_claims(aud), Err(JwtRejection::Claims));
        let roles = [JwtRole { role: "x".to_owned(), scope: "pusher".to_owned() }];
        let errors = JwtVerifier::roles(&roles, b"").unwrap_err();
        assert!(errors[0].contains("`x=pusher`") && errors[0].contains("`push`?"), "{errors:?}");
    }

    #[test]
    fn only_hs256_is_accepted() {
        for (header, why) in [
            (r#"{"alg":"none"}"#, JwtRejection::Algorithm),
            (r#"{"alg":"None"}"#, JwtRejection::Algorithm),
            (r#"{"alg":"hs256"}"#, JwtRejection::Algorithm),
            (r#"{"alg":"HS512"}"#, JwtRejection::Algorithm),
            (r#"{"alg":"RS256"}"#, JwtRejection::Algorithm),
            (r#"{"alg":["HS256"]}"#, JwtRejection::Algorithm),
            (r#"{"typ":"JWT"}"#, JwtRejection::Algorithm),
            (r#"{"alg":"HS256","crit":["b64"],"b64":false}"#, JwtRejection::Algorithm),
            (r#"{"alg":"HS256","crit":null}"#, JwtRejection::Algorithm),
            (r#"{"alg":"HS256","alg":"HS256"}"#, JwtRejection::Malformed),
            (r#"{"alg":"none","alg":"HS256"}"#, JwtRejection::Malformed),
            (r#"{"alg":"HS256","typ":"at+jwt"}"#, JwtRejection::Malformed),
            (r#""HS256""#, JwtRejection::Malformed),
            (r#"{"alg":"HS256"} {}"#, JwtRejection::Malformed),
        ] {
            assert_eq!(verified(&token(SECRET, header, CLAIMS)), Err(why), "{header}");
        }
        assert!(
            verified(&token(SECRET, r#"{"alg":"HS256","typ":"jwt","kid":"../x"}"#, CLAIMS)).is_ok()
        );
    }

    #[test]
    fn another_signature_is_rejected() {
        let good = token(SECRET, HEADER, CLAIMS);
        let (signed, signature) = good.rsplit_once('.').unwrap();
        let admin = URL_SAFE_NO_PAD.encode(r#"{"role":"lab"}"#);
        let header = URL_SAFE_NO_PAD.encode(HEADER);
        for forged in [
            token("another-secret-of-more-than-32-characters", HEADER, CLAIMS),
            token("", HEADER, CLAIMS),
            format!("{signed}."),
            format!("{signed}.{signature}="),
            format!("{signed}.{}", signature.trim_end_matches(|c| signature.ends_with(c))),
            format!("{header}.{admin}.{signature}"),
        ] {
            assert_eq!(verified(&forged), Err(JwtRejection::Signature), "{forged}");
        }
        for malformed in ["", ".", "..", "a.b", "a.b.c", &format!("{good}.x"), &format!(" {good}")]
        {
            assert_eq!(verified(malformed), Err(JwtRejection::Malformed), "{malformed}");
        }
        let long = format!("{good}{}", "A".repeat(TOKEN_BYTES_MAX));
        assert_eq!(verified(&long), Err(JwtRejection::TooLong));
    }

    #[test]
    fn times_are_enforced() {
        let at = |name: &str, value: &str| {
            of_claims(&format!(r#"{{"role":"kwuser","{name}":{value}}}"#)).map(drop)
        };
        let ok = Ok(());
        for (value, want) in [
            ("1800000001", ok),
            ("1799999970.5", ok),
            ("1799999970", Err(JwtRejection::Expired)),
            ("1799999970.0", Err(JwtRejection::Expired)),
            ("0", Err(JwtRejection::Expired)),
            ("-1", Err(JwtRejection::Expired)),
            ("-9223372036854775809", Err(JwtRejection::Expired)),
            ("18446744073709551616", ok),
            ("1e300", ok),
            ("1e400", Err(JwtRejection::Malformed)),
            ("NaN", Err(JwtRejection::Malformed)),
            ("\"1900000000\"", Err(JwtRejection::Claims)),
            ("null", Err(JwtRejection::Claims)),
            ("true", Err(JwtRejection::Claims)),
            ("[1900000000]", Err(JwtRejection::Claims)),
            ("1900000000,\"exp\":1900000000", Err(JwtRejection::Malformed)),
        ] {
            assert_eq!(at("exp", value), want, "exp {value}");
        }
        for (value, want) in [
            ("1800000030", ok),
            ("1800000030.5", Err(JwtRejection::Early)),
            ("1e300", Err(JwtRejection::Early)),
            ("-1e300", ok),
            ("\"0\"", Err(JwtRejection::Claims)),
        ] {
            assert_eq!(at("nbf", value), want, "nbf {value}");
        }
    }

    #[test]
    fn a_repeated_text_is_weak() {
        for (text, weak) in [
            ("abab", true),
            ("aa", true),
            ("aaa", true),
            ("aba", false),
            ("a", false),
            ("", false),
            (SECRET, false),
            (&"password".repeat(5), true),
            (&"x".repeat(33), true),
        ] {
            assert_eq!(is_repeated(text.as_bytes()), weak, "{text}");
        }
        assert!(!verifier().is_weak());
    }

    #[test]
    fn a_secret_is_one_long_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        let read = |text: &str| {
            crate::tests::secret(&path, text);
            JwtVerifier::secret(&path).map_err(|error| error.to_string())
        };
        for end in ["", "\n", "\r\n"] {
            assert_eq!(read(&format!("{SECRET}{end}")).as_deref(), Ok(SECRET));
        }
        for (text, want) in [
            ("", "secret:1: the secret has 0 bytes"),
            ("\n", "secret:1: the secret has 0 bytes"),
            (&"x".repeat(31), "secret:1: the secret has 31 bytes"),
            (&format!("{SECRET}\n{SECRET}"), "secret:2: a second line"),
            (&format!("{SECRET}\n\n"), "secret:2: a second line"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(want) && !error.contains(SECRET), "{text}: {error}");
        }
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644))
            .unwrap();
        assert!(
            JwtVerifier::secret(&path).unwrap_err().to_string().contains("everyone can open it")
        );
        assert!(!format!("{:?}", verifier()).contains("a-secret"));
    }

    proptest! {
        #[test]
        fn no_text_is_a_token(text in ".{0,60}", header in "[ -~]{0,30}", claims in "[ -~]{0,40}") {
            prop_assert!(verified(&text).is_err());
            prop_assert!(verified(&token(SECRET, &header, CLAIMS)).is_err());
            prop_assert!(of_claims(&claims).is_err());
        }
    }
}
