//! HTTP client of the server.

use crate::client::plain::plain_json;
use crate::client::progress::Progress;
use crate::client::unreachable::unreachable;
use anyhow::{Context, bail};
use api::Problem;
use config::{ClientSettings, Token};
use delivery::{Failure, Http};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::Read;
use std::time::Duration;
use ureq::RequestBuilder;
use ureq::unversioned::resolver::DefaultResolver;

/// Time limit of a list, a report or a change.
const LIST_TIME_MAX: Duration = Duration::from_secs(30);
/// Maximum size of an answer that is read as a whole: lists and reports, never samples.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// A server's URL, and the token that the client sends.
pub(crate) struct Client {
    agent: ureq::Agent,
    url: String,
    token: Option<Token>,
    /// Time limit of a request; `None`: no limit for streams, [`LIST_TIME_MAX`] for other requests.
    limit: Option<Duration>,
}

/// The streamed body of an answer.
type Body = ureq::BodyReader<'static>;
type Answer = ureq::http::Response<ureq::Body>;

/// An error answer of the server.
#[derive(Debug)]
pub(crate) struct Rejected {
    /// The error that the server reports.
    pub(crate) problem: Problem,
    /// Whether the error quotes a statement, whose names are no fields of the API.
    of_statement: bool,
}

/// Codes of the server for something that does not exist: a job or token, and others.
const NOT_FOUND: [&str; 2] = ["P0002", "PGRST125"];
/// The beginning of the server's message for a URL that is none of its own.
const NO_ROUTE: &str = "there is nothing at ";

impl Rejected {
    /// The error of a command that finds itself that something does not exist.
    pub(crate) fn not_found(message: String) -> Self {
        let [code, ..] = NOT_FOUND.map(str::to_owned);
        let problem = Problem { code, message, details: None, hint: None };
        Self { problem, of_statement: true }
    }

    /// Whether the job, node, token or other thing that the user named does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        NOT_FOUND.contains(&&*self.problem.code) && !self.problem.message.starts_with(NO_ROUTE)
    }
}

impl From<Problem> for Rejected {
    fn from(problem: Problem) -> Self {
        Self { problem, of_statement: false }
    }
}

impl std::fmt::Display for Rejected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = |text: &str| match self.of_statement {
            true => text.to_owned(),
            false => in_options(text),
        };
        f.write_str(&shown(&self.problem.message))?;
        let more = [&self.problem.details, &self.problem.hint];
        more.into_iter().flatten().try_for_each(|text| write!(f, "; {}", shown(text)))
    }
}

/// The reason of a server that rejects batches.
pub(crate) fn reason(failure: &Failure) -> String {
    match failure {
        Failure::Later { status, reason, .. } | Failure::Never { status, reason } => {
            format!("responds {status}: {reason}")
        }
        Failure::Unreached(why) | Failure::TimedOut(why) => why.clone(),
    }
}

/// The API's field names, with the options that set them.
const OPTIONS: [(&str, &str); 28] = [
    ("Missing 'devices', 'nodes' or 'job_id' argument", "name nodes or a job: --device or --job"),
    ("summary=true", "--summary"),
    ("`for_seconds`", "--for"),
    ("`expires_in_seconds`", "--for"),
    ("`period_seconds`", "--period or --burst"),
    ("`keep_seconds`", "--keep"),
    ("`flush_on`", "--flush-on"),
    ("`start`", "--since"),
    ("`end`", "--until"),
    ("`job_id`", "--job"),
    ("`job`", "--job"),
    ("`cluster`", "--cluster"),
    ("`device`", "--device"),
    ("`nodes`", "--nodes"),
    ("`limit`", "--limit"),
    ("`after`", "--after"),
    ("`state`", "--state"),
    ("`labels`", "--label"),
    ("`events`", "--perf"),
    ("`exit_code`", "--exit-code"),
    ("`account`", "--account"),
    ("`project`", "--project"),
    ("`queue`", "--queue"),
    ("`scope`", "--scope"),
    ("`metric`", "the metric"),
    ("`id`", "the job's ID"),
    ("`members_see`", "what members see"),
    ("`sources` or `bursts`", "--period, --enabled, --perf or --burst"),
];

/// Replaces the API's field names in a server message by the options of the command line.
fn in_options(text: &str) -> String {
    OPTIONS.iter().fold(text.to_owned(), |text, (field, option)| text.replace(field, option))
}

