//! Pages of other origins: what they read, and that they change nothing.

use super::JSON;
use crate::Limits;
use crate::tests::{Answer, Site};
use api::{Method, Operation};

const ORIGINS: &str = "https://grafana.example,http://127.0.0.1:3000,https://b.example:8443";
const GRAFANA: &str = "https://grafana.example";

fn site(flags: &[(&str, &str)]) -> Site {
    Site::with(Limits::default(), &[&[("access.origins", ORIGINS)], flags].concat())
}

fn from(site: &Site, origin: &str, line: &str, more: &str) -> Answer {
    let headers = format!("Host: localhost\r\nOrigin: {origin}\r\n{more}{JSON}");
    let body: &[u8] =
        if line.starts_with("POST") { br#"{"query": "SELECT 1 AS one"}"# } else { b"" };
    site.send(line, &headers, body)
}

fn allowed(answer: &Answer) -> Option<&str> {
    answer.header("access-control-allow-origin")
}

const TOKEN: &str = "Authorization: Bearer token-of-1234\r\n";

#[test]
fn pages_of_named_origins_read() {
    let site = site(&[]);
    for origin in [GRAFANA, "http://127.0.0.1:3000", "https://b.example:8443"] {
        for line in ["GET /api/v1/nodes", "HEAD /api/v1/nodes", "POST /api/v1/sql", "GET /metrics"]
        {
            let more = format!("Sec-Fetch-Site: cross-site\r\n{TOKEN}");
            let answer = from(&site, origin, line, &more);
            assert_eq!((answer.status, allowed(&answer)), (200, Some(origin)), "{line}");
            assert!(answer.head.to_ascii_lowercase().contains("vary: origin"), "{answer:?}");
            assert_eq!(answer.header("access-control-allow-credentials"), None);
        }
    }
    // The page can read why a request failed.
    let denied = from(&site, GRAFANA, "GET /api/v1/nodes", "Authorization: Bearer wrong-token\r\n");
    assert_eq!((denied.status, allowed(&denied)), (401, Some(GRAFANA)));
    // Answers to other requests differ, so a cache must distinguish them, too.
    let other = site.get("/api/v1/nodes");
    assert!(allowed(&other).is_none() && other.head.to_ascii_lowercase().contains("vary: origin"));
}

/// The page's browser runs as a user of the server's machine, and the page has another author.
#[test]
fn a_page_gets_no_rights_from_the_machine_of_its_browser() {
    let with_nodes = [("access.anonymous", "nodes")];
    for (flags, status) in [(&[][..], 401), (&with_nodes[..], 200)] {
        let site = site(flags);
        for line in ["GET /api/v1/nodes", "POST /api/v1/sql"] {
            assert_eq!(from(&site, GRAFANA, line, "").status, status, "{line}");
            assert_eq!(
                from(&site, "http://localhost", line, "").status,
                200,
                "its own page: {line}"
            );
        }
        let me = from(&site, GRAFANA, "GET /api/v1/me", "");
        assert!(status == 401 || me.json()["role"] == "nobody", "{me:?}");
        assert_eq!(from(&site, GRAFANA, "GET /api/v1/audit", "").status / 100, 4);
    }
}

#[test]
fn other_origins_read_nothing() {
    let site = site(&[]);
    for origin in [
        "null",
        "*",
        "",
        "https://GRAFANA.example",
        "HTTPS://grafana.example",
        "https://grafana.example.",
        "https://grafana.example:443",
        "https://grafana.example/",
        "https://grafana.example.evil.example",
        "https://evil-grafana.example",
        "https://evil.example#https://grafana.example",
        "http://grafana.example",
        "https://grafana.example, https://evil.example",
        "https://grafana.example https://evil.example",
        "https://grafana.exampl",
        "http://127.0.0.1",
        "http://127.0.0.1:30000",
        "https://b.example",
    ] {
        let read = from(&site, origin, "GET /api/v1/nodes", TOKEN);
        assert_eq!((read.status, allowed(&read)), (200, None), "{origin}");
        let query = from(&site, origin, "POST /api/v1/sql", TOKEN);
        assert_eq!((query.status, allowed(&query)), (403, None), "{origin}");
        let asked =
            from(&site, origin, "OPTIONS /api/v1/nodes", "Access-Control-Request-Method: GET\r\n");
        assert_eq!((asked.status, allowed(&asked)), (403, None), "{origin}");
    }
    let two = format!("Origin: {GRAFANA}\r\n");
    for (line, status) in [("GET /api/v1/nodes", 200), ("POST /api/v1/sql", 403)] {
        let answer = from(&site, GRAFANA, line, &format!("{two}{TOKEN}"));
        assert_eq!((answer.status, allowed(&answer)), (status, None), "two origins");
    }
    let foreign = site.send("GET /api/v1/nodes", &format!("Host: evil.example\r\n{two}"), b"");
    assert_eq!(foreign.status, 421, "a page does not choose the host");
}

/// Of every operation: a page may send what reads, and nothing else.
#[test]
fn pages_change_nothing() {
    let site = site(&[]);
    let admin = "Authorization: Bearer token-of-admins\r\nSec-Fetch-Site: cross-site\r\n";
    for operation in Operation::ALL.iter().copied() {
        let path = operation.path().replace(['{', '}'], "");
        let method = match operation.method() {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Delete => "DELETE",
        };
        let sent = from(&site, GRAFANA, &format!("{method} {path}"), admin);
        let asked = format!("Access-Control-Request-Method: {method}\r\n");
        let asked = from(&site, GRAFANA, &format!("OPTIONS {path}"), &asked);
        let reads = matches!(
            operation,
            Operation::PostGetMetrics | Operation::PostAvailableMetrics | Operation::Sql
        ) || operation.method() == Method::Get;
        if reads {
            assert_ne!(sent.status, 403, "{operation:?}");
            assert_eq!(allowed(&sent), Some(GRAFANA), "{operation:?}");
            assert_eq!((asked.status, allowed(&asked)), (204, Some(GRAFANA)), "{operation:?}");
        } else {
            assert_eq!((sent.status, allowed(&sent)), (403, None), "{operation:?}");
            assert_eq!((asked.status, allowed(&asked)), (403, None), "{operation:?}");
        }
    }
    for method in ["PUT", "PATCH", "DELETE", "get", "TRACE"] {
        let asked = format!("Access-Control-Request-Method: {method}\r\n");
        let asked = from(&site, GRAFANA, "OPTIONS /api/v1/nodes", &asked);
        assert_eq!((asked.status, allowed(&asked)), (403, None), "{method}");
    }
    let inserted = from(&site, GRAFANA, "POST /sites/x/metrics", admin);
    assert_eq!((inserted.status, allowed(&inserted)), (403, None));
}

#[test]
fn a_preflight_names_methods_and_headers() {
    let site = site(&[]);
    let ask = |path: &str, method: &str| {
        let more = format!(
            "Access-Control-Request-Method: {method}\r\nAccess-Control-Request-Headers: authorization,content-type\r\n"
        );
        from(&site, GRAFANA, &format!("OPTIONS {path}"), &more)
    };
    let answer = ask("/api/v1/sql", "POST");
    assert_eq!(answer.header("access-control-allow-methods"), Some("GET, HEAD, POST"));
    let headers = answer.header("access-control-allow-headers").unwrap();
    assert!(headers.contains("Authorization") && headers.contains("Content-Type"), "{headers}");
    assert_eq!(answer.header("access-control-max-age"), Some("600"));
    assert!(answer.body.is_empty());
    let answer = ask("/api/v1/jobs", "GET");
    assert_eq!(answer.header("access-control-allow-methods"), Some("GET, HEAD"), "POST registers");
    assert_eq!(from(&site, GRAFANA, "OPTIONS /api/v1/nodes", "").status, 405, "no preflight");
}

#[test]
fn without_the_setting_no_page_reads() {
    let site = Site::start();
    let answer = from(&site, GRAFANA, "GET /api/v1/nodes", TOKEN);
    assert!(
        allowed(&answer).is_none() && !answer.head.to_ascii_lowercase().contains("vary: origin")
    );
    let asked = "Access-Control-Request-Method: GET\r\n";
    assert_eq!(from(&site, GRAFANA, "OPTIONS /api/v1/nodes", asked).status, 405);
    // SIGHUP applies the setting.
    let server = site.server.as_ref().unwrap();
    let config = Site::config(&site.dir, &[("access.origins", GRAFANA)]);
    site.runtime.block_on(server.reload(&config)).unwrap();
    assert_eq!(allowed(&from(&site, GRAFANA, "GET /api/v1/nodes", TOKEN)), Some(GRAFANA));
}
