//! Two servers with the same settings, one on the embedded store and one on PostgreSQL, and their answers to a request.

use super::masks;
use super::requests::Request;
use super::samples::{self, Times};
use super::statements;
use crate::common::database::{Database, psql};
use crate::common::programs::Server;
use api::Operation;
use std::collections::BTreeSet;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The token of a kind of reader; empty: a client without a token.
pub(super) type Token = &'static str;

pub(super) const NOBODY: Token = "";
pub(super) const ADMIN: Token = "token-of-admins";
pub(super) const STAFF: Token = "token-of-staff";
pub(super) const ALICE: Token = "token-of-alice";
pub(super) const BOB: Token = "token-of-bob";
pub(super) const GUEST: Token = "token-of-guests";
pub(super) const PUSHER: Token = "token-of-push";
pub(super) const SCHEDULER: Token = "token-of-jobs";

/// Every kind of caller. The tokens of the last five read nothing.
pub(super) const READERS: [Token; 12] = [
    NOBODY,
    GUEST,
    ALICE,
    BOB,
    "read-of-alice",
    STAFF,
    ADMIN,
    "token-of-n1",
    "token-of-agents",
    "token-of-poller",
    PUSHER,
    SCHEDULER,
];

const TOKENS: &str = "admin token-of-admins\nstaff token-of-staff\nuser:54001 token-of-alice\nuser:54002 token-of-bob\n\
                      read:54001 read-of-alice\nuser token-of-guests\nagent:n1 token-of-n1\nagent token-of-agents\n\
                      poller:lab token-of-poller\npush:lab token-of-push\njobs token-of-jobs\n";

/// An answer: the status, the headers by name, and the body.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: BTreeSet<(String, String)>,
    pub(super) body: Vec<u8>,
}

/// One of the two servers.
pub(super) struct Site {
    pub(super) server: Server,
    pub(super) pg_port: u16,
    client: ureq::Agent,
}

impl Site {
    fn start(data: &Path, arguments: &[&str]) -> Self {
        let pg = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let server = Server::start(data, &[arguments, &["--pg-listen", &pg.to_string()]].concat());
        let client = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(30)))
            // A server closes a connection whose request it rejects without its body.
            .max_idle_connections(0)
            .build()
            .into();
        Self { server, pg_port: pg.port(), client }
    }

    /// Sends a request with a token.
    pub(super) fn send(&self, token: Token, request: &Request) -> Answer {
        let uri = format!("{}{}", self.server.url, request.path);
        let mut http = ureq::http::Request::builder().method(request.method).uri(uri);
        if !token.is_empty() {
            http = http.header("Authorization", format!("Bearer {token}"));
        }
        for (name, value) in &request.headers {
            http = http.header(*name, value);
        }
        let sent = match &request.body {
            Some(body) => self.client.run(http.body(body.as_slice()).unwrap()),
            None => self.client.run(http.body(()).unwrap()),
        };
        let mut answer = sent.unwrap_or_else(|error| panic!("{request:?}: {error}"));
        let text = |value: &ureq::http::HeaderValue| {
            String::from_utf8_lossy(value.as_bytes()).into_owned()
        };
        let headers = answer.headers().iter().map(|(name, value)| (name.to_string(), text(value)));
        let (status, headers) = (answer.status().as_u16(), headers.collect());
        Answer { status, headers, body: answer.body_mut().read_to_vec().unwrap() }
    }

    /// Runs statements with psql, each as a command of its own. Returns standard output, with the SQLSTATE and the latest error after each.
    pub(super) fn psql(&self, token: Token, statements: &[String]) -> String {
        let mut psql = Command::new("psql");
        let port = self.pg_port.to_string();
        psql.args(["-X", "-h", "127.0.0.1", "-p", &port, "-d", "jobmeter", "-w", "-At"]);
        psql.args(["-U", "token"]).env("PGPASSWORD", token).env("LC_ALL", "C.UTF-8");
        for statement in statements {
            psql.args([
                "-c",
                statement,
                "-c",
                "\\echo :SQLSTATE :LAST_ERROR_MESSAGE",
                "-c",
                "\\echo =",
            ]);
        }
        let output = psql.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let answers = text.split("\n=\n").zip(statements).map(|(answer, statement)| {
            let is_ordered = statements::is_ordered(statement);
            let answer = if is_ordered { answer.to_owned() } else { masks::sorted(answer) };
            format!("{statement}\n{answer}\n")
        });
        // A connection that the server rejects has an error alone.
        let errors = String::from_utf8(output.stderr).unwrap();
        let rejected = errors.split_once("FATAL:").map_or("", |(_, error)| error);
        answers.chain([rejected.to_owned()]).collect()
    }
}

/// A request with answers that differ, for people.
#[derive(Debug)]
pub(super) struct Difference(pub(super) String);

/// The two servers, with the same senders and the same requests.
pub(super) struct Pair {
    pub(super) sites: [Site; 2],
    pub(super) times: Times,
    dir: tempfile::TempDir,
    _database: Database,
}

