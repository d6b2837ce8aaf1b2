//! The entries of the folder, read again when a file changes.

use super::demand::DemandNames;
use super::poller_error::PollerError;
use crate::descriptions::{
    Description, Directory, Finding, Pins, Severity, Target, TlsVerification, duplicates,
    list_directory, read_files,
};
use crate::sending::Devices;
use api::{EntryError, EntryErrors, PollerRequest};
use model::{DeviceId, NodeList, printable};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The entries of a folder.
#[derive(Debug)]
pub(super) struct Entries {
    dir: PathBuf,
    /// The devices to poll; `None` for all.
    only: Option<NodeList>,
    /// The file of pinned certificates.
    pins: Option<PathBuf>,
    files: usize,
    /// Shared with the loops of their targets: there are many.
    descriptions: Vec<Arc<Description>>,
    /// What the log states already.
    findings: Vec<Finding>,
    /// The hash of the states of the files when they were read.
    read: u64,
    /// The same when they were last looked at.
    seen: u64,
    hasher: RandomState,
}

/// Path, device, inode, size and times of a file.
type FileState = (PathBuf, [u64; 3], [i64; 4]);

impl Entries {
    /// Reads a folder.
    pub(super) fn read(
        dir: &Path,
        only: Option<&NodeList>,
        pins: Option<PathBuf>,
    ) -> Result<Self, PollerError> {
        let mut entries = Self {
            dir: dir.to_owned(),
            only: only.cloned(),
            pins,
            files: 0,
            descriptions: Vec::new(),
            findings: Vec::new(),
            read: 0,
            seen: 0,
            hasher: RandomState::new(),
        };
        let failed = |why| PollerError::Directory { dir: dir.to_owned(), why };
        entries.read_again().map_err(failed)?;
        Ok(entries)
    }

    /// Reads the folder again. A file that cannot be parsed keeps its old entries.
    ///
    /// # Errors
    /// The folder cannot be read: nothing changes.
    pub(super) fn read_again(&mut self) -> io::Result<()> {
        // Before the files are read: a later change is noticed.
        let state = self.file_states()?;
        let pins = self.pins.as_deref().map(Pins::read).transpose();
        let pins = pins.unwrap_or_else(|error| {
            log::error!("no certificate is pinned: {}", printable(&error.to_string()));
            None
        });
        let pins = pins.unwrap_or_default();
        let earlier: HashMap<(&Path, usize), &Arc<Description>> =
            self.descriptions.iter().map(|one| ((&*one.file, one.line), one)).collect();
        let mut descriptions = Vec::with_capacity(self.descriptions.len());
        // An unchanged entry remains the same object: two of each would double the memory.
        let take = |directory: &mut Directory| {
            pins.apply(&mut directory.descriptions);
            for one in directory.descriptions.drain(..).filter(|one| self.is_polled(one)) {
                let same = earlier.get(&(&*one.file, one.line)).copied();
                let same = same.filter(|same| same.is_like(&one)).cloned();
                descriptions.push(same.unwrap_or_else(|| Arc::new(one)));
            }
        };
        let mut directory = read_files(&self.dir, take)?;
        directory.findings.extend(duplicates(descriptions.iter().map(|one| &**one)));
        directory.sort_findings();
        for finding in directory.findings.iter().filter(|one| !self.findings.contains(one)) {
            log::warn!("{}", printable(&finding.to_string()));
        }
        let is_unread = |one: &Description| directory.unread.contains(&one.file);
        descriptions.extend(self.descriptions.iter().filter(|one| is_unread(one)).cloned());
        self.warn_of_unverified(&descriptions);
        (self.descriptions, self.findings, self.files) =
            (descriptions, directory.findings, directory.files);
        (self.seen, self.read) = (state, state);
        Ok(())
    }

    /// Whether its device is one of those to poll.
    fn is_polled(&self, one: &Description) -> bool {
        let only = self.only.as_ref();
        only.is_none_or(|only| only.has(one.device.as_str()))
    }

