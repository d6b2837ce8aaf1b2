//! Tests `jobmeter run` with a failing server, and with rejected options.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests end at the first surprise, and start the program"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

fn run(url: &str, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_jobmeter"));
    command.args(["run", "--server", url]).args(words).output().unwrap()
}

/// Reads a whole request; returns its path.
fn request(stream: &TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).unwrap();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap() == 0 || line == "\r\n" {
            break;
        }
        if let Some(number) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = number.trim().parse().unwrap();
        }
    }
    reader.take(length).read_to_end(&mut Vec::new()).unwrap();
    first.split(' ').nth(1).unwrap_or_default().to_owned()
}

#[test]
fn an_end_that_no_server_answers_is_sent_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let requests: Arc<Mutex<Vec<String>>> = Arc::default();
    let received = Arc::clone(&requests);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let path = request(&stream);
            let ends = {
                let mut received = received.lock().unwrap();
                received.push(path.clone());
                received.iter().filter(|path| path.ends_with("/end")).count()
            };
            let body = match &*path {
                "/api/v1/jobs" => r#"{"cluster":"local","id":7,"server":"ab12"}"#,
                "/api/v1/nodes" => "[]",
                // The first ends fail as during a server restart. Other requests are rejected, which the command
                // does not retry.
                path if path.ends_with("/end") && ends < 3 => continue,
                _ => r#"{"code":"404","message":"none","details":null,"hint":null}"#,
            };
            let status = if body.contains("404") { "404 Not Found" } else { "200 OK" };
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
            );
            stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        }
    });
    let output = run(&url, &["--device", "n1", "--", "sh", "-c", "exit 3"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{errors}");
    let requests = requests.lock().unwrap();
    let ends = requests.iter().filter(|path| *path == "/api/v1/jobs/local:7/end").count();
    assert_eq!(ends, 3, "{requests:?} {errors}");
    let batches = requests.iter().filter(|path| *path == "/v1/batches").count();
    assert_eq!(batches, 1, "samples that the server rejects are not sent again: {requests:?}");
    assert!(
        errors.contains("  note                  sending samples: the server responds 404"),
        "{errors}"
    );
}

#[test]
fn a_rejected_limit_leaves_no_job() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    // Processors that no machine has. Without a cgroup the option is rejected, too.
    let output = run(&url, &["--cpus", "60000-60001", "--", "true"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("--cpus"), "{errors}");
    assert!(listener.accept().is_err(), "the server received a request");
}
