//! Kills the write side as its own program (`examples/numbered`): at any moment, and while a block is merged,
//! rolled up or settled, or the manifest replaced.

use crate::kit::Random;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Path of the program: `cargo test` builds it beside the tests.
fn numbered() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let path = own.parent().unwrap().parent().unwrap().join("examples/numbered");
    assert!(path.is_file(), "{path:?} is missing: `cargo build -p store --example numbered`");
    path
}

/// Starts it, to write this many batches or endlessly.
pub(crate) fn write(data: &Path, printed: &Path, count: Option<u64>, errors: Stdio) -> Child {
    let printed = File::options().create(true).append(true).open(printed).unwrap();
    let mut command = Command::new(numbered());
    command.arg("write").arg(data).args(count.map(|count| count.to_string()));
    if count.is_none() {
        command.env("RECEIVED", data.with_extension("received"));
    }
    command.stdout(printed).stderr(errors).spawn().unwrap()
}

/// Lets the program check the data.
pub(crate) fn check_printed(data: &Path, printed: &Path) {
    let mut command = Command::new(numbered());
    command.arg("check").arg(data).arg(printed);
    let received = data.with_extension("received");
    if received.is_file() {
        command.env("RECEIVED", received);
    }
    let checked = command.output().unwrap();
    let errors = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(checked.status.success(), "{errors}");
}

/// The operation in progress when the program is killed or its disk fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Aim {
    Anything,
    /// A merged block and its rollups are being written.
    Merge,
    /// A time range is being settled.
    Settlement,
    /// The manifest is being written.
    Manifest,
    /// The manifest was just replaced: dropped files are being removed.
    Removal,
}

pub(crate) const AIMS: [Aim; 5] =
    [Aim::Anything, Aim::Merge, Aim::Settlement, Aim::Manifest, Aim::Removal];

impl Aim {
    /// Whether it is in progress; `before` identifies the manifest at the start.
    fn is_met(self, data: &Path, before: Option<u64>) -> bool {
        let unfinished = |settled: bool| {
            let Ok(names) = std::fs::read_dir(data.join("rollups")) else { return false };
            let mut names = names.flatten().map(|entry| entry.file_name().into_string().unwrap());
            names.any(|name| name.ends_with(".tmp") && name.starts_with("settled-") == settled)
        };
        match self {
            Self::Anything => false,
            Self::Merge => unfinished(false),
            Self::Settlement => unfinished(true),
            Self::Manifest => data.join("MANIFEST.tmp").is_file(),
            Self::Removal => inode(data) != before,
        }
    }

    /// Waits until it is in progress, and sometimes a little longer.
    pub(crate) fn wait(self, data: &Path, random: &mut Random) {
        if self == Self::Anything {
            std::thread::sleep(Duration::from_millis(random.below(300)));
            return;
        }
        // Not the first of its kind, which mostly follows the opening.
        std::thread::sleep(Duration::from_millis(20 + random.below(100)));
        let (before, deadline) = (inode(data), Instant::now() + Duration::from_secs(2));
        while !self.is_met(data, before) && Instant::now() < deadline {
            std::hint::spin_loop();
        }
        if random.below(2) == 0 {
            std::thread::sleep(Duration::from_micros(random.below(3000)));
        }
    }
}

fn inode(data: &Path) -> Option<u64> {
    std::fs::metadata(data.join("MANIFEST")).ok().map(|file| file.ino())
}

#[test]
fn killed_while_it_merges_settles_or_swaps_it_keeps_acknowledged_batches() {
    let rounds: usize = std::env::var("ROUNDS").map_or(30, |rounds| rounds.parse().unwrap());
    let mut random = Random::seeded();
    let mut dir = tempfile::tempdir().unwrap();
    let mut met = [0; AIMS.len()];
    for round in 0..rounds {
        // A new directory now and then, so that its creation is interrupted too.
        if round % 10 == 0 {
            dir = tempfile::tempdir().unwrap();
        }
        let (data, printed) = (dir.path().join("data"), dir.path().join("printed"));
        let aim = AIMS[round % AIMS.len()];
        let errors = dir.path().join("errors");
        let mut program = write(&data, &printed, None, File::create(&errors).unwrap().into());
        aim.wait(&data, &mut random);
        program.kill().unwrap();
        let ended = program.wait().unwrap().code();
        assert_eq!(ended, None, "{}", std::fs::read_to_string(&errors).unwrap());
        met[round % AIMS.len()] += usize::from(aim.is_met(&data, inode(&data)));
        check_printed(&data, &printed);
    }
    println!("{rounds} rounds; still under way when killed: {AIMS:?} {met:?}");
    // The aimed operation was hit, as far as the leftovers show it.
    let [_, merges, settlements, manifests, _] = met;
    assert!(rounds < 30 || merges > 0 && settlements > 0 && manifests > 0, "{met:?}");
}
