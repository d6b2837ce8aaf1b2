//! Usage of a job for terminals: at the end of `jobmeter run`, and for `jobmeter job`.

use crate::output::show::{bytes, count, seconds};
use crate::output::times::Times;
use api::{Job, JobEnd, JobReport, OomKill, Resources, Totals};
use std::io::{self, Write};

/// Writes a job's report.
pub(crate) fn write(report: &JobReport, times: &Times, out: &mut impl Write) -> io::Result<()> {
    let job = &report.job;
    let name = job.name.as_deref().map_or_else(String::new, |name| format!(" {name}"));
    writeln!(out, "job {}:{}{name}, {}", job.cluster, job.display_id, job.state)?;
    let user = job.user.clone().or_else(|| job.uid.map(|uid| uid.to_string()));
    line(out, "user", user)?;
    write_job(job, out)?;
    line(out, "start", job.start.map(|start| times.show(start)))?;
    line(out, "end", job.stop.map(|stop| times.show(stop)))?;
    line(out, "nodes", Some(nodes(report)))?;
    line(out, "exit code", job.exit_code.map(|code| code.to_string()))?;
    line(out, "ended by", report.end.as_ref().map(ended_by))?;
    for kill in &report.oom_kills {
        line(out, "OOM kill", Some(oom_kill(kill, times)))?;
    }
    // A job that never started used nothing.
    if job.start.is_some() {
        totals(&report.totals, peak_note(report), out)?;
        origins(report, times, out)?;
        efficiency(report, out)?;
    }
    if !report.steps.is_empty() {
        writeln!(out, "  steps:")?;
    }
    for step in &report.steps {
        let wall = step.start.zip(step.stop).map(|(start, stop)| seconds((stop - start).max(0.0)));
        let code = step.exit_code.map(|code| format!("exit code {code}"));
        let facts = [Some(step.state_word.clone()), wall, code].into_iter().flatten();
        let facts: Vec<String> = facts.filter(|fact| !fact.is_empty()).collect();
        writeln!(out, "    {} {}: {}", step.id, step.name, facts.join(", "))?;
    }
    if !report.gaps.is_empty() {
        writeln!(out, "  samples are missing:")?;
    }
    for gap in &report.gaps {
        let source = if gap.source.is_empty() { "all sources" } else { &gap.source };
        writeln!(
            out,
            "    {} {source}: {} ({})",
            gap.device,
            gap.cause,
            seconds(gap.to - gap.from)
        )?;
    }
    Ok(())
}

/// Totals without a value: the job has no cgroup, or the node lacks the source.
fn left_out(totals: &Totals) -> String {
    let all = [
        ("processor time", totals.cpu_seconds),
        ("peak memory", totals.memory_peak_bytes),
        ("read", totals.io_read_bytes),
        ("written", totals.io_write_bytes),
        ("page faults", totals.minor_faults),
        ("context switches", totals.voluntary_switches),
        ("time throttled", totals.throttled_seconds),
        ("time waited for processor, memory and disk", totals.pressure_cpu_seconds),
    ];
    let missing: Vec<&str> =
        all.iter().filter(|(_, value)| value.is_none()).map(|(what, _)| *what).collect();
    if missing.is_empty() {
        return String::new();
    }
    let why = match totals.cpu_seconds {
        None if totals.unread_seconds.is_some() => {
            "the job ended before its first reading, or no agent ran"
        }
        _ => "no source counted it (`jobmeter explain METRIC --job ID` shows why)",
    };
    format!("{}: {why}", missing.join(", "))
}

/// Note on the peak memory: memory charged to a cgroup, or memory of one task.
fn peak_note(report: &JobReport) -> Option<&str> {
    let peak = report.origins.iter().find(|origin| origin.total == "memory_peak_bytes");
    peak.and_then(|origin| origin.note.as_deref())
}

