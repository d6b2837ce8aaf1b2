//! `jobmeter run`: runs a command as a job of the cluster "local", and prints a report at its end.
//!
//! The server assigns the job ID. Without a server the command still runs, is measured and reported. If an agent
//! sends this node's samples, that agent reports the job; otherwise this process sends the samples.

mod child;
mod job_cgroup;
mod kept_runs;
pub(crate) mod options;
mod readings;
pub(crate) mod reported;
mod send;
mod tree;

use crate::client::http_client::{Client, Rejected};
use crate::client::name_suggestions::silent_node;
use crate::client::plain::{note, plain};
use crate::output::times::{Times, machine_value};
use anyhow::Context;
use api::Totals;
use child::Command;
use jiff::tz::TimeZone;
use job_cgroup::{JobDirs, Limits};
use kept_runs::KeptRun;
use kernel::Root;
use kernel::clock::monotonic_us;
use model::{ClusterId, DeviceId, JobId, JobKey, Timestamp};
use options::{RunArgs, check_name};
use readings::Measure;
use send::Sender;
use serde::Serialize;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

/// Interval between reads of the kernel's queues while nothing ends.
const STEP: Duration = Duration::from_millis(50);
/// Time limit of a request: an unavailable server must not delay the command's signals.
const REQUEST: Duration = Duration::from_secs(2);
/// How long to retry the end of the command with an unavailable server.
const END: Duration = Duration::from_secs(5);
/// Interval between retries.
const AGAIN: Duration = Duration::from_millis(250);
/// Exit codes that state a signal: 128 + the signal number.
const SIGNALLED: std::ops::RangeInclusive<i32> = 129..=128 + 64;
/// Interval between readings.
const READ_EVERY_US: u64 = 1_000_000;

/// The report in the format of `--json`.
#[derive(Serialize)]
struct Report {
    /// `local`, or `null` for a job without an ID from a server.
    cluster: Option<String>,
    id: Option<i64>,
    name: String,
    device: String,
    command: Vec<String>,
    exit_code: i32,
    /// How the job ended, as in the report of `jobmeter job`.
    end: api::JobEnd,
    start: f64,
    stop: f64,
    #[serde(flatten)]
    totals: Totals,
    /// Tasks that the kernel killed because memory ran out.
    oom_kills: Vec<api::OomKill>,
    /// Values that could not be measured, with reasons.
    left_out: Vec<String>,
}

struct Job {
    id: Option<JobId>,
    /// The identity of the server that assigned the ID; empty: the job has no ID.
    server: String,
    name: String,
    device: DeviceId,
    start: Timestamp,
    stop: Option<Timestamp>,
    /// Deadline for sending the end, in time of [`monotonic_us`].
    give_up_us: u64,
}

/// Runs the command and prints its report. Without a server (`has_server`), the job has no ID, and `client` is not used.
pub(crate) fn run(
    client: &Client,
    has_server: bool,
    args: &RunArgs,
    device: &str,
) -> anyhow::Result<ExitCode> {
    let words = &args.command;
    let device = DeviceId::new(args.device.as_deref().unwrap_or(device))?;
    let name = args.name.clone().unwrap_or_else(|| base_name(words));
    check_name(&name)?;
    let limits = args.limits()?;
    // A command that cannot start must not create a job.
    if let Some(program) = words.first() {
        crate::measure::exec::startable(program, std::env::var_os("PATH").as_deref())?;
    }
    let root = Root::live()?;
    limits.check(&root)?;
    if limits.is_some() {
        // A limit that this machine cannot set must not create a job.
        drop(JobDirs::make(&root, &dir_name(None, "", false), &limits)?);
    }
    let client = &client.limited(REQUEST);
    let start = crate::clock();
    let mut left_out = Vec::new();
    let registered = match has_server {
        true => register(client, &name, &device, start),
        false => {
            Err("the server stores nothing of this command: the settings are not valid".to_owned())
        }
    };
    let (id, server) = registered.unwrap_or_else(|unknown| {
        left_out.push(unknown);
        Default::default()
    });
    if args.device.is_some()
        && id.is_some()
        && let Some(message) = silent_node(client, device.as_str())
    {
        note(&message)?;
    }
    let mut job = Job { id, server, name, device, start, stop: None, give_up_us: 0 };
    let mut result = measured(client, &root, &mut job, words, &limits, &mut left_out);
    let exit_code = result.as_ref().map_or(127, |measured| measured.exit_code);
    let sender = result.as_mut().ok().and_then(|measured| measured.sender.take());
    left_out.extend(end(client, &job, exit_code, sender));
    let reported = report(args.format.json, &job, words, result?, left_out);
    if let Err(error) = reported {
        // Scripts rely on the command's own exit code, even if the report cannot be written.
        note(&format!("cannot write the report: {error}")).ok();
    }
    Ok(ExitCode::from(u8::try_from(exit_code).unwrap_or(1)))
}

