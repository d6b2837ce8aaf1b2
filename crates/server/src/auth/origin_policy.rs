//! Checks which devices an agent's token or certificate may report.
//!
//! A token with an origin belongs to a node: it may report only the device with that name. A token without
//! an origin may also belong to a poller of devices without an agent. It may report node samples of any
//! device, but jobs only on the batch's own device. A stolen node token can therefore falsify data of that
//! node, but of no job elsewhere.
//!
//! The input of Colmet's messages reports jobs of one cluster on any device. It names neither users nor other devices.

use model::{ClusterId, JobEvent, Origin, SeriesEntry};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use wire::Decoded;

/// A sample with this label also appears under the name of another device.
pub(crate) const ALIAS: &str = "_device_alias";
/// Origins with remembered tables.
const ORIGINS_MAX: usize = 100_000;
/// Remembered tables per origin.
const TABLES_MAX: usize = 8;

/// Devices that a token may report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReportScope {
    /// Node samples of any device, and everything of the origin's own device.
    AnyDevice,
    /// Everything of the origin's own device only.
    OwnDevice,
    /// Node samples and jobs of this cluster, of any device.
    JobsOf(ClusterId),
}

/// Checks batches, and remembers the series tables that passed, so that each is checked once.
#[derive(Debug, Default)]
pub(crate) struct OriginPolicy {
    /// Keyed hash: without the key, an attacker cannot craft a table that collides with a checked one.
    hasher: RandomState,
    passed: Mutex<HashMap<Origin, Vec<(u64, ReportScope)>>>,
}

impl OriginPolicy {
    /// Checks that a batch reports only permitted devices; otherwise returns the first violation.
    pub(crate) fn check(&self, batch: &Decoded, scope: &ReportScope) -> Result<(), String> {
        let own = device_of(&batch.origin);
        let beyond = |event: &&JobEvent| !may_report_job(event, own, scope);
        if let Some(event) = batch.jobs.iter().find(beyond) {
            return Err(rejection(own, &format!("job {} on {}", event.key, event.device)));
        }
        let gap = batch.gaps.iter().find(|gap| gap.device.as_str() != own);
        if let Some(gap) = gap.filter(|_| *scope == ReportScope::OwnDevice) {
            return Err(rejection(own, &format!("a gap of {}", gap.device)));
        }
        let hash = self.hasher.hash_one(batch.table_bytes());
        if self.has_passed(&batch.origin, hash, scope) {
            return Ok(());
        }
        let table = batch.table().map_err(|error| error.to_string())?;
        let beyond = |entry: &&SeriesEntry| !may_report(entry, own, scope);
        if let Some(entry) = table.entries.iter().find(beyond) {
            let (metric, device) = (&entry.metric.name, &entry.device);
            let job = entry.job.as_ref().map(|job| format!(" for job {job}")).unwrap_or_default();
            return Err(rejection(own, &format!("{metric} of {device}{job}")));
        }
        self.remember(&batch.origin, hash, scope);
        Ok(())
    }

    fn has_passed(&self, origin: &Origin, hash: u64, scope: &ReportScope) -> bool {
        let passed = self.passed.lock();
        let tables = passed.get(origin).map(Vec::as_slice).unwrap_or_default();
        tables.iter().any(|(known, as_that)| *known == hash && as_that.implies(scope))
    }

    fn remember(&self, origin: &Origin, hash: u64, scope: &ReportScope) {
        let mut passed = self.passed.lock();
        if passed.len() >= ORIGINS_MAX && !passed.contains_key(origin) {
            passed.clear();
        }
        let tables = passed.entry(origin.clone()).or_default();
        if tables.len() >= TABLES_MAX {
            tables.remove(0);
        }
        tables.push((hash, scope.clone()));
    }
}

impl ReportScope {
    /// Whether a table within this scope is within the other one, too.
    fn implies(&self, other: &Self) -> bool {
        self == other || (*self == Self::OwnDevice && *other == Self::AnyDevice)
    }
}

fn may_report(entry: &SeriesEntry, own: &str, scope: &ReportScope) -> bool {
    if let ReportScope::JobsOf(cluster) = scope {
        let is_own = entry.job.as_ref().is_none_or(|job| job.cluster == *cluster);
        return is_own && entry.labels.get(ALIAS).is_none();
    }
    if entry.device.as_str() == own {
        let alias = entry.labels.get(ALIAS).filter(|_| *scope == ReportScope::OwnDevice);
        return alias.is_none_or(|alias| alias == own);
    }
    *scope == ReportScope::AnyDevice && entry.job.is_none()
}

fn may_report_job(event: &JobEvent, own: &str, scope: &ReportScope) -> bool {
    let ReportScope::JobsOf(cluster) = scope else { return event.device.as_str() == own };
    event.key.cluster == *cluster
        && event.user.is_none()
        && event.uid.is_none()
        && event.monitor.is_none()
        && event.oom_kills.is_empty()
}

