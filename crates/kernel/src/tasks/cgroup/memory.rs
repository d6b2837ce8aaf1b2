//! Memory of a cgroup: `memory.stat` of both versions, version 2's `memory.events`, version 1's
//! `memory.oom_control` (Documentation/admin-guide/cgroup-v2.rst, "Memory Interface Files";
//! Documentation/admin-guide/cgroup-v1/memory.rst; mm/memcontrol.c and mm/memcontrol-v1.c, Linux
//! 6.18).
//!
//! ```text
//! anon 24576                       total_rss 24576
//! file 4096                        total_cache 4096
//! pgfault 438                      total_pgfault 438
//! ```
//!
//! Left version 2, right version 1; its lines without `total_` count the cgroup alone and not
//! those below it. [`MemoryKey`] names what both mean; both versions print the same counters of the
//! kernel (`NR_ANON_MAPPED` is `anon` and `rss`, `NR_FILE_PAGES` is `file` and `cache`).

use super::pairs;
use crate::parse::ParseError;

macro_rules! memory_keys {
    ($($(#[$doc:meta])* $key:ident, $v2:expr, $v1:expr;)*) => {
        /// A line of `memory.stat`. Sizes are in bytes, events are counts.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum MemoryKey { $($(#[$doc])* $key),* }

        impl MemoryKey {
            /// Every key.
            pub const ALL: &[Self] = &[$(Self::$key),*];

            /// The word of version 2, if it has one.
            pub const fn v2(self) -> Option<&'static str> {
                match self { $(Self::$key => $v2),* }
            }

            /// The word of version 1, if it has one.
            pub const fn v1(self) -> Option<&'static str> {
                match self { $(Self::$key => $v1),* }
            }
        }

        /// Number of keys.
        const KEYS: usize = [$(MemoryKey::$key),*].len();
    };
}

memory_keys! {
    /// Anonymous memory: heaps, stacks, private mappings.
    Anon, Some("anon"), Some("total_rss");
    /// Page cache, shared memory included.
    File, Some("file"), Some("total_cache");
    /// Kernel memory of every kind, since Linux 5.18.
    Kernel, Some("kernel"), None;
    /// Buffers of sockets.
    Socket, Some("sock"), None;
    /// Shared memory and tmpfs.
    Shmem, Some("shmem"), Some("total_shmem");
    /// Page cache mapped into an address space.
    Mapped, Some("file_mapped"), Some("total_mapped_file");
    /// Page cache that differs from the disk.
    Dirty, Some("file_dirty"), Some("total_dirty");
    /// Page cache on its way to the disk.
    Writeback, Some("file_writeback"), Some("total_writeback");
    /// Swapped out and still in memory as well, since Linux 5.12.
    SwapCached, Some("swapcached"), Some("total_swapcached");
    /// Anonymous memory in huge pages.
    AnonHuge, Some("anon_thp"), Some("total_rss_huge");
    /// Swapped out. Version 2 has a file of its own for it.
    Swap, None, Some("total_swap");
    /// Anonymous memory not used recently.
    InactiveAnon, Some("inactive_anon"), Some("total_inactive_anon");
    /// Anonymous memory used recently.
    ActiveAnon, Some("active_anon"), Some("total_active_anon");
    /// Page cache not used recently.
    InactiveFile, Some("inactive_file"), Some("total_inactive_file");
    /// Page cache used recently.
    ActiveFile, Some("active_file"), Some("total_active_file");
    /// Locked in memory.
    Unevictable, Some("unevictable"), Some("total_unevictable");
    /// Anonymous pages read again soon after their eviction.
    RefaultAnon, Some("workingset_refault_anon"), Some("total_workingset_refault_anon");
    /// File pages read again soon after their eviction; before Linux 5.9 there were no
    /// others, and the word was `workingset_refault`.
    RefaultFile, Some("workingset_refault_file"), Some("total_workingset_refault_file");
    /// Pages read back from swap, since Linux 6.13.
    SwappedIn, Some("pswpin"), None;
    /// Pages written to swap, since Linux 6.13.
    SwappedOut, Some("pswpout"), None;
    /// Charges to the cgroup, each of a page or of a folio of several (`mem_cgroup_charge_statistics`):
    /// version 1's `pgpgin` counts these, not reads of a disk.
    Charged, None, Some("total_pgpgin");
    /// Ends of charges: version 1's `pgpgout`.
    Uncharged, None, Some("total_pgpgout");
    /// Page faults, major ones included.
    Faults, Some("pgfault"), Some("total_pgfault");
    /// Page faults that had to read.
    MajorFaults, Some("pgmajfault"), Some("total_pgmajfault");
}

