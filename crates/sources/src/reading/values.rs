//! Files with one number each, or with a small table, as in sysfs: a walk finds them, every tick reads them.

use crate::reading::file::broken;
use crate::source::error::Errors;
use crate::{SampleWriter, Sink, SourceError};
use kernel::parse::signed;
use kernel::{OpenFile, ReadError, Root};
use model::{Metric, Timestamp};
use std::collections::HashMap;
use std::fmt::Display;

/// Interval of walks: new devices appear within this time.
const WALK_EVERY_US: i64 = 60 * Timestamp::SECOND;
/// Maximum number of files of a source; further ones are left out and reported.
pub(crate) const FILES_MAX: usize = 20_000;
/// Maximum number of labels of a sample.
const LABELS_MAX: usize = 5;

/// Parses the number in a file's text, without surrounding blanks.
pub(crate) type Parse = fn(&[u8]) -> Option<i64>;

/// A file, and the source's state for it.
#[derive(Debug)]
pub(crate) struct Value<T> {
    /// `None` for a file with a table.
    metric: Option<&'static Metric>,
    labels: Vec<(&'static str, Box<str>)>,
    /// Steps of the file per unit of the metric.
    per_unit: f64,
    path: Box<str>,
    file: OpenFile,
    parse: Parse,
    pub(crate) kept: T,
}

/// The files of a source.
#[derive(Debug)]
pub(crate) struct Values<T = ()> {
    list: Vec<Value<T>>,
    walked: Option<Timestamp>,
    /// Error of the last walk, if it found no file.
    nothing: Option<SourceError>,
    /// Denied and broken files of the last walk, beside the files of the list.
    rejected: Option<SourceError>,
    /// The permission that opens denied files, if it differs from the general one.
    grant: Option<&'static str>,
    buf: Vec<u8>,
}

impl<T> Default for Values<T> {
    fn default() -> Self {
        let (list, buf) = (Vec::new(), Vec::new());
        Self { list, walked: None, nothing: None, rejected: None, grant: None, buf }
    }
}

/// Result of a walk.
#[derive(Debug)]
pub(crate) struct Walk<'a, T> {
    root: &'a Root,
    found: Vec<Value<T>>,
    /// Files and directories that exist but cannot be opened, and other errors.
    errors: Errors,
    grant: Option<&'static str>,
    left_out: usize,
}

/// Result of a reading of all files.
#[derive(Debug)]
pub(crate) struct Read<'a> {
    /// Number of files that gave a value.
    count: usize,
    /// Number of files of devices that report no value now.
    silent: usize,
    /// Errors of the other files.
    errors: Errors,
    /// Denied and broken files of the walk.
    rejected: Option<&'a SourceError>,
}

