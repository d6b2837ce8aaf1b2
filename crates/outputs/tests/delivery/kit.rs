//! A store, outputs over it, and what their files have.

use config::{ConfigFile, ConfigInputs, OutputConfig};
use conformance::Outcome;
use conformance::of_storage::append;
use conformance::{S, Sender, Spec, T0};
use model::Timestamp;
use outputs::{OutputState, Outputs};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use storage::Storage;
use store::{Settings, Store};
use tempfile::TempDir;

/// A data folder whose server is restarted.
pub(crate) struct Site {
    pub(crate) dir: TempDir,
    pub(crate) store: Arc<dyn Storage>,
    pub(crate) outputs: Outputs,
    pub(crate) sender: Sender,
    /// Seconds after [`T0`].
    pub(crate) clock: Arc<AtomicI64>,
}

pub(crate) fn open(dir: &Path, seconds: &Arc<AtomicI64>) -> (Arc<dyn Storage>, Outputs) {
    let seconds = Arc::clone(seconds);
    let clock: storage::Clock =
        Arc::new(move || Timestamp(T0 + seconds.load(Ordering::Relaxed) * S));
    let (store, _) =
        Store::open(&dir.join("samples"), Settings::default(), Arc::clone(&clock)).unwrap();
    let store: Arc<dyn Storage> = Arc::new(store);
    let outputs = Outputs::new(Arc::clone(&store), dir.join("outputs"), clock);
    (store, outputs)
}

impl Site {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(AtomicI64::new(400));
        let (store, outputs) = open(dir.path(), &clock);
        Self { dir, store, outputs, sender: Sender::new("n1", 1), clock }
    }

    /// Ends outputs and store, and opens them again.
    pub(crate) fn restart(self) -> Self {
        let Self { dir, store, outputs, sender, clock } = self;
        outputs.stop(Duration::from_secs(5));
        drop(outputs);
        drop(store);
        let (store, outputs) = open(dir.path(), &clock);
        Self { dir, store, outputs, sender, clock }
    }

    /// Stores samples of series at second after [`T0`].
    pub(crate) fn store(&mut self, samples: &[(Spec, i64, f64)]) {
        let samples: Vec<_> =
            samples.iter().map(|(spec, at, value)| (spec.clone(), T0 + at * S, *value)).collect();
        let batch = self.sender.batch(&samples);
        let outcomes = append(&*self.store, vec![(batch, Timestamp(T0 + 50 * S))]);
        assert_eq!(outcomes, [Outcome::STORED]);
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Outputs as the text of a configuration file has them.
    pub(crate) fn configs(&self, text: &str) -> Vec<OutputConfig> {
        let file = self.path("server.toml");
        std::fs::write(&file, text).unwrap();
        let given = ConfigInputs {
            file: ConfigFile::Given(file),
            environment: &|_| None,
            flags: Vec::new(),
        };
        config::load_server(&given, &outputs::kinds()).unwrap().config.outputs
    }

    pub(crate) fn apply(&self, text: &str) {
        self.outputs.apply(&self.configs(text));
    }

    /// Waits until every output has delivered everything.
    pub(crate) fn settle(&self) {
        for _ in 0..2000 {
            let status = self.outputs.status();
            if status.iter().all(|one| one.behind == Some(0) && one.state == OutputState::Working) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("{:?}", self.outputs.status());
    }

    /// Waits until an output waits, and returns why.
    pub(crate) fn waits(&self, name: &str) -> String {
        for _ in 0..2000 {
            let status = self.outputs.status();
            let of = status.iter().find(|one| &*one.name == name).unwrap();
            if let OutputState::Waiting { why, .. } = &of.state {
                return why.clone();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("it works");
    }
}

/// The lines of a file.
pub(crate) fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// How often each sample is in some files: `device/metric@second`.
pub(crate) fn counted(paths: &[PathBuf]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in paths.iter().flat_map(|path| lines(path)) {
        if let Some(at) = line["time"].as_f64() {
            let text = |key: &str| line[key].as_str().unwrap().to_owned();
            let key = format!("{}/{}@{}", text("device"), text("metric"), at - (T0 / S) as f64);
            *counts.entry(key).or_insert(0) += 1;
        }
    }
    counts
}

/// One of each of these.
pub(crate) fn once<'a>(keys: impl IntoIterator<Item = &'a str>) -> BTreeMap<String, usize> {
    keys.into_iter().map(|key| (key.to_owned(), 1)).collect()
}
