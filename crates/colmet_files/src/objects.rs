//! The bytes of a superblock, object headers and messages, as HDF5's format specification has them.

use crate::filters::{DEFLATE, SHUFFLE};
use crate::layout::{Kind, Layout};

/// An address that leads nowhere.
pub(crate) const UNDEFINED: u64 = u64::MAX;
/// Bytes of the superblock with the entry of the root group.
pub(crate) const SUPERBLOCK_BYTES: u64 = 96;
/// Where the superblock has the end of the file.
pub(crate) const END_AT: u64 = 40;
/// The first bytes of a file.
pub(crate) const SIGNATURE: &[u8] = b"\x89HDF\r\n\x1a\n";
/// Bytes of the prefix of an object header, and of the header of a message.
pub(crate) const PREFIX_BYTES: u64 = 16;
pub(crate) const MESSAGE_BYTES: u64 = 8;
/// In a table's header: where the number of rows is, and the address of the chunk index.
pub(crate) const ROWS_AT: u64 = PREFIX_BYTES + MESSAGE_BYTES + 8;
pub(crate) const INDEX_AT: u64 = PREFIX_BYTES + (MESSAGE_BYTES + 24) + MESSAGE_BYTES + 3;

/// Kinds of messages.
pub(crate) const NOTHING: u16 = 0;
pub(crate) const DATASPACE: u16 = 1;
pub(crate) const LINK_INFO: u16 = 2;
pub(crate) const DATATYPE: u16 = 3;
pub(crate) const FILL: u16 = 5;
pub(crate) const LINK: u16 = 6;
pub(crate) const LAYOUT: u16 = 8;
pub(crate) const GROUP_INFO: u16 = 10;
pub(crate) const FILTERS: u16 = 11;
pub(crate) const ATTRIBUTE: u16 = 12;
pub(crate) const CONTINUATION: u16 = 16;
pub(crate) const SYMBOL_TABLE: u16 = 17;

/// A superblock of version 0.
pub(crate) fn superblock(end: u64, root: u64) -> Vec<u8> {
    let mut out = SIGNATURE.to_vec();
    // Versions, bytes of an address and of a length, entries of nodes, flags.
    out.extend_from_slice(&[0, 0, 0, 0, 0, 8, 8, 0, 4, 0, 16, 0, 0, 0, 0, 0]);
    for address in [0, UNDEFINED, end, UNDEFINED, 0, root, 0, 0, 0] {
        out.extend_from_slice(&address.to_le_bytes());
    }
    out
}

/// A message: a multiple of 8 bytes.
pub(crate) fn message(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut out = message_head(kind, body.len().next_multiple_of(8)).to_vec();
    out.extend_from_slice(body);
    out.resize(out.len().next_multiple_of(8), 0);
    out
}

/// The header of a message with a body of that many bytes, at most 65 528.
pub(crate) fn message_head(kind: u16, bytes: usize) -> [u8; 8] {
    let [kind_0, kind_1] = kind.to_le_bytes();
    let [bytes_0, bytes_1] = u16::try_from(bytes).unwrap_or(u16::MAX).to_le_bytes();
    [kind_0, kind_1, bytes_0, bytes_1, 0, 0, 0, 0]
}

