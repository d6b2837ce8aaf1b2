//! Runs that ended while their server was unavailable, in the state folder of the user.
//!
//! ```text
//! STATE/runs/ID@SERVER/             a spool of `delivery`: the samples that no server acknowledged
//! STATE/runs/ID@SERVER/end.json     the job's end, written last: without it, the folder is incomplete
//! ```
//!
//! The next run that the same server registers sends them (decision 0030).

use super::is_http_error;
use super::send::{Sender, steady_us};
use crate::client::http_client::Client;
use anyhow::Context;
use api::End;
use config::SpoolSettings;
use delivery::{Stepped, environment, write_private};
use kernel::clock::monotonic_us;
use kernel::trust::make_own_folder;
use model::{ClusterId, DeviceId, JobId, JobKey};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Maximum number of kept runs, and of the bytes of one. Above it, the oldest is removed.
const RUNS_MAX: usize = 100;
const RUN_BYTES_MAX: u64 = 2 << 20;
/// Maximum age of a kept sample, as in an agent's spool.
const AGE_MAX: Duration = Duration::from_secs(7 * 86_400);
/// The file that completes a folder.
const END_FILE: &str = "end.json";

/// A run that its server does not know the end of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct KeptRun {
    pub(crate) id: i64,
    /// The identity of the server that assigned the ID.
    pub(crate) server: String,
    pub(crate) device: String,
    pub(crate) end: End,
}

impl KeptRun {
    /// Keeps the run and its unsent samples in the user's state folder. Returns the report's line.
    pub(crate) fn keep(&self, unsent: Option<Stepped>) -> anyhow::Result<String> {
        anyhow::ensure!(!self.server.is_empty(), "the server states no identity");
        let runs = folder().context("there is no folder for it; set HOME")?;
        make_own_folder(&runs, 0o700)?;
        let removed = make_space(&runs)?;
        let dir = runs.join(format!("{}@{}", self.id, self.server));
        make_own_folder(&dir, 0o700)?;
        if let Some(unsent) = unsent {
            unsent.end_in(&spool_settings(&dir), crate::clock(), steady_us())?;
        }
        write_private(&dir.join(END_FILE), &serde_json::to_vec(self)?)?;
        let removed = match removed {
            0 => String::new(),
            count => {
                format!("; {count} older ones were removed, because {RUNS_MAX} are kept at most")
            }
        };
        let dir = dir.display();
        Ok(format!(
            "the server, which was unavailable: the job is kept in {dir}, and your next `jobmeter run` that reaches this server sends it{removed}"
        ))
    }

    /// Sends the samples in this folder, then the job's end. Returns false if the server did not take everything.
    fn send(&self, client: &Client, dir: &Path, give_up_us: u64) -> anyhow::Result<bool> {
        let id = JobId::new(self.id).context("a job's ID")?;
        let (key, device) =
            (JobKey { cluster: ClusterId::local(), id }, DeviceId::new(&self.device)?);
        let mut sender = Sender::of_kept(client, &key, &device, &spool_settings(dir))?;
        if !sender.flush(give_up_us) {
            return Ok(false);
        }
        let path = format!("/api/v1/jobs/{key}/end");
        match client.post::<api::Job>(&path, &self.end) {
            Err(error) if !is_http_error(&error) => Err(error),
            _ => Ok(true),
        }
    }
}

/// Sends runs that this server registered and that ended while it was unavailable, oldest first, until a deadline.
/// Returns their jobs.
pub(crate) fn send_kept(client: &Client, server: &str, give_up_us: u64) -> Vec<String> {
    let mut sent = Vec::new();
    // A folder that another user can change is not read.
    let Some(runs) = folder().filter(|runs| runs.is_dir() && make_own_folder(runs, 0o700).is_ok())
    else {
        return sent;
    };
    for (dir, run) in of_server(&runs, server) {
        if monotonic_us() >= give_up_us || !run.send(client, &dir, give_up_us).unwrap_or(false) {
            break;
        }
        // A folder that remains is sent again, and the server recognizes the duplicates.
        fs::remove_dir_all(&dir).ok();
        sent.push(format!("{}:{}", ClusterId::LOCAL, run.id));
    }
    sent
}

