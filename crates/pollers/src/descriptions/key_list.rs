//! The keys of an entry: their types, defaults and meanings.

/// A key of an entry.
#[derive(Debug)]
pub struct KeySpec {
    /// Its name.
    pub name: &'static str,
    /// Whether Kwollect 1.3.1 accepts it. It ends at a file with any other key.
    pub is_of_kwollect: bool,
    /// The type of its value.
    pub value: &'static str,
    /// The value of an entry without it; empty if it is mandatory.
    pub default: &'static str,
    /// Its meaning.
    pub help: &'static str,
}

const fn of_kwollect(
    name: &'static str,
    value: &'static str,
    default: &'static str,
    help: &'static str,
) -> KeySpec {
    KeySpec { name, is_of_kwollect: true, value, default, help }
}

const fn of_jobmeter(
    name: &'static str,
    value: &'static str,
    default: &'static str,
    help: &'static str,
) -> KeySpec {
    KeySpec { name, is_of_kwollect: false, value, default, help }
}

/// Every key, in the order of the manual.
pub const KEYS: [KeySpec; 17] = [
    of_kwollect(
        "name",
        "text",
        "",
        "Name of the metric. Of an exporter, promotions use it; the metrics have their exposed names.",
    ),
    of_kwollect("device_id", "text", "", "Name of the device that the samples belong to."),
    of_kwollect("url", "text", "", "What is requested, by the forms of each protocol."),
    of_kwollect(
        "update_every",
        "milliseconds",
        "10000",
        "Period of the requests, 10 ms to 366 days.",
    ),
    of_kwollect(
        "optional",
        "true or false",
        "false",
        "Whether it is requested only while it is promoted.",
    ),
    of_kwollect(
        "labels",
        "map",
        "{}",
        "Labels of the samples, with any JSON values. `_device_alias` is the node that the device feeds. Labels of the device come first.",
    ),
    of_kwollect("scale_factor", "number", "1", "Factor of each value."),
    of_kwollect("path", "any", "not used", "Accepted as Kwollect does, without an effect."),
    of_kwollect(
        "path_template",
        "any",
        "not used",
        "Accepted as Kwollect does, without an effect.",
    ),
    of_jobmeter(
        "kind",
        "gauge or counter",
        "by the exposition or the name",
        "Kind of the metric, as declared.",
    ),
    of_jobmeter(
        "unit",
        "word of a unit",
        "by the exposition or the name",
        "Unit of the values, as declared.",
    ),
    of_jobmeter(
        "help",
        "text",
        "by the exposition, else none",
        "Help of the metric, 500 bytes at most.",
    ),
    of_jobmeter(
        "timeout",
        "milliseconds",
        "the period, 10000 at most",
        "Longest duration of an exchange.",
    ),
    of_jobmeter(
        "update_every_idle",
        "milliseconds",
        "as `update_every`",
        "Period while neither the device nor its `_device_alias` has a job.",
    ),
    of_jobmeter(
        "update_every_promoted",
        "milliseconds",
        "as `update_every`",
        "Period while the metric is promoted.",
    ),
    of_jobmeter(
        "credential",
        "name",
        "the secret of the URL",
        "Name of a file with the secret: `/etc/jobmeter/credentials/NAME`, or of systemd's `LoadCredential=`.",
    ),
    of_jobmeter(
        "tls",
        "map",
        "the system's roots",
        "How the certificate of the target is verified: `{ca: FILE}`, `{fingerprint: SHA256}` or `{insecure: true}`.",
    ),
];
