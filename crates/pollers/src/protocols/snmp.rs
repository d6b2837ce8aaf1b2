//! SNMP: the URLs of versions 1, 2c and 3.

use super::{LATE, MEANING, NO_ANSWER, Parsed, Protocol, ProtocolSpec, Request, one_of};
use crate::url::Secret;
use crate::url::UrlParts;
use model::Cause;
use std::fmt;

pub(super) const SPEC: ProtocolSpec = ProtocolSpec {
    protocol: Protocol::Snmp,
    name: "snmp",
    schemes: &["snmp", "snmpv1", "snmpv3"],
    help: "Values of SNMP agents: PDUs, switches, UPSes, and any other.",
    urls: &[
        ("snmp://COMMUNITY@HOST[:PORT]/OID", "Version 2c."),
        ("snmpv1://COMMUNITY@HOST[:PORT]/OID", "Version 1."),
        (
            "snmpv3://USER@HOST[:PORT]/OID?auth=sha256&authkey=K&priv=aes128&privkey=K[&context=C]",
            "Version 3.",
        ),
    ],
    parts: &[
        ("COMMUNITY", "public", "Community, or the first line of the secret of `credential`."),
        ("PORT", "161", "UDP port."),
        ("OID", "", "The object, as `1.3.6.1.2.1.1.3.0`."),
        (
            "{{ PREFIX == TEXT }}",
            "",
            "In OID: the index of the row whose column PREFIX has this text. Searched at the start, every 300 s, and \
             when the text of the row has changed.",
        ),
        ("auth", "none", "Authentication: md5, sha (or sha1), sha224, sha256, sha384 or sha512."),
        ("authkey", "", "Its password, 8 characters at least, or the first line of `credential`."),
        ("priv", "none", "Encryption: des, aes128 (or aes), aes192 or aes256; needs `auth`."),
        ("privkey", "", "Its password, or the second line of `credential`."),
        ("context", "empty", "Name of the context."),
    ],
    values: MEANING,
    failures: &[
        NO_ANSWER,
        (Cause::SourceTimeout, "Version 1 and 2c: the community is wrong."),
        (
            Cause::PermissionLost,
            "Version 3: the user, a password or the encryption is rejected; or the object may not be read.",
        ),
        (
            Cause::SourceBroken,
            "The host has no address, or cannot be reached; the agent has no such object; no row, or several, have \
             the text; an answer is not valid.",
        ),
        LATE,
    ],
    examples: &[
        "- name: pdu_outlet_power_watt\n  device_id: pdu-1-port7\n  url: snmp://public@pdu-1/1.3.6.1.4.1.318.1.1.26.9.4.3.1.7.7\n  update_every: 5000\n  labels: {_device_alias: node-7}\n",
        "- name: network_ifacein_bytes_total\n  device_id: sw-1\n  url: snmp://public@sw-1/1.3.6.1.2.1.31.1.1.1.6.{{ 1.3.6.1.2.1.31.1.1.1.1 == ethernet1/1 }}\n  unit: bytes\n",
    ],
    parse,
};

const PORT: u16 = 161;
/// The community of a URL without one.
const COMMUNITY_DEFAULT: &str = "public";
/// RFC 2578 (SMIv2), section 3.5: at most 128 numbers.
const OID_NUMBERS_MAX: usize = 128;
/// RFC 3414, section 11.2: a password has at least 8 characters.
const PASSWORD_CHARACTERS_MIN: usize = 8;

/// A value of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnmpRequest {
    /// Version of the protocol.
    pub version: SnmpVersion,
    /// The value.
    pub object: SnmpObject,
}

/// Version of the protocol, with the security that belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnmpVersion {
    /// RFC 1157.
    V1,
    /// RFC 1901.
    V2c,
    /// RFC 3410 to 3418.
    V3(Box<SnmpSecurity>),
}

impl SnmpVersion {
    /// What a session depends on beside its user; `None` for version 2c.
    pub(super) fn session(&self) -> Option<Secret> {
        let security = match self {
            Self::V2c => return None,
            Self::V1 => return Some(Secret::new("1".to_owned())),
            Self::V3(security) => security,
        };
        let SnmpSecurity { auth, privacy, context } = &**security;
        let auth = auth.as_ref().map(|(auth, key)| format!("{auth:?} {}", key.reveal()));
        let privacy = privacy.as_ref().map(|(how, key)| format!("{how:?} {}", key.reveal()));
        Some(Secret::new(format!("3 {auth:?} {privacy:?} {context}")))
    }
}

/// User security of version 3 (RFC 3414).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnmpSecurity {
    /// Protocol and password of the authentication.
    pub auth: Option<(Auth, Secret)>,
    /// Protocol and password of the encryption.
    pub privacy: Option<(Privacy, Secret)>,
    /// Name of the context.
    pub context: String,
}

/// An authentication protocol (RFC 3414, RFC 7860).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say all")]
pub enum Auth {
    Md5,
    Sha1,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
}

/// An encryption protocol (RFC 3414, RFC 3826, draft-blumenthal-aes-usm-04).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say all")]
pub enum Privacy {
    Des,
    Aes128,
    Aes192,
    Aes256,
}

/// The place of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnmpObject {
    /// An OID.
    Oid(Oid),
    /// The row of a table with a text: `{{ PREFIX == TEXT }}`.
    Row(Box<OidTemplate>),
}

/// An OID whose row is found by a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OidTemplate {
    /// The OID before the row's index.
    pub before: Oid,
    /// The OID after it; often empty.
    pub after: Oid,
    /// The column that is searched.
    pub column: Oid,
    /// The text of the row.
    pub text: String,
}