impl std::error::Error for Rejected {}

impl Client {
    /// A client of the server at a URL.
    pub(crate) fn new(
        url: &str,
        token: Option<Token>,
        client_settings: &ClientSettings,
    ) -> anyhow::Result<Self> {
        let server = config::ServerUrl::new(url).map_err(anyhow::Error::msg)?;
        let agent = agent(&server, client_settings)?;
        Ok(Self { agent, url: url.trim_end_matches('/').to_owned(), token, limit: None })
    }

    /// The same client with a time limit for each request.
    pub(crate) fn limited(&self, limit: Duration) -> Self {
        let (agent, url, token) = (self.agent.clone(), self.url.clone(), self.token.clone());
        Self { agent, url, token, limit: Some(limit) }
    }

    /// The server's URL.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Sends a GET request for JSON, and parses the answer.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let body = self.text(path, "application/json")?;
        self.understood(path, &body)
    }

    /// Parses a JSON answer; its texts are made safe for terminals.
    pub(crate) fn understood<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &str,
    ) -> anyhow::Result<T> {
        serde_json::from_str(&plain_json(body)).with_context(|| self.strange(path))
    }

    /// Sends a GET request, and returns the body as the server wrote it.
    pub(crate) fn text(&self, path: &str, accept: &str) -> anyhow::Result<String> {
        let _progress = Progress::start("waiting for the server's response");
        let request = self.agent.get(format!("{}{path}", self.url)).header("Accept", accept);
        self.whole(path, self.check(self.in_time(self.authorised(request)).call())?)
    }

    fn read<T: DeserializeOwned>(&self, path: &str, body: Body) -> anyhow::Result<T> {
        let text = self.whole(path, body)?;
        self.understood(path, &text)
    }

    /// Reads the whole body.
    fn whole(&self, path: &str, body: Body) -> anyhow::Result<String> {
        let mut text = String::new();
        match body.take(ANSWER_BYTES_MAX).read_to_string(&mut text) {
            Ok(_) => Ok(text),
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => {
                Err(anyhow::Error::from(error).context(self.late()))
            }
            Err(error) => Err(anyhow::Error::from(error).context(self.strange(path))),
        }
    }

    /// Adds the time limit to a request.
    fn in_time<T>(&self, request: RequestBuilder<T>) -> RequestBuilder<T> {
        request.config().timeout_global(Some(self.list_time_max())).build()
    }

    fn list_time_max(&self) -> Duration {
        self.limit.unwrap_or(LIST_TIME_MAX)
    }

    fn late(&self) -> String {
        let seconds = self.list_time_max().as_secs_f64();
        format!(
            "{} did not send a complete response within {seconds} s; it may be overloaded",
            self.url
        )
    }

    /// Sends a GET request, and returns the streamed body.
    pub(crate) fn stream(&self, path: &str, accept: &str) -> anyhow::Result<Body> {
        let request = self.agent.get(format!("{}{path}", self.url)).header("Accept", accept);
        self.check(self.authorised(request).call())
    }

    /// Posts a statement. Returns the streamed rows and the positions of their time columns.
    pub(crate) fn sql(
        &self,
        question: &api::SqlQuery,
        accept: &str,
    ) -> anyhow::Result<(Body, Vec<usize>)> {
        let request = self.agent.post(format!("{}/api/v1/sql", self.url)).header("Accept", accept);
        let request = request.header("Content-Type", "application/json");
        let answer = self.authorised(request).send(&serde_json::to_vec(question)?[..]);
        let answer = self.successful(answer).map_err(|mut error| {
            if let Some(rejected) = error.downcast_mut::<Rejected>() {
                rejected.of_statement = true;
            }
            error
        })?;
        let times = answer.headers().get(api::TIME_COLUMNS).and_then(|text| text.to_str().ok());
        let times = times.unwrap_or_default().split(',').filter_map(|text| text.parse().ok());
        let times = times.collect();
        Ok((streamed(answer), times))
    }

    /// Posts JSON, and parses the JSON answer.
    pub(crate) fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<T> {
        let _progress = Progress::start("waiting for the server's response");
        let request = self.agent.post(format!("{}{path}", self.url));
        let request = request.header("Accept", "application/json");
        let request = request.header("Content-Type", "application/json");
        let request = self.in_time(self.authorised(request));
        let reader = self.check(request.send(&serde_json::to_vec(body)?[..]))?;
        self.read(path, reader)
    }

    /// Sends a DELETE request, and parses the JSON answer.
    pub(crate) fn delete<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let request = self.agent.delete(format!("{}{path}", self.url));
        let body = self.check(self.in_time(self.authorised(request)).call())?;
        self.read(path, body)
    }

    /// A client of the same server for batches.
    pub(crate) fn batches(&self) -> Http {
        Http::over(self.agent.clone(), &self.url, self.token.as_ref(), self.limit)
    }

    fn authorised<T>(&self, request: RequestBuilder<T>) -> RequestBuilder<T> {
        let request = request.config().timeout_global(self.limit).build();
        match &self.token {
            Some(token) => request.header("Authorization", format!("Bearer {}", token.secret())),
            None => request,
        }
    }

    /// Returns the body of a successful answer, and an error otherwise.
    fn check(&self, answer: Result<Answer, ureq::Error>) -> anyhow::Result<Body> {
        self.successful(answer).map(streamed)
    }

    /// Returns a successful answer, and an error otherwise.
    fn successful(&self, answer: Result<Answer, ureq::Error>) -> anyhow::Result<Answer> {
        let mut answer = answer.map_err(|error| {
            let what = match error {
                ureq::Error::Timeout(ureq::Timeout::Global) => self.late(),
                _ => unreachable(&self.url, &error),
            };
            match error {
                // Without the name of its kind in the HTTP library.
                ureq::Error::Io(error) => anyhow::Error::from(error).context(what),
                error => anyhow::Error::from(error).context(what),
            }
        })?;
        let status = answer.status().as_u16();
        if (200..300).contains(&status) {
            return Ok(answer);
        }
        let text = answer.body_mut().read_to_string().unwrap_or_default();
        match serde_json::from_str::<Problem>(&text) {
            Ok(Problem { code, message, .. }) if message.starts_with(NO_ROUTE) => {
                let message = no_route(&self.url, &message);
                Err(Rejected::from(Problem { code, message, details: None, hint: None }).into())
            }
            Ok(problem) => Err(Rejected::from(problem).into()),
            // Servers reject too long requests without a message.
            Err(_) if matches!(status, 414 | 431) && text.is_empty() => {
                bail!("{} responds {status}: the query is too long; shorten it", self.url)
            }
            Err(_) => bail!("{} responds {status}: {}", self.url, foreign(&self.url, &text)),
        }
    }

    fn strange(&self, path: &str) -> String {
        format!(
            "{}{path} returned an unexpected response; check that it is a jobmeter server of this \
             version",
            self.url
        )
    }
}

