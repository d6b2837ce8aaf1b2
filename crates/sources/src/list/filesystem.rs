//! File systems: how full each mounted one is.
//!
//! Reads `/proc/self/mounts` (any Linux; proc_pid_mounts(5)), see [`kernel::mounts`], and asks `statfs` of
//! each mount that is shown, see [`kernel::statfs`]:
//!
//! ```text
//! /dev/vda / ext4 rw,relatime,discard 0 0
//! nfs1:/home /home nfs4 rw,relatime,vers=4.2,hard 0 0
//! ```
//!
//! Shown are file systems on local disks, with the labels `mount` and `type`. `statfs` of a network file
//! system (NFS, Lustre, FUSE …) waits as long as its server is silent, so those types are asked only if the
//! option `types` names them; then the agent's watchdog parks this source while it waits. Of several mounts
//! of one device the first is shown, so that no byte counts twice, and of several mounts at one place the
//! last, which covers the others. A mount hidden because something was mounted on a directory above it is
//! not told from one that is not hidden.

use crate::reading::file::{TickFile, broken};
use crate::reading::parts::{Choice, any_matches, exclude, include};
use crate::{Context, Every, Open, PartState, Sink, Source, SourceError, SourceSpec};
use kernel::ReadError;
use kernel::mounts::{Mount, mounts, unescape};
use kernel::statfs::{StatFs, statfs};
use model::setting::{Kind, OptionSpec};
use model::{Metric, Unit};
use std::ffi::CString;
use std::time::Duration;

const PATH: &str = "proc/self/mounts";

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "filesystem",
    help: "How full each mounted file system is.",
    reads: &["/proc/self/mounts", "statfs(2)"],
    cost: "about 8 µs on 2 virtual cores, Linux 6.18, with 1 of 20 mounts shown; grows with them",
    every: Every::AtLeast(Duration::from_secs(30)),
    metrics: &[&SIZE, &FREE, &AVAILABLE, &INODES, &INODES_FREE, &READ_ONLY],
    sane: &[],
    options: &[
        OptionSpec {
            name: "types",
            kind: Kind::List("WORD"),
            default: "bcachefs,btrfs,exfat,ext2,ext3,ext4,f2fs,jfs,nilfs2,ntfs3,reiserfs,vfat,xfs,zfs",
            help: "Types of file systems to show, or patterns with `*`; network types may hang this source.",
        },
        include(
            "Only mounts at these places: paths, or patterns with `*`; none means all but those of `exclude`.",
        ),
        exclude("", "Places to leave out if `include` names none: paths, or patterns with `*`."),
    ],
    open,
};

static SIZE: Metric = Metric::gauge(
    "filesystem_size_bytes",
    Unit::Bytes,
    "Size of the file system, its own administration not included.",
);
static FREE: Metric = Metric::gauge(
    "filesystem_free_bytes",
    Unit::Bytes,
    "The part of filesystem_size_bytes that is free, what only root may use included.",
);
static AVAILABLE: Metric = Metric::gauge(
    "filesystem_available_bytes",
    Unit::Bytes,
    "The part of filesystem_free_bytes that ordinary users may use.",
);
static INODES: Metric = Metric::gauge(
    "filesystem_inodes",
    Unit::Count,
    "How many files the file system can hold, where that is fixed.",
);
static INODES_FREE: Metric = Metric::gauge(
    "filesystem_inodes_free",
    Unit::Count,
    "How many more files the file system can hold, where that is fixed.",
);
static READ_ONLY: Metric = Metric::gauge(
    "filesystem_read_only",
    Unit::Count,
    "1 where nothing can be written, because it was mounted so or after an error; else 0.",
);

struct Filesystem {
    file: TickFile,
    types: Vec<Box<str>>,
    choice: Choice,
    absent: &'static str,
    /// The text from which `places` were made.
    text: Vec<u8>,
    places: Vec<ShownMount>,
    buf: Vec<u8>,
}

/// A mount that is shown.
struct ShownMount {
    path: CString,
    mount: Box<str>,
    kind: Box<str>,
}

const NOTHING: [&str; 2] = [
    "no mounted file system is of a type that is read by default; the option `types` names others",
    "no mounted file system is of the types and at the places that the options choose",
];

fn open(open: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    let file = match TickFile::open(open.root, PATH) {
        Err(SourceError::Absent(_)) => TickFile::open(open.root, "proc/mounts")?,
        other => other?,
    };
    Ok(Box::new(Filesystem {
        file,
        types: open.options.words("types").into_iter().map(Box::from).collect(),
        choice: Choice::of(open.options),
        absent: open.options.nothing(&SPEC, &["types", "include", "exclude"], NOTHING),
        text: Vec::new(),
        places: Vec::new(),
        buf: Vec::new(),
    }))
}

