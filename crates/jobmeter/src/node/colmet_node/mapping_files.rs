//! The files in which a node states what its numbered counters are, as Colmet's node writes them into its working directory.

use colmet::backends::{Backend, Column, EVENTS, PERFHW, RAPL, TEMPERATURE};
use colmet::counter_names::{Counter, CounterNames, Zone};
use model::{SeriesTable, Timestamp};
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::Path;

/// Packages in a record of RAPL.
const PACKAGES: u8 = 4;
/// Zones in a record of temperatures.
const ZONES: u32 = 6;

/// Writes the files once it is known what the node has.
pub(super) struct MappingFiles {
    backends: Vec<&'static Backend>,
    events: Vec<&'static Column>,
}

impl MappingFiles {
    pub(super) fn new(backends: Vec<&'static Backend>, events: Vec<&'static Column>) -> Self {
        Self { backends, events }
    }

    /// Writes the files of the enabled backends. The series of the first samples state what the node has.
    ///
    /// # Errors
    /// A file cannot be created: also if it exists, because others may have made it.
    pub(super) fn write(self, table: &SeriesTable, dir: &Path, now: Timestamp) -> io::Result<()> {
        let (seconds, micros) = (now.0.div_euclid(1_000_000), now.0.rem_euclid(1_000_000));
        let files: [(&'static Backend, &str, Vec<Counter>); 3] = [
            (&RAPL, "RAPL", energies(table)),
            (&PERFHW, "perfhw", self.events.iter().map(|event| event_counter(event)).collect()),
            (&TEMPERATURE, "temperature", temperatures(table)),
        ];
        for (backend, word, counters) in files {
            if !self.backends.contains(&backend) {
                continue;
            }
            let path = dir.join(format!("{word}_mapping.{seconds}.{micros:06}.csv"));
            let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
            file.write_all(CounterNames::of(backend, counters).text().as_bytes())?;
        }
        Ok(())
    }
}

fn event_counter(event: &Column) -> Counter {
    EVENTS.position(event.row.theirs).map_or(Counter::Nothing, Counter::Event)
}

/// Whether the node has a series of this metric with this label; the value of another label of it.
fn label(table: &SeriesTable, metric: &str, own: (&str, &str), other: &str) -> Option<String> {
    let is_it = |entry: &&model::SeriesEntry| {
        entry.metric.name == metric && entry.labels.get(own.0).as_deref() == Some(own.1)
    };
    let entry = table.entries.iter().find(is_it)?;
    Some(entry.labels.get(other).unwrap_or_default())
}

/// Energies have odd numbers. Ranges, between them, are not sent: counters of jobmeter do not wrap.
fn energies(table: &SeriesTable) -> Vec<Counter> {
    let mut counters = Vec::new();
    for package in 0..PACKAGES {
        for zone in [Zone::Package, Zone::Core, Zone::Dram] {
            let package = package.to_string();
            let is_there = label(table, zone.metric(), ("package", &package), "package").is_some();
            counters.push(if is_there {
                Counter::Energy(zone, format!("package-{package}").into())
            } else {
                Counter::Nothing
            });
            counters.push(Counter::Nothing);
        }
    }
    counters
}

fn temperatures(table: &SeriesTable) -> Vec<Counter> {
    let counter = |zone: u32| {
        let number = zone.to_string();
        let kind = label(table, "thermal_temperature_celsius", ("zone", &number), "type");
        kind.map_or(Counter::Nothing, |kind| Counter::Temperature(zone, kind.into()))
    };
    (0..ZONES).map(counter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{DeviceId, Labels, Metric, SeriesEntry};
    use std::sync::Arc;

    fn entry(metric: &str, labels: &[(&str, &str)]) -> SeriesEntry {
        SeriesEntry {
            metric: Arc::new(Metric::assumed(metric).unwrap()),
            device: DeviceId::new("n1").unwrap(),
            job: None,
            labels: Labels::new(labels.iter().copied()).unwrap(),
            start: None,
        }
    }

    #[test]
    fn the_files_name_the_counters_that_the_node_has() {
        let table = SeriesTable {
            entries: vec![
                entry("rapl_package_joules_total", &[("package", "0")]),
                entry("rapl_dram_joules_total", &[("package", "1")]),
                entry("thermal_temperature_celsius", &[("zone", "1"), ("type", "x86_pkg_temp")]),
            ],
        };
        let dir = tempfile::tempdir().unwrap();
        let event = &EVENTS.columns[EVENTS.position("cache_misses").unwrap()];
        let files = MappingFiles::new(vec![&RAPL, &PERFHW, &TEMPERATURE], vec![event]);
        files.write(&table, dir.path(), Timestamp(1_795_905_146_000_007)).unwrap();
        let read = |word: &str| {
            let name = format!("{word}_mapping.1795905146.000007.csv");
            std::fs::read_to_string(dir.path().join(name)).unwrap()
        };
        let rapl = read("RAPL");
        assert!(rapl.starts_with(
            "counter_1,energy_microjoule,package-0,zone_package\ncounter_2,no_counter,,\ncounter_3,no_counter,,\n"
        ));
        assert!(rapl.contains("counter_11,energy_microjoule,package-1,zone_dram\n"));
        assert_eq!(rapl.lines().count(), 24);
        assert!(read("perfhw").starts_with("counter1,cache_misses\ncounter2,no_counter\n"));
        assert!(
            read("temperature").starts_with("counter_1, no counter \ncounter_2, x86_pkg_temp_1\n")
        );
        let none = MappingFiles::new(Vec::new(), Vec::new());
        none.write(&table, dir.path(), Timestamp(0)).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
    }
}
