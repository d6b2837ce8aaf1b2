//! Accounting states: data that sources need to continue the counters of running jobs after a restart.
//!
//! The agent writes the file `accounting` beside the spool at a clean shutdown. The next start removes it, so that
//! no state is used twice. See `docs/decisions/0022-accounting-state.md` for the format.

use delivery::crc32c;
use kernel::Root;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// First bytes of the file, with the format version.
const MAGIC: &[u8] = b"jobmeter accounting 1\n";
/// Largest file that is read or written.
const BYTES_MAX: usize = 8 << 20;

/// Source names with their states.
pub(crate) type States = Vec<(String, Vec<u8>)>;

/// The file `accounting`.
#[derive(Debug)]
pub(crate) struct Accounting {
    path: PathBuf,
    boot: String,
}

impl Accounting {
    /// Reads the state of the last clean shutdown and removes the file. A rejected state is logged and counted in
    /// the last returned value. Returns `None` if the kernel has no boot ID.
    pub(crate) fn open(dir: &Path, root: &Root) -> Option<(Self, (States, u64))> {
        let (accounting, states) = Self::try_open(dir, root)?;
        let left = states.map(|states| (states, 0)).unwrap_or_else(|e| {
            log::warn!("rejected the stored accounting state; counters of jobs restart: {e}");
            (States::new(), 1)
        });
        Some((accounting, left))
    }

    fn try_open(dir: &Path, root: &Root) -> Option<(Self, Result<States, String>)> {
        let boot = root.read_text("proc/sys/kernel/random/boot_id").ok()?.trim().to_owned();
        let accounting = Self { path: dir.join("accounting"), boot };
        let states = match accounting.take() {
            Ok(bytes) => read(&bytes, &accounting.boot).map_err(str::to_owned),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(States::new()),
            Err(e) => Err(e.to_string()),
        };
        let states = states.map_err(|e| format!("{}: {e}", accounting.path.display()));
        Some((accounting, states))
    }

    fn take(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let limit = u64::try_from(BYTES_MAX).unwrap_or(u64::MAX) + 1;
        let read = File::open(&self.path)?.take(limit).read_to_end(&mut bytes);
        // Also removes a damaged file: it must not be read twice.
        fs::remove_file(&self.path)?;
        read.map(|_| bytes)
    }

    /// Writes the states atomically.
    ///
    /// # Errors
    /// The disk rejects the write, or the states exceed `BYTES_MAX`.
    pub(crate) fn write(&self, states: &States) -> io::Result<()> {
        let mut bytes = MAGIC.to_vec();
        for part in [self.boot.as_bytes()]
            .into_iter()
            .chain(states.iter().flat_map(|(name, state)| [name.as_bytes(), state.as_slice()]))
        {
            bytes.extend_from_slice(&u32::try_from(part.len()).unwrap_or(u32::MAX).to_le_bytes());
            bytes.extend_from_slice(part);
        }
        bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
        if bytes.len() > BYTES_MAX {
            return Err(io::Error::other("the accounting state exceeds its limit"));
        }
        let beside = self.path.with_extension("new");
        let mut options = OpenOptions::new();
        options.create(true).write(true).truncate(true).mode(0o600);
        options.open(&beside)?.write_all(&bytes)?;
        fs::rename(beside, &self.path)
    }
}

fn read(bytes: &[u8], boot: &str) -> Result<States, &'static str> {
    if bytes.len() > BYTES_MAX {
        return Err("it is too long");
    }
    let (body, check) = bytes.split_last_chunk::<4>().ok_or("it is cut")?;
    let mut rest = body.strip_prefix(MAGIC).ok_or("it is of another version")?;
    if u32::from_le_bytes(*check) != crc32c(body) {
        return Err("its checksum is wrong");
    }
    let mut part = || {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let length = u32::from_le_bytes(*length).try_into().ok()?;
        let (part, after) = after.split_at_checked(length)?;
        rest = after;
        Some(part)
    };
    if part() != Some(boot.as_bytes()) {
        return Err("the machine has booted since");
    }
    let mut states = States::new();
    while let (Some(name), Some(state)) = (part(), part()) {
        states.push((String::from_utf8_lossy(name).into_owned(), state.to_vec()));
    }
    Ok(states)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(boot: &str) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let boot_id = dir.path().join("proc/sys/kernel/random/boot_id");
        fs::create_dir_all(boot_id.parent().unwrap()).unwrap();
        fs::write(&boot_id, boot).unwrap();
        let root = Root::recorded(dir.path()).unwrap();
        (dir, root)
    }

    #[test]
    fn a_state_is_used_once_and_only_within_one_boot() {
        let dir = tempfile::tempdir().unwrap();
        let (_one, root) = machine("one\n");
        let (accounting, none) = Accounting::try_open(dir.path(), &root).unwrap();
        assert_eq!(none, Ok(vec![]));
        let states = vec![("taskstats".to_owned(), vec![1, 2, 3]), ("process".to_owned(), vec![])];
        accounting.write(&states).unwrap();
        assert_eq!(Accounting::try_open(dir.path(), &root).unwrap().1, Ok(states.clone()));
        assert_eq!(Accounting::try_open(dir.path(), &root).unwrap().1, Ok(vec![]));
        accounting.write(&states).unwrap();
        let (_two, other) = machine("two\n");
        let rejected = Accounting::try_open(dir.path(), &other).unwrap().1.unwrap_err();
        assert!(rejected.ends_with("accounting: the machine has booted since"), "{rejected}");
        assert_eq!(Accounting::try_open(dir.path(), &root).unwrap().1, Ok(vec![]));
    }

    #[test]
    fn every_cut_and_every_flipped_byte_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let (_one, root) = machine("one\n");
        let accounting = Accounting::try_open(dir.path(), &root).unwrap().0;
        accounting.write(&vec![("taskstats".to_owned(), vec![1, 2, 3])]).unwrap();
        let good = fs::read(dir.path().join("accounting")).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            for bytes in [&good[..at], &bad] {
                fs::write(dir.path().join("accounting"), bytes).unwrap();
                assert!(Accounting::try_open(dir.path(), &root).unwrap().1.is_err(), "{at}");
            }
        }
    }

    #[test]
    fn a_rejected_state_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let (_one, root) = machine("one\n");
        fs::write(dir.path().join("accounting"), "garbage").unwrap();
        assert_eq!(Accounting::open(dir.path(), &root).unwrap().1, (vec![], 1));
    }
}
