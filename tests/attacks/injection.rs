//! Injection by an ordinary user: texts that are SQL, paths, headers or patterns, in each parameter of each operation, in
//! each argument of each function and in each protocol, on both stores. They change nothing and reveal nothing.
//! `make test` tries a part of the texts in each place, another part in each; `make soak` all.

use crate::attacks::injection_corpus::{SECRET, STATEMENTS, texts};
use crate::attacks::injection_requests::{encoded, in_headers, places, send};
use crate::attacks::pg_sessions::{message, session, until_kind};
use crate::common::database::{Database, query};
use crate::common::programs::{get, output, program, until};
use crate::server::pg::{ALICE, BOB, PUSHER, PgServer, READER, SCHEDULER};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Longest time of an answer; the time limit of a statement is 3 s.
const ANSWER_MAX: Duration = Duration::from_secs(20);

struct Site {
    dir: tempfile::TempDir,
    server: PgServer,
    database: Option<Database>,
}

impl Site {
    fn start(on_postgresql: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o711)).unwrap();
        let folder = dir.path().join("database");
        let parameters = format!("host={} user=kwuser dbname=kwdb", folder.display());
        let mut arguments = vec!["--query-time-max", "3s", "--query-memory-bytes-max", "128MiB"];
        let mut database = None;
        if on_postgresql {
            std::fs::create_dir(&folder).unwrap();
            database = Some(Database::start(&folder));
            let password = dir.path().join("password");
            std::fs::write(&password, "password-of-kwuser\n").unwrap();
            std::fs::set_permissions(&password, PermissionsExt::from_mode(0o600)).unwrap();
            let mut setup = Command::new(program("jobmeter"));
            setup.args(["db", "setup", "--db_admin", "postgres", "--db_host"]).arg(&folder);
            let (code, out, errors) = output(setup.arg("--kwollect_password_file").arg(&password));
            assert_eq!(code, 0, "{out}{errors}");
            arguments.extend(["--store", "postgres", "--postgres-database", &parameters]);
        }
        let server = PgServer::start(dir.path(), &arguments);
        let site = Self { dir, server, database };
        site.fill();
        site
    }

    fn url(&self) -> &str {
        &self.server.server.url
    }

    fn post(&self, token: &str, path: &str, body: &Value) -> (u16, String) {
        let body = body.to_string();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let (status, text, _) = send(self.url(), head.as_bytes());
        (status, text)
    }

    /// A job of each user on one node, the other user's with a secret name and a secret sample; a sample of the node.
    fn fill(&self) {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let start = now.as_secs() - 600;
        for (id, uid, name) in [(7001, 54001, "plain"), (7002, 54002, SECRET)] {
            let job = json!({"cluster": "site", "id": id, "start": start, "uid": uid, "user": format!("u{uid}"),
                "nodes": [{"device": "n1"}], "name": format!("{name}-name"), "project": format!("{name}-project")});
            let (status, text) = self.post(SCHEDULER, "/api/v1/jobs", &job);
            assert_eq!(status, 200, "{text}");
        }
        let row = json!({"device_id": "n1", "metric_id": "load_1m", "value": 1.5});
        let (status, text) = self.post(PUSHER, "/rpc/insert_metrics", &row);
        assert!((200..300).contains(&status), "{text}");
        let secret = json!({"device_id": "n1", "metric_id": format!("{SECRET}_metric"), "value": 424_242.75,
            "job_id": "site:7002", "labels": {"place": format!("{SECRET}-label")}});
        let (status, text) = self.post(BOB, "/rpc/insert_user_metrics", &secret);
        assert!((200..300).contains(&status), "{text}");
        until("the secret sample", Duration::from_secs(20), || {
            let rows = self.server.rows(Some(READER), "SELECT metric_id FROM metrics");
            (rows.contains(SECRET) && rows.contains("load_1m")).then_some(())
        });
    }

    /// Everything that the server stores, but what is the attacker's: rows and jobs with their user ID or job ID.
    fn state(&self) -> BTreeSet<String> {
        let mut state = BTreeSet::new();
        let tables = self.server.rows(Some(READER), "SELECT tablename FROM pg_tables");
        for table in tables.lines() {
            let rows = self.server.rows(Some(READER), &format!("SELECT * FROM {table}"));
            let kept = rows.lines().filter(|row| !row.contains("54001") && !row.contains("7001"));
            // The names of the attacker's own metrics are in the catalogue.
            let kept = kept.filter(|row| table != "catalogue" || row.contains(SECRET));
            state.extend(kept.map(|row| format!("{table}: {row}")));
        }
        for path in
            ["/api/v1/settings", "/api/v1/promotions", "/api/v1/accounts", "/api/v1/pollers"]
        {
            let listed: Value = serde_json::from_str(&get(self.url(), path).1).unwrap();
            let entries = listed.as_array().cloned().unwrap_or_else(|| vec![listed]);
            let kept = entries.iter().map(Value::to_string).filter(|one| !one.contains("54001"));
            state.extend(kept.map(|one| format!("{path}: {one}")));
        }
        if self.database.is_some() {
            let folder = self.dir.path().join("database");
            let mut dump = Command::new("pg_dump");
            dump.arg("-h").arg(&folder).args(["-U", "postgres", "-s", "kwdb"]);
            let (code, out, errors) = output(&mut dump);
            assert_eq!(code, 0, "{errors}");
            // Newer versions add lines with a random key.
            let lines = out.lines().filter(|line| !line.contains("restrict"));
            state.extend(lines.map(|line| format!("schema: {line}")));
            let roles = query(
                &folder,
                "kwdb",
                "postgres",
                "SELECT rolname, rolsuper, rolconfig FROM pg_roles",
            );
            state.insert(roles.unwrap());
        }
        state
    }

    /// Fails if a text has something of the other user's job or of the machine.
    fn check(&self, what: &str, text: &str) {
        let folder = self.dir.path().to_str().unwrap();
        for secret in [
            SECRET,
            "424242",
            "root:x:",
            folder,
            READER,
            BOB,
            PUSHER,
            "password-of-kwuser",
            "panicked",
        ] {
            assert!(!text.contains(secret), "{what} reveals {secret}: {text:.2000}");
        }
    }

    /// Sends requests from several connections at a time, and checks the answers. Returns their number.
    fn attack(&self, requests: &[(String, Vec<u8>)]) -> usize {
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while let Some((what, request)) =
                        requests.get(next.fetch_add(1, Ordering::Relaxed))
                    {
                        let (status, text, time) = send(self.url(), request);
                        // 503 and 507 are defined: not now, and a limit of the user's.
                        assert!(
                            status < 500 || [503, 507].contains(&status),
                            "{what}: {status} {text:.2000}"
                        );
                        assert!(time < ANSWER_MAX, "{what}: {time:?}");
                        assert!(
                            !text.to_lowercase().contains("\nx-injected"),
                            "{what}: {text:.2000}"
                        );
                        assert!(
                            !text.to_lowercase().contains("\nset-cookie"),
                            "{what}: {text:.2000}"
                        );
                        self.check(what, &text);
                    }
                });
            }
        });
        requests.len()
    }
}

