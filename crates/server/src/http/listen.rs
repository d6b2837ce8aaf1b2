//! Opens the server's listening sockets.

use std::io;
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpSocket};

/// Backlog of connections waiting to be accepted.
const BACKLOG: u32 = 1024;
/// Ports tried after the default port, if that is in use and none was configured.
const PORTS_TRIED: u16 = 100;

/// Returns the addresses to listen on: those of the sockets passed by the service manager, otherwise those of the
/// setting.
pub(crate) fn addresses(
    passed: &[std::net::TcpListener],
    wanted: &[config::Address],
) -> io::Result<Vec<SocketAddr>> {
    if passed.is_empty() {
        return Ok(wanted.iter().map(|address| address.0).collect());
    }
    passed.iter().map(std::net::TcpListener::local_addr).collect()
}

/// Listens on a passed socket.
///
/// # Errors
/// No file descriptor is left.
fn listen_on(passed: &std::net::TcpListener) -> io::Result<TcpListener> {
    TcpListener::from_std(passed.try_clone()?)
}

/// The addresses with their ports, and their sockets.
type Listeners = (Vec<SocketAddr>, Vec<TcpListener>);

/// Listens on every address.
///
/// # Errors
/// The first address that the server cannot listen on, see [`listen`].
pub(crate) fn listen_everywhere(
    passed: &[std::net::TcpListener],
    wanted: &[SocketAddr],
    given: bool,
) -> Result<Listeners, (SocketAddr, io::Error)> {
    let (mut addresses, mut listeners) = (Vec::new(), Vec::new());
    for (place, address) in wanted.iter().copied().enumerate() {
        let listened = passed.get(place).map_or_else(|| listen(address, given), listen_on);
        let listened = listened.and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (bound, listener) = listened.map_err(|error| (address, error))?;
        addresses.push(bound);
        listeners.push(listener);
    }
    Ok((addresses, listeners))
}

/// Listens on an address. Tries following ports if the port is in use and was not configured.
///
/// # Errors
/// The address is in use, or does not belong to this machine.
pub(crate) fn listen(address: SocketAddr, given: bool) -> io::Result<TcpListener> {
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
            "another program or address of `listen` uses the port; choose another port with --listen \
             ADDRESS:PORT"
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
            let first = listen("127.0.0.1:0".parse().unwrap(), true).unwrap();
            let taken = first.local_addr().unwrap();
            let error = listen(taken, true).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
            assert!(error.to_string().contains("choose another port with --listen"), "{error}");
            // An address of TEST-NET-1, which no machine has.
            let error = listen("192.0.2.1:0".parse().unwrap(), false).unwrap_err();
            assert!(
                error.to_string().contains("this machine does not have the address"),
                "{error}"
            );
            let passed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            passed.set_nonblocking(true).unwrap();
            let own = addresses(&[passed.try_clone().unwrap()], &[]).unwrap();
            let listener = listen_on(&passed).unwrap();
            assert_eq!(vec![listener.local_addr().unwrap()], own);
            let next = listen(taken, false).unwrap().local_addr().unwrap();
            assert!(next.port() > taken.port() && next.ip() == taken.ip());
        });
    }
}
