//! What a job used, for people: at the end of `jobmeter run`, and for `jobmeter job`.

use crate::show::{bytes, count, seconds};
use api::{JobReport, Totals};
use std::io::{self, Write};

/// Writes a job's report.
pub(crate) fn write(report: &JobReport, out: &mut impl Write) -> io::Result<()> {
    let job = &report.job;
    let name = job.name.as_deref().map_or_else(String::new, |name| format!(" {name}"));
    writeln!(out, "job {}:{}{name}, {}", job.cluster, job.spelling, job.state)?;
    let user = job.user.clone().or_else(|| job.uid.map(|uid| uid.to_string()));
    line(out, "user", user)?;
    line(out, "nodes", Some(job.devices.join(", ")))?;
    line(out, "exit code", job.exit_code.map(|code| code.to_string()))?;
    totals(&report.totals, out)?;
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

/// Writes what was used, a line for each thing that is known.
pub(crate) fn totals(totals: &Totals, out: &mut impl Write) -> io::Result<()> {
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
    line(out, "peak memory", totals.memory_peak_bytes.map(bytes))?;
    line(out, "read", totals.io_read_bytes.map(bytes))?;
    line(out, "written", totals.io_write_bytes.map(bytes))?;
    line(out, "minor page faults", number(totals.minor_faults))?;
    line(out, "major page faults", number(totals.major_faults))?;
    line(out, "voluntary switches", number(totals.voluntary_switches))?;
    line(out, "forced switches", number(totals.involuntary_switches))?;
    line(out, "throttled", time(totals.throttled_seconds))?;
    line(out, "waited for processor", time(totals.pressure_cpu_seconds))?;
    line(out, "waited for memory", time(totals.pressure_memory_seconds))?;
    line(out, "waited for disk", time(totals.pressure_io_seconds))
}

fn line(out: &mut impl Write, what: &str, value: Option<String>) -> io::Result<()> {
    match value.filter(|value| !value.is_empty()) {
        Some(value) => writeln!(out, "  {what:<22}{value}"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unknown_has_no_line() {
        let known = Totals {
            wall_seconds: 2.0,
            cpu_seconds: Some(1.5),
            cpu_user_seconds: Some(1.25),
            memory_peak_bytes: Some(3.0 * 1024.0 * 1024.0),
            ..Totals::default()
        };
        let mut out = Vec::new();
        totals(&known, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "  wall time             2.000 s\n  processor time        1.500 s (user 1.250 s, system ?)\n  \
             peak memory           3.0 MiB\n"
        );
    }
}
