//! The address of a request's client.

use crate::auth::authentication::is_proxied;
use crate::auth::connection::Connection;
use axum::http::HeaderMap;
use std::net::{IpAddr, SocketAddr};

/// User IDs of system accounts are lower. A user of this machine could pretend to be a proxy.
const USER_UID_MIN: u32 = 1000;
/// The header in which a proxy names its clients, the latest one last.
const FORWARDED_FOR: &str = "x-forwarded-for";

/// Returns the address of the client: that of the connection, or the one that a named proxy forwards.
///
/// `None`: a proxy without a name forwards the request, or the address is one of this machine or none of a machine. Such an
/// address identifies no node.
pub(crate) fn client_address(
    connection: &Connection,
    headers: &HeaderMap,
    proxies: &[IpAddr],
) -> Option<IpAddr> {
    let [peer, own] =
        [&connection.ends.theirs, &connection.ends.ours].map(|end| end.ip().to_canonical());
    let is_own_proxy = match peer.is_loopback() {
        true => connection.socket_owner.is_some_and(is_system_account),
        false => peer != own,
    };
    let client = match is_own_proxy && proxies.contains(&peer) {
        true => forwarded(headers, proxies)?,
        // Anybody may write the headers of proxies.
        false if is_proxied(headers) => return None,
        false => peer,
    };
    (is_of_machine(client) && client != own).then_some(client)
}

/// Whether a proxy on this machine may run as this user.
fn is_system_account(uid: u32) -> bool {
    uid < USER_UID_MIN || uid == rustix::process::geteuid().as_raw()
}

/// The latest address before those of the named proxies: clients write the earlier ones themselves.
fn forwarded(headers: &HeaderMap, proxies: &[IpAddr]) -> Option<IpAddr> {
    let mut client = None;
    for value in headers.get_all(FORWARDED_FOR) {
        for text in value.to_str().ok()?.split(',') {
            let address = address(text.trim());
            if address.is_none_or(|address| !proxies.contains(&address)) {
                client = address;
            }
        }
    }
    client
}

/// Reads an address, with or without a port.
fn address(text: &str) -> Option<IpAddr> {
    let address = text.parse::<IpAddr>().ok();
    let address = address.or_else(|| text.parse::<SocketAddr>().ok().map(|end| end.ip()));
    address.map(|address| address.to_canonical())
}

/// Whether an address may identify one other machine.
pub(crate) fn is_of_machine(address: IpAddr) -> bool {
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !address.is_loopback() && !address.is_unspecified() && !address.is_multicast() && !is_link_local
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::peer::Ends;
    use axum::http::{HeaderName, HeaderValue};

    fn of(peer: &str, headers: &[(&str, &str)]) -> Option<String> {
        of_user(Some(33), peer, headers)
    }

    fn of_user(owner: Option<u32>, peer: &str, headers: &[(&str, &str)]) -> Option<String> {
        let end = |ip: &str| SocketAddr::new(ip.parse().unwrap(), 4000);
        let ends = Ends { theirs: end(peer), ours: end("10.0.0.9") };
        let connection = Connection { ends, owner: None, socket_owner: owner, certificate: None };
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: HeaderName = name.parse().unwrap();
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        let proxies =
            ["10.0.0.2", "10.0.0.3", "127.0.0.1", "10.0.0.9"].map(|ip| ip.parse().unwrap());
        client_address(&connection, &map, &proxies).map(|ip| ip.to_string())
    }

    #[test]
    fn a_connection_has_its_own_address() {
        assert_eq!(of("10.0.0.7", &[]).as_deref(), Some("10.0.0.7"));
        assert_eq!(of("::ffff:10.0.0.7", &[]).as_deref(), Some("10.0.0.7"));
        assert_eq!(of("2001:db8::7", &[]).as_deref(), Some("2001:db8::7"));
        for peer in
            ["127.0.0.2", "::1", "::ffff:127.0.0.2", "10.0.0.9", "0.0.0.0", "fe80::1", "224.0.0.1"]
        {
            assert_eq!(of(peer, &[]), None, "{peer}");
        }
    }

    #[test]
    fn a_user_of_this_machine_is_no_proxy() {
        let header = [("x-forwarded-for", "10.0.0.7")];
        let own = rustix::process::geteuid().as_raw();
        for (owner, is_proxy) in [
            (Some(0), true),
            (Some(999), true),
            (Some(own), true),
            (Some(54321), false),
            (None, false),
        ] {
            assert_eq!(of_user(owner, "127.0.0.1", &header).is_some(), is_proxy, "{owner:?}");
        }
        assert_eq!(of("10.0.0.9", &header), None, "the kernel's owner is known of loopback only");
    }

    #[test]
    fn only_named_proxies_forward_an_address() {
        let to = |text| [("x-forwarded-for", text)];
        for spoofed in [
            &to("10.0.0.7")[..],
            &[("forwarded", "for=10.0.0.7")],
            &[("via", "1.1 x")],
            &[("x-real-ip", "10.0.0.7")],
        ] {
            assert_eq!(of("10.0.0.8", spoofed), None, "{spoofed:?}");
        }
        for (header, client) in [
            ("10.0.0.7", Some("10.0.0.7")),
            // The client wrote the first one.
            ("10.0.0.66, 10.0.0.7", Some("10.0.0.7")),
            ("10.0.0.7, 10.0.0.3", Some("10.0.0.7")),
            ("10.0.0.66,10.0.0.7:5000 , 10.0.0.2", Some("10.0.0.7")),
            ("[2001:db8::7]:5000", Some("2001:db8::7")),
            ("::ffff:10.0.0.7", Some("10.0.0.7")),
            ("10.0.0.7, unknown", None),
            ("10.0.0.7,", None),
            ("10.0.0.3", None),
            ("127.0.0.5", None),
            ("10.0.0.9", None),
            ("", None),
        ] {
            assert_eq!(of("10.0.0.2", &to(header)).as_deref(), client, "{header}");
            assert_eq!(of("127.0.0.1", &to(header)).as_deref(), client, "{header}");
        }
        let two = [("x-forwarded-for", "10.0.0.66"), ("x-forwarded-for", "10.0.0.7")];
        assert_eq!(of("10.0.0.2", &two).as_deref(), Some("10.0.0.7"));
        assert_eq!(of("10.0.0.2", &[]), None, "a proxy is no client");
        assert_eq!(of("10.0.0.2", &[("x-real-ip", "10.0.0.7")]), None);
    }
}