/// The word for [`MemoryKey::RefaultFile`] before Linux 5.9, in versions 2 and 1.
const OLD_REFAULT: [&str; 2] = ["workingset_refault", "total_workingset_refault"];

/// The content of `memory.stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStat {
    values: [Option<u64>; KEYS],
}

impl MemoryStat {
    /// The number of a key, if the file has it.
    pub fn get(&self, key: MemoryKey) -> Option<u64> {
        let place = MemoryKey::ALL.iter().position(|known| *known == key)?;
        self.values.get(place).copied().flatten()
    }
}

/// Reads version 2's `memory.stat`. Unknown lines are skipped: every kernel adds some.
///
/// # Errors
/// The text is truncated or empty, or a line has no number.
pub fn memory_stat_v2(text: &[u8]) -> Result<MemoryStat, ParseError> {
    memory_stat(text, MemoryKey::v2, OLD_REFAULT[0])
}

/// Reads version 1's `memory.stat`, of which only the lines that count the cgroup and those below
/// it are taken.
///
/// # Errors
/// The text is truncated or empty, or a line has no number.
pub fn memory_stat_v1(text: &[u8]) -> Result<MemoryStat, ParseError> {
    memory_stat(text, MemoryKey::v1, OLD_REFAULT[1])
}

fn memory_stat(
    text: &[u8],
    word: impl Fn(MemoryKey) -> Option<&'static str>,
    old_refault: &str,
) -> Result<MemoryStat, ParseError> {
    let mut stat = MemoryStat::default();
    let mut any = false;
    let mut next = 0;
    for pair in pairs(text)? {
        let (found, value) = pair?;
        any = true;
        let found = if found == old_refault.as_bytes() {
            word(MemoryKey::RefaultFile).unwrap_or_default().as_bytes()
        } else {
            found
        };
        // The kernel prints in about the order of the table, so the search begins after the last
        // find.
        let is_it = |key: &MemoryKey| word(*key).is_some_and(|word| word.as_bytes() == found);
        let keys = MemoryKey::ALL.iter().enumerate().cycle().skip(next).take(KEYS);
        if let Some((place, _)) = keys.into_iter().find(|(_, key)| is_it(key)) {
            if let Some(slot) = stat.values.get_mut(place) {
                *slot = Some(value);
            }
            next = (place + 1) % KEYS;
        }
    }
    if any { Ok(stat) } else { Err(ParseError::at(text)) }
}

/// Version 2's `memory.events`, of the cgroup and those below it.
///
/// ```text
/// low 0
/// high 0
/// max 17
/// oom 1
/// oom_kill 1
/// oom_group_kill 0
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryEvents {
    /// Times that the limit was reached and memory had to be reclaimed.
    pub max: u64,
    /// Processes killed because memory ran out, if the kernel counts them (4.13 and later).
    pub oom_kill: Option<u64>,
}

/// Reads version 2's `memory.events`.
///
/// # Errors
/// The text is truncated, or has no `max`.
pub fn memory_events(text: &[u8]) -> Result<MemoryEvents, ParseError> {
    let (mut max, mut oom_kill) = (None, None);
    for pair in pairs(text)? {
        match pair? {
            (b"max", count) => max = Some(count),
            (b"oom_kill", count) => oom_kill = Some(count),
            _ => {}
        }
    }
    Ok(MemoryEvents { max: max.ok_or(ParseError::at(text))?, oom_kill })
}

