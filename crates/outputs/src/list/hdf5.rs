//! The output `hdf5`: the files of Colmet's collector, a table for each job and backend.
//!
//! Before each portion, the output notes durably how many rows its tables have. If the portion comes again, they first get
//! these numbers of rows back, so each record is in the files once, whatever was killed (decision 0065).

use crate::files::{read_if_there, replace_durably};
use crate::portion::Portion;
use crate::records::{CLUSTER, DOMAIN, Layout, NEEDS_CLUSTER, PERF_COUNTERS};
use crate::spec::{Guarantee, Output, Spec, WriteError};
use crate::written_file::{
    FileRules, GROUP, MODE, OwnFile, ROTATE_BYTES, ROTATE_DAILY, check_group, check_path, option,
    set_aside,
};
use colmet::record::Record;
use colmet_files::error::FileError;
use colmet_files::writer::{TableRows, Writer};
use config::OutputConfig;
use model::Timestamp;
use model::setting::{Kind, OptionSpec};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use storage::FollowMark;

/// Where an unfinished portion is noted, in the output's own folder.
const NOTE: &str = "hdf5.json";
/// The end of a file's name.
const END: &str = ".hdf5";
/// Longest time that is used to make a file smaller at its end.
const CLOSE_TIME: Duration = Duration::from_secs(2);
/// Compression of full chunks.
const COMPLEVEL: &str = "complevel";
/// The only library.
const ZLIB: &str = "zlib";

/// The kind.
pub(super) const SPEC: Spec = Spec {
    name: "hdf5",
    help: "HDF5 files with the layout of Colmet's collector: a table for each job and backend. PyTables, h5py, `colmet_extract` and `jobmeter extract` read them, also while they grow.",
    guarantee_help: "kept: the records are on the disk, each once",
    options: &[
        OptionSpec {
            name: "path",
            kind: Kind::Text("FILE"),
            default: "",
            help: "A prefix: the files are `PREFIX.SECONDS.hdf5`, and a new one begins at each start. Or one file, with a name that ends in `.hdf5`.",
        },
        OptionSpec {
            name: COMPLEVEL,
            kind: Kind::Number { min: 0, max: 9 },
            default: "5",
            help: "Compression, from 0 (none) to 9. Colmet's default is 0; but each record of a node has 8 KiB of `involved_jobs`, mostly zeros.",
        },
        OptionSpec {
            name: "complib",
            kind: Kind::TextOf(ZLIB, is_complib),
            default: ZLIB,
            help: "The library of the compression: only zlib, which each HDF5 library reads.",
        },
        CLUSTER,
        DOMAIN,
        PERF_COUNTERS,
        OptionSpec {
            help: "When the file has this size, a new one begins: of a prefix the next one; another file is first renamed to `PATH.TIME`. No file is deleted.",
            ..ROTATE_BYTES
        },
        ROTATE_DAILY,
        MODE,
        GROUP,
    ],
    guarantee: |_| Guarantee::Kept,
    check,
    records: Layout::of,
    open,
    // A table has its rows in the order of their times.
    ..Spec::DEFAULT
};

fn is_complib(text: &str) -> Result<(), String> {
    match text {
        ZLIB => Ok(()),
        other => {
            Err(format!("`{other}` needs a filter that HDF5 itself does not have; use `{ZLIB}`"))
        }
    }
}

fn check(config: &OutputConfig) -> Vec<(&'static str, String)> {
    let mut wrong: Vec<_> = check_group(config).into_iter().collect();
    if Layout::of(config).is_none() {
        wrong.push((CLUSTER.name, NEEDS_CLUSTER.to_owned()));
    }
    let path = match option(config, "path") {
        "" => Err("it needs `path`: a prefix of files, or a file that ends in `.hdf5`".to_owned()),
        path if path.ends_with('/') || Path::new(path).is_dir() => {
            Err(format!("{path} is a folder; name a prefix of files in it"))
        }
        path if fs::metadata(path).is_ok_and(|about| !about.is_file()) => {
            Err(format!("{path} is no regular file; name a prefix of files"))
        }
        path if path.ends_with(END) => check_path(path),
        prefix => check_path(&name_of(prefix, 0)),
    };
    wrong.extend(path.err().map(|what| ("path", what)));
    wrong
}

