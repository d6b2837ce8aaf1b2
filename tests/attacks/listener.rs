//! A user who listens on a port on which other users expect a server receives none of their data.

use crate::common::programs::{self, agent, output, program, until};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const USER: &str = "65534";

/// Accepts connections as another user; prints its port, then the received bytes.
const LISTENER: &str = r#"
import os, socket
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
while True:
    one, _ = listening.accept()
    one.settimeout(5)
    try:
        got = one.recv(65536)
    except OSError:
        got = b""
    print(repr(got), flush=True)
    one.close()
"#;

struct Listener(Child);

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn nothing_is_sent_to_a_port_of_another_user() {
    let test = "nothing_is_sent_to_a_port_of_another_user";
    if !programs::root(test) {
        return;
    }
    let started =
        Command::new("python3").args(["-B", "-c", LISTENER]).stdout(Stdio::piped()).spawn();
    let mut listener = Listener(started.unwrap());
    let mut lines = BufReader::new(listener.0.stdout.take().unwrap()).lines();
    let port: u16 = lines.next().unwrap().unwrap().parse().unwrap();
    let url = format!("http://127.0.0.1:{port}");
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "s3cret-of-root\n").unwrap();
    let token = token.to_str().unwrap();

    let arguments = ["nodes", "--server", &url, "--token-file", token];
    let (code, _, errors) = output(Command::new(program("jobmeter")).args(arguments));
    assert_ne!(code, 0, "{errors}");
    assert!(errors.contains(&format!("belongs to user {USER}")), "{errors}");
    assert_eq!(lines.next().unwrap().unwrap(), "b''");

    let spool = dir.path().join("spool");
    let mut sender = agent();
    sender.args(["--server", &url, "--token-file", token, "--spool"]).arg(&spool);
    let sending = programs::Running::start(sender.args(["--period", "1s"]));
    until("the agent's refusal", Duration::from_secs(20), || {
        sending.errors().contains(&format!("belongs to user {USER}")).then_some(())
    });
    assert_eq!(lines.next().unwrap().unwrap(), "b''");
    drop(sending);

    // `--server-uids` makes the command trust that user.
    let arguments = [&arguments[..], &["--server-uids", USER]].concat();
    output(Command::new(program("jobmeter")).args(arguments));
    let got = lines.map(Result::unwrap).find(|got| got != "b''").unwrap();
    assert!(got.contains("s3cret-of-root"), "{got}");
}
