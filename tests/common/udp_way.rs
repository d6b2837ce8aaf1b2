//! A way to a service over UDP, which counts its packets and can lead to another service.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

/// A port of this machine that leads to another one.
pub(crate) struct UdpWay {
    pub(crate) port: u16,
    service: Arc<AtomicU16>,
    packets: Arc<AtomicUsize>,
}

impl UdpWay {
    pub(crate) fn to(service: u16) -> Self {
        let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        let port = socket.local_addr().unwrap().port();
        let (service, packets) = (Arc::new(AtomicU16::new(service)), Arc::default());
        let way = Self { port, service: Arc::clone(&service), packets: Arc::clone(&packets) };
        std::thread::spawn(move || {
            let mut clients = HashMap::<SocketAddr, Arc<UdpSocket>>::new();
            let mut packet = [0; 4096];
            while let Ok((bytes, client)) = socket.recv_from(&mut packet) {
                packets.fetch_add(1, Ordering::SeqCst);
                let back = Arc::clone(&socket);
                let way = clients.entry(client).or_insert_with(|| way_back(back, client));
                let to = ("127.0.0.1", service.load(Ordering::SeqCst));
                way.send_to(&packet[..bytes], to).ok();
            }
        });
        way
    }

    /// Leads to another service from now on.
    pub(crate) fn lead_to(&self, service: u16) {
        self.service.store(service, Ordering::SeqCst);
    }

    /// The packets to the service since this was called last.
    pub(crate) fn take_packets(&self) -> usize {
        self.packets.swap(0, Ordering::SeqCst)
    }
}

/// A socket of a client at the service. What arrives there is sent to the client.
fn way_back(socket: Arc<UdpSocket>, client: SocketAddr) -> Arc<UdpSocket> {
    let own = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
    let from = Arc::clone(&own);
    std::thread::spawn(move || {
        let mut packet = [0; 4096];
        while let Ok((bytes, _)) = from.recv_from(&mut packet) {
            socket.send_to(&packet[..bytes], client).ok();
        }
    });
    own
}
