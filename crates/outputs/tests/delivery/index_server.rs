//! A small server with the part of Elasticsearch's interface that the output uses, and with faults.

use flate2::read::GzDecoder;
use serde_json::{Value, json};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

/// What happens to a `_bulk` request.
pub(crate) enum Fault {
    /// The connection ends before the request is handled.
    CutBefore,
    /// The request is handled, and the connection ends without an answer.
    CutAfter,
    /// The request is handled, and the connection ends within the answer.
    HalfAnswer,
    /// The request is handled, and the answer never ends.
    Endless,
    /// The request is handled, and a proxy answers 502.
    BadGateway,
    /// The request is not handled: status, further header, body.
    Status(u16, &'static str, &'static str),
    /// No item is handled: their status and the kind of their error.
    Items(u16, &'static str),
}

/// Returns the error of a document, if the index rejects it.
type Check = Box<dyn Fn(&Value) -> bool + Send>;

#[derive(Default)]
pub(crate) struct State {
    pub(crate) faults: VecDeque<Fault>,
    /// The path of each plugin that the server has.
    pub(crate) plugins: Vec<&'static str>,
    pub(crate) is_bad: Option<Check>,
    pub(crate) bytes_max: Option<usize>,
    /// Method, path and body of each request.
    pub(crate) requests: Vec<(String, String, String)>,
    /// What was created by PUT.
    created: BTreeSet<String>,
    /// The backing indices of each name.
    indices: BTreeMap<String, Vec<BTreeMap<String, Value>>>,
    /// What a search finds: the documents at the last refresh.
    visible: Vec<(String, Value)>,
}

pub(crate) struct IndexServer {
    pub(crate) address: String,
    state: Arc<Mutex<State>>,
    _thread: JoinHandle<()>,
}

impl IndexServer {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::<Mutex<State>>::default();
        let shared = Arc::clone(&state);
        // Ends with the process.
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                std::thread::spawn(move || serve(&stream, &state));
            }
        });
        Self { address, state, _thread: thread }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Begins a new backing index.
    pub(crate) fn rollover(&self, index: &str) {
        self.state().indices.get_mut(index).unwrap().push(BTreeMap::new());
    }

    /// The documents of all backing indices.
    pub(crate) fn documents(&self) -> Vec<Value> {
        let state = self.state();
        state.indices.values().flatten().flat_map(BTreeMap::values).cloned().collect()
    }

    /// How many requests had this method and a path with this text.
    pub(crate) fn count(&self, method: &str, path: &str) -> usize {
        let state = self.state();
        state.requests.iter().filter(|one| one.0 == method && one.1.contains(path)).count()
    }
}

fn serve(stream: &TcpStream, state: &Mutex<State>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let (method, path, body) = request(&mut reader)?;
        let mut state = state.lock().unwrap();
        state.requests.push((method.clone(), path.clone(), body.clone()));
        let fault = if path.starts_with("/_bulk") { state.faults.pop_front() } else { None };
        let (status, answer) = match &fault {
            Some(Fault::CutBefore) => return None,
            Some(Fault::Status(status, header, body)) => {
                drop(state);
                respond(stream, *status, header, body, body.len());
                continue;
            }
            Some(Fault::Items(status, kind)) => {
                let item = json!({"create": {"status": status, "error": {"type": kind, "reason": "by the test"}}});
                (200, json!({"items": vec![item; body.lines().count() / 2]}).to_string())
            }
            _ => state.handle(&method, &path, &body),
        };
        drop(state);
        match fault {
            Some(Fault::CutAfter) => return None,
            Some(Fault::HalfAnswer) => {
                respond(stream, status, "", answer.split_at(answer.len() / 2).0, answer.len());
                return None;
            }
            Some(Fault::Endless) => {
                respond(stream, status, "", "{\"items\":[", usize::MAX >> 1);
                let many = " ".repeat(1 << 16);
                let mut out = stream;
                while out.write_all(many.as_bytes()).is_ok() {}
                return None;
            }
            Some(Fault::BadGateway) => respond(stream, 502, "", "<html>", 6),
            // An answer to HEAD has no body.
            _ if method == "HEAD" => respond(stream, status, "", "", answer.len()),
            _ => respond(stream, status, "", &answer, answer.len()),
        }
    }
}