/// What sends requests to a server, with the files for TLS of the settings.
pub(crate) fn agent(
    server: &config::ServerUrl,
    client_settings: &ClientSettings,
) -> anyhow::Result<ureq::Agent> {
    let mut builder = ureq::Agent::config_builder();
    if server.is_local() {
        // Ignores proxy settings: an answer through a proxy may come from the proxy's user.
        builder = builder.proxy(None);
    }
    let config = builder
        .http_status_as_error(false)
        .timeout_connect(Some(Duration::from_secs(5)))
        .user_agent(concat!("jobmeter/", env!("CARGO_PKG_VERSION")))
        .tls_config(delivery::tls(
            client_settings.ca.as_deref(),
            client_settings.cert.as_deref(),
            client_settings.key.as_deref(),
        )?)
        .build();
    let connector = delivery::connector(server.host(), &client_settings.server_uids);
    Ok(ureq::Agent::with_parts(config, connector, DefaultResolver::default()))
}

/// Most characters of an error text that is not the server's JSON.
const FOREIGN_MAX: usize = 200;

/// The error text of a server that is probably none of jobmeter, with advice.
fn foreign(url: &str, text: &str) -> String {
    let text = text.trim();
    let what = match text.starts_with('<') {
        true => "a page of HTML".to_owned(),
        false => text.chars().take(FOREIGN_MAX).collect(),
    };
    let base = ["/api/v1", "/api"].into_iter().find_map(|end| url.strip_suffix(end));
    let advice = base.map_or_else(
        || "check that this is the URL of a jobmeter server".to_owned(),
        |base| format!("write --server {base}"),
    );
    if what.is_empty() { advice } else { format!("{what}; {advice}") }
}

