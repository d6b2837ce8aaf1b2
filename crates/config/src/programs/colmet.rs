//! The settings of the listener that receives messages of Colmet's nodes, and the values they have.

use crate::settings::load::{ConfigError, Values};
use crate::settings::setting::{Kind, settings};
use crate::settings::text::{Text, values};
use model::{ClusterId, NodeList};
use std::ffi::OsString;
use std::fmt;
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

settings! {
    /// The messages of Colmet's nodes that a program of the server receives, with the other settings of
    /// /etc/jobmeter/poller.toml.
    ColmetInputSettings, COLMET_INPUT, "Colmet's nodes" {
        /// Receive messages of Colmet's nodes at these addresses, such as `0.0.0.0:5556`. Nothing there is authenticated.
        "inputs.colmet.listen" listen: Vec<Endpoint> = "" or "no messages are received",
            Kind::List("ADDRESS:PORT");
        /// Hosts that may send, such as `dahu-[1-32]`. An address beyond loopback needs this setting and
        /// `inputs.colmet.networks`.
        "inputs.colmet.hosts" hosts: Option<NodeList> = "" or "every host; only on loopback",
            Kind::Text("LIST");
        /// Networks that messages are accepted from, such as `10.1.0.0/16`.
        "inputs.colmet.networks" networks: Vec<Network> = "" or "this machine", Kind::List("CIDR");
        /// Cluster of the jobs, as the agents and the scheduler name it.
        "inputs.colmet.cluster" cluster: ClusterId = "oar", Kind::Text("NAME");
        /// Folder with a folder for each host, which has Colmet's files that name its counters: `RAPL_mapping.*.csv`,
        /// `perfhw_mapping.*.csv` and `temperature_mapping.*.csv`.
        "inputs.colmet.mapping_dir" mapping_dir: Option<PathBuf> = "" or "none", Kind::Text("DIR");
    }
}

impl ColmetSettings {
    /// Adds what is wrong with the values together.
    pub(crate) fn check(&self, values: &Values, errors: &mut Vec<ConfigError>) {
        if self.listen.is_empty() {
            errors.push(values.error("colmet.listen", "`colmet.listen` has no address"));
        }
        check_together("colmet", self, values, errors);
    }
}

impl ColmetInputSettings {
    /// Adds what is wrong with the values together.
    pub(crate) fn check(&self, values: &Values, errors: &mut Vec<ConfigError>) {
        check_together("inputs.colmet", &self.of_listener(), values, errors);
    }

    fn of_listener(&self) -> ColmetSettings {
        let Self { listen, hosts, networks, cluster, mapping_dir } = self.clone();
        ColmetSettings { listen, hosts, networks, cluster, mapping_dir }
    }

    /// The flags of `jobmeter-poller colmet`; `None` if no messages are received.
    pub fn flags(&self) -> Option<Vec<OsString>> {
        if self.listen.is_empty() {
            return None;
        }
        let mut flags: Vec<OsString> = Vec::new();
        let mut add = |flag: &str, value: OsString| flags.extend([flag.into(), value]);
        let listen: Vec<String> = self.listen.iter().map(|one| one.0.to_string()).collect();
        add("--colmet-listen", listen.join(",").into());
        self.hosts.iter().for_each(|hosts| add("--colmet-hosts", hosts.as_str().into()));
        let networks: Vec<String> = self.networks.iter().map(ToString::to_string).collect();
        if !networks.is_empty() {
            add("--colmet-networks", networks.join(",").into());
        }
        add("--colmet-cluster", self.cluster.as_str().into());
        self.mapping_dir.iter().for_each(|dir| add("--colmet-mapping-dir", dir.into()));
        Some(flags)
    }
}

fn check_together(
    table: &str,
    settings: &ColmetSettings,
    values: &Values,
    errors: &mut Vec<ConfigError>,
) {
    let ColmetSettings { listen, hosts, networks, cluster, .. } = settings;
    if cluster.reads_as_local() {
        let what = format!("`{table}.cluster` is `local`, the cluster of `jobmeter run`");
        errors.push(values.error(&format!("{table}.cluster"), &what));
    }
    let beyond = listen.iter().find(|one| !one.0.ip().is_loopback());
    for (key, is_set) in [("hosts", hosts.is_some()), ("networks", !networks.is_empty())] {
        if let (Some(Endpoint(address)), false) = (beyond, is_set) {
            let what = format!(
                "`{table}.{key}` is not set; the address {address} is not of loopback, and nothing is authenticated there: \
                 set `{table}.hosts` and `{table}.networks`"
            );
            errors.push(values.error(&format!("{table}.listen"), &what));
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

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
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
    fn the_server_passes_its_settings_on() {
        let text = "[inputs.colmet]\nlisten = [\"*:5556\", \"[::1]:5557\"]\nhosts = \"n-[1-9]\"\n\
                    networks = [\"10.1.0.0/16\", \"fd00::1\"]\nmapping_dir = \"/m\"\n";
        let dir = tempfile::tempdir().unwrap();
        let read = |text: &str| {
            let path = dir.path().join("s.toml");
            std::fs::write(&path, text).unwrap();
            let file = ConfigFile::Given(path);
            let given = ConfigInputs { file, environment: &|_| None, flags: Vec::new() };
            crate::load_server(&given, &[])
        };
        let flags = read(text).unwrap().config.inputs.flags().unwrap();
        let flags: Vec<&str> = flags.iter().map(|one| one.to_str().unwrap()).collect();
        let expected = [
            "--colmet-listen",
            "0.0.0.0:5556,[::1]:5557",
            "--colmet-hosts",
            "n-[1-9]",
            "--colmet-networks",
            "10.1.0.0/16,fd00::1/128",
            "--colmet-cluster",
            "oar",
            "--colmet-mapping-dir",
            "/m",
        ];
        assert_eq!(flags, expected);
        let flags = flags.chunks(2).map(|pair| {
            let key = pair[0].trim_start_matches("--colmet-").replace('-', "_");
            (format!("colmet.{key}"), crate::Raw::One(pair[1].to_owned()))
        });
        let flags = flags.collect();
        let given = ConfigInputs { file: ConfigFile::None, environment: &|_| None, flags };
        assert_eq!(load_poller(&given).unwrap().config.colmet.networks.len(), 2);
        assert_eq!(read("").unwrap().config.inputs.flags(), None);
        let open = read("[inputs.colmet]\nlisten = [\"*:5556\"]\n").unwrap_err().to_string();
        assert!(open.contains("`inputs.colmet.networks` is not set"), "{open}");
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
