//! Redfish and any other JSON over HTTP: URLs with a JSONPath.

use super::{LATE, MEANING, NO_ANSWER, Parsed, Protocol, ProtocolSpec, Request};
use crate::url::UrlParts;
use model::Cause;

pub(super) const SPEC: ProtocolSpec = ProtocolSpec {
    protocol: Protocol::Json,
    name: "json",
    schemes: &["http", "https"],
    help: "Redfish and any other JSON document over HTTP.",
    urls: &[("http[s]://[USER:PASSWORD@]HOST[:PORT]/PATH#JSONPATH", "A value of a document.")],
    parts: &[
        (
            "USER, PASSWORD",
            "none",
            "For HTTP basic authentication; the password may be that of `credential`.",
        ),
        ("PORT", "80, 443 of https", "TCP port."),
        (
            "PATH",
            "",
            "Path and query of the document. One request serves all entries of a document.",
        ),
        (
            "JSONPATH",
            "",
            "RFC 9535, with or without `$.`; of several matches the first one counts.",
        ),
    ],
    values: MEANING,
    failures: &[
        NO_ANSWER,
        (Cause::PermissionLost, "User, password or certificate is rejected."),
        (
            Cause::SourceBroken,
            "The host cannot be reached; the response is another one than 200, no JSON, or has more than 4 MiB; it \
             redirects to another host; the JSONPath matches nothing, null, a list or an object.",
        ),
        LATE,
    ],
    examples: &[
        "- name: bmc_node_power_watt\n  device_id: node-1\n  url: https://ann@node-1-bmc/redfish/v1/Chassis/1/Power#PowerControl[0].PowerConsumedWatts\n  update_every: 15000\n  tls: {insecure: true}\n",
    ],
    parse,
};

/// A value in a JSON document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonRequest {
    /// Path and query of the document.
    pub document: String,
    /// The value's JSONPath (RFC 9535), beginning with `$`.
    pub json_path: String,
}

fn parse(parts: &UrlParts) -> Result<Parsed, String> {
    let written = parts.fragment.as_deref().map(str::trim).filter(|path| !path.is_empty());
    let written = written.ok_or("the JSONPath after `#` is missing")?;
    let json_path = match written.strip_prefix('$') {
        Some(_) => written.to_owned(),
        None if written.starts_with('[') => format!("${written}"),
        None => format!("$.{written}"),
    };
    if let Err(error) = serde_json_path::JsonPath::parse(&json_path) {
        return Err(format!("`{}` is not a JSONPath: {error}", written.escape_debug()));
    }
    let is_tls = parts.scheme == "https";
    Ok(Parsed {
        protocol: Protocol::Json,
        is_tls,
        port: if is_tls { 443 } else { 80 },
        user: parts.user.clone(),
        request: Request::Json(JsonRequest { document: document(parts), json_path }),
    })
}

/// Path and query as a request carries them.
fn document(parts: &UrlParts) -> String {
    let path = percent_encoding::utf8_percent_encode(&parts.path, PATH);
    let mut document = format!("/{path}");
    for (place, (name, value)) in parts.query.iter().enumerate() {
        let separator = if place == 0 { '?' } else { '&' };
        let name = percent_encoding::utf8_percent_encode(name, QUERY);
        let value = percent_encoding::utf8_percent_encode(value, QUERY);
        document.push_str(&format!("{separator}{name}={value}"));
    }
    document
}

/// Characters that RFC 3986 does not allow in a path.
const PATH: &percent_encoding::AsciiSet = &percent_encoding::CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');
/// Characters that separate the parts of a query, and those of a path. `$` remains: OData names begin with it.
const QUERY: &percent_encoding::AsciiSet = &PATH.add(b'&').add(b'=').add(b'+');
