//! Opens the server's listening socket.

use std::io;
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpSocket};

/// Backlog of connections waiting to be accepted.
const BACKLOG: u32 = 1024;
/// Ports tried after the default port, if that is in use and none was configured.
const PORTS_TRIED: u16 = 100;

/// Returns the address of a socket passed by the service manager, if any.
pub(crate) fn passed_address(passed: Option<&std::net::TcpListener>) -> Option<SocketAddr> {
    passed?.local_addr().ok()
}

/// Listens on the passed socket, otherwise on an address. Tries following ports if the port is in use and
/// was not configured.
///
/// # Errors
/// The address is in use, or does not belong to this machine.
pub(crate) fn listen(
    passed: Option<&std::net::TcpListener>,
    address: SocketAddr,
    given: bool,
) -> io::Result<TcpListener> {
    if let Some(passed) = passed {
        return TcpListener::from_std(passed.try_clone()?);
    }
    let mut tried = address;
    loop {
        match bind(tried) {
            Err(error)
                if !given
                    && error.kind() == io::ErrorKind::AddrInUse
                    && tried.port() < address.port().saturating_add(PORTS_TRIED) =>
            {
                tried.set_port(tried.port() + 1);
            }
            Err(error) => return Err(advised(error)),
            Ok(listener) => return Ok(listener),
        }
    }
}

/// Adds advice to a listen error, and keeps its kind.
fn advised(error: io::Error) -> io::Error {
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another program uses the port; choose another port with --listen ADDRESS:PORT"
        }
        io::ErrorKind::AddrNotAvailable => {
            "this machine does not have the address; use one of its addresses with --listen \
             ADDRESS:PORT"
        }
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 need root; choose another port with --listen ADDRESS:PORT"
        }
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}; {advice}"))
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Closed connections of a server that just stopped must not block its port.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_taken() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let first = listen(None, "127.0.0.1:0".parse().unwrap(), true).unwrap();
            let taken = first.local_addr().unwrap();
            let error = listen(None, taken, true).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
            assert!(error.to_string().contains("choose another port with --listen"), "{error}");
            // An address of TEST-NET-1, which no machine has.
            let error = listen(None, "192.0.2.1:0".parse().unwrap(), false).unwrap_err();
            assert!(
                error.to_string().contains("this machine does not have the address"),
                "{error}"
            );
            let passed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            passed.set_nonblocking(true).unwrap();
            let own = passed_address(Some(&passed));
            let listener = listen(Some(&passed), taken, true).unwrap();
            assert_eq!(listener.local_addr().ok(), own, "the passed one, not a port that is taken");
            let next = listen(None, taken, false).unwrap().local_addr().unwrap();
            assert!(next.port() > taken.port() && next.ip() == taken.ip());
        });
    }
}
