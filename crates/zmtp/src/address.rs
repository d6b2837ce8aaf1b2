//! Addresses of endpoints as ZeroMQ writes them.

/// `HOST:PORT` of `tcp://HOST:PORT` or `HOST:PORT`. The host is a name, an IPv4 address, or an IPv6 address in brackets.
///
/// # Errors
/// It is no such address, with the reason.
pub fn tcp_address(text: &str) -> Result<&str, String> {
    let address = text.strip_prefix("tcp://").unwrap_or(text);
    let wrong = |what: &str| Err(format!("`{text}` {what}; write tcp://HOST:PORT"));
    if address.contains("://") {
        return wrong("is no address of TCP");
    }
    let Some((host, port)) = address.rsplit_once(':') else { return wrong("has no port") };
    if port.parse::<u16>().ok().filter(|port| *port > 0).is_none() {
        return wrong("has no port from 1 to 65535");
    }
    let is_ipv6 = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match is_ipv6 {
        Some(host) => host.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            let is_part = |c: char| c.is_alphanumeric() || "-_.".contains(c);
            !host.is_empty() && host.chars().all(is_part)
        }
    };
    if is_host { Ok(address) } else { wrong("has no host") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_host_and_a_port() {
        for (text, address) in [
            ("tcp://127.0.0.1:5556", "127.0.0.1:5556"),
            ("collector.example.org:5556", "collector.example.org:5556"),
            ("tcp://[::1]:1", "[::1]:1"),
        ] {
            assert_eq!(tcp_address(text), Ok(address));
        }
        for text in [
            "",
            "a",
            "a:",
            ":1",
            "a:0",
            "a:65536",
            "ipc:///a:1",
            "::1:5",
            "[a]:1",
            "*:5556",
            "eth0;a:1",
            "a b:1",
            "tcp://tcp://a:1",
        ] {
            assert!(tcp_address(text).is_err(), "{text}");
        }
    }
}
