//! The collector of Colmet: its options become settings of a server.

use super::command_line::{comment_missing, parse};
use super::counterparts::{Table, is, nothing};
use super::draft::{Draft, Part};
use crate::node::colmet_node::settings::CLUSTER;
use crate::operate::colmet_collector::options::Options;
use clap::ArgMatches;
use clap::parser::ValueSource;

/// The level of the log without `-v`.
const DEFAULT_LEVEL: &str = "warn";
/// File with the user and password of a URL.
const ELASTIC_SECRET: &str = "elasticsearch-credentials";

pub(super) const TABLE: Table = Table {
    program: "colmet-collector",
    rows: &[
        nothing(&["--version"], "`jobmeter-server --version` prints its own"),
        is(&["-v", "--verbose"], "server: `log.level`"),
        nothing(&["-s", "--sample-period"], "the listener stores messages as they arrive"),
        nothing(&["--buffer-size"], "the listener has no limit of messages for a period"),
        is(&["--enable-stdout-backend"], "server: `[outputs.stdout]` of the kind `file`"),
        is(&["--zeromq-bind-uri"], "server: `inputs.colmet.listen`"),
        nothing(
            &["--zeromq-hwm"],
            "the listener has a spool on the disk: `spool_bytes_max` in `poller.toml`",
        ),
        nothing(&["--zeromq-linger"], "the spool keeps what is not stored at the end"),
        is(&["--hdf5-filepath"], "server: `outputs.hdf5.path`"),
        is(&["--hdf5-complevel"], "server: `outputs.hdf5.complevel`"),
        is(
            &["--hdf5-complib"],
            "server: `outputs.hdf5.complib`, only `zlib`: each HDF5 library reads it",
        ),
        is(
            &["--elastic-host"],
            "server: `outputs.elasticsearch.address`, with `layout = \"colmet\"`",
        ),
        is(&["--elastic-index-prefix"], "server: `outputs.elasticsearch.index`"),
        is(
            &["-P", "--http-credentials"],
            "server: `outputs.elasticsearch.auth_file`, with `auth = \"basic\"`",
        ),
        is(&["--no-check-certificates"], "server: `outputs.elasticsearch.verify = false`"),
    ],
};

/// Reads the options. `senders` are the hosts and networks that the listener accepts.
pub(super) fn import(
    words: &[String],
    senders: Option<(&str, &str)>,
    draft: &mut Draft,
) -> anyhow::Result<()> {
    let (options, matches) = parse::<Options>(TABLE.program, words, &mut draft.errors)?;
    comment_missing::<Options>(&TABLE, &matches, &mut draft.server);
    let server = &mut draft.server;
    if options.verbosity.level() != DEFAULT_LEVEL {
        server.set("log.level", options.verbosity.level());
    }
    listener(&options.zeromq_bind_uri, senders, server);
    if options.enable_stdout_backend {
        server.set("outputs.stdout.kind", "file");
        server.set("outputs.stdout.path", "-");
        server.set("outputs.stdout.format", "colmet");
        server.set("outputs.stdout.cluster", CLUSTER);
    }
    hdf5(&options, &matches, draft);
    elasticsearch(&options, &matches, draft);
    Ok(())
}

/// The listener. Beyond loopback it needs to know who may send, which Colmet does not state.
fn listener(address: &str, senders: Option<(&str, &str)>, server: &mut Part) {
    let address = address.strip_prefix("tcp://").unwrap_or(address);
    let address = address.replacen('*', "0.0.0.0", 1);
    let is_here = address.starts_with("127.") || address.starts_with("[::1]");
    if !is_here && senders.is_none() {
        server.comment("--zeromq-bind-uri: nothing there is authenticated, so `hosts` and `networks` are required.");
        server.comment("Fill them in (options --hosts and --networks of `jobmeter import colmet`), and remove the comment signs:");
        server.comment("[inputs.colmet]");
        server.comment(format!("listen = [{}]", config::quoted(&address)));
        server.comment("hosts = \"dahu-[1-32]\"");
        server.comment("networks = [\"10.1.0.0/16\"]");
        return;
    }
    server.set_list("inputs.colmet.listen", vec![address]);
    if let Some((hosts, networks)) = senders {
        server.set("inputs.colmet.hosts", hosts);
        let networks = networks.split(',').map(|network| network.trim().to_owned());
        server.set_list("inputs.colmet.networks", networks.collect());
    }
    server.set("inputs.colmet.cluster", CLUSTER);
}

