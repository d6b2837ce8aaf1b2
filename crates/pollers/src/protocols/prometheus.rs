//! Exporters: URLs of the text formats of Prometheus and OpenMetrics.

use super::{LATE, NO_ANSWER, Parsed, Protocol, ProtocolSpec, Request};
use crate::url::UrlParts;
use model::Cause;

pub(super) const SPEC: ProtocolSpec = ProtocolSpec {
    protocol: Protocol::Prometheus,
    name: "prometheus",
    schemes: &["prometheus", "prometheus+https"],
    help: "Exporters with the text format of Prometheus 0.0.4 or OpenMetrics 1.0.",
    urls: &[(
        "prometheus[+https]://[USER:PASSWORD@]HOST:PORT/[NAME-NAME…][?path=/metrics]",
        "Metrics of an exporter.",
    )],
    parts: &[
        (
            "USER, PASSWORD",
            "none",
            "For HTTP basic authentication; the password may be that of `credential`.",
        ),
        ("PORT", "", "TCP port."),
        (
            "NAME-NAME…",
            "all",
            "Exposed names that are stored. The lists of all entries of an exporter are merged; an empty list stores all.",
        ),
        ("path", "/metrics", "Path of the exposition."),
    ],
    values: "Each metric is stored as `prom_` and its exposed name, with its labels and its own timestamp, if it has one. Its kind, unit \
        and help come from `# TYPE`, `# UNIT` and `# HELP`, then from its name. `kwollect_custom` is stored as the metric of its label \
        `_metric_id`. The entry's `name` is used by promotions only.",
    failures: &[
        NO_ANSWER,
        (
            Cause::PermissionLost,
            "User, password or certificate is rejected; the exporter requires a user, and the URL has none.",
        ),
        (
            Cause::SeriesRejected,
            "The exporter has more than 50 000 new series on one day (UTC), or more than 1 000 names of metrics since the \
             poller began: the values of further ones are dropped.",
        ),
        (
            Cause::SourceBroken,
            "The host cannot be reached; the response is no exposition, is cut, or has more than 32 MiB or 200 000 \
             samples; a requested metric is missing.",
        ),
        LATE,
    ],
    examples: &[
        "- name: prom_default_metrics\n  device_id: node-1\n  url: prometheus://node-1:9100/node_load1-node_boot_time_seconds\n  update_every: 15000\n",
        "- name: prom_all_metrics\n  device_id: node-1\n  url: prometheus://node-1:9100\n  update_every: 15000\n  optional: true\n",
    ],
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