/// In `make soak`, every text in every place.
fn is_whole() -> bool {
    std::env::var_os("HOSTILE_SECONDS").is_some()
}

/// The texts for a place: every nth, beginning with another one for each place.
fn some(place: usize, nth: usize) -> impl Iterator<Item = Vec<u8>> {
    let nth = if is_whole() { 1 } else { nth };
    texts().into_iter().skip(place % nth).step_by(nth)
}

impl Site {
    /// Of how many texts a place has one. Both stores parse requests alike.
    fn stride(&self, nth: usize) -> usize {
        if self.database.is_some() { nth * 2 } else { nth }
    }
}

fn document(site: &Site) -> Value {
    serde_json::from_str(&get(site.url(), "/api/v1/openapi.json").1).unwrap()
}

fn by_http(site: &Site) {
    let document = document(site);
    let mut requests = Vec::new();
    let places = places(&document);
    assert!(places.len() > 150, "{}", places.len());
    for (place, number) in places.iter().zip(0..) {
        for text in some(number, site.stride(if place.is_slow { 16 } else { 4 })) {
            let what = format!("{} with {}", place.name, String::from_utf8_lossy(&text));
            requests.push((what, place.request(&text, ALICE)));
        }
    }
    for (text, number) in texts().into_iter().zip(0..) {
        for (request, header) in in_headers(&text, ALICE).into_iter().zip(0..) {
            if is_whole() || (number + header) % 4 == 0 {
                requests.push((
                    format!("header {header} with {}", String::from_utf8_lossy(&text)),
                    request,
                ));
            }
        }
    }
    for statement in STATEMENTS {
        let body = json!({"query": statement}).to_string();
        let head = format!(
            "POST /api/v1/sql HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ALICE}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        requests.push(((*statement).to_owned(), head.into_bytes()));
    }
    let count = site.attack(&requests);
    println!("{count} requests in {} places", places.len());
}

/// The functions and their arguments.
fn arguments(document: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        let Some(function) = path.strip_prefix("/rpc/") else { continue };
        for parameter in operations["get"]["parameters"].as_array().into_iter().flatten() {
            let name = parameter["name"].as_str().unwrap();
            if !["select", "order", "limit", "offset", "and", "or", "conditions"].contains(&name) {
                found.push((function.to_owned(), name.to_owned()));
            }
        }
    }
    assert!(found.len() > 10, "{found:?}");
    found
}

