//! Groups: links in an object header that other programs read while it grows.

use crate::error::{FileError, Result};
use crate::header::{Message, links, messages, size};
use crate::io::{Io, Step};
use crate::objects::{self, CONTINUATION, MESSAGE_BYTES, NOTHING, PREFIX_BYTES};

/// Where headers of objects begin: so no pointer in them is in two sectors of a disk.
pub(crate) const ALIGN: u64 = 128;
/// Bytes for the links of a job's group: ten tables.
pub(crate) const JOB_LINK_BYTES: u64 = 640;
/// Bytes for links of the root in one block: about 1000 jobs.
pub(crate) const ROOT_LINK_BYTES: u64 = 32 * 1024;
/// Bytes of a message that leads to another block.
const CONTINUATION_BYTES: u64 = MESSAGE_BYTES + 16;

/// A group, and where its next link goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub(crate) header: u64,
    messages: u16,
    /// An empty message with that many bytes.
    free: u64,
    left: u64,
}

pub(crate) fn new_group(io: &mut Io, mut messages: Vec<Vec<u8>>, link_bytes: u64) -> Result<Group> {
    let start: usize = messages.iter().map(Vec::len).sum();
    let body = size(link_bytes - MESSAGE_BYTES);
    messages.push(objects::message(NOTHING, &vec![0; body]));
    let count = u16::try_from(messages.len()).unwrap_or(u16::MAX);
    let header = io.add(&objects::object_header(&messages), ALIGN, 0)?;
    let free = header + PREFIX_BYTES + start as u64;
    Ok(Group { header, messages: count, free, left: link_bytes })
}

/// A group of a file of this writer, and its links.
pub(crate) fn read_group(io: &Io, header: u64) -> Result<(Group, Vec<(String, u64)>)> {
    let read = |address, bytes: &mut [u8]| io.read(address, bytes);
    let messages = messages(&read, header)?;
    let links = links(&read, &messages)?;
    let Some(Message { kind: NOTHING, address, body }) = messages.last() else {
        return Err(FileError::Other);
    };
    let left = MESSAGE_BYTES + body.len() as u64;
    let count = u16::try_from(messages.len()).unwrap_or(u16::MAX);
    Ok((Group { header, messages: count, free: *address, left }, links))
}

/// Adds a link to a group. Its bytes go into the empty message; then its type makes it a link.
pub(crate) fn add_link(io: &mut Io, group: &mut Group, name: &str, address: u64) -> Result<()> {
    let link = objects::link(name, address);
    let bytes = link.len() as u64;
    if group.left < bytes + CONTINUATION_BYTES {
        continue_header(io, group)?;
    }
    let rest = size(group.left - bytes - MESSAGE_BYTES);
    let (head, body) = link.split_at(size(MESSAGE_BYTES));
    io.write(group.free + MESSAGE_BYTES, body)?;
    io.write(group.free + bytes, &objects::message_head(NOTHING, rest))?;
    io.change(Step::Links, group.free, head);
    (group.free, group.left) = (group.free + bytes, group.left - bytes);
    count_message(io, group);
    Ok(())
}

/// Gives a group another block for links.
fn continue_header(io: &mut Io, group: &mut Group) -> Result<()> {
    let block = objects::message(NOTHING, &vec![0; size(ROOT_LINK_BYTES - MESSAGE_BYTES)]);
    let address = io.add(&block, 8, 0)?;
    let body = [address.to_le_bytes(), ROOT_LINK_BYTES.to_le_bytes()].concat();
    io.write(group.free + MESSAGE_BYTES, &body)?;
    let rest = group.left - CONTINUATION_BYTES;
    if rest > 0 {
        let rest = size(rest - MESSAGE_BYTES);
        io.write(group.free + CONTINUATION_BYTES, &objects::message_head(NOTHING, rest))?;
        count_message(io, group);
    }
    io.change(Step::Links, group.free, &objects::message_head(CONTINUATION, 16));
    (group.free, group.left) = (address, ROOT_LINK_BYTES);
    count_message(io, group);
    Ok(())
}

fn count_message(io: &mut Io, group: &mut Group) {
    group.messages = group.messages.saturating_add(1);
    io.change(Step::Links, group.header + 2, &group.messages.to_le_bytes());
}
