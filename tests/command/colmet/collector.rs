//! `jobmeter colmet-collector`: receives a message of Colmet's node, prints its records, and ends with 0.

use crate::common::programs::{Running, program, until};
use crate::repository::layers::repository;
use std::io::Read as _;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// Sends the frame of a file again and again, with the present time, until it is killed.
const SEND: &str = "
import struct, sys, time, zmq
socket = zmq.Context().socket(zmq.PUSH)
socket.connect(sys.argv[1])
frame = bytearray(open(sys.argv[2], 'rb').read())
while True:
    frame[518:526] = struct.pack('<Q', int(time.time()))
    socket.send(bytes(frame))
    time.sleep(1)
";

#[test]
fn a_message_is_printed_and_signals_end_with_success() {
    for signal in ["TERM", "INT"] {
        let dir = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let uri = format!("tcp://127.0.0.1:{port}");
        let mut command = Command::new(program("jobmeter"));
        command.args(["colmet-collector", "--enable-stdout-backend", "--zeromq-bind-uri", &uri]);
        command.args(["--listen", "127.0.0.1:0", "--data"]).arg(dir.path().join("data"));
        let mut collector = Running::start(command.stdout(Stdio::piped()));
        let mut stdout = collector.child.stdout.take().unwrap();
        let text = Arc::new(Mutex::new(Vec::new()));
        let printed = Arc::clone(&text);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = stdout.read(&mut bytes) {
                printed.lock().unwrap().extend_from_slice(&bytes[..count]);
            }
        });
        let mut python = Command::new(repository().join("target/python/bin/python"));
        let frame = repository().join("testdata/colmet/colmet_py0610_procstats_only_9202B.bin");
        let _node = Running::start(python.args(["-c", SEND, &uri]).arg(frame));
        until("a record on standard output", LIMIT, || {
            let text = String::from_utf8_lossy(&text.lock().unwrap()).into_owned();
            (text.contains("ready: ") && text.contains("procstats_default")).then_some(())
        });
        collector.signal(signal);
        until("the end", LIMIT, || collector.child.try_wait().unwrap())
            .success()
            .then_some(())
            .unwrap();
    }
}
