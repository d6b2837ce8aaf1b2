//! The JSON forms of model types in the manifest and beside it: texts and numbers, checked when read.

use model::{Boot, Cause, DeviceId, Gap, Kind, Metric, Origin, Timestamp, Unit};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Instants as microseconds since 1970.
pub mod time {
    use super::{Deserialize, Deserializer, Serializer, Timestamp};

    /// As a number.
    pub fn serialize<S: Serializer>(at: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_i64(at.0)
    }

    /// From a number.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
        i64::deserialize(from).map(Timestamp)
    }
}

/// Boots as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct BootText(pub(crate) Boot);

impl From<BootText> for String {
    fn from(boot: BootText) -> Self {
        boot.0.to_string()
    }
}

impl TryFrom<String> for BootText {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let wrong = "a boot is 32 hexadecimal digits";
        if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(wrong);
        }
        let number = u128::from_str_radix(&text, 16).map_err(|_| wrong)?;
        Ok(Self(Boot(number.to_be_bytes())))
    }
}

/// A name that is checked when it is read.
pub(crate) fn name<'de, D: Deserializer<'de>, T: std::str::FromStr<Err: std::fmt::Display>>(
    from: D,
) -> Result<T, D::Error> {
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}

/// A name as text.
pub(crate) fn text<S: Serializer>(name: &impl std::fmt::Display, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(name)
}

/// A gap.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GapJson {
    #[serde(deserialize_with = "name", serialize_with = "text")]
    origin: Origin,
    #[serde(deserialize_with = "name", serialize_with = "text")]
    device: DeviceId,
    source: Box<str>,
    #[serde(with = "time")]
    from: Timestamp,
    #[serde(with = "time")]
    to: Timestamp,
    cause: String,
    detail: Box<str>,
}

impl From<&Gap> for GapJson {
    fn from(gap: &Gap) -> Self {
        let Gap { origin, device, source, from, to, cause, detail } = gap.clone();
        Self { origin, device, source, from, to, cause: cause.words().to_owned(), detail }
    }
}

impl GapJson {
    /// The gap, if this version supports its cause.
    pub fn gap(self) -> Option<Gap> {
        let Self { origin, device, source, from, to, cause, detail } = self;
        let cause = Cause::from_words(&cause)?;
        Some(Gap { origin, device, source, from, to, cause, detail })
    }
}

/// A metric, and the origin that first sent it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MetricJson {
    name: String,
    unit: String,
    kind: String,
    divisor: u32,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    assumed: bool,
    help: String,
    by: String,
}

impl MetricJson {
    pub(crate) fn new(metric: &Metric, by: &str) -> Self {
        Self {
            name: metric.name.to_string(),
            unit: metric.unit.word().to_owned(),
            kind: metric.kind.word().to_owned(),
            divisor: metric.divisor,
            assumed: metric.assumed,
            help: metric.help.to_string(),
            by: by.to_owned(),
        }
    }

    /// The metric and the origin that first sent it; `None` if unit or kind are unknown, or the rest is out of bounds.
    pub fn metric(self) -> Option<(Metric, String)> {
        let kind =
            [Kind::Gauge, Kind::Counter].into_iter().find(|kind| kind.word() == self.kind)?;
        let unit = Unit::from_word(&self.unit)?;
        let (name, help) = (self.name.into(), self.help.into());
        let metric =
            Metric { name, unit, kind, help, divisor: self.divisor, assumed: self.assumed };
        metric.check().is_ok().then_some((metric, self.by))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_round_trip() {
        let gap = Gap {
            origin: Origin::new("n1").unwrap(),
            device: DeviceId::new("n1").unwrap(),
            source: "cgroup".into(),
            from: Timestamp(1),
            to: Timestamp(2),
            cause: Cause::SpoolFull,
            detail: "\"quoted\"".into(),
        };
        let text = serde_json::to_string(&GapJson::from(&gap)).unwrap();
        assert_eq!(serde_json::from_str::<GapJson>(&text).unwrap().gap(), Some(gap));
        let metric = Metric::counter("a_seconds_total", Unit::Seconds, "help").steps(1000);
        let text = serde_json::to_string(&MetricJson::new(&metric, "n1")).unwrap();
        let back = serde_json::from_str::<MetricJson>(&text).unwrap().metric().unwrap();
        assert_eq!(back, (metric, "n1".to_owned()));
        let boot = BootText(Boot([0xa5; 16]));
        let text = serde_json::to_string(&boot).unwrap();
        assert_eq!(serde_json::from_str::<BootText>(&text).unwrap(), boot);
    }

    #[test]
    fn malformed_values_are_rejected() {
        for text in ["\"\"", "\"+5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5\"", "1"] {
            assert!(serde_json::from_str::<BootText>(text).is_err(), "{text}");
        }
        let text = r#"{"name":"a,b","unit":"","kind":"gauge","divisor":1,"help":"","by":""}"#;
        assert!(serde_json::from_str::<MetricJson>(text).unwrap().metric().is_none());
    }
}