impl Source for Filesystem {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        let text = self.file.read()?;
        if *text != *self.text {
            self.places = shown(text, &self.types, &self.choice)?;
            self.text.clear();
            self.text.extend_from_slice(text);
        }
        if self.places.is_empty() {
            return Err(SourceError::absent(self.absent));
        }
        let mut state = PartState::Ok;
        for place in &self.places {
            match statfs(cx.root, &place.path, &mut self.buf) {
                Ok(told) => push(place, &told, out),
                // Unmounted since the list was read, or outside the agent's own root directory.
                Err(ReadError::Absent { .. }) => {}
                Err(error) => state = PartState::Not(error.into()),
            }
        }
        out.part("statfs", state);
        Ok(())
    }
}

/// The mounts to show, from the text of the list.
fn shown(text: &[u8], types: &[Box<str>], choice: &Choice) -> Result<Vec<ShownMount>, SourceError> {
    let mut found: Vec<(Mount<'_>, ShownMount)> = Vec::new();
    for mount in mounts(text).map_err(|e| broken(PATH, e))? {
        let mount = mount.map_err(|e| broken(PATH, e))?;
        found.retain(|(covered, _)| covered.path != mount.path);
        let kind = String::from_utf8_lossy(mount.kind);
        let path = unescape(mount.path);
        let name = String::from_utf8_lossy(&path);
        if any_matches(types, &kind) && choice.says(&name).unwrap_or(true) {
            let (name, kind) = (name.as_ref().into(), kind.as_ref().into());
            // A path cannot have a zero byte, and a text that says so is no mount.
            let Ok(path) = CString::new(path) else { continue };
            found.push((mount, ShownMount { path, mount: name, kind }));
        }
    }
    let mut devices: Vec<&[u8]> = Vec::new();
    found.retain(|(mount, _)| {
        // A name without `/` is a mere word, such as `none`: two of them are two file systems.
        let known = mount.device.contains(&b'/') && devices.contains(&mount.device);
        devices.push(mount.device);
        !known
    });
    Ok(found.into_iter().map(|(_, place)| place).collect())
}

fn push(place: &ShownMount, told: &StatFs, out: &mut Sink) {
    let labels = [("mount", &*place.mount), ("type", &*place.kind)];
    let mut out = out.of_device();
    for (metric, blocks) in
        [(&SIZE, told.blocks), (&FREE, told.blocks_free), (&AVAILABLE, told.blocks_available)]
    {
        out.gauge(metric, &labels, blocks.saturating_mul(told.block_bytes) as f64);
    }
    if told.files > 0 {
        out.gauge(&INODES, &labels, told.files as f64);
        out.gauge(&INODES_FREE, &labels, told.files_free as f64);
    }
    out.gauge(&READ_ONLY, &labels, if told.read_only { 1.0 } else { 0.0 });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;

    const TEXT: &[u8] = b"proc /proc proc rw 0 0\n\
        /dev/sda1 / ext4 rw 0 0\n\
        /dev/sdb1 /scratch xfs rw 0 0\n\
        nfs1:/home /home nfs4 rw 0 0\n\
        /dev/sda1 /var/lib/bind ext4 rw 0 0\n\
        pool/a /pool\\040a zfs rw 0 0\n\
        pool/b /pool\\040b zfs rw 0 0\n\
        /dev/sdc1 /mnt xfs rw 0 0\n\
        tmpfs /mnt tmpfs rw 0 0\n";

    fn places(settings: &[(&str, &str)]) -> Vec<String> {
        let options = Options::of(&SPEC, settings.iter().copied()).unwrap();
        let types: Vec<_> = options.words("types").into_iter().map(Box::from).collect();
        let places = shown(TEXT, &types, &Choice::of(&options)).unwrap();
        places.into_iter().map(|place| place.mount.into_string()).collect()
    }

    #[test]
    fn local_disks_each_once_and_nothing_that_is_covered() {
        assert_eq!(places(&[]), ["/", "/scratch", "/pool a", "/pool b"]);
    }

    #[test]
    fn options_choose_types_and_places() {
        assert_eq!(places(&[("types", "nfs*,tmpfs")]), ["/home", "/mnt"]);
        assert_eq!(places(&[("exclude", "/pool*,/")]), ["/scratch", "/var/lib/bind"]);
        assert_eq!(places(&[("include", "/var/*")]), ["/var/lib/bind"]);
    }

    #[test]
    fn no_byte_of_the_label_is_lost_on_the_way_to_statfs() {
        let types = [Box::from("zfs")];
        let choice = Choice::of(&Options::defaults(SPEC.options));
        let places = shown(TEXT, &types, &choice).unwrap();
        assert_eq!(&*places[0].path, c"/pool a");
        assert!(shown(b"cut", &types, &choice).is_err());
    }
}
