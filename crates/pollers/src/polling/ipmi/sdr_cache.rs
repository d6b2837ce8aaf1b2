//! The sensors' records of BMCs on disk: a restarted poller does not read thousands of repositories again.
//!
//! A file is one BMC's. It is used only for the state of the repository that it names: the number of records, and the times of
//! the latest addition and erasure. A file that is damaged is ignored, and written again.

use crate::descriptions::Target;
use crate::protocols::Protocol;
use config::{SecretFileError, read_secret_file};
use delivery::{crc32c, replace_private};
use kernel::ipmi::{Analog, Repository};
use model::printable;
use ring::digest::{SHA256, digest};
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::DirEntry;
use std::io;
use std::path::{Path, PathBuf};

/// The first line of a file.
const HEAD: &str = "jobmeter-sdr 1";
/// Bytes of the hash in a file's name.
const NAME_BYTES: usize = 16;
/// Bytes of a repository's state.
const STATE_BYTES: usize = 10;

/// The folder of the files; without one, nothing is stored.
#[derive(Clone, Debug, Default)]
pub(crate) struct SdrCache {
    folder: Option<PathBuf>,
}

impl SdrCache {
    /// Stores files in this folder, which only this user can open.
    pub(crate) fn new(folder: Option<PathBuf>) -> Self {
        Self { folder }
    }

    /// Deletes the files of BMCs that are no targets any more.
    pub(crate) fn retain<'a>(&self, targets: impl Iterator<Item = &'a Target>) {
        let Some(Ok(files)) = self.folder.as_ref().map(std::fs::read_dir) else { return };
        let of_bmc = targets.filter(|target| target.protocol == Protocol::Ipmi);
        let names: HashSet<OsString> = of_bmc.map(|target| name(target).into()).collect();
        let is_old = |file: &DirEntry| is_own(file) && !names.contains(&file.file_name());
        for file in files.flatten().filter(is_old) {
            if let Err(error) = std::fs::remove_file(file.path()) {
                log::warn!("cannot delete {}: {error}", printable(&file.path().to_string_lossy()));
            }
        }
    }

    /// The stored sensors of a repository in this state.
    pub(super) async fn load(&self, target: &Target, state: &[u8]) -> Option<Vec<Analog>> {
        let (path, state) = (self.path(target, state)?, state.to_vec());
        let read = tokio::task::spawn_blocking(move || read(&path, &state)).await.ok()?;
        read.unwrap_or_else(|why| {
            log::warn!("{target}: the records of its sensors are read again: {}", printable(&why));
            None
        })
    }

    /// Stores the records of a repository in this state.
    pub(super) async fn store(&self, target: &Target, state: &[u8], records: &[u8]) {
        let Some(path) = self.path(target, state) else { return };
        let text = text(state, records);
        let written = tokio::task::spawn_blocking(move || write(&path, &text)).await;
        if let Ok(Err(error)) = written {
            let error = error.to_string();
            log::warn!("{target}: cannot store the records of its sensors: {}", printable(&error));
        }
    }

    /// The file of a target; `None` if nothing is stored. A state without a time does not show changes.
    fn path(&self, target: &Target, state: &[u8]) -> Option<PathBuf> {
        let time = state.get(2..6)?;
        let has_time = time != [0; 4] && time != [0xff; 4] && state.len() == STATE_BYTES;
        self.folder.as_ref().filter(|_| has_time).map(|folder| folder.join(name(target)))
    }
}

/// The name of a target's file.
fn name(target: &Target) -> String {
    let user = target.user.as_ref().map_or("", |user| user.reveal());
    let key = format!("{}\n{}\n{user}", target.host, target.port);
    hexadecimal(digest(&SHA256, key.as_bytes()).as_ref().get(..NAME_BYTES).unwrap_or_default())
}

