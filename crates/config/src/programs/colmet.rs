//! The settings of the listener that receives messages of Colmet's nodes, and the values they have.

use crate::settings::load::{ConfigError, Values};
use crate::settings::setting::{Kind, settings};
use crate::settings::text::{Text, values};
use model::{ClusterId, NodeList};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

settings! {
    /// How messages of Colmet's nodes are received.
    ColmetSettings, COLMET, "Colmet's nodes" {
        /// Addresses on which Colmet's nodes connect, as their option `--zeromq-uri` has them.
        "colmet.listen" listen: Vec<Endpoint> = "127.0.0.1:5556", Kind::List("ADDRESS:PORT");
        /// Hosts that may send, such as `dahu-[1-32]`, by their names up to the first dot. An address beyond loopback needs
        /// this setting and `colmet.networks`, because nothing that arrives there is authenticated.
        "colmet.hosts" hosts: Option<NodeList> = "" or "every host; only on loopback", Kind::Text("LIST");
        /// Networks that messages are accepted from, such as `10.1.0.0/16`.
        "colmet.networks" networks: Vec<Network> = "" or "this machine", Kind::List("CIDR");
        /// Cluster of the jobs.
        "colmet.cluster" cluster: ClusterId = "oar", Kind::Text("NAME");
        /// Folder with a folder for each host, which has the files that name its counters: `RAPL_mapping.*.csv`,
        /// `perfhw_mapping.*.csv` and `temperature_mapping.*.csv` of Colmet.
        "colmet.mapping_dir" mapping_dir: Option<PathBuf> = "" or "none", Kind::Text("DIR");
    }
}

impl ColmetSettings {
    /// Adds what is wrong with the values together.
    pub(crate) fn check(&self, values: &Values, errors: &mut Vec<ConfigError>) {
        if self.listen.is_empty() {
            errors.push(values.error("colmet.listen", "`colmet.listen` has no address"));
        }
        if self.cluster.reads_as_local() {
            let what = "`colmet.cluster` is `local`, the cluster of `jobmeter run`";
            errors.push(values.error("colmet.cluster", what));
        }
        let beyond = self.listen.iter().find(|one| !one.0.ip().is_loopback());
        for (key, is_set) in
            [("colmet.hosts", self.hosts.is_some()), ("colmet.networks", !self.networks.is_empty())]
        {
            if let (Some(Endpoint(address)), false) = (beyond, is_set) {
                let what = format!(
                    "`{key}` is not set; the address {address} is not of loopback, and nothing is authenticated there: set \
                     `colmet.hosts` and `colmet.networks`"
                );
                errors.push(values.error("colmet.listen", &what));
            }
        }
    }
}

values!(Endpoint, Network, NodeList, ClusterId);

/// An address as ZeroMQ writes it: `tcp://127.0.0.1:5556`, `127.0.0.1:5556`, `tcp://*:5556`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint(pub SocketAddr);

impl Text for Endpoint {
    fn from_text(text: &str) -> Result<Self, String> {
        let want = "an address and port such as tcp://10.1.0.1:5556 or [::1]:5556";
        let address = text.strip_prefix("tcp://").unwrap_or(text);
        let of_host = |host: &str, ip: Ipv4Addr| {
            let port = address.strip_prefix(host)?.strip_prefix(':')?;
            Some(SocketAddr::from((ip, port.parse().ok()?)))
        };
        let named = of_host("*", Ipv4Addr::UNSPECIFIED);
        let named = named.or_else(|| of_host("localhost", Ipv4Addr::LOCALHOST));
        named.or_else(|| address.parse().ok()).map(Self).ok_or_else(|| want.to_owned())
    }
}

/// A network: `10.1.0.0/16`, `fd00::/8`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    /// Leading bits that addresses of the network share.
    bits: u32,
}

impl Network {
    /// Whether an address is of the network. An IPv4 address in an IPv6 one counts as IPv4.
    pub fn has(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                let differ = u32::from(ours) ^ u32::from(theirs);
                differ.leading_zeros() >= self.bits
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                let differ = u128::from(ours) ^ u128::from(theirs);
                differ.leading_zeros() >= self.bits
            }
            _ => false,
        }
    }
}

