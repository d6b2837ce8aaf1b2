//! The options of Colmet's collectors: `colmet-collector` 0.6.10, the one in Rust, and the one of colmet-rs.

use crate::node::colmet_node::verbosity::Verbosity;
use std::path::PathBuf;

/// Receives from Colmet's nodes and writes what Colmet's collector writes, with the options of its colmet-collector
#[derive(clap::Parser, Debug)]
#[command(
    version,
    after_help = "At least one of --enable-stdout-backend, --hdf5-filepath and --elastic-host is needed."
)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) verbosity: Verbosity,
    /// Not needed: messages are read as they arrive
    #[arg(short, long = "sample-period", value_name = "SECONDS")]
    pub(crate) sample_period: Option<f64>,
    /// Not needed: messages are read as they arrive
    #[arg(long, value_name = "MESSAGES")]
    pub(crate) buffer_size: Option<u64>,
    /// Print each record on standard output, behind the line `ready: URL`
    #[arg(long, alias = "enable-stdout", num_args = 0..=1, value_name = "BOOL", default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) enable_stdout_backend: bool,
    /// Address to which nodes send. One beyond loopback needs --hosts and --networks
    #[arg(long, alias = "zeromq-uri", value_name = "URI", default_value = "tcp://0.0.0.0:5556")]
    pub(crate) zeromq_bind_uri: String,
    /// Not needed: what cannot be kept is not read, and remains with the nodes
    #[arg(long, value_name = "MESSAGES")]
    pub(crate) zeromq_hwm: Option<u64>,
    /// Not needed: a receiver sends nothing
    #[arg(long, value_name = "MS", allow_hyphen_values = true)]
    pub(crate) zeromq_linger: Option<i64>,
    /// HDF5 files: a prefix of their names, or a name that ends in `.hdf5`
    #[arg(long, value_name = "FILE")]
    pub(crate) hdf5_filepath: Option<PathBuf>,
    /// Compression of HDF5 files, from 0 (none) to 9
    #[arg(long, value_name = "LEVEL", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=9))]
    pub(crate) hdf5_complevel: u8,
    /// Library of that compression: only zlib is there
    #[arg(long, value_name = "NAME", default_value = "zlib", value_parser = ["zlib", "lzo", "bzip2", "blosc"])]
    pub(crate) hdf5_complib: String,
    /// Elasticsearch or OpenSearch: `http://host:9200`
    #[arg(long, value_name = "URL")]
    pub(crate) elastic_host: Option<String>,
    /// Prefix of the names of its indices
    #[arg(long, value_name = "PREFIX", default_value = "colmet_")]
    pub(crate) elastic_index_prefix: String,
    /// File with `user:password`, which only its owner and group may read
    #[arg(short = 'P', long, value_name = "FILE")]
    pub(crate) http_credentials: Option<PathBuf>,
    /// Accept any certificate of Elasticsearch
    #[arg(long)]
    pub(crate) no_check_certificates: bool,
    #[command(flatten)]
    pub(crate) own: OwnOptions,
}

// No docstring, which would replace the description of the command.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Options that Colmet does not have")]
pub(crate) struct OwnOptions {
    /// Hosts that may send, such as `dahu-[1-32]`
    #[arg(long, value_name = "LIST")]
    pub(crate) hosts: Option<String>,
    /// Networks that messages are accepted from, such as `10.1.0.0/16`
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub(crate) networks: Vec<String>,
    /// Cluster of the jobs
    #[arg(long, value_name = "NAME", default_value = "oar")]
    pub(crate) cluster: String,
    /// Appended to the names of hosts in records, such as `example.org`
    #[arg(long, value_name = "DOMAIN")]
    pub(crate) domain: Option<String>,
    /// Folder with a folder for each host, which has the `*_mapping.*.csv` that its node wrote
    #[arg(long, value_name = "DIR")]
    pub(crate) mapping_dir: Option<PathBuf>,
    /// Group that may read the HDF5 files
    #[arg(long, value_name = "GROUP")]
    pub(crate) hdf5_group: Option<String>,
    /// Permissions of the HDF5 files
    #[arg(long, value_name = "MODE", default_value = "0640")]
    pub(crate) hdf5_mode: String,
    /// Users who may own an Elasticsearch on loopback without TLS, by number
    #[arg(long, value_name = "UID", value_delimiter = ',')]
    pub(crate) elastic_server_uids: Vec<u32>,
    /// Data folder [default: /var/lib/jobmeter-colmet as root, else jobmeter-colmet in the XDG state folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Address of the server, for browsers and the other commands
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8795")]
    pub(crate) listen: String,
}

impl Options {
    /// Each given option that jobmeter does not need, and the reason.
    pub(super) fn not_needed(&self) -> Vec<String> {
        let as_it_arrives = "messages are read as they arrive";
        [
            ("--sample-period", self.sample_period.is_some(), as_it_arrives),
            ("--buffer-size", self.buffer_size.is_some(), as_it_arrives),
            (
                "--zeromq-hwm",
                self.zeromq_hwm.is_some(),
                "what cannot be kept is not read, and remains with the nodes",
            ),
            ("--zeromq-linger", self.zeromq_linger.is_some(), "a receiver sends nothing"),
        ]
        .into_iter()
        .filter(|(_, is_given, _)| *is_given)
        .map(|(name, _, why)| format!("{name} is not needed: {why}"))
        .collect()
    }
}
