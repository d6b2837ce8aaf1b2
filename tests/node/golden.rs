//! The agent prints the golden lines of every recorded machine. `make golden` rewrites them.

use crate::common::programs::{self, output};
use crate::repository::layers::repository;

#[test]
fn the_agent_prints_the_golden_lines_of_every_recorded_machine() {
    let hosts = repository().join("testdata/hosts");
    let mut machines = 0;
    for host in std::fs::read_dir(&hosts).unwrap() {
        let host = host.unwrap();
        let name = host.file_name().into_string().unwrap();
        let ticks = ["1", "2"].map(|tick| host.path().join(tick));
        if !ticks.iter().all(|tick| tick.is_dir()) {
            continue;
        }
        let mut command = programs::agent();
        for tick in &ticks {
            command.arg("--root").arg(tick);
        }
        command.args([
            "--once",
            "--print",
            "--now",
            "2026-01-06T13:35:00Z",
            "--device",
            &name,
            "--spool",
            "none",
        ]);
        let (code, out, errors) = output(&mut command);
        assert_eq!(code, 0, "{name}: {errors}");
        let mut printed: Vec<String> = out.lines().map(|line| line.replace('\t', " ")).collect();
        // The agent's own usage does not belong to the recorded machine.
        printed.retain(|line| !line.starts_with("agent_"));
        printed.sort();
        let golden =
            std::fs::read_to_string(repository().join(format!("testdata/golden/{name}.txt")))
                .unwrap();
        let mut golden: Vec<&str> = golden.lines().filter(|line| !line.starts_with('#')).collect();
        golden.sort_unstable();
        let first = printed.iter().zip(&golden).find(|(a, b)| a != *b);
        assert!(
            first.is_none() && printed.len() == golden.len(),
            "{name}: {} lines, {} golden; {first:#?}",
            printed.len(),
            golden.len()
        );
        machines += 1;
    }
    println!("{machines} machines");
    assert!(machines >= 2);
}
