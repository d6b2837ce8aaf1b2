//! `jobmeter verify`: checks a server's data folder without changing it.

use crate::output::options::JsonOption;
use crate::output::show::counted;
use anyhow::{Context, bail};
use config::paths::{ACKNOWLEDGED_FILE, DEMAND_FILE, JOBS_FILE, SAMPLES_DIR, STORE_DIR, SamplesIn};
use serde::Serialize;
use serde::de::IgnoredAny;
use std::io::{self, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use store::{Finding, RealDisk, Verified};

/// Exit code of a damaged folder; 2 means that the check itself failed.
const DAMAGED: u8 = 1;

/// The JSON answer for scripts.
#[derive(Debug, Serialize)]
struct Answer {
    good: bool,
    samples_in_database: bool,
    blocks: u64,
    archived_blocks: u64,
    samples: u64,
    block_bytes: u64,
    log_segments: u64,
    log_records: u64,
    log_bytes: u64,
    findings: Vec<Found>,
    findings_dropped: u64,
}

#[derive(Debug, Serialize)]
struct Found {
    path: PathBuf,
    what: String,
    cost: String,
    harmless: bool,
}

/// Checks a server's data folder for damage and its consequences; changes nothing
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: jobmeter verify --data /var/lib/jobmeter")]
pub(crate) struct VerifyArgs {
    /// The server's --data, or that of `up`
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    #[command(flatten)]
    format: JsonOption,
}

/// Checks the folder, reports the findings, and exits with 1 if data is lost.
pub(crate) fn verify(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let data = data_dir(&args.data)?;
    let progress = crate::client::progress::Progress::start("checking");
    // Only links to the folder itself are followed: its owner could replace anything in it.
    let data = std::fs::canonicalize(&data).with_context(|| data.display().to_string())?;
    let samples_in =
        config::paths::samples_in(&data).with_context(|| data.display().to_string())?;
    let mut verified = match samples_in.folder {
        true => store::verify(&RealDisk, &data.join(SAMPLES_DIR))?,
        false => Verified::default(),
    };
    if samples_in.database {
        verified.findings.extend(record(&data.join(ACKNOWLEDGED_FILE)));
    }
    let cost = "jobs, their users and their nodes; samples are intact";
    verified.findings.extend(database(&data.join(JOBS_FILE), cost));
    let demand = data.join(DEMAND_FILE);
    // A server of an earlier version does not have this file.
    if demand.try_exists().with_context(|| demand.display().to_string())? {
        let cost = "requests to agents and their marks; samples are intact";
        verified.findings.extend(database(&demand, cost));
    }
    drop(progress);
    let good = verified.is_good();
    let mut out = io::stdout().lock();
    if args.format.json {
        serde_json::to_writer(&mut out, &answer(verified, samples_in.database))?;
        writeln!(out)?;
    } else {
        write_counts(&verified, samples_in, &mut out)?;
        write_findings(&verified, &mut out)?;
    }
    Ok(ExitCode::from(if good { 0 } else { DAMAGED }))
}

/// A server's data folder: the given one, or the one inside the folder of `up`.
pub(crate) fn data_dir(given: &Path) -> anyhow::Result<PathBuf> {
    if let Some(found) = config::paths::store_in(given) {
        config::paths::outside_of_stores(&found).map_err(anyhow::Error::msg)?;
        return Ok(found);
    }
    // An unreadable folder must not count as an empty one.
    let shown = given.display();
    for dir in [given.to_owned(), given.join(STORE_DIR), given.join(SAMPLES_DIR)] {
        match std::fs::read_dir(&dir) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                bail!("{}: {error}; run as root, or as the server's user", dir.display())
            }
            Err(error) if dir == given => bail!(
                "{shown}: {error}; choose a server's folder with \
                                                 --data"
            ),
            _ => {}
        }
    }
    bail!("{shown}: it contains no `{SAMPLES_DIR}`; choose a server's folder with --data")
}

