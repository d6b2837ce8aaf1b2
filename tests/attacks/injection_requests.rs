//! Requests with an attacker's text in one place: each parameter of each operation of the OpenAPI document, and headers.

use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A place for a text: a parameter of an operation.
pub(crate) struct Place {
    /// `METHOD /path: parameter`.
    pub(crate) name: String,
    /// Whether a process of the SQL engine answers, which takes longer.
    pub(crate) is_slow: bool,
    method: String,
    path: String,
    at: At,
}

enum At {
    /// A part of the path.
    Path(String),
    /// A parameter of the query string.
    Query(String),
    /// The name of a parameter.
    QueryName,
    /// A field of a JSON body, with the other fields. Whether the body is a list.
    Field(String, Map<String, Value>),
    /// A field of a form.
    Form(String),
    /// The whole body, of this type.
    Body(String),
}

/// Values of parameters that reach far into the server, by name.
fn usual(name: &str) -> &'static str {
    match name {
        "id" | "job" => "site:7001",
        "job_id" => "7001",
        "node" | "nodes" | "device" | "devices" | "device_id" => "n1",
        "table" => "metrics",
        "account" => "site:group",
        "query" => "SELECT 1",
        "metric" | "metrics" | "metric_id" => "load_1m",
        "value" | "for_seconds" => "60",
        "scope" => "read:54001",
        "source" => "cpu",
        _ => "1",
    }
}

/// Every place of the document.
pub(crate) fn places(document: &Value) -> Vec<Place> {
    let mut places = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let method = method.to_uppercase();
            let mut ats = vec![At::QueryName];
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                let name = parameter["name"].as_str().unwrap();
                ats.push(match (parameter["in"].as_str().unwrap(), name) {
                    ("path", _) => At::Path(name.to_owned()),
                    // A condition is named by its column.
                    (_, "conditions") => At::Query("device_id".to_owned()),
                    _ => At::Query(name.to_owned()),
                });
            }
            for (kind, content) in
                operation["requestBody"]["content"].as_object().into_iter().flatten()
            {
                ats.push(At::Body(kind.clone()));
                let mut fields = Map::new();
                collect(document, &content["schema"], &mut fields, 0);
                for name in fields.keys() {
                    ats.push(match &**kind {
                        "application/json" => At::Field(name.clone(), required(&fields)),
                        _ => At::Form(name.clone()),
                    });
                }
            }
            for at in ats {
                let shown = match &at {
                    At::Path(name) | At::Query(name) | At::Form(name) => name,
                    At::Field(name, _) | At::Body(name) => name,
                    At::QueryName => "(a name)",
                };
                let is_rows = matches!(&at, At::Query(name) if ROWS.contains(&&**name));
                let is_slow = path.starts_with("/rest/")
                    || matches!(&**path, "/api/v1/sql" | "/rpc/get_job_metrics")
                    || (path.starts_with("/rpc/") && is_rows);
                let name = format!("{method} {path}: {shown}");
                places.push(Place {
                    name,
                    is_slow,
                    method: method.clone(),
                    path: path.clone(),
                    at,
                });
            }
        }
    }
    places
}

const ROWS: [&str; 7] = ["select", "order", "limit", "offset", "and", "or", "device_id"];

/// Collects the properties of a schema, each with whether it is required.
fn collect(document: &Value, schema: &Value, into: &mut Map<String, Value>, depth: usize) {
    if depth > 4 {
        return;
    }
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        collect(document, &document["components"]["schemas"][name], into, depth + 1);
    }
    for key in ["oneOf", "anyOf", "allOf"] {
        for one in schema[key].as_array().into_iter().flatten() {
            collect(document, one, into, depth + 1);
        }
    }
    if schema["items"].is_object() {
        collect(document, &schema["items"], into, depth + 1);
    }
    for name in schema["properties"].as_object().into_iter().flat_map(Map::keys) {
        let is_required =
            schema["required"].as_array().is_some_and(|all| all.iter().any(|one| one == name));
        into.insert(name.clone(), is_required.into());
    }
}

