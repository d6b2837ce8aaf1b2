//! What the command ends with where a script looks at it.
#![expect(clippy::unwrap_used, reason = "tests end at the first surprise")]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::Command;

/// A port where nobody answers.
const NOBODY: &str = "http://127.0.0.1:1";

/// The exit code and both outputs.
fn jobmeter(server: &str, words: &[&str]) -> (i32, String, String) {
    #[expect(clippy::disallowed_methods, reason = "the program itself is tested")]
    let mut command = Command::new(env!("CARGO_BIN_EXE_jobmeter"));
    let output = command.args(["--server", server]).args(words).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_command_that_cannot_start_is_one_line() {
    for (command, code, want) in [
        ("/nonexistent/cmd", 127, "jobmeter: /nonexistent/cmd: "),
        ("no-such-command-anywhere", 127, "jobmeter: no-such-command-anywhere: no such command"),
        ("/etc/passwd", 126, "jobmeter: /etc/passwd: not executable"),
    ] {
        let (is, out, told) = jobmeter(NOBODY, &["run", "--json", "--", command]);
        assert_eq!((is, &*out, told.lines().count()), (code, "", 1), "{command}: {told}");
        assert!(told.starts_with(want), "{told}");
    }
}

/// Answers each path's question with a body, as long as the test runs.
fn serve(answers: &'static [(&'static str, &'static str)]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let asked = lines.next().unwrap().unwrap();
            while lines.next().unwrap().unwrap() != "" {}
            let found = answers.iter().find(|(path, _)| asked.contains(path));
            let (status, body) = found.map_or(("404 Not Found", ""), |found| ("200 OK", found.1));
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
            );
            stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        }
    });
    url
}

#[test]
fn a_name_that_nobody_has_is_told() {
    let url = serve(&[
        ("metrics=load_1m", "timestamp,device_id\n"),
        ("metrics=lod_1m", "timestamp,device_id\n"),
        (
            "/api/v1/series",
            r#"[{"device":"n1","metric":"load_1m","cluster":null,"job":null,"labels":{},"unit":"","kind":"gauge"}]"#,
        ),
        ("/api/v1/catalogue", r#"[{"name":"load_1m","unit":"","kind":"gauge","help":""}]"#),
    ]);
    let get = |metric| {
        let words =
            ["get", "--device", "n1", "--start", "0", "--format", "csv", "--metric", metric];
        jobmeter(&url, &words)
    };
    let (code, out, told) = get("lod_1m");
    assert_eq!((code, &*out), (1, "timestamp,device_id\n"), "{told}");
    assert_eq!(told, "jobmeter: no metric `lod_1m` is known here; is `load_1m` meant?\n");
    // A name that is known, and nothing in that time: an answer.
    let (code, _, told) = get("load_1m");
    assert_eq!((code, &*told), (0, ""));
}
