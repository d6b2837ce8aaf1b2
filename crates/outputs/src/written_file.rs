//! Files that outputs write for other programs: their options, their path, their rights, rotation.

use config::OutputConfig;
use jiff::tz::TimeZone;
use kernel::Root;
use kernel::user_files::groups;
use model::setting::{Kind, OptionSpec};
use parking_lot::Mutex;
use rustix::fs::{Gid, Mode};
use std::collections::BTreeSet;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The size at which a new file begins.
pub(crate) const ROTATE_BYTES: OptionSpec = OptionSpec {
    name: "rotate_bytes",
    kind: Kind::Bytes { min: 4096, max: 1 << 50 },
    default: "1GiB",
    help: "When the file has this size, it is renamed to `PATH.TIME` and a new one begins. Rotated files remain.",
};
/// Whether a new file begins each day.
pub(crate) const ROTATE_DAILY: OptionSpec = OptionSpec {
    name: "rotate_daily",
    kind: Kind::Switch,
    default: "false",
    help: "Whether a new file also begins each day (UTC).",
};
/// Permissions.
pub(crate) const MODE: OptionSpec = OptionSpec {
    name: "mode",
    kind: Kind::TextOf("MODE", is_mode),
    default: "0640",
    help: "Permissions of the file.",
};
/// The group.
pub(crate) const GROUP: OptionSpec = OptionSpec {
    name: "group",
    kind: Kind::Text("GROUP"),
    default: "",
    help: "Group of the file, by name or number; the server must be a member of it, or root.",
};

/// The value of an option.
pub(crate) fn option<'a>(config: &'a OutputConfig, name: &str) -> &'a str {
    config.options.get(name).map_or("", String::as_str)
}

fn is_mode(text: &str) -> Result<(), String> {
    mode_of(text)
        .map(drop)
        .ok_or_else(|| format!("`{text}` is no mode such as 0640, which others cannot write"))
}

/// Permission bits with which the owner alone may write.
fn mode_of(text: &str) -> Option<u32> {
    let is_octal = text.bytes().all(|digit| matches!(digit, b'0'..=b'7'));
    let mode = u32::from_str_radix(text, 8).ok().filter(|_| is_octal);
    mode.filter(|mode| mode & !0o755 == 0 && mode & 0o200 != 0)
}

/// The ID of the group of a file.
///
/// # Errors
/// No group has this name.
fn group_of(text: &str) -> Result<Option<u32>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    // The largest number means "unchanged" to the kernel.
    if let Some(gid) = text.parse().ok().filter(|gid| *gid != u32::MAX) {
        return Ok(Some(gid));
    }
    let root = Root::live().map_err(|error| error.to_string())?;
    let mut file = Vec::new();
    root.read("etc/group", &mut file).map_err(|error| error.to_string())?;
    let found = groups(&file).find(|group| group.name == text).map(|group| group.gid);
    found
        .map(Some)
        .ok_or_else(|| format!("there is no group `{text}` in /etc/group; write its number"))
}

/// The errors of the group of a configuration.
pub(crate) fn check_group(config: &OutputConfig) -> Option<(&'static str, String)> {
    group_of(option(config, GROUP.name)).err().map(|what| (GROUP.name, what))
}

/// Checks that a file of this path can be written.
///
/// # Errors
/// It cannot, and what to do.
pub(crate) fn check_path(path: &str) -> Result<(), String> {
    let file = Path::new(path);
    let dir = folder(file);
    let is_other = file.symlink_metadata().is_ok_and(|about| !about.is_file());
    if path.ends_with('/') || file.is_dir() {
        return Err(format!("{path} is a folder; name a file"));
    }
    if path.contains('\0') || is_other {
        return Err(format!("{} is no regular file", path.escape_debug()));
    }
    if !dir.is_dir() {
        return Err(format!("there is no folder {}; create it", dir.display()));
    }
    kernel::trust::check_way(dir).map_err(|error| error.to_string())
}

