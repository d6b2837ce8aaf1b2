//! The message that changes the settings of a running Rust node: a map of texts, `{"metrics": "rss:2:1234,pgpgin",
//! "sample_period": "1.5"}`. The branch `colmet-rust` and colmet-collector name the list `perfhw_metrics`. jobmeter adds a
//! third key, `token`, for messages from other machines.

use super::reader::Reader;
use super::{MsgpackError, MsgpackReason, start_of};
use std::time::Duration;

/// New settings of all nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reconfiguration {
    /// The metrics to sample.
    pub metrics: Vec<MetricRequest>,
    /// The period of metrics without one.
    pub period: Duration,
    /// The key that a message from another machine needs.
    pub token: Option<String>,
}

/// A metric to sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricRequest {
    /// Its name in Colmet.
    pub name: String,
    /// Its period, if it has its own.
    pub period: Option<Duration>,
    /// The only job to sample it of.
    pub job: Option<u64>,
}

impl Reconfiguration {
    /// Decodes a message.
    ///
    /// # Errors
    /// It is no map of texts, has other keys or lacks one, or a text is no list of metrics or no period.
    pub fn decode(message: &[u8]) -> Result<Self, MsgpackError> {
        let mut reader = Reader::of(message);
        let (mut metrics, mut period, mut token) = (None, None, None);
        for _ in 0..reader.map()? {
            let offset = reader.offset();
            let key = reader.text()?;
            let slot = match key {
                "metrics" | "perfhw_metrics" => &mut metrics,
                "sample_period" => &mut period,
                "token" => &mut token,
                _ => return Err(MsgpackError { offset, reason: unexpected(key) }),
            };
            let value = (reader.offset(), reader.text()?);
            if slot.replace(value).is_some() {
                return Err(MsgpackError { offset, reason: unexpected(key) });
            }
        }
        let end = reader.offset();
        let failed = |offset: usize, reason: MsgpackReason| MsgpackError { offset, reason };
        if !reader.is_at_end() {
            return Err(failed(end, MsgpackReason::Trailing));
        }
        let missing = |key| failed(end, MsgpackReason::MissingKey(key));
        let (offset, text) = metrics.ok_or(missing("metrics"))?;
        let metrics = requests(text).map_err(|reason| failed(offset, reason))?;
        let (offset, text) = period.ok_or(missing("sample_period"))?;
        let period = seconds(text).ok_or_else(|| failed(offset, setting(text, "a period")))?;
        let token = token.map(|(_, text)| text.to_owned());
        Ok(Self { metrics, period, token })
    }
}

fn unexpected(key: &str) -> MsgpackReason {
    MsgpackReason::Key(start_of(key))
}

fn setting(text: &str, what: &'static str) -> MsgpackReason {
    MsgpackReason::Setting { text: start_of(text), what }
}

/// Metrics `name`, `name:period` or `name:period:job`, separated by commas.
fn requests(text: &str) -> Result<Vec<MetricRequest>, MsgpackReason> {
    let listed = text.split(',').map(str::trim).filter(|one| !one.is_empty());
    listed
        .map(|one| request(one).ok_or_else(|| setting(one, "a metric, its period and its job")))
        .collect()
}

fn request(text: &str) -> Option<MetricRequest> {
    let mut parts = text.split(':').map(str::trim);
    let name = parts.next().filter(|name| !name.is_empty())?.to_owned();
    let period = parts.next().map(|text| seconds(text).ok_or(())).transpose().ok()?;
    let job = parts.next().map(str::parse).transpose().ok()?;
    parts.next().is_none().then_some(MetricRequest { name, period, job })
}

/// A period above 0.
fn seconds(text: &str) -> Option<Duration> {
    let period = Duration::try_from_secs_f64(text.trim().parse().ok()?).ok()?;
    (!period.is_zero()).then_some(period)
}