/// Adds advice to [`NO_ROUTE`]: the path in `--server` is wrong, or the server has another version.
fn no_route(url: &str, message: &str) -> String {
    let after_scheme = url.find("://").map_or(0, |at| at + 3);
    let path = url.get(after_scheme..).and_then(|rest| rest.find('/'));
    match path.and_then(|at| url.split_at_checked(after_scheme + at)) {
        Some((base, path)) => {
            format!("{message}: the path `{path}` in --server is wrong; write --server {base}")
        }
        None => format!("{message}; check that the server has this program's version"),
    }
}

/// The body of an answer.
fn streamed(answer: Answer) -> Body {
    answer.into_body().into_with_config().limit(u64::MAX).reader()
}

/// Percent-encodes a value for a query string.
pub(crate) fn escape(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
        out
    })
}

/// A path with the parameters that have a value.
pub(crate) fn path(base: &str, parameters: &[(&str, Option<String>)]) -> String {
    let mut path = base.to_owned();
    for (key, value) in parameters {
        if let Some(value) = value {
            let mark = if path.contains('?') { '&' } else { '?' };
            path.push_str(&format!("{mark}{key}={}", escape(value)));
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_options_and_no_fields() {
        for (field, option) in [
            ("`for_seconds` is 1 to 2592000 seconds", "--for is 1 to 2592000 seconds"),
            ("`start` is after `end`", "--since is after --until"),
            (
                "name the nodes or the job of the promotion: `nodes` or `job`",
                "name the nodes or the job of the promotion: --nodes or --job",
            ),
            ("fewer devices or metrics, or summary=true", "fewer devices or metrics, or --summary"),
            ("`exit_code` must be 0 to 255", "--exit-code must be 0 to 255"),
            ("`id` is 1 or more", "the job's ID is 1 or more"),
            ("there is no source `load`", "there is no source `load`"),
        ] {
            assert_eq!(in_options(field), option);
        }
    }

    #[test]
    fn a_foreign_server_is_not_quoted_at_length() {
        let page = foreign("http://h", "<!DOCTYPE html><html>…</html>");
        assert_eq!(page, "a page of HTML; check that this is the URL of a jobmeter server");
        assert_eq!(foreign("http://h/api", ""), "write --server http://h");
        let wrong = "there is nothing at /api/x: the path `/api` in --server is wrong; write --server http://h:1";
        assert_eq!(no_route("http://h:1/api", "there is nothing at /api/x"), wrong);
        let older = "there is nothing at /x; check that the server has this program's version";
        assert_eq!(no_route("http://h:1", "there is nothing at /x"), older);
        assert!(foreign("http://h/api/v1", &"x".repeat(5000)).len() < 300);
    }

    #[test]
    fn an_error_of_a_statement_keeps_its_names() {
        let message = "there is no column `id` here; `metric` and `job` are".to_owned();
        let code = "42703".to_owned();
        let problem = Problem { code, message: message.clone(), details: None, hint: None };
        let mut rejected = Rejected::from(problem);
        assert_ne!(rejected.to_string(), message);
        rejected.of_statement = true;
        assert_eq!(rejected.to_string(), message);
    }

    #[test]
    fn a_server_that_does_not_answer_is_waited_for_in_vain_for_a_time() {
        // This server accepts connections and never answers.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || listener.incoming().collect::<Vec<_>>());
        let given = config::ConfigInputs {
            file: config::ConfigFile::None,
            environment: &|_| None,
            flags: Vec::new(),
        };
        let client_settings = config::load_client(&given).unwrap().config.client_settings;
        let mut client = Client::new(&url, None, &client_settings).unwrap();
        client.limit = Some(Duration::from_millis(500));
        let get = client.get::<serde_json::Value>("/api/v1/nodes").unwrap_err();
        let post = client.post::<serde_json::Value>("/api/v1/tokens", &()).unwrap_err();
        for error in [get, post] {
            let error = format!("{error:#}");
            assert!(
                error.starts_with(&format!("{url} did not send a complete response within 0.5 s")),
                "{error}"
            );
        }
    }

    #[test]
    fn parameters_are_escaped() {
        let parameters =
            [("a", Some("x y&z=é".to_owned())), ("b", None), ("c", Some("1".to_owned()))];
        assert_eq!(path("/p", &parameters), "/p?a=x%20y%26z%3D%C3%A9&c=1");
    }
}