impl Pair {
    pub(super) fn start(now: i64, arguments: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o711)).unwrap();
        let tokens = dir.path().join("tokens");
        std::fs::write(&tokens, TOKENS).unwrap();
        std::fs::set_permissions(&tokens, PermissionsExt::from_mode(0o600)).unwrap();
        let folder = dir.path().join("database");
        std::fs::create_dir(&folder).unwrap();
        for name in ["embedded", "postgres"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let database = Database::start(&folder);
        let sites = Self::sites(dir.path(), arguments);
        let pair = Self { sites, times: Times::of(now), dir, _database: database };
        pair.fill();
        pair
    }

    fn sites(dir: &Path, arguments: &[&str]) -> [Site; 2] {
        let tokens = dir.join("tokens");
        let common = ["--token-file", tokens.to_str().unwrap(), "--access-loopback", "none"];
        let common = [
            &common[..],
            &["--retention-late-max", "7d", "--site", "lab", "--query-slow", "0s"],
            arguments,
        ]
        .concat();
        let folder = dir.join("database");
        let parameters = format!("host={} user=postgres dbname=postgres", folder.display());
        let postgres = ["--store", "postgres", "--postgres-database", &parameters];
        [
            Site::start(&dir.join("embedded/data"), &common),
            Site::start(&dir.join("postgres/data"), &[&common[..], &postgres].concat()),
        ]
    }

    /// Stops both servers, and starts them with other settings.
    pub(super) fn restart(&mut self, arguments: &[&str]) {
        for site in &mut self.sites {
            assert_eq!(site.server.running.end(), 0, "{}", site.server.running.errors());
        }
        self.sites = Self::sites(self.dir.path(), arguments);
    }

    /// Runs a statement in the database.
    pub(super) fn database(&self, statement: &str) -> String {
        psql(&self.dir.path().join("database"), statement).unwrap()
    }

    /// Sends the batches and the records of jobs.
    fn fill(&self) {
        let status = samples::status(self.times);
        let with_status = |body| Request::batches(body).header(wire::STATUS_HEADER, &status);
        let silent = Request::batches(samples::silent_node(self.times));
        for batches in samples::bodies(self.times).map(with_status).into_iter().chain([silent]) {
            for site in &self.sites {
                let answer = site.send(ADMIN, &batches);
                let acks = wire::Answer::decode(&answer.body).unwrap().acks;
                let is_stored =
                    |ack: &wire::Ack| ack.reason.is_empty() && ack.samples_rejected == 0;
                assert!(acks.iter().all(is_stored), "{acks:?}");
            }
        }
        for record in samples::records(self.times) {
            let request = Request::of(Operation::Register, "").json(&record);
            for site in &self.sites {
                let answer = site.send(SCHEDULER, &request);
                let text = String::from_utf8_lossy(&answer.body);
                assert_eq!(answer.status, 200, "{request:?}: {text}");
            }
        }
    }

    /// The answers of both servers to a request, which they receive at the same time.
    pub(super) fn answers(&self, token: Token, request: &Request) -> [Answer; 2] {
        let [embedded, postgres] = &self.sites;
        std::thread::scope(|scope| {
            let other = scope.spawn(|| postgres.send(token, request));
            [embedded.send(token, request), other.join().unwrap()]
        })
    }

    /// How the answers to a request differ, if they do.
    pub(super) fn difference(&self, token: Token, request: &Request) -> Option<Difference> {
        // A request that depends on the present time may reach the servers on either side of a tick.
        let tries = if request.is_now { 5 } else { 1 };
        let mut answers = None;
        for number in 0..tries {
            std::thread::sleep(Duration::from_millis(number * 100));
            let both = self.answers(token, request).map(|answer| masks::masked(request, answer));
            let [embedded, postgres] = &both;
            if embedded == postgres {
                return None;
            }
            answers = Some(both);
        }
        let [embedded, postgres] = answers?;
        Some(Difference(format!(
            "{:?} as `{token}`: {request:?}\n{}",
            request.operation,
            first_difference(&embedded, &postgres)
        )))
    }

    /// The differences of what psql prints as a reader.
    pub(super) fn psql_difference(
        &self,
        token: Token,
        statements: &[String],
    ) -> Option<Difference> {
        let [embedded, postgres] = &self.sites;
        let [ours, theirs] = std::thread::scope(|scope| {
            let other = scope.spawn(|| postgres.psql(token, statements));
            [embedded.psql(token, statements), other.join().unwrap()]
        });
        let text =
            || format!("psql as `{token}`:\n{}", at_difference(ours.as_bytes(), theirs.as_bytes()));
        (ours != theirs).then(|| Difference(text()))
    }
}

fn first_difference(ours: &Answer, theirs: &Answer) -> String {
    if ours.status != theirs.status || ours.body != theirs.body {
        let bodies = at_difference(&ours.body, &theirs.body);
        return format!("status {} and {}\n{bodies}", ours.status, theirs.status);
    }
    let only =
        |a: &Answer, b: &Answer| a.headers.difference(&b.headers).cloned().collect::<Vec<_>>();
    format!("headers {:?}\n    and {:?}", only(ours, theirs), only(theirs, ours))
}

/// Two texts, from shortly before the first byte in which they differ.
fn at_difference(ours: &[u8], theirs: &[u8]) -> String {
    let same = ours.iter().zip(theirs).take_while(|(a, b)| a == b).count();
    let part = |bytes: &[u8]| {
        let part = &bytes[same.saturating_sub(160)..(same + 240).min(bytes.len())];
        String::from_utf8_lossy(part).into_owned()
    };
    format!("  embedded: {}\n  postgres: {}", part(ours), part(theirs))
}
