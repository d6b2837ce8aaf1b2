//! Files with one number each, or with a small table, as sysfs has them: found by a walk, then read at
//! every tick.

use crate::file::broken;
use crate::{Of, PartState, Sink, SourceError};
use kernel::parse::signed;
use kernel::{KeptFile, ReadError, Root};
use model::{Metric, Timestamp};
use std::collections::HashMap;
use std::fmt::Display;

/// How often the walk is made again: what was plugged in shows within so long.
const WALK_EVERY_US: i64 = 60 * Timestamp::SECOND;
/// Most files of a source; the rest is left out and told.
pub(crate) const FILES_MAX: usize = 20_000;
/// Most labels of a sample.
const LABELS_MAX: usize = 5;

/// The number in a file's text, blanks at its ends taken off.
pub(crate) type Parse = fn(&[u8]) -> Option<i64>;

/// A file, and what the source keeps of it.
#[derive(Debug)]
pub(crate) struct Value<T> {
    /// None of a file that is a table.
    metric: Option<&'static Metric>,
    labels: Vec<(&'static str, Box<str>)>,
    /// So many of the file's steps are one of the metric's unit.
    per_unit: f64,
    path: Box<str>,
    file: KeptFile,
    parse: Parse,
    pub(crate) kept: T,
}

/// The files of a source.
#[derive(Debug)]
pub(crate) struct Values<T = ()> {
    list: Vec<Value<T>>,
    walked: Option<Timestamp>,
    /// Why the last walk found nothing.
    nothing: Option<SourceError>,
    /// Files for which there was no room at the last walk.
    left_out: usize,
    buf: Vec<u8>,
}

impl<T> Default for Values<T> {
    fn default() -> Self {
        Self { list: Vec::new(), walked: None, nothing: None, left_out: 0, buf: Vec::new() }
    }
}

/// What a walk finds.
#[derive(Debug)]
pub(crate) struct Walk<'a, T> {
    root: &'a Root,
    found: Vec<Value<T>>,
    /// The first file that is there and cannot be opened.
    refused: Option<ReadError>,
    left_out: usize,
}

/// What a reading of all files came to.
#[derive(Debug, Default)]
pub(crate) struct Read {
    /// Files whose number was told.
    pub(crate) told: usize,
    /// Files whose device says that it has no value now.
    silent: usize,
    /// Why the first of the others was not.
    pub(crate) refused: Option<SourceError>,
}

impl<T> Walk<'_, T> {
    /// Takes a file, if it is there: its metric, labels, how many of its steps make a unit, and what is
    /// kept of it at first; a file that was there at the walk before keeps what it has.
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

    /// As [`Self::file`], of which the number is found so.
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

    /// Takes a file with a table, for [`Values::each_text`], if it is there; whether it is.
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
            Err(error) => {
                self.refused.get_or_insert(error);
            }
        }
        false
    }

    /// The machine's files.
    pub(crate) const fn root(&self) -> &Root {
        self.root
    }

    /// A file's text, if it can be read and has any.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        self.root.read_text(path).ok().filter(|text| !text.is_empty())
    }

    /// The last name in what a link points at.
    pub(crate) fn link(&self, path: &str) -> Option<String> {
        let target = self.root.read_link(path).ok()?;
        target.rsplit('/').next().map(str::to_owned)
    }

    /// The names in a directory, in order; none if it cannot be read.
    pub(crate) fn names(&mut self, path: &str) -> Vec<String> {
        let mut names = Vec::new();
        match self.root.list(path, |entry| names.push(entry.name.to_owned())) {
            Err(error) if !error.is_absent() => {
                self.refused.get_or_insert(error);
            }
            _ => {}
        }
        names.sort();
        names
    }
}

impl<T> Values<T> {
    /// Looks for the files if that is due: at first, each minute, and when one has gone. Files that are
    /// there and closed to us are an error only where nothing else is found.
    ///
    /// # Errors
    /// There is none, as `absent` says, or all are closed to us.
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
        let mut found = Walk { root, found: Vec::new(), refused: None, left_out: 0 };
        walk(&mut found);
        let Walk { found, refused, left_out, .. } = found;
        self.walked = Some(now);
        self.replace(found);
        self.left_out = left_out;
        self.nothing = match refused {
            _ if !self.list.is_empty() => None,
            Some(error) => Some(error.into()),
            None => Some(SourceError::absent(absent)),
        };
        self.nothing.clone().map_or(Ok(()), Err)
    }

    /// Takes these files; those that were there keep what is kept of them.
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

    /// Reads every file; `tell` is given each with its number.
    pub(crate) fn each(&mut self, mut tell: impl FnMut(&mut Value<T>, i64)) -> Read {
        self.each_text(|value, text| {
            let number = (value.parse)(text.trim_ascii());
            tell(value, number.ok_or_else(|| value.broken("it is no number"))?);
            Ok(())
        })
    }

    /// Reads every file; `tell` is given each with its text.
    pub(crate) fn each_text(
        &mut self,
        mut tell: impl FnMut(&mut Value<T>, &[u8]) -> Result<(), SourceError>,
    ) -> Read {
        let mut read = Read::default();
        if self.left_out > 0 {
            let why = format!("{} files are more than {FILES_MAX} and left out", self.left_out);
            read.refused = Some(SourceError::broken(why));
        }
        for value in &mut self.list {
            let told = match value.file.read(&mut self.buf) {
                Ok(()) => tell(value, &self.buf),
                // The device has gone; so has its directory, at the next walk.
                Err(errno) if kernel::is_gone(errno) => {
                    self.walked = None;
                    continue;
                }
                Err(errno) if kernel::is_silent(errno) => {
                    read.silent += 1;
                    continue;
                }
                Err(errno) => Err(value.broken(errno)),
            };
            match told {
                Ok(()) => read.told += 1,
                Err(error) => {
                    read.refused.get_or_insert(error);
                }
            }
        }
        read
    }
}

