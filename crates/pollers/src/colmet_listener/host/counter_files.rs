//! The files that name a host's counters: `mapping_dir/HOST/RAPL_mapping.<time>.csv` and those of perfhw and temperature.

use colmet::backends::{Backend, PERFHW, RAPL, TEMPERATURE};
use colmet::counter_names::CounterNames;
use model::{DeviceId, printable};
use std::path::{Path, PathBuf};

/// Bytes of a file: Colmet's have at most 24 lines.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// Files of a host that are looked at. Colmet writes one of each at every start.
const FILES_MAX: usize = 4096;
/// The beginnings of the names of files, and the backends that they name counters of.
const KINDS: [(&str, &Backend); 3] = [
    ("RAPL_mapping.", &RAPL),
    ("perfhw_mapping.", &PERFHW),
    ("temperature_mapping.", &TEMPERATURE),
];

/// The names of a host's counters, of each backend that has any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::colmet_listener) struct HostCounters(Vec<(&'static Backend, CounterNames)>);

impl HostCounters {
    /// Reads the newest valid file of each kind. A wrong file is logged and not used.
    pub(in crate::colmet_listener) fn read(dir: Option<&Path>, host: &DeviceId) -> Self {
        let Some(folder) = dir.map(|dir| dir.join(host.as_str())) else { return Self::default() };
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Self::default(),
            Err(error) => {
                log::warn!("cannot read {}: {error}", folder.display());
                return Self::default();
            }
        };
        let paths: Vec<PathBuf> =
            entries.take(FILES_MAX).filter_map(|entry| Some(entry.ok()?.path())).collect();
        let names = KINDS.into_iter().filter_map(|(begin, backend)| {
            let mut files: Vec<(f64, &PathBuf)> =
                paths.iter().filter_map(|path| Some((time(path, begin)?, path))).collect();
            files.sort_by(|(one, _), (other, _)| other.total_cmp(one));
            Some((backend, files.into_iter().find_map(|(_, path)| names(backend, path))?))
        });
        Self(names.collect())
    }

    /// The names of a backend's counters; `None` if no file has any.
    pub(in crate::colmet_listener) fn of(&self, backend: &Backend) -> Option<&CounterNames> {
        self.0.iter().find(|(of, _)| *of == backend).map(|(_, names)| names)
    }
}

/// The time in a file's name, if it is of the kind.
fn time(path: &Path, begin: &str) -> Option<f64> {
    let name = path.file_name()?.to_str()?;
    let time: f64 = name.strip_prefix(begin)?.strip_suffix(".csv")?.parse().ok()?;
    time.is_finite().then_some(time)
}

fn names(backend: &'static Backend, path: &Path) -> Option<CounterNames> {
    let text = config::read_small(path, FILE_BYTES_MAX).and_then(config::as_text);
    let names = text
        .map_err(|error| error.to_string())
        .and_then(|text| CounterNames::read(backend, &text).map_err(|error| error.to_string()));
    let log = |why: &String| {
        log::warn!("{} is not used: {}", printable(&path.display().to_string()), printable(why));
    };
    names.inspect_err(log).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use colmet::counter_names::Counter;

    #[test]
    fn the_newest_valid_file_counts() {
        let dir = tempfile::tempdir().unwrap();
        let host = DeviceId::new("node-1").unwrap();
        let read = || HostCounters::read(Some(dir.path()), &host);
        assert_eq!(read(), HostCounters::default(), "no folder");
        let folder = dir.path().join("node-1");
        std::fs::create_dir(&folder).unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        write("perfhw_mapping.1700000000.5.csv", "counter1,instructions\n");
        write("perfhw_mapping.999999999.9.csv", "counter1,cache_misses\n");
        write("perfhw_mapping.csv", "counter1,page_faults\n");
        write("temperature_mapping.1.csv", "counter_1, acpitz_0\n");
        let counter = |backend: &'static Backend| {
            read().of(backend).and_then(|names| names.get(backend, &backend.columns[0])).cloned()
        };
        assert_eq!(counter(&PERFHW), Some(Counter::Event(1)), "instructions");
        write("perfhw_mapping.1800000000.0.csv", "counter1,page_faults\nwrong\n");
        assert_eq!(counter(&PERFHW), Some(Counter::Event(1)), "the newest one is wrong");
        write("perfhw_mapping.1800000001.0.csv", "counter1,page_faults\n");
        assert_eq!(counter(&PERFHW), Some(Counter::Event(19)));
        assert_eq!(counter(&TEMPERATURE), Some(Counter::Temperature(0, "acpitz".into())));
        assert_eq!(
            (counter(&RAPL), HostCounters::read(None, &host)),
            (None, HostCounters::default())
        );
    }
}
