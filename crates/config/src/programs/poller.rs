//! The settings of a poller.

use crate::programs::agent::{SERVER, SPOOL, ServerSettings, SpoolSettings, check_allowed};
use crate::programs::colmet::{COLMET, ColmetSettings};
use crate::settings::load::{ConfigError, Values, check_cert_and_key};
use crate::settings::setting::{Kind, PERIOD_MAX, settings};
use crate::{LogConfig, Setting, log_settings};
use model::DeviceId;
use std::path::PathBuf;
use std::time::Duration;

settings! {
    /// A poller that the server starts.
    PollSettings, POLL, "Polling" {
        /// Poll the devices of this folder of description files, by a process of its own with the settings of
        /// /etc/jobmeter/poller.toml.
        "poll.metrics_dir" metrics_dir: Option<PathBuf> = "" or "none", Kind::Text("DIR");
    }
}

settings! {
    /// How a poller polls.
    PollerSettings, POLLER, "Polling" {
        /// Name of this poller: its samples come from `poller-NAME`.
        "name" name: Option<DeviceId> = "" or "the host's name up to its first dot", Kind::Text("NAME");
        /// File with the certificates that `jobmeter poll --pin` pinned.
        "pins" pins: Option<PathBuf> = "" or "/var/lib/jobmeter/poller-pins as root, else in the XDG state folder",
            Kind::Text("FILE");
        /// Most devices that it asks at the same time. A quarter of it is for those that did not answer their latest
        /// request, and only for them.
        "exchanges_max" exchanges_max: u64 = "512", Kind::Number { min: 1, max: 65_536 };
        /// Most exchanges with services of one host at the same time.
        "host_exchanges_max" host_exchanges_max: u64 = "8", Kind::Number { min: 1, max: 65_536 };
    }
}

settings! {
    /// What the server may change of a poller.
    PollerRemoteSettings, POLLER_REMOTE, "What the server may change" {
        /// What the server may change: `periods`, those of the polls of a device by a protocol. Other words of an agent,
        /// which may have the same variable, have no effect.
        "remote.allow" allow: Vec<String> = "periods", Kind::List("WORD");
        /// Shortest period that the server may set.
        "remote.period_min" period_min: Duration = "1s",
            Kind::Duration { min: POLL_PERIOD_MIN, max: PERIOD_MAX };
        /// Longest duration of a change; it ends by itself.
        "remote.time_max" time_max: Duration = "1d", Kind::Duration {
            min: Duration::from_secs(1),
            max: Duration::from_secs(366 * 86_400),
        };
    }
}

/// Shortest period of polls.
pub const POLL_PERIOD_MIN: Duration = Duration::from_millis(10);

/// The sources of pollers: the names of their protocols.
pub const POLLED_SOURCES: [&str; 5] = ["snmp", "ipmi", "prometheus", "json", "modbus"];
/// Those of them that agents have, too.
pub const POLLED_AND_READ_SOURCES: [&str; 1] = ["ipmi"];

/// The source of feeds of wattmeters: a flush sends its latest samples.
pub const FED_SOURCE: &str = "wattmetre";

/// Whether pollers alone have a source: agents of this version do not.
pub fn is_only_polled(source: &str) -> bool {
    POLLED_SOURCES.contains(&source) && !POLLED_AND_READ_SOURCES.contains(&source)
}

/// The folder of a poller's spool, if `spool` is not set.
const SPOOL_UNSET: &str = "/var/lib/jobmeter/poller-NAME as root, else in the XDG state folder";

/// The folder of a feed's spool, if `spool` is not set.
const FEED_SPOOL_UNSET: &str = "/var/lib/jobmeter/feed-ID as root, else in the XDG state folder";

/// The folder of a listener's spool, if `spool` is not set.
const COLMET_SPOOL_UNSET: &str =
    "/var/lib/jobmeter/colmet-CLUSTER as root, else in the XDG state folder";

/// The configuration of a poller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PollerConfig {
    /// How it polls.
    pub polling: PollerSettings,
    /// Where it sends to.
    pub server: ServerSettings,
    /// Its buffer of unsent samples.
    pub spool: SpoolSettings,
    /// What the server may change.
    pub remote: PollerRemoteSettings,
    /// How it receives messages of Colmet's nodes.
    pub colmet: ColmetSettings,
    /// Its log.
    pub log: LogConfig,
}

/// Every setting of a poller, in the order of the manual.
pub fn poller_settings() -> Vec<Setting> {
    let list = [POLLER, SERVER, SPOOL, POLLER_REMOTE, COLMET, log_settings()].concat();
    with_spool_unset(list, SPOOL_UNSET)
}

/// The settings of a poller that concern polls.
pub fn polling_settings() -> Vec<Setting> {
    let list = [POLLER, SERVER, SPOOL, POLLER_REMOTE, log_settings()].concat();
    with_spool_unset(list, SPOOL_UNSET)
}

/// The settings of a poller that concern the listener for Colmet's nodes.
pub fn colmet_settings() -> Vec<Setting> {
    with_spool_unset([COLMET, SERVER, SPOOL, log_settings()].concat(), COLMET_SPOOL_UNSET)
}

/// The settings of a poller that concern a feed: it has the name of its meter, no targets, and nothing that the server
/// changes.
pub fn feed_settings() -> Vec<Setting> {
    with_spool_unset([SERVER, SPOOL, log_settings()].concat(), FEED_SPOOL_UNSET)
}

fn with_spool_unset(mut list: Vec<Setting>, unset: &'static str) -> Vec<Setting> {
    if let Some(spool) = list.iter_mut().find(|setting| setting.key == "spool") {
        spool.unset = unset;
    }
    list
}

impl PollerConfig {
    /// The checked configuration. Adds all errors to `errors`.
    pub(crate) fn from_values(values: &Values, errors: &mut Vec<ConfigError>) -> Option<Self> {
        let polling = PollerSettings::from_values(values, errors);
        let server = ServerSettings::from_values(values, errors);
        let spool = SpoolSettings::from_values(values, errors);
        let remote = PollerRemoteSettings::from_values(values, errors);
        let colmet = ColmetSettings::from_values(values, errors);
        let log = LogConfig::from_values(values, errors);
        if let Some(colmet) = &colmet {
            colmet.check(values, errors);
        }
        if let Some(remote) = &remote {
            check_allowed(&remote.allow, values, errors);
        }
        if let Some(ServerSettings { cert, key, .. }) = &server {
            check_cert_and_key(cert.as_deref(), key.as_deref(), values, errors);
        }
        Some(Self {
            polling: polling?,
            server: server?,
            spool: spool?,
            remote: remote?,
            colmet: colmet?,
            log: log?,
        })
    }
}
