//! Clients that are slow, half open, closed too early, too many, or use another protocol.

use super::ingest::{HEADERS, batch, frame, post, statuses};
use super::{Site, answer, request, until};
use crate::Limits;
use model::{Batch, Boot};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;
use wire::AckStatus;

const MS: fn(u64) -> Duration = Duration::from_millis;

/// Whether the server closes a connection by itself.
fn ended(stream: &mut TcpStream) -> bool {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

/// Memory of this process, in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[test]
fn half_open_connections_are_ended_and_others_served_meanwhile() {
    let limits = Limits { header_time: MS(700), body_time: MS(700), ..Limits::default() };
    let site = Site::with(limits, &[]);
    let cut = request("POST /v1/batches", HEADERS, &[b'J'; 4000]);
    let mut streams = Vec::new();
    for i in 0..200 {
        let mut stream = site.connect();
        match i % 4 {
            0 => {}
            1 => stream.write_all(b"G").unwrap(),
            2 => stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nX").unwrap(),
            _ => stream.write_all(&cut[..cut.len() - 1]).unwrap(),
        }
        streams.push(stream);
    }
    let answer = post(&site, "", &frame(&batch("n1", 0)));
    assert_eq!(statuses(&answer), [AckStatus::Stored]);
    assert!(streams.iter_mut().all(ended));
    until("the seats are free again", || site.metric("jobmeter_connections") <= 1.0);
    assert!(site.metric("jobmeter_connections_broken_total{reason=\"header_timeout\"}") >= 150.0);
    assert_eq!(site.metric("jobmeter_refusals_total{reason=\"too_slow\"}"), 50.0);
}

#[test]
fn one_peer_cannot_take_every_seat_and_all_cannot_take_more_than_there_are() {
    let flags = [("connections_max", "12"), ("connections_per_peer_max", "8")];
    let site = Site::with(Limits::default(), &flags);
    let mut held: Vec<TcpStream> = (0..8)
        .map(|_| {
            let mut stream = site.connect();
            stream.write_all(b"GET /api/v1/ready HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            let mut first = [0; 12];
            stream.read_exact(&mut first).unwrap();
            assert_eq!(&first, b"HTTP/1.1 200");
            stream
        })
        .collect();
    assert!(ended(&mut site.connect()), "the ninth of one user");
    held.pop();
    until("a seat is free", || {
        let mut stream = site.connect();
        stream.write_all(&request("GET /api/v1/ready", "Host: localhost\r\n", b"")).unwrap();
        answer(&mut stream).is_ok_and(|answer| answer.status == 200)
    });
}

/// Behind a proxy, a local user without a token fills what the server gives one peer, with requests that do not end.
#[test]
#[expect(clippy::disallowed_methods, reason = "another user is another process")]
fn one_local_user_takes_no_connections_of_others_behind_a_proxy() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let flags = [("connections_per_peer_max", "8"), ("access.loopback", "none")];
    let site = Site::with(Limits::default(), &flags);
    let script = format!(
        "for fd in 3 4 5 6 7 8 9; do eval \"exec $fd<>/dev/tcp/127.0.0.1/{port}\"; printf 'GET /' >&$fd; done; \
         exec {{last}}<>/dev/tcp/127.0.0.1/{port}; echo held; read -r wait",
        port = site.address.port()
    );
    let mut user = Command::new("bash")
        .args(["-c", &script])
        .uid(65_534)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut held = [0; 5];
    user.stdout.take().unwrap().read_exact(&mut held).unwrap();
    let me = "Host: localhost\r\nAuthorization: Bearer token-of-1234\r\n";
    let requested = site.send("GET /api/v1/me", me, b"");
    assert_eq!(requested.status, 200, "another user");
    // The owner limits connections and identifies nobody.
    assert_eq!(site.get("/api/v1/me").status, 401);
    drop(user.stdin.take());
    user.wait().unwrap();
}

#[test]
fn a_client_that_takes_nothing_of_its_answer_is_given_up() {
    let limits = Limits { write_time: MS(500), ..Limits::default() };
    let site = Site::with(limits, &[]);
    let mut stream = site.connect();
    // Pipelined requests whose responses are never read fill all buffers.
    let query = b"GET /ui/vendor/uPlot.esm.js HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(2000);
    stream.set_write_timeout(Some(MS(300))).unwrap();
    stream.write_all(&query).ok();
    until("the connection is given up", || {
        site.metric("jobmeter_connections_broken_total{reason=\"write_timeout\"}") >= 1.0
    });
    drop(stream);
}

#[test]
fn garbage_stops_nothing_and_takes_no_memory() {
    let site = Site::start();
    assert_eq!(statuses(&post(&site, "", &frame(&batch("n1", 0)))), [AckStatus::Stored]);
    let before = resident();
    let good = frame(&batch("n1", 1));
    let mut seed = 1_u64;
    let mut random = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(seed >> 33).unwrap()
    };
    let mut rejected = 0;
    for _ in 0..100 {
        let mut body = Vec::new();
        for _ in 0..100 {
            // Each frame stands alone: its length is right, but its content is damaged.
            let mut bad = good.clone();
            let at = 12 + random() % (bad.len() - 12);
            bad[at] ^= 1 << (random() % 8);
            if random() % 2 == 0 {
                // A correct checksum over a damaged payload.
                let crc = crc32c(&bad[12..]);
                bad[8..12].copy_from_slice(&crc.to_le_bytes());
            }
            body.extend(bad);
        }
        let answer = post(&site, "", &body);
        let acks = statuses(&answer);
        assert_eq!(acks.len(), 100);
        rejected += acks.iter().filter(|ack| **ack != AckStatus::Stored).count();
    }
    assert!(rejected > 9000, "{rejected}");
    http_garbage(&site, &mut random);
    // Another boot: a flipped bit may have produced a sequence number of the first boot.
    let last = Batch { boot: Boot([9; 16]), ..batch("n1", 0) };
    assert_eq!(statuses(&post(&site, "", &frame(&last))), [AckStatus::Stored]);
    let grown = resident().saturating_sub(before);
    // Other tests of this process use memory meanwhile.
    assert!(grown < 128 << 20, "{grown} bytes more");
    until("the seats are free again", || site.metric("jobmeter_connections") <= 1.0);
}

