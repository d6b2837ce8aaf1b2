//! What ten thousand running jobs of a Slurm cost: the recorded answers of 22.05 with one of its jobs as often as
//! wanted, written by programs that stand in for squeue and scontrol.
//!
//! ```text
//! cargo bench -p schedulers --bench slurm -- [JOBS]
//! ```
//!
//! It is about what is ours: Slurm's own work, to pack and write its answer, is no part of it.

#![expect(clippy::unwrap_used, reason = "a bench that cannot go on fails")]
#![expect(clippy::disallowed_methods, reason = "a bench times")]

use model::{ClusterId, Timestamp};
use schedulers::{Scheduler, Slurm, SlurmAccess, SlurmCommands, SlurmConfig};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

const SQUEUE: &str = include_str!("../../../testdata/schedulers/slurm-22.05/squeue.json");
const SCONTROL: &str = include_str!("../../../testdata/schedulers/slurm-22.05/scontrol.txt");
/// The job that runs on four nodes with an accelerator of each.
const JOB: i64 = 5;

fn main() {
    let words = std::env::args().skip(1).filter(|word| !word.starts_with('-'));
    let count: i64 = words.map(|word| word.parse().unwrap()).next().unwrap_or(10_000);
    let dir = tempfile::tempdir().unwrap();
    let bytes = write_answers(dir.path(), count, "RUNNING");
    let mut out = std::io::stdout();
    writeln!(out, "{count} jobs: squeue {} bytes, scontrol {} bytes", bytes[0], bytes[1]).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut slurm = Slurm::new(SlurmConfig {
        cluster: ClusterId::new("slurm").unwrap(),
        access: SlurmAccess::Commands(SlurmCommands {
            folder: Some(dir.path().to_owned()),
            conf: None,
        }),
        time_max: Duration::from_secs(60),
        answer_bytes_max: 256 << 20,
    });
    let start = Timestamp::from_seconds(1_795_264_700);
    writeln!(out, "resident before {} KiB", resident("VmRSS")).unwrap();
    for (round, what) in
        ["all are new", "nothing changed", "nothing changed", "all ended"].iter().enumerate()
    {
        if *what == "all ended" {
            write_answers(dir.path(), count, "COMPLETED");
        }
        let now = start.plus(i64::try_from(round).unwrap() * 10 * Timestamp::SECOND);
        let (began, cpu) = (Instant::now(), cpu_ms());
        let changes = runtime.block_on(slurm.changes(start, now)).unwrap();
        writeln!(
            out,
            "{what}: {} calls, {} records, {:.0} ms, of a processor {} ms, resident {} KiB, at most {} KiB",
            changes.calls,
            changes.records.len(),
            began.elapsed().as_secs_f64() * 1e3,
            cpu_ms() - cpu,
            resident("VmRSS"),
            resident("VmHWM"),
        )
        .unwrap();
    }
}

/// Writes the programs and what they write, job by job so that little memory is taken; gives the lengths of
/// squeue's and scontrol's answers.
fn write_answers(dir: &Path, count: i64, state: &str) -> [u64; 2] {
    let mut answer: serde_json::Value = serde_json::from_str(SQUEUE).unwrap();
    let jobs = answer.get_mut("jobs").unwrap().as_array_mut().unwrap();
    let job = jobs.iter_mut().find(|job| job.get("job_id") == Some(&JOB.into())).unwrap();
    *job.get_mut("job_state").unwrap() = state.into();
    // As Slurm writes it: a line for each value.
    let job = serde_json::to_string_pretty(job).unwrap();
    let line = SCONTROL.lines().find(|line| line.starts_with("JobId=5 ")).unwrap();
    let squeue = write(dir, "squeue", "{\"errors\": [], \"jobs\": [", "]}", count, |id| {
        let comma = if id < count { "," } else { "" };
        job.replacen("\"job_id\": 5,", &format!("\"job_id\": {id},"), 1) + comma
    });
    let scontrol = write(dir, "scontrol", "", "", count, |id| {
        line.replacen("JobId=5 ", &format!("JobId={id} "), 1)
    });
    write(dir, "sacct", "{\"errors\": [], \"jobs\": [", "]}", 0, |_| String::new());
    [squeue, scontrol]
}

/// A program, and its answer: one text for each job.
fn write(
    dir: &Path,
    program: &str,
    head: &str,
    tail: &str,
    count: i64,
    text: impl Fn(i64) -> String,
) -> u64 {
    let file = dir.join(format!("{program}.txt"));
    let mut answer = std::io::BufWriter::new(std::fs::File::create(&file).unwrap());
    writeln!(answer, "{head}").unwrap();
    for id in 1..=count {
        writeln!(answer, "{}", text(id)).unwrap();
    }
    writeln!(answer, "{tail}").unwrap();
    answer.flush().unwrap();
    let path = dir.join(program);
    std::fs::write(&path, format!("#!/bin/sh\nexec cat {}\n", file.display())).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::metadata(file).unwrap().len()
}

/// A line of this process's memory, in KiB.
fn resident(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Processor time of this process, without its children's.
fn cpu_ms() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse::<u64>().unwrap() / 1_000_000
}