/// The kept runs that this server registered, oldest first. Another server has other jobs of the same IDs.
fn of_server(runs: &Path, server: &str) -> Vec<(PathBuf, KeptRun)> {
    let dirs = oldest_first(runs).unwrap_or_default().into_iter();
    let runs = dirs.filter_map(|(_, dir)| Some((read(&dir)?, dir)));
    runs.filter(|(run, _)| run.server == server).map(|(run, dir)| (dir, run)).collect()
}

/// The folder of kept runs.
fn folder() -> Option<PathBuf> {
    let root = rustix::process::geteuid().is_root();
    Some(config::state_dir(root, &environment)?.join("runs"))
}

fn spool_settings(dir: &Path) -> SpoolSettings {
    SpoolSettings::of_command(dir.to_owned(), RUN_BYTES_MAX, AGE_MAX)
}

fn read(dir: &Path) -> Option<KeptRun> {
    serde_json::from_slice(&fs::read(dir.join(END_FILE)).ok()?).ok()
}

/// The folders of kept runs, each with the time of its last change.
fn oldest_first(runs: &Path) -> std::io::Result<Vec<(SystemTime, PathBuf)>> {
    let mut dirs = Vec::new();
    for entry in fs::read_dir(runs)? {
        let entry = entry?;
        // Another run may have removed it meanwhile.
        let Ok(about) = entry.metadata() else { continue };
        if about.is_dir() {
            dirs.push((about.modified()?, entry.path()));
        }
    }
    dirs.sort();
    Ok(dirs)
}

/// Removes runs that are too old, and the oldest ones while there is no room for one more. Returns how many were
/// removed for room.
fn make_space(runs: &Path) -> std::io::Result<usize> {
    let mut dirs = oldest_first(runs)?;
    let is_old = |at: &SystemTime| at.elapsed().is_ok_and(|age| age > AGE_MAX);
    for (_, dir) in dirs.extract_if(.., |(at, _)| is_old(at)) {
        fs::remove_dir_all(dir)?;
    }
    let too_many = (dirs.len() + 1).saturating_sub(RUNS_MAX);
    dirs.iter().take(too_many).try_for_each(|(_, dir)| fs::remove_dir_all(dir))?;
    Ok(too_many)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_kept_runs_give_way() {
        let runs = tempfile::tempdir().unwrap();
        for n in 0..RUNS_MAX + 2 {
            let dir = runs.path().join(format!("{n}@s"));
            fs::create_dir(&dir).unwrap();
            if n < 2 {
                fs::File::open(dir).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
            }
        }
        assert_eq!(make_space(runs.path()).unwrap(), 1, "two are too old, and one has no room");
        assert_eq!(oldest_first(runs.path()).unwrap().len(), RUNS_MAX - 1);
        assert_eq!(make_space(runs.path()).unwrap(), 0);
    }

    #[test]
    fn runs_of_two_servers_do_not_mix() {
        let runs = tempfile::tempdir().unwrap();
        let keep = |server: &str| {
            let dir = runs.path().join(format!("5@{server}"));
            fs::create_dir(&dir).unwrap();
            let (server, device) = (server.to_owned(), "n1".to_owned());
            let run = KeptRun { id: 5, server, device, end: End::default() };
            fs::write(dir.join(END_FILE), serde_json::to_vec(&run).unwrap()).unwrap();
            dir
        };
        let (ours, _others) = (keep("ab12"), keep("cd34"));
        fs::create_dir(runs.path().join("6@ab12")).unwrap();
        let found: Vec<PathBuf> =
            of_server(runs.path(), "ab12").into_iter().map(|(dir, _)| dir).collect();
        assert_eq!(found, [ours], "not those of another server, and no incomplete one");
        assert!(of_server(runs.path(), "").is_empty());
    }

    #[test]
    fn a_run_is_read_as_it_was_kept() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()), None, "incomplete");
        let end = End { exit_code: Some(3), stop: Some(1e9) };
        let run = KeptRun { id: 7, server: "3f2a".to_owned(), device: "n1".to_owned(), end };
        fs::write(dir.path().join(END_FILE), serde_json::to_vec(&run).unwrap()).unwrap();
        assert_eq!(read(dir.path()), Some(run));
    }
}
