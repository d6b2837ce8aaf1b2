//! The chunks of a table: a B-tree of version 1 that grows at its right end.
//!
//! Each node but the last of its level is full. So the place of a chunk follows from its number, and nothing about the tree is
//! kept in memory. Nodes are at addresses with which an entry of 32 bytes is within one sector of a disk.

use crate::error::{FileError, Result};
use crate::io::{Io, Step, u64_of};
use crate::layout::Layout;
use crate::objects::UNDEFINED;

/// Most entries of a node: twice the 32 of HDF5's default.
const ENTRIES: u64 = 64;
/// Bytes before the first entry: signature, type, level, number of entries, siblings.
const HEAD_BYTES: u64 = 24;
/// Bytes of an entry: the key (stored bytes, filters that were left out, first row, 0) and an address.
const ENTRY_BYTES: u64 = 32;
const KEY_BYTES: u64 = 24;
const NODE_BYTES: u64 = HEAD_BYTES + ENTRIES * ENTRY_BYTES + KEY_BYTES;
/// More levels than a file can fill.
const LEVELS_MAX: u8 = 8;

/// Where a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) address: u64,
    pub(crate) bytes: u32,
    /// Bits of the filters that were not applied.
    pub(crate) left_out: u32,
}

/// The index of which the root's address is at an address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Index<'a> {
    pub(crate) root_at: u64,
    pub(crate) layout: &'a Layout,
}

impl Index<'_> {
    /// The chunk with this number, if there is one.
    pub(crate) fn get(self, io: &Io, number: u64) -> Result<Option<Chunk>> {
        let mut node = io.read_u64(self.root_at)?;
        if node == UNDEFINED {
            return Ok(None);
        }
        let (mut level, _) = head(io, node)?;
        if number >= capacity(level) {
            return Ok(None);
        }
        loop {
            let place = place(number, level);
            if place >= head(io, node)?.1 {
                return Ok(None);
            }
            let entry = entry_at(node, place);
            let mut bytes = [0; 32];
            io.read(entry, &mut bytes)?;
            let [key, _, _, child] =
                std::array::from_fn(|n| u64_of(bytes.get(n * 8..).unwrap_or_default()));
            if level == 0 {
                let [bytes, left_out] = [key & u64::from(u32::MAX), key >> 32]
                    .map(|part| u32::try_from(part).unwrap_or(u32::MAX));
                return Ok(Some(Chunk { address: child, bytes, left_out }));
            }
            (node, level) = (child, level - 1);
        }
    }

    /// Adds the chunk after the last one, or replaces one.
    pub(crate) fn put(self, io: &mut Io, number: u64, chunk: Chunk) -> Result<()> {
        let root = io.read_u64(self.root_at)?;
        if root == UNDEFINED {
            let leaf = self.path(io, 0, number, chunk)?;
            io.change(Step::Links, self.root_at, &leaf.to_le_bytes());
            return Ok(());
        }
        let (level, _) = head(io, root)?;
        if number < capacity(level) {
            return self.put_below(io, (root, level), number, chunk);
        }
        let right = self.path(io, level, number, chunk)?;
        let (first, second) = (self.key(0, chunk), self.key(number, chunk));
        let end = self.end_key(level + 1, number, chunk);
        let node = self.node(io, level + 1, &[(first, root), (second, right)], end)?;
        io.change(Step::Links, self.root_at, &node.to_le_bytes());
        Ok(())
    }

    fn put_below(
        self,
        io: &mut Io,
        (node, level): (u64, u8),
        number: u64,
        chunk: Chunk,
    ) -> Result<()> {
        let (_, used) = head(io, node)?;
        let place = place(number, level);
        if level > 0 && place < used {
            let child = io.read_u64(entry_at(node, place) + KEY_BYTES)?;
            return self.put_below(io, (child, level - 1), number, chunk);
        }
        let child =
            if level == 0 { chunk.address } else { self.path(io, level - 1, number, chunk)? };
        let entry = [self.key(number, chunk), child.to_le_bytes().to_vec()].concat();
        io.change(Step::Entries, entry_at(node, place), &entry);
        if place >= used {
            io.change(
                Step::Entries,
                entry_at(node, place + 1),
                &self.end_key(level, number, chunk),
            );
            let count = u16::try_from(place + 1).unwrap_or(u16::MAX);
            io.change(Step::Links, node + 6, &count.to_le_bytes());
        }
        Ok(())
    }

    /// New nodes from this level down, each with one entry.
    fn path(self, io: &mut Io, level: u8, number: u64, chunk: Chunk) -> Result<u64> {
        let child =
            if level == 0 { chunk.address } else { self.path(io, level - 1, number, chunk)? };
        self.node(
            io,
            level,
            &[(self.key(number, chunk), child)],
            self.end_key(level, number, chunk),
        )
    }

    fn node(self, io: &mut Io, level: u8, entries: &[(Vec<u8>, u64)], end: Vec<u8>) -> Result<u64> {
        let count = u8::try_from(entries.len()).unwrap_or_default();
        let mut bytes = b"TREE\x01".to_vec();
        bytes.extend_from_slice(&[level, count, 0]);
        bytes.extend_from_slice(&[0xff; 16]);
        for (key, child) in entries {
            bytes.extend_from_slice(key);
            bytes.extend_from_slice(&child.to_le_bytes());
        }
        bytes.extend(end);
        bytes.resize(usize::try_from(NODE_BYTES).unwrap_or_default(), 0);
        io.add(&bytes, ENTRY_BYTES, ENTRY_BYTES - HEAD_BYTES)
    }

    /// The last key of a node in which this chunk is in the last entry. Above leaves it is the end of what the entry can have,
    /// because HDF5 looks for no chunk beyond it.
    fn end_key(self, level: u8, number: u64, chunk: Chunk) -> Vec<u8> {
        let each = ENTRIES.saturating_pow(u32::from(level));
        self.key((number / each + 1) * each, chunk)
    }

    fn key(self, number: u64, chunk: Chunk) -> Vec<u8> {
        let row = number * self.layout.chunk_rows as u64;
        let parts = [u64::from(chunk.bytes) | u64::from(chunk.left_out) << 32, row, 0];
        parts.into_iter().flat_map(u64::to_le_bytes).collect()
    }
}

fn entry_at(node: u64, place: u64) -> u64 {
    node + HEAD_BYTES + place * ENTRY_BYTES
}

/// How many chunks a tree with this level of its root can have.
fn capacity(level: u8) -> u64 {
    ENTRIES.saturating_pow(u32::from(level) + 1)
}

fn place(number: u64, level: u8) -> u64 {
    number / ENTRIES.saturating_pow(u32::from(level)) % ENTRIES
}

/// Level and number of entries of a node.
fn head(io: &Io, node: u64) -> Result<(u8, u64)> {
    let mut bytes = [0; 8];
    io.read(node, &mut bytes)?;
    match bytes {
        [b'T', b'R', b'E', b'E', 1, level, low, high] if level < LEVELS_MAX => {
            Ok((level, u64::from(u16::from_le_bytes([low, high]))))
        }
        _ => Err(FileError::Damaged("a node of a table's chunks")),
    }
}