fn base_name(words: &[OsString]) -> String {
    let first = words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    model::printable(first.rsplit('/').next().unwrap_or_default()).into_owned()
}

/// How a command ended, in the terms of a job's report.
fn job_end(exit_code: i32, was_killed: bool) -> api::JobEnd {
    let (cause, detail) = match exit_code {
        0 => ("completed", String::new()),
        _ if was_killed => ("oom kill", String::new()),
        code if SIGNALLED.contains(&code) => ("signal", (code - 128).to_string()),
        code => ("exit code", code.to_string()),
    };
    api::JobEnd { cause: cause.to_owned(), detail }
}

/// `exit code 1`, or `exit code 139 (signal 11, SIGSEGV)`.
fn shown_end(exit_code: i32) -> String {
    if !SIGNALLED.contains(&exit_code) {
        return format!("exit code {exit_code}");
    }
    let number = exit_code - 128;
    let name = signal_hook::low_level::signal_name(number);
    let name = name.map_or_else(String::new, |name| format!(", {name}"));
    format!("exit code {exit_code} (signal {number}{name})")
}

/// Registers the job; returns its ID and the server's identity, or why it has no ID.
fn register(
    client: &Client,
    name: &str,
    device: &DeviceId,
    start: Timestamp,
) -> Result<(Option<JobId>, String), String> {
    let register = api::Register {
        name: Some(name.to_owned()),
        device: device.as_str().to_owned(),
        start: Some(start.seconds()),
    };
    match client.post::<api::Registered>("/api/v1/jobs", &register) {
        Ok(api::Registered { id, server, .. }) => {
            // It becomes a part of the names of folders.
            let is_name = server.bytes().all(|byte| byte.is_ascii_alphanumeric());
            Ok((JobId::new(id), if is_name { server } else { String::new() }))
        }
        Err(error) => Err(format!("the server stores nothing of this command: {error:#}")),
    }
}

/// Ends the job at the server, and sends what earlier runs kept. If the server is unavailable, keeps the end and the
/// unsent samples. Returns lines for the report.
fn end(client: &Client, job: &Job, exit_code: i32, sender: Option<Sender>) -> Vec<String> {
    let Some(id) = job.id else { return Vec::new() };
    // 1 µs after the last reading, which belongs to the job.
    let stop = job.stop.unwrap_or_else(crate::clock).plus(1).seconds();
    let end = api::End { exit_code: Some(exit_code), stop: Some(stop) };
    let path = format!("/api/v1/jobs/local:{id}/end");
    let ended = again(job.give_up_us, || client.post::<api::Job>(&path, &end));
    let lost = sender.as_ref().map_or(0, Sender::unsent_batches);
    let (unsent, failure) = sender.map(Sender::into_unsent).unwrap_or_default();
    let mut lines = Vec::from_iter(failure);
    let is_unavailable = ended.as_ref().is_err_and(|error| !is_http_error(error));
    if is_unavailable || unsent.is_some() {
        let (server, device) = (job.server.clone(), job.device.to_string());
        let kept = KeptRun { id: id.get(), server, device, end }.keep(unsent);
        match kept {
            Ok(line) => lines.push(line),
            Err(error) => lines.push(format!(
                "the job's end and {lost} batches of samples: no server accepted them, and they cannot be stored: {error:#}"
            )),
        }
        return lines;
    }
    if let Err(error) = ended {
        lines.push(format!("sending the job's end to the server: {error:#}"));
    }
    let sent = kept_runs::send_kept(client, &job.server, job.give_up_us);
    if !sent.is_empty() {
        note(&format!("sent the stored samples and ends of earlier runs: {}", sent.join(", ")))
            .ok();
    }
    lines
}

/// Retries a request while the server is unavailable, up to a deadline; sends it at least once.
fn again<T>(give_up_us: u64, mut send: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    loop {
        let result = send();
        let is_final = result.as_ref().map_or_else(is_http_error, |_| true);
        if is_final || monotonic_us() >= give_up_us {
            return result;
        }
        std::thread::sleep(AGAIN);
    }
}