    /// Logs the new targets without a verified certificate.
    fn warn_of_unverified(&self, descriptions: &[Arc<Description>]) {
        let targets = |all: &[Arc<Description>]| -> BTreeSet<Arc<Target>> {
            let insecure = all
                .iter()
                .filter(|one| one.target.is_tls && one.rare().tls == TlsVerification::Insecure);
            insecure.map(|one| Arc::clone(&one.target)).collect()
        };
        for target in targets(descriptions).difference(&targets(&self.descriptions)) {
            log::warn!("{target}: its certificate is not verified: `insecure`");
        }
    }

    /// Whether a file has changed since it was read, and is not being written: it was the same at the look before.
    pub(super) fn have_changed(&mut self) -> bool {
        let Ok(now) = self.file_states() else { return false };
        let is_settled = now == self.seen;
        let have_changed = now != self.read;
        self.seen = now;
        is_settled && have_changed
    }

    /// A hash of the states of the files: as a list, they are many.
    fn file_states(&self) -> io::Result<u64> {
        let mut paths: Vec<PathBuf> = self.pins.iter().cloned().collect();
        for entry in list_directory(&self.dir)? {
            paths.push(entry?.path());
        }
        paths.sort_unstable();
        let state = |path: PathBuf| -> Option<FileState> {
            // A file that vanishes meanwhile is a change, too.
            let data = std::fs::metadata(&path).ok()?;
            let what = [data.dev(), data.ino(), data.size()];
            let when = [data.mtime(), data.mtime_nsec(), data.ctime(), data.ctime_nsec()];
            Some((path, what, when))
        };
        let states: Vec<FileState> = paths.into_iter().filter_map(state).collect();
        Ok(self.hasher.hash_one(states))
    }

    /// Number of files.
    pub(super) const fn files(&self) -> usize {
        self.files
    }

    /// The entries of each target.
    pub(super) fn targets(&self) -> BTreeMap<Arc<Target>, Vec<Arc<Description>>> {
        let mut targets: BTreeMap<Arc<Target>, Vec<Arc<Description>>> = BTreeMap::new();
        for one in &self.descriptions {
            targets.entry(Arc::clone(&one.target)).or_default().push(Arc::clone(one));
        }
        targets
    }

    /// The devices, each with its shortest period.
    pub(super) fn devices(&self) -> Devices {
        let mut devices = Devices::new();
        for one in &self.descriptions {
            let shortest = devices.entry(one.device.clone()).or_insert(one.period);
            *shortest = one.period.min(*shortest);
        }
        devices
    }

    /// The names that the server is queried for: those of devices and fed nodes of the entries with on-demand keys, then
    /// the other devices, whose periods the server may change.
    pub(super) fn demand_names(&self) -> DemandNames {
        let (mut first, mut others) = (BTreeSet::new(), BTreeSet::new());
        for one in &self.descriptions {
            if one.is_on_demand() {
                first.insert(one.device.to_string());
                first.extend(one.alias());
            } else {
                others.insert(one.device.to_string());
            }
        }
        others.retain(|name| !first.contains(name));
        let mut names: Vec<String> = first.into_iter().chain(others).collect();
        let over = names.len().saturating_sub(PollerRequest::NAMES_MAX);
        if over > 0 {
            log::error!(
                "promotions and changes do not reach {over} of {} devices and nodes",
                names.len()
            );
            names.truncate(PollerRequest::NAMES_MAX);
        }
        let count_jobs = self.descriptions.iter().any(|one| one.rare().period_idle.is_some());
        DemandNames { names, count_jobs, count_agents: false, errors: self.errors() }
    }

