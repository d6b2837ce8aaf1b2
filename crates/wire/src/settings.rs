//! The settings that a server requests from a node.

use crate::limits::{self, LimitError};
use crate::{DecodeError, message};
use model::Timestamp;
use model::setting::{FlushRequest, NodeSettings, Override, SETTINGS_BYTES_MAX, SettingValue};
use prost::Message;
use prost::encoding::{encoded_len_varint, key_len};
use std::collections::BTreeMap;
use std::time::Duration;

/// Encodes settings. Without any, the result is empty.
pub fn encode_settings(settings: &NodeSettings) -> Vec<u8> {
    let overrides = |overrides: &BTreeMap<Box<str>, Override>| {
        overrides.iter().map(|(source, changed)| override_of(source, changed)).collect()
    };
    let promotions = settings.promotions.iter();
    let promotion = promotions.map(|(metric, until)| promotion_of(metric, *until)).collect();
    let flush = settings.flushes.iter().map(|one| flush_of(&one.source, one.number)).collect();
    let (source, burst) = (overrides(&settings.sources), overrides(&settings.bursts));
    message::Settings { source, burst, promotion, flush }.encode_to_vec()
}

/// Decodes settings.
///
/// # Errors
/// The bytes are more than a node accepts, or are not settings.
pub fn decode_settings(bytes: &[u8]) -> Result<NodeSettings, DecodeError> {
    limits::bytes("settings", bytes.len(), SETTINGS_BYTES_MAX)?;
    let message::Settings { source, burst, promotion, flush } = message::Settings::decode(bytes)?;
    let overrides = |all: Vec<message::Override>| {
        all.into_iter().map(read_override).collect::<Result<_, LimitError>>()
    };
    let promotions = promotion.into_iter().map(|one| (one.metric.into(), Timestamp(one.until)));
    let flushes = flush.into_iter();
    let flushes = flushes.map(|one| FlushRequest { source: one.source.into(), number: one.number });
    Ok(NodeSettings {
        sources: overrides(source)?,
        bursts: overrides(burst)?,
        promotions: promotions.collect(),
        flushes: flushes.collect(),
    })
}

/// Encoded length of an override in settings, in bytes.
pub fn override_bytes(source: &str, changed: &Override) -> usize {
    entry_bytes(&override_of(source, changed))
}

/// Encoded length of a promotion in settings, in bytes.
pub fn promotion_bytes(metric: &str, until: Timestamp) -> usize {
    entry_bytes(&promotion_of(metric, until))
}

/// Encoded length of a flush in settings, in bytes.
pub fn flush_bytes(source: &str, number: u64) -> usize {
    entry_bytes(&flush_of(source, number))
}

/// Length of a message as an entry of a list: key, length and content.
fn entry_bytes(entry: &impl Message) -> usize {
    let length = entry.encoded_len();
    key_len(1) + encoded_len_varint(u64::try_from(length).unwrap_or(u64::MAX)) + length
}

fn promotion_of(metric: &str, until: Timestamp) -> message::Promotion {
    message::Promotion { metric: metric.to_owned(), until: until.0 }
}

fn flush_of(source: &str, number: u64) -> message::Flush {
    message::Flush { source: source.to_owned(), number }
}

fn override_of(source: &str, changed: &Override) -> message::Override {
    message::Override {
        source: source.to_owned(),
        setting: changed
            .values
            .iter()
            .map(|(key, value)| message::Setting {
                key: key.to_string(),
                value: Some(value_of(value)),
            })
            .collect(),
        until: changed.until.map(|until| until.0),
    }
}

fn value_of(value: &SettingValue) -> message::SettingValue {
    match value {
        SettingValue::Switch(is_on) => message::SettingValue::Switch(*is_on),
        SettingValue::Number(number) => message::SettingValue::Number(*number),
        SettingValue::Duration(duration) => {
            let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
            message::SettingValue::Micros(micros)
        }
        SettingValue::Text(text) => message::SettingValue::Text(text.to_string()),
        SettingValue::List(texts) => {
            let text = texts.iter().map(ToString::to_string).collect();
            message::SettingValue::List(message::Texts { text })
        }
    }
}

