//! All description files of a folder, with their errors.

use super::description::Description;
use super::keys::read_entry;
use crate::yaml::{Value, load};
use model::DeviceId;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a file.
pub const FILE_BYTES_MAX: u64 = 16 << 20;
/// Files of a folder.
const FILES_MAX: usize = 65_536;
/// Characters of a finding: a key or a value may have megabytes.
const WHAT_CHARS_MAX: usize = 1000;

/// The description files of a folder.
#[derive(Debug, Default)]
pub struct Directory {
    /// Number of files.
    pub files: usize,
    /// The entries without errors, by file and line.
    pub descriptions: Vec<Description>,
    /// Errors and warnings, by file and line.
    pub findings: Vec<Finding>,
    /// Files that cannot be read or parsed. The poller keeps their earlier entries.
    pub unread: Vec<Arc<Path>>,
    /// The files that Kwollect 1.3.1 rejects because of a key that it does not know.
    pub rejected_by_kwollect: Vec<PathBuf>,
}

impl Directory {
    /// Whether an entry or a file has an error.
    pub fn has_errors(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Error)
    }

    /// Orders the findings by file and line.
    pub(crate) fn sort_findings(&mut self) {
        self.findings.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    }
}

/// Something that a file's reader should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file.
    pub file: Arc<Path>,
    /// Line, from 1; 0 for the whole file.
    pub line: usize,
    /// Whether the entry is dropped.
    pub severity: Severity,
    /// The problem.
    pub what: String,
    /// What its entry names.
    pub names: EntryNames,
}

/// What an entry names, as far as it can be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryNames {
    /// The metric.
    pub metric: Option<String>,
    /// The device.
    pub device: Option<DeviceId>,
    /// The node that the device feeds.
    pub alias: Option<DeviceId>,
}

/// Whether a finding stops something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The entry, or the file, is not polled.
    Error,
    /// It is polled.
    Warning,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{}", self.file.display())?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {severity}: {}", self.what)
    }
}

/// Reads every file of a folder, whatever its extension, in the order of their names. Kwollect reads the same
/// files: hidden ones and folders are left out.
///
/// # Errors
///
/// The folder cannot be read. Errors of a file are findings.
pub fn read_directory(dir: &Path) -> io::Result<Directory> {
    let mut directory = read_files(dir, |_| {})?;
    directory.findings.extend(duplicates(directory.descriptions.iter()));
    directory.sort_findings();
    Ok(directory)
}

/// Reads every file of a folder as [`read_directory`] does, and calls a function after each, which may take its entries:
/// entries of thousands of files need much memory. The caller finds the duplicates.
///
/// # Errors
///
/// The folder cannot be read.
pub(crate) fn read_files(
    dir: &Path,
    mut after_file: impl FnMut(&mut Directory),
) -> io::Result<Directory> {
    let mut files = Vec::new();
    for entry in list_directory(dir)? {
        let entry = entry?;
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if !is_hidden && !fs::metadata(entry.path()).is_ok_and(|found| found.is_dir()) {
            files.push(entry.path());
        }
        if files.len() > FILES_MAX {
            return Err(io::Error::other(format!("more than {FILES_MAX} files")));
        }
    }
    files.sort_unstable();
    let mut directory = Directory { files: files.len(), ..Directory::default() };
    let mut has_entries = false;
    for file in &files {
        read_file(file, &mut directory);
        has_entries |= !directory.descriptions.is_empty();
        after_file(&mut directory);
    }
    if !has_entries && directory.findings.is_empty() {
        let what = "nothing is polled: the folder has no entries".to_owned();
        let empty = finding(&dir.into(), (0, what), &EntryNames::default());
        directory.findings.push(Finding { severity: Severity::Warning, ..empty });
    }
    Ok(directory)
}

/// Lists the folder of the description files.
pub(crate) fn list_directory(dir: &Path) -> io::Result<fs::ReadDir> {
    fs::read_dir(dir).map_err(|error| match error.kind() {
        io::ErrorKind::NotADirectory => {
            io::Error::new(error.kind(), "it is a file; name the folder of the description files")
        }
        _ => error,
    })
}

