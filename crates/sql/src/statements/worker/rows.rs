//! Encoding of table rows as messages, and decoding into columns in the worker.
//!
//! Samples of one series share their texts. A message contains each text once, and each row refers to its position.

use super::bytes::{MessageReader, MessageWriter};
use crate::common::schema::{Column, Table};
use crate::statements::columns::{
    Cell, batch_of_rows, finish, number_array, text_array, time_array, value_array,
};
use datafusion::arrow::array::{ArrayRef, TimestampMicrosecondArray};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::record_batch::RecordBatch;
use query::{Line, RowBatch};
use std::sync::Arc;

/// Kinds of row messages: samples or cells.
const SAMPLES: u8 = 0;
const CELLS: u8 = 1;
/// Kinds of sample columns.
const TIMES: u8 = 0;
const VALUES: u8 = 1;
const TEXTS: u8 = 2;
const NUMBERS: u8 = 3;
const VALUES_OR_NULL: u8 = 4;

/// Appends rows of a table of samples.
pub(crate) fn put_samples(put: &mut MessageWriter, table: Table, kept: &[usize], rows: &RowBatch) {
    put.byte(SAMPLES);
    put.count(rows.len());
    let columns = table.columns();
    for place in kept {
        match columns.get(*place).map_or("", |column| column.0) {
            "timestamp" => {
                put.byte(TIMES);
                rows.times.iter().for_each(|at| put.i64(*at));
            }
            "value" => {
                if rows.has_nulls() {
                    put.byte(VALUES_OR_NULL);
                    put.all(rows.values.iter().enumerate(), |put, (row, value)| {
                        put.maybe(rows.is_valid(row).then_some(*value), MessageWriter::f64);
                    });
                } else {
                    put.byte(VALUES);
                    rows.values.iter().for_each(|value| put.f64(*value));
                }
            }
            name @ ("device_id" | "metric_id" | "labels" | "cluster") => {
                put.byte(TEXTS);
                put.all(rows.lines.iter(), |put, line| {
                    put.maybe(text(name, line), MessageWriter::text)
                });
            }
            name => {
                put.byte(NUMBERS);
                put.all(rows.lines.iter(), |put, line| {
                    put.maybe(number(name, line), MessageWriter::i64)
                });
            }
        }
    }
    put.all(rows.places.iter(), |put, place| put.u32(*place));
}

fn text<'a>(column: &str, line: &'a Line) -> Option<&'a str> {
    match column {
        "device_id" => Some(line.device.as_str()),
        "metric_id" => Some(&line.metric),
        // Rows of other programs may have none.
        "labels" => Some(&*line.labels).filter(|labels| *labels != "null"),
        _ => line.job.as_ref().map(|job| job.cluster.as_str()),
    }
}

fn number(column: &str, line: &Line) -> Option<i64> {
    match column {
        "start_time" => line.allocation.map(|allocation| allocation.0.0),
        "stop_time" => line.allocation.and_then(|allocation| allocation.1).map(|at| at.0),
        _ => line.job.as_ref().map(|job| job.id.get()),
    }
}

/// Appends rows of a small table with the requested columns.
pub(crate) fn put_cells(put: &mut MessageWriter, kept: &[usize], rows: &[Vec<Cell>]) {
    put.byte(CELLS);
    put.all(rows.iter(), |put, row| {
        for place in kept {
            match row.get(*place) {
                Some(Cell::Time(at)) => {
                    put.byte(1);
                    put.i64(*at);
                }
                Some(Cell::Text(text)) => {
                    put.byte(2);
                    put.text(text);
                }
                Some(Cell::Number(number)) => {
                    put.byte(3);
                    put.i64(*number);
                }
                Some(Cell::Value(value)) => {
                    put.byte(4);
                    put.f64(*value);
                }
                Some(Cell::Missing) | None => put.byte(0),
            }
        }
        // A row without columns also takes one byte, so that a message has no more rows than bytes.
        put.byte(0);
    });
}

