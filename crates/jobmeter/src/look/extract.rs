//! `jobmeter extract`: what HDF5 files of Colmet, or of the output `hdf5`, have about a job. `colmet_extract` is the same.

use crate::client::plain::note;
use anyhow::Context as _;
use colmet_files::error::FileError;
use colmet_files::reader::{Cell, Reader, Table};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The other name of the command. It may have an ending, as Colmet's program `colmet_extract.py`.
pub(crate) const NAME: &str = "colmet_extract";
/// Exit code if no record is found; that of Colmet's program.
const NO_DATA: u8 = 4;
/// The tables that Colmet's program reads. Others only have metrics that none of these has.
const FIRST_TABLES: [&str; 4] =
    ["taskstats_default", "procstats_default", "infinibandstats_default", "lustrestats_default"];
/// Columns that are always printed.
const TIME: &str = "timestamp";
const HOST: &str = "hostname";

/// Prints the records of a job in HDF5 files of Colmet or of the output `hdf5`
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example: jobmeter extract /var/lib/colmet/hdf5/data 1234 1764369000 1764372600 ac_etime,coremem | zcat"
)]
pub(crate) struct ExtractArgs {
    /// The files PREFIX.SECONDS.hdf5, or one file that ends in .hdf5
    #[arg(value_name = "PREFIX")]
    prefix: PathBuf,
    /// Number of the job; 0: records of nodes
    #[arg(value_name = "JOB", value_parser = job_number)]
    job: u64,
    /// First second since 1970
    #[arg(value_name = "START")]
    start: i64,
    /// Last second since 1970
    #[arg(value_name = "END")]
    end: i64,
    /// Columns, separated by commas; `timestamp` and `hostname` are added
    #[arg(value_name = "METRICS", value_delimiter = ',')]
    metrics: Vec<String>,
    /// A line for each record instead of JSON compressed with gzip
    #[arg(long)]
    csv: bool,
}

/// The tables have no names of clusters.
fn job_number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "it is a number without a cluster, such as 1234".to_owned())
}

/// A table of a file, and the places of the columns to print.
struct Part {
    path: PathBuf,
    reader: Reader,
    table: Table,
    columns: Vec<Option<usize>>,
    time: usize,
}

/// `jobmeter extract`.
pub(crate) fn extract(args: &ExtractArgs) -> anyhow::Result<ExitCode> {
    let mut names: Vec<&str> = Vec::new();
    for name in args.metrics.iter().map(String::as_str).chain([TIME, HOST]) {
        if !name.is_empty() && !names.contains(&name) {
            names.push(name);
        }
    }
    anyhow::ensure!(args.start <= args.end, "END {} is before START {}", args.end, args.start);
    let mut parts = Vec::new();
    let mut columns: BTreeSet<String> = BTreeSet::new();
    let (mut errors, mut is_any_read) = (Vec::new(), false);
    for path in files(&args.prefix)? {
        match parts_of(&path, args.job, &names, &mut columns).context(path.display().to_string()) {
            Ok(found) => {
                is_any_read = true;
                parts.extend(found);
            }
            Err(error) => errors.push(error),
        }
    }
    if !is_any_read && let Some(error) = errors.pop() {
        return Err(error);
    }
    for error in errors {
        note(&format!("{error:#}; its records are left out"))?;
    }
    let unknown: Vec<_> = names.iter().copied().filter(|name| !columns.contains(*name)).collect();
    if !columns.is_empty() && !unknown.is_empty() {
        note(&format!("the job's tables have no column {}", unknown.join(", ")))?;
    }
    let mut has_rows = false;
    for part in &parts {
        each(part, args, &mut |_| {
            has_rows = true;
            ControlFlow::Break(())
        })?;
    }
    if !has_rows {
        note("no record of the job in this time")?;
        return Ok(ExitCode::from(NO_DATA));
    }
    let out = BufWriter::new(io::stdout().lock());
    if args.csv {
        write_csv(&parts, args, &names, out)?
    } else {
        write_json(&parts, args, &names, out)?
    }
    Ok(ExitCode::SUCCESS)
}

/// The files of a prefix in the order of their names.
pub(crate) fn files(prefix: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if prefix.is_file() {
        return Ok(vec![prefix.to_owned()]);
    }
    let name = prefix.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let dir = prefix.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let is_one = |file: &str| {
        let rest = file.strip_prefix(&name).and_then(|rest| rest.strip_prefix('.'));
        let digits = rest.and_then(|rest| rest.strip_suffix(".hdf5")).unwrap_or_default();
        digits.len() == 10 && digits.bytes().all(|digit| digit.is_ascii_digit())
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let entry = entry.with_context(|| dir.display().to_string())?;
        if is_one(&entry.file_name().to_string_lossy()) {
            found.push(entry.path());
        }
    }
    anyhow::ensure!(!found.is_empty(), "there is no file {}.<10 digits>.hdf5", prefix.display());
    found.sort();
    Ok(found)
}

