//! The output `file`: lines of JSON, or the text of Colmet's collector, in a file that rotates, or on standard output.
//!
//! Before each portion, the output notes durably where the file ends. If the portion comes again, the file is first cut
//! there, so each line is in the files once, whatever was killed.

use crate::files::{read_if_there, replace_durably};
use crate::portion::Portion;
use crate::records::{CLUSTER, DOMAIN, Layout, PERF_COUNTERS};
use crate::row::{SeriesText, text, write_line, write_time};
use crate::spec::{FillTimes, Guarantee, OpenFill, Output, Spec, WriteError};
use config::OutputConfig;
use jiff::tz::TimeZone;
use kernel::Root;
use kernel::user_files::groups;
use model::setting::{Kind, OptionSpec};
use model::{Gap, Timestamp};
use parking_lot::Mutex;
use rustix::fs::{Gid, Mode};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use storage::{FollowMark, OutputGap};

/// Where an unfinished portion is noted, in the output's own folder.
const MARK: &str = "file.json";
/// Stands for standard output.
const STDOUT: &str = "-";
/// The formats.
const JSON: &str = "json";
const COLMET: &str = "colmet";
/// Why a configuration is rejected.
pub(super) const NEEDS_CLUSTER: &str =
    "Colmet's records have only a job's number: it needs `cluster`, the cluster of the jobs";

/// The kind.
pub(super) const SPEC: Spec = Spec {
    name: "file",
    help: "A file with a line of JSON for each sample and each gap, or with the text that Colmet's collector prints; or standard output.",
    guarantee_help: "kept with a path: the lines are on the disk, each once; sent with `-`",
    options: &[
        OptionSpec {
            name: "path",
            kind: Kind::Text("FILE|-"),
            default: "",
            help: "The file, or `-` for standard output of the server.",
        },
        OptionSpec {
            name: "format",
            kind: Kind::Choice(&[JSON, COLMET]),
            default: JSON,
            help: "Lines of JSON, or Colmet's text of each record, with rounded values, for people. The text has no gaps.",
        },
        CLUSTER,
        DOMAIN,
        PERF_COUNTERS,
        OptionSpec {
            name: "rotate_bytes",
            kind: Kind::Bytes { min: 4096, max: 1 << 50 },
            default: "1GiB",
            help: "When the file has this size, it is renamed to `PATH.TIME` and a new one begins. Rotated files remain.",
        },
        OptionSpec {
            name: "rotate_daily",
            kind: Kind::Switch,
            default: "false",
            help: "Whether a new file also begins each day (UTC).",
        },
        OptionSpec {
            name: "mode",
            kind: Kind::TextOf("MODE", is_mode),
            default: "0640",
            help: "Permissions of the file.",
        },
        OptionSpec {
            name: "group",
            kind: Kind::Text("GROUP"),
            default: "",
            help: "Group of the file, by name or number; the server must be a member of it, or root.",
        },
    ],
    guarantee,
    check,
    records: |config| is_colmet(config).then(|| Layout::of(config)).flatten(),
    open,
    fill,
    ..Spec::DEFAULT
};

fn guarantee(config: &OutputConfig) -> Guarantee {
    if path_of(config) == STDOUT { Guarantee::Sent } else { Guarantee::Kept }
}

fn is_colmet(config: &OutputConfig) -> bool {
    option(config, "format") == COLMET
}

fn path_of(config: &OutputConfig) -> &str {
    option(config, "path")
}

pub(super) fn option<'a>(config: &'a OutputConfig, name: &str) -> &'a str {
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

/// Whether records are wanted, and their cluster is not known.
fn lacks_cluster(config: &OutputConfig) -> bool {
    is_colmet(config) && Layout::of(config).is_none()
}

fn check(config: &OutputConfig) -> Vec<(&'static str, String)> {
    let mut wrong = Vec::new();
    if let Err(what) = group_of(option(config, "group")) {
        wrong.push(("group", what));
    }
    if lacks_cluster(config) {
        wrong.push((CLUSTER.name, NEEDS_CLUSTER.to_owned()));
    }
    match path_of(config) {
        "" => {
            wrong.push(("path", "it needs `path`: a file, or `-` for standard output".to_owned()))
        }
        STDOUT => {}
        path => wrong.extend(check_path(path).err().map(|what| ("path", what))),
    }
    wrong
}

/// Checks that a file of this path can be written.
///
/// # Errors
/// It cannot, and what to do.
fn check_path(path: &str) -> Result<(), String> {
    let file = Path::new(path);
    let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
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

fn open(config: &OutputConfig, folder: &Path) -> Result<Box<dyn Output>, WriteError> {
    let path = path_of(config);
    if path.is_empty() {
        return Err(WriteError::new("it needs `path`"));
    }
    if lacks_cluster(config) {
        return Err(WriteError::new(NEEDS_CLUSTER));
    }
    let encode: Encode = if is_colmet(config) { encode_colmet } else { encode_json };
    if path == STDOUT {
        return Ok(Box::new(Stdout { encode }));
    }
    Ok(Box::new(rotated(config, path.into(), folder, encode)?))
}

fn fill(config: &OutputConfig) -> Result<OpenFill, &'static str> {
    match path_of(config) {
        _ if is_colmet(config) => {
            Err("Colmet's records need every earlier sample; use `format = \"json\"`")
        }
        STDOUT => Err("it writes to standard output; write to a file"),
        _ => Ok(open_fill),
    }
}