/// Writes limitations of the totals: notes on their origins, and nodes without data.
fn origins<'a>(report: &'a JobReport, times: &Times, out: &mut impl Write) -> io::Result<()> {
    let name = |total: &str| {
        Some(match total {
            "wall_seconds" => "wall time",
            "cpu_seconds" => "processor time",
            "cores_used" => "cores used",
            "cpu_user_seconds" => "user and system",
            "io_read_bytes" => "read",
            "io_write_bytes" => "written",
            "minor_faults" => "page faults",
            "voluntary_switches" => "switches",
            "pressure_cpu_seconds" => "waited for processor",
            "pressure_memory_seconds" => "waited for memory",
            "pressure_io_seconds" => "waited for disk",
            _ => return None,
        })
    };
    let note = |origin: &'a api::TotalOrigin| Some((name(&origin.total)?, origin.note.as_deref()?));
    // Totals with the same note share a line.
    let mut lines: Vec<(&str, Vec<&str>)> = Vec::new();
    for (what, note) in report.origins.iter().filter_map(note) {
        match lines.iter_mut().find(|(known, _)| *known == note) {
            Some((_, totals)) => totals.push(what),
            None => lines.push((note, vec![what])),
        }
    }
    for (note, totals) in lines {
        line(out, "note", Some(format!("{}: {note}", totals.join(", "))))?;
    }
    let coverage = &report.coverage;
    // Samples of the other nodes may still arrive.
    let text = (!coverage.silent.is_empty()).then(|| coverage.text(|at| times.show(at)));
    line(out, "covers", text)
}

/// Writes the used part of the job's cores and memory.
fn efficiency(report: &JobReport, out: &mut impl Write) -> io::Result<()> {
    let (job, totals) = (&report.job, &report.totals);
    let by_node: u32 = report.nodes.iter().filter_map(|node| node.cpus).sum();
    let cores = job.used.cpus.or(job.requested.cpus).or((by_node > 0).then_some(by_node));
    let share = |part: f64, whole: f64| format!("{:.1} %", part / whole * 100.0);
    let cores = cores.filter(|cores| *cores > 0).map(f64::from);
    let cpu = totals.cores_used.zip(cores);
    line(
        out,
        "processor efficiency",
        cpu.map(|(used, cores)| format!("{} of {cores:.0} cores", share(used, cores))),
    )?;
    // The peak is that of one node; the request is for all nodes.
    let nodes = job.used.nodes.or(job.requested.nodes).filter(|nodes| *nodes > 0);
    let nodes = nodes.map_or(report.nodes.len().max(1) as f64, f64::from);
    let limit = job.requested.memory_bytes.filter(|limit| *limit > 0);
    let limit = limit.map(|limit| limit as f64 / nodes);
    let memory = totals.memory_peak_bytes.zip(limit);
    let of_node = if nodes > 1.0 { " on each node" } else { "" };
    line(
        out,
        "memory efficiency",
        memory.map(|(peak, limit)| format!("{} of {}{of_node}", share(peak, limit), bytes(limit))),
    )
}

fn ended_by(end: &JobEnd) -> String {
    match (end.cause.as_str(), end.detail.as_str()) {
        ("scheduler", detail) => detail.to_owned(),
        (cause, "") => cause.to_owned(),
        (cause @ ("oom kill" | "time limit"), detail) => format!("{cause} ({detail})"),
        (cause, detail) => format!("{cause} {detail}"),
    }
}

/// `n1, 2026-11-22 14:49:03: solve (process 7, user 1000), 9.1 MiB, limit 8.0 MiB`.
pub(crate) fn oom_kill(kill: &OomKill, times: &Times) -> String {
    let user = kill.uid.map_or_else(String::new, |uid| format!(", user {uid}"));
    let size = kill.task_bytes.map_or_else(String::new, |size| format!(", {}", bytes(size as f64)));
    let limit = match kill.limit_bytes {
        Some(limit) => format!("limit {}", bytes(limit as f64)),
        None => "the node was out of memory".to_owned(),
    };
    format!(
        "{}, {}: {} (process {}{user}){size}, {limit}",
        kill.device,
        times.show(kill.time),
        kill.task.escape_debug(),
        kill.pid
    )
}