/// The tables of a file that have one of the columns.
///
/// `columns` gets the names of all their columns.
fn parts_of(
    path: &Path,
    job: u64,
    names: &[&str],
    columns: &mut BTreeSet<String>,
) -> Result<Vec<Part>, FileError> {
    let reader = || Reader::open(path);
    let mut tables = reader()?.tables(job)?;
    columns
        .extend(tables.iter().flat_map(|table| &table.columns).map(|column| column.name.clone()));
    let rank = |table: &Table| FIRST_TABLES.iter().position(|name| *name == table.name);
    tables.sort_by_key(|table| rank(table).unwrap_or(FIRST_TABLES.len()));
    let place = |table: &Table, name: &str| table.columns.iter().position(|it| it.name == name);
    let is_metric = |name: &&&str| ![TIME, HOST].contains(*name);
    let mut known: BTreeSet<&str> = BTreeSet::new();
    let mut parts = Vec::new();
    for table in tables {
        // Colmet's temperatures have no instants.
        let Some(time) = place(&table, TIME) else { continue };
        let is_first = rank(&table).is_some();
        let has = |name: &str| {
            (is_first || [TIME, HOST].contains(&name) || !known.contains(name))
                .then(|| place(&table, name))
                .flatten()
        };
        let columns: Vec<_> = names.iter().map(|name| has(name)).collect();
        let metrics = names.iter().filter(is_metric);
        let new: Vec<&str> = metrics.filter(|name| has(name).is_some()).copied().collect();
        // Without metrics, the instants and hosts of the first tables.
        if !new.is_empty() || (is_first && names.iter().all(|name| !is_metric(&name))) {
            parts.push(Part { path: path.to_owned(), reader: reader()?, table, columns, time });
        }
        known.extend(new);
    }
    Ok(parts)
}

/// Passes the rows of a table within the time.
fn each(
    part: &Part,
    args: &ExtractArgs,
    row: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
) -> anyhow::Result<()> {
    let time = part.table.columns.get(part.time);
    let mut of_time = |bytes: &[u8]| match time.and_then(|time| time.cell(bytes)) {
        Some(Cell::Integer(second)) if (args.start..=args.end).contains(&second) => row(bytes),
        _ => ControlFlow::Continue(()),
    };
    let read = part.reader.rows(&part.table, &mut of_time);
    read.with_context(|| part.path.display().to_string())
}

/// The value of a column; null if the table has no such column.
fn value(part: &Part, column: Option<usize>, row: &[u8]) -> Value {
    match column.and_then(|place| part.table.columns.get(place)).and_then(|it| it.cell(row)) {
        Some(Cell::Integer(number)) => number.into(),
        Some(Cell::Float(number)) => number.into(),
        Some(Cell::Text(text)) => text.into(),
        None => Value::Null,
    }
}

/// Writes an object of lists. The tables are read once for each list, so memory does not grow with them.
fn write_json(
    parts: &[Part],
    args: &ExtractArgs,
    names: &[&str],
    out: impl Write,
) -> anyhow::Result<()> {
    let mut out = GzEncoder::new(out, Compression::default());
    for (place, name) in names.iter().enumerate() {
        let separator = if place == 0 { "{" } else { ", " };
        write!(out, "{separator}{}: [", Value::from(*name))?;
        let mut separator = "";
        for part in parts {
            let column = part.columns.get(place).copied().flatten();
            let mut written = Ok(());
            each(part, args, &mut |row| {
                written = write!(out, "{separator}{}", value(part, column, row));
                separator = ", ";
                if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            written?;
        }
        write!(out, "]")?;
    }
    write!(out, "}}")?;
    out.finish()?.flush()?;
    Ok(())
}

fn write_csv(
    parts: &[Part],
    args: &ExtractArgs,
    names: &[&str],
    out: impl Write,
) -> anyhow::Result<()> {
    let mut out = csv::Writer::from_writer(out);
    out.write_record(names)?;
    for part in parts {
        let mut written = Ok(());
        each(part, args, &mut |row| {
            let cells = part.columns.iter().map(|column| match value(part, *column, row) {
                Value::String(text) => text,
                Value::Null => String::new(),
                other => other.to_string(),
            });
            written = out.write_record(cells);
            if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        written?;
    }
    out.flush()?;
    Ok(())
}