/// An object identifier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Oid(pub Vec<u32>);

impl Oid {
    /// Reads `1.3.6`, with or without a leading point.
    fn parse(text: &str) -> Result<Self, String> {
        let bad = || format!("`{}` is not an OID", text.escape_debug());
        let numbers = text.strip_prefix('.').unwrap_or(text).split('.');
        let is_digits = |part: &str| part.bytes().all(|digit| digit.is_ascii_digit());
        let read = numbers.map(|part| part.parse().ok().filter(|_| is_digits(part)));
        let numbers: Vec<u32> = read.collect::<Option<_>>().ok_or_else(bad)?;
        match numbers.len() {
            1..=OID_NUMBERS_MAX => Ok(Self(numbers)),
            more => Err(format!("an OID has at most {OID_NUMBERS_MAX} numbers, not {more}")),
        }
    }

    /// An OID of a value: two numbers at least, and the first two in the ranges that X.690 can encode.
    fn of_value(text: &str) -> Result<Self, String> {
        let oid = Self::parse(text)?;
        match oid.0[..] {
            [0..=1, 0..=39, ..] | [2, ..=4_294_967_215, ..] => Ok(oid),
            _ => Err(format!("`{}` is not an OID of a value", text.escape_debug())),
        }
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, number) in self.0.iter().enumerate() {
            let point = if place > 0 { "." } else { "" };
            write!(f, "{point}{number}")?;
        }
        Ok(())
    }
}

fn parse(parts: &UrlParts) -> Result<Parsed, String> {
    parts.no_fragment()?;
    let version = match &*parts.scheme {
        "snmpv3" => SnmpVersion::V3(Box::new(security(parts)?)),
        scheme => {
            parts.only_parameters(&[])?;
            if parts.password.is_some() {
                return Err("a community contains `:`; write it as `%3A`".into());
            }
            if scheme == "snmpv1" { SnmpVersion::V1 } else { SnmpVersion::V2c }
        }
    };
    let user = match (&version, &parts.user) {
        (SnmpVersion::V3(_), None) => return Err("the user is missing".into()),
        (_, user) => user.clone().unwrap_or_else(|| COMMUNITY_DEFAULT.to_owned()),
    };
    let object = object(&parts.path)?;
    Ok(Parsed {
        protocol: Protocol::Snmp,
        is_tls: false,
        port: PORT,
        user: Some(user),
        request: Request::Snmp(SnmpRequest { version, object }),
    })
}

fn object(path: &str) -> Result<SnmpObject, String> {
    if path.is_empty() {
        return Err("the OID is missing".into());
    }
    let Some((before, rest)) = path.split_once("{{") else {
        return Ok(SnmpObject::Oid(Oid::of_value(path)?));
    };
    let inner_and_after = rest.rsplit_once("}}");
    let (inner, after) = inner_and_after.ok_or("`{{` has no `}}`")?;
    let (column, text) =
        inner.rsplit_once("==").ok_or("`==` is missing in `{{ PREFIX == TEXT }}`")?;
    let text = text.trim();
    if text.is_empty() {
        return Err("the text after `==` is empty".into());
    }
    let before = before.strip_suffix('.').ok_or("`.` is missing before `{{`")?;
    let after = match after.strip_prefix('.') {
        Some(after) => Oid::parse(after)?,
        None if after.is_empty() => Oid::default(),
        None => return Err("`.` is missing after `}}`".into()),
    };
    Ok(SnmpObject::Row(Box::new(OidTemplate {
        before: Oid::of_value(before)?,
        after,
        column: Oid::of_value(column.trim())?,
        text: text.to_owned(),
    })))
}

fn security(parts: &UrlParts) -> Result<SnmpSecurity, String> {
    parts.only_parameters(&["auth", "authkey", "priv", "privkey", "context"])?;
    let auth = protocol_and_key(
        parts,
        "auth",
        "authkey",
        &[
            ("md5", Auth::Md5),
            ("sha", Auth::Sha1),
            ("sha1", Auth::Sha1),
            ("sha224", Auth::Sha224),
            ("sha256", Auth::Sha256),
            ("sha384", Auth::Sha384),
            ("sha512", Auth::Sha512),
        ],
    )?;
    let privacy = protocol_and_key(
        parts,
        "priv",
        "privkey",
        &[
            ("des", Privacy::Des),
            ("aes", Privacy::Aes128),
            ("aes128", Privacy::Aes128),
            ("aes192", Privacy::Aes192),
            ("aes256", Privacy::Aes256),
        ],
    )?;
    if privacy.is_some() && auth.is_none() {
        return Err("`priv` needs `auth`: SNMP has no encryption without authentication".into());
    }
    let context = parts.parameter("context").unwrap_or_default().to_owned();
    Ok(SnmpSecurity { auth, privacy, context })
}

fn protocol_and_key<T: Copy>(
    parts: &UrlParts,
    protocol: &str,
    key: &str,
    known: &[(&str, T)],
) -> Result<Option<(T, Secret)>, String> {
    match (parts.parameter(protocol), parts.parameter(key)) {
        (None, None) => Ok(None),
        (Some(_), None) => Err(format!("`{protocol}` needs `{key}`")),
        (None, Some(_)) => Err(format!("`{key}` needs `{protocol}`")),
        (Some(word), Some(password)) => {
            let found = one_of(protocol, word, known)?;
            if password.chars().count() < PASSWORD_CHARACTERS_MIN {
                return Err(format!("`{key}` has less than {PASSWORD_CHARACTERS_MIN} characters"));
            }
            Ok(Some((found, Secret::new(password.to_owned()))))
        }
    }
}
