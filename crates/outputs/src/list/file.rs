//! The output `file`: lines of JSON, or the text of Colmet's collector, in a file that rotates, or on standard output.
//!
//! Before each portion, the output notes durably where the file ends. If the portion comes again, the file is first cut
//! there, so each line is in the files once, whatever was killed.

use crate::files::{read_if_there, replace_durably};
use crate::portion::Portion;
use crate::records::{CLUSTER, DOMAIN, Layout, NEEDS_CLUSTER, PERF_COUNTERS};
use crate::row::{SeriesText, text, write_line, write_time};
use crate::spec::{FillTimes, Guarantee, OpenFill, Output, Spec, WriteError};
use crate::written_file::{
    FileRules, GROUP, MODE, OwnFile, ROTATE_BYTES, ROTATE_DAILY, check_group, check_path, option,
    set_aside,
};
use config::OutputConfig;
use jiff::tz::TimeZone;
use model::setting::{Kind, OptionSpec};
use model::{Gap, Timestamp};
use serde::{Deserialize, Serialize};
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
        ROTATE_BYTES,
        ROTATE_DAILY,
        MODE,
        GROUP,
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

/// Whether records are wanted, and their cluster is not known.
fn lacks_cluster(config: &OutputConfig) -> bool {
    is_colmet(config) && Layout::of(config).is_none()
}

fn check(config: &OutputConfig) -> Vec<(&'static str, String)> {
    let mut wrong = Vec::new();
    wrong.extend(check_group(config));
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
    Ok(Box::new(RotatedFile { rules: file.rules.of_one_file(), ..file }))
}

fn rotated(
    config: &OutputConfig,
    path: PathBuf,
    folder: &Path,
    encode: Encode,
) -> Result<RotatedFile, WriteError> {
    Ok(RotatedFile {
        encode,
        path,
        mark: folder.join(MARK),
        rules: FileRules::of(config).map_err(WriteError::new)?,
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

struct RotatedFile {
    encode: Encode,
    path: PathBuf,
    mark: PathBuf,
    rules: FileRules,
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
            if about.len() > 0 && self.rules.is_full(about.len(), &about) {
                set_aside(&path).map_err(failed())?;
                drop(own);
                own = self.rules.open(&path).map_err(failed())?;
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
        match self.file.take().filter(|own| own.is_at(&self.path)) {
            Some(own) => Ok(own),
            None => self.rules.open(&self.path),
        }
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
