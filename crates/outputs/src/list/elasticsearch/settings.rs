//! The options of the output, and what they mean.

use crate::records::{CLUSTER, DOMAIN, Layout, PERF_COUNTERS};
use crate::written_file::option;
use config::{OutputConfig, ServerUrl};
use model::setting::{Kind, OptionSpec, parse_bytes, parse_duration, words};
use std::path::PathBuf;
use std::time::Duration;

/// The layouts.
const STREAM: &str = "stream";
const COLMET: &str = "colmet";
/// The values of `auth`.
const NONE: &str = "none";
const BASIC: &str = "basic";
const API_KEY: &str = "api_key";
const BEARER: &str = "bearer";
/// Longest name of an index. A backing index adds 20 bytes; the servers' limit is 255.
const INDEX_BYTES_MAX: usize = 128;
const DAY: Duration = Duration::from_secs(86_400);

/// The options.
pub(super) const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "address",
        kind: Kind::TextOf("URL", is_address),
        default: "",
        help: "The server: `https://es.example:9200`, or the path of a proxy there.",
    },
    OptionSpec {
        name: "layout",
        kind: Kind::Choice(&[STREAM, COLMET]),
        default: STREAM,
        help: "A data stream with a document for each source, device, job and instant, or Colmet's indices and documents.",
    },
    OptionSpec {
        name: "index",
        kind: Kind::TextOf("NAME", is_index),
        default: "",
        help: "The data stream, without it `jobmeter`; or the prefix of Colmet's indices, without it `colmet_`.",
    },
    OptionSpec {
        name: "auth",
        kind: Kind::Choice(&[NONE, BASIC, API_KEY, BEARER]),
        default: NONE,
        help: "What `auth_file` has: `user:password`, the `encoded` form of an API key, or a bearer token.",
    },
    OptionSpec {
        name: "auth_file",
        kind: Kind::Text("FILE"),
        default: "",
        help: "The file with this secret on its first line. Only its owner and group may read it. It is read again after a rejection.",
    },
    OptionSpec {
        name: "ca",
        kind: Kind::Text("FILE"),
        default: "",
        help: "PEM file with the authorities that sign the server's certificate; without it, the system's.",
    },
    OptionSpec {
        name: "cert",
        kind: Kind::Text("FILE"),
        default: "",
        help: "PEM file with a client certificate; it needs `key`.",
    },
    OptionSpec {
        name: "key",
        kind: Kind::Text("FILE"),
        default: "",
        help: "PEM file with the private key of `cert`.",
    },
    OptionSpec {
        name: "verify",
        kind: Kind::Switch,
        default: "true",
        help: "Whether the server's certificate is verified. Without that, the log has a warning at each start.",
    },
    OptionSpec {
        name: "server_uids",
        kind: Kind::ListOf("UID", are_uids),
        default: "",
        help: "Users that may own a server on loopback without TLS, besides root and the user of the server of jobmeter.",
    },
    OptionSpec {
        name: "gzip",
        kind: Kind::Switch,
        default: "true",
        help: "Whether requests are compressed.",
    },
    OptionSpec {
        name: "bulk_bytes",
        kind: Kind::Bytes { min: 4 << 10, max: 64 << 20 },
        default: "4MiB",
        help: "Most bytes of a request before compression, unless one document is larger.",
    },
    OptionSpec {
        name: "timeout",
        kind: Kind::Duration { min: Duration::from_secs(1), max: Duration::from_secs(600) },
        default: "60s",
        help: "Longest time of a request.",
    },
    OptionSpec {
        name: "delete_after",
        kind: Kind::Duration { min: DAY, max: Duration::from_secs(36_500 * 86_400) },
        default: "",
        help: "The age at which a new policy (ILM or ISM) deletes backing indices; without it, never. It changes no existing policy.",
    },
    CLUSTER,
    DOMAIN,
    PERF_COUNTERS,
];

/// How the output authenticates.
#[derive(Clone, Debug)]
pub(super) struct Authentication {
    pub(super) kind: AuthKind,
    pub(super) file: PathBuf,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum AuthKind {
    Basic,
    ApiKey,
    Bearer,
}

/// What is sent.
#[derive(Clone, Debug)]
pub(super) enum Documents {
    /// Samples and gaps, to a data stream.
    Stream,
    /// Colmet's records, to one index for each backend.
    Colmet(Layout),
}

/// What the options mean.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// Name of the output.
    pub(super) name: Box<str>,
    pub(super) address: ServerUrl,
    pub(super) documents: Documents,
    /// The data stream, or the prefix of indices.
    pub(super) index: String,
    pub(super) authentication: Option<Authentication>,
    pub(super) ca: Option<PathBuf>,
    /// Client certificate and key.
    pub(super) client: Option<(PathBuf, PathBuf)>,
    pub(super) verifies: bool,
    pub(super) server_uids: Vec<u32>,
    pub(super) gzip: bool,
    pub(super) bulk_bytes: usize,
    pub(super) timeout: Duration,
    pub(super) delete_after: Option<Duration>,
}

