//! HDF5 files of Colmet's collector, and those of the output `hdf5`.

use super::Request;
use crate::compare::columns::{Columns, Mapped, colmet};
use crate::compare::rows::{Job, Row, Sink};
use crate::look::extract;
use anyhow::Context as _;
use colmet_files::reader::{Cell, Column, Reader, Table};
use model::Timestamp;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

/// Columns that are no values.
const TIME: &str = "timestamp";
const HOST: &str = "hostname";
/// What Colmet writes for a value that is missing.
const MISSING: f64 = -1.0;

/// Reads the files of a prefix.
pub(super) fn read(
    prefix: &Path,
    request: &Request<'_>,
    sink: &mut Sink<'_>,
) -> anyhow::Result<()> {
    let hint = "write the prefix of HDF5 files, or a server as http://HOST:PORT";
    for path in extract::files(prefix).context(hint)? {
        read_file(&path, request, sink).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn read_file(path: &Path, request: &Request<'_>, sink: &mut Sink<'_>) -> anyhow::Result<()> {
    let reader = Reader::open(path)?;
    let only = request.job_parts().map(|(_, id)| id);
    for job in reader.jobs()? {
        let id = job.to_string();
        if only.is_some_and(|only| only != id) {
            continue;
        }
        // Job 0 are the records of nodes.
        let of = (job > 0).then_some(Job { cluster: None, id: &id });
        for table in reader.tables(job)? {
            read_table(&reader, &table, of, request, sink)?;
        }
    }
    Ok(())
}

fn read_table(
    reader: &Reader,
    table: &Table,
    job: Option<Job<'_>>,
    request: &Request<'_>,
    sink: &mut Sink<'_>,
) -> anyhow::Result<()> {
    let column = |name: &str| table.columns.iter().find(|it| it.name == name);
    // Colmet's temperatures have neither.
    let (Some(time), Some(host)) = (column(TIME), column(HOST)) else { return Ok(()) };
    let columns: &Columns = colmet();
    let values: Vec<(&Column, &Mapped, BTreeMap<String, String>)> = table
        .columns
        .iter()
        .filter_map(|it| Some((it, columns.named(&table.name, &it.name)?)))
        .map(|(it, mapped)| (it, mapped, mapped.labels()))
        .collect();
    let mut taken = Ok(());
    let mut take = |row: &[u8]| -> anyhow::Result<()> {
        let Some(Cell::Integer(second)) = time.cell(row) else { return Ok(()) };
        let at = second.saturating_mul(Timestamp::SECOND);
        if !(request.from..request.to).contains(&at) {
            return Ok(());
        }
        let Some(Cell::Text(device)) = host.cell(row) else { return Ok(()) };
        for (column, mapped, labels) in &values {
            let theirs = match column.cell(row) {
                Some(Cell::Integer(number)) => number as f64,
                Some(Cell::Float(number)) => number,
                _ => continue,
            };
            if theirs == MISSING {
                continue;
            }
            let (metric, grows) = (mapped.metric, mapped.grows);
            let value = mapped.scale.to_ours(theirs);
            sink.add(&Row { device: &device, metric, job, labels, at, value, grows })?;
        }
        Ok(())
    };
    reader.rows(table, &mut |row| {
        taken = take(row);
        if taken.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    taken
}
