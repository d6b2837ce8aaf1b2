//! Pollers with the errors in their description files, and the devices of these entries.

use crate::engine::access_filter::AccessFilter;
use crate::engine::entry_errors::Report;
use crate::{PollerAge, QueryContext, QueryEngine, QueryError};
use api::{DeviceState, EntryError, PollerState};
use model::{DeviceId, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// Errors of one device that its reason shows.
const SHOWN_MAX: usize = 3;

impl QueryEngine {
    /// The pollers and feeds that sent a batch within 7 days or report errors in their description files, by name.
    ///
    /// Errors are visible to readers of everything, and to those who now see the node samples of the device that the
    /// entry names, or of the node that it feeds.
    ///
    /// # Errors
    /// A block cannot be read; the registry fails; the query was cancelled.
    pub fn pollers(&self, context: &QueryContext) -> Result<Vec<api::Poller>, QueryError> {
        let ages = self.poll_summary(context.now)?.pollers;
        let mut pollers: BTreeMap<String, api::Poller> =
            ages.iter().map(|age| (age.name.clone(), poller(age, context.now))).collect();
        for (name, errors) in self.seen_entry_errors(context)? {
            let new = || api::Poller {
                poller: name.to_string(),
                state: PollerState::Alive,
                last_seen: None,
                entry_errors: api::EntryErrors::default(),
            };
            pollers.entry(name.to_string()).or_insert_with(new).entry_errors = errors;
        }
        Ok(pollers.into_values().collect())
    }

    /// The number of errors of each poller that reports some now.
    pub(super) fn entry_error_counts(&self, now: Timestamp) -> Vec<(String, u32)> {
        let current = self.entry_errors.current(now).into_iter();
        current.map(|(poller, report)| (poller.to_string(), report.errors.count)).collect()
    }

    /// The devices of which entries have errors, as failing ones: one for each poller.
    pub(super) fn devices_with_entry_errors(
        &self,
        context: &QueryContext,
    ) -> Result<Vec<api::Device>, QueryError> {
        let mut found = Vec::new();
        for (poller, errors) in self.seen_entry_errors(context)? {
            let mut of: BTreeMap<&str, Vec<&EntryError>> = BTreeMap::new();
            for error in &errors.listed {
                of.entry(error.device.as_deref().unwrap_or_default()).or_default().push(error);
            }
            of.remove("");
            found.extend(of.into_iter().map(|(name, errors)| device(name, &poller, &errors)));
        }
        Ok(found)
    }

    /// The errors that are visible to the reader. A reader who does not read everything has no count of the others.
    fn seen_entry_errors(
        &self,
        context: &QueryContext,
    ) -> Result<BTreeMap<DeviceId, api::EntryErrors>, QueryError> {
        let access = AccessFilter::new(self, context, (context.now, context.now), None);
        let is_seen = |name: &Option<String>| -> Result<bool, QueryError> {
            let Some(device) = name.as_ref().and_then(|name| DeviceId::new(name).ok()) else {
                return Ok(false);
            };
            Ok(access.of_node(&device)?.at(context.now.0))
        };
        let mut seen = BTreeMap::new();
        for (poller, Report { mut errors, .. }) in self.entry_errors.current(context.now) {
            if context.reader != jobs::Reader::Everything {
                let mut listed = Vec::new();
                for mut error in errors.listed {
                    let (of_device, of_alias) = (is_seen(&error.device)?, is_seen(&error.alias)?);
                    error.alias = error.alias.filter(|_| of_alias);
                    if of_device || of_alias {
                        listed.push(error);
                    }
                }
                let count = u32::try_from(listed.len()).unwrap_or(u32::MAX);
                errors = api::EntryErrors { count, listed };
            }
            if errors.count > 0 {
                seen.insert(poller, errors);
            }
        }
        Ok(seen)
    }
}

fn poller(age: &PollerAge, now: Timestamp) -> api::Poller {
    api::Poller {
        poller: age.name.clone(),
        state: match age {
            PollerAge { is_ended: true, .. } => PollerState::Ended,
            PollerAge { is_silent: true, .. } => PollerState::Silent,
            PollerAge { .. } => PollerState::Alive,
        },
        last_seen: Some(now.seconds() - age.age_seconds),
        entry_errors: api::EntryErrors::default(),
    }
}

fn device(name: &str, poller: &DeviceId, errors: &[&EntryError]) -> api::Device {
    let shown: Vec<String> = errors.iter().take(SHOWN_MAX).map(|error| error.text()).collect();
    let more = errors.len().saturating_sub(SHOWN_MAX);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let entries = if errors.len() == 1 { "an entry has an error" } else { "entries have errors" };
    let aliases: BTreeSet<String> = errors.iter().filter_map(|error| error.alias.clone()).collect();
    api::Device {
        device: name.to_owned(),
        poller: Some(poller.to_string()),
        protocol: None,
        address: None,
        period_seconds: None,
        state: DeviceState::Failing,
        reason: Some(format!("{entries}: {}{more}", shown.join("; "))),
        last_good: None,
        aliases: aliases.into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(count: u32) -> Vec<EntryError> {
        let error = |line| EntryError {
            file: "metrics.d/pdu".to_owned(),
            line,
            device: Some("pdu-1".to_owned()),
            alias: None,
            metric: Some("power".to_owned()),
            reason: "the key `url` is missing".to_owned(),
        };
        (1..=count).map(error).collect()
    }

    #[test]
    fn a_device_shows_its_first_errors() {
        let all = errors(5);
        let poller = DeviceId::new("one").unwrap();
        let row = device("pdu-1", &poller, &all.iter().collect::<Vec<_>>());
        let one = |line| format!("metrics.d/pdu:{line}: the key `url` is missing");
        let reason = format!("entries have errors: {}; {}; {}; and 2 more", one(1), one(2), one(3));
        assert_eq!((row.state, row.reason), (DeviceState::Failing, Some(reason)));
    }
}
