//! Tests of the source `rapl`: zones in two interfaces, denied zones, and invalid zones.

use super::*;
use crate::reading::values::tests::{close, without_roots_rights};
use crate::{Options, PartState};
use cgroups::Jobs;
use kernel::Root;
use model::DeviceId;

/// A machine with these zones: directory, name, energy in microjoules.
struct Machine {
    dir: tempfile::TempDir,
    root: Root,
    source: Box<dyn Source>,
    sink: Sink,
    at: i64,
}

const RANGE: &str = "262143328850";

fn write(dir: &tempfile::TempDir, zone: &str, file: &str, text: &str) {
    let zone = dir.path().join(DIR).join(zone);
    std::fs::create_dir_all(&zone).unwrap();
    std::fs::write(zone.join(file), format!("{text}\n")).unwrap();
}

impl Machine {
    fn new(zones: &[(&str, &str, u64)], settings: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (zone, name, energy) in zones {
            write(&dir, zone, "name", name);
            write(&dir, zone, "max_energy_range_uj", RANGE);
            write(&dir, zone, "energy_uj", &energy.to_string());
        }
        let root = Root::recorded(dir.path()).unwrap();
        let options = Options::of(&SPEC, settings.iter().copied()).unwrap();
        let source = open(&Open { root: &root, options: &options, boot: Timestamp(0) }).unwrap();
        let sink = Sink::of_source(&SPEC, DeviceId::new("n1").unwrap());
        Self { dir, root, source, sink, at: 0 }
    }

    /// Runs a tick a minute later, so that zones are searched again. Returns the state of the part, and
    /// each sample in joules.
    fn tick(&mut self) -> (Result<(), SourceError>, Vec<(String, f64)>) {
        self.at += 60;
        let (now, jobs) = (Timestamp::from_seconds(self.at), Jobs::default());
        let cx = Context {
            root: &self.root,
            now,
            boot: Timestamp(0),
            jobs: &jobs,
            budget_us: 1,
            is_between: false,
        };
        self.sink.sealed();
        self.sink.begin(now);
        let state =
            self.source.collect(&cx, &mut self.sink).and_then(|()| match self.sink.parts() {
                [("zones", PartState::Not(error))] => Err(error.clone()),
                [("zones", PartState::Ok)] => Ok(()),
                parts => panic!("{parts:?}"),
            });
        let line = |(entry, _, value): (&model::SeriesEntry, Timestamp, f64)| {
            (format!("{}{}", entry.metric.name, entry.labels), value)
        };
        (state, self.sink.samples().map(line).collect())
    }
}

#[test]
fn registers_take_precedence_over_the_memory_interface() {
    let zones = [
        ("intel-rapl-mmio:0", "package-0", 1_000_000),
        ("intel-rapl-mmio:0:0", "dram", 2_000_000),
        ("intel-rapl:0", "package-0", 3_000_000),
    ];
    let mut machine = Machine::new(&zones, &[]);
    assert_eq!(machine.tick().0, Ok(()));
    for (zone, energy) in [
        ("intel-rapl-mmio:0", "101000000"),
        ("intel-rapl-mmio:0:0", "22000000"),
        ("intel-rapl:0", "13000000"),
    ] {
        write(&machine.dir, zone, "energy_uj", energy);
    }
    let of = |metric: &str, joules| (format!("{metric}{{\"package\": \"0\"}}"), joules);
    let both = vec![of("rapl_package_joules_total", 10.0), of("rapl_dram_joules_total", 20.0)];
    assert_eq!(machine.tick(), (Ok(()), both));
    // Without the registers, the memory interface is read.
    std::fs::remove_dir_all(machine.dir.path().join(DIR).join("intel-rapl:0")).unwrap();
    let (state, samples) = machine.tick();
    assert_eq!((state, samples.len()), (Ok(()), 2));
    assert!(samples.contains(&of("rapl_package_joules_total", 0.0)), "{samples:?}");
}

#[test]
fn missing_and_invalid_zones_are_reported_beside_others() {
    let zones = [("intel-rapl:0", "package-0", 1), ("intel-rapl:1", "package-1", 1)];
    let mut machine = Machine::new(&zones, &[("include", "package,dram,psys")]);
    write(&machine.dir, "intel-rapl:1", "max_energy_range_uj", "?");
    let (state, samples) = machine.tick();
    assert_eq!(samples.len(), 1);
    let error = state.unwrap_err().to_string();
    let lacks =
        |kind: &str| format!("absent: this machine has no energy counter of the kind `{kind}`");
    let lacks_both = format!("{}; {}", lacks("dram"), lacks("psys").replace("absent: ", ""));
    let broken = "broken: /sys/class/powercap/intel-rapl:1/max_energy_range_uj: it is not a number";
    assert_eq!(error, format!("{broken}; {lacks_both}"));
}

#[test]
fn denied_zones_are_reported_and_not_bypassed_by_the_other_interface() {
    without_roots_rights(|| {
        let zones = [
            ("intel-rapl-mmio:0", "package-0", 1),
            ("intel-rapl:0", "package-0", 1),
            ("intel-rapl:1", "package-1", 1),
            ("intel-rapl:1:0", "dram", 1),
        ];
        let mut machine = Machine::new(&zones, &[]);
        let closed = ["intel-rapl:0", "intel-rapl:1:0"];
        for zone in closed {
            close(&machine.dir.path().join(DIR).join(zone).join("energy_uj"));
        }
        let (state, samples) = machine.tick();
        let of = "rapl_package_joules_total{\"package\": \"1\"}".to_owned();
        assert_eq!(samples, [(of, 0.0)]);
        let paths = closed.map(|zone| format!("/{DIR}/{zone}/energy_uj"));
        assert_eq!(state, Err(SourceError::denied(paths.join(", "), GRANT)));
    });
}
