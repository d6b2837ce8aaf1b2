//! The resident code and constants of this process (`/proc/self/maps`, proc_pid_maps(5); `/proc/self/pagemap`,
//! Documentation/admin-guide/mm/pagemap.rst; madvise(2)).
//!
//! ```text
//! 55d0c8a00000-55d0c8ad2000 r--p 00000000 fe:00 1312 /usr/bin/jobmeter-agent
//! 55d0c8ad2000-55d0c8d60000 r-xp 000d2000 fe:00 1312 /usr/bin/jobmeter-agent
//! ```

use crate::parse::lines;
use rustix::param::page_size;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Bytes of a page's entry in `pagemap`.
const ENTRY_BYTES: usize = 8;
/// The page is in memory, is swapped out, or is one of a file (or shared).
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_A_FILE: u64 = 1 << 61;

/// The code and constants of the program and its libraries, as loaded at its start.
#[derive(Debug, Default)]
pub struct Loaded {
    ranges: Vec<(usize, usize)>,
}

impl Loaded {
    /// Finds them. Call it before the first thread starts: a library that another thread loads meanwhile is mapped
    /// in several steps.
    #[must_use]
    pub fn at_start() -> Self {
        Self { ranges: ranges(|range, rights| rights == "r-xp" || is_unmodified(range)) }
    }

    /// Drops their pages. Pages in use return from the page cache at their next use, for about a microsecond per
    /// sixteen; pages that only the startup needed do not. For a program with a memory budget. If it fails, nothing
    /// changes.
    pub fn give_back(&self) {
        for (start, end) in &self.ranges {
            drop_pages(*start, *end);
        }
    }
}

/// Start and end of each mapping of code.
pub(crate) fn code_ranges() -> Vec<(usize, usize)> {
    ranges(|_, rights| rights == "r-xp")
}

/// Start and end of each read-only mapping of a file that is wanted.
fn ranges(wanted: impl Fn((usize, usize), &str) -> bool) -> Vec<(usize, usize)> {
    let maps = std::fs::read("/proc/self/maps").unwrap_or_default();
    let all = lines(&maps).filter_map(read_only_of_a_file);
    all.filter(|(range, rights)| wanted(*range, rights)).map(|(range, _)| range).collect()
}

/// Start and end of a mapping with its rights, if it is a read-only one of a file.
fn read_only_of_a_file(line: &[u8]) -> Option<((usize, usize), &str)> {
    let line = std::str::from_utf8(line).ok()?;
    let mut fields = line.split_ascii_whitespace();
    let (range, rights, _offset, _device, inode) =
        (fields.next()?, fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    if !matches!(rights, "r-xp" | "r--p") || inode == "0" || !fields.next()?.starts_with('/') {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    let (start, end) = (address(start)?, address(end)?);
    (start < end && start % page_size() == 0).then_some(((start, end), rights))
}

/// Whether every page of a mapping is as in its file. Constants with addresses in them are not: the loader writes these.
fn is_unmodified((start, end): (usize, usize)) -> bool {
    let (first, pages) = (start / page_size(), (end - start).div_ceil(page_size()));
    let mut entries = vec![0; pages.saturating_mul(ENTRY_BYTES)];
    let offset = u64::try_from(first.saturating_mul(ENTRY_BYTES)).unwrap_or(u64::MAX);
    let read = File::open("/proc/self/pagemap")
        .and_then(|pagemap| pagemap.read_exact_at(&mut entries, offset));
    let (entries, _) = entries.as_chunks::<ENTRY_BYTES>();
    let is_modified =
        |entry: u64| entry & SWAPPED != 0 || (entry & PRESENT != 0 && entry & OF_A_FILE == 0);
    read.is_ok() && !entries.iter().any(|entry| is_modified(u64::from_ne_bytes(*entry)))
}

#[expect(unsafe_code, reason = "madvise has no safe wrapper")]
pub(crate) fn drop_pages(start: usize, end: usize) {
    // SAFETY: the range is a private, read-only mapping of a file, so each dropped page is read again from
    // the same file, with the same bytes, at its next use; the kernel checks the range itself. A page
    // modified by a debugger would lose the modification. A failure, as for locked pages, changes nothing.
    unsafe {
        libc::madvise(std::ptr::without_provenance_mut(start), end - start, libc::MADV_DONTNEED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_read_only_mappings_of_files() {
        let of = |line: &str| read_only_of_a_file(line.as_bytes()).map(|(range, _)| range);
        assert_eq!(of("1000-3000 r-xp 000d2000 fe:00 1312   /usr/bin/a b"), Some((0x1000, 0x3000)));
        assert_eq!(of("1000-3000 r--p 00000000 fe:00 1312 /usr/bin/a"), Some((0x1000, 0x3000)));
        for line in [
            "1000-3000 rwxp 000d2000 fe:00 1312 /usr/bin/a",
            "1000-3000 r--s 000d2000 fe:00 1312 /usr/bin/a",
            "1000-3000 rw-p 000d2000 fe:00 1312 /usr/bin/a",
            "1000-3000 r-xp 00000000 00:00 0 [vdso]",
            "1000-3000 r-xp 00000000 00:00 0",
            "3000-1000 r-xp 00000000 fe:00 1312 /usr/bin/a",
            "1001-3000 r-xp 00000000 fe:00 1312 /usr/bin/a",
            "x",
        ] {
            assert_eq!(of(line), None, "{line}");
        }
    }

    #[test]
    fn it_continues_with_less_resident_memory() {
        let resident_kib = || -> u64 {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("RssFile:")).unwrap();
            line.trim().trim_end_matches(" kB").parse().unwrap()
        };
        let before = resident_kib();
        let loaded = Loaded::at_start();
        let code = code_ranges();
        assert!(loaded.ranges.len() > code.len(), "constants, too: {loaded:?}");
        loaded.give_back();
        let after = resident_kib();
        assert!(after < before, "{after} KiB of {before}");
    }

    #[test]
    fn what_the_loader_wrote_is_kept() {
        // A table of addresses, in a mapping that the loader makes read-only after it wrote them.
        type List = fn() -> Vec<(usize, usize)>;
        static TABLE: [List; 2] = [code_ranges, Vec::new];
        let address = (&raw const TABLE).addr();
        let loaded = Loaded::at_start();
        let holds = |(start, end): &(usize, usize)| (*start..*end).contains(&address);
        assert!(!loaded.ranges.iter().any(holds), "{address:x} in {loaded:x?}");
        loaded.give_back();
        assert!(!TABLE.map(|list| list()).concat().is_empty());
    }

    proptest! {
        #[test]
        fn any_bytes(line: Vec<u8>) {
            read_only_of_a_file(&line);
        }
    }
}