/// Damage of the record of acknowledged batches.
fn record(path: &Path) -> Option<Finding> {
    let parsed = store::open_plain(path).map_err(|error| error.to_string()).and_then(|file| {
        let read = serde_json::from_reader::<_, IgnoredAny>(BufReader::new(file));
        read.map_err(|_| "it is no JSON".to_owned())
    });
    let cost = "gaps of batches that a database restored from a dump lacks; a running server replaces the file";
    Some(Finding {
        path: path.to_owned(),
        what: parsed.err()?,
        cost: cost.to_owned(),
        is_harmless: true,
    })
}

fn database(path: &Path, cost: &str) -> Vec<Finding> {
    let finding =
        |what| Finding { path: path.to_owned(), what, cost: cost.to_owned(), is_harmless: false };
    match jobs::verify(path) {
        Ok(findings) => findings.into_iter().map(finding).collect(),
        Err(error) => {
            // The finding names the path already.
            let (what, shown) = (error.to_string(), format!("{}: ", path.display()));
            vec![finding(what.strip_prefix(&shown).map_or(what.clone(), str::to_owned))]
        }
    }
}

fn answer(verified: Verified, samples_in_database: bool) -> Answer {
    let found = |finding: Finding| {
        let Finding { path, what, cost, is_harmless } = finding;
        Found { path, what, cost, harmless: is_harmless }
    };
    Answer {
        good: verified.is_good(),
        samples_in_database,
        blocks: verified.blocks,
        archived_blocks: verified.archived,
        samples: verified.samples,
        block_bytes: verified.block_bytes,
        log_segments: verified.segments,
        log_records: verified.records,
        log_bytes: verified.log_bytes,
        findings_dropped: verified.findings_dropped,
        findings: verified.findings.into_iter().map(found).collect(),
    }
}

fn write_counts(
    verified: &Verified,
    samples_in: SamplesIn,
    out: &mut impl Write,
) -> io::Result<()> {
    if samples_in.database {
        writeln!(out, "samples are in a database; `jobmeter db status` reports on it")?;
    }
    if !samples_in.folder {
        return Ok(());
    }
    let Verified { blocks, archived, samples, block_bytes, segments, records, log_bytes, .. } =
        verified;
    let (blocks, samples) = (counted(*blocks, "block"), counted(*samples, "sample"));
    writeln!(out, "{blocks}, {samples} in blocks, {block_bytes} bytes")?;
    if *archived > 0 {
        writeln!(out, "{archived} of the blocks in the archive")?;
    }
    let segments = counted(*segments, "log segment");
    let batches = if *records == 1 { "batch" } else { "batches" };
    writeln!(out, "{segments}, {records} {batches} in the log, {log_bytes} bytes")
}

fn write_findings(verified: &Verified, out: &mut impl Write) -> io::Result<()> {
    for Finding { path, what, cost, is_harmless } in &verified.findings {
        let mark = if *is_harmless { "note" } else { "DAMAGED" };
        writeln!(out, "{mark}: {}: {what}\n    costs: {cost}", path.display())?;
    }
    if verified.findings_dropped > 0 {
        writeln!(out, "and {} more", verified.findings_dropped)?;
    }
    let last = match (verified.is_good(), verified.findings.is_empty()) {
        (true, true) => "no damage",
        (true, false) => "nothing is lost",
        (false, _) => "data is lost",
    };
    writeln!(out, "{last}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_agrees_with_the_costs() {
        let last = |harmless: &[bool]| {
            let finding = |is_harmless: &bool| Finding {
                path: PathBuf::new(),
                what: String::new(),
                cost: String::new(),
                is_harmless: *is_harmless,
            };
            let findings = harmless.iter().map(finding).collect();
            let mut out = Vec::new();
            write_findings(&Verified { findings, ..Verified::default() }, &mut out).unwrap();
            String::from_utf8(out).unwrap().lines().last().unwrap().to_owned()
        };
        assert_eq!(last(&[]), "no damage");
        assert_eq!(last(&[true]), "nothing is lost");
        assert_eq!(last(&[true, false]), "data is lost");
    }
}
