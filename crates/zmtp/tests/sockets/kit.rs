//! A listener, peers that send any bytes, and Python with pyzmq.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use zmtp::{Event, Limits, PeerError, Pull, Push, Role, Session};

/// The bound of every wait: long enough for a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn listener(limits: Limits) -> (Pull, SocketAddr) {
    let any = Box::new(|_| true);
    let pull = Pull::bind(&["127.0.0.1:0".parse().unwrap()], limits, any).unwrap();
    let address = pull.addresses().unwrap()[0];
    (pull, address)
}

pub(crate) fn push(pull: &mut Pull, address: SocketAddr) -> Push {
    std::thread::scope(|scope| {
        let push = scope.spawn(|| Push::connect(&address.to_string(), PATIENCE).unwrap());
        while !push.is_finished() {
            assert_eq!(pull.receive(Duration::from_millis(1)).unwrap(), None);
        }
        push.join().unwrap()
    })
}

/// Greeting and READY of a PUSH.
pub(crate) fn opening() -> Vec<u8> {
    let (mut pull, mut push) = (Session::new(Role::Pull, 0), Session::new(Role::Push, 0));
    let greeting = push.pending().to_vec();
    pull.receive(&greeting, &mut |_| ()).unwrap();
    push.receive(pull.pending(), &mut |_| ()).unwrap();
    push.pending().to_vec()
}

/// A peer that sends these bytes, and remains connected.
pub(crate) fn peer(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut tcp = TcpStream::connect(address).unwrap();
    tcp.write_all(bytes).unwrap();
    tcp
}

/// The next event.
pub(crate) fn event(pull: &mut Pull) -> Event {
    pull.receive(PATIENCE).unwrap().expect("an event in time")
}

/// The next event is the end of this peer; its reason.
pub(crate) fn end_of(pull: &mut Pull, tcp: &TcpStream) -> PeerError {
    match event(pull) {
        Event::Ended { peer, why } if peer == tcp.local_addr().unwrap() => why,
        other => panic!("{other:?}"),
    }
}

/// The next event is a message; its bytes.
pub(crate) fn message(pull: &mut Pull) -> Vec<u8> {
    match event(pull) {
        Event::Message { bytes, .. } => bytes,
        other => panic!("{other:?}"),
    }
}

/// Receives until a condition holds.
pub(crate) fn until(pull: &mut Pull, mut is_so: impl FnMut(&Pull) -> bool) {
    let begin = Instant::now();
    while !is_so(pull) {
        assert_eq!(pull.receive(Duration::from_millis(5)).unwrap(), None);
        assert!(begin.elapsed() < PATIENCE, "it did not happen");
    }
}

/// A program in Python that ends with the test.
pub(crate) struct Python(Child);

impl Python {
    pub(crate) fn start(script: &str, arguments: &[String]) -> Self {
        let own = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut python = Command::new(own.join("../../target/python/bin/python"));
        python.args(["-c", script]).args(arguments);
        let child = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        Self(child.expect("target/python is missing; `make test` installs it"))
    }

    pub(crate) fn input(&mut self) -> ChildStdin {
        self.0.stdin.take().unwrap()
    }

    pub(crate) fn output(&mut self) -> ChildStdout {
        self.0.stdout.take().unwrap()
    }

    /// Waits for its success.
    pub(crate) fn end(mut self) {
        let begin = Instant::now();
        while self.0.try_wait().unwrap().is_none() {
            assert!(begin.elapsed() < PATIENCE, "the program in Python does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(self.0.wait().unwrap().success(), "pyzmq is in tests/requirements.txt");
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