fn open(config: &OutputConfig, folder: &Path) -> Result<Box<dyn Output>, WriteError> {
    let path = option(config, "path");
    if path.is_empty() {
        return Err(WriteError::new("it needs `path`"));
    }
    if Layout::of(config).is_none() {
        return Err(WriteError::new(NEEDS_CLUSTER));
    }
    Ok(Box::new(Files {
        path: path.to_owned(),
        level: option(config, COMPLEVEL).parse().unwrap_or(5),
        rules: FileRules::of(config).map_err(WriteError::new)?,
        note: folder.join(NOTE),
        own_path: path.ends_with(END).then(|| path.into()),
        open: None,
    }))
}

/// A file of a prefix, as Colmet names it: with ten digits.
fn name_of(prefix: &str, seconds: i64) -> String {
    format!("{prefix}.{seconds:010}{END}")
}

/// What was begun: on a restart with the same mark, the tables get these numbers of rows back.
#[derive(Debug, Serialize, Deserialize)]
struct Begun {
    begun: i64,
    confirmed: u64,
    path: PathBuf,
    id: (u64, u64),
    /// Job, table, rows before, rows that are added.
    tables: Vec<(u64, String, u64, u64)>,
}

/// The files of an output.
struct Files {
    /// A prefix, or the path of a file.
    path: String,
    level: u32,
    rules: FileRules,
    note: PathBuf,
    /// The present file; `None`: none was begun since the start.
    own_path: Option<PathBuf>,
    open: Option<Open>,
}

/// A file that is written.
struct Open {
    own: OwnFile,
    writer: Writer,
}

impl Drop for Open {
    fn drop(&mut self) {
        let end = uptime() + CLOSE_TIME;
        if let Err(error) = self.writer.close(&|| uptime() < end) {
            log::warn!("a file of an output remains larger than needed: {error}");
        }
    }
}

impl Output for Files {
    fn write(&mut self, portion: &Portion) -> Result<(), WriteError> {
        self.cut(portion.mark)?;
        if portion.records.is_empty() {
            return Ok(());
        }
        let (path, mut open) = self.current_file(&portion.records)?;
        self.note(portion, &path, &open).map_err(WriteError::at(&self.note))?;
        // After an error the file is opened again, and cut.
        open.writer.append(&portion.records, uptime()).map_err(failed(&path))?;
        self.open = Some(open);
        Ok(())
    }
}

/// A time that only grows.
fn uptime() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::from_secs(u64::try_from(now.tv_sec).unwrap_or_default())
}

fn failed(path: &Path) -> impl FnOnce(FileError) -> WriteError {
    move |error| WriteError::new(format!("{}: {error}", path.display()))
}

impl Files {
    /// Takes away what was written of the portion with this mark.
    fn cut(&mut self, mark: FollowMark) -> Result<(), WriteError> {
        let noted = read_if_there(&self.note).map_err(WriteError::at(&self.note))?;
        // A damaged note is none: it was never needed if its write was cut short.
        let begun: Option<Begun> = noted.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let is_same =
            |begun: &Begun| (begun.begun, begun.confirmed) == (mark.begun, mark.confirmed);
        let Some(begun) = begun.filter(is_same) else { return Ok(()) };
        let path = begun.path.clone();
        if !path.try_exists().map_err(WriteError::at(&path))? {
            log::warn!("{} is gone: records of the last portion may be repeated", path.display());
            return Ok(());
        }
        let open = match self.open.take().filter(|open| open.own.is_at(&path)) {
            Some(open) => Some(open),
            None => self.open_file(&path)?,
        };
        let Some(mut open) = open.filter(|open| open.own.id == begun.id) else { return Ok(()) };
        let tables = begun.tables.into_iter();
        let tables: Vec<_> = tables
            .map(|(job, table, before, added)| TableRows { job, table, before, added })
            .collect();
        open.writer.cut(&tables).map_err(failed(&path))?;
        self.open = (self.own_path.as_ref() == Some(&path)).then_some(open);
        Ok(())
    }

