//! A file that other programs read while it grows.
//!
//! New objects and rows go where nothing leads yet, at once. *Changes* of what readers follow wait for [`Io::publish`]: it
//! first makes the new bytes durable, then applies the changes in three steps. So at each instant a reader, a kill or a
//! power loss finds a file that is valid.

use crate::error::{FileError, Result};
use crate::objects::{END_AT, SIGNATURE, superblock};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The file grows in steps of this size, because its end is durable before anything leads beyond the old one.
const STEP: u64 = 1024 * 1024;
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
        file.set_len(STEP)?;
        file.sync_data()?;
        file.write_all_at(&superblock(STEP, root), 0)?;
        Ok(Self { file, free: root, end: STEP, changes: Default::default() })
    }

    /// Continues a file of [`Io::create`]. What is beyond its last object is not known, so new objects go to its end.
    pub(crate) fn open(file: File) -> Result<Self> {
        let mut head = [0; 48];
        file.read_exact_at(&mut head, 0)?;
        let (start, end) = head.split_at(usize::try_from(END_AT).unwrap_or_default());
        let end = u64_of(end);
        if !start.starts_with(SIGNATURE) || file.metadata()?.len() < end {
            return Err(FileError::Damaged("its end"));
        }
        Ok(Self { file, free: end, end, changes: Default::default() })
    }

    /// Reserves bytes at an address of which the rest, divided by `align`, is `rest`.
    pub(crate) fn reserve(&mut self, bytes: u64, align: u64, rest: u64) -> Result<u64> {
        let address = self.free.saturating_sub(rest).next_multiple_of(align) + rest;
        let free = address + bytes;
        if free > self.end {
            let end = free.next_multiple_of(STEP);
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

/// The first 8 bytes as a number; missing ones are 0.
pub(crate) fn u64_of(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