    /// The errors in the files. Of entries that name another device than those to poll, none.
    fn errors(&self) -> EntryErrors {
        let is_polled = |one: &&Finding| {
            let device = one.names.device.as_ref();
            device.zip(self.only.as_ref()).is_none_or(|(device, only)| only.has(device.as_str()))
        };
        let errors = self.findings.iter().filter(|one| one.severity == Severity::Error);
        let errors = errors.filter(is_polled);
        let count = u32::try_from(errors.clone().count()).unwrap_or(u32::MAX);
        let shown = |text: &str| printable(text).chars().take(EntryError::CHARS_MAX).collect();
        let listed = errors.take(EntryErrors::LISTED_MAX).map(|one| EntryError {
            file: shown(&one.file.to_string_lossy()),
            line: u32::try_from(one.line).unwrap_or(u32::MAX),
            device: one.names.device.as_ref().map(DeviceId::to_string),
            alias: one.names.alias.as_ref().map(DeviceId::to_string),
            metric: one.names.metric.clone(),
            reason: shown(&one.what),
        });
        EntryErrors { count, listed: listed.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_is_read_again_and_a_broken_one_keeps_its_entries() {
        let dir = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| std::fs::write(dir.path().join(file), text).unwrap();
        let entry =
            |name: &str| format!("- {{name: {name}, device_id: d, url: 'http://d/#{name}'}}\n");
        write("a", &(entry("one") + &entry("two")));
        write("b", &entry("three"));
        let mut entries = Entries::read(dir.path(), None, None).unwrap();
        let names = |entries: &Entries| {
            let mut names: Vec<_> =
                entries.descriptions.iter().map(|one| one.name.clone()).collect();
            names.sort_unstable();
            names
        };
        assert_eq!(names(&entries), ["one", "three", "two"]);
        assert!(!entries.have_changed());
        // A file that cannot be parsed keeps its entries; in another, a bad entry affects only itself.
        write("a", "- {name: one, device_id");
        write("b", &(entry("four") + "- {name: five, device_id: d}\n"));
        assert!(!entries.have_changed(), "it may be incomplete");
        assert!(entries.have_changed());
        entries.read_again().unwrap();
        assert_eq!(names(&entries), ["four", "one", "two"]);
        assert!(!entries.have_changed());
        let errors = entries.demand_names().errors;
        let named: Vec<_> = errors
            .listed
            .iter()
            .map(|one| (one.line, one.metric.as_deref(), one.device.as_deref(), &*one.reason))
            .collect();
        let missing = (2, Some("five"), Some("d"), "the key `url` is missing");
        assert!(named.len() == 2 && named[1] == missing, "{named:?}");
        assert_eq!((errors.count, named[0].1), (2, None));
        write("a", &entry("two"));
        std::fs::remove_file(dir.path().join("b")).unwrap();
        assert!(!entries.have_changed() && entries.have_changed());
        entries.read_again().unwrap();
        assert_eq!((names(&entries), entries.files()), (vec!["two".to_owned()], 1));
    }

    #[test]
    fn an_unchanged_entry_remains_the_same_object() {
        let dir = tempfile::tempdir().unwrap();
        let entry = |name: &str, factor: f64| {
            format!(
                "- {{name: {name}, device_id: d, url: 'http://d/#{name}', scale_factor: {factor}}}\n"
            )
        };
        let write = |text: String| std::fs::write(dir.path().join("a"), text).unwrap();
        write(entry("one", 1.0) + &entry("two", 1.0) + &entry("three", 1.0));
        let mut entries = Entries::read(dir.path(), None, None).unwrap();
        let before = entries.descriptions.clone();
        assert!(Arc::ptr_eq(&before[0].target, &before[2].target));
        write(entry("one", 1.0) + &entry("two", 2.0) + "\n" + &entry("three", 1.0));
        entries.read_again().unwrap();
        let is_same = before.iter().zip(&entries.descriptions);
        let is_same: Vec<bool> = is_same.map(|(one, other)| Arc::ptr_eq(one, other)).collect();
        assert_eq!(is_same, [true, false, false], "another factor, another line");
        assert_eq!(entries.descriptions[2].line, 4);
    }
}
