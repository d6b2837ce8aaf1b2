//! IPMI over LAN: the URLs of a BMC's sensors.

use super::{LATE, NO_ANSWER, Parsed, Protocol, ProtocolSpec, Request, one_of};
use crate::url::Secret;
use crate::url::UrlParts;
use model::Cause;

pub(super) const SPEC: ProtocolSpec = ProtocolSpec {
    protocol: Protocol::Ipmi,
    name: "ipmi",
    schemes: &["ipmisensor"],
    help: "Sensors of BMCs over IPMI 2.0, and the power of the node.",
    urls: &[(
        "ipmisensor://USER:PASSWORD@HOST[:PORT]/ID|NAME|dcmi/power|dell/power\
         [?cipher=3|17&privilege=user|operator|admin&kg=K]",
        "A sensor, or a power reading.",
    )],
    parts: &[
        ("USER", "none", "User, 16 bytes at most."),
        (
            "PASSWORD",
            "none",
            "Password, 20 bytes at most, or the first line of the secret of `credential`.",
        ),
        ("PORT", "623", "UDP port."),
        ("ID, NAME", "", "The sensor, as `ipmi-sensors` prints it."),
        ("dcmi/power", "", "The node's power by DCMI."),
        ("dell/power", "", "The node's power by Dell's command."),
        ("cipher", "17, or 3 if the BMC lacks 17", "Cipher suite."),
        (
            "privilege",
            "operator, or user",
            "Privilege of the session; `user` if the account has no more.",
        ),
        ("kg", "none", "Key of the BMC, or the second line of `credential`."),
    ],
    values: "The metric has the name of the entry. The value has the unit of the sensor: watts, degrees Celsius, volts, amperes, \
        revolutions per minute. The keys `kind` and `unit`, else the name, declare it.",
    failures: &[
        NO_ANSWER,
        (
            Cause::PermissionLost,
            "User or password is rejected, or the user lacks the privilege. The next attempt follows after 5 min, \
             then ever later, so that the BMC does not lock the account.",
        ),
        (
            Cause::SourceBroken,
            "The BMC has no such sensor, or several of this name; the sensor has no reading (N/A); the BMC has no \
             free session or none of the cipher suites.",
        ),
        LATE,
    ],
    examples: &[
        "- name: bmc_node_power_watt\n  device_id: node-1\n  url: ipmisensor://ann@node-1-bmc/dcmi/power\n  kind: gauge\n  unit: watts\n",
        "- name: bmc_ambient_temp_celsius\n  device_id: node-1\n  url: ipmisensor://ann:secret@node-1-bmc/Inlet Temp?privilege=user\n  update_every: 15000\n",
    ],
    parse,
};

const PORT: u16 = 623;
/// IPMI 2.0, section 13.20: a user name has 16 bytes, a password 20.
const USER_BYTES_MAX: usize = 16;
const PASSWORD_BYTES_MAX: usize = 20;
/// Section 13.33: the key of the BMC has 20 bytes.
const KEY_BYTES_MAX: usize = 20;

/// A reading of a BMC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpmiRequest {
    /// What is read.
    pub reading: IpmiReading,
    /// The required cipher suite; without one 17, or 3 if the BMC lacks 17.
    pub cipher: Option<IpmiCipher>,
    /// Privilege of the session; without one operator, or user if the account is not allowed more.
    pub privilege: Option<IpmiPrivilege>,
    /// The key of the BMC (`kg`).
    pub key: Option<Secret>,
}

impl IpmiRequest {
    /// What a session depends on beside its user; `None` for the usual session.
    pub(super) fn session(&self) -> Option<Secret> {
        let Self { reading: _, cipher, privilege, key } = self;
        let key = key.as_ref().map(Secret::reveal);
        let is_usual = cipher.is_none() && privilege.is_none() && key.is_none();
        (!is_usual).then(|| Secret::new(format!("{cipher:?} {privilege:?} {key:?}")))
    }
}

/// What is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IpmiReading {
    /// A sensor, by the ID or the name that `ipmi-sensors` prints.
    Sensor(String),
    /// DCMI Get Power Reading.
    DcmiPower,
    /// Dell's power reading.
    DellPower,
}

/// A cipher suite (IPMI 2.0, section 13.28, and its addendum for suite 17).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpmiCipher {
    /// HMAC-SHA1 with AES-CBC-128.
    Suite3,
    /// HMAC-SHA256 with AES-CBC-128.
    Suite17,
}

/// Privilege of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say all")]
pub enum IpmiPrivilege {
    User,
    Operator,
    Admin,
}

fn parse(parts: &UrlParts) -> Result<Parsed, String> {
    parts.no_fragment()?;
    parts.only_parameters(&["cipher", "privilege", "kg"])?;
    let reading = match &*parts.path {
        "" => return Err("the sensor is missing".into()),
        "dcmi/power" => IpmiReading::DcmiPower,
        "dell/power" => IpmiReading::DellPower,
        sensor => IpmiReading::Sensor(sensor.to_owned()),
    };
    let ciphers = [("3", IpmiCipher::Suite3), ("17", IpmiCipher::Suite17)];
    let cipher = parts.parameter("cipher").map(|word| one_of("cipher", word, &ciphers));
    let privileges = [
        ("user", IpmiPrivilege::User),
        ("operator", IpmiPrivilege::Operator),
        ("admin", IpmiPrivilege::Admin),
    ];
    let privilege = parts.parameter("privilege");
    let privilege = privilege.map(|word| one_of("privilege", word, &privileges));
    let key = parts.parameter("kg").map(str::to_owned);
    for (what, text, most) in [
        ("the user", &parts.user, USER_BYTES_MAX),
        ("the password", &parts.password, PASSWORD_BYTES_MAX),
        ("`kg`", &key, KEY_BYTES_MAX),
    ] {
        if text.as_ref().is_some_and(|text| text.len() > most) {
            return Err(format!("{what} has more than the {most} bytes that IPMI allows"));
        }
    }
    Ok(Parsed {
        protocol: Protocol::Ipmi,
        is_tls: false,
        port: PORT,
        user: parts.user.clone(),
        request: Request::Ipmi(IpmiRequest {
            reading,
            cipher: cipher.transpose()?,
            privilege: privilege.transpose()?,
            key: key.map(Secret::new),
        }),
    })
}