/// Reads a file's entries.
pub fn read_file(file: &Path, directory: &mut Directory) {
    let path: Arc<Path> = file.into();
    match config::read_small(file, FILE_BYTES_MAX).and_then(config::as_text) {
        Ok(text) => read_text(&path, &text, directory),
        Err(why) => {
            directory.unread.push(Arc::clone(&path));
            directory.findings.push(finding(&path, (0, why.to_string()), &EntryNames::default()));
        }
    }
}

/// Reads the entries of a file's text.
pub fn read_text(path: &Arc<Path>, text: &str, directory: &mut Directory) {
    let error = |line, what: String| finding(path, (line, what), &EntryNames::default());
    let document = match load(text) {
        Ok(document) => document,
        Err(why) => {
            directory.unread.push(Arc::clone(path));
            return directory.findings.push(error(why.line, why.what));
        }
    };
    let entries = match &document.value {
        Value::Null => &[],
        Value::List(entries) => &entries[..],
        Value::Map(_) => std::slice::from_ref(&document),
        other => {
            let what = format!("a file is a list of entries or one entry, not {}", other.kind());
            directory.unread.push(Arc::clone(path));
            return directory.findings.push(error(document.line, what));
        }
    };
    let mut is_rejected = false;
    for entry in entries {
        let mut read = read_entry(path, entry);
        is_rejected |= read.is_rejected_by_kwollect;
        if let (Some(one), Some(before)) = (&mut read.description, directory.descriptions.last()) {
            one.share(before);
        }
        directory.descriptions.extend(read.description);
        directory.findings.extend(read.notices.into_iter().map(|notice| Finding {
            severity: if notice.is_error { Severity::Error } else { Severity::Warning },
            ..finding(path, (notice.line, notice.what), &read.names)
        }));
    }
    if is_rejected {
        directory.rejected_by_kwollect.push(path.to_path_buf());
    }
}

/// An error.
fn finding(file: &Arc<Path>, (line, what): (usize, String), names: &EntryNames) -> Finding {
    let what = match what.char_indices().nth(WHAT_CHARS_MAX) {
        Some((at, _)) => format!("{}…", what.get(..at).unwrap_or_default()),
        None => what,
    };
    let (file, names) = (Arc::clone(file), names.clone());
    Finding { file, line, severity: Severity::Error, what, names }
}

/// Warnings of entries that store the same series, whose samples would alternate, and of contradicting meanings.
pub(crate) fn duplicates<'a>(all: impl Iterator<Item = &'a Description>) -> Vec<Finding> {
    let mut known: HashMap<(&str, &str, &str), &Description> = HashMap::new();
    let mut declared: HashMap<&str, &Description> = HashMap::new();
    let mut found = Vec::new();
    for description in all {
        if description.target.protocol == crate::protocols::Protocol::Prometheus {
            continue;
        }
        let Description { name, device, .. } = description;
        let mut warn = |first: &Description, what: String| {
            let what = format!("{what} {}:{}", first.file.display(), first.line);
            let (file, line) = (Arc::clone(&description.file), description.line);
            let names = EntryNames::default();
            found.push(Finding { file, line, severity: Severity::Warning, what, names });
        };
        let shown = name.escape_debug();
        match known.entry((device.as_str(), name, description.labels.as_str())) {
            Entry::Vacant(entry) => drop(entry.insert(description)),
            Entry::Occupied(first) => warn(
                first.get(),
                format!("{shown} of {device} with these labels is requested, too, by"),
            ),
        }
        if description.declared.kind.is_some() || description.declared.unit.is_some() {
            match declared.entry(name) {
                Entry::Vacant(entry) => drop(entry.insert(description)),
                Entry::Occupied(first) if contradicts(description, first.get()) => warn(
                    first.get(),
                    format!(
                        "the server rejects the samples of this entry, or of the other one: {shown} has \
                         another kind or unit by"
                    ),
                ),
                Entry::Occupied(_) => {}
            }
        }
    }
    found
}

/// Whether two entries declare different meanings.
fn contradicts(one: &Description, other: &Description) -> bool {
    fn differ<T: PartialEq>(one: Option<&T>, other: Option<&T>) -> bool {
        one.is_some() && other.is_some() && one != other
    }
    let (one, other) = (&one.declared, &other.declared);
    differ(one.kind.as_ref(), other.kind.as_ref()) || differ(one.unit.as_ref(), other.unit.as_ref())
}