impl Text for Network {
    fn from_text(text: &str) -> Result<Self, String> {
        let want = "a network such as 10.1.0.0/16 or fd00::/8, or an address";
        let parse = || {
            let (address, bits) = match text.split_once('/') {
                Some((address, bits)) => (address, Some(bits)),
                None => (text, None),
            };
            let address: IpAddr = address.parse().ok()?;
            let bits_max = if address.is_ipv4() { 32 } else { 128 };
            let bits = bits.map_or(Some(bits_max), |bits| bits.parse().ok())?;
            (bits <= bits_max).then_some(Self { address, bits })
        };
        parse().ok_or_else(|| want.to_owned())
    }
}

impl Text for NodeList {
    fn from_text(text: &str) -> Result<Self, String> {
        Self::new(text).map_err(|error| format!("a list of nodes: {error}"))
    }
}

impl Text for ClusterId {
    fn from_text(text: &str) -> Result<Self, String> {
        Self::new(text).map_err(|error| format!("the name of a cluster: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ConfigFile, ConfigInputs, load_poller};

    #[test]
    fn endpoints_are_written_as_zeromq_does() {
        for (text, address) in [
            ("tcp://127.0.0.1:5556", "127.0.0.1:5556"),
            ("tcp://*:5556", "0.0.0.0:5556"),
            ("localhost:1", "127.0.0.1:1"),
            ("[::1]:5556", "[::1]:5556"),
        ] {
            assert_eq!(Endpoint::from_text(text), Ok(Endpoint(address.parse().unwrap())), "{text}");
        }
        for text in ["", "5556", "tcp://", "*", "*5556", "ipc:///a", "node-1:5556", "1.2.3.4:99999"]
        {
            assert!(Endpoint::from_text(text).is_err(), "{text}");
        }
    }

    #[test]
    fn networks_have_the_addresses_with_their_leading_bits() {
        let has = |network: &str, address: &str| {
            Network::from_text(network).unwrap().has(address.parse().unwrap())
        };
        assert!(has("10.1.0.0/16", "10.1.255.9") && !has("10.1.0.0/16", "10.2.0.1"));
        assert!(has("10.1.2.3", "10.1.2.3") && !has("10.1.2.3", "10.1.2.2"));
        assert!(has("10.1.0.0/16", "::ffff:10.1.0.7") && !has("10.1.0.0/16", "fd00::1"));
        assert!(has("0.0.0.0/0", "192.0.2.1") && !has("0.0.0.0/0", "fd00::1"));
        assert!(has("fd00::/8", "fd12::1") && !has("fd00::/8", "fe80::1"));
        for text in ["", "10.1.0.0/33", "10.1/16", "fd00::/129", "a/8", "10.1.0.0/"] {
            assert!(Network::from_text(text).is_err(), "{text}");
        }
    }

    fn errors(flags: &[(&str, &str)]) -> String {
        let flag =
            |(key, text): &(&str, &str)| ((*key).to_owned(), crate::Raw::One((*text).to_owned()));
        let flags = flags.iter().map(flag).collect();
        let given = ConfigInputs { file: ConfigFile::None, environment: &|_| None, flags };
        load_poller(&given).map_or_else(|errors| errors.to_string(), |_| String::new())
    }

    #[test]
    fn an_address_beyond_loopback_needs_hosts_and_networks() {
        let beyond = ("colmet.listen", "tcp://0.0.0.0:5556,127.0.0.1:5557");
        let (hosts, networks) = (("colmet.hosts", "n-[1-9]"), ("colmet.networks", "10.0.0.0/8"));
        assert_eq!(errors(&[]), "");
        assert_eq!(errors(&[beyond, hosts, networks]), "");
        assert!(errors(&[beyond, hosts]).contains("`colmet.networks` is not set"));
        assert!(errors(&[beyond, networks]).contains("`colmet.hosts` is not set"));
        assert_eq!(errors(&[beyond]).lines().count(), 2);
        assert!(errors(&[("colmet.cluster", "Local")]).contains("`jobmeter run`"));
        assert!(errors(&[("colmet.listen", "")]).contains("has no address"));
    }
}
