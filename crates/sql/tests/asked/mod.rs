//! An engine over a lab, and its answers as texts.

#![allow(dead_code, reason = "each test uses a part of it")]

use crate::lab::{Lab, at};
use futures::StreamExt;
use jobs::Reader;
use query::{Asker, Settings};
use sql::arrow::util::display::{ArrayFormatter, FormatOptions};
use sql::{Limits, Sql, SqlError};

pub(crate) fn engine(lab: &Lab, limits: Limits) -> Sql {
    Sql::new(lab.questions(Settings::default()), limits).unwrap()
}

/// The rows as texts, one line each, values divided by blanks.
pub(crate) async fn ask_as(sql: &Sql, reader: Reader, text: &str) -> Result<Vec<String>, SqlError> {
    let mut rows = sql.query(text, Asker::new(reader, at(7200.0))).await?;
    let options = FormatOptions::default().with_null("-");
    let mut lines = Vec::new();
    while let Some(batch) = rows.next().await {
        let batch = batch?;
        let columns: Vec<ArrayFormatter<'_>> = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column, &options).unwrap())
            .collect();
        for row in 0..batch.num_rows() {
            let cells: Vec<String> = columns.iter().map(|c| c.value(row).to_string()).collect();
            lines.push(cells.join(" "));
        }
    }
    Ok(lines)
}

pub(crate) async fn ask(sql: &Sql, text: &str) -> Vec<String> {
    ask_as(sql, Reader::Everything, text).await.unwrap()
}

pub(crate) async fn refused(sql: &Sql, text: &str) -> (u16, String) {
    let error = ask_as(sql, Reader::Everything, text).await.unwrap_err();
    (error.status(), error.to_string())
}
