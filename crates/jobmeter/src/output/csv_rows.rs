//! Lists from the server as CSV, for `--csv`.

use crate::output::times::machine_value;
use serde_json::{Map, Value};
use std::io::Write;

/// Writes a list as CSV if `csv` is set, the flag `--csv`; returns whether it did. The columns come from the list's type:
/// every answer has the same columns, and an empty answer has a header.
pub(crate) fn written(
    csv: bool,
    columns: &[String],
    list: impl FnOnce() -> anyhow::Result<String>,
    out: &mut impl Write,
) -> anyhow::Result<bool> {
    if !csv {
        return Ok(false);
    }
    write(columns, machine_value(serde_json::from_str(&list()?)?), out)?;
    out.flush()?;
    Ok(true)
}

fn write(columns: &[String], list: Value, out: &mut impl Write) -> anyhow::Result<()> {
    let Value::Array(list) = list else { anyhow::bail!("the response is not a list") };
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(columns)?;
    for row in list {
        let Value::Object(mut row) = row else {
            anyhow::bail!("a row of the response has no fields")
        };
        if columns.last().is_some_and(|last| last == api::MORE) {
            let known = |name: &String| columns.contains(name);
            let more: Map<String, Value> = row
                .iter()
                .filter(|(name, _)| !known(name))
                .map(|(n, v)| (n.clone(), v.clone()))
                .collect();
            row.insert(
                api::MORE.to_owned(),
                if more.is_empty() { Value::Null } else { more.into() },
            );
        }
        writer.write_record(
            columns.iter().map(|name| row.get(name).map_or_else(String::new, cell)),
        )?;
    }
    Ok(writer.flush()?)
}

/// A value as one cell: a list of simple values is separated by blanks; a nested value, and a list with an entry that is
/// empty or contains a blank, is JSON.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => api::csv_cell(text).into_owned(),
        Value::Array(list) if list.iter().all(is_word) => {
            list.iter().map(cell).collect::<Vec<_>>().join(" ")
        }
        nested @ (Value::Array(_) | Value::Object(_)) => {
            api::csv_cell(&nested.to_string()).into_owned()
        }
        other => other.to_string(),
    }
}

/// Whether a value is one word in a list that is separated by blanks.
fn is_word(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.is_empty() && !text.contains(char::is_whitespace),
        other => !other.is_object() && !other.is_array(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_do_not_depend_on_the_rows() {
        let columns = ["cluster", "id", "start", "devices", "used", api::MORE].map(str::to_owned);
        let list = serde_json::json!([
            {"id": 7, "cluster": "slurm", "devices": ["n1", "n2"], "start": 1_767_706_500.25, "used": {"cpus": 4}},
            {"id": 8, "cluster": "slurm", "name": "a, \"b\"", "start": null},
        ]);
        let mut out = Vec::new();
        write(&columns, machine_value(list), &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out.clone()).unwrap(),
            "cluster,id,start,devices,used,more\n\
             slurm,7,2026-01-06T13:35:00.25Z,n1 n2,\"{\"\"cpus\"\":4}\",\n\
             slurm,8,,,,\"{\"\"name\"\":\"\"a, \\\"\"b\\\"\"\"\"}\"\n"
        );
        // A CSV parser returns nested values as they are.
        let mut parsed = csv::Reader::from_reader(&out[..]);
        let rows: Vec<csv::StringRecord> = parsed.records().collect::<Result<_, _>>().unwrap();
        let json = |row: usize, column: usize| -> Value {
            serde_json::from_str(&rows[row][column]).unwrap()
        };
        assert_eq!(json(0, 4), serde_json::json!({"cpus": 4}));
        assert_eq!(json(1, 5), serde_json::json!({"name": "a, \"b\""}));
        assert_eq!(cell(&serde_json::json!(["a = 1s", "b"])), r#"["a = 1s","b"]"#);
        assert_eq!(cell(&serde_json::json!(["a", ""])), r#"["a",""]"#);
        let mut out = Vec::new();
        write(&columns, serde_json::json!([]), &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "cluster,id,start,devices,used,more\n");
        let mut out = Vec::new();
        let columns = ["name", "value", api::MORE].map(str::to_owned);
        write(&columns, serde_json::json!([{"name": "=1+1", "value": -1}]), &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "name,value,more\n'=1+1,-1,\n");
    }
}