fn required(fields: &Map<String, Value>) -> Map<String, Value> {
    let needed = fields.iter().filter(|(_, is_required)| **is_required == true);
    needed.map(|(name, _)| (name.clone(), usual(name).into())).collect()
}

pub(crate) fn encoded(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => text.push(char::from(*byte)),
            _ => write!(text, "%{byte:02X}").unwrap(),
        }
        text
    })
}

impl Place {
    /// The request with a text in this place.
    pub(crate) fn request(&self, text: &[u8], token: &str) -> Vec<u8> {
        let mut path = String::new();
        for (nth, part) in self.path.split(['{', '}']).enumerate() {
            match &self.at {
                _ if nth % 2 == 0 => path.push_str(part),
                At::Path(name) if name == part => path.push_str(&encoded(text)),
                _ => path.push_str(&encoded(usual(part).as_bytes())),
            }
        }
        let (mut query, mut kind, mut body) = (String::new(), "application/json", Vec::new());
        // These need a device or a job.
        let subject = match &*self.path {
            "/rpc/get_metrics" => "nodes=n1",
            "/rpc/get_job_metrics" => "job_id=7001",
            _ => "",
        };
        match &self.at {
            At::Path(_) => {}
            At::Query(name) if subject.starts_with(&**name) => {
                query = format!("{name}={}", encoded(text));
            }
            At::Query(name) => query = format!("{subject}&{name}={}", encoded(text)),
            At::QueryName => query = format!("{subject}&{}=eq.1", encoded(text)),
            At::Field(name, others) => {
                let mut fields = others.clone();
                // A text that is JSON is also tried as what it means.
                let text = String::from_utf8_lossy(text);
                let meant = serde_json::from_str(&text).ok();
                fields.insert(name.clone(), meant.unwrap_or_else(|| json!(text)));
                body = Value::Object(fields).to_string().into_bytes();
            }
            At::Form(name) => {
                kind = "application/x-www-form-urlencoded";
                body = format!("{name}={}", encoded(text)).into_bytes();
            }
            At::Body(own) => (kind, body) = (own, text.to_vec()),
        }
        let query = query.trim_start_matches('&');
        let query = if query.is_empty() { String::new() } else { format!("?{query}") };
        let head = format!(
            "{} {path}{query} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: {kind}\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            self.method,
            body.len()
        );
        [head.into_bytes(), body].concat()
    }
}

/// Requests with a text in each header that the server reads.
pub(crate) fn in_headers(text: &[u8], token: &str) -> Vec<Vec<u8>> {
    let headers = [
        "Accept",
        "Range",
        "Prefer",
        "Idempotency-Key",
        "Content-Type",
        "Origin",
        "X-Forwarded-For",
        "Accept-Encoding",
        "Authorization",
        "Content-Encoding",
        "Cookie",
        "X-Nothing",
    ];
    let one = |name: &&str| {
        let head = format!(
            "POST /rpc/get_metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
             Content-Length: 14\r\nConnection: close\r\n{name}: "
        );
        [head.as_bytes(), text, b"\r\n\r\n{\"nodes\":\"n1\"}"].concat()
    };
    headers.iter().map(one).collect()
}

/// Sends a request. Returns the status, the whole response, and the time.
pub(crate) fn send(url: &str, request: &[u8]) -> (u16, String, Duration) {
    let began = Instant::now();
    let mut stream = TcpStream::connect(url.trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut response = Vec::new();
    // The server may answer and close the connection before it has read everything.
    if stream.write_all(request).is_ok() {
        stream.read_to_end(&mut response).ok();
    }
    let text = String::from_utf8_lossy(&response).into_owned();
    let status = text.get(9..12).and_then(|code| code.parse().ok()).unwrap_or(0);
    (status, text, began.elapsed())
}
