//! Memory of a cgroup by NUMA node: `memory.numa_stat` of both versions (Documentation/admin-guide/cgroup-v2.rst;
//! Documentation/admin-guide/cgroup-v1/memory.rst; mm/memcontrol.c and mm/memcontrol-v1.c, Linux 6.18).
//!
//! ```text
//! anon N0=24576 N1=0               hierarchical_anon=6 N0=6 N1=0
//! file N0=4096 N1=8192             hierarchical_file=3 N0=1 N1=2
//! ```
//!
//! Left version 2, in bytes; right version 1, in pages, of which only the lines that count the cgroup and those below
//! it are read.

use crate::parse::{ParseError, whole_lines};

/// The type of memory of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumaKind {
    /// Anonymous memory.
    Anon,
    /// Page cache.
    File,
}

/// Shows the memory on each node, by the node's number as written, in bytes.
///
/// # Errors
/// The text is truncated or empty, or has a node without a number.
pub fn numa_stat(
    text: &[u8],
    page_bytes: u64,
    mut show: impl FnMut(NumaKind, &str, u64),
) -> Result<(), ParseError> {
    let mut any = false;
    for line in whole_lines(text)? {
        any = true;
        let Ok(line) = std::str::from_utf8(line) else { return Err(ParseError::at(line)) };
        let (first, nodes) = line.split_once(' ').unwrap_or((line, ""));
        let (kind, unit) = match first.split_once('=').map_or(first, |(key, _)| key) {
            "anon" if first == "anon" => (NumaKind::Anon, 1),
            "file" if first == "file" => (NumaKind::File, 1),
            "hierarchical_anon" => (NumaKind::Anon, page_bytes),
            "hierarchical_file" => (NumaKind::File, page_bytes),
            _ => continue,
        };
        for node in nodes.split(' ').filter(|node| !node.is_empty()) {
            let pair = node.strip_prefix('N').and_then(|node| node.split_once('='));
            let found = pair.and_then(|(node, value)| {
                node.parse::<u16>().ok()?;
                Some((node, value.parse::<u64>().ok()?.checked_mul(unit)?))
            });
            let (node, bytes) = found.ok_or(ParseError::at(node.as_bytes()))?;
            show(kind, node, bytes);
        }
    }
    if any { Ok(()) } else { Err(ParseError::at(text)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const V2: &str = "anon N0=24576 N1=0\nfile N0=4096 N1=8192\nkernel_stack N0=1 N1=1\n";
    const V1: &str = "total=9 N0=1 N1=8\nfile=1 N0=1 N1=0\nhierarchical_total=9 N0=7 N1=2\n\
        hierarchical_file=3 N0=1 N1=2\nhierarchical_anon=6 N0=6 N1=0\n";

    fn read(text: &str) -> Result<Vec<(NumaKind, String, u64)>, ParseError> {
        let mut all = Vec::new();
        let show = |kind, node: &str, bytes| all.push((kind, node.to_owned(), bytes));
        numa_stat(text.as_bytes(), 4096, show)?;
        all.sort_by_key(|(kind, node, _)| (*kind == NumaKind::File, node.clone()));
        Ok(all)
    }

    #[test]
    fn both_versions_are_one_in_bytes() {
        let one = |kind, node: &str, bytes| (kind, node.to_owned(), bytes);
        let all = [
            one(NumaKind::Anon, "0", 24_576),
            one(NumaKind::Anon, "1", 0),
            one(NumaKind::File, "0", 4096),
            one(NumaKind::File, "1", 8192),
        ];
        assert_eq!(read(V2).unwrap(), all);
        assert_eq!(read(V1).unwrap(), all);
        for text in ["", "anon N0=1", "anon N0=\n", "anon Nx=1\n", "anon 7\n"] {
            assert!(read(text).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            numa_stat(&bytes, u64::MAX, |_, _, _| {}).ok();
        }
    }
}
