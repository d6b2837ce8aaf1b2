//! Access control: names, origins, tokens.

mod colmet_input;
mod json_web_tokens;
mod page_origins;

use super::{Site, secret};
use crate::{Limits, ReloadError, Server, StartError};

fn with(token: &str, more: &str) -> String {
    format!("Host: localhost\r\nAuthorization: Bearer {token}\r\n{more}")
}

const JSON: &str = "Content-Type: application/json\r\n";

#[test]
fn a_user_learns_that_an_agents_batches_are_not_accepted() {
    let site = Site::start();
    let knock = |token: &str| {
        let headers = format!(
            "Host: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: application/x-jobmeter-knock\r\n"
        );
        site.send("POST /v1/batches", &headers, b"").status
    };
    assert_eq!(["token-of-1234", "token-of-agents", "token-of-admins"].map(knock), [403, 415, 415]);
}

#[test]
fn foreign_hosts_and_origins_are_rejected_and_counted() {
    let site = Site::start();
    let send = |line: &str, headers: &str| {
        let headers = format!("{JSON}{headers}");
        site.send(line, &headers, br#"{"device": "n1"}"#)
    };
    let answer = send("GET /api/v1/nodes", "Host: evil.example\r\n");
    assert_eq!(answer.status, 421);
    assert!(answer.json()["message"].as_str().unwrap().contains("`names`"));
    assert_eq!(send("GET /", "Host: evil.example\r\n").status, 421);
    let foreign = "Host: localhost\r\nOrigin: http://evil.example\r\n";
    assert_eq!(send("POST /api/v1/jobs", foreign).status, 403);
    let answer = send("GET /api/v1/nodes", foreign);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("access-control-allow-origin"), None);
    let own = "Host: localhost\r\nOrigin: http://localhost\r\n";
    assert_eq!(send("POST /api/v1/jobs", own).status, 200);
    assert_eq!(site.metric("jobmeter_refusals_total{reason=\"host\"}"), 2.0);
    assert_eq!(site.metric("jobmeter_refusals_total{reason=\"origin\"}"), 1.0);
    assert_eq!(site.get("/api/v1/jobs").json().as_array().unwrap().len(), 1);
}

#[test]
fn every_answer_carries_what_keeps_browsers_safe() {
    let site = Site::start();
    for path in ["/", "/api/v1/nodes", "/nothing"] {
        let answer = site.get(path);
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'self'"), "{path}");
        let kept = if path == "/" { "no-cache" } else { "no-store" };
        assert_eq!(answer.header("cache-control"), Some(kept), "{path}");
        assert_eq!(answer.header("strict-transport-security"), None, "without TLS: {path}");
    }
}

#[test]
fn without_identity_by_loopback_a_token_alone_names_a_caller() {
    let site = Site::with(Limits::default(), &[("access.loopback", "none")]);
    let me = |headers: &str| site.send("GET /api/v1/me", headers, b"").status;
    assert_eq!(me("Host: localhost\r\n"), 401, "this test's user is the server's own");
    assert_eq!(me("Host: localhost\r\nAuthorization: Bearer token-of-admins\r\n"), 200);
    let server = site.server.as_ref().unwrap();
    site.runtime.block_on(server.reload(&Site::config(&site.dir, &[]))).unwrap();
    assert_eq!(me("Host: localhost\r\n"), 200, "the setting is taken anew on SIGHUP");
}