/// Writes the fields that only a scheduler reports.
fn write_job(job: &Job, out: &mut impl Write) -> io::Result<()> {
    line(out, "account", job.account.clone())?;
    line(out, "project", job.project.clone())?;
    line(out, "queue", job.queue.clone())?;
    line(out, "scheduler's state", job.state_word.clone())?;
    let part = job.part_of.map(|whole| match job.array_index {
        Some(index) => format!("{whole}, element {index}"),
        None => whole.to_string(),
    });
    line(out, "part of", part)?;
    line(out, "types", Some(job.types.join(", ")))?;
    // Without a reported submission, the registry uses the start.
    let waited = job.start.zip(job.submit).filter(|(start, submit)| start > submit);
    let waited = waited.map(|(start, submit)| seconds(start - submit));
    line(out, "waited", waited)?;
    line(out, "requested", Some(amounts(&job.requested)))?;
    line(out, "used (scheduler)", Some(amounts(&job.used)))
}

fn amounts(of: &Resources) -> String {
    let count = |count: Option<u32>, what: &str| count.map(|count| format!("{count} {what}"));
    let known = [
        count(of.nodes, "nodes"),
        count(of.cpus, "cpus"),
        count(of.gpus, "gpus"),
        of.memory_bytes.map(|value| bytes(value as f64)),
        of.wall_seconds.map(seconds),
        of.cpu_seconds.map(|cpu| format!("{} of processor", seconds(cpu))),
    ];
    known.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// The devices, with the job's share of each.
fn nodes(report: &JobReport) -> String {
    let share = |device: &String| {
        let share = report.nodes.iter().find(|share| share.device == *device);
        let count = |count: Option<u32>, what: &str| count.map(|count| format!("{count} {what}"));
        let parts = share.map(|share| [count(share.cpus, "cpus"), count(share.gpus, "gpus")]);
        let parts: Vec<String> = parts.into_iter().flatten().flatten().collect();
        let parts = parts.join(", ");
        if parts.is_empty() { device.clone() } else { format!("{device} ({parts})") }
    };
    report.job.devices.iter().map(share).collect::<Vec<_>>().join(", ")
}

/// Writes the totals, one line per known value, and the names of the others.
pub(crate) fn totals(
    totals: &Totals,
    peak_note: Option<&str>,
    out: &mut impl Write,
) -> io::Result<()> {
    let time = |value: Option<f64>| value.map(seconds);
    let number = |value: Option<f64>| value.map(count);
    line(out, "wall time", Some(seconds(totals.wall_seconds)))?;
    let cpu = totals.cpu_seconds.map(|cpu| {
        let part = |value: Option<f64>| value.map_or_else(|| "?".to_owned(), seconds);
        format!(
            "{} (user {}, system {})",
            seconds(cpu),
            part(totals.cpu_user_seconds),
            part(totals.cpu_system_seconds)
        )
    });
    line(out, "processor time", cpu)?;
    line(out, "cores used", totals.cores_used.map(|cores| format!("{cores:.2}")))?;
    let peak_note = peak_note.map_or_else(String::new, |note| format!(" ({note})"));
    let peak = totals.memory_peak_bytes.map(|peak| format!("{}{peak_note}", bytes(peak)));
    line(out, "peak memory", peak)?;
    line(out, "read", totals.io_read_bytes.map(bytes))?;
    line(out, "written", totals.io_write_bytes.map(bytes))?;
    line(out, "minor page faults", number(totals.minor_faults))?;
    line(out, "major page faults", number(totals.major_faults))?;
    line(out, "voluntary switches", number(totals.voluntary_switches))?;
    line(out, "forced switches", number(totals.involuntary_switches))?;
    line(out, "throttled", time(totals.throttled_seconds))?;
    line(out, "waited for processor", time(totals.pressure_cpu_seconds))?;
    line(out, "waited for memory", time(totals.pressure_memory_seconds))?;
    line(out, "waited for disk", time(totals.pressure_io_seconds))?;
    let unread = totals.unread_seconds.map(|unread| {
        format!(
            "{}: the cgroup was removed before its last reading, or no agent ran",
            seconds(unread)
        )
    });
    // Without any reading, the line `left out` states this.
    line(out, "not read at the end", unread.filter(|_| totals.cpu_seconds.is_some()))?;
    line(out, "left out", Some(left_out(totals)))
}

pub(crate) fn line(out: &mut impl Write, what: &str, value: Option<String>) -> io::Result<()> {
    match value.filter(|value| !value.is_empty()) {
        Some(value) => writeln!(out, "  {what:<22}{value}"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_scheduler() {
        let report = r#"{"job":{"cluster":"site","id":7,"display_id":"7","user":"alice","uid":1000,
            "account":"physics","project":null,"name":"solve","queue":"long","state":"waiting",
            "state_word":"PENDING","submit":100,"start":null,"stop":null,"exit_code":null,
            "part_of":5,"array_index":2,"types":["besteffort"],
            "requested":{"nodes":1,"cpus":8,"memory_bytes":1073741824,"wall_seconds":3600},
            "used":{},"devices":["n1","pdu-1"]},"runs":[],"allocations":[],
            "nodes":[{"device":"n1","cpus":8,"gpus":1}],
            "steps":[{"id":"batch","name":"solve","state_word":"RUNNING","start":1,"stop":3,"exit_code":0}],
            "totals":{"wall_seconds":0},"metrics":[],"series":[],"gaps":[],
            "end":{"cause":"oom kill","detail":"OUT_OF_MEMORY"},
            "oom_kills":[{"device":"n1","time":0,"task":"so\u001blve","pid":9,"uid":1000,
                "task_bytes":9437184,"limit_bytes":8388608},
                {"device":"pdu-1","time":0,"task":"x","pid":1,"uid":null,"task_bytes":null,"limit_bytes":null}]}"#;
        let report: JobReport = serde_json::from_str(report).unwrap();
        let mut out = Vec::new();
        let times =
            Times::at(model::Timestamp::from_seconds(1_767_706_500), jiff::tz::TimeZone::UTC);
        write(&report, &times, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let expected = [
            "job site:7 solve, waiting",
            "  user                  alice",
            "  account               physics",
            "  queue                 long",
            "  scheduler's state     PENDING",
            "  part of               5, element 2",
            "  types                 besteffort",
            "  requested             1 nodes, 8 cpus, 1.0 GiB, 1 h 0 min",
            "  nodes                 n1 (8 cpus, 1 gpus), pdu-1",
            "  ended by              oom kill (OUT_OF_MEMORY)",
            "  OOM kill              n1, 1970-01-01 00:00:00: so\\u{1b}lve (process 9, user 1000), 9.0 MiB, limit 8.0 MiB",
            "  OOM kill              pdu-1, 1970-01-01 00:00:00: x (process 1), the node was out of memory",
            "  steps:",
            "    batch solve: RUNNING, 2.000 s, exit code 0",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn notes_and_silent_nodes_are_printed() {
        let report = r#"{"job":{"cluster":"site","id":7,"display_id":"7","user":null,"uid":null,
            "account":null,"project":null,"name":null,"queue":null,"state":"ended",
            "state_word":null,"submit":null,"start":1,"stop":3,"exit_code":null,
            "part_of":null,"array_index":null,"types":[],"requested":{},"used":{},"devices":["n1","n2"]},
            "runs":[],"allocations":[],"nodes":[],"steps":[],"totals":{"wall_seconds":2,"memory_peak_bytes":1024},
            "origins":[{"total":"memory_peak_bytes","origins":["exits"],"note":"largest task","nodes":1},
            {"total":"cpu_seconds","origins":["cgroup"],"note":"at least: no agent ran for 54 s","nodes":1},
            {"total":"io_write_bytes","origins":["cgroup"],"note":"at least: no agent ran for 54 s","nodes":1}],
            "coverage":{"nodes":1,"of":2,"silent":[{"device":"n2","since":2.0}]},
            "metrics":[],"series":[],"gaps":[]}"#;
        let report: JobReport = serde_json::from_str(report).unwrap();
        let mut out = Vec::new();
        let times = Times::at(model::Timestamp::from_seconds(3), jiff::tz::TimeZone::UTC);
        write(&report, &times, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("  peak memory           1.0 KiB (largest task)\n"), "{text}");
        let note =
            "  note                  processor time, written: at least: no agent ran for 54 s\n";
        assert!(text.contains(note), "{text}");
        assert!(
            text.contains("  covers                1 of 2 nodes; n2 silent since 00:00:02"),
            "{text}"
        );
        // No node is silent: the first sample of a newly started job has not arrived yet.
        let mut young = report;
        young.coverage = api::Coverage { nodes: 1, of: 2, silent: Vec::new() };
        let mut out = Vec::new();
        write(&young, &times, &mut out).unwrap();
        assert!(!String::from_utf8(out).unwrap().contains("covers"));
    }

    #[test]
    fn how_a_job_ended_and_how_much_of_its_share_it_used() {
        let report = r#"{"job":{"cluster":"site","id":7,"display_id":"7","user":"alice","uid":1000,
            "account":null,"project":null,"name":null,"queue":null,"state":"failed","state_word":null,
            "submit":null,"start":1767700000,"stop":1767700100,"exit_code":137,"part_of":null,"array_index":null,
            "types":[],"requested":{"cpus":4,"memory_bytes":8589934592},"used":{},"devices":["n1"]},"runs":[],
            "allocations":[],"nodes":[],"steps":[],"totals":{"wall_seconds":100,"cpu_seconds":100,"cores_used":1,
            "memory_peak_bytes":2147483648},"metrics":[],"series":[],"gaps":[]}"#;
        let report: JobReport = serde_json::from_str(report).unwrap();
        let times =
            Times::at(model::Timestamp::from_seconds(1_767_706_500), jiff::tz::TimeZone::UTC);
        let mut out = Vec::new();
        write(&report, &times, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for line in [
            "  start                 11:46:40",
            "  end                   11:48:20",
            "  exit code             137",
            "  left out              read, written, page faults, context switches, time throttled, time waited for \
             processor, memory and disk: no source counted it (`jobmeter explain METRIC --job ID` shows why)",
            "  processor efficiency  25.0 % of 4 cores",
            "  memory efficiency     25.0 % of 8.0 GiB",
        ] {
            assert!(text.lines().any(|is| is == line), "{line}: {text}");
        }
        // The peak of one node is compared with the request per node.
        let mut of_two = report;
        of_two.job.requested.nodes = Some(2);
        let mut out = Vec::new();
        write(&of_two, &times, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let line = "  memory efficiency     50.0 % of 4.0 GiB on each node\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn a_job_that_no_reading_covers_was_too_short() {
        let unread = Some(0.0001);
        let known = Totals { wall_seconds: 0.0, unread_seconds: unread, ..Totals::default() };
        let mut out = Vec::new();
        totals(&known, None, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(!text.contains("not read at the end") && !text.contains("no source"), "{text}");
        let why = ": the job ended before its first reading, or no agent ran\n";
        assert!(text.contains(why), "{text}");
    }

    #[test]
    fn what_is_unknown_is_named_on_one_line() {
        let known = Totals {
            wall_seconds: 2.0,
            cpu_seconds: Some(1.5),
            cpu_user_seconds: Some(1.25),
            memory_peak_bytes: Some(3.0 * 1024.0 * 1024.0),
            unread_seconds: Some(0.5),
            ..Totals::default()
        };
        let mut out = Vec::new();
        totals(&known, Some("largest task"), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "  wall time             2.000 s\n  processor time        1.500 s (user 1.250 s, system ?)\n  \
             peak memory           3.0 MiB (largest task)\n  \
             not read at the end   0.500 s: the cgroup was removed before its last reading, or no agent ran\n  \
             left out              read, written, page faults, context switches, time throttled, time waited for \
             processor, memory and disk: no source counted it (`jobmeter explain METRIC --job ID` shows why)\n"
        );
    }
}
