//! The rows of a table in chunks. The last chunk is not compressed, so its rows are written one after the other. A full chunk,
//! and the last one of a table that gets no more rows, is compressed to another address.

use crate::error::{FileError, Result};
use crate::filters::{deflate, inflate, shuffle, unshuffle};
use crate::header::size;
use crate::index::{Chunk, Index};
use crate::io::Io;
use crate::layout::Layout;
use std::collections::VecDeque;
use std::time::Duration;

/// After this time, no reader follows an old address.
pub(crate) const REUSE_AFTER: Duration = Duration::from_secs(300);
/// The bits of both filters.
const BOTH_FILTERS: u32 = 0b11;

/// Writes chunks of one layout.
pub(crate) struct Chunks<'a> {
    pub(crate) io: &'a mut Io,
    pub(crate) layout: &'a Layout,
    pub(crate) old: &'a mut VecDeque<(Duration, u64)>,
    pub(crate) level: u32,
    pub(crate) now: Duration,
}

impl Chunks<'_> {
    /// Writes rows into a chunk, from a row of it on.
    pub(crate) fn write(
        &mut self,
        root_at: u64,
        number: u64,
        within: usize,
        rows: &[u8],
    ) -> Result<()> {
        let Layout { row_bytes, chunk_rows, .. } = *self.layout;
        let layout = self.layout;
        let index = Index { root_at, layout };
        let is_full = within + rows.len() / row_bytes == chunk_rows;
        if is_full && within == 0 && self.level > 0 {
            let chunk = self.packed(rows)?;
            return index.put(self.io, number, chunk);
        }
        let found = if within == 0 { None } else { index.get(self.io, number)? };
        let plain = self.plain_of(found)?;
        if found != Some(plain) {
            index.put(self.io, number, plain)?;
        }
        self.io.write(plain.address + (within * row_bytes) as u64, rows)?;
        if is_full && self.level > 0 {
            let mut all = vec![0; layout.chunk_bytes()];
            self.io.read(plain.address, &mut all)?;
            let chunk = self.packed(&all)?;
            index.put(self.io, number, chunk)?;
            self.old.push_back((self.now, plain.address));
        }
        Ok(())
    }

    /// Compresses the last chunk of a table, which has this number of rows.
    pub(crate) fn pack_last(&mut self, root_at: u64, number: u64, rows: usize) -> Result<()> {
        let index = Index { root_at, layout: self.layout };
        let Some(plain) = index.get(self.io, number)? else { return Ok(()) };
        if plain.left_out != BOTH_FILTERS {
            return Ok(());
        }
        let mut all = vec![0; self.layout.chunk_bytes()];
        // Beyond them are rows that an earlier use of the address left.
        let written = all.get_mut(..rows * self.layout.row_bytes).ok_or(FileError::Other)?;
        self.io.read(plain.address, written)?;
        let chunk = self.packed(&all)?;
        index.put(self.io, number, chunk)?;
        self.old.push_back((self.now, plain.address));
        Ok(())
    }

    /// A chunk of which the rows are not compressed.
    fn plain_of(&mut self, found: Option<Chunk>) -> Result<Chunk> {
        let left_out = if self.level > 0 { BOTH_FILTERS } else { 0 };
        let bytes = self.layout.chunk_bytes();
        if let Some(found) = found.filter(|found| found.left_out == left_out) {
            return Ok(found);
        }
        let is_free = |(since, _): &(Duration, u64)| self.now.saturating_sub(*since) >= REUSE_AFTER;
        let address = match self.old.front().copied().filter(is_free) {
            Some((_, address)) => {
                self.old.pop_front();
                address
            }
            None => self.io.reserve(bytes as u64, 8, 0)?,
        };
        // The last chunk is compressed after a cut, and of a table that was quiet.
        if let Some(found) = found {
            let mut packed = vec![0; size(u64::from(found.bytes)).min(bytes)];
            self.io.read(found.address, &mut packed)?;
            self.io.write(address, &unshuffle(&inflate(&packed, bytes)?, self.layout.row_bytes))?;
        }
        let bytes = u32::try_from(bytes).map_err(|_| FileError::Other)?;
        Ok(Chunk { address, bytes, left_out })
    }

    /// A compressed chunk, or an uncompressed one if that is smaller.
    fn packed(&mut self, rows: &[u8]) -> Result<Chunk> {
        let packed = deflate(&shuffle(rows, self.layout.row_bytes), self.level)?;
        let (bytes, left_out) =
            if packed.len() < rows.len() { (&*packed, 0) } else { (rows, BOTH_FILTERS) };
        let address = self.io.add(bytes, 8, 0)?;
        let bytes = u32::try_from(bytes.len()).map_err(|_| FileError::Other)?;
        Ok(Chunk { address, bytes, left_out })
    }
}
