//! A backup of a data folder, made while its server writes, is a complete data folder.

use crate::common::programs::{Running, Server, output, program, root, until};
use crate::common::up::jobmeter;
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Returns every path below a folder, with its mode, owner and group.
fn rights(dir: &Path) -> BTreeMap<PathBuf, (u32, u32, u32)> {
    let (mut found, mut waiting) = (BTreeMap::new(), vec![PathBuf::new()]);
    while let Some(below) = waiting.pop() {
        let path = dir.join(&below);
        let about = std::fs::symlink_metadata(&path).unwrap();
        if about.is_dir() {
            let entries = std::fs::read_dir(&path).unwrap();
            waiting.extend(entries.map(|entry| below.join(entry.unwrap().file_name())));
        }
        found.insert(below, (about.mode() & 0o7777, about.uid(), about.gid()));
    }
    found
}

#[test]
fn a_copy_is_closed_to_others_keeps_its_owner_and_has_the_audit_log() {
    let dir = tempfile::tempdir().unwrap();
    let (data, copy) = (dir.path().join("data"), dir.path().join("copy"));
    let (config, lines) = (dir.path().join("server.toml"), dir.path().join("lines"));
    let table = format!("[outputs.file]\npath = \"{}\"\n", lines.display());
    std::fs::write(&config, table).unwrap();
    let mut server = Server::start(&data, &["--config", config.to_str().unwrap()]);
    let (code, _, errors) = jobmeter(&server.url, &["run", "--", "true"]);
    assert_eq!(code, 0, "{errors}");
    until("the lines of the output", Duration::from_secs(30), || {
        std::fs::metadata(&lines).is_ok_and(|about| about.len() > 0).then_some(())
    });
    assert_eq!(server.running.end(), 0, "{}", server.running.errors());
    if root("the owner of a copy") {
        let status = Command::new("chown").args(["-R", "65534:65534"]).arg(&data).status().unwrap();
        assert!(status.success());
    }
    // The usual umask of an administrator's shell.
    let mut backup = Command::new("sh");
    backup.args(["-c", "umask 022; exec \"$@\"", "sh"]).arg(program("jobmeter"));
    backup.arg("backup").arg("--data").arg(&data).arg("--to").arg(&copy);
    let (code, _, errors) = output(&mut backup);
    assert_eq!(code, 0, "{errors}");
    let (original, copied) = (rights(&data), rights(&copy));
    for (path, is) in &copied {
        let open = is.0 & 0o077;
        assert_eq!(open, 0, "others may read {}: mode {:o}", path.display(), is.0);
        if let Some(was) = original.get(path) {
            assert_eq!(is, was, "{}", path.display());
        }
    }
    let files = ["audit.log", "audit-users.log", "jobs.sqlite", "demand.sqlite", "samples"];
    for file in files.into_iter().chain(["outputs/file/file.json"]) {
        assert!(copied.contains_key(Path::new(file)), "{file}: {copied:?}");
    }
    let text = |dir: &Path, file: &str| std::fs::read_to_string(dir.join(file)).unwrap();
    let audit = text(&copy, "audit.log");
    assert!(audit.contains("POST /api/v1/jobs"), "{audit}");
    assert_eq!(audit, text(&data, "audit.log"));
    // Agents find the jobs of `jobmeter run` by it.
    assert_eq!(text(&copy, "server_id"), text(&data, "server_id"));
}

const COUNTED: &str = "SELECT count(*) AS n, count(DISTINCT timestamp) AS ticks FROM metrics";

