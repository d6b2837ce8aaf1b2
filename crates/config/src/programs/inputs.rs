//! Other monitoring systems from which a server receives samples.

use crate::settings::setting::{Kind, settings};
use std::ffi::OsString;
use std::path::PathBuf;

settings! {
    /// The messages of Colmet's nodes, by a process of its own with the settings of /etc/jobmeter/poller.toml.
    ColmetInputSettings, COLMET_INPUT, "Messages of Colmet's nodes" {
        /// Receive messages of Colmet's nodes at these addresses: `0.0.0.0:5556`. Nothing there is authenticated.
        "inputs.colmet.listen" listen: Vec<String> = "" or "no messages are received",
            Kind::List("HOST:PORT");
        /// Only messages of these hosts: `dahu-[1-32]`. Required unless all addresses are on loopback.
        "inputs.colmet.hosts" hosts: Option<String> = "" or "on loopback any host", Kind::Text("NODES");
        /// Only messages from these networks: `10.1.0.0/16`. Required unless all addresses are on loopback.
        "inputs.colmet.networks" networks: Vec<String> = "" or "on loopback", Kind::List("NETWORK");
        /// The cluster of the jobs, as the agents and the scheduler name it.
        "inputs.colmet.cluster" cluster: String = "oar", Kind::Text("NAME");
        /// Folder with a folder for each host that has Colmet's files of the meanings of counters:
        /// `HOST/RAPL_mapping.<time>.csv`.
        "inputs.colmet.mapping_dir" mapping_dir: Option<PathBuf> = "" or "counters have no names",
            Kind::Text("DIR");
    }
}

impl ColmetInputSettings {
    /// The flags of `jobmeter-poller colmet`; `None` if no messages are received.
    pub fn flags(&self) -> Option<Vec<OsString>> {
        if self.listen.is_empty() {
            return None;
        }
        let mut flags: Vec<OsString> = Vec::new();
        let mut add = |flag: &str, value: OsString| flags.extend([flag.into(), value]);
        add("--colmet-listen", self.listen.join(",").into());
        self.hosts.iter().for_each(|hosts| add("--colmet-hosts", hosts.into()));
        if !self.networks.is_empty() {
            add("--colmet-networks", self.networks.join(",").into());
        }
        add("--colmet-cluster", self.cluster.clone().into());
        self.mapping_dir.iter().for_each(|dir| add("--colmet-mapping-dir", dir.into()));
        Some(flags)
    }
}
