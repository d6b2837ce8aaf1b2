//! What pollers report of the changes of settings that they received.

use crate::common::counts::Counter;
use api::PollerRejection;
use model::setting::RejectionCode;
use model::{DeviceId, Timestamp, printable};
use parking_lot::Mutex;
use std::collections::HashMap;

/// Most remembered pollers, and the time after which a silent one may be evicted.
const POLLERS_MAX: usize = 1000;
const SILENT_US: i64 = 60 * Timestamp::SECOND;
/// Longest remembered reason, in characters.
const REASON_CHARACTERS_MAX: usize = 200;

/// The reports of pollers since this server started.
#[derive(Debug, Default)]
pub(crate) struct PollerReports {
    known: Mutex<HashMap<DeviceId, PollerReport>>,
    /// Reports that are not remembered, because all remembered pollers report.
    pub(crate) not_remembered: Counter,
}

/// The latest report of a poller.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PollerReport {
    /// The largest ID of a change that it received.
    pub(crate) applied: i64,
    /// What it rejects or shortens.
    pub(crate) rejected: Vec<PollerRejection>,
    seen: Timestamp,
}

impl PollerReport {
    /// Whether the poller reports now.
    pub(crate) fn is_current(&self, now: Timestamp) -> bool {
        now.since(self.seen) < SILENT_US
    }
}

impl PollerReports {
    /// Records a report. Returns whether the poller is remembered.
    pub(crate) fn met(
        &self,
        poller: DeviceId,
        (applied, mut rejected): (i64, Vec<PollerRejection>),
        now: Timestamp,
    ) -> bool {
        let mut known = self.known.lock();
        if known.len() >= POLLERS_MAX && !known.contains_key(&poller) {
            known.retain(|_, report| report.is_current(now));
            if known.len() >= POLLERS_MAX {
                self.not_remembered.add(1);
                return false;
            }
        }
        rejected.retain(|one| {
            config::POLLED_SOURCES.contains(&&*one.source)
                && RejectionCode::ALL.iter().any(|code| code.word() == one.code)
        });
        for one in &mut rejected {
            one.reason = printable(&one.reason).chars().take(REASON_CHARACTERS_MAX).collect();
        }
        known.insert(poller, PollerReport { applied, rejected, seen: now });
        true
    }

    /// The latest report of a poller.
    pub(crate) fn of(&self, poller: &str) -> Option<PollerReport> {
        self.known.lock().get(&DeviceId::new(poller).ok()?).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rejections_of_sources_of_pollers_are_remembered() {
        let rejection = |source: &str, code: &str| PollerRejection {
            change: 1,
            source: source.to_owned(),
            code: code.to_owned(),
            reason: "x\u{1b}".repeat(REASON_CHARACTERS_MAX),
            until: None,
        };
        let all = [("snmp", "not_allowed"), ("snmp", "other"), ("cpu", "not_allowed")];
        let all = all.map(|(source, code)| rejection(source, code));
        let (reports, name) = (PollerReports::default(), DeviceId::new("one").unwrap());
        reports.met(name, (7, all.to_vec()), Timestamp(0));
        let report = reports.of("one").unwrap();
        assert_eq!((report.applied, report.rejected.len()), (7, 1));
        assert_eq!(report.rejected[0].reason, "x ".repeat(REASON_CHARACTERS_MAX / 2));
    }

    #[test]
    fn a_poller_that_reports_is_not_displaced() {
        let reports = PollerReports::default();
        let name = |number: usize| DeviceId::new(&format!("p{number}")).unwrap();
        for number in 0..POLLERS_MAX {
            reports.met(name(number), (1, Vec::new()), Timestamp(0));
        }
        reports.met(name(0), (2, Vec::new()), Timestamp(SILENT_US - 1));
        reports.met(name(POLLERS_MAX), (1, Vec::new()), Timestamp(SILENT_US - 1));
        assert_eq!((reports.of("p1000"), reports.not_remembered.get()), (None, 1));
        reports.met(name(POLLERS_MAX), (1, Vec::new()), Timestamp(SILENT_US));
        assert!(reports.of("p1000").is_some() && reports.of("p1").is_none());
        assert_eq!(reports.of("p0").map(|report| report.applied), Some(2));
    }
}
