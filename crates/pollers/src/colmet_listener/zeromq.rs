//! Messages from the network, by ZeroMQ's protocol.

use super::message::{Arrival, Fault, Message, MessageInput};
use config::ColmetSettings;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use zmtp::{Event, Limits, PeerError, Pull};

/// The sockets of Colmet's nodes.
#[derive(Debug)]
pub(super) struct ZeromqInput {
    pull: Pull,
    /// Whether the log states an error of the system.
    is_failing: bool,
}

impl ZeromqInput {
    /// Listens on the addresses of the settings.
    ///
    /// # Errors
    /// An address cannot be used.
    pub(super) fn bind(settings: &ColmetSettings) -> io::Result<Self> {
        let addresses: Vec<SocketAddr> = settings.listen.iter().map(|one| one.0).collect();
        let networks = settings.networks.clone();
        let admits =
            move |address| networks.is_empty() || networks.iter().any(|one| one.has(address));
        let pull = Pull::bind(&addresses, Limits::default(), Box::new(admits))?;
        Ok(Self { pull, is_failing: false })
    }
}

impl MessageInput for ZeromqInput {
    fn next(&mut self, within: Duration) -> Option<Arrival> {
        let event = self.pull.receive(within);
        if let (Err(error), false) = (&event, self.is_failing) {
            log::error!("a connection of a node is not accepted: {error}");
        }
        self.is_failing = event.is_err();
        Some(match event.ok()?? {
            Event::Message { peer, bytes } => Arrival::Message(Message { peer: peer.ip(), bytes }),
            Event::Ended { peer, why } => Arrival::Fault(peer.ip(), fault(&why), why.to_string()),
        })
    }
}

const fn fault(why: &PeerError) -> Fault {
    match why {
        PeerError::TooLong { .. } => Fault::Oversized,
        PeerError::Address => Fault::ForeignAddress,
        PeerError::Truncated => Fault::Truncated,
        PeerError::Memory | PeerError::TooMany | PeerError::TooManyOfAddress => Fault::TooMany,
        _ => Fault::Protocol,
    }
}
