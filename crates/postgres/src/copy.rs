//! Rows in the binary format of COPY (PostgreSQL 15, chapter "COPY", "Binary Format").

use crate::connection::DatabaseError;
use bytes::{BufMut, Bytes, BytesMut};
use futures::SinkExt;
use model::{Series, Timestamp};
use std::error::Error;
use std::pin::pin;
use tokio_postgres::Client;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

/// Microseconds from 1970 to 2000, where the database begins to count.
const EPOCH_US: i64 = 946_684_800 * Timestamp::SECOND;
/// The years 1 and 9999: within what the database can compare, beyond what a sample has.
pub(crate) const FIRST_US: i64 = -62_135_596_800 * Timestamp::SECOND;
const LAST_US: i64 = 253_402_300_799 * Timestamp::SECOND;
/// Signature, flags, and length of the header's extension.
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
const END: i16 = -1;
/// Rows are sent in pieces of about this size.
const PIECE_BYTES: usize = 1 << 20;

/// An instant as the database has it, in microseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Micros(pub(crate) i64);

impl ToSql for Micros {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.put_i64(self.0.clamp(FIRST_US, LAST_US) - EPOCH_US);
        Ok(IsNull::No)
    }

    accepts!(TIMESTAMPTZ);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Micros {
    fn from_sql(_: &Type, bytes: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(i64::from_be_bytes(bytes.try_into()?).saturating_add(EPOCH_US)))
    }

    accepts!(TIMESTAMPTZ);
}

/// Rows for one table.
#[derive(Debug)]
pub(crate) struct Rows {
    pieces: Vec<Bytes>,
    piece: BytesMut,
    pub(crate) count: u64,
}

impl Default for Rows {
    fn default() -> Self {
        Self { pieces: Vec::new(), piece: BytesMut::from(HEADER), count: 0 }
    }
}

impl Rows {
    /// Adds a sample: five columns, or seven for one of a job.
    pub(crate) fn push(&mut self, series: &Series, at_us: i64, value: f64) {
        self.piece.put_i16(if series.job.is_some() { 7 } else { 5 });
        self.fixed(&at_us.saturating_sub(EPOCH_US).to_be_bytes());
        self.text(series.device.as_str());
        self.text(&series.metric);
        self.fixed(&value.to_be_bytes());
        let labels = series.labels.as_str();
        self.length(labels.len() + 1);
        // The version of jsonb's binary form.
        self.piece.put_u8(1);
        self.piece.put_slice(labels.as_bytes());
        if let Some(job) = &series.job {
            self.text(job.cluster.as_str());
            self.fixed(&job.id.get().to_be_bytes());
        }
        self.count += 1;
        if self.piece.len() >= PIECE_BYTES {
            self.pieces.push(self.piece.split().freeze());
        }
    }

    fn fixed(&mut self, bytes: &[u8]) {
        self.length(bytes.len());
        self.piece.put_slice(bytes);
    }

    fn text(&mut self, text: &str) {
        self.fixed(text.as_bytes());
    }

    fn length(&mut self, bytes: usize) {
        self.piece.put_i32(i32::try_from(bytes).unwrap_or(i32::MAX));
    }

    /// Sends the rows by a statement `COPY … FROM STDIN (FORMAT binary)`.
    pub(crate) async fn send(mut self, client: &Client, copy: &str) -> Result<(), DatabaseError> {
        if self.count == 0 {
            return Ok(());
        }
        self.piece.put_i16(END);
        self.pieces.push(self.piece.freeze());
        let mut sink = pin!(client.copy_in(copy).await?);
        for piece in self.pieces {
            sink.send(piece).await?;
        }
        sink.finish().await?;
        Ok(())
    }
}
