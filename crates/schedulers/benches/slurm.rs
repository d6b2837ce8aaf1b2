//! Cost of polling a Slurm with 10 000 running jobs.
//! Stand-ins for squeue, scontrol and sacct write the recorded answers of 22.05, with one of its jobs
//! repeated as often as needed. The bench polls them as the server does.
//! A minute is 6 rounds of 10 s on a simulated clock. The programs log their calls and the bytes that they write.
//!
//! ```text
//! cargo bench -p schedulers --bench slurm -- [JOBS]
//! ```
//!
//! The bench measures jobmeter alone: Slurm's own work (to pack and write its answer) is not included.

#![expect(clippy::unwrap_used, reason = "a bench that cannot go on fails")]
#![expect(clippy::disallowed_methods, reason = "a bench times")]

use model::{ClusterId, Timestamp};
use schedulers::{Scheduler, Slurm, SlurmAccess, SlurmCommands, SlurmConfig};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

const SQUEUE: &str = include_str!("../../../testdata/schedulers/slurm-22.05/squeue.json");
const SACCT: &str = include_str!("../../../testdata/schedulers/slurm-22.05/sacct.json");
const SCONTROL: &str = include_str!("../../../testdata/schedulers/slurm-22.05/scontrol.txt");
/// The job on four nodes with one accelerator each.
const JOB: i64 = 5;
const NOW: i64 = 1_795_268_300;
const ROUND_SECONDS: i64 = 10;
const ROUNDS: i64 = 60 / ROUND_SECONDS;
/// How long squeue lists a completed job, in seconds: the default of `MinJobAge`. One job ends each second.
const COMPLETED_KEPT: i64 = 300;
/// Jobs that ended in the interval of a sacct query: an overlap of ten minutes, and one round.
const ACCOUNTED: i64 = 600 + ROUND_SECONDS;
/// Placeholders in a job's text for its ID and its end.
const ID: i64 = 999_999_001;
const END: i64 = 999_999_002;
const PROGRAMS: [&str; 3] = ["squeue", "scontrol", "sacct"];

fn main() {
    let words = std::env::args().skip(1).filter(|word| !word.starts_with('-'));
    let count: i64 = words.map(|word| word.parse().unwrap()).next().unwrap_or(10_000);
    let dir = tempfile::tempdir().unwrap();
    let slurm = Slurm::new(SlurmConfig {
        cluster: ClusterId::new("slurm").unwrap(),
        access: SlurmAccess::Commands(SlurmCommands {
            folder: Some(dir.path().to_owned()),
            conf: None,
        }),
        time_max: Duration::from_secs(60),
        answer_bytes_max: 256 << 20,
    });
    let mut out = std::io::stdout();
    writeln!(out, "{count} jobs run; resident before {} KiB", resident("VmRSS")).unwrap();
    let mut bench = Bench { dir: dir.path(), slurm, count, first: 10_000, at: NOW };
    bench.report("all are new", 1, 0);
    bench.report("a minute, nothing changes", ROUNDS, 0);
    bench.report("a minute, one starts and one ends a second", ROUNDS, ROUND_SECONDS);
}

struct Bench<'a> {
    dir: &'a Path,
    slurm: Slurm,
    count: i64,
    /// The first running job; the jobs before it are over, one a second.
    first: i64,
    /// The simulated clock, in seconds.
    at: i64,
}

