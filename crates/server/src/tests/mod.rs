//! A complete server within this process, on its own port, with limits that a test can reach.

mod access_matrix;
mod connections;
mod demand;
mod disputed_reports;
mod hostile_senders;
mod http_queries;
pub(crate) mod ingest;
mod job_updates;
mod limits;
mod nodes;
mod push;
mod rights;
mod schedulers;
mod tls;

use crate::{Limits, Server, Settings};
use config::{ConfigFile, ConfigInputs, Raw};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Tokens of every scope. Without them, tests that run as root would be administrators.
const TOKENS: &str = "agent:n1 token-of-n1\nagent token-of-agents\nuser:1234 token-of-1234\n\
                      user:77 token-of-77\nuser token-of-guests\nadmin token-of-admins\n";

/// A running server, with its data folder.
struct Site {
    runtime: tokio::runtime::Runtime,
    server: Option<Server>,
    address: SocketAddr,
    dir: tempfile::TempDir,
}

/// A server's response.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// Returns the value of a header, by its name in lower case.
    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.to_ascii_lowercase() == name).then_some(value.trim())
        })
    }
}

impl Site {
    fn start() -> Self {
        Self::with(Limits::default(), &[])
    }

    fn with(limits: Limits, flags: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self::within(dir, limits, flags)
    }

    fn within(dir: tempfile::TempDir, limits: Limits, flags: &[(&str, &str)]) -> Self {
        let tokens = dir.path().join("tokens");
        if !tokens.try_exists().unwrap() {
            secret(&tokens, TOKENS);
        }
        let config = Self::config(&dir, flags);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let agents = dir.path().join("agents.toml");
        let agent_config = agents.try_exists().unwrap().then_some(agents);
        let settings = Settings {
            config,
            data: dir.path().join("data"),
            passed: Default::default(),
            listen_given: true,
            agent_config,
            limits,
            sql_worker: None,
        };
        let server = runtime.block_on(Server::start(settings)).unwrap();
        let address = server.addresses()[0];
        Self { runtime, server: Some(server), address, dir }
    }

    fn config(dir: &tempfile::TempDir, flags: &[(&str, &str)]) -> config::ServerConfig {
        let tokens = dir.path().join("tokens");
        let mut all = vec![("listen", "127.0.0.1:0"), ("token_file", tokens.to_str().unwrap())];
        all.extend(flags);
        let flag = |(key, value): (&str, &str)| (key.to_owned(), Raw::One(value.to_owned()));
        let flags = all.into_iter().map(flag).collect();
        let given = ConfigInputs { file: ConfigFile::None, environment: &|_| None, flags };
        config::load_server(&given, &[]).unwrap().config
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// Sends a request with these headers (each line with its CRLF), and reads the whole response.
    fn send(&self, line: &str, headers: &str, body: &[u8]) -> Answer {
        let mut stream = self.connect();
        // The server may reject the request before all of it is sent.
        if let Err(error) = stream.write_all(&request(line, headers, body)) {
            assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe, "{line}");
        }
        answer(&mut stream).unwrap_or_else(|why| panic!("{line}: {why}"))
    }

    fn get(&self, path: &str) -> Answer {
        self.send(&format!("GET {path}"), "Host: localhost\r\n", b"")
    }

    /// Returns the value of a metric. Its labels are part of `name`.
    fn metric(&self, name: &str) -> f64 {
        let page = self.get("/metrics");
        let line = page.text().lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {}", page.text())).parse().unwrap()
    }

    /// Stops the server as SIGTERM does, and returns its folder.
    fn stop(mut self) -> tempfile::TempDir {
        let server = self.server.take().unwrap();
        self.runtime.block_on(server.stop()).unwrap();
        self.dir
    }
}

pub(crate) fn secret(path: &std::path::Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// Builds a request after which the server closes the connection: HTTP/1.0, so that the body is not chunked.
fn request(line: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!("{line} HTTP/1.0\r\n{headers}Content-Length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// Reads a response to its end. The error shows what came instead if the server closed without a response.
fn answer(stream: &mut impl Read) -> Result<Answer, String> {
    let mut bytes = Vec::new();
    // A server that rejects a body unread may reset the connection after its response.
    let ended = stream.read_to_end(&mut bytes);
    let none = || format!("no answer: {ended:?} {}", bytes.escape_ascii());
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").ok_or_else(none)?;
    let head = String::from_utf8(bytes[..end].to_vec()).map_err(|e| e.to_string())?;
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).ok_or_else(none)?;
    Ok(Answer { status, head, body: bytes[end + 4..].to_vec() })
}

/// Waits until a condition holds, and panics after 10 s.
fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..500 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{what}");
}