/// The entries of a text without errors and warnings.
#[cfg(test)]
pub(crate) fn entries_of(text: &str) -> Vec<Description> {
    let mut directory = Directory::default();
    read_text(&Path::new("file").into(), text, &mut directory);
    assert_eq!(directory.findings, []);
    directory.descriptions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameters_of_a_session_belong_to_the_target() {
        let target = |url: &str| {
            let entry = format!("- {{name: a, device_id: d, url: '{url}'}}\n");
            Arc::clone(&entries_of(&entry)[0].target)
        };
        let v3 = "snmpv3://ann@h/1.3.6.1?auth=sha256&authkey=12345678";
        assert_eq!(target(v3), target(&v3.replace("1.3.6.1", "1.3.6.2")));
        for other in [
            v3.replace("12345678", "12345679"),
            v3.replace("sha256", "md5"),
            format!("{v3}&priv=aes128&privkey=12345678"),
            format!("{v3}&context=c"),
        ] {
            assert_ne!(target(v3), target(&other), "{other}");
        }
        let bmc = "ipmisensor://ann:secret@h/dcmi/power";
        assert_eq!(target(bmc), target(&bmc.replace("dcmi/power", "Fan 1")));
        for other in ["cipher=3", "kg=k", "privilege=user"] {
            assert_ne!(target(bmc), target(&format!("{bmc}?{other}")), "{other}");
        }
    }

    #[test]
    fn a_name_that_no_server_accepts_is_an_error() {
        let mut directory = Directory::default();
        let text = "- {name: 'a, b', device_id: d, url: 'http://d/#a'}\n\
                    - {name: outlet power, device_id: d, url: 'http://d/#a'}\n";
        read_text(&Path::new("file").into(), text, &mut directory);
        let found: Vec<_> = directory.descriptions.iter().map(|one| &*one.name).collect();
        assert_eq!(found, ["outlet power"]);
        let finding = directory.findings[0].to_string();
        assert!(finding.contains("name: `a, b` is no metric name"), "{finding}");
    }

    #[test]
    fn contradicting_meanings_and_equal_series_are_warnings() {
        let entry = |device: &str, more: &str| {
            format!("- {{name: power, device_id: {device}, url: 'http://d/#a'{more}}}\n")
        };
        let text = entry("a", ", unit: watts")
            + &entry("b", ", unit: volts")
            + &entry("c", ", kind: gauge")
            + &entry("c", "");
        let entries = entries_of(&text);
        let found: Vec<String> =
            duplicates(entries.iter()).iter().map(|one| one.to_string()).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("file:2: ") && found[0].ends_with("by file:1"), "{found:?}");
        assert!(found[1].ends_with("power of c with these labels is requested, too, by file:3"));
    }

    #[test]
    fn a_key_of_megabytes_is_a_short_finding() {
        let (long, mut directory) = ("k".repeat(8 << 20), Directory::default());
        let text =
            format!("name: a\ndevice_id: d\nurl: http://h/#a\n? {long}\n: 1\nkind: {long}\n");
        read_text(&Path::new("file").into(), &text, &mut directory);
        let [key, kind] = &directory.findings[..] else { panic!("{}", directory.findings.len()) };
        assert_eq!(key.what, "unknown key, or a URL without quotes");
        assert!(kind.what.starts_with("kind: `kkk"));
        assert!(directory.findings.iter().all(|one| one.what.len() < 2 * WHAT_CHARS_MAX));
    }

    #[test]
    fn a_file_in_place_of_a_folder_is_an_error_that_states_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = read_directory(file.path()).unwrap_err().to_string();
        assert_eq!(error, "it is a file; name the folder of the description files");
        let shown = |dir: &Path| -> Vec<String> {
            let found = read_directory(dir).unwrap().findings;
            found
                .iter()
                .map(|one| one.to_string().replace(&dir.display().to_string(), "DIR"))
                .collect()
        };
        let empty = tempfile::tempdir().unwrap();
        let warning = ["DIR: warning: nothing is polled: the folder has no entries"];
        assert_eq!(shown(empty.path()), warning);
        fs::write(empty.path().join("a.yml"), "# none yet\n").unwrap();
        assert_eq!(shown(empty.path()), warning);
    }
}