fn read_override(read: message::Override) -> Result<(Box<str>, Override), LimitError> {
    let value = |setting: message::Setting| {
        // A type of a newer version. The node must not take the setting for one without a value.
        let value = setting.value.ok_or(LimitError::Untyped)?;
        Ok((setting.key.into(), read_value(value)))
    };
    let values = read.setting.into_iter().map(value).collect::<Result<_, LimitError>>()?;
    Ok((read.source.into(), Override { values, until: read.until.map(Timestamp) }))
}

fn read_value(value: message::SettingValue) -> SettingValue {
    match value {
        message::SettingValue::Switch(is_on) => SettingValue::Switch(is_on),
        message::SettingValue::Number(number) => SettingValue::Number(number),
        message::SettingValue::Micros(micros) => {
            SettingValue::Duration(Duration::from_micros(micros))
        }
        message::SettingValue::Text(text) => SettingValue::Text(text.into()),
        message::SettingValue::List(message::Texts { text }) => {
            SettingValue::List(text.into_iter().map(Into::into).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;

    fn text() -> impl Strategy<Value = Box<str>> {
        ".{0,8}".prop_map(Into::into)
    }

    fn value() -> impl Strategy<Value = SettingValue> {
        prop_oneof![
            any::<bool>().prop_map(SettingValue::Switch),
            any::<u64>().prop_map(SettingValue::Number),
            any::<u64>().prop_map(|us| SettingValue::Duration(Duration::from_micros(us))),
            text().prop_map(SettingValue::Text),
            vec(text(), 0..4).prop_map(SettingValue::List),
        ]
    }

    fn overrides() -> impl Strategy<Value = BTreeMap<Box<str>, Override>> {
        let until = proptest::option::of(any::<i64>().prop_map(Timestamp));
        let one = (btree_map(text(), value(), 0..4), until);
        btree_map(text(), one.prop_map(|(values, until)| Override { values, until }), 0..4)
    }

    fn settings() -> impl Strategy<Value = NodeSettings> {
        let promotions = btree_map(text(), any::<i64>().prop_map(Timestamp), 0..4);
        let flush = (text(), any::<u64>());
        let flush = flush.prop_map(|(source, number)| FlushRequest { source, number });
        let parts = (overrides(), overrides(), promotions, vec(flush, 0..4));
        parts.prop_map(|(sources, bursts, promotions, flushes)| NodeSettings {
            sources,
            bursts,
            promotions,
            flushes,
        })
    }

    proptest! {
        #[test]
        fn settings_are_decoded_as_they_were_encoded(settings in settings()) {
            let bytes = encode_settings(&settings);
            let overrides = settings.sources.iter().chain(&settings.bursts);
            let length = overrides.map(|(source, one)| override_bytes(source, one)).sum::<usize>()
                + settings.promotions.iter().map(|(m, end)| promotion_bytes(m, *end)).sum::<usize>()
                + settings.flushes.iter().map(|f| flush_bytes(&f.source, f.number)).sum::<usize>();
            prop_assert_eq!(bytes.len(), length);
            prop_assert_eq!(decode_settings(&bytes), Ok(settings));
        }

        #[test]
        fn no_bytes_panic(bytes in vec(any::<u8>(), 0..200)) {
            decode_settings(&bytes).ok();
        }

        #[test]
        fn no_damage_panics(settings in settings(), at in any::<usize>(), bit in 0..8_u8) {
            let mut bytes = encode_settings(&settings);
            let length = bytes.len().max(1);
            if let Some(byte) = bytes.get_mut(at % length) {
                *byte ^= 1 << bit;
            }
            decode_settings(&bytes).ok();
        }
    }

    #[test]
    fn long_and_untyped_settings_are_rejected() {
        assert_eq!(encode_settings(&NodeSettings::default()), []);
        let until = Timestamp(0);
        let long = "x".repeat(SETTINGS_BYTES_MAX);
        let promotions = [(long.into(), until)].into();
        let bytes = encode_settings(&NodeSettings { promotions, ..NodeSettings::default() });
        let rejected = decode_settings(&bytes);
        assert!(matches!(rejected, Err(DecodeError::Limit(LimitError::Bytes { .. }))));
        let setting = vec![message::Setting { key: "period".to_owned(), value: None }];
        let source = vec![message::Override { setting, ..message::Override::default() }];
        let untyped = message::Settings { source, ..message::Settings::default() };
        let rejected = decode_settings(&untyped.encode_to_vec());
        assert_eq!(rejected, Err(DecodeError::Limit(LimitError::Untyped)));
    }
}
