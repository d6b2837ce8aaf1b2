//! A file that other programs read while it grows.
//!
//! New objects and rows go where nothing leads yet, at once. *Changes* of what readers follow wait for [`Io::publish`]: it
//! first makes the new bytes durable, then applies the changes in three steps. So at each instant a reader, a kill or a
//! power loss finds a file that is valid.

use crate::error::{FileError, Result};
use crate::objects::{END_AT, SIGNATURE, SUPERBLOCK_BYTES, superblock};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Beyond its last object, the file has an empty end of at least this size, which needs no space on a disk. A reader reads
/// nothing beyond the end that the file had when it was opened, but follows what is written later.
const MARGIN: u64 = 64 * 1024 * 1024;
/// Where the end of the last object is noted, after the superblock: nothing of HDF5 is there.
const FREE_AT: u64 = SUPERBLOCK_BYTES;
/// No change is longer.
const CHANGE_BYTES: u64 = 64;

/// When a change is applied.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// What no reader reads before the second step, and chunks that have moved.
    Entries = 0,
    /// Links, counts of entries, addresses of roots.
    Links = 1,
    /// Numbers of rows.
    Rows = 2,
}

#[derive(Debug)]
pub(crate) struct Io {
    file: File,
    /// Where the next object goes.
    free: u64,
    /// The end of the file, as its superblock has it.
    end: u64,
    /// The changes of each step, by address.
    changes: [BTreeMap<u64, Vec<u8>>; 3],
}

impl Io {
    /// Begins an empty file. The root group is the first object.
    pub(crate) fn create(file: File, root: u64) -> Result<Self> {
        file.set_len(MARGIN)?;
        file.sync_data()?;
        file.write_all_at(&superblock(MARGIN, root), 0)?;
        Ok(Self { file, free: root, end: MARGIN, changes: Default::default() })
    }

    /// Continues a file of [`Io::create`].
    pub(crate) fn open(file: File) -> Result<Self> {
        let mut head = [0; 104];
        file.read_exact_at(&mut head, 0)?;
        let number = |at: u64| head.get(size(at)..).map(u64_of).unwrap_or_default();
        let (end, free) = (number(END_AT), number(FREE_AT));
        let is_whole = free > FREE_AT && free <= end && file.metadata()?.len() >= end;
        if !head.starts_with(SIGNATURE) || !is_whole {
            return Err(FileError::Damaged("its end"));
        }
        Ok(Self { file, free, end, changes: Default::default() })
    }

    /// Takes the empty end away. A file that is continued gets one again.
    pub(crate) fn trim(&mut self) -> Result<()> {
        // First what readers check, then what it is checked with.
        self.file.write_all_at(&self.free.to_le_bytes(), END_AT)?;
        self.file.sync_data()?;
        self.file.set_len(self.free)?;
        self.end = self.free;
        Ok(())
    }

    /// Reserves bytes at an address of which the rest, divided by `align`, is `rest`.
    pub(crate) fn reserve(&mut self, bytes: u64, align: u64, rest: u64) -> Result<u64> {
        let address = self.free.saturating_sub(rest).next_multiple_of(align) + rest;
        let free = address + bytes;
        if free + MARGIN > self.end {
            let end = (free + 2 * MARGIN).next_multiple_of(MARGIN);
            self.file.set_len(end)?;
            self.file.sync_data()?;
            self.file.write_all_at(&end.to_le_bytes(), END_AT)?;
            self.end = end;
        }
        self.free = free;
        Ok(address)
    }

    /// Writes a new object.
    pub(crate) fn add(&mut self, bytes: &[u8], align: u64, rest: u64) -> Result<u64> {
        let address = self.reserve(bytes.len() as u64, align, rest)?;
        self.write(address, bytes)?;
        Ok(address)
    }

    /// Writes bytes that no reader reads yet.
    pub(crate) fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        Ok(self.file.write_all_at(bytes, address)?)
    }

    /// Changes bytes that readers follow, at the next [`Io::publish`].
    pub(crate) fn change(&mut self, step: Step, address: u64, bytes: &[u8]) {
        if let Some(changes) = self.changes.get_mut(step as usize) {
            changes.insert(address, bytes.to_vec());
        }
    }

    /// Reads bytes as they will be after the changes.
    pub(crate) fn read(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(bytes, address)?;
        let end = address + bytes.len() as u64;
        let from = address.saturating_sub(CHANGE_BYTES);
        for (at, change) in self.changes.iter().flat_map(|changes| changes.range(from..end)) {
            for (place, byte) in (*at..).zip(change) {
                let place = place.checked_sub(address).and_then(|it| usize::try_from(it).ok());
                if let Some(slot) = place.and_then(|place| bytes.get_mut(place)) {
                    *slot = *byte;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn read_u64(&self, address: u64) -> Result<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Makes everything durable and visible.
    pub(crate) fn publish(&mut self) -> Result<()> {
        self.file.write_all_at(&self.free.to_le_bytes(), FREE_AT)?;
        self.file.sync_data()?;
        for (step, changes) in self.changes.iter_mut().enumerate() {
            let is_used = !changes.is_empty();
            for (address, bytes) in std::mem::take(changes) {
                self.file.write_all_at(&bytes, address)?;
            }
            // Links to entries, and the last step, are durable in their order.
            if is_used && step != Step::Links as usize {
                self.file.sync_data()?;
            }
        }
        Ok(())
    }

    /// Bytes of the objects.
    pub(crate) fn bytes(&self) -> u64 {
        self.free
    }
}

/// A number that counts bytes in memory.
pub(crate) fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// The first 8 bytes as a number; missing ones are 0.
pub(crate) fn u64_of(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
