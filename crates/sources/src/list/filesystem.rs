//! File systems: how full each mounted one is.
//!
//! Reads `/proc/self/mounts` (any Linux; proc_pid_mounts(5)), see [`kernel::mounts`], and calls `statfs` on
//! each selected mount, see [`kernel::statfs`]:
//!
//! ```text
//! /dev/vda / ext4 rw,relatime,discard 0 0
//! nfs1:/home /home nfs4 rw,relatime,vers=4.2,hard 0 0
//! ```
//!
//! By default the source reads file systems on local disks, with the labels `mount` and `type`. `statfs` of a
//! network file system (NFS, Lustre, FUSE …) blocks while its server does not respond, so only the option
//! `types` adds those types; the agent's watchdog then parks this source while it blocks. Of several mounts
//! of one device the source reads the first, so that no byte counts twice; of several mounts on one directory
//! the last, which covers the others. The source cannot recognise a mount that is hidden by a mount on a
//! directory above it.

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
    options: &[
        OptionSpec {
            name: "types",
            kind: Kind::List("WORD"),
            default: "bcachefs,btrfs,exfat,ext2,ext3,ext4,f2fs,jfs,nilfs2,ntfs3,reiserfs,vfat,xfs,zfs",
            help: "Types of file systems to read, or patterns with `*`; network types may hang this source.",
        },
        include(
            "Only these mount points: paths, or patterns with `*`; empty means all except those of `exclude`.",
        ),
        exclude(
            "",
            "Mount points to leave out if `include` is empty: paths, or patterns with `*`.",
        ),
    ],
    open,
    ..SourceSpec::DEFAULT
};

static SIZE: Metric = Metric::gauge(
    "filesystem_size_bytes",
    Unit::Bytes,
    "Size of the file system, excluding its metadata.",
);
static FREE: Metric = Metric::gauge(
    "filesystem_free_bytes",
    Unit::Bytes,
    "The part of filesystem_size_bytes that is free, including space reserved for root.",
);
static AVAILABLE: Metric = Metric::gauge(
    "filesystem_available_bytes",
    Unit::Bytes,
    "The part of filesystem_free_bytes that ordinary users may use.",
);
static INODES: Metric = Metric::gauge(
    "filesystem_inodes",
    Unit::Count,
    "Maximum number of files, where the file system has a fixed one.",
);
static INODES_FREE: Metric = Metric::gauge(
    "filesystem_inodes_free",
    Unit::Count,
    "Free inodes, where the file system has a fixed number.",
);
static READ_ONLY: Metric = Metric::gauge(
    "filesystem_read_only",
    Unit::Count,
    "1 if the file system is read-only, by its mount options or after an error; else 0.",
);

struct Filesystem {
    file: TickFile,
    types: Vec<Box<str>>,
    choice: Choice,
    absent: &'static str,
    /// The text that `mounts` was parsed from.
    text: Vec<u8>,
    mounts: Vec<SelectedMount>,
    buf: Vec<u8>,
}

/// A mount that the source reads.
struct SelectedMount {
    path: CString,
    mount: Box<str>,
    kind: Box<str>,
}

const NOTHING: [&str; 2] = [
    "no mounted file system has a type that is read by default; the option `types` names others",
    "no mounted file system has a type and a mount point that the options choose",
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
        mounts: Vec::new(),
        buf: Vec::new(),
    }))
}

impl Source for Filesystem {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        let text = self.file.read()?;
        if *text != *self.text {
            self.mounts = selected(text, &self.types, &self.choice)?;
            self.text.clear();
            self.text.extend_from_slice(text);
        }
        if self.mounts.is_empty() {
            return Err(SourceError::absent(self.absent));
        }
        let mut state = PartState::Ok;
        for mount in &self.mounts {
            match statfs(cx.root, &mount.path, &mut self.buf) {
                Ok(size) => push(mount, &size, out),
                // Unmounted since the list was read, or outside the agent's own root directory.
                Err(ReadError::Absent { .. }) => {}
                Err(error) => state = PartState::Not(error.into()),
            }
        }
        out.part("statfs", state);
        Ok(())
    }
}

/// Selects the mounts to read from the text of the list.
fn selected(
    text: &[u8],
    types: &[Box<str>],
    choice: &Choice,
) -> Result<Vec<SelectedMount>, SourceError> {
    let mut found: Vec<(Mount<'_>, SelectedMount)> = Vec::new();
    for mount in mounts(text).map_err(|e| broken(PATH, e))? {
        let mount = mount.map_err(|e| broken(PATH, e))?;
        found.retain(|(covered, _)| covered.path != mount.path);
        let kind = String::from_utf8_lossy(mount.kind);
        let path = unescape(mount.path);
        let name = String::from_utf8_lossy(&path);
        if any_matches(types, &kind) && choice.includes(&name).unwrap_or(true) {
            let (name, kind) = (name.as_ref().into(), kind.as_ref().into());
            // A path cannot contain a zero byte; such a line is not a mount.
            let Ok(path) = CString::new(path) else { continue };
            found.push((mount, SelectedMount { path, mount: name, kind }));
        }
    }
    let mut devices: Vec<&[u8]> = Vec::new();
    found.retain(|(mount, _)| {
        // A device name without `/` is only a word, such as `none`: two of them are two file systems.
        let known = mount.device.contains(&b'/') && devices.contains(&mount.device);
        devices.push(mount.device);
        !known
    });
    Ok(found.into_iter().map(|(_, mount)| mount).collect())
}

fn push(mount: &SelectedMount, size: &StatFs, out: &mut Sink) {
    let labels = [("mount", &*mount.mount), ("type", &*mount.kind)];
    let mut out = out.of_device();
    for (metric, blocks) in
        [(&SIZE, size.blocks), (&FREE, size.blocks_free), (&AVAILABLE, size.blocks_available)]
    {
        out.gauge(metric, &labels, blocks.saturating_mul(size.block_bytes) as f64);
    }
    if size.files > 0 {
        out.gauge(&INODES, &labels, size.files as f64);
        out.gauge(&INODES_FREE, &labels, size.files_free as f64);
    }
    out.gauge(&READ_ONLY, &labels, if size.read_only { 1.0 } else { 0.0 });
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

    fn selected_mounts(settings: &[(&str, &str)]) -> Vec<String> {
        let options = Options::of(&SPEC, settings.iter().copied()).unwrap();
        let types: Vec<_> = options.words("types").into_iter().map(Box::from).collect();
        let mounts = selected(TEXT, &types, &Choice::of(&options)).unwrap();
        mounts.into_iter().map(|mount| mount.mount.into_string()).collect()
    }

    #[test]
    fn local_disks_each_once_without_covered_mounts() {
        assert_eq!(selected_mounts(&[]), ["/", "/scratch", "/pool a", "/pool b"]);
    }

    #[test]
    fn options_choose_types_and_mount_points() {
        assert_eq!(selected_mounts(&[("types", "nfs*,tmpfs")]), ["/home", "/mnt"]);
        assert_eq!(selected_mounts(&[("exclude", "/pool*,/")]), ["/scratch", "/var/lib/bind"]);
        assert_eq!(selected_mounts(&[("include", "/var/*")]), ["/var/lib/bind"]);
    }

    #[test]
    fn the_path_for_statfs_equals_the_label() {
        let types = [Box::from("zfs")];
        let choice = Choice::of(&Options::defaults(SPEC.options));
        let mounts = selected(TEXT, &types, &choice).unwrap();
        assert_eq!(&*mounts[0].path, c"/pool a");
        assert!(selected(b"cut", &types, &choice).is_err());
    }
}