/// A statement without a text and with it: pasted between quotes, and as a parameter.
fn by_wire(site: &Site) {
    let (mut stream, _) = session(site.server.port, ALICE);
    let mut request = |what: &str, bytes: &[u8]| {
        let began = std::time::Instant::now();
        stream.write_all(bytes).unwrap();
        let answers = until_kind(&mut stream, b'Z');
        assert!(began.elapsed() < ANSWER_MAX, "{what}");
        for (_, body) in &answers {
            site.check(what, &String::from_utf8_lossy(body));
        }
        answers.iter().any(|(kind, _)| *kind == b'E')
    };
    for ((function, argument), number) in arguments(&document(site)).into_iter().zip(0..) {
        let usual =
            if argument != "nodes" && function == "get_metrics" { "nodes => 'n1', " } else { "" };
        let call =
            |value: &str| format!("SELECT * FROM api.{function}({usual}{argument} => {value})\0");
        for text in some(number, site.stride(16)) {
            let what = format!("{function}.{argument} with {}", String::from_utf8_lossy(&text));
            let pasted =
                [call("'").trim_end_matches([')', '\0']).as_bytes(), &text, b"')\0"].concat();
            // PostgreSQL's texts have no NUL: the message would end there.
            if text.contains(&0) || std::str::from_utf8(&text).is_err() {
                continue;
            }
            request(&what, &message(b'Q', &pasted));
            let parse = [&b"\0"[..], call("$1").as_bytes(), b"\0\0"].concat();
            let length = u32::try_from(text.len()).unwrap().to_be_bytes();
            let bind = [&b"\0\0\0\0\0\x01"[..], &length, &text, b"\0\0"].concat();
            let messages = [
                message(b'P', &parse),
                message(b'B', &bind),
                message(b'E', b"\0\0\0\0\0"),
                message(b'S', b""),
            ];
            request(&what, &messages.concat());
        }
    }
    for statement in STATEMENTS {
        request(statement, &message(b'Q', format!("{statement}\0").as_bytes()));
    }
    assert!(
        !request("afterwards", &message(b'Q', b"ROLLBACK; SELECT 1\0")),
        "the session continues"
    );
}

/// The functions in the database, called by its reading role.
fn in_database(folder: &Path, site: &Site) {
    let listed = "SELECT p.proname, a.name FROM pg_proc p, unnest(p.proargnames, p.proargmodes) AS a(name, mode) \
                  WHERE p.pronamespace = 'api'::regnamespace AND coalesce(a.mode, 'i') = 'i' AND a.name <> '' \
                  AND has_function_privilege('kwuser_ro', p.oid, 'EXECUTE')";
    let listed = query(folder, "kwdb", "postgres", listed).unwrap();
    assert!(listed.lines().count() > 8, "{listed}");
    let mut script = String::from("SET statement_timeout = '1s';\n");
    for (line, number) in listed.lines().zip(0..) {
        let (function, argument) = line.split_once('|').unwrap();
        for text in some(number, 4).filter_map(|text| String::from_utf8(text).ok()) {
            if text.contains('\0') {
                continue;
            }
            let quoted = text.replace('\'', "''");
            script.push_str(&format!("SELECT * FROM api.{function}({argument} => '{quoted}');\n"));
        }
    }
    for statement in STATEMENTS {
        // Its own role may wait, and see its own settings: what PostgreSQL permits everyone.
        script.push_str(&format!("BEGIN READ ONLY;\n{statement};\nROLLBACK;\n"));
    }
    let file = folder.parent().unwrap().join("script.sql");
    std::fs::write(&file, script).unwrap();
    let mut psql = Command::new("psql");
    psql.arg("-h")
        .arg(folder)
        .args(["-X", "-At", "-v", "VERBOSITY=verbose", "-U", "kwuser_ro", "-d", "kwdb", "-f"])
        .arg(&file);
    let (code, out, errors) = output(&mut psql);
    assert_eq!(code, 0, "{errors:.2000}");
    for line in out.lines().filter(|line| !line.starts_with('/')) {
        site.check("a function of the database", line);
    }
    let reported: Vec<&str> = errors.lines().filter(|line| line.contains("ERROR")).collect();
    assert!(reported.iter().all(|line| !line.contains("424242")), "{errors:.2000}");
    assert!(!reported.iter().any(|line| line.contains("XX000")), "{errors:.2000}");
}