/// Whether a file has a name of ours, or that of a file that was not completed.
fn is_own(file: &DirEntry) -> bool {
    let name = file.file_name();
    let name = name.to_str().map(|name| name.strip_suffix(".new").unwrap_or(name));
    name.and_then(bytes).is_some_and(|hash| hash.len() == NAME_BYTES)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of hexadecimal digits.
fn bytes(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| match pair {
        [b'0'..=b'9' | b'a'..=b'f', b'0'..=b'9' | b'a'..=b'f'] => {
            u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()
        }
        _ => None,
    };
    pairs.map(byte).collect()
}

/// The content of a file: its lines, the last of which is the checksum of those before.
fn text(state: &[u8], records: &[u8]) -> String {
    let body = format!("{HEAD}\n{}\n{}\n", hexadecimal(state), hexadecimal(records));
    format!("{body}{:08x}\n", crc32c(body.as_bytes()))
}

/// The sensors in a file; `None` if it is missing or of another state.
fn read(path: &Path, state: &[u8]) -> Result<Option<Vec<Analog>>, String> {
    let found = match read_secret_file(path) {
        Ok(text) => text,
        Err(SecretFileError::Read { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(None);
        }
        Err(error) => return Err(error.to_string()),
    };
    let damaged = || format!("{} is damaged", path.display());
    let mut lines = found.lines().skip(1);
    let of_state = lines.next().and_then(bytes).ok_or_else(damaged)?;
    let records = lines.next().and_then(bytes).ok_or_else(damaged)?;
    // The checksum is that of the whole text.
    let sensors = Repository::sensors_of(&records).filter(|_| text(&of_state, &records) == found);
    let sensors = sensors.ok_or_else(damaged)?;
    Ok((of_state == state).then_some(sensors))
}

/// Writes a file as a whole.
fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        kernel::trust::make_own_folder(folder, 0o700)?;
    }
    replace_private(path, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    const STATE: [u8; STATE_BYTES] = [1, 0, 0x10, 0x20, 0x30, 0x40, 0, 0, 0, 0];

    fn target(host: &str) -> Target {
        let (user, password) = (None, None);
        let host = host.to_owned();
        Target {
            protocol: Protocol::Ipmi,
            is_tls: false,
            host,
            port: 623,
            user,
            password,
            session: None,
        }
    }

    /// The record of a sensor of volts (IPMI 2.0, section 43.1).
    fn record() -> Vec<u8> {
        let mut body = vec![0x20, 0, 7, 7, 1, 0x7f, 0x68, 2, 1, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 60];
        body.extend([0, 0, 0, 0, 0xd0].into_iter().chain([0; 17]).chain([0xc3]).chain(*b"12V"));
        [&[6, 0, 0x51, 1, u8::try_from(body.len()).unwrap()], &body[..]].concat()
    }

    #[tokio::test]
    async fn records_are_used_for_their_repository_only() {
        let dir = tempfile::tempdir().unwrap();
        let cache = SdrCache::new(Some(dir.path().join("sdr")));
        let (one, other) = (target("bmc-1"), target("bmc-2"));
        assert_eq!(cache.load(&one, &STATE).await, None);
        cache.store(&one, &STATE, &record()).await;
        let sensors = cache.load(&one, &STATE).await.unwrap();
        assert_eq!((sensors.len(), &*sensors[0].name), (1, "12V"));
        let path = cache.path(&one, &STATE).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        let mut later = STATE;
        later[5] = 0x41;
        assert_eq!(cache.load(&one, &later).await, None, "another time");
        assert_eq!(cache.load(&other, &STATE).await, None);
        for timeless in [[0; STATE_BYTES], [0xff; STATE_BYTES]] {
            cache.store(&other, &timeless, &record()).await;
            assert_eq!(cache.load(&other, &timeless).await, None);
        }
        // Only the files of targets are kept, and those of others.
        let foreign = path.with_file_name("notes");
        std::fs::write(&foreign, "").unwrap();
        std::fs::write(path.with_extension("new"), "").unwrap();
        cache.retain([&one, &other].into_iter());
        assert!(path.is_file());
        cache.retain([&other].into_iter());
        assert_eq!(std::fs::read_dir(dir.path().join("sdr")).unwrap().count(), 1);
        assert!(foreign.is_file());
        // Without a folder, nothing is stored.
        SdrCache::default().store(&one, &STATE, &record()).await;
        assert_eq!(SdrCache::default().load(&one, &STATE).await, None);
    }

    #[tokio::test]
    async fn a_damaged_file_is_ignored_and_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let (cache, one) = (SdrCache::new(Some(dir.path().to_owned())), target("bmc-1"));
        cache.store(&one, &STATE, &record()).await;
        let path = cache.path(&one, &STATE).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for place in 0..whole.len() {
            let mut bad = whole.clone();
            bad[place] ^= 1;
            std::fs::write(&path, &bad).unwrap();
            assert_eq!(cache.load(&one, &STATE).await, None, "byte {place}");
            std::fs::write(&path, &whole[..place]).unwrap();
            assert_eq!(cache.load(&one, &STATE).await, None, "{place} bytes");
        }
        // A file that others can change is none of ours.
        std::fs::write(&path, &whole).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o622)).unwrap();
        assert_eq!(cache.load(&one, &STATE).await, None);
        std::fs::remove_file(&path).unwrap();
        cache.store(&one, &STATE, &record()).await;
        assert!(cache.load(&one, &STATE).await.is_some());
    }
}
