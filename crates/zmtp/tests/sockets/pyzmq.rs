//! libzmq, by pyzmq, at the other end.

use crate::kit::{PATIENCE, Python, listener, message, until};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;
use zmtp::{Limits, PeerError, PushQueue};

/// Sends messages of these lengths with its heartbeats, then waits until its input ends.
const PUSH: &str = r#"
import sys, zmq
context = zmq.Context()
push = context.socket(zmq.PUSH)
push.setsockopt(zmq.HEARTBEAT_IVL, 50)
push.setsockopt(zmq.HEARTBEAT_TIMEOUT, 2000)
push.setsockopt(zmq.HEARTBEAT_TTL, 3000)
push.connect("tcp://" + sys.argv[1])
for length in sys.argv[2:]:
    push.send(bytes([int(length) % 251]) * int(length))
sys.stdin.read()
push.close(linger=-1)
context.term()
"#;

/// Receives this many messages on an address, and prints of each its length, first byte and whether all its bytes are equal.
const PULL: &str = r#"
import sys, zmq
context = zmq.Context()
pull = context.socket(zmq.PULL)
pull.setsockopt(zmq.HEARTBEAT_IVL, 50)
pull.setsockopt(zmq.HEARTBEAT_TIMEOUT, 2000)
pull.bind("tcp://" + sys.argv[1])
for _ in range(int(sys.argv[2])):
    it = pull.recv()
    print(len(it), it[:1].hex(), len(set(it)) <= 1, flush=True)
pull.close(linger=0)
context.term()
"#;

const LENGTHS: [usize; 9] = [0, 1, 254, 255, 256, 8192, 65_536, 400_000, 3];

fn content(length: usize) -> Vec<u8> {
    vec![u8::try_from(length % 251).unwrap(); length]
}

#[test]
fn messages_of_libzmq_arrive_and_its_heartbeats_are_answered() {
    let (mut pull, address) = listener(Limits::default());
    let mut arguments = vec![address.to_string()];
    arguments.extend(LENGTHS.map(|length| length.to_string()));
    let mut python = Python::start(PUSH, &arguments);
    for length in LENGTHS {
        assert_eq!(message(&mut pull), content(length));
    }
    // Without answers the peer would end within 2 s, and connect again.
    assert_eq!(pull.receive(Duration::from_secs(4)).unwrap(), None);
    assert_eq!(pull.peers(), 1);
    drop(python.input());
    until(&mut pull, |pull| pull.peers() == 0);
    python.end();
}

#[test]
fn a_message_beyond_the_limit_ends_the_connection_and_the_next_one_arrives() {
    let (mut pull, address) = listener(Limits { message_bytes: 1000, ..Limits::default() });
    let arguments = [address.to_string(), "1000".into(), "1001".into()];
    let mut python = Python::start(PUSH, &arguments);
    assert_eq!(message(&mut pull), content(1000));
    match pull.receive(PATIENCE).unwrap() {
        Some(zmtp::Event::Ended { why, .. }) => {
            assert_eq!(why, PeerError::TooLong { announced: 1001, limit: 1000 });
        }
        other => panic!("{other:?}"),
    }
    until(&mut pull, |pull| pull.peers() == 1);
    drop(python.input());
    until(&mut pull, |pull| pull.peers() == 0);
    python.end();
}

/// What a PULL of libzmq on this address prints of so many messages.
struct Printed {
    python: Python,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Printed {
    fn start(address: SocketAddr, messages: usize) -> Self {
        let mut python = Python::start(PULL, &[address.to_string(), messages.to_string()]);
        let lines = BufReader::new(python.output()).lines();
        Self { python, lines }
    }

    fn expect(&mut self, lengths: &[usize]) {
        for length in lengths {
            let first = content(*length).first().map(|byte| format!("{byte:02x}"));
            let line = format!("{length} {} True", first.unwrap_or_default());
            assert_eq!(self.lines.next().unwrap().unwrap(), line);
        }
    }
}

#[test]
fn libzmq_receives_messages_before_and_after_it_is_stopped() {
    let (pull, address) = listener(Limits::default());
    drop(pull);
    let queue = PushQueue::start(&address.to_string(), 100, 10 << 20).unwrap();
    let put = || LENGTHS.iter().for_each(|length| queue.put(content(*length)));
    put();
    let mut printed = Printed::start(address, LENGTHS.len() + 1);
    printed.expect(&LENGTHS);
    // Its heartbeats are answered: it would end the connection within 2 s.
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!((queue.counts().sent, queue.counts().failure), (LENGTHS.len() as u64, None));
    queue.put(content(77));
    printed.expect(&[77]);
    printed.python.end();
    let begin = std::time::Instant::now();
    while queue.counts().failure.is_none() {
        assert!(begin.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(5));
    }
    put();
    let mut printed = Printed::start(address, LENGTHS.len());
    printed.expect(&LENGTHS);
    let counts = queue.end(PATIENCE);
    assert_eq!((counts.sent, counts.dropped), (2 * LENGTHS.len() as u64 + 1, 0));
    printed.python.end();
}

#[test]
fn a_socket_of_another_type_is_no_peer() {
    let script = r#"
import sys, zmq
sub = zmq.Context().socket(zmq.SUB)
sub.setsockopt(zmq.SUBSCRIBE, b"")
sub.connect("tcp://" + sys.argv[1])
sys.stdin.read()
"#;
    let (mut pull, address) = listener(Limits::default());
    let mut python = Python::start(script, &[address.to_string()]);
    match pull.receive(PATIENCE).unwrap() {
        Some(zmtp::Event::Ended { why, .. }) => assert_eq!(why, PeerError::Socket("SUB".into())),
        other => panic!("{other:?}"),
    }
    let mut input = python.input();
    input.flush().unwrap();
    drop(input);
    python.output().read_to_end(&mut Vec::new()).unwrap();
}
