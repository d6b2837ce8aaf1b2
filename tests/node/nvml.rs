//! The agent with a stub in place of NVIDIA's library (`testdata/nvml/stub.c`), whose GPUs answer like
//! defective ones. No test needs a real GPU.

use crate::common::programs::{self, NO_SERVER, Running, output};
use crate::repository::layers::repository;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Builds the stub in a folder that the dynamic linker searches.
fn stub(dir: &Path, defines: &[&str]) {
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"])
        .arg(dir.join("libnvidia-ml.so.1"))
        .arg(repository().join("testdata/nvml/stub.c"))
        .args(defines)
        .status()
        .unwrap();
    assert!(built.success());
}

fn agent(dir: &Path) -> Command {
    let mut command = programs::agent();
    command.env("LD_LIBRARY_PATH", dir).args(["--once", "--print", "--device", "n1"]);
    command.args(["--spool", "none"]);
    command
}

#[test]
fn blank_lost_and_divided_gpus_give_true_numbers_or_none() {
    let dir = tempfile::tempdir().unwrap();
    stub(dir.path(), &[]);
    let (code, out, errors) = output(&mut agent(dir.path()));
    assert_eq!(code, 0, "{errors}");
    let reported: Vec<(&str, &str, f64)> = out
        .lines()
        .filter(|line| line.starts_with("nvidia_"))
        .map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            (fields[0], fields[3], fields.last().unwrap().parse().unwrap())
        })
        .collect();
    let value = |metric: &str, labels: &str| {
        let found = reported.iter().find(|(name, of, _)| *name == metric && of.contains(labels));
        found.map(|(.., value)| *value)
    };
    let (good, blank) = (r#""GPU-stub-0""#, r#""GPU-stub-1""#);
    for (metric, want) in [
        ("nvidia_use_ratio", 0.35),
        ("nvidia_memory_use_ratio", 0.12),
        ("nvidia_memory_size_bytes", 80_000.0),
        ("nvidia_memory_reserved_bytes", 500.0),
        ("nvidia_memory_used_bytes", 30_000.0),
        ("nvidia_power_watts", 71.234),
        ("nvidia_power_limit_watts", 700.0),
        ("nvidia_energy_joules_total", 123_456.789),
        ("nvidia_sm_hertz", 1.98e9),
        ("nvidia_memory_hertz", 3.201e9),
        ("nvidia_temperature_celsius", 41.0),
        ("nvidia_ecc_corrected_errors_total", 7.0),
        ("nvidia_ecc_uncorrected_errors_total", 2.0),
        ("nvidia_memory_temperature_celsius", 61.0),
        ("nvidia_pcie_replays_total", 3.0),
        ("nvidia_pcie_sent_bytes_total", 5e9),
        ("nvidia_pcie_received_bytes_total", 6e9),
        ("nvidia_pcie_generation", 5.0),
        ("nvidia_pcie_lanes", 16.0),
        ("nvidia_nvlink_sent_bytes_total", 7e6 * 1024.0),
        ("nvidia_nvlink_received_bytes_total", 8e6 * 1024.0),
        ("nvidia_nvlink_flit_crc_errors_total", 4.0),
        ("nvidia_nvlink_data_crc_errors_total", 5.0),
        ("nvidia_nvlink_recoveries_total", 7.0),
        ("nvidia_processes", 100.0),
    ] {
        assert_eq!(value(metric, good), Some(want), "{metric}\n{out}\n{errors}");
    }
    let throttled = |reason: &str| {
        let mut of = reported.iter().filter(|(name, ..)| *name == "nvidia_throttled");
        of.find(|(_, labels, _)| labels.contains(good) && labels.contains(reason)).map(|of| of.2)
    };
    assert_eq!(throttled("power_cap"), Some(1.0));
    assert_eq!(throttled("software_thermal"), Some(1.0));
    assert_eq!(throttled("hardware_slowdown"), Some(0.0));
    // For the GPU with blank values, only the number of processes is available.
    let of_blank: Vec<_> =
        reported.iter().filter(|(_, labels, _)| labels.contains(blank)).collect();
    assert_eq!(of_blank.len(), 1, "{of_blank:?}");
    assert_eq!(of_blank[0].0, "nvidia_processes");
    assert!(!reported.iter().any(|(_, labels, _)| labels.contains("GPU-stub-2")), "it is lost");
    // MIG instances have memory values; the partitioned GPU has no utilization of its own.
    assert_eq!(value("nvidia_memory_used_bytes", r#""MIG-stub-2""#), Some(200.0));
    assert_eq!(value("nvidia_memory_size_bytes", r#""slice": "1""#), Some(1000.0));
    assert_eq!(value("nvidia_use_ratio", r#""GPU-stub-3""#), None);
    assert_eq!(value("nvidia_processes", r#""GPU-stub-3""#), None);
    // A fraction is no valid count, and a 32-bit byte counter wraps too soon. The GPU's other fields are
    // sampled.
    assert_eq!(value("nvidia_nvlink_replays_total", good), None);
    for metric in ["nvidia_pcie_sent_bytes_total", "nvidia_nvlink_received_bytes_total"] {
        assert_eq!(value(metric, r#""GPU-stub-3""#), None, "{metric}");
    }
    assert_eq!(value("nvidia_nvlink_data_crc_errors_total", r#""GPU-stub-3""#), Some(5.0));
}

#[test]
fn a_driver_that_does_not_answer_delays_no_other_source() {
    let dir = tempfile::tempdir().unwrap();
    stub(dir.path(), &["-DSLOW"]);
    let printed = dir.path().join("printed");
    let mut agent = programs::agent();
    agent.env("LD_LIBRARY_PATH", dir.path()).args(["--print", "--device", "n1", "--period", "1s"]);
    agent.args(["--spool", "none"]).args(NO_SERVER).stdout(File::create(&printed).unwrap());
    let mut agent = Running::start(&mut agent);
    let begun = Instant::now();
    let ticks = loop {
        let text = std::fs::read_to_string(&printed).unwrap();
        assert!(!text.contains("nvidia_"), "what came too late is no sample");
        let ticks = text.lines().filter(|line| line.starts_with("load_1m")).count();
        if ticks >= 5 || begun.elapsed() > Duration::from_secs(15) {
            break ticks;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    agent.kill();
    assert!(ticks >= 5, "{ticks} ticks while the driver took 20 s: {}", agent.errors());
}
