//! The syntax of a side: a URL with the kind of its server before it, or a path of HDF5 files.

use anyhow::{Context as _, bail};
use config::ServerUrl;
use std::path::PathBuf;

/// Kinds of servers, by the word before `+http`.
const KINDS: [(&str, Kind); 5] = [
    ("colmet", Kind::ColmetOfServer),
    ("elasticsearch", Kind::Elasticsearch),
    ("graphite", Kind::Graphite),
    ("fructosa", Kind::Fructosa),
    ("kwollect", Kind::Kwollect),
];

/// The prefix of Colmet's indices.
const INDEX_PREFIX: &str = "colmet_";

/// What answers at a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A jobmeter server.
    Server,
    /// A jobmeter server, of which only the values count that Colmet's nodes sent.
    ColmetOfServer,
    /// Elasticsearch or OpenSearch with Colmet's indices.
    Elasticsearch,
    /// Graphite with the paths of jobmeter.
    Graphite,
    /// Graphite with the paths of FrUCToSA.
    Fructosa,
    /// Kwollect.
    Kwollect,
}

/// A side of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// HDF5 files of Colmet: a file, or the prefix of files.
    Files(PathBuf),
    /// A server; the prefix of its indices or paths.
    Remote { kind: Kind, url: ServerUrl, prefix: String },
}

impl Side {
    /// Parses an argument.
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Ok(Self::Files(text.into()));
        };
        let (word, transport) = scheme.split_once('+').unwrap_or(("", scheme));
        let kind = match word {
            "" if !scheme.contains('+') => Some(Kind::Server),
            word => KINDS.iter().find(|(name, _)| *name == word).map(|(_, kind)| *kind),
        };
        let Some(kind) = kind else {
            let known: Vec<String> =
                KINDS.iter().map(|(name, _)| format!("{name}+http://")).collect();
            bail!("{text}: `{word}` is no kind of server; write http://, {}", known.join(", "));
        };
        let (rest, prefix) = rest.split_once('#').unwrap_or((rest, ""));
        let has_prefix = matches!(kind, Kind::Elasticsearch | Kind::Graphite | Kind::Fructosa);
        if !has_prefix && !prefix.is_empty() {
            bail!("{text}: only Elasticsearch and Graphite have a prefix after `#`");
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if !prefix.chars().all(is_plain) {
            bail!("{text}: a prefix has letters, digits and -_. only");
        }
        let authority = rest.split('/').next().unwrap_or_default();
        if authority.contains('@') {
            bail!(
                "a URL has no user and no password here: `--left-auth FILE` or `--right-auth FILE` names a file with them"
            );
        }
        let url = ServerUrl::new(&format!("{transport}://{rest}")).map_err(anyhow::Error::msg);
        let url = url.with_context(|| text.to_owned())?;
        let prefix = match kind {
            Kind::Elasticsearch if prefix.is_empty() => INDEX_PREFIX.to_owned(),
            Kind::Graphite | Kind::Fructosa if !prefix.is_empty() => {
                format!("{}.", prefix.trim_end_matches('.'))
            }
            _ => prefix.to_owned(),
        };
        Ok(Self::Remote { kind, url, prefix })
    }

    /// The kind of its server; `None` for files.
    pub(super) const fn kind(&self) -> Option<Kind> {
        match self {
            Self::Files(_) => None,
            Self::Remote { kind, .. } => Some(*kind),
        }
    }

    /// Whether its values are those of Colmet's own programs.
    pub(super) fn is_colmet(&self) -> bool {
        matches!(self.kind(), None | Some(Kind::ColmetOfServer | Kind::Elasticsearch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_urls_or_paths() {
        let remote = |text: &str| match Side::parse(text).unwrap() {
            Side::Remote { kind, url, prefix } => (kind, url.as_str().to_owned(), prefix),
            Side::Files(path) => panic!("{path:?}"),
        };
        let of = |kind, url: &str, prefix: &str| (kind, url.to_owned(), prefix.to_owned());
        for (text, want) in [
            ("http://s:9000/", of(Kind::Server, "http://s:9000", "")),
            ("colmet+https://s", of(Kind::ColmetOfServer, "https://s", "")),
            ("elasticsearch+http://e:9200", of(Kind::Elasticsearch, "http://e:9200", "colmet_")),
            ("elasticsearch+http://e#c_", of(Kind::Elasticsearch, "http://e", "c_")),
            ("graphite+http://g#a.b.", of(Kind::Graphite, "http://g", "a.b.")),
            ("fructosa+http://g", of(Kind::Fructosa, "http://g", "")),
            (
                "kwollect+https://k/stable/metrics",
                of(Kind::Kwollect, "https://k/stable/metrics", ""),
            ),
        ] {
            assert_eq!(remote(text), want, "{text}");
        }
        assert_eq!(Side::parse("/data/colmet").unwrap(), Side::Files("/data/colmet".into()));
    }

    #[test]
    fn errors_state_what_to_write() {
        for (text, part) in [
            ("carbon+http://g", "`carbon` is no kind of server; write http://, colmet+http://"),
            ("+http://g", "is no kind of server"),
            ("graphite+ftp://g", "http:// or https://"),
            ("ftp://g", "http:// or https://"),
            ("http://user:pw@g", "--left-auth FILE"),
            ("http://g#x", "only Elasticsearch and Graphite"),
            ("graphite+http://g#a*", "letters, digits"),
            ("http://", "host"),
        ] {
            let error = format!("{:#}", Side::parse(text).unwrap_err());
            assert!(error.contains(part), "{text}: {error}");
            assert!(!error.contains("pw"), "{error}");
        }
    }
}
