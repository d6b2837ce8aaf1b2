//! Limits of peers and memory, and a caller that does not receive.

use crate::kit::{PATIENCE, end_of, listener, message, opening, peer, push, until};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;
use zmtp::{Limits, PeerError, Pull, PushQueue};

#[test]
fn a_caller_that_does_not_receive_stops_the_peer_and_loses_nothing() {
    let (mut pull, address) = listener(Limits::default());
    let mut sender = push(&mut pull, address);
    let content = |number: usize| [&number.to_le_bytes()[..], &[7; 40_000]].concat();
    let mut sent = 0;
    // The buffers of the kernel are full at some time, and nothing more is accepted.
    loop {
        sender.put(&content(sent));
        sent += 1;
        if !sender.flush(Duration::from_millis(300)).unwrap() {
            break;
        }
        assert!(sent < 10_000, "400 MB were accepted");
    }
    let rest = std::thread::spawn(move || sender.flush(PATIENCE).map(|all| (all, sender)));
    for number in 0..sent {
        assert_eq!(message(&mut pull), content(number));
    }
    assert!(rest.join().unwrap().unwrap().0);
}

#[test]
fn the_largest_unfinished_message_ends_when_all_are_too_large() {
    let limits = Limits { unfinished_bytes: 100_000, ..Limits::default() };
    let (mut pull, address) = listener(limits);
    let mut good = push(&mut pull, address);
    let begin =
        |bytes: usize| [&opening()[..], b"\x02\0\0\0\0\0\x20\0\0", &vec![7; bytes]].concat();
    let small = peer(address, &begin(20_000));
    let large = peer(address, &begin(90_000));
    assert_eq!(end_of(&mut pull, &large), PeerError::Memory);
    assert_eq!(pull.peers(), 2);
    good.put(&[9; 50_000]);
    good.flush(Duration::ZERO).unwrap();
    assert_eq!(message(&mut pull), [9; 50_000]);
    drop(small);
    assert!(matches!(
        pull.receive(PATIENCE).unwrap(),
        Some(zmtp::Event::Ended { why: PeerError::Truncated, .. })
    ));
}

#[test]
fn the_number_of_peers_is_limited() {
    let (mut pull, address) = listener(Limits { peers_per_address: 2, ..Limits::default() });
    let (first, second) = (push(&mut pull, address), push(&mut pull, address));
    let third = peer(address, &opening());
    assert_eq!(end_of(&mut pull, &third), PeerError::TooManyOfAddress);
    drop(first);
    until(&mut pull, |pull| pull.peers() == 1);
    let fourth = push(&mut pull, address);
    assert_eq!(pull.peers(), 2);
    drop((second, fourth));

    let (mut pull, address) = listener(Limits { peers: 1, ..Limits::default() });
    let _first = push(&mut pull, address);
    let second = peer(address, &opening());
    assert_eq!(end_of(&mut pull, &second), PeerError::TooMany);
    assert_eq!((&second).read(&mut [0]).unwrap_or(0), 0, "it is closed");
}

#[test]
fn only_addresses_that_are_allowed_connect() {
    let limits = Limits::default();
    let other = |ip| ip == IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
    let any = ["127.0.0.1:0".parse().unwrap(), "[::]:0".parse().unwrap()];
    let mut pull = Pull::bind(&any, limits, Box::new(other)).unwrap();
    let addresses = pull.addresses().unwrap();
    // An IPv4 address that arrives at a socket of IPv6 is the same address.
    let mapped = (Ipv4Addr::LOCALHOST, addresses[1].port()).into();
    for address in [addresses[0], addresses[1], mapped] {
        let tcp = if address.is_ipv6() {
            (std::net::Ipv6Addr::LOCALHOST, address.port()).into()
        } else {
            address
        };
        drop(peer(tcp, b""));
        let end = pull.receive(PATIENCE).unwrap();
        assert!(matches!(end, Some(zmtp::Event::Ended { why: PeerError::Address, .. })));
    }
}

#[test]
fn a_queue_drops_its_oldest_messages_and_counts_them() {
    // An address at which nobody listens yet.
    let (pull, address) = listener(Limits::default());
    drop(pull);
    let queue = PushQueue::start(&address.to_string(), 10, 1000).unwrap();
    (0..30u8).for_each(|number| queue.put(vec![number]));
    assert_eq!((queue.counts().waiting, queue.counts().dropped), (10, 20));
    queue.put(vec![30; 995]);
    assert_eq!((queue.counts().waiting, queue.counts().dropped), (6, 25));
    assert!(!matches!(queue.counts().failure, Some(PeerError::Handshake)));
    let any = Box::new(|_| true);
    let mut pull = Pull::bind(&[address], Limits::default(), any).unwrap();
    let numbers: Vec<u8> = (0..6).map(|_| message(&mut pull)[0]).collect();
    assert_eq!(numbers, [25, 26, 27, 28, 29, 30]);
    let counts = queue.end(PATIENCE);
    assert_eq!((counts.sent, counts.dropped, counts.waiting, counts.failure), (6, 25, 0, None));
}

#[test]
fn a_queue_ends_in_time_without_a_receiver() {
    let (pull, address) = listener(Limits::default());
    drop(pull);
    let queue = PushQueue::start(&address.to_string(), 10, 1000).unwrap();
    queue.put(vec![1]);
    let begin = std::time::Instant::now();
    let counts = queue.end(Duration::from_millis(200));
    assert_eq!((counts.sent, counts.waiting), (0, 1));
    assert!(counts.failure.is_some() && begin.elapsed() < PATIENCE / 2);
}
