//! What Kwollect's setup prints for PostgREST.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;

/// PostgREST rejects a shorter secret.
const SECRET_CHARS: usize = 32;

/// The secret that Kwollect derives: the password, repeated. Whoever has a token can search for the password.
pub(crate) fn secret(password: &str) -> String {
    let characters = password.chars().count().max(1);
    password.repeat(1 + SECRET_CHARS / characters)
}

/// The configuration of PostgREST that Kwollect's setup prints.
pub fn postgrest_configuration(
    host: &str,
    port: u16,
    database: &str,
    user: &str,
    password: &str,
) -> String {
    let host = if host.contains('/') { "localhost" } else { host };
    let secret = secret(password);
    let (host, database, user_in_url, password) =
        (encoded(host), encoded(database), encoded(user), encoded(password));
    format!(
        "db-uri = \"postgres://{user_in_url}:{password}@{host}:{port}/{database}\"\n\
         db-schema = \"api\"\n\
         db-anon-role = \"{}\"\n\
         jwt-secret = \"{}\"\n",
        quoted(&format!("{user}_ro")),
        quoted(&secret)
    )
}

/// The token of the writing role that Kwollect's setup prints: a JSON Web Token (RFC 7519) with HS256 (RFC 7518).
pub fn token(user: &str, password: &str) -> String {
    let header = URL_SAFE_NO_PAD.encode(br#"{"alg":"HS256","typ":"JWT"}"#);
    let claims = URL_SAFE_NO_PAD.encode(format!("{{\"role\":\"{}\"}}", quoted(user)));
    let text = format!("{header}.{claims}");
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret(password).as_bytes());
    let signature = URL_SAFE_NO_PAD.encode(hmac::sign(&key, text.as_bytes()));
    format!("{text}.{signature}")
}

fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

/// Percent-encodes what has a meaning in a URL.
fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_has_the_signature_of_another_program() {
        // Python's hmac: base64url of the header, of {"role":"kwuser"}, and of their HMAC-SHA256 with "changeme" * 5.
        assert_eq!(secret("changeme"), "changeme".repeat(5));
        assert_eq!(token("kwuser", "changeme"), include_str!("../tests/kwuser.jwt").trim());
    }

    #[test]
    fn what_has_a_meaning_is_quoted() {
        let text =
            postgrest_configuration("/var/run/postgresql/", 5432, "kwdb", "kwuser", "a@b\"c");
        assert!(text.contains("postgres://kwuser:a%40b%22c@localhost:5432/kwdb"), "{text}");
        assert!(text.contains(r#"jwt-secret = "a@b\"ca@b\"c"#), "{text}");
    }
}
