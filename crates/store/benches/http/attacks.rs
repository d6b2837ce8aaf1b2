//! Effect of attacks on honest clients: the latency of agents' acks and of `/api/v1/ready` while two
//! attackers repeat one request.

use crate::client::{Client, Measured, Pace};
use crate::hostile_corpus::{frames, requests, statements};
use crate::program::{Server, program};
use crate::swarm::Swarm;
use crate::{at, load, print_line, sorted};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const ATTACKERS: usize = 2;
const AGENTS: usize = 20;
/// Period of each agent, and of requests to `ready`.
const PERIOD: Duration = Duration::from_millis(500);
const READY_PERIOD: Duration = Duration::from_millis(20);
/// An attacker disconnects after this time without an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A request that an attacker sends over its own connection.
struct Attack {
    what: String,
    bytes: Vec<u8>,
    /// How long the attacker waits for the answer.
    patience: Duration,
}

/// Runs each attack for half a minute, or this percentage of it.
pub(crate) fn measure(dir: &Path, percent: usize) -> Result<(), String> {
    let program = &program()?;
    let place = dir.join("attacks");
    let server = Server::start(program, &place);
    if server.is_development_build() {
        return Err(format!("{} is a development build: no bench runs in it", program.display()));
    }
    let rounds = (60 * percent).div_ceil(100);
    print_line(&format!("load before: {}", load()));
    print_line(
        "| attack, by two at once | sent | acks, p50 | p99 | ready, p50 | p99 |\n|---|---|---|---|---|---|",
    );
    let mut swarm = Swarm::new(AGENTS, rounds);
    let none = Attack { what: "none".to_owned(), bytes: Vec::new(), patience: Duration::ZERO };
    for attack in std::iter::once(none).chain(attacks()) {
        row(server.address, &attack, &mut swarm);
    }
    print_line(&format!("load after: {}", load()));
    server.kill();
    std::fs::remove_dir_all(&place).unwrap();
    Ok(())
}

fn attacks() -> impl Iterator<Item = Attack> {
    let post = |path: &str, kind: &str, body: &[u8]| {
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.0\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
        );
        [head.as_bytes(), body].concat()
    };
    let of_statement = move |(kind, text): (&str, String)| {
        let text = text.replace('\\', "\\\\").replace('"', "\\\"");
        let body = format!("{{\"query\": \"{text}\"}}");
        let bytes = post("/api/v1/sql", "application/json", body.as_bytes());
        Attack { what: format!("statements: {kind}"), bytes, patience: PATIENCE }
    };
    let of_frames = move |(kind, body): (&str, Vec<u8>)| {
        let bytes = post("/v1/batches", "application/x-jobmeter-batches", &body);
        Attack { what: format!("frames: {kind}"), bytes, patience: PATIENCE }
    };
    let of_request = |(kind, bytes): (&str, Vec<u8>)| {
        let patience = Duration::from_millis(50);
        Attack { what: format!("requests: {kind}"), bytes, patience }
    };
    let statements = statements().into_iter().map(of_statement);
    statements
        .chain(frames().into_iter().map(of_frames))
        .chain(requests().into_iter().map(of_request))
}

/// Attacks, and measures meanwhile.
fn row(address: SocketAddr, attack: &Attack, swarm: &mut Swarm) {
    let (over, sent) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (acks, ready) = std::thread::scope(|scope| {
        if !attack.bytes.is_empty() {
            for _ in 0..ATTACKERS {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        send(address, &attack.bytes, attack.patience, &over);
                        sent.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        }
        let ready = scope.spawn(|| {
            let mut took = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let began = Instant::now();
                let request = b"GET /api/v1/ready HTTP/1.0\r\nHost: localhost\r\n\r\n";
                let answer = send(address, request, PATIENCE, &AtomicBool::new(false));
                assert!(answer.starts_with(b"HTTP/1.0 200"), "ready is answered");
                took.push(began.elapsed().as_secs_f64() * 1e3);
                std::thread::sleep(READY_PERIOD.saturating_sub(began.elapsed()));
            }
            took
        });
        let ends = Ends(&over);
        let mut client = Client::connect(address, AGENTS);
        let pace = Pace::Every { period: PERIOD, spread: true };
        let Measured { latencies, .. } = client.send(swarm, pace, &mut || ());
        drop(ends);
        (sorted(latencies), sorted(ready.join().unwrap()))
    });
    let [a50, a99, r50, r99] = [(&acks, 0.5), (&acks, 0.99), (&ready, 0.5), (&ready, 0.99)]
        .map(|(times, share)| at(times, share));
    let (what, sent) = (&attack.what, sent.into_inner());
    print_line(&format!(
        "| {what} | {sent} | {a50:.1} ms | {a99:.1} ms | {r50:.1} ms | {r99:.1} ms |"
    ));
}

/// Ends an attack, even if its measurement fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends bytes over a new connection and reads the answer, until it ends, or `patience` or the attack is over.
fn send(address: SocketAddr, bytes: &[u8], patience: Duration, over: &AtomicBool) -> Vec<u8> {
    let began = Instant::now();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(patience.min(Duration::from_millis(200)))).unwrap();
    // A rejection may arrive before all is sent.
    stream.write_all(bytes).ok();
    let (mut answer, mut part) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut part) {
            Ok(0) => return answer,
            Ok(count) => answer.extend(part.iter().take(count)),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return answer,
        }
        if began.elapsed() >= patience || over.load(Ordering::Relaxed) {
            return answer;
        }
    }
}