/// Starts the command in its cgroup, reads while it runs, and returns its usage.
fn measured(
    client: &Client,
    root: &Root,
    job: &mut Job,
    words: &[OsString],
    limits: &Limits,
    left_out: &mut Vec<String>,
) -> anyhow::Result<Measured> {
    // The decision is final: an agent that starts later must not report the same series.
    let agent = job.id.is_some() && send::agent_alive(client, &job.device);
    let dir = dir_name(job.id, &job.server, agent);
    let boot = agent::boot_of(root)?;
    let mut measure = Measure::open(root, boot, &job.device);
    let mut place = JobDirs::make(root, &dir, limits)?;
    let own = i64::from(rustix::process::getpid().as_raw_nonzero().get());
    let id = job.id.or_else(|| JobId::new(own)).context("an ID for the job")?;
    let key = JobKey { cluster: ClusterId::local(), id };
    measure.begin(&key, &place, crate::clock());
    let agent = agent && !place.is_empty();
    let mut sender = Sender::new(client, job.id.map(|_| &key), &job.device, agent);
    // Per-task accounting must know the command before it runs, because it may be very short.
    let joined = || measure.joined(crate::clock());
    let mut command = Command::start(words, place.join_files(root), joined)?;
    measure.begun(command.begun());
    job.start = Timestamp(command.begun().wall_us);
    let Ended { exit_code, wall } = follow(&mut command, &mut measure, &mut sender, &place);
    // Uses the monotonic clock, which is never set.
    let stop = job.start.plus(i64::try_from(wall.as_micros()).unwrap_or(i64::MAX));
    job.stop = Some(stop);
    measure.end(&key, stop);
    let end = Duration::from_micros(command.begun().steady_us) + wall;
    let after_end = Duration::from_micros(monotonic_us()).saturating_sub(end);
    let totals = measure.totals(wall, after_end);
    if place.is_empty() && totals.io_write_bytes.is_some_and(|bytes| bytes > 0.0) {
        let what = "written: cancelled writes not known";
        left_out.push(what.to_owned());
    }
    measure.report(&totals, &key, stop);
    let (now_us, end_us) = (monotonic_us(), u64::try_from(END.as_micros()).unwrap_or(0));
    job.give_up_us = now_us + end_us;
    // Retries of samples leave time for retries of the end.
    sender.send(&mut measure, Some(now_us + end_us / 2));
    left_out.append(&mut place.left_out);
    left_out.append(&mut measure.left_out);
    // An agent meanwhile takes its last reading of the job; this process does not wait for it.
    if !(sender.agent_sees() && place.remove_later()) {
        place.remove();
    }
    left_out.extend(measure.reservations().iter().map(|one| one.reason.to_owned()));
    let peak_note = measure.peak_note();
    let (oom_kills, sender) = (measure.oom_kills, Some(sender));
    Ok(Measured { exit_code, totals, peak_note, oom_kills, sender })
}

/// Usage of a command, and how it ended.
struct Measured {
    exit_code: i32,
    totals: Totals,
    /// The note on the peak memory.
    peak_note: &'static str,
    oom_kills: Vec<api::OomKill>,
    /// Its samples that are not sent yet.
    sender: Option<Sender>,
}

/// The name of the job's directories. Agents recognise `job_*` as a job, but not `run_*`. `run_*` is for jobs
/// without an ID, and for jobs that no agent reports.
fn dir_name(id: Option<JobId>, server: &str, agent: bool) -> String {
    let prefix = if agent { "job" } else { "run" };
    match id {
        Some(id) if server.is_empty() => format!("{prefix}_{id}"),
        Some(id) => format!("{prefix}_{id}@{server}"),
        None => format!("run_p{}", std::process::id()),
    }
}

/// The end of a command.
struct Ended {
    exit_code: i32,
    /// Time from the start to the end of all started processes.
    wall: Duration,
}