impl<T> Walk<'_, T> {
    /// Adds a file, if it exists: its metric, labels, steps per unit, and initial state. A file of the
    /// previous walk keeps its state.
    pub(crate) fn file(
        &mut self,
        path: &str,
        metric: &'static Metric,
        labels: &[(&'static str, &str)],
        per_unit: f64,
        kept: T,
    ) {
        self.file_as(path, metric, labels, per_unit, signed, kept);
    }

    /// As [`Self::file`], with a special parser.
    pub(crate) fn file_as(
        &mut self,
        path: &str,
        metric: &'static Metric,
        labels: &[(&'static str, &str)],
        per_unit: f64,
        parse: Parse,
        kept: T,
    ) {
        self.take(path, labels, kept, |value| {
            (value.metric, value.per_unit, value.parse) = (Some(metric), per_unit, parse);
        });
    }

    /// Adds a file with a table, for [`Values::each_text`], if it exists; returns whether it does.
    pub(crate) fn table(&mut self, path: &str, labels: &[(&'static str, &str)], kept: T) -> bool {
        self.take(path, labels, kept, |_| {})
    }

    fn take(
        &mut self,
        path: &str,
        labels: &[(&'static str, &str)],
        kept: T,
        set: impl FnOnce(&mut Value<T>),
    ) -> bool {
        if self.found.len() >= FILES_MAX {
            self.left_out += 1;
            return false;
        }
        match self.root.open(path) {
            Ok(file) => {
                let labels = labels.iter().map(|(name, text)| (*name, (*text).into())).collect();
                let (path, parse) = (path.into(), signed as Parse);
                let mut value =
                    Value { metric: None, labels, per_unit: 1.0, path, file, parse, kept };
                set(&mut value);
                self.found.push(value);
                return true;
            }
            Err(error) if error.is_absent() => {}
            Err(error) => self.reject(error),
        }
        false
    }

    fn reject(&mut self, error: ReadError) {
        self.errors.push(granting(error.into(), self.grant));
    }

    /// Records an error beside files that are read.
    pub(crate) fn note(&mut self, error: SourceError) {
        self.errors.push(error);
    }

    /// The machine's files.
    pub(crate) const fn root(&self) -> &Root {
        self.root
    }

    /// A file's text, if it is readable and not empty.
    pub(crate) fn text(&mut self, path: &str) -> Option<String> {
        match self.root.read_text(path) {
            Ok(text) => Some(text).filter(|text| !text.is_empty()),
            Err(error) => {
                // A read error means that the device has no such text at present.
                if matches!(error, ReadError::Denied { .. }) {
                    self.reject(error);
                }
                None
            }
        }
    }

    /// The last component of a link's target.
    pub(crate) fn link(&self, path: &str) -> Option<String> {
        let target = self.root.read_link(path).ok()?;
        target.rsplit('/').next().map(str::to_owned)
    }

    /// The sorted names in a directory; empty if it cannot be read.
    pub(crate) fn names(&mut self, path: &str) -> Vec<String> {
        let mut names = Vec::new();
        match self.root.list(path, |entry| names.push(entry.name.to_owned())) {
            Err(error) if !error.is_absent() => self.reject(error),
            _ => {}
        }
        names.sort();
        names
    }
}

impl<T> Values<T> {
    /// An empty list with the permission that opens its denied files.
    pub(crate) fn granted_by(grant: &'static str) -> Self {
        Self { grant: Some(grant), ..Self::default() }
    }

    /// Walks if a walk is due: at first, every minute, and when a file has disappeared. Files that exist but
    /// are denied are an error here only if no other file is found; otherwise [`Read::state`] reports them.
    ///
    /// # Errors
    /// No file exists (`absent` is the message), or all are denied.
    pub(crate) fn look(
        &mut self,
        root: &Root,
        now: Timestamp,
        absent: &'static str,
        walk: impl FnOnce(&mut Walk<'_, T>),
    ) -> Result<(), SourceError> {
        let is_due = |walked: Timestamp| now.since(walked) >= WALK_EVERY_US || now < walked;
        if !self.walked.is_none_or(is_due) {
            return self.nothing.clone().map_or(Ok(()), Err);
        }
        let (found, errors, grant) = (Vec::new(), Errors::default(), self.grant);
        let mut found = Walk { root, found, errors, grant, left_out: 0 };
        walk(&mut found);
        let Walk { found, mut errors, left_out, .. } = found;
        if left_out > 0 {
            let why = format!("{left_out} files are more than {FILES_MAX} and left out");
            errors.push(SourceError::broken(why));
        }
        self.walked = Some(now);
        self.replace(found);
        self.rejected = errors.into_one();
        let nothing = || self.rejected.clone().unwrap_or_else(|| SourceError::absent(absent));
        self.nothing = self.list.is_empty().then(nothing);
        self.nothing.clone().map_or(Ok(()), Err)
    }

    /// Replaces the list; known files keep their state.
    fn replace(&mut self, mut found: Vec<Value<T>>) {
        let old = self.list.drain(..).map(|old| (old.path, old.kept));
        let mut old: HashMap<Box<str>, T> = old.collect();
        for new in &mut found {
            if let Some(kept) = old.remove(&new.path) {
                new.kept = kept;
            }
        }
        self.list = found;
    }

    /// Reads every file; calls `visit` with each file and its number.
    pub(crate) fn each(&mut self, mut visit: impl FnMut(&mut Value<T>, i64)) -> Read<'_> {
        self.each_text(|value, text| {
            let number = (value.parse)(text.trim_ascii());
            visit(value, number.ok_or_else(|| value.broken("it is not a number"))?);
            Ok(())
        })
    }

    /// Reads every file; calls `visit` with each file and its text.
    pub(crate) fn each_text(
        &mut self,
        mut visit: impl FnMut(&mut Value<T>, &[u8]) -> Result<(), SourceError>,
    ) -> Read<'_> {
        let rejected = self.rejected.as_ref();
        let mut read = Read { count: 0, silent: 0, errors: Errors::default(), rejected };
        for value in &mut self.list {
            let result = match value.file.read(&mut self.buf) {
                Ok(()) => visit(value, &self.buf),
                // The device has disappeared; the next walk removes its directory.
                Err(errno) if kernel::is_gone(errno) => {
                    self.walked = None;
                    continue;
                }
                Err(errno) if kernel::is_silent(errno) => {
                    read.silent += 1;
                    continue;
                }
                // Reading an open file can require more rights than opening it, as under kernel lockdown.
                Err(errno) if kernel::is_denied(errno) => {
                    let path = format!("/{}", value.path);
                    Err(granting(ReadError::Denied { path }.into(), self.grant))
                }
                Err(errno) => Err(value.broken(errno)),
            };
            match result {
                Ok(()) => read.count += 1,
                Err(error) => read.errors.push(error),
            }
        }
        read
    }
}

impl<T> Value<T> {
    /// The error of invalid content.
    pub(crate) fn broken(&self, why: impl Display) -> SourceError {
        broken(&self.path, why)
    }

    /// Whether the file has this metric.
    pub(crate) fn is(&self, metric: &'static Metric) -> bool {
        self.metric.is_some_and(|own| std::ptr::eq(own, metric))
    }

    /// Pushes a number of steps as a gauge.
    pub(crate) fn gauge(&self, out: &mut SampleWriter<'_>, steps: i64) {
        let Some(metric) = self.metric else { return };
        self.labelled(|labels| out.gauge(metric, labels, steps as f64 / self.per_unit));
    }

    /// Pushes a number of steps as a counter.
    pub(crate) fn counter(&self, out: &mut SampleWriter<'_>, steps: u64, start: Timestamp) {
        let Some(metric) = self.metric else { return };
        let value = steps as f64 / self.per_unit;
        self.labelled(|labels| out.counter(metric, labels, value, start));
    }

    /// Reports a gap if the file's counter could not be followed.
    pub(crate) fn lost(&self, out: &mut SampleWriter<'_>, from: Option<Timestamp>) {
        let (Some(metric), Some(from)) = (self.metric, from) else { return };
        self.labelled(|labels| out.lost(metric, labels, from));
    }

    /// Calls `visit` with the file's labels.
    pub(crate) fn labelled(&self, visit: impl FnOnce(&[(&str, &str)])) {
        self.labelled_and(&[], visit);
    }

    /// Calls `visit` with the file's labels and additional ones.
    pub(crate) fn labelled_and(&self, more: &[(&str, &str)], visit: impl FnOnce(&[(&str, &str)])) {
        let mut labels = [("", ""); LABELS_MAX];
        let own = self.labels.iter().map(|(name, text)| (*name, &**text));
        for (place, label) in labels.iter_mut().zip(own.chain(more.iter().copied())) {
            *place = label;
        }
        visit(labels.get(..self.labels.len() + more.len()).unwrap_or_default());
    }
}

impl Read<'_> {
    /// Sets the state of a part of the source from the result of a reading.
    ///
    /// # Errors
    /// No file could be read.
    pub(crate) fn state(self, part: &'static str, out: &mut Sink) -> Result<(), SourceError> {
        let Self { count, silent, mut errors, rejected } = self;
        if errors.is_empty() {
            return match rejected {
                Some(error) if count == 0 => Err(error.clone()),
                None if count == 0 && silent > 0 => {
                    Err(SourceError::absent("its devices report that they have no value now"))
                }
                rejected => {
                    out.part_as(part, rejected);
                    Ok(())
                }
            };
        }
        rejected.into_iter().for_each(|error| errors.push(error.clone()));
        match errors.into_one() {
            Some(error) if count == 0 => return Err(error),
            error => out.part_as(part, error.as_ref()),
        }
        Ok(())
    }
}

/// Sets the grant of a denied file, if a more specific one is known.
fn granting(error: SourceError, grant: Option<&'static str>) -> SourceError {
    match (error, grant) {
        (SourceError::Denied { what, .. }, Some(grant)) => SourceError::denied(what, grant),
        (error, _) => error,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::PartState;
    use model::{DeviceId, Unit};
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    /// Removes all permissions of a file, including its owner's.
    pub(crate) fn close(file: &Path) {
        std::fs::set_permissions(file, Permissions::from_mode(0o000)).unwrap();
    }

    /// Runs `act` without root's rights to open every file, in a separate thread, because other tests
    /// need them.
    pub(crate) fn without_roots_rights<T: Send>(act: impl FnOnce() -> T + Send) -> T {
        let all = || {
            let mut sets = capabilities(None).unwrap();
            sets.effective -= CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
            set_capabilities(None, sets).unwrap();
            act()
        };
        std::thread::scope(|scope| scope.spawn(all).join().unwrap())
    }

    static LEVEL: Metric = Metric::gauge("x_level", Unit::Count, "");

    fn read_all(values: &mut Values<u32>, out: &mut Sink) -> Vec<f64> {
        out.sealed();
        let mut of = out.of_device();
        values.each(|value, number| value.gauge(&mut of, number));
        out.samples().map(|(.., value)| value).collect()
    }

    #[test]
    fn files_remain_absent_until_a_walk_finds_them() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::recorded(dir.path()).unwrap();
        let mut values = Values::default();
        let walk = |found: &mut Walk<'_, u32>| {
            for name in found.names("sys/x") {
                found.file(&format!("sys/x/{name}"), &LEVEL, &[("x", &name)], 10.0, 7);
            }
        };
        let at = |second: i64| Timestamp(second * Timestamp::SECOND);
        let absent = Err(SourceError::absent("no x"));
        // The error appears at each tick, not only at the tick of the walk.
        assert_eq!(values.look(&root, at(0), "no x", walk), absent);
        assert_eq!(values.look(&root, at(1), "no x", walk), absent);
        std::fs::create_dir_all(dir.path().join("sys/x")).unwrap();
        std::fs::write(dir.path().join("sys/x/a"), "5\n").unwrap();
        assert_eq!(values.look(&root, at(59), "no x", walk), absent);
        assert_eq!(values.look(&root, at(60), "no x", walk), Ok(()));
        let mut out = Sink::new(DeviceId::new("n").unwrap());
        assert_eq!(read_all(&mut values, &mut out), [0.5]);
        values.list[0].kept = 8;
        // A new file appears; a known file keeps its state; an invalid number hides no other file.
        std::fs::write(dir.path().join("sys/x/b"), "-20\n").unwrap();
        std::fs::write(dir.path().join("sys/x/c"), "much\n").unwrap();
        assert_eq!(values.look(&root, at(120), "no x", walk), Ok(()));
        assert_eq!(read_all(&mut values, &mut out), [0.5, -2.0]);
        assert_eq!(values.list.iter().map(|value| value.kept).collect::<Vec<_>>(), [8, 7, 7]);
        // A file that disappears causes a walk at once.
        std::fs::remove_file(dir.path().join("sys/x/a")).unwrap();
        std::fs::remove_file(dir.path().join("sys/x/c")).unwrap();
        assert_eq!(read_all(&mut values, &mut out), [-2.0]);
        assert_eq!(values.look(&root, at(121), "no x", walk), Ok(()));
        assert_eq!(values.list.len(), 1);
    }

    #[test]
    fn denied_and_invalid_files_are_reported_beside_readable_ones() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::recorded(dir.path()).unwrap();
        let file = |name: &str| dir.path().join("sys/x").join(name);
        std::fs::create_dir_all(dir.path().join("sys/x")).unwrap();
        for (name, text) in [("a", "1"), ("b", "2"), ("c", "3"), ("d", "much"), ("e", "more")] {
            std::fs::write(file(name), text).unwrap();
        }
        ["b", "c"].iter().for_each(|name| close(&file(name)));
        let mut values = Values::granted_by("the key");
        let read = |values: &mut Values<u32>, at: i64| {
            let mut out = Sink::new(DeviceId::new("n").unwrap());
            let now = Timestamp(at * Timestamp::SECOND);
            let state = values.look(&root, now, "no x", |found| {
                for name in found.names("sys/x") {
                    found.file(&format!("sys/x/{name}"), &LEVEL, &[("x", &name)], 1.0, 7);
                }
            });
            let mut of = out.of_device();
            let read = values.each(|value, number| value.gauge(&mut of, number));
            let state = state.and_then(|()| read.state("files", &mut out));
            (state, out.samples().count(), out.parts().to_vec())
        };
        let closed = SourceError::denied("/sys/x/b, /sys/x/c", "the key");
        let broken = "broken: /sys/x/d: it is not a number; /sys/x/e: it is not a number";
        without_roots_rights(|| {
            // The error appears at each tick, not only at the tick of the walk.
            for at in [0, 1] {
                let (state, samples, parts) = read(&mut values, at);
                let [("files", PartState::Not(error))] = &parts[..] else { panic!("{parts:?}") };
                assert_eq!((state, samples), (Ok(()), 1));
                assert_eq!(error.to_string(), format!("{closed}; {broken}"));
            }
            ["d", "e"].iter().for_each(|name| std::fs::remove_file(file(name)).unwrap());
            let (state, _, parts) = read(&mut values, 60);
            let part = ("files", PartState::Not(closed.clone()));
            assert_eq!((state, parts), (Ok(()), vec![part]));
            // No other file is left, and reading the open file is denied.
            close(&file("a"));
            let (state, _, parts) = read(&mut values, 61);
            let all = SourceError::denied("/sys/x/a, /sys/x/b, /sys/x/c", "the key");
            assert_eq!((state.map_err(|e| e.state()), parts), (Err("denied"), vec![]));
            assert_eq!(read(&mut values, 120).0, Err(all));
        });
    }
}
