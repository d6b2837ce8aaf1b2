//! Lists of the server as CSV, for `--csv`.

use crate::times::machine_value;
use clap::ArgMatches;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::io::Write;

/// Columns that come first, in this order; the others follow by name.
const FIRST: [&str; 12] = [
    "time", "cluster", "id", "number", "device", "name", "source", "user", "who", "state", "start",
    "stop",
];

/// Writes a list as CSV where `--csv` is given; whether it did.
pub(crate) fn written(
    matches: &ArgMatches,
    list: impl FnOnce() -> anyhow::Result<String>,
    out: &mut impl Write,
) -> anyhow::Result<bool> {
    if !matches.get_flag("csv") {
        return Ok(false);
    }
    write(machine_value(serde_json::from_str(&list()?)?), out)?;
    out.flush()?;
    Ok(true)
}

fn write(list: Value, out: &mut impl Write) -> anyhow::Result<()> {
    let Value::Array(list) = list else { anyhow::bail!("the answer is no list") };
    let rows: Vec<Map<String, Value>> = list
        .into_iter()
        .map(|row| match row {
            Value::Object(row) => row,
            other => Map::from_iter([("value".to_owned(), other)]),
        })
        .collect();
    let names: BTreeSet<&str> =
        rows.iter().flat_map(|row| row.keys().map(String::as_str)).collect();
    let first = FIRST.into_iter().filter(|name| names.contains(name));
    let columns: Vec<&str> =
        first.chain(names.iter().copied().filter(|name| !FIRST.contains(name))).collect();
    let mut writer = csv::Writer::from_writer(out);
    if !columns.is_empty() {
        writer.write_record(&columns)?;
    }
    for row in &rows {
        writer.write_record(
            columns.iter().map(|name| row.get(*name).map_or_else(String::new, cell)),
        )?;
    }
    Ok(writer.flush()?)
}

/// A value as one cell: a list of simple values with blanks, anything deeper as JSON.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(list) if !list.iter().any(|one| one.is_object() || one.is_array()) => {
            list.iter().map(cell).collect::<Vec<_>>().join(" ")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_one_header_and_a_line_each() {
        let list = serde_json::json!([
            {"id": 7, "cluster": "slurm", "devices": ["n1", "n2"], "start": 1_767_706_500.25, "used": {"cpus": 4}},
            {"id": 8, "cluster": "slurm", "name": "a, \"b\"", "stop": null},
        ]);
        let mut out = Vec::new();
        write(machine_value(list), &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "cluster,id,name,start,stop,devices,used\n\
             slurm,7,,2026-01-06T13:35:00.25+00:00,,n1 n2,\"{\"\"cpus\"\":4}\"\n\
             slurm,8,\"a, \"\"b\"\"\",,,,\n"
        );
        let mut out = Vec::new();
        write(serde_json::json!([]), &mut out).unwrap();
        assert!(out.is_empty());
    }
}
