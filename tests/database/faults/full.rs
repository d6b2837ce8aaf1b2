//! The disk of the database is full: a small tmpfs in a mount namespace of its own. The test needs root.

use super::{Site, folder, longer};
use crate::common::database::Database;
use crate::common::programs::root;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Mounts it, and keeps it until its standard input ends.
const SCRIPT: &str = r#"mount -t tmpfs -o size=$SIZE,mode=700 small "$DIR" && echo mounted && cat"#;

/// A small file system that only the processes of its holder's namespace see.
struct Small {
    holder: Child,
    /// Its path for this process.
    root: PathBuf,
}

impl Small {
    fn mount(at: &Path, size: &str) -> Self {
        std::fs::create_dir(at).unwrap();
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", SCRIPT]).env("DIR", at).env("SIZE", size);
        let mut holder = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line.trim(), "mounted");
        let root = PathBuf::from(format!("/proc/{}/root", holder.id()));
        Self { root: root.join(at.strip_prefix("/").unwrap()), holder }
    }

    /// Starts a database that sees it.
    fn database(&self, folder: &Path) -> Database {
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.holder.id()));
        Database::start_by(&mut command, folder, "")
    }

    /// Fills it completely.
    fn fill(&self) {
        let mut ballast = File::create(self.root.join("ballast")).unwrap();
        for size in [1 << 20, 4096] {
            while ballast.write_all(&vec![1; size]).is_ok() {}
        }
    }

    fn free_space(&self) {
        std::fs::remove_file(self.root.join("ballast")).unwrap();
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        self.holder.kill().ok();
        self.holder.wait().ok();
    }
}

#[test]
fn a_full_disk_of_the_database_defers_batches_until_there_is_space() {
    if !root("a_full_disk_of_the_database_defers_batches_until_there_is_space") {
        return;
    }
    let dir = folder();
    let place = dir.path().join("database");
    let small = Small::mount(&place.join("data"), "160m");
    let database = small.database(&place);
    let mut site = Site::start(dir, database, "postgres");
    for _ in 0..longer("FULL_ROUNDS", 1) {
        site.arrived();
        small.fill();
        let agent =
            |site: &Site| site.agents.iter().map(|agent| agent.errors().len()).sum::<usize>();
        let before = agent(&site);
        crate::common::programs::until("a batch that waits", Duration::from_secs(60), || {
            (site.agents_waited() && agent(&site) > before).then_some(())
        });
        std::thread::sleep(Duration::from_secs(2));
        small.free_space();
        // It ends if it cannot write its log; a service manager starts it again.
        std::thread::sleep(Duration::from_secs(1));
        if site.sql("SELECT 1").is_err() {
            drop(site.database.take());
            site.database = Some(small.database(&place));
        }
    }
    site.arrived();
    let (missing, _) = site.end();
    assert_eq!(missing, 0);
}
