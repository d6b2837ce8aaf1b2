//! Latches of value rules. A latch is set when a rule fires on a series, and released when the series
//! recovers. A restarted server thus does not report a lasting condition as new.

use crate::common::sql_parts::{device, key};
use crate::{Registry, RegistryError};
use model::{Labels, Series, Timestamp};
use rusqlite::{TransactionBehavior, params};
use std::sync::Arc;

/// Maximum number of stored latches. The most recent ones stay. A latch takes about 150 bytes.
pub const LATCHES_MAX: usize = 100_000;

/// The table. A node series has an empty `cluster` and the `job` 0.
pub(crate) const TABLES: &str = "
CREATE TABLE latches (
    rule TEXT NOT NULL,
    digest INTEGER NOT NULL,
    device TEXT NOT NULL,
    metric TEXT NOT NULL,
    labels TEXT NOT NULL,
    cluster TEXT NOT NULL,
    job INTEGER NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (rule, digest, device, metric, labels, cluster, job)
) STRICT, WITHOUT ROWID;
CREATE INDEX latches_at ON latches (at);
";

/// A rule that fired on a series.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Latch {
    /// The rule's name.
    pub rule: Box<str>,
    /// Digest of the rule's condition. A changed rule is a different rule.
    pub digest: i64,
    /// The series.
    pub series: Arc<Series>,
}

impl Registry {
    /// Sets latches of rules that fired, and releases those of series that recovered. On disk when this
    /// returns.
    ///
    /// # Errors
    /// SQLite fails. Nothing is stored then.
    pub fn note_latches(
        &self,
        latches: &[(Latch, bool)],
        now: Timestamp,
    ) -> Result<(), RegistryError> {
        let mut writer = self.writer.lock();
        let change = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for (Latch { rule, digest, series }, is_latched) in latches {
            let Series { device, metric, job, labels } = &**series;
            let cluster = job.as_ref().map_or("", |job| job.cluster.as_str());
            let number = job.as_ref().map_or(0, |job| job.id.get());
            let (device, metric, labels) = (device.as_str(), &**metric, labels.as_str());
            if *is_latched {
                change
                    .prepare_cached(
                        "INSERT OR REPLACE INTO latches VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                    )?
                    .execute(params![
                        rule, digest, device, metric, labels, cluster, number, now.0
                    ])?;
            } else {
                change
                    .prepare_cached(
                        "DELETE FROM latches WHERE rule = ?1 AND digest = ?2 AND device = ?3
                         AND metric = ?4 AND labels = ?5 AND cluster = ?6 AND job = ?7",
                    )?
                    .execute(params![rule, digest, device, metric, labels, cluster, number])?;
            }
        }
        let most = i64::try_from(LATCHES_MAX).unwrap_or(i64::MAX);
        change
            .prepare_cached(
                "DELETE FROM latches WHERE (rule, digest, device, metric, labels, cluster, job) IN
                     (SELECT rule, digest, device, metric, labels, cluster, job FROM latches
                      ORDER BY at DESC LIMIT -1 OFFSET ?1)",
            )?
            .execute([most])?;
        Ok(change.commit()?)
    }

    /// Returns the latches that are set. It deletes the latches of ended jobs.
    ///
    /// # Errors
    /// SQLite fails, or a stored row is not a valid series.
    pub fn latches(&self) -> Result<Vec<Latch>, RegistryError> {
        let writer = self.writer.lock();
        writer.execute(
            "DELETE FROM latches WHERE cluster <> '' AND NOT EXISTS (SELECT 1 FROM runs r
                 WHERE r.cluster = latches.cluster AND r.id = latches.job AND r.stop IS NULL)",
            [],
        )?;
        let mut find = writer
            .prepare("SELECT rule, digest, device, metric, labels, cluster, job FROM latches")?;
        let mut rows = find.query([])?;
        let mut latches = Vec::new();
        while let Some(row) = rows.next()? {
            let (metric, labels): (Box<str>, String) = (row.get(3)?, row.get(4)?);
            let labels = Labels::from_canonical(&labels);
            let labels = labels.map_err(|error| RegistryError::Damaged(error.to_string()))?;
            let cluster: String = row.get(5)?;
            let job = (!cluster.is_empty()).then(|| key(cluster, row.get(6)?)).transpose()?;
            let series =
                Series { device: device(row.get(2)?)?, metric: metric.into(), job, labels };
            let (rule, digest) = (row.get(0)?, row.get(1)?);
            latches.push(Latch { rule, digest, series: Arc::new(series) });
        }
        Ok(latches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Users};
    use model::{ClusterId, DeviceId, JobId, JobKey};

    fn latch(rule: &str, digest: i64, node: &str, job: Option<i64>) -> Latch {
        let job = job.and_then(JobId::new).map(|id| JobKey { cluster: ClusterId::local(), id });
        let series = Series {
            device: DeviceId::new(node).unwrap(),
            metric: "load_1m".into(),
            job,
            labels: Labels::new([("cpu", "0"), ("x", "a \"b\"")]).unwrap(),
        };
        Latch { rule: rule.into(), digest, series: Arc::new(series) }
    }

    #[test]
    fn what_fired_is_known_after_a_restart_until_it_is_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jobs.sqlite");
        let open = || Registry::open(&path, Limits::default(), Users::default).unwrap();
        let all = [
            latch("busy", -4, "n1", Some(7)),
            latch("hot", 3, "n1", None),
            latch("hot", 3, "n1", Some(7)),
            latch("hot", 4, "n2", None),
        ];
        let set = |is: bool| all.clone().map(|one| (one, is));
        let registry = open();
        let of_job = |stop| model::JobEvent {
            key: JobKey { cluster: ClusterId::local(), id: JobId::new(7).unwrap() },
            display_id: "7".into(),
            device: DeviceId::new("n1").unwrap(),
            user: None,
            uid: Some(1000),
            start: Timestamp::YEAR_2000,
            stop,
            monitor: None,
            oom_kills: Vec::new(),
        };
        registry.apply(&[of_job(None)], Timestamp::YEAR_2000).unwrap();
        registry.note_latches(&set(true), Timestamp(5)).unwrap();
        drop(registry);
        let registry = open();
        assert_eq!(registry.latches().unwrap(), all);
        let [busy, hot, hot_job, other] = set(false);
        registry.note_latches(&[hot, hot_job], Timestamp(6)).unwrap();
        assert_eq!(registry.latches().unwrap(), [busy.0, other.0.clone()]);
        registry.apply(&[of_job(Some(Timestamp::YEAR_2000))], Timestamp::YEAR_2000).unwrap();
        assert_eq!(registry.latches().unwrap(), [other.0], "the job of one of them ended");
        // The table keeps the most recent ones.
        let many: Vec<_> =
            (0..LATCHES_MAX).map(|n| (latch("hot", 3, &format!("x{n}"), None), true)).collect();
        registry.note_latches(&many, Timestamp(7)).unwrap();
        let kept = registry.latches().unwrap();
        assert_eq!(kept.len(), LATCHES_MAX);
        assert!(kept.iter().all(|one| one.series.device.as_str().starts_with('x')));
    }
}
