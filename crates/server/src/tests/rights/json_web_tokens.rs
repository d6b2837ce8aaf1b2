//! JSON Web Tokens of a server: callers, rejections, the audit, reloads.

use super::{JSON, with};
use crate::Limits;
use crate::auth::tokens::json_web_tokens::tests::token;
use crate::tests::{Site, secret};

const SECRET: &str = "a-secret-of-the-site-with-48-characters-no-repeats";
const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;
const ROW: &[u8] = br#"{"device_id": "n1", "metric_id": "inserted", "value": 7}"#;

fn site(flags: &[(&str, &str)]) -> Site {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jwt");
    secret(&path, SECRET);
    let path = path.to_str().unwrap().to_owned();
    let flags = [&[("access.jwt_secret_file", &*path)], flags].concat();
    Site::within(dir, Limits::default(), &flags)
}

fn of_role(role: &str) -> String {
    token(SECRET, HEADER, &format!(r#"{{"role":"{role}"}}"#))
}

#[test]
fn a_token_of_kwollect_inserts_and_reads_nothing() {
    let site = site(&[]);
    let kwuser = of_role("kwuser");
    let insert = |headers: &str| site.send("POST /rpc/insert_metrics", headers, ROW).status;
    assert_eq!(insert(&with(&kwuser, JSON)), 200);
    let read = site.send("GET /rpc/get_metrics?nodes=n1", &with(&kwuser, ""), b"");
    assert!(read.status == 403 && read.text().contains("scope `push`"), "{read:?}");
    let me = site.send("POST /rpc/update_promoted_metrics", &with(&kwuser, JSON), b"{}");
    assert_eq!(me.status, 200);
    // As the password of a browser's prompt, too.
    use base64::Engine;
    let pair = base64::engine::general_purpose::STANDARD.encode(format!("x:{kwuser}"));
    let basic = format!("Host: localhost\r\nAuthorization: Basic {pair}\r\n{JSON}");
    assert_eq!(insert(&basic), 200);
    let dir = site.stop();
    let audit = std::fs::read_to_string(dir.path().join("data/audit-users.log")).unwrap();
    let lines: Vec<serde_json::Value> =
        audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let who = "a JSON Web Token of role `kwuser` (`push`)";
    assert!(!lines.is_empty() && lines.iter().all(|line| line["actor"] == who), "{audit}");
}

#[test]
fn rejected_tokens_are_counted_and_name_the_reason() {
    let site = site(&[("access.jwt_roles", "kwuser=push,ann=user:1234")]);
    let forged =
        token("another-secret-of-more-than-32-characters-too", HEADER, r#"{"role":"kwuser"}"#);
    let now = crate::now().seconds();
    let until = |end: f64| token(SECRET, HEADER, &format!(r#"{{"role":"kwuser","exp":{end}}}"#));
    let none = token(SECRET, r#"{"alg":"none"}"#, r#"{"role":"kwuser"}"#);
    for (token, status, text, reason) in [
        (until(now + 60.0), 403, "scope `push`", None),
        (forged, 401, "has another signature", Some("signature")),
        (until(now - 60.0), 401, "has expired", Some("expired")),
        (of_role("other"), 401, "`access.jwt_roles` does not name", Some("role")),
        (of_role("admin"), 401, "`access.jwt_roles` does not name", Some("role")),
        (none.clone(), 401, "is not signed with HS256", Some("algorithm")),
        (none.rsplit_once('.').unwrap().0.to_owned() + ".", 401, "HS256", Some("algorithm")),
        ("a.b.c".to_owned(), 401, "no valid header", Some("malformed")),
        (format!("{}.b.c", "a".repeat(5000)), 401, "more than 4096 bytes", Some("too_long")),
        ("abcdefgh".to_owned(), 401, "unknown, expired or revoked", None),
        ("e30.e30.e30.e30.e30".to_owned(), 401, "unknown, expired or revoked", None),
    ] {
        let count =
            |reason| site.metric(&format!("jobmeter_jwt_rejected_total{{reason=\"{reason}\"}}"));
        let before = reason.map(count);
        // A caller whom the kernel identifies gains nothing by a wrong token.
        let answer = site.send("GET /api/v1/nodes", &with(&token, ""), b"");
        assert_eq!(answer.status, status, "{token}");
        assert!(answer.text().contains(text), "{token}: {answer:?}");
        assert_eq!(reason.map(count), before.map(|before| before + 1.0), "{token}");
    }
    assert_eq!(site.metric("jobmeter_refusals_total{reason=\"identity\"}"), 10.0);
    // A token of a user acts as the user, and creates no token that outlives it.
    let ann = of_role("ann");
    let me = site.send("GET /api/v1/me", &with(&ann, ""), b"").json();
    assert_eq!((&me["role"], &me["uid"]), (&"user".into(), &1234.into()));
    let made = site.send("POST /api/v1/tokens", &with(&ann, JSON), br#"{"scope": "read"}"#);
    assert_eq!(made.status, 403, "{made:?}");
}

#[test]
fn headers_beyond_the_limit_are_rejected() {
    let site = site(&[]);
    let huge = format!("{}.{}.{}", "a".repeat(60_000), "b".repeat(60_000), "c".repeat(60_000));
    let answer = site.send("GET /api/v1/nodes", &with(&huge, ""), b"");
    assert_eq!(answer.status, 431);
}

#[test]
fn a_token_of_the_token_file_is_never_taken_for_another() {
    let dir = tempfile::tempdir().unwrap();
    let kwuser = of_role("kwuser");
    secret(&dir.path().join("jwt"), SECRET);
    secret(&dir.path().join("tokens"), &format!("admin aaa.bbb.ccc\nstaff {kwuser}\n"));
    let path = dir.path().join("jwt").to_str().unwrap().to_owned();
    let site = Site::within(dir, Limits::default(), &[("access.jwt_secret_file", &path)]);
    let role =
        |token: &str| site.send("GET /api/v1/me", &with(token, ""), b"").json()["role"].clone();
    assert_eq!((role("aaa.bbb.ccc"), role(&kwuser)), ("admin".into(), "staff".into()));
    // A hash of a token is no secret of tokens, and a secret is no token.
    assert_eq!(site.send("GET /api/v1/me", &with(SECRET, ""), b"").status, 401);
}

#[test]
fn the_secret_is_reloaded_and_a_bad_one_changes_nothing() {
    let site = site(&[]);
    let server = site.server.as_ref().unwrap();
    let path = site.dir.path().join("jwt");
    let flags = [("access.jwt_secret_file", path.to_str().unwrap())];
    let reload = || site.runtime.block_on(server.reload(&Site::config(&site.dir, &flags)));
    let status = |secret: &str| {
        let token = token(secret, HEADER, r#"{"role":"kwuser"}"#);
        site.send("POST /rpc/insert_metrics", &with(&token, JSON), ROW).status
    };
    let next = "another-secret-with-more-than-32-characters-in-it";
    assert_eq!((status(SECRET), status(next)), (200, 401));
    secret(&path, next);
    reload().unwrap();
    assert_eq!((status(SECRET), status(next)), (401, 200));
    secret(&path, "short\n");
    let error = reload().unwrap_err().to_string();
    assert!(error.contains("jwt:1: the secret has 5 bytes"), "{error}");
    assert_eq!(status(next), 200);
    let wrong = [flags[0], ("access.jwt_roles", "kwuser=pusher")];
    let error = site.runtime.block_on(server.reload(&Site::config(&site.dir, &wrong))).unwrap_err();
    assert!(error.to_string().contains("access.jwt_roles: `kwuser=pusher`"), "{error}");
    // Without the setting the server accepts no token.
    site.runtime.block_on(server.reload(&Site::config(&site.dir, &[]))).unwrap();
    let answer = site.send("GET /api/v1/me", &with(&of_role("kwuser"), ""), b"");
    assert!(answer.status == 401 && answer.text().contains("jwt_secret_file"), "{answer:?}");
}
