//! Names of disks, and whether version 1 counts transfers.

use crate::reading::parts::Choice;
use kernel::Root;
use kernel::cgroup::io::{BlkioOperation, DeviceNumber, blkio, disk_names};
use model::Timestamp;

/// Interval of the check whether version 1 counts.
const CHECK_EVERY_US: i64 = 60 * Timestamp::SECOND;

/// Version 1's files of bytes and of operations. In order: the kernel's throttling, the disk
/// scheduler BFQ, the disk scheduler CFQ (before Linux 5.0), and throttling before 5.0, when its files
/// did not sum the directories below.
pub(super) const BLKIO_FILES: [(&str, &str); 4] = [
    ("blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_serviced_recursive"),
    ("blkio.bfq.io_service_bytes_recursive", "blkio.bfq.io_serviced_recursive"),
    ("blkio.io_service_bytes_recursive", "blkio.io_serviced_recursive"),
    ("blkio.throttle.io_service_bytes", "blkio.throttle.io_serviced"),
];

/// Names of disks, and which of them are reported.
#[derive(Debug)]
pub(super) struct Disks {
    choice: Choice,
    known: Vec<Disk>,
    text: Vec<u8>,
    learnt_at: Option<Timestamp>,
}

#[derive(Debug)]
struct Disk {
    device: DeviceNumber,
    name: Box<str>,
    shown: bool,
}

impl Disks {
    pub(super) fn new(choice: Choice) -> Self {
        Self { choice, known: Vec::new(), text: Vec::new(), learnt_at: None }
    }

    /// The name of a disk, if it is reported. A disk that `/proc/diskstats` does not contain is reported
    /// by its device number.
    pub(super) fn label(
        &mut self,
        root: &Root,
        now: Timestamp,
        device: DeviceNumber,
    ) -> Option<&str> {
        if self.place(device).is_none() {
            self.learn(root, now);
            if self.place(device).is_none() {
                let (name, shown) = (device.to_string().into(), true);
                self.known.push(Disk { device, name, shown });
            }
        }
        let disk = self.known.get(self.place(device)?)?;
        disk.shown.then_some(&*disk.name)
    }

    fn place(&self, device: DeviceNumber) -> Option<usize> {
        self.known.iter().position(|disk| disk.device == device)
    }

    /// Rereads the names, at most once a tick.
    fn learn(&mut self, root: &Root, now: Timestamp) {
        if self.learnt_at == Some(now) || root.read("proc/diskstats", &mut self.text).is_err() {
            return;
        }
        self.learnt_at = Some(now);
        self.known.clear();
        for (device, name, _) in disk_names(&self.text) {
            let shown = self.choice.includes(name).unwrap_or(true);
            self.known.push(Disk { device, name: name.into(), shown });
        }
    }
}

/// Whether version 1 counts transfers, and in which files.
///
/// The file of the hierarchy's root sums all cgroups. On a kernel that counts, its sum is about that of
/// `/proc/diskstats` for the same disks. Linux 5.16 to 6.4 count only under a limit, and 6.10 and later do
/// not even list a disk without one; a job's zero would be wrong there. The rule: the root's file must list
/// at least one disk, and have at least half the bytes of the disks that it lists.
#[derive(Debug, Default)]
pub(super) struct BlkioRule {
    /// Path of the hierarchy's root.
    mount: Option<String>,
    files: Option<usize>,
    looked_at: Option<Timestamp>,
    text: Vec<u8>,
    disks: Vec<u8>,
    path: String,
}

impl BlkioRule {
    /// The rule for a hierarchy mounted at this path, if any.
    pub(super) fn new(mount: Option<String>) -> Self {
        Self { mount, ..Self::default() }
    }

    /// The index in [`BLKIO_FILES`] of the files that count, checked once a minute.
    pub(super) fn files(&mut self, root: &Root, now: Timestamp) -> Option<usize> {
        let fresh = |at: Timestamp| now.since(at).unsigned_abs() < CHECK_EVERY_US.unsigned_abs();
        if !self.looked_at.is_some_and(fresh) {
            self.looked_at = Some(now);
            self.files = self.look(root);
        }
        self.files
    }

    fn look(&mut self, root: &Root) -> Option<usize> {
        let mount = self.mount.as_deref()?;
        root.read("proc/diskstats", &mut self.disks).ok()?;
        BLKIO_FILES.iter().position(|(bytes, _)| {
            self.path.clear();
            self.path.push_str(mount);
            self.path.push('/');
            self.path.push_str(bytes);
            root.read(&self.path, &mut self.text).is_ok() && counts(&self.text, &self.disks)
        })
    }
}

