//! Looks up the owner of a local connection's other end in the kernel's socket list.
//!
//! The list names the owner of a pair of ports, not of a connection. Two sockets of a machine never hold
//! the same ports towards the same address. The owner is therefore that of our connection as long as our
//! own socket holds the ports. After a reset it does not, and another user may get the port. The caller of
//! [`SocketOwners::of`] thus checks afterwards that its socket still has a peer address.
//! `docs/decisions/0019-local-callers.md`; `tests/attacks/stolen_port.py` is the attack.

use kernel::Root;
pub(crate) use kernel::tcp_owners::Ends;
use kernel::tcp_owners::owners;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};

/// Lookups that share one read of the kernel's list; further ones wait for the next read.
const WAITING_MAX: usize = 1024;

struct OwnerLookup {
    ends: Ends,
    answer: oneshot::Sender<Option<u32>>,
}

/// Looks up socket owners in the kernel's list. Lookups that arrive during a read share the next read. A
/// thousand connections thus need few reads of a list of a thousand lines.
#[derive(Clone, Debug)]
pub(crate) struct SocketOwners {
    engine: mpsc::Sender<OwnerLookup>,
}

impl SocketOwners {
    /// Creates a lookup handle, and the task that serves it until every handle is dropped.
    pub(crate) fn new(root: Root) -> (Self, impl Future<Output = ()> + Send) {
        let (engine, waiting) = mpsc::channel(WAITING_MAX);
        (Self { engine }, answer(root, waiting))
    }

    /// Returns the ID of the user who owns the other end of a connection, if the kernel reports one. The
    /// kernel's list may lack a line for a moment, so a failed lookup is repeated once. Closed connections
    /// are never looked up, because any client can make thousands of them.
    pub(crate) async fn of(&self, stream: &TcpStream, ends: Ends) -> Option<u32> {
        for _ in 0..2 {
            stream.peer_addr().ok()?;
            let (answer, received) = oneshot::channel();
            self.engine.send(OwnerLookup { ends, answer }).await.ok()?;
            if let Some(owner) = received.await.ok().flatten() {
                return Some(owner);
            }
        }
        None
    }
}

async fn answer(root: Root, mut waiting: mpsc::Receiver<OwnerLookup>) {
    let mut engine = Vec::with_capacity(WAITING_MAX);
    while waiting.recv_many(&mut engine, WAITING_MAX).await > 0 {
        let connections: Vec<Ends> = engine.iter().map(|query| query.ends).collect();
        let root = root.clone();
        let owners = tokio::task::spawn_blocking(move || owners(&root, &connections)).await;
        let owners = owners.unwrap_or_default();
        // After a failure the handle sees its channel closed, and reports no owner.
        for (query, owner) in engine.drain(..).zip(owners) {
            // A connection that closed meanwhile no longer waits for the result.
            query.answer.send(owner).ok();
        }
    }
}

/// Formats an address as in a Host header.
pub(crate) fn host_of_ip(ip: std::net::IpAddr) -> String {
    match ip.to_canonical() {
        std::net::IpAddr::V4(ip) => ip.to_string(),
        std::net::IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    /// Returns the number of lookups for one connection, with `found` as the answer to each, and the
    /// result.
    async fn lookups(reset: bool, found: Option<u32>) -> (usize, Option<u32>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, theirs) = listener.accept().await.unwrap();
        let ends = Ends { theirs, ours: stream.local_addr().unwrap() };
        if reset {
            client.set_zero_linger().unwrap();
            drop(client);
        }
        let (engine, mut waiting) = mpsc::channel::<OwnerLookup>(1);
        let counting = async move {
            let mut count = 0;
            while let Some(query) = waiting.recv().await {
                query.answer.send(found).unwrap();
                count += 1;
            }
            count
        };
        let requesting = async move { SocketOwners { engine }.of(&stream, ends).await };
        tokio::join!(counting, requesting)
    }

    #[test]
    fn a_connection_that_is_gone_is_not_looked_up() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            assert_eq!(lookups(true, None).await, (0, None));
            assert_eq!(lookups(false, Some(7)).await, (1, Some(7)));
            assert_eq!(lookups(false, None).await, (2, None));
        });
    }
}