impl Bench<'_> {
    /// Runs `rounds` and prints their cost. In each, `changes_of_round` jobs end and as many start.
    fn report(&mut self, what: &str, rounds: i64, changes_of_round: i64) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for program in PROGRAMS {
            std::fs::write(self.dir.join(format!("{program}.calls")), "").unwrap();
        }
        let (mut records, mut calls) = (0, 0);
        let (mut time, mut cpu) = (Duration::ZERO, 0);
        for _ in 0..rounds {
            self.first += changes_of_round;
            self.write_answers();
            let now = Timestamp::from_seconds(self.at);
            let (began, before) = (Instant::now(), cpu_ms());
            let day = 86_400 * Timestamp::SECOND;
            let changes = runtime.block_on(self.slurm.changes(now.plus(-day), now)).unwrap();
            (time, cpu) = (time + began.elapsed(), cpu + cpu_ms() - before);
            (records, calls) = (records + changes.records.len(), calls + changes.calls);
            assert!(changes.rejected.is_empty(), "{:?}", changes.rejected);
            self.at += ROUND_SECONDS;
        }
        let mut out = std::io::stdout();
        writeln!(
            out,
            "{what}: {calls} calls, {records} records, {:.0} ms, of a processor {cpu} ms, resident {} KiB, at \
             most {} KiB",
            time.as_secs_f64() * 1e3,
            resident("VmRSS"),
            resident("VmHWM"),
        )
        .unwrap();
        for program in PROGRAMS {
            let file = self.dir.join(format!("{program}.calls"));
            let text = std::fs::read_to_string(file).unwrap();
            let bytes: u64 = text.lines().map(|line| line.trim().parse::<u64>().unwrap()).sum();
            writeln!(out, "    {program}: {} calls, {bytes} bytes", text.lines().count()).unwrap();
        }
    }

    /// Writes the programs and their answers, job by job to use little memory.
    fn write_answers(&self) {
        let running = self.first..self.first + self.count;
        let (runs, is_over) = (controllers("RUNNING"), controllers("COMPLETED"));
        let squeue = (self.first - COMPLETED_KEPT..running.end)
            .map(|id| self.filled(if id < self.first { &is_over } else { &runs }, id));
        self.write("squeue", "{\"errors\": [], \"jobs\": [", "]}", ",", squeue);
        let line = SCONTROL.lines().find(|line| line.starts_with("JobId=5 ")).unwrap();
        let scontrol = running.map(|id| line.replacen("JobId=5 ", &format!("JobId={id} "), 1));
        self.write("scontrol", "", "", "", scontrol);
        let accounted = accountings();
        let sacct = (self.first - ACCOUNTED..self.first).map(|id| self.filled(&accounted, id));
        self.write("sacct", "{\"errors\": [], \"jobs\": [", "]}", ",", sacct);
    }

    fn filled(&self, text: &str, id: i64) -> String {
        let end = self.at - (self.first - id);
        text.replace(&ID.to_string(), &id.to_string()).replace(&END.to_string(), &end.to_string())
    }

    /// Writes a program and its answer: one text for each job.
    fn write(
        &self,
        program: &str,
        head: &str,
        tail: &str,
        between: &str,
        jobs: impl Iterator<Item = String>,
    ) {
        let file = self.dir.join(format!("{program}.txt"));
        let mut answer = std::io::BufWriter::new(std::fs::File::create(&file).unwrap());
        writeln!(answer, "{head}").unwrap();
        for (index, job) in jobs.enumerate() {
            writeln!(answer, "{}{job}", if index == 0 { "" } else { between }).unwrap();
        }
        writeln!(answer, "{tail}").unwrap();
        answer.flush().unwrap();
        let path = self.dir.join(program);
        let (text, calls) = (file.display(), self.dir.join(format!("{program}.calls")));
        let script = format!("#!/bin/sh\nwc -c < {text} >> {}\nexec cat {text}\n", calls.display());
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// The controller's report of the job in a state, formatted as Slurm does: a line for each value.
fn controllers(state: &str) -> String {
    let mut job = job_of(SQUEUE);
    *job.get_mut("job_id").unwrap() = ID.into();
    *job.get_mut("job_state").unwrap() = state.into();
    if state == "COMPLETED" {
        *job.get_mut("end_time").unwrap() = END.into();
    }
    serde_json::to_string_pretty(&job).unwrap()
}

/// The accounting's report of the job.
fn accountings() -> String {
    let mut job = job_of(SACCT);
    *job.get_mut("job_id").unwrap() = ID.into();
    *job.get_mut("time").and_then(|time| time.get_mut("end")).unwrap() = END.into();
    serde_json::to_string_pretty(&job).unwrap()
}

fn job_of(answer: &str) -> serde_json::Value {
    let answer: serde_json::Value = serde_json::from_str(answer).unwrap();
    let mut jobs = answer.get("jobs").unwrap().as_array().unwrap().iter();
    jobs.find(|job| job.get("job_id") == Some(&JOB.into())).unwrap().clone()
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