/// Whether the root's file has at least half the bytes of the disks that it lists.
fn counts(blkio_text: &[u8], disks: &[u8]) -> bool {
    let Ok(lines) = blkio(blkio_text) else { return false };
    let (mut counted, mut transferred, mut last) = (0_u64, 0_u64, None);
    for line in lines.flatten() {
        if line.operation != BlkioOperation::Discard {
            counted = counted.saturating_add(line.value);
        }
        if last != Some(line.device) {
            last = Some(line.device);
            let known = disk_names(disks).find(|(device, ..)| *device == line.device);
            transferred = transferred.saturating_add(known.map_or(0, |(_, _, bytes)| bytes));
        }
    }
    last.is_some() && counted >= transferred / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;

    const DISKSTATS: &[u8] =
        b" 8 0 sda 10 0 1000 0 10 0 1000 0 0 0 0\n 7 0 loop0 1 0 8 0 0 0 0 0 0 0 0\n";

    fn text(read: u64, written: u64) -> String {
        format!(
            "8:0 Read {read}\n8:0 Write {written}\n8:0 Sync 5\n8:0 Total {}\nTotal 9\n",
            read + written
        )
    }

    #[test]
    fn a_root_that_counts_has_at_least_half_of_the_disks_bytes() {
        // 2000 sectors are 1 024 000 bytes.
        assert!(counts(text(512_000, 400_000).as_bytes(), DISKSTATS));
        assert!(!counts(text(1000, 400_000).as_bytes(), DISKSTATS), "counts only some");
        assert!(!counts(text(0, 0).as_bytes(), DISKSTATS), "counts none");
        assert!(!counts(b"Total 0\n", DISKSTATS), "lists none");
        assert!(
            counts(text(0, 0).as_bytes(), b" 8 0 sda 0 0 0 0 0 0 0 0 0 0 0\n"),
            "nothing to count"
        );
        assert!(!counts(b"8:0 Read", DISKSTATS) && !counts(b"", DISKSTATS));
    }

    #[test]
    fn the_first_family_of_files_that_counts_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::recorded(dir.path()).unwrap();
        std::fs::create_dir_all(dir.path().join("proc")).unwrap();
        std::fs::create_dir_all(dir.path().join("blkio")).unwrap();
        std::fs::write(dir.path().join("proc/diskstats"), DISKSTATS).unwrap();
        let write = |file: usize, text: &str| {
            std::fs::write(dir.path().join("blkio").join(BLKIO_FILES[file].0), text).unwrap();
        };
        let mut rule = BlkioRule::new(Some("blkio".to_owned()));
        write(0, "Total 0\n");
        assert_eq!(rule.files(&root, Timestamp(0)), None);
        write(2, &text(600_000, 400_000));
        assert_eq!(rule.files(&root, Timestamp(1)), None, "checked once a minute");
        assert_eq!(rule.files(&root, Timestamp(CHECK_EVERY_US)), Some(2));
        assert_eq!(BlkioRule::new(None).files(&root, Timestamp(0)), None);
    }

    #[test]
    fn disks_are_named_and_selected_by_the_options() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::recorded(dir.path()).unwrap();
        std::fs::create_dir_all(dir.path().join("proc")).unwrap();
        std::fs::write(dir.path().join("proc/diskstats"), DISKSTATS).unwrap();
        let mut options = Options::defaults(super::super::SPEC.options);
        let device = |major, minor| DeviceNumber { major, minor };
        let mut disks = Disks::new(Choice::of(&options));
        let now = Timestamp(1);
        assert_eq!(disks.label(&root, now, device(8, 0)), Some("sda"));
        assert_eq!(disks.label(&root, now, device(7, 0)), None);
        assert_eq!(disks.label(&root, now, device(9, 9)), Some("9:9"));
        std::fs::write(dir.path().join("proc/diskstats"), " 8 16 sdb 0 0 0 0 0 0 0 0 0 0 0\n")
            .unwrap();
        assert_eq!(disks.label(&root, Timestamp(2), device(8, 16)), Some("sdb"));
        options.set("cgroup", super::super::SPEC.options, "include", "sda").unwrap();
        let mut disks = Disks::new(Choice::of(&options));
        assert_eq!(disks.label(&root, now, device(8, 16)), None);
    }
}
