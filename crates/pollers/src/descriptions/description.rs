//! An entry of a description file, checked.

use super::expressions::Expressions;
use crate::meaning::{Exposed, Meaning};
use crate::protocols::{Protocol, Request};
use crate::url::Secret;
use model::{DeviceId, Kind, Labels, Unit};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The label with the node that a device feeds.
pub(crate) const ALIAS: &str = "_device_alias";

/// What is requested: one or more metrics of one device.
#[derive(Clone, Debug)]
pub struct Description {
    /// Its file.
    pub file: Arc<Path>,
    /// Its first line, from 1.
    pub line: usize,
    /// The metric's name, exactly as written. For exporters only promotions use it.
    pub name: String,
    /// The device that the samples belong to.
    pub device: DeviceId,
    /// The target that is asked. Entries of a file share it.
    pub target: Arc<Target>,
    /// What the target is asked for.
    pub request: Request,
    /// Period of the requests.
    pub period: Duration,
    /// Longest duration of an exchange.
    pub timeout: Duration,
    /// Whether it is requested only while a promotion holds.
    pub is_optional: bool,
    /// Labels of its samples.
    pub labels: Labels,
    /// The meaning that the file declares.
    pub declared: DeclaredMeaning,
    /// What most entries do not have; `None` if it has nothing of it. In a box: a poller has ten thousands of entries.
    pub(super) rare: Option<Box<Rare>>,
}

/// What most entries do not have.
#[derive(Clone, Debug, PartialEq)]
pub struct Rare {
    /// Period while no job has an allocation of the device.
    pub period_idle: Option<Duration>,
    /// Period while the metric is promoted.
    pub period_promoted: Option<Duration>,
    /// Factor of each value; 1 if absent.
    pub scale_factor: Option<f64>,
    /// Name of the secret that the URL does not contain.
    pub credential: Option<String>,
    /// How the certificate of the target is verified.
    pub tls: TlsVerification,
    /// Of an exporter: only metrics with matching stored names, because only those are promoted. `None`: no limit.
    pub only: Option<Expressions>,
}

impl Rare {
    const NONE: Self = Self {
        period_idle: None,
        period_promoted: None,
        scale_factor: None,
        credential: None,
        tls: TlsVerification::SystemRoots,
        only: None,
    };

    /// `None` for nothing.
    pub(super) fn into_box(self) -> Option<Box<Self>> {
        (self != Self::NONE).then(|| Box::new(self))
    }
}

impl Description {
    /// The device whose consumption this device measures: the label `_device_alias`.
    pub fn alias(&self) -> Option<String> {
        self.labels.get(ALIAS)
    }

    /// What most entries do not have.
    pub fn rare(&self) -> &Rare {
        self.rare.as_deref().unwrap_or(&Rare::NONE)
    }

    /// Replaces what most entries do not have.
    pub fn set_rare(&mut self, rare: Rare) {
        self.rare = rare.into_box();
    }

    /// Shares what is equal in another entry.
    pub(super) fn share(&mut self, other: &Self) {
        fn share<T: Clone + PartialEq>(one: &mut T, other: &T) {
            if one == other {
                one.clone_from(other);
            }
        }
        share(&mut self.device, &other.device);
        share(&mut self.target, &other.target);
        share(&mut self.labels, &other.labels);
    }

    /// Whether another entry requests the same, wherever it is written.
    pub fn is_like(&self, other: &Self) -> bool {
        let Self { file: _, line: _, name, device, target, request, labels, .. } = self;
        let Self { period, timeout, is_optional, declared, rare: _, .. } = self;
        let Rare { period_idle, period_promoted, scale_factor, credential, tls, only: _ } =
            self.rare();
        let rare = other.rare();
        (name, device, target, request, labels)
            == (&other.name, &other.device, &other.target, &other.request, &other.labels)
            && (period, timeout, is_optional, declared)
                == (&other.period, &other.timeout, &other.is_optional, &other.declared)
            && (period_idle, period_promoted, scale_factor)
                == (&rare.period_idle, &rare.period_promoted, &rare.scale_factor)
            && (credential, tls) == (&rare.credential, &rare.tls)
    }

    /// Whether its target has a certificate that the system's roots verify.
    pub fn is_verified_by_roots(&self) -> bool {
        self.target.is_tls && self.rare().tls == TlsVerification::SystemRoots
    }

    /// Whether a promotion, or a job, changes how it is polled.
    pub fn is_on_demand(&self) -> bool {
        let Rare { period_promoted, period_idle, .. } = self.rare();
        self.is_optional || period_promoted.is_some() || period_idle.is_some()
    }

    /// Kind and unit of its metric by its keys and its name. Those of an exporter's metrics are exposed.
    pub fn meaning(&self) -> Option<Meaning> {
        let is_own = self.target.protocol != Protocol::Prometheus;
        let DeclaredMeaning { kind, unit, .. } = self.declared;
        is_own.then(|| Meaning::of(&self.name, kind, unit, &Exposed::default()))
    }
}

/// How the certificate of a target is verified: the key `tls`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TlsVerification {
    /// By the system's roots.
    #[default]
    SystemRoots,
    /// By the certificates of this file.
    Ca(PathBuf),
    /// By the SHA-256 of the certificate.
    Fingerprint(Box<[u8; 32]>),
    /// Not at all.
    Insecure,
}

impl TlsVerification {
    /// A SHA-256 as 64 hexadecimal digits, with or without colons, as `openssl x509 -fingerprint` prints it.
    pub fn digest(text: &str) -> Option<[u8; 32]> {
        let digits = text.replace(':', "");
        let bytes: Option<Vec<u8>> = digits
            .as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
            .collect();
        bytes?.try_into().ok()
    }
}

/// Kind, unit and help that the keys of an entry declare.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredMeaning {
    /// The key `kind`.
    pub kind: Option<Kind>,
    /// The key `unit`.
    pub unit: Option<Unit>,
    /// The key `help`.
    pub help: Option<Arc<str>>,
}

/// A service on the network. Descriptions of equal targets share its exchanges.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    /// Protocol.
    pub protocol: Protocol,
    /// Whether the connection uses TLS.
    pub is_tls: bool,
    /// Host name or address, in small letters.
    pub host: String,
    /// Port.
    pub port: u16,
    /// User name, or the community of SNMP version 1 and 2c.
    pub user: Option<Secret>,
    /// Password.
    pub password: Option<Secret>,
    /// Parameters of the sessions beside these, if the URL has them: keys, algorithms, the context, the privilege.
    pub session: Option<Secret>,
}

impl Target {
    /// Whether another target is the same service, perhaps with another user or session.
    pub(crate) fn has_address_of(&self, other: &Self) -> bool {
        (self.protocol, self.is_tls, &self.host, self.port)
            == (other.protocol, other.is_tls, &other.host, other.port)
    }
}

/// The target as in a URL, without its secrets.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match (self.protocol, self.is_tls) {
            (Protocol::Snmp, _) => "snmp",
            (Protocol::Ipmi, _) => "ipmisensor",
            (Protocol::Prometheus, false) => "prometheus",
            (Protocol::Prometheus, true) => "prometheus+https",
            (Protocol::Json, false) => "http",
            (Protocol::Json, true) => "https",
            (Protocol::Modbus, _) => "modbus",
        };
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{scheme}://{open}{}{close}:{}", self.host, self.port)
    }
}
