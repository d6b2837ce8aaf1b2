//! The rows of both sides in jobmeter's terms, and the series that they are compared as.

use super::columns::Columns;
use super::series::{Key, Samples};
use model::{ClusterId, DeviceId, JobId, JobKey, Labels, Series};
use std::collections::{BTreeMap, BTreeSet};

/// Most different metrics that are named as left out.
const LEFT_OUT_MAX: usize = 1000;

/// A sample of a side.
#[derive(Debug)]
pub(super) struct Row<'a> {
    pub(super) device: &'a str,
    pub(super) metric: &'a str,
    pub(super) job: Option<Job<'a>>,
    pub(super) labels: &'a BTreeMap<String, String>,
    /// Microseconds since 1970.
    pub(super) at: i64,
    pub(super) value: f64,
    /// Whether the value is the growth since the sample before.
    pub(super) grows: bool,
}

/// A job; without a cluster, it is one of the server's default cluster, or the side has numbers only.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job<'a> {
    pub(super) cluster: Option<&'a str>,
    pub(super) id: &'a str,
}

/// What both sides can have: their series are compared as the coarser one names them.
#[derive(Debug, Default)]
pub(super) struct Common {
    /// Programs with fixed values for a node or a job.
    pub(super) columns: Vec<&'static Columns>,
    /// Whether names are those of paths in Graphite.
    pub(super) are_paths: bool,
    /// Whether a side has no series of jobs.
    pub(super) has_no_jobs: bool,
    /// Whether both sides name the clusters of jobs.
    pub(super) has_clusters: bool,
    /// Only series of jobs.
    pub(super) only_jobs: bool,
    /// Only these devices, as the user wrote them.
    pub(super) devices: Option<Vec<String>>,
    /// Only these metrics.
    pub(super) metrics: Option<BTreeSet<String>>,
    /// Only this job's number.
    pub(super) job: Option<String>,
}

/// Receives the rows of a side.
#[derive(Debug)]
pub(super) struct Sink<'a> {
    common: &'a Common,
    devices: Option<BTreeSet<String>>,
    pub(super) samples: Samples,
    /// Metrics that the other side cannot have.
    pub(super) left_out: BTreeSet<String>,
}

impl Common {
    /// The name of a device as it is compared.
    pub(super) fn device(&self, name: &str) -> String {
        if !self.columns.is_empty() {
            return name.split('.').next().unwrap_or_default().to_owned();
        }
        if self.are_paths {
            let path = path(name, "m", None, &BTreeMap::new());
            return path
                .and_then(|path| Some(path.split('.').next()?.to_owned()))
                .unwrap_or_default();
        }
        name.to_owned()
    }

    /// The metrics that may be compared, if they are known: those that both programs have, and those of `--metric`.
    pub(super) fn metrics(&self) -> Option<BTreeSet<String>> {
        let columns = self
            .columns
            .iter()
            .map(|columns| columns.metrics().map(str::to_owned).collect::<BTreeSet<String>>());
        let all = columns.chain(self.metrics.clone());
        all.reduce(|a, b| a.intersection(&b).cloned().collect())
    }

    /// The series that a row is compared as. `None`: the other side cannot have it.
    fn key(&self, row: &Row<'_>) -> Option<Key> {
        let mut labels = String::new();
        for columns in &self.columns {
            let of = |name: &str| row.labels.get(name).map(String::as_str);
            let is_of_job = row.job.is_some();
            let mapped = columns.of_series(row.metric, is_of_job, &of)?;
            labels =
                mapped.label.map_or_else(String::new, |(name, value)| format!("{name}={value}"));
        }
        if self.has_no_jobs && row.job.is_some() {
            return None;
        }
        let job = row.job.map(|Job { cluster, id }| match cluster {
            Some(cluster) if self.has_clusters => format!("{cluster}:{id}"),
            _ => id.to_owned(),
        });
        if self.are_paths && self.columns.is_empty() {
            let path = path(row.device, row.metric, row.job, row.labels)?;
            let (device, metric, _, labels) = parts_of_path(&path)?;
            return Some(Key { device, metric, job, labels: words(&labels) });
        }
        if self.columns.is_empty() {
            labels = words(row.labels);
        }
        Some(Key { device: self.device(row.device), metric: row.metric.to_owned(), job, labels })
    }
}

fn words(labels: &BTreeMap<String, String>) -> String {
    let words: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    words.join(",")
}

impl<'a> Sink<'a> {
    /// A sink for the rows of one side.
    pub(super) fn new(common: &'a Common, samples: Samples) -> Self {
        let devices = common.devices.as_ref();
        let devices = devices.map(|all| all.iter().map(|name| common.device(name)).collect());
        Self { common, devices, samples, left_out: BTreeSet::new() }
    }

    /// The metrics that may be compared, if they are known.
    pub(super) fn metrics(&self) -> Option<BTreeSet<String>> {
        self.common.metrics()
    }

    /// The name of a device as it is compared.
    pub(super) fn device(&self, name: &str) -> String {
        self.common.device(name)
    }

