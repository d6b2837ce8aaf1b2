//! Exporters: URLs of the text formats of Prometheus and OpenMetrics.

use super::{Parsed, Protocol, ProtocolSpec, Request};
use crate::url::UrlParts;

pub(super) const SPEC: ProtocolSpec = ProtocolSpec {
    protocol: Protocol::Prometheus,
    name: "prometheus",
    schemes: &["prometheus", "prometheus+https"],
    form: "prometheus[+https]://[USER:PASSWORD@]HOST:PORT/[NAME-NAME…][?path=/metrics]",
    parse,
};

/// Metrics of an exporter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrometheusRequest {
    /// The path of the exposition.
    pub path: String,
    /// Exposed names that are stored; all if empty.
    pub names: Vec<String>,
}

fn parse(parts: &UrlParts) -> Result<Parsed, String> {
    parts.no_fragment()?;
    parts.only_parameters(&["path"])?;
    if parts.port.is_none() {
        return Err("the port is missing".into());
    }
    let path = parts.parameter("path").unwrap_or("/metrics");
    if !path.starts_with('/') || path.contains(|letter: char| letter.is_control() || letter == ' ')
    {
        return Err("`path` begins with `/` and has no spaces".into());
    }
    // A name never contains `-`: Kwollect separates names by it.
    let names = parts.path.split('-').filter(|name| !name.is_empty()).map(str::to_owned);
    Ok(Parsed {
        protocol: Protocol::Prometheus,
        is_tls: parts.scheme.ends_with("https"),
        port: 0,
        user: parts.user.clone(),
        request: Request::Prometheus(PrometheusRequest {
            path: path.into(),
            names: names.collect(),
        }),
    })
}
