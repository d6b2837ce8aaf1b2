//! The requests of each operation that change nothing.

use super::row_requests;
use super::samples::Times;
use super::statements;
use api::{Method, Operation};

/// A request of an operation.
#[derive(Clone)]
pub(super) struct Request {
    pub(super) operation: Operation,
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Option<Vec<u8>>,
    /// Whether the answer depends on the present time.
    pub(super) is_now: bool,
    /// Whether the rows of the answer have an order: those of SQL without ORDER BY have none.
    pub(super) is_ordered: bool,
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let body = String::from_utf8_lossy(self.body.as_deref().unwrap_or_default());
        let body: String = body.chars().take(300).collect();
        write!(f, "{} {} {:?} {body}", self.method, self.path, self.headers)
    }
}

impl Request {
    /// A request with this text in place of the parameter in the path, or after the path.
    pub(super) fn of(operation: Operation, more: &str) -> Self {
        let path = operation.path();
        let path = match path.split_once('{') {
            Some((before, after)) => {
                format!("{before}{more}{}", after.split_once('}').unwrap().1)
            }
            None => format!("{path}{more}"),
        };
        let method = match operation.method() {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Delete => "DELETE",
        };
        let body = matches!(operation.method(), Method::Post).then(Vec::new);
        Self { operation, method, path, headers: Vec::new(), body, is_now: false, is_ordered: true }
    }

    pub(super) fn batches(body: Vec<u8>) -> Self {
        let request = Self::of(Operation::Batches, "");
        request.typed("application/x-jobmeter-batches", body)
    }

    pub(super) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    pub(super) fn typed(self, media_type: &str, body: Vec<u8>) -> Self {
        Self { body: Some(body), ..self }.header("Content-Type", media_type)
    }

    pub(super) fn json(self, body: &str) -> Self {
        self.typed("application/json", body.as_bytes().to_vec())
    }

    /// The same with HEAD.
    pub(super) fn head(self) -> Self {
        Self { method: "HEAD", ..self }
    }

    /// The answer depends on the present time.
    pub(super) fn now(self) -> Self {
        Self { is_now: true, ..self }
    }
}

/// Parameters of a query string, encoded.
pub(super) fn query(pairs: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in pairs {
        text.push(if text.is_empty() { '?' } else { '&' });
        encode(name, &mut text);
        text.push('=');
        encode(value, &mut text);
    }
    text
}

fn encode(value: &str, text: &mut String) {
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b',' | b'*' => {
                text.push(char::from(byte));
            }
            byte => text.push_str(&format!("%{byte:02X}")),
        }
    }
}