#[test]
fn a_copy_made_while_the_server_writes_holds_all_that_was_acknowledged_before() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let server = Server::start(&data, &["--block-every", "1s"]);
    let agent = |device: &str| {
        let mut command = Command::new(program("jobmeter-agent"));
        command.args(["--server", &server.url, "--device", device, "--period", "100ms"]);
        Running::start(command.args(["--spool", "none"]))
    };
    let _agents = [agent("n1"), agent("n2")];
    let counted = |url: &str, query: &str| -> (u64, u64) {
        let (code, out, errors) = jobmeter(url, &["sql", "--format", "json", query]);
        assert_eq!(code, 0, "{errors}");
        let rows: Vec<Value> = serde_json::from_str(&out).unwrap();
        (rows[0]["n"].as_u64().unwrap(), rows[0]["ticks"].as_u64().unwrap())
    };
    until("samples", Duration::from_secs(20), || {
        (counted(&server.url, COUNTED).0 > 5000).then_some(())
    });
    for round in 0..6 {
        let before = counted(&server.url, COUNTED);
        let copy = dir.path().join(format!("copy-{round}"));
        let mut backup = Command::new(program("jobmeter"));
        backup.arg("backup").arg("--data").arg(&data).arg("--to").arg(&copy);
        let (code, _, errors) = output(&mut backup);
        assert_eq!(code, 0, "{errors}");
        let after = counted(&server.url, COUNTED);
        let mut verify = Command::new(program("jobmeter"));
        let (code, out, errors) = output(verify.arg("verify").arg("--data").arg(&copy));
        assert_eq!(code, 0, "{out}{errors}");
        let mut restored = Server::start(&copy, &[]);
        let found = counted(&restored.url, COUNTED);
        assert!(before <= found && found <= after, "{before:?} <= {found:?} <= {after:?}");
        assert_eq!(restored.running.end(), 0, "{}", restored.running.errors());
        std::thread::sleep(Duration::from_millis(300));
    }
    // Neither a copy nor a second store goes into the live store.
    for (command, flag, inner) in
        [("backup", "--to", "data/samples/copy"), ("verify", "--data", "data/samples")]
    {
        let mut inside = Command::new(program("jobmeter"));
        if command == "backup" {
            inside.arg(command).arg("--data").arg(&data);
        } else {
            std::fs::create_dir(data.join("samples/samples")).unwrap();
            inside.arg(command);
        }
        let (code, _, errors) = output(inside.arg(flag).arg(dir.path().join(inner)));
        assert!(code != 0 && errors.contains("lies inside the store"), "{command}: {errors}");
    }
    let mut again = Command::new(program("jobmeter"));
    again.arg("backup").arg("--data").arg(&data).arg("--to").arg(dir.path().join("copy-0"));
    let (code, _, errors) = output(&mut again);
    assert_ne!(code, 0, "what is there is not written over");
    assert!(errors.contains("copy-0 already exists") && errors.contains("--to"), "{errors}");
}

#[test]
fn a_backup_by_root_follows_no_link_of_the_folders_owner() {
    if !root("a folder of another user") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (data, secrets) = (dir.path().join("data"), dir.path().join("secrets"));
    let mut server = Server::start(&data, &[]);
    let (code, _, errors) = jobmeter(&server.url, &["run", "--", "true"]);
    assert_eq!(code, 0, "{errors}");
    assert_eq!(server.running.end(), 0, "{}", server.running.errors());
    std::fs::create_dir(&secrets).unwrap();
    let status = Command::new("chown").args(["-R", "65534:65534"]).arg(&data).status().unwrap();
    assert!(status.success());
    let block = std::fs::read_dir(data.join("samples/blocks")).unwrap().next().unwrap().unwrap();
    let block = Path::new("samples/blocks").join(block.file_name());
    for (place, attacked) in [
        Path::new("audit.log"),
        Path::new("jobs.sqlite"),
        &block,
        Path::new("samples/blocks"),
        Path::new("samples"),
    ]
    .into_iter()
    .enumerate()
    {
        let (path, away) = (data.join(attacked), dir.path().join("away"));
        let copy = dir.path().join(format!("copy-{place}"));
        // The same content, which is a secret of root now.
        std::fs::rename(&path, &away).unwrap();
        let secret = secrets.join("secret");
        assert!(Command::new("cp").arg("-r").args([&away, &secret]).status().unwrap().success());
        std::os::unix::fs::symlink(&secret, &path).unwrap();
        let mut backup = Command::new(program("jobmeter"));
        backup.arg("backup").arg("--data").arg(&data).arg("--to").arg(&copy);
        let (code, _, errors) = output(&mut backup);
        assert_ne!(code, 0, "{}: {errors}", attacked.display());
        let is_untouched = |(path, (_, uid, _)): (&PathBuf, &(u32, u32, u32))| {
            let about = std::fs::symlink_metadata(secrets.join(path)).unwrap();
            *uid == 0 && (about.is_dir() || about.nlink() == 1)
        };
        assert!(rights(&secrets).iter().all(is_untouched), "{}", attacked.display());
        let copied = copy.join(attacked);
        assert!(!copied.try_exists().unwrap() || std::fs::metadata(&copied).unwrap().uid() == 0);
        std::fs::remove_file(&path).unwrap();
        std::fs::rename(&away, &path).unwrap();
        assert!(Command::new("rm").arg("-r").arg(&secret).status().unwrap().success());
    }
}