/// Decodes the rows of a message into columns of the engine.
pub(crate) fn batch(
    message: &[u8],
    table: Table,
    kept: &[usize],
    schema: &SchemaRef,
) -> Result<RecordBatch, ArrowError> {
    let mut take = MessageReader::new(message);
    let read = match take.byte() {
        Some(SAMPLES) => samples(&mut take, kept.len(), schema),
        Some(CELLS) => cells(&mut take, table, kept, schema),
        _ => None,
    };
    let broken = || Err(ArrowError::ComputeError("rows that cannot be read".to_owned()));
    read.filter(|_| take.is_done()).unwrap_or_else(broken)
}

/// A column of samples before the rows' positions are decoded.
enum Read {
    Done(ArrayRef),
    Texts(Vec<Option<String>>),
    Numbers(Vec<Option<i64>>),
}

fn samples(
    take: &mut MessageReader<'_>,
    columns: usize,
    schema: &SchemaRef,
) -> Option<Result<RecordBatch, ArrowError>> {
    let count = take.count()?;
    let mut read = Vec::with_capacity(columns);
    for nth in 0..columns {
        read.push(match take.byte()? {
            TIMES => {
                let times: Vec<i64> = (0..count).map(|_| take.i64()).collect::<Option<_>>()?;
                Read::Done(time_array(times.into(), schema, nth))
            }
            VALUES => {
                let values: Vec<f64> = (0..count).map(|_| take.f64()).collect::<Option<_>>()?;
                Read::Done(value_array(values))
            }
            VALUES_OR_NULL => {
                let values: Vec<Option<f64>> = take.all(|take| take.maybe(MessageReader::f64))?;
                Read::Done(value_array(values))
            }
            TEXTS => Read::Texts(take.all(|take| take.maybe(MessageReader::owned))?),
            NUMBERS => Read::Numbers(take.all(|take| take.maybe(MessageReader::i64))?),
            _ => return None,
        });
    }
    let places: Vec<u32> = take.all(MessageReader::u32)?;
    let array = |(nth, column): (usize, Read)| -> Result<ArrayRef, ArrowError> {
        Ok(match column {
            Read::Done(array) => array,
            Read::Texts(texts) => text_array(texts.iter().map(Option::as_deref), &places)?,
            Read::Numbers(numbers) => {
                let numbers = number_array(&numbers, &places);
                if schema.field(nth).data_type().is_temporal() {
                    let times: TimestampMicrosecondArray = numbers.reinterpret_cast();
                    time_array(times, schema, nth)
                } else {
                    Arc::new(numbers)
                }
            }
        })
    };
    let arrays: Result<Vec<ArrayRef>, _> = read.into_iter().enumerate().map(array).collect();
    Some(arrays.and_then(|arrays| finish(arrays, count, schema)))
}

fn cells(
    take: &mut MessageReader<'_>,
    table: Table,
    kept: &[usize],
    schema: &SchemaRef,
) -> Option<Result<RecordBatch, ArrowError>> {
    let cell = |take: &mut MessageReader<'_>| {
        Some(match take.byte()? {
            0 => Cell::Missing,
            1 => Cell::Time(take.i64()?),
            2 => Cell::text(take.text()?),
            3 => Cell::Number(take.i64()?),
            4 => Cell::Value(take.f64()?),
            _ => return None,
        })
    };
    let rows: Vec<Vec<Cell>> = take.all(|take| {
        let row = kept.iter().map(|_| cell(take)).collect::<Option<_>>()?;
        take.byte().map(|_| row)
    })?;
    let column = |place: &usize| table.columns().get(*place).map(|column| column.1);
    let kinds: Option<Vec<Column>> = kept.iter().map(column).collect();
    let places: Vec<(usize, Column)> = kinds?.into_iter().enumerate().collect();
    Some(batch_of_rows(&rows, &places, schema))
}
