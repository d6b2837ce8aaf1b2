//! Peers that send anything: each ends alone, with a reason, and a good one beside it loses nothing.

use crate::kit::{PATIENCE, Python, end_of, listener, message, opening, peer, push};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use zmtp::{Event, Limits, PeerError};

#[test]
fn a_header_of_a_terabyte_ends_only_its_peer() {
    let (mut pull, address) = listener(Limits::default());
    let mut good = push(&mut pull, address);
    let header = [&opening()[..], b"\x02", &10u64.pow(12).to_be_bytes()].concat();
    for round in 0..20u8 {
        let bad = peer(address, &header);
        let too_long = PeerError::TooLong { announced: 10u64.pow(12), limit: 4 << 20 };
        assert_eq!(end_of(&mut pull, &bad), too_long);
        good.put(&[round]);
        assert_eq!(good.flush(PATIENCE), Ok(true));
        assert_eq!(message(&mut pull), [round]);
    }
    assert_eq!(pull.peers(), 1);
}

#[test]
fn wrong_peers_end_with_their_reason() {
    let (mut pull, address) = listener(Limits::default());
    let opening = opening();
    let then = |bytes: &[u8]| [&opening[..], bytes].concat();
    for (bytes, word) in [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "foreign"),
        (b"\xff\0\0\0\0\0\0\0\x01\x7f\x01\x08\0\0".to_vec(), "version"),
        (b"\x01\0\x05hello".to_vec(), "foreign"),
        (then(b"\xff\xff"), "flags"),
        (then(b"\x04\xff\x09SUBSCRIBE"), "truncated"),
        (then(b"\x04\x01\x09"), "command"),
        (then(b"\0\x05abc"), "truncated"),
        (opening[..70].to_vec(), "truncated"),
        (Vec::new(), "truncated"),
    ] {
        let bad = peer(address, &bytes);
        bad.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(end_of(&mut pull, &bad).word(), word, "{bytes:?}");
    }
    // A peer that leaves between two messages is no error.
    let good = peer(address, &then(b"\0\x01a\0\x01b"));
    assert_eq!([message(&mut pull), message(&mut pull)], [b"a", b"b"]);
    drop(good);
    assert_eq!(pull.receive(Duration::from_millis(100)).unwrap(), None);
    assert_eq!(pull.peers(), 0);
}

/// Numbered messages of a PUSH of libzmq, some of them large. It remains connected: another peer could get its port.
const NUMBERED: &str = r#"
import sys, time, zmq
push = zmq.Context().socket(zmq.PUSH)
push.connect("tcp://" + sys.argv[1])
for number in range(int(sys.argv[2])):
    push.send(b"%d " % number + b"x" * (number * 7919 % 20000))
    time.sleep(0.0005)
sys.stdin.read()
"#;

/// A number that seems to be random.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Connects, sends two messages of which some bytes are wrong, missing or too many, and leaves.
fn send_damaged(address: SocketAddr, state: &mut u64, whole: &[u8]) {
    let mut bytes = whole.to_vec();
    for _ in 0..=random(state) % 4 {
        let at = usize::try_from(random(state)).unwrap() % bytes.len();
        match random(state) % 4 {
            0 => bytes[at] = u8::try_from(random(state) % 256).unwrap(),
            1 => bytes[at] ^= 1 << (random(state) % 8),
            2 => bytes.truncate(at.max(1)),
            _ => bytes.insert(at, u8::try_from(random(state) % 256).unwrap()),
        }
    }
    let mut tcp = TcpStream::connect(address).unwrap();
    // The listener may have closed the connection already.
    tcp.write_all(&bytes).ok();
}

#[test]
fn ten_thousand_damaged_peers_take_nothing_from_a_good_one() {
    const MESSAGES: u32 = 5000;
    const DAMAGED: usize = 10_000;
    let (mut pull, address) = listener(Limits { peers_per_address: 200, ..Limits::default() });
    let mut python = Python::start(NUMBERED, &[address.to_string(), MESSAGES.to_string()]);
    let damaged = std::thread::spawn(move || {
        let (mut state, mut whole) = (0x9E37_79B9_7F4A_7C15, opening());
        whole.extend(b"\0\x03abc\x04\x07\x04PING\0\x0a\x02\0\0\0\0\0\0\x01\x04");
        whole.extend([7; 260]);
        (0..DAMAGED).for_each(|_| send_damaged(address, &mut state, &whole));
    });
    let (mut next, mut ended, begin) = (0, 0, Instant::now());
    let mut good = None;
    while next < MESSAGES || !damaged.is_finished() {
        assert!(begin.elapsed() < 2 * PATIENCE, "{next} messages, {ended} wrong peers");
        match pull.receive(Duration::from_millis(20)).unwrap() {
            Some(Event::Message { peer, bytes }) => {
                let number = format!("{next} ");
                // The first message of the good peer identifies it.
                if bytes == b"0 " {
                    good = Some(peer);
                }
                if good == Some(peer) {
                    assert!(bytes.starts_with(number.as_bytes()), "{next} is missing");
                    next += 1;
                }
            }
            Some(Event::Ended { peer, why }) => {
                assert_ne!(Some(peer), good, "{why}");
                ended += 1;
            }
            None => {}
        }
    }
    drop(python.input());
    python.end();
    damaged.join().unwrap();
    assert!(ended > DAMAGED / 2, "{ended} wrong peers");
}

#[test]
fn a_slow_handshake_and_a_silent_one_end() {
    let handshake = Duration::from_millis(300);
    let (mut pull, address) = listener(Limits { handshake, ..Limits::default() });
    let silent = peer(address, b"");
    assert_eq!(end_of(&mut pull, &silent), PeerError::Handshake);
    let mut slow = peer(address, b"");
    let mut bytes = opening().into_iter();
    let end = loop {
        if let Some(event) = pull.receive(Duration::from_millis(20)).unwrap() {
            break event;
        }
        slow.write_all(&[bytes.next().unwrap()]).unwrap();
    };
    assert!(matches!(end, Event::Ended { why: PeerError::Handshake, .. }), "{end:?}");
    // A handshake that arrived while nothing was received is not slow.
    let opening = opening();
    let (greeting, ready) = opening.split_at(64);
    let mut good = peer(address, greeting);
    while pull.peers() == 0 {
        assert_eq!(pull.receive(Duration::ZERO).unwrap(), None);
    }
    good.write_all(&[ready, b"\0\x01a"].concat()).unwrap();
    std::thread::sleep(2 * handshake);
    assert_eq!(message(&mut pull), b"a");
}
