//! An SQL engine over a test lab, with results as text.

#![allow(dead_code, reason = "each test uses a part of it")]

use crate::lab::{Lab, at};
use futures::StreamExt;
use jobs::Reader;
use query::{QueryContext, Settings};
use sql::arrow::array::RecordBatch;
use sql::arrow::datatypes::Schema;
use sql::arrow::error::ArrowError;
use sql::arrow::util::display::{ArrayFormatter, FormatOptions};
use sql::{Encode, Encoding, Form, Launch, Limits, Sql, SqlError};

/// Writes each row on its own line, with values separated by blanks.
struct Lines;

pub(crate) fn lines(_: Form<'_>, _: &Schema) -> (Box<dyn Encode>, Vec<u8>) {
    (Box::new(Lines), Vec::new())
}

impl Encode for Lines {
    fn rows(&mut self, batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
        let options = FormatOptions::default().with_null("-");
        let columns =
            batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let mut text = String::new();
        for row in 0..batch.num_rows() {
            let cells: Vec<String> = columns.iter().map(|c| c.value(row).to_string()).collect();
            text.push_str(&cells.join(" "));
            text.push('\n');
        }
        Ok(text.into_bytes())
    }

    fn end(&self) -> &'static [u8] {
        b""
    }
}

pub(crate) fn engine(lab: &Lab, limits: Limits) -> Sql {
    engine_with(lab, Settings::default(), limits)
}

pub(crate) fn engine_with(lab: &Lab, settings: Settings, limits: Limits) -> Sql {
    Sql::new(lab.engine(settings), limits, Launch::Threads(lines), Some(lines)).unwrap()
}

/// Runs a statement. Returns a line per row, with values separated by blanks.
pub(crate) async fn run_sql_as(
    sql: &Sql,
    reader: Reader,
    text: &str,
) -> Result<Vec<String>, SqlError> {
    request_in(sql, reader, None, text).await.map(|(rows, _)| rows)
}

/// Runs a statement in a time zone. Returns also the positions of its time columns.
pub(crate) async fn request_in(
    sql: &Sql,
    reader: Reader,
    zone: Option<&str>,
    text: &str,
) -> Result<(Vec<String>, Vec<usize>), SqlError> {
    let mut rows =
        sql.query(text, zone, QueryContext::new(reader, at(7200.0)), Encoding::default()).await?;
    let times = rows.times().to_vec();
    let mut text = Vec::new();
    while let Some(piece) = rows.next().await {
        text.extend(piece?.text);
    }
    Ok((String::from_utf8(text).unwrap().lines().map(str::to_owned).collect(), times))
}

pub(crate) async fn run_sql(sql: &Sql, text: &str) -> Vec<String> {
    run_sql_as(sql, Reader::Everything, text).await.unwrap()
}

pub(crate) async fn rejected(sql: &Sql, text: &str) -> (u16, String) {
    let error = run_sql_as(sql, Reader::Everything, text).await.unwrap_err();
    (error.status(), error.to_string())
}