/// An option and what is wrong with it.
type Wrong = (&'static str, String);

impl Settings {
    /// # Errors
    /// Options that are missing, or that contradict each other.
    pub(super) fn of(config: &OutputConfig) -> Result<Self, Vec<Wrong>> {
        let option = |name: &str| option(config, name);
        let file = |name: &str| Some(option(name)).filter(|it| !it.is_empty()).map(PathBuf::from);
        let mut wrong: Vec<Wrong> = Vec::new();
        let address = ServerUrl::new(option("address"));
        if address.is_err() {
            wrong.push(("address", "it needs `address`, such as https://es.example:9200".into()));
        }
        let is_colmet = option("layout") == COLMET;
        let documents = match Layout::of(config) {
            _ if !is_colmet => Documents::Stream,
            Some(layout) => Documents::Colmet(layout),
            None => {
                let why = "Colmet's records have only a job's number: it needs `cluster`, the cluster of the jobs";
                wrong.push((CLUSTER.name, why.into()));
                Documents::Stream
            }
        };
        let default = if is_colmet { "colmet_" } else { "jobmeter" };
        let index = Some(option("index")).filter(|it| !it.is_empty()).unwrap_or(default);
        let authentication = authentication(option("auth"), file("auth_file"), &mut wrong);
        let client = match (file("cert"), file("key")) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => {
                wrong.push(("cert", "`cert` and `key` need each other".into()));
                None
            }
        };
        let bulk_bytes = parse_bytes(option("bulk_bytes")).and_then(|it| it.try_into().ok());
        match address {
            Ok(address) if wrong.is_empty() => Ok(Self {
                name: config.name.clone(),
                address,
                documents,
                index: index.to_owned(),
                authentication,
                ca: file("ca"),
                client,
                verifies: option("verify") != "false",
                server_uids: words(option("server_uids"))
                    .filter_map(|id| id.parse().ok())
                    .collect(),
                gzip: option("gzip") != "false",
                bulk_bytes: bulk_bytes.unwrap_or(4 << 20),
                timeout: parse_duration(option("timeout")).unwrap_or(Duration::from_secs(60)),
                delete_after: parse_duration(option("delete_after")),
            }),
            _ => Err(wrong),
        }
    }
}

fn authentication(
    word: &str,
    file: Option<PathBuf>,
    wrong: &mut Vec<Wrong>,
) -> Option<Authentication> {
    let kind = match word {
        BASIC => AuthKind::Basic,
        API_KEY => AuthKind::ApiKey,
        BEARER => AuthKind::Bearer,
        _ => {
            if file.is_some() {
                let why = format!("`auth_file` needs `auth`: {BASIC}, {API_KEY} or {BEARER}");
                wrong.push(("auth", why));
            }
            return None;
        }
    };
    if file.is_none() {
        wrong.push(("auth_file", format!("`auth = \"{word}\"` needs `auth_file`")));
    }
    Some(Authentication { kind, file: file? })
}

/// Whether these options choose Colmet's records.
pub(super) fn layout(config: &OutputConfig) -> Option<Layout> {
    let is_colmet = config.options.get("layout").is_some_and(|layout| layout == COLMET);
    is_colmet.then(|| Layout::of(config)).flatten()
}

fn is_address(text: &str) -> Result<(), String> {
    if text.is_empty() { Ok(()) } else { ServerUrl::new(text).map(drop) }
}

/// The rules of both servers for names of data streams, without those of other languages.
fn is_index(text: &str) -> Result<(), String> {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let begins = text.bytes().next().is_none_or(is_letter);
    if begins
        && text.len() <= INDEX_BYTES_MAX
        && text.bytes().all(|byte| is_letter(byte) || b"._-".contains(&byte))
    {
        return Ok(());
    }
    Err(format!(
        "`{text}` is no index: 1 to {INDEX_BYTES_MAX} of a-z, 0-9, `.`, `_` and `-`, with a letter or digit first"
    ))
}

fn are_uids(list: &str) -> Result<(), String> {
    match words(list).find(|word| word.parse::<u32>().is_err()) {
        None => Ok(()),
        Some(word) => Err(format!("`{word}` is no number of a user")),
    }
}