/// The device named by an origin, or by the run in it.
fn device_of(origin: &Origin) -> &str {
    origin.as_run().map_or(origin.as_str(), |(device, _)| device)
}

fn rejection(own: &str, what: &str) -> String {
    format!("this token or certificate permits only data of {own}, not of {what}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::ingest::{batch, frame};
    use model::{Batch, ClusterId, DeviceId, JobId, JobKey, Labels, SeriesTable};
    use std::sync::Arc;
    use wire::{Decoder, Frames};

    fn decoded(batch: &Batch) -> Decoded {
        let bytes = frame(batch);
        Decoder::default().decode(&Frames::of(&bytes).next().unwrap().unwrap()).unwrap()
    }

    /// A batch of the origin `n1` with one series.
    fn of(device: &str, job: bool, alias: Option<&str>) -> Decoded {
        let mut batch = batch("n1", 0);
        let mut entry = batch.table.entries[0].clone();
        entry.device = DeviceId::new(device).unwrap();
        let key = JobKey { cluster: ClusterId::local(), id: JobId::new(7).unwrap() };
        entry.job = job.then_some(key);
        entry.labels = Labels::new(alias.map(|alias| (ALIAS, alias))).unwrap();
        batch.table = Arc::new(SeriesTable { entries: vec![entry] });
        decoded(&batch)
    }

    #[test]
    fn a_nodes_token_reports_its_node_alone_and_a_pollers_token_no_job_elsewhere() {
        use ReportScope::{AnyDevice, OwnDevice};
        let looked = OriginPolicy::default();
        // Two rounds: accepted tables are remembered, and rejected ones are rejected again.
        for _ in 0..2 {
            for (batch, own, any) in [
                (of("n1", false, None), true, true),
                (of("n1", true, None), true, true),
                (of("n1", false, Some("n1")), true, true),
                (of("n1", false, Some("n2")), false, true),
                (of("n2", false, None), false, true),
                (of("n2", true, None), false, false),
            ] {
                let table = batch.table().unwrap();
                assert_eq!(looked.check(&batch, &AnyDevice).is_ok(), any, "{table:?}");
                assert_eq!(looked.check(&batch, &OwnDevice).is_ok(), own, "{table:?}");
            }
        }
    }

    #[test]
    fn an_input_reports_jobs_of_its_cluster_without_users_and_no_alias() {
        let [local, oar] = [ClusterId::local(), ClusterId::new("oar").unwrap()];
        let (looked, scope) = (OriginPolicy::default(), ReportScope::JobsOf(local.clone()));
        // Two rounds: what passed with one cluster does not pass with another.
        for _ in 0..2 {
            for (batch, is_ok) in [
                (of("n1", false, None), true),
                (of("n2", true, None), true),
                (of("n2", false, Some("n1")), false),
                (of("n1", false, Some("n1")), false),
            ] {
                assert_eq!(looked.check(&batch, &scope).is_ok(), is_ok);
            }
            let other = looked.check(&of("n2", true, None), &ReportScope::JobsOf(oar.clone()));
            assert!(other.is_err());
        }
        let event = JobEvent {
            key: JobKey { cluster: oar.clone(), id: JobId::new(7).unwrap() },
            display_id: "7".into(),
            device: DeviceId::new("n2").unwrap(),
            user: None,
            uid: None,
            start: model::Timestamp(1),
            stop: None,
            monitor: None,
            oom_kills: Vec::new(),
        };
        let passes = |event: &JobEvent, cluster: &ClusterId| {
            let batch =
                Batch { jobs: vec![event.clone()], ..batch("poller-colmet-oar/group-0", 0) };
            let scope = ReportScope::JobsOf(cluster.clone());
            OriginPolicy::default().check(&decoded(&batch), &scope).is_ok()
        };
        assert!(passes(&event, &oar) && !passes(&event, &local));
        for wrong in [
            JobEvent { user: Some("alice".into()), ..event.clone() },
            JobEvent { uid: Some(1000), ..event.clone() },
            JobEvent { monitor: Some("".into()), ..event.clone() },
        ] {
            assert!(!passes(&wrong, &oar), "{wrong:?}");
        }
    }

    #[test]
    fn only_so_many_tables_are_remembered() {
        let looked = OriginPolicy::default();
        let origin = Origin::new("n1").unwrap();
        for hash in 0..100 {
            looked.remember(&origin, hash, &ReportScope::OwnDevice);
        }
        assert_eq!(looked.passed.lock()[&origin].len(), TABLES_MAX);
        assert!(looked.has_passed(&origin, 99, &ReportScope::AnyDevice));
        assert!(!looked.has_passed(&origin, 1, &ReportScope::AnyDevice));
    }
}
