//! A zstd frame from parts that were compressed earlier, and parts that are not compressed (RFC 8878, section 3.1.1).
//!
//! The series table is nearly all of a batch and stays the same for a long time, so it is compressed once. Its blocks
//! begin with the initial state of a frame: only blocks that do not change this state may precede them.

/// `Magic_Number`.
const MAGIC: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();
/// `Frame_Header_Descriptor`: a content size of four bytes, and a window of that size.
const DESCRIPTOR: u8 = 0xA0;
/// Bits of the descriptor: the window is the content, and a checksum follows the blocks.
const SINGLE_SEGMENT: u8 = 0x20;
const CHECKSUM: u8 = 0x04;
/// Types of blocks.
const RAW: u32 = 0;
const RLE: u32 = 1;
const COMPRESSED: u32 = 2;
/// The last block of a frame.
const LAST: u32 = 1;
/// Maximum length of a block, below the format's 128 KiB.
const BLOCK_BYTES_MAX: usize = 64 << 10;
/// Minimum length of a run of zeros with a block of its own: a batch that names its series in order has one.
const ZEROS_MIN: usize = 32;

/// The blocks of a frame, none marked as the last; `None` if it has another shape than expected.
pub(crate) fn blocks_of(frame: &[u8]) -> Option<Vec<u8>> {
    let (magic, rest) = frame.split_first_chunk::<4>()?;
    let (descriptor, rest) = rest.split_first()?;
    let dictionary = [0, 1, 2, 4].get(usize::from(descriptor & 3))?;
    let is_single = descriptor & SINGLE_SEGMENT != 0;
    let size = match (descriptor >> 6, is_single) {
        (0, false) => 0,
        (0, true) => 1,
        (flag, _) => 1 << flag,
    };
    let mut rest = rest.get(usize::from(!is_single) + dictionary + size..)?;
    if *magic != MAGIC || descriptor & CHECKSUM != 0 {
        return None;
    }
    let mut blocks = Vec::with_capacity(rest.len());
    loop {
        let (header, after) = rest.split_first_chunk::<3>()?;
        let [a, b, c] = *header;
        let header = u32::from_le_bytes([a, b, c, 0]);
        let length = match header >> 1 & 3 {
            RAW | COMPRESSED => usize::try_from(header >> 3).ok()?,
            RLE => 1,
            _ => return None,
        };
        let (content, after) = after.split_at_checked(length)?;
        blocks.extend_from_slice(&[a & !1, b, c]);
        blocks.extend_from_slice(content);
        if header & LAST != 0 {
            return after.is_empty().then_some(blocks);
        }
        rest = after;
    }
}

/// Appends a frame with this content: `head`, what the blocks contain (`size` bytes), and `tail`.
pub(crate) fn splice(out: &mut Vec<u8>, head: &[u8], (blocks, size): (&[u8], usize), tail: &[u8]) {
    let content = u32::try_from(head.len() + size + tail.len()).unwrap_or(u32::MAX);
    out.extend(MAGIC);
    out.push(DESCRIPTOR);
    out.extend(content.to_le_bytes());
    push_plain(out, head);
    out.extend_from_slice(blocks);
    push_plain(out, tail);
    push_header(out, RAW | LAST, 0);
}

/// Appends bytes without compression, except for runs of zeros.
fn push_plain(out: &mut Vec<u8>, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let zeros = bytes.iter().take_while(|byte| **byte == 0).take(BLOCK_BYTES_MAX).count();
        if zeros >= ZEROS_MIN {
            push_header(out, RLE << 1, zeros);
            out.push(0);
            bytes = bytes.get(zeros..).unwrap_or_default();
            continue;
        }
        let is_run = |window: &[u8]| window.iter().all(|byte| *byte == 0);
        let run = bytes.windows(ZEROS_MIN).position(is_run).unwrap_or(bytes.len());
        let (block, rest) = bytes.split_at(run.min(BLOCK_BYTES_MAX));
        push_header(out, RAW << 1, block.len());
        out.extend_from_slice(block);
        bytes = rest;
    }
}

fn push_header(out: &mut Vec<u8>, kind: u32, length: usize) {
    let header = u32::try_from(length).unwrap_or(0) << 3 | kind;
    out.extend(header.to_le_bytes().iter().take(3));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spliced(head: &[u8], middle: &[u8], tail: &[u8], level: i32) -> Vec<u8> {
        let blocks = blocks_of(&zstd::bulk::compress(middle, level).unwrap()).unwrap();
        let mut frame = Vec::new();
        splice(&mut frame, head, (&blocks, middle.len()), tail);
        frame
    }

    fn assert_same(head: &[u8], middle: &[u8], tail: &[u8], level: i32) {
        let frame = spliced(head, middle, tail, level);
        let whole = [head, middle, tail].concat();
        let stated = zstd::zstd_safe::get_frame_content_size(&frame).unwrap().unwrap();
        assert_eq!(usize::try_from(stated).unwrap(), whole.len());
        assert!(zstd::bulk::decompress(&frame, whole.len()).unwrap() == whole);
        assert!(zstd::stream::decode_all(&*frame).unwrap() == whole);
    }

    #[test]
    fn parts_of_every_size() {
        // Text that repeats at a distance of its own, so that offsets repeat.
        let text =
            |n: usize| (0..n).map(|i| b"cgroup_cpu_seconds_total"[i * i % 97 % 24]).collect();
        for middle in [0, 1, 100, 20_000, 127 << 10, 129 << 10, 400 << 10] {
            let middle: Vec<u8> = text(middle);
            for tail in [0, 1, ZEROS_MIN - 1, ZEROS_MIN, 1000, BLOCK_BYTES_MAX * 2 + 1] {
                let [zeros, ones] = [0, 1].map(|byte| vec![byte; tail]);
                let mixed = [&b"a"[..], &zeros, b"b", &zeros, &ones].concat();
                for tail in [&zeros, &ones, &mixed] {
                    assert_same(b"origin", &middle, tail, 1);
                    assert_same(b"", &middle, tail, 3);
                }
            }
        }
    }

    #[test]
    fn a_run_of_zeros_costs_four_bytes() {
        let short = spliced(b"o", b"table", b"ab", 1).len();
        assert_eq!(
            spliced(b"o", b"table", &[&b"a"[..], &[0; 5000], b"b"].concat(), 1).len(),
            short + 7
        );
    }

    #[test]
    fn frames_of_another_shape_are_rejected() {
        let frame = zstd::bulk::compress(b"table table table", 1).unwrap();
        assert!(blocks_of(&frame).is_some());
        for cut in 0..frame.len() {
            assert_eq!(blocks_of(&frame[..cut]), None, "{cut}");
        }
        assert_eq!(blocks_of(&[&*frame, b"x"].concat()), None);
        let mut with_checksum = frame.clone();
        with_checksum[4] |= CHECKSUM;
        assert_eq!(blocks_of(&with_checksum), None);
    }

    proptest! {
        #[test]
        fn any_parts(
            head in proptest::collection::vec(any::<u8>(), 0..40),
            middle in proptest::collection::vec(0_u8..4, 0..3000),
            tail in proptest::collection::vec(prop_oneof![9 => Just(0_u8), 1 => any::<u8>()], 0..300),
        ) {
            assert_same(&head, &middle, &tail, 1);
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            blocks_of(&bytes);
            blocks_of(&[&MAGIC[..], &bytes].concat());
        }
    }
}
