//! Reads object headers of version 1 and the links of groups. Everything read is limited: a file may be damaged.

use crate::error::{FileError, Result};
pub(crate) use crate::io::size;
use crate::io::u64_of;
use crate::objects::{CONTINUATION, LINK, MESSAGE_BYTES, PREFIX_BYTES, SYMBOL_TABLE};
use std::collections::{BTreeSet, VecDeque};

/// Most bytes of one object header. One with 60 000 links has 2.4 MB.
const HEADER_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Most bytes of the names in a group of the older form, and most nodes of such a group.
const HEAP_BYTES_MAX: usize = 64 * 1024 * 1024;
const NODES_MAX: usize = 1_000_000;

/// Reads bytes at an address.
pub(crate) type Read<'a> = &'a dyn Fn(u64, &mut [u8]) -> Result<()>;

/// A message of an object header.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) kind: u16,
    pub(crate) address: u64,
    pub(crate) body: Vec<u8>,
}

/// Bytes at an address.
pub(crate) fn bytes_at(read: Read<'_>, address: u64, bytes: usize) -> Result<Vec<u8>> {
    let mut out = vec![0; bytes];
    read(address, &mut out)?;
    Ok(out)
}

/// A little-endian number of that many bytes at a place.
pub(crate) fn number(bytes: &[u8], place: usize, size: usize) -> Result<u64> {
    let part = bytes.get(place..place.saturating_add(size));
    part.map(u64_of).ok_or(FileError::Damaged("a message is too short"))
}

/// The messages of an object header, in their order.
pub(crate) fn messages(read: Read<'_>, address: u64) -> Result<Vec<Message>> {
    let prefix = bytes_at(read, address, size(PREFIX_BYTES))?;
    if prefix.first() != Some(&1) {
        return Err(FileError::Unknown("an object header of a newer version".to_owned()));
    }
    let mut blocks = VecDeque::from([(address + PREFIX_BYTES, size(number(&prefix, 8, 4)?))]);
    let mut known = BTreeSet::new();
    let (mut total, mut out) = (0_usize, Vec::new());
    while let Some((address, bytes)) = blocks.pop_front() {
        total = total.saturating_add(bytes);
        if total > HEADER_BYTES_MAX || !known.insert(address) {
            return Err(FileError::Damaged("an object header is too long"));
        }
        let block = bytes_at(read, address, bytes)?;
        let mut place = 0;
        while place + size(MESSAGE_BYTES) <= block.len() {
            let [kind, bytes] = [number(&block, place, 2)?, number(&block, place + 2, 2)?];
            let start = place + size(MESSAGE_BYTES);
            let end = start + size(bytes);
            let body = block.get(start..end).ok_or(FileError::Damaged("a message is too long"))?;
            let kind = u16::try_from(kind).unwrap_or_default();
            if kind == CONTINUATION {
                blocks.push_back((number(body, 0, 8)?, size(number(body, 8, 8)?)));
            }
            out.push(Message { kind, address: address + place as u64, body: body.to_vec() });
            place = end;
        }
    }
    Ok(out)
}

/// The names in a group, with the addresses of their objects.
pub(crate) fn links(read: Read<'_>, messages: &[Message]) -> Result<Vec<(String, u64)>> {
    let mut out = Vec::new();
    for message in messages {
        match message.kind {
            LINK => out.extend(link(&message.body)?),
            SYMBOL_TABLE => {
                let [tree, heap] = [number(&message.body, 0, 8)?, number(&message.body, 8, 8)?];
                symbols(read, tree, heap, &mut out)?;
            }
            _ => {}
        }
    }
    Ok(out)
}

/// A hard link; other ones lead to no object of this file.
fn link(body: &[u8]) -> Result<Option<(String, u64)>> {
    let flags = number(body, 1, 1)?;
    let mut place = 2;
    if flags & 8 != 0 {
        if number(body, place, 1)? != 0 {
            return Ok(None);
        }
        place += 1;
    }
    place += if flags & 4 == 0 { 0 } else { 8 };
    place += if flags & 16 == 0 { 0 } else { 1 };
    let bytes = 1 << (flags & 3);
    let length = size(number(body, place, bytes)?);
    place += bytes;
    let name = body.get(place..place.saturating_add(length));
    let name = name.ok_or(FileError::Damaged("a link is too short"))?;
    let address = number(body, place + length, 8)?;
    Ok(Some((String::from_utf8_lossy(name).into_owned(), address)))
}

/// The entries of a group of the older form: a B-tree of symbol nodes, with names in a heap.
fn symbols(read: Read<'_>, tree: u64, heap: u64, out: &mut Vec<(String, u64)>) -> Result<()> {
    let damaged = || FileError::Damaged("a group");
    let head = bytes_at(read, heap, 32)?;
    let bytes = size(number(&head, 8, 8)?);
    if !head.starts_with(b"HEAP") || bytes > HEAP_BYTES_MAX {
        return Err(damaged());
    }
    let names = bytes_at(read, number(&head, 24, 8)?, bytes)?;
    let mut nodes = vec![tree];
    let mut left = NODES_MAX;
    while let Some(node) = nodes.pop() {
        left = left.checked_sub(1).ok_or_else(damaged)?;
        let head = bytes_at(read, node, 24)?;
        if head.starts_with(b"TREE") {
            let count = size(number(&head, 6, 2)?);
            // A key and an address for each, and a last key.
            let entries = bytes_at(read, node + 24, count * 16 + 8)?;
            let children = (0..count).map(|place| number(&entries, place * 16 + 8, 8));
            let children: Vec<_> = children.collect::<Result<_>>()?;
            nodes.extend(children.into_iter().rev());
        } else if head.starts_with(b"SNOD") {
            let entries = bytes_at(read, node + 8, size(number(&head, 6, 2)?) * 40)?;
            for entry in entries.chunks_exact(40) {
                let name = names.get(size(u64_of(entry))..).ok_or_else(damaged)?;
                let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
                out.push((String::from_utf8_lossy(name).into_owned(), number(entry, 8, 8)?));
            }
        } else {
            return Err(damaged());
        }
    }
    Ok(())
}
