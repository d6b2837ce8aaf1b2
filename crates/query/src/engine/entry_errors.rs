//! Errors in the description files of pollers, as each poller reported them last.

use model::{DeviceId, Timestamp};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};

/// Time after which the errors of a poller that reports nothing are forgotten: it then shows as silent.
const KEPT_US: i64 = 60 * Timestamp::SECOND;

/// The errors that pollers report. The caller limits the number of pollers.
#[derive(Debug, Default)]
pub struct EntryErrors {
    reports: Mutex<HashMap<DeviceId, Report>>,
}

/// The errors of one poller.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    seen: Timestamp,
    pub(crate) errors: api::EntryErrors,
}

impl EntryErrors {
    /// Records the report of a poller; `None`: its errors are unchanged.
    pub fn report(&self, poller: &DeviceId, errors: Option<api::EntryErrors>, now: Timestamp) {
        let mut reports = self.reports.lock();
        match errors {
            Some(errors) if errors.count > 0 => {
                reports.retain(|_, report| report.is_current(now));
                reports.insert(poller.clone(), Report { seen: now, errors });
            }
            Some(_) => drop(reports.remove(poller)),
            None => {
                if let Some(report) = reports.get_mut(poller) {
                    report.seen = now;
                }
            }
        }
    }

    /// The errors of each poller that reports now, by name.
    pub(crate) fn current(&self, now: Timestamp) -> BTreeMap<DeviceId, Report> {
        let reports = self.reports.lock();
        let current = reports.iter().filter(|(_, report)| report.is_current(now));
        current.map(|(poller, report)| (poller.clone(), report.clone())).collect()
    }
}

impl Report {
    fn is_current(&self, now: Timestamp) -> bool {
        now.since(self.seen) < KEPT_US
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(count: u32) -> Option<api::EntryErrors> {
        Some(api::EntryErrors { count, listed: Vec::new() })
    }

    #[test]
    fn errors_remain_while_their_poller_reports() {
        let (reports, name) = (EntryErrors::default(), DeviceId::new("one").unwrap());
        let count = |at| reports.current(Timestamp(at)).values().map(|one| one.errors.count).sum();
        reports.report(&name, errors(2), Timestamp(0));
        assert_eq!((count(KEPT_US - 1), count(KEPT_US)), (2_u32, 0_u32));
        reports.report(&name, None, Timestamp(KEPT_US - 1));
        assert_eq!(count(KEPT_US), 2);
        reports.report(&name, errors(0), Timestamp(KEPT_US));
        assert_eq!(count(KEPT_US), 0);
        reports.report(&name, None, Timestamp(KEPT_US));
        assert_eq!(count(KEPT_US), 0);
    }
}