    /// Adds a row, unless it is not selected.
    pub(super) fn add(&mut self, row: &Row<'_>) -> anyhow::Result<()> {
        let Common { metrics, job, only_jobs, .. } = self.common;
        if metrics.as_ref().is_some_and(|only| !only.contains(row.metric))
            || job.as_ref().is_some_and(|job| row.job.is_some_and(|of| of.id != *job))
            || *only_jobs && row.job.is_none()
            || !row.value.is_finite()
        {
            return Ok(());
        }
        let Some(key) = self.common.key(row) else {
            if self.left_out.len() < LEFT_OUT_MAX && !self.left_out.contains(row.metric) {
                self.left_out.insert(row.metric.to_owned());
            }
            return Ok(());
        };
        if self.devices.as_ref().is_some_and(|only| !only.contains(&key.device)) {
            return Ok(());
        }
        let cluster = row.job.and_then(|job| job.cluster).unwrap_or_default();
        let part = format!("{}\0{cluster}\0{}", row.device, words(row.labels));
        self.samples.add(key, part, row.at, row.value, row.grows)
    }
}

/// The path of a series in Graphite. A path has the job's number only, so the cluster does not matter.
fn path(
    device: &str,
    metric: &str,
    job: Option<Job<'_>>,
    labels: &BTreeMap<String, String>,
) -> Option<String> {
    let job = match job {
        Some(job) => {
            Some(JobKey { cluster: ClusterId::local(), id: JobId::new(job.id.parse().ok()?)? })
        }
        None => None,
    };
    let labels = Labels::new(labels.iter().map(|(name, value)| (&**name, &**value))).ok()?;
    let device = DeviceId::new(device).ok()?;
    Some(outputs::graphite_path(&Series { device, metric: metric.into(), job, labels }))
}

/// Device, metric, job and labels.
type PathParts = (String, String, Option<String>, BTreeMap<String, String>);

/// Device, metric, job and labels of a path without its prefix. Their texts are those of the path.
pub(super) fn parts_of_path(path: &str) -> Option<PathParts> {
    let mut parts: Vec<&str> = path.split('.').collect();
    if parts.len() < 2 {
        return None;
    }
    let rest = parts.split_off(2);
    // `job.CLUSTER.ID` are three parts, and each label two.
    let (job, labels) = match (rest.len() % 2, &rest[..]) {
        (0, all) => (None, all),
        (_, ["job", _, id, all @ ..]) => (Some((*id).to_owned()), all),
        _ => return None,
    };
    let pair = |pair: &[&str]| match pair {
        [name, value] => Some(((*name).to_owned(), (*value).to_owned())),
        _ => None,
    };
    let labels = labels.chunks(2).filter_map(pair).collect();
    let [device, metric] = parts[..] else { return None };
    Some((device.to_owned(), metric.to_owned(), job, labels))
}

#[cfg(test)]
mod tests {
    use super::super::columns::colmet;
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn row<'a>(
        metric: &'a str,
        job: Option<Job<'a>>,
        labels: &'a BTreeMap<String, String>,
    ) -> Row<'a> {
        Row { device: "n1.site", metric, job, labels, at: 0, value: 1.0, grows: false }
    }

    #[test]
    fn series_are_named_as_the_coarser_side_names_them() {
        let (oar, none) = (Job { cluster: Some("oar"), id: "7" }, BTreeMap::new());
        let text = |common: &Common, row: &Row<'_>| {
            let Key { device, metric, job, labels } = common.key(row)?;
            Some(format!("{device} {metric} {job:?} {labels}"))
        };
        let own = Common { has_clusters: true, ..Common::default() };
        let mount = labels(&[("mount", "/home")]);
        assert_eq!(
            text(&own, &row("x_bytes", Some(oar), &mount)).unwrap(),
            "n1.site x_bytes Some(\"oar:7\") mount=/home"
        );
        let columns = Common { columns: vec![colmet()], ..Common::default() };
        let package = labels(&[("package", "0")]);
        assert_eq!(
            text(&columns, &row("rapl_dram_joules_total", None, &package)).unwrap(),
            "n1 rapl_dram_joules_total None package=0"
        );
        assert_eq!(
            text(&columns, &row("lustre_reads_total", None, &mount)).unwrap(),
            "n1 lustre_reads_total None "
        );
        for (metric, job) in [("lustre_reads_total", Some(oar)), ("x_bytes", None)] {
            assert_eq!(text(&columns, &row(metric, job, &none)), None);
        }
        let paths = Common { are_paths: true, ..Common::default() };
        assert_eq!(
            text(&paths, &row("x_bytes", Some(oar), &mount)).unwrap(),
            "n1_site-4f43eeb9 x_bytes Some(\"7\") mount=_home-1bb72df1"
        );
        assert_eq!(paths.device("n1.site"), "n1_site-4f43eeb9");
        let kwollect = Common { has_no_jobs: true, ..Common::default() };
        assert_eq!(text(&kwollect, &row("x", Some(oar), &none)), None);
    }

    #[test]
    fn paths_are_read_back() {
        let of = |path: &str| {
            let (device, metric, job, labels) = parts_of_path(path)?;
            Some(format!("{device} {metric} {job:?} {}", words(&labels)))
        };
        assert_eq!(of("n1.load_1m").unwrap(), "n1 load_1m None ");
        assert_eq!(of("n1.m.job.oar.7.cpu.0").unwrap(), "n1 m Some(\"7\") cpu=0");
        assert_eq!(of("n1.m.job.7").unwrap(), "n1 m None job=7");
        assert_eq!((of("n1"), of("n1.m.a.b.c")), (None, None));
    }
}