fn hdf5(options: &Options, matches: &ArgMatches, draft: &mut Draft) {
    let server = &mut draft.server;
    let has_level = is_given(matches, "hdf5_complevel");
    let Some(path) = &options.hdf5_filepath else {
        if has_level || is_given(matches, "hdf5_complib") {
            server.comment("--hdf5-complevel, --hdf5-complib: no counterpart: they have no effect without --hdf5-filepath");
        }
        return;
    };
    match std::path::absolute(path) {
        Ok(path) => server.set("outputs.hdf5.path", &path.display().to_string()),
        Err(error) => {
            draft.errors.push(format!("--hdf5-filepath {}: {error}", path.display()));
        }
    }
    if has_level {
        server.set("outputs.hdf5.complevel", &options.hdf5_complevel.to_string());
    }
    if options.hdf5_complib != "zlib" {
        server.comment(format!(
            "--hdf5-complib {}: no counterpart: files are compressed with zlib, which each HDF5 library reads",
            options.hdf5_complib
        ));
    }
    server.set("outputs.hdf5.cluster", CLUSTER);
}

fn elasticsearch(options: &Options, matches: &ArgMatches, draft: &mut Draft) {
    let server = &mut draft.server;
    let Some(address) = &options.elastic_host else {
        let others = [
            ("--elastic-index-prefix", is_given(matches, "elastic_index_prefix")),
            ("--http-credentials", options.http_credentials.is_some()),
            ("--no-check-certificates", options.no_check_certificates),
        ];
        for (name, _) in others.into_iter().filter(|(_, is_given)| *is_given) {
            server.comment(format!(
                "{name}: no counterpart: it has no effect without --elastic-host"
            ));
        }
        return;
    };
    let (scheme, rest) = address.split_once("://").unwrap_or(("http", address));
    let (credentials, host) =
        rest.rsplit_once('@').map_or((None, rest), |(c, host)| (Some(c), host));
    server.set(
        "outputs.elasticsearch.address",
        &format!("{scheme}://{}", host.trim_end_matches('/')),
    );
    server.set("outputs.elasticsearch.layout", "colmet");
    server.set("outputs.elasticsearch.cluster", CLUSTER);
    if is_given(matches, "elastic_index_prefix") {
        server.set("outputs.elasticsearch.index", &options.elastic_index_prefix);
    }
    // As in Colmet, the file comes before the URL.
    if let Some(file) = &options.http_credentials {
        server.comment(format!(
            "--http-credentials {}: only its owner and group may read it: chmod 640",
            file.display()
        ));
        server.set("outputs.elasticsearch.auth", "basic");
        let path = std::path::absolute(file).unwrap_or_else(|_| file.clone());
        server.set("outputs.elasticsearch.auth_file", &path.display().to_string());
    } else if let Some(credentials) = credentials {
        match decoded(credentials) {
            Some(secret) => {
                draft.secrets.add(ELASTIC_SECRET, &secret);
                server.set("outputs.elasticsearch.auth", "basic");
                server.set_secret_file("outputs.elasticsearch.auth_file", ELASTIC_SECRET);
            }
            None => draft
                .errors
                .push("--elastic-host: the user and password are no UTF-8 of one line".into()),
        }
    }
    if options.no_check_certificates {
        server.set("outputs.elasticsearch.verify", "false");
    }
}

fn is_given(matches: &ArgMatches, option: &str) -> bool {
    matches.value_source(option) == Some(ValueSource::CommandLine)
}

/// A text of a URL without `%XX`.
fn decoded(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, behind @ ..] = rest {
        let digits = behind.get(..2).filter(|two| two.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|two| std::str::from_utf8(two).ok());
        let code = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
        rest = match (first, code) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                behind.get(2..)?
            }
            _ => {
                bytes.push(*first);
                behind
            }
        };
    }
    String::from_utf8(bytes).ok().filter(|text| !text.contains(char::is_control))
}