/// An object header of version 1 with these messages.
pub(crate) fn object_header(messages: &[Vec<u8>]) -> Vec<u8> {
    let count = u16::try_from(messages.len()).unwrap_or(u16::MAX);
    let bytes: usize = messages.iter().map(Vec::len).sum();
    let mut out = vec![1, 0];
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(&1_u32.to_le_bytes());
    out.extend_from_slice(&u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend(messages.iter().flatten());
    out
}

/// The messages of a group, without its links.
pub(crate) fn group(attributes: &[(&str, &str)]) -> Vec<Vec<u8>> {
    let mut info = vec![0, 0];
    info.extend_from_slice(&UNDEFINED.to_le_bytes());
    info.extend_from_slice(&UNDEFINED.to_le_bytes());
    let mut out = vec![message(LINK_INFO, &info), message(GROUP_INFO, &[0, 0])];
    out.extend(attributes.iter().map(|(name, value)| text_attribute(name, value)));
    out
}

/// A link to an object, by name.
pub(crate) fn link(name: &str, address: u64) -> Vec<u8> {
    let mut body = vec![1, 0, u8::try_from(name.len()).unwrap_or(u8::MAX)];
    body.extend_from_slice(name.as_bytes());
    body.extend_from_slice(&address.to_le_bytes());
    message(LINK, &body)
}

/// The header of a table without rows. `level` is that of deflate; 0: no filters.
pub(crate) fn table(layout: &Layout, title: &str, level: u32) -> Vec<u8> {
    let mut space = vec![1, 1, 1, 0, 0, 0, 0, 0];
    space.extend_from_slice(&0_u64.to_le_bytes());
    space.extend_from_slice(&UNDEFINED.to_le_bytes());
    let row = u32::try_from(layout.row_bytes).unwrap_or(u32::MAX);
    let rows = u32::try_from(layout.chunk_rows).unwrap_or(u32::MAX);
    // Version 3, chunked, one dimension and the bytes of a row.
    let mut chunks = vec![3, 2, 2];
    chunks.extend_from_slice(&UNDEFINED.to_le_bytes());
    chunks.extend_from_slice(&rows.to_le_bytes());
    chunks.extend_from_slice(&row.to_le_bytes());
    let mut messages = vec![
        message(DATASPACE, &space),
        message(LAYOUT, &chunks),
        message(DATATYPE, &compound(layout, row)),
        // Version 2, allocated as written, nothing is filled.
        message(FILL, &[2, 3, 1, 0]),
    ];
    if level > 0 {
        messages.push(message(FILTERS, &filters(row, level)));
    }
    for (name, value) in [("CLASS", "TABLE"), ("TITLE", title), ("VERSION", "2.7")] {
        messages.push(text_attribute(name, value));
    }
    // The version of Colmet's layout.
    messages.push(attribute("backend_version", &INTEGER, &2_i64.to_le_bytes()));
    object_header(&messages)
}

fn filters(row: u32, level: u32) -> Vec<u8> {
    let mut out = vec![1, 2, 0, 0, 0, 0, 0, 0];
    for (filter, value) in [(SHUFFLE, row), (DEFLATE, level)] {
        for part in [filter, 0, 0, 1] {
            out.extend_from_slice(&part.to_le_bytes());
        }
        out.extend_from_slice(&value.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
    }
    out
}

/// A signed little-endian number of 8 bytes.
const INTEGER: [u8; 12] = [0x10, 8, 0, 0, 8, 0, 0, 0, 0, 0, 64, 0];
/// An IEEE number of 4 bytes.
const FLOAT: [u8; 20] = [0x11, 0x20, 31, 0, 4, 0, 0, 0, 0, 0, 32, 0, 23, 8, 0, 23, 127, 0, 0, 0];

/// Text that ends with NUL. `charset`: 0 is ASCII, 1 is UTF-8.
fn text(bytes: usize, charset: u8) -> Vec<u8> {
    let mut out = vec![0x13, charset << 4, 0, 0];
    out.extend_from_slice(&u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes());
    out
}

/// The type of a row, version 3.
fn compound(layout: &Layout, row: u32) -> Vec<u8> {
    let count = u16::try_from(layout.columns().count()).unwrap_or(u16::MAX);
    let mut out = vec![0x36];
    out.extend_from_slice(&count.to_le_bytes());
    out.push(0);
    out.extend_from_slice(&row.to_le_bytes());
    // As few bytes for an offset as that of the last byte needs.
    let offset_bytes = if row < 1 << 8 { 1 } else { 2 };
    let mut offset = 0_u32;
    for (name, kind) in layout.columns() {
        out.extend_from_slice(name.as_bytes());
        out.push(0);
        out.extend(offset.to_le_bytes().into_iter().take(offset_bytes));
        match kind {
            Kind::Integer => out.extend_from_slice(&INTEGER),
            Kind::Float => out.extend_from_slice(&FLOAT),
            Kind::Text(bytes) => out.extend(text(bytes, 0)),
        }
        offset += u32::try_from(kind.bytes()).unwrap_or_default();
    }
    out
}

fn text_attribute(name: &str, value: &str) -> Vec<u8> {
    attribute(name, &text(value.len(), 1), value.as_bytes())
}

/// An attribute with one value.
fn attribute(name: &str, datatype: &[u8], value: &[u8]) -> Vec<u8> {
    let size = |bytes: usize| u16::try_from(bytes).unwrap_or(u16::MAX).to_le_bytes();
    let mut body = vec![1, 0];
    for bytes in [name.len() + 1, datatype.len(), 8] {
        body.extend_from_slice(&size(bytes));
    }
    for part in [&[name.as_bytes(), &[0]].concat(), datatype, &[1, 0, 0, 0, 0, 0, 0, 0]] {
        body.extend_from_slice(part);
        body.resize(body.len().next_multiple_of(8), 0);
    }
    body.extend_from_slice(value);
    message(ATTRIBUTE, &body)
}