/// Method, path and body of the next request.
fn request(reader: &mut impl BufRead) -> Option<(String, String, String)> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let (mut length, mut is_packed) = (0, false);
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let header = header.trim_end().to_ascii_lowercase();
        match header.split_once(": ") {
            Some(("content-length", value)) => length = value.parse().ok()?,
            Some(("content-encoding", value)) => is_packed = value == "gzip",
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let mut text = String::new();
    if is_packed {
        GzDecoder::new(&*body).read_to_string(&mut text).ok()?;
    } else {
        text = String::from_utf8(body).ok()?;
    }
    Some((method, path, text))
}

fn respond(mut stream: &TcpStream, status: u16, header: &str, body: &str, length: usize) {
    let end = if header.is_empty() { "" } else { "\r\n" };
    let head =
        format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n{header}{end}\r\n{body}");
    stream.write_all(head.as_bytes()).ok();
}

impl State {
    fn handle(&mut self, method: &str, path: &str, body: &str) -> (u16, String) {
        let (path, _) = path.split_once('?').unwrap_or((path, ""));
        let name = path.trim_start_matches('/').split('/').next().unwrap_or_default();
        let has_plugin = || self.plugins.iter().any(|plugin| path.starts_with(plugin));
        match method {
            "POST" if path == "/_bulk" => self.bulk(body),
            "POST" if path.ends_with("/_refresh") => {
                let all = self.indices.values().flatten().flatten();
                self.visible = all.map(|(id, text)| (id.clone(), text.clone())).collect();
                (200, json!({"_shards": {"failed": 0}}).to_string())
            }
            "POST" if path.ends_with("/_search") => (200, self.search(body)),
            "GET" if has_plugin() && !self.created.contains(path) => (404, "{}".to_owned()),
            "GET" if !has_plugin() => (400, json!({"error": "no handler found"}).to_string()),
            "HEAD" if !self.created.contains(path) && !self.indices.contains_key(name) => {
                (404, String::new())
            }
            "PUT" => {
                self.created.insert(path.to_owned());
                (200, "{}".to_owned())
            }
            _ => (200, "{}".to_owned()),
        }
    }

    fn bulk(&mut self, body: &str) -> (u16, String) {
        if self.bytes_max.is_some_and(|max| body.len() > max) {
            return (413, "too large".to_owned());
        }
        let lines: Vec<Value> =
            body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let mut items = Vec::new();
        for pair in lines.chunks(2) {
            let (create, document) = (&pair[0]["create"], &pair[1]);
            let text = |name: &str| create[name].as_str().unwrap().to_owned();
            let backing = self.indices.entry(text("_index")).or_insert(vec![BTreeMap::new()]);
            let last = backing.last_mut().unwrap();
            let error = |kind: &str| json!({"type": kind, "reason": "by the test"});
            items.push(if self.is_bad.as_ref().is_some_and(|is_bad| is_bad(document)) {
                json!({"create": {"status": 400, "error": error("document_parsing_exception")}})
            } else if let Entry::Vacant(place) = last.entry(text("_id")) {
                place.insert(document.clone());
                json!({"create": {"status": 201}})
            } else {
                json!({"create": {"status": 409, "error": error("version_conflict_engine_exception")}})
            });
        }
        (200, json!({"items": items}).to_string())
    }

    fn search(&self, body: &str) -> String {
        let query: Value = serde_json::from_str(body).unwrap();
        let wanted = query["query"]["ids"]["values"].as_array().unwrap();
        let found = self.visible.iter().filter(|(id, _)| wanted.contains(&json!(id)));
        let hits = found.map(|(id, document)| {
            let of = |name: &str| document.get(name).cloned();
            let parts = ["metrics", "not_finite"].map(|name| of(name).map(|value| (name.to_owned(), value)));
            json!({"_id": id, "_source": parts.into_iter().flatten().collect::<serde_json::Map<_, _>>()})
        });
        let hits: Vec<Value> = hits.collect();
        json!({"timed_out": false, "_shards": {"failed": 0}, "hits": {"hits": hits}}).to_string()
    }
}