/// Computes CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    !crc
}

fn http_garbage(site: &Site, random: &mut impl FnMut() -> usize) {
    let texts: [&[u8]; 8] = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/batches HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST /api/v1/sql HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{",
    ];
    for i in 0..2000 {
        let mut stream = site.connect();
        let mut bytes = texts[i % texts.len()].to_vec();
        if i % 3 == 0 {
            bytes = (0..random() % 300).map(|_| u8::try_from(random() % 256).unwrap()).collect();
        }
        // The server may have closed the connection already.
        stream.write_all(&bytes).ok();
        stream.shutdown(Shutdown::Write).ok();
        if i % 50 == 0 {
            assert!(ended(&mut stream), "{bytes:?}");
        }
    }
    // An endless header.
    let mut stream = site.connect();
    let long = vec![b'a'; 1 << 20];
    stream.write_all(b"GET / HTTP/1.1\r\nHost: ").ok();
    stream.write_all(&long).ok();
    assert!(ended(&mut stream));
    assert!(site.metric("jobmeter_connections_broken_total{reason=\"malformed\"}") > 100.0);
}

#[test]
fn a_client_that_closes_right_after_sending_harms_nothing() {
    let site = Site::start();
    for seq in 0..50 {
        let mut stream = site.connect();
        stream.write_all(&request("POST /v1/batches", HEADERS, &frame(&batch("n1", seq)))).unwrap();
        drop(stream);
    }
    // Each batch was stored or not. No batch was stored twice, and the server continues.
    for seq in 0..50 {
        let acks = statuses(&post(&site, "", &frame(&batch("n1", seq))));
        assert!(matches!(acks[..], [AckStatus::Stored | AckStatus::Duplicate]));
    }
    let stored = site.metric("jobmeter_ingest_frames_total{outcome=\"stored\"}");
    assert_eq!(stored, 50.0);
}

#[test]
fn requests_under_way_are_answered_when_the_server_stops() {
    let site = Site::start();
    let mut idle = site.connect();
    idle.write_all(b"GET /api/v1/ready HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut first = [0; 12];
    idle.read_exact(&mut first).unwrap();
    let mut slow = site.connect();
    let bytes = request("POST /v1/batches", HEADERS, &frame(&batch("n1", 0)));
    let (head, tail) = bytes.split_at(bytes.len() - 5);
    slow.write_all(head).unwrap();
    let tail = tail.to_vec();
    until("the request is under way", || site.metric("jobmeter_http_requests_under_way") >= 2.0);
    let late = std::thread::spawn(move || {
        std::thread::sleep(MS(300));
        slow.write_all(&tail).unwrap();
        answer(&mut slow).map(|answer| statuses(&answer))
    });
    let address = site.address;
    drop(site.stop());
    assert_eq!(late.join().unwrap().unwrap(), [AckStatus::Stored]);
    assert!(ended(&mut idle));
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn urls_and_headers_that_are_too_long_are_rejected() {
    let site = Site::start();
    let in_header = |bytes| {
        let headers = format!("Host: localhost\r\nX-Long: {}\r\n", "x".repeat(bytes));
        site.send("GET /api/v1/ready", &headers, b"")
    };
    let in_url = |path: &str, bytes| site.get(&format!("{path}?x={}", "x".repeat(bytes)));
    assert_eq!((in_header(60_000).status, in_url("/api/v1/nodes", 60_000).status), (200, 400));
    let urls = ["/api/v1/nodes", "/", "/nothing"].map(|path| in_url(path, 62_000));
    assert_eq!((in_header(70_000).status, urls.each_ref().map(|url| url.status)), (431, [414; 3]));
    for answer in [in_header(70_000)].into_iter().chain(urls) {
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{answer:?}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{answer:?}");
    }
    // hyper's own answer.
    let longer = in_url("/api/v1/nodes", 70_000);
    assert_eq!((longer.status, longer.body.len()), (414, 0));
}