impl<T> Value<T> {
    /// A text of it that makes no sense.
    pub(crate) fn broken(&self, why: impl Display) -> SourceError {
        broken(&self.path, why)
    }

    /// Whether it is of this metric.
    pub(crate) fn is(&self, metric: &'static Metric) -> bool {
        self.metric.is_some_and(|own| std::ptr::eq(own, metric))
    }

    /// Pushes a number of the file's steps as a gauge.
    pub(crate) fn gauge(&self, out: &mut Of<'_>, steps: i64) {
        let Some(metric) = self.metric else { return };
        self.labelled(|labels| out.gauge(metric, labels, steps as f64 / self.per_unit));
    }

    /// Pushes a number of the file's steps as a counter.
    pub(crate) fn counter(&self, out: &mut Of<'_>, steps: u64, start: Timestamp) {
        let Some(metric) = self.metric else { return };
        let value = steps as f64 / self.per_unit;
        self.labelled(|labels| out.counter(metric, labels, value, start));
    }

    /// Tells since when the file's counter could not be followed, if it was not.
    pub(crate) fn lost(&self, out: &mut Of<'_>, from: Option<Timestamp>) {
        let (Some(metric), Some(from)) = (self.metric, from) else { return };
        self.labelled(|labels| out.lost(metric, labels, from));
    }

    /// Shows the file's labels.
    pub(crate) fn labelled(&self, tell: impl FnOnce(&[(&str, &str)])) {
        self.labelled_and(&[], tell);
    }

    /// Shows the file's labels and some more.
    pub(crate) fn labelled_and(&self, more: &[(&str, &str)], tell: impl FnOnce(&[(&str, &str)])) {
        let mut labels = [("", ""); LABELS_MAX];
        let own = self.labels.iter().map(|(name, text)| (*name, &**text));
        for (place, label) in labels.iter_mut().zip(own.chain(more.iter().copied())) {
            *place = label;
        }
        tell(labels.get(..self.labels.len() + more.len()).unwrap_or_default());
    }
}

impl Read {
    /// Nothing at all could be read, or how the part of the source stands.
    ///
    /// # Errors
    /// No file could be read.
    pub(crate) fn state(self, part: &'static str, out: &mut Sink) -> Result<(), SourceError> {
        match self.refused {
            Some(error) if self.told == 0 => return Err(error),
            None if self.told == 0 && self.silent > 0 => {
                return Err(SourceError::absent("its devices say that they have no value now"));
            }
            Some(error) => out.part(part, PartState::Not(error)),
            None => out.part(part, PartState::Ok),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{DeviceId, Unit};

    static LEVEL: Metric = Metric::gauge("x_level", Unit::Count, "");

    fn told(values: &mut Values<u32>, out: &mut Sink) -> Vec<f64> {
        out.sealed();
        let mut of = out.of_device();
        values.each(|value, number| value.gauge(&mut of, number));
        out.samples().map(|(.., value)| value).collect()
    }

    #[test]
    fn what_is_not_there_stays_absent_until_a_walk_finds_it() {
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
        // At each tick, not only at that of the walk.
        assert_eq!(values.look(&root, at(0), "no x", walk), absent);
        assert_eq!(values.look(&root, at(1), "no x", walk), absent);
        std::fs::create_dir_all(dir.path().join("sys/x")).unwrap();
        std::fs::write(dir.path().join("sys/x/a"), "5\n").unwrap();
        assert_eq!(values.look(&root, at(59), "no x", walk), absent);
        assert_eq!(values.look(&root, at(60), "no x", walk), Ok(()));
        let mut out = Sink::new(DeviceId::new("n").unwrap());
        assert_eq!(told(&mut values, &mut out), [0.5]);
        values.list[0].kept = 8;
        // One comes; another keeps what is kept of it; one that is no number hides no other.
        std::fs::write(dir.path().join("sys/x/b"), "-20\n").unwrap();
        std::fs::write(dir.path().join("sys/x/c"), "much\n").unwrap();
        assert_eq!(values.look(&root, at(120), "no x", walk), Ok(()));
        assert_eq!(told(&mut values, &mut out), [0.5, -2.0]);
        assert_eq!(values.list.iter().map(|value| value.kept).collect::<Vec<_>>(), [8, 7, 7]);
        // One that goes is looked for at once.
        std::fs::remove_file(dir.path().join("sys/x/a")).unwrap();
        std::fs::remove_file(dir.path().join("sys/x/c")).unwrap();
        assert_eq!(told(&mut values, &mut out), [-2.0]);
        assert_eq!(values.look(&root, at(121), "no x", walk), Ok(()));
        assert_eq!(values.list.len(), 1);
    }
}