#[test]
fn somebody_behind_a_proxy_has_no_rights_without_a_token() {
    let site = Site::start();
    let proxied = "Host: localhost\r\nX-Forwarded-For: 192.0.2.1\r\n";
    for (line, want) in [
        ("GET /api/v1/nodes", 401),
        ("GET /metrics", 401),
        ("POST /v1/batches", 401),
        ("POST /api/v1/jobs", 401),
        ("GET /api/v1/ready", 200),
        ("GET /", 200),
    ] {
        let answer = site.send(line, proxied, b"");
        assert_eq!(answer.status, want, "{line}");
        assert_eq!(answer.header("www-authenticate").is_some(), want == 401);
    }
    // Each of these alone shows that the connection's user is a proxy's.
    for header in [
        "Forwarded",
        "Via",
        "X-Forwarded-For",
        "X-Forwarded-Host",
        "X-Forwarded-Proto",
        "X-Real-IP",
        "X-Client-IP",
        "X-Cluster-Client-IP",
        "X-Originating-IP",
        "X-Remote-IP",
        "CF-Connecting-IP",
        "True-Client-IP",
        "Fastly-Client-IP",
        "Client-IP",
        "X-Azure-ClientIP",
        "X-Envoy-External-Address",
        "X-Forwarded-Port",
        "X-Forwarded-Server",
        "X-Original-Forwarded-For",
        "X-ProxyUser-IP",
    ] {
        let headers = format!("Host: localhost\r\n{header}: 192.0.2.1\r\n");
        assert_eq!(site.send("GET /api/v1/nodes", &headers, b"").status, 401, "{header}");
    }
    let token = format!("{proxied}Authorization: Bearer token-of-admins\r\n");
    assert_eq!(site.send("GET /api/v1/nodes", &token, b"").status, 200);
}

