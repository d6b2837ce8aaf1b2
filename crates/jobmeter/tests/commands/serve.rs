//! A test server that answers from a table.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

/// The answer of `/api/v1/health`.
pub(crate) const HEALTH: &str = r#"{"version":"","build":"","ready":true,"uptime_seconds":1,"now":1,"nodes_alive":1,"nodes":2,
    "jobs_running":0}"#;

/// The first column of rows by SQL is a time.
const TIME_COLUMNS: &str = "x-jobmeter-time-columns: 0\r\n";

/// A request.
pub(crate) struct Request {
    /// The request line: `GET /api/v1/nodes HTTP/1.1`.
    pub(crate) line: String,
    /// The `Accept` header.
    pub(crate) accept: String,
}

/// Starts a server for the duration of the test, and returns its URL. The answer to a request is the body of the
/// first key that the request line contains, or 404 without a match.
pub(crate) fn serve(answers: &'static [(&'static str, &'static str)]) -> String {
    serve_with(move |request| {
        let found = answers.iter().find(|(key, _)| request.line.contains(key));
        found.map_or(("404 Not Found", String::new()), |(_, body)| ("200 OK", (*body).to_owned()))
    })
}

/// Starts a server whose status and body come from a function.
pub(crate) fn serve_with(
    answer: impl Fn(&Request) -> (&'static str, String) + Send + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let (status, body) = answer(&read(&stream));
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n{TIME_COLUMNS}\r\n"
            );
            // The command may have closed the connection already.
            stream.write_all(format!("{head}{body}").as_bytes()).ok();
        }
    });
    url
}

/// Reads a whole request.
fn read(stream: &TcpStream) -> Request {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while reader.read_line(&mut head).unwrap() > 2 {}
    let field = |name: &str| {
        let mut fields = head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(key, _)| key.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
    };
    let length = field("content-length").parse().unwrap_or(0);
    let accept = field("accept").to_owned();
    let line = head.lines().next().unwrap_or_default().to_owned();
    reader.take(length).read_to_end(&mut Vec::new()).unwrap();
    Request { line, accept }
}
