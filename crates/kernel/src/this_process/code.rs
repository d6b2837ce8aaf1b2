//! The resident code of this process (`/proc/self/maps`, proc_pid_maps(5); madvise(2)).
//!
//! ```text
//! 55d0c8a00000-55d0c8d60000 r-xp 000d2000 fe:00 1312 /usr/bin/jobmeter-agent
//! ```

use crate::parse::lines;
use rustix::param::page_size;

/// Drops the code pages of the program and its libraries. Pages in use return from the page
/// cache at their next use, for about a microsecond per sixteen; pages that only the startup needed do not. For a
/// program with a memory budget. If it fails, nothing changes.
pub fn give_back() {
    for (start, end) in ranges() {
        drop_pages(start, end);
    }
}

/// Start and end of each mapping of code.
pub(crate) fn ranges() -> Vec<(usize, usize)> {
    let maps = std::fs::read("/proc/self/maps").unwrap_or_default();
    lines(&maps).filter_map(code_of_a_file).collect()
}

/// Start and end of a mapping, if it is read-only code of a file.
fn code_of_a_file(line: &[u8]) -> Option<(usize, usize)> {
    let line = std::str::from_utf8(line).ok()?;
    let mut fields = line.split_ascii_whitespace();
    let (range, rights, _offset, _device, inode) =
        (fields.next()?, fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    if rights != "r-xp" || inode == "0" || !fields.next()?.starts_with('/') {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    let (start, end) = (address(start)?, address(end)?);
    (start < end && start % page_size() == 0).then_some((start, end))
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
    fn only_code_of_files() {
        let of = |line: &str| code_of_a_file(line.as_bytes());
        assert_eq!(of("1000-3000 r-xp 000d2000 fe:00 1312   /usr/bin/a b"), Some((0x1000, 0x3000)));
        for line in [
            "1000-3000 rwxp 000d2000 fe:00 1312 /usr/bin/a",
            "1000-3000 r--p 000d2000 fe:00 1312 /usr/bin/a",
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
        give_back();
        let after = resident_kib();
        assert!(after < before, "{after} KiB of {before}");
    }

    proptest! {
        #[test]
        fn any_bytes(line: Vec<u8>) {
            code_of_a_file(&line);
        }
    }
}
