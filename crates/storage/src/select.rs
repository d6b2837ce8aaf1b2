//! Selectors of series.

use model::{DeviceId, JobKey, Labels, Series, Timestamp};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// Selects the series of a query. The default selects all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// Only of these devices; `None`: of any.
    pub devices: Option<BTreeSet<DeviceId>>,
    /// Only of these metrics; `None`: of any.
    pub metrics: Option<BTreeSet<Arc<str>>>,
    /// By job attribution.
    pub job: JobSelector,
    /// All of these must match.
    pub labels: Vec<LabelMatch>,
}

/// Selects by job attribution.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum JobSelector {
    /// Any job, or none.
    #[default]
    Any,
    /// Not attributed to a job: the device as a whole.
    None,
    /// Any job.
    Some,
    /// This one.
    Is(JobKey),
    /// This one or none: never another job of the same device.
    NoneOrIs(JobKey),
    /// One of these.
    OneOf(BTreeSet<JobKey>),
}

/// A condition on a series' labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabelMatch {
    /// The label has this value.
    Is {
        /// The label's key.
        key: String,
        /// Its value.
        value: String,
    },
    /// The label is missing or has another value.
    IsNot {
        /// The label's key.
        key: String,
        /// The excluded value.
        value: String,
    },
    /// The label is present.
    Present(String),
    /// The label is missing.
    Absent(String),
    /// Exactly these labels.
    Exactly(Labels),
}

/// A condition on a series in an interval (first and last instant) beyond a [`Selector`], such as access control.
pub type SeriesCondition = dyn Fn(&Series, (Timestamp, Timestamp)) -> bool + Send + Sync;

/// A [`SeriesCondition`] that scans apply before they read a sample.
#[derive(Clone)]
pub struct SeriesFilter(pub Arc<SeriesCondition>);

impl fmt::Debug for SeriesFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SeriesFilter")
    }
}

impl Selector {
    /// This series alone.
    pub fn of(series: &Series) -> Self {
        Self {
            devices: Some(BTreeSet::from([series.device.clone()])),
            metrics: Some(BTreeSet::from([Arc::clone(&series.metric)])),
            job: series.job.clone().map_or(JobSelector::None, JobSelector::Is),
            labels: vec![LabelMatch::Exactly(series.labels.clone())],
        }
    }

    /// Whether it selects the series.
    pub fn matches(&self, series: &Series) -> bool {
        self.devices.as_ref().is_none_or(|devices| devices.contains(&series.device))
            && self.metrics.as_ref().is_none_or(|metrics| metrics.contains(&series.metric))
            && self.job.matches(series.job.as_ref())
            && self.labels.iter().all(|label| label.matches(&series.labels))
    }
}

impl JobSelector {
    /// Whether it selects a series of this job.
    pub fn matches(&self, job: Option<&JobKey>) -> bool {
        match self {
            Self::Any => true,
            Self::None => job.is_none(),
            Self::Some => job.is_some(),
            Self::Is(key) => job == Some(key),
            Self::NoneOrIs(key) => job.is_none_or(|job| job == key),
            Self::OneOf(keys) => job.is_some_and(|job| keys.contains(job)),
        }
    }
}

impl LabelMatch {
    /// Whether these labels match.
    pub fn matches(&self, labels: &Labels) -> bool {
        match self {
            Self::Is { key, value } => labels.get(key).as_ref() == Some(value),
            Self::IsNot { key, value } => labels.get(key).as_ref() != Some(value),
            Self::Present(key) => labels.has(key),
            Self::Absent(key) => !labels.has(key),
            Self::Exactly(exact) => labels == exact,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{ClusterId, JobId};

    fn series(job: Option<i64>, labels: &[(&str, &str)]) -> Series {
        let key = |id| JobKey { cluster: ClusterId::local(), id: JobId::new(id).unwrap() };
        Series {
            device: DeviceId::new("n1").unwrap(),
            metric: Arc::from("load_1m"),
            job: job.map(key),
            labels: Labels::new(labels.iter().copied()).unwrap(),
        }
    }

    #[test]
    fn every_part_must_hold() {
        let s = series(None, &[("cpu", "0")]);
        assert!(Selector::default().matches(&s));
        let devices = |name: &str| Some(BTreeSet::from([DeviceId::new(name).unwrap()]));
        assert!(Selector { devices: devices("n1"), ..Selector::default() }.matches(&s));
        assert!(!Selector { devices: devices("n2"), ..Selector::default() }.matches(&s));
        let metrics = |name: &str| Some(BTreeSet::from([Arc::from(name)]));
        assert!(Selector { metrics: metrics("load_1m"), ..Selector::default() }.matches(&s));
        assert!(!Selector { metrics: metrics("load_5m"), ..Selector::default() }.matches(&s));
    }

    #[test]
    fn a_job_and_its_node_but_no_other_job() {
        let JobSelector::Is(key) = JobSelector::Is(series(Some(7), &[]).job.unwrap()) else {
            unreachable!()
        };
        let rows = [series(None, &[]), series(Some(7), &[]), series(Some(8), &[])];
        let of = |job: JobSelector| rows.each_ref().map(|s| job.matches(s.job.as_ref()));
        assert_eq!(of(JobSelector::Any), [true, true, true]);
        assert_eq!(of(JobSelector::None), [true, false, false]);
        assert_eq!(of(JobSelector::Some), [false, true, true]);
        assert_eq!(of(JobSelector::Is(key.clone())), [false, true, false]);
        assert_eq!(of(JobSelector::NoneOrIs(key.clone())), [true, true, false]);
        assert_eq!(of(JobSelector::OneOf(BTreeSet::from([key]))), [false, true, false]);
    }

    #[test]
    fn labels() {
        let s = series(None, &[("cpu", "0")]);
        let (key, value) = ("cpu".to_owned(), "0".to_owned());
        let other = "1".to_owned();
        assert!(LabelMatch::Is { key: key.clone(), value: value.clone() }.matches(&s.labels));
        assert!(!LabelMatch::Is { key: key.clone(), value: other.clone() }.matches(&s.labels));
        assert!(!LabelMatch::IsNot { key: key.clone(), value }.matches(&s.labels));
        assert!(LabelMatch::IsNot { key: key.clone(), value: other }.matches(&s.labels));
        assert!(LabelMatch::Present(key.clone()).matches(&s.labels));
        assert!(!LabelMatch::Absent(key).matches(&s.labels));
        assert!(LabelMatch::Absent("gpu".to_owned()).matches(&s.labels));
        assert!(LabelMatch::Exactly(s.labels.clone()).matches(&s.labels));
        assert!(!LabelMatch::Exactly(Labels::default()).matches(&s.labels));
    }
}