/// Reads until the command and all processes that it started have ended. Ends earlier if the user interrupts the
/// wait for leftover processes.
fn follow(
    command: &mut Command,
    measure: &mut Measure,
    sender: &mut Sender,
    place: &JobDirs,
) -> Ended {
    let (begun_us, mut is_reported) = (command.begun().steady_us, false);
    let mut read_us = begun_us;
    loop {
        let enough = command.pass_on_output();
        // Read afterwards, so that processes that ended by now are included.
        let (now, steady_us) = (crate::clock(), monotonic_us());
        measure.set_ended(command.ended());
        if let Some(exit_code) = command.exit_code() {
            let alive =
                if command.is_childless() && place.is_empty() { 0 } else { measure.alive(place) };
            if alive == 0 || enough {
                let wall = Duration::from_micros(steady_us.saturating_sub(begun_us));
                return Ended { exit_code, wall };
            }
            if !is_reported {
                is_reported = true;
                note(&format!(
                    "the command ended with {}; waiting for {} that it started (Ctrl-C ends the wait)",
                    shown_end(exit_code),
                    if alive == 1 { "1 process".to_owned() } else { format!("{alive} processes") }
                ))
                .ok();
            }
        }
        measure.drain(now);
        measure.glance();
        if steady_us.saturating_sub(read_us) >= READ_EVERY_US {
            read_us = steady_us;
            measure.collect(now);
            sender.send(measure, None);
        }
        command.wait(STEP);
    }
}

fn report(
    json: bool,
    job: &Job,
    words: &[OsString],
    Measured { exit_code, totals, peak_note, oom_kills, .. }: Measured,
    left_out: Vec<String>,
) -> io::Result<()> {
    let report = Report {
        cluster: job.id.map(|_| ClusterId::LOCAL.to_owned()),
        id: job.id.map(JobId::get),
        name: job.name.clone(),
        device: job.device.to_string(),
        command: words.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        exit_code,
        end: job_end(exit_code, !oom_kills.is_empty()),
        start: job.start.seconds(),
        stop: job.start.seconds() + totals.wall_seconds,
        totals,
        oom_kills,
        left_out,
    };
    if json {
        let mut out = io::stdout().lock();
        return writeln!(out, "{}", machine_value(serde_json::to_value(&report)?));
    }
    // The command's standard output may be piped, so the report goes to standard error.
    let mut out = io::stderr().lock();
    let job = report.id.map(|id| format!("job local:{id} ")).unwrap_or_default();
    writeln!(out, "{job}{}, {}", plain(&report.name), shown_end(exit_code))?;
    let times = Times::at(crate::clock(), TimeZone::system());
    for kill in &report.oom_kills {
        crate::output::report::line(
            &mut out,
            "OOM kill",
            Some(crate::output::report::oom_kill(kill, &times)),
        )?;
    }
    crate::output::report::totals(&report.totals, Some(peak_note), &mut out)?;
    for what in &report.left_out {
        crate::output::report::line(&mut out, "note", Some(plain(what).to_string()))?;
    }
    Ok(())
}

/// Whether the server sent the error, as opposed to being unavailable.
pub(crate) fn is_http_error(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<Rejected>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_server_answers_is_sent_again_and_given_up() {
        let (mut tries, in_time) = (0, monotonic_us() + 60_000_000);
        let sent = again(in_time, || {
            tries += 1;
            anyhow::ensure!(tries > 1, "no server");
            Ok(tries)
        });
        assert_eq!(sent.ok(), Some(2));
        let mut tries = 0;
        let sent = again(0, || -> anyhow::Result<()> {
            tries += 1;
            anyhow::bail!("no server")
        });
        assert!(sent.is_err() && tries == 1);
        let (code, message) = ("PGRST116".to_owned(), "no such job".to_owned());
        let problem = api::Problem { code, message, details: None, hint: None };
        let rejected = again(in_time, || -> anyhow::Result<()> {
            tries += 1;
            Err(Rejected::from(problem.clone()).into())
        });
        assert!(rejected.is_err() && tries == 2, "a refusal is final");
    }

    #[test]
    fn a_signal_is_named() {
        assert_eq!(shown_end(139), "exit code 139 (signal 11, SIGSEGV)");
        assert_eq!((&*shown_end(0), &*shown_end(7)), ("exit code 0", "exit code 7"));
        let end = |code, was_killed| {
            let api::JobEnd { cause, detail } = job_end(code, was_killed);
            format!("{cause} {detail}")
        };
        assert_eq!(end(139, false), "signal 11");
        assert_eq!(
            (&*end(0, true), &*end(137, true), &*end(3, false)),
            ("completed ", "oom kill ", "exit code 3")
        );
    }

    #[test]
    fn an_agent_sees_the_directories_of_its_jobs_alone() {
        let id = JobId::new(7);
        assert_eq!(dir_name(id, "3f2a", true), "job_7@3f2a");
        assert_eq!(dir_name(id, "3f2a", false), "run_7@3f2a");
        assert_eq!(dir_name(id, "", true), "job_7");
        assert!(dir_name(None, "", false).starts_with("run_p"));
    }
}
