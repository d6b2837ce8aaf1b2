//! The database is restored from a dump: what was acknowledged afterwards is a gap, all else is stored once.

use super::{ARRIVAL_MAX, Site, folder, instants_of, lost_batches};
use crate::common::database::{Database, query};
use crate::common::programs::{output, program, until};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

impl Site {
    fn client(&self, program: &str, arguments: &[&str]) {
        let mut command = Command::new(program);
        command.arg("-h").arg(&self.folder).args(["-U", "postgres"]).args(arguments);
        let (code, _, errors) = output(&mut command);
        assert_eq!(code, 0, "{program}: {errors}");
    }

    fn dump(&self) {
        let file = self.dir.path().join("dump");
        self.client("pg_dump", &["-Fc", "-f", file.to_str().unwrap(), self.name]);
    }

    /// Copies the data folder while the server runs.
    fn back_up(&self) {
        let copy = self.dir.path().join("copy");
        let run = |command: &str, arguments: &[&Path]| {
            let [data, more @ ..] = arguments else { unreachable!() };
            let mut jobmeter = Command::new(program("jobmeter"));
            jobmeter.arg(command).arg("--data").arg(data);
            more.iter().for_each(|folder| _ = jobmeter.arg("--to").arg(folder));
            let (code, out, errors) = output(&mut jobmeter);
            assert_eq!(code, 0, "{command}: {errors}");
            out
        };
        let data = self.dir.path().join("data");
        let out = run("backup", &[&data, &copy]);
        assert!(out.contains("pg_dump copies the samples in the database"), "{out}");
        for folder in [&data, &copy] {
            let out = run("verify", &[folder]);
            assert!(out.starts_with("samples are in a database"), "{out}");
            assert!(out.ends_with("no damage\n"), "{out}");
        }
        for file in ["jobs.sqlite", "demand.sqlite", "audit.log", "acknowledged.json"] {
            assert!(copy.join(file).is_file(), "{file}");
        }
        std::fs::write(copy.join("acknowledged.json"), "{").unwrap();
        let out = run("verify", &[&copy]);
        assert!(out.contains("note: ") && out.ends_with("nothing is lost\n"), "{out}");
    }

    /// Replaces the database by its dump, as the operator's guide states it. Returns a second after which nothing was
    /// acknowledged.
    fn restore(&self) -> u64 {
        let file = self.dir.path().join("dump");
        self.client("dropdb", &["--force", self.name]);
        let ended = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() + 1;
        self.client("createdb", &["-T", "template0", self.name]);
        self.client(
            "pg_restore",
            &["--single-transaction", "-d", self.name, file.to_str().unwrap()],
        );
        ended
    }
}

#[test]
fn batches_acknowledged_after_the_dump_of_a_restored_database_are_gaps() {
    std::thread::scope(|scope| {
        for is_running in [true, false] {
            scope.spawn(move || restored(is_running));
        }
    });
}

/// The server runs meanwhile, or is stopped and started again.
fn restored(is_running: bool) {
    let dir = folder();
    let database = Database::start(&dir.path().join("database"));
    query(&dir.path().join("database"), "postgres", "postgres", "CREATE DATABASE samples").unwrap();
    let mut site = Site::start(dir, database, "samples");
    std::thread::sleep(Duration::from_secs(4));
    site.arrived();
    site.dump();
    site.back_up();
    let dumped = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    // A node that begins after the dump, and one that sends its last batch before the database is restored.
    site.start_agent(9);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(site.agents.remove(0).end(), 0);
    std::thread::sleep(Duration::from_secs(1));
    if !is_running {
        assert_eq!(site.server.running.end(), 0, "{}", site.server.running.errors());
    }
    let ended = site.restore();
    if !is_running {
        site.again();
    }
    let restored = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    // Without a batch of any sender, the server does not find out.
    let lost = until("the gaps", ARRIVAL_MAX, || {
        let lost = lost_batches(&site.server.url);
        ["n1", "n2", "n3", "n9"]
            .iter()
            .all(|node| lost.iter().any(|gap| gap.device == *node))
            .then_some(lost)
    });
    for gap in &lost {
        assert!(
            gap.from > dumped - 5.0 && gap.to < restored + 20.0,
            "{gap:?}: {dumped} to {restored}"
        );
    }
    // The node that ended lost what it printed since the dump, and the new one all of before the restoration.
    let last = instants_of(&site.printed(), "n1").last().copied().unwrap();
    assert!(lost.iter().any(|gap| gap.device == "n1" && gap.to > last));
    let first = instants_of(&site.printed(), "n9")[0];
    assert!(lost.iter().any(|gap| gap.device == "n9" && gap.from < first));
    site.arrived_since(ended);
    let (missing, _) = site.end();
    assert!(missing > 0);
}