#[test]
fn a_user_sees_and_ends_no_job_of_somebody_else() {
    let site = Site::start();
    let begun =
        site.send("POST /api/v1/jobs", &with("token-of-1234", JSON), br#"{"device": "n1"}"#);
    let id = begun.json()["id"].as_i64().unwrap();
    let (report, end) =
        (format!("GET /api/v1/jobs/local:{id}"), format!("POST /api/v1/jobs/{id}/end"));
    let of = |token: &str, line: &str| site.send(line, &with(token, JSON), b"{}");

    // For others the job does not exist: they get the same status and body as for an unused ID.
    for token in ["token-of-77", "token-of-guests"] {
        for (before, after) in [
            ("GET /api/v1/jobs/local:", ""),
            ("GET /api/v1/jobs/", ""),
            ("POST /api/v1/jobs/", "/end"),
            ("GET /rpc/get_metrics?job_id=", ""),
            ("GET /api/v1/range?job=", ""),
            ("GET /api/v1/series?job=local:", ""),
        ] {
            let send = |id: &str| {
                let answer = of(token, &format!("{before}{id}{after}"));
                (answer.status, answer.text().replace(id, "ID"))
            };
            let (theirs, no_job) = (send(&id.to_string()), send("987654"));
            assert_eq!(theirs, no_job, "{token} {before}");
        }
    }
    assert_eq!(of("token-of-77", &report).status, 404);
    assert_eq!(of("token-of-77", "GET /api/v1/jobs").json(), serde_json::json!([]));
    let path = format!("GET /rpc/get_metrics?job_id={id}");
    assert_eq!(of("token-of-1234", &path).status, 200);
    assert_eq!(of("token-of-1234", "GET /api/v1/jobs").json()[0]["uid"], 1234);
    let ended = of("token-of-1234", &end);
    assert_eq!((ended.status, ended.json()["state"].as_str()), (200, Some("ended")), "{ended:?}");
    assert_eq!(of("token-of-admins", &report).status, 200);
    // Further ends change nothing, and the audit does not record them.
    for _ in 0..20 {
        assert_eq!(of("token-of-1234", &end).status, 200);
    }
    let audit = || of("token-of-admins", "GET /api/v1/audit").json();
    let ends = || {
        let audit = audit();
        let lines = audit.as_array().unwrap().iter();
        lines.filter(|line| line["action"].as_str().unwrap().ends_with("/end")).count()
    };
    super::until("the end is reported", || ends() > 0);
    assert_eq!(ends(), 1);
}

#[test]
fn a_jobs_user_is_the_caller_and_never_taken_from_the_request() {
    let site = Site::start();
    let root = br#"{"device": "n1", "uid": 0, "user": "root"}"#;
    let rejected = site.send("POST /api/v1/jobs", &with("token-of-77", JSON), root);
    assert_eq!(rejected.status, 400, "{rejected:?}");
    let body = br#"{"device": "n1"}"#;
    let begun = site.send("POST /api/v1/jobs", &with("token-of-77", JSON), body);
    assert_eq!(begun.status, 200, "{begun:?}");
    assert_eq!(site.get("/api/v1/jobs").json()[0]["uid"], 77);
    for token in ["token-of-admins", "token-of-guests", "token-of-n1"] {
        let begun = site.send("POST /api/v1/jobs", &with(token, JSON), body);
        assert_eq!(begun.status, 403, "{token} names no user");
    }
    let scope = br#"{"scope": "read"}"#;
    let made = site.send("POST /api/v1/tokens", &with("token-of-77", JSON), scope).json();
    let token = made["token"].as_str().unwrap_or_else(|| panic!("{made}"));
    let begun = site.send("POST /api/v1/jobs", &with(token, JSON), body);
    let message = begun.json()["message"].to_string();
    assert!(begun.status == 403 && message.contains("may only read"), "{message}");
}

#[test]
fn tokens_are_reloaded_and_bad_ones_change_nothing() {
    let site = Site::start();
    let server = site.server.as_ref().unwrap();
    let status = |token: &str| site.send("GET /api/v1/nodes", &with(token, ""), b"").status;
    let reload = || site.runtime.block_on(server.reload(&Site::config(&site.dir, &[])));
    assert_eq!((status("token-of-admins"), status("another-token")), (200, 401));
    secret(&site.dir.path().join("tokens"), "admin another-token\n");
    reload().unwrap();
    assert_eq!((status("token-of-admins"), status("another-token")), (401, 200));
    secret(&site.dir.path().join("tokens"), "admin another-token\nadmn third-token\n");
    let error = reload().unwrap_err().to_string();
    assert!(error.contains("tokens:2") && error.contains("`admin`"), "{error}");
    assert_eq!((status("third-token"), status("another-token")), (401, 200));
}

#[test]
fn nobody_else_is_let_in_without_a_token_and_tls() {
    let start = |tokens: &str, flags: &[(&str, &str)]| {
        let dir = tempfile::tempdir().unwrap();
        secret(&dir.path().join("tokens"), tokens);
        // The configuration rejects most of these cases first. The server must reject them by itself.
        let mut config = Site::config(&dir, flags);
        let addresses = ["127.0.0.1:0", "0.0.0.0:0"];
        config.listen.listen = addresses.map(|text| config::Address(text.parse().unwrap())).into();
        let data = dir.path().join("data");
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let limits = Limits::default();
        let settings = crate::Settings {
            config,
            data,
            passed: Default::default(),
            sql_worker: None,
            listen_given: true,
            agent_config: None,
            limits,
        };
        let started = runtime.block_on(Server::start(settings));
        (started.map(|server| runtime.block_on(server.stop())), dir)
    };
    let (rejected, dir) = start("", &[("plain", "true")]);
    let Err(StartError::ReloadableConfig(errors)) = rejected else { panic!("it started") };
    assert!(matches!(errors.0[..], [ReloadError::NoToken(_)]), "{errors:?}");
    assert!(!dir.path().join("data").try_exists().unwrap(), "nothing is touched");
    let (rejected, _) = start("admin 12345678\n", &[]);
    let Err(StartError::ReloadableConfig(errors)) = rejected else { panic!("it started") };
    assert!(matches!(errors.0[..], [ReloadError::NoTls(_)]), "{errors:?}");
    let (started, _) = start("admin 12345678\n", &[("plain", "true")]);
    assert!(matches!(started, Ok(Ok(()))), "{started:?}");
}

#[test]
fn a_token_for_jobs_registers_and_ends_those_of_its_cluster_and_reads_nothing() {
    let site = Site::start();
    let send =
        |token: &str, line: &str, body: &str| site.send(line, &with(token, JSON), body.as_bytes());
    let make = |scope: &str| {
        let body = serde_json::json!({"scope": scope}).to_string();
        let made = send("token-of-admins", "POST /api/v1/tokens", &body).json();
        assert_eq!(made["info"]["scope"], scope);
        made["token"].as_str().unwrap().to_owned()
    };
    let (slurms, anys) = (make("jobs:slurm"), make("jobs"));
    let began = crate::now().plus(-100 * model::Timestamp::SECOND).seconds();
    let report = |token: &str, cluster: &str| {
        let job = serde_json::json!({
            "cluster": cluster, "id": 7, "user": "ann", "account": "physics", "start": began,
            "nodes": [{"device": "n1"}],
        });
        send(token, "POST /api/v1/jobs", &job.to_string()).status
    };
    assert_eq!(
        [report(&slurms, "slurm"), report(&slurms, "oar"), report(&anys, "oar")],
        [200, 403, 200]
    );
    // No token can be created for local jobs, which belong to their users.
    let local = send("token-of-admins", "POST /api/v1/tokens", r#"{"scope": "jobs:local"}"#);
    assert_eq!(local.status, 400, "{local:?}");
    let long = r#"{"scope": "read:0", "expires_in_seconds": 8639913600}"#;
    let long = send("token-of-admins", "POST /api/v1/tokens", long);
    assert!(long.text().contains("and 3660 d at most (316224000 s)"), "{long:?}");

    let end = |name: &str, more: &str| {
        let line = format!("POST /api/v1/jobs/{name}/end{more}");
        send(&slurms, &line, r#"{"exit_code": 3}"#)
    };
    let ended = end("slurm:7", "");
    let got = ended.json();
    assert_eq!(
        (ended.status, &got["state"], &got["exit_code"]),
        (200, &"failed".into(), &3.into())
    );
    for key in ["user", "account", "start", "submit"] {
        assert_eq!(got[key], serde_json::Value::Null, "{key} is not his to read: {got}");
    }
    assert_eq!(got["devices"], serde_json::json!([]));
    let again = end("7", "?cluster=slurm");
    assert_eq!((again.status, &again.json()["changed"]), (200, &false.into()));
    for (name, want) in [("7", 400), ("oar:7", 403), ("local:1", 403), ("slurm:8", 404)] {
        assert_eq!(end(name, "").status, want, "{name}");
    }
    assert_eq!(send(&slurms, "POST /api/v1/jobs", r#"{"device": "n1"}"#).status, 403);
    for line in [
        "GET /api/v1/jobs",
        "GET /api/v1/jobs/slurm:7",
        "GET /api/v1/nodes",
        "GET /api/v1/me",
        "GET /api/v1/tokens",
        "POST /api/v1/tokens",
        "GET /rpc/get_metrics?job_id=7",
        "GET /metrics",
    ] {
        let answer = send(&slurms, line, r#"{"scope": "jobs"}"#);
        assert_eq!(answer.status, 403, "{line}: {answer:?}");
    }
    let job = send("token-of-admins", "GET /api/v1/jobs/slurm:7", "").json()["job"].clone();
    assert_eq!((&job["user"], &job["account"]), (&"ann".into(), &"physics".into()));
    assert_eq!((&job["state"], &job["start"]), (&"failed".into(), &began.into()));
    let dir = site.stop();
    let audit = std::fs::read_to_string(dir.path().join("data/audit-users.log")).unwrap();
    let by_slurm = audit.lines().filter(|line| line.contains("token 1 of `jobs`"));
    assert_eq!(by_slurm.filter(|line| line.contains("slurm:7")).count(), 2, "{audit}");
}
