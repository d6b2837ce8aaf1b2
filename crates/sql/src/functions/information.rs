//! `information_schema`, `SHOW TABLES` and `DESCRIBE`: our tables and their columns only.
//!
//! They are the same for every user. Access control applies to the rows of the tables.

use crate::SqlError;
use crate::common::schema::{Column, Table};
use datafusion::arrow::array::{ArrayRef, Int64Array, StringArray};
use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::{MemTable, MemorySchemaProvider, SchemaProvider};
use datafusion::error::Result;
use datafusion::execution::context::SessionContext;
use datafusion::sql::parser::Statement as Parsed;
use datafusion::sql::sqlparser::ast::{ShowStatementOptions, Statement};
use pg_wire::scanner::Scanner;
use std::borrow::Cow;
use std::sync::Arc;

/// Returns the SELECT for `SHOW TABLES` or `DESCRIBE TABLE`, or `None` for other statements.
pub(crate) fn as_select(statement: &Parsed) -> Result<Option<String>, SqlError> {
    let Parsed::Statement(statement) = statement else { return Ok(None) };
    match &**statement {
        Statement::ShowTables {
            show_options: ShowStatementOptions { filter_position: None, .. },
            ..
        } => Ok(Some("SELECT table_name FROM information_schema.tables".to_owned())),
        Statement::ExplainTable { table_name, .. } => {
            let name = table_name.to_string();
            let known = Table::ALL.into_iter().find(|table| table.name() == name);
            let Some(table) = known else {
                return Err(SqlError::Statement(crate::common::error_texts::of_plan(&format!(
                    "table '{name}' not found"
                ))));
            };
            Ok(Some(format!(
                "SELECT column_name, data_type, is_nullable FROM information_schema.columns \
                 WHERE table_name = '{}' ORDER BY ordinal_position",
                table.name()
            )))
        }
        _ => Ok(None),
    }
}

/// Registers the tables of `information_schema`.
pub(crate) fn register(context: &SessionContext) -> Result<()> {
    let provider = MemorySchemaProvider::new();
    for (name, batch) in [("tables", tables()?), ("columns", columns()?)] {
        let table = MemTable::try_new(batch.schema(), vec![vec![batch]])?;
        provider.register_table(name.to_owned(), Arc::new(table))?;
    }
    let catalog = context.catalog_names().first().and_then(|name| context.catalog(name));
    if let Some(catalog) = catalog {
        catalog.register_schema("information_schema", Arc::new(provider))?;
    }
    Ok(())
}

fn texts<'a>(texts: impl Iterator<Item = &'a str>) -> ArrayRef {
    Arc::new(texts.map(Some).collect::<StringArray>())
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> Result<RecordBatch> {
    let field =
        |(name, array): &(&str, ArrayRef)| Field::new(*name, array.data_type().clone(), false);
    let schema = Schema::new(columns.iter().map(field).collect::<Vec<_>>());
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    Ok(RecordBatch::try_new(Arc::new(schema), arrays)?)
}

fn tables() -> Result<RecordBatch> {
    let all = || Table::ALL.into_iter();
    batch(vec![
        ("table_catalog", texts(all().map(|_| "jobmeter"))),
        ("table_schema", texts(all().map(|_| "public"))),
        ("table_name", texts(all().map(Table::name))),
        ("table_type", texts(all().map(|_| "BASE TABLE"))),
    ])
}

fn columns() -> Result<RecordBatch> {
    let all = || {
        Table::ALL.into_iter().flat_map(|table| {
            table.columns().iter().zip(1_i64..).map(move |(column, nth)| (table, nth, column))
        })
    };
    let kind = |column: Column| match column {
        Column::Time => "timestamp with time zone",
        Column::Text => "text",
        Column::Number => "bigint",
        Column::Value => "double precision",
    };
    let numbers: Int64Array = all().map(|(_, nth, _)| nth).collect::<Vec<_>>().into();
    batch(vec![
        ("table_catalog", texts(all().map(|_| "jobmeter"))),
        ("table_schema", texts(all().map(|_| "public"))),
        ("table_name", texts(all().map(|(table, ..)| table.name()))),
        ("column_name", texts(all().map(|(_, _, column)| column.0))),
        ("ordinal_position", Arc::new(numbers)),
        ("data_type", texts(all().map(|(_, _, column)| kind(column.1)))),
        ("is_nullable", texts(all().map(|(_, _, column)| if column.2 { "YES" } else { "NO" }))),
    ])
}

/// The statement that the engine parses: that of `TABLE name` is `SELECT * FROM name`.
pub(crate) fn without_table(text: &str) -> Cow<'_, str> {
    let mut scanner = Scanner::new(text);
    match scanner.token() {
        Ok(Some((at, token))) if token.is("table") => {
            let (before, after) = (text.get(..at), text.get(scanner.at()..));
            let [before, after] = [before, after].map(Option::unwrap_or_default);
            Cow::Owned(format!("{before}SELECT * FROM{after}"))
        }
        _ => Cow::Borrowed(text),
    }
}