/// Opens the file of a time range. It is never full, and its name never that of another one.
fn open_fill(
    config: &OutputConfig,
    folder: &Path,
    times: FillTimes,
) -> Result<Box<dyn Output>, WriteError> {
    let FillTimes { from, to, requested } = times;
    let [from, to, requested] = [from, to, requested].map(|at| {
        let at = jiff::Timestamp::from_microsecond(at.0).unwrap_or_default();
        at.strftime("%Y%m%dT%H%M%SZ").to_string()
    });
    let path = format!("{}.fill-{from}-{to}.{requested}", path_of(config));
    let file = rotated(config, path.into(), folder, encode_json)?;
    Ok(Box::new(RotatedFile { rotate_bytes: u64::MAX, rotate_daily: false, ..file }))
}

fn rotated(
    config: &OutputConfig,
    path: PathBuf,
    folder: &Path,
    encode: Encode,
) -> Result<RotatedFile, WriteError> {
    let bytes = model::setting::parse_bytes(option(config, "rotate_bytes"));
    Ok(RotatedFile {
        encode,
        path,
        mark: folder.join(MARK),
        rotate_bytes: bytes.unwrap_or(1 << 30),
        rotate_daily: option(config, "rotate_daily") == "true",
        mode: mode_of(option(config, "mode")).unwrap_or(0o640),
        group: group_of(option(config, "group")).map_err(WriteError::new)?,
        file: None,
    })
}

/// Returns the bytes of a portion.
type Encode = fn(&Portion) -> Vec<u8>;

/// Colmet's text of the records of a portion. Its dates are local, as Colmet's.
fn encode_colmet(portion: &Portion) -> Vec<u8> {
    let zone = TimeZone::system();
    let offset = |at: Timestamp| {
        let at = jiff::Timestamp::from_microsecond(at.0);
        at.map_or(0, |at| zone.to_offset(at).seconds())
    };
    let mut text = String::new();
    for record in &portion.records {
        colmet::text::write(record, &offset, &mut text);
    }
    text.into_bytes()
}

/// The lines of a portion: samples, then gaps, then lost samples.
fn encode_json(portion: &Portion) -> Vec<u8> {
    let Portion { samples, gaps, lost, .. } = portion;
    let mut out = Vec::with_capacity(samples.times.len() * 160);
    let texts: Vec<SeriesText> = samples.series.iter().map(|info| SeriesText::new(info)).collect();
    let numbers = samples.times.iter().zip(&samples.values).zip(&samples.starts);
    for (place, ((at, value), start)) in samples.places.iter().zip(numbers) {
        if let Some(series) = texts.get(*place as usize) {
            write_line(series, (*at, *value, *start), &mut out);
        }
    }
    for gap in gaps {
        write_gap(gap, &mut out);
    }
    if let Some(OutputGap { from, to, samples, why }) = lost {
        let more = format!("\"samples\":{samples},\"why\":{}", text(why));
        write_span("output_gap", (from.0, to.0), &more, &mut out);
    }
    out
}

fn write_gap(gap: &Gap, out: &mut Vec<u8>) {
    let Gap { origin, device, source, from, to, cause, detail } = gap;
    let more = format!(
        "\"device\":{},\"origin\":{},\"source\":{},\"cause\":{},\"detail\":{}",
        text(device.as_str()),
        text(origin.as_str()),
        text(source),
        text(cause.words()),
        text(detail)
    );
    write_span("gap", (from.0, to.0), &more, out);
}

fn write_span(name: &str, (from, to): (i64, i64), more: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{{\"{name}\":{{\"from\":").as_bytes());
    write_time(from, out);
    out.extend_from_slice(b",\"to\":");
    write_time(to, out);
    out.extend_from_slice(format!(",{more}}}}}\n").as_bytes());
}

/// Standard output. Its reader acknowledges nothing.
struct Stdout {
    encode: Encode,
}

impl Output for Stdout {
    fn write(&mut self, portion: &Portion) -> Result<(), WriteError> {
        let mut out = io::stdout().lock();
        let written = out.write_all(&(self.encode)(portion)).and_then(|()| out.flush());
        written.map_err(|error| WriteError::new(format!("standard output: {error}")))
    }
}

/// What was begun: on a restart with the same mark, the file is cut to this length.
#[derive(Debug, Serialize, Deserialize)]
struct Begun {
    begun: i64,
    confirmed: u64,
    device: u64,
    inode: u64,
    /// Length of the file before it.
    bytes: u64,
    /// Length of the portion.
    portion: u64,
}

