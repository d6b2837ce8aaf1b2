//! Integers as differences: Parquet's `DELTA_BINARY_PACKED`.

use crate::files::varint::{put, put_signed};

/// Differences of a block, and of each of its four parts, which has a width of its own.
const BLOCK: usize = 256;
const PART: usize = BLOCK / 4;

/// Appends the values.
pub(super) fn encode(values: &[i64], out: &mut Vec<u8>) {
    put(out, BLOCK as u64);
    put(out, (BLOCK / PART) as u64);
    put(out, values.len() as u64);
    put_signed(out, values.first().copied().unwrap_or(0));
    let differences = values.iter().zip(values.iter().skip(1)).map(|(a, b)| b.wrapping_sub(*a));
    let mut differences = differences.peekable();
    let mut block = Vec::with_capacity(BLOCK);
    while differences.peek().is_some() {
        block.clear();
        block.extend(differences.by_ref().take(BLOCK));
        let least = block.iter().copied().min().unwrap_or(0);
        put_signed(out, least);
        let widths = out.len();
        out.extend_from_slice(&[0; BLOCK / PART]);
        for (place, part) in block.chunks(PART).enumerate() {
            let above = |value: &i64| value.wrapping_sub(least).cast_unsigned();
            let width = u64::BITS - part.iter().map(above).fold(0, |a, b| a | b).leading_zeros();
            let narrow = u8::try_from(width).unwrap_or(u8::MAX);
            out.get_mut(widths + place).into_iter().for_each(|byte| *byte = narrow);
            pack(part.iter().map(above), width, out);
        }
    }
}

/// Appends a part's values, the lowest bits first, and zeros for those that it lacks.
fn pack(values: impl Iterator<Item = u64>, width: u32, out: &mut Vec<u8>) {
    let (mut word, mut bits) = (0_u128, 0);
    for value in values.chain(std::iter::repeat(0)).take(PART) {
        word |= u128::from(value) << bits;
        bits += width;
        if bits >= u64::BITS {
            out.extend_from_slice(word.to_le_bytes().first_chunk::<8>().unwrap_or(&[0; 8]));
            word >>= u64::BITS;
            bits -= u64::BITS;
        }
    }
}