fn run(on_postgresql: bool) {
    let site = Site::start(on_postgresql);
    // The secrets would be found: their owner reads them.
    let own = "SELECT j.name, m.metric_id, m.value FROM jobs j, metrics m WHERE m.job_id = 7002";
    assert!(site.server.rows(Some(BOB), own).contains("quokka-name|quokka_metric|424242.75"));
    let before = site.state();
    assert!(before.iter().any(|row| row.contains(SECRET)), "{before:?}");
    let began = std::time::Instant::now();
    by_http(&site);
    println!("HTTP: {:?}", began.elapsed());
    by_wire(&site);
    println!("protocol: {:?}", began.elapsed());
    if on_postgresql {
        in_database(&site.dir.path().join("database"), &site);
        println!("database: {:?}", began.elapsed());
    }
    let after = site.state();
    let changed: Vec<_> = before.symmetric_difference(&after).take(20).collect();
    assert!(changed.is_empty(), "{changed:#?}");
    let (_, metrics) = get(site.url(), "/metrics");
    assert!(metrics.contains("jobmeter_refusals_total{reason=\"fault\"} 0"), "{metrics}");
    let mut server = site.server;
    assert_eq!(server.server.running.end(), 0, "{}", server.server.running.errors());
}

#[test]
fn injected_texts_change_and_reveal_nothing_on_the_embedded_store() {
    run(false);
}

#[test]
fn injected_texts_change_and_reveal_nothing_on_postgresql() {
    run(true);
}

#[test]
fn every_listed_device_is_accepted_in_a_query() {
    let site = Site::start(true);
    let folder = site.dir.path().join("database");
    let names =
        ["a/b", "a,b", "-x", ".x", " x ", "say \"hi\"", "n\n1", "'; DROP TABLE metrics; --"];
    for name in names {
        let name = name.replace('\'', "''");
        let row = format!("INSERT INTO metrics VALUES (now(), '{name}', 'foreign', 1, '{{}}')");
        query(&folder, "kwdb", "kwuser", &row).unwrap();
    }
    let listed = |path: &str| -> Vec<String> {
        let (status, text) = get(site.url(), path);
        assert_eq!(status, 200, "{path}: {text}");
        let listed: Value = serde_json::from_str(&text).unwrap();
        let series = listed.as_array().unwrap().iter();
        series.map(|one| one["device"].as_str().unwrap().to_owned()).collect()
    };
    let all = "/api/v1/series?metric=foreign";
    until("the rows of another program", Duration::from_secs(30), || {
        (listed(all).len() == names.len()).then_some(())
    });
    for name in listed(all) {
        assert!(names.contains(&&*name), "{name}");
        let quoted = encoded(format!("\"{}\"", name.replace('"', "\"\"")).as_bytes());
        for path in ["/api/v1/series", "/api/v1/last"] {
            assert_eq!(listed(&format!("{path}?device={quoted}")), [&*name], "{path}");
        }
        for path in ["/api/v1/range", "/api/v1/explain", "/api/v1/marks"] {
            let (status, text) = get(site.url(), &format!("{path}?device={quoted}"));
            assert_eq!(status, 200, "{path} {name}: {text}");
        }
        let one = encoded(name.as_bytes());
        for path in ["/api/v1/gaps", "/api/v1/jobs"] {
            assert_eq!(get(site.url(), &format!("{path}?device={one}")).0, 200, "{path} {name}");
        }
    }
}