impl Begun {
    /// Whether all that follows in the file is this portion, or a part of it. After a restored copy of the data folder, a
    /// longer file has later portions, too: nothing of it is cut.
    fn is_end_of(&self, mark: FollowMark, about: &fs::Metadata) -> bool {
        (self.begun, self.confirmed) == (mark.begun, mark.confirmed)
            && (self.device, self.inode) == (about.dev(), about.ino())
            && (self.bytes..=self.bytes.saturating_add(self.portion)).contains(&about.len())
    }
}

/// Device and inode of each file that an output of this program writes.
static WRITTEN: Mutex<BTreeSet<(u64, u64)>> = Mutex::new(BTreeSet::new());

/// An open file that no other output of this program writes. A lock of the file itself would need no right to write: every
/// reader could hold it.
struct OwnFile {
    file: File,
    id: (u64, u64),
}

impl OwnFile {
    fn new(file: File) -> io::Result<Self> {
        let about = file.metadata()?;
        let id = (about.dev(), about.ino());
        if WRITTEN.lock().insert(id) {
            return Ok(Self { file, id });
        }
        Err(io::Error::other("another output writes it; choose another path"))
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        WRITTEN.lock().remove(&self.id);
    }
}

struct RotatedFile {
    encode: Encode,
    path: PathBuf,
    mark: PathBuf,
    rotate_bytes: u64,
    rotate_daily: bool,
    mode: u32,
    group: Option<u32>,
    /// The file that was written last.
    file: Option<OwnFile>,
}

impl Output for RotatedFile {
    fn write(&mut self, portion: &Portion) -> Result<(), WriteError> {
        let bytes = (self.encode)(portion);
        let path = self.path.clone();
        let failed = || WriteError::at(&path);
        let mut own = self.current_file().map_err(failed())?;
        let about = own.file.metadata().map_err(failed())?;
        let begun = self.begun().map_err(WriteError::at(&self.mark))?;
        if let Some(begun) = begun.filter(|begun| begun.is_end_of(portion.mark, &about)) {
            let cut = own.file.set_len(begun.bytes);
            cut.and_then(|()| own.file.sync_data()).map_err(failed())?;
        }
        if !bytes.is_empty() {
            let about = own.file.metadata().map_err(failed())?;
            if about.len() > 0 && self.is_full(&about) {
                self.rotate().map_err(failed())?;
                drop(own);
                own = self.open_file().map_err(failed())?;
            }
            self.note(portion.mark, &own.file, &bytes).map_err(WriteError::at(&self.mark))?;
            append(&mut own.file, &bytes).map_err(failed())?;
        }
        self.file = Some(own);
        Ok(())
    }
}

/// Appends bytes durably. If that fails, no part of them remains: another program may move the file meanwhile.
fn append(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    let before = file.metadata()?.len();
    file.write_all(bytes).and_then(|()| file.sync_data()).inspect_err(|_| {
        if let Err(error) = file.set_len(before) {
            log::warn!("a part of what was not written remains in a file of an output: {error}");
        }
    })
}

impl RotatedFile {
    /// The file that was written last, if it still has its name; otherwise a new one.
    fn current_file(&mut self) -> io::Result<OwnFile> {
        if let Some(own) = self.file.take()
            && let Ok(about) = self.path.symlink_metadata()
            && own.id == (about.dev(), about.ino())
        {
            return Ok(own);
        }
        self.open_file()
    }

    /// Opens the file. One without content gets its mode and group.
    fn open_file(&self) -> io::Result<OwnFile> {
        let file = kernel::trust::no_link(&self.path, 0o600)?;
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
            self.sync_folder()?;
        }
        Ok(own)
    }

    fn sync_folder(&self) -> io::Result<()> {
        let dir = self.path.parent().filter(|dir| !dir.as_os_str().is_empty());
        File::open(dir.unwrap_or(Path::new(".")))?.sync_all()
    }

    fn is_full(&self, about: &fs::Metadata) -> bool {
        const DAY_S: i64 = 86_400;
        let today = jiff::Timestamp::now().as_second().div_euclid(DAY_S);
        about.len() >= self.rotate_bytes
            || (self.rotate_daily && about.mtime().div_euclid(DAY_S) < today)
    }

    /// Renames the file to `PATH.TIME`, or `PATH.TIME-N` if that exists.
    fn rotate(&self) -> io::Result<()> {
        let now = jiff::Timestamp::now().to_zoned(TimeZone::UTC);
        let time = now.strftime("%Y%m%dT%H%M%SZ");
        let mut name = self.path.clone().into_os_string();
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
        fs::rename(&self.path, free)?;
        self.sync_folder()
    }

    /// What was noted before the last portion. A damaged note is none: it was never needed if its write was cut short.
    fn begun(&self) -> io::Result<Option<Begun>> {
        Ok(read_if_there(&self.mark)?.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// Notes durably where a portion begins.
    fn note(&self, mark: FollowMark, file: &File, portion: &[u8]) -> io::Result<()> {
        let about = file.metadata()?;
        let begun = Begun {
            begun: mark.begun,
            confirmed: mark.confirmed,
            device: about.dev(),
            inode: about.ino(),
            bytes: about.len(),
            portion: portion.len() as u64,
        };
        replace_durably(&self.mark, &serde_json::to_vec(&begun)?)
    }
}
