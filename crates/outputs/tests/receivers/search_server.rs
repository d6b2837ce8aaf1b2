//! A real OpenSearch or Elasticsearch, as a user other than root, on ports of its own.

use serde_json::Value;
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use ureq::http::Request;

/// Longest time until a server answers, on a busy machine.
const START_TIME_MAX: Duration = Duration::from_secs(300);
/// A user other than root: both servers refuse to run as root.
const NOBODY: &str = "65534";

/// Which server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    OpenSearch,
    Elasticsearch,
}

pub(crate) struct SearchServer {
    kind: Kind,
    dir: TempDir,
    port: u16,
    child: Option<Child>,
    /// Further lines of its file of settings.
    settings: String,
    agent: ureq::Agent,
    authorization: String,
    scheme: &'static str,
}

impl SearchServer {
    /// Prepares a server, and chooses its port. It does not run yet.
    pub(crate) fn new(kind: Kind) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let name = kind.name();
        let from = downloads().join(format!("{name}-{}", kind.version()));
        assert!(
            from.join("bin").join(name).is_file(),
            "{} is not there: run the part `downloads` of tests/all.sh",
            from.display()
        );
        // The user of the server may not enter the build folder.
        run(Command::new("cp").arg("-r").arg(&from).arg(dir.path().join("program")));
        let config = dir.path().join("state/config");
        fs::create_dir_all(config.join("jvm.options.d")).unwrap();
        fs::create_dir(dir.path().join("state/tmp")).unwrap();
        fs::copy(from.join("config/log4j2.properties"), config.join("log4j2.properties")).unwrap();
        // Less work of the compiler at the start.
        let mut options = "-XX:+UseSerialGC\n-XX:TieredStopAtLevel=1\n".to_owned();
        // The server rejects a temporary folder that contains its program.
        options += &format!("-Djava.io.tmpdir={}\n", dir.path().join("state/tmp").display());
        if kind == Kind::OpenSearch {
            options += "-Djava.security.manager=allow\n";
        }
        fs::write(config.join("jvm.options"), options).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let (settings, authorization) = (String::new(), String::new());
        Self { kind, dir, port, child: None, settings, agent, authorization, scheme: "http" }
    }

    /// Sets a user and password, files of the configuration, and TLS with the authority in this file.
    pub(crate) fn secure(&mut self, authorization: &str, settings: &str, ca: &Path) {
        self.authorization = authorization.to_owned();
        self.settings = settings.to_owned();
        let tls = delivery::tls(Some(ca), None, None).unwrap();
        let config = ureq::Agent::config_builder().http_status_as_error(false).tls_config(tls);
        (self.agent, self.scheme) = (config.build().into(), "https");
    }

    /// The path of a file of the server.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("state").join(name)
    }

    pub(crate) fn url(&self) -> String {
        let host = if self.scheme == "https" { "localhost" } else { "127.0.0.1" };
        format!("{}://{host}:{}", self.scheme, self.port)
    }

    /// Starts the server, and waits until it answers.
    pub(crate) fn start(&mut self) {
        let name = self.kind.name();
        let dir = self.dir.path();
        let path = |name: &str| self.path(name).display().to_string();
        let settings = format!(
            "discovery.type: single-node\ncluster.routing.allocation.disk.threshold_enabled: false\nnetwork.host: 127.0.0.1\nhttp.port: {}\ntransport.port: 0\npath.data: {}\npath.logs: {}\n{}",
            self.port,
            path("data"),
            path("logs"),
            self.settings
        );
        fs::write(self.path(&format!("config/{name}.yml")), settings).unwrap();
        let mut command = Command::new("setpriv");
        if rustix::process::geteuid().is_root() {
            run(Command::new("chmod").args(["-R", "a+rX"]).arg(dir));
            run(Command::new("chown").args(["-R", NOBODY]).arg(dir));
            command.args([
                &format!("--reuid={NOBODY}"),
                &format!("--regid={NOBODY}"),
                "--clear-groups",
            ]);
        }
        let variable = if self.kind == Kind::OpenSearch { "OPENSEARCH" } else { "ES" };
        let log = File::create(self.path("output")).unwrap();
        command
            .args(["env", "-i", "PATH=/usr/bin:/bin"])
            .arg(format!("HOME={}", path("tmp")))
            .arg(format!("{variable}_JAVA_HOME={}", java_home()))
            .arg(format!("{variable}_PATH_CONF={}", path("config")))
            .arg(format!("{variable}_JAVA_OPTS=-Xms512m -Xmx512m"))
            .arg("bash")
            .arg(format!("{}/program/bin/{name}", dir.display()))
            .args(["-p", &path("pid")])
            .current_dir(self.path("tmp"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        let mut child =
            command.spawn().unwrap_or_else(|error| panic!("setpriv of util-linux: {error}"));
        let begun = Instant::now();
        while self.try_call("GET", "/_cluster/health?timeout=1s", "").is_none_or(|one| one.0 != 200)
        {
            let ended = child.try_wait().unwrap();
            let output = || fs::read_to_string(self.path("output")).unwrap();
            assert!(ended.is_none() && begun.elapsed() < START_TIME_MAX, "{}", output());
            std::thread::sleep(Duration::from_millis(100));
        }
        self.child = Some(child);
    }

    /// Kills the server at once.
    pub(crate) fn kill(&mut self) {
        if let Ok(pid) = fs::read_to_string(self.path("pid")) {
            // Elasticsearch's is not the child, which starts it.
            Command::new("kill").args(["-9", pid.trim()]).status().unwrap();
        }
        if let Some(mut child) = self.child.take() {
            child.kill().ok();
            child.wait().unwrap();
        }
        fs::remove_file(self.path("pid")).ok();
    }

    /// A request that succeeds.
    pub(crate) fn call(&self, method: &str, path: &str, body: &str) -> Value {
        let answer = self.try_call(method, path, body);
        let (status, answer) = answer.unwrap_or_else(|| panic!("the server does not answer"));
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        serde_json::from_str(&answer).unwrap_or_default()
    }

    fn try_call(&self, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url()))
            .header("content-type", "application/json");
        if !self.authorization.is_empty() {
            request = request.header("authorization", &self.authorization);
        }
        let mut answer = if body.is_empty() {
            self.agent.run(request.body(()).unwrap()).ok()?
        } else {
            self.agent.run(request.body(body.to_owned()).unwrap()).ok()?
        };
        let status = answer.status().as_u16();
        Some((status, answer.body_mut().read_to_string().ok()?))
    }

    /// All documents of an index, after a refresh.
    pub(crate) fn documents(&self, index: &str) -> Vec<Value> {
        self.call("POST", &format!("/{index}/_refresh"), "");
        let found = self.call("GET", &format!("/{index}/_search?size=10000"), "");
        let hits = found["hits"]["hits"].as_array().unwrap();
        assert!(hits.len() < 10_000);
        hits.iter().map(|hit| hit["_source"].clone()).collect()
    }

    /// Writes a file that only the test reads.
    pub(crate) fn private_file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }
}

impl Drop for SearchServer {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::OpenSearch => "opensearch",
            Self::Elasticsearch => "elasticsearch",
        }
    }

    fn version(self) -> &'static str {
        match self {
            Self::OpenSearch => "2.19.1",
            Self::Elasticsearch => "8.19.0",
        }
    }
}

/// The folder of the part `downloads` of tests/all.sh.
fn downloads() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/downloads")
}

/// Java 17: later versions have no security manager, which OpenSearch 2 needs.
fn java_home() -> String {
    let all = fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten();
    let mut found =
        all.filter(|entry| entry.file_name().to_string_lossy().starts_with("java-17-openjdk"));
    let home = found.next();
    let home = home.unwrap_or_else(|| panic!("Java 17: install openjdk-17-jre-headless"));
    home.path().display().to_string()
}

fn run(command: &mut Command) {
    let status = command.status().unwrap();
    assert!(status.success(), "{command:?}");
}

/// Waits until something is so, at most two minutes. `state` describes what is instead.
pub(crate) fn wait_until(state: impl Fn() -> String, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(120), "{}", state());
        std::thread::sleep(Duration::from_millis(50));
    }
}
