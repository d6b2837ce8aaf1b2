//! Mounts: their number by type, and each mount of a disk.
//!
//! Reads `/proc/self/mounts`, see [`kernel::mounts`], and `/proc/filesystems` (any Linux; proc_filesystems(5)):
//!
//! ```text
//! /dev/vda / ext4 rw,relatime,discard 0 0
//! nodev   tmpfs
//!         ext4
//! ```
//!
//! A growing number of mounts slows every path lookup, and a shared file system that is missing on one node
//! of a job shows here. A file system on a disk, with a type that is not `nodev`, is reported individually
//! with the labels `device`, `mount`, `type` and `options`, at most [`REPORTED_MAX`]; source `filesystem` has
//! its usage. The source reads the agent's own mount namespace.

use crate::reading::file::{TickFile, broken};
use crate::reading::parts::{Choice, exclude, include};
use crate::{Context, Every, Open, PartState, Sink, Source, SourceError, SourceSpec};
use kernel::mounts::{Mount, mounts, unescape};
use kernel::parse::lines;
use model::{Metric, Unit};
use std::time::Duration;

const PATH: &str = "proc/self/mounts";
const NOTHING: &str =
    "/proc/1/mounts: no file system on a disk has a mount point that the option `include` chooses";
const TYPES: &str = "proc/filesystems";
/// Maximum number of mounts reported individually.
const REPORTED_MAX: usize = 1000;
/// Maximum length of a label here; a longer text is left out, because a cut one could have another meaning.
const LABEL_BYTES_MAX: usize = 1000;

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "mounts",
    help: "Number of mounts of each type, and each mount of a disk.",
    reads: &["/proc/self/mounts", "/proc/filesystems"],
    cost: "about 8 µs on 2 virtual cores, Linux 6.18, with 20 mounts; grows with them",
    every: Every::AtLeast(Duration::from_secs(60)),
    metrics: &[&OF_TYPE, &ON_DISK],
    options: &[
        include(
            "Only these mount points are reported individually: paths, or patterns with `*`; empty means all except those of `exclude`.",
        ),
        exclude(
            "",
            "Mount points to leave out if `include` is empty: paths, or patterns with `*`.",
        ),
    ],
    open,
    ..SourceSpec::DEFAULT
};

static OF_TYPE: Metric =
    Metric::gauge("mounts_of_type", Unit::Count, "Mounts of a type of file system.");
static ON_DISK: Metric = Metric::gauge(
    "mounts_on_disk",
    Unit::Count,
    "1 for each mount of a file system on a disk; the labels have device and mount point.",
);

struct Mounts {
    file: TickFile,
    types: TickFile,
    choice: Choice,
    /// The text that the following fields were parsed from.
    text: Vec<u8>,
    of_type: Vec<(Box<str>, u32)>,
    on_disk: Vec<OnDisk>,
    left_out: usize,
}

struct OnDisk {
    device: Box<str>,
    mount: Box<str>,
    kind: Box<str>,
    options: Box<str>,
}

fn open(open: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    let file = match TickFile::open(open.root, PATH) {
        Err(SourceError::Absent(_)) => TickFile::open(open.root, "proc/mounts")?,
        other => other?,
    };
    Ok(Box::new(Mounts {
        file,
        types: TickFile::open(open.root, TYPES)?,
        choice: Choice::of(open.options),
        text: Vec::new(),
        of_type: Vec::new(),
        on_disk: Vec::new(),
        left_out: 0,
    }))
}

impl Source for Mounts {
    fn collect(&mut self, _: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        let text = self.file.read()?;
        if *text != *self.text {
            self.text.clear();
            self.text.extend_from_slice(text);
            if let Err(error) = self.sort() {
                self.text.clear();
                return Err(error);
            }
        }
        let mut of = out.of_device();
        for (kind, count) in &self.of_type {
            of.gauge(&OF_TYPE, &[("type", kind)], f64::from(*count));
        }
        for on in &self.on_disk {
            let labels = [
                ("device", &*on.device),
                ("mount", &*on.mount),
                ("type", &*on.kind),
                ("options", &*on.options),
            ];
            of.gauge(&ON_DISK, &labels, 1.0);
        }
        if self.left_out > 0 {
            let why = format!("{} mounts are more than {REPORTED_MAX} and left out", self.left_out);
            out.part("on_disk", PartState::Not(SourceError::broken(why)));
        } else {
            out.part("on_disk", PartState::Ok);
        }
        out.part("include", self.choice.state(!self.on_disk.is_empty(), NOTHING));
        Ok(())
    }
}

impl Mounts {
    /// Counts and sorts the mounts of the text.
    fn sort(&mut self) -> Result<(), SourceError> {
        let Self { types, choice, text, of_type, on_disk, left_out, .. } = self;
        let types = types.read()?;
        of_type.clear();
        on_disk.clear();
        *left_out = 0;
        for mount in mounts(text).map_err(|e| broken(PATH, e))? {
            let mount = mount.map_err(|e| broken(PATH, e))?;
            let kind = String::from_utf8_lossy(mount.kind);
            match of_type.iter_mut().find(|(known, _)| **known == *kind) {
                Some((_, count)) => *count += 1,
                None => of_type.push((kind.as_ref().into(), 1)),
            }
            let on = is_on_disk(&mount, types).then(|| OnDisk::new(&mount));
            match on.filter(|on| choice.includes(&on.mount).unwrap_or(true)) {
                Some(_) if on_disk.len() >= REPORTED_MAX => *left_out += 1,
                Some(on) => on_disk.push(on),
                None => {}
            }
        }
        Ok(())
    }
}

/// Whether the file system is on a disk: its type is not `nodev`. ZFS is `nodev`, but on disks of its own.
fn is_on_disk(mount: &Mount<'_>, types: &[u8]) -> bool {
    !mount.device.is_empty()
        && (lines(types).any(|line| line.trim_ascii() == mount.kind) || mount.kind == b"zfs")
}

impl OnDisk {
    fn new(mount: &Mount<'_>) -> Self {
        let text = |field: &[u8]| {
            let text = String::from_utf8_lossy(&unescape(field)).into_owned();
            if text.len() > LABEL_BYTES_MAX { Box::default() } else { text.into_boxed_str() }
        };
        Self {
            device: text(mount.device),
            mount: text(mount.path),
            kind: text(mount.kind),
            options: text(mount.options),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_file_systems_on_a_disk() {
        let types = b"nodev\tsysfs\nnodev\ttmpfs\n\text4\nnodev\tnfs4\n\tvfat\nnodev\tzfs\n";
        let on_disk = |device: &'static [u8], kind: &'static [u8]| {
            is_on_disk(&Mount { device, path: b"/x", kind, options: b"rw" }, types)
        };
        assert!(on_disk(b"/dev/sda1", b"ext4") && on_disk(b"pool/a", b"zfs"));
        assert!(!on_disk(b"tmpfs", b"tmpfs") && !on_disk(b"nfs1:/home", b"nfs4"));
        assert!(!on_disk(b"", b"ext4") && !on_disk(b"x", b"ext"));
    }

    #[test]
    fn a_label_that_is_too_long_is_left_out_not_cut() {
        let options = "x".repeat(LABEL_BYTES_MAX + 1);
        let mount = Mount {
            device: b"/dev/a",
            path: b"/a\\040b",
            kind: b"ext4",
            options: options.as_bytes(),
        };
        let on = OnDisk::new(&mount);
        assert_eq!((&*on.mount, &*on.options), ("/a b", ""));
    }
}