fn folder(file: &Path) -> &Path {
    file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes the names in the folder of a file durable.
///
/// # Errors
/// The system rejects it.
pub(crate) fn sync_folder(file: &Path) -> io::Result<()> {
    File::open(folder(file))?.sync_all()
}

/// What the options mean.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileRules {
    rotate_bytes: u64,
    rotate_daily: bool,
    mode: u32,
    group: Option<u32>,
}

impl FileRules {
    /// The rules of an output with the options of this file.
    ///
    /// # Errors
    /// There is no such group.
    pub(crate) fn of(config: &OutputConfig) -> Result<Self, String> {
        let bytes = model::setting::parse_bytes(option(config, ROTATE_BYTES.name));
        Ok(Self {
            rotate_bytes: bytes.unwrap_or(1 << 30),
            rotate_daily: option(config, ROTATE_DAILY.name) == "true",
            mode: mode_of(option(config, MODE.name)).unwrap_or(0o640),
            group: group_of(option(config, GROUP.name))?,
        })
    }

    /// The same rules for a file that is never full.
    pub(crate) fn of_one_file(self) -> Self {
        Self { rotate_bytes: u64::MAX, rotate_daily: false, ..self }
    }

    /// Opens a file for appending. One without content gets its mode and group.
    ///
    /// # Errors
    /// The system rejects it, or another output writes it.
    pub(crate) fn open(&self, path: &Path) -> io::Result<OwnFile> {
        let file = kernel::trust::no_link(path, 0o600)?;
        let about = file.metadata()?;
        if !about.is_file() {
            return Err(io::Error::other("it is no regular file"));
        }
        let own = OwnFile::new(file)?;
        if about.len() == 0 {
            if let Some(gid) = self.group {
                rustix::fs::fchown(&own.file, None, Some(Gid::from_raw(gid)))?;
            }
            rustix::fs::fchmod(&own.file, Mode::from_bits_truncate(self.mode))?;
            sync_folder(path)?;
        }
        Ok(own)
    }

    /// Whether a new file is due: by size, or because the last write was before today.
    pub(crate) fn is_full(&self, bytes: u64, about: &Metadata) -> bool {
        const DAY_S: i64 = 86_400;
        let today = jiff::Timestamp::now().as_second().div_euclid(DAY_S);
        bytes >= self.rotate_bytes || (self.rotate_daily && about.mtime().div_euclid(DAY_S) < today)
    }
}

/// Device and inode of each file that an output of this program writes.
static WRITTEN: Mutex<BTreeSet<(u64, u64)>> = Mutex::new(BTreeSet::new());

/// An open file that no other output of this program writes. A lock of the file itself would need no right to write: every
/// reader could hold it.
#[derive(Debug)]
pub(crate) struct OwnFile {
    pub(crate) file: File,
    /// Device and inode.
    pub(crate) id: (u64, u64),
}

impl OwnFile {
    fn new(file: File) -> io::Result<Self> {
        let id = id_of(&file.metadata()?);
        if WRITTEN.lock().insert(id) {
            return Ok(Self { file, id });
        }
        Err(io::Error::other("another output writes it; choose another path"))
    }

    /// Whether the file still has this path.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        path.symlink_metadata().is_ok_and(|about| self.id == id_of(&about))
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        WRITTEN.lock().remove(&self.id);
    }
}

fn id_of(about: &Metadata) -> (u64, u64) {
    (about.dev(), about.ino())
}

/// Renames a file to `PATH.TIME`, or `PATH.TIME-N` if that exists. Returns the new name.
///
/// # Errors
/// The system rejects it.
pub(crate) fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let now = jiff::Timestamp::now().to_zoned(TimeZone::UTC);
    let time = now.strftime("%Y%m%dT%H%M%SZ");
    let mut name = path.to_owned().into_os_string();
    name.push(format!(".{time}"));
    let mut free = PathBuf::from(&name);
    for number in 1.. {
        if !free.try_exists()? {
            break;
        }
        let mut next = name.clone();
        next.push(format!("-{number}"));
        free = next.into();
    }
    fs::rename(path, &free)?;
    sync_folder(path)?;
    Ok(free)
}
