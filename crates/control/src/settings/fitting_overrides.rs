//! Selects the changes that fit into a node's settings. A node rejects more bursts or bytes. Changes already in effect
//! come before later ones. The rest is cut, source by source: the changes of a source fit completely or not at all.

use crate::demand::{Change, FLUSH_LISTED_US};
use model::Timestamp;
use model::setting::{BURSTS_MAX, FLUSHES_MAX, NodeSettings, Override, SETTINGS_BYTES_MAX};
use std::collections::BTreeMap;

/// Bytes of a flush with a source name of 64 bytes.
pub(super) const FLUSH_BYTES: usize = 96;

/// The changes of a node that fit so far.
#[derive(Debug)]
pub(super) struct FittingOverrides {
    pub(super) settings: NodeSettings,
    /// Sections that did not fit, such as `burst.cpu`, with the ID of their change.
    pub(super) cut: Vec<(i64, Box<str>)>,
    bytes: usize,
}

impl FittingOverrides {
    /// Reserves the bytes of the existing settings, and of flushes.
    pub(super) fn after(settings: NodeSettings) -> Self {
        let reserved = FLUSHES_MAX * FLUSH_BYTES + wire::encode_settings(&settings).len();
        let bytes = SETTINGS_BYTES_MAX.saturating_sub(reserved);
        Self { settings, cut: Vec::new(), bytes }
    }

    /// Adds a change that ends at `ends`.
    pub(super) fn take(&mut self, change: &Change, ends: Timestamp) {
        let Self { settings, cut, bytes } = self;
        let NodeSettings { sources, bursts, .. } = &change.settings;
        for (part, changed, into, max) in [
            ("burst", bursts, &mut settings.bursts, BURSTS_MAX),
            ("sources", sources, &mut settings.sources, usize::MAX),
        ] {
            for (source, changed) in changed {
                // Pollers receive it.
                if config::is_only_polled(source) {
                    continue;
                }
                let is_new = !into.contains_key(source);
                if is_new && into.len() >= max || !fit(into, bytes, source, changed, ends) {
                    cut.push((change.number, format!("{part}.{source}").into()));
                }
            }
        }
    }
}

/// Adds the changes of a source if they fit into `bytes`. Of two values of a setting, the later one counts; of two
/// ends, the earlier one, after which the server composes the settings again.
fn fit(
    into: &mut BTreeMap<Box<str>, Override>,
    bytes: &mut usize,
    source: &str,
    changed: &Override,
    ends: Timestamp,
) -> bool {
    let before = into.get(source);
    let mut merged = before.cloned().unwrap_or_default();
    merged.values.extend(changed.values.clone());
    merged.until = Some(merged.until.map_or(ends, |until| until.min(ends)));
    let less = before.map_or(0, |before| wire::override_bytes(source, before));
    let left = (*bytes + less).checked_sub(wire::override_bytes(source, &merged));
    let Some(left) = left else { return false };
    *bytes = left;
    into.insert(source.into(), merged);
    true
}

/// The end of the time for which a flush is sent.
pub(super) fn flush_end(made: Timestamp) -> Timestamp {
    made.plus(FLUSH_LISTED_US)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::compose::tests::change;
    use model::setting::SettingValue;

    const ENDS: Timestamp = Timestamp::from_seconds(1_767_706_500);

    fn text(text: &str) -> SettingValue {
        SettingValue::Text(text.into())
    }

    #[test]
    fn bursts_that_hold_stand_before_later_ones() {
        let bursts = [("load".into(), Override::default())].into();
        let base = NodeSettings { bursts, ..NodeSettings::default() };
        let mut fitting = FittingOverrides::after(base);
        let keep = |section| (section, "keep", text("1m"));
        let three = change(1, ENDS, &[keep("burst.cpu"), keep("burst.disk"), keep("burst.memory")]);
        fitting.take(&three, ENDS);
        let more = [keep("burst.numa"), ("burst.cpu", "keep", text("2m")), keep("sources.x")];
        fitting.take(&change(2, ENDS.plus(1), &more), ENDS.plus(1));
        assert_eq!(fitting.cut, [(2, "burst.numa".into())]);
        let NodeSettings { sources, bursts, .. } = &fitting.settings;
        assert_eq!((sources.len(), bursts.len()), (1, 4));
        let cpu = &bursts["cpu"];
        assert_eq!((&cpu.values["keep"], cpu.until), (&text("2m"), Some(ENDS)));
    }

    #[test]
    fn a_source_is_sent_completely_or_not_at_all() {
        let perf = |values: &[(&'static str, &str)]| {
            let entry = |(key, value): &(&'static str, &str)| ("sources.perf", *key, text(value));
            change(1, ENDS, &values.iter().map(entry).collect::<Vec<_>>())
        };
        let bytes = |change: &Change| {
            let mut changed = change.settings.sources["perf"].clone();
            changed.until = Some(ENDS);
            wire::override_bytes("perf", &changed)
        };
        let short = perf(&[("events", "1234567890")]);
        let mut fitting = FittingOverrides::after(NodeSettings::default());
        fitting.bytes = bytes(&short);
        let mut takes = |change: &Change| {
            let before = fitting.cut.len();
            fitting.take(change, ENDS);
            fitting.cut.len() == before
        };
        assert!(!takes(&perf(&[("events", "x"), ("period", "12345")])));
        assert!(takes(&short));
        // This replaces an existing value.
        assert!(!takes(&perf(&[("events", "12345678901")])));
        assert!(takes(&perf(&[("events", "1")])) && takes(&short));
        assert_eq!(fitting.settings.sources["perf"].values["events"], text("1234567890"));
    }
}