    /// The file for records; a new one if there is none, or if it is full.
    fn current_file(&mut self, records: &[Record]) -> Result<(PathBuf, Open), WriteError> {
        let mut open = self.open.take();
        if let Some(path) = self.own_path.clone() {
            open = match open.filter(|open| open.own.is_at(&path)) {
                Some(open) => Some(open),
                // Of a prefix, a file that is gone is not made again.
                None if path.try_exists().map_err(WriteError::at(&path))? => {
                    self.open_file(&path)?
                }
                None => None,
            };
            if let Some(open) = open {
                let about = open.own.file.metadata().map_err(WriteError::at(&path))?;
                let is_full = self.rules.is_full(open.writer.bytes(), &about)
                    || !open.writer.has_space_for(records);
                if !is_full {
                    return Ok((path, open));
                }
                if self.path.ends_with(END) {
                    set_aside(&path).map_err(WriteError::at(&path))?;
                }
            }
        }
        let path = self.next_path(records)?;
        let own = self.rules.open(&path).map_err(WriteError::at(&path))?;
        let writer = reopened(&path, &own)
            .map_err(FileError::Io)
            .and_then(|file| Writer::create(file, self.level))
            .map_err(|error| {
                // A file that could not be begun is no file for readers, and the next try begins another.
                fs::remove_file(&path).ok();
                failed(&path)(error)
            })?;
        self.own_path = Some(path.clone());
        Ok((path, Open { own, writer }))
    }

    /// The path of a new file. One of a prefix has the second of its first record, as far as no other file has it, because
    /// `colmet_extract` expects no older record in a file.
    fn next_path(&self, records: &[Record]) -> Result<PathBuf, WriteError> {
        if self.path.ends_with(END) {
            return Ok(PathBuf::from(&self.path));
        }
        let now = jiff::Timestamp::now().as_second();
        let first = records.iter().map(|record| record.at.0.div_euclid(Timestamp::SECOND)).min();
        let mut seconds = first.unwrap_or(now).clamp(0, now.max(0));
        loop {
            let path = PathBuf::from(name_of(&self.path, seconds));
            if !path.try_exists().map_err(WriteError::at(&path))? {
                return Ok(path);
            }
            seconds += 1;
        }
    }

    /// Opens a file that is there. One that is damaged, or that another program wrote, is set aside.
    fn open_file(&self, path: &Path) -> Result<Option<Open>, WriteError> {
        let at = || WriteError::at(path);
        let own = self.rules.open(path).map_err(at())?;
        let file = reopened(path, &own).map_err(at())?;
        let is_empty = file.metadata().map_err(at())?.len() == 0;
        let writer = if is_empty { Writer::create(file, self.level) } else { Writer::open(file) };
        match writer {
            Ok(writer) => Ok(Some(Open { own, writer })),
            Err(FileError::Io(error)) if error.kind() != io::ErrorKind::UnexpectedEof => {
                Err(at()(error))
            }
            Err(error) => {
                let aside = set_aside(path).map_err(at())?;
                log::warn!(
                    "{}: {error}; it is renamed to {}, and a new file begins",
                    path.display(),
                    aside.display()
                );
                Ok(None)
            }
        }
    }

    /// Notes durably what a portion will change.
    fn note(&self, portion: &Portion, path: &Path, open: &Open) -> io::Result<()> {
        let tables = open.writer.rows_before(&portion.records).into_iter();
        let begun = Begun {
            begun: portion.mark.begun,
            confirmed: portion.mark.confirmed,
            path: path.to_owned(),
            id: open.own.id,
            tables: tables.map(|it| (it.job, it.table, it.before, it.added)).collect(),
        };
        replace_durably(&self.note, &serde_json::to_vec(&begun)?)
    }
}

/// The same file for reading and for writing at any place: the other handle only appends.
///
/// # Errors
/// The system rejects it, or the path leads to another file now.
fn reopened(path: &Path, own: &OwnFile) -> io::Result<File> {
    let file = File::options().read(true).write(true).open(path)?;
    if own.is_at(path) { Ok(file) } else { Err(io::Error::other("another program replaced it")) }
}
