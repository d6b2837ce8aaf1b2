//! CPython reads the pickles of hostile names and of any numbers, as the lines of text have them.

use crate::graphite::site::{S, Sample, Site, now, wait_for};
use model::Timestamp;
use outputs::FillState;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

/// Receives bytes until the other side closes.
fn sink() -> (u16, std::thread::JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let receive = move || {
        let mut bytes = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut bytes).unwrap();
        bytes
    };
    (port, std::thread::spawn(receive))
}

/// Reads frames as Carbon does, and prints the points as JSON.
const UNPICKLE: &str = "
import json, pickle, struct, sys
data, points = sys.stdin.buffer.read(), []
while data:
    length, = struct.unpack('!L', data[:4])
    points += [[path, repr(value), at] for path, (at, value) in pickle.loads(data[4:4 + length])]
    data = data[4 + length:]
json.dump(points, sys.stdout)
";

#[test]
fn cpython_reads_the_points_that_plaintext_has() {
    let mut site = Site::new();
    let begin = (now().0 / S - 5000) * S;
    let texts = ["/", "../n2", "a b", "a_b", "a;b=c", "é", "\"'{}*", "..", "x".repeat(400).leak()];
    let mut bits: u64 = 88_172_645_463_325_252;
    for at in 0..200 {
        let mut samples: Vec<Sample<'_>> = Vec::new();
        let labels: Vec<[(&str, &str); 1]> = texts.iter().map(|text| [("part", *text)]).collect();
        for labels in &labels {
            // Xorshift: any bits, so NaN, infinities and denormal numbers too.
            bits ^= bits << 13;
            bits ^= bits >> 7;
            bits ^= bits << 17;
            samples.push(("load_1m", labels, Some(7), begin + at * S / 2, f64::from_bits(bits)));
        }
        site.store("n1", &samples);
    }
    let ((pickle, pickled), (plain, lines)) = (sink(), sink());
    let one = |name: &str, port: u16| {
        format!(
            "[outputs.{name}]\nkind = \"graphite\"\naddress = \"127.0.0.1:{port}\"\nprotocol = \"{name}\"\n"
        )
    };
    site.apply(&(one("pickle", pickle) + &one("plaintext", plain)));
    for name in ["pickle", "plaintext"] {
        site.outputs.fill(name, (Timestamp(0), now()), None).unwrap();
    }
    wait_for("both ranges", || {
        let status = site.outputs.status();
        let is_done = |one: &outputs::OutputStatus| {
            one.fills.iter().all(|fill| matches!(fill.state, FillState::Done(_)))
        };
        if status.iter().all(is_done) { Ok(()) } else { Err(format!("{status:?}")) }
    });
    let lines = String::from_utf8(lines.join().unwrap()).unwrap();
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/python/bin/python");
    let mut python = Command::new(python);
    python.args(["-c", UNPICKLE]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = python.spawn().expect("target/python is missing; `make test` installs it");
    python.stdin.take().unwrap().write_all(&pickled.join().unwrap()).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success());
    let points: Vec<(String, String, i64)> = serde_json::from_slice(&output.stdout).unwrap();
    let lines: Vec<_> = lines.lines().map(|line| line.split(' ').collect::<Vec<_>>()).collect();
    assert!(points.len() > 1500 && points.len() == lines.len(), "{}", points.len());
    for ((path, value, at), line) in points.iter().zip(&lines) {
        let [path_of_line, value_of_line, at_of_line] = line[..] else { panic!("{line:?}") };
        assert_eq!((&**path, &*at.to_string()), (path_of_line, at_of_line));
        let values = [value, value_of_line].map(|value| value.parse::<f64>().unwrap().to_bits());
        assert_eq!(values[0], values[1], "{line:?}");
        let parts: Vec<&str> = path.split('.').collect();
        assert!(path.starts_with("n1.load_1m.job.oar.7.part.") && parts.len() == 7, "{path}");
    }
    let mut paths: Vec<&str> = points.iter().map(|(path, ..)| &**path).collect();
    paths.sort_unstable();
    paths.dedup();
    assert_eq!(paths.len(), texts.len());
}
