//! Connections to schedulers without TLS. Within this machine any user can listen on a port while its service is
//! down, receive the server's secret, and answer with jobs of their own. So the user at the other end is looked up
//! before anything is sent (decision 0019).

use kernel::Root;
use kernel::tcp_owners::{Ends, owners};
use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpStream, lookup_host};

/// Largest ID of a system user, in which distributions run services (`SYS_UID_MAX` of login.defs(5)).
const SYSTEM_UID_MAX: u32 = 999;
/// Shortest and longest pause between two look-ups, until a program accepts the connection.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];
/// Longest time until a program accepts the connection.
const ACCEPT_TIME_MAX: Duration = Duration::from_secs(5);

/// Connects to the first address of a host that accepts. On loopback, root, the server's own user or a system user
/// must own the other end.
pub(crate) async fn connect(host: &str, port: u16) -> Result<TcpStream> {
    let mut last = Error::new(ErrorKind::NotFound, format!("`{host}` has no address"));
    for address in lookup_host((host, port)).await? {
        match connect_to(address).await {
            Ok(stream) => return Ok(stream),
            // The most useful error is that of another user's listener.
            Err(_) if last.kind() == ErrorKind::PermissionDenied => {}
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn connect_to(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    let theirs = stream.peer_addr()?;
    if theirs.ip().to_canonical().is_loopback() {
        let ends = Ends { theirs, ours: stream.local_addr()? };
        let user = accepted_by(ends).await?;
        // Only while this socket has a peer do its ports belong to this connection.
        stream.peer_addr()?;
        if !is_trusted(user) {
            let what = format!(
                "the listener at {theirs} belongs to user {user}, who is neither root nor a system \
                 user; nothing was sent; use a unix socket or TLS"
            );
            return Err(Error::new(ErrorKind::PermissionDenied, what));
        }
    }
    Ok(stream)
}

/// The user at the other end, once a program has accepted the connection.
async fn accepted_by(ends: Ends) -> Result<u32> {
    let root = Root::live().map_err(Error::other)?;
    let ([mut pause, longest], mut waited) = (PAUSES, Duration::ZERO);
    while waited < ACCEPT_TIME_MAX {
        let root = root.clone();
        let found = tokio::task::spawn_blocking(move || owners(&root, &[ends])).await;
        if let Some(user) = found.map_err(Error::other)?.into_iter().next().flatten() {
            return Ok(user);
        }
        tokio::time::sleep(pause).await;
        waited += pause;
        pause = (pause * 2).min(longest);
    }
    let what = format!("no program accepted the connection to {}", ends.theirs);
    Err(Error::new(ErrorKind::TimedOut, what))
}

fn is_trusted(user: u32) -> bool {
    user <= SYSTEM_UID_MAX || user == rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Read};
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    /// Listens on loopback; prints the port, then what the first connection sends.
    const LISTENER: &str = r#"
import socket
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
one, _ = listening.accept()
one.settimeout(30)
print(repr(one.recv(65536)), flush=True)
"#;

    #[tokio::test]
    #[expect(
        clippy::disallowed_methods,
        clippy::print_stdout,
        reason = "it starts a listener of another user, and states why it cannot"
    )]
    async fn nothing_is_sent_to_a_listener_of_another_user() {
        if !rustix::process::geteuid().is_root() {
            println!("nothing_is_sent_to_a_listener_of_another_user needs root and did not run");
            return;
        }
        let mut python = Command::new("python3");
        python.args(["-c", LISTENER]).stdout(Stdio::piped()).uid(65534).current_dir("/");
        let mut listener = python.spawn().unwrap();
        let mut output = BufReader::new(listener.stdout.take().unwrap());
        let mut port = String::new();
        output.read_line(&mut port).unwrap();
        let error = connect("127.0.0.1", port.trim().parse().unwrap()).await.unwrap_err();
        assert!(error.to_string().contains("belongs to user 65534"), "{error}");
        let mut received = String::new();
        output.read_to_string(&mut received).unwrap();
        assert_eq!(received, "b''\n");
        listener.wait().unwrap();
    }

    #[tokio::test]
    async fn own_and_system_listeners_are_trusted() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (connected, _) = tokio::join!(connect("localhost", port), listener.accept());
        connected.unwrap();
        assert!(is_trusted(0) && is_trusted(120) && !is_trusted(65534));
    }
}
