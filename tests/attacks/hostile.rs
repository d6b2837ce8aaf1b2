//! Hostile statements, frames and requests run in parallel, repeatedly, while the server serves honest
//! clients. `make test` runs the corpus once, `make soak` for one hour.

use crate::attacks::hostile_corpus::{frames, requests, statements};
use crate::attacks::statements::{metric, resident_mib, sql};
use crate::common::programs::{Server, get, until};
use crate::repository::layers::repository;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Sends a body of frames, and returns the status.
fn post(url: &str, body: &[u8]) -> u16 {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(120)))
        .build()
        .into();
    let request = agent.post(format!("{url}/v1/batches"));
    let answer = request.content_type("application/x-jobmeter-batches").send(body).unwrap();
    answer.status().as_u16()
}

/// Sends bytes, reads the start of a response for up to 200 ms, and closes the connection.
fn connect(url: &str, bytes: &[u8]) {
    let mut stream = TcpStream::connect(url.trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    stream.write_all(bytes).ok();
    let _read = stream.read(&mut [0; 512]);
}

#[test]
fn whatever_is_sent_others_are_served() {
    let seconds = std::env::var("HOSTILE_SECONDS").ok().and_then(|text| text.parse().ok());
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(0));
    let dir = tempfile::tempdir().unwrap();
    let flags = ["--query-time-max", "1s", "--query-memory-bytes-max", "64MiB"];
    let mut server = Server::start(dir.path(), &flags);
    let url = &*server.url;
    let honest = std::fs::read(repository().join("testdata/wire/v1/first.bin")).unwrap();
    assert_eq!(post(url, &honest), 200);
    let (statements, frames, requests) = (statements(), frames(), requests());
    let hostile = AtomicUsize::new(0);
    let again = |attack: &dyn Fn()| loop {
        attack();
        hostile.fetch_add(1, Ordering::Relaxed);
        if Instant::now() >= end {
            return;
        }
    };
    let by_statements = || {
        for (kind, text) in &statements {
            let (status, body) = sql(url, text);
            assert!([200, 400, 413].contains(&status), "{kind}: {status} {body:.200}");
        }
    };
    let by_frames = || {
        for (kind, body) in &frames {
            let status = post(url, body);
            assert!(status == 200 || (400..500).contains(&status), "{kind}: {status}");
        }
    };
    let by_requests = || requests.iter().for_each(|(_, bytes)| connect(url, bytes));
    let mut served = 0;
    std::thread::scope(|scope| {
        let attacks: [&(dyn Fn() + Sync); 3] = [&by_statements, &by_frames, &by_requests];
        let again = &again;
        let attackers = attacks.map(|attack| scope.spawn(move || again(attack)));
        while attackers.iter().any(|attacker| !attacker.is_finished()) {
            assert_eq!(get(url, "/api/v1/ready").0, 200);
            assert_eq!(post(url, &honest), 200);
            served += 1;
        }
    });
    println!("{} rounds of hostile input, {served} of honest clients", hostile.into_inner());
    // If a statement blocked honest clients, they would be served about as often as statements end.
    assert!(served > 2 * statements.len(), "{served}");
    let acks = |outcome: &str| {
        metric(url, &format!("jobmeter_ingest_frames_total{{outcome=\"{outcome}\"}}"))
    };
    let (stored, duplicates) = (acks("stored"), acks("duplicate"));
    let honest = (1.0, served as f64);
    assert_eq!((stored, duplicates), honest, "every honest frame and no other");
    until("all is given back", Duration::from_secs(20), || {
        let held = ["jobmeter_sql_statements", "jobmeter_sql_memory_bytes"];
        held.iter().all(|name| metric(url, name) == 0.0).then_some(())
    });
    let mib = resident_mib(server.running.child.id());
    assert!(mib < 600, "the server itself has had {mib} MiB");
    assert!(server.running.child.try_wait().unwrap().is_none());
}