/// Reads the processes killed from version 1's `memory.oom_control`, where the kernel counts them
/// (4.13 and later). Unlike version 2's number it is of this cgroup alone, without those below it.
///
/// # Errors
/// The text is truncated or empty, or a line has no number.
pub fn oom_control(text: &[u8]) -> Result<Option<u64>, ParseError> {
    let (mut any, mut kills) = (false, None);
    for pair in pairs(text)? {
        any = true;
        if let (b"oom_kill", count) = pair? {
            kills = Some(count);
        }
    }
    if any { Ok(kills) } else { Err(ParseError::at(text)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A file with a distinct number for each key of a version: its position in the table plus 1.
    fn file(word: impl Fn(MemoryKey) -> Option<&'static str>) -> Vec<u8> {
        let mut text = String::from("something_new 5\n");
        for (place, key) in MemoryKey::ALL.iter().enumerate() {
            if let Some(word) = word(*key) {
                text.push_str(&format!("{word} {}\n", place + 1));
            }
        }
        text.into_bytes()
    }

    #[test]
    fn every_word_of_both_versions_is_found() {
        let v2 = memory_stat_v2(&file(MemoryKey::v2)).unwrap();
        let v1 = memory_stat_v1(&file(MemoryKey::v1)).unwrap();
        for (place, key) in MemoryKey::ALL.iter().enumerate() {
            let own = u64::try_from(place + 1).unwrap();
            assert_eq!(v2.get(*key), key.v2().map(|_| own), "{key:?}");
            assert_eq!(v1.get(*key), key.v1().map(|_| own), "{key:?}");
        }
    }

    #[test]
    fn any_order_is_accepted_and_version_1_lines_without_total_are_skipped() {
        let stat = memory_stat_v2(b"pgfault 9\nanon 4096\nfile 1\n").unwrap();
        assert_eq!((stat.get(MemoryKey::Anon), stat.get(MemoryKey::Faults)), (Some(4096), Some(9)));
        let stat = memory_stat_v1(b"rss 1\nanon 2\ncache 3\ntotal_rss 4\n").unwrap();
        assert_eq!((stat.get(MemoryKey::Anon), stat.get(MemoryKey::File)), (Some(4), None));
    }

    #[test]
    fn refaults_of_old_kernels() {
        let v2 = memory_stat_v2(b"workingset_refault 7\n").unwrap();
        assert_eq!(v2.get(MemoryKey::RefaultFile), Some(7));
        let v1 = memory_stat_v1(b"workingset_refault 1\ntotal_workingset_refault 7\n").unwrap();
        assert_eq!(v1.get(MemoryKey::RefaultFile), Some(7));
    }

    #[test]
    fn events_and_kills() {
        let text = b"low 0\nhigh 0\nmax 17\noom 1\noom_kill 2\noom_group_kill 0\n";
        assert_eq!(memory_events(text), Ok(MemoryEvents { max: 17, oom_kill: Some(2) }));
        assert_eq!(memory_events(b"max 17\n"), Ok(MemoryEvents { max: 17, oom_kill: None }));
        assert_eq!(oom_control(b"oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"), Ok(Some(3)));
        assert_eq!(oom_control(b"oom_kill_disable 0\nunder_oom 0\n"), Ok(None));
        assert!(memory_events(b"low 0\n").is_err() && oom_control(b"").is_err());
    }

    #[test]
    fn a_truncated_line_is_rejected() {
        let text = file(MemoryKey::v2);
        for cut in 0..text.len() {
            let whole = cut > 0 && text[..cut].ends_with(b"\n");
            assert_eq!(memory_stat_v2(&text[..cut]).is_ok(), whole, "{cut}");
        }
        assert!(memory_stat_v2(b"anon\n").is_err() && memory_stat_v2(b"anon x\n").is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            memory_stat_v2(&bytes).ok();
            memory_stat_v1(&bytes).ok();
            memory_events(&bytes).ok();
            oom_control(&bytes).ok();
        }

        #[test]
        fn no_changed_byte_panics(place in 0_usize..400, byte: u8) {
            let mut text = file(MemoryKey::v1);
            let place = place % text.len();
            text[place] = byte;
            memory_stat_v1(&text).ok();
        }
    }
}