/// The requests of an operation that change nothing. `changes` has those of the others.
pub(super) fn of(operation: Operation, times: Times) -> Vec<Request> {
    let all = |more: &[&str]| more.iter().map(|more| Request::of(operation, more)).collect();
    match operation {
        Operation::GetMetrics => row_requests::get_metrics(times),
        Operation::PostGetMetrics => row_requests::post_get_metrics(times),
        Operation::AvailableMetrics => row_requests::available_metrics(times),
        Operation::PostAvailableMetrics => row_requests::post_available_metrics(times),
        Operation::RestTable => row_requests::rest(times),
        Operation::GetJobMetrics => job_metrics(),
        Operation::PostGetJobMetrics => {
            [r#"{"job_id": 1}"#, r#"{"job_id": "oar:7"}"#, r#"{"job_id": 7}"#, "[]"]
                .map(|body| Request::of(operation, "").json(body))
                .into()
        }
        Operation::OpenApi
        | Operation::Ready
        | Operation::Me
        | Operation::Pollers
        | Operation::Outputs
        | Operation::Schedulers => all(&["", "?x=1"]),
        // A node becomes silent some seconds after its latest batch.
        Operation::Health | Operation::Nodes => {
            ["", "?x=1"].map(|more| Request::of(operation, more).now()).into()
        }
        Operation::Devices => all(&[
            "",
            "?node=n1",
            "?search=pdu",
            "?failing=true",
            "?limit=2",
            "?after=bmc-1&limit=1",
            "?device=pdu-1,bmc-1,nothing",
            "?limit=0",
        ]),
        Operation::Jobs => jobs(times),
        Operation::Report => reports(times),
        Operation::Series | Operation::Range | Operation::Last | Operation::Explain => {
            selections(operation, times)
        }
        Operation::Gaps => gaps(times),
        Operation::Sql => statements::requests(times),
        Operation::Marks => {
            all(&["?start=2000-01-01", "?start=2000-01-01&device=n2", "?device=*", ""])
        }
        Operation::Audit => {
            all(&["?job=*", "?actor=54001", "?action=promotions&limit=2", "?limit=0"])
        }
        Operation::JobsCheck
        | Operation::Catalogue
        | Operation::Settings
        | Operation::Promotions
        | Operation::Tokens
        | Operation::Accounts => all(&[""]),
        // A statement counts as running until its worker has ended, a little after the answer.
        Operation::Metrics => vec![Request::of(operation, "").now()],
        _ => Vec::new(),
    }
}

fn job_metrics() -> Vec<Request> {
    let one = |more: &str| Request::of(Operation::GetJobMetrics, more);
    let mut requests: Vec<Request> = [
        "?job_id=1",
        "?job_id=slurm:2",
        "?job_id=7",
        "?job_id=7&cluster=oar",
        "?job_id=99",
        "?job_id=x",
        "",
    ]
    .map(one)
    .into();
    requests.push(one("?job_id=1").header("Accept", "text/csv"));
    requests.push(one("?job_id=1").head());
    requests
}

fn gaps(times: Times) -> Vec<Request> {
    let (start, end) = (times.past - 30 * 86_400, times.past + 7200);
    let range = format!("?start={start}&end={end}");
    [&*range, &format!("{range}&device=n1"), "?device=pdu-3", "?start=5&end=1", "?device=a/b"]
        .map(|more| Request::of(Operation::Gaps, more))
        .into()
}

fn jobs(times: Times) -> Vec<Request> {
    let one = |more: &str| Request::of(Operation::Jobs, more);
    let (start, end) = (times.past + 100, times.past + 1000);
    [
        "",
        "?usage=true&state=ended",
        "?usage=true&state=failed",
        "?state=running",
        "?cluster=slurm&limit=2",
        "?user=bob",
        "?user=54001",
        "?account=slurm:physics",
        "?account=nothing",
        "?project=p1&queue=long",
        "?device=n2",
        "?part_of=40",
        "?name=drill",
        "?state=perhaps",
        "?limit=0",
    ]
    .map(str::to_owned)
    .into_iter()
    .chain([format!("?start={start}&end={end}"), format!("?after=slurm:2@{start}")])
    .map(|more| one(&more))
    .chain([one("?usage=true&state=running").now()])
    .collect()
}

fn reports(times: Times) -> Vec<Request> {
    let one = |more: &str| Request::of(Operation::Report, more);
    let at = times.past + 3000;
    let mut requests: Vec<Request> = [
        "slurm:1",
        "1",
        "oar:7",
        "7",
        "7?cluster=slurm",
        "slurm:1?metric=load_1m,wattmetre_power_watt,network_receive_bytes_total",
        "slurm:3",
        "slurm:4",
        "slurm:5",
        "slurm:99",
        "x",
        "local:1",
    ]
    .map(one)
    .into();
    requests.push(one(&format!("slurm:4?start={at}")));
    // This job continues.
    requests.push(one("slurm:2").now());
    requests
}

/// Queries of series, points and latest values.
fn selections(operation: Operation, times: Times) -> Vec<Request> {
    let (start, end) = (times.past.to_string(), (times.past + 3600).to_string());
    let range = [("start", &*start), ("end", &*end)];
    let one = |pairs: &[(&str, &str)]| {
        let pairs = match operation {
            Operation::Last => pairs.to_vec(),
            _ => [pairs, &range].concat(),
        };
        Request::of(operation, &query(&pairs))
    };
    let mut requests: Vec<Request> = [
        &[][..],
        &[("device", "n1"), ("metric", "load_1m")],
        &[("device", "n1,n2,pdu-1"), ("metric", "wattmetre_power_watt,load_1m")],
        &[("metric", "cgroup_cpu_seconds_total")],
        &[("job", "slurm:1")],
        &[("job", "2")],
        &[("job", "7")],
        &[("job", "7"), ("cluster", "oar")],
        &[("job", "none"), ("device", "n1")],
        &[("job", "99")],
        &[("labels", r#"{"interface": "eth0"}"#)],
        &[("labels", r#"{"interface": null}"#), ("device", "n1")],
        &[("device", "nothing")],
        &[("metric", "load*")],
        &[("labels", "[]")],
        &[("node", "n1")],
    ]
    .map(one)
    .into();
    match operation {
        Operation::Range => {
            for more in [
                &[("step", "300"), ("rate", "true")][..],
                &[("step", "3600"), ("totals", "true")],
                &[("step", "7"), ("device", "n1"), ("rate", "true")],
                &[("step", "30s"), ("device", "n2"), ("totals", "true")],
                &[("step", "-1")],
                &[("step", "300"), ("job", "slurm:2"), ("rate", "true"), ("totals", "true")],
            ] {
                requests.push(one(more));
            }
            requests.push(Request::of(operation, "?device=n2").now());
        }
        Operation::Series => requests.push(one(&[("limit", "3")])),
        _ => {}
    }
    requests
}
